"""What commands share that fit methods on splits of a bundle: options of both."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bayes_ecc.cli.options import add_seed, given, listed, number, number_or_auto, whole
from bayes_ecc.cli.output import complain
from bayes_ecc.errors import InputError

if TYPE_CHECKING:
    from bayes_ecc.bundle import Bundle
    from bayes_ecc.evaluation import EvaluationSettings
    from bayes_ecc.splits import Split

DRAWING: Mapping[str, Any] = {"per_query": 7, "test_size": 0.2, "probes": 1, "source": None}
"""Options that say how to draw a split, and their defaults; a frozen split has been drawn."""

# -------------------------------------------------------------------- fits


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all methods; `fit_settings` reads them."""
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


def fit_settings(args: argparse.Namespace) -> EvaluationSettings:
    """Read the options of the methods."""
    from bayes_ecc.evaluation import EvaluationSettings

    return EvaluationSettings(
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
    )


def read_methods(values: list[str] | None, default: str, bundle: Bundle) -> list[str]:
    """Read the names of methods, separated by commas."""
    from bayes_ecc.evaluation import check_method

    def is_method(name: str) -> bool:
        try:
            check_method(name, bundle)
        except InputError:
            return False
        return True

    methods = listed(values or [default], is_method)
    if not methods:
        raise InputError("--methods is empty; name one method or more.")
    return methods


# -------------------------------------------------------------------- splits


def add_split_options(
    parser: argparse.ArgumentParser,
    *,
    drawing: tuple[str, ...] = ("per_query", "test_size", "probes", "source"),
    drawn: str = "the draw, the split and the fits",
) -> None:
    """Add the options of splits; `Splits.read` reads them.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    drawing : tuple of str
        Those of `DRAWING` that this command leaves open; the others keep their defaults.
    drawn : str
        What the seed decides.
    """
    data = parser.add_argument_group("comparisons, split and probes")
    add_seed(data, f"of {drawn} (default 0)")
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
    options: dict[str, dict[str, Any]] = {
        "per_query": {
            "type": whole(1),
            "metavar": "N",
            "help": "comparisons drawn a query from a score table (default 7)",
        },
        "test_size": {
            "type": number,
            "metavar": "SHARE",
            "help": "share of test queries (default 0.2)",
        },
        "probes": {
            "type": whole(0),
            "metavar": "N",
            "help": "comparisons known of each test query at prediction time (default 1)",
        },
        "source": {
            "choices": ("scores", "comparisons"),
            "help": "which table to use, where the bundle has both",
        },
    }
    for name, option in options.items():
        if name in drawing:
            data.add_argument(f"--{name.replace('_', '-')}", **option)
    parser.set_defaults(**{name: None for name in DRAWING if name not in drawing})
    data.add_argument(
        "--frozen",
        type=Path,
        metavar="FOLDER",
        help="take comparisons, split and probes from FOLDER/seed_S.parquet instead of drawing "
        "them (columns query_id, model_a, model_b, winner, split, probe)",
    )


class Splits(NamedTuple):
    """The splits that options ask for.

    Attributes
    ----------
    seeds : range
    frozen : Path or None
        Folder of splits that have been drawn.
    excluded : list of str
        Models to leave out.
    drawing : dict
        How to draw; of no effect on a frozen split.
    """

    seeds: range
    frozen: Path | None
    excluded: list[str]
    drawing: dict[str, Any]

    @classmethod
    def read(
        cls,
        args: argparse.Namespace,
        bundle: Bundle,
        *,
        source: Literal["scores", "comparisons"] | None = None,
    ) -> Splits:
        """Read the options, `source` in the place of one that the command does not have."""
        drawing = {
            name: default if getattr(args, name) is None else getattr(args, name)
            for name, default in DRAWING.items()
        }
        return cls(
            seeds=seeds_of(args),
            frozen=args.frozen,
            excluded=listed(args.exclude_models, lambda name: name in bundle.models),
            drawing={**drawing, "source": source or drawing["source"]},
        )

    def of(self, bundle: Bundle) -> Iterator[Split]:
        """Make one split a seed, each when it is wanted."""
        from bayes_ecc.splits import draw_split, frozen_split

        for seed in self.seeds:
            if self.frozen is not None:
                yield frozen_split(
                    bundle,
                    _frozen_file(self.frozen, seed),
                    seed=seed,
                    exclude_models=self.excluded,
                )
            else:
                yield draw_split(
                    bundle,
                    seed=seed,
                    per_query=self.drawing["per_query"],
                    test_size=self.drawing["test_size"],
                    n_probes=self.drawing["probes"],
                    exclude_models=self.excluded,
                    source=self.drawing["source"],
                )

    def details(self) -> dict[str, Any]:
        """Tell how the splits came about, for the result."""
        frozen = self.frozen is not None
        return {
            "seeds": list(self.seeds),
            "exclude_models": self.excluded,
            "frozen": str(self.frozen) if frozen else None,
            **(dict.fromkeys(self.drawing) if frozen else self.drawing),
        }


def seeds_of(args: argparse.Namespace) -> range:
    """Give the seeds to run."""
    return range(args.seed, args.seed + args.seeds)


def check_frozen(args: argparse.Namespace) -> None:
    """Refuse a folder that lacks a seed's file; say which options have no effect."""
    if args.frozen is None:
        return
    if not args.frozen.is_dir():
        raise InputError(f"--frozen: there is no folder {args.frozen}.")
    seeds = seeds_of(args)
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
