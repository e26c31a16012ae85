"""The report of a fit: what it says is what was computed, and data never become markup."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc import (
    ECC,
    BayesianECC,
    Bundle,
    Comparisons,
    ConvergenceWarning,
    InputError,
    Simulation,
    cluster_ranking,
    load_posterior,
    save_bundle,
    save_posterior,
    simulate,
    stored_diagnosis,
    summarize_cluster_ranking,
)
from bayes_ecc.cli import main, make_parser
from bayes_ecc.evaluation import EvaluationSettings, evaluate
from bayes_ecc.report import render_report, write_report
from bayes_ecc.report.bundles import compare_with_bundle
from bayes_ecc.report.held_out import evaluate_beside, evaluate_command
from bayes_ecc.report.markup import Markup, escaped, join, tag, visible
from bayes_ecc.report.methods import read_evaluation
from bayes_ecc.report.reading import read_fit
from bayes_ecc.report.rerun import fit_command
from bayes_ecc.report.tables import Cell, Column, strip, table
from bayes_ecc.splits import draw_split

# -------------------------------------------------------------------- reading what was written


class Page(html.parser.HTMLParser):
    """A page taken apart: elements with their attributes, and tables by the name of their box."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._row: list[str] | None = None
        self._open: list[str] = []
        self._name = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.elements.append((tag, told))
        if told.get("role") == "region" and told.get("aria-label"):
            self._name = str(told["aria-label"])
        elif tag == "table":
            self.tables[self._name] = []
        elif tag == "tr":
            self.tables[self._name].append([])
        elif tag in ("td", "th"):
            self.tables[self._name][-1].append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if {"td", "th"} & set(self._open):
            self.tables[self._name][-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def first_number(cell: str) -> float:
    return float(cell.replace(",", "").rstrip("%").split()[0])


# -------------------------------------------------------------------- fits to report on


@pytest.fixture(scope="module")
def data() -> Simulation:
    return simulate(n_queries=150, n_models=5, n_clusters=3, rng=0)


@pytest.fixture(scope="module")
def em(data: Simulation) -> ECC:
    return ECC(3, embedding_weight=1.0, ridge=0.1, rng=7).fit(data.comparisons, data.embeddings)


def sampled(data: Simulation, **changed: Any) -> BayesianECC:
    settings: dict[str, Any] = {
        "concentration": 6.0,
        "probe_power": 3.0,
        "chains": 2,
        "tune": 60,
        "draws": 60,
        "cores": 1,
        "rng": 0,
    }
    estimator = BayesianECC(3, **{**settings, **changed})
    with warnings.catch_warnings():  # so few draws fail checks, which is what is reported here
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(data.comparisons, data.embeddings)


@pytest.fixture(scope="module")
def bayes(data: Simulation) -> BayesianECC:
    return sampled(data)


@pytest.fixture(scope="module")
def evaluation(data: Simulation) -> dict[str, Any]:
    bundle = data.bundle()
    settings = EvaluationSettings(n_clusters=3, embedding_weight=1.0)
    splits = [draw_split(bundle, seed=seed) for seed in (0, 1)]
    return evaluate(
        bundle, splits, ["global", "ecc"], settings, protocol={"seeds": [0, 1], "frozen": None}
    )


# -------------------------------------------------------------------- markup


@given(st.text())
def test_text_comes_back_as_text_and_makes_no_element(text: str) -> None:
    page = Page(tag("p", text, title=text))
    assert "".join(page.words) == visible(text)
    assert page.elements == [("p", {"title": visible(text)})]


def test_what_cannot_be_seen_is_written_out() -> None:
    shown = visible("a\u202eb\x00c\u200bd\ud800e\U000e0041f\ufefeg\uffffh\u2066i\x9fj\rk\r\nl")
    assert shown == (
        "a⟨U+202E⟩b⟨U+0000⟩c⟨U+200B⟩d⟨U+D800⟩e⟨U+E0041⟩f\ufefeg⟨U+FFFF⟩h⟨U+2066⟩i⟨U+009F⟩j\nk\nl"
    )
    kept = "Ωé 日本語 עברית \t\n👩\u200d🔬"
    assert visible(kept) == kept
    shown.encode("utf-8")


def test_markup_is_made_by_functions_alone() -> None:
    assert escaped(escaped("<")) == "&lt;"
    assert tag("p", title=tag("b", "x")) == '<p title="&lt;b&gt;x&lt;/b&gt;"></p>'
    assert join(["a", [None, ("<", 1)]], tag("br")) == "a&lt;1<br>"
    assert isinstance(join("a") + "", str)
    assert not isinstance("<i>" + escaped("x"), Markup)  # so it is escaped when it is used


@pytest.mark.parametrize("name", ["onclick", "OnLoad", "style", "a b", 'x"', "onmouse_over"])
def test_attributes_that_could_run_or_style_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        tag("p", **{name: "x"})


def test_cells_tell_what_they_are_sorted_by() -> None:
    rows: list[list[Cell | str]] = [[Cell("a", "k"), Cell("-", float("nan")), "3"]]
    made = table("", [Column("x"), Column("y", True), Column("z", True)], rows, name="n")
    assert '<th scope="row" data-sort="k">a</th>' in made
    assert '<td class="number" data-sort="">-</td><td class="number">3</td>' in made


def test_strip_places_the_interval_on_its_scale() -> None:
    picture = str(strip(2, 1, 5, start=1, stop=5))
    places = [float(value) for value in re.findall(r'(?:x1|x2|cx)="([\d.]+)"', picture)]
    left, right, low, high, dot = places
    assert (low, high) == (left, right)
    assert dot == pytest.approx(left + (right - left) / 4, abs=0.1)
    assert strip(float("nan"), 1, 2, start=1, stop=5) is None


# -------------------------------------------------------------------- what is read off a fit


def test_reading_of_em_is_its_fit(em: ECC) -> None:
    reading = read_fit(em.posterior_)
    np.testing.assert_allclose(reading.responsibilities, em.responsibilities_, atol=1e-5)
    np.testing.assert_allclose(reading.sizes, em.responsibilities_.sum("query"), atol=1e-2)
    assert (reading.held == em.responsibilities_.values.argmax(axis=1)).all()
    ranking = cluster_ranking(em.posterior_)
    np.testing.assert_allclose(reading.ranking["win_probability"], ranking["win_probability"])


def test_overall_ranking_weighs_clusters_by_their_queries(em: ECC) -> None:
    theta = em.strengths_.values
    share = em.responsibilities_.values.mean(axis=0)
    expected = np.zeros(theta.shape[1])
    for m in range(theta.shape[1]):
        for k in range(len(theta)):
            others = np.delete(theta[k], m)
            expected[m] += share[k] * np.mean(1 / (1 + np.exp(others - theta[k, m])))
    overall = read_fit(em.posterior_).overall
    found = overall["win_probability"].reindex(em.posterior_["posterior"]["llm"].values.tolist())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert overall["win_probability"].is_monotonic_decreasing
    assert overall["rank"].tolist() == [1, 2, 3, 4, 5]


def test_overall_ranking_of_draws_is_counted_draw_by_draw(bayes: BayesianECC) -> None:
    posterior = with_weights(bayes.posterior_, [0.75, 0.25])
    reading = read_fit(posterior)
    theta = posterior["posterior"]["strengths"].values
    n_models = theta.shape[-1]
    win = np.zeros((*theta.shape[:2], n_models))
    for m in range(n_models):
        chances = 1 / (1 + np.exp(np.delete(theta, m, axis=-1) - theta[..., [m]]))
        share = share_by_chain(posterior)
        win[..., m] = np.einsum("csk,ck->cs", chances.mean(axis=-1), share)
    best = win.argmax(axis=-1)
    first = [0.75 * (best[0] == m).mean() + 0.25 * (best[1] == m).mean() for m in range(n_models)]
    order = posterior["posterior"]["llm"].values.tolist()
    np.testing.assert_allclose(reading.overall["p_best"].reindex(order), first, atol=1e-6)
    mean = 0.75 * win[0].mean(axis=0) + 0.25 * win[1].mean(axis=0)
    np.testing.assert_allclose(reading.overall["win_probability"].reindex(order), mean, atol=1e-4)


def with_weights(posterior: xr.DataTree, weights: list[float]) -> xr.DataTree:
    changed = posterior.copy()
    constant = changed["constant_data"].to_dataset(inherit=False)
    changed["constant_data"] = constant.assign(chain_weights=("chain", weights))
    return changed


def share_by_chain(posterior: xr.DataTree) -> np.ndarray:
    """Mean responsibilities (chain, cluster), over the draws that the reading takes."""
    matched = bool(posterior.attrs.get("clusters_matched", 1))
    shares = []
    for chain in range(2):
        one = with_weights(posterior, [1 - chain, chain])
        if not matched:
            one.attrs["clusters_matched"] = 1
        shares.append(read_fit(one).responsibilities.mean(axis=0))
    if matched:
        weights = posterior["constant_data"]["chain_weights"].values
        shares = [weights @ np.stack(shares)] * 2
    return np.stack(shares)


@pytest.mark.parametrize("heavy", [0, 1])
def test_unmatched_clusters_are_those_of_the_heaviest_chain(bayes: BayesianECC, heavy: int) -> None:
    posterior = with_weights(bayes.posterior_, [0.4, 0.6] if heavy else [0.6, 0.4])
    posterior.attrs["clusters_matched"] = 0
    before = posterior["constant_data"]["chain_weights"].values.copy()
    reading = read_fit(posterior)
    assert (reading.chain, reading.chain_weight) == (heavy, 0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the failed checks
        alone = summarize_cluster_ranking(posterior).sel(chain=heavy)
    np.testing.assert_allclose(reading.ranking["p_best"], alone["p_best"])
    assert (posterior["constant_data"]["chain_weights"].values == before).all()
    assert f"those of chain {heavy}" in Page(render_report(posterior, figures=False)).text


def test_typical_queries_belong_to_their_cluster(em: ECC) -> None:
    reading = read_fit(em.posterior_)
    for k, places in reading.typical(4).items():
        assert (reading.held[places] == k).all()
    assert reading.typical(0) == {}


# -------------------------------------------------------------------- what a report says


def test_tables_show_the_posterior(bayes: BayesianECC, data: Simulation) -> None:
    page = Page(render_report(bayes, bundles=data.bundle(), figures=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reading = read_fit(bayes.posterior_)
    names = reading.comparisons.models.tolist()
    for k in reading.by_size():
        rows = page.tables[f"ranking in cluster {k}"][1:]
        one = reading.ranking.isel(cluster=k)
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, win, rank, _, p_best, may_be_best in rows:
            m = names.index(name)
            low, high = (one[f"rank_{end}"].values[m] for end in ("lower", "upper"))
            assert first_number(win) == pytest.approx(one["win_probability"].values[m], abs=0.006)
            assert first_number(rank) == pytest.approx(one["rank"].values[m], abs=0.06)
            assert f"({low} to {high})" in rank or (low == high and f"({low})" in rank)
            assert first_number(p_best) == pytest.approx(one["p_best"].values[m], abs=0.006)
            assert (may_be_best == "yes") == one["in_best_set"].values[m]
    overview = {row[0]: row for row in page.tables["clusters"][1:]}
    assert set(overview) == {str(k) for k in reading.by_size()}
    for k in reading.by_size():
        assert first_number(overview[str(k)][1]) == pytest.approx(reading.sizes[k], abs=0.6)
    shares = [re.search(r"\(([\d.]+)%\)", row[1]) for row in overview.values()]
    assert sum(float(found.group(1)) for found in shares if found) == pytest.approx(100, abs=0.5)


def test_models_table_counts_comparisons(em: ECC, data: Simulation) -> None:
    page = Page(render_report(em, figures=False))
    comparisons = data.comparisons
    for name, count, won, *_ in page.tables["LLMs"][1:]:
        m = comparisons.models.get_loc(name)
        taken = (comparisons.first == m) | (comparisons.second == m)
        share = np.where(comparisons.second == m, comparisons.outcome, 1 - comparisons.outcome)
        assert first_number(count) == taken.sum()
        assert first_number(won) == pytest.approx(share[taken].mean(), abs=0.006)


def test_without_a_bundle_it_says_what_is_missing(em: ECC) -> None:
    text = Page(render_report(em, figures=False)).text
    assert "No data set is at hand" in text
    assert "--bundle FOLDER" in text
    assert "Nothing was held out" in text
    assert "point estimate" in text


def test_stored_diagnosis_is_told_in_words(bayes: BayesianECC) -> None:
    page = Page(render_report(bayes, figures=False))
    diagnosis = stored_diagnosis(bayes.posterior_)
    told = {row[0]: row[1] for row in page.tables["checks"][1:]}
    assert told == diagnosis.table["verdict"].to_dict()
    for name in diagnosis.failed:
        assert " ".join(diagnosis.table.loc[name, "meaning"].split()) in page.text
    assert f"{len(diagnosis.failed)} checks failed" in page.text
    quantities = {row[0]: row for row in page.tables["convergence"][1:]}
    density = bayes.posterior_["invariants"]["log_density"]
    assert first_number(quantities["log_density"][1]) == pytest.approx(
        float(density.mean()), rel=1e-3
    )


def test_fit_without_diagnosis_says_how_to_add_one(data: Simulation) -> None:
    fit = sampled(data, checks=False, tune=10, draws=10)
    text = Page(render_report(fit, figures=False)).text
    assert "No diagnosis is stored with this fit" in text
    assert "not checked" in text


def test_one_cluster_and_no_embeddings(data: Simulation) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = BayesianECC(1, chains=2, tune=30, draws=30, cores=1, probe_power=1.0, rng=0).fit(
            data.comparisons
        )
    page = Page(render_report(fit))
    assert "kinds of query are told by comparisons alone" in page.text
    assert len(page.tables["clusters"]) == 2
    assert [name for name, _ in page.elements].count("img") == 0


def test_figures_are_inside_and_told_in_words(bayes: BayesianECC) -> None:
    from matplotlib import pyplot as plt

    open_before = plt.get_fignums()
    page = Page(render_report(bayes))
    pictures = [told for name, told in page.elements if name == "img"]
    assert len(pictures) == 3
    for told in pictures:
        source = str(told["src"])
        assert source.startswith("data:image/png;base64,")
        assert base64.b64decode(source.split(",")[1]).startswith(b"\x89PNG")
        assert len(str(told["alt"])) > 40
        assert int(str(told["width"])) > 100
    assert plt.get_fignums() == open_before


def test_given_style_of_figures_is_neither_used_nor_changed(em: ECC) -> None:
    import matplotlib as mpl

    plain = render_report(em, title="t")
    with mpl.rc_context({"font.size": 30, "figure.facecolor": "black"}):
        styled = render_report(em, title="t")
        assert mpl.rcParams["font.size"] == 30
    pictures = [re.findall(r'src="data:[^"]*"', text) for text in (plain, styled)]
    assert pictures[0] == pictures[1]


def test_nothing_given_is_changed(bayes: BayesianECC, data: Simulation) -> None:
    posterior, bundle = bayes.posterior_, data.bundle()
    before, attrs = posterior.copy(deep=True), dict(posterior.attrs)
    queries = bundle.queries.copy()
    render_report(posterior, bundles=bundle)
    xr.testing.assert_identical(posterior, before)
    assert posterior.attrs == attrs
    pd.testing.assert_frame_equal(bundle.queries, queries)


# -------------------------------------------------------------------- bundles


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
    scored: tuple[Bundle, Comparisons, np.ndarray], scored_fit: ECC
) -> None:
    bundle, _, scores = scored
    fine = Page(render_report(scored_fit, bundles=bundle, figures=False)).text
    assert "comparisons of the fit agree with it" in fine
    assert "text of 1" in fine
    changed = scores.copy()
    changed[5] *= -1
    text = Page(render_report(scored_fit, bundles=bundle_of(changed), figures=False)).text
    assert "may not be the data that were fitted" in text
    with pytest.raises(InputError, match="none of the fit's 40 queries"):
        render_report(scored_fit, bundles=bundle_of(scores, first=100), figures=False)


def test_of_two_bundles_the_first_tells_the_text(
    scored: tuple[Bundle, Comparisons, np.ndarray], scored_fit: ECC
) -> None:
    bundle, _, scores = scored
    other = bundle_of(scores, [f"other {i}" for i in range(40)])
    text = Page(render_report(scored_fit, bundles=[bundle, other], figures=False)).text
    assert "text of 1" in text
    assert "other 1" not in text


# -------------------------------------------------------------------- methods


def test_methods_are_those_of_the_evaluation(em: ECC, evaluation: dict[str, Any]) -> None:
    rows = Page(render_report(em, evaluation=evaluation, figures=False)).tables["methods"][1:]
    assert [row[0].split("one ranking")[0].split("EM:")[0] for row in rows] == ["global", "ecc"]
    for row, figures in zip(rows, evaluation["methods"].values(), strict=True):
        both = figures["embedding+probe"]
        assert first_number(row[1]) == pytest.approx(figures["embedding"]["gain"]["mean"], abs=0.06)
        assert first_number(row[3]) == pytest.approx(both["gain"]["mean"], abs=0.06)
        assert first_number(row[4]) == pytest.approx(both["gain_interval"][0], abs=0.06)
        assert first_number(row[7]) == pytest.approx(both["ece"]["mean"], abs=0.0006)


def test_evaluation_is_read_from_its_file(
    em: ECC, evaluation: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(evaluation), encoding="utf-8")
    texts = [
        render_report(em, evaluation=given, figures=False, title="t")
        for given in (path, str(path), evaluation)
    ]
    bodies = {re.sub(r"on \d{4}-\d\d-\d\d \d\d:\d\d UTC", "", text) for text in texts}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("methods"), "holds no method"),
        (lambda found: found.update(methods=[]), "holds no method"),
        (lambda found: found.pop("protocol"), "lacks protocol/counts"),
        (lambda found: found["global"].clear(), "lacks global/loss"),
        (
            lambda found: found["methods"]["ecc"]["probe"]["gain"].update(mean="<b>"),
            "probe/gain/mean",
        ),
        (
            lambda found: found["methods"]["ecc"]["embedding+probe"].update(gain_interval=[1]),
            "embedding\\+probe/gain_interval",
        ),
        (lambda found: found["methods"].update(x=None), "method 'x'"),
    ],
)
def test_what_is_no_evaluation_is_refused(
    evaluation: dict[str, Any], change: Any, message: str
) -> None:
    found = json.loads(json.dumps(evaluation))
    change(found)
    with pytest.raises(InputError, match=message):
        read_evaluation(found)


