# %% [markdown]
# # EM against posterior
#
# `ECC` finds one solution; `BayesianECC` samples the posterior of the same kind of clusters. What does the
# second buy, and what does it say of the first? Both are fitted to one split of RouterDC and judged on the same
# held-out comparisons.

# %%
import arviz as az
import numpy as np
import pandas as pd
from scipy.special import logsumexp

from bayes_ecc import (
    ECC,
    BayesianECC,
    BradleyTerry,
    Comparisons,
    compare_em_and_posterior,
    pointwise_log_likelihood,
    ranking_quality_gain,
)
from bayes_ecc.plots import plot_em_against_posterior, plot_objective, plot_reliability
from bayes_ecc.splits import draw_split, predict_signal
from data import choose, load

split = draw_split(load("routerdc"), seed=0)
sampling = {
    "tune": choose(300, 30),
    "draws": choose(300, 30),
    "cores": 1,
    "progress": False,
    "rng": 0,
}

# %%
em = ECC(choose(20, 5), embedding_weight=1.0, ridge=0.1, rng=0)
posterior = BayesianECC(choose(20, 5), concentration=8.0, probe_power=8.0, **sampling)
result = compare_em_and_posterior(split, em, posterior, rng=0)
result.table.round(3)

# %% [markdown]
# The difference of two gains is sharper than the gains themselves, for both methods meet the same queries. From the
# embedding alone the posterior is clearly ahead, and with embedding and probe together too; from the probe alone
# the two can't be told apart. Its probabilities are better calibrated under every signal. The price is time: some
# thirty to forty times that of EM.
#
# How differently do they see the test queries?

# %%
pd.Series(result.agreement._asdict()).round(2).to_frame("EM and posterior")

# %% [markdown]
# They share a good half of the responsibilities and put the same LLM first on two queries of three. Two solutions
# of the same data can differ so much and predict similarly well: a warning to read neither as *the* clusters.
#
# ## Calibration
#
# Of all comparisons of which a method says 80 %, do 80 % come out so?

# %%
predicted = {
    name: predict_signal(fit, split, "embedding+probe")
    for name, fit in {"EM": result.em, "posterior": result.posterior}.items()
}
ax = plot_reliability(predicted, split.scored)

# %% [markdown]
# The posterior's dots keep close to the diagonal. EM's do so at the ends only: between, it is too timid on both
# sides, and what it gives three chances in four happens in nine cases of ten. (The pull of its ridge on the
# strengths does that; the posterior learns from the data how strongly to pool.)
#
# ## The posterior of an ECC solution
#
# ECC's objective, divided by its temperature, is the negative log density of a posterior of the same mixture.
# `BayesianECC.matching` samples it around the solution that EM found: what would have to be reported beside the
# strengths of that solution?

# %%
ax = plot_objective(result.em, log=True)

# %%
local = BayesianECC.matching(result.em, chains=2, checks=False, **sampling)
local.fit(split.train, split.train_embeddings)
ax = plot_em_against_posterior(result.em, local)

# %% [markdown]
# The objective falls at every iteration; that is what makes EM dependable. The second figure shows what it cannot
# tell. Chains that start in its solution wander off: their clusters share little more than half of the queries
# with it, and over a third of its strengths lie outside the posterior's intervals, which are wide besides. EM found
# the top of a hill, and most of the posterior is elsewhere. Strengths of a single EM solution should not be
# reported as if they were known.
#
# ## Diagnosis
#
# Clusters have no numbers of their own, so convergence is judged by what does not depend on them.

# %%
result.posterior.diagnosis_

# %% [markdown]
# The chains came from independent starts and did not meet: r-hat of the total density is far above 1.01. The
# diagnosis does not stop there. It finds several solutions (`modes`), says what may still be used (predictions,
# weighted over chains) and what not (ranks within a numbered cluster, across chains).

# %%
result.posterior.diagnosis_.modes.round(2)

# %% [markdown]
# `with_itself` is how well two draws of one chain agree on the partition (adjusted Rand index), `with_others` how
# well draws of two chains do. `elpd` is how well a chain predicts queries that are left out, and the stacking
# weights follow from it. They are nearly equal: four solutions, none of them better by much.
#
# ## How many clusters?
#
# Leaving each query's comparisons out of the fit, by importance sampling, ArviZ estimates how well the rest
# predicts them from the query's embedding: the expected log predictive density, `elpd`. We divide it by the number
# of queries and set beside it what the same fit says of queries that were *really* left out, and the gain on them.

# %%
baseline = BradleyTerry().fit(split.train).predict_win_probability(split.scored)
test = Comparisons.from_frame(
    pd.concat([split.probes.to_frame(), split.scored.to_frame()]),
    queries=split.scored.queries,
    models=split.scored.models,
    ordered=False,
)
loo, rows = {}, {}
for k in choose((1, 5, 10, 20, 40), (1, 3, 5)):
    fit = BayesianECC(k, concentration=8.0, probe_power=8.0, chains=2, **sampling)
    fit.fit(split.train, split.train_embeddings)
    found = loo[f"K = {k}"] = az.loo(fit.posterior_, var_name="evidence")
    evidence = pointwise_log_likelihood(fit.posterior_, test, split.test_embeddings)["evidence"]
    held_out = logsumexp(evidence.values, axis=(0, 1)) - np.log(evidence[..., 0].size)
    rows[k] = {
        "elpd a query": found.elpd / split.train.n_queries,
        "held out": held_out.mean(),
        "% of Pareto k too large": 100 * float((found.pareto_k > found.good_k).mean()),
        **{
            f"gain, {signal}": ranking_quality_gain(
                predict_signal(fit, split, signal), baseline, split.scored
            )
            for signal in ("embedding", "embedding+probe")
        },
    }
numbers = pd.DataFrame(rows).T.rename_axis("clusters")
numbers.round(2)

# %%
comparison = az.compare(loo)
comparison[["rank", "elpd", "elpd_diff", "dse", "weight"]]

# %% [markdown]
# Two things are to be learnt. First, leave-one-out can be trusted here: it ranks the numbers of clusters as really
# held-out queries do. (The two differ by 0.1 to 0.3 nats a query. The test queries are the easier ones, which shows
# at K = 1 too.) Second, `elpd` is not gain. It judges the *joint* probability of all comparisons of a query, and goes
# on rising with the number of clusters, since it pays to know which outcomes come together. The gain from the
# embedding alone has settled by 10 clusters, and with a probe it rises little beyond 20. Choose the number of
# clusters by what the fit is for.
