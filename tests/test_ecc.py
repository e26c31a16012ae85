"""The ECC estimator: the reference code's outputs, its limits, and what must not matter."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

from bayes_ecc import (
    ECC,
    BradleyTerry,
    Comparisons,
    ConvergenceWarning,
    DataWarning,
    NotFittedError,
    bt_loss,
    cross_cluster_gap,
    profile_similarity,
    ranking_quality_gain,
    simulate,
    unit_embeddings,
    within_cluster_tau,
)

EVIDENCE = ("both", "embedding", "comparisons")
seeds = st.integers(0, 2**32 - 1)


def quiet_fit(estimator, comparisons, embeddings):
    """Fit without the warnings of short fits and small data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(comparisons, embeddings)


def draw_problem(seed, *, n_queries=12, n_models=4, n=40, dim=3, dtype=np.float64):
    """Comparisons with ties, soft outcomes and weights; embeddings; responsibilities to start."""
    rng = np.random.default_rng(seed)
    first = rng.integers(n_models, size=n)
    outcome = np.where(rng.random(n) < 0.3, rng.random(n), rng.choice([0.0, 0.5, 1.0], size=n))
    outcome[0] = 1
    comparisons = Comparisons.from_arrays(
        rng.integers(n_queries, size=n),
        first,
        (first + rng.integers(1, n_models, size=n)) % n_models,
        outcome,
        weight=10 ** rng.uniform(-1, 1, n),
        queries=[f"q{i}" for i in range(n_queries)],
        models=[f"m{i}" for i in range(n_models)],
    )
    embeddings = unit_embeddings(rng.normal(size=(n_queries, dim)).astype(dtype))
    return comparisons, embeddings, rng.dirichlet(np.ones(3), n_queries)


def ecc(init=None, **changes):
    """A short fit with settings under which clusters matter."""
    given_ = {"embedding_weight": 1.0, "temperature": 0.2, "ridge": 0.3, "max_iter": 15, "tol": 0}
    if init is not None:
        given_ |= {"init": init, "n_clusters": init.shape[1]}
    return ECC(**{"n_clusters": 3, "rng": 0, **given_, **changes})


def same_fit(one, other, atol=1e-9):
    for name in ("responsibilities_", "strengths_", "centroids_", "objective_"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), atol=atol, err_msg=name
        )


# -------------------------------------------------------------------- the public reference code


@pytest.fixture(scope="module")
def parity(parity_reference):
    """One file's arrays, its comparisons in the roles of the protocol, and our two fits."""
    reference, train, probes, scored = parity_reference
    estimator = ECC(
        int(reference["K"]),
        evidence="both" if reference["use_embeddings_in_clustering"] else "comparisons",
        embedding_weight=float(reference["lam"]),
        temperature=float(reference["T"]),
        ridge=1.0,
        init=reference["init_responsibilities"],
        max_iter=len(reference["trace"]),
        tol=0,
    )
    with pytest.warns(ConvergenceWarning):
        fit = estimator.fit(train, reference["embeddings"][reference["train_queries"]])
    return reference, train, probes, scored, fit, BradleyTerry(ridge=1.0).fit(train)


def centred(strengths):
    return strengths - strengths.mean(axis=-1, keepdims=True)


def test_parity_of_the_fit(parity):
    reference, _, _, _, fit, global_model = parity
    assert fit.n_iter_ == len(fit.objective_) == len(reference["trace"])
    assert np.diff(fit.objective_).max() <= 1e-9 * abs(fit.objective_[0])
    for name, ours in (
        ("responsibilities", fit.responsibilities_),
        ("centroids", fit.centroids_),
        ("strengths", fit.strengths_),
        ("global_strengths", global_model.strengths_),
    ):
        expected = centred(reference[name]) if "strengths" in name else reference[name]
        np.testing.assert_allclose(ours, expected, atol=1e-5, err_msg=name)


def test_parity_of_predictions(parity):
    reference, _, probes, scored, fit, global_model = parity
    embeddings = reference["embeddings"][reference["test_queries"]]
    both = {"embeddings": embeddings, "probes": probes}
    np.testing.assert_allclose(
        fit.predict_responsibilities(**both), reference["test_responsibilities"], atol=1e-5
    )
    global_p = global_model.predict_win_probability(scored)
    both_p = fit.predict_win_probability(scored, **both)
    embedding_p = fit.predict_win_probability(scored, embeddings=embeddings)
    for name, ours in (
        ("loss_global", bt_loss(global_p, scored)),
        ("loss_probe_and_embedding", bt_loss(both_p, scored)),
        ("loss_embedding", bt_loss(embedding_p, scored)),
        ("gain", ranking_quality_gain(both_p, global_p, scored) / 100),
    ):
        assert ours == pytest.approx(float(reference[name]), abs=1e-5), name


