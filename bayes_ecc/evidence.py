"""How well draws explain the queries they were fitted to, and what weight that gives the chains.

For a draw with weights pi, centroids c and strengths theta, and a query with embedding x and
comparisons y::

    evidence = log p(y | x) = log sum_k r_k(x) prod_n BT(y_n | theta_k),
               r_k(x) = softmax_k(log pi_k + concentration x.c_k)
    joint    = log p(x, y)  = log sum_k pi_k vMF(x; c_k, concentration) prod_n BT(y_n | theta_k)

both with every comparison counted once, whatever power the fit gave it, so that fits of different
settings can be held against each other. The evidence judges: the joint follows the embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.special import gammaln, logsumexp
from tqdm.auto import tqdm

from bayes_ecc.checks import check_count, check_not_negative
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import InputError
from bayes_ecc.inference import log_evidence, mean_win_probability, read_signals, softmax_rows
from bayes_ecc.posterior import Atoms, atoms, identifiers, training_data

type FloatArray = NDArray[np.floating[Any]]

EVIDENCE_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles over queries of the evidence that are watched as functions of the draw."""

# ---------------------------------------------------------------- densities


def log_von_mises_fisher_constant(dim: int, concentration: float) -> float:
    r"""Log normaliser of the von Mises-Fisher density exp(concentration x.c) on the unit sphere.

    .. math:: \log C_d(\kappa) = (d/2 - 1) \log\kappa - (d/2) \log 2\pi - \log I_{d/2-1}(\kappa)

    Summed from the power series of the Bessel function, whose terms are all positive: exact where
    the function itself leaves the range of floating-point numbers.

    Parameters
    ----------
    dim : int
        Dimensions of the embeddings, at least 2.
    concentration : float
        Not negative.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If either is out of range.

    References
    ----------
    .. [1] Mardia, K. V. and Jupp, P. E. (2000). Directional Statistics, section 9.3.2. Wiley.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.evidence import log_von_mises_fisher_constant
    >>> f"{np.exp(-log_von_mises_fisher_constant(3, 0.0)) / np.pi:.6f}"  # 4 pi: the whole sphere
    '4.000000'
    """
    check_count("dim", dim, least=2)
    kappa = check_not_negative("concentration", concentration)
    order = dim / 2 - 1
    # I_v(k) = sum_j (k/2)^(2j+v) / (j! Gamma(j+v+1)); the factor k^v cancels against that of C.
    largest = (math.hypot(order, kappa) - order) / 2
    width = 12 * math.sqrt(largest + 1) + 50
    j = np.arange(max(0, math.floor(largest - width)), math.ceil(largest + width))
    powers = 2 * j * math.log(kappa / 2) if kappa > 0 else np.where(j == 0, 0.0, -np.inf)
    log_series = float(logsumexp(powers - gammaln(j + 1) - gammaln(j + order + 1)))
    return order * math.log(2) - (dim / 2) * math.log(2 * math.pi) - log_series


