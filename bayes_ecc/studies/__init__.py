"""Studies: tidy tables from grids over methods, settings, data and seeds."""

from bayes_ecc.studies.cells import SETTINGS, Cell, grid_cells
from bayes_ecc.studies.data import StudyData
from bayes_ecc.studies.judges import judge_agreement
from bayes_ecc.studies.presets import STUDIES, Study, find_study
from bayes_ecc.studies.run import (
    COLUMNS,
    METHODS,
    base_cell,
    best_of,
    run_cells,
    run_study,
    summarize_study,
)

__all__ = [
    "COLUMNS",
    "METHODS",
    "SETTINGS",
    "STUDIES",
    "Cell",
    "Study",
    "StudyData",
    "base_cell",
    "best_of",
    "find_study",
    "grid_cells",
    "judge_agreement",
    "run_cells",
    "run_study",
    "summarize_study",
]
