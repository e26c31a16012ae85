"""Methods fitted beside a fit, on the data it was fitted to, with queries held out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from bayes_ecc.auditing.source import make_source
from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.evaluation import EvaluationSettings, check_method, evaluate
from bayes_ecc.posterior import training_data
from bayes_ecc.report.bundles import compare_with_bundle
from bayes_ecc.splits import draw_split

DEFAULT_METHODS = ("global", "ecc:auto", "bayes")
"""One global ranking, EM and the posterior, their settings chosen on training queries."""

_TEST_SIZE = 0.2
_KINDS = 30  # of query, at most, for a ranking each
_OPTIONS = {
    "clusters": "n_clusters",
    "embedding-weight": "embedding_weight",
    "embedding-only-weight": "embedding_only_weight",
    "temperature": "temperature",
    "ridge": "ridge",
    "concentration": "concentration",
    "evidence-power": "evidence_power",
    "probe-power": "probe_power",
    "starts": "starts",
    "chains": "chains",
    "draws": "draws",
    "per-query": "per_query",
    "test-size": "test_size",
    "probes": "probes",
    "source": "source",
    "frozen": "frozen",
}


def evaluate_beside(
    posterior: xr.DataTree,
    bundle: Bundle,
    methods: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    progress: bool | None = False,
) -> dict[str, Any]:
    """Evaluate methods on splits of the data of a fit, with as many clusters as it has.

    The same LLMs take part, and as many comparisons a query are drawn. Other settings are chosen
    anew on the training queries: those of the fit have seen the queries that are tested on.

    Parameters
    ----------
    posterior : xarray.DataTree
        The fit.
    bundle : Bundle
        The data that were fitted.
    methods : sequence of str, optional
        As `bayes_ecc.evaluation.evaluate` takes them; by default those of `default_methods`.
    seeds : sequence of int
        One split each.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    dict
        As `evaluate` gives it.

    Raises
    ------
    InputError
        If a method is unknown, or the bundle does not hold the fit's comparisons.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.report.held_out import evaluate_beside
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=4, ridge=0.1, rng=0).fit(data.comparisons, data.embeddings)
    >>> found = evaluate_beside(fit.posterior_, data.bundle(), ["global", "labels:capability"])
    >>> sorted(found["methods"])
    ['global', 'labels:capability']
    """
    if methods is None:
        methods = default_methods(bundle)
    for name in methods:
        check_method(name, bundle)
    comparisons, _ = training_data(posterior)
    agreement = compare_with_bundle(comparisons, bundle)
    if not agreement.same_data:
        raise InputError(
            f"The bundle {bundle.name!r} does not hold the comparisons of the fit "
            f"({agreement.looked_up:,} could be looked up, {agreement.different:,} differ); give "
            "the data that were fitted."
        )
    counts = np.bincount(comparisons.query, minlength=comparisons.n_queries)
    sizes = posterior["posterior"].sizes
    sampled: dict[str, Any] = (
        {"chains": sizes["chain"], "draws": sizes["draw"]} if sizes["draw"] > 1 else {}
    )
    drawing: dict[str, Any] = {
        "per_query": int(counts.max()) if agreement.source == "scores" else 7,
        "test_size": _TEST_SIZE,
        "probes": 1 if (counts > 1).any() else 0,
        "source": agreement.source,
    }
    excluded = list(agreement.left_out)
    splits = (
        draw_split(
            bundle,
            seed=check_count("seeds", seed, least=0),
            per_query=drawing["per_query"],
            test_size=_TEST_SIZE,
            n_probes=drawing["probes"],
            exclude_models=excluded,
            source=agreement.source,
        )
        for seed in seeds
    )
    settings = EvaluationSettings(
        n_clusters=sizes["cluster"],
        embedding_weight="auto",
        temperature="auto",
        ridge="auto",
        **sampled,
    )
    return evaluate(
        bundle,
        splits,
        methods,
        settings,
        protocol={"seeds": list(seeds), "exclude_models": excluded, "frozen": None, **drawing},
        progress=progress,
    )


def usual_label(bundle: Bundle) -> str | None:
    """Name the first label column that sorts queries into few kinds (2 to 30).

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.report.held_out import usual_label
    >>> usual_label(simulate(n_queries=200, rng=0).bundle())
    'topic'
    """
    named = (label.name for label in make_source(bundle).labels if len(label.levels) <= _KINDS)
    return next(named, None)


def default_methods(bundle: Bundle) -> list[str]:
    """Name the methods to compare: `DEFAULT_METHODS`, and one ranking a label where there are any.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.report.held_out import default_methods
    >>> default_methods(simulate(n_queries=200, rng=0).bundle())
    ['global', 'labels:topic', 'ecc:auto', 'bayes']
    """
    label = usual_label(bundle)
    given = [] if label is None else [f"labels:{label}"]
    return [DEFAULT_METHODS[0], *given, *DEFAULT_METHODS[1:]]


def evaluate_first(comparisons: Comparisons, bundles: Sequence[Bundle]) -> str:
    """Give the command that evaluates methods on the data of a fit, to be shown.

    Where no query has two comparisons none can be a probe, which the command then says.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.report.held_out import evaluate_first
    >>> evaluate_first(simulate(n_queries=60, rng=0).comparisons, [])
    'bayes-ecc evaluate BUNDLE --methods global,ecc:auto,bayes --json result.json'
    """
    methods = default_methods(bundles[0]) if bundles else list(DEFAULT_METHODS)
    words = ["bayes-ecc", "evaluate", "BUNDLE"]
    if any("," in name for name in methods):  # a comma parts methods
        words += [word for name in methods for word in ("--methods", name)]
    else:
        words += ["--methods", ",".join(methods)]
    counts = np.bincount(comparisons.query, minlength=comparisons.n_queries)
    if not (counts > 1).any():
        words += ["--probes", "0"]
    return shlex.join([*words, "--json", "result.json"])


def evaluate_command(
    evaluation: Mapping[str, Any], bundle: str | None, file: str | None = None
) -> str:
    """Give the command that makes an evaluation again, from what it tells of itself.

    The data and the file to write are called BUNDLE and result.json where they are not known.

    Examples
    --------
    >>> from bayes_ecc.report.held_out import evaluate_command
    >>> protocol = {"n_clusters": 30, "ridge": "auto", "seeds": [0, 1], "frozen": None}
    >>> evaluate_command({"protocol": protocol, "methods": {"ecc": {}, "labels:my task": {}}}, None)
    "bayes-ecc evaluate BUNDLE --methods ecc --methods 'labels:my task' --clusters 30 --ridge auto
     --seed 0 --seeds 2 --json result.json"
    """
    protocol = evaluation["protocol"]
    words = ["bayes-ecc", "evaluate", bundle or "BUNDLE"]
    for name in evaluation["methods"]:
        words += ["--methods", str(name)]
    words += _told(protocol)
    seeds = protocol.get("seeds")
    if isinstance(seeds, list) and seeds and all(isinstance(seed, int) for seed in seeds):
        words += ["--seed", str(seeds[0])]
        if len(seeds) > 1:
            words += ["--seeds", str(len(seeds))]
    words += ["--json", file or "result.json"]
    return shlex.join(words)


def _told(protocol: Mapping[str, Any]) -> Iterator[str]:
    for option, name in _OPTIONS.items():
        value = protocol.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield from (f"--{option}", f"{value:g}" if isinstance(value, float) else str(value))
    excluded = protocol.get("exclude_models")
    for name in excluded if isinstance(excluded, list) else []:
        yield from ("--exclude-models", str(name))
