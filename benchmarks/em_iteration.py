"""An EM iteration against the two dense products that it cannot do without."""

from __future__ import annotations

import json
import os
import statistics
import time

import numpy as np

from bayes_ecc import simulate
from bayes_ecc.em import EMData, EMSettings, em_step, has_settled, start_state
from benchmarks.worker import Figure, in_its_own_process

TITLE = (
    "One EM iteration: 9,600 queries, 7 comparisons each, 28 models, 384 dimensions (float32), "
    "30 clusters"
)
NOTES = {
    "iteration": "time of centroids, Bradley-Terry fits, E-step and the test of convergence / time "
    "of X @ C.T and R.T @ X alone, in turn with the iterations = ratio",
    "median": "suffers from other processes on the cores, with several threads most",
    "fastest": "the fastest iteration and the fastest products of all",
}

N_ITERATIONS, N_RUNS = 40, 5


def run() -> list[Figure]:
    """Measure with one thread, and with as many as the machine gives."""
    figures = []
    for threads, environment in (
        ("1 thread", dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")),
        (f"{os.environ.get('OMP_NUM_THREADS', os.cpu_count())} threads", {}),
    ):
        times = in_its_own_process("benchmarks.em_iteration", environment)
        for name, choose in (("median", statistics.median), ("fastest", min)):
            iteration, products = choose(times["iteration"]), choose(times["products"])
            of = f"{1e3 * iteration:.2f} ms / {1e3 * products:.2f} ms"
            figures.append(
                Figure(f"{threads}, {name}", f"{of} = {iteration / products:.2f}", "< 2")
            )
    return figures


def measure() -> dict[str, list[float]]:
    """Time every iteration of some fits, and after each the products on what it read."""
    data = simulate(
        n_queries=9600, n_models=28, n_clusters=30, n_topics=40, embedding_dim=384, rng=0
    )
    em_data = EMData.from_comparisons(data.comparisons, data.embeddings)
    settings = EMSettings(embedding_weight=1.0, temperature=0.1, ridge=1.0)
    embeddings = data.embeddings
    draws = np.random.default_rng(0).standard_exponential((len(embeddings), 30))
    start = draws / draws.sum(axis=1, keepdims=True)
    times: dict[str, list[float]] = {"iteration": [], "products": []}
    for _ in range(N_RUNS):
        state = start_state(em_data, start)
        for _ in range(N_ITERATIONS):
            began = time.perf_counter()
            new = em_step(em_data, settings, state)
            has_settled(new, state, tol=1e-3, centroid_tol=1e-2)
            between = time.perf_counter()
            embeddings @ new.centroids.T
            state.responsibilities.T @ embeddings
            ended = time.perf_counter()
            times["iteration"].append(between - began)
            times["products"].append(ended - between)
            state = new
    return times


if __name__ == "__main__":
    print(json.dumps(measure()))