def test_parity_of_structure(parity):
    reference, train, probes, scored, fit, _ = parity
    found = profile_similarity(fit)
    assert float(found["mean"]) == pytest.approx(float(reference["mean_tau"]), abs=1e-6)
    responsibilities = fit.predict_responsibilities(
        reference["embeddings"][reference["test_queries"]], probes=probes
    )
    gap = cross_cluster_gap(fit, scored, responsibilities)["gap"].values
    np.testing.assert_allclose(gap[~np.isnan(gap)], reference["cross_cluster_gap"], atol=1e-5)
    within = within_cluster_tau(train, fit, rng=0)
    assert float(within["mean"]) == pytest.approx(float(reference["within_cluster_tau"]), abs=0.02)


# -------------------------------------------------------------------- limits


@pytest.mark.parametrize("evidence", EVIDENCE)
@given(seed=seeds)
@settings(max_examples=20)
def test_one_cluster_is_the_global_model_with_queries_weighing_one(evidence, seed):
    comparisons, embeddings, _ = draw_problem(seed)
    fit = quiet_fit(ecc(n_clusters=1, evidence=evidence), comparisons, embeddings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        model = BradleyTerry(ridge=0.3, per_query_mean=True).fit(comparisons)
    np.testing.assert_allclose(fit.strengths_[0], model.strengths_, atol=1e-6)
    np.testing.assert_array_equal(fit.responsibilities_, 1)
    np.testing.assert_allclose(
        fit.predict_win_probability(comparisons, embeddings=embeddings, probes=comparisons),
        model.predict_win_probability(comparisons),
        atol=1e-6,
    )


@given(seeds)
@settings(max_examples=20)
def test_without_embedding_weight_the_fit_is_that_on_comparisons(seed):
    comparisons, embeddings, start = draw_problem(seed)
    none = quiet_fit(ecc(start, embedding_weight=0), comparisons, embeddings)
    for weight in (0, 1, 30):  # read by predictions alone
        other = ecc(start, evidence="comparisons", embedding_weight=weight)
        same_fit(none, quiet_fit(other, comparisons, embeddings), atol=0)


def test_without_any_evidence_clusters_stay_alike():
    comparisons, embeddings, start = draw_problem(0)
    none = ecc(start, evidence="embedding", embedding_weight=0)
    fit = quiet_fit(none, comparisons, embeddings)
    np.testing.assert_allclose(fit.responsibilities_, 1 / 3)
    assert np.ptp(fit.strengths_.values, axis=0).max() < 1e-12


def test_embedding_only_reads_comparisons_once_at_the_end():
    comparisons, embeddings, start = draw_problem(1)
    fit = quiet_fit(ecc(start, evidence="embedding"), comparisons, embeddings)
    flipped = Comparisons.from_arrays(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        1 - comparisons.outcome,
        weight=comparisons.weight,
        queries=comparisons.queries,
        models=comparisons.models,
    )
    other = quiet_fit(ecc(start, evidence="embedding"), flipped, embeddings)
    np.testing.assert_array_equal(fit.responsibilities_, other.responsibilities_)
    np.testing.assert_allclose(fit.strengths_, -other.strengths_, atol=1e-6)
    assert np.abs(fit.strengths_).max() > 0.1


def test_a_cold_temperature_gives_hard_clusters_and_a_hot_one_none():
    comparisons, embeddings, start = draw_problem(2)
    hard = quiet_fit(ecc(start, temperature=1e-3), comparisons, embeddings)
    assert np.median(hard.responsibilities_.max("cluster")) > 1 - 1e-9
    hot = quiet_fit(ecc(start, temperature=1e6), comparisons, embeddings)
    np.testing.assert_allclose(hot.responsibilities_, 1 / 3, atol=1e-5)


def test_a_separated_problem_is_recovered():
    # Two kinds of query at opposite poles of the sphere, on which the models trade places.
    n = 40
    kind = np.arange(n) % 2
    embeddings = np.where(kind[:, None] == 0, [[1.0, 0.1]], [[-1.0, 0.1]])
    comparisons = Comparisons.from_arrays(
        np.repeat(np.arange(n), 2),
        np.tile([0, 1], n),
        np.tile([1, 2], n),
        np.repeat(kind, 2),
        queries=range(n),
        models=["a", "b", "c"],
    )
    for evidence in EVIDENCE:
        fit = ECC(2, evidence=evidence, n_init=5, rng=0).fit(comparisons, embeddings)
        label = fit.responsibilities_.values.argmax(axis=1)
        assert len(set(zip(kind, label, strict=True))) == 2, evidence
        ranks = fit.cluster_ranking()["rank"].values[[label[0], label[1]]]
        assert ranks.tolist() == [[1, 2, 3], [3, 2, 1]]


# -------------------------------------------------------------------- what must not matter


def with_rows(data, rows, weight):
    return Comparisons.from_arrays(
        data.query[rows],
        data.first[rows],
        data.second[rows],
        data.outcome[rows],
        weight=weight,
        queries=data.queries,
        models=data.models,
    )


@pytest.mark.parametrize("evidence", EVIDENCE)
@given(seed=seeds)
@settings(max_examples=15)
def test_split_comparisons_and_heavier_queries_change_nothing(evidence, seed):
    comparisons, embeddings, start = draw_problem(seed)
    expected = quiet_fit(ecc(start, evidence=evidence), comparisons, embeddings)
    twice = np.tile(np.arange(len(comparisons)), 2)
    halves = with_rows(comparisons, twice, comparisons.weight[twice] / 2)
    same_fit(quiet_fit(ecc(start, evidence=evidence), halves, embeddings), expected)
    heavier = with_rows(
        comparisons, np.arange(len(comparisons)), comparisons.weight * (1 + comparisons.query)
    )
    same_fit(quiet_fit(ecc(start, evidence=evidence), heavier, embeddings), expected)


@pytest.mark.parametrize("evidence", EVIDENCE)
@given(seed=seeds)
@settings(max_examples=15)
def test_permuted_queries_models_and_clusters_permute_the_answer(evidence, seed):
    comparisons, embeddings, start = draw_problem(seed)
    rng = np.random.default_rng(seed)
    q, m, k = (rng.permutation(n) for n in (12, 4, 3))
    expected = quiet_fit(ecc(start, evidence=evidence), comparisons, embeddings)
    moved = comparisons.take(q).with_models(comparisons.models[m])
    fit = quiet_fit(ecc(start[q][:, k], evidence=evidence), moved, embeddings[q])
    assert fit.responsibilities_["query"].values.tolist() == comparisons.queries[q].tolist()
    assert fit.strengths_["llm"].values.tolist() == comparisons.models[m].tolist()
    for name, order in (
        ("responsibilities_", np.ix_(q, k)),
        ("strengths_", np.ix_(k, m)),
        ("centroids_", k),
    ):
        ours, theirs = getattr(fit, name).values, getattr(expected, name).values
        np.testing.assert_allclose(ours, theirs[order], atol=1e-7, err_msg=name)
    np.testing.assert_allclose(fit.objective_, expected.objective_, atol=1e-8)


def test_single_precision_is_close_to_double():
    data = simulate(n_queries=300, n_models=6, n_clusters=3, rng=0)
    start = np.random.default_rng(0).dirichlet(np.ones(3), 300)
    double, single = (
        quiet_fit(ecc(start), data.comparisons, data.embeddings.astype(dtype))
        for dtype in (np.float64, np.float32)
    )
    assert single.centroids_.dtype == single.responsibilities_.dtype == np.float32
    assert double.centroids_.dtype == double.responsibilities_.dtype == np.float64
    np.testing.assert_allclose(single.objective_, double.objective_, rtol=1e-5)
    same_fit(single, double, atol=5e-3)


@pytest.mark.parametrize("kind", [np.float16, np.int64, list])
def test_other_kinds_of_embeddings_are_brought_to_unit_length(kind):
    comparisons, embeddings, start = draw_problem(3)
    raw = np.round(embeddings * 50)
    expected = quiet_fit(ecc(start), comparisons, unit_embeddings(raw))
    given_ = raw.tolist() if kind is list else raw.astype(kind)
    atol = 1e-4 if kind is np.float16 else 1e-12
    same_fit(quiet_fit(ecc(start), comparisons, given_), expected, atol=atol)


# -------------------------------------------------------------------- fit and predict


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=seeds)
@settings(max_examples=15)
def test_fit_and_predict_agree(dtype, seed):
    comparisons, embeddings, start = draw_problem(seed, dtype=dtype)
    atol = 1e-5 if dtype == np.float32 else 1e-12
    signals = {
        "both": {"embeddings": embeddings, "probes": comparisons},
        "embedding": {"embeddings": embeddings},
        "comparisons": {"probes": comparisons},
    }
    for evidence, known in signals.items():
        fit = quiet_fit(ecc(start, evidence=evidence), comparisons, embeddings)
        predicted = fit.predict_responsibilities(queries=comparisons.queries, **known)
        np.testing.assert_allclose(predicted, fit.responsibilities_, atol=atol)
        assert predicted["query"].equals(fit.responsibilities_["query"])


