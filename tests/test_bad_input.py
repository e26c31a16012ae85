"""Bad input ends in one clear error that names the argument, what was found and what to do."""

from __future__ import annotations

import warnings
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bayes_ecc import (
    ECC,
    BayesEccError,
    BradleyTerry,
    Comparisons,
    InputError,
    LabelBradleyTerry,
    NotFittedError,
    cluster_ranking,
    predict_ranking,
    predict_responsibilities,
    predict_win_probability,
    simulate,
)

NAN, INF = float("nan"), float("inf")
HUGE_INT = 10**400  # no float can hold it
N_QUERIES = 30


@pytest.fixture(scope="module")
def good():
    """Data, and estimators fitted to it."""
    data = simulate(n_queries=N_QUERIES, n_models=4, n_clusters=2, per_query=4, rng=0)
    comparisons, embeddings = data.comparisons, data.embeddings
    probes, rest = comparisons.take_probes(1)
    labels = pd.Series("x", index=comparisons.queries)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SimpleNamespace(
            comparisons=comparisons,
            embeddings=embeddings,
            probes=probes,
            rest=rest,
            labels=labels,
            ecc=ECC(2, rng=0).fit(comparisons, embeddings),
            bt=BradleyTerry().fit(comparisons),
            by_label=LabelBradleyTerry().fit(comparisons, labels),
        )


def refused(call, fragments):
    """Check that a call ends in an InputError alone, whose message holds all fragments."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError) as error:
            call()
    message = str(error.value)
    assert [part for part in fragments if part not in message] == [], message
    assert message.endswith("."), message
    assert len(message) < 2000, "a message is no place for data"
    assert isinstance(error.value, BayesEccError)
    assert isinstance(error.value, ValueError)
    assert error.value.__cause__ is None


def table(*rows):
    """Parametrise a test by rows of (what is wrong, anything ..., fragments of the message)."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


# -------------------------------------------------------------------- data

GOOD = {
    "query": [0, 0, 1],
    "first": [0, 1, 2],
    "second": [1, 2, 0],
    "outcome": [1.0, 0.5, 0.0],
    "queries": ["q1", "q2"],
    "models": ["a", "b", "c"],
}


@pytest.mark.parametrize(
    ("changes", "fragments"),
    table(
        ("a model against itself", {"second": [1, 1, 0]}, ["row 1", "'b' against itself", "drop"]),
        ("duplicate query", {"queries": ["q", "q"]}, ["queries", "'q' more than once", "unique"]),
        ("duplicate model", {"models": ["a", "b", "a"]}, ["models", "'a' more than once"]),
        ("one model only", {"models": ["a"]}, ["models", "1 name", "at least two"]),
        ("mismatched rows", {"outcome": [1.0]}, ["length", "query 3", "outcome 1", "one value"]),
        ("NaN outcome", {"outcome": [1.0, NAN, 0]}, ["outcome, row 1", "nan", "0.5 for a tie"]),
        ("zero weight", {"weight": [1.0, 0, 1]}, ["weight, row 1", "0.0", "positive"]),
    ),
)
def test_comparisons(changes, fragments):
    refused(lambda: Comparisons.from_arrays(**{**GOOD, **changes}), fragments)


@pytest.mark.parametrize("winner", ["both", "Model_A", "", None, 1, NAN])
def test_unknown_winner(winner):
    frame = pd.DataFrame(
        {"query_id": ["q"] * 2, "model_a": ["a"] * 2, "model_b": ["b"] * 2}
    ).assign(winner=pd.Series(["tie", winner], dtype=object))
    fragments = ["winner, row 1", repr(winner), "model_a, model_b, tie"]
    refused(lambda: Comparisons.from_frame(frame), fragments)


def undecided(comparisons):
    return Comparisons.from_arrays(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        np.full(len(comparisons), 0.5),
        queries=comparisons.queries,
        models=comparisons.models,
    )


def heavy(comparisons, weight):
    return Comparisons.from_arrays(
        comparisons.query,
        comparisons.first,
        comparisons.second,
        comparisons.outcome,
        weight=np.full(len(comparisons), weight),
        queries=comparisons.queries,
        models=comparisons.models,
    )


