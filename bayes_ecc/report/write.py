"""`write_report`: a fit as one HTML file, to be read by people who do not run Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from bayes_ecc.auditing import Audit, audit
from bayes_ecc.auditing.findings import plural
from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_count
from bayes_ecc.diagnostics import Diagnosis
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.folders import load_bundle
from bayes_ecc.posterior import atoms
from bayes_ecc.report.bundles import BundleFacts, look_at_bundle, look_up_texts
from bayes_ecc.report.clusters import Queries, clusters_section, know_queries
from bayes_ecc.report.data import data_section
from bayes_ecc.report.figures import cluster_figures, model_figures
from bayes_ecc.report.held_out import evaluate_first, usual_label
from bayes_ecc.report.llms import models_section
from bayes_ecc.report.markup import Content, isolated, join, tag
from bayes_ecc.report.methods import (
    Evaluation,
    doubts_of,
    headline,
    methods_section,
    read_evaluation,
)
from bayes_ecc.report.page import page
from bayes_ecc.report.parts import badge
from bayes_ecc.report.reading import Reading, read_fit
from bayes_ecc.report.rerun import rerun_section
from bayes_ecc.report.tables import names
from bayes_ecc.report.trust import diagnosis_of, trust_section, verdict
from bayes_ecc.storage import load_posterior

type Source = Bundle | str | os.PathLike[str]


def write_report(
    fit: Any,
    path: str | os.PathLike[str],
    *,
    bundles: Source | Iterable[Source] = (),
    evaluation: Evaluation | str | os.PathLike[str] | None = None,
    title: str | None = None,
    typical: int = 5,
    figures: bool = True,
    command: str | None = None,
) -> Path:
    """Write a report of a fit: one HTML file that needs nothing else and loads nothing.

    It tells what the data are and what an audit found, who leads over all queries and in each
    cluster, with intervals and with typical queries, what can't be told from the best, how methods
    compare on held-out queries, how far the fit can be trusted, and how to run it again.

    Parameters
    ----------
    fit : estimator, xarray.DataTree, str or path
        A fitted estimator, its posterior, or a file of `save_posterior`.
    path : str or path
        The file to write; an existing one is replaced.
    bundles : Bundle, path, or several
        The data that were fitted, for texts, labels and an audit. Where two know a query, the
        first tells its text.
    evaluation : mapping, str or path, optional
        What `bayes_ecc.evaluation.evaluate` gave, or the file that `bayes-ecc evaluate --json`
        wrote: the comparison of methods.
    title : str, optional
        By default it names the data.
    typical : int
        Typical queries shown of each cluster.
    figures : bool
        Whether to draw figures, which takes most of the time.
    command : str, optional
        The command that makes this report, to be shown in it.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        If the fit holds no training data, a bundle is of other data, the evaluation is none, or
        the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.report import write_report
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(fit, f"{folder}/report.html", bundles=data.bundle(), figures=False)
    ...     path.read_text(encoding="utf-8").startswith("<!doctype html>")
    True
    """
    target = _writable(path)
    text = render_report(
        fit,
        bundles=bundles,
        evaluation=evaluation,
        title=title,
        typical=typical,
        figures=figures,
        command=command,
    )
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(target)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def render_report(
    fit: Any,
    *,
    bundles: Source | Iterable[Source] = (),
    evaluation: Evaluation | str | os.PathLike[str] | None = None,
    title: str | None = None,
    typical: int = 5,
    figures: bool = True,
    command: str | None = None,
) -> str:
    """Make the report of a fit as text; the arguments are those of `write_report`.

    Returns
    -------
    str
        A whole HTML file.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.report import render_report
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> "No data set is at hand" in render_report(fit, figures=False)
    True
    """
    check_count("typical", typical, least=0)
    posterior, file = _posterior(fit)
    judged = None if evaluation is None else read_evaluation(evaluation)
    judged_in = str(evaluation) if isinstance(evaluation, str | os.PathLike) else None
    sources = [bundles] if isinstance(bundles, Bundle | str | os.PathLike) else list(bundles)
    loaded = [one if isinstance(one, Bundle) else load_bundle(one) for one in sources]
    reading = read_fit(posterior)
    facts = [look_at_bundle(one, reading.comparisons, reading.few) for one in loaded]
    theirs = [one.bundle for one in facts if one.agreement.same_data]
    audits = [one.audit for one in facts] or [audit(reading.comparisons)]
    doubts = [] if judged is None else doubts_of(judged, reading.comparisons, loaded)
    if doubts:
        warnings.warn(
            f"{judged_in or 'The evaluation'} may not be of the data that were fitted: "
            f"{' '.join(doubts)} Give an evaluation of these data.",
            DataWarning,
            stacklevel=2,
        )
    diagnosis = diagnosis_of(reading)
    queries = _queries(facts, reading, typical)
    name = theirs[0].name if theirs else Path(file).name if file else "a fit"
    shown = [one.name if isinstance(one, Bundle) else str(one) for one in sources]
    version = metadata.version("bayes_ecc")
    return page(
        title
        if title is not None
        else f"Report on {name or (Path(file).name if file else 'a fit')}",
        _subtitle(reading, posterior, file),
        _in_short(reading, facts, audits, diagnosis, judged, doubts),
        [
            data_section(reading, facts, audits),
            models_section(reading, model_figures(reading) if figures else []),
            clusters_section(
                reading,
                queries,
                cluster_figures(reading) if figures else [],
                next(filter(None, map(usual_label, theirs)), None),
            ),
            methods_section(judged, doubts, evaluate_first(reading.comparisons, theirs)),
            trust_section(reading, diagnosis),
            rerun_section(posterior, file, command, shown, judged, judged_in, bool(doubts)),
        ],
        datetime.now(UTC),
        version,
    )


def _posterior(fit: Any) -> tuple[xr.DataTree, str | None]:
    """Get at a fit's posterior, and at the name of its file."""
    if isinstance(fit, str | os.PathLike):
        return load_posterior(Path(fit)), str(fit)
    posterior = fit if isinstance(fit, xr.DataTree) else getattr(fit, "posterior_", None)
    if not isinstance(posterior, xr.DataTree):
        raise InputError(
            f"fit={type(fit).__name__}: give a fitted estimator, its posterior_, or the file of a "
            "saved fit."
        )
    atoms(posterior)
    return posterior, None


