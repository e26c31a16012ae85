"""The section on the LLMs over all queries, and how a ranking is laid out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bayes_ecc.report.markup import join, tag
from bayes_ecc.report.parts import Section, paragraph, section
from bayes_ecc.report.reading import Reading
from bayes_ecc.report.tables import Cell, Column, named, number, strip, table


def models_section(reading: Reading) -> Section:
    """Tell of every LLM: over all fitted queries, and in how many clusters it may be the best."""
    data, ranking, occupied = reading.comparisons, reading.ranking, reading.by_size()
    n_models = data.n_models
    counts = np.bincount(data.first, minlength=n_models)
    counts += np.bincount(data.second, minlength=n_models)
    won = np.bincount(data.second, data.weight * data.outcome, n_models)
    won += np.bincount(data.first, data.weight * (1 - data.outcome), n_models)
    taken = np.bincount(data.first, data.weight, n_models)
    taken += np.bincount(data.second, data.weight, n_models)
    first = ranking["p_best"].values[occupied].argmax(axis=1)
    leads = np.bincount(first, minlength=n_models)
    leads_share = np.bincount(first, reading.sizes[occupied], n_models) / data.n_queries
    may_lead = ranking["in_best_set"].values[occupied].sum(axis=0)
    columns = [
        Column("LLM"),
        Column("comparisons", True, "that it took part in"),
        Column("won", True, "share of its comparisons won, a tie counting half"),
        *ranking_columns(reading.point),
        Column("leads", True, "clusters in which it is the likeliest best"),
        Column("share", True, "of the queries, that these clusters are responsible for"),
    ]
    if not reading.point:
        columns.append(Column("may lead", True, "clusters in which it may be the best"))
    rows = []
    for name, row in reading.overall.iterrows():
        m = data.models.get_loc(name)
        rows.append(
            [
                named(name),
                Cell(f"{counts[m]:,}", float(counts[m])),
                number(won[m] / taken[m] if taken[m] else np.nan),
                *ranking_cells(row, n_models, reading.point),
                Cell(str(leads[m]), float(leads[m])),
                number(leads_share[m], ".0%"),
                *([] if reading.point else [Cell(str(may_lead[m]), float(may_lead[m]))]),
            ]
        )
    return section(
        "llms",
        "The LLMs over all queries",
        paragraph(
            "Mean win is the chance of beating another LLM of the pool, averaged over them and "
            "over the fitted queries",
            "."
            if reading.chain is None
            else ", over all solutions by their weights. What LLMs lead is counted in the clusters "
            "shown below.",
        ),
        paragraph(
            "This fit is a point estimate: it cannot say how sure its order is, so there are no "
            "intervals and no chances of being the best. ",
            tag("code", "bayes-ecc fit --method bayes"),
            " gives them.",
        )
        if reading.point
        else None,
        table(None, columns, rows, name="LLMs"),
    )


def ranking_columns(point: bool) -> list[Column]:
    """Head the columns of a ranking."""
    win = Column("mean win", True, "chance of beating another LLM")
    if point:
        return [win, Column("rank", True)]
    return [
        win,
        Column("rank", True, "expected rank, 1 is best"),
        Column("", meaning="rank and its interval; the best is on the left"),
        Column("P(best)", True, "probability of being the best"),
    ]


def ranking_cells(row: Mapping[str, float] | pd.Series, n_models: int, point: bool) -> list[Cell]:
    """Give the cells of a ranking's row."""
    if point:
        return [number(row["win_probability"], ".3f"), number(row["rank"], "g")]
    low, high = row["rank_lower"], row["rank_upper"]
    win = f"{row['win_probability_lower']:.2f} to {row['win_probability_upper']:.2f}"
    places = f"{low:.0f}" if low == high else f"{low:.0f} to {high:.0f}"
    return [
        _with_interval(row["win_probability"], ".2f", win),
        _with_interval(row["rank"], ".1f", places),
        Cell(strip(row["rank"], low, high, start=1, stop=n_models), float(row["rank"])),
        number(row["p_best"]),
    ]


def _with_interval(value: float, form: str, bounds: str) -> Cell:
    return Cell(
        join(f"{value:{form}} ", tag("span", f"({bounds})", class_="quiet")), round(float(value), 9)
    )
