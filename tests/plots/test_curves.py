from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from bayes_ecc import InputError
from bayes_ecc.plots import plot_gain_curve, plot_onboarding


@pytest.fixture
def study() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {
            "study": "clusters",
            "method": method,
            "signal": signal,
            "n_clusters": k,
            "seed": seed,
            "gain": rng.normal(20, 3),
            "ece": rng.uniform(0, 0.1),
            "message": f"stopped at {rng.integers(100)}",
            "seconds": rng.uniform(),
        }
        for method in ("ecc", "embedding")
        for signal in ("embedding", "embedding+probe")
        for k in (100, 2, 10)
        for seed in range(4)
    ]
    table = pd.DataFrame(rows)
    return table.assign(gain_low=table["gain"] - 1.5, gain_high=table["gain"] + 2.5)


@pytest.fixture
def both(study) -> pd.DataFrame:
    return study[study["signal"] == "embedding+probe"].reset_index(drop=True)


def edges(band) -> tuple[dict[float, float], dict[float, float]]:
    """Lower and upper edge of a filled band, by place."""
    points = band.get_paths()[0].vertices
    low, high = {}, {}
    for x, y in points:
        low[x] = min(y, low.get(x, np.inf))
        high[x] = max(y, high.get(x, -np.inf))
    return low, high


@pytest.mark.parametrize("y", ["gain", "ece"])
def test_lines_are_means_over_seeds_and_bands_their_sd(both, y) -> None:
    before = both.copy()
    ax = plot_gain_curve(both, "n_clusters", y)
    pd.testing.assert_frame_equal(both, before)
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ecc", "embedding"]
    for line, band, method in zip(ax.lines, ax.collections, ("ecc", "embedding"), strict=True):
        assert list(line.get_xdata()) == [2, 10, 100]
        low, high = edges(band)
        own = both[both["method"] == method]
        for k, mean in zip(*line.get_data(), strict=True):
            values = own.loc[own["n_clusters"] == k, y]
            assert mean == pytest.approx(values.mean())
            assert low[k] == pytest.approx(values.mean() - values.std(ddof=1))
            assert high[k] == pytest.approx(values.mean() + values.std(ddof=1))


def test_other_bands(both) -> None:
    one = both[both["seed"] == 0]
    low, high = edges(plot_gain_curve(one, "n_clusters").collections[0])
    first = one[one["method"] == "ecc"].set_index("n_clusters")
    assert all(low[k] == pytest.approx(first["gain_low"][k]) for k in (2, 10, 100))
    assert all(high[k] == pytest.approx(first["gain_high"][k]) for k in (2, 10, 100))
    low, _ = edges(plot_gain_curve(both, "n_clusters", band="range").collections[0])
    assert low[10] == pytest.approx(
        both.query("method == 'ecc' and n_clusters == 10")["gain"].min()
    )
    assert len(plot_gain_curve(both, "n_clusters", band="none").collections) == 0
    with pytest.raises(InputError, match="needs y='gain'"):
        plot_gain_curve(both, "n_clusters", "ece", band="interval")


def test_rows_that_differ_in_another_setting_are_not_averaged(study) -> None:
    with pytest.raises(InputError, match=r"column 'signal'.*by=\['method', 'signal'\]"):
        plot_gain_curve(study, "n_clusters")
    assert len(plot_gain_curve(study, "n_clusters", by=["method", "signal"]).lines) == 4
    mixed = study.assign(ridge=np.arange(len(study)) % 2)
    with pytest.raises(InputError, match="column 'ridge'"):
        plot_gain_curve(mixed, "n_clusters", by=["method", "signal"])


def test_settings_in_words_stand_side_by_side(study) -> None:
    table = study[study["n_clusters"] == 10]
    ax = plot_gain_curve(table, "signal")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["embedding", "embedding+probe"]
    x, y = ax.lines[0].get_data(orig=False)
    assert np.rint(x).tolist() == [0, 1]
    expected = table[table["method"] == "ecc"].groupby("signal")["gain"].mean()
    assert list(y) == pytest.approx(expected.tolist())
    places = [line.get_xdata()[0] for line in ax.lines]
    assert len(set(places)) == len(places)
    alone = plot_gain_curve(both_of(table), "method")
    assert alone.get_legend() is None
    assert len(alone.lines[0].get_xdata()) == 2


def both_of(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["signal"] == "embedding+probe"]


