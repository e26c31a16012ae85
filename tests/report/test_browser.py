"""Reports in a headless Chromium: sorting, searching, a phone's width, nothing that executes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bayes_ecc import BayesianECC, Simulation
from bayes_ecc.report import write_report

type Opened = Callable[..., Any]  # opens a file in the browser of conftest.py, which it gives


@pytest.fixture(scope="module")
def report(
    bayes: BayesianECC,
    data: Simulation,
    evaluation: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(bayes, path, bundles=data.bundle(), evaluation=evaluation)


@pytest.fixture(scope="module")
def hostile_file(hostile: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    path.write_text(hostile, encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Any, report: Path) -> Opened:
    """Open the report anew, with nothing written down yet."""

    def open_it(path: Path = report, **window: Any) -> Any:
        browser.requests.clear()
        browser.complaints.clear()
        browser.open(path, **window)
        return browser

    return open_it


def table_script(name: str, what: str) -> str:
    """Write a script about the table in the box of this name."""
    box = json.dumps(f'[role="region"][aria-label="{name}"] table')
    return f"(() => {{ const table = document.querySelector({box}); {what} }})()"


def column(page: Any, name: str, place: int) -> list[str]:
    """Read what a column of a table is sorted by, row by row, of the rows that are shown."""
    what = (
        "return [...table.tBodies[0].rows].filter((row) => row.offsetParent !== null).map((row) => "
        f"row.cells[{place}].dataset.sort ?? row.cells[{place}].textContent);"
    )
    found: list[str] = page.run(table_script(name, what))
    return found


def sorted_by(page: Any, name: str) -> list[str | None]:
    what = "return [...table.tHead.rows[0].cells].map((head) => head.getAttribute('aria-sort'));"
    found: list[str | None] = page.run(table_script(name, what))
    return found


# -------------------------------------------------------------------- the harness itself


def test_harness_notices_requests_errors_and_refusals(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><title>bad</title><img src='other.png'>"
        "<script>console.error('said'); undefinedFunction();</script>",
        encoding="utf-8",
    )
    page = opened(path)
    assert any(address.endswith("other.png") for address in page.requests)
    assert any("said" in complaint for complaint in page.complaints)
    assert any("undefinedFunction" in complaint for complaint in page.complaints)
    policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
    path.write_text(f"<!doctype html>{policy}<script>window.hit = 1</script>", encoding="utf-8")
    page = opened(path)
    assert any("Content Security Policy" in complaint for complaint in page.complaints)
    assert page.run("window.hit") is None


# -------------------------------------------------------------------- loading


def test_report_loads_nothing_and_complains_of_nothing(opened: Opened, report: Path) -> None:
    page = opened()
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.run("new Promise((done) => setTimeout(done, 200))")
    assert set(page.requests) == {report.as_uri()}
    assert page.complaints == []
    shown = page.run(
        "[...document.images].map((image) => image.complete && image.naturalWidth > 0)"
    )
    assert shown == [True] * 4


def test_hostile_report_executes_nothing(
    opened: Opened, hostile_file: Path, hostile_names: list[str]
) -> None:
    page = opened(hostile_file)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for kind in ("mouseover", "focus", "click", "error", "load"):
        page.run(
            "document.querySelectorAll('main *').forEach((one) => one.matches('a') || "
            f"one.dispatchEvent(new Event('{kind}')))"
        )
    page.run("new Promise((done) => setTimeout(done, 200))")
    assert page.run("window.hit") is None
    assert page.complaints == []
    assert set(page.requests) == {hostile_file.as_uri()}
    assert page.run("document.scripts.length") == 1
    text = page.run("document.body.textContent")
    for name in hostile_names[:4]:
        assert name in text
    assert page.run("document.title") == hostile_names[0]


def test_searching_and_sorting_hostile_names_executes_nothing(
    opened: Opened, hostile_file: Path
) -> None:
    page = opened(hostile_file)
    page.run("document.querySelectorAll('thead button').forEach((button) => button.click())")
    page.run("document.querySelector('input[type=search]').focus()")
    page.type("<img src=x onerror=window.hit=1>")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run("window.hit") is None
    assert page.complaints == []


# -------------------------------------------------------------------- sorting and searching


def test_sorting_by_mouse(opened: Opened) -> None:
    page = opened()
    before = column(page, "LLMs", 1)
    press = "table.tHead.rows[0].cells[1].querySelector('button').click();"
    page.run(table_script("LLMs", press))
    values = [float(value) for value in column(page, "LLMs", 1)]
    assert values == sorted(values, reverse=True)  # of numbers, the largest first
    assert sorted_by(page, "LLMs")[1] == "descending"
    page.run(table_script("LLMs", press))
    values = [float(value) for value in column(page, "LLMs", 1)]
    assert values == sorted(values)
    assert sorted_by(page, "LLMs")[1] == "ascending"
    assert sorted(column(page, "LLMs", 1)) == sorted(before)
    page.run(table_script("LLMs", press.replace("cells[1]", "cells[0]")))
    names = column(page, "LLMs", 0)
    assert names == sorted(names)
    assert sorted_by(page, "LLMs")[:2] == ["ascending", None]


@pytest.mark.parametrize(("key", "code", "text"), [("Enter", 13, "\r"), (" ", 32, " ")])
def test_sorting_from_the_keyboard(opened: Opened, key: str, code: int, text: str) -> None:
    page = opened()
    page.run(table_script("LLMs", "table.closest('.scroll').focus();"))
    page.press("Tab", code=9)  # into the table: to the first heading
    page.press("Tab", code=9)
    assert page.run("document.activeElement.closest('th').textContent") == "comparisons"
    page.press(key, code=code, text=text)
    assert sorted_by(page, "LLMs")[1] == "descending"
    values = [float(value) for value in column(page, "LLMs", 1)]
    assert values == sorted(values, reverse=True)


def test_what_is_missing_is_sorted_last(opened: Opened) -> None:
    page = opened()
    spoil = "table.tBodies[0].rows[0].cells[1].dataset.sort = '';"
    press = "table.tHead.rows[0].cells[1].querySelector('button').click();"
    for _ in range(2):
        page.run(table_script("LLMs", f"{spoil} {press}"))
        assert column(page, "LLMs", 1)[-1] == ""
        page.run(table_script("LLMs", "table.tBodies[0].prepend(table.tBodies[0].lastChild);"))


def test_searching(opened: Opened) -> None:
    page = opened()
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    every = column(page, "convergence", 0)
    label = "(one) => one.textContent === 'Search convergence'"
    box = f"[...document.querySelectorAll('label')].find({label})"
    page.run(f"{box}.control.focus()")
    page.type("P_BEST llm_1")  # all words, in any case
    found = column(page, "convergence", 0)
    assert found == [name for name in every if "p_best" in name and "llm_1" in name] != []
    status = f"{box}.parentElement.querySelector('[role=status]').textContent"
    assert page.run(status) == f"{len(found)} of {len(every)}"
    page.press("Escape", code=27)
    assert column(page, "convergence", 0) == every
    assert page.run(status) == ""
    page.type("nothing like it")
    assert column(page, "convergence", 0) == []


def test_searching_clusters_and_opening_all(opened: Opened) -> None:
    page = opened()
    cards = "[...document.querySelectorAll('.card')]"
    assert page.run(f"{cards}.map((card) => card.open)")[:2] == [True, False]
    page.run("[...document.querySelectorAll('.tools button')][0].click()")
    assert all(page.run(f"{cards}.map((card) => card.open)"))
    query = page.run("document.querySelector('.card:nth-of-type(2) .queries code').textContent")
    page.run(
        "document.querySelector('.cards').previousElementSibling.querySelector('input').focus()"
    )
    page.type(query)
    assert page.run(f"{cards}.map((card) => card.hidden)") == [True, False, True]
    page.run("[...document.querySelectorAll('.tools button')][1].click()")
    assert not any(page.run(f"{cards}.map((card) => card.open)"))


def test_link_opens_its_card_even_where_a_search_hid_it(opened: Opened) -> None:
    page = opened()
    cards = "[...document.querySelectorAll('.card')]"
    page.run(f"{cards}.forEach((card) => {{ card.open = false; card.hidden = true; }})")
    page.run("document.querySelector('#clusters tbody tr:nth-child(2) a').click()")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert page.run(f"{cards}.map((card) => card.open)") == [False, True, False]
    assert page.run(f"{cards}.map((card) => card.hidden)") == [True, False, True]


# -------------------------------------------------------------------- looks


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_page_never_scrolls_sideways(
    opened: Opened, report: Path, hostile_file: Path, width: int
) -> None:
    for path in (report, hostile_file):
        page = opened(path, width=width, height=800)
        page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
        beyond = page.run(
            "[...document.querySelectorAll('body *')].filter((one) => "
            "!one.closest('.scroll, .paper, pre, .skip') && "
            "one.getBoundingClientRect().right > window.innerWidth + 1)"
            ".map((one) => one.outerHTML.slice(0, 100))"
        )
        assert beyond == []


def test_table_of_the_models_fits_a_small_desktop(opened: Opened, report: Path) -> None:
    page = opened(report, width=1200, height=800)
    box = "document.querySelector('[aria-label=LLMs]')"
    assert page.run(f"{box}.scrollWidth <= {box}.clientWidth")
    # also where every interval is as wide as can be
    page.run(
        f"{box}.querySelectorAll('td .quiet').forEach((one) => "
        "{ one.textContent = '(0.55 to 10.55)'; })"
    )
    assert page.run(f"{box}.scrollWidth <= {box}.clientWidth")


CONTRAST = """
(() => {
  const number = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = number(color).slice(0, 3).map((v) => {
      v /= 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (number(color)[3] !== 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("p, a, th, td, dt, dd, .badge, .quiet, summary, code")]
    .filter((one) => one.offsetParent !== null && one.textContent.trim())
    .map((one) => {
      const [x, y] = [luminance(getComputedStyle(one).color), luminance(behind(one))];
      return [(Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05), one.outerHTML.slice(0, 100)];
    })
    .sort((a, b) => a[0] - b[0])[0];
})()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_light_and_dark(opened: Opened, dark: bool) -> None:
    page = opened(dark=dark)
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 24, 28)" if dark else "rgb(255, 255, 255)")
    least, where = page.run(CONTRAST)
    assert least >= 4.5, where


def test_report_reads_without_scripts(opened: Opened, browser: Any) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page = opened()
        assert column(page, "LLMs", 0)
        assert page.run("document.querySelectorAll('input, button').length") == 0
        assert page.run("document.querySelectorAll('.card > summary').length") == 3
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_printing_shows_what_is_closed(opened: Opened, tmp_path: Path) -> None:
    page = opened(dark=True)
    closed = "document.querySelectorAll('details:not([open])').length"
    before = page.run(closed)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run(closed) == page.run("document.querySelectorAll('details.more').length") < before
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run(closed) == before
    page.print(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.send("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.run("getComputedStyle(document.querySelector('nav')).display") == "none"
        page.send(  # the printable width of A4
            "Emulation.setDeviceMetricsOverride",
            width=718,
            height=1000,
            deviceScaleFactor=1,
            mobile=False,
        )
        page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        page.send("Emulation.setEmulatedMedia", media="")


def test_headings_and_names_guide_those_who_listen(opened: Opened) -> None:
    page = opened()
    levels = page.run(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map((one) => Number(one.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 2 for before, after in pairwise(levels))
    assert page.run("[...document.images].every((image) => image.alt.length > 40)")
    assert page.run("[...document.querySelectorAll('input')].every((one) => one.labels.length)")
    assert page.run(
        "[...document.querySelectorAll('tbody tr > :first-child')]"
        ".every((one) => one.scope === 'row')"
    )
    ids = page.run("[...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
