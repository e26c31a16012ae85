"""Wins between models, overall and by groups of queries, from votes or from a score table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from bayes_ecc.auditing.source import Source
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import contrast_status
from bayes_ecc.counts import OutcomeCounts

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]


class Evidence(NamedTuple):
    """One table that tells models apart.

    Attributes
    ----------
    table : {"score table", "comparisons"}
    models : pandas.Index
    scores : ndarray, shape (n_queries, n_models), or None
    votes : Comparisons or None
        One of the two is there.
    """

    table: str
    models: pd.Index
    scores: FloatArray | None
    votes: Comparisons | None

    def wins(self, codes: IntArray, n_groups: int) -> FloatArray:
        """Count wins in groups of queries: (n_groups, winner, loser); queries with -1 are out."""
        if self.scores is not None:
            return score_wins(self.scores, codes, n_groups)
        assert self.votes is not None
        return vote_wins(self.votes, codes, n_groups)


def evidence_of(source: Source) -> list[Evidence]:
    """List the tables of a source that tell models apart."""
    found = []
    if source.scores is not None:
        found.append(Evidence("score table", source.scored, source.scores, None))
    if source.votes is not None:
        votes = source.votes
        if source.scores is not None:  # a model that only has scores is none of the other table's
            compared = np.union1d(votes.first, votes.second)
            absent = votes.models[np.setdiff1d(np.arange(votes.n_models), compared)]
            votes = votes.drop_models(list(absent)) if len(absent) else votes
        found.append(Evidence("comparisons", votes.models, None, votes))
    return found


def score_wins(scores: FloatArray, codes: IntArray, n_groups: int) -> FloatArray:
    """Count, in each group of queries, on how many a model scores higher than another.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, n_models)
        NaN where missing, which wins and loses nothing.
    codes : ndarray of int, shape (n_queries,)
        Group of each query, -1 for none.
    n_groups : int

    Returns
    -------
    ndarray, shape (n_groups, n_models, n_models)
        `[g, i, j]` counts the wins of i over j.
    """
    known = codes >= 0
    scores, codes = scores[known], codes[known]
    pick = sparse.csr_array(
        (np.ones(len(codes), dtype=np.float32), (codes, np.arange(len(codes)))),
        shape=(n_groups, len(codes)),
    )
    wins = np.zeros((n_groups, scores.shape[1], scores.shape[1]))
    for i in range(scores.shape[1]):
        wins[:, i] = pick @ (scores[:, i, None] > scores).astype(np.float32)
    return wins


def decisive_pairs(scores: FloatArray) -> IntArray:
    """Count the pairs of models that each query tells apart, shape (n_queries,)."""
    count = np.zeros(len(scores), dtype=np.intp)
    for i in range(scores.shape[1]):
        count += (scores[:, i, None] > scores).sum(axis=1)
    return count


def vote_wins(votes: Comparisons, codes: IntArray, n_groups: int) -> FloatArray:
    """Count wins by weight in each group of queries; a tie is half a win either way.

    Parameters
    ----------
    votes : Comparisons
    codes : ndarray of int, shape (n_queries,)
        Group of each query, -1 for none.
    n_groups : int

    Returns
    -------
    ndarray, shape (n_groups, n_models, n_models)
    """
    size, group = votes.n_models, codes[votes.query]
    known = group >= 0
    wins = np.zeros((n_groups, size, size))
    share = votes.weight * votes.outcome
    np.add.at(wins, (group[known], votes.second[known], votes.first[known]), share[known])
    rest = votes.weight - share
    np.add.at(wins, (group[known], votes.first[known], votes.second[known]), rest[known])
    return wins


class Contrasts(NamedTuple):
    """What wins say of the differences between models.

    Attributes
    ----------
    lonely : ndarray of bool, shape (n_models,)
        Models without a win or a loss.
    parts : tuple of ndarray of int
        The others, in groups connected by comparisons, largest first.
    separated, undetermined : int
        Pairs of models in `parts` of which only the direction is known, or nothing.
    one_sided : ndarray of int, shape (n_models,)
        How many others a model is only ever above, or only ever below.
    pairs : int
        All pairs of models that are not lonely.
    """

    lonely: NDArray[np.bool_]
    parts: tuple[IntArray, ...]
    separated: int
    undetermined: int
    one_sided: IntArray
    pairs: int

    @property
    def identified(self) -> bool:
        """Whether the data alone determine every difference."""
        return not (self.lonely.any() or self.separated or self.undetermined)


def contrasts(wins: FloatArray) -> Contrasts:
    """Judge the graph of wins, shape (n_models, n_models), with `contrast_status`."""
    size = len(wins)
    winner, loser = np.nonzero(~np.eye(size, dtype=bool))
    columns = OutcomeCounts(sparse.csr_array((0, len(winner))), winner, loser)
    status = contrast_status(wins[winner, loser], columns, size)
    lonely = (wins.sum(axis=0) + wins.sum(axis=1)) == 0
    _, component = sparse.csgraph.connected_components(
        sparse.csr_array(wins + wins.T > 0), directed=False
    )
    parts = [
        np.flatnonzero(component == k)
        for k in range(component.max() + 1)
        if not lonely[component == k].all()
    ]
    parts.sort(key=lambda part: (-len(part), part[0]))
    playing = np.flatnonzero(~lonely)
    inner = status[np.ix_(playing, playing)][np.triu_indices(len(playing), k=1)]
    return Contrasts(
        lonely,
        tuple(parts),
        int((inner == 1).sum()),
        int((inner == 2).sum()),
        (status == 1).sum(axis=1),
        len(inner),
    )
