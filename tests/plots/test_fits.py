from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayes_ecc import ECC, ConvergenceWarning, InputError, NotFittedError, simulate
from bayes_ecc.plots import plot_em_against_posterior, plot_objective
from bayes_ecc.posterior import make_posterior


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=150, n_models=5, n_clusters=3, rng=0)


@pytest.fixture(scope="module")
def em(data):
    fit = ECC(n_clusters=3, embedding_weight=1.0, max_iter=500, rng=0)
    return fit.fit(data.comparisons, data.embeddings)


@pytest.fixture(scope="module")
def around(data, em):
    """A posterior around the EM fit with its clusters renumbered, one strength moved away."""
    rng = np.random.default_rng(0)
    order = [2, 0, 1]
    atom = em.posterior_["posterior"]
    strengths = np.repeat(atom["strengths"].values[:, :, order], 200, axis=1)
    strengths = strengths + 0.1 * rng.normal(size=strengths.shape)
    strengths[:, :, order.index(1), 3] += 4.0
    constant = em.posterior_["constant_data"]
    return make_posterior(
        strengths=strengths,
        centroids=np.repeat(atom["centroids"].values[:, :, order], 200, axis=1),
        weights=np.full((1, 200, 3), 1 / 3),
        models=data.comparisons.models,
        concentration=float(constant["concentration"]),
        evidence_power=float(constant["evidence_power"]),
        probe_power=float(constant["probe_power"]),
        rule="per_query_mean",
        estimator="none",
        settings={},
        training=(data.comparisons, data.embeddings),
    )


# -------------------------------------------------------------------- objective


def test_objective_is_drawn_over_iterations(em) -> None:
    ax = plot_objective(em)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), em.objective_)
    assert list(ax.lines[0].get_xdata()) == list(range(1, em.n_iter_ + 1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["converged"]


def test_several_objectives_above_the_lowest(em) -> None:
    ax = plot_objective({"fit": em, "$other$": em.objective_ + 7}, log=True)
    assert ax.get_yscale() == "log"
    first, second = (line.get_ydata() for line in ax.lines if len(line.get_xdata()) > 1)
    lowest = em.objective_.min()
    assert np.isnan(first[-1])  # the lowest of all is no height on such an axis
    np.testing.assert_allclose(first[:-1], em.objective_[:-1] - lowest)
    np.testing.assert_allclose(second, em.objective_ + 7 - lowest)
    assert ax.get_legend().get_texts()[1].get_text() == r"\$other\$"


def test_fit_that_did_not_converge_is_marked(data) -> None:
    with pytest.warns(ConvergenceWarning):
        fit = ECC(n_clusters=3, max_iter=2, rng=0).fit(data.comparisons, data.embeddings)
    ax = plot_objective(fit)
    assert ax.get_legend().get_texts()[0].get_text() == "stopped before it converged"


def test_one_iteration_can_be_drawn() -> None:
    for log in (False, True):
        ax = plot_objective([3.0], log=log)
        ax.figure.canvas.draw()


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (ECC(), NotFittedError, "ECC is not fitted yet"),
        ({}, InputError, "names no fit"),
        ([[1.0]], InputError, r"shape \(1, 1\)"),
        ([np.nan], InputError, "finite"),
        ("fit", InputError, "source is a str"),
        ({"a": "fit"}, InputError, r"source\['a'\] is a str"),
    ],
)
def test_no_objective_is_refused(source, error, message) -> None:
    with pytest.raises(error, match=message):
        plot_objective(source)
    assert plt.get_fignums() == []


# -------------------------------------------------------------------- EM against posterior


def centred(strengths):
    return strengths - strengths.mean(axis=-1, keepdims=True)


def test_clusters_are_matched_and_points_held_against_intervals(em, around) -> None:
    ax = plot_em_against_posterior(em, around, prob=0.8, kind="eti")
    draws = centred(around["posterior"]["strengths"].values[0])[:, [1, 2, 0]]  # as EM numbers them
    point = centred(em.strengths_.values)
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    inside = (low <= point) & (point <= high)
    expected = {
        (round(x, 6), round(y, 6), bool(within))
        for x, y, within in zip(
            point.ravel(), draws.mean(axis=0).ravel(), inside.ravel(), strict=True
        )
    }
    _, good, bad = ax.lines
    drawn = {
        (round(float(x), 6), round(float(y), 6), within)
        for line, within in ((good, True), (bad, False))
        for x, y in zip(*line.get_data(), strict=True)
    }
    assert drawn == expected
    assert 0 < inside.mean() < 1
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == f"inside the interval ({100 * inside.mean():.0f} %)"
    share = int(ax.get_title(loc="left").split()[3])
    assert share > 60  # of clusters matched wrongly it would be a third at most


def test_one_cluster_lists_models_with_both(em, around) -> None:
    ax = plot_em_against_posterior(em, around, cluster=1)
    point, crosses = centred(em.strengths_.values)[1], ax.lines[1].get_xdata()
    mean = centred(around["posterior"]["strengths"].values[0]).mean(axis=0)[2]
    order = np.argsort(-mean)
    assert [text.get_text() for text in ax.get_yticklabels()] == [f"llm_{i}" for i in order]
    np.testing.assert_allclose(crosses, point[order])
    np.testing.assert_allclose(ax.lines[0].get_xdata(), mean[order])
    assert ax.get_title(loc="left") == "cluster 1"


def test_heaviest_of_differing_chains_is_held_against_the_point(em, around, unmatched) -> None:
    import xarray as xr

    two = xr.concat([around["posterior"].to_dataset()] * 2, dim="chain").assign_coords(chain=[0, 1])
    two["strengths"][0] += np.random.default_rng(1).normal(size=two["strengths"][0].shape)
    tree = around.copy()
    tree["posterior"] = two
    constant = tree["constant_data"].to_dataset(inherit=False).drop_vars(["chain_weights", "chain"])
    tree["constant_data"] = constant.assign(chain_weights=("chain", [0.5, 0.5]))
    tree = unmatched(tree, [0.1, 0.9])
    ax = plot_em_against_posterior(em, tree)
    assert "chain 1" in ax.get_title(loc="left")
    alone = plot_em_against_posterior(em, around)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), alone.lines[1].get_ydata())
    with pytest.raises(InputError, match="chain=5: the chains are 0, 1"):
        plot_em_against_posterior(em, tree, chain=5)


def test_fits_of_other_data_are_refused(data, em, around) -> None:
    fewer = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    half = data.comparisons.take(np.arange(150) < 75)
    other = ECC(n_clusters=3, max_iter=500, rng=0).fit(half, data.embeddings[:75])
    cases = [
        ((fewer, around), "2 and 3 clusters"),
        ((other, around), "of different queries"),
        ((em, "posterior"), "posterior is a str"),
        ((em, around, {"cluster": 8}), "cluster 8 is not there"),
    ]
    for (first, second, *more), message in cases:
        with pytest.raises(InputError, match=message):
            plot_em_against_posterior(first, second, **(more[0] if more else {}))
    assert plt.get_fignums() == []


def test_the_pair_the_wrong_way_round_is_refused(em, around):
    with pytest.raises(InputError, match=r"em has 200 draws and posterior has one: .* wrong way"):
        plot_em_against_posterior(around, em)


def test_a_sampled_fit_has_no_objective(around):
    class Sampled:
        posterior_ = around

        def fit(self): ...

    with pytest.raises(InputError, match="source is a Sampled, which has no objective"):
        plot_objective(Sampled())
    with pytest.raises(NotFittedError, match="not fitted yet"):
        plot_objective(ECC(2))