def test_methods_without_the_setting_are_level_and_refused_fits_counted(both) -> None:
    labels = pd.DataFrame({"method": "labels:task", "gain": [25.0, 27.0], "seed": [0, 1]})
    refused = both[:1].assign(gain=np.nan, n_clusters=1000)
    table = pd.concat([both, labels, refused], ignore_index=True)
    table["n_clusters"] = (
        table["n_clusters"].astype(object).where(table["n_clusters"].notna(), None)
    )
    ax = plot_gain_curve(table, "n_clusters", band="sd")
    level = next(line for line in ax.lines if list(line.get_xdata()) == [0, 1])
    assert list(level.get_ydata()) == [26.0, 26.0]
    assert "1 row without gain left out" in ax.get_title(loc="left")
    assert 1000 not in ax.lines[0].get_xdata()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: plot_gain_curve(t, "size"), "no column 'size'"),
        (lambda t: plot_gain_curve(t, "n_clusters", by="team"), "no column 'team'"),
        (lambda t: plot_gain_curve(t, "n_clusters", "method"), "'method': holds"),
        (lambda t: plot_gain_curve(t[:0], "n_clusters"), "no rows"),
        (lambda t: plot_gain_curve(t.assign(gain=np.nan), "n_clusters"), "are blank"),
        (lambda t: plot_gain_curve(t.to_dict(), "n_clusters"), "must be a pandas DataFrame"),
        (lambda t: plot_gain_curve(t, "n_clusters", band="wide"), "band='wide'"),
        (
            lambda t: plot_gain_curve(
                t.assign(n_clusters=-t["n_clusters"]), "n_clusters", log=True
            ),
            "log=True needs positive",
        ),
        (lambda t: plot_onboarding(t), "no column 'n'"),
    ],
)
def test_wrong_input_is_refused(both, call, message) -> None:
    with pytest.raises(InputError, match=message):
        call(both)
    assert plt.get_fignums() == []


# -------------------------------------------------------------------- onboarding


def test_onboarding_curve_is_sorted_and_the_best_rank_on_top() -> None:
    table = pd.DataFrame(
        {
            "n": [40, 10, 20, 10, 40, 20],
            "rank": [3.0, 5.0, 4.0, 2.0, 2.5, 2.2],
            "low": [2, 1, 2, 1, 2, 1],
            "high": [4, 9, 6, 7, 3, 5],
            "way": ["random"] * 3 + ["chosen"] * 3,
        }
    )
    before = table.copy()
    ax = plot_onboarding(table, by="way", target=3, n_models=12)
    assert table.equals(before)
    assert ax.get_ylim() == (12.5, 0.5)
    first, second, target = ax.lines
    assert [list(v) for v in first.get_data()] == [[10, 20, 40], [5.0, 4.0, 3.0]]
    assert [list(v) for v in second.get_data()] == [[10, 20, 40], [2.0, 2.2, 2.5]]
    assert list(target.get_ydata()) == [3, 3]
    low, high = edges(ax.collections[0])
    assert (low, high) == ({10: 1, 20: 2, 40: 2}, {10: 9, 20: 6, 40: 4})
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["random", "chosen", "with all comparisons"]


def test_a_history_is_drawn_as_it_is() -> None:
    table = pd.DataFrame({"n": [0, 5], "rank": [3.0, 2.0], "low": [1, 2], "high": [5, 3]})
    history = table.rename(columns={"n": "asked", "low": "rank_lower", "high": "rank_upper"})
    drawn, expected = plot_onboarding(history), plot_onboarding(table)
    assert (drawn.lines[0].get_xydata() == expected.lines[0].get_xydata()).all()
    assert edges(drawn.collections[0]) == ({0: 1, 5: 2}, {0: 5, 5: 3})
    assert drawn.get_xlabel() == expected.get_xlabel() == "comparisons of the new LLM"
    assert drawn.get_ylim() == expected.get_ylim()


def test_tables_are_no_names_of_columns():
    table = pd.DataFrame({"n": [1, 2], "gain": [1.0, 2.0], "method": ["a", "a"]})
    with pytest.raises(InputError, match="a DataFrame stands where the name of a column belongs"):
        plot_gain_curve(table, table)
    for by, told in ((table, "by is a DataFrame"), (3, "by is a int"), ([], "by is an empty list")):
        with pytest.raises(InputError, match=told):
            plot_gain_curve(table, "n", by=by)


def test_intervals_of_any_table_are_not_said_to_be_of_a_bootstrap():
    table = pd.DataFrame({"n": [1, 2], "gain": [1.0, 2.0], "method": ["a", "a"]})
    table = table.assign(gain_low=[0.0, 1.0], gain_high=[2.0, 3.0])
    for given, title in (
        (table, "intervals of the table"),
        (table.assign(study="grid", signal="probe"), "bootstrap intervals over queries"),
    ):
        ax = plot_gain_curve(given, "n", band="interval")
        assert ax.get_title(loc="left") == title
        plt.close(ax.figure)
