"""Data that try to become markup: nothing of them does."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayes_ecc.report.markup import visible

type PageReader = Callable[[str], Any]


ELEMENTS = """
html head meta link title style body a div header h1 h2 h3 h4 p dl dt dd nav ul ol li main section
table thead tbody tr th td details summary span bdi code pre strong em svg line rect circle figure
figcaption img footer script
"""


def test_hostile_data_make_no_elements(
    hostile: str, read_page: PageReader, hostile_names: list[str]
) -> None:
    page = read_page(hostile)
    names = {name for name, _ in page.elements}
    assert names <= set(ELEMENTS.split())
    assert [name for name, _ in page.elements].count("script") == 1
    for _, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on") or key == "style"]
        assert str(attributes.get("href") or "#")[0] == "#" or attributes["href"] == "data:,"
        source = attributes.get("src")
        assert source is None or source.startswith("data:image/png;base64,")
    for name in hostile_names:
        assert visible(name) in page.text
    assert "⟨U+202E⟩" in page.text
    assert "\u202e" not in hostile
    assert "\x00" not in hostile


def test_hostile_names_stay_whole_in_tables(
    hostile: str, read_page: PageReader, hostile_names: list[str]
) -> None:
    page = read_page(hostile)
    assert {row[0] for row in page.tables["LLMs"][1:]} == set(map(visible, hostile_names))


def test_long_texts_are_cut_and_said_to_be(hostile: str, read_page: PageReader) -> None:
    assert "more characters" in read_page(hostile).text
    assert hostile.count("long long") < 2000


def test_policy_allows_the_own_script_and_style_alone(hostile: str, read_page: PageReader) -> None:
    policy = next(
        str(told["content"])
        for name, told in read_page(hostile).elements
        if name == "meta" and told.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "unsafe" not in policy
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        found = re.search(f"<{element}>(.*?)</{element}>", hostile, re.DOTALL)
        assert found is not None
        digest = hashlib.sha256(found.group(1).encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"


def test_own_script_and_style_load_nothing() -> None:
    folder = Path(__file__).resolve().parents[2] / "bayes_ecc" / "report"
    text = "".join(
        (folder / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    assert not re.search(r"https?:|//\w|url\(|@import|fetch\(|innerHTML|insertAdjacent|eval", text)
