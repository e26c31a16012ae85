"""`bayes-ecc demo`: simulated comparisons whose truth is known, and how much of it is found."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bayes_ecc.cli.options import add_seed
from bayes_ecc.cli.output import Column, definitions, format_table, paragraph, terminal_width

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bayes_ecc.datasets.simulate import Simulation
    from bayes_ecc.evaluation import Fitted
    from bayes_ecc.splits import Split

METHODS = {
    "global": "one ranking for all queries",
    "labels:topic": "one ranking for each topic",
    "embedding": "clusters of the embeddings alone",
    "comparisons": "clusters of the comparisons alone",
    "ecc": "clusters of both together: Evidence-Calibrated Clustering",
}

# Chosen for this kind of data; the defaults of ECC are those it was published with.
SETTINGS: Mapping[str, Any] = {"embedding_weight": 2.0, "temperature": 0.15, "ridge": 0.3}
N_QUERIES = 1500


class Recovery(NamedTuple):
    """How much of the truth a grouping of the training queries and its strengths hold."""

    with_abilities: float | None  # adjusted Rand index against the capability clusters ...
    with_topics: float | None  # ... and against the topics
    strength_error: float  # root mean square, in logits, of matched clusters


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "demo",
        help="simulate comparisons, recover their structure, show the gains (some seconds)",
        description="Simulate comparisons whose truth is known; show how much of it each method "
        "finds, and how well each predicts new queries.",
        allow_abbrev=False,
    )
    add_seed(parser, "of the simulation, the split and the fits (default 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate, fit, print."""
    from bayes_ecc.datasets.simulate import simulate
    from bayes_ecc.evaluation import EvaluationSettings, fit_method
    from bayes_ecc.splits import draw_split

    truth = simulate(n_queries=N_QUERIES, rng=args.seed)
    bundle = truth.bundle()
    split = draw_split(bundle, seed=args.seed)
    settings = EvaluationSettings(n_clusters=len(truth.strengths), **SETTINGS)
    fits = {name: fit_method(name, split, bundle, settings) for name in METHODS}
    width = terminal_width()
    print(_story(truth, split, width))
    print(_recovery_table(truth, split, fits, width))
    print(_gain_table(truth, split, fits, width))
    return 0


def _story(truth: Simulation, split: Split, width: int) -> str:
    sizes = truth.parameters
    text = (
        f"{sizes['n_queries']:,} simulated queries, {sizes['per_query']} comparisons each between "
        f"{sizes['n_models']} models. How strong a model is depends on which of "
        f"{sizes['n_clusters']} abilities a query asks for; the query's embedding shows mostly its "
        f"topic (one of {sizes['n_topics']}), which has little to do with it. "
        f"Methods learn from {split.train.n_queries:,} queries and predict "
        f"{split.scored.n_queries:,} new ones:"
    )
    return f"{paragraph(text, width)}\n{definitions(METHODS, width)}\n"


# -------------------------------------------------------------------- recovery


def recovery(truth: Simulation, split: Split, method: str, fitted: Fitted) -> Recovery:
    """Hold a fit against the truth of its training queries."""
    import numpy as np
    from sklearn.metrics import adjusted_rand_score

    position = truth.comparisons.queries.get_indexer(split.train.queries)
    abilities, topics = truth.labels[position], truth.topics[position]
    estimator = fitted.estimator
    columns = split.train.models.get_indexer(truth.comparisons.models)
    strengths = np.atleast_2d(np.asarray(estimator.strengths_))[:, columns]
    if method == "global":
        return Recovery(None, None, _error(np.repeat(strengths, len(truth.strengths), 0), truth))
    if method == "labels:topic":
        names = list(estimator.strengths_.index)
        found = np.array([names.index(f"topic_{topic}") for topic in topics])
    else:
        found = estimator.responsibilities_.values.argmax(axis=1)
    return Recovery(
        float(adjusted_rand_score(abilities, found)),
        float(adjusted_rand_score(topics, found)),
        _error(strengths[match_clusters(abilities, found, truth, len(strengths))], truth),
    )