BAD_COMPARISONS = table(
    ("None", lambda _: None, ["comparisons", "not NoneType", "Comparisons.from_frame"]),
    ("a frame", lambda good: good.to_frame(), ["comparisons", "not DataFrame", "from_frame"]),
    ("an array", lambda _: np.eye(3), ["comparisons", "not ndarray"]),
    ("no comparison", lambda good: good.rows(good.query < 0), ["no comparisons", "at least one"]),
    ("no decisive comparison", undecided, ["comparisons are ties", "add decisive ones"]),
    (
        "weights that overflow",
        lambda good: heavy(good, 1e308),
        ["weight goes up to 1e+308", "divide all weights"],
    ),
)


@pytest.mark.parametrize(("change", "fragments"), BAD_COMPARISONS)
def test_comparisons_to_fit(good, change, fragments):
    bad = change(good.comparisons)
    refused(lambda: ECC(2, rng=0).fit(bad, good.embeddings), fragments)
    refused(lambda: BradleyTerry().fit(bad), fragments)
    refused(lambda: BradleyTerry(per_query_mean=True).fit(bad), fragments)
    refused(lambda: LabelBradleyTerry().fit(bad, good.labels), fragments)


def test_weights_beside_which_the_ridge_is_lost(good):
    bad = heavy(good.comparisons, 1e20)
    fragments = ["ridge=1.0", "weigh 1.2e+22 together", "give 1.3e+09 or more", "weights smaller"]
    refused(lambda: BradleyTerry().fit(bad), fragments)
    refused(lambda: LabelBradleyTerry().fit(bad, good.labels), fragments)


def changed(row, value):
    def change(embeddings):
        copy = embeddings.copy()
        copy[row] = value
        return copy

    return change


BAD_EMBEDDINGS = table(
    ("text", lambda _: "x", ["embeddings", "two-dimensional"]),
    ("NaN", changed(3, NAN), ["embeddings, row 3", "NaN", "encode that query again"]),
    ("infinite", changed((5, 0), INF), ["embeddings, row 5", "infinite", "leave it out"]),
    ("zeros", changed(2, 0), ["embeddings, row 2", "zeros", "leave it out"]),
    ("too few rows", lambda good: good[:-1], ["embeddings has 29 rows for 30 queries", "row i"]),
    ("too many rows", lambda good: np.vstack([good, good]), ["60 rows for 30 queries"]),
    ("turned", lambda good: good.T, ["32 rows for 30 queries"]),
    ("one row", lambda good: good[0], ["embeddings", "not 1-dimensional"]),
    ("no columns", lambda good: good[:, :0], ["embeddings has no columns"]),
    ("names", lambda good: good.astype(str), ["embeddings", "<U"]),
    ("objects", lambda good: good.astype(object), ["embeddings", "object"]),
    ("complex", lambda good: good + 0j, ["embeddings", "complex"]),
    ("ragged", lambda _: [[1.0], [1.0, 2.0]], ["embeddings", "one row of numbers a query"]),
)


@pytest.mark.parametrize(("change", "fragments"), BAD_EMBEDDINGS)
def test_embeddings(good, change, fragments):
    bad = change(good.embeddings)
    refused(lambda: ECC(2, rng=0).fit(good.comparisons, bad), fragments)
    refused(lambda: good.ecc.predict_win_probability(good.rest, embeddings=bad), fragments)
    ids = good.comparisons.queries
    refused(lambda: good.ecc.predict_responsibilities(bad, queries=ids), fragments)
    refused(lambda: good.ecc.predict_ranking(bad, probes=good.probes), fragments)


# -------------------------------------------------------------------- settings

NO_COUNTS = [0, -1, 2.0, 1.5, NAN, INF, "2", None, True, [2], np.array([2, 3]), 1j, Decimal(2)]
NO_NUMBERS = [-1, -0.1, NAN, INF, "1", None, True, [1.0], np.array([1.0, 2.0]), 1j, Decimal(1)]


