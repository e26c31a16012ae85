"""Queries, scores and votes as they turn up in files, and the bundle that they make."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from bayes_ecc.bundle import Bundle
from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import shown
from bayes_ecc.errors import InputError
from bayes_ecc.tables import ID

_TRUTH = {"true": 1.0, "false": 0.0}

MAX_TEXT = 2**31
"""Characters of all texts of a data set: a file can repeat a long one for next to nothing."""

# ------------------------------------------------------------------------------ cells


def identifier(value: Any, where: str, what: str) -> str:
    """Read what identifies a query: text or a whole number."""
    if isinstance(value, str) and value.strip():
        return unicode_text(value, where, what)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{where}: found {shown(value)} as {what}; give text or a whole number.")


def model_name(value: Any, where: str, what: str) -> str:
    """Read the name of a model."""
    if not isinstance(value, str) or not value.strip() or value == ID:
        raise InputError(f"{where}: found {shown(value)} as {what}; give the name of a model.")
    return unicode_text(value, where, what)


def unicode_text(value: str, where: str, what: str) -> str:
    """Refuse half characters, which JSON can hold and no other file."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"{where}: found {shown(value)} as {what}; it holds half a character. Mend it."
            ) from None
    return value


def number(value: Any, where: str, what: str, *, truth: bool = False) -> float:
    """Read a number; NaN where there is none.

    Parameters
    ----------
    value : object
        A number, its text, or nothing.
    where, what : str
        The row and the column, for errors.
    truth : bool
        Whether true and false are numbers too.
    """
    found: float | None = None
    if value is None or value is pd.NA or (isinstance(value, str) and not value.strip()):
        return math.nan
    if isinstance(value, bool | np.bool_):
        found = float(value) if truth else None
    elif isinstance(value, str):
        word = value.strip().lower()
        # the word nan may be a slip; and Python would read 1_000
        if truth and word in _TRUTH:
            found = _TRUTH[word]
        elif word.lstrip("+-") != "nan" and "_" not in word:
            try:
                found = float(word)
            except ValueError:
                found = None
    elif isinstance(value, Real | Decimal):
        try:
            found = float(value)
        except (OverflowError, ValueError):
            found = None
    if found is None or math.isinf(found):
        raise InputError(
            f"{where}: found {shown(value)} as {what}; give a finite number, or leave it blank."
        )
    return found


def label(value: Any, where: str, what: str) -> Any:
    """Read a label: text, a number, true or false."""
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, bool | int | float):
        return None if isinstance(value, float) and math.isnan(value) else value
    if isinstance(value, np.generic | Decimal):
        return str(value)
    raise InputError(f"{where}: found {shown(value)} as {what}; a label is text or a number.")


def whole_text(value: str) -> str:
    """Put a replacement in the place of half characters: texts are read, not compared."""
    if value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ------------------------------------------------------------------------------ queries


