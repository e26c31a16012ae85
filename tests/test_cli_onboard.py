"""`bayes-ecc onboard`."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from bayes_ecc import ECC, Bundle, save_bundle, simulate, start_onboarding
from bayes_ecc.cli import main


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "small"
    save_bundle(simulate(n_queries=250, n_models=5, n_clusters=3, rng=0).bundle(), folder)
    return folder


def test_it_prints_a_table_and_writes_json(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "result.json"
    code = main(
        ["onboard", str(bundle), "--methods", "ecc", "--clusters", "3", "--embedding-weight", "1",
         "--budgets", "5,10", "--newcomers", "llm_0,llm_2", "--rules", "design,published",
         "--batch", "5", "--json", str(target)]
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 0
    assert "2 of 5 models new in turn" in shown
    assert "As good as published with 10" in shown
    assert len([line for line in shown.splitlines() if line.startswith("design")]) == 2
    result = json.loads(target.read_text())
    assert list(result["curves"]["ecc"]) == ["design", "published"]
    assert result["protocol"]["budgets"] == [5, 10]
    assert len(result["runs"]) == 8


def test_one_rule_alone_has_nothing_to_be_held_against(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["onboard", str(bundle), "--methods", "ecc", "--clusters", "2", "--budgets", "5",
         "--newcomers", "llm_0", "--rules", "random", "--protocol", "honest"]
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 0
    assert "As good as" not in shown
    assert "honest protocol" in shown


def test_a_newcomer_is_tested_where_nothing_is_read_of_a_query(
    tmp_path: Path,
) -> None:
    truth = simulate(n_queries=120, n_models=4, n_clusters=2, per_query=4, rng=2)
    queries = pd.DataFrame({"query_id": truth.comparisons.queries})
    bare = Bundle("bare", queries, comparisons=truth.comparisons.to_frame())
    save_bundle(bare, tmp_path / "bare")
    assert main(
        ["onboard", str(tmp_path / "bare"), "--methods", "ecc", "--newcomers", "llm_1",
         "--clusters", "2", "--budgets", "10", "--rules", "random",
         "--json", str(tmp_path / "r.json")]
    ) == 0  # fmt: skip
    run = json.loads((tmp_path / "r.json").read_text())["runs"][0]
    assert run["embedding"]["loss"] != run["embedding+probe"]["loss"]
    fit = ECC(2, ridge=0.3, rng=0).fit(truth.comparisons.drop_models(["llm_1"]))
    joining = start_onboarding(fit.posterior_, "llm_1", rng=0)
    alike = joining.win_probability(queries=["a", "b"])
    assert alike["query"].values.tolist() == ["a", "b"]
    assert (alike.isel(query=0) == alike.isel(query=1)).all()


def test_a_budget_that_cannot_be_spent_is_told(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "result.json"
    assert main(
        ["onboard", str(bundle), "--methods", "ecc", "--clusters", "2", "--budgets", "10,100000",
         "--batch", "50", "--newcomers", "llm_0", "--rules", "random,published",
         "--json", str(target)]
    ) == 0  # fmt: skip
    shown = " ".join(capsys.readouterr().out.split())
    asked = {run["asked"] for run in json.loads(target.read_text())["runs"]}
    most = max(asked)
    assert asked == {10, most}
    assert 10 < most <= 200
    assert f"random {most} " in shown
    assert f"As good as published with {most} " in shown
    assert "--budgets 100000: more than can be asked for. A newcomer is compared once" in shown
    assert shown.count("100000") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "global"], "no clusters"),
        (["--budgets", "20,10"], "ascending"),
        (["--budgets", "ten"], "whole number"),
        (["--newcomers", "gpt"], "gpt"),
        (["--rules", "best"], "rules='best'"),
        (["--level", "1.5"], "--level: '1.5': give a probability"),
        (["--newcomers", "llm_1", "--exclude-models", "llm_1"], "--exclude-models leaves out"),
    ],
)
def test_it_refuses_in_one_line(
    bundle: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--clusters", "2"] + ([] if "--budgets" in options else ["--budgets", "5"])
    method = [] if "--methods" in options else ["--methods", "ecc"]
    assert main(["onboard", str(bundle), *few, *method, *options]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert message in told[-1]
