"""Files as they are published, read piece by piece, so that none can claim more than it holds."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from bayes_ecc.errors import InputError

type Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a folder that is searched with its subfolders, or several of them."""

MAX_INFLATED = 4 * 2**30
"""Bytes that a compressed file may grow to, and ..."""
MAX_RATIO = 200
"""... how many times its size; results of models, repetitive as they are, grow 5 to 60 times."""
_FREE = 64 * 2**20  # bytes that anything may grow to
MAX_VALUE = 16 * 2**20
"""Characters of one JSON value: one record."""
_CHUNK = 2**20
_WITH_AN_END = (str, dict, list, bool, type(None))

PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".dill")
_NEVER = (
    "pickles can run any code and are never loaded. In an environment where you trust the file, "
    "convert it once"
)

# ------------------------------------------------------------------------------ sources


def source_files(source: Source, suffixes: Sequence[str], convert: str = "") -> list[Path]:
    """List the files of a source that end in one of `suffixes`.

    Parameters
    ----------
    source : path or sequence of paths
        Files, or folders to search with their subfolders.
    suffixes : sequence of str
        Endings of the names that are read, in lower case.
    convert : str
        How to convert a pickle of this layout, for the error.

    Returns
    -------
    list of pathlib.Path
        Those of a folder sorted by name.

    Raises
    ------
    InputError
        If a path is not there, a file is a pickle or ends in something else, or a folder holds
        none that could be read.
    """
    files: list[Path] = []
    for path in source_paths(source):
        if path.is_dir():
            try:
                inside = sorted(each for each in path.rglob("*") if each.is_file())
            except OSError as error:
                raise InputError(f"{path} cannot be listed: {error}.") from None
            found = [each for each in inside if each.name.lower().endswith(tuple(suffixes))]
            if not found:
                for each in inside:
                    refuse_pickle(each, convert)
                names = ", ".join(each.name for each in inside[:5]) or "nothing"
                raise InputError(
                    f"{path} holds no file that ends in {' or '.join(suffixes)}; it holds {names}"
                    f"{' ...' * (len(inside) > 5)}."
                )
            files += found
        elif path.is_file():
            refuse_pickle(path, convert)
            if not path.name.lower().endswith(tuple(suffixes)):
                raise InputError(f"{path} must end in {' or '.join(suffixes)}, or be a folder.")
            files.append(path)
        else:
            raise InputError(f"{path} is {'no file' if path.exists() else 'not there'}.")
    return list(dict.fromkeys(files))


def source_paths(source: Source) -> list[Path]:
    """Give the paths of a source."""
    given = [source] if isinstance(source, str | os.PathLike) else source
    try:
        paths = [Path(path) for path in given]
    except TypeError:
        raise InputError(f"source={source!r}: give the path of a file or folder.") from None
    if not paths:
        raise InputError("source is empty; give the path of a file or folder.")
    return paths


def source_name(source: Source) -> str:
    """Name a data set after its source."""
    first = source_paths(source)[0]
    return first.resolve().name if first.is_dir() else first.name.split(".")[0] or first.name


def refuse_pickle(path: Path, convert: str = "") -> None:
    """Refuse a file whose name says that it is a pickle."""
    if path.suffix.lower() in PICKLES:
        raise InputError(f"{path}: {_NEVER}{f': {convert}' if convert else ''}.")


def unreadable(where: object, error: BaseException, need: str) -> NoReturn:
    """Say of a file what its parser said, in one line."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    raise InputError(f"{where} cannot be read ({reason}); it must be {need}.") from error


# ------------------------------------------------------------------------------ zip


def zip_members(path: Path, suffix: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Open the members of a zip archive that end in `suffix`, one after another.

    Raises
    ------
    InputError
        If it is no zip archive, damaged, encrypted, or would grow beyond what is allowed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [
                each
                for each in archive.infolist()
                if each.filename.lower().endswith(suffix)
                and not each.filename.startswith("__MACOSX/")
            ]
            _check_members(path, members, suffix)
            for member in members:
                with archive.open(member) as stream:
                    yield member.filename, stream
    except InputError:
        raise
    except Exception as error:  # damaged archives have a dozen ways to fail
        unreadable(path, error, "a complete zip archive without a password")


def _check_members(path: Path, members: Sequence[zipfile.ZipInfo], suffix: str) -> None:
    """Refuse an archive without what is wanted, or that would grow to more than it may."""
    if not members:
        raise InputError(f"{path} holds no member that ends in {suffix}.")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(
                f"{path}, {member.filename} is compressed in an unusual way; unpack it and give "
                "the folder."
            )
    size = sum(member.file_size for member in members)
    if size > max(_FREE, min(MAX_INFLATED, MAX_RATIO * path.stat().st_size)):
        raise InputError(
            f"{path} would grow to {size:,} bytes; that is no data, or too much to read at once. "
            "If it is genuine, unpack or split it."
        )


# ------------------------------------------------------------------------------ json


def json_values(path: Path) -> Iterator[tuple[int, Any]]:
    """Give the values of a JSON list, or of JSON lines, with their numbers from 0.

    Raises
    ------
    InputError
        At the first value that is no JSON; the values before it have been given by then.
    """
    with reading(path), path.open("rb") as stream:
        yield from stream_values(stream, str(path))


def stream_values(stream: IO[bytes], where: str) -> Iterator[tuple[int, Any]]:
    """Do what `json_values` does on a stream; `where` names it in errors."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="strict")
    try:
        yield from _values(_Scanner(text, where))
    finally:
        with suppress(ValueError):  # the stream is the caller's to close, if it is not yet
            text.detach()


