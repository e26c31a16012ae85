"""Checks of the comparison graph: who was compared with whom, overall, by label and by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.auditing.evidence import Contrasts, Evidence, contrasts, evidence_of
from bayes_ecc.auditing.findings import Finding, Severity, listed, plural
from bayes_ecc.auditing.source import Source
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.inference import predict_responsibilities
from bayes_ecc.posterior import atoms, select_chain

type IntArray = NDArray[np.integer[Any]]

_HUB = 0.95  # share of the comparisons that go through one model in a star
_PER_QUERY = 7


def check_graph(source: Source) -> list[Finding]:
    """Look for models never compared, groups never compared with each other, and separation."""
    found = []
    for table in evidence_of(source):
        state = contrasts(_overall(source, table))
        found += _overall_findings(table, state)
    return found


def _overall(source: Source, table: Evidence) -> NDArray[Any]:
    return table.wins(np.zeros(len(source.queries), dtype=np.intp), 1)[0]


def _overall_findings(table: Evidence, state: Contrasts) -> list[Finding]:
    found, names = [], table.models
    where = f"the {table.table}"
    if state.lonely.any():
        found.append(
            Finding(
                "never_compared",
                "warning",
                f"{plural(int(state.lonely.sum()), 'model')} of {len(names)} in {where} won and "
                "lost nothing.",
                "What a fit says of them is its prior or ridge, nothing else; they still take a "
                "place in every ranking.",
                "Drop them with exclude_models or drop_models, or add comparisons.",
                {"table": table.table, "models": int(state.lonely.sum())},
                tuple(names[state.lonely]),
            )
        )
    if len(state.parts) > 1:
        rest = np.concatenate(state.parts[1:])
        found.append(
            Finding(
                "disconnected",
                "error",
                f"The models of {where} fall into {len(state.parts)} groups that were never "
                f"compared with each other; the largest has {len(state.parts[0])}.",
                "Strengths in one group say nothing of another: any ranking across them is made "
                "up by the prior or ridge.",
                "Add comparisons between the groups, or fit and rank each of them by itself.",
                {
                    "table": table.table,
                    "groups": [[str(names[m]) for m in part] for part in state.parts],
                },
                tuple(names[rest]),
            )
        )
    if state.separated:
        sided = np.flatnonzero(state.one_sided)
        worst = sided[np.argsort(-state.one_sided[sided], kind="stable")]
        found.append(
            Finding(
                "separated",
                "warning",
                f"In {where} {plural(state.separated, 'pair')} of models out of {state.pairs:,} "
                "are separated: wins lead only one way.",
                "Who is stronger is known, by how much is not: without a prior or ridge the "
                "difference would be infinite, with one its size is theirs.",
                "Read only the direction of these differences, or add comparisons against models "
                "of similar strength.",
                {
                    "table": table.table,
                    "separated_pairs": state.separated,
                    "undetermined_pairs": state.undetermined,
                    "pairs": state.pairs,
                },
                tuple(names[worst]),
            )
        )
    return found


# -------------------------------------------------------------------- by groups of queries


def check_label_graphs(source: Source) -> list[Finding] | str:
    """Look at the comparison graph of each label by itself."""
    if not source.labels:
        return "needs labels"
    found = []
    for label in source.labels:
        for table in evidence_of(source):
            states = [contrasts(wins) for wins in table.wins(label.codes, len(label.levels))]
            found += group_findings(
                states,
                label.levels,
                table.models,
                kind="labels",
                what=f"of {label.name!r} ({table.table})",
                figures={"label": label.name, "table": table.table},
            )
    return found


def check_cluster_graphs(source: Source, fit: Any, rng: np.random.Generator) -> list[Finding] | str:
    """Look at the comparison graph of each cluster, queries going to their likeliest cluster."""
    if fit is None:
        return "needs a fit"
    posterior = _posterior(fit)
    votes = _votes_for(source, posterior, rng)
    shares = predict_responsibilities(
        posterior, embeddings=source.embeddings, probes=votes, queries=votes.queries
    )
    codes = shares.values.argmax(axis=1)
    n_clusters = shares.sizes["cluster"]
    table = Evidence("comparisons", votes.models, None, votes)
    states = [contrasts(wins) for wins in table.wins(codes, n_clusters)]
    names = tuple(f"cluster {value}" for value in shares["cluster"].values)
    found = group_findings(
        states, names, votes.models, kind="clusters", what="of the fit", figures={}
    )
    empty = np.flatnonzero(np.bincount(codes, minlength=n_clusters) == 0)
    if len(empty):
        found.append(
            Finding(
                "empty_clusters",
                "note",
                f"{len(empty)} of {plural(n_clusters, 'cluster')} are nobody's likeliest.",
                "Such a cluster's strengths rest on shares of other clusters' queries.",
                "Fit with fewer clusters, or leave it: empty clusters change no prediction much.",
                {"empty": len(empty), "clusters": n_clusters},
                tuple(names[k] for k in empty),
            )
        )
    return found


def group_findings(
    states: Sequence[Contrasts],
    groups: Sequence[str],
    models: pd.Index,
    *,
    kind: str,
    what: str,
    figures: dict[str, Any],
) -> list[Finding]:
    """Sum up the graphs of many groups of queries in at most two findings."""
    torn = [g for g, state in enumerate(states) if len(state.parts) > 1]
    other = [
        g
        for g, state in enumerate(states)
        if state.parts and not state.identified and g not in torn
    ]
    details = {
        g: {
            "never_compared": [str(m) for m in models[states[g].lonely]],
            "groups": len(states[g].parts),
            "separated_pairs": states[g].separated,
            "undetermined_pairs": states[g].undetermined,
        }
        for g in torn + other
    }
    remedy = (
        "Read intervals, not point estimates, there; use fewer or larger parts, a Bayesian fit "
        "with partial pooling, or more comparisons."
    )

    def finding(
        name: str, severity: Severity, chosen: list[int], sentence: str, why: str
    ) -> Finding:
        shown = listed((groups[g] for g in chosen), 4)
        return Finding(
            f"{name}_{kind}",
            severity,
            f"{len(chosen)} of {len(groups)} {kind} {what} {sentence}: {shown}.",
            why,
            remedy,
            {**figures, "parts": {groups[g]: details[g] for g in chosen}},
            tuple(groups[g] for g in chosen),
        )

    found = []
    if torn:
        found.append(
            finding(
                "disconnected",
                "warning",
                torn,
                "hold groups of models that were never compared with each other there",
                "A profile of such a part ranks models across groups by its prior or ridge alone.",
            )
        )
    if other:
        found.append(
            finding(
                "open_contrasts",
                "note",
                other,
                "leave some differences between models open (never compared there, or separated)",
                "There the size of these differences comes from the ridge or, with partial "
                "pooling, from the other queries.",
            )
        )
    return found


def _posterior(fit: Any) -> xr.DataTree:
    """Get at a fit's posterior; of independent chains the one with the largest weight."""
    posterior = fit if isinstance(fit, xr.DataTree) else getattr(fit, "posterior_", None)
    if not isinstance(posterior, xr.DataTree):
        raise InputError(
            f"fit={type(fit).__name__}: give a fitted estimator (with posterior_) or a posterior."
        )
    atoms(posterior)  # refuses what is no posterior of this library
    return select_chain(posterior)  # labels of independent chains don't match


