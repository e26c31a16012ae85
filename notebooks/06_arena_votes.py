# %% [markdown]
# # Bringing your own arena votes
#
# You have a CSV file: who was shown, who was preferred. No scores, no embeddings. This is the way from there to a
# ranking with intervals, and to a report to hand on. No arena's votes come with these notebooks, so we make a file
# that looks like one: on each of some thousand RouterDC queries two LLMs at random, the one with the higher score
# preferred, ties among them. That has an advantage: all scores are known, and the intervals can be checked.

# %%
import os
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from bayes_ecc import (
    BayesianECC,
    BradleyTerry,
    audit,
    load_bundle,
    pairwise,
    ranking_quality_gain,
    save_posterior,
    summarize_cluster_ranking,
)
from bayes_ecc.cli import main
from bayes_ecc.plots import plot_onboarding, plot_ranks
from bayes_ecc.splits import draw_split
from data import choose, load

source = load("routerdc", n_queries=4000)
home, folder = Path.cwd(), tempfile.TemporaryDirectory()
os.chdir(folder.name)  # what is written here is gone when the notebook ends


def vote(source, votes_per_question, rng, ties=True):
    """Let so many pairs of LLMs meet on each question, or fewer if there are no more."""
    models = source.models.to_numpy()
    scores = source.scores.set_index("query_id").loc[source.query_ids, models].to_numpy()
    pairs = np.array(list(combinations(range(len(models)), 2)))
    rows = []
    for q, query in enumerate(source.query_ids):
        differ = scores[q, pairs[:, 0]] != scores[q, pairs[:, 1]]
        allowed = pairs if ties else pairs[differ]
        for pair in rng.permutation(allowed)[:votes_per_question]:
            left, right = rng.permutation(pair)
            preferred = ["left", "both", "right"][
                1 + int(np.sign(scores[q, right] - scores[q, left]))
            ]
            rows.append((query, source.queries["text"][q], models[left], models[right], preferred))
    return pd.DataFrame(rows, columns=["question", "prompt", "left", "right", "preferred"])


vote(source, 1, np.random.default_rng(0)).to_csv("votes.csv", index=False)
pd.read_csv("votes.csv", nrows=4)

# %% [markdown]
# ## From the file to a data set
#
# `bayes-ecc convert` (here called from Python) is told which column is which and what the words mean. It accounts for
# every row; a word it does not know is refused, never guessed.

# %%
command = ["convert", "long_table", "votes.csv", "votes"]
command += ["--columns", "query_id=question", "--columns", "text=prompt"]
command += [
    "--columns",
    "model_a=left",
    "--columns",
    "model_b=right",
    "--columns",
    "winner=preferred",
]
command += ["--winners", "left=model_a", "--winners", "right=model_b", "--winners", "both=tie"]
code = main(command)

# %%
bundle = load_bundle("votes")
print(audit(bundle))

# %% [markdown]
# Two thirds of the votes are ties, which is what real score tables look like, and nothing stands against a fit.
#
# ## A ranking, and how sure it is
#
# With one vote a question nothing tells questions apart, so there is one cluster and one ranking. `ties="rao_kupper"`
# gives ties a likelihood of their own, with a margin learnt from the data.

# %%
votes = bundle.draw_comparisons(min_per_query=1)
sampling = {
    "tune": choose(500, 50),
    "draws": choose(500, 100),
    "cores": 1,
    "progress": False,
    "rng": 0,
}
fit = BayesianECC(1, ties="rao_kupper", **sampling).fit(votes)
print(fit.diagnosis_)
ax = plot_ranks(fit)

# %% [markdown]
# Every check passes: with one cluster there is one solution, and the chains agree on it. Two LLMs may be the best,
# two have their place for certain, and the others may change places with a neighbour. Does the truth lie where the
# intervals say?


# %%
def ranks(fit):
    """Ranks of a fit with one cluster, with their intervals."""
    found = summarize_cluster_ranking(fit.posterior_).isel(cluster=0, drop=True)
    return found[["rank", "rank_lower", "rank_upper", "p_best"]].to_dataframe()


