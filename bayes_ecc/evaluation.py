"""Methods on one split, judged by the same number: the evaluation protocol.

A `Split` holds training comparisons, test probes and test comparisons to be predicted. A method is
named by a short text ("ecc", "labels:task"), fitted on the training side, and predicts the test
side from the embedding, the probe, or both.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
from arviz_base import rcParams
from numpy.typing import NDArray
from tqdm.auto import tqdm

from bayes_ecc.baselines import LabelBradleyTerry
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle
from bayes_ecc.calibration import expected_calibration_error
from bayes_ecc.ecc import ECC
from bayes_ecc.errors import InputError
from bayes_ecc.intervals import Interval, choose_interval
from bayes_ecc.metrics import bt_loss, gain_interval, ranking_quality_gain
from bayes_ecc.splits import SIGNALS, Signal, Split, apart_from_probes, predict_signal
from bayes_ecc.versions import installed_versions

type FloatArray = NDArray[np.floating[Any]]
type Setting = float | Literal["auto"]


@dataclass(frozen=True)
class EvaluationSettings:
    """Settings that the methods of an evaluation share.

    Attributes
    ----------
    n_clusters : int
        Clusters of every clustering method.
    embedding_weight, temperature, ridge : float or "auto"
        Of ECC, and of the one-signal variants; the first is also the weight with which
        comparison-only clusters are read at prediction.
    embedding_only_weight : float
        Lambda of embedding-only clustering.
    concentration, probe_power : float or "auto"
        Of the Bayesian mixture, as are those below.
    evidence_power : float
    starts : {"independent", "em"}
    chains, draws : int

    Examples
    --------
    >>> from bayes_ecc.evaluation import EvaluationSettings
    >>> EvaluationSettings(n_clusters=5, ridge="auto").temperature
    0.1
    """

    n_clusters: int = 30
    embedding_weight: Setting = 3.0
    embedding_only_weight: float = 3.0
    temperature: Setting = 0.1
    ridge: Setting = 1.0
    concentration: Setting = "auto"
    evidence_power: float = 1.0
    probe_power: Setting = "auto"
    starts: Literal["independent", "em"] = "independent"
    chains: int = 4
    draws: int = 500


class Predict(Protocol):
    """Predictions of a fitted method by signal."""

    def __call__(self, signal: Signal, /, split: Split | None = None) -> FloatArray:
        """Predict the scored comparisons of the split that was fitted, or of another one.

        Another split is one of the same models: other test queries or probes, say. Its training
        side is not looked at.
        """


class Fitted(NamedTuple):
    """A fitted method: predictions by signal, and what is worth telling of the fit."""

    predict: Predict
    n_iter: int | None = None
    settings: Mapping[str, Any] = {}
    estimator: Any = None


# -------------------------------------------------------------------- methods


class Task(NamedTuple):
    """What a method gets to fit: a split, the bundle it is of, settings, what follows its colon."""

    split: Split
    bundle: Bundle
    settings: EvaluationSettings
    detail: str


def _fit_global(task: Task) -> Fitted:
    """Fit the baseline of every gain, whose ridge of 1 belongs to the protocol."""
    model = BradleyTerry(ridge=1.0).fit(task.split.train)

    def predict(_: Signal, /, split: Split | None = None) -> FloatArray:
        return model.predict_win_probability((split or task.split).scored)

    return Fitted(predict, estimator=model)


def _fit_labels(task: Task) -> Fitted:
    labels = task.bundle.labels(task.detail)
    model = LabelBradleyTerry().fit(task.split.train, labels)

    def predict(_: Signal, /, split: Split | None = None) -> FloatArray:
        return model.predict_win_probability((split or task.split).scored, labels)

    return Fitted(predict, estimator=model)


def _fit_embedding(task: Task) -> Fitted:
    weight = task.settings.embedding_only_weight
    return _fit_ecc(task, "embedding", evidence="embedding", embedding_weight=weight)


def _fit_comparisons(task: Task) -> Fitted:
    return _fit_ecc(task, "comparisons", evidence="comparisons")


def _fit_both(task: Task) -> Fitted:
    if not task.detail:
        return _fit_ecc(task, "ecc")
    return _fit_ecc(task, "ecc:auto", embedding_weight="auto", temperature="auto", ridge="auto")


def _fit_ecc(task: Task, method: str, **changed: Any) -> Fitted:
    settings = task.settings
    estimator = ECC(
        settings.n_clusters,
        embedding_weight=settings.embedding_weight,
        temperature=settings.temperature,
        ridge=settings.ridge,
        rng=_stream(task.split, method),
    ).set_params(**changed)
    return _fit_estimator(estimator, task.split)


def _fit_bayes(task: Task) -> Fitted:
    from bayes_ecc.bayesian import BayesianECC  # brings PyMC, which takes seconds to import

    settings = task.settings
    method = "bayes:embedding" if task.detail else "bayes"
    estimator = BayesianECC(
        settings.n_clusters,
        concentration=settings.concentration,
        evidence_power=settings.evidence_power,
        probe_power=settings.probe_power,
        n_probes=0 if task.detail else None,
        starts=settings.starts,
        chains=settings.chains,
        draws=settings.draws,
        checks=False,  # what is judged here are predictions
        rng=_stream(task.split, method),
    )
    return _fit_estimator(estimator, task.split)


def _stream(split: Split, method: str) -> np.random.Generator:
    """Give every method randomness of its own, whatever else is evaluated beside it."""
    return np.random.default_rng([split.seed, zlib.crc32(method.encode())])


def _fit_estimator(estimator: Any, fitted: Split) -> Fitted:
    estimator.fit(fitted.train, fitted.train_embeddings)

    def predict(signal: Signal, /, split: Split | None = None) -> FloatArray:
        return predict_signal(estimator, split or fitted, signal)

    return Fitted(
        predict=predict,
        n_iter=estimator.n_iter_,
        settings=estimator.settings_,
        estimator=estimator,
    )


type Fit = Callable[[Task], Fitted]

METHODS: Mapping[str, Fit] = {
    "global": _fit_global,
    "labels": _fit_labels,
    "embedding": _fit_embedding,
    "comparisons": _fit_comparisons,
    "ecc": _fit_both,
    "bayes": _fit_bayes,
}
"""What a method's name before the colon means; what follows the colon is passed on."""


