"""The audit as a whole: what it gives, what it refuses, and the command."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import ECC
from bayes_ecc.auditing import Audit, Finding, audit
from bayes_ecc.auditing.findings import SEVERITIES, listed, plural
from bayes_ecc.auditing.source import make_source, normalised
from bayes_ecc.bundle import Bundle
from bayes_ecc.cli import main
from bayes_ecc.datasets.simulate import simulate
from bayes_ecc.errors import InputError
from bayes_ecc.folders import save_bundle
from bayes_ecc.splits import draw_split
from bayes_ecc.storage import save_posterior


def finding(name: str, severity: str = "note", **figures: object) -> Finding:
    return Finding(name, severity, "Found <this>.", "It matters.", "Do that.", figures, ("a", "b"))


@pytest.fixture
def broken(simulated: Bundle) -> Bundle:
    """The simulated bundle with the embeddings of other queries."""
    order = np.random.default_rng(0).permutation(len(simulated.queries))
    return replace(simulated, embeddings=simulated.embeddings[order])


def test_findings_are_sorted_and_frozen() -> None:
    result = Audit(
        "'x'", (finding("one"), finding("two", "error"), finding("three", "warning")), {}
    )
    assert [found.severity for found in result.findings] == list(SEVERITIES)[:3]
    assert not result.ok
    assert Audit("'x'", (finding("one"), finding("three", "warning")), {}).ok
    assert [found.name for found in result.named("two")] == ["two"]
    with pytest.raises(FrozenInstanceError):
        result.findings[0].name = "other"
    with pytest.raises(TypeError):
        result.findings[0].figures["more"] = 1


def test_findings_can_be_written() -> None:
    figures = {
        "a": np.float64(0.5),
        "b": np.array([1, 2]),
        "c": float("nan"),
        "d": {3: (np.int8(4),)},
    }
    result = Audit("'x'", (finding("one", **figures),), {"one": "done", "two": "needs texts"})
    content = json.loads(result.to_json())
    assert content["findings"][0]["figures"] == {"a": 0.5, "b": [1, 2], "c": None, "d": {"3": [4]}}
    assert content["checks"] == {"one": "done", "two": "needs texts"}
    assert result.to_frame().loc[0, "affected"] == ["a", "b"]
    assert list(Audit("'x'", (), {}).to_frame().columns) == list(result.to_frame().columns)
    assert pickle.loads(pickle.dumps(result)) == result
    text = str(result)
    assert "no errors, no warnings, 1 note" in text
    assert "Why: It matters." in text
    assert "Do: Do that." in text
    assert "two (needs texts)" in text
    assert "Found &lt;this&gt;." in result._repr_html_()


def test_words() -> None:
    assert listed("abcd", 2) == "a, b and 2 more"
    assert plural(1, "query", "queries") == "1 query"
    assert plural(12032, "query", "queries") == "12,032 queries"
    assert normalised("  \uff37hat\tIS\nlove? ") == "what is love?"


def test_every_finding_says_why_and_what_to_do(broken: Bundle) -> None:
    result = audit(broken)
    assert not result.ok
    assert result.findings[0].name == "swapped_embeddings"
    for found in result.findings:
        assert found.why.endswith(".")
        assert found.remedy.endswith((".", "?"))
        assert found.figures


def test_audit_is_the_same_every_time_and_changes_nothing(simulated: Bundle) -> None:
    before = {name: getattr(simulated, name).copy() for name in ("queries", "scores")}
    assert audit(simulated).to_json() == audit(simulated).to_json()
    for name, table in before.items():
        pd.testing.assert_frame_equal(getattr(simulated, name), table)


def test_simulated_votes_have_notes_alone() -> None:
    for seed in range(5):
        data = simulate(n_queries=1500, rng=seed)
        assert {found.severity for found in audit(data.bundle()).findings} <= {"note", "warning"}
        assert audit(data.comparisons).ok


def test_a_bundle_with_scores_and_votes_has_both_looked_at(simulated: Bundle) -> None:
    votes = simulated.draw_comparisons(rng=0).drop_models(["llm_0"])
    both = replace(simulated, comparisons=votes.to_frame())
    result = audit(both)
    assert result.ok
    assert result.checks["misaligned_scores"] == result.checks["repeated_votes"] == "done"
    assert result.named("counts")[0].figures["comparisons"] == len(votes)
    assert not result.named("never_compared")  # llm_0 only has scores


# -------------------------------------------------------------------- labels


def test_label_columns_are_those_with_few_values(simulated: Bundle) -> None:
    queries = simulated.queries.assign(
        number=range(len(simulated.queries)), constant=1, share=0.5, tags=[["a"]] * 1500
    )
    source = make_source(replace(simulated, queries=queries))
    assert [label.name for label in source.labels] == ["topic"]


def test_labels_can_be_given(simulated: Bundle) -> None:
    topics = simulated.labels("topic")
    by_name = make_source(simulated, "topic").labels[0]
    by_id = make_source(simulated, topics.sample(frac=1, random_state=0)).labels[0]
    by_place = make_source(simulated, topics.to_numpy()).labels[0]
    for label in (by_id, by_place):
        np.testing.assert_array_equal(label.codes, by_name.codes)
        assert label.levels == by_name.levels
    votes = simulated.draw_comparisons(rng=0)
    assert make_source(votes, topics).labels[0].name == "topic"
    holes = topics.where(topics != "topic_0", None)
    assert (make_source(simulated, holes).labels[0].codes == -1).sum() == (
        topics == "topic_0"
    ).sum()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("kind", "no label column 'kind'"),
        (["a", "b"], "2 values for 1500 queries"),
        (3, "labels=3"),
        (pd.Series(["a"], index=["q0000"]), "has none for 1499"),
        (pd.Series(["a", "b"], index=["q0000", "q0000"]), "more than one label"),
    ],
)
def test_labels_that_do_not_fit(simulated: Bundle, labels: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit(simulated, labels=labels)


def test_data_of_another_kind(simulated: Bundle) -> None:
    with pytest.raises(InputError, match="not DataFrame"):
        audit(simulated.scores)
    with pytest.raises(InputError, match="labels='topic'"):
        audit(simulated.draw_comparisons(rng=0), labels="topic")


# -------------------------------------------------------------------- the command


def test_command_succeeds_without_errors(
    simulated: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(save_bundle(simulated, tmp_path / "fine"))
    assert main(["audit", folder]) == 0
    assert "Audit of 'fine': no errors" in capsys.readouterr().out
    assert main(["audit", folder, "--json", "--labels", "topic"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["ok"]


def test_command_fails_with_errors(
    broken: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(save_bundle(broken, tmp_path / "broken"))
    assert main(["audit", folder]) == 1
    assert "ERROR   swapped_embeddings" in capsys.readouterr().out
    assert main(["audit", folder, "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["ok"]


def test_command_refuses_what_it_cannot_read(
    simulated: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not there" in capsys.readouterr().err
    folder = str(save_bundle(simulated, tmp_path / "fine"))
    assert main(["audit", folder, "--labels", "kind"]) == 2
    assert "no label column" in capsys.readouterr().err
    assert main(["audit", folder, "--fit", str(tmp_path / "no.nc")]) == 2
    assert "no.nc" in capsys.readouterr().err


def test_command_looks_at_a_fit_and_a_split(
    simulated: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(save_bundle(simulated, tmp_path / "fine"))
    split = draw_split(simulated, seed=0)
    parts = {"train": split.train, "test": split.scored}
    frozen = pd.concat(
        [
            data.to_frame().assign(
                winner=np.where(data.outcome == 1, "model_b", "model_a"), split=side, probe=False
            )
            for side, data in parts.items()
        ]
    )
    frozen.to_parquet(tmp_path / "seed_0.parquet", index=False)
    fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(split.train, split.train_embeddings)
    saved = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    options = ["--fit", str(saved), "--split", str(tmp_path / "seed_0.parquet"), "--json"]
    assert main(["audit", folder, *options]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks["split"] == checks["cluster_graphs"] == "done"
