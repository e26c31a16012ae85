"""Layout to bundle to disk to bundle, and the command line around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayes_ecc.datasets
from bayes_ecc import InputError, load_bundle, save_bundle
from bayes_ecc.cli import main
from bayes_ecc.datasets import Counts
from bayes_ecc.datasets.layouts import LAYOUTS

TABLES = ("queries", "scores", "comparisons", "costs")


def load(sample, layout):
    return LAYOUTS[layout].load(sample.source, **sample.options)


def arguments(sample):
    """Give a sample's options as the command line takes them."""
    words = []
    for name, value in sample.options.items():
        if isinstance(value, dict):
            words += [word for pair in value.items() for word in (f"--{name}", "=".join(pair))]
        elif isinstance(value, list):
            words += [word for each in value for word in (f"--{name}", each)]
        else:
            words += [f"--{name}", str(value)]
    return words


def as_text(frame):
    """Give a table as CSV keeps it: numbers as they are, all else as text or missing."""
    return frame.map(
        lambda cell: cell if isinstance(cell, float) else None if cell is None else str(cell)
    ).astype(object)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_is_accounted_for(samples, tmp_path, layout):
    counts = load(samples.write(layout, tmp_path), layout).counts
    assert counts.read == counts.used + sum(counts.dropped.values()) > 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_what_comes_back_from_disk_is_what_was_loaded(samples, tmp_path, layout, kind):
    bundle = load(samples.write(layout, tmp_path / "in"), layout).bundle
    again = load_bundle(save_bundle(bundle, tmp_path / "out", format=kind))
    assert again.ordered == bundle.ordered
    for table in TABLES:
        left, right = getattr(bundle, table), getattr(again, table)
        assert (left is None) == (right is None)
        if left is None:
            continue
        if kind == "csv":
            left, right = as_text(left.convert_dtypes()), as_text(right.convert_dtypes())
            left, right = left.fillna("").astype(str), right.fillna("").astype(str)
        pd.testing.assert_frame_equal(left, right)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_command_writes_what_the_loader_gives(samples, tmp_path, layout, capsys):
    sample = samples.write(layout, tmp_path / "in")
    out = tmp_path / "out"
    assert main(["convert", layout, str(sample.source), str(out), *arguments(sample)]) == 0
    loaded, again = load(sample, layout), load_bundle(out)
    assert again.ordered == loaded.bundle.ordered
    for table in TABLES:
        if getattr(loaded.bundle, table) is not None:
            pd.testing.assert_frame_equal(getattr(loaded.bundle, table), getattr(again, table))
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"{loaded.counts}.")
    assert f"{len(again.queries)} queries, {len(again.models)} models" in said


def test_the_command_takes_prices(samples, tmp_path):
    sample = samples.write("sprout", tmp_path / "in")
    prices = samples.write_json(tmp_path / "p.json", {"gpt": [1, 2], "meta/llama-3.1": [3, 4]})
    words = ["convert", "sprout", str(sample.source), str(tmp_path / "out")]
    assert main([*words, "--prices", str(prices)]) == 0
    costs = load_bundle(tmp_path / "out").costs.set_index("query_id")
    np.testing.assert_allclose(costs.loc["k1"], [(10 + 10) / 1e6, (60 + 28) / 1e6])


BAD = {
    "a layout there is none of": ["convert", "nope", "in", "out"],
    "no source": ["convert", "routerdc", "{tmp}/nope", "{tmp}/out"],
    "an empty folder": ["convert", "routerdc", "{tmp}/empty", "{tmp}/out"],
    "a pickle": ["convert", "routerbench", "{tmp}/x.pkl", "{tmp}/out"],
    "a broken file": ["convert", "routerdc", "{tmp}/broken.json", "{tmp}/out"],
    "a taken folder": ["convert", "routerdc", "{tmp}/good.json", "{tmp}"],
    "a file for a folder": ["convert", "routerdc", "{tmp}/good.json", "{tmp}/good.json"],
    "a folder that cannot be made": ["convert", "routerdc", "{tmp}/good.json", "{tmp}/x.pkl/out"],
    "an unknown option": ["convert", "routerdc", "{tmp}/good.json", "{tmp}/out", "--labels", "x"],
    "a pair without =": [
        "convert", "long_table", "{tmp}/good.json", "{tmp}/out", "--columns", "query_id",
    ],
    "prices that are none": [
        "convert", "sprout", "{tmp}/good.json", "{tmp}/out", "--prices", "{tmp}/broken.json",
    ],
}  # fmt: skip


@pytest.fixture
def bad_place(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.pkl").write_bytes(b"\x80\x04N.")
    (tmp_path / "broken.json").write_text('[{"question": "Why?", "scores": {"a": 1')
    good = [{"question": "Why?", "scores": {"a": 1, "b": 0}}]
    (tmp_path / "good.json").write_text(json.dumps(good))
    return tmp_path


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_the_command_refuses_in_one_line(bad_place, capsys, words):
    before = sorted(bad_place.rglob("*"))
    assert main([word.format(tmp=bad_place) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bayes-ecc: ")
    assert err.count("\n") == 1
    assert sorted(bad_place.rglob("*")) == before


def test_no_traceback_reaches_who_runs_the_command(bad_place):
    words = ["convert", "routerdc", str(bad_place / "broken.json"), str(bad_place / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "bayes_ecc.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(bayes_ecc.datasets.__file__).parents[2],
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "broken.json, row 0: found what is no JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_loader_is_a_layout_and_has_a_sample(samples, tmp_path):
    loaders = {name for name in bayes_ecc.datasets.__all__ if name.startswith("load_")}
    assert {f"load_{layout}" for layout in LAYOUTS} == loaders
    for layout in LAYOUTS:
        samples.write(layout, tmp_path / layout)


def test_counts_that_do_not_add_up_are_refused():
    with pytest.raises(InputError, match="do not add up"):
        Counts("rows", 3, 1, {"for no reason": 1})
    assert str(Counts("rows", 2, 2, {"never": 0})) == "2 rows read, 2 used, 0 dropped"


def test_columns_that_are_not_read_are_told_and_how_to_make_labels_of_them(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "votes.csv").write_text(
        "query_id,model_a,model_b,winner,category,judge\n"
        "q1,ada,bo,model_a,maths,x\nq1,bo,cy,tie,maths,y\nq2,ada,cy,model_b,law,x\n"
    )
    command = ["convert", "long_table", str(tmp_path / "votes.csv")]
    assert main([*command, str(tmp_path / "one")]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "labels: none; texts: no" in told
    assert "stay with the comparisons and are not read: category, judge" in told
    assert "(--labels category makes labels of" in told  # judges differ on q1
    assert main([*command, str(tmp_path / "two"), "--labels", "category"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "labels: category" in told
    assert "not read: judge" in told
    assert "--labels" not in told
