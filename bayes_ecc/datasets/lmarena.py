"""LMArena: votes between two answers, shown side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bayes_ecc.datasets.conversations import joined, user_turns
from bayes_ecc.datasets.hub import download
from bayes_ecc.datasets.loaded import Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, read_rows, shown
from bayes_ecc.datasets.sheets import VoteSheet, identifier, label, model_name, number
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name

RELEASES = {
    "55k": "lmarena-ai/arena-human-preference-55k",
    "100k": "lmarena-ai/arena-human-preference-100k",
    "140k": "lmarena-ai/arena-human-preference-140k",
}

WINNERS = {
    "model_a": "model_a",
    "model_b": "model_b",
    "tie": "tie",
    "tie (bothbad)": "tie",
    "both_bad": "tie",
    "bothbad": "tie",
}
"""What the column `winner` may hold, and the winner that it means."""

_FLAGS = {"winner_model_a": "model_a", "winner_model_b": "model_b", "winner_tie": "tie"}
_IDS = ("question_id", "id", "conversation_id")
_PROMPTS = ("prompt", "conversation_a", "conversation")
_LABELS = ("language", "is_code", "turn")
_COLUMNS = ("model_a", "model_b", "winner", "judge", *_FLAGS, *_IDS, *_PROMPTS, *_LABELS)


def load_lmarena(source: Source) -> Loaded:
    r"""Read votes of LMArena (Chatbot Arena) [1]_, in either of their two forms.

    A row is a vote on `model_a`, shown first, and `model_b`. Who won stands in one column `winner`
    (`model_a`, `model_b`, `tie`, and `tie (bothbad)` or `both_bad`, which are ties too) or in three
    of truth values, `winner_model_a`, `winner_model_b` and `winner_tie`, of which one is true.

    Parameters
    ----------
    source : path or sequence of paths
        Parquet, CSV, JSON or JSON lines, or a folder of them.

    Returns
    -------
    Loaded
        Queries called by `question_id` or `id`, or else by file and row; their text is what the
        user asked (`prompt`, or the user's turns of `conversation_a`), their labels `language`,
        `is_code` and `turn` where they are given. Comparisons with `winner`, the `vote` as it was
        published, and `judge`. Votes without a winner, or on an LLM against itself, are dropped and
        counted.

    Raises
    ------
    InputError
        If a file can't be read, an LLM has no name, a winner is unknown, not exactly one of the
        truth values is true, or two votes of one id are on different texts.

    References
    ----------
    .. [1] Chiang et al., "Chatbot Arena: An Open Platform for Evaluating LLMs by Human
       Preference", arXiv:2403.04132.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_lmarena
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "votes.csv")
    ...     _ = path.write_text(
    ...         "question_id,model_a,model_b,winner\nq1,gpt,llama,model_a\n"
    ...         "q2,gpt,llama,tie (bothbad)\nq3,llama,gpt,\n"
    ...     )
    ...     loaded = load_lmarena(path)
    >>> loaded.bundle.comparisons[["query_id", "winner"]].to_dict("list")
    {'query_id': ['q1', 'q2'], 'winner': ['model_a', 'tie']}
    >>> print(loaded.counts)
    3 votes read, 2 used, 1 dropped (no winner: 1); ties, both bad: 1
    """
    rows = read_rows(source_files(source, SUFFIXES), _keep, _shrink)
    rows.need("model_a", "model_b", layout="LMArena's votes")
    single = "winner" in rows.columns
    if not single:
        rows.need(*_FLAGS, layout="LMArena's votes, beside a column winner")
    key = next((name for name in _IDS if name in rows.columns), None)
    prompt = next((name for name in _PROMPTS if name in rows.columns), None)
    sheet = VoteSheet("votes")
    sheet.read = len(rows)
    for row in range(len(rows)):
        where = rows.where(row)
        names = [
            model_name(rows.columns[side][row], where, side) for side in ("model_a", "model_b")
        ]
        vote = _single(rows, row, where) if single else _flagged(rows, row, where)
        if key is None:
            query = f"{rows.file(row).name.split('.')[0]}-{row:06d}"
        else:
            query = identifier(rows.columns[key][row], where, key)
        if vote is None:
            sheet.drop("no winner")
            continue
        if names[0] == names[1]:
            sheet.drop("an LLM against itself")
            continue
        text = None if prompt is None else rows.columns[prompt][row]
        if not sheet.queries.same_text(query, text):
            raise InputError(
                f"{where}: {query!r} has another text further up; give each text an id."
            )
        labels = {name: label(rows.cell(name, row), where, name) for name in _LABELS}
        sheet.queries.add(query, text, labels)
        judge = label(rows.cell("judge", row), where, "judge")
        winner = WINNERS[vote]
        sheet.notes["ties, both bad"] += winner == "tie" and vote != "tie"
        sheet.add(query, *names, winner=winner, vote=vote, judge=judge)
    return sheet.loaded(source_name(source), rows.source)


def fetch_lmarena(
    *,
    release: str = "140k",
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> Path:
    """Download votes of LMArena from their hub; needs the extra `hub`.

    Parameters
    ----------
    release : {"55k", "100k", "140k"}
        Which votes; some releases ask for accepting their terms and logging in first.
    cache : path, optional
        Where to keep what was downloaded; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    pathlib.Path
        A folder for `load_lmarena`.

    Raises
    ------
    BayesEccError
        If the extra is not installed or the download fails.

    Examples
    --------
    >>> from bayes_ecc.datasets import fetch_lmarena, load_lmarena
    >>> loaded = load_lmarena(fetch_lmarena(release="55k"))  # doctest: +SKIP
    """
    if release not in RELEASES:
        raise InputError(f"release={release!r}: allowed are {quoted(RELEASES)}.")
    patterns = ["train.csv", "data/*.parquet"]
    return download(RELEASES[release], patterns, cache=cache, revision=revision)


def _keep(column: str, field: str) -> bool:
    """Keep no images, and no answers where the answers are apart."""
    return column in _COLUMNS and field.rsplit(".", 1)[-1] not in ("image", "mimeType")


def _shrink(name: str, value: Any) -> Any:
    return joined(user_turns(value)) if name in _PROMPTS else value


def _single(rows: Rows, row: int, where: str) -> str | None:
    vote = rows.columns["winner"][row]
    if vote is None or vote == "":
        return None
    if not isinstance(vote, str) or vote not in WINNERS:
        raise InputError(f"{where}: found {shown(vote)} as winner; allowed are {quoted(WINNERS)}.")
    return vote


def _flagged(rows: Rows, row: int, where: str) -> str | None:
    flags = {name: number(rows.columns[name][row], where, name, truth=True) for name in _FLAGS}
    if all(flag != flag for flag in flags.values()):
        return None
    if sorted(flags.values()) != [0.0, 0.0, 1.0]:
        raise InputError(
            f"{where}: found {', '.join(f'{name}={flag:g}' for name, flag in flags.items())}; one "
            "of them is 1, the others 0."
        )
    return next(_FLAGS[name] for name, flag in flags.items() if flag == 1)
