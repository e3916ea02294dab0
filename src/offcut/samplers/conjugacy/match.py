"""Look for a conjugate family, and say which, or why there is none.

A wrong match would give a wrong posterior, so every doubt is a NoMatch: an unknown class, an
operation that is not plain algebra, a parameter used twice or not at all.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from offcut.models.filtered import Selected, Truncated
from offcut.models.rejection import RejectionModel
from offcut.programs.precision import in_float64
from offcut.samplers.conjugacy import (
    multivariate as find_multivariate,
)
from offcut.samplers.conjugacy import (
    normal,
    probabilities,
    rates,
)
from offcut.samplers.conjugacy.contract import Match, NoMatch, Unmatched
from offcut.samplers.conjugacy.reading import Reading, read, use_of_theta_beside_the_base, verify

_FAMILIES: tuple[Any, ...] = (rates, probabilities, normal, find_multivariate)


@in_float64
def match(model: RejectionModel, covariates: Any = None) -> Match | NoMatch:
    """The exact update of all parameters given X and Y, if prior and base are conjugate.

    Parameters
    ----------
    model : RejectionModel
        Made by ``offcut.truncated`` or ``offcut.selected``.
    covariates : tuple, optional
        () or (pytree with a row for each observation,), as in ``augmentation.joint.Observed``. The
        window may use them, the base may not.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro.distributions as dist, offcut
    >>> from offcut.samplers.conjugacy import match
    >>> model = offcut.truncated(
    ...     prior={"mean": dist.Normal(0, 1), "variance": dist.InverseGamma(3, 2)},
    ...     base=lambda theta: dist.Normal(theta["mean"], jnp.sqrt(theta["variance"])),
    ...     inside=lambda x: x > 0,
    ... )
    >>> match(model).description
    'normal: mean | variance normal, variance | mean inverse gamma'
    """
    if type(model) not in (Truncated, Selected):
        return NoMatch("conjugate updates are for models made by truncated or selected")
    if model.exact_updates:
        return NoMatch("the model has exact_updates of its own")
    if model.prior.has_likelihood:
        return NoMatch("the prior has factors or observed sites")
    covariates = jax.tree.map(np.asarray, () if covariates is None else tuple(covariates))
    try:
        used = use_of_theta_beside_the_base(model, covariates)
        if used is not None:
            return NoMatch(used)
        reading = read(model, covariates)
        found = _find(reading)
        unused = sorted(set(model.prior.shapes) - set(found.sites))
        if unused:
            names = ", ".join(map(repr, unused))
            raise Unmatched(f"{names} is not a parameter of the base by itself")
        verify(reading.elements, reading.trace)
    except jax.errors.ConcretizationTypeError:
        return NoMatch("prior or base chooses its form by the values of parameters")
    except Unmatched as unmatched:
        return NoMatch(str(unmatched))
    return found


def _find(reading: Reading) -> Match:
    for family in _FAMILIES:
        if reading.base.kind in family.KINDS:
            found = family.find(reading)
            if found is not None:
                return found
    raise Unmatched(f"no conjugate update is known for a base of this kind: {reading.base.kind}")
