"""Property tests: whatever is in a file, a loader ends in a bundle or in an error that names it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayes_ecc import DataWarning, InputError, load_bundle, save_bundle
from bayes_ecc.cli import main
from bayes_ecc.datasets.layouts import LAYOUTS

MANY = 10 if os.environ.get("BAYES_ECC_FULL", "0") not in ("", "0") else 1
SLOW = settings(
    max_examples=40 * MANY,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
MORE = settings(SLOW, max_examples=80 * MANY)

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.text(st.characters(), max_size=6),
    st.sampled_from(["", " ", "nan", "inf", "1_0", "tie", "model_a", "query_id", "\ud800", "\x00"]),
    st.lists(st.integers(0, 2), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)

# errors about a whole file or data set, where no single row is at fault
WHOLE = re.compile(
    r"lacks|model\(s\)|leaves nothing|annotations by|means other|no column|has the column"
    r"|no record|rows look like|named twice|there twice|holds no|holds '|has neither|has both"
    r"|further up|for \d+ LLMs|no names called|no matrix called|shape|needs .* models"
)


@pytest.fixture(scope="module")
def masters(samples, tmp_path_factory):
    """One good data set a layout, to be copied and spoilt."""
    made = {}
    for layout in LAYOUTS:
        folder = tmp_path_factory.mktemp(layout)
        made[layout] = (folder, samples.write(layout, folder))
    return made


class Copy:
    """A copy of a data set, in a folder of its own that goes away again."""

    def __init__(self, masters, layout):
        self.layout = layout
        self.master, self.sample = masters[layout]
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name, "data")
        shutil.copytree(self.master, self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.home.cleanup()

    @property
    def files(self):
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def moved(self, value):
        """Give a path of the master as one of the copy."""
        inside = isinstance(value, Path) and value.is_relative_to(self.master)
        return self.folder / value.relative_to(self.master) if inside else value

    def load(self):
        """Load it; give the error's text, or nothing."""
        source = self.moved(self.sample.source)
        options = {name: self.moved(value) for name, value in self.sample.options.items()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                loaded = LAYOUTS[self.layout].load(source, **options)
        except InputError as error:
            message = str(error)
            assert "\n" not in message
            assert any(path.name in message for path in [*self.files, source]), message
            return message
        counts = loaded.counts
        assert counts.read == counts.used + sum(counts.dropped.values())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            again = load_bundle(save_bundle(loaded.bundle, self.folder.parent / "bundle"))
        assert again.models.equals(loaded.bundle.models)
        return ""


# ------------------------------------------------------------------------------ bytes


@st.composite
def edits(draw):
    """Draw a change of bytes: where, how many go, and what comes in their place."""
    return (
        draw(st.floats(0, 1)),
        draw(st.one_of(st.integers(0, 8), st.just(2**30))),
        draw(st.one_of(st.binary(max_size=8), st.sampled_from([b'"', b"{", b"]", b"\n", b","]))),
    )


def edited(content, changes):
    for share, gone, come in changes:
        place = int(share * len(content))
        content = content[:place] + come + content[place + gone :]
    return content


@pytest.mark.parametrize("layout", LAYOUTS)
@SLOW
@given(data=st.data())
def test_damaged_bytes(masters, layout, data):
    with Copy(masters, layout) as copy:
        path = data.draw(st.sampled_from(copy.files))
        changes = data.draw(st.lists(edits(), min_size=1, max_size=3))
        path.write_bytes(edited(path.read_bytes(), changes))
        copy.load()


@pytest.mark.parametrize("layout", LAYOUTS)
@SLOW
@given(data=st.data())
def test_any_bytes_at_all(masters, layout, data):
    with Copy(masters, layout) as copy:
        path = data.draw(st.sampled_from(copy.files))
        starts = [
            b"",
            b"PK\x03\x04",
            b"PAR1",
            b"\x93NUMPY\x01\x00",
            b"[",
            b'{"',
            b"\x80\x04",
            b"a,b\n",
        ]
        path.write_bytes(data.draw(st.sampled_from(starts)) + data.draw(st.binary(max_size=200)))
        copy.load()


@SLOW
@given(data=st.data())
def test_damaged_bytes_on_the_command_line(masters, data):
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    with Copy(masters, layout) as copy:
        path = data.draw(st.sampled_from(copy.files))
        path.write_bytes(edited(path.read_bytes(), [data.draw(edits())]))
        source, out = copy.moved(copy.sample.source), copy.folder.parent / "out"
        code = main(["convert", layout, str(source), str(out)])
        assert code in (0, 2)
        assert out.exists() == (code == 0)


# ------------------------------------------------------------------------------ values


def places(tree, path=()):
    """List the paths to everything in a JSON tree."""
    yield path
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from places(tree[key], (*path, key))


def put(tree, path, value):
    """Give a tree with another value at a path; without it where the value is missing."""
    if not path:
        return value
    made = tree.copy()
    if value is ... and len(path) == 1:
        del made[path[0]]
    else:
        made[path[0]] = put(tree[path[0]], path[1:], value)
    return made


def json_of(path):
    """Read the records of a JSON file, JSON lines, or an archive of one, and how to write them."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            name = next(each for each in archive.namelist() if not each.startswith("__"))
            records = json.loads(archive.read(name))

        def write_zip(tree):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(name, json.dumps(tree))

        return records, write_zip
    text = path.read_text()
    if text.startswith("["):
        return json.loads(text), lambda tree: path.write_text(json.dumps(tree))
    lines = [json.loads(line) for line in text.splitlines()]
    return lines, lambda tree: path.write_text(
        "\n".join(map(json.dumps, tree)) if isinstance(tree, list) else json.dumps(tree)
    )


OF_JSON = ["open_llm_leaderboard", "mmlu_pro", "routerdc", "mt_bench", "alpaca_eval"]


@pytest.mark.parametrize("layout", OF_JSON)
@MORE
@given(data=st.data())
def test_odd_values_in_records(masters, layout, data):
    with Copy(masters, layout) as copy:
        files = [path for path in copy.files if not path.name.startswith(("results", "model_out"))]
        files = files or copy.files
        path = data.draw(st.sampled_from(files))
        tree, write = json_of(path)
        place = data.draw(st.sampled_from(list(places(tree))))
        gone = st.just(...) if place else st.nothing()
        write(put(tree, place, data.draw(ODD | gone)))
        message = copy.load()
        if message and len(place) > 1:
            named = f"{path.name}.*, row {place[0]}\\b"
            assert re.search(named, message) or WHOLE.search(message), message


def table_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return pd.read_csv(path, dtype=object, keep_default_na=False).to_dict("records")


@pytest.mark.parametrize(
    "layout", ["sprout", "routerbench", "lmarena", "score_matrix", "long_table"]
)
@MORE
@given(data=st.data())
def test_odd_values_in_tables(masters, layout, data):
    with Copy(masters, layout) as copy:
        path = data.draw(st.sampled_from(copy.files))
        rows = table_of(path)
        row = data.draw(st.integers(0, len(rows) - 1))
        column = data.draw(st.sampled_from(sorted(rows[row])))
        value = data.draw(ODD)
        rows[row][column] = value
        try:
            if path.suffix == ".csv":
                pd.DataFrame(rows).to_csv(path, index=False)
            else:  # a column of one kind, as parquet has them: the odd one, or text
                odd = [each[column] for each in rows]
                kind = data.draw(st.sampled_from(["odd", "all odd", "text", "missing"]))
                if kind == "all odd":
                    odd = [value] * len(rows)
                elif kind == "text":
                    odd = [str(each) for each in odd]
                elif kind == "missing":
                    odd = [None] * len(rows)
                table = pq.read_table(path)
                place = table.column_names.index(column)
                pq.write_table(table.set_column(place, column, pa.array(odd)), path)
        except (pa.ArrowException, UnicodeEncodeError, OverflowError):
            return  # no such file can be written
        message = copy.load()
        if message:
            assert re.search(rf"{re.escape(path.name)}.*, row \d", message) or WHOLE.search(message)


@pytest.mark.parametrize("layout", ["score_matrix", "long_table"])
@SLOW
@given(text=st.text(st.sampled_from('ab,"\n\r\t1é\ufeff ;'), max_size=60))
def test_any_csv(masters, layout, text):
    with Copy(masters, layout) as copy:
        copy.files[0].write_text(text, encoding="utf-8", newline="")
        copy.load()


@SLOW
@given(data=st.data())
def test_odd_arrays(masters, data):
    with Copy(masters, "score_arrays") as copy:
        path = copy.files[0]
        with np.load(path) as archive:
            arrays = dict(archive)
        name = data.draw(st.sampled_from(sorted(arrays)))
        kinds = ["f2", "f8", "i1", "?", "c8", "S3", "U3", "O", "M8[s]", "V4", [("a", "f8")]]
        shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
        arrays[name] = np.zeros(shape, np.dtype(data.draw(st.sampled_from(kinds))))
        if data.draw(st.booleans()):
            arrays[data.draw(st.sampled_from(["models", "x/models", "bbh/", "/", "y"]))] = arrays[
                name
            ]
        np.savez(path, **arrays)
        copy.load()


@SLOW
@given(st.recursive(st.none() | st.floats() | st.text(max_size=3), lambda inner: (
    st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["models", "correctness", "scores", "s", ""]), inner)
), max_leaves=12))  # fmt: skip
def test_any_json_of_arrays(tree):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "x.json")
        path.write_text(json.dumps(tree))
        message = ""
        try:
            LAYOUTS["score_arrays"].load(path, models=["a", "b"])
        except InputError as error:
            message = str(error)
        assert not message or "x.json" in message


# ------------------------------------------------------------------------------ JSON in pieces


@SLOW
@given(
    records=st.lists(st.dictionaries(st.text(max_size=4), ODD, max_size=3) | ODD, max_size=8),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 2]),
    as_lines=st.booleans(),
)
def test_records_come_out_as_the_whole_file_would(records, chunk, indent, as_lines):
    from bayes_ecc import reading

    as_lines = as_lines and not (records and isinstance(records[0], list))
    if as_lines:
        text = "\n".join(json.dumps(record) for record in records)
    else:
        text = json.dumps(records, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", chunk)
        found = list(reading.stream_values(io.BytesIO(text.encode()), "here"))
    assert [row for row, _ in found] == list(range(len(records)))
    assert json.dumps([value for _, value in found]) == json.dumps(json.loads(json.dumps(records)))


@pytest.mark.parametrize(
    "text",
    ["[1, 2", "[1 2]", "[1,]", "[,1]", "[1]]", "[1] 2", '["a', "[nul]", "{", '{"a": 1', "1, 2", "]",
     "[" * 100_000, '[{"a": ' + "1" * 5000 + "}]", "[\ufeff1]"],
)  # fmt: skip
def test_what_is_no_json_is_refused(tmp_path, text):
    from bayes_ecc.reading import json_values

    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"x\.json, row \d: found "):
        list(json_values(path))
