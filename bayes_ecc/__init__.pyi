"""Names are imported when they are first used; this file says where each lives."""

from . import plots
from .auditing import Audit, Finding, audit
from .baselines import LabelBradleyTerry
from .bayesian import BayesianECC
from .bradley_terry import BradleyTerry
from .bundle import Bundle
from .calibration import expected_calibration_error, reliability_bins
from .cell_reading import (
    CellPair,
    CellReading,
    cell_prompt,
    pair_cells,
    parse_cell_reading,
    read_cells,
)
from .chat import AnswerError
from .comparisons import Comparisons
from .counts import OutcomeCounts
from .datasets.simulate import Simulation, simulate
from .diagnostics import Diagnosis, attach, diagnose, stored_diagnosis
from .draws import Draws, read_draws
from .ecc import ECC
from .em_posterior import compare_em_and_posterior
from .embeddings import SphereProjection, unit_embeddings
from .encoders import SentenceTransformerEncoder, encode
from .errors import BayesEccError, ConvergenceWarning, DataWarning, InputError, NotFittedError
from .evaluation import EvaluationSettings, evaluate
from .evidence import invariants, pointwise_log_likelihood
from .folders import load_bundle, save_bundle
from .inference import (
    cluster_ranking,
    fitted_responsibilities,
    predict_outcome_probabilities,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
)
from .metrics import (
    GainInterval,
    bt_loss,
    gain_difference_interval,
    gain_interval,
    ranking_quality_gain,
)
from .models.ecc_mixture import Priors
from .modes import mode_report
from .onboarding import onboard, start_onboarding
from .onboarding_state import Onboarding
from .posterior import Atoms, as_fitted, atoms, select_chain, thin, training_data
from .predictive import posterior_predictive
from .probing import next_probe, probe_values
from .quality import QualityCalibration, fit_quality
from .rankings import summarize_cluster_ranking, summarize_ranking
from .report import render_report, write_report
from .routing import route
from .routing_study import study_routing
from .score_model import ScoreModel, fit_score_model
from .score_probing import route_observed, score_probe_values
from .selection import SearchResult, SettingsSearch, search
from .splits import Split, draw_split, frozen_split
from .stacking import LeaveQueryOut, leave_query_out, stacking_weights
from .storage import load_posterior, save_posterior
from .structure import (
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
from .studies import STUDIES, Study, judge_agreement, run_study, summarize_study
from .summaries import pairwise, summarize_responsibilities, summarize_strengths
from .three_way import three_way_loss, with_tie_rate

__version__: str

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
    "EvaluationSettings",
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
    "Split",
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
    "draw_split",
    "encode",
    "evaluate",
    "expected_calibration_error",
    "fit_quality",
    "fit_score_model",
    "fitted_responsibilities",
    "frozen_split",
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
    "render_report",
    "route",
    "route_observed",
    "run_study",
    "save_bundle",
    "save_posterior",
    "score_probe_values",
    "search",
    "select_chain",
    "simulate",
    "stacking_weights",
    "start_onboarding",
    "stored_diagnosis",
    "structure_draws",
    "study_routing",
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
    "write_report",
]
