"""One table or array at a time: read from a file exactly as it is, and checked."""

from __future__ import annotations

import csv
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

from bayes_ecc.errors import InputError
from bayes_ecc.parquet import bounded_table

ID = "query_id"
"""The column that identifies the queries in every table."""

# ------------------------------------------------------------------------------ reading


def read_table(path: Path) -> pd.DataFrame:
    """Read a parquet file, or a CSV file as text."""
    try:
        if path.suffix == ".csv":
            return _read_csv(path)
        return bounded_table(path).to_pandas()
    except InputError:
        raise
    except Exception as error:  # what a parser raises on a damaged file can't be listed
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        need = (
            "UTF-8, separated by commas, every row as long as the first"
            if path.suffix == ".csv"
            else "a complete parquet file"
        )
        raise InputError(f"{path} cannot be read ({reason}); it must be {need}.") from error


def _read_csv(path: Path) -> pd.DataFrame:
    """Read all columns as text, exactly; blanks as missing."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next((row for row in csv.reader(file, strict=True) if row), None)
    if header is None:
        raise InputError(f"{path} is empty; the first line names the columns.")
    columns = [f"f{i}" for i in range(len(header))]  # the reader's own names; headers may repeat
    table = arrow_csv.read_csv(
        path,
        read_options=arrow_csv.ReadOptions(
            autogenerate_column_names=True,
            use_threads=False,  # so that its messages can give the row
            block_size=min(max(path.stat().st_size, 1 << 20), 2**31 - 1),  # a row must fit
        ),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=True,
        ),
    )
    return table.slice(1).rename_columns(header).to_pandas()


def read_array(path: Path) -> NDArray[Any]:
    """Read one array, never a pickle."""
    try:
        # mapped first: a header that promises more than the file holds allocates nothing
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # as above; a truncated header alone has half a dozen ways to fail
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{path} cannot be read ({reason}); write a plain array of numbers with numpy.save."
        ) from error
    if not isinstance(values, np.ndarray):
        values.close()
        raise InputError(f"{path} is an archive of arrays; write one array with numpy.save.")
    return np.array(values)


# ------------------------------------------------------------------------------ checking


def refuse(
    bad: NDArray[np.bool_],
    where: str,
    found: Any,
    remedy: str,
    ids: Any = None,
) -> None:
    """Raise an error about the first bad row, if there is one.

    `found` is what to show: a text, or one value a row. `ids` holds the query of each row.
    """
    if not bad.any():
        return
    row, others = int(np.argmax(bad)), int(bad.sum()) - 1
    query = "" if ids is None else f" (query {ids[row]!r})"
    more = f" and {others} more" if others else ""
    shown = found if isinstance(found, str) else _shown(found[row])
    raise InputError(f"{where}, row {row}{query}{more}: found {shown}; {remedy}.")


def _shown(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    missing = value is None or value is pd.NA or value is pd.NaT or value == ""
    return "no value" if missing or value != value else repr(value)


def checked_table(frame: Any, source: str) -> pd.DataFrame:
    """Copy a table with rows numbered from 0 and clean identifiers."""
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{source} must be a pandas DataFrame, not {type(frame).__name__}.")
    if ID not in frame.columns and list(frame.index.names) == [ID]:
        frame = frame.reset_index()
    elif any(name is not None for name in frame.index.names):
        raise InputError(
            f"{source} has the index {', '.join(map(repr, frame.index.names))} besides its "
            "columns; make it a column with reset_index, or drop it."
        )
    frame = frame.reset_index(drop=True)
    for name in frame.columns:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{source} has a column named {name!r}; columns need a name each.")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{source} has the column {twice!r} more than once; rename one of them.")
    if ID not in frame.columns:
        raise InputError(
            f"{source} lacks the column {ID}; it has {', '.join(frame.columns) or 'no column'}. "
            f"Call the column that identifies the queries {ID} (CSV: separate by commas)."
        )
    if not len(frame):
        raise InputError(f"{source} has no rows.")
    values = frame[ID].tolist()
    whole = all(_is_whole(value) for value in values)
    refuse(
        np.array([not whole and (not isinstance(value, str) or not value) for value in values]),
        f"{source}, column {ID}",
        values,
        "every row needs an identifier, and all of them are strings or all whole numbers",
    )
    return frame.assign(**{ID: pd.Series(values, index=frame.index)})


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def match_id_types(tables: dict[str, pd.DataFrame]) -> str:
    """Turn whole numbers into text where any table has text; give a remark for messages."""
    whole = [name for name in tables if pd.api.types.is_integer_dtype(tables[name][ID].dtype)]
    if len(whole) in (0, len(tables)):
        return ""
    for name in whole:
        tables[name] = tables[name].assign(**{ID: tables[name][ID].astype(str)})
    return (
        f" (identifiers are whole numbers in {', '.join(whole)} and text elsewhere; they match "
        "only where they are written alike, 7 as '7')"
    )


def check_ids(
    table: pd.DataFrame, source: str, known: pd.Index, known_source: str, remark: str = ""
) -> None:
    """Refuse rows of queries that are not known."""
    refuse(
        known.get_indexer(table[ID]) < 0,
        f"{source}, column {ID}",
        table[ID],
        f"{known_source} has no such query; add it there or drop the row{remark}",
    )


def check_unique(table: pd.DataFrame, source: str) -> None:
    """Refuse a second row of a query."""
    refuse(
        table[ID].duplicated().to_numpy(),
        f"{source}, column {ID}",
        table[ID],
        "it has a row already; give each query one row",
    )


def make_numeric(
    table: pd.DataFrame, columns: list[str], source: str, *, negative: bool = True
) -> None:
    """Turn columns of our own copy into floats, in place; refuse what is not a finite number."""
    for name in columns:
        where, dtype = f"{source}, column {name!r}", table[name].dtype
        if dtype in (np.float32, np.float64):
            numbers = table[name].to_numpy()
        elif pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
            numbers = table[name].to_numpy(dtype=float, na_value=np.nan)
        else:
            cells = table[name].tolist()
            parsed = [_number(cell) for cell in cells]
            refuse(
                np.array([number is None for number in parsed]),
                where,
                cells,
                "give a number, blank where there is none; text belongs to the queries",
                table[ID],
            )
            numbers = np.array(parsed, dtype=float)
        bad, kind = np.isinf(numbers), "finite"
        if not negative:
            bad, kind = bad | (numbers < 0), "finite, non-negative"
        refuse(
            bad,
            where,
            numbers,
            f"give a {kind} number, or leave it blank if there is none",
            table[ID],
        )
        table[name] = numbers


def _number(cell: Any) -> float | None:
    """Give a cell's number, NaN for a blank one, None for what is neither."""
    if cell is None or cell is pd.NA:
        return float("nan")
    if isinstance(cell, str):
        cell = cell.strip()
        if not cell:
            return float("nan")
        # a blank says "missing", the word nan may be a slip; and Python would read 1_000
        if cell.lower().lstrip("+-") == "nan" or "_" in cell:
            return None
    elif not isinstance(cell, (Real, Decimal)):
        return None
    try:
        return float(cell)
    except (ValueError, OverflowError):
        return None


