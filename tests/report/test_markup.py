"""Markup: whatever a text holds, it is shown as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayes_ecc.report.markup import Markup, escaped, join, tag, visible
from bayes_ecc.report.tables import Cell, Column, strip, table

type PageReader = Callable[[str], Any]


@given(text=st.text())
def test_text_comes_back_as_text_and_makes_no_element(text: str, read_page: PageReader) -> None:
    page = read_page(tag("p", text, title=text))
    assert "".join(page.words) == visible(text)
    assert page.elements == [("p", {"title": visible(text)})]


def test_what_cannot_be_seen_is_written_out() -> None:
    shown = visible("a\u202eb\x00c\u200bd\ud800e\U000e0041f\ufefeg\uffffh\u2066i\x9fj\rk\r\nl")
    assert shown == (
        "a⟨U+202E⟩b⟨U+0000⟩c⟨U+200B⟩d⟨U+D800⟩e⟨U+E0041⟩f\ufefeg⟨U+FFFF⟩h⟨U+2066⟩i⟨U+009F⟩j\nk\nl"
    )
    kept = "Ωé 日本語 עברית \t\n👩\u200d🔬"
    assert visible(kept) == kept
    shown.encode("utf-8")
    assert visible("z" + "\u0301" * 100 + "a") == "z" + "\u0301" * 4 + "⟨+96⟩a"
    assert visible("Việt Nam: e\u0302\u0323") == "Việt Nam: e\u0302\u0323"


def test_markup_is_made_by_functions_alone() -> None:
    assert escaped(escaped("<")) == "&lt;"
    assert tag("p", title=tag("b", "x")) == '<p title="&lt;b&gt;x&lt;/b&gt;"></p>'
    assert join(["a", [None, ("<", 1)]], tag("br")) == "a&lt;1<br>"
    assert isinstance(join("a") + "", str)
    assert not isinstance("<i>" + escaped("x"), Markup)  # so it is escaped when it is used


@pytest.mark.parametrize("name", ["onclick", "OnLoad", "style", "a b", 'x"', "onmouse_over"])
def test_attributes_that_could_run_or_style_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        tag("p", **{name: "x"})


def test_cells_tell_what_they_are_sorted_by() -> None:
    rows: list[list[Cell | str]] = [[Cell("a", "k"), Cell("-", float("nan")), "3"]]
    made = table("", [Column("x"), Column("y", True), Column("z", True)], rows, name="n")
    assert '<th scope="row" data-sort="k">a</th>' in made
    assert '<td class="number" data-sort="">-</td><td class="number">3</td>' in made


def test_strip_places_the_interval_on_its_scale() -> None:
    picture = str(strip(2, 1, 5, start=1, stop=5))
    places = [float(value) for value in re.findall(r'(?:x1|x2|cx)="([\d.]+)"', picture)]
    left, right, low, high, dot = places
    assert (low, high) == (left, right)
    assert dot == pytest.approx(left + (right - left) / 4, abs=0.1)
    assert strip(float("nan"), 1, 2, start=1, stop=5) is None
