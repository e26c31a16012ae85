"""Onboarding studies: what is left out, what can be asked, how runs are told of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayes_ecc import Bundle, InputError, load_bundle, simulate
from bayes_ecc.evaluation import EvaluationSettings
from bayes_ecc.onboarding_study import study_onboarding, summarise_onboarding
from bayes_ecc.onboarding_tasks import leave_out, score_rank
from bayes_ecc.routing_study import routing_example
from bayes_ecc.splits import Split, draw_split, frozen_split

SETTINGS = EvaluationSettings(n_clusters=3, embedding_weight=1.0, ridge=0.1)


@pytest.fixture(scope="module")
def scored() -> tuple[Bundle, Split]:
    bundle, task = routing_example()
    return bundle, task.split


@pytest.fixture(scope="module")
def compared() -> tuple[Bundle, Split]:
    bundle = simulate(n_queries=250, n_models=5, n_clusters=3, rng=0).bundle()
    return bundle, draw_split(bundle)


def test_a_newcomer_is_left_out_of_everything_that_is_fitted(scored: Any) -> None:
    bundle, split = scored
    task = leave_out(bundle, split, "llm_1", known=2)
    assert "llm_1" not in task.old.train.models
    assert "llm_1" not in task.old.probes.models
    assert np.bincount(task.known.query).max() <= 2
    code = split.train.models.get_loc("llm_1")
    assert ((task.own.first == code) | (task.own.second == code)).all()
    mine = (split.scored.first == code) | (split.scored.second == code)
    assert len(task.test) == mine.sum()
    assert len(task.own) + len(task.old.train) == len(split.train)


def test_answers_come_from_the_scores(scored: Any) -> None:
    bundle, split = scored
    task = leave_out(bundle, split, "llm_1")
    table = bundle.scores.set_index("query_id")
    honest, published = task.allowed("honest"), task.allowed("published")
    assert honest.all()
    rng = np.random.default_rng(0)
    for _ in range(50):
        q, m = rng.integers(len(task.old.train.queries)), rng.integers(4)
        query, rival = task.old.train.queries[q], task.old.train.models[m]
        mine, other = table.loc[query, "llm_1"], table.loc[query, rival]
        assert published[q, m] == (mine != other)
        proposal = {"query_id": [query], "model_a": ["llm_1"], "model_b": [rival]}
        answer = task.ask(simple_frame(proposal))["outcome"].item()
        assert answer == (1.0 if other > mine else 0.0 if other < mine else 0.5)


def test_chances_of_a_decision_are_those_among_the_old_models(scored: Any) -> None:
    bundle, split = scored
    task = leave_out(bundle, split, "llm_1")
    table = bundle.scores.set_index("query_id").loc[task.old.train.queries, task.old.train.models]
    for q, row in enumerate(table.to_numpy()):
        differ = sum(row[i] != row[j] for i in range(4) for j in range(i))
        assert task.decided[q] == pytest.approx((differ + 1) / 8)


def simple_frame(columns: dict[str, list[str]]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns)


def test_without_scores_the_comparisons_held_answer(compared: Any) -> None:
    bundle, split = compared
    task = leave_out(bundle, split, "llm_1")
    rows = task.own.to_frame()
    there = ~np.isnan(task.outcome)
    pairs = rows.assign(
        rival=np.where(rows["model_a"] == "llm_1", rows["model_b"], rows["model_a"]),
        won=np.where(rows["model_a"] == "llm_1", 1 - rows["outcome"], rows["outcome"]),
    )
    means = pairs.groupby(["query_id", "rival"])["won"].mean()
    assert there.sum() == len(means)
    for (query, rival), won in means.items():
        q = task.old.train.queries.get_loc(query)
        m = task.old.train.models.get_loc(rival)
        assert task.outcome[q, m] == pytest.approx(won)
    assert score_rank(bundle, task) is None


def test_a_study_is_ready_for_json_and_repeats_itself(compared: Any) -> None:
    bundle, split = compared
    results = [
        study_onboarding(
            bundle, [split], ["ecc"], SETTINGS, budgets=[5, 15], newcomers=["llm_0", "llm_3"],
            draws=40,
        )
        for _ in range(2)
    ]  # fmt: skip
    assert json.dumps(results[0]) == json.dumps(results[1])
    found = results[0]
    assert set(found) == {"protocol", "curves", "reached", "rank_intervals", "ranks", "runs"}
    assert len(found["runs"]) == 2 * 3 * 2
    point = found["curves"]["ecc"]["design"]["15"]
    rows = [r for r in found["runs"] if r["rule"] == "design" and r["budget"] == 15]
    gains = [row["embedding"]["gain"] for row in rows]
    assert point["embedding"]["gain"] == pytest.approx(np.median(gains))
    for row in found["runs"]:
        assert row["asked"] == row["budget"]
        assert 1 <= row["rank_lower"] <= row["rank_upper"] <= 5
        loss = row["embedding"]["loss"]
        assert row["embedding"]["gain"] == pytest.approx(100 * (1 - loss / row["global"]))


def test_the_honest_protocol_pays_for_ties(scored: Any) -> None:
    bundle, split = scored
    found = study_onboarding(
        bundle, [split], ["ecc"], SETTINGS, budgets=[20], newcomers=["llm_2"], draws=40,
        protocol="honest", rules=["random"],
    )  # fmt: skip
    (row,) = found["runs"]
    assert row["asked"] == 20
    assert row["decided"] < 20
    assert found["reached"] == {}
    task = leave_out(bundle, split, "llm_2")
    assert found["ranks"]["score"]["llm_2"] == [score_rank(bundle, task)]


def test_budgets_beyond_what_can_be_asked_end_there() -> None:
    bundle = simulate(n_queries=40, n_models=5, n_clusters=2, rng=0).bundle()
    found = study_onboarding(
        bundle, [draw_split(bundle)], ["ecc"], EvaluationSettings(n_clusters=2),
        budgets=[10, 500], newcomers=["llm_1"], draws=40, rules=["published"],
    )  # fmt: skip
    first, last = found["runs"]
    assert first["asked"] == 10
    assert 10 < last["asked"] < 40


def run(rule: str, budget: int, loss: float, gain: float, rank: tuple[int, int]) -> dict[str, Any]:
    signal = {"loss": loss, "gain": gain}
    return {
        "method": "ecc", "rule": rule, "budget": budget, "global": 0.5, "decided": budget,
        "embedding": signal, "embedding+probe": signal,
        "rank": sum(rank) / 2, "rank_lower": rank[0], "rank_upper": rank[1], "full_rank": 3,
    }  # fmt: skip


def test_what_was_reached_is_told_by_loss_and_by_gain() -> None:
    runs = [
        run("published", 10, 0.45, 10.0, (1, 5)),
        run("published", 20, 0.40, 20.0, (2, 4)),
        run("design", 10, 0.39, 19.0, (4, 5)),
        run("design", 20, 0.38, 25.0, (3, 3)),
        run("random", 10, 0.60, 1.0, (1, 5)),
        run("random", 20, 0.50, 2.0, (1, 5)),
    ]
    found = summarise_onboarding(runs)
    reached = found["reached"]["ecc"]
    assert reached["design"]["embedding"] == {"loss": 10, "gain": 20}
    assert reached["published"]["embedding"] == {"loss": 20, "gain": 20}
    assert reached["random"]["embedding"] == {"loss": None, "gain": None}
    intervals = found["rank_intervals"]["ecc"]
    assert intervals["design"]["10"]["coverage"] == 0
    assert intervals["design"]["all"] == {
        "coverage": 0.5, "width": 1.5, "error": 0.75, "runs": 2,
    }  # fmt: skip
    assert intervals["published"]["20"]["width"] == 3


def test_refusals_say_what_is_allowed(compared: Any) -> None:
    bundle, split = compared
    for wrong, message in (
        ({"methods": ["labels:topic"]}, "no clusters"),
        ({"methods": "ecc"}, "list of one method"),
        ({"rules": ["best"]}, "rules='best'"),
        ({"budgets": [20, 10]}, "ascending"),
        ({"protocol": "none"}, "protocol='none'"),
        ({"newcomers": ["gpt"]}, "newcomer 'gpt'"),
        ({"repeats": 0}, "repeats=0"),
        ({"level": 1.5}, r"level=1\.5: give a probability"),
    ):
        with pytest.raises(InputError, match=message):
            study_onboarding(bundle, [split], **{"methods": ["ecc"], **wrong})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no split"):
        study_onboarding(bundle, [], ["ecc"])


def test_a_design_tells_more_than_chance_on_real_data(
    shared_data: Path, shared_protocol: Path
) -> None:
    bundle = load_bundle(shared_data / "routerdc")
    split = frozen_split(bundle, shared_protocol / "routerdc" / "seed_0.parquet")
    names = ["mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct"]
    found = study_onboarding(
        bundle, [split], ["ecc"], EvaluationSettings(embedding_weight=1.0, ridge=0.1),
        budgets=[30], newcomers=names, rules=["design"], draws=100,
    )  # fmt: skip
    assert found["ranks"]["ecc"] == {names[0]: [6], names[1]: [1]}
    assert found["ranks"]["score"] == {names[0]: [6], names[1]: [1]}
    assert found["rank_intervals"]["ecc"]["design"]["30"]["width"] < 5
    for row in found["runs"]:
        assert row["rank_lower"] <= row["full_rank"] <= row["rank_upper"]
        assert row["embedding+probe"]["gain"] > 5
