"""Pieces that the sections of a report share: headings, callouts, badges, figures, commands."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bayes_ecc.report.markup import Content, Markup, join, tag

SCALE = 1.5
"""Pixels of a picture for one of the page, so that it is sharp where it is enlarged."""


class Figure(NamedTuple):
    """A picture (PNG) with what it shows in words, for those who do not see it, and below it."""

    png: bytes
    alt: str
    caption: Content


class Section(NamedTuple):
    """A section: the name that links lead to, its title, and what is in it."""

    name: str
    title: str
    contents: Markup


def section(name: str, title: str, *contents: Content) -> Section:
    """Make a section."""
    return Section(name, title, join(contents))


def paragraph(*contents: Content) -> Markup:
    """Make a paragraph."""
    return tag("p", contents)


def callout(kind: str, title: str, *contents: Content) -> Markup:
    """Set something apart: `kind` is "note", "warn" or "fail"."""
    return tag("div", tag("p", tag("strong", title)), contents, class_=f"callout {kind}")


def badge(kind: str, text: str) -> Markup:
    """Mark a verdict, in words and in colour."""
    return tag("span", text, class_=f"badge {kind}")


def bullets(items: Iterable[Content]) -> Markup:
    """List things."""
    return tag("ul", [tag("li", item) for item in items])


def terms(meanings: Mapping[str, Content]) -> Markup:
    """List terms with what they mean or are."""
    rows = [tag("div", tag("dt", term), tag("dd", value)) for term, value in meanings.items()]
    return tag("dl", rows)


def command(text: str) -> Markup:
    """Show something to type."""
    return tag("pre", tag("code", text), tabindex="0")


def figure(picture: Figure | None) -> Markup | None:
    """Put a picture into the page."""
    if picture is None:
        return None
    data = base64.b64encode(picture.png).decode("ascii")
    width, height = struct.unpack(">II", picture.png[16:24])  # where every PNG tells them
    image = tag(
        "img",
        src=f"data:image/png;base64,{data}",
        alt=picture.alt,
        width=round(width / SCALE),
        height=round(height / SCALE),
    )
    return tag(
        "figure",
        tag("div", image, class_="paper", role="region", tabindex="0", aria_label="figure"),
        tag("figcaption", picture.caption),
    )
