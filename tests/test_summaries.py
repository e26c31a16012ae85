"""Summaries of responsibilities, strengths and pairs, against loops over the draws."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import arviz_base
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from arviz_stats.base import array_stats

from bayes_ecc import (
    ECC,
    Comparisons,
    DataWarning,
    InputError,
    atoms,
    load_posterior,
    pairwise,
    predict_responsibilities,
    predict_win_probability,
    read_draws,
    save_posterior,
    simulate,
    summarize_responsibilities,
    summarize_strengths,
    unit_embeddings,
)
from bayes_ecc import draws as draws_module
from bayes_ecc import summaries as summaries_module
from bayes_ecc.intervals import equally_weighted
from bayes_ecc.posterior import make_posterior

MODELS = ["a", "b", "c", "d"]
WEIGHTS = np.array([0.5, 0.15, 0.35])


def make(
    n_chains: int = 3,
    n_draws: int = 7,
    *,
    chain_weights: Any = None,
    matched: int = 1,
    rule: Any = "per_comparison",
    n_clusters: int = 3,
    seed: int = 0,
) -> xr.DataTree:
    rng = np.random.default_rng(seed)
    shape = (n_chains, n_draws, n_clusters)
    centroids = rng.normal(size=(*shape, 3))
    posterior = make_posterior(
        strengths=rng.normal(size=(*shape, len(MODELS))) + rng.normal(size=(n_clusters, 4)),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=rng.dirichlet(np.ones(n_clusters), size=shape[:2]),
        models=pd.Index(MODELS),
        concentration=2.5,
        evidence_power=1.0,
        probe_power=1.7,
        rule=rule,
        estimator="made",
        settings={},
        chain_weights=chain_weights,
    )
    posterior["constant_data"].attrs["clusters_matched"] = matched
    return posterior


def make_signals(which: str, n_queries: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    embeddings = unit_embeddings(rng.normal(size=(n_queries, 3)))
    probes = Comparisons.from_arrays(
        [0, 0, 2, 4],
        [0, 1, 3, 2],
        [1, 2, 0, 3],
        [1.0, 0.5, 0.0, 1.0],
        weight=[1.0, 2.0, 1.0, 0.5],
        queries=[f"q{i}" for i in range(n_queries)],
        models=MODELS,
    )
    signals = {"embeddings": embeddings, "probes": probes}
    return {name: signals[name] for name in which.split("+")}


def loop_responsibilities(posterior: xr.DataTree, signals: dict[str, Any]) -> np.ndarray:
    """Responsibilities (chain, draw, query, cluster), written out."""
    draws, constant = posterior["posterior"], posterior["constant_data"]
    sizes = [draws.sizes[name] for name in ("chain", "draw", "cluster")]
    n_queries = len(next(iter(signals.values()))) if "probes" not in signals else 5
    result = np.empty((*sizes[:2], n_queries, sizes[2]))
    for c, s, q in np.ndindex(*sizes[:2], n_queries):
        score = np.log(draws["weights"].values[c, s])
        if "embeddings" in signals:
            cosines = draws["centroids"].values[c, s] @ signals["embeddings"][q]
            score = score + float(constant["concentration"]) * cosines
        if "probes" in signals:
            probes = signals["probes"]
            rows = np.flatnonzero(probes.query == q)
            total = np.zeros(sizes[2])
            for row in rows:
                theta = draws["strengths"].values[c, s]
                margin = theta[:, probes.second[row]] - theta[:, probes.first[row]]
                p = 1 / (1 + np.exp(-margin))
                y = probes.outcome[row]
                total += probes.weight[row] * (y * np.log(p) + (1 - y) * np.log(1 - p))
            if constant.attrs["evidence_rule"] == "per_query_mean" and len(rows):
                total /= probes.weight[rows].sum()
            score = score + float(constant["probe_power"]) * total
        share = np.exp(score - score.max())
        result[c, s, q] = share / share.sum()
    return result


def resampled(values: np.ndarray, chain_weights: np.ndarray) -> np.ndarray:
    """Equally weighted values (n, ...) of values (chain, draw, ...)."""
    n_draws = values.shape[1]
    flat = values.reshape(-1, *values.shape[2:])
    return flat[equally_weighted(np.repeat(chain_weights / n_draws, n_draws))]


def bounds(values: np.ndarray, prob: float, kind: str) -> np.ndarray:
    """ArviZ's bounds (..., 2) of values (n, ...)."""
    return getattr(array_stats, kind)(np.moveaxis(values, 0, -1), prob, axis=-1)


