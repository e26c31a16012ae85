"""Polya-Gamma draws against closed forms, a long series and the Laplace transform."""

import numpy as np
import pytest

from bayes_ecc.errors import InputError
from bayes_ecc.samplers import polya_gamma, polya_gamma_moments, random_polya_gamma

# Half-win ties times evidence powers of 0.5, 1, 10/7, 1.5, 2 and their sums.
SHAPES = [0.25, 0.5, 5 / 7, 1.0, 10 / 7, 1.5, 2.0, 2.5, 3.0, 30 / 7, 5.0, 10.0, 40.5, 300.0]
TILTS = [0.0, 0.05, 1.0, 3.0, 8.0]


def series_cumulants(h, z, n_terms=400_000):
    k = np.arange(n_terms) + 0.5
    factor = 1 / (2 * np.pi**2 * (k**2 + (z / (2 * np.pi)) ** 2))
    missing = 1 / (2 * np.pi**2 * n_terms)  # integral of the tail's first power
    return h * (factor.sum() + missing), h * (factor**2).sum(), 2 * h * (factor**3).sum()


@pytest.mark.parametrize("z", [0.0, 0.01, 0.0999, 0.1001, 1.0, -2.0, 7.0, 50.0])
def test_moments_are_those_of_the_series(z):
    mean, variance = polya_gamma_moments(1.5, z)
    expected = series_cumulants(1.5, z)
    assert mean == pytest.approx(expected[0], rel=1e-9)
    assert variance == pytest.approx(expected[1], rel=1e-9)


@pytest.mark.parametrize("h", SHAPES)
def test_draws_have_the_mean_variance_and_skewness_of_the_law(h):
    n = 120_000
    tilts = np.repeat(TILTS, n)
    draws = random_polya_gamma(h, tilts, rng=int(1000 * h)).reshape(len(TILTS), n)
    for z, x in zip(TILTS, draws, strict=True):
        mean, variance, third = series_cumulants(h, z)
        centred = x - mean
        for power, expected in ((1, 0.0), (2, variance), (3, third)):
            values = centred**power
            error = values.std() / np.sqrt(n)
            assert abs(values.mean() - expected) < 4.5 * error, (z, power)


@pytest.mark.parametrize("h", [0.5, 1.0, 10 / 7, 2.0, 6.0])
@pytest.mark.parametrize("z", [0.0, 2.0])
def test_draws_have_the_laplace_transform_that_makes_the_augmentation_exact(h, z):
    # E exp(-w t) = cosh(z/2)^h / cosh(sqrt(z^2/4 + t/2))^h, of which the BT likelihood is made.
    n = 200_000
    x = random_polya_gamma(np.full(n, h), z, rng=7)
    for t in (0.5, 4.0, 20.0):
        values = np.exp(-t * x)
        expected = (np.cosh(z / 2) / np.cosh(np.sqrt(z**2 / 4 + t / 2))) ** h
        assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(n)


def test_the_error_bounds_of_the_module_hold():
    k = np.arange(400_000) + 0.5
    for z, bound in ((5.0, 2e-6), (10.0, 5e-5), (20.0, 2e-3)):
        factor = 1 / (2 * np.pi**2 * (k**2 + (z / (2 * np.pi)) ** 2))
        tail = factor[polya_gamma._TERMS :]
        mean, variance = tail.sum() + 1 / (2 * np.pi**2 * len(k)), (tail**2).sum()
        assert abs(2 * variance**2 / mean - 2 * (tail**3).sum()) < bound * 2 * (factor**3).sum()


@pytest.mark.parametrize("h", [0.5, 1.0, 2.0, 40.5])
@pytest.mark.parametrize("z", [30.0, 99.0, 101.0, 800.0, 1e5])
def test_extreme_tilts_keep_mean_and_variance(h, z):
    n = 40_000
    x = random_polya_gamma(np.full(n, h), z, rng=1)
    mean, variance = polya_gamma_moments(h, z)
    assert x.mean() == pytest.approx(mean, abs=4.5 * np.sqrt(variance / n))
    squares = (x - mean) ** 2
    assert squares.mean() == pytest.approx(variance, abs=4.5 * squares.std() / np.sqrt(n))


def test_shapes_broadcast_and_seeds_repeat():
    draws = random_polya_gamma([[1.0], [2.5]], [0.0, 1.0, -1.0], rng=3)
    assert draws.shape == (2, 3)
    assert (draws > 0).all()
    np.testing.assert_array_equal(
        draws, random_polya_gamma([[1.0], [2.5]], [0.0, 1.0, -1.0], rng=3)
    )


def test_arguments_are_not_written_to():
    h, z = np.array([1.0, 1.5]), np.array([-1.0, 2.0])
    random_polya_gamma(h, z, rng=0)
    assert h.tolist() == [1.0, 1.5]
    assert z.tolist() == [-1.0, 2.0]


@pytest.mark.parametrize(("h", "z"), [(0.0, 1.0), (-1.0, 1.0), (np.nan, 0.0), (1.0, np.inf)])
def test_impossible_arguments_are_refused(h, z):
    with pytest.raises(InputError, match="Polya-Gamma"):
        random_polya_gamma(h, z)
