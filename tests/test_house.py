"""The house rules: what is installed, which room imports which, and what a public name owes."""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bayes_ecc

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Data flow down this list, and a room imports only rooms above it. A new module gets a place here:
# below everything it needs, above everything that needs it.
ROOMS = [
    "errors",
    "versions",
    "checks",
    "random",
    "coding",
    "ties",
    "counts",
    "comparisons",
    "reading",
    "parquet",
    "tables",
    "bundle",
    "folders",
    "datasets",
    "embeddings",
    "encoders",
    "contrasts",
    "bradley_terry",
    "baselines",
    "posterior",
    "storage",
    "inference",
    "predictions",
    "predictive",
    "intervals",
    "draws",
    "summaries",
    "rankings",
    "stacking",
    "evidence",
    "modes",
    "posterior_checks",
    "diagnostics",
    "metrics",
    "calibration",
    "three_way",
    "validation",
    "selection",
    "em",
    "ecc",
    "models",
    "samplers",
    "sampling",
    "mixture_settings",
    "starts",
    "alignment",
    "bayesian",
    "structure",
    "chat",
    "cell_reading",
    "quality",
    "score_model",
    "utilities",
    "routing",
    "probing",
    "score_probing",
    "newcomer",
    "acquisition",
    "onboarding_fit",
    "onboarding_input",
    "onboarding_state",
    "onboarding",
    "auditing",
    "splits",
    "evaluation",
    "em_posterior",
    "routing_tasks",
    "routing_baselines",
    "routing_policies",
    "routing_study",
    "onboarding_tasks",
    "onboarding_study",
    "studies",
    "plots",
    "report",
    "cli",
]


def source_files(root: Path) -> dict[str, Path]:
    """Map every module to its file, `models/` under the name it is installed by."""
    files = {}
    for name, prefix in {"bayes_ecc": "bayes_ecc", "models": "bayes_ecc.models"}.items():
        for path in sorted((root / name).rglob("*.py")):
            parts = path.relative_to(root / name).with_suffix("").parts
            names = [prefix, *(part for part in parts if part != "__init__")]
            files[".".join(names)] = path
    return files


FILES = source_files(ROOT)
MODULES = [name for name in FILES if name != "bayes_ecc"]


