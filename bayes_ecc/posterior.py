"""The one result container: an xarray DataTree with everything that prediction needs.

Every estimator ends in one: an EM fit is a posterior with a single atom, a sampled fit one with
chains x draws atoms. Inference, metrics, routing and plots ask the container, never the estimator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.checks import check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.embeddings import SphereProjection
from bayes_ecc.errors import InputError
from bayes_ecc.ties import Margins

type FloatArray = NDArray[np.floating[Any]]
type EvidenceRule = Literal["per_comparison", "per_query_mean"]

EVIDENCE_RULES: tuple[EvidenceRule, ...] = ("per_comparison", "per_query_mean")
FORMAT_VERSION = 1
_DIMS = {
    "strengths": ("chain", "draw", "cluster", "llm"),
    "centroids": ("chain", "draw", "cluster", "embedding_dim"),
    "weights": ("chain", "draw", "cluster"),
}


@dataclass(frozen=True, eq=False)
class Atoms:
    """The atoms of a posterior as plain arrays, chains and draws in one row of S atoms.

    Attributes
    ----------
    strengths : ndarray, shape (S, n_clusters, n_models)
    centroids : ndarray, shape (S, n_clusters, embedding_dim)
    log_weights : ndarray, shape (S, n_clusters)
    share : ndarray, shape (S,)
        Weight of each atom; sums to 1.
    concentration, probe_power : float
        What multiplies x.c and a probe's log-likelihood.
    rule : {"per_comparison", "per_query_mean"}
        Whether a query's probes add up or are averaged.
    projection : SphereProjection or None
        What to do to embeddings first.
    models : pandas.Index
        Model names, in the order of the last axis of `strengths`.
    tie_margin, order_effect : ndarray, shape (S,), or None
        What ties and order add to margins; None where they were not learnt.
    embedded : bool
        False if the fit had no embeddings, so that comparisons alone tell queries apart.

    Examples
    --------
    >>> from bayes_ecc import ECC, atoms, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> atoms(fit.posterior_).strengths.shape
    (1, 2, 5)
    """

    strengths: FloatArray
    centroids: FloatArray
    log_weights: FloatArray
    share: FloatArray
    concentration: float
    probe_power: float
    rule: EvidenceRule
    projection: SphereProjection | None
    models: pd.Index
    tie_margin: FloatArray | None = None
    order_effect: FloatArray | None = None
    embedded: bool = True

    def __len__(self) -> int:
        return len(self.share)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self.strengths.shape[1]

    def with_probe_power(self, probe_power: float) -> Atoms:
        """Give the same atoms with another probe power."""
        return replace(self, probe_power=probe_power)

    def outcome_counts(
        self, comparisons: Comparisons, *, per_query_mean: bool = False
    ) -> OutcomeCounts:
        """Count outcomes as the likelihood of these atoms wants them.

        Unordered comparisons are read without an order effect.
        """
        return comparisons.with_models(self.models).outcome_counts(
            per_query_mean=per_query_mean,
            ties="half" if self.tie_margin is None else "rao_kupper",
            order_effect=self.order_effect is not None and comparisons.ordered,
        )

    def margins(self, s: int) -> Margins:
        """Give the tie margin and the order effect of one atom; 0 where they were not learnt."""
        return Margins(
            *(0.0 if v is None else float(v[s]) for v in (self.tie_margin, self.order_effect))
        )

    def tie_margin_of(self, s: int) -> float | None:
        """Give the tie margin of one atom; None where ties are half-wins."""
        return None if self.tie_margin is None else float(self.tie_margin[s])

    def used(self) -> Iterator[tuple[int, float]]:
        """Iterate over the positions and shares of the atoms that carry weight."""
        return ((s, float(share)) for s, share in enumerate(self.share) if share > 0)


def make_posterior(
    *,
    strengths: FloatArray,
    centroids: FloatArray,
    weights: FloatArray,
    models: pd.Index,
    concentration: float,
    evidence_power: float,
    probe_power: float,
    rule: EvidenceRule,
    estimator: str,
    settings: Mapping[str, Any],
    projection: SphereProjection | None = None,
    chain_weights: FloatArray | None = None,
    training: tuple[Comparisons, FloatArray] | None = None,
    embedded: bool = True,
    groups: Mapping[str, xr.Dataset] | None = None,
) -> xr.DataTree:
    """Build the container from arrays.

    Parameters
    ----------
    strengths : ndarray, shape (n_chains, n_draws, n_clusters, n_models)
    centroids : ndarray, shape (n_chains, n_draws, n_clusters, embedding_dim)
    weights : ndarray, shape (n_chains, n_draws, n_clusters)
        Mixture weights; they sum to 1 over clusters.
    models : pandas.Index
        Model names.
    concentration, evidence_power, probe_power : float
        What multiplies x.c, a training comparison's and a probe's log-likelihood.
    rule : {"per_comparison", "per_query_mean"}
        Whether the comparisons of a query add up or are averaged.
    estimator : str
        Name of the estimator.
    settings : mapping
        Its settings; anything JSON can hold.
    projection : SphereProjection, optional
        What the fit did to embeddings first.
    chain_weights : ndarray, shape (n_chains,), optional
        Weights of the chains in predictions; equal by default.
    training : (Comparisons, ndarray), optional
        What was fitted, embeddings before projection: kept (as references) as observed_data and
        constant_data, so that training queries can be looked up later.
    embedded : bool
        False if the embeddings are blank.
    groups : mapping of str to xarray.Dataset, optional
        Further groups (sample_stats, log_likelihood, ...); a "posterior" or "constant_data" among
        them is merged into the one made here.

    Returns
    -------
    xarray.DataTree

    Raises
    ------
    InputError
        If shapes do not fit together.
    """
    if strengths.ndim != len(_DIMS["strengths"]):
        raise InputError(
            f"strengths has {strengths.ndim} dimensions; give {', '.join(_DIMS['strengths'])}."
        )
    sizes = dict(zip(_DIMS["strengths"], strengths.shape, strict=True))
    expected = (
        ("centroids", centroids.shape[:3], strengths.shape[:3]),
        ("weights", weights.shape, strengths.shape[:3]),
        ("models", (len(models),), strengths.shape[3:]),
    )
    for name, found, wanted in expected:
        if found != wanted:
            raise InputError(f"{name} has shape {found} where strengths ask for {wanted}.")
    if rule not in EVIDENCE_RULES:
        raise InputError(f"rule={rule!r}: allowed are {', '.join(EVIDENCE_RULES)}.")
    coords = {
        **{name: np.arange(sizes[name]) for name in ("chain", "draw", "cluster")},
        "llm": models.to_numpy(dtype=object),
        "embedding_dim": np.arange(centroids.shape[-1]),
    }
    values = {"strengths": strengths, "centroids": centroids, "weights": weights}
    posterior = xr.Dataset(
        {name: (dims, values[name]) for name, dims in _DIMS.items()}, coords=coords
    )
    n_chains = sizes["chain"]
    share = np.full(n_chains, 1 / n_chains)
    if chain_weights is not None:
        share = _shares(np.asarray(chain_weights, dtype=float), n_chains)
    constant: dict[str, Any] = {
        "concentration": float(concentration),
        "evidence_power": float(evidence_power),
        "probe_power": float(probe_power),
        "chain_weights": ("chain", share),
    }
    if projection is not None:
        constant["projection_mean"] = ("input_dim", projection.mean)
        constant["projection_axes"] = (("embedding_dim", "input_dim"), projection.axes)
    contents = {
        "posterior": posterior,
        "constant_data": xr.Dataset(constant, coords={"chain": coords["chain"]}),
    }
    if training is not None:
        contents["observed_data"], coded = _training_data(*training, projection)
        contents["constant_data"] = contents["constant_data"].merge(coded)
    for name, dataset in (groups or {}).items():
        contents[name] = contents[name].merge(dataset) if name in contents else dataset
    contents["constant_data"].attrs["evidence_rule"] = rule
    contents["constant_data"].attrs["embedded"] = int(embedded)
    if training is not None:
        contents["constant_data"].attrs["ordered"] = int(training[0].ordered)
    tree = xr.DataTree.from_dict(contents)
    tree.attrs.update(
        format_version=FORMAT_VERSION,
        estimator=estimator,
        settings=json.dumps(dict(settings), default=_plain, sort_keys=True),
        bayes_ecc_version=metadata.version("bayes_ecc"),
    )
    return tree


def atoms(posterior: xr.DataTree) -> Atoms:
    """Read the atoms of a posterior as plain arrays.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library; thinned, with chains left out or a single chain or
        draw of it, if one likes. The weights of the chains left are brought to sum to 1.

    Returns
    -------
    Atoms

    Raises
    ------
    InputError
        If something that prediction needs is missing, no draw is left, or none has weight.

    Examples
    --------
    >>> from bayes_ecc import ECC, atoms, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> len(atoms(fit.posterior_))
    1
    """
    if not isinstance(posterior, xr.DataTree):
        raise InputError(
            f"posterior must be an xarray DataTree, not {type(posterior).__name__}; pass the "
            "posterior_ of a fit."
        )
    for group, names in (
        ("posterior", tuple(_DIMS)),
        ("constant_data", ("concentration", "probe_power", "chain_weights")),
    ):
        missing = [name for name in names if group not in posterior or name not in posterior[group]]
        if missing:
            raise InputError(
                f"The posterior lacks {group}/{missing[0]}; pass the posterior_ of a fit, whole."
            )
    draws = posterior.children["posterior"].to_dataset(inherit=False)
    constant = posterior.children["constant_data"].to_dataset(inherit=False)
    rule = constant.attrs.get("evidence_rule")
    if rule not in EVIDENCE_RULES:
        raise InputError(
            f"The posterior's constant_data has evidence_rule {rule!r} where "
            f"{' or '.join(EVIDENCE_RULES)} is needed; keep attributes when changing a posterior."
        )
    variables = {name: _with_dims(draws[name], dims) for name, dims in _DIMS.items()}
    values = {name: variable.values for name, variable in variables.items()}
    n_chains, n_draws = values["weights"].shape[:2]
    if not n_chains * n_draws:
        raise InputError("The posterior has no draws left; select at least one chain and draw.")
    flat = {
        name: value.reshape(n_chains * n_draws, *value.shape[2:]) for name, value in values.items()
    }
    by_chain = _chain_shares(constant["chain_weights"], variables["weights"])
    projection = None
    if "projection_axes" in constant:
        projection = SphereProjection(
            constant["projection_mean"].values,
            constant["projection_axes"].transpose("embedding_dim", "input_dim").values,
        )
    with np.errstate(divide="ignore"):
        log_weights = np.log(flat["weights"])
    return Atoms(
        strengths=flat["strengths"],
        centroids=flat["centroids"],
        log_weights=log_weights,
        share=np.repeat(by_chain / n_draws, n_draws),
        concentration=float(constant["concentration"]),
        probe_power=float(constant["probe_power"]),
        rule=rule,
        projection=projection,
        models=pd.Index(draws["llm"].values.tolist()),
        embedded=bool(constant.attrs.get("embedded", 1)),
        **{
            name: _with_dims(draws[name], ("chain", "draw")).values.ravel()
            for name in ("tie_margin", "order_effect")
            if name in draws
        },
    )


def _with_dims(variable: xr.DataArray, dims: tuple[str, ...]) -> xr.DataArray:
    """Order dimensions, a chain or draw that was selected singly being one of one."""
    for name in ("chain", "draw"):
        single = name not in variable.coords or variable.coords[name].ndim == 0
        if name in dims and name not in variable.dims and single:
            variable = variable.expand_dims(name)
    if set(variable.dims) != set(dims):
        raise InputError(
            f"{variable.name} of the posterior has dimensions {', '.join(map(str, variable.dims))} "
            f"where {', '.join(dims)} are needed; unstack or select before predicting."
        )
    return variable.transpose(*dims)


def _chain_shares(chain_weights: xr.DataArray, draws: xr.DataArray) -> FloatArray:
    """Give the weights of the chains that are left, found by name where chains have names."""
    weights = _with_dims(chain_weights, ("chain",))
    names = weights.indexes.get("chain")
    if names is not None and names.is_unique and "chain" in draws.coords:
        weights = weights.reindex(chain=draws["chain"].values)
    return _shares(weights.values, draws.sizes["chain"])


def _shares(chain_weights: FloatArray, n_chains: int) -> FloatArray:
    """Bring the weights of chains to sum to 1."""
    if chain_weights.shape != (n_chains,):
        raise InputError(
            f"chain_weights has shape {chain_weights.shape} for {n_chains} chains; give one each."
        )
    total = chain_weights.sum()
    if not (np.isfinite(chain_weights).all() and (chain_weights >= 0).all() and total > 0):
        raise InputError(
            f"chain_weights is {chain_weights.tolist()}; weights are finite, not negative, and "
            "not all zero. Select chains that have weight, or give them some."
        )
    return chain_weights / total


def thin(posterior: xr.DataTree, factor: int) -> xr.DataTree:
    """Keep every n-th draw, in all groups alike.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library; it is not changed.
    factor : int
        One draw of so many is kept, the first of each chain among them.

    Returns
    -------
    xarray.DataTree
        With the attributes of the whole. A diagnosis in it remains that of the whole.

    Raises
    ------
    InputError
        If the factor is no whole number of at least 1.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.posterior import thin
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> thin(fit.posterior_, 5)["posterior"].sizes["draw"]
    1
    """
    atoms(posterior)
    step = check_count("factor", factor)
    return posterior.isel(draw=slice(None, None, step), missing_dims="ignore")


def select_chain(posterior: xr.DataTree, chain: Any = None) -> xr.DataTree:
    """Keep one chain: one solution, whose clusters have one numbering.

    Chains from starts of their own number their clusters each in its own way. On a single chain
    rankings of clusters, typical queries, partitions and plots all speak of the same clusters.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library; it is not changed.
    chain : optional
        Name of the chain, as in the coordinate `chain`; by default the one that counts most in
        predictions, which plots, reports and partitions show where chains were not matched.

    Returns
    -------
    xarray.DataTree
        With that chain alone. A diagnosis in it remains that of the whole.

    Raises
    ------
    InputError
        If there is no such chain.

    Examples
    --------
    >>> from bayes_ecc import BayesianECC, select_chain, simulate, typical_queries
    >>> data = simulate(n_queries=100, n_models=5, n_clusters=2, rng=0)
    >>> fit = BayesianECC(
    ...     2, concentration=6.0, probe_power=3.0, chains=2, tune=30, draws=30, checks=False,
    ...     cores=1, rng=0,
    ... ).fit(data.comparisons, data.embeddings)
    >>> solution = select_chain(fit.posterior_)
    >>> solution["posterior"].sizes["chain"], len(typical_queries(solution, n=1))
    (1, 2)
    """
    atoms(posterior)
    constant = posterior.children["constant_data"].to_dataset(inherit=False)
    weights = np.atleast_1d(constant["chain_weights"].values)
    names = np.atleast_1d(posterior["posterior"].coords["chain"].values).tolist()
    place = int(weights.argmax())
    if chain is not None:
        if chain not in names:
            raise InputError(f"chain={chain!r}: the chains are {', '.join(map(repr, names))}.")
        place = names.index(chain)
    one = posterior.isel(chain=[place], missing_dims="ignore")
    set_chain_weights(one, np.ones(1))
    one.attrs["clusters_matched"] = 1
    return one


def set_chain_weights(posterior: xr.DataTree, weights: FloatArray) -> None:
    """Set the weights that chains have in predictions; they are brought to sum to 1."""
    constant = posterior.children["constant_data"].to_dataset(inherit=False)
    shares = _shares(np.asarray(weights, dtype=float), constant.sizes["chain"])
    posterior["constant_data"] = constant.assign(chain_weights=("chain", shares))


def identifiers(index: pd.Index) -> NDArray[Any]:
    """Give identifiers as a coordinate that netCDF can hold: whole numbers or objects."""
    return index.to_numpy() if index.dtype.kind in "iu" else index.to_numpy(dtype=object)


def training_data(posterior: xr.DataTree) -> tuple[Comparisons, FloatArray]:
    """Read what a posterior was fitted to.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.

    Returns
    -------
    comparisons : Comparisons
    embeddings : ndarray, shape (n_queries, embedding_dim)
        As projected by the fit; all alike if it had none.

    Raises
    ------
    InputError
        If the posterior does not hold them.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, training_data
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> training_data(fit.posterior_)[0].n_queries
    60
    """
    if "observed_data" not in posterior.children:
        raise InputError("The posterior holds no training data; fit again to look queries up.")
    observed = posterior.children["observed_data"].to_dataset(inherit=False)
    coded = posterior.children["constant_data"].to_dataset(inherit=False)
    comparisons = Comparisons.from_arrays(
        coded["query_code"].values,
        coded["first_code"].values,
        coded["second_code"].values,
        observed["outcome"].values,
        weight=coded["comparison_weight"].values,
        queries=observed["query"].values.tolist(),
        models=posterior.children["posterior"].coords["llm"].values.tolist(),
        ordered=bool(coded.attrs["ordered"]),
    )
    return comparisons, observed["embeddings"].values


def as_fitted(posterior: xr.DataTree) -> xr.DataTree:
    """Give the posterior that reads training queries as the fit did.

    Training embeddings are kept as projected, and training comparisons count with the evidence
    power, not with the probe power; this view expects both so.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.

    Returns
    -------
    xarray.DataTree
        For prediction and summaries with the embeddings and, as probes, the comparisons that
        `training_data` gives.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import ECC, as_fitted, predict_responsibilities, simulate, training_data
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> comparisons, embeddings = training_data(fit.posterior_)
    >>> again = predict_responsibilities(
    ...     as_fitted(fit.posterior_), embeddings=embeddings, probes=comparisons
    ... )
    >>> bool(np.allclose(again, fit.responsibilities_, atol=1e-5))
    True
    """
    constant = posterior.children["constant_data"].to_dataset(inherit=False)
    view = posterior.copy()
    view["constant_data"] = constant.drop_vars(
        ["projection_mean", "projection_axes"], errors="ignore"
    ).assign(probe_power=constant["evidence_power"])
    return view


def _training_data(
    comparisons: Comparisons, embeddings: FloatArray, projection: SphereProjection | None
) -> tuple[xr.Dataset, xr.Dataset]:
    """Lay out what was fitted: what is random in the model, and what is not."""
    projected = embeddings if projection is None else projection.transform(embeddings)
    projected = projected.view()
    projected.flags.writeable = False  # it may be the caller's own
    observed = xr.Dataset(
        {
            "embeddings": (("query", "embedding_dim"), projected),
            "outcome": ("comparison", comparisons.outcome),
        },
        coords={"query": identifiers(comparisons.queries)},
    )
    coded = xr.Dataset(
        {
            "query_code": ("comparison", comparisons.query),
            "first_code": ("comparison", comparisons.first),
            "second_code": ("comparison", comparisons.second),
            "comparison_weight": ("comparison", comparisons.weight),
        }
    )
    return observed, coded


def _plain(value: Any) -> Any:
    """Write NumPy values into JSON as plain ones and anything else by its name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return repr(value)
