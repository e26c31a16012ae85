"""The memory that a large Bayesian fit takes, its chains' processes included."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.worker import ROOT, Figure

TITLE = (
    "Memory of a Bayesian fit: 9,600 queries, 7 comparisons each, 28 models, 384 dimensions, "
    "30 clusters, 4 chains of 500 + 500 sweeps, with all checks"
)
NOTES = {
    "all processes": "the fit's and its chains' together, pages they share counted once (PSS)",
    "largest process": "the peak of the one that took most",
    "chosen": "concentration and probe power are chosen on inner splits, in processes of their own",
}

_EVERY = 0.25  # seconds


def run() -> list[Figure]:
    """Fit with given and with chosen settings, watched from outside."""
    if not Path("/proc/self/smaps_rollup").exists():
        return [Figure("peak", "this system does not tell")]
    figures = []
    for name in ("given", "chosen"):
        together, largest, measured = _watched(
            [sys.executable, "-m", "benchmarks.bayes_memory", name]
        )
        figures += [
            Figure(f"settings {name}: all processes", _megabytes(together), "< 2,000 MB"),
            Figure(f"settings {name}: largest process", _megabytes(largest)),
            Figure(f"settings {name}: before the fit", _megabytes(measured["before"])),
            Figure(f"settings {name}: the posterior with its groups", _megabytes(measured["tree"])),
            Figure(f"settings {name}: seconds", f"{measured['seconds']:.0f}"),
        ]
    return figures


def measure(chosen: bool) -> dict[str, float]:
    """Fit once."""
    import warnings

    from bayes_ecc import BayesianECC, simulate
    from benchmarks.memory import peak

    data = simulate(
        n_queries=9600, n_models=28, n_clusters=30, n_topics=40, embedding_dim=384, rng=0
    )
    given: dict[str, Any] = {} if chosen else {"concentration": 6.0, "probe_power": 3.0}
    fit = BayesianECC(30, rng=0, **given)
    before, began = peak(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the checks found does not matter here
        fit.fit(data.comparisons, data.embeddings)
    seconds = time.perf_counter() - began
    return {"before": before, "tree": fit.posterior_.nbytes, "seconds": seconds}


def _watched(command: list[str]) -> tuple[int, int, dict[str, float]]:
    """Run a command; give the peaks of all its processes together and of the largest, in bytes."""
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    together = largest = 0
    while child.poll() is None:
        sizes = [_size(pid) for pid in _family(child.pid)]
        together, largest = max(together, sum(sizes)), max(largest, *sizes, 0)
        time.sleep(_EVERY)
    assert child.stdout is not None
    printed = child.stdout.read()
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return together, largest, json.loads(printed.splitlines()[-1])


def _family(pid: int) -> list[int]:
    """Give a process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:  # it has ended meanwhile
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    return family


def _size(pid: int) -> int:
    """Give a process's share of the memory in use, in bytes; shared pages are divided."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] == "chosen")), flush=True)
