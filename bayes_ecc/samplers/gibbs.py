"""The Gibbs sweep for the mixture of `models/ecc_mixture.py`, on plain arrays.

With z the queries' clusters and omega the Polya-Gamma variables of [1]_, one per cluster and pair
of models (omega of comparisons with the same log-odds add up to a single variable), a sweep draws

    z_q | parameters                        from the responsibilities, omega integrated out
    omega | z, strengths                    PG(summed weight, difference of strengths)
    theta_0 | tau, z, omega                 Gaussian, strengths integrated out
    tau | theta_0, z, omega                 slice sampling, strengths integrated out
    theta_k | theta_0, tau, z, omega        Gaussian
    c_k | z                                 von Mises-Fisher at concentration * sum of embeddings
    pi | z                                  Dirichlet

Integrating the strengths out is what lets tau and theta_0 move. z and omega are not kept, so that
the chain is one for the marginal posterior.

References
----------
.. [1] Polson, Scott and Windle (2013). Bayesian inference for logistic models using Polya-Gamma
   latent variables. Journal of the American Statistical Association 108(504).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from bayes_ecc.comparisons import OutcomeCounts
from bayes_ecc.errors import InputError
from bayes_ecc.samplers.polya_gamma import random_polya_gamma
from bayes_ecc.samplers.von_mises_fisher import random_von_mises_fisher

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_SLICE_WIDTH = 0.5  # first bracket of log tau; stepping out doubles as needed
_SLICE_UPDATES = 2


@dataclass(frozen=True)
class GibbsState:
    """All variables of the marginal model.

    Attributes
    ----------
    weights : ndarray, shape (n_clusters,)
    global_strengths : ndarray, shape (n_models,)
    tau : float
        Spread of the clusters' strengths around the global ones.
    strengths : ndarray, shape (n_clusters, n_models)
    centroids : ndarray, shape (n_clusters, embedding_dim)
        Unit length.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.samplers import GibbsState
    >>> state = GibbsState(np.full(2, 0.5), np.zeros(3), 1.0, np.zeros((2, 3)), np.eye(2, 4))
    >>> state.strengths.shape
    (2, 3)
    """

    weights: FloatArray
    global_strengths: FloatArray
    tau: float
    strengths: FloatArray
    centroids: FloatArray


@dataclass(frozen=True)
class GibbsProblem:
    """Data and settings of one mixture, in the form a sweep needs.

    Make it with `GibbsProblem.from_counts`.

    Attributes
    ----------
    embeddings : ndarray, shape (n_queries, embedding_dim)
    wins : scipy.sparse.csr_array, shape (n_queries, n_columns)
        Weight of the wins times the evidence power.
    winner, loser : ndarray of int, shape (n_columns,)
    lower, upper : ndarray of int, shape (n_pairs,)
        The two models of each pair that was compared.
    cell_query, cell_pair : ndarray of int, shape (n_cells,)
        Query and pair of each stored win.
    cell_weight, cell_signed : ndarray, shape (n_cells,)
        Its weight, and the same with a minus where `upper` won.
    n_clusters, n_models : int
    concentration : float
    weight_alpha, global_scale, tau_scale : float or None
        Priors; None keeps what the state holds.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem
    >>> data = simulate(n_queries=50, n_models=4, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=3, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> problem.wins.shape[0], len(problem.lower)
    (50, 6)
    """

    embeddings: FloatArray
    wins: sparse.csr_array
    winner: IntArray
    loser: IntArray
    lower: IntArray
    upper: IntArray
    cell_query: IntArray
    cell_pair: IntArray
    cell_weight: FloatArray
    cell_signed: FloatArray
    n_clusters: int
    n_models: int
    concentration: float
    weight_alpha: float | None
    global_scale: float | None
    tau_scale: float | None

    @classmethod
    def from_counts(
        cls,
        embeddings: ArrayLike,
        counts: OutcomeCounts,
        *,
        n_clusters: int,
        n_models: int,
        concentration: float,
        evidence_power: float = 1.0,
        weight_alpha: float | None = 1.0,
        global_scale: float | None = 1.0,
        tau_scale: float | None = 1.0,
        dtype: DTypeLike = np.float32,
    ) -> GibbsProblem:
        """Prepare a mixture for sampling.

        Parameters
        ----------
        embeddings : array-like, shape (n_queries, embedding_dim)
            Unit length.
        counts : OutcomeCounts
            Wins per query.
        n_clusters, n_models : int
            Sizes.
        concentration, evidence_power : float
            What multiplies x.c and the log-likelihood of the comparisons.
        weight_alpha : float or None
            Dirichlet concentration of the cluster weights; None leaves them fixed.
        global_scale : float or None
            Standard deviation of the global strengths; None leaves them fixed.
        tau_scale : float or None
            Scale of tau's half-normal prior; None leaves tau fixed.
        dtype : data type
            Precision of what has one value per query: 32-bit is twice as fast.

        Returns
        -------
        GibbsProblem

        Raises
        ------
        InputError
            If embeddings and counts differ in the number of queries.

        Examples
        --------
        See the class.
        """
        x = np.ascontiguousarray(embeddings, dtype=dtype)
        if x.ndim != 2 or len(x) != counts.matrix.shape[0]:
            raise InputError(
                f"embeddings has shape {x.shape} but there are {counts.matrix.shape[0]} queries in "
                "the counts; give one row for each query, in the same order."
            )
        wins = sparse.csr_array(counts.matrix * float(evidence_power))
        wins.eliminate_zeros()
        low, high = np.minimum(counts.winner, counts.loser), np.maximum(counts.winner, counts.loser)
        keys, pair = np.unique(low * n_models + high, return_inverse=True)
        sign = np.where(counts.winner < counts.loser, 1.0, -1.0)
        cell_query = np.repeat(np.arange(len(x)), np.diff(wins.indptr))
        weight = wins.data.astype(float)
        return cls(
            embeddings=x,
            wins=wins.astype(dtype),
            winner=counts.winner,
            loser=counts.loser,
            lower=keys // n_models,
            upper=keys % n_models,
            cell_query=cell_query,
            cell_pair=pair[wins.indices],
            cell_weight=weight,
            cell_signed=weight * sign[wins.indices],
            n_clusters=int(n_clusters),
            n_models=int(n_models),
            concentration=float(concentration),
            weight_alpha=weight_alpha,
            global_scale=global_scale,
            tau_scale=tau_scale,
        )


# ---------------------------------------------------------------- densities


def log_joint(state: GibbsState, problem: GibbsProblem) -> FloatArray:
    """Log of pi_k exp(concentration x_q.c_k) prod BT, for each query and cluster.

    Parameters
    ----------
    state : GibbsState
        Parameters.
    problem : GibbsProblem
        Data and settings.

    Returns
    -------
    ndarray, shape (n_queries, n_clusters)
        In the problem's precision; the von Mises-Fisher normaliser is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, log_joint
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=3, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> state = GibbsState(np.full(3, 1 / 3), np.zeros(4), 1.0, np.zeros((3, 4)), np.eye(3, 8))
    >>> log_joint(state, problem).shape
    (50, 3)
    """
    dtype = problem.embeddings.dtype
    directions = (problem.concentration * state.centroids).astype(dtype)
    theta = state.strengths
    log_win = -np.logaddexp(0, theta[:, problem.loser] - theta[:, problem.winner])
    table = problem.embeddings @ directions.T
    table += np.log(state.weights).astype(dtype)
    table += problem.wins @ np.ascontiguousarray(log_win.T, dtype=dtype)
    return table


def log_prior(state: GibbsState, problem: GibbsProblem) -> float:
    """Log prior density of what is not fixed, in the model's own units, centroids uniform.

    Parameters
    ----------
    state : GibbsState
        Parameters.
    problem : GibbsProblem
        Data and settings.

    Returns
    -------
    float
        The sphere's (constant) density is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, log_prior
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=3, n_models=4,
    ...     concentration=8.0, global_scale=None, tau_scale=None,
    ... )
    >>> state = GibbsState(np.full(3, 1 / 3), np.zeros(4), 1.0, np.zeros((3, 4)), np.eye(3, 8))
    >>> round(log_prior(state, problem), 3)  # log 2! - 12 log sqrt(2 pi)
    -10.334
    """
    n_clusters, n_models = state.strengths.shape
    half_log_2pi = 0.5 * math.log(2 * math.pi)
    deviations = (state.strengths - state.global_strengths) / state.tau
    total = -0.5 * float((deviations**2).sum()) - deviations.size * (
        half_log_2pi + math.log(state.tau)
    )
    if problem.global_scale is not None:
        scaled = state.global_strengths / problem.global_scale
        total -= 0.5 * float((scaled**2).sum())
        total -= n_models * (half_log_2pi + math.log(problem.global_scale))
    if problem.tau_scale is not None:
        total += math.log(2) - half_log_2pi - math.log(problem.tau_scale)
        total -= 0.5 * (state.tau / problem.tau_scale) ** 2
    if problem.weight_alpha is not None:
        alpha = problem.weight_alpha
        total += math.lgamma(n_clusters * alpha) - n_clusters * math.lgamma(alpha)
        total += (alpha - 1) * float(np.log(state.weights).sum())
    return total


# ---------------------------------------------------------------- draws


def gibbs_sweep(
    state: GibbsState,
    problem: GibbsProblem,
    rng: np.random.Generator,
    *,
    table: FloatArray | None = None,
) -> tuple[GibbsState, IntArray, float]:
    """Update every variable once.

    Parameters
    ----------
    state : GibbsState
        Where the chain is; not changed.
    problem : GibbsProblem
        Data and settings.
    rng : numpy.random.Generator
        Randomness of the draws.
    table : ndarray, shape (n_queries, n_clusters), optional
        `log_joint(state, problem)` if it is known already; used up as scratch space.

    Returns
    -------
    state : GibbsState
        Where the chain goes.
    labels : ndarray of int, shape (n_queries,)
        Clusters drawn for the queries on the way.
    total : float
        Sum over queries of log p(x_q, y_q), at the state that was left.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, gibbs_sweep
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=3, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> state = GibbsState(np.full(3, 1 / 3), np.zeros(4), 1.0, np.zeros((3, 4)), np.eye(3, 8))
    >>> state, labels, _ = gibbs_sweep(state, problem, np.random.default_rng(0))
    >>> labels.shape, bool(np.isclose(state.weights.sum(), 1))
    ((50,), True)
    """
    if table is None:
        table = log_joint(state, problem)
    labels, total = _draw_labels(table, rng)
    return draw_parameters(labels, state, problem, rng), labels, total


def draw_parameters(
    labels: IntArray, state: GibbsState, problem: GibbsProblem, rng: np.random.Generator
) -> GibbsState:
    """Draw all parameters given the queries' clusters; also a way to start a chain.

    Parameters
    ----------
    labels : ndarray of int, shape (n_queries,)
        Cluster of each query.
    state : GibbsState
        Gives the strengths at which omega is drawn, tau where slice sampling starts, and whatever
        is fixed.
    problem : GibbsProblem
        Data and settings.
    rng : numpy.random.Generator
        Randomness of the draws.

    Returns
    -------
    GibbsState

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, draw_parameters
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=2, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> state = GibbsState(np.full(2, 0.5), np.zeros(4), 1.0, np.zeros((2, 4)), np.eye(2, 8))
    >>> labels = np.arange(50) % 2
    >>> draw_parameters(labels, state, problem, np.random.default_rng(0)).centroids.shape
    (2, 8)
    """
    precision, linear = _augmented_likelihood(labels, state.strengths, problem, rng)
    state = _draw_strengths(precision, linear, state, problem, rng)
    members = sparse.csr_array(
        (
            np.ones(len(labels), dtype=problem.embeddings.dtype),
            labels,
            np.arange(len(labels) + 1),
        ),
        shape=(len(labels), problem.n_clusters),
    )
    resultant = (members.T @ problem.embeddings).astype(float)
    centroids = random_von_mises_fisher(problem.concentration * resultant, rng=rng)
    weights = state.weights
    if problem.weight_alpha is not None:
        sizes = np.bincount(labels, minlength=problem.n_clusters)
        weights = _dirichlet(problem.weight_alpha + sizes, rng)
    return replace(state, centroids=centroids, weights=weights)


def _draw_labels(table: FloatArray, rng: np.random.Generator) -> tuple[IntArray, float]:
    """Draw a cluster for each query and sum log p(x_q, y_q); `table` is overwritten."""
    top = table.max(axis=1)
    table -= top[:, None]
    np.exp(table, out=table)
    # A product with a triangle of ones is a cumulative sum, and much faster than one along rows.
    cumulative = table @ np.tri(table.shape[1], dtype=table.dtype).T
    mass = cumulative[:, -1]
    threshold = rng.random(len(table), dtype=table.dtype) * mass
    labels = (cumulative <= threshold[:, None]).sum(axis=1)
    np.minimum(labels, table.shape[1] - 1, out=labels)
    total = top.sum(dtype=float) + np.log(mass).sum(dtype=float)
    return labels, float(total)


def _augmented_likelihood(
    labels: IntArray, strengths: FloatArray, problem: GibbsProblem, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw omega; give the precision (K, M, M) and linear term (K, M) of exp(b.t - t.L t / 2)."""
    n_clusters, n_models, n_pairs = problem.n_clusters, problem.n_models, len(problem.lower)
    lower, upper = problem.lower, problem.upper
    cell = labels[problem.cell_query] * n_pairs + problem.cell_pair
    size = n_clusters * n_pairs
    weight = np.bincount(cell, weights=problem.cell_weight, minlength=size)
    signed = np.bincount(cell, weights=problem.cell_signed, minlength=size)
    difference = (strengths[:, lower] - strengths[:, upper]).ravel()
    omega = np.zeros(size)
    seen = np.flatnonzero(weight)
    omega[seen] = random_polya_gamma(weight[seen], difference[seen], rng=rng)
    omega, signed = omega.reshape(n_clusters, n_pairs), signed.reshape(n_clusters, n_pairs)
    precision = np.zeros((n_clusters, n_models, n_models))
    precision[:, lower, upper] = -omega
    precision[:, upper, lower] = -omega
    diagonal = np.arange(n_models)
    precision[:, diagonal, diagonal] = -precision.sum(axis=2)
    incidence = np.zeros((n_pairs, n_models))
    incidence[np.arange(n_pairs), lower] = 0.5
    incidence[np.arange(n_pairs), upper] = -0.5
    return precision, signed @ incidence


