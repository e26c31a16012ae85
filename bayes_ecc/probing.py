"""Probing: which two models to try on a query before it is routed, and whether to try any.

A probe calls two models on the query. Its value is found by going through all its outcomes: the
quality that routing is expected to reach after each, weighed with the outcome's probability, less
what can be reached now and less the price of the calls. Routing to a model that was called already
costs nothing more.

Here the outcome of a probe is seen, who won. Where both scores are seen, `score_probing` is for
it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlogy

from bayes_ecc.checks import check_choice, check_not_negative
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.errors import InputError
from bayes_ecc.inference import (
    Signals,
    log_evidence,
    mean_win_probability,
    read_signals,
    softmax_rows,
    tables_by_query,
)
from bayes_ecc.posterior import Atoms, identifiers
from bayes_ecc.quality import QualityCalibration
from bayes_ecc.routing import NOBODY
from bayes_ecc.utilities import Costs, read_available, read_costs

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

INFORMATION = ("best", "ranking")
_CELLS = 8_000_000  # queries x pairs x models, or atoms, held at once


class Calls(NamedTuple):
    """What calls cost and which are possible, (n_queries, n_models) each.

    Attributes
    ----------
    charge : ndarray
        Price times cost; nothing for models called already.
    allowed : ndarray of bool
        Models that may be routed to.
    called : ndarray of bool
        Models called already.
    """

    charge: FloatArray
    allowed: NDArray[np.bool_]
    called: NDArray[np.bool_]

    def take(self, rows: Any) -> Calls:
        """Keep some queries."""
        return Calls(*(values[rows] for values in self))

    def free(self) -> Calls:
        """Give the same calls at no charge."""
        return self._replace(charge=np.zeros_like(self.charge))


class Pairs(NamedTuple):
    """All pairs of models, `first` before `second`."""

    first: IntArray
    second: IntArray

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, n_models: int) -> Pairs:
        """Give the pairs of so many models."""
        return cls(*np.triu_indices(n_models, k=1))


def probe_values(
    posterior: xr.DataTree | Draws,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    quality: QualityCalibration | None = None,
    tie_rate: float | ArrayLike = 0.0,
    costs: Costs | None = None,
    price: float = 0.0,
    available: Iterable[str] | ArrayLike | None = None,
    information: Collection[str] = (),
    draws: int | None = 10,
) -> xr.Dataset:
    """Value a probe of every pair of models on each query, if its outcome alone is seen.

    After either win the query's responsibilities are those that the posterior gives with this
    probe added, and it goes to the model of the highest mean quality, less its price. A tie tells
    nothing and leaves two models paid for.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    embeddings, probes, queries
        What is known of the queries, as in `predict_responsibilities`; models compared in `probes`
        have been called.
    quality : QualityCalibration, optional
        From mean win probability to expected score; without one the mean win probability itself
        is the quality.
    tie_rate : float or array-like, shape (n_models, n_models)
        Chance of a tie, for all pairs or for each.
    costs, available
        As in `route`: a dict or a Series of costs by model, a frame by query and model, or an
        array; names of models, or a mask.
    price : float
        Quality that one unit of cost is worth.
    information : collection of {"best", "ranking"}
        Also give the mutual information, in nats, of the outcome with which model is the best on
        the query, or with the whole ranking, under the cluster and draw that hold. The second
        takes the time of all draws x clusters x pairs.
    draws : int, optional
        Use at most so many draws of each chain.

    Returns
    -------
    xarray.Dataset
        With dims (query, pair), the pairs' models being the coordinates `first` and `second`:
        `gain`, by which the quality expected after routing rises if nothing cost anything; `net`,
        by which the utility (quality - price x cost) rises; `information_best` and
        `information_ranking` if asked for. Pairs that cannot be asked for (a model not available,
        a pair probed before) have a `net` of minus infinity.

    Raises
    ------
    InputError
        If signals, costs, models or rates do not fit.

    See Also
    --------
    next_probe : the best of them, or none.

    Examples
    --------
    >>> from bayes_ecc import ECC, probe_values, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> values = probe_values(fit.posterior_, embeddings=data.embeddings[:2], price=0.01)
    >>> dict(values.sizes), bool((values["net"] < values["gain"]).all())
    ({'query': 2, 'pair': 10}, True)
    """
    wanted = _check_information(information)
    read = read_draws(posterior, draws=draws)
    source, models = read.atoms, read.atoms.models
    if source.tie_margin is not None or source.order_effect is not None:
        raise InputError(
            "Probes are valued by their two decisive outcomes, which this posterior, with a tie "
            "margin or an order effect, does not have; fit with ties='half' and no order effect."
        )
    signals = read_signals(
        source,
        embeddings=embeddings,
        probes=probes,
        queries=queries,
        by_query=tables_by_query(costs=costs, available=available),
    )
    pairs = Pairs.of(len(models))
    ties = _tie_rates(tie_rate, pairs, len(models))
    called, probed = _called(probes, models, pairs, len(signals.queries))
    calls = read_calls(costs, price, available, signals.queries, models, called)
    old = np.zeros(len(called)) if probes is None else probes.query_weight
    n_cells = 4 * len(pairs) * len(models)
    if wanted:
        n_cells += 3 * len(source) * source.n_clusters
    found: dict[str, list[FloatArray]] = {}
    for rows, block in _signal_blocks(signals, max(1, _CELLS // n_cells)):
        after = outcome_qualities(source, block, old[rows], pairs, quality)
        part = calls.take(rows)
        for name, priced in (("gain", part.free()), ("net", part)):
            found.setdefault(name, []).append(outcome_gains(after, pairs, ties, priced))
        for name, values in outcome_information(source, block, old[rows], pairs, wanted).items():
            found.setdefault(name, []).append((1 - ties) * values)
    tables = {name: np.concatenate(parts) for name, parts in found.items()}
    tables["net"][barred_pairs(calls, pairs) | probed] = -np.inf
    return label_values(tables, pairs, signals.queries, models)


def next_probe(values: xr.Dataset, *, by: str = "net", always: bool = False) -> xr.Dataset:
    """Choose the next probe for each query, or to stop.

    Parameters
    ----------
    values : xarray.Dataset
        From `probe_values` or `score_probe_values`.
    by : str
        The variable to go by; any of theirs.
    always : bool
        Probe wherever a pair can be asked for; else only where `net` is above 0.

    Returns
    -------
    xarray.Dataset, dims (query)
        `pair` (position in `values`, -1 to stop), the models `first` and `second` (empty to stop)
        and their positions `first_code` and `second_code`, and `value`. Ties go to the first pair.

    Raises
    ------
    InputError
        If there is no such variable.

    Examples
    --------
    >>> from bayes_ecc import ECC, next_probe, probe_values, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> dear = probe_values(fit.posterior_, embeddings=data.embeddings[:2], price=1.0)
    >>> next_probe(dear)["pair"].values.tolist()
    [-1, -1]
    """
    if by not in values.data_vars:
        raise InputError(f"by={by!r}: allowed are {', '.join(map(str, values.data_vars))}.")
    possible = np.isfinite(values["net"].values)
    value = np.where(possible, values[by].values, -np.inf)
    # rounding must not choose between pairs that are worth the same
    chosen = (value >= value.max(axis=1, keepdims=True) - 1e-9).argmax(axis=1)
    row = np.arange(len(chosen))
    go = possible[row, chosen]
    if not always:
        go &= values["net"].values[row, chosen] > 1e-9
    pair = np.where(go, chosen, NOBODY)

    def of_pair(name: str, nothing: Any) -> tuple[str, Any]:
        return "query", np.where(go, values[name].values[chosen], nothing)

    return xr.Dataset(
        {
            "pair": ("query", pair),
            "first": of_pair("first", ""),
            "second": of_pair("second", ""),
            "first_code": of_pair("first_code", NOBODY),
            "second_code": of_pair("second_code", NOBODY),
            "value": ("query", np.where(go, value[row, chosen], np.nan)),
        },
        coords={"query": values["query"].values},
    )


# -------------------------------------------------------------------- outcomes alone


class Outcomes(NamedTuple):
    """Chances and consequences of a probe of each pair, its outcome seen.

    Attributes
    ----------
    now : ndarray, shape (n_queries, n_models)
        Mean quality as things are.
    chance : ndarray, shape (n_queries, n_pairs)
        That the second beats the first, given no tie.
    second_won, first_won : ndarray, shape (n_queries, n_pairs, n_models)
        Mean quality after either.
    """

    now: FloatArray
    chance: FloatArray
    second_won: FloatArray
    first_won: FloatArray


def outcome_qualities(
    source: Atoms,
    signals: Signals,
    old: FloatArray,
    pairs: Pairs,
    quality: QualityCalibration | None,
) -> Outcomes:
    """Find mean qualities after either outcome; `old` (n_queries,) weighs the probes so far."""
    n_queries, n_pairs, n_models = len(signals.queries), len(pairs), len(source.models)
    now = np.zeros((n_queries, n_models))
    chance = np.zeros((n_queries, n_pairs))
    after = np.zeros((2, n_queries, n_pairs, n_models))

    def mapped(win: FloatArray) -> FloatArray:
        return win if quality is None else quality.predict(win)

    for s, share in source.used():
        theta, win = source.strengths[s], mean_win_probability(source.strengths[s])
        margin = theta[:, pairs.second] - theta[:, pairs.first]
        r, shrunk, power = _before_probe(source, s, signals, old)
        now += share * mapped(r @ win)
        chance += share * (r @ expit(margin))
        for y, sign in enumerate((1, -1)):
            log_p = -np.logaddexp(0, -sign * margin)
            for exponent in np.unique(power):
                rows = power == exponent
                # only ratios between clusters matter; the largest is 1, so nothing underflows
                p = np.exp(exponent * (log_p - log_p.max(axis=0)))
                total = shrunk[rows] @ p
                table = (p[:, :, None] * win[:, None, :]).reshape(len(p), -1)
                value = (shrunk[rows] @ table).reshape(-1, n_pairs, n_models)
                after[y, rows] += share * mapped(value / total[:, :, None])
    return Outcomes(now, chance, after[0], after[1])


def outcome_gains(after: Outcomes, pairs: Pairs, ties: FloatArray, calls: Calls) -> FloatArray:
    """Give the rise (n_queries, n_pairs) of the utility expected, from qualities to choices."""
    charge = np.where(calls.allowed, calls.charge, np.inf)
    now = (after.now - charge).max(axis=1)
    index = np.arange(len(pairs))
    left = np.broadcast_to(charge[:, None, :], after.second_won.shape).copy()
    for models in pairs:  # paid by the probe
        left[:, index, models] = np.where(calls.allowed[:, models], 0.0, np.inf)
    won, lost = ((values - left).max(axis=2) for values in (after.second_won, after.first_won))
    tied = (after.now[:, None, :] - left).max(axis=2)
    value = (1 - ties) * (after.chance * won + (1 - after.chance) * lost) + ties * tied
    paid = calls.charge[:, pairs.first] + calls.charge[:, pairs.second]
    return value - paid - now[:, None]


def _before_probe(
    source: Atoms, s: int, signals: Signals, old: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Give responsibilities now, those a further probe multiplies, and its power, by query.

    Where probes are averaged, a further one takes weight from those there were.
    """
    scores = np.tile(source.log_weights[s], (len(signals.queries), 1))
    if signals.embeddings is not None:
        scores += source.concentration * (signals.embeddings @ source.centroids[s].T)
    power = np.full(len(scores), source.probe_power)
    if signals.counts is None:
        r = softmax_rows(scores)[0]
        return r, r, power
    evidence = source.probe_power * log_evidence(source.strengths[s], signals.counts)
    r = softmax_rows(scores + evidence)[0]
    if source.rule == "per_comparison":
        return r, r, power
    return r, softmax_rows(scores + evidence * (old / (old + 1))[:, None])[0], power / (old + 1)


