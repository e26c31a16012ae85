"""Policies against loops over the atoms, and what no policy may do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc import (
    ECC,
    Comparisons,
    InputError,
    QualityCalibration,
    read_draws,
    route,
    simulate,
    summarize_ranking,
)
from bayes_ecc import draws as draws_module
from bayes_ecc.inference import iterate_responsibilities, mean_win_probability, read_signals
from bayes_ecc.posterior import atoms, make_posterior
from bayes_ecc.routing import pick_within_budget
from bayes_ecc.utilities import POLICIES, Utilities

MODELS = ["a", "b", "c", "d"]
QUALITY = QualityCalibration(np.array([0.05, 0.1, 0.3, 0.75, 0.95]), n_queries=10)
COSTS = np.array([4.0, 1.0, 2.0, 0.5])
EMBEDDINGS = np.random.default_rng(1).normal(size=(12, 3))


def make(
    n_chains: int = 2, n_draws: int = 5, *, chain_weights: Any = None, rng: int = 0
) -> xr.DataTree:
    generator = np.random.default_rng(rng)
    shape = (n_chains, n_draws, 3)
    centroids = generator.normal(size=(*shape, 3))
    return make_posterior(
        strengths=generator.normal(size=(*shape, len(MODELS))),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=generator.dirichlet(np.ones(3), size=shape[:2]),
        models=pd.Index(MODELS),
        concentration=2.0,
        evidence_power=1.0,
        probe_power=3.0,
        rule="per_comparison",
        estimator="made",
        settings={},
        chain_weights=chain_weights,
    )


POSTERIOR = make(chain_weights=np.array([0.7, 0.3]))
PROBES = Comparisons.from_arrays(
    [0, 3, 3], [0, 1, 2], [1, 2, 3], [1.0, 0.0, 0.5], queries=range(12), models=MODELS
)


def utilities(
    posterior: xr.DataTree, *, costs: Any = COSTS, price: float = 0.0, probes: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the atoms, and utilities (atom, query, model), one atom after the other."""
    source = atoms(posterior)
    signals = read_signals(source, embeddings=EMBEDDINGS, probes=probes)
    found, shares = [], []
    for s, share, r in iterate_responsibilities(source, signals):
        win = r @ mean_win_probability(source.strengths[s])
        found.append(np.interp(win, np.linspace(0, 1, 5), QUALITY.values) - price * costs)
        shares.append(share)
    return np.array(shares), np.array(found)


# -------------------------------------------------------------------- brute force


@pytest.mark.parametrize("price", [0.0, 0.1])
@pytest.mark.parametrize("probes", [None, PROBES])
def test_policies_equal_loops_over_atoms(price: float, probes: Any) -> None:
    share, u = utilities(POSTERIOR, price=price, probes=probes)
    kwargs: dict[str, Any] = {
        "embeddings": EMBEDDINGS,
        "probes": probes,
        "quality": QUALITY,
        "costs": COSTS,
        "price": price,
    }
    mean = np.einsum("s,sqm->qm", share, u)
    p_best = np.zeros(mean.shape)
    regret = np.zeros(mean.shape)
    for weight, row in zip(share, u, strict=True):
        for q in range(len(row)):
            p_best[q, np.argmax(row[q])] += weight
            regret[q] += weight * (row[q].max() - row[q])
    for policy, value in (("mean", mean), ("p_best", p_best), ("regret", -regret)):
        result = route(POSTERIOR, policy=policy, **kwargs)
        assert np.allclose(result["value"], value, atol=1e-5)
        assert np.allclose(result["p_best"], p_best, atol=1e-5)
        chosen = result["choice"].values
        top = np.take_along_axis(value, chosen[:, None], 1)[:, 0]
        assert np.allclose(top, value.max(axis=1), atol=1e-5)
        rows = np.arange(len(chosen))
        assert np.allclose(result["expected_regret"], regret[rows, chosen], atol=1e-5)
        assert np.allclose(result["cost"], COSTS[chosen])
        expected = (mean + price * COSTS)[rows, chosen]
        assert np.allclose(result["expected_quality"], expected, atol=1e-5)


def test_bounds_are_quantiles_of_the_draws() -> None:
    posterior = make(chain_weights=np.ones(2))
    _, u = utilities(posterior)
    for policy, q in (("upper", 0.85), ("lower", 0.15)):
        result = route(
            posterior, embeddings=EMBEDDINGS, quality=QUALITY, policy=policy, quantile=0.85
        )
        assert np.allclose(result["value"], np.quantile(u, q, axis=0), atol=1e-5)