def checked_embeddings(values: Any, n_queries: int, source: str) -> NDArray[Any]:
    """Give a read-only float array; a copy only if the type has to change."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{source} must be a table of numbers: {error}.") from None
    if array.dtype.kind not in "fiu":
        raise InputError(f"{source} holds {array.dtype}; give an array of real numbers.")
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(
            f"{source} has shape {array.shape}; give one row a query, (n_queries, embedding_dim)."
        )
    if len(array) != n_queries:
        raise InputError(
            f"{source} has {len(array)} rows for {n_queries} queries; row i belongs to row i of "
            "the queries."
        )
    if array.dtype not in (np.float32, np.float64):
        wide = array.dtype.kind == "f" and array.dtype.itemsize > 4
        array = array.astype(np.float64 if wide else np.float32)
    refuse(
        ~np.isfinite(array).all(axis=1),
        source,
        "a value that is not finite",
        "encode that query again",
    )
    refuse(
        ~array.any(axis=1),
        source,
        "only zeros",
        "a direction is needed; encode that query again (was its text empty?)",
    )
    array = array.view()
    array.flags.writeable = False
    return array


def refuse_nested(frame: pd.DataFrame, path: Path) -> None:
    """Refuse columns whose cells hold more than one value."""
    for name in frame.columns:
        cells = frame[name].array
        refuse(
            np.array([not pd.api.types.is_scalar(cell) for cell in cells], dtype=bool),
            f"{path}, column {name!r}",
            [type(cell).__name__ for cell in cells],
            "a CSV cell holds one value; write parquet instead",
        )
