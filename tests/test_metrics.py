from __future__ import annotations

import arviz_base
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit
from sklearn.metrics import log_loss

from bayes_ecc.calibration import expected_calibration_error, reliability_bins
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.metrics import bt_loss, gain_difference_interval, gain_interval, ranking_quality_gain


def make(query, outcome, weight=None, n_queries=None):
    """Comparisons of model a (first) and b (second)."""
    n_queries = max(query) + 1 if n_queries is None else n_queries
    zeros = np.zeros(len(query), dtype=int)
    return Comparisons.from_arrays(
        np.asarray(query),
        zeros,
        zeros + 1,
        outcome,
        weight=weight,
        queries=range(n_queries),
        models=["a", "b"],
    )


def draw(rng, n_queries=40, per_query=5, *, soft=True):
    """Random comparisons with unequal counts and weights, and two sets of predictions."""
    query = np.sort(rng.integers(n_queries, size=n_queries * per_query))
    truth = rng.beta(2, 2, size=len(query))
    outcome = (rng.random(len(query)) < truth).astype(float)
    if soft:
        outcome = np.where(rng.random(len(query)) < 0.2, rng.choice([0.5, 0.3]), outcome)
    data = make(query, outcome, weight=rng.uniform(0.2, 3, len(query)), n_queries=n_queries)
    noisy = np.clip(truth + rng.normal(0, 0.1, len(query)), 0.02, 0.98)
    return data, noisy, np.clip(0.7 * truth + 0.15, 0.05, 0.95)


# ---------------------------------------------------------------- loss


def test_loss_is_the_log_loss_of_an_independent_library():
    rng = np.random.default_rng(0)
    data, p, _ = draw(rng, soft=False)
    expected = log_loss(data.outcome, p, sample_weight=data.weight)
    assert bt_loss(p, data) == pytest.approx(expected, rel=1e-12)


def test_soft_outcomes_are_shares_of_a_win_each_way():
    rng = np.random.default_rng(1)
    data, p, _ = draw(rng)
    expected = log_loss(
        np.repeat([1, 0], len(data)),
        np.tile(p, 2),
        sample_weight=np.concatenate(
            [data.weight * data.outcome, data.weight * (1 - data.outcome)]
        ),
    )
    assert bt_loss(p, data) == pytest.approx(expected, rel=1e-12)


def test_averages_by_hand():
    data = make([0, 0, 2], [1.0, 0.0, 0.5], weight=[1.0, 3.0, 2.0], n_queries=4)
    p = [0.8, 0.4, 0.6]
    losses = [-np.log(0.8), -np.log(0.6), -(np.log(0.6) + np.log(0.4)) / 2]
    assert bt_loss(p, data) == pytest.approx((losses[0] + 3 * losses[1] + 2 * losses[2]) / 6)
    by_query = ((losses[0] + 3 * losses[1]) / 4 + losses[2]) / 2
    assert bt_loss(p, data, average="query") == pytest.approx(by_query)


def test_a_coin_loses_log_two_whatever_happened():
    data, _, _ = draw(np.random.default_rng(2))
    for average in ("comparison", "query"):
        assert bt_loss(np.full(len(data), 0.5), data, average=average) == pytest.approx(np.log(2))


@pytest.mark.parametrize("average", ["comparison", "query"])
def test_half_weights_change_nothing(average):
    data, p, base = draw(np.random.default_rng(3))
    twice = Comparisons.from_frame(
        pd.concat([data.to_frame().assign(weight=data.weight / 2)] * 2),
        queries=data.queries,
        models=data.models,
    )
    p2, base2 = np.tile(p, 2), np.tile(base, 2)
    assert bt_loss(p2, twice, average=average) == pytest.approx(bt_loss(p, data, average=average))
    assert ranking_quality_gain(p2, base2, twice, average=average) == pytest.approx(
        ranking_quality_gain(p, base, data, average=average)
    )
    pd.testing.assert_frame_equal(reliability_bins(p2, twice), reliability_bins(p, data))
    assert expected_calibration_error(p2, twice) == pytest.approx(
        expected_calibration_error(p, data)
    )
    np.testing.assert_allclose(
        gain_interval(p2, base2, twice, average=average, rng=0)[:4],
        gain_interval(p, base, data, average=average, rng=0)[:4],
    )