def test_bounds_follow_the_weights_of_the_chains() -> None:
    alone = POSTERIOR.isel(chain=[0], missing_dims="ignore")
    heavy = make(chain_weights=np.array([1.0, 0.0]))
    first = route(alone, embeddings=EMBEDDINGS, policy="upper")
    second = route(heavy, embeddings=EMBEDDINGS, policy="upper")
    assert np.allclose(first["value"], second["value"], atol=1e-6)


def test_thompson_takes_models_as_often_as_they_are_best() -> None:
    share, u = utilities(POSTERIOR)
    p_best = np.zeros(u.shape[1:])
    for weight, row in zip(share, u, strict=True):
        p_best[np.arange(12), row.argmax(axis=1)] += weight
    n = 3000
    taken = np.zeros(p_best.shape)
    many = np.repeat(EMBEDDINGS, n, axis=0)
    result = route(POSTERIOR, embeddings=many, quality=QUALITY, policy="thompson", rng=0)
    np.add.at(taken, (np.repeat(np.arange(12), n), result["choice"].values), 1 / n)
    assert np.abs(taken - p_best).max() < 5 * np.sqrt(0.25 / n)


def test_thompson_is_reproducible() -> None:
    first, second, third = (
        route(POSTERIOR, embeddings=EMBEDDINGS, policy="thompson", rng=rng)["choice"].values
        for rng in (1, 1, 2)
    )
    assert (first == second).all()
    assert (first != third).any()


def test_p_best_is_that_of_the_ranking() -> None:
    ranking = summarize_ranking(POSTERIOR, embeddings=EMBEDDINGS)
    result = route(POSTERIOR, embeddings=EMBEDDINGS, policy="p_best")
    assert np.allclose(result["p_best"], ranking["p_best"], atol=1e-9)
    # a rising map changes no ranking
    mapped = route(POSTERIOR, embeddings=EMBEDDINGS, policy="p_best", quality=QUALITY)
    assert np.allclose(mapped["p_best"], ranking["p_best"], atol=1e-9)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    kwargs: dict[str, Any] = {"embeddings": EMBEDDINGS, "probes": PROBES, "quality": QUALITY}
    whole = {p: route(POSTERIOR, policy=p, rng=0, **kwargs) for p in POLICIES}
    monkeypatch.setattr(draws_module, "_PART", 6)
    monkeypatch.setattr(draws_module, "_HELD", 400)
    monkeypatch.setattr("bayes_ecc.routing.utility_width", lambda *_: 5)
    for policy, expected in whole.items():
        again = route(POSTERIOR, policy=policy, rng=0, **kwargs)
        assert np.allclose(again["value"], expected["value"], atol=1e-6)


# -------------------------------------------------------------------- one atom


def test_with_one_atom_all_policies_agree() -> None:
    data = simulate(n_queries=200, n_models=6, rng=0)
    fit = ECC(n_clusters=4, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    chosen = {
        policy: route(
            fit.posterior_,
            embeddings=data.embeddings,
            policy=policy,
            costs=np.arange(6.0),
            price=0.02,
            rng=0,
        )["choice"].values
        for policy in POLICIES
    }
    assert len(set(chosen["mean"])) > 1
    for values in chosen.values():
        assert (values == chosen["mean"]).all()


# -------------------------------------------------------------------- ties


def test_ties_go_to_the_higher_mean_then_to_the_first() -> None:
    strengths = np.zeros((1, 2, 1, 4))
    strengths[0, 0, 0] = [2.0, 2.0, 0.0, -1.0]
    strengths[0, 1, 0] = [0.0, 1.0, 2.0, -1.0]
    posterior = make_posterior(
        strengths=strengths,
        centroids=np.ones((1, 2, 1, 1)),
        weights=np.ones((1, 2, 1)),
        models=pd.Index(MODELS),
        concentration=1.0,
        evidence_power=1.0,
        probe_power=1.0,
        rule="per_comparison",
        estimator="made",
        settings={},
    )
    result = route(posterior, embeddings=np.ones((3, 1)), policy="p_best")
    assert np.allclose(result["p_best"].values[0], [0.25, 0.25, 0.5, 0.0])
    assert result["model"].values.tolist() == ["c"] * 3
    pair = route(posterior, embeddings=np.ones((3, 1)), policy="p_best", available=["a", "b"])
    assert np.allclose(pair["p_best"].values[0], [0.25, 0.75, 0.0, 0.0])
    both = posterior.isel(draw=[0], missing_dims="ignore")
    for policy in POLICIES:
        tied = route(both, embeddings=np.ones((3, 1)), policy=policy, rng=0)
        assert tied["model"].values.tolist() == ["a"] * 3


# -------------------------------------------------------------------- floor and budget


def test_floor_takes_the_cheapest_model_that_reaches_it() -> None:
    share, u = utilities(POSTERIOR)
    mean = np.einsum("s,sqm->qm", share, u)
    floor = float(np.quantile(mean.max(axis=1), 0.4))
    result = route(POSTERIOR, embeddings=EMBEDDINGS, quality=QUALITY, costs=COSTS, floor=floor)
    fallbacks = 0
    for q, chosen in enumerate(result["choice"].values):
        good = [m for m in range(4) if mean[q, m] >= floor]
        fallbacks += not good
        assert chosen == (min(good, key=lambda m: COSTS[m]) if good else mean[q].argmax())
    assert 0 < fallbacks < 12


def best_within(value: np.ndarray, cost: np.ndarray, budget: float) -> float:
    rows = range(len(value))
    return max(
        sum(value[q, m] for q, m in zip(rows, chosen, strict=True))
        for chosen in itertools.product(range(value.shape[1]), repeat=len(value))
        if sum(cost[q, m] for q, m in zip(rows, chosen, strict=True)) <= budget
    )


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1.0))
def test_budget_is_kept_and_nearly_optimal(seed: int, place: float) -> None:
    rng = np.random.default_rng(seed)
    value, cost = rng.random((4, 3)), rng.integers(0, 5, size=(4, 3)).astype(float)
    least, most = cost.min(axis=1).sum(), cost.max(axis=1).sum()
    budget = least + place * (most - least)
    table = Utilities(value, value, value, value, value)
    choice = pick_within_budget(table, cost, budget)
    rows = np.arange(4)
    assert cost[rows, choice].sum() <= budget + 1e-9
    largest_move = (value.max(axis=1) - value.min(axis=1)).max()
    assert value[rows, choice].sum() >= best_within(value, cost, budget) - largest_move
    unlimited = pick_within_budget(table, cost, most)
    assert (unlimited == value.argmax(axis=1)).all()


