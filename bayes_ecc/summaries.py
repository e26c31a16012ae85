"""What a posterior says of responsibilities, strengths and pairs of models, with its uncertainty.

Means and probabilities are weighted over all draws. Intervals are ArviZ's, in its current kind and
probability unless told otherwise. Where the clusters of independent chains are not matched,
summaries of clusters keep a `chain` dimension: cluster 3 of one chain is not that of another.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import (
    Collector,
    Draws,
    block_width,
    draw_parts,
    query_blocks,
    read_draws,
    responsibilities,
)
from bayes_ecc.inference import Signals, read_signals
from bayes_ecc.intervals import Interval, choose_interval, equally_weighted, sorted_interval
from bayes_ecc.posterior import identifiers
from bayes_ecc.ties import win_lead

type FloatArray = NDArray[np.floating[Any]]
type IntervalKind = Literal["eti", "hdi"]

TIE = 1e-6
"""Win probabilities closer than this, a few times the rounding of single precision, are tied."""

_CELLS = 65536  # pairs x queries treated at once


def summarize_responsibilities(
    posterior: xr.DataTree | Draws,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
) -> xr.Dataset:
    """Summarise how responsible each cluster is for each query.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library; an EM fit has one draw, and intervals without width.
    embeddings, probes, queries
        As in `predict_responsibilities`.
    prob : float, optional
        Probability of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    kind : {"eti", "hdi"}, optional
        Equal tails or highest density; by default ArviZ's ``rcParams["stats.ci_kind"]``.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; all by default.

    Returns
    -------
    xarray.Dataset
        `mean`, `lower`, `upper` and `p_most_responsible` (query, cluster); `entropy` (query), in
        nats, of the mean responsibilities; `mean_draw_entropy` (query), the mean of the entropies
        of single draws. The first is the larger, by what the posterior does not know. All but the
        last have a `chain` dimension too if clusters are not matched across chains.

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
    >>> from bayes_ecc import ECC, simulate, summarize_responsibilities
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> summary = summarize_responsibilities(fit.posterior_, embeddings=data.embeddings[:3])
    >>> summary["mean"].sum("cluster").round(6).values.tolist()
    [1.0, 1.0, 1.0]
    """
    interval = choose_interval(prob, kind)
    read = read_draws(posterior, draws=draws)
    signals = read_signals(read.atoms, embeddings=embeddings, probes=probes, queries=queries)
    n_clusters, n_queries = read.atoms.n_clusters, len(signals.queries)
    groups = read.groups()
    weight = [float((read.atoms.share * (group > 0)).sum()) for group in groups]
    names = ("mean", "lower", "upper", "p_most_responsible")
    values = {name: np.empty((len(groups), n_queries, n_clusters)) for name in names}
    spread = np.zeros(n_queries)
    for g, share in enumerate(groups):
        width = block_width(int((share > 0).sum()), n_clusters)
        for block in query_blocks(signals, width):
            collector = Collector(n_clusters, len(block), share, np.float32)
            most = np.zeros((n_clusters, len(block)))
            for part, each in draw_parts(share, len(block)):
                r = responsibilities(read, part, block)
                collector.add(r, each)
                top = r >= r.max(axis=0) - np.float32(TIE)
                tied = np.add.reduce(top, axis=0, dtype=np.float32)
                most += each * np.divide(top, tied, dtype=np.float32).sum(axis=1)
                spread[block.rows] += weight[g] * each * _entropy(r).sum(axis=0)
            lower, upper = collector.bounds(interval)
            for name, found in zip(names, (collector.mean, lower, upper, most), strict=True):
                values[name][g, block.rows] = found.T
    entropy = _entropy(np.moveaxis(values["mean"], 2, 0))
    dims, coords = by_group(read, ("query", "cluster"))
    coords.update(query=identifiers(signals.queries), cluster=read.clusters)
    shape = tuple(len(coords[dim]) for dim in dims)
    return xr.Dataset(
        {
            **{name: (dims, value.reshape(shape)) for name, value in values.items()},
            "entropy": (dims[:-1], entropy.reshape(shape[:-1])),
            "mean_draw_entropy": ("query", spread),
        },
        coords=coords,
        attrs=summary_attrs(read, interval),
    )


def summarize_strengths(
    posterior: xr.DataTree | Draws,
    *,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
) -> xr.Dataset:
    """Summarise the strengths of the models in each cluster, as contrasts to their mean.

    Only differences of strengths mean something; a model's contrast is its strength less the mean
    over all models, in logits, taken in every draw.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    prob, kind, draws
        As in `summarize_responsibilities`.

    Returns
    -------
    xarray.Dataset
        `mean`, `sd` (over draws, about their weighted mean), `lower` and `upper` (cluster, llm),
        with a `chain` dimension in front if clusters are not matched across chains.

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
    >>> from bayes_ecc import ECC, simulate, summarize_strengths
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> summary = summarize_strengths(fit.posterior_)
    >>> dict(summary["mean"].sizes), float(summary["sd"].max())
    ({'cluster': 2, 'llm': 5}, 0.0)
    """
    interval = choose_interval(prob, kind)
    read = read_draws(posterior, draws=draws)
    found = []
    for share in read.groups():
        used = share > 0
        weight = share[used]
        theta = read.atoms.strengths[used].astype(float)
        theta -= theta.mean(axis=2, keepdims=True)
        mean = np.einsum("s,skm->km", weight, theta)
        deviation = np.einsum("s,skm->km", weight, (theta - mean) ** 2) ** 0.5
        ordered = np.moveaxis(theta[equally_weighted(weight)], 0, -1)
        ordered.sort(axis=-1)
        found.append((mean, deviation, *sorted_interval(ordered, interval)))
    dims, coords = by_group(read, ("cluster", "llm"))
    coords.update(cluster=read.clusters, llm=read.models)
    shape = tuple(len(coords[dim]) for dim in dims)
    names = ("mean", "sd", "lower", "upper")
    return xr.Dataset(
        {
            name: (dims, np.stack(parts).reshape(shape))
            for name, parts in zip(names, zip(*found, strict=True), strict=True)
        },
        coords=coords,
        attrs=summary_attrs(read, interval),
    )


def pairwise(
    posterior: xr.DataTree | Draws,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    draws: int | None = None,
) -> xr.Dataset:
    """Compare every two models, on each query or, without signals, in each cluster.

    `p_win` is the probability that `llm` beats `llm_other` in one comparison, averaged over draws.
    `p_stronger` is the probability that `llm` is the stronger of the two: the share of draws in
    which it has the better chance, draws in which both have the same counting half. Two models of
    nearly equal strength that are both well known have `p_win` near 0.5 and `p_stronger` near 0
    or 1.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    embeddings, probes, queries
        As in `predict_responsibilities`. Without embeddings and probes the comparison is made in
        each cluster.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; all by default.

    Returns
    -------
    xarray.Dataset
        `p_win` and `p_stronger`, dims (query, llm, llm_other), or (cluster, llm, llm_other) with a
        `chain` dimension in front if clusters are not matched across chains. On the diagonal both
        are 0.5; a pair and its reverse sum to 1.

    Raises
    ------
    InputError
        If signals do not fit the posterior.

    Warns
    -----
    DataWarning
        If checks of the fit failed; `attrs["checks"]` repeats which.

    Examples
    --------
    >>> from bayes_ecc import ECC, pairwise, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> dict(pairwise(fit.posterior_).sizes)
    {'cluster': 2, 'llm': 5, 'llm_other': 5}
    >>> table = pairwise(fit.posterior_, embeddings=data.embeddings[:1])
    >>> table["p_stronger"].sel(llm="llm_0", llm_other="llm_4").values.tolist()
    [1.0]
    """
    read = read_draws(posterior, draws=draws)
    low, high = np.triu_indices(len(read.models), k=1)
    per_query = not (embeddings is None and probes is None and queries is None)
    if per_query:
        signals = read_signals(read.atoms, embeddings=embeddings, probes=probes, queries=queries)
        dims: tuple[str, ...] = ("query", "llm", "llm_other")
        coords: dict[str, Any] = {"query": identifiers(signals.queries)}
        lead, signs = _query_pairs(read, signals, low, high)
    else:
        dims, coords = by_group(read, ("cluster", "llm", "llm_other"))
        coords["cluster"] = read.clusters
        lead, signs = _cluster_pairs(read, low, high)
    coords.update(llm=read.models, llm_other=read.models)
    shape = tuple(len(coords[dim]) for dim in dims)
    variables = {}
    for name, values in (("p_win", lead), ("p_stronger", signs)):
        square = np.full((values.shape[1], len(read.models), len(read.models)), 0.5)
        square[:, low, high] += values.T / 2
        square[:, high, low] -= values.T / 2
        variables[name] = (dims, square.reshape(shape))
    return xr.Dataset(variables, coords=coords, attrs=read.attrs)


def _cluster_pairs(
    read: Draws, low: NDArray[np.intp], high: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Average 2 p - 1 and its sign over draws: (n_pairs, n_groups x n_clusters) each."""
    groups, n_clusters = read.groups(), read.atoms.n_clusters
    lead = np.zeros((len(low), len(groups), n_clusters))
    signs = np.zeros_like(lead)
    for g, share in enumerate(groups):
        for part, each in draw_parts(share, n_clusters * len(low)):
            theta = read.atoms.strengths[part]
            margin = win_lead(theta[:, :, low] - theta[:, :, high], _tie_margins(read, part))
            lead[:, g] += each * margin.sum(axis=0).T
            sign = (margin > 2 * TIE).sum(axis=0) - (margin < -2 * TIE).sum(axis=0)
            signs[:, g] += each * sign.T
    return lead.reshape(len(low), -1), signs.reshape(len(low), -1)


