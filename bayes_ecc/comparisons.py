"""`Comparisons`: pairwise outcomes between language models, checked once and integer-coded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.coding import (
    check_names,
    draw_pairs,
    encode_column,
    lock,
    read_codes,
    read_identifiers,
    read_list,
    read_numbers,
    read_outcomes,
    read_scores,
    refuse_rows,
)
from bayes_ecc.counts import OutcomeCounts, Rows, count_margins, count_wins
from bayes_ecc.errors import InputError
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.ties import TIES, Ties

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]


_SCORE_CELLS = 4_000_000  # pairs of models x queries held at once while drawing from a score table


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Pairwise comparisons of models on queries, as integer codes; never changed once made.

    Build one with `from_frame`, `from_arrays` or `from_scores`. Rows keep the order in which they
    were given. Queries may be without comparisons (a test query whose only comparison became its
    probe, say).

    Attributes
    ----------
    query, first, second : ndarray of int, shape (n_comparisons,)
        Codes into `queries` and `models`.
    outcome : ndarray of float, shape (n_comparisons,)
        1.0 where `second` won, 0.0 where `first` won, 0.5 for a tie; values between are soft.
    weight : ndarray of float, shape (n_comparisons,)
        How many comparisons a row counts for; positive.
    queries, models : pandas.Index
        Identifiers, unique; the codes point into them.
    ordered : bool
        Whether being presented first means something (an arena's votes) or the order of a pair is
        arbitrary (pairs made from a score table).
    dropped : mapping of str to int
        What the constructor left out, counted by reason.

    Raises
    ------
    InputError
        If lengths differ, codes point nowhere, a model meets itself, an outcome lies outside
        [0, 1], a weight is not positive, identifiers repeat, or there are fewer than two models.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_ecc import Comparisons
    >>> votes = pd.DataFrame({
    ...     "query_id": ["q1", "q1", "q2"],
    ...     "model_a": ["gpt", "gpt", "llama"],
    ...     "model_b": ["llama", "qwen", "qwen"],
    ...     "winner": ["model_a", "tie", "model_b"],
    ... })
    >>> data = Comparisons.from_frame(votes)
    >>> data
    Comparisons(3 comparisons, 2 queries, 3 models, ordered, 1 tie)
    >>> data.outcome.tolist()
    [0.0, 0.5, 1.0]
    """

    query: IntArray
    first: IntArray
    second: IntArray
    outcome: FloatArray
    weight: FloatArray
    queries: pd.Index
    models: pd.Index
    ordered: bool = True
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", read_identifiers(self.queries, "queries"))
        object.__setattr__(self, "models", read_identifiers(self.models, "models"))
        n_queries, n_models = len(self.queries), len(self.models)
        if n_models < 2:
            raise InputError(
                f"models holds {n_models} name(s); a comparison needs at least two models."
            )
        lengths = {}
        for name, limit, what in (
            ("query", n_queries, "queries"),
            ("first", n_models, "models"),
            ("second", n_models, "models"),
        ):
            codes = read_codes(getattr(self, name), name, limit, what)
            object.__setattr__(self, name, lock(codes))
            lengths[name] = len(codes)
        for name in ("outcome", "weight"):
            values = read_numbers(getattr(self, name), name)
            object.__setattr__(self, name, lock(values))
            lengths[name] = len(values)
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {size}" for name, size in lengths.items())
            raise InputError(f"The columns differ in length ({shown}); give one value per row.")
        refuse_rows(
            self.first == self.second,
            "first and second",
            lambda row: f"{self.models[self.first[row]]!r} against itself",
            "a comparison needs two different models; drop such rows",
        )
        refuse_rows(
            ~((self.outcome >= 0) & (self.outcome <= 1)),
            "outcome",
            lambda row: repr(float(self.outcome[row])),
            "allowed are numbers from 0 (first won) to 1 (second won), 0.5 for a tie",
        )
        refuse_rows(
            ~((self.weight > 0) & np.isfinite(self.weight)),
            "weight",
            lambda row: repr(float(self.weight[row])),
            "weights are positive and finite; drop rows that should not count",
        )
        object.__setattr__(self, "ordered", bool(self.ordered))
        object.__setattr__(self, "dropped", MappingProxyType(dict(self.dropped)))

    def __reduce__(self) -> tuple[Any, ...]:
        # a mapping proxy can't be pickled, and what comes back must be locked again
        values = [getattr(self, column.name) for column in fields(self)]
        return type(self), (*values[:-1], dict(self.dropped))

    # ---------------------------------------------------------------- constructors

    @classmethod
    def from_arrays(
        cls,
        query: ArrayLike,
        first: ArrayLike,
        second: ArrayLike,
        outcome: ArrayLike,
        *,
        weight: ArrayLike | None = None,
        queries: Iterable[Hashable],
        models: Iterable[str],
        ordered: bool = True,
    ) -> Comparisons:
        """Make comparisons from integer codes into `queries` and `models`.

        Parameters
        ----------
        query, first, second : array-like of int, shape (n_comparisons,)
            Codes into `queries` and `models`.
        outcome : array-like of float, shape (n_comparisons,)
            1.0 where `second` won, 0.0 where `first` won, 0.5 for a tie.
        weight : array-like of float, shape (n_comparisons,), optional
            How many comparisons a row counts for; 1 by default.
        queries, models : iterable
            Unique identifiers; model names are strings.
        ordered : bool
            Whether the order of a pair means something.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            As the class says.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> Comparisons.from_arrays(
        ...     [0, 1], [0, 1], [1, 0], [1.0, 1.0], queries=["q1", "q2"], models=["a", "b"]
        ... )
        Comparisons(2 comparisons, 2 queries, 2 models, ordered, 0 ties)
        """
        if weight is None:
            weight = np.ones(len(read_numbers(outcome, "outcome")))
        return cls(
            query=cast("IntArray", query),
            first=cast("IntArray", first),
            second=cast("IntArray", second),
            outcome=cast("FloatArray", outcome),
            weight=cast("FloatArray", weight),
            queries=cast("pd.Index", queries),
            models=cast("pd.Index", models),
            ordered=ordered,
        )

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        queries: Iterable[Hashable] | None = None,
        models: Iterable[str] | None = None,
        ordered: bool = True,
    ) -> Comparisons:
        """Make comparisons from a long table, one row a comparison.

        Parameters
        ----------
        frame : pandas.DataFrame
            Columns `query_id`, `model_a`, `model_b`, and either `winner` ("model_a", "model_b" or
            "tie") or `outcome` (0 to 1, the share of the win that goes to model_b); optionally
            `weight`. Other columns are ignored. It is not changed.
        queries, models : iterable, optional
            Fixed identifiers and their order; by default queries in order of appearance and models
            sorted. A row that names anything else is refused.
        ordered : bool
            Whether model_a being shown first means something.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            If a column is missing, a value is missing or unknown, or as the class says.

        Examples
        --------
        >>> import pandas as pd
        >>> from bayes_ecc import Comparisons
        >>> frame = pd.DataFrame(
        ...     {"query_id": ["q"], "model_a": ["a"], "model_b": ["b"], "outcome": [0.75]}
        ... )
        >>> Comparisons.from_frame(frame).outcome.tolist()
        [0.75]
        """
        if not isinstance(frame, pd.DataFrame):
            raise InputError(f"frame must be a pandas DataFrame, not {type(frame).__name__}.")
        needed = ["query_id", "model_a", "model_b"]
        missing = [name for name in needed if name not in frame.columns]
        if missing or not {"winner", "outcome"} & set(frame.columns):
            missing += [] if {"winner", "outcome"} & set(frame.columns) else ["winner or outcome"]
            raise InputError(
                f"The table lacks the column(s) {', '.join(missing)}; it has "
                f"{', '.join(map(str, frame.columns))}. Rename columns to query_id, model_a, "
                "model_b and winner (or outcome)."
            )
        for name in (*needed, "winner", "outcome", "weight"):
            if (frame.columns == name).sum() > 1:
                raise InputError(f"The table has the column {name} more than once; keep one.")
        for name in needed:
            refuse_rows(
                frame[name].isna().to_numpy(),
                name,
                lambda _: "a missing value",
                "every row needs a value; drop such rows",
            )
        query, query_index = encode_column(frame["query_id"], queries, "query_id")
        names = pd.concat([frame["model_a"].astype(object), frame["model_b"].astype(object)])
        if models is None:
            check_names(names)
            models = sorted(set(names))
        first, model_index = encode_column(frame["model_a"], models, "model_a")
        second, _ = encode_column(frame["model_b"], model_index, "model_b")
        weight: FloatArray = np.ones(len(frame))
        if "weight" in frame.columns:
            weight = read_numbers(frame["weight"], "weight")
        return cls(
            query=query,
            first=first,
            second=second,
            outcome=read_outcomes(frame),
            weight=weight,
            queries=query_index,
            models=model_index,
            ordered=ordered,
        )

    @classmethod
    def from_scores(
        cls,
        scores: pd.DataFrame,
        *,
        per_query: int | None = 7,
        ties: Literal["drop", "keep"] = "drop",
        min_per_query: int = 2,
        rng: RandomState = None,
    ) -> Comparisons:
        """Draw comparisons from a score table: on a query the higher score wins.

        The order of a drawn pair is random and means nothing (`ordered` is False).

        Parameters
        ----------
        scores : pandas.DataFrame
            One row a query, one column a model, higher is better, NaN where a model was not run.
            Query identifiers are the column `query_id` if there is one, else the index.
        per_query : int or None
            How many pairs to draw for each query, without replacement; None takes all.
        ties : {"drop", "keep"}
            Whether pairs with equal scores are left out or enter as ties (outcome 0.5).
        min_per_query : int
            Queries with fewer pairs to draw from are left out.
        rng : int, numpy.random.Generator or None
            Randomness of the draw.

        Returns
        -------
        Comparisons
            Only of the queries kept. Its `dropped` counts `missing_pairs`, `tied_pairs` (both over
            the whole table), `queries` with too few pairs and the `pairs_of_dropped_queries`.

        Raises
        ------
        InputError
            If scores are not numbers, infinite, or leave no query, or a setting is out of range.

        Examples
        --------
        >>> import pandas as pd
        >>> from bayes_ecc import Comparisons
        >>> scores = pd.DataFrame(
        ...     {"a": [1.0, 0.0, 1.0], "b": [0.0, 1.0, 1.0], "c": [0.0, None, 1.0]},
        ...     index=["q1", "q2", "q3"],
        ... )
        >>> data = Comparisons.from_scores(scores, min_per_query=1, rng=0)
        >>> data
        Comparisons(3 comparisons, 2 queries, 3 models, unordered, 0 ties)
        >>> dict(data.dropped)
        {'missing_pairs': 2, 'tied_pairs': 4, 'queries': 1, 'pairs_of_dropped_queries': 0}
        """
        if ties not in ("drop", "keep"):
            raise InputError(f"ties={ties!r}: allowed are 'drop' and 'keep'.")
        if per_query is not None:
            check_count("per_query", per_query)
        check_count("min_per_query", min_per_query)
        ids, names, values = read_scores(scores)
        generator = as_generator(rng)
        left, right = np.triu_indices(len(names), k=1)
        chunks = []
        dropped = dict.fromkeys(
            ("missing_pairs", "tied_pairs", "queries", "pairs_of_dropped_queries"), 0
        )
        kept = np.zeros(len(ids), dtype=bool)
        step = max(1, _SCORE_CELLS // max(1, len(left)))
        for start in range(0, len(ids), step):
            block = values[start : start + step]
            difference = block[:, right] - block[:, left]
            missing, tied = np.isnan(difference), difference == 0
            allowed = ~missing if ties == "keep" else ~(missing | tied)
            dropped["missing_pairs"] += int(missing.sum())
            dropped["tied_pairs"] += 0 if ties == "keep" else int(tied.sum())
            available = allowed.sum(axis=1)
            enough = available >= min_per_query
            dropped["queries"] += int((~enough).sum())
            dropped["pairs_of_dropped_queries"] += int(available[~enough].sum())
            kept[start : start + step] = enough
            rows, pairs = draw_pairs(allowed & enough[:, None], per_query, generator)
            outcome = (np.sign(difference[rows, pairs]) + 1) / 2
            chunks.append((rows + start, left[pairs], right[pairs], outcome))
        if not kept.any():
            raise InputError(
                f"No query of the score table has {min_per_query} or more pairs of models with "
                f"{'two' if ties == 'keep' else 'two different'} scores; check the table, lower "
                "min_per_query, or keep ties."
            )
        query, first, second, outcome = map(np.concatenate, zip(*chunks, strict=True))
        swap = generator.random(len(query)) < 0.5
        return cls(
            query=(np.cumsum(kept) - 1)[query],
            first=np.where(swap, second, first),
            second=np.where(swap, first, second),
            outcome=np.where(swap, 1 - outcome, outcome),
            weight=np.ones(len(query)),
            queries=ids[kept],
            models=names,
            ordered=False,
            dropped=dropped,
        )

    # ---------------------------------------------------------------- views

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        n_ties = int((self.outcome == 0.5).sum())
        return (
            f"Comparisons({len(self)} comparison{'' if len(self) == 1 else 's'}, "
            f"{self.n_queries} {'query' if self.n_queries == 1 else 'queries'}, "
            f"{self.n_models} models, {'ordered' if self.ordered else 'unordered'}, "
            f"{n_ties} tie{'' if n_ties == 1 else 's'})"
        )

    @property
    def n_queries(self) -> int:
        """Number of queries, those without comparisons included."""
        return len(self.queries)

    @property
    def n_models(self) -> int:
        """Number of models, those that were never compared included."""
        return len(self.models)

    @property
    def query_weight(self) -> FloatArray:
        """Sum of the weights of each query's comparisons, shape (n_queries,)."""
        return np.bincount(self.query, weights=self.weight, minlength=self.n_queries)

    def to_frame(self) -> pd.DataFrame:
        """Give the comparisons as a long table that `from_frame` reads back.

        Returns
        -------
        pandas.DataFrame
            Columns `query_id, model_a, model_b, outcome, weight`.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays([0], [0], [1], [1], queries=["q"], models=["a", "b"])
        >>> data.to_frame().to_dict("list")
        {'query_id': ['q'], 'model_a': ['a'], 'model_b': ['b'], 'outcome': [1.0], 'weight': [1.0]}
        """
        return pd.DataFrame(
            {
                "query_id": self.queries[self.query],
                "model_a": self.models[self.first],
                "model_b": self.models[self.second],
                "outcome": self.outcome,
                "weight": self.weight,
            }
        )

    def outcome_counts(
        self, *, per_query_mean: bool = False, ties: Ties = "half", order_effect: bool = False
    ) -> OutcomeCounts:
        """Count wins by query and (winner, loser): the sufficient statistics of BT likelihoods.

        Parameters
        ----------
        per_query_mean : bool
            Divide each query's counts by the sum of its weights, so that they sum to 1.
        ties : {"half", "rao_kupper"}
            Whether a tie (an outcome of 0.5) is half a win each way, or a whole win each way that
            is counted in `tie_weight` as well.
        order_effect : bool
            Whether wins of the first and of the second model shown have columns of their own.

        Returns
        -------
        OutcomeCounts
            Columns are sorted by winner, then loser, then direction.

        Raises
        ------
        InputError
            If `ties` is unknown, or an order effect is asked of unordered comparisons.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays(
        ...     [0, 0], [0, 0], [1, 2], [1.0, 1.0], queries=["q"], models=["a", "b", "c"]
        ... )
        >>> data.outcome_counts(per_query_mean=True).matrix.toarray().tolist()
        [[0.5, 0.5]]
        """
        check_choice("ties", ties, TIES)
        if order_effect and not self.ordered:
            raise InputError(
                "order_effect=True, but these comparisons are unordered: which model of a pair "
                "comes first means nothing in them. Use order_effect=False, or mark comparisons "
                "whose order was seen by the judge with ordered=True."
            )
        weight = self.weight
        if per_query_mean:
            weight = weight / self.query_weight[self.query]
        rows = Rows(self.query, self.first, self.second, self.outcome, weight)
        shape = self.n_queries, self.n_models
        if ties == "half" and not order_effect:
            return count_wins(rows, *shape)
        return count_margins(rows, *shape, ties=ties, order_effect=order_effect)

    # ---------------------------------------------------------------- subsets

    def take(self, positions: ArrayLike) -> Comparisons:
        """Keep some queries, with all their comparisons.

        Parameters
        ----------
        positions : array-like of int or bool
            Positions in `queries`, in the order wanted, or a mask of length n_queries.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            If a position is out of range or repeats, or a mask has another length.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays(
        ...     [0, 1], [0, 0], [1, 1], [1, 0], queries=["q1", "q2"], models=["a", "b"]
        ... )
        >>> data.take([1]).queries.tolist()
        ['q2']
        """
        chosen = np.asarray(positions)
        if chosen.dtype == bool:
            if chosen.shape != (self.n_queries,):
                raise InputError(
                    f"The mask has shape {chosen.shape}; give one value for each of the "
                    f"{self.n_queries} queries."
                )
            chosen = np.flatnonzero(chosen)
        chosen = read_codes(chosen, "positions", self.n_queries, "queries")
        new_code = np.full(self.n_queries, -1, dtype=np.intp)
        new_code[chosen] = np.arange(len(chosen))
        if (np.bincount(chosen, minlength=1) > 1).any():
            raise InputError("positions names a query twice; give each query once.")
        rows = new_code[self.query] >= 0
        kept = self._rows(rows)
        return replace(kept, query=new_code[kept.query], queries=self.queries[chosen])

    def select(self, ids: Iterable[Hashable]) -> Comparisons:
        """Keep the queries with these identifiers, in this order.

        Parameters
        ----------
        ids : iterable
            Query identifiers.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            If an identifier is unknown or repeats.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays(
        ...     [0, 1], [0, 0], [1, 1], [1, 0], queries=["q1", "q2"], models=["a", "b"]
        ... )
        >>> data.select(["q2", "q1"]).query.tolist()
        [1, 0]
        """
        wanted = read_list(ids, "ids")
        positions = self.queries.get_indexer(pd.Index(wanted, dtype=object))
        if (positions < 0).any():
            unknown = wanted[int(np.argmax(positions < 0))]
            raise InputError(f"ids names {unknown!r}, which is not among the queries.")
        return self.take(positions)

    def split(
        self, test_size: float = 0.2, *, rng: RandomState = None
    ) -> tuple[Comparisons, Comparisons]:
        """Split the queries at random into training and test queries.

        Parameters
        ----------
        test_size : float
            Share of the queries that goes to the test side, between 0 and 1.
        rng : int, numpy.random.Generator or None
            Randomness of the split.

        Returns
        -------
        train, test : Comparisons
            Both keep the order of `queries`; neither is empty.

        Raises
        ------
        InputError
            If `test_size` is not between 0 and 1 or one side would be empty.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> train, test = simulate(n_queries=100, rng=0).comparisons.split(0.2, rng=0)
        >>> train.n_queries, test.n_queries
        (80, 20)
        """
        if not isinstance(test_size, Real) or not 0 < test_size < 1:
            raise InputError(f"test_size={test_size!r}: give a share between 0 and 1.")
        n_test = round(test_size * self.n_queries)
        if not 0 < n_test < self.n_queries:
            raise InputError(
                f"test_size={test_size} of {self.n_queries} queries leaves one side empty; use "
                "another share or more queries."
            )
        is_test = np.zeros(self.n_queries, dtype=bool)
        is_test[as_generator(rng).permutation(self.n_queries)[:n_test]] = True
        return self.take(~is_test), self.take(is_test)

    def take_probes(
        self, n: int = 1, *, rng: RandomState = None
    ) -> tuple[Comparisons, Comparisons]:
        """Set n comparisons of each query apart as its probes.

        Parameters
        ----------
        n : int
            Probes a query; a query with fewer comparisons gives all it has.
        rng : int, numpy.random.Generator or None
            None takes the first n in the order of the rows, anything else n at random.

        Returns
        -------
        probes, rest : Comparisons
            Over the same queries, in the same order.

        Raises
        ------
        InputError
            If `n` is negative or not a whole number.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> probes, rest = simulate(n_queries=50, per_query=7, rng=0).comparisons.take_probes(1)
        >>> len(probes), len(rest)
        (50, 300)
        """
        check_count("n", n, least=0)
        order = np.arange(len(self)) if rng is None else as_generator(rng).permutation(len(self))
        order = order[np.argsort(self.query[order], kind="stable")]
        start = np.searchsorted(self.query[order], np.arange(self.n_queries))
        is_probe = np.zeros(len(self), dtype=bool)
        is_probe[order] = np.arange(len(self)) - start[self.query[order]] < n
        return self._rows(is_probe), self._rows(~is_probe)

    def rows(self, mask: ArrayLike) -> Comparisons:
        """Keep some comparisons; queries and models stay as they are.

        Parameters
        ----------
        mask : array-like of bool, shape (n_comparisons,)
            Which rows to keep.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            If the mask is not one bool a comparison.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays(
        ...     [0, 1], [0, 0], [1, 1], [1, 0.5], queries=["q1", "q2"], models=["a", "b"]
        ... )
        >>> data.rows(data.outcome != 0.5)
        Comparisons(1 comparison, 2 queries, 2 models, ordered, 0 ties)
        """
        chosen = np.asarray(mask)
        if chosen.dtype != bool or chosen.shape != (len(self),):
            raise InputError(
                f"mask has shape {chosen.shape} and type {chosen.dtype}; give one bool for each "
                f"of the {len(self)} comparisons."
            )
        return self._rows(chosen)

    def drop_models(self, names: Sequence[str]) -> Comparisons:
        """Leave out models and every comparison they take part in; queries stay.

        Parameters
        ----------
        names : sequence of str
            Models to leave out.

        Returns
        -------
        Comparisons
            Its `dropped` counts the comparisons that went, as `of_dropped_models`.

        Raises
        ------
        InputError
            If a name is unknown or fewer than two models stay.

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> simulate(n_models=5, rng=0).comparisons.drop_models(["llm_0"]).n_models
        4
        """
        names = read_list(names, "names")
        unknown = [name for name in names if name not in self.models]
        if unknown:
            raise InputError(
                f"There is no model {unknown[0]!r}; the models are {', '.join(self.models)}."
            )
        keep = ~self.models.isin(names)
        rows = keep[self.first] & keep[self.second]
        dropped = dict(self.dropped)
        dropped["of_dropped_models"] = dropped.get("of_dropped_models", 0) + int((~rows).sum())
        code = np.cumsum(keep) - 1
        kept = self._rows(rows)
        return replace(
            kept,
            first=code[kept.first],
            second=code[kept.second],
            models=self.models[keep],
            dropped=dropped,
        )

    def with_models(self, models: Iterable[str]) -> Comparisons:
        """Recode to another list of models, which must hold all that are compared here.

        Parameters
        ----------
        models : iterable of str
            The new models, in their order.

        Returns
        -------
        Comparisons

        Raises
        ------
        InputError
            If a compared model is missing from `models`.

        Examples
        --------
        >>> from bayes_ecc import Comparisons
        >>> data = Comparisons.from_arrays([0], [0], [1], [1], queries=["q"], models=["a", "b"])
        >>> data.with_models(["b", "c", "a"]).first.tolist()
        [2]
        """
        target = read_identifiers(models, "models")
        if target.equals(self.models):
            return self
        code = target.get_indexer(self.models)
        used = np.zeros(self.n_models, dtype=bool)
        used[self.first] = used[self.second] = True
        if (used & (code < 0)).any():
            name = self.models[int(np.argmax(used & (code < 0)))]
            raise InputError(
                f"The comparisons hold the model {name!r}, which is not among the "
                f"{len(target)} known models ({', '.join(target)}); drop it with "
                "drop_models or fit again with it."
            )
        return replace(self, first=code[self.first], second=code[self.second], models=target)

    def _rows(self, mask: NDArray[np.bool_]) -> Comparisons:
        return replace(
            self,
            query=self.query[mask],
            first=self.first[mask],
            second=self.second[mask],
            outcome=self.outcome[mask],
            weight=self.weight[mask],
        )
