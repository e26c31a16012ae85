# %% [markdown]
# # Quickstart: which LLM for which query, and how sure?
#
# A leaderboard ranks language models once, for everything. Here are 6,108 queries from fourteen benchmark
# tasks and the scores of nine LLMs on each (RouterDC). We ask three things of them: is one ranking enough;
# which LLM is best on *this* query; and how far can the answer be trusted?

# %%
import matplotlib.pyplot as plt
import pandas as pd

from bayes_ecc import (
    ECC,
    BayesianECC,
    BradleyTerry,
    expected_calibration_error,
    gain_interval,
    ranking_quality_gain,
    summarize_ranking,
)
from bayes_ecc.plots import plot_ranks
from bayes_ecc.splits import draw_split, predict_signal
from data import choose, load  # the file data.py beside this notebook

bundle = load("routerdc")
bundle

# %% [markdown]
# A *bundle* is a folder with a table of queries, a table of scores (or of pairwise votes) and their
# embeddings; `load_bundle` reads it. Scores become pairwise comparisons: on each query up to seven pairs of
# LLMs whose scores differ. A fifth of the queries is set aside to be predicted. Of each of those one
# comparison is known beforehand, its *probe*, as if two LLMs had been tried on the query.

# %%
split = draw_split(bundle, seed=0)
print("train:", split.train)
print("left out:", dict(split.train.dropped))
print("test: ", split.scored)
print("probes:", split.probes)

# %% [markdown]
# ## One ranking for all
#
# The Bradley-Terry model turns the comparisons into a leaderboard: strengths in logits, whose differences say
# who beats whom how often. It is the baseline of everything that follows.

# %%
leaderboard = BradleyTerry().fit(split.train)
leaderboard.strengths_.to_series().sort_values(ascending=False).round(2).to_frame("strength")

# %% [markdown]
# ## A ranking for each kind of query
#
# `ECC` groups the queries, by their embeddings *and* by what the comparisons say, so that one ranking holds
# within each group. `BayesianECC` is the same idea as a posterior: it knows how sure it is. Both choose their
# weights on training queries where they are set to "auto"; here they are written down to keep this short.

# %%
n_clusters = choose(20, 5)
ecc = ECC(n_clusters, embedding_weight=1.0, ridge=0.1, rng=0)
ecc.fit(split.train, split.train_embeddings)
print(f"EM: {ecc.n_iter_} iterations, converged: {ecc.converged_}")

bayes = BayesianECC(
    n_clusters,
    concentration=8.0,
    probe_power=8.0,
    chains=4,
    tune=choose(300, 40),
    draws=choose(300, 40),
    checks=False,  # see the third notebook
    cores=1,
    progress=False,
    rng=0,
)
bayes.fit(split.train, split.train_embeddings)
print("weights of the chains:", bayes.posterior_["constant_data"]["chain_weights"].values.round(2))

# %% [markdown]
# ## Did it help?
#
# The **gain** is the share of the leaderboard's loss on held-out comparisons that a method saves, in percent,
# with a bootstrap interval over queries. **ECE** is the calibration error of the predicted win probabilities.
# Signal `embedding` is what is known of a query before anything is run on it; `embedding+probe` knows one
# comparison as well.

# %%
baseline = leaderboard.predict_win_probability(split.scored)
rows = []
for name, fit in {"ECC": ecc, "BayesianECC": bayes}.items():
    for signal in ("embedding", "embedding+probe"):
        p = predict_signal(fit, split, signal)
        interval = gain_interval(p, baseline, split.scored, rng=0)
        rows.append(
            {
                "method": name,
                "signal": signal,
                "gain %": round(ranking_quality_gain(p, baseline, split.scored), 1),
                "interval": f"{interval.low:.1f} to {interval.high:.1f}",
                "ECE": round(expected_calibration_error(p, split.scored), 3),
            }
        )
gains = pd.DataFrame(rows).set_index(["method", "signal"])
gains

# %% [markdown]
# Grouping pays. With one probe about a third of the leaderboard's loss is saved. From the embedding alone the
# posterior saves more than a fifth, and EM less. The posterior's win probabilities are also the better
# calibrated: its ECE is near 0.02, EM's above 0.05. With the probe the two intervals overlap; the third
# notebook compares the methods query by query, which is sharper.
#
# ## One query
#
# What does the posterior say of a single query? In every draw the LLMs are ranked by their mean win
# probability; the spread of those ranks over draws is what is not known. We take the query in the middle: half
# of the test queries have a surer favourite, half a less sure one.

# %%
known = {"embeddings": split.test_embeddings, "queries": split.scored.queries}
before = summarize_ranking(bayes.posterior_, **known)
after = summarize_ranking(bayes.posterior_, probes=split.probes, **known)
sureness = before["p_best"].max("llm").to_series().sort_values()
query = sureness.index[len(sureness) // 2]
about = bundle.queries.set_index("query_id").loc[query]
print(about["task"], "-", about["text"][:300].strip())
probe = split.probes.to_frame().set_index("query_id").loc[query]
winner = probe["model_b"] if probe["outcome"] == 1 else probe["model_a"]
print(f"\nprobe: {probe['model_a']} against {probe['model_b']}, won by {winner}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4))
plot_ranks(before, query, ax=left)
plot_ranks(after, query, ax=right)
left.set_title("from the embedding alone", loc="left", fontsize=10)
right.set_title("and with one probe", loc="left", fontsize=10)
for ax in (left, right):
    ax.get_legend().remove()  # filled dots can't be told from the best

# %% [markdown]
# From the embedding alone one LLM is the likely best, but a second one can't be told from it (filled dots). The
# probe was a comparison of two *other* LLMs, and yet it settles the matter: it tells what kind of query this
# is, and that is what decides which LLM is best.
#
# ## Is it right to be sure?
#
# The score table knows what every LLM made of every test query. We sort the test queries by how sure the
# posterior is of its favourite, from the embedding alone, and look what the favourite scored, next to the
# first of the leaderboard and to the best LLM of each query, which nobody knows beforehand.

# %%
scores = bundle.scores.set_index("query_id").loc[before["query"].values, before["llm"].values]
row = range(len(scores))
favourite = before["p_best"].values.argmax(axis=1)
first = scores.columns.get_loc(leaderboard.strengths_.to_series().idxmax())
found = pd.DataFrame(
    {
        "P(best) of the favourite": before["p_best"].max("llm").values,
        "favourite": scores.values[row, favourite],
        "leaderboard's first": scores.values[:, first],
        "best of the query": scores.max(axis=1).values,
    }
)
third = pd.qcut(
    found["P(best) of the favourite"].rank(method="first"),
    3,
    labels=["least sure", "middle", "surest"],
)
found.groupby(third, observed=True).mean().rename_axis("queries").round(3)

# %% [markdown]
# Where the posterior is sure, following it pays: in the surest third its favourite scores clearly more than the
# leaderboard's first LLM. In the other two thirds both score about the same, and there the posterior said
# beforehand that it does not know. That is what it is good for. The distance to the best LLM of each query
# remains large everywhere: which LLM happens to succeed on a single query can hardly be foreseen from its text.
#
# ## Keeping the fit
#
# `save_posterior(bayes.posterior_, "fit.nc")` writes one netCDF file, `load_posterior` reads it, and a loaded
# fit predicts bit for bit the same. From a terminal, `bayes-ecc fit` and `bayes-ecc rank` do what this
# notebook did. The next notebook looks into the clusters.
