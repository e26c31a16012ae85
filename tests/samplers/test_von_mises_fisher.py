"""Von Mises-Fisher draws against the density of the cosine and another library's draws."""

import numpy as np
import pytest
from scipy import stats

from bayes_ecc.errors import InputError
from bayes_ecc.samplers import random_von_mises_fisher


def cosine_law(kappa, d):
    """Quantile grid of t = 1 - w: density exp(-kappa t) (t (2 - t))^((d - 3) / 2), integrated."""
    t = np.geomspace(1e-14, 2, 400_001)[:-1]
    log_density = -kappa * t + (d - 3) / 2 * np.log(t * (2 - t))
    middle = (t[1:] + t[:-1]) / 2
    mass = np.exp(np.interp(middle, t, log_density - log_density.max())) * np.diff(t)
    return middle, np.cumsum(mass) / mass.sum()


@pytest.mark.parametrize("d", [3, 4, 32, 384])
@pytest.mark.parametrize("kappa", [0.0, 0.5, 8.0, 300.0, 1e5])
def test_the_cosine_follows_its_density(d, kappa):
    n = 20_000
    axis = np.zeros(d)
    axis[1] = 1.0
    draws = random_von_mises_fisher(np.tile(kappa * axis, (n, 1)), rng=d)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=1), 1, atol=1e-12)
    # 1 - w from the draws' distance to the axis, which keeps its digits when w is close to 1.
    t = ((draws - axis) ** 2).sum(axis=1) / 2
    grid, law = cosine_law(kappa, d)
    assert stats.kstest(t, lambda x: np.interp(x, grid, law)).pvalue > 1e-4


@pytest.mark.parametrize("kappa", [0.0, 1.0, 50.0, 1e5])
def test_on_the_circle_angles_are_von_mises(kappa):
    draws = random_von_mises_fisher(np.tile([kappa, 0.0], (20_000, 1)), rng=1)
    angles = np.arctan2(draws[:, 1], draws[:, 0])
    law = stats.vonmises(kappa).cdf if kappa else stats.uniform(-np.pi, 2 * np.pi).cdf
    assert stats.kstest(angles, law).pvalue > 1e-4


@pytest.mark.parametrize("kappa", [0.7, 20.0])
def test_moments_agree_with_another_library(kappa):
    rng = np.random.default_rng(5)
    axis = rng.normal(size=5)
    axis /= np.linalg.norm(axis)
    n = 40_000
    ours = random_von_mises_fisher(np.tile(kappa * axis, (n, 1)), rng=2)
    theirs = stats.vonmises_fisher(axis, kappa).rvs(n, random_state=3)
    for value in (lambda x: x, lambda x: x**2, lambda x: x * np.roll(x, 1, axis=1)):
        a, b = value(ours), value(theirs)
        error = np.sqrt((a.var(axis=0) + b.var(axis=0)) / n)
        assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 4.5 * error).all()


def test_every_row_has_its_own_direction_and_concentration():
    rng = np.random.default_rng(0)
    natural = rng.normal(size=(3, 4, 6)) * np.array([0.0, 50.0, 1e4])[:, None, None]
    draws = random_von_mises_fisher(natural, rng=4)
    assert draws.shape == (3, 4, 6)
    cosine = (draws * natural).sum(axis=-1)[1:] / np.linalg.norm(natural, axis=-1)[1:]
    assert (cosine[0] > 0.5).all()
    assert (cosine[1] > 0.99).all()
    np.testing.assert_array_equal(draws, random_von_mises_fisher(natural, rng=4))


@pytest.mark.parametrize("natural", [1.0, [[1.0]], [[np.nan, 1.0]]])
def test_impossible_arguments_are_refused(natural):
    with pytest.raises(InputError, match="two or more coordinates"):
        random_von_mises_fisher(natural)
