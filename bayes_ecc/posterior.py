"""The one result container: an xarray DataTree with everything that prediction needs.

Every estimator ends in one: an EM fit is a posterior with a single atom, a sampled fit one with
chains x draws atoms. Inference, metrics, routing and plots ask the container, never the estimator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.embeddings import SphereProjection
from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]
type EvidenceRule = Literal["per_comparison", "per_query_mean"]

EVIDENCE_RULES: tuple[EvidenceRule, ...] = ("per_comparison", "per_query_mean")
FORMAT_VERSION = 1
_DIMS = {
    "strengths": ("chain", "draw", "cluster", "llm"),
    "centroids": ("chain", "draw", "cluster", "embedding_dim"),
    "weights": ("chain", "draw", "cluster"),
}


@dataclass(frozen=True)
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

    def __len__(self) -> int:
        return len(self.share)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self.strengths.shape[1]

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
    for name, dataset in (groups or {}).items():
        contents[name] = contents[name].merge(dataset) if name in contents else dataset
    contents["constant_data"].attrs["evidence_rule"] = rule
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
    )


def save_posterior(posterior: xr.DataTree, path: str | Path) -> Path:
    """Write a posterior to one netCDF file.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    path : str or Path
        File to write; an existing one is replaced only once the new one is complete.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        If it is no posterior, or `path` is no place for a file.

    Examples
    --------
    >>> import tempfile
    >>> from bayes_ecc import ECC, load_posterior, save_posterior, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save_posterior(fit.posterior_, f"{folder}/fit.nc")
    ...     load_posterior(path).attrs["estimator"]
    'ECC'
    """
    atoms(posterior)
    target = _path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first.")
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file in it.")
    partial = target.with_name(target.name + ".partial")
    try:
        posterior.to_netcdf(partial, engine="h5netcdf")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def load_posterior(path: str | Path) -> xr.DataTree:
    """Read a posterior that `save_posterior` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    xarray.DataTree
        In memory; it predicts exactly as the one saved.

    Raises
    ------
    InputError
        If the file is missing, truncated, not a fit of this library, or of a newer format.

    Examples
    --------
    >>> from bayes_ecc import InputError, load_posterior
    >>> try:
    ...     load_posterior("no-such-fit.nc")
    ... except InputError as error:
    ...     print(error)
    no-such-fit.nc does not exist; save a fit there first.
    """
    source = _path(path)
    if not source.is_file():
        found = "is a folder" if source.is_dir() else "does not exist"
        raise InputError(f"{source} {found}; save a fit there first.")
    try:
        # Without a word on the dimensions of plain HDF5 files there would be a warning of theirs.
        with xr.open_datatree(source, engine="h5netcdf", phony_dims="access") as opened:
            tree = opened.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{source} cannot be read as a saved fit ({reason}); it may be truncated or of "
            "another kind. Save the fit again."
        ) from None
    version = tree.attrs.get("format_version")
    if not isinstance(version, int | np.integer):
        raise InputError(
            f"{source} is a netCDF file, but not a fit saved by bayes_ecc; use save_posterior."
        )
    if version > FORMAT_VERSION:
        raise InputError(
            f"{source} has format {version}, this version reads up to {FORMAT_VERSION}; "
            "upgrade bayes_ecc."
        )
    atoms(tree)
    return tree


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


def _path(path: str | Path) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path={path!r}: give the name of a file.")
    return Path(path)


def _plain(value: Any) -> Any:
    """Write NumPy values into JSON as plain ones and anything else by its name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return repr(value)
