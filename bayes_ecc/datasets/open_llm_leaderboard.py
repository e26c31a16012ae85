"""Open LLM Leaderboard v2: a folder an LLM, in it a file of samples a task."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayes_ecc.datasets.hub import download, list_files
from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import shown
from bayes_ecc.datasets.sheets import ScoreSheet, identifier, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, json_values, quoted, source_files, source_name

METRICS: Mapping[str, str] = {
    "ifeval": "prompt_level_strict_acc",
    "mmlu_pro": "acc",
    "math": "exact_match",
}
"""The leaderboard's own metric of a benchmark; of all others it is `acc_norm`."""

_BENCHMARKS = ("arc_challenge", "bbh", "gpqa", "ifeval", "math", "mmlu_pro", "musr")
_NAME = re.compile(
    r"^samples_(?:leaderboard_)?(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT[\d.:-]+?)\.jsonl?$"
)
_TEXTS = ("question", "Question", "problem", "prompt", "input")
_OWNER = "open-llm-leaderboard"


class _Run(NamedTuple):
    model: str
    task: str
    time: str
    file: str


def load_open_llm_leaderboard(
    source: Source, *, tasks: Iterable[str] | None = None, metric: str | None = None
) -> Loaded:
    """Read the details of LLMs from the Open LLM Leaderboard v2 [1]_.

    Each LLM's folder, `<owner>__<name>`, holds `samples_leaderboard_<task>_<time>.json` files (or
    `.jsonl`), one record a line with `doc_id`, `doc`, `doc_hash` and the task's metrics. Of several
    runs of a task the newest counts. Queries are told apart by task and `doc_id`; whether two LLMs
    were asked the same under one `doc_id` is checked by the text.

    Parameters
    ----------
    source : path or sequence of paths
        Folders of LLMs, or a folder that holds them.
    tasks : iterable of str, optional
        Tasks or benchmarks to read, such as `mmlu_pro` or `bbh`; all by default.
    metric : str, optional
        What to take as the score; by default `prompt_level_strict_acc` of ifeval, `acc` of
        mmlu_pro, `exact_match` of math and `acc_norm` of the rest.

    Returns
    -------
    Loaded
        Queries called `<task>/<doc_id>` with the labels `task` and `benchmark`; scores. A task that
        an LLM lacks is missing scores.

    Raises
    ------
    InputError
        If a file can't be read, a record lacks its id or its metric, an LLM has two different
        scores on a document, or one LLM's documents are others than those of the rest.

    References
    ----------
    .. [1] Fourrier et al., "Open LLM Leaderboard v2", 2024.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_open_llm_leaderboard
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for model, score in {"a__gpt": 1.0, "b__llama": 0.0}.items():
    ...         name = "samples_leaderboard_mmlu_pro_2024-06-16T16-57-41.377142.json"
    ...         record = {"doc_id": 0, "doc": {"question": "2 + 2?"}, "acc": score}
    ...         Path(place, model).mkdir()
    ...         _ = Path(place, model, name).write_text(json.dumps(record))
    ...     bundle = load_open_llm_leaderboard(place).bundle
    >>> bundle.scores.to_dict("list")
    {'query_id': ['mmlu_pro/0'], 'a/gpt': [1.0], 'b/llama': [0.0]}
    """
    wanted = _wanted(tasks)
    files = source_files(source, (".json", ".jsonl"))
    runs = [run for run in map(_run, map(str, files)) if run is not None]
    if not runs:
        raise InputError(
            f"{source_name(source)} holds no samples_leaderboard_<task>_<time>.json; its files are "
            f"{quoted(file.name for file in files)}."
        )
    chosen = _newest(run for run in runs if wanted(run.task))
    if not chosen:
        raise InputError(f"tasks names none of {quoted(sorted({run.task for run in runs}))}.")
    earlier = sum(wanted(run.task) for run in runs) - len(chosen)
    sheet = ScoreSheet()
    notes = Counter({"files of earlier runs, not read": earlier})
    dropped: Counter[str] = Counter()
    read = used = 0
    for run in chosen:
        sheet.model(model_name(run.model, run.file, "the name of its folder"))
        taken = _take(sheet, run, metric or _metric(run.task), notes)
        read, used = read + taken[0], used + taken[1]
    dropped["repeated"] = read - used
    counts = Counts("records", read, used, dropped, notes)
    text = chosen[0].file + (" and others" if len(chosen) > 1 else "")
    return sheet.loaded(source_name(source), text, counts)


