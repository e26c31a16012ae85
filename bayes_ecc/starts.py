"""Where chains start: at an ECC solution with settings that resemble the mixture's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.ecc import ECC
from bayes_ecc.mixture_settings import MixtureSettings
from bayes_ecc.models.ecc_mixture import Priors

type FloatArray = NDArray[np.floating[Any]]

_ITERATIONS = 50
_SPREAD = 2.0  # logits: the spread of strengths that these starts expect


def em_start(
    comparisons: Comparisons,
    projected: FloatArray,
    settings: MixtureSettings,
    priors: Priors,
    rng: np.random.Generator,
) -> FloatArray:
    """Fit ECC with the settings that resemble the mixture's; give its responsibilities."""
    per_query = 1.0
    if settings.rule == "per_comparison":
        weight = comparisons.query_weight
        per_query = float(weight[weight > 0].mean())
    temperature = 1 / (settings.evidence_power * per_query)
    spread = priors.tau or _SPREAD
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a start need not have converged
        fit = ECC(
            settings.n_clusters,
            embedding_weight=float(settings.concentration) * temperature,
            temperature=temperature,
            ridge=temperature / spread**2,
            max_iter=_ITERATIONS,
            rng=rng,
        ).fit(comparisons, projected)
    return fit.responsibilities_.values.astype(float)


def draw_labels(responsibilities: FloatArray, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw one cluster for each query."""
    cumulative = responsibilities.cumsum(axis=1)
    threshold = rng.random(len(cumulative)) * cumulative[:, -1]
    labels = (cumulative <= threshold[:, None]).sum(axis=1)
    return np.minimum(labels, cumulative.shape[1] - 1)
