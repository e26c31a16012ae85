"""What comparisons say of each contrast: its size, only its sign, or nothing at all."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import DataWarning, InputError

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

CONTRASTS = ("identified", "separated", "undetermined")
"""What the data say of a difference of strengths: its size; only its sign; nothing."""

_LARGEST_WEIGHT = 1e200  # of all comparisons together


def check_rows(comparisons: object) -> Comparisons:
    """Refuse anything but Comparisons."""
    if not isinstance(comparisons, Comparisons):
        raise InputError(
            f"comparisons must be a Comparisons, not {type(comparisons).__name__}; make one with "
            "Comparisons.from_frame, from_arrays or from_scores."
        )
    return comparisons


def check_comparisons(comparisons: Comparisons) -> None:
    """Refuse what no Bradley-Terry model can be fitted to."""
    if not len(check_rows(comparisons)):
        raise InputError("There are no comparisons to fit; give at least one.")
    if (comparisons.outcome == 0.5).all():
        raise InputError(
            "All comparisons are ties, so nothing tells the models apart; add decisive ones."
        )
    heaviest = float(comparisons.weight.max())
    if heaviest * len(comparisons) > _LARGEST_WEIGHT:
        raise InputError(
            f"weight goes up to {heaviest:.3g}, too much to add up; divide all weights by a number."
        )


def contrast_status(wins: FloatArray, counts: OutcomeCounts, n_models: int) -> IntArray:
    """Tell what the data say of every contrast, prior and ridge apart.

    Two models in one strongly connected component of the graph "i has won against j" have a finite
    maximum-likelihood difference. If only one can be reached from the other, the data know who is
    stronger but not by how much (separation). Otherwise they know nothing. Ford's condition [1]_
    is the case in which all are connected.

    Parameters
    ----------
    wins : ndarray, shape (n_columns,)
        Weight of the wins in each directed column; zero weight is no evidence.
    counts : OutcomeCounts
        For `winner` and `loser`.
    n_models : int
        Number of models.

    Returns
    -------
    ndarray of int, shape (n_models, n_models)
        Index into `CONTRASTS`.

    References
    ----------
    .. [1] Ford, L. R. (1957). Solution of a ranking problem from binary comparisons. The American
       Mathematical Monthly 64(8), 28-33.
    """
    used = np.asarray(wins) > 0
    graph = sparse.csr_array(
        (np.ones(used.sum()), (counts.winner[used], counts.loser[used])),
        shape=(n_models, n_models),
    )
    reach = np.isfinite(sparse.csgraph.shortest_path(graph, unweighted=True))
    return np.where(reach & reach.T, 0, np.where(reach | reach.T, 1, 2))


def connected_groups(known: NDArray[np.bool_]) -> IntArray:
    """Give each model (n_models,) the number of its connected group, the largest being 0."""
    _, label = sparse.csgraph.connected_components(sparse.csr_array(known))
    order = np.argsort(-np.bincount(label), kind="stable")
    return np.argsort(order)[label]


def warn_of_open_contrasts(
    status: IntArray, models: pd.Index, *, of_separation: bool = True
) -> None:
    """Warn of models that never played, of groups never compared, and of separation."""
    group = connected_groups(status != 2)
    lonely = np.bincount(group)[group] == 1
    if lonely.any():
        warnings.warn(
            f"Never compared: {_names(models[lonely])}. Their strengths are the prior's alone; "
            "add comparisons or drop them with drop_models.",
            DataWarning,
            stacklevel=3,
        )
    apart = (group > 0) & ~lonely
    if apart.any():
        warnings.warn(
            f"Some models are not connected by comparisons: {_names(models[apart])} say nothing "
            f"of {_names(models[group == 0])}. Contrasts across are the prior's alone; add "
            "comparisons between the groups.",
            DataWarning,
            stacklevel=3,
        )
    if of_separation and (status == 1).any():
        worst = int(np.argmax((status == 1).sum(axis=1)))
        warnings.warn(
            f"Separation: {models[worst]!r} is only ever on one side against "
            f"{int((status[worst] == 1).sum())} model(s), so the size of these differences is the "
            "prior's (contrasts_ tells which).",
            DataWarning,
            stacklevel=3,
        )


def _names(models: pd.Index) -> str:
    shown = ", ".join(models[:6])
    return shown + (f" and {len(models) - 6} more" if len(models) > 6 else "")
