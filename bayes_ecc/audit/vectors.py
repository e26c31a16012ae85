"""Checks of the embeddings: their lengths, repetitions, and whether they belong to their queries.

Whether rows were swapped can be told only from something else that is known of the queries: texts
(alike texts should have alike embeddings) or labels (so should queries of one label). Without
either, swapped rows look like any others, and the report says that this was not checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from bayes_ecc.audit.findings import Finding, plural
from bayes_ecc.audit.source import Label, Source
from bayes_ecc.embeddings import unit_embeddings

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

CERTAIN = 4.0
"""Standard errors by which embeddings must fall short to be called swapped."""

RELATED = 0.5
"""Least relation expected of embeddings and texts, in standard deviations of a cosine."""

_LENGTH = 1e-2  # deviation from 1 that rounding to half precision does not make
_VANISHING = 1e-3  # of the median length
_CONSTANT = 1e-3  # of one less the cosine with the mean direction
_ALIKE = 0.2  # TF-IDF cosine from which two texts are alike
_LEAST_PAIRS = 80
_ANCHORS = 2000
_BLOCKS = 8
_NEIGHBOURS = 10
_SHIFTS = (-3, -2, -1, 1, 2, 3)


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
    unit = unit_embeddings(values)
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
    unit = unit_embeddings(source.embeddings)
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


# -------------------------------------------------------------------- rows of other queries


def check_swapped(source: Source, rng: np.random.Generator) -> list[Finding] | str:
    """Tell by texts and labels whether the rows of the embeddings belong to their queries."""
    if source.embeddings is None:
        return "needs embeddings"
    if source.texts is None and not source.labels:
        return "needs texts or labels: without them swapped rows look like any others"
    unit = unit_embeddings(source.embeddings).astype(np.float32, copy=False)
    labels = [_label_relation(unit, label, rng) for label in source.labels]
    if source.texts is None:
        known = [relation for relation in labels if relation is not None]
        return _label_findings(known) if known else "needs more queries or labels"
    pairs = alike_texts(source, rng)
    if len(pairs[0]) < _LEAST_PAIRS:
        return "needs more queries with similar texts"
    return _text_findings(source, unit, pairs, labels)


class Relation(NamedTuple):
    """How much closer related queries are than others, in standard deviations, and its error."""

    value: float
    error: float
    label: str = ""

    @property
    def absent(self) -> bool:
        """Whether there is none to speak of, with certainty."""
        return self.value + CERTAIN * self.error < RELATED


def alike_texts(source: Source, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Pair sampled queries with the query of the most similar, not equal, text.

    Similarity is the cosine of TF-IDF word vectors [1]_; pairs below 0.2 are left out.

    References
    ----------
    .. [1] Salton, G. and Buckley, C. (1988). Term-weighting approaches in automatic text
       retrieval. Information Processing & Management 24(5), 513-523.
    """
    codes = source.text_codes
    assert source.texts is not None
    texts = [text or "" for text in source.texts]
    try:
        words = TfidfVectorizer(
            sublinear_tf=True, max_features=20_000, dtype=np.float32
        ).fit_transform(texts)
    except ValueError:  # no words at all
        return np.array([], dtype=np.intp), np.array([], dtype=np.intp)
    there = np.flatnonzero(codes >= 0)
    anchors = np.sort(rng.choice(there, min(_ANCHORS, len(there)), replace=False))
    partner, likeness = [], []
    for start in range(0, len(anchors), 500):
        rows = anchors[start : start + 500]
        cosine = (words[rows] @ words.T).toarray()
        cosine[codes[rows][:, None] == codes[None, :]] = -1
        partner.append(cosine.argmax(axis=1))
        likeness.append(cosine.max(axis=1))
    close = np.concatenate(likeness) >= _ALIKE
    return anchors[close], np.concatenate(partner)[close]


def text_relation(
    unit: FloatArray,
    pairs: tuple[IntArray, IntArray],
    codes: IntArray | None = None,
) -> tuple[Relation, FloatArray]:
    """Measure how much closer queries of alike texts are than others.

    Parameters
    ----------
    unit : ndarray, shape (n_queries, embedding_dim)
    pairs : two ndarrays of int, shape (n_pairs,)
        From `alike_texts`.
    codes : ndarray of int, shape (n_queries,), optional
        Compare with others of the same label only.

    Returns
    -------
    relation : Relation
        Mean cosine of the pairs less that of the same queries paired otherwise.
    each : ndarray, shape (n_pairs,)
        The same a pair, NaN where there is nothing to compare with.
    """
    anchors, partners = pairs
    cosine = unit[anchors] @ unit[partners].T
    others = ~np.eye(len(anchors), dtype=bool)
    if codes is not None:
        others &= (codes[anchors][:, None] == codes[partners][None, :]) & (
            codes[anchors][:, None] >= 0
        )
    count = others.sum(axis=1)
    usual = np.where(
        count > 0, np.where(others, cosine, 0).sum(axis=1) / np.maximum(count, 1), np.nan
    )
    spread = float(cosine[others].std()) if others.any() else 0.0
    each = (np.diag(cosine) - usual) / max(spread, 1e-6)
    return _mean(each), each


