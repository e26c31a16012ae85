"""Intervals: ArviZ's own, row by row; and unequal shares turned into equal ones."""

from __future__ import annotations

from typing import Any

import arviz_base
import numpy as np
import pytest
from arviz_stats.base import array_stats
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc import InputError
from bayes_ecc.intervals import (
    Interval,
    choose_interval,
    discrete_interval,
    equally_weighted,
    sorted_interval,
)

PROBS = (0.5, 0.89, 0.9, 0.94, 0.999)


def arviz_bounds(values: Any, interval: Interval, **more: Any) -> tuple[float, float]:
    lower, upper = getattr(array_stats, interval.kind)(values, interval.prob, axis=-1, **more)
    return float(lower), float(upper)


@pytest.mark.parametrize("kind", ["eti", "hdi"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 50, 997])
def test_bounds_are_arviz_s(n: int, kind: str) -> None:
    values = np.random.default_rng(n).gamma(2.0, size=(4, n))
    for prob in PROBS:
        interval = Interval(prob, kind)
        lower, upper = sorted_interval(np.sort(values, axis=-1), interval)
        expected = np.array([arviz_bounds(row, interval) for row in values])
        np.testing.assert_allclose(np.column_stack([lower, upper]), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 13, 400])
def test_bounds_of_whole_numbers_are_arviz_s(n: int) -> None:
    rng = np.random.default_rng(n)
    for prob in PROBS:
        values = np.minimum(rng.poisson(3.0, size=n), 9)
        probability = np.bincount(values, minlength=10) / n
        hdi = Interval(prob, "hdi")
        assert discrete_interval(probability, hdi) == arviz_bounds(values, hdi)
        if abs(n * prob / 2 % 0.5) > 1e-6:  # where cumulative shares do not hit the level itself
            eti = Interval(prob, "eti")
            expected = arviz_bounds(values, eti, method="inverted_cdf")
            assert discrete_interval(probability, eti) == expected


def test_bounds_of_a_certain_place_have_no_width() -> None:
    probability = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    for kind in ("eti", "hdi"):
        lower, upper = discrete_interval(probability, Interval(0.9, kind))
        assert lower.tolist() == upper.tolist() == [1, 2]


def test_settings_are_arviz_s_unless_given() -> None:
    defaults = arviz_base.rcParams
    assert choose_interval(None, None) == (defaults["stats.ci_prob"], defaults["stats.ci_kind"])
    with arviz_base.rc_context({"stats.ci_prob": 0.7, "stats.ci_kind": "hdi"}):
        assert choose_interval(None, None) == (0.7, "hdi")
        assert choose_interval(0.5, "eti") == (0.5, "eti")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"prob": 0.0, "kind": None}, "prob=0.0"),
        ({"prob": 1, "kind": None}, "prob=1"),
        ({"prob": "0.9", "kind": None}, "prob='0.9'"),
        ({"prob": True, "kind": None}, "prob=True"),
        ({"prob": 0.9, "kind": "median"}, "kind='median'"),
    ],
)
def test_other_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_interval(**setting)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_resampling_keeps_shares_to_within_one_draw(weights: list[int]) -> None:
    share = np.array(weights) / sum(weights)
    n = len(share)
    chosen = equally_weighted(share)
    times = np.bincount(chosen, minlength=n)
    assert len(chosen) == n
    assert (np.diff(chosen) >= 0).all()
    assert (np.abs(times - n * share) < 1 + 1e-9).all()
    assert (np.abs(np.cumsum(times) / n - np.cumsum(share)) <= 0.5 / n + 1e-9).all()


def test_equal_shares_take_every_draw_once() -> None:
    for n in (1, 3, 49, 2000):
        assert equally_weighted(np.full(n, 1 / n)).tolist() == list(range(n))
