"""Loaders of comparison tables: who won by whose rule, what is dropped, what is refused."""

from __future__ import annotations

import json

import pytest

from bayes_ecc import InputError
from bayes_ecc.datasets import load_alpaca_eval, load_lmarena, load_long_table, load_mt_bench

GPT, LLAMA = "gpt", "meta/llama-3.1"


def rows(bundle, *columns):
    return list(bundle.comparisons[list(columns)].itertuples(index=False, name=None))


def refused(load, *args, **options):
    with pytest.raises(InputError) as caught:
        load(*args, **options)
    return str(caught.value)


# ------------------------------------------------------------------------------ LMArena


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_lmarena_of_three_truth_values(samples, tmp_path, suffix):
    loaded = load_lmarena(samples.write_rows(tmp_path / f"train{suffix}", samples.votes_55k()))
    assert rows(loaded.bundle, "query_id", "model_a", "model_b", "winner") == [
        ("30192", GPT, LLAMA, "model_a"),
        ("30194", GPT, LLAMA, "tie"),
    ]
    assert loaded.bundle.queries["text"].tolist() == [
        "Is it right?\n\nWhy, 0?",
        "Is it right?\n\nWhy, 2?",
    ]
    assert (loaded.counts.read, loaded.counts.used) == (3, 2)
    assert loaded.counts.dropped == {"an LLM against itself": 1}


@pytest.mark.parametrize("suffix", [".parquet", ".json", ".jsonl"])
def test_lmarena_of_one_column(samples, tmp_path, suffix):
    loaded = load_lmarena(samples.write_rows(tmp_path / f"train{suffix}", samples.votes_140k()))
    bundle, counts = loaded.bundle, loaded.counts
    assert rows(bundle, "winner", "vote") == [
        ("model_a", "model_a"),
        ("tie", "tie (bothbad)"),
        ("tie", "both_bad"),
        ("tie", "tie"),
        ("model_b", "model_b"),
    ]
    assert bundle.comparisons["model_b"].tolist() == ["qwen", LLAMA, "qwen", LLAMA, "qwen"]
    assert bundle.queries["text"].tolist() == [f"Hello {row}" for row in range(5)]
    assert bundle.labels("language").isna().tolist() == [True] + [False] * 4
    assert (counts.read, counts.used, counts.dropped) == (6, 5, {"no winner": 1})
    assert counts.notes == {"ties, both bad": 2}


def test_lmarena_without_ids_and_with_votes_on_one_query(samples, tmp_path):
    votes = [{"model_a": "a", "model_b": "b", "winner": "tie"} for _ in range(2)]
    path = samples.write_json(tmp_path / "clean_battle.json", votes)
    assert load_lmarena(path).bundle.query_ids.tolist() == [
        "clean_battle-000000",
        "clean_battle-000001",
    ]
    same = [
        {**vote, "question_id": "q", "prompt": "Hi", "judge": j} for j, vote in enumerate(votes)
    ]
    bundle = load_lmarena(samples.write_json(tmp_path / "same.json", same)).bundle
    assert bundle.query_ids.tolist() == ["q"]
    assert rows(bundle, "query_id", "judge") == [("q", 0), ("q", 1)]
    same[1]["prompt"] = "Bye"
    path = samples.write_json(tmp_path / "other.json", same)
    assert f"{path}, row 1: 'q' has another text" in refused(load_lmarena, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"winner": "Model A"}, ", row 1: found 'Model A' as winner; allowed are model_a, model_b"),
        ({"winner": 1}, ", row 1: found 1 as winner"),
        ({"model_a": None}, ", row 1: found no value as model_a"),
        ({"model_b": 7}, ", row 1: found 7 as model_b"),
        ({"id": None}, ", row 1: found no value as id"),
        ({"language": ["en"]}, ", row 1: found ['en'] as language"),
    ],
)
def test_lmarena_refuses(samples, tmp_path, change, message):
    votes = samples.votes_140k()
    votes[1] = {**votes[1], **change}
    path = samples.write_json(tmp_path / "votes.json", votes)
    assert f"{path}{message}" in refused(load_lmarena, path)


