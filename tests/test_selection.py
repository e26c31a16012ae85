from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import ConvergenceWarning, InputError, NotFittedError
from bayes_ecc.metrics import bt_loss
from bayes_ecc.selection import SettingsSearch, search
from bayes_ecc.validation import (
    evaluate_on_splits,
    inner_split,
    inner_splits,
    validation_loss,
)

N_QUERIES, PER_QUERY = 60, 4


def make():
    """Two models; the second wins three times in four on every query."""
    query = np.repeat(np.arange(N_QUERIES), PER_QUERY)
    zeros = np.zeros(len(query), dtype=int)
    return Comparisons.from_arrays(
        query,
        zeros,
        zeros + 1,
        np.tile([1.0, 1.0, 0.0, 1.0], N_QUERIES),
        weight=np.tile([1.0, 1.5, 0.5, 1.0], N_QUERIES),
        queries=[f"q{i}" for i in range(N_QUERIES)],
        models=["a", "b"],
    )


DATA = make()
EMBEDDINGS = np.column_stack([np.arange(N_QUERIES), np.ones(N_QUERIES)])


class Constant(BaseEstimator):
    """Predicts `rate` blended with the training rate by `trust`; keeps what it was shown."""

    seen: list = []  # noqa: RUF012 - shared by clones on purpose

    def __init__(self, rate=0.5, trust=0.0, rng=None):
        self.rate = rate
        self.trust = trust
        self.rng = rng

    def fit(self, comparisons, embeddings):
        if self.rate == "impossible":
            raise InputError("rate='impossible': give a number.")
        assert len(embeddings) == comparisons.n_queries
        self.learned_ = float(comparisons.outcome.mean())
        self.seen.append(("fit", self.get_params(), comparisons, embeddings))
        return self

    def predict_win_probability(self, comparisons, *, embeddings=None, probes=None):
        self.seen.append(("predict", probes, comparisons, embeddings))
        value = (1 - self.trust) * self.rate + self.trust * self.learned_
        return np.full(len(comparisons), value)


@pytest.fixture(autouse=True)
def _nothing_seen():
    Constant.seen.clear()


# ---------------------------------------------------------------- inner splits


def test_a_split_shares_out_every_query_and_comparison():
    split = inner_split(DATA, validation_size=0.25, n_probes=1, rng=0)
    together = np.concatenate([split.train_positions, split.validation_positions])
    assert sorted(together) == list(range(N_QUERIES))
    assert len(split.validation_positions) == 15
    assert list(split.train.queries) == list(DATA.queries[split.train_positions])
    for part in (split.probes, split.scored):
        assert list(part.queries) == list(DATA.queries[split.validation_positions])
    assert np.bincount(split.probes.query).tolist() == [1] * 15
    assert np.bincount(split.scored.query).tolist() == [PER_QUERY - 1] * 15
    frames = [part.to_frame() for part in (split.train, split.probes, split.scored)]
    rows = sorted(itertools.chain.from_iterable(f.itertuples(index=False) for f in frames))
    assert rows == sorted(DATA.to_frame().itertuples(index=False))


def test_splits_repeat_by_seed_and_differ_otherwise():
    one, two, other = (inner_splits(DATA, 3, rng=seed) for seed in (1, 1, 2))
    for a, b in zip(one, two, strict=True):
        assert a.seed == b.seed
        assert np.array_equal(a.validation_positions, b.validation_positions)
        assert np.array_equal(a.scored.outcome, b.scored.outcome)
    assert not np.array_equal(one[0].validation_positions, other[0].validation_positions)
    assert len({split.seed for split in one}) == 3


@given(size=st.floats(0.05, 0.9), n_splits=st.integers(1, 9), seed=st.integers(0, 99))
def test_validation_queries_are_fresh_as_long_as_there_are_any(size, n_splits, seed):
    splits = inner_splits(DATA, n_splits, validation_size=size, rng=seed)
    per_pass = N_QUERIES // round(size * N_QUERIES)
    for first in range(0, n_splits, per_pass):
        used = [s.validation_positions for s in splits[first : first + per_pass]]
        assert len(set(np.concatenate(used))) == sum(map(len, used))


def test_probes_are_drawn_at_random():
    assert set(inner_split(DATA, rng=0).probes.weight) == {0.5, 1.0, 1.5}


