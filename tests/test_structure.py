"""Structure measures: the reference code's outputs, brute force, scikit-learn, known truths."""

from __future__ import annotations

import itertools
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import kendalltau
from sklearn import metrics as sk

from bayes_ecc import (
    ECC,
    BradleyTerry,
    Comparisons,
    DataWarning,
    InputError,
    changed_cells,
    cluster_profiles,
    compare_partitions,
    cross_cluster_gap,
    hard_partition,
    overlap_matrix,
    partition_agreement,
    profile_similarity,
    read_partition,
    simulate,
    typical_queries,
    within_cluster_tau,
)
from bayes_ecc.bradley_terry import PairLayout, fit_strengths
from bayes_ecc.structure.indices import kendall_tau

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def truth():
    return simulate(n_queries=300, n_models=5, n_clusters=3, rng=1)


@pytest.fixture(scope="module")
def fit(truth):
    estimator = ECC(n_clusters=3, embedding_weight=0.5, ridge=0.3, max_iter=500, rng=0)
    return estimator.fit(truth.comparisons, truth.embeddings)


# -------------------------------------------------------------------- the public reference code


@pytest.fixture(scope="module")
def parity(parity_reference):
    reference = parity_reference
    return SimpleNamespace(**reference.arrays, train=reference.train, scored=reference.scored)


def test_parity_of_profile_similarity(parity):
    found = profile_similarity(parity.strengths)
    assert float(found["mean"]) == pytest.approx(float(parity.mean_tau), abs=1e-6)


def test_parity_of_the_cross_cluster_gap(parity):
    found = cross_cluster_gap(parity.strengths, parity.scored, parity.test_responsibilities)
    gap = found["gap"].values
    np.testing.assert_allclose(gap[~np.isnan(gap)], parity.cross_cluster_gap, atol=1e-6)


def test_parity_of_consistency_within_clusters(parity):
    # The reference's folds are random and not kept. Over our cuts, each figure a mean over ten of
    # them as the reference's is, its value must look like one more of ours.
    found = within_cluster_tau(parity.train, parity.responsibilities, repeats=100, rng=0)
    spread = float(found["mean_sd"]) / 10**0.5
    assert spread < 0.01
    assert float(found["mean"]) == pytest.approx(float(parity.within_cluster_tau), abs=2 * spread)
    ten = within_cluster_tau(parity.train, parity.responsibilities, rng=0)
    assert float(ten["mean"]) == pytest.approx(float(parity.within_cluster_tau), abs=0.02)


# -------------------------------------------------------------------- reading partitions


def test_every_form_of_a_partition_reads_alike(truth, fit):
    shares = fit.responsibilities_
    queries = truth.comparisons.queries
    names = np.array(["x", "y", "z"])
    codes = shares.values.argmax(axis=1)
    forms = {
        "fit": fit,
        "posterior": fit.posterior_,
        "data array": shares,
        "transposed": shares.transpose("cluster", "query"),
        "array": shares.values,
        "frame": shares.to_pandas(),
        "lists": shares.values.tolist(),
        "codes": codes,
        "names": names[codes],
        "series": pd.Series(codes, index=queries),
        "categories": pd.Series(pd.Categorical(names[codes]), index=queries),
        "labelled array": xr.DataArray(codes, {"query": np.array(queries)}, "query"),
        "partition": read_partition(fit).hard(),
    }
    for name, form in forms.items():
        found = read_partition(form).hard()
        np.testing.assert_array_equal(found.codes, codes, err_msg=name)
        np.testing.assert_array_equal(hard_partition(form).map(str).nunique(), 3)
    soft = read_partition(fit.posterior_)
    assert not soft.is_hard
    np.testing.assert_allclose(soft.shares, shares, atol=1e-4)
    labels = hard_partition(fit)
    assert labels.index.equals(pd.Index(queries))
    np.testing.assert_array_equal(labels, codes)


