"""Running a study: cells grouped by the fit they share, in parallel, resumable; a tidy table."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm.auto import tqdm

from bayes_ecc.bundle import Bundle
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.evaluation import check_method
from bayes_ecc.intervals import Interval, choose_interval
from bayes_ecc.splits import SIGNALS
from bayes_ecc.studies.cells import SETTINGS, Cell, grid_cells, unread_settings
from bayes_ecc.studies.data import Source, StudyData
from bayes_ecc.studies.presets import Study, find_study
from bayes_ecc.studies.store import Store, cell_identity, identity_key
from bayes_ecc.studies.work import FACTS, FIGURES, Result, run_group

METHODS = ("embedding", "comparisons", "ecc")
COLUMNS = (
    "study",
    "bundle",
    "method",
    "signal",
    "seed",
    *(name for name in SETTINGS if name not in ("method", "seed")),
    *FIGURES,
    *FACTS,
)
"""The columns of a study's table."""


def run_study(
    study: str | Study | Sequence[str | Study],
    bundle: Bundle,
    *,
    methods: Sequence[str] = METHODS,
    seeds: int | Iterable[int] = 3,
    base: Mapping[str, Any] | None = None,
    label: str | None = None,
    encoders: Mapping[str, ArrayLike] | None = None,
    judges: Mapping[str, pd.DataFrame] | None = None,
    source: Source | None = None,
    exclude_models: Sequence[str] = (),
    folder: str | Path | None = None,
    n_jobs: int | None = None,
    progress: bool | None = False,
) -> pd.DataFrame:
    """Run one study or several: every method on every point of a grid, for every seed.

    Cells that differ only in how test queries are read share one fit, and studies that share cells
    compute them once. Under ``joblib.parallel_config(backend=...)`` the fits run on any backend of
    joblib's, Dask's included.

    Parameters
    ----------
    study : str, Study, or sequence of them
        A preset's name (`STUDIES`), or a grid of your own.
    bundle : Bundle
        With scores or comparisons.
    methods : sequence of str
        As `evaluate` names them. A study that varies the method has its own.
    seeds : int or iterable of int
        How many, from 0, or which.
    base : mapping, optional
        Settings of `Cell` that a study does not vary; the published ones by default (30 clusters,
        embedding weight 3, temperature 0.1, ridge 1, 7 comparisons a query, 20 % test queries, one
        probe). Of a bundle with a comparison table all comparisons are taken by default.
    label : str, optional
        The label column of the study "ood"; needed there.
    encoders : mapping of str to array-like, optional
        Further embeddings by name, rows as in the bundle's `queries`: for the study "encoders".
    judges : mapping of str to DataFrame, optional
        Further score tables of the same queries: for the study "judges".
    source : {"scores", "comparisons"}, optional
        Which table to use; needed where the bundle has both.
    exclude_models : sequence of str
        Models to leave out.
    folder : str or Path, optional
        Where to keep finished cells, one small file each. A study that was interrupted goes on
        from there, and nothing finished is computed again; results of other data or versions in
        the same folder are not used, with a warning.
    n_jobs : int, optional
        Processes, as joblib reads it; by default what `joblib.parallel_config` says, or one.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    pandas.DataFrame
        One row a cell and signal, with the columns of `COLUMNS`: the study, the bundle, every
        setting (also those that a method does not read), then `gain` (percent) with its bootstrap
        bounds `gain_low` and `gain_high`, `gain_per_query`, `loss`, `loss_per_query`,
        `loss_global` (nats), `ece`, and `seconds` of the fit with its predictions, `n_iter`,
        `converged`, counts, and `message`: what was warned of or refused. A cell that was refused
        has one row without signal and figures. ``attrs["unread"]`` tells, by study and method,
        which settings were varied though the method does not read them: its rows are alike.

    Raises
    ------
    InputError
        If a study, a method or a setting is unknown, or nothing could be fitted at all.

    Examples
    --------
    >>> from bayes_ecc import run_study, simulate
    >>> bundle = simulate(n_queries=200, n_models=5, n_clusters=3, spread=4, rng=0).bundle()
    >>> settings = {"n_clusters": 3, "embedding_weight": 1.0}
    >>> table = run_study("probe_noise", bundle, methods=["ecc"], seeds=1, base=settings)
    >>> both = table[table["signal"] == "embedding+probe"]
    >>> bool(both["gain"].iloc[0] > both["gain"].iloc[-1])
    True
    """
    data = StudyData.of(
        bundle, judges=judges, encoders=encoders, source=source, exclude_models=exclude_models
    )
    bundle = data.bundle
    listed = [study] if isinstance(study, str | Study) else list(study)
    if not listed:
        raise InputError("There is no study to run; name one or more.")
    if isinstance(methods, str) or not methods:
        raise InputError(f"methods={methods!r}: give a list of one method or more.")
    start = base_cell(bundle, base)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not numbers:
        raise InputError(f"seeds={seeds!r}: give one seed or more.")
    rows: list[tuple[str, Cell]] = []
    for one in listed:
        chosen = find_study(one) if isinstance(one, str) else one
        blocks: list[Mapping[str, Sequence[Any]]] = [
            {"seed": numbers, "method": list(methods), **block}
            for block in chosen.blocks(data, label)
        ]
        rows += [(chosen.name, cell) for cell in grid_cells(blocks, start)]
    for name in dict.fromkeys(cell.method for _, cell in rows):
        check_method(name, bundle)
    results = run_cells([cell for _, cell in rows], data, folder, n_jobs, progress)
    table = _table(rows, results, bundle.name)
    unread = {
        name: unread_settings(cell for study, cell in rows if study == name)
        for name in dict.fromkeys(name for name, _ in rows)
    }
    table.attrs["unread"] = {name: found for name, found in unread.items() if found}
    return table


