"""Whether box, basis and quadrature were large enough: measured after every run, in its attrs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from offcut.gp import types as t
from offcut.gp.base_density import FamilyBase, NormalBase, Recorded
from offcut.gp.basis import Grid, covariance_error
from offcut.gp.data import GPData
from offcut.gp.evaluation import proposed, supported
from offcut.gp.plan import Plan, Prepared, quadrature_of
from offcut.gp.quadrature import normaliser_on_host
from offcut.gp.sampler import GPSampler
from offcut.models.prior import Theta
from offcut.numerics import keys
from offcut.numerics.types import KeyArray
from offcut.programs.cache import Programs
from offcut.programs.compiled import Program
from offcut.programs.identity import digest
from offcut.programs.precision import in_float64

#: What a run may leave out without a word: of the prior covariance, at the median length-scale and
#: at short ones; of the proposals; of log Z (times n).
COVARIANCE_ERROR, COVARIANCE_ERROR_SHORT = 0.01, 0.05
SHARE_OUTSIDE, QUADRATURE_ERROR = 0.02, 0.01
#: Of f of the exact process where densities are read off between the nodes of its grid.
INTERPOLATION_ERROR = 0.1
SHORT = 0.05
#: Draws that are looked at, and proposals of each.
LOOKED_AT, PROPOSED = 40, 100

#: Of one value for each draw that is looked at.
EachDraw = Float[np.ndarray, " r"]


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
    recorded = _some_of(posterior["posterior"].dataset)
    scales = _hyperparameter(posterior, prepared, "length_scale")
    middle, short = np.quantile(scales, [0.5, SHORT], axis=0)
    # Proposals in the support, and how far out they are: 1 at the edge of the box.
    u, log_Z = looked_at(prepared, recorded)
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
    if log_Z is not None:
        coarser = _some_of(posterior["sample_stats"].dataset[["log_normaliser"]])
        worst = float(np.abs(log_Z - coarser["log_normaliser"]).max())
        attrs["quadrature_error"] = worst
        if worst * int(prepared.data.n) > QUADRATURE_ERROR:
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


def _some_of(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """Variables in some draws, evenly spaced; as many, however few there are."""
    found = {}
    for name, variable in dataset.items():
        flat = variable.values.reshape(-1, *variable.shape[2:])
        found[str(name)] = flat[np.linspace(0, len(flat) - 1, LOOKED_AT).astype(int)]
    return found


def looked_at(prepared: Prepared, recorded: Recorded) -> tuple[t.HostColumns, EachDraw | None]:
    """Proposals of each draw, and log Z with twice the nodes along each axis.

    log Z is None where it is not known by quadrature. With NumPy; of a family by one program.
    """
    plan, base = prepared.plan, prepared.plan.base
    low, high = (np.asarray(edge) for edge in prepared.data.limits)
    data = prepared.data._replace(quadrature=quadrature_of(plan, low, high, finer=2))
    if isinstance(base, FamilyBase):
        programs = Programs(digest(plan.key[1:]))  # whatever the layout
        program = programs.kept("looked at", lambda: Program(_of_family(plan), "looked_at"))
        theta = {name: np.asarray(recorded[name], float) for name in base.prior.names}
        found = program(keys.from_seed(0), recorded["weights"], theta, data.without_rows())
        u, log_Z = map(np.asarray, found)
        return u, log_Z if plan.summed else None
    p = base.positions(recorded, prepared.box)
    u = proposed(prepared, np.repeat(p, PROPOSED, axis=0), 0, 0)
    if not plan.summed:
        return u, None
    return u, np.log(_normalisers(prepared, recorded["weights"], p, data))


def _of_family(plan: Plan) -> Callable[..., tuple[t.Columns, Float[Array, " r"]]]:
    """What ``looked_at`` does, to be compiled."""
    sampler, base = GPSampler(plan), plan.base
    assert isinstance(base, FamilyBase)

    def one(draw: tuple[KeyArray, t.Weights, Theta], data: GPData) -> tuple[jax.Array, jax.Array]:
        key, w, theta = draw
        p = base.prior.unconstrain(theta)
        u = base.propose(key, p, PROPOSED, data)
        if not plan.summed:
            return u, jnp.zeros(())
        return u, jnp.log(sampler.normaliser(sampler.at_nodes(w, data, p), p, data))

    def each(
        key: KeyArray, w: Float[Array, "r m"], theta: Theta, data: GPData
    ) -> tuple[t.Columns, Float[Array, " r"]]:
        own = jax.random.split(key, w.shape[0])
        u, log_Z = jax.lax.map(lambda draw: one(draw, data), (own, w, theta))
        return jnp.moveaxis(u, 0, 1).reshape(u.shape[1], -1), log_Z

    return each


def _normalisers(
    prepared: Prepared, w: Float[np.ndarray, "r m"], p: Float[np.ndarray, "r k"], data: GPData
) -> EachDraw:
    """Z by a quadrature, of a base that NumPy knows."""
    plan, base = prepared.plan, prepared.plan.base
    nodes, weights, tables = data.quadrature
    f = np.stack([plan.basis.on_grid(one, tables, np).reshape(-1) for one in w])
    log_g0 = base.log_density_each(p, np.asarray(nodes), data)
    whole = np.ones(len(p))
    if plan.supported == "side":
        assert isinstance(base, NormalBase)
        whole = base.mass_each(p, *(np.asarray(edge) for edge in data.support))
    elif plan.supported == "box":
        whole = np.exp(log_g0) @ np.asarray(weights)
    return normaliser_on_host(f, log_g0, np.asarray(weights), whole)
