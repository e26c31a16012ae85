"""A newcomer on its way into a fit: what was asked, what is known, what to ask next."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.acquisition import (
    GOALS,
    RULES,
    Goal,
    Ground,
    Rule,
    at_random,
    by_design,
    by_median,
)
from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.intervals import choose_interval, discrete_interval
from bayes_ecc.newcomer import Prior, Tried, draw_strengths, win_chances
from bayes_ecc.onboarding_fit import OldFit, responsibilities_of, with_newcomer
from bayes_ecc.onboarding_input import read_allowed, read_answers, read_chances
from bayes_ecc.posterior import identifiers
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.rankings import place_counts, summarize_cluster_ranking

type FloatArray = NDArray[np.floating[Any]]
type BoolArray = NDArray[np.bool_]
type Verdict = Literal["inside", "outside", "open"]

TIES = ("half", "ignore")
CONSIDERED = 200  # queries a design chooses among each time
_SWEEPS, _FIRST_SWEEPS = 6, 30  # after a few more comparisons, and after many


class Step(NamedTuple):
    """What was known after an update: how many were asked, places (n_models + 1,), mean win."""

    asked: int
    places: FloatArray
    win: float


@dataclass(frozen=True, eq=False, repr=False)
class Onboarding:
    """A newcomer on its way into a fit; made by `start_onboarding`, never changed.

    Attributes
    ----------
    newcomer : str
        Name of the new model.
    queries : pandas.Index
        Candidates: what the newcomer may be tried on.
    models : pandas.Index
        The models of the fit, its possible opponents.
    strengths : ndarray, shape (n_atoms, n_replicates, n_clusters)
        Draws of the newcomer's strengths, some for every atom of the fit.
    asked : Tried
        Comparisons asked for so far; those that tell nothing have weight 0.
    steps : tuple of Step
        What was known at the start and after every update.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, start_onboarding
    >>> data = simulate(n_queries=200, n_models=5, rng=0)
    >>> old = data.comparisons.drop_models(["llm_4"])
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, ridge=0.1, rng=0).fit(old, data.embeddings)
    >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
    >>> joining
    Onboarding('llm_4' among 4 models, 0 comparisons of 200 queries asked, rank 1 to 5)
    >>> table = joining.propose(2)
    >>> list(table.columns)
    ['query_id', 'model_a', 'model_b', 'value']
    >>> joining = joining.update(table.assign(winner="model_a"))
    >>> len(joining.asked), joining.decide(top=5)
    (2, 'inside')
    """

    newcomer: str
    queries: pd.Index
    models: pd.Index
    strengths: FloatArray
    asked: Tried
    steps: tuple[Step, ...]
    _ground: Ground
    _prior: Prior
    _fit: OldFit
    _rng: np.random.Generator

    def __repr__(self) -> str:
        rank = self.rank()
        low, high = int(rank["rank_lower"]), int(rank["rank_upper"])
        return (
            f"Onboarding({self.newcomer!r} among {len(self.models)} models, {len(self.asked)} "
            f"comparisons of {len(self.queries)} queries asked, rank {low} to {high})"
        )

    def with_rng(self, rng: RandomState) -> Onboarding:
        """Give the same with other randomness.

        Examples
        --------
        >>> from bayes_ecc import ECC, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
        >>> joining.with_rng(1).propose(rule="random")["query_id"].tolist()
        ['q0048']
        """
        return replace(self, _rng=as_generator(rng))

    # ---------------------------------------------------------------- asking

    def propose(
        self,
        n: int = 1,
        *,
        rule: Rule = "design",
        goal: Goal = "profile",
        allowed: ArrayLike | None = None,
        per_query: int = 1,
        consider: int | None = CONSIDERED,
        decided: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Say which comparisons to run next.

        Parameters
        ----------
        n : int
            How many, each on another query; fewer if no more are allowed. A batch is chosen
            together, so that its comparisons do not tell the same.
        rule : {"design", "published", "random"}
            "design": those expected to tell most. "published": queries at random, against the
            model of the median rank on the query (or the allowed one nearest to it). "random":
            queries and opponents at random.
        goal : {"profile", "rank"}
            What a design is to find out: the newcomer's mean win probability on the reference
            queries, query by query, or which models are above it overall.
        allowed : array-like of bool, shape (n_queries, n_models), optional
            Which pairs may be asked for; all by default. What was asked for never is again.
        per_query : int
            Comparisons of the newcomer on one query, at most. A second one on the same query
            tells less than the model thinks, since it runs the newcomer only once.
        consider : int, optional
            Let a design choose among so many of the queries, drawn at random; None for all. The
            few of many that promise most are often those that the fit misreads, so a choice among
            all is a worse one.
        decided : array-like, shape (n_queries,) or (n_queries, n_models), optional
            Chances that a comparison is no tie, above 0, where ties tell nothing; a design then
            asks where something will be told. Give one a query unless models differ for reasons
            that say nothing of who wins.

        Returns
        -------
        pandas.DataFrame
            Columns `query_id`, `model_a` (the newcomer), `model_b` (the opponent) and `value`, the
            share of what is unknown that the comparison is expected to settle (missing unless
            designed). With a column `winner` or `outcome` added it is what `update` takes.

        Raises
        ------
        InputError
            If a setting is out of range or no pair is allowed any more.

        Examples
        --------
        See `Onboarding`.
        """
        check_count("n", n)
        check_choice("rule", rule, RULES)
        check_choice("goal", goal, GOALS)
        open_ = self._open(allowed, check_count("per_query", per_query))
        if rule == "random":
            chosen = at_random(open_, n, self._rng)
        elif rule == "published":
            chosen = by_median(self._ground, open_, n, self._rng)
        else:
            if consider is not None:
                kept = self._rng.permutation(np.flatnonzero(open_.any(axis=1)))
                kept = kept[: max(n, check_count("consider", consider))]
                only = np.zeros_like(open_)
                only[kept] = open_[kept]
                open_ = only
            chances = None if decided is None else read_chances(decided, open_.shape)
            chosen = by_design(
                self._ground, self.strengths, open_, n, self._rng, goal=goal, decided=chances
            )
        return pd.DataFrame(
            {
                "query_id": self.queries[chosen.query],
                "model_a": self.newcomer,
                "model_b": self.models[chosen.opponent],
                "value": chosen.value,
            }
        )

    def _open(self, allowed: ArrayLike | None, per_query: int) -> BoolArray:
        """Give the pairs (n_queries, n_models) that may be asked for."""
        shape = (len(self.queries), len(self.models))
        open_ = np.ones(shape, dtype=bool)
        if allowed is not None:
            open_ = read_allowed(allowed, shape).copy()
        open_[self.asked.query, self.asked.opponent] = False
        times = np.bincount(self.asked.query, minlength=shape[0])
        open_[times >= per_query] = False
        if not open_.any():
            raise InputError(
                "No pair is left to ask for; give more candidate queries, allow more pairs, or "
                "raise per_query."
            )
        return open_

    # ---------------------------------------------------------------- learning

    def update(
        self,
        answers: Comparisons | pd.DataFrame,
        *,
        ties: Literal["half", "ignore"] = "half",
        sweeps: int | None = None,
    ) -> Onboarding:
        """Take outcomes of comparisons with the newcomer.

        Parameters
        ----------
        answers : Comparisons or pandas.DataFrame
            Each with the newcomer on one side and a model of the fit on the other, on candidate
            queries: a table as `propose` gives it with a column `winner` ("model_a", "model_b",
            "tie" or the name of the one that won), or anything that `Comparisons.from_frame` takes.
        ties : {"half", "ignore"}
            Whether a tie is half a win each way, or was asked for and tells nothing.
        sweeps : int, optional
            Sweeps of the sampler; by default 6, or 30 where the comparisons more than double.

        Returns
        -------
        Onboarding
            A new one.

        Raises
        ------
        InputError
            If a comparison is of other models, or of a query that is no candidate, or a winner is
            neither side of its comparison.

        Examples
        --------
        Ask, look who is better on the query, and write it down:

        >>> from bayes_ecc import ECC, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, embedding_weight=1.0, ridge=0.1, rng=0)
        >>> fit = fit.fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "my-new-llm", rng=0)
        >>> table = joining.propose(3)
        >>> list(table["model_a"])
        ['my-new-llm', 'my-new-llm', 'my-new-llm']
        >>> joining = joining.update(table.assign(winner=["model_a", "model_b", "tie"]))

        A winner may be called by its name:

        >>> table = joining.propose(2)
        >>> joining = joining.update(table.assign(winner=["my-new-llm", table["model_b"][1]]))
        >>> joining.history()["asked"].tolist()
        [0, 3, 5]
        """
        check_choice("ties", ties, TIES)
        new = read_answers(answers, self.newcomer, self.queries, self.models, ties)
        new = replace(new, weight=new.weight * self._fit.power)
        asked = self.asked.add(new)
        evidence = asked.telling()
        if sweeps is None:
            many = len(evidence) > 2 * len(self.asked.telling())
            sweeps = _FIRST_SWEEPS if many else _SWEEPS
        strengths = draw_strengths(
            self.strengths,
            self._prior,
            self._ground.strengths,
            self._ground.responsibilities,
            evidence,
            check_count("sweeps", sweeps),
            self._rng,
        )
        step = step_of(self._ground, strengths, len(asked))
        return replace(self, strengths=strengths, asked=asked, steps=(*self.steps, step))

    # ---------------------------------------------------------------- what is known

    def rank(
        self, *, prob: float | None = None, kind: Literal["eti", "hdi"] | None = None
    ) -> xr.Dataset:
        """Rank the newcomer overall: by mean win probability against the pool, on the reference.

        Parameters
        ----------
        prob, kind
            Of the interval, as in `summarize_ranking`.

        Returns
        -------
        xarray.Dataset
            `rank` (expected; 1 is best), `rank_lower` and `rank_upper`, `win_probability` (mean),
            and `rank_probability` (place): that of each place among old models and newcomer.

        Examples
        --------
        See `Onboarding`.
        """
        interval = choose_interval(prob, kind)
        places = self.steps[-1].places
        lower, upper = discrete_interval(places, interval)
        position = np.arange(1, len(places) + 1)
        return xr.Dataset(
            {
                "rank": float(places @ position),
                "rank_lower": int(lower) + 1,
                "rank_upper": int(upper) + 1,
                "win_probability": self.steps[-1].win,
                "rank_probability": ("place", places),
            },
            coords={"place": position},
            attrs={"interval_prob": interval.prob, "interval_kind": interval.kind},
        )

    def cluster_ranking(
        self, *, prob: float | None = None, kind: Literal["eti", "hdi"] | None = None
    ) -> xr.Dataset:
        """Rank the newcomer in each cluster, as `summarize_cluster_ranking` does all models.

        Examples
        --------
        >>> from bayes_ecc import ECC, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
        >>> joining.cluster_ranking()["rank_lower"].values.tolist()
        [1, 1, 1]
        """
        summary = summarize_cluster_ranking(self.posterior(), prob=prob, kind=kind)
        return summary.sel(llm=self.newcomer, drop=True)

    def win_probability(
        self,
        embeddings: ArrayLike | None = None,
        *,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
    ) -> xr.DataArray:
        """Predict the newcomer's chance to beat each old model on queries.

        Parameters
        ----------
        embeddings, probes, queries
            What is known of the queries, as in `predict_responsibilities`; `probes` among the old
            models.

        Returns
        -------
        xarray.DataArray, dims (query, llm)

        Raises
        ------
        InputError
            If neither is given to a fit that had embeddings, or they do not fit the posterior.

        Examples
        --------
        >>> from bayes_ecc import ECC, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
        >>> joining.win_probability(data.embeddings[:2]).dims
        ('query', 'llm')
        """
        index, responsibilities = responsibilities_of(self._fit.atoms, embeddings, probes, queries)
        coords = {"query": identifiers(index), "llm": self.models.to_numpy(dtype=object)}
        chances = win_chances(
            self.strengths, self._ground.strengths, responsibilities, self._ground.share
        )
        return xr.DataArray(chances, coords, ("query", "llm"), name="win_probability")

    def history(self, *, prob: float | None = None) -> pd.DataFrame:
        """Give the overall rank and its interval at the start and after every update.

        Parameters
        ----------
        prob : float, optional
            Of the intervals; by default ArviZ's.

        Returns
        -------
        pandas.DataFrame
            Columns `asked`, `rank`, `rank_lower`, `rank_upper`, `win_probability`.

        Examples
        --------
        >>> from bayes_ecc import ECC, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "llm_4", rng=0)
        >>> joining.update(joining.propose(3).assign(winner="model_b")).history()["asked"].tolist()
        [0, 3]
        """
        rows = []
        for step in self.steps:
            rank = replace(self, steps=(step,)).rank(prob=prob)
            names = ("rank", "rank_lower", "rank_upper", "win_probability")
            rows.append({"asked": step.asked, **{name: rank[name].item() for name in names}})
        return pd.DataFrame(rows)

    def decide(self, top: int, *, level: float = 0.9) -> Verdict:
        """Say whether the newcomer is settled to be among the best so many, or not to be.

        Parameters
        ----------
        top : int
            The places 1 to `top` are inside.
        level : float
            Probability at which it is settled, above one half.

        Returns
        -------
        {"inside", "outside", "open"}

        Raises
        ------
        InputError
            If a setting is out of range.

        Examples
        --------
        See `Onboarding`.
        """
        check_count("top", top)
        if isinstance(level, bool) or not isinstance(level, int | float) or not 0.5 < level < 1:
            raise InputError(f"level={level!r}: give a probability above 0.5, below 1.")
        inside = float(self.steps[-1].places[:top].sum())
        if inside >= level:
            return "inside"
        return "outside" if 1 - inside >= level else "open"

    def posterior(self) -> xr.DataTree:
        """Give the fit with the newcomer in it, as its last model.

        Returns
        -------
        xarray.DataTree
            With the draws that the newcomer was learnt under; summaries, rankings and routing
            read it like any other. Training data are those of the fit; the group `newcomer` holds
            the newcomer's comparisons. Diagnoses and likelihoods of the fit are not repeated.

        Examples
        --------
        >>> from bayes_ecc import ECC, predict_ranking, simulate, start_onboarding
        >>> data = simulate(n_queries=100, n_models=5, rng=0)
        >>> old = data.comparisons.drop_models(["llm_4"])
        >>> fit = ECC(n_clusters=3, max_iter=500, rng=0).fit(old, data.embeddings)
        >>> joining = start_onboarding(fit.posterior_, "llm_4", draws=50, rng=0)
        >>> tree = joining.posterior()
        >>> dict(tree["posterior"]["strengths"].sizes)
        {'chain': 1, 'draw': 50, 'cluster': 3, 'llm': 5}
        >>> predict_ranking(tree, embeddings=data.embeddings[:1])["llm"].values[-1]
        'llm_4'
        """
        return with_newcomer(self._fit, self.newcomer, self.strengths, self.queries, self.asked)


def step_of(ground: Ground, strengths: FloatArray, asked: int) -> Step:
    """Rank the newcomer overall, draw by draw."""
    win = ground.overall(strengths)
    n_models = win.shape[2]
    places = np.zeros(n_models)
    for share in np.unique(ground.share):
        some = win[ground.share == share].reshape(-1, n_models)
        counts = place_counts(np.ascontiguousarray(some.T)[:, :, None])[-1, :, 0]
        places += share / strengths.shape[1] * counts
    mean = float(np.einsum("a,ar->", ground.share / strengths.shape[1], win[:, :, -1]))
    return Step(asked, places, mean)
