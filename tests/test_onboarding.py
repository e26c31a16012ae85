"""A newcomer's strengths against quadrature and refits; what is asked next; ranks and stopping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit

from bayes_ecc import (
    ECC,
    Comparisons,
    InputError,
    Onboarding,
    load_posterior,
    onboard,
    predict_win_probability,
    route,
    save_posterior,
    simulate,
    start_onboarding,
    summarize_ranking,
    training_data,
)
from bayes_ecc.acquisition import Ground, at_random, by_design, by_median
from bayes_ecc.inference import mean_win_probability
from bayes_ecc.newcomer import (
    Prior,
    Tried,
    draw_strengths,
    exchangeable_prior,
    joined,
    pool_prior,
    win_chances,
)
from bayes_ecc.onboarding_fit import read_old_fit
from bayes_ecc.posterior import make_posterior

SETTINGS: dict[str, Any] = {"embedding_weight": 1.0, "ridge": 0.1, "max_iter": 500, "rng": 0}


def tried(query: Any, opponent: Any, outcome: Any, weight: float = 1.0) -> Tried:
    y = np.asarray(outcome, dtype=float)
    return Tried(np.asarray(query), np.asarray(opponent), y, np.full(len(y), weight))


def evidence_on_grid(
    theta: np.ndarray, strengths: np.ndarray, r: np.ndarray, data: Tried
) -> np.ndarray:
    """Log evidence at points theta (n_points, n_clusters), query by query, as it is defined."""
    total = np.zeros(len(theta))
    for q in np.unique(data.query):
        mixed = np.zeros(len(theta))
        for k in range(theta.shape[1]):
            chance = np.full(len(theta), r[q, k])
            for n in np.flatnonzero(data.query == q):
                p = expit(theta[:, k] - strengths[k, data.opponent[n]])
                y = data.outcome[n]
                chance = chance * (p**y * (1 - p) ** (1 - y)) ** data.weight[n]
            mixed += chance
        total += np.log(mixed)
    return total


# -------------------------------------------------------------------- strengths


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_draws_match_quadrature_in_two_clusters(weight: float) -> None:
    strengths = np.array([[0.0, 1.0, -1.0], [0.5, -2.0, 1.0]])
    r = np.array([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [0.0, 1.0]])
    data = tried([0, 0, 1, 2, 3, 2], [0, 1, 2, 0, 1, 1], [1, 1, 0, 0.5, 1, 0.2], weight)
    mean, covariance = np.array([0.2, -0.3]), np.array([[1.5, 0.6], [0.6, 0.8]])
    axis = np.linspace(-7, 7, 281)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    off = grid - mean
    log = -0.5 * np.einsum("nk,kj,nj->n", off, np.linalg.inv(covariance), off)
    log += evidence_on_grid(grid, strengths, r, data)
    density = np.exp(log - log.max())
    density /= density.sum()
    expected = density @ grid
    second = np.einsum("n,nk,nj->kj", density, grid - expected, grid - expected)
    start = np.zeros((1, 20_000, 2))
    prior = Prior(mean[None], covariance[None])
    drawn = draw_strengths(
        start, prior, strengths[None], r[None], data, 25, np.random.default_rng(0)
    )[0]
    assert (start == 0).all()
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), second, atol=0.04)


def test_every_atom_is_learnt_under_its_own_strengths() -> None:
    strengths = np.array([[[-1.0, 1.0]], [[2.0, 0.0]]])
    prior = Prior(np.zeros((2, 1)), np.ones((2, 1, 1)))
    data = tried([0, 0, 0], [0, 1, 1], [1, 0, 1])
    r = np.ones((2, 1, 1))
    drawn = draw_strengths(
        np.zeros((2, 8000, 1)), prior, strengths, r, data, 20, np.random.default_rng(1)
    )
    axis = np.linspace(-6, 6, 2001)[:, None]
    for a in range(2):
        log = -0.5 * axis[:, 0] ** 2 + evidence_on_grid(axis, strengths[a], r[a], data)
        density = np.exp(log) / np.exp(log).sum()
        mean = density @ axis[:, 0]
        assert abs(drawn[a].mean() - mean) < 0.04
        assert abs(drawn[a].std() - np.sqrt(density @ (axis[:, 0] - mean) ** 2)) < 0.04


def test_without_comparisons_the_prior_comes_back() -> None:
    strengths = np.random.default_rng(0).normal(size=(1, 3, 5))
    prior = pool_prior(strengths)
    drawn = draw_strengths(
        np.zeros((1, 20_000, 3)),
        prior,
        strengths,
        np.empty((1, 0, 3)),
        Tried.none(),
        5,
        np.random.default_rng(0),
    )[0]
    np.testing.assert_allclose(drawn.mean(axis=0), prior.mean[0], atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), prior.covariance[0], atol=0.06)


def test_exchangeable_prior_is_level_plus_deviations() -> None:
    strengths = np.array([[[1.0, 3.0], [0.0, -2.0]]])
    prior = exchangeable_prior(strengths, np.array([0.5]), 2.0)
    np.testing.assert_allclose(prior.mean, [[2.0, -1.0]])
    np.testing.assert_allclose(prior.covariance, [[[4.25, 4.0], [4.0, 4.25]]])


def test_pool_prior_expects_what_the_others_share() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=40)
    both = common + rng.normal(size=40) / 10
    strengths = np.stack([common, both, rng.normal(size=40)])[None]
    covariance = pool_prior(strengths).covariance[0]
    scale = np.sqrt(np.diagonal(covariance))
    correlation = covariance / np.outer(scale, scale)
    assert correlation[0, 1] > correlation[0, 2] + 0.3
    sample = np.cov(strengths[0])
    # half is the others' own covariance, half shares its total variance
    assert abs(np.trace(covariance) / np.trace(sample) - 1) < 1e-9


def test_pool_prior_rules_no_newcomer_out_where_all_others_are_alike() -> None:
    prior = pool_prior(np.zeros((1, 4, 3)))
    assert np.linalg.eigvalsh(prior.covariance[0]).min() > 0


def test_chances_and_overall_win_probability_are_averages_over_draws() -> None:
    rng = np.random.default_rng(3)
    strengths, newcomer = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 3))
    r = rng.dirichlet(np.ones(3), size=(2, 6))
    share = np.array([0.3, 0.7])
    chances = win_chances(newcomer, strengths, r, share)
    expected = np.zeros((6, 4))
    for a in range(2):
        for theta in newcomer[a]:
            expected += share[a] / 5 * r[a] @ expit(theta[:, None] - strengths[a])
    np.testing.assert_allclose(chances, expected)
    ground = Ground(strengths, r, r, share)
    pool = mean_win_probability(joined(newcomer, strengths))
    np.testing.assert_allclose(
        ground.overall(newcomer), np.einsum("aqk,arkm->arm", r, pool) / 6, atol=1e-12
    )


@pytest.mark.statistical
def test_rank_intervals_hold_newcomers_drawn_from_the_prior(
    replications: Callable[[int, int], int],
) -> None:
    rng = np.random.default_rng(5)
    strengths = rng.normal(size=(1, 3, 6))
    r = rng.dirichlet(np.ones(3) / 2, size=(1, 60))
    ground = Ground(strengths, r, r, np.ones(1))
    prior = pool_prior(strengths)
    root = np.linalg.cholesky(prior.covariance[0])
    runs = replications(300, 60)
    held = []
    for _ in range(runs):
        truth = prior.mean[0] + root @ rng.normal(size=3)
        overall = ground.overall(truth[None, None])[0, 0]
        place = 1 + int((overall[:-1] > overall[-1]).sum())
        query, opponent = rng.permutation(60)[:20], rng.integers(6, size=20)
        cluster = np.array([rng.choice(3, p=r[0, q]) for q in query])
        won = rng.random(20) < expit(truth[cluster] - strengths[0, cluster, opponent])
        drawn = draw_strengths(
            np.zeros((1, 200, 3)), prior, strengths, r, tried(query, opponent, won), 20, rng
        )
        win = ground.overall(drawn)[0]
        places = 1 + (win[:, :-1] > win[:, -1:]).sum(axis=1)
        low, high = np.quantile(places, [0.05, 0.95], method="inverted_cdf")
        held.append(low <= place <= high)
    # whole ranks make the intervals hold a little more than they say
    assert np.mean(held) > 0.9 - 3 * np.sqrt(0.09 / runs)


# -------------------------------------------------------------------- what to ask next


def test_published_rule_takes_the_median_ranked_model() -> None:
    rng = np.random.default_rng(0)
    strengths = rng.normal(size=(1, 2, 5))
    r = rng.dirichlet(np.ones(2), size=(1, 30)).astype(np.float32)
    ground = Ground(strengths, r, r, np.ones(1))
    allowed = np.ones((30, 5), dtype=bool)
    chosen = by_median(ground, allowed, 30, rng)
    assert sorted(chosen.query) == list(range(30))
    for query, opponent in zip(chosen.query, chosen.opponent, strict=True):
        win = r[0, query] @ mean_win_probability(strengths[0])
        assert (win > win[opponent]).sum() == 2
    allowed[chosen.query, chosen.opponent] = False
    for query, opponent in zip(*by_median(ground, allowed, 30, rng)[:2], strict=True):
        win = r[0, query] @ mean_win_probability(strengths[0])
        assert (win > win[opponent]).sum() == 1  # the better of the two beside the median


def test_random_rule_stays_within_what_is_allowed() -> None:
    allowed = np.zeros((10, 4), dtype=bool)
    allowed[2, 1] = allowed[5, 3] = allowed[5, 0] = True
    seen = set()
    for seed in range(20):
        chosen = at_random(allowed, 5, np.random.default_rng(seed))
        assert sorted(chosen.query) == [2, 5]
        seen.update(zip(chosen.query.tolist(), chosen.opponent.tolist(), strict=True))
    assert seen == {(2, 1), (5, 0), (5, 3)}


@pytest.mark.parametrize("goal", ["profile", "rank"])
def test_design_takes_what_lowers_the_expected_variance_most(goal: Any) -> None:
    rng = np.random.default_rng(1)
    n_draws = 400
    strengths = rng.normal(size=(1, 3, 4))
    newcomer = rng.normal(size=(1, n_draws, 3))
    r = rng.dirichlet(np.ones(3) / 3, size=(1, 12)).astype(np.float32)
    ground = Ground(strengths, r, r, np.ones(1))
    allowed = rng.random((12, 4)) < 0.7
    chosen = by_design(ground, newcomer, allowed, 1, rng, goal=goal)
    if goal == "rank":
        win = ground.overall(newcomer)[0]
        target = (win[:, :-1] > win[:, -1:]).astype(float)
    else:
        beats = expit(newcomer[0][:, :, None] - strengths[0]).mean(axis=2)
        target = beats @ r[0].T
    lowered = np.full((12, 4), -1.0)
    for q, m in zip(*np.nonzero(allowed), strict=True):
        p = expit(newcomer[0] - strengths[0, :, m]) @ r[0, q]
        after = np.zeros(target.shape[1])
        for chance in (p, 1 - p):  # the outcome's two values reweight the draws
            weight = chance / chance.sum()
            mean = weight @ target
            after += chance.mean() * (weight @ (target - mean) ** 2)
        lowered[q, m] = (target.var(axis=0) - after).sum()
    best = np.unravel_index(lowered.argmax(), lowered.shape)
    assert (chosen.query[0], chosen.opponent[0]) == best
    share = lowered[best] / target.var(axis=0).sum()
    assert abs(chosen.value[0] / share - 1) < 0.01


def test_a_design_counts_on_ties_that_tell_nothing() -> None:
    rng = np.random.default_rng(2)
    strengths, newcomer = rng.normal(size=(1, 2, 3)), rng.normal(size=(1, 300, 2))
    r = rng.dirichlet(np.ones(2), size=(1, 15)).astype(np.float32)
    ground = Ground(strengths, r, r, np.ones(1))
    allowed = np.ones((15, 3), dtype=bool)
    plain = by_design(ground, newcomer, allowed, 1, rng)
    even = by_design(ground, newcomer, allowed, 1, rng, decided=np.full((15, 3), 0.5))
    assert (even.query, even.opponent) == (plain.query, plain.opponent)
    np.testing.assert_allclose(even.value, plain.value / 2, rtol=1e-6)
    chance = np.full((15, 3), 0.9)
    chance[plain.query[0]] = 0.01
    assert by_design(ground, newcomer, allowed, 1, rng, decided=chance).query != plain.query


def test_a_batch_is_spread_over_what_is_unknown() -> None:
    rng = np.random.default_rng(0)
    strengths = np.zeros((1, 2, 3))
    newcomer = rng.normal(size=(1, 500, 2)) * [1.0, 0.9]  # apart, the first tells more every time
    r = np.zeros((1, 20, 2), dtype=np.float32)
    r[0, :10, 0] = r[0, 10:, 1] = 1.0
    ground = Ground(strengths, r, r, np.ones(1))
    chosen = by_design(ground, newcomer, np.ones((20, 3), dtype=bool), 6, rng)
    assert len(set(chosen.query)) == 6
    assert 2 <= (chosen.query < 10).sum() <= 4
    assert chosen.value[0] > chosen.value[-1] > 0


def test_design_looks_at_what_the_newcomer_s_comparisons_can_settle() -> None:
    """Atoms that differ in the old models alone leave nothing to find out."""
    strengths = np.stack([np.zeros((1, 3)), np.full((1, 3), 5.0)])
    newcomer = np.zeros((2, 4, 1))
    r = np.ones((2, 6, 1), dtype=np.float32)
    ground = Ground(strengths, r, r, np.array([0.5, 0.5]))
    chosen = by_design(ground, newcomer, np.ones((6, 3), dtype=bool), 2, np.random.default_rng(0))
    np.testing.assert_allclose(chosen.value, 0.0, atol=1e-12)


# -------------------------------------------------------------------- the whole way


@pytest.fixture(scope="module")
def data() -> Any:
    return simulate(n_queries=400, n_models=6, n_clusters=3, rng=2)


@pytest.fixture(scope="module")
def fit(data: Any) -> ECC:
    old = data.comparisons.drop_models(["llm_5"])
    return ECC(n_clusters=3, **SETTINGS).fit(old, data.embeddings)


def begin(fit: ECC, **settings: Any) -> Onboarding:
    return start_onboarding(fit.posterior_, "llm_5", **{"draws": 100, "rng": 0, **settings})


def own_rows(comparisons: Comparisons, name: str) -> Comparisons:
    code = comparisons.models.get_loc(name)
    return comparisons.rows((comparisons.first == code) | (comparisons.second == code))


def truth_teller(data: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Judge proposals by the strengths that the data were simulated from."""
    rng = np.random.default_rng(11)
    models, queries = data.comparisons.models, data.comparisons.queries

    def ask(table: pd.DataFrame) -> pd.DataFrame:
        label = data.labels[queries.get_indexer(table["query_id"])]
        a, b = (models.get_indexer(table[name]) for name in ("model_a", "model_b"))
        p = expit(data.strengths[label, b] - data.strengths[label, a])
        return table.assign(winner=np.where(rng.random(len(p)) < p, "model_b", "model_a"))

    return ask