@pytest.mark.parametrize("content", ["", "[]", "3", '{"methods": 1}', "\x00", '{"a": 1, "a": 2}'])
def test_damaged_files_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_evaluation(path)


def test_missing_figures_leave_gaps(em: ECC, evaluation: dict[str, Any]) -> None:
    found = json.loads(json.dumps(evaluation))
    both = found["methods"]["ecc"]["embedding+probe"]
    both["gain"]["mean"] = both["ece"]["mean"] = None
    both["gain_interval"] = [None, 10**400]
    found["protocol"]["counts"] = ["?"]
    rows = Page(render_report(em, evaluation=found, figures=False)).tables["methods"][1:]
    assert rows[1][3:5] == ["-", "-"]


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


# -------------------------------------------------------------------- running it again


def test_command_of_the_evaluation_asks_for_the_same(evaluation: dict[str, Any]) -> None:
    command = evaluate_command(evaluation, "data/some folder")
    args = make_parser().parse_args(split_command(command)[1:])
    protocol = evaluation["protocol"]
    assert str(args.bundle) == "data/some folder"
    assert args.methods == list(evaluation["methods"])
    assert (args.seed, args.seeds) == (0, 2)
    assert args.clusters == protocol["n_clusters"]
    for name in ("embedding_weight", "temperature", "ridge", "concentration", "probe_power"):
        assert getattr(args, name) == protocol[name]
    assert (args.chains, args.draws) == (protocol["chains"], protocol["draws"])


