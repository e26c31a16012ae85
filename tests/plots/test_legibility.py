"""Every figure is rendered: at the largest sizes, at the smallest, and with hostile names."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

import bayes_ecc
from bayes_ecc import Comparisons, plots
from bayes_ecc.plots.style import COLORS, SMALL, chance, short_names

N_QUERIES = 60
SIZES = {"large": (40, 28, 40), "one cluster": (1, 3, 40), "one draw": (5, 4, 1)}


@pytest.fixture(params=[*SIZES, "hostile names"])
def size(request) -> str:
    return request.param


@pytest.fixture
def gallery(size, fake_posterior, hostile_names) -> dict[str, Callable[[], Any]]:
    """All plots there are, of one posterior and of tables of the same names."""
    rng = np.random.default_rng(0)
    n_clusters, n_models, n_draws = SIZES.get(size, (4, len(hostile_names), 30))
    names = [f"vendor-{i}/a-model-family-{i}-instruct-v0.{i}" for i in range(n_models)]
    if size == "hostile names":
        names = hostile_names
    first = rng.integers(n_models, size=3 * N_QUERIES)
    comparisons = Comparisons.from_arrays(
        np.repeat(np.arange(N_QUERIES), 3),
        first,
        (first + 1) % n_models,
        rng.choice([0.0, 1.0], size=3 * N_QUERIES),
        queries=[f"q{i}" for i in range(N_QUERIES)],
        models=names,
    )
    x = rng.normal(size=(N_QUERIES, 5)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    posterior = fake_posterior(n_clusters, names, n_draws=n_draws, training=(comparisons, x))
    p = rng.uniform(size=len(comparisons))
    labels = names if size == "hostile names" else [f"method {i}" for i in range(12)]
    table = pd.DataFrame(
        [
            {"method": label, "n_clusters": k, "seed": s, "gain": rng.normal()}
            for label in labels
            for k in (2, 5, 10, 20, 30, 40, 60, 100)
            for s in range(2)
        ]
    )
    ranks = table.rename(columns={"n_clusters": "n", "gain": "rank"}).query("seed == 0")
    ranks = ranks.assign(low=ranks["rank"] - 1, high=ranks["rank"] + 1)
    curve = [{"coverage": c, "regret": 1 - c} for c in (0.2, 0.6, 1.0)]
    along = [{"price": c, "cost": c, "quality": 1 - c} for c in (0.2, 0.6, 1.0)]
    bins = {"error": 0.1, "bins": [{"queries": 1, "predicted": 0.4, "realised": 0.5}]}
    study = {
        "policies": {label: {"cost": 1.0, "quality": 0.5} for label in labels},
        "abstention": {label: {"quality": curve} for label in labels},
        "cost_quality": dict.fromkeys(labels[:2], along),
        "probing": dict.fromkeys(labels[:2], along),
        "calibration": {"quality": dict.fromkeys(labels, bins)},
    }
    overlap = pd.DataFrame(
        rng.integers(0, 9, size=(n_models, n_clusters)), index=names, columns=range(n_clusters)
    )
    overlap.index.name, overlap.columns.name = names[0], names[-1]
    shares = rng.dirichlet(np.ones(n_clusters), size=N_QUERIES)
    return {
        "plot_ranks": lambda: plots.plot_ranks(posterior, 0),
        "plot_cluster_ranks": lambda: plots.plot_cluster_ranks(posterior)[0],
        "plot_p_best": lambda: plots.plot_p_best(posterior),
        "plot_responsibilities": lambda: plots.plot_responsibilities(posterior, 0, embeddings=x),
        "plot_entropy": lambda: plots.plot_entropy(shares, p, comparisons, baseline=1 - p),
        "plot_reliability": lambda: plots.plot_reliability(
            dict.fromkeys(labels[:4], p), comparisons
        ),
        "plot_gain_curve": lambda: plots.plot_gain_curve(table, "n_clusters"),
        "plot_onboarding": lambda: plots.plot_onboarding(ranks, by="method"),
        "plot_risk_coverage": lambda: plots.plot_risk_coverage(study, labels),
        "plot_cost_quality": lambda: plots.plot_cost_quality(study, policies=labels),
        "plot_quality_calibration": lambda: plots.plot_quality_calibration(study, labels[:4]),
        "plot_overlap": lambda: plots.plot_overlap(overlap),
        "plot_query_map": lambda: plots.plot_query_map(posterior),
        "plot_objective": lambda: plots.plot_objective({key: [3.0, 2.0] for key in labels[:4]}),
        "plot_em_against_posterior": lambda: plots.plot_em_against_posterior(
            posterior, posterior, cluster=0
        ),
    }


def test_gallery_is_whole(gallery) -> None:
    assert sorted(gallery) == sorted(plots.__all__)


@pytest.mark.parametrize("name", plots.__all__)
def test_text_is_large_enough_and_does_not_overlap(gallery, name) -> None:
    figure = gallery[name]().figure
    assert plt.get_fignums() == [figure.number]
    figure.canvas.draw()  # mathematics in a name would fail here, or warn
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= SMALL
    assert all(len(text.get_text()) < 120 for text in texts)
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    for axes in figure.axes:
        written = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        written += [] if axes.get_legend() is None else axes.get_legend().get_texts()
        for text in written:
            box = text.get_window_extent(renderer)
            inside = min(box.x0, box.y0) > -1 and box.x1 < page.x1 + 1 and box.y1 < page.y1 + 1
            assert inside or not text.get_text(), f"{text.get_text()!r} leaves the page"
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            drawn = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            boxes = [
                tick.label1.get_window_extent(renderer)
                for tick in drawn
                if tick.label1.get_visible()
                and tick.label1.get_text()
                and tick.label1.get_rotation() in (0, 90)
            ]
            upright = axis.axis_name == "x"
            boxes.sort(key=lambda box: box.x0 if upright else box.y0)
            for before, after in pairwise(boxes):
                gap = after.x0 - before.x1 if upright else after.y0 - before.y1
                assert gap > -0.5, f"tick labels of {name} overlap"
            for box in boxes:
                assert box.x0 > page.x0 - 1, f"a tick label of {name} leaves the page"


@pytest.mark.parametrize("name", plots.__all__)
def test_axes_can_be_given_and_docstrings_are_whole(name) -> None:
    function = getattr(plots, name)
    has_axes = "ax" in inspect.signature(function).parameters
    assert has_axes or name == "plot_cluster_ranks"
    documentation = inspect.getdoc(function) or ""
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"\n{section}\n---" in documentation


def test_colours_are_told_apart_in_grey() -> None:
    """Neighbours in the order of use differ in lightness, by the luma of their colours."""
    luma = [np.dot(mpl.colors.to_rgb(color), [0.3, 0.59, 0.11]) for color in COLORS]
    assert len(set(np.round(luma, 2))) == len(COLORS)
    assert max(luma) < 0.7  # none is lost on white
    looks = [tuple(plots.style.series_style(i).values())[:3] for i in range(32)]
    assert len(set(looks)) == 32


@pytest.mark.parametrize("width", [8, 12, 26])
def test_short_names_stay_different(hostile_names, width) -> None:
    names = [*hostile_names, "", *(f"org/{'same-' * 20}{i}{'-same' * 20}" for i in range(5))]
    short = short_names(names, width)
    assert len(set(short)) == len(names)
    assert all(len(name.replace(r"\$", "$")) <= 70 for name in short)
    assert all("\n" not in name and "\x07" not in name for name in short)
    assert short_names(["a", "b/c"]) == ["a", "b/c"]
    assert [chance(p) for p in (0.0, 0.001, 0.5, 0.999, 1.0)] == [
        "0.00",
        "<.01",
        "0.50",
        ">.99",
        "1.00",
    ]


def test_matplotlib_waits_until_a_figure_is_wanted() -> None:
    code = (
        "import sys, bayes_ecc; print('matplotlib' in sys.modules); "
        "bayes_ecc.plots.plot_ranks; print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
    assert bayes_ecc.plots is plots


def test_ten_thousand_queries_are_mapped() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(40, 0.1), size=10_000)
    ax = plots.plot_query_map(shares, embeddings=rng.normal(size=(10_000, 8)))
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 10_000
    assert all(dots.get_rasterized() for dots in ax.collections)
    ax.figure.canvas.draw()
