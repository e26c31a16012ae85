"""`bayes-ecc convert`: a data set as it was published, read into a bundle on disk."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.output import paragraph, terminal_width
from bayes_ecc.datasets.layouts import LAYOUTS, Option
from bayes_ecc.errors import InputError

if TYPE_CHECKING:
    from bayes_ecc.datasets.loaded import Loaded

_EXAMPLES = """\
examples:
  bayes-ecc convert mmlu_pro eval_results/ data/mmlu_pro
  bayes-ecc convert score_matrix scores.csv data/mine --labels difficulty
  bayes-ecc convert long_table votes.csv data/votes --columns query_id=q --winners A=model_a
  bayes-ecc convert mt_bench gpt-4_pair.jsonl data/mt_bench --orders separate --format csv

`bayes-ecc convert LAYOUT --help` tells a layout's options. Pickles are never loaded.
"""

_OF_COMPARISONS = ("query_id", "model_a", "model_b", "winner", "outcome", "weight")
_MANY = 12  # more names than these are counted, not listed


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command, with a parser a layout."""
    parser = subparsers.add_parser(
        "convert",
        help="turn a published data set into a bundle, and account for every row",
        description="Read a data set in one of the layouts in which they are published and write "
        "it as a bundle: a folder with queries, scores or comparisons, and costs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    layouts = parser.add_subparsers(title="layouts", metavar="LAYOUT", required=True)
    for name, layout in LAYOUTS.items():
        one = layouts.add_parser(
            name,
            help=layout.summary,
            description=f"{layout.summary[0].upper()}{layout.summary[1:]}.",
            allow_abbrev=False,
        )
        one.add_argument("source", metavar="SOURCE", type=Path, help="file or folder to read")
        one.add_argument("out", metavar="OUT", type=Path, help="folder to write, new or empty")
        one.add_argument(
            "--format",
            choices=("parquet", "csv"),
            default="parquet",
            help="how to write the tables (default parquet)",
        )
        for keyword, option in layout.options.items():
            _add_option(one, keyword, option)
        one.set_defaults(run=run, layout=name)


def run(args: argparse.Namespace) -> int:
    """Read, write, and tell what became of the rows."""
    from bayes_ecc.folders import save_bundle

    _check_empty(args.out)
    layout = LAYOUTS[args.layout]
    given = {
        keyword: _value(getattr(args, keyword), keyword, option)
        for keyword, option in layout.options.items()
        if getattr(args, keyword) is not None
    }
    loaded = layout.load(args.source, **given)
    folder = save_bundle(loaded.bundle, args.out, format=args.format)
    print(report(loaded, folder, terminal_width(), labels="labels" in layout.options))
    return 0


def _add_option(parser: argparse.ArgumentParser, keyword: str, option: Option) -> None:
    settings: dict[str, Any] = {"help": option.help}
    if option.choices:
        settings["choices"] = option.choices
    elif option.kind == "prices":
        settings |= {"metavar": "FILE", "type": Path}
    elif option.kind in ("list", "pairs"):
        settings["metavar"] = "NAME=VALUE" if option.kind == "pairs" else "NAME"
        settings |= {"action": "append", "help": f"{option.help}; may be repeated"}
    else:
        settings["metavar"] = "NAME"
    parser.add_argument(f"--{keyword}", **settings)


def _value(value: Any, keyword: str, option: Option) -> Any:
    """Turn what was given in words into what the loader takes."""
    if option.kind == "pairs":
        wrong = [pair for pair in value if "=" not in pair]
        if wrong:
            raise InputError(f"--{keyword} {wrong[0]}: give NAME=VALUE.")
        return dict(pair.split("=", 1) for pair in value)
    if option.kind == "prices":
        return _prices(value, keyword)
    return value


def _prices(path: Path, keyword: str) -> dict[str, Any]:
    try:
        prices = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"--{keyword}: {path} cannot be read as JSON ({error}).") from None
    if not isinstance(prices, dict):
        raise InputError(f'--{keyword}: {path} must hold {{"LLM": [input, output], ...}}.')
    return prices


def _check_empty(folder: Path) -> None:
    """Refuse a folder that holds anything, before the work is done."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise InputError(f"{folder} cannot be listed: {error.strerror or error}.") from None
    if taken:
        kind = "holds files already" if folder.is_dir() else "is a file"
        raise InputError(f"{folder} {kind}; give a new or an empty folder.")


def report(loaded: Loaded, folder: Path, width: int, *, labels: bool = False) -> str:
    """Write what was read and what became of it; `labels` tells whether there is such an option."""
    bundle, counts = loaded.bundle, loaded.counts
    known = [str(name) for name in bundle.queries.columns if name not in ("query_id", "text")]
    tables = [
        f"{len(table):,} {what}"
        for table, what in (
            (bundle.scores, "rows of scores"),
            (bundle.comparisons, "comparisons"),
            (bundle.costs, "rows of costs"),
        )
        if table is not None
    ]
    texts = "yes" if "text" in bundle.queries.columns else "no"
    size = f"{len(bundle.queries):,} queries, {len(bundle.models):,} models"
    lines = [
        f"{counts}.",
        f"{folder}: {size}, {', '.join(tables)}.",
        f"models: {_listed(list(bundle.models))}",
        f"labels: {_listed(known) or 'none'}; texts: {texts}",
        *_beside(loaded, labels),
    ]
    return "\n".join(paragraph(line, width) for line in lines)


def _beside(loaded: Loaded, labels: bool) -> Iterator[str]:
    """Tell which columns stayed with the comparisons, and which of them could be labels."""
    table = loaded.bundle.comparisons
    if table is None:
        return
    others = [str(name) for name in table.columns if name not in _OF_COMPARISONS]
    if not others:
        return
    yield f"columns that stay with the comparisons and are not read: {_listed(others)}"
    same = (table.groupby("query_id")[others].nunique(dropna=False) <= 1).all()
    fitting = [name for name in others if same[name]]
    if labels and fitting:
        options = " ".join(f"--labels {shlex.quote(name)}" for name in fitting[:_MANY])
        yield f"({options} makes labels of the queries of what says something of them)"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MANY:,} more" if len(names) > _MANY else ""
    return ", ".join(names[:_MANY]) + more
