"""Whether judges agree: on which queries belong together, and on who is better at what."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.evaluation import fit_method
from bayes_ecc.splits import Split
from bayes_ecc.structure.agreement import partition_agreement
from bayes_ecc.studies.cells import BUNDLE, Cell
from bayes_ecc.studies.data import Source, StudyData
from bayes_ecc.studies.run import base_cell
from bayes_ecc.studies.sides import draw_training, make_split

type FloatArray = NDArray[np.floating[Any]]

_OTHER = 1_000_003  # what is added to a seed to draw once more, or to start from elsewhere


class _View(NamedTuple):
    """What one fit says: a cluster a query, and strengths, overall and on each query."""

    train: Comparisons
    partition: pd.Series
    overall: pd.Series
    by_query: pd.DataFrame


def judge_agreement(
    bundle: Bundle,
    judges: Mapping[str, pd.DataFrame],
    *,
    method: str = "ecc",
    seeds: int | Iterable[int] = 3,
    base: Mapping[str, Any] | None = None,
    source: Source | None = None,
    exclude_models: Sequence[str] = (),
) -> pd.DataFrame:
    """Measure how far fits to different judges agree, beside how far fits to the same one do.

    Two fits to one judge differ as well: in their starts, and in which comparisons were drawn.
    What two judges disagree on beyond that is theirs.

    Parameters
    ----------
    bundle : Bundle
        With scores or comparisons.
    judges : mapping of str to DataFrame
        Further score tables of the same queries; the bundle's own judge is called "bundle".
    method : {"ecc", "comparisons", "embedding", "ecc:auto"}
        What is fitted.
    seeds : int or iterable of int
        How many, from 0, or which.
    base : mapping, optional
        Settings of `Cell` to change, as in `run_study`.
    source, exclude_models
        As in `run_study`.

    Returns
    -------
    pandas.DataFrame
        One row a seed and pair of fits: `bundle`, `method`, `seed`, `judge`, `other`; `differs`,
        in what the two differ ("start": the same comparisons fitted from another start; "draw":
        the same judge, other pairs compared, another start; "judge"); `n_queries`, the training
        queries of both; `ari` and `nmi` (adjusted Rand index, normalised mutual information) of
        the clusters of highest responsibility on them; `tau_overall`, Kendall's tau between the
        global rankings, and `tau_query`, its mean over these queries' own rankings.

    Raises
    ------
    InputError
        If the method does not cluster, there are no further judges, or a table does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from bayes_ecc import Bundle, judge_agreement
    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(80, 8))
    >>> scores = pd.DataFrame(vectors @ rng.normal(size=(8, 4)), columns=list("abcd"))
    >>> scores.insert(0, "query_id", [f"q{i}" for i in range(80)])
    >>> bundle = Bundle("two", scores[["query_id"]], scores=scores, embeddings=vectors)
    >>> table = judge_agreement(
    ...     bundle, {"same": scores}, seeds=1, base={"n_clusters": 2, "embedding_weight": 1.0}
    ... )
    >>> table["differs"].tolist(), float(table["ari"].iloc[-1])
    (['start', 'draw', 'start', 'draw', 'judge'], 1.0)
    """
    data = StudyData.of(bundle, judges=judges, source=source, exclude_models=exclude_models)
    if len(data.judges) < 2:
        raise InputError("Agreement takes two judges; give a further score table in judges.")
    start = replace(base_cell(data.bundle, base), method=method)
    if start.kind in ("global", "labels", "bayes"):
        raise InputError(
            f"method={method!r}: agreement is between clusters of one fit each; use ecc."
        )
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    rows = []
    for seed in numbers:
        views = {}
        for name in data.judges:
            cell = replace(start, seed=int(seed), judge=name)
            views[name] = _view(data, cell, cell.seed)
            again = _view(data, cell, cell.seed + _OTHER)
            redrawn = _view(data, cell, cell.seed + _OTHER, pairs=cell.seed + _OTHER)
            for differs, other in (("start", again), ("draw", redrawn)):
                rows.append((seed, name, name, differs, views[name], other))
        rows += [(seed, a, b, "judge", views[a], views[b]) for a, b in combinations(views, 2)]
    return pd.DataFrame(
        [
            {
                "bundle": bundle.name,
                "method": method,
                "seed": seed,
                "judge": name,
                "other": other_name,
                "differs": differs,
                **_agreement(one, other),
            }
            for seed, name, other_name, differs, one, other in rows
        ]
    )


def _view(data: StudyData, cell: Cell, start: int, pairs: int | None = None) -> _View:
    """Fit one cell's training side, drawn with other pairs where they are given."""
    train = draw_training(data, cell, pairs_seed=pairs)
    nothing = train.rows(np.zeros(len(train), dtype=bool))
    split: Split = make_split(data, replace(cell, seed=start), train, (nothing, nothing))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = fit_method(cell.method, split, data.judge(BUNDLE), cell.settings).estimator
    responsibilities = estimator.responsibilities_.to_numpy()
    strengths = estimator.strengths_.to_pandas()
    overall = BradleyTerry(ridge=1.0).fit(train).strengths_
    return _View(
        train,
        pd.Series(responsibilities.argmax(axis=1), index=train.queries),
        pd.Series(np.asarray(overall), index=train.models),
        pd.DataFrame(
            responsibilities @ strengths.to_numpy(), index=train.queries, columns=strengths.columns
        ),
    )


def _agreement(one: _View, other: _View) -> dict[str, float]:
    common = one.train.queries.intersection(other.train.queries)
    found = partition_agreement(one.partition[common], other.partition[common])
    models = one.overall.index.intersection(other.overall.index)
    ranks = [view.by_query.loc[common, models].to_numpy() for view in (one, other)]
    return {
        "n_queries": len(common),
        "ari": found.adjusted_rand,
        "nmi": found.normalized_mutual_information,
        "tau_overall": float(kendalltau(one.overall[models], other.overall[models]).statistic),
        "tau_query": float(_row_tau(*ranks).mean()),
    }


def _row_tau(a: FloatArray, b: FloatArray) -> FloatArray:
    """Kendall's tau-a of each pair of rows, (n_rows, n_columns) both."""
    a, b = rankdata(a, axis=1), rankdata(b, axis=1)
    left, right = np.triu_indices(a.shape[1], k=1)
    return (np.sign(a[:, left] - a[:, right]) * np.sign(b[:, left] - b[:, right])).mean(axis=1)