def split_command(command: str) -> list[str]:
    import shlex

    return shlex.split(command)


def test_command_of_the_fit_has_its_settings(em: ECC, bayes: BayesianECC) -> None:
    command, exact = fit_command(em.posterior_, "a fit.nc", "folder")
    args = make_parser().parse_args(split_command(command)[1:])
    assert not exact
    assert (args.method, args.clusters, args.seed) == ("ecc", 3, 7)
    assert (args.embedding_weight, args.temperature, args.ridge) == (1.0, 0.1, 0.1)
    command, _ = fit_command(bayes.posterior_, "fit.nc", None)
    args = make_parser().parse_args(split_command(command)[1:])
    assert (args.method, args.concentration, args.probe_power) == ("bayes", 6.0, 3.0)
    assert (args.chains, args.draws) == (2, 60)


def test_command_that_was_kept_is_shown_as_it_was(em: ECC) -> None:
    posterior = em.posterior_.copy()
    posterior.attrs["command"] = "bayes-ecc fit 'my data' --method ecc --out x.nc --seed 5"
    assert fit_command(posterior, "x.nc", None) == (posterior.attrs["command"], True)
    text = Page(render_report(posterior, figures=False)).text
    assert posterior.attrs["command"] in text


def test_provenance_is_told(em: ECC, tmp_path: Path) -> None:
    path = save_posterior(em.posterior_, tmp_path / "fit.nc")
    attrs = load_posterior(path).attrs
    text = Page(render_report(path, figures=False)).text
    assert attrs["data_fingerprint"] in text
    for name, version in json.loads(attrs["versions"]).items():
        assert f"{name} {version}" in text
    assert "@software{bayes_ecc" in text
    # of a fit that was not saved, the fingerprint is the same
    assert attrs["data_fingerprint"] in Page(render_report(em, figures=False)).text


