"""Measures of structure draw by draw, and what a posterior says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.bradley_terry import PairLayout
from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_rows
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.errors import InputError
from bayes_ecc.inference import iterate_responsibilities, read_signals
from bayes_ecc.intervals import Interval, choose_interval, equally_weighted, sorted_interval
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.structure.drawn import (
    ASSIGNMENTS,
    DRAWS,
    Assignment,
    DrawnPartitions,
    assign,
    posterior_of,
)
from bayes_ecc.structure.indices import (
    adjusted_rand,
    kendall_tau,
    normalized_mutual_information,
    one_hot,
    self_pairs,
)
from bayes_ecc.structure.partitions import PartitionLike, read_partition, shares_of
from bayes_ecc.structure.profiles import fold_taus, summarize_pairs, swap_losses
from bayes_ecc.summaries import IntervalKind, summary_attrs

type FloatArray = NDArray[np.floating[Any]]
type PosteriorLike = xr.DataTree | PosteriorPredictions


def structure_draws(
    posterior: PosteriorLike,
    *,
    labels: PartitionLike | None = None,
    held_out: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    assignment: Assignment = "most_responsible",
    folds: int = 5,
    repeats: int = 1,
    ridge: float = 1.0,
    draws: int | None = DRAWS,
    rng: RandomState = None,
) -> xr.Dataset:
    """Measure the structure that every single draw of a posterior has.

    Each draw makes a partition of the training queries and has profiles of its own; the measures
    know nothing of how its clusters are numbered.

    Parameters
    ----------
    posterior : xarray.DataTree or fit
        From any estimator of this library; with its training data, as fits have it.
    labels : optional
        A partition of the training queries to compare with, anything `read_partition` reads.
    held_out : Comparisons, optional
        Comparisons to measure the cross-cluster gap on; by default those of the fit, which flatter
        it.
    embeddings, probes : optional
        What is known of the queries of `held_out`, as in `predict_responsibilities`.
    assignment : {"most_responsible", "drawn"}
        Whether a draw puts each query into its most responsible cluster, or into one drawn by
        responsibility. The second is the posterior of the partition; the first is what the
        measures of a single fit are made of.
    folds, ridge
        As in `within_cluster_tau`.
    repeats : int
        Cuts into folds for each draw; 0 leaves `within_cluster_tau`, which takes the most time,
        out.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced; None uses all.
    rng : int, numpy.random.Generator or None
        Randomness of the cuts and of drawn partitions.

    Returns
    -------
    xarray.Dataset, dims (chain, draw)
        `occupied_clusters`, those that hold a query; `effective_clusters`, exp of the entropy of
        their sizes; `profile_tau` with `profile_tau_lower_quartile`, `_median`, `_upper_quartile`:
        Kendall's tau over pairs of occupied clusters; `within_cluster_tau`; `cross_cluster_gap`;
        with labels `adjusted_rand` and `normalized_mutual_information`. Missing where a draw has
        no such thing. ArviZ summarises and plots it as any group of draws.

    Raises
    ------
    InputError
        If the posterior lacks its training data, or something does not fit it.

    Warns
    -----
    DataWarning
        If checks of the fit failed, or queries have no label.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.structure import structure_draws
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=2, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> found = structure_draws(fit, labels=data.labels, rng=0)
    >>> dict(found.sizes), int(found["occupied_clusters"].item())
    ({'chain': 1, 'draw': 1}, 2)
    """
    read, measured = _measure(
        posterior,
        labels,
        held_out,
        embeddings,
        probes,
        assignment,
        folds,
        repeats,
        ridge,
        draws,
        rng,
    )
    n_chains = len(read.chains)
    per_chain = len(read) // n_chains
    return xr.Dataset(
        {
            name: (("chain", "draw"), values.reshape(n_chains, per_chain))
            for name, values in measured.items()
        },
        coords={"chain": read.chains, "draw": np.arange(per_chain)},
        attrs=read.attrs,
    )


def summarize_structure(
    posterior: PosteriorLike,
    *,
    labels: PartitionLike | None = None,
    held_out: Comparisons | None = None,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    assignment: Assignment = "most_responsible",
    folds: int = 5,
    repeats: int = 1,
    ridge: float = 1.0,
    prob: float | None = None,
    kind: IntervalKind | None = None,
    draws: int | None = DRAWS,
    rng: RandomState = None,
) -> pd.DataFrame:
    """Summarise the structure a posterior finds, with intervals over its draws.

    Parameters
    ----------
    posterior, labels, held_out, embeddings, probes, assignment, folds, repeats, ridge, draws, rng
        As in `structure_draws`.
    prob : float, optional
        Probability of the intervals; by default ArviZ's ``rcParams["stats.ci_prob"]``.
    kind : {"eti", "hdi"}, optional
        Equal tails or highest density; by default ArviZ's ``rcParams["stats.ci_kind"]``.

    Returns
    -------
    pandas.DataFrame
        One row a `measure` of `structure_draws`: `mean`, `sd`, `lower`, `upper`, weighted by the
        weights of the chains, over the draws that have the measure. Its `attrs` tell of draws and
        intervals.

    Raises
    ------
    InputError
        As `structure_draws`, or if an interval's setting is out of range.

    Warns
    -----
    DataWarning
        As `structure_draws`.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, summarize_structure
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=2, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> table = summarize_structure(fit, labels=data.labels, rng=0)
    >>> float(table.loc["occupied_clusters", "mean"]), float(table["sd"].max())
    (2.0, 0.0)
    """
    interval = choose_interval(prob, kind)
    read, measured = _measure(
        posterior,
        labels,
        held_out,
        embeddings,
        probes,
        assignment,
        folds,
        repeats,
        ridge,
        draws,
        rng,
    )
    rows = {name: _summary(values, read.atoms.share, interval) for name, values in measured.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd", "lower", "upper"])
    table.index.name = "measure"
    table.attrs.update(summary_attrs(read, interval))
    return table


# -------------------------------------------------------------------- measuring


def _measure(
    posterior: PosteriorLike,
    labels: PartitionLike | None,
    held_out: Comparisons | None,
    embeddings: ArrayLike | None,
    probes: Comparisons | None,
    assignment: Assignment,
    folds: int,
    repeats: int,
    ridge: float,
    draws: int | None,
    rng: RandomState,
) -> tuple[Draws, dict[str, FloatArray]]:
    """Give the draws and every measure of each, NaN for draws without a share."""
    check_choice("assignment", assignment, ASSIGNMENTS)
    check_count("folds", folds, least=2)
    check_count("repeats", repeats, least=0)
    read = DrawnPartitions.read(posterior, draws)
    atoms, generator = read.draws.atoms, as_generator(rng)
    reference = None if labels is None else shares_of(read.comparisons, read_partition(labels))
    if held_out is None and not (embeddings is None and probes is None):
        raise InputError("embeddings and probes are those of held_out; give held_out as well.")
    compared = read.comparisons.query_weight > 0
    counts = read.comparisons.outcome_counts()
    layout = PairLayout(counts.winner, counts.loser, read.comparisons.n_models)
    test = test_counts = None
    if held_out is not None:
        whole = read_draws(posterior_of(posterior), draws=draws).atoms
        test_counts = check_rows(held_out).with_models(whole.models).outcome_counts()
        test = iterate_responsibilities(
            whole,
            read_signals(whole, embeddings=embeddings, probes=probes, queries=held_out.queries),
        )
    measured: dict[str, FloatArray] = {}
    for s, _, values in read.responsibilities():
        codes = assign(values, assignment, generator)
        member = one_hot(codes, atoms.n_clusters)
        theta = atoms.strengths[s].astype(float)
        found = _of_partition(codes, theta)
        if repeats:
            asked = member * compared[:, None]
            taus = fold_taus(counts, layout, asked, folds, repeats, ridge, generator)
            found["within_cluster_tau"] = _weighted(taus.mean(axis=0), asked.sum(axis=0))
        if test is None or test_counts is None:
            found["cross_cluster_gap"] = _gap(theta, counts, member)
        else:
            own = one_hot(assign(next(test)[2], assignment, generator), atoms.n_clusters)
            found["cross_cluster_gap"] = _gap(theta, test_counts, own)
        if reference is not None:
            found |= _agreement(member, reference)
        for name, value in found.items():
            measured.setdefault(name, np.full(len(read.draws), np.nan))[s] = value
    return read.draws, measured


def _of_partition(codes: NDArray[np.intp], theta: FloatArray) -> dict[str, float]:
    """Measure sizes and profiles of the clusters that hold a query."""
    sizes = np.bincount(codes, minlength=len(theta))
    share = sizes[sizes > 0] / sizes.sum()
    found = {
        "occupied_clusters": float(len(share)),
        "effective_clusters": float(np.exp(-(share * np.log(share)).sum())),
    }
    similarity = summarize_pairs(kendall_tau(theta[sizes > 0]))
    for name, value in similarity.items():
        found["profile_tau" if name == "mean" else f"profile_tau_{name}"] = value
    return found


def _gap(theta: FloatArray, counts: OutcomeCounts, member: FloatArray) -> float:
    """Mean gap over clusters, weighted by their comparisons."""
    if len(theta) < 2:
        return float("nan")
    own, other, weight = swap_losses(theta, counts, member)
    return _weighted(other - own, weight)


def _weighted(values: FloatArray, weight: FloatArray) -> float:
    """Weighted mean of the values that are there; NaN if none is."""
    counted = ~np.isnan(values)
    if not counted.any():
        return float("nan")
    return float(values[counted] @ weight[counted] / weight[counted].sum())


def _agreement(member: FloatArray, reference: FloatArray) -> dict[str, float]:
    """Compare a draw's partition with a reference, where this has labels."""
    labelled = reference.any(axis=1)
    one, other = member[labelled], reference[labelled]
    joint = one.T @ other
    return {
        "adjusted_rand": adjusted_rand(joint, self_pairs(one), self_pairs(other)),
        "normalized_mutual_information": normalized_mutual_information(joint),
    }


def _summary(values: FloatArray, share: FloatArray, interval: Interval) -> list[float]:
    """Mean, standard deviation and bounds of the draws that have a value."""
    used = (share > 0) & ~np.isnan(values)
    if not used.any():
        return [float("nan")] * 4
    kept, weight = values[used], share[used] / share[used].sum()
    if np.ptp(kept) == 0:
        return [float(kept[0]), 0.0, float(kept[0]), float(kept[0])]
    mean = float(weight @ kept)
    ordered = np.sort(kept if np.ptp(weight) == 0 else kept[equally_weighted(weight)])
    lower, upper = sorted_interval(ordered, interval)
    return [mean, float(weight @ (kept - mean) ** 2) ** 0.5, float(lower), float(upper)]
