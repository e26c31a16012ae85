"""The Gibbs sweep for the mixture of `models/ecc_mixture.py`, on plain arrays.

With z the queries' clusters and omega the Polya-Gamma variables of [1]_, one per cluster and pair
of models (omega of comparisons with the same log-odds add up to a single variable), a sweep draws::

    z_q | parameters                        from the responsibilities, omega integrated out
    omega | z, strengths                    PG(summed weight, difference of strengths)
    theta_0 | tau, z, omega                 Gaussian, strengths integrated out
    tau | theta_0, z, omega                 slice sampling, strengths integrated out
    theta_k | theta_0, tau, z, omega        Gaussian
    theta_k | theta_0, tau, z               Metropolis step, omega integrated out
    tie margin, order effect | theta, z     slice sampling, omega integrated out
    c_k | z                                 von Mises-Fisher at concentration * sum of embeddings
    pi | z                                  Dirichlet

Integrating the strengths out is what lets tau and theta_0 move. The Metropolis step, with proposals
from a Newton step as in [2]_, is there for models that win or lose nearly always: given omega their
strengths move by a small part of their posterior spread. z and omega are not kept, so that the
chain is one for the marginal posterior.

References
----------
.. [1] Polson, Scott and Windle (2013). Bayesian inference for logistic models using Polya-Gamma
   latent variables. Journal of the American Statistical Association 108(504).
.. [2] Gamerman (1997). Sampling from the posterior distribution in generalized linear mixed models.
   Statistics and Computing 7(1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bayes_ecc.samplers.polya_gamma import random_polya_gamma
from bayes_ecc.samplers.problem import GibbsProblem, GibbsState, cumulative_responsibilities
from bayes_ecc.samplers.von_mises_fisher import random_von_mises_fisher
from bayes_ecc.ties import log_tie_factor

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_SLICE_WIDTH = 0.5  # first bracket, of log tau for one; stepping out widens it as needed
_SLICE_UPDATES = 2
_RENEWAL = 0.75  # share of a strength's variance that the Metropolis step proposes anew


def gibbs_sweep(
    state: GibbsState,
    problem: GibbsProblem,
    rng: np.random.Generator,
    *,
    cumulative: FloatArray | None = None,
) -> tuple[GibbsState, IntArray]:
    """Update every variable once.

    Parameters
    ----------
    state : GibbsState
        Where the chain is; not changed.
    problem : GibbsProblem
        Data and settings.
    rng : numpy.random.Generator
        Randomness of the draws.
    cumulative : ndarray, shape (n_queries, n_clusters), optional
        `cumulative_responsibilities` of the state, if they are known already.

    Returns
    -------
    state : GibbsState
        Where the chain goes.
    labels : ndarray of int, shape (n_queries,)
        Clusters drawn for the queries on the way.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, gibbs_sweep
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, per_query=3, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=3, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> state = GibbsState(np.full(3, 1 / 3), np.zeros(4), 1.0, np.zeros((3, 4)), np.eye(3, 8))
    >>> state, labels = gibbs_sweep(state, problem, np.random.default_rng(0))
    >>> labels.shape, bool(np.isclose(state.weights.sum(), 1))
    ((50,), True)
    """
    if cumulative is None:
        cumulative, _ = cumulative_responsibilities(state, problem)
    mass = cumulative[:, -1]
    threshold = rng.random(len(mass), dtype=cumulative.dtype) * mass
    labels = (cumulative <= threshold[:, None]).sum(axis=1)
    np.minimum(labels, problem.n_clusters - 1, out=labels)
    return draw_parameters(labels, state, problem, rng), labels


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
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, per_query=3, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=2, n_models=4,
    ...     concentration=8.0,
    ... )
    >>> state = GibbsState(np.full(2, 0.5), np.zeros(4), 1.0, np.zeros((2, 4)), np.eye(2, 8))
    >>> labels = np.arange(50) % 2
    >>> draw_parameters(labels, state, problem, np.random.default_rng(0)).centroids.shape
    (2, 8)
    """
    weight, signed = _pair_sums(labels, problem)
    offsets = None if problem.merge is None else problem.offsets(state)
    precision, linear = _augmented_likelihood(
        weight, signed, state.strengths, problem, rng, offsets
    )
    state = _draw_strengths(precision, linear, state, problem, rng)
    state = _renew_strengths(weight, signed, state, problem, rng)
    if problem.merge is not None:
        state = _draw_margins(weight, state, problem, rng)
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


