"""`bayes-ecc route`: send test queries to models, and compare ways of choosing them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.evaluate import (
    DRAWING,
    add_bayes_options,
    check_frozen,
    make_splits,
    read_methods,
)
from bayes_ecc.cli.options import add_seed, listed, number, number_or_auto, whole
from bayes_ecc.cli.output import (
    Column,
    check_writable,
    definitions,
    format_table,
    paragraph,
    terminal_width,
    write_json,
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

    fits = parser.add_argument_group("fits")
    fits.add_argument(
        "--clusters", type=whole(1), default=30, metavar="K", help="number of clusters (default 30)"
    )
    for name, default in (("embedding-weight", 3.0), ("temperature", 0.1), ("ridge", 1.0)):
        fits.add_argument(
            f"--{name}",
            type=number_or_auto,
            default=default,
            metavar="X",
            help=f"of ecc, or auto (default {default:g})",
        )
    fits.add_argument(
        "--embedding-only-weight",
        type=number,
        default=3.0,
        metavar="X",
        help="of embedding-only clusters (default 3)",
    )
    add_bayes_options(parser)

    data = parser.add_argument_group("comparisons, split and probes")
    add_seed(data, "of the draw, the split, the probes and the fits (default 0)")
    data.add_argument(
        "--seeds", type=whole(1), default=1, metavar="N", help="run seeds S to S+N-1 (default 1)"
    )
    data.add_argument(
        "--exclude-models",
        action="append",
        default=[],
        metavar="A,B",
        help="models to leave out; may be repeated",
    )
    data.add_argument(
        "--per-query",
        type=whole(1),
        metavar="N",
        help="comparisons drawn a query from the scores (default 7)",
    )
    data.add_argument(
        "--test-size", type=number, metavar="SHARE", help="share of test queries (default 0.2)"
    )
    data.add_argument(
        "--frozen",
        type=Path,
        metavar="FOLDER",
        help="take comparisons, split and probes from FOLDER/seed_S.parquet, as in `evaluate`",
    )
    # a routing study takes its comparisons from scores, and one probe a query
    parser.set_defaults(probes=None, source=None)


def run(args: argparse.Namespace) -> int:
    """Route, print the table, write the JSON."""
    from bayes_ecc.errors import InputError
    from bayes_ecc.evaluation import EvaluationSettings
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.routing_study import study_routing

    seeds = range(args.seed, args.seed + args.seeds)
    if args.json is not None:
        check_writable(args.json, "--json")
    if args.frozen is not None:
        check_frozen(args, seeds)
    bundle = load_bundle(args.bundle)
    if bundle.scores is None:
        raise InputError(
            f"{args.bundle} has no scores; routing is judged by the score of the model that a "
            "query was sent to."
        )
    excluded = listed(args.exclude_models, lambda name: name in bundle.models)
    drawing = {
        name: default if getattr(args, name) is None else getattr(args, name)
        for name, default in DRAWING.items()
    }
    drawing["source"] = "scores"
    methods = read_methods(args.methods or ["embedding,comparisons,ecc,bayes"], bundle)
    undecided: Undecided = args.undecided or ("test" if args.frozen is not None else "share")
    result = study_routing(
        bundle,
        make_splits(bundle, args.frozen, seeds, excluded, drawing),
        methods,
        EvaluationSettings(
            n_clusters=args.clusters,
            embedding_weight=args.embedding_weight,
            embedding_only_weight=args.embedding_only_weight,
            temperature=args.temperature,
            ridge=args.ridge,
            concentration=args.concentration,
            evidence_power=args.evidence_power,
            probe_power=args.probe_power,
            starts=args.starts,
            chains=args.chains,
            draws=args.draws,
        ),
        protocol=args.protocol,
        undecided=undecided,
        price=args.price,
        n_resamples=args.resamples,
        details={
            "methods": methods,
            "seeds": list(seeds),
            "exclude_models": excluded,
            "frozen": None if args.frozen is None else str(args.frozen),
            **(dict.fromkeys(drawing) if args.frozen is not None else drawing),
        },
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
