"""Choosing settings: a search over grids of them, and an estimator that chooses its own.

`search` takes a callable from settings to losses and knows no estimator; `validation` makes such
callables.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from tqdm.auto import tqdm

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError
from bayes_ecc.random import RandomState
from bayes_ecc.validation import evaluate_on_splits, inner_splits

__all__ = ["SearchResult", "SettingsSearch", "search"]

FloatArray = NDArray[np.floating[Any]]
type Settings = dict[str, Any]
type Evaluate = Callable[[Settings], ArrayLike]

_COLUMNS = ("loss", "se", "message")


@dataclass(frozen=True)
class SearchResult:
    """What a search tried and what it found best.

    Attributes
    ----------
    best : dict
        The settings with the lowest loss.
    loss : float
        Their loss, the mean over splits. Being the lowest of several it flatters a little.
    table : pandas.DataFrame
        One row for each setting tried, in that order: the settings, `loss`, `se` (standard error
        of the loss over splits; NaN with one split) and `message` (why the setting was refused,
        its loss being infinite, or what its fits warned of).
    n_evaluations : int
        How many settings were tried.
    at_edge : dict
        Numeric settings whose best value is the smallest or largest of several candidates: a wider
        grid might hold a better one.

    Examples
    --------
    >>> from bayes_ecc.selection import search
    >>> result = search(lambda settings: abs(settings["k"] - 9), {"k": [2, 4, 8]})
    >>> result.best, result.loss, result.at_edge
    ({'k': 8}, 1.0, {'k': 8})
    """

    best: Settings
    loss: float
    table: pd.DataFrame
    n_evaluations: int
    at_edge: Settings


def search(
    evaluate: Evaluate,
    grid: Mapping[str, Iterable[Any]],
    *,
    start: Mapping[str, Any] | None = None,
    method: Literal["coordinate", "grid"] = "coordinate",
    n_rounds: int = 2,
    progress: bool | None = False,
) -> SearchResult:
    """Look for the settings with the lowest loss.

    Coordinate descent tries all values of one setting after the other, in the order of the grid,
    the others held at the best so far, until a round changes nothing. No setting is evaluated
    twice. Of equal losses the value listed first wins.

    Parameters
    ----------
    evaluate : callable
        From a dict of settings to a loss, or to one loss for each split or start, of which the
        mean counts; lower is better. If it raises `InputError`, or gives NaN, the setting counts
        as infinitely bad. It should meet every setting with the same splits and seeds.
    grid : mapping of str to iterable
        Candidate values of each setting.
    start : mapping, optional
        Where coordinate descent starts, candidates of the grid; the first value of each setting by
        default.
    method : {"coordinate", "grid"}
        Coordinate descent, or every combination.
    n_rounds : int
        Most rounds of coordinate descent.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    SearchResult

    Raises
    ------
    InputError
        If the grid or the start cannot be used, or no setting has a finite loss.

    Examples
    --------
    >>> from bayes_ecc.selection import search
    >>> def loss(settings):
    ...     return [(settings["x"] - 2) ** 2 + settings["y"] + noise for noise in (0.0, 0.5)]
    >>> result = search(loss, {"x": [0, 1, 2, 3], "y": [0.5, 0.1]}, start={"y": 0.5})
    >>> result.best, result.n_evaluations
    ({'x': 2, 'y': 0.1}, 8)
    >>> result.table.tail(1)
       x    y  loss    se message
    7  3  0.1  1.35  0.25
    """
    candidates = _read_grid(grid)
    position = _read_start(candidates, start or {})
    if method not in ("coordinate", "grid"):
        raise InputError(f"method={method!r}: allowed are 'coordinate' and 'grid'.")
    check_count("n_rounds", n_rounds, least=1)
    sizes = [len(values) for values in candidates.values()]
    total = int(np.prod(sizes)) if method == "grid" else None
    with tqdm(
        total=total, desc="settings", disable=None if progress is None else not progress
    ) as bar:
        trials = _Trials(evaluate, candidates, bar)
        if method == "grid":
            position = trials.best_of(itertools.product(*map(range, sizes)), position)
        else:
            for _ in range(n_rounds):
                before = position
                for axis, size in enumerate(sizes):
                    head, tail = position[:axis], position[axis + 1 :]
                    line = [(*head, index, *tail) for index in range(size)]
                    position = trials.best_of(line, position)
                if position == before:
                    break
    loss = trials.loss(position)
    if not loss < np.inf:
        reasons = [row["message"] for row in trials.rows if row["message"]]
        raise InputError(
            f"None of the {len(trials.rows)} settings tried has a finite loss"
            + (f"; the first refusal: {reasons[0]}" if reasons else ".")
        )
    best = trials.settings(position)
    return SearchResult(
        best=best,
        loss=loss,
        table=pd.DataFrame(trials.rows, columns=[*candidates, *_COLUMNS]),
        n_evaluations=len(trials.rows),
        at_edge={name: best[name] for name in best if _is_edge(best[name], candidates[name])},
    )


class _Trials:
    """Evaluate settings, given as positions in the grid, each once; keep a row of what came out."""

    def __init__(self, evaluate: Evaluate, candidates: dict[str, list[Any]], bar: Any) -> None:
        self.evaluate = evaluate
        self.candidates = candidates
        self.bar = bar
        self.rows: list[dict[str, Any]] = []
        self.known: dict[tuple[int, ...], float] = {}

    def settings(self, position: tuple[int, ...]) -> Settings:
        values = zip(self.candidates.items(), position, strict=True)
        return {name: options[index] for (name, options), index in values}

    def best_of(
        self, positions: Iterable[tuple[int, ...]], current: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Find the lowest loss, the first of equals; stay where nothing is finite."""
        tried = list(positions)
        losses = [self.loss(position) for position in tried]
        return tried[int(np.argmin(losses))] if min(losses) < np.inf else current

    def loss(self, position: tuple[int, ...]) -> float:
        if position not in self.known:
            settings = self.settings(position)
            values, message = _try(self.evaluate, settings)
            loss = float(np.mean(values))
            finite = len(values) > 1 and np.isfinite(values).all()
            se = float(np.std(values, ddof=1) / np.sqrt(len(values))) if finite else np.nan
            self.known[position] = loss
            self.rows.append({**settings, "loss": loss, "se": se, "message": message})
            self.bar.update()
        return self.known[position]


