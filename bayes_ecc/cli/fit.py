"""`bayes-ecc fit`: fit a data set whole and keep the fit in a file."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.options import add_seed, given, listed, number_or_auto, whole
from bayes_ecc.cli.output import check_writable, complain, paragraph, terminal_width
from bayes_ecc.cli.protocol import add_bayes_options

if TYPE_CHECKING:
    from bayes_ecc.bundle import Bundle
    from bayes_ecc.comparisons import Comparisons

_CLUSTERS = 30
_OF_ECC = ("embedding_weight", "temperature", "ridge")


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "fit",
        help="fit all queries of a data set and save the fit",
        description="Fit all queries of a data set, by EM or with a posterior, and save the fit\n"
        "for `bayes-ecc rank` and for load_posterior in Python.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("bundle", metavar="BUNDLE", type=Path, help="folder of the data set")
    parser.add_argument(
        "--method", choices=("ecc", "bayes"), default="bayes", help="(default bayes)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FIT", help="file to write")
    parser.add_argument(
        "--clusters",
        type=whole(1),
        metavar="K",
        help=f"number of clusters (default {_CLUSTERS}, or one for ten queries where that is less; "
        "1 for data without embeddings that have about one comparison a query, as these tell no "
        "kinds of query apart)",
    )
    ecc = parser.add_argument_group("ecc")
    for name in _OF_ECC:
        ecc.add_argument(
            f"--{name.replace('_', '-')}", type=number_or_auto, metavar="X", help="(default auto)"
        )
    add_bayes_options(parser)
    parser.add_argument(
        "--probes",
        type=whole(0),
        metavar="N",
        help="comparisons that will be known of a new query, for which bayes chooses what is auto; "
        "0 for predictions from embeddings alone (default 1, where queries have some to spare)",
    )
    data = parser.add_argument_group("data")
    add_seed(data, "of the draw of comparisons and of the fit (default 0)")
    data.add_argument(
        "--per-query",
        type=whole(1),
        default=7,
        metavar="N",
        help="comparisons drawn a query from a score table (default 7)",
    )
    data.add_argument(
        "--exclude-models",
        action="append",
        default=[],
        metavar="A,B",
        help="models to leave out; may be repeated",
    )
    data.add_argument(
        "--source",
        choices=("scores", "comparisons"),
        help="which table to use, where the bundle has both",
    )


def run(args: argparse.Namespace) -> int:
    """Fit, save, and say what was fitted and how far it can be trusted."""
    import numpy as np

    from bayes_ecc.folders import load_bundle
    from bayes_ecc.storage import save_posterior

    check_writable(args.out, "--out", "fit", [args.bundle])
    bundle = load_bundle(args.bundle)
    rng = np.random.default_rng(args.seed)
    from_table = bundle.scores is None or args.source == "comparisons"
    comparisons = bundle.draw_comparisons(
        per_query=args.per_query,
        min_per_query=1 if from_table else 2,
        exclude_models=listed(args.exclude_models, lambda name: name in bundle.models),
        rng=rng,
        source=args.source,
    )
    embeddings = None
    if bundle.embeddings is not None:
        embeddings = bundle.embeddings_for(comparisons.queries)
    else:
        complain(
            "note: the data have no embeddings, so kinds of query are told apart by their "
            "comparisons alone."
        )
        if args.method == "ecc" and args.embedding_weight not in (None, "auto", 0):
            complain(
                f"note: --embedding-weight {args.embedding_weight:g}: without effect, as the data "
                "have no embeddings."
            )
    if args.method != "ecc" and given(args, _OF_ECC):
        names = ", ".join(given(args, _OF_ECC))
        complain(f"note: {names}: without effect, being of --method ecc, not of {args.method}.")
    clusters = args.clusters or _number_of_clusters(bundle, comparisons)
    estimator = _estimator(args, clusters, rng).fit(comparisons, embeddings)
    estimator.posterior_.attrs["command"] = shlex.join(["bayes-ecc", *args.argv])
    save_posterior(estimator.posterior_, args.out)
    width = terminal_width()
    settings = ", ".join(f"{name} {value:g}" for name, value in estimator.settings_.items())
    print(paragraph(f"{comparisons}", width))
    print(paragraph(f"{type(estimator).__name__}: {settings}.", width))
    if hasattr(estimator, "diagnosis_"):
        print()
        print(estimator.diagnosis_)
        print()
    print(
        paragraph(f"Saved to {args.out}; `bayes-ecc rank {args.out} --cluster 0` reads it.", width)
    )
    return 0


def _number_of_clusters(bundle: Bundle, comparisons: Comparisons) -> int:
    """Choose a number of clusters that the data can bear."""
    if bundle.embeddings is None and len(comparisons) < 2 * comparisons.n_queries:
        return 1
    return max(1, min(_CLUSTERS, comparisons.n_queries // 10))


def _estimator(args: argparse.Namespace, clusters: int, rng: Any) -> Any:
    if args.method == "ecc":
        from bayes_ecc.ecc import ECC

        chosen: dict[str, Any] = {
            name: "auto" if getattr(args, name) is None else getattr(args, name) for name in _OF_ECC
        }
        return ECC(clusters, rng=rng, **chosen)
    from bayes_ecc.bayesian import BayesianECC

    return BayesianECC(
        clusters,
        concentration=args.concentration,
        evidence_power=args.evidence_power,
        probe_power=args.probe_power,
        n_probes=args.probes,
        starts=args.starts,
        chains=args.chains,
        draws=args.draws,
        rng=rng,
    )
