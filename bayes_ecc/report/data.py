"""The section on the data: what was fitted, what an audit found, whether both belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayes_ecc.auditing import Audit
from bayes_ecc.auditing.findings import SEVERITIES, plural
from bayes_ecc.report.bundles import BundleFacts
from bayes_ecc.report.markup import Content, Markup, isolated, join, shortened, tag
from bayes_ecc.report.parts import Section, badge, bullets, callout, paragraph, section, terms
from bayes_ecc.report.reading import Reading
from bayes_ecc.report.tables import Cell, Column, names, table

_LONGEST = 1000  # characters of a sentence, in which names stand that may be of any length
_KINDS = {"error": "fail", "warning": "warn", "note": "note"}


def data_section(
    reading: Reading, facts: Sequence[BundleFacts], audits: Sequence[Audit]
) -> Section:
    """Tell of the data; there is one audit a bundle, or that of the comparisons alone."""
    contents: list[Content] = [_fitted(reading)]
    if not facts:
        contents += [
            callout(
                "note",
                "No data set is at hand",
                paragraph(
                    "A saved fit holds the comparisons, not the texts, labels or scores of the "
                    "queries. Give the folder of the data set with ",
                    tag("code", "--bundle FOLDER"),
                    " (bundles= in Python), and the report shows typical queries in words, what "
                    "labels the clusters hold, and an audit of everything.",
                ),
            ),
        ]
        contents += [_audited("the comparisons of the fit", result) for result in audits]
    for one, result in zip(facts, audits, strict=False):
        contents += [_agreement(one, reading), _audited(one.bundle.name, result)]
    return section("data", "The data", contents)


def _fitted(reading: Reading) -> Markup:
    data = reading.comparisons
    ties = int((data.outcome == 0.5).sum())
    soft = int(((data.outcome % 1 != 0) & (data.outcome != 0.5)).sum())
    counts = np.bincount(data.query, minlength=data.n_queries)
    without = int((counts == 0).sum())
    order = (
        "which LLM was shown first is known"
        if data.ordered
        else "which LLM stands first in a pair means nothing"
    )
    each = f"{np.median(counts):g} on the median query, {counts.min():,} to {counts.max():,}"
    if counts.min() == counts.max():
        each = f"{counts[0]:,} on every query"
    facts = {
        "Queries": f"{data.n_queries:,}"
        + (f", {without:,} of them without a comparison" if without else ""),
        "LLMs": f"{data.n_models:,}",
        "Comparisons": f"{len(data):,}; {each}; {order}",
        "Ties": (f"{ties:,}" if ties else "none")
        + (f"; {soft:,} outcomes between a win and a tie" if soft else ""),
        "Embeddings": "used"
        if reading.embeddings is not None
        else "none: kinds of query are told by comparisons alone",
    }
    return terms(facts)


def _agreement(facts: BundleFacts, reading: Reading) -> Markup:
    found, n_queries = facts.agreement, reading.comparisons.n_queries
    name = isolated(facts.bundle.name)
    lines: list[Content] = []
    if found.known < n_queries:
        lines.append(
            f"It has {found.known:,} of the fit's {n_queries:,} queries; nothing is told of the "
            "others' texts."
        )
    if found.unknown_models:
        lines.append(join("It does not know of ", names(found.unknown_models), "."))
    if found.different:
        lines.append(
            f"{found.different:,} of {found.looked_up:,} comparisons of the fit are not borne out "
            "by it."
        )
    if lines and not found.same_data:
        lines.append(
            "Its texts and labels are not shown below: that identifiers are the same does not "
            "make queries the same."
        )
    if lines:
        return callout(
            "warn" if found.same_data else "fail",
            "These may not be the data that were fitted"
            if found.same_data
            else "These are not the data that were fitted",
            paragraph("The data set ", name, " and the fit differ."),
            bullets(lines),
        )
    left = join(
        f" {plural(len(found.left_out), 'LLM')} of the data set left out of the fit: ",
        names(found.left_out),
        ".",
    )
    return paragraph(
        "Data set ",
        tag("strong", name),
        f": {len(facts.bundle.queries):,} queries. All {found.looked_up:,} comparisons of the fit "
        "agree with it.",
        left if found.left_out else None,
    )


def _audited(what: str, result: Audit) -> Markup:
    counted = [sum(f.severity == kind for f in result.findings) for kind in SEVERITIES]
    told = ", ".join(
        plural(count, kind) if count else f"no {kind}s"
        for count, kind in zip(counted, SEVERITIES, strict=True)
    )
    rows = [
        [
            Cell(badge(_KINDS[found.severity], found.severity), SEVERITIES.index(found.severity)),
            tag("code", found.name),
            _sentences(found.found, found.affected),
            found.why,
            found.remedy,
        ]
        for found in result.findings
    ]
    columns = [Column(head) for head in ("severity", "finding", "found", "why", "what to do")]
    skipped = [
        join(tag("code", name), f": {why}") for name, why in result.checks.items() if why != "done"
    ]
    return tag(
        "div",
        tag("h3", "Audit of ", isolated(what)),
        paragraph(f"{told[0].upper()}{told[1:]}."),
        table(None, columns, rows, name="audit") if rows else None,
        tag("details", tag("summary", "What was not checked"), bullets(skipped))
        if skipped
        else None,
        class_="audit",
    )


def _sentences(found: str, affected: Sequence[str]) -> Content:
    found, more = shortened(found, _LONGEST)
    found += "..." if more else ""
    if not affected:
        return found
    return join(found, tag("span", " Concerns: ", names(affected), class_="quiet"))
