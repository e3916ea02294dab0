r"""Ways to move f given all proposals: settings, and elliptical slice sampling.

Given X and Y the posterior of f is that of a classification with logistic link, accepted against
rejected points. Pólya-Gamma variables make it normal; elliptical slice sampling (Murray, Adams &
MacKay 2010) needs no tuning; HMC and NUTS follow the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from offcut.base import Kernel
from offcut.gp import types as t
from offcut.numerics.types import KeyArray

Function = TypeVar("Function")


@dataclass(frozen=True)
class PolyaGamma(Kernel):
    """Gibbs steps: Pólya-Gamma variables given f, then f given them, an exact normal draw."""

    kind: ClassVar[str] = "function"


@dataclass(frozen=True)
class EllipticalSlice(Kernel):
    """Elliptical slice sampling of f.

    Parameters
    ----------
    steps : int
        Transitions in each sweep.
    """

    kind: ClassVar[str] = "function"
    steps: int = 1


def elliptical_slice(
    key: KeyArray, f: Function, prior_draw: Function, log_likelihood: Callable[[Function], t.Number]
) -> Function:
    """One transition of ``f`` (any pytree, linear in what the prior is normal in).

    On f' = f cos(angle) + prior_draw sin(angle), the angle being shrunk towards 0 until the
    likelihood is high enough.
    """
    key_level, key_angle = jax.random.split(key)
    level = log_likelihood(f) + jnp.log(jax.random.uniform(key_level))
    first = jax.random.uniform(key_angle, minval=0.0, maxval=2 * np.pi)

    def at(angle: t.Number) -> Function:
        return jax.tree.map(lambda a, b: a * jnp.cos(angle) + b * jnp.sin(angle), f, prior_draw)

    def low(carry: tuple) -> jax.Array:
        shrinks, angle, *_ = carry
        # After 60 halvings the angle is zero to rounding, and f stays where it is.
        return (log_likelihood(at(angle)) <= level) & (shrinks < 400)

    def shrink(carry: tuple) -> tuple:
        shrinks, angle, least, most = carry
        least, most = jnp.where(angle < 0, angle, least), jnp.where(angle < 0, most, angle)
        own = jax.random.fold_in(key_angle, shrinks + 1)
        return shrinks + 1, jax.random.uniform(own, minval=least, maxval=most), least, most

    start = (jnp.int32(0), first, first - 2 * np.pi, first)
    shrinks, angle, *_ = lax.while_loop(low, shrink, start)
    return at(jnp.where(shrinks < 400, angle, 0.0))
