"""Label baseline: a model a label, the global one for everything else."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from bayes_ecc import (
    BradleyTerry,
    DataWarning,
    InputError,
    LabelBradleyTerry,
    NotFittedError,
    simulate,
)


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=90, n_models=5, rng=0)


@pytest.fixture(scope="module")
def labels(data):
    """Label of each query, shuffled and with queries that are not in the data."""
    names = np.array(["code", "law", "maths"])[np.arange(90) % 3]
    found = pd.Series(names, index=data.comparisons.queries)
    more = pd.Series(["law", "art"], index=["unseen 1", "unseen 2"])
    return pd.concat([more, found]).sample(frac=1, random_state=0)


def global_model(comparisons, ridge=1.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return BradleyTerry(ridge).fit(comparisons)


@given(st.floats(1e-3, 10))
@settings(max_examples=10)
def test_each_label_has_the_global_model_of_its_own_queries(data, labels, ridge):
    model = LabelBradleyTerry(ridge).fit(data.comparisons, labels)
    own = labels.reindex(data.comparisons.queries)
    assert sorted(model.strengths_.index) == ["code", "law", "maths"]
    assert model.strengths_.columns.tolist() == data.comparisons.models.tolist()
    predicted = model.predict_win_probability(data.comparisons, labels)
    for label in ("code", "law", "maths"):
        part = data.comparisons.take((own == label).to_numpy())
        expected = global_model(part, ridge)
        np.testing.assert_allclose(model.strengths_.loc[label], expected.strengths_, atol=1e-6)
        rows = (own == label).to_numpy()[data.comparisons.query]
        np.testing.assert_allclose(
            predicted[rows], expected.predict_win_probability(part), atol=1e-6
        )
    expected = global_model(data.comparisons, ridge).strengths_
    np.testing.assert_allclose(model.global_strengths_, expected, atol=1e-6)


def test_unknown_and_missing_labels_are_read_by_the_global_model(data, labels):
    comparisons = data.comparisons
    with_gaps = labels.where(labels != "law", None)
    model = LabelBradleyTerry().fit(comparisons, with_gaps)
    assert sorted(model.strengths_.index) == ["code", "maths"]
    expected = global_model(comparisons)
    np.testing.assert_allclose(model.global_strengths_, expected.strengths_, atol=1e-6)
    for asked in (labels, with_gaps, labels.replace("law", "new"), labels.astype("category")):
        predicted = model.predict_win_probability(comparisons, asked)
        own = labels.reindex(comparisons.queries).to_numpy()[comparisons.query]
        unknown = own == "law"
        np.testing.assert_allclose(
            predicted[unknown], expected.predict_win_probability(comparisons)[unknown], atol=1e-6
        )
        code = model.strengths_.loc["code"].to_numpy()
        gap = code[comparisons.second] - code[comparisons.first]
        rows = own == "code"
        np.testing.assert_allclose(predicted[rows], 1 / (1 + np.exp(-gap[rows])), atol=1e-12)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 1],
        [1.5, np.nan, 2.5],
        [True, False, True],
        pd.array([1, None, 2], dtype="Int64"),
        pd.to_datetime(["2024-01-01", None, "2025-01-01"]),
        pd.Categorical(["a", None, "b"], categories=["b", "a", "unused"]),
        [("a", 1), ("b", 2), ("a", 1)],
        [1, "one", 1],
    ],
    ids=["int", "float", "bool", "nullable", "dates", "category", "tuples", "mixed"],
)
def test_labels_of_any_kind_give_the_same_as_text(data, values):
    series = pd.Series(values).take(np.arange(90) % 3).set_axis(data.comparisons.queries)
    model = LabelBradleyTerry().fit(data.comparisons, series)
    text = series.astype(object).map(str).where(series.notna().to_numpy(), None)
    expected = LabelBradleyTerry().fit(data.comparisons, text)
    np.testing.assert_allclose(
        model.predict_win_probability(data.comparisons, series),
        expected.predict_win_probability(data.comparisons, text),
        atol=1e-12,
    )
    assert len(model.strengths_) == series.nunique()


def test_one_label_for_all_is_the_global_model(data):
    same = pd.Series("x", index=data.comparisons.queries)
    model = LabelBradleyTerry().fit(data.comparisons, same)
    np.testing.assert_allclose(model.strengths_.loc["x"], model.global_strengths_, atol=1e-9)


def test_weights_count(data, labels):
    doubled = data.comparisons.to_frame()
    doubled["weight"] = 2.0
    heavy = type(data.comparisons).from_frame(
        doubled, queries=data.comparisons.queries, models=data.comparisons.models
    )
    one, other = LabelBradleyTerry(1.0), LabelBradleyTerry(2.0)
    one.fit(data.comparisons, labels)
    other.fit(heavy, labels)
    np.testing.assert_allclose(one.strengths_, other.strengths_, atol=1e-6)


def test_scikit_learn_finds_an_estimator(data, labels):
    model = LabelBradleyTerry(0.5)
    before = labels.copy()
    assert model.fit(data.comparisons, labels) is model
    pd.testing.assert_series_equal(labels, before)
    again = clone(model).fit(data.comparisons, labels)
    np.testing.assert_array_equal(again.strengths_, model.strengths_)
    fewer = data.comparisons.drop_models(["llm_0"])
    expected = model.predict_win_probability(fewer.with_models(data.comparisons.models), labels)
    np.testing.assert_array_equal(model.predict_win_probability(fewer, labels), expected)
    with pytest.raises(NotFittedError, match="This LabelBradleyTerry is not fitted yet"):
        LabelBradleyTerry().predict_win_probability(data.comparisons, labels)


def bad_labels(queries):
    good = pd.Series("x", index=queries)
    return {
        "list": (["x"] * len(queries), "labels must be a pandas Series .* not list"),
        "None": (None, "labels must be a pandas Series .* not NoneType"),
        "frame": (good.to_frame(), "labels must be a pandas Series .* not DataFrame"),
        "missing query": (good.drop(queries[3]), f"labels has no entry for query '{queries[3]}'"),
        "no ids": (good.reset_index(drop=True), f"no entry for query '{queries[0]}'; index it by"),
        "query twice": (pd.concat([good, good[:1]]), f"'{queries[0]}' more than once"),
        "lists": (good.map(lambda _: ["x"]), f"query '{queries[0]}': found ..x.."),
    }


@pytest.mark.parametrize("case", bad_labels(pd.Index(list("abcd"))))
def test_labels_that_label_nothing_are_refused(data, case):
    labels, message = bad_labels(data.comparisons.queries)[case]
    with pytest.raises(InputError, match=message):
        LabelBradleyTerry().fit(data.comparisons, labels)
    model = LabelBradleyTerry().fit(
        data.comparisons, pd.Series("x", index=data.comparisons.queries)
    )
    with pytest.raises(InputError, match=message):
        model.predict_win_probability(data.comparisons, labels)


def test_labels_that_are_all_missing_are_refused_in_training_alone(data):
    none = pd.Series([None] * 90, index=data.comparisons.queries, dtype=object)
    with pytest.raises(InputError, match="All labels of the training queries are missing"):
        LabelBradleyTerry().fit(data.comparisons, none)
