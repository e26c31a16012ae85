"""Methods on one split, judged by the same number: the evaluation protocol.

A `Split` holds training comparisons, test probes and test comparisons to be predicted. A method is
named by a short text ("ecc", "labels:task"), fitted on the training side, and predicts the test
side from the embedding, the probe, or both.
"""

from __future__ import annotations

import platform
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from tqdm.auto import tqdm

from bayes_ecc.baselines import LabelBradleyTerry
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.ecc import ECC
from bayes_ecc.errors import InputError
from bayes_ecc.metrics import (
    bt_loss,
    expected_calibration_error,
    gain_interval,
    ranking_quality_gain,
)

type FloatArray = NDArray[np.floating[Any]]
type Signal = Literal["embedding", "probe", "embedding+probe"]
type Setting = float | Literal["auto"]

SIGNALS: tuple[Signal, ...] = ("embedding", "probe", "embedding+probe")
FROZEN_COLUMNS = ("query_id", "model_a", "model_b", "winner", "split", "probe")


class Split(NamedTuple):
    """One split of a bundle: what is fitted on, what is known of test queries, what is predicted.

    Attributes
    ----------
    seed : int
        The split's number; fits draw from it too.
    train : Comparisons
    probes, scored : Comparisons
        Of the test queries, over the same queries in the same order.
    train_embeddings, test_embeddings : ndarray
        Rows in the order of `train.queries` and `scored.queries`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import draw_split
    >>> split = draw_split(simulate(n_queries=100, rng=0).bundle(), seed=0)
    >>> split.train.n_queries, split.scored.n_queries, len(split.probes)
    (80, 20, 20)
    """

    seed: int
    train: Comparisons
    probes: Comparisons
    scored: Comparisons
    train_embeddings: FloatArray
    test_embeddings: FloatArray


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


class Fitted(NamedTuple):
    """A fitted method: predictions by signal, and what is worth telling of the fit."""

    predict: Callable[[Signal], FloatArray]
    n_iter: int | None = None
    settings: Mapping[str, Any] = {}


# -------------------------------------------------------------------- splits


def draw_split(
    bundle: Bundle,
    *,
    seed: int = 0,
    per_query: int = 7,
    test_size: float = 0.2,
    n_probes: int = 1,
    exclude_models: Sequence[str] = (),
) -> Split:
    """Draw comparisons, split the queries and set the first comparisons apart as probes.

    Parameters
    ----------
    bundle : Bundle
        With scores or comparisons, and embeddings.
    seed : int
        Decides every draw.
    per_query : int
        Comparisons a query, drawn from a score table; a comparison table is taken whole.
    test_size : float
        Share of the queries that is tested on.
    n_probes : int
        Probes a test query.
    exclude_models : sequence of str
        Models to leave out.

    Returns
    -------
    Split

    Raises
    ------
    InputError
        If the bundle cannot be used so.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import draw_split
    >>> len(draw_split(simulate(n_queries=100, rng=0).bundle(), n_probes=2).probes)
    40
    """
    rng = np.random.default_rng(seed)
    comparisons = bundle.draw_comparisons(
        per_query=per_query, exclude_models=exclude_models, rng=rng
    )
    train, test = comparisons.split(test_size, rng=rng)
    probes, scored = test.take_probes(n_probes)
    return _split(bundle, seed, train, probes, scored)


