"""Routing studies: every router on the same test queries, with paired intervals and curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

from bayes_ecc.bundle import Bundle
from bayes_ecc.calibration import expected_calibration_error
from bayes_ecc.checks import check_count, check_not_negative
from bayes_ecc.errors import InputError
from bayes_ecc.evaluation import EvaluationSettings, check_method, fit_method
from bayes_ecc.intervals import Interval, choose_interval, sorted_interval
from bayes_ecc.quality import calibration_table, quality_calibration_error
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.routing import route
from bayes_ecc.routing_baselines import Routed, baselines
from bayes_ecc.routing_policies import PRICES, Router, by_valued_scores, make_router, policies
from bayes_ecc.routing_tasks import Protocol, RoutingTask, Undecided, make_task
from bayes_ecc.splits import Split, predict_signal

type FloatArray = NDArray[np.floating[Any]]

METRICS = ("quality", "regret", "calls", "cost", "oracle_share", "over_global", "over_probe_winner")
"""What is told of every router: mean score; how far it stays behind the oracle; calls and cost a
query; share of the way from the one best model to the oracle; the difference of its mean score to
that of the one best model, and of the probe winner."""

COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class TaskResult(NamedTuple):
    """What a study of one task found.

    Attributes
    ----------
    task : RoutingTask
    routed : dict of str to Routed
        By router, in the order of a table.
    curves : dict
        `probing`, `abstention`, `calibration` and `cost_quality`, ready for JSON.
    """

    task: RoutingTask
    routed: dict[str, Routed]
    curves: dict[str, Any]


def run_task(
    task: RoutingTask,
    posteriors: Mapping[str, xr.DataTree],
    *,
    labels: Mapping[str, pd.Series] | None = None,
    price: float = 0.05,
) -> TaskResult:
    """Run all baselines and, for each posterior, all policies on one task.

    Parameters
    ----------
    task : RoutingTask
        From `make_task`.
    posteriors : mapping of str to xarray.DataTree
        Fitted on `task.split.train`, by the name that their policies shall have.
    labels : mapping of str to pandas.Series, optional
        Labels of all queries, each for a per-label baseline.
    price : float
        Quality that one unit of cost is worth, where a policy stops probing by it.

    Returns
    -------
    TaskResult

    Examples
    --------
    >>> from bayes_ecc import ECC
    >>> from bayes_ecc.routing_study import routing_example, run_task, summarise
    >>> bundle, task = routing_example()
    >>> fit = ECC(3, embedding_weight=1.0, rng=0)
    >>> fit = fit.fit(task.split.train, task.split.train_embeddings)
    >>> result = run_task(task, {"ecc": fit.posterior_})
    >>> figures = summarise(result, rng=0)
    >>> figures["oracle"]["oracle_share"], figures["global"]["oracle_share"]
    (1.0, 0.0)
    """
    check_not_negative("price", price)
    routed = dict(baselines(task, dict(labels or {}), rng=task.split.seed))
    oracle = routed.pop("oracle")
    curves: dict[str, Any] = {
        name: {} for name in ("probing", "abstention", "calibration", "cost_quality")
    }
    for name, posterior in posteriors.items():
        router = make_router(name, posterior, task, rng=task.split.seed)
        found = dict(policies(router, task, price=price))
        routed.update(found)
        if router.scores is not None and task.charges_probes:
            ways = by_valued_scores(router, task, PRICES)
            curves["probing"][name] = [
                {"price": p, **_means(way)} for p, way in zip(PRICES, ways, strict=True)
            ]
        curves["cost_quality"][name] = _cost_curve(router, task)
        for policy, way in found.items():
            if way.expected is not None:
                curves["calibration"][policy] = _calibration(way)
            if way.confidence is not None:
                curves["abstention"][policy] = {
                    by: coverage_curve(way.quality, sure, oracle.quality, routed["global"].quality)
                    for by, sure in way.confidence.items()
                    if np.ptp(sure) > 0
                }
    routed["oracle"] = oracle
    return TaskResult(task, routed, curves)


def summarise(
    result: TaskResult,
    *,
    prob: float | None = None,
    n_resamples: int = 1000,
    rng: RandomState = None,
) -> dict[str, dict[str, Any]]:
    """Give each router's figures with their bootstrap intervals over queries.

    Queries are drawn with replacement, the same for all routers, so that differences between
    routers are paired. The intervals hold fits and draws of probes fixed.

    Parameters
    ----------
    result : TaskResult
    prob : float, optional
        Probability of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    n_resamples : int
        Number of resamples.
    rng : int, numpy.random.Generator or None
        Randomness of the resampling.

    Returns
    -------
    dict of str to dict
        For each router the `METRICS`, and `interval`: of each of them [low, high].

    Examples
    --------
    See `run_task`.
    """
    check_count("n_resamples", n_resamples, least=2)
    interval = choose_interval(prob, None)
    names = list(result.routed)
    values = np.stack(
        [np.stack([way.quality, way.calls, way.cost], axis=1) for way in result.routed.values()],
        axis=1,
    )
    whole = _metrics(values.mean(axis=0)[None], names)
    resampled = _metrics(_resampled_means(values, n_resamples, as_generator(rng)), names)
    return {
        name: {
            **{metric: float(whole[metric][0, r]) for metric in METRICS},
            "interval": {metric: _bounds(resampled[metric][:, r], interval) for metric in METRICS},
        }
        for r, name in enumerate(names)
    }


def study_routing(
    bundle: Bundle,
    splits: Iterable[Split],
    methods: Sequence[str] = ("embedding", "comparisons", "ecc", "bayes"),
    settings: EvaluationSettings | None = None,
    *,
    protocol: Protocol = "honest",
    undecided: Undecided = "share",
    price: float = 0.05,
    n_resamples: int = 1000,
    details: Mapping[str, Any] | None = None,
    progress: bool | None = False,
) -> dict[str, Any]:
    """Fit methods on splits and route the test queries by all of them.

    Parameters
    ----------
    bundle : Bundle
        With scores and embeddings.
    splits : iterable of Split
        One a seed, from `bayes_ecc.splits`.
    methods : sequence of str
        Methods of `evaluate`; "labels:COLUMN" gives a baseline, "global" is always among them.
    settings : EvaluationSettings, optional
        What the methods share.
    protocol, undecided
        As in `make_task`.
    price : float
        Quality that one unit of cost is worth, where a policy stops probing by it.
    n_resamples : int
        Bootstrap resamples.
    details : mapping, optional
        How the splits came about, to be told with the results.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    dict
        Ready for JSON. `protocol`: name, settings and counts. `policies`: for each router
        `quality`, `regret`, `calls`, `cost`, `oracle_share`, `over_global`, `over_probe_winner`
        (means over seeds), their `interval` (means over seeds of each split's bootstrap bounds)
        and `per_seed`. `probing`: quality, calls and cost along prices. `abstention`: quality of
        the answered queries along coverages. `calibration`: predicted against realised quality,
        and of win probabilities. `cost_quality`: along prices, without probes. Curves are of the
        first seed.

    Raises
    ------
    InputError
        If a method is unknown or the bundle cannot be used so.

    Examples
    --------
    >>> from bayes_ecc.evaluation import EvaluationSettings
    >>> from bayes_ecc.routing_study import routing_example, study_routing
    >>> bundle, task = routing_example()
    >>> settings = EvaluationSettings(n_clusters=3, embedding_weight=1.0)
    >>> found = study_routing(bundle, [task.split], ["ecc"], settings)
    >>> found["protocol"]["name"], sorted(found["policies"])[:4]
    ('honest', ['better probed', 'ecc', 'ecc+fixed', 'ecc+outcome'])
    """
    chosen = settings or EvaluationSettings()
    for name in methods:
        check_method(name, bundle)
    label_names = [name.partition(":")[2] for name in methods if name.startswith("labels:")]
    labels = {name: bundle.labels(name) for name in label_names}
    fitted = [name for name in methods if name != "global" and not name.startswith("labels:")]
    summaries: list[dict[str, dict[str, Any]]] = []
    counts: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    win: dict[str, Any] = {}
    with tqdm(
        desc="route", unit="seed", disable=None if progress is None else not progress, leave=False
    ) as bar:
        for split in splits:
            task = make_task(bundle, split, protocol, undecided=undecided, rng=split.seed)
            posteriors = {}
            for name in fitted:
                bar.set_postfix_str(f"seed {split.seed}, {name}")
                estimator = fit_method(name, split, bundle, chosen).estimator
                posteriors[name] = estimator.posterior_
                win.setdefault(name, []).append(_win_calibration(estimator, split))
            bar.set_postfix_str(f"seed {split.seed}, routing")
            result = run_task(task, posteriors, labels=labels, price=price)
            summaries.append(summarise(result, n_resamples=n_resamples, rng=split.seed))
            counts.append(_counts(task))
            curves = curves or result.curves
            bar.update()
    if not summaries:
        raise InputError("There is no split to route on; give at least one.")
    interval = choose_interval(None, None)
    curves["calibration"] = {
        "quality": curves["calibration"],
        "win_probability": {name: _mean_figures(found) for name, found in win.items()},
    }
    return {
        "protocol": {
            "name": protocol,
            "bundle": bundle.name,
            "undecided": undecided if protocol == "honest" else None,
            "price": price,
            "costs": "calls" if bundle.costs is None else "of the bundle",
            **asdict(chosen),
            **(details or {}),
            "counts": counts,
            "interval": {
                "prob": interval.prob,
                "kind": interval.kind,
                "of": "paired bootstrap over test queries, bounds averaged over seeds",
            },
        },
        "policies": {name: _over_seeds([s[name] for s in summaries]) for name in summaries[0]},
        **curves,
    }


# -------------------------------------------------------------------- curves


def coverage_curve(
    quality: FloatArray, confidence: FloatArray, oracle: FloatArray, baseline: FloatArray
) -> list[dict[str, float]]:
    """Answer only the queries that a router is surest of, at several coverages.

    Parameters
    ----------
    quality, confidence, oracle, baseline : ndarray, shape (n_queries,)
        Score of the router, how sure it is, best score there is, and score of the one best model.

    Returns
    -------
    list of dict
        `coverage`, least `confidence` answered, mean `quality`, `regret` (behind the oracle) and
        `over_global` of the answered queries. Queries are taken by falling confidence, equally
        sure ones in their order.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.routing_study import coverage_curve
    >>> quality, sure = np.array([1.0, 0.0, 1.0, 0.0]), np.array([0.9, 0.2, 0.8, 0.1])
    >>> curve = coverage_curve(quality, sure, oracle=np.ones(4), baseline=np.zeros(4))
    >>> curve[4]["coverage"], curve[4]["quality"], curve[-1]["quality"]
    (0.5, 1.0, 0.5)
    """
    order = np.argsort(-confidence, kind="stable")
    found = []
    for coverage in COVERAGES:
        kept = order[: max(1, round(coverage * len(order)))]
        found.append(
            {
                "coverage": coverage,
                "confidence": float(confidence[kept[-1]]),
                "quality": float(quality[kept].mean()),
                "regret": float((oracle[kept] - quality[kept]).mean()),
                "over_global": float((quality[kept] - baseline[kept]).mean()),
            }
        )
    return found


def _cost_curve(router: Router, task: RoutingTask) -> list[dict[str, float]]:
    """Route by mean utility at several prices; without costs all calls are the same."""
    if (task.costs == task.costs[0, 0]).all():
        return []
    unit = 0.5 / max(float(np.median(task.costs)), 1e-12)
    row = np.arange(len(task.queries))
    found = []
    for share in (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0):
        choice = route(
            router.draws,
            embeddings=task.embeddings,
            quality=router.plain,
            costs=task.costs,
            price=share * unit,
        )["choice"].values
        quality, cost = task.scores[row, choice], task.costs[row, choice]
        found.append(
            {
                "price": share * unit,
                "quality": float(quality.mean()),
                "cost": float(cost.mean()),
            }
        )
    return found


def _calibration(way: Routed) -> dict[str, Any]:
    assert way.expected is not None
    return {
        "expected": float(way.expected.mean()),
        "realised": float(way.quality.mean()),
        "error": quality_calibration_error(way.expected, way.quality),
        "bins": calibration_table(way.expected, way.quality).to_dict(orient="records"),
    }


def _win_calibration(estimator: Any, split: Split) -> dict[str, float]:
    """Calibration error of win probabilities on decisive comparisons, by signal."""
    signals = ("embedding", "embedding+probe") if len(split.probes) else ("embedding",)
    return {
        signal: expected_calibration_error(
            predict_signal(estimator, split, signal),  # type: ignore[arg-type]
            split.scored,
        )
        for signal in signals
    }


# -------------------------------------------------------------------- figures


def _means(way: Routed) -> dict[str, float]:
    return {
        "quality": float(way.quality.mean()),
        "calls": float(way.calls.mean()),
        "cost": float(way.cost.mean()),
    }


def _metrics(means: FloatArray, names: list[str]) -> dict[str, FloatArray]:
    """Give each metric (n_resamples, n_routers) from means (n_resamples, n_routers, 3)."""
    quality, calls, cost = np.moveaxis(means, 2, 0)
    best, oracle = quality[:, [names.index("global")]], quality[:, [names.index("oracle")]]
    gap = oracle - best
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gap > 0, (quality - best) / gap, np.nan)
    return {
        "quality": quality,
        "regret": oracle - quality,
        "calls": calls,
        "cost": cost,
        "oracle_share": share,
        "over_global": quality - best,
        "over_probe_winner": quality - quality[:, [names.index("probe winner")]],
    }


def _resampled_means(values: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Average values (n_queries, ...) over bootstrap draws of queries: (n_resamples, ...)."""
    n_queries = len(values)
    flat = values.reshape(n_queries, -1)
    means = np.empty((n_resamples, flat.shape[1]))
    for r in range(n_resamples):
        drawn = np.bincount(rng.integers(n_queries, size=n_queries), minlength=n_queries)
        means[r] = drawn @ flat / n_queries
    return means.reshape(n_resamples, *values.shape[1:])


def _bounds(resampled: FloatArray, interval: Interval) -> list[float]:
    low, high = sorted_interval(np.sort(resampled), interval)
    return [float(low), float(high)]


def _over_seeds(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **{metric: float(np.mean([one[metric] for one in found])) for metric in METRICS},
        "interval": {
            metric: np.mean([one["interval"][metric] for one in found], axis=0).tolist()
            for metric in METRICS
        },
        "per_seed": {metric: [one[metric] for one in found] for metric in METRICS},
    }


def _mean_figures(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _counts(task: RoutingTask) -> dict[str, Any]:
    return {
        "seed": task.split.seed,
        "models": len(task.models),
        "train_queries": task.split.train.n_queries,
        "scored_train_queries": len(task.train_queries),
        "test_queries": len(task.queries),
        "decided_probes": len(task.evidence),
        "left_out": task.left_out,
    }


def routing_example(n_queries: int = 300, *, rng: int = 0) -> tuple[Bundle, RoutingTask]:
    """Simulate a bundle of 0/1 scores and costs, and an honest task on it.

    Examples
    --------
    >>> from bayes_ecc.routing_study import routing_example
    >>> bundle, task = routing_example()
    >>> task.protocol, bundle.models.tolist()[:2]
    ('honest', ['llm_0', 'llm_1'])
    """
    from bayes_ecc.datasets.simulate import simulate
    from bayes_ecc.splits import draw_split

    generator = np.random.default_rng(rng)
    truth = simulate(n_queries, 5, 3, rng=generator)
    ease = generator.normal(0, 2, size=(n_queries, 1))
    chance = 1 / (1 + np.exp(-(truth.strengths[truth.labels] + ease)))
    ids, models = truth.comparisons.queries, truth.comparisons.models
    scores = pd.DataFrame((generator.random(chance.shape) < chance).astype(float), columns=models)
    scores.insert(0, "query_id", ids)
    costs = pd.DataFrame(np.tile(np.arange(1.0, len(models) + 1), (n_queries, 1)), columns=models)
    costs.insert(0, "query_id", ids)
    queries = pd.DataFrame(
        {"query_id": ids, "capability": [f"capability_{label}" for label in truth.labels]}
    )
    bundle = Bundle("simulated", queries, scores=scores, embeddings=truth.embeddings, costs=costs)
    return bundle, make_task(bundle, draw_split(bundle, seed=rng), rng=rng)
