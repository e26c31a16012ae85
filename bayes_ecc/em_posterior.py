"""EM against posterior: both on the same split, judged alike, and how far they agree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import adjusted_rand_score

from bayes_ecc.alignment import match_clusters
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.calibration import expected_calibration_error
from bayes_ecc.ecc import ECC
from bayes_ecc.errors import InputError
from bayes_ecc.metrics import gain_difference_interval, gain_interval, ranking_quality_gain
from bayes_ecc.random import RandomState, as_generator
from bayes_ecc.splits import SIGNALS, Split, predict_signal

type FloatArray = NDArray[np.floating[Any]]


class Agreement(NamedTuple):
    """How far two fits agree on the same test queries, given embeddings and probes.

    Attributes
    ----------
    adjusted_rand_index : float
        Of the most responsible clusters: 1 for the same partition, 0 for chance.
    shared_responsibility : float
        Mean over queries of the overlap of responsibilities, clusters matched; 1 is all. NaN where
        the fits have different numbers of clusters.
    kendall_tau : float
        Mean over queries of the rank correlation of the models' mean win probabilities.
    same_best : float
        Share of queries on which both put the same model first.
    win_probability_difference : float
        Mean absolute difference of the predicted win probabilities.
    """

    adjusted_rand_index: float
    shared_responsibility: float
    kendall_tau: float
    same_best: float
    win_probability_difference: float


@dataclass(frozen=True)
class EMAgainstPosterior:
    """What `compare_em_and_posterior` found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a method ("em", "posterior", "posterior - em") and signal: `gain` in percent with
        `gain_low` and `gain_high` (bootstrap over queries), `ece`, and `seconds` of the fit.
    agreement : Agreement
    em, posterior : estimators
        The fits.

    Examples
    --------
    See `compare_em_and_posterior`.
    """

    table: pd.DataFrame
    agreement: Agreement
    em: Any
    posterior: Any


def compare_em_and_posterior(
    split: Split,
    em: BaseEstimator | None = None,
    posterior: BaseEstimator | None = None,
    *,
    rng: RandomState = None,
) -> EMAgainstPosterior:
    """Fit the reference estimator and its Bayesian companion to one split, and compare them.

    Parameters
    ----------
    split : Split
        From `draw_split` or `frozen_split`.
    em : ECC, optional
        By default ``ECC("auto")`` in all its settings but the number of clusters, 30.
    posterior : BayesianECC, optional
        By default with as many clusters as `em`.
    rng : int, numpy.random.Generator or None
        Randomness of fits and bootstrap, where estimators bring none of their own.

    Returns
    -------
    EMAgainstPosterior

    Raises
    ------
    InputError
        If `split` is no split, or an estimator is none or cannot be fitted to it.

    Examples
    --------
    >>> from bayes_ecc import ECC, BayesianECC, compare_em_and_posterior, simulate
    >>> from bayes_ecc.splits import draw_split
    >>> split = draw_split(simulate(n_queries=300, n_models=5, rng=0).bundle())
    >>> em = ECC(n_clusters=4, embedding_weight=1.0, ridge=0.1)
    >>> bayes = BayesianECC(
    ...     n_clusters=4, concentration=6.0, probe_power=3.0, chains=2, tune=50, draws=50,
    ...     checks=False, cores=1,
    ... )
    >>> result = compare_em_and_posterior(split, em, bayes, rng=0)
    >>> result.table.index.get_level_values("method").unique().tolist()
    ['em', 'posterior', 'posterior - em']
    >>> 0 <= result.agreement.same_best <= 1
    True
    """
    if not isinstance(split, Split):
        raise InputError(
            f"split is a {type(split).__name__}; give what draw_split or frozen_split made of a "
            "bundle. Fits and comparisons alone hold no test queries."
        )
    for name, estimator in (("em", em), ("posterior", posterior)):
        if estimator is not None and not _can_be_fitted(estimator):
            raise InputError(
                f"{name} is a {type(estimator).__name__}; give an estimator such as "
                f"{'ECC' if name == 'em' else 'BayesianECC'}(n_clusters=30), or None."
            )
    from bayes_ecc.bayesian import BayesianECC  # brings PyMC, which takes seconds to import

    generator = as_generator(rng)
    if em is None:
        em = ECC(30, embedding_weight="auto", temperature="auto", ridge="auto")
    if posterior is None:
        posterior = BayesianECC(em.get_params()["n_clusters"])
    fits, seconds = {}, {}
    for name, estimator in (("em", em), ("posterior", posterior)):
        candidate = clone(estimator)
        if candidate.get_params()["rng"] is None:
            candidate.set_params(rng=int(generator.integers(2**32)))
        began = time.perf_counter()
        fits[name] = candidate.fit(split.train, split.train_embeddings)
        seconds[name] = time.perf_counter() - began
    baseline = BradleyTerry().fit(split.train).predict_win_probability(split.scored)
    seed = int(generator.integers(2**32))
    rows: list[dict[str, Any]] = []
    predicted: dict[tuple[str, str], FloatArray] = {}
    for signal in SIGNALS:
        for name, fit in fits.items():
            p = predict_signal(fit, split, signal)
            predicted[name, signal] = p
            interval = gain_interval(p, baseline, split.scored, rng=seed)
            rows.append(
                {
                    "method": name,
                    "signal": signal,
                    "gain": ranking_quality_gain(p, baseline, split.scored),
                    "gain_low": interval.low,
                    "gain_high": interval.high,
                    "ece": expected_calibration_error(p, split.scored),
                    "seconds": seconds[name],
                }
            )
        pair = predicted["posterior", signal], predicted["em", signal]
        interval = gain_difference_interval(*pair, baseline, split.scored, rng=seed)
        rows.append(
            {
                "method": "posterior - em",
                "signal": signal,
                "gain": rows[-1]["gain"] - rows[-2]["gain"],
                "gain_low": interval.low,
                "gain_high": interval.high,
                "ece": rows[-1]["ece"] - rows[-2]["ece"],
                "seconds": seconds["posterior"] - seconds["em"],
            }
        )
    order = ["em", "posterior", "posterior - em"]
    table = pd.DataFrame(rows).set_index(["method", "signal"])
    return EMAgainstPosterior(
        table=table.loc[order],
        agreement=_agreement(fits["em"], fits["posterior"], split, predicted),
        em=fits["em"],
        posterior=fits["posterior"],
    )


def _can_be_fitted(estimator: Any) -> bool:
    return isinstance(estimator, BaseEstimator) and {"n_clusters", "rng"} <= set(
        estimator.get_params()
    )


def _agreement(
    em: Any, posterior: Any, split: Split, predicted: dict[tuple[str, str], FloatArray]
) -> Agreement:
    """Hold the two fits' responsibilities, rankings and win probabilities together."""
    probes = split.probes if len(split.probes) else None
    first, second = (
        fit.predict_responsibilities(split.test_embeddings, probes=probes).values
        for fit in (em, posterior)
    )
    shared = np.nan
    if first.shape == second.shape:
        matched = second[:, match_clusters(first, second)]
        shared = float(np.minimum(first, matched).sum(axis=1).mean())
    rankings = [
        fit.predict_ranking(split.test_embeddings, probes=probes)["win_probability"].values
        for fit in (em, posterior)
    ]
    both = "embedding+probe"
    return Agreement(
        adjusted_rand_index=float(adjusted_rand_score(first.argmax(axis=1), second.argmax(axis=1))),
        shared_responsibility=shared,
        kendall_tau=float(np.mean([kendalltau(a, b)[0] for a, b in zip(*rankings, strict=True)])),
        same_best=float((rankings[0].argmax(axis=1) == rankings[1].argmax(axis=1)).mean()),
        win_probability_difference=float(
            np.abs(predicted["em", both] - predicted["posterior", both]).mean()
        ),
    )
