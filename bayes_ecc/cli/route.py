"""`bayes-ecc route`: send test queries to models, and compare ways of choosing them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.options import number, whole
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

if TYPE_CHECKING:
    from bayes_ecc.routing_tasks import Undecided

_POLICIES = """\
protocols:
  published  test queries with a decisive comparison, which is known and free. With scores of 0 and
             1 its winner is right for certain: hold everything against `probe winner`
  honest     all queries that were not trained on; the pair of a probe is drawn blind, a tie tells
             nothing, and its two calls are paid (going to a model already called is free)

policies of a method M, from its posterior:
  M          highest mean predicted quality, from the embedding alone
  M:p_best, M:thompson, M:upper, M:lower   by other readings of the draws
  M:sharp    embeddings read as sharply as pays on training queries
  M:score    highest expected score under the model of scores
  M+probe    with the protocol's probe, its outcome alone seen
  M+outcome  with the pair of the highest value, its outcome alone seen
  M+scores, M+fixed, M+value   both scores of a pair seen: the protocol's, the two best models, the
             pair of the highest value
  M+stop     as M+value, but only where the probe is worth its calls at --price

examples:
  bayes-ecc route data/routerdc --protocol published --methods labels:task,ecc --embedding-weight 1
  bayes-ecc route data/mmlu_pro --protocol honest --frozen protocol/mmlu_pro --json result.json
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "route",
        help="route held-out queries to models and compare policies with baselines",
        description="Fit methods on the training queries of a data set with scores, send each\n"
        "test query to a model, and compare what scores that gets and what it costs.",
        epilog=_POLICIES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder of the data set")
    parser.add_argument(
        "--protocol",
        choices=("published", "honest"),
        default="honest",
        help="see below (default honest)",
    )
    parser.add_argument(
        "--methods",
        action="append",
        metavar="A,B",
        help="methods of `bayes-ecc evaluate` (default: embedding,comparisons,ecc,bayes); "
        "labels:COLUMN adds the best model of each label",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    parser.add_argument(
        "--price",
        type=number,
        default=0.05,
        metavar="P",
        help="quality that a unit of cost (a call, unless the data have costs) is worth to M+stop "
        "(default 0.05)",
    )
    parser.add_argument(
        "--undecided",
        choices=("test", "share"),
        help="honest protocol: test on all queries with too few decisive comparisons to train on, "
        "or on their share, giving the others' scores to training (default: test with --frozen, "
        "else share)",
    )
    parser.add_argument(
        "--resamples",
        type=whole(2),
        default=1000,
        metavar="N",
        help="bootstrap resamples of the test queries (default 1000)",
    )

    add_fit_options(parser)
    # a routing study takes its comparisons from scores, and one probe a query
    add_split_options(
        parser,
        drawing=("per_query", "test_size"),
        drawn="the draw, the split, the probes and the fits",
    )


def run(args: argparse.Namespace) -> int:
    """Route, print the table, write the JSON."""
    from bayes_ecc.errors import InputError
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.routing_study import study_routing

    if args.json is not None:
        check_writable(args.json, "--json", "JSON", [args.bundle, args.frozen])
    check_frozen(args)
    bundle = load_bundle(args.bundle)
    if bundle.scores is None:
        raise InputError(
            f"{args.bundle} has no scores; routing is judged by the score of the model that a "
            "query was sent to."
        )
    splits = Splits.read(args, bundle, source="scores")
    methods = read_methods(args.methods, "embedding,comparisons,ecc,bayes", bundle)
    undecided: Undecided = args.undecided or ("test" if args.frozen is not None else "share")
    result = study_routing(
        bundle,
        splits.of(bundle),
        methods,
        fit_settings(args),
        protocol=args.protocol,
        undecided=undecided,
        price=args.price,
        n_resamples=args.resamples,
        details={"methods": methods, **splits.details()},
        progress=None,
    )
    if args.json is not None:
        write_json(result, args.json)
    print(report(result, terminal_width()))
    return 0


# -------------------------------------------------------------------- the report


def report(result: Mapping[str, Any], width: int) -> str:
    """Write the outcome of `study_routing` for a reader at a terminal."""
    protocol, policies = result["protocol"], result["policies"]
    prob = f"{100 * protocol['interval']['prob']:.0f}% interval"
    rows = list(policies.values())
    columns = [
        Column("policy", list(policies)),
        Column("quality", [f"{row['quality']:.3f}" for row in rows]),
        Column("calls", [f"{row['calls']:.2f}" for row in rows]),
        Column("oracle share", [f"{row['oracle_share']:.2f}" for row in rows]),
        Column("over global", [f"{row['over_global']:+.3f}" for row in rows]),
        Column(prob, [_interval(row, "over_global", "+.3f") for row in rows], spare=True),
        Column("over winner", [f"{row['over_probe_winner']:+.3f}" for row in rows], spare=True),
        Column("cost", [f"{row['cost']:.2f}" for row in rows], spare=True),
    ]
    meanings = {
        "quality": "mean score of the models that the test queries were sent to",
        "calls": "of models a query"
        + (", the probe's being free" if protocol["name"] == "published" else ""),
        "oracle share": "of the way from the one best model (global) to the best model of every "
        "query (oracle)",
        "over global": "quality less that of the one best model; its interval by resampling test "
        "queries, the same for both",
        "over winner": "quality less that of going to the probe's winner, else to the one best",
        "cost": "a query, "
        + ("one a call" if protocol["costs"] == "calls" else "in the unit of the data"),
    }
    parts = [paragraph(_heading(protocol), width), "", format_table(columns, width)]
    parts.append(definitions(meanings, width))
    parts.extend(_curves(result, width))
    return "\n".join(parts)


def _interval(row: Mapping[str, Any], metric: str, form: str) -> str:
    low, high = row["interval"][metric]
    return f"{low:{form}} to {high:{form}}"


def _heading(protocol: Mapping[str, Any]) -> str:
    counts = protocol["counts"]
    first = counts[0]
    seeds = ", ".join(str(count["seed"]) for count in counts)
    text = (
        f"{protocol['bundle']}, {protocol['name']} protocol: {first['models']} models, "
        f"{first['train_queries']:,} training and {first['test_queries']:,} test queries, "
        f"{first['decided_probes']:,} of the probes decided "
        f"({'seeds' if len(counts) > 1 else 'seed'} {seeds}"
        f"{'; counts are of the first' if len(counts) > 1 else ''})."
    )
    missing = first["left_out"].get("missing_scores", 0)
    if missing:
        text += f" {missing:,} test queries lack a score and are left out."
    return text


def _curves(result: Mapping[str, Any], width: int) -> list[str]:
    """Tell of probing at several prices, and of the calibration of predicted quality."""
    lines = []
    several = len(result["protocol"]["counts"]) > 1
    of_first = f", seed {result['protocol']['counts'][0]['seed']}" if several else ""
    for method, curve in result["probing"].items():
        columns = [
            Column(
                f"{method}{of_first}, price of a unit of cost",
                [f"{point['price']:g}" for point in curve],
            ),
            Column("quality", [f"{point['quality']:.3f}" for point in curve]),
            Column("calls", [f"{point['calls']:.2f}" for point in curve]),
            Column("cost", [f"{point['cost']:.2f}" for point in curve], spare=True),
        ]
        lines += ["", format_table(columns, width)]
    found = result["calibration"]["quality"]
    if found:
        gaps = ", ".join(
            f"{name} {one['expected'] - one['realised']:+.3f}" for name, one in found.items()
        )
        text = f"Predicted quality of the chosen models less what they got{of_first}: {gaps}."
        if result["protocol"]["undecided"] == "test":
            text += (
                " Queries with too few decisive comparisons are all among the test queries here "
                "and none among the training queries, so predictions are off by how much they "
                "differ; with --undecided share both sides are alike."
            )
        lines += ["", paragraph(text, width)]
    return lines
