"""Outcomes drawn from a posterior, to be held against the data it was fitted to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import expit

from bayes_ecc.inference import iterate_responsibilities, read_signals
from bayes_ecc.posterior import atoms, training_data
from bayes_ecc.random import RandomState, as_generator

type FloatArray = NDArray[np.floating[Any]]


def posterior_predictive(posterior: xr.DataTree, *, rng: RandomState = None) -> xr.DataTree:
    """Draw outcomes of the training comparisons anew, given the queries' embeddings.

    For every draw a query gets a cluster from its embedding, and all its comparisons an outcome
    from that cluster's strengths: comparisons on one query depend on each other as they do in the
    data.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library.
    rng : int, numpy.random.Generator or None
        Randomness of the draws.

    Returns
    -------
    xarray.DataTree
        The posterior with a group posterior_predictive: `outcome` (chain, draw, comparison), 1
        where the second model won and, where ties were learnt, 0.5 for a tie, beside `outcome` in
        observed_data. The argument is not changed.

    Raises
    ------
    InputError
        If the posterior does not hold what it was fitted to.

    Examples
    --------
    >>> from bayes_ecc import ECC, posterior_predictive, simulate
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> tree = posterior_predictive(fit.posterior_, rng=0)
    >>> dict(tree["posterior_predictive"]["outcome"].sizes)
    {'chain': 1, 'draw': 1, 'comparison': 420}
    """
    comparisons, embeddings = training_data(posterior)
    # The embeddings are kept as projected, and every atom counts, whatever its chain's weight.
    source = replace(atoms(posterior), projection=None)
    source = replace(source, share=np.full(len(source), 1 / len(source)))
    signals = read_signals(source, embeddings=embeddings, probes=None, queries=comparisons.queries)
    generator = as_generator(rng)
    halves = np.empty((len(source), len(comparisons)), dtype=np.int8)  # outcomes, twice
    for s, _, responsibilities in iterate_responsibilities(source, signals):
        cumulative = responsibilities.cumsum(axis=1)
        threshold = generator.random(len(cumulative)) * cumulative[:, -1]
        cluster = (cumulative <= threshold[:, None]).sum(axis=1)
        theta = source.strengths[s, np.minimum(cluster, source.n_clusters - 1)[comparisons.query]]
        row = np.arange(len(comparisons))
        difference = theta[row, comparisons.second] - theta[row, comparisons.first]
        tie_margin, order_effect = source.margins(s)
        if comparisons.ordered:
            difference = difference + order_effect
        uniform = generator.random(len(difference))
        halves[s] = uniform < expit(difference - tie_margin)
        halves[s] += uniform < expit(difference + tie_margin)
    sizes = posterior["posterior"].sizes
    shape = (sizes["chain"], sizes["draw"], len(comparisons))
    coords = {name: posterior["posterior"][name].values for name in ("chain", "draw")}
    # Without ties of their own all outcomes are whole, and stay in 8 bits.
    draws = halves // 2 if source.tie_margin is None else halves / np.float32(2)
    tree = posterior.copy()
    tree["posterior_predictive"] = xr.Dataset(
        {"outcome": (("chain", "draw", "comparison"), draws.reshape(shape))}, coords=coords
    )
    return tree
