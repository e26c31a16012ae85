"""`bayes-ecc study`: sweeps over settings and data, as tidy tables."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.options import add_seed, listed, number, number_or_auto, whole
from bayes_ecc.cli.output import (
    Column,
    complain,
    definitions,
    format_table,
    is_bundle,
    paragraph,
    terminal_width,
)
from bayes_ecc.cli.protocol import add_bayes_options, read_methods
from bayes_ecc.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from bayes_ecc.studies import Study

ALL = "all"
GRID = "grid"
_NEEDING = ("encoders", "ood", "judges")  # more than a bundle

_NEARLY = 0.9  # of the comparisons asked for: some queries always lack a few

_STUDIES = """\
studies, by what they vary:
  main                   nothing: the methods beside each other
  clusters               the number of clusters, 2 to 100
  comparisons            comparisons a query, 2 to 24; test queries have as many
  comparisons_same_test  the same for training queries only, all judged alike
  embedding_weight       lambda, 0.5 to 50
  fraction               share of training queries, 0.2 to 0.9; the rest are tested on
  fraction_same_test     the same, all judged by the same tenth of the queries
  temperature            T, 0.05 to 0.35
  ridge                  0.01 to 3
  probes                 probes a test query, 1 to 6; what is no probe is scored
  probes_same_test       the same, all judged by the same comparisons
  probe_noise            chance that a probe tells the wrong winner, 0 to 1
  probe_choice           which comparison is the probe, 20 random choices
  ties                   share of ties among the comparisons, 0 to 0.3, kept as half-wins
  encoders               embeddings: the bundle's and those of --encoder
  ood                    a label of --label left out of training and tested on
  judges                 whose scores are fitted and whose are predicted: --judge
  all                    all of these that the options allow
  grid                   settings of your own: --vary

Finished cells are kept in a folder, one small file each; a study that was interrupted goes on from
there. The folder also gets the table of each study, NAME.csv, one row a method, signal, seed and
setting.

