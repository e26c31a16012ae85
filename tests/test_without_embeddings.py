"""Fits without embeddings: comparisons alone tell queries apart, or one ranking serves them all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from bayes_ecc import (
    ECC,
    BayesianECC,
    Bundle,
    Comparisons,
    InputError,
    Simulation,
    as_fitted,
    atoms,
    bt_loss,
    fit_quality,
    fit_score_model,
    load_posterior,
    predict_responsibilities,
    probe_values,
    route,
    route_observed,
    save_bundle,
    save_posterior,
    simulate,
    summarize_ranking,
    summarize_strengths,
    training_data,
)
from bayes_ecc.cli import main
from bayes_ecc.evaluation import EvaluationSettings, evaluate
from bayes_ecc.splits import draw_split
from bayes_ecc.validation import inner_splits


@pytest.fixture(scope="module")
def data() -> Simulation:
    return simulate(n_queries=300, n_models=5, n_clusters=2, rng=0)


@pytest.fixture(scope="module")
def votes() -> Comparisons:
    """One vote a query, as in an arena."""
    truth = simulate(n_queries=400, n_models=4, n_clusters=1, per_query=1, rng=1)
    return truth.comparisons


def short(n_clusters: int, **changed: object) -> BayesianECC:
    arguments = {"chains": 2, "tune": 100, "draws": 150, "cores": 1, "checks": False, "rng": 0}
    return BayesianECC(n_clusters, **{**arguments, **changed})


def test_em_without_embeddings_is_comparison_only_clustering_read_without_them(
    data: Simulation,
) -> None:
    probes, scored = data.comparisons.take_probes(1)
    bare = ECC(2, ridge=0.3, rng=0).fit(data.comparisons)
    other = ECC(2, evidence="comparisons", embedding_weight=0.0, ridge=0.3, rng=0)
    other.fit(data.comparisons, data.embeddings.astype(np.float32))
    assert bare.settings_["embedding_weight"] == 0
    np.testing.assert_allclose(bare.strengths_, other.strengths_, atol=1e-5)
    np.testing.assert_allclose(
        bare.predict_win_probability(scored, probes=probes),
        other.predict_win_probability(scored, probes=probes),
        atol=1e-5,
    )
    assert (np.diff(bare.objective_) <= 1e-4).all()


def test_settings_are_chosen_without_embeddings(data: Simulation) -> None:
    fit = ECC(2, embedding_weight="auto", ridge="auto", rng=0).fit(data.comparisons)
    assert fit.settings_["embedding_weight"] == 0
    assert "embedding_weight" not in fit.selection_.best


def test_one_cluster_is_a_bradley_terry_model_with_a_normal_prior(votes: Comparisons) -> None:
    fit = short(1, draws=1500, chains=4).fit(votes)
    assert fit.settings_ == {
        "n_clusters": 1, "concentration": 0.0, "evidence_power": 1.0, "probe_power": 1.0,
    }  # fmt: skip
    assert set(fit.posterior_["posterior"].data_vars).isdisjoint({"tau", "global_strengths"})

    def negative_log_density(theta: np.ndarray) -> float:  # prior variance 1 + 1, by hand
        gap = theta[votes.second] - theta[votes.first]
        return -np.log(1 / (1 + np.exp(-np.where(votes.outcome > 0.5, gap, -gap)))).sum() + (
            theta @ theta / 4
        )

    mode = minimize(negative_log_density, np.zeros(4), method="BFGS")
    contrasts = fit.posterior_["posterior"]["contrasts"].isel(cluster=0)
    projector = np.eye(4) - 0.25
    sd = np.sqrt(np.diag(projector @ mode.hess_inv @ projector.T))
    np.testing.assert_allclose(
        contrasts.mean(("chain", "draw")), projector @ mode.x, atol=0.35 * sd.max()
    )
    np.testing.assert_allclose(contrasts.std(("chain", "draw")), sd, rtol=0.15)


def test_the_prior_of_one_cluster_is_that_of_both_levels_together() -> None:
    """Six votes leave much to the prior; the difference is integrated on a grid."""
    votes = Comparisons.from_arrays(
        range(6), [0] * 6, [1] * 6, [1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
        queries=list("qrstuv"), models=["a", "b"],
    )  # fmt: skip
    fit = short(1, probe_power=1.0, chains=4, draws=1500).fit(votes)
    strengths = fit.posterior_["posterior"]["strengths"].isel(cluster=0)
    found = (strengths.sel(llm="b") - strengths.sel(llm="a")).values.ravel()
    grid = np.linspace(-15, 15, 20001)
    # each strength has variance 1 + 1, their difference 4
    log_density = -(grid**2) / 8 - 5 * np.log1p(np.exp(-grid)) - np.log1p(np.exp(grid))
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ grid
    sd = np.sqrt(weight @ (grid - mean) ** 2)
    assert found.mean() == pytest.approx(mean, abs=0.1)
    assert found.std() == pytest.approx(sd, abs=0.1)


def test_a_mixture_without_embeddings_finds_clusters_by_comparisons(data: Simulation) -> None:
    probes, scored = data.comparisons.take_probes(3)
    fit = short(2).fit(data.comparisons)
    known = bt_loss(fit.predict_win_probability(scored, probes=probes), scored)
    nothing = bt_loss(fit.predict_win_probability(scored), scored)
    assert known < nothing
    assert fit.settings_["concentration"] == 0
    comparisons, embeddings = training_data(fit.posterior_)
    held = predict_responsibilities(
        as_fitted(fit.posterior_), embeddings=embeddings, probes=comparisons
    )
    largest = held.max("cluster").mean()
    assert largest > 0.7


def test_queries_of_which_nothing_is_known_are_like_any_other(data: Simulation) -> None:
    fit = ECC(2, ridge=0.3, rng=0).fit(data.comparisons)
    one = fit.predict_ranking()
    assert one.sizes["query"] == 1
    expected = fit.cluster_ranking()["win_probability"].mean("cluster")
    np.testing.assert_allclose(one["win_probability"].isel(query=0), expected, atol=1e-6)
    several = fit.predict_ranking(queries=["a", "b"])
    assert several["query"].values.tolist() == ["a", "b"]
    assert fit.predict_responsibilities().values.tolist() == [[0.5, 0.5]]
    summary = summarize_ranking(fit.posterior_)
    np.testing.assert_allclose(summary["win_probability"], one["win_probability"], atol=1e-5)


def test_tables_by_query_need_the_queries_where_nothing_else_tells_them(data: Simulation) -> None:
    fit = ECC(2, ridge=0.3, rng=0).fit(data.comparisons).posterior_
    names = list(data.comparisons.models)
    scores = pd.DataFrame(np.random.default_rng(0).random((4, 5)).round(), columns=names)
    table = scores.set_axis(list("abcd"))
    for learn in (fit_quality, fit_score_model):
        with pytest.raises(InputError, match=r"scores goes by query.*queries=\[\.\.\.\]"):
            learn(fit, scores)  # row 0 alone would have been read
    quality = fit_quality(fit, table, queries=list("abcd"))
    constant = float(np.mean(table.to_numpy()))
    assert quality.predict(0.5) == pytest.approx(constant, abs=0.3)
    model = fit_score_model(fit, table, queries=list("abcd"))
    assert model.n_queries == 4
    assert model.predict(queries=["x", "y"]).sizes["query"] == 2
    with pytest.raises(InputError, match="observed goes by query"):
        model.predict(observed=scores)
    with pytest.raises(InputError, match="observed goes by query"):
        route_observed(model, observed=scores.to_numpy())
    with pytest.raises(InputError, match="costs goes by query"):
        route(fit, costs=scores + 1)
    with pytest.raises(InputError, match="available goes by query"):
        probe_values(fit, available=np.ones((4, 5), dtype=bool))
    assert route(fit, costs=np.ones(5), available=names[:2]).sizes["query"] == 1
    assert route(fit, costs=table + 1, queries=list("abcd")).sizes["query"] == 4


def test_embeddings_of_new_queries_are_refused_by_fits_without(data: Simulation) -> None:
    fit = ECC(2, rng=0).fit(data.comparisons)
    with pytest.raises(InputError, match="made without embeddings"):
        fit.predict_ranking(data.embeddings)
    with_them = ECC(2, rng=0).fit(data.comparisons, data.embeddings)
    with pytest.raises(InputError, match="embeddings, probes, or both"):
        with_them.predict_ranking()


def test_what_needs_embeddings_says_so(data: Simulation) -> None:
    with pytest.raises(InputError, match="evidence='embedding' needs embeddings"):
        ECC(2, evidence="embedding", rng=0).fit(data.comparisons)
    with pytest.raises(InputError, match=r"concentration=6\.0 has nothing to act on"):
        short(2, concentration=6.0).fit(data.comparisons)
    bare = Bundle("bare", pd.DataFrame({"query_id": ["a", "b"]}), comparisons=frame_of(["a", "b"]))
    with pytest.raises(InputError, match="'embedding' clusters embeddings"):
        evaluate(bare, [], ["embedding"])


def test_a_saved_fit_still_knows_that_it_had_none(data: Simulation, tmp_path: Path) -> None:
    fit = ECC(2, rng=0).fit(data.comparisons)
    save_posterior(fit.posterior_, tmp_path / "fit.nc")
    again = load_posterior(tmp_path / "fit.nc")
    assert not atoms(again).embedded
    assert summarize_strengths(again).sizes == summarize_strengths(fit.posterior_).sizes
    assert atoms(ECC(2, rng=0).fit(data.comparisons, data.embeddings).posterior_).embedded


def frame_of(ids: list[str]) -> pd.DataFrame:
    pairs = [("ada", "bo"), ("bo", "cy"), ("cy", "ada")]
    rows = [(name, *pairs[i % 3], "model_a" if i % 2 else "model_b") for i, name in enumerate(ids)]
    return pd.DataFrame(rows, columns=["query_id", "model_a", "model_b", "winner"])


# ---------------------------------------------------------------- one vote a query


def test_inner_splits_take_no_probe_where_queries_have_one_vote(votes: Comparisons) -> None:
    (split,) = inner_splits(votes, 1, n_probes=None, rng=0)
    assert len(split.probes) == 0
    assert len(split.scored) == 100
    several = simulate(n_queries=40, per_query=3, rng=0).comparisons
    assert len(inner_splits(several, 1, n_probes=None, rng=0)[0].probes) == 10


def test_settings_are_chosen_from_one_vote_a_query_with_embeddings() -> None:
    truth = simulate(n_queries=200, n_models=4, n_clusters=2, per_query=1, rng=3)
    em = ECC(2, ridge="auto", rng=0).fit(truth.comparisons, truth.embeddings)
    assert em.selection_.best.keys() == {"ridge"}
    fit = short(2, concentration=6.0, evidence_power=2.0, draws=20, tune=20)
    fit.fit(truth.comparisons, truth.embeddings)
    assert fit.settings_["probe_power"] == 2.0  # a vote like any other


# ---------------------------------------------------------------- bundles and commands


@pytest.fixture
def arena(tmp_path: Path, votes: Comparisons) -> Path:
    table = votes.to_frame()
    queries = pd.DataFrame({"query_id": votes.queries})
    save_bundle(Bundle("arena", queries, comparisons=table), tmp_path / "arena")
    return tmp_path / "arena"


def test_votes_without_embeddings_go_from_a_bundle_to_a_ranking(
    arena: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = tmp_path / "fit.nc"
    assert main(["fit", str(arena), "--out", str(fit), "--draws", "50", "--chains", "2"]) == 0
    printed = capsys.readouterr()
    assert "n_clusters 1" in printed.out
    assert "no embeddings" in printed.err
    assert load_posterior(fit).attrs["command"].startswith(f"bayes-ecc fit {arena} --out")
    assert main(["rank", str(fit), "--cluster", "0"]) == 0
    assert "P(best)" in capsys.readouterr().out


def test_evaluation_of_one_vote_a_query_takes_no_probes(
    arena: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(arena), "--methods", "global"]) == 2
    assert "--probes 0" in capsys.readouterr().err
    assert main(["evaluate", str(arena), "--methods", "global,ecc", "--probes", "0",
                 "--clusters", "2"]) == 0  # fmt: skip
    assert "0 probe" in capsys.readouterr().out


def test_splits_of_bundles_without_embeddings_have_none(data: Simulation) -> None:
    bundle = Bundle(
        "bare",
        pd.DataFrame({"query_id": data.comparisons.queries}),
        comparisons=data.comparisons.to_frame(),
    )
    split = draw_split(bundle, seed=0)
    assert split.train_embeddings is None
    assert split.test_embeddings is None
    settings = EvaluationSettings(n_clusters=2, ridge=0.3)
    found = evaluate(bundle, [split], ["comparisons", "ecc"], settings)
    both = found["methods"]["ecc"]
    assert both["probe"]["loss"]["mean"] == both["embedding+probe"]["loss"]["mean"]
    assert both["embedding"]["loss"]["mean"] != both["probe"]["loss"]["mean"]


# ---------------------------------------------------------------- no probes, though there could be


def test_settings_are_chosen_for_queries_without_probes_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bayes_ecc.mixture_settings.WITHOUT_PROBES_GRID", (2.0, 32.0))
    truth = simulate(n_queries=80, n_models=4, n_clusters=2, per_query=4, rng=4)
    fit = short(2, n_probes=0, chains=1, tune=10, draws=10)
    fit.fit(truth.comparisons, truth.embeddings)
    tried = {result["concentration"] for result in fit.selection_.table.to_dict("records")}
    assert tried == {2.0, 32.0}  # all of them, not only downhill from one
    assert fit.settings_["probe_power"] == fit.settings_["evidence_power"]
    with pytest.raises(InputError, match="n_probes"):
        short(2, n_probes=-1).fit(truth.comparisons, truth.embeddings)


def test_what_has_no_effect_without_embeddings_is_told(
    arena: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(arena), "--method", "ecc", "--clusters", "2", "--temperature", "0.1"]
    command += ["--ridge", "1", "--out", str(tmp_path / "fit.nc")]
    assert main(command) == 0
    assert "--embedding-weight" not in capsys.readouterr().err
    assert main([*command, "--embedding-weight", "3"]) == 0
    told = capsys.readouterr().err
    assert "note: --embedding-weight 3: without effect, as the data have no embeddings." in told
    name = training_data(load_posterior(tmp_path / "fit.nc"))[0].queries[0]
    assert main(["rank", str(tmp_path / "fit.nc"), "--query", name]) == 0
    shown = capsys.readouterr().out
    assert f"Query {name}, from its comparisons." in shown
    assert main(["rank", str(arena), "--cluster", "0"]) == 2
    assert "`bayes-ecc fit" in capsys.readouterr().err


def test_settings_of_the_other_estimator_are_told(
    arena: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(arena), "--draws", "20", "--chains", "1", "--ridge", "0"]
    assert main([*command, "--out", str(tmp_path / "fit.nc")]) == 0
    assert "note: --ridge: without effect, being of --method ecc" in capsys.readouterr().err