def test_no_probes_leaves_everything_to_score():
    split = inner_split(DATA, n_probes=0, rng=0)
    assert len(split.probes) == 0
    assert len(split.scored) == 15 * PER_QUERY


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_size": 0}, "validation_size=0: give a share"),
        ({"validation_size": 1.0}, "validation_size=1.0: give a share"),
        ({"validation_size": "some"}, "validation_size='some'"),
        ({"validation_size": 0.001}, "leaves one side empty"),
        ({"n_probes": -1}, "n_probes=-1"),
        ({"n_probes": 1.5}, "n_probes=1.5"),
        ({"n_probes": PER_QUERY}, "left to score"),
        ({"rng": "x"}, "rng='x'"),
    ],
)
def test_bad_splits_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        inner_split(DATA, **settings)


def test_other_bad_splits_are_refused():
    with pytest.raises(InputError, match="n_splits=0"):
        inner_splits(DATA, 0)
    with pytest.raises(InputError, match="not DataFrame"):
        inner_split(DATA.to_frame())


def test_validation_loss_is_the_loss_on_what_is_scored():
    splits = inner_splits(DATA, 2, rng=0)
    losses = validation_loss(lambda split: np.full(len(split.scored), 0.7), splits)
    for loss, split in zip(losses, splits, strict=True):
        share = np.average(split.scored.outcome, weights=split.scored.weight)
        assert loss == pytest.approx(-share * np.log(0.7) - (1 - share) * np.log(0.3))
    by_query = validation_loss(
        lambda split: np.full(len(split.scored), 0.7), splits, average="query"
    )
    assert not np.allclose(by_query, losses)


def test_estimators_see_slices_and_seeds_alike_for_all_settings():
    splits = inner_splits(DATA, 2, rng=0)
    evaluate = evaluate_on_splits(Constant(), EMBEDDINGS, splits)
    one, two = evaluate({"rate": 0.6}), evaluate({"rate": 0.7})
    assert one.shape == two.shape == (2,)
    fits = [event for event in Constant.seen if event[0] == "fit"]
    predictions = [event for event in Constant.seen if event[0] == "predict"]
    for number, split in enumerate(splits):
        for event in fits[number::2]:
            assert event[1]["rng"] == split.seed
            assert event[2] is split.train
            assert np.array_equal(event[3][:, 0], split.train_positions)
        for event in predictions[number::2]:
            assert event[1] is split.probes
            assert event[2] is split.scored
            assert np.array_equal(event[3][:, 0], split.validation_positions)


def test_estimators_without_randomness_or_probes_are_fine():
    class Fixed(BaseEstimator):
        def __init__(self, rate=0.5):
            self.rate = rate

        def fit(self, comparisons, embeddings):
            return self

        def predict_win_probability(self, comparisons, *, embeddings=None, probes=None):
            assert probes is None
            return np.full(len(comparisons), self.rate)

    splits = inner_splits(DATA, 1, n_probes=0, rng=0)
    loss = evaluate_on_splits(Fixed(), EMBEDDINGS, splits)({"rate": 0.5})
    assert loss == pytest.approx([np.log(2)])


# ---------------------------------------------------------------- search

GRID = {"x": [0, 1, 2, 3, 4], "y": [-2.0, -1.0, 0.0, 1.0], "z": ["a", "b"]}


def bowl(settings):
    return (settings["x"] - 3) ** 2 + (settings["y"] + 1) ** 2 + 0.1 * (settings["z"] == "a")


@pytest.mark.parametrize("method", ["coordinate", "grid"])
def test_a_bowl_has_its_bottom_found(method):
    result = search(bowl, GRID, method=method)
    assert result.best == {"x": 3, "y": -1.0, "z": "b"}
    assert result.loss == 0.0
    assert result.n_evaluations == len(result.table)
    assert result.table["loss"].min() == 0.0
    assert not result.table.duplicated(["x", "y", "z"]).any()
    assert result.at_edge == {}
    if method == "grid":
        assert result.n_evaluations == 40


@given(st.lists(st.floats(0, 1), min_size=24, max_size=24), st.integers(1, 4))
def test_coordinate_descent_ends_at_a_coordinate_minimum(losses, n_rounds):
    table = np.array(losses).reshape(4, 3, 2)
    grid = {"a": range(4), "b": range(3), "c": range(2)}
    calls = []

    def evaluate(settings):
        calls.append(tuple(settings.values()))
        return table[calls[-1]]

    result = search(evaluate, grid, n_rounds=n_rounds)
    best = tuple(result.best.values())
    assert len(calls) == len(set(calls)) == result.n_evaluations
    assert result.loss == table[best] == min(table[call] for call in calls)
    converged = search(evaluate, grid, n_rounds=24)
    at = tuple(converged.best.values())
    for axis in range(3):
        index = list(at)
        index[axis] = slice(None)
        assert table[at] == table[tuple(index)].min()
    whole = search(evaluate, grid, method="grid")
    assert whole.loss == table.min()


