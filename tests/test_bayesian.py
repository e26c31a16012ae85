"""The Bayesian estimator: tied to ECC where they must agree, honest where it is not sure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import bayes_ecc.bayesian
from bayes_ecc import (
    ECC,
    BayesianECC,
    BradleyTerry,
    Comparisons,
    ConvergenceWarning,
    InputError,
    NotFittedError,
    atoms,
    load_posterior,
    ranking_quality_gain,
    save_posterior,
    simulate,
    training_data,
)
from bayes_ecc.models.ecc_mixture import Priors, ecc_mixture

QUICK: dict[str, Any] = {
    "concentration": 6.0,
    "probe_power": 3.0,
    "chains": 2,
    "tune": 60,
    "draws": 60,
    "cores": 1,
    "checks": False,
}


@pytest.fixture(scope="module")
def data() -> Any:
    return simulate(n_queries=400, n_models=6, n_clusters=3, rng=3)


@pytest.fixture(scope="module")
def fitted(data: Any) -> BayesianECC:
    return BayesianECC(3, rng=1, **QUICK).fit(data.comparisons, data.embeddings)


# -------------------------------------------------------------------- tied to ECC


def sphere_gradients(ecc: ECC, comparisons: Comparisons, embeddings: np.ndarray) -> list[float]:
    """Norms of the matched model's gradient in the strengths and in the centroids' directions."""
    matched = BayesianECC.matching(ecc)
    model = ecc_mixture(
        embeddings,
        comparisons.outcome_counts(per_query_mean=True),
        n_clusters=matched.n_clusters,
        concentration=matched.concentration,
        evidence_power=matched.evidence_power,
        priors=matched.priors,
    )
    centroids = ecc.centroids_.values.astype(float)
    point = {"strengths": ecc.strengths_.values, "centroids_raw": centroids}
    flat = model.compile_dlogp()(point)
    gradients, used = {}, 0
    for variable in model.value_vars:
        value = point[variable.name]
        gradients[variable.name] = flat[used : used + value.size].reshape(value.shape)
        used += value.size
    # At unit length the prior of the raw centroids pulls along the radius only.
    raw = gradients["centroids_raw"]
    along_sphere = raw - (raw * centroids).sum(axis=1, keepdims=True) * centroids
    return [float(np.linalg.norm(g)) for g in (gradients["strengths"], along_sphere)]


@pytest.mark.parametrize("parity_reference", ["ecc_k6", "ecc_k10"], indirect=True)
def test_an_ecc_fixed_point_is_a_stationary_point_of_the_matched_model(
    parity_reference: Any,
) -> None:
    file, comparisons = parity_reference.arrays, parity_reference.train
    train = file["train_queries"]
    rows = file["embeddings"][train]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    ecc = ECC(
        int(file["K"]),
        embedding_weight=float(file["lam"]),
        temperature=float(file["T"]),
        init=file["init_responsibilities"],
        tol=1e-12,
        centroid_tol=1e-12,
        max_iter=5000,
    ).fit(comparisons, unit)
    assert ecc.converged_
    for norm in sphere_gradients(ecc, comparisons, unit):
        assert norm < 1e-6


def test_the_gradient_notices_a_wrong_ridge(data: Any) -> None:
    few = data.comparisons.take(np.arange(100))
    embeddings = data.embeddings[:100].astype(float)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    ecc = ECC(3, embedding_weight=1.0, tol=1e-12, centroid_tol=1e-12, max_iter=5000, rng=0)
    ecc.fit(few, embeddings)
    assert max(sphere_gradients(ecc, few, embeddings)) < 1e-6
    ecc.settings_["ridge"] *= 1.1
    assert sphere_gradients(ecc, few, embeddings)[0] > 1e-3


def test_matching_takes_over_the_rule_of_prediction(data: Any) -> None:
    ecc = ECC(3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    matched = BayesianECC.matching(ecc, rng=0, **{k: QUICK[k] for k in ("chains", "tune", "draws")})
    matched.set_params(checks=False, cores=1).fit(data.comparisons, data.embeddings)
    mine, theirs = atoms(matched.posterior_), atoms(ecc.posterior_)
    for name in ("concentration", "probe_power", "rule", "projection"):
        assert getattr(mine, name) == getattr(theirs, name)
    probes, rest = data.comparisons.take_probes(1)
    predictions = [
        fit.predict_win_probability(rest, embeddings=data.embeddings, probes=probes)
        for fit in (matched, ecc)
    ]
    assert np.corrcoef(predictions)[0, 1] > 0.9


@pytest.mark.parametrize(
    ("ecc", "error"),
    [
        (ECC(2), NotFittedError),
        ("ecc", InputError),
    ],
)
def test_matching_refuses_what_has_no_density(ecc: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        BayesianECC.matching(ecc)


def test_matching_refuses_one_signal_fits(data: Any) -> None:
    ecc = ECC(2, evidence="comparisons", rng=0).fit(data.comparisons, data.embeddings)
    with pytest.raises(InputError, match="only 'both'"):
        BayesianECC.matching(ecc)


# -------------------------------------------------------------------- fitting


def test_it_finds_the_simulated_clusters_and_beats_the_global_model(
    data: Any, fitted: BayesianECC
) -> None:
    found = fitted.predict_responsibilities(data.embeddings, probes=data.comparisons)
    assert adjusted_rand_score(data.labels, found.values.argmax(axis=1)) > 0.6
    probes, rest = data.comparisons.take_probes(1)
    p = fitted.predict_win_probability(rest, embeddings=data.embeddings, probes=probes)
    base = BradleyTerry().fit(data.comparisons).predict_win_probability(rest)
    assert ranking_quality_gain(p, base, rest) > 20


def test_the_same_seed_gives_the_same_draws_on_one_process_or_two(data: Any) -> None:
    draws = [
        BayesianECC(3, rng=5, **{**QUICK, "tune": 10, "draws": 10, "cores": cores})
        .fit(data.comparisons, data.embeddings)
        .posterior_["posterior"]["strengths"]
        for cores in (1, 2)
    ]
    np.testing.assert_array_equal(draws[0].values, draws[1].values)


def test_the_caller_s_data_stay_as_they_are(data: Any) -> None:
    embeddings = data.embeddings * 2
    before = embeddings.copy()
    settings = {**QUICK, "tune": 5, "draws": 5}
    BayesianECC(2, rng=0, **settings).fit(data.comparisons, embeddings)
    np.testing.assert_array_equal(embeddings, before)


def test_every_variable_of_a_draw_is_renumbered_alike(data: Any) -> None:
    """Renumbering must not change what a draw says of any query."""
    fit = BayesianECC(3, starts="em", rng=2, **QUICK).fit(data.comparisons, data.embeddings)
    comparisons, projected = training_data(fit.posterior_)
    counts = comparisons.outcome_counts()
    posterior, stats = fit.posterior_["posterior"], fit.posterior_["sample_stats"]
    for chain, draw in ((0, 0), (1, 59)):
        one = posterior.isel(chain=chain, draw=draw)
        theta = one["strengths"].values
        log_win = np.log(expit(theta[:, counts.winner] - theta[:, counts.loser]))
        table = np.log(one["weights"].values) + counts.matrix @ log_win.T
        table += 6.0 * projected @ one["centroids"].values.T
        expected = float(stats["log_joint"].isel(chain=chain, draw=draw))
        np.testing.assert_allclose(logsumexp(table, axis=1).sum(), expected, rtol=1e-5)


def test_chains_from_one_start_share_their_numbering(data: Any) -> None:
    fit = BayesianECC(3, starts="em", rng=2, **QUICK).fit(data.comparisons, data.embeddings)
    assert fit.posterior_.attrs["clusters_matched"] == 1
    assert fit.posterior_["constant_data"]["cluster_agreement"].min() > 0.7
    np.testing.assert_allclose(fit.posterior_["constant_data"]["chain_weights"], [0.5, 0.5])


def test_auto_settings_come_from_the_grid_and_are_told(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"_SPLITS": 2, "_TUNE": 30, "_DRAWS": 30}.items():
        monkeypatch.setattr(f"bayes_ecc.mixture_settings.{name}", size)
    settings = {**QUICK, "tune": 5, "draws": 5, "concentration": "auto", "probe_power": "auto"}
    fit = BayesianECC(3, rng=0, **settings).fit(data.comparisons, data.embeddings)
    assert fit.settings_["concentration"] == fit.selection_.best["concentration"]
    assert float(fit.posterior_["constant_data"]["probe_power"]) == fit.settings_["probe_power"]
    again = BayesianECC(3, rng=0, **settings).fit(data.comparisons, data.embeddings)
    assert again.settings_ == fit.settings_


@pytest.mark.parametrize("sampler", ["nuts", "advi"])
def test_other_samplers_fill_the_same_container(
    data: Any, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bayes_ecc.sampling._ADVI_STEPS", 500)
    few = data.comparisons.take(np.arange(60))
    settings = {**QUICK, "embedding_dim": 4, "sampler": sampler}
    fit = BayesianECC(2, rng=0, **settings).fit(few, data.embeddings[:60])
    assert dict(fit.posterior_["posterior"]["strengths"].sizes) == {
        "chain": 2,
        "draw": 60,
        "cluster": 2,
        "llm": 6,
    }
    assert fit.posterior_.attrs["approximate"] == (sampler == "advi")


def test_a_saved_fit_predicts_the_same(tmp_path: Path, data: Any, fitted: BayesianECC) -> None:
    again = load_posterior(save_posterior(fitted.posterior_, tmp_path / "fit.nc"))
    before, after = atoms(fitted.posterior_), atoms(again)
    np.testing.assert_array_equal(before.strengths, after.strengths)
    np.testing.assert_array_equal(before.share, after.share)
    assert training_data(again)[0].n_queries == data.comparisons.n_queries


def test_weaker_evidence_widens_what_is_believed(data: Any) -> None:
    """Half the evidence power, the same data: strengths are less certain."""
    spread = {}
    for power in (1.0, 0.5):
        fit = BayesianECC(
            1, evidence_power=power, priors=Priors(tau=1.0), rng=0, **{**QUICK, "draws": 400}
        ).fit(data.comparisons, data.embeddings)
        theta = fit.posterior_["posterior"]["strengths"]
        spread[power] = float((theta - theta.mean("llm")).std(("chain", "draw")).mean())
    assert spread[0.5] > 1.2 * spread[1.0]


def test_an_interrupted_fit_keeps_the_chains_that_have_draws(
    data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chains 0 and 2 of three came back, with fewer draws than asked for."""
    whole = bayes_ecc.bayesian.sample_mixture

    def interrupted(*args: Any, **options: Any) -> Any:
        return whole(*args, **options).isel(chain=[0, 2], draw=slice(0, 40))

    monkeypatch.setattr("bayes_ecc.bayesian.sample_mixture", interrupted)
    settings = {**QUICK, "chains": 3}
    with pytest.warns(ConvergenceWarning, match="40 of 60 draws of 2 of 3 chains"):
        fit = BayesianECC(3, rng=1, **settings).fit(data.comparisons, data.embeddings)
    assert atoms(fit.posterior_).strengths.shape == (80, 3, 6)
    assert fit.posterior_["constant_data"]["cluster_agreement"].notnull().all()