def test_turning_pairs_round_keeps_the_loss():
    data, p, base = draw(np.random.default_rng(4))
    turned = Comparisons.from_arrays(
        data.query,
        data.second,
        data.first,
        1 - data.outcome,
        weight=data.weight,
        queries=data.queries,
        models=data.models,
    )
    assert bt_loss(1 - p, turned) == pytest.approx(bt_loss(p, data))
    assert ranking_quality_gain(1 - p, 1 - base, turned) == pytest.approx(
        ranking_quality_gain(p, base, data)
    )


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8))
def test_no_prediction_beats_the_outcomes_themselves(outcome):
    data = make([0] * len(outcome), outcome)
    best = bt_loss(outcome, data)
    assert best == pytest.approx(np.mean([stats.bernoulli(y).entropy() for y in outcome]))
    assert bt_loss(outcome[::-1], data) >= best - 1e-12


def test_certainty_costs_nothing_when_right_and_everything_when_wrong():
    data = make([0, 0, 1], [1.0, 0.0, 1.0])
    assert bt_loss([1.0, 0.0, 1.0], data) == 0.0
    assert bt_loss([1.0, 0.0, 0.0], data) == np.inf
    assert bt_loss([1.0, 0.0, 0.0], data, average="query") == np.inf
    assert bt_loss([1.0, 0.0, 1.0], make([0, 0, 1], [1.0, 0.0, 0.5])) == np.inf
    assert ranking_quality_gain([1.0, 0.0, 0.0], [0.5] * 3, data) == -np.inf
    assert ranking_quality_gain([1.0, 0.0, 1.0], [0.5] * 3, data) == 100.0


def test_float32_rounding_beyond_one_is_forgiven():
    data = make([0], [1.0])
    assert bt_loss(np.array([1 + 1e-7], dtype=np.float32), data) == 0.0


def test_gain_by_hand():
    data = make([0, 1], [1.0, 0.0])
    expected = 100 * (1 - np.log(0.8) / np.log(0.5))
    assert ranking_quality_gain([0.8, 0.2], [0.5, 0.5], data) == pytest.approx(expected)
    assert ranking_quality_gain([0.5, 0.5], [0.5, 0.5], data) == 0.0
    assert ranking_quality_gain([0.2, 0.8], [0.5, 0.5], data) < 0


def test_loss_and_gain_are_the_public_reference_codes(parity_reference):
    saved, scored = parity_reference.arrays, parity_reference.scored
    global_strengths, strengths = saved["global_strengths"], saved["strengths"]
    base = expit(global_strengths[scored.second] - global_strengths[scored.first])
    by_cluster = expit(strengths[:, scored.second] - strengths[:, scored.first])
    p = (saved["test_responsibilities"][scored.query] * by_cluster.T).sum(axis=1)
    assert bt_loss(base, scored) == pytest.approx(float(saved["loss_global"]), abs=1e-6)
    assert bt_loss(p, scored) == pytest.approx(float(saved["loss_probe_and_embedding"]), abs=1e-6)
    assert ranking_quality_gain(p, base, scored) == pytest.approx(
        100 * float(saved["gain"]), abs=1e-4
    )


# ---------------------------------------------------------------- intervals


@pytest.mark.parametrize("average", ["comparison", "query"])
def test_interval_agrees_with_scipys_bootstrap(average):
    data, p, base = draw(np.random.default_rng(5), n_queries=60)
    rows = [np.flatnonzero(data.query == q) for q in range(data.n_queries)]
    rows = [chosen for chosen in rows if len(chosen)]

    def gain(sample):
        chosen = [rows[int(i)] for i in sample]
        index = np.concatenate(chosen)
        fresh = np.repeat(np.arange(len(chosen)), [len(c) for c in chosen])
        drawn = make(fresh, data.outcome[index], weight=data.weight[index])
        return ranking_quality_gain(p[index], base[index], drawn, average=average)

    reference = stats.bootstrap(
        (np.arange(len(rows)),),
        gain,
        n_resamples=2000,
        vectorized=False,
        method="percentile",
        confidence_level=0.9,
        rng=np.random.default_rng(0),
    )
    ours = gain_interval(
        p, base, data, average=average, prob=0.9, kind="eti", n_resamples=20_000, rng=1
    )
    # Monte Carlo error of a 5 % quantile from 2,000 draws: about 2.1 / sqrt(2000) sd.
    tolerance = 4 * 2.1 / np.sqrt(2000) * reference.standard_error
    assert ours.low == pytest.approx(reference.confidence_interval.low, abs=tolerance)
    assert ours.high == pytest.approx(reference.confidence_interval.high, abs=tolerance)
    assert ours.sd == pytest.approx(reference.standard_error, rel=0.08)
    assert ours.mean == pytest.approx(
        ranking_quality_gain(p, base, data, average=average), abs=0.25 * ours.sd
    )


