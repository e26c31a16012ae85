"""The command line: what it prints and writes, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_ecc import (
    ECC,
    ConvergenceWarning,
    DataWarning,
    InputError,
    save_bundle,
    save_posterior,
    simulate,
)
from bayes_ecc.cli import COMMANDS, main
from bayes_ecc.cli.demo import recovery, true_probability
from bayes_ecc.cli.options import listed
from bayes_ecc.cli.output import (
    Column,
    check_writable,
    definitions,
    format_table,
    short_warnings,
    write_json,
)
from bayes_ecc.evaluation import Fitted
from bayes_ecc.splits import SIGNALS, draw_split

type Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle of votes on 150 queries."""
    bundle = simulate(n_queries=150, n_models=5, rng=1).bundle()
    return str(save_bundle(bundle, tmp_path_factory.mktemp("data") / "votes"))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def strict(path: Path) -> Any:
    """Read JSON that may not hold NaN or Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


# -------------------------------------------------------------------- demo


def test_demo_shows_recovery_beside_gains(capsys: Capture) -> None:
    assert main(["demo", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    found, worth = out.split("WHAT IT IS WORTH")
    agreement = {
        name: float(re.search(rf"^{name} +(\S+)", found, re.MULTILINE)[1])
        for name in ("labels:topic", "embedding", "comparisons", "ecc")
    }
    assert agreement["ecc"] > 0.7
    assert agreement["ecc"] > agreement["comparisons"] > max(0.2, agreement["embedding"])
    assert agreement["labels:topic"] < 0.1
    gain = {
        name: float(re.search(rf"^{name} +(\S+)", worth, re.MULTILINE)[1])
        for name in ("global", "labels:topic", "embedding", "comparisons", "ecc", "truth")
    }
    assert gain["truth"] > gain["ecc"] > gain["comparisons"] > gain["embedding"]
    assert gain["global"] == 0
    for term in ("abilities", "topics", "strength error", "embedding", "probe", "both", "ECE"):
        assert re.search(rf"^  {term} +\w", out, re.MULTILINE), f"{term} is not explained"


def test_demo_depends_on_its_seed_alone(capsys: Capture) -> None:
    printed = []
    for seed in ("0", "0", "1"):
        main(["demo", "--seed", seed])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_demo_fits_into_a_narrow_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    main(["demo"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


def test_recovery_does_not_depend_on_the_names_of_clusters() -> None:
    truth = simulate(n_queries=200, n_models=5, n_clusters=3, rng=2)
    split = draw_split(truth.bundle())
    labels = truth.labels[truth.comparisons.queries.get_indexer(split.train.queries)]
    renamed = np.array([2, 0, 1])

    def fitted(responsibilities: Any, strengths: Any) -> Fitted:
        return Fitted(
            lambda _: np.zeros(0),
            estimator=types.SimpleNamespace(
                responsibilities_=xr.DataArray(responsibilities), strengths_=strengths
            ),
        )

    same = fitted(np.eye(3)[renamed[labels]], truth.strengths[np.argsort(renamed)] + 7)
    found = recovery(truth, split, "ecc", same)
    assert found.with_abilities == 1.0
    assert found.strength_error == pytest.approx(0, abs=1e-12)
    shifted = truth.strengths[np.argsort(renamed)] + np.array([0.5, -0.5, 0, 0, 0])
    worse = recovery(truth, split, "ecc", fitted(np.eye(3)[renamed[labels]], shifted))
    assert worse.strength_error == pytest.approx(np.sqrt(0.5 / 5))
    shuffled = np.random.default_rng(0).permutation(labels)
    chance = recovery(truth, split, "ecc", fitted(np.eye(3)[shuffled], truth.strengths))
    assert chance.with_abilities == pytest.approx(0, abs=0.05)


def test_the_ceiling_is_the_chance_that_was_simulated() -> None:
    truth = simulate(n_queries=60, n_models=5, rng=5)
    split = draw_split(truth.bundle())
    scored = split.scored
    names, queries = list(truth.comparisons.models), list(truth.comparisons.queries)
    for row, probability in enumerate(true_probability(truth, split)):
        theta = truth.strengths[truth.labels[queries.index(scored.queries[scored.query[row]])]]
        first = theta[names.index(scored.models[scored.first[row]])]
        second = theta[names.index(scored.models[scored.second[row]])]
        assert probability == pytest.approx(np.exp(second) / (np.exp(first) + np.exp(second)))


# -------------------------------------------------------------------- evaluate


def evaluate_args(folder: str, *more: str) -> list[str]:
    return ["evaluate", folder, "--clusters", "4", "--embedding-weight", "1", *more]


def test_evaluate_prints_what_it_writes(folder: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "result.json"
    methods = "global,labels:topic,embedding,comparisons,ecc"
    args = evaluate_args(folder, "--methods", methods, "--seeds", "2", "--json", str(path))
    assert main([*args, "--seed", "4", "--embedding-only-weight", "2", "--test-size", "0.3"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    result = strict(path)
    assert set(result) == {"protocol", "global", "methods"}
    assert list(result["methods"]) == methods.split(",")
    expected = {
        "bundle": "votes",
        "seeds": [4, 5],
        "n_clusters": 4,
        "embedding_weight": 1.0,
        "embedding_only_weight": 2.0,
        "temperature": 0.1,
        "ridge": 1.0,
        "per_query": 7,
        "test_size": 0.3,
        "probes": 1,
        "exclude_models": [],
        "frozen": None,
    }
    assert {name: result["protocol"][name] for name in expected} == expected
    assert result["protocol"]["counts"][1]["test_queries"] == 45
    assert "numpy" in result["protocol"]["versions"]
    for name, figures in result["methods"].items():
        assert {"seconds", "n_iter", *SIGNALS} <= set(figures)
        numbers = r" +(\S+)" * 4 + r" +(\S+ to \S+) +(\S+)"
        shown = re.search(rf"^{name}{numbers}", out, re.MULTILINE)
        assert shown is not None
        gains = [figures[signal]["gain"]["mean"] for signal in SIGNALS]
        both = figures["embedding+probe"]
        assert list(shown.groups()) == [
            *(f"{gain:.1f}" for gain in gains),
            f"{both['gain_apart']['mean']:.1f}",
            "{:.1f} to {:.1f}".format(*both["gain_interval"]),
            f"{both['gain']['sd']:.1f}",
        ]


def test_one_seed_has_no_spread(folder: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "result.json"
    args = evaluate_args(folder, "--methods", "labels:topic", "--json", str(path))
    assert main(args) == 0
    assert "--seeds N runs several" in capsys.readouterr().out
    assert strict(path)["methods"]["labels:topic"]["probe"]["gain"]["sd"] is None


def test_auto_tells_what_it_chose(folder: str, capsys: Capture) -> None:
    assert main(evaluate_args(folder, "--methods", "ecc", "--ridge", "auto")) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"Chosen .*\n  ecc, seed 0: embedding weight 1, temperature 0\.1, ridge [\d.]+\.", out
    )


def test_a_frozen_split_is_used_as_it_is(folder: str, tmp_path: Path, capsys: Capture) -> None:
    bundle = simulate(n_queries=150, n_models=5, rng=1).bundle()
    assert bundle.comparisons is not None
    position = bundle.comparisons.groupby("query_id").cumcount()
    is_test = bundle.comparisons["query_id"].str.endswith("7")
    frozen = bundle.comparisons.assign(
        winner=np.where(bundle.comparisons["outcome"] == 1, "model_b", "model_a"),
        split=np.where(is_test, "test", "train"),
        probe=position == 3,
    )
    frozen.to_parquet(tmp_path / "seed_6.parquet")
    path = tmp_path / "result.json"
    args = ["--seed", "6", "--frozen", str(tmp_path), "--probes", "2", "--json", str(path)]
    assert main(evaluate_args(folder, "--methods", "ecc", *args)) == 0
    result = strict(path)
    counts = result["protocol"]["counts"][0]
    assert (counts["train_queries"], counts["test_queries"], counts["probes"]) == (135, 15, 15)
    assert result["protocol"]["frozen"] == str(tmp_path)
    assert result["protocol"]["probes"] is None
    err = capsys.readouterr().err
    assert err.startswith("bayes-ecc: note: --probes")
    assert err.count("\n") == 1


def test_names_with_commas_can_be_given(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(80)]
    models = ["ada", "bo, large", "cy", "di", "eve"]
    scores = pd.DataFrame(rng.normal(size=(80, 5)), columns=models)
    scores.insert(0, "query_id", ids)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    labels = rng.choice(["x", "y"], 80)
    queries = pd.DataFrame({"query_id": ids, "kind, broad": labels, "kind": labels})
    queries.to_csv(tmp_path / "queries.csv", index=False)
    np.save(tmp_path / "embeddings.npy", rng.normal(size=(80, 4)).astype(np.float32))
    path = tmp_path / "result.json"
    args = ["evaluate", str(tmp_path), "--methods", "global, labels:kind", "--json", str(path)]
    args += ["--methods", "labels:kind, broad", "--per-query", "3"]
    assert main([*args, "--exclude-models", "bo, large", "--exclude-models", "ada"]) == 0
    result = strict(path)
    assert list(result["methods"]) == ["global", "labels:kind", "labels:kind, broad"]
    assert result["protocol"]["exclude_models"] == ["bo, large", "ada"]
    counts = result["protocol"]["counts"][0]
    assert counts["models"] == 3
    assert counts["train_comparisons"] == 3 * counts["train_queries"]
    capsys.readouterr()
    assert listed(["b,c", "a"], {"a", "b,c"}.__contains__) == ["b,c", "a"]
    assert listed(["b,c", "a, b"], {"a", "b"}.__contains__) == ["b", "c", "a"]


# -------------------------------------------------------------------- refusals

REFUSED = {
    "no command": ([], "required: COMMAND"),
    "unknown command": (["rnak"], "'rnak'"),
    "unknown option": (["evaluate", "{folder}", "--colour"], "--colour"),
    "an option cut short": (["evaluate", "{folder}", "--cluster", "3"], "--cluster"),
    "missing bundle": (["evaluate"], "BUNDLE"),
    "missing folder": (["evaluate", "{folder}/nowhere"], "nowhere is not there"),
    "a file for a folder": (["evaluate", "{folder}/queries.parquet"], "is not a folder"),
    "a folder without a bundle": (["evaluate", "{empty}"], "lacks queries.parquet"),
    "unknown method": (["evaluate", "{folder}", "--methods", "eccc"], "no method 'eccc'"),
    "no method": (["evaluate", "{folder}", "--methods", ","], "--methods is empty"),
    "unknown label": (["evaluate", "{folder}", "--methods", "labels:hue"], "no label column 'hue'"),
    "too many clusters": (["evaluate", "{folder}", "--clusters", "121"], "n_clusters=121"),
    "no cluster": (["evaluate", "{folder}", "--clusters", "0"], "'0': give a whole number"),
    "half a cluster": (["evaluate", "{folder}", "--clusters", "2.5"], "'2.5': give a whole number"),
    "bad number": (["evaluate", "{folder}", "--ridge", "much"], "'much': give a number, or auto"),
    "not a number": (["evaluate", "{folder}", "--temperature", "nan"], "'nan': give a number"),
    "no auto there": (
        ["evaluate", "{folder}", "--embedding-only-weight", "auto"],
        "'auto': give a number",
    ),
    "negative ridge": (["evaluate", "{folder}", "--ridge", "-1"], "ridge=-1.0"),
    "negative seed": (["evaluate", "{folder}", "--seed", "-1"], "'-1': give a whole number"),
    "bad seed of the demo": (["demo", "--seed", "one"], "'one': give a whole number"),
    "no seed": (["evaluate", "{folder}", "--seeds", "0"], "'0': give a whole number"),
    "bad share": (["evaluate", "{folder}", "--test-size", "1.5"], "test_size=1.5"),
    "too many probes": (["evaluate", "{folder}", "--probes", "7"], "take fewer probes"),
    "unknown model": (["evaluate", "{folder}", "--exclude-models", "gpt"], "'gpt'"),
    "too few models": (
        ["evaluate", "{folder}", "--exclude-models", "llm_0,llm_1,llm_2,llm_3"],
        "at least two models",
    ),
    "no such table": (["evaluate", "{folder}", "--source", "scores"], "source='scores'"),
    "no frozen folder": (["evaluate", "{folder}", "--frozen", "{empty}/x"], "no folder"),
    "no frozen file": (["evaluate", "{folder}", "--frozen", "{empty}"], "no seed_0.parquet"),
    "no frozen file of the last seed": (
        ["evaluate", "{folder}", "--frozen", "{frozen}", "--seeds", "2"],
        "no seed_1.parquet",
    ),
    "a frozen file that is none": (["evaluate", "{folder}", "--frozen", "{frozen}"], "as parquet"),
    "nowhere to write": (["evaluate", "{folder}", "--json", "{empty}/x/y.json"], "no folder"),
    "a folder to write": (["evaluate", "{folder}", "--json", "{empty}"], "is a folder"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_clear_line(
    case: str, folder: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "frozen").mkdir()
    (tmp_path / "frozen" / "seed_0.parquet").write_text("no table")
    args, message = REFUSED[case]
    places = {"folder": folder, "empty": tmp_path / "empty", "frozen": tmp_path / "frozen"}
    assert main([arg.format_map(places) for arg in args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bayes-ecc: ")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in err
    assert list((tmp_path / "empty").iterdir()) == []


# -------------------------------------------------------------------- files not to be written over


@pytest.fixture
def kept(folder: str, tmp_path: Path) -> dict[str, Path]:
    """A fit, a data set, an evaluation, a page and a CSV table, each of which may be dear."""
    place = {name: tmp_path / name for name in ("fit.nc", "ev.json", "page.html", "votes.csv")}
    data = simulate(n_queries=60, n_models=5, rng=0)
    save_posterior(ECC(2, max_iter=500, rng=0).fit(data.comparisons).posterior_, place["fit.nc"])
    place["ev.json"].write_text('{"methods": 1}')
    place["page.html"].write_text("<!DOCTYPE html><p>mine")
    place["votes.csv"].write_text("query_id,model_a\n")
    place["text"] = tmp_path / "text"
    place["text"].write_text("notes")
    place["data"] = tmp_path / "data"
    shutil.copytree(folder, place["data"])
    place["link"] = tmp_path / "link"
    place["link"].symlink_to(place["fit.nc"])
    return place


NOT_REPLACED = {
    "its own input": (["rank", "{fit.nc}", "--cluster", "0", "--json", "{fit.nc}"], "reads"),
    "its input by another name": (
        ["rank", "{fit.nc}", "--cluster", "0", "--json", "{link}"],
        "would be lost",
    ),
    "a fit by a page": (["report", "{fit.nc}", "--out", "{fit.nc}"], "would be lost"),
    "an evaluation by a page": (
        ["report", "{fit.nc}", "--evaluation", "{ev.json}", "--out", "{ev.json}"],
        "would be lost",
    ),
    "a table by a fit": (["fit", "{data}", "--out", "{votes.csv}"], "ends in .nc"),
    "a data set's table by a fit": (
        ["fit", "{data}", "--out", "{data}/queries.parquet"],
        "no place for a fit",
    ),
    "a data set's facts": (
        ["evaluate", "{data}", "--json", "{data}/bundle.json"],
        "belongs to a data set",
    ),
    "a fit by JSON": (["evaluate", "{data}", "--json", "{fit.nc}"], "no place for JSON"),
    "a fit without a suffix by JSON": (["evaluate", "{data}", "--json", "{link}"], "is not JSON"),
    "notes by JSON": (["route", "{data}", "--json", "{text}"], "is not JSON"),
    "notes by a fit": (["fit", "{data}", "--out", "{text}"], "is not a fit"),
    "notes by a page": (["report", "{fit.nc}", "--out", "{text}"], "is not HTML"),
    "a page by JSON": (["onboard", "{data}", "--json", "{page.html}"], "ends in .json"),
    "a new file of another kind": (["fit", "{data}", "--out", "{data}/new.csv"], "is no name"),
}


@pytest.mark.parametrize("case", NOT_REPLACED)
def test_what_is_not_a_result_of_the_same_kind_is_not_written_over(
    case: str, kept: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    args, message = NOT_REPLACED[case]
    places = {name: str(path) for name, path in kept.items()}
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    command = [re.sub(r"{(.*?)}", lambda name: places[name[1]], arg) for arg in args]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_result_replaces_one_of_its_own_kind(kept: dict[str, Path]) -> None:
    check_writable(kept["fit.nc"], "--out", "fit")
    check_writable(kept["ev.json"], "--json", "JSON")
    check_writable(kept["page.html"], "--out", "HTML")
    kept["text"].write_text("")
    check_writable(kept["text"], "--out", "fit")  # nothing is lost with an empty file
    assert kept["text"].read_text() == ""
    check_writable(Path(os.devnull), "--json", "JSON")
    with pytest.raises(InputError, match="no regular file"):  # it would be replaced
        check_writable(Path(os.devnull), "--out", "fit")


# -------------------------------------------------------------------- ends


def test_help_tells_of_every_command(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        assert re.search(rf"^ +{name} ", out, re.MULTILINE)
        assert main([name, "--help"]) == 0
        assert f"usage: bayes-ecc {name} " in capsys.readouterr().out
    assert "examples:" in out


def test_version_is_that_of_the_library(capsys: Capture) -> None:
    import bayes_ecc

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bayes-ecc {bayes_ecc.__version__}\n"


def test_an_interruption_ends_quietly(
    folder: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bayes_ecc.evaluation.evaluate", interrupt)
    assert main(["evaluate", folder]) == 130
    assert capsys.readouterr().err == "bayes-ecc: interrupted.\n"


def test_warnings_are_said_once_and_in_one_line(capsys: Capture) -> None:
    with short_warnings():
        for _ in range(2):
            warnings.warn("ECC stopped\n  early.", ConvergenceWarning, stacklevel=1)
            warnings.warn("Never compared: ada.", DataWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "bayes-ecc: warning: ECC stopped early.",
        "bayes-ecc: warning: Never compared: ada.",
    ]


def test_a_model_that_never_played_is_warned_of_once(tmp_path: Path, capsys: Capture) -> None:
    bundle = simulate(n_queries=60, n_models=5, rng=0).bundle()
    scores = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=list("abc"))
    scores["ada"] = np.nan
    scores.insert(0, "query_id", bundle.query_ids)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    bundle.queries.to_csv(tmp_path / "queries.csv", index=False)
    assert bundle.embeddings is not None
    np.save(tmp_path / "embeddings.npy", bundle.embeddings)
    args = ["evaluate", str(tmp_path), "--methods", "global,labels:topic", "--seeds", "2"]
    assert main(args) == 0
    err = capsys.readouterr().err
    assert err.count("Never compared: ada") == 1
    assert all(line.startswith("bayes-ecc: warning: ") for line in err.splitlines())


def run_process(*args: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bayes_ecc.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_process_of_its_own_refuses_without_a_traceback(folder: str) -> None:
    process = run_process("evaluate", folder, "--clusters", "9999")
    out, err = process.communicate()
    assert process.returncode == 2
    assert out == ""
    assert re.fullmatch(r"bayes-ecc: n_clusters=9999.*\n", err)


def test_nobody_needs_to_read_to_the_end() -> None:
    process = run_process("demo")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # as `head` does once it has what it wants
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert err == ""


def test_the_command_line_starts_without_the_samplers() -> None:
    code = "import sys, bayes_ecc.cli; print(*{'pymc', 'pytensor', 'arviz'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# -------------------------------------------------------------------- output


def test_json_is_strict_and_plain(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    value = {"a": [np.float64(1.5), float("nan"), np.inf], "b": (np.int64(2), None, True), 3: "é"}
    write_json(value, path)
    assert strict(path) == {"a": [1.5, None, None], "b": [2, None, True], "3": "é"}
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_written_whole_or_not_at_all(
    folder: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text("{}")

    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    args = ["evaluate", folder, "--methods", "global", "--json", str(path)]
    assert main(args) == 2
    assert "result.json cannot be written: No space left" in capsys.readouterr().err
    assert path.read_text() == "{}"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_json_goes_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_json, args=({"a": 1}, pipe))
    writer.start()
    assert json.loads(pipe.read_text(encoding="utf-8")) == {"a": 1}
    writer.join()
    assert pipe.is_fifo()


def test_a_table_gives_up_what_can_be_spared() -> None:
    columns = [
        Column("method", ["global", "ecc"]),
        Column("gain", ["0.0", "31.4"]),
        Column("sd", ["0.0", "0.6"], spare=True),
        Column("seconds", ["0.0", "12.0"], spare=True),
    ]
    assert format_table(columns, 26).splitlines() == [
        "method  gain   sd  seconds",
        "global   0.0  0.0      0.0",
        "ecc     31.4  0.6     12.0",
    ]
    assert format_table(columns, 25).splitlines()[0] == "method  gain   sd"
    assert format_table(columns, 5).splitlines()[0] == "method  gain"


def test_definitions_are_wrapped_beside_their_terms() -> None:
    text = definitions({"gain": "what is saved of the loss", "ECE": "calibration"}, 30)
    assert text.splitlines() == [
        "  gain  what is saved of the",
        "        loss",
        "  ECE   calibration",
    ]


def test_fit_for_queries_that_come_without_probes(
    folder: str, tmp_path: Path, capsys: Capture
) -> None:
    args = ["fit", folder, "--out", str(tmp_path / "fit.nc"), "--clusters", "2", "--chains", "1"]
    short = ["--draws", "10", "--concentration", "6", "--probes", "0"]
    assert main([*args, *short]) == 0
    assert "probe_power 1." in capsys.readouterr().out  # nothing to choose it by
