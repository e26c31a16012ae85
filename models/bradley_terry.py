"""Bradley-Terry models as PyMC models: one for all queries, or one a label with partial pooling.

The Bayesian counterparts of the global model and of one model a label:

    theta_m ~ Normal(0, global_scale)                                         (global)
    theta_0m ~ Normal(0, global_scale)   tau ~ HalfNormal(tau_scale)
    theta_lm ~ Normal(theta_0m, tau)                                          (hierarchical)
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import InputError

type Tensor = TensorVariable[Any, Any]


def bradley_terry(
    counts: OutcomeCounts,
    *,
    labels: ArrayLike | None = None,
    evidence_power: float = 1.0,
    global_scale: float = 1.0,
    tau_scale: float = 1.0,
    models: Sequence[str] | None = None,
    label_names: Sequence[Hashable] | None = None,
) -> pm.Model:
    """Build a Bradley-Terry model, global or hierarchical over given labels.

    The observed variable is `wins`, the weight of the wins for each pair (and label) that has any.

    Parameters
    ----------
    counts : OutcomeCounts
        Wins per query, from `Comparisons.outcome_counts`.
    labels : array-like of int, shape (n_queries,), optional
        Label of each query, from 0; without it there is one model for all queries.
    evidence_power : float
        What multiplies the log-likelihood of the comparisons.
    global_scale : float
        Standard deviation of the (global) strengths, in logits.
    tau_scale : float
        Scale of the half-normal prior of tau, the spread of the labels' strengths around the
        global ones, in logits.
    models : sequence of str, optional
        Names for the coordinate `llm`; by default as many as the counts need, numbered.
    label_names : sequence, optional
        Names for the coordinate `label`; by default as many as the labels need, numbered.

    Returns
    -------
    pymc.Model
        Global: `strengths` (llm). Hierarchical: `global_strengths` (llm), `tau` and `strengths`
        (label, llm).

    Raises
    ------
    InputError
        If sizes disagree or a setting is out of range.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.models.bradley_terry import bradley_terry
    >>> data = simulate(n_queries=50, n_models=4, per_query=3, rng=0)
    >>> counts = data.comparisons.outcome_counts()
    >>> [variable.name for variable in bradley_terry(counts).free_RVs]
    ['strengths']
    >>> [variable.name for variable in bradley_terry(counts, labels=data.topics).free_RVs]
    ['global_strengths', 'tau', 'strengths']
    """
    for name, value in (
        ("evidence_power", evidence_power),
        ("global_scale", global_scale),
        ("tau_scale", tau_scale),
    ):
        if not 0 < value < math.inf:
            raise InputError(f"{name}={value!r}: give a positive, finite number.")
    needed = int(max(counts.winner.max(initial=1), counts.loser.max(initial=1))) + 1
    if models is not None and len(models) < needed:
        raise InputError(f"models has {len(models)} names but the counts hold {needed} models.")
    coords: dict[str, Any] = {"llm": np.arange(needed) if models is None else list(models)}
    wins = counts.matrix * evidence_power
    if labels is None:
        total = np.asarray(wins.sum(axis=0)).ravel()
        with pm.Model(coords=coords) as model:
            strengths = pm.Normal("strengths", 0.0, global_scale, dims="llm")
            _observe(total, strengths[counts.winner] - strengths[counts.loser])
        return model
    codes = _label_codes(labels, wins.shape[0])
    n_labels = int(codes.max(initial=0)) + 1
    if label_names is not None and len(label_names) < n_labels:
        raise InputError(
            f"label_names has {len(label_names)} names but labels go up to {n_labels - 1}."
        )
    coords["label"] = np.arange(n_labels) if label_names is None else list(label_names)
    coo = wins.tocoo()
    size = n_labels * wins.shape[1]
    cell = codes[coo.row] * wins.shape[1] + coo.col
    total = np.bincount(cell, weights=coo.data, minlength=size)
    label, column = np.divmod(np.flatnonzero(total), wins.shape[1])
    with pm.Model(coords=coords) as model:
        centre = pm.Normal("global_strengths", 0.0, global_scale, dims="llm")
        tau = pm.HalfNormal("tau", tau_scale)
        strengths = pm.Normal("strengths", centre, tau, dims=("label", "llm"))
        winner, loser = counts.winner[column], counts.loser[column]
        _observe(total[total > 0], strengths[label, winner] - strengths[label, loser])
    return model


def _observe(wins: NDArray[np.floating[Any]], log_odds: Tensor) -> None:
    """Declare the likelihood: wins, not necessarily whole, times their log probability."""
    log_probability = -pt.softplus(-log_odds)
    pm.CustomDist("wins", log_probability, logp=lambda value, log_p: value * log_p, observed=wins)


def _label_codes(labels: ArrayLike, n_queries: int) -> NDArray[np.integer[Any]]:
    codes = np.asarray(labels)
    if codes.shape != (n_queries,) or codes.dtype.kind not in "iu":
        raise InputError(
            f"labels has shape {codes.shape} and type {codes.dtype}; give one whole number for "
            f"each of the {n_queries} queries."
        )
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise InputError(f"labels, row {row}: found {codes[row]}; labels are numbered from 0.")
    return codes
