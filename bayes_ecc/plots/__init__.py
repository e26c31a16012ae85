"""Plots of data, fits and studies, which give matplotlib Axes.

`plot_ranks`, `plot_cluster_ranks`, `plot_p_best` and `plot_responsibilities` take a fit, its
posterior or the summary made of it alike, `plot_query_map` and `plot_em_against_posterior` a fit or
its posterior. The others take what their name says: predictions with the comparisons they are held
against (`plot_reliability`, `plot_entropy`), the table of a study, an onboarding's history, an
overlap matrix.

Without `ax` a new figure is made, which `ax.figure` gives; further keywords go to what draws the
dots, lines or cells. Intervals are ArviZ's, in its current kind and probability unless told
otherwise. Where the clusters of chains are not the same, the chain that counts most is shown, and
named in the title.
"""

from bayes_ecc.plots.calibration import plot_reliability
from bayes_ecc.plots.curves import plot_gain_curve, plot_onboarding
from bayes_ecc.plots.fits import plot_em_against_posterior, plot_objective
from bayes_ecc.plots.maps import plot_overlap, plot_query_map
from bayes_ecc.plots.rankings import plot_cluster_ranks, plot_p_best, plot_ranks
from bayes_ecc.plots.responsibilities import plot_entropy, plot_responsibilities
from bayes_ecc.plots.routing import (
    plot_cost_quality,
    plot_quality_calibration,
    plot_risk_coverage,
)

__all__ = [
    "plot_cluster_ranks",
    "plot_cost_quality",
    "plot_em_against_posterior",
    "plot_entropy",
    "plot_gain_curve",
    "plot_objective",
    "plot_onboarding",
    "plot_overlap",
    "plot_p_best",
    "plot_quality_calibration",
    "plot_query_map",
    "plot_ranks",
    "plot_reliability",
    "plot_responsibilities",
    "plot_risk_coverage",
]
