"""Baselines that read labels instead of clusters."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator

from bayes_ecc.bradley_terry import PairLayout, fit_strengths
from bayes_ecc.checks import check_positive
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_comparisons, check_rows
from bayes_ecc.errors import InputError, NotFittedError

type FloatArray = NDArray[np.floating[Any]]


class LabelBradleyTerry(BaseEstimator):
    """One Bradley-Terry model for each value of a label, such as a benchmark's task.

    It answers what clusters are worth beside labels somebody already had. A query whose label was
    not seen in training, or is missing, is predicted by the global model.

    Parameters
    ----------
    ridge : float
        Pull of the strengths to zero, positive; the same for every label and the global model.

    Attributes
    ----------
    strengths_ : pandas.DataFrame
        One row a label, one column a model.
    global_strengths_ : ndarray, shape (n_models,)

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_ecc import LabelBradleyTerry, simulate
    >>> data = simulate(n_queries=100, rng=0)
    >>> labels = pd.Series(data.labels, index=data.comparisons.queries)
    >>> model = LabelBradleyTerry().fit(data.comparisons, labels)
    >>> model.predict_win_probability(data.comparisons, labels).shape
    (700,)
    """

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def fit(self, comparisons: Comparisons, labels: pd.Series) -> Self:
        """Fit one model a label, each comparison counting its weight.

        Parameters
        ----------
        comparisons : Comparisons
            Training comparisons.
        labels : pandas.Series
            Label of each query, indexed by query identifier.

        Returns
        -------
        LabelBradleyTerry
            Itself.

        Raises
        ------
        InputError
            If `labels` is not a Series that gives each training query one label, or all labels
            are missing.
        """
        check_comparisons(comparisons)
        ridge = check_positive("ridge", self.ridge)
        codes, values = pd.factorize(_labels_of(comparisons, labels))
        if not len(values):
            raise InputError("All labels of the training queries are missing; use another column.")
        counts = comparisons.outcome_counts()
        layout = PairLayout(counts.winner, counts.loser, comparisons.n_models)
        member = (codes == np.arange(len(values))[:, None]).astype(float)
        wins = np.vstack([member, np.ones(len(codes))]) @ counts.matrix
        strengths = fit_strengths(wins, layout, ridge)
        self.models_ = comparisons.models
        self.strengths_ = pd.DataFrame(strengths[:-1], index=values, columns=comparisons.models)
        self.global_strengths_ = strengths[-1]
        return self

    def predict_win_probability(self, comparisons: Comparisons, labels: pd.Series) -> FloatArray:
        """Predict P(second beats first) of each comparison from its query's label.

        Parameters
        ----------
        comparisons : Comparisons
            Rows to predict; outcomes are not looked at.
        labels : pandas.Series
            Label of each query, indexed by query identifier.

        Returns
        -------
        ndarray, shape (n_comparisons,)

        Raises
        ------
        InputError
            If `labels` does not give each query one label (it may be missing), or a model is
            compared that the fit did not know.
        """
        if not hasattr(self, "strengths_"):
            raise NotFittedError(
                "This LabelBradleyTerry is not fitted yet: call fit(comparisons, labels) first."
            )
        rows = check_rows(comparisons).with_models(self.models_)
        table = np.vstack([self.strengths_.to_numpy(), self.global_strengths_])
        # An unknown or missing label is -1, and the last row is the global model.
        theta = table[self.strengths_.index.get_indexer(_labels_of(rows, labels))][rows.query]
        row = np.arange(len(rows))
        return expit(theta[row, rows.second] - theta[row, rows.first])


def _labels_of(comparisons: Comparisons, labels: pd.Series) -> pd.Index:
    if not isinstance(labels, pd.Series):
        raise InputError(
            f"labels must be a pandas Series indexed by query id, not {type(labels).__name__}."
        )
    if not labels.index.is_unique:
        twice = labels.index[labels.index.duplicated()][0]
        raise InputError(f"labels has query {twice!r} more than once; give each query one label.")
    positions = labels.index.get_indexer(comparisons.queries)
    if (positions < 0).any():
        unknown = comparisons.queries[positions < 0][0]
        raise InputError(f"labels has no entry for query {unknown!r}; index it by query id.")
    found = labels.iloc[positions]
    if found.dtype == object:
        scalar = [isinstance(value, Hashable) for value in found]
        if not all(scalar):
            raise InputError(
                f"labels, query {comparisons.queries[scalar.index(False)]!r}: found "
                f"{found.iloc[scalar.index(False)]!r}; give text or a number."
            )
    return pd.Index(found)
