"""Predicted quality: from win probabilities, which have no scale of quality, to expected scores.

A Bradley-Terry model knows who beats whom, not how good anybody is. What a model is worth on a
query is therefore learned from scores of training queries, as a monotone function of the model's
mean win probability against the pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import lsq_linear

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, draw_parts, query_blocks, read_draws, responsibilities
from bayes_ecc.errors import InputError
from bayes_ecc.inference import read_signals

type FloatArray = NDArray[np.floating[Any]]

_RISE = 0.01  # share of a straight line in every map: more wins never mean nothing
_SMOOTHING = 1e-3  # penalty on changes of slope, a score
_WIDTH = 256  # queries treated at once


@dataclass(frozen=True, eq=False)
class QualityCalibration:
    """A rising, piecewise linear map from mean win probability to expected score.

    Attributes
    ----------
    values : ndarray, shape (n_cells + 1,)
        Expected score at the win probabilities 0, 1 / n_cells, ..., 1; strictly rising.
    n_queries : int
        Training queries it was fitted on.

    See Also
    --------
    fit_quality : fits one.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import QualityCalibration
    >>> quality = QualityCalibration(np.array([0.1, 0.3, 0.9]), n_queries=100)
    >>> quality.predict([0.0, 0.25, 0.5, 1.0]).tolist()
    [0.1, 0.2, 0.3, 0.9]
    """

    values: FloatArray
    n_queries: int

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=float)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
            raise InputError("values must be at least two finite numbers, one a cell edge.")
        if (np.diff(values) <= 0).any():
            raise InputError("values must rise from each to the next: more wins, more quality.")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def predict(self, win_probability: ArrayLike) -> FloatArray:
        """Give the expected score at each win probability; any shape, single precision stays."""
        win = np.asarray(win_probability)
        if win.dtype.kind != "f":
            win = win.astype(float)
        n_cells = len(self.values) - 1
        slope = np.diff(self.values)
        start = (self.values[:-1] - slope * np.arange(n_cells)).astype(win.dtype)
        slope = slope.astype(win.dtype)
        place = win * win.dtype.type(n_cells)
        cell = np.clip(place.astype(np.intp), 0, n_cells - 1)
        return start[cell] + slope[cell] * place


def fit_quality(
    posterior: xr.DataTree | Draws,
    scores: pd.DataFrame | ArrayLike,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    draws: int | None = 25,
    n_cells: int = 25,
) -> QualityCalibration:
    """Fit the map from mean win probability to expected score on training queries.

    Minimises the squared error of the posterior mean of the mapped win probabilities; a light
    penalty on changes of slope carries the map over cells without data. The win
    probabilities are predicted from the signals given, so a map belongs to one kind of signal:
    with a probe they spread wider than without. Give signals as a new query would have them
    (embeddings alone, or with one probe) and not all comparisons of the training queries, which
    the fit has seen.

    Parameters
    ----------
    posterior : xarray.DataTree or Draws
        From any estimator of this library.
    scores : pandas.DataFrame or array-like, shape (n_queries, n_models)
        Scores of the queries, higher is better, missing where a model was not run. A frame is
        read by query (its index, or a column `query_id`) and model; an array has the queries' and
        the posterior's order.
    embeddings, probes, queries
        Signals of the training queries, as in `predict_responsibilities`. Beside embeddings alone
        a frame that goes by query id needs `queries`, in the order of the rows:
        ``fit_quality(posterior, scores, embeddings=split.train_embeddings,
        queries=split.train.queries)``.
    draws : int, optional
        Use at most so many draws of each chain.
    n_cells : int
        Linear pieces of the map.

    Returns
    -------
    QualityCalibration

    Raises
    ------
    InputError
        If scores do not fit the queries or the models, or are all missing.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, fit_quality, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> scores = 1 / (1 + np.exp(-data.strengths[data.labels]))
    >>> quality = fit_quality(fit.posterior_, scores, embeddings=data.embeddings)
    >>> bool(quality.predict(0.8) > quality.predict(0.4))
    True
    """
    check_count("n_cells", n_cells)
    read = read_draws(posterior, draws=draws)
    signals = read_signals(
        read.atoms, embeddings=embeddings, probes=probes, queries=queries, by_query=["scores"]
    )
    numbered = queries is None and probes is None
    table = align_scores(scores, signals.queries, read.atoms.models, numbered=numbered)
    known = ~np.isnan(table)
    if not known.any():
        raise InputError("scores holds no score of these queries; give some.")
    gram = np.zeros((n_cells + 1, n_cells + 1))
    moment = np.zeros(n_cells + 1)
    for block in query_blocks(signals, _WIDTH):
        here = known[block.rows]
        feature = np.ones((int(here.sum()), n_cells + 1))
        feature[:, 1:] = _mean_passed(read, block, n_cells)[here]
        gram += feature.T @ feature
        moment += feature.T @ table[block.rows][here]
    low, high = float(table[known].min()), float(table[known].max())
    high = max(high, low + 1e-6)
    values = np.clip(rising_values(gram, moment, _SMOOTHING * int(known.sum())), low, high)
    line = np.linspace(low, high, n_cells + 1)
    return QualityCalibration(
        (1 - _RISE) * values + _RISE * line, n_queries=int(known.any(axis=1).sum())
    )


def align_scores(
    scores: pd.DataFrame | ArrayLike,
    queries: pd.Index,
    models: pd.Index,
    *,
    name: str = "scores",
    numbered: bool = False,
) -> FloatArray:
    """Bring scores into the order of queries and models, (n_queries, n_models), NaN if missing.

    `name` is what the argument is called, and `numbered` says that nobody named the queries: a
    frame of more queries than there are would then be read by numbers that are not its own.

    Raises
    ------
    InputError
        If a query or model is missing, a shape is wrong or something is no number.
    """
    if isinstance(scores, pd.DataFrame):
        frame = scores.set_index("query_id") if "query_id" in scores.columns else scores
        absent = [model for model in models if model not in frame.columns]
        if absent:
            raise InputError(f"{name} has no column {absent[0]!r}; give a column a model.")
        if not frame.index.is_unique:
            raise InputError(f"{name} names a query more than once; keep one row a query.")
        rows = frame.index.get_indexer(queries)
        merely = numbered or isinstance(queries, pd.RangeIndex)
        if merely and ((rows < 0).any() or (numbered and len(frame) > len(queries))):
            first = f" (the first is {frame.index[0]!r})" if len(frame) else ""
            raise InputError(
                f"{name} has {len(frame)} row(s) that go by query{first}, while the queries were "
                f"not named and are numbered 0 to {len(queries) - 1}; name them, in the order of "
                "their rows: queries=[...]."
            )
        if (rows < 0).any():
            raise InputError(
                f"{name} has no row for query {queries[rows < 0][0]!r}; index it by query id."
            )
        return as_numbers(frame.iloc[rows][list(models)], name)
    table = as_numbers(scores, name)
    if table.shape != (len(queries), len(models)):
        raise InputError(
            f"{name} has shape {table.shape}; {len(queries)} queries and {len(models)} models ask "
            f"for ({len(queries)}, {len(models)})."
        )
    return table


def as_numbers(values: Any, name: str) -> FloatArray:
    """Give an argument as an array of floats, or refuse it."""
    try:
        if isinstance(values, pd.DataFrame | pd.Series):
            return values.to_numpy(dtype=float)
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}.") from None


def calibration_table(
    predicted: ArrayLike, realised: ArrayLike, *, n_bins: int = 10
) -> pd.DataFrame:
    """Hold predicted against realised quality, in bins of equally many queries.

    Parameters
    ----------
    predicted, realised : array-like of float, shape (n_queries,)
        Predicted quality of the model a query was routed to, and the score it got.
    n_bins : int
        Number of bins; fewer if there are fewer queries.

    Returns
    -------
    pandas.DataFrame
        One row a bin, by rising prediction: `queries`, mean `predicted` and `realised`.

    Raises
    ------
    InputError
        If shapes differ or there is nothing to hold together.

    Examples
    --------
    >>> from bayes_ecc.quality import calibration_table
    >>> calibration_table([0.2, 0.4, 0.6, 0.8], [0, 0, 1, 1], n_bins=2)
       queries  predicted  realised
    0        2        0.3       0.0
    1        2        0.7       1.0
    """
    check_count("n_bins", n_bins)
    p, y = np.asarray(predicted, dtype=float), np.asarray(realised, dtype=float)
    if p.ndim != 1 or p.shape != y.shape or not len(p):
        raise InputError(
            f"predicted has shape {p.shape} and realised {y.shape}; give one number a query each."
        )
    parts = np.array_split(np.argsort(p, kind="stable"), min(n_bins, len(p)))
    return pd.DataFrame(
        {
            "queries": [len(part) for part in parts],
            "predicted": [float(p[part].mean()) for part in parts],
            "realised": [float(y[part].mean()) for part in parts],
        }
    )


def quality_calibration_error(
    predicted: ArrayLike, realised: ArrayLike, *, n_bins: int = 10
) -> float:
    """Mean distance between predicted and realised quality over the bins of `calibration_table`.

    Examples
    --------
    >>> from bayes_ecc.quality import quality_calibration_error
    >>> round(quality_calibration_error([0.2, 0.4, 0.6, 0.8], [0, 0, 1, 1], n_bins=2), 3)
    0.3
    """
    table = calibration_table(predicted, realised, n_bins=n_bins)
    gap = (table["predicted"] - table["realised"]).abs()
    return float((table["queries"] * gap).sum() / table["queries"].sum())


# -------------------------------------------------------------------- numerical cores


def rising_values(gram: FloatArray, moment: FloatArray, smoothing: float) -> FloatArray:
    """Solve for the values of a map that never falls, by penalised least squares.

    Parameters
    ----------
    gram : ndarray, shape (n_cells + 1, n_cells + 1)
        Sum over observations of the products of features: 1, then how much of each cell lies below
        the win probability (0 to 1).
    moment : ndarray, shape (n_cells + 1,)
        Sum of features times scores.
    smoothing : float
        Weight of the squared changes of rise between neighbouring cells.

    Returns
    -------
    ndarray, shape (n_cells + 1,)
    """
    size = len(moment)
    bend = np.diff(np.eye(size - 1), axis=0)
    penalised = gram.copy()
    penalised[1:, 1:] += smoothing * bend.T @ bend + 1e-9 * np.trace(gram) * np.eye(size - 1)
    root = np.linalg.cholesky(penalised)
    lower = np.r_[-np.inf, np.zeros(size - 1)]
    solution = lsq_linear(
        root.T, np.linalg.solve(root, moment), bounds=(lower, np.full(size, np.inf)), method="bvls"
    )
    # the solver may end a rounding error below its bound
    return np.cumsum(np.r_[solution.x[0], np.maximum(solution.x[1:], 0.0)])


def _mean_passed(read: Draws, block: Any, n_cells: int) -> FloatArray:
    """Average over draws how much of each cell lies below the win: (n_block, n_models, n_cells)."""
    mean = np.zeros((len(block), len(read.models), n_cells))
    edges = np.arange(n_cells, dtype=np.float32)
    for part, each in draw_parts(read.atoms.share, len(block) * n_cells):
        r = responsibilities(read, part, block)
        win = np.matmul(read.win_table[part], r.transpose(1, 0, 2))  # draws, models, queries
        passed = np.clip(n_cells * win[..., None] - edges, 0, 1)
        mean += each * passed.sum(axis=0).transpose(1, 0, 2)
    return mean
