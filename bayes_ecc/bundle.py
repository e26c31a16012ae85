"""`Bundle`: one data set's queries, scores or comparisons, embeddings and costs."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.random import RandomState
from bayes_ecc.tables import (
    ID,
    check_ids,
    check_unique,
    checked_embeddings,
    checked_table,
    make_numeric,
    match_id_types,
    refuse,
)

TABLES = ("queries", "scores", "comparisons", "costs")
"""The tables of a bundle, each in a file `<table>.parquet` or `<table>.csv`."""

EMBEDDINGS = "embeddings.npy"


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """One data set: its queries and what is known of models on them; checked when it is made.

    Tables have a column `query_id` (all strings or all whole numbers; where one table holds whole
    numbers and another strings, the numbers are taken as text, so 7 matches "7" and not "007").
    They are copied; embeddings are not, unless their type has to change.

    Attributes
    ----------
    name : str
        What the data set is called.
    queries : pandas.DataFrame
        One row a query: `query_id`, optionally `text`, and any label columns.
    scores : pandas.DataFrame or None
        `query_id` and one column an LLM; higher is better, missing means not run. Queries may be
        without a row.
    comparisons : pandas.DataFrame or None
        As `Comparisons.from_frame` reads it. A bundle has scores, comparisons or both.
    embeddings : ndarray of float, shape (n_queries, embedding_dim), or None
        Row i belongs to row i of `queries`; read-only, float32 unless given as float64.
    costs : pandas.DataFrame or None
        `query_id` and one column an LLM: what running it on the query costs, in any unit.
    sources : mapping of str to str
        The file each table was read from; messages name it.
    ordered : bool
        Whether model_a of a comparison being shown first means something; False where the order of
        a pair is the file's, or the verdicts on both orders are merged. It says nothing of scores.

    Raises
    ------
    InputError
        If a table lacks a column, holds a value that is not allowed, repeats a query or names an
        unknown one, or if the embeddings do not fit the queries, are not finite or hold zero rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_ecc import Bundle
    >>> bundle = Bundle(
    ...     "tiny",
    ...     queries=pd.DataFrame({"query_id": ["q1", "q2"], "task": ["maths", "law"]}),
    ...     scores=pd.DataFrame({"query_id": ["q1", "q2"], "gpt": [1, 0], "llama": [0, None]}),
    ... )
    >>> bundle
    Bundle('tiny': 2 queries, 2 models, scores)
    >>> bundle.labels("task").tolist()
    ['maths', 'law']
    """

    name: str
    queries: pd.DataFrame
    scores: pd.DataFrame | None = None
    comparisons: pd.DataFrame | None = None
    embeddings: NDArray[Any] | None = None
    costs: pd.DataFrame | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))
        if not isinstance(self.ordered, bool):
            raise InputError(
                f"ordered={self.ordered!r}: give True if model_a was shown first, False if the "
                "order of a pair means nothing."
            )
        if self.scores is None and self.comparisons is None:
            raise InputError(f"The bundle {self.name!r} needs scores or comparisons; it has none.")
        tables = {
            name: checked_table(getattr(self, name), self._source(name))
            for name in TABLES
            if name == "queries" or getattr(self, name) is not None
        }
        remark = match_id_types(tables)
        for name, table in tables.items():
            source = self._source(name)
            if name == "comparisons":
                numeric = [column for column in ("outcome", "weight") if column in table.columns]
                make_numeric(table, numeric, source)
            else:
                check_unique(table, source)
            if name in ("scores", "costs"):
                columns = list(table.columns.drop(ID))
                make_numeric(table, columns, source, negative=name == "scores")
            object.__setattr__(self, name, table)
        ids = self.query_ids
        for name, table in tables.items():
            check_ids(table, self._source(name), ids, self._source("queries"), remark)
        self._check_models()
        if self.embeddings is not None:
            checked = checked_embeddings(self.embeddings, len(ids), self._source("embeddings"))
            object.__setattr__(self, "embeddings", checked)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        values["sources"] = dict(self.sources)  # a mapping proxy can't be pickled
        return type(self), tuple(values.values())

    def _source(self, name: str) -> str:
        return self.sources.get(name, name)

    def _check_models(self) -> None:
        if self.scores is not None and self.scores.shape[1] < 3:
            raise InputError(
                f"{self._source('scores')} has {self.scores.shape[1] - 1} model(s) in the columns "
                f"besides {ID}; a comparison needs at least two."
            )
        if self.comparisons is not None:
            try:
                Comparisons.from_frame(self.comparisons)
            except InputError as error:
                raise InputError(f"{self._source('comparisons')}: {error}") from None
        if self.costs is not None:
            unknown = self.costs.columns.drop(ID).difference(self.models)
            if len(unknown):
                warnings.warn(
                    f"{self._source('costs')} has costs of {', '.join(unknown)}, which no score or "
                    "comparison names; they are kept but nothing can use them.",
                    DataWarning,
                    stacklevel=4,
                )

    def __repr__(self) -> str:
        parts = [f"{len(self.queries)} queries", f"{len(self.models)} models"]
        if self.scores is not None:
            parts.append("scores")
        if self.comparisons is not None:
            kind = "" if self.ordered else "unordered "
            parts.append(f"{len(self.comparisons)} {kind}comparisons")
        if self.embeddings is not None:
            parts.append(f"embeddings of {self.embeddings.shape[1]} dimensions")
        if self.costs is not None:
            parts.append("costs")
        return f"Bundle({self.name!r}: {', '.join(parts)})"

    @property
    def query_ids(self) -> pd.Index:
        """The identifiers of the queries, in the order of `queries`."""
        return pd.Index(self.queries[ID]).rename(None)

    @property
    def models(self) -> pd.Index:
        """The models: columns of the score table, then any others that were compared, sorted."""
        scored = [] if self.scores is None else list(self.scores.columns.drop(ID))
        compared: set[str] = set()
        if self.comparisons is not None:
            compared = set(self.comparisons["model_a"]) | set(self.comparisons["model_b"])
        return pd.Index(scored + sorted(compared - set(scored)))

    def labels(self, column: str) -> pd.Series:
        """Give one label a query.

        Parameters
        ----------
        column : str
            A column of `queries`.

        Returns
        -------
        pandas.Series
            Indexed by query identifier; missing where the table has no label.

        Raises
        ------
        InputError
            If there is no such column.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> simulate(n_queries=3, n_topics=1, rng=0).bundle().labels("topic").tolist()
        ['topic_0', 'topic_0', 'topic_0']
        """
        columns = [str(name) for name in self.queries.columns.drop(ID)]
        if column not in columns:
            raise InputError(
                f"{self._source('queries')} has no label column {column!r}; it has "
                f"{', '.join(columns) or f'none besides {ID}'}."
            )
        return pd.Series(self.queries[column].array, index=self.query_ids, name=column)

    def embeddings_for(self, queries: Iterable[Hashable]) -> NDArray[Any]:
        """Give the embeddings of some queries.

        Parameters
        ----------
        queries : pandas.Index or iterable
            Query identifiers, such as `Comparisons.queries`.

        Returns
        -------
        ndarray of float, shape (len(queries), embedding_dim)
            In the order of `queries`. Asked for all queries in their own order it is the bundle's
            read-only array itself.

        Raises
        ------
        InputError
            If the bundle has no embeddings or a query is unknown.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> simulate(n_queries=20, rng=0).bundle().embeddings_for(["q0003", "q0001"]).shape
        (2, 32)
        """
        if self.embeddings is None:
            raise InputError(
                f"The bundle {self.name!r} has no embeddings; encode the texts of its queries and "
                f"put the array beside them as {EMBEDDINGS}, or give it to Bundle."
            )
        wanted = queries if isinstance(queries, pd.Index) else pd.Index(list(queries))
        ids = self.query_ids
        rows = ids.get_indexer(wanted)
        refuse(rows < 0, "queries", wanted, f"the bundle {self.name!r} has no such query")
        return self.embeddings if wanted.equals(ids) else self.embeddings[rows]

    def draw_comparisons(
        self,
        per_query: int | None = 7,
        ties: Literal["drop", "keep"] = "drop",
        min_per_query: int = 2,
        exclude_models: Sequence[str] = (),
        rng: RandomState = None,
        *,
        source: Literal["scores", "comparisons"] | None = None,
    ) -> Comparisons:
        """Draw comparisons from the scores, or take the comparison table as it is.

        Parameters
        ----------
        per_query, ties, rng
            How to draw from a score table, as in `Comparisons.from_scores`. A comparison table
            holds what happened: all of it is taken, ties included, and these say nothing.
        min_per_query : int
            Queries with fewer pairs to draw from, or fewer comparisons, are left out.
        exclude_models : sequence of str
            Models to leave out first, with every comparison they take part in.
        source : {"scores", "comparisons"}, optional
            Which table to use; needed where the bundle has both.

        Returns
        -------
        Comparisons
            Of the queries kept, in the bundle's order. Its `dropped` counts what was left out:
            `queries` with too few comparisons, and from a score table as `from_scores` counts,
            from a comparison table `comparisons_of_dropped_queries` and `of_dropped_models`.

        Raises
        ------
        InputError
            If a model is unknown, a setting is out of range, the source is not clear, or no query
            is left.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> simulate(n_queries=20, per_query=7, rng=0).bundle().draw_comparisons()
        Comparisons(140 comparisons, 20 queries, 8 models, ordered, 0 ties)
        """
        there = [name for name in ("scores", "comparisons") if getattr(self, name) is not None]
        if source is None and len(there) == 2:
            raise InputError(
                f"The bundle {self.name!r} has both scores and comparisons; say source='scores' "
                "or source='comparisons', or leave one of them out."
            )
        if source is not None and source not in there:
            raise InputError(f"source={source!r}: the bundle has {' and '.join(there)}.")
        if isinstance(exclude_models, str) or not isinstance(exclude_models, Iterable):
            raise InputError(f"exclude_models={exclude_models!r}: give a list, even of one.")
        excluded, models = list(exclude_models), self.models
        for name in excluded:
            if not isinstance(name, str) or name not in models:
                raise InputError(
                    f"exclude_models names {name!r}, which the bundle {self.name!r} does not have; "
                    f"its models are {', '.join(models)}."
                )
        if (source or there[0]) == "comparisons":
            return self._table_comparisons(min_per_query, excluded)
        assert self.scores is not None
        scores = self.scores.set_index(ID).reindex(self.query_ids)
        scores = scores.drop(columns=[name for name in excluded if name in scores.columns])
        try:
            return Comparisons.from_scores(
                scores, per_query=per_query, ties=ties, min_per_query=min_per_query, rng=rng
            )
        except InputError as error:
            raise InputError(f"{self._source('scores')}: {error}") from None

    def _table_comparisons(self, min_per_query: int, excluded: list[str]) -> Comparisons:
        check_count("min_per_query", min_per_query)
        assert self.comparisons is not None
        # with both tables, a model that only has scores is none of the comparison table's
        data = Comparisons.from_frame(
            self.comparisons, queries=self.query_ids, ordered=self.ordered
        )
        if excluded:
            data = data.drop_models([name for name in excluded if name in data.models])
        count = np.bincount(data.query, minlength=data.n_queries)
        enough = count >= min_per_query
        if not enough.any():
            raise InputError(
                f"{self._source('comparisons')}: no query has {min_per_query} or more comparisons; "
                "lower min_per_query or exclude fewer models."
            )
        counted = {
            **data.dropped,
            "queries": int((~enough).sum()),
            "comparisons_of_dropped_queries": int(count[~enough].sum()),
        }
        return replace(data.take(enough), dropped=counted)
