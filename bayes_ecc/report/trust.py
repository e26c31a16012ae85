"""The section on diagnostics: what was checked of the fit, and what that means for its use."""

from __future__ import annotations

import warnings

import arviz_stats  # noqa: F401  (registers the accessor azstats)
import pandas as pd
import xarray as xr

from bayes_ecc.diagnostics import Diagnosis, stored_diagnosis
from bayes_ecc.errors import InputError
from bayes_ecc.posterior_checks import FAIL, NOT_APPLICABLE, OK, WARN, moving
from bayes_ecc.report.markup import Content, Markup, tag
from bayes_ecc.report.parts import (
    Section,
    badge,
    bullets,
    callout,
    command,
    paragraph,
    section,
    terms,
)
from bayes_ecc.report.reading import Reading
from bayes_ecc.report.tables import Cell, Column, number, table

_ORDER = (FAIL, WARN, OK, NOT_APPLICABLE)
_KINDS = {FAIL: "fail", WARN: "warn", OK: "ok", NOT_APPLICABLE: "note"}
_FEWEST = 4  # draws a chain, below which r-hat and ESS mean nothing


def diagnosis_of(reading: Reading) -> Diagnosis | None:
    """Give the diagnosis that was stored with a fit, if there is one."""
    try:
        return stored_diagnosis(reading.posterior)
    except InputError:
        return None


def verdict(reading: Reading, diagnosis: Diagnosis | None) -> tuple[str, str]:
    """Say in a few words how far a fit can be trusted: the kind of the verdict, and the words."""
    if reading.point:
        converged = _converged(reading.posterior)
        if converged is False:
            return "warn", "point estimate that stopped before it converged"
        return "note", "point estimate: nothing to check by draws"
    if reading.posterior.attrs.get("approximate"):
        kind, words = _graded(diagnosis)
        return ("warn" if kind == "ok" else kind), f"an approximation; {words}"
    return _graded(diagnosis)


def _graded(diagnosis: Diagnosis | None) -> tuple[str, str]:
    if diagnosis is None:
        return "warn", "not checked"
    if diagnosis.failed:
        return "fail", f"{_counted(diagnosis.failed)} failed: {', '.join(diagnosis.failed)}"
    if diagnosis.warned:
        return "warn", f"{_counted(diagnosis.warned)} with a warning: {', '.join(diagnosis.warned)}"
    return "ok", "all checks passed"


def _counted(checks: list[str]) -> str:
    return f"{len(checks)} check{'' if len(checks) == 1 else 's'}"


def trust_section(reading: Reading, diagnosis: Diagnosis | None) -> Section:
    """Tell what was checked."""
    kind, words = verdict(reading, diagnosis)
    contents: list[Content] = [
        paragraph("Verdict: ", badge(kind, words)),
    ]
    if reading.point:
        contents.append(_point(reading.posterior))
    elif diagnosis is None:
        contents.append(_unchecked())
    if diagnosis is not None and not reading.point:
        contents += [_in_words(diagnosis), _checks(diagnosis)]
    if not reading.point:
        contents += [_convergence(reading.posterior)]
    if diagnosis is not None and len(diagnosis.modes) > 1:
        contents.append(_modes(diagnosis.modes))
    return section("diagnostics", "How far the fit can be trusted", contents)


def _point(posterior: xr.DataTree) -> Markup:
    stats = _group(posterior, "sample_stats")
    rows: dict[str, Content] = {}
    if stats is not None:
        if "converged" in stats:
            rows["Converged"] = "yes" if bool(stats["converged"].values.all()) else "no"
        if "n_iter" in stats:
            rows["Iterations"] = f"{int(stats['n_iter'].values.max()):,}"
        if "objective" in stats:
            rows["Objective"] = f"{float(stats['objective'].values.min()):,.2f}"
    return tag(
        "div",
        terms(rows) if rows else None,
        paragraph(
            "EM finds one solution and says nothing of how sure it is. Starts differ in what they "
            "find; ",
            tag("code", "bayes-ecc fit --method bayes"),
            " samples around several and weighs them, and ",
            tag("code", "BayesianECC.matching(ecc)"),
            " puts a posterior around this one.",
        ),
    )


def _unchecked() -> Markup:
    return callout(
        "warn",
        "No diagnosis is stored with this fit",
        paragraph("It was fitted with checks=False. To add one and save the fit again:"),
        command(
            "from bayes_ecc import attach, diagnose, load_posterior, save_posterior\n"
            'posterior = load_posterior("fit.nc")\n'
            'save_posterior(attach(posterior, diagnose(posterior)), "fit.nc")'
        ),
    )


