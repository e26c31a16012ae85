"""What pooling is worth where comparisons are scarce: EM and posterior on parts of the data.

Reads `data/routerdc` and `protocol/routerdc/seed_S.parquet` in the folder that the environment
variable BAYES_ECC_SHARED names, and takes about an hour.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from bayes_ecc import load_bundle
from bayes_ecc.bundle import Bundle
from bayes_ecc.calibration import expected_calibration_error
from bayes_ecc.evaluation import EvaluationSettings, fit_method
from bayes_ecc.metrics import ranking_quality_gain
from bayes_ecc.models.bradley_terry import bradley_terry
from bayes_ecc.splits import Split, frozen_split
from benchmarks.worker import Figure

TITLE = (
    "Small data: RouterDC, training queries cut to a part, 2 comparisons each; gain and "
    "calibration error on all test queries, embedding and probe, mean over seeds 0 to 2"
)
NOTES = {
    "gain": "percent of the global model's loss; that model is fitted to the same part",
    "K": "clusters of ECC and of the Bayesian mixture alike",
    "labels, pooled": "one Bradley-Terry model a task, drawn towards a global one (sampled); "
    "it reads neither embedding nor probe",
    "ecc:auto, bayes": "settings are chosen on the same part of the training queries",
}

ON_REQUEST = True

SHARES = (0.05, 0.1, 0.2, 0.5)
SEEDS = (0, 1, 2)
PER_QUERY, MOST_CLUSTERS, QUERIES_A_CLUSTER = 2, 30, 25


def run(shares: Sequence[float] = SHARES, seeds: Sequence[int] = SEEDS) -> list[Figure]:
    """Fit every method to every part."""
    folder = Path(os.environ.get("BAYES_ECC_SHARED", ""))
    if not (folder / "protocol" / "routerdc").is_dir():
        return [Figure("no data: BAYES_ECC_SHARED names their folder", "-")]
    table = study(folder, shares, seeds)
    mean = table.groupby(["queries", "method"], sort=False)[["gain", "ece"]].mean()
    spread = table.groupby(["queries", "method"], sort=False)["gain"].std()
    return [
        Figure(
            f"{queries} queries, {method}",
            f"gain {row.gain:.1f} +- {spread[queries, method]:.1f}, ECE {row.ece:.3f}",
        )
        for (queries, method), row in mean.iterrows()
    ]


def study(folder: Path, shares: Sequence[float], seeds: Sequence[int]) -> pd.DataFrame:
    """Give one row a part, seed and method."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    bundle = load_bundle(folder / "data" / "routerdc")
    rows = []
    for share in shares:
        for seed in seeds:
            path = folder / "protocol" / "routerdc" / f"seed_{seed}.parquet"
            split = part_of(frozen_split(bundle, path, seed=seed), share)
            baseline = fit_method("global", split, bundle).predict("probe")
            for method, probability in _predictions(split, bundle):
                rows.append(
                    {
                        "queries": split.train.n_queries,
                        "seed": seed,
                        "method": method,
                        "gain": ranking_quality_gain(probability, baseline, split.scored),
                        "ece": expected_calibration_error(probability, split.scored),
                    }
                )
                print(", ".join(map(str, rows[-1].values())), file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def part_of(split: Split, share: float) -> Split:
    """Keep a share of the training queries, drawn at random, and two comparisons of each."""
    n_queries = split.train.n_queries
    order = np.random.default_rng(split.seed).permutation(n_queries)
    kept = np.sort(order[: round(share * n_queries)])
    few, _ = split.train.take(kept).take_probes(PER_QUERY)
    return split._replace(train=few, train_embeddings=split.train_embeddings[kept])


def _predictions(split: Split, bundle: Bundle) -> Any:
    """Fit and predict, method by method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models never compared, fits that did not settle
        for method in ("global", "labels:task"):
            yield method, fit_method(method, split, bundle).predict("embedding+probe")
        yield "labels, pooled", pooled_labels(split, bundle)
        fewer = min(MOST_CLUSTERS, split.train.n_queries // QUERIES_A_CLUSTER)
        for n_clusters in sorted({fewer, MOST_CLUSTERS}):
            settings = EvaluationSettings(n_clusters=n_clusters)
            for method in ("ecc:auto", "bayes"):
                fitted = fit_method(method, split, bundle, settings)
                yield f"{method}, K = {n_clusters}", fitted.predict("embedding+probe")


def pooled_labels(split: Split, bundle: Bundle) -> np.ndarray:
    """Sample the hierarchical model over tasks; a task not seen in training is drawn from it."""
    labels = bundle.labels("task")
    codes, names = pd.factorize(labels.loc[split.train.queries])
    model = bradley_terry(
        split.train.outcome_counts(), labels=codes, models=list(split.train.models)
    )
    with model:
        trace = pm.sample(
            500, tune=500, chains=2, cores=1, nuts_sampler="pymc", random_seed=split.seed,
            progressbar=False, quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    strengths, centre, tau = (
        np.concatenate(trace["posterior"][name].values)  # chain after chain
        for name in ("strengths", "global_strengths", "tau")
    )
    noise = np.random.default_rng(split.seed).standard_normal(centre.shape)
    unseen = centre + tau[:, None] * noise
    table = np.concatenate([strengths, unseen[:, None]], axis=1)
    scored = split.scored
    label = pd.Index(names).get_indexer(labels.loc[scored.queries])[scored.query]
    return expit(table[:, label, scored.second] - table[:, label, scored.first]).mean(axis=0)
