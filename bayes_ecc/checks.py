"""Checks of settings that more than one room makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from bayes_ecc.errors import InputError


def check_count(name: str, value: Any, *, least: int = 1) -> int:
    """Give a setting as a whole number of at least `least`, or refuse it.

    Raises
    ------
    InputError
        If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name}={value!r}: give a whole number, {least} or more.")
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """Give a setting as a positive, finite number, or refuse it.

    Raises
    ------
    InputError
        If it is anything else.
    """
    number = _as_float(value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name}={value!r}: give a positive, finite number.")
    return number


def check_not_negative(name: str, value: Any) -> float:
    """Give a setting as a finite number of 0 or more, or refuse it.

    Raises
    ------
    InputError
        If it is anything else.
    """
    number = _as_float(value)
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{name}={value!r}: give a finite number, 0 or more.")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Give a setting as True or False, or refuse it.

    Raises
    ------
    InputError
        If it is anything else.
    """
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}={value!r}: give True or False.")
    return bool(value)


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse a setting that is not one of a few words.

    Raises
    ------
    InputError
        If it is anything else.
    """
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name}={value!r}: allowed are {', '.join(map(repr, allowed))}.")


def _as_float(value: Any) -> float:
    """Give a real number as a float; NaN for anything else, and for what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
