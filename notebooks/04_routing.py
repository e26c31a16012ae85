# %% [markdown]
# # Routing under uncertainty
#
# Each new query shall go to one LLM. Which? We compare routers on held-out queries of RouterDC, where the score
# of every LLM on every query is known, by two protocols, and find that the easier one proves nothing.

# %%
import pandas as pd

from bayes_ecc.evaluation import EvaluationSettings
from bayes_ecc.plots import plot_cost_quality, plot_quality_calibration, plot_risk_coverage
from bayes_ecc.routing_study import study_routing
from bayes_ecc.splits import draw_split
from data import choose, load

bundle = load("routerdc")
settings = EvaluationSettings(
    n_clusters=choose(30, 5),
    embedding_weight=1.0,
    ridge=0.1,
    concentration=8.0,
    probe_power=8.0,
    chains=choose(4, 2),
    draws=choose(300, 50),
)
methods = ["labels:task", "embedding", "ecc", "bayes"]
split = draw_split(bundle, seed=0)


def table(study, names):
    """Show some routers of a study, with the interval of the difference to the one best LLM."""
    rows = {}
    for name in names:
        found = study["policies"][name]
        low, high = found["interval"]["over_global"]
        rows[name] = {
            "quality": f"{found['quality']:.3f}",
            "over global": f"{found['over_global']:+.3f}",
            "interval": f"{low:+.3f} to {high:+.3f}",
            "calls": f"{found['calls']:.2f}",
            "oracle share": f"{found['oracle_share']:.0%}",
        }
    return pd.DataFrame(rows).T.rename_axis("router")


# %% [markdown]
# ## The published protocol
#
# Test queries are those with a decisive comparison, and that comparison is given to the router for free.

# %%
published = study_routing(bundle, [split], methods, settings, protocol="published")
methods_and_probes = [
    name + probe for name in ("embedding", "ecc", "bayes") for probe in ("", "+probe")
]
table(published, ["global", "labels:task", *methods_and_probes, "probe winner", "oracle"])

# %% [markdown]
# *Global* sends everything to the one best LLM, the *oracle* knows all scores; the share of the way between them is
# in the last column. With the probe ECC goes two thirds of that way, which looks splendid. But the rule "go to the
# LLM that won the probe" goes nearly all of it, with no model at all. Scores here are mostly 0 or 1: an LLM that
# has won a decisive comparison has answered the query right, and the protocol gave its answer away. Published
# figures of this kind have to be held against `probe winner`.
#
# ## An honest protocol
#
# All queries are tested, also those on which LLMs tie. The pair of a probe is drawn blind, and a tie tells nothing.
# Calls are counted: a probe costs two, and an answer from an LLM already called costs no more.

# %%
honest = study_routing(bundle, [split], methods, settings, protocol="honest")
counts = honest["protocol"]["counts"][0]
print(
    counts["test_queries"],
    "test queries,",
    counts["decided_probes"],
    "of the probes decide anything",
)
without = ["random", "global", "labels:task", "knn:scores", "knn:comparisons"]
table(honest, [*without, "embedding", "ecc", "bayes", "bayes:p_best", "bayes:thompson", "oracle"])

# %% [markdown]
# Before anything is run on a query, the best that can be had is a modest improvement over the one best LLM, and the
# plain rule "best LLM of the query's task" is as good as any other. Among the methods that need no label,
# differences are within their intervals. The posterior is *not* better than the point estimates here: its
# advantage is in the probabilities (see the third notebook), and choosing the best LLM needs only their order.
#
# ## Is it better where it is surer?
#
# A router may keep to the queries it expects to answer best and leave the others to the one best LLM. What does it
# gain on those it takes?

# %%
ax = plot_risk_coverage(honest, ["embedding", "ecc", "bayes"], risk="over_global")

# %% [markdown]
# For the posterior and for embedding-only clusters, yes: on the fifth of the queries they expect most of, they are
# about twice as far above the one best LLM as on all. ECC's point estimate takes the wrong queries first. The curves
# are of about 1,200 queries, so their left ends are rough.
#
# ## What a probe is worth, if its scores are seen
#
# A router that calls two LLMs sees what they score. `+fixed` always tries the two best LLMs, `+value` the pair with
# the highest expected gain for this query, and `+stop` only where the gain is worth the calls. `fixed pair` and
# `better probed` are the same idea without a model.

# %%
probing = [f"{name}{way}" for name in ("embedding", "ecc", "bayes") for way in ("+value", "+stop")]
table(
    honest,
    [
        "global",
        "probe winner",
        "better probed",
        "fixed pair",
        "bayes+scores",
        "bayes+fixed",
        *probing,
        "oracle",
    ],
)

# %%
plain = ["global", "labels:task", "knn:scores", "knn:comparisons"]
ax = plot_cost_quality(
    honest, policies=[*plain, "probe winner", "better probed", "fixed pair", "oracle"]
)

# %% [markdown]
# Looking is worth more than knowing. Probes chosen by their value close some four fifths of the gap to the oracle,
# at 2.3 calls a query; always trying the same two LLMs, and a third if both fail, is the baseline to beat and comes
# close. Pairs drawn at random (`bayes+scores`) are worth less. The lines run along the price of a call: where calls are dear, a
# router probes rarely and has part of the gain, and at every price the three methods are about equal.
#
# ## Can predicted quality be believed?

# %%
ax = plot_quality_calibration(honest, ["bayes", "bayes+value"])

# %% [markdown]
# On average, yes: predicted and realised score agree to about 0.02. Query by query, without a probe, predictions are too much
# alike: queries expected to score 0.55 score less, those expected to score 0.73 more. After a probe of the highest
# value predictions lie on the diagonal.
#
# The same study runs from a terminal, over several seeds:
#
#     bayes-ecc route BUNDLE --protocol honest --methods labels:task,embedding,ecc,bayes --seeds 5
