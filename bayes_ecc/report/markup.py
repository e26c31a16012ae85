"""HTML that cannot be broken by what it shows: text becomes markup only through these functions.

Everything that is not `Markup` already is escaped, so nothing has to be remembered. Characters that
a reader would not see, or that would reorder what is around them, are written out by their codes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

type Content = Any
"""Markup, text, numbers, None for nothing, or an iterable of those."""

VOID = frozenset({"br", "col", "hr", "img", "input", "meta", "link"})

# Controls, lone surrogates, noncharacters, marks and overrides of direction, invisible characters
# and tags. Joiners stay, for scripts and emoji need them; line breaks and tabs are text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
    "|[\U0001fffe\U0001ffff\U0010fffe\U0010ffff]"
)
_MARK = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
# more marks on one letter than any language has would cover the lines above
_MARKS = re.compile(f"({_MARK}{{4}})({_MARK}+)")
_LONGEST_NAME = 120
_NAME = re.compile(r"[a-z][a-z0-9-]*", re.IGNORECASE)


class Markup(str):
    """Text that is HTML already; made by `tag`, `join` and `escaped`, never from data.

    Examples
    --------
    >>> from bayes_ecc.report.markup import Markup, escaped
    >>> isinstance(escaped("a < b"), Markup), escaped("a < b")
    (True, 'a &lt; b')
    """

    __slots__ = ()


def visible(text: object) -> str:
    r"""Write out what could not be seen or would reorder its surroundings.

    Examples
    --------
    >>> from bayes_ecc.report.markup import visible
    >>> visible("safe\u202etxt.exe")
    'safe⟨U+202E⟩txt.exe'
    """
    plain = str(text).replace("\r\n", "\n").replace("\r", "\n")
    plain = _MARKS.sub(lambda found: f"{found[1]}\u27e8+{len(found[2])}\u27e9", plain)
    return _UNSEEN.sub(lambda found: f"\u27e8U+{ord(found.group()):04X}\u27e9", plain)


def escaped(text: object) -> Markup:
    """Turn text into HTML that shows it."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(visible(text)))


def join(*contents: Content) -> Markup:
    """Put contents one after the other.

    Examples
    --------
    >>> from bayes_ecc.report.markup import join, tag
    >>> join("a < b, ", [tag("b", 1), None, 2])
    'a &lt; b, <b>1</b>2'
    """
    return Markup("".join(_parts(contents)))


def _parts(contents: Iterable[Content]) -> Iterable[str]:
    for content in contents:
        if content is None:
            continue
        if isinstance(content, str) or not isinstance(content, Iterable):
            yield escaped(content)
        else:
            yield from _parts(content)


def tag(name: str, /, *contents: Content, **attributes: Any) -> Markup:
    """Make an element.

    Parameters
    ----------
    name : str
        Of the element.
    *contents
        What is in it.
    **attributes
        Underscores become hyphens, one at the end is dropped (`class_`); True gives an attribute
        without a value, None and False none at all.

    Returns
    -------
    Markup

    Examples
    --------
    >>> from bayes_ecc.report.markup import tag
    >>> tag("td", "<script>", class_="number", data_sort='"1"')
    '<td class="number" data-sort="&quot;1&quot;">&lt;script&gt;</td>'
    """
    written = "".join(
        f" {_attribute(key)}"
        if value is True
        else f' {_attribute(key)}="{html.escape(visible(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*contents)}</{name}>")


def _attribute(key: str) -> str:
    name = key.removesuffix("_").replace("_", "-")
    # handlers and styles have no place here: the page's policy would refuse them, too
    if not _NAME.fullmatch(name) or name.lower().startswith("on") or name == "style":
        raise ValueError(f"{key} is no attribute to write")
    return name


def isolated(text: object) -> Markup:
    """Show a name of the data by itself, whatever direction it runs in; a long one in part.

    Examples
    --------
    >>> from bayes_ecc.report.markup import isolated
    >>> isolated("a<b"), len(isolated("x" * 1000))
    ('<bdi>a&lt;b</bdi>', 134)
    """
    whole = str(text)
    if len(whole) > _LONGEST_NAME:
        half = _LONGEST_NAME // 2
        whole = f"{whole[:half]}...{whole[-half:]}"
    return tag("bdi", whole)


def shortened(text: object, limit: int) -> tuple[str, int]:
    """Cut a text after so many characters: what is left, and how many were cut off.

    Examples
    --------
    >>> from bayes_ecc.report.markup import shortened
    >>> shortened("x" * 12, 10)
    ('xxxxxxxxxx', 2)
    """
    whole = str(text)
    return whole[:limit], max(0, len(whole) - limit)
