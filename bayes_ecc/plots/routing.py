"""Plots of routing studies: what abstaining buys, score against cost, quality as predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes

from bayes_ecc.checks import check_choice
from bayes_ecc.errors import InputError
from bayes_ecc.plots.style import (
    GREY,
    MARKERS,
    add_legend,
    check_axes,
    finish,
    new_axes,
    plain_text,
    series_style,
    short_names,
)

_RISKS = {
    "regret": "regret of the answered queries (score)",
    "quality": "mean score of the answered queries",
    "over_global": "score above the one best LLM",
}


def plot_risk_coverage(
    study: Mapping[str, Any],
    policies: Iterable[str] | None = None,
    *,
    by: str = "quality",
    risk: Literal["regret", "quality", "over_global"] = "regret",
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot what abstaining buys: the risk of the queries answered along their share.

    Parameters
    ----------
    study : mapping
        What `study_routing` found; its `abstention` is drawn, of the first seed.
    policies : iterable of str, optional
        Which routers; by default the methods themselves, without the variants of their policies.
    by : str
        What they are sure by: "quality" (expected quality), "regret" (expected regret) or "p_best".
    risk : {"regret", "quality", "over_global"}
        How far the score stays behind the best there is, the score itself, or how far it is above
        that of the one best LLM on the same queries.
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
        If it is no such study, or has no such router.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc.plots import plot_risk_coverage
    >>> curve = [{"coverage": 0.5, "regret": 0.1}, {"coverage": 1.0, "regret": 0.2}]
    >>> ax = plot_risk_coverage({"abstention": {"ecc": {"quality": curve}}})
    >>> ax.lines[0].get_xdata().tolist()
    [50.0, 100.0]
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    check_choice("risk", risk, tuple(_RISKS))
    found = _part(study, "abstention")
    curves = {name: ways[by] for name, ways in found.items() if by in ways}
    names = _chosen(curves, policies, f"abstention by {by!r}")
    own_figure = ax is None
    ax = new_axes(ax, (6.4, 3.5))
    entries = {}
    for i, (name, label) in enumerate(zip(names, short_names(names), strict=True)):
        points = curves[name]
        coverage = [100 * point["coverage"] for point in points]
        values = [point[risk] for point in points]
        (entries[label],) = ax.plot(coverage, values, **{**series_style(i), **kwargs})
    known = {"quality": "expected quality", "regret": "expected regret", "p_best": "P(best)"}
    surest = known.get(by) or plain_text(by)
    finish(
        ax,
        x=f"coverage (% of queries, surest first by {surest})",
        y=_RISKS[risk],
    )
    ax.set_xlim(0, 102)
    add_legend(ax, entries, outside=own_figure)
    return ax


def plot_cost_quality(
    study: Mapping[str, Any],
    methods: Iterable[str] | None = None,
    *,
    policies: Iterable[str] | None = None,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the score of routers against what they cost, along the price a cost is given.

    Lines are one method at several prices, without probes and with probing; single marks are
    other routers, with their intervals.

    Parameters
    ----------
    study : mapping
        What `study_routing` found: its `cost_quality` and `probing` (of the first seed) and its
        `policies`.
    methods : iterable of str, optional
        Whose lines; by default all.
    policies : iterable of str, optional
        Whose marks; by default those of no method: the baselines and the oracle.
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
        If it is no such study, or has no such method or router.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc.plots import plot_cost_quality
    >>> study = {
    ...     "protocol": {"costs": "calls"},
    ...     "policies": {"global": {"cost": 1.0, "calls": 1.0, "quality": 0.7}},
    ...     "cost_quality": {"ecc": []},
    ...     "probing": {"ecc": [{"price": 0.1, "cost": 1.5, "calls": 1.5, "quality": 0.8}]},
    ... }
    >>> ax = plot_cost_quality(study)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['ecc, probing', 'global']
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    routers, lines, probing = (
        _part(study, name) for name in ("policies", "cost_quality", "probing")
    )
    known = list(dict.fromkeys([*lines, *probing]))
    shown = _chosen(dict.fromkeys(known), known if methods is None else methods, "method")
    if policies is None:
        policies = [
            name for name in routers if not any(name == m or _is_variant(name, m) for m in known)
        ]
    marks = _chosen(routers, policies, "router") if list(policies) else []
    by_calls = study.get("protocol", {}).get("costs") == "calls"
    ax = new_axes(ax, (6.6, 3.8))
    entries: dict[str, Any] = {}
    i = 0
    for way, curves in (("along prices", lines), ("probing", probing)):
        for name, label in zip(shown, short_names(shown), strict=True):
            points = sorted(curves.get(name, []), key=lambda point: point["price"])
            if points:
                cost = [point["cost"] for point in points]
                quality = [point["quality"] for point in points]
                style = {**series_style(i), **kwargs}
                (entries[f"{label}, {way}"],) = ax.plot(cost, quality, **style)
            i += 1
    for j, (name, label) in enumerate(zip(marks, short_names(marks), strict=True)):
        router = routers[name]
        bounds = router.get("interval", {}).get("quality")
        if bounds is not None:
            low, high = bounds
            ax.vlines(router["cost"], low, high, colors="0.75", linewidths=1.0, zorder=1)
        look: dict[str, Any] = {"marker": MARKERS[j % len(MARKERS)], "markersize": 7.0}
        hollow = (j + j // len(MARKERS)) % 2 == 0  # the second time round, the other way
        look |= {"color": "black", "markerfacecolor": "white"} if hollow else {"color": GREY}
        (entries[label],) = ax.plot(router["cost"], router["quality"], linestyle="", **look)
    unit = "calls" if by_calls else "in the data's own unit"
    finish(ax, x=f"mean cost per query ({unit})", y="mean score")
    add_legend(ax, entries, outside=True)
    return ax


def plot_quality_calibration(
    study: Mapping[str, Any],
    policies: Iterable[str] | None = None,
    *,
    ax: Axes | None = None,
    **kwargs: Any,
) -> Axes:
    """Plot the quality that routers predicted against the score they got.

    Parameters
    ----------
    study : mapping
        What `study_routing` found.
    policies : iterable of str, optional
        Which routers; by default the methods themselves, without the variants of their policies.
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
        If it is no such study, or there is no such router.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from bayes_ecc.plots import plot_quality_calibration
    >>> bins = [{"queries": 5, "predicted": 0.4, "realised": 0.5}]
    >>> study = {"calibration": {"quality": {"ecc": {"error": 0.1, "bins": bins}}}}
    >>> ax = plot_quality_calibration(study)
    >>> plt.close(ax.figure)
    """
    check_axes(ax)
    curves = _part(_part(study, "calibration"), "quality")
    names = _chosen(curves, policies, "calibration")
    ax = new_axes(ax, (4.6, 4.0))
    (diagonal,) = ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.0)
    entries: dict[str, Any] = {}
    for i, (name, label) in enumerate(zip(names, short_names(names), strict=True)):
        bins = pd.DataFrame(curves[name]["bins"])
        (line,) = ax.plot(bins["predicted"], bins["realised"], **{**series_style(i), **kwargs})
        entries[f"{label}, error {curves[name]['error']:.3f}"] = line
    entries["calibrated"] = diagonal
    finish(ax, x="predicted quality (score)", y="realised quality (score)")
    add_legend(ax, entries)
    return ax


# -------------------------------------------------------------------- helpers


def _chosen(curves: Mapping[str, Any], policies: Any, what: str) -> list[str]:
    """Choose routers by name, by default those without a variant in their name.

    Raises
    ------
    InputError
        If there are none, or not those.
    """
    if policies is None:
        plain = [name for name in curves if not {"+", ":"} & set(name)]
        policies = plain or list(curves)
    names = [policies] if isinstance(policies, str) else list(policies)
    for name in names:
        if name not in curves:
            raise InputError(
                f"The study has no {what} of {name!r}; there are {', '.join(curves) or 'none'}."
            )
    if not names:
        raise InputError(f"The study has no {what} to draw.")
    return names


def _part(study: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(study, Mapping) or name not in study:
        raise InputError(f"study has no {name!r}; give what study_routing returned.")
    return study[name]


def _is_variant(name: str, method: str) -> bool:
    return name.startswith((f"{method}+", f"{method}:"))
