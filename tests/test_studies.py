"""Studies: what is drawn, what is shared, what comes out, and what survives an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz_base
import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from bayes_ecc import (
    ECC,
    BradleyTerry,
    Bundle,
    Comparisons,
    DataWarning,
    InputError,
    Study,
    bt_loss,
    judge_agreement,
    load_bundle,
    run_study,
    save_bundle,
    simulate,
    summarize_study,
)
from bayes_ecc.evaluation import EvaluationSettings, fit_method, judge
from bayes_ecc.studies import COLUMNS, STUDIES, Cell, StudyData, find_study, grid_cells, run_cells
from bayes_ecc.studies import run as run_module
from bayes_ecc.studies import store as store_module
from bayes_ecc.studies import work as work_module
from bayes_ecc.studies.judges import _row_tau
from bayes_ecc.studies.sides import draw_test, draw_training, make_split
from bayes_ecc.studies.store import Store
from bayes_ecc.studies.work import run_group

SMALL = {"n_clusters": 3, "embedding_weight": 1.0, "ridge": 0.1}


def scored_bundle(n_queries: int = 160, n_models: int = 6, seed: int = 0) -> Bundle:
    """Three kinds of query, each with models of its own; scores of 0 and 1, so that pairs tie."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=n_queries)
    centers = np.eye(8)[:3]
    vectors = centers[kind] + 0.35 * rng.normal(size=(n_queries, 8))
    skill = rng.normal(0, 2.5, size=(3, n_models))
    scores = (rng.random((n_queries, n_models)) < expit(skill[kind])).astype(float)
    ids = [f"q{i:03d}" for i in range(n_queries)]
    queries = pd.DataFrame({"query_id": ids, "task": [f"task {k}" for k in kind]})
    table = pd.DataFrame(scores, columns=[f"m{i}" for i in range(n_models)])
    table.insert(0, "query_id", ids)
    return Bundle("scored", queries, scores=table, embeddings=vectors.astype(np.float32))


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return scored_bundle()


@pytest.fixture(scope="module")
def data(bundle: Bundle) -> StudyData:
    return StudyData.of(bundle)


def rows_of(comparisons: Comparisons) -> set[tuple[Any, ...]]:
    frame = comparisons.to_frame().drop(columns="weight")
    return set(frame.itertuples(index=False, name=None))


def without_time(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="seconds")


# -------------------------------------------------------------------- what is drawn


def test_fewer_comparisons_are_part_of_more_and_of_the_same_queries(data: StudyData) -> None:
    few, more = (draw_training(data, Cell(per_query=n)) for n in (2, 5))
    assert few.queries.equals(more.queries)
    assert rows_of(few) < rows_of(more)
    assert (np.bincount(few.query) == 2).all()
    everything = draw_training(data, Cell(per_query=None))
    assert rows_of(more) < rows_of(everything)


def test_a_smaller_share_is_part_of_a_larger_one_and_none_is_tested_on(data: StudyData) -> None:
    parts = {share: draw_training(data, Cell(train_fraction=share)) for share in (0.3, 0.6, 0.9)}
    assert rows_of(parts[0.3]) < rows_of(parts[0.6]) < rows_of(parts[0.9])
    n_queries = len(data.bundle.queries)
    for share, train in parts.items():
        assert train.n_queries == pytest.approx(share * n_queries, rel=0.15)
        for fraction in (None, 0.1):
            _, scored = draw_test(data, Cell(train_fraction=share, test_fraction=fraction))
            assert not set(scored.queries) & set(train.queries)
    same = [
        rows_of(draw_test(data, Cell(train_fraction=share, test_fraction=0.1))[1])
        for share in parts
    ]
    assert same[0] == same[1] == same[2]


def test_nothing_falls_between_the_two_sides(data: StudyData) -> None:
    for share in (0.2, 1 / 3, 0.7, 0.8):
        cell = Cell(train_fraction=share, n_probes=0)
        train, (_, scored) = draw_training(data, cell), draw_test(data, cell)
        kept = data.bundle.draw_comparisons(rng=0).n_queries
        assert train.n_queries + scored.n_queries == kept


def test_seeds_draw_anew(data: StudyData) -> None:
    one, other = (draw_training(data, Cell(seed=seed)) for seed in (0, 1))
    assert rows_of(one) != rows_of(other)
    assert set(one.queries) != set(other.queries)
    assert rows_of(one) == rows_of(draw_training(data, Cell(seed=0)))


