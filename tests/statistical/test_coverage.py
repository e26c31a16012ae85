"""Intervals hold the truth as often as they say, where truth is drawn from the prior.

Truth, embeddings and outcomes are drawn by SciPy from the model as it is written down; Gibbs then
sees the data alone. Of quantities that no numbering of the clusters changes, a 90 % interval must
hold the true value nine times in ten, and the true value's rank among the draws must be uniform
(simulation-based calibration).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from bayes_ecc import Comparisons, summarize_ranking
from bayes_ecc.models.ecc_mixture import Priors
from bayes_ecc.posterior import make_posterior
from bayes_ecc.samplers import GibbsProblem, GibbsState, draw_parameters, gibbs_sweep

pytestmark = pytest.mark.statistical

N_QUERIES, N_NEW, PER_QUERY, N_CLUSTERS, N_MODELS, DIM = 80, 20, 5, 3, 4, 4
CONCENTRATION, PROB = 6.0, 0.9
PRIORS = Priors()
N_CHAINS, TUNE, THIN, N_RANKS = 2, 300, 5, 100
PAIRS = np.array([(i, j) for i in range(N_MODELS) for j in range(i + 1, N_MODELS)])


class Truth(NamedTuple):
    weights: np.ndarray
    global_strengths: np.ndarray
    tau: float
    strengths: np.ndarray
    centroids: np.ndarray


class Data(NamedTuple):
    """The first N_QUERIES are fitted; of the new ones the first comparison may be a probe."""

    embeddings: np.ndarray
    pairs: np.ndarray  # (n_queries, PER_QUERY, 2)
    won: np.ndarray  # (n_queries, PER_QUERY), 1 where the first of the pair won


def draw_truth(rng):
    weights = stats.dirichlet(np.full(N_CLUSTERS, PRIORS.weight_alpha)).rvs(random_state=rng)[0]
    centre = stats.norm(0, PRIORS.global_scale).rvs(N_MODELS, random_state=rng)
    tau = stats.halfnorm(scale=PRIORS.tau_scale).rvs(random_state=rng)
    strengths = stats.norm(centre, tau).rvs((N_CLUSTERS, N_MODELS), random_state=rng)
    centroids = stats.uniform_direction(DIM).rvs(N_CLUSTERS, random_state=rng)
    return Truth(weights, centre, tau, strengths, centroids)


def draw_data(truth, rng):
    n = N_QUERIES + N_NEW
    z = rng.choice(N_CLUSTERS, size=n, p=truth.weights)
    x = np.empty((n, DIM))
    for k in np.unique(z):
        law = stats.vonmises_fisher(truth.centroids[k], CONCENTRATION)
        x[z == k] = law.rvs((z == k).sum(), random_state=rng).reshape(-1, DIM)
    pairs = PAIRS[np.argsort(rng.random((n, len(PAIRS))), axis=1)[:, :PER_QUERY]]
    theta = np.take_along_axis(truth.strengths[z][:, None], pairs, axis=2)
    won = rng.random((n, PER_QUERY)) < special.expit(theta[..., 0] - theta[..., 1])
    return Data(x, pairs, won.astype(float))


def as_comparisons(data, queries, per_query=PER_QUERY):
    pairs, won = data.pairs[queries, :per_query], data.won[queries, :per_query]
    return Comparisons.from_arrays(
        np.repeat(np.arange(len(pairs)), per_query),
        pairs[..., 0].ravel(),
        pairs[..., 1].ravel(),
        1 - won.ravel(),
        queries=range(len(pairs)),
        models=[f"llm_{m}" for m in range(N_MODELS)],
    )


def draw_posterior(data, n_draws, rng, *, n_queries=N_QUERIES, power=1.0):
    """Chains from random clusters: arrays (N_CHAINS * n_draws, ...) in the order of Truth."""
    problem = GibbsProblem.from_counts(
        data.embeddings[:n_queries],
        as_comparisons(data, slice(n_queries)).outcome_counts(),
        n_clusters=N_CLUSTERS,
        n_models=N_MODELS,
        concentration=CONCENTRATION,
        evidence_power=power,
        weight_alpha=PRIORS.weight_alpha,
        global_scale=PRIORS.global_scale,
        tau_scale=PRIORS.tau_scale,
    )
    kept = []
    for _ in range(N_CHAINS):
        state = GibbsState(
            np.full(N_CLUSTERS, 1 / N_CLUSTERS),
            np.zeros(N_MODELS),
            1.0,
            np.zeros((N_CLUSTERS, N_MODELS)),
            np.eye(N_CLUSTERS, DIM),
        )
        labels = rng.integers(N_CLUSTERS, size=n_queries)
        state = draw_parameters(labels, state, problem, rng)
        for sweep in range(TUNE + THIN * n_draws):
            state, _ = gibbs_sweep(state, problem, rng)
            if sweep >= TUNE and (sweep - TUNE) % THIN == 0:
                kept.append(state)
    return Truth(*(np.array([getattr(state, name) for state in kept]) for name in Truth._fields))


# ---------------------------------------------------------------- what intervals are taken of


def shares(draws, data, queries, probes):
    """Responsibilities (n_draws, n_queries, n_clusters), by so many comparisons of each query."""
    scores = np.log(draws.weights)[:, None]
    scores = scores + CONCENTRATION * np.einsum(
        "qd,skd->sqk", data.embeddings[queries], draws.centroids
    )
    pairs, won = data.pairs[queries, :probes], data.won[queries, :probes]
    for n in range(probes):
        gap = draws.strengths[..., pairs[:, n, 0]] - draws.strengths[..., pairs[:, n, 1]]
        sign = 2 * won[:, n] - 1
        scores = scores + special.log_expit(sign * gap).transpose(0, 2, 1)
    return special.softmax(scores, axis=2)


def win_probabilities(draws, r, pairs):
    gap = draws.strengths[..., pairs[:, 0]] - draws.strengths[..., pairs[:, 1]]
    return np.einsum("sqk,skq->sq", r, special.expit(gap))


def quantities(draws, data):
    """Functions of a draw, shape (n_draws, n), by kind."""
    fitted, new = slice(N_QUERIES), slice(N_QUERIES, None)
    r = shares(draws, data, fitted, PER_QUERY)
    blind, probed = (shares(draws, data, new, probes) for probes in (0, 1))
    # The cluster in which model 0 does best against model 1 has a name of its own.
    best = (draws.strengths[..., 0] - draws.strengths[..., 1]).argmax(axis=1)[:, None, None]
    contrast = draws.global_strengths - draws.global_strengths.mean(axis=1, keepdims=True)
    return {
        "win probability": win_probabilities(draws, r, data.pairs[fitted, 0]),
        "win probability, new query": win_probabilities(draws, blind, data.pairs[new, 1]),
        "win probability, probed query": win_probabilities(draws, probed, data.pairs[new, 1]),
        "responsibility": np.take_along_axis(r, best, axis=2)[..., 0],
        "responsibility, new query": np.take_along_axis(blind, best, axis=2)[..., 0],
        "same cluster": (r[:, 1:] * r[:, :-1]).sum(axis=2),
        "tau": draws.tau[:, None],
        "global contrast": contrast,
    }


def library_ranking(draws, data):
    """The library's own summary of the fitted queries, from a posterior with these draws."""
    chains = [value.reshape(N_CHAINS, -1, *value.shape[1:]) for value in draws]
    tree = make_posterior(
        strengths=chains[3],
        centroids=chains[4],
        weights=chains[0],
        models=as_comparisons(data, slice(1)).models,
        concentration=CONCENTRATION,
        evidence_power=1.0,
        probe_power=1.0,
        rule="per_comparison",
        estimator="coverage",
        settings={},
    )
    return summarize_ranking(
        tree,
        embeddings=data.embeddings[:N_QUERIES],
        probes=as_comparisons(data, slice(N_QUERIES)),
        prob=PROB,
        kind="eti",
    )


