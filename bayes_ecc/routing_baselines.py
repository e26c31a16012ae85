"""Routers that a posterior must beat: one best model, labels, neighbours, the winner of a probe.

A router's result is a `Routed`: what score each query got, and what that took.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from bayes_ecc.baselines import LabelBradleyTerry
from bayes_ecc.bradley_terry import BradleyTerry, PairLayout, fit_strengths
from bayes_ecc.comparisons import Comparisons, FloatArray
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.metrics import bt_loss
from bayes_ecc.random import as_generator
from bayes_ecc.routing import NOBODY
from bayes_ecc.routing_tasks import RoutingTask
from bayes_ecc.validation import inner_split

type IntArray = NDArray[np.intp]

NEIGHBOURS = 20
NEIGHBOUR_GRID = (20, 50, 100, 200, 400)
_ROWS = 512  # test queries treated at once


class Routed(NamedTuple):
    """What a router did, one value a test query.

    Attributes
    ----------
    quality : ndarray of float
        Score of the model the query went to.
    calls, cost : ndarray of float
        Calls made, those of probes included, and what they cost.
    expected : ndarray of float or None
        Quality that was predicted of the choice.
    confidence : dict of str to ndarray, or None
        What the router's doubts can be read from, higher being surer.
    choice : ndarray of int or None
        The model.
    """

    quality: FloatArray
    calls: FloatArray
    cost: FloatArray
    expected: FloatArray | None = None
    confidence: dict[str, FloatArray] | None = None
    choice: IntArray | None = None


def sent(
    task: RoutingTask,
    choice: IntArray,
    called: tuple[IntArray, IntArray] | None = None,
    *,
    expected: FloatArray | None = None,
    confidence: dict[str, FloatArray] | None = None,
) -> Routed:
    """Account for sending each query to a model, after calling a pair of models first.

    Parameters
    ----------
    task : RoutingTask
    choice : ndarray of int, shape (n_queries,)
    called : pair of ndarray of int, optional
        The models of a probe that is paid for, -1 where there was none; the choice costs nothing
        more if it is one of them.
    expected, confidence
        As in `Routed`.

    Returns
    -------
    Routed
    """
    row = np.arange(len(choice))
    made = np.zeros(task.scores.shape, dtype=bool)
    made[row, choice] = True
    for models in called or ():
        probed = models != NOBODY
        made[row[probed], models[probed]] = True
    return Routed(
        quality=task.scores[row, choice],
        calls=made.sum(axis=1).astype(float),
        cost=(made * task.costs).sum(axis=1),
        expected=expected,
        confidence=confidence,
        choice=choice,
    )


def baselines(
    task: RoutingTask, labels: dict[str, pd.Series] | None = None, *, rng: int = 0
) -> Iterator[tuple[str, Routed]]:
    """Run every router that needs no posterior, in the order of a table.

    Parameters
    ----------
    task : RoutingTask
    labels : dict of str to pandas.Series
        Labels of all queries, by name; each gives a router "labels:NAME".
    rng : int
        Seed of the inner split that chooses the number of neighbours.

    Yields
    ------
    name : str
        "random", "global", "labels:NAME", "knn:scores", "knn:comparisons", "probe winner", in the
        honest protocol "better probed" and "fixed pair", and "oracle".
    routed : Routed

    Examples
    --------
    >>> from bayes_ecc.routing_baselines import baselines
    >>> from bayes_ecc.routing_study import routing_example
    >>> _, task = routing_example()
    >>> found = dict(baselines(task))
    >>> bool(found["random"].quality.mean() < found["global"].quality.mean())
    True
    >>> bool((found["oracle"].quality == task.scores.max(axis=1)).all())
    True
    """
    n_queries, n_models = task.scores.shape
    row = np.arange(n_queries)
    one = np.ones(n_queries)
    # what a choice at random gets in the mean, rather than one draw of it
    yield "random", Routed(task.scores.mean(axis=1), one, task.costs.mean(axis=1))
    strength = BradleyTerry().fit(task.split.train).strengths_.values
    order = np.argsort(-strength, kind="stable")
    best = np.full(n_queries, order[0])
    yield "global", sent(task, best)
    for name, series in (labels or {}).items():
        yield f"labels:{name}", sent(task, best_of_labels(task, series))
    yield "knn:scores", sent(task, best_of_neighbours(task, strength))
    yield "knn:comparisons", sent(task, best_of_compared_neighbours(task, rng))
    called = task.pair if task.charges_probes else None
    winner = np.where(task.winner == NOBODY, best, task.winner)
    yield "probe winner", sent(task, winner, called)
    if task.charges_probes:
        yield "better probed", sent(task, better_of(task, *task.pair), called)
        two = (best, np.full(n_queries, order[1]))
        better = better_of(task, *two)
        if n_models > 2:
            # the third where it is expected to do better than the better of the two did
            usual = np.nanmean(task.train_scores[:, order[2]])
            better = np.where(task.scores[row, better] < usual, order[2], better)
        yield "fixed pair", sent(task, better, two)
    yield "oracle", sent(task, task.scores.argmax(axis=1))


def better_of(task: RoutingTask, first: IntArray, second: IntArray) -> IntArray:
    """Give the one of two models that scored higher on each query, the first if they tie."""
    row = np.arange(len(first))
    return np.where(task.scores[row, second] > task.scores[row, first], second, first)


def best_of_labels(task: RoutingTask, labels: pd.Series) -> IntArray:
    """Give the strongest model of each query's label; the globally strongest if it is unknown."""
    fit = LabelBradleyTerry().fit(task.split.train, labels)
    table = np.vstack([fit.strengths_.to_numpy(), fit.global_strengths_])
    found = fit.strengths_.index.get_indexer(pd.Index(labels.reindex(task.queries)))
    return table[found].argmax(axis=1)


