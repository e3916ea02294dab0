"""Whether box, basis and quadrature were large enough: said of every run, in its attrs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut.gp.box import covariance_error
from offcut.gp.evaluation import _proposed, _supported, draws_of
from offcut.gp.grid import Grid
from offcut.gp.planning import Prepared
from offcut.gp.quadrature import rule
from offcut.gp.sampler import GPData, GPSampler
from offcut.precision import in_float64

#: What a run may leave out without a word: of the prior covariance, at the median length-scale and
#: at short ones; of the proposals; of log Z (times n).
COVARIANCE_ERROR, COVARIANCE_ERROR_SHORT = 0.01, 0.05
SHARE_OUTSIDE, QUADRATURE_ERROR = 0.02, 0.01
SHORT = 0.05
#: Draws that are looked at.
LOOKED_AT = 40


def facts(prepared: Prepared, model: str) -> dict[str, Any]:
    """Box, basis and priors of a run."""
    plan, box = prepared.plan, prepared.box
    exact = isinstance(plan.basis, Grid)
    return {
        "gp": model,
        "covariance": plan.covariance.name,
        "basis_functions": 0 if exact else list(plan.basis.sizes),
        "box_lower": box.lower,
        "box_upper": box.upper,
        "base_prior": repr(prepared.base_prior) if prepared.base_prior is not None else "none",
        "summed_moves": int(plan.joint),
    }


@in_float64
def judge(posterior: xr.DataTree, prepared: Prepared) -> None:
    """Measure what was left out; name it where it is not small."""
    if isinstance(prepared.plan.basis, Grid):
        posterior.attrs["basis_error"] = 0.0
        posterior.attrs["basis_note"] = (
            "the exact process; densities between the nodes of the grid are read off a spline"
        )
        return
    drawn = draws_of(posterior, prepared)
    rows = np.unique(np.linspace(0, len(drawn.w) - 1, LOOKED_AT).astype(int))
    scales = _length_scales(posterior, prepared)
    middle, short = np.quantile(scales, [0.5, SHORT], axis=0)
    error, error_short = (_covariance_error(prepared, scale) for scale in (middle, short))
    outside = _share_outside(prepared, drawn.p[rows], middle)
    attrs = posterior.attrs
    attrs["basis_error"], attrs["basis_error_short"] = error, error_short
    attrs["proposals_outside_box"] = outside
    said = []
    if error > COVARIANCE_ERROR or error_short > COVARIANCE_ERROR_SHORT:
        said.append(
            f"the basis of {'×'.join(map(str, prepared.plan.basis.sizes))} functions stands for "
            f"the process up to an error of {error:.1%} of its prior variance at the median "
            f"length-scale, and of {error_short:.1%} at short ones (5% quantile); give a larger "
            "basis= or longer length-scales"
        )
    if outside > SHARE_OUTSIDE:
        said.append(
            f"{outside:.1%} of the proposals fall near or beyond the edge of the box of the basis, "
            "where f is drawn to zero; a tighter prior of the base, or support=, would help"
        )
    if prepared.plan.summed:
        worst = _quadrature_error(
            prepared, drawn.w[rows], drawn.p[rows], drawn.log_normaliser[rows]
        )
        attrs["quadrature_error"] = worst
        if worst * prepared.plan.layout.n > QUADRATURE_ERROR:
            said.append(
                f"log Z is uncertain by {worst:.1e} for each observation (quadrature): the base "
                'density is too sharp for the nodes; use joint_moves=False with method="augment"'
            )
    else:
        attrs["normaliser_note"] = (
            "densities are normalised by Monte Carlo (4,096 proposals for each draw)"
        )
    if said:
        attrs["approximation"] = "; ".join(said)


def _length_scales(posterior: xr.DataTree, prepared: Prepared) -> np.ndarray:
    """(draws, d)."""
    d = prepared.plan.basis.d
    dataset: Any = posterior["posterior"].dataset
    if "length_scale" not in dataset:
        return np.asarray(prepared.data.length_scale)[None, :]
    values = dataset["length_scale"].values
    return np.broadcast_to(
        values.reshape(values.shape[0] * values.shape[1], -1),
        (values.shape[0] * values.shape[1], d),
    )


def _covariance_error(prepared: Prepared, length_scale: np.ndarray) -> float:
    plan = prepared.plan
    return covariance_error(
        plan.covariance, prepared.box, plan.basis, length_scale, *prepared.region
    )


def _share_outside(prepared: Prepared, p: np.ndarray, length_scale: np.ndarray) -> float:
    """Share of proposals in the support whose f feels the boundary of the box, or outside it.

    Within a length-scale of the boundary the variance of f is too small by 10% and more.
    """
    u = _proposed(prepared, np.repeat(p, 100, axis=0), 0, 0)
    inner = 1 - length_scale / prepared.box.half
    beyond = (np.abs(u) > inner[:, None]).any(0)
    return float((beyond & _supported(prepared, u)).mean())


def _quadrature_error(prepared: Prepared, w: np.ndarray, p: np.ndarray, log_Z: np.ndarray) -> float:
    """Largest change of log Z with twice the nodes along each axis."""
    plan = prepared.plan
    low, high = (np.asarray(edge) for edge in prepared.data.support)
    finer = rule(
        plan.basis.tables, plan.basis.sizes, np.maximum(low, -1), np.minimum(high, 1), finer=2
    )
    sampler, data = GPSampler(plan), prepared.data._replace(quadrature=finer)

    @jax.jit
    def each(w: jax.Array, p: jax.Array, data: GPData) -> jax.Array:
        def one(pair: tuple) -> jax.Array:
            return jnp.log(sampler.normaliser(sampler.at_nodes(pair[0], data), pair[1], data))

        return jax.lax.map(one, (w, p))

    values = np.asarray(each(jnp.asarray(w), jnp.asarray(p), data))
    return float(np.abs(values - log_Z).max())
