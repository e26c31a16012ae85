"""Evidence-Calibrated Clustering (ECC): the exact alternating EM, and its one-signal variants."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from tqdm.auto import tqdm

from bayes_ecc.checks import (
    check_choice,
    check_count,
    check_flag,
    check_not_negative,
    check_positive,
)
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_comparisons, contrast_status, warn_of_open_contrasts
from bayes_ecc.em import EMData, EMSettings, Evidence, State, fit_clusters, run_em
from bayes_ecc.embeddings import blank_embeddings, unit_embeddings
from bayes_ecc.errors import ConvergenceWarning, InputError
from bayes_ecc.posterior import identifiers, make_posterior
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.selection import search
from bayes_ecc.ties import TIES, Ties
from bayes_ecc.validation import evaluate_on_splits, inner_splits

type FloatArray = NDArray[np.floating[Any]]

EVIDENCE = ("both", "embedding", "comparisons")
_LARGEST = 1e30  # of temperature and of what it divides: beyond, float32 overflows
AUTO_GRID: Mapping[str, tuple[float, ...]] = {
    "embedding_weight": (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
    "ridge": (0.03, 0.1, 0.3, 1.0, 3.0),
    "temperature": (0.05, 0.07, 0.1, 0.15, 0.2, 0.3),
    "n_clusters": (2, 5, 10, 20, 30, 40, 60),
}
"""What "auto" tries for each setting."""
AUTO_START: Mapping[str, float] = {
    "embedding_weight": 1.0,
    "ridge": 0.3,
    "temperature": 0.1,
    "n_clusters": 20,
}
_AUTO_SPLITS = 2
_LARGE_SEARCH = 1000  # queries from which a search takes long enough to show its progress
_SLOW_FIT_SECONDS = 3.0  # a progress bar appears once a fit has taken this long


class ECC(PosteriorPredictions, BaseEstimator):
    r"""Evidence-Calibrated Clustering: queries grouped by what they demand of models.

    Each cluster has a centroid on the sphere and Bradley-Terry strengths. A query's loss under
    cluster k is ``l(q,k) = comp(q; theta_k) + lambda (1 - x_q . c_k)``, with comp the weighted
    mean negative log-likelihood of its comparisons: a query counts once, however many it has and
    whatever they weigh. The fit minimises

    .. math:: \sum_{qk} r_{qk} l(q,k) + T \sum_{qk} r_{qk} \log r_{qk}
              + \tfrac{\rho}{2} \sum_k |\theta_k|^2

    by alternating exact minimisations, so the objective never rises. The defaults are the
    published settings; they do not carry over between encoders, and ``"auto"`` chooses a setting
    by how well it predicts held-out comparisons of the training queries.

    Parameters
    ----------
    n_clusters : int or "auto"
        Number of clusters K; at most the number of queries. Clusters may end up empty.
    evidence : {"both", "embedding", "comparisons"}
        What the clustering reads. "embedding" fits the Bradley-Terry models once at the end;
        "comparisons" still has centroids, and new queries are read with `embedding_weight`.
    embedding_weight : float or "auto"
        Lambda, not negative.
    temperature : float or "auto"
        T, positive; lower is harder.
    ridge : float or "auto"
        Pull of the strengths to zero, positive.
    ties : {"half", "rao_kupper"}
        Count a tie as half a win each way, or learn one tie margin for all clusters; see
        `bayes_ecc.ties`. A learnt tie is more evidence than a half-win, so the temperature is to be
        chosen anew (``"auto"``): too low a one makes probes overconfident.
    order_effect : bool
        Learn what being shown second is worth, the same in all clusters; needs ordered
        comparisons. The ridge pulls on it, too.
    init : "dirichlet" or array-like, shape (n_queries, n_clusters)
        Start: Dirichlet(1) responsibilities, or responsibilities of your own (one start, whatever
        `n_init`), whose rows are brought to sum to 1.
    n_init : int
        Number of starts; the one with the lowest objective is kept.
    max_iter : int
        Most iterations a start.
    tol : float
        Stop once the mean over queries of KL(new || old responsibilities) is below it ...
    centroid_tol : float
        ... and no centroid has moved further than this.
    rng : int, numpy.random.Generator or None
        Randomness of starts and of the inner split.

    Attributes
    ----------
    posterior_ : xarray.DataTree
        The fit as a posterior with one atom; predictions and plots read it.
    responsibilities_ : xarray.DataArray, dims (query, cluster)
        Of the training queries.
    strengths_ : xarray.DataArray, dims (cluster, llm)
        Zero-sum within a cluster.
    centroids_ : xarray.DataArray, dims (cluster, embedding_dim)
        Unit length; zero for a cluster that was empty from the start, or whose embeddings cancel.
    objective_ : ndarray, shape (n_iterations,)
        The objective after every iteration of the start that was kept.
    n_iter_ : int
        Its iterations.
    converged_ : bool
        Whether it met both tolerances.
    tie_margin_, order_effect_ : float
        In logits, where they were learnt.
    settings_ : dict
        The values used of n_clusters, embedding_weight, temperature and ridge.
    selection_ : SearchResult
        What was tried, if any setting was "auto".

    See Also
    --------
    SettingsSearch : a search over settings of one's own choice.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> data = simulate(n_queries=300, n_models=5, n_clusters=3, rng=0)
    >>> fit = ECC(n_clusters=3, embedding_weight=1.0, ridge=0.1, n_init=3, rng=0)
    >>> fit = fit.fit(data.comparisons, data.embeddings)
    >>> fit.responsibilities_.sizes["query"], fit.strengths_.dims, fit.converged_
    (300, ('cluster', 'llm'), True)
    >>> probes, rest = data.comparisons.take_probes(1)
    >>> fit.predict_win_probability(rest, embeddings=data.embeddings, probes=probes).shape
    (1800,)
    """

    def __init__(
        self,
        n_clusters: int | Literal["auto"] = 30,
        *,
        evidence: Evidence = "both",
        embedding_weight: float | Literal["auto"] = 3.0,
        temperature: float | Literal["auto"] = 0.1,
        ridge: float | Literal["auto"] = 1.0,
        ties: Ties = "half",
        order_effect: bool = False,
        init: Literal["dirichlet"] | ArrayLike = "dirichlet",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-3,
        centroid_tol: float = 1e-2,
        rng: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.evidence = evidence
        self.embedding_weight = embedding_weight
        self.temperature = temperature
        self.ridge = ridge
        self.ties = ties
        self.order_effect = order_effect
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.centroid_tol = centroid_tol
        self.rng = rng

    def fit(self, comparisons: Comparisons, embeddings: ArrayLike | None = None) -> Self:
        """Fit the clusters.

        Parameters
        ----------
        comparisons : Comparisons
            Training comparisons. A query without any takes part through its embedding.
        embeddings : array-like, shape (n_queries, embedding_dim), optional
            Row i belongs to `comparisons.queries[i]`. Rows are brought to unit length; no copy is
            made if they have it, and float32 stays float32. Without any, clusters are found by
            the comparisons alone, and `embedding_weight` is 0.

        Returns
        -------
        ECC
            Itself.

        Raises
        ------
        InputError
            If the data or a setting cannot be used; the message says what to change.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` iterations did not reach the tolerances.
        DataWarning
            If models were never compared, or only within groups: in every cluster their place
            among the others is the prior's.
        """
        check_comparisons(comparisons)
        embedded = embeddings is not None
        if embedded:
            unit = unit_embeddings(embeddings, queries=comparisons.queries)
        else:
            unit = blank_embeddings(comparisons.n_queries)
        self._check_parameters(comparisons.n_queries)
        if not embedded and self.evidence == "embedding":
            raise InputError("evidence='embedding' needs embeddings; give them to fit.")
        rng = as_generator(self.rng)
        settings = self._settings(comparisons, unit if embedded else None, rng)
        n_clusters = int(settings["n_clusters"])
        data = EMData.from_comparisons(
            comparisons, unit, ties=self.ties, order_effect=bool(self.order_effect)
        )
        wins = np.asarray(data.counts.matrix.sum(axis=0))
        status = contrast_status(wins, data.counts, comparisons.n_models)
        warn_of_open_contrasts(status, comparisons.models, of_separation=False)
        em = EMSettings(
            embedding_weight=float(settings["embedding_weight"]),
            temperature=float(settings["temperature"]),
            ridge=float(settings["ridge"]),
            evidence=self.evidence if embedded else "comparisons",
        )
        best, history, converged = self._best_start(data, em, n_clusters, rng)
        if not em.uses_comparisons:
            strengths, margins = fit_clusters(data, best.responsibilities, em.ridge)
            best = best._replace(strengths=strengths, margins=margins)
        if not converged:
            warnings.warn(
                f"ECC stopped after {self.max_iter} iterations without meeting tol={self.tol} and "
                f"centroid_tol={self.centroid_tol}; raise max_iter, loosen centroid_tol (1e-2 is "
                "usually met in 20 to 50 iterations), or raise temperature.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.settings_ = {**settings, "n_clusters": n_clusters}
        self._learn(comparisons, unit, embedded, em, best, history, converged)
        return self

    # ---------------------------------------------------------------- fitting

    def _check_parameters(self, n_queries: int) -> None:
        """Refuse parameters that no fit could use, before anything is fitted."""
        check_choice("evidence", self.evidence, EVIDENCE)
        check_choice("ties", self.ties, TIES)
        check_flag("order_effect", self.order_effect)
        for name, check in (
            ("n_clusters", check_count),
            ("embedding_weight", check_not_negative),
            ("temperature", check_positive),
            ("ridge", check_positive),
        ):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise InputError(f"{name}={value!r}: give a number or 'auto'.")
            if not _is_auto(value):
                check(name, value)
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)
        check_not_negative("tol", self.tol)
        check_not_negative("centroid_tol", self.centroid_tol)
        if not isinstance(self.n_clusters, str) and self.n_clusters > n_queries:
            raise InputError(
                f"n_clusters={self.n_clusters} exceeds the {n_queries} queries; use fewer "
                "clusters or more queries."
            )
        weight = 1.0 if _is_auto(self.embedding_weight) else float(self.embedding_weight)
        temperature = 1.0 if _is_auto(self.temperature) else float(self.temperature)
        if max(weight, temperature, max(weight, 1.0) / temperature) > _LARGEST:
            raise InputError(
                f"temperature={temperature} with embedding_weight={weight} leads beyond "
                f"{_LARGEST:g}; give numbers between 0.001 and 1000."
            )

    def _best_start(
        self, data: EMData, em: EMSettings, n_clusters: int, rng: np.random.Generator
    ) -> tuple[State, list[float], bool]:
        n_init, max_iter = int(self.n_init), int(self.max_iter)
        tol, centroid_tol = float(self.tol), float(self.centroid_tol)
        given = None
        if not _is_dirichlet(self.init):
            given = read_start(self.init, len(data.embeddings), n_clusters)
            n_init = 1
        best: tuple[State, list[float], bool] | None = None
        with tqdm(
            total=n_init * max_iter,
            desc="ECC",
            unit="it",
            delay=_SLOW_FIT_SECONDS,
            leave=False,
            disable=None,  # where standard error is no terminal
        ) as bar:
            for start in range(n_init):
                responsibilities = given
                if responsibilities is None:
                    draws = rng.standard_exponential((len(data.embeddings), n_clusters))
                    responsibilities = draws / draws.sum(axis=1, keepdims=True)
                run = run_em(data, em, responsibilities, max_iter, tol, centroid_tol, bar)
                if best is None or run[0].objective < best[0].objective:
                    best = run
                bar.update((start + 1) * max_iter - bar.n)
        assert best is not None  # n_init is at least 1
        return best

    def _settings(
        self, comparisons: Comparisons, embeddings: FloatArray | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Give the four settings as numbers, those that are "auto" chosen on inner splits."""
        given = {name: getattr(self, name) for name in AUTO_GRID}
        if embeddings is None:
            given["embedding_weight"] = 0.0
        chosen = [name for name, value in given.items() if _is_auto(value)]
        if not chosen:
            return given
        start = {name: AUTO_START[name] if name in chosen else given[name] for name in given}
        # Validation queries are a quarter, so that a fit sees three quarters of the queries.
        most = int(0.75 * comparisons.n_queries)
        grid = {
            name: tuple(v for v in AUTO_GRID[name] if name != "n_clusters" or v <= most)
            for name in chosen
        }
        if "n_clusters" in chosen and start["n_clusters"] not in grid["n_clusters"]:
            if not grid["n_clusters"]:
                raise InputError(
                    f"n_clusters='auto' needs more than the {comparisons.n_queries} queries given; "
                    "give a number."
                )
            start["n_clusters"] = grid["n_clusters"][-1]
        if not _is_dirichlet(self.init):
            raise InputError(
                "init holds responsibilities of all queries and cannot start fits on some of them, "
                f"which {chosen[0]}='auto' needs; give numbers, or init='dirichlet'."
            )
        candidate = clone(self).set_params(**start, n_init=1)
        splits = inner_splits(comparisons, _AUTO_SPLITS, n_probes=None, rng=rng)
        self.selection_ = search(
            evaluate_on_splits(candidate, embeddings, splits),
            grid,
            start={name: start[name] for name in chosen},
            progress=None if comparisons.n_queries > _LARGE_SEARCH else False,
        )
        return {**start, **self.selection_.best}

    def _learn(
        self,
        comparisons: Comparisons,
        unit: FloatArray,
        embedded: bool,
        em: EMSettings,
        best: State,
        history: Sequence[float],
        converged: bool,
    ) -> None:
        strengths = best.strengths - best.strengths.mean(axis=1, keepdims=True)
        n_clusters = len(strengths)
        shared = {
            "tie_margin": self.ties == "rao_kupper",
            "order_effect": bool(self.order_effect),
        }
        learnt = {}
        for name, is_learnt in shared.items():
            if is_learnt and best.margins is not None:
                learnt[name] = float(getattr(best.margins, name))
                setattr(self, f"{name}_", learnt[name])
            elif hasattr(self, f"{name}_"):
                delattr(self, f"{name}_")  # of an earlier fit
        self.posterior_ = make_posterior(
            strengths=strengths[None, None],
            centroids=best.centroids[None, None],
            weights=np.full((1, 1, n_clusters), 1 / n_clusters),
            models=comparisons.models,
            concentration=em.embedding_weight / em.temperature,
            evidence_power=1 / em.temperature,
            probe_power=1 / em.temperature,
            rule="per_query_mean",
            estimator="ECC",
            settings={**self.get_params(), **self.settings_},
            training=(comparisons, unit),
            embedded=embedded,
            groups={
                "posterior": xr.Dataset(
                    {name: (("chain", "draw"), [[value]]) for name, value in learnt.items()}
                ),
                "sample_stats": xr.Dataset(
                    {
                        "objective": (("chain", "draw"), [[best.objective]]),
                        "n_iter": (("chain", "draw"), [[len(history)]]),
                        "converged": (("chain", "draw"), [[converged]]),
                    },
                    coords={"chain": [0], "draw": [0]},
                ),
            },
        )
        posterior = self.posterior_["posterior"]
        self.strengths_ = posterior["strengths"].isel(chain=0, draw=0, drop=True)
        self.centroids_ = posterior["centroids"].isel(chain=0, draw=0, drop=True)
        self.responsibilities_ = xr.DataArray(
            best.responsibilities,
            {"query": identifiers(comparisons.queries), "cluster": np.arange(n_clusters)},
            ("query", "cluster"),
            name="responsibilities",
        )
        self.objective_ = np.array(history)
        self.n_iter_ = len(history)
        self.converged_ = converged


def read_start(
    init: ArrayLike, n_queries: int, n_clusters: int, *, name: str = "init", word: str = "dirichlet"
) -> FloatArray:
    """Check responsibilities given as a start; rows are brought to sum to 1."""
    try:
        start = np.asarray(init)
    except ValueError:
        start = np.empty(0, dtype=object)
    if start.dtype.kind not in "fiub":
        found = repr(init) if isinstance(init, str) else f"{type(init).__name__} of {start.dtype}"
        raise InputError(
            f"{name} holds {found}; give {word!r} or responsibilities, an array of numbers of "
            f"shape ({n_queries}, {n_clusters})."
        )
    start = start.astype(float)
    if start.shape != (n_queries, n_clusters):
        raise InputError(
            f"{name} has shape {start.shape}; responsibilities for this fit have shape "
            f"({n_queries}, {n_clusters}), or give {word!r}."
        )
    largest = start.max(axis=1)
    bad = ~np.isfinite(start).all(axis=1) | (start < 0).any(axis=1) | (largest <= 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{name}, row {row}: found {start[row].min():g} to {start[row].max():g}; "
            "responsibilities are finite, not negative, and not all zero."
        )
    start /= largest[:, None]  # so that no sum overflows
    return start / start.sum(axis=1, keepdims=True)


def _is_dirichlet(init: Any) -> bool:
    return isinstance(init, str) and init == "dirichlet"


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
