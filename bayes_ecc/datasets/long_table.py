"""A plain long table: one row a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bayes_ecc.coding import WINNERS
from bayes_ecc.datasets.loaded import Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, read_rows, shown
from bayes_ecc.datasets.sheets import VoteSheet, identifier, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name

_NAMES = ("query_id", "model_a", "model_b", "winner", "outcome", "weight", "text")


def load_long_table(
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    winners: Mapping[str, str] | None = None,
    labels: Iterable[str] = (),
) -> Loaded:
    r"""Read a long table of comparisons, one row each.

    Parameters
    ----------
    source : path or sequence of paths
        Parquet, CSV, JSON or JSON lines, with columns `query_id`, `model_a`, `model_b`, and either
        `winner` (model_a, model_b or tie) or `outcome` (0 to 1, the share of the win that goes to
        model_b); optionally `weight`, and `text` of the query.
    columns : mapping of str to str, optional
        Which column of the file is which of those: `{"query_id": "question", "winner": "vote"}`.
    winners : mapping of str to str, optional
        What other words in the column of winners mean: `{"A": "model_a", "draw": "tie"}`.
    labels : iterable of str
        Columns that say something of the query, the same in all rows of it. Other columns stay with
        the comparisons.

    Returns
    -------
    Loaded
        Every row is used.

    Raises
    ------
    InputError
        If a file can't be read, or a row lacks something, names an unknown winner, compares an LLM
        with itself, or says something else of its query than a row before.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_long_table
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "votes.csv")
    ...     _ = path.write_text("q,model_a,model_b,winner\n1,gpt,llama,A\n2,gpt,llama,draw\n")
    ...     bundle = load_long_table(
    ...         path, columns={"query_id": "q"}, winners={"A": "model_a", "draw": "tie"}
    ...     ).bundle
    >>> bundle.comparisons["winner"].tolist()
    ['model_a', 'tie']
    """
    named, words = _settings(columns, winners)
    if isinstance(labels, str):
        raise InputError(f"labels={labels!r}: give a list, even of one.")
    about = list(labels)
    rows = read_rows(source_files(source, SUFFIXES), lambda *_: True)
    rows.need(*(named[name] for name in ("query_id", "model_a", "model_b")), layout="comparisons")
    rows.need(*about, layout="the labels given")
    won = [name for name in ("winner", "outcome") if named[name] in rows.columns]
    if len(won) != 1:
        raise InputError(
            f"{rows.source} has {'both' if won else 'neither'} {named['winner']} and "
            f"{named['outcome']}; it needs the one that counts. It has {quoted(rows.columns)}."
        )
    taken = {named[name] for name in _NAMES} | set(about)
    others = [name for name in rows.columns if name not in taken]
    _check_others([*others, *about], rows)
    sheet = VoteSheet("rows")
    sheet.read = len(rows)
    for row in range(len(rows)):
        where = rows.where(row)
        query = identifier(rows.columns[named["query_id"]][row], where, named["query_id"])
        first, second = (
            model_name(rows.columns[named[side]][row], where, named[side])
            for side in ("model_a", "model_b")
        )
        if first == second:
            raise InputError(f"{where}: found {shown(first)} against itself; drop such rows.")
        result = _result(won[0], rows.columns[named[won[0]]][row], words, where)
        _add_query(sheet, rows, row, query, named["text"], about, where)
        more = {whole_text(name): label(rows.columns[name][row], where, name) for name in others}
        if named["weight"] in rows.columns:
            more["weight"] = _weight(rows.columns[named["weight"]][row], where)
        sheet.add(query, first, second, **{won[0]: result}, **more)
    return sheet.loaded(source_name(source), rows.source)


def _settings(
    columns: Mapping[str, str] | None, winners: Mapping[str, str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    columns, winners = dict(columns or {}), dict(winners or {})
    unknown = [name for name in columns if name not in _NAMES]
    if unknown:
        raise InputError(f"columns names {quoted(unknown)}; allowed are {quoted(_NAMES)}.")
    wrong = [word for word in winners.values() if word not in WINNERS]
    if wrong:
        raise InputError(f"winners gives {quoted(wrong)}; allowed are {quoted(WINNERS)}.")
    named = {name: str(columns.get(name, name)) for name in _NAMES}
    if len(set(named.values())) < len(named):
        twice = next(name for name in named.values() if list(named.values()).count(name) > 1)
        raise InputError(f"columns uses {twice!r} for two things; give each its own column.")
    return named, {**{word: word for word in WINNERS}, **winners}


def _check_others(others: Iterable[str], rows: Rows) -> None:
    for name in others:
        if not name.strip() or name in _NAMES:
            raise InputError(
                f"{rows.source} has a column {name!r} beside those asked for; rename it, or leave "
                "it out."
            )


def _result(kind: str, value: Any, words: Mapping[str, str], where: str) -> str | float:
    if kind == "winner":
        if not isinstance(value, str | int) or str(value) not in words:
            raise InputError(
                f"{where}: found {shown(value)} as winner; allowed are {quoted(words)}. Say with "
                "winners what other words mean."
            )
        return words[str(value)]
    outcome = number(value, where, "outcome")
    if not 0 <= outcome <= 1:
        raise InputError(f"{where}: found {shown(value)} as outcome; give a number from 0 to 1.")
    return outcome


def _weight(value: Any, where: str) -> float:
    weight = number(value, where, "weight")
    if not 0 < weight < math.inf:
        raise InputError(f"{where}: found {shown(value)} as weight; give a positive number.")
    return weight


def _add_query(
    sheet: VoteSheet, rows: Rows, row: int, query: str, text: str, about: list[str], where: str
) -> None:
    """Note the query of a row, and see that rows of one query agree on it."""
    queries = sheet.queries
    words = rows.cell(text, row)
    words = None if words is None else whole_text(str(words))
    labels = {whole_text(name): label(rows.columns[name][row], where, name) for name in about}
    known = queries.rows.get(query)
    if known is not None:
        if words is not None and queries.texts[known] not in (None, words):
            raise InputError(f"{where}: {query!r} has another text further up.")
        for name, value in labels.items():
            column = queries.labels[name]
            if (column[known] if known < len(column) else None) != value:
                raise InputError(
                    f"{where}: found {shown(value)} as {name} of {query!r}, which is "
                    f"{shown(column[known])} further up; a label is the same wherever its query is."
                )
    queries.add(query, words, labels)
