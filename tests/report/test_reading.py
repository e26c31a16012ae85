"""What a report reads off a fit: clusters, rankings over all queries, typical queries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from bayes_ecc import (
    ECC,
    BayesianECC,
    cluster_ranking,
    summarize_cluster_ranking,
)
from bayes_ecc.report import render_report
from bayes_ecc.report.reading import read_fit

type PageReader = Callable[[str], Any]


def test_reading_of_em_is_its_fit(em: ECC) -> None:
    reading = read_fit(em.posterior_)
    np.testing.assert_allclose(reading.responsibilities, em.responsibilities_, atol=1e-5)
    np.testing.assert_allclose(reading.sizes, em.responsibilities_.sum("query"), atol=1e-2)
    assert (reading.held == em.responsibilities_.values.argmax(axis=1)).all()
    ranking = cluster_ranking(em.posterior_)
    np.testing.assert_allclose(reading.ranking["win_probability"], ranking["win_probability"])


def test_overall_ranking_weighs_clusters_by_their_queries(em: ECC) -> None:
    theta = em.strengths_.values
    share = em.responsibilities_.values.mean(axis=0)
    expected = np.zeros(theta.shape[1])
    for m in range(theta.shape[1]):
        for k in range(len(theta)):
            others = np.delete(theta[k], m)
            expected[m] += share[k] * np.mean(1 / (1 + np.exp(others - theta[k, m])))
    overall = read_fit(em.posterior_).overall
    found = overall["win_probability"].reindex(em.posterior_["posterior"]["llm"].values.tolist())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert overall["win_probability"].is_monotonic_decreasing
    assert overall["rank"].tolist() == [1, 2, 3, 4, 5]


def test_overall_ranking_of_draws_is_counted_draw_by_draw(bayes: BayesianECC) -> None:
    posterior = with_weights(bayes.posterior_, [0.75, 0.25])
    reading = read_fit(posterior)
    theta = posterior["posterior"]["strengths"].values
    n_models = theta.shape[-1]
    win = np.zeros((*theta.shape[:2], n_models))
    for m in range(n_models):
        chances = 1 / (1 + np.exp(np.delete(theta, m, axis=-1) - theta[..., [m]]))
        share = share_by_chain(posterior)
        win[..., m] = np.einsum("csk,ck->cs", chances.mean(axis=-1), share)
    best = win.argmax(axis=-1)
    first = [0.75 * (best[0] == m).mean() + 0.25 * (best[1] == m).mean() for m in range(n_models)]
    order = posterior["posterior"]["llm"].values.tolist()
    np.testing.assert_allclose(reading.overall["p_best"].reindex(order), first, atol=1e-6)
    mean = 0.75 * win[0].mean(axis=0) + 0.25 * win[1].mean(axis=0)
    np.testing.assert_allclose(reading.overall["win_probability"].reindex(order), mean, atol=1e-4)


def with_weights(posterior: xr.DataTree, weights: list[float]) -> xr.DataTree:
    changed = posterior.copy()
    constant = changed["constant_data"].to_dataset(inherit=False)
    changed["constant_data"] = constant.assign(chain_weights=("chain", weights))
    return changed


def share_by_chain(posterior: xr.DataTree) -> np.ndarray:
    """Mean responsibilities (chain, cluster), over the draws that the reading takes."""
    matched = bool(posterior.attrs.get("clusters_matched", 1))
    shares = []
    for chain in range(2):
        one = with_weights(posterior, [1 - chain, chain])
        if not matched:
            one.attrs["clusters_matched"] = 1
        shares.append(read_fit(one).responsibilities.mean(axis=0))
    if matched:
        weights = posterior["constant_data"]["chain_weights"].values
        shares = [weights @ np.stack(shares)] * 2
    return np.stack(shares)


@pytest.mark.parametrize("heavy", [0, 1])
def test_unmatched_clusters_are_those_of_the_heaviest_chain(
    bayes: BayesianECC, heavy: int, read_page: PageReader
) -> None:
    posterior = with_weights(bayes.posterior_, [0.4, 0.6] if heavy else [0.6, 0.4])
    posterior.attrs["clusters_matched"] = 0
    before = posterior["constant_data"]["chain_weights"].values.copy()
    reading = read_fit(posterior)
    assert (reading.chain, reading.chain_weight) == (heavy, 0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the failed checks
        alone = summarize_cluster_ranking(posterior).sel(chain=heavy)
    np.testing.assert_allclose(reading.ranking["p_best"], alone["p_best"])
    assert (posterior["constant_data"]["chain_weights"].values == before).all()
    assert f"those of chain {heavy}" in read_page(render_report(posterior, figures=False)).text


def test_typical_queries_belong_to_their_cluster(em: ECC) -> None:
    reading = read_fit(em.posterior_)
    for k, places in reading.typical(4).items():
        assert (reading.held[places] == k).all()
    assert reading.typical(0) == {}
