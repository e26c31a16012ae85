"""Posteriors made of known numbers, and the promise that no figure is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_ecc import Comparisons
from bayes_ecc.posterior import make_posterior

HOSTILE = (
    "$\\frac{1}{$",  # no formula at all
    "_starts_with_underscore",
    "one $ only",
    "<script>alert(1)</script>",
    "two\nlines\tand\x07bell",
    "a" * 300,
    "a" * 299 + "b",
    "org/family/the-model-70b-instruct-v0.1",
    "org/family/the-model-70b-instruct-v0.2",
)


def _fake_posterior(
    n_clusters: int = 3,
    models: int | Sequence[str] = 4,
    *,
    n_draws: int = 60,
    n_chains: int = 1,
    dim: int = 5,
    training: tuple[Comparisons, Any] | None = None,
    rng: int = 0,
) -> xr.DataTree:
    """Draw a posterior from nowhere in particular."""
    generator = np.random.default_rng(rng)
    names = [f"llm_{i}" for i in range(models)] if isinstance(models, int) else list(models)
    lead = (n_chains, n_draws, n_clusters)
    strengths = generator.normal(size=(n_clusters, len(names)))
    strengths = strengths + 0.5 * generator.normal(size=(*lead, len(names)))
    centroids = generator.normal(size=(*lead, dim))
    centroids /= np.linalg.norm(centroids, axis=-1, keepdims=True)
    return make_posterior(
        strengths=strengths,
        centroids=centroids,
        weights=generator.dirichlet(np.full(n_clusters, 5.0), size=lead[:2]),
        models=pd.Index(names),
        concentration=3.0,
        evidence_power=1.0,
        probe_power=2.0,
        rule="per_comparison",
        estimator="none",
        settings={},
        training=training,
    )


def _unmatched(posterior: xr.DataTree, weights: Sequence[float]) -> xr.DataTree:
    """Say of a posterior that its chains' clusters differ, and what the chains weigh."""
    constant = posterior.children["constant_data"].to_dataset(inherit=False)
    view = posterior.copy()
    view["constant_data"] = constant.assign(chain_weights=("chain", np.asarray(weights)))
    view.attrs["clusters_matched"] = 0
    return view


@pytest.fixture
def fake_posterior() -> Callable[..., xr.DataTree]:
    return _fake_posterior


@pytest.fixture
def unmatched() -> Callable[..., xr.DataTree]:
    return _unmatched


@pytest.fixture
def hostile_names() -> list[str]:
    return list(HOSTILE)


@pytest.fixture(autouse=True)
def no_figure_is_left() -> Iterator[None]:
    assert plt.get_fignums() == []
    yield
    plt.close("all")
