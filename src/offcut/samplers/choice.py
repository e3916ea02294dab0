"""Which sampler a model gets: the route to its posterior, and the kernel that moves theta on it.

A route says what the rejections are good for: they are held in every sweep ("augment"), or only
judge a step ("exchange", "pseudo_marginal"), or are not needed ("direct"). First the route, then
the kernel: neither changes the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.first_values import with_possible_values
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
    refuse_outside_support,
)
from offcut.models.recording import refuse_vague_zones
from offcut.models.rejection import RejectionModel
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import UnidentifiedError, digest
from offcut.programs.precision import in_float64
from offcut.samplers.algorithm2 import AugmentedSampler, ModelSampler
from offcut.samplers.conjugacy import Match
from offcut.samplers.conjugate import Conjugate, ConjugateSampler, find_conjugate
from offcut.samplers.direct import Direct, DirectSampler
from offcut.samplers.walk import (
    Exchange,
    ExchangeSampler,
    PseudoMarginal,
    PseudoMarginalSampler,
)

#: The route of the kernel; "augment" where there is none.
AUTO = "auto"


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


def prepare(
    model: Model, data: Any, covariates: Any, kernel: Kernel | None, method: str = AUTO
) -> Prepared:
    """The sampler, its arrays, and the observed data by name, of any model."""
    if not isinstance(model, Model):
        raise ModelError(
            "model must come from offcut.truncated, offcut.selected, offcut.RejectionModel or "
            f"another model of this library, got {type(model).__name__}"
        )
    rejection = model.rejection_model()
    if rejection is None:
        if method != AUTO:
            raise SettingsError(
                f"method={method!r} is for models made of a proposal and a filter; how "
                f"{type(model).__name__} is sampled is one of its own arguments, if it has a choice"
            )
        prepared = Prepared(*model.prepare(data, covariates, kernel))
        return prepared._replace(sampler=_compiled_before(model, prepared.sampler))
    arrays, layout, observed = observe(rejection, data, covariates)
    rejection.identify(arrays.covariates, jax.tree.map(lambda a: a[: layout.n], arrays.points))
    sampler = build_sampler(rejection, layout, kernel, arrays.covariates, method)
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


def _augmented(
    model: RejectionModel, layout: Layout, kernel: Kernel, covariates: tuple
) -> ModelSampler:
    """Theta given X and Y: moved on their joint density, or drawn from sums over them."""
    if kernel.draws_exactly:
        return ConjugateSampler(model, layout, kernel, covariates)
    return AugmentedSampler(model, layout, kernel)


def _best_given_rejections(model: RejectionModel, covariates: tuple) -> Kernel:
    found = find_conjugate(model, covariates)
    return Conjugate() if isinstance(found, Match) else NUTS()


class Route(NamedTuple):
    """A way to the posterior.

    sampler : ``(model, layout, kernel, covariates) -> sampler``; refuses a model it does not fit.
    kernel : ``(model, covariates) -> kernel``, where nobody asks for one.
    """

    sampler: Callable[..., ModelSampler]
    kernel: Callable[[RejectionModel, tuple], Kernel]


def _exchange(
    model: RejectionModel, layout: Layout, kernel: Kernel, covariates: tuple
) -> ModelSampler:
    return ExchangeSampler(model, layout, kernel)


def _pseudo_marginal(
    model: RejectionModel, layout: Layout, kernel: Kernel, covariates: tuple
) -> ModelSampler:
    return PseudoMarginalSampler(model, layout, kernel)  # type: ignore[arg-type]


#: By the names that ``method=`` of ``offcut.sample`` and ``route`` of kernels have for them.
ROUTES = {
    "augment": Route(_augmented, _best_given_rejections),
    "direct": Route(DirectSampler, lambda *_: Direct()),
    "exchange": Route(_exchange, lambda *_: Exchange()),
    "pseudo_marginal": Route(_pseudo_marginal, lambda *_: PseudoMarginal()),
}


def build_sampler(
    model: RejectionModel,
    layout: Layout,
    kernel: Kernel | None,
    covariates: tuple,
    method: str = AUTO,
) -> ModelSampler:
    """The sampler of an identified model for a route and a kernel (None: the best that fits), made
    once for each data shape.
    """
    route = _route(method, kernel)
    chosen = ROUTES[route].kernel(model, covariates) if kernel is None else kernel
    return kept_sampler(
        model.programs.identity,
        (chosen, layout),
        lambda: ROUTES[route].sampler(model, layout, chosen, covariates),
    )


def _route(method: str, kernel: Kernel | None) -> str:
    """The route that was asked for, or that of the kernel; refuses two that are not the same."""
    if method not in (AUTO, *ROUTES):
        names = ", ".join(map(repr, (AUTO, *ROUTES)))
        raise SettingsError(f"method must be one of {names}, got {method!r}")
    if kernel is None:
        return "augment" if method == AUTO else method
    if not isinstance(kernel, Kernel) or kernel.route not in ROUTES:
        hint = " (an instance, with parentheses)" if isinstance(kernel, type) else ""
        if isinstance(kernel, str) and kernel in ROUTES:
            hint = f" (or left out, with method={kernel!r})"
        raise SettingsError(f"kernel must be one of {NAMED}{hint}, got {kernel!r}")
    if method not in (AUTO, kernel.route):
        raise SettingsError(
            f"kernel={kernel!r} goes with method={kernel.route!r}, not with method={method!r}: "
            "leave one of the two out"
        )
    return kernel.route