def check_method(name: str, bundle: Bundle) -> tuple[str, str]:
    """Split a method's name at its colon and refuse what is not a method.

    Raises
    ------
    InputError
        If there is no such method, or the bundle lacks the label or the embeddings it reads.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import check_method
    >>> check_method("labels:topic", simulate(n_queries=20, rng=0).bundle())
    ('labels', 'topic')
    """
    kind, colon, detail = name.partition(":")
    variants = {"labels": (detail,), "ecc": ("", "auto"), "bayes": ("", "embedding")}
    fine = detail in variants.get(kind, ("",)) and bool(detail) == bool(colon or kind == "labels")
    if kind not in METHODS or not fine:
        raise InputError(
            f"There is no method {name!r}; there are global, labels:COLUMN, embedding, "
            "comparisons, ecc, ecc:auto, bayes and bayes:embedding."
        )
    if kind == "labels":
        bundle.labels(detail)
    if kind == "embedding" and bundle.embeddings is None:
        raise InputError(
            f"The method 'embedding' clusters embeddings, and the bundle {bundle.name!r} has none; "
            "name other methods, or put embeddings.npy beside its queries."
        )
    return kind, detail


def fit_method(
    name: str, split: Split, bundle: Bundle, settings: EvaluationSettings | None = None
) -> Fitted:
    """Fit one method on the training side of a split.

    Raises
    ------
    InputError
        If the method is unknown or cannot be fitted.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import fit_method
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=100, rng=0).bundle()
    >>> split = draw_split(bundle)
    >>> fit_method("labels:topic", split, bundle).predict("probe").shape == (len(split.scored),)
    True
    """
    kind, detail = check_method(name, bundle)
    return METHODS[kind](Task(split, bundle, settings or EvaluationSettings(), detail))