@pytest.mark.parametrize("value", NO_COUNTS, ids=str)
def test_n_clusters(good, value):
    call = ECC(value, rng=0)
    allowed = "a number or 'auto'" if isinstance(value, str) else "a whole number, 1 or more"
    fragments = [f"n_clusters={value!r}", f"give {allowed}"]
    refused(lambda: call.fit(good.comparisons, good.embeddings), fragments)


def test_more_clusters_than_queries(good):
    for value in (31, HUGE_INT, np.int64(31)):
        fragments = [f"n_clusters={value} exceeds the 30 queries", "fewer clusters or more queries"]
        refused(lambda v=value: ECC(v).fit(good.comparisons, good.embeddings), fragments)
    few = good.comparisons.take(np.arange(2))
    refused(
        lambda: ECC("auto").fit(few, good.embeddings[:2]), ["n_clusters='auto'", "give a number"]
    )


@pytest.mark.parametrize("name", ["n_init", "max_iter"])
@pytest.mark.parametrize("value", [*NO_COUNTS, "auto"], ids=str)
def test_counts(good, name, value):
    call = ECC(2, rng=0, **{name: value})
    fragments = [f"{name}={value!r}", "whole number, 1 or more"]
    refused(lambda: call.fit(good.comparisons, good.embeddings), fragments)


@pytest.mark.parametrize(
    "name", ["temperature", "ridge", "embedding_weight", "tol", "centroid_tol"]
)
@pytest.mark.parametrize("value", [*NO_NUMBERS, HUGE_INT], ids=lambda v: str(v)[:12])
def test_numbers(good, name, value):
    call = ECC(2, rng=0, **{name: value})
    fragments = [f"{name}={value!r}"]
    if isinstance(value, str) and "tol" not in name:
        fragments.append("give a number or 'auto'")
    else:
        zero_too = name in ("embedding_weight", "tol", "centroid_tol")
        fragments.append("finite number, 0 or more" if zero_too else "positive, finite number")
    refused(lambda: call.fit(good.comparisons, good.embeddings), fragments)


@pytest.mark.parametrize("name", ["temperature", "ridge"])
def test_zero_where_only_positive_numbers_will_do(good, name):
    for value in (0, 0.0, -0.0, np.float32(0)):
        call = ECC(2, rng=0, **{name: value})
        fragments = [f"{name}={value!r}", "positive"]
        refused(lambda c=call: c.fit(good.comparisons, good.embeddings), fragments)


@pytest.mark.parametrize(
    ("settings", "fragments"),
    table(
        ("cold", {"temperature": 1e-320}, ["temperature=1e-320", "between 0.001 and 1000"]),
        ("hot", {"temperature": 1e300}, ["temperature=1e+300", "between 0.001 and 1000"]),
        ("weighty", {"embedding_weight": 1e300}, ["embedding_weight=1e+300", "between"]),
        ("free", {"ridge": 1e-300}, ["ridge=1e-300", "lost in rounding", "or more"]),
    ),
)
def test_numbers_beyond_arithmetic(good, settings, fragments):
    for dtype in (np.float32, np.float64):
        embeddings = good.embeddings.astype(dtype)
        call = ECC(2, rng=0, **settings)
        refused(lambda c=call, x=embeddings: c.fit(good.comparisons, x), fragments)


def test_bad_settings_are_refused_before_anything_is_searched(good):
    for bad, fragments in (
        ({"max_iter": 0}, ["max_iter=0"]),
        ({"temperature": "hot"}, ["temperature='hot'"]),
        ({"evidence": "all"}, ["evidence='all'"]),
        ({"tol": -1}, ["tol=-1"]),
        ({"init": np.ones((N_QUERIES, 2))}, ["init", "ridge='auto'", "give numbers"]),
    ):
        call = ECC(2, ridge="auto", rng=0, **bad)
        refused(lambda c=call: c.fit(good.comparisons, good.embeddings), fragments)
        assert not hasattr(call, "selection_")


@pytest.mark.parametrize(
    "value", ["all", "BOTH", None, 5, ["both"], np.array(["both", "embedding"])], ids=str
)
def test_evidence(good, value):
    call = ECC(2, evidence=value, rng=0)
    fragments = ["evidence=", "allowed are 'both', 'embedding', 'comparisons'"]
    refused(lambda: call.fit(good.comparisons, good.embeddings), fragments)


