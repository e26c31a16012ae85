"""`bayes-ecc audit`: what is wrong with a data set, before anything is fitted to it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

FOUND_ERRORS = 1
"""Exit code where the data have an error."""

_EXAMPLES = """\
exit code: 0 without errors, 1 with errors, 2 where the data cannot be read

examples:
  bayes-ecc audit data/routerdc
  bayes-ecc audit data/mmlu_pro --labels category --json > audit.json
  bayes-ecc audit data/routerdc --split protocol/routerdc/seed_0.parquet
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "audit",
        help="look for defects of a data set that no estimator survives",
        description="Look for defects of a data set: gaps and ties, models never compared,\n"
        "repeated votes, effects of the order, scores or embeddings in wrong rows, leaks.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "bundle",
        metavar="BUNDLE",
        type=Path,
        help="folder with queries, scores or comparisons (parquet or csv), and embeddings.npy",
    )
    parser.add_argument(
        "--json", action="store_true", help="print everything as JSON instead of text"
    )
    parser.add_argument(
        "--labels",
        metavar="COLUMN",
        help="label column of the queries (default: all with few values)",
    )
    parser.add_argument(
        "--split",
        type=Path,
        metavar="FILE",
        help="look for leaks of this split: a parquet file as `evaluate --frozen` reads it",
    )
    parser.add_argument(
        "--fit",
        type=Path,
        metavar="FILE",
        help="look at the comparisons of each cluster of this saved fit",
    )


def run(args: argparse.Namespace) -> int:
    """Audit a bundle and print what was found."""
    from bayes_ecc.auditing import audit
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.storage import load_posterior

    bundle = load_bundle(args.bundle)
    fit = None if args.fit is None else load_posterior(args.fit)
    split = None
    if args.split is not None:
        from bayes_ecc.splits import frozen_split

        split = frozen_split(bundle, args.split)
    result = audit(bundle, fit=fit, labels=args.labels, split=split)
    print(result.to_json() if args.json else result)
    return 0 if result.ok else FOUND_ERRORS