# -------------------------------------------------------------------- evaluation


@dataclass
class _Tally:
    """What one method did, seed by seed."""

    values: dict[Signal, dict[str, list[float]]] = field(
        default_factory=lambda: {signal: {} for signal in SIGNALS}
    )
    seconds: list[float] = field(default_factory=list)
    n_iter: list[int] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, signal: Signal, **figures: float) -> None:
        for name, value in figures.items():
            self.values[signal].setdefault(name, []).append(value)


def evaluate(
    bundle: Bundle,
    splits: Iterable[Split],
    methods: Sequence[str] = ("global", "embedding", "comparisons", "ecc"),
    settings: EvaluationSettings | None = None,
    *,
    protocol: Mapping[str, Any] | None = None,
    progress: bool | None = False,
) -> dict[str, Any]:
    """Fit methods on splits and judge all of them by the same held-out comparisons.

    Parameters
    ----------
    bundle : Bundle
        The data, for labels.
    splits : iterable of Split
        One a seed, from `bayes_ecc.splits`.
    methods : sequence of str
        "global", "labels:COLUMN", "embedding", "comparisons", "ecc", "ecc:auto", "bayes" and
        "bayes:embedding".
    settings : EvaluationSettings, optional
        What the methods share.
    protocol : mapping, optional
        How the splits came about, to be told with the results.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    dict
        Ready for JSON. `protocol`: settings, counts, versions, kind of interval. `global`: mean
        `loss` and `ece` of the baseline. `methods`: for each name and signal `gain` (mean, sd,
        per_seed; percent), `gain_interval` (mean over seeds of each split's bootstrap bounds),
        `gain_per_query`, `gain_apart`, `loss`, `loss_per_query`, `ece` (see `judge`); and `seconds`
        (of a fit with its predictions), `n_iter` and the `settings` used.

    Raises
    ------
    InputError
        If a method is unknown or a split cannot be fitted.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import EvaluationSettings, evaluate
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=200, rng=0).bundle()
    >>> settings = EvaluationSettings(n_clusters=4, embedding_weight=1.0)
    >>> result = evaluate(bundle, [draw_split(bundle)], ["labels:capability", "ecc"], settings)
    >>> result["methods"]["labels:capability"]["embedding+probe"]["gain"]["mean"] > 10
    True
    """
    chosen = settings or EvaluationSettings()
    if isinstance(methods, str) or not methods:
        raise InputError(f"methods={methods!r}: give a list of one method or more.")
    for name in methods:
        check_method(name, bundle)
    tallies = {name: _Tally() for name in methods}
    counts, losses, calibration = [], [], []
    with tqdm(
        desc="evaluate", unit="fit", disable=None if progress is None else not progress, leave=False
    ) as bar:
        for split in splits:
            baseline = fit_method("global", split, bundle).predict("probe")
            losses.append(bt_loss(baseline, split.scored))
            calibration.append(expected_calibration_error(baseline, split.scored))
            counts.append(_counts(split))
            for name, tally in tallies.items():
                bar.set_postfix_str(f"seed {split.seed}, {name}")
                began = time.perf_counter()
                fitted = fit_method(name, split, bundle, chosen)
                predicted = {signal: fitted.predict(signal) for signal in SIGNALS}
                tally.seconds.append(time.perf_counter() - began)
                for signal, probability in predicted.items():
                    tally.add(signal, **judge(probability, baseline, split))
                tally.settings.append(dict(fitted.settings))
                if fitted.n_iter is not None:
                    tally.n_iter.append(fitted.n_iter)
                bar.update()
    if not counts:
        raise InputError("There is no split to evaluate on; give at least one.")
    return {
        "protocol": {
            "bundle": bundle.name,
            **asdict(chosen),
            **(protocol or {}),
            "counts": counts,
            "interval": {
                "prob": rcParams["stats.ci_prob"],
                "kind": rcParams["stats.ci_kind"],
                "of": "bootstrap over test queries, bounds averaged over seeds",
            },
            "versions": library_versions(),
        },
        "global": {
            "loss": float(np.mean(losses)),
            "ece": float(np.mean(calibration)),
            "loss_per_seed": losses,
            "ece_per_seed": calibration,
        },
        "methods": {name: _summary(tally) for name, tally in tallies.items()},
    }


