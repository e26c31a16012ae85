"""What a routing study is given: training data, test queries with all scores, and their probes.

Two protocols. The **published** one tests on queries that have a decisive comparison and gives one
away for free. With scores of 0 and 1 its winner is right for certain, so that sending each query
to the probe's winner nearly equals the oracle. The **honest** one tests on all queries that
were not trained on, draws the pair of a probe without looking at its outcome, which is a tie more
often than not, and charges the two calls.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_choice
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.quality import align_scores
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.splits import Split

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]
type Protocol = Literal["published", "honest"]
type Undecided = Literal["test", "share"]

PROTOCOLS: tuple[Protocol, ...] = ("published", "honest")
UNDECIDED: tuple[Undecided, ...] = ("test", "share")


class RoutingTask(NamedTuple):
    """One split of a bundle, to route on.

    Attributes
    ----------
    protocol : {"published", "honest"}
    split : Split
        What is fitted on, and the comparisons that win probabilities are judged by.
    models : pandas.Index
        In the order of `split.train.models`; columns of the arrays below.
    train_queries : pandas.Index
        Training queries with scores, those without comparisons last.
    train_scores, train_embeddings : ndarray
        Rows in the order of `train_queries`; scores may be missing.
    queries : pandas.Index
        Test queries.
    scores, embeddings, costs : ndarray
        Rows in the order of `queries`; every score is there. Costs are 1 a call if the bundle has
        none.
    probes : Comparisons
        One a test query, over `queries`; ties (outcome 0.5) among them in the honest protocol.
    left_out : dict
        How many queries were left out, by reason.

    Examples
    --------
    See `make_task`.
    """

    protocol: Protocol
    split: Split
    models: pd.Index
    train_queries: pd.Index
    train_scores: FloatArray
    train_embeddings: FloatArray
    queries: pd.Index
    scores: FloatArray
    embeddings: FloatArray
    costs: FloatArray
    probes: Comparisons
    left_out: dict[str, int]

    @property
    def charges_probes(self) -> bool:
        """Whether the calls of a probe are paid for."""
        return self.protocol == "honest"

    @property
    def pair(self) -> tuple[IntArray, IntArray]:
        """The models (n_queries,) of each query's probe."""
        return self.probes.first, self.probes.second

    @property
    def evidence(self) -> Comparisons:
        """The probes that were decided: a tie tells nothing."""
        return self.probes.rows(self.probes.outcome != 0.5)

    @property
    def winner(self) -> IntArray:
        """The winner of each query's probe, -1 for a tie."""
        first, second = self.pair
        outcome = self.probes.outcome
        return np.where(outcome > 0.5, second, np.where(outcome < 0.5, first, -1))


