"""Embeddings given as a table are read by its index, never silently by position."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import ECC, InputError, simulate, unit_embeddings

DATA = simulate(n_queries=60, n_models=5, rng=0)
QUERIES = DATA.comparisons.queries
TABLE = pd.DataFrame(DATA.embeddings, index=QUERIES)


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        TABLE.sample(frac=1, random_state=0),
        pd.concat([TABLE, pd.DataFrame(DATA.embeddings[:3] + 1, index=["x", "y", "z"])]),
        TABLE.reset_index(drop=True),
    ],
    ids=["in order", "shuffled", "with more queries", "numbered"],
)
def test_a_table_is_aligned_by_its_index(table: pd.DataFrame) -> None:
    found = unit_embeddings(table, queries=QUERIES)
    np.testing.assert_allclose(found, DATA.embeddings, atol=1e-6)


def test_fits_and_predictions_align_too() -> None:
    shuffled = TABLE.sample(frac=1, random_state=1)
    fits = [ECC(2, rng=0, max_iter=500).fit(DATA.comparisons, x) for x in (TABLE, shuffled)]
    np.testing.assert_allclose(fits[0].strengths_, fits[1].strengths_)
    probes, rest = DATA.comparisons.take_probes(1)
    predicted = [
        fits[0].predict_win_probability(rest, embeddings=x, probes=probes)
        for x in (TABLE, shuffled)
    ]
    np.testing.assert_allclose(*predicted)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE.set_axis([f"other {i}" for i in range(60)]), "no row for query"),
        (TABLE.set_axis(["q0000"] * 60), "more than once"),
        (TABLE.iloc[1:], "no row for query 'q0000'"),
    ],
    ids=["foreign", "repeated", "one missing"],
)
def test_a_table_of_other_queries_is_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(InputError, match=message):
        unit_embeddings(table, queries=QUERIES)


def test_whole_number_queries_are_never_taken_for_positions() -> None:
    numbered = pd.DataFrame(DATA.embeddings)
    with pytest.raises(InputError, match="no row for query 100"):
        unit_embeddings(numbered, queries=pd.Index([100, 1, 2]))
    found = unit_embeddings(numbered, queries=pd.Index([5, 3]))
    np.testing.assert_allclose(found, DATA.embeddings[[5, 3]], atol=1e-6)
