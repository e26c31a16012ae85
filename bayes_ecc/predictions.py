"""The prediction methods that estimators share, on the `posterior_` of a fit."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import NotFittedError
from bayes_ecc.inference import (
    RankBy,
    cluster_ranking,
    predict_outcome_probabilities,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
)

type FloatArray = NDArray[np.floating[Any]]


class PosteriorPredictions:
    """Prediction methods of every estimator that learns a `posterior_`."""

    posterior_: xr.DataTree

    def predict_responsibilities(
        self,
        embeddings: ArrayLike | None = None,
        *,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
    ) -> xr.DataArray:
        """Predict responsibilities, dims (query, cluster); see `predict_responsibilities`."""
        return predict_responsibilities(
            self._posterior(), embeddings=embeddings, probes=probes, queries=queries
        )

    def predict_win_probability(
        self,
        comparisons: Comparisons,
        *,
        embeddings: ArrayLike | None = None,
        probes: Comparisons | None = None,
    ) -> FloatArray:
        """Predict P(second beats first) of each comparison; see `predict_win_probability`."""
        return predict_win_probability(
            self._posterior(), comparisons, embeddings=embeddings, probes=probes
        )

    def predict_outcome_probabilities(
        self,
        comparisons: Comparisons,
        *,
        embeddings: ArrayLike | None = None,
        probes: Comparisons | None = None,
    ) -> FloatArray:
        """Predict chances of first, tie, second; see `predict_outcome_probabilities`."""
        return predict_outcome_probabilities(
            self._posterior(), comparisons, embeddings=embeddings, probes=probes
        )

    def predict_ranking(
        self,
        embeddings: ArrayLike | None = None,
        *,
        probes: Comparisons | None = None,
        queries: Iterable[Hashable] | None = None,
        by: RankBy = "win_probability",
    ) -> xr.Dataset:
        """Rank the models on each query; see `predict_ranking`."""
        return predict_ranking(
            self._posterior(), embeddings=embeddings, probes=probes, queries=queries, by=by
        )

    def cluster_ranking(self, *, by: RankBy = "win_probability") -> xr.Dataset:
        """Rank the models in each cluster; see `cluster_ranking`."""
        return cluster_ranking(self._posterior(), by=by)

    def _posterior(self) -> xr.DataTree:
        if not hasattr(self, "posterior_"):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call "
                "fit(comparisons, embeddings) first."
            )
        return self.posterior_
