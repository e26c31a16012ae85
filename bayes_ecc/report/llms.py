"""The section on the LLMs over all queries, and how a ranking is laid out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from bayes_ecc.report.markup import Markup, join, tag
from bayes_ecc.report.parts import Figure, Section, figure, paragraph, section
from bayes_ecc.report.reading import Reading
from bayes_ecc.report.tables import Cell, Column, count, named, number, strip, table


def models_section(reading: Reading, pictures: Iterable[Figure]) -> Section:
    """Tell of every LLM: over all fitted queries, and in how many clusters it may be the best."""
    data, n_models = reading.comparisons, reading.comparisons.n_models
    counts = np.bincount(data.first, minlength=n_models)
    counts += np.bincount(data.second, minlength=n_models)
    won = np.bincount(data.second, data.weight * data.outcome, n_models)
    won += np.bincount(data.first, data.weight * (1 - data.outcome), n_models)
    taken = np.bincount(data.first, data.weight, n_models)
    taken += np.bincount(data.second, data.weight, n_models)
    columns = [
        Column("LLM"),
        Column("comparisons", True, "that it took part in"),
        Column("won", True, "share of its comparisons won, a tie counting half"),
        *ranking_columns(reading.point),
    ]
    if not reading.point:
        columns.append(Column("may be best", meaning="can't be told from the best"))
    leads = _leads(reading)
    columns += [Column(name, True, meaning) for name, (meaning, _) in leads.items()]
    rows = []
    for name, row in reading.overall.iterrows():
        m = data.models.get_loc(name)
        cells = [
            named(name),
            count(counts[m]),
            number(won[m] / taken[m] if taken[m] else np.nan),
            *ranking_cells(row, n_models, reading.point),
        ]
        if not reading.point:
            cells.append(may_be_best(bool(row["in_best_set"])))
        rows.append([*cells, *(shown[m] for _, shown in leads.values())])
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
        _point() if reading.point else _meaning(reading),
        table(None, columns, rows, name="LLMs", legend=True),
        [figure(picture) for picture in pictures],
    )


def _point() -> Markup:
    return paragraph(
        "This fit is a point estimate: it cannot say how sure its order is, so there are no "
        "intervals and no chances of being the best. ",
        tag("code", "bayes-ecc fit --method bayes"),
        " gives them.",
    )


def _meaning(reading: Reading) -> Markup:
    attrs = reading.ranking.attrs
    kind = "equal tails" if attrs["ci_kind"] == "eti" else "highest density"
    return paragraph(
        f"Intervals, in brackets, hold {attrs['ci_prob']:.0%} of the posterior ({kind}). The LLMs "
        "that ",
        tag("em", "can't be told from the best"),
        f" are the fewest that hold the best with a probability of {attrs['level']:.0%}; they are "
        "those that may be best.",
    )


def _leads(reading: Reading) -> dict[str, tuple[str, list[Cell]]]:
    """Count the clusters that each LLM leads: column by column, what it means and its cells."""
    occupied, n_models = reading.by_size(), reading.comparisons.n_models
    if len(occupied) < 2:
        return {}
    first = reading.ranking["p_best"].values[occupied].argmax(axis=1)
    leads = np.bincount(first, minlength=n_models)
    share = np.bincount(first, reading.sizes[occupied], n_models) / reading.comparisons.n_queries
    found = {
        "leads": ("clusters in which it is the likeliest best", [count(n) for n in leads]),
        "share": (
            "of the queries, that these clusters are responsible for",
            [number(each, ".0%") for each in share],
        ),
    }
    if not reading.point:
        may_lead = reading.ranking["in_best_set"].values[occupied].sum(axis=0)
        meaning = "clusters in which it can't be told from the best"
        found["may lead"] = (meaning, [count(n) for n in may_lead])
    return found


def may_be_best(inside: bool) -> Cell:
    """Mark an LLM that can't be told from the best."""
    return Cell("yes" if inside else "", float(not inside))


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