def test_more_probes_hold_the_fewer_and_reserving_keeps_what_is_scored(data: StudyData) -> None:
    sides = [draw_test(data, Cell(n_probes=n, reserved=4)) for n in (1, 2, 4)]
    assert rows_of(sides[0][0]) < rows_of(sides[1][0]) < rows_of(sides[2][0])
    assert rows_of(sides[0][1]) == rows_of(sides[1][1]) == rows_of(sides[2][1])
    everything = rows_of(draw_test(data, Cell(n_probes=0))[1])
    assert rows_of(sides[2][0]) | rows_of(sides[2][1]) <= everything
    for probes, scored in sides:
        assert not rows_of(probes) & rows_of(scored)
        assert probes.queries.equals(scored.queries)
    first_two, rest = draw_test(data, Cell(n_probes=2))
    assert rows_of(first_two) == rows_of(sides[1][0])
    assert rows_of(rest) > rows_of(sides[0][1])


def test_probe_draws_choose_other_comparisons_of_the_same_queries(data: StudyData) -> None:
    whole = [draw_test(data, Cell(probe_draw=draw)) for draw in (0, 1, 2)]
    assert len({frozenset(rows_of(probes)) for probes, _ in whole}) == 3
    union = [rows_of(probes) | rows_of(scored) for probes, scored in whole]
    assert union[0] == union[1] == union[2]


def test_noise_flips_as_many_probes_as_it_says_and_nothing_else(data: StudyData) -> None:
    cells = [Cell(n_probes=3, probe_noise=noise) for noise in (0.0, 0.3, 0.6, 1.0)]
    clean, little, much, all_of_them = (draw_test(data, cell)[0] for cell in cells)
    flipped = [probes.outcome != clean.outcome for probes in (little, much, all_of_them)]
    assert flipped[2].all()
    assert flipped[0].mean() == pytest.approx(0.3, abs=0.15)
    assert flipped[1].mean() == pytest.approx(0.6, abs=0.15)
    assert (flipped[1] >= flipped[0]).all()
    np.testing.assert_array_equal(all_of_them.outcome, 1 - clean.outcome)
    scored = [rows_of(draw_test(data, cell)[1]) for cell in cells]
    assert scored[0] == scored[3]


def test_ties_make_up_their_share_and_leave_the_others_in_their_order(data: StudyData) -> None:
    decided = draw_training(data, Cell())
    assert (decided.outcome != 0.5).all()
    shares, previous = {}, set()
    for share in (0.0, 0.1, 0.3):
        train = draw_training(data, Cell(tie_share=share))
        tied = train.outcome == 0.5
        shares[share] = tied.mean()
        assert train.queries.equals(decided.queries)
        kept = train.rows(~tied)
        assert rows_of(kept) <= rows_of(decided)
        assert previous <= rows_of(train.rows(tied))
        previous = rows_of(train.rows(tied))
        scores = data.bundle.scores.set_index("query_id")
        for query, first, second, _ in rows_of(train.rows(tied)):
            assert scores.loc[query, first] == scores.loc[query, second]
    assert shares[0.0] == 0
    assert shares[0.1] == pytest.approx(0.1, abs=0.04)
    assert shares[0.3] == pytest.approx(0.3, abs=0.07)
    _, scored = draw_test(data, Cell(tie_share=0.3, test_ties=False))
    assert (scored.outcome != 0.5).all()
    _, scored = draw_test(data, Cell(tie_share=0.3))
    assert (scored.outcome == 0.5).mean() > 0.15


def test_votes_lose_ties_beyond_the_share_and_nothing_else() -> None:
    votes = StudyData.of(simulate(n_queries=200, ties=0.9, rng=1).bundle())
    whole = draw_training(votes, Cell(per_query=None))
    found = (whole.outcome == 0.5).mean()
    assert found > 0.15
    for share in (0.0, 0.1, 0.9):
        thinned = draw_training(votes, Cell(per_query=None, tie_share=share))
        tied = (thinned.outcome == 0.5).mean()
        assert tied == pytest.approx(min(share, found), abs=0.02)
        assert rows_of(thinned) <= rows_of(whole)
        decided = [rows_of(part.rows(part.outcome != 0.5)) for part in (whole, thinned)]
        assert decided[0] == decided[1]


def test_labels_left_out_are_not_trained_on(data: StudyData, bundle: Bundle) -> None:
    labels = bundle.labels("task")
    cell = Cell(label="task", left_out=("task 1",), tested=("task 1",))
    train, (_, scored) = draw_training(data, cell), draw_test(data, cell)
    assert set(labels[train.queries]) == {"task 0", "task 2"}
    assert set(labels[scored.queries]) == {"task 1"}
    _, inside = draw_test(data, replace(cell, left_out=()))
    assert rows_of(inside) == rows_of(scored)
    with pytest.raises(InputError, match="No query has the label 'task 7'"):
        draw_training(data, replace(cell, left_out=("task 7",)))


