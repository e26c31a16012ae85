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

NEGLIGIBLE = 0.05
"""Correlation too small to matter, however certain it is."""

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
    z : float
        The same in standard errors (Fisher).
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
    z: float
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
    (Fisher's z, Bonferroni at `CHANCE`) are joined. The largest group is the reference, to which
    every other is added whose mean score correlates with the reference's and may do so ordinarily.
    What still stands apart is **unrelated** if

    1. it is as good as independent: neither a pair with a reference model nor the mean score is
       correlated, either way, by more than chance and by more than `NEGLIGIBLE`, and
    2. ordinary agreement is excluded: agreement is divided by the largest correlation that the
       two distributions of scores allow (both sorted), and the group's upper bound, `CERTAIN`
       standard errors up, lies below `SHARE` of the reference's median.

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
    joined = (evidence > norm.isf(CHANCE / n_pairs)) & (correlation > NEGLIGIBLE)
    _, component = sparse.csgraph.connected_components(
        sparse.csr_array(joined[np.ix_(usable, usable)])
    )
    parts = [usable[component == k] for k in range(component.max() + 1)]
    parts.sort(key=lambda part: (-len(part), part[0]))
    standard = _standardised(scores)
    reference, others = parts[0], parts[1:]
    if len(reference) < 2:
        return Alignment(reference, float("nan"), ())
    while True:
        typical = float(np.median([_share(standard, reference, j) for j in reference]))
        groups = [_group(standard, reference, part, typical, lost) for part in others]
        alike = [g.z > norm.isf(CHANCE) and g.agreement_limit >= g.needed for g in groups]
        if not any(alike):
            break
        grown = [group.members for group, yes in zip(groups, alike, strict=True) if yes]
        reference = np.sort(np.concatenate([reference, *grown]))
        others = [part for part, yes in zip(others, alike, strict=True) if not yes]
    limit = norm.isf(CHANCE / 2 / (len(reference) * n_models))
    judged = []
    for group in groups:
        block = np.ix_(group.members, reference)
        paired = (np.abs(evidence[block]) > limit) & (np.abs(correlation[block]) > NEGLIGIBLE)
        whole = abs(group.z) > norm.isf(CHANCE / 2) and abs(group.agreement) > NEGLIGIBLE
        short = group.agreement_limit < group.needed
        judged.append(group._replace(unrelated=bool(short and not whole and not paired.any())))
    return Alignment(reference, typical, tuple(judged))


def _group(
    standard: FloatArray, reference: IntArray, members: IntArray, typical: float, lost: int
) -> Group:
    """Compare a group with the reference; whether it is unrelated is judged later."""
    agreement, largest, n = _agreement(
        _composite(standard, members), _composite(standard, reference)
    )
    left = n - lost - 3
    if left <= 0:
        return Group(members, agreement, 0.0, 1.0, SHARE * typical * largest, n, unrelated=False)
    z = float(np.arctanh(np.clip(agreement, -0.999999, 0.999999)) * np.sqrt(left))
    upper = float(np.tanh((z + CERTAIN) / np.sqrt(left)))
    return Group(members, agreement, z, upper, SHARE * typical * largest, n, unrelated=False)


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


def _share(standard: FloatArray, reference: IntArray, member: int) -> float:
    """Agreement of a reference model with the rest of them as a share of the largest possible."""
    agreement, largest, _ = _agreement(
        standard[:, member], _composite(standard, reference[reference != member])
    )
    return agreement / largest if largest > 0 else 0.0
