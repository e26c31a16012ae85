"""Leaving queries out and stacking, held against ArviZ and against sums that are exact."""

from __future__ import annotations

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.special import logsumexp

from bayes_ecc import ECC, InputError, pointwise_log_likelihood, simulate
from bayes_ecc.stacking import (
    LeaveQueryOut,
    leave_query_out,
    pareto_smooth,
    stacking_weights,
)

N_DRAWS = 400


def test_what_is_no_evidence_is_refused_by_name() -> None:
    data = simulate(n_queries=60, n_models=5, rng=0)
    tree = ECC(2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings).posterior_
    for make in (stacking_weights, leave_query_out):
        with pytest.raises(InputError, match="evidence is a DataTree; give a DataArray with"):
            make(tree)
        with pytest.raises(
            InputError, match=r"with the dims .*'cluster'.*pointwise_log_likelihood"
        ):
            make(tree["posterior"]["weights"])
    with pytest.raises(InputError, match="fitted_evidence is a DataTree"):
        leave_query_out(some_evidence(), tree)
    evidence = pointwise_log_likelihood(tree)["evidence"]  # as the message says
    assert stacking_weights(evidence).tolist() == [1.0]


def some_evidence(n_chains: int = 3, n_queries: int = 40, scale: float = 0.3) -> xr.DataArray:
    rng = np.random.default_rng(0)
    level = rng.normal(-3, 1.0, size=(n_chains, 1, n_queries))
    values = level + scale * rng.standard_normal((n_chains, N_DRAWS, n_queries))
    coords = {name: np.arange(size) for name, size in zip("cdq", values.shape, strict=True)}
    return xr.DataArray(values, coords, ("c", "d", "q")).rename(c="chain", d="draw", q="query")


def as_fit(evidence: xr.DataArray) -> xr.DataTree:
    """What ArviZ takes; the posterior is there for its relative efficiency alone."""
    theta = evidence.isel(query=0, drop=True).rename("theta")
    return xr.DataTree.from_dict(
        {
            "posterior": theta.to_dataset(),
            "log_likelihood": evidence.rename("evidence").to_dataset(),
        }
    )


def elpds(values: np.ndarray) -> LeaveQueryOut:
    elpd = xr.DataArray(values, dims=("chain", "query"))
    return LeaveQueryOut(elpd, xr.zeros_like(elpd), 0.7)


def test_every_chain_is_left_to_arviz_alone() -> None:
    evidence = some_evidence()
    found = leave_query_out(evidence)
    assert found.elpd.dims == found.pareto_k.dims == ("chain", "query")
    for chain in range(3):
        alone = az.loo(as_fit(evidence.isel(chain=[chain])), var_name="evidence", pointwise=True)
        np.testing.assert_allclose(found.elpd[chain], alone.elpd_i)
        np.testing.assert_allclose(found.pareto_k[chain], alone.pareto_k)
        assert found.good_k == alone.good_k


@pytest.mark.parametrize("n_draws", [25, 100, 226, 1000])
@pytest.mark.parametrize("degrees", [2.0, 4.0, 30.0])
def test_smoothing_is_arvizs_row_by_row(n_draws: int, degrees: float) -> None:
    rng = np.random.default_rng(n_draws)
    ratios = rng.standard_t(degrees, size=(20, n_draws))
    ratios[0] = np.where(ratios[0] > 0, 1.0, ratios[0])  # most of the tail is one value
    log_weights, shape = pareto_smooth(ratios)
    rows = xr.DataArray(-ratios[1:], dims=("row", "draw"))
    expected, expected_shape = rows.azstats.psislw(dim="draw")
    np.testing.assert_allclose(log_weights[1:], expected.transpose("row", "draw"), atol=1e-10)
    np.testing.assert_allclose(shape[1:], expected_shape, atol=1e-10)
    np.testing.assert_allclose(logsumexp(log_weights, axis=1), 0, atol=1e-12)
    assert np.isnan(shape[0])  # no tail to fit: the weights stay as they are
    np.testing.assert_allclose(log_weights[0] - log_weights[0, 0], ratios[0] - ratios[0, 0])


def test_order_of_dimensions_does_not_matter() -> None:
    evidence = some_evidence()
    turned = leave_query_out(evidence.transpose("query", "draw", "chain"))
    xr.testing.assert_equal(turned.elpd, leave_query_out(evidence).elpd)