def test_a_judge_has_its_own_verdicts_on_the_same_queries(bundle: Bundle) -> None:
    turned = bundle.scores.copy()
    turned.iloc[:, 1:] = 1 - turned.iloc[:, 1:]
    data = StudyData.of(bundle, judges={"contrary": turned})
    ours, theirs = (draw_training(data, Cell(judge=name)) for name in ("bundle", "contrary"))
    assert ours.queries.equals(theirs.queries)
    flipped = replace(theirs, outcome=1 - theirs.outcome)
    assert rows_of(flipped) == rows_of(ours)


# -------------------------------------------------------------------- what comes out


def by_hand(data: StudyData, cell: Cell, evidence: str) -> dict[str, float]:
    """Fit and judge one cell without the library's evaluation."""
    train, (probes, scored) = draw_training(data, cell), draw_test(data, cell)
    vectors = data.bundle.embeddings_for(train.queries)
    rng = np.random.default_rng([cell.seed, __import__("zlib").crc32(cell.method.encode())])
    fit = ECC(
        cell.n_clusters,
        evidence=evidence,
        embedding_weight=cell.embedding_weight,
        temperature=cell.temperature,
        ridge=cell.ridge,
        rng=rng,
    ).fit(train, vectors)
    new = data.bundle.embeddings_for(scored.queries)
    base = bt_loss(BradleyTerry(ridge=1.0).fit(train).predict_win_probability(scored), scored)
    found = {}
    for name, given in (
        ("embedding", {"embeddings": new}),
        ("probe", {"probes": probes}),
        ("embedding+probe", {"embeddings": new, "probes": probes}),
    ):
        p = fit.predict_win_probability(scored, **given)
        loss = -np.mean(np.where(scored.outcome == 1, np.log(p), np.log1p(-p)))
        found[name] = 100 * (1 - loss / base)
    return found


@pytest.mark.parametrize(
    ("method", "evidence"), [("ecc", "both"), ("embedding", "embedding"), ("comparisons",) * 2]
)
def test_gains_are_those_of_a_fit_by_hand(data: StudyData, method: str, evidence: str) -> None:
    cells = [
        Cell(method, **SMALL),
        Cell(method, **SMALL, n_probes=2, probe_noise=0.4, probe_draw=3),
        Cell(method, **{**SMALL, "embedding_weight": 0.2}),
    ]
    for cell, result in zip(cells, run_cells(cells, data), strict=True):
        gains = {signal: figures["gain"] for signal, figures in result.figures.items()}
        assert gains == pytest.approx(by_hand(data, cell, evidence), abs=1e-4)
        assert list(gains) == ["embedding", "probe", "embedding+probe"]


def test_figures_are_those_of_the_evaluation(data: StudyData, bundle: Bundle) -> None:
    cell = Cell("labels:task")
    result = run_cells([cell], data)[0]
    train = draw_training(data, cell)
    split = make_split(data, cell, train, draw_test(data, cell))
    p, q = (fit_method(m, split, bundle).predict("probe") for m in ("labels:task", "global"))
    wanted = judge(p, q, split, n_resamples=1000)
    found = result.figures["probe"]
    assert found["gain_low"] == wanted["low"] < found["gain"] < found["gain_high"]
    assert {n: found[n] for n in ("gain", "loss", "ece", "loss_per_query")} == {
        n: wanted[n] for n in ("gain", "loss", "ece", "loss_per_query")
    }
    assert found["loss_global"] == pytest.approx(bt_loss(q, split.scored))
    assert result.facts["n_scored"] == len(split.scored)
    assert result.facts["n_train"] == len(train)


def test_a_fit_predicts_another_split_of_the_same_models(data: StudyData) -> None:
    cell = Cell("ecc", **SMALL)
    train = draw_training(data, cell)
    one, other = (
        make_split(data, cell, train, draw_test(data, replace(cell, n_probes=n))) for n in (1, 3)
    )
    for method in ("global", "labels:task", "ecc"):
        fitted = fit_method(method, one, data.bundle, EvaluationSettings(n_clusters=3))
        np.testing.assert_array_equal(fitted.predict("probe"), fitted.predict("probe", one))
        again = fit_method(method, other, data.bundle, EvaluationSettings(n_clusters=3))
        np.testing.assert_array_equal(again.predict("probe"), fitted.predict("probe", other))


