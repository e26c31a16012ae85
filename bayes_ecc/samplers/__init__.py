"""Exact conditional draws, and the Gibbs sampler made of them."""

from bayes_ecc.samplers.gibbs import draw_parameters, gibbs_sweep
from bayes_ecc.samplers.polya_gamma import polya_gamma_moments, random_polya_gamma
from bayes_ecc.samplers.problem import (
    GibbsProblem,
    GibbsState,
    cumulative_responsibilities,
    log_joint,
    log_prior,
)
from bayes_ecc.samplers.step import PolyaGammaGibbs, initial_values
from bayes_ecc.samplers.von_mises_fisher import random_von_mises_fisher

__all__ = [
    "GibbsProblem",
    "GibbsState",
    "PolyaGammaGibbs",
    "cumulative_responsibilities",
    "draw_parameters",
    "gibbs_sweep",
    "initial_values",
    "log_joint",
    "log_prior",
    "polya_gamma_moments",
    "random_polya_gamma",
    "random_von_mises_fisher",
]
