"""From what the user has (lists, arrays, data frames, dicts) to what compiled code takes.

Everything that can be wrong with the data is found here, before any sampling, and said plainly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped
from numpy.typing import ArrayLike
from numpyro.distributions import constraints

from offcut.errors import DataError, ModelError, OffcutError
from offcut.models.rejection import RejectionModel
from offcut.numerics.keys import from_seed
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray, Point, Points

T = TypeVar("T")

#: () or one pytree with a row for each observation.
Covariates = tuple[Points, ...]
#: Data on the host: one array, or a dict or tuple of such.
HostPoints: TypeAlias = PyTree[Shaped[np.ndarray, "_ ..."]]
#: What has the shapes and dtypes of one point.
PointLike: TypeAlias = PyTree[jax.ShapeDtypeStruct | Array | np.ndarray | np.generic]


class Whole(NamedTuple):
    """Observations known only to lie in a zone: their rows, and the number of the zone.

    A row with zone -1 keeps its value (so that shapes can be fixed where the data are not). Behind
    the first ``count`` stands padding, with a row that there is not and zone -1.
    """

    rows: Int[Array, " m"]
    zone: Int[Array, " m"]
    width: Float[Array, " d"]  # one for each coordinate
    count: Int[Array, ""]  # type: ignore[assignment] # no method of tuple


class Parts(NamedTuple):
    """Observations with hidden coordinates, as flat vectors: which, and between what limits.

    Behind the first ``count`` stands padding, with a row that there is not and nothing free.
    """

    rows: Int[Array, " m"]
    free: Bool[Array, "m d"]
    low: Float[Array, "m d"]
    high: Float[Array, "m d"]
    width: Float[Array, " d"]  # one for each coordinate
    count: Int[Array, ""]  # type: ignore[assignment] # no method of tuple


class Hidden(NamedTuple):
    """All that is hidden; None where there is nothing of a kind."""

    whole: Whole | None
    parts: Parts | None


class Observed(NamedTuple):
    """The data as compiled code sees them: n rows and padding; covariates or ().

    ``hidden`` says which parts of the points are unknown (``offcut.augmentation``); None where all
    is known.
    """

    points: Points
    covariates: Covariates
    n: Int[Array, ""]
    hidden: Hidden | None = None

    @property
    def there(self) -> Bool[Array, " rows"]:
        """Which rows are observations."""
        rows = jax.tree.leaves((self.points, self.covariates))[0].shape[0]
        return jnp.arange(rows, dtype=jnp.int32) < self.n


def pad_rows(tree: Points, rows: int) -> Points:
    """So many rows, the first repeated behind the last; sums ignore them.

    NumPy's arrays stay NumPy's.
    """

    def pad(a: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        missing = rows - a.shape[0]
        package = np if isinstance(a, np.ndarray) else jnp
        return package.concatenate([a, package.broadcast_to(a[:1], (missing, *a.shape[1:]))])

    return jax.tree.map(pad, tree)


def as_covariates(covariates: object, n: int) -> Covariates:
    """() where there are none, else a pytree of arrays with n rows; data frames become dicts."""
    if covariates is None:
        return ()
    if hasattr(covariates, "columns") and hasattr(covariates, "items"):
        covariates = {str(name): column for name, column in covariates.items()}
    tree = as_arrays(covariates, "covariates")
    rows = count_rows(tree, "covariates")
    if rows != n:
        raise DataError(
            f"covariates have {rows} rows for {n} observations: every observation needs its own"
        )
    return (tree,)


def as_arrays(tree: object, what: str, as_they_came: bool = False) -> HostPoints:
    """Dicts and tuples are trees; everything else is turned into one array.

    Floats come out in double precision, or ``as_they_came`` where they had less.
    """
    if isinstance(tree, dict):
        return {k: as_arrays(v, f"{what}[{k!r}]", as_they_came) for k, v in tree.items()}
    if isinstance(tree, tuple):
        parts = [as_arrays(v, f"{what}[{i}]", as_they_came) for i, v in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if tree is None:
        raise DataError(f"{what} is None; give an array with a row for each observation")
    if np.ma.is_masked(tree):
        raise DataError(
            f"{what} has {int(np.ma.count_masked(tree))} masked values; remove these rows: "
            "a value that was not recorded is not an observation"
        )
    try:
        array = np.asarray(tree)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what} cannot be read as an array of numbers ({error}); give one row of the same "
            "length for each observation"
        ) from error
    if array.dtype == object and not any(isinstance(value, str | bytes) for value in array.flat):
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(float)
    if array.dtype.kind not in "fiub":
        example = array.ravel()[0] if array.size else ""
        raise DataError(
            f"{what} must be real numbers, got {array.dtype} (first value {str(example)!r}); "
            "convert such columns to numbers or leave them out"
        )
    if array.dtype.kind == "f":
        if array.dtype.itemsize > 8 or not as_they_came:
            array = array.astype(np.float64)
        bad = ~np.isfinite(array)
        if bad.any():
            kinds = f"{int(np.isnan(array).sum())} NaN and {int(np.isinf(array).sum())} infinite"
            first = tuple(int(i) for i in np.argwhere(bad)[0])
            raise DataError(
                f"{what} has {kinds} values among {array.size} (the first at index {first}); "
                "remove or impute these rows: a value that was not recorded is not an observation"
            )
    return array


def count_rows(tree: Points | HostPoints, what: str) -> int:
    """Length of the first axis, the same for all parts."""
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise DataError(f"{what} is empty: at least one observation is needed")
    for leaf in leaves:
        if leaf.ndim == 0:
            raise DataError(
                f"{what} must have a row for each observation, got the number {leaf}; give a "
                "list or an array (the parts of a dict or tuple are arrays, too)"
            )
    rows = {leaf.shape[0] for leaf in leaves}
    if len(rows) > 1:
        raise DataError(f"the parts of {what} have different numbers of rows: {sorted(rows)}")
    n = rows.pop()
    if n == 0:
        raise DataError(f"{what} is empty: at least one observation is needed")
    return int(n)


@runtime_checkable
class HoldsValues(Protocol):
    """A data frame or ``offcut.cytometry.Events``: numbers in ``values``, a row for each event."""

    @property
    def values(self) -> ArrayLike: ...


def numbers_of(data: object) -> Any:
    """The numbers of a table; anything else as it is."""
    if isinstance(data, HoldsValues) and not isinstance(data, Mapping):
        return data.values
    return data


def as_events(data: object, taker: str = "a mixture") -> tuple[Float[np.ndarray, "n d"], bool]:
    """(n, d) floats, and whether the data are single numbers."""
    values = as_arrays(numbers_of(data), "data")
    if isinstance(values, dict | tuple):
        raise DataError(f"{taker} takes one array (events, channels), got a dict or tuple")
    count_rows(values, "data")
    if values.ndim > 2:
        raise DataError(f"data must be (events, channels), got shape {values.shape}")
    scalar = values.ndim == 1
    return np.asarray(values, float).reshape(len(values), -1), scalar


def point_size(like: PointLike) -> int:
    """Numbers in one point."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(like))