# -------------------------------------------------------------------- information


def mutual_information(joint: FloatArray, groups: FloatArray) -> FloatArray:
    """Mutual information, in nats, of an outcome with which of several groups holds.

    Parameters
    ----------
    joint : ndarray, shape (..., n_groups)
        Probability that the second wins and the group holds.
    groups : ndarray, shape (..., n_groups)
        Probability that the group holds; sums to 1.

    Returns
    -------
    ndarray, shape (...)
    """
    won = joint.sum(axis=-1)
    total = -xlogy(won, won) - xlogy(1 - won, 1 - won)
    lost = np.maximum(groups - joint, 0.0)
    inner = xlogy(joint, joint) + xlogy(lost, lost) - xlogy(groups, groups)
    return np.maximum(total + inner.sum(axis=-1), 0.0)


def outcome_information(
    source: Atoms, signals: Signals, old: FloatArray, pairs: Pairs, wanted: tuple[str, ...]
) -> dict[str, FloatArray]:
    """Give the information (n_queries, n_pairs) of a decided outcome, under each name wanted."""
    weight, chance = [], []
    for s, share in source.used():
        theta = source.strengths[s]
        weight.append(share * _before_probe(source, s, signals, old)[0])
        chance.append(expit(theta[:, pairs.second] - theta[:, pairs.first]))
    used = [s for s, _ in source.used()]
    strengths = source.strengths[used].reshape(-1, len(source.models))
    w, p = np.concatenate(weight, axis=1), np.concatenate(chance)
    ranking = np.argsort(-strengths, axis=1, kind="stable")
    found = {}
    for name in wanted:
        group = ranking[:, 0]
        if name == "ranking":
            group = np.unique(ranking, axis=0, return_inverse=True)[1].ravel()
        order = np.argsort(group, kind="stable")
        start = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
        ordered = w[:, order]
        groups = np.add.reduceat(ordered, start, axis=1)
        values = [
            mutual_information(np.add.reduceat(ordered * column, start, axis=1), groups)
            for column in p[order].T
        ]
        found[f"information_{name}"] = np.stack(values, axis=1)
    return found


