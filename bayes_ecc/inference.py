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
from scipy.stats import rankdata

from bayes_ecc.bradley_terry import win_probability_matrix
from bayes_ecc.checks import check_choice
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_rows
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import InputError
from bayes_ecc.posterior import (
    Atoms,
    as_fitted,
    atoms,
    identifiers,
    select_chain,
    training_data,
)
from bayes_ecc.ties import log_tie_factor, outcome_probabilities, win_share

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
    by_query: Iterable[str] = (),
) -> Signals:
    """Check embeddings and probes against each other and against the posterior.

    Where nothing at all is said of the queries they are one, like any other. Whoever has tables
    with a row a query beside the signals names them, `by_query`: one row would not be theirs.

    Raises
    ------
    InputError
        If neither is given to a fit that had embeddings, they do not belong to the same queries,
        `queries` are no identifiers, or it is not known which queries tables are of.
    """
    if embeddings is None and probes is None and posterior.embedded:
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
            if not posterior.embedded:
                raise InputError(
                    "This fit was made without embeddings, so they tell it nothing of new queries; "
                    "leave embeddings out, or fit again with those of the training queries."
                )
            raise InputError(
                f"embeddings has {unit.shape[1]} dimensions, the fit was made with "
                f"{posterior.centroids.shape[2]}; use the same encoder. (A posterior of as_fitted "
                "reads training queries alone, with the embeddings that training_data gives.)"
            )
        if index is None:
            index = pd.RangeIndex(len(unit))
    counts = None
    if probes is not None:
        counts = posterior.outcome_counts(probes, per_query_mean=posterior.rule == "per_query_mean")
    if index is None:  # nothing is known: a query like any other
        for name in by_query:
            raise InputError(
                f"{name} goes by query, and this fit, made without embeddings, reads nothing of "
                "them that would tell which they are; name them, in the order of the rows: "
                "queries=[...]."
            )
        index = pd.RangeIndex(1)
    return Signals(index, unit, counts)


def tables_by_query(**given: Any) -> list[str]:
    """Name those arguments that hold a row a query, not one value a model or names of models."""
    return [
        name
        for name, value in given.items()
        if isinstance(value, pd.DataFrame)
        or (value is not None and not isinstance(value, pd.Series) and np.ndim(value) > 1)
    ]


def log_evidence(
    strengths: FloatArray,
    counts: OutcomeCounts,
    tie_margin: FloatArray | float = 0.0,
    order_effect: FloatArray | float = 0.0,
) -> FloatArray:
    """Sum log-likelihoods of comparisons: (n_queries, n_clusters) from (n_clusters, n_models).

    The tie margin and the order effect, one number or one a cluster, count where the counts have
    ties and directions; see `bayes_ecc.ties`.
    """
    by_model = strengths.T
    margin = by_model[counts.winner] - by_model[counts.loser]
    if counts.direction is not None:
        margin = margin + counts.direction[:, None] * np.asarray(order_effect)
    if counts.tie_weight is not None:
        margin = margin - tie_margin
    # log sigma(m), stable at both ends; these three calls are vectorised, log_expit is not.
    table = np.minimum(margin, 0) - np.log1p(np.exp(-np.abs(margin)))
    evidence = counts.matrix @ table.astype(counts.matrix.dtype, copy=False)
    if counts.tie_weight is not None:
        tied = np.flatnonzero(counts.tie_weight)
        factor = np.atleast_1d(log_tie_factor(tie_margin))
        evidence[tied] += (counts.tie_weight[tied, None] * factor).astype(evidence.dtype)
    return evidence


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
            scores += posterior.probe_power * log_evidence(
                posterior.strengths[s], signals.counts, *posterior.margins(s)
            )
        yield s, share, softmax_rows(scores)[0]


def mean_win_probability(
    strengths: FloatArray, tie_margin: FloatArray | float | None = None
) -> FloatArray:
    """Average win probability against all other models: (..., n_models) from (..., n_models).

    With a tie margin, one number or an array (...), half the chance of a tie counts in.
    """
    if tie_margin is not None:
        tie_margin = np.asarray(tie_margin)[..., None, None]
    matrix = win_probability_matrix(strengths, tie_margin)
    return (matrix.sum(axis=-1) - 0.5) / (strengths.shape[-1] - 1)


def win_probabilities(posterior: Atoms, signals: Signals, comparisons: Comparisons) -> FloatArray:
    """Give P(second beats first), (n_comparisons,); queries and models are coded as the atoms'.

    Half the chance of a tie counts in where ties were learnt.
    """
    mean = np.zeros(len(comparisons))
    for s, share, held, pair, difference in _pair_differences(posterior, signals, comparisons):
        table = win_share(difference, posterior.tie_margin_of(s)).T
        mean += share * np.einsum("nk,nk->n", held[comparisons.query], table[pair])
    return np.minimum(mean, 1.0)  # rounding of a sum of shares


