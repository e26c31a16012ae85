"""Bradley-Terry fits against other optimisers, closed forms, and brute force on what is known."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from bayes_ecc import BradleyTerry, Comparisons, ConvergenceWarning, DataWarning, InputError
from bayes_ecc.bradley_terry import PairLayout, fit_strengths, win_probability_matrix
from bayes_ecc.contrasts import contrast_status

CONTRAST_CASES = json.loads((Path(__file__).parent / "cases" / "contrasts.json").read_text())
seeds = st.integers(0, 2**32 - 1)


def draw_comparisons(seed, *, n_queries=12, n_models=4, n=60, soft=True, weighted=True):
    """Random comparisons with ties, soft outcomes and weights, not all queries having any."""
    rng = np.random.default_rng(seed)
    first = rng.integers(n_models, size=n)
    second = (first + rng.integers(1, n_models, size=n)) % n_models
    outcome = rng.choice([0.0, 1.0, 0.5], size=n)
    if soft:
        outcome = np.where(rng.random(n) < 0.3, rng.random(n), outcome)
    outcome[:2] = 0, 1
    return Comparisons.from_arrays(
        rng.integers(n_queries, size=n),
        first,
        second,
        outcome,
        weight=10 ** rng.uniform(-1, 1, n) if weighted else None,
        queries=[f"q{i}" for i in range(n_queries)],
        models=[f"m{i}" for i in range(n_models)],
    )


def fit(comparisons, **settings):
    """Fit without the warnings of what the data leave open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return BradleyTerry(**settings).fit(comparisons)


def written_out(theta, data, ridge, weight):
    """The definition, comparison by comparison."""
    total = ridge / 2 * sum(t * t for t in theta)
    for i, j, y, w in zip(data.first, data.second, data.outcome, weight, strict=True):
        margin = theta[j] - theta[i]
        total -= w * (y * log_expit(margin) + (1 - y) * log_expit(-margin))
    return total


def count_wins(wins, models=None):
    """One fit's wins (1, n_columns) and their layout from {(winner, loser): weight}."""
    columns = np.array(sorted(wins))
    layout = PairLayout(columns[:, 0], columns[:, 1], models or int(columns.max()) + 1)
    return np.array([[wins[tuple(c)] for c in columns.tolist()]], dtype=float), layout


# -------------------------------------------------------------------- the optimum


@pytest.mark.parametrize("per_query_mean", [False, True])
@pytest.mark.parametrize("ridge", [0.03, 1.0, 20.0])
def test_optimum_is_that_of_a_general_optimiser(ridge, per_query_mean):
    data = draw_comparisons(1)
    weight = data.weight / data.query_weight[data.query] if per_query_mean else data.weight
    model = fit(data, ridge=ridge, per_query_mean=per_query_mean)
    found = optimize.minimize(
        written_out, np.zeros(4), (data, ridge, weight), method="BFGS", options={"gtol": 1e-7}
    )
    np.testing.assert_allclose(model.strengths_, found.x, atol=2e-5)
    ours = written_out(model.strengths_.values, data, ridge, weight)
    assert ours <= found.fun + 1e-9


@pytest.mark.parametrize("ridge", [0.1, 1.0, 5.0])
def test_optimum_is_that_of_penalised_logistic_regression(ridge):
    data = draw_comparisons(2, n_models=6, n=200)
    design = np.zeros((len(data), 6))
    design[np.arange(len(data)), data.second] = 1
    design[np.arange(len(data)), data.first] = -1
    # a soft outcome is a success and a failure that share the weight
    weight = np.concatenate([data.weight * data.outcome, data.weight * (1 - data.outcome)])
    success = np.repeat([1, 0], len(data))
    regression = LogisticRegression(C=1 / ridge, fit_intercept=False, tol=1e-10, max_iter=10_000)
    regression.fit(np.vstack([design, design])[weight > 0], success[weight > 0], weight[weight > 0])
    model = fit(data, ridge=ridge)
    np.testing.assert_allclose(model.strengths_, regression.coef_[0], atol=1e-6)
    np.testing.assert_allclose(
        model.predict_win_probability(data), regression.predict_proba(design)[:, 1], atol=1e-6
    )


