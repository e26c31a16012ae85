"""From texts to unit embeddings: any function, or a sentence-transformers model with a cache."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm.auto import tqdm

from bayes_ecc.checks import check_count
from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.errors import BayesEccError, DataWarning, InputError

type FloatArray = NDArray[np.floating[Any]]
type Encoder = Callable[[list[str]], ArrayLike]

_FORMAT = 1
_COMMIT = re.compile(r"[0-9a-f]{40}")
_BATCHES_A_CHUNK = 8  # encoded, then stored, before the next: what is stored survives an interrupt
_KEYS_A_QUERY = 500


def encode(texts: Iterable[str], encoder: Encoder) -> FloatArray:
    """Encode texts with any function from a list of texts to an array.

    Equal texts are encoded once, so that they have equal embeddings.

    Parameters
    ----------
    texts : iterable of str
        One a query, such as the column `text` of a bundle's queries.
    encoder : callable
        From a list of texts to an array of shape (n_texts, embedding_dim): a
        `SentenceTransformerEncoder`, the method `encode` of some other model, or your own.

    Returns
    -------
    ndarray of float32, shape (n_texts, embedding_dim)
        Unit rows, in the order of the texts.

    Raises
    ------
    InputError
        If a text is missing, blank or no text, or the encoder gives no finite, non-zero row of
        numbers for each.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import encode
    >>> def count_letters(texts):
    ...     return np.array([[text.count(letter) for letter in "abc"] for text in texts])
    >>> encode(["abba", "cab", "abba"], count_letters).round(2).tolist()
    [[0.71, 0.71, 0.0], [0.58, 0.58, 0.58], [0.71, 0.71, 0.0]]
    """
    if not callable(encoder):
        hint = "; pass its method encode" if callable(getattr(encoder, "encode", None)) else ""
        raise InputError(
            f"encoder must be a function from a list of texts to an array, not "
            f"{type(encoder).__name__}{hint}."
        )
    wanted = _checked_texts(texts)
    distinct = list(dict.fromkeys(wanted))
    place = {text: row for row, text in enumerate(distinct)}
    try:
        values = np.asarray(encoder(list(distinct)))
    except TypeError as error:
        raise InputError(
            f"encoder did not turn a list of texts into an array ({error}); it must give numbers "
            "in main memory, one row a text."
        ) from error
    if values.ndim != 2 or values.dtype.kind not in "fiu" or len(values) != len(distinct):
        raise InputError(
            f"encoder gave {values.dtype} of shape {values.shape} for {len(distinct)} texts; it "
            "must give one row of numbers a text."
        )
    rows = values.astype(np.float32, copy=False)[[place[text] for text in wanted]]
    return unit_embeddings(rows)


def _checked_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise InputError(f"texts must be a list of texts, not {type(texts).__name__}.")
    listed = list(texts)
    for row, text in enumerate(listed):
        if not isinstance(text, str) or not text.strip():
            what = "a blank text" if isinstance(text, str) else f"{text!r}"
            raise InputError(
                f"texts, row {row}: found {what}; an embedding needs a text: leave the query out "
                "or find its text."
            )
    if not listed:
        raise InputError("texts is empty; give at least one text.")
    return listed


class SentenceTransformerEncoder:
    """Encode texts with a sentence-transformers model; needs the extra `text`.

    The model is loaded when it is first needed. Embeddings are kept in a cache on disk, one SQLite
    file a version of a model, as they are made: an interrupted run loses little, and what was
    encoded once is read back exactly. The version is the commit of a published model or the
    content of a local folder; where it cannot be told, nothing is cached.

    Parameters
    ----------
    name_or_path : str or path
        A published model, downloaded when it is first used, or a folder that holds one.
    revision : str, optional
        A branch, tag or commit of a published model; the newest by default. With a full commit
        (or a local folder) texts in the cache are read without loading the model.
    batch_size : int
        Texts encoded at once.
    device : str, optional
        Where to compute ("cpu", "cuda", ...); the library's choice by default.
    cache : path or bool
        Folder of the cache; True is `bayes_ecc` in the user's cache folder, False keeps none.
    progress : bool, optional
        Whether to show a progress bar; by default on terminals only.

    Warns
    -----
    DataWarning
        If texts have more tokens than the model reads: of the rest it knows nothing.

    Raises
    ------
    InputError
        If a setting is out of range, or as `encode`; if a cache file is damaged.
    BayesEccError
        If sentence-transformers is not installed or the model cannot be loaded.

    Examples
    --------
    >>> from bayes_ecc import SentenceTransformerEncoder
    >>> encoder = SentenceTransformerEncoder("BAAI/bge-base-en-v1.5", batch_size=16)
    >>> encoder
    SentenceTransformerEncoder('BAAI/bge-base-en-v1.5')
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = "BAAI/bge-base-en-v1.5",
        *,
        revision: str | None = None,
        batch_size: int = 32,
        device: str | None = None,
        cache: str | os.PathLike[str] | bool = True,
        progress: bool | None = None,
    ) -> None:
        self.name_or_path = name_or_path
        self.revision = revision
        self.batch_size = check_count("batch_size", batch_size)
        self.device = device
        self.cache = cache
        self.progress = progress
        self._loaded: Any = None
        if self._folder is not None and revision is not None:
            raise InputError(
                f"revision={revision!r}: {name_or_path} is a folder, which has none; leave it out."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.name_or_path)!r})"

    def __call__(self, texts: Iterable[str]) -> FloatArray:
        """Encode texts; the same as `encode`."""
        return self.encode(texts)

    def encode(self, texts: Iterable[str]) -> FloatArray:
        """Encode texts.

        Parameters
        ----------
        texts : iterable of str

        Returns
        -------
        ndarray of float32, shape (n_texts, embedding_dim)
            Unit rows, in the order of the texts.
        """
        return encode(texts, self._encode_distinct)

    def _encode_distinct(self, texts: list[str]) -> FloatArray:
        version = self._version()
        if self.cache is False or version is None:
            found = self._compute(texts, None)
        else:
            with _Store.open(self._cache_file(version)) as store:
                found = store.read(texts)
                missing = [text for text in texts if text not in found]
                if missing:
                    found.update(self._compute(missing, store))
        self._warn_of_cuts([found[text] for text in texts])
        return np.array([found[text].vector for text in texts])

    def _compute(self, texts: list[str], store: _Store | None) -> dict[str, _Entry]:
        """Encode texts, the longest first (less padding), and store them chunk by chunk."""
        model = self._model()
        found: dict[str, _Entry] = {}
        ordered = sorted(texts, key=len, reverse=True)
        step = self.batch_size * _BATCHES_A_CHUNK
        hidden = None if self.progress is None else not self.progress
        with tqdm(total=len(texts), desc="encode", unit="text", disable=hidden, leave=False) as bar:
            for start in range(0, len(ordered), step):
                chunk = ordered[start : start + step]
                vectors = model.encode(
                    chunk,
                    batch_size=self.batch_size,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                    normalize_embeddings=True,
                )
                unit = unit_embeddings(np.asarray(vectors, dtype=np.float32), len(chunk))
                tokens, limit = _token_counts(model, chunk)
                entries = {
                    text: _Entry(vector, count, limit)
                    for text, vector, count in zip(chunk, unit, tokens, strict=True)
                }
                if store is not None:
                    store.write(entries)
                found.update(entries)
                bar.update(len(chunk))
        return found

    def _warn_of_cuts(self, entries: Sequence[_Entry]) -> None:
        cut = [entry for entry in entries if entry.limit and entry.tokens > entry.limit]
        if cut:
            warnings.warn(
                f"{len(cut):,} of {len(entries):,} texts have more than the {cut[0].limit} tokens "
                f"that {self.name_or_path} reads (the longest {max(e.tokens for e in cut):,}); "
                "their embeddings know nothing of the rest. Shorten them, or take an encoder that "
                "reads more.",
                DataWarning,
                stacklevel=5,
            )

    # ---------------------------------------------------------------- the model

    @property
    def _folder(self) -> Path | None:
        """The folder of a local model."""
        path = Path(self.name_or_path)
        return path if path.is_dir() else None

    def _model(self) -> Any:
        if self._loaded is None:
            try:
                from sentence_transformers import SentenceTransformer
            except ImportError as error:
                raise BayesEccError(
                    "SentenceTransformerEncoder needs sentence-transformers, which is not "
                    "installed: pip install 'bayes-ecc[text]'. Or give `encode` a function of "
                    "your own."
                ) from error
            try:
                self._loaded = SentenceTransformer(
                    str(self.name_or_path), device=self.device, revision=self.revision
                )
            except Exception as error:  # of the hub, the network, the disk, or the model's files
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                raise BayesEccError(
                    f"The model {str(self.name_or_path)!r} could not be loaded ({reason}). Check "
                    "its name and the connection, or give the folder of a model on disk."
                ) from error
        return self._loaded

    def _version(self) -> str | None:
        """Tell which version of the model this is, if possible without loading it."""
        if self._folder is not None:
            return _content_hash(self._folder)
        if self.revision is not None and _COMMIT.fullmatch(self.revision):
            return self.revision
        self._model()
        return _downloaded_commit(str(self.name_or_path), self.revision)

    def _cache_file(self, version: str) -> Path:
        if isinstance(self.cache, bool):
            base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            folder = Path(base) / "bayes_ecc" / "embeddings"
        else:
            folder = Path(self.cache)
        name = self._folder.resolve().name if self._folder is not None else str(self.name_or_path)
        digest = hashlib.sha256(f"{name}\n{version}".encode()).hexdigest()[:16]
        return folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '--', name)[:80]}-{digest}.sqlite"


