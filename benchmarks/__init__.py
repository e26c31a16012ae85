"""Speed and memory, measured and printed; nothing here passes or fails.

A benchmark is a module with `TITLE` and `run() -> list[Figure]`, named in `benchmarks.__main__`.
Figures of one benchmark are measured in one run, so that their ratio means something on a machine
that others use as well.
"""
