"""The Gibbs sampler against NUTS on the same models, and a sweep against an EM iteration."""

from __future__ import annotations

import importlib.util
import json
import logging
import statistics
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from bayes_ecc import Simulation, SphereProjection, simulate
from bayes_ecc.diagnostics import diagnose
from bayes_ecc.em import EMData, EMSettings, em_step, has_settled, start_state
from bayes_ecc.models.ecc_mixture import ecc_mixture
from bayes_ecc.posterior import make_posterior
from bayes_ecc.samplers import PolyaGammaGibbs, initial_values
from benchmarks.worker import Figure, in_its_own_process

TITLE = "Gibbs against NUTS on the same model, and a sweep against an EM iteration (one thread)"
NOTES = {
    "ESS": "smallest bulk effective sample size of what does not depend on the numbering of "
    "clusters (log density, tau, global contrasts, shares of first places, evidence quantiles)",
    "ESS / s": "a second of processor time, on one thread; half of every run is tuning, which "
    "counts; compiling, told beside it, does not; all chains start at the true clusters, and what "
    "is measured is how they move from there, not whether they find them",
    "sweep": "a step of the PyMC step method, embeddings projected to 32 dimensions, in turn with "
    "EM iterations: 9,600 queries, 7 comparisons each, 28 models, 30 clusters",
}


class Size(NamedTuple):
    """A problem, and how many draws each sampler is given, after as many of tuning."""

    n_queries: int
    n_models: int
    n_clusters: int
    dim: int
    gibbs: int
    nutpie: int
    pymc: int

    def __str__(self) -> str:
        return f"{self.n_queries:,} queries, K = {self.n_clusters}, {self.dim} dimensions"


SIZES = (
    Size(600, 8, 5, 16, 2000, 400, 300),
    Size(2400, 9, 15, 32, 2000, 300, 0),
    Size(9600, 28, 30, 32, 1000, 100, 0),
)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_CONCENTRATION = 6.0
_N_TIMED, _WARM_UP = 60, 20


def run() -> list[Figure]:
    """Measure everything in one process."""
    measured = in_its_own_process("benchmarks.gibbs", _ONE_THREAD)
    figures = []
    for size, samplers in measured["samplers"].items():
        gibbs = samplers.pop("Gibbs")
        figures.append(Figure(f"{size}: Gibbs", _rate(gibbs)))
        for name, nuts in samplers.items():
            times = gibbs["ess"] / gibbs["seconds"] / (nuts["ess"] / nuts["seconds"])
            figures.append(Figure(f"{size}: {name}", _rate(nuts)))
            figures.append(Figure(f"{size}: Gibbs / {name}", f"{times:.2g}", "> 50"))
    for name, choose in (("median", statistics.median), ("fastest", min)):
        sweep = choose(measured["sweep"])
        for dim, wanted in (("384", "< 3"), ("32", "")):
            iteration = choose(measured["iteration"][dim])
            of = f"{1e3 * sweep:.1f} ms / {1e3 * iteration:.1f} ms"
            figures.append(
                Figure(
                    f"sweep / EM iteration in {dim} dimensions, {name}",
                    f"{of} = {sweep / iteration:.2f}",
                    wanted,
                )
            )
    return figures


def _rate(of: dict[str, float]) -> str:
    rate = f"ESS {of['ess']:.0f} in {of['seconds']:.1f} s = {of['ess'] / of['seconds']:.1f} / s"
    return f"{rate}, compiled in {of['compile']:.0f} s" if of["compile"] >= 1 else rate