def test_damaged_attributes_are_passed_over(em: ECC) -> None:
    posterior = em.posterior_.copy()
    posterior.attrs.update(settings="{", versions="[]")
    assert "Fitted with" in Page(render_report(posterior, figures=False)).text


# -------------------------------------------------------------------- nothing executes


HOSTILE = [
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script></style><svg onload=window.hit=1>",
    "' onmouseover='window.hit=1",
    "$\\frac{1}{0}$ a_b^c",
    "safe\u202etxt.exe",
    "{{7*7}}<!--",
]


@pytest.fixture(scope="module")
def hostile() -> str:
    rng = np.random.default_rng(0)
    ids = [f"q<{i}>&amp;" for i in range(70)]
    texts = [HOSTILE[i % 7] + str(i) for i in range(70)]
    texts[3], texts[4] = "long " * 2000, "nul\x00 bell\x07 \u2067 \x1b[31m"
    labels = np.where(np.arange(70) % 2, "<u>a</u>", '"><b>')
    embeddings = rng.normal(size=(70, 4))
    scores = pd.DataFrame(embeddings @ rng.normal(size=(4, 7)), columns=HOSTILE)
    scores.insert(0, "query_id", ids)
    queries = pd.DataFrame({"query_id": ids, "text": texts, "<i>label</i>": labels})
    bundle = Bundle("<b>evil</b>", queries, scores=scores, embeddings=embeddings)
    comparisons = bundle.draw_comparisons(rng=0)
    fit = ECC(3, embedding_weight=1.0, rng=0, max_iter=500).fit(
        comparisons, bundle.embeddings_for(comparisons.queries)
    )
    fit.posterior_.attrs["command"] = "</pre><script>window.hit=1</script>"
    numbers = {"gain": {"mean": 1.0}, "ece": {"mean": 0.1}, "gain_interval": [0.0, 2.0]}
    evaluation = {
        "methods": {name: dict.fromkeys(SIGNALS, numbers) for name in HOSTILE},
        "protocol": {
            "bundle": HOSTILE[0],
            "counts": [{"seed": HOSTILE[0], "probes": HOSTILE[1]}],
            "versions": {HOSTILE[0]: HOSTILE[1]},
            "seeds": [HOSTILE[2]],
            "ridge": HOSTILE[3],
        },
        "global": {"loss": 0.5},
    }
    return render_report(
        fit,
        bundles=bundle,
        evaluation=evaluation,
        title=HOSTILE[0],
        typical=70,
        command=HOSTILE[1],
    )