def start(**changes):
    rows = np.full((N_QUERIES, 2), 0.5)
    for row, value in changes.items():
        rows[int(row.removeprefix("row_"))] = value
    return rows


@pytest.mark.parametrize(
    ("init", "fragments"),
    table(
        ("another word", "random", ["'random'", "give 'dirichlet' or responsibilities"]),
        ("None", None, ["NoneType", "(30, 2)"]),
        ("a number", 5, ["shape ()", "(30, 2)", "or give 'dirichlet'"]),
        ("too few rows", start()[:-1], ["shape (29, 2)", "(30, 2)"]),
        ("too many clusters", np.ones((N_QUERIES, 3)), ["shape (30, 3)", "(30, 2)"]),
        ("labels", np.zeros(N_QUERIES, int), ["shape (30,)", "(30, 2)"]),
        ("NaN", start(row_4=NAN), ["row 4", "nan", "finite"]),
        ("infinite", start(row_4=[INF, 0]), ["row 4", "inf", "finite"]),
        ("negative", start(row_9=[1.5, -0.5]), ["row 9", "-0.5 to 1.5", "not negative"]),
        ("zeros", start(row_0=0), ["row 0", "0 to 0", "not all zero"]),
        ("complex", start() + 0j, ["complex128", "array of numbers"]),
        ("text", start().astype(str), ["<U", "array of numbers"]),
        ("objects", start().astype(object), ["object", "array of numbers"]),
        ("ragged", [[1.0], [0.5, 0.5]], ["list", "array of numbers"]),
        ("huge integers", [[HUGE_INT, 1]] * N_QUERIES, ["list", "array of numbers"]),
    ),
)
def test_init(good, init, fragments):
    call = ECC(2, init=init, rng=0)
    refused(lambda: call.fit(good.comparisons, good.embeddings), ["init", *fragments])


def test_huge_responsibilities_to_start_with_are_only_shares(good):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = [
            ECC(2, init=init, max_iter=500).fit(good.comparisons, good.embeddings)
            for init in (start(row_1=[1, 3]), start(row_1=[1, 3]) * 4e307)
        ]
    np.testing.assert_allclose(fits[0].strengths_, fits[1].strengths_, atol=1e-6)


@pytest.mark.parametrize("value", ["x", -1, 1.5, [1, "a"], {}, object()], ids=lambda v: str(v)[:9])
def test_rng(good, value):
    call = ECC(2, rng=value)
    refused(lambda: call.fit(good.comparisons, good.embeddings), ["rng=", "non-negative integer"])


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, "auto", HUGE_INT], ids=lambda v: str(v)[:12])
def test_ridge_of_the_baselines(good, value):
    fragments = [f"ridge={value!r}", "positive, finite number"]
    refused(lambda: BradleyTerry(value).fit(good.comparisons), fragments)
    refused(lambda: LabelBradleyTerry(value).fit(good.comparisons, good.labels), fragments)


@pytest.mark.parametrize(
    "value", [None, 0, 1, "yes", 0.5, [True], np.array([True, False])], ids=str
)
def test_per_query_mean(good, value):
    call = BradleyTerry(per_query_mean=value)
    refused(lambda: call.fit(good.comparisons), ["per_query_mean=", "give True or False"])


# -------------------------------------------------------------------- predicting


@pytest.mark.parametrize(
    ("change", "fragments"),
    table(
        ("None", lambda _: None, ["comparisons", "not NoneType"]),
        ("a frame", lambda good: good.to_frame(), ["comparisons", "not DataFrame", "from_frame"]),
        (
            "an unknown model",
            lambda good: Comparisons.from_arrays(
                [0], [0], [1], [1], queries=good.queries, models=["llm_0", "new"]
            ),
            ["'new'", "not among the 4 known models", "drop_models"],
        ),
    ),
)
def test_comparisons_to_predict(good, change, fragments):
    bad = change(good.rest)
    refused(lambda: good.ecc.predict_win_probability(bad, embeddings=good.embeddings), fragments)
    refused(lambda: good.bt.predict_win_probability(bad), fragments)
    refused(lambda: good.by_label.predict_win_probability(bad, good.labels), fragments)


