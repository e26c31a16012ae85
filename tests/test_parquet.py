"""Parquet tables come in exactly as they are, and never larger than anyone's data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bayes_ecc
from bayes_ecc import InputError, load_bundle, parquet
from bayes_ecc.parquet import bounded_table

MIXED = pd.DataFrame(
    {
        "text": ["a", "ä" * 50, None],
        "category": pd.Categorical(["x", "y", "x"]),
        "grade": pd.Categorical([3, 1, 3]),
        "whole": pd.array([1, None, 2], dtype="Int64"),
        "object": np.array(["q", None, "é"], dtype=object),
        "bytes": [b"1", b"", None],
        "day": pd.to_datetime(["2020-01-01"] * 3),
        "turns": [["u", "v"], None, []],
        "truth": [True, False, True],
        "record": [{"k": "a"}, None, {"k": "b"}],
    },
    index=pd.Index([5, 6, 7], name="place"),
)


def differences(name):
    return {"use_dictionary": False, "column_encoding": {"object": name}}


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"row_group_size": 2},
        {"use_dictionary": False},
        {"compression": "zstd", "data_page_version": "2.0"},
        differences("DELTA_BYTE_ARRAY"),
        differences("DELTA_LENGTH_BYTE_ARRAY"),
    ],
)
def test_a_table_is_what_pyarrow_reads(how, tmp_path):
    path = tmp_path / "mixed.parquet"
    MIXED.to_parquet(path, **how)
    expected, found = pq.ParquetFile(path).read(), bounded_table(path)
    assert found.schema.equals(expected.schema, check_metadata=True)
    pd.testing.assert_frame_equal(found.to_pandas(), expected.to_pandas())


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": pa.array(["x", "y"], pa.large_string()), "b": pa.nulls(2)}),
        pa.table({"a": pa.array(["x", None], pa.string_view())}),
        pa.table({"a": pa.array([{"b": ["x"]}, None]), "c": pa.array([1.5, None])}),
        pa.table({"a": pa.array([], pa.string()), "b": pa.array([], pa.float64())}),
    ],
)
def test_types_that_pandas_does_not_write_survive(table, tmp_path):
    pq.write_table(table, tmp_path / "x.parquet")
    assert bounded_table(tmp_path / "x.parquet").equals(table)


def repeated(text, times):
    """Give a column that says one text over and over, and takes no more room than one."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([text]))


def small_bundle(folder, **columns):
    folder.mkdir()
    rows = len(next(iter(columns.values())))
    ids = pa.array([f"q{i}" for i in range(rows)])
    pq.write_table(pa.table({"query_id": ids, **columns}), folder / "queries.parquet")
    scores = pa.table({"query_id": ids[:2], "gpt": [1.0, 0.0], "llama": [0.0, 1.0]})
    pq.write_table(scores, folder / "scores.parquet")
    return folder


@pytest.mark.parametrize("text", [repeated("x" * 1000, 100), pa.array(["x" * 1000] * 100)])
def test_a_text_counts_wherever_it_is_referred_to(text, monkeypatch, tmp_path):
    folder = small_bundle(tmp_path / "small", text=text)
    assert load_bundle(folder).queries["text"].str.len().eq(1000).all()
    monkeypatch.setattr(parquet, "MAX_BYTES", 50_000)
    with pytest.raises(InputError, match=r"queries\.parquet grows to more than 50,000 bytes"):
        load_bundle(folder)


def test_more_values_than_anyone_has_are_refused(monkeypatch, tmp_path):
    folder = small_bundle(tmp_path / "long", run=pa.array(np.zeros(50_000)))
    monkeypatch.setattr(parquet, "MAX_CELLS", 60_000)
    with pytest.raises(InputError, match=r"queries\.parquet claims 100,000 values"):
        load_bundle(folder)


PEAK = """
import resource, sys
from bayes_ecc import InputError, load_bundle, parquet
parquet.MAX_BYTES = 2**28
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for folder in sys.argv[1:]:
    try:
        load_bundle(folder)
    except InputError as error:
        print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_small_file_does_not_fill_the_memory(tmp_path):
    times, long = 400, "x" * 2**20
    plain = small_bundle(tmp_path / "plain", text=repeated(long, times))
    growing = small_bundle(tmp_path / "growing", text=pa.array([long] * 30))
    # the same texts once more, each as what it shares with the one before
    table = pa.table({"query_id": ["q"] * 30, "text": pa.array([long] * 30)})
    how = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    with pq.ParquetWriter(growing / "queries.parquet", table.schema, **how) as writer:
        for _ in range(14):
            writer.write_table(table)
    nested = small_bundle(
        tmp_path / "nested", record=pa.StructArray.from_arrays([repeated(long, times)], ["text"])
    )
    talk = pa.ListArray.from_arrays(np.arange(times + 1, dtype=np.int32), repeated(long, times))
    listed = small_bundle(tmp_path / "listed", turns=talk)
    folders = [plain, growing, nested, listed]
    assert all((each / "queries.parquet").stat().st_size < 10_000_000 for each in folders)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *folders],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(bayes_ecc.__file__).parents[1],
    )
    *messages, peak = done.stdout.splitlines()
    for folder, message in zip(folders, messages, strict=True):
        assert f"{folder}/queries.parquet grows to more than 268,435,456 bytes" in message
    assert int(peak) < 800  # MB, with all four together claiming 1,600