def log_prior_terms(
    posterior: xr.DataTree,
    *,
    weight_alpha: float | None = None,
    global_scale: float | None = None,
    tau_scale: float | None = None,
    tau: float | None = None,
    tie_margin_scale: float | None = None,
    order_effect_scale: float | None = None,
) -> xr.Dataset:
    """Log prior density of every draw, one variable for each part of the prior.

    Scaling a prior up and down to see what hangs on it makes sense for the settings a user
    chooses (`weights`, `global_strengths`, `tau`), less so for the level in between (`strengths`
    given those), which is as much model as prior: hence the parts.

    Parameters
    ----------
    posterior : xarray.DataTree
        With `tau` and `global_strengths` beside the strengths where these are not fixed.
    weight_alpha : float, optional
        Dirichlet concentration of the cluster weights; None where they are fixed.
    global_scale : float, optional
        Standard deviation of the global strengths; None where they are fixed (at 0, unless the
        posterior holds them).
    tau_scale : float, optional
        Scale of tau's half-normal prior.
    tau : float, optional
        What tau is fixed at; `tau_scale` then says nothing.
    tie_margin_scale, order_effect_scale : float, optional
        Scales of the half-normal prior of the tie margin and of the normal one of the order
        effect; they say nothing where the posterior lacks these.

    Returns
    -------
    xarray.Dataset, dims (chain, draw)
        `strengths`, and `weights`, `global_strengths`, `tau`, `tie_margin`, `order_effect` where
        they are not fixed. The
        centroids' prior is uniform and left out. This is the form of a `log_prior` group.

    Raises
    ------
    InputError
        If tau is neither in the posterior nor fixed.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.evidence import log_prior_terms
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> list(log_prior_terms(fit.posterior_, tau=0.3))
    ['strengths']
    """
    draws = whole_draws(posterior)
    if tau is None and "tau" not in draws:
        raise InputError("The posterior holds no tau; give the value of tau the fit was made with.")
    spread = draws["tau"] if tau is None else xr.full_like(draws["weights"][:, :, 0], tau, float)
    deviations: xr.DataArray = (draws["strengths"] - draws.get("global_strengths", 0.0)) / spread
    half_log_2pi = 0.5 * math.log(2 * math.pi)
    squares = xr.dot(deviations, deviations, dim=("cluster", "llm"))
    size = draws.sizes["cluster"] * draws.sizes["llm"]
    terms = {"strengths": -0.5 * squares - size * (half_log_2pi + np.log(spread))}
    if weight_alpha is not None:
        n_clusters = draws.sizes["cluster"]
        constant = math.lgamma(n_clusters * weight_alpha) - n_clusters * math.lgamma(weight_alpha)
        log_weights = xr.apply_ufunc(np.log, draws["weights"]).sum("cluster")
        terms["weights"] = constant + (weight_alpha - 1) * log_weights
    if global_scale is not None and "global_strengths" in draws:
        squares = ((draws["global_strengths"] / global_scale) ** 2).sum("llm")
        constant = draws.sizes["llm"] * (half_log_2pi + math.log(global_scale))
        terms["global_strengths"] = -0.5 * squares - constant
    if tau_scale is not None and tau is None:
        constant = math.log(2) - half_log_2pi - math.log(tau_scale)
        terms["tau"] = constant - 0.5 * (spread / tau_scale) ** 2
    for name, scale, sides in (
        ("tie_margin", tie_margin_scale, 2),
        ("order_effect", order_effect_scale, 1),
    ):
        if scale is not None and name in draws:
            constant = math.log(sides) - half_log_2pi - math.log(scale)
            terms[name] = constant - 0.5 * (draws[name] / scale) ** 2
    # Coordinates of single dimensions (a cluster's number) have no place here.
    return xr.Dataset({name: term.reset_coords(drop=True) for name, term in terms.items()})


# ---------------------------------------------------------------- a pass over the draws


@dataclass(frozen=True)
class _Training:
    """Training data in the form a pass over the draws needs."""

    source: Atoms
    x: FloatArray
    once: OutcomeCounts
    fitted: OutcomeCounts | None
    compared: NDArray[np.bool_]
    queries: pd.Index
    log_constant: float

    @classmethod
    def read(
        cls,
        posterior: xr.DataTree,
        comparisons: Comparisons | None,
        embeddings: ArrayLike | None,
        dtype: DTypeLike,
    ) -> _Training:
        whole_draws(posterior)
        source = known = atoms(posterior)
        if comparisons is None and embeddings is None:
            comparisons, embeddings = training_data(posterior)
            known = replace(source, projection=None)  # they are kept as the fit projected them
        elif comparisons is None or embeddings is None:
            raise InputError(
                "Give comparisons and their embeddings both, or neither for those of the fit."
            )
        signals = read_signals(known, embeddings=embeddings, probes=comparisons)
        assert signals.embeddings is not None
        assert signals.counts is not None
        once = source.outcome_counts(comparisons)
        power = float(posterior["constant_data"]["evidence_power"])
        fitted = None
        if power != 1 or source.rule != "per_comparison":
            fitted = signals.counts.times(power, dtype)
        return cls(
            source=source,
            x=np.ascontiguousarray(signals.embeddings, dtype=dtype),
            once=once.times(1.0, dtype),
            fitted=fitted,
            compared=comparisons.query_weight > 0,
            queries=comparisons.queries,
            log_constant=log_von_mises_fisher_constant(
                source.centroids.shape[2], source.concentration
            ),
        )

    def embedding_scores(self, s: int) -> FloatArray:
        """Log of pi_k exp(concentration x.c_k), (n_queries, n_clusters), for one atom."""
        directions = self.source.concentration * self.source.centroids[s]
        scores: FloatArray = self.x @ directions.T.astype(self.x.dtype)
        scores += self.source.log_weights[s].astype(self.x.dtype)
        return scores

    def fitted_scores(self, s: int) -> FloatArray:
        """Add the log-likelihood of the comparisons as the fit weighed them."""
        counts = self.once if self.fitted is None else self.fitted
        scores = self.embedding_scores(s)
        scores += log_evidence(self.source.strengths[s], counts, *self.source.margins(s))
        return scores


