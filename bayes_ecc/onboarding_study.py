"""Onboarding studies: each model in turn is the newcomer, and finds its place by three rules.

Fits are made without the newcomer. It is then compared with the old models on training queries, of
which the embedding and a few comparisons among the old models are known, as far as a budget goes.
Outcomes come from the score table, or from the comparisons held where there are no scores:

- "published" protocol: only decided pairs can be asked for, as in the published work. Whoever
  chooses sees which pairs are decided; no rule can read more out of it than the others.
- "honest" protocol: any pair can be asked for; a tie is paid for and tells nothing. A design looks
  for queries on which the old models' scores differ.

Quality is judged on the test comparisons that the newcomer takes part in, against one global
Bradley-Terry ranking that was given the same comparisons. A rank interval is right if it holds the
rank found from all data: that of the same fit with all training comparisons of the newcomer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from bayes_ecc.acquisition import GOALS, RULES, Goal, Rule
from bayes_ecc.bradley_terry import BradleyTerry
from bayes_ecc.bundle import Bundle
from bayes_ecc.checks import check_choice, check_count
from bayes_ecc.comparisons import Comparisons
from bayes_ecc.errors import DataWarning, InputError
from bayes_ecc.evaluation import EvaluationSettings, check_method, fit_method
from bayes_ecc.metrics import bt_loss
from bayes_ecc.newcomer import win_chances
from bayes_ecc.onboarding import PRIORS, NewcomerPrior, onboard, start_onboarding
from bayes_ecc.onboarding_state import CONSIDERED, Onboarding
from bayes_ecc.onboarding_tasks import (
    PROTOCOLS,
    NewcomerTask,
    OnboardingProtocol,
    Readings,
    full_rank,
    leave_out,
    read_tests,
    score_rank,
    sides,
)
from bayes_ecc.splits import Split

type FloatArray = NDArray[np.floating[Any]]

BUDGETS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
SIGNALS = ("embedding", "embedding+probe")


# -------------------------------------------------------------------- one newcomer


def run_newcomer(
    joining: Onboarding,
    task: NewcomerTask,
    readings: Readings,
    rule: Rule,
    *,
    budgets: Sequence[int] = BUDGETS,
    protocol: OnboardingProtocol = "published",
    goal: Goal = "profile",
    batch: int = 5,
    consider: int | None = CONSIDERED,
    level: float = 0.9,
) -> list[dict[str, Any]]:
    """Onboard one newcomer by one rule, and judge what is known at each budget.

    Parameters
    ----------
    joining : Onboarding
        Where to begin.
    task : NewcomerTask
    readings : Readings
        From `read_tests`.
    rule : {"design", "published", "random"}
    budgets : sequence of int
        Ascending.
    protocol, goal, batch, consider
        As in `study_onboarding`.
    level : float
        Probability of the rank intervals.

    Returns
    -------
    list of dict
        At each budget: `asked`, `decided` (those that were no tie), of each signal `loss` and
        `gain`, the `global` loss, and `rank`, `rank_lower`, `rank_upper`.

    Examples
    --------
    >>> from bayes_ecc import ECC, simulate, start_onboarding
    >>> from bayes_ecc.onboarding_study import run_newcomer
    >>> from bayes_ecc.onboarding_tasks import leave_out, read_tests
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=200, n_models=5, rng=0).bundle()
    >>> task = leave_out(bundle, draw_split(bundle), "llm_2")
    >>> fit = ECC(3, embedding_weight=1.0, rng=0).fit(task.old.train, task.old.train_embeddings)
    >>> joining = start_onboarding(fit.posterior_, "llm_2", rng=0)
    >>> readings = read_tests(task, fit.posterior_)
    >>> found = run_newcomer(joining, task, readings, "design", budgets=[5, 20])
    >>> [row["asked"] for row in found]
    [5, 20]
    """
    allowed = task.allowed(protocol)
    found = []
    for budget in budgets:
        free = allowed.any(axis=1)
        free[joining.asked.query] = False
        joining = onboard(
            joining,
            task.ask,
            budget=min(budget, max(1, len(joining.asked) + int(free.sum()))),
            batch=batch,
            rule=rule,
            goal=goal,
            allowed=allowed,
            consider=consider,
            decided=task.decided if protocol == "honest" else None,
            ties="ignore",
        )
        found.append(_judge(joining, task, readings, level))
    return found


def _judge(
    joining: Onboarding, task: NewcomerTask, readings: Readings, level: float
) -> dict[str, Any]:
    """Compare predictions with the test comparisons, and give the rank's interval."""
    test = task.test
    column = task.old.train.models.get_indexer(test.models[sides(test, task.newcomer)[0]])
    second = test.second == test.models.get_loc(task.newcomer)
    baseline = bt_loss(_global_win(joining, task), test)
    figures: dict[str, Any] = {
        "asked": len(joining.asked),
        "decided": len(joining.asked.telling()),
        "global": baseline,
    }
    for signal, responsibilities in readings.responsibilities.items():
        chances = win_chances(
            joining.strengths, readings.strengths, responsibilities, readings.share
        )
        p = chances[test.query, column]
        loss = bt_loss(np.where(second, p, 1 - p), test)
        figures[signal] = {"loss": loss, "gain": 100 * (1 - loss / baseline)}
    rank = joining.rank(prob=level, kind="eti")
    names = ("rank", "rank_lower", "rank_upper")
    return {**figures, **{name: rank[name].item() for name in names}}