def test_all_comparisons_of_the_newcomer_give_what_a_refit_gives(data: Any, fit: ECC) -> None:
    everything = data.comparisons
    joining = begin(fit, prior="fit").update(own_rows(everything, "llm_5"))
    refit = ECC(n_clusters=3, **{**SETTINGS, "init": fit.responsibilities_.values})
    refit = refit.fit(everything, data.embeddings)
    tree = joining.posterior()
    strengths = tree["posterior"]["strengths"].mean(("chain", "draw"))
    learnt = mean_win_probability(strengths.values)[:, -1]
    again = mean_win_probability(refit.strengths_.values)[:, -1]
    np.testing.assert_allclose(learnt, again, atol=0.06)
    overall = round(float(joining.rank()["rank"]))
    means = refit.predict_ranking(data.embeddings)["win_probability"].mean("query")
    assert overall == 1 + int((means > means.sel(llm="llm_5")).sum())


def test_more_comparisons_narrow_the_interval(data: Any, fit: ECC) -> None:
    end = onboard(begin(fit), truth_teller(data), budget=60, batch=10)
    history = end.history(prob=0.9)
    assert history["asked"].tolist() == [0, 10, 20, 30, 40, 50, 60]
    width = history["rank_upper"] - history["rank_lower"]
    assert width.iloc[0] >= 4
    assert width.iloc[-1] <= 2
    share = np.bincount(data.labels, minlength=3) / len(data.labels)
    truth = share @ mean_win_probability(data.strengths)
    place = 1 + int((truth > truth[5]).sum())
    assert history["rank_lower"].iloc[-1] <= place <= history["rank_upper"].iloc[-1]


