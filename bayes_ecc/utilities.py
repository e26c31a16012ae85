"""Utilities of models on queries: what the draws of a posterior say, costs taken off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.draws import Draws, QueryBlock, block_width, draw_parts, responsibilities
from bayes_ecc.errors import InputError
from bayes_ecc.intervals import equally_weighted
from bayes_ecc.quality import QualityCalibration, align_scores, as_numbers
from bayes_ecc.summaries import TIE

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]
type Costs = pd.DataFrame | pd.Series | Mapping[str, float] | ArrayLike
type Policy = Literal["mean", "p_best", "thompson", "upper", "lower", "regret"]

POLICIES: tuple[Policy, ...] = ("mean", "p_best", "thompson", "upper", "lower", "regret")


class Utilities(NamedTuple):
    """What the draws say of the utility of each model on some queries, (n_queries, n_models) each.

    Models that are not available have minus infinity, and P(best) zero.

    Attributes
    ----------
    quality : ndarray
        Mean predicted quality, whatever the cost.
    value : ndarray
        What the policy goes by.
    mean : ndarray
        Mean utility.
    p_best : ndarray
        Share of the draws in which the model has the highest utility; ties are shared.
    regret : ndarray
        Mean shortfall of its utility behind the best one of each draw.
    """

    quality: FloatArray
    value: FloatArray
    mean: FloatArray
    p_best: FloatArray
    regret: FloatArray


class UtilityDraws:
    """Utilities of a block of queries, part by part of the draws.

    Parameters
    ----------
    read : Draws
    block : QueryBlock
    quality : QualityCalibration or None
    charge : ndarray, shape (n_block, n_models)
        Price times cost.
    allowed : ndarray of bool, shape (n_block, n_models)
    """

    def __init__(
        self,
        read: Draws,
        block: QueryBlock,
        quality: QualityCalibration | None,
        charge: FloatArray,
        allowed: NDArray[np.bool_],
    ) -> None:
        self._read, self._block, self._quality = read, block, quality
        self._charge = charge.T[:, None, :].astype(np.float32)
        self._barred = ~allowed.T[:, None, :]
        self._shape = (len(read.models), len(block))

    def summarise(self, policy: Policy, picked: IntArray, quantile: float) -> Utilities:
        """Run through the draws once and give what they say; `picked` is Thompson's draw."""
        share = self._read.atoms.share
        keep = policy in ("upper", "lower")
        quality, regret = np.zeros(self._shape), np.zeros(self._shape)
        p_best, thompson = np.zeros(self._shape), np.zeros(self._shape)
        kept = np.empty((*self._shape, int((share > 0).sum()) if keep else 0), np.float32)
        filled = 0
        for part, each in draw_parts(share, len(self._block)):
            r = responsibilities(self._read, part, self._block)
            drawn = np.empty((self._shape[0], *r.shape[1:]), np.float32)
            np.matmul(
                self._read.win_table[part], r.transpose(1, 0, 2), out=drawn.transpose(1, 0, 2)
            )
            if self._quality is not None:
                drawn = self._quality.predict(drawn)
            quality += each * drawn.sum(axis=1)
            drawn -= self._charge
            np.copyto(drawn, -np.inf, where=self._barred)
            top = drawn.max(axis=0)
            best = drawn >= top - np.float32(TIE)
            p_best += each * (best / best.sum(axis=0, dtype=np.float32)).sum(axis=1)
            regret += each * (top - drawn).sum(axis=1)
            if policy == "thompson":
                mine = np.flatnonzero((picked >= part.start) & (picked < part.stop))
                thompson[:, mine] = drawn[:, picked[mine] - part.start, mine]
            if keep:
                kept[:, :, filled : filled + drawn.shape[1]] = drawn.transpose(0, 2, 1)
                filled += drawn.shape[1]
        barred = self._barred[:, 0]
        mean = np.where(barred, -np.inf, quality - self._charge[:, 0])
        value = {"mean": mean, "p_best": p_best, "thompson": thompson, "regret": -regret}.get(
            policy
        )
        if value is None:
            value = _quantile(
                kept, share[share > 0], quantile if policy == "upper" else 1 - quantile
            )
        value = np.where(barred, -np.inf, value)
        return Utilities(*(a.T for a in (quality, value, mean, p_best, regret)))


