"""Which language model is good at what, and how sure that is."""

from importlib.metadata import version

from bayes_ecc.comparisons import Comparisons, OutcomeCounts
from bayes_ecc.errors import (
    BayesEccError,
    ConvergenceWarning,
    DataWarning,
    InputError,
    NotFittedError,
)

__version__ = version("bayes-ecc")

__all__ = [
    "BayesEccError",
    "Comparisons",
    "ConvergenceWarning",
    "DataWarning",
    "InputError",
    "NotFittedError",
    "OutcomeCounts",
]