@pytest.mark.parametrize("flags", [(1, 1, 0), (0, 0, 0), (0.5, 0, 0.5), (1, 0, None), (2, 0, 0)])
def test_lmarena_refuses_truth_values_that_are_not_one(samples, tmp_path, flags):
    votes = samples.votes_55k()
    votes[0] |= dict(zip(("winner_model_a", "winner_model_b", "winner_tie"), flags, strict=True))
    path = samples.write_json(tmp_path / "votes.json", votes)
    assert f"{path}, row 0: found winner_model_a=" in refused(load_lmarena, path)


def test_lmarena_names_the_columns_it_needs(samples, tmp_path):
    path = samples.write_json(tmp_path / "v.json", [{"model_a": "a", "model_b": "b"}])
    assert "lacks winner_model_a, winner_model_b, winner_tie" in refused(load_lmarena, path)
    path = samples.write_json(tmp_path / "w.json", [{"model_a": "a", "winner": "tie"}])
    assert "lacks model_b" in refused(load_lmarena, path)


# ------------------------------------------------------------------------------ MT-Bench


def test_mt_bench_merges_orders_by_the_publishers_rule(samples, tmp_path):
    sample = samples.write("mt_bench", tmp_path)
    loaded = load_mt_bench(sample.source, **sample.options)
    assert rows(loaded.bundle, "query_id", "model_a", "model_b", "winner") == [
        ("81/1", LLAMA, GPT, "model_a"),
        ("81/2", LLAMA, GPT, "model_b"),
        ("82/1", LLAMA, GPT, "tie"),
        ("82/2", LLAMA, GPT, "tie"),
        ("83/1", LLAMA, GPT, "tie"),
    ]
    queries = loaded.bundle.queries
    assert queries["text"].tolist()[:2] == ["Ask 0.", "Ask 0.\n\nAgain."]
    assert queries["category"].unique().tolist() == ["writing"]
    assert loaded.bundle.comparisons["judge"].unique().tolist() == ["gpt-4, pair-v2"]
    assert loaded.counts.dropped == {"a verdict is an error": 1}
    assert loaded.counts.notes == {"inconsistent, taken as ties": 2}
    assert (loaded.counts.read, loaded.counts.used) == (6, 5)
    assert not loaded.bundle.ordered


def test_mt_bench_keeps_orders_apart_with_the_one_shown_first_as_model_a(samples, tmp_path):
    loaded = load_mt_bench(samples.write("mt_bench", tmp_path).source, orders="separate")
    found = rows(loaded.bundle, "query_id", "model_a", "model_b", "winner")
    assert found[:6] == [
        ("81/1", LLAMA, GPT, "model_a"),
        ("81/1", GPT, LLAMA, "model_b"),
        ("81/2", LLAMA, GPT, "model_b"),
        ("81/2", GPT, LLAMA, "model_a"),
        ("82/1", LLAMA, GPT, "model_a"),  # whoever is shown first wins
        ("82/1", GPT, LLAMA, "model_a"),
    ]
    assert (loaded.counts.read, loaded.counts.used) == (12, 10)
    assert loaded.counts.dropped == {"a verdict is an error": 2}
    assert loaded.bundle.ordered


def test_mt_bench_orders_apart_count_half_each_where_they_disagree(samples, tmp_path):
    source = samples.write("mt_bench", tmp_path).source
    wins = {}
    for orders in ("merge", "separate"):
        bundle = load_mt_bench(source, orders=orders).bundle
        share = {"model_a": 1.0, "tie": 0.5, "model_b": 0.0}
        wins[orders] = sum(
            share[winner] if first == LLAMA else 1 - share[winner]
            for _, first, winner in rows(bundle, "query_id", "model_a", "winner")
        ) / len(bundle.comparisons)
    # of (tie, model_1) the publishers make a tie, where each order by itself gives 3/4 of a win
    assert wins["merge"] == pytest.approx(2.5 / 5)
    assert wins["separate"] == pytest.approx(5.5 / 10)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_mt_bench_votes_of_people(samples, tmp_path, suffix):
    loaded = load_mt_bench(samples.write_rows(tmp_path / f"human{suffix}", samples.human_rows()))
    assert rows(loaded.bundle, "query_id", "winner", "judge") == [
        ("81/1", "model_a", "expert_0"),
        ("81/2", "model_b", "expert_1"),
        ("81/1", "tie", "expert_2"),
        ("81/2", "tie", "expert_3"),
    ]
    assert loaded.bundle.queries["text"].tolist() == ["Write a poem.", "Write a poem.\n\nShorter."]
    assert loaded.counts.notes == {"inconsistent, taken as ties": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g2_winner": "A"}, ", row 2: found 'A' as g2_winner"),
        ({"g1_winner": ["tie"]}, ", row 2: found ['tie'] as g1_winner"),
        ({"turn": 3}, ", row 2: found 3 as turn"),
        ({"turn": True}, ", row 2: found True as turn"),
        ({"question_id": 1.5}, ", row 2: found 1.5 as question_id"),
        ({"model_2": ""}, ", row 2: found no value as model_2"),
    ],
)
def test_mt_bench_refuses(samples, tmp_path, change, message):
    records = samples.pair_records()
    records[2] |= change
    path = samples.write_json(tmp_path / "pair.jsonl", records, lines=True)
    assert f"{path}{message}" in refused(load_mt_bench, path)


