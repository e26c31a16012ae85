"""What a loader gives back: the bundle, and an account of every row it read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bayes_ecc.bundle import Bundle
from bayes_ecc.errors import InputError


@dataclass(frozen=True)
class Counts:
    """An account of what was read: every row was used or was dropped for a reason.

    Attributes
    ----------
    unit : str
        What is counted: rows of a score table, votes, judgments.
    read, used : int
        How many there were, and how many are in the bundle.
    dropped : mapping of str to int
        The others, by reason; `read` is `used` plus their sum.
    notes : mapping of str to int
        What else should be known of those used, such as scores that are missing.

    Raises
    ------
    InputError
        If the numbers do not add up.

    Examples
    --------
    >>> from bayes_ecc.datasets import Counts
    >>> print(Counts("votes", read=10, used=9, dropped={"no winner": 1}, notes={"ties": 3}))
    10 votes read, 9 used, 1 dropped (no winner: 1); ties: 3
    """

    unit: str
    read: int
    used: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("dropped", "notes"):
            known = {reason: count for reason, count in getattr(self, name).items() if count}
            object.__setattr__(self, name, MappingProxyType(known))
        if self.read != self.used + self.n_dropped:
            raise InputError(
                f"{self.read} {self.unit} were read, but {self.used} used and {self.n_dropped} "
                "dropped do not add up to that."
            )

    @property
    def n_dropped(self) -> int:
        """How many were not used."""
        return sum(self.dropped.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in self.dropped.items())
        text = f"{self.read:,} {self.unit} read, {self.used:,} used, {self.n_dropped:,} dropped"
        text += f" ({reasons})" if reasons else ""
        return "; ".join([text, *(f"{note}: {count:,}" for note, count in self.notes.items())])


@dataclass(frozen=True, eq=False)
class Loaded:
    r"""A bundle, and the account of the rows it was made from.

    Attributes
    ----------
    bundle : Bundle
        The data.
    counts : Counts
        What was read, used and dropped.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bayes_ecc.datasets import load_score_matrix
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "scores.csv")
    ...     _ = path.write_text("query_id,gpt,llama\nq1,1,0\nq2,0.5,\n")
    ...     loaded = load_score_matrix(path)
    >>> loaded.bundle
    Bundle('scores': 2 queries, 2 models, scores)
    >>> print(loaded.counts)
    2 rows read, 2 used, 0 dropped; scores missing: 1
    """

    bundle: Bundle
    counts: Counts