def measure() -> dict[str, Any]:
    """Measure samplers and sweeps."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    samplers = {str(size): measure_samplers(size) for size in SIZES}
    return {"samplers": samplers, **measure_sweep()}


def measure_samplers(size: Size) -> dict[str, dict[str, float]]:
    """Sample one chain from the same start with every sampler there is."""
    data = simulate(
        n_queries=size.n_queries,
        n_models=size.n_models,
        n_clusters=size.n_clusters,
        n_topics=size.n_clusters,
        embedding_dim=size.dim,
        rng=0,
    )
    model = ecc_mixture(
        data.embeddings,
        data.comparisons.outcome_counts(),
        n_clusters=size.n_clusters,
        concentration=_CONCENTRATION,
    )
    start = initial_values(model, data.labels, rng=1)
    found = {"Gibbs": _run_pymc(model, start, size.gibbs, step=PolyaGammaGibbs(model=model))}
    if size.nutpie and importlib.util.find_spec("nutpie") is not None:
        found["NUTS (nutpie)"] = _run_nutpie(model, start, size.nutpie)
    if size.pymc:
        found["NUTS (PyMC)"] = _run_pymc(model, start, size.pymc, nuts_sampler="pymc")
    return {
        name: {"ess": _smallest_ess(posterior, data), "seconds": seconds, "compile": before}
        for name, (posterior, before, seconds) in found.items()
    }


def _run_pymc(
    model: pm.Model, start: Any, draws: int, **how: Any
) -> tuple[xr.Dataset, float, float]:
    """Sample with a step method of PyMC; seconds before the first step and from it to the last."""
    clock = [time.process_time()]

    def tick(**_: Any) -> None:
        clock.append(time.process_time())

    with model:
        trace = pm.sample(
            draws, tune=draws, chains=1, cores=1, random_seed=[2], initvals=[start],
            callback=tick, progressbar=False, quiet=True, compute_convergence_checks=False, **how,
        )  # fmt: skip
    return trace["posterior"].to_dataset(), clock[1] - clock[0], clock[-1] - clock[1]


def _run_nutpie(model: pm.Model, start: Any, draws: int) -> tuple[xr.Dataset, float, float]:
    import nutpie

    began = time.process_time()
    compiled = nutpie.compile_pymc_model(model, initial_points=start)
    between = time.process_time()
    trace = nutpie.sample(
        compiled, draws=draws, tune=draws, chains=1, cores=1, seed=2, progress_bar=False
    )
    return trace["posterior"].to_dataset(), between - began, time.process_time() - between


def _smallest_ess(posterior: xr.Dataset, data: Simulation) -> float:
    """Diagnose the chain as a fit would be."""
    extra = xr.Dataset(
        {
            "tau": (("chain", "draw"), posterior["tau"].values),
            "global_strengths": (
                ("chain", "draw", "llm"),
                posterior["global_strengths"].values,
            ),
        }
    )
    tree = make_posterior(
        **{name: posterior[name].values for name in ("strengths", "centroids", "weights")},
        models=data.comparisons.models,
        concentration=_CONCENTRATION,
        evidence_power=1.0,
        probe_power=1.0,
        rule="per_comparison",
        estimator="benchmark",
        settings={},
        training=(data.comparisons, data.embeddings),
        groups={"posterior": extra},
    )
    return float(diagnose(tree).table.loc["ess_bulk", "value"])


def measure_sweep() -> dict[str, Any]:
    """Time sweeps and EM iterations in turn, by the processor's clock."""
    data = simulate(
        n_queries=9600, n_models=28, n_clusters=30, n_topics=40, embedding_dim=384, rng=0
    )
    projected = SphereProjection.fit(data.embeddings, 32).transform(data.embeddings)
    projected = projected.astype(np.float32)
    model = ecc_mixture(
        projected,
        data.comparisons.outcome_counts(),
        n_clusters=30,
        concentration=_CONCENTRATION,
    )
    start = initial_values(model, data.labels, rng=0)
    step = PolyaGammaGibbs(model=model, rng=0)
    point = model.initial_point()
    point |= {name: start[name] for name in ("strengths", "centroids_raw")}
    settings = EMSettings(embedding_weight=1.0, temperature=0.1, ridge=1.0)
    draws = np.random.default_rng(0).standard_exponential((len(projected), 30))
    responsibilities = draws / draws.sum(axis=1, keepdims=True)
    em = {
        str(embeddings.shape[1]): EMData.from_comparisons(data.comparisons, embeddings)
        for embeddings in (data.embeddings, projected)
    }
    states = {dim: start_state(em_data, responsibilities) for dim, em_data in em.items()}
    sweeps: list[float] = []
    iterations: dict[str, list[float]] = {dim: [] for dim in em}
    for _ in range(_WARM_UP + _N_TIMED):
        began = time.process_time()
        point, _ = step.step(point)
        sweeps.append(time.process_time() - began)
        for dim, em_data in em.items():
            began = time.process_time()
            new = em_step(em_data, settings, states[dim])
            has_settled(new, states[dim], tol=1e-3, centroid_tol=1e-2)
            iterations[dim].append(time.process_time() - began)
            states[dim] = new
    return {
        "sweep": sweeps[_WARM_UP:],
        "iteration": {dim: times[_WARM_UP:] for dim, times in iterations.items()},
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
