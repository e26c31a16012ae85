"""Do the score rows of all models belong to the same queries? What agreement between models tells.

Models find the same queries hard. A model whose rows are in another order agrees with nobody, and
models that share a wrong order agree with each other alone. A model that guesses agrees with nobody
either, so a lack of agreement is a defect only where the model shows that it can do the task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

CERTAIN = 4.0
"""Standard errors by which a group must fall short of ordinary agreement to be called unrelated."""

SHARE = 1 / 3
"""A group is unrelated if its agreement is below this share of what the others typically show."""

CHANCE = 1e-4
"""Probability, for all pairs together, of taking independent rows for related ones."""

_LEAST_ROWS = 30
_NOTHING = 0.2


class Group(NamedTuple):
    """Models that agree with each other, and how they agree with the reference group.

    Attributes
    ----------
    members : ndarray of int
        Columns of the score table.
    agreement : float
        Correlation of the group's mean standardised score with the reference group's.
    agreement_limit : float
        What `agreement` might be at most (its upper bound `CERTAIN` standard errors away).
    needed : float
        The agreement that a third of the ordinary would have given.
    rows : int
        Queries on which both have scores.
    unrelated : bool
        Whether agreement is absent where it ought to be.
    """

    members: IntArray
    agreement: float
    agreement_limit: float
    needed: float
    rows: int
    unrelated: bool


class Alignment(NamedTuple):
    """The reference group, how strongly its members agree, and everybody else.

    Attributes
    ----------
    reference : ndarray of int
        Columns of the largest group of models that agree; one column if no two agree.
    typical : float
        Median agreement of a reference model with the rest of them, as a share of the largest
        possible; NaN if no two agree.
    groups : tuple of Group
        The other models, in groups that agree among themselves.
    """

    reference: IntArray
    typical: float
    groups: tuple[Group, ...]


def pair_correlations(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Correlate all pairs of columns over the rows that both have.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, n_models)
        NaN where missing.

    Returns
    -------
    correlation, rows : ndarray, shape (n_models, n_models)
        Correlation is 0 where it is not defined; `rows` counts the shared rows.
    """
    there = (~np.isnan(scores)).astype(float)
    centre = np.nansum(scores, axis=0) / np.maximum(there.sum(axis=0), 1)
    values = np.where(there > 0, scores - centre, 0.0)
    rows = there.T @ there
    total, squares = values.T @ there, (values**2).T @ there
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = values.T @ values - total * total.T / rows
        variance = squares - total**2 / rows
        correlation = covariance / np.sqrt(variance * variance.T)
    tiny = variance <= 1e-12 * np.maximum(squares, 1e-300)
    return np.where(tiny | tiny.T | (rows < 3), 0.0, np.clip(correlation, -1, 1)), rows


def within(scores: FloatArray, codes: IntArray) -> FloatArray:
    """Take every model's label means out: what is left can only agree query by query.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, n_models)
        NaN where missing.
    codes : ndarray of int, shape (n_queries,)
        Label of each query, -1 for none.

    Returns
    -------
    ndarray, shape (n_queries, n_models)
    """
    codes = codes - codes.min()
    there = ~np.isnan(scores)
    pick = sparse.csr_array(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(codes.max() + 1, len(codes))
    )
    count = pick @ there.astype(float)
    mean = (pick @ np.where(there, scores, 0.0)) / np.maximum(count, 1)
    return scores - mean[codes]


