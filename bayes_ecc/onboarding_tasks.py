"""A newcomer's part of a split: what is known without it, what can be asked, what is tested."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.onboarding import NewcomerPrior, start_onboarding
from bayes_ecc.onboarding_fit import read_old_fit, responsibilities_of
from bayes_ecc.posterior import thin
from bayes_ecc.random import RandomState
from bayes_ecc.splits import Split

type FloatArray = NDArray[np.floating[Any]]
type BoolArray = NDArray[np.bool_]
type OnboardingProtocol = Literal["published", "honest"]

_FULL_ATOMS = 4  # with thousands of comparisons there is little left to average over

PROTOCOLS: tuple[OnboardingProtocol, ...] = ("published", "honest")


class NewcomerTask(NamedTuple):
    """A newcomer's part of a split.

    Attributes
    ----------
    newcomer : str
    old : Split
        Without the newcomer.
    known : Comparisons
        Among the old models, of the training queries: what a rule may read of them.
    outcome : ndarray, shape (n_train_queries, n_old_models)
        1.0 where the newcomer wins, 0.5 for a tie; missing where nobody knows.
    decided : ndarray, shape (n_train_queries,)
        Chance that a pair is decided: the share of pairs of old models that are, on the query.
    own : Comparisons
        All training comparisons of the newcomer, over the training queries.
    test : Comparisons
        The scored comparisons of the newcomer, over the test queries.
    """

    newcomer: str
    old: Split
    known: Comparisons
    outcome: FloatArray
    decided: FloatArray
    own: Comparisons
    test: Comparisons

    def allowed(self, protocol: OnboardingProtocol) -> BoolArray:
        """Give the pairs that can be asked for."""
        there = ~np.isnan(self.outcome)
        return there & (self.outcome != 0.5) if protocol == "published" else there

    def ask(self, proposal: pd.DataFrame) -> pd.DataFrame:
        """Look the outcomes of proposed comparisons up."""
        query = self.old.train.queries.get_indexer(proposal["query_id"])
        opponent = self.old.train.models.get_indexer(proposal["model_b"])
        return proposal.assign(outcome=1 - self.outcome[query, opponent])


def leave_out(bundle: Bundle, split: Split, newcomer: str, *, known: int = 3) -> NewcomerTask:
    """Take a model out of a split.

    Parameters
    ----------
    bundle : Bundle
        Its scores, if it has some, tell all outcomes of the newcomer; else the split's training
        comparisons do.
    split : Split
        With embeddings.
    newcomer : str
    known : int
        Comparisons among the old models that are known of each training query, at most.

    Returns
    -------
    NewcomerTask

    Raises
    ------
    InputError
        If there is no such model, or it has no training or test comparison.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.onboarding_tasks import leave_out
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=100, n_models=5, rng=0).bundle()
    >>> task = leave_out(bundle, draw_split(bundle), "llm_2")
    >>> task.old.train.n_models, task.outcome.shape
    (4, (80, 4))
    """
    names = split.train.models
    if newcomer not in names:
        raise InputError(f"newcomer {newcomer!r} is none of the models ({', '.join(names)}).")
    old = split._replace(
        train=split.train.drop_models([newcomer]),
        probes=split.probes.drop_models([newcomer]),
        scored=split.scored.drop_models([newcomer]),
    )
    own, test = _only(split.train, newcomer), _only(split.scored, newcomer)
    for what, part in (("training", own), ("test", test)):
        if not len(part):
            raise InputError(f"{newcomer!r} has no {what} comparison; it can't be a newcomer.")
    if bundle.scores is not None and newcomer in bundle.scores.columns:
        table = bundle.scores.set_index("query_id").loc[old.train.queries]
        scores = table.reindex(columns=old.train.models).to_numpy(dtype=float)
        outcome = (np.sign(table[[newcomer]].to_numpy(dtype=float) - scores) + 1) / 2
        decided = _decided(scores)
    else:
        decided = np.ones(own.n_queries)
        outcome = _held(own, newcomer, old.train.models)
    return NewcomerTask(newcomer, old, old.train.take_probes(known)[0], outcome, decided, own, test)


def _only(comparisons: Comparisons, newcomer: str) -> Comparisons:
    """Keep the comparisons of one model."""
    code = comparisons.models.get_loc(newcomer)
    return comparisons.rows((comparisons.first == code) | (comparisons.second == code))


def _decided(scores: FloatArray) -> FloatArray:
    """Give the share of pairs of models with different scores on each query, never quite 0 or 1."""
    first, second = np.triu_indices(scores.shape[1], k=1)
    difference = scores[:, first] - scores[:, second]
    known = ~np.isnan(difference)
    return ((known & (difference != 0)).sum(axis=1) + 1) / (known.sum(axis=1) + 2)


def _held(own: Comparisons, newcomer: str, old: pd.Index) -> FloatArray:
    """Average the outcomes held of each pair: (n_queries, n_old_models)."""
    opponent, won = sides(own, newcomer)
    column = old.get_indexer(own.models[opponent])
    total, count = np.zeros((2, own.n_queries, len(old)))
    np.add.at(total, (own.query, column), own.weight * won)
    np.add.at(count, (own.query, column), own.weight)
    with np.errstate(invalid="ignore"):
        return total / count


def sides(comparisons: Comparisons, newcomer: str) -> tuple[NDArray[np.intp], FloatArray]:
    """Give the opponents' codes and the newcomer's share of the win."""
    second = comparisons.second == comparisons.models.get_loc(newcomer)
    opponent = np.where(second, comparisons.first, comparisons.second)
    return opponent, np.where(second, comparisons.outcome, 1 - comparisons.outcome)


def score_rank(bundle: Bundle, task: NewcomerTask) -> int | None:
    """Rank the newcomer by mean score on the training queries."""
    if bundle.scores is None or task.newcomer not in bundle.scores.columns:
        return None
    names = [name for name in task.old.train.models if name in bundle.scores.columns]
    means = bundle.scores.set_index("query_id").loc[task.old.train.queries].mean()
    return 1 + int((means[names] > means[task.newcomer]).sum())


def full_rank(
    task: NewcomerTask, posterior: xr.DataTree, *, prior: NewcomerPrior, rng: RandomState
) -> int:
    """Rank the newcomer by the same fit with all of its training comparisons.

    The rank is that of its mean win probability against the pool over the training queries,
    averaged over draws and rounded.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.onboarding_tasks import full_rank, leave_out
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=200, n_models=5, rng=0).bundle()
    >>> task = leave_out(bundle, draw_split(bundle), "llm_2")
    >>> fit = ECC(3, embedding_weight=1.0, rng=0).fit(task.old.train, task.old.train_embeddings)
    >>> full_rank(task, fit.posterior_, prior="pool", rng=0) in range(1, 6)
    True
    """
    sizes = posterior["posterior"].sizes
    many = sizes.get("chain", 1) * sizes.get("draw", 1)
    joining = start_onboarding(
        thin(posterior, max(1, many // _FULL_ATOMS)),
        task.newcomer,
        embeddings=task.old.train_embeddings,
        probes=task.known,
        prior=prior,
        draws=2 * _FULL_ATOMS,
        rng=rng,
    )
    return round(float(joining.update(task.own, ties="ignore", sweeps=20).rank()["rank"]))


# -------------------------------------------------------------------- what is tested


class Readings(NamedTuple):
    """What a fit reads of the newcomer's test queries, without the newcomer.

    Attributes
    ----------
    strengths : ndarray, shape (n_atoms, n_clusters, n_models)
    share : ndarray, shape (n_atoms,)
    responsibilities : dict of str to ndarray, shape (n_atoms, n_queries, n_clusters)
        By signal.
    """

    strengths: FloatArray
    share: FloatArray
    responsibilities: dict[str, FloatArray]


def read_tests(task: NewcomerTask, posterior: xr.DataTree) -> Readings:
    """Read the test queries by their embeddings, and with probes among the old models."""
    few = read_old_fit(posterior).atoms
    embeddings, queries = task.old.test_embeddings, task.test.queries
    return Readings(
        few.strengths,
        few.share,
        {
            "embedding": responsibilities_of(few, embeddings, None, queries)[1],
            "embedding+probe": responsibilities_of(few, embeddings, task.old.probes, queries)[1],
        },
    )