def test_missing_labels_are_in_no_cluster():
    with pytest.warns(DataWarning, match="2 of 5 queries have no label"):
        partition = read_partition(pd.Series([1.0, None, 2.0, None, 1.0], index=list("abcde")))
    np.testing.assert_array_equal(partition.codes, [0, -1, 1, -1, 0])
    assert partition.clusters.tolist() == [1.0, 2.0]
    assert hard_partition(partition).isna().tolist() == [False, True, False, True, False]
    assert partition_agreement(partition, [0, 5, 1, 6, 0]) == (1.0, 1.0, 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "holds no query"),
        ([None, None], "All labels .* missing"),
        ([[0.5, 0.2], [0.5, 0.5]], r"row 0: found \[0.5, 0.2\]"),
        ([[1.5, -0.5]], "row 0"),
        ([[np.nan, 1.0]], "row 0"),
        ([["a", "b"]], "labels have one dimension"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (np.zeros((0, 3)), "shape"),
        ([[1.0], [0.5, 0.5]], "ragged"),
        (pd.Series([0, 1], index=["q", "q"]), "'q' more than once"),
        (pd.Series([[1], [2]]), "text or a number"),
        (
            xr.DataArray(np.zeros((2, 2, 2)), dims=("chain", "query", "cluster")),
            "Select or average",
        ),
        (5, "dimensions"),
    ],
)
def test_what_is_no_partition_is_refused(source, message):
    with pytest.raises(InputError, match=message):
        read_partition(source)


def test_partitions_are_aligned_by_query(truth):
    labels = pd.Series(truth.labels, index=truth.comparisons.queries)
    mixed = labels.sample(frac=1, random_state=0)
    assert partition_agreement(labels, mixed).adjusted_rand == 1.0
    assert partition_agreement(labels, mixed.iloc[:200]) == (1.0, 1.0, 200)
    with pytest.warns(DataWarning, match="share 100 queries, of 200 and 200"):
        assert partition_agreement(mixed.iloc[:200], mixed.iloc[100:]).queries == 100
    with pytest.raises(InputError, match="no query in common"):
        partition_agreement(labels, pd.Series(truth.labels))
    with pytest.raises(InputError, match="300 and 2 queries"):
        partition_agreement(labels, [0, 1])
    with pytest.raises(InputError, match="No query of the comparisons"):
        within_cluster_tau(truth.comparisons, pd.Series(truth.labels))
    with pytest.warns(DataWarning, match="200 of 300 queries"):
        some = cluster_profiles(truth.comparisons, mixed.iloc[:100])
    part = truth.comparisons.take(truth.comparisons.queries.isin(mixed.index[:100]))
    np.testing.assert_allclose(some, cluster_profiles(part, labels), atol=1e-6)


# -------------------------------------------------------------------- agreement


@given(seed=seeds, n=st.integers(1, 40), k=st.integers(1, 6))
@settings(max_examples=60)
def test_agreement_of_hard_partitions_is_that_of_scikit_learn(seed, n, k):
    rng = np.random.default_rng(seed)
    one, other = rng.integers(k, size=n), rng.integers(k + 1, size=n)
    for soft in (False, True):
        found = partition_agreement(one, other, soft=soft)
        assert found.adjusted_rand == pytest.approx(sk.adjusted_rand_score(one, other), abs=1e-9)
        expected = sk.normalized_mutual_info_score(one, other)
        assert found.normalized_mutual_information == pytest.approx(expected, abs=1e-9)


def test_soft_agreement_is_of_expected_pairs():
    rng = np.random.default_rng(0)
    one, other = rng.dirichlet(np.ones(3), 6), rng.dirichlet(np.ones(2), 6)
    together = in_one = in_other = 0.0
    for p, q in itertools.combinations(range(6), 2):
        a, b = one[p] @ one[q], other[p] @ other[q]
        together, in_one, in_other = together + a * b, in_one + a, in_other + b
    expected = in_one * in_other / 15
    ari = (together - expected) / ((in_one + in_other) / 2 - expected)
    assert partition_agreement(one, other, soft=True).adjusted_rand == pytest.approx(ari)
    joint = np.einsum("qi,qj->ij", one, other) / 6
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    shared = sum(
        joint[i, j] * np.log(joint[i, j] / rows[i] / columns[j]) for i, j in np.ndindex(3, 2)
    )
    entropy = -(rows * np.log(rows)).sum() / 2 - (columns * np.log(columns)).sum() / 2
    found = partition_agreement(one, other, soft=True).normalized_mutual_information
    assert found == pytest.approx(shared / entropy)


