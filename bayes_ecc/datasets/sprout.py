"""SPROUT: a column an LLM, each cell a record of its score and the tokens it took."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayes_ecc.datasets.hub import download
from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import Rows, read_rows, shown
from bayes_ecc.datasets.sheets import ScoreSheet, identifier, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name

REPOSITORIES = {
    "base": "CARROT-LLM-Routing/SPROUT",
    "o3mini": "CARROT-LLM-Routing/SPROUT-o3mini",
}

FIELDS = ("score", "num_input_tokens", "num_output_tokens")
_LABELS = ("dataset", "dataset_level")
_ABOUT_QUERY = ("key", "prompt", *_LABELS)
_UNUSED = ("golden_answer", "dataset_idx")

type Prices = Mapping[str, tuple[float, float]]


def load_sprout(source: Source, *, prices: Prices | None = None) -> Loaded:
    """Read SPROUT [1]_: scores of LLMs by a judge, with token counts.

    A row is a query: `key`, `prompt`, `dataset`, `dataset_level`, and a column an LLM that holds a
    record of `score`, `num_input_tokens` and `num_output_tokens` (its `response` is not read).

    Parameters
    ----------
    source : path or sequence of paths
        The published parquet files or a folder of them, or the same rows as JSON.
    prices : mapping of str to (float, float), optional
        What a million input and a million output tokens of each LLM cost.

    Returns
    -------
    Loaded
        Queries with the labels `dataset`, `dataset_level` and `split` (from the file's name),
        called by their `key` where that is unique, else by split and row; scores; costs by
        `prices`, or the number of tokens without.

    Raises
    ------
    InputError
        If a file can't be read, a score is no number, or the price of an LLM is missing.

    References
    ----------
    .. [1] Somerstep et al., "CARROT: A Cost Aware Rate Optimal Router", arXiv:2502.03261.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_sprout
    >>> record = {"score": 1.0, "num_input_tokens": 9, "num_output_tokens": 2, "response": "4"}
    >>> row = {"key": "k1", "prompt": "2 + 2?", "gpt": record, "llama": {**record, "score": 0.0}}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "test.jsonl")
    ...     _ = path.write_text(json.dumps(row))
    ...     load_sprout(path, prices={"gpt": (2.5, 10.0), "llama": (0.2, 0.2)}).bundle
    Bundle('test': 1 queries, 2 models, scores, costs)
    """
    files = source_files(source, (".parquet", ".json", ".jsonl"))
    rows = read_rows(files, _keep, _shrink)
    rows.need("prompt", layout="SPROUT")
    models = _models(rows)
    for name in models:
        model_name(name, rows.source, "the name of a column")
    if prices is not None:
        _check_prices(prices, models)
    sheet = ScoreSheet()
    for name in models:
        sheet.model(name)
    keys = rows.column("key")
    unique = None not in keys and len({str(key) for key in keys}) == len(keys)
    for row in range(len(rows)):
        where = rows.where(row)
        text = rows.columns["prompt"][row]
        if not isinstance(text, str):
            raise InputError(f"{where}: found {shown(text)} as prompt; give text.")
        split = _split(rows.file(row))
        labels = {name: label(rows.cell(name, row), where, name) for name in _LABELS}
        if not unique:
            labels["key"] = label(keys[row], where, "key")
        query = identifier(keys[row], where, "key") if unique else f"{split}-{row:05d}"
        place = sheet.queries.add(query, whole_text(text), {**labels, "split": split})
        for name in models:
            _take(sheet, place, name, rows.columns[name][row], prices, where)
    counts = Counts("rows", len(rows), len(rows))
    return sheet.loaded(source_name(source), rows.source, counts)


def fetch_sprout(
    *,
    variant: str = "base",
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> Path:
    """Download SPROUT from its hub; needs the extra `hub`.

    Parameters
    ----------
    variant : {"base", "o3mini"}
        The pool of LLMs: the published one, or that with o3-mini.
    cache : path, optional
        Where to keep what was downloaded; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    pathlib.Path
        A folder for `load_sprout`.

    Raises
    ------
    BayesEccError
        If the extra is not installed or the download fails.

    Examples
    --------
    >>> from bayes_ecc.datasets import fetch_sprout, load_sprout
    >>> loaded = load_sprout(fetch_sprout())  # doctest: +SKIP
    """
    if variant not in REPOSITORIES:
        raise InputError(f"variant={variant!r}: allowed are {quoted(REPOSITORIES)}.")
    return download(REPOSITORIES[variant], ["data/*.parquet"], cache=cache, revision=revision)


def _keep(column: str, field: str) -> bool:
    return column not in _UNUSED and (not field or field in FIELDS)


def _shrink(_: str, value: Any) -> Any:
    """Keep three numbers of a record whose response may be pages long."""
    if isinstance(value, dict) and "score" in value:
        return tuple(value.get(field) for field in FIELDS)
    return value


def _models(rows: Rows) -> list[str]:
    found = [
        name
        for name, values in rows.columns.items()
        if name not in _ABOUT_QUERY and any(isinstance(value, tuple) for value in values)
    ]
    if not found:
        raise InputError(
            f"{rows.source} has no column whose cells are records with a score; it has "
            f"{quoted(rows.columns)}."
        )
    return found


def _take(
    sheet: ScoreSheet, place: int, name: str, cell: Any, prices: Prices | None, where: str
) -> None:
    if cell is None:
        return
    if not isinstance(cell, tuple):
        raise InputError(
            f"{where}: found {shown(cell)} as {name!r}; give a record with a score, or nothing."
        )
    score, n_in, n_out = (
        number(value, where, f"{field} of {name!r}")
        for field, value in zip(FIELDS, cell, strict=True)
    )
    if n_in < 0 or n_out < 0:
        raise InputError(f"{where}: found less than no tokens of {name!r}.")
    sheet.score(place, name, score)
    price_in, price_out = (1.0, 1.0) if prices is None else (p / 1e6 for p in prices[name])
    sheet.cost(place, name, n_in * price_in + n_out * price_out)


def _check_prices(prices: Prices, models: list[str]) -> None:
    missing = [name for name in models if name not in prices]
    if missing:
        raise InputError(f"prices lacks {quoted(missing)}; give each LLM (input, output).")
    for name in models:
        try:
            pair = [float(price) for price in prices[name]]
        except (TypeError, ValueError):
            pair = []
        if len(pair) != 2 or not all(0 <= price < math.inf for price in pair):
            raise InputError(
                f"prices[{name!r}]={prices[name]!r}: give two numbers, of a million input and a "
                "million output tokens."
            )


def _split(file: Path) -> str:
    """Read the split off a name such as train-00000-of-00003.parquet."""
    return re.sub(r"-\d+-of-\d+.*$", "", file.name.split(".")[0]) or "data"