def _draw_strengths(
    precision: FloatArray,
    linear: FloatArray,
    state: GibbsState,
    problem: GibbsProblem,
    rng: np.random.Generator,
) -> GibbsState:
    """Draw theta_0, then tau, both with the strengths integrated out, then the strengths."""
    eigenvalues, vectors = np.linalg.eigh(precision)
    eigenvalues = np.maximum(eigenvalues, 0)  # one is zero but for rounding: shifts change nothing
    rotated = np.einsum("kmj,km->kj", vectors, linear)
    centre, tau = state.global_strengths, state.tau
    if problem.global_scale is not None:
        shrink = 1 / (1 + tau**2 * eigenvalues)
        total = np.einsum("kij,kj,klj->il", vectors, eigenvalues * shrink, vectors, optimize=True)
        total[np.diag_indices_from(total)] += problem.global_scale**-2
        root = np.linalg.cholesky(total)
        mean = np.linalg.solve(root, np.einsum("kij,kj->i", vectors, shrink * rotated))
        centre = np.linalg.solve(root.T, mean + rng.standard_normal(len(mean)))
    pull = rotated - eigenvalues * (centre @ vectors)
    if problem.tau_scale is not None:
        tau = _draw_tau(tau, eigenvalues, pull**2, problem.tau_scale, rng)
    variance = tau**2 / (1 + tau**2 * eigenvalues)
    deviation = variance * pull + np.sqrt(variance) * rng.standard_normal(variance.shape)
    strengths = centre + np.einsum("kmj,kj->km", vectors, deviation)
    return replace(state, global_strengths=centre, tau=tau, strengths=strengths)


