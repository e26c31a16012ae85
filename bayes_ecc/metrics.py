"""How good win probabilities are: loss, and gain over a baseline with its interval.

All functions take `probability`, one P(second beats first) for each row of a `Comparisons`, and do
not care who made it. Weights count as so many comparisons throughout.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import arviz_base
import numpy as np
from arviz_stats.visualization import eti, hdi
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlog1py, xlogy

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.random import RandomState, as_generator

__all__ = [
    "Average",
    "GainInterval",
    "bt_loss",
    "gain_difference_interval",
    "gain_interval",
    "ranking_quality_gain",
]

FloatArray = NDArray[np.floating[Any]]
type Average = Literal["comparison", "query"]

ROUNDING = 1e-6  # a float32 mixture of probabilities may end this far outside [0, 1]
_RESAMPLE_CELLS = 4_000_000  # resamples x queries held at once


class GainInterval(NamedTuple):
    """What the bootstrap over queries says of a gain, or of a difference of two gains.

    Attributes
    ----------
    mean, low, high, sd : float
        Mean, interval bounds and standard deviation of the resampled values, in percentage
        points. The gain itself is `ranking_quality_gain`; `mean` differs from it by the
        bootstrap's small bias.
    prob, kind : float and str
        Probability of the interval; "eti" (equal tails) or "hdi" (highest density).

    Examples
    --------
    >>> from bayes_ecc.metrics import GainInterval
    >>> GainInterval(mean=31.4, low=29.1, high=33.8, sd=1.4, prob=0.89, kind="eti").high
    33.8
    """

    mean: float
    low: float
    high: float
    sd: float
    prob: float
    kind: str


# -------------------------------------------------------------------- loss and gain


def bt_loss(
    probability: ArrayLike, comparisons: Comparisons, *, average: Average = "comparison"
) -> float:
    """Mean negative log-likelihood of the outcomes under given win probabilities, in nats.

    A comparison with outcome y costs -y log(p) - (1 - y) log(1 - p), so a tie costs at least
    log 2.

    Parameters
    ----------
    probability : array-like of float, shape (n_comparisons,)
        P(second beats first) of each comparison, in [0, 1].
    comparisons : Comparisons
        What happened.
    average : {"comparison", "query"}
        Mean over comparisons, or over queries of each query's own mean. Queries without
        comparisons do not count.

    Returns
    -------
    float
        Infinite if a probability of exactly 0 or 1 is contradicted by its outcome: nothing is
        clipped, since any floor on the probabilities would decide the result.

    Raises
    ------
    InputError
        If there are no comparisons, or `probability` does not fit them, is missing somewhere or
        lies outside [0, 1] by more than rounding (1e-6).

    Examples
    --------
    >>> from bayes_ecc import Comparisons, bt_loss
    >>> data = Comparisons.from_arrays(
    ...     [0, 0, 1], [0, 0, 0], [1, 1, 1], [1.0, 1.0, 0.0],
    ...     queries=["q1", "q2"], models=["a", "b"],
    ... )
    >>> round(bt_loss([0.5, 0.5, 0.5], data), 4)
    0.6931
    >>> round(bt_loss([0.9, 0.9, 0.4], data), 4)
    0.2405
    >>> round(bt_loss([0.9, 0.9, 0.4], data, average="query"), 4)
    0.3081
    >>> bt_loss([0.9, 0.9, 1.0], data)
    inf
    """
    losses, weight = _query_losses(probability, comparisons, average, "probability")
    return float(losses.sum() / weight.sum())


def ranking_quality_gain(
    probability: ArrayLike,
    baseline: ArrayLike,
    comparisons: Comparisons,
    *,
    average: Average = "comparison",
) -> float:
    """Relative reduction of the loss against a baseline, in percent.

    The gain is 100 (loss_baseline - loss) / loss_baseline: 0 is as good as the baseline (one
    global Bradley-Terry model, as a rule), 100 is perfect, below 0 is worse.

    Parameters
    ----------
    probability, baseline : array-like of float, shape (n_comparisons,)
        P(second beats first) by the method and by the baseline.
    comparisons : Comparisons
        What happened.
    average : {"comparison", "query"}
        How losses are averaged, as in `bt_loss`.

    Returns
    -------
    float
        Minus infinity if the method's loss is infinite.

    Raises
    ------
    InputError
        As `bt_loss`; also if the baseline's loss is zero or infinite.

    Examples
    --------
    >>> from bayes_ecc import Comparisons, ranking_quality_gain
    >>> data = Comparisons.from_arrays(
    ...     [0, 1], [0, 0], [1, 1], [1.0, 0.0], queries=["q1", "q2"], models=["a", "b"]
    ... )
    >>> round(ranking_quality_gain([0.75, 0.25], [0.5, 0.5], data), 1)
    58.5
    >>> ranking_quality_gain([0.5, 0.5], [0.5, 0.5], data)
    0.0
    """
    own = _query_losses(probability, comparisons, average, "probability")[0].sum()
    base = _baseline_losses(baseline, comparisons, average).sum()
    return float(100.0 * (base - own) / base)


def gain_interval(
    probability: ArrayLike,
    baseline: ArrayLike,
    comparisons: Comparisons,
    *,
    average: Average = "comparison",
    prob: float | None = None,
    kind: Literal["eti", "hdi"] | None = None,
    n_resamples: int = 2000,
    rng: RandomState = None,
) -> GainInterval:
    """Bootstrap interval of a ranking quality gain, by resampling queries.

    Whole queries are drawn with replacement, method and baseline together, and the ratio is
    recomputed: comparisons on one query share its difficulty and are not independent. The
    interval speaks of these predictions on new queries; it holds the fits fixed.

    Parameters
    ----------
    probability, baseline : array-like of float, shape (n_comparisons,)
        P(second beats first) by the method and by the baseline.
    comparisons : Comparisons
        What happened; queries without comparisons are left aside.
    average : {"comparison", "query"}
        How losses are averaged, as in `bt_loss`.
    prob : float, optional
        Probability of the interval; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    kind : {"eti", "hdi"}, optional
        Equal tails or highest density; by default ArviZ's ``rcParams["stats.ci_kind"]``.
    n_resamples : int
        Number of bootstrap resamples.
    rng : int, numpy.random.Generator or None
        Randomness of the resampling; the same seed draws the same queries whatever the method.

    Returns
    -------
    GainInterval
        If the loss is infinite, mean and bounds are minus infinity and sd is NaN: where an
        outcome was ruled out that did happen, the expected gain is minus infinity for certain.

    Raises
    ------
    InputError
        As `ranking_quality_gain`; also for fewer than two queries or a setting out of range.

    References
    ----------
    .. [1] Efron, B. and Tibshirani, R. J. (1993). An Introduction to the Bootstrap.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import Comparisons, gain_interval
    >>> data = Comparisons.from_arrays(
    ...     np.arange(300), [0] * 300, [1] * 300, [1.0, 1.0, 0.0] * 100,
    ...     queries=range(300), models=["a", "b"],
    ... )
    >>> interval = gain_interval([0.67] * 300, [0.5] * 300, data, prob=0.9, kind="eti", rng=0)
    >>> bool(interval.low < 8.2 < interval.high)
    True
    """
    own = _query_losses(probability, comparisons, average, "probability")[0]
    base = _baseline_losses(baseline, comparisons, average)
    return _bootstrap(own, base, base, prob, kind, n_resamples, rng)


def gain_difference_interval(
    probability_a: ArrayLike,
    probability_b: ArrayLike,
    baseline: ArrayLike,
    comparisons: Comparisons,
    *,
    average: Average = "comparison",
    prob: float | None = None,
    kind: Literal["eti", "hdi"] | None = None,
    n_resamples: int = 2000,
    rng: RandomState = None,
) -> GainInterval:
    """Bootstrap interval of gain(a) - gain(b), both methods judged on the same resamples.

    The two gains move together from resample to resample, so the interval of their difference is
    narrower than their own intervals suggest.

    Parameters
    ----------
    probability_a, probability_b, baseline : array-like of float, shape (n_comparisons,)
        P(second beats first) by the two methods and by their common baseline.
    comparisons, average, prob, kind, n_resamples, rng
        As in `gain_interval`.

    Returns
    -------
    GainInterval
        Of the difference, in percentage points; above 0 where a is better. Infinite if one of the
        losses is, NaN if both are.

    Raises
    ------
    InputError
        As `gain_interval`.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import Comparisons, gain_difference_interval
    >>> data = Comparisons.from_arrays(
    ...     np.arange(300), [0] * 300, [1] * 300, [1.0, 1.0, 0.0] * 100,
    ...     queries=range(300), models=["a", "b"],
    ... )
    >>> p, q, half = [0.67] * 300, [0.65] * 300, [0.5] * 300
    >>> interval = gain_difference_interval(p, q, half, data, prob=0.9, kind="hdi", rng=0)
    >>> bool(interval.low < 0.1 < interval.high)
    True
    """
    loss_a = _query_losses(probability_a, comparisons, average, "probability_a")[0]
    loss_b = _query_losses(probability_b, comparisons, average, "probability_b")[0]
    base = _baseline_losses(baseline, comparisons, average)
    return _bootstrap(loss_a, loss_b, base, prob, kind, n_resamples, rng)


# -------------------------------------------------------------------- ties


# -------------------------------------------------------------------- helpers


def check_probabilities(probability: ArrayLike, comparisons: Comparisons, name: str) -> FloatArray:
    """Check win probabilities against their comparisons; shape (n_comparisons,), in [0, 1]."""
    if not isinstance(comparisons, Comparisons):
        raise InputError(f"comparisons must be a Comparisons, not {type(comparisons).__name__}.")
    if len(comparisons) == 0:
        raise InputError("There are no comparisons to score; give at least one.")
    try:
        values = np.asarray(probability, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}.") from None
    if values.shape != (len(comparisons),):
        raise InputError(
            f"{name} has shape {values.shape}; give one P(second beats first) for each of the "
            f"{len(comparisons)} comparisons."
        )
    bad = ~((values >= -ROUNDING) & (values <= 1 + ROUNDING))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name}, row {row}: found {float(values[row])!r}; probabilities lie between 0 and 1."
        )
    return np.clip(values, 0.0, 1.0)


def _query_losses(
    probability: ArrayLike, comparisons: Comparisons, average: Average, name: str
) -> tuple[FloatArray, FloatArray]:
    """Sum losses by query: (losses, weights), each (n_used,); sum / sum is the mean loss."""
    if average not in ("comparison", "query"):
        raise InputError(f"average={average!r}: allowed are 'comparison' and 'query'.")
    p = check_probabilities(probability, comparisons, name)
    y = comparisons.outcome
    loss = -(xlogy(y, p) + xlog1py(1 - y, -p))
    total = np.bincount(comparisons.query, comparisons.weight * loss, comparisons.n_queries)
    weight = comparisons.query_weight
    total, weight = total[weight > 0], weight[weight > 0]
    return (total, weight) if average == "comparison" else (total / weight, np.ones_like(weight))


def _baseline_losses(baseline: ArrayLike, comparisons: Comparisons, average: Average) -> FloatArray:
    losses, _ = _query_losses(baseline, comparisons, average, "baseline")
    if not 0 < losses.sum() < np.inf:
        raise InputError(
            f"The baseline's loss is {float(losses.sum())}, so there is no gain relative to it; "
            "use a baseline whose probabilities are not exactly 0 and 1."
        )
    return losses


def _bootstrap(
    loss_a: FloatArray,
    loss_b: FloatArray,
    base: FloatArray,
    prob: float | None,
    kind: str | None,
    n_resamples: int,
    rng: RandomState,
) -> GainInterval:
    """Resample gain(a) - gain(b) from losses by query, each (n_queries,); gain(base) is 0."""
    prob = arviz_base.rcParams["stats.ci_prob"] if prob is None else prob
    kind = arviz_base.rcParams["stats.ci_kind"] if kind is None else kind
    if kind not in ("eti", "hdi"):
        raise InputError(f"kind={kind!r}: allowed are 'eti' and 'hdi'.")
    if not isinstance(prob, int | float | np.number) or not 0 < prob < 1:
        raise InputError(f"prob={prob!r}: give a probability between 0 and 1.")
    check_count("n_resamples", n_resamples, least=2)
    if len(base) < 2:
        raise InputError("One query alone has comparisons; resampling queries needs at least two.")
    worst_a, worst_b = loss_a.max(), loss_b.max()
    if np.isinf([worst_a, worst_b]).any():
        certain = float(worst_b - worst_a) if worst_a != worst_b else np.nan
        return GainInterval(certain, certain, certain, np.nan, float(prob), kind)
    sums = _resampled_sums(np.column_stack([base, loss_a, loss_b]), n_resamples, as_generator(rng))
    if (sums[:, 0] <= 0).any():
        raise InputError(
            "The baseline has no loss at all on some resamples of the queries, so the gain has no "
            "bootstrap interval; use more queries or a baseline that is less sure."
        )
    gains = 100.0 * (sums[:, 2] - sums[:, 1]) / sums[:, 0]
    low, high = (hdi if kind == "hdi" else eti)(gains, prob=prob)
    return GainInterval(
        float(gains.mean()), float(low), float(high), float(gains.std(ddof=1)), float(prob), kind
    )


def _resampled_sums(losses: FloatArray, n_resamples: int, rng: np.random.Generator) -> FloatArray:
    """Sum the losses (n_queries, n_methods) over bootstrap draws: (n_resamples, n_methods)."""
    n_queries = len(losses)
    sums = np.empty((n_resamples, losses.shape[1]))
    step = max(1, _RESAMPLE_CELLS // n_queries)
    for start in range(0, n_resamples, step):
        block = sums[start : start + step]
        # How often each query was drawn: multinomial counts, made the fast way.
        drawn = rng.integers(n_queries, size=(len(block), n_queries))
        drawn += np.arange(len(block))[:, None] * n_queries
        counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        block[:] = counts @ losses
    return sums
