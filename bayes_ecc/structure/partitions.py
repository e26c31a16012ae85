"""Partitions of queries, hard or soft, from whatever holds one: labels, responsibilities, fits."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.inference import fitted_responsibilities
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.structure.indices import one_hot

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

_CELLS = 100_000_000  # queries x clusters of one partition
_PACKAGE = str(Path(__file__).parents[1])
_ROUNDING = 1e-3  # rows of responsibilities that were stored with few digits sum to 1 this closely


@dataclass(frozen=True, eq=False)
class Partition:
    """Which query belongs to which cluster, wholly or in part.

    Make one with `read_partition`; every function that asks for a partition does so itself.

    Attributes
    ----------
    shares : ndarray, shape (n_queries, n_clusters)
        Membership of each query; rows sum to 1, or are zero where a query has no label.
    queries : pandas.Index or None
        Identifiers of the queries; None where none were given, and position tells.
    clusters : pandas.Index
        Names of the clusters.

    Examples
    --------
    >>> from bayes_ecc import read_partition
    >>> soft = read_partition([[0.9, 0.1], [0.4, 0.6]])
    >>> soft.is_hard, soft.hard().shares.tolist()
    (False, [[1.0, 0.0], [0.0, 1.0]])
    """

    shares: FloatArray
    queries: pd.Index | None
    clusters: pd.Index

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def is_hard(self) -> bool:
        """Whether every query belongs to one cluster alone."""
        return bool(((self.shares == 0) | (self.shares == 1)).all())

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which queries belong to a cluster at all, shape (n_queries,)."""
        return self.shares.any(axis=1)

    @property
    def codes(self) -> IntArray:
        """Position of each query's cluster of the largest share, the first of equals; else -1."""
        return np.where(self.labelled, self.shares.argmax(axis=1), -1)

    @property
    def sizes(self) -> pd.Series:
        """Queries in each cluster; shares add up."""
        return pd.Series(self.shares.sum(axis=0), self.clusters, name="queries")

    def hard(self) -> Partition:
        """Assign every query to the cluster with the largest share of it."""
        if self.is_hard:
            return self
        return Partition(one_hot(self.codes, len(self.clusters)), self.queries, self.clusters)

    def take(self, positions: IntArray) -> Partition:
        """Keep some queries, in this order."""
        kept = None if self.queries is None else self.queries[positions]
        return Partition(self.shares[positions], kept, self.clusters)


type PartitionLike = (
    Partition
    | pd.Series
    | pd.DataFrame
    | xr.DataArray
    | xr.DataTree
    | PosteriorPredictions
    | ArrayLike
)


def read_partition(source: PartitionLike) -> Partition:
    """Read a partition of queries.

    Parameters
    ----------
    source
        - Labels: a pandas Series indexed by query id (a column of a bundle), or an array of shape
          (n_queries,), of strings or whole numbers. A missing label puts a query in no cluster.
        - Responsibilities: an array of shape (n_queries, n_clusters), a DataFrame with one row a
          query, or a DataArray with dims (query, cluster).
        - A fit, or the posterior of one: the responsibilities of its training queries, averaged
          over draws. Where the clusters of independent chains are not matched, those of the chain
          that counts most (`select_chain`), as in plots, reports and rankings of clusters;
          `consensus_partition` stands for all chains, with numbers of its own.

    Returns
    -------
    Partition

    Raises
    ------
    InputError
        If it is none of these, holds no query, or responsibilities are not shares.

    Warns
    -----
    DataWarning
        If labels are missing, saying how many.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_ecc import read_partition
    >>> tasks = pd.Series(["maths", "code", "maths"], index=["q1", "q2", "q3"])
    >>> read_partition(tasks).sizes.to_dict()
    {'code': 1.0, 'maths': 2.0}
    """
    if isinstance(source, Partition):
        return source
    held = getattr(source, "responsibilities_", None)  # computed when asked for, so asked for once
    if held is not None:
        source = held
    elif isinstance(source, PosteriorPredictions):
        source = source._posterior()
    if isinstance(source, xr.DataTree):
        return _of_posterior(source)
    if isinstance(source, pd.Series):
        return _of_labels(source, _identifiers(source.index))
    if isinstance(source, pd.DataFrame):
        return _of_shares(source.to_numpy(), _identifiers(source.index), source.columns)
    if isinstance(source, xr.DataArray):
        return _of_data_array(source)
    try:
        values = np.asarray(source)
    except ValueError as error:
        raise InputError(f"The partition is ragged ({error}); give one row a query.") from None
    if values.ndim == 1:
        return _of_labels(pd.Series(list(values)), None)
    if values.ndim == 2:
        return _of_shares(values, None, pd.RangeIndex(values.shape[1]))
    raise InputError(
        f"The partition is a {type(source).__name__} of {values.ndim} dimensions; give labels, one "
        "a query, responsibilities (queries x clusters), or a fit."
    )


