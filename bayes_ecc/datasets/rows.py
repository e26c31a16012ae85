"""`Rows`: the columns a loader asked for, as plain values, and where each row stands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from bayes_ecc.datasets.reading import json_values, quoted, reading, unreadable
from bayes_ecc.errors import InputError
from bayes_ecc.tables import read_table

type Keep = Callable[[str, str], bool]
"""Whether a column is wanted; of parquet each field in a nested one, such as `list.element.x`."""

SUFFIXES = (".parquet", ".csv", ".json", ".jsonl")

MAX_CELLS = 100_000_000
"""Values read of one parquet file: a few bytes of it can stand for any number of rows."""
_BATCH_ROWS, _BATCH_BYTES = 2**16, 2**28
_MAX_INFLATED = 8 * 2**30
_PARQUET = "a complete parquet file"


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

    def column(self, name: str) -> list[Any]:
        """Give a column, of missing values if it is not there."""
        return self.columns.get(name) or [None] * len(self)


def read_rows(
    files: Sequence[Path], keep: Keep, shrink: Callable[[str, Any], Any] | None = None
) -> Rows:
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
        for names, records in _blocks(file, keep):
            for name in names:
                columns.setdefault(name, [None] * total)
            size = len(records[0]) if records else 0
            for name, values in zip(names, records, strict=True):
                columns[name] += [shrink(name, value) for value in values] if shrink else values
            total += size
            for name in columns.keys() - set(names):
                columns[name] += [None] * size
        places.append((file, start, total))
    if not total:
        raise InputError(f"{quoted(files)}: there are no rows.")
    return Rows(columns, places)


type Block = tuple[list[str], list[list[Any]]]


def _blocks(file: Path, keep: Keep) -> Iterator[Block]:
    """Read a file as blocks of columns: their names, and a list of values for each."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        for batch in parquet_batches(file, keep):
            try:
                values = [_plain(column) for column in batch.columns]
            except Exception as error:  # dates no calendar has, and the like
                unreadable(file, error, _PARQUET)
            yield batch.schema.names, values
    elif suffix == ".csv":
        with reading(file):
            table = read_table(file)
        _refuse_twice(file, list(table.columns))
        names = [name for name in table.columns if keep(name, "")]
        if not names:
            _refuse_columns(file, table.columns)
        yield names, [_from_pandas(table[name]) for name in names]
    else:
        yield from _record_blocks(file, keep)


def _record_blocks(file: Path, keep: Keep) -> Iterator[Block]:
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
                column.append(value)
        size += 1
        if size == _BATCH_ROWS:
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


# ------------------------------------------------------------------------------ parquet


def parquet_batches(file: Path, keep: Keep) -> Iterator[pa.RecordBatch]:
    """Read columns of a parquet file in batches, after checking what they could grow to.

    Runs of a value and references to it make a parquet file grow without limit. Text of its own
    column is therefore read as references, and batches are so small that values as long as the
    file has any cannot fill the memory.
    """
    try:
        metadata = parquet.read_metadata(file)
        schema = metadata.schema
        names = schema.to_arrow_schema().names
        _refuse_twice(file, names)
        known = set(names)
        all_paths = [schema.column(place).path for place in range(len(schema))]
        leaves = [i for i, path in enumerate(all_paths) if keep(*_column_of(path, known))]
        paths = [all_paths[i] for i in leaves]
        if not paths:
            _refuse_columns(file, names)
        _check_size(file, metadata, leaves)
        texts = [place for place in leaves if schema.column(place).physical_type == "BYTE_ARRAY"]
        flat = [schema.column(place).path for place in texts if _is_flat(schema.column(place))]
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        longest = max(
            (
                group.column(place).total_uncompressed_size
                for group in groups
                for place in texts
                if not _is_flat(schema.column(place))
            ),
            default=0,
        )
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, longest)))
        source = parquet.ParquetFile(file, read_dictionary=flat)
        batches = source.iter_batches(rows, columns=paths, use_threads=False)
    except InputError:
        raise
    except Exception as error:  # what a parser raises on a damaged file can't be listed
        unreadable(file, error, _PARQUET)
    while True:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)  # or text that is not UTF-8 would fail later
        except Exception as error:  # as above
            unreadable(file, error, _PARQUET)
        if batch is None:
            return
        yield batch


def _column_of(path: str, names: Collection[str]) -> tuple[str, str]:
    """Split the path of a value into its column, whose name may have dots, and the field in it."""
    column = path
    while column not in names and "." in column:
        column = column.rsplit(".", 1)[0]
    return column, path[len(column) + 1 :]


def _is_flat(leaf: Any) -> bool:
    return bool(leaf.path == leaf.name and leaf.max_repetition_level == 0)


def _refuse_twice(file: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file} has the column {twice!r} more than once; keep one.")


def _refuse_columns(file: Path, names: Iterable[object]) -> NoReturn:
    raise InputError(f"{file} has none of the columns that are needed; it has {quoted(names)}.")


def _check_size(file: Path, metadata: Any, leaves: Sequence[int]) -> None:
    cells = inflated = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for place in leaves:
            chunk = group.column(place)
            width = max(8, metadata.schema.column(place).length)
            cells += max(chunk.num_values, group.num_rows) * width // 8
            inflated += chunk.total_uncompressed_size
    if cells > MAX_CELLS or inflated > _MAX_INFLATED:
        raise InputError(
            f"{file} claims {cells:,} values and {inflated:,} bytes; at most {MAX_CELLS:,} and "
            f"{_MAX_INFLATED:,} are read of one file. If it is genuine, split it."
        )


def _plain(array: pa.Array) -> list[Any]:
    """Turn an Arrow array into plain values; equal texts are one object."""
    if isinstance(array, pa.DictionaryArray):
        words = array.dictionary.to_pylist()
        return [None if code is None else words[code] for code in array.indices.to_pylist()]
    values = array.to_pylist()
    if pa.types.is_nested(array.type):
        seen: dict[str, str] = {}
        return [_shared(value, seen) for value in values]
    return values


def _shared(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, str):
        return seen.setdefault(value, value)
    if isinstance(value, dict):
        return {name: _shared(item, seen) for name, item in value.items()}
    if isinstance(value, list):
        return [_shared(item, seen) for item in value]
    return value


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
