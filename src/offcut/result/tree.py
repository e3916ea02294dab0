"""From arrays to an ``xarray.DataTree`` in ArviZ's form, settings and versions in its attrs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import xarray as xr

from offcut.base import Sampler, Variable
from offcut.driver.budget import Certificate
from offcut.driver.chains import Drawn, Settings
from offcut.result.missing_information import HELPERS, Missing, missing_information

PACKAGES = ("offcut", "jax", "jaxlib", "numpyro", "blackjax", "numpy", "arviz-stats", "xarray")


def versions() -> dict[str, str]:
    """The versions that results may depend on."""
    return {name: version(name) for name in PACKAGES}


def facts_about(sampler: Sampler) -> dict[str, Any]:
    """What the result says of its sampler: a name for people, and what advice depends on.

    ``kernel_kind`` is the class of its kernel ("" for a sweep of its own), ``fixed_length`` whether
    the moves of that have one length.
    """
    kernel = sampler.kernel
    return {
        "kernel": sampler.kernel_name,
        "kernel_kind": "" if kernel is None else type(kernel).__name__,
        "fixed_length": int(kernel is not None and kernel.fixed_length),
        "draws_rejections": int(sampler.draws_rejections),
        "draws_exactly": int(sampler.draws_exactly),
    }


def make_tree(
    drawn: Drawn,
    observed: dict[str, np.ndarray],
    certificate: Certificate,
    settings: Settings,
    facts: dict[str, Any],
    variables: dict[str, Variable] | None = None,
) -> xr.DataTree:
    """Groups ``posterior``, ``sample_stats``, ``observed_data``; attrs hold everything else."""
    n = next(iter(observed.values())).shape[0]
    stats = {name: values for name, values in drawn.stats.items() if name not in HELPERS}
    stats["proposal_acceptance_rate"] = n / np.maximum(n + stats["rejected"], 1)
    missing = Missing(float("nan"), {}, "this sampler draws no rejections")
    if facts["draws_rejections"]:
        known = variables or {}
        by_kernel = {k: v for k, v in drawn.draws.items() if k not in known or known[k].by_kernel}
        exactly = bool(facts["draws_exactly"])
        missing = missing_information(drawn.stats, by_kernel, exactly, drawn.before)
    attrs: dict[str, Any] = {
        **facts,
        "draws": settings.draws,
        "thin": settings.thin,
        "warmup": settings.warmup,
        "chains": settings.chains,
        "seed": settings.seed,
        "budget": "none" if drawn.budget is None else drawn.budget,
        "budget_asked": "none" if settings.budget is None else settings.budget,
        "budget_restarts": drawn.restarts,
        "interrupted": int(drawn.interrupted),
        "n_observations": n,
        **certificate._asdict(),
        "missing_information": missing.worst,
        "missing_information_note": missing.note,
        **{f"version_{k.replace('-', '_')}": v for k, v in versions().items()},
    }
    groups = {
        "posterior": _dataset(drawn.draws, ("chain", "draw"), variables),
        "sample_stats": _dataset(stats, ("chain", "draw"), variables),
        "observed_data": _dataset(observed, ("observation",)),
    }
    for name, fractions in missing.parameters.items():
        groups["posterior"][name].attrs["missing_information"] = (
            fractions.ravel() if fractions.ndim else float(fractions)
        )
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **groups})


def _dataset(
    arrays: dict[str, np.ndarray],
    leading: tuple[str, ...],
    variables: dict[str, Variable] | None = None,
) -> xr.Dataset:
    """Arrays with named dimensions, and marks for which diagnostics apply."""
    named: dict[str, Any] = {}
    coords: dict[str, np.ndarray] = {}
    for name, values in arrays.items():
        extra = values.ndim - len(leading)
        own = tuple(f"{name}_dim_{i}" for i in range(extra))
        attrs: dict[str, Any] = {}
        if variables and name in variables:
            known = variables[name]
            if known.dimensions is not None:
                own = known.dimensions[len(known.dimensions) - extra :]
            attrs = {"exchangeable": int(known.exchangeable), "diagnosed": int(known.diagnosed)}
            if known.derived:
                attrs["derived"] = 1
            if known.constant is not None:
                flags = np.array(known.constant, int)
                attrs["constant"] = flags if flags.size > 1 else int(flags.all())
        named[name] = ((*leading, *own), values, attrs)
        sizes = zip((*leading, *own), values.shape, strict=True)
        coords |= {dim: np.arange(size) for dim, size in sizes}
    return xr.Dataset(named, coords=coords)