def match_clusters(
    abilities: NDArray[np.intp], found: NDArray[np.intp], truth: Simulation, n_found: int
) -> NDArray[np.intp]:
    """Give each true cluster the found one it shares most queries with, none given twice."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((len(truth.strengths), n_found))
    np.add.at(shared, (abilities, found), 1)
    return linear_sum_assignment(shared, maximize=True)[1]


def _error(strengths: NDArray[np.floating[Any]], truth: Simulation) -> float:
    import numpy as np

    centred = strengths - strengths.mean(axis=1, keepdims=True)
    return float(np.sqrt(((centred - truth.strengths) ** 2).mean()))


def _recovery_table(truth: Simulation, split: Split, fits: Mapping[str, Fitted], width: int) -> str:
    found = {name: recovery(truth, split, name, fitted) for name, fitted in fits.items()}

    def agreement(values: list[float | None]) -> list[str]:
        return ["-" if value is None else f"{value:.2f}" for value in values]

    columns = [
        Column("method", list(found)),
        Column("abilities", agreement([row.with_abilities for row in found.values()])),
        Column("topics", agreement([row.with_topics for row in found.values()])),
        Column("strength error", [f"{row.strength_error:.2f}" for row in found.values()]),
    ]
    scale = float((truth.strengths**2).mean() ** 0.5)
    meanings = {
        "abilities": "agreement of the groups with the true abilities (adjusted Rand index: 1 is "
        "the same grouping, 0 no better than chance)",
        "topics": "the same with the topics",
        "strength error": "how far off the matched groups' strengths are, in logits, root mean "
        f"square; {scale:.2f} if all models were taken for equal",
    }
    return "\n".join(
        [
            "WHAT IS FOUND OF THE TRUTH",
            format_table(columns, width),
            definitions(meanings, width),
            "",
        ]
    )


# -------------------------------------------------------------------- gains


def _gain_table(truth: Simulation, split: Split, fits: Mapping[str, Fitted], width: int) -> str:
    from bayes_ecc.calibration import expected_calibration_error
    from bayes_ecc.metrics import gain_interval, ranking_quality_gain
    from bayes_ecc.splits import SIGNALS

    predicted = {
        name: {signal: fitted.predict(signal) for signal in SIGNALS}
        for name, fitted in fits.items()
    }
    baseline = predicted["global"]["probe"]
    predicted["truth"] = dict.fromkeys(SIGNALS, true_probability(truth, split))
    intervals = [
        gain_interval(by_signal["embedding+probe"], baseline, split.scored, rng=split.seed)
        for by_signal in predicted.values()
    ]
    headings = dict(zip(SIGNALS, ("embedding", "probe", "both"), strict=True))
    columns = [Column("method", list(predicted))]
    for signal, heading in headings.items():
        gains = [
            ranking_quality_gain(by_signal[signal], baseline, split.scored)
            for by_signal in predicted.values()
        ]
        columns.append(Column(heading, [f"{gain:.1f}" for gain in gains]))
    calibration = [
        expected_calibration_error(by_signal["embedding+probe"], split.scored)
        for by_signal in predicted.values()
    ]
    columns += [
        Column(
            f"{100 * intervals[0].prob:.0f}% interval",
            [f"{interval.low:.1f} to {interval.high:.1f}" for interval in intervals],
            spare=True,
        ),
        Column("ECE", [f"{value:.3f}" for value in calibration], spare=True),
    ]
    used = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in SETTINGS.items())
    votes = 1 / SETTINGS["temperature"]
    note = (
        f"A probe is one outcome, and a noisy one here; ECC gives it {votes:.1f} votes (1 / "
        "temperature), so beside the embedding it can also cost something. ECC ran with "
        f"{used}; on data of your own, `ecc:auto` of `bayes-ecc evaluate` chooses them."
    )
    meanings = {
        "embedding": "gain, if of a new query only its embedding is read: the percentage of the "
        "global ranking's loss on held-out comparisons that the method saves (0 is no better)",
        "probe": "the same, if one comparison of the query is known and nothing else",
        "both": "the same, if both are read; with its interval, by resampling the new queries",
        "ECE": "calibration error with both: mean distance between the predicted and the observed "
        "chance of winning, 0 is perfect",
        "truth": "the chances that the comparisons were drawn from: the ceiling",
    }
    return "\n".join(
        [
            "WHAT IT IS WORTH ON NEW QUERIES",
            format_table(columns, width),
            definitions(meanings, width),
            "",
            paragraph(note, width),
        ]
    )


def true_probability(truth: Simulation, split: Split) -> NDArray[np.floating[Any]]:
    """Give the chance that `second` wins each held-out comparison, as it was simulated."""
    import numpy as np
    from scipy.special import expit

    scored = split.scored.with_models(truth.comparisons.models)
    label = truth.labels[truth.comparisons.queries.get_indexer(scored.queries)][scored.query]
    row = np.arange(len(scored))
    theta = truth.strengths[label]
    return expit(theta[row, scored.second] - theta[row, scored.first])