def pointwise_log_likelihood(
    posterior: xr.DataTree,
    comparisons: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    *,
    dtype: DTypeLike = np.float64,
    progress: bool | None = False,
) -> xr.Dataset:
    """Log evidence and log joint density of every query under every draw.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    comparisons : Comparisons, optional
        By default those of the fit, which it keeps.
    embeddings : array-like, shape (n_queries, embedding_dim), optional
        Row i belongs to `comparisons.queries[i]`.
    dtype : data type
        Precision of the work and the result; 32 bits are half the time and memory and lose less
        than 1e-4 a query.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    xarray.Dataset, dims (chain, draw, query)
        `evidence` = log p(y | x) and `joint` = log p(x, y), each comparison counted once whatever
        the fit did. Where the fit weighed comparisons in another way (an evidence power other than
        1, or means over a query), `fitted_evidence` is the evidence with its weights: what
        importance sampling must take out to leave a query out. Queries without comparisons have no
        evidence and are left out. This is the form of a `log_likelihood` group.

    Raises
    ------
    InputError
        If comparisons and embeddings are not given and not kept, do not fit the posterior, or no
        query has a comparison.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.evidence import pointwise_log_likelihood
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> values = pointwise_log_likelihood(fit.posterior_)
    >>> dict(values.sizes), bool((values["evidence"] < 0).all())
    ({'chain': 1, 'draw': 1, 'query': 60}, True)
    """
    training = _Training.read(posterior, comparisons, embeddings, dtype)
    rows = training.compared
    if not rows.any():
        raise InputError("No query has a comparison, so there is no evidence to compute.")
    names = ["evidence", "joint"] + ([] if training.fitted is None else ["fitted_evidence"])
    values = {name: np.empty((len(training.source), rows.sum()), dtype=dtype) for name in names}
    for s in _steps(len(training.source), progress, "evidence"):
        embedding = training.embedding_scores(s)
        theta, margins = training.source.strengths[s], training.source.margins(s)
        log_embedding = softmax_rows(embedding)[1]
        log_joint = softmax_rows(embedding + log_evidence(theta, training.once, *margins))[1]
        values["evidence"][s] = (log_joint - log_embedding)[rows]
        values["joint"][s] = (log_joint + training.log_constant)[rows]
        if training.fitted is not None:
            embedding += log_evidence(theta, training.fitted, *margins)
            values["fitted_evidence"][s] = (softmax_rows(embedding)[1] - log_embedding)[rows]
    return _labelled(posterior, values, "query", identifiers(training.queries[rows]))


