"""Cluster labels: every numbering is found again, and agreement means what it says."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc.alignment import agreement, align_chain, match_clusters


def dirichlet(seed: int, n_queries: int, n_clusters: int, alpha: float = 0.3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n_clusters, alpha), n_queries)


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_the_matching_is_the_best_of_all_numberings(seed: int, n_clusters: int) -> None:
    reference, other = dirichlet(seed, 7, n_clusters), dirichlet(seed + 1, 7, n_clusters)
    found = match_clusters(reference, other)
    assert sorted(found) == list(range(n_clusters))
    best = max(
        (reference * other[:, list(order)]).sum()
        for order in itertools.permutations(range(n_clusters))
    )
    np.testing.assert_allclose((reference * other[:, found]).sum(), best)


def test_a_renumbered_chain_comes_back_whole() -> None:
    rng = np.random.default_rng(0)
    reference = dirichlet(1, 50, 6)
    orders = [rng.permutation(6) for _ in range(20)]
    aligned = align_chain(reference, (reference[:, order] for order in orders))
    for order, found in zip(orders, aligned.order, strict=True):
        np.testing.assert_array_equal(order[found], np.arange(6))
    np.testing.assert_allclose(aligned.mean, reference)


def test_agreement_is_one_for_equal_clusters_and_zero_for_disjoint_ones() -> None:
    labels = np.array([0, 0, 1, 1, 2])
    hard = np.eye(3)[labels]
    np.testing.assert_array_equal(agreement(hard, hard), np.ones(3))
    np.testing.assert_array_equal(agreement(hard, hard[:, [1, 2, 0]]), np.zeros(3))
    np.testing.assert_array_equal(agreement(np.zeros((2, 1)), np.zeros((2, 1))), [0.0])


def test_agreement_of_hard_clusters_is_the_jaccard_index() -> None:
    first, second = np.eye(2)[[0, 0, 0, 1]], np.eye(2)[[0, 0, 1, 1]]
    np.testing.assert_allclose(agreement(first, second), [2 / 3, 1 / 2])
