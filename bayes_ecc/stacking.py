"""Leave queries out of each chain, and weigh chains by how well they predict what was left out.

Chains from independent starts settle in different modes. They are several solutions, and the
weights under which their mixture predicts left-out comparisons best tell what each is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]

MIN_DRAWS = 25
"""Draws a chain that leaving queries out takes: a fifth of them is tail, and a tail needs five."""

_SMALLEST_CHANGE = 1e-3  # nats; weights that differ by less correct nothing and have no tail to fit
_CELLS = 2_000_000  # numbers held at once by a fit of tails
_N_SHAPES = 60  # at most, that a fit of one tail tries
_STACKING_STEPS = 100_000


@dataclass(frozen=True)
class LeaveQueryOut:
    """What each chain, by itself, would have said of each query without its comparisons.

    Attributes
    ----------
    elpd : xarray.DataArray, dims (chain, query)
        Log evidence with the query's comparisons left out of the fit.
    pareto_k : xarray.DataArray, dims (chain, query)
        Shape of the importance weights' tail; above `good_k` the estimate is not to be relied on.
    good_k : float
        min(1 - 1 / log10(draws a chain), 0.7).

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayes_ecc.stacking import leave_query_out
    >>> values = np.random.default_rng(0).normal(-3, 0.2, size=(2, 200, 5))
    >>> evidence = xr.DataArray(values, dims=("chain", "draw", "query"))
    >>> leave_query_out(evidence).share_bad
    0.0
    """

    elpd: xr.DataArray
    pareto_k: xr.DataArray
    good_k: float

    @property
    def share_bad(self) -> float:
        """Share of the estimates, over chains and queries, that are not to be relied on."""
        return float((~(self.pareto_k <= self.good_k)).mean())


def leave_query_out(
    evidence: xr.DataArray, fitted_evidence: xr.DataArray | None = None
) -> LeaveQueryOut:
    """Leave each query's comparisons out of each chain by Pareto-smoothed importance sampling.

    The query's embedding stays in. Each chain stands alone, since chains may sit in different
    modes; the figures are those of `arviz.loo` on that chain [1]_.

    Parameters
    ----------
    evidence : xarray.DataArray, dims (chain, draw, query)
        From `pointwise_log_likelihood`: what a query is judged by.
    fitted_evidence : xarray.DataArray, optional
        From there too: what the fit made of a query, if not that.

    Returns
    -------
    LeaveQueryOut

    Raises
    ------
    InputError
        If `evidence` is something else, or there are fewer than 25 draws a chain: too few for a
        tail.

    References
    ----------
    .. [1] Vehtari, A., Simpson, D., Gelman, A., Yao, Y. and Gabry, J. (2024). Pareto smoothed
       importance sampling. Journal of Machine Learning Research 25(72).

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayes_ecc.stacking import leave_query_out
    >>> values = np.random.default_rng(0).normal(-3, 0.2, size=(2, 200, 5))
    >>> evidence = xr.DataArray(values, dims=("chain", "draw", "query"))
    >>> leave_query_out(evidence).elpd.sizes["query"]
    5
    """
    _check_evidence("evidence", evidence)
    if fitted_evidence is not None:
        _check_evidence("fitted_evidence", fitted_evidence)
    n_draws = evidence.sizes["draw"]
    if n_draws < MIN_DRAWS:
        raise InputError(
            f"evidence has {n_draws} draws a chain; leaving queries out by importance sampling "
            f"needs at least {MIN_DRAWS}."
        )
    fitted = evidence if fitted_evidence is None else fitted_evidence
    chains = [
        _leave_out(judged.transpose("query", "draw").values, made.transpose("query", "draw").values)
        for judged, made in zip(
            evidence.transpose("chain", ...), fitted.transpose("chain", ...), strict=True
        )
    ]
    elpd, pareto_k = (np.stack(values) for values in zip(*chains, strict=True))
    coords = {name: evidence.coords[name] for name in ("chain", "query") if name in evidence.coords}
    return LeaveQueryOut(
        elpd=xr.DataArray(elpd, coords, ("chain", "query"), name="elpd"),
        pareto_k=xr.DataArray(pareto_k, coords, ("chain", "query"), name="pareto_k"),
        good_k=min(1 - 1 / math.log10(n_draws), 0.7),
    )


def _leave_out(evidence: FloatArray, fitted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Give elpd and Pareto k, (n_queries,) each, from (n_queries, n_draws) of one chain."""
    elpd, pareto_k = np.empty(len(evidence)), np.empty(len(evidence))
    step = max(1, _CELLS // (_tail_length(evidence.shape[1]) * _N_SHAPES))
    for start in range(0, len(evidence), step):
        part = slice(start, start + step)
        log_weights, pareto_k[part] = pareto_smooth(-fitted[part].astype(float))
        elpd[part] = logsumexp(log_weights + evidence[part], axis=1)
    return elpd, pareto_k


def pareto_smooth(log_ratios: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smooth the largest importance weights, row by row, by a generalised Pareto distribution.

    What ArviZ does to one row after another, in one go: some twenty times faster.

    Parameters
    ----------
    log_ratios : ndarray, shape (n_rows, n_draws)
        Log importance ratios, at least 25 a row.

    Returns
    -------
    log_weights : ndarray, shape (n_rows, n_draws)
        Their exponentials sum to 1 in each row.
    pareto_k : ndarray, shape (n_rows,)
        Estimated shape; minus infinity where the ratios hardly differ, NaN where too many of the
        largest are equal.

    References
    ----------
    .. [1] Vehtari, A., Simpson, D., Gelman, A., Yao, Y. and Gabry, J. (2024). Pareto smoothed
       importance sampling. Journal of Machine Learning Research 25(72).
    .. [2] Zhang, J. and Stephens, M. A. (2009). A new and efficient estimation method for the
       generalized Pareto distribution. Technometrics 51(3), 316-325.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.stacking import pareto_smooth
    >>> log_weights, pareto_k = pareto_smooth(np.random.default_rng(0).exponential(size=(1, 2000)))
    >>> bool(0.8 < pareto_k[0] < 1.2)  # the exponential of an exponential variable has shape 1
    True
    """
    n_tail = _tail_length(log_ratios.shape[1])
    log_weights = log_ratios - log_ratios.max(axis=1, keepdims=True)
    top = np.argpartition(log_weights, -n_tail - 1, axis=1)[:, -n_tail - 1 :]
    values = np.take_along_axis(log_weights, top, axis=1)
    order = values.argsort(axis=1)
    top = np.take_along_axis(top, order, axis=1)[:, 1:]
    sizes = np.exp(np.take_along_axis(values, order, axis=1))
    cutoff, excess = sizes[:, :1], sizes[:, 1:] - sizes[:, :1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        shape, scale = _fit_pareto(excess)
        probability = (np.arange(n_tail) + 0.5) / n_tail
        quantile = np.expm1(-shape[:, None] * np.log1p(-probability)) / shape[:, None]
        smoothed = np.minimum(np.log(cutoff + scale[:, None] * quantile), 0.0)
    still = np.ptp(log_ratios, axis=1) <= _SMALLEST_CHANGE
    replaced = np.isfinite(smoothed).all(axis=1) & ~still
    tail = np.where(replaced[:, None], smoothed, np.take_along_axis(log_weights, top, axis=1))
    np.put_along_axis(log_weights, top, tail, axis=1)
    shape[still] = -np.inf
    return log_weights - logsumexp(log_weights, axis=1, keepdims=True), shape


def _tail_length(n_draws: int) -> int:
    return int(3 * n_draws**0.5 if n_draws > 225 else n_draws / 5)


def _fit_pareto(excess: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Give shape and scale, (n_rows,) each, of sorted exceedances (n_rows, n_tail) [2 above]."""
    n_tail = excess.shape[1]
    quartile = excess[:, int(n_tail / 4 + 0.5) - 1]
    n_grid = 30 + int(n_tail**0.5)
    grid = 1 - np.sqrt(n_grid / (np.arange(n_grid) + 0.5))
    grid = grid / (3 * quartile[:, None]) + 1 / excess[:, -1:]
    shapes = np.log1p(-grid[:, :, None] * excess[:, None, :]).mean(axis=2)
    profile = n_tail * (np.log(-grid / shapes) - shapes - 1)
    weight = np.exp(profile - logsumexp(profile, axis=1, keepdims=True))
    mean = (grid * weight).sum(axis=1) / weight.sum(axis=1)
    shape = np.log1p(-mean[:, None] * excess).mean(axis=1)
    scale = -shape / mean
    shape = (n_tail * shape + 5) / (n_tail + 10)  # a prior around 0.5 steadies short tails
    usable = (quartile > excess[:, 0]) & (scale > 0)
    return np.where(usable, shape, np.nan), np.where(usable, scale, np.nan)


def _check_evidence(name: str, evidence: Any, *also: type) -> None:
    """Refuse what is no evidence of queries, draw by draw."""
    if isinstance(evidence, also):
        return
    wanted = ("chain", "draw", "query")
    if not isinstance(evidence, xr.DataArray):
        found = f"a {type(evidence).__name__}"
    elif set(evidence.dims) != set(wanted):
        found = f"a DataArray with the dims {evidence.dims}"
    else:
        return
    listed = " or ".join(
        ["a DataArray with the dims (chain, draw, query)"] + [c.__name__ for c in also]
    )
    raise InputError(
        f"{name} is {found}; give {listed}. pointwise_log_likelihood(posterior)['evidence'] "
        "is one; the weights that a fit chose itself are in "
        "posterior['constant_data']['chain_weights']."
    )


def stacking_weights(
    evidence: xr.DataArray | LeaveQueryOut,
    fitted_evidence: xr.DataArray | None = None,
    *,
    tolerance: float = 0.5,
) -> FloatArray:
    """Weigh chains so that their mixture predicts left-out queries best [1]_ [2]_.

    Maximises sum_q log sum_c w_c exp(elpd_cq), a concave problem, starting from equal weights and
    stopping once no others could gain more than `tolerance`. Chains in one mode differ by Monte
    Carlo error alone, and exact weights would follow it anywhere; so they keep like weights.
    Nothing else regularises the weights: with few queries they are noisy.

    Parameters
    ----------
    evidence : LeaveQueryOut or xarray.DataArray, dims (chain, draw, query)
        From `leave_query_out`, or what it takes.
    fitted_evidence : xarray.DataArray, optional
        As there.
    tolerance : float
        Nats, in total over all queries, that the weights may lose on the best ones.

    Returns
    -------
    ndarray, shape (n_chains,)
        Sums to 1. Equal weights where chains have too few draws to leave queries out.

    Raises
    ------
    InputError
        If `evidence` is neither.

    References
    ----------
    .. [1] Yao, Y., Vehtari, A., Simpson, D. and Gelman, A. (2018). Using stacking to average
       Bayesian predictive distributions. Bayesian Analysis 13(3).
    .. [2] Yao, Y., Vehtari, A. and Gelman, A. (2022). Stacking for non-mixing Bayesian
       computations: the curse and blessing of multimodal posteriors. Journal of Machine Learning
       Research 23(79).

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayes_ecc.stacking import stacking_weights
    >>> values = np.random.default_rng(0).normal(-3, 0.2, size=(2, 200, 50))
    >>> values[1] -= 2  # the second chain explains every query worse
    >>> evidence = xr.DataArray(values, dims=("chain", "draw", "query"))
    >>> stacking_weights(evidence).round(3).tolist()
    [1.0, 0.0]
    """
    _check_evidence("evidence", evidence, LeaveQueryOut)
    if isinstance(evidence, xr.DataArray):
        n_chains = evidence.sizes["chain"]
        if n_chains == 1 or evidence.sizes["draw"] < MIN_DRAWS:
            return np.full(n_chains, 1 / n_chains)
        evidence = leave_query_out(evidence, fitted_evidence)
    elpd = evidence.elpd.transpose("query", "chain").values
    density = np.exp(elpd - elpd.max(axis=1, keepdims=True))
    weights = np.full(density.shape[1], 1 / density.shape[1])
    for _ in range(_STACKING_STEPS):
        # The update of an EM for mixture weights: it never leaves the simplex and never gets
        # worse, and the largest factor bounds what is left to gain.
        factor = (density / (density @ weights)[:, None]).mean(axis=0)
        if len(density) * math.log(factor.max()) < tolerance:
            break
        weights = weights * factor
    return weights / weights.sum()
