"""``offcut.MatrixLangevinModel``: orientations, and how concentrated they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import xarray as xr

from offcut.base import Kernel, Model, Prepared, Request
from offcut.errors import ModelError
from offcut.kernels.hmc import HMC
from offcut.kernels.random_walk import RandomWalk
from offcut.langevin.augmented import AugmentedSampler
from offcut.langevin.data import as_frames
from offcut.langevin.distribution import MatrixLangevin
from offcut.langevin.evaluation import Cap, caps, modal_frames, predict
from offcut.langevin.normaliser import is_exact
from offcut.langevin.rejections import Layout
from offcut.langevin.sampler import (
    AsymptoticSampler,
    CollapsedSampler,
    LangevinData,
    LangevinSampler,
)
from offcut.langevin.walk import ExchangeSampler, PseudoMarginalSampler
from offcut.methods import FRAMES
from offcut.models.prior import Prior, is_positive
from offcut.numerics.arrays import as_argument
from offcut.numerics.rendering import call
from offcut.numerics.text import moved
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import digest

IDENTITY, INFERRED = "identity", ("inferred", "uniform", "free")


class Route(NamedTuple):
    """A way to update kappa: its sampler, and its kernel by default."""

    sampler: type[LangevinSampler]
    kernel: Kernel


ROUTES = {
    "augment": Route(AugmentedSampler, HMC(num_steps=3, jitter=0.4)),
    "collapsed": Route(CollapsedSampler, HMC(num_steps=2, jitter=0.2)),
    "asymptotic": Route(AsymptoticSampler, HMC(num_steps=2, jitter=0.2)),
    "exchange": Route(ExchangeSampler, RandomWalk()),
    "pseudo_marginal": Route(PseudoMarginalSampler, RandomWalk()),
}
#: What is said of a route that has a faster one beside it.
FASTER = " (method='collapsed' would be faster here, and exact too)"


class MatrixLangevinModel(Model):
    r"""Frames X_i (d by p, orthonormal columns) with density etr(H diag(kappa) Gᵀ X) / Z(kappa).

    Parameters
    ----------
    kappa_prior : NumPyro distribution
        Independent prior of the concentrations, e.g. ``dist.Gamma(1, 0.1)``: one for all columns,
        or of batch shape (p,).
    G_prior : MatrixLangevin or array (d, p), optional
        Matrix Langevin prior of G, or its parameter F0; uniform by default.
    H : "identity", "inferred", or a MatrixLangevin or array (p, p)
        H is the identity, so that column r of the data has mode G_r and concentration kappa_r; or
        it is inferred, with a uniform prior or the one given. Inferred, and unless the priors tell
        columns apart, draws are reported in one of the equivalent forms: kappa falling, columns
        of H at less than 90 degrees to the right singular vectors of the mean frame.
    Notes
    -----
    ``method=`` of ``offcut.sample`` says how kappa moves. "augment" keeps the rejections of Hoff's
    sampler (the paper's, and the default; exact, any d and p with up to about four similar
    concentrations). "collapsed" has the exact normaliser, G integrated out (p <= 2, and 3 by 3).
    "exchange" and "pseudo_marginal" are random walks judged by simulations. "asymptotic" is
    approximate: Khatri & Mardia's normaliser. "fastest" is the fastest exact one, and
    ``posterior.attrs["method"]`` says which.

    Examples
    --------
    >>> import jax, numpyro.distributions as dist, offcut
    >>> x = offcut.MatrixLangevin([[12.0, 0.0], [0.0, 6.0], [0.0, 0.0]]).sample(
    ...     jax.random.key(0), (50,)
    ... )
    >>> model = offcut.MatrixLangevinModel(dist.Gamma(1, 0.1))
    >>> posterior = offcut.sample(model, x, draws=200, warmup=200, chains=2)
    >>> dict(posterior["posterior"]["G"].sizes)
    {'chain': 2, 'draw': 200, 'row': 3, 'column': 2}
    >>> model.regions(posterior)[0].angle < 0.2
    True
    """

    methods = FRAMES

    @moved(
        method=lambda value: (
            "give it to offcut.sample(model, data, method="
            f"{'fastest' if value == 'auto' else value!r})"
        )
    )
    def __init__(
        self,
        kappa_prior: object,
        G_prior: object = None,
        H: object = IDENTITY,
    ) -> None:
        self.kappa_prior = _positive_prior(kappa_prior)
        self.F0 = _parameter("G_prior", G_prior)
        self.infer_H = not (isinstance(H, str) and H == IDENTITY)
        if H is None or (isinstance(H, str) and H not in (IDENTITY, *INFERRED)):
            raise ModelError(
                f'H must be "identity", "inferred", or a MatrixLangevin prior, got {H!r}'
            )
        self.F1 = None if isinstance(H, str) else _parameter("H", H)
        if self.F1 is not None and not isinstance(H, MatrixLangevin) and _is_orthogonal(self.F1):
            raise ModelError(
                "H is an orthogonal matrix, which would be taken for the parameter of a prior. "
                "To fix H at it, give data @ H in place of the data; for that prior give "
                "offcut.MatrixLangevin(H)"
            )

    def prepare(self, request: Request) -> Prepared:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if request.covariates is not None:
            raise ModelError("MatrixLangevinModel takes no covariates")
        frames = as_frames(request.data)
        n, d, p = frames.shape
        F0 = _sized("G_prior", self.F0, (d, p))
        F1 = _sized("H", self.F1, (p, p))
        S = frames.sum(0)
        V = np.linalg.svd(S)[2].T
        V = V * np.where(V[np.abs(V).argmax(0), np.arange(p)] < 0, -1.0, 1.0)
        arrays = LangevinData(*map(as_argument, (np.int32(n), S, F0, F1, V)))
        route = ROUTES[_route(request.method.name, d, p)]
        kernel = request.kernel or route.kernel.on(request.method)
        uniform = not F0.any() and not F1.any()
        kappa_prior = _columns_prior(self.kappa_prior, p)
        settings = (self.infer_H, uniform, uniform and self._alike)
        layout = Layout.of(n if route.sampler.proposes else 0, d, p)
        sampler = kept_sampler(
            digest(route.sampler, kappa_prior, settings),
            (kernel, request.settings, layout),
            lambda: route.sampler(
                layout,
                Prior({"kappa": kappa_prior}),
                kernel,
                *settings,
                request.settings,
            ),
        )
        return Prepared(sampler, arrays, {"x": frames})

    def facts(self, prepared: Prepared) -> dict[str, Any]:
        """What else the result should say: the method, and what is approximate about it."""
        sampler: Any = prepared.sampler
        method = sampler.method
        facts = {
            "method_note": _note(method, *prepared.observed["x"].shape[1:]),
            "langevin": repr(self),
        }
        if method == "asymptotic":
            facts["approximation"] = (
                "Khatri & Mardia's asymptotic normaliser stands for the exact one: the draws are "
                "not those of the posterior, and how far off they are is not known; exact methods "
                'are method="augment" and, for one or two columns, "collapsed"'
            )
        if self.infer_H:
            facts["form"] = (
                "kappa falls; columns of H are at less than 90 degrees to those of the mean frame"
                if sampler.symmetric
                else "as drawn: the priors tell columns apart"
            )
        return facts

    def identity(self) -> str:
        """What tells models apart, every digit of it."""
        priors = (self.kappa_prior, self.F0, self.F1)
        return digest(type(self), priors, self.infer_H)

    @property
    def _alike(self) -> bool:
        """Whether the prior is the same for all columns."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.kappa_prior)]
        return all(np.all(leaf == leaf.flat[0]) for leaf in leaves if leaf.size)

    def predict(self, posterior: xr.DataTree, size: int, *, seed: int = 0) -> np.ndarray:
        """Posterior predictive frames (size, d, p), each from a draw chosen at random."""
        return predict(posterior, size, seed)

    def regions(
        self,
        posterior: xr.DataTree,
        probability: float | int = 0.9,
        *,
        predictive: bool = False,
        size: int = 20_000,
        seed: int = 0,
    ) -> list[Cap]:
        """A spherical cap for each column of the data.

        Credible regions of the modal directions G Hᵀ, or with ``predictive`` regions that hold a
        new observation's column with the given probability (from ``size`` predictive frames).
        """
        if predictive:
            return caps(self.predict(posterior, size, seed=seed), probability)
        return caps(modal_frames(posterior), probability)

    def __repr__(self) -> str:
        inferred = "inferred" if self.F1 is None else self.F1
        return call(
            "MatrixLangevinModel",
            self.kappa_prior,
            G_prior=self.F0,
            H=inferred if self.infer_H else None,
        )


