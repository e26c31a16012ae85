"""Posterior predictive draws have the frequencies that the posterior says."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import expit

from bayes_ecc import Comparisons, posterior_predictive
from bayes_ecc.posterior import make_posterior


def test_outcomes_have_the_mixture_s_chances_and_hang_together_within_a_query() -> None:
    n_draws, theta = 4000, 3.0
    strengths = np.array([[theta, -theta], [-theta, theta]]) / 2
    comparisons = Comparisons.from_arrays(
        [0, 0], [0, 0], [1, 1], [1.0, 1.0], queries=["q"], models=["a", "b"]
    )
    tree = make_posterior(
        strengths=np.broadcast_to(strengths, (1, n_draws, 2, 2)),
        centroids=np.broadcast_to(np.eye(2), (1, n_draws, 2, 2)),
        weights=np.full((1, n_draws, 2), 0.5),
        models=pd.Index(["a", "b"]),
        concentration=1.0,
        evidence_power=1.0,
        probe_power=1.0,
        rule="per_comparison",
        estimator="test",
        settings={},
        training=(comparisons, np.array([[1.0, 0.0]])),
    )
    drawn = posterior_predictive(tree, rng=0)["posterior_predictive"]["outcome"].values[0]
    first = expit(1.0)  # the embedding is the first centroid: exp(1) against exp(0)
    single = first * expit(-theta) + (1 - first) * expit(theta)
    both = first * expit(-theta) ** 2 + (1 - first) * expit(theta) ** 2
    error = 4 * np.sqrt(0.25 / n_draws)
    assert abs(drawn[:, 0].mean() - single) < error
    assert abs(drawn[:, 1].mean() - single) < error
    assert abs((drawn.sum(axis=1) == 2).mean() - both) < error
    assert abs(both - single**2) > 2 * error  # so that independence would be noticed
    assert "posterior_predictive" not in tree.children
