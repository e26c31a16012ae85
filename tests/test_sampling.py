"""How chains are run: what they cost beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from bayes_ecc import simulate
from bayes_ecc.models.ecc_mixture import ecc_mixture
from bayes_ecc.samplers import initial_values
from bayes_ecc.sampling import sample_mixture


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_chains_start_no_threads_of_linear_algebra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked processes inherit the limit; without it chains take several times as long."""
    data = simulate(n_queries=30, n_models=4, n_clusters=2, embedding_dim=4, per_query=3, rng=0)
    model = ecc_mixture(
        data.embeddings, data.comparisons.outcome_counts(), n_clusters=2, concentration=4.0
    )
    start = initial_values(model, data.labels, rng=0)
    seen: list[set[int]] = []
    sample = pm.sample

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append(blas_threads())
        return sample(*args, **kwargs)

    monkeypatch.setattr(pm, "sample", watched)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        sample_mixture(
            model, [start], sampler="gibbs", tune=1, draws=2, rng=np.random.default_rng(0), cores=1
        )
        assert blas_threads() == before
    assert seen == [{1}]
