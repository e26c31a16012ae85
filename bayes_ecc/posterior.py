"""The one result container: an xarray DataTree with everything that prediction needs.

Every estimator ends in one: an EM fit is a posterior with a single atom, a sampled fit one with
chains x draws atoms. Inference, metrics, routing and plots ask the container, never the estimator.
"""

from __future__ import annotations

import json
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
    share = np.full(n_chains, 1 / n_chains) if chain_weights is None else np.asarray(chain_weights)
    constant: dict[str, Any] = {
        "concentration": float(concentration),
        "evidence_power": float(evidence_power),
        "probe_power": float(probe_power),
        "chain_weights": ("chain", share / share.sum()),
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
        From any estimator of this library; thinned or with chains left out, if one likes.

    Returns
    -------
    Atoms

    Raises
    ------
    InputError
        If a group or variable that prediction needs is missing.

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
    values = {name: draws[name].transpose(*dims).values for name, dims in _DIMS.items()}
    n_chains, n_draws = values["weights"].shape[:2]
    flat = {
        name: value.reshape(n_chains * n_draws, *value.shape[2:]) for name, value in values.items()
    }
    chain_weights = constant["chain_weights"]
    if "chain" in chain_weights.coords and "chain" in draws.coords:
        chain_weights = chain_weights.sel(chain=draws["chain"])
    share = np.repeat(chain_weights.values / n_draws, n_draws)
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
        share=share / share.sum(),
        concentration=float(constant["concentration"]),
        probe_power=float(constant["probe_power"]),
        rule=constant.attrs["evidence_rule"],
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
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first.")
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
        If the file is missing, damaged, not a fit of this library, or of a newer format.

    Examples
    --------
    >>> from bayes_ecc import InputError, load_posterior
    >>> try:
    ...     load_posterior("no-such-fit.nc")
    ... except InputError as error:
    ...     print(error)
    no-such-fit.nc does not exist; save a fit there first.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source} does not exist; save a fit there first.")
    try:
        with xr.open_datatree(source, engine="h5netcdf") as opened:
            tree = opened.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{source} cannot be read as a saved fit ({reason}); it may be truncated or of "
            "another kind. Save the fit again."
        ) from None
    version = tree.attrs.get("format_version")
    if version is None:
        raise InputError(f"{source} is a netCDF file, but not a fit saved by bayes_ecc.")
    if int(version) > FORMAT_VERSION:
        raise InputError(
            f"{source} has format {int(version)}, this version reads up to {FORMAT_VERSION}; "
            "upgrade bayes_ecc."
        )
    atoms(tree)
    return tree


def _plain(value: Any) -> Any:
    """Write NumPy values into JSON as plain ones and anything else by its name."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    return repr(value)
