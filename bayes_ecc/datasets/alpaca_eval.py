"""AlpacaEval: annotations of an LLM's outputs beside those of a reference."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path

from bayes_ecc.datasets.hub import download
from bayes_ecc.datasets.loaded import Loaded
from bayes_ecc.datasets.rows import SUFFIXES, Rows, only, read_rows, shown
from bayes_ecc.datasets.sheets import VoteSheet, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, quoted, source_files, source_name, source_paths

REPOSITORY = "tatsu-lab/alpaca_eval"
PARTS = ("alpaca_eval_gpt4", "claude")

_COLUMNS = ("instruction", "dataset", "generator_1", "generator_2", "preference", "annotator")


def load_alpaca_eval(source: Source, *, annotator: str | None = None) -> Loaded:
    """Read annotations of AlpacaEval [1]_.

    A record is an `instruction` and the outputs of `generator_1` (the reference, as a rule) and
    `generator_2`; its `preference` goes from 1 (the first is better) to 2 (the second is), with
    1.5, or in older files 0, for a draw. The outcome is `preference - 1`, the share of the win that
    goes to `generator_2`. In which order the annotator saw the outputs is not published.

    Parameters
    ----------
    source : path or sequence of paths
        JSON (or parquet, CSV, JSON lines), or a folder: `annotations.json` files in it, if it has
        any, as the published results do.
    annotator : str, optional
        Whose annotations to take, where there are those of several.

    Returns
    -------
    Loaded
        Queries called by a digest of the instruction, so that they are the same whichever files
        are read, with the label `dataset`. Comparisons with `outcome` and `annotator`. Annotations
        without a preference, of another annotator, or of an LLM beside itself are dropped and
        counted.

    Raises
    ------
    InputError
        If a file can't be read, a preference is out of range, or there are several annotators and
        none was named.

    References
    ----------
    .. [1] Dubois et al., "Length-Controlled AlpacaEval", arXiv:2404.04475; a preference of 0 is a
       draw in the project's `metrics/helpers.py`.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_alpaca_eval
    >>> pair = {"generator_1": "gpt", "generator_2": "llama", "annotator": "judge"}
    >>> records = [
    ...     {"instruction": "Add 2 and 2.", "preference": 1.25, **pair},
    ...     {"instruction": "Name a fish.", "preference": None, **pair},
    ... ]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "annotations.json")
    ...     _ = path.write_text(json.dumps(records))
    ...     loaded = load_alpaca_eval(path)
    >>> loaded.bundle.comparisons[["model_a", "model_b", "outcome"]].to_dict("list")
    {'model_a': ['gpt'], 'model_b': ['llama'], 'outcome': [0.25]}
    >>> print(loaded.counts)
    2 annotations read, 1 used, 1 dropped (no preference: 1)
    """
    rows = read_rows(_files(source), only(_COLUMNS))
    rows.need(
        "instruction", "generator_1", "generator_2", "preference", layout="AlpacaEval's annotations"
    )
    _check_annotator(rows, annotator)
    sheet = VoteSheet("annotations")
    sheet.read = len(rows)
    for row in range(len(rows)):
        where = rows.where(row)
        instruction = rows.columns["instruction"][row]
        if not isinstance(instruction, str) or not instruction:
            raise InputError(f"{where}: found {shown(instruction)} as instruction; give text.")
        by = label(rows.cell("annotator", row), where, "annotator")
        first, second = (
            model_name(rows.columns[name][row], where, name)
            for name in ("generator_1", "generator_2")
        )
        outcome = _outcome(rows, row, where)
        if annotator is not None and by != annotator:
            sheet.drop("of another annotator")
        elif first == second:
            sheet.drop("an LLM beside itself")
        elif outcome is None:
            sheet.drop("no preference")
        else:
            text = whole_text(instruction)
            query = hashlib.sha256(text.encode()).hexdigest()[:16]
            about = label(rows.cell("dataset", row), where, "dataset")
            sheet.queries.add(query, text, {"dataset": about})
            sheet.add(query, first, second, outcome=outcome, annotator=by)
    return sheet.loaded(source_name(source), rows.source, ordered=False)


def fetch_alpaca_eval(
    *,
    part: str = "alpaca_eval_gpt4",
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> Path:
    """Download annotations of AlpacaEval from their hub; needs the extra `hub`.

    The hub has those of the first AlpacaEval; newer ones are the `results` of the project's own
    repository, which `load_alpaca_eval` reads once they are on disk.

    Parameters
    ----------
    part : {"alpaca_eval_gpt4", "claude"}
        The annotator.
    cache : path, optional
        Where to keep what was downloaded; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    pathlib.Path
        A file for `load_alpaca_eval`.

    Raises
    ------
    BayesEccError
        If the extra is not installed or the download fails.

    Examples
    --------
    >>> from bayes_ecc.datasets import fetch_alpaca_eval, load_alpaca_eval
    >>> loaded = load_alpaca_eval(fetch_alpaca_eval())  # doctest: +SKIP
    """
    if part not in PARTS:
        raise InputError(f"part={part!r}: allowed are {quoted(PARTS)}.")
    name = f"alpaca_eval_annotations_{part}.json"
    return download(REPOSITORY, [name], cache=cache, revision=revision) / name


def _files(source: Source) -> list[Path]:
    """Of a folder of results, which has outputs too, take the annotations."""
    taken: list[Path] = []
    for path in source_paths(source):
        found = sorted(path.rglob("annotations.json")) if path.is_dir() else []
        taken += found or source_files(path, SUFFIXES)
    return taken


def _check_annotator(rows: Rows, annotator: str | None) -> None:
    found = Counter(value for value in rows.column("annotator") if isinstance(value, str))
    if annotator is None and len(found) > 1:
        raise InputError(
            f"{rows.source} has annotations by {quoted(found)}, who judge differently; say which, "
            f"such as annotator={next(iter(found))!r}."
        )
    if annotator is not None and annotator not in found:
        raise InputError(
            f"annotator={annotator!r}: {rows.source} has annotations by {quoted(found)}."
        )


def _outcome(rows: Rows, row: int, where: str) -> float | None:
    value = rows.columns["preference"][row]
    preference = number(value, where, "preference")
    if preference != preference:
        return None
    if preference == 0:
        return 0.5
    if not 1 <= preference <= 2:
        raise InputError(
            f"{where}: found {shown(value)} as preference; it goes from 1 (the first is better) to "
            "2 (the second is), 0 for a draw, or nothing."
        )
    return preference - 1
