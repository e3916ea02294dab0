"""Normal algebra: conjugate priors, Wishart matrices, log densities as inner products.

Normal-inverse-Wishart, where components of a mixture come from: Sigma ~ IW(nu, Psi), mu | Sigma ~
N(m, Sigma / kappa). Given N points with sum s and sum of outer products T it stays one (e.g. Murphy
2007, section 9):

    kappa' = kappa + N,  nu' = nu + N,  m' = (kappa m + s) / kappa',
    Psi' = Psi + T - s sᵀ/N + kappa N/kappa' (s/N - m)(s/N - m)ᵀ,

and the points have the marginal density

    pi^(-Nd/2) (kappa/kappa')^(d/2) |Psi|^(nu/2) / |Psi'|^(nu'/2) Gamma_d(nu'/2) / Gamma_d(nu/2).

Wishart matrices come by Bartlett's decomposition, given the inverse of their scale. With Psi = L Lᵀ
and A upper triangular, A_ii² ~ chi²(nu - (d - 1 - i)), i = 0, 1, ..., d - 1, A_ij ~ N(0, 1) for j >
i,

    Phi = L⁻ᵀ A Aᵀ L⁻¹ ~ Wishart(nu, Psi⁻¹),    Phi⁻¹ = L A⁻ᵀ A⁻¹ Lᵀ ~ InverseWishart(nu, Psi).

(Upper, with the degrees of freedom in reverse, so that L A⁻ᵀ is lower triangular: the Cholesky
factor of Phi⁻¹, without another decomposition.)

By quadratic features a normal log density is one inner product. With P = Sigma⁻¹,

    log N(x; mu, Sigma) = -½ xᵀPx + (P mu)ᵀx - ½ muᵀP mu + ½ log|P| - (d/2) log 2 pi,

linear in phi(x) = (x_i x_j for i <= j, x_i, 1). The same features, summed over points, are the
sufficient statistics. So log densities of many points under many components are one matrix
product, statistics another, and a set of points that moves as one is the sum of their features.

The squares of far points lose all digits of the rest, so features are for data on the sampler's own
scale. Wherever the user chooses the points, ``log_normals`` subtracts each mean first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import multigammaln
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from offcut.errors import ModelError
from offcut.numerics.arrays import as_argument
from offcut.numerics.rendering import written
from offcut.numerics.types import AnyArray, KeyArray

Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Matrix = Float[Array, "d d"]
#: One for each feature of a point.
Features = Float[Array, " features"]


class Wishart(NamedTuple):
    """Phi through two of its square roots."""

    precision_root: Matrix  # Phi = R Rᵀ, R upper triangular
    covariance_root: Matrix  # Phi⁻¹ = R Rᵀ, R lower triangular

    @property
    def precision(self) -> Matrix:
        return _square(self.precision_root)

    @property
    def covariance(self) -> Matrix:
        return _square(self.covariance_root)


def draw_wishart(key: KeyArray, nu: Scalar, Psi: Matrix) -> Wishart:
    """Phi ~ Wishart(nu, Psi⁻¹), density ∝ |Phi|^((nu - d - 1)/2) exp(-tr(Psi Phi) / 2)."""
    key_diagonal, key_above = jax.random.split(key)
    d = Psi.shape[0]
    gammas = jax.random.gamma(key_diagonal, gamma_shapes(nu, d))
    return wishart_from(gammas, jax.random.normal(key_above, (d, d)), Psi)


def gamma_shapes(nu: Scalar, d: int) -> Vector:
    """Shapes of the d gamma variables that ``wishart_from`` needs: halves of chi-squares."""
    return (nu - np.arange(d)[::-1]) / 2


def wishart_from(gammas: Vector, normals: Matrix, Psi: Matrix) -> Wishart:
    """Phi from its random numbers: d gammas and d x d standard normals."""
    A = jnp.triu(normals, 1) + jnp.diag(jnp.sqrt(2 * gammas))
    L = jnp.linalg.cholesky(Psi)
    return Wishart(
        precision_root=solve_triangular(L, A, trans="T", lower=True),
        covariance_root=solve_triangular(A, L.T).T,
    )


def _square(root: Matrix) -> Matrix:
    product = root @ root.T
    return (product + product.T) / 2


#: Squares of coordinates beyond this overflow, and densities there are 0.
FAR = 1e150


def size(d: int) -> int:
    """Number of features of a point with d coordinates."""
    return d * (d + 1) // 2 + d + 1


def features(x: Float[AnyArray, "d m"]) -> Float[AnyArray, "features m"]:
    """phi of points (d, m), one column each: (features, m). Of NumPy's on the host."""
    package = np if isinstance(x, np.ndarray) else jnp
    first, second = np.triu_indices(x.shape[0])
    products: list = [x[i] * x[j] for i, j in zip(first, second, strict=True)]
    return package.stack([*products, *x, package.ones_like(x[0])])


