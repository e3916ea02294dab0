"""Which sampler a model gets: the route to its posterior, and the kernel that moves theta on it.

First the route (``offcut.methods``), then the kernel: neither changes the other, and what does not
go together is refused here, for every model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from offcut.augmentation.first_values import with_possible_values
from offcut.augmentation.hidden import FEWEST, hide
from offcut.augmentation.rejections import Layout
from offcut.base import Kernel, Model, Prepared, Request, Sampler
from offcut.errors import ModelError, SettingsError
from offcut.kernels.nuts import NUTS
from offcut.kernels.random_walk import RandomWalk
from offcut.methods import AUTO, Method, MethodSettings, listed
from offcut.models.data import (
    Covariates,
    HostPoints,
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
from offcut.numerics.arrays import as_argument, bucket
from offcut.numerics.keys import from_seed, rolled
from offcut.numerics.types import KeyArray, Point, Points
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import UnidentifiedError, digest
from offcut.programs.precision import in_float64
from offcut.samplers.algorithm2 import AugmentedSampler, ModelSampler
from offcut.samplers.conjugacy import Match
from offcut.samplers.conjugacy.match import find_conjugate
from offcut.samplers.conjugate import Conjugate, ConjugateSampler
from offcut.samplers.direct import DirectSampler
from offcut.samplers.walk import ExchangeSampler, PseudoMarginalSampler


def observe(
    model: RejectionModel, data: object, covariates: object
) -> tuple[Observed, Layout, dict[str, np.ndarray]]:
    """Checked, padded arrays; the static sizes; and the data as named arrays for the result."""
    came = as_arrays(data, "data", as_they_came=True)
    n = count_rows(came, "data")
    covariate_trees = as_covariates(covariates, n)
    like = point_like(model, covariate_trees)
    recorded = matched(came, recorded_like(model, like))
    check_scalars(model, like, covariate_trees)
    rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape), a.dtype), like)
    check_exact_updates(model, rows)
    model.identify(covariate_trees, rows if model.exact_updates else None)
    _check_zones(model, recorded, covariate_trees, n)
    points, hidden = recorded, None
    if model.leaves_open:
        points, hidden = hide(model, recorded, like, covariate_trees, came)
    if hidden is not None:
        points = with_possible_values(model, points, hidden, covariate_trees)
    refuse_outside_support(model, points, hidden, covariate_trees)
    layout = Layout.of(n, point_size(like), covariates is not None, len(model.exact_updates))
    named = named_arrays(recorded, "x")
    if covariates is not None:
        beside = named_arrays(jax.tree.map(np.asarray, covariate_trees[0]), "covariate")
        named |= {f"covariate_{k}" if k in named else k: values for k, values in beside.items()}
    check_names(model, named)
    observed = Observed(
        pad_rows(jax.tree.map(np.asarray, points), layout.rows),
        pad_rows(covariate_trees, layout.rows),
        as_argument(np.int32(n)),
        hidden,
    )
    return observed, layout, named


def _check_zones(
    model: RejectionModel, recorded: HostPoints, covariates: Covariates, n: int
) -> None:
    """Zones of censored= say yes or no, of the data and of proposals."""
    if not isinstance(model.censored, tuple):
        return

    def propose(key: KeyArray, *covariate: Point) -> Point:
        key_theta, key_point = jax.random.split(key)
        return model.recorded(model.propose(key_point, model.prior.sample(key_theta), *covariate))

    zones = model.censored

    def answers(key: KeyArray, recorded: Points, covariates: Covariates) -> list[Points]:
        rows = jax.tree.leaves(recorded)[0].shape[0]
        drawn = jax.vmap(propose)(jax.random.split(rolled(key), rows), *covariates)
        return [jax.vmap(zone)(x, *covariates) for x in (recorded, drawn) for zone in zones]

    program = model.compiled("answers of zones", answers, quick=True)
    padded = pad_rows((recorded, covariates), bucket(n, FEWEST))
    refuse_vague_zones([np.asarray(a) for a in program(from_seed(0), *padded)])


def prepare(
    model: Model,
    data: object,
    covariates: object = None,
    kernel: Kernel | None = None,
    method: str | MethodSettings = AUTO,
) -> Prepared:
    """The sampler, its arrays, and the observed data by name, of any model."""
    if not isinstance(model, Model):
        raise ModelError(
            "model must come from offcut.truncated, offcut.selected, offcut.RejectionModel or "
            f"another model of this library, got {type(model).__name__}"
        )
    request = Request(data, covariates, *chosen(model, method, kernel))
    rejection = model.rejection_model()
    if rejection is None:
        prepared = Prepared(*model.prepare(request))
        return prepared._replace(sampler=_compiled_before(model, prepared.sampler))
    arrays, layout, observed = observe(rejection, data, covariates)
    return Prepared(build_sampler(rejection, layout, request, arrays.covariates), arrays, observed)


def chosen(
    model: Model, method: str | MethodSettings, kernel: Kernel | None
) -> tuple[Method, MethodSettings | None, Kernel | None]:
    """The route that was asked for, its settings, and a kernel that goes with it, if one was."""
    settings = method if isinstance(method, MethodSettings) else None
    found = method_named(model, method if settings is None else settings.method)
    if kernel is None:
        return found, settings, None
    if not isinstance(kernel, Kernel):
        raise SettingsError(_no_kernel(model, found, kernel))
    if kernel.kind in found.kernels:
        return found, settings, kernel.on(found)
    what = f"method={found.name!r}" + (" (which is 'auto' here)" if method == AUTO else "")
    if not found.kernels:
        what = f"{type(model).__name__} with {what} has a sweep of its own and takes no kernel"
    elsewhere = [repr(one.name) for one in model.methods if kernel.kind in one.kernels]
    hint = f"; it goes with method={listed(elsewhere)}" if elsewhere else ""
    takes = f" takes {found.takes} as kernel" if found.kernels else ""
    raise SettingsError(f"{what}{takes}, got {kernel!r}{hint}")


def method_named(model: Model, name: object) -> Method:
    """The route of that name that a model has."""
    known = {one.name: one for one in model.methods}
    plain = str(name).replace("-", "_")
    if plain == AUTO:
        return model.methods[0]
    if isinstance(name, str) and plain in known:
        return known[plain]
    names = ", ".join(map(repr, (AUTO, *known)))
    hint = " (an instance, with parentheses)" if isinstance(name, type) else ""
    if isinstance(name, Kernel):
        hint = f"; a kernel is given as kernel={name!r}"
    raise SettingsError(
        f"method must be one of {names} for {type(model).__name__}{hint}, got {name!r}"
    )


def _no_kernel(model: Model, method: Method, given: object) -> str:
    """What to write in place of something that is no kernel."""
    names = [one.name for one in model.methods]
    if isinstance(given, MethodSettings):
        return f"{given!r} is a method, not a kernel: give method=offcut.{given!r}"
    plain = str(given).lower().replace("-", "_")
    if isinstance(given, str) and plain in (AUTO, *names):
        return f"{given!r} is a method, not a kernel: give method={plain!r}"
    hint = " (an instance, with parentheses)" if isinstance(given, type) else ""
    if not method.kernels:
        return f"{type(model).__name__} has a sweep of its own and takes no kernel, got {given!r}"
    return f"kernel must be one of {method.takes}{hint}, got {given!r}"


def _compiled_before(model: Model, sampler: Sampler) -> Sampler:
    """The sampler, or one that is the same and was compiled already."""
    if sampler.identity:
        return sampler
    try:
        identity = digest(model.identity(), sampler)
    except UnidentifiedError:
        return sampler
    return kept_sampler(identity, type(sampler), lambda: sampler)


class KernelChoice(NamedTuple):
    """What ``offcut.kernel_for`` returns; printing it prints it all."""

    method: str
    kernel: Kernel
    reason: str

    def __repr__(self) -> str:
        return f"method={self.method!r}, kernel={self.kernel!r}: {self.reason}"


@in_float64
def kernel_for(
    model: RejectionModel, *, covariates: object = None, method: str | MethodSettings = AUTO
) -> KernelChoice:
    """The route and the kernel that ``offcut.sample`` uses if no kernel is asked for, and why.

    Parameters
    ----------
    model : RejectionModel
        Any model with a prior and a base or proposal.
    covariates : pytree with a row for each observation, optional
        As in ``offcut.sample``.
    method : str
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
    method='augment', kernel=Conjugate(): Exponential: rate gamma
    """
    if not isinstance(model, RejectionModel):
        raise ModelError(f"kernel_for is about rejection models, got {type(model).__name__}")
    trees: Covariates = ()
    if covariates is not None:
        trees = as_covariates(covariates, count_rows(covariates, "covariates"))
    point_like(model, trees)  # says what is wrong where the model does not run, say without them
    model.identify(trees)
    route, _, _ = chosen(model, method, None)
    kernel, reason = ROUTES[route.name].kernel(model, trees)
    return KernelChoice(route.name, kernel.on(route), reason)


class Route(NamedTuple):
    """How a rejection model is sampled by one of its methods.

    sampler : ``(model, layout, kernel, covariates, settings) -> sampler``; refuses a model that it
        does not fit.
    kernel : ``(model, covariates) -> kernel, reason``, where nobody asks for one.
    """

    sampler: Callable[..., ModelSampler]
    kernel: Callable[[RejectionModel, Covariates], tuple[Kernel, str]]


def _augmented(
    model: RejectionModel,
    layout: Layout,
    kernel: Kernel,
    covariates: Covariates,
    settings: MethodSettings | None,
) -> ModelSampler:
    """Theta given X and Y: moved on their joint density, or drawn from sums over them."""
    if kernel.kind == Conjugate.kind:
        return ConjugateSampler(model, layout, kernel, covariates)
    return AugmentedSampler(model, layout, kernel)


def _best_given_rejections(model: RejectionModel, covariates: Covariates) -> tuple[Kernel, str]:
    found = find_conjugate(model, covariates)
    if isinstance(found, Match):
        return Conjugate(), found.description
    return NUTS(), f"no conjugate update, because {found.reason}"


JUDGED = "a simulation judges each proposal"
#: By the names of ``offcut.methods.REJECTION``.
ROUTES = {
    "augment": Route(_augmented, _best_given_rejections),
    "direct": Route(DirectSampler, lambda *_: (NUTS(), "theta moves on the density itself")),
    "exchange": Route(ExchangeSampler, lambda *_: (RandomWalk(), JUDGED)),
    "pseudo_marginal": Route(PseudoMarginalSampler, lambda *_: (RandomWalk(), JUDGED)),
}


def build_sampler(
    model: RejectionModel, layout: Layout, request: Request, covariates: Covariates
) -> ModelSampler:
    """The sampler of an identified model for a route and a kernel (None: the best that fits), made
    once for each data shape.
    """
    method, settings, kernel = request.method, request.settings, request.kernel
    route = ROUTES[method.name]
    used = route.kernel(model, covariates)[0].on(method) if kernel is None else kernel
    return kept_sampler(
        model.programs.identity,
        (method.name, settings, used, layout),
        lambda: route.sampler(model, layout, used, covariates, settings),
    )