def _try(evaluate: Evaluate, settings: Settings) -> tuple[FloatArray, str]:
    """Evaluate once: the losses, and what was refused or warned of.

    A search of forty fits would bury its user under their warnings; they go to the table instead.
    """
    with warnings.catch_warnings(record=True) as caught:
        for category in (ConvergenceWarning, DataWarning):
            warnings.simplefilter("always", category)
        try:
            returned = evaluate(dict(settings))
        except InputError as error:
            return np.array([np.inf]), str(error)
    said = []
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning | DataWarning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    try:
        values = np.atleast_1d(np.asarray(returned, dtype=float))
    except (TypeError, ValueError):
        values = np.array([])
    if values.ndim != 1 or values.size == 0:
        raise InputError(
            f"evaluate returned {returned!r} for {settings}; give a loss or a sequence of losses."
        )
    if np.isnan(values).any():
        return np.array([np.inf]), "the loss is NaN"
    return values, " | ".join(dict.fromkeys(said))


def _read_grid(grid: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    if not isinstance(grid, Mapping) or not grid:
        raise InputError(f"grid={grid!r}: give a mapping from settings to candidate values.")
    candidates = {}
    for name, values in grid.items():
        if not isinstance(name, str) or name in _COLUMNS:
            raise InputError(
                f"grid names a setting {name!r}; names are strings other than "
                f"{', '.join(_COLUMNS)}."
            )
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"grid[{name!r}] is {values!r}; give a list of candidate values.")
        candidates[name] = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if not candidates[name]:
            raise InputError(f"grid[{name!r}] is empty; give at least one candidate value.")
    return candidates


def _read_start(candidates: Mapping[str, list[Any]], start: Mapping[str, Any]) -> tuple[int, ...]:
    unknown = [name for name in start if name not in candidates]
    if unknown:
        raise InputError(
            f"start names {unknown[0]!r}, which the grid does not; it has {', '.join(candidates)}."
        )
    for name, value in start.items():
        if value not in candidates[name]:
            raise InputError(
                f"start[{name!r}] is {value!r}, which is not among its candidates "
                f"{candidates[name]}; add it to the grid or start elsewhere."
            )
    return tuple(
        values.index(start[name]) if name in start else 0 for name, values in candidates.items()
    )


