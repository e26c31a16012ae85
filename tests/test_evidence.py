"""Evidence and joint density against brute force, probability theory and SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import integrate, stats
from scipy.special import expit, gammaln, log_expit, logsumexp

from bayes_ecc import ECC, Comparisons, InputError, SphereProjection, simulate
from bayes_ecc.evidence import (
    EVIDENCE_QUANTILES,
    draw_responsibilities,
    invariants,
    log_prior_terms,
    log_von_mises_fisher_constant,
    pointwise_log_likelihood,
)
from bayes_ecc.posterior import make_posterior
from bayes_ecc.samplers import GibbsProblem, GibbsState, log_joint, log_prior

MODELS = pd.Index(["a", "b", "c"])


def unit(values: Any) -> Any:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def random_posterior(
    rng: np.random.Generator,
    *,
    n_chains: int = 2,
    n_draws: int = 3,
    n_clusters: int = 2,
    embedding_dim: int = 4,
    models: pd.Index = MODELS,
    **changed: Any,
) -> xr.DataTree:
    shape = (n_chains, n_draws, n_clusters)
    extra = xr.Dataset(
        {
            "tau": (("chain", "draw"), rng.gamma(2.0, size=shape[:2])),
            "global_strengths": (
                ("chain", "draw", "llm"),
                rng.normal(size=(*shape[:2], len(models))),
            ),
        }
    )
    arguments: dict[str, Any] = {
        "strengths": rng.normal(size=(*shape, len(models)), scale=1.5),
        "centroids": unit(rng.normal(size=(*shape, embedding_dim))),
        "weights": rng.dirichlet(np.ones(n_clusters), size=shape[:2]),
        "models": models,
        "concentration": 3.0,
        "evidence_power": 1.0,
        "probe_power": 7.0,
        "rule": "per_comparison",
        "estimator": "test",
        "settings": {},
        "groups": {"posterior": extra},
    }
    return make_posterior(**{**arguments, **changed})


def some_comparisons(rng: np.random.Generator, n: int = 14) -> Comparisons:
    """Four queries, the last without comparisons; ties, soft outcomes and weights."""
    first = rng.integers(3, size=n)
    return Comparisons.from_arrays(
        rng.integers(3, size=n),
        first,
        (first + rng.integers(1, 3, size=n)) % 3,
        rng.choice([0.0, 0.3, 0.5, 1.0], size=n),
        weight=rng.choice([0.5, 1.0, 2.0], size=n),
        queries=["w", "x", "y", "z"],
        models=MODELS,
    )


def by_hand(
    tree: xr.DataTree, data: Comparisons, x: Any, chain: int, draw: int, q: int, power: Any
) -> tuple[float, float]:
    """Evidence and joint of one query, in plain loops."""
    draws = tree["posterior"].to_dataset().isel(chain=chain, draw=draw)
    kappa = float(tree["constant_data"]["concentration"])
    prior, both = [], []
    for k in range(draws.sizes["cluster"]):
        score = np.log(draws["weights"].values[k]) + kappa * float(
            x[q] @ draws["centroids"].values[k]
        )
        prior.append(score)
        theta = draws["strengths"].values[k]
        for n in np.flatnonzero(data.query == q):
            margin = theta[data.second[n]] - theta[data.first[n]]
            y = data.outcome[n]
            value = y * log_expit(margin) + (1 - y) * log_expit(-margin)
            score += power(q) * data.weight[n] * value
        both.append(score)
    constant = log_von_mises_fisher_constant(x.shape[1], kappa)
    evidence = logsumexp(both) - logsumexp(prior)
    return float(evidence), float(logsumexp(both) + constant)


# -------------------------------------------------------------------- the sphere's normaliser


@pytest.mark.parametrize("dim", [2, 3, 8, 32, 100])
@pytest.mark.parametrize("kappa", [0.5, 8.0, 60.0, 400.0])
def test_normaliser_is_scipys(dim: int, kappa: float) -> None:
    pole = np.eye(dim)[0]
    expected = stats.vonmises_fisher(pole, kappa).logpdf(pole) - kappa
    assert log_von_mises_fisher_constant(dim, kappa) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dim", [3, 32, 384, 768])
@pytest.mark.parametrize("kappa", [0.0, 1e-3, 1.0, 30.0, 1e3, 1e4])
def test_normaliser_is_the_integral_over_the_sphere(dim: int, kappa: float) -> None:
    # The density depends on the angle alone; the sphere at an angle is a smaller sphere.
    angle = np.linspace(0, np.pi, 400_001)[1:-1]
    log_smaller = np.log(2) + (dim - 1) / 2 * np.log(np.pi) - gammaln((dim - 1) / 2)
    log_integrand = kappa * np.cos(angle) + (dim - 2) * np.log(np.sin(angle))
    total = logsumexp(log_integrand) + np.log(angle[1] - angle[0]) + log_smaller
    assert log_von_mises_fisher_constant(dim, kappa) == pytest.approx(-total, rel=1e-8)


def test_normaliser_without_concentration_is_the_area() -> None:
    assert log_von_mises_fisher_constant(2, 0) == pytest.approx(-np.log(2 * np.pi))
    assert log_von_mises_fisher_constant(3, 0.0) == pytest.approx(-np.log(4 * np.pi))
    # and close to it the constant is continuous
    assert log_von_mises_fisher_constant(768, 1e-8) == pytest.approx(
        log_von_mises_fisher_constant(768, 0.0), abs=1e-9
    )


@pytest.mark.parametrize(("dim", "kappa"), [(1, 2.0), (3, -1.0), (3, np.nan)])
def test_normaliser_refuses(dim: int, kappa: float) -> None:
    with pytest.raises(InputError):
        log_von_mises_fisher_constant(dim, kappa)


# -------------------------------------------------------------------- densities of queries


@pytest.mark.parametrize("power", [1.0, 0.4])
@pytest.mark.parametrize("rule", ["per_comparison", "per_query_mean"])
def test_densities_are_those_of_plain_loops(power: float, rule: str) -> None:
    rng = np.random.default_rng(3)
    tree = random_posterior(rng, evidence_power=power, rule=rule)
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    values = pointwise_log_likelihood(tree, data, x)
    assert values["evidence"].dims == ("chain", "draw", "query")
    assert values["query"].values.tolist() == ["w", "x", "y"]  # z has no comparisons
    changed = (power, rule) != (1.0, "per_comparison")
    assert ("fitted_evidence" in values) == changed
    total = data.query_weight

    def as_fitted(q: int) -> float:
        return power / total[q] if rule == "per_query_mean" else power

    for chain, draw, q in itertools.product(range(2), range(3), range(3)):
        found = values.isel(chain=chain, draw=draw, query=q)
        evidence, joint = by_hand(tree, data, x, chain, draw, q, lambda _: 1.0)
        assert float(found["evidence"]) == pytest.approx(evidence, rel=1e-12)
        assert float(found["joint"]) == pytest.approx(joint, rel=1e-12)
        if changed:
            fitted, _ = by_hand(tree, data, x, chain, draw, q, as_fitted)
            assert float(found["fitted_evidence"]) == pytest.approx(fitted, rel=1e-12)


def test_evidence_is_a_distribution_over_outcomes() -> None:
    rng = np.random.default_rng(0)
    tree = random_posterior(rng, n_chains=1, n_draws=1)
    x = unit(rng.normal(size=(1, 4)))
    total = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=3):
        data = Comparisons.from_arrays(
            [0, 0, 0], [0, 0, 1], [1, 2, 2], outcome, queries=["q"], models=MODELS
        )
        total += np.exp(pointwise_log_likelihood(tree, data, x)["evidence"].item())
    assert total == pytest.approx(1.0)


def test_joint_is_a_density_over_embeddings_and_outcomes() -> None:
    rng = np.random.default_rng(1)
    tree = random_posterior(rng, n_chains=1, n_draws=1, embedding_dim=2)

    def density(angle: float) -> float:
        x = np.array([[np.cos(angle), np.sin(angle)]])
        total = 0.0
        for outcome in (0.0, 1.0):
            data = Comparisons.from_arrays([0], [0], [1], [outcome], queries=["q"], models=MODELS)
            total += np.exp(pointwise_log_likelihood(tree, data, x)["joint"].item())
        return total

    assert integrate.quad(density, 0, 2 * np.pi, limit=20, epsabs=1e-6)[0] == pytest.approx(1.0)


def test_a_cluster_without_weight_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    one = random_posterior(np.random.default_rng(5), n_clusters=1)
    draws = one["posterior"].to_dataset()
    wide = random_posterior(
        rng,
        strengths=np.concatenate([draws["strengths"], rng.normal(size=(2, 3, 1, 3))], axis=2),
        centroids=np.concatenate([draws["centroids"], np.ones((2, 3, 1, 4)) / 2], axis=2),
        weights=np.concatenate([np.ones((2, 3, 1)), np.zeros((2, 3, 1))], axis=2),
    )
    xr.testing.assert_allclose(
        pointwise_log_likelihood(one, data, x), pointwise_log_likelihood(wide, data, x)
    )


def test_precision_of_32_bits_suffices() -> None:
    truth = simulate(n_queries=300, n_models=8, rng=0)
    rng = np.random.default_rng(0)
    tree = random_posterior(
        rng, n_clusters=6, embedding_dim=32, concentration=20.0, models=truth.comparisons.models
    )
    full = pointwise_log_likelihood(tree, truth.comparisons, truth.embeddings)
    half = pointwise_log_likelihood(tree, truth.comparisons, truth.embeddings, dtype=np.float32)
    assert half["evidence"].dtype == np.float32
    assert float(np.abs(full - half)["evidence"].max()) < 1e-4
    assert float(np.abs(full - half)["joint"].max()) < 1e-4


def test_training_data_kept_in_the_posterior_are_the_default() -> None:
    truth = simulate(n_queries=80, n_models=5, embedding_dim=8, rng=0)
    projection = SphereProjection.fit(truth.embeddings, 4)
    rng = np.random.default_rng(0)
    tree = random_posterior(
        rng,
        models=truth.comparisons.models,
        projection=projection,
        training=(truth.comparisons, truth.embeddings),
    )
    given = (truth.comparisons, truth.embeddings)
    for function in (pointwise_log_likelihood, invariants):
        xr.testing.assert_allclose(function(tree), function(tree, *given), rtol=1e-6)
    with pytest.raises(InputError, match="both"):
        pointwise_log_likelihood(tree, truth.comparisons)


def test_nothing_to_judge_is_refused() -> None:
    rng = np.random.default_rng(0)
    empty = some_comparisons(rng).rows(np.zeros(14, dtype=bool))
    with pytest.raises(InputError, match="No query"):
        pointwise_log_likelihood(random_posterior(rng), empty, np.eye(4))


# -------------------------------------------------------------------- invariants


def test_invariants_do_not_care_for_names_of_clusters() -> None:
    rng = np.random.default_rng(4)
    tree = random_posterior(rng, n_clusters=3)
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    draws = tree["posterior"].to_dataset()
    order = [2, 0, 1]
    turned = random_posterior(
        rng,
        strengths=draws["strengths"].values[:, :, order],
        centroids=draws["centroids"].values[:, :, order],
        weights=draws["weights"].values[:, :, order],
        groups={"posterior": draws[["tau", "global_strengths"]]},
    )
    xr.testing.assert_allclose(invariants(tree, data, x), invariants(turned, data, x))


def test_invariants_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(6)
    tree = random_posterior(rng, n_clusters=3, evidence_power=0.5)
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    values = invariants(tree, data, x)
    draws = tree["posterior"].to_dataset()
    strengths = draws["strengths"].values
    for chain, draw in itertools.product(range(2), range(3)):
        total, best = 0.0, np.zeros(3)
        for q in range(4):
            total += by_hand(tree, data, x, chain, draw, q, lambda _: 0.5)[1]
            shares = draw_responsibilities(tree, data, x, draw=draw)[chain, q]
            against = [
                sum(
                    shares[k] * expit(strengths[chain, draw, k, i] - strengths[chain, draw, k, j])
                    for k in range(3)
                    for j in range(3)
                    if j != i
                )
                for i in range(3)
            ]
            best[np.argmax(against)] += 0.25
        found = values.isel(chain=chain, draw=draw)
        assert float(found["log_density"]) == pytest.approx(total)
        np.testing.assert_allclose(found["mean_p_best"], best)
    evidence = pointwise_log_likelihood(tree, data, x)["evidence"].values
    np.testing.assert_allclose(
        values["evidence_quantile"].values,
        np.moveaxis(np.quantile(evidence, EVIDENCE_QUANTILES, axis=2), 0, 2),
    )
    np.testing.assert_allclose(values["global_contrast"].sum("llm"), 0, atol=1e-12)
    np.testing.assert_array_equal(values["tau"], draws["tau"])


def test_models_that_are_exactly_as_good_share_the_first_place() -> None:
    rng = np.random.default_rng(0)
    tree = random_posterior(rng, strengths=np.tile([1.0, 1.0, -2.0], (2, 3, 2, 1)))
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    best = invariants(tree, data, x)["mean_p_best"]
    np.testing.assert_allclose(best.mean(("chain", "draw")), [0.5, 0.5, 0.0])


def test_log_density_and_prior_are_those_the_sampler_targets() -> None:
    rng = np.random.default_rng(7)
    priors = {"weight_alpha": 1.7, "global_scale": 0.8, "tau_scale": 0.6}
    tree = random_posterior(rng, evidence_power=0.7)
    data, x = some_comparisons(rng), unit(rng.normal(size=(4, 4)))
    terms = log_prior_terms(tree, **priors)
    with_prior = xr.DataTree.from_dict({**tree.to_dict(), "log_prior": terms})
    found = invariants(with_prior, data, x)["log_density"]
    problem = GibbsProblem.from_counts(
        x,
        data.outcome_counts(),
        n_clusters=2,
        n_models=3,
        concentration=3.0,
        evidence_power=0.7,
        dtype=np.float64,
        **priors,
    )
    draws = tree["posterior"].to_dataset()
    for chain, draw in itertools.product(range(2), range(3)):
        at = draws.isel(chain=chain, draw=draw)
        state = GibbsState(
            weights=at["weights"].values,
            global_strengths=at["global_strengths"].values,
            tau=float(at["tau"]),
            strengths=at["strengths"].values,
            centroids=at["centroids"].values,
        )
        prior = log_prior(state, problem)
        assert float(sum(terms.isel(chain=chain, draw=draw).values())) == pytest.approx(prior)
        likelihood = logsumexp(log_joint(state, problem), axis=1).sum()
        constant = 4 * log_von_mises_fisher_constant(4, 3.0)
        expected = likelihood + constant + prior
        assert float(found[chain, draw]) == pytest.approx(expected)


def test_prior_of_fixed_parts_is_left_out() -> None:
    rng = np.random.default_rng(8)
    tree = random_posterior(rng, groups={})
    terms = log_prior_terms(tree, tau=0.5, tau_scale=1.0, weight_alpha=None, global_scale=None)
    assert list(terms) == ["strengths"]
    expected = stats.norm(0, 0.5).logpdf(tree["posterior"]["strengths"].values).sum((2, 3))
    np.testing.assert_allclose(terms["strengths"], expected)
    with pytest.raises(InputError, match="tau"):
        log_prior_terms(tree, tau_scale=1.0)


def test_responsibilities_of_a_point_estimate_are_its_own() -> None:
    truth = simulate(n_queries=120, n_models=5, rng=1)
    fit = ECC(n_clusters=3, embedding_weight=1.0, max_iter=500, rng=0)
    fit.fit(truth.comparisons, truth.embeddings)
    found = draw_responsibilities(fit.posterior_)
    assert found.shape == (1, 120, 3)
    np.testing.assert_allclose(found[0], fit.responsibilities_.values, atol=1e-5)