def _values(scanner: _Scanner) -> Iterator[tuple[int, Any]]:
    listed = scanner.peek() == "["
    if listed:
        scanner.skip()
    while True:
        following = scanner.peek()
        if following == ("]" if listed else "") and not (listed and scanner.after_comma):
            break
        yield scanner.row, scanner.value()
        scanner.row += 1
        if listed:
            scanner.separator()
    if listed:
        scanner.skip()
        if scanner.peek():
            scanner.fail("something after the end of the list")


def json_document(path: Path, limit: int = 2**29) -> Any:
    """Read a file that is one JSON value.

    Raises
    ------
    InputError
        If it is no JSON or longer than `limit` bytes.
    """
    with reading(path):
        size = path.stat().st_size
        if size > limit:
            raise InputError(f"{path} has {size:,} bytes; at most {limit:,} are read at once.")
        text = path.read_bytes().decode("utf-8-sig")
        try:
            return json.loads(text, object_pairs_hook=_pairs)
        except (ValueError, RecursionError, MemoryError) as error:
            unreadable(path, error, "valid JSON")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the system says of a file into our own error."""
    try:
        yield
    except UnicodeDecodeError as error:
        unreadable(path, error, "UTF-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object; a name that is there twice would silently lose a value."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise ValueError(f"the name {twice[:80]!r} stands twice in one object")
    return made


class _Scanner:
    """A window that slides over JSON text; it never holds more than one value and a chunk."""

    def __init__(self, text: io.TextIOWrapper, where: str) -> None:
        self.text, self.where = text, where
        self.window, self.place, self.ended = "", 0, False
        self.row, self.after_comma = 0, False
        self.decoder = json.JSONDecoder(object_pairs_hook=_pairs)

    def fail(self, reason: str) -> NoReturn:
        raise InputError(
            f"{self.where}, row {self.row}: found {reason}; it must be JSON: a list of records, or "
            "one record a line."
        )

    def peek(self) -> str:
        """Give the next character that is no space, or nothing at the end."""
        while True:
            while self.place < len(self.window):
                if self.window[self.place] not in " \t\r\n":
                    return self.window[self.place]
                self.place += 1
            if not self._fill(_CHUNK):
                return ""

    def skip(self) -> None:
        self.place += 1

    def separator(self) -> None:
        """Step over the comma between two values, if it is not the end of the list."""
        following = self.peek()
        self.after_comma = following == ","
        if self.after_comma:
            self.skip()
        elif following != "]":
            self.fail("no comma between two values" if following else "no end of the list")

    def value(self) -> Any:
        """Read the next value."""
        while True:
            held = len(self.window) - self.place
            try:
                value, end = self.decoder.raw_decode(self.window, self.place)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self.window) - 16
                if not cut or not self._more(held):
                    self.fail(f"what is no JSON ({error.msg})")
            except (ValueError, RecursionError, MemoryError) as error:
                self.fail(f"what cannot be used ({' '.join(str(error).split())[:200]})")
            else:
                # a number at the edge of the window may go on: 0 may be 0.5
                following = self.window[end : end + 1]
                done = isinstance(value, _WITH_AN_END) or (following and following in " \t\r\n,]")
                if done or not self._more(held):
                    self.place = end
                    return value

    def _more(self, held: int) -> bool:
        if held > MAX_VALUE:
            self.fail(f"a value longer than {MAX_VALUE:,} characters, or without an end")
        return self._fill(max(_CHUNK, held))

    def _fill(self, size: int) -> bool:
        """Read more behind what has not been used; tell whether there was more."""
        if self.ended:
            return False
        try:
            more = self.text.read(size)
        except UnicodeDecodeError as error:
            self.fail(f"bytes that are not UTF-8 ({error.reason})")
        except Exception as error:  # a damaged archive shows itself only here
            unreadable(self.where, error, "complete and undamaged")
        self.ended = not more
        self.window, self.place = self.window[self.place :] + more, 0
        return bool(more)


def quoted(names: Iterable[object], limit: int = 8) -> str:
    """List names for a message, not too many of them."""
    listed = [str(name) for name in names]
    return ", ".join(listed[:limit]) + (" ..." if len(listed) > limit else "") or "none"