def test_it_stops_once_the_rank_is_settled(fit: ECC) -> None:
    for winner, verdict in (("model_a", "inside"), ("model_b", "outside")):
        joining = begin(fit)
        assert joining.decide(3) == "open"
        end = onboard(joining, lambda t, w=winner: t.assign(winner=w), budget=200, top=3)  # type: ignore[misc]
        assert end.decide(3) == verdict
        assert len(end.asked) < 60
        places = end.rank()["rank_probability"].values
        inside = places[:3].sum()
        assert (inside if verdict == "inside" else 1 - inside) >= 0.9
        assert abs(places.sum() - 1) < 1e-9
    assert begin(fit).decide(6) == "inside"


def test_nothing_is_asked_twice(fit: ECC) -> None:
    joining = begin(fit)
    for rule in ("design", "published", "random"):
        table = joining.propose(20, rule=rule)  # type: ignore[arg-type]
        assert (table["model_a"] == "llm_5").all()
        joining = joining.update(table.assign(outcome=0.5))
    assert len(set(joining.asked.query)) == 60
    few = np.zeros((400, 5), dtype=bool)
    few[:3] = True
    joining = begin(fit)
    for _ in range(4):
        table = joining.propose(10, allowed=few, per_query=2, rule="random")
        joining = joining.update(table.assign(outcome=1.0))
        if len(joining.asked) == 6:
            break
    pairs = set(zip(joining.asked.query.tolist(), joining.asked.opponent.tolist(), strict=True))
    assert len(pairs) == 6
    with pytest.raises(InputError, match="No pair is left"):
        joining.propose(allowed=few, per_query=2)


