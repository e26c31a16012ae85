"""Plots of fits: the objective of an EM, and its strengths against those of a posterior."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from bayes_ecc.alignment import match_clusters
from bayes_ecc.errors import InputError, NotFittedError
from bayes_ecc.plots.sources import (
    as_posterior,
    caveats,
    chosen_item,
    heading,
    interval_text,
    training_responsibilities,
    tree_chain,
)
from bayes_ecc.plots.style import (
    COLORS,
    GREY,
    add_legend,
    below_figure_or_inside,
    check_axes,
    finish,
    name_rows,
    new_axes,
    series_style,
    short_names,
)
from bayes_ecc.posterior import atoms, training_data
from bayes_ecc.summaries import IntervalKind, summarize_strengths

type FloatArray = NDArray[np.floating[Any]]

_MATCHING_DRAWS = 25  # enough to tell which cluster is which


def plot_objective(
    source: Any, *, log: bool = False, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Plot the objective of an EM fit over its iterations.

    Parameters
    ----------
    source : ECC, array-like of float, or mapping of str to either
        Fits, or their `objective_`; a mapping names several.
    log : bool
        Draw the distance to the lowest objective of all on a logarithmic axis, where the end of a
        fit can be seen.
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
        If there is no objective in it.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_objective
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_objective(fit)
    >>> len(ax.lines[0].get_xdata()) == fit.n_iter_
    True
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    given = dict(source) if isinstance(source, Mapping) else {"": source}
    traces = {name: _trace(name, each) for name, each in given.items()}
    if not traces:
        raise InputError("source names no fit; give at least one.")
    lowest = min(float(trace.min()) for trace in traces.values())
    ax = new_axes(ax, (5.2, 3.3))
    entries: dict[str, Any] = {}
    labels = short_names(traces)
    for i, (name, trace, label) in enumerate(zip(traces, traces.values(), labels, strict=True)):
        style = {**series_style(i), "marker": "", **kwargs}
        values = trace
        if log:
            values = np.where(trace > lowest, trace - lowest, np.nan)
        (line,) = ax.plot(np.arange(1, len(trace) + 1), values, **style)
        met = getattr(given[name], "converged_", None)
        if met is not None and np.isfinite(values[-1]):
            look: dict[str, Any] = {"marker": "o" if met else "X", "markersize": 6, "linestyle": ""}
            ax.plot(len(trace), values[-1], color=line.get_color(), **look)
        if met is not None and len(traces) == 1:
            entries["converged" if met else "stopped before it converged"] = ax.lines[-1]
        if len(traces) > 1:
            entries[label if met in (None, True) else f"{label} (not converged)"] = line
    finish(
        ax,
        x="iteration",
        y="objective above the lowest (nats)" if log else "objective L (nats)",
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if log and any((trace > lowest).any() for trace in traces.values()):
        ax.set_yscale("log")
    if entries:
        add_legend(ax, entries)
    return ax


def plot_em_against_posterior(
    em: Any,
    posterior: Any,
    *,
    cluster: Hashable | None = None,
    chain: Hashable | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the strengths of a point estimate against the posterior's, with intervals.

    Clusters are matched by the training queries they hold. Strengths are contrasts to the mean of
    their cluster. Over all clusters the point is drawn against the interval, with marks that tell
    whether it lies inside; for one cluster LLMs are listed with both.

    Parameters
    ----------
    em, posterior : estimator or xarray.DataTree
        Fits to the same queries with the same number of clusters, with their training data.
    cluster : hashable, optional
        A cluster of `em` to show alone.
    chain : optional
        The posterior's chain to show, where clusters differ from chain to chain; by default the
        one that counts most.
    prob, kind, draws
        As in `summarize_strengths`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the dots, as in `Axes.plot`.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If the fits are not of the same queries and LLMs, or of different numbers of clusters, or
        `em` has several draws and `posterior` has one.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_em_against_posterior
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_em_against_posterior(fit, fit)  # stands for a Bayesian fit
    >>> ax.get_legend().get_texts()[0].get_text()
    'inside the interval (100 %)'
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    point_fit, whole = _tree(em, "em"), _tree(posterior, "posterior")
    n_draws = [atoms(each).share.size for each in (point_fit, whole)]
    if n_draws[0] > 1 and n_draws[1] == 1:
        raise InputError(
            f"em has {n_draws[0]:,} draws and posterior has one: they are the wrong way round. "
            "Give the point estimate first."
        )
    first, _ = tree_chain(point_fit, None)
    second, which = tree_chain(whole, chain)
    order, shared = _matching(first, second)
    point = summarize_strengths(first)["mean"]
    summary = summarize_strengths(second, prob=prob, kind=kind, draws=draws)
    caveat = caveats(summary, whole)
    if "chain" in summary.dims:
        summary = summary.isel(chain=0)
    missing = set(point["llm"].values.tolist()) ^ set(summary["llm"].values.tolist())
    if missing:
        raise InputError(f"Only one of the fits has {min(map(str, missing))!r}; use the same LLMs.")
    summary = summary.isel(cluster=order).assign_coords(cluster=point["cluster"].values)
    summary = summary.sel(llm=point["llm"].values).assign(point=point)
    about = interval_text(summary)
    title = heading(f"matched clusters share {100 * shared:.0f} % of the queries", which, caveat)
    if cluster is not None:
        name, one = chosen_item(summary, cluster)
        return _one_cluster(one, heading(name, which, caveat), about, ax, kwargs)
    x, y = summary["point"].values.ravel(), summary["mean"].values.ravel()
    low, high = summary["lower"].values.ravel(), summary["upper"].values.ravel()
    inside = (x >= low - 1e-9) & (x <= high + 1e-9)
    ax = new_axes(ax, (4.8, 4.6))
    reach = [float(min(x.min(), low.min())), float(max(x.max(), high.max()))]
    ax.plot(reach, reach, color=GREY, linestyle="--", linewidth=1.0)
    entries = {}
    crowd = 0.5 if len(x) > 150 else 1.0
    looks = {
        f"inside the interval ({inside.mean():.0%})": (inside, COLORS[0], "o", COLORS[0]),
        f"outside ({1 - inside.mean():.0%})": (~inside, COLORS[1], "s", "white"),
    }
    for label, (mask, color, marker, face) in looks.items():
        ax.vlines(x[mask], low[mask], high[mask], colors=color, linewidths=0.9, alpha=crowd)
        style = {
            "color": color,
            "marker": marker,
            "markerfacecolor": face,
            "markersize": 4.5 * crowd**0.5,
            **kwargs,
            "linestyle": "",
        }
        (entries[label.replace("%", " %")],) = ax.plot(x[mask], y[mask], **style)
    finish(
        ax,
        x="strength of the point estimate (logits from the mean)",
        y=f"posterior strength (logits), {about}",
        title=title,
    )
    add_legend(ax, entries).set_loc("upper left")
    return ax


# -------------------------------------------------------------------- helpers


def _one_cluster(
    one: xr.Dataset, title: str, about: str, ax: Axes | None, kwargs: dict[str, Any]
) -> Axes:
    """List the LLMs of one cluster with interval and point."""
    one = one.isel(llm=np.argsort(-one["mean"].values, kind="stable"))
    own_figure = ax is None
    ax = new_axes(ax, (5.2, 1.4 + 0.2 * one.sizes["llm"]))
    rows = np.arange(one.sizes["llm"])
    name_rows(ax, short_names(one["llm"].values.tolist()), own_figure=own_figure)
    style = {"color": COLORS[0], "marker": "o", "markersize": 5, **kwargs, "linestyle": ""}
    ax.hlines(rows, one["lower"].values, one["upper"].values, colors=style["color"], linewidths=1.6)
    (dots,) = ax.plot(one["mean"].values, rows, **style)
    look: dict[str, Any] = {
        "color": COLORS[1],
        "marker": "x",
        "markeredgewidth": 1.6,
        "linestyle": "",
    }
    (crosses,) = ax.plot(one["point"].values, rows, **look)
    below_figure_or_inside(
        ax,
        {f"posterior, {about}": dots, "point estimate": crosses},
        own_figure=own_figure,
        inside="lower right",  # strengths run from the upper right to the lower left
    )
    finish(ax, x="strength (logits from the mean)", y="", title=title, grid="x")
    return ax


def _matching(em: xr.DataTree, posterior: xr.DataTree) -> tuple[NDArray[np.intp], float]:
    """Match clusters by training queries: the order of the posterior's, the overlap in all."""
    queries = [training_data(each)[0].queries for each in (em, posterior)]
    if not queries[0].equals(queries[1]):
        raise InputError("The fits are of different queries; fit both to the same comparisons.")
    first, second = (
        training_responsibilities(each, _MATCHING_DRAWS)[0].values for each in (em, posterior)
    )
    if first.shape != second.shape:
        raise InputError(
            f"The fits have {first.shape[1]} and {second.shape[1]} clusters; they can be matched "
            "only if they have the same number."
        )
    order = match_clusters(first, second)
    return order, float(np.minimum(first, second[:, order]).sum(axis=1).mean())


def _tree(source: Any, name: str) -> xr.DataTree:
    found = as_posterior(source, name=name)
    if not isinstance(found, xr.DataTree):
        raise InputError(f"{name} holds draws alone; give the fit or its posterior_.")
    return found


def _trace(name: str, given: Any) -> FloatArray:
    label = f"source[{name!r}]" if name else "source"
    found = getattr(given, "objective_", given)
    if found is given and hasattr(given, "posterior_"):
        raise InputError(
            f"{label} is a {type(given).__name__}, which has no objective: it is sampled, not "
            "optimised. Give a fitted ECC or its objective_."
        )
    if found is given and hasattr(given, "fit"):
        raise NotFittedError(
            f"This {type(given).__name__} is not fitted yet, or has no objective_; call fit first."
        )
    try:
        trace = np.asarray(found, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{label} is a {type(given).__name__}; give a fitted ECC or its objective_."
        ) from None
    if trace.ndim != 1 or not len(trace) or not np.isfinite(trace).all():
        raise InputError(
            f"{label} has shape {trace.shape}; give one finite number an iteration, one at least."
        )
    return trace
