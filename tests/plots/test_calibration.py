from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import beta

from bayes_ecc import Comparisons, InputError, reliability_bins
from bayes_ecc.plots import plot_reliability


@pytest.fixture
def judged():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=300)
    comparisons = Comparisons.from_arrays(
        np.arange(300),
        np.zeros(300, int),
        np.ones(300, int),
        (rng.uniform(size=300) < p**2).astype(float),
        queries=range(300),
        models=["a", "b"],
    )
    return p, comparisons


def test_diagram_holds_what_was_observed_in_each_bin(judged) -> None:
    p, comparisons = judged
    before = p.copy()
    ax = plot_reliability(p, comparisons, n_bins=5, prob=0.8, kind="eti")
    np.testing.assert_array_equal(p, before)
    diagonal, line = ax.lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    ends = ax.collections[0].get_segments()
    error, counts = 0.0, []
    for b in range(5):
        inside = (p >= b / 5) & (p < (b + 1) / 5)
        wins = comparisons.outcome[inside]
        assert line.get_xdata()[b] == pytest.approx(p[inside].mean())
        assert line.get_ydata()[b] == pytest.approx(wins.mean())
        expected = beta.ppf([0.1, 0.9], wins.sum() + 0.5, len(wins) - wins.sum() + 0.5)
        assert ends[b][:, 1] == pytest.approx(expected, abs=2e-3)
        error += abs(p[inside].mean() - wins.mean()) * inside.mean()
        counts.append(inside.sum())
    assert f"ECE {error:.3f}" in ax.get_legend().get_texts()[0].get_text()
    (inset,) = ax.child_axes
    assert inset.patches[0].get_data().values.tolist() == counts


def test_several_methods_and_ready_tables(judged) -> None:
    p, comparisons = judged
    table = reliability_bins(p, comparisons, n_bins=4)
    before = table.copy()
    ax = plot_reliability({"$ours$": table, "half": np.full(300, 0.5)}, comparisons, n_bins=4)
    assert table.equals(before)
    assert len(ax.collections) == 0  # bars would hide each other
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0].startswith(r"\$ours\$, ECE ")
    assert texts[-1] == "calibrated"
    assert ax.lines[2].get_xdata().tolist() == [0.5]  # empty bins are not drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5] * 300,), "comparisons is missing"),
        (({},), "names nothing to draw"),
        (([0.5] * 3, "judged"), "probability has shape"),
        (([2.0] * 300, "judged"), "probabilities lie between"),
    ],
)
def test_wrong_input_is_refused(judged, arguments, message) -> None:
    given = [judged[1] if each == "judged" else each for each in arguments]
    with pytest.raises(InputError, match=message):
        plot_reliability(*given)
    with pytest.raises(InputError, match="no column 'weight'"):
        plot_reliability(reliability_bins(*judged).drop(columns="weight"))
    assert plt.get_fignums() == []
