"""The section on methods: gain and calibration on held-out comparisons, from an evaluation."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.reading import json_document
from bayes_ecc.report.markup import Markup, isolated, join, tag
from bayes_ecc.report.parts import Section, callout, command, paragraph, section
from bayes_ecc.report.tables import Cell, Column, interval, number, strip, table

type Evaluation = Mapping[str, Any]

SIGNALS = ("embedding", "probe", "embedding+probe")
_LARGEST = 2**24  # bytes of a file with an evaluation; a hundred seeds make less
_FIRST = "bayes-ecc evaluate BUNDLE --methods global,ecc:auto,bayes --json result.json"
_MEANINGS = {
    "global": "one ranking for all queries: what every gain is measured against",
    "embedding": "clusters of the embeddings alone",
    "comparisons": "clusters of the comparisons alone",
    "ecc": "EM: both together, at the settings given",
    "ecc:auto": "EM: both together, settings chosen on training queries",
    "bayes": "the posterior",
}


def read_evaluation(source: Evaluation | str | os.PathLike[str]) -> Evaluation:
    """Read what `evaluate` found, from its JSON file or as it gave it.

    Raises
    ------
    InputError
        If it is not that.

    Examples
    --------
    >>> from bayes_ecc import InputError
    >>> from bayes_ecc.report.methods import read_evaluation
    >>> try:
    ...     read_evaluation({"methods": {}})
    ... except InputError as error:
    ...     print(error)
    The evaluation holds no method; give what `bayes-ecc evaluate --json FILE` wrote.
    """
    where = "The evaluation"
    found: Any = source
    if isinstance(source, str | os.PathLike):
        where = str(source)
        if not Path(source).is_file():
            raise InputError(f"{where} is no file; `bayes-ecc evaluate --json FILE` writes one.")
        found = json_document(Path(source), limit=_LARGEST)
    methods = found.get("methods") if isinstance(found, Mapping) else None
    if not isinstance(methods, Mapping) or not methods:
        raise InputError(
            f"{where} holds no method; give what `bayes-ecc evaluate --json FILE` wrote."
        )
    for name, figures in methods.items():
        for path in _needed():
            value: Any = figures
            for step in path:
                value = value.get(step) if isinstance(value, Mapping) else None
            if not _fits(path, value):
                raise InputError(
                    f"{where}, method {name!r}: {'/'.join(path)} is {json.dumps(value)[:80]} where "
                    "a number is needed; give what `bayes-ecc evaluate --json FILE` wrote."
                )
    for place, least in (("protocol", "counts"), ("global", "loss")):
        if not isinstance(found.get(place), Mapping) or least not in found[place]:
            raise InputError(
                f"{where} lacks {place}/{least}; give what `bayes-ecc evaluate --json FILE` wrote."
            )
    return found


def _needed() -> Iterator[tuple[str, ...]]:
    for signal in SIGNALS:
        yield signal, "gain", "mean"
        yield signal, "ece", "mean"
    yield SIGNALS[-1], "gain_interval"


def _fits(path: tuple[str, ...], value: Any) -> bool:
    if path[-1] == "gain_interval":
        return isinstance(value, list | tuple) and len(value) == 2 and all(map(_number, value))
    return _number(value)


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def doubts_of(
    evaluation: Evaluation, comparisons: Comparisons, bundles: Sequence[Bundle]
) -> list[str]:
    """Say what speaks against an evaluation being of the data of a fit.

    Its file holds the name of its data set and how much there was of what, no fingerprint: other
    data of the same name and size are not found out.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.report.methods import doubts_of
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> counts = [{"models": 6, "train_queries": 30, "test_queries": 10}]
    >>> doubts_of({"protocol": {"counts": counts}}, data.comparisons, [])
    ['It is of 6 LLMs, the fit of 5.']
    """
    protocol, doubts = evaluation["protocol"], []
    name, known = protocol.get("bundle"), [bundle.name for bundle in bundles if bundle.name]
    if isinstance(name, str) and name and known and name not in known:
        doubts.append(f"It is of the data set {name!r}, not of {' or '.join(map(repr, known))}.")
    counts = [count for count in protocol["counts"] if isinstance(count, Mapping)]
    models = {count["models"] for count in counts if isinstance(count.get("models"), int)}
    if other := sorted(models - {comparisons.n_models}):
        doubts.append(f"It is of {other[0]:,} LLMs, the fit of {comparisons.n_models:,}.")
    most = max([comparisons.n_queries, *(len(bundle.queries) for bundle in bundles)])
    parts = [(count.get("train_queries"), count.get("test_queries")) for count in counts]
    sizes = [a + b for a, b in parts if isinstance(a, int) and isinstance(b, int)]
    if bundles and sizes and max(sizes) > most:
        doubts.append(f"It is of {max(sizes):,} queries, and there are {most:,}.")
    return doubts


def methods_section(
    evaluation: Evaluation | None, doubts: Sequence[str] = (), first: str = _FIRST
) -> Section:
    """Compare methods, or say how to get there: `first` is the command to begin with."""
    title = "Methods on held-out comparisons"
    if evaluation is None:
        return section(
            "methods",
            title,
            callout(
                "note",
                "Nothing was held out",
                paragraph(
                    "The fit has seen all of its queries, so how well it predicts cannot be told "
                    "from it. Two ways to add the comparison of one global ranking, EM and the "
                    "posterior on queries that were held out:"
                ),
                command(
                    f"{first}\n"
                    "bayes-ecc report FIT --out report.html --bundle BUNDLE "
                    "--evaluation result.json\n\n"
                    "bayes-ecc report FIT --out report.html --bundle BUNDLE --evaluate"
                ),
            ),
        )
    return section(
        "methods",
        title,
        callout(
            "fail",
            "This may be an evaluation of other data",
            paragraph(" ".join([*doubts, "Its figures say nothing of this fit, then."])),
        )
        if doubts
        else None,
        [paragraph(line) for line in _heading(evaluation)],
        _table(evaluation),
        paragraph(
            "Gain is the percentage of the global ranking's loss on held-out comparisons that a "
            "method saves; 0 is no better. It is told by what is read of a new query: its "
            "embedding, its probes (comparisons known beforehand), or both. ECE, the calibration "
            "error, is the mean distance between the predicted and the observed chance of winning; "
            "0 is perfect. Intervals resample test queries."
        ),
    )


def _heading(evaluation: Evaluation) -> list[Markup]:
    protocol, baseline = evaluation["protocol"], evaluation["global"]
    counts = [count for count in protocol["counts"] if isinstance(count, Mapping)]
    lines = []
    if counts:
        seeds = ", ".join(str(count.get("seed", "?")) for count in counts)
        first = counts[0]
        lines.append(
            join(
                "Data set ",
                isolated(protocol.get("bundle", "without a name")),
                f": {_count(first, 'train_queries')} training and {_count(first, 'test_queries')} "
                f"test queries, {_count(first, 'scored_comparisons')} held-out comparisons and "
                f"{_count(first, 'probes')} probes; {'seed' if len(counts) == 1 else 'seeds'} "
                f"{seeds}{'' if len(counts) == 1 else ' (counts are of the first)'}. The methods "
                "were fitted to the training queries for this; the clusters above are those of "
                "the fit to all.",
            )
        )
    if _number(baseline["loss"]) and baseline["loss"] is not None:
        lines.append(join(f"One global ranking: loss {baseline['loss']:.3f} nats a comparison."))
    return lines


def _count(counts: Mapping[str, Any], name: str) -> str:
    value = counts.get(name)
    return f"{value:,}" if isinstance(value, int) else "?"


def _table(evaluation: Evaluation) -> Markup:
    methods = evaluation["methods"]
    both = {name: figures[SIGNALS[-1]] for name, figures in methods.items()}
    bounds = {name: tuple(map(_value, one["gain_interval"])) for name, one in both.items()}
    ends = [bound for pair in bounds.values() for bound in pair if math.isfinite(bound)]
    start, stop = min([0.0, *ends]), max([0.0, *ends])
    several = any(one["gain"].get("sd") is not None for one in both.values())
    columns = [
        Column("method"),
        Column("gain: embedding", True),
        Column("probe", True),
        Column("both", True),
        Column("interval", True, "of the gain with both"),
        Column("", meaning="gain with both and its interval; the line is no gain"),
        *([Column("sd", True, "over seeds, of the gain with both")] if several else []),
        Column("ECE", True, "calibration error with both"),
        Column("seconds", True, "of one fit with its predictions"),
    ]
    rows = []
    for name, figures in methods.items():
        gains = [_value(figures[signal]["gain"]["mean"]) for signal in SIGNALS]
        low, high = bounds[name]
        picture = strip(gains[-1], low, high, start=start, stop=stop, zero=0.0)
        meaning = _meaning(str(name))
        rows.append(
            [
                Cell(
                    join(isolated(name), tag("div", meaning, class_="quiet") if meaning else None),
                    str(name)[:200],
                    "name",
                ),
                *(number(gain, ".1f") for gain in gains),
                interval(low, high, ".1f"),
                Cell(picture, gains[-1]),
                *([number(_value(both[name]["gain"].get("sd")), ".1f")] if several else []),
                number(_value(both[name]["ece"]["mean"]), ".3f"),
                number(_value(figures.get("seconds")), ".1f"),
            ]
        )
    return table(None, columns, rows, name="methods", legend=True)


def _meaning(name: str) -> str | None:
    if name.startswith("labels:"):
        return "one ranking for each label"
    return _MEANINGS.get(name)


def _value(value: Any) -> float:
    """Give a number as a float; what JSON had no word for is not a number."""
    try:
        return float(value) if _number(value) and value is not None else math.nan
    except OverflowError:  # a whole number without end
        return math.nan


def headline(evaluation: Evaluation) -> Markup:
    """Name the best method and its gain."""
    gains = {
        name: _value(figures[SIGNALS[-1]]["gain"]["mean"])
        for name, figures in evaluation["methods"].items()
    }
    finite = {name: gain for name, gain in gains.items() if math.isfinite(gain)}
    if not finite:
        return join("not known")
    best = max(finite, key=finite.__getitem__)
    ece = _value(evaluation["methods"][best][SIGNALS[-1]]["ece"]["mean"])
    remark = join(isolated(best), f", embedding and probe read; ECE {ece:.3f}")
    return join(f"{finite[best]:.1f}%", tag("div", remark, class_="quiet"))
