"""``offcut.sample``: the one verb."""

from __future__ import annotations

import sys
import warnings
from os import PathLike
from typing import Any

import numpy as np
import xarray as xr

from offcut.base import Doubt, Kernel, Model, Prepared, Sampler
from offcut.checks.looks import note_beyond, pile_ups, prior_doubts
from offcut.driver.budget import certify, checked_budget
from offcut.driver.chains import Settings, run_chains
from offcut.driver.checkpoints import Store
from offcut.errors import CheckpointError, SettingsError, TrustWarning
from offcut.methods import AUTO, MethodSettings
from offcut.models.rejection import RejectionModel
from offcut.programs.identity import UnidentifiedError, Unknown, digest
from offcut.programs.precision import in_float64
from offcut.result.overview import find_doubts, summary
from offcut.result.tree import facts_about, make_tree, versions
from offcut.samplers.choice import prepare
from offcut.samplers.direct import why_not_direct


@in_float64
def sample(
    model: Model,
    data: object,
    *,
    covariates: object = None,
    draws: int = 1000,
    warmup: int = 1000,
    chains: int = 4,
    seed: int = 0,
    method: str | MethodSettings = AUTO,
    kernel: Kernel | None = None,
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
    method : "auto", "augment", "direct", "exchange" or "pseudo_marginal"
        The route to the posterior: rejections held in every sweep ("augment", which is "auto"), a
        simulation that judges each step ("exchange", "pseudo_marginal"), or no rejections at all
        where the window's mass is known ("direct"). Ready-made models have some of these and some
        of their own, such as "collapsed". ``offcut.PseudoMarginal(acceptances=20)`` is a method
        with settings. ``posterior.attrs["method"]`` says which it was.
    kernel : NUTS, HMC, RandomWalk, Conjugate, PolyaGamma or EllipticalSlice, optional
        How the parameters move on that route; never another route. By default on "augment"
        ``Conjugate()``, exact draws, where prior and base are conjugate, else ``NUTS()``; on
        "direct" ``NUTS()``; on the others ``RandomWalk()``. ``posterior.attrs["kernel"]`` says
        which, and ``offcut.kernel_for(model)`` says it beforehand.
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
    return run(model, data, covariates, kernel, settings, checkpoint, method)


def run(
    model: Model,
    data: object,
    covariates: object,
    kernel: Kernel | None,
    settings: Settings,
    checkpoint: str | PathLike | None = None,
    method: str | MethodSettings = AUTO,
) -> xr.DataTree:
    """``sample`` with settings already checked; tests use it to vary threads and buffers."""
    prepared = prepare(model, data, covariates, kernel, method)
    sampler, rejection = prepared.sampler, model.rejection_model()
    _warn(model.before(prepared))
    if rejection is not None:
        sweeps = settings.chains * (settings.draws * settings.thin + settings.warmup)
        _warn(pile_ups(rejection, prepared.arrays, prepared.n))
        _warn(prior_doubts(rejection, prepared, sweeps))
    store = None
    if checkpoint is not None:
        store = Store(checkpoint, _identity(model, prepared, settings))
    try:
        drawn = run_chains(prepared, settings, store)
    finally:
        if store is not None:
            store.close()
    certificate = certify(drawn.stats, drawn.budget, sampler.draws_rejections, sampler.redraws)
    facts = {
        "model": type(model).__name__,
        **facts_about(sampler),
        "direct_available": int(_direct_available(rejection, prepared)),
        "exchange_available": int("exchange" in {method.name for method in model.methods}),
        **model.facts(prepared),
    }
    tree = make_tree(drawn, prepared.observed, certificate, settings, facts, sampler.variables())
    model.after(tree, prepared)
    note_beyond(tree, rejection, prepared.arrays, drawn)
    _warn(find_doubts(tree))
    if settings.progress and sys.stderr.isatty():
        print(summary(tree), file=sys.stderr)
    return tree


def _warn(doubts: list[Doubt]) -> None:
    """A warning for each, at the line that called ``sample``."""
    for doubt in doubts:
        warnings.warn(doubt.text, TrustWarning, stacklevel=5)


def _direct_available(rejection: RejectionModel | None, prepared: Prepared) -> bool:
    """Whether method="direct" would fit."""
    return rejection is not None and why_not_direct(rejection, prepared.arrays.covariates) is None


def _identity(model: Model, prepared: Prepared, settings: Settings) -> dict[str, Any]:
    """What must be the same for a checkpoint to be resumed."""
    return {
        "data": digest(sorted(prepared.observed.items()), model.data_identity(prepared)),
        "model": _model_digest(model, prepared.sampler),
        "method": f"{prepared.sampler.method_settings or prepared.sampler.method}",
        "kernel": prepared.sampler.kernel_name,
        "draws": settings.draws,
        "thin": settings.thin,
        "warmup": settings.warmup,
        "chains": settings.chains,
        "seed": settings.seed,
        "budget": settings.budget,
        "versions": versions(),
    }


def _model_digest(model: Model, sampler: Sampler) -> str:
    """All that the model computes with: its settings, and the program that was made of them."""
    try:
        if isinstance(sampler.identity, Unknown):
            raise UnidentifiedError(sampler.identity.reason)
        settings = model.identity()
        return sampler.identity if settings is None else digest(settings, sampler.identity)
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
