"""The work of a study: one fit, and every cell that reads it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import ConvergenceWarning, DataWarning, InputError
from bayes_ecc.evaluation import Fitted, fit_method, judge
from bayes_ecc.inference import predict_win_probability
from bayes_ecc.intervals import Interval
from bayes_ecc.splits import SIGNALS, Signal, Split
from bayes_ecc.studies.cells import Cell
from bayes_ecc.studies.data import StudyData
from bayes_ecc.studies.sides import (
    draw_test_pool,
    draw_training,
    make_split,
    pool_key,
    set_probes_apart,
)

type FloatArray = NDArray[np.floating[Any]]

_RESAMPLES = 1000  # of the bootstrap: a study has thousands of gains

FIGURES = (
    "gain",
    "gain_low",
    "gain_high",
    "gain_per_query",
    "loss",
    "loss_per_query",
    "ece",
    "loss_global",
)
"""What is measured of a cell, by signal."""
FACTS = (
    "seconds",
    "n_iter",
    "converged",
    "n_train_queries",
    "n_train",
    "n_test_queries",
    "n_scored",
    "ties_scored",
    "message",
)
"""What is told of a cell, whatever the signal."""


class Result(NamedTuple):
    """What came of a cell: figures by signal (none where it was refused), and facts."""

    figures: dict[str, dict[str, float]]
    facts: dict[str, Any]


def run_group(
    data: StudyData,
    cells: Sequence[Cell],
    keep: Callable[[Cell, Result], None] | None = None,
    interval: Interval | None = None,
) -> list[Result]:
    """Fit once and read the fit for every cell.

    Parameters
    ----------
    data : StudyData
    cells : sequence of Cell
        Alike in what decides a fit.
    keep : callable, optional
        Given each cell and its result as soon as it is there.
    interval : Interval, optional
        Probability and kind of the gains' intervals; ArviZ's current settings by default.

    Returns
    -------
    list of Result
        In the order of `cells`. What is refused and what is warned of stands in `message`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import Cell, StudyData
    >>> from bayes_ecc.studies.work import run_group
    >>> data = StudyData.of(simulate(n_queries=100, rng=0).bundle())
    >>> cells = [Cell("ecc", n_clusters=3, n_probes=n) for n in (1, 2)]
    >>> [result.facts["n_scored"] for result in run_group(data, cells)]
    [120, 100]
    """
    results = []
    for cell, result in zip(cells, _results(data, cells, interval), strict=True):
        if keep is not None:
            keep(cell, result)
        results.append(result)
    return results


def _results(data: StudyData, cells: Sequence[Cell], interval: Interval | None) -> Iterator[Result]:
    said: list[str] = []
    try:
        with _COLLECTOR.into(said):
            fit = _Fit(data, cells[0])
    except InputError as error:
        yield from (_refused(str(error)) for _ in cells)
        return
    for cell in cells:
        of_cell = list(said)
        try:
            with _COLLECTOR.into(of_cell):
                yield fit.read(data, cell, of_cell, interval)
        except InputError as error:
            yield _refused(str(error))


class _Fit:
    """One method fitted to one training side, and the global model that gains refer to."""

    def __init__(self, data: StudyData, cell: Cell) -> None:
        self.train = draw_training(data, cell)
        split = self.split(data, cell, (self.train.rows(np.zeros(len(self.train), bool)),) * 2)
        began = time.perf_counter()
        bundle = data.bundle
        self.fitted = fit_method(cell.method, split, bundle, cell.settings)
        self.seconds = time.perf_counter() - began
        self.baseline = BradleyTerry(ridge=1.0).fit(self.train)
        self.pools: dict[tuple[Any, ...], Comparisons] = {}

    def split(self, data: StudyData, cell: Cell, test: tuple[Comparisons, Comparisons]) -> Split:
        return make_split(data, cell, self.train, test)

    def read(
        self, data: StudyData, cell: Cell, said: list[str], interval: Interval | None
    ) -> Result:
        """Predict and judge one cell's test side."""
        key = pool_key(cell)
        if key not in self.pools:
            self.pools[key] = draw_test_pool(data, cell, self.train.models)
        split = self.split(data, cell, set_probes_apart(data, cell, self.pools[key]))
        began = time.perf_counter()
        predicted = {
            signal: self.predict(cell, split, signal) for signal in SIGNALS if _has(split, signal)
        }
        seconds = self.seconds + time.perf_counter() - began
        baseline = self.baseline.predict_win_probability(split.scored)
        figures: dict[str, dict[str, float]] = {}
        for signal, probability in predicted.items():
            found = judge(probability, baseline, split, interval=interval, n_resamples=_RESAMPLES)
            found["gain_low"], found["gain_high"] = found.pop("low"), found.pop("high")
            found["loss_global"] = found["loss"] / (1 - found["gain"] / 100)
            figures[signal] = {name: float(found[name]) for name in FIGURES}
        facts = {
            "seconds": seconds,
            "n_iter": self.fitted.n_iter,
            "converged": getattr(self.fitted.estimator, "converged_", None),
            "n_train_queries": split.train.n_queries,
            "n_train": len(split.train),
            "n_test_queries": split.scored.n_queries,
            "n_scored": len(split.scored),
            "ties_scored": float(np.mean(split.scored.outcome == 0.5)),
            "message": " | ".join(dict.fromkeys(said)),
        }
        return Result(figures, facts)

    def predict(self, cell: Cell, split: Split, signal: Signal) -> FloatArray:
        if cell.kind == "comparisons" and "embedding" in signal:
            return _read_with(self.fitted, cell, split, signal)
        return self.fitted.predict(signal, split)


