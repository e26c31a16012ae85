"""Concentration and probe power of the mixture, chosen by how well they predict held-out votes.

The likelihood of the embeddings would choose a far too large concentration: the mixture would
rather explain dozens of embedding coordinates than a handful of comparisons. What counts is how
well held-out comparisons are predicted, so short chains are run on inner splits of the training
queries, one for each candidate concentration; the probe power is read off the same chains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.embeddings import SphereProjection
from bayes_ecc.inference import read_signals, win_probabilities
from bayes_ecc.metrics import bt_loss
from bayes_ecc.models.ecc_mixture import Priors
from bayes_ecc.posterior import Atoms, EvidenceRule
from bayes_ecc.samplers import GibbsProblem, GibbsState, draw_parameters, gibbs_sweep
from bayes_ecc.selection import SearchResult, search
from bayes_ecc.ties import Ties
from bayes_ecc.validation import InnerSplit, inner_splits

type FloatArray = NDArray[np.floating[Any]]

CONCENTRATION_GRID = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
WITHOUT_PROBES_GRID = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""All are tried: without probes, the loss need not have one minimum."""
PROBE_POWER_GRID = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 16.0, 24.0, 32.0)
_FIRST_CONCENTRATION = 6.0
_SPLITS, _CHAINS, _TUNE, _DRAWS, _THIN = 3, 2, 250, 100, 5
_WORTH_PROCESSES = 20_000  # queries x clusters from which starting processes pays


class MixtureSettings(NamedTuple):
    """What a mixture is fitted with; see `BayesianECC`."""

    n_clusters: int
    concentration: float | Literal["auto"]
    evidence_power: float
    probe_power: float | Literal["auto"]
    rule: EvidenceRule
    embedding_dim: int | None
    ties: Ties = "half"
    order_effect: bool = False


def choose_settings(
    comparisons: Comparisons,
    embeddings: FloatArray,
    settings: MixtureSettings,
    priors: Priors,
    rng: np.random.Generator,
    *,
    n_probes: int | None = None,
    cores: int | None = None,
    progress: bool | None = None,
) -> SearchResult:
    """Choose the settings that are "auto" on inner splits of the training queries.

    Parameters
    ----------
    comparisons : Comparisons
        Training comparisons.
    embeddings : ndarray, shape (n_queries, input_dim)
        Unit length, before projection.
    settings : MixtureSettings
        Those that are not "auto" are kept.
    priors : Priors
    rng : numpy.random.Generator
        Randomness of splits and chains; all candidates meet the same.
    n_probes : int, optional
        Probes of each held-out query; by default one, or none where queries have too few
        comparisons.
    cores : int, optional
        Processes; by default as many as there are processors, for problems large enough.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal only.

    Returns
    -------
    SearchResult
        Its `best` holds concentration and probe_power.
    """
    splits = inner_splits(comparisons, _SPLITS, n_probes=n_probes, rng=rng)
    problems = [_InnerProblem(split, embeddings, settings, priors) for split in splits]
    probed = any(len(split.probes) for split in splits)
    powers: Sequence[float] = PROBE_POWER_GRID
    if settings.probe_power != "auto":
        powers = (settings.probe_power,)
    elif not probed:
        powers = (settings.evidence_power,)  # nothing to choose by: a vote like any other
    large = comparisons.n_queries * settings.n_clusters > _WORTH_PROCESSES
    workers = min(_SPLITS, cores or os.cpu_count() or 1) if large else 1
    losses: dict[float, dict[float, list[float]]] = {}

    def best_loss(concentration: float) -> float:
        if concentration not in losses:
            by_split = run(delayed(problem.losses)(concentration, powers) for problem in problems)
            losses[concentration] = {p: [split[p] for split in by_split] for p in powers}
            bar.update()
        return min(float(np.mean(values)) for values in losses[concentration].values())

    disable = None if progress is None else not progress
    with (
        tqdm(desc="concentration", unit="value", disable=disable) as bar,
        Parallel(n_jobs=workers) as run,
    ):
        if settings.concentration == "auto" and not probed:
            for value in WITHOUT_PROBES_GRID:
                best_loss(value)
        elif settings.concentration == "auto":
            _walk(best_loss, CONCENTRATION_GRID, _FIRST_CONCENTRATION)
        else:
            best_loss(settings.concentration)
    return search(
        lambda tried: losses[tried["concentration"]][tried["probe_power"]],
        {"concentration": sorted(losses), "probe_power": powers},
        method="grid",
    )


