"""A plain score matrix: one row a query, one column an LLM."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, read_rows
from bayes_ecc.datasets.sheets import ScoreSheet, identifier, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name

_IDS = ("query_id", "question_id", "sample_id", "prompt_id", "id")
_INDEX = ("", "index", "Unnamed: 0", "__index_level_0__")  # what pandas makes of row names
_TEXTS = ("text", "prompt", "question", "query", "instruction")
_OF_MODELS = ("model", "models", "model_name", "model_id", "llm", "llms")


def load_score_matrix(
    source: Source,
    *,
    labels: Iterable[str] = (),
    rows: Literal["queries", "models"] | None = None,
) -> Loaded:
    r"""Read a table of scores.

    Parameters
    ----------
    source : path or sequence of paths
        Parquet, CSV, JSON or JSON lines. The queries are called by the column `query_id` (or
        `question_id`, `sample_id`, `prompt_id`, `id`), or by their number; `text` (or `prompt`,
        `question`, `query`, `instruction`) is their text. A column of numbers is an LLM, blank
        where it was not run; a column without any number is a label.
    labels : iterable of str
        Columns that are labels although they hold numbers.
    rows : {"queries", "models"}, optional
        What the rows are. Models: a row an LLM, called by the column `model` (or the first), and a
        column a query. It is asked for where a table looks like that.

    Returns
    -------
    Loaded
        Queries with their labels; scores.

    Raises
    ------
    InputError
        If a file can't be read, a column holds numbers and something else, a query is there twice,
        or it is not clear what the rows are.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_score_matrix
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "scores.csv")
    ...     _ = path.write_text("query_id,task,gpt,llama\nq1,law,1,0\nq2,maths,0.5,\n")
    ...     bundle = load_score_matrix(path).bundle
    >>> bundle.scores.to_dict("list")
    {'query_id': ['q1', 'q2'], 'gpt': [1.0, 0.5], 'llama': [0.0, nan]}
    >>> bundle.labels("task").tolist()
    ['law', 'maths']
    """
    if rows not in (None, "queries", "models"):
        raise InputError(f"rows={rows!r}: allowed are 'queries' and 'models'.")
    if isinstance(labels, str):
        raise InputError(f"labels={labels!r}: give a list, even of one.")
    table = read_rows(source_files(source, SUFFIXES), lambda *_: True)
    sheet = ScoreSheet()
    if rows == "models":
        counts = _take_transposed(sheet, table)
    else:
        counts = _take(sheet, table, list(labels), asked=rows is not None)
    return sheet.loaded(source_name(source), table.source, counts)


def _take(sheet: ScoreSheet, table: Rows, labels: Sequence[str], *, asked: bool) -> Counts:
    table.need(*labels, layout="the labels given")
    key = next((name for name in (*_IDS, *_INDEX) if name in table.columns), None)
    text = next((name for name in _TEXTS if name in table.columns), None)
    others = [name for name in table.columns if name not in (key, text)]
    no_models = {*labels, *_IDS, *_INDEX}
    models = [n for n in others if n not in no_models and _has_numbers(table.columns[n])]
    of_models = [name for name in table.columns if name.lower() in _OF_MODELS]
    if not asked and (of_models or len(models) > max(len(table), 10)):
        reason = f"a column {of_models[0]!r}" if of_models else f"only {len(table)} rows"
        raise InputError(
            f"{table.source} has {reason} and {len(models)} columns of numbers: its rows look like "
            "LLMs. Say rows='models' if they are, rows='queries' if not."
        )
    if not models:
        raise InputError(
            f"{table.source} has no column of numbers; it has {quoted(table.columns)}."
        )
    for name in models:
        sheet.model(model_name(name, table.source, "the name of a column"))
    of_query = {name: whole_text(name) or "index" for name in others if name not in models}
    for row in range(len(table)):
        where = table.where(row)
        query = str(row) if key is None else identifier(table.columns[key][row], where, key)
        if query in sheet.queries.rows:
            raise InputError(f"{where}: the query {query!r} is there already; keep one row.")
        about = {new: label(table.columns[old][row], where, old) for old, new in of_query.items()}
        words = None if text is None else table.columns[text][row]
        place = sheet.queries.add(query, None if words is None else whole_text(str(words)), about)
        for name in models:
            sheet.score(place, name, number(table.columns[name][row], where, name, truth=True))
    return Counts("rows", len(table), len(table))


def _take_transposed(sheet: ScoreSheet, table: Rows) -> Counts:
    named = [name for name in table.columns if name.lower() in _OF_MODELS]
    key = named[0] if named else next(iter(table.columns))
    queries = [name for name in table.columns if name != key]
    places = [
        sheet.queries.add(identifier(name, table.source, "the name of a column"))
        for name in queries
    ]
    seen = set()
    for row in range(len(table)):
        where = table.where(row)
        model = model_name(table.columns[key][row], where, key)
        if model in seen:
            raise InputError(f"{where}: {model!r} is there already; keep one row.")
        seen.add(model)
        sheet.model(model)
        for place, name in zip(places, queries, strict=True):
            value = number(table.columns[name][row], where, name, truth=True)
            sheet.score(place, model, value)
    return Counts("rows", len(table), len(table))


def _has_numbers(column: Sequence[Any]) -> bool:
    """Tell whether any cell is a number."""
    for value in column:
        try:
            if not math.isnan(number(value, "", "", truth=True)):
                return True
        except InputError:
            continue
    return False
