"""Checks of settings that more than one room makes."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

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
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name}={value!r}: give a positive number.")
    number = float(value)
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
    if isinstance(value, Real) and not isinstance(value, bool) and value == 0:
        return 0.0
    return check_positive(name, value)