def point_like(model: RejectionModel, covariates: Covariates) -> PointLike:
    """Shapes and dtypes of one proposal."""

    def propose(given: tuple[KeyArray, tuple[Point, ...]]) -> Point:
        key, first = given
        return model.propose(key, model.prior.sample(key), *first)

    given = (from_seed(0), first_row(covariates))
    return _traced(model, "propose (or base)", propose, given, bool(covariates))


def first_row(tree: Points) -> Point:
    """The first of rows on the host."""
    return jax.tree.map(lambda a: np.asarray(a[0]), tree)


def recorded_like(model: RejectionModel, like: PointLike) -> PointLike:
    """Shapes and dtypes of one observation."""
    return jax.eval_shape(model.recorded, like)


def _traced(
    model: RejectionModel,
    name: str,
    function: Callable[[T], object],
    argument: T,
    covariates: bool,
) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes of what a function of the user returns; its errors in the user's terms."""
    try:
        return jax.eval_shape(function, argument)
    except OffcutError:
        raise
    except KeyError as error:
        names = sorted([*model.prior.shapes, *model.prior.deterministic])
        raise ModelError(f"{name} asks for {error}, but theta has {names}") from error
    except (jax.errors.TracerBoolConversionError, jax.errors.TracerArrayConversionError) as error:
        raise ModelError(
            f"{name} cannot be compiled: it decides by the value of a JAX array (if, and, or, not, "
            "0 < x < 1) or hands one to NumPy; use & | ~ with parentheses, jax.numpy.where, and "
            "jax.numpy in place of numpy"
        ) from error
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        hint = (
            "with covariates every function of the model takes the covariate as its last argument"
            if covariates
            else "without covariates= no function of the model gets one"
        )
        hint = f"; {hint}" if isinstance(error, TypeError) else ""
        raise ModelError(
            f"{name} fails for one point: {type(error).__name__}: {said}{hint}"
        ) from error


