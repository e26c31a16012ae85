"""Small files of our own making in the layouts in which the data sets are published."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

GPT, LLAMA, QWEN = "gpt", "meta/llama-3.1", "qwen"


class Sample(NamedTuple):
    """A data set written to disk: what to load, and with which options."""

    source: Path
    options: dict[str, Any]


def write_json(path: Path, records: Any, *, lines: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records, indent=1)
    path.write_text(text, encoding="utf-8")
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format that the file's name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        pd.DataFrame(rows).to_csv(path, index=False)
    else:
        write_json(path, rows, lines=path.suffix == ".jsonl")
    return path


# ------------------------------------------------------------------------------ score tables


def cell(score: float | None, n_in: int = 10, n_out: int = 5) -> dict[str, Any]:
    return {
        "num_input_tokens": n_in,
        "num_output_tokens": n_out,
        "response": "So the answer is 4.",
        "score": score,
    }


def sprout_rows() -> list[dict[str, Any]]:
    about = {"dataset_level": "0", "dataset_idx": 0, "golden_answer": "4"}
    return [
        {"key": "k1", "dataset": "math", "prompt": "2 + 2?", **about, GPT: cell(1.0),
         LLAMA: cell(0.25, 20, 7)},
        {"key": "k2", "dataset": "rag", "prompt": "Ünïcode\n“?”", **about, GPT: cell(None),
         LLAMA: cell(0.5)},
        {"key": "k3", "dataset": "rag", "prompt": "Why?", **about, GPT: cell(0.0), LLAMA: None},
    ]  # fmt: skip


def sprout(folder: Path) -> Sample:
    rows = sprout_rows()
    write_rows(folder / "data" / "train-00000-of-00001.parquet", rows[:2])
    write_rows(folder / "data" / "test-00000-of-00001.parquet", rows[2:])
    return Sample(folder, {})


def routerbench_rows() -> list[dict[str, Any]]:
    prompts = ["['Is \\\\d a digit?']", '["What\'s 2 + 2?", "And 3?"]', "Plain."]
    scores, costs = [(1.0, 0.0), (0.5, 1.0), (0.0, None)], [(0.01, 0.0), (0.02, 1e-5), (0.01, None)]
    return [
        {
            "sample_id": f"mmlu-law.val.{row}",
            "prompt": prompts[row],
            "eval_name": "mmlu-law",
            GPT: scores[row][0],
            LLAMA: scores[row][1],
            f"{GPT}|model_response": "['A']",
            f"{LLAMA}|model_response": "['B']",
            f"{GPT}|total_cost": costs[row][0],
            f"{LLAMA}|total_cost": costs[row][1],
            "oracle_model_to_route_to": GPT if row else "no_model_correct",
        }
        for row in range(3)
    ]


def routerbench(folder: Path) -> Sample:
    return Sample(write_rows(folder / "routerbench_0shot.parquet", routerbench_rows()), {})


def leaderboard_record(task: str, number: int, **metrics: Any) -> dict[str, Any]:
    docs = {
        "ifeval": {"key": 1000, "prompt": f"Write {number} words.", "kwargs": [{}]},
        "mmlu_pro": {"question": f"What is {number} + 1?", "options": ["1", "2"]},
        "math_algebra_hard": {"problem": f"Solve x = {number}.", "level": "Level 5"},
        "bbh_navigate": {"input": f"Take {number} steps.", "target": "Yes"},
        "musr_murder_mysteries": {"narrative": "Once.", "question": f"Who, {number}?"},
    }
    return {
        "doc_id": number,
        "doc": docs[task],
        "target": "1",
        "arguments": {"gen_args_0": {"arg_0": "Question: ..."}},
        "resps": [["1"]],
        "filtered_resps": ["1"],
        "doc_hash": f"{task}{number}",
        "prompt_hash": "p",
        "target_hash": "t",
        **metrics,
    }


def open_llm_leaderboard(folder: Path) -> Sample:
    time, earlier = "2024-06-16T16-57-41.377142", "2024-06-15T00-00-00.000000"
    metrics: dict[str, Callable[[Any], dict[str, Any]]] = {
        "ifeval": lambda s: {
            "prompt_level_strict_acc": bool(s),
            "inst_level_strict_acc": [bool(s), True],
        },
        "mmlu_pro": lambda s: {"acc": float(s)},
        "math_algebra_hard": lambda s: {"exact_match": str(int(s))},
        "bbh_navigate": lambda s: {"acc_norm": float(s)},
        "musr_murder_mysteries": lambda s: {"acc_norm": float(s)},
    }
    for model, offset in {"OpenAI__gpt": 0, "meta__llama": 1}.items():
        inside = folder / f"{model}-details" / model
        for task, metric in metrics.items():
            if (model, task) == ("meta__llama", "bbh_navigate"):
                continue
            numbers = range(3)[:: -1 if offset else 1]  # the files are not in one order
            records = [leaderboard_record(task, n, **metric((n + offset) % 2)) for n in numbers]
            name = f"samples_leaderboard_{task}_{time}.json"
            write_json(inside / name, records, lines=True)
        old = [leaderboard_record("mmlu_pro", 0, acc=0.5)]
        write_json(inside / f"samples_leaderboard_mmlu_pro_{earlier}.jsonl", old, lines=True)
        write_json(inside / f"results_{time}.json", {"results": {}})
    return Sample(folder, {})


def score_arrays(folder: Path) -> Sample:
    arrays = {
        "bbh/correctness": np.array([[1.0, 0.0, 1.0], [0.0, 0.0, np.nan]]),
        "bbh/models": np.array(["open-llm-leaderboard/OpenAI__gpt-details", "meta__llama"]),
        "math/correctness": np.array([[1, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]], np.float32),
        "math/models": np.array(["meta__llama", "Qwen__qwen", "OpenAI__gpt"]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "leaderboard.npz", **arrays)
    return Sample(folder / "leaderboard.npz", {})


def mmlu_record(number: int, pred: str | None, **more: Any) -> dict[str, Any]:
    return {
        "question_id": number,
        "question": f"What is {number} + 1?",
        "options": ["1", "2", "3"],
        "answer": "B",
        "answer_index": 1,
        "cot_content": "",
        "category": "math" if number % 2 else "law",
        "src": "ori_mmlu",
        "pred": pred,
        "model_outputs": "The answer is (B).",
        **more,
    }


def mmlu_pro(folder: Path) -> Sample:
    folder.mkdir(parents=True, exist_ok=True)
    answers = {
        "gpt-4o": [mmlu_record(1, "B"), mmlu_record(2, "A"), mmlu_record(3, None)],
        "Llama-2-7b-hf": [
            mmlu_record(3, "B"),
            "other",
            "total",
            mmlu_record(1, "C", question="Whatis 1+1?"),
            mmlu_record(3, "B"),
        ],
    }
    for model, records in answers.items():
        stem = f"model_outputs_{model}_5shots"
        with zipfile.ZipFile(folder / f"{stem}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{stem}.json", json.dumps(records))
            archive.writestr(f"__MACOSX/._{stem}.json", b"\x00\x05")
    return Sample(folder, {})


def routerdc(folder: Path) -> Sample:
    train = [
        {"question": "Q: 2 + 2?", "scores": {GPT: 1.0, LLAMA: 0.25}, "cluster_id": 0},
        {"question": "Q: 2 + 2?", "scores": {LLAMA: 0.0, GPT: 1}, "cluster_id": 3},
    ]
    test = [{"question": "Why?", "scores": {GPT: 0.5}}]
    write_json(folder / "train.json", train)
    write_json(folder / "test.json", test)
    return Sample(folder, {})


def score_matrix(folder: Path) -> Sample:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scores.csv"
    path.write_text(
        "query_id,text,task,level,gpt,llama\n"
        "007,2 + 2?,maths,1,1,0\n8,,law,2,0.5,\n9,Why?,law,1,0,1\n"
    )
    return Sample(path, {"labels": ["level"]})


# ------------------------------------------------------------------------------ comparisons


def votes_55k() -> list[dict[str, Any]]:
    flags = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    return [
        {
            "id": 30192 + row,
            "model_a": GPT,
            "model_b": LLAMA if row != 1 else GPT,
            "prompt": json.dumps(["Is it right?", f"Why, {row}?"]),
            "response_a": json.dumps(["Yes."]),
            "response_b": json.dumps(["No."]),
            "winner_model_a": won[0],
            "winner_model_b": won[1],
            "winner_tie": won[2],
        }
        for row, won in enumerate(flags)
    ]


def votes_140k() -> list[dict[str, Any]]:
    winners = ["model_a", "tie (bothbad)", "both_bad", "tie", "model_b", None]

    def conversation(row: int) -> list[dict[str, Any]]:
        said = [{"type": "text", "text": f"Hello {row}", "image": None, "mimeType": None}]
        back = [{"type": "text", "text": "Hi", "image": None, "mimeType": None}]
        return [{"role": "user", "content": said}, {"role": "assistant", "content": back}]

    return [
        {
            "id": f"c4b9710c-{row}",
            "model_a": GPT,
            "model_b": LLAMA if row % 2 else QWEN,
            "winner": winner,
            "evaluation_session_id": "s",
            "conversation_a": conversation(row),
            "conversation_b": conversation(row),
            "language": "en" if row else None,
            "is_code": False,
            "timestamp": "2025-05-29T14:48:41.602925",
        }
        for row, winner in enumerate(winners)
    ]


def lmarena(folder: Path) -> Sample:
    write_rows(folder / "data" / "train-00000-of-00001.parquet", votes_140k())
    return Sample(folder, {})


def pair_records() -> list[dict[str, Any]]:
    verdicts = [
        ("model_1", "model_1"),
        ("model_2", "model_2"),
        ("model_1", "model_2"),
        ("tie", "tie"),
        ("tie", "model_1"),
        ("model_2", "error"),
    ]
    return [
        {
            "question_id": 81 + row // 2,
            "model_1": LLAMA,
            "model_2": GPT,
            "g1_winner": g1,
            "g2_winner": g2,
            "judge": ["gpt-4", "pair-v2"],
            "g1_user_prompt": "...",
            "g1_judgment": "[[A]]",
            "g2_user_prompt": "...",
            "g2_judgment": "[[B]]",
            "turn": 1 + row % 2,
            "tstamp": 1687222451.9,
        }
        for row, (g1, g2) in enumerate(verdicts)
    ]


def question_records() -> list[dict[str, Any]]:
    return [
        {"question_id": 81 + row, "category": "writing", "turns": [f"Ask {row}.", "Again."]}
        for row in range(3)
    ]


def human_rows() -> list[dict[str, Any]]:
    talk = [
        {"content": "Write a poem.", "role": "user"},
        {"content": "Roses.", "role": "assistant"},
        {"content": "Shorter.", "role": "user"},
        {"content": "Red.", "role": "assistant"},
    ]
    winners = ["model_a", "model_b", "tie", "tie (inconsistent)"]
    return [
        {
            "question_id": 81,
            "model_a": GPT,
            "model_b": LLAMA,
            "winner": winner,
            "judge": f"expert_{row}",
            "conversation_a": talk,
            "conversation_b": talk,
            "turn": 1 + row % 2,
        }
        for row, winner in enumerate(winners)
    ]


def mt_bench(folder: Path) -> Sample:
    write_json(folder / "gpt-4_pair.jsonl", pair_records(), lines=True)
    questions = write_json(folder / "question.jsonl", question_records(), lines=True)
    return Sample(folder / "gpt-4_pair.jsonl", {"questions": questions})


def annotation(row: int, preference: float | None, **more: Any) -> dict[str, Any]:
    return {
        "instruction": f"How do I make escargot, {row}?",
        "output_1": "Boil.",
        "generator_1": "gpt4_1106_preview",
        "dataset": "koala" if row % 2 else "helpful_base",
        "output_2": "Fry.",
        "generator_2": GPT,
        "annotator": "weighted_alpaca_eval_gpt4_turbo",
        "preference": preference,
        "price_per_example": 0.015,
        "time_per_example": 1.27,
        **more,
    }


def alpaca_eval(folder: Path) -> Sample:
    place = "weighted_alpaca_eval_gpt4_turbo/annotations.json"
    first = [annotation(0, 1.0), annotation(1, 1.0000045689), annotation(2, None)]
    second = [annotation(row, p, generator_2=LLAMA) for row, p in enumerate([2.0, 1.5, 0])]
    write_json(folder / "results" / "gpt" / place, first)
    write_json(folder / "results" / "llama" / place, second)
    write_json(folder / "results" / "llama" / "model_outputs.json", [{"instruction": "x"}])
    return Sample(folder / "results", {})


def long_table(folder: Path) -> Sample:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "votes.csv"
    path.write_text(
        "question,model_a,model_b,vote,weight,text,topic,rater\n"
        "007,gpt,llama,A,1,2 + 2?,maths,ann\n007,llama,gpt,draw,2.5,2 + 2?,maths,ben\n"
        "8,gpt,qwen,model_b,1,,law,ann\n"
    )
    return Sample(
        path,
        {
            "columns": {"query_id": "question", "winner": "vote"},
            "winners": {"A": "model_a", "draw": "tie"},
            "labels": ["topic"],
        },
    )


WRITERS: dict[str, Callable[[Path], Sample]] = {
    "sprout": sprout,
    "routerbench": routerbench,
    "open_llm_leaderboard": open_llm_leaderboard,
    "score_arrays": score_arrays,
    "mmlu_pro": mmlu_pro,
    "routerdc": routerdc,
    "score_matrix": score_matrix,
    "lmarena": lmarena,
    "mt_bench": mt_bench,
    "alpaca_eval": alpaca_eval,
    "long_table": long_table,
}


class Samples:
    """What tests make their files with."""

    write_json = staticmethod(write_json)
    write_rows = staticmethod(write_rows)
    cell = staticmethod(cell)
    sprout_rows = staticmethod(sprout_rows)
    routerbench_rows = staticmethod(routerbench_rows)
    leaderboard_record = staticmethod(leaderboard_record)
    mmlu_record = staticmethod(mmlu_record)
    votes_55k = staticmethod(votes_55k)
    votes_140k = staticmethod(votes_140k)
    pair_records = staticmethod(pair_records)
    human_rows = staticmethod(human_rows)
    annotation = staticmethod(annotation)

    @staticmethod
    def write(layout: str, folder: Path) -> Sample:
        return WRITERS[layout](folder)


@pytest.fixture(scope="session")
def samples() -> type[Samples]:
    """Writers of small files in the published layouts."""
    return Samples