examples:
  bayes-ecc study clusters data/routerdc --embedding-weight 1
  bayes-ecc study probes,probe_noise data/routerdc --methods ecc,bayes --seeds 5 --jobs 2
  bayes-ecc study grid data/routerdc --vary n_clusters=10,30 --vary ridge=0.1,1
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "study",
        help="sweep over settings and data: how gains depend on clusters, comparisons, probes, ...",
        description="Fit methods over a grid of settings and seeds, judge them on held-out\n"
        "queries, and write one tidy table a study.",
        epilog=_STUDIES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("study", metavar="NAME", help="a study, several with commas, or all")
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder of the data set")
    parser.add_argument(
        "--methods",
        action="append",
        metavar="A,B",
        help="methods of `bayes-ecc evaluate` (default embedding,comparisons,ecc)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="where finished cells and tables are kept (default ./study-BUNDLE)",
    )
    parser.add_argument(
        "--jobs", type=whole(1), metavar="N", help="processes to run at once (default 1)"
    )
    parser.add_argument(
        "--signal",
        choices=("embedding", "probe", "embedding+probe"),
        default="embedding+probe",
        help="what is printed; the table holds all (default embedding+probe)",
    )

    data = parser.add_argument_group("data")
    add_seed(data, "of every draw and fit (default 0)")
    data.add_argument(
        "--seeds", type=whole(1), default=3, metavar="N", help="run seeds S to S+N-1 (default 3)"
    )
    data.add_argument("--per-query", type=whole(1), metavar="N", help="comparisons a query")
    data.add_argument(
        "--train-fraction", type=number, metavar="SHARE", help="share of training queries"
    )
    data.add_argument("--probes", type=whole(0), metavar="N", help="probes a test query")
    data.add_argument(
        "--source",
        choices=("scores", "comparisons"),
        help="which table to use, where the bundle has both",
    )
    data.add_argument(
        "--exclude-models",
        action="append",
        default=[],
        metavar="A,B",
        help="models to leave out; may be repeated, and a name with commas given on its own",
    )
    data.add_argument("--label", metavar="COLUMN", help="label column, for ood")
    data.add_argument(
        "--encoder",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="further embeddings (.npy), for encoders; may be repeated",
    )
    data.add_argument(
        "--judge",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="a further score table (parquet or csv), for judges; may be repeated",
    )
    data.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="SETTING=A,B",
        help="a setting and its values, for grid; may be repeated",
    )

    fits = parser.add_argument_group("fits, where a study does not vary them")
    fits.add_argument("--clusters", type=whole(1), metavar="K", help="(default 30)")
    fits.add_argument("--embedding-weight", type=number_or_auto, metavar="W", help="(default 3)")
    fits.add_argument("--temperature", type=number_or_auto, metavar="T", help="(default 0.1)")
    fits.add_argument("--ridge", type=number_or_auto, metavar="R", help="(default 1)")
    add_bayes_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the studies, write their tables, print what they say."""
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.studies import judge_agreement, run_study, summarize_study

    studies = chosen_studies(args)
    bundle = load_bundle(args.bundle)
    encoders = {name: _read_vectors(path) for name, path in _named(args.encoder, "--encoder")}
    judges = {name: _read_scores(path) for name, path in _named(args.judge, "--judge")}
    folder = args.folder
    if folder is None:
        folder = Path("study-" + re.sub(r"[^\w.-]+", "-", bundle.name))
    seeds = range(args.seed, args.seed + args.seeds)
    excluded = listed(args.exclude_models, lambda name: name in bundle.models)
    _check_folder(folder, [study.name for study in studies], bundle.name)
    complain(f"note: finished cells and tables are kept in {folder}.")
    table = run_study(
        studies,
        bundle,
        methods=read_methods(args.methods, "embedding,comparisons,ecc", bundle),
        seeds=seeds,
        base=_base(args),
        label=args.label,
        encoders=encoders,
        judges=judges,
        source=args.source,
        exclude_models=excluded,
        folder=folder,
        n_jobs=args.jobs,
        progress=None,
    )
    width = terminal_width()
    parts = []
    for study in studies:
        rows = table[table["study"] == study.name]
        _write_table(rows, folder / f"{study.name}.csv")
        by = None
        if study.name == GRID:  # what was asked for is shown, be it one value
            by = shown_settings(rows, _varied(args.vary))
        summary = summarize_study(rows, by)
        parts.append(report(study, summary, args.signal, width, table.attrs["unread"]))
        if "per_query" in summary.columns:
            parts += [paragraph(note, width) for note in _shortfall(rows)]
    meanings = {
        "gain": "percentage of the global ranking's loss on held-out comparisons that the method "
        "saves; mean over seeds, with their standard deviation",
    }
    if any(study.name == "judges" for study in studies):
        agreement = judge_agreement(
            bundle,
            judges,
            seeds=seeds,
            base=_base(args),
            source=args.source,
            exclude_models=excluded,
        )
        _write_table(agreement, folder / "judge_agreement.csv")
        parts.append(agreement_report(agreement, width))
        meanings |= {
            "differs": "what two fits of ecc differ in: their start; start and drawn pairs; judge",
            "ari, nmi": "agreement of their clusters: adjusted Rand index, mutual information",
            "tau": "Kendall's tau between global rankings (overall), between a query's (query)",
        }
    print("\n\n".join([*parts, definitions(meanings, width)]))
    return 0


def chosen_studies(args: argparse.Namespace) -> list[Study]:
    """Read which studies were asked for."""
    from bayes_ecc.studies import SETTINGS, STUDIES, Study, find_study

    given = {"encoders": args.encoder, "ood": args.label, "judges": args.judge}
    found: list[Study] = []
    for name in filter(None, (piece.strip() for piece in args.study.split(","))):
        if name == ALL:
            found += [s for s in STUDIES.values() if s.name not in _NEEDING or given[s.name]]
        elif name == GRID:
            values = _varied(args.vary)
            if not values:
                raise InputError(
                    "The study grid varies what --vary names: --vary SETTING=A,B; settings are "
                    f"{', '.join(SETTINGS)}."
                )
            varies = next((name for name in values if name != "method"), "method")
            found.append(Study(GRID, "A grid of your own.", varies, [values]))
        else:
            found.append(find_study(name))
    if not found:
        raise InputError("NAME is empty; name a study, or all.")
    if args.vary and not any(study.name == GRID for study in found):
        raise InputError("--vary is for the study grid: bayes-ecc study grid BUNDLE --vary ...")
    return list({study.name: study for study in found}.values())


def _varied(options: list[str]) -> dict[str, list[Any]]:
    """Read what a grid varies; of a setting named several times all values count."""
    found: dict[str, list[Any]] = {}
    for option in options:
        name, equals, values = option.partition("=")
        if not equals or not values:
            raise InputError(f"--vary {option!r}: give a setting and its values, SETTING=A,B.")
        known = found.setdefault(name.strip().replace("-", "_"), [])
        known += [one for one in (_value(v.strip()) for v in values.split(",")) if one not in known]
    return found


def _value(text: str) -> Any:
    """Read a value of a setting: a number where it is one, a word otherwise."""
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _base(args: argparse.Namespace) -> dict[str, Any]:
    names = {
        "clusters": "n_clusters",
        "embedding_weight": "embedding_weight",
        "temperature": "temperature",
        "ridge": "ridge",
        "per_query": "per_query",
        "train_fraction": "train_fraction",
        "probes": "n_probes",
        "concentration": "concentration",
        "evidence_power": "evidence_power",
        "probe_power": "probe_power",
        "starts": "starts",
        "chains": "chains",
        "draws": "draws",
    }
    given = {setting: getattr(args, option) for option, setting in names.items()}
    return {name: value for name, value in given.items() if value is not None}


def _named(options: list[str], option: str) -> Iterator[tuple[str, Path]]:
    for text in options:
        name, equals, file = text.partition("=")
        path = Path(file)
        if not equals or not name or not file:
            raise InputError(f"{option} {text!r}: give a name and a file, NAME=FILE.")
        if not path.is_file():
            raise InputError(f"{option}: there is no file {path}.")
        yield name, path


def _read_vectors(path: Path) -> Any:
    from bayes_ecc.tables import read_array

    return read_array(path)


def _read_scores(path: Path) -> Any:
    from bayes_ecc.tables import read_table

    return read_table(path)


def _check_folder(folder: Path, studies: list[str], bundle: str) -> None:
    """Refuse a folder whose files are not this bundle's studies, before the work is done."""
    if is_bundle(folder):
        raise InputError(f"--folder: {folder} holds a data set; give a folder of its own.")
    for name in [*studies, *(["judge_agreement"] if "judges" in studies else [])]:
        path = folder / f"{name}.csv"
        if not path.exists():
            continue
        names, values = _first_rows(path)
        if "bundle" not in names or not {"method", "seed"} <= set(names):
            raise InputError(
                f"--folder: {path} exists and is not the table of a study, so it is not replaced; "
                "give another folder."
            )
        theirs = values.get("bundle")
        if theirs is not None and theirs != bundle:
            raise InputError(
                f"--folder: {path} is of the data set {theirs!r}, not of {bundle!r}, and would be "
                "replaced; give each data set a folder of its own."
            )


