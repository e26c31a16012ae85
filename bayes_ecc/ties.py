r"""Ties and presentation order in the Bradley-Terry likelihood, on plain arrays.

With d the strength of the second model less that of the first, an order effect gamma and a tie
margin delta of at least 0, both the same for all models and clusters [1]_,

    P(second wins) = s(d + gamma - delta)        P(first wins) = s(-d - gamma - delta)
    P(tie) = (exp(2 delta) - 1) P(second wins) P(first wins)

A tie is thus a win each way times a factor of delta alone: counts of wins stay sufficient, and
every win has the margin theta_winner - theta_loser + gamma * direction - delta.

References
----------
.. [1] Rao, P. V. and Kupper, L. L. (1967). Ties in paired-comparison experiments: a generalization
   of the Bradley-Terry model. Journal of the American Statistical Association 62(317), 194-204.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit

from bayes_ecc.errors import ConvergenceWarning, InputError

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]
type Ties = Literal["half", "rao_kupper"]

TIES: tuple[Ties, ...] = ("half", "rao_kupper")
FIRST_TIE_MARGIN = 0.3  # where fits start


class Margins(NamedTuple):
    """What all clusters share: the tie margin and the order effect, in logits; 0 is neither."""

    tie_margin: float = 0.0
    order_effect: float = 0.0


def log_tie_factor(tie_margin: ArrayLike) -> FloatArray:
    """Give log(exp(2 delta) - 1), what a tie has beyond a win each way; -inf at 0."""
    delta = np.asarray(tie_margin, dtype=float)
    with np.errstate(divide="ignore"):
        # The sum keeps large margins from overflowing.
        return 2 * delta + np.log(-np.expm1(-2 * delta))


def win_share(difference: FloatArray, tie_margin: FloatArray | float | None) -> FloatArray:
    """Give P(win) + P(tie) / 2 from differences of strengths, the order effect counted in.

    None is a model without ties.
    """
    if tie_margin is None:
        return expit(difference)
    return (expit(difference - tie_margin) + expit(difference + tie_margin)) / 2


def win_lead(difference: FloatArray, tie_margin: FloatArray | None) -> FloatArray:
    """Give 2 win_share - 1 = P(win) - P(loss), exact about 0."""
    if tie_margin is None:
        return np.tanh(difference / 2)
    return (np.tanh((difference - tie_margin) / 2) + np.tanh((difference + tie_margin) / 2)) / 2


def outcome_probabilities(difference: FloatArray, tie_margin: FloatArray | float) -> FloatArray:
    """Give P(first wins), P(tie), P(second wins): (..., 3) from differences second less first."""
    second, first = expit(difference - tie_margin), expit(-difference - tie_margin)
    # The factor and the probabilities may leave the range of numbers where their product doesn't.
    span = -np.expm1(-2 * np.asarray(tie_margin, dtype=float))
    tie = span * expit(difference + tie_margin) * expit(tie_margin - difference)
    return np.stack([first, tie, second], axis=-1)


class MarginLayout:
    """What the columns of a table of wins are about, where ties or order have a say.

    Parameters
    ----------
    winner, loser : ndarray of int, shape (n_columns,)
        Model codes; a pair may have several columns.
    direction : ndarray of int, shape (n_columns,), or None
        1 where the winner was shown second, -1 where first; None learns no order effect.
    tie_weight : float or None
        Weight of all ties; None counts them as half-wins, so that there is no tie margin.
    n_models : int
        Number of models.
    """

    def __init__(
        self,
        winner: IntArray,
        loser: IntArray,
        direction: IntArray | None,
        tie_weight: float | None,
        n_models: int,
    ) -> None:
        self.n_models = n_models
        self.tie_weight = tie_weight
        n_columns = len(winner)
        self.incidence = np.zeros((n_columns, n_models))
        self.incidence[np.arange(n_columns), winner] = 1
        self.incidence[np.arange(n_columns), loser] = -1
        low, high = np.minimum(winner, loser), np.maximum(winner, loser)
        keys, pair = np.unique(low * n_models + high, return_inverse=True)
        self._low, self._high = keys // n_models, keys % n_models
        self._merge = sparse.csr_array(
            (np.ones(n_columns), (np.arange(n_columns), pair)), shape=(n_columns, len(keys))
        )
        # How each column's margin changes with what the clusters share.
        self.learns_tie = tie_weight is not None
        self.learns_order = direction is not None
        shared = [np.full(n_columns, -1.0)] if self.learns_tie else []
        if direction is not None:
            shared.append(np.asarray(direction, dtype=float))
        self.shared = np.stack(shared)

    def hessian(self, curvature: FloatArray) -> FloatArray:
        """Assemble Laplacians (n_fits, n_models, n_models) from column curvatures."""
        by_pair = curvature @ self._merge
        matrix = np.zeros((len(curvature), self.n_models, self.n_models))
        matrix[:, self._low, self._high] = -by_pair
        matrix[:, self._high, self._low] = -by_pair
        diagonal = np.arange(self.n_models)
        matrix[:, diagonal, diagonal] = -matrix.sum(axis=2)
        return matrix


def fit_margins(
    wins: FloatArray,
    layout: MarginLayout,
    ridge: float,
    *,
    start: FloatArray | None = None,
    margins: Margins | None = None,
    tol: float = 1e-5,
    max_iter: int = 100,
) -> tuple[FloatArray, Margins]:
    """Fit ridge strengths, one row for each row of `wins`, and the margins that all share.

    Minimises ``-sum_kc wins[k, c] log s(m_kc) - ties log(exp(2 delta) - 1) + ridge / 2 (sum_k
    |theta_k|^2 + gamma^2)`` by Newton steps in everything at once: the function is convex, and the
    margins are few, so that a step costs one solve a row and a small one for the margins.

    Parameters
    ----------
    wins : ndarray, shape (n_fits, n_columns)
        Weight of the wins; a tie counts once in the columns of both sides.
    layout : MarginLayout
        What the columns are about.
    ridge : float
        Positive.
    start : ndarray, shape (n_fits, n_models), optional
        Warm start; zeros by default.
    margins : Margins, optional
        Warm start of the margins.
    tol : float
        The step that changes nothing by more than this is the last.
    max_iter : int
        Most Newton steps.

    Returns
    -------
    strengths : ndarray, shape (n_fits, n_models)
        Each row sums to zero up to rounding.
    margins : Margins

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps do not reach `tol`.

    Raises
    ------
    InputError
        If a tie margin is asked for and there are no ties, or ties only.
    """
    wins = np.asarray(wins, dtype=float)
    ties = _check_ties(wins, layout)
    theta = np.zeros((len(wins), layout.n_models))
    if start is not None:
        theta += start - np.mean(start, axis=1, keepdims=True)
    shared = np.zeros(len(layout.shared))
    warm = margins or Margins(FIRST_TIE_MARGIN, 0.0)
    if layout.learns_tie:
        shared[0] = warm.tie_margin if warm.tie_margin > 0 else FIRST_TIE_MARGIN
    if layout.learns_order:
        shared[-1] = warm.order_effect
    diagonal = np.arange(layout.n_models)

    def value(strengths: FloatArray, common: FloatArray) -> float:
        margin = strengths @ layout.incidence.T + common @ layout.shared
        loss = float((wins * np.logaddexp(0, -margin)).sum())
        loss += ridge / 2 * float((strengths**2).sum())
        if layout.learns_tie:
            loss -= ties * float(log_tie_factor(common[0]))
        if layout.learns_order:
            loss += ridge / 2 * float(common[-1] ** 2)
        return loss

    current = value(theta, shared)
    for _ in range(max_iter):
        margin = theta @ layout.incidence.T + shared @ layout.shared
        lost = expit(-margin)
        pull = wins * lost
        curvature = pull * expit(margin)
        gradient = ridge * theta - pull @ layout.incidence
        hessian = layout.hessian(curvature)
        # All strengths sum to zero, so stiffness against a shift changes nothing but the rounding.
        hessian += hessian[:, diagonal, diagonal].mean(axis=1)[:, None, None]
        hessian[:, diagonal, diagonal] += ridge
        border = np.stack([(curvature * z) @ layout.incidence for z in layout.shared], axis=2)
        corner = (curvature.sum(axis=0) * layout.shared) @ layout.shared.T
        slope = -(layout.shared @ pull.sum(axis=0))
        if layout.learns_tie:
            slope[0] += 2 * ties / np.expm1(-2 * shared[0])
            corner[0, 0] += ties / np.sinh(shared[0]) ** 2
        if layout.learns_order:
            slope[-1] += ridge * shared[-1]
            corner[-1, -1] += ridge
        solved = np.linalg.solve(hessian, np.concatenate([gradient[:, :, None], border], axis=2))
        corner -= np.einsum("kms,kmt->st", border, solved[:, :, 1:])
        reduced = slope - np.einsum("kms,km->s", border, solved[:, :, 0])
        common_step = np.linalg.solve(corner, reduced)
        step = solved[:, :, 0] - solved[:, :, 1:] @ common_step
        scale = 1.0
        if layout.learns_tie and common_step[0] > 0.9 * shared[0]:
            scale = 0.9 * shared[0] / common_step[0]  # the margin stays positive
        expected = float((gradient * step).sum() + slope @ common_step)
        slack = 1e-12 * (1 + abs(current))  # rounding of the value
        for _ in range(40):
            trial, common = theta - scale * step, shared - scale * common_step
            found = value(trial, common)
            if found <= current - 0.1 * scale * expected + slack:
                break
            scale /= 2
        theta, shared, current = trial, common, found
        if max(np.abs(step).max(initial=0.0), np.abs(common_step).max()) <= tol:
            return theta, _margins(layout, shared)
    warnings.warn(
        f"A Bradley-Terry fit with ties or order did not converge in {max_iter} Newton steps; "
        f"raise ridge (now {ridge}).",
        ConvergenceWarning,
        stacklevel=2,
    )
    return theta, _margins(layout, shared)


def _margins(layout: MarginLayout, shared: FloatArray) -> Margins:
    return Margins(
        float(shared[0]) if layout.learns_tie else 0.0,
        float(shared[-1]) if layout.learns_order else 0.0,
    )


def _check_ties(wins: FloatArray, layout: MarginLayout) -> float:
    """Give the weight of the ties; refuse data that would put the tie margin at a boundary."""
    if layout.tie_weight is None:
        return 0.0
    ties = float(layout.tie_weight)
    if ties <= 0:
        raise InputError(
            "ties='rao_kupper' learns how often models tie, but no comparison is a tie (outcome "
            "0.5); use ties='half'."
        )
    if float(wins.sum()) <= 2 * ties * (1 + 1e-12):
        raise InputError(
            "All comparisons are ties, so nothing tells the models apart; add decisive ones."
        )
    return ties
