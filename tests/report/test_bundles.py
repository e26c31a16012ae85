"""Data sets beside a fit: whether they are those that were fitted, and what they add."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayes_ecc import (
    ECC,
    Bundle,
    Comparisons,
    DataWarning,
    InputError,
    Simulation,
)
from bayes_ecc.report import render_report
from bayes_ecc.report.bundles import compare_with_bundle
from bayes_ecc.report.held_out import default_methods, evaluate_beside
from bayes_ecc.report.reading import read_fit

type PageReader = Callable[[str], Any]


def bundle_of(scores: np.ndarray, texts: list[str] | None = None, first: int = 0) -> Bundle:
    ids = [f"q{first + i}" for i in range(len(scores))]
    queries = pd.DataFrame({"query_id": ids})
    if texts is not None:
        queries["text"] = texts
    names = [f"m{j}" for j in range(scores.shape[1])]
    frame = pd.DataFrame(scores, columns=names)
    frame.insert(0, "query_id", ids)
    return Bundle("b", queries, scores=frame)


@pytest.fixture(scope="module")
def scored() -> tuple[Bundle, Comparisons, np.ndarray]:
    scores = np.random.default_rng(3).normal(size=(40, 4))
    bundle = bundle_of(scores, [f"text of {i}" for i in range(40)])
    return bundle, bundle.draw_comparisons(rng=0), scores


@pytest.fixture(scope="module")
def scored_fit(scored: tuple[Bundle, Comparisons, np.ndarray]) -> ECC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ECC(2, rng=0, max_iter=500).fit(scored[1])


def test_agreement_counts_what_scores_do_not_bear_out(
    scored: tuple[Bundle, Comparisons, np.ndarray],
) -> None:
    bundle, comparisons, scores = scored
    assert compare_with_bundle(comparisons, bundle).different == 0
    changed = scores.copy()
    changed[5] *= -1  # turns every comparison on this query round
    found = compare_with_bundle(comparisons, bundle_of(changed))
    assert found.different == (comparisons.query == comparisons.queries.get_loc("q5")).sum() > 0
    assert found.looked_up == len(comparisons)
    fewer = compare_with_bundle(comparisons, bundle_of(scores[:, :3][:30]))
    assert (fewer.known, fewer.unknown_models) == (30, ("m3",))
    touched = (comparisons.first != 3) & (comparisons.second != 3) & (comparisons.query < 30)
    assert fewer.looked_up == touched.sum()


def test_agreement_reads_a_comparison_table_in_either_order(data: Simulation) -> None:
    bundle = data.bundle()
    comparisons = bundle.draw_comparisons()
    assert compare_with_bundle(comparisons, bundle).different == 0
    swapped = Comparisons.from_arrays(
        comparisons.query,
        comparisons.second,
        comparisons.first,
        1 - comparisons.outcome,
        queries=comparisons.queries,
        models=comparisons.models,
    )
    assert compare_with_bundle(swapped, bundle).different == 0
    turned = comparisons.outcome.copy()
    turned[:7] = 1 - turned[:7]
    other = Comparisons.from_arrays(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        turned,
        queries=comparisons.queries,
        models=comparisons.models,
    )
    assert 1 <= compare_with_bundle(other, bundle).different <= 7


def test_report_warns_of_a_bundle_that_differs(
    scored: tuple[Bundle, Comparisons, np.ndarray], scored_fit: ECC, read_page: PageReader
) -> None:
    bundle, _, scores = scored
    fine = read_page(render_report(scored_fit, bundles=bundle, figures=False)).text
    assert "comparisons of the fit agree with it" in fine
    assert "text of 1" in fine
    place = np.argsort(scores[5])[-2:]  # the two best of one query change places: one pair
    changed = scores.copy()
    changed[5, place] = changed[5, place[::-1]]
    changed = bundle_of(changed, [f"text of {i}" for i in range(40)])
    with pytest.warns(DataWarning, match=r"1 of 240 .* not borne out by the bundle 'b'; its texts"):
        page = render_report(scored_fit, bundles=changed, figures=False)
    text = read_page(page).text
    assert "may not be the data that were fitted" in text
    assert "Audit of the data differ from what was fitted" in text
    assert "text of 1" in text
    with pytest.raises(InputError, match="none of the fit's 40 queries"):
        render_report(scored_fit, bundles=bundle_of(scores, first=100), figures=False)


def test_of_other_data_nothing_is_told_of_queries(
    scored: tuple[Bundle, Comparisons, np.ndarray], scored_fit: ECC, read_page: PageReader
) -> None:
    _, _, scores = scored
    other = bundle_of(scores[::-1], [f"text of {i}" for i in range(40)])
    other = dataclasses.replace(other, queries=other.queries.assign(kind=["x", "y"] * 20))
    with pytest.warns(DataWarning, match="texts and labels are left out. Give the data"):
        page = read_page(render_report(scored_fit, bundles=other, figures=False))
    assert "Audit of the data not the data that were fitted" in page.text
    assert "These are not the data that were fitted" in page.text
    for told in ("text of 1", "mostly (kind)", "labels, which no fit sees"):
        assert told not in page.text
    with pytest.raises(InputError, match="does not hold the comparisons of the fit"):
        evaluate_beside(scored_fit.posterior_, other, ["global"])


def test_a_label_is_among_the_methods(
    scored: tuple[Bundle, Comparisons, np.ndarray], read_page: PageReader
) -> None:
    bundle, comparisons, _ = scored
    queries = bundle.queries.assign(part=np.linspace(0, 1, 40), kind=["x", "y"] * 20)
    bundle = dataclasses.replace(bundle, queries=queries)
    assert default_methods(bundle) == ["global", "labels:kind", "ecc:auto", "bayes"]
    assert default_methods(scored[0]) == ["global", "ecc:auto", "bayes"]
    alone = ECC(1, rng=0).fit(comparisons)
    text = read_page(render_report(alone, bundles=bundle, figures=False)).text
    assert "labels:kind gives each value of that column a ranking" in text
    assert "--methods global,labels:kind,ecc:auto,bayes --json" in text
    text = read_page(render_report(alone, bundles=scored[0], figures=False)).text
    assert "labels:" not in text


def test_of_two_bundles_the_first_tells_the_text(
    scored: tuple[Bundle, Comparisons, np.ndarray], scored_fit: ECC, read_page: PageReader
) -> None:
    bundle, _, scores = scored
    other = bundle_of(scores, [f"other {i}" for i in range(40)])
    text = read_page(render_report(scored_fit, bundles=[bundle, other], figures=False)).text
    assert "text of 1" in text
    assert "other 1" not in text


def test_methods_are_evaluated_beside_the_fit(
    scored: tuple[Bundle, Comparisons, np.ndarray],
) -> None:
    bundle, _, _ = scored
    fewer = bundle.draw_comparisons(per_query=3, exclude_models=["m3"], rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ECC(2, rng=0, max_iter=500).fit(fewer)
    found = evaluate_beside(fit.posterior_, bundle, ["global"], seeds=[3])
    protocol = found["protocol"]
    assert protocol["exclude_models"] == ["m3"]
    assert (protocol["per_query"], protocol["n_clusters"], protocol["seeds"]) == (3, 2, [3])
    assert protocol["counts"][0]["models"] == 3
    with pytest.raises(InputError, match="does not hold the comparisons"):
        evaluate_beside(fit.posterior_, bundle_of(-scored[2]), ["global"])


def test_labels_that_go_with_the_clusters_come_first(
    data: Simulation, em: ECC, read_page: PageReader
) -> None:
    bundle = data.bundle()
    reading = read_fit(em.posterior_)
    held = pd.Series(reading.held, index=reading.comparisons.queries)
    kinds = held.map({0: "<zero>", 1: "one", 2: "two"})
    queries = bundle.queries.assign(
        noise=np.arange(len(kinds)) % 2 == 0, kind=bundle.queries["query_id"].map(kinds)
    )
    bundle = dataclasses.replace(bundle, queries=queries)
    page = read_page(render_report(em, bundles=bundle, figures=False))
    head, *rows = page.tables["clusters"]
    place = head.index("mostly (kind)")
    for row in rows:
        assert row[place] == f"{['<zero>', 'one', 'two'][int(row[0])]} 100%"
    assert "kind 1.00, " in page.text
