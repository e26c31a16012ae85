"""`Study`: a named grid; and the presets, named after what published tables and figures vary."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from bayes_ecc.errors import InputError
from bayes_ecc.studies.data import StudyData

type Blocks = Sequence[Mapping[str, Sequence[Any]]]


@dataclass(frozen=True)
class Study:
    """A named grid of settings.

    Attributes
    ----------
    name : str
    question : str
        What it answers.
    varies : str
        The setting that a figure of it has on its horizontal axis.
    grid : sequence of mappings, or callable
        Blocks of candidate values, as `grid_cells` reads them; or what makes them from the data and
        a label column (None if none was named).

    Examples
    --------
    >>> from bayes_ecc import run_study, simulate
    >>> from bayes_ecc.studies import Study
    >>> mine = Study("mine", "How hard?", "temperature", [{"temperature": [0.1, 0.3]}])
    >>> bundle = simulate(n_queries=100, n_models=5, rng=0).bundle()
    >>> table = run_study(mine, bundle, methods=["ecc"], seeds=1, base={"n_clusters": 3})
    >>> table["temperature"].unique().tolist()
    [0.1, 0.3]
    """

    name: str
    question: str
    varies: str
    grid: Blocks | Callable[[StudyData, str | None], Blocks]

    def blocks(self, data: StudyData, label: str | None) -> Blocks:
        """Give the blocks of the grid for these data."""
        return self.grid(data, label) if callable(self.grid) else self.grid


def _encoders(data: StudyData, _: str | None) -> Blocks:
    if len(data.encoders) < 2:
        raise InputError(
            "The study 'encoders' compares embeddings, and there is only one kind; give further "
            "ones: encoders={name: array}, or --encoder NAME=FILE."
        )
    return [{"encoder": list(data.encoders)}]


def _judges(data: StudyData, _: str | None) -> Blocks:
    if len(data.judges) < 2:
        raise InputError(
            "The study 'judges' needs the verdicts of two judges on the same queries; give further "
            "score tables: judges={name: table}, or --judge NAME=FILE."
        )
    names = list(data.judges)
    return [{"judge": names, "tested_by": names}]


def _out_of_distribution(data: StudyData, label: str | None) -> Blocks:
    if label is None:
        columns = [str(name) for name in data.bundle.queries.columns if name != "query_id"]
        raise InputError(
            "The study 'ood' leaves one label out at a time; name a label column, label=COLUMN or "
            f"--label COLUMN. The queries have {', '.join(columns) or 'none'}."
        )
    values = sorted({str(value) for value in data.bundle.labels(label).dropna()})
    if len(values) < 2:
        raise InputError(f"The column {label!r} has fewer than two labels; name another one.")
    return [
        {"label": [label], "tested": [(value,)], "left_out": [(), (value,)]} for value in values
    ]


_SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_PER_QUERY = (2, 3, 5, 7, 10, 15, 20, 24)
_PROBES = (1, 2, 3, 4, 5, 6)

STUDIES: Mapping[str, Study] = MappingProxyType(
    {
        study.name: study
        for study in (
            Study("main", "How do the methods compare at one setting?", "method", [{}]),
            Study(
                "clusters",
                "How many clusters?",
                "n_clusters",
                [{"n_clusters": (2, 5, 10, 20, 30, 40, 60, 80, 100)}],
            ),
            Study(
                "comparisons",
                "How many comparisons a query? Test queries have as many.",
                "per_query",
                [{"per_query": _PER_QUERY}],
            ),
            Study(
                "comparisons_same_test",
                "How many comparisons a training query? All are judged by the same.",
                "per_query",
                [{"per_query": _PER_QUERY, "test_per_query": (7,)}],
            ),
            Study(
                "embedding_weight",
                "How much should the embedding count (lambda)?",
                "embedding_weight",
                [{"embedding_weight": (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)}],
            ),
            Study(
                "fraction",
                "What share of the queries to train on? The rest are tested on.",
                "train_fraction",
                [{"train_fraction": _SHARES}],
            ),
            Study(
                "fraction_same_test",
                "What share of the queries to train on? All are judged by the same tenth.",
                "train_fraction",
                [{"train_fraction": _SHARES, "test_fraction": (0.1,)}],
            ),
            Study(
                "temperature",
                "How soft should clusters be (T)?",
                "temperature",
                [{"temperature": (0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35)}],
            ),
            Study(
                "ridge",
                "How strongly to pull strengths to zero?",
                "ridge",
                [{"ridge": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)}],
            ),
            Study(
                "probes",
                "How many probes a test query? What is no probe is scored.",
                "n_probes",
                [{"n_probes": _PROBES}],
            ),
            Study(
                "probes_same_test",
                "How many probes a test query? All are judged by the same comparisons.",
                "n_probes",
                [{"n_probes": _PROBES, "reserved": (6,)}],
            ),
            Study(
                "probe_noise",
                "What if probes tell the wrong winner?",
                "probe_noise",
                [{"probe_noise": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)}],
            ),
            Study(
                "probe_choice",
                "How much hangs on which comparison is the probe?",
                "probe_draw",
                [{"probe_draw": tuple(range(1, 21))}],
            ),
            Study(
                "ties",
                "What if some comparisons are ties, kept as half-wins?",
                "tie_share",
                [{"tie_share": (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3), "test_ties": (True, False)}],
            ),
            Study("encoders", "Which embeddings?", "encoder", _encoders),
            Study(
                "ood",
                "What of queries with a label that was not trained on?",
                "left_out",
                _out_of_distribution,
            ),
            Study("judges", "What if another judge decides?", "tested_by", _judges),
        )
    }
)
"""The presets, by name."""


def find_study(name: str) -> Study:
    """Give a preset by its name.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> from bayes_ecc.studies import find_study
    >>> find_study("probe-noise").varies
    'probe_noise'
    """
    plain = name.replace("-", "_")
    if plain not in STUDIES:
        close = difflib.get_close_matches(plain, STUDIES, n=1)
        hint = f"do you mean {close[0]!r}? " if close else ""
        raise InputError(f"There is no study {name!r}; {hint}there are {', '.join(STUDIES)}.")
    return STUDIES[plain]
