"""Query embeddings: checking, unit length, and projection to a sphere of fewer dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from bayes_ecc.errors import InputError

type FloatArray = NDArray[np.floating[Any]]

_UNIT_TOLERANCE = 1e-5  # rounding of float32 stays well below, rounding of float16 well above


def unit_embeddings(
    embeddings: ArrayLike | pd.DataFrame,
    n_queries: int | None = None,
    *,
    queries: pd.Index | None = None,
) -> FloatArray:
    """Check embeddings and give them unit length.

    Parameters
    ----------
    embeddings : array-like, shape (n_queries, embedding_dim)
        One row a query. float32 and float64 keep their precision, float16 becomes float32,
        anything else float64.
    n_queries : int, optional
        How many rows there must be.
    queries : pandas.Index, optional
        Whose rows they must be. A DataFrame is then aligned by its index: it may hold more
        queries, in any order. One that is merely numbered goes by position, as an array does.

    Returns
    -------
    ndarray, shape (n_queries, embedding_dim)
        The very array given if its rows have unit length already (up to 1e-5), a copy otherwise;
        the argument is never written to.

    Raises
    ------
    InputError
        If the array is not two-dimensional and numeric, has another number of rows, or a row is
        zero, NaN or infinite.

    Examples
    --------
    >>> from bayes_ecc import unit_embeddings
    >>> unit_embeddings([[3.0, 4.0]]).round(3).tolist()
    [[0.6, 0.8]]
    """
    if queries is not None:
        n_queries = len(queries)
        if isinstance(embeddings, pd.DataFrame):
            embeddings = _aligned(embeddings, queries)
    try:
        values = np.asarray(embeddings)
    except ValueError as error:
        raise InputError(f"embeddings must be one row of numbers a query: {error}.") from None
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise InputError(
            f"embeddings must be a two-dimensional array of numbers (queries x dimensions), not "
            f"{values.ndim}-dimensional {values.dtype}."
        )
    if n_queries is not None and len(values) != n_queries:
        raise InputError(
            f"embeddings has {len(values)} rows for {n_queries} queries; row i must belong to "
            "comparisons.queries[i]. A DataFrame indexed by query is aligned by its index, and may "
            "hold more queries."
        )
    if values.shape[1] == 0:
        raise InputError("embeddings has no columns; give at least one dimension.")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float32 if values.dtype == np.float16 else np.float64)
    length = _lengths(values)
    extreme = ~np.isfinite(length) | (length < np.finfo(values.dtype).tiny ** 0.5)
    if extreme.any():  # squares overflow or vanish where the numbers themselves need not
        largest = np.abs(values[extreme]).max(axis=1, keepdims=True)
        largest[~np.isfinite(largest) | (largest < np.finfo(values.dtype).tiny)] = 1
        values = values.copy()
        values[extreme] /= largest
        length = _lengths(values)
    bad = ~np.isfinite(length) | (length < np.finfo(values.dtype).tiny ** 0.5)
    if bad.any():
        row = int(np.argmax(bad))
        what = "NaN or infinite values" if not np.isfinite(length[row]) else "nothing but zeros"
        more = f" (and {int(bad.sum()) - 1} more)" if bad.sum() > 1 else ""
        raise InputError(
            f"embeddings, row {row}{more}: found {what}; encode that query again or leave it out."
        )
    if np.abs(length - 1).max(initial=0.0) <= _UNIT_TOLERANCE:
        return values
    return values / length[:, None]


def blank_embeddings(n_queries: int) -> FloatArray:
    """Give embeddings that tell no queries apart, for fits without any: (n_queries, 2)."""
    blank = np.zeros((n_queries, 2), dtype=np.float32)
    blank[:, 0] = 1
    return blank


def _lengths(values: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.einsum("ij,ij->i", values, values))


def _aligned(table: pd.DataFrame, queries: pd.Index) -> pd.DataFrame:
    """Pick the rows of a table that belong to the queries, by its index."""
    if not table.index.is_unique:
        twice = table.index[table.index.duplicated()].tolist()[0]
        raise InputError(f"embeddings holds {twice!r} in its index more than once; keep one row.")
    positions = table.index.get_indexer(queries)
    if (positions >= 0).all():
        return table if table.index.equals(queries) else table.iloc[positions]
    if isinstance(table.index, pd.RangeIndex) and queries.dtype.kind not in "iu":
        return table
    unknown = queries[positions < 0].tolist()[0]
    raise InputError(
        f"embeddings has no row for query {unknown!r} in its index; index it by query identifier, "
        "or give an array in the order of the queries."
    )


@dataclass(frozen=True, eq=False)
class SphereProjection:
    """Projection of unit embeddings to a sphere of fewer dimensions: centre, rotate, normalise.

    Many embedding dimensions carry little, and a mixture spends its evidence on them; on the
    leading principal axes the posterior of the centroids stays sharp.

    Attributes
    ----------
    mean : ndarray, shape (input_dim,)
        Mean of the embeddings it was fitted on.
    axes : ndarray, shape (embedding_dim, input_dim)
        Leading principal axes, orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> from bayes_ecc import SphereProjection, unit_embeddings
    >>> X = unit_embeddings(np.random.default_rng(0).normal(size=(50, 8)))
    >>> projected = SphereProjection.fit(X, 3).transform(X)
    >>> projected.shape, bool(np.allclose(np.linalg.norm(projected, axis=1), 1))
    ((50, 3), True)
    """

    mean: FloatArray
    axes: FloatArray

    def __post_init__(self) -> None:
        # sums round differently along another layout, which no file keeps
        for name in ("mean", "axes"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name)))

    @classmethod
    def fit(cls, embeddings: ArrayLike, embedding_dim: int) -> SphereProjection:
        """Find the mean and the leading principal axes of training embeddings.

        Parameters
        ----------
        embeddings : array-like, shape (n_queries, input_dim)
            Training embeddings.
        embedding_dim : int
            Dimensions to keep, at least 2 and at most min(n_queries, input_dim).

        Returns
        -------
        SphereProjection

        Raises
        ------
        InputError
            If `embedding_dim` is out of range or the embeddings are not usable.

        Examples
        --------
        >>> import numpy as np
        >>> from bayes_ecc import SphereProjection
        >>> SphereProjection.fit(np.random.default_rng(0).normal(size=(9, 5)), 2).axes.shape
        (2, 5)
        """
        values = unit_embeddings(embeddings)
        most = min(values.shape)
        whole = isinstance(embedding_dim, Integral) and not isinstance(embedding_dim, bool)
        if not whole or not 2 <= embedding_dim <= most:
            raise InputError(
                f"embedding_dim={embedding_dim!r}: with {values.shape[0]} training queries of "
                f"{values.shape[1]} dimensions, give 2 to {most}, or None to keep them as they are."
            )
        if np.ptp(values, axis=0).max() < _UNIT_TOLERANCE:
            raise InputError(
                "embeddings are all alike, so they tell no queries apart; check the encoder, or "
                "cluster by comparisons alone."
            )
        # The full solver is exact and the same on every run; the randomised one is neither.
        fitted = PCA(int(embedding_dim), svd_solver="covariance_eigh").fit(values)
        return cls(mean=fitted.mean_, axes=fitted.components_)

    def transform(self, embeddings: ArrayLike) -> FloatArray:
        """Project embeddings.

        Parameters
        ----------
        embeddings : array-like, shape (n_queries, input_dim)
            Embeddings from the same encoder.

        Returns
        -------
        ndarray, shape (n_queries, embedding_dim)
            Unit rows.

        Raises
        ------
        InputError
            If the number of dimensions is another, or a projected row vanishes.

        Examples
        --------
        >>> import numpy as np
        >>> from bayes_ecc import SphereProjection
        >>> SphereProjection(np.zeros(2), np.eye(2)).transform([[0.0, 2.0]]).tolist()
        [[0.0, 1.0]]
        """
        values = unit_embeddings(embeddings)
        if values.shape[1] != len(self.mean):
            raise InputError(
                f"embeddings has {values.shape[1]} dimensions, the fit was made with "
                f"{len(self.mean)}; use the same encoder."
            )
        # Subtracting the projected mean afterwards saves a centred copy of the embeddings.
        centred = values @ self.axes.T - self.mean @ self.axes.T
        return unit_embeddings(centred)