def test_ties_are_half_wins_or_tell_nothing(fit: ECC) -> None:
    joining = begin(fit, draws=2000)
    table = joining.propose(30, rule="random").assign(winner="tie")
    ignored = joining.update(table, ties="ignore")
    assert len(ignored.asked) == 30
    assert len(ignored.asked.telling()) == 0
    assert abs(ignored.rank()["win_probability"] - joining.rank()["win_probability"]) < 0.03
    half = joining.update(table)
    before = joining.rank()["rank_upper"] - joining.rank()["rank_lower"]
    assert half.rank()["rank_upper"] - half.rank()["rank_lower"] < before
    assert abs(half.rank()["win_probability"] - 0.5) < 0.1


def test_answers_may_come_either_way_round(data: Any, fit: ECC) -> None:
    rows = own_rows(data.comparisons, "llm_5").take(range(40))
    table = rows.to_frame()
    turned = table.assign(
        model_a=table["model_b"], model_b=table["model_a"], outcome=1 - table["outcome"]
    )
    one, other, third = (begin(fit).update(given) for given in (rows, table, turned))
    np.testing.assert_array_equal(one.strengths, other.strengths)
    np.testing.assert_array_equal(one.strengths, third.strengths)


def test_the_container_reads_like_any_other(data: Any, fit: ECC, tmp_path: Path) -> None:
    before = fit.posterior_.copy(deep=True)
    joining = begin(fit)
    joining = joining.update(joining.propose(20).assign(winner="model_a"))
    tree = joining.posterior()
    xr.testing.assert_identical(fit.posterior_, before)
    assert tree["posterior"].sizes == {
        "chain": 1, "draw": 100, "cluster": 3, "llm": 6, "embedding_dim": 32,
    }  # fmt: skip
    old = tree["posterior"]["strengths"].isel(llm=slice(5))
    np.testing.assert_array_equal(old - fit.strengths_, np.zeros(old.shape))
    summary = summarize_ranking(tree, embeddings=data.embeddings[:4])
    assert summary["rank_probability"].sel(llm="llm_5").sum("place").values == pytest.approx(1)
    assert route(tree, embeddings=data.embeddings[:4]).sizes["query"] == 4
    comparisons, embeddings = training_data(tree)
    assert comparisons.n_models == 6
    assert len(embeddings) == 400
    test = own_rows(data.comparisons, "llm_5").take(range(50))
    p = predict_win_probability(tree, test, embeddings=data.embeddings[:50])
    chances = joining.win_probability(data.embeddings[:50]).values
    second = test.second == 5
    rival = np.where(second, test.first, test.second)
    won = chances[test.query, rival]
    np.testing.assert_allclose(p, np.where(second, won, 1 - won), atol=1e-5)
    path = save_posterior(tree, tmp_path / "fit.nc")
    assert load_posterior(path).attrs["newcomer"] == "llm_5"
    ranks = joining.cluster_ranking()
    assert ranks["rank_lower"].dims == ("cluster",)


