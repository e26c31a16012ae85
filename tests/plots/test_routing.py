from __future__ import annotations

import copy
from typing import Any

import matplotlib.pyplot as plt
import pytest

from bayes_ecc import InputError
from bayes_ecc.evaluation import EvaluationSettings
from bayes_ecc.plots import plot_cost_quality, plot_quality_calibration, plot_risk_coverage
from bayes_ecc.routing_study import routing_example, study_routing


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    bundle, task = routing_example()
    settings = EvaluationSettings(n_clusters=3, embedding_weight=1.0)
    return study_routing(bundle, [task.split], ["ecc"], settings, n_resamples=50)


@pytest.mark.parametrize("risk", ["regret", "quality", "over_global"])
def test_risk_is_drawn_along_coverage(study, risk) -> None:
    before = copy.deepcopy(study)
    ax = plot_risk_coverage(study, ["ecc", "ecc+probe"], risk=risk)
    assert study == before
    for line, name in zip(ax.lines, ("ecc", "ecc+probe"), strict=True):
        points = study["abstention"][name]["quality"]
        assert list(line.get_xdata()) == [100 * point["coverage"] for point in points]
        assert list(line.get_ydata()) == [point[risk] for point in points]
    last = ax.lines[0].get_ydata()[-1]
    if risk != "over_global":  # at full coverage nothing is abstained from
        assert last == pytest.approx(study["policies"]["ecc"][risk])


def test_methods_alone_are_drawn_by_default(study) -> None:
    ax = plot_risk_coverage(study)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ecc"]


def test_cost_and_quality_of_lines_and_marks(study) -> None:
    ax = plot_cost_quality(study)
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    found = {
        text: [list(values) for values in line.get_data()]
        for text, line in zip(texts, ax.lines, strict=True)
    }
    along = sorted(study["cost_quality"]["ecc"], key=lambda point: point["price"])
    assert found["ecc, along prices"] == [
        [point["cost"] for point in along],
        [point["quality"] for point in along],
    ]
    for name in ("global", "oracle", "probe winner", "random"):
        router = study["policies"][name]
        assert found[name] == [[router["cost"]], [router["quality"]]]
    assert not any(name.startswith("ecc+") for name in found)
    bars = [path for lines in ax.collections for path in lines.get_segments()]
    low, high = study["policies"]["oracle"]["interval"]["quality"]
    assert any(bar[0][1] == low and bar[1][1] == high for bar in bars)


def test_quality_as_predicted(study) -> None:
    ax = plot_quality_calibration(study)
    bins = study["calibration"]["quality"]["ecc"]["bins"]
    assert list(ax.lines[1].get_xdata()) == [each["predicted"] for each in bins]
    assert list(ax.lines[1].get_ydata()) == [each["realised"] for each in bins]
    assert "error 0." in ax.get_legend().get_texts()[0].get_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: plot_risk_coverage(s, ["other"]), "no abstention by 'quality' of 'other'"),
        (lambda s: plot_risk_coverage(s, by="mood"), "no abstention by 'mood' to draw"),
        (lambda s: plot_risk_coverage(s, risk="loss"), "risk='loss'"),
        (lambda s: plot_risk_coverage(s, []), "to draw"),
        (lambda _: plot_risk_coverage({}), "no 'abstention'; give what study_routing"),
        (lambda s: plot_cost_quality(s, ["other"]), "no method of 'other'"),
        (lambda s: plot_cost_quality(s, policies=["other"]), "no router of 'other'"),
        (lambda _: plot_cost_quality(None), "no 'policies'"),
        (lambda _: plot_quality_calibration({"calibration": {}}), "no 'quality'"),
    ],
)
def test_wrong_input_is_refused(study, call, message) -> None:
    with pytest.raises(InputError, match=message):
        call(study)
    assert plt.get_fignums() == []


def test_as_many_routers_as_there_may_be_look_different():
    router = {"cost": 1.0, "calls": 1.0, "quality": 0.5}
    study = {
        "policies": {f"router {i}": router for i in range(16)},
        "cost_quality": {"ecc": []},
        "probing": {},
    }
    ax = plot_cost_quality(study)
    looks = {(line.get_marker(), str(line.get_markerfacecolor())) for line in ax.lines}
    assert len(looks) == len(ax.lines) == 16
    plt.close(ax.figure)