def _read_with(fitted: Fitted, cell: Cell, split: Split, signal: Signal) -> FloatArray:
    """Read comparison-only clusters with the cell's own embedding weight: it had no say before."""
    if isinstance(cell.embedding_weight, str):
        return fitted.predict(signal, split)
    posterior = fitted.estimator.posterior_.copy()
    constant = posterior["constant_data"].to_dataset(inherit=False)
    concentration = cell.embedding_weight / fitted.settings["temperature"]
    posterior["constant_data"] = constant.assign(concentration=concentration)
    probes = split.probes if "probe" in signal and len(split.probes) else None
    return predict_win_probability(
        posterior, split.scored, embeddings=split.test_embeddings, probes=probes
    )


def _has(split: Split, signal: Signal) -> bool:
    """Tell whether a signal can be read: without probes that of both is the embedding's.

    Where there is neither, queries are all alike, and "embedding+probe" is what is read: nothing.
    """
    probed, embedded = len(split.probes) > 0, split.test_embeddings is not None
    if signal == "probe":
        return probed
    return embedded or (signal == "embedding+probe" and not probed)


def _refused(message: str) -> Result:
    return Result({}, {"message": message})


# -------------------------------------------------------------------- warnings


class _Collector:
    """Put the library's own warnings into the list of the thread that they come from.

    Filters belong to the process, and fits may run in threads: they are changed once for all of
    them, and set back when the last one is through. Other warnings go where they would.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.local = threading.local()
        self.users = 0

    @contextmanager
    def into(self, said: list[str]) -> Iterator[None]:
        with self.lock:
            if self.users == 0:
                self.filters = warnings.catch_warnings()
                self.filters.__enter__()
                self.shown = warnings.showwarning
                for category in (ConvergenceWarning, DataWarning):
                    warnings.simplefilter("always", category)
                warnings.showwarning = self.show
            self.users += 1
        before = getattr(self.local, "said", None)
        self.local.said = said
        try:
            yield
        finally:
            self.local.said = before
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    self.filters.__exit__(None, None, None)

    def show(self, message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
        said = getattr(self.local, "said", None)
        if said is not None and issubclass(category, ConvergenceWarning | DataWarning):
            said.append(str(message))
        else:
            self.shown(message, category, *rest, **more)


_COLLECTOR = _Collector()
