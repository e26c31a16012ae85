"""The command line, `bayes-ecc`: one module of this package a command.

A command's module has `add_parser(subparsers)`, which adds its options, and `run(args) -> int`,
which does the work and gives the exit code; it stands in `COMMANDS`. What takes long to import is
imported inside `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from bayes_ecc.cli import audit, convert, demo, evaluate, fit, onboard, rank, report, route, study
from bayes_ecc.cli.output import complain, short_warnings
from bayes_ecc.errors import BayesEccError

COMMANDS = (demo, convert, audit, evaluate, study, fit, rank, report, route, onboard)
"""The commands, in the order of `bayes-ecc --help`."""

REFUSED = 2
"""Exit code where something was refused: options, files, data."""
INTERRUPTED = 130
BROKEN_PIPE = 141

_EXAMPLES = """\
examples:
  bayes-ecc demo
  bayes-ecc evaluate data/routerdc --methods global,labels:task,ecc,ecc:auto --json result.json

`bayes-ecc COMMAND --help` tells a command's options.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that refuses in one line, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (`{self.prog} --help` tells the options)")
        self.exit(REFUSED)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = _Parser(
        prog="bayes-ecc",
        description="Which language model is good at what, and how sure that is.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('bayes_ecc')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        The exit code: 0, 1 where an audit found errors, 2 where something was refused, 130 where
        it was interrupted, 141 where nobody reads the output any longer.

    Examples
    --------
    >>> from bayes_ecc.cli import main
    >>> main(["--version"])
    bayes-ecc ...
    0
    """
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = make_parser().parse_args(argv)
        args.argv = list(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:  # argparse has said what there is to say
        return end.code if isinstance(end.code, int) else REFUSED
    try:
        with short_warnings():
            return args.run(args)
    except BayesEccError as error:
        complain(str(error))
        return REFUSED
    except KeyboardInterrupt:
        complain("interrupted.")
        return INTERRUPTED


def _silence_stdout() -> None:
    """Send what is still in the buffer nowhere, so that the interpreter's end stays quiet too."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # a stream without a file behind it
        pass
