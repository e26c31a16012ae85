"""The documentation builds without a warning, tells of every public name and loads nothing."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import bayes_ecc

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the documentation as `make docs` does, from a copy: tests may run beside each other."""
    target = tmp_path_factory.mktemp("docs")
    written = shutil.ignore_patterns("_build", "api", "articles")
    shutil.copytree(ROOT / "docs", target / "docs", ignore=written)
    shutil.copytree(ROOT / "notebooks", target / "notebooks")
    places = ["-d", str(target / "doctrees"), str(target / "docs"), str(target / "html")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", *places],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


def test_routing_by_hand_runs() -> None:
    page = (ROOT / "docs" / "routing_by_hand.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```pycon\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    example = doctest.DocTestParser().get_doctest(code, {}, "routing_by_hand.md", None, 0)
    said: list[str] = []
    failed, tried = doctest.DocTestRunner().run(example, out=said.append)
    assert not failed, "".join(said)
    assert tried > 30


class Resources(HTMLParser):
    """What a page makes a browser load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if "src" in values or (tag == "link" and "href" in values):
            self.found.append(values.get("src") or values.get("href") or "")


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    for name in bayes_ecc.__all__:
        if callable(getattr(bayes_ecc, name)):
            assert f'id="bayes_ecc.{name}"' in pages, name
    for method in ("fit", "predict_win_probability", "matching"):
        assert f'id="bayes_ecc.BayesianECC.{method}"' in pages


def test_every_command_is_told_of(site: Path) -> None:
    page = (site / "command_line.html").read_text(encoding="utf-8")
    for command in ("demo", "evaluate", "fit", "route", "convert-long-table"):
        assert f'id="bayes-ecc-{command}"' in page
    assert "--concentration" in page


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    for path in pages:
        text = path.read_text(encoding="utf-8")
        for resource in Resources(text).found:
            assert not re.match(r"(https?:)?//", resource), f"{path.name} loads {resource}"


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    page = (site / "how_it_works.html").read_text(encoding="utf-8")
    assert page.count("<math") > 30
    assert "<munder>" in page  # a sum with its index
    assert "$$" not in page