def test_overlap_matrix_counts_and_shares():
    one, other = [0, 0, 1, 1, 1], ["b", "a", "a", "a", "b"]
    table = overlap_matrix(one, other)
    expected = sk.cluster.contingency_matrix(one, other)
    np.testing.assert_array_equal(table["queries"], expected)
    assert table["share_of_first"].sel(first=0, second="a") == 0.5
    assert table["share_of_second"].sel(first=1, second="a") == pytest.approx(2 / 3)
    assert table["jaccard"].sel(first=1, second="a") == pytest.approx(2 / 4)
    soft = overlap_matrix([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [0, 1], soft=True)
    np.testing.assert_allclose(soft["queries"], [[0.5, 1], [0.5, 0], [0, 0]])
    assert np.isnan(soft["share_of_first"][2]).all()


def test_several_partitions_are_compared_in_pairs(truth, fit):
    table = compare_partitions({"fit": fit, "truth": truth.labels, "topic": truth.topics})
    assert len(table) == 3
    expected = sk.adjusted_rand_score(hard_partition(fit), truth.labels)
    assert table["adjusted_rand"][0] == pytest.approx(expected)
    with pytest.raises(InputError, match="two or more"):
        compare_partitions({"fit": fit})


# -------------------------------------------------------------------- profiles


@given(seed=seeds)
@settings(max_examples=30)
def test_kendall_tau_is_that_of_scipy(seed):
    profiles = np.random.default_rng(seed).integers(4, size=(4, 6)).astype(float)
    found = kendall_tau(profiles)
    for i, j in np.ndindex(4, 4):
        expected = kendalltau(profiles[i], profiles[j]).statistic
        np.testing.assert_allclose(found[i, j], expected, atol=1e-12)


def test_profile_similarity_has_the_quartiles_of_pairs(fit):
    pairs = itertools.combinations(fit.strengths_.values, 2)
    taus = [kendalltau(a, b).statistic for a, b in pairs]
    expected = np.quantile(taus, [0.25, 0.5, 0.75])
    for source in (fit, fit.posterior_, fit.strengths_, fit.strengths_.to_pandas()):
        found = profile_similarity(source)
        quartiles = [float(found[f"{name}"]) for name in QUARTILES]
        np.testing.assert_allclose(quartiles, expected)
        assert float(found["mean"]) == pytest.approx(np.mean(taus))


QUARTILES = ("lower_quartile", "median", "upper_quartile")


def test_profiles_of_a_partition_are_bradley_terry_models(truth):
    profiles = cluster_profiles(truth.comparisons, truth.labels, ridge=0.5)
    for k in range(3):
        own = BradleyTerry(ridge=0.5).fit(truth.comparisons.take(truth.labels == k))
        np.testing.assert_allclose(profiles.sel(cluster=k), own.strengths_, atol=1e-6)


def test_soft_profiles_weigh_queries_by_responsibility(truth):
    shares = np.random.default_rng(0).dirichlet(np.ones(2), 300)
    data = truth.comparisons
    profiles = cluster_profiles(data, shares, soft=True)
    weighted = Comparisons.from_arrays(
        data.query,
        data.first,
        data.second,
        data.outcome,
        weight=shares[data.query, 1],
        queries=data.queries,
        models=data.models,
    )
    expected = BradleyTerry().fit(weighted).strengths_
    np.testing.assert_allclose(profiles.sel(cluster=1), expected, atol=1e-6)


def brute_consistency(data, labels, *, folds, repeats, seed):
    """Kendall's tau over pairs of folds, cluster by cluster and cut by cut."""
    rng = np.random.default_rng(seed)
    counts = data.outcome_counts()
    layout = PairLayout(counts.winner, counts.loser, data.n_models)
    found = {}
    for k in np.unique(labels):
        members = np.flatnonzero(labels == k)
        taus = []
        for _ in range(repeats):
            parts = np.array_split(rng.permutation(members), folds)
            wins = np.array([counts.matrix[part].sum(axis=0) for part in parts])
            strengths = fit_strengths(wins, layout, 1.0).round(9)
            pairs = itertools.combinations(strengths, 2)
            taus.append(np.mean([kendalltau(a, b).statistic for a, b in pairs]))
        found[k] = np.mean(taus)
    return found


def test_consistency_is_that_of_brute_force(truth):
    repeats = 60
    found = within_cluster_tau(truth.comparisons, truth.labels, folds=3, repeats=repeats, rng=0)
    brute = brute_consistency(truth.comparisons, truth.labels, folds=3, repeats=repeats, seed=7)
    for k, expected in brute.items():
        error = float(found["tau_sd"].sel(cluster=k)) * (2 / repeats) ** 0.5
        assert float(found["tau"].sel(cluster=k)) == pytest.approx(expected, abs=4 * error)
    sizes = np.bincount(truth.labels)
    np.testing.assert_array_equal(found["queries"], sizes)
    assert float(found["mean"]) == pytest.approx(found["tau"].values @ sizes / sizes.sum())


def test_soft_consistency_of_a_hard_partition_is_the_hard_one(truth):
    one_hot = (truth.labels[:, None] == np.arange(3)).astype(float)
    hard = within_cluster_tau(truth.comparisons, truth.labels, rng=3)
    soft = within_cluster_tau(truth.comparisons, one_hot, soft=True, rng=3)
    xr.testing.assert_allclose(hard, soft)
    blurred = within_cluster_tau(truth.comparisons, 0.7 * one_hot + 0.1, soft=True, rng=3)
    assert float(blurred["queries"].sum()) == pytest.approx(300)
    assert float(blurred["mean"]) > 0


def test_true_clusters_are_consistent_and_apart():
    truth = simulate(n_queries=600, n_models=8, n_clusters=3, agreement=0.0, rng=1)
    shuffled = np.random.default_rng(0).permutation(truth.labels)
    for measure, margin in (("within", 0.02), ("between", 0.1), ("gap", 0.1)):
        values = []
        for labels in (truth.labels, shuffled):
            profiles = cluster_profiles(truth.comparisons, labels)
            if measure == "within":
                found = within_cluster_tau(truth.comparisons, labels, rng=0)["mean"]
            elif measure == "between":
                found = -profile_similarity(profiles)["mean"]
            else:
                found = cross_cluster_gap(profiles, truth.comparisons, labels)["mean"]
            values.append(float(found))
        assert values[0] > values[1] + margin, measure


def test_small_clusters_have_no_consistency():
    data = simulate(n_queries=50, n_models=5, rng=0).comparisons
    labels = np.zeros(50, int)
    labels[:4] = 1
    found = within_cluster_tau(data, labels, rng=0)
    assert np.isnan(found["tau"].sel(cluster=1))
    assert float(found["mean"]) == float(found["tau"].sel(cluster=0))
    with pytest.raises(InputError, match="No cluster has 5 queries"):
        within_cluster_tau(data, np.arange(50) // 2, rng=0)


def test_soft_gap_weighs_comparisons_by_responsibility():
    strengths = np.array([[1.0, 0.0, -1.0], [-1.0, 0.5, 0.5], [0.0, 0.0, 0.3]])
    data = Comparisons.from_arrays(
        [0, 0, 1, 2],
        [0, 1, 2, 0],
        [1, 2, 0, 2],
        [1.0, 0.25, 0.0, 0.5],
        weight=[1.0, 2.0, 1.0, 3.0],
        queries=["a", "b", "c"],
        models=["x", "y", "z"],
    )
    shares = np.array([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0], [0.2, 0.3, 0.5]])
    found = cross_cluster_gap(strengths, data, shares, soft=True)
    for k in range(3):
        own, others, mass = 0.0, 0.0, 0.0
        for q, a, b, y, w in zip(
            data.query, data.first, data.second, data.outcome, data.weight, strict=True
        ):
            losses = []
            for theta in strengths:
                p = expit(theta[b] - theta[a])
                losses.append(-y * np.log(p) - (1 - y) * np.log(1 - p))
            own += w * shares[q, k] * losses[k]
            others += w * shares[q, k] * np.mean(np.delete(losses, k))
            mass += w * shares[q, k]
        assert float(found["own_loss"][k]) == pytest.approx(own / mass)
        assert float(found["other_loss"][k]) == pytest.approx(others / mass)
    weight = found["comparisons"].values
    expected = found["gap"].values @ weight / weight.sum()
    assert float(found["mean"]) == pytest.approx(expected)


def test_gap_is_matched_by_names(truth):
    profiles = cluster_profiles(truth.comparisons, np.array(["a", "b", "c"])[truth.labels])
    labels = np.array(["a", "b", "c"])[truth.labels]
    expected = cross_cluster_gap(profiles, truth.comparisons, labels)
    turned = profiles.isel(cluster=[2, 0, 1], llm=[4, 3, 2, 1, 0])
    found = cross_cluster_gap(turned, truth.comparisons, labels)
    xr.testing.assert_allclose(found.sortby("cluster"), expected)
    with pytest.raises(InputError, match="'z', which is not among the profiles"):
        cross_cluster_gap(profiles, truth.comparisons, ["z", *labels[1:]])
    with pytest.raises(InputError, match="of 4 models"):
        cross_cluster_gap(truth.strengths[:, :4], truth.comparisons, truth.labels)
    with pytest.raises(InputError, match="one cluster"):
        cross_cluster_gap(truth.strengths[:1], truth.comparisons, truth.labels)


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([[1.0, np.nan], [0.0, 0.0]], "missing values"),
        ([1.0, 2.0], "is 1-dimensional float64; give finite"),
        ([["a", "b"]] * 2, "is 2-dimensional <U1; give finite"),
        ([[1.0, np.inf], [0.0, 0.0]], "float64, 1 missing values or infinite ones; give finite"),
        ([["a", "b"]], "finite strengths"),
        ([[1.0, 2.0]], "two clusters"),
    ],
)
def test_what_are_no_profiles_is_refused(profiles, message):
    with pytest.raises(InputError, match=message):
        profile_similarity(profiles)