def frozen_split(
    bundle: Bundle, path: str | Path, *, seed: int = 0, exclude_models: Sequence[str] = ()
) -> Split:
    """Read a split that was frozen in a file, so that nobody measures sampling noise.

    Parameters
    ----------
    bundle : Bundle
        For embeddings and model names.
    path : str or Path
        A parquet file with the columns `query_id, model_a, model_b, winner, split, probe`; `split`
        is "train" or "test", `probe` a bool.
    seed : int
        The split's number; fits draw from it.
    exclude_models : sequence of str
        Models to leave out.

    Returns
    -------
    Split

    Raises
    ------
    InputError
        If the file is missing or not such a table, or a query is on both sides.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import frozen_split
    >>> bundle = simulate(n_queries=10, rng=0).bundle()
    >>> table = bundle.comparisons.assign(
    ...     winner=["model_b" if y else "model_a" for y in bundle.comparisons["outcome"]],
    ...     split=["train"] * 56 + ["test"] * 14, probe=[False] * 56 + ([True] + [False] * 6) * 2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table.to_parquet(f"{folder}/seed_0.parquet")
    ...     split = frozen_split(bundle, f"{folder}/seed_0.parquet")
    >>> split.train.n_queries, len(split.probes), len(split.scored)
    (8, 2, 12)
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source} does not exist; --frozen needs one seed_S.parquet a seed.")
    try:
        table = pd.read_parquet(source)
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read as parquet: {error}.") from None
    missing = [name for name in FROZEN_COLUMNS if name not in table.columns]
    if missing:
        raise InputError(
            f"{source} lacks the column(s) {', '.join(missing)}; a frozen split has "
            f"{', '.join(FROZEN_COLUMNS)}."
        )
    side = table["split"].astype(str).to_numpy()
    known = np.isin(side, ("train", "test"))
    if not known.all():
        raise InputError(
            f"{source}, row {int(np.argmin(known))}: split holds {side[np.argmin(known)]!r}; "
            "allowed are train and test."
        )
    if table["probe"].dtype != bool:
        raise InputError(f"{source}: probe holds {table['probe'].dtype}; it must hold bools.")
    models = [name for name in bundle.models if name not in set(exclude_models)]
    excluded = table["model_a"].isin(exclude_models) | table["model_b"].isin(exclude_models)
    table, side = table[~excluded.to_numpy()], side[~excluded.to_numpy()]
    rows = table[["query_id", "model_a", "model_b", "winner"]].reset_index(drop=True)
    everything = Comparisons.from_frame(rows, models=models, ordered=False)
    is_test_row = side == "test"
    is_test = np.zeros(everything.n_queries, dtype=bool)
    is_test[everything.query[is_test_row]] = True
    both = is_test[everything.query] & ~is_test_row
    if both.any():
        name = everything.queries[everything.query[np.argmax(both)]]
        raise InputError(f"{source}: query {name!r} is in train and in test; put it on one side.")
    probe = table["probe"].to_numpy() & is_test_row
    train = everything.take(~is_test)
    probes = everything.rows(probe).take(is_test)
    scored = everything.rows(is_test_row & ~probe).take(is_test)
    if not (len(train) and len(scored)):
        raise InputError(f"{source} leaves nothing to train on or nothing to score.")
    return _split(bundle, seed, train, probes, scored)


def _split(
    bundle: Bundle, seed: int, train: Comparisons, probes: Comparisons, scored: Comparisons
) -> Split:
    if not len(scored):
        raise InputError(
            "No test comparison is left to score once the probes are set apart; take fewer probes "
            "or more comparisons a query."
        )
    return Split(
        seed=seed,
        train=train,
        probes=probes,
        scored=scored,
        train_embeddings=bundle.embeddings_for(train.queries),
        test_embeddings=bundle.embeddings_for(scored.queries),
    )


# -------------------------------------------------------------------- methods


class Task(NamedTuple):
    """What a method gets to fit: a split, the bundle it is of, settings, what follows its colon."""

    split: Split
    bundle: Bundle
    settings: EvaluationSettings
    detail: str


def _fit_global(task: Task) -> Fitted:
    probability = _global_probability(task.split)
    return Fitted(lambda _: probability)


def _fit_labels(task: Task) -> Fitted:
    labels = task.bundle.labels(task.detail)
    model = LabelBradleyTerry().fit(task.split.train, labels)
    probability = model.predict_win_probability(task.split.scored, labels)
    return Fitted(lambda _: probability)


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
    split, settings = task.split, task.settings
    # Every method draws from a stream of its own, whatever else is evaluated beside it.
    rng = np.random.default_rng([split.seed, zlib.crc32(method.encode())])
    estimator = ECC(
        settings.n_clusters,
        embedding_weight=settings.embedding_weight,
        temperature=settings.temperature,
        ridge=settings.ridge,
        rng=rng,
    ).set_params(**changed)
    estimator.fit(split.train, split.train_embeddings)
    return Fitted(
        predict=lambda signal: predict_signal(estimator, split, signal),
        n_iter=estimator.n_iter_,
        settings=estimator.settings_,
    )


type Fit = Callable[[Task], Fitted]

METHODS: Mapping[str, Fit] = {
    "global": _fit_global,
    "labels": _fit_labels,
    "embedding": _fit_embedding,
    "comparisons": _fit_comparisons,
    "ecc": _fit_both,
}
"""What a method's name before the colon means; what follows the colon is passed on."""


def check_method(name: str, bundle: Bundle) -> tuple[str, str]:
    """Split a method's name at its colon and refuse what is not a method.

    Raises
    ------
    InputError
        If there is no such method, or the bundle has no such label.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import check_method
    >>> check_method("labels:topic", simulate(n_queries=20, rng=0).bundle())
    ('labels', 'topic')
    """
    kind, _, detail = name.partition(":")
    fine = kind in METHODS and (
        (kind == "labels" and detail) or not detail or (kind == "ecc" and detail == "auto")
    )
    if not fine or (kind == "labels" and not detail):
        raise InputError(
            f"There is no method {name!r}; there are global, labels:COLUMN, embedding, "
            "comparisons, ecc and ecc:auto."
        )
    if kind == "labels":
        bundle.labels(detail)
    return kind, detail


