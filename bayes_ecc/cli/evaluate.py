"""`bayes-ecc evaluate`: methods on one data set, judged by held-out comparisons."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayes_ecc.cli.output import (
    Column,
    check_writable,
    definitions,
    format_table,
    paragraph,
    terminal_width,
    write_json,
)
from bayes_ecc.cli.protocol import (
    Splits,
    add_fit_options,
    add_split_options,
    check_frozen,
    fit_settings,
    read_methods,
)

_METHODS = """\
methods:
  global         one Bradley-Terry ranking for all queries: the baseline of every gain
  labels:COLUMN  one ranking for each value of a label column of the queries
  embedding      clusters of the embeddings alone
  comparisons    clusters of the comparisons alone
  ecc            Evidence-Calibrated Clustering: both together
  ecc:auto       the same; embedding weight, temperature and ridge chosen on training queries
  bayes          the Bayesian mixture, sampled; it has settings of its own
  bayes:embedding  the same, its settings chosen for queries of which only the embedding is known

examples:
  bayes-ecc evaluate data/routerdc --methods global,labels:task,ecc,ecc:auto --seeds 5
  bayes-ecc evaluate data/mmlu_pro --clusters 20 --embedding-weight 0.6 --json result.json
  bayes-ecc evaluate data/routerdc --frozen protocol/routerdc --seeds 5
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "evaluate",
        help="fit methods on a data set and compare their gains on held-out queries",
        description="Fit methods on the training queries of a data set and judge them by how well\n"
        "they predict the comparisons of held-out queries.",
        epilog=_METHODS,
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
        "--methods",
        action="append",
        metavar="A,B",
        help="methods, see below (default: global,embedding,comparisons,ecc)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")

    add_fit_options(parser)
    add_split_options(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate, print the table, write the JSON."""
    from bayes_ecc.evaluation import evaluate
    from bayes_ecc.folders import load_bundle

    if args.json is not None:
        check_writable(args.json, "--json", "JSON", [args.bundle, args.frozen])
    check_frozen(args)
    bundle = load_bundle(args.bundle)
    splits = Splits.read(args, bundle)
    result = evaluate(
        bundle,
        splits.of(bundle),
        read_methods(args.methods, "global,embedding,comparisons,ecc", bundle),
        fit_settings(args),
        protocol=splits.details(),
        progress=None,
    )
    if args.json is not None:
        write_json(result, args.json)
    print(report(result, terminal_width()))
    return 0


# -------------------------------------------------------------------- the report


def report(result: Mapping[str, Any], width: int) -> str:
    """Write the outcome of `evaluate` for a reader at a terminal."""
    methods = result["methods"]
    interval = result["protocol"]["interval"]
    both = {name: figures["embedding+probe"] for name, figures in methods.items()}

    def gains(signal: str) -> list[str]:
        return [f"{figures[signal]['gain']['mean']:.1f}" for figures in methods.values()]

    sd = [figures["gain"]["sd"] for figures in both.values()]
    columns = [
        Column("method", list(methods)),
        Column("embedding", gains("embedding")),
        Column("probe", gains("probe")),
        Column("both", gains("embedding+probe")),
        Column(
            "apart",
            [
                "-" if math.isnan(gain := figures["gain_apart"]["mean"]) else f"{gain:.1f}"
                for figures in both.values()
            ],
            spare=True,
        ),
        Column(
            f"{100 * interval['prob']:.0f}% interval",
            ["{:.1f} to {:.1f}".format(*figures["gain_interval"]) for figures in both.values()],
            spare=True,
        ),
        Column("sd", ["-" if value is None else f"{value:.1f}" for value in sd], spare=True),
        Column("ECE", [f"{figures['ece']['mean']:.3f}" for figures in both.values()], spare=True),
        Column("seconds", [f"{f['seconds']:.1f}" for f in methods.values()], spare=True),
    ]
    several = len(sd) > 0 and sd[0] is not None
    meanings = {
        "embedding": "gain, if of a new query only its embedding is read: the percentage of the "
        "global ranking's loss on held-out comparisons that the method saves (0 is no better)",
        "probe": "the same, if only the query's probes are read: comparisons known beforehand",
        "both": "the same, if both are read",
        "apart": "the gain with both on comparisons that share no model with a probe of their "
        "query: on those that do, the probe tells an answer more than a kind of query",
        "interval": "of the gain with both, by resampling test queries"
        + ("; mean of the seeds' bounds" if several else ""),
        "sd": "standard deviation over seeds of the gain with both"
        + ("" if several else " (--seeds N runs several)"),
        "ECE": "calibration error with both: mean distance between the predicted and the observed "
        "chance of winning, 0 is perfect",
        "seconds": "of one fit with its predictions",
    }
    chosen = list(_choices(result))
    parts = [
        *(paragraph(line, width) for line in _heading(result)),
        "",
        format_table(columns, width),
        definitions(meanings, width),
        *(["", "Chosen on training queries:"] if chosen else []),
        *chosen,
    ]
    return "\n".join(parts)


def _heading(result: Mapping[str, Any]) -> list[str]:
    protocol, baseline = result["protocol"], result["global"]
    counts = protocol["counts"]
    seeds = [str(count["seed"]) for count in counts]
    several = len(seeds) > 1
    first = counts[0]
    left_out = first["dropped"].get("queries", 0)
    sizes = (
        f"{protocol['bundle']}: {first['models']} models, {first['train_queries']:,} training and "
        f"{first['test_queries']:,} test queries, {first['train_comparisons']:,} training, "
        f"{first['probes']:,} probe and {first['scored_comparisons']:,} held-out comparisons "
        f"({'seeds' if several else 'seed'} {', '.join(seeds)}"
        f"{'; counts are of the first' if several else ''})."
    )
    if left_out:
        sizes += f" {left_out:,} queries had too few comparisons and are left out."
    loss = (
        f"One global ranking: loss {baseline['loss']:.3f} nats a comparison, ECE "
        f"{baseline['ece']:.3f}."
    )
    return [sizes, loss]


def _choices(result: Mapping[str, Any]) -> Iterator[str]:
    """Tell what was chosen where a setting was left to `auto`."""
    names = ("embedding_weight", "temperature", "ridge")
    free = any(result["protocol"][name] == "auto" for name in names)
    for method, figures in result["methods"].items():
        if figures["settings"][0] and (free or method.endswith(":auto")):
            for count, settings in zip(
                result["protocol"]["counts"], figures["settings"], strict=True
            ):
                chosen = ", ".join(f"{name.replace('_', ' ')} {settings[name]:g}" for name in names)
                yield f"  {method}, seed {count['seed']}: {chosen}."
