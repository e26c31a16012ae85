"""MT-Bench: judgments of pairs of answers, each pair shown to the judge in both orders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bayes_ecc.datasets.conversations import joined, user_turns
from bayes_ecc.datasets.hub import Kind, download
from bayes_ecc.datasets.loaded import Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, only, read_rows, shown
from bayes_ecc.datasets.sheets import VoteSheet, identifier, label, model_name
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, json_values, quoted, source_files, source_name

WINNERS = {
    "model_a": "model_a",
    "model_b": "model_b",
    "tie": "tie",
    "tie (inconsistent)": "tie",
    "tie (bothbad)": "tie",
}
"""What the column `winner` of the human votes may hold, and the winner that it means."""

_VERDICTS = ("model_1", "model_2", "tie", "error")
_ONE_ORDER = ("model_a", "model_b", "winner")
_BOTH_ORDERS = ("model_1", "model_2", "g1_winner", "g2_winner")
_COLUMNS = ("question_id", *_ONE_ORDER, *_BOTH_ORDERS, "judge", "turn", "conversation_a")


class _Part(NamedTuple):
    repository: str
    kind: Kind
    patterns: tuple[str, ...]


PARTS = {
    "human": _Part("lmsys/mt_bench_human_judgments", "dataset", ("data/human-*.parquet",)),
    "gpt4_pair": _Part("lmsys/mt_bench_human_judgments", "dataset", ("data/gpt4_pair-*.parquet",)),
    "gpt4_both_orders": _Part(
        "lmsys/mt-bench", "space", ("data/mt_bench/model_judgment/gpt-4_pair.jsonl",)
    ),
}


def load_mt_bench(
    source: Source,
    *,
    orders: Literal["merge", "separate"] = "merge",
    questions: str | os.PathLike[str] | None = None,
) -> Loaded:
    r"""Read judgments of MT-Bench [1]_, in either of their two forms.

    A judge's file, such as `gpt-4_pair.jsonl`, has a record a pair of answers: `question_id`,
    `model_1`, `model_2`, `turn`, and the winner in each order of presentation, `g1_winner` (model_1
    shown first) and `g2_winner` (model_2 shown first): `model_1`, `model_2`, `tie` or `error`. The
    votes of people have `model_a`, `model_b` and one `winner`.

    Parameters
    ----------
    source : path or sequence of paths
        JSON lines, JSON, parquet or CSV.
    orders : {"merge", "separate"}
        What becomes of a judgment in both orders. Merge: one comparison, by the publishers' rule
        that an LLM wins if it wins in both orders; all else is a tie (their `show_result.py`).
        The bundle then says that the order of a pair means nothing. Separate: two comparisons, in
        each `model_a` the LLM shown first, which is what an effect of the order can be seen from.
    questions : path, optional
        The file `question.jsonl`, for the text and category of the questions.

    Returns
    -------
    Loaded
        Queries called `<question_id>/<turn>`, since the answers to either turn are judged by
        themselves, with the labels `question_id`, `turn` and `category`. Comparisons with `winner`,
        `judge`, and the `verdict` as it was published (of merged orders, both). Verdicts `error`
        are dropped with their judgment and counted, as the publishers do. Where one `winner` is
        `tie (inconsistent)`, both orders were merged by the publishers, and the pairs of that
        source have no order.

    Raises
    ------
    InputError
        If a file can't be read, or a record lacks something or names an unknown winner.

    References
    ----------
    .. [1] Zheng et al., "Judging LLM-as-a-Judge with MT-Bench and Chatbot Arena",
       arXiv:2306.05685.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_mt_bench
    >>> pair = {"question_id": 81, "model_1": "gpt", "model_2": "llama", "turn": 1}
    >>> records = [
    ...     {**pair, "g1_winner": "model_1", "g2_winner": "model_1"},
    ...     {**pair, "g1_winner": "model_1", "g2_winner": "model_2"},
    ... ]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "gpt-4_pair.jsonl")
    ...     _ = path.write_text("\n".join(map(json.dumps, records)))
    ...     loaded = load_mt_bench(path)
    ...     apart = load_mt_bench(path, orders="separate")
    >>> loaded.bundle.comparisons["winner"].tolist()
    ['model_a', 'tie']
    >>> print(apart.bundle.comparisons[["model_a", "winner"]].to_string(index=False))
    model_a  winner
        gpt model_a
      llama model_b
        gpt model_a
      llama model_a
    """
    if orders not in ("merge", "separate"):
        raise InputError(f"orders={orders!r}: allowed are 'merge' and 'separate'.")
    asked = {} if questions is None else _questions(Path(questions))
    rows = read_rows(source_files(source, SUFFIXES), only(_COLUMNS), _shrink)
    twice = "g1_winner" in rows.columns
    columns = _BOTH_ORDERS if twice else _ONE_ORDER
    rows.need("question_id", *columns, layout="MT-Bench's judgments")
    names, winners = columns[:2], columns[2:]
    separate = twice and orders == "separate"
    sheet = VoteSheet("verdicts" if separate else "judgments")
    sheet.read = len(rows) * (2 if separate else 1)
    for row in range(len(rows)):
        where = rows.where(row)
        pair = [model_name(rows.columns[name][row], where, name) for name in names]
        question = identifier(rows.columns["question_id"][row], where, "question_id")
        turn = _turn(rows.cell("turn", row), where)
        found = [_verdict(rows, name, row, where, twice=twice) for name in winners]
        if pair[0] == pair[1]:
            for _ in range(1 + separate):
                sheet.drop("an LLM against itself")
            continue
        if None in found or "error" in found:
            reason = "a verdict is missing" if None in found else "a verdict is an error"
            for _ in range(1 + separate):
                sheet.drop(reason)
            continue
        verdicts = [str(verdict) for verdict in found]
        query = _add_query(sheet, rows, row, question, turn, asked)
        judge = label(rows.cell("judge", row), where, "judge")
        if not twice:
            winner = WINNERS[verdicts[0]]
            sheet.notes["inconsistent, taken as ties"] += verdicts[0] == "tie (inconsistent)"
            sheet.add(query, *pair, winner=winner, verdict=verdicts[0], judge=judge)
        elif separate:
            for shown_first, verdict in enumerate(verdicts):
                first, second = pair[::-1] if shown_first else pair
                winner = _winner(verdict, swapped=bool(shown_first))
                sheet.add(query, first, second, winner=winner, verdict=verdict, judge=judge)
        else:
            agree = verdicts[0] == verdicts[1]
            sheet.notes["inconsistent, taken as ties"] += not agree
            winner = _winner(verdicts[0]) if agree else "tie"
            sheet.add(query, *pair, winner=winner, verdict=" / ".join(verdicts), judge=judge)
    # of merged orders, none is left; GPT-4's votes with one winner show it by such ties
    merged = not separate and (twice or sheet.notes["inconsistent, taken as ties"] > 0)
    return sheet.loaded(source_name(source), rows.source, ordered=not merged)


def fetch_mt_bench(
    *,
    part: str = "human",
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> Path:
    """Download judgments of MT-Bench from their hub; needs the extra `hub`.

    Parameters
    ----------
    part : {"human", "gpt4_pair", "gpt4_both_orders"}
        The votes of people; GPT-4's of the same six LLMs, its two orders merged; or GPT-4's of
        every LLM against a baseline, in both orders.
    cache : path, optional
        Where to keep what was downloaded; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    pathlib.Path
        A file or folder for `load_mt_bench`.

    Raises
    ------
    BayesEccError
        If the extra is not installed or the download fails.

    Examples
    --------
    >>> from bayes_ecc.datasets import fetch_mt_bench, load_mt_bench
    >>> loaded = load_mt_bench(fetch_mt_bench(part="human"))  # doctest: +SKIP
    """
    if part not in PARTS:
        raise InputError(f"part={part!r}: allowed are {quoted(PARTS)}.")
    repository, kind, patterns = PARTS[part]
    folder = download(repository, patterns, kind=kind, cache=cache, revision=revision)
    # the two parts of one repository lie in one folder once both have been fetched
    found = sorted(folder.glob(patterns[0]))
    return found[0] if len(found) == 1 else folder


def _shrink(name: str, value: Any) -> Any:
    if name == "conversation_a":
        return user_turns(value)
    if name == "judge" and isinstance(value, list):  # the judge and its prompt
        return ", ".join(map(str, value))
    return value


def _turn(value: Any, where: str) -> int:
    if value is None:
        return 1
    text = str(value)
    if isinstance(value, bool) or text not in ("1", "2", "1.0", "2.0"):
        raise InputError(f"{where}: found {shown(value)} as turn; give 1 or 2.")
    return int(float(text))


def _verdict(rows: Rows, name: str, row: int, where: str, *, twice: bool) -> str | None:
    value = rows.columns[name][row]
    allowed = _VERDICTS if twice else tuple(WINNERS)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{where}: found {shown(value)} as {name}; allowed are {quoted(allowed)}.")
    return value


def _winner(verdict: str, *, swapped: bool = False) -> str:
    """Turn a verdict that names model_1 or model_2 into model_a (shown first) or model_b."""
    if verdict == "tie":
        return "tie"
    return "model_a" if (verdict == "model_1") != swapped else "model_b"


class _Question(NamedTuple):
    turns: list[str]
    category: Any


def _questions(path: Path) -> dict[str, _Question]:
    found = {}
    for row, record in json_values(path):
        where = f"{path}, row {row}"
        if not isinstance(record, dict):
            raise InputError(f"{where}: found {shown(record)}; every row is a question.")
        name = identifier(record.get("question_id"), where, "question_id")
        category = label(record.get("category"), where, "category")
        found[name] = _Question(user_turns(record.get("turns")), category)
    return found


def _add_query(
    sheet: VoteSheet,
    rows: Rows,
    row: int,
    question: str,
    turn: int,
    asked: dict[str, _Question],
) -> str:
    query = f"{question}/{turn}"
    known = asked.get(question, _Question(rows.cell("conversation_a", row) or [], None))
    labels = {"question_id": question, "turn": turn, "category": known.category}
    sheet.queries.add(query, joined(known.turns[:turn]), labels)
    return query
