"""Whether box, basis and quadrature were large enough: measured after every run, in its attrs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from offcut.gp import types as t
from offcut.gp.basis import Grid, covariance_error
from offcut.gp.data import GPData
from offcut.gp.evaluation import Draws, proposed, supported
from offcut.gp.plan import Prepared, quadrature_of
from offcut.gp.sampler import GPSampler
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
    return {
        "gp": model,
        "covariance": plan.covariance.name,
        "basis_functions": 0 if isinstance(plan.basis, Grid) else list(plan.basis.sizes),
        "box_lower": box.lower,
        "box_upper": box.upper,
        "base_prior": repr(prepared.base_prior) if prepared.base_prior is not None else "none",
        "summed_moves": int(plan.joint),
    }


@in_float64
def measure(posterior: xr.DataTree, prepared: Prepared) -> None:
    """Measure what was left out; name it in the attrs where it is not small."""
    attrs, plan = posterior.attrs, prepared.plan
    drawn = Draws.of(posterior, prepared)
    rows = np.unique(np.linspace(0, len(drawn.w) - 1, LOOKED_AT).astype(int))
    w, p, log_Z = drawn.w[rows], drawn.p[rows], drawn.log_normaliser[rows]
    scales = _hyperparameter(posterior, prepared, "length_scale")
    middle, short = np.quantile(scales, [0.5, SHORT], axis=0)
    # Proposals in the support, and how far out they are: 1 at the edge of the box.
    u = proposed(prepared, np.repeat(p, 100, axis=0), 0, 0)
    far, inside = np.abs(u), supported(prepared, u)
    found = []
    if isinstance(plan.basis, Grid):
        variance = np.median(_hyperparameter(posterior, prepared, "variance"))
        error = float(np.sqrt(variance) * _interpolation_error(prepared, middle))
        outside = float(((far > 1).any(0) & inside).mean())
        attrs["basis_error"], attrs["interpolation_error"] = 0.0, error
        attrs["basis_note"] = (
            "the draws are of the exact process; densities are read off a grid: between its nodes "
            f"f is a spline, off by {error:.1g} (root mean square, at worst), and beyond the box, "
            f"where {outside:.1%} of the proposals fall, zero"
        )
        if error > INTERPOLATION_ERROR:
            found.append(
                f"between the nodes of the grid f is read off a spline, off by {error:.2f} (root "
                "mean square, at worst); the draws are exact, densities between the data are "
                "smoothed"
            )
        where = "beyond the box of the grid, where densities are evaluated with f = 0"
    else:
        error, error_short = (
            covariance_error(plan.covariance, prepared.box, plan.basis, scale, *prepared.region)
            for scale in (middle, short)
        )
        # Within a length-scale of the boundary the variance of f is too small by 10% and more.
        inner = 1 - middle / prepared.box.half
        outside = float(((far > inner[:, None]).any(0) & inside).mean())
        attrs["basis_error"], attrs["basis_error_short"] = error, error_short
        if error > COVARIANCE_ERROR or error_short > COVARIANCE_ERROR_SHORT:
            found.append(
                f"the basis of {'×'.join(map(str, plan.basis.sizes))} functions stands for the "
                f"process up to an error of {error:.1%} of its prior variance at the median "
                f"length-scale, and of {error_short:.1%} at short ones (5% quantile); give a "
                "larger basis= or longer length-scales"
            )
        where = "near or beyond the edge of the box of the basis, where f is drawn to zero"
    attrs["proposals_outside_box"] = outside
    if outside > SHARE_OUTSIDE:
        found.append(
            f"{outside:.1%} of the proposals fall {where}; a tighter prior of the base, or "
            "support=, would help"
        )
    if plan.summed:
        attrs["quadrature_error"] = worst = _quadrature_error(prepared, w, p, log_Z)
        if worst * plan.layout.n > QUADRATURE_ERROR:
            found.append(
                f"log Z is uncertain by {worst:.1e} for each observation (quadrature): the base "
                'density is too sharp for the nodes; use joint_moves=False with method="augment"'
            )
    else:
        attrs["normaliser_note"] = (
            "densities are normalised by Monte Carlo (4,096 proposals for each draw)"
        )
    if found:
        attrs["approximation"] = "; ".join(found)


def _interpolation_error(prepared: Prepared, length_scale: t.HostVector) -> float:
    """Largest root mean square of f less its spline, in standard deviations of f.

    Of the prior given the length-scale, E (f(x) - s(x) f(nodes))², s being the spline's weights;
    it is largest halfway between nodes.
    """
    grid, covariance = prepared.plan.basis, prepared.plan.covariance
    assert isinstance(grid, Grid)
    axes = [np.concatenate([[-1.0], 0.5 * (axis[1:] + axis[:-1]), [1.0]]) for axis in grid.axes()]
    if grid.d > 1:  # the middle cells are the widest
        axes = [axis[[0, len(axis) // 2, -1]] for axis in axes]
    places = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")])
    scale = (prepared.box.half / length_scale)[:, None]
    x, nodes = scale * places, scale * grid.nodes()
    s = grid.features(places)
    cross, K = (covariance.correlations(nodes, other, np) for other in (x, nodes))
    square = 1 - 2 * (s * cross).sum(0) + (s * (K @ s)).sum(0)
    return float(np.sqrt(max(square.max(), 0.0)))


def _hyperparameter(
    posterior: xr.DataTree, prepared: Prepared, name: str
) -> Float[np.ndarray, "draws d"]:
    """One that was learned, or fixed: then there is one draw of it."""
    dataset, d = posterior["posterior"].dataset, prepared.plan.basis.d
    if name not in dataset:
        return np.broadcast_to(getattr(prepared.data, name), (1, d))
    values = dataset[name].values
    rows = values.shape[0] * values.shape[1]
    return np.broadcast_to(values.reshape(rows, -1), (rows, d))


def _quadrature_error(
    prepared: Prepared,
    w: Float[np.ndarray, "draws m"],
    p: Float[np.ndarray, "draws k"],
    log_Z: Float[np.ndarray, " draws"],
) -> float:
    """Largest change of log Z with twice the nodes along each axis."""
    plan = prepared.plan
    low, high = (np.asarray(edge) for edge in prepared.data.limits)
    finer = quadrature_of(plan, low, high, finer=2)
    sampler, data = GPSampler(plan), prepared.data._replace(quadrature=finer)

    @jax.jit
    def each(w: jax.Array, p: jax.Array, data: GPData) -> jax.Array:
        def one(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
            f = sampler.at_nodes(pair[0], data, pair[1])
            return jnp.log(sampler.normaliser(f, pair[1], data))

        return jax.lax.map(one, (w, p))

    values = np.asarray(each(jnp.asarray(w), jnp.asarray(p), data))
    return float(np.abs(values - log_Z).max())
