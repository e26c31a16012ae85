"""The step method inside PyMC: the right density, processes, seeds, interruptions, refusals."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from bayes_ecc import simulate
from bayes_ecc.errors import InputError
from bayes_ecc.models.bradley_terry import bradley_terry
from bayes_ecc.models.ecc_mixture import Priors, ecc_mixture
from bayes_ecc.samplers import PolyaGammaGibbs, initial_values

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
VARIABLES = {"weights", "global_strengths", "tau", "strengths", "centroids_raw"}


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=60, n_models=4, n_clusters=2, embedding_dim=6, per_query=3, rng=1)


def build(data, **settings):
    settings = {"n_clusters": 3, "concentration": 5.0, "evidence_power": 1.5} | settings
    return ecc_mixture(
        data.embeddings,
        data.comparisons.outcome_counts(),
        models=list(data.comparisons.models),
        **settings,
    )


@pytest.fixture(scope="module")
def model(data):
    return build(data)


@pytest.mark.parametrize(
    ("settings", "free"),
    [
        ({"priors": Priors(1.3, 0.7, 1.1)}, VARIABLES),
        ({"priors": Priors.matched(0.2, 0.5)}, {"strengths", "centroids_raw"}),
        ({"n_clusters": 1}, VARIABLES - {"weights"}),
    ],
    ids=["all free", "matched", "one cluster"],
)
def test_recorded_log_densities_are_those_of_the_model(data, settings, free):
    model = build(data, **settings)
    assert {variable.name for variable in model.free_RVs} == free
    step = PolyaGammaGibbs(model=model, rng=3, dtype=np.float64)
    log_density = model.compile_logp(mode="FAST_COMPILE")
    point = model.initial_point(0)
    for _ in range(3):
        point, (stats,) = step.step(point)
        assert stats["model_logp"] == pytest.approx(float(log_density(point)), rel=1e-9)
        assert 1 <= stats["occupied"] <= settings.get("n_clusters", 3)


def test_a_point_that_comes_back_changed_is_read_anew(model):
    one = PolyaGammaGibbs(model=model, rng=3, dtype=np.float64)
    two = PolyaGammaGibbs(model=model, rng=3, dtype=np.float64)
    point, _ = one.step(model.initial_point(0))
    two.step(model.initial_point(0))
    moved = {name: 0.5 * value + 0.1 for name, value in point.items()}
    after, _ = one.step(moved)
    same, _ = two.step({name: value.copy() for name, value in moved.items()})
    for name in after:
        np.testing.assert_array_equal(after[name], same[name])
    unknown = PolyaGammaGibbs(model=model, rng=3, dtype=np.float64)
    unknown.rng = np.random.default_rng(8)
    known = PolyaGammaGibbs(model=model, rng=3, dtype=np.float64)
    point, _ = known.step(model.initial_point(0))
    known.rng = np.random.default_rng(8)
    for a, b in zip(known.step(point)[0].values(), unknown.step(point)[0].values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7)


def test_processes_and_seeds(model):
    settings = {"draws": 15, "tune": 5, "chains": 2} | QUIET
    with model:
        alone = pm.sample(cores=1, step=PolyaGammaGibbs(), random_seed=4, **settings)
        both = pm.sample(cores=2, step=PolyaGammaGibbs(), random_seed=4, **settings)
        other = pm.sample(cores=1, step=PolyaGammaGibbs(), random_seed=5, **settings)
    for name in (*VARIABLES, "centroids"):
        np.testing.assert_array_equal(alone.posterior[name], both.posterior[name])
        assert not np.array_equal(alone.posterior[name], other.posterior[name])
        chains = alone.posterior[name].to_numpy()
        assert not np.array_equal(chains[0], chains[1])
    assert alone.posterior["strengths"].dims == ("chain", "draw", "cluster", "llm")
    assert {"log_joint", "log_density", "lp", "occupied"} <= set(alone.sample_stats.data_vars)
    length = np.linalg.norm(alone.posterior["centroids"], axis=-1)
    np.testing.assert_allclose(length, 1, rtol=1e-12)
    np.testing.assert_allclose(alone.posterior["weights"].sum("cluster"), 1, rtol=1e-12)


def test_the_step_can_be_sent_to_another_process(model):
    step = PolyaGammaGibbs(model=model, rng=3)
    sent = cloudpickle.loads(cloudpickle.dumps(step))
    start = model.initial_point(0)
    for here, there in zip(step.step(start)[0].values(), sent.step(start)[0].values(), strict=True):
        np.testing.assert_array_equal(here, there)


def test_an_interruption_keeps_the_draws_so_far(model):
    def interrupt(trace, draw):  # noqa: ARG001 (PyMC names them)
        if draw.draw_idx == 11:
            raise KeyboardInterrupt

    with model:
        trace = pm.sample(
            draws=50, tune=5, chains=1, cores=1, step=PolyaGammaGibbs(), callback=interrupt,
            random_seed=0, **QUIET,
        )  # fmt: skip
    assert trace.posterior.sizes["draw"] == 7
    assert np.isfinite(trace.posterior["strengths"]).all()


def test_the_progress_bar_shows_the_log_density(model, capfd):
    with model:
        pm.sample(
            draws=5, tune=2, chains=1, cores=1, step=PolyaGammaGibbs(), random_seed=0,
            compute_convergence_checks=False,
        )  # fmt: skip
    shown = capfd.readouterr().out
    assert "Occu" in shown


def test_what_the_priors_fix_is_in_the_trace(data):
    with build(data, priors=Priors.matched(0.1, 0.4)):
        trace = pm.sample(
            draws=3, tune=1, chains=1, cores=1, step=PolyaGammaGibbs(), random_seed=0, **QUIET
        )
    assert (trace.posterior["tau"] == 0.5).all()
    assert (trace.posterior["weights"] == 1 / 3).all()
    assert (trace.posterior["global_strengths"] == 0).all()


def test_initial_values_start_a_chain_where_the_labels_say(data, model):
    start = initial_values(model, data.labels, rng=0)
    assert set(start) == VARIABLES
    centroids = start["centroids_raw"] / np.linalg.norm(start["centroids_raw"], axis=1)[:, None]
    for k in range(2):
        mean = data.embeddings[data.labels == k].mean(axis=0)
        cosine = centroids @ mean / np.linalg.norm(mean)
        assert cosine[k] > 0.8
    with model:
        trace = pm.sample(
            draws=2, tune=1, chains=2, cores=1, step=PolyaGammaGibbs(), random_seed=0,
            initvals=[start, initial_values(model, data.labels, rng=1)], **QUIET,
        )  # fmt: skip
    assert trace.posterior.sizes["chain"] == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(3, dtype=int), "one whole number for each of the 60"),
        (np.zeros(60), "one whole number"),
        (np.full(60, 3), "numbered from 0 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(model, labels, message):
    with pytest.raises(InputError, match=message):
        initial_values(model, labels)


def test_other_models_are_refused(data):
    with pytest.raises(InputError, match="ecc_mixture"):
        PolyaGammaGibbs(model=bradley_terry(data.comparisons.outcome_counts()))


def test_some_of_the_variables_are_refused(model):
    with pytest.raises(InputError, match="tau_log__"):
        PolyaGammaGibbs([model["strengths"], model["weights"]], model=model)
    assert PolyaGammaGibbs(list(model.free_RVs), model=model).vars == model.value_vars