def test_wrong_probes_do_harm_and_more_probes_do_good(bundle: Bundle) -> None:
    table = run_study(["probes_same_test", "probe_noise"], bundle, methods=["ecc"], base=SMALL)
    summary = summarize_study(table, ["n_probes", "probe_noise", "reserved"], signal="probe")
    gain = summary.set_index(["study", "n_probes", "probe_noise"])["gain"]
    noise = gain["probe_noise"].droplevel("n_probes")
    assert noise[0.0] > noise[0.5] > noise[1.0]
    probes = gain["probes_same_test"].droplevel("probe_noise")
    assert min(probes[6], probes[3]) > probes[1]
    embedding = table[(table["signal"] == "embedding") & (table["study"] == "probe_noise")]
    assert (embedding.groupby("seed")["gain"].nunique() == 1).all()


def test_a_table_has_a_row_a_method_signal_seed_and_setting(bundle: Bundle) -> None:
    before = bundle.scores.copy()
    table = run_study(
        "clusters", bundle, methods=["global", "ecc"], seeds=[4, 7], base={"ridge": 0.1}
    )
    assert tuple(table.columns) == COLUMNS
    sizes = STUDIES["clusters"].grid[0]["n_clusters"]
    figures = table.dropna(subset="gain")
    assert len(figures) == 2 * 3 * 2 * len(sizes)
    assert not figures.duplicated(["method", "signal", "seed", "n_clusters"]).any()
    assert set(table["seed"]) == {4, 7}
    assert (table["ridge"] == 0.1).all()
    assert (table["bundle"] == "scored").all()
    assert (figures.loc[figures["method"] == "global", "gain"] == 0).all()
    pd.testing.assert_frame_equal(before, bundle.scores)


def test_encoders_are_what_a_bundle_of_theirs_would_give(bundle: Bundle) -> None:
    other = np.random.default_rng(1).normal(size=(len(bundle.queries), 5)).astype(np.float32)
    table = run_study(
        "encoders", bundle, methods=["ecc"], seeds=1, base=SMALL, encoders={"random": other}
    )
    alone = run_study(
        "main", replace(bundle, embeddings=other), methods=["ecc"], seeds=1, base=SMALL
    )
    rows = table[table["encoder"] == "random"]
    np.testing.assert_array_equal(rows["gain"], alone["gain"])
    ours = table[table["encoder"] == "bundle"].set_index("signal")["gain"]
    assert ours["embedding"] > rows.set_index("signal")["gain"]["embedding"] + 5


def test_out_of_distribution_has_both_kinds_of_fit_on_the_same_test_queries(
    bundle: Bundle,
) -> None:
    table = run_study("ood", bundle, methods=["ecc"], seeds=1, base=SMALL, label="task")
    both = table[table["signal"] == "embedding"].set_index(["tested", "left_out"])
    for label in ("task 0", "task 1", "task 2"):
        inside, outside = both.loc[(label, "")], both.loc[(label, label)]
        assert inside["n_scored"] == outside["n_scored"]
        assert inside["n_train_queries"] > outside["n_train_queries"]
        assert inside["loss"] < outside["loss"]


def test_judges_are_fitted_and_predicted_each_by_each(bundle: Bundle) -> None:
    contrary = bundle.scores.copy()
    contrary.iloc[:, 1:] = 1 - contrary.iloc[:, 1:]
    judges = {"same": bundle.scores, "contrary": contrary}
    table = run_study("judges", bundle, methods=["ecc"], seeds=1, base=SMALL, judges=judges)
    loss = table[table["signal"] == "embedding"].set_index(["judge", "tested_by"])["loss"]
    assert len(loss) == 9
    assert loss["bundle", "bundle"] == loss["same", "same"] == loss["bundle", "same"]
    assert loss["contrary", "contrary"] == pytest.approx(loss["bundle", "bundle"], rel=0.2)
    assert loss["bundle", "contrary"] > 2 * loss["bundle", "bundle"]


def test_agreement_of_judges_beside_that_of_one_with_itself(bundle: Bundle) -> None:
    rng = np.random.default_rng(3)
    noisy = bundle.scores.copy()
    noisy.iloc[:, 1:] = rng.permutation(noisy.iloc[:, 1:].to_numpy())
    base = {**SMALL, "embedding_weight": 0.1}
    table = judge_agreement(bundle, {"same": bundle.scores, "noisy": noisy}, seeds=2, base=base)
    assert len(table) == 2 * (2 * 3 + 3)
    pair = table.set_index(["judge", "other", "differs"])
    same = pair.loc[("bundle", "same", "judge")]
    np.testing.assert_allclose(same[["ari", "nmi", "tau_overall", "tau_query"]], 1.0)
    other = pair.loc[("bundle", "noisy", "judge")]
    redrawn = pair.loc[("bundle", "bundle", "draw")]
    assert redrawn["ari"].mean() > other["ari"].mean() + 0.2
    assert redrawn["tau_query"].mean() > other["tau_query"].mean() + 0.1


