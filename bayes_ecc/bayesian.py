"""The Bayesian companion of ECC: the same clusters, and how sure one can be of them."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from bayes_ecc.alignment import align_draws
from bayes_ecc.checks import (
    check_choice,
    check_count,
    check_flag,
    check_not_negative,
    check_positive,
)
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.contrasts import check_comparisons
from bayes_ecc.diagnostics import attach, diagnose
from bayes_ecc.ecc import ECC, read_start
from bayes_ecc.embeddings import SphereProjection, blank_embeddings, unit_embeddings
from bayes_ecc.errors import ConvergenceWarning, InputError, NotFittedError
from bayes_ecc.evidence import invariants, log_prior_terms, pointwise_log_likelihood
from bayes_ecc.inference import fitted_responsibilities
from bayes_ecc.mixture_settings import MixtureSettings, choose_settings
from bayes_ecc.models.ecc_mixture import Priors, ecc_mixture
from bayes_ecc.modes import mode_report, several_solutions
from bayes_ecc.posterior import EVIDENCE_RULES, EvidenceRule, make_posterior, set_chain_weights
from bayes_ecc.predictions import PosteriorPredictions
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.samplers import initial_values
from bayes_ecc.sampling import SAMPLERS, Sampler, sample_mixture
from bayes_ecc.stacking import stacking_weights
from bayes_ecc.starts import draw_labels, em_start
from bayes_ecc.ties import TIES, Ties

type FloatArray = NDArray[np.floating[Any]]

_WEIGHING_DRAWS = 100  # of each chain, where the chains are weighed and nothing else
_SAME_CLUSTER = 0.5  # shared over joint responsibility from which two clusters are one


class BayesianECC(PosteriorPredictions, BaseEstimator):
    r"""Evidence-calibrated clusters with a posterior: the mixture whose mode ECC looks for.

    .. math::

        \pi \sim Dirichlet(\alpha), \quad c_k \sim U(S^{d-1}), \quad
        \theta_{0m} \sim N(0, s_0), \quad \tau \sim HalfNormal(s_\tau), \quad
        \theta_{km} \sim N(\theta_{0m}, \tau) \\
        p(x_q, y_q) = \sum_k \pi_k \exp(\kappa x_q \cdot c_k)
            \prod_{n \in N_q} BT(y_n | \theta_k)^w

    Each cluster's strengths are pooled towards the global ones as far as the data allow.

    Parameters
    ----------
    n_clusters : int
        Number of clusters K; at most the number of queries.
    concentration : float or "auto"
        Kappa. "auto" chooses what predicts held-out comparisons of the training queries best: the
        likelihood of the embeddings alone would point far too high.
    evidence_power : float
        What multiplies a training comparison's log-likelihood; 1 is Bayes' rule. More may predict
        better and be calibrated worse.
    probe_power : float or "auto"
        What multiplies a probe's log-likelihood at prediction.
    n_probes : int, optional
        How many probes new queries will have, for which settings that are "auto" are chosen: with
        0, for predictions from embeddings alone. By default one, or none where queries have too
        few comparisons to spare one.
    embedding_dim : int or None
        Embeddings are projected to this many dimensions (at most as many as they have); None keeps
        them. In hundreds of dimensions a tempered concentration blurs the centroids.
    priors : Priors, optional
        ``Priors()`` by default. With one cluster there is nothing to pool: its strengths then have
        a normal prior around 0, of the spread that both parts of ``Priors()`` have together.
    sampler : {"gibbs", "nuts", "advi"}
        Gibbs is exact and fast; NUTS is for small problems and as a referee; "advi" is an
        approximation, and said to be one wherever it is shown.
    starts : {"independent", "em"} or array-like, shape (n_queries, n_clusters)
        "independent" gives each chain an EM start of its own; the chains are several solutions,
        weighted by how well they predict left-out queries. "em" starts all chains at one EM
        solution: a local posterior. Responsibilities of your own start all chains, too.
    chains, tune, draws : int
        Chains, and sweeps of each: discarded, then kept.
    evidence_rule : {"per_comparison", "per_query_mean"}
        Whether a query's comparisons add up or are averaged; ECC averages.
    ties : {"half", "rao_kupper"}
        Count a tie as half a win each way, or learn one tie margin for all clusters; see
        `bayes_ecc.ties`. EM starts count half-wins either way.
    order_effect : bool
        Learn what being shown second is worth, the same in all clusters; needs ordered
        comparisons.
    checks : bool
        Whether to compute log-likelihoods and diagnose the fit; a few seconds at full size.
    cores : int, optional
        Processes; by default as many as there are processors and chains.
    progress : bool, optional
        Whether to show progress bars; by default on a terminal only.
    rng : int, numpy.random.Generator or None
        Randomness of everything.

    Attributes
    ----------
    posterior_ : xarray.DataTree
        Groups posterior (with `contrasts`, the strengths less their mean over the LLMs, which is
        what intervals make sense for), sample_stats, constant_data, observed_data and, with
        `checks`, log_likelihood, log_prior, invariants and diagnostics.
    responsibilities_ : xarray.DataArray, dims (query, cluster)
        Of the training queries; computed when asked for. Where clusters are not matched across
        chains, those of the chain that counts most.
    settings_ : dict
        The values used of n_clusters, concentration, evidence_power and probe_power.
    selection_ : SearchResult
        What was tried, if a setting was "auto".
    diagnosis_ : Diagnosis
        The checks of the fit, with `checks`.
    n_iter_ : int
        Sweeps of each chain, tuning included.

    See Also
    --------
    ECC : the reference estimator, a posterior with one atom.

    Examples
    --------
    >>> from bayes_ecc import BayesianECC, simulate
    >>> data = simulate(n_queries=200, n_models=5, n_clusters=3, rng=0)
    >>> fit = BayesianECC(
    ...     n_clusters=3, concentration=6.0, probe_power=3.0, chains=2, tune=50, draws=50,
    ...     checks=False, cores=1, rng=0,
    ... ).fit(data.comparisons, data.embeddings)
    >>> dict(fit.posterior_["posterior"]["strengths"].sizes)
    {'chain': 2, 'draw': 50, 'cluster': 3, 'llm': 5}
    >>> probes, rest = data.comparisons.take_probes(1)
    >>> fit.predict_win_probability(rest, embeddings=data.embeddings, probes=probes).shape
    (1200,)
    """

    def __init__(
        self,
        n_clusters: int = 30,
        *,
        concentration: float | Literal["auto"] = "auto",
        evidence_power: float = 1.0,
        probe_power: float | Literal["auto"] = "auto",
        n_probes: int | None = None,
        embedding_dim: int | None = 32,
        priors: Priors | None = None,
        sampler: Sampler = "gibbs",
        starts: Literal["independent", "em"] | ArrayLike = "independent",
        chains: int = 4,
        tune: int = 500,
        draws: int = 500,
        evidence_rule: EvidenceRule = "per_comparison",
        ties: Ties = "half",
        order_effect: bool = False,
        checks: bool = True,
        cores: int | None = None,
        progress: bool | None = None,
        rng: RandomState = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.concentration = concentration
        self.evidence_power = evidence_power
        self.probe_power = probe_power
        self.n_probes = n_probes
        self.embedding_dim = embedding_dim
        self.priors = priors
        self.sampler = sampler
        self.starts = starts
        self.chains = chains
        self.tune = tune
        self.draws = draws
        self.evidence_rule = evidence_rule
        self.ties = ties
        self.order_effect = order_effect
        self.checks = checks
        self.cores = cores
        self.progress = progress
        self.rng = rng

    @classmethod
    def matching(cls, ecc: ECC, **changed: Any) -> Self:
        """Give the estimator whose negative log density is ECC's objective over T.

        A fixed point of the ECC fit is a stationary point of that model (in the strengths, and in
        the centroids along the sphere), so it says how sure one can be of an ECC solution. A tie
        margin and an order effect keep the priors of `BayesianECC`, which ECC does not have.

        Parameters
        ----------
        ecc : ECC
            A fitted one, clustering by both kinds of evidence.
        **changed
            Arguments of `BayesianECC` to set otherwise, such as `chains` and `rng`.

        Returns
        -------
        BayesianECC
            Not fitted yet; fit it to the data of the ECC fit.

        Raises
        ------
        InputError
            If `ecc` is not fitted, or clusters by one kind of evidence only.

        Examples
        --------
        >>> from bayes_ecc import ECC, BayesianECC, simulate
        >>> data = simulate(n_queries=200, n_models=5, rng=0)
        >>> ecc = ECC(n_clusters=3, embedding_weight=1.0, rng=0)
        >>> ecc = ecc.fit(data.comparisons, data.embeddings)
        >>> round(BayesianECC.matching(ecc).concentration, 6)
        10.0
        """
        if not isinstance(ecc, ECC):
            raise InputError(f"ecc must be an ECC, not {type(ecc).__name__}.")
        if not hasattr(ecc, "posterior_"):
            raise NotFittedError("This ECC is not fitted yet: fit it before matching it.")
        if ecc.evidence != "both":
            raise InputError(f"evidence={ecc.evidence!r} of the ECC: only 'both' has a density.")
        used = ecc.settings_
        temperature = used["temperature"]
        arguments: dict[str, Any] = {
            "concentration": used["embedding_weight"] / temperature,
            "evidence_power": 1 / temperature,
            "probe_power": 1 / temperature,
            "embedding_dim": None,
            "priors": Priors.matched(temperature, used["ridge"]),
            "starts": ecc.responsibilities_.values,
            "evidence_rule": "per_query_mean",
            "ties": ecc.ties,
            "order_effect": ecc.order_effect,
        }
        return cls(used["n_clusters"], **{**arguments, **changed})

    def fit(self, comparisons: Comparisons, embeddings: ArrayLike | None = None) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        comparisons : Comparisons
            Training comparisons. A query without any takes part through its embedding.
        embeddings : array-like, shape (n_queries, embedding_dim), optional
            Row i belongs to `comparisons.queries[i]`. Without any, clusters are found by the
            comparisons alone, and `concentration` is 0.

        Returns
        -------
        BayesianECC
            Itself. After an interruption, with what was drawn so far.

        Raises
        ------
        InputError
            If the data or a setting cannot be used; the message says what to change.

        Warns
        -----
        ConvergenceWarning
            If a check of the fit failed, naming it, or sampling was interrupted.
        """
        check_comparisons(comparisons)
        embedded = embeddings is not None
        if embedded:
            unit = unit_embeddings(embeddings, queries=comparisons.queries)
        else:
            unit = blank_embeddings(comparisons.n_queries)
        rng = as_generator(self.rng)
        settings = self._checked(comparisons, unit)
        if not embedded:
            settings = _without_embeddings(settings)
        priors = self.priors or _default_priors(settings.n_clusters)
        if "auto" in (settings.concentration, settings.probe_power):
            self.selection_ = choose_settings(
                comparisons,
                unit,
                settings,
                priors,
                rng,
                n_probes=self.n_probes,
                cores=self.cores,
                progress=self.progress,
            )
            settings = settings._replace(**self.selection_.best)
        projection = None
        if settings.embedding_dim is not None:
            projection = SphereProjection.fit(unit, settings.embedding_dim)
        projected = unit if projection is None else projection.transform(unit)
        counts = comparisons.outcome_counts(
            per_query_mean=settings.rule == "per_query_mean",
            ties=settings.ties,
            order_effect=settings.order_effect,
        )
        model = ecc_mixture(
            projected,
            counts,
            n_clusters=settings.n_clusters,
            concentration=float(settings.concentration),
            evidence_power=settings.evidence_power,
            priors=priors,
            models=comparisons.models.tolist(),
        )
        references = self._references(comparisons, projected, settings, priors, rng)
        starts = [
            initial_values(model, draw_labels(reference, rng), rng=rng) for reference in references
        ]
        trace = sample_mixture(
            model,
            starts,
            sampler=self.sampler,
            tune=self.tune,
            draws=self.draws,
            rng=rng,
            cores=self.cores,
            progress=self.progress,
        )
        self.settings_ = {
            "n_clusters": settings.n_clusters,
            "concentration": settings.concentration,
            "evidence_power": settings.evidence_power,
            "probe_power": settings.probe_power,
        }
        self.n_iter_ = self.tune + self.draws
        found = align_draws(
            trace["posterior"].to_dataset(), references, projected, counts, settings
        )
        self._learn(found, trace, comparisons, (unit, embedded), projection, settings, priors)
        if self.checks and self.diagnosis_.failed:
            warnings.warn(
                f"Checks of this fit failed: {', '.join(self.diagnosis_.failed)}. diagnosis_ "
                "says what that means for which use, and what to do.",
                ConvergenceWarning,
                stacklevel=2,
            )
        kept = found.sizes["draw"], found.sizes["chain"]
        if kept != (self.draws, self.chains):
            warnings.warn(
                f"Sampling was interrupted; {kept[0]} of {self.draws} draws of {kept[1]} of "
                f"{self.chains} chains were kept. Fit again for all.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    @property
    def responsibilities_(self) -> xr.DataArray:
        """Of the training queries, read as the fit did; see `fitted_responsibilities`."""
        return fitted_responsibilities(self._posterior())

    # ---------------------------------------------------------------- parts of a fit

    def _checked(self, comparisons: Comparisons, unit: FloatArray) -> MixtureSettings:
        """Check every argument before anything takes time."""
        n_clusters = check_count("n_clusters", self.n_clusters)
        if n_clusters > comparisons.n_queries:
            raise InputError(
                f"n_clusters={n_clusters} exceeds the {comparisons.n_queries} queries; use fewer "
                "clusters or more queries."
            )
        for name in ("chains", "draws"):
            check_count(name, getattr(self, name))
        check_count("tune", self.tune, least=0)
        if self.n_probes is not None:
            check_count("n_probes", self.n_probes, least=0)
        check_flag("checks", self.checks)
        if self.progress is not None:
            check_flag("progress", self.progress)
        if self.cores is not None:
            check_count("cores", self.cores)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_choice("evidence_rule", self.evidence_rule, EVIDENCE_RULES)
        check_choice("ties", self.ties, TIES)
        order_effect = check_flag("order_effect", self.order_effect)
        if isinstance(self.starts, str):
            check_choice("starts", self.starts, ("independent", "em"))
        if self.priors is not None and not isinstance(self.priors, Priors):
            raise InputError(f"priors={self.priors!r}: give a Priors, or None for the defaults.")
        dim = self.embedding_dim
        if dim is not None:
            dim = min(check_count("embedding_dim", dim, least=2), *unit.shape)
            dim = dim if dim > 1 else None  # one dimension is as few as it gets
        return MixtureSettings(
            n_clusters=n_clusters,
            concentration=_number_or_auto("concentration", self.concentration),
            evidence_power=check_positive("evidence_power", self.evidence_power),
            probe_power=_number_or_auto("probe_power", self.probe_power),
            rule=self.evidence_rule,
            embedding_dim=dim,
            ties=self.ties,
            order_effect=order_effect,
        )

    def _references(
        self,
        comparisons: Comparisons,
        projected: FloatArray,
        settings: MixtureSettings,
        priors: Priors,
        rng: np.random.Generator,
    ) -> list[FloatArray]:
        """Give the responsibilities each chain starts from and is aligned to."""
        if not isinstance(self.starts, str):
            given = read_start(
                self.starts,
                comparisons.n_queries,
                settings.n_clusters,
                name="starts",
                word="independent",
            )
            return [given] * self.chains
        if self.starts == "em":
            return [em_start(comparisons, projected, settings, priors, rng)] * self.chains
        return [em_start(comparisons, projected, settings, priors, rng) for _ in range(self.chains)]

    def _learn(
        self,
        found: xr.Dataset,
        trace: xr.DataTree,
        comparisons: Comparisons,
        embeddings: tuple[FloatArray, bool],
        projection: SphereProjection | None,
        settings: MixtureSettings,
        priors: Priors,
    ) -> None:
        """Put the container together, weigh the chains, and check the fit."""
        several = found.sizes["chain"] > 1
        independent = isinstance(self.starts, str) and self.starts == "independent"
        # What the priors fix is no draw: r-hat of a constant means nothing.
        learnt = {
            "global_strengths": priors.global_scale,
            "tau": priors.tau is None or None,
            "tie_margin": settings.ties == "rao_kupper" or None,
            "order_effect": settings.order_effect or None,
        }
        extra = found[[name for name, free in learnt.items() if free is not None]]
        # Strengths mean something by their differences only, and so do their intervals.
        extra["contrasts"] = found["strengths"] - found["strengths"].mean("llm")
        groups = {"posterior": extra, "constant_data": found[["cluster_agreement"]]}
        if "sample_stats" in trace.children:
            groups["sample_stats"] = trace["sample_stats"].to_dataset()
        arguments = {name: value for name, value in self.get_params().items() if name != "starts"}
        tree = make_posterior(
            strengths=found["strengths"].values,
            centroids=found["centroids"].values,
            weights=found["weights"].values,
            models=comparisons.models,
            concentration=float(settings.concentration),
            evidence_power=settings.evidence_power,
            probe_power=float(settings.probe_power),
            rule=settings.rule,
            estimator=type(self).__name__,
            settings={**arguments, **self.settings_},
            projection=projection,
            training=(comparisons, embeddings[0]),
            embedded=embeddings[1],
            groups=groups,
        )
        tree.attrs["sampler"] = self.sampler
        tree.attrs["approximate"] = int(self.sampler == "advi")
        one = settings.n_clusters == 1  # which is the same in all chains
        tree.attrs["clusters_matched"] = int(one or not (independent and several))
        weigh = independent and several
        if self.checks:
            tree["log_likelihood"] = pointwise_log_likelihood(
                tree, dtype=np.float32, progress=self.progress
            )
            tree["log_prior"] = _log_prior(tree, priors)
            if weigh:
                self._weigh_chains(tree, tree["log_likelihood"].to_dataset())
                # Chains from starts of their own that found one solution share their clusters.
                same = float(found["cluster_agreement"].min()) > _SAME_CLUSTER
                tree.attrs["clusters_matched"] = int(
                    one or (same and not several_solutions(mode_report(tree)))
                )
            tree["invariants"] = invariants(
                tree,
                pointwise=tree["log_likelihood"].to_dataset(),
                dtype=np.float32,
                progress=self.progress,
            )
            self.diagnosis_ = diagnose(tree, progress=self.progress)
            tree = attach(tree, self.diagnosis_)
        elif weigh:
            step = max(1, found.sizes["draw"] // _WEIGHING_DRAWS)
            thinned = tree.isel(draw=slice(None, None, step))
            self._weigh_chains(tree, pointwise_log_likelihood(thinned, dtype=np.float32))
        self.posterior_ = tree

    def _weigh_chains(self, tree: xr.DataTree, pointwise: xr.Dataset) -> None:
        fitted = pointwise.get("fitted_evidence")
        set_chain_weights(tree, stacking_weights(pointwise["evidence"], fitted))


def _log_prior(tree: xr.DataTree, priors: Priors) -> xr.Dataset:
    """Give the log densities of the priors that are not fixed."""
    many = tree["posterior"].sizes["cluster"] > 1
    return log_prior_terms(
        tree,
        weight_alpha=priors.weight_alpha if many else None,
        global_scale=priors.global_scale,
        tau_scale=priors.tau_scale,
        tau=priors.tau,
        tie_margin_scale=priors.tie_margin_scale,
        order_effect_scale=priors.order_effect_scale,
    )


def _default_priors(n_clusters: int) -> Priors:
    """Give the default priors; one cluster cannot tell its strengths from the global ones."""
    if n_clusters > 1:
        return Priors()
    usual = Priors()
    assert usual.global_scale is not None
    return Priors(global_scale=None, tau=float(np.hypot(usual.global_scale, usual.tau_scale)))


def _without_embeddings(settings: MixtureSettings) -> MixtureSettings:
    """Leave embeddings no say."""
    if settings.concentration not in ("auto", 0):
        raise InputError(
            f"concentration={settings.concentration!r} has nothing to act on without embeddings; "
            "give embeddings to fit, or leave it at 'auto'."
        )
    return settings._replace(concentration=0.0, embedding_dim=None)


def _number_or_auto(name: str, value: Any) -> float | Literal["auto"]:
    if isinstance(value, str) and value == "auto":
        return "auto"
    return check_not_negative(name, value)
