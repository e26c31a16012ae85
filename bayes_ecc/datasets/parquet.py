"""Parquet files, read in pieces and checked for what they could grow to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import parquet

from bayes_ecc.datasets.reading import quoted, unreadable
from bayes_ecc.errors import InputError

type Keep = Callable[[str, str], bool]
"""Whether a column is wanted; each field in a nested one is asked for, such as `list.element.x`."""

MAX_CELLS = 100_000_000
"""Values read of one file: a few bytes of it can stand for any number of rows."""
_MAX_CHUNK = 2**29
_BATCH_ROWS, _BATCH_BYTES = 2**16, 2**27
_NEED = "a complete parquet file"


def parquet_batches(file: Path, keep: Keep) -> Iterator[pa.RecordBatch]:
    """Read columns of a parquet file in batches, after checking what they could grow to.

    Runs of a value and references to it make a parquet file grow without limit. Text in a column
    of its own is therefore read as references; where it is nested, which cannot be, batches are so
    small that even the longest text the file could hold does not fill the memory.
    """
    try:
        metadata = parquet.read_metadata(file)
        schema = metadata.schema
        names = schema.to_arrow_schema().names
        refuse_twice(file, names)
        known = set(names)
        all_paths = [schema.column(place).path for place in range(len(schema))]
        leaves = [i for i, path in enumerate(all_paths) if keep(*_column_of(path, known))]
        paths = [all_paths[i] for i in leaves]
        if not paths:
            refuse_columns(file, names)
        longest = _check_size(file, metadata, leaves)
        texts = [i for i in leaves if schema.column(i).physical_type == "BYTE_ARRAY"]
        flat = [all_paths[i] for i in texts if _is_flat(schema.column(i))]
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, longest)))
        source = parquet.ParquetFile(file, read_dictionary=flat)
        batches = source.iter_batches(rows, columns=paths, use_threads=False)
    except InputError:
        raise
    except Exception as error:  # what a parser raises on a damaged file can't be listed
        unreadable(file, error, _NEED)
    while True:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)  # or text that is not UTF-8 would fail later
        except Exception as error:  # as above
            unreadable(file, error, _NEED)
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


def refuse_twice(file: Path, names: Sequence[str]) -> None:
    """Refuse a column that is there more than once."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file} has the column {twice!r} more than once; keep one.")


def refuse_columns(file: Path, names: Iterable[object]) -> NoReturn:
    """Refuse a file without any column that is needed."""
    raise InputError(f"{file} has none of the columns that are needed; it has {quoted(names)}.")


def _check_size(file: Path, metadata: Any, leaves: Sequence[int]) -> int:
    """Refuse what could grow too large; give the bytes that one nested text could have."""
    cells = longest = nested = 0
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        for place in leaves:
            chunk, leaf = group.column(place), metadata.schema.column(place)
            cells += max(chunk.num_values, group.num_rows) * max(8, leaf.length) // 8
            longest = max(longest, chunk.total_uncompressed_size)
            if leaf.physical_type == "BYTE_ARRAY" and not _is_flat(leaf):
                nested = max(nested, chunk.total_uncompressed_size)
    if cells > MAX_CELLS or longest > _MAX_CHUNK:
        raise InputError(
            f"{file} claims {cells:,} values, and {longest:,} bytes in one row group of a column; "
            f"at most {MAX_CELLS:,} and {_MAX_CHUNK:,} are read. If it is genuine, split it, or "
            "write smaller row groups."
        )
    return nested


def plain_columns(file: Path, batch: pa.RecordBatch) -> list[list[Any]]:
    """Turn a batch into a list of plain values a column; equal texts are one object."""
    try:
        return [_plain(column) for column in batch.columns]
    except Exception as error:  # dates that no calendar has, and the like
        unreadable(file, error, _NEED)


def _plain(array: pa.Array) -> list[Any]:
    if isinstance(array, pa.DictionaryArray):
        codes = array.indices.to_pylist()
        used = sorted({code for code in codes if code is not None})
        words = dict(
            zip(used, array.dictionary.take(pa.array(used, "int64")).to_pylist(), strict=True)
        )
        return [None if code is None else words[code] for code in codes]
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
