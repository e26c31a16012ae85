"""Plots of curves: gains along a setting, and a new LLM's rank along its comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.errors import InputError
from bayes_ecc.plots.sources import heading
from bayes_ecc.plots.style import (
    GREY,
    add_legend,
    check_axes,
    check_columns,
    finish,
    name_columns,
    new_axes,
    plain_text,
    series_style,
    short_names,
)

type FloatArray = NDArray[np.floating[Any]]
type Band = Literal["sd", "range", "interval", "none"]

LABELS: Mapping[str, str] = {
    "n_clusters": "number of clusters K",
    "embedding_weight": "embedding weight λ",
    "temperature": "temperature T",
    "ridge": "ridge",
    "per_query": "comparisons per query",
    "train_fraction": "share of the queries trained on",
    "n_probes": "probes per test query",
    "probe_noise": "noise of probe outcomes (share flipped)",
    "concentration": "concentration",
    "probe_power": "probe power",
    "tie_share": "share of ties",
    "gain": "ranking quality gain (%)",
    "gain_per_query": "ranking quality gain, by query (%)",
    "loss": "loss on held-out comparisons (nats)",
    "loss_per_query": "loss on held-out comparisons, by query (nats)",
    "ece": "expected calibration error",
}
"""What the axes of well-known columns are called."""

_REPLICATES = ("seed", "probe_draw")
_FACTS = ("message", "converged")  # told of a row, and no reason to keep it from others
_SETTINGS = (
    "n_clusters",
    "embedding_weight",
    "temperature",
    "ridge",
    "evidence_power",
    "chains",
    "draws",
    "per_query",
    "train_fraction",
    "tie_share",
    "test_per_query",
    "test_fraction",
    "n_probes",
    "reserved",
    "probe_noise",
)  # in numbers; columns of words are settings, too
_WIDE = 15.0  # largest over smallest number from which an axis is logarithmic


def plot_gain_curve(
    table: pd.DataFrame,
    x: str,
    y: str = "gain",
    *,
    by: str | Sequence[str] = "method",
    band: Band | None = None,
    log: bool | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot a measure along a setting: means over seeds, one line a method, with bands.

    Methods without the setting (its cell is blank) are drawn as level lines. A setting given in
    words gets dots with bars, side by side. Rows without the measure, of fits that were refused,
    are left out, and counted above the figure.

    Parameters
    ----------
    table : pandas.DataFrame
        One row a method, setting and seed, as `run_study` makes it: columns `x`, `y` and `by`;
        `seed` and `probe_draw` tell replicates apart.
    x, y : str
        Columns to draw.
    by : str or sequence of str
        Column or columns that tell the lines apart.
    band : {"sd", "range", "interval", "none"}, optional
        Mean +- standard deviation over replicates, their range, or the mean of the bounds in the
        columns `gain_low` and `gain_high` (for `y="gain"`). By default "sd" where a point has
        several replicates, else "interval" where there is one.
    log : bool, optional
        Logarithmic x axis; by default where positive numbers span a factor of 15 or more.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the lines, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If columns are missing, there is nothing to draw, or rows that differ in another setting
        would be averaged.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import pandas as pd
    >>> from bayes_ecc.plots import plot_gain_curve
    >>> table = pd.DataFrame({
    ...     "method": ["ecc"] * 4, "n_clusters": [10, 10, 20, 20], "seed": [0, 1, 0, 1],
    ...     "gain": [28.0, 30.0, 31.0, 33.0],
    ... })
    >>> ax = plot_gain_curve(table, "n_clusters")
    >>> ax.lines[0].get_ydata().tolist()
    [29.0, 32.0]
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    if isinstance(by, pd.DataFrame) or not isinstance(by, Iterable) or not (keys := list(by)):
        raise InputError(
            f"by is {'an empty' if isinstance(by, Sized) and not len(by) else 'a'} "
            f"{type(by).__name__}; give the name of a column, or a list of names."
        )
    if isinstance(by, str):
        keys = [by]
    check_columns(table, [x, y, *keys], numbers=[y])
    keys = [key for key in keys if key != x] or keys
    n_rows = len(table)
    table = table.assign(**{x: _as_numbers(table[x])})[table[y].notna()]
    if not len(table):
        raise InputError(f"table, column {y!r}: all {n_rows} rows are blank; nothing to draw.")
    if band is not None:
        check_choice("band", band, ("sd", "range", "interval", "none"))
    _refuse_mixed_rows(table, x, keys)
    chosen = _chosen_band(table, x, y, keys, band)
    in_words = not pd.api.types.is_numeric_dtype(table[x])
    words = list(dict.fromkeys(table[x].dropna()))
    groups: list[Any] = [((plain_text(y),), table)]
    if keys != [x]:
        groups = list(table.groupby(keys, sort=False, dropna=False))
    labels = short_names([", ".join(map(str, key)) for key, _ in groups], width=32)
    numbers = np.sort(np.asarray([] if in_words else words, dtype=float))
    if log is None:
        log = bool(len(numbers)) and numbers[0] > 0 and numbers[-1] / numbers[0] >= _WIDE
    if log and not (len(numbers) and numbers[0] > 0):
        raise InputError(f"log=True needs positive numbers in the column {x!r}.")
    own_figure = ax is None
    ax = new_axes(ax, (6.6, 3.6))
    entries: dict[str, Any] = {}
    for i, ((_, rows), label) in enumerate(zip(groups, labels, strict=True)):
        style = {**series_style(i), **kwargs}
        level = rows[rows[x].isna()]
        if len(level):
            center, low, high = _summary(level, y, chosen)
            look = {key: style[key] for key in ("color", "linestyle", "linewidth")}
            entries[label] = ax.axhline(center, **look)
            if high > low:
                ax.axhspan(low, high, color=style["color"], alpha=0.1, linewidth=0)
        points = [(value, *_summary(part, y, chosen)) for value, part in rows.groupby(x, sort=True)]
        if not points:
            continue
        values, means, lows, highs = (list(column) for column in zip(*points, strict=True))
        if in_words:
            shift = 0.5 * ((i + 0.5) / len(groups) - 0.5)
            place = [words.index(value) + shift for value in values]
            reach = [np.subtract(means, lows), np.subtract(highs, means)]
            look = {**style, "linestyle": "none"}
            entries[label] = ax.errorbar(place, means, yerr=reach, elinewidth=1.2, **look)
        else:
            (line,) = ax.plot(values, means, **style)
            if chosen != "none":
                ax.fill_between(
                    values, lows, highs, color=line.get_color(), alpha=0.16, linewidth=0
                )
            entries[label] = line
    several = f"over {_most_replicates(table, x, keys)} replicates"
    titles = {
        "sd": f"mean ± sd {several}",
        "range": f"mean and range {several}",
        "interval": "bootstrap intervals over queries"
        if {"study", "signal"} <= set(table.columns)  # a study's table, which says what they are
        else "intervals of the table",
    }
    n_blank = n_rows - len(table)
    blank = f"{n_blank} row{'s' * (n_blank > 1)} without {y} left out" if n_blank else ""
    finish(ax, x=_label(x), y=_label(y), title=heading(titles.get(chosen, ""), blank))
    if in_words:
        name_columns(ax, short_names(words), own_figure=own_figure)
    elif words:
        _scale(ax, numbers, log)
    if keys != [x]:
        add_legend(ax, entries, outside=own_figure)
    return ax


def plot_onboarding(
    table: pd.DataFrame,
    *,
    x: str = "n",
    by: str | None = None,
    target: float | None = None,
    n_models: int | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot how the rank of a new LLM gets known as it is compared more often.

    Parameters
    ----------
    table : pandas.DataFrame
        As `Onboarding.history` gives it, also several of them one below the other with a column
        for `by`: `asked` (comparisons so far), `rank` (expected; 1 is best), `rank_lower` and
        `rank_upper` (interval), in any order of rows. They may be called `n`, `low` and `high`,
        too.
    x : str
        Column in the place of `asked` or `n`.
    by : str, optional
        Column that tells several curves apart: the LLM, or how its comparisons were chosen.
    target : float, optional
        The rank that all comparisons together give, drawn as a line.
    n_models : int, optional
        LLMs in the ranking, where the axis is to show all ranks.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the lines, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If columns are missing, or hold no numbers.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import pandas as pd
    >>> from bayes_ecc.plots import plot_onboarding
    >>> table = pd.DataFrame({"asked": [5, 20, 80], "rank": [4.0, 3.2, 3.0]})
    >>> table = table.assign(rank_lower=[1, 2, 3], rank_upper=[8, 5, 3])
    >>> ax = plot_onboarding(table, target=3)
    >>> bool(ax.yaxis_inverted())  # the best rank is on top
    True
    >>> plt.close(ax.figure)
    """
    if isinstance(x, str) and x == "n":
        x = _held_as(table, x, "asked")
    low, high = _held_as(table, "low", "rank_lower"), _held_as(table, "high", "rank_upper")
    numbers = (x, "rank", low, high)
    check_columns(table, numbers if by is None else (*numbers, by), numbers=numbers)
    if n_models is not None:
        check_count("n_models", n_models)
    ax = new_axes(ax, (5.6, 3.4))
    parts = [("", table)] if by is None else list(table.groupby(by, sort=False))
    labels = short_names([key for key, _ in parts])
    entries: dict[str, Any] = {}
    for i, ((_, part), label) in enumerate(zip(parts, labels, strict=True)):
        rows = part.sort_values(x)
        style = {**series_style(i), **kwargs}
        (line,) = ax.plot(rows[x], rows["rank"], **style)
        alpha = 0.25 if len(parts) == 1 else 0.15
        ax.fill_between(
            rows[x], rows[low], rows[high], color=line.get_color(), alpha=alpha, linewidth=0
        )
        entries[label] = line
    if target is not None:
        if by is None:
            entries = {"expected rank and interval": next(iter(entries.values()))}
        look: dict[str, Any] = {"color": GREY, "linestyle": "--", "linewidth": 1.2}
        entries["with all comparisons"] = ax.axhline(target, **look)
    counted = "comparisons of the new LLM" if x in ("n", "asked") else plain_text(x)
    finish(ax, x=counted, y="rank (1 is best)")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    last = max(float(table[high].max()), float(table["rank"].max()), n_models or 1)
    ax.set_ylim(last + 0.5, 0.5)
    if by is not None or target is not None:
        add_legend(ax, entries, title=None if by is None else plain_text(by))
    return ax