def test_the_same_seed_gives_the_same(fit: ECC) -> None:
    found = []
    for _ in range(2):
        joining = begin(fit)
        table = joining.propose(5)
        found.append((table, joining.update(table.assign(winner="model_b")).strengths))
    pd.testing.assert_frame_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


# -------------------------------------------------------------------- other fits


def sampled(n_draws: int = 6, *, tau: bool = True, **extra: Any) -> xr.DataTree:
    """A posterior of three chains, the second without weight."""
    rng = np.random.default_rng(4)
    shape = (3, n_draws)
    centroids = rng.normal(size=(*shape, 2, 4))
    variables = {"tau": (("chain", "draw"), rng.uniform(0.5, 2, shape))} if tau else {}
    variables |= {name: (("chain", "draw"), np.full(shape, v)) for name, v in extra.items()}
    return make_posterior(
        strengths=rng.normal(size=(*shape, 2, 4)),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=rng.dirichlet(np.ones(2), size=shape),
        models=pd.Index(list("abcd")),
        concentration=3.0,
        evidence_power=0.7,
        probe_power=4.0,
        rule="per_comparison",
        estimator="by hand",
        settings={},
        chain_weights=np.array([0.25, 0.0, 0.75]),
        groups={"posterior": xr.Dataset(variables)},
    )


