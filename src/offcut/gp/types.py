"""What arrays are called in signatures here, and the letters of their axes.

d coordinates, n observations, m basis functions, k parameters of the base, h hyperparameters, P any
points, Q nodes of the quadrature, F quadratic features, ``rows`` of the buffer. Points are columns,
in coordinates u, in compiled code (``jax.Array``), and rows, in the units of the data, on the host
(``np.ndarray``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from offcut.models.prior import Theta
from offcut.regions.box import Box

Number = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]
Vector = Float[Array, " d"]
Ends = tuple[Vector, Vector]
Weights = Float[Array, " m"]
Parameters = Float[Array, " k"]
Hyper = Float[Array, " h"]
Position = Float[Array, " r"]  # what a kernel moves
Features = Float[Array, " F"]
Columns = Float[Array, "d P"]
Values = Float[Array, " P"]
Nodes = Float[Array, "d Q"]
AtNodes = Float[Array, " Q"]

HostVector = Float[np.ndarray, " d"]
HostRows = Float[np.ndarray, "n d"]
HostColumns = Float[np.ndarray, "d P"]
HostFeatures = Float[np.ndarray, "m P"]
HostAxis = Float[np.ndarray, " _"]
Table = Float[np.ndarray, "_ _"]
Limits = tuple[HostVector, HostVector]
#: In compiled code, or on the host.
Floats = Array | np.ndarray

# What users give.
#: A box, or its lower and upper corner, of which either may be missing.
BoxLike: TypeAlias = Box | tuple[ArrayLike | None, ArrayLike | None]
#: A fixed value, or a prior.
Positive: TypeAlias = ArrayLike | dist.Distribution
#: From parameters to g0.
Family = Callable[[Theta], dist.Distribution]