def test_tau_of_rows_is_scipys() -> None:
    from scipy.stats import kendalltau

    a, b = np.random.default_rng(0).normal(size=(2, 5, 7))
    wanted = [kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(_row_tau(a, b), wanted)


def test_summaries_average_within_a_seed_first(bundle: Bundle) -> None:
    table = run_study("probe_choice", bundle, methods=["ecc", "global"], seeds=3, base=SMALL)
    summary = summarize_study(table, by=[], signal="probe").set_index("method")
    rows = table[(table["method"] == "ecc") & (table["signal"] == "probe")]
    per_seed = rows.groupby("seed")["gain"].mean()
    assert summary.loc["ecc", "gain"] == pytest.approx(per_seed.mean())
    assert summary.loc["ecc", "gain_sd"] == pytest.approx(per_seed.std())
    assert summary.loc["ecc", "n_seeds"] == 3
    assert rows.groupby("seed")["gain"].nunique().min() > 10
    every = summarize_study(table)
    assert set(every.columns) >= {"study", "method", "signal", "probe_draw", "gain"}
    with pytest.raises(InputError, match="lacks the column"):
        summarize_study(table.drop(columns="ece"))
    with pytest.raises(InputError, match="by names 'gain'"):
        summarize_study(table, by="gain")


def test_bundles_without_embeddings_are_read_by_probes_alone() -> None:
    votes = replace(simulate(n_queries=150, n_models=5, rng=0).bundle(), embeddings=None)
    table = run_study("probes", votes, methods=["comparisons", "ecc"], seeds=1, base=SMALL)
    assert set(table["signal"]) == {"probe"}
    assert table["gain"].notna().all()


# -------------------------------------------------------------------- what is computed once


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods fitted, in order."""
    found: list[str] = []

    def counted(method: str, *rest: Any) -> Any:
        found.append(method)
        return fit_method(method, *rest)

    monkeypatch.setattr(work_module, "fit_method", counted)
    return found


@pytest.mark.parametrize(
    ("studies", "method", "expected"),
    [
        (["probes", "probes_same_test", "probe_noise", "probe_choice", "main"], "ecc", 1),
        ("embedding_weight", "comparisons", 1),
        ("embedding_weight", "ecc", 8),
        ("clusters", "labels:task", 1),
        (["fraction", "fraction_same_test", "main"], "ecc", 8),
        (["comparisons", "comparisons_same_test"], "global", 8),
        ("ties", "ecc", 7),
        (["ood", "main"], "ecc", 4),
    ],
)
def test_what_shares_a_fit_is_fitted_once(
    bundle: Bundle, fits: list[str], studies: str | list[str], method: str, expected: int
) -> None:
    run_study(studies, bundle, methods=[method], seeds=1, base=SMALL, label="task")
    assert fits == [method] * expected


def test_what_judges_predict_shares_the_fits_to_each(bundle: Bundle, fits: list[str]) -> None:
    judges = {"again": bundle.scores}
    run_study("judges", bundle, methods=["ecc"], seeds=1, base=SMALL, judges=judges)
    assert fits == ["ecc"] * 2


def test_models_and_tables_are_left_out(bundle: Bundle) -> None:
    votes = Comparisons.from_scores(bundle.scores, rng=0).to_frame()
    both = replace(bundle, comparisons=votes)
    with pytest.raises(InputError, match="say source='scores'"):
        run_study("main", both)
    settings: dict[str, Any] = {"methods": ["ecc"], "seeds": 1, "base": SMALL}
    scored = run_study("main", both, **settings, source="scores")
    pd.testing.assert_frame_equal(
        without_time(scored), without_time(run_study("main", bundle, **settings))
    )
    voted = run_study("main", both, **settings, source="comparisons")
    assert (voted["n_train"] > 0).all()
    for data in (
        StudyData.of(both, source="comparisons", exclude_models=["m1"]),
        StudyData.of(bundle, judges={"again": bundle.scores}, exclude_models=["m1"]),
    ):
        for name in data.judges:
            train = draw_training(data, Cell(judge=name))
            assert "m1" not in train.models
            assert len(train.models) == 5
    with pytest.raises(InputError, match="exclude_models names 'm9'"):
        StudyData.of(bundle, exclude_models=["m9"])
    with pytest.raises(InputError, match="the bundle has scores"):
        StudyData.of(bundle, source="comparisons")


def test_clusters_chosen_with_a_weight_are_not_shared_by_another() -> None:
    weights = (1.0, 3.0)
    auto = [Cell("comparisons", n_clusters=2, ridge="auto", embedding_weight=w) for w in weights]
    assert auto[0].training() != auto[1].training()
    assert Cell("comparisons", embedding_weight="auto").training() != Cell("comparisons").training()
    assert Cell("comparisons", embedding_weight=1.0).training() == Cell("comparisons").training()


# -------------------------------------------------------------------- resumable


def test_a_finished_study_computes_nothing_again(
    bundle: Bundle, tmp_path: Path, fits: list[str]
) -> None:
    first = run_study("probes", bundle, methods=["ecc"], seeds=2, base=SMALL, folder=tmp_path)
    assert len(fits) == 2
    again = run_study("probes", bundle, methods=["ecc"], seeds=2, base=SMALL, folder=tmp_path)
    assert len(fits) == 2
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    wider = run_study(
        ["probes", "probe_noise"], bundle, methods=["ecc"], seeds=3, base=SMALL, folder=tmp_path
    )
    assert len(fits) == 5  # a seed more, and noise on the fits of two seeds
    assert len(list(tmp_path.glob("*.json"))) == 3 * (6 + 10)
    pd.testing.assert_frame_equal(
        wider[(wider["study"] == "probes") & (wider["seed"] < 2)].reset_index(drop=True),
        first,
        check_exact=True,
    )


def test_other_data_and_other_versions_are_not_mixed_in(
    bundle: Bundle, tmp_path: Path, fits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(one: Bundle) -> pd.DataFrame:
        return run_study("main", one, methods=["ecc"], seeds=1, base=SMALL, folder=tmp_path)

    first = run(bundle)
    scores = bundle.scores.copy()
    scores.iloc[0, 1:] = 1 - scores.iloc[0, 1:]
    with pytest.warns(DataWarning, match="not used, being of other data"):
        run(replace(bundle, scores=scores))
    assert bundle.embeddings is not None
    nudged = bundle.embeddings.copy()
    nudged[0, 0] += 1e-3
    with pytest.warns(DataWarning, match="other data"):
        run(replace(bundle, embeddings=nudged))
    assert len(fits) == 3
    pd.testing.assert_frame_equal(run(bundle), first, check_exact=True)
    assert len(fits) == 3
    newer = {**store_module.library_versions(), "bayes_ecc": "99.0"}
    monkeypatch.setattr(store_module, "library_versions", lambda: dict(newer))
    with pytest.warns(DataWarning, match=r"bayes_ecc 0\.\S+ instead of 99\.0"):
        run(bundle)
    assert len(fits) == 4


def test_another_kind_of_interval_is_another_result(
    bundle: Bundle, tmp_path: Path, fits: list[str]
) -> None:
    settings: dict[str, Any] = {"methods": ["ecc"], "seeds": 1, "base": SMALL, "folder": tmp_path}
    wide = run_study("main", bundle, **settings)
    with (
        arviz_base.rc_context({"stats.ci_prob": 0.3}),
        pytest.warns(DataWarning, match="another kind of interval"),
    ):
        narrow = run_study("main", bundle, **settings)
    assert (narrow["gain_low"] > wide["gain_low"]).all()
    assert (narrow["gain"] == wide["gain"]).all()
    assert len(fits) == 2


def test_progress_counts_cells_and_starts_at_the_finished(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"methods": ["global"], "seeds": 1, "folder": tmp_path}
    run_study("main", bundle, **settings)
    assert capsys.readouterr().err == ""
    run_study("probes", bundle, **settings, progress=True)
    assert "1/6" in capsys.readouterr().err


def test_texts_and_labels_that_nothing_reads_are_no_other_data(bundle: Bundle) -> None:
    renamed = replace(bundle, queries=bundle.queries.assign(task="x", text="y"))
    cells = [Cell("ecc"), Cell("labels:task"), Cell("ecc", label="task", tested=("task 1",))]
    one, other = StudyData.of(bundle), StudyData.of(renamed)
    same = [one.fingerprint(cell) == other.fingerprint(cell) for cell in cells]
    assert same == [True, False, False]


def test_a_damaged_file_is_computed_again(bundle: Bundle, tmp_path: Path, fits: list[str]) -> None:
    first = run_study("main", bundle, methods=["ecc"], seeds=1, base=SMALL, folder=tmp_path)
    (file,) = tmp_path.glob("*.json")
    whole = file.read_text(encoding="utf-8")
    for damaged in (
        whole[: len(whole) // 2],
        "",
        "[]",
        whole.replace('"ridge": 0.1', '"ridge": 9'),
    ):
        file.write_text(damaged, encoding="utf-8")
        again = run_study("main", bundle, methods=["ecc"], seeds=1, base=SMALL, folder=tmp_path)
        pd.testing.assert_frame_equal(without_time(first), without_time(again))
    assert len(fits) == 5
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, data: StudyData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(InputError, match="No space left on device"):
        run_cells([Cell("global")], data, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be made"):
        Store(tmp_path / "file")


KILLED = """
import sys
from bayes_ecc import load_bundle, run_study
run_study("probe_noise", load_bundle(sys.argv[1]), methods=["embedding", "ecc"], seeds=3,
          base={"n_clusters": 3, "embedding_weight": 1.0, "ridge": 0.1}, folder=sys.argv[2])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed another way here")
def test_a_killed_study_goes_on_where_it_stopped(tmp_path: Path, fits: list[str]) -> None:
    folder = tmp_path / "cells"
    source = save_bundle(scored_bundle(), tmp_path / "scored")
    n_cells = 2 * 3 * 11
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(folder)])
    try:
        deadline = time.monotonic() + 120
        while len(list(folder.glob("*.json"))) < n_cells // 4 and time.monotonic() < deadline:
            assert process.poll() is None, "the study ended before it could be killed"
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    finished = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert n_cells // 4 <= len(finished) < n_cells
    settings: dict[str, Any] = {"methods": ["embedding", "ecc"], "seeds": 3, "base": SMALL}
    resumed = run_study("probe_noise", load_bundle(source), **settings, folder=folder)
    whole_fits = len(finished) // 11  # groups that the killed process had got through
    assert len(fits) == 6 - whole_fits
    for path, written in finished.items():
        assert path.stat().st_mtime_ns == written
    assert len(list(folder.glob("*.json"))) == n_cells
    uninterrupted = run_study("probe_noise", scored_bundle(), **settings)
    pd.testing.assert_frame_equal(without_time(resumed), without_time(uninterrupted))