def imported_modules(name: str) -> set[str]:
    """Modules of the library that a module imports, also inside functions and for types alone."""
    found = set()
    for node in ast.walk(ast.parse(FILES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}, line {node.lineno}: write the import in full"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            targets = [target if target in FILES else str(node.module) for target in full]
            targets = [
                "" if target == "bayes_ecc.__version__" else chosen
                for target, chosen in zip(full, targets, strict=True)
            ]
        else:
            continue
        for target in targets:
            assert target.split(".")[0] != "models", (
                f"{name}, line {node.lineno}: models/ is installed as bayes_ecc.models"
            )
            if target.split(".")[0] == "bayes_ecc":
                assert target != "bayes_ecc", (
                    f"{name}, line {node.lineno}: import from the module that defines the name, "
                    "not from bayes_ecc itself"
                )
                found.add(target)
    return found


def run_python(code: str, folder: Path) -> str:
    """Run code in an interpreter of its own and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -------------------------------------------------------------------- imports


def test_every_room_has_a_place() -> None:
    unknown = sorted({name.split(".")[1] for name in MODULES} - set(ROOMS))
    assert len(ROOMS) == len(set(ROOMS))
    assert not unknown, f"add {', '.join(unknown)} to ROOMS, below what it imports"


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name: str) -> None:
    room = name.split(".")[1]
    for target in imported_modules(name):
        other = target.split(".")[1]
        if other != room:
            assert ROOMS.index(other) < ROOMS.index(room), (
                f"{name} imports {target}, which lies below it"
            )


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name: imported_modules(name) for name in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


def test_importing_the_library_loads_no_extra() -> None:
    extras = {"torch", "sentence_transformers", "nutpie"}
    code = f"import sys, bayes_ecc; print(*{extras} & {{*sys.modules}})"
    assert run_python(code, ROOT) == ""


# -------------------------------------------------------------------- packaging


def package_folders() -> dict[str, Path]:
    return {name: path.parent for name, path in FILES.items() if path.name == "__init__.py"}


def test_every_package_is_installed() -> None:
    assert sorted(PYPROJECT["tool"]["setuptools"]["packages"]) == sorted(package_folders())
    for folder in {path.parent for path in FILES.values()}:
        assert (folder / "__init__.py").is_file(), f"{folder} lacks an __init__.py"


def test_wheel_holds_the_library_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("bayes_ecc", "models", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    code = "from setuptools.build_meta import build_wheel; print(build_wheel('.'))"
    wheel_name = run_python(code, source).splitlines()[-1]
    with zipfile.ZipFile(source / wheel_name) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        records = {Path(name).name for name in wheel.namelist() if ".dist-info/" in name}
    expected = {"bayes_ecc/py.typed", "bayes_ecc/__init__.pyi"}
    expected |= {f"bayes_ecc/report/report.{kind}" for kind in ("css", "js")}
    for module, path in source_files(source).items():
        folders = module.replace(".", "/")
        expected.add(f"{folders}/__init__.py" if path.name == "__init__.py" else f"{folders}.py")
    assert names == expected
    assert {"LICENSE", "METADATA", "entry_points.txt"} <= records


def test_models_are_importable_from_anywhere(tmp_path: Path) -> None:
    code = "import bayes_ecc.models; print(bayes_ecc.models.__name__)"
    for folder in (ROOT, tmp_path):
        assert run_python(code, folder) == "bayes_ecc.models"


def test_versions_agree() -> None:
    version = PYPROJECT["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    cited = re.search(r"^version: (\S+)$", citation, re.MULTILINE)
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert cited is not None
    assert newest is not None
    assert cited.group(1) == version
    assert newest.group(1) == version
    assert importlib.metadata.version("bayes-ecc") == version, "install the library again"
    assert bayes_ecc.__version__ == version


def test_constraints_name_versions_alone() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in pins)
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    for requirement in PYPROJECT["project"]["dependencies"]:
        found = re.match(r"[A-Za-z0-9-]+", requirement)
        assert found is not None
        assert found.group().lower() in pinned


# -------------------------------------------------------------------- documentation


def public_names() -> list[str]:
    return [name for name in bayes_ecc.__all__ if callable(getattr(bayes_ecc, name))]


def test_public_names_are_there_once() -> None:
    assert len(bayes_ecc.__all__) == len(set(bayes_ecc.__all__))
    assert all(hasattr(bayes_ecc, name) for name in bayes_ecc.__all__)
    stub = ast.parse((ROOT / "bayes_ecc" / "__init__.pyi").read_text(encoding="utf-8"))
    (listed,) = (
        ast.literal_eval(node.value)
        for node in stub.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    assert sorted(listed) == sorted(bayes_ecc.__all__)


def test_importing_the_library_imports_nothing_slow(tmp_path: Path) -> None:
    slow = "{'pymc', 'pytensor', 'arviz', 'matplotlib', 'sklearn', 'pandas'}"
    code = f"import sys, bayes_ecc; bayes_ecc.__version__; print(*{slow} & {{*sys.modules}})"
    assert run_python(code, tmp_path) == ""


@pytest.mark.parametrize("name", public_names())
def test_public_names_show_an_example(name: str) -> None:
    documentation = inspect.getdoc(getattr(bayes_ecc, name)) or ""
    assert re.search(r"^Examples\n-{8}\n(?s:.*)^>>> ", documentation, re.MULTILINE)


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert blocks
    exec(compile("".join(blocks), "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


# -------------------------------------------------------------------- what is tracked

# Brackets keep the patterns from finding themselves.
FOREIGN = re.compile(
    r"/[r]oot/|/[w]ork/|/[f]arm/|/[h]ome/\w|/[U]sers/\w|pyp[i]\.org|pythonh[o]sted|registry\.npm[j]s"
)


def test_tracked_files_name_no_machine() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be told")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    found = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file():
            text = path.read_bytes().decode("utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if FOREIGN.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)
