"""Do the rows of the embeddings belong to their queries? What texts and labels tell.

Swapped rows can be told only from something else that is known of the queries: texts (alike texts
should have alike embeddings) or labels (so should queries of one label). Without either, swapped
rows look like any others, and the report says that this was not checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from bayes_ecc.auditing.findings import Finding
from bayes_ecc.auditing.source import Label, Source

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

CERTAIN = 4.0
"""Standard errors by which embeddings must fall short to be called swapped."""

RELATED = 0.5
"""Least relation expected of embeddings and texts, in standard deviations of a cosine."""

ALIKE = 0.2
"""How much more alike than others (in TF-IDF cosine) two texts must be to be compared."""

_LEAST_PAIRS = 80
_ANCHORS = 2000
_BLOCKS = 8
_NEIGHBOURS = 10
_SHIFTS = (-3, -2, -1, 1, 2, 3)


def check_swapped(source: Source, rng: np.random.Generator) -> list[Finding] | str:
    """Tell by texts and labels whether the rows of the embeddings belong to their queries."""
    if source.embeddings is None:
        return "needs embeddings"
    if source.texts is None and not source.labels:
        return "needs texts or labels: without them swapped rows look like any others"
    unit = source.unit
    labels = [_label_relation(unit, label, rng) for label in source.labels]
    if source.texts is None:
        known = {
            label.name: relation
            for label, relation in zip(source.labels, labels, strict=True)
            if relation is not None
        }
        return _label_findings(known) if known else "needs more queries with labels"
    pairs = alike_texts(source, rng)
    if pairs is None or text_relation(unit, pairs).n_pairs < _LEAST_PAIRS:
        return "needs more queries with similar texts"
    return _text_findings(source, unit, pairs, labels)


class Relation(NamedTuple):
    """How much closer related queries are than others, in standard deviations, and its error."""

    value: float
    error: float
    n_pairs: int = 0

    @property
    def absent(self) -> bool:
        """Whether there is none to speak of, with certainty."""
        return self.value + CERTAIN * self.error < RELATED


class TextPairs(NamedTuple):
    """Queries, each with the one whose text is most like its own.

    Attributes
    ----------
    anchors, partners : ndarray of int, shape (n_pairs,)
        Positions of the queries.
    likeness : ndarray, shape (n_pairs, n_pairs)
        TF-IDF cosine of every anchor with every partner.
    """

    anchors: IntArray
    partners: IntArray
    likeness: FloatArray


def alike_texts(source: Source, rng: np.random.Generator) -> TextPairs | None:
    """Pair sampled queries with the query of the most similar, not equal, text.

    Similarity is the cosine of TF-IDF word vectors [1]_. None if the texts have no words.

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
        return None
    there = np.flatnonzero(codes >= 0)
    anchors = np.sort(rng.choice(there, min(_ANCHORS, len(there)), replace=False))
    parts = []
    for start in range(0, len(anchors), 500):
        rows = anchors[start : start + 500]
        cosine = (words[rows] @ words.T).toarray()
        cosine[codes[rows][:, None] == codes[None, :]] = -1
        parts.append(cosine.argmax(axis=1))
    partners = np.concatenate(parts)
    return TextPairs(anchors, partners, (words[anchors] @ words[partners].T).toarray())


def relation_by_pair(
    unit: FloatArray, pairs: TextPairs, codes: IntArray | None = None
) -> FloatArray:
    """Measure how much closer queries of alike texts are than others, pair by pair.

    Parameters
    ----------
    unit : ndarray, shape (n_queries, embedding_dim)
    pairs : TextPairs
    codes : ndarray of int, shape (n_queries,), optional
        Look only at pairs within a label, and compare them with others of that label.

    Returns
    -------
    ndarray, shape (n_pairs,)
        Cosine of the pair less the mean cosine of its query with the partners of other queries, in
        standard deviations of the latter. NaN where there is nothing to compare with, or where
        others' texts are about as alike (templates, say): the pair then says nothing.
    """
    others = ~np.eye(len(pairs.anchors), dtype=bool)
    if codes is not None:
        one, other = codes[pairs.anchors], codes[pairs.partners]
        others &= one[:, None] == other[None, :]
        alone = (one < 0) | (one != other)
        others[alone] = False
    count = others.sum(axis=1)

    def usual(values: FloatArray) -> FloatArray:
        return np.where(others, values, 0).sum(axis=1) / np.maximum(count, 1)

    cosine = unit[pairs.anchors] @ unit[pairs.partners].T
    spread = float(cosine[others].std()) if others.any() else 0.0
    each = (np.diag(cosine) - usual(cosine)) / max(spread, 1e-6)
    telling = np.diag(pairs.likeness) - usual(pairs.likeness) >= ALIKE
    return np.where((count > 0) & telling, each, np.nan)


