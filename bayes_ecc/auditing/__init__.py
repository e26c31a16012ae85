"""What is wrong with the data, before anything is fitted to them.

The checks stand in modules by what they look at; each is a function that takes a `Source` and gives
findings, or says why it could not be made. `audit` makes all of them.
"""

from bayes_ecc.auditing.findings import Audit, Finding
from bayes_ecc.auditing.run import audit

__all__ = ["Audit", "Finding", "audit"]
