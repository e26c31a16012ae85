"""Plots of responsibilities: those of one query with intervals, and what their entropy is worth."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from bayes_ecc.calibration import reliability_bins
from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.intervals import choose_interval
from bayes_ecc.plots.sources import (
    as_posterior,
    caveats,
    check_summary,
    chosen_item,
    heading,
    interval_text,
    one_chain,
    refuse_settings,
)
from bayes_ecc.plots.style import (
    COLORS,
    GREY,
    add_legend,
    chance,
    check_axes,
    finish,
    name_rows,
    new_axes,
    short_names,
    write_column,
)
from bayes_ecc.summaries import IntervalKind, summarize_responsibilities

type FloatArray = NDArray[np.floating[Any]]

_ROW = 0.2  # inches


def plot_responsibilities(
    source: Any,
    query: Hashable | None = None,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    chain: Hashable | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
    most: int = 15,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot how responsible the clusters are for one query, with intervals.

    Parameters
    ----------
    source : estimator, xarray.DataTree, Draws or xarray.Dataset
        A fit, its posterior, or what `summarize_responsibilities` made of it.
    query : hashable, optional
        Which query; it may be left out where there is one alone.
    embeddings, probes
        Of the queries, as in `summarize_responsibilities`; needed for a fit.
    chain : optional
        Where clusters differ from chain to chain, the chain to show; by default the one that
        counts most (of a summary, the first).
    prob, kind, draws
        As in `summarize_responsibilities`.
    most : int
        Clusters shown at most, the most responsible ones; the last row adds up the others' means.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the dots and lines, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If there is no such query or chain, or `source` is something else.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_responsibilities
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_responsibilities(fit, embeddings=data.embeddings[:1])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['cluster 0', 'cluster 1']
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    check_count("most", most)
    settings: dict[str, Any] = {
        "embeddings": embeddings,
        "probes": probes,
        "prob": prob,
        "kind": kind,
        "draws": draws,
    }
    posterior = None
    if isinstance(source, xr.Dataset):
        check_summary(source, ("mean", "lower", "upper"), "summarize_responsibilities")
        refuse_settings(settings)
        summary = source
    else:
        posterior = as_posterior(source)
        summary = summarize_responsibilities(posterior, **settings)
    summary, which = one_chain(summary, chain, posterior)
    name, one = chosen_item(summary, query, name="query")
    mean = one["mean"].values
    order = np.argsort(-mean, kind="stable")
    shown = order[: most if len(order) <= most else most - 1]
    low, high = one["lower"].values[shown], one["upper"].values[shown]
    labels = short_names([f"cluster {k}" for k in one["cluster"].values[shown].tolist()])
    n_others = len(order) - len(shown)
    if n_others:
        labels = [*labels, f"{n_others} others"]
    own_figure = ax is None
    ax = new_axes(ax, (5.0, 1.1 + _ROW * len(labels)))
    name_rows(ax, labels, own_figure=own_figure)
    rows = np.arange(len(shown))
    style = {"color": COLORS[0], "linewidth": 1.6, **kwargs}
    wide = high > low
    ax.hlines(
        rows[wide], low[wide], high[wide], colors=style["color"], linewidths=style["linewidth"]
    )
    ax.plot(mean[shown], rows, **{"marker": "o", "markersize": 5, **style, "linestyle": "none"})
    if n_others:
        ax.plot(mean[order[len(shown) :]].sum(), len(shown), marker="x", color=GREY)
    several = int(summary.attrs.get("draws", 2)) > 1
    if several and "p_most_responsible" in one:
        chances = one["p_most_responsible"].values[shown]
        write_column(ax, "P(largest)", {row: chance(p) for row, p in enumerate(chances)})
    ax.set_xlim(-0.02, 1.02)
    title = heading(name, which, caveats(summary, posterior))
    finish(ax, x=f"responsibility, {interval_text(summary)}", y="", title=title, grid="x")
    return ax


def plot_entropy(
    responsibilities: Any,
    probability: ArrayLike,
    comparisons: Comparisons,
    *,
    baseline: ArrayLike | None = None,
    n_bins: int = 8,
    prob: float | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot how often predictions are right against how undecided the responsibilities are.

    Queries are put into bins of about equal size by the entropy of their responsibilities. A
    prediction is right if it is on the winner's side; a tie, or a prediction of one half, counts
    half. Bars are normal intervals of the mean over a bin's comparisons, queries being what
    varies.

    Parameters
    ----------
    responsibilities : xarray.DataArray, xarray.Dataset or array-like
        Of the queries of `comparisons`: (query, cluster), or what `summarize_responsibilities`
        made, whose `entropy` is taken. Rows are found by name where queries have names.
    probability : array-like, shape (n_comparisons,)
        Predicted P(second beats first).
    comparisons : Comparisons
        What happened.
    baseline : array-like, shape (n_comparisons,), optional
        Predictions of another model, one global ranking say, to be drawn beside.
    n_bins : int
        Number of bins; fewer if entropies are equal.
    prob : float, optional
        Probability of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the line, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the inputs do not belong together.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_entropy
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> p = fit.predict_win_probability(data.comparisons, embeddings=data.embeddings)
    >>> ax = plot_entropy(fit.predict_responsibilities(data.embeddings), p, data.comparisons)
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    check_count("n_bins", n_bins)
    interval = choose_interval(prob, None)
    reliability_bins(probability, comparisons, n_bins=1)  # refuses what does not fit together
    if baseline is not None:
        reliability_bins(baseline, comparisons, n_bins=1)
    entropy = _query_entropy(responsibilities, comparisons.queries)
    weight = comparisons.query_weight
    used = np.flatnonzero(weight > 0)
    edges = np.unique(np.quantile(entropy[used], np.linspace(0, 1, n_bins + 1)))
    place = np.clip(np.searchsorted(edges, entropy[used], side="right") - 1, 0, None)
    place = np.minimum(place, max(len(edges) - 2, 0))
    groups = [used[place == b] for b in np.unique(place)]
    x = [float(entropy[group].mean()) for group in groups]
    z = float(norm.ppf((1 + interval.prob) / 2))
    curves = {"these predictions": probability}
    if baseline is not None:
        curves["baseline"] = baseline
    found = {
        name: _right(np.asarray(values, float), comparisons, groups)
        for name, values in curves.items()
    }
    ax = new_axes(ax, (5.0, 3.4))
    entries = {}
    looks: list[dict[str, Any]] = [
        {"color": COLORS[0], "marker": "o", "linestyle": "-", **kwargs},
        {"color": COLORS[4], "marker": "s", "linestyle": "--", "markerfacecolor": "white"},
    ]
    for (name, (mean, error)), look in zip(found.items(), looks, strict=False):
        reach = [mean - np.clip(mean - z * error, 0, 1), np.clip(mean + z * error, 0, 1) - mean]
        entries[name] = ax.errorbar(
            x, mean, yerr=np.maximum(reach, 0), **{"markersize": 4.5, "linewidth": 1.4, **look}
        )
    if baseline is not None:
        add_legend(ax, entries)
    ax.margins(y=0.15)
    n_queries = [len(group) for group in groups]
    low, high = min(n_queries), max(n_queries)
    each = f"{low}" if low == high else f"{low} to {high}"
    title = f"{each} queries a bin, {100 * interval.prob:.3g} % intervals"
    finish(
        ax,
        x="entropy of the query's responsibilities (nats)",
        y="share of winners predicted",
        title=title,
    )
    return ax


# -------------------------------------------------------------------- helpers


def _query_entropy(responsibilities: Any, queries: pd.Index) -> FloatArray:
    """Give the entropy (n_queries,) of the queries' responsibilities, in their order."""
    if isinstance(responsibilities, xr.Dataset):
        check_summary(responsibilities, ("entropy",), "summarize_responsibilities")
        if "chain" in responsibilities["entropy"].dims:
            raise InputError(
                "The summary has a chain dimension, since clusters differ from chain to chain; "
                "select a chain with .sel(chain=...) first."
            )
        entropy = responsibilities["entropy"].values.astype(float)
        names = responsibilities.indexes.get("query")
    else:
        names = None
        shares = np.asarray(responsibilities, dtype=float)
        if isinstance(responsibilities, xr.DataArray) and "query" in responsibilities.dims:
            names = responsibilities.indexes.get("query")
            shares = responsibilities.transpose("query", ...).values.astype(float)
        if shares.ndim != 2 or not (shares >= 0).all():
            raise InputError(
                f"responsibilities has shape {shares.shape}; give shares, one row a query and one "
                "column a cluster."
            )
        entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    rows = pd.RangeIndex(len(entropy))
    if len(rows) == len(queries) and (names is None or names.equals(rows)):
        return entropy
    if names is None:
        raise InputError(
            f"responsibilities has {len(rows)} rows for the {len(queries)} queries of the "
            "comparisons; give one each, or name their queries."
        )
    place = names.get_indexer(queries)
    if (place < 0).any():
        raise InputError(
            f"responsibilities has no row for query {queries[int(np.argmin(place))]!r}; give those "
            f"of the {len(queries)} queries of the comparisons."
        )
    return entropy[place]


def _right(
    probability: FloatArray, comparisons: Comparisons, groups: list[NDArray[np.intp]]
) -> tuple[FloatArray, FloatArray]:
    """Give the share predicted rightly in each group of queries, and its standard error."""
    side = np.where(probability == 0.5, 0.5, probability > 0.5)
    y, weight = comparisons.outcome, comparisons.weight
    right = np.where(side == 0.5, 0.5, np.where(side == 1.0, y, 1 - y))
    total = np.bincount(comparisons.query, weight * right, comparisons.n_queries)
    count = comparisons.query_weight
    means, errors = [], []
    for group in groups:
        mean = total[group].sum() / count[group].sum()
        # Linearised standard error of a ratio of sums over queries.
        residual = total[group] - mean * count[group]
        n = len(group)
        variance = n / max(1, n - 1) * (residual**2).sum() / count[group].sum() ** 2
        means.append(mean)
        errors.append(np.sqrt(variance))
    return np.array(means), np.array(errors)
