"""The API reference: a page a subject, written from the docstrings before Sphinx reads anything."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import bayes_ecc
import bayes_ecc.models
from bayes_ecc.predictions import PosteriorPredictions

PAGES: dict[str, tuple[str, ...]] = {
    "Data": (
        "comparisons",
        "counts",
        "bundle",
        "folders",
        "datasets",
        "embeddings",
        "encoders",
        "auditing",
        "errors",
    ),
    "Estimators": (
        "bradley_terry",
        "baselines",
        "ecc",
        "bayesian",
        "selection",
        "validation",
        "ties",
        "models",
        "samplers",
    ),
    "The posterior": (
        "posterior",
        "storage",
        "draws",
        "inference",
        "predictive",
        "summaries",
        "rankings",
        "intervals",
    ),
    "Checks of a fit": (
        "diagnostics",
        "modes",
        "posterior_checks",
        "evidence",
        "stacking",
        "alignment",
    ),
    "Measuring": ("metrics", "calibration", "three_way", "splits", "evaluation", "em_posterior"),
    "Routing and probing": (
        "quality",
        "score_model",
        "routing",
        "utilities",
        "probing",
        "score_probing",
        "routing_tasks",
        "routing_baselines",
        "routing_policies",
        "routing_study",
    ),
    "Onboarding": (
        "onboarding",
        "onboarding_state",
        "acquisition",
        "newcomer",
        "onboarding_fit",
        "onboarding_tasks",
        "onboarding_study",
    ),
    "Structure and studies": ("structure", "cell_reading", "chat", "studies"),
    "Plots and report": ("plots", "report"),
}
"""The rooms of the library by subject. Every room with documented names stands on one page."""

HIDDEN = {"checks", "coding", "em", "mixture_settings", "reading", "random", "sampling", "starts"}
HIDDEN |= {"parquet", "tables", "versions", "cli"}
"""Rooms nobody imports from but the library itself."""


class Entry:
    """One documented name: how users import it, and what it is."""

    def __init__(self, path: str, target: Any) -> None:
        self.path = path
        self.target = target

    def directive(self) -> list[str]:
        """Write it as autodoc understands it."""
        if not inspect.isclass(self.target):
            return [f".. autofunction:: {self.path}", ""]
        if issubclass(self.target, BaseException):
            return [f".. autoexception:: {self.path}", ""]
        lines = [f".. autoclass:: {self.path}", "   :members:"]
        if issubclass(self.target, PosteriorPredictions):
            lines.append("   :inherited-members: BaseEstimator")
        return [*lines, ""]


def rooms() -> dict[str, list[str]]:
    """Give the modules of each room, by its name."""
    # models/ stands beside the library in a checkout, and is found there only by its own path.
    names = {"bayes_ecc.models"}
    for package in (bayes_ecc, bayes_ecc.models):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.rpartition(".")[2].startswith("__"):
                names.add(info.name)
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(name.split(".")[1], []).append(name)
    return found


def shortest_path(module_name: str, name: str, target: Any) -> str:
    """Give the outermost package that a name can be imported from."""
    parts = module_name.split(".")
    for depth in range(1, len(parts)):
        package = ".".join(parts[:depth])
        if getattr(import_module(package), name, None) is target:
            return package
    return module_name


def entries(module_name: str) -> list[Entry]:
    """Give what a module defines and documents with an example, in its order."""
    module = import_module(module_name)
    found = []
    for name, target in vars(module).items():
        documented = inspect.isclass(target) or inspect.isfunction(target)
        if not documented or name.startswith("_") or target.__module__ != module_name:
            continue
        if re.search(r"^Examples\n-{8}$", inspect.getdoc(target) or "", re.MULTILINE):
            found.append(Entry(f"{shortest_path(module_name, name, target)}.{name}", target))
    return found


def missing() -> list[str]:
    """Name the rooms that stand on no page although they have documented names."""
    placed = {room for page in PAGES.values() for room in page} | HIDDEN
    return [
        room
        for room, modules in rooms().items()
        if room not in placed and any(entries(module) for module in modules)
    ]


def page(title: str, names: tuple[str, ...]) -> str:
    """Write one page."""
    there = rooms()
    lines = [title, "=" * len(title), ""]
    for room in names:
        for module in there.get(room, []):
            found = entries(module)
            if not found and module != f"bayes_ecc.{room}":
                continue
            short = module.removeprefix("bayes_ecc.")
            lines += [short, "-" * len(short), "", f".. automodule:: {module}", ""]
            for entry in found:
                lines += entry.directive()
    return "\n".join(lines)


def names_page() -> str:
    """Write the table of what `from bayes_ecc import` gives, with the first line of each."""
    lines = ["Names at a glance", "=================", ""]
    lines += ["What ``from bayes_ecc import ...`` gives:", "", ".. list-table::", ""]
    for name in sorted(bayes_ecc.__all__, key=str.lower):
        target = getattr(bayes_ecc, name)
        if callable(target):
            summary = (inspect.getdoc(target) or "").partition("\n\n")[0].replace("\n", " ")
            summary = re.sub(r" \[\d+\]_", "", summary)  # references stand further down there
            lines += [f"   * - :py:obj:`{name} <bayes_ecc.{name}>`", f"     - {summary}"]
    return "\n".join([*lines, ""])


def write_pages(app: Sphinx) -> None:
    """Write all pages and their table; what is unchanged keeps its time."""
    unplaced = missing()
    if unplaced:
        raise ExtensionError(f"add {', '.join(unplaced)} to PAGES in docs/extensions/reference.py")
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    written = {"names": names_page()}
    for title, names in PAGES.items():
        written[title.lower().replace(" ", "_")] = page(title, names)
    for name, text in written.items():
        path = folder / f"{name}.rst"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def skip(_app: Sphinx, _what: str, name: str, target: Any, *_: Any) -> bool | None:
    """Leave out fields of named tuples, which Attributes tells of, and scikit-learn's plumbing."""
    field = type(target).__name__ == "_tuplegetter"
    plumbing = name == "get_metadata_routing" or re.fullmatch(r"set_\w+_request", name)
    return True if field or plumbing else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the events."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
