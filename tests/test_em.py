"""The EM core: each half step is exact, and the objective is the definition and never rises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import log_expit, logsumexp, xlogy
from tqdm.auto import tqdm

from bayes_ecc import Comparisons, unit_embeddings
from bayes_ecc.em import (
    EMData,
    EMSettings,
    em_step,
    fit_centroids,
    fit_cluster_strengths,
    mean_divergence,
    run_em,
    start_state,
)


def draw_problem(
    seed, *, n_queries=7, n_models=4, n_clusters=3, per_query=3, dim=3, dtype=np.float64
):
    """Random comparisons (ties, soft outcomes, weights over five decades), embeddings, a start.

    About one query in five has no comparison.
    """
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, per_query + 1, n_queries) * (rng.random(n_queries) > 0.2)
    counts[0] = max(1, counts[0])
    query = np.repeat(np.arange(n_queries), counts)
    n = len(query)
    first = rng.integers(n_models, size=n)
    outcome = np.where(rng.random(n) < 0.3, rng.random(n), rng.choice([0.0, 0.5, 1.0], size=n))
    comparisons = Comparisons.from_arrays(
        query,
        first,
        (first + rng.integers(1, n_models, size=n)) % n_models,
        outcome,
        weight=10 ** rng.uniform(-2, 3, n),
        queries=[f"q{i}" for i in range(n_queries)],
        models=[f"m{i}" for i in range(n_models)],
    )
    embeddings = unit_embeddings(rng.normal(size=(n_queries, dim)).astype(dtype))
    start = rng.dirichlet(np.full(n_clusters, 0.5), n_queries)
    return comparisons, embeddings, start


def losses(comparisons, embeddings, strengths, centroids, settings):
    """l(q, k) as the definition has it, one comparison at a time."""
    c = comparisons
    margin = strengths[:, c.second] - strengths[:, c.first]
    nll = -c.weight * (c.outcome * log_expit(margin) + (1 - c.outcome) * log_expit(-margin))
    size = np.zeros(c.n_queries)
    np.add.at(size, c.query, c.weight)
    loss = np.zeros((c.n_queries, len(strengths)))
    for k in range(len(strengths)):
        if settings.evidence != "embedding":
            np.add.at(loss[:, k], c.query, nll[k] / size[c.query])
        if settings.evidence != "comparisons":
            closeness = embeddings.astype(float) @ centroids[k].astype(float)
            loss[:, k] += settings.embedding_weight * (1 - closeness)
    return loss


def objective(responsibilities, loss, strengths, settings):
    """The objective with its entropy written out."""
    r = responsibilities.astype(float)
    value = (r * loss).sum() + settings.temperature * xlogy(r, r).sum()
    if settings.evidence != "embedding":
        value += settings.ridge / 2 * (strengths**2).sum()
    return value


def steps(comparisons, embeddings, start, settings, n):
    data = EMData.from_comparisons(comparisons, embeddings)
    state = start_state(data, start)
    for _ in range(n):
        state = em_step(data, settings, state)
        yield state


def some_settings(evidence="both", **changes):
    return EMSettings(
        **{
            "embedding_weight": 0.7,
            "temperature": 0.2,
            "ridge": 0.5,
            **changes,
            "evidence": evidence,
        }
    )


evidences = st.sampled_from(["both", "embedding", "comparisons"])


# -------------------------------------------------------------------- the objective


@given(
    seed=st.integers(0, 2**32 - 1),
    evidence=evidences,
    embedding_weight=st.sampled_from([0.0, 0.1, 3.0, 50.0]),
    temperature=st.sampled_from([1e-3, 0.1, 1.0, 20.0]),
    ridge=st.sampled_from([1e-6, 0.1, 1.0, 100.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    n_queries=st.integers(1, 9),
    n_models=st.integers(2, 6),
    share=st.floats(0, 1),
)
def test_objective_never_rises(
    seed, evidence, embedding_weight, temperature, ridge, dtype, n_queries, n_models, share
):
    n_clusters = 1 + round(share * (n_queries - 1))
    comparisons, embeddings, start = draw_problem(
        seed, n_queries=n_queries, n_models=n_models, n_clusters=n_clusters, dtype=dtype
    )
    settings = EMSettings(embedding_weight, temperature, ridge, evidence)
    states = list(steps(comparisons, embeddings, start, settings, 12))
    history = np.array([state.objective for state in states])
    assert np.isfinite(history).all()
    strengths = np.concatenate([state.strengths for state in states])
    scale = n_queries * (
        2 * embedding_weight + 2 * np.abs(strengths).max() + temperature * np.log(n_clusters + 1)
    )
    assert np.diff(history).max() <= 20 * np.finfo(dtype).eps * (scale + np.abs(history).max())


def test_objective_never_rises_with_as_many_clusters_as_queries_by_the_hundred():
    comparisons, embeddings, start = draw_problem(
        0, n_queries=200, n_clusters=200, n_models=2, dim=8, dtype=np.float32
    )
    settings = EMSettings(embedding_weight=3.0, temperature=1e-3, ridge=1e-6)
    history = [s.objective for s in steps(comparisons, embeddings, start, settings, 30)]
    assert np.diff(history).max() <= 1e-5 * abs(history[0])
    assert history[-1] < history[0] - 1


@given(
    seed=st.integers(0, 2**32 - 1),
    evidence=evidences,
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_objective_is_the_definition_with_the_entropy_written_out(seed, evidence, dtype):
    comparisons, embeddings, start = draw_problem(seed, dtype=dtype)
    settings = some_settings(evidence)
    for state in steps(comparisons, embeddings, start, settings, 3):
        loss = losses(comparisons, embeddings, state.strengths, state.centroids, settings)
        expected = objective(state.responsibilities, loss, state.strengths, settings)
        assert state.objective == pytest.approx(
            expected, rel=2e-6 if dtype == np.float32 else 1e-12
        )


# -------------------------------------------------------------------- each half step


@given(seed=st.integers(0, 2**32 - 1), evidence=evidences)
def test_responsibilities_are_the_softmax_of_losses(seed, evidence):
    comparisons, embeddings, start = draw_problem(seed)
    settings = some_settings(evidence)
    for state in steps(comparisons, embeddings, start, settings, 2):
        loss = losses(comparisons, embeddings, state.strengths, state.centroids, settings)
        scores = -loss / settings.temperature
        expected = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        np.testing.assert_allclose(state.responsibilities, expected, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), evidence=evidences)
def test_no_other_responsibilities_are_better(seed, evidence):
    comparisons, embeddings, start = draw_problem(seed)
    settings = some_settings(evidence)
    *_, state = steps(comparisons, embeddings, start, settings, 2)
    loss = losses(comparisons, embeddings, state.strengths, state.centroids, settings)
    rng = np.random.default_rng(seed)
    for share in (1e-3, 0.1, 1.0):
        others = rng.dirichlet(np.ones(3), len(loss))
        mixed = (1 - share) * state.responsibilities + share * others
        assert objective(mixed, loss, state.strengths, settings) >= state.objective - 1e-12


@given(seed=st.integers(0, 2**32 - 1))
def test_centroids_are_the_best_unit_vectors(seed):
    _, embeddings, r = draw_problem(seed)
    centroids = fit_centroids(embeddings, r, None)
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-12)
    closeness = (r * (embeddings @ centroids.T)).sum(axis=0)
    others = unit_embeddings(np.random.default_rng(seed).normal(size=(200, 3)))
    assert ((r.T @ (embeddings @ others.T)).max(axis=1) <= closeness + 1e-12).all()
    for k in range(3):
        mean = sum(r[q, k] * embeddings[q] for q in range(len(r)))
        np.testing.assert_allclose(centroids[k], mean / np.linalg.norm(mean), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_strengths_are_the_optimum_of_the_responsibility_weighted_loss(seed):
    comparisons, embeddings, r = draw_problem(seed)
    data = EMData.from_comparisons(comparisons, embeddings)
    settings = some_settings("comparisons")
    strengths = fit_cluster_strengths(data, r, settings.ridge)

    def value(theta):
        theta = theta.reshape(3, 4)
        loss = losses(comparisons, embeddings, theta, np.zeros((3, 3)), settings)
        return (r * loss).sum() + settings.ridge / 2 * (theta**2).sum()

    found = optimize.minimize(value, np.zeros(12), method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(strengths.ravel(), found.x, atol=2e-5)


def test_empty_clusters_keep_their_centroids():
    _, embeddings, r = draw_problem(1)
    r[:, 1] = 0
    previous = np.eye(3)
    assert fit_centroids(embeddings, r, previous)[1].tolist() == [0, 1, 0]
    assert fit_centroids(embeddings, r, None)[1].tolist() == [0, 0, 0]
    for dtype in (np.float32, np.float64):
        tiny = np.full((7, 3), np.finfo(dtype).tiny, dtype)
        kept = fit_centroids(embeddings.astype(dtype), tiny, previous.astype(dtype))
        np.testing.assert_array_equal(kept, previous)


def test_opposite_embeddings_that_cancel_leave_no_nan():
    comparisons, _, _ = draw_problem(2, n_queries=4)
    embeddings = np.array([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]])
    for state in steps(comparisons, embeddings, np.ones((4, 1)), some_settings(), 3):
        np.testing.assert_array_equal(state.centroids, 0)
        assert np.isfinite(state.objective)


# -------------------------------------------------------------------- stopping


def test_divergence_is_that_of_the_responsibilities():
    comparisons, embeddings, start = draw_problem(3)
    states = list(steps(comparisons, embeddings, start, some_settings(), 4))
    for old, new in itertools.pairwise(states):
        p, q = new.responsibilities, old.responsibilities
        expected = (xlogy(p, p) - xlogy(p, q)).sum(axis=1).mean()
        assert mean_divergence(new, old) == pytest.approx(expected, rel=1e-8)
    assert mean_divergence(states[0], states[0]) == 0


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("centroid_tol", [1e-1, 1e-4])
def test_iteration_stops_at_the_first_that_meets_both_tolerances(tol, centroid_tol):
    comparisons, embeddings, start = draw_problem(4, n_queries=30)
    settings = some_settings()
    data = EMData.from_comparisons(comparisons, embeddings)
    with tqdm(disable=True) as bar:
        last, history, converged = run_em(data, settings, start, 500, tol, centroid_tol, bar)
    assert converged
    states = list(steps(comparisons, embeddings, start, settings, len(history)))
    assert last.objective == states[-1].objective
    assert history == [state.objective for state in states]
    for number, (old, new) in enumerate(itertools.pairwise(states), start=2):
        moved = np.linalg.norm(new.centroids - old.centroids, axis=1).max()
        met = mean_divergence(new, old) < tol and moved < centroid_tol
        assert met == (number == len(history))


@pytest.mark.parametrize(("tol", "centroid_tol"), [(1e-3, 1e-2), (1e30, 1e30)])
def test_a_start_has_no_scores_to_compare_with_so_two_iterations_are_the_least(tol, centroid_tol):
    comparisons, embeddings, _ = draw_problem(5)
    data = EMData.from_comparisons(comparisons, embeddings)
    with tqdm(disable=True) as bar:
        fixed_point = np.ones((7, 1))
        _, history, converged = run_em(
            data, some_settings(), fixed_point, 500, tol, centroid_tol, bar
        )
    assert converged
    assert len(history) == 2
    assert history[0] == pytest.approx(history[1], abs=1e-9)


# -------------------------------------------------------------------- the public reference code


def test_every_iteration_of_the_reference_code(parity_reference):
    reference, train = parity_reference.arrays, parity_reference.train
    embeddings = reference["embeddings"][reference["train_queries"]]
    evidence = "both" if reference["use_embeddings_in_clustering"] else "comparisons"
    settings = EMSettings(float(reference["lam"]), float(reference["T"]), 1.0, evidence)
    old_r, old_c = reference["init_responsibilities"], reference["init_centroids"]
    trace = []
    for state in steps(train, embeddings, old_r, settings, len(reference["trace"])):
        new_r, new_c = state.responsibilities, state.centroids
        # The reference's objective holds the embedding term even where the fit does not.
        closeness = settings.embedding_weight * (embeddings @ new_c.T)
        scores = (
            losses(train, embeddings, state.strengths, new_c, some_settings("comparisons"))
            - closeness
        ) / -settings.temperature
        divergence = (xlogy(old_r, old_r) - xlogy(old_r, new_r)).sum(axis=1).mean()
        trace.append([logsumexp(scores, axis=1).sum(), divergence, np.linalg.norm(new_c - old_c)])
        if evidence == "both":
            constant = settings.embedding_weight * train.n_queries
            ridge_term = settings.ridge / 2 * (state.strengths**2).sum()
            assert state.objective == pytest.approx(
                constant - settings.temperature * trace[-1][0] + ridge_term, rel=1e-9
            )
        old_r, old_c = new_r, new_c
    expected = reference["trace"]
    np.testing.assert_allclose([row[0] for row in trace], expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose([row[1:] for row in trace], expected[:, 1:], atol=1e-5)
    strengths = reference["strengths"]
    np.testing.assert_allclose(
        state.strengths, strengths - strengths.mean(axis=1, keepdims=True), atol=1e-5
    )
    np.testing.assert_allclose(state.responsibilities, reference["responsibilities"], atol=1e-5)
    np.testing.assert_allclose(state.centroids, reference["centroids"], atol=1e-5)