# -------------------------------------------------------------------- helpers


def _held_as(table: Any, name: str, other: str) -> str:
    """Give the name under which a table holds a column that may have either."""
    columns = getattr(table, "columns", ())
    return other if name not in columns and other in columns else name


def _label(column: str) -> str:
    return LABELS.get(column, plain_text(column))


def _refuse_mixed_rows(table: pd.DataFrame, x: str, keys: list[str]) -> None:
    """Refuse to average rows that differ in more than their seed."""
    known = {*_SETTINGS, *(c for c in table.columns if table[c].dtype.kind not in "biuf")}
    grouped = table.groupby(list(dict.fromkeys([*keys, x])), sort=False, dropna=False)
    for name in table.columns:
        if name not in known or name in {x, *keys, *_REPLICATES, *_FACTS}:
            continue
        if int(grouped[name].nunique(dropna=False).max()) > 1:
            values = ", ".join(map(repr, table[name].unique()[:4].tolist()))
            raise InputError(
                f"table, column {name!r}: rows with the same {x!r} and {keys[0]!r} differ in it "
                f"({values}); keep one value, or draw a line for each with by=[{keys[0]!r}, "
                f"{name!r}]."
            )


def _chosen_band(table: pd.DataFrame, x: str, y: str, keys: list[str], band: Band | None) -> Band:
    several = _most_replicates(table, x, keys) > 1
    bounds = y == "gain" and {"gain_low", "gain_high"} <= set(table.columns)
    if band == "interval" and not bounds:
        raise InputError(
            "band='interval' needs y='gain' and the columns gain_low and gain_high; choose 'sd', "
            "'range' or 'none'."
        )
    if band is not None:
        return band
    if several:
        return "sd"
    return "interval" if bounds and table["gain_low"].notna().any() else "none"


