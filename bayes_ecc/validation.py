"""Inner validation: training queries split once more, and the loss of a way to fit and predict.

Nothing here knows an estimator. Every candidate meets the same splits, the same probes and the same
seeds, so that differences between candidates are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.metrics import Average, bt_loss
from bayes_ecc.random import RandomState, as_generator

__all__ = [
    "InnerSplit",
    "evaluate_on_splits",
    "inner_split",
    "inner_splits",
    "validation_loss",
]

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]

_ENOUGH_FOR_PROBES = 0.25  # share of queries with two comparisons or more


class InnerSplit(NamedTuple):
    """Training queries split once more: some to fit on, the others to choose settings by.

    Attributes
    ----------
    train : Comparisons
        What to fit on.
    probes, scored : Comparisons
        Of the validation queries: known at prediction time, and to be predicted.
    train_positions, validation_positions : ndarray of int
        Positions in the queries that were split, ascending, to slice embeddings by; they are the
        queries of `train`, and those of `probes` and `scored`.
    seed : int
        Seed for whatever a fit on this split draws, so that all settings start alike.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.validation import inner_split
    >>> split = inner_split(simulate(n_queries=100, rng=0).comparisons, rng=0)
    >>> split.train.n_queries, split.scored.n_queries, len(split.probes)
    (75, 25, 25)
    """

    train: Comparisons
    probes: Comparisons
    scored: Comparisons
    train_positions: IntArray
    validation_positions: IntArray
    seed: int


def inner_split(
    comparisons: Comparisons,
    *,
    validation_size: float = 0.25,
    n_probes: int = 1,
    rng: RandomState = None,
) -> InnerSplit:
    """Split training queries at random into those to fit on and those to choose settings by.

    Parameters
    ----------
    comparisons : Comparisons
        Training comparisons; test queries must not be among them.
    validation_size : float
        Share of the queries to validate on, between 0 and 1.
    n_probes : int
        Comparisons of each validation query, drawn at random, that are known at prediction time.
    rng : int, numpy.random.Generator or None
        Randomness of the split, of the probes and of the split's seed.

    Returns
    -------
    InnerSplit

    Raises
    ------
    InputError
        If a setting is out of range, or nothing would be left to fit on or to score.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.validation import inner_split
    >>> data = simulate(n_queries=100, rng=0)
    >>> split = inner_split(data.comparisons, validation_size=0.2, rng=0)
    >>> data.embeddings[split.train_positions].shape[0], len(split.validation_positions)
    (80, 20)
    """
    return inner_splits(
        comparisons, 1, validation_size=validation_size, n_probes=n_probes, rng=rng
    )[0]


def inner_splits(
    comparisons: Comparisons,
    n_splits: int = 2,
    *,
    validation_size: float = 0.25,
    n_probes: int | None = 1,
    rng: RandomState = None,
) -> list[InnerSplit]:
    """Make several inner splits; no query is validated on twice while there are fresh ones.

    Parameters
    ----------
    comparisons : Comparisons
        Training comparisons; test queries must not be among them.
    n_splits : int
        How many splits.
    validation_size, rng
        As in `inner_split`.
    n_probes : int or None
        As in `inner_split`; None takes one where a quarter of the queries or more have something
        left to score then, and none elsewhere, as with an arena's votes, one a query.

    Returns
    -------
    list of InnerSplit

    Raises
    ------
    InputError
        As `inner_split`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.validation import inner_splits
    >>> first, second = inner_splits(simulate(n_queries=100, rng=0).comparisons, 2, rng=0)
    >>> set(first.validation_positions) & set(second.validation_positions)
    set()
    """
    if not isinstance(comparisons, Comparisons):
        raise InputError(f"comparisons must be a Comparisons, not {type(comparisons).__name__}.")
    check_count("n_splits", n_splits, least=1)
    if n_probes is None:
        count = np.bincount(comparisons.query, minlength=comparisons.n_queries)
        n_probes = int(np.mean(count > 1) >= _ENOUGH_FOR_PROBES)
    check_count("n_probes", n_probes, least=0)
    if not isinstance(validation_size, int | float | np.number) or not 0 < validation_size < 1:
        raise InputError(f"validation_size={validation_size!r}: give a share between 0 and 1.")
    n_queries = comparisons.n_queries
    n_validation = round(validation_size * n_queries)
    if not 0 < n_validation < n_queries:
        raise InputError(
            f"validation_size={validation_size} of {n_queries} training queries leaves one side "
            "empty; use another share or more queries."
        )
    generator = as_generator(rng)
    per_pass = n_queries // n_validation
    splits = []
    for number in range(n_splits):
        if number % per_pass == 0:
            order = generator.permutation(n_queries)
        start = number % per_pass * n_validation
        held_out = np.zeros(n_queries, dtype=bool)
        held_out[order[start : start + n_validation]] = True
        probes, scored = comparisons.take(held_out).take_probes(n_probes, rng=generator)
        if len(scored) == 0:
            raise InputError(
                f"With n_probes={n_probes} no comparison of the {n_validation} validation queries "
                "is left to score; use fewer probes, a larger validation_size or more comparisons."
            )
        splits.append(
            InnerSplit(
                train=comparisons.take(~held_out),
                probes=probes,
                scored=scored,
                train_positions=np.flatnonzero(~held_out),
                validation_positions=np.flatnonzero(held_out),
                seed=int(generator.integers(2**32)),
            )
        )
    return splits


def validation_loss(
    fit_predict: Callable[[InnerSplit], ArrayLike],
    splits: Iterable[InnerSplit],
    *,
    average: Average = "comparison",
) -> FloatArray:
    """Score a way to fit and predict on inner splits.

    Parameters
    ----------
    fit_predict : callable
        From an `InnerSplit` to P(second beats first) of each row of its `scored`. It fits on
        `train`, starts its random numbers from `seed`, and may read `probes`.
    splits : iterable of InnerSplit
        From `inner_splits`.
    average : {"comparison", "query"}
        How losses are averaged within a split, as in `bt_loss`.

    Returns
    -------
    ndarray, shape (n_splits,)
        The BT loss on each split; lower is better.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.validation import inner_splits, validation_loss
    >>> splits = inner_splits(simulate(n_queries=100, rng=0).comparisons, 2, rng=0)
    >>> validation_loss(lambda split: np.full(len(split.scored), 0.5), splits).round(4).tolist()
    [0.6931, 0.6931]
    """
    return np.array(
        [bt_loss(fit_predict(split), split.scored, average=average) for split in splits]
    )


def evaluate_on_splits(
    estimator: Any, embeddings: ArrayLike | None, splits: Sequence[InnerSplit]
) -> Callable[[Mapping[str, Any]], FloatArray]:
    """Make the callable that `search` wants from an estimator: settings in, losses out.

    The estimator itself is not touched: each evaluation fits a clone. If it has a parameter `rng`,
    the clone's is the split's seed.

    Parameters
    ----------
    estimator : object
        With `get_params` and `set_params`, `fit(comparisons, embeddings)` and
        `predict_win_probability(comparisons, *, embeddings, probes)`.
    embeddings : array-like, shape (n_queries, embedding_dim), or None
        Rows in the order of the queries that were split; None for fits without embeddings.
    splits : sequence of InnerSplit
        From `inner_splits`.

    Returns
    -------
    callable
        From a dict of settings to the loss on each split, shape (n_splits,).

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.validation import evaluate_on_splits, inner_splits
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=2, rng=0)
    >>> splits = inner_splits(data.comparisons, 2, rng=0)
    >>> evaluate = evaluate_on_splits(ECC(n_clusters=2), data.embeddings, splits)
    >>> evaluate({"ridge": 0.1}).shape
    (2,)
    """
    rows = None if embeddings is None else np.asarray(embeddings)

    def rows_at(positions: IntArray) -> ArrayLike | None:
        return None if rows is None else rows[positions]

    def evaluate(settings: Mapping[str, Any]) -> FloatArray:
        def fit_predict(split: InnerSplit) -> ArrayLike:
            candidate = clone(estimator).set_params(**settings)
            if "rng" in candidate.get_params():
                candidate.set_params(rng=split.seed)
            candidate.fit(split.train, rows_at(split.train_positions))
            return candidate.predict_win_probability(
                split.scored,
                embeddings=rows_at(split.validation_positions),
                probes=split.probes if len(split.probes) else None,
            )

        return validation_loss(fit_predict, splits)

    return evaluate
