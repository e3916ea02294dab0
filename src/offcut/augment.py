"""``offcut.augment``: Algorithm 1 by itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.algorithm1 import run_algorithm_1
from offcut.augmentation.joint import Observed, pad_rows
from offcut.augmentation.layout import MEMORY_LIMIT, MOST_REJECTED, Layout, empty_rejected
from offcut.errors import MemoryLimitError, SettingsError, StartError
from offcut.keys import as_key
from offcut.models.rejection import RejectionModel
from offcut.observations import as_covariates, point_like, point_size
from offcut.precision import in_float64
from offcut.promises import refuse_broken, shown
from offcut.start import PATIENCE


@in_float64
def augment(
    key: Any, model: RejectionModel, theta: dict[str, Any], n: int, *, covariates: Any = None
) -> tuple[Any, Any]:
    """Algorithm 1: run the rejection sampler to ``n`` acceptances.

    Parameters
    ----------
    key : JAX random key or int
        Source of randomness.
    model : RejectionModel
        Any rejection model.
    theta : dict
        Parameter values, on their constrained scale.
    n : int
        How many acceptances to wait for.
    covariates : pytree with n rows, optional
        Each observation then runs to its own acceptance.

    Returns
    -------
    accepted, rejected
        Pytrees of NumPy arrays: n accepted draws, and all proposals rejected before the last.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     {"loc": dist.Normal(0, 1)}, lambda theta: dist.Normal(theta["loc"], 1), lambda x: x > 0
    ... )
    >>> accepted, rejected = offcut.augment(0, model, {"loc": 0.0}, n=100)
    >>> accepted.shape, bool((rejected <= 0).all())
    ((100,), True)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SettingsError(f"n must be a whole number of at least 1, got {n!r}")
    trees = as_covariates(covariates, int(n))
    like = point_like(model, trees)
    layout = Layout.of(int(n), point_size(like), covariates is not None)
    theta = model.prior.completed(theta)
    model.identify(trees)

    def whole_run(key: Any, theta: Any, data: Any, buffer: Any, limit: Any) -> Any:
        return run_algorithm_1(model, layout, key, theta, data, buffer, limit, keep_accepted=True)

    program = model.compiled(("augment", layout), whole_run)
    data = Observed(None, pad_rows(trees, layout.chunk))
    capacity = layout.capacity(4 * n)
    while True:
        run = program(
            as_key(key),
            theta,
            data,
            empty_rejected(layout, like, capacity),
            jnp.int32(MOST_REJECTED),
        )
        refuse_broken(model, theta, run.worst)
        count = int(run.rejected.count)
        if count <= capacity:
            break
        if int(run.accepted) == 0 and count > PATIENCE:
            raise StartError(
                f"none of {count:,} proposals was accepted at theta={shown(theta)}; is the window "
                "on the scale of the proposals?"
            )
        capacity = layout.capacity(8 * capacity)
        needed = capacity * layout.sections * 8 * max(point_size(like), 1)
        if needed > MEMORY_LIMIT:
            raise MemoryLimitError(
                f"more than {count:,} proposals were rejected before {n} were accepted at "
                f"theta={shown(theta)}, and room for more would take {needed / 2**30:.1f} GiB of "
                f"the {MEMORY_LIMIT / 2**30:.0f} GiB allowed; ask for fewer at a time"
            )
    accepted = jax.tree.map(np.asarray, run.kept)
    rejected = jax.tree.map(lambda a: np.asarray(a[:count]), run.rejected.points)
    return accepted, rejected
