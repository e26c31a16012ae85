"""Plots of rankings: ranks with intervals, the chance of being the best, ranks while learning."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws
from bayes_ecc.errors import InputError
from bayes_ecc.plots.sources import (
    as_posterior,
    caveats,
    check_summary,
    chosen_item,
    heading,
    interval_text,
    item_dim,
    one_chain,
    refuse_settings,
)
from bayes_ecc.plots.style import (
    COLORS,
    TEXT,
    below_figure_or_inside,
    cell_size,
    chance,
    check_axes,
    finish,
    heat_map,
    name_rows,
    new_axes,
    short_names,
    write_column,
)
from bayes_ecc.rankings import summarize_cluster_ranking, summarize_ranking
from bayes_ecc.summaries import IntervalKind

_ROW = 0.2  # inches
_NEEDED = ("rank", "rank_lower", "rank_upper", "p_best", "in_best_set")


def plot_ranks(
    source: Any,
    item: Hashable | None = None,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    chain: Hashable | None = None,
    level: float | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the ranks of the LLMs in one cluster, or on one query, with their intervals.

    A dot is the expected rank, filled where the LLM can't be told from the best; beside it stands
    the probability of being the best. LLMs are in the order of their expected ranks.

    Parameters
    ----------
    source : estimator, xarray.DataTree, Draws or xarray.Dataset
        A fit, its posterior, or what `summarize_cluster_ranking` or `summarize_ranking` made of it.
        The settings from `embeddings` to `draws` are for fits; a summary has its own.
    item : hashable, optional
        Which cluster or query; it may be left out where there is one alone.
    embeddings, probes
        Of queries, as in `summarize_ranking`; without them clusters are ranked.
    chain : optional
        Where clusters differ from chain to chain, the chain to show; by default the one that
        counts most (of a summary, the first).
    level, prob, kind, draws
        As in `summarize_ranking`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        For the dots and lines, as in `Axes.plot`: `color`, say.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        If there is no such cluster, query or chain, or `source` is something else.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_ranks
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_ranks(fit, 0)
    >>> [label.get_text() for label in ax.get_yticklabels()][:2]
    ['llm_0', 'llm_4']
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    summary, posterior = _ranking(source, embeddings, probes, level, prob, kind, draws)
    summary, which = one_chain(summary, chain, posterior)
    name, one = chosen_item(summary, item)
    n_models = one.sizes["llm"]
    own_figure = ax is None
    ax = new_axes(ax, (5.6, 1.4 + _ROW * n_models))
    entries = _draw_ranks(ax, _by_rank(one), kwargs, own_figure=own_figure)
    if not _one_draw(one):
        p_best = _by_rank(one)["p_best"].values
        write_column(ax, "P(best)", {row: chance(p) for row, p in enumerate(p_best)})
    # Inside, it stands where no rank is: they run from the upper left to the lower right.
    below_figure_or_inside(ax, entries, own_figure=own_figure, inside="lower left")
    title = heading(name, which, caveats(summary, posterior))
    finish(ax, x=_rank_label(summary), y="", title=title, grid="x")
    return ax


def plot_cluster_ranks(
    source: Any,
    clusters: Iterable[Hashable] | None = None,
    *,
    chain: Hashable | None = None,
    level: float | None = None,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = None,
    most: int = 9,
    columns: int = 3,
    **kwargs: Any,
) -> NDArray[Any]:
    """Plot the ranks of the LLMs in several clusters side by side, all in the same order.

    Parameters
    ----------
    source : estimator, xarray.DataTree, Draws or xarray.Dataset
        As in `plot_ranks`.
    clusters : iterable, optional
        Which clusters, in which order; by default the `most` in which the LLMs' ranking differs
        most from their ranking over all clusters (by the sum of absolute differences of expected
        ranks).
    chain, level, prob, kind, draws
        As in `plot_ranks`.
    most : int
        Clusters shown by default, at most.
    columns : int
        Panels in a row.
    **kwargs
        For the dots and lines, as in `Axes.plot`.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, shape (n_shown,)
        Of a new figure.

    Raises
    ------
    InputError
        If there is no such cluster or chain, or a setting is out of range.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_cluster_ranks
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> panels = plot_cluster_ranks(fit)
    >>> [ax.get_title(loc="left") for ax in panels]
    ['cluster 0', 'cluster 1']
    >>> plt.close(panels[0].figure)
    """
    if "ax" in kwargs:
        raise InputError(
            "plot_cluster_ranks takes no ax: it draws several panels into a figure of its own. "
            "Leave ax out, or draw one cluster into axes of yours with plot_ranks(..., item=, ax=)."
        )
    check_count("most", most)
    check_count("columns", columns)
    summary, posterior = _ranking(source, None, None, level, prob, kind, draws)
    if item_dim(summary) != "cluster":
        raise InputError("The summary is by query; give one made by summarize_cluster_ranking.")
    summary, which = one_chain(summary, chain, posterior)
    order = np.argsort(summary["rank"].mean("cluster").values, kind="stable")
    summary = summary.isel(llm=order)
    if clusters is None:
        ranks = summary["rank"]
        apart = abs(ranks - ranks.mean("cluster")).sum("llm").values
        kept = np.sort(np.argsort(-apart.round(9), kind="stable")[:most])
        clusters = summary["cluster"].values[kept].tolist()
    parts = [chosen_item(summary, cluster) for cluster in clusters]
    if not parts:
        raise InputError("clusters names none; give at least one.")
    columns = min(columns, len(parts))
    rows = -(-len(parts) // columns)
    n_models = summary.sizes["llm"]
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(1.6 + 2.5 * columns, 0.7 + rows * (0.5 + 0.17 * n_models)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    panels = grid.ravel()
    entries: dict[str, Any] = {}
    for ax, (name, one) in zip(panels, parts, strict=False):
        entries = _draw_ranks(ax, one, kwargs, own_figure=True)
        finish(ax, x="", y="", title=name, grid="x")
    for ax in panels[len(parts) :]:
        ax.remove()
    for ax in panels[: len(parts)][-columns:]:
        ax.tick_params(labelbottom=True)
    below_figure_or_inside(panels[0], entries, own_figure=True, title=_rank_label(summary))
    n_all = summary.sizes["cluster"]
    shown = f"{len(parts)} of {n_all} clusters" if len(parts) < n_all else ""
    title = heading(shown, which, caveats(summary, posterior))
    if title:
        figure.suptitle(title, fontsize=TEXT + 1)
    return panels[: len(parts)]


def plot_p_best(
    source: Any,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    chain: Hashable | None = None,
    prob: float | None = None,
    draws: int | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the probability of being the best as a heat map, clusters (or queries) by LLMs.

    LLMs are in the order of their mean probability, the likeliest at the left.

    Parameters
    ----------
    source, embeddings, probes, chain, prob, draws
        As in `plot_ranks`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        As in `Axes.imshow`: `cmap`, say.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InputError
        As `plot_ranks`.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.plots import plot_p_best
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_p_best(fit)
    >>> ax.images[0].get_array().shape
    (2, 5)
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    summary, posterior = _ranking(source, embeddings, probes, None, prob, None, draws)
    summary, which = one_chain(summary, chain, posterior)
    dim = item_dim(summary)
    p_best = summary["p_best"].transpose(dim, "llm").values
    order = np.lexsort((summary["rank"].mean(dim).values, -p_best.mean(axis=0).round(12)))
    n_rows, n_models = p_best.shape
    width, height = cell_size(p_best.size)
    own_figure = ax is None
    ax = new_axes(ax, (2.4 + width * n_models, 1.6 + height * n_rows))
    heat_map(
        ax,
        p_best[:, order],
        short_names(summary[dim].values.tolist()),
        short_names(summary["llm"].values[order].tolist()),
        own_figure=own_figure,
        label="P(best)",
        write=chance,
        **{"vmin": 0.0, "vmax": 1.0, **kwargs},
    )
    one_draw = "point estimate" if _one_draw(summary) else ""
    title = heading(which, one_draw, caveats(summary, posterior))
    finish(ax, x="LLM", y=dim, title=title, grid="none")
    return ax


# -------------------------------------------------------------------- helpers


def _ranking(
    source: Any,
    embeddings: ArrayLike | None,
    probes: Comparisons | None,
    level: float | None,
    prob: float | None,
    kind: IntervalKind | None,
    draws: int | None,
) -> tuple[xr.Dataset, xr.DataTree | Draws | None]:
    """Summarise a ranking, or take it as it comes; with the posterior it is from, if known."""
    if isinstance(source, xr.Dataset):
        check_summary(source, _NEEDED, "summarize_cluster_ranking or summarize_ranking")
        given = {
            "embeddings": embeddings,
            "probes": probes,
            "level": level,
            "prob": prob,
            "kind": kind,
            "draws": draws,
        }
        refuse_settings(given)
        return source, None
    posterior = as_posterior(source)
    if embeddings is None and probes is None:
        found = summarize_cluster_ranking(posterior, level=level, prob=prob, kind=kind, draws=draws)
        return found, posterior
    found = summarize_ranking(
        posterior,
        embeddings=embeddings,
        probes=probes,
        level=level,
        prob=prob,
        kind=kind,
        draws=draws,
    )
    return found, posterior


def _rank_label(summary: xr.Dataset) -> str:
    return f"rank (1 is best), {interval_text(summary)}"


def _draw_ranks(
    ax: Axes, one: xr.Dataset, kwargs: dict[str, Any], *, own_figure: bool
) -> dict[str, Any]:
    """Draw the ranks (llm) of one cluster or query; give the entries of a legend."""
    rank, best = one["rank"].values, one["in_best_set"].values
    low, high = one["rank_lower"].values, one["rank_upper"].values
    style = {"color": COLORS[0], "linewidth": 1.6, **kwargs}
    rows = np.arange(len(rank))
    name_rows(ax, short_names(one["llm"].values.tolist()), own_figure=own_figure)
    wide = high > low
    ax.hlines(
        rows[wide], low[wide], high[wide], colors=style["color"], linewidths=style["linewidth"]
    )
    filled = {"marker": "o", "markersize": 5, **style, "linestyle": "none"}
    hollow = {**filled, "markerfacecolor": "white", "markeredgewidth": 1.2}
    ax.plot(rank[best], rows[best], **filled)
    ax.plot(rank[~best], rows[~best], **hollow)
    ax.set_xlim(0.5, len(rank) + 0.5)
    step = max(1, -(-len(rank) // 7))
    ax.set_xticks(sorted({1, *range(step, len(rank) + 1, step)}))
    name = "best" if _one_draw(one) else "can't be told from the best"
    return {
        name: Line2D([], [], **filled),
        "others": Line2D([], [], **hollow),
    }


def _by_rank(one: xr.Dataset) -> xr.Dataset:
    rank = one["rank"].values
    win = one["win_probability"].values if "win_probability" in one else np.zeros(len(rank))
    return one.isel(llm=np.lexsort((-win, rank.round(9))))


def _one_draw(summary: xr.Dataset) -> bool:
    return int(summary.attrs.get("draws", 2)) == 1
