"""`bayes-ecc rank`: the models on a cluster or a query, and how sure their order is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayes_ecc.cli.options import whole
from bayes_ecc.cli.output import (
    Column,
    check_writable,
    format_table,
    paragraph,
    terminal_width,
    write_json,
)
from bayes_ecc.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

_EXAMPLES = """\
examples:
  bayes-ecc rank fit.nc --cluster 3
  bayes-ecc rank fit.nc --query mmlu-pro-70
  bayes-ecc rank fit.nc --text "Prove that ..." --encoder BAAI/bge-base-en-v1.5
"""


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "rank",
        help="rank the models on a cluster or a query of a saved fit, with intervals",
        description="Rank the models on one cluster, on one query of the fit, or on a new text.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("fit", metavar="FIT", type=Path, help="file that `bayes-ecc fit` wrote")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cluster", type=whole(0), metavar="K", help="number of a cluster")
    what.add_argument("--query", metavar="ID", help="a query that was fitted")
    what.add_argument("--text", metavar="T", help="a new query, to be encoded")
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="sentence-transformers model, name or folder, that made the fit's embeddings "
        "(for --text)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the table as JSON")


def run(args: argparse.Namespace) -> int:
    """Read the fit, rank, print the table."""
    from bayes_ecc.storage import load_posterior

    if args.json is not None:
        check_writable(args.json, "--json", "JSON", [args.fit])
    posterior = load_posterior(args.fit)
    if args.cluster is not None:
        table, title = _cluster(posterior, args.cluster)
    elif args.query is not None:
        table, title = _query(posterior, args.query)
    else:
        table, title = _text(posterior, args.text, args.encoder)
    ordered = table.isel(llm=table["win_probability"].values.argsort()[::-1])
    if args.json is not None:
        write_json(_records(ordered, title), args.json)
    print(report(ordered, title, terminal_width()))
    return 0


def _cluster(posterior: xr.DataTree, cluster: int) -> tuple[xr.Dataset, str]:
    from bayes_ecc.posterior import select_chain
    from bayes_ecc.rankings import summarize_cluster_ranking

    matched = bool(posterior.attrs.get("clusters_matched", 1))
    one = posterior if matched else select_chain(posterior)
    summary = summarize_cluster_ranking(one)
    if cluster not in summary["cluster"].values:
        raise InputError(
            f"--cluster {cluster}: the fit's clusters are numbered 0 to "
            f"{int(summary['cluster'].values.max())}."
        )
    table, title = summary.sel(cluster=cluster), f"Cluster {cluster}"
    if not matched:
        weights = posterior.children["constant_data"].to_dataset()["chain_weights"]
        chain = one["posterior"].coords["chain"].values[0]
        title += (
            f" of chain {chain}, the one with the largest weight ({float(weights.max()):.2f}); "
            "chains from starts of their own have clusters of their own"
        )
    return table, title


def _query(posterior: xr.DataTree, name: str) -> tuple[xr.Dataset, str]:
    from bayes_ecc.posterior import as_fitted, atoms, training_data
    from bayes_ecc.rankings import summarize_ranking

    comparisons, embeddings = training_data(posterior)
    known = comparisons.queries.map(str)
    position = known.get_indexer([name])
    if position[0] < 0:
        shown = ", ".join(known[:3])
        raise InputError(
            f"--query {name}: the fit has no such query; it has {len(known)}, such as {shown}."
        )
    summary = summarize_ranking(
        as_fitted(posterior), embeddings=embeddings[position], probes=comparisons.take(position)
    )
    read = "its embedding and its comparisons" if atoms(posterior).embedded else "its comparisons"
    return summary.isel(query=0), f"Query {name}, from {read}"


def _text(posterior: xr.DataTree, text: str, encoder: str | None) -> tuple[xr.Dataset, str]:
    from bayes_ecc.encoders import SentenceTransformerEncoder, encode
    from bayes_ecc.rankings import summarize_ranking

    if encoder is None:
        raise InputError(
            "--text needs --encoder: the sentence-transformers model that made the embeddings of "
            "the fit."
        )
    embeddings = encode([text], SentenceTransformerEncoder(encoder))
    return summarize_ranking(posterior, embeddings=embeddings).isel(query=0), "The text"


# -------------------------------------------------------------------- the report


def report(table: xr.Dataset, title: str, width: int) -> str:
    """Write a ranking for a reader at a terminal."""
    names = [str(name) for name in table["llm"].values]
    inside = table["in_best_set"].values.astype(bool)
    wins = [f"{v:.3f}" for v in table["win_probability"].values]
    if table.attrs.get("draws") == 1 and table.attrs.get("chains") == 1:
        columns = [
            Column("model", names),
            Column("mean win", wins),
            Column("rank", [f"{v:g}" for v in table["rank"].values]),
        ]
        point = (
            "mean win: chance of beating another model of the pool, averaged over them. This fit "
            "is a point estimate, which cannot say how sure its order is; `bayes-ecc fit --method "
            "bayes` can."
        )
        return "\n\n".join(
            [paragraph(f"{title}.", width), format_table(columns, width), paragraph(point, width)]
        )
    columns = [
        Column("model", names),
        Column("mean win", wins),
        Column(
            "interval",
            _intervals(table, "win_probability_lower", "win_probability_upper", ".3f"),
        ),
        Column("rank", [f"{v:.1f}" for v in table["rank"].values]),
        Column("interval", _intervals(table, "rank_lower", "rank_upper", ".0f")),
        Column("P(best)", [f"{v:.2f}" for v in table["p_best"].values]),
        Column("may be best", ["yes" if v else "" for v in inside]),
    ]
    attrs = table.attrs
    meaning = (
        "mean win: chance of beating another model of the pool, averaged over them. Intervals "
        f"hold {attrs.get('ci_prob', 0):.0%} ({attrs.get('ci_kind', '')}). May be best: the models "
        f"that can't be told from the best, a set that holds it with "
        f"{float(table['best_set_probability']):.0%}."
    )
    parts = [paragraph(f"{title}.", width), format_table(columns, width), paragraph(meaning, width)]
    if str(attrs.get("checks", "")).startswith("failed"):
        parts.append(paragraph(f"Checks of the fit {attrs['checks']}.", width))
    return "\n\n".join(parts)


def _intervals(table: xr.Dataset, lower: str, upper: str, form: str) -> list[str]:
    bounds = zip(table[lower].values, table[upper].values, strict=True)
    return [f"{low:{form}} to {high:{form}}" for low, high in bounds]


def _records(table: xr.Dataset, title: str) -> dict[str, Any]:
    frame = table.drop_vars(["rank_probability", "place", "best_set_probability"], errors="ignore")
    flat = frame.drop_vars([name for name in frame.coords if name != "llm"])
    return {
        "title": title,
        "ranking": flat.to_dataframe().reset_index().to_dict(orient="records"),
        "best_set_probability": float(table["best_set_probability"]),
        **{name: table.attrs[name] for name in table.attrs},
    }