def _writable(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path={path!r}: give the name of a file.")
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first.")
    return target


def _queries(facts: list[BundleFacts], reading: Reading, typical: int) -> Queries:
    labels: dict[str, pd.Series] = {}
    for one in facts:
        for name, values in one.labels(reading.comparisons.queries).items():
            labels.setdefault(name, values)
    return know_queries(reading, look_up_texts(facts), labels, typical)


def _subtitle(reading: Reading, posterior: xr.DataTree, file: str | None) -> Content:
    n_clusters = reading.responsibilities.shape[1]
    sizes = posterior["posterior"].sizes
    sampled = f"{plural(sizes.get('chain', 1), 'chain')} of {plural(sizes.get('draw', 1), 'draw')}"
    if reading.point:
        sampled = "a point estimate"
    return join(
        f"{posterior.attrs.get('estimator', 'A fit')} with {plural(n_clusters, 'cluster')}, ",
        sampled,
        f", an approximation by {posterior.attrs.get('sampler', 'another sampler')}"
        if posterior.attrs.get("approximate")
        else None,
        join(", from ", tag("code", Path(file).name)) if file else None,
    )


def _in_short(
    reading: Reading,
    facts: list[BundleFacts],
    audits: list[Audit],
    diagnosis: Diagnosis | None,
    judged: Evaluation | None,
    doubts: list[str],
) -> dict[str, Content]:
    """Give the figures that a hurried reader takes away."""
    data, occupied = reading.comparisons, reading.by_size()
    best = reading.overall.index[0]
    equal = reading.overall.index[reading.overall["in_best_set"]]
    leading = len(set(reading.ranking["p_best"].values[occupied].argmax(axis=1).tolist()))
    kind, words = verdict(reading, diagnosis)
    errors = sum(not one.ok for one in audits)
    warned = sum(found.severity == "warning" for one in audits for found in one.findings)
    if any(not one.agreement.same_data for one in facts):
        audited = badge("fail", "not the data that were fitted")
    elif errors:
        audited = badge("fail", "errors found")
    elif any(one.agreement.different for one in facts):
        audited = badge("warn", "differ from what was fitted")
    elif warned:
        audited = badge("warn", plural(warned, "warning"))
    else:
        audited = badge("ok", "no errors, no warnings")
    overall = isolated(best)
    if len(equal) > 1:
        overall = join(names(equal, 3), _small("can't be told apart"))
    elif not reading.point:
        overall = join(overall, _small(f"P(best) {reading.overall['p_best'].iloc[0]:.2f}"))
    told: dict[str, Content] = {
        "Data": join(
            f"{data.n_queries:,} queries, {data.n_models:,} LLMs",
            _small(f"{len(data):,} comparisons"),
        ),
        "Best over all queries": overall,
        "Clusters": join(
            f"{len(occupied)} that hold queries",
            _small(f"{plural(leading, 'LLM')} {'leads' if leading == 1 else 'lead'} in some"),
        )
        if reading.responsibilities.shape[1] > 1
        else "one ranking for all queries",
        "Audit of the data": audited,
        "Trust": badge(kind, words),
    }
    if judged is not None:
        told["Gain on held-out comparisons"] = join(
            headline(judged), badge("fail", "of other data?") if doubts else None
        )
    return told


def _small(text: str) -> Content:
    return tag("div", text, class_="quiet")
