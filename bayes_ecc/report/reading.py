"""What a report reads off a fit: its clusters, its models over all queries, its typical queries."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.draws import Draws, read_draws
from bayes_ecc.errors import DataWarning
from bayes_ecc.inference import predict_responsibilities
from bayes_ecc.intervals import (
    choose_interval,
    discrete_interval,
    equally_weighted,
    sorted_interval,
)
from bayes_ecc.posterior import as_fitted, select_chain, training_data
from bayes_ecc.rankings import best_set, place_counts, summarize_cluster_ranking
from bayes_ecc.structure.cells import typical_queries
from bayes_ecc.structure.partitions import Partition

type FloatArray = NDArray[np.floating[Any]]

_DRAWS = 400  # of each chain, for rankings: rank intervals are whole numbers
_READING_DRAWS = 25  # of each chain, for which cluster a query belongs to: means settle soon
_OCCUPIED = 0.5  # queries that a cluster is responsible for, in sum


@dataclass(frozen=True, eq=False)
class Reading:
    """A fit read for its report; what is said of clusters is said of one chain's if need be.

    Attributes
    ----------
    posterior : xarray.DataTree
        The fit, whole.
    comparisons : Comparisons
        What was fitted.
    chain : int or None
        The chain whose clusters are read (the one with the largest weight), by its label; None
        where clusters mean the same in all chains.
    chain_weight : float
        Its weight in predictions.
    point : bool
        Whether the fit is a point estimate.
    ranking : xarray.Dataset
        As `summarize_cluster_ranking` gives it, dims (cluster, llm), without chains.
    overall : pandas.DataFrame
        One row a model, by its mean win probability over the fitted queries: `win_probability`,
        `rank` and `p_best`, the first two with `_lower` and `_upper`, and `in_best_set`.
    responsibilities : ndarray, shape (n_queries, n_clusters)
        Posterior means.
    embeddings : ndarray, shape (n_queries, embedding_dim), or None
        As the fit projected them.
    few : xarray.DataTree
        Some draws of the fit, evenly spaced, for what needs no more.
    """

    posterior: xr.DataTree
    comparisons: Comparisons
    chain: int | None
    chain_weight: float
    point: bool
    ranking: xr.Dataset
    overall: pd.DataFrame
    responsibilities: FloatArray
    embeddings: FloatArray | None
    few: xr.DataTree

    @property
    def sizes(self) -> FloatArray:
        """Queries that each cluster is responsible for, in sum: shape (n_clusters,)."""
        return self.responsibilities.sum(axis=0)

    @property
    def labelled(self) -> xr.DataArray:
        """Responsibilities with the names of the clusters."""
        coords = {"cluster": self.ranking["cluster"].values}
        return xr.DataArray(self.responsibilities, coords, ("query", "cluster"))

    @property
    def held(self) -> NDArray[np.intp]:
        """The most responsible cluster of each query: shape (n_queries,)."""
        return self.responsibilities.argmax(axis=1)

    def by_size(self) -> list[int]:
        """Clusters that hold queries, the largest first."""
        order = np.argsort(-self.sizes, kind="stable")
        return [int(k) for k in order if self.sizes[k] >= _OCCUPIED]

    def typical(self, most: int) -> dict[int, NDArray[np.intp]]:
        """Choose the most typical queries of each cluster, by place in `comparisons.queries`."""
        if not most:
            return {}
        shares = Partition(self.responsibilities, None, pd.RangeIndex(self.sizes.size))
        table = typical_queries(shares, embeddings=self.embeddings, n=most)
        return {
            int(k): part.to_numpy(dtype=np.intp) for k, part in table.groupby("cluster")["query"]
        }


def read_fit(posterior: xr.DataTree) -> Reading:
    """Read a fit.

    Parameters
    ----------
    posterior : xarray.DataTree
        From any estimator of this library, with its training data.

    Returns
    -------
    Reading

    Raises
    ------
    InputError
        If it is no posterior, or holds no training data.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate
    >>> from bayes_ecc.report.reading import read_fit
    >>> data = simulate(n_queries=60, n_models=5, rng=0)
    >>> fit = ECC(n_clusters=2, max_iter=500, rng=0).fit(data.comparisons, data.embeddings)
    >>> reading = read_fit(fit.posterior_)
    >>> reading.point, round(float(reading.sizes.sum()))
    (True, 60)
    """
    comparisons, embeddings = training_data(posterior)
    with _checks_are_told_elsewhere():
        whole = read_draws(posterior, draws=_DRAWS)
        weights = posterior["constant_data"].to_dataset()["chain_weights"].values.reshape(-1)
        few = _spaced(posterior, _READING_DRAWS)
        chain, weight, read, parts = None, 1.0, whole, [few]
        place = 0
        if not whole.clusters_matched and len(whole.chains) > 1:
            place = int(np.argmax(weights))
            chain, weight = whole.chains.tolist()[place], float(weights[place])
            read = read_draws(select_chain(posterior, chain), draws=_DRAWS)
            parts = [select_chain(few, name) for name in whole.chains.tolist()]
        ranking = summarize_cluster_ranking(read)
        if "chain" in ranking.dims:
            ranking = ranking.isel(chain=0, drop=True)
    found = [
        predict_responsibilities(as_fitted(part), embeddings=embeddings, probes=comparisons).values
        for part in parts
    ]
    return Reading(
        posterior=posterior,
        comparisons=comparisons,
        chain=chain,
        chain_weight=weight,
        point=len(whole) == 1,
        ranking=ranking,
        overall=_overall(whole, [one.mean(axis=0) for one in found]),
        responsibilities=found[place],
        embeddings=embeddings if posterior["constant_data"].attrs.get("embedded", 1) else None,
        few=few,
    )


def _overall(draws: Draws, share: list[FloatArray]) -> pd.DataFrame:
    """Rank the models by their mean win probability over clusters; a chain has shares of its own.

    Models need no matching, so all chains that have weight count, each with its own clusters.
    """
    interval = choose_interval(None, None)
    by_draw = np.repeat(np.stack(share), len(draws) // len(share), axis=0)
    used = draws.atoms.share > 0
    weight = draws.atoms.share[used]
    win = np.einsum("smk,sk->sm", draws.win_table[used], by_draw[used])
    places = np.zeros((win.shape[1], win.shape[1]))
    for one, each in zip(win, weight, strict=True):
        places += each * place_counts(one[:, None, None])[:, :, 0]
    lower, upper = discrete_interval(places, interval)
    bounds = sorted_interval(np.sort(win[equally_weighted(weight)].T, axis=1), interval)
    mean = weight @ win
    p_best = places[:, 0]
    chosen, _ = best_set(p_best, mean, interval.prob)
    table = pd.DataFrame(
        {
            "win_probability": mean,
            "win_probability_lower": bounds[0],
            "win_probability_upper": bounds[1],
            "rank": places @ np.arange(1, len(places) + 1),
            "rank_lower": lower + 1,
            "rank_upper": upper + 1,
            "p_best": p_best,
            "in_best_set": chosen,
        },
        index=pd.Index([str(name) for name in draws.models], name="llm"),
    )
    return table.sort_values("win_probability", ascending=False, kind="stable")


def _spaced(posterior: xr.DataTree, most: int) -> xr.DataTree:
    """Keep at most so many draws of each chain, evenly spaced, of what prediction needs."""
    n_draws = posterior["posterior"].sizes.get("draw", 1)
    most = min(most, n_draws)
    kept = ((np.arange(most) + 0.5) * n_draws / most).astype(int)
    groups = [name for name in ("posterior", "constant_data") if name in posterior.children]
    part = xr.DataTree.from_dict({name: posterior[name].to_dataset() for name in groups})
    part.attrs.update(posterior.attrs)
    return part.isel(draw=kept, missing_dims="ignore")


@contextmanager
def _checks_are_told_elsewhere() -> Iterator[None]:
    """Keep summaries from warning of failed checks, which the report tells at length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Checks of this fit failed", DataWarning)
        yield
