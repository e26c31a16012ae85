# %% [markdown]
# # Capability clusters of benchmark results
#
# Benchmarks come with labels: arithmetic, code, common sense. Are these the kinds of query that matter for
# *which LLM is good at them*? We let the comparisons decide, look at the clusters they form and at what each is
# good for, and ask of every statement how sure it is. First on RouterDC (nine LLMs, fourteen tasks), then on
# MMLU-Pro (28 LLMs, fourteen subjects), where the answer is a different one.

# %%
import pandas as pd
from IPython.display import display

from bayes_ecc import (
    BayesianECC,
    BradleyTerry,
    LabelBradleyTerry,
    cluster_profiles,
    co_clustering_by_label,
    cross_cluster_gap,
    hard_partition,
    overlap_matrix,
    partition_agreement,
    profile_similarity,
    ranking_quality_gain,
    summarize_cluster_ranking,
    summarize_responsibilities,
    summarize_structure,
    typical_queries,
    within_cluster_tau,
)
from bayes_ecc.plots import (
    plot_cluster_ranks,
    plot_overlap,
    plot_p_best,
    plot_query_map,
    plot_responsibilities,
)
from bayes_ecc.splits import draw_split
from data import choose, load

bundle = load("routerdc")
comparisons = bundle.draw_comparisons(per_query=7, rng=0)
embeddings = bundle.embeddings_for(comparisons.queries)
tasks = bundle.labels("task").loc[comparisons.queries]
comparisons

# %% [markdown]
# Clusters to be *read* should be stable, so all chains start from one EM solution (`starts="em"`) and explore
# what is around it. The concentration says how much the texts count beside the comparisons. We set it to 16,
# twice what predicts best on these data: the clusters then stay closer to the texts and are easier to read.
#
# We shall look at the very queries that are fitted, by handing their comparisons over as `probes`. In the fit a
# comparison counts with the *evidence power*, here 1; a probe counts with the *probe power*, which for new queries
# is better larger. `probe_power=1.0` makes the two the same, so that the queries are read as the fit read them. For
# a fit with another probe power `as_fitted(fit.posterior_)` does so, with the comparisons and embeddings that
# `training_data(fit.posterior_)` gives.

# %%
fit = BayesianECC(
    choose(12, 5),
    concentration=16.0,
    probe_power=1.0,
    starts="em",
    tune=choose(500, 30),
    draws=choose(500, 30),
    cores=1,
    progress=False,
    rng=0,
)
fit.fit(comparisons, embeddings)
fit.diagnosis_.table[["verdict", "figures", "threshold"]]

# %% [markdown]
# The chains hold the same clusters (`modes`), so cluster 3 is one and the same thing in all of them. What fails or
# warns says what not to lean on: some strengths within clusters wander slowly from chain to chain, the *size* of
# others is known by its sign only, and another prior would move the global contrasts. Ranks and win probabilities,
# which we read below, are what the remedies recommend.
# `print(fit.diagnosis_)` says all this in sentences, with remedies.
#
# ## What is in the clusters

# %%
known = {"embeddings": embeddings, "probes": comparisons, "queries": comparisons.queries}
responsibilities = summarize_responsibilities(fit.posterior_, **known)
cluster_of = hard_partition(fit)
texts = bundle.queries.set_index("query_id")["text"]

rows = []
typical = typical_queries(fit, embeddings=embeddings, n=1).set_index("cluster")["query"]
for k, members in tasks.groupby(cluster_of.loc[tasks.index]):
    shares = members.value_counts(normalize=True).head(3)
    rows.append(
        {
            "cluster": k,
            "queries": len(members),
            "tasks": ", ".join(f"{name} {share:.0%}" for name, share in shares.items()),
            "most typical query": " ".join(str(texts[typical[k]]).split())[:80],
        }
    )
with pd.option_context("display.max_colwidth", None):
    display(pd.DataFrame(rows).set_index("cluster"))

# %% [markdown]
# Nobody told the model of tasks, and most clusters are easily named all the same: arithmetic word problems (10),
# code (5), facts (0), hard science (3), sentences to be made from given words (2), logic puzzles (7).

# %%
ax = plot_query_map(fit)

# %% [markdown]
# Word problems (10) and code (5) stand apart in the embeddings. The questions of common sense and school science
# overlap in this projection, and there the comparisons have to tell them apart.
#
# ## Who is good at what
#
# In every draw the LLMs are ranked in every cluster. A dot is the expected rank, the bar its interval; filled
# dots can't be told from the best.

# %%
ranking = summarize_cluster_ranking(fit.posterior_)
panels = plot_cluster_ranks(ranking, most=12)

# %%
ax = plot_p_best(ranking)

# %% [markdown]
# There is no best LLM. `llama3-chatqa-1.5-70b`, among the last in most clusters, is the best of all on facts
# (cluster 0), and the posterior has no doubt of it. In nine of the twelve clusters one LLM is best with a
# probability of 0.97 or more; in clusters 5, 6 and 7 two can't be told apart. A single leaderboard says none of
# this.
#
# ## How sure is a query's place
#
# Queries belong to clusters with probabilities, and those have intervals of their own. Here is
# one of the tenth that is least decided:

# %%
entropy = responsibilities["entropy"].to_series().sort_values()
query = entropy.index[int(0.9 * len(entropy))]
print(tasks[query], "-", " ".join(str(texts[query]).split())[:200])
ax = plot_responsibilities(responsibilities, query, most=5)
share = (responsibilities["mean"].max("cluster") > 0.9).mean()
print(f"\nin one cluster with more than 0.9: {float(share):.0%} of the queries")