def predict_signal(estimator: Any, split: Split, signal: Signal) -> FloatArray:
    """Predict a split's scored comparisons from the embedding, the probe, or both.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.evaluation import draw_split, predict_signal
    >>> split = draw_split(simulate(n_queries=100, rng=0).bundle())
    >>> fit = ECC(n_clusters=3, rng=0).fit(split.train, split.train_embeddings)
    >>> predict_signal(fit, split, "probe").shape == (len(split.scored),)
    True
    """
    embeddings = split.test_embeddings if "embedding" in signal else None
    probes = split.probes if "probe" in signal else None
    return estimator.predict_win_probability(split.scored, embeddings=embeddings, probes=probes)


def _global_probability(split: Split) -> FloatArray:
    """Predict by the baseline of every gain, whose ridge of 1 belongs to the protocol."""
    return BradleyTerry(ridge=1.0).fit(split.train).predict_win_probability(split.scored)


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
    progress: bool = False,
) -> dict[str, Any]:
    """Fit methods on splits and judge all of them by the same held-out comparisons.

    Parameters
    ----------
    bundle : Bundle
        The data, for labels.
    splits : iterable of Split
        One a seed, from `draw_split` or `frozen_split`.
    methods : sequence of str
        "global", "labels:COLUMN", "embedding", "comparisons", "ecc" and "ecc:auto".
    settings : EvaluationSettings, optional
        What the methods share.
    protocol : mapping, optional
        How the splits came about, to be told with the results.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    dict
        Ready for JSON. `protocol`: settings, counts, versions. `global`: mean `loss` and `ece` of
        the baseline. `methods`: for each name and signal `gain` (mean, sd, per_seed; percent),
        `gain_interval` (mean over seeds of each split's bootstrap bounds), `gain_per_query`,
        `loss`, `loss_per_query`, `ece`; and `seconds`, `n_iter` and the `settings` used.

    Raises
    ------
    InputError
        If a method is unknown or a split cannot be fitted.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import EvaluationSettings, draw_split, evaluate
    >>> bundle = simulate(n_queries=200, rng=0).bundle()
    >>> settings = EvaluationSettings(n_clusters=4, embedding_weight=1.0)
    >>> result = evaluate(bundle, [draw_split(bundle)], ["labels:capability", "ecc"], settings)
    >>> result["methods"]["labels:capability"]["embedding+probe"]["gain"]["mean"] > 10
    True
    """
    chosen = settings or EvaluationSettings()
    named = {name: check_method(name, bundle) for name in methods}
    tallies = {name: _Tally() for name in named}
    counts, losses, calibration = [], [], []
    with tqdm(desc="evaluate", unit="fit", disable=not progress, leave=False) as bar:
        for split in splits:
            baseline = _global_probability(split)
            losses.append(bt_loss(baseline, split.scored))
            calibration.append(expected_calibration_error(baseline, split.scored))
            counts.append(_counts(split))
            for name, (kind, detail) in named.items():
                bar.set_postfix_str(f"seed {split.seed}, {name}")
                began = time.perf_counter()
                fitted = METHODS[kind](Task(split, bundle, chosen, detail))
                tally = tallies[name]
                for signal in SIGNALS:
                    tally.add(signal, **_figures(fitted.predict(signal), baseline, split))
                tally.seconds.append(time.perf_counter() - began)
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
            "versions": _versions(),
        },
        "global": {
            "loss": float(np.mean(losses)),
            "ece": float(np.mean(calibration)),
            "loss_per_seed": losses,
            "ece_per_seed": calibration,
        },
        "methods": {name: _summary(tally) for name, tally in tallies.items()},
    }


def _figures(probability: FloatArray, baseline: FloatArray, split: Split) -> dict[str, float]:
    interval = gain_interval(probability, baseline, split.scored, rng=split.seed)
    return {
        "gain": ranking_quality_gain(probability, baseline, split.scored),
        "low": interval.low,
        "high": interval.high,
        "gain_per_query": ranking_quality_gain(
            probability, baseline, split.scored, average="query"
        ),
        "loss": bt_loss(probability, split.scored),
        "loss_per_query": bt_loss(probability, split.scored, average="query"),
        "ece": expected_calibration_error(probability, split.scored),
    }


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


def _versions() -> dict[str, str]:
    names = ("bayes_ecc", "numpy", "scipy", "pandas", "scikit-learn")
    return {"python": platform.python_version(), **{n: metadata.version(n) for n in names}}
