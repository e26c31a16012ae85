"""What each chain found: chains in different modes are several solutions, each with its worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.sampling_diagnostics import rhat
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import adjusted_rand_score

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.evidence import draw_responsibilities, invariants, pointwise_log_likelihood
from bayes_ecc.stacking import LeaveQueryOut, leave_query_out, stacking_weights

type FloatArray = NDArray[np.floating[Any]]

SAME_SOLUTION = 0.9
"""Chains whose agreement is above this share of a chain's with itself hold one solution."""


def mode_report(
    posterior: xr.DataTree,
    comparisons: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    *,
    left_out: LeaveQueryOut | None = None,
) -> pd.DataFrame:
    """Describe what each chain found.

    Agreement is the adjusted Rand index [1]_ of the queries' most responsible clusters: 1 if two
    partitions are equal, 0 if they agree by chance only. A chain's agreement with itself, half a
    chain earlier, is what agreement with others is to be held against: queries change their
    clusters within a mode, too.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library. Its groups invariants and log_likelihood are used where
        they are there and computed otherwise.
    comparisons, embeddings : optional
        By default those of the fit, which it keeps.
    left_out : LeaveQueryOut, optional
        If it is known already.

    Returns
    -------
    pandas.DataFrame
        One row a chain: `log_density` (mean of the total) and `log_density_sd`; `r_hat` of the log
        density between the halves of the chain; `elpd` of left-out queries, summed, and the
        `stacking_weight` that follows (NaN where draws are too few); `chain_weight`, by which the
        posterior predicts; `occupied`, the clusters that hold at least one query; and the
        agreement `with_itself`, `with_first` chain and, on average, `with_others`.

    References
    ----------
    .. [1] Hubert, L. and Arabie, P. (1985). Comparing partitions. Journal of Classification 2.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.modes import mode_report
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> mode_report(fit.posterior_)["occupied"].tolist()
    [2]
    """
    given = (comparisons, embeddings)
    pointwise = _group(posterior, "log_likelihood")
    if pointwise is None or "evidence" not in pointwise:
        pointwise = pointwise_log_likelihood(posterior, *given)
    watched = _group(posterior, "invariants")
    if watched is None or "log_density" not in watched:
        watched = invariants(posterior, *given, pointwise)
    density = watched["log_density"].transpose("chain", "draw")
    n_chains, n_draws = density.shape
    if left_out is None and n_draws >= 25:
        left_out = leave_query_out(pointwise["evidence"], pointwise.get("fitted_evidence"))
    last = draw_responsibilities(posterior, *given)
    held = last.argmax(axis=2)
    agreement = np.array([[adjusted_rand_score(a, b) for b in held] for a in held])
    with_itself = np.full(n_chains, np.nan)
    if n_draws > 1:
        earlier = draw_responsibilities(posterior, *given, draw=(n_draws - 1) // 2).argmax(axis=2)
        with_itself = np.array(
            [adjusted_rand_score(a, b) for a, b in zip(earlier, held, strict=True)]
        )
    nothing = np.full(n_chains, np.nan)
    return pd.DataFrame(
        {
            "log_density": density.mean("draw").values,
            "log_density_sd": density.std("draw").values,
            "r_hat": [_split_rhat(chain) for chain in density.values],
            "elpd": nothing if left_out is None else left_out.elpd.sum("query").values,
            "stacking_weight": nothing if left_out is None else stacking_weights(left_out),
            "chain_weight": posterior["constant_data"]["chain_weights"].values,
            "occupied": (last.sum(axis=1) >= 1).sum(axis=1),
            "with_itself": with_itself,
            "with_first": agreement[0],
            "with_others": _off_diagonal_mean(agreement),
        },
        index=pd.Index(density["chain"].values, name="chain"),
    )


def several_solutions(report: pd.DataFrame) -> bool:
    """Whether the chains of a `mode_report` hold different solutions."""
    between, within = report["with_others"].mean(), report["with_itself"].mean()
    return bool(between < SAME_SOLUTION * within)


def _group(posterior: xr.DataTree, name: str) -> xr.Dataset | None:
    if name not in posterior.children:
        return None
    return posterior.children[name].to_dataset(inherit=False)


def _split_rhat(chain: FloatArray) -> float:
    """R-hat between the halves of one chain."""
    if len(chain) < 8 or np.ptp(chain) == 0:
        return float("nan")
    half = len(chain) // 2
    return float(rhat(np.stack([chain[:half], chain[-half:]])))


def _off_diagonal_mean(square: FloatArray) -> FloatArray:
    size = len(square)
    if size == 1:
        return np.full(1, np.nan)
    return (square.sum(axis=1) - square.diagonal()) / (size - 1)
