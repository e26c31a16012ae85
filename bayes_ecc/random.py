"""One seed or generator argument, `rng`, on everything that draws."""

from __future__ import annotations

import numpy as np

from bayes_ecc.errors import InputError

type RandomState = int | np.random.Generator | np.random.SeedSequence | None


def as_generator(rng: RandomState) -> np.random.Generator:
    """Turn `rng` into a generator; a generator is used as it is and moves on.

    Raises
    ------
    InputError
        If `rng` is neither None, a non-negative integer, a seed sequence nor a generator.
    """
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InputError(
            f"rng={rng!r}: give a non-negative integer, a numpy Generator or None."
        ) from None
