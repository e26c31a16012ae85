"""Named checks of a posterior, with figures and a verdict in plain words, kept with the fit.

Convergence is judged by what does not depend on the numbering of clusters: total log density, tau,
global contrasts, each model's share of first places, and quantiles of the evidence. Strengths and
centroids are judged only where chains have been matched cluster by cluster.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.evidence import (
    draw_responsibilities,
    invariants,
    pointwise_log_likelihood,
    whole_draws,
)
from bayes_ecc.modes import mode_report, several_solutions
from bayes_ecc.posterior import training_data
from bayes_ecc.posterior_checks import (
    FAIL,
    NOT_APPLICABLE,
    OK,
    WARN,
    Check,
    check_approximation,
    check_clusters,
    check_contrasts,
    check_convergence,
    check_divergences,
    check_modes,
    check_pareto_k,
    check_prior,
    moving,
    not_applicable,
)
from bayes_ecc.stacking import MIN_DRAWS, leave_query_out


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What the checks of a posterior found; from `diagnose`.

    Attributes
    ----------
    table : pandas.DataFrame
        Index `check`; columns `value`, `figures`, `threshold`, `verdict` ("ok", "warn", "fail" or
        "not applicable"), `meaning` and `remedy`.
    modes : pandas.DataFrame
        One row a chain, from `mode_report`; without rows where there was nothing to compare.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.diagnostics import diagnose
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> diagnosis = diagnose(fit.posterior_)
    >>> diagnosis.failed, diagnosis.table.loc["rhat", "verdict"]
    ([], 'not applicable')
    """

    table: pd.DataFrame
    modes: pd.DataFrame

    @property
    def ok(self) -> bool:
        """Whether no check failed and none warns."""
        return not self.failed and not self.warned

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return self._named(FAIL)

    @property
    def warned(self) -> list[str]:
        """Names of the checks that warn."""
        return self._named(WARN)

    def _named(self, verdict: str) -> list[str]:
        return self.table.index[self.table["verdict"] == verdict].tolist()

    def __str__(self) -> str:
        lines = [self._headline()]
        for verdict in (FAIL, WARN, OK, NOT_APPLICABLE):
            for name in self._named(verdict):
                row = self.table.loc[name]
                if verdict == NOT_APPLICABLE:
                    lines.append(f"  -     {name}: {row['meaning']}")
                    continue
                lines.append(f"  {verdict:<5} {name}: {row['figures']} ({row['threshold']})")
                if verdict != OK:
                    lines += _wrapped(row["meaning"]) + _wrapped(row["remedy"], "-> ")
        return "\n".join(lines)

    __repr__ = __str__

    def _headline(self) -> str:
        counts = {name: len(self._named(name)) for name in (FAIL, WARN, OK)}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"Diagnosis: {told or 'no check applies'}"

    def _repr_html_(self) -> str:
        tables = self.table.drop(columns="value").to_html()
        if len(self.modes):
            tables += self.modes.to_html(float_format="{:.4g}".format)
        return f"<div><p>{html.escape(self._headline())}</p>{tables}</div>"


