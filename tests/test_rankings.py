"""Rankings with their uncertainty, against loops over the draws."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_stats.base import array_stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from bayes_ecc import (
    ECC,
    Comparisons,
    DataWarning,
    InputError,
    cluster_ranking,
    predict_ranking,
    read_draws,
    simulate,
    summarize_cluster_ranking,
    summarize_ranking,
    unit_embeddings,
)
from bayes_ecc import draws as draws_module
from bayes_ecc.inference import iterate_responsibilities, read_signals
from bayes_ecc.intervals import equally_weighted
from bayes_ecc.posterior import make_posterior
from bayes_ecc.rankings import best_set, place_counts

MODELS = ["a", "b", "c", "d", "e"]
WEIGHTS = np.array([0.6, 0.1, 0.3])
EQUAL = np.full(3, 1 / 3)


def make(
    n_chains: int = 3,
    n_draws: int = 9,
    *,
    chain_weights: Any = None,
    matched: int = 1,
    spread: float = 0.7,
) -> xr.DataTree:
    rng = np.random.default_rng(0)
    shape = (n_chains, n_draws, 3)
    centroids = rng.normal(size=(*shape, 4))
    posterior = make_posterior(
        strengths=spread * rng.normal(size=(*shape, len(MODELS)))
        + rng.normal(size=(3, len(MODELS))),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=rng.dirichlet(np.ones(3), size=shape[:2]),
        models=pd.Index(MODELS),
        concentration=2.0,
        evidence_power=1.0,
        probe_power=1.5,
        rule="per_comparison",
        estimator="made",
        settings={},
        chain_weights=chain_weights,
    )
    posterior["constant_data"].attrs["clusters_matched"] = matched
    return posterior


def make_signals(which: str = "embeddings+probes") -> dict[str, Any]:
    embeddings = unit_embeddings(np.random.default_rng(4).normal(size=(6, 4)))
    probes = Comparisons.from_arrays(
        [0, 1, 4], [0, 2, 4], [3, 1, 2], [1.0, 0.0, 0.5], queries=range(6), models=MODELS
    )
    signals = {"embeddings": embeddings, "probes": probes}
    return {name: signals[name] for name in which.split("+")}


def loop_chances(theta: np.ndarray) -> np.ndarray:
    """Mean win probability of each model against the others, written out; (n_models,)."""
    n = len(theta)
    chances = [
        sum(1 / (1 + np.exp(theta[j] - theta[i])) for j in range(n) if j != i) / (n - 1)
        for i in range(n)
    ]
    return np.array(chances)


def cluster_values(posterior: xr.DataTree) -> np.ndarray:
    """Mean win probabilities (chain, draw, cluster, llm)."""
    theta = posterior["posterior"]["strengths"].values
    values = np.empty(theta.shape)
    for place in np.ndindex(theta.shape[:3]):
        values[place] = loop_chances(theta[place])
    return values


def query_values(posterior: xr.DataTree, signals: dict[str, Any]) -> np.ndarray:
    """Mean win probabilities (chain, draw, query, llm)."""
    read = read_draws(posterior)
    known = read_signals(
        read.atoms, embeddings=signals.get("embeddings"), probes=signals.get("probes")
    )
    # shares do not matter here, but draws of chains without any are passed over
    r = np.stack([found for _, _, found in iterate_responsibilities(read.atoms, known)])
    by_cluster = cluster_values(posterior)
    r = r.reshape(*by_cluster.shape[:2], *r.shape[1:])
    return np.einsum("csqk,cskm->csqm", r, by_cluster)


def check_by_loops(
    summary: xr.Dataset, values: np.ndarray, weights: np.ndarray, prob: float, kind: str
) -> None:
    """Hold a summary against loops over values (chain, draw, item, llm) without ties."""
    _, n_draws, n_items, n_models = values.shape
    ranks = rankdata(-values, axis=-1).astype(int)
    share = np.repeat(weights / n_draws, n_draws)
    flat_values = values.reshape(-1, n_items, n_models)
    flat_ranks = ranks.reshape(-1, n_items, n_models)
    chosen = equally_weighted(share)
    for i, m in np.ndindex(n_items, n_models):
        one = {
            name: np.asarray(summary[name])[i, m] for name in summary if "llm" in summary[name].dims
        }
        np.testing.assert_allclose(one["win_probability"], share @ flat_values[:, i, m], atol=1e-6)
        distribution = np.bincount(flat_ranks[:, i, m] - 1, share, n_models)
        np.testing.assert_allclose(one["rank_probability"], distribution, atol=1e-9)
        np.testing.assert_allclose(one["rank"], share @ flat_ranks[:, i, m])
        np.testing.assert_allclose(one["p_best"], distribution[0], atol=1e-9)
        found = (one["win_probability_lower"], one["win_probability_upper"])
        expected = getattr(array_stats, kind)(flat_values[chosen, i, m], prob, axis=-1)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        cumulative = np.cumsum(distribution)
        found = (int(one["rank_lower"]), int(one["rank_upper"]))
        if kind == "eti":
            tail = (1 - prob) / 2
            expected = [next(r for r in range(n_models) if cumulative[r] >= q) + 1
                        for q in (tail, 1 - tail)]  # fmt: skip
            assert list(found) == expected
        else:
            pairs = [
                (high - low, low, high)
                for low, high in itertools.combinations_with_replacement(range(n_models), 2)
                if distribution[low : high + 1].sum() > prob + 1e-9
            ]
            assert found == tuple(place + 1 for place in min(pairs)[1:])
        if np.array_equal(weights, EQUAL):
            more = {"method": "inverted_cdf"} if kind == "eti" else {}
            expected = getattr(array_stats, kind)(flat_ranks[:, i, m], prob, **more)
            assert list(found) == expected.tolist()


# -------------------------------------------------------------------- against loops


@pytest.mark.parametrize("kind", ["eti", "hdi"])
@pytest.mark.parametrize("weights", [EQUAL, WEIGHTS])
@pytest.mark.parametrize("which", ["embeddings", "probes", "embeddings+probes"])
def test_query_rankings_by_loops(which: str, weights: np.ndarray, kind: Any) -> None:
    posterior = make(chain_weights=weights)
    signals = make_signals(which)
    summary = summarize_ranking(posterior, prob=0.83, kind=kind, **signals)
    check_by_loops(summary, query_values(posterior, signals), weights, 0.83, kind)
    assert summary["rank_probability"].dims == ("query", "llm", "place")
    assert summary["place"].values.tolist() == [1, 2, 3, 4, 5]
    assert summary["rank_lower"].dtype.kind == summary["rank_upper"].dtype.kind == "i"
    assert summary.attrs == {
        "ci_prob": 0.83, "ci_kind": kind, "chains": 3, "draws": 27, "checks": "not made",
        "level": 0.83,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["eti", "hdi"])
@pytest.mark.parametrize("weights", [EQUAL, WEIGHTS])
def test_cluster_rankings_by_loops(weights: np.ndarray, kind: Any) -> None:
    posterior = make(chain_weights=weights)
    summary = summarize_cluster_ranking(posterior, prob=0.83, kind=kind)
    check_by_loops(summary, cluster_values(posterior), weights, 0.83, kind)


def test_unmatched_chains_are_ranked_one_by_one() -> None:
    posterior = make(chain_weights=WEIGHTS, matched=0)
    summary = summarize_cluster_ranking(posterior)
    assert summary["rank"].dims == ("chain", "cluster", "llm")
    assert summary["best_set_probability"].dims == ("chain", "cluster")
    for chain in range(3):
        alone = summarize_cluster_ranking(make().isel(chain=[chain]))
        xr.testing.assert_allclose(summary.sel(chain=chain, drop=True), alone)
    matched = summarize_ranking(make(chain_weights=WEIGHTS), **make_signals())
    xr.testing.assert_identical(summarize_ranking(posterior, **make_signals()), matched)


def test_results_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = make(chain_weights=WEIGHTS)
    whole = summarize_ranking(posterior, **make_signals())
    clusters = summarize_cluster_ranking(posterior)
    monkeypatch.setattr(draws_module, "_PART", 4)
    monkeypatch.setattr(draws_module, "_HELD", 300)
    xr.testing.assert_allclose(summarize_ranking(posterior, **make_signals()), whole, atol=1e-6)
    xr.testing.assert_allclose(summarize_cluster_ranking(posterior), clusters)


def test_single_queries_are_ranked_as_in_a_batch() -> None:
    read = read_draws(make(chain_weights=WEIGHTS))
    embeddings = make_signals()["embeddings"]
    batch = summarize_ranking(read, embeddings=embeddings)
    for q in range(6):
        alone = summarize_ranking(read, embeddings=embeddings[[q]], queries=[q])
        xr.testing.assert_allclose(alone, batch.isel(query=[q]), atol=1e-6)


def test_thinning_takes_fewer_draws() -> None:
    posterior = make(3, 9)
    thin = summarize_ranking(posterior, draws=3, **make_signals())
    expected = summarize_ranking(posterior.isel(draw=[1, 4, 7]), **make_signals())
    xr.testing.assert_allclose(thin, expected)
    xr.testing.assert_allclose(
        summarize_cluster_ranking(posterior, draws=3),
        summarize_cluster_ranking(posterior.isel(draw=[1, 4, 7])),
    )


# -------------------------------------------------------------------- what must hold


def test_ranks_are_distributed_over_models_and_places() -> None:
    posterior = make(chain_weights=WEIGHTS)
    for summary in (
        summarize_ranking(posterior, **make_signals()),
        summarize_cluster_ranking(posterior),
    ):
        for dim in ("llm", "place"):
            np.testing.assert_allclose(summary["rank_probability"].sum(dim), 1, rtol=1e-12)
        np.testing.assert_allclose(summary["rank"].sum("llm"), 15)
        np.testing.assert_allclose(summary["win_probability"].mean("llm"), 0.5, atol=1e-6)
        assert (summary["rank_lower"] <= summary["rank_upper"]).all()
        assert (summary["win_probability_lower"] <= summary["win_probability_upper"]).all()


def test_more_uncertainty_widens_intervals_and_sets() -> None:
    sure, unsure = (
        summarize_cluster_ranking(make(3, 100, spread=spread), level=0.9) for spread in (0.05, 1.5)
    )
    for name in ("rank", "win_probability"):
        width = [float((s[f"{name}_upper"] - s[f"{name}_lower"]).mean()) for s in (sure, unsure)]
        assert width[0] < width[1]
    assert sure["in_best_set"].sum() < unsure["in_best_set"].sum()


@pytest.mark.parametrize("level", [0.3, 0.5, 0.75, 0.9, 0.999, 1.0])
def test_best_set_is_the_smallest_that_reaches_the_level(level: float) -> None:
    posterior = make(3, 40, chain_weights=WEIGHTS, spread=1.0)
    summary = summarize_ranking(posterior, level=level, **make_signals())
    assert summary.attrs["level"] == level
    for q in range(6):
        p = summary["p_best"].values[q]
        chosen = summary["in_best_set"].values[q]
        held = float(summary["best_set_probability"][q])
        np.testing.assert_allclose(held, p[chosen].sum())
        assert held >= level - 1e-9
        subsets = [
            sum(subset)
            for size in range(chosen.sum())
            for subset in itertools.combinations(p, size)
        ]
        assert max(subsets) < level - 1e-9
        assert p[chosen].min() >= p[~chosen].max(initial=0.0)


def test_best_sets_are_chosen_reproducibly() -> None:
    p_best = np.array([[0.25, 0.25, 0.25, 0.25], [0.0, 0.5, 0.5, 0.0], [0.4, 0.3, 0.3, 0.0]])
    win = np.array([[0.5, 0.6, 0.4, 0.5], [0.1, 0.6, 0.6, 0.2], [0.6, 0.5, 0.55, 0.1]])
    chosen, probability = best_set(p_best, win, 0.5)
    assert chosen.astype(int).tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0]]
    np.testing.assert_allclose(probability, [0.5, 0.5, 0.7])


# -------------------------------------------------------------------- ties


def brute_force_counts(values: np.ndarray) -> np.ndarray:
    """Places of values (n_models, n_draws, n_items), equal ones sharing theirs."""
    n_models, n_draws, n_items = values.shape
    counts = np.zeros((n_models, n_models, n_items))
    for s, i in np.ndindex(n_draws, n_items):
        for m in range(n_models):
            above = int((values[:, s, i] > values[m, s, i]).sum())
            tied = int((values[:, s, i] == values[m, s, i]).sum())
            counts[m, above : above + tied, i] += 1 / tied
    return counts


@given(st.integers(2, 6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.data())
def test_places_with_ties(n: int, n_draws: int, n_items: int, levels: int, data: Any) -> None:
    seed = data.draw(st.integers(0, 10_000))
    values = np.random.default_rng(seed).integers(levels, size=(n, n_draws, n_items)) / 10
    for dtype in (float, np.float32):
        counts = place_counts(values.astype(dtype))
        np.testing.assert_allclose(counts, brute_force_counts(values), atol=1e-12)


def test_places_of_many_models() -> None:
    values = np.tile(np.arange(300.0)[:, None, None], (1, 2, 3))
    values = np.random.default_rng(0).permuted(values, axis=0)
    counts = place_counts(values)
    np.testing.assert_array_equal(counts, brute_force_counts(values))


def test_rounding_does_not_order_equal_models() -> None:
    values = np.array([[[0.5]], [[0.5 + 3e-7]], [[0.4]], [[0.5 - 3e-7]]], dtype=np.float32)
    third = 1 / 3
    expected = [[third, third, third, 0]] * 2 + [[0, 0, 0, 1], [third, third, third, 0]]
    np.testing.assert_allclose(place_counts(values)[:, :, 0], expected, atol=1e-12)


def test_equal_models_share_places_and_the_best() -> None:
    posterior = make(chain_weights=WEIGHTS)
    strengths = posterior["posterior"]["strengths"].copy()
    strengths[..., 1] = strengths[..., 4] = strengths.max("llm") + 1
    posterior["posterior"] = posterior["posterior"].to_dataset().assign(strengths=strengths)
    for summary in (
        summarize_ranking(posterior, level=0.9, **make_signals()),
        summarize_cluster_ranking(posterior, level=0.9),
    ):
        np.testing.assert_allclose(summary["p_best"].sel(llm=["b", "e"]), 0.5, rtol=1e-9)
        np.testing.assert_allclose(summary["rank"].sel(llm=["b", "e"]), 1.5, rtol=1e-9)
        assert (summary["in_best_set"].sel(llm=["b", "e"])).all()
        assert (summary["in_best_set"].sum("llm") == 2).all()


# -------------------------------------------------------------------- one atom


def test_an_em_fit_is_ranked_as_predicted() -> None:
    data = simulate(n_queries=80, n_models=6, rng=0)
    fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    probes, _ = data.comparisons.take_probes(1)
    signals = {"embeddings": data.embeddings, "probes": probes}
    for summary, known in (
        (summarize_ranking(fit.posterior_, **signals), predict_ranking(fit.posterior_, **signals)),
        (summarize_cluster_ranking(fit.posterior_), cluster_ranking(fit.posterior_)),
    ):
        for name in ("win_probability", "win_probability_lower", "win_probability_upper"):
            np.testing.assert_allclose(summary[name], known["win_probability"], atol=2e-6)
        for name in ("rank", "rank_lower", "rank_upper"):
            np.testing.assert_array_equal(summary[name], known["rank"])
        np.testing.assert_array_equal(summary["p_best"], known["rank"] == 1)
        np.testing.assert_array_equal(summary["in_best_set"], known["rank"] == 1)
        for name in known.coords:
            assert summary[name].equals(known[name])


def test_an_em_fit_with_a_model_never_compared_ties_where_predicted() -> None:
    data = simulate(n_queries=60, n_models=5, rng=0)
    models = [*data.comparisons.models, "never", "nor_this"]
    with pytest.warns(DataWarning, match="Never compared"):
        fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(
            data.comparisons.with_models(models), data.embeddings
        )
    summary = summarize_ranking(fit.posterior_, embeddings=data.embeddings)
    known = predict_ranking(fit.posterior_, embeddings=data.embeddings)
    pair = summary.sel(llm=["never", "nor_this"])
    np.testing.assert_allclose(pair["rank"], known["rank"].sel(llm=["never", "nor_this"]))
    assert (pair["rank"].isel(llm=0) == pair["rank"].isel(llm=1)).all()


# -------------------------------------------------------------------- edges


def test_rankings_are_saved_as_they_are(tmp_path: Path) -> None:
    posterior = make(matched=0)
    for summary in (
        summarize_ranking(posterior, **make_signals()),
        summarize_cluster_ranking(posterior),
    ):
        summary.to_netcdf(tmp_path / "summary.nc", engine="h5netcdf")
        again = xr.load_dataset(tmp_path / "summary.nc", engine="h5netcdf")
        xr.testing.assert_equal(again, summary)
        assert again["in_best_set"].dtype == bool


@pytest.mark.parametrize("level", [0, 1.2, "0.9", True, float("nan")])
def test_levels_out_of_range_are_refused(level: Any) -> None:
    with pytest.raises(InputError, match="level="):
        summarize_cluster_ranking(make(), level=level)


def test_signals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="Give embeddings, probes, or both"):
        summarize_ranking(make())
    with pytest.raises(InputError, match="prob=2"):
        summarize_ranking(make(), prob=2, **make_signals())


def test_failed_checks_go_with_the_ranking() -> None:
    posterior = make()
    posterior.attrs["failed_checks"] = "ess_tail"
    with pytest.warns(DataWarning, match="failed: ess_tail") as caught:
        summary = summarize_ranking(posterior, **make_signals())
    assert len(caught) == 1
    assert summary.attrs["checks"] == "failed: ess_tail"
