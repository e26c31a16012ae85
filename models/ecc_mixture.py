"""The Bayesian companion of evidence-calibrated clustering, as one marginal PyMC model.

    pi ~ Dirichlet(alpha)                     c_k uniform on the sphere
    theta_0m ~ Normal(0, global_scale)        tau ~ HalfNormal(tau_scale)
    theta_km ~ Normal(theta_0m, tau)
    p(x_q, y_q) = sum_k pi_k exp(kappa x_q . c_k) prod_(n of q) BT(y_n | theta_k)^w

Counts with ties or directions (`bayes_ecc.ties` has their likelihood) add what all clusters share,

    delta ~ HalfNormal(tie_margin_scale)      gamma ~ Normal(0, order_effect_scale)

The cluster of a query is summed out, so that the density can be differentiated; the normaliser of
the von Mises-Fisher part is left out, kappa being given.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.sparse as pts
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import InputError
from bayes_ecc.random import RandomState, as_generator

type FloatArray = NDArray[np.floating[Any]]
type Tensor = TensorVariable[Any, Any]

_TINY = 1e-24


@dataclass(frozen=True)
class Priors:
    """Priors of the mixture; the defaults suit strengths on the logit scale.

    With the defaults the difference of two models' strengths has a prior standard deviation of 2,
    so that a win probability lies between 0.1 and 0.9 three times in four.

    Attributes
    ----------
    weight_alpha : float or None
        Dirichlet concentration of the cluster weights, each; None fixes them at 1 / K. The default
        of 1 is uniform.
    global_scale : float or None
        Standard deviation of the global strengths, in logits; None fixes these at 0.
    tau_scale : float
        Scale of the half-normal prior of tau, the spread of the clusters' strengths around the
        global ones, in logits.
    tau : float or None
        A value at which to fix tau; None learns it.
    tie_margin_scale : float
        Scale of the tie margin's half-normal prior, in logits, where ties are learnt. Equal models
        tie with chance tanh(margin / 2): at the default of 1, one time in ten or so to one in two.
    order_effect_scale : float
        Standard deviation of the order effect, in logits, where it is learnt.

    Raises
    ------
    InputError
        If a value is not positive and finite.

    Examples
    --------
    >>> from bayes_ecc.models.ecc_mixture import Priors
    >>> priors = Priors(tau_scale=0.5)
    >>> priors.tau_scale, priors.global_scale
    (0.5, 1.0)
    """

    weight_alpha: float | None = 1.0
    global_scale: float | None = 1.0
    tau_scale: float = 1.0
    tau: float | None = None
    tie_margin_scale: float = 1.0
    order_effect_scale: float = 0.5

    def __post_init__(self) -> None:
        fixable = ("weight_alpha", "global_scale", "tau")
        for name in (*fixable, "tau_scale", "tie_margin_scale", "order_effect_scale"):
            value = getattr(self, name)
            if value is None and name in fixable:
                continue
            if not isinstance(value, int | float | np.number) or not 0 < value < math.inf:
                raise InputError(f"{name}={value!r} of Priors: give a positive, finite number.")

    @classmethod
    def matched(cls, temperature: float, ridge: float) -> Priors:
        """Give the priors under which ECC's objective is a negative log density.

        Parameters
        ----------
        temperature, ridge : float
            ECC's settings; both positive.

        Returns
        -------
        Priors
            Weights 1 / K, global strengths 0, tau = sqrt(temperature / ridge). The rest of the
            matched model is evidence power 1 / temperature on per-query means and concentration
            embedding_weight / temperature, on unprojected embeddings.

        Raises
        ------
        InputError
            If a setting is not positive.

        Examples
        --------
        >>> from bayes_ecc.models.ecc_mixture import Priors
        >>> f"{Priors.matched(temperature=0.1, ridge=0.4).tau:.2f}"
        '0.50'
        """
        if not (temperature > 0 and ridge > 0):
            raise InputError(
                f"temperature={temperature!r} and ridge={ridge!r}: the matched model needs both "
                "positive."
            )
        return cls(weight_alpha=None, global_scale=None, tau=math.sqrt(temperature / ridge))


@dataclass(frozen=True)
class MixtureInputs:
    """What a mixture was built from; `mixture_inputs` finds it again.

    Attributes
    ----------
    embeddings : ndarray, shape (n_queries, embedding_dim)
    counts : OutcomeCounts
        Wins per query.
    n_clusters, n_models : int
    concentration, evidence_power : float
    priors : Priors

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.ecc_mixture import ecc_mixture, mixture_inputs
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> model = ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=8.0)
    >>> mixture_inputs(model).n_models
    4
    """

    embeddings: FloatArray
    counts: OutcomeCounts
    n_clusters: int
    n_models: int
    concentration: float
    evidence_power: float
    priors: Priors


def ecc_mixture(
    embeddings: ArrayLike,
    counts: OutcomeCounts,
    *,
    n_clusters: int,
    concentration: float,
    evidence_power: float = 1.0,
    priors: Priors | None = None,
    queries: Sequence[Hashable] | None = None,
    models: Sequence[str] | None = None,
) -> pm.Model:
    """Build the mixture, marginal over the queries' clusters.

    Free variables are `weights`, `global_strengths`, `tau`, `strengths` and `centroids_raw`;
    `centroids` are the latter at unit length; `tie_margin` and `order_effect` where the counts have
    ties or directions. What the priors fix is there as a constant. The
    observed variable is `joint`: its values are the embeddings, its log-likelihood has
    log p(x_q, y_q) for each query.

    Parameters
    ----------
    embeddings : array-like, shape (n_queries, embedding_dim)
        Unit length, two or more dimensions.
    counts : OutcomeCounts
        Wins per query, from `Comparisons.outcome_counts`; whether ties and order have a say is
        theirs.
    n_clusters : int
        Number of clusters (K).
    concentration : float
        What multiplies x.c (kappa).
    evidence_power : float
        What multiplies the log-likelihood of the comparisons (w).
    priors : Priors, optional
        `Priors()` by default.
    queries : sequence, optional
        Identifiers for the coordinate `query`; positions by default.
    models : sequence of str, optional
        Names for the coordinate `llm`; by default as many as the counts need, numbered.

    Returns
    -------
    pymc.Model
        With coordinates `query`, `cluster`, `llm` and `embedding_dim`.

    Raises
    ------
    InputError
        If sizes disagree, embeddings are not finite and of unit length, or a setting is out of
        range.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.ecc_mixture import ecc_mixture
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> model = ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=8.0)
    >>> [variable.name for variable in model.free_RVs]
    ['weights', 'global_strengths', 'tau', 'strengths', 'centroids_raw']
    """
    inputs = _checked(
        embeddings, counts, n_clusters, models, concentration, evidence_power, priors or Priors()
    )
    n_queries, embedding_dim = inputs.embeddings.shape
    if queries is not None and len(queries) != n_queries:
        raise InputError(f"queries has {len(queries)} names for {n_queries} rows of embeddings.")
    coords = {
        "query": np.arange(n_queries) if queries is None else list(queries),
        "cluster": np.arange(n_clusters),
        "llm": np.arange(inputs.n_models) if models is None else list(models),
        "embedding_dim": np.arange(embedding_dim),
    }
    with pm.Model(coords=coords) as model:
        weights, strengths = _cluster_parameters(inputs)
        shared = _shared_margins(inputs)
        raw = pm.Normal("centroids_raw", dims=("cluster", "embedding_dim"))
        # The last term only keeps PyMC's default start, all zeros, from being undefined.
        length = pt.sqrt(pt.sum(raw**2, axis=-1, keepdims=True) + _TINY)
        centroids = pm.Deterministic("centroids", raw / length, dims=("cluster", "embedding_dim"))
        pm.CustomDist(
            "joint",
            weights,
            centroids,
            strengths,
            *shared,
            logp=_log_joint(inputs),
            signature="(k),(k,d),(k,m)" + ",()" * len(shared) + "->(d)",
            observed=inputs.embeddings,
            dims=("query", "embedding_dim"),
        )
    model.mixture_inputs = inputs
    return model


def mixture_inputs(model: pm.Model) -> MixtureInputs:
    """Find what a mixture was built from.

    Parameters
    ----------
    model : pymc.Model
        A model made by `ecc_mixture`.

    Returns
    -------
    MixtureInputs

    Raises
    ------
    InputError
        If it is another model, or a copy that PyMC transformed (frozen, observed, intervened on).

    Examples
    --------
    See `MixtureInputs`.
    """
    inputs = getattr(model, "mixture_inputs", None)
    if not isinstance(inputs, MixtureInputs):
        raise InputError(
            "This is not a model made by ecc_mixture (or it is a transformed copy of one), so "
            "nobody knows its data; pass the model that ecc_mixture returned."
        )
    return inputs


def prior_win_probabilities(
    model: pm.Model, draws: int = 1000, *, rng: RandomState = None
) -> FloatArray:
    """Draw what the priors say of the chance that one given model beats another in a cluster.

    Parameters
    ----------
    model : pymc.Model
        A model with `strengths`, made by `ecc_mixture` or `bradley_terry`.
    draws : int
        Number of draws.
    rng : int, numpy.random.Generator or None
        Randomness of the draws.

    Returns
    -------
    ndarray, shape (draws,)
        Probabilities before any data. Sensible priors put neither nearly all of them close to 0.5
        nor nearly all of them close to 0 or 1.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.ecc_mixture import ecc_mixture, prior_win_probabilities
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> model = ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=8.0)
    >>> p = prior_win_probabilities(model, rng=0)
    >>> bool(0.05 < (abs(p - 0.5) < 0.1).mean() < 0.5)
    True
    """
    seed = int(as_generator(rng).integers(2**31))
    strengths = pm.draw(model["strengths"], draws=draws, random_seed=seed)
    first, second = strengths.reshape(draws, -1)[:, :2].T
    return 1 / (1 + np.exp(second - first))


# ---------------------------------------------------------------- parts


def _cluster_parameters(inputs: MixtureInputs) -> tuple[Tensor, Tensor]:
    """Declare weights, global strengths, tau and strengths; give the first and the last."""
    priors, n_clusters = inputs.priors, inputs.n_clusters
    if priors.weight_alpha is None or n_clusters == 1:
        constant = pt.constant(np.full(n_clusters, 1 / n_clusters))
        weights = pm.Deterministic("weights", constant, dims="cluster")
    else:
        weights = pm.Dirichlet("weights", np.full(n_clusters, priors.weight_alpha), dims="cluster")
    if priors.global_scale is None:
        zeros = pt.constant(np.zeros(inputs.n_models))
        centre = pm.Deterministic("global_strengths", zeros, dims="llm")
    else:
        centre = pm.Normal("global_strengths", 0.0, priors.global_scale, dims="llm")
    if priors.tau is None:
        tau = pm.HalfNormal("tau", priors.tau_scale)
    else:
        tau = pm.Deterministic("tau", pt.constant(float(priors.tau)))
    return weights, pm.Normal("strengths", centre, tau, dims=("cluster", "llm"))


def _shared_margins(inputs: MixtureInputs) -> list[Tensor]:
    """Declare the tie margin and the order effect, where the counts have use for them."""
    shared = []
    if inputs.counts.tie_weight is not None:
        shared.append(pm.HalfNormal("tie_margin", inputs.priors.tie_margin_scale))
    if inputs.counts.direction is not None:
        shared.append(pm.Normal("order_effect", 0.0, inputs.priors.order_effect_scale))
    return shared


def _log_joint(inputs: MixtureInputs) -> Any:
    """Make the function that gives log p(x_q, y_q) for each query."""
    wins = pts.as_sparse_variable(sparse.csr_matrix(inputs.counts.matrix * inputs.evidence_power))
    winner, loser = inputs.counts.winner, inputs.counts.loser
    direction, ties = inputs.counts.direction, inputs.counts.tie_weight

    def log_joint(
        value: Tensor,
        weights: Tensor,
        centroids: Tensor,
        strengths: Tensor,
        *shared: Tensor,
    ) -> Tensor:
        # PyMC gives parameters a leading axis of length 1 to match the axis of the queries.
        weights, centroids, strengths = weights[0], centroids[0], strengths[0]
        margins = [margin.flatten()[0] for margin in shared]
        gap = strengths[:, loser] - strengths[:, winner]
        if direction is not None:
            gap -= margins[-1] * direction
        if ties is not None:
            gap += margins[0]
        log_win = -pt.softplus(gap)
        table = pt.log(weights) + inputs.concentration * pt.dot(value, centroids.T)
        if ties is not None:
            factor = 2 * margins[0] + pt.log(-pt.expm1(-2 * margins[0]))
            table += (inputs.evidence_power * ties)[:, None] * factor
        return pm.math.logsumexp(table + pts.structured_dot(wins, log_win.T), axis=-1)

    return log_joint


def _checked(
    embeddings: ArrayLike,
    counts: OutcomeCounts,
    n_clusters: int,
    models: Sequence[str] | None,
    concentration: float,
    evidence_power: float,
    priors: Priors,
) -> MixtureInputs:
    x = np.array(embeddings, dtype=float)
    if x.ndim != 2 or x.shape[1] < 2 or len(x) != counts.matrix.shape[0]:
        raise InputError(
            f"embeddings has shape {x.shape}; give one row of two or more coordinates for each of "
            f"the {counts.matrix.shape[0]} queries in the counts."
        )
    length = np.linalg.norm(x, axis=1)
    if not (np.abs(length - 1) < 1e-3).all():
        row = int(np.argmin(np.abs(length - 1) < 1e-3))
        raise InputError(
            f"embeddings, row {row}: found length {length[row]}; rows must have length 1 (divide "
            "by their norm)."
        )
    needed = int(max(counts.winner.max(initial=1), counts.loser.max(initial=1))) + 1
    n_models = needed if models is None else len(models)
    if n_models < needed:
        raise InputError(f"models has {n_models} names but the counts hold {needed} models.")
    if not isinstance(n_clusters, int | np.integer) or n_clusters < 1:
        raise InputError(f"n_clusters={n_clusters!r}: give a whole number, 1 or more.")
    for name, value in (("concentration", concentration), ("evidence_power", evidence_power)):
        if not 0 <= value < math.inf:
            raise InputError(f"{name}={value!r}: give a finite number, 0 or more.")
    if not isinstance(priors, Priors):
        raise InputError(f"priors={priors!r}: give an instance of Priors.")
    x.flags.writeable = False
    return MixtureInputs(
        embeddings=x,
        counts=counts,
        n_clusters=int(n_clusters),
        n_models=n_models,
        concentration=float(concentration),
        evidence_power=float(evidence_power),
        priors=priors,
    )
