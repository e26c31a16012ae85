"""The page around the sections: one file that loads nothing, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib import resources

from bayes_ecc.report.markup import Content, Markup, isolated, tag
from bayes_ecc.report.parts import Section

_FILES = "bayes_ecc.report"


def page(
    title: str,
    subtitle: Content,
    short: Mapping[str, Content],
    sections: Sequence[Section],
    made: datetime,
    version: str,
) -> str:
    """Put a report together.

    Parameters
    ----------
    title : str
    subtitle : content
        Below the title.
    short : mapping
        The key figures.
    sections : sequence of Section
    made : datetime
        When it was made.
    version : str
        Of this library.

    Returns
    -------
    str
        A whole HTML file.
    """
    style, script = _file("report.css"), _file("report.js")
    # no source is allowed but images inside the file, and the one style and script, by their hashes
    policy = "; ".join(
        (
            "default-src 'none'",
            f"style-src {_hash(style)}",
            f"script-src {_hash(script)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"bayes_ecc {version}"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    links = [tag("li", tag("a", one.title, href=f"#{one.name}")) for one in sections]
    stamp = made.strftime("%Y-%m-%d %H:%M %Z").strip()
    body = tag(
        "body",
        tag("a", "To the contents", class_="skip", href="#contents"),
        tag(
            "div",
            tag("header", tag("h1", isolated(title)), tag("p", subtitle, class_="quiet")),
            tag(
                "dl",
                [tag("div", tag("dt", term), tag("dd", told)) for term, told in short.items()],
                class_="figures",
            ),
            tag("nav", tag("ul", links), aria_label="Contents", id="contents"),
            tag("main", [_section(one) for one in sections]),
            tag("footer", tag("p", f"Made by bayes_ecc {version} on {stamp}.")),
            class_="page",
        ),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _section(one: Section) -> Markup:
    title = tag("h2", one.title, id=f"{one.name}-title")
    return tag("section", title, one.contents, id=one.name, aria_labelledby=f"{one.name}-title")


def _file(name: str) -> str:
    text = resources.files(_FILES).joinpath(name).read_text(encoding="utf-8")
    if "</" in text:  # it would end the element that it stands in
        raise ValueError(f"{name} must not hold </")
    return text


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
