"""The result container: what goes in comes out, from disk and narrowed too, or is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import arviz as az
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import bayes_ecc
from bayes_ecc import (
    ECC,
    InputError,
    SphereProjection,
    atoms,
    load_posterior,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
    save_posterior,
    simulate,
    unit_embeddings,
)
from bayes_ecc.posterior import make_posterior

SHAPE = (3, 4, 2)  # chains, draws, clusters


def parts(**changes):
    rng = np.random.default_rng(0)
    given = {
        "strengths": rng.normal(size=(*SHAPE, 5)),
        "centroids": unit_embeddings(rng.normal(size=(24, 4))).reshape(*SHAPE, 4),
        "weights": rng.dirichlet(np.ones(2), SHAPE[:2]),
        "models": pd.Index([f"llm {i}" for i in range(5)]),
        "concentration": 3,
        "evidence_power": 1.5,
        "probe_power": 2,
        "rule": "per_comparison",
        "estimator": "made up",
        "settings": {"kappa": np.float32(0.5), "init": np.eye(2), "rng": None, "on": True},
        "projection": SphereProjection.fit(rng.normal(size=(30, 6)), 4),
        "chain_weights": np.array([1.0, 0.0, 3.0]),
    }
    return {**given, **changes}


@pytest.fixture(scope="module")
def posterior():
    return make_posterior(**parts())


@pytest.fixture(scope="module")
def embeddings():
    return unit_embeddings(np.random.default_rng(1).normal(size=(7, 6)))


@pytest.fixture(scope="module")
def data():
    return simulate(n_queries=60, n_models=5, rng=0)


@pytest.fixture(scope="module")
def fit(data):
    return ECC(3, rng=0, max_iter=500).fit(data.comparisons, data.embeddings)


# -------------------------------------------------------------------- what it holds


def test_atoms_are_what_was_put_in(posterior):
    given, found = parts(), atoms(posterior)
    assert len(found) == 12
    assert found.n_clusters == 2
    np.testing.assert_array_equal(found.strengths, given["strengths"].reshape(12, 2, 5))
    np.testing.assert_array_equal(found.centroids, given["centroids"].reshape(12, 2, 4))
    np.testing.assert_allclose(np.exp(found.log_weights), given["weights"].reshape(12, 2))
    np.testing.assert_allclose(found.share, np.repeat([0.25, 0, 0.75], 4) / 4, atol=1e-15)
    assert (found.concentration, found.probe_power, found.rule) == (3, 2, "per_comparison")
    np.testing.assert_array_equal(found.projection.axes, given["projection"].axes)
    np.testing.assert_array_equal(found.projection.mean, given["projection"].mean)
    assert found.models.equals(given["models"])
    assert [s for s, _ in found.used()] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert sum(share for _, share in found.used()) == pytest.approx(1)


def test_atoms_are_compared_by_identity(posterior):
    found = atoms(posterior)
    assert found == found
    assert found != atoms(posterior)
    assert len({found, found}) == 1


def test_settings_and_origin_are_kept_as_plain_text(posterior):
    assert json.loads(posterior.attrs["settings"]) == {
        "kappa": 0.5, "init": "array of shape (2, 2)", "rng": None, "on": True
    }  # fmt: skip
    assert posterior.attrs["estimator"] == "made up"
    assert posterior.attrs["bayes_ecc_version"] == bayes_ecc.__version__
    assert float(posterior["constant_data/evidence_power"]) == 1.5


def test_an_em_fit_is_a_posterior_with_one_atom(fit):
    tree = fit.posterior_
    assert tree["posterior/strengths"].dims == ("chain", "draw", "cluster", "llm")
    assert dict(tree["posterior"].sizes) == {
        "chain": 1, "draw": 1, "cluster": 3, "llm": 5, "embedding_dim": 32
    }  # fmt: skip
    found = atoms(tree)
    assert (found.rule, found.concentration) == ("per_query_mean", pytest.approx(3.0 / 0.1))
    assert found.probe_power == float(tree["constant_data/evidence_power"]) == pytest.approx(10)
    np.testing.assert_allclose(np.exp(found.log_weights), 1 / 3)
    assert found.share.tolist() == [1.0]
    assert json.loads(tree.attrs["settings"])["embedding_weight"] == 3.0
    assert tree.attrs["estimator"] == "ECC"
    assert float(tree["sample_stats/objective"].squeeze()) == fit.objective_[-1]


def test_further_groups_are_kept_or_merged():
    extra = xr.Dataset({"tau": (("chain", "draw"), np.ones(SHAPE[:2]))})
    tree = make_posterior(**parts(groups={"posterior": extra, "sample_stats": extra}))
    assert tree["posterior/tau"].shape == tree["sample_stats/tau"].shape == SHAPE[:2]
    assert len(atoms(tree)) == 12


def test_no_weights_mean_equal_weights():
    found = atoms(make_posterior(**parts(chain_weights=None, projection=None)))
    np.testing.assert_allclose(found.share, 1 / 12)
    assert found.projection is None


# -------------------------------------------------------------------- narrowed


def predict(tree, embeddings):
    return predict_responsibilities(tree, embeddings=embeddings).values


def test_selected_draws_predict_as_the_same_draws_alone(posterior, embeddings):
    given = parts()
    for chains, draws in (([0], slice(None)), ([2, 0], [1, 3]), ([1, 2], slice(None, None, 2))):
        alone = {name: given[name][chains][:, draws] for name in ("strengths", "centroids")}
        alone |= {
            "weights": given["weights"][chains][:, draws],
            "chain_weights": given["chain_weights"][chains],
        }
        expected = predict(make_posterior(**parts(**alone)), embeddings)
        narrowed = posterior.isel(chain=chains, draw=draws)
        np.testing.assert_allclose(predict(narrowed, embeddings), expected, atol=1e-15)


def test_a_single_chain_or_draw_predicts(posterior, embeddings):
    for single, several in (
        ({"chain": 2}, {"chain": [2]}),
        ({"draw": 1}, {"draw": [1]}),
        ({"chain": 0, "draw": -1}, {"chain": [0], "draw": [-1]}),
    ):
        expected = predict(posterior.isel(several), embeddings)
        np.testing.assert_array_equal(predict(posterior.isel(single), embeddings), expected)
        dropped = posterior.isel(single, drop=True)
        np.testing.assert_array_equal(predict(dropped, embeddings), expected)


def test_chains_are_found_by_name(posterior, embeddings):
    # the draws of two chains, beside the weights of all three
    part = posterior.copy()
    part["posterior"] = posterior["posterior"].isel(chain=[2, 0])
    expected = predict(posterior.isel(chain=[2, 0]), embeddings)
    np.testing.assert_allclose(predict(part, embeddings), expected, atol=1e-15)


def test_dimensions_in_another_order_mean_the_same(posterior, embeddings):
    turned = posterior.copy()
    dims = ("llm", "embedding_dim", "cluster", "draw", "chain")
    turned["posterior"] = posterior["posterior"].to_dataset().transpose(*dims)
    np.testing.assert_array_equal(predict(turned, embeddings), predict(posterior, embeddings))


def test_fewer_models_and_clusters_can_be_asked_for(posterior, embeddings):
    fewer = posterior.isel(llm=[4, 1])
    table = predict_ranking(fewer, embeddings=embeddings)
    assert table["llm"].values.tolist() == ["llm 4", "llm 1"]
    one = predict_responsibilities(posterior.isel(cluster=[1]), embeddings=embeddings)
    np.testing.assert_array_equal(one, 1)
    assert one["cluster"].values.tolist() == [1]


def test_arviz_reads_it(posterior, fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three chains of four draws are few
        summary = az.summary(posterior, var_names=["strengths", "weights"], round_to="none")
    assert len(summary) == 2 * 5 + 2
    np.testing.assert_allclose(
        summary["mean"].to_numpy()[:10],
        parts()["strengths"].mean(axis=(0, 1)).ravel(),
    )
    assert az.extract(posterior, var_names="strengths").sizes["sample"] == 12
    assert az.extract(fit.posterior_, var_names="strengths").sizes["sample"] == 1


# -------------------------------------------------------------------- on disk


def predictions(tree, data):
    probes, rest = data.comparisons.take_probes(1)
    return (
        predict_win_probability(tree, rest, embeddings=data.embeddings, probes=probes),
        predict_responsibilities(tree, embeddings=data.embeddings).values,
    )


def test_a_saved_fit_predicts_bit_for_bit(fit, data, tmp_path):
    path = save_posterior(fit.posterior_, tmp_path / "fit.nc")
    loaded = load_posterior(str(path))
    for ours, theirs in zip(
        predictions(loaded, data), predictions(fit.posterior_, data), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded["posterior/centroids"].dtype == fit.centroids_.dtype
    assert bool(loaded["sample_stats/converged"].squeeze()) is True
    assert fit.posterior_.attrs.items() < loaded.attrs.items()
    path.unlink()  # it is in memory
    predictions(loaded, data)


def test_a_saved_fit_predicts_bit_for_bit_in_another_process(fit, data, tmp_path):
    save_posterior(fit.posterior_, tmp_path / "fit.nc")
    code = (
        "import numpy as np\n"
        "from bayes_ecc import load_posterior, predict_responsibilities, simulate\n"
        "data = simulate(n_queries=60, n_models=5, rng=0)\n"
        "probes, _ = data.comparisons.take_probes(1)\n"
        "found = predict_responsibilities(\n"
        "    load_posterior('fit.nc'), embeddings=data.embeddings, probes=probes)\n"
        "np.save('found.npy', found.values)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    probes, _ = data.comparisons.take_probes(1)
    expected = fit.predict_responsibilities(data.embeddings, probes=probes)
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected)


def test_a_posterior_of_many_draws_survives_too(posterior, embeddings, tmp_path):
    loaded = load_posterior(save_posterior(posterior, tmp_path / "many.nc"))
    np.testing.assert_array_equal(predict(loaded, embeddings), predict(posterior, embeddings))
    xr.testing.assert_identical(
        loaded["posterior"].to_dataset(), posterior["posterior"].to_dataset()
    )
    again = load_posterior(save_posterior(loaded, tmp_path / "again.nc"))
    np.testing.assert_array_equal(predict(again, embeddings), predict(posterior, embeddings))


def test_a_narrowed_posterior_survives(posterior, embeddings, tmp_path):
    narrowed = posterior.isel(chain=0, draw=slice(None, None, 2))
    loaded = load_posterior(save_posterior(narrowed, tmp_path / "narrow.nc"))
    np.testing.assert_array_equal(predict(loaded, embeddings), predict(narrowed, embeddings))


def test_an_old_file_stays_until_the_new_one_is_whole(posterior, fit, tmp_path, monkeypatch):
    path = save_posterior(posterior, tmp_path / "fit.nc")
    before = path.read_bytes()

    def fail(_, target, **_options):
        target.write_bytes(b"half a fi")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(xr.DataTree, "to_netcdf", fail)
        with pytest.raises(OSError, match="no space left"):
            save_posterior(fit.posterior_, path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["fit.nc"]
    save_posterior(fit.posterior_, path)
    assert load_posterior(path).attrs["estimator"] == "ECC"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, "one byte short"])
def test_truncated_files_are_refused(posterior, tmp_path, share):
    path = save_posterior(posterior, tmp_path / "fit.nc")
    whole = path.read_bytes()
    size = len(whole) - 1 if isinstance(share, str) else int(share * len(whole))
    path.write_bytes(whole[:size])
    with pytest.raises(InputError, match=r"fit\.nc (is damaged|cannot be read as).* Save the fit"):
        load_posterior(path)


def foreign(kind, folder):
    path = folder / "foreign.nc"
    if kind == "text":
        path.write_text("not a fit")
    elif kind == "netCDF":
        xr.Dataset({"x": ("t", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")
    elif kind == "netCDF 3":
        xr.Dataset({"x": ("t", [1.0, 2.0])}).to_netcdf(path, engine="scipy")
    elif kind == "plain HDF5":
        with h5py.File(path, "w") as file:
            file["x"] = [1.0, 2.0]
    elif kind == "another library's draws":
        az.from_dict({"posterior": {"mu": np.zeros((2, 10))}}).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize(
    "kind", ["text", "netCDF", "netCDF 3", "plain HDF5", "another library's draws"]
)
def test_foreign_files_are_refused(kind, tmp_path):
    with pytest.raises(InputError, match=r"foreign\.nc (cannot be read as|is a netCDF file, but)"):
        load_posterior(foreign(kind, tmp_path))


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, r"has format 2, this version reads up to 1; upgrade bayes_ecc"),
        ("1", "not a fit saved by bayes_ecc"),
        ([1, 1], "not a fit saved by bayes_ecc"),
    ],
)
def test_other_formats_are_refused(posterior, tmp_path, version, message):
    newer = posterior.copy()
    newer.attrs["format_version"] = version
    with pytest.raises(InputError, match=message):
        load_posterior(save_posterior(newer, tmp_path / "fit.nc"))


def test_files_that_cannot_be_are_refused(posterior, tmp_path):
    for path, message in (
        (tmp_path / "none.nc", "none.nc does not exist"),
        (tmp_path, "is a folder"),
        (None, "path=None"),
        (5, "path=5"),
    ):
        with pytest.raises(InputError, match=message):
            load_posterior(path)
    for path, message in (
        (tmp_path / "no" / "fit.nc", "no is not a folder"),
        (tmp_path, "is a folder; name a file in it"),
        (None, "path=None"),
    ):
        with pytest.raises(InputError, match=message):
            save_posterior(posterior, path)
    with pytest.raises(InputError, match="posterior must be an xarray DataTree, not dict"):
        save_posterior({}, tmp_path / "fit.nc")
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------- refusals


def without(tree, name):
    part = tree.copy()
    group, _, variable = name.partition("/")
    if variable:
        part[group] = part[group].to_dataset().drop_vars(variable)
    else:
        del part[group]
    return part


def with_constant(tree, **values):
    part = tree.copy()
    part["constant_data"] = part["constant_data"].to_dataset().assign(values)
    return part


def without_rule(tree):
    part = tree.copy()
    part["constant_data"] = part["constant_data"].to_dataset().drop_attrs()
    return part


def stacked(tree):
    part = tree.copy()
    draws = tree["posterior"].to_dataset().stack(sample=("chain", "draw"))
    return xr.DataTree.from_dict(
        {"posterior": draws, "constant_data": part["constant_data"].to_dataset()}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree["posterior"].to_dataset(), "must be an xarray DataTree, not Dataset"),
        (lambda tree: tree["posterior"], "lacks posterior/strengths"),
        (lambda _: xr.DataTree(), "lacks posterior/strengths"),
        (lambda tree: without(tree, "constant_data"), "lacks constant_data/concentration"),
        (lambda tree: without(tree, "posterior/weights"), "lacks posterior/weights"),
        (lambda tree: without(tree, "constant_data/chain_weights"), "lacks constant_data/chain_w"),
        (without_rule, "evidence_rule None where per_comparison or per_query_mean"),
        (stacked, "strengths of the posterior has dimensions .*sample.* unstack"),
        (lambda tree: tree.isel(draw=[]), "no draws left"),
        (lambda tree: tree.isel(chain=[]), "no draws left"),
        (lambda tree: tree.isel(chain=[1]), r"chain_weights is \[0\.0\].* not all zero"),
        (
            lambda tree: with_constant(tree, chain_weights=("chain", [1.0, -1.0, 1.0])),
            r"chain_weights is \[1\.0, -1\.0, 1\.0\].* not negative",
        ),
        (
            lambda tree: with_constant(tree, chain_weights=("chain", [1.0, np.nan, 1.0])),
            "chain_weights is .*nan.* finite",
        ),
    ],
)
def test_what_cannot_predict_is_refused(posterior, embeddings, change, message):
    with pytest.raises(InputError, match=message):
        predict(change(posterior), embeddings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strengths": np.zeros((4, 2, 5))}, "strengths has 3 dimensions"),
        ({"centroids": np.zeros((3, 4, 3, 4))}, r"centroids has shape \(3, 4, 3\)"),
        ({"weights": np.zeros((3, 4, 3))}, r"weights has shape \(3, 4, 3\)"),
        ({"models": pd.Index(["a", "b"])}, r"models has shape \(2,\)"),
        ({"rule": "sum"}, "rule='sum': allowed are per_comparison, per_query_mean"),
        ({"chain_weights": np.ones(2)}, r"chain_weights has shape \(2,\) for 3 chains"),
        ({"chain_weights": np.zeros(3)}, "chain_weights is .* not all zero"),
        ({"chain_weights": np.array([1, 1, -1])}, "chain_weights is .* not negative"),
        ({"chain_weights": np.array([1, 1, np.inf])}, "chain_weights is .* finite"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        make_posterior(**parts(**changes))