def _draw_tau(
    tau: float,
    eigenvalues: FloatArray,
    pull_squared: FloatArray,
    scale: float,
    rng: np.random.Generator,
) -> float:
    """Slice-sample log tau [Neal 2003, stepping out] at the density with strengths integrated out."""

    def log_density(log_tau: float) -> float:
        square = math.exp(2 * log_tau)
        spread = 1 + square * eigenvalues
        gain = square * float((pull_squared / spread).sum()) - float(np.log(spread).sum())
        return 0.5 * gain + log_tau - 0.5 * square / scale**2

    position = math.log(tau)
    height = log_density(position)
    for _ in range(_SLICE_UPDATES):
        level = height - rng.standard_exponential()
        left = position - _SLICE_WIDTH * rng.random()
        right = left + _SLICE_WIDTH
        while log_density(left) > level:
            left -= _SLICE_WIDTH
        while log_density(right) > level:
            right += _SLICE_WIDTH
        while True:
            candidate = left + (right - left) * rng.random()
            height = log_density(candidate)
            if height > level:
                break
            if candidate < position:
                left = candidate
            else:
                right = candidate
        position = candidate
    return math.exp(position)


def _dirichlet(alpha: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw weights, none of them zero: their logarithms are needed."""
    draws = np.maximum(rng.standard_gamma(alpha), np.finfo(float).tiny)
    return draws / draws.sum()
