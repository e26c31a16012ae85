"""The PyMC models against closed forms: densities, priors, names, refusals."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import special, stats

from bayes_ecc import simulate
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.errors import InputError
from bayes_ecc.models.bradley_terry import bradley_terry
from bayes_ecc.models.ecc_mixture import (
    Priors,
    ecc_mixture,
    mixture_inputs,
    prior_win_probabilities,
)

FAST = {"mode": "FAST_COMPILE"}


@pytest.fixture(scope="module")
def data():
    return simulate(
        n_queries=40, n_models=4, n_clusters=2, embedding_dim=5, per_query=3, ties=0.3, rng=1
    )


def build(data, *, per_query_mean=False, **settings):
    counts = data.comparisons.outcome_counts(per_query_mean=per_query_mean)
    settings = {"n_clusters": 3, "concentration": 5.0} | settings
    return ecc_mixture(data.embeddings, counts, **settings)


def log_bradley_terry(comparisons, strengths, *, mean=False):
    """Sum (or weighted mean) over each query's comparisons, shape (n_queries, n_clusters)."""
    result = np.zeros((comparisons.n_queries, len(strengths)))
    for row, q in enumerate(comparisons.query):
        gap = strengths[:, comparisons.second[row]] - strengths[:, comparisons.first[row]]
        y = comparisons.outcome[row]
        value = y * special.log_expit(gap) + (1 - y) * special.log_expit(-gap)
        weight = comparisons.weight[row]
        result[q] += value * (weight / comparisons.query_weight[q] if mean else weight)
    return result


def random_point(model, rng):
    return {
        name: np.asarray(rng.normal(size=np.shape(value)))
        for name, value in model.initial_point(0).items()
    }


# ---------------------------------------------------------------- the mixture


def test_the_density_is_the_one_on_the_label(data):
    model = build(data, evidence_power=1.5, priors=Priors(1.4, 0.8, 1.2))
    names = ["weights", "global_strengths", "tau", "strengths", "centroids"]
    variables = model.replace_rvs_by_values([model[name] for name in names])
    read = model.compile_fn(variables, inputs=model.value_vars, on_unused_input="ignore", **FAST)
    terms = model.compile_fn(model.logp(jacobian=False, sum=False), inputs=model.value_vars, **FAST)
    rng = np.random.default_rng(0)
    for _ in range(2):
        point = random_point(model, rng)
        weights, centre, tau, strengths, centroids = read(point)
        raw = point["centroids_raw"]
        np.testing.assert_allclose(
            centroids, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-12
        )
        table = np.log(weights) + 5.0 * data.embeddings.astype(float) @ centroids.T
        table += 1.5 * log_bradley_terry(data.comparisons, strengths)
        expected = {
            "weights": stats.dirichlet(np.full(3, 1.4)).logpdf(weights),
            "global_strengths": stats.norm(0, 0.8).logpdf(centre),
            "tau": stats.halfnorm(scale=1.2).logpdf(tau),
            "strengths": stats.norm(centre, tau).logpdf(strengths),
            "centroids_raw": stats.norm.logpdf(raw),
            "joint": special.logsumexp(table, axis=1),
        }
        for variable, value in zip(model.basic_RVs, terms(point), strict=True):
            np.testing.assert_allclose(value, expected[variable.name], rtol=1e-7, atol=1e-9)