def by_chain(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("c,c...->...", weights, values.mean(axis=1))


# -------------------------------------------------------------------- draws


@pytest.mark.parametrize("rule", ["per_comparison", "per_query_mean"])
@pytest.mark.parametrize("which", ["embeddings", "probes", "embeddings+probes"])
def test_responsibilities_are_those_of_the_rule(which: str, rule: Any) -> None:
    posterior = make(chain_weights=WEIGHTS, rule=rule)
    signals = make_signals(which)
    expected = by_chain(loop_responsibilities(posterior, signals), WEIGHTS)
    summary = summarize_responsibilities(posterior, **signals)
    np.testing.assert_allclose(summary["mean"], expected, atol=2e-6)
    known = predict_responsibilities(posterior, **signals)
    np.testing.assert_allclose(known, expected, atol=1e-12)
    for name in ("query", "cluster"):
        assert summary[name].equals(known[name])


def test_probes_without_any_comparison_say_nothing() -> None:
    posterior = make()
    nothing = make_signals("probes")["probes"].take([1, 3])
    summary = summarize_responsibilities(posterior, probes=nothing)
    prior = posterior["posterior"]["weights"].mean(("chain", "draw"))
    np.testing.assert_allclose(summary["mean"], np.tile(prior, (2, 1)), atol=1e-6)


def test_results_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    posterior = make(chain_weights=WEIGHTS)
    signals = make_signals("embeddings+probes")
    whole = [f(posterior, **signals) for f in (summarize_responsibilities, pairwise)]
    monkeypatch.setattr(draws_module, "_PART", 6)
    monkeypatch.setattr(draws_module, "_HELD", 150)
    monkeypatch.setattr(summaries_module, "_CELLS", 100)
    cut = [f(posterior, **signals) for f in (summarize_responsibilities, pairwise)]
    for one, other in zip(whole, cut, strict=True):
        xr.testing.assert_allclose(one, other, atol=1e-6)


def test_draws_once_read_serve_every_summary() -> None:
    posterior = make(chain_weights=WEIGHTS)
    read = read_draws(posterior)
    signals = make_signals("embeddings")
    for summarize in (summarize_responsibilities, pairwise):
        xr.testing.assert_identical(summarize(read, **signals), summarize(posterior, **signals))
    xr.testing.assert_identical(summarize_strengths(read), summarize_strengths(posterior))


def test_thinning_keeps_evenly_spaced_draws_of_each_chain() -> None:
    posterior = make(3, 9, chain_weights=WEIGHTS)
    thin = posterior.isel(draw=[1, 4, 7])
    signals = make_signals("embeddings+probes")
    xr.testing.assert_allclose(
        summarize_responsibilities(posterior, draws=3, **signals),
        summarize_responsibilities(thin, **signals),
    )
    xr.testing.assert_allclose(summarize_strengths(posterior, draws=3), summarize_strengths(thin))
    assert summarize_strengths(posterior, draws=3).attrs["draws"] == 9
    assert len(read_draws(posterior, draws=100)) == 27
    with pytest.raises(InputError, match="draws=0"):
        read_draws(posterior, draws=0)


def test_a_chain_without_weight_does_not_count() -> None:
    posterior = make(3, chain_weights=np.array([0.5, 0.0, 0.5]))
    rest = make(3).isel(chain=[0, 2])
    signals = make_signals("embeddings+probes")
    for summarize in (summarize_responsibilities, pairwise):
        xr.testing.assert_allclose(
            summarize(posterior, **signals), summarize(rest, **signals), atol=1e-12
        )
    xr.testing.assert_allclose(summarize_strengths(posterior), summarize_strengths(rest))


def test_a_single_chain_or_draw_can_be_summarised() -> None:
    posterior = make(2, 4, matched=0)
    signals = make_signals("embeddings")
    for part in (posterior.isel(chain=1), posterior.isel(draw=2), posterior.isel(chain=1, draw=0)):
        summary = summarize_responsibilities(part, **signals)
        np.testing.assert_allclose(summary["mean"].sum("cluster"), 1, rtol=1e-6)
    chain = summarize_responsibilities(posterior.isel(chain=1), **signals)
    assert chain["chain"].values.tolist() == [1]


def test_nothing_is_written_to() -> None:
    posterior = make(chain_weights=WEIGHTS)
    before = posterior.copy(deep=True)
    signals = make_signals("embeddings+probes")
    kept = signals["embeddings"].copy()
    summarize_responsibilities(posterior, **signals)
    summarize_strengths(posterior)
    pairwise(posterior)
    assert before.identical(posterior)
    np.testing.assert_array_equal(signals["embeddings"], kept)


# -------------------------------------------------------------------- checks of the fit


def test_failed_checks_are_told_once_and_kept(tmp_path: Path) -> None:
    posterior = make()
    assert summarize_strengths(posterior).attrs["checks"] == "not made"
    posterior.attrs["failed_checks"] = ""
    assert summarize_strengths(posterior).attrs["checks"] == "passed"
    posterior.attrs["failed_checks"] = "rhat, ess_bulk"
    again = load_posterior(save_posterior(posterior, tmp_path / "fit.nc"))
    for summarize in (
        summarize_strengths,
        pairwise,
        lambda tree: summarize_responsibilities(tree, **make_signals("embeddings")),
    ):
        with pytest.warns(DataWarning, match="failed: rhat, ess_bulk") as caught:
            summary = summarize(again)
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert summary.attrs["checks"] == "failed: rhat, ess_bulk"
    with pytest.warns(DataWarning, match="rhat"):
        read = read_draws(again)
    assert summarize_strengths(read).attrs["checks"] == "failed: rhat, ess_bulk"


# -------------------------------------------------------------------- responsibilities


@pytest.mark.parametrize("kind", ["eti", "hdi"])
@pytest.mark.parametrize("weights", [np.full(3, 1 / 3), WEIGHTS])
def test_responsibilities_by_loops(weights: np.ndarray, kind: Any) -> None:
    posterior = make(3, 11, chain_weights=weights)
    signals = make_signals("embeddings+probes")
    r = loop_responsibilities(posterior, signals)
    summary = summarize_responsibilities(posterior, prob=0.8, kind=kind, **signals)
    mean = by_chain(r, weights)
    expected = bounds(resampled(r, weights), 0.8, kind)
    np.testing.assert_allclose(summary["lower"], expected[..., 0], atol=2e-6)
    np.testing.assert_allclose(summary["upper"], expected[..., 1], atol=2e-6)
    most = by_chain(r == r.max(axis=-1, keepdims=True), weights)
    np.testing.assert_allclose(summary["p_most_responsible"], most, atol=1e-6)
    np.testing.assert_allclose(summary["entropy"], -(mean * np.log(mean)).sum(-1), atol=1e-5)
    each = by_chain(-(r * np.log(r)).sum(-1), weights)
    np.testing.assert_allclose(summary["mean_draw_entropy"], each, atol=1e-5)
    assert (summary["mean_draw_entropy"] <= summary["entropy"]).all()
    assert summary.attrs == {
        "ci_prob": 0.8, "ci_kind": kind, "chains": 3, "draws": 33, "checks": "not made"
    }  # fmt: skip


def test_unmatched_chains_are_summarised_one_by_one() -> None:
    posterior = make(3, 6, chain_weights=WEIGHTS, matched=0)
    signals = make_signals("embeddings+probes")
    whole = summarize_responsibilities(posterior, **signals)
    strengths, pairs = summarize_strengths(posterior), pairwise(posterior)
    assert whole["mean"].dims == ("chain", "query", "cluster")
    assert whole["entropy"].dims == ("chain", "query")
    assert strengths["mean"].dims == ("chain", "cluster", "llm")
    assert pairs["p_win"].dims == ("chain", "cluster", "llm", "llm_other")
    spread = np.zeros(5)
    for chain in range(3):
        alone = make(3, 6).isel(chain=[chain])
        expected = summarize_responsibilities(alone, **signals)
        for name in ("mean", "lower", "upper", "p_most_responsible", "entropy"):
            np.testing.assert_allclose(whole[name].sel(chain=chain), expected[name], atol=1e-6)
        spread += WEIGHTS[chain] * expected["mean_draw_entropy"].values
        xr.testing.assert_allclose(
            strengths.sel(chain=chain, drop=True), summarize_strengths(alone)
        )
        xr.testing.assert_allclose(pairs.sel(chain=chain, drop=True), pairwise(alone))
    np.testing.assert_allclose(whole["mean_draw_entropy"], spread, atol=1e-6)
    # what does not depend on the clusters' labels is one answer
    assert pairwise(posterior, **signals)["p_win"].dims == ("query", "llm", "llm_other")
    posterior.attrs["clusters_matched"] = 1  # the tree itself has the last word
    assert "chain" not in summarize_strengths(posterior).dims


def test_clusters_that_cannot_be_told_apart_share_equally() -> None:
    posterior = make(1, 3)
    tree = posterior["posterior"].to_dataset()
    posterior["posterior"] = tree.assign(
        weights=xr.full_like(tree["weights"], 1 / 3),
        centroids=tree["centroids"].isel(cluster=[0, 0, 1]).assign_coords(cluster=range(3)),
    )
    facing = posterior["posterior"]["centroids"].values[0, 0, :1]
    summary = summarize_responsibilities(posterior.isel(draw=[0]), embeddings=facing)
    np.testing.assert_allclose(summary["p_most_responsible"], [[0.5, 0.5, 0.0]])


def test_a_cluster_without_weight_is_never_responsible() -> None:
    posterior = make()
    weights = posterior["posterior"]["weights"].copy()
    weights[..., 1] = 0
    weights /= weights.sum("cluster")
    posterior["posterior"] = posterior["posterior"].to_dataset().assign(weights=weights)
    summary = summarize_responsibilities(posterior, **make_signals("embeddings+probes"))
    assert (summary["upper"].sel(cluster=1) == 0).all()
    assert np.isfinite(summary["mean_draw_entropy"]).all()


# -------------------------------------------------------------------- strengths


@pytest.mark.parametrize("kind", ["eti", "hdi"])
@pytest.mark.parametrize("weights", [np.full(3, 1 / 3), WEIGHTS])
def test_strengths_by_loops(weights: np.ndarray, kind: Any) -> None:
    posterior = make(3, 9, chain_weights=weights)
    theta = posterior["posterior"]["strengths"].values
    contrast = theta - theta.mean(axis=-1, keepdims=True)
    summary = summarize_strengths(posterior, prob=0.75, kind=kind)
    mean = by_chain(contrast, weights)
    np.testing.assert_allclose(summary["mean"], mean)
    np.testing.assert_allclose(summary["mean"].sum("llm"), 0, atol=1e-12)
    np.testing.assert_allclose(summary["sd"], by_chain((contrast - mean) ** 2, weights) ** 0.5)
    expected = bounds(resampled(contrast, weights), 0.75, kind)
    np.testing.assert_allclose(summary["lower"], expected[..., 0])
    np.testing.assert_allclose(summary["upper"], expected[..., 1])
    assert summary["llm"].values.tolist() == MODELS


def test_intervals_follow_arviz_settings() -> None:
    posterior = make(2, 50)
    with arviz_base.rc_context({"stats.ci_prob": 0.6, "stats.ci_kind": "hdi"}):
        summary = summarize_strengths(posterior)
    xr.testing.assert_identical(summary, summarize_strengths(posterior, prob=0.6, kind="hdi"))
    assert (summary.attrs["ci_prob"], summary.attrs["ci_kind"]) == (0.6, "hdi")
    wide = summarize_strengths(posterior, prob=0.95, kind="eti")
    assert (wide["upper"] - wide["lower"] > summary["upper"] - summary["lower"]).all()
    with pytest.raises(InputError, match="prob="):
        summarize_strengths(posterior, prob=1.5)


# -------------------------------------------------------------------- pairs


@pytest.mark.parametrize("weights", [np.full(3, 1 / 3), WEIGHTS])
def test_pairs_in_clusters_by_loops(weights: np.ndarray) -> None:
    posterior = make(3, 8, chain_weights=weights)
    table = pairwise(posterior)
    theta = posterior["posterior"]["strengths"].values
    for k, i, j in np.ndindex(3, 4, 4):
        difference = theta[:, :, k, i] - theta[:, :, k, j]
        win = by_chain(1 / (1 + np.exp(-difference)), weights)
        stronger = by_chain((np.sign(difference) + 1) / 2, weights)
        np.testing.assert_allclose(table["p_win"].values[k, i, j], win)
        np.testing.assert_allclose(table["p_stronger"].values[k, i, j], stronger)


@pytest.mark.parametrize("which", ["embeddings", "probes", "embeddings+probes"])
@pytest.mark.parametrize("weights", [np.full(3, 1 / 3), WEIGHTS])
def test_pairs_on_queries_by_loops(weights: np.ndarray, which: str) -> None:
    posterior = make(3, 8, chain_weights=weights)
    signals = make_signals(which)
    table = pairwise(posterior, **signals)
    theta = posterior["posterior"]["strengths"].values
    r = loop_responsibilities(posterior, signals)
    for q, i, j in np.ndindex(5, 4, 4):
        p = 1 / (1 + np.exp(theta[..., j] - theta[..., i]))
        chance = (r[:, :, q] * p).sum(axis=-1)
        found = table.isel(query=q, llm=i, llm_other=j)
        np.testing.assert_allclose(found["p_win"], by_chain(chance, weights), atol=1e-6)
        stronger = by_chain(chance > 0.5, weights) if i != j else 0.5
        np.testing.assert_allclose(found["p_stronger"], stronger, atol=1e-6)


def test_pairs_and_their_reverse_sum_to_one() -> None:
    posterior = make(chain_weights=WEIGHTS)
    for table in (pairwise(posterior), pairwise(posterior, **make_signals("embeddings"))):
        for name in ("p_win", "p_stronger"):
            square = table[name].values
            np.testing.assert_allclose(square + square.swapaxes(-1, -2), 1, rtol=1e-12)
            assert ((square >= 0) & (square <= 1)).all()


def test_pairs_agree_with_predictions() -> None:
    posterior = make(chain_weights=WEIGHTS)
    signals = make_signals("embeddings+probes")
    table = pairwise(posterior, **signals)["p_win"].values
    rows = signals["probes"]
    predicted = predict_win_probability(posterior, rows, **signals)
    np.testing.assert_allclose(table[rows.query, rows.second, rows.first], predicted, atol=1e-6)


def test_models_without_a_difference_are_equally_strong() -> None:
    posterior = make()
    strengths = posterior["posterior"]["strengths"].copy()
    strengths[..., 2] = strengths[..., 0]
    posterior["posterior"] = posterior["posterior"].to_dataset().assign(strengths=strengths)
    for table in (pairwise(posterior), pairwise(posterior, **make_signals("embeddings"))):
        same = table.sel(llm="a", llm_other="c")
        np.testing.assert_allclose(same["p_win"], 0.5, rtol=1e-12)
        np.testing.assert_allclose(same["p_stronger"], 0.5, rtol=1e-12)


def test_little_but_certain_difference_is_stronger_not_winning() -> None:
    posterior = make(1, 200, n_clusters=1)
    base = np.random.default_rng(0).normal(size=(1, 200, 1, 1))
    strengths = base + np.array([0.0, 0.05, -4.0, 4.0])
    values = (
        posterior["posterior"]
        .to_dataset()
        .assign(strengths=(("chain", "draw", "cluster", "llm"), strengths))
    )
    posterior["posterior"] = values
    pair = pairwise(posterior).sel(llm="b", llm_other="a")
    assert math.isclose(float(pair["p_stronger"].item()), 1.0)
    assert float(pair["p_win"].item()) < 0.52


# -------------------------------------------------------------------- one atom


def test_an_em_fit_is_certain() -> None:
    data = simulate(n_queries=80, n_models=5, rng=0)
    fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    probes, _ = data.comparisons.take_probes(1)
    signals = {"embeddings": data.embeddings, "probes": probes}
    summary = summarize_responsibilities(fit.posterior_, **signals)
    for name in ("mean", "lower", "upper"):
        np.testing.assert_allclose(
            summary[name], fit.predict_responsibilities(**signals), atol=1e-5
        )
    np.testing.assert_allclose(summary["entropy"], summary["mean_draw_entropy"], atol=1e-5)
    assert set(np.unique(summary["p_most_responsible"])) == {0.0, 1.0}
    strengths = summarize_strengths(fit.posterior_)
    for name in ("mean", "lower", "upper"):
        np.testing.assert_allclose(strengths[name], atoms(fit.posterior_).strengths[0], atol=1e-9)
    assert (strengths["sd"] == 0).all()
    assert set(np.unique(pairwise(fit.posterior_)["p_stronger"])) <= {0.0, 0.5, 1.0}


def test_summaries_are_saved_as_they_are(tmp_path: Path) -> None:
    posterior = make(matched=0)
    signals = make_signals("embeddings+probes")
    for summary in (
        summarize_responsibilities(posterior, **signals),
        summarize_strengths(posterior),
        pairwise(posterior),
    ):
        summary.to_netcdf(tmp_path / "summary.nc", engine="h5netcdf")
        again = xr.load_dataset(tmp_path / "summary.nc", engine="h5netcdf")
        xr.testing.assert_equal(again, summary)
        json.dumps(summary.attrs)


def test_signals_that_do_not_fit_are_refused() -> None:
    posterior = make()
    with pytest.raises(InputError, match="Give embeddings, probes, or both"):
        summarize_responsibilities(posterior)
    with pytest.raises(InputError, match="Give embeddings, probes, or both"):
        pairwise(posterior, queries=["q"])
    with pytest.raises(InputError, match="5 dimensions"):
        summarize_responsibilities(posterior, embeddings=np.eye(5))
    with pytest.raises(InputError, match="DataTree"):
        summarize_strengths({"strengths": 1})  # type: ignore[arg-type]
