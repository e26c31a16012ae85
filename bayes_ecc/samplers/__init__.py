"""Exact conditional draws, and the Gibbs sampler made of them."""

from bayes_ecc.samplers.gibbs import (
    GibbsProblem,
    GibbsState,
    draw_parameters,
    gibbs_sweep,
    log_joint,
    log_prior,
)
from bayes_ecc.samplers.polya_gamma import polya_gamma_moments, random_polya_gamma
from bayes_ecc.samplers.von_mises_fisher import random_von_mises_fisher

__all__ = [
    "GibbsProblem",
    "GibbsState",
    "draw_parameters",
    "gibbs_sweep",
    "log_joint",
    "log_prior",
    "polya_gamma_moments",
    "random_polya_gamma",
    "random_von_mises_fisher",
]