def test_descent_starts_where_told_and_goes_in_the_grids_order():
    tried = []

    def evaluate(settings):
        tried.append((settings["x"], settings["y"]))
        return 0.0

    search(evaluate, {"x": [1, 2], "y": [3, 4, 5]}, start={"y": 5}, n_rounds=1)
    assert tried == [(1, 5), (2, 5), (1, 3), (1, 4)]


def test_equal_losses_go_to_the_value_listed_first():
    for method in ("coordinate", "grid"):
        result = search(lambda s: max(s["x"], 1), {"x": [1, 0, 2], "y": [7, 5]}, method=method)
        assert result.best == {"x": 1, "y": 7}


def test_several_losses_are_averaged_and_their_spread_is_told():
    result = search(lambda s: [s["x"], s["x"] + 1.0, s["x"] + 5.0], {"x": [1.0, 2.0]})
    assert result.loss == 3.0
    assert result.table["loss"].tolist() == [3.0, 4.0]
    expected = np.std([1.0, 2.0, 6.0], ddof=1) / np.sqrt(3)
    assert result.table["se"].to_numpy() == pytest.approx(expected)
    assert np.isnan(search(lambda _: [1.0], {"x": [1]}).table["se"][0])


def test_numeric_settings_at_the_edge_are_named():
    grid = {"low": [1, 2, 3], "high": [0.3, 0.1, 0.5], "one": [5], "kind": ["a", "b"]}
    grid["inside"] = [3, 2, 1]
    grid["flag"] = [True, False]

    def evaluate(s):
        return s["low"] - s["high"] + (s["inside"] - 2) ** 2

    assert search(evaluate, grid).at_edge == {"low": 1, "high": 0.5}


def test_refused_settings_are_recorded_and_passed_over():
    def evaluate(settings):
        if settings["k"] > 10:
            raise InputError(f"n_clusters={settings['k']} exceeds the 10 queries.")
        return 1.0 / settings["k"] if settings["k"] != 7 else np.nan

    result = search(evaluate, {"k": [50, 2, 5, 7]})
    assert result.best == {"k": 5}
    assert result.table["loss"].tolist() == [np.inf, 0.5, 0.2, np.inf]
    assert "exceeds" in result.table["message"][0]
    assert "NaN" in result.table["message"][3]
    assert result.table["message"][1] == ""


def test_a_refused_start_is_left():
    def evaluate(settings):
        if settings["k"] == 50:
            raise InputError("too many")
        return settings["k"] + abs(settings["x"] - 2)

    result = search(evaluate, {"x": [1, 2, 3], "k": [50, 5, 4]}, n_rounds=2)
    assert result.best == {"x": 2, "k": 4}


def test_nothing_possible_is_an_error():
    def refuse(_):
        raise InputError("rate is impossible.")

    for method in ("coordinate", "grid"):
        with pytest.raises(InputError, match=r"None of the \d settings.*rate is impossible"):
            search(refuse, {"x": [1, 2]}, method=method)
    with pytest.raises(InputError, match="finite loss"):
        search(lambda _: np.inf, {"x": [1, 2]})


def test_other_errors_are_not_swallowed():
    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(broken, {"x": [1, 2]})


def test_warnings_of_fits_go_to_the_table_and_others_through():
    def evaluate(settings):
        warnings.warn("raise max_iter", ConvergenceWarning, stacklevel=1)
        warnings.warn("raise max_iter", ConvergenceWarning, stacklevel=1)
        return settings["x"]

    assert search(evaluate, {"x": [1, 2]}).table["message"].tolist() == ["raise max_iter"] * 2

    def strange(settings):
        warnings.warn("unheard of", RuntimeWarning, stacklevel=1)
        return settings["x"]

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(RuntimeWarning, match="unheard of"):
            search(strange, {"x": [1, 2]})


def test_evaluate_cannot_change_what_is_tried():
    def evaluate(settings):
        return settings.pop("x")

    result = search(evaluate, {"x": np.array([2, 1])})
    assert result.best == {"x": 1}
    assert result.table["x"].tolist() == [2, 1]


