"""What all tests share: real data where it is at hand, and the size of long tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import pytest

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


@pytest.fixture(scope="session")
def shared_protocol() -> Path:
    """Folder of the frozen comparisons, splits and probes."""
    return _data_folder("protocol")


@pytest.fixture(scope="session")
def replications() -> Callable[[int, int], int]:
    """Choose a test's size: `replications(full, small)` is `full` where BAYES_ECC_FULL=1."""
    run_full = os.environ.get("BAYES_ECC_FULL", "0") not in ("", "0")
    return lambda full, small: full if run_full else small
