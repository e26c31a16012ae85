"""What all tests share: real data where it is at hand, and the size of long tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import numpy as np
import pytest

from bayes_ecc import Comparisons

ROOT = Path(__file__).resolve().parents[1]

# The same examples on every run; how long one takes depends on the machine.
hypothesis.settings.register_profile("bayes_ecc", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("bayes_ecc")


def _data_folder(part: str) -> Path:
    """Find one part of the data folder, or skip (fail where BAYES_ECC_REQUIRE_DATA is set)."""
    folder = Path(os.environ.get("BAYES_ECC_SHARED") or ROOT.parent / "shared") / part
    if folder.is_dir():
        return folder
    message = f"no data at {folder}; BAYES_ECC_SHARED names another data folder"
    if os.environ.get("BAYES_ECC_REQUIRE_DATA", "0") not in ("", "0"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the real bundles, `routerdc` and `mmlu_pro`."""
    return _data_folder("data")


@pytest.fixture(scope="session")
def shared_parity() -> Path:
    """Folder of the public reference code's outputs."""
    return _data_folder("parity")


class Reference(NamedTuple):
    """One file of the reference code: its arrays, and its comparisons in the protocol's roles."""

    arrays: dict[str, Any]
    train: Comparisons
    probes: Comparisons
    scored: Comparisons


@pytest.fixture(scope="session", params=("ecc_k6", "ecc_k10", "comp_k6"))
def parity_reference(request: pytest.FixtureRequest, shared_parity: Path) -> Reference:
    """Each file of the reference code's outputs in turn."""
    with np.load(shared_parity / f"{request.param}.npz") as file:
        arrays = dict(file)
    everything = Comparisons.from_arrays(
        arrays["query"],
        arrays["first"],
        arrays["second"],
        arrays["second_won"],
        queries=range(len(arrays["embeddings"])),
        models=[f"m{i}" for i in range(int(arrays["n_models"]))],
    )
    probes, scored = everything.take(arrays["test_queries"]).take_probes(1)
    return Reference(arrays, everything.take(arrays["train_queries"]), probes, scored)


@pytest.fixture(scope="session")
def shared_protocol() -> Path:
    """Folder of the frozen comparisons, splits and probes."""
    return _data_folder("protocol")


@pytest.fixture(scope="session")
def replications() -> Callable[[int, int], int]:
    """Choose a test's size: `replications(full, small)` is `full` where BAYES_ECC_FULL=1."""
    run_full = os.environ.get("BAYES_ECC_FULL", "0") not in ("", "0")
    return lambda full, small: full if run_full else small
