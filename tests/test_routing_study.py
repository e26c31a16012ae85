"""Routing studies: tasks, baselines, policies, intervals and the levels they are held to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import (
    ECC,
    BayesianECC,
    BradleyTerry,
    Bundle,
    InputError,
    fit_quality,
    load_bundle,
    route,
    route_observed,
    save_bundle,
    simulate,
)
from bayes_ecc.cli import main
from bayes_ecc.evaluation import EvaluationSettings
from bayes_ecc.routing_baselines import (
    Routed,
    baselines,
    best_of_labels,
    best_of_neighbours,
    nearest,
    neighbour_strengths,
    sent,
)
from bayes_ecc.routing_policies import (
    by_seen_scores,
    by_valued_scores,
    make_router,
    policies,
    sharpest,
    tie_rates,
)
from bayes_ecc.routing_study import (
    METRICS,
    TaskResult,
    coverage_curve,
    routing_example,
    run_task,
    study_routing,
    summarise,
)
from bayes_ecc.routing_tasks import make_task, random_probes
from bayes_ecc.score_model import sharpened
from bayes_ecc.splits import Split, draw_split, frozen_split

BUNDLE, TASK = routing_example(400)
FIT = ECC(3, embedding_weight=1.0, ridge=0.1, rng=0).fit(
    TASK.split.train, TASK.split.train_embeddings
)
ROUTER = make_router("ecc", FIT.posterior_, TASK)


def without(bundle: Bundle, **changed: Any) -> Bundle:
    tables = {name: getattr(bundle, name) for name in ("queries", "scores", "embeddings", "costs")}
    return Bundle("changed", **{**tables, **changed})


# -------------------------------------------------------------------- tasks


def test_no_test_query_was_trained_on() -> None:
    split = draw_split(BUNDLE, seed=1)
    for protocol in ("published", "honest"):
        for undecided in ("share", "test"):
            task = make_task(BUNDLE, split, protocol, undecided=undecided, rng=0)
            assert not set(task.queries) & set(task.train_queries)
            assert not set(task.queries) & set(split.train.queries)
            assert task.queries.is_unique
            assert len(task.scores) == len(task.embeddings) == len(task.costs) == len(task.queries)


def test_honest_tasks_test_on_queries_that_decide_nothing() -> None:
    split = draw_split(BUNDLE, seed=1)
    in_split = len(split.train.queries) + len(split.scored.queries)
    rest = len(BUNDLE.query_ids) - in_split
    assert rest > 50
    published = make_task(BUNDLE, split, "published", rng=0)
    whole = make_task(BUNDLE, split, "honest", undecided="test", rng=0)
    share = make_task(BUNDLE, split, "honest", undecided="share", rng=0)
    assert published.queries.equals(split.scored.queries)
    assert len(whole.queries) == len(split.scored.queries) + rest
    assert len(whole.train_queries) == len(split.train.queries)
    assert len(share.queries) + len(share.train_queries) == len(BUNDLE.query_ids)
    assert len(share.queries) / len(BUNDLE.query_ids) == pytest.approx(0.2, abs=0.01)


def test_rows_belong_to_their_queries() -> None:
    scores = BUNDLE.scores
    costs = BUNDLE.costs
    assert scores is not None
    assert costs is not None
    by_id = scores.set_index("query_id")
    for q in (0, 17, len(TASK.queries) - 1):
        name = TASK.queries[q]
        assert TASK.scores[q].tolist() == by_id.loc[name, list(TASK.models)].tolist()
        assert (TASK.embeddings[q] == BUNDLE.embeddings_for([name])[0]).all()
        assert TASK.costs[q].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_probe_pairs_are_drawn_blind() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, size=(4000, 4)).astype(float)
    queries, models = pd.RangeIndex(4000), pd.Index(list("abcd"))
    drawn = random_probes(queries, scores, models, np.random.default_rng(5))
    other = random_probes(queries, 1 - scores, models, np.random.default_rng(5))
    assert (drawn.first == other.first).all()
    assert (drawn.second == other.second).all()
    assert np.allclose(drawn.outcome, 1 - other.outcome)
    row = np.arange(4000)
    gap = scores[row, drawn.second] - scores[row, drawn.first]
    assert (drawn.outcome == (gap + 1) / 2).all()
    counts = np.bincount(drawn.first * 4 + drawn.second)
    counts = counts[counts > 0]
    assert len(counts) == 6
    assert np.abs(counts - 4000 / 6).max() < 5 * np.sqrt(4000 / 6)


def test_published_probes_are_those_of_the_split() -> None:
    split = draw_split(BUNDLE, seed=1)
    task = make_task(BUNDLE, split, "published", rng=0)
    assert (task.probes.query == np.arange(len(task.queries))).all()
    assert (task.probes.outcome != 0.5).all()
    expected = split.probes.to_frame().set_index("query_id").loc[list(task.queries)]
    assert task.probes.to_frame()["model_a"].tolist() == expected["model_a"].tolist()
    assert task.probes.outcome.tolist() == expected["outcome"].tolist()


def test_queries_without_a_score_are_left_out_and_counted() -> None:
    scores = BUNDLE.scores
    assert scores is not None
    holes = scores.copy()
    hidden = holes["query_id"].isin(TASK.queries[:3])
    holes.loc[hidden, "llm_2"] = np.nan
    task = make_task(without(BUNDLE, scores=holes), TASK.split, "honest", rng=0)
    assert task.left_out["missing_scores"] == 3
    assert not set(TASK.queries[:3]) & set(task.queries)
    assert not np.isnan(task.scores).any()


def test_a_bundle_without_scores_is_refused() -> None:
    bundle = simulate(n_queries=60, rng=0).bundle()
    with pytest.raises(InputError, match="has no scores"):
        make_task(bundle, draw_split(bundle), "honest")
    with pytest.raises(InputError, match="protocol='best'"):
        make_task(BUNDLE, TASK.split, "best")  # type: ignore[arg-type]


# -------------------------------------------------------------------- accounting


def test_calls_are_counted_once_each() -> None:
    n = len(TASK.queries)
    choice = np.zeros(n, dtype=int)
    first, second = np.full(n, 1), np.full(n, 2)
    first[0], second[1] = 0, 0  # the choice was probed
    first[2] = second[2] = -1  # nothing was probed
    way = sent(TASK, choice, (first, second))
    assert way.calls[:4].tolist() == [2, 2, 1, 3]
    assert way.cost[:4].tolist() == [1 + 3, 2 + 1, 1, 1 + 2 + 3]
    assert (way.quality == TASK.scores[:, 0]).all()
    assert sent(TASK, choice).calls.max() == 1


# -------------------------------------------------------------------- baselines


def test_baselines_do_what_they_are_called() -> None:
    found = dict(baselines(TASK, {"capability": BUNDLE.labels("capability")}))
    assert list(found) == [
        "random", "global", "labels:capability", "knn:scores", "knn:comparisons",
        "probe winner", "better probed", "fixed pair", "oracle",
    ]  # fmt: skip
    strength = BradleyTerry().fit(TASK.split.train).strengths_.values
    best, second = np.argsort(-strength)[:2]
    assert np.allclose(found["random"].quality, TASK.scores.mean(axis=1))
    assert np.allclose(found["random"].cost, 3.0)
    assert (found["global"].quality == TASK.scores[:, best]).all()
    assert (found["oracle"].quality == TASK.scores.max(axis=1)).all()
    i, j = TASK.pair
    row = np.arange(len(i))
    better = np.maximum(TASK.scores[row, i], TASK.scores[row, j])
    assert (found["better probed"].quality == better).all()
    assert (found["better probed"].calls == 2).all()
    tie = TASK.scores[row, i] == TASK.scores[row, j]
    expected = np.where(tie, TASK.scores[:, best], better)
    winner = found["probe winner"]
    assert (winner.quality == expected).all()
    outside = tie & (i != best) & (j != best)
    assert (winner.calls == 2 + outside).all()
    two = TASK.scores[:, [best, second]].max(axis=1)
    kept = two == 1
    assert (found["fixed pair"].quality[kept] == 1).all()
    assert (found["fixed pair"].calls[kept] == 2).all()
    assert (found["fixed pair"].calls[~kept] == 3).all()


def test_labels_route_to_their_strongest_model() -> None:
    labels = BUNDLE.labels("capability").copy()
    labels[TASK.queries[0]] = "never seen"
    choice = best_of_labels(TASK, labels)
    train = TASK.split.train
    assert choice[0] == BradleyTerry().fit(train).strengths_.values.argmax()
    name = labels[TASK.queries[1]]
    own = train.take(np.asarray(labels.loc[train.queries] == name))
    assert choice[1] == BradleyTerry().fit(own).strengths_.values.argmax()


def test_neighbours_equal_a_loop() -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(50, 4)), rng.normal(size=(7, 4))
    found = np.concatenate(list(nearest(known, new, 6)))
    cosine = (new / np.linalg.norm(new, axis=1, keepdims=True)) @ (
        known / np.linalg.norm(known, axis=1, keepdims=True)
    ).T
    for q in range(7):
        assert set(found[q]) == set(np.argsort(-cosine[q])[:6])


def test_knn_on_scores_equals_a_loop() -> None:
    strength = np.arange(5.0)
    choice = best_of_neighbours(TASK, strength, 7)
    near = np.concatenate(list(nearest(TASK.train_embeddings, TASK.embeddings, 7)))
    for q, rows in enumerate(near):
        mean = np.nanmean(TASK.train_scores[rows], axis=0)
        best = np.flatnonzero(mean >= mean.max() - 1e-9)
        assert choice[q] == best.max()  # the strongest of those that tie


def test_knn_on_comparisons_equals_separate_fits() -> None:
    train = TASK.split.train
    rows = np.asarray(TASK.split.train_embeddings)
    found = neighbour_strengths(train, rows, TASK.embeddings[:4], 40)
    near = np.concatenate(list(nearest(rows, TASK.embeddings[:4], 40)))
    for q in range(4):
        own = BradleyTerry().fit(train.take(np.sort(near[q])))
        assert np.allclose(found[q], own.strengths_.values, atol=1e-4)


# -------------------------------------------------------------------- policies


def test_policies_are_the_librarys_own_choices() -> None:
    found = dict(policies(ROUTER, TASK, price=0.02))
    assert list(found) == [
        "ecc", "ecc:sharp", "ecc:score", "ecc+probe", "ecc+outcome", "ecc+scores", "ecc+fixed",
        "ecc+value", "ecc+stop",
    ]  # fmt: skip
    plain = route(FIT.posterior_, embeddings=TASK.embeddings)["choice"].values
    assert found["ecc"].choice is not None
    assert (found["ecc"].choice == plain).all()
    probed = route(FIT.posterior_, embeddings=TASK.embeddings, probes=TASK.evidence)
    assert found["ecc+probe"].choice is not None
    assert (found["ecc+probe"].choice == probed["choice"].values).all()
    i, j = TASK.pair
    outside = (found["ecc+probe"].choice != i) & (found["ecc+probe"].choice != j)
    assert (found["ecc+probe"].calls == 2 + outside).all()
    quality = fit_quality(FIT.posterior_, TASK.train_scores, embeddings=TASK.train_embeddings)
    assert np.allclose(quality.values, ROUTER.plain.values)


def test_seen_scores_are_the_tasks_own() -> None:
    i, j = TASK.pair
    none = i.copy()
    none[:10] = -1
    way = by_seen_scores(ROUTER, TASK, (none, np.where(none < 0, -1, j)))
    row = np.arange(len(i))
    seen = np.full(TASK.scores.shape, np.nan)
    seen[row[10:], i[10:]] = TASK.scores[row[10:], i[10:]]
    seen[row[10:], j[10:]] = TASK.scores[row[10:], j[10:]]
    assert ROUTER.scores is not None
    expected = route_observed(ROUTER.scores, embeddings=TASK.embeddings, observed=seen)
    assert (way.choice == expected["choice"].values).all()
    assert (way.calls[:10] == 1).all()
    # a success that was seen is never left for a guess
    better = np.fmax(seen[row, i], seen[row, j])
    assert (way.quality[better == 1] == 1).all()


def test_prices_lead_from_probing_all_to_probing_none() -> None:
    prices = (0.0, 0.01, 0.03, 0.3, 10.0)
    ways = by_valued_scores(ROUTER, TASK, prices)
    calls = [way.calls.mean() for way in ways]
    cost = [way.cost.mean() for way in ways]
    assert (np.diff(cost) <= 1e-9).all()
    assert (ways[0].calls >= 2).all()
    assert calls[-1] == 1
    cheapest = TASK.scores[:, 0]  # at that price nothing but cost matters
    assert (ways[-1].quality == cheapest).all()


def test_sharpness_moves_for_good_reason_only() -> None:
    assert sharpest(ROUTER.draws, TASK) == 1.0
    # scores that only the right model of a capability gets, read far too bluntly
    labels = BUNDLE.labels("capability").loc[TASK.train_queries].to_numpy()
    clear = np.zeros(TASK.train_scores.shape)
    for label in np.unique(labels):
        here = labels == label
        clear[here, TASK.train_scores[here].mean(axis=0).argmax()] = 1.0
    assert sharpest(sharpened(ROUTER.draws, 0.05), TASK._replace(train_scores=clear)) > 1


def test_tie_rates_equal_a_loop() -> None:
    scores = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, np.nan, 0.0], [0.5, 1.0, 0.5]])
    rate = tie_rates(scores)
    assert rate[0, 1] == rate[1, 0] == pytest.approx(2 / 3)
    assert rate[0, 2] == pytest.approx(2 / 4)
    assert rate[1, 2] == pytest.approx(1 / 3)


def test_scores_outside_the_unit_interval_have_no_model_of_scores() -> None:
    scores = BUNDLE.scores
    assert scores is not None
    large = scores.copy()
    large[list(TASK.models)] = 10 * large[list(TASK.models)] - 3
    task = make_task(without(BUNDLE, scores=large), TASK.split, "honest", rng=0)
    router = make_router("ecc", FIT.posterior_, task)
    assert router.scores is None
    assert list(dict(policies(router, task, price=0.1))) == [
        "ecc", "ecc:sharp", "ecc+probe", "ecc+outcome",
    ]  # fmt: skip


# -------------------------------------------------------------------- intervals and curves


def made_result(n: int, rng: int = 0) -> TaskResult:
    generator = np.random.default_rng(rng)
    one = np.ones(n)
    base = generator.random(n)
    ways = {
        "global": Routed(base, one, one),
        "probe winner": Routed(base + 0.1, 2 * one, 2 * one),
        "noisy": Routed(generator.random(n), 1 + generator.integers(0, 2, n), one),
        "oracle": Routed(base + 0.4, one, one),
    }
    return TaskResult(TASK, ways, {})


def test_intervals_are_paired() -> None:
    found = summarise(made_result(500), rng=0)
    winner = found["probe winner"]
    assert winner["over_global"] == pytest.approx(0.1)
    assert winner["interval"]["over_global"] == pytest.approx([0.1, 0.1])
    assert winner["interval"]["oracle_share"] == pytest.approx([0.25, 0.25])
    low, high = winner["interval"]["quality"]
    assert high - low > 0.02  # each alone varies from query to query
    assert found["oracle"]["regret"] == 0.0
    assert found["global"]["regret"] == pytest.approx(0.4)
    assert winner["calls"] == 2.0
    assert set(METRICS) == set(winner["interval"])


def test_intervals_have_the_width_of_the_standard_error() -> None:
    result = made_result(800)
    found = summarise(result, prob=0.9, n_resamples=3000, rng=0)
    difference = result.routed["noisy"].quality - result.routed["global"].quality
    low, high = found["noisy"]["interval"]["over_global"]
    error = difference.std() / np.sqrt(800)
    assert low == pytest.approx(difference.mean() - 1.645 * error, abs=0.2 * error)
    assert high == pytest.approx(difference.mean() + 1.645 * error, abs=0.2 * error)


def test_coverage_takes_the_surest_first() -> None:
    quality = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    sure = np.array([0.9, 0.1, 0.8, 0.2, 0.7, 0.6, 0.5, 0.4, 0.3, 0.0])
    oracle, base = np.ones(10), np.full(10, 0.5)
    curve = coverage_curve(quality, sure, oracle, base)
    assert [point["coverage"] for point in curve] == [n / 10 for n in range(1, 11)]
    assert curve[3]["quality"] == 1.0
    assert curve[3]["confidence"] == 0.6
    assert curve[-1]["quality"] == pytest.approx(0.4)
    assert curve[-1]["regret"] == pytest.approx(0.6)
    assert curve[-1]["over_global"] == pytest.approx(-0.1)


def test_study_is_reproducible_and_fit_for_json() -> None:
    settings = EvaluationSettings(n_clusters=3, embedding_weight=1.0)
    splits = [draw_split(BUNDLE, seed=seed) for seed in (0, 1)]
    first, second = (
        study_routing(BUNDLE, splits, ["labels:capability", "ecc"], settings, n_resamples=50)
        for _ in range(2)
    )
    assert json.dumps(first) == json.dumps(second)
    assert first["protocol"]["name"] == "honest"
    row = first["policies"]["ecc+value"]
    assert set(row) == {*METRICS, "interval", "per_seed"}
    assert row["quality"] == pytest.approx(np.mean(row["per_seed"]["quality"]))
    low, high = row["interval"]["quality"]
    assert low < row["quality"] < high
    assert first["probing"]["ecc"][0]["calls"] >= 2
    assert first["cost_quality"]["ecc"][-1]["cost"] <= first["cost_quality"]["ecc"][0]["cost"]
    assert set(first["calibration"]["win_probability"]["ecc"]) == {"embedding", "embedding+probe"}
    bins = first["calibration"]["quality"]["ecc"]["bins"]
    assert sum(one["queries"] for one in bins) == first["protocol"]["counts"][0]["test_queries"]
    with pytest.raises(InputError, match="no split"):
        study_routing(BUNDLE, [], ["ecc"], settings)


# -------------------------------------------------------------------- the command


def test_command_prints_a_table_and_writes_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_bundle(BUNDLE, tmp_path / "data")
    for protocol in ("published", "honest"):
        file = tmp_path / f"{protocol}.json"
        code = main(
            [
                "route", str(tmp_path / "data"), "--protocol", protocol, "--methods",
                "labels:capability,ecc", "--clusters", "3", "--embedding-weight", "1",
                "--resamples", "20", "--json", str(file),
            ]
        )  # fmt: skip
        output = capsys.readouterr()
        assert code == 0, output.err
        found = json.loads(file.read_text(encoding="utf-8"))
        assert found["protocol"]["name"] == protocol
        for name in found["policies"]:
            assert f"\n{name} " in output.out
        assert {"random", "global", "labels:capability", "probe winner", "ecc", "oracle"} <= set(
            found["policies"]
        )
        assert ("ecc+stop" in found["policies"]) == (protocol == "honest")
        assert max(map(len, output.out.splitlines())) <= 100


def test_command_refuses_data_without_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_bundle(simulate(n_queries=60, rng=0).bundle(), tmp_path / "data")
    assert main(["route", str(tmp_path / "data")]) == 2
    assert "has no scores" in capsys.readouterr().err


# -------------------------------------------------------------------- real data

PUBLISHED = {
    "random": 0.512,
    "global": 0.755,
    "labels:task": 0.819,
    "knn:scores": 0.800,
    "embedding": 0.816,
    "embedding+probe": 0.828,
    "ecc": 0.809,
    "ecc+probe": 0.933,
    "probe winner": 0.99,
    "oracle": 0.993,
}
"""Mean score over seeds 0 to 4 of an independent prototype, ECC at embedding weight 1."""


def frozen(data: Path, protocol: Path, name: str, seed: int) -> tuple[Bundle, Split]:
    bundle = load_bundle(data / name)
    return bundle, frozen_split(bundle, protocol / name / f"seed_{seed}.parquet", seed=seed)


@pytest.mark.statistical
def test_published_protocol_reaches_its_levels(shared_data: Path, shared_protocol: Path) -> None:
    bundle = load_bundle(shared_data / "routerdc")
    splits = [
        frozen_split(bundle, shared_protocol / "routerdc" / f"seed_{seed}.parquet", seed=seed)
        for seed in range(5)
    ]
    found = study_routing(
        bundle,
        splits,
        ["labels:task", "embedding", "ecc"],
        EvaluationSettings(n_clusters=30, embedding_weight=1.0),
        protocol="published",
        n_resamples=50,
    )["policies"]
    for name, level in PUBLISHED.items():
        assert found[name]["quality"] == pytest.approx(level, abs=0.015), name


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "label", "clusters", "weight", "levels"),
    [
        ("routerdc", "task", 30, 1.0, {
            "global": 0.382, "ecc+probe": 0.414, "probe winner": 0.413, "better probed": 0.362,
            "oracle": 0.475,
        }),
        ("mmlu_pro", "category", 20, 0.6, {
            "global": 0.595, "ecc+probe": 0.604, "probe winner": 0.652, "better probed": 0.494,
            "oracle": 0.787,
        }),
    ],
)  # fmt: skip
def test_honest_protocol_reaches_its_levels_and_a_valued_probe_beats_its_winner(
    shared_data: Path,
    shared_protocol: Path,
    name: str,
    label: str,
    clusters: int,
    weight: float,
    levels: dict[str, float],
) -> None:
    bundle, split = frozen(shared_data, shared_protocol, name, 0)
    task = make_task(bundle, split, "honest", undecided="test", rng=0)
    fit = ECC(clusters, embedding_weight=weight, rng=0).fit(split.train, split.train_embeddings)
    result = run_task(task, {"ecc": fit.posterior_}, labels={label: bundle.labels(label)})
    found = summarise(result, rng=0)
    for policy, level in levels.items():
        assert found[policy]["quality"] == pytest.approx(level, abs=0.015), policy
    for policy in ("ecc+value", "ecc+stop"):
        assert found[policy]["interval"]["over_probe_winner"][0] > 0.02, policy
    assert found["ecc+stop"]["calls"] < found["ecc+value"]["calls"]
    assert found["ecc+stop"]["quality"] > found["ecc+value"]["quality"] - 0.005
    # the probe winner's quality, for fewer calls
    winner = found["probe winner"]
    assert any(
        point["quality"] > winner["quality"] and point["calls"] < winner["calls"] - 0.2
        for point in result.curves["probing"]["ecc"]
    )


@pytest.mark.statistical
def test_predicted_quality_of_routed_models_holds_on_new_queries(
    shared_data: Path, shared_protocol: Path
) -> None:
    bundle, split = frozen(shared_data, shared_protocol, "routerdc", 0)
    task = make_task(bundle, split, "honest", undecided="share", rng=0)
    fit = ECC(30, embedding_weight=1.0, rng=0).fit(split.train, split.train_embeddings)
    router = make_router("ecc", fit.posterior_, task)
    for policy, way in policies(router, task, price=0.05):
        if policy in ("ecc", "ecc:score", "ecc+scores", "ecc+value", "ecc+stop"):
            assert way.expected is not None
            assert abs(way.expected.mean() - way.quality.mean()) < 0.05, policy


@pytest.mark.statistical
def test_answering_less_gets_better_answers(shared_data: Path, shared_protocol: Path) -> None:
    bundle, split = frozen(shared_data, shared_protocol, "routerdc", 0)
    task = make_task(bundle, split, "published", rng=0)
    fit = BayesianECC(
        30, concentration=8.0, probe_power=8.0, chains=2, tune=150, draws=100, cores=1,
        checks=False, rng=0,
    ).fit(split.train, split.train_embeddings)  # fmt: skip
    curves = run_task(task, {"bayes": fit.posterior_}).curves
    for policy in ("bayes", "bayes+probe"):
        quality = np.array([point["quality"] for point in curves["abstention"][policy]["p_best"]])
        coverage = np.linspace(0.1, 1, 10)
        noise = 0.4 / np.sqrt(coverage * len(task.queries))
        assert (np.diff(quality) < 2 * noise[:-1]).all(), policy
        assert quality[2] > quality[-1] + 0.03, policy
    for policy in ("bayes", "bayes:score"):
        found = curves["calibration"][policy]
        assert abs(found["expected"] - found["realised"]) < 0.05, policy
        assert found["error"] < 0.08, policy  # 0.03 of it is the noise of bins of 95 queries


# -------------------------------------------------------------------- simulation


@pytest.mark.statistical
def test_probability_of_being_best_is_calibrated_in_simulation(
    replications: Callable[[int, int], int],
) -> None:
    """Of all clusters of many data sets, as many have the chosen model as their best as is said.

    The queries of one cluster share their best model, so a cluster of a data set counts once.
    """
    predicted, realised = [], []
    for rng in range(replications(60, 16)):
        truth = simulate(
            400, 5, 3, n_topics=2, per_query=3, spread=0.6, agreement=0.4, topic_signal=0.1,
            capability_signal=1.5, noise=0.8, coupling=0.0, rng=rng,
        )  # fmt: skip
        train, test = truth.comparisons.split(0.5, rng=rng)
        position = pd.Index(truth.comparisons.queries).get_indexer
        fit = BayesianECC(
            3, concentration=16.0, probe_power=1.0, chains=1, tune=150, draws=200, cores=1,
            checks=False, starts="em", rng=rng,
        ).fit(train, truth.embeddings[position(train.queries)])  # fmt: skip
        rows = position(test.queries)
        found = route(fit.posterior_, embeddings=truth.embeddings[rows], policy="p_best")
        label = truth.labels[rows]
        right = found["choice"].values == truth.strengths[label].argmax(axis=1)
        for cluster in range(3):
            predicted.append(found["chosen_p_best"].values[label == cluster].mean())
            realised.append(right[label == cluster].mean())
    p, y = np.array(predicted), np.array(realised)
    for chosen in (p > 0, p < 0.75, p >= 0.75):
        error = np.sqrt((p * (1 - p))[chosen].sum())
        assert abs((y - p)[chosen].sum()) < 3 * error
    assert y[p >= 0.75].mean() > y[p < 0.75].mean() + 0.1