def _first_rows(path: Path) -> tuple[list[str], dict[str, str]]:
    """Read the heading and the first row of a CSV table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            names, first = next(rows, []), next(rows, [])
    except (OSError, ValueError, csv.Error):
        return [], {}
    return names, dict(zip(names, first, strict=False))


def _write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, the whole of it or nothing."""
    partial = path.with_name(path.name + ".partial")
    try:
        try:
            table.to_csv(partial, index=False)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from None


# -------------------------------------------------------------------- the report


def shown_settings(rows: pd.DataFrame, named: Collection[str]) -> list[str]:
    """Give the settings that a grid names, and others that vary in its table."""
    from bayes_ecc.studies import SETTINGS

    return [
        name
        for name in SETTINGS
        if name not in ("method", "seed") and (name in named or len(rows[name].unique()) > 1)
    ]


def _shortfall(rows: pd.DataFrame) -> Iterator[str]:
    """Tell which numbers of comparisons a query were a good deal more than there were."""
    asked = rows[rows["signal"].notna() & rows["per_query"].notna()]
    had = (asked["n_train"] / asked["n_train_queries"]).groupby(asked["per_query"]).max()
    short = had[had < _NEARLY * had.index.to_numpy(dtype=float)]
    if len(short):
        values = ", ".join(f"{value:g}" for value in short.index)
        fitted = ", ".join(dict.fromkeys(f"{value:.3g}" for value in short))
        yield (
            f"per_query {values}: more than queries have to draw from; fitted were {fitted} a "
            "training query on average."
        )


