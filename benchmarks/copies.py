"""Whether embeddings that arrive normalised are ever copied."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np

from bayes_ecc import ECC, Bundle, ConvergenceWarning, simulate, unit_embeddings
from bayes_ecc.em import EMData
from benchmarks.worker import Figure

TITLE = "Copies of normalised embeddings: 4,000 queries of 2,048 dimensions (float32)"
NOTES = {"allocated": "the most that was allocated at once during a fit with 5 clusters"}


def run() -> list[Figure]:
    """Follow the embeddings from the bundle into the iterations, and what a fit allocates."""
    data = simulate(n_queries=4000, embedding_dim=2048, rng=0)
    bundle: Bundle = data.bundle()
    given = bundle.embeddings_for(data.comparisons.queries)
    unit = unit_embeddings(given)
    inside = EMData.from_comparisons(data.comparisons, unit).embeddings
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ECC(5, embedding_weight=1.0, max_iter=10, rng=0).fit(data.comparisons, given)
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return [
        Figure("a bundle hands out its own array", _yes(data.embeddings, given), "yes"),
        Figure("checking leaves them where they are", _yes(given, unit), "yes"),
        Figure("iterations read the very array given", _yes(given, inside), "yes"),
        Figure("allocated by a fit / size of embeddings", f"{allocated / given.nbytes:.2f}", "< 1"),
    ]


def _yes(a: np.ndarray, b: np.ndarray) -> str:
    return "yes" if np.shares_memory(a, b) else "no"
