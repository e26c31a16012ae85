"""Fits on disk: one netCDF file each, with everything that prediction needs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import xarray as xr

from bayes_ecc.errors import InputError
from bayes_ecc.posterior import FORMAT_VERSION, atoms


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


def _path(path: str | Path) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path={path!r}: give the name of a file.")
    return Path(path)
