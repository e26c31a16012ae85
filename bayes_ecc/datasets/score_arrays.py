"""Processed score arrays: a matrix of correctness and the names of the LLMs, a scenario each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.datasets.arrays import read_npy, read_npz
from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import shown
from bayes_ecc.datasets.sheets import ScoreSheet, label, model_name, number
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, json_document, quoted, source_files, source_name

type Side = Literal["models", "queries"]

_SCORES = ("correctness", "scores")
_CONVERT = (
    "numpy.savez('scores.npz', **{f'{s}/correctness': numpy.asarray(d['correctness'], float) for "
    "s, d in data.items()}, **{f'{s}/models': numpy.asarray(d['models'], str) for s, d in "
    "data.items()})"
)


def load_score_arrays(
    source: Source, *, models: Sequence[str] | None = None, rows: Side | None = None
) -> Loaded:
    """Read the processed score arrays that routing papers pass around.

    A scenario (a benchmark or a part of one) is a matrix `correctness` (or `scores`), LLMs by
    queries or the other way round, and the names `models`. In the published files it is a pickle of
    `{scenario: {"correctness": ..., "models": [...]}}`, which is never loaded; where it is trusted,
    convert it once to an archive of plain arrays called `<scenario>/correctness` and
    `<scenario>/models`, or to JSON of the same shape::

        numpy.savez(
            "scores.npz",
            **{f"{s}/correctness": numpy.asarray(d["correctness"], float) for s, d in data.items()},
            **{f"{s}/models": numpy.asarray(d["models"], str) for s, d in data.items()},
        )

    Parameters
    ----------
    source : path
        One file: `.npz`, `.json`, or `.npy` of a single matrix.
    models : sequence of str, optional
        The names of the LLMs where the file has none, as `.npy` never does.
    rows : {"models", "queries"}, optional
        What the rows of the matrices are; needed only where there are as many queries as LLMs.

    Returns
    -------
    Loaded
        Queries called `<scenario>/<number>` with the label `scenario`; scores. An LLM that a
        scenario lacks has missing scores there.

    Raises
    ------
    InputError
        If the file is a pickle or can't be read, or names and matrix do not fit each other.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from bayes_ecc.datasets import load_score_arrays
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "scores.npz")
    ...     arrays = {"bbh/correctness": np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])}
    ...     np.savez(path, **arrays, **{"bbh/models": np.array(["gpt", "llama"])})
    ...     load_score_arrays(path).bundle.scores.to_dict("list")
    {'query_id': ['bbh/0', 'bbh/1', 'bbh/2'], 'gpt': [1.0, 0.0, 1.0], 'llama': [0.0, 0.0, 1.0]}
    """
    if rows not in (None, "models", "queries"):
        raise InputError(f"rows={rows!r}: allowed are 'models' and 'queries'.")
    files = source_files(source, (".npz", ".npy", ".json"), _CONVERT)
    if len(files) > 1:
        raise InputError(f"{source_name(source)} holds {quoted(files)}; give one of them.")
    file = files[0]
    sheet = ScoreSheet()
    for scenario, parts in _scenarios(file).items():
        where = f"{file}, {scenario!r}"
        names = _names(parts.get("models", models), where)
        matrix = _matrix(parts, where)
        if _by_query(matrix, names, rows, where):
            matrix = matrix.T
        _take(sheet, scenario, names, matrix, where)
    counts = Counts("queries", len(sheet.queries), len(sheet.queries))
    return sheet.loaded(source_name(source), str(file), counts)


def _scenarios(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Give the parts of each scenario in a file."""
    if file.suffix.lower() == ".npy":
        return {file.name.split(".")[0]: {"scores": read_npy(file)}}
    if file.suffix.lower() == ".npz":
        found: dict[str, dict[str, Any]] = {}
        for name, values in read_npz(file).items():
            scenario, _, part = name.rpartition("/")
            found.setdefault(scenario, {})[part] = values
    else:
        document = json_document(file)
        if not isinstance(document, dict):
            raise InputError(f"{file}: found {shown(document)}; give {{scenario: {{...}}}}.")
        nested = not any(part in document for part in _SCORES)
        found = document if nested else {"": document}
        for scenario, parts in found.items():
            if not isinstance(parts, dict):
                raise InputError(
                    f"{file}, {scenario!r}: found {shown(parts)}; give a matrix called correctness "
                    "and names called models."
                )
    if not found:
        raise InputError(f"{file} holds no scenario.")
    return {scenario or file.name.split(".")[0]: parts for scenario, parts in found.items()}