def test_prediction_changes_nothing():
    comparisons, embeddings, start = draw_problem(4)
    fit = quiet_fit(ecc(start), comparisons, embeddings)
    before = copy.deepcopy(fit)
    fit.predict_ranking(embeddings)
    fit.predict_win_probability(comparisons, probes=comparisons)
    fit.cluster_ranking(by="strength")
    same_fit(fit, before, atol=0)
    assert fit.posterior_.identical(before.posterior_)


# -------------------------------------------------------------------- starts and stopping


def test_the_best_of_several_starts_is_kept():
    data = simulate(n_queries=60, n_models=5, n_clusters=3, rng=1)
    settings_ = {"n_clusters": 4, "embedding_weight": 0.3, "ridge": 0.1}
    rng = np.random.default_rng(5)
    alone = [
        quiet_fit(ECC(**settings_, rng=rng), data.comparisons, data.embeddings) for _ in range(6)
    ]
    finals = [fit.objective_[-1] for fit in alone]
    assert np.ptp(finals) > 0.1
    together = quiet_fit(
        ECC(**settings_, n_init=6, rng=np.random.default_rng(5)), data.comparisons, data.embeddings
    )
    same_fit(together, alone[int(np.argmin(finals))], atol=0)


def test_the_same_rng_gives_the_same_answer_and_another_a_different_one():
    comparisons, embeddings, _ = draw_problem(5)
    one, again, other = (quiet_fit(ecc(rng=rng), comparisons, embeddings) for rng in (1, 1, 2))
    same_fit(one, again, atol=0)
    assert np.abs(one.responsibilities_ - other.responsibilities_).max() > 1e-3


