"""What arrays are called in signatures.

Annotations are jaxtyping's (``Float[Array, "n d"]``: the type of the numbers, the names of the
axes). They cost nothing in use; the tests check them in every call (``tests/conftest.py``), so
that a shape in a signature is true. The names here are for what is no single array.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree, Shaped

#: JAX's arrays, or NumPy's on the host.
AnyArray = TypeVar("AnyArray", jax.Array, np.ndarray)
#: One random key.
KeyArray = Key[Array, ""]
#: One point: a number, a vector, or a dict or tuple of such.
Point = PyTree[Shaped[Array, "..."]]
#: Points in rows: the same tree, every leaf with a first axis of one length.
Points = PyTree[Shaped[Array, "_ ..."]]
