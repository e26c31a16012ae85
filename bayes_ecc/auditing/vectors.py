"""Checks of the embeddings: their lengths, and repetitions that texts do not explain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.auditing.findings import Finding, plural
from bayes_ecc.auditing.source import Source

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_LENGTH = 1e-2  # deviation from 1 that rounding to half precision does not make
_VANISHING = 1e-3  # of the median length
_CONSTANT = 1e-3  # of one less the cosine with the mean direction


def check_lengths(source: Source) -> list[Finding] | str:
    """Look for embeddings that are not unit, nearly zero, or all in one direction."""
    if source.embeddings is None:
        return "needs embeddings"
    values = source.embeddings
    length = np.linalg.norm(values.astype(np.float64, copy=False), axis=1)
    found = []
    tiny = length < _VANISHING * np.median(length)
    if tiny.any():
        found.append(
            Finding(
                "vanishing_embeddings",
                "warning",
                f"{plural(int(tiny.sum()), 'embedding')} of {len(length):,} are next to zero.",
                "Only the direction is used, and that of a vanishing vector is rounding noise.",
                "Encode these queries again; were their texts empty?",
                {"embeddings": int(tiny.sum()), "median_length": float(np.median(length))},
                tuple(source.queries[tiny]),
            )
        )
    off = np.abs(length - 1) > _LENGTH
    if off.any():
        found.append(
            Finding(
                "embedding_lengths",
                "note",
                f"{plural(int(off.sum()), 'embedding')} of {len(length):,} do not have unit length "
                f"(lengths from {length.min():.3g} to {length.max():.3g}).",
                "Estimators use the direction alone; if length means something to the encoder, "
                "that is lost.",
                "Nothing, or normalise them yourself to see what is used.",
                {
                    "embeddings": int(off.sum()),
                    "least": float(length.min()),
                    "most": float(length.max()),
                },
            )
        )
    unit = source.unit
    mean = unit.mean(axis=0)
    mean = mean / max(float(np.linalg.norm(mean)), 1e-12)
    apart = 1 - unit @ mean
    if len(unit) > 1 and np.quantile(apart, 0.99) < _CONSTANT:
        found.append(
            Finding(
                "constant_embeddings",
                "error",
                "Nearly all embeddings point the same way (1 - cosine with their mean below "
                f"{_CONSTANT}).",
                "They cannot tell queries apart; a fit that uses them uses nothing.",
                "Check the encoder's input; a column of empty or equal texts looks so.",
                {"apart_99": float(np.quantile(apart, 0.99))},
            )
        )
    return found


def check_repetitions(source: Source) -> list[Finding] | str:
    """Look for one embedding given to different texts, and one text given different embeddings."""
    if source.embeddings is None or source.texts is None:
        return "needs embeddings and texts"
    codes = source.text_codes
    unit = source.unit
    found = []
    keys = np.ascontiguousarray(unit).view(np.dtype((np.void, unit.dtype.itemsize * unit.shape[1])))
    _, same = np.unique(keys.ravel(), return_inverse=True)
    pairs = np.unique(np.column_stack([same, codes]), axis=0)
    texts_of = np.bincount(pairs[:, 0])
    shared = texts_of[same] > 1
    if shared.any():
        largest = int(np.bincount(same[shared]).max())
        found.append(
            Finding(
                "repeated_embeddings",
                "warning" if shared.mean() > 0.01 else "note",
                f"{plural(int(shared.sum()), 'query', 'queries')} of {len(codes):,} share their "
                f"embedding with a query of another text; {largest:,} share one.",
                "The encoder did not see the difference: texts cut off at its token limit, or "
                "failed and filled in.",
                "Look at the texts; shorten them, or take an encoder that reads longer ones.",
                {"queries": int(shared.sum()), "largest": largest},
                tuple(source.queries[shared]),
            )
        )
    first, later = repeated_pairs(codes)
    if len(first):
        cosine = np.einsum("ij,ij->i", unit[first], unit[later])
        usual = _background(unit)
        unlike = cosine < usual
        if unlike.any():
            queries = np.unique(np.concatenate([first[unlike], later[unlike]]))
            found.append(
                Finding(
                    "unlike_embeddings",
                    "warning",
                    f"{plural(int(unlike.sum()), 'pair')} of {len(first):,} of queries with the "
                    "same text have embeddings no closer than those of random queries.",
                    "One encoder gives one text one embedding: rows were swapped or come from "
                    "different encoders.",
                    "Encode the texts again, in the order of the queries.",
                    {
                        "pairs": int(unlike.sum()),
                        "of": len(first),
                        "cosine_of_random_queries_95": usual,
                    },
                    tuple(source.queries[queries]),
                )
            )
    return found


def repeated_pairs(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Pair every later query of a text with the first."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    _, start, size = np.unique(codes[order], return_index=True, return_counts=True)
    first = np.repeat(order[start], size)
    return first[first != order], order[first != order]


def _background(unit: FloatArray) -> float:
    """95 % quantile of the cosines of random queries (every 7th row by every 11th)."""
    step = max(1, len(unit) // 500)
    one, other = unit[::step], unit[1 :: step + 1]
    return float(np.quantile(one @ other.T, 0.95))
