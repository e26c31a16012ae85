"""Profiles of clusters: how consistent within, how similar between, how much worse when swapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bayes_ecc.bradley_terry import PairLayout, fit_strengths
from bayes_ecc.checks import check_count, check_flag, check_positive
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_comparisons, check_rows
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import InputError
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.structure.drawn import posterior_of
from bayes_ecc.structure.indices import kendall_tau, pair_values
from bayes_ecc.structure.partitions import PartitionLike, read_partition, shares_of

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]
type ProfilesLike = xr.DataArray | pd.DataFrame | xr.DataTree | PosteriorPredictions | ArrayLike

_CELLS = 4_000_000  # fits x models x models held at once


class Profiles(NamedTuple):
    """Strengths (n_clusters, n_models), names of the clusters, and of the models where known."""

    strengths: FloatArray
    clusters: pd.Index
    models: pd.Index | None


def read_profiles(source: ProfilesLike) -> Profiles:
    """Read the strengths of each cluster from an array, a table, a fit or its posterior.

    Raises
    ------
    InputError
        If it is none of these, holds missing values, or draws do not agree on the clusters.
    """
    if isinstance(source, xr.DataTree) or (
        isinstance(source, PosteriorPredictions) and not hasattr(source, "strengths_")
    ):
        source = _mean_profiles(posterior_of(source))
    source = getattr(source, "strengths_", source)
    if isinstance(source, xr.DataArray):
        if source.ndim != 2:
            raise InputError(
                f"profiles has dimensions {', '.join(map(str, source.dims))}; give cluster and llm."
            )
        rows = "cluster" if "cluster" in source.dims else source.dims[0]
        source = source.transpose(rows, ...).to_pandas()
    clusters, models = None, None
    if isinstance(source, pd.DataFrame):
        clusters, models = source.index, source.columns
    values = np.asarray(source)
    numeric = values.dtype.kind in "fiu"
    n_bad = int((~np.isfinite(values)).sum()) if numeric else 1
    if values.ndim != 2 or n_bad:
        bad = f", {n_bad:,} missing values or infinite ones" if numeric and n_bad else ""
        raise InputError(
            f"profiles is {values.ndim}-dimensional {values.dtype}{bad}; give finite strengths "
            "(clusters x models), a fit or its posterior."
        )
    if clusters is None:
        clusters = pd.RangeIndex(len(values))
    return Profiles(values.astype(float), clusters.rename("cluster"), models)


def cluster_profiles(
    comparisons: Comparisons,
    partition: PartitionLike,
    *,
    soft: bool = False,
    ridge: float = 1.0,
    per_query_mean: bool = False,
) -> xr.DataArray:
    """Fit a Bradley-Terry model to the comparisons of each cluster of any partition.

    Parameters
    ----------
    comparisons : Comparisons
        Of the queries of the partition; ties count as half a win each way.
    partition
        Anything `read_partition` reads.
    soft : bool
        Weigh a query by its responsibilities; otherwise it counts in its most responsible cluster.
    ridge : float
        Pull of the strengths to zero, positive.
    per_query_mean : bool
        Let each query weigh 1 instead of each comparison its weight.

    Returns
    -------
    xarray.DataArray, dims (cluster, llm)
        Strengths that sum to zero in each cluster; all zero where it holds no comparison.

    Raises
    ------
    InputError
        If the partition does not fit the comparisons, or a setting is out of range.

    Warns
    -----
    DataWarning
        If queries of the comparisons are not in the partition.

    Examples
    --------
    >>> from bayes_ecc import cluster_profiles, simulate
    >>> data = simulate(n_queries=400, n_models=5, n_clusters=2, rng=0)
    >>> profiles = cluster_profiles(data.comparisons, data.labels)
    >>> dict(profiles.sizes), bool(abs(profiles - data.strengths).max() < 0.6)
    ({'cluster': 2, 'llm': 5}, True)
    """
    check_comparisons(comparisons)
    check_positive("ridge", ridge)
    shares, clusters = _memberships(comparisons, partition, soft)
    counts = comparisons.outcome_counts(per_query_mean=check_flag("per_query_mean", per_query_mean))
    layout = PairLayout(counts.winner, counts.loser, comparisons.n_models)
    strengths = _fit_many(np.asarray(shares.T @ counts.matrix), layout, ridge)
    return xr.DataArray(
        strengths,
        {"cluster": clusters.to_numpy(), "llm": comparisons.models.to_numpy(dtype=object)},
        ("cluster", "llm"),
        name="strengths",
    )


def profile_similarity(profiles: ProfilesLike) -> xr.Dataset:
    """Compare the rankings of every two clusters by Kendall's tau.

    Parameters
    ----------
    profiles
        Strengths (n_clusters, n_models) as an array, DataFrame or DataArray (cluster, llm); a fit
        or its posterior (strengths averaged over draws; `summarize_structure` has the measures of
        single draws).

    Returns
    -------
    xarray.Dataset
        `tau` (cluster, cluster_other), tau-b: 1 where two clusters rank the models alike, -1 where
        in reverse; NaN for a cluster whose strengths are all tied. Over pairs of clusters: `mean`,
        and the quartiles `lower_quartile`, `median`, `upper_quartile`.

    Raises
    ------
    InputError
        If there are no two profiles to compare.

    Examples
    --------
    >>> from bayes_ecc import profile_similarity
    >>> found = profile_similarity([[2.0, 1.0, 0.0], [1.5, 1.6, 0.0], [0.0, 1.0, 2.0]])
    >>> found["tau"].values.round(3).tolist()
    [[1.0, 0.333, -1.0], [0.333, 1.0, -0.333], [-1.0, -0.333, 1.0]]
    >>> float(found["mean"]), float(found["median"])
    (-0.333, -0.333)
    """
    read = read_profiles(profiles)
    if min(read.strengths.shape) < 2:
        raise InputError(
            f"profiles has shape {read.strengths.shape}; similarity needs two clusters and two "
            "models."
        )
    tau = kendall_tau(read.strengths)
    names = read.clusters.to_numpy()
    return xr.Dataset(
        {"tau": (("cluster", "cluster_other"), tau), **summarize_pairs(tau)},
        coords={"cluster": names, "cluster_other": names},
    )


def within_cluster_tau(
    comparisons: Comparisons,
    partition: PartitionLike,
    *,
    folds: int = 5,
    repeats: int = 10,
    soft: bool = False,
    ridge: float = 1.0,
    rng: RandomState = None,
) -> xr.Dataset:
    """Measure how consistently the queries of a cluster rank the models.

    The queries of a cluster are cut into folds at random, a Bradley-Terry model is fitted to each
    fold, every comparison counting its weight, and Kendall's tau is averaged over pairs of folds
    and over repeated cuts.

    Larger clusters look more consistent, as their folds hold more comparisons, and so do clusters
    whose models are far apart. Hold a partition against one with clusters of the same sizes, such
    as itself shuffled, and look at the cross-cluster gap beside it.

    Parameters
    ----------
    comparisons : Comparisons
        Of the queries of the partition.
    partition
        Anything `read_partition` reads.
    folds : int
        At least 2.
    repeats : int
        How often to cut anew, at least once.
    soft : bool
        Let all queries with a responsibility take part, weighed by it; otherwise a query counts in
        its most responsible cluster.
    ridge : float
        Pull of the strengths to zero, positive.
    rng : int, numpy.random.Generator or None
        Randomness of the cuts.

    Returns
    -------
    xarray.Dataset
        `tau` and `tau_sd` (cluster), mean and standard deviation over repeats; `queries` (cluster),
        compared ones, shares added up; `mean` and `mean_sd`, the same of the mean over clusters
        weighted by their queries. A cluster with fewer queries than folds has no tau and does not
        count in the mean.

    Raises
    ------
    InputError
        If the partition does not fit the comparisons, a setting is out of range, or every cluster
        is too small.

    Warns
    -----
    DataWarning
        If queries of the comparisons are not in the partition.

    Examples
    --------
    >>> from bayes_ecc import simulate, within_cluster_tau
    >>> data = simulate(n_queries=400, n_models=5, n_clusters=2, rng=0)
    >>> found = within_cluster_tau(data.comparisons, data.labels, rng=0)
    >>> shuffled = data.labels[::-1]
    >>> bool(found["mean"] > within_cluster_tau(data.comparisons, shuffled, rng=0)["mean"])
    True
    """
    check_comparisons(comparisons)
    check_count("folds", folds, least=2)
    check_count("repeats", repeats)
    check_positive("ridge", ridge)
    shares, clusters = _memberships(comparisons, partition, soft)
    shares = np.where(comparisons.query_weight[:, None] > 0, shares, 0.0)
    counts = comparisons.outcome_counts()
    layout = PairLayout(counts.winner, counts.loser, comparisons.n_models)
    tau = fold_taus(counts, layout, shares, folds, repeats, ridge, as_generator(rng))
    queries = shares.sum(axis=0)
    counted = ~np.isnan(tau).any(axis=0)
    if not counted.any():
        raise InputError(
            f"No cluster has {folds} queries with comparisons that tell models apart in every "
            "fold; use fewer folds or fewer clusters."
        )
    mean = tau[:, counted] @ queries[counted] / queries[counted].sum()
    return xr.Dataset(
        {
            "tau": ("cluster", tau.mean(axis=0)),
            "tau_sd": ("cluster", tau.std(axis=0)),
            "queries": ("cluster", queries),
            "mean": mean.mean(),
            "mean_sd": mean.std(),
        },
        coords={"cluster": clusters.to_numpy()},
        attrs={"folds": folds, "repeats": repeats},
    )


def cross_cluster_gap(
    profiles: ProfilesLike,
    comparisons: Comparisons,
    partition: PartitionLike,
    *,
    soft: bool = False,
) -> xr.Dataset:
    """Measure how much worse the other clusters' profiles predict a cluster's comparisons.

    Parameters
    ----------
    profiles
        As in `profile_similarity`. Strengths alone are read, no tie margin or order effect.
    comparisons : Comparisons
        Held-out ones, if the gap is to tell of new queries.
    partition
        Anything `read_partition` reads, of these queries: predicted responsibilities, say. Its
        clusters have the names of the profiles'.
    soft : bool
        Let comparisons count in every cluster by their query's responsibilities; otherwise they
        count in its most responsible one.

    Returns
    -------
    xarray.Dataset, dims (cluster)
        `own_loss`, the mean loss under the cluster's own strengths (nats; see `bt_loss`),
        `other_loss`, the same under all other clusters' and averaged over these, `gap`, the
        difference, and `comparisons`, the weight of the cluster's comparisons. Missing where it
        has none. `mean`, the mean gap weighted by comparisons.

    Raises
    ------
    InputError
        If there is one cluster only, or the three do not fit each other.

    Warns
    -----
    DataWarning
        If queries of the comparisons are not in the partition.

    Examples
    --------
    >>> from bayes_ecc import cross_cluster_gap, simulate
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=3, rng=0)
    >>> found = cross_cluster_gap(data.strengths, data.comparisons, data.labels)
    >>> bool((found["gap"] > 0).all())
    True
    """
    read = read_profiles(profiles)
    rows = check_rows(comparisons)
    if len(read.clusters) < 2:
        raise InputError("profiles has one cluster; a gap to other clusters needs two.")
    if read.models is not None:
        rows = rows.with_models(read.models)
    elif rows.n_models != read.strengths.shape[1]:
        raise InputError(
            f"profiles is of {read.strengths.shape[1]} models, the comparisons of {rows.n_models}; "
            "give profiles with names of models, or recode with with_models."
        )
    shares, clusters = _memberships(rows, partition, soft)
    place = read.clusters.get_indexer(clusters)
    if (place < 0).any():
        unknown, known = clusters[place < 0].tolist()[0], read.clusters.tolist()
        raise InputError(
            f"The partition has the cluster {unknown!r}, which is not among the profiles "
            f"({', '.join(map(repr, known[:6]))}{', ...' if known[6:] else ''}); use the same ones."
        )
    by_profile = np.zeros((len(shares), len(read.clusters)))
    by_profile[:, place] = shares
    own, other, weight = swap_losses(read.strengths, rows.outcome_counts(), by_profile)
    gap = other - own
    has = weight > 0
    mean = gap[has] @ weight[has] / weight.sum() if has.any() else np.nan
    values = {"own_loss": own, "other_loss": other, "gap": gap, "comparisons": weight}
    return xr.Dataset(
        {**{name: ("cluster", value) for name, value in values.items()}, "mean": mean},
        coords={"cluster": read.clusters.to_numpy()},
    )


# -------------------------------------------------------------------- numerical cores


def fold_taus(
    counts: OutcomeCounts,
    layout: PairLayout,
    shares: FloatArray,
    folds: int,
    repeats: int,
    ridge: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Mean tau over pairs of folds of every cut of every cluster.

    Parameters
    ----------
    counts : OutcomeCounts
        Of the comparisons of n_queries queries.
    layout : PairLayout
        Of its columns.
    shares : ndarray, shape (n_queries, n_clusters)
        Memberships; a query without any takes no part.

    Returns
    -------
    ndarray, shape (repeats, n_clusters)
        NaN where a cluster has fewer queries than folds, or no pair of folds has a tau.
    """
    n_clusters = shares.shape[1]
    tau = np.full((repeats, n_clusters), np.nan)
    kept, wins = [], []
    for k in range(n_clusters):
        members = np.flatnonzero(shares[:, k])
        if len(members) >= folds:
            kept.append(k)
            wins.append(_fold_wins(counts.matrix, members, shares[members, k], folds, repeats, rng))
    if kept:
        strengths = _fit_many(np.concatenate(wins), layout, ridge)
        by_fold = strengths.reshape(len(kept), repeats, folds, -1)
        tau[:, kept] = _mean_of_pairs(kendall_tau(by_fold)).T
    return tau