def _global_win(joining: Onboarding, task: NewcomerTask) -> FloatArray:
    """Predict the test comparisons by a global ranking that was given the same comparisons."""
    old, asked = task.old.train, joining.asked.telling()
    names = task.test.models
    code = names.get_indexer(old.models)
    together = Comparisons.from_arrays(
        np.concatenate([old.query, asked.query]),
        np.concatenate([code[old.first], code[asked.opponent]]),
        np.concatenate([code[old.second], np.full(len(asked), names.get_loc(task.newcomer))]),
        np.concatenate([old.outcome, asked.outcome]),
        weight=np.concatenate([old.weight, np.ones(len(asked))]),
        queries=old.queries,
        models=names,
        ordered=False,
    )
    with warnings.catch_warnings():
        # of few comparisons all may be won, or none be with a group of models
        warnings.simplefilter("ignore", DataWarning)
        return BradleyTerry(ridge=1.0).fit(together).predict_win_probability(task.test)


# -------------------------------------------------------------------- the study


def study_onboarding(
    bundle: Bundle,
    splits: Iterable[Split],
    methods: Sequence[str] = ("ecc", "bayes"),
    settings: EvaluationSettings | None = None,
    *,
    rules: Sequence[Rule] = RULES,
    budgets: Sequence[int] = BUDGETS,
    protocol: OnboardingProtocol = "published",
    goal: Goal = "profile",
    batch: int = 5,
    consider: int | None = CONSIDERED,
    known: int = 3,
    prior: NewcomerPrior = "pool",
    newcomers: Sequence[str] | None = None,
    repeats: int = 1,
    level: float = 0.9,
    draws: int = 300,
    details: Mapping[str, Any] | None = None,
    progress: bool | None = False,
) -> dict[str, Any]:
    """Let each model in turn be the newcomer, and see how soon its place is known.

    Parameters
    ----------
    bundle : Bundle
        With embeddings; scores tell the outcomes of all pairs.
    splits : iterable of Split
        One a seed, from `bayes_ecc.splits`.
    methods : sequence of str
        Methods of `evaluate` that have clusters.
    settings : EvaluationSettings, optional
        What the methods share.
    rules : sequence of {"design", "published", "random"}
        How comparisons are chosen.
    budgets : sequence of int
        Ascending numbers of comparisons at which is judged what is known.
    protocol : {"published", "honest"}
        See the module.
    goal, consider
        Of a design, as in `Onboarding.propose`.
    batch : int
        Comparisons between updates.
    known : int
        Comparisons among old models that are known of each training query, at most.
    prior, draws
        As in `start_onboarding`.
    newcomers : sequence of str, optional
        Which models; all by default.
    repeats : int
        Runs of each newcomer, method and rule, with other random numbers.
    level : float
        Probability of the rank intervals (equal tails).
    details : mapping, optional
        How the splits came about, to be told with the results.
    progress : bool or None
        Whether to show a progress bar; None shows it on a terminal and in a notebook only.

    Returns
    -------
    dict
        Ready for JSON. `protocol`: settings and counts. `curves`: {method: {rule: {budget: ...}}}
        with the mean `global` loss (of the global ranking given the same comparisons) and, for
        each signal ("embedding", "embedding+probe": what is read of a test query; probes among
        old models), the median `gain` over runs, its quartiles `low` and `high`, and the mean
        `loss`. Rules have global rankings of their own, so losses compare them. `reached`:
        {method: {rule: {signal: {"loss", "gain"}}}}, the least budget whose mean loss, and whose
        median gain, is at least as good as the published rule's at the largest (None: not
        reached). `rank_intervals`: {method: {rule: {budget: {"coverage", "width", "error",
        "runs"}}}} and as "all" over all budgets: how often the interval held the rank found from
        all data, how many ranks it holds on average, how far the expected rank is off. `ranks`:
        {method: {newcomer: [rank found from all data, one a seed]}} and under "score" the rank by
        mean score, where there are scores. `runs`: every run.

    Raises
    ------
    InputError
        If a method is unknown or has no clusters, a model is none, or a setting is out of range.

    Examples
    --------
    >>> from bayes_ecc import simulate
    >>> from bayes_ecc.evaluation import EvaluationSettings
    >>> from bayes_ecc.onboarding_study import study_onboarding
    >>> from bayes_ecc.splits import draw_split
    >>> bundle = simulate(n_queries=200, n_models=5, rng=0).bundle()
    >>> found = study_onboarding(
    ...     bundle, [draw_split(bundle)], ["ecc"],
    ...     EvaluationSettings(n_clusters=3, embedding_weight=1.0),
    ...     budgets=[5, 15], newcomers=["llm_2"], draws=50,
    ... )
    >>> sorted(found["curves"]["ecc"]), list(found["curves"]["ecc"]["design"])
    (['design', 'published', 'random'], ['5', '15'])
    """
    chosen = settings or EvaluationSettings()
    _check(bundle, methods, rules, budgets)
    for name, value, allowed in (
        ("protocol", protocol, PROTOCOLS),
        ("goal", goal, GOALS),
        ("prior", prior, PRIORS),
    ):
        check_choice(name, value, allowed)
    check_count("repeats", repeats)
    check_count("known", known, least=0)
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise InputError(f"level={level!r}: give a probability between 0 and 1.")
    runs: list[dict[str, Any]] = []
    counts: list[dict[str, Any]] = []
    ranks: dict[str, dict[str, list[int]]] = {name: {} for name in methods}
    by_score: dict[str, list[int]] = {}
    with tqdm(
        desc="onboard",
        unit="run",
        disable=None if progress is None else not progress,
        leave=False,
    ) as bar:
        for split in splits:
            names = split.train.models.tolist() if newcomers is None else list(newcomers)
            counts.append(_counts(split))
            for newcomer in names:
                task = leave_out(bundle, split, newcomer, known=known)
                _note(by_score, newcomer, score_rank(bundle, task))
                for method in methods:
                    bar.set_postfix_str(f"seed {split.seed}, {newcomer}, {method}")
                    fitted = fit_method(method, task.old, bundle, chosen).estimator
                    posterior = fitted.posterior_
                    readings = read_tests(task, posterior)
                    stream = [split.seed, split.train.models.get_loc(newcomer)]
                    rank = full_rank(
                        task, posterior, prior=prior, rng=np.random.default_rng(stream)
                    )
                    _note(ranks[method], newcomer, rank)
                    joining = start_onboarding(
                        posterior,
                        newcomer,
                        embeddings=task.old.train_embeddings,
                        probes=task.known,
                        prior=prior,
                        draws=draws,
                        rng=np.random.default_rng(stream),
                    )
                    for rule in rules:
                        for repeat in range(repeats):
                            found = run_newcomer(
                                joining.with_rng(np.random.default_rng([*stream, 1 + repeat])),
                                task,
                                readings,
                                rule,
                                budgets=budgets,
                                protocol=protocol,
                                goal=goal,
                                batch=batch,
                                consider=consider,
                                level=level,
                            )
                            about = {
                                "seed": split.seed,
                                "newcomer": newcomer,
                                "method": method,
                                "rule": rule,
                                "repeat": repeat,
                                "full_rank": rank,
                            }
                            runs += [
                                {**about, "budget": budget, **row}
                                for budget, row in zip(budgets, found, strict=True)
                            ]
                            bar.update()
    if not runs:
        raise InputError("There is no split to onboard on; give at least one.")
    return {
        "protocol": {
            "name": protocol,
            "bundle": bundle.name,
            "rules": list(rules),
            "budgets": list(budgets),
            "goal": goal,
            "batch": batch,
            "consider": consider,
            "known": known,
            "prior": prior,
            "repeats": repeats,
            "newcomer_draws": draws,
            "level": level,
            **asdict(chosen),
            **(details or {}),
            "counts": counts,
        },
        **summarise_onboarding(runs),
        "ranks": {**ranks, **({"score": by_score} if by_score else {})},
        "runs": runs,
    }


