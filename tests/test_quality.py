"""Predicted quality: the fitted map against other solvers, and what it owes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from bayes_ecc import (
    ECC,
    InputError,
    QualityCalibration,
    fit_quality,
    fit_score_model,
    load_bundle,
    predict_ranking,
    simulate,
)
from bayes_ecc.quality import (
    align_scores,
    calibration_table,
    quality_calibration_error,
    rising_values,
)
from bayes_ecc.splits import frozen_split

DATA = simulate(n_queries=400, n_models=6, n_clusters=3, rng=0)
FIT = ECC(3, embedding_weight=1.0, ridge=0.1, rng=0).fit(DATA.comparisons, DATA.embeddings)
CHANCE = expit(DATA.strengths[DATA.labels])
SCORES = (np.random.default_rng(0).random(CHANCE.shape) < CHANCE).astype(float)


def features(win: np.ndarray, n_cells: int) -> np.ndarray:
    passed = np.clip(win[:, None] * n_cells - np.arange(n_cells), 0, 1)
    return np.column_stack([np.ones(len(win)), passed])


# -------------------------------------------------------------------- the map


def test_map_is_linear_between_its_values() -> None:
    quality = QualityCalibration(np.array([0.0, 0.1, 0.7, 0.8]), n_queries=3)
    win = np.random.default_rng(0).random((4, 5))
    assert np.allclose(quality.predict(win), np.interp(win, np.linspace(0, 1, 4), quality.values))
    single = win.astype(np.float32)
    assert quality.predict(single).dtype == np.float32
    assert np.allclose(quality.predict(single), quality.predict(win), atol=1e-6)
    assert quality.predict([0, 1]).tolist() == pytest.approx([0.0, 0.8])


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.1], [0.3, 0.2], [0.0, np.nan], [[0.0, 1.0]]])
def test_a_map_that_does_not_rise_is_refused(values: Any) -> None:
    with pytest.raises(InputError, match="values must"):
        QualityCalibration(np.array(values), n_queries=1)


def test_a_map_copies_its_values() -> None:
    values = np.array([0.0, 1.0])
    quality = QualityCalibration(values, n_queries=1)
    values[0] = 5.0
    assert quality.values.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        quality.values[0] = 1.0


# -------------------------------------------------------------------- the fit


def test_solver_recovers_a_rising_map() -> None:
    truth = np.array([0.1, 0.15, 0.15, 0.6, 0.9, 0.95])
    win = np.random.default_rng(0).random(3000)
    x = features(win, 5)
    y = np.interp(win, np.linspace(0, 1, 6), truth)
    assert np.allclose(rising_values(x.T @ x, x.T @ y, 1e-6), truth, atol=1e-4)


def test_solver_equals_isotonic_regression_on_a_grid() -> None:
    # win probabilities at the cell edges alone: the map's values are free there
    rng = np.random.default_rng(1)
    place = rng.integers(0, 11, size=600)
    y = np.where(rng.random(600) < place / 15, 1.0, 0.0) + (place == 4)
    x = features(place / 10, 10)
    expected = IsotonicRegression().fit(place, y).predict(np.arange(11))
    assert np.allclose(rising_values(x.T @ x, x.T @ y, 1e-7), expected, atol=1e-3)


def test_fit_is_calibrated_on_what_it_was_fitted_to() -> None:
    quality = fit_quality(FIT.posterior_, SCORES, embeddings=DATA.embeddings)
    win = predict_ranking(FIT.posterior_, embeddings=DATA.embeddings)["win_probability"].values
    predicted = quality.predict(win)
    assert predicted.mean() == pytest.approx(SCORES.mean(), abs=1e-2)
    assert quality_calibration_error(predicted.ravel(), SCORES.ravel()) < 0.02
    assert quality.n_queries == 400


def test_fit_averages_the_map_over_draws_not_the_draws() -> None:
    """Two atoms far apart: the mean of the mapped wins is calibrated, the mapped mean is not."""
    posterior = FIT.posterior_
    strengths = posterior["posterior"]["strengths"]
    draws = posterior.isel(draw=[0, 0], missing_dims="ignore")
    wide = np.concatenate([strengths.values * 6, strengths.values * 0.2], axis=1)
    draws["posterior"] = (
        draws["posterior"].to_dataset().assign(strengths=(strengths.dims, wide), draw=[0, 1])
    )
    truth = QualityCalibration(np.array([0.0, 0.02, 0.1, 0.3, 1.0]), n_queries=1)
    wins = [
        predict_ranking(draws.isel(draw=[draw], missing_dims="ignore"), embeddings=DATA.embeddings)[
            "win_probability"
        ].values
        for draw in range(2)
    ]
    target = np.mean([truth.predict(win) for win in wins], axis=0)
    many = np.tile(target, (20, 1))  # as successes and failures: scores from 0 to 1
    scores = np.random.default_rng(0).random(many.shape) < many
    found = fit_quality(draws, scores, embeddings=np.tile(DATA.embeddings, (20, 1)), n_cells=4)
    again = np.mean([found.predict(win) for win in wins], axis=0)
    assert np.abs(again - target).mean() < 0.01
    assert np.abs(found.predict(np.mean(wins, axis=0)) - target).mean() > 0.015


def test_fit_stays_within_the_scores_and_rises() -> None:
    few = fit_quality(FIT.posterior_, SCORES[:5] * 3 - 1, embeddings=DATA.embeddings[:5])
    assert few.values.min() >= -1
    assert few.values.max() <= 2
    assert (np.diff(few.values) > 0).all()
    same = fit_quality(FIT.posterior_, np.full((5, 6), 0.4), embeddings=DATA.embeddings[:5])
    assert np.allclose(same.values, 0.4, atol=1e-3)


def test_missing_scores_count_for_nothing() -> None:
    gaps = SCORES.copy()
    gaps[100:] = np.nan
    gaps[:100][np.random.default_rng(0).random((100, 6)) < 0.3] = np.nan
    gaps[0] = SCORES[0]
    partly = fit_quality(FIT.posterior_, gaps, embeddings=DATA.embeddings)
    alone = fit_quality(FIT.posterior_, gaps[:100], embeddings=DATA.embeddings[:100])
    assert np.allclose(partly.values, alone.values)


def test_probes_belong_to_the_signals() -> None:
    probes, _ = DATA.comparisons.take_probes(1)
    plain = fit_quality(FIT.posterior_, SCORES, embeddings=DATA.embeddings)
    probed = fit_quality(FIT.posterior_, SCORES, embeddings=DATA.embeddings, probes=probes)
    assert not np.allclose(plain.values, probed.values, atol=1e-3)


# -------------------------------------------------------------------- scores and tables


def test_frames_are_read_by_name() -> None:
    queries = pd.Index(["q1", "q2"])
    models = pd.Index(["a", "b"])
    frame = pd.DataFrame({"query_id": ["q0", "q2", "q1"], "b": [9, 4, 2], "a": [9, 3, 1]})
    assert align_scores(frame, queries, models).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert align_scores(frame.set_index("query_id"), queries, models).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="no row for query 'q9'"):
        align_scores(frame, pd.Index(["q9"]), models)
    with pytest.raises(InputError, match="no column 'c'"):
        align_scores(frame, queries, pd.Index(["a", "c"]))
    with pytest.raises(InputError, match="more than once"):
        align_scores(pd.concat([frame, frame]), queries, models)
    with pytest.raises(InputError, match=r"shape \(1, 2\)"):
        align_scores([[1.0, 2.0]], queries, models)
    with pytest.raises(InputError, match="no score"):
        fit_quality(FIT.posterior_, np.full((2, 6), np.nan), embeddings=DATA.embeddings[:2])


@pytest.mark.parametrize("fit_scores", [fit_quality, fit_score_model])
def test_a_frame_by_query_asks_for_the_queries_names(fit_scores: Any) -> None:
    names = DATA.comparisons.queries
    success = (DATA.strengths[DATA.labels] > 0).astype(float)
    named = pd.DataFrame(success, names, FIT.posterior_["posterior"]["llm"].values)
    for frame in (named, named.reset_index(drop=True)):  # numbers of their own would be misread
        with pytest.raises(InputError, match=r"scores has \d+ row\(s\) .*: queries=\[\.\.\.\]"):
            fit_scores(FIT.posterior_, frame, embeddings=DATA.embeddings[5:])
    by_name = fit_scores(FIT.posterior_, named, embeddings=DATA.embeddings[5:], queries=names[5:])
    by_row = fit_scores(FIT.posterior_, success[5:], embeddings=DATA.embeddings[5:])
    for name in ("values", "level_shares"):
        if hasattr(by_row, name):
            assert np.array_equal(getattr(by_name, name), getattr(by_row, name))


def test_calibration_table_holds_equally_many_queries() -> None:
    predicted = np.array([0.9, 0.1, 0.5, 0.7, 0.3])
    realised = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    table = calibration_table(predicted, realised, n_bins=2)
    assert table["queries"].tolist() == [3, 2]
    assert table["predicted"].tolist() == pytest.approx([0.3, 0.8])
    assert table["realised"].tolist() == pytest.approx([1 / 3, 1.0])
    error = quality_calibration_error(predicted, realised, n_bins=2)
    assert error == pytest.approx((3 * (1 / 3 - 0.3) + 2 * 0.2) / 5)
    with pytest.raises(InputError, match="one number a query"):
        calibration_table(predicted, realised[:2])


# -------------------------------------------------------------------- real data


@pytest.mark.statistical
def test_predicted_quality_is_calibrated_on_new_queries(
    shared_data: Path, shared_protocol: Path
) -> None:
    bundle = load_bundle(shared_data / "routerdc")
    split = frozen_split(bundle, shared_protocol / "routerdc" / "seed_0.parquet", seed=0)
    fit = ECC(30, embedding_weight=1.0, rng=0).fit(split.train, split.train_embeddings)
    assert bundle.scores is not None
    quality = fit_quality(
        fit.posterior_,
        bundle.scores,
        embeddings=split.train_embeddings,
        queries=split.train.queries,
    )
    win = predict_ranking(
        fit.posterior_, embeddings=split.test_embeddings, queries=split.scored.queries
    )["win_probability"].values
    realised = align_scores(bundle.scores, split.scored.queries, split.train.models)
    predicted = quality.predict(win)
    assert quality_calibration_error(predicted.ravel(), realised.ravel()) < 0.03
    row, best = np.arange(len(win)), win.argmax(axis=1)
    assert abs(predicted[row, best].mean() - realised[row, best].mean()) < 0.05
