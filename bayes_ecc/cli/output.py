"""What commands print and write: tables, paragraphs, warnings in one line, JSON."""

from __future__ import annotations

import json
import math
import mmap
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bayes_ecc.errors import ConvergenceWarning, DataWarning, InputError

_WIDTH = 100  # where there is no terminal, and the widest that still reads well


class Column(NamedTuple):
    """A column of a table: its heading, its cells, and whether it can be spared."""

    heading: str
    cells: Sequence[str]
    spare: bool = False


def terminal_width() -> int:
    """Give the width to print to."""
    return max(20, min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH))


def format_table(columns: Sequence[Column], width: int) -> str:
    """Lay out a table, first column to the left, the others to the right.

    Columns that can be spared go, the last first, until the rest fits into `width`.

    Examples
    --------
    >>> from bayes_ecc.cli.output import Column, format_table
    >>> print(format_table([Column("method", ["ecc"]), Column("gain", ["31.4"])], 80))
    method  gain
    ecc     31.4
    """
    shown = list(columns)

    def widths() -> list[int]:
        return [max(map(len, [column.heading, *column.cells])) for column in shown]

    while sum(widths()) + 2 * (len(shown) - 1) > width:
        spare = [place for place, column in enumerate(shown) if column.spare]
        if not spare:
            break
        del shown[spare[-1]]
    lines = []
    for row in zip(*([column.heading, *column.cells] for column in shown), strict=True):
        cells = [
            cell.rjust(size) if place else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(row, widths(), strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def paragraph(text: str, width: int) -> str:
    """Wrap a text."""
    return textwrap.fill(
        " ".join(text.split()), width, break_long_words=False, break_on_hyphens=False
    )


def definitions(meanings: Mapping[str, str], width: int) -> str:
    """List terms with their meanings, wrapped beside them.

    Examples
    --------
    >>> from bayes_ecc.cli.output import definitions
    >>> print(definitions({"gain": "what is saved", "ECE": "calibration error"}, 80))
      gain  what is saved
      ECE   calibration error
    """
    size = max(map(len, meanings))
    return "\n".join(
        textwrap.fill(
            meaning,
            max(width, size + 24),
            initial_indent=f"  {term.ljust(size)}  ",
            subsequent_indent=" " * (size + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for term, meaning in meanings.items()
    )


# -------------------------------------------------------------------- beside the result


def complain(message: str) -> None:
    """Say something on standard error, in one line."""
    print(f"bayes-ecc: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def short_warnings() -> Iterator[None]:
    """Print each warning once and in one line: of what a fit says, where in the code is no matter.

    Examples
    --------
    >>> import contextlib, sys, warnings
    >>> from bayes_ecc import DataWarning
    >>> from bayes_ecc.cli.output import short_warnings
    >>> with contextlib.redirect_stderr(sys.stdout), short_warnings():
    ...     for _ in range(3):
    ...         warnings.warn("Never compared: ada.", DataWarning)
    bayes-ecc: warning: Never compared: ada.
    """
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in said:
            said.add(text)
            from tqdm import tqdm

            with tqdm.external_write_mode(sys.stderr):  # or it would land inside a progress bar
                complain(f"warning: {text}")

    with warnings.catch_warnings():
        for category in (ConvergenceWarning, DataWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


# -------------------------------------------------------------------- files


type Kind = Literal["fit", "JSON", "HTML"]

_SUFFIX: Mapping[Kind, str] = {"fit": ".nc", "JSON": ".json", "HTML": ".html"}
_FOREIGN = frozenset(
    {".csv", ".tsv", ".xlsx", ".parquet", ".npy", ".npz", ".jsonl", ".ipynb", ".md", ".py"}
)


def check_writable(path: Path, option: str, kind: Kind, inputs: Iterable[Path | None] = ()) -> None:
    """Refuse a file that could not or should not be written, before the work is done.

    Parameters
    ----------
    path : Path
    option : str
        What asks for it, to be named.
    kind : {"fit", "JSON", "HTML"}
        What will be written; only a file of the same kind is replaced.
    inputs : iterable of Path
        What the command reads: files, or folders.

    Raises
    ------
    InputError
        If it is a folder, its folder is not there or not to be written to, it is one of the
        inputs, part of a data set, or a file of another kind.

    Examples
    --------
    >>> from pathlib import Path
    >>> from bayes_ecc import InputError
    >>> from bayes_ecc.cli.output import check_writable
    >>> try:
    ...     check_writable(Path("votes.csv"), "--out", "fit")
    ... except InputError as error:
    ...     print(error)
    --out: votes.csv is no name for a fit; give a name that ends in .nc.
    """
    if path.is_dir():
        raise InputError(f"{option}: {path} is a folder; give a file.")
    if not path.parent.is_dir():
        raise InputError(f"{option}: there is no folder {path.parent}; create it first.")
    if path.exists() and not path.is_file():  # a device or a pipe
        if kind == "JSON":  # written through it; the others are put in its place
            return
        raise InputError(f"{option}: {path} is no regular file; give one to be written.")
    _check_free(path, option, kind, inputs)
    beside = path.with_name(path.name + ".partial")
    try:  # permissions alone do not tell: a file system may be read-only
        beside.touch()
        beside.unlink()
    except OSError:
        raise InputError(f"{option}: {path} cannot be written; choose another place.") from None


def _check_free(path: Path, option: str, kind: Kind, inputs: Iterable[Path | None]) -> None:
    """Refuse to write over what is not a result of the same kind."""
    article = "a fit" if kind == "fit" else kind
    for source in inputs:
        if source is not None and path.exists() and source.exists() and path.samefile(source):
            raise InputError(
                f"{option}: {path} is what this command reads and would be lost; give another file."
            )
    if path.name == "bundle.json" and is_bundle(path.parent):
        raise InputError(f"{option}: {path} belongs to a data set; give another file.")
    others = _FOREIGN | {suffix for other, suffix in _SUFFIX.items() if other != kind}
    if path.suffix.lower() in others:
        what = "exists and is no place" if path.exists() else "is no name"
        raise InputError(
            f"{option}: {path} {what} for {article}; give a name that ends in {_SUFFIX[kind]}."
        )
    if path.is_file() and path.stat().st_size and not _is_of_kind(path, kind):
        raise InputError(
            f"{option}: {path} exists and is not {article}, so it is not replaced; give another "
            "file, or remove it first."
        )


def _is_of_kind(path: Path, kind: Kind) -> bool:
    """Look at a file's content, as far as that is cheap."""
    try:
        with path.open("rb") as file:
            if kind == "fit":
                if file.read(8) != b"\x89HDF\r\n\x1a\n":
                    return False
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                    return content.find(b"bayes_ecc_version") >= 0
            start = file.read(256).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except OSError:
        raise InputError(f"{path} exists and cannot be read; give another file.") from None
    return start.startswith((b"{", b"[") if kind == "JSON" else (b"<!doctype html", b"<html"))


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds a data set.

    Examples
    --------
    >>> from pathlib import Path
    >>> from bayes_ecc.cli.output import is_bundle
    >>> is_bundle(Path("no-such-folder"))
    False
    """
    return any((folder / f"queries{suffix}").exists() for suffix in (".parquet", ".csv"))


def write_json(result: Mapping[str, Any], path: Path) -> None:
    """Write a result as strict JSON, the whole of it or nothing.

    What is not finite becomes null, as JSON has no word for it.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    text = json.dumps(_finite(result), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()  # a link stays one
        partial = target.with_name(target.name + ".partial")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):  # NumPy's numbers are no numbers to JSON
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
