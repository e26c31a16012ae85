"""What the notebooks share: real data where they are at hand, simulated ones elsewhere."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bayes_ecc import Bundle, ConvergenceWarning, DataWarning, load_bundle, simulate

SMALL = os.environ.get("BAYES_ECC_SMALL", "0") not in ("", "0")
"""Whether to run on few queries with short chains: enough to see that everything works."""

_HERE = Path(__file__).resolve().parent
_FOLDER = Path(os.environ.get("BAYES_ECC_SHARED") or _HERE.parents[1] / "shared") / "data"
_SMALL_QUERIES = 500

_told: set[str] = set()


def _tell(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Show a warning as a sentence, and each sentence once."""
    text = f"{category.__name__}: {message}"
    if text not in _told:
        _told.add(text)
        print(text)


# Checks that fail are part of the story.
for _category in (ConvergenceWarning, DataWarning):
    warnings.filterwarnings("always", category=_category)
warnings.filterwarnings("always", message="Estimated shape parameter of Pareto distribution")
warnings.showwarning = _tell

plt.rcParams.update({"figure.dpi": 100, "savefig.dpi": 100, "figure.constrained_layout.use": True})


def choose[Size](full: Size, small: Size) -> Size:
    """Give a size: that of the article, or that of a quick run."""
    return small if SMALL else full


def load(name: str, n_queries: int | None = None) -> Bundle:
    """Load `routerdc` or `mmlu_pro` from the data folder, or simulate a stand-in.

    `n_queries` takes so many queries at random.
    """
    if (_FOLDER / name).is_dir():
        bundle = load_bundle(_FOLDER / name)
    else:
        print(f"No data folder at hand: {name} is simulated, and the text does not speak of it.")
        bundle = stand_in(name)
    wanted = min(n_queries or len(bundle.queries), choose(len(bundle.queries), _SMALL_QUERIES))
    return bundle if wanted >= len(bundle.queries) else sample(bundle, wanted)


def sample(bundle: Bundle, n_queries: int) -> Bundle:
    """Take queries at random."""
    rows = np.random.default_rng(0).choice(len(bundle.queries), n_queries, replace=False)
    rows.sort()
    queries = bundle.queries.iloc[rows].reset_index(drop=True)
    assert bundle.scores is not None
    assert bundle.embeddings is not None
    scores = bundle.scores[bundle.scores["query_id"].isin(queries["query_id"])]
    return Bundle(
        bundle.name,
        queries,
        scores=scores.reset_index(drop=True),
        embeddings=bundle.embeddings[rows],
    )


def stand_in(name: str) -> Bundle:
    """Simulate scores of 0 and 1 under capability clusters, with the columns of the real bundle."""
    truth = simulate(n_queries=1500, n_models=9, n_clusters=5, rng=0)
    rng = np.random.default_rng(0)
    ease = rng.normal(0, 2, size=(len(truth.labels), 1))
    chance = 1 / (1 + np.exp(-(truth.strengths[truth.labels] + ease)))
    ids, models = truth.comparisons.queries, truth.comparisons.models
    scores = pd.DataFrame((rng.random(chance.shape) < chance).astype(float), columns=models)
    scores.insert(0, "query_id", ids)
    label = {"routerdc": "task", "mmlu_pro": "category"}[name]
    queries = pd.DataFrame(
        {
            "query_id": ids,
            "text": [f"A question of topic {topic}." for topic in truth.topics],
            label: [f"capability {k}" for k in truth.labels],
        }
    )
    return Bundle(name, queries, scores=scores, embeddings=truth.embeddings)