def _quantile(values: FloatArray, share: FloatArray, q: float) -> FloatArray:
    """Give a quantile over draws (the last axis), between order statistics linearly."""
    if (share != share[0]).any():
        values = values[..., equally_weighted(share)]
    position = (values.shape[-1] - 1) * q
    low = int(np.floor(position + 1e-9))
    high = min(low + 1, values.shape[-1] - 1)
    parted = np.partition(values, (low, high), axis=-1)
    below, above = parted[..., low].astype(float), parted[..., high].astype(float)
    with np.errstate(invalid="ignore"):  # models that are not available are minus infinity
        return below + max(position - low, 0.0) * (above - below)


def utility_width(share: FloatArray, n_models: int, policy: Policy) -> int:
    """Choose how many queries to treat at once."""
    keep = n_models if policy in ("upper", "lower") else 1
    return block_width(int((share > 0).sum()), keep, n_more=5 * n_models)


# -------------------------------------------------------------------- costs and models


def read_costs(costs: Costs | None, queries: pd.Index, models: pd.Index) -> FloatArray:
    """Bring costs to shape (n_queries, n_models); 1 a call by default.

    A dict and a Series go by model, a frame by query and model, arrays by the posterior's order.

    Raises
    ------
    InputError
        If a shape or a name is wrong, or a cost is missing, negative or no number.
    """
    shape = (len(queries), len(models))
    if costs is None:
        return np.ones(shape)
    if isinstance(costs, Mapping):
        costs = pd.Series(dict(costs), dtype=object)
    if isinstance(costs, pd.Series):
        absent = [name for name in models if name not in costs.index]
        if absent:
            raise InputError(
                f"costs has no entry for model {absent[0]!r}; give a cost for each of "
                f"{', '.join(models)}."
            )
        if not costs.index.is_unique:
            raise InputError("costs names a model more than once; keep one cost a model.")
        costs = costs[list(models)].to_numpy()
    if isinstance(costs, pd.DataFrame):
        if len(costs) == 1 and len(queries) > 1:
            raise InputError(
                f"costs is a table with one row for {len(queries)} queries; give a row a query, "
                "or one cost a model as a dict or a Series: costs=table.iloc[0]."
            )
        table = align_scores(costs, queries, models, name="costs")
    else:
        table = as_numbers(costs, "costs")
        if table.shape not in (shape, shape[1:]):
            raise InputError(
                f"costs has shape {table.shape}; give one a model ({len(models)},), or one a query "
                f"and model {shape}."
            )
        table = np.broadcast_to(table, shape)
    bad = ~(np.isfinite(table) & (table >= 0))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"costs, query {queries[row]!r}, model {models[column]!r}: found "
            f"{table[row, column]!r}; costs are finite and not negative."
        )
    return table


def read_available(
    available: Iterable[str] | ArrayLike | None, queries: pd.Index, models: pd.Index
) -> NDArray[np.bool_]:
    """Bring the available models to a mask (n_queries, n_models), at least one in each row.

    Raises
    ------
    InputError
        If a name is unknown, a mask has the wrong shape, or a query is left without a model.
    """
    mask = np.ones((len(queries), len(models)), dtype=bool)
    if available is None:
        return mask
    if isinstance(available, str):
        raise InputError(f"available={available!r}: give a list of names, even of one.")
    array = np.asarray(available if hasattr(available, "__array__") else list(available))  # type: ignore[arg-type]
    if array.dtype == bool:
        if array.shape != mask.shape:
            raise InputError(f"available has shape {array.shape}; a mask has shape {mask.shape}.")
        mask = array
    else:
        mask[:] = False
        for name in array.ravel().tolist():
            mask[:, model_position(name, models, "available")] = True
    if not mask.any(axis=1).all():
        row = int(np.argmin(mask.any(axis=1)))
        raise InputError(f"available leaves query {queries[row]!r} without any model.")
    return mask


def model_position(name: Any, models: pd.Index, argument: str) -> int:
    """Give the position of a model, or refuse its name."""
    if not isinstance(name, str) or name not in models:
        raise InputError(
            f"{argument} names {name!r}, which the fit does not know; its models are "
            f"{', '.join(models)}."
        )
    return int(models.get_loc(name))