def test_difference_is_taken_on_the_same_resamples():
    data, p, base = draw(np.random.default_rng(6))
    q = np.clip(p + 0.01, 0, 1)
    own = gain_interval(p, base, data, rng=0)
    difference = gain_difference_interval(p, q, base, data, rng=0)
    assert difference.mean == pytest.approx(own.mean - gain_interval(q, base, data, rng=0).mean)
    assert difference.sd < 0.3 * own.sd
    assert gain_difference_interval(p, p, base, data, rng=0)[:4] == (0.0, 0.0, 0.0, 0.0)
    against_baseline = gain_difference_interval(p, base, base, data, rng=0)
    np.testing.assert_allclose(against_baseline[:4], own[:4])


def test_blocks_of_resamples_change_nothing(monkeypatch):
    data, p, base = draw(np.random.default_rng(7))
    whole = gain_interval(p, base, data, n_resamples=101, rng=0)
    monkeypatch.setattr("bayes_ecc.metrics._RESAMPLE_CELLS", 7 * data.n_queries)
    np.testing.assert_allclose(
        gain_interval(p, base, data, n_resamples=101, rng=0)[:4], whole[:4], rtol=1e-12
    )


def test_interval_follows_arviz_settings():
    rng = np.random.default_rng(8)
    data, p, base = draw(rng, n_queries=12)
    eti = gain_interval(p, base, data, prob=0.7, kind="eti", rng=0)
    hdi = gain_interval(p, base, data, prob=0.7, kind="hdi", rng=0)
    assert hdi.high - hdi.low <= eti.high - eti.low
    assert (eti.low, eti.high) != (hdi.low, hdi.high)
    with arviz_base.rc_context({"stats.ci_prob": 0.7, "stats.ci_kind": "hdi"}):
        assert gain_interval(p, base, data, rng=0) == hdi
    with arviz_base.rc_context({"stats.ci_prob": 0.7, "stats.ci_kind": "eti"}):
        assert gain_interval(p, base, data, rng=0) == eti


def test_queries_without_comparisons_do_not_widen_the_interval():
    data, p, base = draw(np.random.default_rng(9))
    more = make(data.query, data.outcome, weight=data.weight, n_queries=4000)
    assert gain_interval(p, base, more, rng=0) == gain_interval(p, base, data, rng=0)


def test_an_infinite_loss_is_minus_infinity_for_certain():
    data = make([0, 1, 2], [1.0, 1.0, 0.0])
    base, fine, wrong = [0.5] * 3, [0.7, 0.7, 0.3], [0.7, 0.0, 0.3]
    interval = gain_interval(wrong, base, data, rng=0)
    assert interval[:3] == (-np.inf, -np.inf, -np.inf)
    assert np.isnan(interval.sd)
    assert gain_difference_interval(wrong, fine, base, data, rng=0).mean == -np.inf
    assert gain_difference_interval(fine, wrong, base, data, rng=0).low == np.inf
    assert np.isnan(gain_difference_interval(wrong, wrong, base, data, rng=0).mean)


@pytest.mark.statistical
def test_interval_covers_the_expected_gain(replications):
    # A query's comparisons share its truth; resampling comparisons covers 0.68 only.
    n_repeats, n_queries, per_query = replications(2000, 300), 150, 6
    rng = np.random.default_rng(10)

    def sample(n):
        truth = np.repeat(rng.beta(0.6, 0.6, n), per_query)
        outcome = (rng.random(len(truth)) < truth).astype(float)
        p = np.repeat(rng.beta(2, 2, n), per_query) * 0.2 + truth * 0.6 + 0.1
        return make(np.repeat(np.arange(n), per_query), outcome), p

    large, p = sample(200_000)
    expected = ranking_quality_gain(p, np.full(len(large), 0.5), large)
    covered = 0
    for _ in range(n_repeats):
        data, p = sample(n_queries)
        interval = gain_interval(
            p, np.full(len(data), 0.5), data, prob=0.9, kind="eti", n_resamples=400, rng=rng
        )
        covered += interval.low <= expected <= interval.high
    # 0.88 at 2,000 repeats; 300 repeats are within 0.05 of that at 2.7 standard errors.
    assert 0.83 <= covered / n_repeats <= 0.94


# ---------------------------------------------------------------- calibration


def test_bins_are_the_brute_force_ones():
    data, p, _ = draw(np.random.default_rng(11))
    p = np.where(np.arange(len(p)) % 7 == 0, np.round(p * 15) / 15, p)
    p[:2] = 0.0, 1.0
    table = reliability_bins(p, data)
    assert len(table) == 15
    edges = np.linspace(0, 1, 16)
    error = 0.0
    for b in range(15):
        inside = (p >= edges[b]) & ((p < edges[b + 1]) | (b == 14))
        row = table.iloc[b]
        assert (row["low"], row["high"]) == (edges[b], edges[b + 1])
        assert row["weight"] == pytest.approx(data.weight[inside].sum())
        if inside.any():
            w = data.weight[inside]
            assert row["predicted"] == pytest.approx(np.average(p[inside], weights=w))
            observed = np.average(data.outcome[inside], weights=w)
            assert row["observed"] == pytest.approx(observed)
            error += w.sum() / data.weight.sum() * abs(row["predicted"] - observed)
        else:
            assert np.isnan(row["predicted"])
            assert np.isnan(row["observed"])
    assert expected_calibration_error(p, data) == pytest.approx(error)