def test_the_matched_model_has_eccs_objective_as_its_density(data):
    temperature, ridge, embedding_weight = 0.2, 0.7, 0.9
    model = build(
        data,
        per_query_mean=True,
        concentration=embedding_weight / temperature,
        evidence_power=1 / temperature,
        priors=Priors.matched(temperature, ridge),
    )
    strengths_and_joint = [model["strengths"], model["joint"]]
    log_density = model.compile_logp(vars=strengths_and_joint, **FAST)
    rng = np.random.default_rng(1)
    difference = []
    for _ in range(3):
        point = random_point(model, rng)
        raw = point["centroids_raw"]
        centroids = raw / np.linalg.norm(raw, axis=1, keepdims=True)
        loss = -log_bradley_terry(data.comparisons, point["strengths"], mean=True)
        loss += embedding_weight * (1 - data.embeddings.astype(float) @ centroids.T)
        # ECC's objective at the responsibilities that minimise it.
        objective = -temperature * special.logsumexp(-loss / temperature, axis=1).sum()
        objective += ridge / 2 * (point["strengths"] ** 2).sum()
        difference.append(float(log_density(point)) + objective / temperature)
    np.testing.assert_allclose(difference, difference[0], rtol=1e-9)


def test_names_and_coordinates(data):
    model = build(data, queries=list(data.comparisons.queries), models=["a", "b", "c", "d"])
    assert {name: len(values) for name, values in model.coords.items()} == {
        "query": 40, "cluster": 3, "llm": 4, "embedding_dim": 5,
    }  # fmt: skip
    assert model.named_vars_to_dims["strengths"] == ("cluster", "llm")
    assert model.named_vars_to_dims["centroids"] == ("cluster", "embedding_dim")
    assert model.named_vars_to_dims["joint"] == ("query", "embedding_dim")
    assert mixture_inputs(model).n_models == 4


def test_an_llm_that_was_never_compared_has_a_strength(data):
    model = build(data, models=["a", "b", "c", "d", "new"])
    assert model.initial_point(0)["strengths"].shape == (3, 5)


def test_pymc_finds_the_log_likelihood_and_the_log_prior(data):
    names = ["weights", "global_strengths", "tau", "strengths", "centroids_raw", "centroids"]
    with build(data):
        drawn = pm.sample_prior_predictive(3, var_names=names, random_seed=0)
        tree = xr.DataTree.from_dict({"posterior": drawn.prior.to_dataset()})
        pm.stats.compute_log_likelihood(tree, progressbar=False, compile_kwargs=FAST)
        pm.stats.compute_log_prior(tree, progressbar=False, compile_kwargs=FAST)
    one = tree.posterior.isel(chain=0, draw=1)
    assert tree.log_likelihood["joint"].dims == ("chain", "draw", "query")
    table = np.log(one["weights"].to_numpy())
    table = table + 5.0 * data.embeddings.astype(float) @ one["centroids"].to_numpy().T
    table += log_bradley_terry(data.comparisons, one["strengths"].to_numpy())
    np.testing.assert_allclose(
        tree.log_likelihood["joint"].isel(chain=0, draw=1),
        special.logsumexp(table, axis=1),
        rtol=1e-6,
    )
    assert float(tree.log_prior["tau"].isel(chain=0, draw=1)) == pytest.approx(
        stats.halfnorm.logpdf(float(one["tau"]))
    )


def test_the_default_priors_are_sensible(data):
    p = prior_win_probabilities(build(data), draws=4000, rng=0)
    even, settled = (np.abs(p - 0.5) < 0.1).mean(), (np.abs(p - 0.5) > 0.45).mean()
    assert 0.1 < even < 0.4, "close to 0.5"
    assert 0.05 < settled < 0.3, "below 0.05 or above 0.95"
    assert 0.65 < ((p > 0.1) & (p < 0.9)).mean() < 0.85
    assert p.mean() == pytest.approx(0.5, abs=0.03)


def test_the_prior_check_sees_bad_priors(data):
    flat = prior_win_probabilities(build(data, priors=Priors(1.0, 0.05, 0.05)), rng=0)
    assert (np.abs(flat - 0.5) < 0.1).mean() > 0.95
    wild = prior_win_probabilities(build(data, priors=Priors(1.0, 30.0, 30.0)), rng=0)
    assert (np.abs(wild - 0.5) > 0.45).mean() > 0.85


