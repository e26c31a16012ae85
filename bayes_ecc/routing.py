"""Routing: which model to send a query to, under what is known and what is not.

In every draw of a posterior a model has a utility on a query: its predicted quality, less what it
costs. A policy turns the draws of the utilities into one value a model, and a query goes to the
model of the highest value among those available. A posterior with one atom, as EM makes it, has
one draw, and all policies agree on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.checks import check_choice, check_not_negative
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, query_blocks, read_draws
from bayes_ecc.errors import InputError
from bayes_ecc.inference import read_signals, tables_by_query
from bayes_ecc.posterior import identifiers
from bayes_ecc.quality import QualityCalibration
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.summaries import TIE
from bayes_ecc.utilities import (
    POLICIES,
    Costs,
    Policy,
    Utilities,
    UtilityDraws,
    model_position,
    read_available,
    read_costs,
    utility_width,
)

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

NOBODY = -1
"""The choice where a query is routed to no model."""


def route(
    posterior: xr.DataTree | Draws,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    policy: Policy = "mean",
    quality: QualityCalibration | None = None,
    quantile: float = 0.9,
    costs: Costs | None = None,
    price: float = 0.0,
    floor: float | None = None,
    budget: float | None = None,
    available: Iterable[str] | ArrayLike | None = None,
    min_p_best: float = 0.0,
    max_regret: float | None = None,
    default: str | None = None,
    draws: int | None = None,
    rng: RandomState = None,
) -> xr.Dataset:
    """Choose a model for each query.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    embeddings, probes, queries
        What is known of the queries, as in `predict_responsibilities`.
    policy : {"mean", "p_best", "thompson", "upper", "lower", "regret"}
        Highest mean utility; highest probability of being the best; best in one draw taken at
        random for each query (Thompson sampling [1]_); highest upper or lower bound (a quantile of
        the draws); least expected regret. The last chooses as the first does, since the best
        utility that could be had is the same for all; its values tell how much is at stake.
    quality : QualityCalibration, optional
        From mean win probability to expected score; without one the mean win probability itself
        is the quality.
    quantile : float
        Of the upper bound; the lower bound is at 1 - quantile.
    costs : dict, pandas.Series, pandas.DataFrame or array-like, optional
        Cost of a call of each model: a dict or a Series by the models' names, or an array
        (n_models,) in the posterior's order. Or of each model on each query: a frame by query and
        model, or an array (n_queries, n_models). By default every call costs 1.
    price : float
        Quality that one unit of cost is worth: utility = quality - price x cost.
    floor : float, optional
        Take the cheapest model whose value by the policy reaches the floor, the best where none
        does.
    budget : float, optional
        Most that the whole batch may cost. Queries are moved up to dearer models where a unit of
        cost gains most; the sum of values falls short of the best possible by less than the gain
        of the first move that no longer fits.
    available : iterable of str or array-like of bool, optional
        Names of the models that can be called, or a mask (n_queries, n_models). Win probabilities
        stay those against the whole pool.
    min_p_best, max_regret : float, optional
        Route a query to nobody, or to `default`, where the chosen model's probability of being the
        best is lower, or its expected regret higher: ask for a probe there, or for a person.
    default : str, optional
        The model for such queries; it must be available to them.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced.
    rng : int, numpy.random.Generator or None
        Randomness of Thompson sampling.

    Returns
    -------
    xarray.Dataset
        With dim query: `choice` (position in `llm`, -1 for nobody) and `model` (its name, empty
        for nobody), `abstained`, and of the choice `expected_quality`, `chosen_p_best`,
        `expected_regret` and `cost` (0 for nobody). With dims (query, llm): `quality`, `value`,
        `p_best`. Utilities that differ by no more than 1e-6 are tied, and ties go to the higher
        mean utility, then to the first in the order of the models.

    Raises
    ------
    InputError
        If signals, costs or models do not fit the posterior, a query has no available model, or
        the budget does not pay for the cheapest ones.

    References
    ----------
    .. [1] Thompson, W. R. (1933). On the likelihood that one unknown probability exceeds another
       in view of the evidence of two samples. Biometrika 25(3/4), 285-294.

    Examples
    --------
    >>> from bayes_ecc import ECC, route, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> route(fit.posterior_, embeddings=data.embeddings[:3])["model"].values.tolist()
    ['llm_0', 'llm_2', 'llm_2']
    >>> costs = {"llm_0": 9.0, "llm_1": 1.0, "llm_2": 9.0, "llm_3": 1.0, "llm_4": 1.0}
    >>> cheap = route(fit.posterior_, embeddings=data.embeddings[:3], costs=costs, budget=20.0)
    >>> cheap["model"].values.tolist(), float(cheap["cost"].sum())
    (['llm_4', 'llm_2', 'llm_2'], 19.0)
    """
    check_choice("policy", policy, POLICIES)
    if not 0.5 <= quantile < 1:
        raise InputError(f"quantile={quantile!r}: give a share of at least 0.5, below 1.")
    check_not_negative("price", price)
    if floor is not None and budget is not None:
        raise InputError("floor and budget are both given; a policy can go by one of them only.")
    read = read_draws(posterior, draws=draws)
    signals = read_signals(
        read.atoms,
        embeddings=embeddings,
        probes=probes,
        queries=queries,
        by_query=tables_by_query(costs=costs, available=available),
    )
    index, models = signals.queries, read.atoms.models
    cost = read_costs(costs, index, models)
    allowed = read_available(available, index, models)
    fallback = None if default is None else model_position(default, models, "default")
    if fallback is not None and not allowed[:, fallback].all():
        raise InputError(f"default={default!r} is not available to every query; choose another.")
    generator = as_generator(rng)
    share = read.atoms.share
    picked = generator.choice(len(share), size=len(index), p=share)
    found = []
    for block in query_blocks(signals, utility_width(share, len(models), policy)):
        table = UtilityDraws(read, block, quality, price * cost[block.rows], allowed[block.rows])
        found.append(table.summarise(policy, picked[block.rows], quantile))
    utilities = Utilities(*(np.concatenate(part) for part in zip(*found, strict=True)))
    choice = pick(utilities.value, utilities.mean)
    if floor is not None:
        choice = pick_at_floor(utilities, cost, float(floor))
    row = np.arange(len(index))
    abstained = np.zeros(len(index), dtype=bool)

    def abstain(choice: IntArray) -> NDArray[np.bool_]:
        doubtful = utilities.p_best[row, choice] < min_p_best - 1e-9
        if max_regret is not None:
            doubtful |= utilities.regret[row, choice] > max_regret + 1e-9
        return doubtful

    abstained = abstain(choice)
    if budget is not None:
        choice = pick_within_budget(
            utilities, cost, budget, abstained, NOBODY if fallback is None else fallback
        )
    choice = np.where(abstained, NOBODY if fallback is None else fallback, choice)
    return _label(utilities, choice, abstained, cost, identifiers(index), models)


# -------------------------------------------------------------------- choices


def pick(value: FloatArray, mean: FloatArray) -> IntArray:
    """Choose the highest value in each row; ties to the higher mean, then to the first.

    Parameters
    ----------
    value, mean : ndarray, shape (n_queries, n_models)
        Minus infinity for what must not be chosen.

    Returns
    -------
    ndarray of int, shape (n_queries,)
    """
    tied = value >= value.max(axis=1, keepdims=True) - TIE
    second = np.where(tied, mean, -np.inf)
    return (second >= second.max(axis=1, keepdims=True) - TIE).argmax(axis=1)


def pick_at_floor(utilities: Utilities, cost: FloatArray, floor: float) -> IntArray:
    """Choose the cheapest model whose value reaches the floor; the best where none does."""
    good = utilities.value >= floor - TIE
    least = np.where(good, cost, np.inf).min(axis=1, keepdims=True)
    cheapest = good & (cost <= least + TIE)
    value = np.where(cheapest, utilities.value, -np.inf)
    value = np.where(good.any(axis=1, keepdims=True), value, utilities.value)
    return pick(value, utilities.mean)


def pick_within_budget(
    utilities: Utilities,
    cost: FloatArray,
    budget: float,
    fixed: NDArray[np.bool_] | None = None,
    fallback: int = NOBODY,
) -> IntArray:
    """Choose models for a batch so that their costs do not exceed the budget.

    Every query starts at its cheapest model and moves up the upper hull of (cost, value) by moves
    that are taken in order of gain a unit of cost, over all queries; a move that the budget does
    not pay for any longer is passed over, and ends its query's way up. That is the solution of the
    problem's linear relaxation, its one fraction rounded down, filled up with what still fits.

    Parameters
    ----------
    utilities : Utilities
    cost : ndarray, shape (n_queries, n_models)
    budget : float
    fixed : ndarray of bool, shape (n_queries,), optional
        Queries that go to `fallback`, whatever the value.
    fallback : int

    Returns
    -------
    ndarray of int, shape (n_queries,)

    Raises
    ------
    InputError
        If the budget does not pay for the cheapest models.
    """
    n_queries = len(cost)
    free = np.ones(n_queries, dtype=bool) if fixed is None else ~fixed
    spent = 0.0 if fallback == NOBODY else float(cost[~free, fallback].sum())
    reachable = np.where(np.isfinite(utilities.value), cost, np.inf)
    least = reachable.min(axis=1, keepdims=True)
    cheap = np.where(reachable <= least, utilities.value, -np.inf)
    choice = pick(cheap, utilities.mean)
    row = np.arange(n_queries)
    spent += float(cost[row, choice][free].sum())
    if spent > budget * (1 + 1e-12):
        raise InputError(
            f"budget={budget!r}: the cheapest models of these {n_queries} queries already cost "
            f"{spent:g}; give more, or make cheaper models available."
        )
    moves: list[tuple[float, int, int, int]] = []
    for query in np.flatnonzero(free).tolist():
        at = int(choice[query])
        for target, ratio in _hull(cost[query], utilities.value[query], at):
            moves.append((-ratio, query, at, target))
            at = target
    moves.sort()  # along a hull the ratios fall, so a query's moves keep their order
    for _, query, start, target in moves:
        step = float(cost[query, target] - cost[query, start])
        if choice[query] == start and spent + step <= budget:
            choice[query] = target
            spent += step
    choice[~free] = fallback
    return choice


def _hull(cost: FloatArray, value: FloatArray, start: int) -> list[tuple[int, float]]:
    """Give the moves (model, gain a unit of cost) up the upper hull from a starting model."""
    moves: list[tuple[int, float]] = []
    at = start
    while True:
        dearer = np.flatnonzero((cost > cost[at]) & (value > value[at] + TIE))
        if not len(dearer):
            return moves
        ratio = (value[dearer] - value[at]) / (cost[dearer] - cost[at])
        steepest = np.flatnonzero(ratio >= ratio.max() * (1 - 1e-12))
        best = steepest[np.argmax(cost[dearer[steepest]])]
        at = int(dearer[best])
        moves.append((at, float(ratio[best])))


# -------------------------------------------------------------------- labelling


def _label(
    utilities: Utilities,
    choice: IntArray,
    abstained: NDArray[np.bool_],
    cost: FloatArray,
    queries: NDArray[Any],
    models: pd.Index,
) -> xr.Dataset:
    somebody = choice != NOBODY
    row, column = np.arange(len(choice)), np.where(somebody, choice, 0)
    names = np.where(somebody, models.to_numpy(dtype=object)[column], "")

    def of_choice(table: FloatArray, nobody: float) -> tuple[str, FloatArray]:
        return "query", np.where(somebody, table[row, column], nobody)

    dims = ("query", "llm")
    return xr.Dataset(
        {
            "choice": ("query", choice),
            "model": ("query", names.astype(object)),
            "abstained": ("query", abstained),
            "expected_quality": of_choice(utilities.quality, np.nan),
            "chosen_p_best": of_choice(utilities.p_best, np.nan),
            "expected_regret": of_choice(utilities.regret, np.nan),
            "cost": of_choice(cost, 0.0),
            "quality": (dims, utilities.quality),
            "value": (dims, utilities.value),
            "p_best": (dims, utilities.p_best),
        },
        coords={"query": queries, "llm": models.to_numpy(dtype=object)},
    )
