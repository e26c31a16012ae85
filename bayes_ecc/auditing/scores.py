"""Check that the score rows of all models belong to the same queries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.auditing.alignment import Alignment, Group, align, nobody_agrees, within
from bayes_ecc.auditing.findings import Finding, listed, plural
from bayes_ecc.auditing.source import Source

type FloatArray = NDArray[np.floating[Any]]

_WHY = (
    "Models find the same queries hard, so the scores of models that can do the task agree. Rows "
    "in another order make every comparison with these models noise: strengths, clusters and gains "
    "are wrong, and nothing else shows it."
)
_REMEDY = (
    "Join the tables of the models again by query identifier, never by position, and audit again; "
    "until then leave these models out (exclude_models)."
)


def check_scores(source: Source) -> list[Finding] | str:
    """Look for models whose scores agree with each other at most, where they ought to agree."""
    if source.scores is None:
        return "needs a score table"
    if source.scores.shape[1] < 3:
        return "needs three models or more"
    state = align(source.scores)
    if len(state.reference) < 2:
        return _nobody(source) if nobody_agrees(source.scores) else []
    found = _findings(source, state, set(), "")
    known = {int(m) for group in state.groups if group.unrelated for m in group.members}
    for label in source.labels:
        inner = align(within(source.scores, label.codes), lost=len(label.levels))
        if len(inner.reference) > 1:
            found += _findings(source, inner, known, label.name)
            known |= {int(m) for group in inner.groups if group.unrelated for m in group.members}
    return found


def _nobody(source: Source) -> list[Finding]:
    return [
        Finding(
            "misaligned_scores",
            "warning",
            f"The scores of {plural(source.scored.size, 'model')} agree with nobody's.",
            _WHY,
            "Either the table of every model is in an order of its own, or all of them guess. "
            "Compare a few rows with where they come from.",
            {"within": None, "reference": [], "groups": []},
            tuple(source.scored),
        )
    ]


def _findings(source: Source, state: Alignment, known: set[int], label: str) -> list[Finding]:
    """Report the unrelated groups with a model not reported yet."""
    assert source.scores is not None
    groups = [g for g in state.groups if g.unrelated and not known.issuperset(g.members.tolist())]
    if not groups:
        return []
    members = np.sort(np.concatenate([group.members for group in groups]))
    mean = np.nanmean(source.scores, axis=0)
    # a model that guesses agrees with nobody, but it scores low and is alone
    guessing = [
        len(g.members) == 1 and mean[g.members[0]] < mean[state.reference].min() for g in groups
    ]
    rival = len(groups) == 1 and len(groups[0].members) == len(state.reference)
    where = f" within the labels of {label!r}" if label else ""
    whose = "these scores are" if len(members) > 1 else "its scores are"
    sentence = (
        f"{listed(source.scored[members])}: {whose} unrelated to those of the other "
        f"{plural(len(state.reference), 'model')}{where}, which agree with one another."
    )
    together = [group for group in groups if len(group.members) > 1]
    if together:
        sentence += (
            f" {listed(source.scored[together[0].members])} agree among themselves: they share an "
            "order."
        )
    if rival:
        sentence += " Both groups are of one size, so the others may be those in a wrong order."
    if all(guessing):
        sentence += " They score lower than all others, so they may be guessing instead."
    if rival:
        members = np.sort(np.concatenate([members, state.reference]))
    return [
        Finding(
            "misaligned_scores",
            "warning" if all(guessing) else "error",
            sentence,
            _WHY,
            _REMEDY,
            {
                "within": label or None,
                "reference": list(source.scored[state.reference]),
                "typical_agreement": state.typical,
                "groups": [_figures(source, group, mean) for group in groups],
            },
            tuple(source.scored[members]),
        )
    ]


def _figures(source: Source, group: Group, mean: FloatArray) -> dict[str, Any]:
    return {
        "models": list(source.scored[group.members]),
        "mean_scores": [float(mean[m]) for m in group.members],
        "agreement": group.agreement,
        "agreement_at_most": group.agreement_limit,
        "agreement_needed": group.needed,
        "queries": group.rows,
    }