def test_calibration_error_by_hand():
    data = make([0] * 4, [1.0, 0.0, 1.0, 0.5], weight=[1.0, 1.0, 1.0, 3.0])
    # Bins [0, .5) and [.5, 1]: |.2 - 0| with weight 1, |(.9 + .7 + 3 * .5) / 5 - 3.5 / 5| with 5.
    assert expected_calibration_error([0.9, 0.2, 0.7, 0.5], data, n_bins=2) == pytest.approx(
        (0.2 + 5 * abs(3.1 - 3.5) / 5) / 6
    )


def test_one_bin_compares_the_means():
    data, p, _ = draw(np.random.default_rng(12))
    gap = np.average(p - data.outcome, weights=data.weight)
    assert expected_calibration_error(p, data, n_bins=1) == pytest.approx(abs(gap))


def test_the_truth_is_calibrated_and_overconfidence_is_not():
    rng = np.random.default_rng(13)
    logit = rng.normal(0, 1.5, 60_000)
    truth = 1 / (1 + np.exp(-logit))
    data = make(np.arange(60_000), (rng.random(60_000) < truth).astype(float))
    assert expected_calibration_error(truth, data) < 0.012
    assert expected_calibration_error(1 / (1 + np.exp(-2 * logit)), data) > 0.05


# ---------------------------------------------------------------- bad input

DATA = make([0, 0, 1], [1.0, 0.0, 1.0])
FINE = [0.6, 0.4, 0.7]


@pytest.mark.parametrize(
    ("probability", "message"),
    [
        ([0.5, 0.5], "shape"),
        ([[0.5], [0.5], [0.5]], "shape"),
        (0.5, "shape"),
        ([0.5, np.nan, 0.5], "row 1: found nan"),
        ([0.5, 0.5, 1.2], "row 2: found 1.2"),
        ([-0.1, 0.5, 0.5], "row 0: found -0.1"),
        (["a", "b", "c"], "numbers"),
        ([None, 0.1, 0.2], "row 0"),
    ],
)
def test_bad_probabilities_are_refused(probability, message):
    for function in (bt_loss, reliability_bins, expected_calibration_error):
        with pytest.raises(InputError, match=message):
            function(probability, DATA)
    with pytest.raises(InputError, match="baseline.*" + message):
        gain_interval(FINE, probability, DATA)
    with pytest.raises(InputError, match="probability_b.*" + message):
        gain_difference_interval(FINE, probability, FINE, DATA)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bt_loss(FINE, DATA, average="model"), "average='model'"),
        (lambda: bt_loss(FINE, DATA.to_frame()), "not DataFrame"),
        (lambda: bt_loss([], DATA.rows(np.zeros(3, dtype=bool))), "no comparisons"),
        (lambda: reliability_bins(FINE, DATA, n_bins=0), "n_bins=0"),
        (lambda: reliability_bins(FINE, DATA, n_bins=2.5), "n_bins=2.5"),
        (lambda: gain_interval(FINE, FINE, DATA, prob=1.0), "prob=1.0"),
        (lambda: gain_interval(FINE, FINE, DATA, prob="most"), "prob='most'"),
        (lambda: gain_interval(FINE, FINE, DATA, kind="wald"), "kind='wald'"),
        (lambda: gain_interval(FINE, FINE, DATA, n_resamples=1), "n_resamples=1"),
        (lambda: gain_interval(FINE, FINE, DATA, rng=-1), "rng=-1"),
        (lambda: gain_interval(FINE[:2], FINE[:2], DATA.take([0])), "One query"),
        (lambda: ranking_quality_gain(FINE, [1.0, 0.0, 1.0], DATA), "loss is 0.0"),
        (lambda: ranking_quality_gain(FINE, [0.0, 0.0, 1.0], DATA), "loss is inf"),
        (lambda: gain_interval(FINE, [1.0, 0.0, 0.5], DATA, rng=0), "on some resamples"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_nothing_passed_in_is_written_to():
    p = np.array(FINE)
    bt_loss(p, DATA)
    gain_interval(p, p, DATA, rng=0)
    expected_calibration_error(p, DATA)
    assert p.tolist() == FINE
