r"""A model of scores around a posterior: how hard a query is, which comparisons cannot tell.

Under the Rasch model [1]_ a language model m succeeds on a query of kind k and ease h with
probability

.. math:: P(s_m = 1) = \mathrm{expit}(\theta_{km} + h),

independently of the others. Given that exactly one of two succeeds, the ease cancels and what is
left is the Bradley-Terry model, so the strengths of a posterior fit in as they are, up to scale:

.. math:: \theta_{km} = \gamma_0 \bar\theta_m + \gamma_1 (\theta_{km} - \bar\theta_m)

with a scale for what all clusters have in common and one for what sets them apart (clusters that
embeddings alone cannot tell are not to be trusted as far). The scales and the distribution of the
ease in each cluster are learned from scores. With them comes what strengths alone lack: expected
scores, ties, and what a seen score says of the others.

References
----------
.. [1] Rasch, G. (1960). Probabilistic Models for Some Intelligence and Attainment Tests.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from bayes_ecc.checks import check_count, check_positive
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, QueryBlock, query_blocks, read_draws, responsibilities
from bayes_ecc.errors import InputError
from bayes_ecc.inference import Signals, read_signals, tables_by_query
from bayes_ecc.posterior import identifiers
from bayes_ecc.quality import align_scores

type FloatArray = NDArray[np.floating[Any]]

_SPAN = 6.0  # of the ease on either side of nothing; beyond, all succeed or all fail
_PRIOR = 10.0  # queries' worth of the common distribution of the ease, in every cluster's
_FIRST, _LATER = 25, 4  # EM steps of a chain's first draw, and of each that starts from it
_SHARPEST = 8.0
_ROWS = 2048  # training queries treated at once
_CELLS = 2_000_000  # queries x atoms held at once


@dataclass(frozen=True, eq=False)
class ScoreModel:
    """Scores of models on queries, given a posterior's clusters and strengths.

    Attributes
    ----------
    draws : Draws
        The draws it was fitted on, their concentration times `sharpness`.
    sharpness : float
        How much more (or less) than the posterior says embeddings tell of the cluster where
        nothing else is known.
    scales : ndarray, shape (2,)
        What multiplies strengths: their mean over clusters, and the differences from it.
    levels : ndarray, shape (n_levels,)
        Values of the ease, in logits.
    level_shares : ndarray, shape (n_draws, n_clusters, n_levels)
        Distribution of the ease in each cluster of each draw.
    n_queries : int
        Training queries it was fitted on.

    See Also
    --------
    fit_score_model : fits one.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fit_score_model, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> scores = (data.strengths[data.labels] > 0).astype(float)
    >>> model = fit_score_model(fit.posterior_, scores, embeddings=data.embeddings)
    >>> model.predict(embeddings=data.embeddings[:2]).dims
    ('query', 'llm')
    """

    draws: Draws
    sharpness: float
    scales: FloatArray
    levels: FloatArray
    level_shares: FloatArray
    n_queries: int

    @cached_property
    def logits(self) -> FloatArray:
        """Logits of success of each atom (draw, cluster, level), shape (n_atoms, n_models)."""
        source = self.draws.atoms
        ability = np.tensordot(self.scales, abilities(source.strengths, source.log_weights), 1)
        table = ability[:, :, None, :] + self.levels[:, None]
        return table.reshape(-1, table.shape[-1]).astype(np.float32)

    @cached_property
    def success(self) -> FloatArray:
        """Probability of success of each atom, shape (n_atoms, n_models)."""
        return expit(self.logits)

    @cached_property
    def log_success(self) -> FloatArray:
        """Its logarithm, shape (n_atoms, n_models)."""
        return -np.logaddexp(np.float32(0), -self.logits)

    def predict(
        self,
        *,
        embeddings: ArrayLike | None = None,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
        observed: pd.DataFrame | ArrayLike | None = None,
    ) -> xr.DataArray:
        """Predict the scores of all models on each query.

        Parameters
        ----------
        embeddings, probes, queries
            As in `predict_responsibilities`.
        observed : pandas.DataFrame or array-like, shape (n_queries, n_models), optional
            Scores seen on these very queries, missing where a model was not called. They say what
            kind of query it is and how hard; what was seen is given back as it is.

        Returns
        -------
        xarray.DataArray, dims (query, llm)

        Raises
        ------
        InputError
            If signals do not fit the posterior or scores lie outside [0, 1].

        Examples
        --------
        See `fit_score_model`.
        """
        signals = read_signals(
            self.draws.atoms,
            embeddings=embeddings,
            probes=probes,
            queries=queries,
            by_query=tables_by_query(observed=observed),
        )
        seen = self.read_observed(observed, signals)
        expected = np.concatenate(
            [weight @ self.success for _, weight in self.blocks(signals, seen)]
        )
        if seen is not None:
            expected = np.where(np.isnan(seen), expected, seen)
        coords = {"query": identifiers(signals.queries), "llm": self.draws.models}
        return xr.DataArray(expected, coords, ("query", "llm"), name="score")

    def read_observed(
        self, observed: pd.DataFrame | ArrayLike | None, signals: Signals
    ) -> FloatArray | None:
        """Check scores seen of new queries: (n_queries, n_models), NaN where not called."""
        if observed is None:
            return None
        seen = align_scores(observed, signals.queries, self.draws.atoms.models, name="observed")
        check_unit(seen, "observed", signals.queries)
        return seen

    def blocks(
        self, signals: Signals, seen: FloatArray | None, width: int = 512
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Give the weights (n_block, n_atoms) of the atoms for blocks of queries; rows sum to 1."""
        width = max(1, min(width, _CELLS // self.level_shares.size))
        for block in query_blocks(signals, width):
            weight = self._weights(block)
            if seen is not None:
                score = seen[block.rows]
                known = ~np.isnan(score)
                # log p(s) = s log p + (1 - s) log(1 - p), and log(1 - p) = log p - logit
                evidence = known.astype(np.float32) @ self.log_success.T
                missed = np.where(known, 1 - score, 0).astype(np.float32)
                evidence -= missed @ self.logits.T
                evidence -= evidence.max(axis=1, keepdims=True)
                weight *= np.exp(evidence)
                weight /= weight.sum(axis=1, keepdims=True)
            yield block.rows, weight

    def _weights(self, block: QueryBlock) -> FloatArray:
        """Give the weights (n_block, n_atoms) before any score is seen."""
        share = self.draws.atoms.share
        r = responsibilities(self.draws, slice(0, len(share)), block)  # clusters, draws, queries
        r *= share[:, None].astype(np.float32)
        weight = r.transpose(2, 1, 0)[..., None] * self.level_shares.astype(np.float32)
        return weight.reshape(len(block), -1)


def fit_score_model(
    posterior: xr.DataTree | Draws,
    scores: pd.DataFrame | ArrayLike,
    *,
    embeddings: ArrayLike | None = None,
    queries: Iterable[Hashable] | None = None,
    draws: int | None = 10,
    n_levels: int = 9,
    sharpness: float | None = None,
) -> ScoreModel:
    """Learn from scores of training queries how hard the queries of each cluster are.

    The scales and, cluster by cluster, the shares of `n_levels` values of the ease maximise the
    likelihood of the scores given the embeddings (EM; the shares are pulled lightly to those of
    all clusters). So does the sharpness, in
    turn with them, by factors of two. Strengths and clusters stay
    those of the posterior. A score between 0 and 1 counts as that much of a success.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    scores : pandas.DataFrame or array-like, shape (n_queries, n_models)
        Between 0 and 1, missing where a model was not run; read as by `fit_quality`.
    embeddings : array-like, shape (n_queries, embedding_dim), optional
        Of the training queries. A fit without embeddings needs none.
    queries : iterable, optional
        Their identifiers; needed where there are no embeddings, and where `scores` is a frame that
        goes by query id.
    draws : int, optional
        Use at most so many draws of each chain.
    n_levels : int
        Values of the ease, evenly spaced.
    sharpness : float, optional
        Fixes the sharpness.

    Returns
    -------
    ScoreModel

    Raises
    ------
    InputError
        If scores do not fit the queries, lie outside [0, 1] or are all missing.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fit_score_model, simulate
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    >>> chance = 1 / (1 + np.exp(-data.strengths[data.labels]))
    >>> scores = (np.random.default_rng(0).random(chance.shape) < chance).astype(float)
    >>> model = fit_score_model(fit.posterior_, scores, embeddings=data.embeddings)
    >>> expected = model.predict(embeddings=data.embeddings)
    >>> bool(abs(expected.mean() - scores.mean()) < 0.02)
    True

    A score seen on a query is given back, and says something of the others:

    >>> seen = np.full((1, 5), np.nan)
    >>> seen[0, 0] = 0.0
    >>> after = model.predict(embeddings=data.embeddings[:1], observed=seen)
    >>> float(after[0, 0]), bool(np.allclose(after[0, 1:], expected[0, 1:]))
    (0.0, False)
    """
    check_count("n_levels", n_levels, least=2)
    read = read_draws(posterior, draws=draws)
    signals = read_signals(
        read.atoms, embeddings=embeddings, probes=None, queries=queries, by_query=["scores"]
    )
    table = align_scores(scores, signals.queries, read.atoms.models, numbered=queries is None)
    check_unit(table, "scores", signals.queries)
    rows = ~np.isnan(table).all(axis=1)
    if not rows.any():
        raise InputError("scores holds no score of these queries; give some.")
    embedded = signals.embeddings
    signals = Signals(signals.queries[rows], None if embedded is None else embedded[rows], None)
    data = TrainingScores.of(table[rows])
    levels = np.linspace(-_SPAN, _SPAN, n_levels)
    ability = abilities(read.atoms.strengths, read.atoms.log_weights)
    n_draws, n_clusters = ability.shape[1:3]
    per_chain = n_draws // len(read.chains)

    chain_share = read.atoms.share[::per_chain]

    def fit(read: Draws, draw: int, start: Ease, steps: int, *, free: bool) -> Ease:
        r = _all_responsibilities(read, draw, signals)
        return fit_ease(data, r, ability[:, draw], levels, start, steps, free_scales=free)

    def fit_firsts(factor: float, starts: list[Ease], steps: int) -> tuple[list[Ease], float]:
        """Fit the first draw of each chain; give the log-likelihood before the last step too."""
        sharp = sharpened(read, factor)
        found = [
            fit(sharp, chain * per_chain, start, steps, free=True)
            for chain, start in enumerate(starts)
        ]
        return found, float(chain_share @ [ease.log_likelihood for ease in found])

    uniform = np.full((n_clusters, n_levels), 1 / n_levels)
    starts = [Ease(np.array([1.0, 0.5]), uniform)] * len(chain_share)
    if sharpness is None:
        sharpness, firsts = _climb(fit_firsts, starts)
    else:
        sharpness = check_positive("sharpness", sharpness)
        firsts, _ = fit_firsts(sharpness, starts, _FIRST)
    read = sharpened(read, sharpness)
    scales = np.average([ease.scales for ease in firsts], axis=0, weights=chain_share)
    shares = np.empty((n_draws, n_clusters, n_levels))
    for chain, first in enumerate(firsts):
        ease = Ease(scales, first.shares)
        for draw in range(chain * per_chain, (chain + 1) * per_chain):
            # the draws of a chain agree on the clusters, so each is near the last
            ease = fit(read, draw, ease, _LATER, free=False)
            shares[draw] = ease.shares
    return ScoreModel(read, sharpness, scales, levels, shares, n_queries=int(rows.sum()))


def sharpened(read: Draws, factor: float) -> Draws:
    """Give draws that read embeddings that much more sharply."""
    return replace(read, atoms=replace(read.atoms, concentration=factor * read.atoms.concentration))


def _climb(
    fit: Callable[[float, list[Ease], int], tuple[list[Ease], float]], starts: list[Ease]
) -> tuple[float, list[Ease]]:
    """Double or halve the sharpness, from 1, while that raises the likelihood, all else equal."""
    sharpness = 1.0
    found, _ = fit(sharpness, starts, _FIRST)
    for step in (2.0, 0.5):
        while 1 / _SHARPEST <= sharpness * step <= _SHARPEST:
            if fit(sharpness * step, found, 1)[1] <= fit(sharpness, found, 1)[1]:
                break
            sharpness *= step
            found, _ = fit(sharpness, found, _FIRST)
        if sharpness > 1:
            break
    return sharpness, found


# -------------------------------------------------------------------- numerical cores


class TrainingScores(NamedTuple):
    """Scores with zeros where missing, and where they are known, both (n_queries, n_models)."""

    score: FloatArray
    known: FloatArray

    @classmethod
    def of(cls, table: FloatArray) -> TrainingScores:
        """Split a table with missing values."""
        known = ~np.isnan(table)
        return cls(np.where(known, table, 0).astype(np.float32), known.astype(np.float32))


class Ease(NamedTuple):
    """Scales (2,) of the strengths, and shares (n_clusters, n_levels) of the levels of the ease.

    The log-likelihood is that before the last step.
    """

    scales: FloatArray
    shares: FloatArray
    log_likelihood: float = -np.inf


def fit_ease(
    data: TrainingScores,
    responsibilities: FloatArray,
    ability: FloatArray,
    levels: FloatArray,
    start: Ease,
    steps: int,
    *,
    free_scales: bool,
    prior: float = _PRIOR,
) -> Ease:
    """Fit the shares of the ease, and the scales with them if they are free, by EM.

    The scales move by one Newton step of the expected log-likelihood an iteration, which is concave
    in them, and no further than 0.5.

    Parameters
    ----------
    data : TrainingScores
    responsibilities : ndarray, shape (n_queries, n_clusters)
        Of the clusters, given the embeddings.
    ability : ndarray, shape (2, n_clusters, n_models)
        As `abilities` gives them.
    levels : ndarray, shape (n_levels,)
    start : Ease
    steps : int
        EM iterations.
    free_scales : bool
    prior : float
        Queries' worth of the shares over all clusters, added to each cluster's.

    Returns
    -------
    Ease
    """
    ease = start
    features = ability[:, :, None, :]
    for _ in range(steps):
        logit = np.tensordot(ease.scales, ability, 1)[:, None, :] + levels[:, None]
        value, counts, wins, calls = _expected_counts(data, responsibilities, logit, ease.shares)
        overall = counts.sum(axis=0) / counts.sum()
        shares = counts + prior * overall
        shares /= shares.sum(axis=1, keepdims=True)
        scales = ease.scales
        if free_scales:
            p = expit(logit)
            slope = ((wins - p * calls) * features).sum(axis=(1, 2, 3))
            curvature = features * (p * (1 - p) * calls)
            bend = np.einsum("akhm,bkm->ab", curvature, ability)
            step = np.linalg.solve(bend + 1e-6 * np.eye(2), slope)
            scales = np.maximum(scales + np.clip(step, -0.5, 0.5), 0.0)
        ease = Ease(scales, shares, value)
    return ease


def _expected_counts(
    data: TrainingScores, responsibilities: FloatArray, logit: FloatArray, shares: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Count queries (n_clusters, n_levels), and by model their successes and calls, in mean.

    The log-likelihood comes first.
    """
    n_clusters, n_levels, n_models = logit.shape
    flat = logit.reshape(-1, n_models).astype(np.float32)
    log_success = -np.logaddexp(np.float32(0), -flat)
    log_likelihood = 0.0
    counts = np.zeros(n_clusters * n_levels)
    wins, calls = np.zeros(flat.shape), np.zeros(flat.shape)
    tiny = np.finfo(np.float32).tiny
    log_shares = np.log(np.maximum(shares, tiny)).astype(np.float32)
    for first in range(0, len(data.score), _ROWS):
        rows = slice(first, first + _ROWS)
        score, known = data.score[rows], data.known[rows]
        value = known @ log_success.T
        value -= (known - score) @ flat.T
        prior = np.log(np.maximum(responsibilities[rows], tiny)).astype(np.float32)
        value += (prior[:, :, None] + log_shares).reshape(value.shape)
        top = value.max(axis=1, keepdims=True)
        value -= top
        np.exp(value, out=value)
        total = value.sum(axis=1, keepdims=True)
        value /= total
        log_likelihood += float((np.log(total) + top).sum(dtype=float))
        counts += value.sum(axis=0)
        wins += value.T @ score
        calls += value.T @ known
    shape = (n_clusters, n_levels, n_models)
    return log_likelihood, counts.reshape(shape[:2]), wins.reshape(shape), calls.reshape(shape)


def abilities(strengths: FloatArray, log_weights: FloatArray) -> FloatArray:
    """Split strengths into their weighted mean over clusters and the differences from it.

    Parameters
    ----------
    strengths : ndarray, shape (..., n_clusters, n_models)
        The mean over models is taken away first.
    log_weights : ndarray, shape (..., n_clusters)

    Returns
    -------
    ndarray, shape (2, ..., n_clusters, n_models)
    """
    theta = strengths - strengths.mean(axis=-1, keepdims=True)
    common = (np.exp(log_weights)[..., None] * theta).sum(axis=-2, keepdims=True)
    common = np.broadcast_to(common, theta.shape)
    return np.stack([common, theta - common])


def check_unit(scores: FloatArray, name: str, queries: pd.Index) -> None:
    """Refuse scores outside [0, 1]."""
    bad = (scores < 0) | (scores > 1)
    if bad.any():
        row = int(np.argmax(bad.any(axis=1)))
        raise InputError(
            f"{name}, query {queries[row]!r}: found {scores[row][bad[row]][0]:g}; scores lie "
            "between 0 and 1 here. Rescale them."
        )


def _all_responsibilities(read: Draws, draw: int, signals: Signals) -> FloatArray:
    """Give the responsibilities (n_queries, n_clusters) of one draw."""
    part = slice(draw, draw + 1)
    found = [responsibilities(read, part, block)[:, 0].T for block in query_blocks(signals, _ROWS)]
    return np.concatenate(found)
