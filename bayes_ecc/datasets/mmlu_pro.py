"""MMLU-Pro: a zip archive an LLM with its answers, stray strings between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import shown
from bayes_ecc.datasets.sheets import ScoreSheet, identifier, label, model_name, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import (
    Source,
    json_values,
    source_files,
    source_name,
    stream_values,
    zip_members,
)

_NAME = re.compile(r"^(?:model_outputs_)?(?P<model>.+?)(?:_\d+shots?)?$")


def load_mmlu_pro(source: Source) -> Loaded:
    """Read the published results of MMLU-Pro [1]_: one archive an LLM.

    `model_outputs_<LLM>_5shots.zip` holds one JSON list of records with `question_id`, `question`,
    `answer`, `pred` and `category`. The score is 1 where `pred` is the answer, else 0, also where
    no answer could be read off the output (a script of the publishers draws a letter there; here
    nothing is drawn). Strings that stand between the records, as they do in one published archive,
    are no records; they are dropped and counted.

    Parameters
    ----------
    source : path or sequence of paths
        Archives, the JSON files out of them, or a folder of either.

    Returns
    -------
    Loaded
        Queries called `mmlu-pro-<question_id>` with the label `category`; text and category are
        those of the first archive that has the question. A question that an LLM's archive lacks
        is a missing score.

    Raises
    ------
    InputError
        If an archive can't be read, a record lacks its id or its answer, an LLM has two different
        scores on a question, or the questions of one archive are others than those of the rest.

    References
    ----------
    .. [1] Wang et al., "MMLU-Pro: A More Robust and Challenging Multi-Task Language Understanding
       Benchmark", arXiv:2406.01574.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_mmlu_pro
    >>> record = {"question_id": 7, "question": "2 + 2?", "answer": "B", "category": "math"}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for model, answer in {"gpt": "B", "llama": None}.items():
    ...         records = [{**record, "pred": answer}, "total"]
    ...         path = Path(place, f"model_outputs_{model}_5shots.json")
    ...         _ = path.write_text(json.dumps(records))
    ...     loaded = load_mmlu_pro(place)
    >>> loaded.bundle.scores.to_dict("list")
    {'query_id': ['mmlu-pro-7'], 'gpt': [1.0], 'llama': [0.0]}
    >>> print(loaded.counts)
    4 records read, 2 used, 2 dropped (no record: 2); without an answer: 1
    """
    files = source_files(source, (".zip", ".json"))
    sheet = ScoreSheet()
    tally = _Tally()
    of_model: dict[str, Path] = {}
    for file in files:
        match = _NAME.match(file.name[: -len(file.suffix)])
        model = model_name(match and match["model"], str(file), "the model in the file's name")
        if model in of_model:
            raise InputError(
                f"{file} and {of_model[model]} both hold answers of {model!r}; keep one of them."
            )
        of_model[model] = file
        sheet.model(model)
        _take_file(sheet, model, file, tally)
    source_text = str(files[0]) + (" and others" if len(files) > 1 else "")
    counts = Counts("records", tally.read, tally.used, tally.dropped, tally.notes)
    return sheet.loaded(source_name(source), source_text, counts)


@dataclass
class _Tally:
    read: int = 0
    used: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


def _take_file(sheet: ScoreSheet, model: str, file: Path, tally: _Tally) -> None:
    shared = differing = 0
    for where, record in _records(file):
        tally.read += 1
        if not isinstance(record, dict):
            tally.dropped["no record"] += 1
            continue
        query = f"mmlu-pro-{identifier(record.get('question_id'), where, 'question_id')}"
        answer, pred = record.get("answer"), record.get("pred")
        if not isinstance(answer, str) or not answer:
            raise InputError(f"{where}: found {shown(answer)} as answer; give a letter.")
        if pred is not None and not isinstance(pred, str):
            raise InputError(f"{where}: found {shown(pred)} as pred; give a letter, or nothing.")
        text = record.get("question")
        text = whole_text(text) if isinstance(text, str) else None
        shared += query in sheet.queries.rows
        differing += not sheet.queries.same_text(query, text)
        category = label(record.get("category"), where, "category")
        row = sheet.queries.add(query, text, {"category": category})
        score = float(pred == answer)
        known = sheet.score(row, model, score)
        if known is None:
            tally.used += 1
            tally.notes["without an answer"] += pred is None
        elif known == score:
            tally.dropped["repeated"] += 1
        else:
            raise InputError(
                f"{where}: {model!r} has the score {score:g} on {query!r}, but {known:g} further "
                "up; keep one of the two records."
            )
    if 2 * differing > shared:
        raise InputError(
            f"{file}: of {shared} questions that other archives have too, {differing} read "
            "otherwise here; its question_id means other questions. Leave it out."
        )
    tally.notes["worded otherwise in an earlier archive"] += differing


def _records(file: Path) -> Iterator[tuple[str, Any]]:
    """Give what an archive's lists hold, and where it stands."""
    if file.suffix.lower() == ".json":
        for row, record in json_values(file):
            yield f"{file}, row {row}", record
        return
    for member, stream in zip_members(file, ".json"):
        for row, record in stream_values(stream, f"{file}, {member}"):
            yield f"{file}, {member}, row {row}", record
