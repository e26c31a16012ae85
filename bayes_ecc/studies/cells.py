"""`Cell`: one point of a grid, which of its settings decide a fit, and which its reading."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Literal

from bayes_ecc.checks import check_count, check_not_negative, check_positive
from bayes_ecc.errors import InputError
from bayes_ecc.evaluation import EvaluationSettings, Setting

BUNDLE = "bundle"
"""What the bundle's own embeddings and its own judge are called."""
SEPARATOR = "; "


@dataclass(frozen=True)
class Cell:
    """One point of a grid: a method, its settings, and how data are drawn and test queries read.

    Attributes
    ----------
    method : str
        As `evaluate` names it: "global", "labels:COLUMN", "embedding", "comparisons", "ecc",
        "ecc:auto" or "bayes".
    seed : int
        Decides every draw; cells that differ in other settings share as much of it as they can.
    n_clusters : int
    embedding_weight, temperature, ridge : float or "auto"
        Of ECC and of the one-signal variants; comparison-only clusters are read with the first.
    concentration, probe_power : float or "auto"
        Of the Bayesian mixture, as are those below.
    evidence_power : float
    starts : {"independent", "em"}
    chains, draws : int
    encoder : str
        Which embeddings; "bundle" are the bundle's own.
    judge, tested_by : str
        Whose verdicts are fitted and whose are predicted; "bundle" are the bundle's own.
    per_query : int or None
        Comparisons a query, of those drawn in random order; None takes all.
    train_fraction : float
        Share of the queries to train on.
    tie_share : float or None
        Share of the comparisons that are ties, kept as half-wins. Of a score table, a slot is
        given to a tied pair with this chance (None is 0); of a comparison table, ties beyond this
        share are left out (None keeps all).
    test_ties : bool
        Whether ties are kept among probes and scored comparisons, too.
    label : str or None
        The label column that the next two name values of.
    left_out, tested : tuple of str
        Labels that are not trained on; labels that are tested on, () for all.
    test_per_query : int or None
        Comparisons a test query; None is as many as for training.
    test_fraction : float or None
        Share of the queries to test on; None tests on all that are not trained on.
    n_probes : int
        Comparisons known of a test query beforehand.
    reserved : int or None
        How many comparisons of a test query are set apart, probes among them, and not scored; None
        is `n_probes`. The same for several `n_probes`, all are judged by the same comparisons.
    probe_noise : float
        Chance that a probe tells the wrong winner.
    probe_draw : int
        Which of many random choices of the probes; 0 takes the first drawn.

    Raises
    ------
    InputError
        If a setting is out of range.

    Examples
    --------
    >>> from bayes_ecc.studies import Cell
    >>> Cell("ecc", seed=1, n_clusters=5).temperature
    0.1
    """

    method: str = "ecc"
    seed: int = 0
    n_clusters: int = 30
    embedding_weight: Setting = 3.0
    temperature: Setting = 0.1
    ridge: Setting = 1.0
    concentration: Setting = "auto"
    evidence_power: float = 1.0
    probe_power: Setting = "auto"
    starts: Literal["independent", "em"] = "independent"
    chains: int = 4
    draws: int = 500
    encoder: str = BUNDLE
    judge: str = BUNDLE
    tested_by: str = BUNDLE
    per_query: int | None = 7
    train_fraction: float = 0.8
    tie_share: float | None = None
    test_ties: bool = True
    label: str | None = None
    left_out: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    test_per_query: int | None = None
    test_fraction: float | None = None
    n_probes: int = 1
    reserved: int | None = None
    probe_noise: float = 0.0
    probe_draw: int = 0

    def __post_init__(self) -> None:
        for name in ("seed", "n_probes", "probe_draw"):
            check_count(name, getattr(self, name), least=0)
        for name in ("n_clusters", "chains", "draws"):
            check_count(name, getattr(self, name))
        for name in ("per_query", "test_per_query"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_positive("evidence_power", self.evidence_power)
        _check_share("train_fraction", self.train_fraction, open_below=True, open_above=True)
        if self.test_fraction is not None:
            _check_share("test_fraction", self.test_fraction, open_below=True, open_above=True)
            if self.test_fraction + self.train_fraction > 1 + 1e-9:
                raise InputError(
                    f"train_fraction={self.train_fraction} and test_fraction={self.test_fraction} "
                    "make more than 1; lower one of them."
                )
        if self.tie_share is not None:
            _check_share("tie_share", self.tie_share, open_above=True)
        _check_share("probe_noise", self.probe_noise)
        if self.reserved is not None and check_count("reserved", self.reserved) < self.n_probes:
            raise InputError(
                f"reserved={self.reserved} is less than n_probes={self.n_probes}; probes are among "
                "the comparisons that are set apart."
            )
        for name in ("left_out", "tested"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise InputError(f"{name}={value!r}: give a tuple of labels, even of one.")
            object.__setattr__(self, name, tuple(map(str, value)))
        if self.label is None and (self.left_out or self.tested):
            raise InputError("left_out and tested name labels; give their column as label.")

    @property
    def kind(self) -> str:
        """The method's name before the colon."""
        return self.method.partition(":")[0]

    @property
    def least_per_query(self) -> int:
        """How many comparisons a query needs: one to score, and one more if any is set apart."""
        return 2 if self.reading()["reserved"] else 1

    @property
    def settings(self) -> EvaluationSettings:
        """What `fit_method` is given."""
        weight = self.embedding_weight
        return EvaluationSettings(
            n_clusters=self.n_clusters,
            embedding_weight=weight,
            embedding_only_weight=3.0 if isinstance(weight, str) else weight,
            temperature=self.temperature,
            ridge=self.ridge,
            concentration=self.concentration,
            evidence_power=self.evidence_power,
            probe_power=self.probe_power,
            starts=self.starts,
            chains=self.chains,
            draws=self.draws,
        )

    def training(self) -> dict[str, Any]:
        """Give the settings that decide what is fitted; cells alike in them share a fit."""
        names = ["method", "seed", *_FITS.get(self.method, _FITS.get(self.kind, ()))]
        if self.kind == "comparisons" and "auto" in (self.temperature, self.ridge):
            names.append("embedding_weight")  # it has a say in what is chosen
        if self.kind == "comparisons" and self.embedding_weight == "auto":
            names.append("embedding_weight")
        names += ["judge", "per_query", "train_fraction", "tie_share"]
        if self.left_out:
            names += ["label", "left_out"]
        found = {name: getattr(self, name) for name in names}
        if self.least_per_query < 2:
            found["least_per_query"] = self.least_per_query
        return found

    def reading(self) -> dict[str, Any]:
        """Give the settings that decide which test comparisons are predicted, and from what."""
        found = {name: getattr(self, name) for name in ("tested_by", "tie_share", "test_ties")}
        found["per_query"] = self.per_query if self.test_per_query is None else self.test_per_query
        rest = round(1 - self.train_fraction, 12)
        found["test_fraction"] = rest if self.test_fraction is None else self.test_fraction
        found["n_probes"] = self.n_probes
        found["reserved"] = self.n_probes if self.reserved is None else self.reserved
        if self.n_probes:
            found["probe_noise"] = self.probe_noise
        found["probe_draw"] = self.probe_draw
        if self.tested:
            found |= {"label": self.label, "tested": self.tested}
        if self.kind == "comparisons":
            found["embedding_weight"] = self.embedding_weight
        if self.kind not in ("global", "labels"):
            found["encoder"] = self.encoder
        return found

    def row(self) -> dict[str, Any]:
        """Give all settings as a row of a table; labels in one text."""
        found = asdict(self)
        for name in ("left_out", "tested"):
            found[name] = SEPARATOR.join(found[name])
        return found


SETTINGS: tuple[str, ...] = tuple(column.name for column in fields(Cell))
"""The settings of a cell, in their order."""

_CLUSTERING = ("n_clusters", "embedding_weight", "temperature", "ridge", "encoder")
_FITS: Mapping[str, tuple[str, ...]] = {
    "embedding": _CLUSTERING,
    "comparisons": ("n_clusters", "temperature", "ridge", "encoder"),
    "ecc": _CLUSTERING,
    "ecc:auto": ("n_clusters", "encoder"),
    "bayes": (
        "n_clusters",
        "concentration",
        "evidence_power",
        "probe_power",
        "starts",
        "chains",
        "draws",
        "encoder",
    ),
}
"""What each method's fit reads beside the data; global and labels read nothing."""


def grid_cells(
    blocks: Iterable[Mapping[str, Iterable[Any]]], base: Cell | None = None
) -> Iterator[Cell]:
    """Make the cells of a grid.

    Parameters
    ----------
    blocks : iterable of mappings
        Each gives candidate values of some settings; a block's cells are all their combinations.
    base : Cell, optional
        Whatever a block does not name.

    Yields
    ------
    Cell
        Each once, in the order of the blocks; of a block, the last setting changes fastest.

    Raises
    ------
    InputError
        If there is no such setting, or a value is out of range.

    Examples
    --------
    >>> from bayes_ecc.studies import grid_cells
    >>> [(c.method, c.n_clusters) for c in grid_cells([{"method": ["ecc"], "n_clusters": [2, 5]}])]
    [('ecc', 2), ('ecc', 5)]
    """
    start, seen = base or Cell(), set()
    for block in blocks:
        unknown = [name for name in block if name not in SETTINGS]
        if unknown:
            raise InputError(
                f"A study cannot vary {unknown[0]!r}; its settings are {', '.join(SETTINGS)}."
            )
        for name, values in block.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise InputError(f"{name}={values!r}: give a list of values, even of one.")
        for values in itertools.product(*block.values()):
            cell = replace(start, **dict(zip(block, values, strict=True)))
            if cell not in seen:
                seen.add(cell)
                yield cell


def unread_settings(cells: Iterable[Cell]) -> dict[str, list[str]]:
    """Tell which settings vary among cells without a say in what a method finds, by method.

    Of a method that clusters: `global` and `labels` are known for reading none.

    Examples
    --------
    >>> from bayes_ecc.studies.cells import Cell, unread_settings
    >>> unread_settings(Cell(method, ridge=r) for method in ("ecc", "ecc:auto") for r in (0.1, 1.0))
    {'ecc:auto': ['ridge']}
    """
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.kind not in ("global", "labels"):
            by_method.setdefault(cell.method, []).append(cell)
    found: dict[str, list[str]] = {}
    for method, own in by_method.items():
        for name in SETTINGS:
            values = {getattr(cell, name) for cell in own}
            if len(values) > 1 and not any(_reads(cell, name, values) for cell in own):
                found.setdefault(method, []).append(name)
    return found


def _reads(cell: Cell, name: str, values: Iterable[Any]) -> bool:
    """Tell whether another value of a setting makes another result."""
    try:
        others = [replace(cell, **{name: value}) for value in values]
    except InputError:  # of no meaning beside the other settings
        return True
    own = (cell.training(), cell.reading())
    return any((other.training(), other.reading()) != own for other in others)


def _check_share(
    name: str, value: Any, *, open_below: bool = False, open_above: bool = False
) -> None:
    fine = isinstance(value, Real | Integral) and not isinstance(value, bool)
    if fine:
        number = check_not_negative(name, value)
        fine = number <= 1 and not (open_below and number == 0) and not (open_above and number == 1)
    if not fine:
        raise InputError(f"{name}={value!r}: give a share between 0 and 1.")