def _walk(loss: Callable[[float], float], grid: Sequence[float], first: float) -> None:
    """Try neighbouring values, downhill from the first, until both neighbours are worse."""
    at = grid.index(first)
    while True:
        near = [i for i in (at, at + 1, at - 1) if 0 <= i < len(grid)]
        best = min(near, key=lambda i: loss(grid[i]))
        if best == at:
            return
        at = best


class _InnerProblem:
    """One inner split, projected once, on which candidates are tried."""

    def __init__(
        self, split: InnerSplit, embeddings: FloatArray, settings: MixtureSettings, priors: Priors
    ) -> None:
        train, held_out = (
            embeddings[split.train_positions],
            embeddings[split.validation_positions],
        )
        if settings.embedding_dim is not None:
            dim = min(settings.embedding_dim, len(train))
            projection = SphereProjection.fit(train, dim)
            train, held_out = projection.transform(train), projection.transform(held_out)
        self.split, self.settings, self.priors = split, settings, priors
        self.train, self.held_out = train, held_out
        mean = settings.rule == "per_query_mean"
        self.counts = split.train.outcome_counts(
            per_query_mean=mean, ties=settings.ties, order_effect=settings.order_effect
        )

    def losses(self, concentration: float, powers: Sequence[float]) -> dict[float, float]:
        """Run short chains at a concentration; give the validation loss by probe power."""
        split, settings = self.split, self.settings
        problem = GibbsProblem.from_counts(
            self.train,
            self.counts,
            n_clusters=settings.n_clusters,
            n_models=split.train.n_models,
            concentration=concentration,
            evidence_power=settings.evidence_power,
            weight_alpha=self.priors.weight_alpha,
            global_scale=self.priors.global_scale,
            tau_scale=None if self.priors.tau else self.priors.tau_scale,
            tie_margin_scale=self.priors.tie_margin_scale,
            order_effect_scale=self.priors.order_effect_scale,
        )
        states = []
        with threadpool_limits(1, user_api="blas"):  # more gain nothing
            for rng in np.random.default_rng(split.seed).spawn(_CHAINS):
                state = self._random_start(problem, rng)
                for sweep in range(_TUNE + _DRAWS):
                    state = gibbs_sweep(state, problem, rng)[0]
                    if sweep >= _TUNE and sweep % _THIN == 0:
                        states.append(state)
        margins = np.array([(state.tie_margin, state.order_effect) for state in states]).T
        found = Atoms(
            strengths=np.stack([state.strengths for state in states]),
            centroids=np.stack([state.centroids for state in states]),
            log_weights=np.log([state.weights for state in states]),
            share=np.full(len(states), 1 / len(states)),
            concentration=concentration,
            probe_power=1.0,
            rule=settings.rule,
            projection=None,
            models=split.train.models,
            tie_margin=None if self.counts.tie_weight is None else margins[0],
            order_effect=None if self.counts.direction is None else margins[1],
        )
        probes = split.probes if len(split.probes) else None
        signals = read_signals(
            found, embeddings=self.held_out, probes=probes, queries=split.scored.queries
        )
        return {
            power: bt_loss(
                win_probabilities(found.with_probe_power(power), signals, split.scored),
                split.scored,
            )
            for power in powers
        }

    def _random_start(self, problem: GibbsProblem, rng: np.random.Generator) -> GibbsState:
        """Let queries join the nearest of K of their own, or any; parameters follow."""
        n_clusters = problem.n_clusters
        few = len(problem.embeddings) < n_clusters
        seeds = problem.embeddings[rng.choice(len(problem.embeddings), n_clusters, replace=few)]
        state = GibbsState(
            weights=np.full(n_clusters, 1 / n_clusters),
            global_strengths=np.zeros(problem.n_models),
            tau=self.priors.tau or self.priors.tau_scale,
            strengths=np.zeros((n_clusters, problem.n_models)),
            centroids=seeds.astype(float),
        )
        labels = (problem.embeddings @ seeds.T).argmax(axis=1)
        if problem.concentration == 0:
            labels = rng.integers(n_clusters, size=len(labels))
        return draw_parameters(labels, state, problem, rng)