def _route(name: str, d: int, p: int) -> str:
    """The route for data of this shape."""
    known = is_exact(d, p)
    if name == "fastest":
        return "collapsed" if known else "augment"
    if name == "collapsed" and not known:
        raise ModelError(
            f"method='collapsed' needs the normalising constant, which is known for one or two "
            f"columns and for 3 by 3, not for {d} by {p}; use method='augment'"
        )
    return name


def _note(method: str, d: int, p: int) -> str:
    """Why this route, or why not."""
    known = is_exact(d, p)
    if method == "collapsed" or (method == "augment" and not known):
        return f" (the normalising constant of {d} by {p} is {'' if known else 'not '}known)"
    return FASTER if known and method != "asymptotic" else ""


def _is_orthogonal(H: np.ndarray) -> bool:
    return H.shape[0] == H.shape[1] and np.allclose(H.T @ H, np.eye(len(H)), atol=1e-6)


def _positive_prior(prior: object) -> dist.Distribution:
    if not isinstance(prior, dist.Distribution):
        raise ModelError(
            "kappa_prior must be a NumPyro distribution such as "
            f"numpyro.distributions.Gamma(1, 0.1), got {type(prior).__name__}"
        )
    if prior.event_shape or len(prior.batch_shape) > 1:
        raise ModelError(
            "kappa_prior must be a distribution of single numbers, one for all columns or one for "
            f"each; got batch shape {prior.batch_shape}, event shape {prior.event_shape}"
        )
    if not is_positive(prior):
        raise ModelError(
            f"kappa_prior must have its mass on positive numbers, because concentrations cannot be "
            f"negative; {type(prior).__name__} has support {prior.support}. Use for example "
            "numpyro.distributions.Gamma(1, 0.1)"
        )
    return prior


def _columns_prior(prior: dist.Distribution, p: int) -> dist.Distribution:
    if prior.batch_shape not in ((), (1,), (p,)):
        raise ModelError(
            f"kappa_prior has {prior.batch_shape[0]} entries, but the frames have {p} columns"
        )
    return prior.expand((p,))


def _parameter(name: str, prior: object) -> np.ndarray | None:
    """F of a matrix Langevin prior, None where it is uniform."""
    if prior is None:
        return None
    try:
        F = np.asarray(prior.F if isinstance(prior, MatrixLangevin) else prior, float)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{name} must be an offcut.MatrixLangevin, its parameter (a matrix), or left out for a "
            f"uniform prior; got {prior!r}"
        ) from error
    if F.ndim != 2 or not np.isfinite(F).all():
        raise ModelError(
            f"{name} must be an offcut.MatrixLangevin or its parameter, a matrix of finite "
            f"numbers, got shape {F.shape}"
        )
    return F


def _sized(name: str, F: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
    if F is None:
        return np.zeros(shape)
    if F.shape != shape:
        raise ModelError(
            f"{name} is {F.shape[0]} by {F.shape[1]}; these data need {shape[0]} by {shape[1]}"
        )
    return F
