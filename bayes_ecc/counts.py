"""Wins counted by query, winner and loser: the sufficient statistics of comparisons."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from bayes_ecc.ties import Ties

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]


class OutcomeCounts(NamedTuple):
    """Wins per query: all that a Bradley-Terry likelihood needs of comparisons.

    The log-likelihood of an outcome y between two models is y log p + (1 - y) log(1 - p), linear
    in y; a tie or a soft outcome is therefore a fraction of a win for either side. Where ties have
    a likelihood of their own (`bayes_ecc.ties`), a tie is a whole win each way and `tie_weight`
    counts it; soft outcomes remain fractions.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array, shape (n_queries, n_columns)
        Weight of the wins of `winner[c]` over `loser[c]` on each query.
    winner, loser : ndarray of int, shape (n_columns,)
        Model codes; only pairs with at least one win have a column.
    direction : ndarray of int, shape (n_columns,), or None
        1 where the winner was shown second, -1 where first; None where order is not looked at.
    tie_weight : ndarray of float, shape (n_queries,), or None
        Weight of the ties on each query; None where ties are half-wins.

    Examples
    --------
    >>> from bayes_ecc import Comparisons
    >>> data = Comparisons.from_arrays(
    ...     [0, 0], [0, 0], [1, 1], [1.0, 0.5], queries=["q"], models=["a", "b"]
    ... )
    >>> counts = data.outcome_counts()
    >>> counts.matrix.toarray().tolist(), counts.winner.tolist(), counts.loser.tolist()
    ([[0.5, 1.5]], [0, 1], [1, 0])
    """

    matrix: sparse.csr_array
    winner: IntArray
    loser: IntArray
    direction: IntArray | None = None
    tie_weight: FloatArray | None = None

    @property
    def has_margins(self) -> bool:
        """Whether margins are more than differences of strengths."""
        return self.direction is not None or self.tie_weight is not None

    def times(self, power: float, dtype: DTypeLike = np.float64) -> OutcomeCounts:
        """Give the same with all weights multiplied by a number."""
        ties = None if self.tie_weight is None else (power * self.tie_weight).astype(dtype)
        return self._replace(matrix=(power * self.matrix).astype(dtype), tie_weight=ties)


class Rows(NamedTuple):
    """Comparisons as plain arrays, (n_comparisons,) each: codes, outcomes, weights."""

    query: IntArray
    first: IntArray
    second: IntArray
    outcome: FloatArray
    weight: FloatArray


def count_wins(rows: Rows, n_queries: int, n_models: int) -> OutcomeCounts:
    """Count wins, a tie or a soft outcome as a fraction of a win for either side."""
    second_wins, first_wins = rows.outcome > 0, rows.outcome < 1
    winner = np.concatenate([rows.second[second_wins], rows.first[first_wins]])
    loser = np.concatenate([rows.first[second_wins], rows.second[first_wins]])
    value = np.concatenate(
        [
            (rows.weight * rows.outcome)[second_wins],
            (rows.weight * (1 - rows.outcome))[first_wins],
        ]
    )
    query = np.concatenate([rows.query[second_wins], rows.query[first_wins]])
    keys, column = np.unique(winner * n_models + loser, return_inverse=True)
    matrix = sparse.csr_array(
        sparse.coo_array((value, (query, column)), shape=(n_queries, len(keys)))
    )
    return OutcomeCounts(matrix, keys // n_models, keys % n_models)


def count_margins(
    rows: Rows, n_queries: int, n_models: int, *, ties: Ties, order_effect: bool
) -> OutcomeCounts:
    """Count wins with directions, ties as whole wins each way, or both."""
    to_second, to_first = rows.outcome, 1 - rows.outcome
    tie_weight = None
    if ties == "rao_kupper":
        tied = rows.outcome == 0.5
        to_second, to_first = np.where(tied, 1.0, to_second), np.where(tied, 1.0, to_first)
        tie_weight = np.bincount(rows.query, rows.weight * tied, n_queries)
    winner = np.concatenate([rows.second, rows.first])
    loser = np.concatenate([rows.first, rows.second])
    shown_second = np.repeat([1, 0], len(rows.query)) if order_effect else np.zeros_like(winner)
    value = np.concatenate([rows.weight * to_second, rows.weight * to_first])
    used = np.concatenate([to_second > 0, to_first > 0])
    query = np.concatenate([rows.query, rows.query])[used]
    key = ((winner * n_models + loser) * 2 + shown_second)[used]
    keys, column = np.unique(key, return_inverse=True)
    matrix = sparse.csr_array(
        sparse.coo_array((value[used], (query, column)), shape=(n_queries, len(keys)))
    )
    pairs, direction = keys // 2, 2 * (keys % 2) - 1
    return OutcomeCounts(
        matrix,
        pairs // n_models,
        pairs % n_models,
        direction if order_effect else None,
        tie_weight,
    )