def test_dirichlet_starts_are_uniform_on_the_simplex():
    # Centroids of orthogonal embeddings are the columns of the start up to a factor each, and
    # its rows sum to 1.
    n = 500
    comparisons = Comparisons.from_arrays([0], [0], [1], [1.0], queries=range(n), models=["a", "b"])
    fit = quiet_fit(ECC(3, evidence="embedding", max_iter=1, rng=0), comparisons, np.eye(n))
    columns = fit.centroids_.values.T
    factors, residual, *_ = np.linalg.lstsq(columns, np.ones(n))
    assert residual.item() < 1e-20
    start = columns * factors
    for k in range(3):
        assert stats.kstest(start[:, k], stats.beta(1, 2).cdf).pvalue > 0.01


def test_empty_clusters_survive():
    comparisons, embeddings, start = draw_problem(6)
    start[:, 1] = 0
    for evidence in EVIDENCE:
        fit = quiet_fit(ecc(start, evidence=evidence), comparisons, embeddings)
        assert fit.responsibilities_.sizes["cluster"] == 3
        for name in ("responsibilities_", "strengths_", "centroids_", "objective_"):
            assert np.isfinite(getattr(fit, name)).all(), (evidence, name)
        np.testing.assert_allclose(fit.responsibilities_.sum("cluster"), 1, atol=1e-12)
        assert np.isfinite(fit.predict_ranking(embeddings)["win_probability"]).all()


def test_a_cluster_can_stay_empty():
    # Embeddings close together leave a cold fit no query to give to a third cluster.
    comparisons, embeddings, start = draw_problem(6)
    near = embeddings + 10 * np.eye(3)[0]
    start[:, 1] = 0
    fit = quiet_fit(ecc(start, evidence="embedding", temperature=1e-3), comparisons, near)
    np.testing.assert_allclose(fit.responsibilities_[:, 1], 0, atol=1e-30)
    np.testing.assert_allclose(fit.strengths_[1], 0, atol=1e-30)
    np.testing.assert_array_equal(fit.centroids_[1], 0)
    assert fit.cluster_ranking()["rank"][1].values.tolist() == [2.5] * 4


