"""What a data set at hand adds to a report: texts, labels, an audit, whether it is the fit's."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from bayes_ecc.auditing import Audit, audit
from bayes_ecc.auditing.source import make_source
from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.tables import ID

_BORNE_OUT = 0.99  # of the comparisons, for a bundle to be the fit's: a few scores may be mended


class Agreement(NamedTuple):
    """How far a bundle and the comparisons of a fit agree.

    Attributes
    ----------
    known : int
        Queries of the fit that the bundle has.
    looked_up : int
        Comparisons of the fit between models and on queries that the bundle has.
    different : int
        Of these, how many the bundle's scores or comparisons do not bear out.
    unknown_models : tuple of str
        Models of the fit that the bundle lacks.
    left_out : tuple of str
        Models of the bundle that the fit leaves out.
    source : {"scores", "comparisons"}
        The table that bears out more of them.
    """

    known: int
    looked_up: int
    different: int
    unknown_models: tuple[str, ...]
    left_out: tuple[str, ...]
    source: Literal["scores", "comparisons"]

    @property
    def same_data(self) -> bool:
        """Whether the bundle bears out at least 99 % of what can be looked up in it."""
        return self.looked_up > 0 and self.different <= (1 - _BORNE_OUT) * self.looked_up


@dataclass(frozen=True, eq=False)
class BundleFacts:
    """A bundle, what an audit of it found, and how it agrees with the fit.

    Of a bundle that holds other data nothing is told of the fit's queries: that identifiers are the
    same does not make queries the same.
    """

    bundle: Bundle
    audit: Audit
    agreement: Agreement

    @property
    def texts(self) -> pd.Series:
        """Texts by query identifier, written as text; without those that are missing."""
        queries = self.bundle.queries
        if "text" not in queries.columns or not self.agreement.same_data:
            return pd.Series([], index=pd.Index([], dtype=object), dtype=object)
        texts = pd.Series(queries["text"].to_numpy(dtype=object), index=queries[ID].map(str))
        return texts[[isinstance(text, str) and text.strip() != "" for text in texts]]

    def labels(self, queries: pd.Index) -> dict[str, pd.Series]:
        """Labels of queries, column by column; missing where a query has none."""
        found: dict[str, pd.Series] = {}
        if not self.agreement.same_data:
            return found
        rows = self.bundle.query_ids.map(str).get_indexer(queries.map(str))
        for label in make_source(self.bundle).labels:
            codes = np.where(rows >= 0, label.codes[rows], -1)
            found[label.name] = pd.Series(
                pd.Categorical.from_codes(codes, pd.Index(label.levels)), index=queries
            )
        return found


def look_at_bundle(bundle: Bundle, comparisons: Comparisons, posterior: xr.DataTree) -> BundleFacts:
    """Audit a bundle and hold it against a fit.

    Parameters
    ----------
    bundle : Bundle
    comparisons : Comparisons
        What was fitted.
    posterior : xarray.DataTree
        The fit.

    Returns
    -------
    BundleFacts

    Raises
    ------
    InputError
        If the bundle has none of the fit's queries.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.report.bundles import look_at_bundle
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> facts = look_at_bundle(data.bundle(), data.comparisons, fit.posterior_)
    >>> facts.agreement.known, facts.agreement.different
    (60, 0)
    """
    agreement = compare_with_bundle(comparisons, bundle)
    if not agreement.known:
        raise InputError(
            f"The bundle {bundle.name!r} has none of the fit's {comparisons.n_queries:,} queries "
            f"(the fit's first is {comparisons.queries[0]!r}, the bundle's "
            f"{bundle.query_ids[0]!r}); give the data that were fitted."
        )
    if agreement.different or not agreement.same_data:
        found_in = f"{agreement.different:,} of {agreement.looked_up:,} comparisons of the fit are "
        warnings.warn(
            (f"{found_in}not borne out" if agreement.looked_up else "No comparison is known")
            + f" by the bundle {bundle.name!r}; "
            + (
                "its texts and labels are shown, as no more than 1 % differ."
                if agreement.same_data
                else "its texts and labels are left out. Give the data that were fitted."
            ),
            DataWarning,
            stacklevel=4,
        )
    try:
        found = audit(bundle, fit=posterior if agreement.same_data else None)
    except InputError:  # its embeddings are others than the fit's, say: the data alone, then
        found = audit(bundle)
    return BundleFacts(bundle, found, agreement)


def compare_with_bundle(comparisons: Comparisons, bundle: Bundle) -> Agreement:
    """Look the comparisons of a fit up in a bundle."""
    ids, models = bundle.query_ids.map(str), bundle.models
    known = comparisons.queries.map(str).isin(ids)
    fitted = pd.Index(comparisons.models)
    there = known[comparisons.query] & np.isin(
        np.stack([comparisons.first, comparisons.second]), np.flatnonzero(fitted.isin(models))
    ).all(axis=0)
    looked_up = comparisons.rows(there)
    counts: dict[Literal["scores", "comparisons"], int] = {}
    if bundle.scores is not None:
        counts["scores"] = _different_from_scores(looked_up, bundle)
    if bundle.comparisons is not None:
        counts["comparisons"] = _different_from_table(looked_up, bundle)
    source = min(counts, key=counts.__getitem__)
    return Agreement(
        known=int(known.sum()),
        looked_up=len(looked_up),
        different=counts[source],
        unknown_models=tuple(fitted[~fitted.isin(models)]),
        left_out=tuple(models[~models.isin(fitted)]),
        source=source,
    )


def _different_from_scores(comparisons: Comparisons, bundle: Bundle) -> int:
    assert bundle.scores is not None
    table = bundle.scores.set_index(ID)
    table.index = table.index.map(str)
    table = table.reindex(index=comparisons.queries.map(str), columns=comparisons.models)
    scores = table.to_numpy(dtype=float)
    rows = comparisons.query
    difference = scores[rows, comparisons.second] - scores[rows, comparisons.first]
    return int((np.sign(difference) / 2 + 0.5 != comparisons.outcome).sum())  # missing: different


def _different_from_table(comparisons: Comparisons, bundle: Bundle) -> int:
    assert bundle.comparisons is not None
    theirs = Comparisons.from_frame(bundle.comparisons, ordered=bundle.ordered)
    counted = _keys(theirs).value_counts()
    ours = _keys(comparisons).value_counts()
    return int((ours - counted.reindex(ours.index, fill_value=0)).clip(lower=0).sum())


def _keys(comparisons: Comparisons) -> pd.Series:
    """Name comparisons, the same whichever model stands first."""
    names = comparisons.models.to_numpy(dtype=object)
    first, second = names[comparisons.first], names[comparisons.second]
    swapped = first > second
    return pd.Series(
        list(
            zip(
                comparisons.queries.map(str).to_numpy(dtype=object)[comparisons.query],
                np.where(swapped, second, first),
                np.where(swapped, first, second),
                np.where(swapped, 1 - comparisons.outcome, comparisons.outcome).round(9),
                strict=True,
            )
        ),
        dtype=object,
    )


def look_up_texts(facts: Sequence[BundleFacts]) -> dict[str, str]:
    """Give the texts of queries; of bundles that both know a query, the first tells."""
    texts: dict[str, str] = {}
    for one in reversed(facts):
        texts.update(one.texts.to_dict())
    return texts
