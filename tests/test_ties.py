"""Ties and presentation order: likelihood, fits, predictions and the three-way loss."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, xlogy
from scipy.stats import halfnorm, norm

from bayes_ecc import (
    ECC,
    BayesianECC,
    BradleyTerry,
    Comparisons,
    ConvergenceWarning,
    InputError,
    Priors,
    atoms,
    bt_loss,
    cluster_ranking,
    load_posterior,
    pairwise,
    pointwise_log_likelihood,
    posterior_predictive,
    predict_outcome_probabilities,
    predict_responsibilities,
    predict_win_probability,
    read_draws,
    save_posterior,
    simulate,
    summarize_ranking,
    summarize_responsibilities,
    three_way_loss,
    training_data,
    with_tie_rate,
)
from bayes_ecc.em import EMData, EMSettings, em_step, start_state
from bayes_ecc.inference import log_evidence, softmax_rows
from bayes_ecc.ties import Margins, log_tie_factor, outcome_probabilities, win_lead, win_share

BOTH = {"ties": "rao_kupper", "order_effect": True}


def chances(difference, delta, gamma):
    """First, tie, second of one comparison as Rao and Kupper write them: pi_i / (pi_i + t pi_j)."""
    first, second, t = 1.0, np.exp(difference + gamma), np.exp(delta)
    a, b = first / (first + t * second), second / (second + t * first)
    return np.array([a, 1 - a - b, b])


def data(**changed):
    settings = {"n_queries": 150, "n_models": 5, "n_clusters": 2, "tie_margin": 0.6, "rng": 3}
    return simulate(**{**settings, "order_effect": 0.5, **changed})


def fitted(**changed):
    truth = data()
    settings = {"embedding_weight": 1.0, "temperature": 0.2, "ridge": 0.1, "max_iter": 500}
    fit = ECC(2, **{**settings, "rng": 0, **BOTH, **changed})
    return truth, fit.fit(truth.comparisons, truth.embeddings)


# ---------------------------------------------------------------- likelihood


@pytest.mark.parametrize("delta", [1e-9, 0.2, 1.5])
def test_outcome_probabilities_are_rao_and_kuppers(delta):
    difference = np.array([-3.0, 0.0, 0.7])
    expected = np.array([chances(d, delta, 0.0) for d in difference])
    np.testing.assert_allclose(outcome_probabilities(difference, delta), expected, atol=1e-12)
    share = expected[:, 2] + expected[:, 1] / 2
    np.testing.assert_allclose(win_share(difference, delta), share, atol=1e-12)
    np.testing.assert_allclose(win_lead(difference, delta), 2 * share - 1, atol=1e-12)


def test_probabilities_keep_their_tails():
    found = outcome_probabilities(np.array([-900.0, 900.0, 0.0]), 400.0)
    np.testing.assert_allclose(found, [[1, 0, 0], [0, 0, 1], [0, 1, 0]], atol=1e-12)
    assert np.isfinite(log_tie_factor([1e-200, 1e5])).all()
    tie = outcome_probabilities(np.array([60.0]), 0.5)[0, 1]
    assert tie == pytest.approx(np.expm1(1.0) * np.exp(-60.5), rel=1e-9)


@pytest.mark.parametrize("mean", [False, True])
def test_counts_give_the_log_likelihood_of_the_rows(mean):
    truth = data(n_queries=20)
    rows = truth.comparisons
    counts = rows.outcome_counts(per_query_mean=mean, **BOTH)
    strengths = truth.strengths
    expected = np.zeros((20, 2))
    for q, a, b, y in zip(rows.query, rows.first, rows.second, rows.outcome, strict=True):
        for k in range(2):
            p = chances(strengths[k, b] - strengths[k, a], 0.4, 0.3)
            expected[q, k] += np.log(p[int(2 * y)]) / (7 if mean else 1)
    np.testing.assert_allclose(log_evidence(strengths, counts, 0.4, 0.3), expected)
    each = log_evidence(strengths, counts, np.array([0.4, 0.9]), np.array([0.3, -0.3]))
    np.testing.assert_allclose(each[:, 0], expected[:, 0])
    np.testing.assert_allclose(each[:, 1], log_evidence(strengths, counts, 0.9, -0.3)[:, 1])
    doubled = counts.times(2.0)
    np.testing.assert_allclose(log_evidence(strengths, doubled, 0.4, 0.3), 2 * expected)


def test_counts_know_direction_and_ties():
    rows = Comparisons.from_arrays(
        [0, 0, 1], [0, 0, 1], [1, 1, 0], [0.5, 1.0, 0.25],
        weight=[2.0, 1.0, 4.0], queries=["q", "r"], models=["a", "b"],
    )  # fmt: skip
    counts = rows.outcome_counts(**BOTH)
    columns = list(zip(counts.winner, counts.loser, counts.direction, strict=True))
    found = dict(zip(columns, counts.matrix.toarray().T.tolist(), strict=True))
    # b was first in the soft row: a, shown second, has a quarter of it
    assert found == {
        (0, 1, -1): [2.0, 0.0],
        (1, 0, 1): [3.0, 0.0],
        (0, 1, 1): [0.0, 1.0],
        (1, 0, -1): [0.0, 3.0],
    }
    assert counts.tie_weight.tolist() == [2.0, 0.0]
    plain = rows.outcome_counts()
    assert not plain.has_margins
    assert plain.direction is plain.tie_weight is None


# ---------------------------------------------------------------- Bradley-Terry


def brute_force(rows, ridge, *, ties, order_effect):
    """Minimise the objective by BFGS, from the definition."""
    n = rows.n_models

    def loss(v):
        delta = np.exp(v[n]) if ties != "half" else 0.0
        gamma = v[n + 1] if order_effect else 0.0
        x = v[rows.second] - v[rows.first] + gamma
        second, first = expit(x - delta), expit(-x - delta)
        if ties == "half":
            value = xlogy(rows.outcome, second) + xlogy(1 - rows.outcome, first)
        else:
            p = np.stack([first, 1 - first - second, second])
            value = np.log(p[(2 * rows.outcome).astype(int), np.arange(len(x))])
        return -(rows.weight * value).sum() + ridge / 2 * ((v[:n] ** 2).sum() + gamma**2)

    found = minimize(loss, np.full(n + 2, -0.1), method="BFGS", options={"gtol": 1e-7}).x
    return found[:n] - found[:n].mean(), np.exp(found[n]), found[n + 1]


@pytest.mark.parametrize(
    "kind", [BOTH, {"ties": "rao_kupper", "order_effect": False}, {"ties": "half", **BOTH}]
)
def test_bradley_terry_is_at_the_minimum(kind):
    kind = {**kind, "order_effect": kind["order_effect"]}
    rows = data().comparisons
    model = BradleyTerry(0.3, **kind).fit(rows)
    strengths, delta, gamma = brute_force(rows, 0.3, **kind)
    np.testing.assert_allclose(model.strengths_, strengths, atol=2e-5)
    if kind["ties"] != "half":
        assert model.tie_margin_ == pytest.approx(delta, abs=2e-5)
    if kind["order_effect"]:
        assert model.order_effect_ == pytest.approx(gamma, abs=2e-5)


def test_an_order_effect_alone_keeps_half_wins():
    rows = data().comparisons
    model = BradleyTerry(0.3, order_effect=True).fit(rows)
    strengths, _, gamma = brute_force(rows, 0.3, ties="half", order_effect=True)
    np.testing.assert_allclose(model.strengths_, strengths, atol=2e-5)
    assert model.order_effect_ == pytest.approx(gamma, abs=2e-5)
    assert not hasattr(model, "tie_margin_")
    theta = model.strengths_.values
    expected = expit(theta[rows.second] - theta[rows.first] + model.order_effect_)
    np.testing.assert_allclose(model.predict_win_probability(rows), expected)


def test_a_refit_forgets_margins():
    rows = data().comparisons
    model = BradleyTerry(**BOTH).fit(rows).set_params(ties="half", order_effect=False).fit(rows)
    assert not hasattr(model, "tie_margin_")
    assert not hasattr(model, "order_effect_")


def test_bradley_terry_predicts_outcomes():
    rows = data().comparisons
    model = BradleyTerry(0.3, **BOTH).fit(rows)
    theta = model.strengths_.values
    three = model.predict_outcome_probabilities(rows)
    expected = [
        chances(theta[b] - theta[a], model.tie_margin_, model.order_effect_)
        for a, b in zip(rows.first, rows.second, strict=True)
    ]
    np.testing.assert_allclose(three, expected, atol=1e-12)
    share = three[:, 2] + three[:, 1] / 2
    np.testing.assert_allclose(model.predict_win_probability(rows), share, atol=1e-12)
    with pytest.raises(InputError, match="rao_kupper"):
        BradleyTerry().fit(rows).predict_outcome_probabilities(rows)


def test_a_tie_margin_gives_half_wins_ranking_in_a_balanced_round_robin():
    rng = np.random.default_rng(5)
    pairs = list(itertools.combinations(range(7), 2)) * 20
    first, second = np.array(pairs).T
    theta = rng.normal(size=7)
    uniform = rng.random(len(pairs))
    p = np.array([chances(d, 0.5, 0.0) for d in theta[second] - theta[first]])
    outcome = np.where(uniform < p[:, 2], 1.0, np.where(uniform < 1 - p[:, 0], 0.5, 0.0))
    rows = Comparisons.from_arrays(
        np.arange(len(pairs)), first, second, outcome,
        queries=range(len(pairs)), models=[f"m{i}" for i in range(7)],
    )  # fmt: skip
    half = BradleyTerry(0.1).fit(rows).strengths_.values
    tied = BradleyTerry(0.1, ties="rao_kupper").fit(rows).strengths_.values
    # both order by wins and half the ties
    points = np.bincount(second, outcome, 7) + np.bincount(first, 1 - outcome, 7)
    order = np.argsort(-points, kind="stable")
    assert len(set(points)) == 7
    np.testing.assert_array_equal(np.argsort(-half), order)
    np.testing.assert_array_equal(np.argsort(-tied), order)


def test_order_effects_want_ordered_comparisons_and_ties_ties():
    truth = data(tie_margin=0.0)
    rows = truth.comparisons
    unordered = Comparisons.from_arrays(
        rows.query, rows.first, rows.second, rows.outcome,
        queries=rows.queries, models=rows.models, ordered=False,
    )  # fmt: skip
    for estimator in (BradleyTerry(order_effect=True), ECC(2, order_effect=True)):
        with pytest.raises(InputError, match="unordered"):
            estimator.fit(unordered, truth.embeddings)
    for estimator in (BradleyTerry(ties="rao_kupper"), ECC(2, ties="rao_kupper")):
        with pytest.raises(InputError, match="no comparison is a tie"):
            estimator.fit(rows, truth.embeddings)
    for estimator in (BradleyTerry(ties="davidson"), ECC(2, ties="davidson")):
        with pytest.raises(InputError, match="ties='davidson'"):
            estimator.fit(rows, truth.embeddings)
    with pytest.raises(InputError, match="order_effect='yes'"):
        ECC(2, order_effect="yes").fit(rows, truth.embeddings)


# ---------------------------------------------------------------- ECC


@pytest.mark.parametrize("evidence", ["both", "comparisons"])
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_never_rises(evidence, seed):
    truth = data(rng=seed)
    unit = truth.embeddings.astype(float)
    em = EMData.from_comparisons(truth.comparisons, unit, **BOTH)
    settings = EMSettings(1.0, 0.15, 0.2, evidence)
    start = np.random.default_rng(seed).dirichlet(np.ones(3), size=len(unit))
    state, history = start_state(em, start), []
    for _ in range(25):
        state = em_step(em, settings, state)
        history.append(state.objective)
    assert (np.diff(history) <= 1e-9 * abs(history[0])).all()


def test_the_objective_is_the_definitions():
    truth, fit = fitted()
    rows, r = truth.comparisons, fit.responsibilities_.values.astype(float)
    theta = fit.strengths_.values
    loss = 1.0 - truth.embeddings.astype(float) @ fit.centroids_.values.T
    for q, a, b, y in zip(rows.query, rows.first, rows.second, rows.outcome, strict=True):
        for k in range(2):
            p = chances(theta[k, b] - theta[k, a], fit.tie_margin_, fit.order_effect_)
            loss[q, k] -= np.log(p[int(2 * y)]) / 7
    value = (r * loss).sum() + 0.2 * xlogy(r, r).sum()
    value += 0.05 * ((theta**2).sum() + fit.order_effect_**2)
    assert fit.objective_[-1] == pytest.approx(value, rel=1e-5)


def test_one_cluster_is_the_bradley_terry_model():
    truth = data()
    fit = ECC(1, ridge=0.5, rng=0, **BOTH).fit(truth.comparisons, truth.embeddings)
    model = BradleyTerry(0.5, per_query_mean=True, **BOTH).fit(truth.comparisons)
    np.testing.assert_allclose(fit.strengths_[0], model.strengths_, atol=1e-4)
    assert fit.tie_margin_ == pytest.approx(model.tie_margin_, abs=1e-4)
    assert fit.order_effect_ == pytest.approx(model.order_effect_, abs=1e-4)


def test_embedding_evidence_fits_margins_once():
    _, fit = fitted(evidence="embedding")
    assert 0.3 < fit.tie_margin_ < 0.9
    assert "order_effect" in fit.posterior_["posterior"]


# ---------------------------------------------------------------- prediction


def test_predictions_follow_the_definition():
    truth, fit = fitted()
    source = atoms(fit.posterior_)
    assert source.margins(0) == Margins(fit.tie_margin_, fit.order_effect_)
    probes, rest = truth.comparisons.take_probes(2)
    theta = fit.strengths_.values
    scores = source.concentration * truth.embeddings @ fit.centroids_.values.T
    for q, a, b, y in zip(probes.query, probes.first, probes.second, probes.outcome, strict=True):
        for k in range(2):
            p = chances(theta[k, b] - theta[k, a], fit.tie_margin_, fit.order_effect_)
            scores[q, k] += source.probe_power * np.log(p[int(2 * y)]) / 2
    held = softmax_rows(scores)[0]
    known = {"embeddings": truth.embeddings, "probes": probes}
    found = predict_responsibilities(fit.posterior_, **known)
    np.testing.assert_allclose(found, held, atol=1e-5)
    three = predict_outcome_probabilities(fit.posterior_, rest, **known)
    expected = np.zeros((len(rest), 3))
    for n, (q, a, b) in enumerate(zip(rest.query, rest.first, rest.second, strict=True)):
        for k in range(2):
            difference = theta[k, b] - theta[k, a]
            expected[n] += held[q, k] * chances(difference, fit.tie_margin_, fit.order_effect_)
    np.testing.assert_allclose(three, expected, atol=1e-5)
    share = predict_win_probability(fit.posterior_, rest, **known)
    np.testing.assert_allclose(share, expected[:, 2] + expected[:, 1] / 2, atol=1e-5)
    np.testing.assert_array_equal(fit.predict_outcome_probabilities(rest, **known), three)


def test_unordered_rows_are_predicted_without_the_order_effect():
    truth, fit = fitted()
    rows = truth.comparisons
    settings = {"queries": rows.queries, "models": rows.models, "ordered": False}
    ahead = Comparisons.from_arrays(rows.query, rows.first, rows.second, rows.outcome, **settings)
    turned = Comparisons.from_arrays(
        rows.query, rows.second, rows.first, 1 - rows.outcome, **settings
    )
    found = [
        predict_win_probability(fit.posterior_, these, embeddings=truth.embeddings, probes=these)
        for these in (ahead, turned)
    ]
    np.testing.assert_allclose(found[0], 1 - found[1], atol=1e-6)


def test_half_wins_know_no_chance_of_a_tie():
    truth, fit = fitted(ties="half", order_effect=False)
    assert not hasattr(fit, "tie_margin_")
    assert "tie_margin" not in fit.posterior_["posterior"]
    with pytest.raises(InputError, match="rao_kupper"):
        fit.predict_outcome_probabilities(truth.comparisons, embeddings=truth.embeddings)


def test_summaries_read_the_margins():
    truth, fit = fitted()
    probes, _ = truth.comparisons.take_probes(2)
    known = {"embeddings": truth.embeddings, "probes": probes}
    draws = read_draws(fit.posterior_)
    by_summary = summarize_responsibilities(draws, **known)["mean"]
    by_prediction = fit.predict_responsibilities(truth.embeddings, probes=probes)
    np.testing.assert_allclose(by_summary.values, by_prediction.values, atol=1e-4)
    ranking = fit.predict_ranking(truth.embeddings, probes=probes)
    summary = summarize_ranking(draws, **known)
    np.testing.assert_allclose(
        summary["win_probability"].values, ranking["win_probability"].values, atol=1e-4
    )
    theta = fit.strengths_.values[0]
    wins = win_share(theta[:, None] - theta, fit.tie_margin_)
    expected = (wins.sum(axis=1) - 0.5) / 4
    np.testing.assert_allclose(cluster_ranking(fit.posterior_)["win_probability"][0], expected)
    pair = pairwise(draws)["p_win"].isel(cluster=0).values
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(pair[off], wins[off], atol=1e-6)


def test_evidence_and_predictive_draws_know_ties():
    truth, fit = fitted()
    rows, _ = training_data(fit.posterior_)
    theta, source = fit.strengths_.values, atoms(fit.posterior_)
    held = softmax_rows(source.concentration * truth.embeddings @ fit.centroids_.values.T)[0]
    likelihood = np.ones((rows.n_queries, 2))
    for q, a, b, y in zip(rows.query, rows.first, rows.second, rows.outcome, strict=True):
        for k in range(2):
            p = chances(theta[k, b] - theta[k, a], fit.tie_margin_, fit.order_effect_)
            likelihood[q, k] *= p[int(2 * y)]
    found = pointwise_log_likelihood(fit.posterior_)["evidence"].values[0, 0]
    np.testing.assert_allclose(found, np.log((held * likelihood).sum(axis=1)), atol=1e-4)
    drawn = posterior_predictive(fit.posterior_, rng=0)["posterior_predictive"]["outcome"].values
    assert set(np.unique(drawn)) == {0.0, 0.5, 1.0}
    three = fit.predict_outcome_probabilities(rows, embeddings=truth.embeddings)
    assert (drawn == 0.5).mean() == pytest.approx(three[:, 1].mean(), abs=0.05)


def test_margins_survive_storage(tmp_path):
    truth, fit = fitted()
    save_posterior(fit.posterior_, tmp_path / "fit.nc")
    again = load_posterior(tmp_path / "fit.nc")
    known = {"embeddings": truth.embeddings}
    np.testing.assert_array_equal(
        predict_outcome_probabilities(again, truth.comparisons, **known),
        fit.predict_outcome_probabilities(truth.comparisons, **known),
    )


# ---------------------------------------------------------------- Bayesian fits


def test_a_bayesian_fit_learns_margins():
    truth = data(n_queries=200)
    rows = truth.comparisons
    fit = BayesianECC(
        2, concentration=4.0, probe_power="auto", embedding_dim=8, chains=2, tune=60, draws=60,
        priors=Priors(tie_margin_scale=0.8, order_effect_scale=0.6), cores=1, progress=False,
        rng=0, **BOTH,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so short a fit fails checks
        fit = fit.fit(rows, truth.embeddings)
    tree = fit.posterior_.copy()
    del tree.attrs["failed_checks"]  # they would warn
    draws, prior = tree["posterior"], tree["log_prior"]
    for name, value in (("tie_margin", 0.6), ("order_effect", 0.5)):
        assert draws[name].dims == ("chain", "draw")
        assert float(draws[name].mean()) == pytest.approx(value, abs=0.15)
        assert name in tree["invariants"]
    delta, gamma = draws["tie_margin"].values, draws["order_effect"].values
    np.testing.assert_allclose(prior["tie_margin"], halfnorm(scale=0.8).logpdf(delta))
    np.testing.assert_allclose(prior["order_effect"], norm(scale=0.6).logpdf(gamma))
    # the log density of a draw, as the checks put it together, is the sampler's own
    recorded = tree["sample_stats"]["log_density"]
    apart = tree["invariants"]["log_density"] - recorded
    assert float(apart.std()) < 1e-2 * float(recorded.std())
    probes, rest = rows.take_probes(2)
    known = {"embeddings": truth.embeddings, "probes": probes}
    three = fit.predict_outcome_probabilities(rest, **known)
    np.testing.assert_allclose(three.sum(axis=1), 1)
    share = fit.predict_win_probability(rest, **known)
    np.testing.assert_allclose(three[:, 2] + three[:, 1] / 2, share, atol=1e-6)
    assert three_way_loss(three, rest) < three_way_loss(np.full((len(rest), 3), 1 / 3), rest)
    thinned = read_draws(tree, draws=7)
    np.testing.assert_array_equal(
        thinned.atoms.tie_margin, delta[:, ((np.arange(7) + 0.5) * 60 / 7).astype(int)].ravel()
    )
    summary = summarize_responsibilities(tree, **known)
    found = fit.predict_responsibilities(truth.embeddings, probes=probes)
    by_chain = summary["mean"]
    if "chain" in by_chain.dims:
        by_chain = by_chain.weighted(tree["constant_data"]["chain_weights"]).mean("chain")
    np.testing.assert_allclose(by_chain.transpose(*found.dims), found, atol=1e-3)


def test_the_matched_model_takes_ties_over():
    _, fit = fitted()
    matched = BayesianECC.matching(fit)
    assert (matched.ties, matched.order_effect) == ("rao_kupper", True)


def test_priors_of_margins_are_checked():
    for name in ("tie_margin_scale", "order_effect_scale"):
        with pytest.raises(InputError, match=name):
            Priors(**{name: None})


# ---------------------------------------------------------------- simulator and metrics


def test_the_simulator_draws_the_likelihood():
    truth = simulate(
        n_queries=4000, n_models=3, n_clusters=1, per_query=3, tie_margin=0.7, order_effect=-0.4,
        spread=1.0, rng=0,
    )  # fmt: skip
    rows = truth.comparisons
    theta = truth.strengths[0]
    for a, b in itertools.permutations(range(3), 2):
        here = (rows.first == a) & (rows.second == b)
        found = [(rows.outcome[here] == y).mean() for y in (0.0, 0.5, 1.0)]
        expected = chances(theta[b] - theta[a], 0.7, -0.4)
        np.testing.assert_allclose(found, expected, atol=4 * 0.5 / here.sum() ** 0.5)
    with pytest.raises(InputError, match="two ways"):
        simulate(ties=0.1, tie_margin=0.1)
    with pytest.raises(InputError, match="tie_margin=-1"):
        simulate(tie_margin=-1)


def test_three_way_loss_is_the_mean_log_loss():
    rows = Comparisons.from_arrays(
        [0, 0, 1], [0, 0, 1], [1, 1, 0], [0.5, 1.0, 0.0],
        weight=[2.0, 1.0, 4.0], queries=["q", "r"], models=["a", "b"],
    )  # fmt: skip
    p = np.array([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    losses = -np.log([0.5, 0.7, 0.4])
    assert three_way_loss(p, rows) == pytest.approx((losses @ [2, 1, 4]) / 7)
    by_query = three_way_loss(p, rows, average="query")
    assert by_query == pytest.approx(((losses[:2] @ [2, 1]) / 3 + losses[2]) / 2)
    sure = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    assert three_way_loss(sure, rows) == np.inf
    for wrong, message in (
        (p[:2], "shape"),
        (p * 1.1, "sum to 1"),
        (p - np.array([0.3, -0.3, 0.0]), "row 0"),
        (np.full((3, 3), np.nan), "row 0"),
        ("abc", "numbers"),
    ):
        with pytest.raises(InputError, match=message):
            three_way_loss(wrong, rows)
    soft = Comparisons.from_arrays([0], [0], [1], [0.3], queries=["q"], models=["a", "b"])
    with pytest.raises(InputError, match=r"row 0: found 0\.3"):
        three_way_loss([[0.2, 0.5, 0.3]], soft)


def test_with_tie_rate_spreads_and_refuses():
    found = with_tie_rate([0.25, 1.0], 0.4)
    np.testing.assert_allclose(found, [[0.45, 0.4, 0.15], [0.0, 0.4, 0.6]])
    for wrong, rate in (([0.5], 1.2), ([0.5], -0.1), ([1.5], 0.1), ([[0.5]], 0.1), ("a", 0.1)):
        with pytest.raises(InputError):
            with_tie_rate(wrong, rate)


def test_the_share_of_the_win_is_scored_like_half_wins():
    train, test = data(n_queries=600), data(n_queries=600, rng=3)
    half = BradleyTerry(0.1).fit(train.comparisons).predict_win_probability(test.comparisons)
    tied = BradleyTerry(0.1, ties="rao_kupper").fit(train.comparisons)
    share = tied.predict_win_probability(test.comparisons)
    assert bt_loss(share, test.comparisons) == pytest.approx(
        bt_loss(half, test.comparisons), rel=0.01
    )