def _in_words(diagnosis: Diagnosis) -> Markup | None:
    """Tell what failed and what warns, as sentences."""
    items = []
    for grade in (FAIL, WARN):
        for name in diagnosis.table.index[diagnosis.table["verdict"] == grade]:
            row = diagnosis.table.loc[name]
            items.append(
                [
                    badge(_KINDS[grade], grade),
                    " ",
                    tag("code", name),
                    f": {row['meaning']} ",
                    tag("span", row["remedy"], class_="quiet"),
                ]
            )
    return bullets(items) if items else None


def _checks(diagnosis: Diagnosis) -> Markup:
    rows = []
    order = {grade: place for place, grade in enumerate(_ORDER)}
    told = diagnosis.table.assign(place=diagnosis.table["verdict"].map(order))
    for name, row in told.sort_values("place", kind="stable").iterrows():
        applies = row["verdict"] != NOT_APPLICABLE
        rows.append(
            [
                tag("code", name),
                Cell(badge(_KINDS[row["verdict"]], row["verdict"]), float(row["place"])),
                row["figures"] if applies else row["meaning"],
                row["threshold"],
            ]
        )
    columns = [Column(head) for head in ("check", "verdict", "found", "allowed")]
    return tag("div", tag("h3", "Checks"), table(None, columns, rows, name="checks"))


def _convergence(posterior: xr.DataTree) -> Markup | None:
    """R-hat and effective sample sizes of what does not depend on the numbering of clusters."""
    watched = _group(posterior, "invariants")
    if watched is None or watched.sizes.get("draw", 0) < _FEWEST:
        return None
    quantities = moving(watched)
    if not quantities.sizes["quantity"]:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of quantities that hardly move
        stats, how = quantities.azstats, {"sample_dims": ["chain", "draw"]}
        found = {
            "r-hat": stats.rhat(**how),
            "ESS, bulk": stats.ess(method="bulk", **how),
            "ESS, tail": stats.ess(method="tail", **how),
        }
    mean, sd = quantities.mean(["chain", "draw"]), quantities.std(["chain", "draw"], ddof=1)
    columns = [Column("quantity"), *(Column(head, True) for head in ("mean", "sd", *found))]
    rows = [
        [
            tag("code", name),
            number(float(mean[i]), ",.4g"),
            number(float(sd[i]), ".3g"),
            number(float(found["r-hat"][i]), ".3f"),
            number(float(found["ESS, bulk"][i]), ",.0f"),
            number(float(found["ESS, tail"][i]), ",.0f"),
        ]
        for i, name in enumerate(quantities["quantity"].values.tolist())
    ]
    return tag(
        "details",
        tag("summary", "R-hat and effective sample size (ESS), quantity by quantity"),
        paragraph(
            "These quantities do not depend on how clusters are numbered: the log density, each "
            "LLM's share of first places, quantiles of the queries' evidence, and the global "
            "strengths with their spread."
        ),
        table(None, columns, rows, name="convergence"),
    )


def _modes(modes: pd.DataFrame) -> Markup:
    meanings = {
        "log_density": ("log density", ",.1f", "mean of the total"),
        "r_hat": ("r-hat", ".3f", "between the halves of the chain"),
        "elpd": ("left-out evidence", ",.1f", "log probability of queries left out, summed"),
        "stacking_weight": ("stacking weight", ".2f", "by left-out evidence"),
        "chain_weight": ("weight", ".2f", "by which the posterior predicts"),
        "occupied": ("clusters held", ".0f", "that hold at least one query"),
        "with_itself": (
            "agrees with itself",
            ".2f",
            "adjusted Rand index with itself half a chain earlier",
        ),
        "with_others": ("with others", ".2f", "mean adjusted Rand index with the other chains"),
    }
    shown = {name: told for name, told in meanings.items() if name in modes.columns}
    columns = [Column("chain"), *(Column(head, True, why) for head, _, why in shown.values())]
    rows = [
        [
            Cell(str(chain), float(place)),
            *(number(float(row[name]), form) for name, (_, form, _) in shown.items()),
        ]
        for place, (chain, row) in enumerate(modes.iterrows())
    ]
    return tag(
        "div",
        tag("h3", "What each chain found"),
        paragraph(
            "Chains from starts of their own may find solutions of their own; predictions average "
            "them by weight."
        ),
        table(None, columns, rows, name="chains", legend=True),
    )


def _converged(posterior: xr.DataTree) -> bool | None:
    stats = _group(posterior, "sample_stats")
    if stats is None or "converged" not in stats:
        return None
    return bool(stats["converged"].values.all())


def _group(posterior: xr.DataTree, name: str) -> xr.Dataset | None:
    if name not in posterior.children:
        return None
    return posterior.children[name].to_dataset(inherit=False)