def _content_hash(folder: Path) -> str:
    """Hash the names and contents of all files of a folder."""
    total = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()}\n{content}\n".encode())
    return total.hexdigest()


def _downloaded_commit(name: str, revision: str | None) -> str | None:
    """Read the commit of a model that was just loaded off the place where it was put."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    for file in ("modules.json", "config.json"):
        try:
            path = try_to_load_from_cache(name, file, revision=revision)
        except ValueError:  # not the name of a published model
            return None
        parts = Path(path).parts if isinstance(path, str) else ()
        commits = [part for part in parts if _COMMIT.fullmatch(part)]
        if commits:
            return commits[-1]
    return None


def _token_counts(model: Any, texts: list[str]) -> tuple[list[int], int]:
    """Count the tokens of texts; also give how many the model reads, 0 if it doesn't tell."""
    limit = getattr(model, "max_seq_length", None)
    tokenizer = getattr(model, "tokenizer", None)
    if not isinstance(limit, int) or not callable(tokenizer):
        return [0] * len(texts), 0
    tokens = tokenizer(texts, add_special_tokens=True, truncation=False, verbose=False)["input_ids"]
    return [len(each) for each in tokens], limit


# -------------------------------------------------------------------- the cache


class _Entry(NamedTuple):
    """A text's embedding, its number of tokens, and how many of them the model reads."""

    vector: FloatArray
    tokens: int
    limit: int