def align(scores: FloatArray, *, lost: int = 0) -> Alignment:
    """Group the models by agreement and find the groups whose rows are unrelated to the rest.

    If the rows of two columns are paired at random, their correlation r has mean 0 and variance
    1 / (n - 1) exactly, whatever the scores look like. Pairs whose r is too large for that
    (Fisher's z, Bonferroni at `CHANCE`) are joined, then every group whose mean score correlates
    with that of the largest, the reference. What still stands apart is **unrelated** if

    1. it is as good as independent: no pair with a reference model and not the mean score are
       correlated either way at `CHANCE`, and
    2. ordinary agreement is excluded: a group's agreement is divided by the largest correlation
       its distribution of scores allows (both columns sorted), and the upper bound of the group's,
       `CERTAIN` standard errors up, lies below `SHARE` of the reference's median.

    A model that agrees at least that much is therefore falsely accused with probability 3e-5 at
    the most, however small the table: where little is known, (2) cannot be met.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, n_models)
        NaN where missing. Columns without variation are left out.
    lost : int
        Degrees of freedom that were taken out of the columns before (label means).

    Returns
    -------
    Alignment
    """
    correlation, rows = pair_correlations(scores)
    rows = rows - lost
    n_models = scores.shape[1]
    usable = np.flatnonzero((np.diag(rows) >= _LEAST_ROWS) & (np.abs(np.diag(correlation)) > 0.5))
    if len(usable) < 3:
        return Alignment(usable[:1], float("nan"), ())
    evidence = _fisher(correlation, rows)
    n_pairs = len(usable) * (len(usable) - 1) / 2
    joined = evidence > norm.isf(CHANCE / n_pairs)
    _, component = sparse.csgraph.connected_components(
        sparse.csr_array(joined[np.ix_(usable, usable)])
    )
    parts = [usable[component == k] for k in range(component.max() + 1)]
    parts.sort(key=lambda part: (-len(part), part[0]))
    standard = _standardised(scores)
    reference, others = parts[0], parts[1:]
    grown = len(reference) > 1
    while grown:
        centre = _composite(standard, reference)
        related = [_related(centre, _composite(standard, part), lost) for part in others]
        grown = any(related)
        reference = np.concatenate(
            [reference, *(part for part, yes in zip(others, related, strict=True) if yes)]
        )
        others = [part for part, yes in zip(others, related, strict=True) if not yes]
    reference = np.sort(reference)
    if len(reference) < 2:
        return Alignment(reference, float("nan"), ())
    typical = float(np.median([_share(standard, reference, j) for j in reference]))
    centre = _composite(standard, reference)
    limit = norm.isf(CHANCE / 2 / max(1, len(reference) * n_models))
    groups = []
    for part in others:
        own = _composite(standard, part)
        agreement, largest, n = _agreement(own, centre)
        n -= lost
        z = np.arctanh(agreement) * np.sqrt(n - 3) if n > 3 else np.inf
        upper = float(np.tanh((z + CERTAIN) / np.sqrt(n - 3))) if n > 3 else 1.0
        apart = np.abs(evidence[np.ix_(part, reference)]).max() < limit and abs(z) < norm.isf(
            CHANCE / 2
        )
        needed = SHARE * typical * largest
        groups.append(Group(part, agreement, upper, needed, n, bool(apart and upper < needed)))
    return Alignment(reference, typical, tuple(groups))


def nobody_agrees(scores: FloatArray) -> bool:
    """Tell whether agreement with all others together is next to nothing for every model.

    Parameters
    ----------
    scores : ndarray, shape (n_queries, n_models)
        NaN where missing.

    Returns
    -------
    bool
        True if every model's agreement, as a share of the largest possible, is below `_NOTHING`
        with certainty; False where that is not known.
    """
    standard = _standardised(scores)
    everyone = np.arange(scores.shape[1])
    for j in everyone:
        agreement, largest, n = _agreement(
            standard[:, j], _composite(standard, everyone[everyone != j])
        )
        if (
            n <= 3
            or np.tanh(np.arctanh(agreement) + CERTAIN / np.sqrt(n - 3)) >= _NOTHING * largest
        ):
            return False
    return True


def _fisher(correlation: FloatArray, rows: FloatArray) -> FloatArray:
    """Give Fisher's z in standard errors; 0 on the diagonal."""
    r = np.clip(correlation, -0.999999, 0.999999)
    z = np.arctanh(r) * np.sqrt(np.maximum(rows - 3, 0))
    np.fill_diagonal(z, 0.0)
    return z


def _standardised(scores: FloatArray) -> FloatArray:
    """Centre and scale columns; columns without variation become 0."""
    there = ~np.isnan(scores)
    count = np.maximum(there.sum(axis=0), 1)
    centred = scores - np.where(there, scores, 0).sum(axis=0) / count
    scale = np.sqrt((np.where(there, centred, 0.0) ** 2).sum(axis=0) / count)
    return centred / np.where(scale > 0, scale, 1)


def _composite(standard: FloatArray, members: IntArray) -> FloatArray:
    """Average the members' standardised scores; NaN where none of them has one."""
    part = standard[:, members]
    there = ~np.isnan(part)
    count = there.sum(axis=1)
    return np.where(count > 0, np.where(there, part, 0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _agreement(one: FloatArray, other: FloatArray) -> tuple[float, float, int]:
    """Give the correlation, the largest that these values allow, and the number of rows."""
    both = ~(np.isnan(one) | np.isnan(other))
    a, b = one[both], other[both]
    if len(a) < _LEAST_ROWS or a.std() == 0 or b.std() == 0:
        return 0.0, 0.0, int(both.sum())
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    return float((a * b).mean()), float((np.sort(a) * np.sort(b)).mean()), len(a)


def _related(centre: FloatArray, own: FloatArray, lost: int) -> bool:
    agreement, _, n = _agreement(own, centre)
    left = n - lost - 3
    return left > 0 and float(np.arctanh(min(agreement, 0.999999)) * np.sqrt(left)) > norm.isf(
        CHANCE
    )


def _share(standard: FloatArray, reference: IntArray, member: int) -> float:
    """Agreement of a reference model with the rest of them as a share of the largest possible."""
    agreement, largest, _ = _agreement(
        standard[:, member], _composite(standard, reference[reference != member])
    )
    return agreement / largest if largest > 0 else 0.0
