"""From tables to integer codes: what `Comparisons` checks, and how it reads what people have."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.errors import InputError

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]

WINNERS: Mapping[str, float] = MappingProxyType({"model_a": 0.0, "model_b": 1.0, "tie": 0.5})
"""What the column `winner` may hold, and the outcome it means (the chance that model_b wins)."""

# -------------------------------------------------------------------- checking


def lock(values: NDArray[Any]) -> NDArray[Any]:
    """Make a read-only array of our own; what the caller holds stays writable."""
    # a read-only view may show memory that somebody else can write to
    if values.flags.writeable or values.base is not None:
        values = values.copy()
        values.flags.writeable = False
    return values


def read_identifiers(values: Any, name: str) -> pd.Index:
    """Give identifiers as a checked index: unique, none missing, all strings or all integers."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} must be a list of identifiers, not {values!r}.")
    index = values if isinstance(values, pd.Index) else pd.Index(list(values))
    if isinstance(index, pd.MultiIndex):
        raise InputError(f"{name} must be strings, not tuples; join each into one string.")
    if len(index) == 0:
        raise InputError(f"{name} is empty; give at least one identifier.")
    if index.hasnans:
        raise InputError(f"{name} holds a missing value; every identifier must be given.")
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise InputError(f"{name} holds {twice!r} more than once; identifiers must be unique.")
    if name == "models":
        check_names(index)
    elif not (pd.api.types.is_integer_dtype(index.dtype) or all_strings(index)):
        raise InputError(
            f"{name} must be all strings or all integers, not {index.dtype}; convert them first."
        )
    for value in index:
        if isinstance(value, str) and "\0" in value:
            raise InputError(f"{name} holds {value!r}; names must not contain the NUL character.")
    return index.rename(None)


def all_strings(values: Iterable[Any]) -> bool:
    """Tell whether all values are strings."""
    return all(isinstance(value, str) for value in values)


def check_names(values: Iterable[Any]) -> None:
    """Refuse model names that are no strings, or blank."""
    for value in values:
        if not isinstance(value, str):
            raise InputError(
                f"models holds {value!r} of type {type(value).__name__}; model names are strings."
            )
        if "\0" in value:
            raise InputError(f"models holds {value!r}; names must not contain the NUL character.")
        if not value.strip():
            raise InputError(f"models holds the blank name {value!r}; every model needs a name.")


