"""Tie margin and order effect in the mixture: its density, and the sweep that draws from it."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import halfnorm, norm

from bayes_ecc import Comparisons, simulate
from bayes_ecc.models.ecc_mixture import Priors, ecc_mixture
from bayes_ecc.samplers import (
    GibbsProblem,
    GibbsState,
    PolyaGammaGibbs,
    draw_parameters,
    initial_values,
)

KINDS = [("rao_kupper", True), ("rao_kupper", False), ("half", True)]


def log_chance(outcome, difference, delta, gamma):
    """Log likelihood of one outcome, from the definition."""
    second, first = expit(difference + gamma - delta), expit(-difference - gamma - delta)
    if delta == 0:
        return outcome * np.log(second) + (1 - outcome) * np.log(first)
    return np.log({0.0: first, 0.5: 1 - first - second, 1.0: second}[outcome])


@pytest.mark.parametrize(("ties", "order_effect"), KINDS)
def test_the_model_has_the_density_of_the_definition(ties, order_effect):
    data = simulate(
        n_queries=12, n_models=4, n_clusters=2, per_query=4, tie_margin=0.7, embedding_dim=3, rng=1
    )
    rows = data.comparisons
    counts = rows.outcome_counts(ties=ties, order_effect=order_effect)
    priors = Priors(tie_margin_scale=0.8, order_effect_scale=0.4)
    model = ecc_mixture(
        data.embeddings, counts, n_clusters=2, concentration=2.0, evidence_power=1.5, priors=priors
    )
    point = initial_values(model, np.arange(12) % 2, rng=0)
    delta = float(point.get("tie_margin", 0.0))
    gamma = float(point.get("order_effect", 0.0))
    assert ("tie_margin" in point, "order_effect" in point) == (ties != "half", order_effect)
    theta, weights = point["strengths"], point["weights"]
    centroids = point["centroids_raw"] / np.linalg.norm(point["centroids_raw"], axis=1)[:, None]
    scores = np.log(weights) + 2.0 * data.embeddings.astype(float) @ centroids.T
    for q, a, b, y in zip(rows.query, rows.first, rows.second, rows.outcome, strict=True):
        for k in range(2):
            scores[q, k] += 1.5 * log_chance(y, theta[k, b] - theta[k, a], delta, gamma)
    expected = logsumexp(scores, axis=1).sum()
    if ties != "half":
        expected += halfnorm(scale=0.8).logpdf(delta)
    if order_effect:
        expected += norm(scale=0.4).logpdf(gamma)
    names = {"joint", "tie_margin", "order_effect"} & set(model.named_vars)
    compiled = model.compile_logp(
        [model[name] for name in names], jacobian=False, mode="FAST_COMPILE"
    )
    start = model.initial_point()
    for variable in model.free_RVs:
        value = model.rvs_to_values[variable]
        transform = model.rvs_to_transforms[variable]
        raw = np.asarray(point[variable.name])
        start[value.name] = raw if transform is None else transform.forward(raw).eval()
    assert float(compiled(start)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("ties", "order_effect"), KINDS)
def test_the_step_method_knows_the_models_density(ties, order_effect):
    data = simulate(n_queries=15, n_models=4, per_query=4, tie_margin=0.7, rng=1)
    counts = data.comparisons.outcome_counts(ties=ties, order_effect=order_effect)
    model = ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=2.0)
    with model:
        step = PolyaGammaGibbs(rng=np.random.default_rng(0), dtype=np.float64)
    point = model.initial_point()
    logp = model.compile_logp(mode="FAST_COMPILE")
    for _ in range(5):
        point, stats = step.step(point)
        assert stats[0]["model_logp"] == pytest.approx(float(logp(point)), rel=1e-6)


def votes():
    """Thirty votes on two models, shown in either order, ties among them."""
    rng = np.random.default_rng(4)
    first = rng.integers(2, size=30)
    outcome = rng.choice([0.0, 0.5, 1.0], size=30, p=[0.2, 0.3, 0.5])
    return Comparisons.from_arrays(
        np.arange(30) % 3, first, 1 - first, outcome, queries=range(3), models=["a", "b"]
    )


def grid_moments(rows, priors, power, ties, order_effect):
    """Means and standard deviations of difference, tie margin and order effect, on a grid."""
    d = np.linspace(-5, 5, 161)[:, None, None]
    delta = np.linspace(0.002, 4, 160)[None, :, None] if ties != "half" else np.zeros((1, 1, 1))
    gamma = np.linspace(-2, 2, 81)[None, None, :] if order_effect else np.zeros((1, 1, 1))
    log = norm(scale=priors.tau * 2**0.5).logpdf(d)
    if ties != "half":
        log = log + halfnorm(scale=priors.tie_margin_scale).logpdf(delta)
    if order_effect:
        log = log + norm(scale=priors.order_effect_scale).logpdf(gamma)
    for first, outcome in zip(rows.first, rows.outcome, strict=True):
        margin = d if first == 0 else -d
        second, other = expit(margin + gamma - delta), expit(-margin - gamma - delta)
        if ties == "half":
            log = log + power * (outcome * np.log(second) + (1 - outcome) * np.log(other))
        else:
            chances = {0.0: other, 0.5: 1 - second - other, 1.0: second}
            log = log + power * np.log(chances[outcome])
    p = np.exp(log - log.max())
    p /= p.sum()
    found = []
    for values in (d, delta, gamma):
        mean = (p * values).sum()
        found += [mean, ((p * (values - mean) ** 2).sum()) ** 0.5]
    return np.array(found)


@pytest.mark.parametrize(("ties", "order_effect"), KINDS)
@pytest.mark.parametrize("power", [1.0, 1.7])
def test_the_sweep_draws_from_the_posterior_that_a_grid_gives(ties, order_effect, power):
    priors = Priors(
        weight_alpha=None, global_scale=None, tau=0.9, tie_margin_scale=0.7, order_effect_scale=0.5
    )
    rows = votes()
    problem = GibbsProblem.from_counts(
        np.eye(3),
        rows.outcome_counts(ties=ties, order_effect=order_effect),
        n_clusters=1,
        n_models=2,
        concentration=1.0,
        evidence_power=power,
        weight_alpha=None,
        global_scale=None,
        tau_scale=None,
        tie_margin_scale=0.7,
        order_effect_scale=0.5,
    )
    rng = np.random.default_rng(7)
    state = GibbsState(np.ones(1), np.zeros(2), 0.9, np.zeros((1, 2)), np.eye(1, 3))
    labels, draws = np.zeros(3, dtype=int), np.empty((2500, 3))
    for i in range(len(draws)):
        state = draw_parameters(labels, state, problem, rng)
        theta = state.strengths[0]
        draws[i] = theta[1] - theta[0], state.tie_margin, state.order_effect
    expected = grid_moments(rows, priors, power, ties, order_effect)
    learnt = [True, ties != "half", order_effect]
    mean, sd = expected[::2][learnt], expected[1::2][learnt]
    kept = draws[200:, learnt]
    # autocorrelation leaves at least five hundred draws' worth
    np.testing.assert_allclose(kept.mean(axis=0), mean, atol=4 * sd.max() / 500**0.5)
    np.testing.assert_allclose(kept.std(axis=0), sd, rtol=0.13)


@pytest.mark.statistical
def test_gibbs_and_nuts_agree():
    data = simulate(
        n_queries=60, n_models=3, n_clusters=1, per_query=3, tie_margin=0.5, order_effect=0.5, rng=2
    )
    counts = data.comparisons.outcome_counts(ties="rao_kupper", order_effect=True)
    priors = Priors(weight_alpha=None)
    model = ecc_mixture(
        data.embeddings[:, :2] / np.linalg.norm(data.embeddings[:, :2], axis=1)[:, None],
        counts,
        n_clusters=1,
        concentration=1.0,
        priors=priors,
    )
    common = {
        "chains": 2,
        "cores": 1,
        "random_seed": 1,
        "progressbar": False,
        "quiet": True,
        "compute_convergence_checks": False,
    }
    with model:
        gibbs = pm.sample(draws=2000, tune=100, step=PolyaGammaGibbs(), **common)["posterior"]
        nuts = pm.sample(draws=800, tune=500, **common)["posterior"]
    for name in ("tie_margin", "order_effect"):
        ours, theirs = gibbs[name].values, nuts[name].values
        assert ours.mean() == pytest.approx(theirs.mean(), abs=0.15 * theirs.std())
        assert ours.std() == pytest.approx(theirs.std(), rel=0.12)
    contrast = [
        (draws["strengths"] - draws["strengths"].mean("llm")).mean(("chain", "draw")).values
        for draws in (gibbs, nuts)
    ]
    np.testing.assert_allclose(contrast[0], contrast[1], atol=0.05)