def _query_pairs(
    read: Draws, signals: Signals, low: NDArray[np.intp], high: NDArray[np.intp]
) -> tuple[FloatArray, FloatArray]:
    """Average 2 p - 1 and its sign over draws: (n_pairs, n_queries) each."""
    lead = np.zeros((len(low), len(signals.queries)))
    signs = np.zeros_like(lead)
    # Draws outside, queries inside: the chances of all pairs are worked out once a draw. Parts of
    # 128 items or more hold so few draws that their signs can be summed in 8 bits.
    width = min(max(128, _CELLS // len(low)), len(signals.queries))
    blocks = list(query_blocks(signals, width))
    n_table = len(low) * read.atoms.n_clusters
    for part, each in draw_parts(read.atoms.share, max(128, width), n_table):
        theta = read.atoms.strengths[part]
        margin = win_lead(theta[:, :, low] - theta[:, :, high], _tie_margins(read, part))
        table = np.ascontiguousarray(margin.transpose(0, 2, 1), dtype=np.float32)
        for block in blocks:
            r = responsibilities(read, part, block)
            total = np.zeros((len(low), len(block)), np.float32)
            sign = np.zeros(total.shape, np.int8)
            for s, chances in enumerate(table):
                values = chances @ r[:, s]
                total += values
                sign += (values > 2 * TIE).view(np.int8)
                sign -= (values < -2 * TIE).view(np.int8)
            lead[:, block.rows] += each * total
            signs[:, block.rows] += each * sign
    return lead, signs


def _tie_margins(read: Draws, part: slice) -> FloatArray | None:
    """Give the tie margins (n_part, 1, 1) of a part of the draws, if ties were learnt."""
    ties = read.atoms.tie_margin
    return None if ties is None else ties[part, None, None]


# -------------------------------------------------------------------- shared by all summaries


def by_group(read: Draws, dims: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Put a chain dimension in front where clusters are not matched: (dims, coordinates)."""
    if read.clusters_matched:
        return dims, {}
    return ("chain", *dims), {"chain": read.chains}


def summary_attrs(read: Draws, interval: Interval) -> dict[str, Any]:
    """Tell of the draws and of the intervals."""
    return {"ci_prob": interval.prob, "ci_kind": interval.kind, **read.attrs}


def _entropy(shares: FloatArray) -> FloatArray:
    """Entropy in nats of shares along the first axis."""
    tiny = np.finfo(shares.dtype).tiny
    return -(shares * np.log(np.maximum(shares, tiny))).sum(axis=0)
