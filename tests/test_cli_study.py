"""`bayes-ecc study`: what it prints, keeps and refuses."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import Bundle, save_bundle, simulate
from bayes_ecc.cli import main
from bayes_ecc.studies import COLUMNS, STUDIES
from bayes_ecc.studies import work as work_module

type Capture = pytest.CaptureFixture[str]

SMALL = ["--clusters", "3", "--embedding-weight", "1", "--ridge", "0.1"]


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> str:
    bundle = simulate(n_queries=150, n_models=5, spread=4, rng=1).bundle()
    return str(save_bundle(bundle, tmp_path_factory.mktemp("data") / "votes"))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(120, 6)).astype(np.float32)
    queries = pd.DataFrame({"query_id": [f"q{i}" for i in range(120)]})
    scores = pd.DataFrame(vectors @ rng.normal(size=(6, 5)), columns=list("abcde")).round()
    scores.insert(0, "query_id", queries["query_id"])
    bundle = Bundle("scored", queries, scores=scores, embeddings=vectors)
    return str(save_bundle(bundle, tmp_path_factory.mktemp("data") / "scored"))


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run where a default folder does no harm, on a terminal of one width."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_study_prints_gains_and_keeps_its_table(
    votes: str, elsewhere: Path, capsys: Capture
) -> None:
    assert main(["study", "probes,main", votes, *SMALL, "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    assert "kept in study-votes" in err
    folder = elsewhere / "study-votes"
    table = pd.read_csv(folder / "probes.csv", keep_default_na=False, na_values=[""])
    assert tuple(table.columns) == COLUMNS
    assert len(table) == 3 * 3 * 2 * 6
    assert sorted(path.name for path in folder.glob("*.csv")) == ["main.csv", "probes.csv"]
    lines = out.splitlines()
    both = table[table["signal"] == "embedding+probe"]
    heading = next(i for i, line in enumerate(lines) if line.startswith("n_probes"))
    assert lines[heading].split() == ["n_probes", "embedding", "comparisons", "ecc"]
    for n_probes in range(1, 7):
        rows = both[(both["n_probes"] == n_probes) & (both["method"] == "ecc")]["gain"]
        shown = lines[heading + n_probes].split()
        assert shown[0] == str(n_probes)
        assert shown[-2:] == [f"{rows.mean():.1f}", f"±{rows.std():.1f}"]
    mean = both.groupby(["method", "n_probes"])["gain"].mean()
    best = {method: mean[method].idxmax() for method in ("embedding", "comparisons", "ecc")}
    said = ", ".join(f"{method} at {n_probes}" for method, n_probes in best.items())
    assert f"Highest: {said}." in lines
    assert "MAIN: " in out
    assert max(map(len, lines)) <= 100


def test_a_study_goes_on_from_its_folder(
    votes: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["study", "main", votes, *SMALL, "--seeds", "1", "--folder", str(tmp_path / "kept")]
    assert main(command) == 0
    first = capsys.readouterr().out

    def fails(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(work_module, "fit_method", fails)
    assert main(command) == 0
    assert capsys.readouterr().out == first


def test_an_interrupted_study_keeps_what_is_finished(
    votes: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_method, done = work_module.fit_method, []

    def interrupted(*arguments: object) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(arguments)
        return fit_method(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(work_module, "fit_method", interrupted)
    command = ["study", "main", votes, *SMALL, "--seeds", "2", "--folder", str(tmp_path / "kept")]
    assert main(command) == 130
    assert "interrupted" in capsys.readouterr().err
    assert len(list((tmp_path / "kept").glob("*.json"))) == 2
    monkeypatch.setattr(work_module, "fit_method", fit_method)
    assert main(command) == 0
    assert len(list((tmp_path / "kept").glob("*.json"))) == 6


def test_an_interruption_leaves_nothing_of_its_workers(votes: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    args = ["study", "clusters,ridge,temperature", votes, "--methods", "ecc", "--jobs", "2"]
    script = (  # a process started in the background ignores the signal of Ctrl-C
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from bayes_ecc.cli import main; sys.exit(main({[*args, '--folder', str(kept)]}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 60
        while not list(kept.glob("*.json")) and time.monotonic() < end:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
        told = process.communicate(timeout=30)[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "bayes-ecc: interrupted." in told
    assert "leaked" not in told


def test_a_grid_of_ones_own(votes: str, elsewhere: Path, capsys: Capture) -> None:
    command = ["study", "grid", votes, "--methods", "ecc", "--seeds", "1", "--ridge", "0.1"]
    vary = ["--vary", "n_clusters=2,3", "--vary", "embedding-weight=1,auto"]
    assert main([*command, *vary, "--signal", "embedding"]) == 0
    out = capsys.readouterr().out
    table = pd.read_csv(elsewhere / "study-votes" / "grid.csv")
    assert set(zip(table["n_clusters"], table["embedding_weight"], strict=True)) == {
        (k, w) for k in (2, 3) for w in ("1", "auto")
    }
    assert "Gain, embedding:" in out
    assert [line.split()[:2] for line in out.splitlines()[3:7]] == [
        ["2", "1"],
        ["2", "auto"],
        ["3", "1"],
        ["3", "auto"],
    ]


def test_labels_encoders_and_judges(
    votes: str, scored: str, elsewhere: Path, capsys: Capture
) -> None:
    quick = [*SMALL, "--methods", "ecc", "--seeds", "1"]
    assert main(["study", "ood", votes, *quick, "--label", "capability"]) == 0
    out = capsys.readouterr().out
    assert sum(line.startswith("capability_") for line in out.splitlines()) == 4
    np.save(elsewhere / "random.npy", np.random.default_rng(0).normal(size=(120, 4)))
    scores = pd.read_parquet(Path(scored) / "scores.parquet")
    scores.assign(a=-scores["a"]).to_csv(elsewhere / "strict.csv", index=False)
    extra = ["--encoder", "random=random.npy", "--judge", "strict=strict.csv"]
    assert main(["study", "encoders,judges", scored, *quick, *extra]) == 0
    out = capsys.readouterr().out
    assert "random" in out
    assert re.search(r"^bundle +strict +judge +\d\.\d\d", out, re.MULTILINE)
    agreement = pd.read_csv(elsewhere / "study-scored" / "judge_agreement.csv")
    assert agreement["differs"].tolist() == ["start", "draw", "start", "draw", "judge"]
    judges = pd.read_csv(elsewhere / "study-scored" / "judges.csv")
    assert set(zip(judges["judge"], judges["tested_by"], strict=True)) == {
        (a, b) for a in ("bundle", "strict") for b in ("bundle", "strict")
    }


def test_all_studies_are_those_the_options_allow(
    scored: str, elsewhere: Path, capsys: Capture
) -> None:
    quick = ["--methods", "global", "--seeds", "1", "--jobs", "1"]
    assert main(["study", "all", scored, *quick]) == 0
    out = capsys.readouterr().out
    expected = set(STUDIES) - {"encoders", "ood", "judges"}
    assert {path.stem for path in (elsewhere / "study-scored").glob("*.csv")} == expected
    assert all(f"{name.upper()}: " in out for name in expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["clustres"], "do you mean 'clusters'"),
        ([","], "NAME is empty"),
        (["grid"], "--vary SETTING=A,B"),
        (["main", "--vary", "ridge=1"], "--vary is for the study grid"),
        (["grid", "--vary", "ridge"], "give a setting and its values"),
        (["grid", "--vary", "K=2"], "cannot vary 'K'"),
        (["grid", "--vary", "n_clusters=many"], "n_clusters='many'"),
        (["ood"], "name a label column"),
        (["encoders", "--encoder", "x"], "NAME=FILE"),
        (["encoders", "--encoder", "x=missing.npy"], "there is no file missing.npy"),
        (["judges", "--judge", "x=missing.csv"], "there is no file missing.csv"),
        (["main", "--methods", "knn"], "There is no method 'knn'"),
        (["main", "--train-fraction", "2"], "train_fraction=2.0"),
        (["main", "--seeds", "0"], "give a whole number"),
    ],
)
def test_what_is_refused(votes: str, options: list[str], said: str, capsys: Capture) -> None:
    assert main(["study", options[0], votes, *options[1:]]) == 2
    assert said in capsys.readouterr().err


def test_help_names_every_study(capsys: Capture) -> None:
    assert main(["study", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in STUDIES)


# ---------------------------------------------------------------- what would mislead


def gain_lines(out: str, setting: str) -> list[list[str]]:
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(setting))
    rows = (line.split() for line in lines[start + 1 :])
    return list(itertools.takewhile(lambda row: row and row[0][0].isdigit(), rows))


def test_a_setting_varied_twice_has_all_its_values_and_one_value_is_shown(
    scored: str, elsewhere: Path, capsys: Capture
) -> None:
    command = ["study", "grid", scored, *SMALL, "--methods", "ecc", "--seeds", "1"]
    assert main([*command, "--vary", "ridge=0.1", "--vary", "ridge=1,0.1"]) == 0
    assert [row[0] for row in gain_lines(capsys.readouterr().out, "ridge")] == ["0.1", "1"]
    assert main([*command, "--vary", "ridge=3"]) == 0
    assert [row[0] for row in gain_lines(capsys.readouterr().out, "ridge")] == ["3"]
    assert set(pd.read_csv(elsewhere / "study-scored" / "grid.csv")["ridge"]) == {3}


def test_a_grid_of_methods_and_settings_keeps_both_apart(scored: str, capsys: Capture) -> None:
    command = ["study", "grid", scored, *SMALL, "--seeds", "1"]
    assert main([*command, "--vary", "method=ecc,global", "--vary", "ridge=0.1,1"]) == 0
    rows = gain_lines(capsys.readouterr().out, "ridge")
    assert [(row[0], len(row)) for row in rows] == [("0.1", 3), ("1", 3)]


def test_a_method_that_does_not_read_a_setting_has_no_best_value_of_it(
    scored: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(method: str, *rest: object) -> object:
        return fit_method(method.partition(":")[0], *rest)  # type: ignore[arg-type]

    fit_method = work_module.fit_method
    monkeypatch.setattr(work_module, "fit_method", quick)
    methods = ["--methods", "ecc:auto,ecc,global"]
    assert main(["study", "ridge", scored, *SMALL, *methods, "--seeds", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"Highest: ecc at [\d.]+\. ecc:auto does not read ridge \(it is chosen", out)
    assert "global does not" not in out


def test_more_comparisons_than_there_are_is_told(scored: str, capsys: Capture) -> None:
    command = ["study", "grid", scored, *SMALL, "--methods", "ecc", "--seeds", "1"]
    assert main([*command, "--vary", "per_query=3,50,999"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    found = re.search(r"per_query 50, 999: more than .* fitted were ([\d.]+) a training query", out)
    assert found
    assert 3 < float(found[1]) <= 10  # pairs of five models


def test_one_vote_a_query_is_studied_without_probes(tmp_path: Path, capsys: Capture) -> None:
    truth = simulate(n_queries=200, n_models=4, n_clusters=2, per_query=1, rng=2)
    queries = pd.DataFrame({"query_id": truth.comparisons.queries})
    for name, vectors in (("bare", None), ("vectors", truth.embeddings)):
        votes = Bundle(name, queries, comparisons=truth.comparisons.to_frame(), embeddings=vectors)
        folder = str(save_bundle(votes, tmp_path / name))
        command = ["study", "main", folder, "--methods", "ecc", "--clusters", "2", "--seeds", "1"]
        assert main(command) == 2
        told = capsys.readouterr().err
        assert "one comparison a query" in told
        assert "--probes 0" in told
        assert main([*command, "--probes", "0"]) == 0
        assert re.search(r"^ecc +(-?\d+\.\d +)?-?\d+\.\d$", capsys.readouterr().out, re.MULTILINE)
        table = pd.read_csv(f"study-{name}/main.csv")
        assert table["n_scored"].tolist() == [40] * len(table)


def test_data_without_embeddings_are_shown_by_what_is_read(tmp_path: Path, capsys: Capture) -> None:
    truth = simulate(n_queries=100, n_models=4, n_clusters=2, per_query=3, rng=2)
    queries = pd.DataFrame({"query_id": truth.comparisons.queries})
    bare = Bundle("bare", queries, comparisons=truth.comparisons.to_frame())
    folder = str(save_bundle(bare, tmp_path / "bare"))
    assert main(["study", "ridge", folder, *SMALL, "--methods", "ecc", "--seeds", "1"]) == 0
    out = capsys.readouterr().out
    assert "Gain, probe:" in out
    assert len(gain_lines(out, "ridge")) == 6


# ---------------------------------------------------------------- folders


def test_a_data_set_is_no_folder_for_a_study(scored: str, votes: str, capsys: Capture) -> None:
    before = {path: path.read_bytes() for path in Path(votes).iterdir()}
    for data in (votes, scored):
        assert main(["study", "comparisons", data, *SMALL, "--folder", votes]) == 2
        assert "holds a data set" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in Path(votes).iterdir()}


def test_tables_of_another_data_set_or_of_no_study_are_not_replaced(
    scored: str, votes: str, tmp_path: Path, capsys: Capture
) -> None:
    command = [*SMALL, "--methods", "ecc", "--seeds", "1", "--folder", str(tmp_path / "kept")]
    assert main(["study", "main", scored, *command]) == 0
    table = tmp_path / "kept" / "main.csv"
    before = table.read_bytes()
    capsys.readouterr()
    assert main(["study", "main", votes, *command]) == 2
    told = capsys.readouterr().err
    assert "is of the data set 'scored', not of 'votes'" in told
    assert table.read_bytes() == before
    assert main(["study", "probe_choice", votes, *command]) == 0  # no table is lost by this one
    (tmp_path / "kept" / "ridge.csv").write_text("name,age\nada,36\n")
    capsys.readouterr()
    assert main(["study", "ridge", scored, *command]) == 2
    assert "ridge.csv exists and is not the table of a study" in capsys.readouterr().err