def make_task(
    bundle: Bundle,
    split: Split,
    protocol: Protocol = "honest",
    *,
    undecided: Undecided = "share",
    rng: RandomState = None,
) -> RoutingTask:
    """Set up a routing study of one split.

    Parameters
    ----------
    bundle : Bundle
        With scores, and the embeddings of all queries.
    split : Split
        From `draw_split` or `frozen_split`.
    protocol : {"published", "honest"}
        See the module.
    undecided : {"share", "test"}
        Where queries go that have too few decisive comparisons to be in the split (honest
        protocol). "share": to training and test in the split's proportion, so that test queries
        are a sample of all queries; their training share has scores, no comparisons. "test": all
        of them are tested on.
    rng : int, numpy.random.Generator or None
        Randomness of probe pairs and of the shares.

    Returns
    -------
    RoutingTask

    Raises
    ------
    InputError
        If the bundle has no scores, or no query is left to test on.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from bayes_ecc import Bundle
    >>> from bayes_ecc.routing_tasks import make_task
    >>> from bayes_ecc.splits import draw_split
    >>> rng = np.random.default_rng(0)
    >>> ids = [f"q{i}" for i in range(100)]
    >>> scores = pd.DataFrame(rng.integers(0, 2, (100, 4)), columns=list("abcd"))
    >>> scores.insert(0, "query_id", ids)
    >>> bundle = Bundle(
    ...     "tiny", queries=pd.DataFrame({"query_id": ids}), scores=scores,
    ...     embeddings=rng.normal(size=(100, 8)),
    ... )
    >>> task = make_task(bundle, draw_split(bundle, seed=0), "honest", rng=0)
    >>> len(task.queries), task.scores.shape[1], len(task.probes) == len(task.queries)
    (20, 4, True)
    """
    check_choice("protocol", protocol, PROTOCOLS)
    check_choice("undecided", undecided, UNDECIDED)
    if bundle.scores is None:
        raise InputError(
            f"The bundle {bundle.name!r} has no scores; routing is judged by the score of the "
            "model that a query was sent to."
        )
    generator = as_generator(rng)
    models = split.train.models
    ids = bundle.query_ids
    full = bundle.scores.set_index("query_id").reindex(ids)
    absent = [name for name in models if name not in full.columns]
    if absent:
        raise InputError(f"The scores of {bundle.name!r} have no column {absent[0]!r}.")
    train, test = split.train.queries, split.scored.queries
    if protocol == "honest":
        rest = ids[~ids.isin(train) & ~ids.isin(test)]
        to_test = np.ones(len(rest), dtype=bool)
        if undecided == "share":
            share = len(test) / (len(train) + len(test))
            to_test[:] = False
            to_test[generator.permutation(len(rest))[: round(share * len(rest))]] = True
        train, test = train.append(rest[~to_test]), test.append(rest[to_test])
    scores = align_scores(full, test, models)
    kept = ~np.isnan(scores).any(axis=1)
    left_out = {"missing_scores": int((~kept).sum())}
    if protocol == "published":
        has_probe = np.zeros(len(test), dtype=bool)
        has_probe[split.probes.query] = True
        left_out["no_probe"] = int((kept & ~has_probe).sum())
        kept &= has_probe
    if not kept.any():
        raise InputError("No test query has a score of every model; nothing can be routed.")
    queries, scores = test[kept], scores[kept]
    costs: FloatArray = np.ones(scores.shape)
    if bundle.costs is not None:
        costs = align_scores(bundle.costs.set_index("query_id").reindex(ids), queries, models)
        if np.isnan(costs).any():
            raise InputError("costs of test queries are missing; give every model's on each.")
    if protocol == "published":
        probes = _first_of_each(split.probes.take(kept))
    else:
        probes = random_probes(queries, scores, models, generator)
    train_scores = align_scores(full, train, models)
    scored = ~np.isnan(train_scores).all(axis=1)
    return RoutingTask(
        protocol=protocol,
        split=split,
        models=models,
        train_queries=train[scored],
        train_scores=train_scores[scored],
        train_embeddings=bundle.embeddings_for(train[scored]),
        queries=queries,
        scores=scores,
        embeddings=bundle.embeddings_for(queries),
        costs=costs,
        probes=probes,
        left_out=left_out,
    )


def random_probes(
    queries: pd.Index, scores: FloatArray, models: pd.Index, rng: np.random.Generator
) -> Comparisons:
    """Draw a pair of models for each query, blind to its scores, and then look who won."""
    first, second = np.triu_indices(len(models), k=1)
    pair = rng.integers(len(first), size=len(queries))
    row, i, j = np.arange(len(queries)), first[pair], second[pair]
    outcome = (np.sign(scores[row, j] - scores[row, i]) + 1) / 2
    return Comparisons.from_arrays(
        row, i, j, outcome, queries=queries, models=models, ordered=False
    )


def _first_of_each(probes: Comparisons) -> Comparisons:
    """Keep the first probe of each query, in the order of the queries."""
    kept = np.zeros(len(probes), dtype=bool)
    kept[np.unique(probes.query, return_index=True)[1]] = True
    one = probes.rows(kept)
    order = np.argsort(one.query)
    return Comparisons.from_arrays(
        one.query[order],
        one.first[order],
        one.second[order],
        one.outcome[order],
        queries=one.queries,
        models=one.models,
        ordered=one.ordered,
    )