def judge(
    probability: FloatArray,
    baseline: FloatArray,
    split: Split,
    *,
    interval: Interval | None = None,
    n_resamples: int = 2000,
) -> dict[str, float]:
    """Judge predictions of a split's scored comparisons.

    Parameters
    ----------
    probability, baseline : ndarray of float, shape (n_scored,)
        P(second beats first) by the method and by the global model.
    split : Split
        What happened; its seed decides the bootstrap.
    interval : Interval, optional
        Probability and kind of the gain's interval; ArviZ's current settings by default.
    n_resamples : int
        Of the bootstrap.

    Returns
    -------
    dict of str to float
        `gain` (percent) with the bounds `low` and `high` of its bootstrap interval,
        `gain_per_query`, `gain_apart` (on the comparisons that share no model with a probe of
        their query; NaN if there are none), `loss` (nats a comparison), `loss_per_query` and `ece`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import fit_method, judge
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=100, rng=0).bundle()
    >>> split = draw_split(bundle)
    >>> baseline = fit_method("global", split, bundle).predict("probe")
    >>> judge(baseline, baseline, split)["gain"]
    0.0
    """
    chosen = interval or choose_interval(None, None)
    found = gain_interval(
        probability,
        baseline,
        split.scored,
        prob=chosen.prob,
        kind=cast("Literal['eti', 'hdi']", chosen.kind),
        n_resamples=n_resamples,
        rng=split.seed,
    )
    return {
        "gain": ranking_quality_gain(probability, baseline, split.scored),
        "low": found.low,
        "high": found.high,
        "gain_per_query": ranking_quality_gain(
            probability, baseline, split.scored, average="query"
        ),
        "gain_apart": _gain_apart(probability, baseline, split),
        "loss": bt_loss(probability, split.scored),
        "loss_per_query": bt_loss(probability, split.scored, average="query"),
        "ece": expected_calibration_error(probability, split.scored),
    }


def _gain_apart(probability: FloatArray, baseline: FloatArray, split: Split) -> float:
    apart = apart_from_probes(split)
    if not apart.any():
        return float("nan")
    return ranking_quality_gain(probability[apart], baseline[apart], split.scored.rows(apart))


def _summary(tally: _Tally) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for signal, figures in tally.values.items():
        bounds = [float(np.mean(figures[name])) for name in ("low", "high")]
        result[signal] = {
            name: {
                "mean": float(np.mean(values)),
                "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                "per_seed": values,
            }
            for name, values in figures.items()
            if name not in ("low", "high")
        }
        result[signal]["gain_interval"] = bounds
    result["seconds"] = float(np.mean(tally.seconds))
    result["n_iter"] = float(np.mean(tally.n_iter)) if tally.n_iter else None
    result["settings"] = tally.settings
    return result


def _counts(split: Split) -> dict[str, Any]:
    return {
        "seed": split.seed,
        "models": split.train.n_models,
        "train_queries": split.train.n_queries,
        "test_queries": split.scored.n_queries,
        "train_comparisons": len(split.train),
        "probes": len(split.probes),
        "scored_comparisons": len(split.scored),
        "dropped": dict(split.train.dropped),
    }


def library_versions() -> dict[str, str]:
    """Give the versions that figures may depend on.

    Examples
    --------
    >>> from bayes_ecc.evaluation import library_versions
    >>> list(library_versions())[:3]
    ['python', 'bayes_ecc', 'numpy']
    """
    return installed_versions("bayes_ecc", "numpy", "scipy", "pandas", "scikit-learn")
