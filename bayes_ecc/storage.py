"""Fits on disk: one netCDF file each, with everything that prediction needs."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.posterior import FORMAT_VERSION, atoms, training_data
from bayes_ecc.versions import installed_versions

_LIBRARIES = ("numpy", "scipy", "xarray", "pymc", "pytensor", "nutpie")
_SEAL = b"bayes_ecc sha256:"  # stands at the end of a file, behind what HDF5 reads
_OF_DRAWS = ("strengths", "centroids", "weights", "tie_margin", "order_effect")
_NEEDED = (  # for prediction, where a fit has it
    *(("posterior", n) for n in _OF_DRAWS),
    *(("constant_data", n) for n in ("concentration", "evidence_power", "probe_power")),
    *(("constant_data", n) for n in ("projection_mean", "projection_axes")),
)


def data_fingerprint(comparisons: Comparisons, embeddings: ArrayLike) -> str:
    """Give a short text that differs wherever training data differ.

    Parameters
    ----------
    comparisons : Comparisons
        Their queries, models, order and every value count.
    embeddings : array-like, shape (n_queries, embedding_dim)
        Every bit counts. A fit keeps them at unit length and as its projection made them, which is
        how `training_data` gives them; another type or length is other data.

    Returns
    -------
    str
        Of a saved fit, it is the attribute `data_fingerprint`.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, training_data
    >>> from bayes_ecc.storage import data_fingerprint
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> ours = data_fingerprint(data.comparisons, data.embeddings)
    >>> ours == data_fingerprint(*training_data(fit.posterior_))
    True
    """
    found = hashlib.sha256(f"{comparisons.ordered}".encode())
    for names in (comparisons.queries, comparisons.models):
        found.update(json.dumps(list(map(str, names.tolist()))).encode())
    for codes in (comparisons.query, comparisons.first, comparisons.second):
        _add(found, codes.astype("<i8"))
    for values in (comparisons.outcome, comparisons.weight):
        _add(found, values.astype("<f8"))
    vectors = np.asarray(embeddings)
    _add(found, vectors.astype(vectors.dtype.newbyteorder("<")))
    return f"sha256:{found.hexdigest()}"


def _add(found: hashlib._Hash, values: NDArray[np.generic]) -> None:
    found.update(f"{values.dtype.str}{values.shape}".encode())
    found.update(np.ascontiguousarray(values).data)


def _described(posterior: xr.DataTree) -> xr.DataTree:
    """Add the attributes that say where a fit comes from; the posterior given stays as it is."""
    described = posterior.copy()
    if "observed_data" in posterior.children:
        try:
            described.attrs["data_fingerprint"] = data_fingerprint(*training_data(posterior))
        except (InputError, KeyError):  # narrowed to fewer models, say: no longer what was fitted
            described.attrs.pop("data_fingerprint", None)
    # of a fit that was loaded, those it came with
    described.attrs.setdefault("versions", json.dumps(installed_versions(*_LIBRARIES)))
    return described


def save_posterior(posterior: xr.DataTree, path: str | Path) -> Path:
    """Write a posterior to one netCDF file.

    Its attributes, which any reader of netCDF shows, are `estimator`, `settings` (JSON, the seed as
    `rng` where it was a number), `bayes_ecc_version`, `versions` (JSON, of the libraries beneath)
    and `data_fingerprint`; of a Bayesian fit also `sampler`, `failed_checks` and `warned_checks`.

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
        partial.touch()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{target} cannot be written ({reason}); choose another place.") from None
    try:
        _described(posterior).to_netcdf(partial, engine="h5netcdf")
        _seal(partial)
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
        If the file is missing, truncated, damaged, not a fit of this library, of a newer format,
        or holds numbers that nothing can be predicted from or other training data than were saved.

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
    if any((source / f"queries.{suffix}").is_file() for suffix in ("parquet", "csv")):
        raise InputError(
            f"{source} is a data set, not a saved fit; `bayes-ecc fit {shlex.quote(str(source))} "
            "--out FILE` makes a fit of it. Give that file."
        )
    if source.is_dir():
        raise InputError(f"{source} is a folder; give the file of a saved fit in it.")
    if not source.is_file():
        raise InputError(f"{source} does not exist; save a fit there first.")
    if not _is_whole(source):
        raise InputError(
            f"{source} is damaged: its bytes are not those that were saved. Save the fit again, or "
            "copy the file again from where it is whole."
        )
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
    for group, name in _NEEDED:
        held = tree.children[group].to_dataset(inherit=False)
        values = held[name].values if name in held else np.empty(0)
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise InputError(
                f"{source} holds {group}/{name} with {bad:,} of {values.size:,} numbers that are "
                "not finite, so nothing can be predicted from it. Fit again and save that."
            )
    saved = tree.attrs.get("data_fingerprint")
    if saved is not None and saved != _described(tree).attrs.get("data_fingerprint"):
        raise InputError(
            f"The training data in {source} are not those that were saved (their fingerprint is "
            "another); the file is damaged or was changed. Save the fit again."
        )
    return tree


def _seal(path: Path) -> None:
    """Put a checksum behind the file, where HDF5 does not look; who changes the file takes it off.

    A reader of damaged HDF5 may go on without end, so whether a file is whole is told beforehand.
    """
    digest = _digest(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_SEAL + digest)


def _is_whole(path: Path) -> bool:
    """Tell whether a file agrees with its checksum; one without is left to its reader."""
    length = len(_SEAL) + hashlib.sha256().digest_size * 2
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - length))
        tail = file.read()
    place = tail.rfind(_SEAL)  # of a file that was cut short, part of it may be left
    return place < 0 or tail[place + len(_SEAL) :] == _digest(path, size - len(tail) + place)


def _digest(path: Path, size: int) -> bytes:
    """Hash the first bytes of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while size and (part := file.read(min(size, 2**20))):
            found.update(part)
            size -= len(part)
    return found.hexdigest().encode()


def _path(path: str | Path) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path={path!r}: give the name of a file.")
    return Path(path)
