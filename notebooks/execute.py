"""Execute the notebooks' text form and keep what comes out beside it, as .ipynb.

    python notebooks/execute.py          # all
    python notebooks/execute.py 01 04    # those whose names begin so
    python notebooks/execute.py --text   # only text was edited: keep the results

Only the text form is edited by hand.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
    "jupytext": {"formats": "ipynb,py:percent"},
}


def sources() -> list[Path]:
    """Give the text forms, in their order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def read(path: Path) -> Any:
    """Read a text form as a notebook, with settled names of its cells."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    return notebook


def shrink(picture: str) -> str:
    """Make a figure smaller: 128 colours are enough for it."""
    shrunk = BytesIO()
    with Image.open(BytesIO(base64.b64decode(picture))) as image:
        flat = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        flat.save(shrunk, format="png", optimize=True)
    return base64.b64encode(shrunk.getvalue()).decode()


def execute(path: Path) -> Path:
    """Execute one notebook in its folder and write it."""
    notebook = read(path)
    client = NotebookClient(
        notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}
    )
    client.execute()
    for cell in notebook.cells:
        cell["metadata"] = {}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = shrink(data["image/png"])
    notebook.metadata = nbformat.from_dict(METADATA)
    target = path.with_suffix(".ipynb")
    nbformat.write(notebook, target)
    return target


def renew_text(path: Path) -> Path:
    """Put new text around the results that are there."""
    notebook, target = read(path), path.with_suffix(".ipynb")
    kept = [cell for cell in nbformat.read(target, as_version=4).cells if cell.cell_type == "code"]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.source for cell in cells] != [cell.source for cell in kept]:
        raise SystemExit(f"The code of {path.name} has changed: execute it.")
    for cell, old in zip(cells, kept, strict=True):
        cell["outputs"], cell["execution_count"] = old["outputs"], old["execution_count"]
    nbformat.write(notebook, target)
    return target


def main(arguments: list[str]) -> None:
    """Execute the notebooks that were asked for, or all."""
    names = [name for name in arguments if name != "--text"]
    work = renew_text if "--text" in arguments else execute
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONWARNINGS"] = (
        "ignore:IProgress not found"  # there are no progress bars to show
    )
    for path in sources():
        if not names or path.name.startswith(tuple(names)):
            began = time.perf_counter()
            target = work(path)
            print(f"{target.name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