def hard_partition(source: PartitionLike) -> pd.Series:
    """Assign every query to one cluster, the one with the largest responsibility.

    Parameters
    ----------
    source
        Anything `read_partition` reads.

    Returns
    -------
    pandas.Series
        Cluster of each query, indexed by query (by position where no identifiers are known);
        missing where a query has no label.

    Raises
    ------
    InputError
        As `read_partition`.

    Examples
    --------
    >>> from bayes_ecc import ECC, hard_partition, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> hard_partition(fit).value_counts().sort_index().to_dict()
    {0: 34, 1: 26}
    """
    partition = read_partition(source)
    codes = partition.codes
    names = partition.clusters.take(np.maximum(codes, 0))
    index = pd.RangeIndex(len(partition)) if partition.queries is None else partition.queries
    labels = pd.Series(names, index=index, name="cluster")
    return labels if (codes >= 0).all() else labels.where(codes >= 0)


# -------------------------------------------------------------------- used by all measures


def read_pair(
    first: PartitionLike, second: PartitionLike, *, soft: bool = True
) -> tuple[Partition, Partition]:
    """Read two partitions of the same queries, in the same order.

    Queries that only one of them holds, or leaves without a label, are left out. One may hold more
    than the other, as labels of a whole data set do; where each holds some that the other lacks,
    that is said.

    Raises
    ------
    InputError
        If they have no query in common, or differ in length where identifiers are not known.

    Warns
    -----
    DataWarning
        If each holds queries that the other lacks.
    """
    one, other = read_partition(first), read_partition(second)
    if one.queries is None or other.queries is None:
        if len(one) != len(other):
            raise InputError(
                f"The partitions are of {len(one)} and {len(other)} queries; without identifiers "
                "both must be of the same queries in the same order. Give Series or DataFrames "
                "indexed by query id."
            )
        known = other.queries if one.queries is None else one.queries
        one = Partition(one.shares, known, one.clusters)
        other = Partition(other.shares, known, other.clusters)
    elif not one.queries.equals(other.queries):
        place = other.queries.get_indexer(one.queries)
        shared = int((place >= 0).sum())
        if not shared:
            raise InputError(
                f"The partitions have no query in common (one holds {one.queries[0]!r}, the other "
                f"{other.queries[0]!r}, say); index both by the same query ids."
            )
        if shared < min(len(one), len(other)):
            warnings.warn(
                f"The partitions share {shared} queries, of {len(one)} and {len(other)}; others "
                "are left out.",
                DataWarning,
                stacklevel=2,
                skip_file_prefixes=(_PACKAGE,),
            )
        one, other = one.take(np.flatnonzero(place >= 0)), other.take(place[place >= 0])
    both = np.flatnonzero(one.labelled & other.labelled)
    if not len(both):
        raise InputError("No query has a label in both partitions; give labels for some.")
    if len(both) < len(one):
        one, other = one.take(both), other.take(both)
    return (one, other) if soft else (one.hard(), other.hard())


def shares_of(comparisons: Comparisons, partition: Partition) -> FloatArray:
    """Give the memberships of the queries of comparisons, zero for those not in the partition.

    Returns
    -------
    ndarray, shape (n_queries, n_clusters)

    Raises
    ------
    InputError
        If no query of the comparisons is in the partition.

    Warns
    -----
    DataWarning
        If some are not.
    """
    if partition.queries is None:
        if len(partition) != comparisons.n_queries:
            raise InputError(
                f"The partition is of {len(partition)} queries, the comparisons of "
                f"{comparisons.n_queries}; row i must belong to comparisons.queries[i]. A Series "
                "or DataFrame indexed by query id is aligned by its index."
            )
        return partition.shares
    if partition.queries.equals(comparisons.queries):
        return partition.shares
    place = partition.queries.get_indexer(comparisons.queries)
    if (place < 0).all():
        raise InputError(
            f"No query of the comparisons is in the partition (one holds "
            f"{comparisons.queries[0]!r}, the other {partition.queries[0]!r}, say); index the "
            "partition by query id."
        )
    if (place < 0).any():
        warnings.warn(
            f"{int((place < 0).sum())} of {len(place)} queries of the comparisons are not in the "
            "partition; their comparisons do not count.",
            DataWarning,
            stacklevel=2,
            skip_file_prefixes=(_PACKAGE,),
        )
    return np.where(place[:, None] >= 0, partition.shares[place], 0.0)


