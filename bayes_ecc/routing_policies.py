"""Routers that read a posterior, as a routing study runs them: without a probe and with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.inference import read_signals
from bayes_ecc.probing import Pairs, next_probe, probe_values, read_calls
from bayes_ecc.quality import QualityCalibration, fit_quality
from bayes_ecc.routing import NOBODY, route
from bayes_ecc.routing_baselines import Routed, sent
from bayes_ecc.routing_tasks import RoutingTask, random_probes
from bayes_ecc.score_model import ScoreModel, fit_score_model, sharpened
from bayes_ecc.score_probing import best_probes, route_observed
from bayes_ecc.utilities import Policy

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)
_SCORE_DRAWS = 20  # of all chains together, for the model of scores
_OUTCOME_DRAWS = 8
PRICES = (0.0, 0.01, 0.03, 0.05, 0.075, 0.09, 0.1, 0.11, 0.13, 0.15, 0.2)
"""Prices of a unit of cost, in quality, along a curve."""


class Router(NamedTuple):
    """A posterior with everything that routing by it learns from training queries.

    Made by `make_router`, run by `policies`.

    Attributes
    ----------
    name : str
    draws : Draws
    plain, probed : QualityCalibration
        From mean win probability to expected score, given embeddings alone and with a probe.
    scores : ScoreModel or None
        None where scores lie outside [0, 1].
    tie_rate : ndarray, shape (n_models, n_models)
        Share of training queries on which two models tie.
    """

    name: str
    draws: Draws
    plain: QualityCalibration
    probed: QualityCalibration
    scores: ScoreModel | None
    tie_rate: FloatArray


def make_router(
    name: str,
    posterior: xr.DataTree | Draws,
    task: RoutingTask,
    *,
    draws: int = 250,
    rng: int = 0,
) -> Router:
    """Learn predicted quality, the model of scores and tie rates from the training queries.

    Parameters
    ----------
    name : str
        What to call its policies.
    posterior : xarray.DataTree or Draws
        Fitted on the task's training comparisons.
    task : RoutingTask
    draws : int
        Use at most so many draws of each chain.
    rng : int
        Seed of the probes drawn on training queries.

    Returns
    -------
    Router
    """
    read = read_draws(posterior, draws=draws)
    known = ~np.isnan(task.train_scores).any(axis=1)
    queries, scores = task.train_queries[known], task.train_scores[known]
    embeddings = task.train_embeddings[known]
    if task.charges_probes:
        generator = np.random.default_rng(rng)
        drawn = random_probes(queries, scores, task.models, generator)
        evidence = drawn.rows(drawn.outcome != 0.5)
    else:  # decisive ones, as the test queries have them; whole queries are kept in their order
        train = task.split.train
        evidence = train.take_probes(1, rng=rng)[0]
        row = task.train_queries.get_indexer(train.queries)
        scores, embeddings, queries = task.train_scores[row], task.train_embeddings[row], None
    inside = np.nanmin(task.train_scores) >= 0 and np.nanmax(task.train_scores) <= 1
    return Router(
        name=name,
        draws=read,
        plain=fit_quality(read, task.train_scores, embeddings=task.train_embeddings),
        probed=fit_quality(read, scores, embeddings=embeddings, probes=evidence, queries=queries),
        scores=(
            fit_score_model(
                read,
                task.train_scores,
                embeddings=task.train_embeddings,
                draws=max(1, _SCORE_DRAWS // len(read.chains)),
            )
            if inside
            else None
        ),
        tie_rate=tie_rates(task.train_scores),
    )


def tie_rates(scores: FloatArray) -> FloatArray:
    """Give the share of queries on which two models tie, (n_models, n_models)."""
    n_models = scores.shape[1]
    rate = np.ones((n_models, n_models))
    for i in range(n_models):
        gap = scores - scores[:, [i]]
        known = ~np.isnan(gap)
        rate[i] = ((gap == 0) & known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return rate


def sharpest(draws: Draws, task: RoutingTask) -> float:
    """Choose how sharply to read embeddings by the scores that routing gets on training queries.

    The fit has seen comparisons of these queries, which flatters sharp readings: anything but 1
    must do better than 1 by more than two standard errors of the difference, query by query.
    """
    thin = read_draws(draws, draws=25)
    row = np.arange(len(task.train_queries))
    score = {}
    for factor in SHARPNESS:
        found = route(sharpened(thin, factor), embeddings=task.train_embeddings)
        score[factor] = task.train_scores[row, found["choice"].values]
    known = ~np.isnan(np.stack(list(score.values()))).any(axis=0)
    best, most = 1.0, 0.0
    for factor, values in score.items():
        gain = (values - score[1.0])[known]
        mean = float(gain.mean())
        error = float(gain.std()) / np.sqrt(len(gain))
        if mean > max(most, 2 * error):
            best, most = factor, mean
    return best


# -------------------------------------------------------------------- policies


def policies(router: Router, task: RoutingTask, *, price: float) -> Iterator[tuple[str, Routed]]:
    """Run every policy of a router, in the order of a table.

    Without a probe, NAME being the router's: "NAME" (posterior mean), "NAME:p_best",
    "NAME:thompson", "NAME:upper" and "NAME:lower" where there is more than one draw, "NAME:sharp"
    (embeddings read as sharply as pays on training queries) and "NAME:score" (highest expected
    score under the model of scores).

    With the task's probe, its outcome alone seen: "NAME+probe". In the honest protocol also
    "NAME+outcome" (the pair of the highest value, its outcome alone seen) and, both scores being
    seen, "NAME+scores" (the task's pair), "NAME+fixed" (the two best models), "NAME+value" (the
    pair of the highest value) and "NAME+stop" (a probe only where it is worth more than its calls
    at this price).

    Parameters
    ----------
    router : Router
    task : RoutingTask
    price : float
        Quality that one unit of cost is worth, to "NAME+stop".

    Yields
    ------
    name : str
    routed : Routed

    Examples
    --------
    >>> from bayes_ecc import ECC
    >>> from bayes_ecc.routing_policies import make_router, policies
    >>> from bayes_ecc.routing_study import routing_example
    >>> _, task = routing_example()
    >>> fit = ECC(3, embedding_weight=1.0, rng=0)
    >>> fit = fit.fit(task.split.train, task.split.train_embeddings)
    >>> found = dict(policies(make_router("ecc", fit.posterior_, task), task, price=0.03))
    >>> bool(found["ecc+stop"].cost.mean() < found["ecc+value"].cost.mean())
    True
    """
    name = router.name
    several = int((router.draws.atoms.share > 0).sum()) > 1
    chosen: tuple[Policy, ...] = ("mean", "p_best", "thompson", "upper", "lower")
    for policy in chosen if several else chosen[:1]:
        full = name if policy == "mean" else f"{name}:{policy}"
        yield full, _by_posterior(router.draws, task, router.plain, policy=policy)
    factor = sharpest(router.draws, task)
    if factor == 1:
        yield f"{name}:sharp", _by_posterior(router.draws, task, router.plain)
    else:
        sharp = sharpened(router.draws, factor)
        quality = fit_quality(sharp, task.train_scores, embeddings=task.train_embeddings)
        yield f"{name}:sharp", _by_posterior(sharp, task, quality)
    if router.scores is not None:
        found = route_observed(router.scores, embeddings=task.embeddings)
        yield f"{name}:score", _sent(task, found)
    yield f"{name}+probe", _by_posterior(router.draws, task, router.probed, task.evidence)
    if not task.charges_probes:
        return
    yield f"{name}+outcome", by_valued_outcome(router, task)
    if router.scores is None:
        return
    strength = BradleyTerry().fit(task.split.train).strengths_.values
    order = np.argsort(-strength, kind="stable")
    fixed = tuple(np.full(len(task.queries), model) for model in order[:2])
    yield f"{name}+scores", by_seen_scores(router, task, task.pair)
    yield f"{name}+fixed", by_seen_scores(router, task, (fixed[0], fixed[1]))
    ways = by_valued_scores(router, task, (0.0, price))
    yield f"{name}+value", ways[0]
    yield f"{name}+stop", ways[1]


def _by_posterior(
    draws: Draws,
    task: RoutingTask,
    quality: QualityCalibration,
    evidence: Comparisons | None = None,
    called: tuple[IntArray, IntArray] | None = None,
    *,
    policy: Policy = "mean",
) -> Routed:
    """Route by embeddings, and by the outcomes of probes if they are given."""
    found = route(
        draws,
        embeddings=task.embeddings,
        probes=evidence,
        policy=policy,
        quality=quality,
        rng=task.split.seed,
    )
    confidence = {
        "p_best": found["chosen_p_best"].values,
        "regret": -found["expected_regret"].values,
        "quality": found["expected_quality"].values,
    }
    if called is None and evidence is not None and task.charges_probes:
        called = task.pair
    return sent(
        task,
        found["choice"].values,
        called,
        expected=found["expected_quality"].values,
        confidence=confidence,
    )


def _sent(
    task: RoutingTask, found: xr.Dataset, called: tuple[IntArray, IntArray] | None = None
) -> Routed:
    expected = found["expected_quality"].values
    return sent(
        task, found["choice"].values, called, expected=expected, confidence={"quality": expected}
    )


def by_valued_outcome(router: Router, task: RoutingTask) -> Routed:
    """Probe the pair that is worth most if its outcome alone is seen, then route by it."""
    values = probe_values(
        router.draws,
        embeddings=task.embeddings,
        quality=router.probed,
        tie_rate=router.tie_rate,
        draws=max(1, _OUTCOME_DRAWS // len(router.draws.chains)),
    )
    chosen = next_probe(values, by="gain", always=True)
    i, j = chosen["first_code"].values, chosen["second_code"].values
    row = np.arange(len(task.queries))
    outcome = (np.sign(task.scores[row, j] - task.scores[row, i]) + 1) / 2
    probes = Comparisons.from_arrays(
        row, i, j, outcome, queries=task.queries, models=task.models, ordered=False
    )
    return _by_posterior(
        router.draws, task, router.probed, probes.rows(probes.outcome != 0.5), (i, j)
    )


def by_seen_scores(router: Router, task: RoutingTask, pair: tuple[IntArray, IntArray]) -> Routed:
    """Call a pair on each query (-1: none), see both scores, and route by what was seen."""
    assert router.scores is not None
    row = np.arange(len(task.queries))
    seen = np.full(task.scores.shape, np.nan)
    for models in pair:
        probed = models != NOBODY
        seen[row[probed], models[probed]] = task.scores[row[probed], models[probed]]
    found = route_observed(router.scores, embeddings=task.embeddings, observed=seen)
    return _sent(task, found, pair)


def by_valued_scores(
    router: Router, task: RoutingTask, prices: tuple[float, ...] = PRICES
) -> list[Routed]:
    """Probe each query's most valuable pair where it is worth its calls, at each of some prices.

    At price 0 every query is probed. The price also stands against a further call after a probe
    that disappointed.
    """
    assert router.scores is not None
    model, pairs = router.scores, Pairs.of(len(task.models))
    signals = read_signals(model.draws.atoms, embeddings=task.embeddings, probes=None)
    called = np.zeros(task.scores.shape, dtype=bool)
    unit = read_calls(task.costs, 1.0, None, task.queries, task.models, called)
    plans = best_probes(model, signals, unit, prices)
    result = []
    row = np.arange(len(task.queries))
    for price, (pair, net) in zip(prices, plans, strict=True):
        go = (net > 1e-9) | (price == 0)
        i, j = (np.where(go, models[pair], NOBODY) for models in pairs)
        seen = np.full(task.scores.shape, np.nan)
        for models in (i, j):
            seen[row[go], models[go]] = task.scores[row[go], models[go]]
        found = route_observed(
            model, embeddings=task.embeddings, observed=seen, costs=task.costs, price=price
        )
        result.append(_sent(task, found, (i, j)))
    return result
