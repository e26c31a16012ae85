"""Responsibilities, win probabilities and rankings for queries, from a posterior, whoever made it.

A query's responsibilities are, for every atom of the posterior,

    r_qk ~ weight_k exp(concentration x_q . c_k + probe_power R_n log p(y_n | theta_k))

where R adds a query's probes up or averages them, as the fit did with its comparisons. Predictions
are averaged over atoms, never made from averaged parameters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.stats import rankdata

from bayes_ecc.bradley_terry import check_rows, win_probability_matrix
from bayes_ecc.checks import check_choice
from bayes_ecc.comparisons import Comparisons, OutcomeCounts
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import InputError, NotFittedError
from bayes_ecc.posterior import Atoms, atoms, identifiers

type FloatArray = NDArray[np.floating[Any]]
type RankBy = Literal["win_probability", "strength"]

RANK_BY = ("win_probability", "strength")


class Signals(NamedTuple):
    """What is known of new queries: embeddings as the posterior wants them, and probe counts."""

    queries: pd.Index
    embeddings: FloatArray | None
    counts: OutcomeCounts | None


def read_signals(
    posterior: Atoms,
    *,
    embeddings: ArrayLike | None,
    probes: Comparisons | None,
    queries: Iterable[Hashable] | None = None,
) -> Signals:
    """Check embeddings and probes against each other and against the posterior.

    Raises
    ------
    InputError
        If neither is given, they do not belong to the same queries, or `queries` are no
        identifiers.
    """
    if embeddings is None and probes is None:
        raise InputError("Give embeddings, probes, or both; without them all queries look alike.")
    if probes is not None and not isinstance(probes, Comparisons):
        raise InputError(
            f"probes must be a Comparisons, not {type(probes).__name__}; "
            "Comparisons.take_probes sets them apart."
        )
    index = None if queries is None else _query_index(queries)
    if probes is not None:
        if index is None:
            index = probes.queries
        elif not index.equals(probes.queries):
            raise InputError(
                "The probes are of other queries, or in another order; take both from one "
                "Comparisons (take_probes keeps the queries as they are)."
            )
    unit = None
    if embeddings is not None:
        unit = unit_embeddings(embeddings, queries=index)
        if posterior.projection is not None:
            unit = posterior.projection.transform(unit)
        elif unit.shape[1] != posterior.centroids.shape[2]:
            raise InputError(
                f"embeddings has {unit.shape[1]} dimensions, the fit was made with "
                f"{posterior.centroids.shape[2]}; use the same encoder."
            )
        if index is None:
            index = pd.RangeIndex(len(unit))
    counts = None
    if probes is not None:
        known = probes.with_models(posterior.models)
        counts = known.outcome_counts(per_query_mean=posterior.rule == "per_query_mean")
    assert index is not None  # one of the two was given
    return Signals(index, unit, counts)


def log_evidence(strengths: FloatArray, counts: OutcomeCounts) -> FloatArray:
    """Sum log-likelihoods of comparisons: (n_queries, n_clusters) from (n_clusters, n_models)."""
    by_model = strengths.T
    margin = by_model[counts.winner] - by_model[counts.loser]
    # log sigma(m), stable at both ends; these three calls are vectorised, log_expit is not.
    table = np.minimum(margin, 0) - np.log1p(np.exp(-np.abs(margin)))
    return counts.matrix @ table.astype(counts.matrix.dtype, copy=False)


def softmax_rows(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn scores into rows that sum to 1; give them and the logs of the sums."""
    # A copy in the other order first: NumPy reduces along short rows slowly.
    top = np.ascontiguousarray(scores.T).max(axis=0)
    shares = scores - top[:, None]
    np.exp(shares, out=shares)
    total = np.einsum("qk->q", shares)
    shares /= total[:, None]
    return shares, np.log(total) + top


def iterate_responsibilities(
    posterior: Atoms, signals: Signals
) -> Iterator[tuple[int, float, FloatArray]]:
    """Give (atom, share, responsibilities (n_queries, n_clusters)) for every atom that counts."""
    for s, share in posterior.used():
        scores = np.tile(posterior.log_weights[s], (len(signals.queries), 1))
        if signals.embeddings is not None:
            scores += posterior.concentration * (signals.embeddings @ posterior.centroids[s].T)
        if signals.counts is not None:
            scores += posterior.probe_power * log_evidence(posterior.strengths[s], signals.counts)
        yield s, share, softmax_rows(scores)[0]


