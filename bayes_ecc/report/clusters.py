"""The section on clusters: who leads where, how sure that is, and on which queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import adjusted_mutual_info_score

from bayes_ecc.report.llms import may_be_best, ranking_cells, ranking_columns
from bayes_ecc.report.markup import Content, Markup, isolated, join, shortened, tag
from bayes_ecc.report.parts import Figure, Section, bullets, callout, figure, paragraph, section
from bayes_ecc.report.reading import Reading
from bayes_ecc.report.tables import (
    Cell,
    Column,
    bar,
    named,
    names,
    number,
    table,
)

_TEASER, _LONGEST = 280, 4000  # characters of a query's text: shown at once, and shown at all
_LABELS = 4  # labels of a cluster that are named


@dataclass(frozen=True, eq=False)
class Queries:
    """What is known of the queries beside the fit.

    Attributes
    ----------
    texts : mapping of str to str
        By identifier.
    labels : mapping of str to pandas.Series
        Column by column, one label a query; those first that go best with the clusters.
    agreement : mapping of str to float
        How well they do: adjusted mutual information, 0 by chance and 1 at best.
    typical : int
        How many of a cluster to show.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, pd.Series] = field(default_factory=dict)
    agreement: Mapping[str, float] = field(default_factory=dict)
    typical: int = 5


def know_queries(
    reading: Reading, texts: Mapping[str, str], labels: Mapping[str, pd.Series], typical: int
) -> Queries:
    """Put together what is known of queries, the labels in the order of their worth."""
    agreement = {}
    for name, values in labels.items():
        known = values.notna().to_numpy()
        codes = values.cat.codes.to_numpy()[known]
        agreement[name] = float(adjusted_mutual_info_score(codes, reading.held[known]))
    order = sorted(labels, key=lambda name: -agreement[name])
    return Queries(texts, {name: labels[name] for name in order}, agreement, typical)


def clusters_section(
    reading: Reading, queries: Queries, pictures: Iterable[Figure], label: str | None = None
) -> Section:
    """Tell of every cluster that holds queries; `label` is a column that parts them as well."""
    occupied = reading.by_size()
    n_clusters = reading.responsibilities.shape[1]
    if n_clusters == 1:
        return section("clusters", "The clusters", _one_alone(reading, label))
    empty = n_clusters - len(occupied)
    typical, nobody = reading.typical(queries.typical), np.empty(0, np.intp)
    notes: list[Content] = []
    if reading.chain is not None:
        notes.append(
            callout(
                "note",
                "The chains hold several solutions",
                paragraph(
                    f"Clusters are those of chain {reading.chain}, whose weight in predictions is "
                    f"the largest ({reading.chain_weight:.2f}). Another chain parts the queries "
                    "in another way; intervals within a cluster are within this solution."
                ),
            )
        )
    intro = (
        f"{len(occupied)} of {n_clusters} clusters hold queries"
        + (
            f"; {empty} {'holds' if empty == 1 else 'hold'} next to none and "
            f"{'is' if empty == 1 else 'are'} left out here"
            if empty
            else ""
        )
        + ". A query may belong to several; sizes add up its shares."
    )
    return section(
        "clusters",
        "The clusters",
        paragraph(intro),
        notes,
        _what_labels_say(queries) if len(occupied) > 1 else None,
        _overview(reading, queries, occupied),
        [figure(picture) for picture in pictures],
        tag("h3", "One by one"),
        _what_is_typical(reading, queries) if queries.typical else None,
        tag(
            "div",
            [
                _card(reading, queries, k, typical.get(k, nobody), is_open=place == 0)
                for place, k in enumerate(occupied)
            ],
            class_="cards",
            data_cards="clusters",
        ),
    )


