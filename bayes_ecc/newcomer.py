"""The strengths of a newcomer, drawn while clusters and the strengths of the others stay fixed.

For every atom of a fit, with r_qk the responsibilities of a query that the newcomer was tried on,

    theta ~ Normal(mean, covariance)                       its strengths (n_clusters,)
    p(y) = prod_q sum_k r_qk prod_(n of q) BT(y_n | theta_k - theta_k,opponent(n))^w

Draws come from Gibbs sampling with the query's cluster and one Polya-Gamma variable a comparison
as auxiliaries, which are thrown away: given them the strengths are Gaussian [1]_. Evidence on the
newcomer does not flow back into the atoms (a cut posterior): what the fit says of clusters and of
the other models stays as it is.

References
----------
.. [1] Polson, Scott and Windle (2013). Bayesian inference for logistic models using Polya-Gamma
   latent variables. Journal of the American Statistical Association 108(504).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

_CELLS = 2_000_000  # draws x comparisons x clusters held at once
_LEAST_SD = 0.1  # of strengths in logits: others that are all alike rule no newcomer out


@dataclass(frozen=True, eq=False)
class Tried:
    """Comparisons of the newcomer, (n_comparisons,) each.

    Attributes
    ----------
    query, opponent : ndarray of int
        Codes of queries and of the fit's models.
    outcome : ndarray of float
        1.0 where the newcomer won, 0.0 where it lost, between for ties and soft outcomes.
    weight : ndarray of float
        How many comparisons one counts for, times the evidence power; 0 if it tells nothing.
    """

    query: IntArray
    opponent: IntArray
    outcome: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.query)

    def add(self, more: Tried) -> Tried:
        """Give these and more."""
        return Tried(
            np.concatenate([self.query, more.query]),
            np.concatenate([self.opponent, more.opponent]),
            np.concatenate([self.outcome, more.outcome]),
            np.concatenate([self.weight, more.weight]),
        )

    def take(self, rows: NDArray[Any]) -> Tried:
        """Give some, by positions or by a mask."""
        return Tried(self.query[rows], self.opponent[rows], self.outcome[rows], self.weight[rows])

    def telling(self) -> Tried:
        """Give those that count."""
        return self.take(self.weight > 0)

    @classmethod
    def none(cls) -> Tried:
        """Give no comparisons."""
        nobody = np.empty(0, dtype=np.intp)
        return cls(nobody, nobody, np.empty(0), np.empty(0))


class Prior(NamedTuple):
    """Gaussian prior of the newcomer's strengths under each atom.

    Attributes
    ----------
    mean : ndarray, shape (n_atoms, n_clusters)
    covariance : ndarray, shape (n_atoms, n_clusters, n_clusters)
    """

    mean: FloatArray
    covariance: FloatArray


def exchangeable_prior(strengths: FloatArray, spread: FloatArray, global_scale: float) -> Prior:
    """Centre the newcomer at the others' mean; it shares a level over clusters.

    theta_k = mean_k + level + deviation_k with level ~ Normal(0, global_scale) and deviations
    ~ Normal(0, spread).

    Parameters
    ----------
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)
    spread : ndarray, shape (n_atoms,)
    global_scale : float

    Returns
    -------
    Prior
    """
    n_clusters = strengths.shape[1]
    own = np.eye(n_clusters) * (spread**2)[:, None, None]
    return Prior(strengths.mean(axis=2), own + global_scale**2)


def pool_prior(strengths: FloatArray) -> Prior:
    """Take the newcomer for one more like the others.

    Its covariance is half that of the others' profiles over clusters, half that of a level and
    independent deviations with the others' variances: there are fewer others than clusters, so
    their own covariance alone would rule most profiles out.

    Parameters
    ----------
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)

    Returns
    -------
    Prior
    """
    n_clusters, n_models = strengths.shape[1:]
    mean = strengths.mean(axis=2, keepdims=True)
    profile = strengths - mean
    level = profile.mean(axis=1, keepdims=True)
    of_level = np.maximum((level**2).sum(axis=2) / (n_models - 1), _LEAST_SD**2)[:, :, None]
    deviation = ((profile - level) ** 2).sum(axis=2).mean(axis=1) / (n_models - 1)
    own = np.eye(n_clusters) * np.maximum(deviation, _LEAST_SD**2)[:, None, None]
    shared = profile @ profile.transpose(0, 2, 1) / (n_models - 1)
    return Prior(mean[:, :, 0], (shared + own + of_level) / 2)


def draw_strengths(
    start: FloatArray,
    prior: Prior,
    strengths: FloatArray,
    responsibilities: FloatArray,
    tried: Tried,
    sweeps: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Run Gibbs chains on, one for every replicate of every atom.

    Parameters
    ----------
    start : ndarray, shape (n_atoms, n_replicates, n_clusters)
        Where the chains stand; not changed.
    prior : Prior
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)
        Of the other models.
    responsibilities : ndarray, shape (n_atoms, n_queries, n_clusters)
        Before the newcomer was tried.
    tried : Tried
    sweeps : int
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, shape (n_atoms, n_replicates, n_clusters)
        Where the chains end; without comparisons, draws from the prior.
    """
    drawn = np.empty(start.shape)
    precision = np.linalg.inv(prior.covariance)
    score = np.matmul(precision, prior.mean[:, :, None])[:, :, 0]
    rows = tried.take(np.argsort(tried.query, kind="stable"))
    queries, first, query = np.unique(rows.query, return_index=True, return_inverse=True)
    step = max(1, _CELLS // (start[0].size * max(1, len(rows))))
    for begin in range(0, len(start), step):
        part = slice(begin, begin + step)
        with np.errstate(divide="ignore"):
            log_r = np.log(responsibilities[part][:, queries])
        chains = _Chains(
            precision[part],
            score[part],
            np.ascontiguousarray(strengths[part][:, :, rows.opponent].transpose(0, 2, 1)),
            log_r,
            rows,
            query,
            first,
        )
        theta = start[part]
        for _ in range(sweeps if len(rows) else 1):
            theta = chains.sweep(theta, rng)
        drawn[part] = theta
    return drawn


class _Chains(NamedTuple):
    """What the sweeps of some atoms share.

    `precision` (n_atoms, n_clusters, n_clusters) and `score` (n_atoms, n_clusters) of the prior,
    strengths of the opponents (n_atoms, n_comparisons, n_clusters), `log_r` (n_atoms, n_queries,
    n_clusters), comparisons sorted by query, the query of each, the first row of each query.
    """

    precision: FloatArray
    score: FloatArray
    opponents: FloatArray
    log_r: FloatArray
    rows: Tried
    query: IntArray
    first: IntArray

    def sweep(self, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw clusters, Polya-Gamma variables and strengths once."""
        n_atoms, n_replicates, n_clusters = theta.shape
        information: FloatArray = np.zeros(theta.shape)
        score = np.tile(self.score[:, None], (1, n_replicates, 1))
        if len(self.rows):
            # only now: this brings PyMC, which takes seconds to import
            from bayes_ecc.samplers.polya_gamma import random_polya_gamma

            psi = theta[:, :, None] - self.opponents[:, None]
            cluster = self._clusters(psi, rng)[:, :, self.query]
            own = np.take_along_axis(psi, cluster[..., None], axis=3)[..., 0]
            weight = self.rows.weight
            omega = random_polya_gamma(np.broadcast_to(weight, own.shape), own, rng=rng)
            atom = np.arange(n_atoms)[:, None, None]
            rival = self.opponents[atom, np.arange(len(weight)), cluster]
            chain = atom * n_replicates + np.arange(n_replicates)[:, None]
            cell = (chain * n_clusters + cluster).ravel()
            pull = weight * (self.rows.outcome - 0.5) + omega * rival
            information = _sums(cell, omega, theta.shape)
            score += _sums(cell, pull, theta.shape)
        precision = np.tile(self.precision[:, None], (1, n_replicates, 1, 1))
        diagonal = np.arange(n_clusters)
        precision[..., diagonal, diagonal] += information
        root = np.linalg.cholesky(precision)
        white = np.linalg.solve(root, score[..., None])
        white += rng.standard_normal(white.shape)
        return np.linalg.solve(root.swapaxes(2, 3), white)[..., 0]

    def _clusters(self, psi: FloatArray, rng: np.random.Generator) -> IntArray:
        """Draw the cluster of every query: (n_atoms, n_replicates, n_queries)."""
        psi, lost = psi.astype(np.float32), (1 - self.rows.outcome).astype(np.float32)
        log_lik = np.minimum(psi, 0) - np.log1p(np.exp(-np.abs(psi)))
        log_lik -= lost[:, None] * psi
        log_lik *= self.rows.weight.astype(np.float32)[:, None]
        if len(self.first) < len(self.query):
            log_lik = np.add.reduceat(log_lik, self.first, axis=2)
        log_lik += self.log_r[:, None]
        log_lik -= log_lik.max(axis=3, keepdims=True)
        cumulative = np.cumsum(np.exp(log_lik, out=log_lik), axis=3)
        cut = rng.random(cumulative.shape[:3]) * cumulative[..., -1]
        # rounding could put the cut at the very end
        return np.minimum((cumulative <= cut[..., None]).sum(axis=3), cumulative.shape[3] - 1)


def _sums(cell: IntArray, values: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    return np.bincount(cell, values.ravel(), minlength=int(np.prod(shape))).reshape(shape)


def win_chances(
    newcomer: FloatArray, strengths: FloatArray, responsibilities: FloatArray, share: FloatArray
) -> FloatArray:
    """Average the newcomer's chance to beat each model on each query, (n_queries, n_models).

    Parameters
    ----------
    newcomer : ndarray, shape (n_atoms, n_replicates, n_clusters)
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)
    responsibilities : ndarray, shape (n_atoms, n_queries, n_clusters)
    share : ndarray, shape (n_atoms,)
    """
    beats = expit(newcomer[..., None] - strengths[:, None]).mean(axis=1)
    table = share[:, None, None] * beats
    n_clusters, n_models = table.shape[1:]
    flat = responsibilities.transpose(1, 0, 2).reshape(responsibilities.shape[1], -1)
    return np.clip(flat @ table.reshape(len(share) * n_clusters, n_models), 0.0, 1.0)


def joined(newcomer: FloatArray, strengths: FloatArray) -> FloatArray:
    """Put the newcomer behind the others: (n_atoms, n_replicates, n_clusters, n_models + 1)."""
    shape = (*newcomer.shape, strengths.shape[2])
    others = np.broadcast_to(strengths[:, None], shape)
    return np.concatenate([others, newcomer[..., None]], axis=3)
