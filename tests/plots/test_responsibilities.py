from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from bayes_ecc import Comparisons, InputError, summarize_responsibilities
from bayes_ecc.plots import plot_entropy, plot_responsibilities


def by_hand(posterior, x):
    """Responsibilities (draws, clusters) of one query by its embedding."""
    draws = posterior["posterior"]
    centroids, weights = draws["centroids"].values[0], draws["weights"].values[0]
    unit = x / np.linalg.norm(x)
    scores = np.log(weights) + 3.0 * centroids @ unit
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def test_intervals_are_those_of_the_draws(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=4, n_draws=101)
    x = np.random.default_rng(5).normal(size=(3, 5))
    before = x.copy()
    ax = plot_responsibilities(posterior, 2, embeddings=x, prob=0.8, kind="eti")
    shares = by_hand(posterior, x[2])
    order = np.argsort(-shares.mean(axis=0))
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"cluster {k}" for k in order]
    assert ax.lines[0].get_xdata() == pytest.approx(shares.mean(axis=0)[order], abs=1e-5)
    ends = np.array([[x0, x1] for (x0, _), (x1, _) in ax.collections[0].get_segments()])
    expected = np.quantile(shares, [0.1, 0.9], axis=0).T[order]
    assert ends == pytest.approx(expected, abs=1e-5)
    assert ax.get_title(loc="left") == "query 2"
    np.testing.assert_array_equal(x, before)


def test_clusters_beyond_the_most_responsible_are_added_up(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=12, n_draws=30)
    x = np.random.default_rng(5).normal(size=(1, 5))
    ax = plot_responsibilities(posterior, embeddings=x, most=4)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert len(labels) == 4
    assert labels[-1] == "9 others"
    shown, others = (line.get_xdata() for line in ax.lines)
    assert len(shown) == 3
    assert sum(shown) + others[0] == pytest.approx(1.0, abs=1e-5)


def test_summary_and_one_draw(fake_posterior) -> None:
    posterior = fake_posterior(n_draws=1)
    x = np.ones((2, 5))
    summary = summarize_responsibilities(posterior, embeddings=x)
    ax = plot_responsibilities(summary, 1)
    assert "point estimate" in ax.get_xlabel()
    assert len(ax.collections[0].get_segments()) == 0
    with pytest.raises(InputError, match="embeddings can't be chosen"):
        plot_responsibilities(summary, 1, embeddings=x)
    with pytest.raises(InputError, match="query 7 is not there"):
        plot_responsibilities(summary, 7)
    with pytest.raises(InputError, match="Give embeddings, probes, or both"):
        plot_responsibilities(posterior, 0)


# -------------------------------------------------------------------- entropy


@pytest.fixture
def judged():
    """Responsibilities of 40 queries, comparisons of them with ties and weights, predictions."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(3, 0.7), size=40)
    query = np.repeat(np.arange(40), 3)
    comparisons = Comparisons.from_arrays(
        query,
        rng.integers(0, 2, size=120),
        rng.integers(2, 4, size=120),
        rng.choice([0.0, 0.5, 1.0], size=120),
        weight=rng.uniform(0.5, 2, size=120),
        queries=[f"q{i}" for i in range(40)],
        models=list("abcd"),
    )
    return shares, rng.choice([0.2, 0.45, 0.5, 0.6, 0.9], size=120), comparisons


def test_accuracy_by_entropy(judged) -> None:
    shares, p, comparisons = judged
    ax = plot_entropy(shares, p, comparisons, n_bins=4)
    entropy = np.array([-(row[row > 0] * np.log(row[row > 0])).sum() for row in shares])
    x, y = ax.lines[0].get_data()
    for b, part in enumerate(np.array_split(np.argsort(entropy), 4)):
        assert x[b] == pytest.approx(entropy[part].mean())
        right = count = 0.0
        for n in range(len(comparisons)):
            if comparisons.query[n] in part:
                outcome, weight = comparisons.outcome[n], comparisons.weight[n]
                side = outcome if p[n] > 0.5 else 1 - outcome
                right += weight * (0.5 if p[n] == 0.5 else side)
                count += weight
        assert y[b] == pytest.approx(right / count)
    assert ax.get_title(loc="left") == "10 queries a bin, 89 % intervals"


def test_interval_of_accuracy_agrees_with_the_bootstrap(judged) -> None:
    shares, p, comparisons = judged
    ax = plot_entropy(shares, p, comparisons, n_bins=1, prob=0.9)
    ((start, stop),) = ax.collections[0].get_segments()
    rng = np.random.default_rng(1)
    right = np.where(p == 0.5, 0.5, np.where(p > 0.5, comparisons.outcome, 1 - comparisons.outcome))
    total = np.bincount(comparisons.query, comparisons.weight * right)
    count = np.bincount(comparisons.query, comparisons.weight)
    drawn = rng.integers(40, size=(4000, 40))
    means = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    assert [start[1], stop[1]] == pytest.approx(np.quantile(means, [0.05, 0.95]), abs=0.015)


def test_responsibilities_are_found_by_the_names_of_queries(judged) -> None:
    shares, p, comparisons = judged
    plain = plot_entropy(shares, p, comparisons).lines[0].get_data(orig=False)
    turned = xr.DataArray(
        shares[::-1].T, {"query": list(comparisons.queries[::-1])}, ("cluster", "query")
    )
    named = plot_entropy(turned, p, comparisons, baseline=np.full(120, 0.6))
    np.testing.assert_allclose(named.lines[0].get_data(orig=False), plain)
    assert [t.get_text() for t in named.get_legend().get_texts()] == [
        "these predictions",
        "baseline",
    ]


def test_entropy_of_certain_responsibilities_makes_one_bin(judged) -> None:
    _, p, comparisons = judged
    ax = plot_entropy(np.ones((40, 1)), p, comparisons)
    assert ax.lines[0].get_xdata().tolist() == [0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, p, c: (r[:5], p, c), "5 rows for the 40 queries"),
        (lambda r, p, c: (-r, p, c), "give shares"),
        (lambda r, p, c: (r, p[:3], c), "probability has shape"),
        (lambda r, p, _: (r, p, "these"), "must be a Comparisons"),
        (lambda _, p, c: (xr.Dataset(), p, c), "no 'entropy'"),
    ],
)
def test_entropy_refuses_what_does_not_belong_together(judged, change, message) -> None:
    with pytest.raises(InputError, match=message):
        plot_entropy(*change(*judged))
    assert plt.get_fignums() == []
