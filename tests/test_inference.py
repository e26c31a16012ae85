"""Prediction: exact cases worked out by hand, and loops over atoms, clusters and probes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_expit, log_softmax, softmax

from bayes_ecc import (
    Comparisons,
    InputError,
    SphereProjection,
    cluster_ranking,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
    unit_embeddings,
)
from bayes_ecc.inference import log_evidence, mean_win_probability, softmax_rows
from bayes_ecc.posterior import atoms, make_posterior

CASES = json.loads((Path(__file__).parent / "cases" / "predictions.json").read_text())
RULES = ("per_comparison", "per_query_mean")
seeds = st.integers(0, 2**32 - 1)


def draw_posterior(
    seed, *, rule="per_comparison", n_chains=2, n_draws=3, n_clusters=3, n_models=4, **changes
):
    """A random posterior over 4 dimensions, projected from 6 where the seed is odd."""
    rng = np.random.default_rng(seed)
    shape = (n_chains, n_draws, n_clusters)
    projection = SphereProjection.fit(rng.normal(size=(20, 6)), 4) if seed % 2 else None
    settings = {
        "strengths": rng.normal(0, 2, (*shape, n_models)),
        "centroids": unit_embeddings(rng.normal(size=(np.prod(shape), 4))).reshape(*shape, 4),
        "weights": rng.dirichlet(np.ones(n_clusters), shape[:2]),
        "models": pd.Index([f"m{i}" for i in range(n_models)]),
        "concentration": 2.5,
        "evidence_power": 1.0,
        "probe_power": 3.0,
        "projection": projection,
        "chain_weights": np.array([0.0, *rng.random(n_chains - 1)]) if seed % 3 else None,
    }
    return make_posterior(rule=rule, estimator="made up", settings={}, **(settings | changes))


def draw_queries(seed, posterior, *, n_queries=5, n=11):
    """Embeddings, and soft weighted probes of some of the queries."""
    rng = np.random.default_rng(seed + 1)
    found = atoms(posterior)
    dim = 4 if found.projection is None else 6
    n_models = len(found.models)
    first = rng.integers(n_models, size=n)
    probes = Comparisons.from_arrays(
        rng.integers(n_queries - 1, size=n),  # the last query has none
        first,
        (first + rng.integers(1, n_models, size=n)) % n_models,
        np.where(rng.random(n) < 0.5, rng.random(n), rng.integers(0, 2, n)),
        weight=10 ** rng.uniform(-1, 1, n),
        queries=[f"q{i}" for i in range(n_queries)],
        models=found.models,
    )
    return unit_embeddings(rng.normal(size=(n_queries, dim))), probes


def atom_by_atom(posterior, embeddings, probes, n_queries):
    """The formula, in loops: (share, strengths, responsibilities) of every atom."""
    values = {name: posterior[f"posterior/{name}"].values for name in ("strengths", "centroids")}
    weights = posterior["posterior/weights"].values
    constant = {name: value.values for name, value in posterior["constant_data"].items()}
    averaged = posterior["constant_data"].attrs["evidence_rule"] == "per_query_mean"
    shares = constant["chain_weights"] / sum(constant["chain_weights"])
    n_chains, n_draws, n_clusters = weights.shape
    for c in range(n_chains):
        for d in range(n_draws):
            theta, centroids = values["strengths"][c, d], values["centroids"][c, d]
            scores = np.log(np.tile(weights[c, d], (n_queries, 1)))
            for q in range(n_queries):
                for k in range(n_clusters):
                    if embeddings is not None:
                        x = embeddings[q]
                        if "projection_axes" in constant:
                            x = constant["projection_axes"] @ (x - constant["projection_mean"])
                            x = x / np.linalg.norm(x)
                        scores[q, k] += float(constant["concentration"]) * float(x @ centroids[k])
                    if probes is not None:
                        rows = np.flatnonzero(probes.query == q)
                        evidence = 0.0
                        for n in rows:
                            margin = theta[k, probes.second[n]] - theta[k, probes.first[n]]
                            y = probes.outcome[n]
                            evidence += probes.weight[n] * (
                                y * log_expit(margin) + (1 - y) * log_expit(-margin)
                            )
                        if len(rows) and averaged:
                            evidence /= probes.weight[rows].sum()
                        scores[q, k] += float(constant["probe_power"]) * evidence
            yield shares[c] / n_draws, theta, softmax(scores, axis=1)


def signals_of(embeddings, probes):
    yield {"embeddings": embeddings}
    yield {"probes": probes}
    yield {"embeddings": embeddings, "probes": probes}


# -------------------------------------------------------------------- by hand


def number(value):
    """Read a fraction written as text, and nested lists of them."""
    return [number(v) for v in value] if isinstance(value, list) else float(Fraction(value))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_cases_worked_out_by_hand(case):
    spec = case["posterior"]
    win = np.array(number(spec["win"]))  # P(a beats b) by chain, draw and cluster
    gap = np.log(win / (1 - win))
    shape = win.shape
    posterior = make_posterior(
        strengths=np.stack([gap / 2, -gap / 2], axis=3),
        centroids=np.array(spec.get("centroids", np.zeros((*shape, 2)))),
        weights=np.array(number(spec.get("weights", np.full(shape, "1/2").tolist()))),
        models=pd.Index(["a", "b"]),
        concentration=np.log(spec.get("exp_concentration", 1)),
        evidence_power=1,
        probe_power=spec.get("probe_power", 1),
        rule=spec.get("rule", "per_comparison"),
        chain_weights=spec.get("chain_weights"),
        estimator="by hand",
        settings={},
    )
    known = {}
    if "embedding" in case:
        known["embeddings"] = [case["embedding"]]
    if "probes" in case:
        columns = ["model_a", "model_b", "outcome", "weight"]
        rows = [[*row, 1][:4] for row in case["probes"]]
        frame = pd.DataFrame(rows, columns=columns).assign(query_id="q")
        frame = frame.astype({"outcome": float, "weight": float})
        known["probes"] = Comparisons.from_frame(frame, queries=["q"], models=["b", "a"])
    expected = number(case["responsibilities"])
    found = predict_responsibilities(posterior, **known)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)
    asked = Comparisons.from_arrays([0], [0], [1], [0.5], queries=["q"], models=["a", "b"])
    found = predict_win_probability(posterior, asked, **known)
    np.testing.assert_allclose(found, number([case["b_beats_a"]]), atol=1e-12)


# -------------------------------------------------------------------- by loops


@given(seeds, st.sampled_from(RULES), st.integers(2, 5))
@settings(max_examples=25)
def test_predictions_equal_loops_over_atoms(seed, rule, n_models):
    posterior = draw_posterior(seed, rule=rule, n_models=n_models)
    embeddings, probes = draw_queries(seed, posterior)
    for known in signals_of(embeddings, probes):
        parts = list(atom_by_atom(posterior, known.get("embeddings"), known.get("probes"), 5))
        mean = sum(share * r for share, _, r in parts)
        np.testing.assert_allclose(predict_responsibilities(posterior, **known), mean, atol=1e-12)
        expected = np.zeros(len(probes))
        for n in range(len(probes)):
            i, j = probes.first[n], probes.second[n]
            for share, theta, r in parts:
                for k in range(len(theta)):
                    expected[n] += share * r[probes.query[n], k] * expit(theta[k, j] - theta[k, i])
        found = predict_win_probability(posterior, probes, **known)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert ((found >= 0) & (found <= 1)).all()


@given(seeds, st.sampled_from(RULES))
@settings(max_examples=25)
def test_rankings_equal_loops_over_atoms(seed, rule):
    posterior = draw_posterior(seed, rule=rule)
    embeddings, probes = draw_queries(seed, posterior)
    for known in signals_of(embeddings, probes):
        parts = list(atom_by_atom(posterior, known.get("embeddings"), known.get("probes"), 5))
        win, strength = np.zeros((5, 4)), np.zeros((5, 4))
        for share, theta, r in parts:
            for k in range(3):
                for m in range(4):
                    against = [expit(theta[k, m] - theta[k, o]) for o in range(4) if o != m]
                    win[:, m] += share * r[:, k] * np.mean(against)
                    strength[:, m] += share * r[:, k] * (theta[k, m] - theta[k].mean())
        for by, score in (("win_probability", win), ("strength", strength)):
            table = predict_ranking(posterior, by=by, queries=probes.queries, **known)
            np.testing.assert_allclose(table["win_probability"], win, atol=1e-12)
            np.testing.assert_allclose(table["strength"], strength, atol=1e-12)
            order = np.argsort(-score, axis=1)
            ranks = np.take_along_axis(table["rank"].values, order, axis=1)
            assert (ranks == [1, 2, 3, 4]).all()
            assert table.attrs["ranked_by"] == by
    assert table["query"].values.tolist() == probes.queries.tolist()
    assert table["llm"].values.tolist() == ["m0", "m1", "m2", "m3"]


@given(seeds)
@settings(max_examples=25)
def test_cluster_rankings_equal_loops_over_atoms(seed):
    posterior = draw_posterior(seed)
    win, strength = np.zeros((3, 4)), np.zeros((3, 4))
    for share, theta, _ in atom_by_atom(posterior, None, None, 0):
        for k in range(3):
            for m in range(4):
                against = [expit(theta[k, m] - theta[k, o]) for o in range(4) if o != m]
                win[k, m] += share * np.mean(against)
                strength[k, m] += share * (theta[k, m] - theta[k].mean())
    for by, score in (("win_probability", win), ("strength", strength)):
        table = cluster_ranking(posterior, by=by)
        np.testing.assert_allclose(table["win_probability"], win, atol=1e-12)
        np.testing.assert_allclose(table["strength"], strength, atol=1e-12)
        order = np.argsort(-score, axis=1)
        assert (np.take_along_axis(table["rank"].values, order, axis=1) == [1, 2, 3, 4]).all()


# -------------------------------------------------------------------- what must hold


@given(seeds, st.sampled_from(RULES))
@settings(max_examples=25)
def test_a_pair_and_its_mirror_sum_to_one(seed, rule):
    posterior = draw_posterior(seed, rule=rule)
    embeddings, probes = draw_queries(seed, posterior)
    mirror = Comparisons.from_arrays(
        probes.query,
        probes.second,
        probes.first,
        1 - probes.outcome,
        weight=probes.weight,
        queries=probes.queries,
        models=probes.models,
    )
    for known in signals_of(embeddings, probes):
        one = predict_win_probability(posterior, probes, **known)
        other = predict_win_probability(posterior, mirror, **known)
        np.testing.assert_allclose(one + other, 1, atol=1e-12)
        flipped = {"probes": mirror} if "probes" in known else {}
        again = predict_win_probability(posterior, probes, **(known | flipped))
        np.testing.assert_allclose(again, one, atol=1e-12)


@given(seeds, st.sampled_from(RULES))
@settings(max_examples=25)
def test_the_order_of_models_in_probes_and_questions_means_nothing(seed, rule):
    posterior = draw_posterior(seed, rule=rule)
    embeddings, probes = draw_queries(seed, posterior)
    expected = predict_win_probability(posterior, probes, embeddings=embeddings, probes=probes)
    order = np.random.default_rng(seed).permutation(4)
    other = probes.with_models(["idle", *probes.models[order]])
    for asked, known in ((other, other), (other, probes), (probes, other)):
        found = predict_win_probability(posterior, asked, embeddings=embeddings, probes=known)
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_queries_are_predicted_one_by_one():
    posterior = draw_posterior(4)
    embeddings, probes = draw_queries(4, posterior)
    together = predict_responsibilities(posterior, embeddings=embeddings, probes=probes)
    for q in range(5):
        alone = predict_responsibilities(
            posterior, embeddings=embeddings[[q]], probes=probes.take([q])
        )
        np.testing.assert_allclose(alone[0], together[q], atol=1e-14)
        assert alone["query"].item() == probes.queries[q]


def test_a_query_without_probes_is_read_by_its_embedding():
    posterior = draw_posterior(5)
    embeddings, probes = draw_queries(5, posterior)
    both = predict_responsibilities(posterior, embeddings=embeddings, probes=probes)
    embedding = predict_responsibilities(posterior, embeddings=embeddings)
    probe = predict_responsibilities(posterior, probes=probes)
    np.testing.assert_allclose(both[4], embedding[4], atol=1e-14)
    assert np.abs(both[0] - embedding[0]).max() > 1e-3
    source = atoms(posterior)
    prior = np.einsum("s,sk->k", source.share, np.exp(source.log_weights))
    np.testing.assert_allclose(probe[4], prior, atol=1e-14)


def test_questions_need_not_be_of_queries_with_comparisons():
    posterior = draw_posterior(6)
    embeddings, probes = draw_queries(6, posterior)
    none = probes.rows(np.zeros(len(probes), bool))
    assert predict_win_probability(posterior, none, embeddings=embeddings).shape == (0,)
    by_embedding = predict_responsibilities(posterior, embeddings=embeddings)
    np.testing.assert_allclose(
        predict_responsibilities(posterior, embeddings=embeddings, probes=none), by_embedding
    )
    assert predict_responsibilities(posterior, embeddings=embeddings[:0]).shape == (0, 3)


def test_ranks_by_win_probability_and_by_strength_can_differ():
    # In one cluster `a` loses to all by a landslide, in the other it wins by a little more than b.
    posterior = draw_posterior(
        0,
        n_chains=1,
        n_draws=1,
        n_clusters=2,
        n_models=3,
        strengths=np.array([[[[-30.0, 1.0, 0.0], [2.0, 0.0, -4.0]]]]),
        weights=np.array([[[0.3, 0.7]]]),
        concentration=0.0,
        chain_weights=None,
    )
    embeddings, _ = draw_queries(0, posterior)
    by_win = predict_ranking(posterior, embeddings=embeddings)["rank"].values[0]
    by_strength = predict_ranking(posterior, embeddings=embeddings, by="strength")["rank"].values[0]
    assert by_win.tolist() == [1, 2, 3]
    assert by_strength.tolist() == [3, 1, 2]


def test_equals_share_a_mean_rank():
    posterior = draw_posterior(
        0, n_chains=1, n_draws=1, n_clusters=1, n_models=3, chain_weights=None,
        strengths=np.array([[[[0.5, 0.5, -1.0]]]]), weights=np.ones((1, 1, 1)),
    )  # fmt: skip
    assert cluster_ranking(posterior)["rank"].values.tolist() == [[1.5, 1.5, 3.0]]
    assert mean_win_probability(np.zeros(7)).tolist() == pytest.approx([0.5] * 7)


def test_certain_probes_of_many_comparisons_do_not_overflow():
    posterior = draw_posterior(8, strengths=np.tile([0.0, 300, -300, 900], (2, 3, 3, 1)))
    embeddings, probes = draw_queries(8, posterior)
    many = Comparisons.from_arrays(
        np.zeros(5000, int), np.zeros(5000, int), np.ones(5000, int), np.zeros(5000),
        queries=probes.queries, models=probes.models, weight=np.full(5000, 1e3),
    )  # fmt: skip
    with np.errstate(all="raise", under="ignore"):
        found = predict_responsibilities(posterior, embeddings=embeddings, probes=many)
        win = predict_win_probability(posterior, many, embeddings=embeddings, probes=many)
    np.testing.assert_allclose(found.sum("cluster"), 1, atol=1e-12)
    np.testing.assert_allclose(win, 1, rtol=1e-14)


def test_probabilities_stay_within_zero_and_one_when_shares_round():
    posterior = draw_posterior(
        12, n_chains=7, n_draws=7, n_clusters=7, n_models=2, chain_weights=None,
        strengths=np.full((7, 7, 7, 2), [-400.0, 400.0]),
        weights=np.random.default_rng(0).dirichlet(np.ones(7), (7, 7)),
        centroids=np.random.default_rng(0).normal(size=(7, 7, 7, 4)),
    )  # fmt: skip
    embeddings, probes = draw_queries(12, posterior, n_queries=40, n=200)
    found = predict_win_probability(posterior, probes, embeddings=embeddings)
    assert ((found >= 0) & (found <= 1)).all()


# -------------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_is_that_of_scipy_far_out_too(dtype):
    rng = np.random.default_rng(0)
    scores = (rng.normal(size=(50, 7)) * 10.0 ** rng.integers(-3, 5, (50, 1))).astype(dtype)
    scores[3, 2] = -np.inf
    kept = scores.copy()
    shares, log_total = softmax_rows(scores)
    assert shares.dtype == dtype
    np.testing.assert_array_equal(scores, kept)
    expected = softmax(scores.astype(float), axis=1)
    np.testing.assert_allclose(shares, expected, atol=np.finfo(dtype).eps * 10)
    finite = np.delete(np.arange(50), 3)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(
            (scores.astype(float) - log_total[:, None])[finite],
            log_softmax(scores[finite].astype(float), axis=1),
            rtol=1e-5 if dtype == np.float32 else 1e-12,
            atol=1e-3 if dtype == np.float32 else 1e-9,
        )


def test_log_evidence_keeps_both_tails():
    strengths = np.array([[0.0, 800.0, -800.0], [1e-9, 0.0, 3.0]])
    data = Comparisons.from_arrays(
        [0, 1, 2, 2], [0, 2, 0, 1], [1, 0, 2, 2], [1.0, 1.0, 1.0, 0.25],
        queries=["q", "r", "s"], models=list("abc"), weight=[1, 2, 1, 4],
    )  # fmt: skip
    found = log_evidence(strengths, data.outcome_counts())
    margin = strengths[:, data.second] - strengths[:, data.first]
    each = data.outcome * log_expit(margin) + (1 - data.outcome) * log_expit(-margin)
    expected = np.zeros((3, 2))
    np.add.at(expected, data.query, (data.weight * each).T)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


# -------------------------------------------------------------------- refusals


def test_signals_that_do_not_belong_together_are_refused():
    posterior = draw_posterior(2)
    embeddings, probes = draw_queries(2, posterior)
    for known, message in (
        ({}, "Give embeddings, probes, or both"),
        ({"embeddings": embeddings[:4]}, "4 rows for 5 queries"),
        ({"embeddings": embeddings[:, :3]}, "3 dimensions, the fit was made with 4"),
        ({"probes": probes.take([1, 0, 2, 3, 4])}, "other queries, or in another order"),
        ({"probes": probes.take([0, 1])}, "other queries, or in another order"),
        ({"probes": probes.with_models([*probes.models, "new"])}, None),
    ):
        if message is None:
            predict_win_probability(posterior, probes, **known)
            continue
        with pytest.raises(InputError, match=message):
            predict_win_probability(posterior, probes, **known)
    renamed = Comparisons.from_arrays(
        [0], [0], [1], [1], queries=probes.queries, models=["m0", "stranger"]
    )
    with pytest.raises(InputError, match=r"'stranger', which is not among the 4 known models"):
        predict_win_probability(posterior, probes, probes=renamed)
    with pytest.raises(InputError, match=r"'stranger', which is not among the 4 known models"):
        predict_win_probability(posterior, renamed, embeddings=embeddings)


def test_a_projected_posterior_asks_for_embeddings_before_projection():
    posterior = draw_posterior(3)
    with pytest.raises(InputError, match="4 dimensions, the fit was made with 6"):
        predict_responsibilities(posterior, embeddings=np.eye(4))
