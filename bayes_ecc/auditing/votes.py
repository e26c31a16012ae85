"""Checks of the evidence itself: counts, ties, gaps, repeated votes and the order of a pair."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binomtest, norm

from bayes_ecc.auditing.evidence import decisive_pairs, evidence_of
from bayes_ecc.auditing.findings import Finding, plural
from bayes_ecc.auditing.source import Source
from bayes_ecc.comparisons import Comparisons

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.integer[Any]]

_SIGNIFICANT = 1e-3
_MANY_TIES = 0.95
_MANY_MISSING = 0.5
_SMALL_EFFECT = 0.01  # of a win probability of one half


def check_counts(source: Source) -> list[Finding]:
    """Count what there is."""
    figures: dict[str, Any] = {"queries": len(source.queries), "models": len(source.models)}
    parts = [plural(len(source.queries), "query", "queries"), plural(len(source.models), "model")]
    if source.scores is not None:
        decisive = decisive_pairs(source.scores)
        figures["scores"] = int((~np.isnan(source.scores)).sum())
        figures["decisive_pairs"] = int(decisive.sum())
        figures["queries_without_decisive_pair"] = int((decisive == 0).sum())
        figures["queries_with_one_decisive_pair"] = int((decisive == 1).sum())
        parts.append(plural(figures["scores"], "score"))
        parts.append(
            f"{plural(int((decisive == 0).sum()), 'query', 'queries')} on which no two "
            "models differ"
        )
    if source.votes is not None:
        count = np.bincount(source.votes.query, minlength=len(source.queries))
        figures["comparisons"] = len(source.votes)
        figures["weight"] = float(source.votes.weight.sum())
        figures["queries_without_comparison"] = int((count == 0).sum())
        figures["comparisons_per_query"] = {
            name: float(value)
            for name, value in zip(
                ("least", "median", "most"), np.quantile(count, [0, 0.5, 1]), strict=True
            )
        }
        parts.append(plural(len(source.votes), "comparison"))
    return [
        Finding(
            "counts",
            "note",
            f"{', '.join(parts)}.",
            "Queries on which no models differ, or that have no comparison, teach no estimator "
            "anything.",
            "Nothing, if these are the numbers you expect.",
            figures,
        )
    ]


def check_labels(source: Source) -> list[Finding] | str:
    """Say how the labels split the queries."""
    if not source.labels:
        return "needs labels"
    figures = {}
    for label in source.labels:
        sizes = np.bincount(label.codes[label.codes >= 0], minlength=len(label.levels))
        figures[label.name] = {
            "levels": len(label.levels),
            "smallest": int(sizes.min()),
            "largest": int(sizes.max()),
            "without": int((label.codes < 0).sum()),
        }
    shown = "; ".join(
        f"{name!r} has {f['levels']} labels of {f['smallest']:,} to {f['largest']:,} queries"
        for name, f in figures.items()
    )
    return [
        Finding(
            "labels",
            "note",
            f"{shown}.",
            "Checks by label use these columns; fits never do.",
            "Name the column that matters with labels= if it is another.",
            figures,
            tuple(figures),
        )
    ]


def check_ties(source: Source) -> list[Finding]:
    """Count ties."""
    found = []
    for table in evidence_of(source):
        if table.scores is not None:
            there = (~np.isnan(table.scores)).sum(axis=1)
            total = int((there * (there - 1) // 2).sum())
            tied = total - int(decisive_pairs(table.scores).sum())
            unit = "pair"
        else:
            assert table.votes is not None
            total, unit = len(table.votes), "comparison"
            tied = int((table.votes.outcome == 0.5).sum())
        if not tied:
            continue
        share = tied / total
        what = plural(total, unit) + (f" of the {table.table}" if unit == "pair" else "")
        figures = {"table": table.table, "ties": tied, "of": total, "share": share}
        if tied == total:
            found.append(
                Finding(
                    "ties",
                    "error",
                    f"All {what} are ties.",
                    "Nothing tells the models apart; no estimator can be fitted.",
                    "Check how outcomes or scores were read; add decisive comparisons.",
                    figures,
                )
            )
            continue
        many = share > _MANY_TIES
        found.append(
            Finding(
                "ties",
                "warning" if many else "note",
                f"{share:.1%} of {what} are ties.",
                "A tie says that two models are close, or that the query is too easy or too hard "
                "for both; drawn from scores it is left out unless kept.",
                "Check that scores are not rounded away or outcomes misread."
                if many
                else "Say how ties are to be treated: ties='drop' or 'keep' when comparisons are "
                "drawn, half a win each in a fit.",
                figures,
            )
        )
    return found


def check_missing(source: Source) -> list[Finding] | str:
    """Count missing scores, by model and by query."""
    if source.scores is None:
        return "needs a score table"
    gone = np.isnan(source.scores)
    if not gone.any():
        return []
    by_model = gone.mean(axis=0)
    many = by_model > _MANY_MISSING
    affected = source.scored[np.argsort(-by_model, kind="stable")][: int((by_model > 0).sum())]
    return [
        Finding(
            "missing_scores",
            "warning" if many.any() else "note",
            f"{plural(int(gone.sum()), 'score')} of {gone.size:,} are missing, "
            f"{by_model.max():.1%} of {source.scored[by_model.argmax()]!r}"
            + (
                f"; {plural(int(gone.all(axis=1).sum()), 'query', 'queries')} have none at all."
                if gone.all(axis=1).any()
                else "."
            ),
            "Pairs with a missing score are left out. If a model was not run where it is weak, "
            "what remains flatters it.",
            "Find out why scores are missing; leave out models that were hardly run "
            "(exclude_models).",
            {
                "missing": int(gone.sum()),
                "of": gone.size,
                "share_by_model": {
                    str(name): float(share)
                    for name, share in zip(source.scored, by_model, strict=True)
                    if share > 0
                },
                "queries_without_score": int(gone.all(axis=1).sum()),
            },
            tuple(affected),
        )
    ]


# -------------------------------------------------------------------- repeated votes


def check_duplicates(source: Source) -> list[Finding] | str:
    """Look for votes given twice and for votes that contradict each other."""
    votes = source.votes
    if votes is None:
        return "needs comparisons"
    found = []
    rows = np.column_stack([votes.query, votes.first, votes.second, votes.outcome, votes.weight])
    _, group, size = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    copies = len(rows) - len(size)
    if copies:
        queries = np.unique(votes.query[size[group.ravel()] > 1])
        found.append(
            Finding(
                "duplicate_votes",
                "warning",
                f"{plural(copies, 'comparison')} of {len(votes):,} repeat another: same query, "
                "same models in the same order, same outcome.",
                "Each copy counts as new evidence, so intervals come out too narrow. Several "
                "judges of one pair are evidence; a table joined or read twice is not.",
                "Drop the copies, or turn them into one row with a weight if they are different "
                "votes.",
                {"copies": copies, "comparisons": len(votes), "queries": len(queries)},
                tuple(votes.queries[queries]),
            )
        )
    low, high = np.minimum(votes.first, votes.second), np.maximum(votes.first, votes.second)
    high_share = np.where(votes.second == high, votes.outcome, 1 - votes.outcome)
    key = (votes.query * votes.n_models + low) * votes.n_models + high
    _, pair = np.unique(key, return_inverse=True)
    up = np.bincount(pair, weights=high_share > 0.5)
    down = np.bincount(pair, weights=high_share < 0.5)
    torn = (up > 0) & (down > 0)
    if torn.any():
        is_torn = torn[pair]
        swapped = np.bincount(pair, weights=votes.first == high) > 0
        kept = np.bincount(pair, weights=votes.first == low) > 0
        queries = np.unique(votes.query[is_torn])
        repeated = int((np.bincount(pair) > 1).sum())
        found.append(
            Finding(
                "contradictory_votes",
                "warning",
                f"On {plural(len(queries), 'query', 'queries')} a pair of models has votes both "
                f"ways: {plural(int(torn.sum()), 'pair')} of the {repeated:,} voted on more than "
                "once.",
                "Judges who disagree are honest noise; the same judge, or the same pair shown in "
                "the other order, that answers otherwise is a judge who looks at the order.",
                "Keep them if several judges voted; otherwise find out which vote counts. See "
                "presentation_order for what the order does.",
                {
                    "pairs": int(torn.sum()),
                    "repeated_pairs": repeated,
                    "pairs_shown_in_both_orders": int((torn & swapped & kept).sum()),
                    "queries": len(queries),
                },
                tuple(votes.queries[queries]),
            )
        )
    return found


# -------------------------------------------------------------------- order of a pair


class OrderEffect(NamedTuple):
    """How much being shown second helps.

    Attributes
    ----------
    second_wins, decisive : int
        Wins of the second model, and comparisons that are no tie.
    binomial_p : float
        Chance of a share of second wins as far from one half, models aside.
    effect, error : float
        Advantage of the second place in logits and its standard error, with each pair of models
        compared only with itself in the other order; NaN if no pair was shown both ways.
    matched_p : float
        Chance of such an advantage if the order does nothing (Mantel-Haenszel).
    matched : int
        Decisive comparisons of pairs that were shown both ways.
    """

    second_wins: int
    decisive: int
    binomial_p: float
    effect: float
    error: float
    matched_p: float
    matched: int


def order_effect(votes: Comparisons) -> OrderEffect:
    """Measure the effect of the order, weights aside.

    If strong models stand second more often, the second wins more often: a binomial test of second
    wins [1]_ is about the order only where the order was drawn at random. Within a pair of models
    strength cannot matter: with a, b (j and i win with i first) and c, d (the same with j first), N
    their sum, Mantel and Haenszel's [2]_ odds ratio sum(a d / N) / sum(b c / N) is exp(2 effect).

    References
    ----------
    .. [1] Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits
       illustrated in the case of the binomial. Biometrika 26(4), 404-413.
    .. [2] Mantel, N. and Haenszel, W. (1959). Statistical aspects of the analysis of data from
       retrospective studies of disease. J. Natl. Cancer Inst. 22(4), 719-748. The variance of its
       logarithm: Robins, Breslow and Greenland (1986), Biometrics 42(2), 311-323.
    """
    clear = votes.outcome != 0.5
    first, second = votes.first[clear], votes.second[clear]
    second_won = votes.outcome[clear] > 0.5
    n, wins = len(first), int(second_won.sum())
    binomial = binomtest(wins, n).pvalue if n else 1.0
    low, high = np.minimum(first, second), np.maximum(first, second)
    _, pair = np.unique(low * votes.n_models + high, return_inverse=True)
    low_first = first == low
    high_won = np.where(low_first, second_won, ~second_won)
    a, b, c, d = (
        np.bincount(pair, weights=place & won)
        for place, won in (
            (low_first, high_won),
            (low_first, ~high_won),
            (~low_first, high_won),
            (~low_first, ~high_won),
        )
    )
    both = (a + b > 0) & (c + d > 0)
    a, b, c, d = a[both], b[both], c[both], d[both]
    total = a + b + c + d
    matched = int(total.sum())
    expected = (a + b) * (a + c) / np.maximum(total, 1)
    variance = ((a + b) * (c + d) * (a + c) * (b + d) / np.maximum(total**2 * (total - 1), 1)).sum()
    z = ((a - expected).sum() / np.sqrt(variance)) if variance > 0 else 0.0
    r, s = a * d / np.maximum(total, 1), b * c / np.maximum(total, 1)
    p, q = (a + d) / np.maximum(total, 1), (b + c) / np.maximum(total, 1)
    R, S = r.sum(), s.sum()
    if R > 0 and S > 0:
        effect = float(np.log(R / S) / 2)
        spread = (
            (p * r).sum() / (2 * R**2)
            + (p * s + q * r).sum() / (2 * R * S)
            + (q * s).sum() / (2 * S**2)
        )
        error = float(np.sqrt(spread) / 2)
    else:
        effect = error = float("nan")
    return OrderEffect(wins, n, float(binomial), effect, error, float(2 * norm.sf(abs(z))), matched)


def check_order(source: Source) -> list[Finding] | str:
    """Test whether the place in which a model is shown changes who wins."""
    votes = source.votes
    if votes is None or not votes.ordered:
        return "needs ordered comparisons"
    state = order_effect(votes)
    if not state.decisive:
        return "needs decisive comparisons"
    share = state.second_wins / state.decisive
    interval = binomtest(state.second_wins, state.decisive).proportion_ci(0.95)
    figures = {
        "second_wins": state.second_wins,
        "decisive": state.decisive,
        "share_second": share,
        "share_second_95": [interval.low, interval.high],
        "binomial_p": state.binomial_p,
        "matched_comparisons": state.matched,
        "matched_effect_logits": state.effect,
        "matched_effect_error": state.error,
        "matched_p": state.matched_p,
    }
    if 2 * state.matched < state.decisive or not np.isfinite(state.effect):
        if state.binomial_p >= _SIGNIFICANT:
            return []
        return [
            Finding(
                "presentation_order",
                "note",
                f"The second model wins {share:.1%} of {plural(state.decisive, 'comparison')}, but "
                "most pairs of models were shown in one order only.",
                "An effect of the order cannot be told from one of strength here: the models shown "
                "second may be the better ones.",
                "Show pairs in both orders, drawn at random.",
                figures,
            )
        ]
    if state.matched_p >= _SIGNIFICANT:
        return []
    even = float(expit(state.effect))
    small = abs(even - 0.5) < _SMALL_EFFECT
    return [
        Finding(
            "presentation_order",
            "note" if small else "warning",
            f"Being shown {'second' if state.effect > 0 else 'first'} helps: between equals the "
            f"second model wins {even:.1%} ({state.effect:+.2f} logits, standard error "
            f"{state.error:.2f}); over all {plural(state.decisive, 'comparison')} it wins "
            f"{share:.1%}.",
            "The order is no ability. Where it is balanced it only blunts differences; where it is "
            "not, it moves strengths.",
            "Fit with an effect of the order, or balance the orders of each pair.",
            figures,
        )
    ]