def summarise_onboarding(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the curves, what was reached when, and the rank intervals of runs.

    Parameters
    ----------
    runs : sequence of mapping
        As under "runs" of `study_onboarding`.

    Returns
    -------
    dict
        `curves`, `reached` and `rank_intervals` of `study_onboarding`.

    Examples
    --------
    >>> from bayes_ecc.onboarding_study import summarise_onboarding
    >>> run = {
    ...     "method": "ecc", "rule": "design", "budget": 10, "global": 0.5, "rank": 2.2,
    ...     "rank_lower": 1, "rank_upper": 3, "full_rank": 2, "decided": 10,
    ...     "embedding": {"loss": 0.4, "gain": 20.0},
    ...     "embedding+probe": {"loss": 0.3, "gain": 40.0},
    ... }
    >>> summarise_onboarding([run])["rank_intervals"]["ecc"]["design"]["10"]["width"]
    3.0
    """
    methods, rules, budgets = (
        list(dict.fromkeys(run[name] for run in runs)) for name in ("method", "rule", "budget")
    )
    result: dict[str, Any] = {"curves": {}, "reached": {}, "rank_intervals": {}}
    for method in methods:
        curves: dict[str, dict[str, Any]] = {}
        intervals: dict[str, dict[str, Any]] = {}
        for rule in rules:
            own = [run for run in runs if (run["method"], run["rule"]) == (method, rule)]
            by_budget = {b: [run for run in own if run["budget"] == b] for b in budgets}
            curves[rule] = {str(b): _point(rows) for b, rows in by_budget.items()}
            intervals[rule] = {str(b): _interval(rows) for b, rows in by_budget.items()}
            intervals[rule]["all"] = _interval(own)
        result["curves"][method] = curves
        result["rank_intervals"][method] = intervals
        if "published" in curves:
            goal = curves["published"][str(max(budgets))]
            result["reached"][method] = {
                rule: {signal: _reached(curve, goal, signal) for signal in SIGNALS}
                for rule, curve in curves.items()
            }
    return result


def _point(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    point: dict[str, Any] = {
        "global": float(np.mean([row["global"] for row in rows])),
        "decided": float(np.mean([row["decided"] for row in rows])),
    }
    for signal in SIGNALS:
        gains = [row[signal]["gain"] for row in rows]
        low, median, high = np.quantile(gains, [0.25, 0.5, 0.75])
        point[signal] = {
            "gain": float(median),
            "low": float(low),
            "high": float(high),
            "loss": float(np.mean([row[signal]["loss"] for row in rows])),
        }
    return point


def _interval(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    held = [row["rank_lower"] <= row["full_rank"] <= row["rank_upper"] for row in rows]
    return {
        "coverage": float(np.mean(held)),
        "width": float(np.mean([1 + row["rank_upper"] - row["rank_lower"] for row in rows])),
        "error": float(np.mean([abs(row["rank"] - row["full_rank"]) for row in rows])),
        "runs": len(rows),
    }


def _reached(
    curve: Mapping[str, Any], goal: Mapping[str, Any], signal: str
) -> dict[str, int | None]:
    """Give the least budgets at which a curve is as good as a point."""
    by_loss = [int(b) for b, p in curve.items() if p[signal]["loss"] <= goal[signal]["loss"]]
    by_gain = [int(b) for b, p in curve.items() if p[signal]["gain"] >= goal[signal]["gain"]]
    return {"loss": min(by_loss, default=None), "gain": min(by_gain, default=None)}


def _check(
    bundle: Bundle, methods: Sequence[str], rules: Sequence[str], budgets: Sequence[int]
) -> None:
    if isinstance(methods, str) or not methods:
        raise InputError(f"methods={methods!r}: give a list of one method or more.")
    for name in methods:
        if check_method(name, bundle)[0] in ("global", "labels"):
            raise InputError(
                f"The method {name!r} has no clusters to onboard into; choose among embedding, "
                "comparisons, ecc, ecc:auto and bayes."
            )
    if isinstance(rules, str) or not rules:
        raise InputError(f"rules={rules!r}: give a list of one rule or more.")
    for rule in rules:
        check_choice("rules", rule, RULES)
    for budget in budgets:
        check_count("budgets", budget)
    if not budgets or list(budgets) != sorted(set(budgets)):
        raise InputError(f"budgets={list(budgets)}: give ascending whole numbers.")


def _note(ranks: dict[str, list[int]], newcomer: str, rank: int | None) -> None:
    if rank is not None:
        ranks.setdefault(newcomer, []).append(rank)


def _counts(split: Split) -> dict[str, Any]:
    return {
        "seed": split.seed,
        "models": split.train.n_models,
        "train_queries": split.train.n_queries,
        "test_queries": split.scored.n_queries,
        "train_comparisons": len(split.train),
        "scored_comparisons": len(split.scored),
    }
