"""The layouts there are: a loader each, and the options it has on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from bayes_ecc.datasets.alpaca_eval import load_alpaca_eval
from bayes_ecc.datasets.lmarena import load_lmarena
from bayes_ecc.datasets.loaded import Loaded
from bayes_ecc.datasets.long_table import load_long_table
from bayes_ecc.datasets.mmlu_pro import load_mmlu_pro
from bayes_ecc.datasets.mt_bench import load_mt_bench
from bayes_ecc.datasets.open_llm_leaderboard import load_open_llm_leaderboard
from bayes_ecc.datasets.routerbench import load_routerbench
from bayes_ecc.datasets.routerdc import load_routerdc
from bayes_ecc.datasets.score_arrays import load_score_arrays
from bayes_ecc.datasets.score_matrix import load_score_matrix
from bayes_ecc.datasets.sprout import load_sprout


@dataclass(frozen=True)
class Option:
    """A keyword of a loader: how it is given in words, and what it is for.

    Attributes
    ----------
    kind : {"text", "list", "pairs", "prices"}
        One word; several; several NAME=VALUE; a JSON file of prices.
    help : str
        What it is for, in one line.
    choices : tuple of str
        The words allowed; any if there are none.

    Examples
    --------
    >>> from bayes_ecc.datasets.layouts import LAYOUTS
    >>> LAYOUTS["mt_bench"].options["orders"].choices
    ('merge', 'separate')
    """

    kind: Literal["text", "list", "pairs", "prices"]
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A layout in which data are published.

    Attributes
    ----------
    load : callable
        Its loader.
    summary : str
        What it is, in one line.
    options : mapping of str to Option
        The loader's keywords.

    Examples
    --------
    >>> from bayes_ecc.datasets.layouts import LAYOUTS
    >>> LAYOUTS["routerdc"].summary
    'JSON lists of questions with the scores of the LLMs'
    """

    load: Callable[..., Loaded]
    summary: str
    options: Mapping[str, Option] = MappingProxyType({})


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "sprout": Layout(
            load_sprout,
            "a column an LLM that holds records of score and tokens",
            {"prices": Option("prices", 'JSON: {"LLM": [input, output], ...}, a million tokens')},
        ),
        "routerbench": Layout(
            load_routerbench, "a score column and a cost column an LLM (converted from pickle)"
        ),
        "open_llm_leaderboard": Layout(
            load_open_llm_leaderboard,
            "Open LLM Leaderboard v2: folders of samples_leaderboard_<task>_<time>.json",
            {
                "tasks": Option("list", "a task or benchmark to read, such as mmlu_pro"),
                "metric": Option("text", "what to take as the score (default: the leaderboard's)"),
            },
        ),
        "score_arrays": Layout(
            load_score_arrays,
            "processed arrays of correctness with names of LLMs (npz, npy, json)",
            {
                "models": Option("list", "the name of an LLM, in order, where the file has none"),
                "rows": Option("text", "what the rows are, if unclear", ("models", "queries")),
            },
        ),
        "mmlu_pro": Layout(load_mmlu_pro, "MMLU-Pro's result archives, one an LLM"),
        "routerdc": Layout(load_routerdc, "JSON lists of questions with the scores of the LLMs"),
        "score_matrix": Layout(
            load_score_matrix,
            "a plain table: a row a query, a column an LLM",
            {
                "labels": Option("list", "a column that is a label although it holds numbers"),
                "rows": Option("text", "what the rows are, if unclear", ("queries", "models")),
            },
        ),
        "lmarena": Layout(load_lmarena, "LMArena's votes, winners in one column or in three"),
        "mt_bench": Layout(
            load_mt_bench,
            "MT-Bench's judgments, in both orders or as votes",
            {
                "orders": Option("text", "one comparison or two", ("merge", "separate")),
                "questions": Option("text", "question.jsonl, for texts and categories"),
            },
        ),
        "alpaca_eval": Layout(
            load_alpaca_eval,
            "AlpacaEval's annotations, preferences from 1 to 2",
            {"annotator": Option("text", "whose annotations, where there are several")},
        ),
        "long_table": Layout(
            load_long_table,
            "a plain table: a row a comparison",
            {
                "columns": Option("pairs", "the name of a column, such as query_id=question"),
                "winners": Option("pairs", "what a word means, such as draw=tie"),
                "labels": Option("list", "a column that says something of the query"),
            },
        ),
    }
)
"""Every layout by the name of its loader."""
