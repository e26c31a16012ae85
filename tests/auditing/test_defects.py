"""Every defect, planted in simulated and in real data, is found under its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from bayes_ecc import ECC
from bayes_ecc.auditing import audit
from bayes_ecc.auditing.evidence import contrasts, decisive_pairs, score_wins, vote_wins
from bayes_ecc.auditing.findings import Finding
from bayes_ecc.auditing.graph import (
    check_cluster_graphs,
    check_graph,
    check_label_graphs,
    check_star,
)
from bayes_ecc.auditing.source import make_source
from bayes_ecc.auditing.swapped import check_swapped
from bayes_ecc.auditing.texts import check_split, check_texts, nearest_cosine
from bayes_ecc.auditing.vectors import check_lengths, check_repetitions
from bayes_ecc.auditing.votes import (
    check_counts,
    check_duplicates,
    check_missing,
    check_order,
    check_ties,
    order_effect,
)
from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.splits import draw_split


def scores_of(bundle: Bundle) -> NDArray:
    assert bundle.scores is not None
    return bundle.scores.iloc[:, 1:].to_numpy(float).copy()


def with_scores(bundle: Bundle, values: NDArray) -> Bundle:
    table = pd.DataFrame(values, columns=bundle.models)
    table.insert(0, "query_id", bundle.query_ids)
    return replace(bundle, scores=table)


def with_texts(bundle: Bundle, texts: dict[int, Any]) -> Bundle:
    queries = bundle.queries.copy()
    column = queries["text"].tolist()
    for row, text in texts.items():
        column[row] = text
    return replace(bundle, queries=queries.assign(text=column))


def with_embeddings(bundle: Bundle, rows: NDArray) -> Bundle:
    return replace(bundle, embeddings=rows)


def label_of(bundle: Bundle) -> str:
    return {"simulated": "topic", "routerdc": "task", "mmlu_pro": "category"}[bundle.name]


def of(result: list[Finding] | str, name: str) -> Finding:
    assert not isinstance(result, str), result
    (found,) = [each for each in result if each.name == name]
    return found


def names(result: list[Finding] | str) -> set[str]:
    assert not isinstance(result, str), result
    return {each.name for each in result}


# -------------------------------------------------------------------- the graph


def test_clean_graph_has_no_findings(bundle: Bundle) -> None:
    source = make_source(bundle)
    assert check_graph(source) == []
    assert check_star(source) == []
    votes = make_source(bundle.draw_comparisons(rng=0))
    assert check_graph(votes) == []
    assert check_star(votes) == []


def test_model_that_was_never_run(bundle: Bundle) -> None:
    values = scores_of(bundle)
    values[:, 1] = np.nan
    found = of(check_graph(make_source(with_scores(bundle, values))), "never_compared")
    assert found.severity == "warning"
    assert found.affected == (bundle.models[1],)


@pytest.mark.parametrize("table", ["scores", "comparisons"])
def test_groups_that_never_meet(bundle: Bundle, table: str) -> None:
    values = scores_of(bundle)
    values[::2, :3] = np.nan
    values[1::2, 3:] = np.nan
    torn: Any = with_scores(bundle, values)
    if table == "comparisons":
        torn = torn.draw_comparisons(rng=0, per_query=3, min_per_query=1)
    found = of(check_graph(make_source(torn)), "disconnected")
    assert found.severity == "error"
    assert set(found.affected) == set(bundle.models[:3])
    assert not audit(torn, rng=0).ok


def test_model_that_always_wins(bundle: Bundle) -> None:
    values = scores_of(bundle)
    values[:, 2] = 2.0
    found = of(check_graph(make_source(with_scores(bundle, values))), "separated")
    assert found.severity == "warning"
    assert found.affected[0] == bundle.models[2]
    assert found.figures["separated_pairs"] == len(bundle.models) - 1


def test_all_comparisons_through_one_model(bundle: Bundle) -> None:
    votes = bundle.draw_comparisons(rng=0, per_query=None)
    star = votes.rows((votes.first == 3) | (votes.second == 3))
    found = of(check_star(make_source(star)), "star_design")
    assert found.severity == "warning"
    assert found.affected == (bundle.models[3],)
    assert found.figures["share"] == 1


def test_label_without_a_model_and_label_in_two_parts(bundle: Bundle) -> None:
    label = label_of(bundle)
    source = make_source(bundle, label)
    (levels,) = source.labels
    clean = check_label_graphs(source)
    values = scores_of(bundle)
    first, second = levels.codes == 0, np.flatnonzero(levels.codes == 1)
    values[first, 0] = np.nan
    half = len(second) // 2
    values[second[:half], :2] = np.nan
    values[second[half:], 2:] = np.nan
    result = check_label_graphs(make_source(with_scores(bundle, values), label))
    torn = of(result, "disconnected_labels")
    assert torn.severity == "warning"
    assert torn.affected == (levels.levels[1],)
    assert torn.affected[0] not in {name for each in clean for name in each.affected}
    parts = of(result, "open_contrasts_labels").figures["parts"]
    assert bundle.models[0] in parts[levels.levels[0]]["never_compared"]


def test_cluster_in_two_parts() -> None:
    rng = np.random.default_rng(0)
    # two directions of embeddings; along the second, models 0 and 1 never meet 2 and 3
    kind = np.repeat([0, 1], 100)
    pairs = np.array([[0, 1], [2, 3], [0, 2], [1, 3], [0, 3], [1, 2]])
    pick = np.where(kind == 0, rng.integers(6, size=200), rng.integers(2, size=200))
    votes = Comparisons.from_arrays(
        np.arange(200),
        pairs[pick, 0],
        pairs[pick, 1],
        rng.integers(2, size=200),
        queries=range(200),
        models=list("abcd"),
    )
    embeddings = np.eye(2)[kind] + 0.1 * rng.standard_normal((200, 2))
    fit = ECC(n_clusters=2, embedding_weight=3.0, rng=0).fit(votes, embeddings)
    data = Bundle(
        "two kinds",
        pd.DataFrame({"query_id": range(200)}),
        comparisons=votes.to_frame(),
        embeddings=embeddings,
    )
    for given in (fit, fit.posterior_):
        found = of(
            check_cluster_graphs(make_source(data), given, np.random.default_rng(0)),
            "disconnected_clusters",
        )
        assert found.severity == "warning"
        assert len(found.affected) == 1
    assert audit(data).checks["cluster_graphs"] == "needs a fit"
    assert audit(data, fit=fit).named("disconnected_clusters")


def test_clusters_of_a_fit_on_a_score_table(simulated: Bundle) -> None:
    votes = simulated.draw_comparisons(rng=0)
    fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(votes, simulated.embeddings_for(votes.queries))
    result = check_cluster_graphs(make_source(simulated), fit, np.random.default_rng(0))
    assert names(result) <= {"open_contrasts_clusters"}
    with pytest.raises(InputError, match="fit=str"):
        audit(simulated, fit="best")
    other = Comparisons.from_arrays([0], [0], [1], [1], queries=["q"], models=["x", "y"])
    with pytest.raises(InputError, match="fewer than two of the models"):
        audit(other, fit=fit)


# -------------------------------------------------------------------- counts


def test_counts_agree_with_drawing_all_pairs(bundle: Bundle) -> None:
    everything = bundle.draw_comparisons(per_query=None, min_per_query=1)
    found = of(check_counts(make_source(bundle)), "counts")
    assert found.figures["decisive_pairs"] == len(everything)
    assert found.figures["queries_without_decisive_pair"] == everything.dropped["queries"]
    ties = of(check_ties(make_source(bundle)), "ties")
    assert ties.severity == "note"
    assert ties.figures["ties"] == everything.dropped["tied_pairs"]
    assert ties.figures["of"] == len(everything) + everything.dropped["tied_pairs"]


def test_wins_of_a_score_table_are_those_of_its_comparisons(bundle: Bundle) -> None:
    votes = bundle.draw_comparisons(per_query=None, min_per_query=1)
    codes = np.arange(len(bundle.queries)) % 3 - 1
    place = bundle.query_ids.get_indexer(votes.queries)
    by_votes = vote_wins(votes, codes[place], 2)
    by_scores = score_wins(scores_of(bundle), codes, 2)
    np.testing.assert_array_equal(by_scores, by_votes)
    assert by_scores.sum() == decisive_pairs(scores_of(bundle))[codes >= 0].sum()


def test_table_of_ties(bundle: Bundle) -> None:
    found = of(
        check_ties(
            make_source(with_scores(bundle, np.ones((len(bundle.queries), len(bundle.models)))))
        ),
        "ties",
    )
    assert found.severity == "error"
    votes = bundle.draw_comparisons(rng=0)
    tied = replace(votes, outcome=np.full(len(votes), 0.5))
    assert of(check_ties(make_source(tied)), "ties").severity == "error"


def test_scores_rounded_to_ties(bundle: Bundle) -> None:
    values = np.ones_like(scores_of(bundle))
    values[:5, 0] = 0
    found = of(check_ties(make_source(with_scores(bundle, values))), "ties")
    assert found.severity == "warning"


def test_missing_scores(bundle: Bundle) -> None:
    values = scores_of(bundle)
    before = int(np.isnan(values).sum())
    assert (check_missing(make_source(bundle)) == []) == (before == 0)
    there = np.flatnonzero(~np.isnan(values[:, 1]))
    values[there[: len(values) * 6 // 10], 1] = np.nan
    found = of(check_missing(make_source(with_scores(bundle, values))), "missing_scores")
    assert found.severity == "warning"
    assert found.affected[0] == bundle.models[1]
    assert found.figures["missing"] == before + len(values) * 6 // 10


# -------------------------------------------------------------------- votes


def appended(votes: Comparisons, rows: NDArray, outcome: NDArray) -> Comparisons:
    """Add copies of rows with other outcomes."""
    columns = {
        name: np.concatenate([getattr(votes, name), getattr(votes, name)[rows]])
        for name in ("query", "first", "second", "weight")
    }
    return replace(votes, **columns, outcome=np.concatenate([votes.outcome, outcome]))


def test_votes_read_twice(bundle: Bundle) -> None:
    votes = bundle.draw_comparisons(rng=0)
    assert check_duplicates(make_source(votes)) == []
    rows = np.random.default_rng(0).choice(len(votes), 40, replace=False)
    result = check_duplicates(make_source(appended(votes, rows, votes.outcome[rows])))
    assert names(result) == {"duplicate_votes"}
    found = of(result, "duplicate_votes")
    assert found.severity == "warning"
    assert found.figures["copies"] == 40
    assert set(found.affected) == set(votes.queries[votes.query[rows]])


def test_votes_that_contradict_each_other(bundle: Bundle) -> None:
    votes = bundle.draw_comparisons(rng=0)
    rows = np.random.default_rng(0).choice(len(votes), 40, replace=False)
    result = check_duplicates(make_source(appended(votes, rows, 1 - votes.outcome[rows])))
    assert names(result) == {"contradictory_votes"}
    found = of(result, "contradictory_votes")
    assert found.figures["pairs"] == found.figures["repeated_pairs"] == 40
    assert found.figures["pairs_shown_in_both_orders"] == 0
    assert set(found.affected) == set(votes.queries[votes.query[rows]])


def test_votes_that_follow_the_order() -> None:
    both = [[0, 1, 0.0], [1, 0, 0.0], [0, 2, 1.0], [2, 0, 0.0]]
    first, second, outcome = np.array(both).T
    votes = Comparisons.from_arrays(
        np.zeros(4, int),
        first.astype(int),
        second.astype(int),
        outcome,
        queries=["q"],
        models=list("abc"),
    )
    found = of(check_duplicates(make_source(votes)), "contradictory_votes")
    assert found.figures["pairs"] == found.figures["pairs_shown_in_both_orders"] == 1


def test_order_of_presentation(bundle: Bundle) -> None:
    votes = bundle.draw_comparisons(rng=0)
    assert check_order(make_source(votes)) == "needs ordered comparisons"
    votes = replace(votes, ordered=True)
    assert check_order(make_source(votes)) == []  # scores don't know of the order
    turned = np.random.default_rng(0).random(len(votes)) < 0.1
    biased = replace(votes, outcome=np.where(turned, 1.0, votes.outcome))
    found = of(check_order(make_source(biased)), "presentation_order")
    assert found.severity == "warning"
    assert found.figures["matched_effect_logits"] > 0
    assert found.figures["share_second"] == pytest.approx(biased.outcome.mean())


def ordered_votes(n: int, effect: float, rng: np.random.Generator, lean: float) -> Comparisons:
    """Votes of four unequal models; `lean` is the chance that the stronger stands second."""
    strength = np.array([-1.5, -0.5, 0.5, 1.5])
    low, high = np.triu_indices(4, k=1)
    pair = rng.integers(6, size=n)
    second_high = rng.random(n) < lean
    first = np.where(second_high, low[pair], high[pair])
    second = np.where(second_high, high[pair], low[pair])
    p = 1 / (1 + np.exp(-(strength[second] - strength[first] + effect)))
    return Comparisons.from_arrays(
        np.arange(n), first, second, rng.random(n) < p, queries=range(n), models=list("abcd")
    )


@pytest.mark.parametrize("lean", [0.5, 0.8])
def test_order_effect_is_recovered_whoever_stands_second(lean: float) -> None:
    rng = np.random.default_rng(0)
    states = [order_effect(ordered_votes(600, 0.4, rng, lean)) for _ in range(300)]
    effect = np.array([state.effect for state in states])
    error = np.array([state.error for state in states])
    assert abs(effect.mean() - 0.4) < 4 * effect.std() / np.sqrt(300) + 0.01
    assert error.mean() == pytest.approx(effect.std(), rel=0.12)
    assert 0.91 < (np.abs(effect - 0.4) < 1.96 * error).mean() < 0.985


def test_order_without_effect_is_rarely_significant() -> None:
    rng = np.random.default_rng(1)
    p = np.array([order_effect(ordered_votes(300, 0.0, rng, 0.8)).matched_p for _ in range(400)])
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.035)
    # a plain binomial test would take the lean of the strong for an effect of the order
    assert order_effect(ordered_votes(300, 0.0, rng, 0.8)).binomial_p < 0.01


def test_order_that_was_never_changed_is_not_called_an_effect() -> None:
    votes = ordered_votes(600, 0.0, np.random.default_rng(2), 1.0)
    found = of(check_order(make_source(votes)), "presentation_order")
    assert found.severity == "note"
    assert "one order only" in found.found


# -------------------------------------------------------------------- queries


def test_missing_and_repeated_texts(simulated: Bundle) -> None:
    assert check_texts(make_source(simulated)) == []
    text = simulated.queries["text"][0]
    planted = with_texts(simulated, {5: f"  {text.upper()}\n", 7: "", 8: None})
    result = check_texts(make_source(planted))
    assert of(result, "missing_texts").affected == ("q0007", "q0008")
    assert of(result, "repeated_texts").affected == ("q0000", "q0005")
    assert of(result, "repeated_texts").severity == "note"


def test_split_with_leaks(bundle: Bundle) -> None:
    ids = bundle.query_ids
    embeddings = bundle.embeddings.copy()
    rng = np.random.default_rng(0)
    embeddings[1] = embeddings[0] + 0.005 * rng.standard_normal(embeddings.shape[1])
    planted = with_embeddings(
        with_texts(bundle, {2: "What is love?", 3: "what  IS love?"}), embeddings
    )
    train, test = ids[np.arange(0, len(ids), 2)], ids[np.arange(1, len(ids), 2)]
    result = check_split(make_source(planted), (train, test.append(ids[[4]])))
    assert of(result, "split_overlap").severity == "error"
    assert of(result, "split_overlap").affected == (ids[4],)
    assert ids[3] in of(result, "split_repeated_texts").affected
    assert ids[1] in of(result, "split_near_duplicates").affected
    assert ids[3] not in of(result, "split_near_duplicates").affected
    assert not audit(planted, split=(train, test.append(ids[[4]]))).ok


def test_split_of_the_library(bundle: Bundle) -> None:
    split = draw_split(bundle, seed=0)
    by_object = check_split(make_source(bundle), split)
    by_pair = check_split(make_source(bundle), (split.train, split.scored))
    by_ids = check_split(make_source(bundle), (split.train.queries, split.scored.queries))
    assert by_object == by_pair == by_ids
    assert "split_overlap" not in names(by_object)


def test_nearest_cosine_is_the_largest(simulated: Bundle) -> None:
    rows, others = np.arange(50), np.arange(50, 400)
    unit = simulated.embeddings.astype(float)
    expected = [max(float(unit[a] @ unit[b]) for b in others) for a in rows]
    np.testing.assert_allclose(nearest_cosine(unit, rows, others), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("train", "must be a pair"),
        ((["q0000"],), "must be a pair"),
        ((["q0000"], ["nobody"]), "names 'nobody'"),
        ((["q0000"], 3), "the test side is a int"),
    ],
)
def test_splits_that_are_none(simulated: Bundle, split: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit(simulated, split=split)


# -------------------------------------------------------------------- embeddings


def test_clean_embeddings(bundle: Bundle) -> None:
    source = make_source(bundle)
    assert check_lengths(source) == []
    assert names(check_repetitions(source)) <= {"repeated_embeddings"}
    assert check_swapped(source, np.random.default_rng(0)) == []


def test_embeddings_not_unit_vanishing_or_constant(bundle: Bundle) -> None:
    scaled = bundle.embeddings * np.linspace(1, 3, len(bundle.queries))[:, None]
    found = of(check_lengths(make_source(with_embeddings(bundle, scaled))), "embedding_lengths")
    assert found.severity == "note"
    vanishing = bundle.embeddings.copy()
    vanishing[9] *= 1e-7
    result = check_lengths(make_source(with_embeddings(bundle, vanishing)))
    assert of(result, "vanishing_embeddings").affected == (str(bundle.query_ids[9]),)
    vanishing[9] *= 1e-25  # its squares are zero in single precision
    result = audit(with_embeddings(bundle, vanishing)).named("vanishing_embeddings")
    assert result[0].affected == (str(bundle.query_ids[9]),)
    constant = bundle.embeddings[:1] + 1e-4 * bundle.embeddings
    result = check_lengths(make_source(with_embeddings(bundle, constant)))
    assert of(result, "constant_embeddings").severity == "error"
    zero = bundle.embeddings.copy()
    zero[9] = 0
    with pytest.raises(InputError, match=r"row 9.*only zeros"):
        with_embeddings(bundle, zero)


def test_one_embedding_for_many_texts(bundle: Bundle) -> None:
    rows = bundle.embeddings.copy()
    rows[10:60] = rows[10]
    result = check_repetitions(make_source(with_embeddings(bundle, rows)))
    found = of(result, "repeated_embeddings")
    assert found.severity == "warning"
    assert set(bundle.query_ids[10:60]) <= set(found.affected)
    assert found.figures["largest"] >= 49  # fifty rows, but for texts that are equal


def test_one_text_with_unlike_embeddings(bundle: Bundle) -> None:
    same = dict.fromkeys((3, 400, 800), "the very same words")
    rows = bundle.embeddings.copy()
    rows[400] = rows[3]
    assert rows[800] @ rows[3] < 0.4
    planted = with_embeddings(with_texts(bundle, same), rows)
    found = of(check_repetitions(make_source(planted)), "unlike_embeddings")
    assert found.severity == "warning"
    assert found.figures["pairs"] == 1
    assert set(found.affected) == set(bundle.query_ids[[3, 800]])


@pytest.mark.parametrize("how", ["all", "within labels", "shifted", "stretch"])
def test_rows_of_other_queries(bundle: Bundle, how: str) -> None:
    rng = np.random.default_rng(0)
    n = len(bundle.queries)
    order = np.arange(n)
    if how == "all":
        order = rng.permutation(n)
    elif how == "within labels":
        labels = bundle.queries[label_of(bundle)].to_numpy()
        for label in np.unique(labels):
            order[labels == label] = rng.permutation(order[labels == label])
    elif how == "shifted":
        order = np.roll(order, 1)
    else:
        order[: n // 2] = rng.permutation(n)[: n // 2]
    planted = make_source(with_embeddings(bundle, bundle.embeddings[order]))
    found = of(check_swapped(planted, np.random.default_rng(0)), "swapped_embeddings")
    assert found.severity == "error"
    if how == "stretch":
        assert found.figures["rows"][0][0] < n // 10
        assert found.figures["rows"][-1][1] < n * 6 // 10


def test_rows_of_other_queries_told_by_labels_alone(bundle: Bundle) -> None:
    bare = replace(bundle, queries=bundle.queries.drop(columns="text"))
    label = label_of(bundle)
    rng = np.random.default_rng(0)
    assert check_swapped(make_source(bare, label), rng) == []
    moved = with_embeddings(bare, bare.embeddings[rng.permutation(len(bare.queries))])
    found = of(check_swapped(make_source(moved, label), rng), "swapped_embeddings")
    assert found.severity == "warning"


def test_swapped_rows_are_not_judged_without_texts_and_labels(simulated: Bundle) -> None:
    bare = replace(simulated, queries=simulated.queries[["query_id"]])
    result = audit(bare)
    assert result.checks["swapped_embeddings"].startswith("needs texts or labels")
    assert result.checks["repeated_embeddings"] == "needs embeddings and texts"


def test_no_clean_part_has_swapped_rows(real: dict[str, Bundle]) -> None:
    rng = np.random.default_rng(3)
    for repetition in range(20):
        whole = real[("routerdc", "mmlu_pro")[repetition % 2]]
        size = round(np.exp(rng.uniform(np.log(30), np.log(3000))))
        rows = np.sort(rng.choice(len(whole.queries), size, replace=False))
        part = Bundle(
            whole.name,
            whole.queries.iloc[rows],
            scores=whole.scores.iloc[rows],
            embeddings=whole.embeddings[rows],
        )
        result = check_swapped(make_source(part), np.random.default_rng(0))
        assert result == [] or isinstance(result, str)


# -------------------------------------------------------------------- graphs of wins


def test_contrasts_of_small_graphs() -> None:
    wins = np.zeros((5, 5))
    wins[0, 1] = wins[1, 0] = 1  # 0 and 1 both ways, 2 above both, 3 below 2 alone, 4 nowhere
    wins[2, 0] = wins[2, 3] = 1
    state = contrasts(wins)
    assert state.lonely.tolist() == [False, False, False, False, True]
    assert [part.tolist() for part in state.parts] == [[0, 1, 2, 3]]
    assert (state.separated, state.undetermined, state.pairs) == (3, 2, 6)
    assert state.one_sided.tolist() == [1, 1, 3, 1, 0]
    assert not state.identified
    assert contrasts(np.ones((3, 3)) - np.eye(3)).identified