def test_as_many_clusters_as_queries_and_as_few_models_as_two():
    comparisons, embeddings, _ = draw_problem(7, n_models=2)
    fit = quiet_fit(ecc(n_clusters=12, temperature=1e-3, ridge=1e-6), comparisons, embeddings)
    assert fit.responsibilities_.shape == (12, 12)
    assert np.isfinite(fit.strengths_).all()
    assert np.diff(fit.objective_).max() <= 1e-8


def test_hitting_the_limit_warns_with_remedies():
    comparisons, embeddings, start = draw_problem(8)
    with pytest.warns(ConvergenceWarning) as caught:
        fit = ecc(start, max_iter=2).fit(comparisons, embeddings)
    (message,) = [str(w.message) for w in caught if w.category is ConvergenceWarning]
    for part in ("2 iterations", "tol=0", "raise max_iter", "centroid_tol", "temperature"):
        assert part in message
    assert [w.filename for w in caught if w.category is ConvergenceWarning] == [__file__]
    assert (fit.converged_, fit.n_iter_, len(fit.objective_)) == (False, 2, 2)
    converged = ecc(start, max_iter=300, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        converged.fit(comparisons, embeddings)
    assert converged.converged_
    assert converged.n_iter_ == len(converged.objective_) < 300


def test_models_that_comparisons_do_not_connect_are_named():
    _, embeddings, _ = draw_problem(9)
    comparisons = Comparisons.from_arrays(
        range(12),
        [0, 2] * 6,
        [1, 3] * 6,
        [0, 1, 1, 0] * 3,
        queries=range(12),
        models=["a", "b", "c", "d", "idle"],
    )
    with pytest.warns(DataWarning) as caught:
        ECC(2, rng=0, max_iter=500).fit(comparisons, embeddings)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert said[0].startswith("Never compared: idle.")
    assert "c, d say nothing of a, b" in said[1]
    assert {warning.filename for warning in caught} == {__file__}


# -------------------------------------------------------------------- settings chosen from data


def test_auto_chooses_each_setting_from_its_grid_and_keeps_the_others():
    data = simulate(n_queries=120, n_models=5, n_clusters=2, rng=0)
    estimator = ECC(2, embedding_weight="auto", ridge="auto", temperature=0.15, rng=0)
    fit = quiet_fit(estimator, data.comparisons, data.embeddings)
    assert fit.get_params()["ridge"] == "auto"
    assert fit.settings_["n_clusters"] == 2
    assert fit.settings_["temperature"] == 0.15
    assert fit.selection_.best == {
        name: fit.settings_[name] for name in ("embedding_weight", "ridge")
    }
    table = fit.selection_.table
    chosen = table[
        (table["ridge"] == fit.settings_["ridge"])
        & (table["embedding_weight"] == fit.settings_["embedding_weight"])
    ]
    assert chosen["loss"].item() == table["loss"].min()
    plain = ECC(rng=0).set_params(**fit.settings_)
    assert plain.fit(data.comparisons, data.embeddings).settings_ == fit.settings_


# -------------------------------------------------------------------- manners


def test_inputs_are_left_alone_and_normalised_embeddings_are_not_copied():
    rng = np.random.default_rng(0)
    embeddings = unit_embeddings(rng.normal(size=(1500, 512)).astype(np.float32))
    query = np.repeat(np.arange(1500), 2)
    comparisons = Comparisons.from_arrays(
        query,
        rng.integers(0, 2, 3000),
        rng.integers(2, 4, 3000),
        rng.integers(0, 2, 3000),
        queries=range(1500),
        models=list("abcd"),
    )
    start = rng.dirichlet(np.ones(2), 1500)
    kept = embeddings.copy(), start.copy()
    embeddings.flags.writeable = start.flags.writeable = False
    tracemalloc.start()
    try:
        quiet_fit(ecc(start, max_iter=5), comparisons, embeddings)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * embeddings.nbytes
    np.testing.assert_array_equal(embeddings, kept[0])
    np.testing.assert_array_equal(start, kept[1])


def test_scikit_learn_finds_an_estimator():
    start = np.full((12, 3), 1 / 3)
    estimator = ECC(5, evidence="comparisons", init=start, rng=7)
    copied = clone(estimator)
    params = estimator.get_params()
    assert params["init"] is start
    assert set(params) == {
        "n_clusters", "evidence", "embedding_weight", "temperature", "ridge", "init", "n_init",
        "max_iter", "tol", "centroid_tol", "rng", "ties", "order_effect",
    }  # fmt: skip
    np.testing.assert_array_equal(copied.init, start)
    assert estimator.set_params(ridge=0.1, rng=None) is estimator
    assert (estimator.ridge, copied.ridge, copied.rng) == (0.1, 1.0, 7)
    assert "ridge=0.1" in repr(estimator)
    with pytest.raises(ValueError, match="lambda"):
        estimator.set_params(**{"lambda": 3})
    published = ECC()
    assert published.get_params() == {
        "n_clusters": 30, "evidence": "both", "embedding_weight": 3.0, "temperature": 0.1,
        "ridge": 1.0, "init": "dirichlet", "n_init": 1, "max_iter": 300, "tol": 1e-3,
        "centroid_tol": 1e-2, "rng": None, "ties": "half", "order_effect": False,
    }  # fmt: skip


def test_fitting_learns_names_and_changes_no_parameter():
    comparisons, embeddings, start = draw_problem(10)
    estimator = ecc(start)
    before = estimator.get_params()
    fit = quiet_fit(estimator, comparisons, embeddings)
    assert fit is estimator
    assert all(fit.get_params()[name] is value for name, value in before.items())
    assert fit.responsibilities_.dims == ("query", "cluster")
    assert fit.responsibilities_["query"].values.tolist() == comparisons.queries.tolist()
    assert fit.strengths_.dims == ("cluster", "llm")
    assert fit.strengths_["llm"].values.tolist() == comparisons.models.tolist()
    assert fit.centroids_.dims == ("cluster", "embedding_dim")
    np.testing.assert_allclose(fit.strengths_.sum("llm"), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(fit.centroids_, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(fit.responsibilities_.sum("cluster"), 1, atol=1e-12)
    assert fit.settings_ == {
        "n_clusters": 3, "embedding_weight": 1.0, "temperature": 0.2, "ridge": 0.3
    }  # fmt: skip


def test_fitting_again_forgets_the_first_data():
    comparisons, embeddings, _ = draw_problem(11)
    other, other_embeddings, _ = draw_problem(12, n_queries=20, n_models=5, dim=4)
    estimator = quiet_fit(ecc(rng=3), comparisons, embeddings)
    again = quiet_fit(estimator, other, other_embeddings)
    same_fit(again, quiet_fit(ecc(rng=3), other, other_embeddings), atol=0)
    twice = quiet_fit(again, other, other_embeddings)
    same_fit(twice, again, atol=0)


def test_a_refused_second_fit_leaves_the_first_as_it_was():
    comparisons, embeddings, start = draw_problem(13)
    fit = quiet_fit(ecc(start), comparisons, embeddings)
    before = copy.deepcopy(fit)
    with pytest.raises(ValueError, match="11 rows for 12 queries"):
        fit.fit(comparisons, embeddings[:-1])
    same_fit(fit, before, atol=0)


def test_fits_can_be_copied_and_pickled():
    comparisons, embeddings, start = draw_problem(14)
    fit = quiet_fit(ecc(start), comparisons, embeddings)
    expected = fit.predict_win_probability(comparisons, embeddings=embeddings)
    for other in (copy.deepcopy(fit), pickle.loads(pickle.dumps(fit))):
        same_fit(other, fit, atol=0)
        found = other.predict_win_probability(comparisons, embeddings=embeddings)
        np.testing.assert_array_equal(found, expected)


def test_asking_before_fitting_says_so():
    comparisons, embeddings, _ = draw_problem(15)
    estimator = ECC()
    for ask in (
        lambda: estimator.predict_responsibilities(embeddings),
        lambda: estimator.predict_win_probability(comparisons, embeddings=embeddings),
        lambda: estimator.predict_ranking(embeddings),
        lambda: estimator.cluster_ranking(),
    ):
        with pytest.raises(NotFittedError, match=r"This ECC is not fitted yet: call fit\("):
            ask()
    for ask in (
        lambda: BradleyTerry().predict_win_probability(comparisons),
        lambda: BradleyTerry().ranking(),
    ):
        with pytest.raises(NotFittedError, match=r"This BradleyTerry is not fitted yet"):
            ask()
