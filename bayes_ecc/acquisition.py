"""Which comparisons of a newcomer to ask for next.

Three rules choose pairs of a query and an opponent among those allowed:

- "design": those expected to tell most. The chance to win p and what is to be known, t, vary over
  the draws of the newcomer's strengths; seeing one outcome y, win or loss, is expected to lower
  the variance of t by cov(p, t)^2 / var(y). A batch is chosen greedily, variances and covariances
  lowered by the outcomes chosen already as if all were jointly Gaussian [1]_.
- "published": queries at random, against the median-ranked of the models on the query.
- "random": queries at random, opponents at random.

References
----------
.. [1] Chaloner and Verdinelli (1995). Bayesian experimental design: a review. Statistical Science
   10(3), 273-304.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bayes_ecc.inference import mean_win_probability

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]
type BoolArray = NDArray[np.bool_]
type Rule = Literal["design", "published", "random"]
type Goal = Literal["profile", "rank"]

RULES: tuple[Rule, ...] = ("design", "published", "random")
GOALS: tuple[Goal, ...] = ("profile", "rank")
_CELLS = 8_000_000  # numbers held at once
_REFERENCES = 64  # reference queries on which the newcomer's profile is to be known
_SHORTLIST = 1500  # candidates among which a batch is chosen


class Ground(NamedTuple):
    """What a fit says and the newcomer does not change.

    Attributes
    ----------
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)
    responsibilities : ndarray of float32, shape (n_atoms, n_queries, n_clusters)
        Of the candidate queries.
    reference : ndarray of float32, shape (n_atoms, n_reference, n_clusters)
        Of the queries over which the overall rank is meant.
    share : ndarray, shape (n_atoms,)
        Positive; sums to 1.
    """

    strengths: FloatArray
    responsibilities: FloatArray
    reference: FloatArray
    share: FloatArray

    def overall(self, newcomer: FloatArray) -> FloatArray:
        """Mean win probability over the reference queries, the newcomer's last.

        From its strengths (n_atoms, n_replicates, n_clusters) to (n_atoms, n_replicates,
        n_models + 1).
        """
        shares = self.reference.mean(axis=1)
        among = mean_win_probability(self.strengths) * (self.strengths.shape[2] - 1)
        beats = expit(newcomer[..., None] - self.strengths[:, None])
        old = np.einsum("ak,akm->am", shares, among)[:, None]
        old = old + np.einsum("ak,arkm->arm", shares, 1 - beats, optimize=True)
        new = np.einsum("ak,arkm->ar", shares, beats, optimize=True)
        return np.concatenate([old, new[..., None]], axis=2) / self.strengths.shape[2]


class Chosen(NamedTuple):
    """Pairs to ask for, (n,) each; `value` is the share of variance that each is to remove."""

    query: IntArray
    opponent: IntArray
    value: FloatArray


def at_random(allowed: BoolArray, n: int, rng: np.random.Generator) -> Chosen:
    """Choose queries at random, and an opponent of each at random."""
    query = _random_queries(allowed, n, rng)
    order = rng.random((len(query), allowed.shape[1]))
    opponent = np.where(allowed[query], order, 2.0).argmin(axis=1)
    return Chosen(query, opponent, np.full(len(query), np.nan))


def by_median(ground: Ground, allowed: BoolArray, n: int, rng: np.random.Generator) -> Chosen:
    """Choose queries at random, and of each the allowed opponent nearest to the median rank.

    Of two that are equally near the better ranked is taken.
    """
    query = _random_queries(allowed, n, rng)
    win = np.einsum(
        "a,aqk,akm->qm",
        ground.share,
        ground.responsibilities[:, query],
        mean_win_probability(ground.strengths),
        optimize=True,
    )
    n_models = win.shape[1]
    place = np.empty(win.shape)
    np.put_along_axis(place, np.argsort(-win, axis=1, kind="stable"), np.arange(n_models), axis=1)
    off = np.abs(place - (n_models - 1) / 2) + 1e-3 * (place > (n_models - 1) / 2)
    opponent = np.where(allowed[query], off, np.inf).argmin(axis=1)
    return Chosen(query, opponent, np.full(len(query), np.nan))


def by_design(
    ground: Ground,
    newcomer: FloatArray,
    allowed: BoolArray,
    n: int,
    rng: np.random.Generator,
    *,
    goal: Goal = "profile",
    decided: FloatArray | None = None,
) -> Chosen:
    """Choose pairs whose outcomes are expected to tell most, no query twice.

    Only what varies within an atom counts: the rest a newcomer's comparisons leave as it is.

    Parameters
    ----------
    ground : Ground
    newcomer : ndarray, shape (n_atoms, n_replicates, n_clusters)
        Draws of its strengths, two or more replicates.
    allowed : ndarray of bool, shape (n_queries, n_models)
    n : int
    rng : numpy.random.Generator
        Randomness of which reference queries stand for all.
    goal : {"profile", "rank"}
        What is to be known: the newcomer's mean win probability on reference queries, or which
        models are above it overall.
    decided : ndarray, shape (n_queries, n_models), optional
        Chances that a comparison is no tie, which would tell nothing; 1 by default.

    Returns
    -------
    Chosen
    """
    target = _targets(ground, newcomer, goal, rng)
    total = float((target**2).sum())
    chance = np.ones(allowed.shape, dtype=np.float32) if decided is None else decided
    query, opponent = _shortlist(ground, newcomer, target, allowed, chance)
    p, noise = _win(ground, newcomer, query, opponent)
    told = chance[query, opponent]
    covariance, of_target = p.T @ p, p.T @ target
    chosen, values = [], []
    open_ = np.ones(len(query), dtype=bool)
    for _ in range(min(n, len(np.unique(query)))):
        # an outcome that is a tie half of the time tells as much as one twice as noisy
        variance = (noise + np.diagonal(covariance)) / told
        lowered = np.where(open_, (of_target**2).sum(axis=1) / variance, -1.0)
        best = int(lowered.argmax())
        chosen.append(best)
        values.append(float(lowered[best]) / total if total > 0 else 0.0)
        open_ &= query != query[best]
        along = covariance[best] / variance[best]
        of_target = of_target - along[:, None] * of_target[best]
        covariance = covariance - np.outer(along, covariance[best])
    return Chosen(query[chosen], opponent[chosen], np.array(values))


# -------------------------------------------------------------------- parts of the design


def _targets(
    ground: Ground, newcomer: FloatArray, goal: Goal, rng: np.random.Generator
) -> FloatArray:
    """Give what is to be known, (n_draws, n_targets), as scaled deviations."""
    if goal == "rank":
        overall = ground.overall(newcomer)
        return _scaled((overall[:, :, :-1] > overall[:, :, -1:]).astype(float), ground.share)
    win = expit(newcomer[..., None] - ground.strengths[:, None]).mean(axis=3)
    count = ground.reference.shape[1]
    some = rng.permutation(count)[:_REFERENCES]
    return _scaled(np.matmul(win, ground.reference[:, some].transpose(0, 2, 1)), ground.share)


def _scaled(values: FloatArray, share: FloatArray) -> FloatArray:
    """Turn (n_atoms, n_replicates, n) into deviations whose products sum to covariances."""
    n_replicates = values.shape[1]
    deviation = values - values.mean(axis=1, keepdims=True)
    deviation *= np.sqrt(share / (n_replicates - 1))[:, None, None]
    return deviation.reshape(-1, values.shape[2])


def _shortlist(
    ground: Ground,
    newcomer: FloatArray,
    target: FloatArray,
    allowed: BoolArray,
    decided: FloatArray,
) -> tuple[IntArray, IntArray]:
    """Give the queries and opponents that tell most, of each target."""
    n_atoms, n_replicates, _ = newcomer.shape
    n_models = ground.strengths.shape[2]
    table = expit(newcomer[..., None] - ground.strengths[:, None]).astype(np.float32)
    table = table.transpose(0, 2, 1, 3).reshape(n_atoms, -1, n_replicates * n_models)
    scale = np.sqrt(ground.share / (n_replicates - 1)).astype(np.float32)
    single = target.astype(np.float32)
    candidates = np.flatnonzero(allowed.any(axis=1))
    per_target = max(20, _SHORTLIST // single.shape[1])
    best: list[IntArray] = []
    told: list[FloatArray] = []
    step = max(1, _CELLS // (n_atoms * n_replicates * n_models))
    for start in range(0, len(candidates), step):
        part = candidates[start : start + step]
        p = np.matmul(ground.responsibilities[:, part], table)
        p = p.reshape(n_atoms, len(part), n_replicates, n_models)
        mean = p.mean(axis=2)
        noise = np.einsum("a,aqm->qm", ground.share, mean * (1 - mean))
        p -= mean[:, :, None]
        p *= scale[:, None, None, None]
        flat = p.transpose(1, 3, 0, 2).reshape(len(part) * n_models, -1)
        lowered = (flat @ single) ** 2 / noise.reshape(-1, 1)
        lowered = lowered.reshape(len(part), n_models, -1)
        lowered *= decided[part][:, :, None]
        lowered[~allowed[part]] = -1.0
        # of a query the opponent that tells most, all targets together
        opponent = lowered.sum(axis=2).argmax(axis=1)
        best.append(opponent)
        told.append(lowered[np.arange(len(part)), opponent])
    opponents, values = np.concatenate(best), np.concatenate(told)
    kept = np.unique(np.argsort(-values, axis=0, kind="stable")[:per_target])
    return candidates[kept], opponents[kept]


def _win(
    ground: Ground, newcomer: FloatArray, query: IntArray, opponent: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Give scaled deviations (n_draws, n_pairs) of chances to win, and the noise of outcomes."""
    n_atoms, n_replicates, _ = newcomer.shape
    p = np.empty((n_atoms, n_replicates, len(query)))
    for a in range(n_atoms):
        r = ground.responsibilities[a, query].astype(float)
        table = expit(newcomer[a][:, :, None] - ground.strengths[a][:, opponent])
        p[a] = np.einsum("lk,rkl->rl", r, table)
    noise = np.einsum("a,arl->l", ground.share / n_replicates, p * (1 - p))
    return _scaled(p, ground.share), noise


def _random_queries(allowed: BoolArray, n: int, rng: np.random.Generator) -> IntArray:
    return rng.permutation(np.flatnonzero(allowed.any(axis=1)))[:n]