def _is_edge(value: Any, candidates: Iterable[Any]) -> bool:
    numbers = [c for c in candidates if _is_number(c)]
    return (
        _is_number(value) and min(numbers) < max(numbers) and value in (min(numbers), max(numbers))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


# -------------------------------------------------------------------- for any estimator


class SettingsSearch(BaseEstimator):
    """Choose an estimator's settings by inner validation, then fit it on everything.

    Parameters
    ----------
    estimator : object
        With `get_params` and `set_params`, `fit(comparisons, embeddings)` and
        `predict_win_probability(comparisons, *, embeddings, probes)`. It is cloned, not changed.
    grid : mapping of str to iterable
        Candidate values of each setting. The search starts from the estimator's own value where
        that is a candidate, else from the first.
    validation_size : float
        Share of the training queries to validate on.
    n_splits : int
        Number of inner splits.
    n_probes : int
        Probes of each validation query.
    method : {"coordinate", "grid"}
        As in `search`.
    n_rounds : int
        As in `search`.
    progress : bool
        Whether to show a progress bar.
    rng : int, numpy.random.Generator or None
        Randomness of the splits, of the probes and of the fits on them.

    Attributes
    ----------
    best_settings_ : dict
        The settings with the lowest validation loss.
    best_loss_ : float
        That loss.
    best_estimator_ : object
        A clone with these settings, fitted on all comparisons given.
    results_ : pandas.DataFrame
        What was tried; see `SearchResult`.
    at_edge_ : dict
        Settings whose best value is the last of its candidates on either side.

    Examples
    --------
    >>> from bayes_ecc import ECC, SettingsSearch, simulate
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=2, rng=0)
    >>> grid = {"ridge": [1.0, 0.1], "embedding_weight": [1.0, 3.0]}
    >>> chosen = SettingsSearch(ECC(n_clusters=2, rng=0), grid, rng=0)
    >>> chosen = chosen.fit(data.comparisons, data.embeddings)
    >>> sorted(chosen.best_settings_)
    ['embedding_weight', 'ridge']
    >>> chosen.best_estimator_.strengths_.shape
    (2, 5)
    """

    def __init__(
        self,
        estimator: Any,
        grid: Mapping[str, Iterable[Any]],
        *,
        validation_size: float = 0.25,
        n_splits: int = 2,
        n_probes: int = 1,
        method: Literal["coordinate", "grid"] = "coordinate",
        n_rounds: int = 2,
        progress: bool = False,
        rng: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.validation_size = validation_size
        self.n_splits = n_splits
        self.n_probes = n_probes
        self.method = method
        self.n_rounds = n_rounds
        self.progress = progress
        self.rng = rng

    def fit(self, comparisons: Comparisons, embeddings: ArrayLike) -> Self:
        """Search, then fit the best settings on all comparisons.

        Parameters
        ----------
        comparisons : Comparisons
            Training comparisons; test queries must not be among them.
        embeddings : array-like, shape (n_queries, embedding_dim)
            Row i belongs to `comparisons.queries[i]`.

        Returns
        -------
        SettingsSearch
            Itself.

        Raises
        ------
        InputError
            If the data or the grid cannot be used, or no setting can.
        """
        candidates = _read_grid(self.grid)
        own = self.estimator.get_params()
        unknown = [name for name in candidates if name not in own]
        if unknown:
            raise InputError(
                f"grid names {unknown[0]!r}, which {type(self.estimator).__name__} does not have; "
                f"its settings are {', '.join(own)}."
            )
        splits = inner_splits(
            comparisons,
            self.n_splits,
            validation_size=self.validation_size,
            n_probes=self.n_probes,
            rng=self.rng,
        )
        rows = np.asarray(embeddings)
        if rows.ndim != 2 or len(rows) != comparisons.n_queries:
            raise InputError(
                f"embeddings has shape {rows.shape}; give one row for each of the "
                f"{comparisons.n_queries} queries."
            )
        result = search(
            evaluate_on_splits(self.estimator, rows, splits),
            candidates,
            start={name: own[name] for name in candidates if own[name] in candidates[name]},
            method=self.method,
            n_rounds=self.n_rounds,
            progress=self.progress,
        )
        self.best_settings_ = result.best
        self.best_loss_ = result.loss
        self.results_ = result.table
        self.at_edge_ = result.at_edge
        best = clone(self.estimator).set_params(**result.best)
        self.best_estimator_ = best.fit(comparisons, embeddings)
        return self

    def predict_win_probability(
        self,
        comparisons: Comparisons,
        *,
        embeddings: ArrayLike | None = None,
        probes: Comparisons | None = None,
    ) -> FloatArray:
        """Predict P(second beats first) of each comparison with the best estimator."""
        if not hasattr(self, "best_estimator_"):
            raise NotFittedError(
                "This SettingsSearch is not fitted yet: call fit(comparisons, embeddings) first."
            )
        return self.best_estimator_.predict_win_probability(
            comparisons, embeddings=embeddings, probes=probes
        )