def test_budget_equals_brute_force_where_moves_cost_the_same() -> None:
    # with two prices a step apart the greedy way is exact
    rng = np.random.default_rng(0)
    for _ in range(20):
        value = rng.random((5, 2))
        cost = np.tile([1.0, 2.0], (5, 1))
        table = Utilities(value, value, value, value, value)
        for budget in (5.0, 7.0, 8.0):
            choice = pick_within_budget(table, cost, budget)
            total = value[np.arange(5), choice].sum()
            assert total == pytest.approx(best_within(value, cost, budget))


@given(
    st.integers(0, 2**32 - 1), st.sampled_from(POLICIES), st.sampled_from(["", "floor", "budget"])
)
def test_no_policy_breaks_a_budget_or_takes_an_unavailable_model(
    seed: int, policy: Any, mode: str
) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((12, 4)) < 0.5
    mask[np.arange(12), rng.integers(4, size=12)] = True
    costs = rng.random((12, 4))
    least = np.where(mask, costs, np.inf).min(axis=1).sum()
    extra: dict[str, Any] = {}
    if mode == "floor":
        extra["floor"] = 0.5
    if mode == "budget":
        extra["budget"] = least * rng.uniform(1.0, 2.0)
    result = route(
        POSTERIOR,
        embeddings=EMBEDDINGS,
        policy=policy,
        costs=costs,
        available=mask,
        price=rng.uniform(0, 0.5),
        rng=seed,
        **extra,
    )
    chosen = result["choice"].values
    assert mask[np.arange(12), chosen].all()
    assert np.allclose(result["cost"], costs[np.arange(12), chosen])
    assert np.allclose(result["p_best"].values[~mask], 0.0)
    assert np.allclose(result["p_best"].sum("llm"), 1.0)
    if mode == "budget":
        assert float(result["cost"].sum()) <= extra["budget"] * (1 + 1e-9)


def test_a_list_of_names_is_a_mask() -> None:
    names = route(POSTERIOR, embeddings=EMBEDDINGS, available=["b", "d"])
    mask = route(
        POSTERIOR, embeddings=EMBEDDINGS, available=np.tile([False, True, False, True], (12, 1))
    )
    assert set(names["model"].values) <= {"b", "d"}
    assert (names["choice"].values == mask["choice"].values).all()


# -------------------------------------------------------------------- abstention