def pool_win_probability(draws, data):
    """Mean win probability against the others, (n_draws, N_QUERIES, N_MODELS), in plain loops."""
    r = shares(draws, data, slice(N_QUERIES), PER_QUERY)
    result = np.zeros((len(r), N_QUERIES, N_MODELS))
    for i in range(N_MODELS):
        for j in set(range(N_MODELS)) - {i}:
            pairs = np.tile([i, j], (N_QUERIES, 1))
            result[..., i] += win_probabilities(draws, r, pairs) / (N_MODELS - 1)
    return result


# ---------------------------------------------------------------- replications


class Replications(NamedTuple):
    covered: dict[str, np.ndarray]  # share of a replication's intervals that hold the truth
    ranks: dict[str, np.ndarray]  # of the truth among N_RANKS - 1 draws


def run_replications(n, n_draws):
    covered, ranks = {}, {}
    for rng in np.random.default_rng(20).spawn(n):
        truth = draw_truth(rng)
        data = draw_data(truth, rng)
        draws = draw_posterior(data, n_draws, rng)
        true = Truth(*(np.asarray(value)[None] for value in truth))
        found, actual = quantities(draws, data), quantities(true, data)
        for name, values in found.items():
            low, high = np.quantile(values, [(1 - PROB) / 2, (1 + PROB) / 2], axis=0)
            inside = (low <= actual[name][0]) & (actual[name][0] <= high)
            covered.setdefault(name, []).append(inside.mean())
        summary = library_ranking(draws, data)
        pool = pool_win_probability(true, data)[0]
        low, high = (summary[f"win_probability_{side}"].values for side in ("lower", "upper"))
        covered.setdefault("win probability against the pool", []).append(
            ((low <= pool) & (pool <= high)).mean()
        )
        place = stats.rankdata(-pool, axis=1)
        low, high = (summary[f"rank_{side}"].values for side in ("lower", "upper"))
        covered.setdefault("rank", []).append(((low <= place) & (place <= high)).mean())
        best = np.take_along_axis(summary["in_best_set"].values, pool.argmax(axis=1)[:, None], 1)
        covered.setdefault("set of the best", []).append(best.mean())
        few = np.linspace(0, len(draws.tau) - 1, N_RANKS - 1).astype(int)
        for name in ("tau", "global contrast"):
            below = found[name][few, 0] < actual[name][0, 0]
            ranks.setdefault(name, []).append(below.sum())
    return Replications(
        {name: np.array(values) for name, values in covered.items()},
        {name: np.array(values) for name, values in ranks.items()},
    )