# -------------------------------------------------------------------- in parallel


def test_processes_give_the_same_table(bundle: Bundle, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"methods": ["global", "ecc"], "seeds": 2, "base": SMALL}
    with arviz_base.rc_context({"stats.ci_prob": 0.5}):  # which other processes do not know
        serial = run_study("probes", bundle, **settings)
        parallel = run_study("probes", bundle, **settings, folder=tmp_path, n_jobs=2)
    pd.testing.assert_frame_equal(without_time(serial), without_time(parallel))
    assert len(list(tmp_path.glob("*.json"))) == 2 * 2 * 6


def test_threads_give_the_same_table_and_leave_warnings_as_they_were(bundle: Bundle) -> None:
    settings: dict[str, Any] = {"methods": ["ecc"], "seeds": 4, "base": {**SMALL, "n_clusters": 40}}
    serial = run_study("probes", bundle, **settings)
    before = (warnings.showwarning, list(warnings.filters))
    with joblib.parallel_config(backend="threading", n_jobs=4):
        threaded = run_study("probes", bundle, **settings)
    assert (warnings.showwarning, list(warnings.filters)) == before
    pd.testing.assert_frame_equal(without_time(serial), without_time(threaded))


def test_a_dask_cluster_gives_the_same_table(bundle: Bundle) -> None:
    distributed = pytest.importorskip("distributed")
    settings: dict[str, Any] = {"methods": ["ecc"], "seeds": 2, "base": SMALL}
    serial = run_study("probes", bundle, **settings)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        table = run_study("probes", bundle, **settings)
    pd.testing.assert_frame_equal(without_time(serial), without_time(table))