def coefficients(mean: Vector, root: Matrix) -> Features:
    """w with log N(x; mean, root rootᵀ) = w·phi(x); ``root`` is lower triangular."""
    d = mean.shape[0]
    inverse = solve_triangular(root, jnp.eye(d), lower=True)
    P = inverse.T @ inverse
    first, second = np.triu_indices(d)
    quadratic = jnp.where(first == second, -0.5, -1.0) * P[first, second]
    whitened = inverse @ mean
    constant = (
        -0.5 * whitened @ whitened
        - jnp.sum(jnp.log(jnp.diagonal(root)))
        - 0.5 * d * np.log(2 * np.pi)
    )
    return jnp.concatenate([quadratic, P @ mean, constant[None]])


def log_normals(
    x: Float[Array, "d m"], means: Float[Array, "K d"], roots: Float[Array, "K d d"]
) -> Float[Array, "K m"]:
    """log N(x; mean, root rootᵀ) of points (d, m) under components, (K, m): -½ |root⁻¹(x - mean)|².

    What a point gets does not depend on the others. At a coordinate that is infinite, or beyond
    ``FAR``, it is -inf; at one that is NaN, NaN.
    """
    d = x.shape[0]
    near = jnp.all(jnp.abs(x) < FAR, axis=0)
    known = jnp.where(near[None, :], x, 0.0)

    def of_component(component: tuple[Vector, Matrix]) -> Float[Array, " m"]:
        mean, root = component
        whitened = solve_triangular(root, jnp.eye(d), lower=True) @ (known - mean[:, None])
        return -0.5 * jnp.sum(whitened**2, axis=0) - jnp.sum(jnp.log(jnp.diagonal(root)))

    values = jax.lax.map(of_component, (means, roots)) - 0.5 * d * np.log(2 * np.pi)
    elsewhere = jnp.where(jnp.any(jnp.isnan(x), axis=0), jnp.nan, -jnp.inf)
    return jnp.where(near[None, :], values, elsewhere[None, :])


def moments(total: Features, d: int) -> tuple[Scalar, Vector, Matrix]:
    """Count, sum and sum of outer products from a sum of features."""
    first, second = np.triu_indices(d)
    pairs = d * (d + 1) // 2
    upper = jnp.zeros((d, d)).at[first, second].set(total[:pairs])
    outer = upper + jnp.triu(upper, 1).T
    return total[pairs + d], total[pairs : pairs + d], outer


#: A coordinate that does not vary is given this share of its square as its variance.
CONSTANT_SHARE = 1e-3
#: A range of so many units in the last place of the largest value is rounding.
ROUNDING = 16
#: By default a component's expected covariance is this share of the data's: a mixture has several.
#: With it, 4 degrees beyond d and strength 0.3, intervals of what a window cut off were calibrated
#: on simulated mixtures; with the data's own covariance, d + 2 and 1 they lay too far out.
EXPECTED_SHARE = 1 / 3


class Base(NamedTuple):
    """m, kappa, nu, Psi as arrays, on the scale that the sampler works on."""

    mean: Vector
    strength: Scalar
    degrees: Scalar
    scale: Matrix


class Components(NamedTuple):
    """Normal components: means (K, d) and lower triangular roots of covariances (K, d, d)."""

    means: Float[Array, "K d"]
    roots: Float[Array, "K d d"]


def given(base: Base, total: Features) -> Base:
    """The base after points whose features sum to ``total``."""
    N, s, T = moments(total, base.mean.shape[0])
    strength = base.strength + N
    mean = (base.strength * base.mean + s) / strength
    centre = s / jnp.maximum(N, 1.0)
    away = centre - base.mean
    scatter = T - s[:, None] * centre[None, :]
    shrink = base.strength * N / strength
    Psi = base.scale + scatter + shrink * away[:, None] * away[None, :]
    return Base(mean, strength, base.degrees + N, (Psi + Psi.T) / 2)


def draw_all(key: KeyArray, base: Base, totals: Float[Array, "K features"]) -> Components:
    """(mu_k, Sigma_k) given each component's points; ``totals`` is (K, features)."""
    K, d = totals.shape[0], base.mean.shape[0]
    key_gamma, key_normal = jax.random.split(key)
    after = jax.vmap(given, (None, 0))(base, totals)
    # All random numbers of a kind in one call: each call is compiled at some length.
    gammas = jax.random.gamma(key_gamma, jax.vmap(gamma_shapes, (0, None))(after.degrees, d))
    normals = jax.random.normal(key_normal, (K, d + 1, d))

    def one(after: Base, gammas: Vector, normals: Float[Array, "rows d"]) -> Components:
        root = wishart_from(gammas, normals[:d], after.scale).covariance_root
        return Components(after.mean + root @ normals[d] / jnp.sqrt(after.strength), root)

    return jax.vmap(one)(after, gammas, normals)


def log_marginal(base: Base, total: Features) -> Scalar:
    """log marginal density of points whose features sum to ``total``."""
    after = given(base, total)
    d = base.mean.shape[0]
    return (
        -0.5 * (after.degrees - base.degrees) * d * np.log(np.pi)
        + 0.5 * d * (jnp.log(base.strength) - jnp.log(after.strength))
        + 0.5 * base.degrees * _log_determinant(base.scale)
        - 0.5 * after.degrees * _log_determinant(after.scale)
        + multigammaln(0.5 * after.degrees, d)
        - multigammaln(0.5 * base.degrees, d)
    )