def test_progress_is_shown_on_request(capsys):
    search(bowl, GRID)
    assert capsys.readouterr().err == ""
    search(bowl, GRID, progress=True)
    assert "settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grid": {}}, "grid="),
        ({"grid": [("x", [1])]}, "grid="),
        ({"grid": {"x": []}}, "grid\\['x'\\] is empty"),
        ({"grid": {"x": 3}}, "grid\\['x'\\] is 3"),
        ({"grid": {"x": "ab"}}, "grid\\['x'\\] is 'ab'"),
        ({"grid": {"loss": [1]}}, "names are strings other than"),
        ({"grid": {1: [1]}}, "names are strings"),
        ({"start": {"w": 1}}, "start names 'w'"),
        ({"start": {"x": 9}}, "start\\['x'\\] is 9"),
        ({"method": "random"}, "method='random'"),
        ({"n_rounds": 0}, "n_rounds=0"),
        ({"evaluate": lambda _: []}, "evaluate returned"),
        ({"evaluate": lambda _: "low"}, "evaluate returned 'low'"),
        ({"evaluate": lambda _: [[1.0]]}, "evaluate returned"),
    ],
)
def test_bad_searches_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        search(**({"evaluate": lambda _: 0.0, "grid": {"x": [1, 2]}} | arguments))


# ---------------------------------------------------------------- for any estimator


def test_settings_search_finds_the_rate_and_refits_on_everything():
    estimator = Constant(rng=5)
    grid = {"rate": [0.15, 0.45, 0.75, 0.95], "trust": [0.0, 0.5]}
    chosen = SettingsSearch(estimator, grid, rng=0).fit(DATA, EMBEDDINGS)
    splits = inner_splits(DATA, 2, rng=0)
    for rate, loss in chosen.results_.query("trust == 0").set_index("rate")["loss"].items():
        expected = [bt_loss(np.full(len(s.scored), rate), s.scored) for s in splits]
        assert loss == pytest.approx(np.mean(expected))
    assert chosen.best_settings_["rate"] == 0.75
    assert chosen.best_loss_ == chosen.results_["loss"].min()
    assert chosen.at_edge_ == {"trust": chosen.best_settings_["trust"]}
    assert estimator.get_params() == {"rate": 0.5, "trust": 0.0, "rng": 5}
    assert not hasattr(estimator, "learned_")
    assert chosen.best_estimator_.learned_ == DATA.outcome.mean()
    assert chosen.best_estimator_.rng == 5
    assert {k: chosen.best_estimator_.get_params()[k] for k in grid} == chosen.best_settings_
    p = chosen.predict_win_probability(DATA, embeddings=EMBEDDINGS)
    assert p.shape == (len(DATA),)


def test_settings_search_starts_from_the_estimators_own_values():
    chosen = SettingsSearch(
        Constant(rate=0.7), {"rate": [0.1, 0.7], "trust": [1.0, 0.5]}, rng=0
    ).fit(DATA, EMBEDDINGS)
    assert chosen.results_.iloc[0][["rate", "trust"]].tolist() == [0.1, 1.0]
    grid = {"trust": [1.0, 0.5], "rate": [0.1, 0.7]}
    chosen = SettingsSearch(Constant(rate=0.7), grid, rng=0).fit(DATA, EMBEDDINGS)
    assert chosen.results_["rate"].iloc[0] == 0.7


def test_settings_search_repeats_by_seed_and_by_method():
    grid = {"rate": [0.5, 0.7], "trust": [0.0, 0.5]}
    runs = [
        SettingsSearch(Constant(), grid, method=method, n_splits=3, rng=4).fit(DATA, EMBEDDINGS)
        for method in ("grid", "grid", "coordinate")
    ]
    assert runs[0].results_.equals(runs[1].results_)
    assert len(runs[0].results_) == 4
    assert runs[2].best_settings_ == runs[0].best_settings_
    assert repr(runs[0]).startswith("SettingsSearch(")


def test_impossible_settings_do_not_stop_the_search():
    grid = {"rate": ["impossible", 0.6]}
    chosen = SettingsSearch(Constant(), grid, rng=0).fit(DATA, EMBEDDINGS)
    assert chosen.best_settings_ == {"rate": 0.6}
    assert chosen.results_["message"][0] == "rate='impossible': give a number."


def test_settings_search_refuses_bad_input():
    with pytest.raises(InputError, match=r"'ratio', which Constant does not have.*rate"):
        SettingsSearch(Constant(), {"ratio": [1]}).fit(DATA, EMBEDDINGS)
    with pytest.raises(InputError, match=r"shape \(59, 2\).*60 queries"):
        SettingsSearch(Constant(), {"rate": [0.5]}).fit(DATA, EMBEDDINGS[1:])
    with pytest.raises(InputError, match="not DataFrame"):
        SettingsSearch(Constant(), {"rate": [0.5]}).fit(DATA.to_frame(), EMBEDDINGS)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SettingsSearch(Constant(), {"rate": [0.5]}).predict_win_probability(DATA)
