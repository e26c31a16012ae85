"""Probing where scores are seen: both scores of a probe, not only who won.

A seen success can be kept, and a failure says how hard the query is; a `ScoreModel` knows how
likely either is. All outcomes of a probe of every pair are gone through, as in `probing`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.inference import Signals, read_signals, tables_by_query
from bayes_ecc.posterior import identifiers
from bayes_ecc.probing import Calls, Pairs, barred_pairs, label_values, read_calls
from bayes_ecc.routing import pick
from bayes_ecc.score_model import ScoreModel
from bayes_ecc.utilities import Costs, read_costs

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

_CELLS = 8_000_000  # queries x pairs x models held at once
_BARRED = np.float32(2.0)


def score_probe_values(
    model: ScoreModel,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    observed: pd.DataFrame | ArrayLike | None = None,
    costs: Costs | None = None,
    price: float = 0.0,
    available: Iterable[str] | ArrayLike | None = None,
) -> xr.Dataset:
    """Value a probe of every pair of models on each query, if both scores are seen.

    Four outcomes are gone through, each of the two succeeding or failing. After each the query
    goes to the best of what was seen, or to another model if its expected score, given all that
    was seen, less its price is higher.

    Parameters
    ----------
    model : ScoreModel
        From `fit_score_model`.
    embeddings, probes, queries
        What is known of the queries, as in `predict_responsibilities`.
    observed : pandas.DataFrame or array-like, shape (n_queries, n_models), optional
        Scores seen on these queries so far, missing where a model was not called.
    costs, available
        As in `route`: a dict or a Series of costs by model, a frame by query and model, or an
        array; names of models, or a mask.
    price : float
        Quality that one unit of cost is worth.

    Returns
    -------
    xarray.Dataset
        `gain` and `net` with dims (query, pair), as from `probe_values`. Pairs with a model called
        before or not available have a `net` of minus infinity.

    Raises
    ------
    InputError
        If signals, scores, costs or models do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fit_score_model, score_probe_values, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> scores = (data.strengths[data.labels] > 0).astype(float)
    >>> model = fit_score_model(fit.posterior_, scores, embeddings=data.embeddings)
    >>> values = score_probe_values(model, embeddings=data.embeddings[:2])
    >>> bool((values["gain"] >= 0).all())
    True
    """
    signals = read_signals(
        model.draws.atoms,
        embeddings=embeddings,
        probes=probes,
        queries=queries,
        by_query=tables_by_query(observed=observed, costs=costs, available=available),
    )
    seen, calls = _read_observed(model, signals, observed, costs, price, available)
    pairs = Pairs.of(len(model.draws.models))
    gains, nets = [], []
    for rows, moments in _moment_blocks(model, signals, seen, pairs):
        part = calls.take(rows)
        best_seen = _best_seen(None if seen is None else seen[rows], part)
        outcomes = score_outcomes(moments, pairs)
        gains.append(score_gains(moments, outcomes, pairs, part.free(), best_seen))
        nets.append(score_gains(moments, outcomes, pairs, part, best_seen))
    values = {"gain": np.concatenate(gains), "net": np.concatenate(nets)}
    again = calls.called[:, pairs.first] | calls.called[:, pairs.second]
    values["net"][barred_pairs(calls, pairs) | again] = -np.inf
    return label_values(values, pairs, signals.queries, model.draws.atoms.models)


def route_observed(
    model: ScoreModel,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    observed: pd.DataFrame | ArrayLike | None = None,
    costs: Costs | None = None,
    price: float = 0.0,
    available: Iterable[str] | ArrayLike | None = None,
) -> xr.Dataset:
    """Route queries of which some scores have been seen.

    Parameters
    ----------
    model, embeddings, probes, queries, observed, costs, price, available
        As in `score_probe_values`.

    Returns
    -------
    xarray.Dataset
        With dim query: `choice`, `model`, `expected_quality` (the score itself where the choice
        has been called), `cost` of the call still to be made (0 if the choice has been called),
        and `called`, whether it has. `quality` has dims (query, llm).

    Raises
    ------
    InputError
        If signals, scores, costs or models do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fit_score_model, route_observed, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> scores = (data.strengths[data.labels] > 0).astype(float)
    >>> model = fit_score_model(fit.posterior_, scores, embeddings=data.embeddings)
    >>> seen = np.full((2, 5), np.nan)
    >>> seen[:, 3:] = [[1.0, 0.0], [0.0, 0.0]]
    >>> routed = route_observed(model, embeddings=data.embeddings[:2], observed=seen)
    >>> routed["model"].values[0], routed["called"].values.tolist()
    ('llm_3', [True, False])
    """
    signals = read_signals(
        model.draws.atoms,
        embeddings=embeddings,
        probes=probes,
        queries=queries,
        by_query=tables_by_query(observed=observed, costs=costs, available=available),
    )
    seen, calls = _read_observed(model, signals, observed, costs, price, available)
    score = np.concatenate([w @ model.success for _, w in model.blocks(signals, seen)]).astype(
        float
    )
    if seen is not None:
        score = np.where(calls.called, seen, score)
    utility = np.where(calls.allowed, score - calls.charge, -np.inf)
    # what was seen wins a tie against what is only expected
    choice = pick(utility, calls.called.astype(float))
    row = np.arange(len(choice))
    cost = read_costs(costs, signals.queries, model.draws.atoms.models)
    called = calls.called[row, choice]
    return xr.Dataset(
        {
            "choice": ("query", choice),
            "model": ("query", model.draws.models[choice]),
            "expected_quality": ("query", score[row, choice]),
            "cost": ("query", np.where(called, 0.0, cost[row, choice])),
            "called": ("query", called),
            "quality": (("query", "llm"), score),
        },
        coords={"query": identifiers(signals.queries), "llm": model.draws.models},
    )


# -------------------------------------------------------------------- numerical cores


class Moments(NamedTuple):
    """Expected products of scores on each query.

    Attributes
    ----------
    single : ndarray, shape (n_queries, n_models)
        E[s_m].
    double : ndarray, shape (n_queries, n_models, n_models)
        E[s_i s_m].
    triple : ndarray, shape (n_queries, n_pairs, n_models)
        E[s_i s_j s_m] of a pair and any model.
    """

    single: FloatArray
    double: FloatArray
    triple: FloatArray


def score_moments(weight: FloatArray, success: FloatArray, pairs: Pairs) -> Moments:
    """Average products of chances (n_atoms, n_models) by weights (n_queries, n_atoms)."""
    n_queries, n_models = len(weight), success.shape[1]
    triple = np.zeros((n_queries, len(pairs) * n_models), np.float32)
    both = np.zeros((n_queries, len(pairs)), np.float32)
    step = max(1, _CELLS // triple.shape[1])
    for first in range(0, len(success), step):
        part = success[first : first + step]
        product = part[:, pairs.first] * part[:, pairs.second]
        table = (product[:, :, None] * part[:, None, :]).reshape(len(part), -1)
        both += weight[:, first : first + step] @ product
        triple += weight[:, first : first + step] @ table
    double = np.zeros((n_queries, n_models, n_models))
    double[:, pairs.first, pairs.second] = both
    double[:, pairs.second, pairs.first] = both
    single = (weight @ success).astype(float)
    # a score of 0 or 1 is its own square
    model, index = np.arange(n_models), np.arange(len(pairs))
    double[:, model, model] = single
    triple = triple.reshape(n_queries, len(pairs), n_models)
    triple[:, index, pairs.first] = triple[:, index, pairs.second] = both
    return Moments(single, double, triple)


class Outcome(NamedTuple):
    """One outcome of a probe of each pair.

    Attributes
    ----------
    chance : ndarray, shape (n_queries, n_pairs)
    reached : ndarray, shape (n_queries, n_pairs, n_models)
        Expected score of every model, counted only where the outcome happens.
    best : float
        The better of the two scores.
    """

    chance: FloatArray
    reached: FloatArray
    best: float


def score_outcomes(moments: Moments, pairs: Pairs) -> tuple[Outcome, ...]:
    """Tell the chances and consequences of both, either and neither of a pair succeeding."""
    i, j = pairs
    single = moments.single.astype(np.float32)
    double = moments.double.astype(np.float32)
    ei, ej, eij = single[:, i], single[:, j], double[:, i, j]
    eim, ejm, triple = double[:, i], double[:, j], moments.triple
    neither = single[:, None] - eim
    neither -= ejm
    neither += triple
    return (
        Outcome(eij, triple, 1.0),
        Outcome(np.maximum(ei - eij, 0), eim - triple, 1.0),
        Outcome(np.maximum(ej - eij, 0), ejm - triple, 1.0),
        Outcome(np.maximum(1 - ei - ej + eij, 0), neither, 0.0),
    )


def score_gains(
    moments: Moments,
    outcomes: tuple[Outcome, ...],
    pairs: Pairs,
    calls: Calls,
    best_seen: FloatArray,
) -> FloatArray:
    """Give the rise (n_queries, n_pairs) of the utility expected if both scores are seen.

    Each outcome's best utility is weighed with its chance, so nothing is divided by it.
    """
    open_ = calls.allowed & ~calls.called
    charge = np.where(open_, calls.charge, np.inf)
    now = np.maximum(best_seen, (moments.single - charge).max(axis=1))
    index = np.arange(len(pairs))
    # what must not be called further is charged more than any score is worth
    third = np.minimum(charge, _BARRED).astype(np.float32)[:, None, :]
    third = np.repeat(third, len(pairs), axis=1)
    third[:, index, pairs.first] = third[:, index, pairs.second] = _BARRED
    total = np.zeros((len(now), len(pairs)))
    left = np.empty_like(third)
    for outcome in outcomes:
        np.multiply(third, -outcome.chance[:, :, None], out=left)
        left += outcome.reached
        known = np.maximum(outcome.best, best_seen)[:, None] * outcome.chance
        total += np.maximum(left.max(axis=2), known)
    paid = calls.charge[:, pairs.first] + calls.charge[:, pairs.second]
    return total - paid - now[:, None]


def best_probes(
    model: ScoreModel,
    signals: Signals,
    unit: Calls,
    prices: Sequence[float],
    seen: FloatArray | None = None,
) -> list[tuple[IntArray, FloatArray]]:
    """Find the pair of the highest net value at each of several prices, in one pass.

    Parameters
    ----------
    model : ScoreModel
    signals : Signals
        Of the queries, as `read_signals` gives them.
    unit : Calls
        At a price of 1.
    prices : sequence of float
    seen : ndarray, shape (n_queries, n_models), optional
        Scores seen so far, NaN where a model was not called.

    Returns
    -------
    list of (ndarray of int, ndarray)
        For each price the pair (n_queries,) and its net value, minus infinity where none can be
        asked for.
    """
    pairs = Pairs.of(len(model.draws.models))
    again = unit.called[:, pairs.first] | unit.called[:, pairs.second]
    barred = barred_pairs(unit, pairs) | again
    found: list[list[tuple[IntArray, FloatArray]]] = [[] for _ in prices]
    for rows, moments in _moment_blocks(model, signals, seen, pairs):
        part = unit.take(rows)
        best_seen = _best_seen(None if seen is None else seen[rows], part)
        outcomes = score_outcomes(moments, pairs)
        for price, parts in zip(prices, found, strict=True):
            priced = part._replace(charge=price * part.charge)
            net = score_gains(moments, outcomes, pairs, priced, best_seen)
            net[barred[rows]] = -np.inf
            pair = (net >= net.max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
            parts.append((pair, net[np.arange(len(pair)), pair]))
    return [
        (np.concatenate([pair for pair, _ in parts]), np.concatenate([net for _, net in parts]))
        for parts in found
    ]


def _moment_blocks(
    model: ScoreModel, signals: Signals, seen: FloatArray | None, pairs: Pairs
) -> Iterator[tuple[slice, Moments]]:
    width = max(1, _CELLS // (6 * len(pairs) * len(model.draws.models)))
    for rows, weight in model.blocks(signals, seen, width):
        yield rows, score_moments(weight, model.success, pairs)


def _best_seen(seen: FloatArray | None, calls: Calls) -> FloatArray:
    """Give the best score seen that may be kept, (n_queries,); minus infinity if there is none."""
    if seen is None:
        return np.full(len(calls.charge), -np.inf)
    return np.where(calls.called & calls.allowed, seen, -np.inf).max(axis=1)


def _read_observed(
    model: ScoreModel,
    signals: Signals,
    observed: pd.DataFrame | ArrayLike | None,
    costs: Costs | None,
    price: float,
    available: Iterable[str] | ArrayLike | None,
) -> tuple[FloatArray | None, Calls]:
    models = model.draws.atoms.models
    seen = model.read_observed(observed, signals)
    called = np.zeros((len(signals.queries), len(models)), dtype=bool)
    if seen is not None:
        called = ~np.isnan(seen)
    return seen, read_calls(costs, price, available, signals.queries, models, called)
