"""Which sampler a model gets: the route to its posterior, and the kernel that moves theta on it.

A route says what the rejections are good for: they are held in every sweep ("augment", and
"conjugate", where theta given them is drawn exactly), or only judge a step ("exchange",
"pseudo_marginal"), or are not needed ("direct").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.first_values import refuse_outside_support, with_possible_values
from offcut.augmentation.hidden import hide
from offcut.augmentation.rejections import Layout
from offcut.base import Kernel, Model, Prepared, Sampler
from offcut.errors import (
    ModelError,
    SettingsError,
)
from offcut.kernels.nuts import NUTS
from offcut.models.data import (
    Observed,
    as_arrays,
    as_covariates,
    check_exact_updates,
    check_names,
    check_scalars,
    count_rows,
    matched,
    named_arrays,
    pad_rows,
    point_like,
    point_size,
    recorded_like,
)
from offcut.models.recording import refuse_vague_zones
from offcut.models.rejection import RejectionModel
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import UnidentifiedError, digest
from offcut.programs.precision import in_float64
from offcut.samplers.algorithm2 import AugmentedSampler, ModelSampler
from offcut.samplers.conjugacy import Match
from offcut.samplers.conjugate import Conjugate, ConjugateSampler, find_conjugate
from offcut.samplers.direct import DirectSampler
from offcut.samplers.walk import ExchangeSampler, PseudoMarginalSampler


def observe(
    model: RejectionModel, data: Any, covariates: Any
) -> tuple[Observed, Layout, dict[str, np.ndarray]]:
    """Checked, padded arrays; the static sizes; and the data as named arrays for the result."""
    came = as_arrays(data, "data", as_they_came=True)
    n = count_rows(came, "data")
    covariate_trees = as_covariates(covariates, n)
    like = point_like(model, covariate_trees)
    recorded = matched(came, recorded_like(model, like))
    check_scalars(model, like, covariate_trees)
    _check_zones(model, recorded, covariate_trees, n)
    points, hidden = hide(model, recorded, like, covariate_trees, came)
    if hidden is not None:
        points = with_possible_values(model, points, hidden, covariate_trees)
    refuse_outside_support(model, points, hidden, covariate_trees)
    layout = Layout.of(n, point_size(like), covariates is not None, len(model.exact_updates))
    check_exact_updates(model, points)
    named = named_arrays(recorded, "x")
    if covariates is not None:
        beside = named_arrays(jax.tree.map(np.asarray, covariate_trees[0]), "covariate")
        named |= {f"covariate_{k}" if k in named else k: values for k, values in beside.items()}
    check_names(model, named)
    observed = Observed(
        pad_rows(jax.tree.map(jnp.asarray, points), layout.chunk),
        pad_rows(covariate_trees, layout.chunk),
        hidden,
    )
    return observed, layout, named


def _check_zones(model: RejectionModel, recorded: Any, covariates: tuple, n: int) -> None:
    """Zones of censored= say yes or no, of the data and of proposals."""
    if not isinstance(model.censored, tuple):
        return

    def propose(key: jax.Array, *covariate: Any) -> Any:
        key_theta, key_point = jax.random.split(key)
        return model.recorded(model.propose(key_point, model.prior.sample(key_theta), *covariate))

    drawn = jax.vmap(propose)(jax.random.split(jax.random.key(0), n), *covariates)
    for rows in (jax.tree.map(jnp.asarray, recorded), drawn):
        refuse_vague_zones(model.censored, rows, *covariates)


def prepare(model: Model, data: Any, covariates: Any, kernel: Kernel | None) -> Prepared:
    """The sampler, its arrays, and the observed data by name, of any model."""
    if not isinstance(model, Model):
        raise ModelError(
            "model must come from offcut.truncated, offcut.selected, offcut.RejectionModel or "
            f"another model of this library, got {type(model).__name__}"
        )
    rejection = model.rejection_model()
    if rejection is None:
        prepared = Prepared(*model.prepare(data, covariates, kernel))
        return prepared._replace(sampler=_compiled_before(model, prepared.sampler))
    arrays, layout, observed = observe(rejection, data, covariates)
    rejection.identify(arrays.covariates, jax.tree.map(lambda a: a[: layout.n], arrays.points))
    sampler = build_sampler(rejection, layout, kernel, arrays.covariates)
    return Prepared(sampler, arrays, observed)


def _compiled_before(model: Model, sampler: Sampler) -> Sampler:
    """The sampler, or one that is the same and was compiled already."""
    if sampler.identity:
        return sampler
    try:
        identity = digest(model.identity(), sampler)
    except UnidentifiedError:
        return sampler
    return kept_sampler(identity, type(sampler), lambda: sampler)


NAMED = "offcut.NUTS(), HMC(), RandomWalk(), Exchange(), PseudoMarginal(), Conjugate() or Direct()"


class KernelChoice:
    """What ``offcut.kernel_for`` returns: ``kernel`` and ``reason``; printing it prints both."""

    def __init__(self, kernel: Kernel, reason: str) -> None:
        self.kernel, self.reason = kernel, reason

    def __repr__(self) -> str:
        return f"{self.kernel!r}: {self.reason}"


@in_float64
def kernel_for(model: RejectionModel, *, covariates: Any = None) -> KernelChoice:
    """The kernel that ``offcut.sample`` uses for a model if none is asked for, and why.

    Parameters
    ----------
    model : RejectionModel
        Any model with a prior and a base or proposal.
    covariates : pytree with a row for each observation, optional
        As in ``offcut.sample``.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"rate": dist.Gamma(2, 1)},
    ...     base=lambda theta: dist.Exponential(theta["rate"]),
    ...     inside=lambda x: x < 1,
    ... )
    >>> offcut.kernel_for(model)
    Conjugate(): Exponential: rate gamma
    """
    if not isinstance(model, RejectionModel):
        raise ModelError(f"kernel_for is about rejection models, got {type(model).__name__}")
    trees: tuple = ()
    if covariates is not None:
        trees = as_covariates(covariates, count_rows(covariates, "covariates"))
    point_like(model, trees)  # says what is wrong where the model does not run, say without them
    model.identify(trees)
    found = find_conjugate(model, trees)
    if isinstance(found, Match):
        return KernelChoice(Conjugate(), found.description)
    return KernelChoice(NUTS(), f"no conjugate update, because {found.reason}")


def _for_any_covariates(kind: type[ModelSampler]) -> Callable[..., ModelSampler]:
    """A sampler that is the same whatever the covariates are."""
    return lambda model, layout, kernel, covariates: kind(model, layout, kernel)


#: Routes to the posterior, by name: ``(model, layout, kernel, covariates) -> sampler``, which
#: refuses a model that it does not fit.
ROUTES: dict[str, Callable[..., ModelSampler]] = {
    "augment": _for_any_covariates(AugmentedSampler),
    "conjugate": ConjugateSampler,
    "direct": DirectSampler,
    "exchange": _for_any_covariates(ExchangeSampler),
    "pseudo_marginal": _for_any_covariates(PseudoMarginalSampler),
}


def build_sampler(
    model: RejectionModel, layout: Layout, kernel: Kernel | None, covariates: tuple
) -> ModelSampler:
    """The sampler of an identified model for a kernel (None: the best that fits), made once for
    each data shape.
    """
    if kernel is None:
        found = find_conjugate(model, covariates)
        kernel = Conjugate() if isinstance(found, Match) else NUTS()
    if not isinstance(kernel, Kernel) or kernel.route not in ROUTES:
        hint = " (an instance, with parentheses)" if isinstance(kernel, type) else ""
        raise SettingsError(f"kernel must be one of {NAMED}{hint}, got {kernel!r}")
    route = ROUTES[kernel.route]
    return kept_sampler(
        model.programs.identity,
        (kernel, layout),
        lambda: route(model, layout, kernel, covariates),
    )