# -------------------------------------------------------------------- cells


def test_splits_and_merges_are_found():
    one = np.repeat(["maths", "code", "law"], [20, 10, 10])
    other = np.repeat(["sums", "proofs", "odd", "text"], [11, 8, 1, 20])
    table = changed_cells(one, other)
    split, merge = table[table["change"] == "split"], table[table["change"] == "merge"]
    assert split[["cluster", "second", "queries"]].values.tolist() == [
        ["maths", "sums", 11.0],
        ["maths", "proofs", 8.0],
    ]
    assert merge[["cluster", "first", "share"]].values.tolist() == [
        ["text", "code", 0.5],
        ["text", "law", 0.5],
    ]
    assert len(changed_cells(one, other, min_share=0, min_queries=0)) == 3 + 2
    assert changed_cells(one, one).empty
    turned = changed_cells(other, one)
    assert sorted(turned["change"]) == ["merge", "merge", "split", "split"]


def test_typical_queries_lie_at_the_middle_of_their_cell():
    rng = np.random.default_rng(0)
    ids = [f"q{i}" for i in range(40)]
    angle = np.concatenate([rng.uniform(-0.6, 0.6, 20), np.pi / 2 + rng.uniform(-0.6, 0.6, 20)])
    embeddings = pd.DataFrame({"x": np.cos(angle), "y": np.sin(angle)}, index=ids)
    one = pd.Series(np.repeat(["a", "b"], 20), index=ids)
    table = typical_queries(one, embeddings=embeddings.iloc[::-1], n=3)
    for name, group in table.groupby("cluster"):
        rows = embeddings[one == name].to_numpy()
        mean = rows.mean(axis=0)
        nearest = np.argsort(-(rows @ mean))[:3]
        assert group["query"].tolist() == one.index[one == name][nearest].tolist()
    cells = typical_queries(one, np.tile([0, 1], 20), embeddings=embeddings, n=20)
    assert len(cells) == 40
    assert not cells["query"].duplicated().any()
    assert (cells.groupby(["first", "second"]).size() == 10).all()
    plain = typical_queries(one, n=2)
    assert plain["query"].tolist() == ["q0", "q1", "q20", "q21"]


