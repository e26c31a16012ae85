"""Bundles: what a folder holds comes in exactly, or is refused by file, column and row."""

from __future__ import annotations

import copy
import io
import json
import pickle
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayes_ecc import (
    Bundle,
    Comparisons,
    DataWarning,
    InputError,
    load_bundle,
    save_bundle,
    simulate,
)

NAN, INF = float("nan"), float("inf")
TABLES = ("queries", "scores", "comparisons", "costs")

QUERIES = 'query_id,text,task\n007,What is 2+2?,maths\nq2,,law\n8,"a, ""b""\nc",law\n'
SCORES = "query_id,gpt,llama,qwen\n007,1,0,0.5\n8,0.1,,0\n"
VOTES = """\
query_id,model_a,model_b,winner
007,gpt,llama,model_a
007,qwen,gpt,tie
q2,gpt,qwen,model_b
"""
GOOD = {"queries.csv": QUERIES, "scores.csv": SCORES}
VOTED = {"queries.csv": QUERIES, "comparisons.csv": VOTES}
VECTORS = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -2.0]])


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8", newline="")
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, pd.DataFrame):
            content.to_parquet(path)
        else:
            np.save(path, content, allow_pickle=True)
    return folder


def array_bytes(array, save=np.save):
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def parquet_bytes(table):
    file = io.BytesIO()
    table.to_parquet(file)
    return file.getvalue()


