"""Drawing a cell's two sides: what is fitted, what is known of test queries, what is scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.splits import Split
from bayes_ecc.studies.cells import Cell
from bayes_ecc.studies.data import StudyData

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

_DRAWN = 64  # pairs drawn a query: fewer comparisons a query are then the first of more
_TIED_POOL = 256  # pairs of any outcome drawn a query, to have ties among them
_PAIRS, _QUERIES, _TIES, _PROBES, _NOISE = range(1, 6)  # streams of a seed


def draw_training(data: StudyData, cell: Cell, *, pairs_seed: int | None = None) -> Comparisons:
    """Draw the comparisons that a cell fits.

    The pairs of a query come in an order that the seed decides: fewer a query are the first of
    more. Queries are trained on in an order that the seed decides, too, so that a smaller share is
    part of a larger one.

    Parameters
    ----------
    data : StudyData
    cell : Cell
    pairs_seed : int, optional
        Decides the pairs in the place of the cell's seed; the queries stay.

    Returns
    -------
    Comparisons
        Of the training queries.

    Raises
    ------
    InputError
        If nothing is left to train on.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import Cell, StudyData
    >>> from bayes_ecc.studies.sides import draw_training
    >>> data = StudyData.of(simulate(n_queries=100, rng=0).bundle())
    >>> draw_training(data, Cell(train_fraction=0.5, per_query=3))
    Comparisons(150 comparisons, 50 queries, 8 models, ordered, 0 ties)
    """
    seed = cell.seed if pairs_seed is None else pairs_seed
    pool = _draw(data.judge(cell.judge), cell, cell.per_query, seed)
    place = _places(data, cell.seed, pool)
    chosen = place < cell.train_fraction
    if cell.left_out:
        chosen &= ~_has_label(data, cell.label, cell.left_out, pool)
    return _take(pool, chosen, "to train on")


def draw_test(
    data: StudyData, cell: Cell, models: pd.Index | None = None
) -> tuple[Comparisons, Comparisons]:
    """Draw the probes and the scored comparisons of a cell's test queries.

    Parameters
    ----------
    data : StudyData
    cell : Cell
    models : pandas.Index, optional
        Models of the training side; comparisons of others are left out.

    Returns
    -------
    probes, scored : Comparisons
        Over the same queries in the same order.

    Raises
    ------
    InputError
        If nothing is left to score.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import Cell, StudyData
    >>> from bayes_ecc.studies.sides import draw_test
    >>> data = StudyData.of(simulate(n_queries=100, rng=0).bundle())
    >>> probes, scored = draw_test(data, Cell(n_probes=2, reserved=3))
    >>> len(probes), len(scored)
    (40, 80)
    """
    return set_probes_apart(data, cell, draw_test_pool(data, cell, models))


def pool_key(cell: Cell) -> tuple[Any, ...]:
    """Give the settings that decide `draw_test_pool`; cells alike in them share a pool."""
    reading = cell.reading()
    names = ("tested_by", "tie_share", "test_ties", "per_query", "test_fraction")
    return (cell.seed, *(reading[name] for name in names))


def draw_test_pool(data: StudyData, cell: Cell, models: pd.Index | None = None) -> Comparisons:
    """Draw all comparisons of a cell's test queries, of whatever label; see `draw_test`."""
    reading = cell.reading()
    pool = _draw(data.judge(cell.tested_by), cell, reading["per_query"], cell.seed)
    if models is not None:
        strange = [name for name in pool.models if name not in models]
        if strange:
            pool = pool.drop_models(strange)
    # 1 - 0.2 is a little less than 0.8: without rounding a query could fall on both sides
    chosen = _places(data, cell.seed, pool) >= round(1 - reading["test_fraction"], 12)
    pool = _take(pool, chosen, "to score")
    return pool if cell.test_ties else pool.rows(pool.outcome != 0.5)


def set_probes_apart(
    data: StudyData, cell: Cell, pool: Comparisons
) -> tuple[Comparisons, Comparisons]:
    """Set the probes of a cell's test queries apart from what is scored; see `draw_test`."""
    rng = np.random.default_rng([cell.seed, _PROBES, cell.probe_draw])
    order = _ranks(pool, rng.permutation(len(pool)) if cell.probe_draw else None)
    is_scored = order >= cell.reading()["reserved"]
    chosen = np.bincount(pool.query[is_scored], minlength=pool.n_queries) > 0
    if cell.tested:
        chosen &= _has_label(data, cell.label, cell.tested, pool)
    scored = _take(pool.rows(is_scored), chosen, "to score")
    if cell.probe_noise > 0:
        uniform = np.random.default_rng([cell.seed, _NOISE, cell.probe_draw]).random(len(pool))
        flip = uniform < cell.probe_noise
        pool = replace(pool, outcome=np.where(flip, 1 - pool.outcome, pool.outcome))
    return pool.rows(order < cell.n_probes).take(chosen), scored


def make_split(
    data: StudyData, cell: Cell, train: Comparisons, test: tuple[Comparisons, Comparisons]
) -> Split:
    """Put a cell's two sides together, with their embeddings."""
    vectors = data.embeddings(cell.encoder)
    ids = data.bundle.query_ids

    def rows(queries: pd.Index) -> FloatArray | None:
        return None if vectors is None else vectors[ids.get_indexer(queries)]

    probes, scored = test
    return Split(cell.seed, train, probes, scored, rows(train.queries), rows(scored.queries))


