"""From what the user has (lists, arrays, data frames, dicts) to what compiled code takes.

Everything that can be wrong with the data is found here, before any sampling, and said plainly.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.joint import Observed, pad_rows
from offcut.augmentation.layout import Layout
from offcut.errors import DataError, ModelError
from offcut.models.rejection import RejectionModel


def observe(
    model: RejectionModel, data: Any, covariates: Any
) -> tuple[Observed, Layout, dict[str, np.ndarray]]:
    """Checked, padded arrays; the static sizes; and the data as named arrays for the result."""
    points = _as_arrays(data, "data")
    n = _rows(points, "data")
    covariate_trees: tuple = ()
    if covariates is not None:
        tree = _as_arrays(covariates, "covariates")
        rows = _rows(tree, "covariates")
        if rows != n:
            raise DataError(
                f"covariates have {rows} rows, data have {n}: every observation needs its own"
            )
        covariate_trees = (jax.tree.map(jnp.asarray, tree),)
    like = _point_like(model, covariate_trees)
    points = _matched(points, like)
    _check_scalars(model, like, covariate_trees)
    size = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(like))
    layout = Layout.of(n, size, covariates is not None)
    named = _named(points, "x")
    if covariates is not None:
        named |= _named(jax.tree.map(np.asarray, covariate_trees[0]), "covariate")
    observed = Observed(
        pad_rows(jax.tree.map(jnp.asarray, points), layout.chunk),
        pad_rows(covariate_trees, layout.chunk),
    )
    return observed, layout, named


def _as_arrays(tree: Any, what: str) -> Any:
    """Dicts and tuples are trees; everything else is turned into one array."""
    if isinstance(tree, dict):
        return {key: _as_arrays(value, f"{what}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, tuple):
        parts = [_as_arrays(value, f"{what}[{i}]") for i, value in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    try:
        array = np.asarray(tree)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} cannot be read as an array of numbers: {error}") from error
    if array.dtype == object:
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            pass
    if array.dtype.kind not in "fiub":
        example = array.ravel()[0] if array.size else ""
        raise DataError(
            f"{what} must be numbers, got {array.dtype} (first value {example!r}); convert text "
            "columns to numbers or leave them out"
        )
    if array.dtype.kind == "f":
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


def _rows(tree: Any, what: str) -> int:
    leaves = jax.tree.leaves(tree)
    if not leaves:
        raise DataError(f"{what} is empty: at least one observation is needed")
    for leaf in leaves:
        if leaf.ndim == 0:
            raise DataError(f"{what} must have a row for each observation, got the number {leaf}")
    rows = {leaf.shape[0] for leaf in leaves}
    if len(rows) > 1:
        raise DataError(f"the parts of {what} have different numbers of rows: {sorted(rows)}")
    n = rows.pop()
    if n == 0:
        raise DataError(f"{what} is empty: at least one observation is needed")
    return int(n)


def _point_like(model: RejectionModel, covariates: tuple) -> Any:
    """Shapes and dtypes of one proposal."""
    first = jax.tree.map(lambda a: a[0], covariates)

    def propose(key: jax.Array) -> Any:
        return model.propose(key, model.prior.sample(key), *first)

    try:
        return jax.eval_shape(propose, jax.random.key(0))
    except TypeError as error:
        hint = (
            "with covariates every function of the model takes the covariate as its last argument"
            if covariates
            else "without covariates= no function of the model gets one"
        )
        raise ModelError(f"propose (or base) could not be called: {error}; {hint}") from error
    except KeyError as error:
        raise ModelError(
            f"propose (or base) asks for theta[{error}], but the prior has {sorted(model.prior.shapes)}"
        ) from error


def _matched(points: Any, like: Any) -> Any:
    """The data in the shape and dtype of proposals, or an error that shows both."""
    have, want = jax.tree.structure(points), jax.tree.structure(like)
    if have != want:
        raise DataError(
            f"data have the structure {have}, proposals {want}: give the data in the form that "
            "propose returns"
        )

    def match(array: np.ndarray, shape: jax.ShapeDtypeStruct) -> np.ndarray:
        if array.shape[1:] != shape.shape:
            raise DataError(
                f"one observation has shape {array.shape[1:]}, one proposal {shape.shape} "
                f"(data have shape {array.shape}): the first axis counts observations"
            )
        if np.issubdtype(shape.dtype, np.integer) and array.dtype.kind == "f":
            if not np.array_equal(array, np.round(array)):
                raise DataError("proposals are integers, but the data have fractional values")
        return array.astype(shape.dtype)

    return jax.tree.map(match, points, like)


def _check_scalars(model: RejectionModel, like: Any, covariates: tuple) -> None:
    """log_proposal, log_accept and log_reject give scalars."""
    first = jax.tree.map(lambda a: a[0], covariates)
    functions = {"log_proposal": model.log_proposal, "log_accept": model.log_accept}
    if model.log_reject is not None:
        functions["log_reject"] = model.log_reject
    for name, function in functions.items():

        def call(point: Any, function: Any = function) -> Any:
            return function(model.prior.sample(jax.random.key(0)), point, *first)

        try:
            result = jax.eval_shape(call, like)
        except KeyError as error:
            raise ModelError(
                f"{name} asks for theta[{error}], but the prior has {sorted(model.prior.shapes)}"
            ) from error
        shape = getattr(result, "shape", None)
        if shape != ():
            raise ModelError(
                f"{name} must return one number for one point, got shape {shape}; sum over the "
                "point's own axes (for a base distribution: .to_event(1))"
            )


def _named(tree: Any, name: str) -> dict[str, np.ndarray]:
    """Leaves with names: dict keys where there are some, else ``name`` with a number."""
    if isinstance(tree, dict):
        return {
            inner: leaf for key, value in tree.items() for inner, leaf in _named(value, key).items()
        }
    if isinstance(tree, tuple):
        parts = [_named(value, f"{name}_{i}") for i, value in enumerate(tree)]
        return {inner: leaf for part in parts for inner, leaf in part.items()}
    return {name: np.asarray(tree)}
