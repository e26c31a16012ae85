"""Structure of posteriors: draw by draw against brute force, whatever clusters are numbered."""

from __future__ import annotations

import arviz_base
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit
from sklearn import metrics as sk

from bayes_ecc import (
    ECC,
    BayesianECC,
    InputError,
    NotFittedError,
    as_fitted,
    co_clustering,
    co_clustering_by_label,
    consensus_partition,
    cross_cluster_gap,
    overlap_matrix,
    partition_agreement,
    predict_responsibilities,
    profile_similarity,
    read_partition,
    select_chain,
    simulate,
    structure_draws,
    summarize_cluster_ranking,
    summarize_structure,
    training_data,
    typical_queries,
    within_cluster_tau,
)
from bayes_ecc.posterior import make_posterior


@pytest.fixture(scope="module")
def truth():
    return simulate(n_queries=300, n_models=5, n_clusters=3, rng=1)


@pytest.fixture(scope="module")
def fit(truth):
    estimator = ECC(n_clusters=3, embedding_weight=0.5, ridge=0.3, max_iter=500, rng=0)
    return estimator.fit(truth.comparisons, truth.embeddings)


def drawn_posterior(truth, *, n_chains=2, n_draws=3, chain_weights=None, matched=1, seed=0):
    """A posterior of noisy draws around the truth, each with a numbering of its own."""
    rng = np.random.default_rng(seed)
    k, m = truth.strengths.shape
    centres = np.array([truth.embeddings[truth.labels == j].mean(axis=0) for j in range(k)])
    shape = (n_chains, n_draws)
    strengths = np.empty((*shape, k, m))
    centroids = np.empty((*shape, k, truth.embeddings.shape[1]))
    for place in np.ndindex(shape):
        order = rng.permutation(k)
        strengths[place] = (truth.strengths + rng.normal(0, 0.5, (k, m)))[order]
        noisy = (centres + rng.normal(0, 0.05, centres.shape))[order]
        centroids[place] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    tree = make_posterior(
        strengths=strengths,
        centroids=centroids,
        weights=rng.dirichlet(np.full(k, 5), shape),
        models=truth.comparisons.models,
        concentration=3.0,
        evidence_power=0.7,
        probe_power=3.0,
        rule="per_comparison",
        estimator="test",
        settings={},
        chain_weights=chain_weights,
        training=(truth.comparisons, truth.embeddings),
    )
    tree.attrs["clusters_matched"] = matched
    return tree


def brute_responsibilities(tree, truth):
    """Responsibilities of training queries under every draw, comparison by comparison."""
    draws = tree["posterior"]
    data = truth.comparisons
    for c, d in np.ndindex(draws.sizes["chain"], draws.sizes["draw"]):
        theta, centre = draws["strengths"].values[c, d], draws["centroids"].values[c, d]
        scores = np.log(draws["weights"].values[c, d]) + 3.0 * truth.embeddings @ centre.T
        p = expit(theta[:, data.second] - theta[:, data.first])
        chance = data.outcome * np.log(p) + (1 - data.outcome) * np.log(1 - p)
        for n, q in enumerate(data.query):
            scores[q] += 0.7 * chance[:, n]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        yield scores / scores.sum(axis=1, keepdims=True)


