from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import rankdata

from bayes_ecc import ECC, InputError, NotFittedError, simulate, summarize_cluster_ranking
from bayes_ecc.plots import plot_cluster_ranks, plot_p_best, plot_ranks


def ranks_by_hand(posterior, chain=None):
    """Ranks (draws, clusters, models) by mean win probability, one draw at a time."""
    theta = posterior["posterior"]["strengths"].values
    theta = theta.reshape(-1, *theta.shape[2:]) if chain is None else theta[chain]
    n_models = theta.shape[-1]
    found = np.empty(theta.shape)
    for s, draw in enumerate(theta):
        for k, strengths in enumerate(draw):
            win = [
                np.mean([expit(strengths[i] - strengths[j]) for j in range(n_models) if j != i])
                for i in range(n_models)
            ]
            found[s, k] = rankdata(-np.array(win))
    return found


def segments(ax):
    """Rows and ends of the horizontal lines."""
    return {
        int(y): (float(x0), float(x1))
        for lines in ax.collections
        for (x0, y), (x1, _) in lines.get_segments()
    }


def dots(ax):
    """Rows and places of the dots, and of the filled ones alone."""
    filled, hollow = ax.lines
    every = {int(y): float(x) for line in ax.lines for x, y in zip(*line.get_data(), strict=True)}
    return every, {int(y) for y in filled.get_ydata()}, hollow


def test_ranks_are_those_of_the_draws(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=3, models=5, n_draws=200)
    ax = plot_ranks(posterior, 1, prob=0.8, kind="eti")
    ranks = ranks_by_hand(posterior)[:, 1]
    order = np.argsort(ranks.mean(axis=0))
    names = [f"llm_{i}" for i in order]
    assert [label.get_text() for label in ax.get_yticklabels()] == names
    every, _, _ = dots(ax)
    assert [every[row] for row in range(5)] == pytest.approx(ranks.mean(axis=0)[order])
    low, high = np.quantile(ranks, [0.1, 0.9], axis=0, method="inverted_cdf")[:, order]
    expected = {row: (low[row], high[row]) for row in range(5) if high[row] > low[row]}
    assert segments(ax) == expected
    assert ax.yaxis_inverted()  # the best on top
    written = {round(text.xy[1]): text.get_text() for text in ax.texts[1:]}
    p_best = (ranks == 1).mean(axis=0)[order]
    shown = [float(written[row].lstrip("<>")) for row in range(5)]
    assert shown == pytest.approx(p_best, abs=0.01)


def test_filled_dots_are_the_fewest_that_hold_the_best(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=2, models=6, n_draws=300, rng=4)
    ax = plot_ranks(posterior, 0, level=0.9)
    p_best = (ranks_by_hand(posterior)[:, 0] == 1).mean(axis=0)
    order = np.argsort(ranks_by_hand(posterior)[:, 0].mean(axis=0))
    need = int((np.cumsum(np.sort(p_best)[::-1]) < 0.9).sum()) + 1
    chosen = set(np.argsort(-p_best)[:need].tolist())
    _, filled, hollow = dots(ax)
    assert {int(order[row]) for row in filled} == chosen
    assert hollow.get_markerfacecolor() == "white"


def test_a_fit_its_posterior_and_its_summary_draw_the_same() -> None:
    data = simulate(n_queries=80, n_models=5, rng=0)
    fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    summary = summarize_cluster_ranking(fit.posterior_)
    before = summary.copy(deep=True)
    found = [dots(plot_ranks(each, 1))[0] for each in (fit, fit.posterior_, summary)]
    assert found[0] == found[1] == found[2]
    assert summary.identical(before)


def test_one_draw_is_drawn_without_intervals(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=2, models=4, n_draws=1)
    ax = plot_ranks(posterior, 0)
    assert segments(ax) == {}
    assert not ax.texts
    assert "point estimate" in ax.get_xlabel()
    assert "point estimate" in plot_p_best(posterior).get_title(loc="left")


def test_interval_follows_arviz(fake_posterior) -> None:
    import arviz_base

    posterior = fake_posterior(n_draws=200)
    with arviz_base.rc_context({"stats.ci_prob": 0.5, "stats.ci_kind": "hdi"}):
        ax = plot_ranks(posterior, 0)
    assert "50 % highest-density interval" in ax.get_xlabel()
    narrow, wide = segments(ax), segments(plot_ranks(posterior, 0, prob=0.99))
    assert sum(high - low for low, high in narrow.values()) < sum(
        high - low for low, high in wide.values()
    )


def test_heaviest_chain_is_shown_and_named(fake_posterior, unmatched) -> None:
    posterior = unmatched(fake_posterior(n_chains=3, n_draws=40), [0.2, 0.7, 0.1])
    ax = plot_ranks(posterior, 0)
    assert "chain 1" in ax.get_title(loc="left")
    every, _, _ = dots(ax)
    expected = np.sort(ranks_by_hand(posterior, chain=1)[:, 0].mean(axis=0))
    assert [every[row] for row in range(4)] == pytest.approx(expected)
    other = plot_ranks(posterior, 0, chain=2)
    expected = np.sort(ranks_by_hand(posterior, chain=2)[:, 0].mean(axis=0))
    assert [dots(other)[0][row] for row in range(4)] == pytest.approx(expected)
    with pytest.raises(InputError, match="chain=9: the chains are 0, 1, 2"):
        plot_ranks(posterior, 0, chain=9)


