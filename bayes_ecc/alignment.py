"""Which cluster is which: every draw aligned to its chain's start, chains matched to one another.

The numbering of a mixture's clusters means nothing, and a chain may renumber them as it goes.
Responsibilities tell which is which: two clusters are the same as far as they hold the same
queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from bayes_ecc.counts import OutcomeCounts
from bayes_ecc.inference import softmax_rows
from bayes_ecc.mixture_settings import MixtureSettings
from bayes_ecc.samplers import GibbsProblem, GibbsState, log_joint

type FloatArray = NDArray[np.floating[Any]]
type IntArray = NDArray[np.intp]

_ALIGNMENT_QUERIES = 2000  # enough to tell clusters apart, at a fraction of the time


class AlignedChain(NamedTuple):
    """How to renumber the clusters of a chain's draws.

    Attributes
    ----------
    order : ndarray of int, shape (n_draws, n_clusters)
        Cluster k of the reference is cluster order[d, k] of draw d.
    mean : ndarray, shape (n_queries, n_clusters)
        Mean of the renumbered responsibilities.
    """

    order: IntArray
    mean: FloatArray


def match_clusters(reference: FloatArray, other: FloatArray) -> IntArray:
    """Find the numbering of clusters under which two sets of responsibilities overlap most.

    The overlap of two clusters is the sum over queries of the product of their responsibilities;
    the assignment with the largest total is found exactly [1]_.

    Parameters
    ----------
    reference, other : ndarray, shape (n_queries, n_clusters)
        Responsibilities of the same queries.

    Returns
    -------
    ndarray of int, shape (n_clusters,)
        Cluster k of the reference is cluster result[k] of the other.

    References
    ----------
    .. [1] Kuhn, H. W. (1955). The Hungarian method for the assignment problem. Naval Research
       Logistics Quarterly 2, 83-97.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.alignment import match_clusters
    >>> reference = np.array([[0.9, 0.1], [0.8, 0.2], [0.0, 1.0]])
    >>> match_clusters(reference, reference[:, ::-1]).tolist()
    [1, 0]
    """
    return linear_sum_assignment(reference.T @ other, maximize=True)[1]


def align_chain(reference: FloatArray, draws: Iterable[FloatArray]) -> AlignedChain:
    """Align every draw of a chain to one reference.

    Parameters
    ----------
    reference : ndarray, shape (n_queries, n_clusters)
        Responsibilities the chain started from.
    draws : iterable of ndarray, shape (n_queries, n_clusters)
        Responsibilities under each draw.

    Returns
    -------
    AlignedChain

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.alignment import align_chain
    >>> reference = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> align_chain(reference, [reference, reference[:, ::-1]]).order.tolist()
    [[0, 1], [1, 0]]
    """
    order = []
    total = np.zeros_like(reference, dtype=float)
    for responsibilities in draws:
        order.append(match_clusters(reference, responsibilities))
        total += responsibilities[:, order[-1]]
    return AlignedChain(np.array(order), total / max(len(order), 1))


def agreement(first: FloatArray, second: FloatArray) -> FloatArray:
    """Tell how far two matched sets of responsibilities agree, cluster by cluster.

    Parameters
    ----------
    first, second : ndarray, shape (n_queries, n_clusters)
        Responsibilities with the same numbering of clusters.

    Returns
    -------
    ndarray, shape (n_clusters,)
        Shared over joint responsibility, sum of minima over sum of maxima: 1 if equal, 0 if no
        query is shared (0 too where both are empty).

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc.alignment import agreement
    >>> agreement(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [0.6666666666666666, 0.5]
    """
    shared, joint = np.minimum(first, second).sum(axis=0), np.maximum(first, second).sum(axis=0)
    return np.divide(shared, joint, out=np.zeros_like(shared, dtype=float), where=joint > 0)


def align_draws(
    draws: xr.Dataset,
    references: list[FloatArray],
    projected: FloatArray,
    counts: OutcomeCounts,
    settings: MixtureSettings,
) -> xr.Dataset:
    """Renumber clusters: every draw as its chain's start, every chain as the first.

    How far each chain's clusters agree with the first chain's is kept as `cluster_agreement`.
    """
    n_queries = len(projected)
    sample = np.unique(np.linspace(0, n_queries - 1, _ALIGNMENT_QUERIES).astype(int))
    tie_weight = None if counts.tie_weight is None else counts.tie_weight[sample]
    problem = GibbsProblem.from_counts(
        projected[sample],
        counts._replace(matrix=counts.matrix[sample], tie_weight=tie_weight),
        n_clusters=settings.n_clusters,
        n_models=draws.sizes["llm"],
        concentration=float(settings.concentration),
        evidence_power=settings.evidence_power,
    )
    chains: list[xr.Dataset] = []
    means: list[FloatArray] = []
    for c, start in enumerate(draws["chain"].values):  # an interruption may leave some chains out
        chain = draws.isel(chain=[c])
        aligned = align_chain(references[start][sample], _responsibilities(chain, problem))
        order = aligned.order
        mean = aligned.mean
        if means:
            same = match_clusters(means[0], mean)
            order, mean = order[:, same], mean[:, same]
        means.append(mean)
        index = xr.DataArray(order, dims=("draw", "cluster"))
        for name in ("strengths", "centroids", "weights"):
            chain[name] = chain[name].isel(cluster=index).transpose(*chain[name].dims)
        chains.append(chain)
    result = xr.concat(chains, dim="chain")
    shares = [agreement(means[0], mean) for mean in means]
    result = result.assign_coords(chain=np.arange(len(chains)))
    result["cluster_agreement"] = (("chain", "cluster"), np.array(shares))
    return result


def _responsibilities(chain: xr.Dataset, problem: GibbsProblem) -> Iterator[FloatArray]:
    values = {name: chain[name].values[0] for name in ("weights", "strengths", "centroids")}
    shared = {n: chain[n].values[0] for n in ("tie_margin", "order_effect") if n in chain}
    for draw in range(chain.sizes["draw"]):
        state = GibbsState(
            weights=values["weights"][draw],
            global_strengths=np.zeros(problem.n_models),
            tau=1.0,
            strengths=values["strengths"][draw],
            centroids=values["centroids"][draw],
            **{name: float(draws[draw]) for name, draws in shared.items()},
        )
        yield softmax_rows(log_joint(state, problem))[0]
