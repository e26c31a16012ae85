"""Splits and evaluation: what is kept apart, what is reported, and the levels on real data."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import Bundle, InputError, load_bundle, simulate
from bayes_ecc.evaluation import EvaluationSettings, evaluate, fit_method, judge
from bayes_ecc.splits import SIGNALS, Split, apart_from_probes, draw_split, frozen_split

SETTINGS = EvaluationSettings(n_clusters=4, embedding_weight=1.0)


@pytest.fixture(scope="module")
def votes() -> Bundle:
    """Comparisons as they happened."""
    return simulate(n_queries=240, n_models=6, rng=3).bundle()


@pytest.fixture(scope="module")
def scored() -> Bundle:
    """A score table, from which comparisons are drawn."""
    rng = np.random.default_rng(5)
    ids = [f"q{i}" for i in range(200)]
    scores = pd.DataFrame(rng.integers(0, 6, (200, 5)), columns=list("abcde"))
    scores.insert(0, "query_id", ids)
    queries = pd.DataFrame({"query_id": ids, "task": rng.choice(["maths", "law"], 200)})
    return Bundle("scored", queries, scores=scores, embeddings=rng.normal(size=(200, 8)))


def rows_of(comparisons: Any) -> set[tuple[Any, ...]]:
    frame = comparisons.to_frame()
    return set(frame.itertuples(index=False, name=None))


def freeze(split: Split, path: Path, /, **changed: Any) -> Path:
    """Write a split as a frozen file, whose columns may be changed."""
    parts = [
        part.to_frame().assign(split=side, probe=probe)
        for part, side, probe in (
            (split.train, "train", False),
            (split.scored, "test", False),
            (split.probes, "test", True),
        )
    ]
    table = pd.concat(parts, ignore_index=True)
    winner = table.pop("outcome").map({0.0: "model_a", 1.0: "model_b", 0.5: "tie"})
    table = table.drop(columns="weight").assign(winner=winner).assign(**changed)
    table.to_parquet(path)
    return path


# -------------------------------------------------------------------- splits


@pytest.mark.parametrize("name", ["votes", "scored"])
def test_a_split_keeps_its_sides_apart(name: str, request: pytest.FixtureRequest) -> None:
    bundle = request.getfixturevalue(name)
    split = draw_split(bundle, seed=1, n_probes=2, test_size=0.25)
    assert not set(split.train.queries) & set(split.scored.queries)
    assert split.probes.queries.equals(split.scored.queries)
    assert np.bincount(split.probes.query).tolist() == [2] * split.probes.n_queries
    for query, first, second in zip(
        split.probes.query, split.probes.first, split.probes.second, strict=True
    ):
        same = split.scored.query == query
        pair = {first, second}
        assert pair not in [
            {a, b} for a, b in zip(split.scored.first[same], split.scored.second[same], strict=True)
        ]


@pytest.mark.parametrize("name", ["votes", "scored"])
def test_embeddings_belong_to_their_queries(name: str, request: pytest.FixtureRequest) -> None:
    bundle = request.getfixturevalue(name)
    split = draw_split(bundle, seed=2)
    embedding = dict(zip(bundle.query_ids, bundle.embeddings, strict=True))
    for queries, rows in (
        (split.train.queries, split.train_embeddings),
        (split.scored.queries, split.test_embeddings),
    ):
        assert all(np.array_equal(embedding[q], row) for q, row in zip(queries, rows, strict=True))


def test_the_probe_of_a_score_table_is_the_first_drawn(scored: Bundle) -> None:
    drawn = scored.draw_comparisons(rng=np.random.default_rng(4))
    split = draw_split(scored, seed=4)
    first = drawn.to_frame().groupby("query_id", sort=False).first().loc[split.probes.queries]
    probes = split.probes.to_frame().set_index("query_id")
    assert (probes[first.columns] == first).all(axis=None)


def test_probes_of_a_comparison_table_do_not_follow_its_order(votes: Bundle) -> None:
    assert votes.comparisons is not None
    table = votes.comparisons.sort_values(["query_id", "outcome"], ignore_index=True)
    by_outcome = Bundle("sorted", votes.queries, comparisons=table, embeddings=votes.embeddings)
    probes = draw_split(by_outcome, seed=0, test_size=0.5).probes
    assert 0.3 < probes.outcome.mean() < 0.7


def test_a_split_depends_on_its_seed_alone(votes: Bundle) -> None:
    a, b, other = (draw_split(votes, seed=seed) for seed in (7, 7, 8))
    assert rows_of(a.train) == rows_of(b.train)
    assert rows_of(a.probes) == rows_of(b.probes)
    assert set(a.train.queries) != set(other.train.queries)


def test_a_frozen_split_is_the_drawn_one(scored: Bundle, tmp_path: Path) -> None:
    drawn = draw_split(scored, seed=6)
    frozen = frozen_split(scored, freeze(drawn, tmp_path / "seed_6.parquet"), seed=6)
    for part in ("train", "probes", "scored"):
        assert rows_of(getattr(frozen, part)) == rows_of(getattr(drawn, part))
        assert list(getattr(frozen, part).queries) == list(getattr(drawn, part).queries)
    assert list(frozen.train.models) == list(drawn.train.models)
    assert np.array_equal(frozen.train_embeddings, drawn.train_embeddings)
    assert np.array_equal(frozen.test_embeddings, drawn.test_embeddings)
    methods = ["labels:task", "comparisons"]
    results = [evaluate(scored, [s], methods, SETTINGS)["methods"] for s in (drawn, frozen)]
    for method in methods:
        gains = [result[method]["embedding+probe"]["gain"]["mean"] for result in results]
        assert gains[0] == pytest.approx(gains[1], abs=1e-6)


def test_excluded_models_take_no_part(scored: Bundle, tmp_path: Path) -> None:
    path = freeze(draw_split(scored, seed=0), tmp_path / "seed_0.parquet")
    for split in (
        draw_split(scored, exclude_models=["b", "d"]),
        frozen_split(scored, path, exclude_models=["b", "d"]),
    ):
        assert list(split.train.models) == ["a", "c", "e"]
        assert len(split.train)
    for make in (
        lambda: draw_split(scored, exclude_models=["gpt"]),
        lambda: frozen_split(scored, path, exclude_models=["gpt"]),
    ):
        with pytest.raises(InputError, match="'gpt'"):
            make()


def test_models_that_a_frozen_file_leaves_out_take_no_part(scored: Bundle, tmp_path: Path) -> None:
    path = freeze(draw_split(scored, exclude_models=["c"]), tmp_path / "seed_0.parquet")
    assert list(frozen_split(scored, path).train.models) == ["a", "b", "d", "e"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"split": "validation"}, "row 0: split holds 'validation'"),
        ({"probe": 0}, "probe holds int64"),
        ({"winner": "ada"}, "'ada'"),
        ({"model_a": "gpt"}, "'gpt'"),
        ({"query_id": "q9999"}, "'q9999'"),
    ],
)
def test_a_frozen_file_is_checked(
    changed: dict[str, Any], message: str, votes: Bundle, tmp_path: Path
) -> None:
    path = freeze(draw_split(votes), tmp_path / "seed_0.parquet", **changed)
    with pytest.raises(InputError, match=message) as refusal:
        frozen_split(votes, path)
    assert str(path) in str(refusal.value)


def test_a_query_on_both_sides_is_refused(votes: Bundle, tmp_path: Path) -> None:
    path = freeze(draw_split(votes), tmp_path / "seed_0.parquet")
    table = pd.read_parquet(path)
    table.loc[0, "split"] = "test"
    table.to_parquet(path)
    with pytest.raises(InputError, match=f"{table['query_id'][0]}' is in train and in test"):
        frozen_split(votes, path)


def test_what_is_no_frozen_file_is_refused(votes: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "seed_0.parquet"
    with pytest.raises(InputError, match=r"seed_0\.parquet does not exist"):
        frozen_split(votes, path)
    path.write_text("query_id,winner")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        frozen_split(votes, path)
    freeze(draw_split(votes), path)
    pd.read_parquet(path).drop(columns="probe").to_parquet(path)
    with pytest.raises(InputError, match=r"lacks the column\(s\) probe"):
        frozen_split(votes, path)


def test_a_split_is_printed_in_counts(scored: Bundle, votes: Bundle) -> None:
    for bundle, embedded in ((scored, True), (votes, votes.embeddings is not None)):
        split = draw_split(bundle)
        shown = repr(split)
        assert len(shown) < 200
        assert f"{len(split.scored)} comparisons to score" in shown
        assert f"{len(split.train)} comparisons of {split.train.n_queries} queries" in shown
        assert ("no embeddings" in shown) is not embedded
    assert "no embeddings" in repr(split._replace(train_embeddings=None))


def test_one_of_two_tables_must_be_named(scored: Bundle) -> None:
    table = scored.draw_comparisons(rng=0).to_frame()
    both = Bundle(
        "both",
        scored.queries,
        scores=scored.scores,
        comparisons=table.iloc[:300],
        embeddings=scored.embeddings,
    )
    with pytest.raises(InputError, match="source='scores'"):
        draw_split(both)
    assert len(draw_split(both, source="scores").train) > 300
    assert len(draw_split(both, source="comparisons").train) < 300


@pytest.mark.parametrize(
    "changed", [{"seed": -1}, {"seed": 1.5}, {"test_size": 1}, {"per_query": 0}, {"n_probes": 7}]
)
def test_a_split_refuses_settings_out_of_range(changed: dict[str, Any], scored: Bundle) -> None:
    with pytest.raises(InputError):
        draw_split(scored, **changed)


# -------------------------------------------------------------------- evaluation


def test_gains_are_what_their_definition_says(votes: Bundle) -> None:
    split = draw_split(votes, seed=0)
    result = evaluate(votes, [split], ["labels:capability", "global"], SETTINGS)

    def loss(method: str) -> float:
        p = fit_method(method, split, votes).predict("embedding")
        y = split.scored.outcome
        return float(np.mean(-y * np.log(p) - (1 - y) * np.log(1 - p)))

    gain = 100 * (1 - loss("labels:capability") / loss("global"))
    assert gain > 5
    figures = result["methods"]["labels:capability"]
    assert figures["embedding"]["gain"]["mean"] == pytest.approx(gain)
    assert figures["embedding"]["loss"]["mean"] == pytest.approx(loss("labels:capability"))
    assert result["global"]["loss"] == pytest.approx(loss("global"))
    low, high = figures["embedding"]["gain_interval"]
    assert low < gain < high
    assert result["methods"]["global"]["probe"]["gain"]["mean"] == 0


def test_the_result_has_the_documented_shape(votes: Bundle) -> None:
    seeds = (0, 1, 2)
    splits = [draw_split(votes, seed=seed) for seed in seeds]
    methods = ["labels:topic", "ecc"]
    result = evaluate(votes, splits, methods, SETTINGS, protocol={"seeds": list(seeds)})
    assert set(result) == {"protocol", "global", "methods"}
    assert {"counts", "versions", "n_clusters", "embedding_weight", "seeds"} <= set(
        result["protocol"]
    )
    assert [count["seed"] for count in result["protocol"]["counts"]] == list(seeds)
    assert result["protocol"]["counts"][0]["scored_comparisons"] == len(splits[0].scored)
    assert {"loss", "ece"} <= set(result["global"])
    assert list(result["methods"]) == methods
    for figures in result["methods"].values():
        assert {*SIGNALS, "seconds", "n_iter"} <= set(figures)
        for signal in SIGNALS:
            assert len(figures[signal]["gain_interval"]) == 2
            for name in ("gain", "loss", "ece"):
                values = figures[signal][name]
                assert set(values) == {"mean", "sd", "per_seed"}
                assert len(values["per_seed"]) == 3
                assert values["mean"] == pytest.approx(sum(values["per_seed"]) / 3)
                spread = sum((v - values["mean"]) ** 2 for v in values["per_seed"]) / 2
                assert values["sd"] == pytest.approx(math.sqrt(spread), abs=1e-12)
    labels = result["methods"]["labels:topic"]
    assert labels["embedding"] == labels["probe"] == labels["embedding+probe"]
    assert labels["n_iter"] is None
    assert result["methods"]["ecc"]["n_iter"] >= 1
    assert result["methods"]["ecc"]["settings"][0]["embedding_weight"] == 1.0


def test_one_seed_has_no_spread(votes: Bundle) -> None:
    figures = evaluate(votes, [draw_split(votes)], ["labels:topic"])["methods"]["labels:topic"]
    assert figures["probe"]["gain"]["sd"] is None


def test_methods_do_not_depend_on_what_they_are_listed_with(votes: Bundle) -> None:
    split = draw_split(votes)

    def gains(*methods: str) -> dict[str, Any]:
        result = evaluate(votes, [split], methods, SETTINGS)["methods"]
        return {name: [figures[s]["gain"] for s in SIGNALS] for name, figures in result.items()}

    every = ("embedding", "comparisons", "ecc")
    listed = gains(*every)
    assert gains(*reversed(every)) == listed
    assert gains("ecc") == {"ecc": listed["ecc"]}
    assert len({str(gain) for gain in listed.values()}) == 3


def test_settings_reach_the_methods_they_are_for(votes: Bundle) -> None:
    split = draw_split(votes)
    settings = EvaluationSettings(
        3, embedding_weight=0.7, embedding_only_weight=4.0, temperature=0.2, ridge=0.5
    )
    used = {
        method: fit_method(method, split, votes, settings).settings
        for method in ("embedding", "comparisons", "ecc")
    }
    common = {"n_clusters": 3, "temperature": 0.2, "ridge": 0.5}
    assert used["embedding"] == {**common, "embedding_weight": 4.0}
    assert used["comparisons"] == used["ecc"] == {**common, "embedding_weight": 0.7}


def test_auto_chooses_all_settings_but_the_clusters(votes: Bundle) -> None:
    split = draw_split(votes)
    fitted = fit_method("ecc:auto", split, votes, SETTINGS)
    assert fitted.settings["n_clusters"] == 4
    tried = fitted.estimator.selection_.table
    assert {"embedding_weight", "temperature", "ridge"} <= set(tried.columns)
    assert "n_clusters" not in tried.columns


def test_without_probes_the_probe_tells_nothing(votes: Bundle) -> None:
    split = draw_split(votes, n_probes=0)
    result = evaluate(votes, [split], ["ecc"], SETTINGS)
    assert result["protocol"]["counts"][0]["probes"] == 0
    figures = result["methods"]["ecc"]
    assert figures["embedding"]["gain"]["mean"] == pytest.approx(
        figures["embedding+probe"]["gain"]["mean"]
    )


@pytest.mark.parametrize(
    "method",
    [
        "",
        "nonsense",
        "labels",
        "labels:",
        "labels:colour",
        "global:x",
        "embedding:",
        "ecc:",
        "ecc:x",
    ],
)
def test_what_is_no_method_is_refused(method: str, votes: Bundle) -> None:
    with pytest.raises(InputError, match=r"method|column"):
        evaluate(votes, [draw_split(votes)], ["global", method])


def test_nothing_to_do_is_refused(votes: Bundle) -> None:
    with pytest.raises(InputError, match="no split"):
        evaluate(votes, [], ["global"])
    for methods in ([], "ecc"):
        with pytest.raises(InputError, match="give a list"):
            evaluate(votes, [draw_split(votes)], methods)


# -------------------------------------------------------------------- levels on real data

CLUSTERS = {"routerdc": 30, "mmlu_pro": 20}


def frozen_splits(
    name: str, seeds: range, data: Path, protocol: Path
) -> tuple[Bundle, list[Split]]:
    bundle = load_bundle(data / name)
    files = [(seed, protocol / name / f"seed_{seed}.parquet") for seed in seeds]
    return bundle, [frozen_split(bundle, path, seed=seed) for seed, path in files]


@pytest.mark.parametrize(
    ("name", "seeds", "weight", "loss", "ece", "levels"),
    [
        (
            "routerdc",
            range(5),
            1.0,
            0.464,
            0.018,
            {"labels:task": 29.4, "embedding": 22.6, "comparisons": 27.8, "ecc": 31.4},
        ),
        (
            "mmlu_pro",
            range(3),
            0.6,
            0.546,
            0.017,
            {"labels:category": 1.7, "embedding": 1.6, "comparisons": 11.5, "ecc": 12.1},
        ),
    ],
)
def test_levels_of_an_independent_implementation_are_met(
    name: str,
    seeds: range,
    weight: float,
    loss: float,
    ece: float,
    levels: dict[str, float],
    shared_data: Path,
    shared_protocol: Path,
) -> None:
    bundle, splits = frozen_splits(name, seeds, shared_data, shared_protocol)
    settings = EvaluationSettings(CLUSTERS[name], embedding_weight=weight)
    result = evaluate(bundle, splits, ["global", *levels], settings)
    # The levels are known to as many digits as are given here.
    assert result["global"]["loss"] == pytest.approx(loss, abs=6e-4)
    assert result["global"]["ece"] == pytest.approx(ece, abs=6e-4)
    gains = {m: f["embedding+probe"]["gain"]["mean"] for m, f in result["methods"].items()}
    assert gains.pop("global") == pytest.approx(0, abs=1e-9)
    for method, gain in gains.items():
        # Labels are deterministic; clusters depend on where they start.
        within = 0.1 if method.startswith("labels") else 1.0
        assert gain == pytest.approx(levels[method], abs=within), method
    assert gains["ecc"] > max(gains["embedding"], gains["comparisons"])


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "seeds", "one_seed", "level"),
    [("routerdc", range(5), range(2, 3), 35.0), ("mmlu_pro", range(3), range(1, 2), 12.0)],
)
def test_chosen_settings_are_as_good_as_the_best_of_a_grid(
    name: str,
    seeds: range,
    one_seed: range,
    level: float,
    shared_data: Path,
    shared_protocol: Path,
    replications: Callable[[int, int], int],
) -> None:
    used = seeds if replications(1, 0) else one_seed
    bundle, splits = frozen_splits(name, used, shared_data, shared_protocol)

    def gain(method: str, settings: EvaluationSettings) -> float:
        result = evaluate(bundle, splits, [method], settings)["methods"][method]
        return result["embedding+probe"]["gain"]["mean"]

    chosen = gain("ecc:auto", EvaluationSettings(CLUSTERS[name]))
    grid = [
        gain("ecc", EvaluationSettings(CLUSTERS[name], embedding_weight=weight, ridge=ridge))
        for weight in (0.6, 1.0, 1.5, 3.0)
        for ridge in (0.1, 0.3, 1.0)
    ]
    assert chosen >= level
    assert chosen >= max(grid) - 1
    published = EvaluationSettings(CLUSTERS[name], embedding_weight=3.0, ridge=1.0)
    assert chosen > gain("ecc", published)


def test_gain_apart_is_that_of_comparisons_without_a_probed_model():
    bundle = simulate(n_queries=120, n_models=6, rng=3).bundle()
    split = draw_split(bundle, n_probes=2)
    probed = zip(split.probes.query, split.probes.first, split.probes.second, strict=True)
    met = {(q, model) for q, *pair in probed for model in pair}
    rows = zip(split.scored.query, split.scored.first, split.scored.second, strict=True)
    apart = np.array([(q, i) not in met and (q, j) not in met for q, i, j in rows])
    assert 0 < apart.mean() < 1
    assert (apart_from_probes(split) == apart).all()
    baseline = fit_method("global", split, bundle).predict("probe")
    chances = np.random.default_rng(0).uniform(0.1, 0.9, len(split.scored))
    happened = np.where(split.scored.outcome > 0.5, chances, 1 - chances)[apart]
    global_ = np.where(split.scored.outcome > 0.5, baseline, 1 - baseline)[apart]
    expected = 100 * (1 - np.log(happened).sum() / np.log(global_).sum())
    assert judge(chances, baseline, split)["gain_apart"] == pytest.approx(expected)
    bare = draw_split(bundle, n_probes=0)
    none = judge(chances_of(bare), chances_of(bare), bare)
    assert none["gain_apart"] == 0.0  # all of them are apart from no probe


def chances_of(split):
    return np.full(len(split.scored), 0.4)