def test_queries_are_ranked_too(fake_posterior) -> None:
    posterior = fake_posterior(dim=5)
    x = np.random.default_rng(1).normal(size=(2, 5))
    ax = plot_ranks(posterior, 1, embeddings=x)
    assert ax.get_title(loc="left") == "query 1"


def test_panels_show_the_clusters_that_differ_most_in_one_order(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=7, models=4, n_draws=50, rng=2)
    panels = plot_cluster_ranks(posterior, most=3, columns=2)
    mean = ranks_by_hand(posterior).mean(axis=0)
    apart = np.abs(mean - mean.mean(axis=0)).sum(axis=1)
    kept = sorted(np.argsort(-apart)[:3].tolist())
    assert [ax.get_title(loc="left") for ax in panels] == [f"cluster {k}" for k in kept]
    order = np.argsort(mean.mean(axis=0))
    for ax, k in zip(panels, kept, strict=True):
        assert [dots(ax)[0][row] for row in range(4)] == pytest.approx(mean[k][order])
    assert "3 of 7 clusters" in panels[0].figure.get_suptitle()
    chosen = plot_cluster_ranks(posterior, [6, 0])
    assert [ax.get_title(loc="left") for ax in chosen] == ["cluster 6", "cluster 0"]
    assert len(chosen[0].figure.axes) == 2  # no empty panels


def test_heat_map_holds_the_chances_of_being_best(fake_posterior) -> None:
    posterior = fake_posterior(n_clusters=4, models=5, n_draws=150, rng=3)
    ax = plot_p_best(posterior)
    p_best = (ranks_by_hand(posterior) == 1).mean(axis=0)
    drawn = np.asarray(ax.images[0].get_array())
    names = [label.get_text() for label in ax.get_xticklabels()]
    order = [int(name.removeprefix("llm_")) for name in names]
    assert drawn == pytest.approx(p_best[:, order])
    assert (np.diff(p_best.mean(axis=0)[order]) <= 1e-12).all()
    assert ax.images[0].get_clim() == (0.0, 1.0)
    written = [text.get_text() for text in ax.texts]
    assert len(written) == 20
    assert len(plot_p_best(fake_posterior(n_clusters=30, models=20)).texts) == 0  # no room


def test_axes_given_are_used_and_no_figure_is_made(fake_posterior) -> None:
    figure, (left, right) = plt.subplots(1, 2)
    posterior = fake_posterior()
    assert plot_ranks(posterior, 0, ax=left, color="black") is left
    assert left.lines[0].get_color() == "black"
    assert plot_p_best(posterior, ax=right, cmap="Greys") is right
    assert right.images[0].get_cmap().name == "Greys"
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: plot_ranks(p), "more than one cluster to draw .* name one with item="),
        (lambda p: plot_ranks(p, 12), r"cluster 12 is not there; known are 0, 1, 2"),
        (lambda p: plot_ranks(p, 0, ax="here"), "ax must be matplotlib Axes"),
        (lambda p: plot_ranks(p, 0, chain=0), "clusters are the same in all chains"),
        (lambda _: plot_ranks(3, 0), "source is a int; give a fitted estimator"),
        (lambda p: plot_ranks(p["posterior"].to_dataset(), 0), "has no 'rank'"),
        (lambda p: plot_ranks(summarize_cluster_ranking(p), 0, prob=0.5), "prob can't be chosen"),
        (lambda p: plot_ranks(p, 0, prob=2.0), "prob=2.0"),
        (lambda p: plot_cluster_ranks(p, []), "clusters names none"),
        (lambda p: plot_cluster_ranks(p, most=0), "most=0"),
        (lambda p: plot_cluster_ranks(p, [5]), "cluster 5 is not there"),
        (lambda p: plot_p_best(p, ax=4), "ax must be"),
    ],
)
def test_wrong_input_is_refused_before_a_figure_is_made(call, message, fake_posterior) -> None:
    with pytest.raises(InputError, match=message):
        call(fake_posterior())
    assert plt.get_fignums() == []


def test_an_estimator_must_be_fitted() -> None:
    with pytest.raises(NotFittedError, match="ECC is not fitted yet"):
        plot_ranks(ECC(n_clusters=2))


def test_failed_checks_are_told_above_the_figure(fake_posterior) -> None:
    posterior = fake_posterior()
    posterior.attrs.update(failed_checks="r_hat,ess", approximate=1)
    with pytest.warns(UserWarning, match="Checks of this fit failed"):
        ax = plot_ranks(posterior, 0)
    title = ax.get_title(loc="left").replace("\n", " ")
    assert title == "cluster 0, approximate posterior; 2 checks of the fit failed"


def test_several_panels_take_no_axes(fake_posterior):
    ax = plt.subplots()[1]
    for given in ("x", ax):
        with pytest.raises(InputError, match="takes no ax: it draws several panels"):
            plot_cluster_ranks(fake_posterior(), ax=given)
    plt.close(ax.figure)


def test_an_item_that_is_missing_is_named(fake_posterior):
    with pytest.raises(InputError, match=r"item is missing.*cluster.*\(3: 0, 1, 2\).* item="):
        plot_ranks(fake_posterior())
