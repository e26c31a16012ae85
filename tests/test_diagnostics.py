"""A clean posterior passes; every planted defect is found by its own check; ArviZ reads it all."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_ecc import ECC, Comparisons, InputError, Simulation, load_posterior, save_posterior
from bayes_ecc.datasets.simulate import simulate
from bayes_ecc.diagnostics import Diagnosis, attach, diagnose, stored_diagnosis
from bayes_ecc.evidence import invariants, log_prior_terms, pointwise_log_likelihood
from bayes_ecc.modes import mode_report, several_solutions
from bayes_ecc.posterior import make_posterior, thin
from bayes_ecc.posterior_checks import check_contrasts, moving, power_scaling_sensitivity
from bayes_ecc.samplers import GibbsProblem, GibbsState, draw_parameters, gibbs_sweep
from bayes_ecc.stacking import stacking_weights

PRIORS = {"weight_alpha": 1.0, "global_scale": 2.0, "tau_scale": 1.0}
N_CLUSTERS, N_MODELS, KAPPA = 5, 5, 12.0


@functools.cache
def data() -> Simulation:
    """Five clusters that embeddings tell apart, and comparisons that leave no contrast open."""
    return simulate(
        n_queries=600,
        n_models=N_MODELS,
        n_clusters=N_CLUSTERS,
        embedding_dim=8,
        spread=1.2,
        per_query=7,
        capability_signal=3.0,
        topic_signal=0.3,
        noise=0.8,
        rng=0,
    )


def chain(
    labels: Any, seed: int, *, n_clusters: int = N_CLUSTERS, stuck: bool = False, draws: int = 500
) -> list[GibbsState]:
    """A Gibbs chain from given clusters; or one that never leaves them."""
    problem = GibbsProblem.from_counts(
        data().embeddings,
        data().comparisons.outcome_counts(),
        n_clusters=n_clusters,
        n_models=N_MODELS,
        concentration=KAPPA,
        **PRIORS,
    )
    rng = np.random.default_rng(seed)
    state = GibbsState(
        np.full(n_clusters, 1 / n_clusters),
        np.zeros(N_MODELS),
        1.0,
        np.zeros((n_clusters, N_MODELS)),
        np.eye(n_clusters, 8),
    )
    states = []
    for _ in range(50 + draws):
        if stuck or not states:
            state = draw_parameters(labels, state, problem, rng)
        else:
            state = gibbs_sweep(state, problem, rng)[0]
        states.append(state)
    return states[-draws:]


def tree_of(chains: list[list[GibbsState]]) -> xr.DataTree:
    """A posterior as an estimator leaves it: with all groups that its draws give."""

    def stacked(name: str) -> np.ndarray:
        return np.array([[getattr(state, name) for state in states] for states in chains])

    extra = xr.Dataset(
        {
            "tau": (("chain", "draw"), stacked("tau")),
            "global_strengths": (("chain", "draw", "llm"), stacked("global_strengths")),
        }
    )
    tree = make_posterior(
        strengths=stacked("strengths"),
        centroids=stacked("centroids"),
        weights=stacked("weights"),
        models=data().comparisons.models,
        concentration=KAPPA,
        evidence_power=1.0,
        probe_power=3.0,
        rule="per_comparison",
        estimator="test",
        settings={},
        training=(data().comparisons, data().embeddings),
        groups={"posterior": extra},
    )
    tree.attrs.update(clusters_matched=1, approximate=0, sampler="gibbs")
    tree = with_group(tree, "log_prior", log_prior_terms(tree, **PRIORS))
    tree = with_group(tree, "log_likelihood", pointwise_log_likelihood(tree))
    pointwise = tree["log_likelihood"].to_dataset()
    return with_group(tree, "invariants", invariants(tree, pointwise=pointwise))


def with_group(tree: xr.DataTree, name: str, dataset: xr.Dataset) -> xr.DataTree:
    return xr.DataTree.from_dict({**tree.to_dict(), f"/{name}": dataset})


@functools.cache
def true_chains() -> list[list[GibbsState]]:
    return [chain(data().labels, seed) for seed in range(4)]


@functools.cache
def clean() -> xr.DataTree:
    return tree_of(true_chains())


@functools.cache
def one_apart() -> xr.DataTree:
    """Three chains in the true mode, one that keeps two clusters merged and one cut in two."""
    labels = data().labels.copy()
    labels[labels == 1] = 0
    halves = np.flatnonzero(labels == 2)
    labels[halves[::2]] = 1
    return tree_of([*true_chains()[:3], chain(labels, 7, stuck=True)])


def verdicts(diagnosis: Diagnosis) -> dict[str, str]:
    return diagnosis.table["verdict"].to_dict()


# -------------------------------------------------------------------- a clean posterior


def test_a_separated_problem_is_clean() -> None:
    diagnosis = diagnose(clean(), sensitivity=0.2)
    assert diagnosis.ok, str(diagnosis)
    assert diagnosis.failed == diagnosis.warned == []
    found = verdicts(diagnosis)
    assert found.pop("divergences") == "not applicable"
    assert set(found.values()) == {"ok"}
    assert diagnosis.table.loc["rhat", "value"] <= 1.01
    assert diagnosis.table.loc["ess_bulk", "value"] >= 400
    assert diagnosis.table.loc["ess_tail", "value"] >= 400


def test_figures_are_arvizs() -> None:
    table = diagnose(clean()).table
    watched = clean()["invariants"].to_dataset()
    best = watched["mean_p_best"]
    often = best.mean(("chain", "draw")) > 0.005  # the others are next to never best
    watched["mean_p_best"] = best.where(often, watched["tau"])
    spread = watched.std(("chain", "draw"), ddof=1)

    def figures(found: xr.Dataset) -> list[float]:
        return [float(value) for name in found for value in found[name].values.ravel()]

    assert table.loc["rhat", "value"] == pytest.approx(max(figures(az.rhat(watched))))
    for name in ("bulk", "tail"):
        expected = min(figures(az.ess(watched, method=name)))
        assert table.loc[f"ess_{name}", "value"] == pytest.approx(expected)
    assert table.loc["mcse", "value"] == pytest.approx(max(figures(az.mcse(watched) / spread)))
    assert "tau" in table.loc["rhat", "figures"]


def test_computed_groups_give_the_verdicts_of_kept_ones() -> None:
    kept = diagnose(clean())
    bare = clean().copy()
    del bare["invariants"], bare["log_likelihood"]
    computed = diagnose(bare)
    assert verdicts(computed) == verdicts(kept)
    for name in ("rhat", "pareto_k"):
        assert computed.table.loc[name, "value"] == pytest.approx(
            kept.table.loc[name, "value"], abs=1e-3
        )
    given = diagnose(bare, data().comparisons, data().embeddings)
    assert verdicts(given) == verdicts(kept)


def test_thresholds_are_arguments() -> None:
    assert "ess_bulk" in diagnose(clean(), ess=10_000).failed
    assert "ess_bulk" in diagnose(clean(), ess=3000).warned
    assert "rhat" in diagnose(clean(), rhat=1.00001).failed + diagnose(clean(), rhat=1.00001).warned
    assert "prior_sensitivity" in diagnose(clean(), sensitivity=0.001).warned
    assert "contrasts" in diagnose(clean(), min_wins=1000.0).warned


# -------------------------------------------------------------------- planted defects


def test_chains_in_different_modes_are_found_and_not_hidden() -> None:
    diagnosis = diagnose(one_apart())
    assert {"rhat", "ess_bulk", "clusters"} <= set(diagnosis.failed)
    assert diagnosis.warned[0] == "modes"
    assert "several solutions" in diagnosis.table.loc["modes", "meaning"]
    assert "different solutions" in diagnosis.table.loc["rhat", "meaning"]
    assert "Predictions" in diagnosis.table.loc["rhat", "meaning"]
    modes = diagnosis.modes
    assert modes["log_density"].idxmin() == modes["elpd"].idxmin() == 3
    assert modes["with_others"].idxmin() == 3
    assert modes["with_first"].iloc[1:3].min() > 0.99 > 0.8 > modes["with_first"].iloc[3]
    assert modes["stacking_weight"].iloc[3] < 0.05


def test_renaming_clusters_worries_only_the_check_of_clusters() -> None:
    swapped = []
    for number, states in enumerate(true_chains()):
        order = [1, 0, 2, 3, 4] if number == 2 else [0, 1, 2, 3, 4]
        swapped.append(
            [
                GibbsState(
                    state.weights[order],
                    state.global_strengths,
                    state.tau,
                    state.strengths[order],
                    state.centroids[order],
                )
                for state in states
            ]
        )
    tree = tree_of(swapped)
    found, before = diagnose(tree), diagnose(clean())
    assert found.failed == ["clusters"]
    assert found.table.loc["rhat", "value"] == pytest.approx(before.table.loc["rhat", "value"])
    tree.attrs["clusters_matched"] = 0
    assert verdicts(diagnose(tree))["clusters"] == "not applicable"


def test_sticky_chains_have_few_effective_draws() -> None:
    sticky = clean().isel(draw=np.arange(500) // 25 * 25, missing_dims="ignore")
    found = verdicts(diagnose(sticky))
    assert found["ess_bulk"] == found["ess_tail"] == found["mcse"] == "fail"


def test_influential_queries_have_large_k() -> None:
    rng = np.random.default_rng(0)
    pointwise = clean()["log_likelihood"].to_dataset()
    evidence = pointwise["evidence"].values.copy()
    evidence[:, :, :100] -= rng.pareto(0.7, size=evidence[:, :, :100].shape)
    heavy = pointwise.assign(evidence=(pointwise["evidence"].dims, evidence))
    found = diagnose(with_group(clean(), "log_likelihood", heavy))
    assert found.table.loc["pareto_k", "verdict"] == "fail"
    assert 0.1 < found.table.loc["pareto_k", "value"] < 0.2
    some = pointwise.assign(
        evidence=(
            pointwise["evidence"].dims,
            np.where(np.arange(600) < 20, evidence, pointwise["evidence"]),
        )
    )
    found = diagnose(with_group(clean(), "log_likelihood", some))
    assert found.table.loc["pareto_k", "verdict"] == "warn"


@pytest.mark.parametrize(("count", "verdict"), [(0, "ok"), (3, "warn"), (100, "fail")])
def test_divergences_are_counted(count: int, verdict: str) -> None:
    diverging = np.zeros((4, 500), dtype=bool)
    diverging.flat[:count] = True
    stats = xr.Dataset({"diverging": (("chain", "draw"), diverging)})
    found = diagnose(with_group(clean(), "sample_stats", stats))
    assert found.table.loc["divergences", "verdict"] == verdict
    assert f"{count} of 2000" in found.table.loc["divergences", "figures"]


def test_approximations_are_marked() -> None:
    tree = clean().copy()
    tree.attrs.update(approximate=1, sampler="advi")
    found = diagnose(tree)
    assert "approximation" in found.warned
    assert "advi" in found.table.loc["approximation", "figures"]


def contrasts_of(rows: list[tuple[int, int, int, float]], n_models: int = 4) -> Any:
    """Comparisons (query, first, second, outcome), queries 0 and 1 in clusters of their own."""
    query, first, second, outcome = zip(*rows, strict=True)
    comparisons = Comparisons.from_arrays(
        query, first, second, outcome, queries=["p", "q"], models=list("abcd")[:n_models]
    )
    return check_contrasts(comparisons, np.eye(2)[None], min_wins=0.5)


ROUND = [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_contrasts_that_only_the_prior_knows() -> None:
    every = [(q, a, b, 1.0) for q in (0, 1) for a, b in ROUND]
    assert contrasts_of(every).verdict == "ok"
    # a fourth model that never wins on the second query: by sign only, three of twelve contrasts
    losing = [(0, a, b, 1.0) for a, b in ROUND] + [
        (1, a, b, 1.0) for a, b in [(0, 1), (1, 2), (2, 0), (3, 0)]
    ]
    found = contrasts_of(losing)
    assert (found.verdict, found.value) == ("warn", 0.25)
    assert "25% known by sign only, 0.0% not at all" in found.figures
    assert "cluster 1 of chain 0" in found.figures
    # on the second query it never plays: not at all
    absent = losing[:-1]
    found = contrasts_of(absent)
    assert (found.verdict, found.value) == ("warn", 0.25)
    assert "0% known by sign only, 25.0% not at all" in found.figures
    # two groups that never meet, anywhere
    split = [(q, a, b, y) for q in (0, 1) for a, b in [(0, 1), (2, 3)] for y in (0.0, 1.0)]
    found = contrasts_of(split)
    assert found.verdict == "fail"
    assert found.figures.startswith("4 pairs")


def test_contrasts_of_empty_clusters_are_not_counted() -> None:
    rows = [(q, a, b, 1.0) for q in (0, 1) for a, b in ROUND]
    query, first, second, outcome = zip(*rows, strict=True)
    comparisons = Comparisons.from_arrays(
        query, first, second, outcome, queries=["p", "q"], models=list("abcd")
    )
    responsibilities = np.array([[[0.9, 0.1], [0.8, 0.2]]])
    assert check_contrasts(comparisons, responsibilities, min_wins=0.5).verdict == "ok"


def test_a_prior_against_the_data_is_found() -> None:
    tight = log_prior_terms(clean(), weight_alpha=1.0, global_scale=0.05, tau_scale=1.0)
    found = diagnose(with_group(clean(), "log_prior", tight))
    assert "prior_sensitivity" in found.warned
    assert "global_contrast" in found.table.loc["prior_sensitivity", "meaning"]
    flat = log_prior_terms(clean(), weight_alpha=1.0, global_scale=100.0, tau_scale=100.0)
    found = diagnose(with_group(clean(), "log_prior", flat))
    assert found.table.loc["prior_sensitivity", "verdict"] == "ok"


def test_a_prior_that_has_nothing_to_do_with_the_draws_moves_nothing() -> None:
    rng = np.random.default_rng(0)
    noise = xr.Dataset({"tau": (("chain", "draw"), 8 * rng.standard_normal((4, 500)))})
    found = diagnose(with_group(clean(), "log_prior", noise))
    assert found.table.loc["prior_sensitivity", "verdict"] == "ok", str(found)


def test_sensitivity_is_arvizs() -> None:
    expected = az.psense(
        clean(), var_names=["tau", "global_strengths"], group_var_names=["tau", "global_strengths"]
    )
    prior = clean()["log_prior"].to_dataset()
    quantities = moving(clean()["posterior"].to_dataset()[["tau", "global_strengths"]])
    found = power_scaling_sensitivity(quantities, prior["tau"] + prior["global_strengths"])
    np.testing.assert_allclose(found[0], expected["tau"])
    np.testing.assert_allclose(found[1:], expected["global_strengths"])


# -------------------------------------------------------------------- what cannot be checked


def test_a_point_estimate_has_only_its_contrasts_checked() -> None:
    fit = ECC(N_CLUSTERS, embedding_weight=1.0, max_iter=500, rng=0)
    fit.fit(data().comparisons, data().embeddings)
    diagnosis = diagnose(fit.posterior_)
    found = verdicts(diagnosis)
    assert found.pop("contrasts") in ("ok", "warn")
    assert set(found.values()) == {"not applicable"}
    assert not len(diagnosis.modes)


def test_one_chain_says_what_it_cannot_tell() -> None:
    alone = clean().isel(chain=[0], missing_dims="ignore")
    diagnosis = diagnose(alone, ess=100, rhat=1.03)
    assert diagnosis.table.loc["modes", "verdict"] == "not applicable"
    halves = alone["invariants"]["tau"].values.reshape(2, -1)
    assert f"tau {float(az.rhat(halves)):.3f}" in diagnosis.table.loc["rhat", "figures"]
    assert "one chain can't tell" in diagnosis.table.loc["rhat", "meaning"]
    with pytest.raises(InputError, match=r"isel\(chain=\[0\]\)"):
        diagnose(clean().isel(chain=0, missing_dims="ignore"))


def test_a_posterior_without_its_data_is_checked_as_far_as_it_goes() -> None:
    tree = clean().copy()
    del tree["observed_data"]
    found = verdicts(diagnose(tree))
    assert found["rhat"] == found["pareto_k"] == found["clusters"] == "ok"
    assert found["modes"] == found["contrasts"] == "not applicable"
    del tree["invariants"], tree["log_likelihood"]
    found = verdicts(diagnose(tree))
    assert found["rhat"] == found["pareto_k"] == "not applicable"


def test_log_likelihoods_of_another_kind_are_not_taken_for_evidence() -> None:
    tree = clean().copy()
    joint = tree["log_likelihood"].to_dataset()[["joint"]]
    found = diagnose(with_group(tree, "log_likelihood", joint))
    assert verdicts(found) == verdicts(diagnose(clean()))


def test_figures_that_never_move_are_no_defect() -> None:
    tree = clean().copy()
    fixed = tree["invariants"].to_dataset()
    fixed["tau"] = xr.full_like(fixed["tau"], 0.5)
    found = diagnose(with_group(tree, "invariants", fixed))
    assert found.table.loc["rhat", "verdict"] == "ok"
    assert "tau" not in found.table.loc["rhat", "figures"]


def test_chains_that_stand_still_apart_fail() -> None:
    tree = clean().copy()
    frozen = tree["invariants"].to_dataset()
    frozen["tau"] = xr.full_like(frozen["tau"], 0.5) + frozen["chain"]
    found = diagnose(with_group(tree, "invariants", frozen))
    assert found.table.loc["rhat", "verdict"] == "fail"


# -------------------------------------------------------------------- modes


def test_mode_report_describes_each_chain() -> None:
    report = mode_report(one_apart())
    assert report.index.tolist() == [0, 1, 2, 3]
    density = one_apart()["invariants"]["log_density"]
    np.testing.assert_allclose(report["log_density"], density.mean("draw"))
    np.testing.assert_array_equal(report["occupied"], 5)
    np.testing.assert_allclose(report["chain_weight"], 0.25)
    expected = stacking_weights(one_apart()["log_likelihood"]["evidence"])
    np.testing.assert_allclose(report["stacking_weight"], expected)
    assert several_solutions(report)
    assert not several_solutions(mode_report(clean()))
    assert (report["r_hat"] < 1.05).all()  # each chain is at rest where it is


def test_clusters_without_queries_are_not_occupied() -> None:
    states = [
        GibbsState(
            np.append(state.weights, 1e-12),
            state.global_strengths,
            state.tau,
            np.vstack([state.strengths, np.zeros(N_MODELS)]),
            np.vstack([state.centroids, np.eye(8)[:1]]),
        )
        for state in true_chains()[0][:30]
    ]
    assert mode_report(tree_of([states]))["occupied"].tolist() == [5]


# -------------------------------------------------------------------- keeping and showing it


def test_a_diagnosis_is_kept_with_the_fit(tmp_path: Path) -> None:
    diagnosis = diagnose(one_apart())
    before = one_apart().copy()
    tree = attach(one_apart(), diagnosis)
    assert "diagnostics" not in one_apart().children
    xr.testing.assert_identical(before, one_apart())
    assert tree.attrs["failed_checks"].split(",") == diagnosis.failed
    assert tree.attrs["warned_checks"].split(",") == diagnosis.warned
    assert tree.attrs["estimator"] == "test"
    loaded = load_posterior(save_posterior(tree, tmp_path / "fit.nc"))
    assert loaded.attrs["failed_checks"] == tree.attrs["failed_checks"]
    for kept in (stored_diagnosis(tree), stored_diagnosis(loaded)):
        pd.testing.assert_frame_equal(kept.table, diagnosis.table, check_dtype=False)
        pd.testing.assert_frame_equal(kept.modes, diagnosis.modes, check_index_type=False)
        assert str(kept) == str(diagnosis)
    again = attach(tree, diagnose(clean(), sensitivity=1.0))
    assert again.attrs["failed_checks"] == again.attrs["warned_checks"] == ""


def test_a_clean_diagnosis_survives_netcdf(tmp_path: Path) -> None:
    fit = ECC(2, max_iter=500, rng=0).fit(data().comparisons, data().embeddings)
    tree = attach(fit.posterior_, diagnose(fit.posterior_))
    loaded = load_posterior(save_posterior(tree, tmp_path / "fit.nc"))
    assert loaded.attrs["failed_checks"] == ""
    assert str(stored_diagnosis(loaded)) == str(stored_diagnosis(tree))
    with pytest.raises(InputError, match="diagnose"):
        stored_diagnosis(fit.posterior_)


def test_a_diagnosis_reads_well() -> None:
    text = str(diagnose(one_apart()))
    lines = text.splitlines()
    assert lines[0].startswith("Diagnosis: ")
    assert "fail" in lines[0]
    assert lines[1].startswith("  fail  rhat: ")
    assert "(at most 1.01)" in lines[1]
    assert any(line.startswith("        -> ") for line in lines)
    assert lines[-1].startswith("  -     ")
    page = diagnose(one_apart())._repr_html_()
    assert page.count("<table") == 2
    assert "stacking_weight" in page
    assert "->" not in page.replace("-&gt;", "")


# -------------------------------------------------------------------- ArviZ, as it is


@pytest.fixture
def closing() -> Iterator[None]:
    yield
    plt.close("all")


def test_arviz_summarises_the_container() -> None:
    table = az.summary(clean())
    assert {"tau", "strengths[0, llm_0]", "global_strengths[llm_4]"} <= set(table.index)
    table = az.summary(clean(), group="invariants", var_names=["log_density", "global_contrast"])
    assert "global_contrast[llm_1]" in table.index
    assert float(az.rhat(clean(), var_names="tau")["tau"]) < 1.02


def test_arviz_leaves_queries_out_of_the_container() -> None:
    found = az.loo(clean(), var_name="evidence", pointwise=True)
    assert found.n_data_points == 600
    assert not found.warning
    assert found.elpd_i.dims == ("query",)


def test_arviz_compares_numbers_of_clusters() -> None:
    merged = data().labels % 2
    fits = {
        "K = 5": clean().isel(chain=[0, 1], missing_dims="ignore"),
        "K = 2": tree_of([chain(merged, s, n_clusters=2, draws=200) for s in range(2)]),
    }
    table = az.compare(fits, var_name="evidence")
    assert table.index[0] == "K = 5"
    assert table.loc["K = 2", "elpd_diff"] < -20


def test_arviz_scales_prior_and_likelihood_of_the_container() -> None:
    table = az.psense_summary(
        clean(),
        var_names=["tau", "global_strengths"],
        prior_var_names=["tau", "global_strengths", "weights"],
        likelihood_var_names="joint",
    )
    assert len(table) == 1 + N_MODELS
    assert table[["prior", "likelihood"]].notna().all(axis=None)


@pytest.mark.usefixtures("closing")
@pytest.mark.parametrize("plot", [az.plot_forest, az.plot_trace_dist, az.plot_ess, az.plot_rank])
def test_arviz_plots_the_container(plot: Any) -> None:
    plot(clean(), var_names=["tau", "global_strengths"])


@pytest.mark.usefixtures("closing")
def test_arviz_plots_invariants() -> None:
    az.plot_trace_dist(clean(), group="invariants", var_names=["log_density", "tau"])


# -------------------------------------------------------------------- thinning


def test_thinning_thins_the_whole_tree() -> None:
    whole = attach(clean(), diagnose(clean()))
    thinned = thin(whole, 7)
    for name, group in thinned.children.items():
        if "draw" in whole[name].dims:
            assert group["draw"].values.tolist() == list(range(0, 500, 7))
        expected = whole[name].to_dataset().isel(draw=slice(None, None, 7), missing_dims="ignore")
        xr.testing.assert_identical(group.to_dataset(), expected)
    assert thinned.attrs == whole.attrs
    assert whole["posterior"].sizes["draw"] == 500
    assert verdicts(diagnose(thinned))["rhat"] in ("ok", "warn")
    with pytest.raises(InputError, match="factor"):
        thin(whole, 0)
