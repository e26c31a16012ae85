"""A long run that is interrupted keeps what it has drawn."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from bayes_ecc import (
    BayesianECC,
    ConvergenceWarning,
    InputError,
    load_posterior,
    sampling,
    save_posterior,
    simulate,
)
from bayes_ecc.models.ecc_mixture import ecc_mixture
from bayes_ecc.samplers import initial_values

TUNE, DRAWS = 10, 60


@pytest.fixture
def interrupt(monkeypatch):
    """Send the signal of Ctrl-C to this process once a chain has come to a draw."""

    # A process started in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def at(chain, drawn):
        original = sampling._StopAfterInterruption.__call__

        def call(self, *, draw, trace):
            original(self, draw=draw, trace=trace)
            if (draw.chain, draw.draw_idx + 1) == (chain, drawn):
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(sampling._StopAfterInterruption, "__call__", call)

    yield at
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=60, n_models=5, n_clusters=2, rng=0)


@pytest.fixture(scope="module")
def model(data):
    counts = data.comparisons.outcome_counts()
    return ecc_mixture(data.embeddings, counts, n_clusters=2, concentration=6.0)


def sample(data, model, chains=3):
    rng = np.random.default_rng(0)
    starts = [initial_values(model, data.labels, rng=rng) for _ in range(chains)]
    return sampling.sample_mixture(
        model, starts, sampler="gibbs", tune=TUNE, draws=DRAWS, rng=rng, cores=1, progress=False
    )["posterior"]


@pytest.mark.parametrize(
    ("chain", "drawn", "kept", "draws"),
    [
        (0, TUNE + 25, [0], 25),  # no other chain is begun
        (1, TUNE + 20, [0], DRAWS),  # more than two of 20
        (1, TUNE + 50, [0, 1], 50),
        (2, TUNE - 1, [0, 1], DRAWS),
    ],
)
def test_chains_keep_their_draws(data, model, interrupt, chain, drawn, kept, draws):
    whole = sample(data, model)
    interrupt(chain, drawn)
    part = sample(data, model)
    assert part["chain"].values.tolist() == kept
    assert part.sizes["draw"] == draws
    expected = whole["strengths"].sel(chain=kept).isel(draw=slice(draws))
    np.testing.assert_array_equal(part["strengths"], expected)


def test_too_early_an_interruption_is_said_to_be_so(data, model, interrupt):
    interrupt(0, TUNE - 1)
    with pytest.raises(InputError, match="interrupted before a single draw was kept"):
        sample(data, model)


def test_an_interrupted_fit_can_be_used_and_saved(data, interrupt, tmp_path):
    interrupt(0, TUNE + 25)
    estimator = BayesianECC(
        2, concentration=6.0, probe_power=3.0, chains=1, tune=TUNE, draws=DRAWS, cores=1,
        checks=False, rng=0,
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning, match="25 of 60 draws"):
        estimator.fit(data.comparisons, data.embeddings)
    loaded = load_posterior(save_posterior(estimator.posterior_, tmp_path / "fit.nc"))
    assert loaded["posterior"].sizes["draw"] == 25
    assert np.isfinite(estimator.predict_responsibilities(data.embeddings)).all()
