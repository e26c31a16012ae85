"""What all plots share: colours with markers, names cut to fit, and axes to draw on.

Colours are of different lightness and told apart by colour-blind readers; every series has a marker
and a line style of its own besides, so that a print in grey can be read. No text is smaller than
`SMALL` points.
"""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.legend import Legend
from numpy.typing import NDArray

from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]

SMALL = 7.0
"""Size in points of the smallest text."""
TEXT = 8.0
"""Size in points of tick labels and legends."""
COLORS = ("#0069A8", "#D4570B", "#16936F", "#B8649B", "#1A1A1A", "#E09B00", "#57ABDF", "#8A7B12")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
LINES = ("-", "--", "-.", ":")
GREY = "#8C8C8C"
HEAT_MAP = "cividis"

_NAME_WIDTH = 26  # characters of a name
_WIDEST = 60  # characters of names that are the same up to here
_POINTS = 72  # an inch
_SMALLEST = (3.6, 2.2)
_LARGEST = (24.0, 40.0)  # inches of a figure
_SHRINKS = 0.75  # what a layout may leave of axes that somebody else laid out
_ANNOTATED = 160  # cells of a heat map that have room for numbers


# -------------------------------------------------------------------- text


def plain_text(value: Any) -> str:
    r"""Write a name as plain text: on one line, and no part of it taken for mathematics.

    Examples
    --------
    >>> from bayes_ecc.plots.style import plain_text
    >>> print(plain_text("a$x_1$"))
    a\$x_1\$
    """
    return _one_line(value).replace("$", r"\$")


def short_names(names: Iterable[Any], width: int = _NAME_WIDTH) -> list[str]:
    """Shorten names to `width` characters, so that different ones stay different.

    What stands before the last "/" goes first, then the middle. Names that would become the same
    are left longer, and numbered where even that is not enough.

    Examples
    --------
    >>> from bayes_ecc.plots.style import short_names
    >>> short_names(["org/a-model-70b", "other/b"], width=12)
    ['a-model-70b', 'other/b']
    >>> short_names(["a-very-long-model-name-7b", "a-very-long-model-name-70b"], width=12)
    ['a-very…me-7b', 'a-very…e-70b']
    """
    whole = [_one_line(name) for name in names]
    found = [_shortened(name, width) for name in whole]
    for wider in range(width + 8, _WIDEST + 1, 8):
        twice = _repeated(found)
        if not twice:
            break
        found = [
            _cut(name, wider) if short in twice else short
            for name, short in zip(whole, found, strict=True)
        ]
    twice = _repeated(found)
    if twice:
        seen: dict[str, int] = {}
        for i, short in enumerate(found):
            if short in twice:
                seen[short] = seen.get(short, 0) + 1
                found[i] = f"{short} [{seen[short]}]"
    return [plain_text(short) for short in found]


def _one_line(value: Any) -> str:
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return " ".join(text.split()) or "(empty)"


def _shortened(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    return _cut(name.rstrip("/").rpartition("/")[2], width)


def _cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def chance(p: float) -> str:
    """Write a probability in two digits, certainty apart from near certainty."""
    if 0 < p < 0.005:
        return "<.01"
    if 0.995 <= p < 1:
        return ">.99"
    return f"{p:.2f}"


# -------------------------------------------------------------------- axes


def new_axes(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """Give the axes to draw on: the caller's, or those of a new figure.

    Raises
    ------
    InputError
        If `ax` is something else.
    """
    if ax is None:
        size = np.clip(figsize, _SMALLEST, _LARGEST)
        return plt.subplots(figsize=(size[0], size[1]), layout="constrained")[1]
    check_axes(ax)
    return ax


def check_axes(ax: Any) -> None:
    """Refuse what is no axes.

    Raises
    ------
    InputError
        If it is not.
    """
    if ax is not None and not isinstance(ax, Axes):
        raise InputError(f"ax must be matplotlib Axes or None, not {type(ax).__name__}.")


def write_column(ax: Axes, title: str, cells: Mapping[int, str]) -> None:
    """Write a column of numbers to the right of rows that are named."""
    look: dict[str, Any] = {"fontsize": SMALL, "va": "center", "annotation_clip": False}
    top: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    ax.annotate(title, (1.02, 1.0), (0, SMALL), **top, **look)
    place = ax.get_yaxis_transform()
    for row in ax.get_yticks().astype(int):
        if row in cells:
            ax.annotate(cells[row], (1.02, row), xycoords=place, **look)


def finish(ax: Axes, *, x: str, y: str, title: str = "", grid: str = "both") -> None:
    """Label axes and keep their frame light."""
    ax.set_xlabel(x, fontsize=TEXT + 1)
    ax.set_ylabel(y, fontsize=TEXT + 1)
    if title:
        room = _inches(ax, own_figure=True)[0] * _POINTS / (0.58 * (TEXT + 1))
        ax.set_title(_wrapped(title, max(20, int(room))), fontsize=TEXT + 1, loc="left")
    ax.tick_params(labelsize=TEXT)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.set_axisbelow(True)
    if grid in ("both", "x", "y"):
        ax.grid(True, axis=grid, color="0.9", linewidth=0.6)  # type: ignore[arg-type]


def _wrapped(title: str, width: int) -> str:
    """Break a title into lines, after commas if possible."""
    lines = [""]
    for part in title.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) >= width:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return "\n".join(textwrap.fill(line, width, break_long_words=False) for line in lines)


def add_legend(
    ax: Axes, entries: Mapping[str, Any], *, title: str | None = None, outside: bool = False
) -> Legend:
    """Draw a legend of entries, label to handle; labels are plain text already."""
    where: dict[str, Any] = {"loc": "best"}
    if outside:
        where = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    return ax.legend(
        list(entries.values()),
        list(entries),
        title=title,
        fontsize=TEXT,
        title_fontsize=TEXT,
        frameon=not outside,
        framealpha=0.8,
        edgecolor="0.9",
        handlelength=2.6,
        **where,
    )


def below_figure_or_inside(
    ax: Axes,
    entries: Mapping[str, Any],
    *,
    own_figure: bool,
    title: str | None = None,
    inside: Any = "best",
) -> None:
    """Draw a legend under a figure of one's own, and inside the axes of another's."""
    figure = ax.get_figure(root=True)
    if not own_figure or figure is None:
        add_legend(ax, entries, title=title).set_loc(inside)
        return
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=len(entries),
        title=title,
        title_fontsize=TEXT + 1,
        fontsize=TEXT,
        frameon=False,
    )


