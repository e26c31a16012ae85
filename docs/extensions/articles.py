"""The executed notebooks as pages: their text, code, tables and figures as they were committed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import nbformat
from sphinx.application import Sphinx

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def _fenced(text: str, kind: str) -> str:
    """Put a text into a fence that nothing in it closes."""
    fence = "`" * 3
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}\n"


def _output(output: Any, folder: Path, name: str) -> str:
    """Write one output of a cell; pictures go into files beside the page."""
    if output.output_type == "stream":
        return _fenced(output.text, "text")
    data = output.get("data", {})
    if "image/png" in data:
        picture = folder / f"{name}.png"
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![]({picture.name})\n"
    if "text/html" in data:
        return _fenced(f'<div class="output">{data["text/html"]}</div>', "{raw} html")
    return _fenced(data["text/plain"], "text")


def article(path: Path, folder: Path) -> str:
    """Write one notebook as a page."""
    parts = []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source + "\n")
            continue
        parts.append(_fenced(cell.source, "python"))
        for k, output in enumerate(cell.outputs):
            parts.append(_output(output, folder, f"{path.stem}_{number}_{k}"))
    return "\n".join(parts)


def write_articles(app: Sphinx) -> None:
    """Write all notebooks."""
    folder = Path(app.srcdir) / "articles"
    folder.mkdir(exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        page, text = folder / f"{path.stem}.md", article(path, folder)
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the event."""
    app.connect("builder-inited", write_articles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