def text_relation(unit: FloatArray, pairs: TextPairs, codes: IntArray | None = None) -> Relation:
    """Average `relation_by_pair`."""
    return _mean(relation_by_pair(unit, pairs, codes))


def _mean(each: FloatArray) -> Relation:
    """Average; the error is at least that of unrelated pairs, whose spread is 1."""
    known = each[~np.isnan(each)]
    if len(known) < 2:
        return Relation(0.0, np.inf)
    error = float(max(1.0, known.std()) / np.sqrt(len(known)))
    return Relation(float(known.mean()), error, len(known))


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
    return Relation((float(share.mean()) - chance) / deviation, error, len(share))


def _label_findings(relations: dict[str, Relation]) -> list[Finding]:
    """Judge by labels alone: they may have nothing to do with the embeddings."""
    if not all(abs(r.value) < CERTAIN * r.error and r.value < 0.1 for r in relations.values()):
        return []
    return [
        Finding(
            "swapped_embeddings",
            "warning",
            "Neighbours in embedding space share labels no more often than chance would have it "
            f"({', '.join(relations)}).",
            "Either the rows of the embeddings belong to other queries, or what was encoded has "
            "nothing to do with the labels. Swapped rows teach a fit nonsense about embeddings.",
            "Encode the texts again, in the order of the queries, and compare.",
            {
                "labels": {
                    n: {"deviations": r.value, "error": r.error} for n, r in relations.items()
                }
            },
        )
    ]


def _text_findings(
    source: Source, unit: FloatArray, pairs: TextPairs, labels: list[Relation | None]
) -> list[Finding]:
    """Judge by texts: all rows, rows shifted, stretches of rows, rows swapped within labels."""
    each = relation_by_pair(unit, pairs)
    overall = _mean(each)
    figures: dict[str, Any] = {
        "pairs": overall.n_pairs,
        "relation": overall.value,
        "error": overall.error,
    }

    def found(sentence: str, **more: Any) -> list[Finding]:
        return [
            Finding(
                "swapped_embeddings",
                "error",
                sentence,
                "Alike texts ought to have alike embeddings. If rows belong to other queries, a "
                "fit learns nonsense about embeddings, and predictions for new queries are made "
                "from it.",
                "Encode the texts again, in the order of the queries.",
                {**figures, **more},
            )
        ]

    if overall.absent:
        return found(
            "Embeddings of queries with alike texts are no closer than those of random queries: "
            "the rows belong to other queries."
        )
    shift = _shift(unit, pairs, overall)
    if shift:
        where = "later" if shift > 0 else "earlier"
        return found(
            f"The embeddings fit the texts {abs(shift)} row(s) {where} better: rows are shifted.",
            shift=shift,
        )
    blocks = np.array_split(np.arange(len(each)), _BLOCKS)
    parts = [block for block in blocks if len(block) and _mean(each[block]).absent]
    if parts:
        rows = [[int(pairs.anchors[part[0]]), int(pairs.anchors[part[-1]])] for part in parts]
        return found(
            "In some stretches of rows, embeddings of queries with alike texts are no closer than "
            f"those of random queries (rows {', '.join(f'{a} to {b}' for a, b in rows)}).",
            rows=rows,
        )
    # the label that embeddings know best is the hardest to hide behind
    known = [(r.value, k) for k, r in enumerate(labels) if r is not None]
    if known:
        label = source.labels[max(known)[1]]
        inner = text_relation(unit, pairs, label.codes)
        figures.update(label=label.name, relation_within_label=inner.value)
        if inner.n_pairs >= _LEAST_PAIRS and inner.absent:
            return found(
                f"Within the labels of {label.name!r} embeddings of queries with alike texts are "
                "no closer than those of others: rows were swapped or shifted among neighbours."
            )
    return []


def _shift(unit: FloatArray, pairs: TextPairs, overall: Relation) -> int:
    """Find by how many rows the embeddings are shifted, 0 for not at all."""
    best, most = 0, overall.value + RELATED
    for shift in _SHIFTS:
        value = text_relation(np.roll(unit, -shift, axis=0), pairs).value
        if value > most:
            best, most = shift, value
    return best
