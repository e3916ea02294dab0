"""``offcut.MatrixLangevinModel``: orientations, and how concentrated they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import xarray as xr

from offcut.base import Kernel, Model, Prepared
from offcut.errors import ModelError, SettingsError
from offcut.kernels.hmc import HMC
from offcut.kernels.nuts import NUTS
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
from offcut.models.prior import Prior, is_positive
from offcut.numerics.rendering import call
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import digest
from offcut.samplers.walk import Exchange, PseudoMarginal

IDENTITY, INFERRED = "identity", ("inferred", "uniform", "free")


class Method(NamedTuple):
    """A way to update kappa: its sampler, its kernel by default, and the kernels that it takes."""

    sampler: type[LangevinSampler]
    kernel: Kernel
    kernels: tuple[type, ...]


_MOVES = (NUTS, HMC, RandomWalk)
METHODS = {
    "augment": Method(AugmentedSampler, HMC(num_steps=3, jitter=0.4), _MOVES),
    "collapsed": Method(CollapsedSampler, HMC(num_steps=2, jitter=0.2), _MOVES),
    "asymptotic": Method(AsymptoticSampler, HMC(num_steps=2, jitter=0.2), _MOVES),
    "exchange": Method(ExchangeSampler, Exchange(), (Exchange,)),
    "pseudo_marginal": Method(PseudoMarginalSampler, PseudoMarginal(), (PseudoMarginal,)),
}


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
    method : "augment", "collapsed", "exchange", "pseudo_marginal", "asymptotic" or "auto"
        How kappa moves. "augment" keeps the rejections of Hoff's sampler (the paper's; exact, any
        d and p with up to about four similar concentrations). "collapsed" has the exact normaliser,
        G integrated out (p <= 2, and 3 by 3). "exchange" and "pseudo_marginal" are random walks
        judged by simulations. "asymptotic" is approximate: Khatri & Mardia's normaliser. "auto" is
        the fastest exact one, and ``posterior.attrs["method"]`` says which.

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

    def __init__(
        self,
        kappa_prior: object,
        G_prior: object = None,
        H: object = IDENTITY,
        method: str = "augment",
    ) -> None:
        self.kappa_prior = _positive_prior(kappa_prior)
        chosen = str(method).replace("-", "_")
        if chosen != "auto" and chosen not in METHODS:
            raise ModelError(
                f"method must be one of {', '.join(map(repr, [*METHODS, 'auto']))}, got {method!r}"
            )
        self.method = chosen
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

    def prepare(self, data: Any, covariates: Any, kernel: Kernel | None) -> Prepared:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if covariates is not None:
            raise ModelError("MatrixLangevinModel takes no covariates")
        frames = as_frames(data)
        n, d, p = frames.shape
        F0 = _sized("G_prior", self.F0, (d, p))
        F1 = _sized("H", self.F1, (p, p))
        S = frames.sum(0)
        V = np.linalg.svd(S)[2].T
        V = V * np.where(V[np.abs(V).argmax(0), np.arange(p)] < 0, -1.0, 1.0)
        arrays = LangevinData(*map(jnp.asarray, (np.int32(n), S, F0, F1, V)))
        method, kernel = self._method(kernel, d, p)
        uniform = not F0.any() and not F1.any()
        kappa_prior = _columns_prior(self.kappa_prior, p)
        settings = (self.infer_H, uniform, uniform and self._alike)
        sampler = kept_sampler(
            digest(METHODS[method].sampler, kappa_prior, settings),
            (kernel, Layout.of(n, d, p)),
            lambda: METHODS[method].sampler(
                Layout.of(n, d, p), Prior({"kappa": kappa_prior}), kernel, *settings
            ),
        )
        return Prepared(sampler, arrays, {"x": frames})

    def _method(self, kernel: Kernel | None, d: int, p: int) -> tuple[str, Kernel]:
        """The method and the kernel for data of this shape."""
        method = self.method
        if method == "auto" or (method == "augment" and type(kernel) in (Exchange, PseudoMarginal)):
            by_kernel = [
                name
                for name in ("exchange", "pseudo_marginal")
                if type(kernel) in METHODS[name].kernels
            ]
            method = by_kernel[0] if by_kernel else "collapsed" if is_exact(d, p) else "augment"
        if method == "collapsed" and not is_exact(d, p):
            raise ModelError(
                f"method='collapsed' needs the normalising constant, which is known for one or two "
                f"columns and for 3 by 3, not for {d} by {p}; use method='augment'"
            )
        known = METHODS[method]
        if kernel is None:
            return method, known.kernel
        if type(kernel) not in known.kernels:
            names = ", ".join(f"offcut.{kind.__name__}()" for kind in known.kernels)
            raise SettingsError(f"method={method!r} takes {names} as kernel, got {kernel!r}")
        return method, kernel

    def facts(self, prepared: Prepared) -> dict[str, Any]:
        """What else the result should say: the method, and what is approximate about it."""
        sampler: Any = prepared.sampler
        method = next(name for name, m in METHODS.items() if type(sampler) is m.sampler)
        facts = {
            "method": method,
            "method_note": self._why(method, *prepared.observed["x"].shape[1:]),
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

    def _why(self, method: str, d: int, p: int) -> str:
        known = is_exact(d, p)
        if self.method == "auto":
            return f" (the normalising constant of {d} by {p} is {'' if known else 'not '}known)"
        better = known and method not in ("collapsed", "asymptotic")
        return " (method='collapsed' would be faster here, and exact too)" if better else ""

    def identity(self) -> str:
        """What tells models apart, every digit of it."""
        priors = (self.kappa_prior, self.F0, self.F1)
        return digest(type(self), priors, self.infer_H, self.method)

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
            method=self.method,
        )


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
