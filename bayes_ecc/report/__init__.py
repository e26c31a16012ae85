"""Reports: a fit as one HTML file that anyone can open, sort, search and print."""

from bayes_ecc.report.write import render_report, write_report

__all__ = ["render_report", "write_report"]