# -------------------------------------------------------------------- reading and labelling


def read_calls(
    costs: Costs | None,
    price: float,
    available: Iterable[str] | ArrayLike | None,
    queries: pd.Index,
    models: pd.Index,
    called: NDArray[np.bool_],
) -> Calls:
    """Bring costs, price and models to arrays; what was called costs nothing more."""
    check_not_negative("price", price)
    charge = price * read_costs(costs, queries, models)
    return Calls(np.where(called, 0.0, charge), read_available(available, queries, models), called)


def barred_pairs(calls: Calls, pairs: Pairs) -> NDArray[np.bool_]:
    """Mark the pairs (n_queries, n_pairs) with a model that is not available."""
    return ~(calls.allowed[:, pairs.first] & calls.allowed[:, pairs.second])


def label_values(
    values: dict[str, FloatArray], pairs: Pairs, queries: pd.Index, models: pd.Index
) -> xr.Dataset:
    """Make the labelled table of probe values."""
    names = models.to_numpy(dtype=object)
    coords = {
        "query": identifiers(queries),
        "first": ("pair", names[pairs.first]),
        "second": ("pair", names[pairs.second]),
        "first_code": ("pair", pairs.first),
        "second_code": ("pair", pairs.second),
    }
    return xr.Dataset(
        {name: (("query", "pair"), table) for name, table in values.items()}, coords=coords
    )


