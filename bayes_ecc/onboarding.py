"""Onboarding a new model: where it ranks, from few comparisons with models that are known.

A fit over the old models stays as it is; of the newcomer only its strengths in the fit's clusters
are learnt (`newcomer` has the model). `start_onboarding` begins, `Onboarding.propose` says which
comparisons to run next, `Onboarding.update` takes their outcomes, and after each update the
newcomer's rank has an interval. `onboard` goes round until the budget is spent or the rank settled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from bayes_ecc.acquisition import Goal, Rule
from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.newcomer import Tried, draw_strengths
from bayes_ecc.onboarding_fit import make_prior, read_ground, read_old_fit
from bayes_ecc.onboarding_state import CONSIDERED, Onboarding, step_of
from bayes_ecc.random import RandomState, as_generator

type NewcomerPrior = Literal["pool", "fit"]

PRIORS: tuple[NewcomerPrior, ...] = ("pool", "fit")


def start_onboarding(
    posterior: xr.DataTree,
    newcomer: str,
    *,
    embeddings: ArrayLike | None = None,
    probes: Comparisons | None = None,
    queries: Iterable[Hashable] | None = None,
    reference: ArrayLike | None = None,
    prior: NewcomerPrior = "pool",
    draws: int = 400,
    rng: RandomState = None,
) -> Onboarding:
    """Begin to learn where a new model stands among those of a fit.

    Parameters
    ----------
    posterior : xarray.DataTree
        A fit of the old models, from any estimator of this library; ties as half-wins, without an
        order effect.
    newcomer : str
        Name of the new model.
    embeddings, probes, queries
        Candidate queries and what is known of them, as in `predict_responsibilities`; `probes` are
        comparisons among the old models. By default the queries that were fitted.
    reference : array-like, shape (n_reference, embedding_dim), optional
        Embeddings of the queries over which the overall rank is meant; by default the candidates,
        with all that is known of them.
    prior : {"pool", "fit"}
        "pool": the newcomer is taken for one more like the old models: where they are good or bad
        together, it is expected to be, too. "fit": the clusters' strengths are independent around
        a level of the newcomer, with the spread tau that a Bayesian fit learnt, or 1 / sqrt(ridge)
        of an EM fit; the level has a standard deviation of 1.
    draws : int
        Draws of the newcomer's strengths, over all atoms; at least two an atom, of which a hundred
        are used at most.
    rng : int, numpy.random.Generator or None
        Randomness of draws and proposals.

    Returns
    -------
    Onboarding

    Raises
    ------
    InputError
        If the newcomer is no newcomer, the candidates do not fit the posterior, or the posterior
        learnt ties or an order effect.

    Warns
    -----
    DataWarning
        If checks of the fit failed.

    Notes
    -----
    A comparison of the newcomer, and of the old models on a candidate query, counts with the fit's
    evidence power; with 1 where the fit averages a query's comparisons, as EM does: its
    temperature would make the newcomer's intervals too narrow. A point estimate knows nothing of
    how unsure its clusters are; one in five candidate queries is taken to be like any other, lest
    few comparisons settle too much. What is learnt of the newcomer does not change clusters or old
    models (a cut posterior).

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, start_onboarding
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> old = data.comparisons.drop_models(["llm_4"])
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, ridge=0.1, rng=0).fit(old, data.embeddings)
    >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
    >>> mine = data.comparisons.to_frame().query("model_a == 'llm_4' or model_b == 'llm_4'")
    >>> rank = joining.update(mine).rank()
    >>> int(rank["rank_lower"]), int(rank["rank_upper"])
    (4, 5)
    """
    check_choice("prior", prior, PRIORS)
    check_count("draws", draws, least=2)
    fit = read_old_fit(posterior)
    models = fit.atoms.models
    if not isinstance(newcomer, str) or not newcomer or newcomer in models:
        raise InputError(
            f"newcomer={newcomer!r}: give the name of a model that the fit does not have; it has "
            f"{', '.join(models)}."
        )
    index, ground = read_ground(fit, embeddings, probes, queries, reference)
    made = make_prior(fit, prior)
    generator = as_generator(rng)
    start = np.repeat(made.mean[:, None], max(2, round(draws / len(fit.atoms))), axis=1)
    strengths = draw_strengths(
        start, made, ground.strengths, ground.responsibilities, Tried.none(), 1, generator
    )
    return Onboarding(
        newcomer=newcomer,
        queries=index,
        models=models,
        strengths=strengths,
        asked=Tried.none(),
        steps=(step_of(ground, strengths, 0),),
        _ground=ground,
        _prior=made,
        _fit=fit,
        _rng=generator,
    )


def onboard(
    onboarding: Onboarding,
    ask: Callable[[pd.DataFrame], Comparisons | pd.DataFrame],
    *,
    budget: int,
    batch: int = 5,
    rule: Rule = "design",
    goal: Goal = "profile",
    allowed: ArrayLike | None = None,
    consider: int | None = CONSIDERED,
    decided: ArrayLike | None = None,
    ties: Literal["half", "ignore"] = "half",
    top: int | None = None,
    level: float = 0.9,
) -> Onboarding:
    """Propose, ask and update until the budget is spent or the rank is settled.

    Parameters
    ----------
    onboarding : Onboarding
        Where to begin.
    ask : callable
        Takes a table as `Onboarding.propose` gives it and runs its comparisons; gives the table
        back with a column `winner` or `outcome`, or Comparisons.
    budget : int
        Comparisons to ask for, at most, those already asked included.
    batch : int
        Comparisons between updates.
    rule, goal, allowed, consider, decided
        As in `Onboarding.propose`.
    ties
        As in `Onboarding.update`.
    top, level
        As in `Onboarding.decide`; with `top`, stop once it is settled.

    Returns
    -------
    Onboarding
        With the `history` of all updates.

    Raises
    ------
    InputError
        If a setting is out of range, or no pair is left to ask for at all.

    Examples
    --------
    >>> from bayes_ecc import ECC, onboard, simulate, start_onboarding
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> old = data.comparisons.drop_models(["llm_4"])
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, ridge=0.1, rng=0).fit(old, data.embeddings)
    >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
    >>> loses = lambda table: table.assign(winner="model_b")
    >>> end = onboard(joining, loses, budget=60, top=3)
    >>> end.decide(top=3), len(end.asked) < 60
    ('outside', True)
    """
    check_count("budget", budget)
    check_count("batch", batch)
    while len(onboarding.asked) < budget:
        if top is not None and onboarding.decide(top, level=level) != "open":
            break
        proposal = onboarding.propose(
            min(batch, budget - len(onboarding.asked)),
            rule=rule,
            goal=goal,
            allowed=allowed,
            consider=consider,
            decided=decided,
        )
        onboarding = onboarding.update(ask(proposal), ties=ties)
    return onboarding
