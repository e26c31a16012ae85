"""Downloads from the hub where several of these data sets are published."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, NoReturn

from bayes_ecc.errors import BayesEccError
from bayes_ecc.reading import quoted

type Kind = Literal["dataset", "space"]


def download(
    repository: str,
    patterns: Sequence[str],
    *,
    kind: Kind = "dataset",
    cache: str | os.PathLike[str] | None = None,
    revision: str | None = None,
) -> Path:
    """Download files of a repository, showing progress; what is in the cache is not fetched again.

    Parameters
    ----------
    repository : str
        Owner and name.
    patterns : sequence of str
        Which files.
    kind : {"dataset", "space"}
        Of repository.
    cache : path, optional
        Where to keep them; the hub's own cache by default.
    revision : str, optional
        A branch, tag or commit; the newest by default.

    Returns
    -------
    pathlib.Path
        The folder that holds them.

    Raises
    ------
    BayesEccError
        If the extra `hub` is not installed, the download fails, or there is no such file.
    """
    hub = _hub()
    try:
        folder = Path(
            hub.snapshot_download(
                repo_id=repository,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(patterns),
                cache_dir=None if cache is None else str(cache),
            )
        )
        names = [
            each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()
        ]
    except Exception as error:  # of the network, the hub, or the disk
        _failed(repository, error)
    if not any(fnmatch(name, pattern) for name in names for pattern in patterns):
        raise BayesEccError(
            f"{repository} has no file {quoted(patterns)}; it may have been renamed. Give another "
            "revision, or download it yourself and load it from disk."
        )
    return folder


def list_files(
    repository: str, *, kind: Kind = "dataset", revision: str | None = None
) -> list[str]:
    """List the files of a repository.

    Raises
    ------
    BayesEccError
        If the extra `hub` is not installed or the hub does not answer.
    """
    hub = _hub()
    try:
        return sorted(hub.list_repo_files(repo_id=repository, repo_type=kind, revision=revision))
    except Exception as error:  # as above
        _failed(repository, error)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise BayesEccError(
            "Downloading needs huggingface_hub, which is not installed: "
            "pip install 'bayes-ecc[hub]'. Files that are on disk already need it not."
        ) from error
    return huggingface_hub


def _failed(repository: str, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    raise BayesEccError(
        f"{repository} could not be downloaded ({reason}). Check the connection; if it is gated, "
        "accept its terms on its page and log in with `hf auth login`."
    ) from error
