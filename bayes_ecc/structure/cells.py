"""Cells of two partitions: where a cluster of one splits or merges in the other, and on what."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.checks import check_count, check_flag
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import InputError
from bayes_ecc.structure.partitions import Partition, PartitionLike, read_pair, read_partition

type FloatArray = NDArray[np.floating[Any]]


def changed_cells(
    first: PartitionLike,
    second: PartitionLike,
    *,
    min_share: float = 0.2,
    min_queries: float = 5,
    soft: bool = False,
) -> pd.DataFrame:
    """Find the clusters of one partition that another splits, and those it merges.

    A cell holds the queries that are in one cluster of the first partition and in one of the
    second. A cluster of the first is split if two or more of its cells are large; a cluster of the
    second is merged if two or more of its cells are.

    Parameters
    ----------
    first, second
        Anything `read_partition` reads. Aligned by query where both have identifiers.
    min_share : float
        A large cell holds at least this share of the cluster that is split or merged.
    min_queries : float
        A large cell holds at least so many queries.
    soft : bool
        Let a query count in every cell by the product of its responsibilities; otherwise it counts
        in the cell of its most responsible clusters.

    Returns
    -------
    pandas.DataFrame
        One row a large cell: `change` ("split" or "merge"), `cluster` (the one of the first that
        is split, or of the second that is merged), `first` and `second` (the cell), `queries`, and
        `share` of the cluster. Clusters with the most queries first, within each its largest cell
        first; splits before merges. Empty if nothing changes.

    Raises
    ------
    InputError
        If the partitions do not fit each other, or a setting is out of range.

    Examples
    --------
    >>> from bayes_ecc import changed_cells
    >>> tasks = ["maths"] * 4 + ["code"] * 3
    >>> found = changed_cells(tasks, ["a", "a", "b", "b", "b", "b", "b"], min_queries=2)
    >>> print(found.to_string(index=False))
    change cluster first second  queries  share
     split   maths maths      a      2.0    0.5
     split   maths maths      b      2.0    0.5
     merge       b  code      b      3.0    0.6
     merge       b maths      b      2.0    0.4
    """
    share = _check_share(min_share)
    least = _check_size(min_queries)
    one, other = read_pair(first, second, soft=check_flag("soft", soft))
    joint = one.shares.T @ other.shares
    rows: list[dict[str, Any]] = []
    for change, table in (("split", joint), ("merge", joint.T)):
        size = table.sum(axis=1)
        wholes = one.clusters if change == "split" else other.clusters
        parts = other.clusters if change == "split" else one.clusters
        for k in np.argsort(-size, kind="stable"):
            enough = np.maximum(least, share * size[k] * (1 - 1e-9))
            large = np.flatnonzero((table[k] >= enough) & (table[k] > 0))
            if len(large) < 2:
                continue
            for j in large[np.argsort(-table[k, large], kind="stable")]:
                cell = (wholes[k], parts[j]) if change == "split" else (parts[j], wholes[k])
                rows.append(
                    {
                        "change": change,
                        "cluster": wholes[k],
                        "first": cell[0],
                        "second": cell[1],
                        "queries": table[k, j],
                        "share": table[k, j] / size[k],
                    }
                )
    columns = ["change", "cluster", "first", "second", "queries", "share"]
    return pd.DataFrame(rows, columns=columns)


def typical_queries(
    first: PartitionLike,
    second: PartitionLike | None = None,
    *,
    embeddings: ArrayLike | pd.DataFrame | None = None,
    n: int = 5,
) -> pd.DataFrame:
    """Choose the most typical queries of each cluster, or of each cell of two partitions.

    A query's typicality is its membership (its responsibility; in a cell the product of both)
    times, where embeddings are given, the cosine of its embedding with the mean embedding of the
    cluster or cell, weighted by membership (0 if negative). Queries count where they are most
    responsible for.

    Parameters
    ----------
    first
        Anything `read_partition` reads.
    second : optional
        A second partition of the same queries, for cells.
    embeddings : array-like or DataFrame, shape (n_queries, embedding_dim), optional
        Row i belongs to query i of the partition (of both, if there are two and neither leaves
        queries out); a DataFrame is aligned by its index. Without them the queries of a hard
        partition are all alike and come in their order.
    n : int
        Queries a cluster or cell; fewer where it has no more.

    Returns
    -------
    pandas.DataFrame
        One row a query: `cluster`, or `first` and `second`; `place` from 1; `query` (its position
        where no identifiers are known), `membership` and `typicality`.

    Raises
    ------
    InputError
        If partitions or embeddings do not fit each other.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, typical_queries
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> table = typical_queries(fit, embeddings=data.embeddings, n=2)
    >>> table[["cluster", "place"]].values.tolist()
    [[0, 1], [0, 2], [1, 1], [1, 2]]
    """
    check_count("n", n)
    if second is None:
        read = read_partition(first)
        names, codes = {"cluster": read.clusters}, [read.codes]
        membership = read.shares.max(axis=1)
    else:
        one, read = read_pair(first, second)
        names, codes = {"first": one.clusters, "second": read.clusters}, [one.codes, read.codes]
        membership = one.shares.max(axis=1) * read.shares.max(axis=1)
    unit = None if embeddings is None else _embeddings_of(read, embeddings)
    n_last = len(read.clusters)
    cell = codes[0] if second is None else codes[0] * n_last + codes[1]
    cell = np.where(read.labelled, cell, -1)
    queries = pd.RangeIndex(len(read)) if read.queries is None else read.queries
    found = []
    for number in np.unique(cell[cell >= 0]):
        members = np.flatnonzero(cell == number)
        typicality = membership[members]
        if unit is not None:
            mean = typicality @ unit[members]
            length = np.linalg.norm(mean)
            cosine = unit[members] @ (mean / length) if length > 0 else np.ones(len(members))
            typicality = typicality * np.maximum(cosine, 0)
        best = np.argsort(-typicality.round(12), kind="stable")[:n]
        place = (number,) if second is None else divmod(number, n_last)
        table: dict[str, Any] = {
            name: index[code] for (name, index), code in zip(names.items(), place, strict=True)
        }
        table |= {
            "place": np.arange(1, len(best) + 1),
            "query": queries[members[best]],
            "membership": membership[members[best]],
            "typicality": typicality[best],
        }
        found.append(pd.DataFrame(table))
    return pd.concat(found, ignore_index=True)


def _embeddings_of(partition: Partition, embeddings: ArrayLike | pd.DataFrame) -> FloatArray:
    """Give unit embeddings of the queries of a partition."""
    if partition.queries is not None:
        return unit_embeddings(embeddings, queries=partition.queries)
    return unit_embeddings(embeddings, len(partition))


def _check_share(value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise InputError(f"min_share={value!r}: give a share between 0 and 1.")
    return float(value)


def _check_size(value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not value >= 0:
        raise InputError(f"min_queries={value!r}: give a number, 0 or more.")
    return float(value)
