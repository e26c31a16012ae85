"""Embeddings: unit length without needless copies, and projection by principal axes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc import InputError, SphereProjection, unit_embeddings

seeds = st.integers(0, 2**32 - 1)


def draw(seed, shape=(20, 6), dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# -------------------------------------------------------------------- unit length


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (np.float64, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (np.longdouble, np.float64),
    ],
)
def test_rows_get_unit_length_in_a_sensible_precision(given_, kept):
    raw = np.abs(np.round(draw(0) * 20)).astype(given_) + 1
    before = raw.copy()
    found = unit_embeddings(raw)
    assert found.dtype == kept
    exact = raw.astype(float) / np.linalg.norm(raw.astype(float), axis=1, keepdims=True)
    np.testing.assert_allclose(found, exact, rtol=4 * np.finfo(kept).eps)
    np.testing.assert_array_equal(raw, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows_are_handed_back_as_they_are(dtype):
    unit = unit_embeddings(draw(1, (500, 768), dtype))
    assert unit_embeddings(unit) is unit
    view = unit[::2, ::-1]
    assert unit_embeddings(view) is view
    off = unit.copy()
    off[3] *= 1.001
    found = unit_embeddings(off)
    assert found is not off
    np.testing.assert_allclose(found, unit, atol=1e-6)


def test_read_only_memory_maps_and_frames_are_read(tmp_path):
    raw = draw(2)
    np.save(tmp_path / "raw.npy", raw)
    expected = unit_embeddings(raw)
    mapped = np.load(tmp_path / "raw.npy", mmap_mode="r")
    np.testing.assert_array_equal(unit_embeddings(mapped), expected)
    np.testing.assert_allclose(unit_embeddings(pd.DataFrame(raw)), expected, rtol=1e-14)
    np.testing.assert_array_equal(unit_embeddings(raw.tolist()), expected)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_very_large_and_very_small_rows_have_a_direction_too(scale):
    raw = draw(3)
    raw[::2] *= scale
    before = raw.copy()
    np.testing.assert_allclose(unit_embeddings(raw), unit_embeddings(draw(3)), rtol=1e-14)
    np.testing.assert_array_equal(raw, before)
    if 1e-30 <= scale <= 1e30:
        single = draw(3, dtype=np.float32)
        expected = unit_embeddings(single)
        single[::2] *= np.float32(scale)
        np.testing.assert_allclose(unit_embeddings(single), expected, rtol=1e-5)


def with_value(value, rows=(4,), dtype=np.float64):
    raw = draw(4, dtype=dtype)
    raw[list(rows), 2] = value
    return raw


def zero_row():
    raw = draw(5)
    raw[7] = 0
    return raw


@pytest.mark.parametrize(
    ("embeddings", "n_queries", "message"),
    [
        (None, None, "two-dimensional array of numbers"),
        ("text", None, "two-dimensional array of numbers"),
        ({}, None, "two-dimensional array of numbers"),
        (3.0, None, "not 0-dimensional float64"),
        ([1.0, 2.0], None, "not 1-dimensional float64"),
        (np.ones((2, 2, 2)), None, "not 3-dimensional float64"),
        ([[1.0], [1.0, 2.0]], None, "one row of numbers a query"),
        ([["a"], ["b"]], None, "not 2-dimensional <U1"),
        (np.ones((2, 2), complex), None, "not 2-dimensional complex128"),
        (np.ones((2, 2), bool), None, "not 2-dimensional bool"),
        (np.ones((2, 2), object), None, "not 2-dimensional object"),
        (np.ones((2, 2), "M8[s]"), None, "not 2-dimensional datetime64"),
        (np.ones((3, 2)), 4, r"3 rows for 4 queries; row i must belong to comparisons\.queries"),
        (np.ones((3, 0)), None, "no columns"),
        (with_value(np.nan), None, "row 4: found NaN or infinite"),
        (with_value(np.inf), None, "row 4: found NaN or infinite"),
        (with_value(-np.inf, rows=(2, 9, 11)), None, r"row 2 \(and 2 more\): found NaN or inf"),
        (with_value(np.nan, dtype=np.float32), None, "row 4: found NaN or infinite"),
        (zero_row(), None, "row 7: found nothing but zeros; encode that query again"),
        (np.zeros((2, 3), int), None, r"row 0 \(and 1 more\): found nothing but zeros"),
    ],
)
def test_what_is_no_embedding_is_refused(embeddings, n_queries, message):
    with pytest.raises(InputError, match=f"embeddings.*{message}"):
        unit_embeddings(embeddings, n_queries)


def test_no_queries_have_no_embeddings():
    assert unit_embeddings(np.ones((0, 3)), 0).shape == (0, 3)


# -------------------------------------------------------------------- projection


@given(seeds, st.integers(2, 6))
def test_projection_is_centre_rotate_normalise(seed, dim):
    raw = draw(seed)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    mean = unit.mean(axis=0)
    _, singular, axes = np.linalg.svd(unit - mean, full_matrices=False)
    projection = SphereProjection.fit(raw, dim)
    np.testing.assert_allclose(projection.mean, mean, atol=1e-14)
    np.testing.assert_allclose(projection.axes @ projection.axes.T, np.eye(dim), atol=1e-10)
    # an axis is known up to its sign, if no other explains as much
    if (singular[:-1] - singular[1:]).min() > 1e-3:
        alike = np.abs((projection.axes * axes[:dim]).sum(axis=1))
        np.testing.assert_allclose(alike, 1, atol=1e-6)
    kept = (((unit - mean) @ projection.axes.T) ** 2).sum()
    assert kept == pytest.approx((singular[:dim] ** 2).sum(), rel=1e-9)
    new = draw(seed + 1)
    new_unit = new / np.linalg.norm(new, axis=1, keepdims=True)
    expected = (new_unit - projection.mean) @ projection.axes.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(projection.transform(new), expected, atol=1e-12)


def test_projection_repeats_itself_and_keeps_single_precision():
    raw = draw(6, (300, 40), np.float32)
    one, again = SphereProjection.fit(raw, 5), SphereProjection.fit(raw, 5)
    np.testing.assert_array_equal(one.axes, again.axes)
    assert one.transform(raw).dtype == np.float32
    double = SphereProjection.fit(raw.astype(float), 5)
    np.testing.assert_allclose(np.abs(one.axes @ double.axes.T), np.eye(5), atol=1e-3)


def test_projection_cannot_be_changed():
    projection = SphereProjection.fit(draw(7), 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        projection.axes = np.eye(3)


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        (1, r"embedding_dim=1: .* give 2 to 6"),
        (7, r"embedding_dim=7: .* give 2 to 6"),
        (0, "embedding_dim=0"),
        (-1, "embedding_dim=-1"),
        (2.0, r"embedding_dim=2\.0"),
        (0.5, r"embedding_dim=0\.5"),
        ("3", "embedding_dim='3'"),
        (None, "embedding_dim=None"),
        (True, "embedding_dim=True"),
        (np.nan, "embedding_dim=nan"),
    ],
)
def test_dimensions_out_of_range_are_refused(dim, message):
    with pytest.raises(InputError, match=message):
        SphereProjection.fit(draw(8), dim)


def test_projections_of_other_embeddings_are_refused():
    projection = SphereProjection.fit(draw(9), 3)
    with pytest.raises(InputError, match="5 dimensions, the fit was made with 6"):
        projection.transform(draw(9, (4, 5)))
    with pytest.raises(InputError, match=r"row 0.*NaN"):
        projection.transform(np.full((1, 6), np.nan))
    # what lies at the mean has no direction left
    flat = SphereProjection(np.array([0.6, 0.8]), np.eye(2))
    with pytest.raises(InputError, match=r"row 0.*zeros"):
        flat.transform([[0.6, 0.8]])