# -------------------------------------------------------------------- what is refused


def test_a_cell_that_is_refused_says_why_and_the_others_go_on(bundle: Bundle) -> None:
    mine = Study("mine", "How many?", "n_clusters", [{"n_clusters": [3, 500]}])
    with pytest.warns(DataWarning, match="1 of 2 cells were refused.*n_clusters=500 exceeds"):
        table = run_study(mine, bundle, methods=["ecc"], seeds=1)
    refused = table[table["signal"].isna()]
    assert len(refused) == 1
    assert refused["gain"].isna().all()
    assert "n_clusters=500" in refused["message"].iloc[0]
    assert table["gain"].notna().sum() == 3
    with pytest.raises(InputError, match=r"None of the cells could be run: n_clusters=500"):
        run_study(replace(mine, grid=[{"n_clusters": [500]}]), bundle, methods=["ecc"], seeds=1)


def test_warnings_of_fits_go_to_the_table(data: StudyData, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*arguments: Any) -> Any:
        warnings.warn("Never compared: m0.", DataWarning, stacklevel=2)
        return fit_method(*arguments)

    monkeypatch.setattr(work_module, "fit_method", warned)
    results = run_group(data, [Cell("global"), Cell("global", n_probes=2)])
    assert [result.facts["message"] for result in results] == ["Never compared: m0."] * 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_clusters": 0}, "n_clusters=0"),
        ({"train_fraction": 1.0}, r"train_fraction=1\.0"),
        ({"train_fraction": 0.9, "test_fraction": 0.2}, "make more than 1"),
        ({"probe_noise": 1.5}, r"probe_noise=1\.5"),
        ({"probe_noise": True}, "probe_noise=True"),
        ({"tie_share": 1.0}, r"tie_share=1\.0"),
        ({"n_probes": 3, "reserved": 2}, "reserved=2 is less than n_probes=3"),
        ({"tested": ("a",)}, "give their column as label"),
        ({"label": "task", "tested": "a"}, "give a tuple of labels"),
        ({"per_query": 2.5}, r"per_query=2\.5"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Cell(**settings)


def test_wrong_studies_are_refused(bundle: Bundle) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"study": "cluster"}, "do you mean 'clusters'"),
        ({"study": []}, "no study to run"),
        ({"study": "main", "methods": "ecc"}, "give a list of one method"),
        ({"study": "main", "methods": ["knn"]}, "There is no method 'knn'"),
        ({"study": "main", "seeds": []}, "give one seed or more"),
        ({"study": "main", "base": {"clusters": 3}}, "base names 'clusters'"),
        ({"study": "ood"}, "name a label column.*task"),
        ({"study": "ood", "label": "topic"}, "no label column 'topic'"),
        ({"study": "encoders"}, "--encoder NAME=FILE"),
        ({"study": "judges"}, "--judge NAME=FILE"),
        ({"study": "main", "encoders": {"bundle": np.ones((160, 2))}}, "'bundle' is taken"),
        ({"study": "main", "encoders": {"short": np.ones((3, 2))}}, r"encoders\['short'\]"),
        ({"study": "main", "judges": {"bad": bundle.scores.iloc[:, :2]}}, r"judges\['bad'\]"),
    ]
    for arguments, said in refused:
        with pytest.raises(InputError, match=said):
            run_study(bundle=bundle, **arguments)
    with pytest.raises(InputError, match="cannot vary 'K'"):
        list(grid_cells([{"K": [2]}]))
    with pytest.raises(InputError, match="give a list of values"):
        list(grid_cells([{"n_clusters": 2}]))
    with pytest.raises(InputError, match="clusters of one fit each"):
        judge_agreement(bundle, {"same": bundle.scores}, method="global")
    with pytest.raises(InputError, match="two judges"):
        judge_agreement(bundle, {})


