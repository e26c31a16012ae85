"""The loss of predictions that leave room for ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.checks import check_not_negative
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.metrics import ROUNDING, Average, bt_loss

type FloatArray = NDArray[np.floating[Any]]


def three_way_loss(
    probabilities: ArrayLike, comparisons: Comparisons, *, average: Average = "comparison"
) -> float:
    """Mean negative log probability of what happened: first won, tie, or second won; in nats.

    Unlike `bt_loss` it rewards knowing when models tie, and a tie costs nothing where it was
    certain. The two losses are not comparable with each other.

    Parameters
    ----------
    probabilities : array-like of float, shape (n_comparisons, 3)
        Chances of first, tie and second, as `predict_outcome_probabilities` gives them.
    comparisons : Comparisons
        What happened; every outcome is 0, 0.5 or 1.
    average : {"comparison", "query"}
        As in `bt_loss`.

    Returns
    -------
    float
        Infinite if something happened that had probability 0.

    Raises
    ------
    InputError
        If there are no comparisons, an outcome is soft, or the probabilities do not fit them or do
        not sum to 1.

    Examples
    --------
    >>> from bayes_ecc import Comparisons, three_way_loss
    >>> data = Comparisons.from_arrays(
    ...     [0, 1], [0, 0], [1, 1], [1.0, 0.5], queries=["q1", "q2"], models=["a", "b"]
    ... )
    >>> round(three_way_loss([[0.2, 0.3, 0.5], [0.25, 0.5, 0.25]], data), 4)
    0.6931
    """
    if not isinstance(comparisons, Comparisons):
        raise InputError(f"comparisons must be a Comparisons, not {type(comparisons).__name__}.")
    try:
        p = np.asarray(probabilities, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"probabilities must be numbers: {error}.") from None
    if p.shape != (len(comparisons), 3):
        raise InputError(
            f"probabilities has shape {p.shape}; give chances of first, tie and second for each of "
            f"the {len(comparisons)} comparisons."
        )
    within = ((p >= -ROUNDING) & (p <= 1 + ROUNDING)).all(axis=1)
    bad = ~(within & (np.abs(p.sum(axis=1) - 1) <= ROUNDING))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"probabilities, row {row}: found {p[row].tolist()}; the three lie between 0 and 1 and "
            "sum to 1."
        )
    place = 2 * comparisons.outcome
    soft = ~np.isin(place, (0.0, 1.0, 2.0))
    if soft.any():
        row = int(np.argmax(soft))
        raise InputError(
            f"outcome, row {row}: found {float(comparisons.outcome[row])!r}; a three-way loss "
            "needs outcomes of 0, 0.5 or 1. Keep those with Comparisons.rows, or use bt_loss."
        )
    happened = p[np.arange(len(p)), place.astype(int)]
    # The loss of something of probability p that did happen.
    certain = Comparisons.from_arrays(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        np.ones(len(comparisons)),
        weight=comparisons.weight,
        queries=comparisons.queries,
        models=comparisons.models,
    )
    return bt_loss(happened, certain, average=average)


def with_tie_rate(probability: ArrayLike, tie_rate: float) -> FloatArray:
    """Spread win probabilities over first, tie and second, every pair tying equally often.

    The baseline for models of ties: half-wins and the tie rate of the training comparisons.

    Parameters
    ----------
    probability : array-like of float, shape (n_comparisons,)
        P(second beats first) of each comparison.
    tie_rate : float
        Chance of a tie, from 0 to 1.

    Returns
    -------
    ndarray, shape (n_comparisons, 3)
        ``(1 - tie_rate) (1 - p)``, ``tie_rate``, ``(1 - tie_rate) p``.

    Raises
    ------
    InputError
        If the tie rate or a probability is outside 0 to 1.

    Examples
    --------
    >>> from bayes_ecc import with_tie_rate
    >>> with_tie_rate([0.75], tie_rate=0.2).round(2).tolist()
    [[0.2, 0.2, 0.6]]
    """
    if check_not_negative("tie_rate", tie_rate) > 1:
        raise InputError(f"tie_rate={tie_rate!r}: give a share from 0 to 1.")
    try:
        p = np.asarray(probability, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"probability must be numbers: {error}.") from None
    if p.ndim != 1 or not ((p >= -ROUNDING) & (p <= 1 + ROUNDING)).all():
        raise InputError("probability must be one row of numbers from 0 to 1.")
    p = np.clip(p, 0.0, 1.0)
    decided = 1 - tie_rate
    return np.column_stack([decided * (1 - p), np.full(len(p), float(tie_rate)), decided * p])
