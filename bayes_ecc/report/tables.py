"""Tables that can be read without a script, and sorted and searched with one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_ecc.report.markup import Content, Markup, isolated, join, tag

_STRIP_WIDTH, _STRIP_HEIGHT = 90, 14


class Column(NamedTuple):
    """A column: its heading, whether it holds numbers, and what it means."""

    heading: Content
    numeric: bool = False
    meaning: str | None = None


class Cell(NamedTuple):
    """A cell: what it shows, what it is sorted by (what it shows, by default), how it looks."""

    content: Content
    sort: float | str | None = None
    look: str | None = None


def table(
    caption: Content,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell | Content]],
    *,
    name: str,
    plain: bool = False,
    legend: bool = False,
) -> Markup:
    """Lay out a table; its first column names the rows.

    Parameters
    ----------
    caption : content
        What the table shows.
    columns : sequence of Column
    rows : iterable of sequences
        One cell a column.
    name : str
        Says what the scrolling box around it holds, to those who hear the page.
    plain : bool
        Whether there is nothing to sort or search.
    legend : bool
        Whether to tell below what the columns mean, which otherwise a mouse alone finds out.

    Returns
    -------
    Markup

    Examples
    --------
    >>> from bayes_ecc.report.tables import Cell, Column, table
    >>> made = table("Wins", [Column("LLM"), Column("wins", True)], [["a<b", Cell("12", 12)]],
    ...              name="wins")
    >>> '<th scope="row">a&lt;b</th><td class="number" data-sort="12">12</td>' in made
    True
    """
    heads = [
        tag(
            "th",
            column.heading,
            scope="col",
            class_="number" if column.numeric else None,
            title=column.meaning,
        )
        for column in columns
    ]
    body = [
        tag("tr", [_cell(cell, columns[i], first=i == 0) for i, cell in enumerate(row)])
        for row in rows
    ]
    made = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        data_sortable=not plain,
    )
    box = tag("div", made, class_="scroll", role="region", tabindex="0", aria_label=name)
    meant = [column for column in columns if column.meaning and column.heading] if legend else []
    if not meant:
        return box
    terms = [tag("div", tag("dt", one.heading), tag("dd", one.meaning)) for one in meant]
    told = tag("details", tag("summary", "What the columns mean"), tag("dl", terms))
    return join(box, told)


def _cell(cell: Cell | Content, column: Column, first: bool) -> Markup:
    content, sort, look = cell if isinstance(cell, Cell) else Cell(cell)
    if isinstance(sort, float) and not math.isfinite(sort):
        sort = ""
    attributes: dict[str, Any] = {
        "class_": look or ("number" if column.numeric else None),
        "data_sort": None if sort is None else sort,
    }
    if first:
        return tag("th", content, scope="row", **attributes)
    return tag("td", content, **attributes)


# -------------------------------------------------------------------- cells


def number(value: float, form: str = ".2f") -> Cell:
    """Show a number; a dash where there is none.

    Examples
    --------
    >>> from bayes_ecc.report.tables import number
    >>> number(0.1234), number(float("nan")).content
    (Cell(content='0.12', sort=0.1234, look=None), '-')
    """
    if value is None or not math.isfinite(value):
        return Cell("-", math.nan)
    return Cell(f"{value:{form}}", round(float(value), 9))


def count(value: int | np.integer[Any]) -> Cell:
    """Show how many there are."""
    return Cell(f"{value:,}", float(value))


def interval(low: float, high: float, form: str = ".2f") -> Cell:
    """Show the bounds of an interval; it is sorted by the lower one."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return Cell("-", math.nan)
    return Cell(f"{low:{form}} to {high:{form}}", round(float(low), 9))


def named(name: object) -> Cell:
    """Show a name of the data; by itself, whatever direction it runs in."""
    return Cell(isolated(name), str(name)[:200], "name")


def names(values: Iterable[object], most: int = 6) -> Markup:
    """List names, the first few of many."""
    every = [str(value) for value in values]
    shown = [isolated(value) for value in every[:most]]
    parts: list[Content] = [part for value in shown for part in (", ", value)][1:]
    if len(every) > most:
        parts.append(f" and {len(every) - most} more")
    return tag("span", parts)


# -------------------------------------------------------------------- small pictures


def strip(
    value: float, low: float, high: float, *, start: float, stop: float, zero: float | None = None
) -> Markup | None:
    """Draw a point and its interval on a scale; the numbers beside it tell the same in words."""
    if not all(math.isfinite(bound) for bound in (value, low, high, start, stop)) or start == stop:
        return None
    inset = 5

    def place(at: float) -> str:
        share = min(max((at - start) / (stop - start), 0.0), 1.0)
        return f"{inset + share * (_STRIP_WIDTH - 2 * inset):.1f}"

    middle = str(_STRIP_HEIGHT / 2)
    return _picture(
        tag("line", x1=inset, x2=_STRIP_WIDTH - inset, y1=middle, y2=middle, class_="axis"),
        zero is not None
        and tag("line", x1=place(zero), x2=place(zero), y1=1, y2=_STRIP_HEIGHT - 1, class_="zero"),
        tag("line", x1=place(low), x2=place(high), y1=middle, y2=middle, class_="range"),
        tag("circle", cx=place(value), cy=middle, r=3.5, class_="dot"),
    )


def bar(share: float) -> Markup | None:
    """Draw a share as a bar."""
    if not math.isfinite(share):
        return None
    width = f"{min(max(share, 0.0), 1.0) * _STRIP_WIDTH:.1f}"
    return _picture(
        tag("rect", x=0, y=3, width=_STRIP_WIDTH, height=8, rx=2, class_="trough"),
        tag("rect", x=0, y=3, width=width, height=8, rx=2, class_="bar"),
    )


def _picture(*parts: Content) -> Markup:
    return tag(
        "svg",
        [part for part in parts if part],
        class_="strip",
        width=_STRIP_WIDTH,
        height=_STRIP_HEIGHT,
        viewBox=f"0 0 {_STRIP_WIDTH} {_STRIP_HEIGHT}",
        aria_hidden="true",
    )
