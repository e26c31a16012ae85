"""Which language model is good at what, and how sure that is."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bayes_ecc.auditing import Audit, Finding, audit
from bayes_ecc.baselines import LabelBradleyTerry
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle
from bayes_ecc.cell_reading import (
    CellPair,
    CellReading,
    cell_prompt,
    pair_cells,
    parse_cell_reading,
    read_cells,
)
from bayes_ecc.chat import AnswerError
from bayes_ecc.comparisons import Comparisons, OutcomeCounts
from bayes_ecc.datasets.simulate import Simulation, simulate
from bayes_ecc.diagnostics import Diagnosis, attach, diagnose, stored_diagnosis
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
from bayes_ecc.evidence import invariants, pointwise_log_likelihood
from bayes_ecc.folders import load_bundle, save_bundle
from bayes_ecc.inference import (
    cluster_ranking,
    predict_outcome_probabilities,
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
    three_way_loss,
    with_tie_rate,
)
from bayes_ecc.modes import mode_report
from bayes_ecc.onboarding import onboard, start_onboarding
from bayes_ecc.onboarding_state import Onboarding
from bayes_ecc.posterior import Atoms, as_fitted, atoms, thin, training_data
from bayes_ecc.predictive import posterior_predictive
from bayes_ecc.probing import next_probe, probe_values
from bayes_ecc.quality import QualityCalibration, fit_quality
from bayes_ecc.rankings import summarize_cluster_ranking, summarize_ranking
from bayes_ecc.routing import route
from bayes_ecc.score_model import ScoreModel, fit_score_model
from bayes_ecc.score_probing import route_observed, score_probe_values
from bayes_ecc.selection import SearchResult, SettingsSearch, search
from bayes_ecc.stacking import LeaveQueryOut, leave_query_out, stacking_weights
from bayes_ecc.storage import load_posterior, save_posterior
from bayes_ecc.structure import (
    Partition,
    PartitionAgreement,
    changed_cells,
    cluster_profiles,
    co_clustering,
    co_clustering_by_label,
    compare_partitions,
    consensus_partition,
    cross_cluster_gap,
    hard_partition,
    overlap_matrix,
    partition_agreement,
    profile_similarity,
    read_partition,
    structure_draws,
    summarize_structure,
    typical_queries,
    within_cluster_tau,
)
from bayes_ecc.studies import STUDIES, Study, judge_agreement, run_study, summarize_study
from bayes_ecc.summaries import pairwise, summarize_responsibilities, summarize_strengths

if TYPE_CHECKING:
    from bayes_ecc import plots as plots
    from bayes_ecc.bayesian import BayesianECC as BayesianECC
    from bayes_ecc.models.ecc_mixture import Priors as Priors

__version__ = version("bayes-ecc")

_SLOW = {
    "BayesianECC": "bayes_ecc.bayesian",
    "Priors": "bayes_ecc.models.ecc_mixture",
}  # importing PyMC takes seconds, and EM needs none
_SLOW_MODULES = ("plots",)  # importing matplotlib takes long, too


def __getattr__(name: str) -> Any:
    if name in _SLOW:
        return getattr(import_module(_SLOW[name]), name)
    if name in _SLOW_MODULES:
        return import_module(f"bayes_ecc.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ECC",
    "STUDIES",
    "AnswerError",
    "Atoms",
    "Audit",
    "BayesEccError",
    "BayesianECC",
    "BradleyTerry",
    "Bundle",
    "CellPair",
    "CellReading",
    "Comparisons",
    "ConvergenceWarning",
    "DataWarning",
    "Diagnosis",
    "Draws",
    "Finding",
    "GainInterval",
    "InputError",
    "LabelBradleyTerry",
    "LeaveQueryOut",
    "NotFittedError",
    "Onboarding",
    "OutcomeCounts",
    "Partition",
    "PartitionAgreement",
    "Priors",
    "QualityCalibration",
    "ScoreModel",
    "SearchResult",
    "SentenceTransformerEncoder",
    "SettingsSearch",
    "Simulation",
    "SphereProjection",
    "Study",
    "as_fitted",
    "atoms",
    "attach",
    "audit",
    "bt_loss",
    "cell_prompt",
    "changed_cells",
    "cluster_profiles",
    "cluster_ranking",
    "co_clustering",
    "co_clustering_by_label",
    "compare_em_and_posterior",
    "compare_partitions",
    "consensus_partition",
    "cross_cluster_gap",
    "diagnose",
    "encode",
    "expected_calibration_error",
    "fit_quality",
    "fit_score_model",
    "gain_difference_interval",
    "gain_interval",
    "hard_partition",
    "invariants",
    "judge_agreement",
    "leave_query_out",
    "load_bundle",
    "load_posterior",
    "mode_report",
    "next_probe",
    "onboard",
    "overlap_matrix",
    "pair_cells",
    "pairwise",
    "parse_cell_reading",
    "partition_agreement",
    "plots",
    "pointwise_log_likelihood",
    "posterior_predictive",
    "predict_outcome_probabilities",
    "predict_ranking",
    "predict_responsibilities",
    "predict_win_probability",
    "probe_values",
    "profile_similarity",
    "ranking_quality_gain",
    "read_cells",
    "read_draws",
    "read_partition",
    "reliability_bins",
    "route",
    "route_observed",
    "run_study",
    "save_bundle",
    "save_posterior",
    "score_probe_values",
    "search",
    "simulate",
    "stacking_weights",
    "start_onboarding",
    "stored_diagnosis",
    "structure_draws",
    "summarize_cluster_ranking",
    "summarize_ranking",
    "summarize_responsibilities",
    "summarize_strengths",
    "summarize_structure",
    "summarize_study",
    "thin",
    "three_way_loss",
    "training_data",
    "typical_queries",
    "unit_embeddings",
    "with_tie_rate",
    "within_cluster_tau",
]
