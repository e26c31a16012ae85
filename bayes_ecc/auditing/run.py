"""`audit`: make all checks and collect what they find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayes_ecc.auditing.findings import Audit, Finding
from bayes_ecc.auditing.graph import (
    check_cluster_graphs,
    check_graph,
    check_label_graphs,
    check_star,
)
from bayes_ecc.auditing.scores import check_scores
from bayes_ecc.auditing.source import make_source
from bayes_ecc.auditing.swapped import check_swapped
from bayes_ecc.auditing.texts import check_split, check_texts
from bayes_ecc.auditing.vectors import check_lengths, check_repetitions
from bayes_ecc.auditing.votes import (
    check_counts,
    check_duplicates,
    check_labels,
    check_missing,
    check_order,
    check_ties,
)
from bayes_ecc.bundle import Bundle
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.random import RandomState, as_generator


def audit(
    data: Bundle | Comparisons,
    *,
    fit: Any = None,
    labels: Any = None,
    split: Any = None,
    rng: RandomState = None,
) -> Audit:
    """Look for defects that no estimator survives, and for what one should know of the data.

    The checks, by the names of their findings:

    - `counts`, `labels`, `ties`, `missing_scores`: what there is and what is not;
    - `never_compared`, `disconnected`, `separated`, `star_design`: the graph of comparisons, and
      the same by label (`disconnected_labels`, `open_contrasts_labels`) and by cluster of a fit
      (`disconnected_clusters`, `open_contrasts_clusters`, `empty_clusters`);
    - `duplicate_votes`, `contradictory_votes`, `presentation_order`: the votes;
    - `misaligned_scores`: models whose score rows belong to other queries;
    - `missing_texts`, `repeated_texts`: the queries, and with a split `split_overlap`,
      `split_repeated_texts` and `split_near_duplicates`;
    - `vanishing_embeddings`, `embedding_lengths`, `constant_embeddings`, `repeated_embeddings`,
      `unlike_embeddings`, `swapped_embeddings`: the embeddings. That rows were swapped can be told
      only by texts or labels, and if it concerns a few rows, only by repeated texts.

    Parameters
    ----------
    data : Bundle or Comparisons
        What to audit. Nothing is changed.
    fit : estimator or xarray.DataTree, optional
        A fit whose clusters are to be looked at; the embeddings (and of a bundle's scores 7 drawn
        comparisons a query) decide which query belongs to which.
    labels : str or array-like, optional
        A label column of the bundle, or one label a query: a Series by query identifier, or values
        in the order of the queries. By default all columns of a bundle with few values.
    split : pair or Split, optional
        Training and test side, each a `Comparisons` or query identifiers.
    rng : int, numpy.random.Generator or None
        Chooses the queries that are looked at where looking at all would take long; None always
        chooses the same.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        If an argument is of the wrong kind, or labels, split or fit do not belong to the data.

    Examples
    --------
    >>> from bayes_ecc import audit, simulate
    >>> bundle = simulate(n_queries=1200, rng=0).bundle()
    >>> result = audit(bundle)
    >>> result.ok
    True
    >>> print(str(result).splitlines()[0])
    Audit of 'simulated': no errors, no warnings, 2 notes
    >>> votes = bundle.draw_comparisons()
    >>> one_sided = votes.rows(votes.first == 0)
    >>> [finding.name for finding in audit(one_sided).findings][:2]
    ['star_design', 'counts']
    """
    source = make_source(data, labels)
    generator = as_generator(0 if rng is None else rng)
    checks: dict[str, Callable[[], list[Finding] | str]] = {
        "counts": lambda: check_counts(source),
        "labels": lambda: check_labels(source),
        "ties": lambda: check_ties(source),
        "missing_scores": lambda: check_missing(source),
        "misaligned_scores": lambda: check_scores(source),
        "comparison_graph": lambda: check_graph(source),
        "star_design": lambda: check_star(source),
        "label_graphs": lambda: check_label_graphs(source),
        "cluster_graphs": lambda: check_cluster_graphs(source, fit, generator),
        "repeated_votes": lambda: check_duplicates(source),
        "presentation_order": lambda: check_order(source),
        "texts": lambda: check_texts(source),
        "split": lambda: check_split(source, split),
        "embedding_lengths": lambda: check_lengths(source),
        "repeated_embeddings": lambda: check_repetitions(source),
        "swapped_embeddings": lambda: check_swapped(source, generator),
    }
    findings: list[Finding] = []
    state = {}
    for name, check in checks.items():
        result = check()
        if isinstance(result, str):
            state[name] = result
        else:
            state[name] = "done"
            findings += result
    return Audit(source.name, tuple(findings), state)
