"""The alternating EM of ECC on plain arrays: exact minimisations, so the objective never rises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from bayes_ecc.bradley_terry import PairLayout, check_scale, fit_strengths, margin_layout
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.inference import log_evidence, softmax_rows
from bayes_ecc.ties import MarginLayout, Margins, Ties, fit_margins

type FloatArray = NDArray[np.floating[Any]]
type Evidence = Literal["both", "embedding", "comparisons"]


class State(NamedTuple):
    """Where an EM iteration left off."""

    responsibilities: FloatArray  # (n_queries, n_clusters)
    strengths: FloatArray  # (n_clusters, n_models)
    centroids: FloatArray  # (n_clusters, embedding_dim)
    objective: float
    scores: FloatArray  # (n_queries, n_clusters), log responsibilities up to log_total
    log_total: FloatArray  # (n_queries,)
    margins: Margins | None = None  # where ties or order have a say, from the first M-step on


@dataclass(frozen=True)
class EMData:
    """What an EM iteration reads: embeddings, and wins a query divided by the query's weight.

    The comparisons enter through their sufficient statistics only, so that beside the two dense
    products with the embeddings an iteration costs little.
    """

    embeddings: FloatArray  # (n_queries, embedding_dim)
    counts: OutcomeCounts  # matrix (n_queries, n_columns)
    layout: PairLayout | MarginLayout

    @classmethod
    def from_comparisons(
        cls,
        comparisons: Comparisons,
        embeddings: FloatArray,
        *,
        ties: Ties = "half",
        order_effect: bool = False,
    ) -> EMData:
        """Count wins in the precision of the embeddings."""
        counts = comparisons.outcome_counts(
            per_query_mean=True, ties=ties, order_effect=order_effect
        )
        n_models = comparisons.n_models
        layout: PairLayout | MarginLayout
        if counts.has_margins:
            layout = margin_layout(counts, n_models)
        else:
            layout = PairLayout(counts.winner, counts.loser, n_models)
        wins = counts.matrix.astype(embeddings.dtype)
        return cls(embeddings=embeddings, counts=counts._replace(matrix=wins), layout=layout)


@dataclass(frozen=True)
class EMSettings:
    """The numbers of the objective, and which terms of it the E-step sees."""

    embedding_weight: float
    temperature: float
    ridge: float
    evidence: Evidence = "both"

    @property
    def uses_embeddings(self) -> bool:
        """Whether the E-step reads embeddings."""
        return self.evidence != "comparisons" and self.embedding_weight > 0

    @property
    def uses_comparisons(self) -> bool:
        """Whether the E-step reads comparisons."""
        return self.evidence != "embedding"


def fit_centroids(
    embeddings: FloatArray, responsibilities: FloatArray, previous: FloatArray | None
) -> FloatArray:
    """Normalise responsibility-weighted sums; an empty cluster keeps its centroid, or has none."""
    sums = responsibilities.T @ embeddings
    length = np.sqrt(np.einsum("kd,kd->k", sums, sums))[:, None]
    empty = length < np.finfo(sums.dtype).tiny ** 0.5
    fallback = np.zeros_like(sums) if previous is None else previous
    return np.where(empty, fallback, sums / np.where(empty, 1, length))


def fit_cluster_strengths(
    data: EMData, responsibilities: FloatArray, ridge: float, start: FloatArray | None = None
) -> FloatArray:
    """Fit each cluster's Bradley-Terry model with weights r_qk / |N_q|: (n_clusters, n_models)."""
    return fit_clusters(data, responsibilities, ridge, start)[0]


def fit_clusters(
    data: EMData,
    responsibilities: FloatArray,
    ridge: float,
    start: FloatArray | None = None,
    margins: Margins | None = None,
) -> tuple[FloatArray, Margins | None]:
    """Fit the clusters' strengths and, where there are any, the margins that they share.

    Both together are brought to the minimum of the M-step, so that it stays exact.
    """
    # Faster than a transpose of its own: one pass over the rows, scattered into a small table.
    wins = (data.counts.matrix.T @ responsibilities).T
    if isinstance(data.layout, MarginLayout):
        check_scale(wins, ridge)
        return fit_margins(wins, data.layout, ridge, start=start, margins=margins, tol=1e-3)
    return fit_strengths(wins, data.layout, ridge, start=start, tol=1e-3), None


