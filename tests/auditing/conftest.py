"""Bundles to audit: the real ones, and a simulated one with scores, texts and embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayes_ecc.bundle import Bundle
from bayes_ecc.folders import load_bundle


@pytest.fixture(scope="session")
def real(shared_data: Path) -> dict[str, Bundle]:
    """The two real bundles, whole."""
    return {name: load_bundle(shared_data / name) for name in ("routerdc", "mmlu_pro")}


@pytest.fixture(scope="session")
def simulated() -> Bundle:
    """0/1 scores by ability and difficulty; texts of a topic's words; embeddings from the words."""
    rng = np.random.default_rng(0)
    n_queries, n_models, n_topics, n_words = 1500, 8, 5, 60
    topic = np.sort(rng.integers(n_topics, size=n_queries))
    words = topic[:, None] * n_words + rng.integers(n_words, size=(n_queries, 10))
    # every query has a neighbour: every other one takes over seven words of the one before
    words[1::2, :7] = words[:-1:2, :7]
    vectors = rng.standard_normal((n_topics * n_words, 48))
    vectors += 0.7 * rng.standard_normal((n_topics, 48)).repeat(n_words, axis=0)
    embeddings = vectors[words].sum(axis=1)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    logit = rng.normal(size=n_models) - 1.5 * rng.standard_normal((n_queries, 1))
    logit += rng.normal(size=(n_topics, n_models))[topic]
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    ids = [f"q{i:04d}" for i in range(n_queries)]
    table = pd.DataFrame(scores, columns=[f"llm_{m}" for m in range(n_models)])
    table.insert(0, "query_id", ids)
    queries = pd.DataFrame(
        {
            "query_id": ids,
            "text": [" ".join(f"w{word}" for word in row) for row in words],
            "topic": [f"topic_{t}" for t in topic],
        }
    )
    return Bundle("simulated", queries, scores=table, embeddings=embeddings.astype(np.float32))


@pytest.fixture(params=["simulated", "routerdc", "mmlu_pro"])
def bundle(request: pytest.FixtureRequest, simulated: Bundle) -> Bundle:
    """A simulated or a real bundle, the real ones cut to 2,000 queries."""
    if request.param == "simulated":
        return simulated
    whole = request.getfixturevalue("real")[request.param]
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(len(whole.queries), 2000, replace=False))
    return Bundle(
        whole.name,
        whole.queries.iloc[rows].reset_index(drop=True),
        scores=whole.scores.iloc[rows],
        embeddings=whole.embeddings[rows],
    )