def best_of_neighbours(
    task: RoutingTask, strength: FloatArray, n_neighbours: int = NEIGHBOURS
) -> IntArray:
    """Give the model of the best mean score on the nearest training queries.

    It reads all scores of the training queries, not comparisons alone. Ties go to the globally
    stronger model.
    """
    known = ~np.isnan(task.train_scores)
    score = np.where(known, task.train_scores, 0)
    rank = np.argsort(np.argsort(strength)) / len(strength)
    choice = []
    for near in nearest(task.train_embeddings, task.embeddings, n_neighbours):
        mean = score[near].sum(axis=1) / np.maximum(known[near].sum(axis=1), 1)
        choice.append((mean.round(9) + 1e-9 * rank).argmax(axis=1))
    return np.concatenate(choice)


def best_of_compared_neighbours(task: RoutingTask, rng: int = 0) -> IntArray:
    """Give the strongest model by the comparisons of the nearest training queries.

    How many neighbours are asked is chosen by the loss on an inner split of the training queries.
    """
    train, rows = task.split.train, np.asarray(task.split.train_embeddings)
    split = inner_split(train, n_probes=0, rng=as_generator(rng))
    seen, new = rows[split.train_positions], rows[split.validation_positions]
    losses = {}
    for n in NEIGHBOUR_GRID:
        theta = neighbour_strengths(split.train, seen, new, n)[split.scored.query]
        row = np.arange(len(split.scored))
        margin = theta[row, split.scored.second] - theta[row, split.scored.first]
        losses[n] = bt_loss(1 / (1 + np.exp(-margin)), split.scored)
        if n >= len(seen):
            break
    chosen = min(losses, key=lambda n: losses[n])
    return neighbour_strengths(train, rows, task.embeddings, chosen).argmax(axis=1)


def neighbour_strengths(
    comparisons: Comparisons,
    embeddings: FloatArray,
    new: FloatArray,
    n_neighbours: int,
    ridge: float = 1.0,
) -> FloatArray:
    """Fit a Bradley-Terry model to the comparisons of each new query's nearest neighbours.

    Parameters
    ----------
    comparisons : Comparisons
    embeddings : ndarray, shape (n_queries, embedding_dim)
        Of `comparisons.queries`.
    new : ndarray, shape (n_new, embedding_dim)
    n_neighbours : int
    ridge : float

    Returns
    -------
    ndarray, shape (n_new, n_models)
    """
    counts = comparisons.outcome_counts()
    layout = PairLayout(counts.winner, counts.loser, comparisons.n_models)
    found = []
    for near in nearest(embeddings, new, n_neighbours):
        row = np.repeat(np.arange(len(near)), near.shape[1])
        shape = (len(near), comparisons.n_queries)
        member = sparse.csr_array((np.ones(near.size), (row, near.ravel())), shape=shape)
        found.append(fit_strengths((member @ counts.matrix).toarray(), layout, ridge))
    return np.concatenate(found)


def nearest(embeddings: FloatArray, new: FloatArray, n_neighbours: int) -> Iterator[IntArray]:
    """Give the positions (n_block, n_neighbours) of the nearest rows by cosine, block by block."""
    known = unit_embeddings(embeddings, len(embeddings)).astype(np.float32)
    asked = unit_embeddings(new, len(new)).astype(np.float32)
    n = min(n_neighbours, len(known))
    for first in range(0, len(asked), _ROWS):
        similarity = asked[first : first + _ROWS] @ known.T
        yield np.argpartition(-similarity, n - 1, axis=1)[:, :n]