class _Store:
    """Embeddings of one version of a model on disk."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[_Store]:
        """Open a cache file, making it where it is not there; say what is wrong with it."""
        remedy = "delete it, give another folder with cache=, or cache=False"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"The cache {path} cannot be made ({error}); {remedy}.") from error
        connection = None
        try:
            connection = sqlite3.connect(path, timeout=60)
            version = connection.execute("pragma user_version").fetchone()[0]
            if version not in (0, _FORMAT):
                raise InputError(f"The cache {path} has format {version}, not {_FORMAT}; {remedy}.")
            with connection:
                connection.execute(
                    "create table if not exists texts (key blob primary key, "
                    "vector blob not null, tokens integer not null, reads integer not null)"
                )
                connection.execute(f"pragma user_version = {_FORMAT}")
            yield cls(connection)
        except sqlite3.Error as error:
            raise InputError(f"The cache {path} cannot be used ({error}); {remedy}.") from error
        finally:
            if connection is not None:
                connection.close()

    def read(self, texts: Sequence[str]) -> dict[str, _Entry]:
        """Give what is known of some texts."""
        keys = {_key(text): text for text in texts}
        wanted, found = list(keys), {}
        for start in range(0, len(wanted), _KEYS_A_QUERY):
            part = wanted[start : start + _KEYS_A_QUERY]
            marks = ",".join("?" * len(part))
            rows = self._connection.execute(
                f"select key, vector, tokens, reads from texts where key in ({marks})", part
            )
            for key, vector, tokens, reads in rows:
                found[keys[key]] = _Entry(np.frombuffer(vector, dtype="<f4"), tokens, reads)
        if len({len(entry.vector) for entry in found.values()}) > 1:
            raise sqlite3.DatabaseError("its embeddings differ in length")
        return found

    def write(self, entries: dict[str, _Entry]) -> None:
        """Add embeddings; all of them or none."""
        rows = [
            (_key(text), entry.vector.astype("<f4").tobytes(), entry.tokens, entry.limit)
            for text, entry in entries.items()
        ]
        with self._connection:
            self._connection.executemany("insert or replace into texts values (?, ?, ?, ?)", rows)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
