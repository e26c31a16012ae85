"""The checks of a diagnosis, one function each: figures in, a verdict in plain words out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import arviz_stats  # noqa: F401  (registers the accessor azstats)
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import contrast_status
from bayes_ecc.modes import SAME_SOLUTION
from bayes_ecc.stacking import MIN_DRAWS, LeaveQueryOut

type FloatArray = NDArray[np.floating[Any]]

OK, WARN, FAIL, NOT_APPLICABLE = "ok", "warn", "fail", "not applicable"
"""Verdicts."""

_SAMPLE = ["chain", "draw"]
_NEGLIGIBLE_SHARE = 0.005  # of first places: models that are next to never best need no check
_HYPERPRIORS = ("tau", "global_strengths", "weights")
_SENSITIVE = ("tau", "global_contrast", "mean_p_best")
_POWERS = (0.99, 1.01)  # to which the prior is raised, as in ArviZ
_SHIFTS = 8
_BAD_K = (0.01, 0.1)  # shares of queries: a warning above the first, a failure above the second
_DIVERGENT = 0.01  # share of transitions above which divergences are a failure
_SEPARATED = 0.05  # share of contrasts


class Check(NamedTuple):
    """One check of a `Diagnosis`.

    Attributes
    ----------
    name : str
    value : float
        The figure that decides; NaN where there is none.
    figures : str
        The same and its companions.
    threshold : str
        What is allowed.
    verdict : {"ok", "warn", "fail", "not applicable"}
    meaning : str
        What that means for which use of the posterior.
    remedy : str
        What can be done; empty where nothing needs to be.

    Examples
    --------
    >>> from bayes_ecc.posterior_checks import Check
    >>> Check("rhat", 1.0, "tau 1.000", "at most 1.01", "ok", "Chains agree.", "").verdict
    'ok'
    """

    name: str
    value: float
    figures: str
    threshold: str
    verdict: str
    meaning: str
    remedy: str


def not_applicable(name: str, why: str) -> Check:
    """Give a check that has nothing to look at."""
    return Check(name, math.nan, "", "", NOT_APPLICABLE, why, "")


# ---------------------------------------------------------------- chains


def check_convergence(
    quantities: xr.DataArray | None, rhat: float, ess: float, several: bool
) -> list[Check]:
    """Check r-hat, ESS and the Monte Carlo error of quantities that know no numbering."""
    if quantities is None or not quantities.sizes["quantity"]:
        why = f"There are fewer than {MIN_DRAWS} draws a chain, or nothing moves."
        return [not_applicable(name, why) for name in ("rhat", "ess_bulk", "ess_tail", "mcse")]
    with _quiet():
        stats = quantities.azstats
        bulk = stats.ess(sample_dims=_SAMPLE, method="bulk").fillna(0)
        tail = stats.ess(sample_dims=_SAMPLE, method="tail").fillna(0)
        error = stats.mcse(sample_dims=_SAMPLE, method="mean") / quantities.std(_SAMPLE, ddof=1)
        error = error.fillna(np.inf)
    limit = 1 / math.sqrt(ess)
    least = max(float(min(bulk.min(), tail.min())), 1.0)
    draw_more = f"Draw about {max(math.ceil(ess / least), 2)} times as much."
    if several:
        draw_more = "See modes first: no length of chain brings several solutions together."
    return [
        _check_rhat(quantities, rhat, several),
        _graded(
            Check(
                "ess_bulk",
                float(bulk.min()),
                _by_variable(bulk, ".0f", low_first=True),
                f"at least {ess:g}",
                _grade(-float(bulk.min()), -ess, -ess / 4),
                "Means and medians rest on few independent draws; differences between close models "
                "may be the sampler's.",
                draw_more,
            ),
            "There are enough independent draws for means.",
        ),
        _graded(
            Check(
                "ess_tail",
                float(tail.min()),
                _by_variable(tail, ".0f", low_first=True),
                f"at least {ess:g}",
                _grade(-float(tail.min()), -ess, -ess / 4),
                "The ends of intervals, rank intervals among them, would move in another run.",
                draw_more,
            ),
            "There are enough independent draws for the ends of intervals.",
        ),
        _graded(
            Check(
                "mcse",
                float(error.max()),
                _by_variable(error, ".3f"),
                f"at most {limit:.3g} posterior sd",
                _grade(float(error.max()), limit, 2 * limit),
                "Another run would give other means, by this share of a posterior standard "
                "deviation (by more, where chains disagree).",
                draw_more,
            ),
            "Sampling adds next to nothing to the error of a mean.",
        ),
    ]


def _check_rhat(quantities: xr.DataArray, allowed: float, several: bool) -> Check:
    found = _rhat(quantities)
    worst = float(found.max())
    grade = _grade(worst, allowed, 1 + 5 * (allowed - 1))
    concerned = _names(found["variable"].values[found.values > allowed])
    calm = "What does not depend on the numbering of clusters is the same in all chains."
    if quantities.sizes["chain"] == 1:
        calm = "The halves of the chain agree; whether others would, one chain can't tell."
    meaning = (
        "Chains do not agree yet. Averages over draws, predictions among them, are rough, and "
        "intervals may be too narrow."
    )
    remedy = "Raise tune and draws; if that changes nothing, take fewer clusters."
    if grade == WARN:
        meaning = f"Chains nearly agree; intervals of {concerned} may be a little too narrow."
        remedy = "Draw more, if these are to be reported."
    if several:
        meaning = (
            "Chains hold different solutions. Predictions average them by chain weight and can be "
            "used, as held-out gain and calibration tell; intervals span the solutions found and "
            "may miss others; rank intervals within a cluster hold within one chain."
        )
        remedy = (
            "Take more chains from independent starts, each a solution to weigh; longer chains "
            "only settle each in its own."
        )
    check = Check(
        "rhat", worst, _by_variable(found, ".3f"), f"at most {allowed:g}", grade, meaning, remedy
    )
    return _graded(check, calm)


def check_clusters(posterior: xr.DataTree, allowed: float, several: bool) -> Check:
    """Check r-hat of strengths and centroids where chains were matched cluster by cluster."""
    draws = posterior.children["posterior"].to_dataset(inherit=False)
    if not int(posterior.attrs.get("clusters_matched", 0)):
        why = "Chains are not matched cluster by cluster; read clusters off one chain at a time."
        return not_applicable("clusters", why)
    if draws.sizes.get("draw", 1) < MIN_DRAWS:
        return not_applicable("clusters", f"There are fewer than {MIN_DRAWS} draws a chain.")
    contrasts = draws["strengths"] - draws["strengths"].mean("llm")
    quantities = moving(xr.Dataset({"strengths": contrasts, "centroids": draws["centroids"]}))
    found = _rhat(quantities)
    worst = float(found.max()) if found.size else 1.0
    meaning = (
        "Chains hold the same clusters, but some of these figures wander slowly (strengths whose "
        "size comparisons leave open do): their intervals are rough. Predictions hardly depend on "
        "them."
    )
    remedy = "Draw more; see contrasts."
    if several:
        meaning = (
            "Matched clusters are not the same in all chains: strengths and rank intervals of the "
            "clusters concerned are of a blend. Predictions for a query do not depend on it."
        )
        remedy = "Read clusters off one chain at a time, or take fewer clusters."
    check = Check(
        "clusters",
        worst,
        _by_variable(found, ".3f"),
        f"at most {allowed:g}",
        _grade(worst, allowed, 1 + 5 * (allowed - 1)),
        meaning,
        remedy,
    )
    return _graded(
        check, "Ranks and strengths within a cluster can be read off all chains together."
    )


def check_modes(modes: pd.DataFrame, several: bool) -> Check:
    """Say whether chains hold one solution or several."""
    if len(modes) < 2:
        why = "It takes two chains and the training data to compare solutions."
        return not_applicable("modes", why)
    between, within = modes["with_others"].mean(), modes["with_itself"].mean()
    spread = modes["elpd"].max() - modes["elpd"].min()
    check = Check(
        "modes",
        float(between / within) if within else math.nan,
        f"adjusted Rand index {between:.2f} between chains, {within:.2f} within",
        f"between at least {SAME_SOLUTION:g} of within",
        WARN if several else OK,
        f"The chains hold several solutions, {spread:.0f} nats of left-out evidence from best to "
        "worst. That is a fact of the data and not to be hidden: predictions weigh the solutions, "
        "and what a chain says of its clusters is one solution's.",
        "Keep them, with stacking weights; more independent chains find more solutions, fewer "
        "clusters or a smaller concentration leave fewer.",
    )
    return _graded(check, "All chains found the same clusters.")


def check_divergences(stats: xr.Dataset | None) -> Check:
    """Count divergent transitions of a gradient-based sampler."""
    if stats is None or "diverging" not in stats:
        return not_applicable("divergences", "The sampler has no trajectories that could diverge.")
    diverging = stats["diverging"].values.astype(bool)
    count, share = int(diverging.sum()), float(diverging.mean())
    check = Check(
        "divergences",
        share,
        f"{count} of {diverging.size} transitions",
        "none",
        _grade(share, 0.0, _DIVERGENT),
        "The sampler could not enter a part of the posterior; intervals may be too narrow.",
        "Use the Gibbs sampler, which has no trajectories, or raise target_accept.",
    )
    return _graded(check, "No trajectory was given up.")


def check_approximation(posterior: xr.DataTree) -> Check:
    """Mark what is not drawn from the posterior itself."""
    if "approximate" not in posterior.attrs:
        return not_applicable("approximation", "The estimator does not sample.")
    approximate = int(posterior.attrs["approximate"])
    check = Check(
        "approximation",
        float(approximate),
        f"drawn by {posterior.attrs.get('sampler', 'an unnamed sampler')}",
        "an exact sampler",
        WARN if approximate else OK,
        "Draws are from an approximation that ignores how parameters hang together: intervals are "
        "too narrow, and the other checks can't see it.",
        "Use the Gibbs sampler for anything that is to be reported.",
    )
    return _graded(check, "Draws are from the posterior itself.")


# ---------------------------------------------------------------- what the posterior rests on


def check_pareto_k(left_out: LeaveQueryOut | None) -> Check:
    """Check whether queries can be left out by importance sampling."""
    if left_out is None:
        why = f"There is no log-likelihood of at least {MIN_DRAWS} draws a chain."
        return not_applicable("pareto_k", why)
    share, largest = left_out.share_bad, float(left_out.pareto_k.max())
    check = Check(
        "pareto_k",
        share,
        f"{share:.1%} of queries above {left_out.good_k:.2f}, largest {largest:.2f}",
        f"at most {_BAD_K[0]:.0%}",
        _grade(share, *_BAD_K),
        "Leaving these queries out by importance sampling is unreliable: LOO, model comparison and "
        "stacking weights are rough. Predictions for new queries are untouched.",
        "Draw more, or compare fits by held-out gain on a split.",
    )
    return _graded(check, "LOO, model comparison and stacking weights can be relied on.")


def check_contrasts(
    comparisons: Comparisons, responsibilities: FloatArray, min_wins: float
) -> Check:
    """Find differences of strengths that comparisons leave to the prior, in each cluster.

    Responsibilities are (n_chains, n_queries, n_clusters), of one draw a chain.
    """
    models, counts = comparisons.models, comparisons.outcome_counts()
    upper = np.triu_indices(len(models), k=1)
    pooled = np.asarray(counts.matrix.sum(axis=0)).ravel()
    apart = int((contrast_status(pooled, counts, len(models))[upper] == 2).sum())
    found, worst, example = [], (0, 0), ""
    for chain, held in enumerate(responsibilities):
        wins = (counts.matrix.T @ held).T
        for cluster in np.flatnonzero(held.sum(axis=0) >= 1):
            used = np.where(wins[cluster] >= min_wins, wins[cluster], 0.0)
            status = contrast_status(used, counts, len(models))[upper]
            found.append(status)
            open_pairs = np.flatnonzero(status == status.max())
            size = (int(status.max()), len(open_pairs))
            if size > worst and size[0] > 0:
                first, second = (models[axis[open_pairs[0]]] for axis in upper)
                worst = size
                example = f"; most in cluster {cluster} of chain {chain}: {first} and {second}"
    statuses = np.array(found)
    undetermined, separated = float((statuses == 2).mean()), float((statuses == 1).mean())
    figures = f"{separated:.0%} known by sign only, {undetermined:.1%} not at all{example}"
    allowed = f"at most {_SEPARATED:.0%} by sign only, none not at all"
    if apart:
        return Check(
            "contrasts",
            undetermined + separated,
            f"{apart} pairs of models are connected by no comparisons; {figures}",
            allowed,
            FAIL,
            "Some models can't be ranked against one another by these data, in any cluster: their "
            "differences, and intervals of these, are the prior's.",
            "Add comparisons between the groups of models, or drop models.",
        )
    check = Check(
        "contrasts",
        undetermined + separated,
        figures,
        allowed,
        WARN if undetermined > 0 or separated > _SEPARATED else OK,
        "Within clusters, these differences owe their size, or all they are, to partial pooling "
        "and the prior: who is stronger may be known, by how much is not. Read ranks and win "
        "probabilities rather than strengths; predictions average over it.",
        "Add comparisons of these pairs, or take fewer clusters.",
    )
    return _graded(check, "Comparisons inform every difference within clusters.")


def check_prior(quantities: xr.DataArray | None, prior: xr.Dataset | None, allowed: float) -> Check:
    """Raise the prior to powers around 1 and see what moves, beyond what noise would."""
    name = "prior_sensitivity"
    if quantities is None or prior is None:
        return not_applicable(name, "There is no log prior of enough draws.")
    parts = [part for part in _HYPERPRIORS if part in prior] or [str(part) for part in prior]
    log_prior = prior[parts].to_array().sum("variable").transpose(*_SAMPLE)
    chosen = quantities[np.isin(quantities["variable"], _SENSITIVE)]
    if not chosen.sizes["quantity"] or not np.ptp(log_prior.values):
        return not_applicable(name, "Nothing moves that a prior is set for.")
    with _quiet():
        found = power_scaling_sensitivity(chosen, log_prior)
        # With the prior out of step by a part of each chain, what is found is noise.
        steps = np.linspace(0, log_prior.sizes["draw"], _SHIFTS + 2)[1:-1].astype(int)
        shifted = [power_scaling_sensitivity(chosen, log_prior.roll(draw=int(s))) for s in steps]
    noise = xr.concat(shifted, dim="shift").max("shift")
    beyond = found.where(found > noise, 0.0)
    moved = _names(found["variable"].values[beyond.values > allowed])
    check = Check(
        name,
        float(beyond.max()),
        f"{_by_variable(found, '.2f')} (noise up to {float(noise.max()):.2f}); prior of "
        f"{', '.join(parts)}",
        f"at most {allowed:g}, or noise",
        WARN if float(beyond.max()) > allowed else OK,
        f"Another prior would move {moved}. tau and global contrasts are informed by as many cases "
        "as there are clusters; within clusters comparisons decide. If mean_p_best moves, so do "
        "rankings.",
        "Say so beside the results, and fit again with half and twice the prior scales.",
    )
    return _graded(check, "A somewhat weaker or stronger prior would give the same.")


def power_scaling_sensitivity(quantities: xr.DataArray, log_prior: xr.DataArray) -> xr.DataArray:
    """Sensitivity of each quantity to raising the prior to a power, as `arviz.psense` has it."""
    weights: dict[str, Any] = {}
    for side, power in zip(("lower", "upper"), _POWERS, strict=True):
        weight = np.exp(log_prior.azstats.power_scale_lw(alpha=power, dim=_SAMPLE))
        weights |= {f"{side}_w": weight / weight.sum(), f"{side}_alpha": power}
    return quantities.azstats.power_scale_sense(**weights, sample_dims=_SAMPLE)


# ---------------------------------------------------------------- helpers


def moving(dataset: xr.Dataset) -> xr.DataArray:
    """Lay out what moves as one array (quantity, chain, draw), with the variable each is from."""
    rows, labels, variables = [], [], []
    for name, array in dataset.data_vars.items():
        others = [dim for dim in array.dims if dim not in _SAMPLE]
        values = array.transpose(*others, *_SAMPLE).values.astype(float)
        places = product(*(array[dim].values.tolist() for dim in others))
        for row, place in zip(values.reshape(-1, *values.shape[-2:]), places, strict=True):
            rare = name == "mean_p_best" and row.mean() < _NEGLIGIBLE_SHARE
            if np.ptp(row) > 0 and not rare:
                rows.append(row)
                labels.append(f"{name}[{', '.join(map(str, place))}]" if place else str(name))
                variables.append(str(name))
    shape = tuple(dataset.sizes[dim] for dim in _SAMPLE)
    return xr.DataArray(
        np.array(rows).reshape(-1, *shape),
        dims=("quantity", *_SAMPLE),
        coords={
            "quantity": np.array(labels, dtype=object),
            "variable": ("quantity", np.array(variables, dtype=object)),
        },
    )


def _rhat(quantities: xr.DataArray) -> xr.DataArray:
    """Compute r-hat; of a single chain, between its halves."""
    if quantities.sizes["chain"] == 1:
        half = quantities.sizes["draw"] // 2
        halves = [quantities.isel(draw=slice(half)), quantities.isel(draw=slice(-half, None))]
        quantities = xr.concat(
            [part.drop_vars("draw", errors="ignore") for part in halves], "chain"
        )
    with _quiet():
        return quantities.azstats.rhat(sample_dims=_SAMPLE).fillna(np.inf)


def _grade(value: float, allowed: float, tolerated: float) -> str:
    return OK if value <= allowed else WARN if value <= tolerated else FAIL


def _graded(check: Check, calm: str) -> Check:
    """Say the calm thing where all is well."""
    return check._replace(meaning=calm, remedy="") if check.verdict == OK else check


def _by_variable(figures: xr.DataArray, form: str, *, low_first: bool = False) -> str:
    """Give the worst figure of every variable, the worst variable first."""
    order = figures.values.argsort(kind="stable")
    seen: dict[str, str] = {}
    for position in order if low_first else order[::-1]:
        label, value = figures["quantity"].values[position], figures.values[position]
        seen.setdefault(figures["variable"].values[position], f"{label} {value:{form}}")
    return ", ".join(seen.values())


def _names(variables: Iterable[Any]) -> str:
    return ", ".join(sorted(set(map(str, variables))))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep warnings on degenerate chains to ourselves: they end in a verdict."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
