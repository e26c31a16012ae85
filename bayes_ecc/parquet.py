"""Parquet files, read in pieces and checked for what they could grow to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from bayes_ecc.errors import InputError
from bayes_ecc.reading import quoted, unreadable

type Keep = Callable[[str, str], bool]
"""Whether a column is wanted; each field in a nested one is asked for, such as `list.element.x`."""

MAX_CELLS = 100_000_000
"""Values read of one file: a few bytes of it can stand for any number of rows."""
MAX_BYTES = 2**31
"""Bytes that a table of one's own may take once it is read."""
_MAX_CHUNK = 2**29
_BATCH_ROWS, _BATCH_BYTES = 2**16, 2**27
_NEED = "a complete parquet file"


def parquet_batches(file: Path, keep: Keep) -> Iterator[pa.RecordBatch]:
    """Read columns of a parquet file in batches, after checking what they could grow to.

    Runs of a value and references to it make a parquet file grow without limit. Text in a column
    of its own is therefore read as references; where it is nested, or written as differences to the
    text before, which cannot be, batches are so small that even the longest text the file could
    hold does not fill the memory.
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
        flat = [all_paths[i] for i in texts if _can_be_references(metadata, i)]
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


def _can_be_references(metadata: Any, place: int) -> bool:
    """Tell whether a column of texts is no part of another, nor written as differences."""
    leaf = metadata.schema.column(place)
    if leaf.path != leaf.name or leaf.max_repetition_level:
        return False
    chunks = (metadata.row_group(i).column(place) for i in range(metadata.num_row_groups))
    return not any("DELTA" in name for chunk in chunks for name in chunk.encodings)


def refuse_twice(file: Path, names: Sequence[str]) -> None:
    """Refuse a column that is there more than once."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{file} has the column {twice!r} more than once; keep one.")


def refuse_columns(file: Path, names: Iterable[object]) -> NoReturn:
    """Refuse a file without any column that is needed."""
    raise InputError(f"{file} has none of the columns that are needed; it has {quoted(names)}.")


def _check_size(file: Path, metadata: Any, leaves: Sequence[int]) -> int:
    """Refuse what could grow too large; give the bytes a text that is no reference could have."""
    cells = longest = nested = 0
    whole = {i for i in leaves if not _can_be_references(metadata, i)}
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        for place in leaves:
            chunk, leaf = group.column(place), metadata.schema.column(place)
            cells += max(chunk.num_values, group.num_rows) * max(8, leaf.length) // 8
            longest = max(longest, chunk.total_uncompressed_size)
            if leaf.physical_type == "BYTE_ARRAY" and place in whole:
                nested = max(nested, chunk.total_uncompressed_size)
    if cells > MAX_CELLS or longest > _MAX_CHUNK:
        raise InputError(
            f"{file} claims {cells:,} values, and {longest:,} bytes in one row group of a column; "
            f"at most {MAX_CELLS:,} and {_MAX_CHUNK:,} are read. If it is genuine, split it, or "
            "write smaller row groups."
        )
    return nested


def bounded_table(file: Path) -> pa.Table:
    """Read a whole table exactly as it is, refusing it before it grows beyond what is read."""
    try:
        metadata, schema = parquet.read_metadata(file), parquet.read_schema(file)
        known = set(schema.names)
        small = {
            _column_of(metadata.schema.column(place).path, known)[0]
            for place in range(len(metadata.schema))
            if not _can_be_references(metadata, place)
        }
    except Exception as error:  # as above
        unreadable(file, error, _NEED)
    refuse_twice(file, schema.names)
    columns: dict[str, list[pa.Array]] = {name: [] for name in schema.names}
    size = 0
    # apart, for what has to be read in small batches would make the others slow
    for together in (known - small, small) if known else ():
        if not together:
            continue
        for batch in parquet_batches(file, _named(together)):
            size += sum(_full_size(column) for column in batch.columns)
            if size > MAX_BYTES:
                raise InputError(
                    f"{file} grows to more than {MAX_BYTES:,} bytes; that is no data, or too much "
                    "to read at once. If it is genuine, leave out the longest texts, or split it."
                )
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                columns[name].append(column)
    try:
        arrays = [
            pa.chunked_array(
                [_as_stored(piece, field.type) for piece in columns[field.name]], field.type
            )
            for field in schema
        ]
        return pa.Table.from_arrays(arrays, schema=schema)
    except Exception as error:  # as above
        unreadable(file, error, _NEED)


def _named(names: Collection[str]) -> Keep:
    return lambda name, _path: name in names


def _full_size(column: pa.Array) -> int:
    """Give the bytes of a column, each text counted wherever it is referred to."""
    kind = column.type
    if pa.types.is_struct(kind):
        return 8 * len(column) + sum(_full_size(field) for field in column.flatten())
    if pa.types.is_map(kind):
        return 8 * len(column) + _full_size(column.keys) + _full_size(column.items)
    if pa.types.is_nested(kind):  # lists of all kinds
        return 8 * len(column) + _full_size(column.flatten())
    if not isinstance(column, pa.DictionaryArray) or not _is_text(kind.value_type):
        return int(column.nbytes)
    lengths = pc.binary_length(column.dictionary).cast("int64")
    return 8 * len(column) + int(pc.sum(lengths.take(column.indices)).as_py() or 0)


def _as_stored(column: pa.Array, stored: pa.DataType) -> pa.Array:
    if isinstance(column, pa.DictionaryArray) and not pa.types.is_dictionary(stored):
        column = column.dictionary_decode()
    return column if column.type == stored else column.cast(stored)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(test(kind) for test in (*tests, pa.types.is_large_binary))


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