def diagnose(
    posterior: xr.DataTree,
    comparisons: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    *,
    rhat: float = 1.01,
    ess: float = 400,
    sensitivity: float = 0.05,
    min_wins: float = 0.5,
    progress: bool | None = False,
) -> Diagnosis:
    """Check a posterior: did chains agree, is there enough of them, and what do they rest on.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library. Its groups invariants, log_likelihood, log_prior and
        sample_stats are used where they are there; the first two are computed otherwise.
    comparisons, embeddings : optional
        By default those of the fit, which it keeps; without any, some checks do not apply.
    rhat : float
        Largest rank-normalised split r-hat allowed [1]_; up to five times the excess is a warning,
        more a failure.
    ess : float
        Smallest effective sample size allowed, in the bulk and in the tails, over all chains [1]_;
        down to a quarter is a warning, less a failure. The Monte Carlo error of a mean follows:
        1 / sqrt(ess) posterior standard deviations.
    sensitivity : float
        Largest power-scaling sensitivity to the prior that is not worth a warning [2]_.
    min_wins : float
        Wins, weighted by a cluster's responsibilities, that count as evidence on a pair of models.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    Diagnosis
        `rhat`, `ess_bulk`, `ess_tail`, `mcse` (all of the invariants); `clusters` (r-hat of
        strengths and centroids, chains matched); `modes` (whether chains hold one solution);
        `pareto_k` (can queries be left out without a new fit); `divergences`; `contrasts` (which
        differences only the prior knows); `prior_sensitivity`; `approximation`.

    Raises
    ------
    InputError
        If this is no posterior, or the data do not fit it.

    References
    ----------
    .. [1] Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. and Bürkner, P.-C. (2021).
       Rank-normalization, folding, and localization: an improved R-hat for assessing convergence
       of MCMC. Bayesian Analysis 16(2).
    .. [2] Kallioinen, N., Paananen, T., Bürkner, P.-C. and Vehtari, A. (2024). Detecting and
       diagnosing prior and likelihood sensitivity with power-scaling. Statistics and Computing 34.

    Examples
    --------
    >>> from bayes_ecc import BayesianECC, simulate
    >>> from bayes_ecc.diagnostics import diagnose
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=3, rng=0)
    >>> fit = BayesianECC(
    ...     n_clusters=3, concentration=6.0, probe_power=3.0, chains=2, tune=50, draws=50,
    ...     checks=False, cores=1, rng=0,
    ... ).fit(data.comparisons, data.embeddings)
    >>> diagnose(fit.posterior_).table.loc["ess_bulk", "verdict"]
    'fail'
    """
    sampled = whole_draws(posterior).sizes["draw"] >= MIN_DRAWS
    known = comparisons is not None or "observed_data" in posterior.children
    given: dict[str, Any] = {"comparisons": comparisons, "embeddings": embeddings}
    if known and sampled:
        posterior = _completed(posterior, given, progress)
    pointwise, watched = _pointwise(posterior), _group(posterior, "invariants")
    left_out, modes = None, pd.DataFrame()
    if sampled and pointwise is not None:
        left_out = leave_query_out(pointwise["evidence"], pointwise.get("fitted_evidence"))
    if sampled and known:
        modes = mode_report(posterior, **given, left_out=left_out)
    several = len(modes) > 1 and several_solutions(modes)
    quantities = moving(watched) if sampled and watched is not None else None
    contrasts = not_applicable("contrasts", "The training comparisons are not at hand.")
    if known:
        data = training_data(posterior)[0] if comparisons is None else comparisons
        contrasts = check_contrasts(data, draw_responsibilities(posterior, **given), min_wins)
    checks = [
        *check_convergence(quantities, rhat, ess, several),
        check_clusters(posterior, rhat, several),
        check_modes(modes, several),
        check_divergences(_group(posterior, "sample_stats")),
        check_approximation(posterior),
        check_pareto_k(left_out),
        contrasts,
        check_prior(quantities, _group(posterior, "log_prior"), sensitivity),
    ]
    table = pd.DataFrame(checks, columns=list(Check._fields)).set_index("name")
    return Diagnosis(table.rename_axis("check"), modes)


# ---------------------------------------------------------------- keeping it with the fit