def _votes_for(source: Source, posterior: xr.DataTree, rng: np.random.Generator) -> Comparisons:
    """Give comparisons of all queries among the fit's models; draw them from a score table."""
    votes = source.votes
    if votes is None:
        table = pd.DataFrame(source.scores, index=source.queries, columns=source.scored)
        drawn = Comparisons.from_scores(table, per_query=_PER_QUERY, min_per_query=1, rng=rng)
        place = source.queries.get_indexer(drawn.queries)
        votes = replace(drawn, query=place[drawn.query], queries=source.queries)
    known = set(atoms(posterior).models)
    absent = [name for name in votes.models if name not in known]
    if len(absent) > len(votes.models) - 2:
        raise InputError("fit knows fewer than two of the models of these data; audit its own.")
    return votes.drop_models(absent) if absent else votes


# -------------------------------------------------------------------- design


def check_star(source: Source) -> list[Finding]:
    """Look for a design in which (nearly) all comparisons go through one model."""
    found = []
    for table in evidence_of(source):
        if table.scores is not None:
            there = (~np.isnan(table.scores)).astype(float)
            met = there.T @ there
        else:
            assert table.votes is not None
            met = np.zeros((len(table.models), len(table.models)))
            np.add.at(met, (table.votes.first, table.votes.second), 1.0)
            met = met + met.T
        np.fill_diagonal(met, 0)
        total, playing = met.sum() / 2, int((met.sum(axis=0) > 0).sum())
        if playing < 4 or not total:  # of three models, one always takes part in two pairs
            continue
        hub = int(met.sum(axis=0).argmax())
        share = met[hub].sum() / total
        if share < _HUB:
            continue
        whole = met[hub].sum() == total
        found.append(
            Finding(
                "star_design",
                "warning",
                f"{'All' if whole else f'{share:.1%} of'} {total:,.0f} comparisons of the "
                f"{table.table} are against {table.models[hub]!r}.",
                "All others are compared only by way of one model: errors about it go into every "
                "difference, and what two models do on queries where it is far above or below "
                "both stays unknown.",
                "Add comparisons between the other models; read differences among them with "
                "intervals.",
                {"table": table.table, "share": share, "models": playing},
                (table.models[hub],),
            )
        )
    return found