# -------------------------------------------------------------------- reading


def _of_posterior(posterior: xr.DataTree) -> Partition:
    """Read the responsibilities of training queries."""
    return _of_data_array(fitted_responsibilities(posterior))


def _of_labels(labels: pd.Series, queries: pd.Index | None) -> Partition:
    """Read one label a query."""
    if not len(labels):
        raise InputError("The partition holds no query; give one label a query.")
    missing = labels.isna().to_numpy()
    try:
        names = pd.Index(labels[~missing].unique())
        codes = names.get_indexer(pd.Index(labels))
    except TypeError:
        raise InputError(
            f"The partition has dtype {labels.dtype} and labels such as {labels.iloc[0]!r}; a "
            "label is text or a number."
        ) from None
    if missing.all():
        raise InputError("All labels of the partition are missing; use another column.")
    if missing.any():
        warnings.warn(
            f"{int(missing.sum())} of {len(labels)} queries have no label and belong to no "
            "cluster.",
            DataWarning,
            stacklevel=2,
            skip_file_prefixes=(_PACKAGE,),
        )
    try:
        order = np.argsort(names.to_numpy(), kind="stable")
    except TypeError:  # text beside numbers: as they came
        order = np.arange(len(names))
    rank = np.empty(len(names), dtype=np.intp)
    rank[order] = np.arange(len(names))
    _check_size(len(labels), len(names))
    return Partition(
        one_hot(np.where(missing, -1, rank[codes]), len(names)),
        queries,
        names[order].rename("cluster"),
    )


def _of_shares(values: Any, queries: pd.Index | None, clusters: pd.Index) -> Partition:
    """Read responsibilities (n_queries, n_clusters)."""
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"The partition holds {values.dtype} in two dimensions; responsibilities are numbers, "
            "and labels have one dimension."
        )
    shares = np.asarray(values, dtype=float)
    if not shares.size:
        raise InputError(f"The partition has shape {shares.shape}; give queries and clusters.")
    _check_size(*shares.shape)
    total = shares.sum(axis=1)
    bad = ~((shares >= -_ROUNDING).all(axis=1) & (np.abs(total - 1) < _ROUNDING))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"Responsibilities, row {row}: found {shares[row].tolist()}, which sum to "
            f"{total[row]:.4g}; shares are 0 or more and sum to 1. Give labels as one dimension."
        )
    shares = np.maximum(shares, 0)
    shares /= shares.sum(axis=1, keepdims=True)
    return Partition(shares, queries, clusters.rename("cluster"))


def _of_data_array(source: xr.DataArray) -> Partition:
    """Read labels, or responsibilities with a dimension `query` (else the first)."""
    if source.ndim not in (1, 2):
        raise InputError(
            f"The partition has dimensions {', '.join(map(str, source.dims))}; give query, or "
            "query and cluster. Select or average others away first."
        )
    query = "query" if "query" in source.dims else source.dims[0]
    ordered = source.transpose(query, ...)
    queries = ordered.indexes.get(query)
    queries = None if queries is None else _identifiers(queries)
    if source.ndim == 1:
        return _of_labels(pd.Series(ordered.values), queries)
    name = ordered.dims[1]
    clusters = ordered.indexes.get(name)
    if clusters is None:
        clusters = pd.RangeIndex(ordered.sizes[name])
    return _of_shares(ordered.values, queries, clusters)


def _identifiers(index: pd.Index) -> pd.Index:
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise InputError(f"The partition holds query {twice!r} more than once; give it once.")
    return index.rename("query")


def _check_size(n_queries: int, n_clusters: int) -> None:
    if n_queries * n_clusters > _CELLS:
        raise InputError(
            f"A partition of {n_queries} queries into {n_clusters} clusters is too large to "
            "compare; labels are names of groups, not of single queries."
        )