def _as_numbers(column: pd.Series) -> pd.Series:
    """Give a column of objects that are all numbers, or blank, as numbers."""
    if column.dtype == object and all(isinstance(v, Real) for v in column.dropna()):
        return column.astype(float)
    return column


def _most_replicates(table: pd.DataFrame, x: str, keys: list[str]) -> int:
    """Count the rows of the point that has most."""
    return int(table.groupby(list(dict.fromkeys([*keys, x])), dropna=False).size().max())


def _summary(rows: pd.DataFrame, y: str, band: Band) -> tuple[float, float, float]:
    """Give the mean over replicates and the band around it."""
    values = rows[y].to_numpy(dtype=float)
    mean = float(values.mean())
    if band == "sd" and len(values) > 1:
        sd = float(values.std(ddof=1))
        return mean, mean - sd, mean + sd
    if band == "range":
        return mean, float(values.min()), float(values.max())
    if band == "interval":
        return mean, float(rows["gain_low"].mean()), float(rows["gain_high"].mean())
    return mean, mean, mean


def _scale(ax: Axes, values: FloatArray, log: bool) -> None:
    """Scale the x axis, and put its ticks at the values tried as far as they fit."""
    place = np.log(values) if log else values
    if log:
        ax.set_xscale("log")
    if len(values) > 12:
        return
    span = max(float(np.ptp(place)), 1e-12)
    kept: list[int] = []
    for i in range(len(values)):
        if not kept or (place[i] - place[kept[-1]]) / span >= 0.055:
            kept.append(i)
    ax.xaxis.set_major_locator(FixedLocator(values[kept].tolist()))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
