"""How far two partitions of the same queries agree, and where they overlap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.checks import check_flag
from bayes_ecc.errors import InputError
from bayes_ecc.structure.indices import (
    adjusted_rand,
    normalized_mutual_information,
    self_pairs,
)
from bayes_ecc.structure.partitions import PartitionLike, read_pair

type FloatArray = NDArray[np.floating[Any]]


class PartitionAgreement(NamedTuple):
    """How far two partitions agree.

    Attributes
    ----------
    adjusted_rand : float
        1 if equal, 0 on average if unrelated.
    normalized_mutual_information : float
        1 if equal, 0 if unrelated and the queries are many.
    queries : int
        How many queries were compared.

    Examples
    --------
    >>> from bayes_ecc import partition_agreement
    >>> partition_agreement([0, 0, 1, 1], ["b", "b", "a", "a"]).adjusted_rand
    1.0
    """

    adjusted_rand: float
    normalized_mutual_information: float
    queries: int


def partition_agreement(
    first: PartitionLike, second: PartitionLike, *, soft: bool = False
) -> PartitionAgreement:
    r"""Compare two partitions by the adjusted Rand index and normalised mutual information.

    The adjusted Rand index [1]_ counts pairs of queries: with :math:`a` pairs together in both,
    :math:`b` and :math:`c` together in either, and :math:`n` pairs in all,

    .. math:: ARI = \frac{a - bc/n}{(b + c)/2 - bc/n}

    Mutual information [2]_ is that of a query's two clusters, over the mean of their entropies.
    Hard partitions give what scikit-learn's ``adjusted_rand_score`` and
    ``normalized_mutual_info_score`` give. Soft ones give the same formulas of expected counts, a
    query's cluster being drawn from its responsibilities, independently in both: a soft partition
    does not fully agree even with itself.

    Parameters
    ----------
    first, second
        Anything `read_partition` reads. Aligned by query where both have identifiers; one may hold
        more queries than the other, as labels of a whole data set do.
    soft : bool
        Compare responsibilities as they are; otherwise every query counts for its most responsible
        cluster.

    Returns
    -------
    PartitionAgreement

    Raises
    ------
    InputError
        If there is no partition in one of them, or they have no query in common.

    Warns
    -----
    DataWarning
        If each holds queries that the other lacks.

    References
    ----------
    .. [1] Hubert, L. and Arabie, P. (1985). Comparing partitions. Journal of Classification 2,
       193-218.
    .. [2] Strehl, A. and Ghosh, J. (2002). Cluster ensembles: a knowledge reuse framework for
       combining multiple partitions. Journal of Machine Learning Research 3, 583-617.

    Examples
    --------
    >>> from bayes_ecc import partition_agreement
    >>> partition_agreement([0, 0, 1, 1], [0, 0, 1, 2])
    PartitionAgreement(adjusted_rand=0.5714, normalized_mutual_information=0.8, queries=4)
    >>> certain, unsure = [[1, 0], [1, 0], [0, 1]], [[0.8, 0.2], [0.8, 0.2], [0.2, 0.8]]
    >>> partition_agreement(certain, unsure, soft=True).adjusted_rand
    0.333
    """
    one, other = read_pair(first, second, soft=check_flag("soft", soft))
    joint = one.shares.T @ other.shares
    ari = adjusted_rand(joint, self_pairs(one.shares), self_pairs(other.shares))
    return PartitionAgreement(ari, normalized_mutual_information(joint), len(one))


def compare_partitions(
    partitions: Mapping[str, PartitionLike], *, soft: bool = False
) -> pd.DataFrame:
    """Compare every two of several partitions.

    Parameters
    ----------
    partitions : mapping of str to partition
        Anything `read_partition` reads, by name.
    soft : bool
        As in `partition_agreement`.

    Returns
    -------
    pandas.DataFrame
        One row a pair: `first`, `second`, `adjusted_rand`, `normalized_mutual_information`,
        `queries`.

    Raises
    ------
    InputError
        As `partition_agreement`; also if there are fewer than two.

    Examples
    --------
    >>> from bayes_ecc import ECC, compare_partitions, simulate
    >>> data = simulate(n_queries=200, rng=0)
    >>> fit = ECC(n_clusters=4, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> table = compare_partitions({"ecc": fit, "topic": data.topics, "truth": data.labels})
    >>> table[["first", "second", "queries"]].values.tolist()
    [['ecc', 'topic', 200], ['ecc', 'truth', 200], ['topic', 'truth', 200]]
    """
    if not isinstance(partitions, Mapping) or len(partitions) < 2:
        raise InputError("partitions: give two or more by name, as {'a': ..., 'b': ...}.")
    rows = [
        {"first": a, "second": b, **partition_agreement(one, other, soft=soft)._asdict()}
        for (a, one), (b, other) in itertools.combinations(partitions.items(), 2)
    ]
    return pd.DataFrame(rows)


def overlap_matrix(
    first: PartitionLike, second: PartitionLike, *, soft: bool = False
) -> xr.Dataset:
    """Count the queries that each cluster of one partition shares with each of another.

    Parameters
    ----------
    first, second
        Anything `read_partition` reads. Aligned by query where both have identifiers.
    soft : bool
        Let a query count in every pair of clusters by the product of its responsibilities;
        otherwise it counts once, for its most responsible clusters.

    Returns
    -------
    xarray.Dataset, dims (first, second)
        `queries`; `share_of_first` and `share_of_second`, the same over the size of either
        cluster (missing for an empty one); `jaccard`, over the queries in either.

    Raises
    ------
    InputError
        As `partition_agreement`.

    Examples
    --------
    >>> from bayes_ecc import overlap_matrix
    >>> table = overlap_matrix(["a", "a", "b", "b"], ["x", "x", "x", "y"])
    >>> table["queries"].values.tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    >>> table["share_of_first"].sel(first="b").values.tolist()
    [0.5, 0.5]
    """
    one, other = read_pair(first, second, soft=check_flag("soft", soft))
    joint = one.shares.T @ other.shares
    rows, columns = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    values = {
        "queries": joint,
        "share_of_first": _ratio(joint, rows),
        "share_of_second": _ratio(joint, columns),
        "jaccard": _ratio(joint, rows + columns - joint),
    }
    coords = {"first": one.clusters.to_numpy(), "second": other.clusters.to_numpy()}
    return xr.Dataset({name: (("first", "second"), v) for name, v in values.items()}, coords)


def _ratio(values: FloatArray, total: FloatArray) -> FloatArray:
    missing = np.full(values.shape, np.nan)
    return np.divide(values, total, out=missing, where=np.broadcast_to(total, values.shape) > 0)