def report(
    study: Study,
    summary: pd.DataFrame,
    signal: str,
    width: int,
    unread: Mapping[str, Mapping[str, list[str]]] | None = None,
) -> str:
    """Write what a study found for a reader at a terminal: gains by what varies and by method."""
    import numpy as np

    from bayes_ecc.studies import SETTINGS, best_of

    heading = paragraph(f"{study.name.upper()}: {study.question}", width)
    if study.varies == "method":
        keys, across = ["method"], "signal"
        rows = summary
    else:
        keys = [n for n in summary.columns if n in SETTINGS and n != "method"]
        across = "method"
        known = list(dict.fromkeys(summary["signal"]))
        signal = signal if signal in known else known[-1]  # of data without embeddings, say
        rows = summary[summary["signal"] == signal]
        heading += "\n" + paragraph(f"Gain, {signal}:", width)
    columns = [Column(name, [_shown(v) for v in cells]) for name, cells in _keys(rows, keys)]
    index = rows.set_index([*keys, across]) if keys else rows.set_index([across])
    lines = list(dict.fromkeys(rows[keys].itertuples(index=False, name=None))) if keys else [()]
    columns += [
        Column(str(name), [_gain(index, (*line, name)) for line in lines])
        for name in dict.fromkeys(rows[across])
    ]
    parts = [heading, format_table(columns, width)]
    alike = (unread or {}).get(study.name, {})
    if len(keys) == 1 and across == "method":
        spread = rows.groupby("method")["gain"].agg(np.ptp)
        told = rows[rows["method"].map(spread) > 0] if len(lines) > 1 else rows
        best = best_of(told, keys[0]).items() if len(told) else []
        found = ", ".join(f"{method} at {_shown(value)}" for method, value in best)
        parts += [paragraph(f"Highest: {found}.", width)] if found else []
    for method, names in alike.items():
        own = " (it is chosen on training queries)" if method.endswith(":auto") else ""
        parts.append(
            paragraph(
                f"{method} does not read {' and '.join(names)}{own}: rows that differ in nothing "
                "else are the same.",
                width,
            )
        )
    return "\n".join(parts)


def agreement_report(agreement: pd.DataFrame, width: int) -> str:
    """Write how far judges agree, beside how far each agrees with itself."""
    keys = ["judge", "other", "differs"]
    figures = ["ari", "nmi", "tau_overall", "tau_query"]
    means = agreement.groupby(keys, sort=False)[figures].mean().reset_index()
    columns = [Column(name, means[name].tolist()) for name in keys]
    columns += [Column(name, [f"{value:.2f}" for value in means[name]]) for name in figures]
    return f"Agreement of judges:\n{format_table(columns, width)}"


def _keys(rows: pd.DataFrame, keys: list[str]) -> Iterator[tuple[str, list[Any]]]:
    if keys:
        unique = rows[keys].drop_duplicates()
        yield from ((name, unique[name].tolist()) for name in keys)


def _gain(index: pd.DataFrame, key: tuple[Any, ...]) -> str:
    try:
        found = index.loc[[key if len(key) > 1 else key[0]]].iloc[0]
    except KeyError:
        return "-"
    spread = "" if found["gain_sd"] != found["gain_sd"] else f" ±{found['gain_sd']:.1f}"
    return f"{found['gain']:.1f}{spread}"


def _shown(value: Any) -> str:
    if value is None or value == "" or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
