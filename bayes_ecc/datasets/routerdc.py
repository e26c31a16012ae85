"""RouterDC: a JSON list of questions, each with the scores of the LLMs."""

from __future__ import annotations

from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.rows import only, read_rows, shown
from bayes_ecc.datasets.sheets import ScoreSheet, label, model_name, number, whole_text
from bayes_ecc.errors import InputError
from bayes_ecc.reading import Source, source_files, source_name

_COLUMNS = ("question", "scores", "cluster_id")


def load_routerdc(source: Source) -> Loaded:
    """Read RouterDC [1]_: files of records `{"question": ..., "scores": {LLM: score, ...}}`.

    Parameters
    ----------
    source : path or sequence of paths
        JSON files such as `train.json` and `test.json`, or a folder of them.

    Returns
    -------
    Loaded
        Queries called by file and row (`train-00000`), with the labels `split` (the file's name)
        and `cluster_id` where it is given; scores. An LLM that a record does not name was not run.

    Raises
    ------
    InputError
        If a file can't be read, or a record lacks its question or its scores.

    References
    ----------
    .. [1] Chen et al., "RouterDC: Query-Based Router by Dual Contrastive Learning for Assembling
       Large Language Models", arXiv:2409.19886.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_routerdc
    >>> records = [{"question": "2 + 2?", "scores": {"gpt": 1.0, "llama": 0.5}, "cluster_id": 0}]
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "train.json")
    ...     _ = path.write_text(json.dumps(records))
    ...     load_routerdc(path).bundle.queries.to_dict("list")
    {'query_id': ['train-00000'], 'text': ['2 + 2?'], 'split': ['train'], 'cluster_id': [0]}
    """
    files = source_files(source, (".json", ".jsonl"))
    sheet = ScoreSheet()
    read = 0
    stems: dict[str, str] = {}
    for file in files:
        split = file.name.split(".")[0]
        if stems.setdefault(split, str(file)) != str(file):
            raise InputError(
                f"{file} and {stems[split]} are both called {split}, by which queries are named; "
                "rename one of them."
            )
        rows = read_rows([file], only(_COLUMNS))
        rows.need("question", "scores", layout="RouterDC")
        read += len(rows)
        for row in range(len(rows)):
            where = rows.where(row)
            text, scores = rows.columns["question"][row], rows.columns["scores"][row]
            if not isinstance(text, str):
                raise InputError(f"{where}: found {shown(text)} as question; give text.")
            if not isinstance(scores, dict) or not scores:
                raise InputError(
                    f"{where}: found {shown(scores)} as scores; give one for each LLM."
                )
            cluster = label(rows.cell("cluster_id", row), where, "cluster_id")
            place = sheet.queries.add(
                f"{split}-{row:05d}", whole_text(text), {"split": split, "cluster_id": cluster}
            )
            for name, score in scores.items():
                model = model_name(name, where, "a name in scores")
                sheet.score(place, model, number(score, where, f"score of {model!r}", truth=True))
    source_text = str(files[0]) + (" and others" if len(files) > 1 else "")
    return sheet.loaded(source_name(source), source_text, Counts("records", read, read))
