"""Which kernel a model gets when nobody asks for one, and what becomes of it."""

from __future__ import annotations

from typing import Any

from offcut.augmentation.layout import Layout
from offcut.conjugate import Match, NoMatch, match
from offcut.conjugate_sweep import ConjugateSampler
from offcut.direct_sampler import DirectSampler
from offcut.errors import ModelError, SettingsError
from offcut.kernels.conjugate import Conjugate
from offcut.kernels.direct import Direct
from offcut.kernels.nuts import NUTS
from offcut.model_sampler import ModelSampler
from offcut.models.rejection import RejectionModel
from offcut.observations import as_covariates, count_rows, point_like
from offcut.precision import in_float64
from offcut.programs import kept_sampler
from offcut.sweep import AugmentedSampler

NAMED = "offcut.NUTS(), HMC(), RandomWalk(), Exchange(), PseudoMarginal(), Conjugate() or Direct()"


class KernelChoice:
    """What ``offcut.kernel_for`` returns: ``kernel`` and ``reason``; printing it prints both."""

    def __init__(self, kernel: Any, reason: str) -> None:
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


def find_conjugate(model: RejectionModel, covariates: tuple) -> Match | NoMatch:
    """The conjugate update of an identified model, looked for once."""
    return model.programs.kept("conjugate", lambda: match(model, covariates))


def build_sampler(
    model: RejectionModel, layout: Layout, kernel: Any, covariates: tuple
) -> ModelSampler:
    """The sampler of an identified model for a kernel (None: the best that fits), made once for
    each data shape.
    """
    if kernel is None:
        found = find_conjugate(model, covariates)
        kernel = Conjugate() if isinstance(found, Match) else NUTS()
    if isinstance(kernel, type) or not hasattr(kernel, "given_rejections"):
        hint = " (an instance, with parentheses)" if isinstance(kernel, type) else ""
        raise SettingsError(f"kernel must be one of {NAMED}{hint}, got {kernel!r}")

    def make() -> ModelSampler:
        if isinstance(kernel, Conjugate):
            found = find_conjugate(model, covariates)
            if isinstance(found, NoMatch):
                raise SettingsError(
                    f"Conjugate() does not fit this model: {found.reason}. Leave kernel out, and "
                    "NUTS is used"
                )
            return ConjugateSampler(model, layout, kernel, found)
        if isinstance(kernel, Direct):
            return DirectSampler(model, layout, kernel, covariates)
        if kernel.given_rejections:
            return AugmentedSampler(model, layout, kernel)
        return kernel.build(model, layout)

    return kept_sampler(model.programs.identity, (kernel, layout), make)
