"""``offcut.sample``: the one verb."""

from __future__ import annotations

import sys
import warnings
from os import PathLike
from typing import Any

import jax
import numpy as np
import xarray as xr

from offcut.base import Sampler
from offcut.checks.pile_ups import ask_about_pile_ups
from offcut.checks.prior_rates import warning_before
from offcut.checks.unvisited import note_beyond
from offcut.driver.budget import checked_budget
from offcut.driver.chains import Settings, run_chains
from offcut.driver.checkpoints import Store
from offcut.errors import CheckpointError, SettingsError, TrustWarning
from offcut.kernels.tuning import warmup_schedule
from offcut.models.rejection import RejectionModel
from offcut.programs.cache import blocks_of
from offcut.programs.identity import UNKNOWN, UnidentifiedError, digest
from offcut.programs.precision import in_float64
from offcut.result.advice import warn_of_trouble
from offcut.result.certificate import certify
from offcut.result.overview import summary
from offcut.result.tree import make_tree, versions
from offcut.samplers.choice import prepare, settings_of
from offcut.samplers.direct import why_not_direct

#: Sweeps of all chains from which on a look at the prior beforehand is worth its second.
LONG_RUN = 4000


@in_float64
def sample(
    model: Any,
    data: Any,
    *,
    covariates: Any = None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int = 0,
    kernel: Any = None,
    budget: int | str | None = "auto",
    checkpoint: str | PathLike | None = None,
    progress: bool = True,
    thin: int = 1,
) -> xr.DataTree:
    """Draw from the posterior of a model (Algorithm 2).

    Parameters
    ----------
    model : RejectionModel or any model of this library
        What generated the data, and what was kept of them.
    data : array, or dict or tuple of arrays
        n observations along the first axis, in the form that the model's proposals have.
    covariates : array, or dict or tuple of arrays, optional
        One row for each observation. Every function of the model then takes the observation's
        covariate as an extra last argument, and each observation has rejections of its own.
    draws, warmup, chains : int
        Kept draws and warm-up sweeps of each chain; number of chains.
    seed : int
        Results depend on the seed alone, not on cores, threads or buffer sizes.
    kernel : NUTS, HMC, RandomWalk, Exchange, PseudoMarginal, Conjugate or Direct, optional
        How the parameters move. By default ``Conjugate()``, exact draws, where prior and base
        are conjugate, else ``NUTS()``; ``posterior.attrs["kernel"]`` says which, and
        ``offcut.kernel_for(model)`` says it beforehand.
    budget : "auto", int or None
        Largest number of rejections in a sweep. "auto" fixes one with ample room at the end of
        warm-up; a number restricts the joint distribution to |Y| <= budget, exactly; None
        restricts nothing, and then one sweep may need any amount of time and memory.
    checkpoint : path, optional
        A directory. State and draws are saved every few seconds; the same call resumes, and
        ends with the very draws of an uninterrupted run.
    progress : bool
        Show a progress bar and, at the end, a summary; silent where there is no terminal.
    thin : int
        Sweeps for each kept draw, for chains that move slowly and draws that are large.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``sample_stats`` (``rejected``, ``attempts``, ``acceptance_rate``,
        ``diverging``, ...) and ``observed_data``; attrs hold settings, versions, ``budget``,
        ``tv_estimate`` and ``tv_halving_limit``. ``offcut.summary`` puts it in words.

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 1)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     inside=lambda x: x > 0,
    ... )
    >>> x = np.array([0.1, 0.5, 0.7, 1.2, 2.0])
    >>> posterior = offcut.sample(
    ...     model, x, draws=50, warmup=50, chains=2, kernel=offcut.HMC(0.3, 5)
    ... )
    >>> dict(posterior["posterior"]["loc"].sizes)
    {'chain': 2, 'draw': 50}
    """
    settings = Settings(
        _whole("draws", draws, 1),
        _whole("warmup", warmup, 0),
        _whole("chains", chains, 1),
        _whole("seed", seed, -(2**63), 2**63 - 1),
        checked_budget(budget),
        bool(progress),
        thin=_whole("thin", thin, 1),
    )
    return run(model, data, covariates, kernel, settings, checkpoint)


