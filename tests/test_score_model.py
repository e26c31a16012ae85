"""The model of scores: its likelihood, what it recovers, and predictions against loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.special import expit, logsumexp

from bayes_ecc import ECC, InputError, ScoreModel, fit_score_model, load_bundle, simulate
from bayes_ecc.inference import read_signals
from bayes_ecc.posterior import make_posterior
from bayes_ecc.quality import align_scores, quality_calibration_error
from bayes_ecc.score_model import Ease, TrainingScores, abilities, fit_ease
from bayes_ecc.splits import frozen_split

MODELS = ["a", "b", "c", "d"]
EMBEDDINGS = np.random.default_rng(1).normal(size=(7, 3))


def make(n_chains: int = 2, n_draws: int = 2, n_clusters: int = 3, rng: int = 0) -> xr.DataTree:
    generator = np.random.default_rng(rng)
    shape = (n_chains, n_draws, n_clusters)
    centroids = generator.normal(size=(*shape, 3))
    return make_posterior(
        strengths=generator.normal(size=(*shape, len(MODELS))),
        centroids=centroids / np.linalg.norm(centroids, axis=-1, keepdims=True),
        weights=generator.dirichlet(np.ones(n_clusters), size=shape[:2]),
        models=pd.Index(MODELS),
        concentration=2.0,
        evidence_power=1.0,
        probe_power=3.0,
        rule="per_comparison",
        estimator="made",
        settings={},
        chain_weights=np.arange(1.0, n_chains + 1),
    )


def some_model() -> ScoreModel:
    scores = (np.random.default_rng(2).random((7, 4)) < 0.5).astype(float)
    return fit_score_model(make(), scores, embeddings=EMBEDDINGS, n_levels=3)


def log_likelihood(
    scores: np.ndarray, r: np.ndarray, ability: np.ndarray, levels: np.ndarray, ease: Ease
) -> float:
    logit = np.tensordot(ease.scales, ability, 1)[:, None] + levels[:, None]
    total = 0.0
    for row, weight in zip(scores, r, strict=True):
        known = ~np.isnan(row)
        p = expit(logit[..., known])
        each = (row[known] * np.log(p) + (1 - row[known]) * np.log(1 - p)).sum(axis=-1)
        total += float(logsumexp(each + np.log(weight[:, None]) + np.log(ease.shares)))
    return total


# -------------------------------------------------------------------- the fit


def test_em_never_lowers_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    levels = np.linspace(-4, 4, 5)
    ability = abilities(rng.normal(size=(3, 4)), np.log(np.full(3, 1 / 3)))
    scores = (rng.random((60, 4)) < 0.6).astype(float)
    scores[rng.random(scores.shape) < 0.2] = np.nan
    scores[:5] *= 0.5
    r = rng.dirichlet(np.ones(3), size=60)
    ease = Ease(np.array([1.0, 0.5]), np.full((3, 5), 0.2))
    data = TrainingScores.of(scores)
    values = [log_likelihood(scores, r, ability, levels, ease)]
    for _ in range(25):
        ease = fit_ease(data, r, ability, levels, ease, 1, free_scales=True, prior=0.0)
        values.append(log_likelihood(scores, r, ability, levels, ease))
    assert (np.diff(values) > -1e-3).all()
    assert values[-1] > values[0] + 1
    # and at its end no scale nearby is better
    for change in ([0.05, 0], [-0.05, 0], [0, 0.05], [0, -0.05]):
        other = Ease(np.maximum(ease.scales + change, 0), ease.shares)
        assert log_likelihood(scores, r, ability, levels, other) < values[-1] + 1e-2


def test_scales_and_ease_are_recovered() -> None:
    rng = np.random.default_rng(0)
    n_clusters, levels = 3, np.linspace(-3, 3, 3)
    ability = abilities(rng.normal(size=(n_clusters, 8)), np.log(np.full(n_clusters, 1 / 3)))
    scales = np.array([1.2, 0.6])
    shares = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.05, 0.15, 0.8]])
    n = 6000
    kind = rng.integers(n_clusters, size=n)
    level = (rng.random((n, 1)) > shares.cumsum(axis=1)[kind]).sum(axis=1)
    chance = expit(np.tensordot(scales, ability, 1)[kind] + levels[level][:, None])
    scores = (rng.random(chance.shape) < chance).astype(float)
    start = Ease(np.array([1.0, 0.5]), np.full((3, 3), 1 / 3))
    found = fit_ease(
        TrainingScores.of(scores), np.eye(3)[kind], ability, levels, start, 60, free_scales=True
    )
    assert np.allclose(found.scales, scales, atol=0.08)
    assert np.allclose(found.shares, shares, atol=0.05)


def test_abilities_split_strengths() -> None:
    rng = np.random.default_rng(0)
    strengths, weights = rng.normal(size=(5, 3, 4)), rng.dirichlet(np.ones(3), size=5)
    common, own = abilities(strengths, np.log(weights))
    centred = strengths - strengths.mean(axis=2, keepdims=True)
    assert np.allclose(common + own, centred)
    assert np.allclose(common[:, 0], np.einsum("sk,skm->sm", weights, centred))
    assert np.allclose(common[:, 0], common[:, 2])


def test_one_of_two_succeeding_is_bradley_terry() -> None:
    model = some_model()
    p = model.success.astype(float)
    logit = model.logits.astype(float)
    for i, j in ((0, 1), (2, 3)):
        first, second = p[:, i] * (1 - p[:, j]), p[:, j] * (1 - p[:, i])
        assert np.allclose(first / (first + second), expit(logit[:, i] - logit[:, j]), atol=2e-4)


@pytest.mark.parametrize(("concentration", "told", "expected"), [(0.5, 1.0, 8), (4.0, 0.7, 0.25)])
def test_sharpness_follows_what_embeddings_tell(
    concentration: float, told: float, expected: float
) -> None:
    """Two kinds of query, plain from embeddings or half hidden, read too bluntly or sharply."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=600)
    centroids = np.eye(3)[:2]
    strengths = np.array([[3.0, 1.0, -1.0, -3.0], [-3.0, -1.0, 1.0, 3.0]])
    posterior = make_posterior(
        strengths=strengths[None, None],
        centroids=centroids[None, None],
        weights=np.full((1, 1, 2), 0.5),
        models=pd.Index(MODELS),
        concentration=concentration,
        evidence_power=1.0,
        probe_power=1.0,
        rule="per_comparison",
        estimator="made",
        settings={},
    )
    shown = np.where(rng.random(600) < told, kind, 1 - kind)
    embeddings = centroids[shown] + 0.1 * rng.normal(size=(600, 3))
    scores = (rng.random((600, 4)) < expit(strengths[kind])).astype(float)
    model = fit_score_model(posterior, scores, embeddings=embeddings)
    assert model.sharpness == expected
    assert model.draws.atoms.concentration == concentration * model.sharpness
    fixed = fit_score_model(posterior, scores, embeddings=embeddings, sharpness=1.0)
    assert fixed.draws.atoms.concentration == concentration