def test_draws_of_a_posterior_are_kept_with_their_chains_weights() -> None:
    tree = sampled()
    rng = np.random.default_rng(0)
    joining = start_onboarding(tree, "new", embeddings=rng.normal(size=(20, 4)), draws=36, rng=0)
    assert joining.strengths.shape == (12, 3, 2)
    joining = joining.update(joining.propose(4).assign(winner="model_a"))
    assert np.unique(joining.asked.weight).tolist() == [0.7]  # the evidence power of the fit
    found = joining.posterior()
    assert found["constant_data"]["chain_weights"].values == pytest.approx([0.25, 0.75])
    np.testing.assert_array_equal(
        found["posterior"]["strengths"].isel(llm=slice(4), draw=slice(0, None, 3)),
        tree["posterior"]["strengths"].isel(chain=[0, 2]),
    )
    source = read_old_fit(tree).atoms
    expected = np.zeros(5)
    for a, share in enumerate(np.repeat([0.25 / 18, 0.75 / 18], 6)):
        reference = joining._ground.reference[a].mean(axis=0)
        for theta in joining.strengths[a]:
            pool = mean_win_probability(np.column_stack([source.strengths[a], theta]))
            win = reference @ pool
            expected[(win[:4] > win[4]).sum()] += share
    np.testing.assert_allclose(joining.rank()["rank_probability"], expected, atol=1e-9)