def base_cell(bundle: Bundle, base: Mapping[str, Any] | None = None) -> Cell:
    """Give the published settings, some of them changed.

    Raises
    ------
    InputError
        If a setting is unknown or out of range.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import base_cell
    >>> base_cell(simulate(n_queries=50, rng=0).bundle(), {"ridge": 0.1}).ridge
    0.1
    """
    given: dict[str, Any] = {} if bundle.scores is not None else {"per_query": None}
    given |= dict(base or {})
    unknown = [name for name in given if name not in SETTINGS]
    if unknown:
        raise InputError(
            f"base names {unknown[0]!r}, which is no setting; they are {', '.join(SETTINGS)}."
        )
    return Cell(**given)


def run_cells(
    cells: Sequence[Cell],
    data: StudyData,
    folder: str | Path | None = None,
    n_jobs: int | None = None,
    progress: bool | None = False,
) -> list[Result]:
    """Run cells, each that is not yet finished once: their results, in the order given.

    Parameters
    ----------
    cells : sequence of Cell
    data : StudyData
    folder, n_jobs, progress
        As in `run_study`.

    Returns
    -------
    list of Result

    Warns
    -----
    DataWarning
        If the folder holds finished cells with the same settings, but of other data or versions.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.studies import Cell, StudyData, run_cells
    >>> data = StudyData.of(simulate(n_queries=100, rng=0).bundle())
    >>> run_cells([Cell("global")], data)[0].figures["probe"]["gain"]
    0.0
    """
    store = None if folder is None else Store(folder)
    identities = [cell_identity(data, cell) for cell in cells]
    keys = [identity_key(identity) for identity in identities]
    wanted = dict(zip(keys, identities, strict=True))
    finished: dict[str, Result] = {}
    if store is not None:
        for key in wanted:
            found = store.read(key)
            if found is not None:
                finished[key] = found
        if len(finished) < len(wanted):
            _warn_of_strangers(store, wanted)
    groups: dict[str, dict[str, Cell]] = {}
    for key, cell in zip(keys, cells, strict=True):
        if key not in finished:
            groups.setdefault(identity_key(cell.training()), {})[key] = cell
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    interval = choose_interval(None, None)  # of this process: workers have settings of their own
    tasks = (
        joblib.delayed(_task)(data, group, {key: wanted[key] for key in group}, store, interval)
        for group in groups.values()
    )
    with tqdm(
        desc="study",
        unit="cell",
        total=len(wanted),
        initial=len(finished),
        disable=None if progress is None else not progress,
        leave=False,
    ) as bar:
        for done in parallel(tasks):
            finished |= done
            bar.update(len(done))
    return [finished[key] for key in keys]


def _task(
    data: StudyData,
    group: dict[str, Cell],
    identities: dict[str, dict[str, Any]],
    store: Store | None,
    interval: Interval,
) -> dict[str, Result]:
    """Run cells that share a fit, and keep each as soon as it is finished."""
    if parent_process() is not None:  # tqdm's lock between processes outlives one that is killed
        tqdm.set_lock(threading.RLock())
    key_of = {cell: key for key, cell in group.items()}

    def keep(cell: Cell, result: Result) -> None:
        if store is not None:
            store.write(key_of[cell], identities[key_of[cell]], result)

    return dict(zip(group, run_group(data, list(group.values()), keep, interval), strict=True))


