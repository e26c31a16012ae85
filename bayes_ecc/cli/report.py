"""`bayes-ecc report`: a saved fit as one HTML file, for people who do not run Python."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from bayes_ecc.cli.options import add_seed, given, listed, whole
from bayes_ecc.cli.output import check_writable, complain, paragraph, terminal_width
from bayes_ecc.errors import InputError

_EXAMPLES = """\
examples:
  bayes-ecc report fit.nc --out report.html
  bayes-ecc report fit.nc --out report.html --bundle data/routerdc --evaluation result.json
  bayes-ecc report fit.nc --out report.html --bundle data/routerdc --evaluate --seeds 3
"""
_OF_EVALUATE = ("methods", "seeds")
_TYPICAL = 5


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "report",
        help="write a saved fit as one HTML file: data, clusters, methods, diagnostics",
        description="Write a report of a saved fit: one HTML file that needs nothing else, loads\n"
        "nothing, and can be sorted, searched and printed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("fit", metavar="FIT", type=Path, help="file that `bayes-ecc fit` wrote")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="HTML file to write"
    )
    parser.add_argument(
        "--bundle",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="BUNDLE",
        help="folder of the data that were fitted, for query texts, labels and an audit of "
        "everything; may be several",
    )
    parser.add_argument("--title", metavar="TEXT", help="title (default: it names the data)")
    parser.add_argument(
        "--typical",
        type=whole(0),
        default=_TYPICAL,
        metavar="N",
        help=f"typical queries shown of each cluster (default {_TYPICAL})",
    )
    parser.add_argument(
        "--no-figures", action="store_true", help="leave the figures out: a smaller file, faster"
    )
    methods = parser.add_argument_group("comparison of methods on held-out queries")
    which = methods.add_mutually_exclusive_group()
    which.add_argument(
        "--evaluation",
        type=Path,
        metavar="FILE",
        help="show what `bayes-ecc evaluate --json FILE` found",
    )
    which.add_argument(
        "--evaluate",
        action="store_true",
        help="evaluate now, on the first bundle, with as many clusters as the fit has; may take "
        "minutes",
    )
    methods.add_argument(
        "--methods",
        action="append",
        metavar="A,B",
        help="methods to evaluate, as `bayes-ecc evaluate` names them (default "
        "global,ecc:auto,bayes, and labels:COLUMN with the first label column of 2 to 30 values)",
    )
    add_seed(methods, "of the first split to evaluate on (default 0)")
    methods.add_argument(
        "--seeds", type=whole(1), metavar="N", help="evaluate on seeds S to S+N-1 (default 1)"
    )


def run(args: argparse.Namespace) -> int:
    """Read the fit and the data, evaluate if asked to, write the report."""
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.report import write_report
    from bayes_ecc.report.held_out import evaluate_beside
    from bayes_ecc.storage import load_posterior

    check_writable(args.out, "--out", "HTML", [args.fit, args.evaluation, *(args.bundle or [])])
    if args.evaluate and not args.bundle:
        raise InputError("--evaluate needs --bundle: the data to fit and to hold queries out of.")
    without_effect = [] if args.evaluate else given(args, _OF_EVALUATE)
    if without_effect:
        complain(f"note: {', '.join(without_effect)}: without effect, as --evaluate is not given.")
    evaluation: Any = args.evaluation
    if args.evaluate:
        evaluation = evaluate_beside(
            load_posterior(args.fit),
            load_bundle(args.bundle[0]),
            listed(args.methods, lambda _: False) if args.methods else None,
            seeds=range(args.seed, args.seed + (args.seeds or 1)),
            progress=None,
        )
    path = write_report(
        args.fit,
        args.out,
        bundles=args.bundle,
        evaluation=evaluation,
        title=args.title,
        typical=args.typical,
        figures=not args.no_figures,
        command=_command(args),
    )
    size = f"{path.stat().st_size / 1000:,.0f} kB"
    print(paragraph(f"Written to {path} ({size}); any browser opens it.", terminal_width()))
    return 0


def _command(args: argparse.Namespace) -> str:
    """Write the command out again."""
    words = ["bayes-ecc", "report", str(args.fit), "--out", str(args.out)]
    if args.bundle:
        words += ["--bundle", *map(str, args.bundle)]
    for name in ("title", "evaluation"):
        if getattr(args, name) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    if args.typical != _TYPICAL:
        words += ["--typical", str(args.typical)]
    if args.no_figures:
        words.append("--no-figures")
    if args.evaluate:
        words.append("--evaluate")
        for value in args.methods or []:
            words += ["--methods", value]
        words += ["--seed", str(args.seed), *(["--seeds", str(args.seeds)] if args.seeds else [])]
    return shlex.join(words)