def read_list(values: Any, name: str) -> list[Any]:
    """List names or identifiers; refuse one string, whose letters would be taken for names."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(f"{name}={values!r}: give a list, even of one.")
    listed = list(values)
    for value in listed:
        if isinstance(value, (list, dict, set, np.ndarray)):
            raise InputError(f"{name} holds {value!r}; give a flat list.")
    return listed


def read_codes(values: Any, name: str, limit: int, what: str) -> IntArray:
    """Give integer codes into a list of `limit` entries."""
    codes = read_array(values, name)
    if codes.ndim != 1 or (codes.dtype.kind not in "iu" and codes.size):
        raise InputError(
            f"{name} must be a one-dimensional array of integer codes into {what}, not "
            f"{codes.ndim}-dimensional {codes.dtype}."
        )
    refuse_rows(
        (codes < 0) | (codes >= limit),
        name,
        lambda row: str(codes[row]),
        f"codes point into the {limit} {what} and lie between 0 and {limit - 1}",
    )
    return codes.astype(np.intp, copy=False)


def read_array(values: Any, name: str) -> NDArray[Any]:
    """Give an array, or refuse ragged rows."""
    try:
        return np.asarray(values)
    except ValueError:
        raise InputError(f"{name} is ragged; give one value a row.") from None


def read_numbers(values: Any, name: str) -> FloatArray:
    """Give a column of real numbers as floats."""
    if isinstance(values, pd.Series) and is_real(values.dtype):
        values = values.to_numpy(dtype=float, na_value=np.nan)
    numbers = read_array(values, name)
    if numbers.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, not {numbers.ndim}-dimensional.")
    if numbers.dtype == object:
        refuse_rows(
            np.array([not (v is None or isinstance(v, (Real, Decimal))) for v in numbers], bool),
            name,
            lambda row: repr(numbers[row]),
            "give a number, not text",
        )
    elif numbers.dtype.kind not in "biuf":
        raise InputError(f"{name} must be numbers, not {numbers.dtype}; convert it first.")
    return numbers.astype(float, copy=False)


def is_real(dtype: Any) -> bool:
    """Tell whether a column holds real numbers."""
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)


def refuse_rows(bad: NDArray[np.bool_], name: str, found: Any, remedy: str) -> None:
    """Refuse the rows marked bad, naming the first and what was found there."""
    if bad.any():
        row = int(np.argmax(bad))
        others = int(bad.sum()) - 1
        more = f" (and {others} more row{'s' if others > 1 else ''})" if others else ""
        raise InputError(f"{name}, row {row}{more}: found {found(row)}; {remedy}.")


# -------------------------------------------------------------------- reading tables


def encode_column(
    column: pd.Series, vocabulary: Iterable[Hashable] | None, name: str
) -> tuple[IntArray, pd.Index]:
    """Turn a column of identifiers into codes and the index they point into."""
    if column.dtype == object:
        refuse_rows(
            np.array([not isinstance(value, (str, int, np.integer)) for value in column], bool),
            name,
            lambda row: repr(column.iloc[row]),
            "allowed are strings" + ("" if name.startswith("model") else " or whole numbers"),
        )
    if vocabulary is None:
        codes, uniques = pd.factorize(column.astype(object))
        return codes, pd.Index(list(uniques))
    kind = "models" if name.startswith("model") else "queries"
    index = read_identifiers(vocabulary, kind)
    codes = index.get_indexer(pd.Index(column.astype(object)))
    refuse_rows(
        codes < 0,
        name,
        lambda row: repr(column.iloc[row]),
        f"it is not among the {len(index)} {kind} given; drop such rows or add it",
    )
    return codes, index


def read_outcomes(frame: pd.DataFrame) -> FloatArray:
    """Read the column `outcome`, or `winner` in words."""
    if "winner" in frame.columns and "outcome" in frame.columns:
        raise InputError("The table has both winner and outcome; keep the one that counts.")
    if "outcome" in frame.columns:
        return read_numbers(frame["outcome"], "outcome")
    winner = frame["winner"].astype(object)
    named = [WINNERS.get(value) if isinstance(value, str) else None for value in winner]
    outcome = np.array(named, dtype=float)
    refuse_rows(
        np.isnan(outcome),
        "winner",
        lambda row: repr(winner.iloc[row]),
        f"allowed are {', '.join(WINNERS)}; map other labels first or drop such rows",
    )
    return outcome


def read_scores(scores: pd.DataFrame) -> tuple[pd.Index, pd.Index, FloatArray]:
    """Give the identifiers, model names and values of a score table."""
    if not isinstance(scores, pd.DataFrame):
        raise InputError(f"scores must be a pandas DataFrame, not {type(scores).__name__}.")
    table = scores.set_index("query_id") if "query_id" in scores.columns else scores
    ids, names = read_identifiers(table.index, "queries"), read_identifiers(table.columns, "models")
    if len(names) < 2:
        raise InputError("The score table has one model; comparisons need at least two columns.")
    for name, column in table.items():
        if not is_real(column.dtype):
            raise InputError(
                f"The column {name!r} of the score table holds {column.dtype}, not numbers; "
                "convert it or leave it out."
            )
    values = table.to_numpy(dtype=float, na_value=np.nan)
    if np.isinf(values).any():
        row, column = np.argwhere(np.isinf(values))[0]
        raise InputError(
            f"The score of {names[column]!r} on {ids[row]!r} is infinite; use a finite number, "
            "or leave it blank if the model was not run."
        )
    return ids, names, values


def draw_pairs(
    allowed: NDArray[np.bool_], per_query: int | None, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw up to `per_query` allowed columns of each row in random order, rows ascending."""
    keys = np.where(allowed, rng.random(allowed.shape), np.inf)
    n = allowed.shape[1] if per_query is None else min(per_query, allowed.shape[1])
    if n < allowed.shape[1]:
        columns = np.argpartition(keys, n - 1, axis=1)[:, :n]
    else:
        columns = np.broadcast_to(np.arange(n), allowed.shape)
    chosen = np.take_along_axis(keys, columns, axis=1)
    columns = np.take_along_axis(columns, np.argsort(chosen, axis=1), axis=1)
    rows = np.broadcast_to(np.arange(len(allowed))[:, None], columns.shape)
    real = np.take_along_axis(allowed, columns, axis=1)
    return rows[real], columns[real]