def mean_win_probability(strengths: FloatArray) -> FloatArray:
    """Average win probability against all other models: (..., n_models) from (..., n_models)."""
    matrix = win_probability_matrix(strengths)
    return (matrix.sum(axis=-1) - 0.5) / (strengths.shape[-1] - 1)


def win_probabilities(posterior: Atoms, signals: Signals, comparisons: Comparisons) -> FloatArray:
    """Give P(second beats first), (n_comparisons,); queries and models are coded as the atoms'."""
    n_models = len(posterior.models)
    pairs, pair = np.unique(comparisons.first * n_models + comparisons.second, return_inverse=True)
    first, second = pairs // n_models, pairs % n_models
    mean = np.zeros(len(comparisons))
    for s, share, responsibilities in iterate_responsibilities(posterior, signals):
        theta = posterior.strengths[s]
        table = expit(theta[:, second] - theta[:, first]).T
        mean += share * np.einsum("nk,nk->n", responsibilities[comparisons.query], table[pair])
    return np.minimum(mean, 1.0)  # rounding of a sum of shares


def predict_responsibilities(
    posterior: xr.DataTree,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
) -> xr.DataArray:
    """Predict how responsible each cluster is for each query, averaged over the posterior.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    embeddings : array-like, shape (n_queries, embedding_dim), optional
        From the encoder of the fit.
    probes : Comparisons, optional
        Comparisons known of these queries, any number a query; row i of `embeddings` belongs to
        `probes.queries[i]`.
    queries : iterable, optional
        Identifiers; by default those of the probes, or 0, 1, 2, ...

    Returns
    -------
    xarray.DataArray, dims (query, cluster)

    Raises
    ------
    InputError
        If neither embeddings nor probes are given or they do not fit the posterior.

    Examples
    --------
    >>> from bayes_ecc import ECC, predict_responsibilities, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> predict_responsibilities(fit.posterior_, embeddings=data.embeddings[:5]).sizes["query"]
    5
    """
    source = atoms(posterior)
    signals = read_signals(source, embeddings=embeddings, probes=probes, queries=queries)
    mean = np.zeros((len(signals.queries), source.n_clusters))
    for _, share, responsibilities in iterate_responsibilities(source, signals):
        mean += share * responsibilities
    coords = {"query": identifiers(signals.queries), "cluster": _clusters(posterior)}
    return xr.DataArray(mean, coords, ("query", "cluster"), name="responsibilities")


def predict_win_probability(
    posterior: xr.DataTree,
    comparisons: Comparisons,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
) -> FloatArray:
    """Predict P(second beats first | query) for each comparison; outcomes are not looked at.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    comparisons : Comparisons
        Rows to predict.
    embeddings : array-like, shape (n_queries, embedding_dim), optional
        Row i belongs to `comparisons.queries[i]`.
    probes : Comparisons, optional
        Comparisons known beforehand, over the same queries in the same order.

    Returns
    -------
    ndarray, shape (n_comparisons,)

    Raises
    ------
    InputError
        If neither embeddings nor probes are given or they do not belong to these queries.

    Examples
    --------
    >>> from bayes_ecc import ECC, predict_win_probability, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> probes, rest = data.comparisons.take_probes(1)
    >>> predict_win_probability(fit.posterior_, rest, probes=probes).shape == (len(rest),)
    True
    """
    source = atoms(posterior)
    check_rows(comparisons)
    signals = read_signals(
        source, embeddings=embeddings, probes=probes, queries=comparisons.queries
    )
    return win_probabilities(source, signals, comparisons.with_models(source.models))


