"""Which queries belong together under a posterior, whatever its clusters are numbered."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.draws import Collector
from bayes_ecc.errors import InputError
from bayes_ecc.inference import Signals, iterate_responsibilities
from bayes_ecc.intervals import choose_interval
from bayes_ecc.posterior import identifiers
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.structure.drawn import DRAWS, DrawnPartitions
from bayes_ecc.structure.indices import self_pairs
from bayes_ecc.structure.partitions import PartitionLike, read_partition, shares_of
from bayes_ecc.summaries import IntervalKind, summary_attrs

type PosteriorLike = xr.DataTree | PosteriorPredictions

_QUERIES = 5_000  # of a co-clustering table: 100 MB in single precision
_LABELS = 200


def co_clustering(
    posterior: PosteriorLike,
    queries: Iterable[Hashable] | None = None,
    *,
    draws: int | None = DRAWS,
) -> xr.DataArray:
    """Give the probability that two training queries belong to the same cluster.

    It is the mean over draws of sum_k r_qk r_q'k, in which the numbering of clusters cancels:
    draws and chains that number them differently need no matching.

    Parameters
    ----------
    posterior : xarray.DataTree or fit
        From any estimator of this library; with its training data, as fits have it.
    queries : iterable, optional
        Training queries to look at, at most 5,000; all by default.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; None uses all.

    Returns
    -------
    xarray.DataArray, dims (query, query_other)
        1 on the diagonal.

    Raises
    ------
    InputError
        If the posterior lacks its training data, a query is unknown, or there are too many.

    Warns
    -----
    DataWarning
        If checks of the fit failed.

    Examples
    --------
    >>> from bayes_ecc import ECC, co_clustering, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> co_clustering(fit, data.comparisons.queries[:3]).round(2).values.diagonal().tolist()
    [1.0, 1.0, 1.0]
    """
    read = DrawnPartitions.read(posterior, draws)
    rows = _positions(read.comparisons.queries, queries)
    if len(rows) > _QUERIES:
        raise InputError(
            f"Co-clustering of {len(rows)} queries is a table of {len(rows) ** 2:,} numbers; give "
            f"at most {_QUERIES:,} queries, or use co_clustering_by_label or consensus_partition."
        )
    total = np.zeros((len(rows), len(rows)), np.float32)
    signals = _rows_of(read.signals, rows)
    for _, share, values in iterate_responsibilities(read.draws.atoms, signals):
        single = values.astype(np.float32)
        total += np.float32(share) * (single @ single.T)
    total.flat[:: len(rows) + 1] = 1
    names = identifiers(read.comparisons.queries[rows])
    coords = {"query": names, "query_other": names}
    return xr.DataArray(
        np.minimum(total, 1), coords, ("query", "query_other"), "co_clustering", read.draws.attrs
    )


def co_clustering_by_label(
    posterior: PosteriorLike,
    labels: PartitionLike,
    *,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = DRAWS,
) -> xr.Dataset:
    """Give the probability that queries of two labels belong to the same cluster.

    Parameters
    ----------
    posterior : xarray.DataTree or fit
        From any estimator of this library; with its training data, as fits have it.
    labels
        Any partition of the training queries that `read_partition` reads: a bundle's labels, say.
    prob, kind
        Probability and kind of the intervals; by default ArviZ's.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; None uses all.

    Returns
    -------
    xarray.Dataset, dims (label, label_other)
        `mean`, `lower` and `upper` of the share of pairs of two different queries, one of either
        label, that are together. Missing for a label of one query beside itself.

    Raises
    ------
    InputError
        If the posterior lacks its training data or labels do not fit it.

    Warns
    -----
    DataWarning
        If checks of the fit failed, or queries have no label.

    Examples
    --------
    >>> from bayes_ecc import ECC, co_clustering_by_label, simulate
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=2, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> table = co_clustering_by_label(fit, data.labels)
    >>> bool(table["mean"][0, 0] > table["mean"][0, 1])
    True
    """
    interval = choose_interval(prob, kind)
    read = DrawnPartitions.read(posterior, draws)
    partition = read_partition(labels)
    member = shares_of(read.comparisons, partition)
    n_labels = member.shape[1]
    if n_labels > _LABELS:
        raise InputError(f"labels has {n_labels} different values; give at most {_LABELS}.")
    size = member.sum(axis=0)
    pairs = np.outer(size, size) - member.T @ member
    atoms = read.draws.atoms
    collector = Collector(n_labels, n_labels, atoms.share, float)
    for _, share, values in read.responsibilities():
        mass = member.T @ values
        itself = member.T @ (self_pairs(values)[:, None] * member)
        together = np.full(pairs.shape, np.nan)
        np.divide(mass @ mass.T - itself, pairs, out=together, where=pairs > 1e-9)
        collector.add(together[:, None], share)
    lower, upper = collector.bounds(interval)
    names = partition.clusters.to_numpy()
    dims = ("label", "label_other")
    return xr.Dataset(
        {"mean": (dims, collector.mean), "lower": (dims, lower), "upper": (dims, upper)},
        coords=dict.fromkeys(dims, names),
        attrs=summary_attrs(read.draws, interval),
    )


def _positions(known: pd.Index, queries: Iterable[Hashable] | None) -> NDArray[np.intp]:
    """Find training queries by their identifiers."""
    if queries is None:
        return np.arange(len(known))
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InputError(f"queries={queries!r}: give a list of identifiers.")
    wanted = list(queries)
    place = known.get_indexer(pd.Index(wanted))
    if not wanted or (place < 0).any():
        unknown = f"holds {wanted[int(np.argmax(place < 0))]!r}, which is" if wanted else "is"
        raise InputError(
            f"queries {unknown} not among the {len(known)} training queries (such as "
            f"{known[0]!r}); give identifiers of queries the fit was made with."
        )
    if len(set(wanted)) < len(wanted):
        raise InputError("queries names a query more than once; give each once.")
    return place


def _rows_of(signals: Signals, rows: NDArray[np.intp]) -> Signals:
    """Keep some queries of signals."""
    counts = signals.counts
    if counts is not None:
        ties = None if counts.tie_weight is None else counts.tie_weight[rows]
        counts = counts._replace(matrix=counts.matrix[rows], tie_weight=ties)
    embeddings = None if signals.embeddings is None else signals.embeddings[rows]
    return Signals(signals.queries[rows], embeddings, counts)