@pytest.fixture(scope="module")
def repeated(replications):
    return run_replications(replications(150, 10), replications(300, 100))


def three_errors(covered):
    """Three binomial errors, as though the intervals of a replication were a single one."""
    return 3 * np.sqrt(PROB * (1 - PROB) / len(covered))


def describe(covered):
    error = covered.std(ddof=1) / np.sqrt(len(covered))
    return f"{covered.mean():.3f} +- {error:.3f} over {len(covered)} replications"


@pytest.mark.parametrize(
    "name",
    [
        "win probability",
        "win probability, new query",
        "win probability, probed query",
        "win probability against the pool",
        "responsibility",
        "responsibility, new query",
        "same cluster",
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(name, repeated, replications):
    """85 to 95 % over 150 replications; of the few of the small form, what chance leaves."""
    covered = repeated.covered[name]
    allowed = replications(0.05, three_errors(covered))
    assert abs(covered.mean() - PROB) <= allowed, describe(covered)


@pytest.mark.parametrize("name", ["tau", "global contrast"])
def test_so_do_those_of_what_clusters_share(name, repeated):
    covered = repeated.covered[name]
    assert abs(covered.mean() - PROB) <= three_errors(covered), describe(covered)


@pytest.mark.parametrize("name", ["rank", "set of the best"])
def test_sets_of_whole_numbers_hold_the_truth_at_least_as_often(name, repeated):
    """Places are whole numbers, so that an interval of 90 % nearly always holds more."""
    covered = repeated.covered[name]
    assert covered.mean() >= PROB, describe(covered)


@pytest.mark.parametrize("name", ["tau", "global contrast"])
def test_ranks_of_the_truth_are_uniform(name, repeated, replications):
    ranks = repeated.ranks[name]
    n_bins = replications(10, 2)
    counts = np.histogram(ranks, n_bins, (0, N_RANKS))[0]
    assert stats.chisquare(counts).pvalue > 0.002, counts


def test_half_the_evidence_widens_intervals(replications):
    """Half the queries, or every comparison counted half: new queries are known less well."""
    widths = {"all": [], "half the queries": [], "half the power": []}
    for rng in np.random.default_rng(8).spawn(replications(20, 2)):
        data = draw_data(draw_truth(rng), rng)
        for name, changed in (
            ("all", {}),
            ("half the queries", {"n_queries": N_QUERIES // 2}),
            ("half the power", {"power": 0.5}),
        ):
            draws = draw_posterior(data, replications(200, 60), rng, **changed)
            p = quantities(draws, data)["win probability, new query"]
            low, high = np.quantile(p, [(1 - PROB) / 2, (1 + PROB) / 2], axis=0)
            widths[name].append((high - low).mean())
    mean = {name: np.mean(values) for name, values in widths.items()}
    # Where data decide, half of them make intervals 1.41 times as wide.
    assert mean["half the queries"] > 1.15 * mean["all"], mean
    assert mean["half the power"] > 1.15 * mean["all"], mean
