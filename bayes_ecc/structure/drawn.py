"""The partitions that the draws of a posterior make of its training queries.

Clusters are numbered differently from chain to chain, so everything here is about which queries
are together, never about what a cluster is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.checks import check_choice
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.inference import Signals, iterate_responsibilities, read_signals
from bayes_ecc.posterior import as_fitted, atoms, training_data
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.structure.indices import chance_corrected

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]
type Assignment = Literal["most_responsible", "drawn"]

ASSIGNMENTS = ("most_responsible", "drawn")
DRAWS = 100
"""Draws of each chain that structure is read from, unless told otherwise."""


@dataclass(frozen=True, eq=False)
class DrawnPartitions:
    """A posterior's draws and its training queries, ready to be asked for responsibilities."""

    draws: Draws
    signals: Signals
    comparisons: Comparisons

    @classmethod
    def read(cls, source: Any, draws: int | None) -> DrawnPartitions:
        """Read at most `draws` draws of each chain, and what the posterior was fitted to."""
        posterior = posterior_of(source)
        comparisons, embeddings = training_data(posterior)
        fitted = read_draws(as_fitted(posterior), draws=draws)
        signals = read_signals(fitted.atoms, embeddings=embeddings, probes=comparisons)
        return cls(fitted, signals, comparisons)

    def responsibilities(self) -> Iterator[tuple[int, float, FloatArray]]:
        """Give (draw, share, responsibilities (n_queries, n_clusters)) of draws with a share."""
        return iterate_responsibilities(self.draws.atoms, self.signals)

    def codes(self, assignment: Assignment, rng: RandomState) -> tuple[IntArray, FloatArray]:
        """Give the hard partition of every draw (n_draws, n_queries), and the draws' shares."""
        generator = as_generator(rng)
        found = [
            (share, assign(values, assignment, generator))
            for _, share, values in self.responsibilities()
        ]
        return np.array([codes for _, codes in found]), np.array([share for share, _ in found])


def posterior_of(source: Any) -> xr.DataTree:
    """Give the posterior of a fit, or what was given if it is one."""
    posterior = source._posterior() if isinstance(source, PosteriorPredictions) else source
    atoms(posterior)  # refuses what is none
    return posterior


def assign(shares: FloatArray, assignment: Assignment, rng: np.random.Generator) -> IntArray:
    """Choose a cluster for each query: the most responsible, or one drawn by responsibility.

    Parameters
    ----------
    shares : ndarray, shape (n_queries, n_clusters)
    assignment : {"most_responsible", "drawn"}
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of int, shape (n_queries,)
    """
    if assignment == "most_responsible":
        return shares.argmax(axis=1)
    below = np.cumsum(shares, axis=1)
    drawn = (below < rng.random(len(shares))[:, None] * below[:, -1:]).sum(axis=1)
    return np.minimum(drawn, shares.shape[1] - 1)


def consensus_partition(
    posterior: xr.DataTree | PosteriorPredictions,
    *,
    assignment: Assignment = "most_responsible",
    draws: int | None = DRAWS,
    rng: RandomState = None,
) -> pd.DataFrame:
    """Choose the one partition that stands best for all draws of a posterior.

    Of the partitions that draws make, it is the one whose expected adjusted Rand index with the
    others is the greatest [1]_. No numbering of clusters enters, so chains in different modes can
    be read together; where chains tell different stories, it tells one of them.

    Parameters
    ----------
    posterior : xarray.DataTree or fit
        From any estimator of this library; with its training data, as fits have it.
    assignment : {"most_responsible", "drawn"}
        Whether a draw puts each query into its most responsible cluster, or into one drawn by
        responsibility.
    draws : int, optional
        Use at most so many draws of each chain, evenly spaced. The time goes with their square.
    rng : int, numpy.random.Generator or None
        For ``assignment="drawn"``.

    Returns
    -------
    pandas.DataFrame
        Indexed by training query: `cluster`, numbered from 0, the largest first, and `certainty`,
        the probability of sharing a cluster with a query of the same cluster, on average over
        those (missing for one that is alone). Its `attrs` hold `expected_adjusted_rand`, of the
        partition with a draw's, and `mean_adjusted_rand`, of two draws'.

    Raises
    ------
    InputError
        If the posterior lacks its training data, or a setting is unknown.

    Warns
    -----
    DataWarning
        If checks of the fit failed.

    References
    ----------
    .. [1] Fritsch, A. and Ickstadt, K. (2009). Improved criteria for clustering based on the
       posterior similarity matrix. Bayesian Analysis 4(2), 367-391.

    Examples
    --------
    >>> from bayes_ecc import ECC, consensus_partition, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> consensus_partition(fit.posterior_)["cluster"].value_counts().to_dict()
    {0: 34, 1: 26}
    """
    check_choice("assignment", assignment, ASSIGNMENTS)
    read = DrawnPartitions.read(posterior, draws)
    generator = as_generator(rng)
    codes, share = read.codes(assignment, generator)
    agreement = rand_matrix(codes, read.draws.atoms.n_clusters)
    others = np.maximum(1 - share, 1e-12)
    expected = np.where(share < 1, (agreement @ share - share) / others, 1.0)
    best = int(np.argmax(expected.round(12)))
    names, sizes = np.unique(codes[best], return_counts=True)
    rank = np.empty(names.max() + 1, dtype=np.intp)
    rank[names[np.argsort(-sizes, kind="stable")]] = np.arange(len(names))
    chosen = rank[codes[best]]
    table = pd.DataFrame(
        {"cluster": chosen, "certainty": _certainty(read, chosen, len(names))},
        index=pd.Index(read.comparisons.queries, name="query"),
    )
    table.attrs.update(
        expected_adjusted_rand=float(expected[best]), mean_adjusted_rand=float(share @ expected)
    )
    return table


def rand_matrix(codes: IntArray, n_clusters: int) -> FloatArray:
    """Compare every two partitions by the adjusted Rand index.

    Parameters
    ----------
    codes : ndarray of int, shape (n_partitions, n_queries)
        Cluster of each query, below `n_clusters`.

    Returns
    -------
    ndarray, shape (n_partitions, n_partitions)
    """
    n, n_queries = codes.shape
    pairs = n_queries * (n_queries - 1) / 2
    sizes = np.array([np.bincount(row, minlength=n_clusters) for row in codes], dtype=float)
    inside = (sizes * (sizes - 1)).sum(axis=1) / 2
    matrix = np.ones((n, n))
    for i in range(n):
        scaled = codes[i] * n_clusters
        for j in range(i + 1, n):
            joint = np.bincount(scaled + codes[j]).astype(float)
            together = (joint @ joint - n_queries) / 2
            matrix[i, j] = chance_corrected(together, inside[i], inside[j], pairs)
            matrix[j, i] = matrix[i, j]
    return matrix


def _certainty(read: DrawnPartitions, chosen: IntArray, n_chosen: int) -> FloatArray:
    """Mean probability of each query to share a cluster with others of its chosen cluster."""
    member = (chosen[:, None] == np.arange(n_chosen)).astype(float)
    total = np.zeros(len(chosen))
    for _, share, values in read.responsibilities():
        mass = member.T @ values  # (n_chosen, n_clusters)
        total += share * np.einsum("qk,qk->q", values, mass[chosen] - values)
    others = member.sum(axis=0)[chosen] - 1
    return np.divide(total, others, out=np.full(len(chosen), np.nan), where=others > 0)
