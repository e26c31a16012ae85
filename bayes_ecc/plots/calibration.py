"""Plots of calibration: predicted against observed wins, and against realised quality."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from bayes_ecc.calibration import reliability_bins
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.intervals import Interval, choose_interval, sorted_interval
from bayes_ecc.plots.style import (
    GREY,
    SMALL,
    add_legend,
    check_axes,
    check_columns,
    finish,
    new_axes,
    series_style,
    short_names,
)
from bayes_ecc.summaries import IntervalKind

type FloatArray = NDArray[np.floating[Any]]

_COLUMNS = ("low", "high", "weight", "predicted", "observed")
_GRID = 2001  # quantiles that stand for a Beta distribution


def plot_reliability(
    probability: Any,
    comparisons: Comparisons | None = None,
    *,
    n_bins: int = 15,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot observed against predicted wins, with the calibration error and the counts.

    Dots are at the mean prediction of a bin; on the diagonal predictions are calibrated. Their
    bars, drawn where there is one set of predictions, are intervals of the observed share as if
    comparisons were independent (Beta(1/2, 1/2) before). Above stand the comparisons in each bin.

    Parameters
    ----------
    probability : array-like, DataFrame, or mapping of str to either
        P(second beats first) of each comparison, or what `reliability_bins` made of it; a mapping
        names several.
    comparisons : Comparisons, optional
        What happened; needed for probabilities.
    n_bins : int
        Bins of equal width.
    prob, kind : optional
        Of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]`` and ``"stats.ci_kind"``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the dots and lines, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes
        The diagram's; the counts are in an inset above it.

    Raises
    ------
    InputError
        If the inputs do not belong together.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import BradleyTerry, simulate
    >>> from bayes_ecc.plots import plot_reliability
    >>> comparisons = simulate(n_queries=200, n_models=5, rng=0).comparisons
    >>> p = BradleyTerry().fit(comparisons).predict_win_probability(comparisons)
    >>> ax = plot_reliability({"global": p}, comparisons)
    >>> ax.get_legend().get_texts()[0].get_text()
    'global, ECE 0.022'
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    interval = choose_interval(prob, kind)
    named = isinstance(probability, Mapping)
    given = dict(probability) if named else {"predictions": probability}
    if not given:
        raise InputError("probability names nothing to draw; give at least one set.")
    tables = {name: _bins(name, each, comparisons, n_bins) for name, each in given.items()}
    ax = new_axes(ax, (4.6, 5.0))
    (diagonal,) = ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.0)
    counts = ax.inset_axes((0.0, 1.03, 1.0, 0.17), sharex=ax)
    entries: dict[str, Any] = {}
    labels = short_names(tables)
    for i, (table, label) in enumerate(zip(tables.values(), labels, strict=True)):
        filled = table[table["weight"] > 0]
        style = {**series_style(i), **kwargs}
        (line,) = ax.plot(filled["predicted"], filled["observed"], **style)
        if len(tables) == 1:
            low, high = _beta_interval(filled, interval)
            ax.vlines(filled["predicted"], low, high, colors=line.get_color(), linewidths=1.0)
        edges = [*table["low"], table["high"].iloc[-1]]
        counts.stairs(
            table["weight"],
            edges,
            color=line.get_color(),
            linestyle=style["linestyle"],
            linewidth=1.2,
            fill=len(tables) == 1,
        )
        entries[f"{label}, ECE {_ece(table):.3f}"] = line
    if len(tables) == 1:
        entries[f"{100 * interval.prob:.3g} % intervals; diagonal: calibrated"] = diagonal
    else:
        entries["calibrated"] = diagonal
    counts.set_ylabel("comparisons", fontsize=SMALL)
    counts.tick_params(labelsize=SMALL, labelbottom=False)
    counts.yaxis.set_major_locator(MaxNLocator(nbins=2, integer=True))
    for side in ("top", "right"):
        counts.spines[side].set_visible(False)
    finish(ax, x="predicted probability that the second LLM wins", y="observed share of wins")
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.set_aspect("equal")
    add_legend(ax, entries).set_loc("upper left")
    return ax


# -------------------------------------------------------------------- helpers


def _bins(
    name: str, given: pd.DataFrame | ArrayLike, comparisons: Comparisons | None, n_bins: int
) -> pd.DataFrame:
    if isinstance(given, pd.DataFrame):
        check_columns(given, _COLUMNS, name=f"probability[{name!r}]", numbers=_COLUMNS)
        return given
    if comparisons is None:
        raise InputError("comparisons is missing; give those that the probabilities are of.")
    return reliability_bins(given, comparisons, n_bins=n_bins)


def _ece(table: pd.DataFrame) -> float:
    gap = (table["predicted"] - table["observed"]).abs().fillna(0.0)
    return float((table["weight"] * gap).sum() / table["weight"].sum())


def _beta_interval(filled: pd.DataFrame, interval: Interval) -> tuple[FloatArray, FloatArray]:
    """Give the interval of each bin's share of wins, under Beta(1/2, 1/2) before."""
    wins = (filled["weight"] * filled["observed"]).to_numpy()
    losses = filled["weight"].to_numpy() - wins
    place = (np.arange(_GRID) + 0.5) / _GRID
    values = beta.ppf(place, wins[:, None] + 0.5, losses[:, None] + 0.5)
    return sorted_interval(values, interval)