class Queries:
    """Queries in the order in which they turn up, each once."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.texts: list[str | None] = []
        self.labels: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def add(
        self, query: str, text: str | None = None, labels: Mapping[str, Any] | None = None
    ) -> int:
        """Give the row of a query; what is known of it is taken when it first turns up."""
        row = self.rows.setdefault(query, len(self.rows))
        if row == len(self.texts):
            self.texts.append(text)
            for name, value in (labels or {}).items():
                column = self.labels.setdefault(name, [])
                column += [None] * (row - len(column))
                column.append(value)
        elif self.texts[row] is None:
            self.texts[row] = text
        return row

    def same_text(self, query: str, text: str | None) -> bool:
        """Tell whether a query is new, or has this text but for its spaces."""
        row = self.rows.get(query)
        known = None if row is None else self.texts[row]
        return known is None or text is None or known == text or _squeezed(known) == _squeezed(text)

    def columns(self) -> list[Iterable[Any]]:
        """Give all that is known of the queries."""
        return [self.rows, self.texts, *self.labels.values()]

    def frame(self) -> pd.DataFrame:
        """Give the table of the queries, with the columns that hold anything."""
        columns = {
            name: column + [None] * (len(self) - len(column))
            for name, column in [("text", self.texts), *self.labels.items()]
        }
        tidy = {name: _of_one_kind(column) for name, column in columns.items() if _any(column)}
        return pd.DataFrame({ID: list(self.rows), **tidy})


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _any(column: Sequence[Any]) -> bool:
    return any(value is not None for value in column)


def _of_one_kind(column: list[Any]) -> list[Any]:
    """Turn values of more than one kind, and kinds that cannot be missing, into text."""
    kinds = {type(value) for value in column}
    large = int in kinds and any(isinstance(v, int) and abs(v) >= 2**63 for v in column)
    missing = type(None)
    if not large and (
        len(kinds) == 1 or kinds <= {float, int} or kinds in ({str, missing}, {float, missing})
    ):
        return column
    return [None if value is None else str(value) for value in column]


# ------------------------------------------------------------------------------ scores


class ScoreSheet:
    """Scores, and costs, as they turn up: of a model on a query, in any order."""

    def __init__(self) -> None:
        self.queries = Queries()
        self._scores: dict[str, array[float]] = {}
        self._costs: dict[str, array[float]] = {}

    def model(self, name: str) -> None:
        """Give a model its column, even if it never turns up with a score."""
        self._scores.setdefault(name, array("d"))

    def score(self, row: int, model: str, value: float) -> float | None:
        """Note a score; give the one that is there already, and keep that."""
        return _note(self._scores, row, model, value)

    def cost(self, row: int, model: str, value: float) -> None:
        """Note what running a model on a query costs."""
        _note(self._costs, row, model, value)

    def loaded(self, name: str, source: str, counts: Counts) -> Loaded:
        """Make the bundle."""
        _refuse_empty(len(self.queries), source, counts)
        _check_text(source, self.queries.columns())
        scores = _table(self.queries, self._scores)
        missing = int(np.isnan(scores.drop(columns=ID).to_numpy()).sum())
        bundle = Bundle(
            name,
            self.queries.frame(),
            scores=scores,
            costs=_table(self.queries, self._costs) if self._costs else None,
            sources={"queries": source, "scores": source, "costs": source},
        )
        notes = {**counts.notes, "scores missing": missing}
        return Loaded(bundle, Counts(counts.unit, counts.read, counts.used, counts.dropped, notes))


def _note(cells: dict[str, array[float]], row: int, model: str, value: float) -> float | None:
    column = cells.setdefault(model, array("d"))
    if row >= len(column):
        column.extend([math.nan] * (row + 1 - len(column)))
    elif not math.isnan(column[row]):
        return column[row]
    column[row] = value
    return None


def _table(queries: Queries, cells: Mapping[str, array[float]]) -> pd.DataFrame:
    columns = {}
    for model, column in cells.items():
        columns[model] = np.full(len(queries), np.nan)
        columns[model][: len(column)] = column
    table = pd.DataFrame(columns)
    table.insert(0, ID, list(queries.rows))
    return table


# ------------------------------------------------------------------------------ votes


class VoteSheet:
    """Comparisons as they turn up, and an account of those left out."""

    def __init__(self, unit: str) -> None:
        self.queries = Queries()
        self.unit = unit
        self.read = 0
        self.dropped: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self._columns: dict[str, list[Any]] = {}
        self._used = 0

    def add(self, query: str, model_a: str, model_b: str, **columns: Any) -> None:
        """Note a comparison: its winner or outcome, and whatever else is known of it."""
        row = {ID: query, "model_a": model_a, "model_b": model_b, **columns}
        for name, value in row.items():
            if name not in self._columns:
                self._columns[name] = [None] * self._used
            self._columns[name].append(value)
        self._used += 1
        for name in self._columns.keys() - row.keys():
            self._columns[name].append(None)

    def drop(self, reason: str) -> None:
        """Leave a comparison out."""
        self.dropped[reason] += 1

    def loaded(self, name: str, source: str, *, ordered: bool = True) -> Loaded:
        """Make the bundle; `ordered` says whether model_a was shown first."""
        counts = Counts(self.unit, self.read, self._used, self.dropped, self.notes)
        _refuse_empty(self._used, source, counts)
        _check_text(source, [*self.queries.columns(), *self._columns.values()])
        tidy = {
            name: _of_one_kind(column) for name, column in self._columns.items() if _any(column)
        }
        bundle = Bundle(
            name,
            self.queries.frame(),
            comparisons=pd.DataFrame(tidy),
            sources={"queries": source, "comparisons": source},
            ordered=ordered,
        )
        return Loaded(bundle, counts)


def _check_text(source: str, columns: Iterable[Iterable[Any]]) -> None:
    """Refuse more text than a table should hold: here equal texts are one, there they are not."""
    size = sum(len(value) for column in columns for value in column if isinstance(value, str))
    if size > MAX_TEXT:
        raise InputError(
            f"{source} holds {size:,} characters of text; at most {MAX_TEXT:,} are read. If they "
            "are genuine, leave out the longest or split the file."
        )


def _refuse_empty(used: int, source: str, counts: Counts) -> None:
    if not used:
        raise InputError(f"{source} leaves nothing to use: {counts}.")
