from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.decomposition import PCA

from bayes_ecc import ECC, InputError, overlap_matrix, predict_responsibilities, simulate
from bayes_ecc.plots import plot_overlap, plot_query_map

# -------------------------------------------------------------------- overlap


def labels(ax) -> tuple[list[str], list[str]]:
    return (
        [text.get_text() for text in ax.get_yticklabels()],
        [text.get_text() for text in ax.get_xticklabels()],
    )


def test_matched_columns_lie_on_the_diagonal() -> None:
    rng = np.random.default_rng(0)
    order = rng.permutation(6)
    counts = pd.DataFrame(
        (np.diag(rng.integers(20, 40, 6)) + rng.integers(0, 3, (6, 6)))[:, order],
        index=pd.Index([f"task {i}" for i in range(6)], name="task"),
        columns=pd.Index(order, name="cluster"),
    )
    before = counts.copy()
    ax = plot_overlap(counts)
    pd.testing.assert_frame_equal(counts, before)
    assert labels(ax) == ([f"task {i}" for i in range(6)], [str(i) for i in range(6)])
    drawn = np.asarray(ax.images[0].get_array())
    expected = counts[range(6)].div(counts.sum(axis=1), axis=0)
    np.testing.assert_allclose(drawn, expected)
    assert (drawn.argmax(axis=1) == np.arange(6)).all()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cluster", "task")


@pytest.mark.parametrize("share", ["row", "column", "none"])
def test_shares_of_rows_and_of_columns(share) -> None:
    values = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    ax = plot_overlap(values, share=share, match=False, names=("first $1$", "second"))
    drawn = np.ma.filled(ax.images[0].get_array(), np.nan)
    expected = {
        "row": [[0.8, 0.0, 0.2], [np.nan] * 3],
        "column": [[1.0, np.nan, 1.0], [0.0, np.nan, 0.0]],
        "none": values,
    }[share]
    np.testing.assert_allclose(drawn, expected)
    assert ax.get_ylabel() == r"first \$1\$"
    ax.figure.canvas.draw()


def test_overlap_of_partitions_is_read() -> None:
    found = overlap_matrix(["a", "a", "b", "b", "b"], ["x", "y", "y", "y", "y"])
    for matrix in (found, found["queries"]):
        ax = plot_overlap(matrix, share="none")
        assert labels(ax) == (["a", "b"], ["x", "y"])
        assert np.asarray(ax.images[0].get_array()).tolist() == [[1, 1], [0, 3]]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[1, -2]], "row 0, column 1: found -2.0"),
        ([1, 2], "matrix has shape"),
        ([["a", "b"]], "must hold numbers"),
        ([[np.inf, 1]], "found inf"),
        (np.empty((0, 3)), "one at least"),
        (xr.Dataset(), "no 'queries'"),
    ],
)
def test_no_matrix_is_refused(matrix, message) -> None:
    with pytest.raises(InputError, match=message):
        plot_overlap(matrix)
    with pytest.raises(InputError, match="share='all'"):
        plot_overlap([[1, 2]], share="all")
    assert plt.get_fignums() == []


# -------------------------------------------------------------------- queries


def test_places_are_the_principal_components_and_sizes_follow_certainty() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 6)) * [3, 2, 1, 1, 1, 1]
    shares = rng.dirichlet([0.5, 0.5, 0.5], size=200)
    before = x.copy(), shares.copy()
    ax = plot_query_map(shares, embeddings=x)
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(shares, before[1])
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    pca = PCA(2).fit(unit)
    place = pca.transform(unit)
    order = np.argsort(-np.bincount(shares.argmax(axis=1)), kind="stable")
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    for k, dots, text in zip(order, ax.collections, texts, strict=True):
        mine = shares.argmax(axis=1) == k
        assert text == f"cluster {k} ({mine.sum()})"
        np.testing.assert_allclose(np.abs(dots.get_offsets()), np.abs(place[mine]), atol=1e-9)
        certainty = shares.max(axis=1)[mine]
        assert (np.diff(dots.get_sizes()[np.argsort(certainty)]) >= 0).all()
        alpha = dots.get_facecolors()[:, 3]
        assert alpha.min() >= 0.15
        assert (np.diff(alpha[np.argsort(certainty)]) >= 0).all()
    assert f"({pca.explained_variance_ratio_[0]:.0%}".replace("%", " %") in ax.get_xlabel()


def test_clusters_beyond_eight_are_grey() -> None:
    rng = np.random.default_rng(1)
    cluster = rng.integers(12, size=300)
    shares = np.eye(12)[cluster]
    ax = plot_query_map(shares, embeddings=rng.normal(size=(300, 4)))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(texts) == 9
    assert texts[-1] == "4 others"
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 300
    ax = plot_query_map(shares, embeddings=rng.normal(size=(300, 4)), clusters=[11])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        f"cluster 11 ({(cluster == 11).sum()})",
        "11 others",
    ]


def test_fit_is_mapped_by_its_training_queries() -> None:
    data = simulate(n_queries=90, n_models=5, rng=0)
    fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    ax = plot_query_map(fit)
    size = np.bincount(fit.responsibilities_.values.argmax(axis=1), minlength=3)
    order = [k for k in np.argsort(-size, kind="stable") if size[k]]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == [f"cluster {k} ({size[k]})" for k in order]
    new = data.embeddings[:7]
    ax = plot_query_map(fit, embeddings=new)
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 7
    by_hand = predict_responsibilities(fit.posterior_, embeddings=new)
    again = plot_query_map(by_hand, embeddings=new)
    assert [t.get_text() for t in again.get_legend().get_texts()] == [
        t.get_text() for t in ax.get_legend().get_texts()
    ]


@pytest.mark.parametrize("shape", [(1, 3), (2, 1)])
def test_very_few_queries_or_dimensions(shape) -> None:
    ax = plot_query_map(np.ones((shape[0], 1)), embeddings=np.ones(shape))
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == shape[0]


def test_maps_refuse_what_does_not_belong_together() -> None:
    shares, x = np.full((5, 2), 0.5), np.eye(5)
    data = simulate(n_queries=60, n_models=5, rng=0)
    votes = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons)
    cases = [
        (lambda: plot_query_map(shares), "embeddings is missing"),
        (lambda: plot_query_map(shares[:3], embeddings=x), "one row a query"),
        (lambda: plot_query_map(shares, embeddings=x, clusters=[7]), "cluster 7 is not there"),
        (lambda: plot_query_map(shares, embeddings=x, clusters=range(9)), "names 9"),
        (lambda: plot_query_map("fit"), "source is a str"),
        (lambda: plot_query_map(votes), "made without embeddings"),
        (lambda: plot_query_map(votes, draws=0), "draws=0"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message):
            call()
    assert plt.get_fignums() == []


@pytest.mark.parametrize("names", [["a"], "ab", ("a", "b", "c"), 3])
def test_names_of_an_overlap_are_two(names):
    with pytest.raises(InputError, match=r"names=.* give two texts"):
        plot_overlap(np.ones((3, 3)), names=names)
