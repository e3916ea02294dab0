"""What draws say: predictive frames, and caps on the sphere that hold a share of a direction."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from offcut.errors import DataError, SettingsError
from offcut.langevin import draws
from offcut.numerics import keys
from offcut.numerics.types import KeyArray
from offcut.programs.precision import in_float64

#: Columns may miss length 1 by this, and a mean shorter than this has no direction: what is left
#: of a zero after rounding in single precision, with room.
ROUNDING = 1e-5
#: The draw on the boundary of a cap stays in it, whatever the order in which sums are taken.
LAST_DIGITS = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class Cap:
    """The directions within an angle of a centre.

    Attributes
    ----------
    centre : array (d,)
        A unit vector.
    angle : float
        From the centre to the boundary, in radians, 0 to pi; ``degrees`` has it in degrees.
    probability : float
        The share of draws that it was asked to hold.
    column : int
        Which column of the frames it is about.
    """

    centre: Float[np.ndarray, " d"]
    angle: float
    probability: float
    column: int = 0

    @property
    def degrees(self) -> float:
        """The angle from the centre to the boundary in degrees."""
        return float(np.degrees(self.angle))

    def contains(self, vectors: ArrayLike) -> np.ndarray | np.bool_:
        """Which of the unit vectors (..., d) lie in the cap, boundary included."""
        vectors = _of_unit_length(np.asarray(vectors, float), "vectors", axis=-1)
        return angles(vectors, self.centre) <= self.angle + LAST_DIGITS

    def __repr__(self) -> str:
        centre = ", ".join(f"{entry:.3f}" for entry in self.centre)
        return (
            f"Cap(column {self.column}: {self.probability:.4g} within {self.degrees:.1f}° "
            f"of ({centre}))"
        )


@dataclass(frozen=True, eq=False, repr=False)
class JointRegion:
    """The frames whose columns all lie within one angle of the columns of a centre.

    Attributes
    ----------
    centre : array (d, p)
        A frame.
    angle : float
        In radians; ``degrees`` has it in degrees.
    probability : float
        The share of draws that it was asked to hold.
    """

    centre: Float[np.ndarray, "d p"]
    angle: float
    probability: float

    @property
    def degrees(self) -> float:
        """The angle in degrees."""
        return float(np.degrees(self.angle))

    @property
    def caps(self) -> list[Cap]:
        """One for each column; a frame is in the region if each column is in its cap."""
        return [
            Cap(centre, self.angle, self.probability, column)
            for column, centre in enumerate(self.centre.T)
        ]

    def contains(self, frames: ArrayLike) -> np.ndarray | np.bool_:
        """Which of the frames (..., d, p) lie in the region, boundary included."""
        frames = _of_unit_length(np.asarray(frames, float), "frames", axis=-2)
        return _largest_angles(frames, self.centre) <= self.angle + LAST_DIGITS

    def __repr__(self) -> str:
        d, p = self.centre.shape
        return (
            f"JointRegion({self.probability:.4g} of frames ({d}, {p}) with all columns within "
            f"{self.degrees:.1f}° of the centre's)"
        )


def angles(vectors: Float[np.ndarray, "*draws d"], centre: Float[np.ndarray, "*#draws d"]) -> Any:
    """Angles in radians between unit vectors (..., d) and (d,), exact near 0 and near pi.

    2 atan2(|v - c|, |v + c|) (Kahan), as the arc cosine of v·c loses half the digits at its ends.
    """
    apart = np.linalg.norm(vectors - centre, axis=-1)
    together = np.linalg.norm(vectors + centre, axis=-1)
    return 2.0 * np.arctan2(apart, together)


def cap(vectors: ArrayLike, probability: float | int = 0.9, column: int = 0) -> Cap:
    """The smallest cap around the mean direction that holds a share of unit vectors.

    Parameters
    ----------
    vectors : array (m, d)
        Draws of a direction.
    probability : float
        The share, above 0 and up to 1; the cap holds ceil(probability m) of the draws.
    column : int
        To be written into the result.

    Examples
    --------
    >>> import numpy as np
    >>> from offcut.langevin.evaluation import cap
    >>> angles = np.radians([-20.0, -10.0, 0.0, 10.0, 20.0])
    >>> cap(np.stack([np.cos(angles), np.sin(angles)], axis=1), 0.6)
    Cap(column 0: 0.6 within 10.0° of (1.000, 0.000))
    """
    vectors = np.asarray(vectors, float)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise DataError(f"vectors must be (draws, dimension), got shape {vectors.shape}")
    vectors = _of_unit_length(vectors, "vectors", axis=1)
    centre = _mean_direction(vectors, column)
    return Cap(centre, _radius(angles(vectors, centre), probability), float(probability), column)


def caps(frames: ArrayLike, probability: float | int = 0.9) -> list[Cap]:
    """For each column of frames (m, d, p), the smallest cap that holds a share of its draws.

    Each cap holds its share by itself; ``joint_region`` is for all columns at once.

    Examples
    --------
    >>> import numpy as np
    >>> from offcut.langevin.evaluation import caps
    >>> for cap in caps(np.stack([np.eye(3)[:, :2]] * 5)):
    ...     print(cap)
    Cap(column 0: 0.9 within 0.0° of (1.000, 0.000, 0.000))
    Cap(column 1: 0.9 within 0.0° of (0.000, 1.000, 0.000))
    """
    frames = as_draws(frames)
    return [cap(frames[:, :, column], probability, column) for column in range(frames.shape[2])]


def joint_region(frames: ArrayLike, probability: float | int = 0.9) -> JointRegion:
    """One angle within which all columns lie at once in a share of the draws.

    The distance of a frame X from the centre M is the largest angle between a column of X and the
    same column of M. The Frobenius distance would do as well, but is a number without a picture;
    this one says that every column is within so many degrees, which can be drawn as p equal caps
    and compared with those of ``caps`` (it is wider, as it is about all columns together). The
    price is that a column known better than the others gets a wider cap than it needs. M is the
    polar mean: the frame nearest to the average of the draws, U Vᵀ of its singular value
    decomposition U D Vᵀ.

    Parameters
    ----------
    frames : array (m, d, p)
        Draws of frames.
    probability : float
        The share, above 0 and up to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from offcut.langevin.evaluation import joint_region
    >>> turns = [[[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]] for t in (-0.1, 0.0, 0.1)]
    >>> joint_region(np.array(turns), 1.0)
    JointRegion(1 of frames (2, 2) with all columns within 5.7° of the centre's)
    """
    frames = as_draws(frames)
    U, sizes, V = np.linalg.svd(frames.mean(axis=0), full_matrices=False)
    if sizes[-1] <= ROUNDING:
        raise DataError(
            f"the average of the {len(frames):,} frames has singular values {sizes.round(6)}: with "
            "a zero among them no frame is nearest to it, and there is nothing to put a region "
            "around"
        )
    centre = U @ V
    return JointRegion(
        centre, _radius(_largest_angles(frames, centre), probability), float(probability)
    )


def modal_frames(posterior: xr.DataTree) -> Float[np.ndarray, "m d p"]:
    """The mode M = G Hᵀ of the distribution in each draw, (chain * draw, d, p), chain by chain.

    Without H in the posterior it is the identity, and M = G.
    """
    dataset = posterior["posterior"].dataset
    G = draws_of(dataset, "G")
    if G.ndim != 3:
        raise DataError(f"G must be (chain, draw, row, column), got shape {dataset['G'].shape}")
    if "H" not in dataset:
        return G
    return G @ draws_of(dataset, "H").transpose(0, 2, 1)


def draws_of(dataset: xr.Dataset, name: str) -> np.ndarray:
    """Draws of a variable, chains one after the other on the leading axis."""
    if name not in dataset:
        raise DataError(
            f"the posterior has no {name}, only {[str(k) for k in dataset.data_vars]}; is it that "
            "of a matrix Langevin model?"
        )
    values = np.asarray(dataset[name].values, float)
    return values.reshape(-1, *values.shape[2:])


def circle(cap: Cap, points: int = 200) -> Float[np.ndarray, "{points} 3"]:
    """The boundary of a cap on the sphere in R³, (points, 3); the last point is the first."""
    if cap.centre.shape != (3,):
        raise DataError(
            "only caps of directions in three dimensions have a circle for boundary; this one has "
            f"{cap.centre.size} dimensions"
        )
    if operator.index(points) < 4:
        raise SettingsError(f"points must be at least 4, got {points}")
    first, second = tangents(cap.centre)
    turn = np.linspace(0.0, 2.0 * np.pi, points)[:, None]
    around = np.cos(turn) * first + np.sin(turn) * second
    return np.cos(cap.angle) * cap.centre + np.sin(cap.angle) * around


def tangents(
    centre: Float[np.ndarray, 3],
) -> tuple[Float[np.ndarray, 3], Float[np.ndarray, 3]]:
    """Two unit vectors of R³ that make a right-handed frame (first, second, centre)."""
    # The axis farthest from the centre is at least 54 degrees from it: no cancellation.
    axis = np.eye(3)[np.argmin(np.abs(centre))]
    second = np.cross(centre, axis)
    second /= np.linalg.norm(second)
    return np.cross(second, centre), second


def as_draws(frames: ArrayLike, name: str = "frames") -> Float[np.ndarray, "m d p"]:
    """Floats, with columns of length 1."""
    frames = np.asarray(frames, float)
    if frames.ndim != 3 or 0 in frames.shape or frames.shape[2] > frames.shape[1]:
        raise DataError(f"{name} must be (draws, d, p) with p <= d, got shape {frames.shape}")
    return _of_unit_length(frames, name, axis=1)


def _of_unit_length(values: np.ndarray, name: str, axis: int) -> np.ndarray:
    """Lengths set right to double precision, if they are right to single precision."""
    lengths = np.linalg.norm(values, axis=axis, keepdims=True)
    wrong = np.argwhere(~(np.abs(lengths - 1.0) <= ROUNDING))
    if wrong.size:
        raise DataError(
            f"{name} must have length 1, but {len(wrong):,} of {lengths.size:,} do not; the first, "
            f"at {wrong[0, 0]}, has length {lengths[tuple(wrong[0])]:.6g}"
        )
    return values / lengths


def _mean_direction(vectors: Float[np.ndarray, "m d"], column: int) -> Float[np.ndarray, " d"]:
    mean = vectors.mean(axis=0)
    length = np.linalg.norm(mean)
    if length <= ROUNDING:
        raise DataError(
            f"the {len(vectors):,} draws of column {column} average to {length:.1g} of a unit "
            "vector: they cancel, and have no mean direction to put a cap around (a direction and "
            "its opposite in equal shares, or every direction alike?)"
        )
    return mean / length


def _largest_angles(frames: np.ndarray, centre: np.ndarray) -> Any:
    return angles(np.swapaxes(frames, -1, -2), centre.T).max(axis=-1)


def _radius(distances: Float[np.ndarray, " m"], probability: float | int) -> float:
    """The smallest distance with a share of at least ``probability`` within it."""
    if not 0.0 < probability <= 1.0:
        raise SettingsError(f"probability must be above 0 and at most 1, got {probability!r}")
    # 0.55 * 100 is a little more than 55 in floating point, and must not become 56.
    count = int(np.ceil(probability * distances.size * (1.0 - 1e-12)))
    return float(np.sort(distances)[count - 1])


@in_float64
def predict(posterior: xr.DataTree, size: int, seed: int = 0) -> Float[np.ndarray, "m d p"]:
    """``size`` frames (size, d, p), each from a draw of the posterior chosen at random."""
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
    if not whole or size < 1:
        raise SettingsError(f"size must be a whole number of at least 1, got {size!r}")
    dataset = posterior["posterior"].dataset
    kappa, G = draws_of(dataset, "kappa"), draws_of(dataset, "G")
    F = G * kappa[:, None, :]
    if "H" in dataset:
        F = F @ draws_of(dataset, "H").transpose(0, 2, 1)
    draws.is_hopeless(np.median(kappa, axis=0), G.shape[1], stacklevel=4)
    chosen = np.random.default_rng(seed).integers(len(F), size=size)
    padded = np.resize(F[chosen], (draws.room_for(int(size)), *F.shape[1:]))
    return np.asarray(_draw(keys.from_seed(seed), jnp.asarray(padded)))[:size]


@jax.jit
def _draw(key: KeyArray, F: Float[Array, "m d p"]) -> Float[Array, "m d p"]:
    """One frame for each F, each with a key of its own: what is behind the last changes none."""

    def one(at: tuple) -> jax.Array:
        index, F = at
        return draws.independent(jax.random.fold_in(key, index), F, 1)[0]

    return jax.lax.map(one, (jnp.arange(F.shape[0]), F))