def test_mt_bench_drops_and_counts(samples, tmp_path):
    records = samples.pair_records()
    records[0]["g1_winner"] = None
    records[1]["model_2"] = records[1]["model_1"]
    path = samples.write_json(tmp_path / "pair.jsonl", records, lines=True)
    assert load_mt_bench(path).counts.dropped == {
        "a verdict is missing": 1,
        "an LLM against itself": 1,
        "a verdict is an error": 1,
    }
    assert load_mt_bench(path, orders="separate").counts.n_dropped == 6
    assert "allowed are 'merge'" in refused(load_mt_bench, path, orders="both")


# ------------------------------------------------------------------------------ AlpacaEval


def test_alpaca_eval(samples, tmp_path):
    loaded = load_alpaca_eval(samples.write("alpaca_eval", tmp_path).source)
    bundle = loaded.bundle
    assert bundle.comparisons["outcome"].tolist() == pytest.approx([0.0, 4.5689e-6, 1.0, 0.5, 0.5])
    assert bundle.comparisons["model_a"].unique().tolist() == ["gpt4_1106_preview"]
    assert bundle.comparisons["model_b"].tolist() == [GPT, GPT, LLAMA, LLAMA, LLAMA]
    assert len(bundle.queries) == 3  # the same instructions for both LLMs
    assert bundle.labels("dataset").tolist() == ["helpful_base", "koala", "helpful_base"]
    assert not bundle.ordered  # the annotator saw either first, and the file does not say which
    assert (loaded.counts.read, loaded.counts.used) == (6, 5)
    assert loaded.counts.dropped == {"no preference": 1}


def test_alpaca_eval_names_queries_alike_whichever_files_are_read(samples, tmp_path):
    source = samples.write("alpaca_eval", tmp_path).source
    everything = load_alpaca_eval(source).bundle
    alone = load_alpaca_eval(source / "llama").bundle
    ids = dict(zip(everything.queries["text"], everything.query_ids, strict=True))
    for text, query in zip(alone.queries["text"], alone.query_ids, strict=True):
        assert ids[text] == query


def test_alpaca_eval_of_several_annotators(samples, tmp_path):
    records = [samples.annotation(0, 1.0), samples.annotation(0, 2.0, annotator="claude")]
    path = samples.write_json(tmp_path / "annotations.json", records)
    assert "annotations by weighted_alpaca_eval_gpt4_turbo, claude" in refused(
        load_alpaca_eval, path
    )
    loaded = load_alpaca_eval(path, annotator="claude")
    assert loaded.bundle.comparisons["outcome"].tolist() == [1.0]
    assert loaded.counts.dropped == {"of another annotator": 1}
    assert "annotator='x'" in refused(load_alpaca_eval, path, annotator="x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preference": 2.5}, ", row 1: found 2.5 as preference"),
        ({"preference": 0.99}, ", row 1: found 0.99 as preference"),
        ({"preference": "b"}, ", row 1: found 'b' as preference"),
        ({"preference": True}, ", row 1: found True as preference"),
        ({"instruction": ""}, ", row 1: found no value as instruction"),
        ({"generator_2": None}, ", row 1: found no value as generator_2"),
    ],
)
def test_alpaca_eval_refuses(samples, tmp_path, change, message):
    records = [samples.annotation(0, 1.0), {**samples.annotation(1, 1.0), **change}]
    path = samples.write_json(tmp_path / "annotations.json", records)
    assert f"{path}{message}" in refused(load_alpaca_eval, path)