def _pair_differences(
    posterior: Atoms, signals: Signals, comparisons: Comparisons
) -> Iterator[tuple[int, float, FloatArray, NDArray[np.intp], FloatArray]]:
    """Give (atom, share, responsibilities, pair of each row, differences (n_clusters, n_pairs))."""
    n_models = len(posterior.models)
    pairs, pair = np.unique(comparisons.first * n_models + comparisons.second, return_inverse=True)
    first, second = pairs // n_models, pairs % n_models
    for s, share, responsibilities in iterate_responsibilities(posterior, signals):
        theta = posterior.strengths[s]
        difference = theta[:, second] - theta[:, first]
        if posterior.order_effect is not None and comparisons.ordered:
            difference = difference + posterior.order_effect[s]
        yield s, share, responsibilities, pair, difference


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
        From the encoder of the fit. A fit without embeddings needs none; with nothing known of
        them, its queries are like any other.
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


def fitted_responsibilities(posterior: xr.DataTree) -> xr.DataArray:
    """Give the responsibilities of training queries, read as the fit did.

    Averaged over draws; where the clusters of independent chains are not matched, those of the
    chain that counts most, which `select_chain` keeps.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library, with its training data.

    Returns
    -------
    xarray.DataArray, dims (query, cluster)

    Raises
    ------
    InputError
        If the posterior does not hold its training data.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fitted_responsibilities, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> again = fitted_responsibilities(fit.posterior_)
    >>> bool(np.allclose(again, fit.responsibilities_, atol=1e-5))
    True
    """
    if not int(posterior.attrs.get("clusters_matched", 1)):
        posterior = select_chain(posterior)
    comparisons, embeddings = training_data(posterior)
    return predict_responsibilities(as_fitted(posterior), embeddings=embeddings, probes=comparisons)


def predict_win_probability(
    posterior: xr.DataTree,
    comparisons: Comparisons,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
) -> FloatArray:
    """Predict P(second beats first | query) for each comparison; outcomes are not looked at.

    Where ties were learnt it is the expected share of the win, P(second wins) + P(tie) / 2, which
    is what half-wins predict: losses and gains stay comparable. A learnt order effect counts where
    the comparisons are ordered.

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


def predict_outcome_probabilities(
    posterior: xr.DataTree,
    comparisons: Comparisons,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
) -> FloatArray:
    """Predict the chances that the first wins, that both tie, and that the second wins.

    Parameters
    ----------
    posterior : xarray.DataTree
        Of a fit with ``ties="rao_kupper"``.
    comparisons : Comparisons
        Rows to predict; outcomes are not looked at.
    embeddings, probes
        As in `predict_win_probability`.

    Returns
    -------
    ndarray, shape (n_comparisons, 3)
        First, tie, second; rows sum to 1.

    Raises
    ------
    InputError
        As `predict_win_probability`; also if the fit counted ties as half-wins.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, predict_outcome_probabilities, simulate
    >>> data = simulate(n_queries=60, n_models=5, tie_margin=0.5, rng=0)
    >>> fit = ECC(n_clusters=2, ties="rao_kupper", max_iter=500, rng=0)
    >>> fit = fit.fit(data.comparisons, data.embeddings)
    >>> probes, rest = data.comparisons.take_probes(1)
    >>> chances = predict_outcome_probabilities(fit.posterior_, rest, probes=probes)
    >>> chances.shape == (len(rest), 3), bool(np.allclose(chances.sum(axis=1), 1))
    (True, True)
    """
    source = atoms(posterior)
    check_rows(comparisons)
    if source.tie_margin is None:
        raise InputError(
            "This fit counts ties as half-wins and knows no chance of a tie; fit with "
            "ties='rao_kupper', or spread predict_win_probability with metrics.with_tie_rate."
        )
    signals = read_signals(
        source, embeddings=embeddings, probes=probes, queries=comparisons.queries
    )
    rows = comparisons.with_models(source.models)
    mean = np.zeros((len(rows), 3))
    for s, share, held, pair, difference in _pair_differences(source, signals, rows):
        table = outcome_probabilities(difference, source.tie_margin[s]).transpose(1, 0, 2)
        mean += share * np.einsum("nk,nko->no", held[rows.query], table[pair])
    return mean / mean.sum(axis=1, keepdims=True)


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
        win += share * (responsibilities @ mean_win_probability(theta, source.tie_margin_of(s)))
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
    margin = None if source.tie_margin is None else source.tie_margin[:, None]
    win = np.einsum("s,skm->km", source.share, mean_win_probability(theta, margin))
    strength = np.einsum("s,skm->km", source.share, theta)
    coords = {"cluster": _clusters(posterior), "llm": source.models.to_numpy(dtype=object)}
    return _ranked(win, strength, by, coords)


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
