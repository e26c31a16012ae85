"""RouterBench: prompt, evaluation, a score column and a cost column an LLM."""

from __future__ import annotations

import ast
import warnings

from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, read_rows
from bayes_ecc.datasets.sheets import ScoreSheet, identifier, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name

COST = "|total_cost"
RESPONSE = "|model_response"
_NO_MODELS = ("sample_id", "prompt", "eval_name", "oracle_model_to_route_to")
_CONVERT = 'pandas.read_pickle("routerbench_0shot.pkl").to_parquet("routerbench_0shot.parquet")'
_LONGEST = 2**20  # characters of a prompt that is looked into


def load_routerbench(source: Source) -> Loaded:
    r"""Read RouterBench [1]_, once it is no pickle any more.

    A row is a query: `sample_id`, `prompt`, `eval_name`, a column an LLM with its score, and a
    column `<LLM>|total_cost` with its cost (`<LLM>|model_response` is not read). It is published
    as a pickle, which can run any code and is never loaded; where it is trusted, convert it once::

        pandas.read_pickle("routerbench_0shot.pkl").to_parquet("routerbench_0shot.parquet")

    Parameters
    ----------
    source : path or sequence of paths
        The converted file (parquet, CSV, JSON or JSON lines), or a folder of them.

    Returns
    -------
    Loaded
        Queries called by their `sample_id` with the label `eval_name`; scores and costs.

    Raises
    ------
    InputError
        If the source is a pickle or can't be read, a column of scores is missing, a score is no
        number, or a `sample_id` is there twice.

    References
    ----------
    .. [1] Hu et al., "RouterBench: A Benchmark for Multi-LLM Routing System", arXiv:2403.12031.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_routerbench
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "routerbench.csv")
    ...     _ = path.write_text(
    ...         "sample_id,prompt,eval_name,gpt,gpt|total_cost,llama,llama|total_cost\n"
    ...         "mmlu.1,['2 + 2?'],mmlu,1.0,0.002,0.0,0.0001\n"
    ...     )
    ...     bundle = load_routerbench(path).bundle
    >>> bundle, bundle.queries["text"][0]
    (Bundle('routerbench': 1 queries, 2 models, scores, costs), '2 + 2?')
    """
    files = source_files(source, SUFFIXES, _CONVERT)
    rows = read_rows(files, lambda column, _: not column.endswith(RESPONSE))
    rows.need("sample_id", "prompt", layout="RouterBench")
    models = _models(rows)
    sheet = ScoreSheet()
    for row in range(len(rows)):
        where = rows.where(row)
        query = identifier(rows.columns["sample_id"][row], where, "sample_id")
        if query in sheet.queries.rows:
            raise InputError(f"{where}: the sample_id {query!r} is there already; keep one row.")
        labels = {"eval_name": label(rows.cell("eval_name", row), where, "eval_name")}
        place = sheet.queries.add(query, _text(rows.columns["prompt"][row]), labels)
        for model in models:
            sheet.score(place, model, number(rows.columns[model][row], where, model, truth=True))
            cost = number(rows.columns[model + COST][row], where, model + COST)
            if cost < 0:
                raise InputError(f"{where}: found {cost} as {model + COST}; costs are 0 or more.")
            sheet.cost(place, model, cost)
    counts = Counts("rows", len(rows), len(rows))
    return sheet.loaded(source_name(source), rows.source, counts)


def _models(rows: Rows) -> list[str]:
    models = [name.removesuffix(COST) for name in rows.columns if name.endswith(COST)]
    for name in models:
        model_name(name, rows.source, f"the name before {COST}")
    lacking = [name for name in models if name not in rows.columns or name in _NO_MODELS]
    if not models or lacking:
        raise InputError(
            f"{rows.source} lacks {f'scores of {quoted(lacking)}' if models else 'costs'}; every "
            f"LLM has a column of its name and one with {COST} behind it. It has "
            f"{quoted(rows.columns)}."
        )
    return models


def _text(prompt: object) -> str | None:
    """Give the prompt; several turns are published as the text of a Python list."""
    turns = prompt
    if isinstance(prompt, str) and prompt[:2] in ("['", '["') and len(prompt) <= _LONGEST:
        try:
            with warnings.catch_warnings(action="ignore"):  # of backslashes that mean nothing
                turns = ast.literal_eval(prompt)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            turns = prompt
    if isinstance(turns, list | tuple):
        return whole_text("\n\n".join(str(turn) for turn in turns))
    return None if prompt is None else whole_text(str(prompt))
