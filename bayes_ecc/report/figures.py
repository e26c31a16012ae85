"""The figures of a report, drawn by `bayes_ecc.plots`, each with its content in words."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bayes_ecc.report.parts import SCALE, Figure
from bayes_ecc.report.reading import Reading

_DPI = 100 * SCALE
_PANELS = 9  # clusters whose ranks are drawn: the largest
_MOST_ROWS = 60  # of a heat map that can still be read
_TOLD = 5  # clusters that an alternative text tells one by one


def model_figures(reading: Reading) -> list[Figure]:
    """Draw the ranks of the LLMs over all queries, with their intervals; none of a point."""
    from bayes_ecc.plots import plot_ranks

    if reading.point:
        return []
    overall = reading.overall.to_xarray().expand_dims(cluster=["all"])
    overall.attrs.update(reading.ranking.attrs)

    def plot() -> Any:
        ax = plot_ranks(overall, "all")
        ax.set_title("", loc="left")
        return ax

    told = [
        f"{name}: rank {row['rank']:.1f}, from {row['rank_lower']} to {row['rank_upper']}."
        for name, row in reading.overall.head(_TOLD).iterrows()
    ]
    return [
        Figure(
            _draw(plot),
            f"Dot plot of the LLMs' ranks over all queries, with intervals. {' '.join(told)}",
            "Ranks of the LLMs over all queries, with intervals; 1 is best.",
        )
    ]


def cluster_figures(reading: Reading) -> list[Figure]:
    """Draw the clusters: ranks in the largest, chances of being the best, and where queries lie.

    Parameters
    ----------
    reading : Reading

    Returns
    -------
    list of Figure
        Without those that would have nothing to show.
    """
    from bayes_ecc.plots import plot_cluster_ranks, plot_p_best, plot_query_map

    occupied = reading.by_size()
    found = []
    if len(occupied) > 1:
        largest = occupied[:_PANELS]
        ranking = reading.ranking.isel(cluster=largest)
        names = ranking["cluster"].values.tolist()
        count = f"the {len(largest)} largest clusters" if occupied[_PANELS:] else "the clusters"
        ends = "" if reading.point else ", with intervals,"
        found.append(
            Figure(
                _draw(lambda: plot_cluster_ranks(ranking, names, most=_PANELS)[0]),
                f"Dot plots of the LLMs' ranks{ends} in {count}. {_leaders(reading, largest)}",
                f"Ranks of the LLMs{ends} in {count}; 1 is best.",
            )
        )
        if not reading.point:
            rows = occupied[:_MOST_ROWS]
            ranking_all = reading.ranking.isel(cluster=rows)
            p_best = ranking_all["p_best"].values
            sure, open_ = (
                int((p_best.max(axis=1) > 0.9).sum()),
                int((p_best.max(axis=1) < 0.5).sum()),
            )
            found.append(
                Figure(
                    _draw(lambda: plot_p_best(ranking_all)),
                    f"Heat map of the probability of being the best, {len(rows)} clusters by "
                    f"{p_best.shape[1]} LLMs. In {sure} clusters one LLM is above 0.9, in {open_} "
                    "none reaches 0.5.",
                    "Probability of being the best LLM of a cluster, the largest cluster on top. "
                    "A row with one bright cell has a clear winner.",
                )
            )
    if len(occupied) > 1 and reading.embeddings is not None:
        vectors = reading.embeddings
        found.append(
            Figure(
                _draw(lambda: plot_query_map(reading.labelled, embeddings=vectors)),
                f"Scatter plot of {len(vectors):,} queries on the two principal axes of their "
                "embeddings, coloured by their most responsible cluster, the eight largest in "
                "colour.",
                "The queries on the two principal axes of their embeddings; clusters that overlap "
                "here may be well apart in the other dimensions, or differ in what LLMs can do.",
            )
        )
    return found


def _leaders(reading: Reading, clusters: list[int]) -> str:
    """Tell who leads in some clusters."""
    told = []
    for k in clusters[:_TOLD]:
        one = reading.ranking.isel(cluster=k)
        best = int(np.argmin(one["rank"].values))
        told.append(
            f"Cluster {one['cluster'].item()}: {one['llm'].values[best]} has rank "
            f"{one['rank'].values[best]:.1f}."
        )
    return " ".join(told)


def _draw(plot: Callable[[], Any]) -> bytes:
    """Draw on white paper, whatever style the caller's other figures have."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context(), plt.ioff(), _quiet():
        mpl.rcdefaults()
        drawn = plot().figure
        try:
            buffer = io.BytesIO()
            drawn.savefig(buffer, format="png", dpi=_DPI, bbox_inches="tight", metadata={})
        finally:
            plt.close(drawn)
    return buffer.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Names may have letters that the font lacks; the tables show them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield
