"""What onboarding takes from a fit, and the fit with the newcomer in it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.acquisition import Ground
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import read_draws
from bayes_ecc.errors import InputError
from bayes_ecc.inference import iterate_responsibilities, read_signals
from bayes_ecc.newcomer import Prior, Tried, exchangeable_prior, joined, pool_prior
from bayes_ecc.posterior import Atoms, identifiers, make_posterior, training_data

type FloatArray = NDArray[np.floating[Any]]

_ATOMS = 100  # of the fit, at most; the draws of the newcomer are spread over them
_MISREAD = 0.2  # share of queries that a point estimate is taken to misread
_LEVEL_SD = 1.0  # of a newcomer's level under the fit's own prior, as global_scale of `Priors`
_KEPT_ATTRS = ("sampler", "approximate", "clusters_matched", "failed_checks", "warned_checks")
_CODED = ("query_code", "first_code", "second_code", "comparison_weight")


class OldFit(NamedTuple):
    """A fit of the old models, thinned to what the newcomer is learnt under.

    Attributes
    ----------
    source : xarray.DataTree
    atoms : Atoms
        As many of each chain that carries weight, chain by chain.
    positions : ndarray of int, shape (n_atoms,)
        Which of all draws they are.
    n_chains : int
    """

    source: xr.DataTree
    atoms: Atoms
    positions: NDArray[np.intp]
    n_chains: int

    @property
    def power(self) -> float:
        """What multiplies the log-likelihood of a newcomer's comparison.

        Where the fit averages a query's comparisons its power is a temperature, not evidence.
        """
        if self.atoms.rule != "per_comparison":
            return 1.0
        return float(self.source["constant_data"]["evidence_power"])


def read_old_fit(posterior: xr.DataTree) -> OldFit:
    """Read a fit for onboarding.

    Raises
    ------
    InputError
        If it is no posterior, or learnt ties or an order effect.
    """
    read = read_draws(posterior)
    found, n_chains = read.atoms, len(read.chains)
    if found.tie_margin is not None or found.order_effect is not None:
        raise InputError(
            "This fit learnt a tie margin or an order effect, which onboarding does not know; fit "
            "with ties='half' and order_effect=False."
        )
    used = np.flatnonzero(found.share.reshape(n_chains, -1).sum(axis=1) > 0)
    n_draws = len(found) // n_chains
    each = min(n_draws, max(1, _ATOMS // len(used)))
    spaced = ((np.arange(each) + 0.5) * n_draws / each).astype(int)
    kept = (used[:, None] * n_draws + spaced).ravel()
    few = replace(
        found,
        strengths=found.strengths[kept],
        centroids=found.centroids[kept],
        log_weights=found.log_weights[kept],
        share=found.share[kept] / found.share[kept].sum(),
    )
    return OldFit(posterior, few, kept, len(used))


def read_ground(
    fit: OldFit,
    embeddings: ArrayLike | None,
    probes: Comparisons | None,
    queries: Iterable[Hashable] | None,
    reference: ArrayLike | None,
) -> tuple[pd.Index, Ground]:
    """Read the candidate queries, by default those fitted.

    What is known of them weighs as much as a newcomer's comparison does. The power with which a
    fit reads probes predicts well, but makes it surer of a query's cluster than it should be, and
    a design would pick the very queries that it is wrong about. A point estimate knows nothing of
    how unsure its clusters are; of its queries some are taken to be like any other.
    """
    few = replace(fit.atoms, rule="per_comparison", probe_power=fit.power)
    about_fit = few
    if embeddings is None and probes is None:
        if queries is not None:
            raise InputError("queries are named, but nothing is known of them; give embeddings.")
        probes, embeddings = training_data(fit.source)
        few = replace(few, projection=None)
    index, responsibilities = responsibilities_of(few, embeddings, probes, queries)
    about = responsibilities
    if reference is not None:
        about = responsibilities_of(about_fit, reference, None, None)[1]
    if len(few) == 1:
        usual = responsibilities.mean(axis=1, keepdims=True)
        responsibilities = (1 - _MISREAD) * responsibilities + _MISREAD * usual
    return index, Ground(few.strengths, responsibilities, about, few.share)


def responsibilities_of(
    few: Atoms,
    embeddings: ArrayLike | None,
    probes: Comparisons | None,
    queries: Iterable[Hashable] | None,
) -> tuple[pd.Index, FloatArray]:
    """Give queries and their responsibilities, float32 (n_atoms, n_queries, n_clusters)."""
    signals = read_signals(few, embeddings=embeddings, probes=probes, queries=queries)
    found = [r.astype(np.float32) for _, _, r in iterate_responsibilities(few, signals)]
    return signals.queries, np.stack(found)


def make_prior(fit: OldFit, kind: str) -> Prior:
    """Make the prior "pool" or "fit"; see `start_onboarding`.

    Raises
    ------
    InputError
        If the fit's own prior is not to be found in it.
    """
    if kind == "pool":
        return pool_prior(fit.atoms.strengths)
    draws = fit.source.children["posterior"].to_dataset(inherit=False)
    if "tau" in draws:
        spread = draws["tau"].values.ravel()[fit.positions]
    else:
        ridge = _settings(fit.source).get("ridge")
        if not isinstance(ridge, int | float):
            raise InputError(
                "prior='fit', but the posterior holds neither draws of tau nor a ridge; use "
                "prior='pool'."
            )
        spread = np.full(len(fit.atoms), 1 / np.sqrt(ridge))
    return exchangeable_prior(fit.atoms.strengths, spread, _LEVEL_SD)


def with_newcomer(
    fit: OldFit, name: str, newcomer: FloatArray, queries: pd.Index, asked: Tried
) -> xr.DataTree:
    """Put a newcomer's strengths (n_atoms, n_replicates, n_clusters) into the container."""
    found, source, n_chains = fit.atoms, fit.source, fit.n_chains
    n_replicates = newcomer.shape[1]

    def laid_out(values: FloatArray) -> FloatArray:
        repeated = np.repeat(values, n_replicates, axis=0)
        return repeated.reshape(n_chains, -1, *values.shape[1:])

    strengths = joined(newcomer, found.strengths)
    strengths = strengths.reshape(n_chains, -1, *strengths.shape[2:])
    groups = {
        "posterior": xr.Dataset(
            {
                "contrasts": (
                    ("chain", "draw", "cluster", "llm"),
                    strengths - strengths.mean(axis=3, keepdims=True),
                )
            }
        ),
        "newcomer": xr.Dataset(
            {
                "asked_query": ("asked", identifiers(queries[asked.query])),
                "opponent": ("asked", found.models[asked.opponent].to_numpy(dtype=object)),
                "won": ("asked", asked.outcome),
                "asked_weight": ("asked", asked.weight),
            }
        ),
    }
    constant = source.children["constant_data"].to_dataset(inherit=False)
    if "observed_data" in source.children:
        groups["observed_data"] = source.children["observed_data"].to_dataset(inherit=False)
        groups["constant_data"] = constant[list(_CODED)]
    tree = make_posterior(
        strengths=strengths,
        centroids=laid_out(found.centroids),
        weights=np.exp(laid_out(found.log_weights)),
        models=found.models.append(pd.Index([name])),
        concentration=found.concentration,
        evidence_power=float(constant["evidence_power"]),
        probe_power=found.probe_power,
        rule=found.rule,
        estimator=str(source.attrs.get("estimator", "")),
        settings=_settings(source),
        projection=found.projection,
        embedded=found.embedded,
        chain_weights=found.share.reshape(n_chains, -1).sum(axis=1),
        groups=groups,
    )
    if "ordered" in constant.attrs:
        tree["constant_data"].attrs["ordered"] = constant.attrs["ordered"]
    tree.attrs.update({name: source.attrs[name] for name in _KEPT_ATTRS if name in source.attrs})
    tree.attrs["newcomer"] = name
    return tree


def _settings(posterior: xr.DataTree) -> dict[str, Any]:
    try:
        settings = json.loads(posterior.attrs.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}