def _draw(bundle: Bundle, cell: Cell, per_query: int | None, seed: int) -> Comparisons:
    """Draw all queries' first comparisons, ties among them as the cell wants."""
    limit = None if per_query is None else max(_DRAWN, per_query)
    rng = np.random.default_rng([seed, _PAIRS])
    table, least = bundle.comparisons, cell.least_per_query
    if table is not None and least > 1 and not table["query_id"].duplicated().any():
        raise InputError(
            f"The bundle {bundle.name!r} has one comparison a query, so that nothing is left to "
            "score beside a probe; take no probes (n_probes=0, --probes 0)."
        )
    pool = bundle.draw_comparisons(per_query=limit, min_per_query=least, rng=rng)
    ties = np.random.default_rng([seed, _TIES])
    if bundle.scores is None:
        pool = _shuffled(pool, rng)
        if cell.tie_share is not None:
            pool = _thin_ties(pool, cell.tie_share, ties)
        rank = _ranks(pool)
    elif cell.tie_share:
        tied_limit = None if limit is None else max(_TIED_POOL, limit)
        mixed = bundle.draw_comparisons(
            per_query=tied_limit, ties="keep", min_per_query=least, rng=ties
        )
        pool, rank = _mix_ties(pool, mixed, cell.tie_share, ties)
    else:
        rank = _ranks(pool)
    return pool if per_query is None else pool.rows(rank < per_query)


def _shuffled(pool: Comparisons, rng: np.random.Generator) -> Comparisons:
    order = rng.permutation(len(pool))
    return _reorder(pool, order[np.argsort(pool.query[order], kind="stable")])


def _reorder(pool: Comparisons, order: IntArray) -> Comparisons:
    names = ("query", "first", "second", "outcome", "weight")
    return replace(pool, **{name: getattr(pool, name)[order] for name in names})


def _ranks(pool: Comparisons, order: IntArray | None = None) -> IntArray:
    """Count each query's comparisons from 0, in the order of the rows or in another one."""
    place = np.arange(len(pool)) if order is None else order
    by_query = np.lexsort((place, pool.query))
    start = np.searchsorted(pool.query[by_query], np.arange(pool.n_queries))
    rank = np.empty(len(pool), dtype=np.intp)
    rank[by_query] = np.arange(len(pool)) - start[pool.query[by_query]]
    return rank


def _thin_ties(pool: Comparisons, share: float, rng: np.random.Generator) -> Comparisons:
    """Leave out ties at random until they make up no more than a share."""
    tied = np.flatnonzero(pool.outcome == 0.5)
    most = int(share * (len(pool) - len(tied)) / (1 - share))
    keep = np.ones(len(pool), dtype=bool)
    keep[rng.permutation(tied)[most:]] = False
    return pool.rows(keep)


def _mix_ties(
    decided: Comparisons, mixed: Comparisons, share: float, rng: np.random.Generator
) -> tuple[Comparisons, IntArray]:
    """Give a share of each query's slots to tied pairs: the comparisons, and their slots.

    The decided ones keep their order, so that at a share of 0 they are those drawn without ties;
    a slot tied at one share is tied at every larger one.
    """
    tied = mixed.rows(mixed.outcome == 0.5)
    code = decided.queries.get_indexer(tied.queries)
    kept = tied.rows(code[tied.query] >= 0)
    n_queries = decided.n_queries
    tied_query = code[kept.query]
    tie_rank, rank = _ranks(kept), _ranks(decided)
    available = np.bincount(tied_query, minlength=n_queries)
    decided_count = np.bincount(decided.query, minlength=n_queries)
    n_slots = int((available + decided_count).max())
    is_tie = rng.random((n_queries, n_slots)) < share
    is_tie &= np.cumsum(is_tie, axis=1) <= available[:, None]
    slot = np.full(len(kept) + len(decided), n_slots, dtype=np.intp)
    for part, mask, query, number in (
        (slice(0, len(kept)), is_tie, tied_query, tie_rank),
        (slice(len(kept), None), ~is_tie, decided.query, rank),
    ):
        row, column = np.nonzero(mask)
        start = np.searchsorted(row, np.arange(n_queries + 1))
        found = start[query] + number
        there = found < start[query + 1]
        slot[part] = np.where(there, column[np.where(there, found, 0)], n_slots)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(kept, name), getattr(decided, name)])
        for name in ("first", "second", "outcome", "weight")
    }
    both = replace(decided, query=np.concatenate([tied_query, decided.query]), **joined)
    order = np.lexsort((slot, both.query))
    order = order[slot[order] < n_slots]
    return _reorder(both, order), slot[order]


def _places(data: StudyData, seed: int, pool: Comparisons) -> FloatArray:
    """Give each query's place, from 0 to 1, in the order in which queries are trained on."""
    ids = data.bundle.query_ids
    place = np.random.default_rng([seed, _QUERIES]).permutation(len(ids)) / len(ids)
    return place[ids.get_indexer(pool.queries)]


def _has_label(
    data: StudyData, column: str | None, values: tuple[str, ...], pool: Comparisons
) -> NDArray[np.bool_]:
    assert column is not None
    labels = data.bundle.labels(column).reindex(pool.queries)
    text = labels.astype(object).where(labels.notna(), None).map(_as_text)
    unknown = set(values) - set(data.bundle.labels(column).dropna().map(_as_text))
    if unknown:
        raise InputError(f"No query has the label {min(unknown)!r} in the column {column!r}.")
    return text.isin(values).to_numpy()


def _as_text(label: Any) -> str | None:
    return None if label is None else str(label)


def _take(comparisons: Comparisons, chosen: NDArray[np.bool_], purpose: str) -> Comparisons:
    if not chosen[comparisons.query].any():
        raise InputError(
            f"No comparison is left {purpose}; take more queries, more comparisons a query, fewer "
            "probes, or other labels."
        )
    return comparisons.take(chosen)