# -------------------------------------------------------------------- predictions


def loops(model: ScoreModel, seen: np.ndarray | None) -> np.ndarray:
    """Expected scores by loops over queries, draws, clusters and levels."""
    source = model.draws.atoms
    signals = read_signals(source, embeddings=EMBEDDINGS, probes=None)
    ability = np.tensordot(model.scales, abilities(source.strengths, source.log_weights), 1)
    expected = np.zeros((len(EMBEDDINGS), len(MODELS)))
    assert signals.embeddings is not None
    for q, x in enumerate(signals.embeddings):
        total = 0.0
        for s in range(len(source)):
            r = np.exp(source.log_weights[s] + source.concentration * source.centroids[s] @ x)
            r /= r.sum()
            for k in range(source.n_clusters):
                for h, level in enumerate(model.levels):
                    p = expit(ability[s, k] + level)
                    weight = source.share[s] * r[k] * model.level_shares[s, k, h]
                    for m in range(len(MODELS)):
                        if seen is not None and not np.isnan(seen[q, m]):
                            weight *= p[m] ** seen[q, m] * (1 - p[m]) ** (1 - seen[q, m])
                    expected[q] += weight * p
                    total += weight
        expected[q] /= total
    return expected


@pytest.mark.parametrize("with_seen", [False, True])
def test_predictions_equal_loops(with_seen: bool) -> None:
    model = some_model()
    seen = None
    if with_seen:
        seen = np.full((7, 4), np.nan)
        seen[0, :2] = [1.0, 0.0]
        seen[3] = [0.0, 0.0, 0.5, 0.0]
    expected = loops(model, seen)
    found = model.predict(embeddings=EMBEDDINGS, observed=seen)
    if seen is not None:
        expected = np.where(np.isnan(seen), expected, seen)
    assert np.allclose(found, expected, atol=1e-5)