def _log_determinant(matrix: Matrix) -> Scalar:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))


@dataclass(frozen=True, eq=False)
class NormalInverseWishart:
    """Where the mixture's components come from: Sigma ~ IW(degrees, scale), mu ~ N(mean, Sigma/k).

    Everything left out is taken from the data: ``mean`` is theirs, ``scale`` makes the expected
    covariance of a component a third of the data's (with the default degrees: ``scale`` is the
    data's covariance). What was used is in the result's attributes, and ``print(model)`` after a
    run shows it.

    Parameters
    ----------
    mean : vector, optional
        m: around it lie the components' means.
    strength : float
        k, in observations. With less, means are spread wider: at 0.01 components beyond the window
        become common, and with them endless rejections.
    degrees : float, optional
        Degrees of freedom, above d - 1; by default d + 4. With fewer, very wide components are
        likely, most of whose mass may lie beyond the window.
    scale : matrix, optional
        Psi; the expected covariance is Psi / (degrees - d - 1).

    Examples
    --------
    >>> from offcut.numerics.normal import NormalInverseWishart
    >>> NormalInverseWishart(strength=0.5)
    NormalInverseWishart(mean=data, strength=0.5, degrees=d + 4, scale=data)
    """

    mean: ArrayLike | None = None
    strength: float = 0.3
    degrees: float | None = None
    scale: ArrayLike | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.strength, int | float | np.number)
        if not number or not 0 < float(self.strength) < np.inf:
            raise ModelError(f"strength must be a positive number, got {self.strength!r}")

    def for_data(self, x: Float[np.ndarray, "n d"]) -> NormalInverseWishart:
        """The same with everything filled in; ``x`` is (n, d)."""
        d = x.shape[1]
        mean = x.mean(0) if self.mean is None else _array(self.mean, "mean", (d,))
        degrees = float(d + 4 if self.degrees is None else self.degrees)
        if not degrees > d - 1:
            raise ModelError(f"degrees must exceed d - 1 = {d - 1}, got {degrees:g}")
        if self.scale is not None:
            scale = _array(self.scale, "scale", (d, d))
        else:
            scale = EXPECTED_SHARE * max(degrees - d - 1, 1.0) * data_covariance(x)
        if not _positive_definite(scale):
            raise ModelError("scale must be a symmetric positive definite matrix")
        return NormalInverseWishart(mean, float(self.strength), degrees, scale)

    def on_scale(self, shift: np.ndarray, scale: np.ndarray) -> Base:
        """As NumPy's arrays, for points (x - shift) / scale."""
        return Base(
            as_argument((np.asarray(self.mean) - shift) / scale),
            as_argument(np.float64(self.strength)),
            as_argument(np.float64(self.degrees)),
            as_argument(np.asarray(self.scale) / np.outer(scale, scale)),
        )

    def __repr__(self) -> str:
        mean, scale = (
            "data" if value is None else written(_shortened(value))
            for value in (self.mean, self.scale)
        )
        degrees = "d + 4" if self.degrees is None else f"{self.degrees:g}"
        return (
            f"NormalInverseWishart(mean={mean}, strength={self.strength:g}, degrees={degrees}, "
            f"scale={scale})"
        )


def _shortened(value: ArrayLike) -> np.ndarray:
    """Seven digits of every number: a fixed number of decimals would hide small units."""
    array = np.asarray(value, float)
    return np.array([float(f"{one:.7g}") for one in array.ravel()]).reshape(array.shape)


def data_covariance(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "d d"]:
    """Covariance of (n, d), made positive definite where n is small or coordinates coincide."""
    d = x.shape[1]
    covariance = np.cov(x, rowvar=False).reshape(d, d) if len(x) > 1 else np.zeros((d, d))
    # Every coordinate by its own scale: what the others are measured in must not matter.
    largest = np.abs(x).max(0)
    constant = np.ptp(x, axis=0) <= ROUNDING * np.finfo(float).eps * largest
    covariance[constant] = covariance[:, constant] = 0.0
    stand_in = CONSTANT_SHARE * np.where(largest > 0, largest, 1.0) ** 2
    return covariance + np.diag(np.where(constant, stand_in, 1e-6 * np.diagonal(covariance)))


def _positive_definite(matrix: Float[np.ndarray, "d d"]) -> bool:
    """Symmetric, and positive definite whatever units its coordinates are in."""
    variances = np.diagonal(matrix)
    if not (variances > 0).all():
        return False
    deviations = np.sqrt(variances)
    correlations = matrix / deviations[:, None] / deviations[None, :]
    symmetric = np.allclose(correlations, correlations.T)
    return bool(symmetric and np.linalg.eigvalsh(correlations).min() > 0)


def _array(value: ArrayLike, name: str, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, float)
    if array.shape != shape or not np.isfinite(array).all():
        raise ModelError(f"{name} must be finite and of shape {shape}, got shape {array.shape}")
    return array
