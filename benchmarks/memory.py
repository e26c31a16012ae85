"""The memory a large fit takes beside its embeddings."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np

from bayes_ecc import ECC, ConvergenceWarning, simulate
from benchmarks.worker import Figure, in_its_own_process

TITLE = (
    "Memory of a fit: 44,000 queries, 7 comparisons each, 14 models, 768 dimensions (float32), "
    "100 clusters, 30 iterations"
)
NOTES = {
    "the process": "its peak less the embeddings: the interpreter, libraries and data too",
    "the fit": "how much the fit raised the peak of the process",
}

N_QUERIES, DIMENSIONS, N_CLUSTERS, N_ITERATIONS = 44_000, 768, 100, 30
_CHUNK = 1000


def run() -> list[Figure]:
    """Measure in a process that does nothing else."""
    if sys.platform == "win32":
        return [Figure("peak", "this system does not tell")]
    measured = in_its_own_process("benchmarks.memory")
    above = measured["peak"] - measured["embeddings"]
    return [
        Figure("embeddings", _megabytes(measured["embeddings"])),
        Figure("above them: the process", _megabytes(above), "< 3,000 MB"),
        Figure("above them: the fit", _megabytes(measured["peak"] - measured["before"])),
        Figure("iterations", str(measured["n_iter"]), str(N_ITERATIONS)),
    ]


def measure() -> dict[str, int]:
    """Fit once; the data are made in pieces, so that making them is not the peak."""
    data = simulate(n_queries=N_QUERIES, n_models=14, n_clusters=20, embedding_dim=8, rng=0)
    rng = np.random.default_rng(0)
    direction = rng.standard_normal((20, DIMENSIONS), dtype=np.float32)
    embeddings = np.empty((N_QUERIES, DIMENSIONS), dtype=np.float32)
    for first in range(0, N_QUERIES, _CHUNK):
        rows = embeddings[first : first + _CHUNK]
        rng.standard_normal(out=rows, dtype=np.float32)
        rows += 0.5 * direction[data.labels[first : first + _CHUNK]]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fit = ECC(N_CLUSTERS, embedding_weight=1.0, max_iter=N_ITERATIONS, tol=0, centroid_tol=0, rng=0)
    before = peak()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is to take all its iterations
        fit.fit(data.comparisons, embeddings)
    return {
        "embeddings": embeddings.nbytes,
        "before": before,
        "peak": peak(),
        "n_iter": fit.n_iter_,
    }


def peak() -> int:
    """Give the largest resident size so far, in bytes."""
    import resource  # there is none on Windows

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else 1024 * largest


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


if __name__ == "__main__":
    print(json.dumps(measure()))
