"""Von Mises-Fisher draws on spheres of any dimension, one for each of many mean directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.errors import InputError
from bayes_ecc.random import RandomState, as_generator

type FloatArray = NDArray[np.floating[Any]]


def random_von_mises_fisher(natural: ArrayLike, *, rng: RandomState = None) -> FloatArray:
    """Draw a unit vector x with density proportional to exp(eta . x) for each row eta.

    The cosine to the mean direction is drawn by Ulrich's rejection in Wood's form [1]_, the rest
    uniformly around it; a row of zeros gives a uniform direction.

    Parameters
    ----------
    natural : array-like, shape (..., d)
        Concentration times mean direction, d at least 2. Zeros mean uniform.
    rng : int, numpy.random.Generator or None
        Randomness of the draws.

    Returns
    -------
    ndarray, shape (..., d)
        Unit vectors.

    Raises
    ------
    InputError
        If a row has fewer than two coordinates or is not finite.

    References
    ----------
    .. [1] Wood (1994). Simulation of the von Mises Fisher distribution. Communications in
       Statistics - Simulation and Computation 23(1).

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.samplers import random_von_mises_fisher
    >>> directions = random_von_mises_fisher([[0.0, 0.0, 500.0]], rng=0)
    >>> directions.shape, bool(directions[0, 2] > 0.9)
    ((1, 3), True)
    """
    eta = np.asarray(natural, dtype=float)
    if eta.ndim == 0 or eta.shape[-1] < 2 or not np.isfinite(eta).all():
        raise InputError(
            f"natural has shape {eta.shape}; give finite vectors of two or more coordinates."
        )
    generator = as_generator(rng)
    rows = eta.reshape(-1, eta.shape[-1])
    concentration = np.linalg.norm(rows, axis=1)
    noise = generator.standard_normal(rows.shape)
    axis = np.divide(
        rows,
        concentration[:, None],
        out=noise.copy(),
        where=concentration[:, None] > 0,
    )
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    short, long = _distances(concentration, eta.shape[-1], generator)
    noise = generator.standard_normal(rows.shape)
    noise -= np.einsum("id,id->i", noise, axis)[:, None] * axis
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    draws = (1 - short)[:, None] * axis + np.sqrt(short * long)[:, None] * noise
    return (draws / np.linalg.norm(draws, axis=1, keepdims=True)).reshape(eta.shape)


def _distances(
    concentration: FloatArray, d: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draw 1 - w and 1 + w for the cosine w to the mean; apart, since 1 - w may be tiny."""
    b = (d - 1) / (2 * concentration + np.sqrt(4 * concentration**2 + (d - 1) ** 2))
    short, long = np.empty_like(b), np.empty_like(b)
    left = np.arange(len(b))
    while len(left):
        bl = b[left]
        z = rng.beta((d - 1) / 2, (d - 1) / 2, size=len(left))
        scale = 2 / (1 - (1 - bl) * z)
        minus, plus = bl * z * scale, (1 - z) * scale
        # With x = (1 - b) / (1 + b): kappa (w - x) + (d - 1) log((1 - x w) / (1 - x^2)).
        rise = 2 * bl / (1 + bl) - minus
        ratio = -rise * (1 - bl) * (1 + bl) / (4 * bl)
        log_ratio = concentration[left] * rise + (d - 1) * np.log1p(ratio)
        accepted = np.log(rng.random(len(left))) <= log_ratio
        short[left[accepted]], long[left[accepted]] = minus[accepted], plus[accepted]
        left = left[~accepted]
    return short, long
