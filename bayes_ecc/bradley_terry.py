"""Weighted Bradley-Terry fits, many clusters at once, and what the data say of each contrast."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator

from bayes_ecc.checks import check_choice, check_flag, check_positive
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import (
    CONTRASTS,
    check_comparisons,
    check_rows,
    connected_groups,
    contrast_status,
    warn_of_open_contrasts,
)
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.errors import ConvergenceWarning, InputError, NotFittedError
from bayes_ecc.ties import (
    TIES,
    MarginLayout,
    Margins,
    Ties,
    fit_margins,
    outcome_probabilities,
    win_share,
)

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_SMALLEST_RIDGE = 1e-13  # times the weight of all comparisons of a fit


class PairLayout:
    """The pairs that occur in a table of wins, and where each win column belongs among them.

    A Bradley-Terry likelihood needs, a pair, how often either side won. Columns of an
    `OutcomeCounts` are directed (winner, loser); this maps them to undirected pairs once, so that
    fits which share their columns need no index work.

    Parameters
    ----------
    winner, loser : ndarray of int, shape (n_columns,)
        Model codes of the columns; no two columns are the same.
    n_models : int
        Number of models, those that never occur included.

    Attributes
    ----------
    low, high : ndarray of int, shape (n_pairs,)
        Model codes of each pair, low < high.
    """

    def __init__(self, winner: IntArray, loser: IntArray, n_models: int) -> None:
        low, high = np.minimum(winner, loser), np.maximum(winner, loser)
        keys, pair = np.unique(low * n_models + high, return_inverse=True)
        self.n_models = n_models
        self.low, self.high = keys // n_models, keys % n_models
        # Where the wins of either side of a pair are; beyond the last column if there are none.
        self._high_wins = np.full(len(keys), len(winner))
        self._low_wins = np.full(len(keys), len(winner))
        high_wins = winner == self.high[pair]
        self._high_wins[pair[high_wins]] = np.flatnonzero(high_wins)
        self._low_wins[pair[~high_wins]] = np.flatnonzero(~high_wins)
        incidence = np.zeros((len(keys), n_models))
        incidence[np.arange(len(keys)), self.high] = 1
        incidence[np.arange(len(keys)), self.low] = -1
        self.incidence = incidence

    def pair_wins(self, wins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Give wins of `high` and of `low` (n_fits, n_pairs) from directed (n_fits, n_columns)."""
        padded = np.concatenate([wins, np.zeros((len(wins), 1))], axis=1)
        return padded[:, self._high_wins], padded[:, self._low_wins]

    def hessian(self, curvature: FloatArray) -> FloatArray:
        """Assemble Laplacians (n_fits, n_models, n_models) from pair curvatures."""
        size = self.n_models
        matrix = np.zeros((len(curvature), size, size))
        matrix[:, self.low, self.high] = -curvature
        matrix[:, self.high, self.low] = -curvature
        matrix[:, np.arange(size), np.arange(size)] = -matrix.sum(axis=2)
        return matrix