def em_step(data: EMData, settings: EMSettings, state: State) -> State:
    """One EM iteration: centroids and strengths from responsibilities, then responsibilities.

    Its objective is evaluated where the responsibilities are optimal, so that
    ``L = -T sum_q log sum_k exp(-l(q,k) / T) + ridge / 2 sum_k |theta_k|^2``, the same number as
    the definition with the entropy written out (an order effect adds its ridge).
    """
    responsibilities = state.responsibilities
    centroids = fit_centroids(data.embeddings, responsibilities, state.centroids)
    strengths, margins = state.strengths, state.margins
    if settings.uses_comparisons:
        strengths, margins = fit_clusters(
            data, responsibilities, settings.ridge, strengths, margins
        )
    return e_step(data, settings, strengths, centroids, margins)


def e_step(
    data: EMData,
    settings: EMSettings,
    strengths: FloatArray,
    centroids: FloatArray,
    margins: Margins | None = None,
) -> State:
    """Set responsibilities to their optimum, r_qk proportional to exp(-l(q,k) / T)."""
    temperature = settings.temperature
    constant = 0.0
    scores: FloatArray | None = None
    if settings.uses_embeddings:
        concentration = settings.embedding_weight / temperature
        scores = data.embeddings @ (centroids * concentration).T
        constant = settings.embedding_weight * len(data.embeddings)
    if settings.uses_comparisons:
        evidence = log_evidence(strengths, data.counts, *(margins or ()))
        evidence /= temperature
        if scores is None:
            scores = evidence
        else:
            scores += evidence
    if scores is None:  # embedding-only with embedding_weight 0: nothing tells clusters apart
        scores = np.zeros((len(data.embeddings), len(strengths)), data.embeddings.dtype)
    responsibilities, log_total = softmax_rows(scores)
    objective = constant - temperature * float(log_total.sum(dtype=np.float64))
    if settings.uses_comparisons:
        objective += settings.ridge / 2 * float((strengths**2).sum())
        if margins is not None:
            objective += settings.ridge / 2 * margins.order_effect**2
    return State(responsibilities, strengths, centroids, objective, scores, log_total, margins)


def mean_divergence(new: State, old: State) -> float:
    """Mean over queries of KL(r_new || r_old), from unnormalised log responsibilities."""
    # Rows in the precision they come in, their sum in double: a conversion of all is slower.
    change = np.einsum("qk,qk->q", new.responsibilities, new.scores - old.scores)
    change -= new.log_total - old.log_total
    return max(0.0, float(change.sum(dtype=np.float64))) / len(change)


def has_settled(new: State, old: State, tol: float, centroid_tol: float) -> bool:
    """Tell whether neither centroids nor responsibilities have moved further than they may."""
    moved = np.sqrt(((new.centroids - old.centroids) ** 2).sum(axis=1)).max()
    return bool(moved < centroid_tol) and mean_divergence(new, old) < tol


def run_em(
    data: EMData,
    em: EMSettings,
    responsibilities: FloatArray,
    max_iter: int,
    tol: float,
    centroid_tol: float,
    bar: tqdm[Any],
) -> tuple[State, list[float], bool]:
    """Iterate one start to convergence: the last state, the objective's history, whether it met."""
    state = start_state(data, responsibilities)
    history: list[float] = []
    for _ in range(max_iter):
        new = em_step(data, em, state)
        history.append(new.objective)
        bar.update()
        moved = float(np.sqrt(((new.centroids - state.centroids) ** 2).sum(axis=1)).max())
        # The start's responsibilities may hold zeros and no scores: it is never the last but one.
        settled = len(history) > 1 and moved < centroid_tol and mean_divergence(new, state) < tol
        state = new
        if settled:
            return state, history, True
    return state, history, False


def start_state(data: EMData, responsibilities: FloatArray) -> State:
    """Make the state before the first iteration, of which only responsibilities matter."""
    start = np.asarray(responsibilities, dtype=data.embeddings.dtype)
    n_clusters = start.shape[1]
    return State(
        responsibilities=start,
        strengths=np.zeros((n_clusters, data.layout.n_models)),
        centroids=np.zeros((n_clusters, data.embeddings.shape[1]), data.embeddings.dtype),
        objective=math.inf,
        scores=start,
        log_total=np.zeros(len(start)),
    )
