"""The mixture of `models/ecc_mixture.py` on plain arrays: its data, its state, its density."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import InputError
from bayes_ecc.ties import log_tie_factor

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]


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
    tie_margin, order_effect : float
        What all clusters share; they say nothing where the problem has no ties or directions.

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
    tie_margin: float = 0.3
    order_effect: float = 0.0


class Merge(NamedTuple):
    """How pairs add up to pairs of different models: sums is (n_pairs, n_merged)."""

    sums: sparse.csr_array
    lower: IntArray
    upper: IntArray


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
        The two models of each pair that was compared. Where ties or order have a say the two
        directions of a pair have different log-odds: each column is a pair of its own, winner
        first.
    incidence : ndarray, shape (n_pairs, n_models)
        1 at `lower` and -1 at `upper`.
    cell_query, cell_pair : ndarray of int, shape (n_cells,)
        Query and pair of each stored win.
    cell_weight, cell_signed : ndarray, shape (n_cells,)
        Its weight, and the same with a minus where `upper` won.
    n_clusters, n_models : int
    concentration : float
    weight_alpha, global_scale, tau_scale : float or None
        Priors; None keeps what the state holds.
    direction : ndarray of int, shape (n_pairs,), or None
        What multiplies the order effect; None without one.
    tie_weight : ndarray, shape (n_queries,), or None
        Weight of the ties times the evidence power; None where ties are half-wins.
    tie_margin_scale, order_effect_scale : float
        Priors of the tie margin and the order effect.
    merge : Merge or None
        How pairs of the same two models add up; None where ties and order have no say and no two
        pairs are alike.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
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
    incidence: FloatArray
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
    direction: IntArray | None = None
    tie_weight: FloatArray | None = None
    tie_margin_scale: float = 1.0
    order_effect_scale: float = 0.5
    merge: Merge | None = None

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
        tie_margin_scale: float = 1.0,
        order_effect_scale: float = 0.5,
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
        tie_margin_scale, order_effect_scale : float
            Scales of the tie margin's half-normal and the order effect's normal prior, where the
            counts have ties and directions.
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
        lower, upper = keys // n_models, keys % n_models
        sign = np.where(counts.winner < counts.loser, 1.0, -1.0)
        merge: Merge | None = None
        if counts.has_margins:
            places = np.arange(len(pair))
            sums = sparse.csr_array((np.ones(len(pair)), (places, pair)))
            merge = Merge(sums, lower, upper)
            keys, pair, sign = places, places, np.ones(len(pair))
            lower, upper = counts.winner, counts.loser
        incidence = np.zeros((len(keys), n_models))
        incidence[np.arange(len(keys)), lower] = 1.0
        incidence[np.arange(len(keys)), upper] = -1.0
        tie_weight = counts.tie_weight
        cell_query = np.repeat(np.arange(len(x)), np.diff(wins.indptr))
        weight = wins.data.astype(float)
        return cls(
            embeddings=x,
            wins=wins.astype(dtype),
            winner=counts.winner,
            loser=counts.loser,
            lower=lower,
            upper=upper,
            incidence=incidence,
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
            direction=counts.direction,
            tie_weight=None if tie_weight is None else float(evidence_power) * tie_weight,
            tie_margin_scale=tie_margin_scale,
            order_effect_scale=order_effect_scale,
            merge=merge,
        )

    def offsets(self, state: GibbsState) -> FloatArray | float:
        """Give what ties and order add to the log-odds of each pair: (n_pairs,), or 0."""
        offset: FloatArray | float = 0.0
        if self.direction is not None:
            offset = state.order_effect * self.direction
        if self.tie_weight is not None:
            offset = offset - state.tie_margin
        return offset


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
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, per_query=3, rng=0)
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
    gap = state.strengths[:, problem.loser] - state.strengths[:, problem.winner]
    if problem.merge is not None:
        gap -= problem.offsets(state)
    log_win = -np.maximum(gap, 0) - np.log1p(np.exp(-np.abs(gap)))  # logaddexp is 3 times slower
    table = problem.embeddings @ directions.T
    table += np.log(state.weights).astype(dtype)
    table += problem.wins @ np.ascontiguousarray(log_win.T, dtype=dtype)
    if problem.tie_weight is not None:
        factor = problem.tie_weight * log_tie_factor(state.tie_margin)
        table += factor.astype(dtype)[:, None]
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
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, per_query=3, rng=0)
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
    if problem.tie_weight is not None:
        total += math.log(2) - half_log_2pi - math.log(problem.tie_margin_scale)
        total -= 0.5 * (state.tie_margin / problem.tie_margin_scale) ** 2
    if problem.direction is not None:
        total -= half_log_2pi + math.log(problem.order_effect_scale)
        total -= 0.5 * (state.order_effect / problem.order_effect_scale) ** 2
    if problem.weight_alpha is not None:
        alpha = problem.weight_alpha
        total += math.lgamma(n_clusters * alpha) - n_clusters * math.lgamma(alpha)
        total += (alpha - 1) * float(np.log(state.weights).sum())
    return total


def cumulative_responsibilities(
    state: GibbsState, problem: GibbsProblem
) -> tuple[FloatArray, float]:
    """Responsibilities summed along the clusters, all that drawing labels needs.

    Parameters
    ----------
    state : GibbsState
        Parameters.
    problem : GibbsProblem
        Data and settings.

    Returns
    -------
    cumulative : ndarray, shape (n_queries, n_clusters)
        Up to a factor for each query; the last column is the whole.
    total : float
        Sum over queries of log p(x_q, y_q), without the von Mises-Fisher normaliser.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.samplers import GibbsProblem, GibbsState, cumulative_responsibilities
    >>> data = simulate(n_queries=50, n_models=4, embedding_dim=8, per_query=3, rng=0)
    >>> problem = GibbsProblem.from_counts(
    ...     data.embeddings, data.comparisons.outcome_counts(), n_clusters=2, n_models=4,
    ...     concentration=0.0,
    ... )
    >>> state = GibbsState(np.array([0.3, 0.7]), np.zeros(4), 1.0, np.zeros((2, 4)), np.eye(2, 8))
    >>> cumulative, total = cumulative_responsibilities(state, problem)
    >>> f"{cumulative[0, 0] / cumulative[0, 1]:.1f}", f"{total / np.log(2):.0f}"
    ('0.3', '-150')
    """
    table = log_joint(state, problem)
    top = table.max(axis=1)
    table -= top[:, None]
    np.exp(table, out=table)
    # A product with a triangle of ones is a cumulative sum, and much faster than one along rows.
    cumulative = table @ np.tri(table.shape[1], dtype=table.dtype).T
    total = top.sum(dtype=float) + np.log(cumulative[:, -1]).sum(dtype=float)
    return cumulative, float(total)