def _one_alone(reading: Reading, label: str | None) -> Markup:
    wanted = (
        "several comparisons a query, or embeddings of the queries"
        if (reading.embeddings is None)
        else "a larger number of clusters, if the data bear it"
    )
    told = paragraph(
        "The fit has one cluster: one ranking for all queries, which is the one above. Kinds of "
        f"query on which LLMs rank otherwise take {wanted} (",
        tag("code", "bayes-ecc fit --clusters K"),
        ").",
    )
    if label is None:
        return told
    return join(
        told,
        paragraph(
            "The data set has labels of its queries. The method ",
            tag("code", isolated(f"labels:{label}")),
            " gives each value of that column a ranking of its own, and ",
            tag("code", "bayes-ecc evaluate BUNDLE --methods"),
            " (or ",
            tag("code", "bayes-ecc report --evaluate"),
            ") tells whether that predicts better.",
        ),
    )


def _what_labels_say(queries: Queries) -> Markup | None:
    if not queries.labels:
        return None
    parts = [join(isolated(name), f" {queries.agreement[name]:.2f}, ") for name in queries.labels]
    return paragraph(
        "How well clusters go with labels, which no fit sees: ",
        parts,
        "as adjusted mutual information (0 is chance, 1 the same partition).",
    )


def _what_is_typical(reading: Reading, queries: Queries) -> Markup:
    return paragraph(
        "Typical queries are those that the cluster is most responsible for",
        ", and whose embeddings lie near its middle" if reading.embeddings is not None else None,
        "." if queries.texts else "; their texts are not at hand.",
    )


def _overview(reading: Reading, queries: Queries, occupied: list[int]) -> Markup:
    models, ranking = reading.comparisons.models, reading.ranking
    label = next(iter(queries.labels), None)
    columns = [
        Column("cluster"),
        Column("queries", True, "that it is responsible for, in sum"),
        Column("best LLM"),
    ]
    if not reading.point:
        columns += [
            Column("P(best)", True, "probability that this LLM is the best"),
            Column("", meaning="P(best)"),
            Column("can't be told from the best", meaning="sorted by how many they are"),
        ]
    if label is not None:
        columns.append(Column(join("mostly (", isolated(label), ")")))
    columns.append(Column("certainty", True, "its mean responsibility for the queries it holds"))
    rows = []
    for k in occupied:
        p_best = ranking["p_best"].values[k]
        best = int(np.lexsort((-ranking["win_probability"].values[k], -p_best))[0])
        own, size = reading.held == k, float(reading.sizes[k])
        share = tag("span", f" ({size / len(own):.1%})", class_="quiet")
        row = [
            Cell(tag("a", _name(reading, k), href=f"#cluster-{_name(reading, k)}"), float(k)),
            Cell(join(f"{size:,.0f}", share), size),
            named(models[best]),
        ]
        if not reading.point:
            others = [models[m] for m in _best_set(reading, k)]
            told = join(f"{len(others)}: ", names(others, 4)) if others[1:] else "clear of others"
            row += [
                number(p_best[best]),
                Cell(bar(p_best[best]), float(p_best[best])),
                Cell(told, float(len(others)), "name"),
            ]
        if label is not None:
            row.append(Cell(_composition(queries.labels[label][own], 2), look="name"))
        certainty = reading.responsibilities[own, k].mean() if own.any() else np.nan
        rows.append([*row, number(certainty)])
    return table(None, columns, rows, name="clusters", legend=True)


def _name(reading: Reading, k: int) -> str:
    return str(reading.ranking["cluster"].values[k])


def _best_set(reading: Reading, k: int) -> list[int]:
    """Models that may be the best in a cluster, by falling probability."""
    p_best = reading.ranking["p_best"].values[k]
    win = reading.ranking["win_probability"].values[k]
    inside = reading.ranking["in_best_set"].values[k]
    return [int(m) for m in np.lexsort((-win, -p_best)) if inside[m]]