def fit_strengths(
    wins: FloatArray,
    layout: PairLayout,
    ridge: float,
    *,
    start: FloatArray | None = None,
    tol: float = 1e-5,
    max_iter: int = 100,
) -> FloatArray:
    """Fit ridge Bradley-Terry models, one a row of `wins`, in one batch of Newton steps.

    Minimises, for every row k, ``-sum_c wins[k, c] log sigma(theta_winner - theta_loser) +
    ridge / 2 |theta|^2``. The function is strictly convex, so a halved step restores descent
    wherever a full one overshoots.

    Parameters
    ----------
    wins : ndarray, shape (n_fits, n_columns)
        Weight of the wins in each directed column.
    layout : PairLayout
        Which models the columns are about.
    ridge : float
        Positive.
    start : ndarray, shape (n_fits, n_models), optional
        Warm start; zeros by default.
    tol : float
        The step that changes no strength by more than this is the last. A Newton step leaves an
        error of the order of its square, so 1e-3 is exact to about 1e-6.
    max_iter : int
        Most Newton steps.

    Returns
    -------
    ndarray, shape (n_fits, n_models)
        Strengths; each row sums to zero up to rounding.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps do not reach `tol`.

    Raises
    ------
    InputError
        If the ridge is so small beside the wins that rounding would decide in its place.
    """
    wins = np.asarray(wins, dtype=float)
    high_wins, low_wins = layout.pair_wins(wins)
    total = high_wins + low_wins
    check_scale(total, ridge)
    theta = np.zeros((len(wins), layout.n_models))
    if start is not None:
        theta += start - np.mean(start, axis=1, keepdims=True)
    diagonal = np.arange(layout.n_models)

    def value(strengths: FloatArray) -> FloatArray:
        margin = strengths @ layout.incidence.T
        # -log sigma(-m) summed over all, less m for the wins of `high`
        loss = total * np.logaddexp(0, margin) - high_wins * margin
        return loss.sum(axis=1) + ridge / 2 * (strengths**2).sum(axis=1)

    for _ in range(max_iter):
        margin = theta @ layout.incidence.T
        p_high, p_low = expit(margin), expit(-margin)  # 1 - p_high would lose the tails
        gradient = (low_wins * p_high - high_wins * p_low) @ layout.incidence + ridge * theta
        hessian = layout.hessian(total * p_high * p_low)
        # All strengths sum to zero, so stiffness against a shift changes nothing but the rounding
        # where the ridge is small.
        hessian += hessian[:, diagonal, diagonal].mean(axis=1)[:, None, None]
        hessian[:, diagonal, diagonal] += ridge
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        if np.abs(step).max(initial=0.0) <= tol:
            return theta - step
        reach = np.ptp(step, axis=1)
        if reach.max() <= 1:  # too short to overshoot: no curvature changes by more than e
            theta = theta - step
            continue
        current, scale = value(theta), np.ones(len(theta))
        needed = 0.1 * (gradient * step).sum(axis=1)
        for _ in range(40):
            trial = theta - scale[:, None] * step
            overshoots = (value(trial) > current - scale * needed) & (reach > 1)
            if not overshoots.any():
                break
            scale[overshoots] /= 2
        theta = trial
    warnings.warn(
        f"A Bradley-Terry fit did not converge in {max_iter} Newton steps; raise ridge "
        f"(now {ridge}) or max_iter.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return theta


def check_scale(total: FloatArray, ridge: float) -> None:
    """Refuse a ridge that rounding would hide beside the wins."""
    weight = float(total.sum(axis=1).max(initial=0.0))
    least = _SMALLEST_RIDGE * weight
    if ridge < least:
        raise InputError(
            f"ridge={ridge} is lost in rounding beside comparisons that weigh {weight:.3g} "
            f"together; give {1.1 * least:.2g} or more, or make the weights smaller."
        )


def win_probability_matrix(
    strengths: FloatArray, tie_margin: FloatArray | float | None = None
) -> FloatArray:
    """Give P(row beats column) for strengths (..., n_models): (..., n_models, n_models).

    With a tie margin, one number or an array that broadcasts, half the chance of a tie counts in.
    """
    return win_share(strengths[..., :, None] - strengths[..., None, :], tie_margin)


def margin_layout(counts: OutcomeCounts, n_models: int) -> MarginLayout:
    """Lay out counts whose margins are more than differences of strengths."""
    ties = None if counts.tie_weight is None else float(counts.tie_weight.sum())
    return MarginLayout(counts.winner, counts.loser, counts.direction, ties, n_models)


class BradleyTerry(BaseEstimator):
    """The global Bradley-Terry model: one strength a model, whatever the query.

    Minimises ``-sum_n w_n [y_n log p_n + (1 - y_n) log(1 - p_n)] + ridge / 2 |theta|^2`` with
    ``p_n = sigma(theta_second - theta_first)`` [1]_. It is the baseline of every gain.

    Ties may have a probability of their own [2]_, and being shown second an effect; see
    `bayes_ecc.ties` for the likelihood.

    Parameters
    ----------
    ridge : float
        Strength of the pull to zero, positive; 1.0 is the published setting. It pulls on an order
        effect, too.
    per_query_mean : bool
        Weigh each query by 1 (its comparisons share it) instead of each comparison by its weight.
    ties : {"half", "rao_kupper"}
        Count a tie (an outcome of 0.5) as half a win each way, or learn how often models tie.
        Other soft outcomes are shares of a win either way.
    order_effect : bool
        Learn what being shown second is worth; needs ordered comparisons.

    Attributes
    ----------
    strengths_ : xarray.DataArray, dims (llm)
        Zero-sum strengths.
    identified_ : xarray.DataArray of bool, dims (llm, llm_other)
        Whether the data alone determine the difference of two strengths. Where they do not, the
        ridge does.
    contrasts_ : xarray.DataArray of str, dims (llm, llm_other)
        "identified"; "separated" (who is stronger is known, by how much is not); "undetermined".
    tie_margin_ : float
        What a win has to exceed, in logits; with ``ties="rao_kupper"`` only. Equal models tie with
        chance ``tanh(tie_margin_ / 2)``.
    order_effect_ : float
        What being shown second adds to a margin, in logits; with ``order_effect=True`` only.

    References
    ----------
    .. [1] Bradley, R. A. and Terry, M. E. (1952). Rank analysis of incomplete block designs: I.
       The method of paired comparisons. Biometrika 39(3/4), 324-345.
    .. [2] Rao, P. V. and Kupper, L. L. (1967). Ties in paired-comparison experiments: a
       generalization of the Bradley-Terry model. Journal of the American Statistical Association
       62(317), 194-204.

    Examples
    --------
    >>> from bayes_ecc import BradleyTerry, Comparisons
    >>> data = Comparisons.from_arrays(
    ...     [0, 1, 2, 3], [0, 0, 0, 1], [1, 1, 1, 2], [1, 1, 0, 0.5],
    ...     queries=["q0", "q1", "q2", "q3"], models=["a", "b", "c"],
    ... )
    >>> model = BradleyTerry(ridge=1.0).fit(data)
    >>> model.strengths_.round(3).values.tolist()
    [-0.212, 0.177, 0.035]
    >>> model.predict_win_probability(data).round(3).tolist()
    [0.596, 0.596, 0.596, 0.465]
    >>> model = BradleyTerry(ridge=1.0, ties="rao_kupper").fit(data)
    >>> model.predict_outcome_probabilities(data)[0].round(3).tolist()  # first, tie, second
    [0.261, 0.25, 0.489]
    """

    def __init__(
        self,
        ridge: float = 1.0,
        *,
        per_query_mean: bool = False,
        ties: Ties = "half",
        order_effect: bool = False,
    ) -> None:
        self.ridge = ridge
        self.per_query_mean = per_query_mean
        self.ties = ties
        self.order_effect = order_effect

    def fit(self, comparisons: Comparisons, embeddings: object = None) -> BradleyTerry:
        """Fit the strengths.

        Parameters
        ----------
        comparisons : Comparisons
            Training comparisons.
        embeddings : object, optional
            Ignored; there so that it can stand where a clustering estimator stands.

        Returns
        -------
        BradleyTerry
            Itself.

        Raises
        ------
        InputError
            If the ridge is not positive, no comparison is decisive, ties are to be learnt and
            there are none, or an order effect is asked of unordered comparisons.

        Warns
        -----
        DataWarning
            If the data leave a contrast open, naming the models concerned.
        """
        check_comparisons(comparisons)
        ridge = check_positive("ridge", self.ridge)
        per_query_mean = check_flag("per_query_mean", self.per_query_mean)
        check_choice("ties", self.ties, TIES)
        counts = comparisons.outcome_counts(
            per_query_mean=per_query_mean,
            ties=self.ties,
            order_effect=check_flag("order_effect", self.order_effect),
        )
        wins = np.asarray(counts.matrix.sum(axis=0)).reshape(1, -1)
        n_models = comparisons.n_models
        margins = Margins()
        if counts.has_margins:
            check_scale(wins, ridge)
            found, margins = fit_margins(wins, margin_layout(counts, n_models), ridge)
            theta = found[0]
        else:
            layout = PairLayout(counts.winner, counts.loser, n_models)
            theta = fit_strengths(wins, layout, ridge)[0]
        self._learn_margins(counts, margins)
        status = contrast_status(wins[0], counts, n_models)
        names = comparisons.models.to_numpy(dtype=object)
        self.models_ = comparisons.models
        self.strengths_ = xr.DataArray(theta - theta.mean(), {"llm": names}, dims="llm")
        square = {"llm": names, "llm_other": names}
        self.contrasts_ = xr.DataArray(np.array(CONTRASTS)[status], square, ("llm", "llm_other"))
        self.identified_ = xr.DataArray(status == 0, square, ("llm", "llm_other"))
        warn_of_open_contrasts(status, comparisons.models)
        return self

    def predict_win_probability(
        self, comparisons: Comparisons, *, embeddings: object = None, probes: object = None
    ) -> FloatArray:
        """Predict P(second beats first) for each comparison; outcomes are not looked at.

        With learnt ties it is the expected share of the win, P(second wins) + P(tie) / 2, which is
        what half-wins predict: losses and gains stay comparable. An order effect counts where the
        comparisons are ordered.

        Parameters
        ----------
        comparisons : Comparisons
            Rows to predict; their models must be among those of the fit.
        embeddings, probes : object, optional
            Ignored: the global model treats all queries alike.

        Returns
        -------
        ndarray, shape (n_comparisons,)

        Raises
        ------
        InputError
            If they are no Comparisons, or compare a model that the fit did not know.
        """
        if not hasattr(self, "strengths_"):
            raise NotFittedError(
                "This BradleyTerry is not fitted yet: call fit(comparisons) first."
            )
        rows = check_rows(comparisons).with_models(self.models_)
        difference = self._differences(rows)
        return win_share(difference, getattr(self, "tie_margin_", None))

    def predict_outcome_probabilities(
        self, comparisons: Comparisons, *, embeddings: object = None, probes: object = None
    ) -> FloatArray:
        """Predict the chances that the first wins, that both tie, and that the second wins.

        Parameters
        ----------
        comparisons : Comparisons
            Rows to predict; outcomes are not looked at.
        embeddings, probes : object, optional
            Ignored: the global model treats all queries alike.

        Returns
        -------
        ndarray, shape (n_comparisons, 3)
            First, tie, second; rows sum to 1.

        Raises
        ------
        InputError
            As `predict_win_probability`; also if ties were counted as half-wins.
        """
        if not hasattr(self, "strengths_"):
            raise NotFittedError(
                "This BradleyTerry is not fitted yet: call fit(comparisons) first."
            )
        if not hasattr(self, "tie_margin_"):
            raise InputError(
                "This fit counts ties as half-wins and knows no chance of a tie; fit with "
                "ties='rao_kupper', or spread predict_win_probability with metrics.with_tie_rate."
            )
        rows = check_rows(comparisons).with_models(self.models_)
        return outcome_probabilities(self._differences(rows), self.tie_margin_)

    def _differences(self, rows: Comparisons) -> FloatArray:
        """Strengths of the second less the first, plus the order effect where order counts."""
        theta = self.strengths_.values
        difference = theta[rows.second] - theta[rows.first]
        if hasattr(self, "order_effect_") and rows.ordered:
            difference = difference + self.order_effect_
        return difference

    def _learn_margins(self, counts: OutcomeCounts, margins: Margins) -> None:
        """Keep the margins that were learnt, and none of an earlier fit."""
        for name, learnt in (
            ("tie_margin", counts.tie_weight is not None),
            ("order_effect", counts.direction is not None),
        ):
            if learnt:
                setattr(self, f"{name}_", getattr(margins, name))
            elif hasattr(self, f"{name}_"):
                delattr(self, f"{name}_")

    def ranking(self) -> pd.DataFrame:
        """Rank the models by strength.

        Returns
        -------
        pandas.DataFrame
            Index `llm`, highest strength first; columns `strength`, `mean_win_probability` (against
            the pool), `group` (a number for each set of models that comparisons connect, the
            largest first) and `rank`. Models of different groups were never compared, not even
            through others, so each group has its own ranks; one that never played has none.

        Examples
        --------
        >>> from bayes_ecc import BradleyTerry, simulate
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> table = BradleyTerry().fit(data.comparisons).ranking()
        >>> table["rank"].tolist(), set(table["group"])
        ([1.0, 2.0, 3.0, 4.0, 5.0], {1})
        """
        if not hasattr(self, "strengths_"):
            raise NotFittedError(
                "This BradleyTerry is not fitted yet: call fit(comparisons) first."
            )
        theta = self.strengths_.values
        tie_margin = getattr(self, "tie_margin_", None)
        against = win_probability_matrix(theta, tie_margin).sum(axis=1) - 0.5
        table = pd.DataFrame(
            {"strength": theta, "mean_win_probability": against / (len(theta) - 1)},
            index=pd.Index(self.models_, name="llm"),
        )
        group = connected_groups(self.contrasts_.values != "undetermined")
        table["group"] = group + 1
        played = np.bincount(group)[group] > 1
        by_group = table["strength"].where(played).groupby(group)
        table["rank"] = by_group.rank(ascending=False).astype("Float64")
        return table.sort_values("strength", ascending=False, kind="stable")
