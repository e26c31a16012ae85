"""Splits of a bundle: what is fitted on, what is known of test queries, what is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]
type Signal = Literal["embedding", "probe", "embedding+probe"]

SIGNALS: tuple[Signal, ...] = ("embedding", "probe", "embedding+probe")
FROZEN_COLUMNS = ("query_id", "model_a", "model_b", "winner", "split", "probe")


class Split(NamedTuple):
    """One split of a bundle: what is fitted on, what is known of test queries, what is predicted.

    Attributes
    ----------
    seed : int
        The split's number; fits draw from it too.
    train : Comparisons
    probes, scored : Comparisons
        Of the test queries, over the same queries in the same order.
    train_embeddings, test_embeddings : ndarray or None
        Rows in the order of `train.queries` and `scored.queries`; None if the bundle has none.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.splits import draw_split
    >>> split = draw_split(simulate(n_queries=100, rng=0).bundle(), seed=0)
    >>> split.train.n_queries, split.scored.n_queries, len(split.probes)
    (80, 20, 20)
    >>> split
    Split(seed=0, train: 560 comparisons of 80 queries, test: 20 queries with 20 probes and
    120 comparisons to score, embeddings of 32 dimensions)
    """

    seed: int
    train: Comparisons
    probes: Comparisons
    scored: Comparisons
    train_embeddings: FloatArray | None
    test_embeddings: FloatArray | None

    def __repr__(self) -> str:
        vectors = self.train_embeddings
        embedded = "no embeddings"
        if vectors is not None:
            embedded = f"embeddings of {vectors.shape[1]} dimensions"
        return (
            f"Split(seed={self.seed}, train: {len(self.train)} comparisons of "
            f"{self.train.n_queries} queries, test: {self.scored.n_queries} queries with "
            f"{len(self.probes)} probes and {len(self.scored)} comparisons to score, {embedded})"
        )


def draw_split(
    bundle: Bundle,
    *,
    seed: int = 0,
    per_query: int = 7,
    test_size: float = 0.2,
    n_probes: int = 1,
    exclude_models: Sequence[str] = (),
    source: Literal["scores", "comparisons"] | None = None,
) -> Split:
    """Draw comparisons, split the queries and set the test queries' probes apart.

    Of comparisons drawn from a score table the first drawn are the probes. A comparison table may
    be sorted by anything, so probes are drawn from it at random.

    Parameters
    ----------
    bundle : Bundle
        With scores or comparisons.
    seed : int
        Decides every draw.
    per_query : int
        Comparisons a query, drawn from a score table; a comparison table is taken whole.
    test_size : float
        Share of the queries that is tested on.
    n_probes : int
        Probes a test query.
    exclude_models : sequence of str
        Models to leave out.
    source : {"scores", "comparisons"}, optional
        Which table to use; needed where the bundle has both.

    Returns
    -------
    Split

    Raises
    ------
    InputError
        If the bundle cannot be used so.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.splits import draw_split
    >>> len(draw_split(simulate(n_queries=100, rng=0).bundle(), n_probes=2).probes)
    40
    """
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    least = min(2, check_count("n_probes", n_probes, least=0) + 1)
    from_table = bundle.scores is None or source == "comparisons"
    table = bundle.comparisons if from_table else None
    if table is not None and least == 2 and not table["query_id"].duplicated().any():
        raise InputError(
            f"The bundle {bundle.name!r} has one comparison a query, so that nothing is left to "
            "score beside a probe; take no probes (n_probes=0, --probes 0)."
        )
    comparisons = bundle.draw_comparisons(
        per_query=per_query,
        min_per_query=least,
        exclude_models=exclude_models,
        rng=rng,
        source=source,
    )
    train, test = comparisons.split(test_size, rng=rng)
    probes, scored = test.take_probes(n_probes, rng=rng if from_table else None)
    return _split(bundle, seed, train, probes, scored)


def frozen_split(
    bundle: Bundle, path: str | Path, *, seed: int = 0, exclude_models: Sequence[str] = ()
) -> Split:
    """Read a split that was frozen in a file, so that nobody measures sampling noise.

    Models that the file does not name take no part.

    Parameters
    ----------
    bundle : Bundle
        For embeddings and the order of the models.
    path : str or Path
        A parquet file with the columns `query_id, model_a, model_b, winner, split, probe`; `split`
        is "train" or "test", `probe` a bool.
    seed : int
        The split's number; fits draw from it.
    exclude_models : sequence of str
        Models to leave out.

    Returns
    -------
    Split

    Raises
    ------
    InputError
        If the file is missing or not such a table, names a query or model that the bundle does not
        have, or has a query on both sides.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.splits import frozen_split
    >>> bundle = simulate(n_queries=10, rng=0).bundle()
    >>> table = bundle.comparisons.assign(
    ...     winner=["model_b" if y else "model_a" for y in bundle.comparisons["outcome"]],
    ...     split=["train"] * 56 + ["test"] * 14, probe=[False] * 56 + ([True] + [False] * 6) * 2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/seed_0.parquet")
    ...     split = frozen_split(bundle, f"{folder}/seed_0.parquet")
    >>> split.train.n_queries, len(split.probes), len(split.scored)
    (8, 2, 12)
    """
    check_count("seed", seed, least=0)
    excluded = _known_models(bundle, exclude_models)
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source} does not exist; --frozen needs one seed_S.parquet a seed.")
    try:
        table = pd.read_parquet(source)
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read as parquet: {error}.") from None
    missing = [name for name in FROZEN_COLUMNS if name not in table.columns]
    if missing:
        raise InputError(
            f"{source} lacks the column(s) {', '.join(missing)}; a frozen split has "
            f"{', '.join(FROZEN_COLUMNS)}."
        )
    side = table["split"].astype(str).to_numpy()
    known = np.isin(side, ("train", "test"))
    if not known.all():
        raise InputError(
            f"{source}, row {int(np.argmin(known))}: split holds {side[np.argmin(known)]!r}; "
            "allowed are train and test."
        )
    if table["probe"].dtype != bool:
        raise InputError(f"{source}: probe holds {table['probe'].dtype}; it must hold bools.")
    kept = ~(table["model_a"].isin(excluded) | table["model_b"].isin(excluded)).to_numpy()
    table, side = table[kept].reset_index(drop=True), side[kept]
    named = set(table["model_a"]) | set(table["model_b"])
    models = [name for name in bundle.models if name in named]
    try:
        everything = Comparisons.from_frame(
            table[["query_id", "model_a", "model_b", "winner"]], models=models, ordered=False
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    unknown = ~everything.queries.isin(bundle.query_ids)
    if unknown.any():
        raise InputError(
            f"{source}: query {everything.queries[unknown][0]!r} is not in the bundle "
            f"{bundle.name!r}; evaluate the bundle that the file was frozen from."
        )
    is_test_row = side == "test"
    is_test = np.zeros(everything.n_queries, dtype=bool)
    is_test[everything.query[is_test_row]] = True
    both = is_test[everything.query] & ~is_test_row
    if both.any():
        name = everything.queries[everything.query[np.argmax(both)]]
        raise InputError(f"{source}: query {name!r} is in train and in test; put it on one side.")
    probe = table["probe"].to_numpy() & is_test_row
    train = everything.take(~is_test)
    probes = everything.rows(probe).take(is_test)
    scored = everything.rows(is_test_row & ~probe).take(is_test)
    if not (len(train) and len(scored)):
        raise InputError(f"{source} leaves nothing to train on or nothing to score.")
    return _split(bundle, seed, train, probes, scored)


def _known_models(bundle: Bundle, names: Sequence[str]) -> list[str]:
    """Give the models to leave out as a list, all of them the bundle's."""
    listed = [names] if isinstance(names, str) else list(names)
    unknown = [name for name in listed if name not in bundle.models]
    if unknown:
        raise InputError(
            f"exclude_models names {unknown[0]!r}, which the bundle {bundle.name!r} does not have; "
            f"its models are {', '.join(bundle.models)}."
        )
    return listed


def _split(
    bundle: Bundle, seed: int, train: Comparisons, probes: Comparisons, scored: Comparisons
) -> Split:
    if not len(scored):
        raise InputError(
            "No test comparison is left to score once the probes are set apart; take fewer probes "
            "or more comparisons a query."
        )
    embedded = bundle.embeddings is not None
    return Split(
        seed=seed,
        train=train,
        probes=probes,
        scored=scored,
        train_embeddings=bundle.embeddings_for(train.queries) if embedded else None,
        test_embeddings=bundle.embeddings_for(scored.queries) if embedded else None,
    )


def apart_from_probes(split: Split) -> NDArray[np.bool_]:
    """Mark the scored comparisons that share no model with a probe of their query.

    Comparisons on one query that share a model are told by one and the same answer of it: on scores
    of 0 and 1 a probe's winner has the query right, and beats or ties whatever else it is compared
    with. What a probe tells of the *other* models shows in the comparisons marked here.

    Returns
    -------
    ndarray of bool, shape (n_scored,)

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.splits import apart_from_probes, draw_split
    >>> split = draw_split(simulate(n_queries=100, n_models=8, rng=0).bundle())
    >>> bool(0.3 < apart_from_probes(split).mean() < 0.8)
    True
    """
    scored, probes = split.scored, split.probes
    probed = np.zeros((scored.n_queries, scored.n_models), dtype=bool)
    for side in (probes.first, probes.second):
        probed[probes.query, side] = True
    return ~(probed[scored.query, scored.first] | probed[scored.query, scored.second])


def predict_signal(estimator: Any, split: Split, signal: Signal) -> FloatArray:
    """Predict a split's scored comparisons from the embedding, the probe, or both.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.splits import draw_split, predict_signal
    >>> split = draw_split(simulate(n_queries=100, rng=0).bundle())
    >>> fit = ECC(n_clusters=3, rng=0).fit(split.train, split.train_embeddings)
    >>> predict_signal(fit, split, "probe").shape == (len(split.scored),)
    True
    """
    embeddings = split.test_embeddings if "embedding" in signal else None
    probes = split.probes if "probe" in signal else None
    return estimator.predict_win_probability(split.scored, embeddings=embeddings, probes=probes)
