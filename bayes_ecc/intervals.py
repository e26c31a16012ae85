"""Intervals over draws, in the kind and probability that ArviZ is set to.

Bounds are those of `arviz_stats.eti` and `arviz_stats.hdi`, computed for many rows at once. Both
take draws that count the same; draws of chains with unequal weights are turned into such by
systematic resampling first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import arviz_base
import numpy as np
from numpy.typing import NDArray

from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_ROUNDING = 1e-9  # sums of shares of draws end this far from what they should be, at most


class Interval(NamedTuple):
    """Probability of an interval, and its kind: "eti" (equal tails) or "hdi" (highest density)."""

    prob: float
    kind: str


def choose_interval(prob: float | None, kind: str | None) -> Interval:
    """Fill in ArviZ's current settings for what is None.

    Raises
    ------
    InputError
        If the probability is not between 0 and 1 or the kind is unknown.
    """
    prob = arviz_base.rcParams["stats.ci_prob"] if prob is None else prob
    kind = arviz_base.rcParams["stats.ci_kind"] if kind is None else kind
    if kind not in ("eti", "hdi"):
        raise InputError(f"kind={kind!r}: allowed are 'eti' and 'hdi'.")
    if isinstance(prob, bool) or not isinstance(prob, int | float | np.number) or not 0 < prob < 1:
        raise InputError(f"prob={prob!r}: give a probability between 0 and 1.")
    return Interval(float(prob), str(kind))


def equally_weighted(share: FloatArray) -> IntArray:
    """Choose draws that represent weighted ones, each counting the same.

    Systematic resampling [1]_ without its random offset: of n draws, the ones under the cumulative
    shares at (j + 1/2) / n. A draw is taken n times its share, rounded up or down, so cumulative
    probabilities are kept to within 1 / n; with equal shares every draw is taken once.

    Parameters
    ----------
    share : ndarray, shape (n_draws,)
        Positive; sums to 1.

    Returns
    -------
    ndarray of int, shape (n_draws,)
        Positions, ascending.

    References
    ----------
    .. [1] Kitagawa, G. (1996). Monte Carlo filter and smoother for non-Gaussian nonlinear state
       space models. Journal of Computational and Graphical Statistics 5(1), 1-25.
    """
    n = len(share)
    return np.searchsorted(np.cumsum(share / share.sum()), (np.arange(n) + 0.5) / n)


def sorted_interval(values: FloatArray, interval: Interval) -> tuple[FloatArray, FloatArray]:
    """Give the bounds of values sorted along the last axis, as ArviZ computes them.

    Equal tails interpolate linearly between order statistics; highest density takes the shortest
    stretch of floor(n prob) + 1 neighbours, the lowest of equally short ones.

    Parameters
    ----------
    values : ndarray, shape (..., n)
        Ascending along the last axis.
    interval : Interval

    Returns
    -------
    lower, upper : ndarray, shape (...)
    """
    n = values.shape[-1]
    if interval.kind == "eti":
        tail = (1 - interval.prob) / 2
        return _quantile(values, tail), _quantile(values, 1 - tail)
    inside = min(int(np.floor(interval.prob * n)), n - 1)
    width = np.subtract(values[..., inside:], values[..., : n - inside], dtype=float)
    start = width.argmin(axis=-1)[..., None]
    lower = np.take_along_axis(values, start, axis=-1)[..., 0]
    upper = np.take_along_axis(values, start + inside, axis=-1)[..., 0]
    return lower.astype(float), upper.astype(float)


def discrete_interval(probability: FloatArray, interval: Interval) -> tuple[IntArray, IntArray]:
    """Give the bounds of a distribution over positions 0, 1, 2, ...; they are positions.

    Equal tails take the smallest positions with cumulative probability (1 -+ prob) / 2 (the
    quantiles known as "inverted_cdf"); highest density the shortest stretch that holds more than
    `prob`, the lowest of equally short ones, as `arviz_stats.hdi` does on whole numbers.

    Parameters
    ----------
    probability : ndarray, shape (..., n)
        Sums to 1 along the last axis.
    interval : Interval

    Returns
    -------
    lower, upper : ndarray of int, shape (...)
    """
    cumulative = np.cumsum(probability, axis=-1)
    if interval.kind == "eti":
        tail = (1 - interval.prob) / 2
        lower = (cumulative < tail - _ROUNDING).sum(axis=-1)
        return lower, (cumulative < 1 - tail - _ROUNDING).sum(axis=-1)
    n = probability.shape[-1]
    before = np.concatenate([np.zeros_like(cumulative[..., :1]), cumulative], axis=-1)
    lower = np.zeros(probability.shape[:-1], dtype=int)
    upper = np.full(probability.shape[:-1], n - 1)
    open_ = np.ones(probability.shape[:-1], dtype=bool)
    for width in range(1, n + 1):
        enough = before[..., width:] - before[..., :-width] > interval.prob + _ROUNDING
        found = open_ & enough.any(axis=-1)
        start = enough.argmax(axis=-1)
        lower = np.where(found, start, lower)
        upper = np.where(found, start + width - 1, upper)
        open_ &= ~found
        if not open_.any():
            break
    return lower, upper


def _quantile(values: FloatArray, q: float) -> FloatArray:
    """Interpolate a quantile of sorted values (..., n): (...)."""
    position = (values.shape[-1] - 1) * q
    below = int(np.floor(position))
    above = min(below + 1, values.shape[-1] - 1)
    low = values[..., below].astype(float)
    return low + (position - below) * (values[..., above].astype(float) - low)
