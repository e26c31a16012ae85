"""Ranking and routing from many draws: all queries at once, and one query at a time."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayes_ecc import Comparisons, read_draws, route, summarize_ranking
from bayes_ecc.posterior import make_posterior
from benchmarks.memory import peak
from benchmarks.worker import Figure, in_its_own_process

TITLE = "Ranking and routing from 4 x 500 draws: 30 clusters, 28 models, 32 dimensions (one thread)"
NOTES = {
    "batch": "10,000 queries with an embedding and one probe each: rank intervals, then a choice "
    "by P(best)",
    "products": "the two dense products of every draw and query alone, in the same blocks: "
    "embeddings with centroids, responsibilities with win probabilities",
    "one query": "from its embedding, after the first; median and 95th percentile of 200",
    "s, ms": "of processor time, so that other processes on the cores do not count",
}

N_QUERIES, N_CLUSTERS, N_MODELS, DIMENSIONS, CHAINS, DRAWS = 10_000, 30, 28, 32, 4, 500


def run() -> list[Figure]:
    """Measure in a process that does nothing else."""
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    m = in_its_own_process("benchmarks.routing", one_thread)
    ratio = (m["rank"] + m["route"]) / m["products"]
    figures = [
        Figure("batch: ranking", f"{m['rank']:.1f} s"),
        Figure("batch: routing", f"{m['route']:.1f} s"),
        Figure("batch: both", f"{m['rank'] + m['route']:.1f} s", "< 20 s"),
        Figure("batch: both / products", f"{ratio:.1f}"),
    ]
    if sys.platform != "win32":
        above = (m["peak"] - m["before"]) / 1e6
        figures.append(
            Figure("batch: memory above the posterior", f"{above:,.0f} MB", "< 1,000 MB")
        )
    for name in ("route", "rank"):
        median, high = (1000 * m[f"one_{name}_{q}"] for q in ("median", "high"))
        figures.append(Figure(f"one query: {name}", f"{median:.1f} ms, {high:.1f} ms", "< 5 ms"))
    return figures


def measure() -> dict[str, float]:
    """Rank and route."""
    rng = np.random.default_rng(0)
    tree, embeddings, probes = _problem(rng)
    before = peak()
    draws = read_draws(tree)
    measured: dict[str, float] = {"before": before}
    signals: dict[str, Any] = {"embeddings": embeddings, "probes": probes}
    measured["rank"] = _seconds(lambda: summarize_ranking(draws, **signals))
    measured["route"] = _seconds(lambda: route(draws, policy="p_best", **signals))
    measured["peak"] = peak()
    measured["products"] = _seconds(lambda: _products(draws, embeddings))
    commands: dict[str, Callable[..., xr.Dataset]] = {"route": route, "rank": summarize_ranking}
    for name, command in commands.items():
        took = _one_by_one(command, draws, embeddings)
        measured[f"one_{name}_median"], measured[f"one_{name}_high"] = took
    return measured


def _problem(rng: np.random.Generator) -> tuple[xr.DataTree, np.ndarray, Comparisons]:
    def unit(*shape: int) -> np.ndarray:
        values = rng.normal(size=shape)
        return values / np.linalg.norm(values, axis=-1, keepdims=True)

    base = unit(N_CLUSTERS, DIMENSIONS)
    centroids = base + 0.05 * rng.normal(size=(CHAINS, DRAWS, N_CLUSTERS, DIMENSIONS))
    strengths = rng.normal(size=(N_CLUSTERS, N_MODELS))
    models = pd.Index([f"llm_{m}" for m in range(N_MODELS)])
    tree = make_posterior(
        strengths=strengths + 0.3 * rng.normal(size=(CHAINS, DRAWS, N_CLUSTERS, N_MODELS)),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=np.full((CHAINS, DRAWS, N_CLUSTERS), 1 / N_CLUSTERS),
        models=models,
        concentration=6.0,
        evidence_power=1.0,
        probe_power=8.0,
        rule="per_comparison",
        estimator="synthetic",
        settings={},
    )
    first, second = rng.permuted(np.tile(np.arange(N_MODELS), (N_QUERIES, 1)), axis=1)[:, :2].T
    probes = Comparisons.from_arrays(
        np.arange(N_QUERIES),
        first,
        second,
        rng.integers(2, size=N_QUERIES).astype(float),
        queries=pd.RangeIndex(N_QUERIES),
        models=models,
    )
    return tree, unit(N_QUERIES, DIMENSIONS).astype(np.float32), probes


def _products(draws: Any, embeddings: np.ndarray) -> None:
    """Multiply what must be multiplied, and nothing else."""
    block, part = 128, 64
    responsibilities = np.full((part, N_CLUSTERS, block), 1 / N_CLUSTERS, dtype=np.float32)
    scores = np.empty((N_CLUSTERS, part, block), np.float32)
    win = np.empty((part, N_MODELS, block), np.float32)
    for start in range(0, len(embeddings) - block + 1, block):
        x = np.ascontiguousarray(embeddings[start : start + block].T)
        for first in range(0, CHAINS * DRAWS - part + 1, part):
            np.matmul(draws.centroid_table[:, first : first + part], x, out=scores)
            np.matmul(draws.win_table[first : first + part], responsibilities, out=win)


def _one_by_one(command: Callable[..., Any], draws: Any, embeddings: np.ndarray) -> list[float]:
    """Give the median and the 95th percentile of the time that one query takes."""
    took = [_seconds(lambda r=r: command(draws, embeddings=embeddings[[r]])) for r in range(201)]
    return np.quantile(took[1:], (0.5, 0.95)).tolist()


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()  # other processes on the cores do not count
    work()
    return time.process_time() - began


if __name__ == "__main__":
    print(json.dumps(measure()))
