"""Finished cells on disk: one small file each, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

from bayes_ecc.errors import InputError
from bayes_ecc.evaluation import library_versions
from bayes_ecc.intervals import choose_interval
from bayes_ecc.studies.cells import Cell
from bayes_ecc.studies.data import StudyData
from bayes_ecc.studies.work import Result
from bayes_ecc.versions import installed_versions

_FORMAT = 1
_SAMPLING = ("pymc", "pytensor", "polyagamma")


def cell_identity(data: StudyData, cell: Cell) -> dict[str, Any]:
    """Give everything that the result of a cell may depend on.

    Parameters
    ----------
    data : StudyData
    cell : Cell

    Returns
    -------
    dict
        `fit` and `reading`: the settings that matter to the cell's method; `data`: a fingerprint
        of the tables and embeddings that it reads; `interval`: the kind that ArviZ is set to;
        `versions` of the library and those beneath.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import Cell, StudyData
    >>> from bayes_ecc.studies.store import cell_identity
    >>> data = StudyData.of(simulate(n_queries=50, rng=0).bundle())
    >>> one, two = (cell_identity(data, Cell("global", n_clusters=k)) for k in (2, 3))
    >>> one == two
    True
    """
    versions = library_versions()
    if cell.kind == "bayes":
        versions |= installed_versions(*_SAMPLING)
    return {
        "fit": cell.training(),
        "reading": cell.reading(),
        "data": data.fingerprint(cell),
        "interval": list(choose_interval(None, None)),
        "versions": versions,
    }


def identity_key(identity: dict[str, Any]) -> str:
    """Hash an identity to the name of its file."""
    text = json.dumps([_FORMAT, identity], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """A folder of finished cells.

    A cell's file is named after a hash of all that its result depends on: settings, data, versions.
    Results of other data or of another version are never found by mistake, and processes that write
    into one folder at the same time do no harm.

    Parameters
    ----------
    folder : str or Path
        Made if it is not there.

    Raises
    ------
    InputError
        If it is no folder or cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc.studies.store import Store
    >>> with tempfile.TemporaryDirectory() as place:
    ...     Store(place).read("0" * 32) is None
    True
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(
                f"The results folder {self.folder} cannot be made ({reason}); name another place."
            ) from None

    def path(self, key: str) -> Path:
        """Give the file of a key."""
        return self.folder / f"{key}.json"

    def read(self, key: str) -> Result | None:
        """Give a finished cell's result; None if there is none, or its file is damaged."""
        try:
            found = json.loads(self.path(key).read_text(encoding="utf-8"))
            result = Result(found["figures"], found["facts"])
            return result if identity_key(found["identity"]) == key else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, key: str, identity: dict[str, Any], result: Result) -> None:
        """Keep a result.

        Raises
        ------
        InputError
            If the folder cannot be written to.
        """
        target = self.path(key)
        partial = target.with_name(f".{key}.{uuid.uuid4().hex}.partial")
        content = {"identity": identity, "figures": result.figures, "facts": result.facts}
        try:
            try:
                with partial.open("w", encoding="utf-8") as file:
                    json.dump(content, file)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(f"{target} cannot be written ({reason}).") from None

    def strangers(self, identities: dict[str, dict[str, Any]]) -> list[str]:
        """Say why finished cells with the settings wanted here are not used, if there are any.

        Parameters
        ----------
        identities : mapping of str to dict
            The identities wanted, by key.

        Returns
        -------
        list of str
            "other data", "numpy 2.0.0 instead of 2.1.0"; each once.
        """
        wanted = {_settings_of(identity): identity for identity in identities.values()}
        reasons: dict[str, None] = {}
        for path in sorted(self.folder.glob("*.json")):
            if path.stem in identities:
                continue
            try:
                identity = json.loads(path.read_text(encoding="utf-8"))["identity"]
                ours = wanted.get(_settings_of(identity))
                if ours is None:
                    continue
                if identity["data"] != ours["data"]:
                    reasons["other data"] = None
                if identity["interval"] != ours["interval"]:
                    reasons["another kind of interval"] = None
                for name, version in ours["versions"].items():
                    theirs = identity["versions"].get(name)
                    if theirs != version:
                        reasons[f"{name} {theirs} instead of {version}"] = None
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return list(reasons)


def _settings_of(identity: dict[str, Any]) -> str:
    return json.dumps([identity["fit"], identity["reading"]], sort_keys=True)