def _pair_sums(labels: IntArray, problem: GibbsProblem) -> tuple[FloatArray, FloatArray]:
    """Sum the comparisons of each cluster and pair: weight, and wins of `lower` less `upper`."""
    n_pairs = len(problem.lower)
    shape = (problem.n_clusters, n_pairs)
    cell = labels[problem.cell_query] * n_pairs + problem.cell_pair
    weight = np.bincount(cell, weights=problem.cell_weight, minlength=math.prod(shape))
    signed = np.bincount(cell, weights=problem.cell_signed, minlength=math.prod(shape))
    return weight.reshape(shape), signed.reshape(shape)


def _augmented_likelihood(
    weight: FloatArray,
    signed: FloatArray,
    strengths: FloatArray,
    problem: GibbsProblem,
    rng: np.random.Generator,
    offsets: FloatArray | float | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Draw omega; give the precision (K, M, M) and linear term (K, M) of exp(b.t - t.L t / 2)."""
    difference = _log_odds(strengths, problem, offsets)
    omega = np.zeros_like(weight)
    seen = weight > 0
    omega[seen] = random_polya_gamma(weight[seen], difference[seen], rng=rng)
    linear = 0.5 * signed
    if offsets is not None:
        linear -= omega * offsets
    return _laplacian(omega, problem), linear @ problem.incidence


def _log_odds(
    strengths: FloatArray, problem: GibbsProblem, offsets: FloatArray | float | None
) -> FloatArray:
    """Give the log-odds (K, n_pairs) that `lower` wins."""
    difference = strengths[:, problem.lower] - strengths[:, problem.upper]
    return difference if offsets is None else difference + offsets


def _laplacian(pair_values: FloatArray, problem: GibbsProblem) -> FloatArray:
    """Sum value * (e_lower - e_upper)(e_lower - e_upper)' over pairs: (K, n_pairs) to (K, M, M)."""
    n_models, lower, upper = problem.n_models, problem.lower, problem.upper
    if problem.merge is not None:
        pair_values = pair_values @ problem.merge.sums
        lower, upper = problem.merge.lower, problem.merge.upper
    result = np.zeros((len(pair_values), n_models, n_models))
    result[:, lower, upper] = -pair_values
    result[:, upper, lower] = -pair_values
    diagonal = np.arange(n_models)
    result[:, diagonal, diagonal] = -result.sum(axis=2)
    return result


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
        scaled = vectors * (eigenvalues * shrink)[:, None]
        total = np.tensordot(scaled, vectors, axes=([0, 2], [0, 2]))
        total += problem.global_scale**-2 * np.eye(len(total))
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


def _renew_strengths(
    weight: FloatArray,
    signed: FloatArray,
    state: GibbsState,
    problem: GibbsProblem,
    rng: np.random.Generator,
) -> GibbsState:
    """Metropolis step on each cluster's strengths, centred between them and a Newton step's end.

    On a Gaussian it is an autoregression that accepts always; on the posterior it corrects itself.
    """
    damping = 1 - math.sqrt(1 - _RENEWAL)
    offsets = None if problem.merge is None else problem.offsets(state)

    def local(strengths: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log density, Cholesky factor of its curvature and proposal mean, for each cluster."""
        difference = _log_odds(strengths, problem, offsets)
        size = np.abs(difference)
        tail = np.exp(-size)
        deviation = strengths - state.global_strengths
        log_density = (0.5 * signed * difference - weight * (0.5 * size + np.log1p(tail))).sum(
            axis=1
        )
        log_density -= 0.5 * ((deviation / state.tau) ** 2).sum(axis=1)
        half_tanh = 0.5 * np.sign(difference) * (1 - tail) / (1 + tail)
        gradient = (0.5 * signed - weight * half_tanh) @ problem.incidence
        gradient -= deviation / state.tau**2
        curvature = _laplacian(weight * tail / (1 + tail) ** 2, problem)
        curvature += np.eye(problem.n_models) / state.tau**2
        newton = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        return log_density, np.linalg.cholesky(curvature), strengths + damping * newton

    def log_proposal(root: FloatArray, mean: FloatArray, strengths: FloatArray) -> FloatArray:
        white = np.einsum("kij,ki->kj", root, strengths - mean)
        log_determinant = np.log(np.einsum("kii->ki", root)).sum(axis=1)
        return log_determinant - 0.5 * (white**2).sum(axis=1) / _RENEWAL

    old = state.strengths
    old_density, old_root, old_mean = local(old)
    noise = rng.standard_normal((*old.shape, 1))
    step = np.linalg.solve(old_root.transpose(0, 2, 1), noise)[..., 0]
    new = old_mean + math.sqrt(_RENEWAL) * step
    new_density, new_root, new_mean = local(new)
    log_ratio = new_density - old_density
    log_ratio += log_proposal(new_root, new_mean, old) - log_proposal(old_root, old_mean, new)
    accepted = -rng.standard_exponential(len(old)) < log_ratio
    return replace(state, strengths=np.where(accepted[:, None], new, old))


def _draw_tau(
    tau: float,
    eigenvalues: FloatArray,
    pull_squared: FloatArray,
    scale: float,
    rng: np.random.Generator,
) -> float:
    """Slice-sample log tau, with the strengths integrated out."""

    def log_density(log_tau: float) -> float:
        square = math.exp(2 * log_tau)
        spread = 1 + square * eigenvalues
        gain = square * float((pull_squared / spread).sum()) - float(np.log(spread).sum())
        return 0.5 * gain + log_tau - 0.5 * square / scale**2

    return math.exp(_slice_sample(math.log(tau), log_density, rng))


def _draw_margins(
    weight: FloatArray, state: GibbsState, problem: GibbsProblem, rng: np.random.Generator
) -> GibbsState:
    """Slice-sample the log of the tie margin, then the order effect, given the strengths."""
    seen = np.nonzero(weight)
    wins, column = weight[seen], seen[1]
    difference = (state.strengths[:, problem.lower] - state.strengths[:, problem.upper])[seen]

    def log_wins(changed: GibbsState) -> float:
        offsets = np.broadcast_to(problem.offsets(changed), len(problem.lower))
        margin = difference + offsets[column]
        log_win = np.minimum(margin, 0) - np.log1p(np.exp(-np.abs(margin)))
        return float(wins @ log_win)

    if problem.tie_weight is not None:
        ties = float(problem.tie_weight.sum())

        def of_log_tie_margin(position: float) -> float:
            margin = math.exp(position)
            prior = position - 0.5 * (margin / problem.tie_margin_scale) ** 2
            factor = float(log_tie_factor(margin)) if ties else 0.0
            return log_wins(replace(state, tie_margin=margin)) + ties * factor + prior

        start = math.log(state.tie_margin)
        state = replace(state, tie_margin=math.exp(_slice_sample(start, of_log_tie_margin, rng)))
    if problem.direction is not None:
        # a name of its own: the function must see the new tie margin
        current = state

        def of_order_effect(position: float) -> float:
            prior = -0.5 * (position / problem.order_effect_scale) ** 2
            return log_wins(replace(current, order_effect=position)) + prior

        order_effect = _slice_sample(state.order_effect, of_order_effect, rng)
        state = replace(state, order_effect=order_effect)
    return state


def _slice_sample(
    position: float, log_density: Callable[[float], float], rng: np.random.Generator
) -> float:
    """Move one variable by slice sampling, stepping out [Neal 2003]."""
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
    return position


def _dirichlet(alpha: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw weights, none of them zero: their logarithms are needed."""
    draws = np.maximum(rng.standard_gamma(alpha), np.finfo(float).tiny)
    return draws / draws.sum()
