"""Loaders of score tables: values of small files, what is refused, the published samples."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import InputError, load_bundle
from bayes_ecc.datasets import (
    load_mmlu_pro,
    load_open_llm_leaderboard,
    load_routerbench,
    load_routerdc,
    load_score_arrays,
    load_score_matrix,
    load_sprout,
)

GPT, LLAMA = "gpt", "meta/llama-3.1"
NAN = float("nan")


def by_query(table):
    """Give a table as {query: {column: value}}, missing values left out."""
    return {
        row.pop("query_id"): {name: value for name, value in row.items() if value == value}
        for row in table.to_dict("records")
    }


def refused(load, *args, **options):
    with pytest.raises(InputError) as caught:
        load(*args, **options)
    return str(caught.value)


# ------------------------------------------------------------------------------ SPROUT


@pytest.mark.parametrize("suffix", [".parquet", ".json", ".jsonl"])
def test_sprout(samples, tmp_path, suffix):
    samples.write_rows(tmp_path / f"train-00000-of-00001{suffix}", samples.sprout_rows())
    loaded = load_sprout(tmp_path)
    bundle = loaded.bundle
    assert by_query(bundle.scores) == {
        "k1": {GPT: 1.0, LLAMA: 0.25},
        "k2": {LLAMA: 0.5},
        "k3": {GPT: 0.0},
    }
    assert by_query(bundle.costs)["k1"] == {GPT: 15.0, LLAMA: 27.0}  # tokens
    assert bundle.labels("dataset").tolist() == ["math", "rag", "rag"]
    assert bundle.labels("split").tolist() == ["train"] * 3
    assert bundle.queries["text"].tolist() == ["2 + 2?", "Ünïcode\n“?”", "Why?"]
    assert (loaded.counts.read, loaded.counts.used) == (3, 3)
    assert loaded.counts.notes == {"scores missing": 2}


def test_sprout_prices_make_costs(samples, tmp_path):
    path = samples.write_rows(tmp_path / "a.jsonl", samples.sprout_rows())
    prices = {GPT: (2.5, 10.0), LLAMA: (0.5, 1.0)}
    costs = by_query(load_sprout(path, prices=prices).bundle.costs)
    assert costs["k1"] == pytest.approx({GPT: (25 + 50) / 1e6, LLAMA: (10 + 7) / 1e6})
    assert LLAMA in refused(load_sprout, path, prices={GPT: (1, 1)})
    assert "(1,)" in refused(load_sprout, path, prices={**prices, GPT: (1,)})


def test_sprout_keys_that_repeat_do_not_merge_queries(samples, tmp_path):
    rows = samples.sprout_rows()
    rows[2]["key"] = "k1"
    samples.write_rows(tmp_path / "test-00000-of-00001.jsonl", rows)
    bundle = load_sprout(tmp_path).bundle
    assert bundle.query_ids.tolist() == ["test-00000", "test-00001", "test-00002"]
    assert bundle.labels("key").tolist() == ["k1", "k2", "k1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": None}, "row 1: found no value as prompt"),
        ({GPT: {"score": "good"}}, "row 1: found 'good' as score of 'gpt'"),
        ({GPT: {"score": 1e999}}, "row 1: found inf as score of 'gpt'"),
        ({GPT: {"score": 1, "num_input_tokens": -4}}, "row 1: found less than no tokens of 'gpt'"),
        ({GPT: 1.0}, "row 1: found 1.0 as 'gpt'"),
        ({"dataset": [1]}, "row 1: found [1] as dataset"),
        ({"key": 2.5}, "row 1: found 2.5 as key"),
    ],
)
def test_sprout_refuses(samples, tmp_path, change, message):
    rows = samples.sprout_rows()
    rows[1] = {**rows[1], **change}
    path = samples.write_rows(tmp_path / "test.jsonl", rows)
    assert f"{path}, {message}" in refused(load_sprout, path)


# ------------------------------------------------------------------------------ RouterBench


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json", ".jsonl"])
def test_routerbench(samples, tmp_path, suffix):
    path = samples.write_rows(tmp_path / f"routerbench_0shot{suffix}", samples.routerbench_rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_routerbench(path)
    bundle = loaded.bundle
    assert by_query(bundle.scores) == {
        "mmlu-law.val.0": {GPT: 1.0, LLAMA: 0.0},
        "mmlu-law.val.1": {GPT: 0.5, LLAMA: 1.0},
        "mmlu-law.val.2": {GPT: 0.0},
    }
    assert by_query(bundle.costs)["mmlu-law.val.1"] == {GPT: 0.02, LLAMA: 1e-5}
    assert bundle.queries["text"].tolist() == [
        r"Is \d a digit?",
        "What's 2 + 2?\n\nAnd 3?",
        "Plain.",
    ]
    assert bundle.labels("eval_name").unique().tolist() == ["mmlu-law"]
    assert loaded.counts.read == loaded.counts.used == 3


def test_routerbench_refuses_the_published_pickle_unread(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    for name in ("routerbench_0shot.pkl", "nested/routerbench_5shot.pickle"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(Bomb()))
        message = refused(load_routerbench, path)
        assert str(path) in message
        assert "read_pickle" in message
        assert "to_parquet" in message
    assert "never loaded" in refused(load_routerbench, tmp_path)
    disguised = tmp_path / "routerbench.parquet"
    disguised.write_bytes(pickle.dumps(Bomb()))
    assert str(disguised) in refused(load_routerbench, disguised)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({GPT: "A"}, ", row 1: found 'A' as gpt"),
        ({f"{GPT}|total_cost": -1}, ", row 1: found -1.0 as gpt|total_cost"),
        ({"sample_id": "mmlu-law.val.0"}, ", row 1: the sample_id 'mmlu-law.val.0' is there"),
        ({"sample_id": None}, ", row 1: found no value as sample_id"),
    ],
)
def test_routerbench_refuses(samples, tmp_path, change, message):
    rows = samples.routerbench_rows()
    rows[1] = {**rows[1], **change}
    path = samples.write_rows(tmp_path / "rb.jsonl", rows)
    assert f"{path}{message}" in refused(load_routerbench, path)


def test_routerbench_needs_both_columns_of_an_llm(samples, tmp_path):
    frame = pd.DataFrame(samples.routerbench_rows())
    path = tmp_path / "rb.csv"
    frame.drop(columns=GPT).to_csv(path, index=False)
    assert f"{path} lacks scores of gpt" in refused(load_routerbench, path)
    frame.drop(columns=[f"{GPT}|total_cost", f"{LLAMA}|total_cost"]).to_csv(path, index=False)
    assert f"{path} lacks costs" in refused(load_routerbench, path)


# ------------------------------------------------------------------------- Open LLM Leaderboard


def test_open_llm_leaderboard(samples, tmp_path):
    loaded = load_open_llm_leaderboard(samples.write("open_llm_leaderboard", tmp_path).source)
    bundle, counts = loaded.bundle, loaded.counts
    assert bundle.models.tolist() == ["OpenAI/gpt", "meta/llama"]
    scores = by_query(bundle.scores)
    for task in ("ifeval", "mmlu_pro", "math_algebra_hard", "musr_murder_mysteries"):
        for number in range(3):
            expected = {"OpenAI/gpt": number % 2, "meta/llama": (number + 1) % 2}
            assert scores[f"{task}/{number}"] == expected
    assert scores["bbh_navigate/1"] == {"OpenAI/gpt": 1.0}
    texts = dict(zip(bundle.query_ids, bundle.queries["text"], strict=True))
    assert texts["musr_murder_mysteries/2"] == "Once.\n\nWho, 2?"
    assert texts["ifeval/0"] == "Write 0 words."
    assert set(bundle.labels("benchmark")) == {"bbh", "ifeval", "math", "mmlu_pro", "musr"}
    assert (counts.read, counts.used) == (27, 27)
    assert counts.notes == {"files of earlier runs, not read": 2, "scores missing": 3}


def test_open_llm_leaderboard_tasks_and_metric(samples, tmp_path):
    source = samples.write("open_llm_leaderboard", tmp_path).source
    loaded = load_open_llm_leaderboard(source, tasks=["leaderboard_mmlu_pro", "math"])
    assert set(loaded.bundle.labels("task")) == {"mmlu_pro", "math_algebra_hard"}
    assert "bbh_navigate" in refused(load_open_llm_leaderboard, source, tasks=["gpqa"])
    message = refused(load_open_llm_leaderboard, source, metric="f1")
    assert "row 0: there is no 'f1'" in message
    assert "give a list" in refused(load_open_llm_leaderboard, source, tasks="math")


def leaderboard_files(samples, folder, **records):
    name = "samples_leaderboard_mmlu_pro_2024-06-16T16-57-41.377142.jsonl"
    for model, listed in records.items():
        samples.write_json(folder / model / name, listed, lines=True)
    return folder


def test_open_llm_leaderboard_refuses_other_documents_under_the_same_ids(samples, tmp_path):
    record = samples.leaderboard_record
    right = [record("mmlu_pro", n, acc=1.0) for n in range(4)]
    shifted = [{**record("mmlu_pro", (n + 1) % 4, acc=0.0), "doc_id": n} for n in range(4)]
    one_off = [{**right[0], "doc": {"question": "What is 0 plus 1?"}}, *right[1:]]
    assert "its doc_id means other documents" in refused(
        load_open_llm_leaderboard,
        leaderboard_files(samples, tmp_path / "a", m__x=right, m__y=shifted),
    )
    loaded = load_open_llm_leaderboard(
        leaderboard_files(samples, tmp_path / "b", m__x=right, m__y=one_off)
    )
    assert loaded.counts.notes == {"worded otherwise for an earlier LLM": 1}


def test_open_llm_leaderboard_repeated_records(samples, tmp_path):
    right = [samples.leaderboard_record("mmlu_pro", n, acc=1.0) for n in range(3)]
    folder = leaderboard_files(samples, tmp_path / "a", m__x=right, m__y=[*right, right[1]])
    counts = load_open_llm_leaderboard(folder).counts
    assert (counts.read, counts.used, counts.dropped) == (7, 6, {"repeated": 1})
    other = {**right[1], "acc": 0.0}
    folder = leaderboard_files(samples, tmp_path / "b", m__x=right, m__y=[*right, other])
    message = refused(load_open_llm_leaderboard, folder)
    assert "row 3: 'm/y' has acc 0 on 'mmlu_pro/1', but 1 further up" in message


# ------------------------------------------------------------------------------ score arrays


def test_score_arrays(samples, tmp_path):
    loaded = load_score_arrays(samples.write("score_arrays", tmp_path).source)
    scores = by_query(loaded.bundle.scores)
    assert scores["bbh/0"] == {"OpenAI/gpt": 1.0, "meta/llama": 0.0}
    assert scores["bbh/2"] == {"OpenAI/gpt": 1.0}
    assert scores["math/2"] == {"meta/llama": 0.0, "Qwen/qwen": 1.0, "OpenAI/gpt": 1.0}
    assert loaded.bundle.labels("scenario").tolist() == ["bbh"] * 3 + ["math"] * 4
    assert loaded.counts.notes == {"scores missing": 4}


def test_score_arrays_of_every_kind_agree(tmp_path):
    matrix = np.array([[1.0, 0.5, 0.0], [0.0, 0.25, 1.0]])
    names = ["a", "b"]
    np.savez(tmp_path / "x.npz", scores=matrix.T, models=np.array(names))
    np.save(tmp_path / "x.npy", np.asfortranarray(matrix))
    as_json = {"correctness": matrix.tolist(), "models": names}
    (tmp_path / "x.json").write_text(json.dumps(as_json))
    tables = [
        load_score_arrays(tmp_path / "x.npz").bundle.scores,
        load_score_arrays(tmp_path / "x.npy", models=names).bundle.scores,
        load_score_arrays(tmp_path / "x.json").bundle.scores,
    ]
    assert by_query(tables[0]) == {
        "x/0": {"a": 1.0, "b": 0.0},
        "x/1": {"a": 0.5, "b": 0.25},
        "x/2": {"a": 0.0, "b": 1.0},
    }
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0], tables[2])


def test_score_arrays_ask_which_side_is_which(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0, 0.5], [0.0, 0.25]]))
    load = lambda **options: load_score_arrays(tmp_path / "x.npy", models=["a", "b"], **options)  # noqa: E731
    assert "say rows='models' or rows='queries'" in refused(load)
    assert by_query(load(rows="models").bundle.scores)["x/0"] == {"a": 1.0, "b": 0.0}
    assert by_query(load(rows="queries").bundle.scores)["x/0"] == {"a": 1.0, "b": 0.5}
    assert "(2, 2) for 3 LLMs" in refused(
        load_score_arrays, tmp_path / "x.npy", models=["a", "b", "c"]
    )
    assert "give models" in refused(load_score_arrays, tmp_path / "x.npy")


def test_score_arrays_of_ifeval_are_those_by_prompt(tmp_path):
    parts = {"correctness_prompt": [[1, 0, 1], [0, 0, 1]], "correctness_inst": [[0.5] * 3] * 2}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"ifeval": {"correctness": parts, "models": ["a", "b"]}}))
    assert by_query(load_score_arrays(path).bundle.scores)["ifeval/2"] == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "found [1]"),
        ({}, "holds no scenario"),
        ({"s": [1]}, "'s': found [1]"),
        ({"s": {"models": ["a", "b"]}}, "'s' has no matrix called correctness"),
        ({"s": {"correctness": [[1, 0, 1]]}}, "'s' has no names called models"),
        ({"s": {"correctness": [[1, 0, 1]], "models": "ab"}}, "'s': found 'ab' as models"),
        ({"s": {"correctness": [[1, 0, 1]] * 2, "models": ["a", "a"]}}, "'a' is named twice"),
        ({"s": {"correctness": [[1, 0, 1], [1]], "models": ["a", "b"]}}, "'s', row 1: found [1]"),
        ({"s": {"correctness": [[1, 0, "x"]] * 2, "models": ["a", "b"]}}, "'s', row 0: found 'x'"),
        ({"s": {"correctness": [[1, 0, 1e999]] * 2, "models": ["a", "b"]}}, "row 0, column 2"),
        ({"s": {"correctness": [], "models": ["a", "b"]}}, "has shape (0, 0)"),
    ],
)
def test_score_arrays_refuse(tmp_path, document, message):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    found = refused(load_score_arrays, path)
    assert str(path) in found
    assert message in found


def test_score_arrays_never_hold_objects(tmp_path):
    np.savez(tmp_path / "x.npz", correctness=np.ones((2, 3)), models=np.array(["a", "b"], object))
    np.save(tmp_path / "y.npy", np.array([[1, "b"]], object), allow_pickle=True)
    (tmp_path / "z.pickle").write_bytes(pickle.dumps({}))
    assert "x.npz, models.npy holds Python objects" in refused(
        load_score_arrays, tmp_path / "x.npz"
    )
    assert "y.npy holds Python objects" in refused(
        load_score_arrays, tmp_path / "y.npy", models=["a", "b"]
    )
    assert "numpy.savez" in refused(load_score_arrays, tmp_path / "z.pickle")


# ------------------------------------------------------------------------------ MMLU-Pro


def test_mmlu_pro(samples, tmp_path):
    loaded = load_mmlu_pro(samples.write("mmlu_pro", tmp_path).source)
    bundle, counts = loaded.bundle, loaded.counts
    assert by_query(bundle.scores) == {
        "mmlu-pro-3": {"Llama-2-7b-hf": 1.0, "gpt-4o": 0.0},
        "mmlu-pro-1": {"Llama-2-7b-hf": 0.0, "gpt-4o": 1.0},
        "mmlu-pro-2": {"gpt-4o": 0.0},
    }
    assert bundle.labels("category").to_dict()["mmlu-pro-2"] == "law"
    assert bundle.labels("text")["mmlu-pro-1"] == "Whatis 1+1?"
    assert (counts.read, counts.used) == (8, 5)
    assert counts.dropped == {"no record": 2, "repeated": 1}
    assert counts.notes == {"without an answer": 1, "scores missing": 1}


def test_mmlu_pro_archives_and_files_out_of_them_agree(samples, tmp_path):
    source = samples.write("mmlu_pro", tmp_path / "zip").source
    for path in sorted(source.iterdir()):
        with zipfile.ZipFile(path) as archive:
            archive.extract(f"{path.stem}.json", tmp_path / "json")
    zipped, plain = load_mmlu_pro(source), load_mmlu_pro(tmp_path / "json")
    pd.testing.assert_frame_equal(zipped.bundle.scores, plain.bundle.scores)
    assert zipped.counts == plain.counts


def test_mmlu_pro_refuses_contradictions_and_other_questions(samples, tmp_path):
    record, write = samples.mmlu_record, samples.write_json
    write(tmp_path / "a" / "x_5shots.json", [record(n, "B") for n in range(4)])
    twice = write(tmp_path / "a" / "y_0shot.json", [record(1, "B"), record(2, "B"), record(1, "A")])
    message = refused(load_mmlu_pro, tmp_path / "a")
    assert f"{twice}, row 2: 'y' has the score 0 on 'mmlu-pro-1', but 1" in message
    write(tmp_path / "b" / "x.json", [record(n, "B") for n in range(4)])
    write(tmp_path / "b" / "y.json", [record(n + 1, "B", question_id=n) for n in range(4)])
    assert "its question_id means other questions" in refused(load_mmlu_pro, tmp_path / "b")
    write(tmp_path / "c" / "model_outputs_x_5shots.json", [record(1, "B")])
    write(tmp_path / "c" / "model_outputs_x_0shots.json", [record(1, "B")])
    assert "both hold answers of 'x'" in refused(load_mmlu_pro, tmp_path / "c")


def test_mmlu_pro_of_archives_as_published(shared_data):
    folder = shared_data / "mmlu_pro"
    loaded = load_mmlu_pro(folder / "raw")
    known = load_bundle(folder)
    scores = loaded.bundle.scores.set_index("query_id")
    assert len(scores.columns) == 5
    expected = known.scores.set_index("query_id").loc[scores.index, scores.columns]
    there = scores.notna().to_numpy()
    np.testing.assert_array_equal(scores.to_numpy()[there], expected.to_numpy()[there])
    assert there.sum() == loaded.counts.used
    assert loaded.counts.dropped == {"no record": 7}
    categories = loaded.bundle.labels("category")
    assert (categories == known.labels("category").loc[categories.index]).all()


# ------------------------------------------------------------------------------ RouterDC


def test_routerdc(samples, tmp_path):
    loaded = load_routerdc(samples.write("routerdc", tmp_path).source)
    assert by_query(loaded.bundle.scores) == {
        "test-00000": {GPT: 0.5},
        "train-00000": {GPT: 1.0, LLAMA: 0.25},
        "train-00001": {GPT: 1.0, LLAMA: 0.0},
    }
    assert loaded.bundle.labels("split").tolist() == ["test", "train", "train"]
    assert loaded.bundle.labels("cluster_id").tolist()[1:] == ["0", "3"]
    assert loaded.bundle.queries["text"].tolist() == ["Why?", "Q: 2 + 2?", "Q: 2 + 2?"]
    assert (loaded.counts.read, loaded.counts.used) == (3, 3)


def test_routerdc_of_files_as_published(shared_data):
    folder = shared_data / "routerdc"
    loaded = load_routerdc([folder / "raw" / "train.json", folder / "raw" / "test.json"])
    known = load_bundle(folder)
    assert loaded.counts.used == 400
    for split in ("train", "test"):
        here = (loaded.bundle.labels("split") == split).to_numpy()
        there = (known.labels("source_split") == split).to_numpy().nonzero()[0][: here.sum()]
        assert here.sum() == 200
        assert (
            loaded.bundle.queries["text"][here].tolist()
            == known.queries["text"].iloc[there].tolist()
        )
        models = known.models.tolist()
        np.testing.assert_allclose(
            loaded.bundle.scores.loc[here, models], known.scores[models].iloc[there], rtol=1e-6
        )


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("total", "row 1: found 'total'"),
        ({"question": "Why?"}, "row 1: found no value as scores"),
        ({"question": "Why?", "scores": {}}, "row 1: found {} as scores"),
        ({"question": ["Why?"], "scores": {"a": 1}}, "row 1: found ['Why?'] as question"),
        ({"question": "Why?", "scores": {"": 1}}, "row 1: found no value as a name in scores"),
        ({"question": "Why?", "scores": {"a": "high"}}, "row 1: found 'high' as score of 'a'"),
        ({"question": "Why?", "scores": {"\ud800": 1}}, "row 1: found '\\ud800' as a name"),
    ],
)
def test_routerdc_refuses(samples, tmp_path, record, message):
    first = {"question": "2 + 2?", "scores": {"a": 1, "b": 0}}
    path = samples.write_json(tmp_path / "train.json", [first, record])
    assert f"{path}, {message}" in refused(load_routerdc, path)


def test_a_name_that_stands_twice_in_a_record_loses_no_score(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('[{"question": "Why?", "scores": {"a": 1, "b": 0, "a": 0}}]')
    assert f"{path}, row 0: found what cannot be used (the name 'a' stands twice" in refused(
        load_routerdc, path
    )


# ------------------------------------------------------------------------------ score matrix


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_score_matrix(samples, tmp_path, suffix):
    rows = [
        {"id": "007", "prompt": "2 + 2?", "task": "maths", "level": 1, "gpt": 1.0, "llama": 0.0},
        {"id": "8", "prompt": None, "task": "law", "level": 2, "gpt": 0.5, "llama": None},
    ]
    path = samples.write_rows(tmp_path / f"scores{suffix}", rows)
    loaded = load_score_matrix(path, labels=["level"])
    assert by_query(loaded.bundle.scores) == {"007": {"gpt": 1.0, "llama": 0.0}, "8": {"gpt": 0.5}}
    assert loaded.bundle.labels("task").tolist() == ["maths", "law"]
    assert loaded.bundle.labels("level").astype(str).tolist() == ["1", "2"]
    assert loaded.bundle.queries["text"].isna().tolist() == [False, True]
    assert loaded.counts.notes == {"scores missing": 1}
    assert load_score_matrix(path).bundle.models.tolist() == ["level", "gpt", "llama"]


def test_score_matrix_of_truth_values_and_an_index(tmp_path):
    frame = pd.DataFrame({"gpt": [True, False], "llama": [False, None]}, index=[5, 6])
    frame.to_csv(tmp_path / "a.csv")
    assert by_query(load_score_matrix(tmp_path / "a.csv").bundle.scores) == {
        "5": {"gpt": 1.0, "llama": 0.0},
        "6": {"gpt": 0.0},
    }


def test_score_matrix_asks_before_it_reads_rows_as_llms(tmp_path):
    frame = pd.DataFrame({f"q{i}": [float(i % 2), 1.0] for i in range(12)})
    frame.insert(0, "model", ["gpt", "llama"])
    path = tmp_path / "a.csv"
    frame.to_csv(path, index=False)
    assert "Say rows='models'" in refused(load_score_matrix, path)
    loaded = load_score_matrix(path, rows="models")
    assert by_query(loaded.bundle.scores)["q1"] == {"gpt": 1.0, "llama": 1.0}
    assert loaded.bundle.query_ids.tolist() == [f"q{i}" for i in range(12)]
    frame.rename(columns={"model": "name"}).to_csv(path, index=False)
    assert "only 2 rows" in refused(load_score_matrix, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query_id,a,b\nq,1,0\nq2,1,\"0,5\"\n", ", row 1: found '0,5' as b"),
        ("query_id,a,b\nq,1,0\nq2,nan,1\n", ", row 1: found 'nan' as a"),
        ("query_id,a,b\nq,1,0\nq2,inf,1\n", ", row 1: found 'inf' as a"),
        ("query_id,a,b\nq,1,0\nq,1,1\n", ", row 1: the query 'q' is there already"),
        ("query_id,a,b\nq,1,0\n,1,1\n", ", row 1: found no value as query_id"),
        ("query_id,task,kind\nq,law,x\n", " has no column of numbers"),
        ("query_id,a\nq,1\n", " has 1 model(s)"),
        ("query_id,a,a\nq,1,0\n", " has the column 'a' more than once"),
        ("query_id,a,b\nq,1\n", " cannot be read"),
        ("", " is empty"),
    ],
)  # fmt: skip
def test_score_matrix_refuses(tmp_path, text, message):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    assert f"{path}{message}" in refused(load_score_matrix, path)
