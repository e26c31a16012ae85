"""Notebooks: their text forms run, and what is kept beside them came from these text forms."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
NAMES = [path.stem for path in SOURCES]

# Brackets keep the pattern from finding itself.
MACHINE = re.compile(r"/[r]oot/|/[w]ork/|/[t]mp/|/[h]ome/|/[U]sers/|site-[p]ackages")


def executed(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(name: str) -> Iterator[Any]:
    return (cell for cell in executed(name).cells if cell.cell_type == "code")


def test_the_six_are_there() -> None:
    assert [name[:2] for name in NAMES] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("name", NAMES)
def test_runs_without_a_warning(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", f"{name}.py"],
        cwd=FOLDER,
        env={**os.environ, "BAYES_ECC_SMALL": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_text_form_and_notebook_are_in_step(name: str) -> None:
    source = jupytext.read(FOLDER / f"{name}.py", fmt="py:percent")
    kept = executed(name)
    nbformat.validate(kept)
    assert [(cell.cell_type, cell.source) for cell in source.cells] == [
        (cell.cell_type, cell.source) for cell in kept.cells
    ], "run `make notebooks` again"


@pytest.mark.parametrize("name", NAMES)
def test_kept_results_are_whole(name: str) -> None:
    cells = list(code_cells(name))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert figures
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < 500_000
    assert not MACHINE.search(path.read_text(encoding="utf-8"))
    assert "is simulated" not in str(outputs), "kept results are those of real data"


@pytest.mark.parametrize("name", NAMES)
def test_reads_like_an_article(name: str) -> None:
    cells = executed(name).cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert sum(len(text.split()) for text in prose) > 200
    assert not re.search(r"\b(TODO|TEXT)_?", " ".join(prose))


@pytest.fixture(scope="module")
def data() -> ModuleType:
    """Load what the notebooks share, without leaving its filters of warnings behind."""
    spec = importlib.util.spec_from_file_location("notebook_data", FOLDER / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import warnings

    import matplotlib as mpl

    show = warnings.showwarning
    with warnings.catch_warnings(), mpl.rc_context():
        spec.loader.exec_module(module)
    warnings.showwarning = show
    return module


@pytest.mark.parametrize(("name", "label"), [("routerdc", "task"), ("mmlu_pro", "category")])
def test_stand_ins_have_the_columns_of_the_real_data(
    data: ModuleType, name: str, label: str
) -> None:
    bundle = data.stand_in(name)
    assert bundle.name == name
    assert {"query_id", "text", label} <= set(bundle.queries.columns)
    assert bundle.scores is not None
    assert bundle.embeddings is not None


def test_samples_keep_rows_together(data: ModuleType) -> None:
    bundle = data.stand_in("routerdc")
    part = data.sample(bundle, 100)
    assert len(part.queries) == len(part.scores) == 100
    rows = bundle.query_ids.get_indexer(part.query_ids)
    assert (part.embeddings == bundle.embeddings[rows]).all()
    assert (bundle.scores["query_id"].to_numpy()[rows] == part.scores["query_id"]).all()
