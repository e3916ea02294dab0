"""Von Mises-Fisher directions: how far a random unit vector of R^m lies from its mean direction.

The cosine t of the angle to the mean direction has density ∝ exp(kappa t) (1-t²)^((m-3)/2). What is
drawn is e = 1 - t, which keeps its digits at concentrations of 1e5 and more:

* m = 1, a sign: t = 1 with probability 1 / (1 + exp(-2 kappa));
* m = 3, in closed form: e = -log(1 - (1-U)(1 - exp(-2 kappa))) / kappa;
* any other m by rejection (Ulrich 1984, Wood 1994): z ~ Beta((m-1)/2, (m-1)/2) becomes
  e = 2 b z / (1 - (1-b) z) with b = (m-1) / (2 kappa + √(4 kappa² + (m-1)²)), and is accepted with
  probability exp(kappa (t - x0) + (m-1) log[(1 - x0 t) / (1 - x0²)]), x0 = (1-b)/(1+b): at least
  66% are. The symmetric beta variable takes two uniforms and no rejection (Ulrich 1984),
  z = ½ [1 + cos(2 pi V) √(1 - U^(2/(m-2)))].

kappa = 0 is the uniform distribution and needs no special treatment.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from offcut.numerics.arrays import materialised
from offcut.numerics.types import KeyArray


def without(columns: Float[Array, "n d r"], vectors: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Vectors less their projections on orthonormal columns, twice."""
    for _ in range(2 if columns.shape[2] else 0):
        inner = jnp.einsum("nij,ni->nj", columns, vectors)
        vectors = vectors - jnp.einsum("nij,nj->ni", columns, inner)
    return vectors


def unit(vectors: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Vectors at length one; those of length zero stay."""
    length = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(length > 0, length, 1.0)


#: A dimension, known here or only to the compiled program.
Whole = int | Int[Array, ""]
#: Of so many entries one may be tried again in each further round.
PENDING = 4
#: So many entries or fewer are not worth being put side by side.
FEW = 16
#: Below this concentration the closed form for m = 3 is the uniform one to rounding.
_FLAT = 1e-9


def deviations(key: KeyArray, m: int, kappa: Float[Array, " n"]) -> Float[Array, " n"]:
    """e = 1 - cos(angle to the mean direction) in R^m, one for each entry of ``kappa``."""
    if m == 1:
        # u < exp(-2k) / (1 + exp(-2k)) for the far side
        far = jax.random.uniform(key, kappa.shape) < jax.nn.sigmoid(-2.0 * kappa)
        return jnp.where(far, 2.0, 0.0)
    if m == 3:
        rest = jax.random.uniform(key, kappa.shape)  # 1 - U is a uniform as well
        flat = kappa < _FLAT
        safe = jnp.where(flat, 1.0, kappa)
        return jnp.where(flat, 2.0 * rest, -jnp.log1p(rest * jnp.expm1(-2.0 * safe)) / safe)
    return _by_rejection(key, m, kappa)


def deviations_of_column(
    key: KeyArray, d: int, p: int, r: Int[Array, ""], kappa: Float[Array, " n"]
) -> Float[Array, " n"]:
    """``deviations`` for column r of p in R^d, where R^(d-r) is left: r is known when it runs."""
    if p == 1:
        return deviations(key, d, kappa)
    if d > p:
        return _by_rejection(key, d - r, kappa)
    in_plane = _by_rejection(key, jnp.maximum(d - r, 2), kappa)
    return jnp.where(r == d - 1, deviations(key, 1, kappa), in_plane)


def uniform_cosines(key: KeyArray, m: int, count: int) -> Float[Array, " {count}"]:
    """One coordinate of ``count`` uniform directions in R^m."""
    if m == 1:
        return jnp.where(jax.random.bernoulli(key, 0.5, (count,)), 1.0, -1.0)
    uniforms = jax.random.uniform(key, (1 if m in (2, 3) else 2, count))
    if m == 3:  # Archimedes
        return 2.0 * uniforms[0] - 1.0
    return jnp.cos(2.0 * np.pi * uniforms[0]) * _radius(m, uniforms[-1])


def _by_rejection(key: KeyArray, m: Whole, kappa: Float[Array, " n"]) -> Float[Array, " n"]:
    """One try for all; then the few that failed are put side by side and tried until they pass.

    Few entries are all tried until the last of them has passed.
    """
    count = kappa.shape[0]
    if count <= FEW:
        return _all_until_passed(key, m, kappa)
    size = count // PENDING
    e, done = materialised(kappa[0], lambda: _try(key, m, kappa))

    def waiting(state: tuple) -> jax.Array:
        return ~jnp.all(state[2])

    def some(state: tuple) -> tuple:
        turn, e, done = state
        rank = jnp.cumsum(~done, dtype=jnp.int32) - 1
        slot = jnp.where(done, size, rank)
        lanes = jnp.arange(count, dtype=jnp.int32)
        chosen = jnp.full(size, count, jnp.int32).at[slot].set(lanes, mode="drop")
        theirs = kappa[jnp.minimum(chosen, count - 1)]

        def again(state: tuple) -> tuple:
            turn, found, passed = state
            new, accepted = _try(jax.random.fold_in(key, turn), m, theirs)
            return turn + 1, jnp.where(passed, found, new), passed | accepted

        empty = chosen == count
        turn, found, _ = lax.while_loop(waiting, again, (turn, jnp.zeros(size), empty))
        return turn, e.at[chosen].set(found, mode="drop"), done.at[chosen].set(True, mode="drop")

    return lax.while_loop(waiting, some, (jnp.int32(0), e, done))[1]


def _all_until_passed(key: KeyArray, m: Whole, kappa: Float[Array, " n"]) -> Float[Array, " n"]:
    def again(state: tuple) -> tuple:
        turn, found, passed = state
        new, accepted = _try(jax.random.fold_in(key, turn), m, kappa)
        return turn + 1, jnp.where(passed, found, new), passed | accepted

    nothing = jnp.int32(0), jnp.zeros_like(kappa), jnp.zeros(kappa.shape, bool)
    return lax.while_loop(lambda state: ~jnp.all(state[2]), again, nothing)[1]


def _try(
    key: KeyArray, m: Whole, kappa: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """A proposal for each entry of ``kappa``, and whether it is accepted."""
    b = (m - 1) / (2.0 * kappa + jnp.sqrt(4.0 * kappa**2 + (m - 1) ** 2))
    below = 2.0 * b / (1.0 + b)  # 1 - x0
    x0 = 1.0 - below
    uniforms = jax.random.uniform(key, (3, *kappa.shape))
    e = _beta_to_deviation(m, uniforms[0], uniforms[1], b)
    log_ratio = kappa * (below - e) + (m - 1) * (jnp.log1p(x0 * e / below) - jnp.log1p(x0))
    return e, ~(jnp.log(uniforms[2]) > log_ratio)  # NaN passes: it must not be tried for ever


def _beta_to_deviation(m: Whole, u: jax.Array, v: jax.Array, b: jax.Array) -> jax.Array:
    z = 0.5 * (1.0 + jnp.cos(2.0 * np.pi * v) * _radius(m, u))
    return 2.0 * b * z / (1.0 - (1.0 - b) * z)


def _radius(m: Whole, u: jax.Array) -> jax.Array | float:
    """Length of the projection of a uniform direction in R^m on a plane."""
    if isinstance(m, int) and m == 2:
        return 1.0
    return jnp.sqrt(-jnp.expm1(2.0 / (m - 2) * jnp.log(u)))  # 2 / 0 is infinite: 1 for m = 2
