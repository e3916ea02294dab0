"""Whether box, basis and quadrature were large enough: said of every run, in its attrs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from offcut.gp.basis import covariance_error
from offcut.gp.covariance import distances
from offcut.gp.evaluation import Draws, _proposed, _supported, draws_of
from offcut.gp.plan import Prepared, quadrature_of
from offcut.gp.quadrature import Grid
from offcut.gp.sampler import GPData, GPSampler
from offcut.programs.precision import in_float64

#: What a run may leave out without a word: of the prior covariance, at the median length-scale and
#: at short ones; of the proposals; of log Z (times n).
COVARIANCE_ERROR, COVARIANCE_ERROR_SHORT = 0.01, 0.05
SHARE_OUTSIDE, QUADRATURE_ERROR = 0.02, 0.01
#: Of f of the exact process where densities are read off between the nodes of its grid.
INTERPOLATION_ERROR = 0.1
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
def measure(posterior: xr.DataTree, prepared: Prepared) -> None:
    """Measure what was left out; name it where it is not small."""
    drawn = draws_of(posterior, prepared)
    rows = np.unique(np.linspace(0, len(drawn.w) - 1, LOOKED_AT).astype(int))
    scales = _length_scales(posterior, prepared)
    middle, short = np.quantile(scales, [0.5, SHORT], axis=0)
    attrs = posterior.attrs
    if isinstance(prepared.plan.basis, Grid):
        said = _measure_exact(attrs, posterior, prepared, drawn.p[rows], middle)
        _measure_quadrature(attrs, said, prepared, drawn, rows)
        return
    error, error_short = (_covariance_error(prepared, scale) for scale in (middle, short))
    outside = _share_outside(prepared, drawn.p[rows], middle)
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
    if not prepared.plan.summed:
        attrs["normaliser_note"] = (
            "densities are normalised by Monte Carlo (4,096 proposals for each draw)"
        )
    _measure_quadrature(attrs, said, prepared, drawn, rows)


def _measure_quadrature(
    attrs: dict, said: list[str], prepared: Prepared, drawn: Draws, rows: np.ndarray
) -> None:
    """Measure log Z again, and name all that was said."""
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
    if said:
        attrs["approximation"] = "; ".join(said)


def _measure_exact(
    attrs: dict, posterior: xr.DataTree, prepared: Prepared, p: np.ndarray, scale: np.ndarray
) -> list[str]:
    """What reading densities off the grid leaves out: f between its nodes, and beyond the box."""
    variance = _median(posterior, prepared, "variance")
    error = float(np.sqrt(variance) * _interpolation_error(prepared, scale))
    u = _proposed(prepared, np.repeat(p, 100, axis=0), 0, 0)
    outside = float(((np.abs(u) > 1).any(0) & _supported(prepared, u)).mean())
    attrs["basis_error"] = 0.0
    attrs["interpolation_error"], attrs["proposals_outside_box"] = error, outside
    attrs["basis_note"] = (
        "the draws are of the exact process; densities are read off a grid: between its nodes f is "
        f"a spline, off by {error:.1g} (root mean square, at worst), and beyond the box, where "
        f"{outside:.1%} of the proposals fall, zero"
    )
    said = []
    if error > INTERPOLATION_ERROR:
        said.append(
            f"between the nodes of the grid f is read off a spline, off by {error:.2f} (root mean "
            "square, at worst); the draws are exact, densities between the data are smoothed"
        )
    if outside > SHARE_OUTSIDE:
        said.append(
            f"{outside:.1%} of the proposals fall beyond the box of the grid, where densities are "
            "evaluated with f = 0; a tighter prior of the base, or support=, would help"
        )
    return said


def _interpolation_error(prepared: Prepared, length_scale: np.ndarray) -> float:
    """Largest root mean square of f less its spline, in standard deviations of f.

    Of the prior given the length-scale, E (f(x) - s(x) f(nodes))², s being the spline's weights;
    it is largest halfway between nodes.
    """
    basis, box, d = prepared.plan.basis, prepared.box, prepared.plan.basis.d
    axes = [np.concatenate([[-1.0], 0.5 * (axis[1:] + axis[:-1]), [1.0]]) for axis in basis.axes()]
    if d > 1:  # the middle cells are the widest
        axes = [axis[[0, len(axis) // 2, -1]] for axis in axes]
    places = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    x, nodes = (box.centre + box.half * u.T for u in (places, basis.nodes()))
    correlation = prepared.plan.covariance.correlation
    s = basis.features(places)
    cross = correlation(distances(nodes, x, length_scale), np)
    K = correlation(distances(nodes, nodes, length_scale), np)
    square = 1 - 2 * (s * cross).sum(0) + (s * (K @ s)).sum(0)
    return float(np.sqrt(max(square.max(), 0.0)))


def _median(posterior: xr.DataTree, prepared: Prepared, name: str) -> float:
    """Of a hyperparameter, learned or fixed."""
    dataset: Any = posterior["posterior"].dataset
    values = dataset[name].values if name in dataset else getattr(prepared.data, name)
    return float(np.median(values))


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
    low, high = (np.asarray(edge) for edge in prepared.data.limits)
    finer = quadrature_of(plan, low, high, finer=2)
    sampler, data = GPSampler(plan), prepared.data._replace(quadrature=finer)

    @jax.jit
    def each(w: jax.Array, p: jax.Array, data: GPData) -> jax.Array:
        def one(pair: tuple) -> jax.Array:
            f = sampler.at_nodes(pair[0], data, pair[1])
            return jnp.log(sampler.normaliser(f, pair[1], data))

        return jax.lax.map(one, (w, p))

    values = np.asarray(each(jnp.asarray(w), jnp.asarray(p), data))
    return float(np.abs(values - log_Z).max())