check = ranks(fit)
means = source.scores.set_index("query_id").mean()[check.index]
check["mean score"] = means
check["true rank"] = means.rank(ascending=False).astype(int)
check["inside"] = check["true rank"].between(check["rank_lower"], check["rank_upper"])
check.sort_values("true rank").round(2)

# %% [markdown]
# It does, for all nine. The last two are expected in the wrong order, and the posterior said beforehand that they may
# be the other way round.
#
# Being sure who is stronger is not the same as winning every vote:

# %%
stronger = pairwise(fit.posterior_).isel(cluster=0, drop=True)
known = stronger.where(stronger["p_stronger"] > 0.95)["p_win"].to_series().dropna()
first, second = known.idxmin()
pair = stronger.sel(llm=first, llm_other=second)
print(f"{first} and {second}:")
print(f"  a single vote, ties counting half (p_win)    {float(pair['p_win']):.2f}")
print(f"  one is the stronger of the two (p_stronger)  {float(pair['p_stronger']):.2f}")

# %% [markdown]
# The first of these two is almost surely the stronger one, and yet in a single vote its advantage is slight.
#
# ## How many votes are enough?

# %%
rows = []
middle = check["true rank"].sort_values().index[len(check) // 2]
order = np.random.default_rng(0).permutation(votes.n_queries)
for n in choose((125, 250, 500, 1000, 2000, 4000), (125, 500)):
    part = BayesianECC(1, ties="rao_kupper", starts="em", checks=False, **sampling)
    part.fit(votes.take(order < n))
    for llm, row in ranks(part).iterrows():
        rows.append(
            {"n": n, "llm": llm, "rank": row["rank"], "low": row.rank_lower, "high": row.rank_upper}
        )
growth = pd.DataFrame(rows)
width = growth.assign(places=growth["high"] - growth["low"] + 1).groupby("n")["places"].mean()
print("places an interval spans, on average:", width.round(1).to_dict())
ax = plot_onboarding(
    growth[growth["llm"] == middle], target=check["true rank"][middle], n_models=len(check)
)
ax.set_xlabel("votes, of all LLMs together")
title = ax.set_title(middle, loc="left", fontsize=10)

# %% [markdown]
# A hundred votes leave an LLM anywhere in half of the table; with four thousand the intervals span two places. The
# LLM in the figure was long thought to be better than it is. Its interval held its rank by all scores, the dashed
# line, all the time.
#
# ## Several votes a question
#
# Where the same questions are put to many pairs, votes alone tell kinds of question apart: who wins on a question
# says who will win on it next. Clusters then need no embeddings.

# %%
vote(source, 7, np.random.default_rng(1), ties=False).to_csv("many.csv", index=False)
command[2:4] = ["many.csv", "many"]
code = main(command)
split = draw_split(load_bundle("many"), seed=0)
baseline = BradleyTerry().fit(split.train).predict_win_probability(split.scored)
clusters = BayesianECC(choose(10, 4), checks=False, **{**sampling, "tune": choose(300, 50)})
clusters.fit(split.train)
p = clusters.predict_win_probability(split.scored, probes=split.probes)
print("probe power chosen on training questions:", clusters.settings_["probe_power"])
print(
    f"gain with one vote known of a new question: {ranking_quality_gain(p, baseline, split.scored):.1f} %"
)

# %% [markdown]
# With one vote known of a new question about a quarter of the loss of a single ranking is saved, without a look at
# any text. (We drew votes on which LLMs differ. A tie tells little of what kind of question it is: with two ties in
# three votes there would be next to no gain.)
#
# ## A report to hand on

# %%
save_posterior(fit.posterior_, "fit.nc")
code = main(["report", "fit.nc", "--bundle", "votes", "--out", "report.html"])
print(f"report.html: {Path('report.html').stat().st_size / 1e6:.1f} MB in one file")

# %%
os.chdir(home)
folder.cleanup()

# %% [markdown]
# From a terminal the whole way is
#
#     bayes-ecc convert long_table votes.csv votes --columns query_id=question ...
#     bayes-ecc audit votes
#     bayes-ecc fit votes --clusters 1 --out fit.nc
#     bayes-ecc report fit.nc --bundle votes --out report.html
#
# If the questions' texts are there, `encode` (extra `text`) turns them into embeddings, and everything of the
# first notebook becomes possible.
