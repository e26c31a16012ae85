"""No file makes a loader allocate more than the file warrants, whatever it claims."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bayes_ecc.datasets
from bayes_ecc import InputError, parquet, reading
from bayes_ecc.datasets import (
    load_lmarena,
    load_mmlu_pro,
    load_routerdc,
    load_score_arrays,
    load_score_matrix,
    sheets,
)


def refused(load, *args, **options):
    with pytest.raises(InputError) as caught:
        load(*args, **options)
    return str(caught.value)


def repeated(text, times):
    """Give a column that says one text over and over, and takes no more room than one."""
    codes = pa.array(np.zeros(times, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([text]))


def votes(times):
    return {
        "question_id": pa.array(np.arange(times)),
        "model_a": repeated("gpt", times),
        "model_b": repeated("llama", times),
        "winner": repeated("tie", times),
    }


# ------------------------------------------------------------------------------ archives


def test_an_archive_that_grows_without_end(tmp_path):
    path = tmp_path / "model_outputs_x_5shots.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.json", "[" + " " * 100_000_000)
    assert path.stat().st_size < 200_000
    assert f"{path} would grow to 100,000,001 bytes" in refused(load_mmlu_pro, path)


def test_an_archive_that_understates_what_it_holds(samples, tmp_path):
    folder = samples.write("mmlu_pro", tmp_path).source
    path = sorted(folder.iterdir())[0]
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    struct.pack_into("<I", content, directory + 24, 10)  # of the bytes inside
    path.write_bytes(content)
    assert str(path) in refused(load_mmlu_pro, folder)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_archives_whose_decompression_takes_memory_of_its_own(tmp_path, kind):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("x.json", "[]")
    assert "compressed in an unusual way" in refused(load_mmlu_pro, path)


def test_an_archive_with_a_password_or_without_results(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "none")
    assert "holds no member that ends in .json" in refused(load_mmlu_pro, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.json", "[]")
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + flags] |= 1
    path.write_bytes(content)
    assert "without a password" in refused(load_mmlu_pro, path)


# ------------------------------------------------------------------------------ arrays


def header_of(shape, dtype="<f8"):
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize("shape", [(10**12, 2), (2, 3), (10**30, 10**30), (-1, 2), (2,)])
def test_an_array_that_claims_more_than_the_file_holds(tmp_path, shape):
    path = tmp_path / "x.npy"
    path.write_bytes(header_of(shape) + b"\0" * 32)
    message = refused(load_score_arrays, path, models=["a", "b"])
    assert str(path) in message


def test_an_archive_of_arrays_that_claim_more_than_they_hold(tmp_path):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scores.npy", header_of((10**12, 2)) + b"\0" * 32)
    assert "scores.npy claims 16,000,000,000,000 bytes" in refused(
        load_score_arrays, path, models=["a", "b"]
    )
    np.savez_compressed(path, scores=np.zeros((2, 10_000_000)))
    assert f"{path} would grow to" in refused(load_score_arrays, path, models=["a", "b"])


# ------------------------------------------------------------------------------ json


@pytest.mark.parametrize("opening", ['[{"question": "', "[", '[{"a":'])
def test_a_record_without_an_end(tmp_path, opening):
    path = tmp_path / "train.json"
    path.write_text(opening + ("x" if '"' in opening else "[") * (2 * reading.MAX_VALUE + 10))
    assert f"{path}, row 0: found " in refused(load_routerdc, path)


def test_records_are_read_one_at_a_time(monkeypatch, tmp_path):
    path = tmp_path / "train.json"
    records = [{"question": "?" * 1000, "scores": {"a": 1, "b": 0}} for _ in range(200)]
    path.write_text(json.dumps(records))
    monkeypatch.setattr(reading, "MAX_VALUE", 5000)
    monkeypatch.setattr(reading, "_CHUNK", 100)
    assert load_routerdc(path).counts.used == 200
    path.write_text(json.dumps([{**records[0], "question": "?" * 20_000}]))
    assert "a value longer than 5,000 characters" in refused(load_routerdc, path)


# ------------------------------------------------------------------------------ parquet


def test_a_table_of_more_rows_than_anyone_has(monkeypatch, tmp_path):
    path = tmp_path / "scores.parquet"
    table = pa.table({"gpt": np.zeros(600_000), "llama": np.ones(600_000)})
    pq.write_table(table, path)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(parquet, "MAX_CELLS", 1_000_000)
    assert f"{path} claims 1,200,000 values" in refused(load_score_matrix, path)
    wide = pa.table({"query_id": pa.array([b"\0" * 100_000] * 90, pa.binary(100_000))})
    pq.write_table(wide, path)
    assert f"{path} claims 1,125,000 values" in refused(load_score_matrix, path)


def test_texts_repeated_beyond_reason_are_refused_with_the_file_named(monkeypatch, tmp_path):
    path = tmp_path / "votes.parquet"
    pq.write_table(pa.table({**votes(100), "prompt": repeated("x" * 1000, 100)}), path)
    monkeypatch.setattr(sheets, "MAX_TEXT", 50_000)
    assert f"{path} holds 10" in refused(load_lmarena, path)


PEAK = """
import resource, sys
from bayes_ecc import InputError, parquet, reading
from bayes_ecc.datasets import load_lmarena
for path in sys.argv[1:]:
    try:
        load_lmarena(path)
    except InputError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_repeated_texts_do_not_fill_the_memory(tmp_path):
    times, long = 2400, "x" * 2**20
    flat, nested = tmp_path / "flat.parquet", tmp_path / "nested.parquet"
    pq.write_table(pa.table({**votes(times), "prompt": repeated(long, times)}), flat)
    parts = [repeated(long, times), repeated("user", times)]
    turns = pa.StructArray.from_arrays(parts, ["content", "role"])
    talk = pa.ListArray.from_arrays(pa.array(np.arange(times + 1, dtype=np.int32)), turns)
    table = pa.table({**votes(times), "conversation_a": talk})
    pq.write_table(table, nested, dictionary_pagesize_limit=2**30)
    assert flat.stat().st_size + nested.stat().st_size < 500_000
    done = subprocess.run(
        [sys.executable, "-c", PEAK, flat, nested],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(bayes_ecc.datasets.__file__).parents[2],
    )
    first, second, peak = done.stdout.splitlines()
    assert f"{flat} holds 2,516" in first
    assert f"{nested} holds 2,516" in second
    assert int(peak) < 2000  # MB, where the texts of either would take 2,500 at the least
