"""Rankings with their uncertainty: how often a model takes which place, and who may be the best.

In every draw of a posterior the models are ranked by their mean win probability against all other
models, on a query (under its responsibilities) or in a cluster. The distribution of those ranks
over draws is what the posterior says of the ranking.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import (
    Collector,
    Draws,
    QueryBlock,
    block_width,
    draw_parts,
    query_blocks,
    read_draws,
    responsibilities,
)
from bayes_ecc.errors import InputError
from bayes_ecc.inference import mean_win_probability, read_signals
from bayes_ecc.intervals import Interval, choose_interval, discrete_interval
from bayes_ecc.posterior import identifiers
from bayes_ecc.summaries import TIE, IntervalKind, by_group, summary_attrs

type FloatArray = NDArray[np.floating[Any]]
type ValueParts = Iterator[tuple[FloatArray, float]]


class Ranks(NamedTuple):
    """What draws say of rankings: `places` (n_items, n_models, n_models), else without the last."""

    places: FloatArray
    lower: NDArray[np.integer[Any]]
    upper: NDArray[np.integer[Any]]
    win: FloatArray
    win_lower: FloatArray
    win_upper: FloatArray


def summarize_ranking(
    posterior: xr.DataTree | Draws,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    level: float | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
) -> xr.Dataset:
    """Rank the models on each query, with the uncertainty of the ranking.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library. `read_draws` makes the second, which answers single
        queries in milliseconds.
    embeddings, probes, queries
        As in `predict_responsibilities`.
    level : float, optional
        Probability with which the set of possible best models shall hold the best; by default
        `prob`.
    prob : float, optional
        Probability of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    kind : {"eti", "hdi"}, optional
        Equal tails or highest density; by default ArviZ's ``rcParams["stats.ci_kind"]``.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; all by default. A quarter of the
        draws takes a quarter of the time.

    Returns
    -------
    xarray.Dataset
        With dims (query, llm):

        - `win_probability`, `win_probability_lower`, `win_probability_upper`: mean win probability
          against all other models, its mean and interval over draws;
        - `rank` (1 is best): expected rank; `rank_lower`, `rank_upper`: whole-numbered interval;
        - `p_best`: probability of being the best;
        - `in_best_set`: whether it belongs to the smallest set that holds the best with
          probability `level`, the models that can't be told from the best;

        `rank_probability` (query, llm, place): probability of each place 1, 2, ...; and
        `best_set_probability` (query): that of the set to hold the best. Models tied in a draw,
        their win probabilities closer than 1e-6, share its places equally.

    Raises
    ------
    InputError
        If neither embeddings nor probes are given, they do not fit the posterior, or a setting is
        out of range.

    Warns
    -----
    DataWarning
        If checks of the fit failed; `attrs["checks"]` repeats which.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, summarize_ranking
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> summary = summarize_ranking(fit.posterior_, embeddings=data.embeddings[:2])
    >>> summary["rank"].values[0].tolist(), summary["p_best"].values[0].tolist()
    ([1.0, 5.0, 3.0, 4.0, 2.0], [1.0, 0.0, 0.0, 0.0, 0.0])
    """
    interval = choose_interval(prob, kind)
    level = _check_level(level, interval)
    read = read_draws(posterior, draws=draws)
    signals = read_signals(read.atoms, embeddings=embeddings, probes=probes, queries=queries)
    share, n_models = read.atoms.share, len(read.models)
    found = []
    width = block_width(int((share > 0).sum()), n_models, n_more=2 * n_models**2)
    for block in query_blocks(signals, width):
        shape = (n_models, len(block))
        found.append(_rank(_query_values(read, block), share, shape, interval))
    coords = {"query": identifiers(signals.queries), "llm": read.models}
    return _label(found, ("query", "llm"), coords, level, summary_attrs(read, interval))


def summarize_cluster_ranking(
    posterior: xr.DataTree | Draws,
    *,
    level: float | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
) -> xr.Dataset:
    """Rank the models in each cluster, with the uncertainty of the ranking.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    level, prob, kind, draws
        As in `summarize_ranking`.

    Returns
    -------
    xarray.Dataset
        As `summarize_ranking`, with `cluster` in place of `query`, and a `chain` dimension in
        front if clusters are not matched across chains.

    Raises
    ------
    InputError
        If a setting is out of range.

    Warns
    -----
    DataWarning
        If checks of the fit failed; `attrs["checks"]` repeats which.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, summarize_cluster_ranking
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> summary = summarize_cluster_ranking(fit.posterior_)
    >>> dict(summary["rank_probability"].sizes)
    {'cluster': 2, 'llm': 5, 'place': 5}
    """
    interval = choose_interval(prob, kind)
    level = _check_level(level, interval)
    read = read_draws(posterior, draws=draws)
    n_clusters, n_models = read.atoms.n_clusters, len(read.models)
    found = []
    for share in read.groups():
        shape = (n_models, n_clusters)
        found.append(_rank(_cluster_values(read, share), share, shape, interval, float))
    dims, coords = by_group(read, ("cluster", "llm"))
    coords.update(cluster=read.clusters, llm=read.models)
    return _label(found, dims, coords, level, summary_attrs(read, interval))


# -------------------------------------------------------------------- numerical cores


def place_counts(values: FloatArray) -> FloatArray:
    """Count how often each model takes each place; the highest value takes the first.

    Every pair of models is compared for all draws and items at once, which beats sorting many
    short rows. Values within `TIE` of their neighbour in the order are tied; each of t tied models
    takes each of their t places 1 / t times.

    Parameters
    ----------
    values : ndarray, shape (n_models, n_draws, n_items)

    Returns
    -------
    ndarray, shape (n_models, n_models, n_items)
        Model, place, item.
    """
    n_models, _, n_items = values.shape
    counter = np.min_scalar_type(n_models)
    above = np.zeros(values.shape, counter)  # how many models are better
    raised = values + values.dtype.type(TIE)
    for i in range(n_models - 1):
        above[i + 1 :] += (values[i] > raised[i + 1 :]).view(np.uint8)
        better = (values[i + 1 :] > raised[i]).view(np.uint8)
        above[i] += np.add.reduce(better, axis=0, dtype=counter)
    cell = np.arange(n_models)[:, None, None] * (n_models * n_items) + np.arange(n_items)
    counted = np.bincount(
        (cell + above.astype(np.intp) * n_items).ravel(), minlength=n_models**2 * n_items
    )
    counts = counted.reshape(n_models, n_models, n_items).astype(float)
    settled = n_models * (n_models - 1) // 2  # without ties the numbers 0, 1, ... occur once each
    tied = np.add.reduce(above, axis=0, dtype=np.uint32) != settled
    if tied.any():
        shared = _shared_places(values[:, tied])
        shared -= np.arange(n_models)[:, None] == above[:, None, tied]
        cell = np.arange(n_models**2)[:, None] * n_items + np.nonzero(tied)[1]
        np.add.at(counts.reshape(-1), cell.ravel(), shared.ravel())
    return counts


def best_set(p_best: FloatArray, win: FloatArray, level: float) -> tuple[NDArray[np.bool_], Any]:
    """Choose the fewest models that hold the best with probability `level`.

    Models are taken by falling `p_best`; equal ones by falling `win`, then in their order.

    Parameters
    ----------
    p_best, win : ndarray, shape (..., n_models)
    level : float

    Returns
    -------
    chosen : ndarray of bool, shape (..., n_models)
    probability : ndarray, shape (...)
        Of the set to hold the best.
    """
    order = np.lexsort((-win, -p_best.round(12)), axis=-1)
    cumulative = np.cumsum(np.take_along_axis(p_best, order, axis=-1), axis=-1)
    needed = np.minimum((cumulative < level - 1e-9).sum(axis=-1), p_best.shape[-1] - 1)[..., None]
    chosen = np.empty(p_best.shape, bool)
    np.put_along_axis(chosen, order, np.arange(p_best.shape[-1]) <= needed, axis=-1)
    return chosen, np.minimum(np.take_along_axis(cumulative, needed, axis=-1)[..., 0], 1.0)


def _query_values(read: Draws, block: QueryBlock) -> ValueParts:
    """Give mean win probabilities (n_models, n_part, n_block) part by part of the draws."""
    for part, each in draw_parts(read.atoms.share, len(block)):
        r = responsibilities(read, part, block)
        win = np.empty((len(read.models), *r.shape[1:]), np.float32)
        np.matmul(read.win_table[part], r.transpose(1, 0, 2), out=win.transpose(1, 0, 2))
        yield win, each


def _cluster_values(read: Draws, share: FloatArray) -> ValueParts:
    """Give mean win probabilities (n_models, n_part, n_clusters) part by part of the draws."""
    for part, each in draw_parts(share, read.atoms.n_clusters * len(read.models)):
        ties = read.atoms.tie_margin
        margin = None if ties is None else ties[part, None]
        win = mean_win_probability(read.atoms.strengths[part], margin)
        yield win.transpose(2, 0, 1), each


def _rank(
    parts: ValueParts,
    share: FloatArray,
    shape: tuple[int, int],
    interval: Interval,
    dtype: Any = np.float32,
) -> Ranks:
    """Rank by values (n_models, n_part, n_items) that come in parts of the draws."""
    n_models, n_items = shape
    places = np.zeros((n_models, n_models, n_items))
    collector = Collector(n_models, n_items, share, dtype)
    for values, each in parts:
        collector.add(values, each)
        places += each * place_counts(values)
    win_lower, win_upper = collector.bounds(interval)
    by_item = np.ascontiguousarray(places.transpose(2, 0, 1))
    lower, upper = discrete_interval(by_item, interval)
    return Ranks(by_item, lower + 1, upper + 1, collector.mean.T, win_lower.T, win_upper.T)


def _shared_places(values: FloatArray) -> FloatArray:
    """Give the share (n_models, n_places, n) of each place that a model takes, ties shared."""
    n_models = len(values)
    order = np.argsort(-values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    position = np.arange(n_models)[:, None]
    parted = ordered[:-1] - ordered[1:] > TIE
    edge = np.ones((1, values.shape[1]), bool)
    first = np.maximum.accumulate(np.where(np.vstack([edge, parted]), position, 0), axis=0)
    last = np.where(np.vstack([parted, edge]), position, n_models)
    last = np.minimum.accumulate(last[::-1], axis=0)[::-1]
    inside = (position[None] >= first[:, None]) & (position[None] <= last[:, None])
    shared = np.empty(inside.shape)
    np.put_along_axis(shared, order[:, None], inside / (last - first + 1)[:, None], axis=0)
    return shared


def _label(
    found: list[Ranks],
    dims: tuple[str, ...],
    coords: dict[str, Any],
    level: float,
    attrs: dict[str, Any],
) -> xr.Dataset:
    """Make the labelled summary of ranks found block by block."""
    ranks = Ranks(*(np.concatenate(part) for part in zip(*found, strict=True)))
    p_best = ranks.places[:, :, 0]
    chosen, probability = best_set(p_best, ranks.win, level)
    position = np.arange(1, ranks.places.shape[-1] + 1)
    variables = {
        "win_probability": ranks.win,
        "win_probability_lower": ranks.win_lower,
        "win_probability_upper": ranks.win_upper,
        "rank": ranks.places @ position,
        "rank_lower": ranks.lower,
        "rank_upper": ranks.upper,
        "p_best": p_best,
        "in_best_set": chosen,
    }
    shape = tuple(len(coords[dim]) for dim in dims)
    return xr.Dataset(
        {
            **{name: (dims, values.reshape(shape)) for name, values in variables.items()},
            "best_set_probability": (dims[:-1], probability.reshape(shape[:-1])),
            "rank_probability": ((*dims, "place"), ranks.places.reshape(*shape, -1)),
        },
        coords={**coords, "place": position},
        attrs={**attrs, "level": level},
    )


def _check_level(level: float | None, interval: Interval) -> float:
    if level is None:
        return interval.prob
    number = not isinstance(level, bool) and isinstance(level, int | float | np.number)
    if not number or not 0 < level <= 1:
        raise InputError(f"level={level!r}: give a probability above 0, at most 1.")
    return float(level)
