"""One PyMC model, three engines: Gibbs, NUTS, and variational inference."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bayes_ecc.errors import InputError
from bayes_ecc.samplers import PolyaGammaGibbs

type Sampler = Literal["gibbs", "nuts", "advi"]

SAMPLERS = ("gibbs", "nuts", "advi")
_ADVI_STEPS = 20_000
_NOTHING_KEPT = "Sampling was interrupted before a single draw was kept; let it run on."


def sample_mixture(
    model: pm.Model,
    starts: Sequence[Mapping[str, NDArray[Any]]],
    *,
    sampler: Sampler,
    tune: int,
    draws: int,
    rng: np.random.Generator,
    cores: int | None = None,
    progress: bool | None = None,
) -> xr.DataTree:
    """Draw from the posterior of a mixture, one chain a start.

    Parameters
    ----------
    model : pymc.Model
        From `ecc_mixture`.
    starts : sequence of mapping
        Initial values of each chain, from `initial_values`.
    sampler : {"gibbs", "nuts", "advi"}
        "nuts" is nutpie's where that is installed, PyMC's own otherwise. "advi" fits one
        mean-field approximation a start and draws from it: fast, and too narrow.
    tune, draws : int
        Sweeps (or NUTS steps) a chain, before and while draws are kept; "advi" uses `draws` only.
    rng : numpy.random.Generator
        Decides the seed of every chain.
    cores : int, optional
        Processes; by default as many as there are processors and chains.
    progress : bool, optional
        Whether to show PyMC's progress bar; by default on a terminal only.

    Returns
    -------
    xarray.DataTree
        With groups posterior and sample_stats. After an interruption, what was drawn so far: as
        many chains as make the most draws of equal number, under the numbers of their starts.

    Raises
    ------
    InputError
        If the sampler is unknown, or was interrupted before it drew anything.
    """
    if sampler not in SAMPLERS:
        raise InputError(f"sampler={sampler!r}: allowed are {', '.join(SAMPLERS)}.")
    chains = len(starts)
    seeds = [int(seed) for seed in rng.integers(2**31, size=chains)]
    shown = sys.stderr.isatty() if progress is None else progress
    used = min(chains, cores or os.cpu_count() or 1)
    if sampler == "advi":
        return _advi(model, starts, draws, seeds, shown)
    common: dict[str, Any] = {
        "draws": draws,
        "tune": tune,
        "chains": chains,
        "cores": used,
        "random_seed": seeds,
        "progressbar": shown,
        "quiet": not shown,
        "compute_convergence_checks": False,
    }
    if used == 1:
        common["callback"] = _StopAfterInterruption(tune + draws)
    # Matrices here are too small for threads of linear algebra to gain anything, and chains that
    # each start as many as there are processors take several times as long. PyMC itself limits
    # them in processes that are not forked; forked ones inherit the limit from here.
    with model, threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        # numba says so of every graph that holds data of some size; nothing follows from it
        warnings.filterwarnings("ignore", "Cannot cache compiled function")
        try:
            if sampler == "gibbs":
                trace = pm.sample(step=PolyaGammaGibbs(), initvals=list(starts), **common)
            elif importlib.util.find_spec("nutpie") is not None:
                # nutpie takes one start for all chains and jitters it, and has no callback.
                common.pop("callback", None)
                trace = pm.sample(nuts_sampler="nutpie", initvals=dict(starts[0]), **common)
            else:
                trace = pm.sample(initvals=list(starts), **common)
        except ValueError as error:
            if "Not enough samples" not in str(error):
                raise
            raise InputError(_NOTHING_KEPT) from None
    if not trace["posterior"].sizes.get("draw", 0):
        raise InputError(_NOTHING_KEPT)
    return trace


class _StopAfterInterruption:
    """End every chain that follows an unfinished one.

    With one process PyMC takes an interruption to be the end of a chain, and goes on to the next.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.last = (-1, length)

    def __call__(self, *, draw: Any, trace: Any) -> None:
        chain, drawn = self.last
        follows = draw.chain == chain + 1 and drawn == self.length
        if draw.chain != chain and not follows:
            raise KeyboardInterrupt
        self.last = (draw.chain, draw.draw_idx + 1)


def _advi(
    model: pm.Model,
    starts: Sequence[Mapping[str, NDArray[Any]]],
    draws: int,
    seeds: Sequence[int],
    progress: bool,
) -> xr.DataTree:
    """Fit one mean-field approximation a start; its draws become a chain."""
    chains = []
    with model:
        for start, seed in zip(starts, seeds, strict=True):
            found = pm.fit(
                _ADVI_STEPS,
                method="advi",
                start=dict(start),
                random_seed=seed,
                progressbar=progress,
            )
            chains.append(found.sample(draws, random_seed=seed)["posterior"].to_dataset())
    posterior = xr.concat(
        [chain.assign_coords(chain=[i]) for i, chain in enumerate(chains)], dim="chain"
    )
    return xr.DataTree.from_dict({"posterior": posterior})