def series_style(i: int) -> dict[str, Any]:
    """Give colour, marker and line style of series i; 32 series differ."""
    return {
        "color": COLORS[i % len(COLORS)],
        "marker": MARKERS[(i + i // len(COLORS)) % len(MARKERS)],
        "linestyle": LINES[(i + i // len(COLORS)) % len(LINES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def name_rows(ax: Axes, labels: Sequence[str], *, own_figure: bool) -> None:
    """Label rows 0, 1, ... from the top down, as many of them as fit."""
    step = _step(len(labels), _inches(ax, own_figure=own_figure)[1])
    ax.set_yticks(range(0, len(labels), step), list(labels[::step]), fontsize=TEXT)
    ax.set_ylim(len(labels) - 0.5, -0.5)


def name_columns(ax: Axes, labels: Sequence[str], *, own_figure: bool) -> None:
    """Label columns 0, 1, ..., turned where they are long, as many of them as fit."""
    width = _inches(ax, own_figure=own_figure)[0]
    step = _step(len(labels), width)
    room = width / max(1, len(labels)) * _POINTS / (0.6 * TEXT)
    if max(map(len, labels), default=0) <= room:
        turned: dict[str, Any] = {}
    elif len(labels) > 14:
        turned = {"rotation": 90}
    else:
        turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(0, len(labels), step), list(labels[::step]), fontsize=TEXT, **turned)
    ax.set_xlim(-0.5, len(labels) - 0.5)


def _inches(ax: Axes, *, own_figure: bool) -> tuple[float, float]:
    """Width and height of axes, nearly: a layout still to come may change them."""
    box, figure = ax.get_position(), ax.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    left = 1.0 if own_figure else _SHRINKS
    return float(left * box.width * width), float(left * box.height * height)


def _step(n: int, inches: float) -> int:
    """Label every how many of n places along a stretch."""
    lines = max(1, int(inches * _POINTS / (1.15 * SMALL)))
    return max(1, -(-n // lines))


# -------------------------------------------------------------------- heat maps


def cell_size(n_cells: int) -> tuple[float, float]:
    """Choose width and height in inches of a cell, room for a number in it if there are few."""
    return (0.34, 0.22) if n_cells <= _ANNOTATED else (0.2, 0.17)


def heat_map(
    ax: Axes,
    values: FloatArray,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str,
    write: Any,
    own_figure: bool,
    **kwargs: Any,
) -> None:
    """Draw a matrix with its colour bar; numbers are written into cells where they have room."""
    settings = {"cmap": HEAT_MAP, "aspect": "auto", "interpolation": "nearest", **kwargs}
    image = ax.imshow(values, **settings)
    name_rows(ax, rows, own_figure=own_figure)
    name_columns(ax, columns, own_figure=own_figure)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.tick_params(length=0)
    figure = ax.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT)
    bar.outline.set_visible(False)
    inches = _inches(ax, own_figure=own_figure)
    width, height = (size / n for size, n in zip(inches, values.T.shape, strict=True))
    if values.size > _ANNOTATED or width * _POINTS < 3.2 * SMALL or height * _POINTS < 1.3 * SMALL:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            red, green, blue, _ = image.to_rgba(np.array([value]))[0]
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            ax.text(
                column,
                row,
                write(value),
                ha="center",
                va="center",
                fontsize=SMALL,
                color="white" if dark else "black",
            )


# -------------------------------------------------------------------- tables


def check_columns(
    table: Any, columns: Iterable[Hashable], *, name: str = "table", numbers: Iterable[str] = ()
) -> None:
    """Refuse a table that is none, is empty, lacks columns or has words for numbers.

    Raises
    ------
    InputError
        If it is such a table.
    """
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise InputError(f"{name} must be a pandas DataFrame, not {type(table).__name__}.")
    columns = list(columns)
    for column in columns:
        try:
            hash(column)
        except TypeError:
            raise InputError(
                f"{name}: a {type(column).__name__} stands where the name of a column belongs; "
                f"its columns are {', '.join(map(str, table.columns)) or 'none'}."
            ) from None
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise InputError(
            f"{name} has no column {missing[0]!r}; its columns are "
            f"{', '.join(map(str, table.columns)) or 'none'}."
        )
    if not len(table):
        raise InputError(f"{name} has no rows; there is nothing to draw.")
    for column in numbers:
        if not pd.api.types.is_numeric_dtype(table[column]):
            raise InputError(
                f"{name}, column {column!r}: holds {table[column].dtype}, such as "
                f"{table[column].iloc[0]!r}; it must hold numbers."
            )