def _card(
    reading: Reading, queries: Queries, k: int, typical: NDArray[np.intp], is_open: bool
) -> Markup:
    models, n_models = reading.comparisons.models, reading.comparisons.n_models
    ranking = reading.ranking.isel(cluster=k)
    order = np.argsort(-ranking["win_probability"].values, kind="stable")
    names_of = [name for name in ranking.data_vars if ranking[name].dims == ("llm",)]
    frame = pd.DataFrame({str(name): ranking[name].values for name in names_of})
    inside = set(_best_set(reading, k))
    columns = [Column("LLM"), *ranking_columns(reading.point)]
    if not reading.point:
        columns.append(Column("may be best"))
    rows = []
    for m in order:
        row = [named(models[m]), *ranking_cells(frame.loc[m], n_models, reading.point)]
        if not reading.point:
            row.append(may_be_best(m in inside))
        rows.append(row)
    name = _name(reading, k)
    own = np.flatnonzero(reading.held == k)
    summary = tag(
        "summary",
        tag("span", f"Cluster {name}", class_="cluster-name"),
        tag("span", f" {reading.sizes[k]:,.0f} queries. ", class_="quiet"),
        _leaders(reading, k),
    )
    labels = [
        join(isolated(column), ": ", _composition(values.iloc[own], _LABELS))
        for column, values in queries.labels.items()
    ]
    return tag(
        "details",
        summary,
        tag(
            "div",
            bullets(labels) if labels else None,
            table(None, columns, rows, name=f"ranking in cluster {name}"),
            _typical(reading, queries, k, typical) if queries.typical else None,
            id=f"cluster-{name}",
            class_="inside",
        ),
        class_="card",
        open=is_open,
    )


def _leaders(reading: Reading, k: int) -> Markup:
    models = reading.comparisons.models
    inside = _best_set(reading, k)
    if reading.point:
        return join("Best: ", isolated(models[inside[0]]), ".")
    p_best = float(reading.ranking["p_best"].values[k, inside[0]])
    if len(inside) == 1:
        return join("Best: ", isolated(models[inside[0]]), f" (P {p_best:.2f}).")
    return join("Can't be told apart: ", names([models[m] for m in inside], 4), ".")


def _composition(values: pd.Series, most: int) -> Markup:
    """Tell how often the commonest labels occur."""
    counts = values.value_counts()
    counts = counts[counts > 0]
    if not len(counts):
        return join("no label")
    total = counts.sum()
    parts = [join(isolated(name), f" {count / total:.0%}") for name, count in counts.items()]
    more = f", {len(parts) - most} more" if len(parts) > most else None
    shown = [part for one in parts[:most] for part in (", ", one)][1:]
    return join(shown, more)


def _typical(reading: Reading, queries: Queries, k: int, chosen: NDArray[np.intp]) -> Markup:
    title = tag("h4", "Typical queries")
    if not len(chosen):
        return join(title, paragraph("It is no query's most responsible cluster."))
    items = []
    for place in chosen:
        query = str(reading.comparisons.queries[place])
        head = tag(
            "p",
            tag("code", isolated(query)),
            tag(
                "span", f" responsibility {reading.responsibilities[place, k]:.2f}", class_="quiet"
            ),
        )
        items.append(tag("li", head, show_text(queries.texts.get(query))))
    return join(title, tag("ol", items, class_="queries"))


def show_text(text: str | None) -> Markup | None:
    """Show the text of a query, the rest of a long one at a click.

    Examples
    --------
    >>> from bayes_ecc.report.clusters import show_text
    >>> show_text("<b>?")
    '<div class="text" dir="auto">&lt;b&gt;?</div>'
    """
    if text is None:
        return None
    text = text.strip()
    shown, more = shortened(text, _TEASER)
    if not more:
        return tag("div", shown, class_="text", dir="auto")
    rest, left = shortened(text, _LONGEST)
    tail = f" ... and {left:,} more characters" if left else None
    return join(
        tag("div", shown, "...", class_="text", dir="auto"),
        tag(
            "details",
            tag("summary", f"All of it ({len(text):,} characters)" if not left else "More of it"),
            tag("div", rest, tail and tag("em", tail), class_="text", dir="auto"),
            class_="more",
        ),
    )