def test_the_fit_s_own_prior_has_the_spread_it_learnt(fit: ECC) -> None:
    tree = sampled()
    rng = np.random.default_rng(0)
    joining = start_onboarding(tree, "new", embeddings=rng.normal(size=(3, 4)), prior="fit", rng=0)
    tau = tree["posterior"]["tau"].isel(chain=[0, 2]).values.ravel()
    np.testing.assert_allclose(joining._prior.covariance, np.eye(2) * (tau**2)[:, None, None] + 1.0)
    of_em = begin(fit, prior="fit")
    np.testing.assert_allclose(of_em._prior.covariance[0], np.eye(3) * 10 + 1.0)
    with pytest.raises(InputError, match="prior='pool'"):
        start_onboarding(sampled(tau=False), "new", embeddings=rng.normal(size=(3, 4)), prior="fit")


def test_a_reference_is_what_the_overall_rank_is_meant_over(data: Any, fit: ECC) -> None:
    of_first = data.embeddings[data.labels == 0]
    rows = own_rows(data.comparisons, "llm_5")
    everywhere = begin(fit).update(rows)
    there = begin(fit, reference=of_first).update(rows)
    assert abs(everywhere.rank()["win_probability"] - there.rank()["win_probability"]) > 0.02


def test_winners_may_be_called_by_name(fit: ECC) -> None:
    table = begin(fit).propose(4)
    turned = table.rename(columns={"model_a": "model_b", "model_b": "model_a"})
    for asked, words in (
        (table, ["model_a", "model_b", "tie", "model_b"]),
        (turned, ["model_b", "model_a", "tie", "model_a"]),
    ):
        names = ["llm_5", table["model_b"][1], "tie", table["model_b"][3]]
        by_word, by_name = (begin(fit).update(asked.assign(winner=w)) for w in (words, names))
        assert by_name.asked.outcome.tolist() == [1.0, 0.0, 0.5, 0.0]
        assert np.array_equal(by_name.strengths, by_word.strengths)


def test_a_winner_is_one_of_the_two() -> None:
    tree = sampled()
    joining = start_onboarding(tree, "model_b", embeddings=np.eye(4), rng=0)
    table = joining.propose(2)
    opponent = table["model_b"][0]
    other = next(name for name in joining.models if name != opponent)
    for winner in (other, "newcomer", None, 1.0):
        with pytest.raises(InputError, match="winner, row 0: found .*'model_b' and '" + opponent):
            joining.update(table.assign(winner=pd.Series([winner] * 2, dtype=object)))
    with pytest.raises(InputError, match=r"winner, row 1: 'model_b' is a word .* in model_a"):
        joining.update(table.assign(winner=["tie", "model_b"]))


