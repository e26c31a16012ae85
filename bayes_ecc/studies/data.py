"""What a study draws from: a bundle, further judges and encoders, and their fingerprints."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.bundle import Bundle
from bayes_ecc.errors import InputError
from bayes_ecc.studies.cells import BUNDLE, Cell

type FloatArray = NDArray[np.floating[Any]]
type Source = Literal["scores", "comparisons"]


@dataclass(frozen=True, eq=False)
class StudyData:
    """A bundle, and what a study may put in the place of its scores or of its embeddings.

    Attributes
    ----------
    bundle : Bundle
    judges : mapping of str to Bundle
        The same queries with other verdicts; "bundle" is the bundle itself.
    encoders : mapping of str to ndarray
        Other embeddings, a row a query of the bundle; "bundle" are the bundle's own.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import StudyData
    >>> sorted(StudyData.of(simulate(n_queries=50, rng=0).bundle()).judges)
    ['bundle']
    """

    bundle: Bundle
    judges: Mapping[str, Bundle] = field(default_factory=dict)
    encoders: Mapping[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        bundle: Bundle,
        judges: Mapping[str, pd.DataFrame] | None = None,
        encoders: Mapping[str, ArrayLike] | None = None,
        source: Source | None = None,
        exclude_models: Sequence[str] = (),
    ) -> StudyData:
        """Check judges and encoders against the bundle.

        Parameters
        ----------
        bundle : Bundle
        judges : mapping of str to DataFrame, optional
            Score tables of the same queries, as a bundle's `scores`.
        encoders : mapping of str to array-like, optional
            Embeddings, shape (n_queries, embedding_dim), rows as in the bundle's `queries`.
        source : {"scores", "comparisons"}, optional
            Which table of the bundle to use; needed where it has both.
        exclude_models : sequence of str
            Models to leave out of every table.

        Returns
        -------
        StudyData

        Raises
        ------
        InputError
            If the bundle has both scores and comparisons, a name is taken, or a table or an array
            does not fit the bundle.
        """
        bundle = _narrowed(bundle, source, exclude_models)
        judged, embedded = {BUNDLE: bundle}, {}
        if bundle.embeddings is not None:
            embedded[BUNDLE] = bundle.embeddings
        for name, table in (judges or {}).items():
            _check_free(name, judged, "judges")
            try:
                other = replace(bundle, scores=table, comparisons=None, sources={"scores": name})
                present = [model for model in exclude_models if model in other.models]
                judged[name] = _narrowed(other, None, present)
            except InputError as error:
                raise InputError(f"judges[{name!r}]: {error}") from None
        for name, vectors in (encoders or {}).items():
            _check_free(name, embedded, "encoders")
            try:
                checked = replace(
                    bundle, embeddings=np.asarray(vectors), sources={"embeddings": name}
                )
            except InputError as error:
                raise InputError(f"encoders[{name!r}]: {error}") from None
            assert checked.embeddings is not None
            embedded[name] = checked.embeddings
        return cls(bundle, judged, embedded)

    def __sizeof__(self) -> int:
        # What Dask asks to tell an argument worth sending once from one to send with every task.
        return sum(vectors.nbytes for vectors in self.encoders.values()) + sum(
            int(table.memory_usage(index=False).sum())
            for judge in self.judges.values()
            for table in (judge.queries, judge.scores, judge.comparisons)
            if table is not None
        )

    def judge(self, name: str) -> Bundle:
        """Give a judge's bundle, or refuse a name that is none."""
        if name not in self.judges:
            raise InputError(f"There is no judge {name!r}; there are {', '.join(self.judges)}.")
        return self.judges[name]

    def embeddings(self, name: str) -> FloatArray | None:
        """Give an encoder's embeddings; None where the bundle has none of its own."""
        if name in self.encoders:
            return self.encoders[name]
        if name == BUNDLE:
            return None
        known = ", ".join(self.encoders) or "none"
        raise InputError(f"There is no encoder {name!r}; there are {known}.")

    def fingerprint(self, cell: Cell) -> str:
        """Give a text that differs wherever the data that a cell reads differ."""
        parts = [self._digest("queries", lambda: self.bundle.queries[["query_id"]])]
        for name in (cell.judge, cell.tested_by):
            judge = self.judge(name)
            parts.append(f"{judge.ordered}")
            parts.append(self._digest(f"judge {name}", partial(_verdicts, judge)))
        columns = [cell.label] if cell.label is not None else []
        if cell.kind == "labels":
            columns.append(cell.method.partition(":")[2])
        for column in columns:
            labels = self.bundle.labels(column)
            parts.append(self._digest(f"label {column}", labels.to_frame))
        if cell.kind not in ("global", "labels"):
            vectors = self.embeddings(cell.encoder)
            parts.append(self._digest(f"encoder {cell.encoder}", lambda: vectors))
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def _digest(self, name: str, values: Callable[[], Any]) -> str:
        """Hash a part of the data, once."""
        known: dict[str, str] = self.__dict__.setdefault("_digests", {})
        if name not in known:
            found = values()
            if found is None:
                known[name] = "none"
            elif isinstance(found, np.ndarray):
                known[name] = _array_digest(found)
            else:
                known[name] = _table_digest(found)
        return known[name]


def _narrowed(bundle: Bundle, source: Source | None, excluded: Sequence[str]) -> Bundle:
    """Keep one table of verdicts, without the models that are left out."""
    there = [name for name in ("scores", "comparisons") if getattr(bundle, name) is not None]
    if source is None and len(there) == 2:
        raise InputError(
            f"The bundle {bundle.name!r} has both scores and comparisons; say source='scores' or "
            "source='comparisons'."
        )
    if source is not None and source not in there:
        raise InputError(f"source={source!r}: the bundle has {' and '.join(there)}.")
    if isinstance(excluded, str):
        raise InputError(f"exclude_models={excluded!r}: give a list, even of one.")
    unknown = [name for name in excluded if name not in bundle.models]
    if unknown:
        raise InputError(
            f"exclude_models names {unknown[0]!r}, which the bundle {bundle.name!r} does not have; "
            f"its models are {', '.join(bundle.models)}."
        )
    chosen = source or there[0]
    table = getattr(bundle, chosen)
    if chosen == "scores":
        table = table.drop(columns=[name for name in excluded if name in table.columns])
    else:
        table = table[~(table["model_a"].isin(excluded) | table["model_b"].isin(excluded))]
    tables = {"scores": None, "comparisons": None, chosen: table}
    return replace(bundle, **tables, costs=None)  # no study reads costs


def _verdicts(bundle: Bundle) -> pd.DataFrame:
    table = bundle.scores if bundle.scores is not None else bundle.comparisons
    assert table is not None
    return table


def _array_digest(values: NDArray[Any]) -> str:
    stable = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    start = f"{stable.dtype.str}{stable.shape}".encode()
    return hashlib.sha256(start + stable.tobytes()).hexdigest()


def _table_digest(table: pd.DataFrame) -> str:
    found = hashlib.sha256()
    for name in table.columns:
        found.update(json.dumps(str(name)).encode())
        column = table[name]
        if pd.api.types.is_float_dtype(column.dtype):
            found.update(_array_digest(column.to_numpy(dtype=float, na_value=np.nan)).encode())
        else:
            found.update(json.dumps(list(map(str, column.tolist()))).encode())
    return found.hexdigest()


def _check_free(name: Any, taken: Mapping[str, Any], argument: str) -> None:
    if not isinstance(name, str) or not name or name == BUNDLE or name in taken:
        raise InputError(f"{argument} names {name!r}: give another name, {BUNDLE!r} is taken.")
