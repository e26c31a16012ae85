"""Plots of partitions: how two overlap, and where the queries of clusters lie."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import InputError
from bayes_ecc.plots.sources import as_posterior, heading, training_responsibilities, tree_chain
from bayes_ecc.plots.style import (
    COLORS,
    GREY,
    MARKERS,
    TEXT,
    add_legend,
    cell_size,
    chance,
    check_axes,
    finish,
    heat_map,
    new_axes,
    short_names,
)
from bayes_ecc.posterior import atoms

type FloatArray = NDArray[np.floating[Any]]


def plot_overlap(
    matrix: Any,
    *,
    share: Literal["row", "column", "none"] = "row",
    match: bool = True,
    names: tuple[str, str] | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot how two partitions of the same queries overlap, as a heat map.

    Parameters
    ----------
    matrix : Dataset, DataArray, DataFrame or array-like, shape (n_rows, n_columns)
        Queries (or responsibility) in each cell of the two partitions; not negative. Of what
        `overlap_matrix` made its `queries` are drawn.
    share : {"row", "column", "none"}
        Draw shares of each row, of each column, or the numbers as they are. A row or column
        without queries stays blank.
    match : bool
        Order the columns so that they lie along the diagonal as far as can be.
    names : (str, str), optional
        What the rows and the columns are; by default as the matrix names them.
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
        If it is no matrix of numbers that are 0 or more.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc.plots import plot_overlap
    >>> ax = plot_overlap([[0, 4], [3, 1]])
    >>> ax.images[0].get_array().tolist()
    [[1.0, 0.0], [0.25, 0.75]]
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    check_choice("share", share, ("row", "column", "none"))
    values, rows, columns, own_names = _matrix(matrix)
    if names is None:
        names = own_names
    elif isinstance(names, str) or not isinstance(names, Sequence) or len(names) != 2:
        raise InputError(
            f"names={names!r}: give two texts, what the rows are and what the columns are."
        )
    order = _matched_columns(values) if match else np.arange(values.shape[1])
    values = values[:, order]
    if share != "none":
        total = values.sum(axis=1 if share == "row" else 0, keepdims=True)
        values = np.divide(values, total, out=np.full_like(values, np.nan), where=total > 0)
    n_rows, n_columns = values.shape
    width, height = cell_size(values.size)
    own_figure = ax is None
    ax = new_axes(ax, (2.6 + width * n_columns, 1.7 + height * n_rows))
    labels = {"row": "share of the row's queries", "column": "share of the column's queries"}
    top = 1.0 if share != "none" else max(float(np.nanmax(values)), 1e-12)
    heat_map(
        ax,
        values,
        short_names(rows),
        short_names([columns[k] for k in order]),
        own_figure=own_figure,
        label=labels.get(share, "queries"),
        write=chance if share != "none" else "{:.3g}".format,
        **{"vmin": 0.0, "vmax": top, **kwargs},
    )
    y, x = short_names(names, width=18)
    finish(ax, x=x, y=y, grid="none")
    return ax


def plot_query_map(
    source: Any,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    chain: Hashable | None = None,
    clusters: Iterable[Hashable] | None = None,
    draws: int = 50,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot queries along the two principal axes of their embeddings, coloured by cluster.

    A query has the colour and marker of its most responsible cluster; the surer that is, the larger
    and darker it is drawn. Two axes show a small part of many dimensions: clusters that overlap
    here may be well apart.

    Parameters
    ----------
    source : estimator, xarray.DataTree, xarray.DataArray or array-like
        A fit or its posterior, or responsibilities (query, cluster), which need `embeddings`.
    embeddings : array-like, shape (n_queries, embedding_dim), optional
        Of the queries to show; by default the queries that were fitted.
    probes : Comparisons, optional
        Comparisons known of these queries.
    chain : optional
        Where clusters differ from chain to chain, the chain to show; by default the one that
        counts most.
    clusters : iterable, optional
        Clusters in colour, eight at most, the others being grey; by default the eight largest.
    draws : int
        Draws of a posterior to average over, at most.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    **kwargs
        As in `Axes.scatter`.

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
    >>> from bayes_ecc.plots import plot_query_map
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ax = plot_query_map(fit)
    >>> sum(len(dots.get_offsets()) for dots in ax.collections)
    60
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    check_count("draws", draws)
    which = ""
    if isinstance(source, xr.DataArray | np.ndarray | list | pd.DataFrame):
        if embeddings is None:
            raise InputError("embeddings is missing; give those of the queries.")
        shares = np.asarray(source, dtype=float)
        names: list[Any] = list(range(shares.shape[-1]))
        if isinstance(source, xr.DataArray) and "cluster" in source.coords:
            shares = source.transpose(..., "cluster").values.astype(float)
            names = source["cluster"].values.tolist()
        points = np.asarray(embeddings, dtype=float)
    else:
        posterior = as_posterior(source)
        if not isinstance(posterior, xr.DataTree):
            raise InputError("source holds draws alone; give the fit or its posterior_.")
        posterior, which = tree_chain(posterior, chain)
        if embeddings is None and not atoms(posterior).embedded:
            raise InputError(
                "This fit was made without embeddings; there is no map of its queries."
            )
        found, points = training_responsibilities(posterior, draws, embeddings, probes)
        shares, names = found.values, found["cluster"].values.tolist()
    if shares.ndim != 2 or points.ndim != 2 or len(shares) != len(points):
        raise InputError(
            f"responsibilities have shape {shares.shape} and embeddings {points.shape}; give one "
            "row a query each."
        )
    cluster, certainty = shares.argmax(axis=1), shares.max(axis=1)
    size = np.bincount(cluster, minlength=len(names))
    shown = _coloured(names, size, clusters)
    place, explained = _principal_axes(unit_embeddings(points))
    ax = new_axes(ax, (6.4, 4.4))
    least = 1 / len(names)
    sure = (certainty - least) / (1 - least) if len(names) > 1 else np.ones(len(cluster))
    settings = {"linewidths": 0, "rasterized": True, **kwargs}
    crowd = float(np.clip(400 / max(1, len(cluster)), 0.35, 1.0))
    entries: dict[str, Any] = {}
    labels = short_names([f"cluster {names[k]}" for k in shown])
    others = ~np.isin(cluster, shown)
    rows = [(others, GREY, ".", f"{(size > 0).sum() - (size[shown] > 0).sum()} others")]
    rows += [
        (cluster == k, COLORS[i], MARKERS[i], f"{label} ({size[k]:,})")
        for i, (k, label) in enumerate(zip(shown, labels, strict=True))
    ]
    for mask, color, marker, label in rows:
        if not mask.any():
            continue
        colors = np.empty((int(mask.sum()), 4))
        colors[:, :3] = to_rgb(color)
        colors[:, 3] = 0.15 + 0.75 * sure[mask]
        ax.scatter(
            *place[mask].T,
            **{"s": crowd * (6 + 26 * sure[mask]), "c": colors, "marker": marker, **settings},
        )
        entries[label] = Line2D([], [], color=color, marker=marker, linestyle="", markersize=6)
    if rows[0][3] in entries:  # what is in colour comes first
        entries[rows[0][3]] = entries.pop(rows[0][3])
    axis = "principal axis {} ({:.0%} of the variance)"
    finish(
        ax,
        x=axis.format(1, explained[0]).replace("%", " %"),
        y=axis.format(2, explained[1]).replace("%", " %"),
        title=heading("larger and darker: surer of the cluster", which),
    )
    ax.tick_params(labelsize=TEXT)
    add_legend(ax, entries, title="most responsible (queries)", outside=True)
    return ax


# -------------------------------------------------------------------- helpers


def _matrix(matrix: Any) -> tuple[FloatArray, list[Any], list[Any], tuple[str, str]]:
    """Read a labelled matrix: values, labels of rows and of columns, names of both."""
    if isinstance(matrix, xr.Dataset):
        if "queries" not in matrix:
            raise InputError("The dataset has no 'queries'; give one made by overlap_matrix.")
        matrix = matrix["queries"]
    try:
        values = np.array(matrix, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"matrix must hold numbers: {error}.") from None
    if values.ndim != 2 or not values.size:
        raise InputError(f"matrix has shape {values.shape}; give rows by columns, one at least.")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        row, column = np.argwhere(~(np.isfinite(values) & (values >= 0)))[0]
        raise InputError(
            f"matrix, row {row}, column {column}: found {values[row, column]}; overlaps are 0 or "
            "more."
        )
    names = ("first partition", "second partition")
    rows, columns = (list(range(n)) for n in values.shape)
    if isinstance(matrix, pd.DataFrame):
        rows, columns = matrix.index.tolist(), matrix.columns.tolist()
        names = (str(matrix.index.name or names[0]), str(matrix.columns.name or names[1]))
    elif isinstance(matrix, xr.DataArray):
        names = (str(matrix.dims[0]), str(matrix.dims[1]))
        rows, columns = (
            matrix[dim].values.tolist() if dim in matrix.coords else labels
            for dim, labels in zip(matrix.dims, (rows, columns), strict=True)
        )
    return values, rows, columns, names


def _matched_columns(values: FloatArray) -> NDArray[np.intp]:
    """Order columns: those matched to rows in the rows' order, then the others."""
    matched = linear_sum_assignment(values, maximize=True)[1]
    left = np.setdiff1d(np.arange(values.shape[1]), matched)
    return np.concatenate([matched, left])


def _coloured(
    names: list[Any], size: NDArray[np.intp], clusters: Iterable[Hashable] | None
) -> list[int]:
    """Choose the clusters to be in colour, as positions."""
    if clusters is None:
        order = np.argsort(-size, kind="stable")[: len(COLORS)]
        return [int(k) for k in order if size[k]]
    shown = list(clusters)
    if not 0 < len(shown) <= len(COLORS):
        raise InputError(
            f"clusters names {len(shown)}; give one to {len(COLORS)}, as many as can be told apart."
        )
    for name in shown:
        if name not in names:
            raise InputError(f"cluster {name!r} is not there; there are {len(names)} clusters.")
    return [names.index(name) for name in shown]


def _principal_axes(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Project on the two axes of largest variance: places (n, 2), shares of the variance (2,)."""
    centred = points.astype(float)
    centred -= centred.mean(axis=0)
    variance, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :2]
    # Largest entries point up: the sign of an axis means nothing, and should not vary.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    place, explained = np.zeros((len(points), 2)), np.zeros(2)
    place[:, : axes.shape[1]] = centred @ axes
    shares = variance[::-1][:2] / max(float(variance.sum()), 1e-300)
    explained[: len(shares)] = np.clip(shares, 0.0, 1.0)
    return place, explained
