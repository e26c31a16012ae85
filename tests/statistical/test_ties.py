"""Tie margins and order effects are recovered, honestly, and predict ties."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from bayes_ecc import ECC, BradleyTerry, simulate, three_way_loss, with_tie_rate
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.samplers import GibbsProblem, GibbsState, draw_parameters

pytestmark = pytest.mark.statistical

BOTH = {"ties": "rao_kupper", "order_effect": True}
N_MODELS, N_ROWS, SETS, SWEEPS = 4, 120, 60, 500


def draw_rows(theta, delta, gamma, rng):
    first = rng.integers(N_MODELS, size=N_ROWS)
    second = (first + rng.integers(1, N_MODELS, size=N_ROWS)) % N_MODELS
    difference = theta[second] - theta[first] + gamma
    uniform = rng.random(N_ROWS)
    outcome = np.where(uniform < expit(difference + delta), 0.5, 0.0)
    outcome[uniform < expit(difference - delta)] = 1.0
    models = [f"m{i}" for i in range(N_MODELS)]
    zeros = np.zeros(N_ROWS, dtype=int)
    return Comparisons.from_arrays(zeros, first, second, outcome, queries=["q"], models=models)


def test_intervals_cover_what_the_priors_drew():
    """Truths from the priors lie in nominal intervals as often as these say."""
    rng = np.random.default_rng(11)
    inside = np.zeros((SETS, N_MODELS + 1), dtype=bool)
    rank = np.empty((SETS, 2))
    for i in range(SETS):
        theta = rng.normal(0, 0.9, N_MODELS)
        delta, gamma = abs(rng.normal(0, 0.7)), rng.normal(0, 0.5)
        problem = GibbsProblem.from_counts(
            np.eye(1, 2),
            draw_rows(theta, delta, gamma, rng).outcome_counts(**BOTH),
            n_clusters=1,
            n_models=N_MODELS,
            concentration=1.0,
            weight_alpha=None,
            global_scale=None,
            tau_scale=None,
            tie_margin_scale=0.7,
            order_effect_scale=0.5,
        )
        state = GibbsState(
            np.ones(1), np.zeros(N_MODELS), 0.9, np.zeros((1, N_MODELS)), np.eye(1, 2)
        )
        draws = np.empty((SWEEPS, N_MODELS + 1))
        for s in range(SWEEPS):
            state = draw_parameters(np.zeros(1, dtype=int), state, problem, rng)
            contrasts = state.strengths[0, 1:] - state.strengths[0, 0]
            draws[s] = [*contrasts, state.tie_margin, state.order_effect]
        kept, truth = draws[100:], np.array([*(theta[1:] - theta[0]), delta, gamma])
        low, high = np.quantile(kept, [0.1, 0.9], axis=0)
        inside[i] = (low < truth) & (truth < high)
        rank[i] = (kept[:, -2:] < truth[-2:]).mean(axis=0)
    for column in inside.T:
        assert binomtest(int(column.sum()), SETS, 0.8).pvalue > 1e-3
    # ranks of the truth among the draws are uniform, so neither too high nor too low on average
    np.testing.assert_allclose(rank.mean(axis=0), 0.5, atol=4 * 12**-0.5 / SETS**0.5)


@pytest.mark.parametrize("tie_margin", [0.1, 0.6, 1.2])
def test_em_recovers_margins_and_tie_rates(tie_margin):
    found, rates = [], []
    for seed in range(6):
        truth = simulate(
            n_queries=600, n_models=6, n_clusters=2, tie_margin=tie_margin, order_effect=0.3,
            spread=1.0, capability_signal=2.0, topic_signal=0.3, rng=seed,
        )  # fmt: skip
        fit = ECC(2, embedding_weight=1.0, temperature=0.05, ridge=0.1, rng=0, n_init=3, **BOTH)
        fit = fit.fit(truth.comparisons, truth.embeddings)
        found.append([fit.tie_margin_, fit.order_effect_])
        new = simulate(
            n_queries=600, n_models=6, n_clusters=2, tie_margin=tie_margin, order_effect=0.3,
            spread=1.0, capability_signal=2.0, topic_signal=0.3, rng=seed,
        )  # fmt: skip
        three = fit.predict_outcome_probabilities(new.comparisons, embeddings=new.embeddings)
        rates.append(three[:, 1].mean() - (new.comparisons.outcome == 0.5).mean())
    mean, sd = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
    np.testing.assert_allclose(mean, [tie_margin, 0.3], atol=max(4 * sd.max() / 6**0.5, 0.03))
    assert abs(np.mean(rates)) < 0.01


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_learnt_ties_beat_half_wins_and_the_tie_rate(n_clusters):
    """Held-out queries of data in which close models tie more."""
    won = []
    for seed in range(4):
        truth = simulate(
            n_queries=800, n_models=6, n_clusters=n_clusters, tie_margin=0.6,
            capability_signal=1.5, rng=seed,
        )  # fmt: skip
        train, test = truth.comparisons.split(test_size=0.3, rng=seed)
        place = {name: i for i, name in enumerate(truth.comparisons.queries)}
        x, z = (truth.embeddings[[place[q] for q in part.queries]] for part in (train, test))
        probes, rest = test.take_probes(2)
        rate = float((train.outcome == 0.5).mean())
        half, tied = (
            BradleyTerry(0.1, ties=ties)
            if n_clusters == 1
            else ECC(n_clusters, embedding_weight=1.0, ridge=0.1, n_init=2, rng=0, ties=ties)
            for ties in ("half", "rao_kupper")
        )
        known = {"embeddings": z, "probes": probes}
        learnt = tied.fit(train, x).predict_outcome_probabilities(rest, **known)
        spread = with_tie_rate(half.fit(train, x).predict_win_probability(rest, **known), rate)
        won.append(three_way_loss(spread, rest) - three_way_loss(learnt, rest))
    assert min(won) > 0.005