def test_too_many_probes_leave_nothing_to_score(data: StudyData) -> None:
    with pytest.raises(InputError, match="No comparison is left to score"):
        draw_test(data, Cell(n_probes=7))


def test_presets_cover_what_they_promise() -> None:
    spans = {
        "clusters": ("n_clusters", 2, 100),
        "comparisons": ("per_query", 2, 24),
        "embedding_weight": ("embedding_weight", 0.5, 50),
        "fraction": ("train_fraction", 0.2, 0.9),
        "temperature": ("temperature", 0.05, 0.35),
        "probes": ("n_probes", 1, 6),
        "probe_noise": ("probe_noise", 0, 1),
        "ties": ("tie_share", 0, 0.3),
    }
    for name, (setting, low, high) in spans.items():
        study = find_study(name)
        assert study.varies == setting
        values = study.grid[0][setting]
        assert (min(values), max(values)) == (low, high)
    assert find_study("probe-noise") is STUDIES["probe_noise"]


def test_cells_keep_what_they_depend_on_as_json(data: StudyData) -> None:
    for method in ("global", "labels:task", "embedding", "comparisons", "ecc", "ecc:auto", "bayes"):
        identity = store_module.cell_identity(data, Cell(method))
        assert json.loads(json.dumps(identity, sort_keys=True))
        assert ("pymc" in identity["versions"]) == (method == "bayes")
    assert run_module.base_cell(data.bundle).per_query == 7


# -------------------------------------------------------------------- real data


def test_levels_on_routerdc(shared_data: Path) -> None:
    bundle = load_bundle(shared_data / "routerdc")
    table = run_study(
        ["main", "probe_noise"],
        bundle,
        methods=["labels:task", "comparisons", "ecc"],
        seeds=2,
        base={"embedding_weight": 1.0},
    )
    both = table[table["signal"] == "embedding+probe"]
    gain = both[both["study"] == "main"].groupby("method")["gain"].mean()
    assert gain["ecc"] == pytest.approx(31.4, abs=2.5)
    assert gain["comparisons"] == pytest.approx(27.8, abs=2.5)
    assert gain["labels:task"] == pytest.approx(29.4, abs=1.5)
    noise = both[both["method"] == "ecc"].groupby("probe_noise")["gain"].mean()
    assert (np.diff(noise) < 0).all()