def promising_header():
    """A .npy file whose header promises eight terabytes."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 1)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + bytes(64)


IDS = pd.DataFrame({"query_id": ["007", "q2", "8"]})

BAD_FOLDERS = [
    # what is wrong, the folder's files, what the message must name
    ("nothing there", {}, ["lacks queries.parquet or queries.csv", "holds nothing"]),
    ("no queries", {"scores.csv": SCORES}, ["lacks queries.parquet", "holds scores.csv"]),
    ("no scores", {"queries.csv": QUERIES}, ["lacks scores.parquet", "comparisons.csv"]),
    (
        "a name misspelt",
        {"queries.csv": QUERIES, "score.csv": SCORES},
        ["holds queries.csv, score"],
    ),
    ("table twice", {**GOOD, "scores.parquet": b""}, ["scores.parquet and scores.csv", "keep"]),
    ("empty file", {**GOOD, "queries.csv": ""}, ["queries.csv is empty"]),
    ("blank lines", {**GOOD, "queries.csv": "\n\n"}, ["queries.csv is empty"]),
    ("only a header", {**GOOD, "queries.csv": "query_id,task\n"}, ["queries.csv has no rows"]),
    ("no query_id", {**GOOD, "scores.csv": "id,a,b\n8,1,0\n"}, ["scores.csv lacks", "id, a, b"]),
    ("semicolons", {**GOOD, "scores.csv": SCORES.replace(",", ";")}, ["lacks", "by commas"]),
    ("short row", {**GOOD, "scores.csv": SCORES + "q2,1\n"}, ["scores.csv", "Row #4", "got 2"]),
    (
        "long row",
        {**GOOD, "scores.csv": SCORES + "q2,1,1,1,1\n"},
        ["scores.csv", "Row #4", "got 5"],
    ),
    ("open quote", {**GOOD, "queries.csv": QUERIES + '9,"x,law\n'}, ["queries.csv", "commas"]),
    ("latin-1", {**GOOD, "queries.csv": b"query_id,t\n8,\xe9\n"}, ["queries.csv", "UTF-8"]),
    (
        "latin-1 far down",
        {**GOOD, "queries.csv": b"query_id\n" + b"8\n" * 9000 + b"\xe9\n"},
        ["UTF"],
    ),
    ("UTF-16", {**GOOD, "queries.csv": QUERIES.encode("utf-16")}, ["queries.csv", "UTF-8"]),
    ("parquet in CSV", {**GOOD, "queries.csv": parquet_bytes(IDS)}, ["queries.csv", "UTF-8"]),
    ("CSV in parquet", {"scores.csv": SCORES, "queries.parquet": QUERIES}, ["queries.parquet"]),
    (
        "truncated parquet",
        {"scores.csv": SCORES, "queries.parquet": parquet_bytes(IDS)[:-40]},
        ["queries.parquet cannot be read", "complete parquet"],
    ),
    (
        "text in parquet that is not UTF-8",
        {"scores.csv": SCORES, "queries.parquet": parquet_bytes(IDS).replace(b"007", b"0\xff7")},
        ["queries.parquet cannot be read"],
    ),
    ("column twice", {**GOOD, "scores.csv": "query_id,a,a\n8,1,0\n"}, ["'a' more than once"]),
    ("column without name", {**GOOD, "scores.csv": "query_id,,a\n8,1,0\n"}, ["column named ''"]),
    (
        "index of another name",
        {"scores.csv": SCORES, "queries.parquet": IDS.set_index(pd.Index([1, 2, 3], name="n"))},
        ["queries.parquet has the index 'n'", "reset_index"],
    ),
    (
        "id twice",
        {**GOOD, "queries.csv": QUERIES + "007,,\n"},
        ["query_id, row 3", "'007'", "one row"],
    ),
    ("scored twice", {**GOOD, "scores.csv": SCORES + "8,1,1,1\n"}, ["scores.csv", "row 2", "'8'"]),
    ("id missing", {**GOOD, "queries.csv": QUERIES + ",x,law\n"}, ["query_id, row 3", "no value"]),
    (
        "unknown query",
        {**GOOD, "scores.csv": SCORES + "7,1,1,1\n"},
        ["row 2", "'7'", "queries.csv"],
    ),
    (
        "unknown and of another type",
        {
            "queries.parquet": pd.DataFrame({"query_id": [7, 8]}),
            "scores.csv": SCORES,
        },
        ["scores.csv", "row 0", "'007'", "whole numbers in queries", "7 as '7'"],
    ),
    (
        "float ids",
        {"queries.parquet": pd.DataFrame({"query_id": [1.0, NAN]}), "scores.csv": SCORES},
        ["queries.parquet, column query_id, row 0 and 1 more", "1.0", "whole numbers"],
    ),
    (
        "lists as ids",
        {"queries.parquet": pd.DataFrame({"query_id": [["a"], ["b"]]}), "scores.csv": SCORES},
        ["queries.parquet, column query_id, row 0"],
    ),
    (
        "text score",
        {**GOOD, "scores.csv": SCORES + "q2,1,x,0\n"},
        ["'llama', row 2 (query 'q2')", "'x'"],
    ),
    ("NA score", {**GOOD, "scores.csv": SCORES + "q2,NA,1,0\n"}, ["'gpt', row 2", "'NA'", "blank"]),
    (
        "nan score",
        {**GOOD, "scores.csv": SCORES + "q2,1,1,nan\n"},
        ["'qwen', row 2", "'nan'", "blank"],
    ),
    ("comma as point", {**GOOD, "scores.csv": SCORES + 'q2,"0,5",1,0\n'}, ["row 2", "'0,5'"]),
    ("underscore", {**GOOD, "scores.csv": SCORES + "q2,1_0,1,0\n"}, ["row 2", "'1_0'"]),
    (
        "infinite score",
        {**GOOD, "scores.csv": SCORES + "q2,1,-inf,0\n"},
        ["row 2", "-inf", "finite"],
    ),
    ("too large a score", {**GOOD, "scores.csv": SCORES + "q2,1,1e999,0\n"}, ["row 2", "finite"]),
    ("labels in scores", {**GOOD, "scores.csv": "query_id,task,a\n8,law,0\n"}, ["'task'", "'law'"]),
    (
        "dates as scores",
        {
            "queries.csv": QUERIES,
            "scores.parquet": pd.DataFrame(
                {"query_id": ["8"], "a": pd.to_datetime(["2020-01-01"]), "b": [1]}
            ),
        },
        ["scores.parquet, column 'a', row 0 (query '8')", "number"],
    ),
    (
        "one model only",
        {**GOOD, "scores.csv": "query_id,a\n8,1\n"},
        ["scores.csv has 1 model", "two"],
    ),
    (
        "negative cost",
        {**GOOD, "costs.csv": "query_id,gpt\n8,-1\n"},
        ["costs.csv", "'gpt'", "-1.0"],
    ),
    (
        "unknown winner",
        {**VOTED, "comparisons.csv": VOTES + "8,gpt,qwen,both\n"},
        ["row 3", "'both'"],
    ),
    ("blank winner", {**VOTED, "comparisons.csv": VOTES + "8,gpt,qwen,\n"}, ["winner, row 3"]),
    (
        "against itself",
        {**VOTED, "comparisons.csv": VOTES + "8,gpt,gpt,tie\n"},
        ["row 3", "'gpt' ag"],
    ),
    ("blank model", {**VOTED, "comparisons.csv": VOTES + "8,,gpt,tie\n"}, ["model_a, row 3"]),
    (
        "unknown query voted",
        {**VOTED, "comparisons.csv": VOTES + "9,a,gpt,tie\n"},
        ["row 3", "'9'"],
    ),
    (
        "text outcome",
        {**VOTED, "comparisons.csv": "query_id,model_a,model_b,outcome\n8,a,b,x\n"},
        ["comparisons.csv, column 'outcome', row 0 (query '8')", "'x'"],
    ),
    (
        "outcome out of range",
        {**VOTED, "comparisons.csv": "query_id,model_a,model_b,outcome\n8,a,b,1.5\n"},
        ["comparisons.csv: outcome, row 0", "1.5"],
    ),
    (
        "blank weight",
        {**VOTED, "comparisons.csv": "query_id,model_a,model_b,outcome,weight\n8,a,b,1,\n"},
        ["comparisons.csv: weight, row 0", "positive"],
    ),
    ("rows differ", {**GOOD, "embeddings.npy": np.eye(2)}, ["embeddings.npy has 2 rows for 3"]),
    (
        "NaN embedding",
        {**GOOD, "embeddings.npy": VECTORS * [[1], [NAN], [1]]},
        ["npy, row 1", "finite"],
    ),
    ("infinite embedding", {**GOOD, "embeddings.npy": np.diag([1, 1, INF])}, ["npy, row 2"]),
    (
        "zero embedding",
        {**GOOD, "embeddings.npy": VECTORS * [[0], [1], [1]]},
        ["row 0", "only zeros"],
    ),
    ("one-dimensional", {**GOOD, "embeddings.npy": np.ones(3)}, ["shape (3,)", "embedding_dim"]),
    ("three-dimensional", {**GOOD, "embeddings.npy": np.ones((3, 1, 1))}, ["shape (3, 1, 1)"]),
    ("complex embeddings", {**GOOD, "embeddings.npy": VECTORS + 1j}, ["complex128"]),
    ("text embeddings", {**GOOD, "embeddings.npy": VECTORS.astype(str)}, ["<U32", "numbers"]),
    ("pickled embeddings", {**GOOD, "embeddings.npy": VECTORS.astype(object)}, ["cannot be read"]),
    (
        "a pickle",
        {**GOOD, "embeddings.npy": pickle.dumps(VECTORS)},
        ["cannot be read", "numpy.save"],
    ),
    (
        "an archive",
        {**GOOD, "embeddings.npy": array_bytes(VECTORS, np.savez)},
        ["archive of arrays"],
    ),
    ("truncated", {**GOOD, "embeddings.npy": array_bytes(VECTORS)[:-8]}, ["cannot be read"]),
    ("truncated header", {**GOOD, "embeddings.npy": array_bytes(VECTORS)[:40]}, ["cannot be read"]),
    ("empty embeddings", {**GOOD, "embeddings.npy": b""}, ["embeddings.npy cannot be read"]),
    ("too much promised", {**GOOD, "embeddings.npy": promising_header()}, ["cannot be read"]),
]

BAD_TABLES = [
    ("nothing to compare", {"scores": None}, ["needs scores or comparisons"]),
    ("queries not a table", {"queries": ["q1"]}, ["queries must be a pandas DataFrame", "list"]),
    ("no queries", {"queries": None}, ["queries must be a pandas DataFrame", "NoneType"]),
    ("scores not a table", {"scores": np.eye(3)}, ["scores must be a pandas DataFrame", "ndarray"]),
    (
        "mixed ids",
        {"queries": pd.DataFrame({"query_id": [1, "b"]})},
        ["query_id, row 0", "found 1"],
    ),
    ("bool ids", {"queries": pd.DataFrame({"query_id": [True]})}, ["query_id, row 0", "True"]),
    (
        "columns that are no text",
        {"scores": pd.DataFrame({"query_id": ["007"], 1: [0], 2: [1]})},
        ["scores has a column named 1"],
    ),
    (
        "complex scores",
        {"scores": pd.DataFrame({"query_id": ["007"], "a": [1j], "b": [0]})},
        ["scores, column 'a', row 0 (query '007')", "1j"],
    ),
    ("ragged embeddings", {"embeddings": [[1], [1, 2], [3]]}, ["embeddings must be a table"]),
    ("bool embeddings", {"embeddings": np.ones((3, 2), bool)}, ["embeddings holds bool"]),
    ("no dimension", {"embeddings": np.ones((3, 0))}, ["embeddings has shape (3, 0)"]),
]


def check_message(error, fragments):
    message = str(error.value)
    assert [part for part in fragments if part not in message] == [], message


def named(cases):
    return pytest.mark.parametrize(
        ("given_", "fragments"), [case[1:] for case in cases], ids=[case[0] for case in cases]
    )


def tables(**changes):
    ids = ["007", "q2", "8"]
    found = {
        "queries": pd.DataFrame({"query_id": ids, "task": ["maths", "law", "law"]}),
        "scores": pd.DataFrame({"query_id": ["8", "007"], "gpt": [1, 0], "llama": [0.5, NAN]}),
        "embeddings": VECTORS,
    }
    return {**found, **changes}


@named(BAD_FOLDERS)
def test_bad_folders_are_refused(given_, fragments, tmp_path):
    with pytest.raises(InputError) as error:
        load_bundle(write(tmp_path, given_))
    check_message(error, [str(tmp_path), *fragments])


@named(BAD_TABLES)
def test_bad_tables_are_refused(given_, fragments):
    with pytest.raises(InputError) as error:
        Bundle("bad", **tables(**given_))
    check_message(error, fragments)


@pytest.mark.parametrize("folder", [None, 5, ["a"], "no/such/folder", __file__, "nul\0byte"])
def test_bad_places_are_refused(folder):
    with pytest.raises(InputError):
        load_bundle(folder)


# ---------------------------------------------------------------- what comes in


def test_csv_is_read_as_it_is(tmp_path):
    bundle = load_bundle(write(tmp_path / ".", {**GOOD, "embeddings.npy": VECTORS}))
    assert bundle.name == tmp_path.name
    assert bundle.query_ids.tolist() == ["007", "q2", "8"]
    texts = bundle.labels("text")
    assert texts.iloc[0] == "What is 2+2?"
    assert pd.isna(texts["q2"])
    assert texts["8"] == 'a, "b"\nc'
    assert bundle.models.tolist() == ["gpt", "llama", "qwen"]
    assert bundle.scores["query_id"].tolist() == ["007", "8"]
    assert bundle.scores["gpt"].tolist() == [1.0, 0.1]
    assert np.isnan(bundle.scores["llama"][1])
    assert bundle.sources["scores"] == str(tmp_path / "scores.csv")
    assert bundle.sources["embeddings"] == str(tmp_path / "embeddings.npy")


def test_csv_may_have_a_byte_order_mark_windows_line_ends_and_blank_lines(tmp_path):
    content = b"\xef\xbb\xbf" + QUERIES.replace("law\n", "law\r\n\r\n").encode()
    bundle = load_bundle(write(tmp_path, {**GOOD, "queries.csv": content}))
    assert bundle.query_ids.tolist() == ["007", "q2", "8"]


def test_words_that_look_missing_stay_text(tmp_path):
    content = "query_id,task\nNA,null\nnan,None\nTrue,N/A\n"
    scores = "query_id,a,b\nNA,1,0\n"
    bundle = load_bundle(write(tmp_path, {"queries.csv": content, "scores.csv": scores}))
    assert bundle.query_ids.tolist() == ["NA", "nan", "True"]
    assert bundle.labels("task").tolist() == ["null", "None", "N/A"]


def test_a_long_text_is_read_whole(tmp_path):
    text = "word " * 500_000
    content = f'query_id,text\n007,"{text}"\n8,\n'
    bundle = load_bundle(write(tmp_path, {**GOOD, "queries.csv": content}))
    assert bundle.labels("text")["007"] == text


def test_a_parent_folder_never_becomes_a_column(tmp_path):
    folder = tmp_path / "model=gpt"
    folder.mkdir()
    files = {"queries.parquet": tables()["queries"], "scores.parquet": tables()["scores"]}
    bundle = load_bundle(write(folder, files))
    assert bundle.models.tolist() == ["gpt", "llama"]
    assert bundle.queries.columns.tolist() == ["query_id", "task"]


def test_files_of_another_kind_are_warned_of(tmp_path):
    files = {**GOOD, "embeddings.csv": "1,2\n", "costs.json": "{}", "notes.txt": "", ".x": ""}
    with pytest.warns(DataWarning, match=r"costs.json, embeddings.csv, which is not read"):
        load_bundle(write(tmp_path, files))


def test_costs_of_unknown_models_are_warned_of_and_kept():
    costs = pd.DataFrame({"query_id": ["8"], "gpt": ["0.25"], "claude": [2]})
    with pytest.warns(DataWarning, match="costs of claude"):
        bundle = Bundle("priced", **tables(costs=costs))
    assert bundle.costs["gpt"].tolist() == [0.25]
    assert bundle.costs["claude"].tolist() == [2.0]


def test_whole_number_ids_match_text_only_where_written_alike():
    numbers = pd.DataFrame({"query_id": [8, 7], "gpt": [1, 0], "llama": [0, 1]})
    bundle = Bundle("numbers", pd.DataFrame({"query_id": ["7", "8"]}), numbers)
    assert bundle.scores["query_id"].tolist() == ["8", "7"]
    bundle = Bundle("numbers", pd.DataFrame({"query_id": [7, 8]}), numbers)
    assert bundle.query_ids.tolist() == [7, 8]
    assert bundle.draw_comparisons(min_per_query=1, rng=0).queries.tolist() == [7, 8]


def test_tables_may_be_indexed_by_query():
    given_ = tables()
    by_index = Bundle("x", given_["queries"].set_index("query_id"), given_["scores"])
    pd.testing.assert_frame_equal(by_index.queries, Bundle("x", **given_).queries)


@pytest.mark.parametrize("dtype", ["bool", "Int64", "float16", "category", "object", "string"])
def test_scores_of_any_real_type_become_floats(dtype):
    scores = pd.DataFrame({"query_id": ["8", "007"], "gpt": [1, 0], "llama": [0, 1]})
    scores = scores.astype({"gpt": dtype})
    bundle = Bundle("x", **tables(scores=scores))
    assert bundle.scores["gpt"].tolist() == [1.0, 0.0]
    assert bundle.scores["gpt"].dtype == np.float64


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int8", "float32"),
        (">f4", "float32"),
    ],
)
def test_embeddings_are_float32_unless_given_as_float64(given_, kept, tmp_path):
    vectors = np.array([[1, 0], [3, 4], [0, -2]]).astype(given_)
    bundle = load_bundle(write(tmp_path, {**GOOD, "embeddings.npy": vectors}))
    assert bundle.embeddings.dtype == np.dtype(kept)
    assert bundle.embeddings.dtype.isnative
    assert bundle.embeddings.tolist() == [[1, 0], [3, 4], [0, -2]]


def test_nothing_of_the_callers_is_changed_or_locked():
    given_ = tables(scores=tables()["scores"].astype(object))
    before = copy.deepcopy(given_)
    bundle = Bundle("x", **given_)
    bundle.draw_comparisons(min_per_query=1, rng=0)
    for name in ("queries", "scores"):
        pd.testing.assert_frame_equal(given_[name], before[name])
        bundle_table = getattr(bundle, name).copy()
        given_[name].loc[0, given_[name].columns[1]] = given_[name].iloc[1, 1]
        pd.testing.assert_frame_equal(getattr(bundle, name), bundle_table)
    assert np.array_equal(given_["embeddings"], before["embeddings"])
    assert given_["embeddings"].flags.writeable
    assert np.shares_memory(bundle.embeddings, given_["embeddings"])
    with pytest.raises(ValueError, match="read-only"):
        bundle.embeddings[0] = 0
    with pytest.raises(AttributeError):
        bundle.name = "y"


def test_a_bundle_can_be_pickled():
    bundle = pickle.loads(pickle.dumps(Bundle("x", **tables(), sources={"scores": "s.csv"})))
    assert repr(bundle) == repr(Bundle("x", **tables()))
    assert dict(bundle.sources) == {"scores": "s.csv"}


# ---------------------------------------------------------------- what is asked of it


def test_labels_and_embeddings_follow_the_ids():
    bundle = Bundle("x", **tables())
    assert bundle.labels("task").to_dict() == {"007": "maths", "q2": "law", "8": "law"}
    assert np.array_equal(bundle.embeddings_for(["8", "007", "8"]), VECTORS[[2, 0, 2]])
    assert bundle.embeddings_for(bundle.query_ids) is bundle.embeddings
    assert bundle.embeddings_for([]).shape == (0, 2)


@pytest.mark.parametrize(
    ("ask", "fragments"),
    [
        (lambda bundle: bundle.labels("topic"), ["'topic'", "it has task"]),
        (lambda bundle: bundle.labels("query_id"), ["'query_id'", "it has task"]),
        (lambda bundle: bundle.embeddings_for(["8", "9"]), ["queries, row 1", "'9'", "'x'"]),
        (lambda bundle: bundle.embeddings_for([8]), ["queries, row 0", "8"]),
        (
            lambda bundle: Bundle("y", bundle.queries, bundle.scores).embeddings_for(["8"]),
            ["'y' has no embeddings", "embeddings.npy"],
        ),
        (lambda bundle: bundle.draw_comparisons(), ["scores: No query", "min_per_query"]),
        (lambda bundle: bundle.draw_comparisons(0), ["scores: per_query=0"]),
        (lambda bundle: bundle.draw_comparisons(exclude_models=["g"]), ["'g'", "gpt, llama"]),
        (lambda bundle: bundle.draw_comparisons(exclude_models="gpt"), ["'gpt'", "list"]),
        (lambda bundle: bundle.draw_comparisons(exclude_models=[["gpt"]]), ["['gpt']"]),
        (lambda bundle: bundle.draw_comparisons(exclude_models=["gpt"]), ["scores", "one model"]),
        (lambda bundle: bundle.draw_comparisons(source="votes"), ["source='votes'", "scores"]),
        (lambda bundle: bundle.draw_comparisons(source="comparisons"), ["has scores"]),
    ],
)
def test_wrong_questions_are_refused(ask, fragments):
    with pytest.raises(InputError) as error:
        ask(Bundle("x", **tables()))
    check_message(error, fragments)


def test_scores_are_drawn_in_the_order_of_the_queries_and_absences_counted(tmp_path):
    bundle = load_bundle(write(tmp_path, GOOD))
    data = bundle.draw_comparisons(min_per_query=1, rng=0)
    assert data.queries.tolist() == ["007", "8"]
    assert not data.ordered
    # 8 lacks llama (2 pairs), q2 has no row (3 pairs)
    assert dict(data.dropped) == {
        "missing_pairs": 5,
        "tied_pairs": 0,
        "queries": 1,
        "pairs_of_dropped_queries": 0,
    }
    less = bundle.draw_comparisons(min_per_query=1, exclude_models=["llama"], rng=0)
    assert less.models.tolist() == ["gpt", "qwen"]
    assert len(less) == 2


def test_drawing_from_a_bundle_is_drawing_from_its_scores():
    values = np.random.default_rng(0).integers(0, 3, size=(40, 5)).astype(float)
    scores = pd.DataFrame(values, columns=list("abcde"))
    scores.insert(0, "query_id", [f"q{i}" for i in range(40)])
    bundle = Bundle("x", scores[["query_id"]], scores)
    for kwargs in ({"per_query": 3}, {"ties": "keep"}, {"per_query": None, "min_per_query": 8}):
        ours = bundle.draw_comparisons(**kwargs, rng=5).to_frame()
        theirs = Comparisons.from_scores(scores, **kwargs, rng=5).to_frame()
        pd.testing.assert_frame_equal(ours, theirs)


def test_a_comparison_table_is_taken_as_it_is(tmp_path):
    bundle = load_bundle(write(tmp_path, VOTED))
    assert bundle.models.tolist() == ["gpt", "llama", "qwen"]
    data = bundle.draw_comparisons(per_query=1, ties="drop", min_per_query=1, rng=0)
    assert data.queries.tolist() == ["007", "q2"]
    assert data.outcome.tolist() == [0.0, 0.5, 1.0]
    assert data.ordered
    assert dict(data.dropped) == {"queries": 1, "comparisons_of_dropped_queries": 0}
    data = bundle.draw_comparisons()
    assert data.queries.tolist() == ["007"]
    assert dict(data.dropped) == {"queries": 2, "comparisons_of_dropped_queries": 1}
    data = bundle.draw_comparisons(min_per_query=1, exclude_models=["llama"])
    assert data.to_frame()["model_a"].tolist() == ["qwen", "gpt"]
    assert data.dropped["of_dropped_models"] == 1
    for bad in (4, 0, "2"):
        with pytest.raises(InputError, match="min_per_query"):
            bundle.draw_comparisons(min_per_query=bad)


def test_with_both_tables_the_source_has_to_be_named(tmp_path):
    bundle = load_bundle(write(tmp_path, {**GOOD, "comparisons.csv": VOTES + "8,gpt,new,tie\n"}))
    assert bundle.models.tolist() == ["gpt", "llama", "qwen", "new"]
    with pytest.raises(InputError, match="both scores and comparisons"):
        bundle.draw_comparisons()
    assert len(bundle.draw_comparisons(min_per_query=1, source="comparisons")) == 4
    scored = bundle.draw_comparisons(
        min_per_query=1, source="scores", exclude_models=["new"], rng=0
    )
    assert scored.models.tolist() == ["gpt", "llama", "qwen"]


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("source", ["scores", "comparisons"])
def test_round_trip(kind, source, tmp_path):
    simulated = simulate(n_queries=30, n_models=5, per_query=3, ties=0.3, rng=0).bundle()
    costs = pd.DataFrame({"query_id": simulated.query_ids, "llm_0": np.linspace(0, 1, 30)})
    if source == "scores":
        values = np.random.default_rng(1).random((30, 4))
        values[values < 0.2] = NAN
        scores = pd.DataFrame(values, columns=[f"llm_{i}" for i in range(4)])
        scores.insert(0, "query_id", simulated.query_ids)
        bundle = Bundle("x", simulated.queries, scores, costs=costs)
    else:
        bundle = Bundle(
            "x",
            simulated.queries,
            comparisons=simulated.comparisons,
            embeddings=simulated.embeddings,
            costs=costs,
        )
    again = load_bundle(save_bundle(bundle, tmp_path / "deep" / "x", format=kind))
    for name in TABLES:
        mine, theirs = getattr(bundle, name), getattr(again, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            pd.testing.assert_frame_equal(theirs, mine, check_exact=True)
    if bundle.embeddings is None:
        assert again.embeddings is None
    else:
        assert again.embeddings.dtype == bundle.embeddings.dtype
        assert np.array_equal(again.embeddings, bundle.embeddings)
    assert repr(again) == repr(bundle)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_that_pairs_have_no_order_survives(kind, tmp_path):
    simulated = simulate(n_queries=10, rng=0).bundle()
    assert simulated.ordered
    bundle = replace(simulated, ordered=False)
    again = load_bundle(save_bundle(bundle, tmp_path / "x", format=kind))
    assert json.loads((tmp_path / "x" / "bundle.json").read_text()) == {"ordered": False}
    for each in (bundle, again, pickle.loads(pickle.dumps(again))):
        assert not each.ordered
        assert "70 unordered comparisons" in repr(each)
        assert not each.draw_comparisons().ordered
    save_bundle(simulated, tmp_path / "y", format=kind)
    assert not (tmp_path / "y" / "bundle.json").exists()
    (tmp_path / "z").mkdir()
    taken = write(tmp_path / "z", {"bundle.json": "{}"})
    with pytest.raises(InputError, match=r"holds bundle\.json already"):
        save_bundle(simulated, taken)


@pytest.mark.parametrize(
    ("said", "ordered"), [('{"ordered": false}', False), ('{"ordered": true}', True), ("{}", True)]
)
def test_the_order_can_be_written_by_hand(said, ordered, tmp_path):
    bundle = load_bundle(write(tmp_path, {**VOTED, "bundle.json": said}))
    assert bundle.ordered is ordered
    assert bundle.draw_comparisons(min_per_query=1).ordered is ordered


@pytest.mark.parametrize(
    ("said", "fragment"),
    [
        ('{"ordered": "no"}', "ordered must be true or false, not 'no'"),
        ('{"ordered": null}', "ordered must be true or false"),
        ('{"orderd": false}', "says orderd; only 'ordered' is known"),
        ("[]", "must be an object"),
        ('{"ordered": false', "cannot be read"),
        ('{"ordered": true, "ordered": false}', "stands twice"),
        (b"\xff", "cannot be read"),
        (" " * 70_000 + "{}", "70,002 bytes"),
    ],
)
def test_what_a_bundle_says_of_itself_must_be_understood(said, fragment, tmp_path):
    with pytest.raises(InputError) as error:
        load_bundle(write(tmp_path, {**VOTED, "bundle.json": said}))
    check_message(error, ["bundle.json", fragment])


def test_the_order_is_true_or_false():
    with pytest.raises(InputError, match="ordered='no'"):
        Bundle("x", **tables(), ordered="no")


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(
    st.lists(texts, min_size=1, max_size=4, unique=True),
    st.lists(texts, min_size=4, max_size=4),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
)
def test_any_text_and_number_survives_a_csv(ids, labels, numbers):
    n = len(ids)
    queries = pd.DataFrame({"query_id": ids, "label": labels[:n]})
    scores = pd.DataFrame({"query_id": ids, "a": numbers[:n], 'b, "c"\n': 0.0})
    bundle = Bundle("x", queries, scores)
    with tempfile.TemporaryDirectory() as place:
        again = load_bundle(save_bundle(bundle, place, format="csv"))
    pd.testing.assert_frame_equal(again.queries, bundle.queries)
    pd.testing.assert_frame_equal(again.scores, bundle.scores, check_exact=True)


def test_saving_never_mixes_two_bundles(tmp_path):
    bundle = Bundle("x", **tables())
    save_bundle(bundle, tmp_path)
    (tmp_path / "scores.parquet").unlink()
    with pytest.raises(InputError, match=r"embeddings.npy, queries.parquet already"):
        save_bundle(bundle, tmp_path, format="csv")


@pytest.mark.parametrize(
    ("label", "kind", "fragments"),
    [
        ([["a"], ["b"], "c"], "csv", ["queries.csv, column 'label', row 0 and 1 more", "list"]),
        (["a", 1, b"x"], "parquet", ["queries.parquet cannot be written"]),
        (["a", "\ud800", "c"], "csv", ["queries.csv cannot be written"]),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(label, kind, fragments, tmp_path):
    queries = tables()["queries"].assign(label=pd.Series(label, dtype=object))
    with pytest.raises(InputError) as error:
        save_bundle(Bundle("x", **tables(queries=queries)), tmp_path, format=kind)
    check_message(error, fragments)
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_and_places_are_refused(tmp_path):
    bundle = Bundle("x", **tables())
    with pytest.raises(InputError, match="format='json'"):
        save_bundle(bundle, tmp_path, format="json")
    with pytest.raises(InputError, match="cannot be written"):
        save_bundle(bundle, write(tmp_path, {"file": ""}) / "file")
    with pytest.raises(InputError, match="folder=None"):
        save_bundle(bundle, None)


# ---------------------------------------------------------------- damaged files

DAMAGED = {
    "queries.csv": QUERIES.encode(),
    "queries.parquet": parquet_bytes(tables()["queries"]),
    "scores.csv": SCORES.encode(),
    "scores.parquet": parquet_bytes(tables()["scores"]),
    "comparisons.csv": VOTES.encode(),
    "embeddings.npy": array_bytes(VECTORS),
}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(DAMAGED)), st.data())
def test_a_damaged_file_gives_a_bundle_or_an_input_error(name, draw):
    content = bytearray(DAMAGED[name])
    kind = draw.draw(st.sampled_from(["cut", "change", "insert", "noise"]))
    place = draw.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        del content[place:]
    elif kind == "noise":
        content = draw.draw(st.binary(max_size=60))
    else:
        content[place : place + (kind == "change")] = draw.draw(st.binary(min_size=1, max_size=3))
    table = name.split(".")[0]
    others = {n: c for n, c in {**VOTED, **GOOD}.items() if n.split(".")[0] != table}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {**others, name: bytes(content)})
        try:
            bundle = load_bundle(folder)
        except InputError as error:
            assert folder in str(error)  # noqa: PT017 - either ending is right
        else:
            assert isinstance(bundle, Bundle)


# ---------------------------------------------------------------- real data


@pytest.mark.parametrize(
    ("name", "n_queries", "n_models", "label", "n_missing"),
    [("routerdc", 6108, 9, "task", 0), ("mmlu_pro", 12032, 29, "category", 1713)],
)
def test_real_bundles_load(
    name, n_queries, n_models, label, n_missing, shared_data, record_property
):
    start = time.perf_counter()
    bundle = load_bundle(shared_data / name)
    record_property("seconds", time.perf_counter() - start)
    assert bundle.name == name
    assert len(bundle.queries) == n_queries
    assert len(bundle.models) == n_models
    assert bundle.embeddings.shape == (n_queries, 384)
    assert bundle.embeddings.dtype == np.float32
    assert np.linalg.norm(bundle.embeddings, axis=1) == pytest.approx(1, abs=2e-3)
    assert bundle.labels(label).nunique() == 14
    assert int(bundle.scores.isna().sum().sum()) == n_missing
    data = bundle.draw_comparisons(rng=0)
    assert data.n_queries + data.dropped["queries"] == n_queries
    assert np.array_equal(
        bundle.embeddings_for(data.queries),
        bundle.embeddings[bundle.query_ids.isin(data.queries)],
    )
