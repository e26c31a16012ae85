"""What an audit found: findings with a name, a severity, figures, a reason and a remedy."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

type Severity = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_SHOWN = 8  # affected names in a line of text; the finding itself holds all


@dataclass(frozen=True)
class Finding:
    """One thing an audit found.

    Attributes
    ----------
    name : str
        What kind of thing it is; stable, so that programs can look for it.
    severity : {"error", "warning", "note"}
        "error": what is estimated from the data will be wrong. "warning": some of it may be.
        "note": worth knowing.
    found : str
        What was found, in a sentence.
    why : str
        Why it matters.
    remedy : str
        What to do.
    figures : mapping
        The numbers behind it; anything JSON can hold.
    affected : tuple of str
        Models, queries, labels or clusters it is about.

    Examples
    --------
    >>> from bayes_ecc import audit, simulate
    >>> finding = audit(simulate(n_queries=50, rng=0).comparisons).findings[0]
    >>> finding.severity, finding.name
    ('note', 'counts')
    >>> finding.figures["comparisons"]
    350
    """

    name: str
    severity: Severity
    found: str
    why: str
    remedy: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    affected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "figures", MappingProxyType(plain(self.figures)))
        object.__setattr__(self, "affected", tuple(str(name) for name in self.affected))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self.to_dict().values())  # a mapping proxy can't be pickled

    def to_dict(self) -> dict[str, Any]:
        """Give the finding as plain Python values."""
        return {
            "name": self.name,
            "severity": self.severity,
            "found": self.found,
            "why": self.why,
            "remedy": self.remedy,
            "figures": dict(self.figures),
            "affected": list(self.affected),
        }


@dataclass(frozen=True)
class Audit:
    """All that an audit found; prints as text, and as a table in a notebook.

    Attributes
    ----------
    data : str
        What was audited.
    findings : tuple of Finding
        Errors first, then warnings, then notes.
    checks : mapping of str to str
        Every check by name: "done", or why it could not be made.

    Examples
    --------
    >>> from bayes_ecc import audit, simulate
    >>> result = audit(simulate(n_queries=50, rng=0).comparisons)
    >>> result.ok
    True
    >>> result.checks["misaligned_scores"]
    'needs a score table'
    >>> result.to_frame()["severity"].tolist()
    ['note']
    """

    data: str
    findings: tuple[Finding, ...]
    checks: Mapping[str, str]

    def __post_init__(self) -> None:
        by_severity = sorted(self.findings, key=lambda found: SEVERITIES.index(found.severity))
        object.__setattr__(self, "findings", tuple(by_severity))
        object.__setattr__(self, "checks", MappingProxyType(dict(self.checks)))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.data, self.findings, dict(self.checks))

    @property
    def ok(self) -> bool:
        """Whether nothing found is an error."""
        return not any(found.severity == "error" for found in self.findings)

    def named(self, name: str) -> tuple[Finding, ...]:
        """Give the findings of one name, none if there is nothing of the kind.

        Examples
        --------
        >>> from bayes_ecc import audit, simulate
        >>> audit(simulate(n_queries=50, rng=0).comparisons).named("duplicate_votes")
        ()
        """
        return tuple(found for found in self.findings if found.name == name)

    def to_frame(self) -> pd.DataFrame:
        """Give the findings as a table, one row each.

        Returns
        -------
        pandas.DataFrame
            Columns `severity, name, found, why, remedy, affected, figures`.

        Examples
        --------
        >>> from bayes_ecc import audit, simulate
        >>> audit(simulate(n_queries=50, rng=0).comparisons).to_frame()["name"].tolist()
        ['counts']
        """
        columns = ["severity", "name", "found", "why", "remedy", "affected", "figures"]
        return pd.DataFrame([found.to_dict() for found in self.findings], columns=columns)

    def to_json(self, indent: int | None = 2) -> str:
        """Write everything as JSON.

        Parameters
        ----------
        indent : int or None
            As in `json.dumps`.

        Returns
        -------
        str
            An object with `data`, `ok`, `findings` and `checks`.

        Examples
        --------
        >>> import json
        >>> from bayes_ecc import audit, simulate
        >>> json.loads(audit(simulate(n_queries=50, rng=0).comparisons).to_json())["ok"]
        True
        """
        content = {
            "data": self.data,
            "ok": self.ok,
            "findings": [found.to_dict() for found in self.findings],
            "checks": dict(self.checks),
        }
        return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        lines = [self._headline(), ""]
        for found in self.findings:
            first = f"{found.severity.upper():<8}{found.name}: {found.found}"
            lines += textwrap.wrap(first, 96, subsequent_indent=" " * 8)
            details = [f"Why: {found.why}", f"Do: {found.remedy}"]
            if found.affected:
                details.append(f"Concerns: {listed(found.affected)}")
            for detail in details:
                lines += textwrap.wrap(
                    detail, 96, initial_indent=" " * 8, subsequent_indent=" " * 12
                )
        skipped = [f"{name} ({why})" for name, why in self.checks.items() if why != "done"]
        if skipped:
            lines += ["", *textwrap.wrap(f"Not checked: {'; '.join(skipped)}", 96)]
        return "\n".join(lines)

    def _headline(self) -> str:
        counted = [sum(f.severity == kind for f in self.findings) for kind in SEVERITIES]
        parts = (
            f"{count or 'no'} {kind}{'' if count == 1 else 's'}"
            for count, kind in zip(counted, SEVERITIES, strict=True)
        )
        return f"Audit of {self.data}: {', '.join(parts)}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{found.severity}</td><td><code>{html.escape(found.name)}</code></td>"
            f"<td style='text-align:left'>{html.escape(found.found)}</td>"
            f"<td style='text-align:left'>{html.escape(found.why)}</td>"
            f"<td style='text-align:left'>{html.escape(found.remedy)}</td>"
            f"<td style='text-align:left'>{html.escape(listed(found.affected))}</td></tr>"
            for found in self.findings
        )
        heads = "".join(
            f"<th>{head}</th>"
            for head in ("severity", "name", "found", "why it matters", "what to do", "concerns")
        )
        return (
            f"<p>{html.escape(self._headline())}</p>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        )


def listed(names: Iterable[Hashable], most: int = _SHOWN) -> str:
    """Name the first few of many."""
    shown = [str(name) for name in names]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def plural(count: int, word: str, many: str | None = None) -> str:
    """Count things: "1 query", "12,032 queries"."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def plain(value: Any) -> Any:
    """Turn NumPy values, tuples and mappings into what JSON knows, NaN and infinity into None."""
    if isinstance(value, Mapping):
        return {str(name): plain(content) for name, content in value.items()}
    if isinstance(value, (list, tuple, np.ndarray, pd.Index)):
        return [plain(content) for content in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return round(value, 6) if np.isfinite(value) else None
    return value if isinstance(value, (str, int, bool)) or value is None else str(value)
