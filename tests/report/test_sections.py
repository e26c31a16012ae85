"""The sections of a report say what was computed, and what is missing."""

from __future__ import annotations

import base64
import json
import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_ecc import (
    ECC,
    BayesianECC,
    DataWarning,
    InputError,
    Simulation,
    stored_diagnosis,
)
from bayes_ecc.report import render_report
from bayes_ecc.report.methods import read_evaluation
from bayes_ecc.report.reading import read_fit

type PageReader = Callable[[str], Any]


def first_number(cell: str) -> float:
    return float(cell.replace(",", "").rstrip("%").split()[0])


def test_tables_show_the_posterior(
    bayes: BayesianECC, data: Simulation, read_page: PageReader
) -> None:
    page = read_page(render_report(bayes, bundles=data.bundle(), figures=False))
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


def test_models_table_counts_comparisons(em: ECC, data: Simulation, read_page: PageReader) -> None:
    page = read_page(render_report(em, figures=False))
    comparisons = data.comparisons
    for name, count, won, *_ in page.tables["LLMs"][1:]:
        m = comparisons.models.get_loc(name)
        taken = (comparisons.first == m) | (comparisons.second == m)
        share = np.where(comparisons.second == m, comparisons.outcome, 1 - comparisons.outcome)
        assert first_number(count) == taken.sum()
        assert first_number(won) == pytest.approx(share[taken].mean(), abs=0.006)


def test_without_a_bundle_it_says_what_is_missing(em: ECC, read_page: PageReader) -> None:
    text = read_page(render_report(em, figures=False)).text
    assert "No data set is at hand" in text
    assert "--bundle FOLDER" in text
    assert "Nothing was held out" in text
    assert "point estimate" in text


def test_stored_diagnosis_is_told_in_words(bayes: BayesianECC, read_page: PageReader) -> None:
    page = read_page(render_report(bayes, figures=False))
    diagnosis = stored_diagnosis(bayes.posterior_)
    told = {row[0]: row[1] for row in page.tables["checks"][1:]}
    assert told == diagnosis.table["verdict"].to_dict()
    for name in diagnosis.failed:
        assert " ".join(diagnosis.table.loc[name, "meaning"].split()) in page.text
    assert f"{len(diagnosis.failed)} checks failed" in page.text
    quantities = {row[0]: row for row in page.tables["convergence"][1:]}
    density = bayes.posterior_["invariants"]["log_density"]
    _, mean, sd, rhat, bulk, tail = map(first_number, ["0", *quantities["log_density"][1:]])
    assert mean == pytest.approx(float(density.mean()), rel=1e-3)
    assert sd == pytest.approx(float(density.std(ddof=1)), rel=1e-2)
    assert rhat == pytest.approx(float(az.rhat(density)), abs=1e-3)
    assert bulk == pytest.approx(float(az.ess(density, method="bulk")), abs=0.51)
    assert tail == pytest.approx(float(az.ess(density, method="tail")), abs=0.51)


def test_fit_without_diagnosis_says_how_to_add_one(
    sample: Callable[..., BayesianECC], read_page: PageReader
) -> None:
    fit = sample(checks=False, tune=10, draws=10)
    text = read_page(render_report(fit, figures=False)).text
    assert "No diagnosis is stored with this fit" in text
    assert "not checked" in text


def test_approximations_are_said_to_be(bayes: BayesianECC, read_page: PageReader) -> None:
    posterior = bayes.posterior_.copy()
    posterior.attrs.update(sampler="advi", approximate=1)  # as a fit by ADVI has it
    text = read_page(render_report(posterior, figures=False)).text
    assert "2 chains of 60 draws, an approximation by advi" in text
    assert "an approximation; " in text
    assert "approximation" not in read_page(render_report(bayes, figures=False)).text.split(".")[0]


def test_one_cluster_and_no_embeddings(data: Simulation, read_page: PageReader) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = BayesianECC(1, chains=2, tune=30, draws=30, cores=1, probe_power=1.0, rng=0).fit(
            data.comparisons
        )
    page = read_page(render_report(fit))
    assert "kinds of query are told by comparisons alone" in page.text
    assert "one ranking for all queries" in page.text
    assert "several comparisons a query, or embeddings" in page.text
    assert "clusters" not in page.tables
    assert [row[0] for row in page.tables["LLMs"][1:]] == read_fit(
        fit.posterior_
    ).overall.index.tolist()
    assert [name for name, _ in page.elements].count("img") == 1


def test_figures_are_inside_and_told_in_words(bayes: BayesianECC, read_page: PageReader) -> None:
    from matplotlib import pyplot as plt

    open_before = plt.get_fignums()
    page = read_page(render_report(bayes))
    pictures = [told for name, told in page.elements if name == "img"]
    assert len(pictures) == 4
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


def test_methods_are_those_of_the_evaluation(
    em: ECC, evaluation: dict[str, Any], read_page: PageReader
) -> None:
    rows = read_page(render_report(em, evaluation=evaluation, figures=False)).tables["methods"][1:]
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
    assert all(f"--evaluation {path}" in text for text in texts[:2])
    made = r"on \d{4}-\d\d-\d\d \d\d:\d\d UTC"
    bodies = {re.sub(made, "", text).replace(str(path), "result.json") for text in texts}
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


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"bundle": "my votes"}, "It is of the data set 'my votes', not of "),
        ({"counts": [{"models": 6}]}, "It is of 6 LLMs, the fit of 5."),
        (
            {"counts": [{"train_queries": 140, "test_queries": 11}]},
            "It is of 151 queries, and there are 150.",
        ),
    ],
)
def test_evaluation_of_other_data_is_told(
    em: ECC,
    data: Simulation,
    evaluation: dict[str, Any],
    change: dict[str, Any],
    doubt: str,
    read_page: PageReader,
) -> None:
    found = json.loads(json.dumps(evaluation))
    text = read_page(render_report(em, bundles=data.bundle(), evaluation=found, figures=False)).text
    assert "other data" not in text
    found["protocol"].update(change)
    with pytest.warns(DataWarning, match=re.escape(doubt)):
        made = render_report(em, bundles=data.bundle(), evaluation=found, figures=False)
    text = read_page(made).text
    assert "of other data?" in text.split("Data set ")[0]
    assert f"This may be an evaluation of other data {doubt}" in text
    name = found["protocol"]["bundle"]
    assert f"bayes-ecc evaluate {shlex.quote(name)} --methods global" in text


def test_first_evaluation_takes_no_probes_where_there_are_none(
    data: Simulation, read_page: PageReader
) -> None:
    place = np.unique(data.comparisons.query, return_index=True)[1]
    one_vote_each = np.isin(np.arange(len(data.comparisons)), place)
    for votes, told in ((data.comparisons.rows(one_vote_each), True), (data.comparisons, False)):
        text = read_page(render_report(ECC(1, rng=0).fit(votes), figures=False)).text
        command = "--methods global,ecc:auto,bayes --probes 0 --json result.json"
        assert (command in text) is told


def test_missing_figures_leave_gaps(
    em: ECC, evaluation: dict[str, Any], read_page: PageReader
) -> None:
    found = json.loads(json.dumps(evaluation))
    both = found["methods"]["ecc"]["embedding+probe"]
    both["gain"]["mean"] = both["ece"]["mean"] = None
    both["gain_interval"] = [None, 10**400]
    found["protocol"]["counts"] = ["?"]
    rows = read_page(render_report(em, evaluation=found, figures=False)).tables["methods"][1:]
    assert rows[1][3:5] == ["-", "-"]
