"""What plots are made from: a fit, its posterior, or a summary of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.errors import InputError, NotFittedError
from bayes_ecc.inference import predict_responsibilities
from bayes_ecc.plots.style import plain_text
from bayes_ecc.posterior import as_fitted, select_chain, thin, training_data

type FloatArray = NDArray[np.floating[Any]]


def as_posterior(source: Any, *, name: str = "source") -> xr.DataTree | Draws:
    """Give the posterior of a fitted estimator; a posterior or its draws as they are.

    Raises
    ------
    InputError
        If it is neither.
    NotFittedError
        If the estimator was not fitted.
    """
    if isinstance(source, xr.DataTree | Draws):
        return source
    found = getattr(source, "posterior_", None)
    if isinstance(found, xr.DataTree):
        return found
    if hasattr(source, "fit"):
        raise NotFittedError(f"This {type(source).__name__} is not fitted yet: call fit first.")
    raise InputError(
        f"{name} is a {type(source).__name__}; give a fitted estimator, its posterior_, or a "
        "summary made from it."
    )


def check_summary(summary: xr.Dataset, variables: Iterable[str], maker: str) -> None:
    """Refuse a summary of something else.

    Raises
    ------
    InputError
        If variables are missing.
    """
    missing = [name for name in variables if name not in summary]
    if missing:
        raise InputError(f"The summary has no {missing[0]!r}; give one made by {maker}.")


def refuse_settings(given: dict[str, Any]) -> None:
    """Refuse settings that come too late for a summary.

    Raises
    ------
    InputError
        If one of them is set.
    """
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name} can't be chosen for a summary that is made already; give the fit, or the "
                "summary made so."
            )


def heaviest_chain(posterior: xr.DataTree | Draws) -> Any:
    """Tell the chain that counts most in predictions."""
    if isinstance(posterior, Draws):
        share = posterior.atoms.share.reshape(len(posterior.chains), -1).sum(axis=1)
        return posterior.chains[int(np.argmax(share))]
    weights = posterior.children["constant_data"].to_dataset(inherit=False)["chain_weights"]
    values = np.atleast_1d(weights.values)
    return np.atleast_1d(weights.coords["chain"].values)[int(np.argmax(values))]


def one_chain(
    summary: xr.Dataset, chain: Hashable | None, posterior: xr.DataTree | Draws | None
) -> tuple[xr.Dataset, str]:
    """Choose one chain where clusters differ by chain; tell which (an empty text for all).

    The heaviest of a posterior, the first of a summary, if none is asked for.

    Raises
    ------
    InputError
        If there is no such chain, or clusters are the same in all.
    """
    if "chain" not in summary.dims:
        if chain is not None:
            raise InputError(
                f"chain={chain!r}: clusters are the same in all chains, and the summary is over "
                "all of them; leave chain out."
            )
        return summary, ""
    chains = summary["chain"].values.tolist()
    if chain is None:
        chain = heaviest_chain(posterior) if posterior is not None else chains[0]
    if chain not in chains:
        raise InputError(f"chain={chain!r}: the chains are {', '.join(map(repr, chains))}.")
    return summary.sel(chain=chain), f"chain {chain}"


def chosen_item(
    summary: xr.Dataset, item: Hashable | None, *, name: str = "item"
) -> tuple[str, xr.Dataset]:
    """Choose a cluster or a query by its name; the only one if none is named.

    Raises
    ------
    InputError
        If there is no such one, or several and none is named.
    """
    dim = item_dim(summary)
    known = summary[dim].values.tolist()
    shown = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
    if item is None:
        if len(known) != 1:
            raise InputError(
                f"{name} is missing: there is more than one {dim} to draw ({len(known)}: {shown}); "
                f"name one with {name}=."
            )
        item = known[0]
    if item not in known:
        raise InputError(f"{dim} {item!r} is not there; known are {shown}.")
    return f"{dim} {plain_text(item)}", summary.isel({dim: known.index(item)})


def item_dim(summary: xr.Dataset) -> str:
    """Tell whether a summary is by cluster or by query."""
    return "query" if "query" in summary.dims else "cluster"


def caveats(summary: xr.Dataset, posterior: Any = None) -> str:
    """Say under what reservations a figure stands; empty if there are none."""
    found = []
    if isinstance(posterior, xr.DataTree) and int(posterior.attrs.get("approximate", 0)):
        found.append("approximate posterior")
    checks = str(summary.attrs.get("checks", ""))
    if checks.startswith("failed"):
        n_failed = checks.count(",") + 1
        found.append(f"{n_failed} check{'s' * (n_failed > 1)} of the fit failed")
    return "; ".join(found)


def interval_text(summary: xr.Dataset) -> str:
    """Name the intervals of a summary, or say that one draw has none."""
    if int(summary.attrs.get("draws", 2)) == 1:
        return "point estimate"
    if "ci_prob" not in summary.attrs:
        return "interval"
    kind = {"eti": "equal-tailed", "hdi": "highest-density"}[summary.attrs["ci_kind"]]
    return f"{100 * summary.attrs['ci_prob']:.3g} % {kind} interval"


def heading(*parts: str) -> str:
    """Join what is to be said above a figure."""
    return ", ".join(part for part in parts if part)


def tree_chain(posterior: xr.DataTree, chain: Hashable | None) -> tuple[xr.DataTree, str]:
    """Cut a posterior down to one chain where clusters differ by chain; tell which.

    Raises
    ------
    InputError
        If there is no such chain, or clusters are the same in all.
    """
    read = read_draws(posterior)
    if read.clusters_matched or len(read.chains) == 1:
        if chain is not None and chain not in read.chains.tolist()[: len(read.chains) == 1]:
            raise InputError(
                f"chain={chain!r}: clusters are the same in all chains, which are shown together; "
                "leave chain out."
            )
        return posterior, ""
    chains = read.chains.tolist()
    chosen = heaviest_chain(read) if chain is None else chain
    if chosen not in chains:
        raise InputError(f"chain={chain!r}: the chains are {', '.join(map(repr, chains))}.")
    return select_chain(posterior, chosen), f"chain {chosen}"


def training_responsibilities(
    posterior: xr.DataTree,
    draws: int,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
) -> tuple[xr.DataArray, FloatArray]:
    """Give mean responsibilities and embeddings of the queries fitted, or of those given."""
    n_draws = posterior.children["posterior"].sizes.get("draw", 1)
    thinned = thin(posterior, max(1, -(-n_draws // draws)))
    if embeddings is None:
        if probes is not None:
            raise InputError("embeddings is missing; give those of the probes' queries.")
        known, points = training_data(posterior)
        view = as_fitted(thinned)
        return predict_responsibilities(view, embeddings=points, probes=known), points
    found = predict_responsibilities(thinned, embeddings=embeddings, probes=probes)
    return found, np.asarray(embeddings, dtype=float)