def test_alpaca_eval_drops_an_llm_beside_itself(samples, tmp_path):
    itself = samples.annotation(1, 1.5, generator_2="gpt4_1106_preview")
    path = samples.write_json(tmp_path / "a.json", [samples.annotation(0, 2), itself])
    assert load_alpaca_eval(path).counts.dropped == {"an LLM beside itself": 1}


# ------------------------------------------------------------------------------ long table


def test_long_table(samples, tmp_path):
    sample = samples.write("long_table", tmp_path)
    loaded = load_long_table(sample.source, **sample.options)
    bundle = loaded.bundle
    assert rows(bundle, "query_id", "model_a", "winner", "weight", "rater") == [
        ("007", "gpt", "model_a", 1.0, "ann"),
        ("007", "llama", "tie", 2.5, "ben"),
        ("8", "gpt", "model_b", 1.0, "ann"),
    ]
    assert bundle.labels("topic").to_dict() == {"007": "maths", "8": "law"}
    assert bundle.queries["text"].isna().tolist() == [False, True]
    assert (loaded.counts.read, loaded.counts.used, loaded.counts.dropped) == (3, 3, {})


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json", ".jsonl"])
def test_long_table_of_outcomes(samples, tmp_path, suffix):
    votes = [{"query_id": 7, "model_a": "a", "model_b": "b", "outcome": 0.25}]
    bundle = load_long_table(samples.write_rows(tmp_path / f"v{suffix}", votes)).bundle
    assert rows(bundle, "query_id", "outcome") == [("7", 0.25)]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"winner": "A"}, {}, ", row 1: found 'A' as winner"),
        ({"winner": None}, {}, ", row 1: found no value as winner"),
        ({"model_b": "a"}, {}, ", row 1: found 'a' against itself"),
        ({"query_id": " "}, {}, ", row 1: found ' ' as query_id"),
        ({"text": "Bye"}, {}, ", row 1: 'q' has another text"),
        ({"topic": "law"}, {"labels": ["topic"]}, ", row 1: found 'law' as topic of 'q'"),
        ({"weight": 0}, {}, ", row 1: found 0 as weight"),
        ({"weight": None}, {}, ", row 1: found no value as weight"),
        ({"outcome": 0.5}, {}, " has both winner and outcome"),
        ({}, {"labels": ["nope"]}, " lacks nope"),
        ({}, {"columns": {"winner": "nope"}}, " has neither nope and outcome"),
    ],
)
def test_long_table_refuses(samples, tmp_path, change, options, message):
    vote = {
        "query_id": "q", "model_a": "a", "model_b": "b", "winner": "tie", "text": "Hi",
        "topic": "maths", "weight": 1.0,
    }  # fmt: skip
    path = samples.write_json(tmp_path / "votes.json", [vote, {**vote, **change}])
    assert f"{path}{message}" in refused(load_long_table, path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"voter": "x"}}, "columns names voter"),
        ({"columns": {"model_a": "model_b"}}, "columns uses 'model_b' for two things"),
        ({"winners": {"A": "first"}}, "winners gives first"),
        ({"labels": "topic"}, "labels='topic'"),
    ],
)
def test_long_table_refuses_settings(samples, tmp_path, options, message):
    votes = [{"query_id": "q", "model_a": "a", "model_b": "b", "winner": "tie"}]
    path = samples.write_json(tmp_path / "votes.json", votes)
    assert message in refused(load_long_table, path, **options)


def test_half_characters_are_replaced_in_texts_and_refused_in_names(tmp_path):
    path = tmp_path / "votes.json"
    vote = {
        "question_id": "q",
        "model_a": "a",
        "model_b": "b",
        "winner": "tie",
        "prompt": "\ud83d!",
    }
    path.write_text(json.dumps([vote]))
    assert load_lmarena(path).bundle.queries["text"].tolist() == ["\ufffd!"]
    path.write_text(json.dumps([{**vote, "model_b": "b\ud83d"}]))
    assert f"{path}, row 0" in refused(load_lmarena, path)
