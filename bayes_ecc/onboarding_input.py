"""What is handed to an onboarding, checked and coded: answers, allowed pairs, chances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.coding import WINNERS
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.newcomer import Tried

type FloatArray = NDArray[np.floating[Any]]


def read_answers(
    answers: Comparisons | pd.DataFrame,
    newcomer: str,
    queries: pd.Index,
    models: pd.Index,
    ties: str,
) -> Tried:
    """Code outcomes of comparisons with the newcomer; ties that are ignored have weight 0.

    Raises
    ------
    InputError
        If a comparison is of other models, or of another query, or was won by neither side.
    """
    names = models.append(pd.Index([newcomer]))
    if isinstance(answers, pd.DataFrame):
        answers = Comparisons.from_frame(_in_words(answers), queries=queries, models=names)
    if not isinstance(answers, Comparisons):
        raise InputError(f"answers must be a Comparisons or a table, not {type(answers).__name__}.")
    rows = answers.with_models(names)
    query = queries.get_indexer(rows.queries)[rows.query]
    if (query < 0).any():
        name = rows.queries[rows.query[int(np.argmax(query < 0))]]
        raise InputError(
            f"answers names the query {name!r}, which is no candidate; name it to start_onboarding."
        )
    is_second = rows.second == len(models)
    alien = ~(is_second | (rows.first == len(models)))
    if alien.any():
        row = int(np.argmax(alien))
        raise InputError(
            f"answers, row {row}: {names[rows.first[row]]!r} against "
            f"{names[rows.second[row]]!r}; every comparison needs the newcomer {newcomer!r} on "
            "one side."
        )
    return Tried(
        query,
        np.where(is_second, rows.first, rows.second),
        np.where(is_second, rows.outcome, 1 - rows.outcome),
        np.where((ties == "ignore") & (rows.outcome == 0.5), 0.0, rows.weight),
    )


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Give a table of answers with winners called by name as model_a and model_b."""
    needed = ("winner", "model_a", "model_b")
    if any((table.columns == name).sum() != 1 for name in needed):
        return table  # refused by what reads it next, or told by outcomes
    words = []
    for row, (winner, *sides) in enumerate(table[list(needed)].itertuples(index=False)):
        by_name = [
            word for word, side in zip(needed[1:], sides, strict=True) if _same(winner, side)
        ]
        word = winner if isinstance(winner, str) and winner in WINNERS else None
        if word is None and not by_name:
            raise InputError(
                f"winner, row {row}: found {winner!r}; allowed are model_a, model_b, tie, or the "
                f"name of one of the two, {sides[0]!r} and {sides[1]!r}."
            )
        if word is not None and by_name and WINNERS[word] != WINNERS[by_name[0]]:
            raise InputError(
                f"winner, row {row}: {winner!r} is a word of its own and the name of the LLM in "
                f"{by_name[0]}; give a column outcome instead, the share of the win that "
                "goes to model_b."
            )
        words.append(word or by_name[0])
    return table.assign(winner=words)


def _same(winner: Any, side: Any) -> bool:
    return isinstance(winner, str) and isinstance(side, str) and winner == side


def read_allowed(allowed: ArrayLike, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Give the pairs allowed, (n_queries, n_models).

    Raises
    ------
    InputError
        If it is anything else.
    """
    given = np.asarray(allowed)
    if given.dtype != bool or given.shape != shape:
        raise InputError(
            f"allowed has shape {given.shape} and type {given.dtype}; give one bool for each of "
            f"{shape[0]} queries and {shape[1]} models."
        )
    return given


def read_chances(decided: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """Give chances of a decision, (n_queries, n_models).

    Raises
    ------
    InputError
        If they are no chances.
    """
    given = np.asarray(decided, dtype=float)
    if given.shape == shape[:1]:
        given = np.repeat(given[:, None], shape[1], axis=1)
    if given.shape != shape or not ((given > 0) & (given <= 1)).all():
        raise InputError(
            f"decided has shape {given.shape}; give chances above 0, at most 1, one for each of "
            f"{shape[0]} queries, or for each of these and {shape[1]} models."
        )
    return given