def swap_losses(
    strengths: FloatArray, counts: OutcomeCounts, shares: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean loss under a cluster's own and under the other clusters' strengths.

    Parameters
    ----------
    strengths : ndarray, shape (n_clusters, n_models)
    counts : OutcomeCounts
        Of the comparisons of n_queries queries.
    shares : ndarray, shape (n_queries, n_clusters)
        Memberships of the queries.

    Returns
    -------
    own, other, weight : ndarray, shape (n_clusters,)
        Losses are NaN where the weight is zero.
    """
    wins = (counts.matrix.T @ shares).T  # (n_clusters, n_columns)
    weight = wins.sum(axis=1)
    margin = strengths[:, counts.winner] - strengths[:, counts.loser]
    loss = wins @ np.logaddexp(0, -margin).T  # of the comparisons of one, under the other's
    with np.errstate(invalid="ignore", divide="ignore"):
        own = loss.diagonal() / weight
        other = (loss.sum(axis=1) - loss.diagonal()) / (weight * (len(strengths) - 1))
    return own, other, weight


def summarize_pairs(tau: FloatArray) -> dict[str, float]:
    """Mean and quartiles over pairs of a tau matrix (n, n); NaN if no pair has a tau."""
    values = pair_values(tau)
    values = values[~np.isnan(values)]
    names = ("lower_quartile", "median", "upper_quartile")
    if not len(values):
        return dict.fromkeys(("mean", *names), float("nan"))
    quartiles = np.quantile(values, (0.25, 0.5, 0.75))
    return {"mean": float(values.mean()), **dict(zip(names, quartiles.tolist(), strict=True))}


def _fold_wins(
    matrix: sparse.csr_array,
    members: IntArray,
    share: FloatArray,
    folds: int,
    repeats: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Wins (repeats x folds, n_columns) of the members of a cluster, cut anew for each repeat."""
    n = len(members)
    fold = np.arange(n) * folds // n
    row = np.concatenate([repeat * folds + fold for repeat in range(repeats)])
    column = np.concatenate([rng.permutation(n) for _ in range(repeats)])
    cuts = sparse.csr_array((share[column], (row, column)), shape=(repeats * folds, n))
    return (cuts @ matrix[members]).toarray()


def _fit_many(wins: FloatArray, layout: PairLayout, ridge: float) -> FloatArray:
    """Fit any number of models, as many at once as memory should hold."""
    parts = _parts(len(wins), _CELLS // layout.n_models**2)
    return np.concatenate([fit_strengths(wins[rows], layout, ridge) for rows in parts])


def _parts(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, max(1, size)):
        yield slice(start, start + max(1, size))


def _mean_of_pairs(tau: FloatArray) -> FloatArray:
    """Mean over the pairs of matrices (..., n, n) that are not NaN: (...)."""
    values = pair_values(tau)
    there = ~np.isnan(values)
    n = there.sum(axis=-1)
    total = np.where(there, values, 0.0).sum(axis=-1)
    return np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)


def _memberships(
    comparisons: Comparisons, partition: PartitionLike, soft: bool
) -> tuple[FloatArray, pd.Index]:
    """Give memberships (n_queries, n_clusters) and the names of the clusters."""
    read = read_partition(partition)
    if not check_flag("soft", soft):
        read = read.hard()
    return shares_of(comparisons, read), read.clusters


def _mean_profiles(posterior: xr.DataTree) -> xr.DataArray:
    """Average strengths over draws that agree on which cluster is which."""
    if not int(posterior.attrs.get("clusters_matched", 1)):
        raise InputError(
            "The chains of this posterior do not agree on the clusters, so their profiles cannot "
            "be averaged; take one with select_chain, or use summarize_structure."
        )
    values = posterior.children["posterior"].to_dataset(inherit=False)["strengths"]
    share = posterior.children["constant_data"].to_dataset(inherit=False)["chain_weights"]
    centred = values - values.mean("llm")
    over = [name for name in ("chain", "draw") if name in centred.dims]
    return centred.weighted(share).mean(over) if "chain" in over else centred.mean(over)
