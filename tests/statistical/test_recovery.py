"""A separated problem: chains from independent starts agree, and they agree on the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from bayes_ecc import BayesianECC, simulate, summarize_responsibilities, summarize_strengths
from bayes_ecc.alignment import match_clusters

pytestmark = pytest.mark.statistical

N_CLUSTERS = 5


@pytest.fixture(scope="module")
def data() -> Any:
    """Embeddings lean as much towards topics as towards what the models can do."""
    return simulate(
        n_queries=600,
        n_models=6,
        n_clusters=N_CLUSTERS,
        embedding_dim=16,
        spread=1.5,
        topic_signal=1.0,
        capability_signal=1.5,
        noise=1.2,
        rng=0,
    )


@pytest.fixture(scope="module")
def fitted(data: Any) -> BayesianECC:
    """All settings but those that a search would choose are the defaults."""
    estimator = BayesianECC(N_CLUSTERS, concentration=6.0, probe_power=1.0, cores=1, rng=0)
    return estimator.fit(data.comparisons, data.embeddings)


def test_independent_chains_agree(fitted: BayesianECC) -> None:
    assert fitted.posterior_["posterior"].sizes["chain"] == 4
    table = fitted.diagnosis_.table
    assert table.loc["rhat", "value"] <= 1.01, table.loc["rhat", "figures"]
    for name in ("ess_bulk", "ess_tail"):
        assert table.loc[name, "value"] >= 400, table.loc[name, "figures"]
    assert table.loc["modes", "verdict"] == "ok", table.loc["modes", "figures"]
    assert not fitted.diagnosis_.failed
    watched = set(fitted.posterior_["invariants"].data_vars)
    assert watched == {
        "log_density", "mean_p_best", "evidence_quantile", "tau", "global_contrast"
    }  # fmt: skip


def test_chains_of_one_solution_predict_alike(fitted: BayesianECC) -> None:
    modes = fitted.diagnosis_.modes
    assert np.ptp(modes["elpd"]) < 5  # nats, of 600 queries
    assert (modes["occupied"] == N_CLUSTERS).all()


def test_the_true_clusters_are_found(data: Any, fitted: BayesianECC) -> None:
    assert fitted.posterior_.attrs["clusters_matched"] == 1
    found = summarize_responsibilities(
        fitted.posterior_, embeddings=data.embeddings, probes=data.comparisons
    )["mean"]
    assert adjusted_rand_score(data.labels, found.argmax("cluster").values) > 0.9


def test_intervals_of_strengths_hold_the_true_ones(data: Any, fitted: BayesianECC) -> None:
    found = summarize_responsibilities(
        fitted.posterior_, embeddings=data.embeddings, probes=data.comparisons
    )["mean"]
    order = match_clusters(np.eye(N_CLUSTERS)[data.labels], found.values)
    interval = summarize_strengths(fitted.posterior_, prob=0.9, kind="eti").isel(cluster=order)
    lower, upper = interval["lower"].values, interval["upper"].values
    # 30 contrasts, of which 25 are free: fewer than 21 of 25 inside has a chance of 3 %.
    assert ((lower <= data.strengths) & (data.strengths <= upper)).mean() >= 0.8
    assert (upper - lower).mean() < 0.6 * 2 * data.strengths.std()
