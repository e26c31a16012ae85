"""What the checks look at: a bundle or comparisons, taken apart into arrays once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import InputError
from bayes_ecc.tables import ID

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_MOST_LEVELS = 100


@dataclass(frozen=True)
class Label:
    """One label column: a code a query (-1 where it has none) and what the codes mean."""

    name: str
    codes: IntArray
    levels: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Data to audit.

    Attributes
    ----------
    name : str
        How the data are called in the report.
    queries, models : pandas.Index
    scores : ndarray, shape (n_queries, n_scored), or None
        NaN where missing; columns as in `scored`.
    scored : pandas.Index
        Models of the score table.
    votes : Comparisons or None
        Over `queries` and `models`.
    texts : list of str or None, one a query, or None
    embeddings : ndarray, shape (n_queries, embedding_dim), or None
    labels : tuple of Label
    """

    name: str
    queries: pd.Index
    models: pd.Index
    scores: FloatArray | None
    scored: pd.Index
    votes: Comparisons | None
    texts: tuple[str | None, ...] | None
    embeddings: FloatArray | None
    labels: tuple[Label, ...]

    @cached_property
    def unit(self) -> FloatArray:
        """The embeddings with unit rows; however short or long they were."""
        assert self.embeddings is not None
        values = self.embeddings
        largest = np.maximum(values.max(axis=1), -values.min(axis=1))[:, None]
        if largest.min() < 1e-9 or largest.max() > 1e9:  # squares would vanish or overflow
            values = values / largest
        return unit_embeddings(values.astype(np.float32, copy=False))

    @cached_property
    def text_codes(self) -> IntArray:
        """Number the texts so that equal ones (`normalised`) share a number; -1 for none."""
        assert self.texts is not None
        known = pd.Series([None if text is None else normalised(text) for text in self.texts])
        return pd.factorize(known)[0]


def normalised(text: str) -> str:
    """Give a text without what does not change a query: case, spacing, ways to write a letter."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def make_source(data: Bundle | Comparisons, labels: Any = None) -> Source:
    """Take data apart.

    Raises
    ------
    InputError
        If `data` is neither a bundle nor comparisons, or the labels do not belong to it.
    """
    if isinstance(data, Comparisons):
        nothing = pd.Index([], dtype=object)
        given = () if labels is None else (_given_label(labels, data.queries),)
        return Source(
            "comparisons", data.queries, data.models, None, nothing, data, None, None, given
        )
    if not isinstance(data, Bundle):
        raise InputError(
            f"data must be a Bundle or Comparisons, not {type(data).__name__}; load_bundle reads "
            "one, Comparisons.from_frame makes the other."
        )
    scores, scored = None, pd.Index([], dtype=object)
    if data.scores is not None:
        table = data.scores.set_index(ID).reindex(data.query_ids)
        scores, scored = table.to_numpy(dtype=float), table.columns
    votes = None
    if data.comparisons is not None:
        votes = Comparisons.from_frame(
            data.comparisons, queries=data.query_ids, models=data.models, ordered=data.ordered
        )
    texts = None
    if "text" in data.queries.columns:
        texts = tuple(
            text if isinstance(text, str) and text.strip() else None
            for text in data.queries["text"].tolist()
        )
    found: tuple[Label, ...]
    if isinstance(labels, str):
        found = (_label(labels, data.labels(labels)),)
    elif labels is not None:
        found = (_given_label(labels, data.query_ids),)
    else:
        found = tuple(_usual_labels(data.queries))
    return Source(
        repr(data.name),
        data.query_ids,
        data.models,
        scores,
        scored,
        votes,
        texts,
        data.embeddings,
        found,
    )


def _given_label(labels: Any, queries: pd.Index) -> Label:
    """Read labels given one a query, by identifier (a Series) or by position."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise InputError(
            f"labels={labels!r}: give one label a query, or the name of a label column of a bundle."
        )
    if isinstance(labels, pd.Series) and not isinstance(labels.index, pd.RangeIndex):
        if not labels.index.is_unique:
            raise InputError("labels gives a query more than one label; give each query one.")
        unknown = queries.difference(labels.index)
        if len(unknown):
            raise InputError(
                f"labels has none for {len(unknown)} of the queries, {unknown[0]!r} for one; give "
                "a missing value where a query has no label."
            )
        return _label(str(labels.name or "labels"), labels.reindex(queries))
    values = pd.Series(list(labels), dtype=object)
    if len(values) != len(queries):
        raise InputError(
            f"labels has {len(values)} values for {len(queries)} queries; give one a query."
        )
    return _label(str(getattr(labels, "name", None) or "labels"), values)


def _label(name: str, values: pd.Series) -> Label:
    codes, levels = pd.factorize(values, sort=False)
    return Label(name, codes, tuple(str(level) for level in levels))


def _usual_labels(queries: pd.DataFrame) -> Iterable[Label]:
    """Find the columns that sort queries into kinds: few values, each of several queries."""
    most = min(_MOST_LEVELS, len(queries) // 5)
    for name in queries.columns.drop([ID, "text"], errors="ignore"):
        values = queries[name]
        if pd.api.types.is_float_dtype(values.dtype):
            continue
        try:
            count = values.nunique()
        except TypeError:  # lists and the like
            continue
        if 2 <= count <= most:
            yield _label(str(name), values)