def invariants(
    posterior: xr.DataTree,
    comparisons: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    pointwise: xr.Dataset | None = None,
    *,
    dtype: DTypeLike = np.float64,
    progress: bool | None = False,
) -> xr.Dataset:
    """Functions of a draw that do not care which cluster is called which.

    Convergence is judged by these: strengths and centroids may only trade places.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library. A `log_prior` group is counted in.
    comparisons, embeddings
        As in `pointwise_log_likelihood`.
    pointwise : xarray.Dataset, optional
        `pointwise_log_likelihood` of the same; computed where it is not given.
    dtype : data type
        Precision of the work.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    xarray.Dataset, dims (chain, draw, ...)
        `log_density`: of all queries as the fit weighed them, plus the prior where known.
        `mean_p_best` (llm): the share of the queries on which an LLM has the highest mean win
        probability against the pool, under the responsibilities of the fit.
        `evidence_quantile` (quantile): over queries. And `tau`, `tie_margin`, `order_effect` and
        `global_contrast` (llm, summing to zero) where the posterior has them.

    Raises
    ------
    InputError
        As `pointwise_log_likelihood` says.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.evidence import invariants
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> values = invariants(fit.posterior_)
    >>> round(float(values["mean_p_best"].sum()), 9)
    1.0
    """
    training = _Training.read(posterior, comparisons, embeddings, dtype)
    if pointwise is None:
        pointwise = pointwise_log_likelihood(
            posterior, comparisons, embeddings, dtype=dtype, progress=progress
        )
    n_atoms, n_models = len(training.source), len(training.source.models)
    log_density = np.empty(n_atoms)
    best = np.empty((n_atoms, n_models))
    for s in _steps(n_atoms, progress, "invariants"):
        shares, log_joint = softmax_rows(training.fitted_scores(s))
        log_density[s] = log_joint.sum(dtype=float) + len(shares) * training.log_constant
        tie_margin = training.source.tie_margin_of(s)
        wins = mean_win_probability(training.source.strengths[s], tie_margin).astype(dtype)
        by_query = wins.T @ shares.T  # (n_models, n_queries): long rows reduce fast
        leads = by_query >= by_query.max(axis=0)
        best[s] = (leads / leads.sum(axis=0)).mean(axis=1)
    values = {"log_density": log_density, "mean_p_best": best}
    result = _labelled(posterior, values, "llm", identifiers(training.source.models))
    if "log_prior" in posterior.children:
        prior = posterior.children["log_prior"].to_dataset(inherit=False)
        result["log_density"] = result["log_density"] + sum(prior.data_vars.values())
    quantiles = pointwise["evidence"].astype(float).quantile(EVIDENCE_QUANTILES, dim="query")
    result["evidence_quantile"] = quantiles.transpose("chain", "draw", "quantile")
    draws = whole_draws(posterior)
    if "tau" in draws:
        result["tau"] = draws["tau"].transpose("chain", "draw")
    for name in ("tie_margin", "order_effect"):
        if name in draws:
            result[name] = draws[name].transpose("chain", "draw")
    if "global_strengths" in draws:
        centre = draws["global_strengths"].transpose("chain", "draw", "llm")
        result["global_contrast"] = centre - centre.mean("llm")
    return result


def draw_responsibilities(
    posterior: xr.DataTree,
    comparisons: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    *,
    draw: int = -1,
) -> FloatArray:
    """Responsibilities of the training queries at one draw of every chain, as the fit has them.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    comparisons, embeddings
        As in `pointwise_log_likelihood`.
    draw : int
        Position of the draw; the last by default.

    Returns
    -------
    ndarray, shape (n_chains, n_queries, n_clusters)

    Raises
    ------
    InputError
        As `pointwise_log_likelihood` says.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.evidence import draw_responsibilities
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> draw_responsibilities(fit.posterior_).shape
    (1, 60, 2)
    """
    training = _Training.read(posterior, comparisons, embeddings, np.float64)
    n_draws = whole_draws(posterior).sizes["draw"]
    positions = np.arange(len(training.source)).reshape(-1, n_draws)[:, draw]
    return np.stack([softmax_rows(training.fitted_scores(s))[0] for s in positions])


# ---------------------------------------------------------------- helpers


def whole_draws(posterior: xr.DataTree) -> xr.Dataset:
    """Give the group posterior of a container, or refuse one without chains or draws.

    Raises
    ------
    InputError
        If it is no posterior, or has lost one of the two dimensions.
    """
    atoms(posterior)
    draws = posterior.children["posterior"].to_dataset(inherit=False)
    lost = [name for name in ("chain", "draw") if name not in draws.dims]
    if lost:
        raise InputError(
            f"The posterior has no dimension {lost[0]!r} left; select with a list, as in "
            f"isel({lost[0]}=[0]), to keep it."
        )
    return draws


def _steps(n: int, progress: bool | None, what: str) -> tqdm[int]:
    hidden = None if progress is None else not progress
    return tqdm(range(n), desc=what, unit="draw", disable=hidden, leave=False)


def _labelled(
    posterior: xr.DataTree, values: Mapping[str, FloatArray], axis: str, labels: NDArray[Any]
) -> xr.Dataset:
    """Put rows, one an atom, back into chains and draws; a second axis is called `axis`."""
    draws = whole_draws(posterior)
    sizes = tuple(draws.sizes[name] for name in ("chain", "draw"))
    coords = {name: draws[name].values for name in ("chain", "draw") if name in draws.coords}
    variables = {
        name: (
            ("chain", "draw", *[axis] * (array.ndim - 1)),
            array.reshape(*sizes, *array.shape[1:]),
        )
        for name, array in values.items()
    }
    return xr.Dataset(variables, coords={**coords, axis: labels})
