"""`Comparisons`: what goes in comes out, draws are fair, and bad input is refused."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import Counter

import hypothesis.extra.numpy as hnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import bayes_ecc.comparisons
from bayes_ecc import Comparisons, InputError

NAN, INF = float("nan"), float("inf")


def arrays(**changes):
    given_ = {
        "query": [0, 0, 1],
        "first": [0, 1, 2],
        "second": [1, 2, 0],
        "outcome": [1.0, 0.5, 0.0],
        "queries": ["q1", "q2"],
        "models": ["a", "b", "c"],
    }
    return Comparisons.from_arrays(**{**given_, **changes})


def votes(**changes):
    columns = {
        "query_id": ["q1", "q1", "q2"],
        "model_a": ["a", "b", "c"],
        "model_b": ["b", "c", "a"],
        "winner": ["model_b", "tie", "model_a"],
    }
    columns.update(changes)
    return pd.DataFrame({name: values for name, values in columns.items() if values is not None})


def score_table(**changes):
    columns = {"a": [1.0, 0.0, 0.5], "b": [0.0, 1.0, 0.5], "c": [0.0, NAN, 1.0]}
    columns.update(changes)
    return pd.DataFrame(columns, index=["q1", "q2", "q3"])


def rows_of(data):
    """Comparisons as plain tuples of identifiers, in their order."""
    return list(data.to_frame().itertuples(index=False, name=None))


# ---------------------------------------------------------------- refusals, as data

BAD_ARRAYS = [
    # what is wrong, what differs from a good call, what the message must name
    ("query code too high", {"query": [0, 0, 2]}, ["query, row 2", "found 2", "0 and 1"]),
    ("negative code", {"first": [-1, 1, 2]}, ["first, row 0", "found -1"]),
    ("float codes", {"second": [1.0, 2.0, 0.0]}, ["second", "integer codes", "float64"]),
    ("names for codes", {"first": ["a", "b", "c"]}, ["first", "integer codes"]),
    ("bool codes", {"query": [False, False, True]}, ["query", "bool"]),
    ("two-dimensional codes", {"query": [[0], [0], [1]]}, ["query", "one-dimensional"]),
    ("ragged codes", {"query": [[0], [0, 1]]}, ["query", "ragged"]),
    ("a scalar", {"query": 0}, ["query", "0-dimensional"]),
    ("rows differ", {"outcome": [1.0, 0.0]}, ["query 3", "outcome 2"]),
    ("weights too many", {"weight": [1.0] * 4}, ["weight 4", "query 3"]),
    ("against itself", {"second": [1, 1, 0]}, ["row 1", "'b' against itself"]),
    ("NaN outcome", {"outcome": [1.0, NAN, 0.0]}, ["outcome, row 1", "nan", "0.5 for a tie"]),
    ("None outcome", {"outcome": [1.0, None, 0.0]}, ["outcome, row 1", "nan"]),
    ("outcome above 1", {"outcome": [1.0, 0.0, 2.0]}, ["outcome, row 2", "2.0"]),
    ("outcome below 0", {"outcome": [-0.1, 0.0, 1.0]}, ["outcome, row 0", "-0.1"]),
    ("outcome as text", {"outcome": ["1", "0", "1"]}, ["outcome", "numbers"]),
    ("outcome text in objects", {"outcome": [1, "b", 0]}, ["outcome", "numbers"]),
    ("complex outcome", {"outcome": [1j, 0, 1]}, ["outcome", "numbers", "complex"]),
    ("ragged outcome", {"outcome": [[1], [1, 0]]}, ["outcome", "ragged"]),
    ("outcome of lists", {"outcome": [[1], [0], [1]]}, ["outcome", "2-dimensional"]),
    ("dates as weights", {"weight": np.array(["2020"] * 3, "M8[Y]")}, ["weight", "datetime64"]),
    ("zero weight", {"weight": [1, 0, 1]}, ["weight, row 1", "0.0", "positive"]),
    ("negative weights", {"weight": [1, -1, -2]}, ["row 1 (and 1 more row)", "-1.0"]),
    ("NaN weight", {"weight": [1, 1, NAN]}, ["weight, row 2", "nan"]),
    ("infinite weight", {"weight": [INF, 1, 1]}, ["weight, row 0", "inf"]),
    ("duplicate query", {"queries": ["q1", "q1"]}, ["queries", "'q1' more than once"]),
    ("duplicate model", {"models": ["a", "b", "a"]}, ["models", "'a' more than once"]),
    ("one model only", {"models": ["a"]}, ["1 name", "at least two"]),
    ("no model", {"models": []}, ["models is empty"]),
    ("no query", {"queries": []}, ["queries is empty"]),
    ("missing query id", {"queries": ["q1", None]}, ["queries", "missing"]),
    ("float query ids", {"queries": [0.5, 1.5]}, ["queries", "float64"]),
    ("mixed query ids", {"queries": [1, "1"]}, ["queries", "all strings or all integers"]),
    ("bool query ids", {"queries": [True, False]}, ["queries", "bool"]),
    ("tuples as query ids", {"queries": [("q", 1), ("q", 2)]}, ["queries", "tuples"]),
    ("lists as query ids", {"queries": [["q1"], ["q2"]]}, ["queries", "object"]),
    ("queries as one string", {"queries": "q1"}, ["queries", "list", "'q1'"]),
    ("queries as None", {"queries": None}, ["queries", "None"]),
    ("models as numbers", {"models": [1, 2, 3]}, ["models", "1 of type int", "strings"]),
    ("models as lists", {"models": [["a"], ["b"], ["c"]]}, ["models", "type list"]),
    ("blank model name", {"models": ["a", " ", "c"]}, ["models", "blank", "' '"]),
]

BAD_FRAMES = [
    ("not a frame", [1, 2], ["frame", "DataFrame", "list"]),
    ("no query_id", votes(query_id=None), ["lacks", "query_id", "model_a"]),
    ("no winner", votes(winner=None), ["lacks", "winner or outcome"]),
    ("winner and outcome", votes(outcome=[1, 0, 1]), ["both winner and outcome"]),
    (
        "unknown winner",
        votes(winner=["model_a", "both", "tie"]),
        ["winner, row 1", "'both'", "tie"],
    ),
    ("winner in capitals", votes(winner=["model_a", "tie", "Tie"]), ["row 2", "'Tie'"]),
    ("winner by name", votes(winner=["b", "tie", "c"]), ["row 0 (and 1 more row)", "'b'"]),
    ("missing winner", votes(winner=["tie", None, "tie"]), ["winner, row 1"]),
    ("winner as number", votes(winner=[1, 0, 1]), ["winner, row 0", "1"]),
    ("winner as list", votes(winner=[["a"], ["b"], ["c"]]), ["winner, row 0", "['a']"]),
    ("missing id", votes(query_id=["q1", None, "q2"]), ["query_id, row 1", "missing"]),
    ("missing model", votes(model_b=["b", "c", None]), ["model_b, row 2", "missing"]),
    ("against itself", votes(model_b=["b", "b", "a"]), ["row 1", "'b' against itself"]),
    ("float ids", votes(query_id=[0.5, 0.5, 1.5]), ["queries", "float64"]),
    ("mixed ids", votes(query_id=[1, "1", "q"]), ["all strings or all integers"]),
    ("lists as ids", votes(query_id=[["a"], ["b"], ["c"]]), ["query_id, row 0", "['a']"]),
    ("model as number", votes(model_a=[1, 2, 3]), ["models", "of type int"]),
    ("model as list", votes(model_a=[["a"], "b", "c"]), ["models", "['a']"]),
    (
        "outcome text",
        votes(winner=None, outcome=["x", "1", "0"]),
        ["outcome, row 0", "number"],
    ),
    ("outcome in objects", votes(winner=None, outcome=[1, "x", 0]), ["outcome, row 1", "'x'"]),
    (
        "missing outcome, nullable",
        votes(winner=None, outcome=pd.array([1, None, 0], dtype="Int64")),
        ["outcome, row 1", "nan"],
    ),
    (
        "missing weight, nullable",
        votes(weight=pd.array([1, 1, None], dtype="Int64")),
        ["weight, row 2", "nan"],
    ),
    ("zero weight", votes(weight=[1, 0, 1]), ["weight, row 1", "0.0"]),
    ("empty", votes().iloc[:0], ["empty"]),
    (
        "column twice",
        pd.concat([votes(), votes()[["query_id"]]], axis=1),
        ["query_id more than once"],
    ),
]

BAD_SCORES = [
    ("not a frame", np.eye(3), {}, ["scores", "DataFrame", "ndarray"]),
    ("one model only", score_table()[["a"]], {}, ["one model", "two"]),
    ("empty", score_table().iloc[:0], {}, ["queries is empty"]),
    ("text", score_table(b=["1", "x", "0"]), {}, ["'b'", "not numbers"]),
    ("complex", score_table(b=[1j, 0, 1]), {}, ["'b'", "complex128"]),
    ("durations", score_table(b=pd.to_timedelta([1, 2, 3])), {}, ["'b'", "timedelta"]),
    ("infinite", score_table(b=[0.0, INF, 1.0]), {}, ["'b'", "'q2'", "infinite"]),
    ("duplicate id", score_table().set_axis(["q1", "q1", "q2"]), {}, ["'q1' more than once"]),
    ("two levels of ids", pd.concat({"x": score_table()}), {}, ["queries", "tuples"]),
    ("duplicate model", score_table().set_axis(["a", "b", "a"], axis=1), {}, ["'a' more than"]),
    ("models as numbers", score_table().set_axis([1, 2, 3], axis=1), {}, ["1 of type int"]),
    ("no decisive comparison", score_table() * 0, {}, ["No query", "two different", "keep ties"]),
    ("nothing scored", score_table() * NAN, {"ties": "keep"}, ["No query", "two scores"]),
    ("per_query 0", score_table(), {"per_query": 0}, ["per_query=0", "1 or more"]),
    ("per_query text", score_table(), {"per_query": "7"}, ["per_query='7'", "whole number"]),
    ("per_query fraction", score_table(), {"per_query": 2.5}, ["per_query=2.5"]),
    ("min_per_query 0", score_table(), {"min_per_query": 0}, ["min_per_query=0"]),
    ("min_per_query too high", score_table(), {"min_per_query": 4}, ["No query", "4 or more"]),
    ("min_per_query text", score_table(), {"min_per_query": "2"}, ["min_per_query='2'"]),
    ("unknown ties", score_table(), {"ties": "half"}, ["ties='half'", "'drop' and 'keep'"]),
    ("text seed", score_table(), {"rng": "x"}, ["rng='x'"]),
    ("negative seed", score_table(), {"rng": -1}, ["rng=-1"]),
]

BAD_CALLS = [
    ("take", [[0, 0]], ["twice"]),
    ("take", [[2]], ["positions, row 0", "found 2"]),
    ("take", [[-1]], ["found -1"]),
    ("take", [["q1"]], ["integer codes"]),
    ("take", [[1.0]], ["float64"]),
    ("take", [[True]], ["shape (1,)", "2 queries"]),
    ("take", [[]], ["queries is empty"]),
    ("select", [["q3"]], ["'q3'"]),
    ("select", [["q1", "q1"]], ["twice"]),
    ("select", ["q1"], ["ids='q1'", "list"]),
    ("select", [5], ["ids=5"]),
    ("select", [[["q1"]]], ["flat list"]),
    ("split", [0], ["test_size=0"]),
    ("split", [1.0], ["test_size=1.0"]),
    ("split", [NAN], ["test_size=nan"]),
    ("split", ["0.2"], ["test_size='0.2'"]),
    ("split", [0.1], ["one side empty"]),
    ("take_probes", [-1], ["n=-1"]),
    ("take_probes", [1.5], ["n=1.5"]),
    ("take_probes", ["1"], ["n='1'"]),
    ("take_probes", [True], ["n=True"]),
    ("rows", [[1, 0, 1]], ["mask", "int64", "3 comparisons"]),
    ("rows", [[True]], ["shape (1,)"]),
    ("drop_models", [["d"]], ["'d'", "a, b, c"]),
    ("drop_models", ["a"], ["names='a'", "list"]),
    ("drop_models", [5], ["names=5"]),
    ("drop_models", [["a", "b"]], ["1 name", "two"]),
    ("with_models", [["a", "b"]], ["'c'", "drop_models"]),
    ("with_models", [["a", "b", "c", "a"]], ["'a' more than once"]),
    ("with_models", ["abc"], ["models", "list"]),
]


def check_message(error, fragments):
    message = str(error.value)
    assert [part for part in fragments if part not in message] == [], message
    assert message.endswith(".")


def by_name(cases):
    return pytest.mark.parametrize(
        tuple("abcd"[1 : len(cases[0])]), [case[1:] for case in cases], ids=[c[0] for c in cases]
    )


@by_name(BAD_ARRAYS)
def test_bad_arrays_are_refused(b, c):
    with pytest.raises(InputError) as error:
        arrays(**b)
    check_message(error, c)


@by_name(BAD_FRAMES)
def test_bad_frames_are_refused(b, c):
    with pytest.raises(InputError) as error:
        Comparisons.from_frame(b)
    check_message(error, c)


@by_name(BAD_SCORES)
def test_bad_scores_are_refused(b, c, d):
    with pytest.raises(InputError) as error:
        Comparisons.from_scores(b, **{"rng": 0, **c})
    check_message(error, d)


@pytest.mark.parametrize(("method", "args", "fragments"), BAD_CALLS)
def test_bad_calls_are_refused(method, args, fragments):
    with pytest.raises(InputError) as error:
        getattr(arrays(), method)(*args)
    check_message(error, fragments)


@pytest.mark.parametrize(
    ("fixed", "fragments"),
    [
        ({"queries": ["q1"]}, ["query_id, row 2", "'q2'", "1 queries"]),
        ({"queries": ["q1", "q1"]}, ["'q1' more than once"]),
        ({"models": ["a", "b"]}, ["model_a, row 2", "'c'", "2 models"]),
        ({"models": ["b", "c"]}, ["model_a, row 0", "'a'"]),
    ],
)
def test_rows_outside_fixed_identifiers_are_refused(fixed, fragments):
    with pytest.raises(InputError) as error:
        Comparisons.from_frame(votes(), **fixed)
    check_message(error, fragments)


# ---------------------------------------------------------------- in and out


@st.composite
def some_comparisons(draw):
    n_queries, n_models = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    n = draw(st.integers(0, 25))
    outcome = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
    first = draw(hnp.arrays(int, n, elements=st.integers(0, n_models - 1)))
    gap = draw(hnp.arrays(int, n, elements=st.integers(1, n_models - 1)))
    return Comparisons.from_arrays(
        draw(hnp.arrays(int, n, elements=st.integers(0, n_queries - 1))),
        first,
        (first + gap) % n_models,
        draw(st.lists(outcome, min_size=n, max_size=n)),
        weight=draw(st.lists(st.floats(0.01, 100), min_size=n, max_size=n)),
        queries=[f"q{i}" for i in range(n_queries)],
        models=[f"m{i}" for i in range(n_models)],
        ordered=draw(st.booleans()),
    )


def same(left, right):
    names = ("query", "first", "second", "outcome", "weight")
    return (
        all(np.array_equal(getattr(left, name), getattr(right, name)) for name in names)
        and left.queries.equals(right.queries)
        and left.models.equals(right.models)
        and left.ordered == right.ordered
        and dict(left.dropped) == dict(right.dropped)
    )


def test_a_table_becomes_codes_in_the_order_given():
    data = Comparisons.from_frame(votes(weight=[1, 2, 3]))
    assert data.queries.tolist() == ["q1", "q2"]
    assert data.models.tolist() == ["a", "b", "c"]
    assert data.query.tolist() == [0, 0, 1]
    assert data.first.tolist() == [0, 1, 2]
    assert data.second.tolist() == [1, 2, 0]
    assert data.outcome.tolist() == [1.0, 0.5, 0.0]
    assert data.weight.tolist() == [1.0, 2.0, 3.0]
    assert data.query_weight.tolist() == [3.0, 3.0]
    assert data.ordered
    assert (len(data), data.n_queries, data.n_models) == (3, 2, 3)


def test_whole_numbers_are_identifiers_too():
    data = Comparisons.from_frame(votes(query_id=[7, 7, 3]))
    assert data.queries.tolist() == [7, 3]
    assert data.select([3]).query.tolist() == [0]


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_the_type_of_text_columns_changes_nothing(dtype):
    table = votes().astype(dict.fromkeys(("query_id", "model_a", "model_b", "winner"), dtype))
    assert same(Comparisons.from_frame(table), Comparisons.from_frame(votes()))


def test_bools_and_nullable_numbers_are_outcomes():
    expected = [1.0, 0.0, 1.0]
    for outcome in ([True, False, True], pd.array([1, 0, 1], dtype="Int64")):
        table = votes(winner=None, outcome=outcome)
        assert Comparisons.from_frame(table).outcome.tolist() == expected


def test_fixed_identifiers_fix_codes_and_keep_unused_ones():
    data = Comparisons.from_frame(votes(), queries=["q0", "q2", "q1"], models=["c", "z", "a", "b"])
    assert data.query.tolist() == [2, 2, 1]
    assert data.first.tolist() == [2, 3, 0]
    assert data.query_weight.tolist() == [0.0, 1.0, 2.0]


@given(some_comparisons())
def test_to_frame_and_back(data):
    again = Comparisons.from_frame(
        data.to_frame(), queries=data.queries, models=data.models, ordered=data.ordered
    )
    assert same(again, data)


@given(some_comparisons())
def test_pickling_gives_the_same_locked_comparisons(data):
    for again in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert same(again, data)
        assert not again.outcome.flags.writeable


@given(some_comparisons(), st.booleans())
def test_outcome_counts_are_sums_over_rows(data, mean):
    expected = Counter()
    for query, first, second, y, weight in zip(
        data.query, data.first, data.second, data.outcome, data.weight, strict=True
    ):
        share = weight / (data.weight[data.query == query].sum() if mean else 1)
        expected[query, second, first] += share * y
        expected[query, first, second] += share * (1 - y)
    counts = data.outcome_counts(per_query_mean=mean)
    assert counts.matrix.shape == (data.n_queries, len(counts.winner))
    pairs = list(zip(counts.winner, counts.loser, strict=True))
    assert pairs == sorted(set(pairs))
    dense = counts.matrix.toarray()
    found = {
        (query, *pair): dense[query, column]
        for query in range(data.n_queries)
        for column, pair in enumerate(pairs)
    }
    for key in expected.keys() | found.keys():
        assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), rel=1e-9, abs=1e-12)
    if mean:
        has = np.isin(np.arange(data.n_queries), data.query)
        assert dense.sum(axis=1) == pytest.approx(has.astype(float))


# ---------------------------------------------------------------- subsets


@given(some_comparisons(), st.data())
def test_take_and_select_keep_all_rows_of_the_queries_in_order(data, draw):
    order = draw.draw(st.permutations(range(data.n_queries)))
    chosen = order[: draw.draw(st.integers(1, data.n_queries))]
    taken = data.take(chosen)
    names = [f"q{i}" for i in chosen]
    assert taken.queries.tolist() == names
    assert rows_of(taken) == [row for row in rows_of(data) if row[0] in names]
    assert same(data.select(names), taken)
    mask = np.isin(np.arange(data.n_queries), chosen)
    assert same(data.take(mask), data.take(sorted(chosen)))
    assert same(data.take(range(data.n_queries)), data)


@given(some_comparisons(), st.floats(0.01, 0.99), st.integers(0, 5))
def test_split_parts_queries_with_their_comparisons(data, share, seed):
    n_test = round(share * data.n_queries)
    if not 0 < n_test < data.n_queries:
        with pytest.raises(InputError, match="one side empty"):
            data.split(share, rng=seed)
        return
    train, test = data.split(share, rng=seed)
    assert test.n_queries == n_test
    assert sorted([*train.queries, *test.queries]) == data.queries.tolist()
    for part in (train, test):
        assert part.queries.is_monotonic_increasing
        assert rows_of(part) == [row for row in rows_of(data) if row[0] in part.queries]
    assert same(data.split(share, rng=seed)[1], test)


def test_every_query_is_as_likely_to_be_tested():
    data = arrays(queries=[f"q{i}" for i in range(10)])
    rng = np.random.default_rng(0)
    times = Counter(name for _ in range(2000) for name in data.split(0.3, rng=rng)[1].queries)
    assert sum(times.values()) == 6000
    assert stats.chisquare([times[f"q{i}"] for i in range(10)]).pvalue > 0.001


@given(some_comparisons(), st.integers(0, 4), st.one_of(st.none(), st.integers(0, 3)))
def test_probes_and_rest_part_the_comparisons_of_each_query(data, n, seed):
    probes, rest = data.take_probes(n, rng=seed)
    for part in (probes, rest):
        assert part.queries.equals(data.queries)
        assert part.models.equals(data.models)
        assert part.ordered == data.ordered
    for name in data.queries:
        mine = [row for row in rows_of(data) if row[0] == name]
        taken = [row for row in rows_of(probes) if row[0] == name]
        left = [row for row in rows_of(rest) if row[0] == name]
        assert len(taken) == min(n, len(mine))
        assert Counter(taken + left) == Counter(mine)
        if seed is None:
            assert taken == mine[:n]
            assert left == mine[n:]


def test_random_probes_are_any_comparison_alike():
    data = Comparisons.from_arrays(
        np.repeat(np.arange(500), 4),
        np.zeros(2000, dtype=int),
        np.tile([1, 2, 3, 4], 500),
        np.ones(2000),
        queries=range(500),
        models=list("abcde"),
    )
    rng = np.random.default_rng(1)
    seconds = np.concatenate([data.take_probes(1, rng=rng)[0].second for _ in range(10)])
    assert stats.chisquare(np.bincount(seconds, minlength=5)[1:]).pvalue > 0.001


@given(some_comparisons(), st.data())
def test_dropped_models_take_their_comparisons_along(data, draw):
    gone = draw.draw(st.sets(st.sampled_from(data.models.tolist()), max_size=data.n_models - 2))
    kept = data.drop_models(sorted(gone))
    assert kept.models.tolist() == [name for name in data.models if name not in gone]
    assert rows_of(kept) == [row for row in rows_of(data) if not gone & {row[1], row[2]}]
    assert kept.dropped["of_dropped_models"] == len(data) - len(kept)
    assert kept.queries.equals(data.queries)


@given(some_comparisons(), st.data())
def test_with_models_recodes_and_changes_no_comparison(data, draw):
    names = draw.draw(st.permutations([*data.models, "new"]))
    again = data.with_models(names)
    assert again.models.tolist() == names
    assert rows_of(again) == rows_of(data)


def test_rows_keeps_queries_and_counts_of_what_was_dropped():
    data = Comparisons.from_scores(score_table(), min_per_query=1, rng=0)
    assert data.dropped["missing_pairs"] == 2
    kept = data.rows(data.outcome == 1)
    assert kept.queries.equals(data.queries)
    assert kept.dropped == data.dropped
    assert not kept.ordered


# ---------------------------------------------------------------- drawing from scores


@st.composite
def score_tables(draw):
    shape = draw(st.tuples(st.integers(1, 7), st.integers(2, 5)))
    values = draw(hnp.arrays(float, shape, elements=st.sampled_from([0.0, 0.5, 1.0, NAN])))
    return pd.DataFrame(
        values,
        index=[f"q{i}" for i in range(shape[0])],
        columns=[f"m{i}" for i in range(shape[1])],
    )


@given(
    score_tables(),
    st.one_of(st.none(), st.integers(1, 12)),
    st.sampled_from(["drop", "keep"]),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_drawn_pairs_are_allowed_ones_and_the_counts_add_up(table, n, ties, least, seed):
    allowed, missing, tied = {}, 0, 0
    for name, row in table.iterrows():
        allowed[name] = {}
        for one, two in itertools.combinations(table.columns, 2):
            if np.isnan(row[one]) or np.isnan(row[two]):
                missing += 1
            elif row[one] == row[two] and ties == "drop":
                tied += 1
            else:
                allowed[name][frozenset([one, two])] = row
    kept = [name for name, pairs in allowed.items() if len(pairs) >= least]
    if not kept:
        with pytest.raises(InputError, match="No query"):
            Comparisons.from_scores(table, per_query=n, ties=ties, min_per_query=least, rng=seed)
        return
    data = Comparisons.from_scores(table, per_query=n, ties=ties, min_per_query=least, rng=seed)
    assert data.queries.tolist() == kept
    assert data.models.tolist() == table.columns.tolist()
    assert not data.ordered
    drawn = data.to_frame()
    for name in kept:
        mine = drawn[drawn["query_id"] == name]
        pairs = [frozenset(pair) for pair in zip(mine["model_a"], mine["model_b"], strict=True)]
        assert len(set(pairs)) == len(pairs) == min(n or 99, len(allowed[name]))
        assert set(pairs) <= set(allowed[name])
        for row in mine.itertuples():
            difference = table.loc[name, row.model_b] - table.loc[name, row.model_a]
            assert row.outcome == (np.sign(difference) + 1) / 2
    lost = [pairs for name, pairs in allowed.items() if name not in kept]
    assert dict(data.dropped) == {
        "missing_pairs": missing,
        "tied_pairs": tied,
        "queries": len(lost),
        "pairs_of_dropped_queries": sum(map(len, lost)),
    }


def test_pairs_are_drawn_uniformly_in_random_order_and_orientation():
    n = 9000
    table = pd.DataFrame([[0.0, 0.0, 1.0, NAN, 2.0]] * n, columns=list("abcde"))
    allowed = [("a", "c"), ("a", "e"), ("b", "c"), ("b", "e"), ("c", "e")]
    drawn = Comparisons.from_scores(table, per_query=2, rng=11).to_frame()
    sides = drawn[["model_a", "model_b"]].to_numpy()
    pairs = [tuple(sorted(side)) for side in sides]
    ordered_pairs = Counter(zip(pairs[::2], pairs[1::2], strict=True))
    assert set(ordered_pairs) == set(itertools.permutations(allowed, 2))
    assert stats.chisquare(list(ordered_pairs.values())).pvalue > 0.001
    swapped = int((sides[:, 0] > sides[:, 1]).sum())
    assert stats.binomtest(swapped, 2 * n, 0.5).pvalue > 0.001
    by_outcome = drawn["outcome"].mean()  # the higher score is as often first as second
    assert by_outcome == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("per_query", [3, None])
def test_every_allowed_pair_is_as_likely_to_come_at_each_place(per_query):
    table = pd.DataFrame([[0.0, 0.0, 1.0, NAN, 2.0]] * 4000, columns=list("abcde"))
    drawn = Comparisons.from_scores(table, per_query=per_query, rng=12)
    place = np.arange(len(drawn)) % (per_query or 5)
    low, high = np.sort([drawn.first, drawn.second], axis=0)
    for n in range(per_query or 5):
        pairs = Counter(zip(low[place == n], high[place == n], strict=True))
        assert len(pairs) == 5
        assert stats.chisquare(list(pairs.values())).pvalue > 0.001


def test_a_draw_depends_on_the_seed_alone(monkeypatch):
    values = np.random.default_rng(0).integers(0, 3, size=(60, 5)).astype(float)
    table = pd.DataFrame(values, columns=list("abcde"))
    one = Comparisons.from_scores(table, rng=4)
    assert same(one, Comparisons.from_scores(table, rng=np.random.default_rng(4)))
    assert not same(one, Comparisons.from_scores(table, rng=5))
    monkeypatch.setattr(bayes_ecc.comparisons, "_SCORE_CELLS", 30)  # three queries at a time
    assert same(one, Comparisons.from_scores(table, rng=4))


def test_identifiers_may_be_a_column_and_scores_of_any_numeric_type():
    table = score_table(a=pd.array([1, 0, None], dtype="Int64"), b=[False, True, True])
    by_index = Comparisons.from_scores(table, min_per_query=1, rng=0)
    by_column = Comparisons.from_scores(
        table.rename_axis("query_id").reset_index(), min_per_query=1, rng=0
    )
    assert same(by_index, by_column)
    assert by_index.dropped["missing_pairs"] == 4


# ---------------------------------------------------------------- nothing is written to


def test_the_callers_arrays_are_neither_changed_nor_locked_nor_shared():
    codes = {"query": np.array([0, 1]), "first": np.array([0, 1]), "second": np.array([1, 0])}
    values = {"outcome": np.array([1.0, 0.0]), "weight": np.array([1.0, 2.0])}
    data = Comparisons.from_arrays(**codes, **values, queries=["q1", "q2"], models=["a", "b"])
    for name, array in {**codes, **values}.items():
        assert array.flags.writeable
        kept = getattr(data, name).copy()
        array[:] = array[::-1].copy()
        assert np.array_equal(getattr(data, name), kept)


def test_a_read_only_view_of_the_callers_memory_is_copied():
    base = np.array([1.0, 0.0, 1.0])
    view = base.view()
    view.flags.writeable = False
    data = arrays(outcome=view)
    base[:] = 0.5
    assert data.outcome.tolist() == [1.0, 0.0, 1.0]


def test_changing_the_callers_table_changes_nothing():
    table = votes(winner=None, outcome=[1.0, 0.5, 0.0], weight=[1.0, 2.0, 3.0])
    before = table.copy()
    data = Comparisons.from_frame(table)
    pd.testing.assert_frame_equal(table, before)
    table.loc[0, ["outcome", "weight"]] = [0.25, 9.0]
    assert data.outcome.tolist() == [1.0, 0.5, 0.0]
    assert data.weight.tolist() == [1.0, 2.0, 3.0]
    scores = score_table()
    Comparisons.from_scores(scores, rng=0, min_per_query=1)
    pd.testing.assert_frame_equal(scores, score_table())


def test_comparisons_are_frozen():
    data = arrays()
    for name in ("query", "first", "second", "outcome", "weight"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 0
    with pytest.raises(AttributeError):
        data.ordered = False
    with pytest.raises(TypeError):
        data.dropped["queries"] = 1
    exported = data.to_frame()
    exported["outcome"] = 0.0
    assert data.outcome.tolist() == [1.0, 0.5, 0.0]


# ---------------------------------------------------------------- real data


@pytest.mark.parametrize(
    ("name", "left_out"), [("routerdc", []), ("mmlu_pro", ["DeepSeek-Coder-V2"])]
)
def test_the_frozen_draws_follow_from_the_real_scores(name, left_out, shared_data, shared_protocol):
    scores = pd.read_parquet(shared_data / name / "scores.parquet").set_index("query_id")
    scores = scores.drop(columns=left_out)
    drawn = pd.read_parquet(shared_protocol / name / "seed_0.parquet")
    frozen = Comparisons.from_frame(drawn, queries=scores.index, models=scores.columns)
    values = scores.to_numpy(dtype=float)
    difference = values[frozen.query, frozen.second] - values[frozen.query, frozen.first]
    assert np.array_equal(frozen.outcome, (np.sign(difference) + 1) / 2)
    ours = Comparisons.from_scores(scores, rng=0)
    assert np.array_equal(np.unique(frozen.query), scores.index.get_indexer(ours.queries))
    counts = np.bincount(frozen.query, minlength=len(scores))[np.unique(frozen.query)]
    assert np.array_equal(counts, np.bincount(ours.query))
