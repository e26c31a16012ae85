"""Which language model is good at what, and how sure that is."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bayes_ecc.auditing import Audit, Finding, audit
from bayes_ecc.baselines import LabelBradleyTerry
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle, load_bundle, save_bundle
from bayes_ecc.comparisons import Comparisons, OutcomeCounts
from bayes_ecc.datasets.simulate import Simulation, simulate
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.ecc import ECC
from bayes_ecc.em_posterior import compare_em_and_posterior
from bayes_ecc.embeddings import SphereProjection, unit_embeddings
from bayes_ecc.encoders import SentenceTransformerEncoder, encode
from bayes_ecc.errors import (
    BayesEccError,
    ConvergenceWarning,
    DataWarning,
    InputError,
    NotFittedError,
)
from bayes_ecc.inference import (
    cluster_ranking,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
)
from bayes_ecc.metrics import (
    GainInterval,
    bt_loss,
    expected_calibration_error,
    gain_difference_interval,
    gain_interval,
    ranking_quality_gain,
    reliability_bins,
)
from bayes_ecc.posterior import Atoms, as_fitted, atoms, training_data
from bayes_ecc.rankings import summarize_cluster_ranking, summarize_ranking
from bayes_ecc.selection import SearchResult, SettingsSearch, search
from bayes_ecc.storage import load_posterior, save_posterior
from bayes_ecc.summaries import pairwise, summarize_responsibilities, summarize_strengths

if TYPE_CHECKING:
    from bayes_ecc.bayesian import BayesianECC as BayesianECC
    from bayes_ecc.models.ecc_mixture import Priors as Priors

__version__ = version("bayes-ecc")

_SLOW = {
    "BayesianECC": "bayes_ecc.bayesian",
    "Priors": "bayes_ecc.models.ecc_mixture",
}  # importing PyMC takes seconds, and EM needs none


def __getattr__(name: str) -> Any:
    if name in _SLOW:
        return getattr(import_module(_SLOW[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ECC",
    "Atoms",
    "Audit",
    "BayesEccError",
    "BayesianECC",
    "BradleyTerry",
    "Bundle",
    "Comparisons",
    "ConvergenceWarning",
    "DataWarning",
    "Draws",
    "Finding",
    "GainInterval",
    "InputError",
    "LabelBradleyTerry",
    "NotFittedError",
    "OutcomeCounts",
    "Priors",
    "SearchResult",
    "SentenceTransformerEncoder",
    "SettingsSearch",
    "Simulation",
    "SphereProjection",
    "as_fitted",
    "atoms",
    "audit",
    "bt_loss",
    "cluster_ranking",
    "compare_em_and_posterior",
    "encode",
    "expected_calibration_error",
    "gain_difference_interval",
    "gain_interval",
    "load_bundle",
    "load_posterior",
    "pairwise",
    "predict_ranking",
    "predict_responsibilities",
    "predict_win_probability",
    "ranking_quality_gain",
    "read_draws",
    "reliability_bins",
    "save_bundle",
    "save_posterior",
    "search",
    "simulate",
    "summarize_cluster_ranking",
    "summarize_ranking",
    "summarize_responsibilities",
    "summarize_strengths",
    "training_data",
    "unit_embeddings",
]