def predict_ranking(
    posterior: xr.DataTree,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    by: RankBy = "win_probability",
) -> xr.Dataset:
    """Rank the models on each query.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    embeddings, probes, queries
        As in `predict_responsibilities`.
    by : {"win_probability", "strength"}
        Rank by the mean win probability against all other models, or by the mean strength.

    Returns
    -------
    xarray.Dataset, dims (query, llm)
        `win_probability`, `strength` (zero-sum) and `rank` (1 is best, ties share a mean rank).

    Raises
    ------
    InputError
        If `by` is unknown or the signals do not fit the posterior.

    Examples
    --------
    >>> from bayes_ecc import ECC, predict_ranking, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> table = predict_ranking(fit.posterior_, embeddings=data.embeddings[:2])
    >>> sorted(table["rank"].values[0].tolist())
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    source = atoms(posterior)
    check_choice("by", by, RANK_BY)
    signals = read_signals(source, embeddings=embeddings, probes=probes, queries=queries)
    shape = (len(signals.queries), len(source.models))
    win, strength = np.zeros(shape), np.zeros(shape)
    for s, share, responsibilities in iterate_responsibilities(source, signals):
        theta = source.strengths[s]
        win += share * (responsibilities @ mean_win_probability(theta))
        strength += share * (responsibilities @ (theta - theta.mean(axis=1, keepdims=True)))
    coords = {"query": identifiers(signals.queries), "llm": source.models.to_numpy(dtype=object)}
    return _ranked(win, strength, by, coords)


def cluster_ranking(posterior: xr.DataTree, *, by: RankBy = "win_probability") -> xr.Dataset:
    """Rank the models in each cluster.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library. Draws must agree on which cluster is which.
    by : {"win_probability", "strength"}
        As in `predict_ranking`.

    Returns
    -------
    xarray.Dataset, dims (cluster, llm)
        `win_probability`, `strength` and `rank`.

    Examples
    --------
    >>> from bayes_ecc import ECC, cluster_ranking, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> dict(cluster_ranking(fit.posterior_)["rank"].sizes)
    {'cluster': 2, 'llm': 5}
    """
    source = atoms(posterior)
    check_choice("by", by, RANK_BY)
    theta = source.strengths - source.strengths.mean(axis=2, keepdims=True)
    win = np.einsum("s,skm->km", source.share, mean_win_probability(theta))
    strength = np.einsum("s,skm->km", source.share, theta)
    coords = {"cluster": _clusters(posterior), "llm": source.models.to_numpy(dtype=object)}
    return _ranked(win, strength, by, coords)


class PosteriorPredictions:
    """Prediction methods of every estimator that learns a `posterior_`."""

    posterior_: xr.DataTree

    def predict_responsibilities(
        self,
        embeddings: ArrayLike | None = None,
        *,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
    ) -> xr.DataArray:
        """Predict responsibilities, dims (query, cluster); see `predict_responsibilities`."""
        return predict_responsibilities(
            self._posterior(), embeddings=embeddings, probes=probes, queries=queries
        )

    def predict_win_probability(
        self,
        comparisons: Comparisons,
        *,
        embeddings: ArrayLike | None = None,
        probes: Comparisons | None = None,
    ) -> FloatArray:
        """Predict P(second beats first) of each comparison; see `predict_win_probability`."""
        return predict_win_probability(
            self._posterior(), comparisons, embeddings=embeddings, probes=probes
        )

    def predict_ranking(
        self,
        embeddings: ArrayLike | None = None,
        *,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
        by: RankBy = "win_probability",
    ) -> xr.Dataset:
        """Rank the models on each query; see `predict_ranking`."""
        return predict_ranking(
            self._posterior(), embeddings=embeddings, probes=probes, queries=queries, by=by
        )

    def cluster_ranking(self, *, by: RankBy = "win_probability") -> xr.Dataset:
        """Rank the models in each cluster; see `cluster_ranking`."""
        return cluster_ranking(self._posterior(), by=by)

    def _posterior(self) -> xr.DataTree:
        if not hasattr(self, "posterior_"):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call "
                "fit(comparisons, embeddings) first."
            )
        return self.posterior_


def _ranked(win: FloatArray, strength: FloatArray, by: str, coords: dict[str, Any]) -> xr.Dataset:
    rank = rankdata(-(win if by == "win_probability" else strength), axis=1)
    dims = tuple(coords)
    variables = {"win_probability": win, "strength": strength, "rank": rank}
    return xr.Dataset(
        {name: (dims, values) for name, values in variables.items()},
        coords=coords,
        attrs={"ranked_by": by},
    )


def _query_index(queries: Iterable[Hashable]) -> pd.Index:
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise InputError(f"queries={queries!r}: give a list of identifiers.")
    index = queries if isinstance(queries, pd.Index) else pd.Index(list(queries))
    if not (pd.api.types.is_integer_dtype(index.dtype) or all(isinstance(q, str) for q in index)):
        raise InputError(
            f"queries must be all strings or all integers, not {index.dtype} such as {index[0]!r}."
        )
    if not index.is_unique:
        twice = index[index.duplicated()][0]
        raise InputError(f"queries holds {twice!r} more than once; identifiers must be unique.")
    return index


def _clusters(posterior: xr.DataTree) -> NDArray[Any]:
    return posterior.children["posterior"].coords["cluster"].values
