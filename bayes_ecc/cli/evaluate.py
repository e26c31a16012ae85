"""`bayes-ecc evaluate`: methods on one data set, judged by held-out comparisons."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.options import add_seed, given, listed, number, number_or_auto, whole
from bayes_ecc.cli.output import (
    Column,
    check_writable,
    complain,
    definitions,
    format_table,
    paragraph,
    terminal_width,
    write_json,
)
from bayes_ecc.errors import InputError

if TYPE_CHECKING:
    from bayes_ecc.bundle import Bundle
    from bayes_ecc.splits import Split

DRAWING: Mapping[str, Any] = {"per_query": 7, "test_size": 0.2, "probes": 1, "source": None}
"""Options that say how to draw a split, and their defaults; a frozen split has been drawn."""

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

    fits = parser.add_argument_group("fits")
    fits.add_argument(
        "--clusters", type=whole(1), default=30, metavar="K", help="number of clusters (default 30)"
    )
    fits.add_argument(
        "--embedding-weight",
        type=number_or_auto,
        default=3.0,
        metavar="W",
        help="of ecc, and with which comparison-only clusters are read at prediction (default 3)",
    )
    fits.add_argument(
        "--embedding-only-weight",
        type=number,
        default=3.0,
        metavar="W",
        help="of embedding-only clusters (default 3)",
    )
    fits.add_argument(
        "--temperature",
        type=number_or_auto,
        default=0.1,
        metavar="T",
        help="softness of the clusters (default 0.1)",
    )
    fits.add_argument(
        "--ridge",
        type=number_or_auto,
        default=1.0,
        metavar="R",
        help="pull of a cluster's strengths to zero (default 1); any of weight, temperature and "
        "ridge may be `auto`: chosen on training queries",
    )

    add_bayes_options(parser)

    data = parser.add_argument_group("comparisons, split and probes")
    add_seed(data, "of the draw, the split and the fits (default 0)")
    data.add_argument(
        "--seeds", type=whole(1), default=1, metavar="N", help="run seeds S to S+N-1 (default 1)"
    )
    data.add_argument(
        "--exclude-models",
        action="append",
        default=[],
        metavar="A,B",
        help="models to leave out; may be repeated, and a name with commas given on its own",
    )
    data.add_argument(
        "--per-query",
        type=whole(1),
        metavar="N",
        help="comparisons drawn a query from a score table (default 7)",
    )
    data.add_argument(
        "--test-size", type=number, metavar="SHARE", help="share of test queries (default 0.2)"
    )
    data.add_argument(
        "--probes",
        type=whole(0),
        metavar="N",
        help="comparisons known of each test query at prediction time (default 1)",
    )
    data.add_argument(
        "--source",
        choices=("scores", "comparisons"),
        help="which table to use, where the bundle has both",
    )
    data.add_argument(
        "--frozen",
        type=Path,
        metavar="FOLDER",
        help="take comparisons, split and probes from FOLDER/seed_S.parquet instead of drawing "
        "them (columns query_id, model_a, model_b, winner, split, probe)",
    )


def add_bayes_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the Bayesian mixture."""
    bayes = parser.add_argument_group("bayes")
    bayes.add_argument(
        "--concentration",
        type=number_or_auto,
        default="auto",
        metavar="C",
        help="what multiplies the cosine of embedding and centroid (default auto)",
    )
    bayes.add_argument(
        "--evidence-power",
        type=number,
        default=1.0,
        metavar="P",
        help="what multiplies a training comparison's log-likelihood (default 1)",
    )
    bayes.add_argument(
        "--probe-power",
        type=number_or_auto,
        default="auto",
        metavar="P",
        help="what multiplies a probe's log-likelihood (default auto)",
    )
    bayes.add_argument(
        "--starts",
        choices=("independent", "em"),
        default="independent",
        help="chains from starts of their own, weighted, or all from one (default independent)",
    )
    bayes.add_argument("--chains", type=whole(1), default=4, metavar="N", help="chains (default 4)")
    bayes.add_argument(
        "--draws", type=whole(1), default=500, metavar="N", help="draws a chain (default 500)"
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate, print the table, write the JSON."""
    from bayes_ecc.evaluation import EvaluationSettings, evaluate
    from bayes_ecc.folders import load_bundle

    seeds = range(args.seed, args.seed + args.seeds)
    if args.json is not None:
        check_writable(args.json, "--json")
    if args.frozen is not None:
        check_frozen(args, seeds)
    bundle = load_bundle(args.bundle)
    excluded = listed(args.exclude_models, lambda name: name in bundle.models)
    drawing = {
        name: default if getattr(args, name) is None else getattr(args, name)
        for name, default in DRAWING.items()
    }
    result = evaluate(
        bundle,
        make_splits(bundle, args.frozen, seeds, excluded, drawing),
        read_methods(args.methods, bundle),
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
        protocol={
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


def check_frozen(args: argparse.Namespace, seeds: range) -> None:
    """Refuse a folder that lacks a seed's file; say which options have no effect."""
    if not args.frozen.is_dir():
        raise InputError(f"--frozen: there is no folder {args.frozen}.")
    for seed in seeds:
        if not _frozen_file(args.frozen, seed).is_file():
            raise InputError(
                f"--frozen: {args.frozen} has no seed_{seed}.parquet; seeds {seeds[0]} to "
                f"{seeds[-1]} were asked for (--seed, --seeds)."
            )
    without_effect = given(args, DRAWING)
    if without_effect:
        complain(
            f"note: {', '.join(without_effect)}: without effect, since a frozen split has been "
            "drawn already."
        )


def _frozen_file(folder: Path, seed: int) -> Path:
    return folder / f"seed_{seed}.parquet"


def make_splits(
    bundle: Bundle,
    frozen: Path | None,
    seeds: range,
    excluded: list[str],
    drawing: Mapping[str, Any],
) -> Iterator[Split]:
    """Make one split a seed, each when it is wanted."""
    from bayes_ecc.splits import draw_split, frozen_split

    for seed in seeds:
        if frozen is not None:
            yield frozen_split(
                bundle, _frozen_file(frozen, seed), seed=seed, exclude_models=excluded
            )
        else:
            yield draw_split(
                bundle,
                seed=seed,
                per_query=drawing["per_query"],
                test_size=drawing["test_size"],
                n_probes=drawing["probes"],
                exclude_models=excluded,
                source=drawing["source"],
            )


def read_methods(values: list[str] | None, bundle: Bundle) -> list[str]:
    """Read the names of methods, separated by commas."""
    from bayes_ecc.evaluation import check_method

    def is_method(name: str) -> bool:
        try:
            check_method(name, bundle)
        except InputError:
            return False
        return True

    methods = listed(values or ["global,embedding,comparisons,ecc"], is_method)
    if not methods:
        raise InputError("--methods is empty; name one method or more.")
    return methods


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
