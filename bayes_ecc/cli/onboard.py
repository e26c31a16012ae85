"""`bayes-ecc onboard`: each model in turn is new, and finds its place by few comparisons."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from bayes_ecc.cli.options import listed, probability, whole
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
from bayes_ecc.errors import InputError

_RULES = """\
rules, by which the next comparisons are chosen:
  design     a query and an opponent expected to tell most of the newcomer's profile (or its rank,
             --goal rank), in batches
  published  a query at random, against the median-ranked model on it
  random     a query and an opponent at random

protocols:
  published  only pairs that are decided can be asked for, as in the published work
  honest     any pair can be asked for; a tie is paid for and tells nothing

examples:
  bayes-ecc onboard data/routerdc --methods ecc --embedding-weight 1 --ridge 0.1
  bayes-ecc onboard data/routerdc --newcomers codegemma-7b --budgets 10,25,50 --protocol honest
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "onboard",
        help="find each model's place among the others by few comparisons",
        description="Fit methods without one model, compare it with the others on training\n"
        "queries as far as a budget goes, and tell how well its test comparisons are predicted\n"
        "and whether the interval of its rank holds the rank found from all data. Each model in\n"
        "turn.",
        epilog=_RULES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder of the data set")
    parser.add_argument(
        "--methods",
        action="append",
        metavar="A,B",
        help="methods of `bayes-ecc evaluate` that have clusters (default: ecc,bayes)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")

    study = parser.add_argument_group("study")
    study.add_argument(
        "--protocol",
        choices=("published", "honest"),
        default="published",
        help="see below (default published)",
    )
    study.add_argument(
        "--rules",
        action="append",
        metavar="A,B",
        help="see below (default: design,published,random)",
    )
    study.add_argument(
        "--budgets",
        type=_budgets,
        default=tuple(range(10, 101, 10)),
        metavar="N,M",
        help="comparisons of a newcomer at which is told what is known (default 10,20,...,100)",
    )
    study.add_argument(
        "--newcomers",
        action="append",
        metavar="A,B",
        help="models to be new in turn; may be repeated (default: all)",
    )
    study.add_argument(
        "--goal",
        choices=("profile", "rank"),
        default="profile",
        help="what a design is to find out: win probabilities on all kinds of queries, or the "
        "overall rank (default profile)",
    )
    study.add_argument(
        "--batch",
        type=whole(1),
        default=5,
        metavar="N",
        help="comparisons between updates (default 5)",
    )
    study.add_argument(
        "--consider",
        type=whole(1),
        default=200,
        metavar="N",
        help="queries that a design chooses among each time (default 200)",
    )
    study.add_argument(
        "--known",
        type=whole(0),
        default=3,
        metavar="N",
        help="comparisons among old models known of each training query, at most (default 3)",
    )
    study.add_argument(
        "--prior",
        choices=("pool", "fit"),
        default="pool",
        help="take the newcomer for one more like the old models, or keep the fit's own prior "
        "(default pool)",
    )
    study.add_argument(
        "--level",
        type=probability,
        default=0.9,
        metavar="P",
        help="probability of the rank intervals (default 0.9)",
    )
    study.add_argument(
        "--repeats",
        type=whole(1),
        default=1,
        metavar="N",
        help="runs of each newcomer, method and rule (default 1)",
    )

    add_fit_options(parser)
    add_split_options(parser, drawn="the draw, the split, the fits and the runs")


def run(args: argparse.Namespace) -> int:
    """Run the study, print the tables, write the JSON."""
    from bayes_ecc.acquisition import RULES, Rule
    from bayes_ecc.folders import load_bundle
    from bayes_ecc.onboarding_study import study_onboarding

    if args.json is not None:
        check_writable(args.json, "--json", "JSON", [args.bundle, args.frozen])
    check_frozen(args)
    bundle = load_bundle(args.bundle)
    is_model = bundle.models.__contains__
    splits = Splits.read(args, bundle)
    newcomers = listed(args.newcomers, is_model) if args.newcomers else None
    for name in newcomers or []:
        if name in splits.excluded:
            raise InputError(
                f"--newcomers names {name!r}, which --exclude-models leaves out; take it from one "
                "of the two."
            )
    methods = read_methods(args.methods, "ecc,bayes", bundle)
    rules: Sequence[Rule] = RULES
    if args.rules:  # what is no rule is refused below
        rules = cast("Sequence[Rule]", listed(args.rules, RULES.__contains__))
    result = study_onboarding(
        bundle,
        splits.of(bundle),
        methods,
        fit_settings(args),
        rules=rules,
        budgets=args.budgets,
        protocol=args.protocol,
        goal=args.goal,
        batch=args.batch,
        consider=args.consider,
        known=args.known,
        prior=args.prior,
        newcomers=newcomers,
        repeats=args.repeats,
        level=args.level,
        details={"methods": methods, **splits.details()},
        progress=None,
    )
    if args.json is not None:
        write_json(result, args.json)
    print(report(result, terminal_width()))
    return 0


