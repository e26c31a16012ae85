"""Figures, and benchmarks in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Figure(NamedTuple):
    """One line of a benchmark's table."""

    what: str
    value: str
    wanted: str = ""


def in_its_own_process(module: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run `python -m MODULE` and read the JSON it prints.

    Threads of the linear algebra are settled when NumPy is imported, and the peak of a process's
    memory is that of all it ever did: either asks for a fresh process.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
