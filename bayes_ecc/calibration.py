"""Calibration of win probabilities: predicted wins held against observed ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.metrics import check_probabilities


def reliability_bins(
    probability: ArrayLike, comparisons: Comparisons, *, n_bins: int = 15
) -> pd.DataFrame:
    """Hold predicted against observed wins in equal bins of the predicted probability.

    The probability binned is that of `second` beating `first`, once for each comparison. Where
    the order of a pair means nothing (``comparisons.ordered`` is False) the bins are those of the
    order as drawn; turning a pair round would move it to the mirrored bin.

    Parameters
    ----------
    probability : array-like of float, shape (n_comparisons,)
        P(second beats first) of each comparison, in [0, 1].
    comparisons : Comparisons
        What happened; ties and soft outcomes count as the share of the win they are.
    n_bins : int
        Number of bins of equal width.

    Returns
    -------
    pandas.DataFrame
        One row a bin: `low`, `high` (a bin holds its lower edge, the last one both), `weight`
        (comparisons in it), `predicted` and `observed` (means; NaN in an empty bin).

    Raises
    ------
    InputError
        As `bt_loss`; also if `n_bins` is not a positive integer.

    Examples
    --------
    >>> from bayes_ecc import Comparisons, reliability_bins
    >>> data = Comparisons.from_arrays(
    ...     [0, 0, 0], [0, 0, 0], [1, 1, 1], [1.0, 0.0, 0.5], queries=["q"], models=["a", "b"]
    ... )
    >>> reliability_bins([0.8, 0.6, 0.2], data, n_bins=2)
       low  high  weight  predicted  observed
    0  0.0   0.5     1.0        0.2       0.5
    1  0.5   1.0     2.0        0.7       0.5
    """
    p = check_probabilities(probability, comparisons, "probability")
    check_count("n_bins", n_bins, least=1)
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    bins = np.minimum(np.searchsorted(edges, p, side="right") - 1, n_bins - 1)
    weight = np.bincount(bins, comparisons.weight, n_bins)
    filled = np.where(weight > 0, weight, np.nan)
    return pd.DataFrame(
        {
            "low": edges[:-1],
            "high": edges[1:],
            "weight": weight,
            "predicted": np.bincount(bins, comparisons.weight * p, n_bins) / filled,
            "observed": np.bincount(bins, comparisons.weight * comparisons.outcome, n_bins)
            / filled,
        }
    )


def expected_calibration_error(
    probability: ArrayLike, comparisons: Comparisons, *, n_bins: int = 15
) -> float:
    """Mean distance between predicted and observed wins over equal bins of the prediction.

    The sum over bins of (share of the comparisons in it) ``|mean predicted - mean observed|``, the
    bins being those of `reliability_bins`. For unordered comparisons the figure belongs to the
    order of the pairs as drawn.

    Parameters
    ----------
    probability : array-like of float, shape (n_comparisons,)
        P(second beats first) of each comparison, in [0, 1].
    comparisons : Comparisons
        What happened.
    n_bins : int
        Number of bins of equal width.

    Returns
    -------
    float
        Between 0 (calibrated) and 1. Finite samples put it above 0 even for the truth.

    Raises
    ------
    InputError
        As `reliability_bins`.

    Examples
    --------
    >>> from bayes_ecc import Comparisons, expected_calibration_error
    >>> data = Comparisons.from_arrays(
    ...     [0, 0, 0, 0], [0] * 4, [1] * 4, [1.0, 1.0, 1.0, 0.0], queries=["q"], models=["a", "b"]
    ... )
    >>> round(expected_calibration_error([0.9, 0.9, 0.9, 0.9], data), 4)
    0.15
    """
    table = reliability_bins(probability, comparisons, n_bins=n_bins)
    gap = (table["predicted"] - table["observed"]).abs().fillna(0.0)
    return float((table["weight"] * gap).sum() / table["weight"].sum())
