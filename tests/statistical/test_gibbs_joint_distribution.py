"""The joint-distribution test of Geweke (2004): "getting it right".

Drawing data given parameters and parameters given data in turn, one sweep each, leaves the prior
untouched if and only if the sweep keeps the posterior; so the parameters' moments must be the
prior's. Only possible where data can be drawn: evidence power 1, no ties.
"""

import numpy as np
import pytest
from scipy import sparse, special

from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.samplers import (
    GibbsProblem,
    GibbsState,
    gibbs_sweep,
    random_von_mises_fisher,
)

pytestmark = pytest.mark.statistical

N_QUERIES, PER_QUERY, N_CLUSTERS, N_MODELS, DIM = 5, 3, 2, 3, 3
CONCENTRATION, ALPHA, GLOBAL_SCALE, TAU_SCALE = 2.5, 1.5, 0.8, 1.2
FIRST, SECOND = np.array([0, 0, 1]), np.array([1, 2, 2])
WINNER, LOSER = np.concatenate([FIRST, SECOND]), np.concatenate([SECOND, FIRST])


def draw_prior(n, fixed, rng):
    """n states as stacked arrays."""
    weights = rng.dirichlet(np.full(N_CLUSTERS, ALPHA), size=n)
    centre = GLOBAL_SCALE * rng.normal(size=(n, N_MODELS))
    tau = np.abs(TAU_SCALE * rng.normal(size=n))
    if fixed:
        weights, centre, tau = np.full_like(weights, 1 / N_CLUSTERS), 0 * centre, 0 * tau + 0.7
    strengths = centre[:, None] + tau[:, None, None] * rng.normal(size=(n, N_CLUSTERS, N_MODELS))
    centroids = random_von_mises_fisher(np.zeros((n, N_CLUSTERS, DIM)), rng=rng)
    return weights, centre, tau, strengths, centroids


def draw_data(weights, strengths, centroids, rng):
    """Embeddings and outcomes (1.0: the first of the pair won) for each of n states."""
    n = len(weights)
    z = (rng.random((n, N_QUERIES))[..., None] > weights.cumsum(axis=1)[:, None, :-1]).sum(axis=2)
    state = np.arange(n)[:, None]
    x = random_von_mises_fisher(CONCENTRATION * centroids[state, z], rng=rng)
    theta = strengths[state, z]
    chance = special.expit(theta[..., FIRST] - theta[..., SECOND])
    return x, (rng.random(chance.shape) < chance).astype(float)


def as_counts(won):
    """Outcomes of one data set, shape (N_QUERIES, 3), as wins."""
    return OutcomeCounts(sparse.csr_array(np.hstack([won, 1 - won])), WINNER, LOSER)


def functions(weights, centre, tau, strengths, centroids, x, won):
    """Test functions of parameters and data, in columns."""
    gap = strengths[:, :, 0] - strengths[:, :, 1]
    deviation = strengths - centre[:, None]
    cosine = np.einsum("nqd,nkd->nqk", x, centroids)
    odds = strengths[..., FIRST] - strengths[..., SECOND]
    log_bt = np.einsum("nqp,nkp->nqk", won, special.log_expit(odds))
    log_bt += np.einsum("nqp,nkp->nqk", 1 - won, special.log_expit(-odds))
    joint = np.log(weights)[:, None] + CONCENTRATION * cosine + log_bt
    responsibility = special.softmax(joint, axis=2)
    balance = (won[..., 0] - 0.5).sum(axis=1)
    return np.column_stack(
        [
            tau,
            tau**2,
            np.log(tau),
            centre[:, 0],
            centre[:, 0] ** 2,
            centre[:, 1] * centre[:, 2],
            strengths[:, 0, 2],
            strengths[:, 0, 0] ** 2,
            gap[:, 0] ** 2,
            np.abs(gap[:, 1]),
            gap[:, 0] * gap[:, 1],
            strengths.mean(axis=2)[:, 0] * strengths.mean(axis=2)[:, 1],
            (deviation**2).sum(axis=(1, 2)) / tau**2,
            (deviation[:, 0] * centre).sum(axis=1),
            weights[:, 0],
            weights[:, 0] ** 2,
            weights[:, 0] * gap[:, 0] ** 2,
            centroids[:, 0, 0],
            centroids[:, 1, 2] ** 2,
            (centroids[:, 0] * centroids[:, 1]).sum(axis=1),
            np.abs((centroids[:, 0] * centroids[:, 1]).sum(axis=1)),
            cosine.mean(axis=(1, 2)),
            (cosine**2).mean(axis=(1, 2)),
            cosine.max(axis=2).mean(axis=1),
            (responsibility * cosine).sum(axis=2).mean(axis=1),
            (responsibility * log_bt).sum(axis=2).mean(axis=1),
            (responsibility.mean(axis=1) * weights).sum(axis=1),
            special.logsumexp(joint, axis=2).mean(axis=1),
            balance * (centre[:, 0] - centre[:, 1]),
            balance * (weights * gap).sum(axis=1),
            np.abs(balance) * tau,
            balance**2 * gap[:, 0] * gap[:, 1],
        ]
    )


PARAMETERS = ("weights", "global_strengths", "tau", "strengths", "centroids")


@pytest.mark.parametrize("fixed", [False, True], ids=["all free", "hyperparameters fixed"])
def test_alternating_data_and_sweeps_leaves_the_prior_untouched(fixed, replications):
    n = replications(120_000, 9_000)
    rng = np.random.default_rng(11)
    state = GibbsState(*(value[0] for value in draw_prior(1, fixed, rng)))
    visited = []
    for _ in range(n):
        x, won = draw_data(state.weights[None], state.strengths[None], state.centroids[None], rng)
        problem = GibbsProblem.from_counts(
            x[0],
            as_counts(won[0]),
            n_clusters=N_CLUSTERS,
            n_models=N_MODELS,
            concentration=CONCENTRATION,
            weight_alpha=None if fixed else ALPHA,
            global_scale=None if fixed else GLOBAL_SCALE,
            tau_scale=None if fixed else TAU_SCALE,
        )
        state, _ = gibbs_sweep(state, problem, rng)
        visited.append((*(getattr(state, name) for name in PARAMETERS), x[0], won[0]))
    walk = functions(*(np.stack(values) for values in zip(*visited, strict=True)))
    parameters = draw_prior(150_000, fixed, rng)
    weights, _, _, strengths, centroids = parameters
    prior = functions(*parameters, *draw_data(weights, strengths, centroids, rng))
    batches = walk.reshape(60, -1, walk.shape[1]).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 60 + prior.var(axis=0) / len(prior))
    moves = error > 1e-9
    score = (walk.mean(axis=0) - prior.mean(axis=0))[moves] / error[moves]
    assert moves.sum() >= (20 if fixed else 32)
    assert np.abs(score).max() < 4.5, np.round(score, 1)