def _mean(each: FloatArray) -> Relation:
    """Average; the error is at least that of unrelated pairs, whose spread is 1."""
    known = each[~np.isnan(each)]
    if len(known) < 2:
        return Relation(0.0, np.inf)
    return Relation(float(known.mean()), float(max(1.0, known.std()) / np.sqrt(len(known))))


def _label_relation(unit: FloatArray, label: Label, rng: np.random.Generator) -> Relation | None:
    """Compare the labels of embedding neighbours with chance; None if too little is known.

    A share of equal labels s against the chance c is (s - c) / sqrt(c (1 - c)) deviations.
    """
    there = np.flatnonzero(label.codes >= 0)
    if len(there) < _LEAST_PAIRS:
        return None
    anchors = rng.choice(there, min(_ANCHORS // 2, len(there)), replace=False)
    cosine = unit[anchors] @ unit[there].T
    cosine[anchors[:, None] == there[None, :]] = -2
    k = min(_NEIGHBOURS, len(there) - 1)
    near = there[np.argpartition(-cosine, k - 1, axis=1)[:, :k]]
    share = (label.codes[near] == label.codes[anchors][:, None]).mean(axis=1)
    frequency = np.bincount(label.codes[there]) / len(there)
    chance = float((frequency**2).sum())
    deviation = np.sqrt(chance * (1 - chance))
    error = float(share.std() / deviation / np.sqrt(len(share)))
    return Relation((float(share.mean()) - chance) / deviation, error, label.name)


def _label_findings(relations: list[Relation]) -> list[Finding]:
    """Judge by labels alone: they may have nothing to do with the embeddings."""
    if not all(abs(r.value) < CERTAIN * r.error and r.value < 0.1 for r in relations):
        return []
    return [
        Finding(
            "swapped_embeddings",
            "warning",
            "Neighbours in embedding space share labels no more often than chance would have it "
            f"({', '.join(r.label for r in relations)}).",
            "Either the rows of the embeddings belong to other queries, or what was encoded has "
            "nothing to do with the labels. Swapped rows teach a fit nonsense about embeddings.",
            "Encode the texts again, in the order of the queries, and compare.",
            {"labels": {r.label: {"deviations": r.value, "error": r.error} for r in relations}},
        )
    ]


def _text_findings(
    source: Source,
    unit: FloatArray,
    pairs: tuple[IntArray, IntArray],
    labels: list[Relation | None],
) -> list[Finding]:
    overall, each = text_relation(unit, pairs)
    figures: dict[str, Any] = {
        "pairs": len(pairs[0]),
        "relation": overall.value,
        "error": overall.error,
    }
    why = (
        "Alike texts ought to have alike embeddings. If rows belong to other queries, a fit learns "
        "nonsense about embeddings, and predictions for new queries are made from it."
    )
    remedy = "Encode the texts again, in the order of the queries."
    if overall.absent:
        found = (
            "Embeddings of queries with alike texts are no closer than those of random queries: "
            "the rows belong to other queries."
        )
        return [Finding("swapped_embeddings", "error", found, why, remedy, figures)]
    shift = _shift(unit, pairs, overall)
    if shift:
        figures["shift"] = shift
        found = (
            f"The embeddings fit the texts better {abs(shift)} row(s) "
            f"{'later' if shift > 0 else 'earlier'}: rows are shifted."
        )
        return [Finding("swapped_embeddings", "error", found, why, remedy, figures)]
    # the label that embeddings know best is the hardest to hide behind
    known = [(r.value, k) for k, r in enumerate(labels) if r is not None]
    if known:
        label = source.labels[max(known)[1]]
        inner, _ = text_relation(unit, pairs, label.codes)
        figures.update(label=label.name, relation_within_label=inner.value)
        if inner.absent:
            found = (
                f"Within the labels of {label.name!r} embeddings of queries with alike texts are "
                "no closer than those of others: rows were swapped or shifted among neighbours."
            )
            return [Finding("swapped_embeddings", "error", found, why, remedy, figures)]
    blocks = np.array_split(np.arange(len(each)), _BLOCKS)
    parts = [block for block in blocks if len(block) and _mean(each[block]).absent]
    if not parts:
        return []
    rows = [[int(pairs[0][part[0]]), int(pairs[0][part[-1]])] for part in parts]
    figures["rows"] = rows
    found = (
        "In some stretches of rows, embeddings of queries with alike texts are no closer than "
        f"those of random queries (rows {', '.join(f'{a} to {b}' for a, b in rows)})."
    )
    return [Finding("swapped_embeddings", "error", found, why, remedy, figures)]


def _shift(unit: FloatArray, pairs: tuple[IntArray, IntArray], overall: Relation) -> int:
    """Find by how many rows the embeddings are shifted, 0 for not at all."""
    best, most = 0, overall.value + RELATED
    for shift in _SHIFTS:
        moved = np.roll(unit, -shift, axis=0)
        value = text_relation(moved, pairs)[0].value
        if value > most:
            best, most = shift, value
    return best