def test_embeddings_are_copied(data):
    x = data.embeddings.astype(float)
    model = ecc_mixture(x, data.comparisons.outcome_counts(), n_clusters=2, concentration=1.0)
    x[:] = 0
    assert np.abs(mixture_inputs(model).embeddings).max() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"n_clusters": 2.5}, "n_clusters=2.5"),
        ({"n_clusters": "three"}, "n_clusters='three'"),
        ({"concentration": -1.0}, "concentration=-1.0"),
        ({"evidence_power": np.nan}, "evidence_power=nan"),
        ({"models": ["a", "b"]}, "2 names but the counts hold 4"),
        ({"queries": ["q"]}, "1 names for 40 rows"),
        ({"priors": {"tau": 1}}, "instance of Priors"),
    ],
)
def test_impossible_settings_are_refused(data, settings, message):
    with pytest.raises(InputError, match=message):
        build(data, **settings)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.eye(5), "each of the 40 queries"),
        (np.ones((40, 1)), "two or more coordinates"),
        (np.ones((40, 4)), "row 0: found length 2.0"),
        (np.full((40, 4), np.nan), "row 0: found length nan"),
    ],
)
def test_impossible_embeddings_are_refused(data, embeddings, message):
    counts = data.comparisons.outcome_counts()
    with pytest.raises(InputError, match=message):
        ecc_mixture(embeddings, counts, n_clusters=2, concentration=1.0)


@pytest.mark.parametrize(
    "settings", [{"weight_alpha": 0.0}, {"global_scale": -1}, {"tau_scale": None}, {"tau": np.inf}]
)
def test_impossible_priors_are_refused(settings):
    with pytest.raises(InputError, match="positive, finite"):
        Priors(**settings)
    with pytest.raises(InputError, match="both positive"):
        Priors.matched(0.0, 1.0)


# ---------------------------------------------------------------- Bradley-Terry


def test_the_global_models_mode_is_the_ridge_fit(data):
    ridge = 0.6
    fit = BradleyTerry(ridge=ridge).fit(data.comparisons)
    model = bradley_terry(data.comparisons.outcome_counts(), global_scale=ridge**-0.5)
    gradient = model.compile_dlogp(**FAST)
    assert np.abs(gradient({"strengths": fit.strengths_})).max() < 1e-6


def test_the_hierarchical_model_is_one_a_label_around_a_global_one(data):
    labels = data.topics
    model = bradley_terry(
        data.comparisons.outcome_counts(),
        labels=labels,
        evidence_power=0.5,
        global_scale=0.8,
        tau_scale=1.2,
        models=["a", "b", "c", "d"],
    )
    assert model.named_vars_to_dims["strengths"] == ("label", "llm")
    log_density = model.compile_logp(jacobian=False, **FAST)
    point = random_point(model, np.random.default_rng(0))
    tau, centre, strengths = (
        np.exp(point["tau_log__"]),
        *(point[name] for name in ("global_strengths", "strengths")),
    )
    by_label = log_bradley_terry(data.comparisons, strengths)
    expected = (
        0.5 * by_label[np.arange(len(labels)), labels].sum()
        + stats.norm(0, 0.8).logpdf(centre).sum()
        + stats.halfnorm(scale=1.2).logpdf(tau)
        + stats.norm(centre, tau).logpdf(strengths).sum()
    )
    assert float(log_density(point)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": [0, 1]}, "each of the 40 queries"),
        ({"labels": np.full(40, -1)}, "row 0: found -1"),
        ({"labels": np.arange(40) % 3, "label_names": ["one"]}, "1 names but labels go up to 2"),
        ({"models": ["a"]}, "1 names but the counts hold 4"),
        ({"global_scale": 0}, "global_scale=0"),
        ({"evidence_power": -1}, "evidence_power=-1"),
    ],
)
def test_impossible_bradley_terry_arguments_are_refused(data, settings, message):
    with pytest.raises(InputError, match=message):
        bradley_terry(data.comparisons.outcome_counts(), **settings)
