"""The Gibbs sweep as a PyMC step method: `with model: pm.sample(step=PolyaGammaGibbs())`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, DTypeLike, NDArray
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.util import get_random_generator
from rich.progress import TextColumn
from rich.table import Column
from scipy import special

from bayes_ecc.errors import InputError
from bayes_ecc.models.ecc_mixture import mixture_inputs
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.samplers.gibbs import draw_parameters, gibbs_sweep
from bayes_ecc.samplers.problem import (
    GibbsProblem,
    GibbsState,
    cumulative_responsibilities,
    log_prior,
)
from bayes_ecc.samplers.von_mises_fisher import random_von_mises_fisher

type FloatArray = NDArray[np.floating[Any]]
type Point = dict[str, NDArray[Any]]

_SHARED = ("tie_margin", "order_effect")


class PolyaGammaGibbs(BlockedStep):
    """Update all variables of a model made by `ecc_mixture` by Gibbs sampling.

    Clusters and Polya-Gamma variables are drawn on the way and thrown away, so that the chain is
    one for the marginal model: the same posterior as that of NUTS on it.

    Parameters
    ----------
    vars : list, optional
        The model's variables; all of them, which is the default.
    model : pymc.Model, optional
        A model made by `ecc_mixture`; by default that of the context.
    rng : numpy.random.Generator or int, optional
        Randomness; `pm.sample` hands each chain its own.
    dtype : data type
        Precision of what has one value per query and cluster. 32-bit is twice as fast and adds an
        error of about 1e-6 to a query's responsibilities.

    Attributes
    ----------
    stats_dtypes_shapes : dict
        What is recorded with each draw: `log_joint`, the sum over queries of log p(x_q, y_q);
        `log_density`, that plus the log prior in the model's own units (centroids uniform);
        `model_logp`, PyMC's log density of the transformed variables, stored as `lp`; and
        `occupied`, the number of clusters that had queries.

    Raises
    ------
    InputError
        If the model was not made by `ecc_mixture`, or only some variables are given.

    Examples
    --------
    >>> import pymc as pm
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.ecc_mixture import ecc_mixture
    >>> from bayes_ecc.samplers import PolyaGammaGibbs
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> with ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=8.0):
    ...     trace = pm.sample(
    ...         draws=20, tune=10, chains=2, cores=1, step=PolyaGammaGibbs(), random_seed=0,
    ...         progressbar=False, quiet=True, compute_convergence_checks=False,
    ...     )
    >>> dict(trace.posterior["strengths"].sizes)
    {'chain': 2, 'draw': 20, 'cluster': 2, 'llm': 4}
    """

    name = "polya_gamma_gibbs"
    default_blocked = True
    default_tune_steps = 500
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {
        "log_joint": (np.float64, []),
        "log_density": (np.float64, []),
        "model_logp": (np.float64, []),
        "occupied": (np.int64, []),
    }
    _state_class = StepMethodState

    def __init__(
        self,
        vars: Any = None,  # noqa: A002 (PyMC's name for it)
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        dtype: DTypeLike = np.float32,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        inputs = mixture_inputs(model)
        self.vars = list(model.value_vars)
        if vars is not None:
            given = {model.rvs_to_values.get(variable, variable).name for variable in vars}
            missing = [variable.name for variable in self.vars if variable.name not in given]
            if missing:
                raise InputError(
                    "PolyaGammaGibbs updates all variables at once, but these would be left out: "
                    f"{', '.join(missing)}; give it no variables."
                )
        self.blocked = blocked
        self.tune = True
        self.rng = get_random_generator(rng)
        self._problem = _problem(model, dtype)
        self._dim = inputs.embeddings.shape[1]
        self._fixed = _fixed_values(model)
        self._names = {rv.name: model.rvs_to_values[rv].name for rv in model.free_RVs}
        self._known: tuple[Point, GibbsState, FloatArray] | None = None

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain: take its generator and forget where the last one was."""
        super().setup_chain(rng, tune, draws)
        self._known = None

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Move the chain by one sweep."""
        state, cumulative = self._where(point)
        state, labels = gibbs_sweep(state, self._problem, self.rng, cumulative=cumulative)
        # Computed for the state's statistics, and used again to draw the next labels.
        cumulative, log_joint = cumulative_responsibilities(state, self._problem)
        radius = np.sqrt(self.rng.chisquare(self._dim, size=(len(state.centroids), 1)))
        new = self._write(state, radius * state.centroids, point)
        self._known = (new, state, cumulative)
        log_density = log_joint + log_prior(state, self._problem)
        stats = {
            "log_joint": log_joint,
            "log_density": log_density,
            "model_logp": log_density + self._log_jacobian(state, radius),
            "occupied": np.count_nonzero(np.bincount(labels)),
        }
        return new, [stats]

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[Any]]]:
        columns = [
            TextColumn(
                "{task.fields[log_density]:.0f}", table_column=Column("Log density", ratio=1)
            ),
            TextColumn("{task.fields[occupied]}", table_column=Column("Occupied", ratio=1)),
        ]
        return columns, {"log_density": [0.0] * n_chains, "occupied": [0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any, ...]:
        return (lambda stats: {key: stats[key] for key in ("log_density", "occupied")},)

    def _where(self, point: Point) -> tuple[GibbsState, FloatArray | None]:
        """Read a state from PyMC's point; if it's where the last step ended, all is known."""
        if self._known is not None:
            last, state, cumulative = self._known
            if all(np.array_equal(last[name], point[name]) for name in last):
                return state, cumulative
        values = {name: np.asarray(point[at], dtype=float) for name, at in self._names.items()}
        if "weights" in values:
            logits = np.append(values["weights"], -values["weights"].sum())
            values["weights"] = special.softmax(logits)
        if "tau" in values:
            values["tau"] = np.exp(values["tau"])
        if "tie_margin" in values:
            values["tie_margin"] = np.exp(values["tie_margin"])
        values |= self._fixed
        raw = values.pop("centroids_raw")
        length = np.linalg.norm(raw, axis=1, keepdims=True)
        # PyMC starts from zeros: all clusters are alike then, and the first labels random.
        centroids = raw / np.where(length > 0, length, 1.0)
        return GibbsState(
            weights=values["weights"],
            global_strengths=values["global_strengths"],
            tau=float(values["tau"]),
            strengths=values["strengths"],
            centroids=centroids,
            **{name: float(values[name]) for name in _SHARED if name in values},
        ), None

    def _write(self, state: GibbsState, raw: FloatArray, point: Point) -> Point:
        """Write a state as a point, in the order of the last one: PyMC reads by position."""
        log_weights = np.log(state.weights)
        values = {
            "weights": log_weights[:-1] - log_weights.mean(),
            "global_strengths": state.global_strengths,
            "tau": math.log(state.tau),
            "strengths": state.strengths,
            "centroids_raw": raw,
            "tie_margin": math.log(state.tie_margin),
            "order_effect": state.order_effect,
        }
        new = {at: values[name] for name, at in self._names.items()}
        return {at: np.asarray(new[at], dtype=point[at].dtype) for at in point}

    def _log_jacobian(self, state: GibbsState, radius: FloatArray) -> float:
        """Log density of the raw centroids, and the Jacobians of the logs and the weights."""
        size = state.centroids.size
        total = -0.5 * float((radius**2).sum()) - 0.5 * size * math.log(2 * math.pi)
        if self._problem.tau_scale is not None:
            total += math.log(state.tau)
        if self._problem.tie_weight is not None:
            total += math.log(state.tie_margin)
        if self._problem.weight_alpha is not None:
            total += math.log(len(state.weights)) + float(np.log(state.weights).sum())
        return total


def initial_values(
    model: pm.Model, labels: ArrayLike, *, rng: RandomState = None
) -> dict[str, FloatArray]:
    """Draw starting values for one chain, given a cluster for each query.

    Parameters
    ----------
    model : pymc.Model
        A model made by `ecc_mixture`.
    labels : array-like of int, shape (n_queries,)
        Clusters to start from: random ones, or those of another fit.
    rng : int, numpy.random.Generator or None
        Randomness of the draw.

    Returns
    -------
    dict of str to ndarray
        Values of the free variables for `pm.sample(initvals=...)`, one such dict a chain.

    Raises
    ------
    InputError
        If the model was not made by `ecc_mixture` or the labels don't fit it.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.ecc_mixture import ecc_mixture
    >>> from bayes_ecc.samplers import initial_values
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> model = ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=8.0)
    >>> start = initial_values(model, np.arange(50) % 2, rng=0)
    >>> start["strengths"].shape
    (2, 4)
    """
    inputs = mixture_inputs(model)
    z = np.asarray(labels)
    if z.shape != (len(inputs.embeddings),) or z.dtype.kind not in "iu":
        raise InputError(
            f"labels has shape {z.shape} and type {z.dtype}; give one whole number for each of the "
            f"{len(inputs.embeddings)} queries."
        )
    if len(z) and not (z.min() >= 0 and z.max() < inputs.n_clusters):
        raise InputError(
            f"labels lie between {z.min()} and {z.max()}; clusters are numbered from 0 to "
            f"{inputs.n_clusters - 1}."
        )
    generator = as_generator(rng)
    n_clusters, dim = inputs.n_clusters, inputs.embeddings.shape[1]
    fixed = _fixed_values(model)
    state = GibbsState(
        weights=np.full(n_clusters, 1 / n_clusters),
        global_strengths=np.zeros(inputs.n_models),
        tau=float(fixed.get("tau", inputs.priors.tau_scale)),
        strengths=np.zeros((n_clusters, inputs.n_models)),
        centroids=random_von_mises_fisher(np.zeros((n_clusters, dim)), rng=generator),
    )
    state = draw_parameters(z, state, _problem(model, np.float64), generator)
    radius = np.sqrt(generator.chisquare(dim, size=(n_clusters, 1)))
    values = {
        "weights": state.weights,
        "global_strengths": state.global_strengths,
        "tau": np.asarray(state.tau),
        "strengths": state.strengths,
        "centroids_raw": radius * state.centroids,
        "tie_margin": np.asarray(state.tie_margin),
        "order_effect": np.asarray(state.order_effect),
    }
    return {variable.name: values[variable.name] for variable in model.free_RVs}


def _problem(model: pm.Model, dtype: DTypeLike) -> GibbsProblem:
    """Take a model's data and priors; what isn't among its free variables is fixed."""
    inputs, fixed = mixture_inputs(model), _fixed_values(model)
    priors = inputs.priors
    return GibbsProblem.from_counts(
        inputs.embeddings,
        inputs.counts,
        n_clusters=inputs.n_clusters,
        n_models=inputs.n_models,
        concentration=inputs.concentration,
        evidence_power=inputs.evidence_power,
        weight_alpha=None if "weights" in fixed else priors.weight_alpha,
        global_scale=None if "global_strengths" in fixed else priors.global_scale,
        tau_scale=None if "tau" in fixed else priors.tau_scale,
        tie_margin_scale=priors.tie_margin_scale,
        order_effect_scale=priors.order_effect_scale,
        dtype=dtype,
    )


def _fixed_values(model: pm.Model) -> dict[str, Any]:
    """Values of the variables that the model's priors fix."""
    inputs = mixture_inputs(model)
    values = {
        "weights": np.full(inputs.n_clusters, 1 / inputs.n_clusters),
        "global_strengths": np.zeros(inputs.n_models),
        "tau": inputs.priors.tau,
    }
    free = {variable.name for variable in model.free_RVs}
    return {name: value for name, value in values.items() if name not in free}
