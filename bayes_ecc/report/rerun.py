"""The section on how to make it all again, and how to cite it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import xarray as xr

from bayes_ecc.posterior import training_data
from bayes_ecc.report.held_out import evaluate_command
from bayes_ecc.report.markup import Content, Markup, tag
from bayes_ecc.report.methods import Evaluation
from bayes_ecc.report.parts import Section, command, paragraph, section, terms
from bayes_ecc.report.tables import Column, table
from bayes_ecc.storage import data_fingerprint
from bayes_ecc.versions import installed_versions

_LIBRARIES = ("bayes_ecc", "numpy", "scipy", "pandas", "xarray", "matplotlib")
_OF_METHOD = {"ECC": "ecc", "BayesianECC": "bayes"}
_OPTIONS = {
    "ecc": ("embedding_weight", "temperature", "ridge"),
    "bayes": ("concentration", "evidence_power", "probe_power", "starts", "chains", "draws"),
}


def rerun_section(
    posterior: xr.DataTree,
    fit: str | None,
    made_by: str | None,
    bundles: Sequence[str],
    evaluation: Evaluation | None,
    judged_in: str | None,
    of_other_data: bool = False,
) -> Section:
    """Tell how to make the fit and the report again, from what, with which versions."""
    settings = settings_of_fit(posterior)
    attrs = posterior.attrs
    fingerprint = fingerprint_of(posterior)
    contents: list[Content] = [
        tag("h3", "Commands"),
        _commands(posterior, settings, fit, made_by, bundles, evaluation, judged_in, of_other_data),
        tag("h3", "What it was made from"),
        terms(
            {
                "Data": tag("code", fingerprint),
                "Estimator": str(attrs.get("estimator", "unknown"))
                + (f", sampled by {attrs['sampler']}" if "sampler" in attrs else ""),
                "Seed": _seed(settings, "command" in attrs),
                "Fitted with": _versions(attrs),
                "Reported with": ", ".join(
                    f"{name} {version}" for name, version in installed_versions(*_LIBRARIES).items()
                ),
                **_evaluated(evaluation),
            }
        ),
        paragraph(
            "The fingerprint is a hash of the comparisons and embeddings that were fitted; "
            "data_fingerprint(*training_data(posterior)) gives it in Python. On the same data, "
            "with the same seed and versions, the fit comes out the same."
        ),
        tag(
            "details",
            tag("summary", "All settings of the fit"),
            table(
                None,
                [Column("setting"), Column("value")],
                [[tag("code", name), _plain(value)] for name, value in sorted(settings.items())],
                name="settings",
                plain=True,
            ),
        ),
        tag("h3", "How to cite"),
        *_citation(posterior, fingerprint),
    ]
    return section("rerun", "Run it again, and cite it", contents)


def settings_of_fit(posterior: xr.DataTree) -> dict[str, Any]:
    """Read the settings that a fit keeps."""
    return _read(posterior.attrs.get("settings"))


def fingerprint_of(posterior: xr.DataTree) -> str:
    """Give the fingerprint of the data that were fitted."""
    found = posterior.attrs.get("data_fingerprint")
    return str(found) if found else data_fingerprint(*training_data(posterior))


def fit_command(posterior: xr.DataTree, fit: str, bundle: str | None) -> tuple[str, bool]:
    """Give the command that made a fit: as it was typed, or as its settings tell.

    Returns
    -------
    command : str
    exact : bool
        Whether it was kept with the fit.
    """
    kept = posterior.attrs.get("command")
    if kept:
        return str(kept), True
    settings = settings_of_fit(posterior)
    method = _OF_METHOD.get(str(posterior.attrs.get("estimator")))
    if method is None:
        return "", False
    words = ["bayes-ecc", "fit", bundle or "BUNDLE", "--method", method, "--out", fit]
    words += [
        "--clusters",
        str(settings.get("n_clusters", posterior["posterior"].sizes["cluster"])),
    ]
    for name in _OPTIONS[method]:
        value = settings.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            written = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{name.replace('_', '-')}", written]
    if isinstance(settings.get("rng"), int):
        words += ["--seed", str(settings["rng"])]
    return shlex.join(words), False


def _commands(
    posterior: xr.DataTree,
    settings: Mapping[str, Any],
    fit: str | None,
    made_by: str | None,
    bundles: Sequence[str],
    evaluation: Evaluation | None,
    judged_in: str | None,
    of_other_data: bool,
) -> Markup:
    file = fit or "fit.nc"
    made, exact = fit_command(posterior, file, bundles[0] if bundles else None)
    report = ["bayes-ecc", "report", file, "--out", "report.html"]
    if bundles:
        report += ["--bundle", *bundles]
    lines = [made] if made else []
    if evaluation is not None and "--evaluate" not in (made_by or "").split():
        judged_on = bundles[0] if bundles else None
        if of_other_data:  # the file names its data set, without the way to it
            judged_on = str(evaluation["protocol"].get("bundle") or "BUNDLE")
        lines.append(evaluate_command(evaluation, judged_on, judged_in))
        report += ["--evaluation", judged_in or "result.json"]
    lines.append(made_by or shlex.join(report))
    if exact:
        note = "The first command is the one that made the fit."
    elif made:
        note = (
            "The first command was put together from the settings in the fit: which comparisons "
            "were drawn from scores, and options that left no trace, are yours to add. What the "
            "fit chose by itself is given as a number, so that it is not chosen again."
        )
    else:
        note = "The fit keeps no command; its settings are below."
    if made and not exact and not isinstance(settings.get("rng"), int):
        note += " Its seed was not kept."
    return tag("div", [command(line) for line in lines], paragraph(note))


def _seed(settings: Mapping[str, Any], exact: bool) -> str:
    seed = settings.get("rng")
    if isinstance(seed, int):
        return str(seed)
    if exact:
        return "in the command above (0 where it names none)"
    return "none given" if seed is None else "not kept: the fit was given a generator"


def _versions(attrs: Mapping[Any, Any]) -> str:
    versions = _read(attrs.get("versions"))
    every = {"bayes_ecc": attrs.get("bayes_ecc_version", "of unknown version"), **versions}
    if not versions:
        return f"bayes_ecc {every['bayes_ecc']}; other versions are kept when a fit is saved"
    return ", ".join(f"{name} {version}" for name, version in every.items())


def _evaluated(evaluation: Evaluation | None) -> dict[str, str]:
    if evaluation is None:
        return {}
    protocol = evaluation["protocol"]
    versions = protocol.get("versions")
    seeds = protocol.get("seeds")
    told = []
    if isinstance(versions, Mapping):
        told += [f"{name} {version}" for name, version in versions.items()]
    if isinstance(seeds, list):
        told.append("seeds " + " ".join(map(str, seeds)))
    return {"Evaluated with": ", ".join(told)} if told else {}


def _citation(posterior: xr.DataTree, fingerprint: str) -> list[Markup]:
    package = metadata.metadata("bayes_ecc")
    version = posterior.attrs.get("bayes_ecc_version", package["Version"])
    clusters = posterior["posterior"].sizes["cluster"]
    estimator = posterior.attrs.get("estimator", "an estimator")
    sentence = (
        f"The bayes_ecc authors. bayes_ecc (version {version}): which language model is good at "
        f"what, and how sure that is. Fitted here: {estimator} with {clusters} "
        f"cluster{'' if clusters == 1 else 's'} to data {fingerprint[:23]}."
    )
    entry = (
        "@software{bayes_ecc,\n"
        "  author  = {{The bayes_ecc authors}},\n"
        "  title   = {bayes\\_ecc: which language model is good at what, and how sure that is},\n"
        f"  version = {{{version}}},\n"
        f"  note    = {{{package['License-Expression'] or 'MIT'} licence}}\n"
        "}"
    )
    return [paragraph(sentence), command(entry)]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(text: Any) -> dict[str, Any]:
    """Read a JSON attribute; one that is missing or damaged tells nothing."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