def fetch_open_llm_leaderboard(
    models: Sequence[str],
    *,
    tasks: Iterable[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> list[Path]:
    """Download the details of LLMs from their hub; needs the extra `hub`.

    The repositories are gated: accept their terms and log in first. A full set of tasks is some
    hundred megabytes an LLM.

    Parameters
    ----------
    models : sequence of str
        Such as `meta-llama/Meta-Llama-3-8B`.
    tasks : iterable of str, optional
        Tasks or benchmarks; all by default. Only the newest run of each is fetched.
    cache : path, optional
        Where to keep what was downloaded; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    list of pathlib.Path
        A folder an LLM, for `load_open_llm_leaderboard`.

    Raises
    ------
    BayesEccError
        If the extra is not installed, a download fails, or an LLM has none of the tasks.

    Examples
    --------
    >>> from bayes_ecc.datasets import fetch_open_llm_leaderboard, load_open_llm_leaderboard
    >>> folders = fetch_open_llm_leaderboard(
    ...     ["meta-llama/Meta-Llama-3-8B", "Qwen/Qwen1.5-7B"], tasks=["mmlu_pro"]
    ... )  # doctest: +SKIP
    >>> loaded = load_open_llm_leaderboard(folders)  # doctest: +SKIP
    """
    if isinstance(models, str):
        raise InputError(f"models={models!r}: give a list, even of one.")
    wanted = _wanted(tasks)
    folders = []
    for model in models:
        repository = f"{_OWNER}/{str(model).replace('/', '__')}-details"
        runs = [run for run in map(_run, list_files(repository, revision=revision)) if run]
        chosen = _newest(run for run in runs if wanted(run.task))
        if not chosen:
            raise InputError(
                f"{repository} has none of these tasks; it has "
                f"{quoted(sorted({run.task for run in runs}))}."
            )
        names = [run.file for run in chosen]
        folders.append(download(repository, names, cache=cache, revision=revision))
    return folders


def _run(file: str) -> _Run | None:
    """Read LLM, task and time off the path of a file; None if it is none of samples."""
    path = Path(file)
    match = _NAME.match(path.name)
    if match is None:
        return None
    folder = path.parent.name or path.resolve().parent.name
    model = folder.removesuffix("-details").replace("__", "/", 1)
    return _Run(model, match["task"], match["time"], file)


def _newest(runs: Iterable[_Run]) -> list[_Run]:
    newest: dict[tuple[str, str], _Run] = {}
    for run in runs:
        key = (run.model, run.task)
        if key not in newest or newest[key].time < run.time:
            newest[key] = run
    return list(newest.values())


def _wanted(tasks: Iterable[str] | None) -> Any:
    if tasks is None:
        return lambda _: True
    if isinstance(tasks, str):
        raise InputError(f"tasks={tasks!r}: give a list, even of one.")
    names = {str(task).removeprefix("leaderboard_") for task in tasks}
    return lambda task: task in names or _benchmark(task) in names


def _benchmark(task: str) -> str:
    return next((name for name in _BENCHMARKS if task.startswith(name)), task)


def _metric(task: str) -> str:
    return METRICS.get(_benchmark(task), "acc_norm")


def _take(sheet: ScoreSheet, run: _Run, metric: str, notes: Counter[str]) -> tuple[int, int]:
    """Take the scores of one file; give how many records were read and used."""
    read = used = shared = differing = 0
    labels = {"task": run.task, "benchmark": _benchmark(run.task)}
    for row, record in json_values(Path(run.file)):
        where = f"{run.file}, row {row}"
        if not isinstance(record, dict):
            raise InputError(f"{where}: found {shown(record)}; every row is a record.")
        read += 1
        query = f"{run.task}/{identifier(record.get('doc_id'), where, 'doc_id')}"
        if metric not in record:
            raise InputError(f"{where}: there is no {metric!r}; it has {quoted(record, 30)}.")
        score = number(record[metric], where, metric, truth=True)
        text = _text(record)
        shared += query in sheet.queries.rows
        differing += not sheet.queries.same_text(query, text)
        known = sheet.score(sheet.queries.add(query, text, labels), run.model, score)
        if known is None:
            used += 1
        elif known != score:
            raise InputError(
                f"{where}: {run.model!r} has {metric} {score:g} on {query!r}, but {known:g} "
                "further up; keep one of the two records."
            )
    if 2 * differing > shared:
        raise InputError(
            f"{run.file}: of {shared} documents that other LLMs have too, {differing} read "
            "otherwise here; its doc_id means other documents. Leave it out."
        )
    notes["worded otherwise for an earlier LLM"] += differing
    return read, used


def _text(record: Mapping[str, Any]) -> str | None:
    """Give what the LLM was asked, whichever name the task has for it."""
    doc = record.get("doc")
    if not isinstance(doc, dict):
        return None
    found = next((doc[name] for name in _TEXTS if isinstance(doc.get(name), str)), None)
    if found is not None and isinstance(doc.get("narrative"), str):
        found = f"{doc['narrative']}\n\n{found}"
    return None if found is None else whole_text(found)
