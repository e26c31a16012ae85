"""The sweep's pieces against brute force, dense Gaussians and quadrature."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import special, stats

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.samplers import (
    GibbsProblem,
    GibbsState,
    cumulative_responsibilities,
    draw_parameters,
    gibbs,
    gibbs_sweep,
    log_joint,
    log_prior,
    polya_gamma_moments,
    random_von_mises_fisher,
)

N_QUERIES, N_MODELS, N_CLUSTERS, DIM, POWER = 12, 4, 3, 5, 1.5


@pytest.fixture
def comparisons():
    """Weights, ties, soft outcomes, a query without comparisons."""
    rng = np.random.default_rng(0)
    query = rng.integers(0, N_QUERIES - 1, 40)
    first = rng.integers(0, N_MODELS, 40)
    second = (first + rng.integers(1, N_MODELS, 40)) % N_MODELS
    return Comparisons.from_arrays(
        query,
        first,
        second,
        rng.choice([0.0, 0.5, 1.0, 0.3], 40),
        weight=rng.choice([1.0, 2.0, 0.25], 40),
        queries=range(N_QUERIES),
        models=[f"m{i}" for i in range(N_MODELS)],
    )


@pytest.fixture
def state():
    rng = np.random.default_rng(1)
    return GibbsState(
        weights=rng.dirichlet(np.ones(N_CLUSTERS)),
        global_strengths=rng.normal(size=N_MODELS),
        tau=0.8,
        strengths=rng.normal(size=(N_CLUSTERS, N_MODELS)),
        centroids=random_von_mises_fisher(np.zeros((N_CLUSTERS, DIM)), rng=rng),
    )


def make_problem(comparisons, **settings):
    embeddings = random_von_mises_fisher(np.zeros((N_QUERIES, DIM)), rng=2)
    settings = {"dtype": np.float64, "evidence_power": POWER} | settings
    return GibbsProblem.from_counts(
        embeddings,
        comparisons.outcome_counts(),
        n_clusters=N_CLUSTERS,
        n_models=N_MODELS,
        concentration=4.0,
        **settings,
    )


# ---------------------------------------------------------------- densities


def test_log_joint_is_the_sum_over_comparisons(comparisons, state):
    problem = make_problem(comparisons)
    expected = np.log(state.weights) + 4.0 * problem.embeddings @ state.centroids.T
    rows = zip(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        comparisons.outcome,
        comparisons.weight,
        strict=True,
    )
    for q, first, second, outcome, weight in rows:
        p = special.expit(state.strengths[:, second] - state.strengths[:, first])
        expected[q] += POWER * weight * (outcome * np.log(p) + (1 - outcome) * np.log(1 - p))
    np.testing.assert_allclose(log_joint(state, problem), expected, rtol=1e-12)


def test_log_prior_is_that_of_the_model(comparisons, state):
    problem = make_problem(comparisons, weight_alpha=1.7, global_scale=0.9, tau_scale=1.3)
    expected = (
        stats.dirichlet(np.full(N_CLUSTERS, 1.7)).logpdf(state.weights)
        + stats.norm(0, 0.9).logpdf(state.global_strengths).sum()
        + stats.halfnorm(scale=1.3).logpdf(state.tau)
        + stats.norm(state.global_strengths, state.tau).logpdf(state.strengths).sum()
    )
    assert log_prior(state, problem) == pytest.approx(expected, rel=1e-12)
    fixed = make_problem(comparisons, weight_alpha=None, global_scale=None, tau_scale=None)
    expected = stats.norm(state.global_strengths, state.tau).logpdf(state.strengths).sum()
    assert log_prior(state, fixed) == pytest.approx(expected, rel=1e-12)


def test_cumulative_responsibilities_and_their_total(comparisons, state):
    problem = make_problem(comparisons)
    cumulative, total = cumulative_responsibilities(state, problem)
    table = log_joint(state, problem)
    np.testing.assert_allclose(
        np.diff(cumulative, prepend=0, axis=1) / cumulative[:, -1:], special.softmax(table, axis=1)
    )
    assert total == pytest.approx(special.logsumexp(table, axis=1).sum(), rel=1e-12)


def test_32_bits_are_enough(comparisons, state):
    exact, exact_total = cumulative_responsibilities(state, make_problem(comparisons))
    short, short_total = cumulative_responsibilities(
        state, make_problem(comparisons, dtype=np.float32)
    )
    assert short.dtype == np.float32
    np.testing.assert_allclose(short / short[:, -1:], exact / exact[:, -1:], atol=2e-6)
    assert short_total == pytest.approx(exact_total, abs=1e-4)


def test_far_away_strengths_stay_finite(comparisons, state):
    far = replace(state, strengths=800.0 * state.strengths)
    assert np.isfinite(log_joint(far, make_problem(comparisons, dtype=np.float32))).all()


# ---------------------------------------------------------------- draws


def test_labels_follow_the_responsibilities(comparisons, state):
    problem = make_problem(comparisons)
    rng = np.random.default_rng(3)
    n = 1500
    counts = np.zeros((N_QUERIES, N_CLUSTERS))
    for _ in range(n):
        _, labels = gibbs_sweep(state, problem, rng)
        counts[np.arange(N_QUERIES), labels] += 1
    expected = special.softmax(log_joint(state, problem), axis=1)
    error = np.sqrt(expected * (1 - expected) / n)
    assert (np.abs(counts / n - expected) < 4.5 * error + 1e-3).all()


def test_the_augmented_likelihood_has_the_mean_of_its_polya_gamma_variables(comparisons, state):
    problem = make_problem(comparisons)
    labels = np.arange(N_QUERIES) % N_CLUSTERS
    rng = np.random.default_rng(4)
    n = 3000
    sums = gibbs._pair_sums(labels, problem)
    draws = [gibbs._augmented_likelihood(*sums, state.strengths, problem, rng) for _ in range(n)]
    precision = np.zeros((N_CLUSTERS, N_MODELS, N_MODELS))
    spread = np.zeros_like(precision)
    linear = np.zeros((N_CLUSTERS, N_MODELS))
    for row in range(len(comparisons)):
        k = labels[comparisons.query[row]]
        i, j = comparisons.first[row], comparisons.second[row]
        weight = POWER * comparisons.weight[row]
        mean, variance = polya_gamma_moments(weight, state.strengths[k, i] - state.strengths[k, j])
        contrast = np.zeros(N_MODELS)
        contrast[j], contrast[i] = 1, -1
        precision[k] += mean * np.outer(contrast, contrast)
        spread[k] += variance * np.outer(contrast, contrast) ** 2
        linear[k] += weight * (comparisons.outcome[row] - 0.5) * contrast
    for _, drawn in draws:
        np.testing.assert_allclose(drawn, linear, atol=1e-12)
    mean = np.mean([drawn for drawn, _ in draws], axis=0)
    assert (np.abs(mean - precision) <= 4.5 * np.sqrt(spread / n) + 1e-12).all()


def random_quadratic(rng):
    """Precisions with the null direction of Bradley-Terry (one of them zero), linear terms."""
    contrasts = rng.normal(size=(N_CLUSTERS, 6, N_MODELS))
    contrasts -= contrasts.mean(axis=2, keepdims=True)
    contrasts[2] = 0
    return np.einsum("kpi,kpj->kij", contrasts, contrasts), 2 * contrasts.sum(axis=1)


@pytest.mark.parametrize("global_scale", [None, 0.9])
def test_strengths_given_tau_are_the_dense_gaussian(comparisons, state, global_scale):
    rng = np.random.default_rng(5)
    precision, linear = random_quadratic(rng)
    problem = make_problem(comparisons, global_scale=global_scale, tau_scale=None)
    n = 20_000
    drawn = [gibbs._draw_strengths(precision, linear, state, problem, rng) for _ in range(n)]
    values = np.stack([np.concatenate([s.global_strengths, s.strengths.ravel()]) for s in drawn])
    # The joint precision of (theta_0, theta_1, ...): likelihood, theta_k - theta_0, theta_0.
    size = N_MODELS * (1 + N_CLUSTERS)
    joint, rhs = np.zeros((size, size)), np.zeros(size)
    eye = np.eye(N_MODELS)
    for k in range(N_CLUSTERS):
        at = slice(N_MODELS * (k + 1), N_MODELS * (k + 2))
        joint[at, at] += precision[k] + eye / state.tau**2
        joint[at, :N_MODELS] -= eye / state.tau**2
        joint[:N_MODELS, at] -= eye / state.tau**2
        joint[:N_MODELS, :N_MODELS] += eye / state.tau**2
        rhs[at] = linear[k]
    if global_scale is None:
        assert (values[:, :N_MODELS] == state.global_strengths).all()
        rhs = rhs[N_MODELS:] - joint[N_MODELS:, :N_MODELS] @ state.global_strengths
        joint, values = joint[N_MODELS:, N_MODELS:], values[:, N_MODELS:]
    else:
        joint[:N_MODELS, :N_MODELS] += eye / global_scale**2
    covariance = np.linalg.inv(joint)
    # Whitened, the draws have mean 0 and covariance 1, with known errors.
    white = (values - covariance @ rhs) @ np.linalg.cholesky(joint)
    assert np.abs(white.mean(axis=0)).max() < 4.5 / np.sqrt(n)
    product = white.T @ white / n - np.eye(white.shape[1])
    assert np.abs(product).max() < 4.5 * np.sqrt(2 / n)


@pytest.mark.parametrize("wins", [(6.5, 2.0), (14.0, 0.0), (0.0, 0.0)])
def test_the_metropolis_step_keeps_the_posterior_of_two_llms(wins):
    data = Comparisons.from_arrays(
        [0, 0], [1, 0], [0, 1], [1.0, 1.0], weight=[max(w, 1e-12) for w in wins],
        queries=[0], models=["a", "b"],
    )  # fmt: skip
    problem = GibbsProblem.from_counts(
        np.eye(1, 2), data.outcome_counts(), n_clusters=400, n_models=2, concentration=1.0
    )
    centre, tau = np.array([0.4, -0.3]), 1.6
    rng = np.random.default_rng(8)
    weight, signed = np.full((400, 1), sum(wins)), np.full((400, 1), wins[0] - wins[1])
    state = GibbsState(np.ones(400), centre, tau, np.tile(centre, (400, 1)), np.eye(400, 2))
    values = []
    for sweep in range(250):
        state = gibbs._renew_strengths(weight, signed, state, problem, rng)
        if sweep >= 50:
            values.append([state.strengths @ [1, -1], state.strengths @ [1, 1]])
    grid = np.linspace(-15, 20, 20_001)
    mass = stats.norm(0.7, tau * np.sqrt(2)).pdf(grid)
    mass *= special.expit(grid) ** wins[0] * special.expit(-grid) ** wins[1]
    mass /= mass.sum()
    gap, total = np.moveaxis(np.array(values), 1, 0)
    for drawn, expected in (
        (gap, (mass * grid).sum()),
        (gap**2, (mass * grid**2).sum()),
        (special.expit(gap), (mass * special.expit(grid)).sum()),
        (total, 0.1),
        (total**2, 2 * tau**2 + 0.01),
    ):
        by_chain = drawn.mean(axis=0)  # independent chains, one a cluster
        assert abs(by_chain.mean() - expected) < 4.5 * by_chain.std() / np.sqrt(400)


def test_tau_has_its_density_with_the_strengths_integrated_out():
    rng = np.random.default_rng(6)
    precision, linear = random_quadratic(rng)
    centre = rng.normal(size=N_MODELS)
    grid = np.geomspace(1e-4, 30, 4000)
    log_density = stats.halfnorm(scale=1.4).logpdf(grid)
    for i, tau in enumerate(grid):
        for k in range(N_CLUSTERS):
            total = precision[k] + np.eye(N_MODELS) / tau**2
            rhs = linear[k] + centre / tau**2
            log_density[i] += 0.5 * rhs @ np.linalg.solve(total, rhs)
            log_density[i] -= 0.5 * np.linalg.slogdet(total)[1] + N_MODELS * np.log(tau)
            log_density[i] -= 0.5 * centre @ centre / tau**2
    mass = np.exp(log_density - log_density.max()) * np.gradient(grid)
    cdf = np.cumsum(mass) / mass.sum()
    eigenvalues, vectors = np.linalg.eigh(precision)
    eigenvalues = np.maximum(eigenvalues, 0)
    pull = np.einsum("kmj,km->kj", vectors, linear) - eigenvalues * (centre @ vectors)
    tau, draws = 1.0, []
    for _ in range(8000):
        tau = gibbs._draw_tau(tau, eigenvalues, pull**2, 1.4, rng)
        draws.append(tau)
    assert stats.kstest(draws[::4], lambda x: np.interp(x, grid, cdf)).pvalue > 1e-4


def test_what_is_fixed_stays(comparisons, state):
    problem = make_problem(comparisons, weight_alpha=None, global_scale=None, tau_scale=None)
    after, _ = gibbs_sweep(state, problem, np.random.default_rng(0))
    assert after.tau == state.tau
    np.testing.assert_array_equal(after.weights, state.weights)
    np.testing.assert_array_equal(after.global_strengths, state.global_strengths)
    assert (after.strengths != state.strengths).all()


def test_seeds_repeat_and_nothing_given_is_written_to(comparisons, state):
    problem = make_problem(comparisons)
    before = {f.name: np.copy(getattr(state, f.name)) for f in fields(state)}
    cumulative, _ = cumulative_responsibilities(state, problem)
    kept = cumulative.copy()
    one, labels = gibbs_sweep(state, problem, np.random.default_rng(9), cumulative=cumulative)
    two, again = gibbs_sweep(state, problem, np.random.default_rng(9))
    np.testing.assert_array_equal(labels, again)
    np.testing.assert_array_equal(cumulative, kept)
    for f in fields(state):
        np.testing.assert_array_equal(getattr(one, f.name), getattr(two, f.name))
        np.testing.assert_array_equal(getattr(state, f.name), before[f.name])


def test_splitting_comparisons_into_halves_changes_nothing(comparisons, state):
    twice = Comparisons.from_arrays(
        np.tile(comparisons.query, 2),
        np.tile(comparisons.first, 2),
        np.tile(comparisons.second, 2),
        np.tile(comparisons.outcome, 2),
        weight=np.tile(comparisons.weight / 2, 2),
        queries=comparisons.queries,
        models=comparisons.models,
    )
    one, _ = gibbs_sweep(state, make_problem(comparisons), np.random.default_rng(2))
    two, _ = gibbs_sweep(state, make_problem(twice), np.random.default_rng(2))
    np.testing.assert_allclose(one.strengths, two.strengths)


def test_empty_clusters_are_drawn_from_the_prior(comparisons, state):
    problem = make_problem(comparisons, global_scale=None, tau_scale=None)
    rng = np.random.default_rng(7)
    labels = np.zeros(N_QUERIES, dtype=int)
    n = 1500
    after = [draw_parameters(labels, state, problem, rng) for _ in range(n)]
    strengths = np.stack([s.strengths[2] for s in after])
    np.testing.assert_allclose(
        strengths.mean(axis=0), state.global_strengths, atol=4.5 * state.tau / np.sqrt(n)
    )
    assert strengths.std() == pytest.approx(
        np.sqrt(state.tau**2 + state.global_strengths.var()), rel=0.05
    )
    centroids = np.stack([s.centroids[2] for s in after])
    assert np.abs(centroids.mean(axis=0)).max() < 4.5 / np.sqrt(n * DIM)
    weights = np.stack([s.weights for s in after])
    np.testing.assert_allclose(
        weights.mean(axis=0), [13 / 15, 1 / 15, 1 / 15], atol=4.5 * 0.1 / np.sqrt(n)
    )


def test_queries_without_any_comparison_are_a_mixture_of_embeddings():
    nothing = Comparisons.from_arrays(
        [], [], [], [], queries=range(N_QUERIES), models=[f"m{i}" for i in range(N_MODELS)]
    )
    state = GibbsState(
        np.full(N_CLUSTERS, 1 / N_CLUSTERS),
        np.zeros(N_MODELS),
        1.0,
        np.zeros((N_CLUSTERS, N_MODELS)),
        np.eye(N_CLUSTERS, DIM),
    )
    after, labels = gibbs_sweep(state, make_problem(nothing), np.random.default_rng(0))
    assert labels.shape == (N_QUERIES,)
    assert np.isfinite(after.strengths).all()


def test_rows_that_do_not_match_are_refused(comparisons):
    with pytest.raises(InputError, match="there are 12 queries"):
        GibbsProblem.from_counts(
            np.eye(3), comparisons.outcome_counts(), n_clusters=2, n_models=4, concentration=1.0
        )