# -------------------------------------------------------------------- refusals


def test_refusals_say_what_is_wrong(fit: ECC) -> None:
    joining = begin(fit)
    table = joining.propose(2)
    for change, message in (
        ({"model_a": "llm_0", "model_b": "llm_1"}, "needs the newcomer 'llm_5'"),
        ({"query_id": "nowhere"}, "nowhere"),
        ({"model_b": "gpt"}, "gpt"),
    ):
        with pytest.raises(InputError, match=message):
            joining.update(table.assign(winner="tie").assign(**change))
    with pytest.raises(InputError, match="does not have; it has llm_0"):
        start_onboarding(fit.posterior_, "llm_0")
    with pytest.raises(InputError, match="give embeddings"):
        start_onboarding(fit.posterior_, "llm_5", queries=["q1"])
    with pytest.raises(InputError, match="ties='half'"):
        start_onboarding(sampled(tie_margin=0.5), "new", embeddings=np.ones((1, 4)))
    with pytest.raises(InputError, match=r"level=0\.4"):
        joining.decide(3, level=0.4)
    with pytest.raises(InputError, match="allowed has shape"):
        joining.propose(allowed=np.ones((2, 2), dtype=bool))
    for chances in (np.zeros(400), np.full(400, 1.5), np.ones(3)):
        with pytest.raises(InputError, match="decided has shape"):
            joining.propose(decided=chances)
    for wrong in ({"rule": "best"}, {"goal": "all"}, {"n": 0}, {"per_query": 0}, {"consider": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            joining.propose(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ties='drop'"):
        joining.update(table.assign(winner="tie"), ties="drop")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not list"):
        joining.update([1])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="prior='own'"):
        begin(fit, prior="own")
    with pytest.raises(InputError, match="draws=1"):
        begin(fit, draws=1)


# -------------------------------------------------------------------- less usual fits


def test_a_fit_without_embeddings_takes_newcomers_too(data: Any) -> None:
    old = data.comparisons.drop_models(["llm_5"])
    fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(old)
    joining = start_onboarding(fit.posterior_, "llm_5", draws=50, rng=0)
    joining = joining.update(own_rows(data.comparisons, "llm_5"))
    low, high = (int(joining.rank()[name]) for name in ("rank_lower", "rank_upper"))
    share = np.bincount(data.labels, minlength=3) / len(data.labels)
    truth = share @ mean_win_probability(data.strengths)
    assert low <= 1 + int((truth > truth[5]).sum()) <= high
    assert joining.posterior()["posterior"].sizes["llm"] == 6


def test_a_single_chain_will_do() -> None:
    tree = sampled().isel(chain=[2])
    embeddings = np.random.default_rng(0).normal(size=(5, 4))
    whole = start_onboarding(tree, "new", embeddings=embeddings, prior="fit", rng=0)
    tau = tree["posterior"]["tau"].values.ravel()
    np.testing.assert_allclose(whole._prior.covariance[:, 0, 0], tau**2 + 1.0)
    assert whole.posterior()["posterior"].sizes["chain"] == 1


def test_one_newcomer_may_follow_another(data: Any) -> None:
    old = data.comparisons.drop_models(["llm_4", "llm_5"])
    fit = ECC(n_clusters=3, **SETTINGS).fit(old, data.embeddings)
    first = start_onboarding(fit.posterior_, "llm_5", draws=60, rng=0)
    first = first.update(own_rows(data.comparisons.drop_models(["llm_4"]), "llm_5"))
    second = start_onboarding(first.posterior(), "llm_4", draws=120, rng=0)
    assert second.models.tolist() == ["llm_0", "llm_1", "llm_2", "llm_3", "llm_5"]
    second = second.update(second.propose(10).assign(winner="model_a"))
    assert second.posterior()["posterior"].sizes["llm"] == 6
    assert float(second.rank()["win_probability"]) > 0.5
