"""Checks of the queries: missing and repeated texts, and queries on both sides of a split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.auditing.findings import Finding, plural
from bayes_ecc.auditing.source import Source
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

NEAR = 0.98
"""Cosine above which two queries count as nearly the same."""

_MANY_NEAR = 0.01
_CELLS = 20_000_000  # cosines held at once


def check_texts(source: Source) -> list[Finding] | str:
    """Look for missing and repeated texts."""
    if source.texts is None:
        return "needs texts"
    found = []
    codes = source.text_codes
    blank = codes < 0
    if blank.any():
        found.append(
            Finding(
                "missing_texts",
                "warning",
                f"{plural(int(blank.sum()), 'query', 'queries')} of {len(codes):,} have no text.",
                "An encoder turns an empty text into a vector that means nothing, the same for "
                "all of them.",
                "Find the texts, or leave these queries out.",
                {"missing": int(blank.sum()), "of": len(codes)},
                tuple(source.queries[blank]),
            )
        )
    size = np.bincount(codes[~blank], minlength=1)
    repeated = ~blank & (size[codes] > 1)
    if repeated.any():
        groups = int((size > 1).sum())
        found.append(
            Finding(
                "repeated_texts",
                "note",
                f"{plural(int(repeated.sum()), 'query', 'queries')} share their text with "
                f"another ({plural(groups, 'text')}; case and spacing aside).",
                "If they are one query, it counts more than once, and a split that puts it on "
                "both sides tests on what was trained on. If they differ elsewhere (in options, "
                "say), their embeddings cannot show it.",
                "Drop copies before drawing comparisons, or keep them on one side of a split.",
                {"queries": int(repeated.sum()), "texts": groups, "largest": int(size.max())},
                tuple(source.queries[repeated]),
            )
        )
    return found


# -------------------------------------------------------------------- across a split


def check_split(source: Source, split: Any) -> list[Finding] | str:
    """Look for queries of the test side that are, or nearly are, on the training side too."""
    if split is None:
        return "needs a split"
    train, test = split_sides(source, split)
    found = []
    both = np.intersect1d(train, test)
    if len(both):
        found.append(
            Finding(
                "split_overlap",
                "error",
                f"{plural(len(both), 'query', 'queries')} are on both sides of the split.",
                "A test on what was trained on measures memory.",
                "Split by query: Comparisons.split does.",
                {"queries": len(both), "test": len(test), "train": len(train)},
                tuple(source.queries[both]),
            )
        )
        test = np.setdiff1d(test, both)
    same = np.zeros(len(test), dtype=bool)
    if source.texts is not None:
        codes = source.text_codes
        same = (codes[test] >= 0) & np.isin(codes[test], codes[train])
        if same.any():
            found.append(
                Finding(
                    "split_repeated_texts",
                    "warning",
                    f"{plural(int(same.sum()), 'test query', 'test queries')} of {len(test):,} "
                    "have the text of a training query.",
                    "Their embedding was seen in training, so they are easier than new queries.",
                    "Keep equal texts on one side, or drop copies first.",
                    {"queries": int(same.sum()), "test": len(test)},
                    tuple(source.queries[test[same]]),
                )
            )
    if source.embeddings is not None and len(train) and len(test):
        nearest = nearest_cosine(source.unit, test, train)
        near = (nearest > NEAR) & ~same
        if near.any():
            share = float(near.mean())
            found.append(
                Finding(
                    "split_near_duplicates",
                    "warning" if share > _MANY_NEAR else "note",
                    f"{plural(int(near.sum()), 'test query', 'test queries')} of {len(test):,} "
                    f"have an embedding within cosine {NEAR} of a training query's"
                    + (", though another text." if source.texts is not None else "."),
                    "Rewordings and templates filled in anew make a test easier than new queries "
                    "would be; or the encoder cuts long texts off and sees only what they share.",
                    "Look at some of them; group them with their likes before splitting if they "
                    "are copies.",
                    {
                        "queries": int(near.sum()),
                        "test": len(test),
                        "share": share,
                        "cosine": NEAR,
                    },
                    tuple(source.queries[test[near]]),
                )
            )
    return found


def nearest_cosine(unit: FloatArray, rows: IntArray, others: IntArray) -> FloatArray:
    """Give each of `rows` its largest cosine with any of `others`, shape (len(rows),)."""
    target = unit[others].T
    step = max(1, _CELLS // max(1, len(others)))
    parts = [
        (unit[rows[start : start + step]] @ target).max(axis=1)
        for start in range(0, len(rows), step)
    ]
    return np.concatenate(parts)


def split_sides(source: Source, split: Any) -> tuple[IntArray, IntArray]:
    """Give the positions of the training and the test queries.

    Raises
    ------
    InputError
        If the split is no pair of Comparisons or identifiers, or names unknown queries.
    """
    if hasattr(split, "train") and hasattr(split, "scored"):  # a Split of this library
        sides = [split.train, split.scored]
    else:
        sides = list(split) if isinstance(split, Iterable) and not isinstance(split, str) else []
        if len(sides) != 2:
            raise InputError(
                "split must be a pair (train, test) of Comparisons or of query identifiers."
            )
    train, test = (
        _side(source, side, name) for side, name in zip(sides, ("train", "test"), strict=True)
    )
    return train, test


def _side(source: Source, side: Any, name: str) -> IntArray:
    if isinstance(side, Comparisons):
        ids = side.queries
    elif isinstance(side, Iterable) and not isinstance(side, str):
        ids = pd.Index(list(_values(side)), dtype=object)
    else:
        raise InputError(f"split: the {name} side is a {type(side).__name__}; give identifiers.")
    place = source.queries.get_indexer(ids)
    if (place < 0).any():
        raise InputError(
            f"split: the {name} side names {ids[int(np.argmax(place < 0))]!r}, which is no query "
            "of these data."
        )
    return np.unique(place)


def _values(side: Iterable[Any]) -> Iterator[Any]:
    return (value.item() if isinstance(value, np.generic) else value for value in side)
