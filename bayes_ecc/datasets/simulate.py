"""Simulated comparisons with known truth: abilities that cut across topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_count, check_not_negative
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import InputError
from bayes_ecc.random import RandomState, as_generator

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Simulation:
    """Simulated comparisons and embeddings, and the truth they were drawn from.

    Attributes
    ----------
    comparisons : Comparisons
        Ordered; without an effect of the order unless one was asked for.
    embeddings : ndarray of float32, shape (n_queries, embedding_dim)
        Unit length, one row a query of `comparisons.queries`.
    labels : ndarray of int, shape (n_queries,)
        The capability cluster of each query.
    topics : ndarray of int, shape (n_queries,)
        The topic of each query.
    strengths : ndarray of float, shape (n_clusters, n_models)
        Bradley-Terry strengths of each cluster, in logits; they sum to zero over the models.
    parameters : mapping of str to number
        The settings of `simulate`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> truth = simulate(n_queries=100, n_models=5, n_clusters=3, rng=0)
    >>> truth.comparisons
    Comparisons(700 comparisons, 100 queries, 5 models, ordered, 0 ties)
    >>> truth.strengths.shape, truth.embeddings.shape
    ((3, 5), (100, 32))
    """

    comparisons: Comparisons
    embeddings: FloatArray
    labels: IntArray
    topics: IntArray
    strengths: FloatArray
    parameters: Mapping[str, float]

    def __post_init__(self) -> None:
        for name in ("embeddings", "labels", "topics", "strengths"):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, column.name) for column in fields(self)]
        return type(self), (*values[:-1], dict(self.parameters))  # a proxy can't be pickled

    def bundle(self, name: str = "simulated") -> Bundle:
        """Give the data as a bundle with the label columns `topic` and `capability`.

        Parameters
        ----------
        name : str
            What to call it.

        Returns
        -------
        Bundle

        Examples
        --------
        >>> from bayes_ecc import simulate
        >>> simulate(n_queries=100, rng=0).bundle()
        Bundle('simulated': 100 queries, 8 models, 700 comparisons, embeddings of 32 dimensions)
        """
        queries = pd.DataFrame(
            {
                "query_id": self.comparisons.queries,
                "topic": [f"topic_{topic}" for topic in self.topics],
                "capability": [f"capability_{label}" for label in self.labels],
            }
        )
        return Bundle(
            name,
            queries,
            comparisons=self.comparisons.to_frame(),
            embeddings=self.embeddings,
            ordered=self.comparisons.ordered,
        )


def simulate(
    n_queries: int = 1200,
    n_models: int = 8,
    n_clusters: int = 4,
    *,
    n_topics: int = 6,
    embedding_dim: int = 32,
    per_query: int = 7,
    spread: float = 2.0,
    agreement: float = 0.3,
    topic_signal: float = 1.0,
    capability_signal: float = 0.7,
    noise: float = 1.8,
    coupling: float = 0.1,
    ties: float = 0.0,
    tie_margin: float = 0.0,
    order_effect: float = 0.0,
    rng: RandomState = None,
) -> Simulation:
    r"""Simulate comparisons whose capability clusters cut across the topics of the embeddings.

    Each query has a topic and a capability cluster. Its embedding leans mostly towards the
    direction of its topic and a little towards that of its cluster, so that clustering the
    embeddings alone finds topics; only its comparisons tell what the models can do on it:

    .. math::

        x_q &\propto a\, u_{topic(q)} + b\, v_{cluster(q)} + s\, \varepsilon_q / \sqrt d,
        \qquad \varepsilon_q \sim N(0, I_d) \\
        \theta_{km} &= \sigma \left(\sqrt\rho\, g_m + \sqrt{1 - \rho}\, h_{km}\right),
        \qquad g_m, h_{km} \sim N(0, 1), \text{ less the mean over } m \\
        P(\text{second wins}) &= \mathrm{expit}(\theta_{k, second} - \theta_{k, first})

    with orthonormal directions u and v where `embedding_dim` allows.

    Parameters
    ----------
    n_queries, n_models, n_clusters, n_topics, embedding_dim : int
        Sizes. Queries are called q0000, models llm_0, and so on.
    per_query : int
        Comparisons a query: pairs of models drawn without replacement, in random order.
    spread : float
        Standard deviation of the strengths (sigma), in logits.
    agreement : float
        Share of the strengths' variance that all clusters have in common (rho), from 0 to 1.
    topic_signal, capability_signal, noise : float
        Lengths of the three parts of an embedding (a, b, s) before it is normalised.
    coupling : float
        Chance that a query's cluster follows from its topic (the topic's number modulo
        `n_clusters`) and is not drawn uniformly, from 0 to 1.
    ties : float
        Chance that two equally strong models tie, from 0 to 1. Where one wins with probability p,
        a tie has probability 2 min(p, 1 - p) times this, taken in equal parts from both sides, so
        that half a win for a tie leaves the expected outcome at p. (Outcomes scatter less then:
        ties of this kind make the truth easier to find, not harder.)
    tie_margin, order_effect : float
        Rao and Kupper's tie margin (not negative; ties of this kind and `ties` exclude each other)
        and what being shown second adds to a margin, both in logits: the likelihood of
        `bayes_ecc.ties`. Equal models tie with chance tanh(tie_margin / 2).
    rng : int, numpy.random.Generator or None
        Randomness of the draw.

    Returns
    -------
    Simulation

    Raises
    ------
    InputError
        If a size or setting is out of range, or there are fewer pairs than `per_query`.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> truth = simulate(n_queries=200, ties=0.2, rng=1)
    >>> truth.comparisons.queries[0], truth.comparisons.models[0]
    ('q0000', 'llm_0')
    >>> bool(abs(truth.strengths.sum(axis=1)).max() < 1e-12)
    True
    """
    parameters: dict[str, float] = {
        name: value for name, value in locals().items() if name != "rng"
    }
    _check(parameters)
    generator = as_generator(rng)
    topics = generator.integers(n_topics, size=n_queries)
    labels = np.where(
        generator.random(n_queries) < coupling,
        topics % n_clusters,
        generator.integers(n_clusters, size=n_queries),
    )
    directions = _directions(n_topics + n_clusters, embedding_dim, generator)
    embeddings = (
        topic_signal * directions[topics]
        + capability_signal * directions[n_topics + labels]
        + noise / np.sqrt(embedding_dim) * generator.standard_normal((n_queries, embedding_dim))
    )
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)

    common = generator.standard_normal(n_models)
    own = generator.standard_normal((n_clusters, n_models))
    strengths = spread * (np.sqrt(agreement) * common + np.sqrt(1 - agreement) * own)
    strengths -= strengths.mean(axis=1, keepdims=True)

    left, right = np.triu_indices(n_models, k=1)
    keys = generator.random((n_queries, len(left)))
    pairs = np.argsort(keys, axis=1)[:, :per_query].ravel()
    query = np.repeat(np.arange(n_queries), per_query)
    swap = generator.random(len(pairs)) < 0.5
    first = np.where(swap, right[pairs], left[pairs])
    second = np.where(swap, left[pairs], right[pairs])
    cluster = labels[query]
    difference = strengths[cluster, second] - strengths[cluster, first] + order_effect
    p_second = expit(difference)
    half_tie = ties * np.minimum(p_second, 1 - p_second)
    least, most = p_second - half_tie, p_second + half_tie
    if tie_margin > 0:
        least, most = expit(difference - tie_margin), expit(difference + tie_margin)
    uniform = generator.random(len(pairs))
    outcome = np.where(uniform < most, 0.5, 0.0)
    outcome[uniform < least] = 1.0
    comparisons = Comparisons.from_arrays(
        query,
        first,
        second,
        outcome,
        queries=[f"q{i:04d}" for i in range(n_queries)],
        models=[f"llm_{i}" for i in range(n_models)],
    )
    embeddings = embeddings.astype(np.float32)
    return Simulation(comparisons, embeddings, labels, topics, strengths, parameters)


def _check(parameters: Mapping[str, Any]) -> None:
    """Refuse sizes that are no counts and settings that are no shares or lengths."""
    for name in ("n_queries", "n_clusters", "n_topics", "per_query"):
        check_count(name, parameters[name])
    for name in ("n_models", "embedding_dim"):
        check_count(name, parameters[name], least=2)
    for name in ("spread", "topic_signal", "capability_signal", "noise"):
        check_not_negative(name, parameters[name])
    for name in ("agreement", "coupling", "ties"):
        if check_not_negative(name, parameters[name]) > 1:
            raise InputError(f"{name}={parameters[name]!r}: give a share from 0 to 1.")
    check_not_negative("tie_margin", parameters["tie_margin"])
    check_not_negative("order_effect", abs(parameters["order_effect"]))
    if parameters["ties"] and parameters["tie_margin"]:
        raise InputError(
            f"ties={parameters['ties']!r} and tie_margin={parameters['tie_margin']!r} are two ways "
            "to make ties; give one of them."
        )
    if not any(parameters[name] for name in ("topic_signal", "capability_signal", "noise")):
        raise InputError(
            "topic_signal, capability_signal and noise are all 0; embeddings need one of them."
        )
    n_models = parameters["n_models"]
    n_pairs = n_models * (n_models - 1) // 2
    if parameters["per_query"] > n_pairs:
        raise InputError(
            f"per_query={parameters['per_query']}: {n_models} models make only {n_pairs} pairs; "
            "use fewer comparisons or more models."
        )


def _directions(n: int, dim: int, rng: np.random.Generator) -> FloatArray:
    """Draw n random unit vectors, orthogonal in groups of `dim`."""
    groups = [np.linalg.qr(rng.standard_normal((dim, dim)))[0].T for _ in range(-(-n // dim))]
    return np.concatenate(groups)[:n]
