"""Where bundles come from: public layouts, and a simulator with known truth."""

from bayes_ecc.datasets.alpaca_eval import fetch_alpaca_eval, load_alpaca_eval
from bayes_ecc.datasets.lmarena import fetch_lmarena, load_lmarena
from bayes_ecc.datasets.loaded import Counts, Loaded
from bayes_ecc.datasets.long_table import load_long_table
from bayes_ecc.datasets.mmlu_pro import load_mmlu_pro
from bayes_ecc.datasets.mt_bench import fetch_mt_bench, load_mt_bench
from bayes_ecc.datasets.open_llm_leaderboard import (
    fetch_open_llm_leaderboard,
    load_open_llm_leaderboard,
)
from bayes_ecc.datasets.routerbench import load_routerbench
from bayes_ecc.datasets.routerdc import load_routerdc
from bayes_ecc.datasets.score_arrays import load_score_arrays
from bayes_ecc.datasets.score_matrix import load_score_matrix
from bayes_ecc.datasets.simulate import Simulation, simulate
from bayes_ecc.datasets.sprout import fetch_sprout, load_sprout

__all__ = [
    "Counts",
    "Loaded",
    "Simulation",
    "fetch_alpaca_eval",
    "fetch_lmarena",
    "fetch_mt_bench",
    "fetch_open_llm_leaderboard",
    "fetch_sprout",
    "load_alpaca_eval",
    "load_lmarena",
    "load_long_table",
    "load_mmlu_pro",
    "load_mt_bench",
    "load_open_llm_leaderboard",
    "load_routerbench",
    "load_routerdc",
    "load_score_arrays",
    "load_score_matrix",
    "load_sprout",
    "simulate",
]