def matched(points: HostPoints, like: PointLike) -> HostPoints:
    """The data in the shape and dtype of proposals, or an error that shows both."""
    have, want = jax.tree.structure(points), jax.tree.structure(like)
    if have != want:  # type: ignore[operator]
        raise DataError(
            f"data have the structure {_form(have)}, proposals {_form(want)} (* is an array): "
            "give the data in the form that propose returns"
        )

    def match(array: np.ndarray, shape: jax.ShapeDtypeStruct) -> np.ndarray:
        if array.shape[1:] != shape.shape:
            raise DataError(
                f"one observation has shape {array.shape[1:]}, one proposal {shape.shape} "
                f"(data have shape {array.shape}): the first axis counts observations"
            )
        rounded = np.issubdtype(shape.dtype, np.integer) and array.dtype.kind == "f"
        if rounded and not np.array_equal(array, np.round(array)):
            raise DataError("proposals are integers, but the data have fractional values")
        return array.astype(shape.dtype)

    return jax.tree.map(match, points, like)


def check_scalars(model: RejectionModel, like: PointLike, covariates: Covariates) -> None:
    """log_proposal, log_accept and log_reject give scalars."""
    first = first_row(covariates)
    functions = {"log_proposal": model.log_proposal, "log_accept": model.log_accept}
    if model.log_reject is not None:
        functions["log_reject"] = model.log_reject
    for name, function in functions.items():

        def call(
            given: tuple[Point, tuple[Point, ...]], function: Callable[..., object] = function
        ) -> object:
            point, first = given
            return function(model.prior.sample(jax.random.key(0)), point, *first)

        said = "log_accept (or inside)" if name == "log_accept" else name
        result = _traced(model, said, call, (like, first), bool(covariates))
        shape = getattr(result, "shape", None)
        if shape != ():
            raise ModelError(
                f"{said} must return one number for one point, got "
                f"{type(result).__name__ if shape is None else f'shape {shape}'}; sum over the "
                "point's own axes, or use jax.numpy.all in a window (for a base distribution: "
                ".to_event(1))"
            )


def _form(structure: PyTreeDef) -> str:
    return str(structure).removeprefix("PyTreeDef(").removesuffix(")")