def _budgets(text: str) -> tuple[int, ...]:
    """Read ascending whole numbers, separated by commas."""
    read = whole(1)
    budgets = tuple(read(part.strip()) for part in text.split(","))
    if any(a >= b for a, b in pairwise(budgets)):
        raise argparse.ArgumentTypeError(f"{text!r}: give ascending numbers")
    return budgets


# -------------------------------------------------------------------- the report


def report(result: Mapping[str, Any], width: int) -> str:
    """Write the outcome of `study_onboarding` for a reader at a terminal."""
    protocol = result["protocol"]
    parts = [paragraph(_heading(result), width)]
    for method, curves in result["curves"].items():
        parts += ["", format_table(_columns(method, result, curves), width)]
        parts.extend(_reached(method, result, width))
    parts.extend(paragraph(note, width) for note in _shortfall(result))
    meanings = {
        "embedding": "median gain over the newcomers, in percent of the loss on their test "
        "comparisons of one global ranking that was given the same comparisons, if of a test "
        "query only the embedding is read",
        "both": "the same, if its probes among the old models are read, too",
        "loss": "mean loss with both, in nats a comparison; rules choose different comparisons "
        "for the global ranking as well, so compare rules by it",
        "covered": f"share of runs whose {100 * protocol['level']:.0f}% interval of the rank held "
        "the rank found from all training comparisons of the newcomer",
        "width": "ranks in the interval, on average",
    }
    return "\n".join([*parts, "", definitions(meanings, width)])


def _columns(
    method: str, result: Mapping[str, Any], curves: Mapping[str, Mapping[str, Any]]
) -> list[Column]:
    points = [(rule, budget) for rule in curves for budget in curves[rule]]
    intervals = [result["rank_intervals"][method][rule][budget] for rule, budget in points]
    both = [curves[rule][budget]["embedding+probe"] for rule, budget in points]
    alone = [curves[rule][budget]["embedding"] for rule, budget in points]
    return [
        Column(method, [rule for rule, _ in points]),
        Column("comparisons", [_asked(result, method, *point) for point in points]),
        Column("embedding", [f"{one['gain']:.1f}" for one in alone]),
        Column("both", [f"{one['gain']:.1f}" for one in both]),
        Column("loss", [f"{one['loss']:.3f}" for one in both]),
        Column("covered", [f"{100 * one['coverage']:.0f}%" for one in intervals]),
        Column("width", [f"{one['width']:.1f}" for one in intervals]),
    ]


def _asked(result: Mapping[str, Any], method: str, rule: str, budget: str | int) -> str:
    """Tell how many comparisons were asked for at a budget, on average over newcomers."""
    where = (method, rule, int(budget))
    asked = [
        run["asked"]
        for run in result["runs"]
        if (run["method"], run["rule"], run["budget"]) == where
    ]
    return f"{sum(asked) / len(asked):.0f}"


def _shortfall(result: Mapping[str, Any]) -> Iterator[str]:
    """Tell which budgets were more than could be asked for."""
    short = [run for run in result["runs"] if run["asked"] < run["budget"]]
    if short:
        budgets = ", ".join(map(str, sorted({run["budget"] for run in short})))
        few, many = min(run["asked"] for run in short), max(run["asked"] for run in short)
        most = f"{many:,}" if few == many else f"{few:,} to {many:,}"
        yield (
            f"--budgets {budgets}: more than can be asked for. A newcomer is compared once on a "
            f"training query, and only where an outcome is known: {most} comparisons. The tables "
            "show how many were asked for, on average over newcomers."
        )


def _reached(method: str, result: Mapping[str, Any], width: int) -> list[str]:
    """Tell when the other rules were as good as the published one in the end."""
    reached = result["reached"].get(method, {})
    end = max(result["protocol"]["budgets"])
    told = []
    for rule, by_signal in reached.items():
        if rule != "published":
            first = by_signal["embedding+probe"]["loss"]
            when = "not at all"
            if first is not None:
                when = f"with {_asked(result, method, rule, first)} comparisons"
            told.append(f"{rule} {when}")
    if not told:
        return []
    most = _asked(result, method, "published", end)
    text = f"As good as published with {most} (mean loss, both signals): {', '.join(told)}."
    return [paragraph(text, width)]


def _heading(result: Mapping[str, Any]) -> str:
    protocol = result["protocol"]
    counts = protocol["counts"]
    first = counts[0]
    newcomers = {run["newcomer"] for run in result["runs"]}
    seeds = ", ".join(str(count["seed"]) for count in counts)
    return (
        f"{protocol['bundle']}, {protocol['name']} protocol: {len(newcomers)} of "
        f"{first['models']} models new in turn, {first['train_queries']:,} training and "
        f"{first['test_queries']:,} test queries "
        f"({'seeds' if len(counts) > 1 else 'seed'} {seeds}"
        f"{'; counts are of the first' if len(counts) > 1 else ''})."
    )
