"""Where bundles come from: a simulator with known truth."""

from bayes_ecc.datasets.simulate import Simulation, simulate

__all__ = ["Simulation", "simulate"]