def test_co_clustering_is_the_mean_over_draws(truth):
    weights = np.array([0.75, 0.25])
    tree = drawn_posterior(truth, chain_weights=weights)
    expected = np.zeros((300, 300))
    for s, r in enumerate(brute_responsibilities(tree, truth)):
        expected += weights[s // 3] / 3 * (r @ r.T)
    np.fill_diagonal(expected, 1)
    found = co_clustering(tree, draws=None)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    some = co_clustering(tree, truth.comparisons.queries[[7, 3]])
    np.testing.assert_allclose(some, expected[np.ix_([7, 3], [7, 3])], atol=1e-5)
    assert some["query_other"].values.tolist() == truth.comparisons.queries[[7, 3]].tolist()
    with pytest.raises(InputError, match="'nobody', which is not among the 300"):
        co_clustering(tree, ["nobody"])


def test_co_clustering_by_label_is_the_mean_over_pairs(truth):
    tree = drawn_posterior(truth)
    pairs = co_clustering(tree).values.astype(float)
    found = co_clustering_by_label(tree, truth.labels)
    for a, b in np.ndindex(3, 3):
        block = pairs[np.ix_(truth.labels == a, truth.labels == b)]
        n = len(block)
        expected = (block.sum() - n) / (n * n - n) if a == b else block.mean()
        assert float(found["mean"][a, b]) == pytest.approx(expected, abs=1e-4)
    assert bool((found["lower"] <= found["mean"]).all())
    assert bool((found["upper"] >= found["mean"]).all())


def test_measures_do_not_know_how_clusters_are_numbered(truth):
    tree = drawn_posterior(truth)
    turned = drawn_posterior(truth)
    draws = turned["posterior"].to_dataset()
    rng = np.random.default_rng(5)
    for c, d in np.ndindex(2, 3):
        order = rng.permutation(3)
        for name in ("strengths", "centroids", "weights"):
            draws[name][c, d] = draws[name].values[c, d][order]
    turned["posterior"] = draws
    settings_ = {"labels": truth.labels, "repeats": 0}
    one, other = (structure_draws(t, **settings_) for t in (tree, turned))
    xr.testing.assert_allclose(one, other)
    np.testing.assert_allclose(co_clustering(tree), co_clustering(turned), atol=1e-5)
    pd.testing.assert_frame_equal(consensus_partition(tree), consensus_partition(turned))


def test_measures_of_draws_are_those_of_single_fits(truth):
    tree = drawn_posterior(truth)
    found = structure_draws(tree, labels=truth.topics, repeats=0)
    for s, r in enumerate(brute_responsibilities(tree, truth)):
        c, d = divmod(s, 3)
        theta = tree["posterior"]["strengths"].values[c, d]
        codes = r.argmax(axis=1)
        here = found.isel(chain=c, draw=d)
        similarity = profile_similarity(theta)
        gap = cross_cluster_gap(theta, truth.comparisons, r)
        for name, expected in {
            "profile_tau": similarity["mean"],
            "profile_tau_median": similarity["median"],
            "cross_cluster_gap": gap["mean"],
            "adjusted_rand": sk.adjusted_rand_score(codes, truth.topics),
            "normalized_mutual_information": sk.normalized_mutual_info_score(codes, truth.topics),
            "occupied_clusters": len(np.unique(codes)),
        }.items():
            assert float(here[name]) == pytest.approx(float(expected), abs=1e-6), name


def test_one_draw_gives_the_measures_of_the_fit(truth, fit):
    held_out = simulate(n_queries=80, n_models=5, rng=3)
    probes, scored = held_out.comparisons.take_probes(1)
    table = summarize_structure(
        fit,
        held_out=scored,
        embeddings=held_out.embeddings,
        probes=probes,
        labels=truth.labels,
        repeats=10,
        rng=0,
    )
    shares = fit.predict_responsibilities(held_out.embeddings, probes=probes)
    expected = {
        "profile_tau": profile_similarity(fit)["mean"],
        "cross_cluster_gap": cross_cluster_gap(fit, scored, shares)["mean"],
        "within_cluster_tau": within_cluster_tau(truth.comparisons, fit, rng=0)["mean"],
        "adjusted_rand": partition_agreement(fit, truth.labels).adjusted_rand,
    }
    for name, value in expected.items():
        assert table.loc[name, "mean"] == pytest.approx(float(value), abs=1e-5), name
    assert (table["sd"] == 0).all()
    np.testing.assert_array_equal(table["lower"], table["upper"])


def test_intervals_are_of_arviz_kind_and_probability(truth):
    tree = drawn_posterior(truth, n_draws=40)
    values = structure_draws(tree, repeats=0)["cross_cluster_gap"].values.ravel()
    with arviz_base.rc_context({"stats.ci_prob": 0.5, "stats.ci_kind": "eti"}):
        table = summarize_structure(tree, repeats=0)
    row = table.loc["cross_cluster_gap"]
    np.testing.assert_allclose(row[["lower", "upper"]].tolist(), np.quantile(values, [0.25, 0.75]))
    assert row["mean"] == pytest.approx(values.mean())
    assert table.attrs["ci_prob"] == 0.5
    wide = summarize_structure(tree, repeats=0, prob=0.9, kind="hdi").loc["cross_cluster_gap"]
    assert wide["upper"] - wide["lower"] > row["upper"] - row["lower"]


def test_chain_weights_count(truth):
    tree = drawn_posterior(truth, chain_weights=np.array([1.0, 0.0]))
    first = tree.isel(chain=[0])
    one, other = (summarize_structure(t, repeats=0) for t in (tree, first))
    pd.testing.assert_frame_equal(one, other)
    np.testing.assert_allclose(co_clustering(tree), co_clustering(first), atol=1e-6)
    assert np.isnan(structure_draws(tree, repeats=0)["profile_tau"].values[1]).all()


def test_consensus_is_the_drawn_partition_that_agrees_best(truth):
    tree = drawn_posterior(truth, n_draws=4)
    codes = [r.argmax(axis=1) for r in brute_responsibilities(tree, truth)]
    rand = np.array([[sk.adjusted_rand_score(a, b) for a in codes] for b in codes])
    expected = (rand.sum(axis=1) - 1) / 7
    found = consensus_partition(tree)
    best = codes[int(expected.argmax())]
    assert sk.adjusted_rand_score(found["cluster"], best) == 1.0
    assert found.attrs["expected_adjusted_rand"] == pytest.approx(expected.max())
    assert found.attrs["mean_adjusted_rand"] == pytest.approx(expected.mean())
    assert (np.diff(found["cluster"].value_counts().sort_index()) <= 0).all()
    pairs = co_clustering(tree).values
    for q in (0, 11, 120):
        others = np.flatnonzero(found["cluster"] == found["cluster"].iloc[q])
        others = others[others != q]
        assert found["certainty"].iloc[q] == pytest.approx(pairs[q, others].mean(), abs=1e-5)


def test_of_unmatched_chains_the_one_that_counts_most_is_read(truth):
    tree = drawn_posterior(truth, matched=0, chain_weights=np.array([0.3, 0.7]))
    heaviest = read_partition(tree)
    one = tree.isel(chain=[1])
    comparisons, embeddings = training_data(one)
    by_hand = predict_responsibilities(as_fitted(one), embeddings=embeddings, probes=comparisons)
    np.testing.assert_allclose(heaviest.shares, by_hand, atol=1e-9)
    np.testing.assert_array_equal(
        read_partition(select_chain(tree, 0)).shares, read_partition(tree.isel(chain=[0])).shares
    )
    assert "chain" not in summarize_cluster_ranking(select_chain(tree)).dims
    assert tree.attrs["clusters_matched"] == 0
    with pytest.raises(InputError, match="chain=2: the chains are 0, 1"):
        select_chain(tree, 2)
    with pytest.raises(InputError, match="do not agree on the clusters"):
        profile_similarity(tree)
    matched = drawn_posterior(truth, matched=1)
    assert profile_similarity(matched)["tau"].shape == (3, 3)


def test_drawn_partitions_vary_more(truth):
    tree = drawn_posterior(truth)
    argmax = consensus_partition(tree).attrs["mean_adjusted_rand"]
    drawn = consensus_partition(tree, assignment="drawn", rng=0).attrs["mean_adjusted_rand"]
    assert drawn < argmax
    again = consensus_partition(tree, assignment="drawn", rng=0)
    assert again.attrs["mean_adjusted_rand"] == drawn
    with pytest.raises(InputError, match="assignment='best'"):
        structure_draws(tree, assignment="best")


def test_posterior_measures_refuse_what_they_cannot_read(truth, fit):
    with pytest.raises(InputError, match="DataTree"):
        co_clustering(truth.labels)
    bare = fit.posterior_.copy()
    del bare["observed_data"]
    with pytest.raises(InputError, match="no training data"):
        summarize_structure(bare)
    with pytest.raises(InputError, match="give held_out"):
        summarize_structure(fit, embeddings=truth.embeddings)


def test_nothing_given_is_written_to(truth):
    tree = drawn_posterior(truth)
    before = tree.copy(deep=True)
    labels = truth.labels.copy()
    shares = predict_responsibilities(tree, embeddings=truth.embeddings)
    kept = shares.copy(deep=True)
    structure_draws(tree, labels=labels, rng=0)
    overlap_matrix(shares, labels, soft=True)
    typical_queries(shares, labels, embeddings=truth.embeddings)
    np.testing.assert_array_equal(labels, truth.labels)
    xr.testing.assert_identical(shares, kept)
    assert tree.identical(before)


def test_a_posterior_of_simulated_data_finds_the_known_partition():
    truth = simulate(n_queries=300, n_models=6, n_clusters=3, capability_signal=1.0, rng=0)
    settings_ = {"concentration": 6.0, "probe_power": 3.0, "chains": 2, "tune": 60, "draws": 40}
    fit = BayesianECC(3, checks=False, cores=1, rng=0, **settings_)
    fit.fit(truth.comparisons, truth.embeddings)
    shuffled = np.random.default_rng(0).permutation(truth.labels)
    known, unknown = (
        summarize_structure(fit, labels=labels, repeats=0).loc["adjusted_rand"]
        for labels in (truth.labels, shuffled)
    )
    assert known["lower"] > 0.8
    assert abs(unknown["mean"]) < 0.05
    consensus = consensus_partition(fit)
    agreement = partition_agreement(consensus["cluster"].to_numpy(), truth.labels)
    assert agreement.adjusted_rand > 0.85
    together = co_clustering_by_label(fit, truth.labels)["mean"].values
    assert together.diagonal().min() > 0.7
    assert together[~np.eye(3, dtype=bool)].max() < 0.2
    # less certain of the queries that are in a cluster of another label
    table = pd.crosstab(consensus["cluster"].to_numpy(), truth.labels)
    right = table.idxmax(axis=1)[consensus["cluster"]].to_numpy() == truth.labels
    assert consensus["certainty"][right].mean() > consensus["certainty"][~right].mean() + 0.1


def test_a_fit_is_asked_for_its_responsibilities_once():
    asked = []

    class Fit:
        @property
        def responsibilities_(self):
            asked.append(1)
            return xr.DataArray([[0.8, 0.2], [0.1, 0.9]], dims=("query", "cluster"))

    assert read_partition(Fit()).codes.tolist() == [0, 1]
    assert len(asked) == 1
    with pytest.raises(NotFittedError, match="not fitted"):
        read_partition(BayesianECC(2))