def _warn_of_strangers(store: Store, wanted: dict[str, dict[str, Any]]) -> None:
    reasons = store.strangers(wanted)
    if reasons:
        warnings.warn(
            f"{store.folder} holds finished cells with these settings that are not used, being of "
            f"{', '.join(reasons)}; they are left there, and the cells are computed anew.",
            DataWarning,
            stacklevel=4,
        )


def _table(
    cells: Sequence[tuple[str, Cell]], results: Sequence[Result], bundle: str
) -> pd.DataFrame:
    rows = []
    for (study, cell), (figures, facts) in zip(cells, results, strict=True):
        start = {"study": study, "bundle": bundle, **cell.row()}
        rows += [
            {**start, "signal": signal, **figures[signal], **facts}
            for signal in SIGNALS
            if signal in figures
        ]
        if not figures:
            rows.append({**start, "signal": None, **facts})
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    refused = table["signal"].isna()
    if refused.all():
        raise InputError(f"None of the cells could be run: {table['message'].iloc[0]}")
    if refused.any():
        warnings.warn(
            f"{int(refused.sum())} of {len(results)} cells were refused; the column message says "
            f"why, of the first: {table.loc[refused, 'message'].iloc[0]}",
            DataWarning,
            stacklevel=3,
        )
    return table


# -------------------------------------------------------------------- reading a table


def summarize_study(
    table: pd.DataFrame, by: str | Sequence[str] | None = None, *, signal: str | None = None
) -> pd.DataFrame:
    """Average a study's table over seeds.

    Parameters
    ----------
    table : pandas.DataFrame
        From `run_study`.
    by : str or sequence of str, optional
        Settings to keep apart; by default all that vary in the table. Whatever else varies is
        averaged over, after it was averaged within a seed.
    signal : str, optional
        Keep one of "embedding", "probe" and "embedding+probe".

    Returns
    -------
    pandas.DataFrame
        One row for each study, method, signal and value of `by`: `gain` with `gain_sd` over seeds
        (missing for one seed), `gain_per_query`, `loss`, `ece`, `seconds`, `n_seeds`.

    Raises
    ------
    InputError
        If the table is not a study's or has no such column.

    Examples
    --------
    >>> from bayes_ecc import run_study, simulate, summarize_study
    >>> bundle = simulate(n_queries=150, n_models=5, rng=0).bundle()
    >>> table = run_study("probes", bundle, methods=["ecc"], seeds=2, base={"n_clusters": 4})
    >>> summary = summarize_study(table, signal="embedding+probe")
    >>> summary["n_probes"].tolist(), summary["n_seeds"].tolist()
    ([1, 2, 3, 4, 5, 6], [2, 2, 2, 2, 2, 2])
    """
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError(f"The table lacks the column {missing[0]!r}; give one of run_study.")
    rows = table[table["signal"].notna()]
    if signal is not None:
        if signal not in SIGNALS:
            raise InputError(f"signal={signal!r}: allowed are {', '.join(map(repr, SIGNALS))}.")
        rows = rows[rows["signal"] == signal]
    if by is None:
        names = [n for n in SETTINGS if n not in ("method", "seed") and _varies(rows[n])]
    else:
        names = [by] if isinstance(by, str) else list(by)
    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise InputError(f"by names {unknown[0]!r}; allowed are {', '.join(SETTINGS)}.")
    keys = ["study", "method", "signal", *(n for n in names if n != "method")]
    figures = ["gain", "gain_per_query", "loss", "ece", "seconds"]
    within = rows.groupby([*keys, "seed"], dropna=False, sort=False)[figures].mean().reset_index()
    grouped = within.groupby(keys, dropna=False, sort=False)
    summary = grouped[figures].mean()
    summary.insert(1, "gain_sd", grouped["gain"].std(ddof=1))
    summary["n_seeds"] = grouped.size()
    return summary.reset_index()


def _varies(column: pd.Series) -> bool:
    return len(column.unique()) > 1


def best_of(summary: pd.DataFrame, setting: str) -> pd.Series:
    """Give the value of a setting with the highest gain, for each method.

    Examples
    --------
    >>> import pandas as pd
    >>> from bayes_ecc.studies.run import best_of
    >>> summary = pd.DataFrame({"method": ["ecc"] * 2, "ridge": [1.0, 0.1], "gain": [30.0, 35.0]})
    >>> best_of(summary, "ridge").to_dict()
    {'ecc': 0.1}
    """
    best = summary.loc[summary.groupby("method", sort=False)["gain"].idxmax()]
    return pd.Series(np.asarray(best[setting]), index=best["method"], name=setting)
