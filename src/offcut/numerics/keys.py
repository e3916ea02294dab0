"""Random keys: JAX's own Threefry-2x32 stream, written so that XLA compiles it well on a CPU.

JAX lowers Threefry on CPUs to a rolled loop that XLA neither fuses nor vectorises. For many numbers
at once the same hash unrolled gives the same bits (tested against ``jax.random.key(seed)``) in less
time: a sweep with 1,000 observations takes three quarters of what it takes with JAX's own. For
single keys it is the other way round: unrolled, a hash is a hundred instructions, which XLA copies
into everything that uses them, half of the whole program; the loop is as fast and compiled sooner.
Algorithm: Salmon, Moraes, Dror & Shaw, *Parallel random numbers: as easy as 1, 2, 3* (SC 2011),
Threefry-2x32 with 20 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Shaped, UInt32

from offcut.numerics.arrays import as_argument
from offcut.numerics.types import KeyArray

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
#: From so many numbers on the hash is unrolled.
_MANY = 32
#: A key's two words.
Words = UInt32[Array, "2"]
R = TypeVar("R")
#: Words of 32 bits.
W = TypeVar("W", jax.Array, np.ndarray)
_WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@partial(jax.jit, inline=True)
def _threefry(
    key: Words, high: UInt32[Array, "*shape"], low: UInt32[Array, "*shape"]
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Hash the counter (high, low) under a two-word key."""
    return rounds(key, high, low)


def rounds(key: W, high: W, low: W) -> tuple[W, W]:
    """Five groups of four rounds, of JAX's arrays or of NumPy's."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    a, b = high + schedule[0], low + schedule[1]
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn)))
        a = a + schedule[(group + 1) % 3]
        b = b + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return a, b


def _counters(shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    if math.prod(shape) >= 2**32:
        raise ValueError(f"cannot draw {math.prod(shape)} random numbers from one key")
    low = lax.iota(np.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(low), low


def _native(key: Words) -> KeyArray:
    return jax.random.wrap_key_data(key, impl="threefry2x32")


def _seed(seed: Shaped[Array, ""]) -> Words:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(key: Words, shape: tuple[int, ...]) -> UInt32[Array, "*split 2"]:
    return jax.random.key_data(jax.random.split(_native(key), shape))


def _fold_in(key: Words, data: Shaped[Array, ""] | int) -> Words:
    return jax.random.key_data(jax.random.fold_in(_native(key), data))


def _random_bits(key: Words, width: int, shape: tuple[int, ...]) -> Shaped[Array, "*bits"]:
    """Bits, with a wall behind them: XLA would fuse the hash into what follows, and slow both.

    A conditional is such a wall, whose other branch is never taken; XLA does not see that.
    """
    if math.prod(shape) < _MANY:
        return jax.random.bits(_native(key), shape, _WIDTHS[width])
    return lax.cond(
        (key[0] | np.uint32(1)) != 0,
        lambda: _hashed_bits(key, width, shape),
        lambda: jnp.zeros(shape, _WIDTHS[width]),
    )


def _hashed_bits(key: Words, width: int, shape: tuple[int, ...]) -> Shaped[Array, "*bits"]:
    high, low = _threefry(key, *_counters(shape))
    if width == 64:
        return (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    return (high ^ low).astype(_WIDTHS[width])


_IMPLEMENTATION = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="offcut_threefry2x32",
    tag="off",
)


# The same on the host: outside of a compiled program JAX would compile each operation by itself.


def from_seed(seed: int) -> KeyArray:
    """A key from an integer seed of at most 64 bits."""
    low, high = np.array([seed], np.int64).view(np.uint32)
    return _wrapped(np.array([high, low]))


def fold_in(key: KeyArray, number: int) -> KeyArray:
    """``jax.random.fold_in`` on the host, for one of our keys."""
    hashed = _hashed(_words(key), np.zeros(1, np.uint32), np.array([number]).astype(np.uint32))
    return _wrapped(np.concatenate(hashed))


def split(key: KeyArray, count: int = 2) -> list[KeyArray]:
    """``jax.random.split`` on the host, for one of our keys."""
    counter = np.arange(count, dtype=np.uint32)
    words = np.stack(_hashed(_words(key), np.zeros_like(counter), counter), axis=-1)
    return [_wrapped(pair) for pair in words]


def _words(key: KeyArray) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def _wrapped(words: np.ndarray) -> KeyArray:
    return jax.random.wrap_key_data(as_argument(words), impl=_IMPLEMENTATION)


def _hashed(key: np.ndarray, high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore"):
        return rounds(key, high, low)


def as_key(key: object) -> KeyArray:
    """Accept an integer seed, a new-style key or an old-style uint32 pair."""
    if isinstance(key, int | np.integer):
        return from_seed(int(key))
    raw = jnp.asarray(key)
    if jnp.issubdtype(raw.dtype, jax.dtypes.prng_key):
        return raw
    if raw.shape == (2,) and raw.dtype == np.uint32:
        return jax.random.wrap_key_data(raw, impl=_IMPLEMENTATION)
    raise TypeError(
        f"key must be an integer seed or a JAX random key, got {type(key).__name__}; "
        "make one with jax.random.key(0)"
    )


def rolled(key: KeyArray) -> KeyArray:
    """The key as one of JAX's, which gives the same bits: for programs that run once.

    There the compiler's time counts, not that of the program.
    """
    return _native(jax.random.key_data(key))


def fast(key: object) -> KeyArray:
    """A key or seed as one of ours, which gives the same bits; other generators stay."""
    key = as_key(key)
    if jax.random.key_impl(key) == "threefry2x32":
        return jax.random.wrap_key_data(jax.random.key_data(key), impl=_IMPLEMENTATION)
    return key


def with_native_fallback(draw: Callable[..., R]) -> Callable[..., R]:
    """``draw(key, ...)``, called with JAX's own key type where it insists on that.

    A few of JAX's samplers (Poisson among them) refuse any other implementation, although the
    bits are the same. The refusal comes while tracing, so nothing is lost by trying.
    """

    @wraps(draw)
    def call(key: KeyArray, *arguments: object) -> R:
        try:
            return draw(key, *arguments)
        except NotImplementedError:
            return draw(rolled(key), *arguments)

    return call