def test_typical_queries_of_soft_partitions_are_the_most_certain(fit):
    table = typical_queries(fit, n=4)
    shares = fit.responsibilities_.to_pandas()
    for cluster, group in table.groupby("cluster"):
        own = shares[shares.idxmax(axis=1) == cluster][cluster]
        np.testing.assert_allclose(group["membership"], own.nlargest(4), atol=1e-6)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [({"min_share": 2}, "min_share=2"), ({"min_queries": -1}, "min_queries=-1")],
)
def test_settings_of_cells_are_checked(settings_, message):
    with pytest.raises(InputError, match=message):
        changed_cells([0, 1], [0, 1], **settings_)


# -------------------------------------------------------------------- scale


def test_ten_thousand_queries_take_seconds():
    rng = np.random.default_rng(0)
    n, k, m = 10_000, 30, 28
    first = rng.integers(m, size=7 * n)
    data = Comparisons.from_arrays(
        np.repeat(np.arange(n), 7),
        first,
        (first + rng.integers(1, m, size=7 * n)) % m,
        rng.integers(2, size=7 * n).astype(float),
        queries=range(n),
        models=[f"m{i}" for i in range(m)],
    )
    shares = rng.dirichlet(np.full(k, 0.1), n)
    labels = rng.integers(k, size=n)
    start = time.process_time()
    within_cluster_tau(data, shares, rng=0)
    profiles = cluster_profiles(data, shares)
    profile_similarity(profiles)
    cross_cluster_gap(profiles, data, shares, soft=True)
    partition_agreement(shares, labels, soft=True)
    changed_cells(shares, labels, min_share=0.01)
    typical_queries(shares, labels)
    assert time.process_time() - start < 20


def test_warnings_point_at_the_caller(truth):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        within_cluster_tau(
            truth.comparisons, pd.Series(truth.labels, index=truth.comparisons.queries)[:100], rng=0
        )
    assert [w.filename for w in caught] == [__file__]


def test_unknown_clusters_are_named_plainly():
    data = simulate(n_queries=60, n_models=5, rng=0)
    labels = np.arange(data.comparisons.n_queries) % 3
    with pytest.raises(InputError, match=r"has the cluster 2, .* \(0, 1\); use the same"):
        cross_cluster_gap(np.ones((2, 5)), data.comparisons, labels)
