"""NumPy arrays in files, never a pickle, and never larger than the file that holds them."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bayes_ecc.errors import InputError
from bayes_ecc.reading import reading, unreadable, zip_members

_NEED = "plain arrays of numbers or text, written with numpy.save or numpy.savez"


def read_npy(path: Path) -> NDArray[Any]:
    """Read the array of a .npy file.

    Raises
    ------
    InputError
        If it is damaged, holds Python objects, or claims more than the file has.
    """
    with reading(path), path.open("rb") as stream:
        return _array(stream, str(path))


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file, by name.

    Raises
    ------
    InputError
        As `read_npy` does, and if it would grow beyond what is allowed.
    """
    arrays = {}
    with reading(path):
        for name, stream in zip_members(path, ".npy"):
            arrays[name[: -len(".npy")]] = _array(stream, f"{path}, {name}")
    return arrays


def _array(stream: IO[bytes], where: str) -> NDArray[Any]:
    """Read one array: the header first, then what it promises, if that is there."""
    try:
        size = stream.seek(0, 2)
        stream.seek(0)
        with warnings.catch_warnings(action="ignore"):  # of headers that Python 2 wrote
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[np.lib.format.read_magic(stream)]
            shape, by_column, dtype = read_header(stream)
    except Exception as error:  # headers are parsed as Python, with all its ways to fail
        unreadable(where, error, _NEED)
    if dtype.hasobject or dtype.kind not in "biufU":
        raise InputError(
            f"{where} holds {'Python objects' if dtype.hasobject else dtype}, as a pickle would; "
            f"it must be {_NEED}. Convert names with numpy.array(names, dtype=str)."
        )
    needed = math.prod(shape) * dtype.itemsize
    if needed != size - stream.tell():
        raise InputError(
            f"{where} claims {needed:,} bytes of values and has {size - stream.tell():,}; write it "
            "again."
        )
    try:
        flat = np.frombuffer(stream.read(needed), dtype=dtype)
        return flat.reshape(shape, order="F" if by_column else "C")
    except Exception as error:  # as above, and a zip archive may prove damaged here
        unreadable(where, error, _NEED)
