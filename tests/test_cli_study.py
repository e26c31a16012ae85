"""`bayes-ecc study`: what it prints, keeps and refuses."""

from __future__ import annotations

import re
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