def check_exact_updates(model: RejectionModel, points: PyTree[jax.ShapeDtypeStruct]) -> None:
    """Each exact update gives a dict of the parameters it was declared for."""
    for names, function in model.exact_updates.items():

        def call(points: Points, function: Callable[..., object] = function) -> object:
            key = jax.random.key(0)
            return function(key, model.prior.sample(key), points)

        said = f"the exact update of {', '.join(names)}"
        result = _traced(model, said, call, points, False)
        if not isinstance(result, dict) or set(result) != set(names):
            came = sorted(result) if isinstance(result, dict) else type(result).__name__
            raise ModelError(f"{said} must return a dict with {sorted(names)}, got {came}")
        for name, value in result.items():
            if value.shape != model.prior.shapes[name]:
                raise ModelError(
                    f"{said} returned {name} with shape {value.shape}, but the prior has "
                    f"{model.prior.shapes[name]}"
                )


def refuse_outside_support(
    model: RejectionModel, points: HostPoints, hidden: Hidden | None, covariates: Covariates
) -> None:
    """Raise where a known observation is nothing that the base can produce, whatever theta is."""
    source = model.source
    if source is None or source.noise is not None:
        return
    met: list[dist.Distribution] = []

    def look(key: KeyArray, covariate: tuple[Point, ...]) -> None:
        met.append(source.base(model.prior.sample(key), *covariate))

    jax.eval_shape(look, from_seed(0), first_row(covariates))
    base, support = met[0], met[0].support
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):  # copies in a vector
        base = base.base_dist
    if isinstance(base, dist.MixtureGeneral) or support in (None, constraints.dependent):
        return  # it is not known as a whole
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(support)):
        return  # it depends on theta or the covariate
    n = jax.tree.leaves(points)[0].shape[0]
    if support in (constraints.real, constraints.real_vector):
        return  # data are finite
    # On the host: JAX would compile each comparison, for every n.
    on_host = jax.tree.map(np.asarray, support)
    with jax.numpy_rank_promotion("allow"):
        inside = np.asarray(on_host(np.asarray(points))).reshape(n, -1)
    outside = np.array(~inside.all(axis=1))
    for kind in hidden or ():
        if kind is not None:
            outside[kind.rows[: int(kind.count)]] = False
    rows = np.flatnonzero(outside)
    if not rows.size:
        return
    values = np.asarray(points)[rows]
    listed = ", ".join(f"{row} (value {shown(points[row])})" for row in rows[:3])
    hint = "remove these rows if they are errors, or choose a base that can produce them"
    if values.ndim == 1 and rows.size > 1 and np.all(values == values[0]):
        hint = (
            f"all of them are {values[0]:g}: if that was written down for what could not be "
            "measured (non-detects), they are censored; give their zone, for example "
            "censored=lambda y: y < limit with the limit of detection, and let the window include "
            f"it. Otherwise {hint}"
        )
    raise DataError(
        f"{rows.size} of {n} observations are nothing that the base ({type(base).__name__}) can "
        f"produce, whatever its parameters: index {listed}{' and more' if rows.size > 3 else ''}; "
        f"{hint}"
    )


def check_names(model: RejectionModel, observed: dict[str, np.ndarray]) -> None:
    """Names that the result can hold."""
    parameters = (*model.prior.shapes, *model.prior.deterministic)
    for what, names, taken in (
        ("parameter", parameters, ("chain", "draw")),
        ("part of the data", observed, ("observation",)),
    ):
        for name in names:
            if name in taken or "/" in name:
                raise ModelError(
                    f"no {what} may be called {name!r}: the result has an axis of that name, or "
                    "reads / as a path; rename it"
                )


def named_arrays(tree: HostPoints, name: str, inner: bool = False) -> dict[str, np.ndarray]:
    """Leaves with names: dict keys where there are some, else ``name`` with a number."""
    if isinstance(tree, dict):
        before = f"{name}_" if inner else ""
        parts = [named_arrays(value, f"{before}{key}", True) for key, value in tree.items()]
        return {label: leaf for part in parts for label, leaf in part.items()}
    if isinstance(tree, tuple):
        parts = [named_arrays(value, f"{name}_{i}", True) for i, value in enumerate(tree)]
        return {label: leaf for part in parts for label, leaf in part.items()}
    return {name: np.asarray(tree)}
