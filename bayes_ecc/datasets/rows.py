"""`Rows`: the columns a loader asked for, as plain values, and where each row stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bayes_ecc.errors import InputError
from bayes_ecc.parquet import (
    Keep,
    parquet_batches,
    plain_columns,
    refuse_columns,
    refuse_twice,
)
from bayes_ecc.reading import json_values, quoted, reading
from bayes_ecc.tables import read_table

SUFFIXES = (".parquet", ".csv", ".json", ".jsonl")

_BLOCK_ROWS = 2**16


class Rows:
    """Columns of one or more files, one below the other.

    Attributes
    ----------
    columns : dict of str to list
        One plain value a row; None where a file or a record has none.
    """

    def __init__(self, columns: dict[str, list[Any]], places: list[tuple[Path, int, int]]) -> None:
        self.columns = columns
        self._places = places  # file, first and last row here

    def __len__(self) -> int:
        return self._places[-1][2]

    @property
    def files(self) -> list[Path]:
        """The files, in the order in which they were read."""
        return [file for file, _, _ in self._places]

    @property
    def source(self) -> str:
        """Name the files in a message about all of them."""
        return str(self.files[0]) + (" and others" if len(self.files) > 1 else "")

    def file(self, row: int) -> Path:
        """Give the file of a row."""
        return next(file for file, _, stop in self._places if row < stop)

    def where(self, row: int) -> str:
        """Say where a row stands: its file, and its number there, from 0."""
        file, start, _ = next(place for place in self._places if row < place[2])
        return f"{file}, row {row - start}"

    def need(self, *names: str, layout: str) -> None:
        """Refuse rows that lack a column."""
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InputError(
                f"{self.source} lacks {quoted(missing)}; of the columns of {layout} it has "
                f"{quoted(self.columns)}."
            )

    def cell(self, name: str, row: int) -> Any:
        """Give a value, or nothing where the column is not there."""
        return self.columns[name][row] if name in self.columns else None

    def column(self, name: str) -> list[Any]:
        """Give a column, of missing values if it is not there."""
        return self.columns[name] if name in self.columns else [None] * len(self)


def read_rows(files: Sequence[Path], keep: Keep, shrink: Shrink | None = None) -> Rows:
    """Read columns of parquet, CSV, JSON or JSON lines files.

    Parameters
    ----------
    files : sequence of pathlib.Path
        Ending in one of `SUFFIXES`.
    keep : callable
        Which columns to read.
    shrink : callable, optional
        Turns a column's name and a value into what is kept of it; called as each value is read, so
        that long conversations need not be held all at once.

    Returns
    -------
    Rows
        CSV gives text; a blank is None.

    Raises
    ------
    InputError
        If a file cannot be read, a record is no object, or there are no rows at all.
    """
    columns: dict[str, list[Any]] = {}
    places, total = [], 0
    for file in files:
        start = total
        for names, records in _blocks(file, keep, shrink or _whole):
            for name in names:
                columns.setdefault(name, [None] * total)
            size = len(records[0]) if records else 0
            for name, values in zip(names, records, strict=True):
                columns[name] += values
            total += size
            for name in columns.keys() - set(names):
                columns[name] += [None] * size
        places.append((file, start, total))
    if not total:
        raise InputError(f"{quoted(files)}: there are no rows.")
    return Rows(columns, places)


type Shrink = Callable[[str, Any], Any]
type Block = tuple[list[str], list[list[Any]]]


def _whole(_: str, value: Any) -> Any:
    return value


def _blocks(file: Path, keep: Keep, shrink: Shrink) -> Iterator[Block]:
    """Read a file as blocks of columns: their names, and a list of values for each."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        for batch in parquet_batches(file, keep):
            yield _shrunk(batch.schema.names, plain_columns(file, batch), shrink)
    elif suffix == ".csv":
        with reading(file):
            table = read_table(file)
        refuse_twice(file, list(table.columns))
        names = [name for name in table.columns if keep(name, "")]
        if not names:
            refuse_columns(file, table.columns)
        yield _shrunk(names, [_from_pandas(table[name]) for name in names], shrink)
    else:
        yield from _record_blocks(file, keep, shrink)


def _shrunk(names: list[str], columns: list[list[Any]], shrink: Shrink) -> Block:
    return names, [
        [shrink(name, value) for value in column]
        for name, column in zip(names, columns, strict=True)
    ]


def _record_blocks(file: Path, keep: Keep, shrink: Shrink) -> Iterator[Block]:
    """Gather JSON records into blocks."""
    block: dict[str, list[Any]] = {}
    size = 0
    for row, record in json_values(file):
        if not isinstance(record, dict):
            raise InputError(
                f"{file}, row {row}: found {shown(record)}; every row is a record, such as "
                '{"question_id": 1, ...}.'
            )
        for name, value in record.items():
            if keep(name, ""):
                column = block.setdefault(name, [])
                column += [None] * (size - len(column))
                column.append(shrink(name, value))
        size += 1
        if size == _BLOCK_ROWS:
            yield _filled(block, size)
            block, size = {}, 0
    if size:
        yield _filled(block, size)


def _filled(block: dict[str, list[Any]], size: int) -> Block:
    return list(block), [column + [None] * (size - len(column)) for column in block.values()]


def _from_pandas(column: pd.Series) -> list[Any]:
    return [
        None if missing else value for missing, value in zip(column.isna(), column, strict=True)
    ]


def shown(value: Any, limit: int = 60) -> str:
    """Show a value in a message, not all of a long one."""
    if value is None or (isinstance(value, float) and value != value) or value == "":
        return "no value"
    text = repr(value if not isinstance(value, str) else value[: limit + 1])
    return text if len(text) <= limit + 2 else f"{text[:limit]}..."


def only(names: Iterable[str]) -> Keep:
    """Keep columns by their names, with all that is nested in them."""
    wanted = frozenset(names)
    return lambda column, _: column in wanted