@given(seeds, st.integers(2, 7), st.floats(1e-6, 100), st.floats(0, 4))
def test_strengths_that_data_were_made_for_are_found(seed, n_models, ridge, spread):
    # Wins p_ij n_ij plus a flow of ridge (theta_i - theta_j) / n_models from j to i make the
    # gradient at theta vanish exactly.
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, spread, n_models)
    theta -= theta.mean()
    gap = theta[:, None] - theta[None, :]
    flow = ridge * gap / n_models
    games = rng.exponential(1, (n_models, n_models))
    games = games + games.T + np.abs(flow) / expit(-np.abs(gap)) * 1.001
    wins = expit(gap) * games + flow
    winner, loser = np.nonzero(~np.eye(n_models, dtype=bool))
    found = fit_strengths(wins[winner, loser][None], PairLayout(winner, loser, n_models), ridge)
    np.testing.assert_allclose(found[0], theta, atol=1e-7 * max(1, 1 / ridge**0.5))


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("share", [0.5, 0.75, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("ridge", [1e-6, 1.0, 1e4])
def test_two_models_solve_one_equation(weight, share, ridge):
    data = Comparisons.from_arrays(
        [0], [0], [1], [share], weight=[weight], queries=["q"], models=["a", "b"]
    )
    if share == 0.5:
        with pytest.raises(InputError, match="All comparisons are ties"):
            BradleyTerry(ridge).fit(data)
        return
    strengths = fit(data, ridge=ridge).strengths_.values

    def slope(half):  # of the objective at (-half, half), over 2
        margin = 2 * half
        return weight * ((1 - share) * expit(margin) - share * expit(-margin)) + ridge * half

    expected = optimize.brentq(slope, 0, 50, xtol=1e-12)
    np.testing.assert_allclose(strengths, [-expected, expected], atol=1e-6)


def test_a_batch_of_fits_equals_one_by_one():
    data = draw_comparisons(3)
    counts = data.outcome_counts()
    layout = PairLayout(counts.winner, counts.loser, data.n_models)
    wins = np.random.default_rng(0).gamma(0.3, 10, (40, len(counts.winner)))
    wins[7] = 0  # nothing won: the ridge alone
    together = fit_strengths(wins, layout, 0.1, tol=1e-10)
    for row, strengths in zip(wins, together, strict=True):
        alone = fit_strengths(row[None], layout, 0.1, tol=1e-10)[0]
        np.testing.assert_allclose(strengths, alone, atol=1e-10)
    np.testing.assert_array_equal(together[7], 0)
    np.testing.assert_allclose(together.sum(axis=1), 0, atol=1e-12)
    assert fit_strengths(wins[:0], layout, 0.1).shape == (0, 4)


@pytest.mark.parametrize("distance", [0.001, 1.0, 8.0, 300.0])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_a_warm_start_ends_where_a_cold_one_does(distance, ridge):
    rng = np.random.default_rng(4)
    winner, loser = np.nonzero(~np.eye(5, dtype=bool))
    layout = PairLayout(winner, loser, 5)
    wins = rng.gamma(0.5, 5, (20, len(winner)))
    cold = fit_strengths(wins, layout, ridge, tol=1e-9)
    start = rng.normal(0, distance, cold.shape)
    kept = start.copy()
    warm = fit_strengths(wins, layout, ridge, start=start, tol=1e-9)
    np.testing.assert_allclose(warm, cold, atol=1e-8)
    np.testing.assert_array_equal(start, kept)


def test_a_step_within_tolerance_is_exact_to_its_square():
    rng = np.random.default_rng(5)
    winner, loser = np.nonzero(~np.eye(6, dtype=bool))
    layout = PairLayout(winner, loser, 6)
    wins = rng.gamma(0.5, 5, (50, len(winner)))
    exact = fit_strengths(wins, layout, 0.1, tol=1e-12)
    assert np.abs(fit_strengths(wins, layout, 0.1, tol=1e-3) - exact).max() < 1e-6


def test_a_full_step_that_would_overshoot_is_shortened():
    # Newton from the flat end of the curve lands far on the other side; without halving it
    # would swing ever wider.
    wins, layout = count_wins({(0, 1): 3.0, (1, 0): 2.0})
    start = np.array([[10.0, -10.0]])
    found = fit_strengths(wins, layout, 1e-6, start=start, max_iter=25)
    np.testing.assert_allclose(found[0, 0] - found[0, 1], np.log(3 / 2), atol=1e-5)


def test_too_few_steps_warn_with_remedies():
    wins, layout = count_wins({(0, 1): 100.0})
    with pytest.warns(ConvergenceWarning, match=r"1 Newton steps; raise ridge \(now 0\.01\)"):
        fit_strengths(wins, layout, 0.01, max_iter=1)


@pytest.mark.parametrize("ridge", [1e-9, 1e-6, 1e-3])
def test_a_tiny_ridge_leaves_the_maximum_likelihood_difference(ridge):
    # Groups {0, 1} and {2, 3} never meet, 4 never plays: only the ridge holds them.
    wins, layout = count_wins({(0, 1): 1000, (1, 0): 3000, (2, 3): 10, (3, 2): 900}, models=5)
    found = fit_strengths(wins, layout, ridge)[0]
    assert found[0] - found[1] == pytest.approx(np.log(1 / 3), abs=1e-5)
    assert found[2] - found[3] == pytest.approx(np.log(10 / 900), abs=1e-3)
    np.testing.assert_allclose([found[0] + found[1], found[2] + found[3], found[4]], 0, atol=1e-6)


def test_strengths_of_many_models_do_not_drift_under_a_tiny_ridge():
    winner, loser = np.nonzero(~np.eye(28, dtype=bool))
    wins = np.random.default_rng(0).gamma(0.3, 1, (5, len(winner)))
    found = fit_strengths(wins, PairLayout(winner, loser, 28), 1e-10)
    assert np.abs(found.sum(axis=1)).max() < 1e-12


def test_a_ridge_lost_in_rounding_is_refused():
    wins, layout = count_wins({(0, 1): 1e20, (1, 0): 1e19})
    with pytest.raises(InputError, match=r"ridge=1\.0 is lost in rounding .* 1\.1e\+20 together"):
        fit_strengths(wins, layout, 1.0)
    with pytest.raises(InputError, match="ridge=1e-300 is lost"):
        fit_strengths(wins / 1e20, layout, 1e-300)
    fit_strengths(wins, layout, 1.21e7)


# -------------------------------------------------------------------- what must not matter


@settings(max_examples=40)
@given(seeds)
def test_rows_order_and_halved_weights_change_nothing(seed):
    data = draw_comparisons(seed, n=20)
    rng = np.random.default_rng(seed)
    expected = fit(data).strengths_.values
    flipped = rng.random(len(data)) < 0.5
    rows = np.tile(rng.permutation(len(data)), 2)
    other = Comparisons.from_arrays(
        data.query[rows],
        np.where(flipped, data.second, data.first)[rows],
        np.where(flipped, data.first, data.second)[rows],
        np.where(flipped, 1 - data.outcome, data.outcome)[rows],
        weight=data.weight[rows] / 2,
        queries=data.queries,
        models=data.models,
    )
    np.testing.assert_allclose(fit(other).strengths_, expected, atol=1e-9)
    mean = fit(data, per_query_mean=True).strengths_
    np.testing.assert_allclose(fit(other, per_query_mean=True).strengths_, mean, atol=1e-9)


@settings(max_examples=40)
@given(seeds)
def test_renamed_and_reordered_models_take_their_strengths_along(seed):
    data = draw_comparisons(seed, n_models=5, n=30)
    order = np.random.default_rng(seed).permutation(5)
    other = fit(data.with_models(data.models[order]))
    model = fit(data)
    np.testing.assert_allclose(other.strengths_, model.strengths_[order], atol=1e-9)
    np.testing.assert_array_equal(other.contrasts_, model.contrasts_[order][:, order])
    predicted = other.predict_win_probability(data)
    np.testing.assert_allclose(predicted, model.predict_win_probability(data), atol=1e-9)


def test_a_query_weighs_one_whatever_its_comparisons_weigh():
    data = draw_comparisons(6)
    heavier = Comparisons.from_arrays(
        data.query,
        data.first,
        data.second,
        data.outcome,
        weight=data.weight * (1 + data.query),
        queries=data.queries,
        models=data.models,
    )
    model, other = fit(data, per_query_mean=True), fit(heavier, per_query_mean=True)
    np.testing.assert_allclose(model.strengths_, other.strengths_, atol=1e-10)
    assert np.abs(fit(data).strengths_ - fit(heavier).strengths_).max() > 0.01


# -------------------------------------------------------------------- what the data say


def case_comparisons(case):
    rows = [(a, b, 0.0) for a, b in case["wins"]]
    rows += [(a, b, 0.5) for a, b in case.get("ties", [])]
    rows += [(a, b, y) for a, b, y in case.get("soft", [])]
    frame = pd.DataFrame(rows, columns=["model_a", "model_b", "outcome"])
    return Comparisons.from_frame(frame.assign(query_id="q"), models=case["models"])


def expected_contrasts(case):
    expected = pd.DataFrame("identified", case["models"], case["models"])
    for kind, sign in (("separated", ">"), ("undetermined", "?")):
        for pair in case.get(kind, []):
            one, other = pair.split(f" {sign} ")
            expected.loc[one, other] = expected.loc[other, one] = kind
    return expected


@pytest.mark.parametrize("case", CONTRAST_CASES, ids=[case["name"] for case in CONTRAST_CASES])
def test_contrasts_of_known_cases(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = BradleyTerry(ridge=1e-4).fit(case_comparisons(case))
    said = [str(warning.message) for warning in caught]
    assert all(warning.category is DataWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught), "warnings point at the caller"
    assert len(said) == len(case["warns"])
    for part in case["warns"]:
        assert [message for message in said if part in message], said
    expected = expected_contrasts(case)
    assert model.contrasts_.to_pandas().equals(
        expected.rename_axis("llm").rename_axis("llm_other", axis=1)
    )
    np.testing.assert_array_equal(model.identified_, expected == "identified")
    strengths = model.strengths_.to_series()
    for pair in case.get("separated", []):
        stronger, weaker = pair.split(" > ")
        assert strengths[stronger] > strengths[weaker]


@pytest.mark.parametrize("case", CONTRAST_CASES, ids=[case["name"] for case in CONTRAST_CASES])
def test_ranks_stay_within_groups_of_known_cases(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        table = BradleyTerry().fit(case_comparisons(case)).ranking()
    assert table["strength"].is_monotonic_decreasing
    for number, group in enumerate(case["groups"], start=1):
        rows = table[table["group"] == number]
        assert sorted(rows.index) == group
        assert rows["rank"].tolist() == pytest.approx(
            rows["strength"].rank(ascending=False).tolist()
        )
    unranked = table.index[table["rank"].isna()]
    assert sorted(unranked) == case.get("unranked", [])
    assert table.loc[unranked, "group"].is_unique


@pytest.mark.parametrize("case", CONTRAST_CASES, ids=[case["name"] for case in CONTRAST_CASES])
def test_only_identified_differences_settle_as_the_ridge_goes(case):
    data, expected = case_comparisons(case), expected_contrasts(case)
    small, smaller = (fit(data, ridge=ridge).strengths_.to_series() for ridge in (1e-6, 1e-8))
    for one in case["models"]:
        for other in case["models"]:
            change = abs((smaller[one] - smaller[other]) - (small[one] - small[other]))
            if expected.loc[one, other] == "identified":
                assert change < 1e-2  # even across a soft outcome of 0.999
            elif expected.loc[one, other] == "separated":
                assert change > 0.5  # the log of the ridge, more or less


@settings(max_examples=40)
@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=7))
def test_contrasts_equal_those_found_by_linear_programming(n_models, wins):
    # A difference is bounded exactly if no direction along which no win gets less likely moves it.
    wins = sorted({(a % n_models, b % n_models) for a, b in wins if a % n_models != b % n_models})
    if not wins:
        return
    winner, loser = np.array(wins).T
    counts = draw_comparisons(0).outcome_counts()._replace(winner=winner, loser=loser)
    status = contrast_status(np.ones(len(wins)), counts, n_models)
    against = np.zeros((len(wins), n_models))
    against[np.arange(len(wins)), winner] = -1
    against[np.arange(len(wins)), loser] = 1
    for i in range(n_models):
        for j in range(n_models):
            goal = np.zeros(n_models)
            goal[i] += 1
            goal[j] -= 1
            lowest, highest = (
                sign
                * optimize.linprog(
                    sign * goal, A_ub=against, b_ub=np.zeros(len(wins)), bounds=(-1, 1)
                ).fun
                for sign in (1, -1)
            )
            assert status[i, j] == (lowest < -0.5) + (highest > 0.5)


def test_wins_of_weight_zero_are_no_evidence():
    counts = Comparisons.from_arrays(
        [0, 0], [0, 0], [1, 1], [0, 1], queries=["q"], models=["a", "b"]
    ).outcome_counts()
    assert contrast_status(np.array([1.0, 0.0]), counts, 2).tolist() == [[0, 1], [1, 0]]
    assert contrast_status(np.array([1.0, 1e-300]), counts, 2).tolist() == [[0, 0], [0, 0]]


# -------------------------------------------------------------------- the estimator


def test_predictions_do_not_look_at_outcomes_and_mirror_with_the_pair():
    data = draw_comparisons(7)
    model = fit(data)
    predicted = model.predict_win_probability(data)
    theta = model.strengths_.to_series()
    for row in range(len(data)):
        gap = theta[data.models[data.second[row]]] - theta[data.models[data.first[row]]]
        assert predicted[row] == pytest.approx(1 / (1 + np.exp(-gap)), abs=1e-12)
    mirrored = Comparisons.from_arrays(
        data.query, data.second, data.first, data.outcome, queries=data.queries, models=data.models
    )
    other = model.predict_win_probability(mirrored, embeddings="ignored", probes="ignored")
    np.testing.assert_allclose(predicted + other, 1, atol=1e-15)


def test_models_in_another_order_and_unknown_ones():
    data = draw_comparisons(8)
    model = fit(data)
    fewer = data.drop_models(["m1"])
    expected = model.predict_win_probability(fewer.with_models(data.models))
    np.testing.assert_array_equal(model.predict_win_probability(fewer), expected)
    idle = data.with_models(["new", *data.models])  # known of, but not compared
    np.testing.assert_array_equal(
        model.predict_win_probability(idle), model.predict_win_probability(data)
    )
    with pytest.raises(InputError, match=r"'m1'.* not among the 3 known models"):
        fit(fewer).predict_win_probability(data)


def test_mean_win_probability_is_against_the_pool():
    model = fit(draw_comparisons(9, n_models=5))
    table = model.ranking()
    theta = table["strength"].to_numpy()
    for i in range(5):
        mean = np.mean([expit(theta[i] - theta[j]) for j in range(5) if j != i])
        assert table["mean_win_probability"].iloc[i] == pytest.approx(mean, abs=1e-12)
    assert table["mean_win_probability"].mean() == pytest.approx(0.5)
    matrix = win_probability_matrix(np.stack([theta, -theta]))
    np.testing.assert_allclose(matrix, 1 - matrix.swapaxes(1, 2), atol=1e-15)
    np.testing.assert_allclose(matrix[0], matrix[1].T, atol=1e-15)


def test_equal_models_share_a_rank():
    data = Comparisons.from_arrays(
        [0] * 4, [0, 1, 0, 1], [1, 0, 2, 2], [1, 1, 0, 0], queries=["q"], models=["a", "b", "c"]
    )
    table = fit(data).ranking()
    assert table["rank"].to_dict() == {"a": 1.5, "b": 1.5, "c": 3.0}


def test_scikit_learn_finds_an_estimator():
    model = BradleyTerry(0.3, per_query_mean=True)
    defaults = {"ties": "half", "order_effect": False}
    assert model.get_params() == {"ridge": 0.3, "per_query_mean": True, **defaults}
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(ridge=2.0) is model
    assert repr(model) == "BradleyTerry(per_query_mean=True, ridge=2.0)"
    data = draw_comparisons(10)
    first = model.fit(data)
    again = clone(model).fit(data)
    assert first is model
    np.testing.assert_array_equal(first.strengths_, again.strengths_)
    assert fit(data, ridge=0.5).fit(data).strengths_.dims == ("llm",)


def test_fitting_twice_forgets_the_first_data():
    one, other = draw_comparisons(11), draw_comparisons(12, n_models=6)
    model = fit(one)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model.fit(other)
    np.testing.assert_array_equal(model.strengths_, fit(other).strengths_)
    assert model.models_.tolist() == other.models.tolist()


def test_a_null_model_is_fair():
    # Of equal models every strength is noise: mean zero, and its spread that of the information.
    rng = np.random.default_rng(13)
    n_fits, games = 2000, 40
    wins = rng.binomial(games, 0.5, (n_fits, 3))
    layout = PairLayout(np.array([0, 1, 0, 2, 1, 2]), np.array([1, 0, 2, 0, 2, 1]), 3)
    table = np.stack([wins, games - wins], axis=2).reshape(n_fits, 6)
    strengths = fit_strengths(table, layout, 1e-3)
    assert np.abs(strengths.mean(axis=0)).max() < 4 * 0.19 / n_fits**0.5
    # the Laplacian of a triangle has eigenvalue 3: variance (2 / 3) / (games / 4 * 3)
    expected = (2 / 3) / (games / 4 * 3)
    np.testing.assert_allclose(strengths.var(axis=0), expected, rtol=0.15)