def test_it_is_an_estimator_as_scikit_learn_knows_them() -> None:
    fit = BayesianECC(5, priors=Priors(tau_scale=0.5), rng=3)
    copy = clone(fit)
    assert copy.get_params() == fit.get_params()
    assert copy.set_params(chains=7).chains == 7


def test_predicting_before_fitting_says_what_to_do(data: Any) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        BayesianECC(2).predict_responsibilities(data.embeddings)


BAD = {
    "more clusters than queries": ({"n_clusters": 1000}, "fewer clusters"),
    "no clusters": ({"n_clusters": 0}, "whole number"),
    "concentration in words": ({"concentration": "high"}, "concentration"),
    "negative concentration": ({"concentration": -1.0}, "0 or more"),
    "no evidence": ({"evidence_power": 0.0}, "positive"),
    "one dimension": ({"embedding_dim": 1}, "2 or more"),
    "unknown sampler": ({"sampler": "metropolis"}, "gibbs"),
    "unknown starts": ({"starts": "random"}, "independent"),
    "starts of another shape": ({"starts": np.ones((3, 3))}, "shape"),
    "no chains": ({"chains": 0}, "chains"),
    "half a draw": ({"draws": 1.5}, "draws"),
    "priors of another kind": ({"priors": {"tau": 1}}, "Priors"),
    "unknown rule": ({"evidence_rule": "sum"}, "per_comparison"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_is_sampled(data: Any, case: str) -> None:
    changed, message = BAD[case]
    settings = {"n_clusters": 3, **QUICK, **changed}
    with pytest.raises(InputError, match=message):
        BayesianECC(rng=0, **settings).fit(data.comparisons, data.embeddings)


def test_responsibilities_of_training_queries_are_those_of_the_fit() -> None:
    data = simulate(n_queries=120, n_models=5, n_clusters=3, rng=2)
    estimator = BayesianECC(
        3, concentration=6.0, probe_power=9.0, chains=2, tune=40, draws=30, checks=False, cores=1,
        rng=0,
    )  # fmt: skip
    assert not hasattr(estimator, "responsibilities_")
    fit = estimator.fit(data.comparisons, data.embeddings)
    held = fit.responsibilities_
    chain = int(fit.posterior_["constant_data"]["chain_weights"].values.argmax())
    source = atoms(fit.posterior_.isel(chain=[chain]))
    counts = data.comparisons.outcome_counts()
    x = source.projection.transform(data.embeddings)
    by_hand = np.zeros(held.shape)
    for s in range(len(source)):  # every comparison counts once, whatever a probe would
        gap = source.strengths[s][:, counts.winner] - source.strengths[s][:, counts.loser]
        scores = source.log_weights[s] + 6.0 * x @ source.centroids[s].T
        scores = scores + counts.matrix @ -np.log1p(np.exp(-gap)).T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        by_hand += shares / shares.sum(axis=1, keepdims=True) / len(source)
    np.testing.assert_allclose(held.values, by_hand, atol=1e-6)
