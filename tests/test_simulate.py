"""The simulator: the truth it keeps is the truth it drew from, and topics hide it."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from bayes_ecc import ECC, InputError, simulate

NAN, INF = float("nan"), float("inf")

BAD_SETTINGS = [
    ({"n_queries": 0}, ["n_queries=0", "1 or more"]),
    ({"n_queries": 10.0}, ["n_queries=10.0"]),
    ({"n_queries": "10"}, ["n_queries='10'"]),
    ({"n_models": 1}, ["n_models=1", "2 or more"]),
    ({"n_clusters": 0}, ["n_clusters=0"]),
    ({"n_topics": True}, ["n_topics=True"]),
    ({"embedding_dim": 1}, ["embedding_dim=1", "2 or more"]),
    ({"per_query": 0}, ["per_query=0"]),
    ({"n_models": 3, "per_query": 4}, ["per_query=4", "only 3 pairs"]),
    ({"spread": -1.0}, ["spread=-1.0"]),
    ({"spread": NAN}, ["spread=nan"]),
    ({"noise": INF}, ["noise=inf"]),
    ({"topic_signal": "1"}, ["topic_signal='1'"]),
    ({"agreement": 1.1}, ["agreement=1.1", "0 to 1"]),
    ({"coupling": -0.1}, ["coupling=-0.1"]),
    ({"ties": 2}, ["ties=2", "0 to 1"]),
    ({"topic_signal": 0, "capability_signal": 0, "noise": 0}, ["all 0"]),
    ({"rng": "seed"}, ["rng='seed'"]),
]


def true_probability(simulation):
    data = simulation.comparisons
    theta = simulation.strengths[simulation.labels[data.query]]
    rows = np.arange(len(data))
    return expit(theta[rows, data.second] - theta[rows, data.first])


@pytest.mark.parametrize(("settings", "fragments"), BAD_SETTINGS)
def test_bad_settings_are_refused(settings, fragments):
    with pytest.raises(InputError) as error:
        simulate(**settings)
    assert [part for part in fragments if part not in str(error.value)] == []


def test_sizes_and_names():
    simulation = simulate(50, 5, 3, n_topics=2, embedding_dim=7, per_query=4, rng=0)
    data = simulation.comparisons
    assert data.queries.tolist() == [f"q{i:04d}" for i in range(50)]
    assert data.models.tolist() == [f"llm_{i}" for i in range(5)]
    assert np.array_equal(np.bincount(data.query), np.full(50, 4))
    assert simulation.embeddings.shape == (50, 7)
    assert simulation.embeddings.dtype == np.float32
    assert np.linalg.norm(simulation.embeddings, axis=1) == pytest.approx(1, abs=1e-6)
    assert simulation.strengths.shape == (3, 5)
    assert set(simulation.labels) == {0, 1, 2}
    assert set(simulation.topics) == {0, 1}
    assert simulation.parameters["per_query"] == 4
    assert set(simulation.parameters) == {
        *("n_queries", "n_models", "n_clusters", "n_topics", "embedding_dim", "per_query"),
        *("spread", "agreement", "topic_signal", "capability_signal", "noise", "coupling", "ties"),
        *("tie_margin", "order_effect"),
    }


def test_a_seed_fixes_everything():
    one, two, other = simulate(rng=3), simulate(rng=np.random.default_rng(3)), simulate(rng=4)
    for name in ("embeddings", "labels", "topics", "strengths"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
    assert one.comparisons.to_frame().equals(two.comparisons.to_frame())


def test_the_parameters_repeat_the_simulation():
    one = simulate(80, ties=0.2, agreement=0.5, rng=9)
    two = simulate(**one.parameters, rng=9)
    assert np.array_equal(one.embeddings, two.embeddings)
    assert one.comparisons.to_frame().equals(two.comparisons.to_frame())


def test_a_simulation_is_frozen_and_can_be_pickled():
    simulation = simulate(20, rng=0)
    for one in (simulation, pickle.loads(pickle.dumps(simulation))):
        assert np.array_equal(one.embeddings, simulation.embeddings)
        for name in ("embeddings", "labels", "topics", "strengths"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(one, name)[0] = 0
        with pytest.raises(TypeError):
            one.parameters["ties"] = 1


def test_pairs_are_drawn_uniformly_without_replacement_in_random_order():
    data = simulate(8000, 4, per_query=3, rng=1).comparisons
    low, high = np.minimum(data.first, data.second), np.maximum(data.first, data.second)
    assert len(set(zip(data.query, low, high, strict=True))) == len(data)
    pairs = Counter(zip(low, high, strict=True))
    assert len(pairs) == 6
    # three of six pairs a query: the statistic's mean is 6 (1 - 3/6) = 3, not its 5 degrees
    expected = len(data) / 6
    statistic = sum((count - expected) ** 2 for count in pairs.values()) / expected
    assert stats.chi2.sf(statistic / 0.6, 5) > 0.001
    assert stats.binomtest(int((data.first < data.second).sum()), len(data)).pvalue > 0.001


@pytest.mark.parametrize("ties", [0.0, 0.4, 1.0])
def test_outcomes_follow_the_strengths_ties_or_not(ties):
    simulation = simulate(4000, 6, 3, ties=ties, rng=2)
    y, p = simulation.comparisons.outcome, true_probability(simulation)
    tie = 2 * ties * np.minimum(p, 1 - p)
    for drawn, chance in (
        (y == 0.5, tie),
        (y == 1.0, p - tie / 2),
        (y == 0.0, 1 - p - tie / 2),
    ):
        for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
            here = (p >= low) & (p < high)
            spread = np.sqrt((chance[here] * (1 - chance[here])).sum())
            assert abs(drawn[here].sum() - chance[here].sum()) <= 4 * spread + 1e-9
    assert y.mean() == pytest.approx(p.mean(), abs=4 * 0.5 / np.sqrt(len(y)))


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_strengths_have_the_spread_and_agreement_asked_for(agreement):
    theta = simulate(2, 1500, 2, per_query=1, spread=1.5, agreement=agreement, rng=3).strengths
    assert theta.sum(axis=1) == pytest.approx(0, abs=1e-9)
    assert theta.std(axis=1) == pytest.approx(1.5, rel=0.05)
    assert np.corrcoef(theta)[0, 1] == pytest.approx(agreement, abs=0.08)


@pytest.mark.parametrize(("coupling", "n_topics"), [(0.0, 6), (0.5, 6), (1.0, 6), (0.5, 2)])
def test_clusters_follow_topics_as_often_as_asked_for(coupling, n_topics):
    simulation = simulate(6000, 3, 4, n_topics=n_topics, per_query=1, coupling=coupling, rng=4)
    follows = int((simulation.labels == simulation.topics % 4).sum())
    chance = coupling + (1 - coupling) / 4
    assert stats.binomtest(follows, 6000, chance).pvalue > 0.001
    assert stats.chisquare(np.bincount(simulation.topics)).pvalue > 0.001


def test_embeddings_are_made_of_topic_cluster_and_noise():
    simulation = simulate(200, embedding_dim=64, noise=0.0, rng=5)
    same_topic = simulation.topics[:, None] == simulation.topics
    same_cluster = simulation.labels[:, None] == simulation.labels
    cosine = (1.0 * same_topic + 0.7**2 * same_cluster) / 1.49  # orthonormal directions
    assert simulation.embeddings @ simulation.embeddings.T == pytest.approx(cosine, abs=1e-5)


def test_more_directions_than_dimensions_are_possible():
    simulation = simulate(100, n_topics=6, n_clusters=4, embedding_dim=3, rng=6)
    assert np.isfinite(simulation.embeddings).all()


def test_topics_hide_the_clusters_and_evidence_finds_them():
    simulation = simulate(rng=0)
    truth, embeddings = simulation.labels, simulation.embeddings.astype(float)
    for n_clusters in (4, 6):
        found = KMeans(n_clusters, n_init=3, random_state=0).fit_predict(embeddings)
        assert adjusted_rand_score(truth, found) < 0.1
        assert adjusted_rand_score(simulation.topics, found) > 0.4

    def recovered(evidence):
        model = ECC(4, evidence=evidence, embedding_weight=1.0, ridge=0.1, n_init=5, rng=0).fit(
            simulation.comparisons, simulation.embeddings
        )
        return adjusted_rand_score(truth, np.asarray(model.responsibilities_).argmax(axis=1))

    both, comparisons = recovered("both"), recovered("comparisons")
    assert recovered("embedding") < 0.1
    assert both > 0.7
    assert both > comparisons + 0.1 > 0.4


def test_its_bundle_holds_the_same_data_and_the_truth_as_labels():
    simulation = simulate(60, ties=0.3, rng=7)
    bundle = simulation.bundle("made up")
    assert bundle.name == "made up"
    data = bundle.draw_comparisons()
    assert data.to_frame().equals(simulation.comparisons.to_frame())
    assert data.ordered
    assert np.array_equal(bundle.embeddings_for(data.queries), simulation.embeddings)
    assert bundle.labels("capability").tolist() == [f"capability_{k}" for k in simulation.labels]
    assert bundle.labels("topic").tolist() == [f"topic_{t}" for t in simulation.topics]