def _names(names: Any, where: str) -> list[str]:
    """Give the names of the LLMs, without what the leaderboard's hub puts around them."""
    if names is None:
        raise InputError(f"{where} has no names called models; give models=[...].")
    try:
        listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
    except (TypeError, ValueError):
        listed = None
    if isinstance(names, str | dict) or not isinstance(listed, list):
        raise InputError(f"{where}: found {shown(names)} as models; give a list of names.")
    plain = [
        model_name(name, where, "one of models")
        .removeprefix("open-llm-leaderboard/")
        .removesuffix("-details")
        .replace("__", "/")
        for name in listed
    ]
    if len(set(plain)) < len(plain):
        twice = next(name for name in plain if plain.count(name) > 1)
        raise InputError(f"{where}: {twice!r} is named twice in models; name each LLM once.")
    return plain


def _matrix(parts: Mapping[str, Any], where: str) -> NDArray[np.float64]:
    found = next((parts[name] for name in _SCORES if name in parts), None)
    if isinstance(found, dict):  # of IFEval there are two: by instruction and by prompt
        found = found.get("correctness_prompt")
    if found is None:
        raise InputError(f"{where} has no matrix called correctness; it has {quoted(parts)}.")
    if isinstance(found, np.ndarray):
        if found.dtype.kind == "U":
            raise InputError(f"{where}: correctness holds text; write numbers.")
        matrix = found.astype(float)
    else:
        matrix = _from_lists(found, where)
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"{where}: correctness has shape {matrix.shape}; give LLMs by queries.")
    if np.isinf(matrix).any():
        row, column = np.argwhere(np.isinf(matrix))[0]
        raise InputError(f"{where}, row {row}, column {column}: found an infinite score; mend it.")
    return matrix


def _from_lists(lists: Any, where: str) -> NDArray[np.float64]:
    if not isinstance(lists, list):
        raise InputError(f"{where}: found {shown(lists)} as correctness; give a list of lists.")
    made: list[array[float]] = []
    for row, cells in enumerate(lists):
        if not isinstance(cells, list) or len(cells) != len(made[0] if made else cells):
            raise InputError(
                f"{where}, row {row}: found {shown(cells)}; every row is a list of numbers, as "
                "long as the first."
            )
        try:
            made.append(array("d", cells))
        except (TypeError, OverflowError):  # what is no number has its own error, or is missing
            place = f"{where}, row {row}"
            made.append(array("d", [number(c, place, "a score", truth=True) for c in cells]))
    return np.array(made, dtype=float).reshape(len(made), len(made[0]) if made else 0)


def _by_query(
    matrix: NDArray[np.float64], names: Sequence[str], rows: Side | None, where: str
) -> bool:
    """Tell whether the rows are queries."""
    fits = {
        side: matrix.shape[axis] == len(names)
        for side, axis in (("models", 0), ("queries", 1))
        if rows in (None, side)
    }
    if not any(fits.values()):
        raise InputError(
            f"{where}: correctness has shape {matrix.shape} for {len(names)} LLMs"
            f"{'' if rows is None else f' in its {rows}'}; the matrix and models must fit."
        )
    if all(fits.values()) and rows is None:
        raise InputError(
            f"{where} has as many queries as LLMs, {len(names)}; say rows='models' or "
            "rows='queries'."
        )
    return not fits.get("models", False)


def _take(
    sheet: ScoreSheet,
    scenario: str,
    names: Sequence[str],
    matrix: NDArray[np.float64],
    where: str,
) -> None:
    labels = {"scenario": label(scenario, where, "the name of a scenario")}
    for place in range(matrix.shape[1]):
        row = sheet.queries.add(f"{labels['scenario']}/{place}", None, labels)
        for name, value in zip(names, matrix[:, place].tolist(), strict=True):
            sheet.score(row, name, value)
