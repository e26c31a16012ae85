"""`python -m benchmarks [NAME ...]`: run benchmarks and print what they measured."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from types import ModuleType

import numpy as np

from bayes_ecc.cli.output import Column, definitions, format_table, terminal_width
from benchmarks import bayes_memory, copies, em_iteration, gibbs, memory, routing, small_data

BENCHMARKS: dict[str, ModuleType] = {
    "em": em_iteration,
    "memory": memory,
    "copies": copies,
    "gibbs": gibbs,
    "bayes_memory": bayes_memory,
    "routing": routing,
    "small_data": small_data,
}


def load() -> str:
    """Say how busy the machine is: other processes on its cores spoil figures of speed."""
    if not hasattr(os, "getloadavg"):
        return "load unknown"
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure speed and memory."
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which to run: {', '.join(BENCHMARKS)} (default: all but those that take an hour)",
    )
    quick = [name for name, b in BENCHMARKS.items() if not getattr(b, "ON_REQUEST", False)]
    names = parser.parse_args().names or quick
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    for name in names:
        benchmark = BENCHMARKS[name]
        before, began = load(), time.perf_counter()
        figures = benchmark.run()
        took = time.perf_counter() - began
        print(f"\n{benchmark.TITLE}\n({name}: {before} before, {load()} after; {took:.0f} s)")
        columns = [
            Column("measured", [figure.what for figure in figures]),
            Column("figure", [figure.value for figure in figures]),
            Column("wanted", [figure.wanted for figure in figures]),
        ]
        print(format_table(columns, terminal_width()))
        if benchmark.NOTES:
            print(definitions(benchmark.NOTES, terminal_width()))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