def test_abstention_goes_by_p_best_and_regret() -> None:
    posterior = make(n_draws=9, rng=3)
    plain = route(posterior, embeddings=EMBEDDINGS, quality=QUALITY)
    p, regret = plain["chosen_p_best"].values, plain["expected_regret"].values
    level = float(np.unique(p.round(9))[-2:].mean())
    most = float(np.median(regret))
    cautious = route(posterior, embeddings=EMBEDDINGS, quality=QUALITY, min_p_best=level)
    nobody = cautious["abstained"].values
    assert (nobody == (p < level)).all()
    assert 0 < nobody.sum() < 12
    assert (cautious["choice"].values[nobody] == -1).all()
    assert (cautious["model"].values[nobody] == "").all()
    assert (cautious["cost"].values[nobody] == 0).all()
    assert (cautious["choice"].values[~nobody] == plain["choice"].values[~nobody]).all()
    frugal = route(posterior, embeddings=EMBEDDINGS, quality=QUALITY, max_regret=most, default="d")
    assert (frugal["abstained"].values == (regret > most + 1e-9)).all()
    assert set(frugal["model"].values[frugal["abstained"].values]) == {"d"}


def test_the_default_model_is_paid_from_the_budget() -> None:
    costs = np.array([1.0, 1.0, 1.0, 3.0])
    kwargs: dict[str, Any] = {"embeddings": EMBEDDINGS, "costs": costs, "min_p_best": 0.99}
    doubtful = int(route(POSTERIOR, **kwargs)["abstained"].sum())
    assert doubtful > 0
    needed = 3.0 * doubtful + (12 - doubtful)
    fits = route(POSTERIOR, default="d", budget=needed, **kwargs)
    assert float(fits["cost"].sum()) == pytest.approx(needed)
    with pytest.raises(InputError, match="already cost"):
        route(POSTERIOR, default="d", budget=needed - 0.5, **kwargs)


# -------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"policy": "best"}, "policy='best': allowed are 'mean'"),
        ({"quantile": 0.2}, "quantile=0.2"),
        ({"price": -1.0}, "price=-1.0"),
        ({"floor": 0.5, "budget": 3.0}, "floor and budget"),
        ({"available": ["a", "e"]}, "available names 'e'"),
        ({"available": "a"}, "give a list"),
        ({"available": np.zeros((12, 4), dtype=bool)}, "leaves query 0 without"),
        ({"available": np.ones((3, 4), dtype=bool)}, r"shape \(3, 4\)"),
        ({"costs": [1.0, 2.0]}, "costs has shape"),
        ({"costs": [1.0, np.nan, 1.0, 1.0]}, "query 0, model 'b': found"),
        ({"costs": {"a": 1.0, "b": 2.0}}, "costs has no entry for model 'c'"),
        ({"costs": dict.fromkeys("abcd", "dear")}, "costs must hold numbers"),
        ({"costs": pd.Series([1.0] * 5, index=list("aabcd"))}, "costs names a model more than"),
        ({"costs": pd.DataFrame([[1.0] * 4], columns=list("abcd"))}, r"costs=table.iloc\[0\]"),
        ({"costs": pd.DataFrame([[1.0] * 3] * 12, columns=list("abc"))}, "costs has no column 'd'"),
        (
            {"costs": pd.DataFrame([[1.0] * 4] * 12, list("qwertyuiopas"), list("abcd"))},
            r"costs has 12 row\(s\) that go by query .*: queries=\[\.\.\.\]",
        ),
        ({"default": "z"}, "default names 'z'"),
        ({"available": ["a"], "default": "b"}, "not available"),
        ({"budget": 1.0}, "already cost 12"),
    ],
)
def test_bad_input_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        route(POSTERIOR, embeddings=EMBEDDINGS, **changed)


def test_costs_are_read_by_name() -> None:
    frame = pd.DataFrame([[4.0, 3.0, 2.0, 1.0]] * 12, columns=["d", "c", "b", "a"])
    frame.insert(0, "query_id", range(12))
    by_frame = route(POSTERIOR, embeddings=EMBEDDINGS, costs=frame)
    by_series = route(
        POSTERIOR, embeddings=EMBEDDINGS, costs=pd.Series({"d": 4.0, "c": 3.0, "b": 2.0, "a": 1.0})
    )
    by_array = route(POSTERIOR, embeddings=EMBEDDINGS, costs=[1.0, 2.0, 3.0, 4.0])
    given = {"d": 4.0, "c": 3.0, "b": 2.0, "a": 1.0}
    by_dict = route(POSTERIOR, embeddings=EMBEDDINGS, costs=given)
    assert (by_dict["cost"].values == by_array["cost"].values).all()
    assert len(set(by_dict["cost"].values)) > 1
    assert (by_frame["cost"].values == by_array["cost"].values).all()
    assert (by_series["cost"].values == by_array["cost"].values).all()


def test_draws_are_read_once_for_many_queries() -> None:
    read = read_draws(POSTERIOR)
    whole = route(POSTERIOR, embeddings=EMBEDDINGS)["choice"].values
    single = [route(read, embeddings=row[None])["choice"].item() for row in EMBEDDINGS]
    assert single == whole.tolist()
