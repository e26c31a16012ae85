"""Formulas of structure measures on plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

EQUAL = 1e-8
"""Strengths closer than this, a fit's rounding, are tied."""


def one_hot(codes: IntArray, n_clusters: int) -> FloatArray:
    """Give memberships (n_queries, n_clusters) of codes (n_queries,); -1 belongs nowhere."""
    return (codes[:, None] == np.arange(n_clusters)).astype(float)


def self_pairs(shares: FloatArray) -> FloatArray:
    """Chance that two draws of one query's cluster agree, (n_queries,)."""
    return np.einsum("qk,qk->q", shares, shares)


def adjusted_rand(joint: FloatArray, first_self: FloatArray, second_self: FloatArray) -> float:
    """Compute the adjusted Rand index of expected pair counts.

    The sum over ordered pairs of queries, a query with itself included, of P(together in both) is
    the sum of the squares of `joint`; what a query adds with itself is taken off.

    Parameters
    ----------
    joint : ndarray, shape (n_first, n_second)
        Sum over queries of the products of memberships.
    first_self, second_self : ndarray, shape (n_queries,)
        From `self_pairs`.
    """
    n = len(first_self)
    together = float((joint**2).sum() - (first_self * second_self).sum()) / 2
    in_first = float((joint.sum(axis=1) ** 2).sum() - first_self.sum()) / 2
    in_second = float((joint.sum(axis=0) ** 2).sum() - second_self.sum()) / 2
    return chance_corrected(together, in_first, in_second, n * (n - 1) / 2)


def chance_corrected(together: float, in_first: float, in_second: float, pairs: float) -> float:
    """Compute the adjusted Rand index from counts of pairs; 1 if both partitions are trivial."""
    expected = in_first * in_second / pairs if pairs else 0.0
    most = (in_first + in_second) / 2
    if most - expected <= 1e-12 * max(most, 1.0):
        return 1.0
    return float((together - expected) / (most - expected))


def normalized_mutual_information(joint: FloatArray) -> float:
    """Mutual information of a joint table over the mean of its marginal entropies."""
    table = joint / joint.sum()
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    of_rows, of_columns = -xlogy(rows, rows).sum(), -xlogy(columns, columns).sum()
    mean = (of_rows + of_columns) / 2
    if mean <= 1e-15:  # one cluster each
        return 1.0
    shared = of_rows + of_columns + xlogy(table, table).sum()
    return float(min(max(shared / mean, 0.0), 1.0))


def kendall_tau(profiles: FloatArray) -> FloatArray:
    """Kendall's tau-b between every two profiles of a set.

    With s the sign of every difference of two models' strengths, tau-b is s.s' / (|s| |s'|).
    Strengths within `EQUAL` of each other are tied.

    Parameters
    ----------
    profiles : ndarray, shape (..., n_profiles, n_models)

    Returns
    -------
    ndarray, shape (..., n_profiles, n_profiles)
        NaN for a profile whose strengths are all tied.
    """
    low, high = np.triu_indices(profiles.shape[-1], k=1)
    difference = profiles[..., high] - profiles[..., low]
    sign = (difference > EQUAL).astype(np.float32) - (difference < -EQUAL)
    length = np.sqrt(np.einsum("...p,...p->...", sign, sign, dtype=float))
    scale = length[..., :, None] * length[..., None, :]
    agreement = np.matmul(sign, np.swapaxes(sign, -1, -2)).astype(float)  # whole numbers
    return np.divide(agreement, scale, out=np.full(scale.shape, np.nan), where=scale > 0)


def pair_values(square: FloatArray) -> FloatArray:
    """Give the values (..., n_pairs) above the diagonal of matrices (..., n, n)."""
    low, high = np.triu_indices(square.shape[-1], k=1)
    return square[..., low, high]
