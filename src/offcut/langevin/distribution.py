"""The matrix Langevin (von Mises-Fisher) distribution as a NumPyro distribution.

Maximum likelihood: with n frames of mean X̄ = U diag(tau) Vᵀ the log-likelihood per frame, tr(Fᵀ
X̄) - log Z(kappa), is largest at G = U, H = V and the kappa with d log Z / d kappa_r = tau_r
(Khatri & Mardia 1977): a strictly convex problem in p dimensions, solved by Newton's method in log
kappa."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike
from numpyro.distributions import constraints

from offcut.errors import DataError, ModelError, TrustWarning
from offcut.langevin import draws
from offcut.langevin.data import as_frames
from offcut.langevin.normaliser import (
    approximate_log_normaliser,
    is_exact,
    log_normaliser,
    log_normaliser_of,
)
from offcut.numerics import keys
from offcut.programs.precision import in_float64

NEWTON_STEPS = 200
#: Below this concentration the asymptotics are worthless.
SMALL = 2.0
#: Singular values of the mean frame above 1 minus this leave no room for a finite kappa.
SPREAD = 1e-12
#: Below this a singular value of the mean frame is zero up to rounding, and so is kappa.
NOTHING = 1e-14


@dataclass(frozen=True, eq=False)
class MaximumLikelihood:
    """An estimate F = G diag(kappa) Hᵀ, kappa falling.

    Attributes
    ----------
    G, kappa, H : arrays (d, p), (p,), (p, p)
    method : "exact" or "asymptotic"
        Which normalising constant was used.
    """

    G: Float[np.ndarray, "d p"]
    kappa: Float[np.ndarray, " p"]
    H: Float[np.ndarray, "p p"]
    method: str

    @property
    def F(self) -> Float[np.ndarray, "d p"]:  # noqa: N802 (the paper's letter)
        """The parameter."""
        return self.G * self.kappa @ self.H.T

    def __repr__(self) -> str:
        shown = ", ".join(f"{k:.4g}" for k in self.kappa)
        d, p = self.G.shape
        return f"MaximumLikelihood(kappa=({shown}), {d} by {p}, method={self.method!r})"


@in_float64
def maximum_likelihood(X: ArrayLike) -> MaximumLikelihood:
    """See ``MatrixLangevin.mle``."""
    frames = as_frames(X)
    n, d, p = frames.shape
    U, tau, Vt = np.linalg.svd(frames.mean(0), full_matrices=False)
    if tau[-1] > 1 - SPREAD or (tau[0] > 1 - SPREAD and n == 1):
        raise DataError(
            f"the {n} frames do not differ up to rounding, so the likelihood grows without bound "
            "with kappa: a maximum-likelihood estimate needs at least two different frames"
        )
    if tau[0] > 1 - SPREAD:
        raise DataError(
            "the frames agree in at least one direction up to rounding, so the likelihood grows "
            "without bound with its concentration: there is no maximum-likelihood estimate"
        )
    exact = is_exact(d, p)
    kappa = _solve(tau, d, exact)
    if not exact and kappa.min() < SMALL:
        warnings.warn(
            f"kappa = {np.round(kappa, 3).tolist()} comes from asymptotics for large kappa, which "
            f"say nothing about values below {SMALL:g} or so: MatrixLangevinModel infers them",
            TrustWarning,
            stacklevel=4,
        )
    return MaximumLikelihood(U, kappa, Vt.T, "exact" if exact else "asymptotic")


def _solve(tau: Float[np.ndarray, " p"], d: int, exact: bool) -> Float[np.ndarray, " p"]:
    """kappa with d log Z / d kappa = tau, by damped Newton steps in log kappa."""
    program = _program(d, len(tau), exact)
    tau = np.maximum(tau, NOTHING)
    # Exact at both ends for p = 1: kappa = d tau for small ones, (d-1)/2 / (1 - tau) for large.
    u = np.log(tau * (d - tau**2) / (1 - tau**2))
    value, slope, curve = program(u, tau)
    for _ in range(NEWTON_STEPS):
        w, V = np.linalg.eigh(np.asarray(curve))
        step = -V @ ((V.T @ np.asarray(slope)) / np.maximum(np.abs(w), 1e-12 * np.abs(w).max()))
        step *= min(1.0, 2.0 / np.abs(step).max()) if np.abs(step).max() > 0 else 1.0
        while True:
            new = program(u + step, tau)
            if np.isfinite(new[0]) and new[0] <= value + 1e-13 * abs(value):
                break
            step = 0.5 * step
            if np.abs(step).max() < 1e-14:
                return np.exp(u)
        u = u + step
        value, slope, curve = new
        if np.abs(step).max() < 1e-12:
            break
    return np.exp(u)


@cache
def _program(d: int, p: int, exact: bool) -> Callable[..., tuple]:
    """log Z(e^u) - tau e^u with gradient and Hessian in u, compiled."""
    log_z = log_normaliser if exact else approximate_log_normaliser

    def objective(u: Float[Array, " p"], tau: Float[Array, " p"]) -> Float[Array, ""]:
        kappa = jnp.exp(u)
        return log_z(kappa, d) - jnp.sum(tau * kappa)

    def everything(u: jax.Array, tau: jax.Array) -> tuple:
        value, slope = jax.value_and_grad(objective)(u, tau)
        return value, slope, jax.hessian(objective)(u, tau)

    return jax.jit(everything)


_log_z = jax.jit(jax.vmap(log_normaliser_of))
_mean = jax.jit(jax.vmap(jax.grad(log_normaliser_of)))
_by_rejection = jax.jit(draws.by_rejection, static_argnames="room")
_by_gibbs = jax.jit(draws.by_gibbs, static_argnames=("count", "sweeps"))


class _Frames(constraints.Constraint):
    """Matrices with orthonormal columns."""

    event_dim = 2

    def __call__(self, x: Float[Array | np.ndarray, "*batch d p"]) -> Bool[Array, "*batch"]:
        gram = jnp.einsum("...ij,...ik->...jk", x, x)
        eye = jnp.broadcast_to(jnp.eye(x.shape[-1]), gram.shape)
        tolerance = 100 * np.sqrt(float(jnp.finfo(x.dtype).eps))
        return jnp.all(jnp.abs(gram - eye) < tolerance, axis=(-2, -1))

    def feasible_like(self, prototype: Float[Array, "*batch d p"]) -> Float[Array, "*batch d p"]:
        """The first coordinate axes."""
        return jnp.broadcast_to(jnp.eye(prototype.shape[-2], prototype.shape[-1]), prototype.shape)


class MatrixLangevin(dist.Distribution):
    r"""X with orthonormal columns, d by p, with density etr(Fᵀ X) / Z(F).

    The density is with respect to the uniform distribution on the Stiefel manifold V_{p,d}; for
    p = d that is all of O(d), reflections included. F = G diag(kappa) Hᵀ: G Hᵀ is the mode, kappa
    are the concentrations. p = 1 is the von Mises-Fisher distribution.

    Parameters
    ----------
    F : array (..., d, p)
        Parameter, 1 <= p <= d; zero for the uniform distribution.
    normalised : bool, optional
        Whether ``log_prob`` subtracts log Z, which is known for p <= 2 and for d = p = 3. In other
        cases it must be given as False, and ``log_prob`` is then tr(Fᵀ X).

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from offcut import MatrixLangevin
    >>> with jax.enable_x64(True):
    ...     frames = MatrixLangevin.from_svd(jnp.eye(3)[:, :2], jnp.array([12.0, 6.0]))
    ...     x = frames.sample(jax.random.key(0), (10_000,))
    ...     print(x.shape, bool(jnp.all(jnp.abs(x.mean(0) - frames.mean) < 0.02)))
    (10000, 3, 2) True
    >>> MatrixLangevin.mle(x).kappa.round()
    array([12.,  6.])
    """

    arg_constraints: ClassVar = {"F": constraints.real_matrix}
    support = _Frames()
    pytree_data_fields = ("F",)
    pytree_aux_fields = ("normalised",)

    def __init__(
        self, F: ArrayLike, *, normalised: bool | None = None, validate_args: bool | None = None
    ) -> None:
        self.F = jnp.asarray(F) * 1.0
        if self.F.ndim < 2 or not 1 <= self.F.shape[-1] <= self.F.shape[-2]:
            raise ModelError(
                f"F must be a matrix (d, p) with 1 <= p <= d, got shape {self.F.shape}"
            )
        if not isinstance(self.F, jax.core.Tracer) and not np.isfinite(np.asarray(self.F)).all():
            raise ModelError("F has entries that are not finite")
        self.normalised = normalised
        super().__init__(
            batch_shape=self.F.shape[:-2],
            event_shape=self.F.shape[-2:],
            validate_args=validate_args,
        )

    @classmethod
    def from_svd(
        cls, G: ArrayLike, kappa: ArrayLike, H: ArrayLike | None = None, **settings: bool | None
    ) -> MatrixLangevin:
        """F = G diag(kappa) Hᵀ, with H the identity where it is left out."""
        G, kappa = jnp.asarray(G) * 1.0, jnp.asarray(kappa) * 1.0
        H = None if H is None else jnp.asarray(H) * 1.0
        if G.ndim < 2 or G.shape[-1:] != kappa.shape[-1:]:
            raise ModelError(
                f"kappa needs an entry for each column of G, got shapes {kappa.shape}, {G.shape}"
            )
        if H is not None and H.shape[-2:] != (kappa.shape[-1],) * 2:
            p = kappa.shape[-1]
            raise ModelError(f"H must be {p} by {p}, as many columns as G has; got {H.shape}")
        if not isinstance(kappa, jax.core.Tracer) and bool(np.any(np.asarray(kappa) < 0)):
            raise ModelError(f"concentrations cannot be negative, got kappa = {kappa}")
        for name, frame in (("G", G), ("H", H)):
            if frame is None or isinstance(frame, jax.core.Tracer):
                continue
            if not bool(np.all(cls.support(frame))):
                raise ModelError(f"the columns of {name} are not orthonormal")
        F = G * kappa[..., None, :]
        return cls(F if H is None else F @ jnp.swapaxes(H, -1, -2), **settings)

    @staticmethod
    def mle(X: ArrayLike) -> MaximumLikelihood:
        """The maximum-likelihood estimate from n frames (n, d, p).

        G and H are the singular vectors of the mean frame, and kappa solves
        d log Z / d kappa = its singular values: exactly where log Z is known, else with the
        asymptotics of Khatri & Mardia (1977); ``method`` of the result says which.
        """
        return maximum_likelihood(X)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] | int = ()) -> jax.Array:
        """Exact independent draws; where next to none are accepted Gibbs sweeps, with a warning.

        (Inside a compiled function there is no warning.)
        """
        if isinstance(sample_shape, int | np.integer):
            raise ModelError(f"sample_shape must be a tuple such as ({sample_shape},)")
        count = int(np.prod(sample_shape, dtype=int))
        if isinstance(self.F, jax.core.Tracer) or isinstance(key, jax.core.Tracer):
            drawn = _traced(key, self.F.reshape(-1, *self.event_shape), count)
        else:
            drawn = jnp.asarray(self._drawn(keys.fast(key), count), self.F.dtype)
        return drawn.reshape(*sample_shape, *self.batch_shape, *self.event_shape)

    @in_float64
    def _drawn(self, key: jax.Array, count: int) -> np.ndarray:
        """(count, batch, d, p), on the host: cutting off the spare rows costs nothing there."""
        flat = np.asarray(self.F, float).reshape(-1, *self.event_shape)
        if count == 0 or len(flat) == 0:
            return np.zeros((count, *flat.shape))
        room = draws.room_for(count)
        each = []
        for index, F in enumerate(flat):
            own_key = key if len(flat) == 1 else jax.random.fold_in(key, index)
            if draws.is_hopeless(np.linalg.svd(F, compute_uv=False), F.shape[0], stacklevel=4):
                drawn = _by_gibbs(own_key, F, count=count, sweeps=draws.GIBBS_SWEEPS)
            else:
                drawn = _by_rejection(own_key, F, np.int32(count), room=room)
            each.append(np.asarray(drawn)[:count])
        return each[0][:, None] if len(each) == 1 else np.stack(each, axis=1)

    @dist.util.validate_sample
    def log_prob(self, value: ArrayLike) -> jax.Array:
        """tr(Fᵀ X) - log Z, or without log Z where ``normalised=False``."""
        inner = jnp.einsum("...ij,...ij->...", self.F, value)
        if self.normalised is False:
            return inner
        return inner - jnp.broadcast_to(self.log_normaliser, inner.shape)

    @property
    def log_normaliser(self) -> jax.Array:
        """log Z(F), where it is known."""
        self._must_be_exact()
        return self._of_normaliser(_log_z).reshape(self.batch_shape)

    @property
    def mean(self) -> jax.Array:
        """E X = G diag(d log Z / d kappa) Hᵀ, where log Z is known."""
        self._must_be_exact()
        return self._of_normaliser(_mean).reshape(self.F.shape)

    def _of_normaliser(self, function: Callable[..., jax.Array]) -> jax.Array:
        """In double precision where F is known, in that of the session while tracing."""
        if isinstance(self.F, jax.core.Tracer):
            return function(self.F.reshape(-1, *self.event_shape))
        with jax.enable_x64(True):
            flat = np.asarray(self.F, float).reshape(-1, *self.event_shape)
            found = np.asarray(function(flat))
        return jnp.asarray(found, self.F.dtype)

    @property
    def variance(self) -> jax.Array:
        """Not offered: a frame's entries depend on each other."""
        raise NotImplementedError("MatrixLangevin has no closed form for the entries' variances")

    def _must_be_exact(self) -> None:
        d, p = self.event_shape
        if not is_exact(d, p):
            raise ModelError(
                f"the normalising constant is known for one or two columns and for 3 by 3, and F "
                f"is {d} by {p}: MatrixLangevin(F, normalised=False) leaves it out of log_prob, "
                "and means come from draws"
            )


@partial(jax.jit, static_argnames="count")
def _traced(
    key: jax.Array, flat: Float[Array, "batch d p"], count: int
) -> Float[Array, "{count} batch d p"]:
    """``sample`` with F unknown at the time of tracing."""

    each = lax.map(
        lambda at: draws.independent(at[0], at[1], count),
        (jax.random.split(key, flat.shape[0]), flat),
    )
    return jnp.moveaxis(each, 0, 1)