def test_a_failure_on_an_easy_to_tell_query_lowers_the_rest() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(300) < 0.5
    scores = (rng.random((300, 4)) < np.where(hard, 0.1, 0.9)[:, None]).astype(float)
    model = fit_score_model(make(n_clusters=1), scores, embeddings=rng.normal(size=(300, 3)))
    seen = np.full((7, 4), np.nan)
    seen[:, 0] = 0.0
    before = model.predict(embeddings=EMBEDDINGS).values
    after = model.predict(embeddings=EMBEDDINGS, observed=seen).values
    assert (after[:, 1:] < before[:, 1:] - 0.2).all()
    assert np.allclose(before.mean(axis=0), scores.mean(axis=0), atol=0.08)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    model = some_model()
    whole = model.predict(embeddings=EMBEDDINGS)
    monkeypatch.setattr("bayes_ecc.score_model._CELLS", 70)
    assert np.allclose(model.predict(embeddings=EMBEDDINGS), whole, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.full((7, 4), 1.5), "query 0: found 1.5"),
        (np.full((7, 4), np.nan), "no score"),
        (np.zeros((6, 4)), r"shape \(6, 4\)"),
    ],
)
def test_bad_scores_are_refused(scores: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit_score_model(make(), scores, embeddings=EMBEDDINGS)


def test_bad_observations_are_refused() -> None:
    with pytest.raises(InputError, match="observed, query 0: found -1"):
        some_model().predict(embeddings=EMBEDDINGS, observed=np.full((7, 4), -1.0))


def test_queries_without_scores_take_no_part() -> None:
    data = simulate(n_queries=100, n_models=5, rng=0)
    fit = ECC(2, embedding_weight=1.0, rng=0).fit(data.comparisons, data.embeddings)
    scores = (np.random.default_rng(0).random((100, 5)) < 0.5).astype(float)
    scores[60:] = np.nan
    partly = fit_score_model(fit.posterior_, scores, embeddings=data.embeddings)
    alone = fit_score_model(fit.posterior_, scores[:60], embeddings=data.embeddings[:60])
    assert partly.n_queries == 60
    assert np.allclose(partly.level_shares, alone.level_shares, atol=1e-6)


# -------------------------------------------------------------------- real data


@pytest.mark.statistical
def test_expected_scores_are_calibrated_on_new_queries(
    shared_data: Path, shared_protocol: Path
) -> None:
    bundle = load_bundle(shared_data / "routerdc")
    split = frozen_split(bundle, shared_protocol / "routerdc" / "seed_0.parquet", seed=0)
    fit = ECC(30, evidence="embedding", rng=0).fit(split.train, split.train_embeddings)
    assert bundle.scores is not None
    model = fit_score_model(
        fit.posterior_,
        bundle.scores,
        embeddings=split.train_embeddings,
        queries=split.train.queries,
    )
    expected = model.predict(embeddings=split.test_embeddings).values
    realised = align_scores(bundle.scores, split.scored.queries, split.train.models)
    assert quality_calibration_error(expected.ravel(), realised.ravel()) < 0.03
    constant = realised.mean(axis=0)
    assert np.mean((expected - realised) ** 2) < np.mean((constant - realised) ** 2) - 0.03
