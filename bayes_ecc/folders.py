"""Bundles on disk: a folder of tables that anyone can write, read and checked."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from bayes_ecc.bundle import EMBEDDINGS, TABLES, Bundle
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.reading import json_document, quoted
from bayes_ecc.tables import read_array, read_table, refuse_nested

type TableFormat = Literal["parquet", "csv"]

FORMATS: tuple[TableFormat, ...] = ("parquet", "csv")
FACTS = "bundle.json"
"""The file of what no table can say; it is only written where there is something to say."""
_MAX_FACTS = 2**16


def load_bundle(folder: str | os.PathLike[str]) -> Bundle:
    """Read a bundle from its folder.

    The folder holds `queries.parquet` or `queries.csv`, likewise `scores` or `comparisons` (or
    both), and optionally `embeddings.npy` and `costs`. CSV files are UTF-8, separated by commas; a
    blank cell is a missing value, and everything but scores, outcomes, weights and costs stays the
    text it is ("007" is not 7). Where the order of a pair means nothing, `bundle.json` says so:
    ``{"ordered": false}``. Pickles are never loaded.

    Parameters
    ----------
    folder : str or path
        The folder.

    Returns
    -------
    Bundle
        Named after the folder; its `sources` name the files.

    Raises
    ------
    InputError
        If a file is missing, there twice, or cannot be read, or its content is not allowed; rows
        are counted from 0, without the header.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import load_bundle, save_bundle, simulate
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = save_bundle(simulate(n_queries=20, rng=0).bundle(), f"{place}/votes")
    ...     load_bundle(folder)
    Bundle('votes': 20 queries, 8 models, 140 comparisons, embeddings of 32 dimensions)
    """
    path = _folder(folder)
    if not path.is_dir():
        raise InputError(f"{path} is {'not a folder' if path.exists() else 'not there'}.")
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise InputError(f"{path} cannot be listed: {error}.") from None
    tables, sources = {}, {}
    for table in TABLES:
        files = [path / f"{table}.{kind}" for kind in FORMATS if f"{table}.{kind}" in names]
        if len(files) > 1:
            raise InputError(
                f"{path} holds both {files[0].name} and {files[1].name}; keep the one that counts."
            )
        if files:
            tables[table], sources[table] = read_table(files[0]), str(files[0])
    there = f"the folder holds {', '.join(names[:10]) or 'nothing'}{' ...' * (len(names) > 10)}"
    if "queries" not in tables:
        raise InputError(f"{path} lacks queries.parquet or queries.csv; {there}.")
    if not {"scores", "comparisons"} & set(tables):
        raise InputError(
            f"{path} lacks scores.parquet or scores.csv, or comparisons.parquet or "
            f"comparisons.csv; {there}."
        )
    embeddings = None
    if EMBEDDINGS in names:
        sources["embeddings"] = str(path / EMBEDDINGS)
        embeddings = read_array(path / EMBEDDINGS)
    facts = _facts(path / FACTS) if FACTS in names else {}
    read = {Path(source).name for source in sources.values()}
    unread = [n for n in names if n not in read and n.split(".")[0] in (*TABLES, "embeddings")]
    if unread:
        warnings.warn(
            f"{path} holds {', '.join(unread)}, which is not read: tables are .parquet or .csv "
            f"files, embeddings {EMBEDDINGS}; convert it, or rename it if it is not meant.",
            DataWarning,
            stacklevel=2,
        )
    name = path.resolve().name
    return Bundle(name, **tables, embeddings=embeddings, sources=sources, **facts)


def _facts(path: Path) -> dict[str, bool]:
    """Read what no table can say; nothing that is not understood is passed over."""
    found = json_document(path, limit=_MAX_FACTS)
    if not isinstance(found, dict):
        raise InputError(f'{path} must be an object such as {{"ordered": false}}.')
    unknown = [name for name in found if name != "ordered"]
    if unknown:
        raise InputError(
            f"{path} says {quoted(unknown)}; only 'ordered' is known. Remove what is not meant, or "
            "upgrade bayes_ecc if a newer version wrote it."
        )
    if not isinstance(found.get("ordered", True), bool):
        raise InputError(f"{path}: ordered must be true or false, not {found['ordered']!r:.80}.")
    return found


def save_bundle(
    bundle: Bundle,
    folder: str | os.PathLike[str],
    format: TableFormat = "parquet",  # noqa: A002 - the word pandas users know
) -> Path:
    """Write a bundle to a folder, from which `load_bundle` reads it.

    CSV keeps less than parquet does: identifiers and labels come back as text, an empty text as a
    missing value.

    Parameters
    ----------
    bundle : Bundle
        What to write.
    folder : str or path
        Made where it is not there; it must not hold a bundle already.
    format : {"parquet", "csv"}
        How to write the tables; embeddings are always `embeddings.npy`.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    InputError
        If the format is unknown, the folder holds a bundle's files, or something cannot be written
        (a column of lists as CSV, say); nothing is left behind then.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import save_bundle, simulate
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = save_bundle(simulate(n_queries=20, rng=0).bundle(), place, format="csv")
    ...     sorted(path.name for path in folder.iterdir())
    ['comparisons.csv', 'embeddings.npy', 'queries.csv']
    """
    if format not in FORMATS:
        raise InputError(f"format={format!r}: allowed are {', '.join(FORMATS)}.")
    path = _folder(folder)
    files = [EMBEDDINGS, FACTS, *(f"{table}.{kind}" for table in TABLES for kind in FORMATS)]
    present = [name for name in files if (path / name).exists()]
    if present:
        raise InputError(
            f"{path} holds {', '.join(present)} already; give another folder, or remove them."
        )
    written: list[Path] = []
    try:
        path.mkdir(parents=True, exist_ok=True)
        for table in TABLES:
            frame = getattr(bundle, table)
            if frame is None:
                continue
            written.append(path / f"{table}.{format}")
            if format == "csv":
                refuse_nested(frame, written[-1])
                frame.to_csv(written[-1], index=False, encoding="utf-8")
            else:
                frame.to_parquet(written[-1], index=False)
        if bundle.embeddings is not None:
            written.append(path / EMBEDDINGS)
            np.save(written[-1], bundle.embeddings, allow_pickle=False)
        if not bundle.ordered:
            written.append(path / FACTS)
            written[-1].write_text(json.dumps({"ordered": False}) + "\n", encoding="utf-8")
    # InputError is a ValueError: of whatever kind, a failure leaves no half of a bundle behind
    except (ValueError, TypeError, NotImplementedError, OSError, pa.ArrowException) as error:
        for file in written:
            file.unlink(missing_ok=True)
        if isinstance(error, InputError):
            raise
        where = written[-1] if written else path
        raise InputError(f"{where} cannot be written: {error}.") from error
    return path


def _folder(folder: Any) -> Path:
    try:
        return Path(folder)
    except TypeError:
        raise InputError(f"folder={folder!r}: give the path of a bundle's folder.") from None
