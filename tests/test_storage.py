"""Saved fits say where they come from, and predict the same wherever they are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import bayes_ecc
from bayes_ecc import (
    ECC,
    BayesianECC,
    InputError,
    load_posterior,
    predict_responsibilities,
    save_bundle,
    save_posterior,
    simulate,
)
from bayes_ecc.storage import data_fingerprint


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=60, n_models=5, ties=0.2, rng=0)


@pytest.fixture(scope="module")
def fit(data):
    return ECC(3, rng=7, max_iter=500).fit(data.comparisons, data.embeddings)


# -------------------------------------------------------------------- attributes


def test_any_reader_sees_where_a_fit_comes_from(fit, data, tmp_path):
    before = dict(fit.posterior_.attrs)
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    assert fit.posterior_.attrs == before
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
    assert attributes["estimator"] == "ECC"
    assert json.loads(attributes["settings"])["rng"] == 7
    versions = json.loads(attributes["versions"])
    assert versions["numpy"] == np.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["pymc"] == metadata.version("pymc")
    expected = data_fingerprint(data.comparisons, data.embeddings)
    assert attributes["data_fingerprint"] == expected


def test_a_fit_that_is_saved_again_keeps_its_origin(fit, tmp_path):
    loaded = load_posterior(save_posterior(fit.posterior_, tmp_path / "fit.nc"))
    loaded.attrs["versions"] = '{"numpy": "1.0"}'
    again = load_posterior(save_posterior(loaded, tmp_path / "again.nc"))
    assert again.attrs == loaded.attrs
    fewer = load_posterior(save_posterior(loaded.isel(llm=[0, 1]), tmp_path / "fewer.nc"))
    assert "data_fingerprint" not in fewer.attrs  # what it was fitted to is no longer in it


def test_the_fingerprint_is_of_every_value(data):
    comparisons, embeddings = data.comparisons, data.embeddings
    changed = embeddings.copy()
    changed[3, 1] = np.nextafter(changed[3, 1], np.float32(2))
    outcome, weight = comparisons.outcome.copy(), comparisons.weight.copy()
    outcome[5], weight[5] = 0.25, 2.0
    order = np.arange(len(comparisons))
    order[[0, 1]] = 1, 0
    others = [
        (comparisons, changed),
        (comparisons, embeddings.astype(float)),
        (replace(comparisons, outcome=outcome), embeddings),
        (replace(comparisons, weight=weight), embeddings),
        (replace(comparisons, ordered=False), embeddings),
        (replace(comparisons, first=comparisons.second, second=comparisons.first), embeddings),
        (replace(comparisons, models=comparisons.models + "x"), embeddings),
        (replace(comparisons, queries=comparisons.queries + "x"), embeddings),
    ]
    found = [data_fingerprint(*each) for each in [(comparisons, embeddings), *others]]
    assert len(set(found)) == len(found)
    again = simulate(n_queries=60, n_models=5, ties=0.2, rng=0)
    assert data_fingerprint(again.comparisons, np.asfortranarray(again.embeddings)) == found[0]


@pytest.mark.parametrize("name", ["observed_data/outcome", "constant_data/first_code"])
def test_training_data_that_were_changed_on_disk_are_refused(fit, name, tmp_path):
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    with h5py.File(path, "r+") as file:
        values = file[name][...]
        place = int(np.argmax(values != values[0]))
        values[[0, place]] = values[[place, 0]]
        file[name][...] = values
    with pytest.raises(InputError, match=r"fit\.nc (are not those that were saved|cannot be read)"):
        load_posterior(path)


def test_a_file_without_a_fingerprint_is_read(fit, tmp_path):
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    with h5py.File(path, "r+") as file:
        del file.attrs["data_fingerprint"]
    xr.testing.assert_equal(load_posterior(path), fit.posterior_)


# -------------------------------------------------------------------- damage


@pytest.mark.parametrize("start", [96, 3000, -3000])
def test_damaged_bytes_are_refused_before_they_are_read(fit, start, tmp_path):
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    content = bytearray(path.read_bytes())
    content[start : start + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"fit\.nc is damaged: its bytes are not those"):
        load_posterior(path)


def test_other_writers_may_change_attributes(fit, tmp_path):
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    with h5py.File(path, "r+") as file:
        file.attrs["remark"] = "of ours"
    assert load_posterior(path).attrs["remark"] == "of ours"


@pytest.mark.parametrize("name", ["strengths", "centroids", "weights"])
def test_numbers_that_predict_nothing_are_refused(fit, name, tmp_path):
    posterior = fit.posterior_.copy(deep=True)
    posterior["posterior"][name].values.reshape(-1)[1] = np.nan
    path = save_posterior(posterior, tmp_path / "fit.nc")
    with pytest.raises(InputError, match=rf"posterior/{name} with 1 of .* not finite"):
        load_posterior(path)


def test_a_data_set_is_no_fit(data, tmp_path):
    folder = save_bundle(data.bundle(), tmp_path / "votes")
    with pytest.raises(InputError, match=r"is a data set.*`bayes-ecc fit .*votes --out FILE`"):
        load_posterior(folder)
    with pytest.raises(InputError, match="is a folder; give the file of a saved fit"):
        load_posterior(tmp_path)


# -------------------------------------------------------------------- another process

PREDICT = """
import numpy as np
from bayes_ecc import load_posterior, predict_responsibilities, simulate
data = simulate(n_queries=60, n_models=5, ties=0.2, rng=0)
probes, _ = data.comparisons.take_probes(1)
fit = load_posterior('fit.nc')
found = [
    predict_responsibilities(fit, embeddings=data.embeddings).values,
    predict_responsibilities(fit, embeddings=data.embeddings, probes=probes).values,
]
np.save('found.npy', found)
"""


def test_a_bayesian_fit_predicts_bit_for_bit_in_another_process(data, tmp_path):
    estimator = BayesianECC(
        2, concentration=6.0, probe_power=3.0, chains=2, tune=10, draws=20, cores=1, checks=False,
        embedding_dim=8, rng=5,
    )  # fmt: skip
    posterior = estimator.fit(data.comparisons, data.embeddings).posterior_
    save_posterior(posterior, tmp_path / "fit.nc")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PREDICT],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(bayes_ecc.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    probes, _ = data.comparisons.take_probes(1)
    expected = [
        predict_responsibilities(posterior, embeddings=data.embeddings).values,
        predict_responsibilities(posterior, embeddings=data.embeddings, probes=probes).values,
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected)
    attributes = load_posterior(tmp_path / "fit.nc").attrs
    assert json.loads(attributes["settings"])["rng"] == 5
    assert attributes["sampler"] == "gibbs"
    assert attributes["data_fingerprint"].startswith("sha256:")
