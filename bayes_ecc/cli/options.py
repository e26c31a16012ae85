"""Types of options, and options that several commands share."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Iterable
from typing import Literal


def whole(least: int) -> Callable[[str], int]:
    """Make the type of an option that is a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, {least} or more")
        return value

    return read


def number(text: str) -> float:
    """Read a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number")
    return value


def probability(text: str) -> float:
    """Read a number between 0 and 1, both excluded."""
    try:
        value = number(text)
    except argparse.ArgumentTypeError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give a probability between 0 and 1, such as 0.9"
        )
    return value


def number_or_auto(text: str) -> float | Literal["auto"]:
    """Read a finite number, or `auto`."""
    if text == "auto":
        return "auto"
    try:
        return number(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number, or auto") from None


def listed(values: Iterable[str], is_name: Callable[[str], bool]) -> list[str]:
    """Read names from options that hold several, separated by commas, and may be repeated.

    A value that is a name as it stands is taken whole, whatever commas it holds.

    Examples
    --------
    >>> from bayes_ecc.cli.options import listed
    >>> listed(["a,b", "c, large"], {"a", "b", "c, large"}.__contains__)
    ['a', 'b', 'c, large']
    """
    names: list[str] = []
    for value in values:
        pieces = [value] if is_name(value) else [piece.strip() for piece in value.split(",")]
        names.extend(piece for piece in pieces if piece and piece not in names)
    return names


def add_seed(parser: argparse._ActionsContainer, help_text: str) -> None:
    """Add `--seed`."""
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help=help_text)


def given(args: argparse.Namespace, names: Collection[str]) -> list[str]:
    """Name those options, without a default of their own, that were given on the command line."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
