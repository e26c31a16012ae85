"""The draws of a posterior laid out for summaries: many queries against many draws, in blocks.

Responsibilities of every query under every draw are too many to keep (2,000 draws, 10,000 queries
and 30 clusters make 600 million), and intervals need all draws of a query together. So queries are
taken in blocks, the draws of a block in parts that fit a processor's cache, in single precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse

from bayes_ecc.checks import check_count
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.inference import Signals, log_evidence, mean_win_probability
from bayes_ecc.intervals import Interval, equally_weighted, sorted_interval
from bayes_ecc.posterior import Atoms, atoms

type FloatArray = NDArray[np.floating[Any]]

_PART = 8192  # draws x queries treated at once; the arrays of a part then stay in the cache
_HELD = 8_000_000  # numbers held at once, all draws of some queries above all: 32 MB
_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, eq=False)
class Draws:
    """A posterior read once, for summaries of it; tables made on the way are kept.

    Make one with `read_draws` where many summaries of one posterior are asked for, one query at a
    time, say. Every summary takes it in the posterior's place.

    Attributes
    ----------
    atoms : Atoms
        The draws, chain by chain.
    chains, clusters : ndarray
        Labels of the chains and of the clusters.
    clusters_matched : bool
        Whether cluster k means the same in all chains.
    checks : str
        "not made", "passed", or "failed: " and the names of the checks that failed.

    Examples
    --------
    >>> from bayes_ecc import ECC, read_draws, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> draws = read_draws(fit.posterior_)
    >>> len(draws), draws.checks
    (1, 'not made')
    """

    atoms: Atoms
    chains: NDArray[Any]
    clusters: NDArray[Any]
    clusters_matched: bool
    checks: str

    def __len__(self) -> int:
        return len(self.atoms)

    @property
    def models(self) -> NDArray[Any]:
        """Model names."""
        return self.atoms.models.to_numpy(dtype=object)

    @property
    def attrs(self) -> dict[str, Any]:
        """What every summary tells of its draws."""
        return {"chains": len(self.chains), "draws": len(self), "checks": self.checks}

    def groups(self) -> list[FloatArray]:
        """Give the shares (n_draws,) of each group of draws that agrees on the clusters.

        One group if clusters are matched, with the chains' weights; otherwise one a chain.
        """
        if self.clusters_matched:
            return [self.atoms.share]
        chain = np.repeat(np.arange(len(self.chains)), len(self) // len(self.chains))
        return [(chain == c) / (chain == c).sum() for c in range(len(self.chains))]

    def thinned(self, draws: int) -> Draws:
        """Keep at most so many draws of each chain, evenly spaced."""
        check_count("draws", draws)
        n_chains, n_draws = len(self.chains), len(self) // len(self.chains)
        if draws >= n_draws:
            return self
        kept = ((np.arange(draws) + 0.5) * n_draws / draws).astype(int)
        kept = (np.arange(n_chains)[:, None] * n_draws + kept).ravel()
        share = self.atoms.share[kept]
        thin = replace(
            self.atoms,
            strengths=self.atoms.strengths[kept],
            centroids=self.atoms.centroids[kept],
            log_weights=self.atoms.log_weights[kept],
            share=share / share.sum(),
            tie_margin=_kept(self.atoms.tie_margin, kept),
            order_effect=_kept(self.atoms.order_effect, kept),
        )
        return replace(self, atoms=thin)

    @cached_property
    def centroid_table(self) -> FloatArray:
        """Centroids times concentration, shape (n_clusters, n_draws, embedding_dim)."""
        table = self.atoms.concentration * self.atoms.centroids
        return np.ascontiguousarray(table.transpose(1, 0, 2), dtype=np.float32)

    @cached_property
    def log_weight_table(self) -> FloatArray:
        """Log weights, shape (n_clusters, n_draws, 1)."""
        return np.ascontiguousarray(self.atoms.log_weights.T[:, :, None], dtype=np.float32)

    @cached_property
    def strength_table(self) -> FloatArray:
        """Strengths, shape (n_models, n_clusters, n_draws)."""
        return np.ascontiguousarray(self.atoms.strengths.transpose(2, 1, 0), dtype=np.float32)

    @cached_property
    def win_table(self) -> FloatArray:
        """Mean win probability against the pool, shape (n_draws, n_models, n_clusters)."""
        n_draws, n_clusters, n_models = self.atoms.strengths.shape
        table = np.empty((n_draws, n_models, n_clusters), dtype=np.float32)
        step = max(1, _HELD // (n_clusters * n_models**2))
        for start in range(0, n_draws, step):
            theta = self.atoms.strengths[start : start + step]
            ties = self.atoms.tie_margin
            margin = None if ties is None else ties[start : start + step, None]
            table[start : start + step] = mean_win_probability(theta, margin).transpose(0, 2, 1)
        return table


def read_draws(posterior: xr.DataTree | Draws, *, draws: int | None = None) -> Draws:
    """Read a posterior for summaries.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    draws : int, optional
        Keep at most so many draws of each chain, evenly spaced; all by default.

    Returns
    -------
    Draws

    Raises
    ------
    InputError
        If it is no posterior, or `draws` is not a positive whole number.

    Warns
    -----
    DataWarning
        If checks of the fit failed, naming them.

    Examples
    --------
    >>> from bayes_ecc import ECC, read_draws, simulate, summarize_ranking
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> draws = read_draws(fit.posterior_)
    >>> for row in data.embeddings[:3]:
    ...     summary = summarize_ranking(draws, embeddings=[row])
    ...     print(summary["rank"].idxmin("llm").item())
    llm_0
    llm_2
    llm_2
    """
    if isinstance(posterior, Draws):
        read = posterior
    else:
        source = atoms(posterior)
        values = posterior.children["posterior"].to_dataset(inherit=False)
        attrs = {**posterior.children["constant_data"].attrs, **posterior.attrs}
        read = Draws(
            atoms=source,
            chains=np.atleast_1d(values["chain"].values) if "chain" in values else np.arange(1),
            clusters=values["cluster"].values,
            clusters_matched=bool(attrs.get("clusters_matched", 1)),
            checks=_failed_checks(posterior),
        )
    return read if draws is None else read.thinned(draws)


def _failed_checks(posterior: xr.DataTree) -> str:
    """Tell how the checks of a fit ended, and warn if some failed."""
    failed = posterior.attrs.get("failed_checks")
    if failed is None:
        return "not made"
    names = ", ".join(name.strip() for name in str(failed).split(",") if name.strip())
    if not names:
        return "passed"
    warnings.warn(
        f"Checks of this fit failed: {names}. diagnose() says what that means for these summaries "
        "and what to do.",
        DataWarning,
        stacklevel=2,
        skip_file_prefixes=(_PACKAGE,),
    )
    return f"failed: {names}"


# -------------------------------------------------------------------- blocks


class QueryBlock(NamedTuple):
    """Some queries: which rows, their embeddings (embedding_dim, n), their own probe columns."""

    rows: slice
    embeddings: FloatArray | None
    counts: OutcomeCounts | None

    def __len__(self) -> int:
        return self.rows.stop - self.rows.start


def query_blocks(signals: Signals, width: int) -> Iterator[QueryBlock]:
    """Split queries into blocks of at most `width`."""
    n_queries = len(signals.queries)
    if not n_queries:
        raise InputError("There are no queries to summarise; give at least one.")
    for start in range(0, n_queries, width):
        rows = slice(start, min(start + width, n_queries))
        unit = None
        if signals.embeddings is not None:
            unit = np.ascontiguousarray(signals.embeddings[rows].T, dtype=np.float32)
        yield QueryBlock(rows, unit, _own_columns(signals.counts, rows))


def block_width(n_draws: int, n_values: int, n_more: int = 0) -> int:
    """Choose how many queries to treat at once.

    For each, `n_values` numbers of every draw are kept, and `n_more` besides.
    """
    fitting = max(1, _HELD // (n_draws * n_values + n_more))
    return min(max(128, _PART // n_draws), fitting)


def draw_parts(share: FloatArray, n_items: int, n_table: int = 1) -> Iterator[tuple[slice, float]]:
    """Give runs of draws with one and the same positive share, and the share of each draw.

    A run is as long as suits values of `n_items` items and a table of `n_table` numbers a draw.
    """
    size = max(1, min(_PART // n_items, _HELD // n_table))
    edges = np.flatnonzero(np.diff(share)) + 1
    for first, last in zip([0, *edges], [*edges, len(share)], strict=True):
        if share[first] > 0:
            for start in range(first, last, size):
                yield slice(start, min(start + size, last)), float(share[first])


def responsibilities(draws: Draws, part: slice, block: QueryBlock) -> FloatArray:
    """Compute the responsibilities of a block of queries under a part of the draws.

    Returns
    -------
    ndarray of float32, shape (n_clusters, n_part, n_block)
    """
    log_weights = draws.log_weight_table[:, part]
    shape = (*log_weights.shape[:2], len(block))
    if block.embeddings is not None:
        scores = np.matmul(draws.centroid_table[:, part], block.embeddings)
        scores += log_weights
    else:
        scores = np.broadcast_to(log_weights, shape).copy()
    if block.counts is not None:
        theta = draws.strength_table[:, :, part].reshape(len(draws.strength_table), -1)
        margins = [
            0.0 if values is None else np.tile(values[part], len(log_weights))
            for values in (draws.atoms.tie_margin, draws.atoms.order_effect)
        ]
        evidence = log_evidence(theta.T, block.counts, *margins).T.reshape(shape)
        scores += np.float32(draws.atoms.probe_power) * evidence
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores


class Collector:
    """Mean and interval of values (n_values, n_items) whose draws come in parts.

    Parameters
    ----------
    n_values, n_items : int
        Shape of the values of one draw.
    share : ndarray, shape (n_draws,)
        Share of each draw; those without are left out.
    dtype : dtype
        Of the values.
    """

    def __init__(self, n_values: int, n_items: int, share: FloatArray, dtype: Any) -> None:
        self._share = share[share > 0]
        self._values = np.empty((n_values, n_items, len(self._share)), dtype)
        self._filled = 0
        self.mean = np.zeros((n_values, n_items))

    def add(self, values: FloatArray, share: float) -> None:
        """Add the next draws, values (n_values, n_part, n_items), each with this share."""
        stop = self._filled + values.shape[1]
        self._values[:, :, self._filled : stop] = values.transpose(0, 2, 1)
        self._filled = stop
        self.mean += share * values.sum(axis=1)

    def bounds(self, interval: Interval) -> tuple[FloatArray, FloatArray]:
        """Give the bounds (n_values, n_items) of the interval over all draws added."""
        values = self._values
        if (self._share != self._share[0]).any():
            values = values[:, :, equally_weighted(self._share)]
        values.sort(axis=-1)
        return sorted_interval(values, interval)


def _own_columns(counts: OutcomeCounts | None, rows: slice) -> OutcomeCounts | None:
    """Cut probe counts down to some queries and the columns these use, in single precision."""
    if counts is None:
        return None
    matrix = counts.matrix
    span = slice(matrix.indptr[rows.start], matrix.indptr[rows.stop])
    columns, place = np.unique(matrix.indices[span], return_inverse=True)
    pointer = matrix.indptr[rows.start : rows.stop + 1] - span.start
    own = sparse.csr_array(
        (matrix.data[span].astype(np.float32), place, pointer),
        shape=(rows.stop - rows.start, len(columns)),
    )
    return OutcomeCounts(
        own,
        counts.winner[columns],
        counts.loser[columns],
        _kept(counts.direction, columns),
        _kept(counts.tie_weight, rows),
    )


def _kept(values: NDArray[Any] | None, kept: Any) -> Any:
    return None if values is None else values[kept]
