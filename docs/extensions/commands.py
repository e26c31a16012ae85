"""The directive `commands`: what every command of `bayes-ecc` says of itself."""

from __future__ import annotations

import argparse
import os
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from bayes_ecc.cli import make_parser

_COLUMNS = "88"


def help_texts() -> dict[str, str]:
    """Give the help of every command, by name; that of `bayes-ecc` itself comes first."""
    with mock.patch.dict(os.environ, COLUMNS=_COLUMNS, NO_COLOR="1"):
        parser = make_parser()
        found = {"": parser.format_help()}
        for name, command in _subparsers(parser).items():
            found[name] = command.format_help()
            for layout, one in _subparsers(command).items():
                found[f"{name} {layout}"] = one.format_help()
    return found


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


class Commands(SphinxDirective):
    """A section a command, its help as it is printed."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        found: list[nodes.Node] = []
        for name, text in help_texts().items():
            title = f"bayes-ecc {name}".strip()
            section = nodes.section(ids=[nodes.make_id(title)], names=[title])
            section += nodes.title("", "", nodes.literal("", title))
            section += nodes.literal_block(text, text, language="text")
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