def test_leaving_out_undoes_what_the_fit_made_of_a_query() -> None:
    # Success probability p ~ Beta(2, 2); a fit that counts one observed success w times draws from
    # Beta(2 + w, 2); without it the success has probability 1 / 2, whatever w was.
    rng = np.random.default_rng(0)
    for power in (0.5, 1.0, 1.5):
        p = rng.beta(2 + power, 2, size=20_000)
        evidence = xr.DataArray(np.log(p)[None, :, None], dims=("chain", "draw", "query"))
        found = leave_query_out(evidence, power * evidence)
        assert float(found.elpd.item()) == pytest.approx(np.log(0.5), abs=0.02)
    # and it is the evidence once, not what the fit made of it, that is judged
    wrong = leave_query_out(1.5 * evidence)
    assert float(wrong.elpd.item()) < np.log(0.5) - 0.1


def test_queries_that_never_change_are_left_as_they_are() -> None:
    evidence = some_evidence()
    evidence[:, :, 3] = -1.25
    found = leave_query_out(evidence)
    np.testing.assert_allclose(found.elpd[:, 3], -1.25)
    assert (found.pareto_k[:, 3] == -np.inf).all()
    np.testing.assert_array_equal(found.elpd[:, 4], leave_query_out(some_evidence()).elpd[:, 4])


def test_heavy_tails_are_counted() -> None:
    evidence = some_evidence(n_chains=1)
    rng = np.random.default_rng(1)
    evidence[0, :, :10] -= stats.genpareto(1.5).rvs((N_DRAWS, 10), random_state=rng)
    found = leave_query_out(evidence)
    assert found.share_bad == pytest.approx(0.25, abs=0.05)


def test_too_few_draws_are_refused_but_weigh_alike() -> None:
    few = some_evidence().isel(draw=slice(20))
    with pytest.raises(InputError, match="at least 25"):
        leave_query_out(few)
    np.testing.assert_allclose(stacking_weights(few), 1 / 3)
    np.testing.assert_allclose(stacking_weights(some_evidence(n_chains=1)), 1)


@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_stacking_is_arvizs(scale: float) -> None:
    evidence = some_evidence(n_chains=4, n_queries=150) * scale
    evidence[2] += np.where(np.arange(150) < 30, 2.0, -0.5)  # good at something
    evidence[3] -= 3.0  # good at nothing
    weights = stacking_weights(evidence, tolerance=1e-3)
    alone = {str(c): as_fit(evidence.isel(chain=[c])) for c in range(4)}
    table = az.compare(alone, var_name="evidence", method="stacking", round_to="none")
    expected = table["weight"][[str(c) for c in range(4)]].to_numpy(dtype=float)
    np.testing.assert_allclose(weights, expected, atol=0.01)
    assert weights[3] < 1e-3
    density = np.exp(leave_query_out(evidence).elpd.values.T)
    assert np.log(density @ weights).sum() > np.log(density @ expected).sum() - 1e-3


def test_stacking_of_two_experts_is_exact() -> None:
    # Each is certain of its own share of the queries and blind on the rest: w = the shares.
    values = np.full((2, 100), -50.0)
    values[0, :30] = values[1, 30:] = -1.0
    np.testing.assert_allclose(
        stacking_weights(elpds(values), tolerance=1e-4), [0.3, 0.7], atol=1e-3
    )


def test_stacking_beats_every_chain_and_equal_weights() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(-3, 1.0, size=(5, 200))
    weights = stacking_weights(elpds(values))
    assert weights.sum() == pytest.approx(1)

    def score(w: np.ndarray) -> float:
        return float(logsumexp(values.T, b=w, axis=1).sum())

    assert all(score(weights) >= score(w) for w in np.eye(5))
    assert score(weights) > score(np.full(5, 0.2))


def test_chains_that_predict_alike_weigh_alike() -> None:
    rng = np.random.default_rng(0)
    values = np.tile(rng.normal(-3, 1, size=300), (4, 1))
    np.testing.assert_allclose(stacking_weights(elpds(values)), 0.25)
    # nor does the Monte Carlo error of one and the same solution tip the scale
    values += rng.normal(0, 0.02, size=values.shape)
    np.testing.assert_allclose(stacking_weights(elpds(values)), 0.25)
    assert stacking_weights(elpds(values), tolerance=1e-6).max() > 0.4


@pytest.mark.parametrize("tolerance", [0.01, 0.5, 5.0])
def test_weights_lose_no_more_than_allowed(tolerance: float) -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(-3, 0.5, size=(4, 200))
    values[0] += 0.3

    def score(w: np.ndarray) -> float:
        return float(logsumexp(values.T, b=w, axis=1).sum())

    best = score(stacking_weights(elpds(values), tolerance=1e-8))
    assert score(stacking_weights(elpds(values), tolerance=tolerance)) > best - tolerance


def test_densities_below_the_smallest_number_can_be_stacked() -> None:
    values = np.random.default_rng(0).normal(-5000, 1, size=(3, 100))
    shifted = stacking_weights(elpds(values + 5000))
    np.testing.assert_allclose(stacking_weights(elpds(values)), shifted, atol=1e-8)