SIGNALS = ("embedding", "probe", "embedding+probe")
ELEMENTS = """
html head meta link title style body a div header h1 h2 h3 h4 p dl dt dd nav ul ol li main section
table thead tbody tr th td details summary span bdi code pre strong em svg line rect circle figure
figcaption img footer script
"""


def test_hostile_data_make_no_elements(hostile: str) -> None:
    page = Page(hostile)
    names = {name for name, _ in page.elements}
    assert names <= set(ELEMENTS.split())
    assert [name for name, _ in page.elements].count("script") == 1
    for _, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
        assert str(attributes.get("href") or "#")[0] == "#" or attributes["href"] == "data:,"
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/png;base64,")
    for name in HOSTILE:
        assert visible(name) in page.text
    assert "⟨U+202E⟩" in page.text
    assert "\u202e" not in hostile
    assert "\x00" not in hostile


def test_hostile_names_stay_whole_in_tables(hostile: str) -> None:
    page = Page(hostile)
    assert {row[0] for row in page.tables["LLMs"][1:]} == set(map(visible, HOSTILE))


def test_long_texts_are_cut_and_said_to_be(hostile: str) -> None:
    assert "more characters" in Page(hostile).text
    assert hostile.count("long long") < 2000


def test_policy_allows_the_own_script_and_style_alone(hostile: str) -> None:
    policy = next(
        str(told["content"])
        for name, told in Page(hostile).elements
        if name == "meta" and told.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in policy
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        found = re.search(f"<{element}>(.*?)</{element}>", hostile, re.DOTALL)
        assert found is not None
        digest = hashlib.sha256(found.group(1).encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_own_script_and_style_load_nothing() -> None:
    folder = Path(__file__).resolve().parents[1] / "bayes_ecc" / "report"
    text = "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    assert not re.search(r"https?:|//\w|url\(|@import|fetch\(|innerHTML|insertAdjacent|eval", text)


# -------------------------------------------------------------------- files and the command line


def test_file_is_written_whole_or_not_at_all(em: ECC, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert write_report(em, path, figures=False) == path
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_bad_arguments_are_refused(em: ECC, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        write_report(em, tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        write_report(em, tmp_path / "no" / "report.html")
    with pytest.raises(InputError, match="path=3"):
        write_report(em, 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="fit=int"):
        render_report(3)
    with pytest.raises(InputError, match="typical"):
        render_report(em, typical=-1)
    with pytest.raises(InputError, match="does not exist"):
        render_report(tmp_path / "no.nc")
    bare = em.posterior_.copy()
    del bare["observed_data"]
    with pytest.raises(InputError, match="no training data"):
        render_report(bare)


def test_command_line(
    em: ECC, data: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = save_posterior(em.posterior_, tmp_path / "fit.nc")
    bundle = save_bundle(data.bundle(), tmp_path / "data")
    out = tmp_path / "report.html"
    command = ["report", str(fit), "--out", str(out), "--bundle", str(bundle), "--no-figures"]
    evaluated = [*command, "--evaluate", "--methods", "global,labels:capability", "--seeds", "2"]
    assert main(evaluated) == 0
    assert "any browser opens it" in " ".join(capsys.readouterr().out.split())
    page = Page(out.read_text(encoding="utf-8"))
    assert [row[0][:6] for row in page.tables["methods"][1:]] == ["global", "labels"]
    assert "--seed 0 --seeds 2" in page.text
    assert "Report on data" in page.text

    assert main(["report", str(fit), "--out", str(out), "--evaluate"]) == 2
    assert "--evaluate needs --bundle" in capsys.readouterr().err
    assert main(["report", str(fit), "--out", str(tmp_path)]) == 2
    assert main([*command, "--seeds", "2"]) == 0
    assert "--seeds: without effect" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "no.nc"), "--out", str(out)]) == 2
    assert main([*command, "--evaluation", str(fit)]) == 2


def test_real_data(shared_data: Path, shared_protocol: Path) -> None:
    from bayes_ecc import load_bundle
    from bayes_ecc.splits import frozen_split

    bundle = load_bundle(shared_data / "routerdc")
    split = frozen_split(bundle, shared_protocol / "routerdc" / "seed_0.parquet")
    fit = ECC(12, embedding_weight=1.0, ridge=0.1, rng=0).fit(split.train, split.train_embeddings)
    page = Page(render_report(fit, bundles=bundle, figures=False))
    assert "comparisons of the fit agree with it" in page.text
    assert len(page.tables["clusters"]) == 13
    known = bundle.queries["text"].str.split().str.join(" ")
    shown = [text for text in known if text and len(text) < 100 and text in page.text]
    assert len(shown) > 10