def _check_information(information: Collection[str]) -> tuple[str, ...]:
    wanted = (information,) if isinstance(information, str) else tuple(information)
    for name in wanted:
        check_choice("information", name, INFORMATION)
    return wanted


def _tie_rates(tie_rate: float | ArrayLike, pairs: Pairs, n_models: int) -> FloatArray:
    """Give the chance of a tie of each pair, (n_pairs,)."""
    rates = np.asarray(tie_rate, dtype=float)
    if rates.shape not in ((), (n_models, n_models)):
        raise InputError(
            f"tie_rate has shape {rates.shape}; give one number or ({n_models}, {n_models})."
        )
    rates = np.broadcast_to(rates, (n_models, n_models))[pairs.first, pairs.second]
    if not ((rates >= 0) & (rates <= 1)).all():
        raise InputError("tie_rate holds numbers outside [0, 1]; give chances.")
    return rates


def _called(
    probes: Comparisons | None, models: pd.Index, pairs: Pairs, n_queries: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mark models (n_queries, n_models) and pairs (n_queries, n_pairs) that were probed."""
    called = np.zeros((n_queries, len(models)), dtype=bool)
    probed = np.zeros((n_queries, len(pairs)), dtype=bool)
    if probes is not None:
        known = probes.with_models(models)
        called[known.query, known.first] = called[known.query, known.second] = True
        number = np.zeros((len(models), len(models)), dtype=int)
        number[pairs.first, pairs.second] = number[pairs.second, pairs.first] = np.arange(
            len(pairs)
        )
        probed[known.query, number[known.first, known.second]] = True
    return called, probed


def _signal_blocks(signals: Signals, width: int) -> Iterator[tuple[slice, Signals]]:
    for start in range(0, len(signals.queries), width):
        rows = slice(start, start + width)
        unit, counts = signals.embeddings, signals.counts
        yield (
            rows,
            Signals(
                signals.queries[rows],
                None if unit is None else unit[rows],
                None if counts is None else counts._replace(matrix=counts.matrix[rows]),
            ),
        )