def run(
    model: Any,
    data: Any,
    covariates: Any,
    kernel: Any,
    settings: Settings,
    checkpoint: str | PathLike | None = None,
) -> xr.DataTree:
    """``sample`` with settings already checked; tests use it to vary threads and buffers."""
    sampler, arrays, observed = prepare(model, data, covariates, kernel)
    n = next(iter(observed.values())).shape[0]
    if isinstance(model, RejectionModel):
        ask_about_pile_ups(model, arrays, n)
        _warn_before(model, sampler, arrays, settings)
    store = None
    if checkpoint is not None:
        store = Store(checkpoint, _identity(model, sampler, arrays, observed, settings))
    try:
        drawn = run_chains(
            sampler,
            arrays,
            n,
            settings,
            warmup_schedule(settings.warmup),
            store,
            blocks_of(sampler),
        )
    finally:
        if store is not None:
            store.close()
    certificate = certify(drawn.stats, drawn.budget, sampler.draws_rejections, sampler.redraws)
    facts = {
        "model": type(model).__name__,
        "kernel": sampler.kernel_name,
        "draws_rejections": int(sampler.draws_rejections),
        "direct_available": int(_direct_available(model, arrays)),
    }
    facts |= model.facts(observed, sampler) if hasattr(model, "facts") else {}
    tree = make_tree(drawn, observed, certificate, settings, facts, sampler.variables())
    if hasattr(model, "judge"):
        model.judge(tree)
    note_beyond(tree, model, arrays, drawn)
    warn_of_trouble(tree)
    if settings.progress and sys.stderr.isatty():
        print(summary(tree), file=sys.stderr)
    return tree


def _warn_before(model: Any, sampler: Any, arrays: Any, settings: Settings) -> None:
    """Say beforehand where the prior makes a long run of little use; once for each model."""
    sweeps = settings.chains * (settings.draws * settings.thin + settings.warmup)
    if not sampler.draws_rejections or sweeps < LONG_RUN:
        return
    name = ("warning before", sampler.layout.n)
    if name not in model.programs:
        said = model.programs[name] = warning_before(model, arrays, sampler.layout)
        if said is not None:
            warnings.warn(said, TrustWarning, stacklevel=4)


def _direct_available(model: Any, arrays: Any) -> bool:
    """Whether kernel=offcut.Direct() would fit."""
    return isinstance(model, RejectionModel) and why_not_direct(model, arrays.covariates) is None


def _identity(
    model: Any,
    sampler: Sampler,
    arrays: Any,
    observed: dict[str, np.ndarray],
    settings: Settings,
) -> dict[str, Any]:
    """What must be the same for a checkpoint to be resumed."""
    rejection = isinstance(model, RejectionModel)
    return {
        # With all that was made of the data, such as which of them are censored.
        "data": digest(sorted(observed.items()), jax.tree.leaves(arrays) if rejection else None),
        "model": _model_digest(model, sampler),
        "kernel": sampler.kernel_name,
        "draws": settings.draws,
        "thin": settings.thin,
        "warmup": settings.warmup,
        "chains": settings.chains,
        "seed": settings.seed,
        "budget": settings.budget,
        "versions": versions(),
    }


def _model_digest(model: Any, sampler: Sampler) -> str:
    """All that the model computes with: its settings, and the program that was made of them."""
    try:
        if sampler.identity.startswith(UNKNOWN):
            raise UnidentifiedError(sampler.identity.removeprefix(UNKNOWN))
        rejection = isinstance(model, RejectionModel)
        return sampler.identity if rejection else digest(settings_of(model), sampler.identity)
    except UnidentifiedError as error:
        raise CheckpointError(
            f"{type(model).__name__} cannot be checkpointed: it computes with {error}, and a later "
            "process could not tell whether that is the same; use numbers, arrays, functions of "
            "jax.numpy and NumPyro distributions, or (in a model of your own) a method identity() "
            "that returns a string which names all its settings"
        ) from error


def _whole(name: str, value: object, least: int, most: int = 10**9) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= int(value) <= most:  # type: ignore[call-overload]
        allowed = f" of at least {least}" if least >= 0 else ""
        if whole and int(value) > most:  # type: ignore[call-overload]
            allowed = f" of at most {most:,}"
        raise SettingsError(f"{name} must be a whole number{allowed}, got {value!r}")
    return int(value)  # type: ignore[call-overload]
