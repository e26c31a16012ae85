"""Scores of the wrong rows: found where they are, never where they are not."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from bayes_ecc.auditing import Audit, audit
from bayes_ecc.auditing.alignment import align, nobody_agrees, pair_correlations, within
from bayes_ecc.auditing.scores import check_scores
from bayes_ecc.auditing.source import make_source
from bayes_ecc.bundle import Bundle

BUNDLES = ["routerdc", "mmlu_pro"]
LABEL = {"routerdc": "task", "mmlu_pro": "category"}


def simulated_scores(
    n_queries: int, strengths: NDArray, rng: np.random.Generator, loading: float | NDArray = 1.5
) -> NDArray:
    """0/1 scores with P = sigma(strength - loading x difficulty)."""
    difficulty = rng.standard_normal(n_queries)
    logit = strengths - loading * difficulty[:, None]
    return (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)


def with_scores(bundle: Bundle, values: NDArray, models: list[str] | None = None) -> Bundle:
    table = pd.DataFrame(values, columns=models or list(bundle.scores.columns[1:]))
    table.insert(0, "query_id", bundle.query_ids)
    return Bundle(bundle.name, bundle.queries, scores=table, embeddings=bundle.embeddings)


def shuffle(
    values: NDArray,
    columns: NDArray,
    how: str,
    rng: np.random.Generator,
    labels: NDArray | None = None,
) -> NDArray:
    """Put the rows of some columns into another order, missing scores with them."""
    values = values.copy()
    if how == "common":
        order = rng.permutation(len(values))
        values[:, columns] = values[order][:, columns]
        return values
    for column in columns:
        order = np.arange(len(values))
        if labels is None:
            order = rng.permutation(order)
        else:
            for label in np.unique(labels):
                there = labels == label
                order[there] = rng.permutation(order[there])
        values[:, column] = values[order, column]
    return values


def accused(result: Audit) -> set[str]:
    return {name for found in result.named("misaligned_scores") for name in found.affected}


# -------------------------------------------------------------------- the core


def test_pair_correlations_are_those_of_pandas() -> None:
    rng = np.random.default_rng(0)
    scores = simulated_scores(200, np.array([-1.0, 0.0, 0.5, 1.0]), rng)
    scores[rng.random(scores.shape) < 0.2] = np.nan
    scores[:, 2] = 1.0  # without variation
    correlation, rows = pair_correlations(scores)
    expected = pd.DataFrame(scores).corr(min_periods=3).fillna(0).to_numpy()
    np.testing.assert_allclose(correlation, expected, atol=1e-12)
    there = ~np.isnan(scores)
    assert rows[0, 1] == (there[:, 0] & there[:, 1]).sum()


def test_within_takes_label_means_out() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((60, 3))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    codes = rng.integers(-1, 4, 60)
    frame = pd.DataFrame(scores)
    expected = frame - frame.groupby(codes).transform("mean")
    np.testing.assert_allclose(within(scores, codes), expected, atol=1e-12)


def test_permuted_rows_correlate_as_the_rule_assumes() -> None:
    rng = np.random.default_rng(1)
    scores = simulated_scores(100, np.array([-2.0, 0.3]), rng)
    found = [
        pair_correlations(np.column_stack([scores[:, 0], rng.permutation(scores[:, 1])]))[0][0, 1]
        for _ in range(4000)
    ]
    assert abs(np.mean(found)) < 4 / np.sqrt(99 * 4000)
    assert np.var(found) == pytest.approx(1 / 99, rel=0.1)


def test_groups_in_several_orders_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    scores = simulated_scores(3000, rng.normal(size=9), rng)
    moved = shuffle(scores, np.array([1, 4, 6]), "common", rng)
    moved = shuffle(moved, np.array([0]), "separate", rng)
    state = align(moved)
    assert state.reference.tolist() == [2, 3, 5, 7, 8]
    assert [group.members.tolist() for group in state.groups] == [[1, 4, 6], [0]]
    assert all(group.unrelated for group in state.groups)
    clean = align(scores)
    assert clean.reference.tolist() == list(range(9))
    assert clean.groups == ()


def test_small_tables_accuse_nobody_even_where_rows_are_permuted() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        scores = simulated_scores(40, rng.normal(size=6), rng)
        state = align(shuffle(scores, np.array([0, 1]), "separate", rng))
        assert not any(group.unrelated for group in state.groups)


def test_a_model_that_agrees_weakly_is_not_accused() -> None:
    # a loading of 0.6 against 1.5 gives about half of the others' agreement
    rng = np.random.default_rng(4)
    loading = np.array([0.6, 1.5, 1.5, 1.5, 1.5])
    for n in (200, 1000, 5000):
        for _ in range(30):
            scores = simulated_scores(n, np.zeros(5), rng, loading)
            assert not any(group.unrelated for group in align(scores).groups)


def test_a_specialist_that_disagrees_is_not_accused() -> None:
    # good where half of the others are bad: correlated with both camps, on average with nobody
    rng = np.random.default_rng(5)
    n = 4000
    kind = rng.integers(2, size=n)
    rate = np.where(kind[:, None] == 0, [0.8, 0.8, 0.2, 0.2, 0.5], [0.2, 0.2, 0.8, 0.8, 0.5])
    rate[:, 4] = np.where(kind == 0, 0.6, 0.4)
    scores = (rng.random((n, 5)) < rate).astype(float)
    assert not any(group.unrelated for group in align(scores).groups)


# -------------------------------------------------------------------- what is reported


def test_a_guessing_model_is_a_warning_at_most(real: dict[str, Bundle]) -> None:
    bundle = real["mmlu_pro"]
    rng = np.random.default_rng(6)
    values = bundle.scores.iloc[:, 1:].to_numpy(float)
    guess = (rng.random((len(values), 1)) < 0.1).astype(float)
    models = [*bundle.scores.columns[1:], "dice"]
    result = audit(with_scores(bundle, np.hstack([values, guess]), models))
    (found,) = result.named("misaligned_scores")
    assert found.severity == "warning"
    assert found.affected == ("dice",)
    assert "guessing" in found.found
    assert result.ok


def test_groups_of_one_size_are_both_named() -> None:
    rng = np.random.default_rng(7)
    scores = simulated_scores(2000, np.zeros(6), rng)
    moved = shuffle(scores, np.array([3, 4, 5]), "common", rng)
    queries = pd.DataFrame({"query_id": range(2000)})
    table = pd.DataFrame(moved, columns=list("abcdef")).assign(query_id=range(2000))
    (found,) = audit(Bundle("even", queries, scores=table)).named("misaligned_scores")
    assert found.affected == tuple("abcdef")
    assert "one size" in found.found


def test_a_table_in_which_nobody_agrees_is_named() -> None:
    rng = np.random.default_rng(8)
    scores = simulated_scores(3000, np.zeros(5), rng)
    moved = shuffle(scores, np.arange(5), "separate", rng)
    assert nobody_agrees(moved)
    assert not nobody_agrees(scores)
    assert not nobody_agrees(moved[:100])  # too little to know
    queries = pd.DataFrame({"query_id": range(3000)})
    table = pd.DataFrame(moved, columns=list("abcde")).assign(query_id=range(3000))
    (found,) = audit(Bundle("noise", queries, scores=table)).named("misaligned_scores")
    assert found.affected == tuple("abcde")


# -------------------------------------------------------------------- real tables


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("how", ["separate", "common", "within labels"])
def test_a_third_of_the_models_permuted_is_found_and_named(
    real: dict[str, Bundle], name: str, how: str
) -> None:
    bundle = real[name]
    values = bundle.scores.iloc[:, 1:].to_numpy(float)
    labels = bundle.queries[LABEL[name]].to_numpy()
    for seed in range(10):
        rng = np.random.default_rng(seed)
        columns = rng.choice(values.shape[1], values.shape[1] // 3, replace=False)
        moved = shuffle(values, columns, how, rng, labels if how == "within labels" else None)
        source = make_source(with_scores(bundle, moved))
        found = check_scores(source)
        assert not isinstance(found, str)
        assert {model for each in found for model in each.affected} == {
            bundle.models[column] for column in columns
        }, f"seed {seed}"
        severities = {each.severity for each in found}
        weak = values.shape[1] == 9 and set(columns.tolist()) <= {0, 5, 6}
        assert "error" in severities or weak
        assert all(
            (each.figures["within"] is not None) == (how == "within labels") for each in found
        )


@pytest.mark.parametrize("name", BUNDLES)
def test_half_the_rows_permuted_is_not_misread(real: dict[str, Bundle], name: str) -> None:
    """A partly wrong order leaves agreement behind: the check is about whole tables."""
    bundle = real[name]
    values = bundle.scores.iloc[:, 1:].to_numpy(float)
    rng = np.random.default_rng(0)
    half = len(values) // 2
    values[:half] = shuffle(values[:half], np.array([0, 1]), "common", rng)
    assert check_scores(make_source(with_scores(bundle, values))) == []


def test_no_clean_subset_of_models_and_queries_is_accused(
    real: dict[str, Bundle], replications: Callable[[int, int], int]
) -> None:
    rng = np.random.default_rng(0)
    for repetition in range(replications(2000, 200)):
        name = BUNDLES[repetition % 2]
        bundle = real[name]
        n_models = int(rng.integers(3, len(bundle.models) + 1))
        n_queries = round(np.exp(rng.uniform(np.log(30), np.log(len(bundle.queries)))))
        rows = np.sort(rng.choice(len(bundle.queries), n_queries, replace=False))
        models = rng.choice(len(bundle.models), n_models, replace=False)
        part = Bundle(
            name,
            bundle.queries.iloc[rows],
            scores=bundle.scores.iloc[rows, [0, *(models + 1)]],
        )
        assert check_scores(make_source(part)) == [], f"{name}: {n_queries} x {n_models}"


@pytest.mark.parametrize("name", BUNDLES)
def test_clean_bundles_have_notes_alone(real: dict[str, Bundle], name: str) -> None:
    start = time.process_time()  # others may be using the machine
    result = audit(real[name])
    seconds = time.process_time() - start
    assert {found.severity for found in result.findings} == {"note"}
    assert result.named("repeated_texts")
    assert bool(result.named("missing_scores")) == (name == "mmlu_pro")
    assert seconds < 10