# %% [markdown]
# Most queries have a clear place. This one hesitates between two clusters, and the intervals say that the share of
# each is itself only roughly known.
#
# ## Clusters against tasks

# %%
ax = plot_overlap(overlap_matrix(tasks, fit)["queries"].rename(first="task", second="cluster"))
print(partition_agreement(tasks, fit))

# %% [markdown]
# Clusters and tasks agree in part. `gsm8k` and `agentverse-mgsm` are one cluster, and so are `mbpp` and
# `human_eval`, `natural_qa` and `trivia_qa`: different benchmarks, the same abilities. `math` falls into two, and
# `arc_challenge` and `openbook_qa` share theirs. Is a cluster as good a group as a task?

# %%
rows = {}
for name, partition in {"tasks": tasks, "clusters": fit}.items():
    profiles = cluster_profiles(comparisons, partition)
    rows[name] = {
        "groups": profiles.sizes["cluster"],
        "tau within a group": float(within_cluster_tau(comparisons, partition, rng=0)["mean"]),
        "tau between groups": float(profile_similarity(profiles)["mean"]),
        "gap in nats": float(cross_cluster_gap(profiles, comparisons, partition)["mean"]),
    }
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# *Tau within a group* is Kendall's tau between the rankings of random fifths of a group's queries, *between groups*
# that between the rankings of two groups. Inside both kinds of group queries agree on the LLMs, and across groups
# they hardly do. Twelve clusters hold what fourteen tasks do, without having been told of them. The *gap* says how
# much worse another group's ranking predicts; it flatters the clusters, which were made from these comparisons.
#
# Every draw of the posterior has a partition and strengths of its own, so these measures have intervals:

# %%
measures = summarize_structure(fit.posterior_, labels=tasks, rng=0)
measures.loc[["within_cluster_tau", "profile_tau", "cross_cluster_gap", "adjusted_rand"]].round(3)

# %% [markdown]
# They are narrow, and say less than they seem to. An interval spans the draws of the solutions that were found, here
# those around one EM solution, on these queries: within it the structure does not hang on one lucky draw of the
# partition. It spans neither other queries nor solutions that no chain has seen, which may differ by more.
#
# ## MMLU-Pro: another picture
#
# 28 LLMs answered 12,000 multiple-choice questions of fourteen subjects. (One LLM lacks a seventh of its
# answers and is left out.) The same model, this time from four independent starts:

# %%
bundle = load("mmlu_pro")
partial = [name for name in bundle.models if bundle.scores[name].isna().mean() > 0.05]
comparisons = bundle.draw_comparisons(per_query=7, exclude_models=partial, rng=0)
embeddings = bundle.embeddings_for(comparisons.queries)
subjects = bundle.labels("category").loc[comparisons.queries]
print(comparisons)
fit = BayesianECC(
    choose(12, 5),
    concentration=4.0,
    probe_power=1.0,
    tune=choose(250, 30),
    draws=choose(250, 30),
    cores=1,
    progress=False,
    rng=0,
)
fit.fit(comparisons, embeddings)
print("\nadjusted Rand index of each chain's partition")
fit.diagnosis_.modes.filter(["with_itself", "with_others", "stacking_weight"]).round(2)

# %%
measures = summarize_structure(fit.posterior_, labels=subjects, rng=0)
measures.loc[["effective_clusters", "profile_tau", "adjusted_rand"]].round(3)

# %% [markdown]
# Here clusters are something else than subjects: the adjusted Rand index between the two is near 0.06. And the four
# starts found different solutions of similar worth. Two draws of one chain agree on the partition far better than
# draws of two chains do. "Cluster 3" is nothing to be reported here; what all solutions share is.
#
# The probability that two questions are in the same cluster needs no numbers of clusters. By subject:

# %%
together = co_clustering_by_label(fit.posterior_, subjects)["mean"]
first = together["label"].values[0]
order = together.sel(label_other=first).to_series().sort_values().index
together = together.sel(label=order, label_other=order)
together = together.rename(label="subject", label_other="other subject")
ax = plot_overlap(together, share="none", match=False)
ax.images[0].colorbar.set_label("probability of one cluster")

# %% [markdown]
# Two blocks: chemistry, physics and engineering on one side, with mathematics and business leaning to them, and
# biology, health, history, philosophy and psychology on the other. One may read them as questions to be calculated
# and questions to be known. But the probabilities are small. With ten clusters of like size (`effective_clusters`)
# two questions meet with a probability of 0.1 by chance, and the largest here is about twice that: a question's subject says little
# about who can answer it. The gain of one ranking a label bears that out:

# %%
for name, column in {"routerdc": "task", "mmlu_pro": "category"}.items():
    bundle = load(name)
    excluded = [model for model in partial if model in bundle.models]
    split = draw_split(bundle, seed=0, exclude_models=excluded)
    baseline = BradleyTerry().fit(split.train).predict_win_probability(split.scored)
    labels = bundle.labels(column)
    ranked = LabelBradleyTerry().fit(split.train, labels)
    p = ranked.predict_win_probability(split.scored, labels)
    gain = ranking_quality_gain(p, baseline, split.scored)
    print(f"{name}: one ranking a {column} saves {gain:.1f} % of the loss of one ranking for all")

# %% [markdown]
# What LLMs can and cannot do follows RouterDC's tasks closely and MMLU-Pro's subjects hardly at all. Labels are worth
# looking at, and worth testing before they are believed.