@pytest.mark.parametrize(
    ("change", "fragments"),
    table(
        ("a frame", lambda good: good.to_frame(), ["probes", "not DataFrame", "take_probes"]),
        ("a list", lambda _: [0, 1], ["probes", "not list"]),
        ("other queries", lambda good: good.take(np.arange(5)), ["probes are of other queries"]),
        (
            "another order",
            lambda good: good.take(np.arange(N_QUERIES)[::-1]),
            ["probes are of other queries, or in another order", "take both from one"],
        ),
        (
            "an unknown model",
            lambda good: Comparisons.from_arrays(
                [0], [0], [1], [1], queries=good.queries, models=["llm_0", "new"]
            ),
            ["'new'", "not among the 4 known models"],
        ),
    ),
)
def test_probes(good, change, fragments):
    bad = change(good.probes)
    ask = good.ecc.predict_win_probability
    refused(lambda: ask(good.rest, probes=bad), fragments)
    refused(lambda: ask(good.rest, embeddings=good.embeddings, probes=bad), fragments)


def test_nothing_known_of_a_query(good):
    fragments = ["Give embeddings, probes, or both"]
    refused(lambda: good.ecc.predict_win_probability(good.rest), fragments)
    refused(lambda: good.ecc.predict_responsibilities(), fragments)
    refused(lambda: good.ecc.predict_ranking(), fragments)


@pytest.mark.parametrize(
    ("queries", "fragments"),
    table(
        ("a number", 5, ["queries=5", "list of identifiers"]),
        ("one string", "q" * N_QUERIES, ["queries=", "list of identifiers"]),
        ("too few", ["q1"], ["30 rows for 1 queries"]),
        ("repeated", ["q"] * N_QUERIES, ["queries", "'q' more than once", "unique"]),
        ("missing", [None] * N_QUERIES, ["queries", "None", "all strings or all integers"]),
        ("floats", np.arange(N_QUERIES) + 0.5, ["queries", "float64", "0.5"]),
        ("lists", [[i] for i in range(N_QUERIES)], ["queries", "all strings or all integers"]),
        ("tuples", [(i, i) for i in range(N_QUERIES)], ["queries", "all strings or all integers"]),
    ),
)
def test_identifiers_of_new_queries(good, queries, fragments):
    for ask in (good.ecc.predict_responsibilities, good.ecc.predict_ranking):
        refused(lambda a=ask: a(good.embeddings, queries=queries), fragments)


def test_identifiers_that_are_not_those_of_the_probes(good):
    others = [f"other {i}" for i in range(N_QUERIES)]
    ask = good.ecc.predict_responsibilities
    refused(lambda: ask(probes=good.probes, queries=others), ["probes are of other queries"])


@pytest.mark.parametrize(
    "value", ["rank", None, 5, ["strength"], np.array(["strength", "x"])], ids=str
)
def test_by(good, value):
    fragments = ["by=", "allowed are 'win_probability', 'strength'"]
    refused(lambda: good.ecc.predict_ranking(good.embeddings, by=value), fragments)
    refused(lambda: good.ecc.cluster_ranking(by=value), fragments)


@pytest.mark.parametrize("value", [None, {}, "fit.nc", xr.Dataset(), ECC(), ()], ids=repr)
def test_posterior(good, value):
    fragments = ["posterior", f"not {type(value).__name__}", "posterior_ of a fit"]
    for ask in (predict_responsibilities, predict_ranking):
        refused(lambda a=ask: a(value, embeddings=good.embeddings), fragments)
    refused(lambda: cluster_ranking(value), fragments)
    refused(lambda: predict_win_probability(value, good.rest, probes=good.probes), fragments)


def test_asking_before_fitting_is_an_error_of_ours_too():
    assert issubclass(NotFittedError, BayesEccError)
    with pytest.raises(BayesEccError):
        ECC().cluster_ranking()