def attach(posterior: xr.DataTree, diagnosis: Diagnosis) -> xr.DataTree:
    """Put a diagnosis into a posterior: the group diagnostics, and the attribute failed_checks.

    Parameters
    ----------
    posterior : xarray.DataTree
        It is not changed.
    diagnosis : Diagnosis
        From `diagnose`.

    Returns
    -------
    xarray.DataTree
        With the names of failed and warning checks, separated by commas, as its attributes
        `failed_checks` and `warned_checks`.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.diagnostics import attach, diagnose, stored_diagnosis
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> tree = attach(fit.posterior_, diagnose(fit.posterior_))
    >>> tree.attrs["failed_checks"], stored_diagnosis(tree).failed
    ('', [])
    """
    columns: dict[str, Any] = {}
    for name in Check._fields[1:]:
        values = diagnosis.table[name]
        columns[name] = ("check", values.to_numpy(dtype=float if name == "value" else object))
    coords: dict[str, Any] = {"check": diagnosis.table.index.to_numpy(dtype=object)}
    if len(diagnosis.modes):
        coords["chain"] = diagnosis.modes.index.to_numpy()
        columns |= {f"mode_{name}": ("chain", diagnosis.modes[name]) for name in diagnosis.modes}
    tree = _with_groups(posterior, {"diagnostics": xr.Dataset(columns, coords=coords)})
    tree.attrs["failed_checks"] = ",".join(diagnosis.failed)
    tree.attrs["warned_checks"] = ",".join(diagnosis.warned)
    return tree


def stored_diagnosis(posterior: xr.DataTree) -> Diagnosis:
    """Read the diagnosis that was put into a posterior.

    Parameters
    ----------
    posterior : xarray.DataTree
        As fitted, or loaded from a file.

    Returns
    -------
    Diagnosis

    Raises
    ------
    InputError
        If it holds none.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.diagnostics import attach, diagnose, stored_diagnosis
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> stored_diagnosis(attach(fit.posterior_, diagnose(fit.posterior_))).modes.empty
    True
    """
    stored = _group(posterior, "diagnostics")
    if stored is None:
        raise InputError("The posterior holds no diagnosis; diagnose(posterior) makes one.")
    table = pd.DataFrame(
        {name: stored[name].values for name in Check._fields[1:]},
        index=pd.Index(stored["check"].values.tolist(), name="check"),
    )
    names = [name for name in stored.data_vars if str(name).startswith("mode_")]
    modes = pd.DataFrame()
    if names:
        columns = {str(name).removeprefix("mode_"): stored[name].values for name in names}
        chains = np.atleast_1d(stored["chain"].values)
        modes = pd.DataFrame(columns, index=pd.Index(chains, name="chain"))
    return Diagnosis(table, modes)


# ---------------------------------------------------------------- helpers


def _group(posterior: xr.DataTree, name: str) -> xr.Dataset | None:
    if name not in posterior.children:
        return None
    return posterior.children[name].to_dataset(inherit=False)


def _pointwise(posterior: xr.DataTree) -> xr.Dataset | None:
    """Give the log-likelihoods, if they are ours."""
    found = _group(posterior, "log_likelihood")
    return None if found is None or "evidence" not in found else found


def _completed(posterior: xr.DataTree, given: dict[str, Any], progress: bool | None) -> xr.DataTree:
    """Compute what is watched where it was not kept; 32 bits are plenty for checks."""
    how: dict[str, Any] = {"dtype": np.float32, "progress": progress, **given}
    found: dict[str, xr.Dataset] = {}
    pointwise = _pointwise(posterior)
    if pointwise is None:
        pointwise = found["log_likelihood"] = pointwise_log_likelihood(posterior, **how)
    if "invariants" not in posterior.children:
        found["invariants"] = invariants(posterior, pointwise=pointwise, **how)
    return _with_groups(posterior, found)


def _with_groups(posterior: xr.DataTree, groups: dict[str, xr.Dataset]) -> xr.DataTree:
    """Give a posterior with further groups; its own arrays are shared, not copied."""
    return xr.DataTree.from_dict({**posterior.to_dict(), **{f"/{k}": v for k, v in groups.items()}})


def _wrapped(text: str, mark: str = "") -> list[str]:
    indent = " " * 8
    return textwrap.wrap(
        text, 100, initial_indent=indent + mark, subsequent_indent=indent + " " * len(mark)
    )
