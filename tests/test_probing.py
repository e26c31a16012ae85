"""Values of probes against enumeration through the library's own predictions, and loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from bayes_ecc import (
    ECC,
    Comparisons,
    InputError,
    QualityCalibration,
    fit_score_model,
    next_probe,
    predict_win_probability,
    probe_values,
    route,
    route_observed,
    score_probe_values,
    simulate,
)
from bayes_ecc.inference import read_signals
from bayes_ecc.posterior import atoms, make_posterior
from bayes_ecc.probing import mutual_information, read_calls
from bayes_ecc.score_probing import best_probes

MODELS = ["a", "b", "c", "d"]
PAIRS = list(itertools.combinations(range(4), 2))
EMBEDDINGS = np.random.default_rng(1).normal(size=(5, 3))
QUALITY = QualityCalibration(np.array([0.05, 0.1, 0.3, 0.75, 0.95]), n_queries=10)
COSTS = np.array([4.0, 1.0, 2.0, 0.5])


def make(rule: Any = "per_comparison", *, n_draws: int = 2, power: float = 3.0) -> xr.DataTree:
    generator = np.random.default_rng(0)
    shape = (2, n_draws, 3)
    centroids = generator.normal(size=(*shape, 3))
    return make_posterior(
        strengths=1.5 * generator.normal(size=(*shape, len(MODELS))),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=generator.dirichlet(np.ones(3), size=shape[:2]),
        models=pd.Index(MODELS),
        concentration=2.0,
        evidence_power=1.0,
        probe_power=power,
        rule=rule,
        estimator="made",
        settings={},
        chain_weights=np.array([0.7, 0.3]),
    )


def comparisons(rows: list[tuple[int, int, int, float]]) -> Comparisons:
    columns = np.array(rows, dtype=float).reshape(-1, 4).T
    codes = columns[:3].astype(int)
    return Comparisons.from_arrays(*codes, columns[3], queries=range(5), models=MODELS)


EARLIER = [(0, 0, 1, 1.0), (2, 2, 3, 0.0), (2, 0, 3, 1.0)]


# -------------------------------------------------------------------- outcomes alone


@pytest.mark.parametrize("rule", ["per_comparison", "per_query_mean"])
@pytest.mark.parametrize("earlier", [[], EARLIER])
@pytest.mark.parametrize("price", [0.0, 0.03])
def test_values_equal_enumeration_by_prediction(
    rule: Any, earlier: list[Any], price: float
) -> None:
    """Each outcome added as a probe, predicted from as any other, and routed by hand."""
    posterior = make(rule)
    ties = np.full((4, 4), 0.3)
    ties[0, 1] = ties[1, 0] = 0.6
    known = comparisons(earlier) if earlier else None
    called = np.zeros((5, 4), dtype=bool)
    for q, i, j, _ in earlier:
        called[q, [i, j]] = True
    found = probe_values(
        posterior,
        embeddings=EMBEDDINGS,
        probes=known,
        quality=QUALITY,
        tie_rate=ties,
        costs=COSTS,
        price=price,
    )

    def quality_after(rows: list[Any]) -> np.ndarray:
        probes = comparisons(earlier + rows) if earlier + rows else None
        return route(posterior, embeddings=EMBEDDINGS, probes=probes, quality=QUALITY)[
            "quality"
        ].values

    def best(quality: np.ndarray, q: int, paid: np.ndarray) -> float:
        return float((quality[q] - price * np.where(paid, 0.0, COSTS)).max())

    now = quality_after([])
    for column, (i, j) in enumerate(PAIRS):
        rows = comparisons([(q, i, j, 0.5) for q in range(5)])
        chance = predict_win_probability(posterior, rows, embeddings=EMBEDDINGS, probes=known)
        won = quality_after([(q, i, j, 1.0) for q in range(5)])
        lost = quality_after([(q, i, j, 0.0) for q in range(5)])
        for q in range(5):
            paid = called[q].copy()
            before = best(now, q, paid)
            calls = price * COSTS[[i, j]][~paid[[i, j]]].sum()
            paid[[i, j]] = True
            decided = chance[q] * best(won, q, paid) + (1 - chance[q]) * best(lost, q, paid)
            expected = (1 - ties[i, j]) * decided + ties[i, j] * best(now, q, paid)
            again = any((q, i, j) == row[:3] for row in earlier)
            value = -np.inf if again else expected - calls - before
            assert found["net"].values[q, column] == pytest.approx(value, abs=1e-6)


def test_gain_is_the_value_of_a_free_probe() -> None:
    kwargs: dict[str, Any] = {"embeddings": EMBEDDINGS, "quality": QUALITY, "tie_rate": 0.2}
    dear = probe_values(make(), costs=COSTS, price=0.1, **kwargs)
    free = probe_values(make(), **kwargs)
    assert np.allclose(dear["gain"], free["net"])
    assert np.allclose(free["gain"], free["net"])
    assert (dear["net"].values < dear["gain"].values).all()


def test_at_power_one_a_probe_of_one_draw_never_harms() -> None:
    """Without tempering, qualities after a probe average to those before: value is convex."""
    posterior = make(power=1.0, n_draws=1).isel(chain=[0], missing_dims="ignore")
    found = probe_values(posterior, embeddings=EMBEDDINGS)
    assert (found["gain"].values >= -1e-12).all()
    assert found["gain"].values.max() > 1e-3


def test_certain_ties_are_worth_nothing() -> None:
    found = probe_values(make(), embeddings=EMBEDDINGS, tie_rate=1.0, information=["best"])
    assert np.allclose(found["gain"], 0.0)
    assert np.allclose(found["information_best"], 0.0)


def test_one_cluster_and_draw_leave_nothing_to_learn() -> None:
    posterior = make(n_draws=1).isel(chain=[0], cluster=[1], missing_dims="ignore")
    found = probe_values(posterior, embeddings=EMBEDDINGS, information=["best", "ranking"])
    for name in ("gain", "information_best", "information_ranking"):
        assert np.allclose(found[name], 0.0, atol=1e-9)


# -------------------------------------------------------------------- information


def test_information_equals_enumeration() -> None:
    posterior = make()
    found = probe_values(
        posterior, embeddings=EMBEDDINGS, tie_rate=0.25, information=["best", "ranking"]
    )
    source = atoms(posterior)
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    for q, x in enumerate(unit):
        weights, strengths = [], []
        for s in range(len(source)):
            r = np.exp(source.log_weights[s] + source.concentration * source.centroids[s] @ x)
            weights += list(source.share[s] * r / r.sum())
            strengths += list(source.strengths[s])
        for column, (i, j) in enumerate(PAIRS):
            for name, key in (
                ("best", lambda theta: int(np.argmax(theta))),
                ("ranking", lambda theta: tuple(np.argsort(-theta))),
            ):
                joint: dict[Any, list[float]] = {}
                for w, theta in zip(weights, strengths, strict=True):
                    p = expit(theta[j] - theta[i])
                    cell = joint.setdefault(key(theta), [0.0, 0.0])
                    cell[0] += w * (1 - p)
                    cell[1] += w * p
                table = np.array(list(joint.values()))
                both = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
                expected = 0.75 * (table * np.log(table / both)).sum()
                value = found[f"information_{name}"].values[q, column]
                assert value == pytest.approx(expected, abs=1e-9)
    best, ranking = found["information_best"].values, found["information_ranking"].values
    assert (ranking >= best - 1e-12).all()  # the ranking holds the best
    assert (ranking > best + 1e-6).any()


def test_information_has_its_bounds() -> None:
    groups = np.array([0.5, 0.5])
    assert mutual_information(np.array([0.5, 0.0]), groups) == pytest.approx(np.log(2))
    assert mutual_information(np.array([0.2, 0.2]), groups) == pytest.approx(0.0)
    assert mutual_information(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0.0


# -------------------------------------------------------------------- the next probe


def table(net: Any, gain: Any) -> xr.Dataset:
    names = np.array(MODELS, dtype=object)
    first, second = np.array(PAIRS[:3]).T
    return xr.Dataset(
        {"net": (("query", "pair"), np.array(net)), "gain": (("query", "pair"), np.array(gain))},
        coords={
            "query": np.arange(len(net)),
            "first": ("pair", names[first]),
            "second": ("pair", names[second]),
            "first_code": ("pair", first),
            "second_code": ("pair", second),
        },
    )


def test_next_probe_takes_the_best_or_stops() -> None:
    net = [[0.1, 0.3, 0.2], [-0.1, -0.2, -0.3], [-np.inf, 0.1, 0.1], [-np.inf] * 3]
    gain = [[0.5, 0.3, 0.2], [0.0, 0.3, 0.1], [0.9, 0.2, 0.3], [0.9, 0.9, 0.9]]
    stopping = next_probe(table(net, gain))
    assert stopping["pair"].values.tolist() == [1, -1, 1, -1]
    assert stopping["first"].values.tolist() == ["a", "", "a", ""]
    assert stopping["second"].values.tolist() == ["c", "", "c", ""]
    assert stopping["second_code"].values.tolist() == [2, -1, 2, -1]
    assert stopping["value"].values[0] == 0.3
    forced = next_probe(table(net, gain), always=True)
    assert forced["pair"].values.tolist() == [1, 0, 1, -1]
    by_gain = next_probe(table(net, gain), by="gain", always=True)
    assert by_gain["pair"].values.tolist() == [0, 1, 2, -1]
    with pytest.raises(InputError, match="by='best'"):
        next_probe(table(net, gain), by="best")


def test_unavailable_models_are_not_probed() -> None:
    found = probe_values(make(), embeddings=EMBEDDINGS, available=["a", "c", "d"])
    possible = np.isfinite(found["net"].values)
    assert (possible == [1 not in pair for pair in PAIRS]).all()


# -------------------------------------------------------------------- scores


def score_model(n_levels: int = 3, chance: float = 0.5) -> Any:
    rng = np.random.default_rng(3)
    scores = (rng.random((60, 4)) < chance).astype(float)
    return fit_score_model(make(), scores, embeddings=rng.normal(size=(60, 3)), n_levels=n_levels)


def observed(rows: dict[tuple[int, int], float]) -> np.ndarray:
    seen = np.full((5, 4), np.nan)
    for cell, score in rows.items():
        seen[cell] = score
    return seen


@pytest.mark.parametrize("price", [0.0, 0.05])
@pytest.mark.parametrize("chance", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("seen", [{}, {(0, 0): 0.0, (0, 2): 0.4, (3, 1): 1.0}])
def test_score_values_equal_enumeration_by_prediction(
    price: float, chance: float, seen: dict[tuple[int, int], float]
) -> None:
    model = score_model(chance=chance)
    found = score_probe_values(
        model, embeddings=EMBEDDINGS, observed=observed(seen), costs=COSTS, price=price
    )
    before = model.predict(embeddings=EMBEDDINGS, observed=observed(seen)).values

    def best(expected: np.ndarray, q: int, called: list[int]) -> float:
        left = np.where(np.isin(np.arange(4), called), 0.0, price * COSTS)
        return float((expected[q] - left).max())

    for q in range(5):
        called = [m for p, m in seen if p == q]
        for column, (i, j) in enumerate(PAIRS):
            if i in called or j in called:
                assert found["net"].values[q, column] == -np.inf
                continue
            total = 0.0
            for a, b in itertools.product((0.0, 1.0), repeat=2):
                # P(a, b) = P(a) P(b | a), both read off predictions
                given_a = model.predict(
                    embeddings=EMBEDDINGS, observed=observed({**seen, (q, i): a})
                ).values
                p_a = before[q, i] if a else 1 - before[q, i]
                p_b = given_a[q, j] if b else 1 - given_a[q, j]
                after = model.predict(
                    embeddings=EMBEDDINGS, observed=observed({**seen, (q, i): a, (q, j): b})
                ).values
                total += p_a * p_b * best(after, q, [*called, i, j])
            expected = total - price * COSTS[[i, j]].sum() - best(before, q, called)
            assert found["net"].values[q, column] == pytest.approx(expected, abs=1e-5)


def test_seeing_scores_never_harms() -> None:
    found = score_probe_values(score_model(9), embeddings=EMBEDDINGS)
    assert (found["gain"].values >= -1e-6).all()
    # and is worth at least the better of the two in place of the best
    assert found["gain"].values.max() > 0.05


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.3))
def test_route_observed_takes_the_best_for_its_price(seed: int, price: float) -> None:
    rng = np.random.default_rng(seed)
    seen = np.where(rng.random((5, 4)) < 0.4, rng.integers(0, 3, size=(5, 4)) / 2, np.nan)
    mask = rng.random((5, 4)) < 0.6
    mask[np.arange(5), rng.integers(4, size=5)] = True
    routed = route_observed(
        MODEL, embeddings=EMBEDDINGS, observed=seen, costs=COSTS, price=price, available=mask
    )
    chosen = routed["choice"].values
    called = ~np.isnan(seen)
    expected = MODEL.predict(embeddings=EMBEDDINGS, observed=seen).values
    utility = np.where(mask, expected - price * np.where(called, 0.0, COSTS), -np.inf)
    row = np.arange(5)
    assert mask[row, chosen].all()
    assert np.allclose(utility[row, chosen], utility.max(axis=1), atol=2e-6)
    assert (routed["called"].values == called[row, chosen]).all()
    assert np.allclose(routed["cost"], np.where(called[row, chosen], 0.0, COSTS[chosen]))
    assert np.allclose(routed["expected_quality"], expected[row, chosen], atol=1e-6)


def test_a_sure_success_is_kept_and_nothing_more_is_probed() -> None:
    seen = observed({(q, 0): 1.0 for q in range(5)})
    routed = route_observed(MODEL, embeddings=EMBEDDINGS, observed=seen)
    assert routed["model"].values.tolist() == ["a"] * 5
    values = score_probe_values(MODEL, embeddings=EMBEDDINGS, observed=seen, price=0.01)
    assert (next_probe(values)["pair"].values == -1).all()


def test_one_pass_finds_the_best_probe_at_every_price() -> None:
    seen = observed({(0, 0): 0.0, (3, 1): 1.0})
    signals = read_signals(MODEL.draws.atoms, embeddings=EMBEDDINGS, probes=None)
    unit = read_calls(
        COSTS, 1.0, ["a", "b", "d"], signals.queries, pd.Index(MODELS), ~np.isnan(seen)
    )
    prices = (0.0, 0.01, 0.1)
    for price, (pair, net) in zip(
        prices, best_probes(MODEL, signals, unit, prices, seen), strict=True
    ):
        values = score_probe_values(
            MODEL,
            embeddings=EMBEDDINGS,
            observed=seen,
            costs=COSTS,
            price=price,
            available=["a", "b", "d"],
        )
        best = next_probe(values, always=True)["pair"].values
        possible = best >= 0
        assert (pair[possible] == best[possible]).all()
        assert np.allclose(net, values["net"].max("pair"))


def test_a_high_price_stops_and_a_low_one_does_not() -> None:
    pairs = []
    for price in (0.0, 0.02, 0.5):
        values = score_probe_values(MODEL, embeddings=EMBEDDINGS, price=price)
        pairs.append((next_probe(values)["pair"].values >= 0).sum())
    assert pairs[0] == 5
    assert pairs[0] >= pairs[1] >= pairs[2]
    assert pairs[2] == 0


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = observed({(0, 0): 0.0, (3, 1): 1.0})
    probes = comparisons(EARLIER)
    kwargs: dict[str, Any] = {"embeddings": EMBEDDINGS, "price": 0.01}
    names = ["best", "ranking"]
    scores = score_probe_values(MODEL, observed=seen, **kwargs)
    outcomes = probe_values(make(), probes=probes, information=names, **kwargs)
    monkeypatch.setattr("bayes_ecc.probing._CELLS", 250)
    monkeypatch.setattr("bayes_ecc.score_probing._CELLS", 250)
    again = score_probe_values(MODEL, observed=seen, **kwargs)
    assert np.allclose(again["net"], scores["net"], atol=1e-6)
    again = probe_values(make(), probes=probes, information=names, **kwargs)
    for name in ("net", "gain", "information_best", "information_ranking"):
        assert np.allclose(again[name], outcomes[name], atol=1e-9)


MODEL = score_model()


# -------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tie_rate": 1.2}, "outside"),
        ({"tie_rate": np.zeros((2, 2))}, "tie_rate has shape"),
        ({"information": ["all"]}, "information='all'"),
        ({"price": -1.0}, "price=-1.0"),
        ({"available": ["x"]}, "available names 'x'"),
    ],
)
def test_bad_input_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        probe_values(make(), embeddings=EMBEDDINGS, **changed)


def test_a_posterior_with_ties_of_its_own_is_refused() -> None:
    data = simulate(n_queries=80, n_models=5, tie_margin=0.6, rng=0)
    fit = ECC(2, ties="rao_kupper", temperature=0.3, max_iter=500, rng=0)
    fit.fit(data.comparisons, data.embeddings)
    with pytest.raises(InputError, match="ties='half'"):
        probe_values(fit.posterior_, embeddings=data.embeddings[:2])
