"""Offcut: exact Bayesian inference for data that went through a filter.

Rejection sampling throws its offcuts away; with them in hand an intractable likelihood becomes a
simple one (Rao, Lin & Dunson, Biometrika 2016). Start with ``offcut.truncated`` and
``offcut.sample``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offcut.programs.precision import refuse_fork

if TYPE_CHECKING:
    import offcut.estimators as estimators
    from offcut import cytometry, datasets, errors, plots, regions
    from offcut.augmentation.algorithm1 import augment
    from offcut.checks.mixing_bound import mixing_rate_bound
    from offcut.checks.model_check import check
    from offcut.checks.prior_rates import prior_acceptance
    from offcut.gp.model import GPDensity, GPIntensity
    from offcut.gp.updates import EllipticalSlice, PolyaGamma
    from offcut.kernels.hmc import HMC
    from offcut.kernels.nuts import NUTS
    from offcut.kernels.random_walk import RandomWalk
    from offcut.langevin.distribution import MatrixLangevin
    from offcut.langevin.model import MatrixLangevinModel
    from offcut.mixtures.model import TruncatedMixture
    from offcut.models.filtered import selected, truncated
    from offcut.models.recording import Clamped
    from offcut.models.rejection import RejectionModel
    from offcut.numerics.normal import NormalInverseWishart
    from offcut.result.summary import summary
    from offcut.samplers.choice import kernel_for
    from offcut.samplers.conjugate import Conjugate
    from offcut.samplers.direct import Direct
    from offcut.samplers.walk import Exchange, PseudoMarginal
    from offcut.sampling import sample


__version__ = "0.1.0"
# Name -> module; imported on first use, so that ``import offcut`` stays light.
_HOMES = {
    "RejectionModel": "offcut.models.rejection",
    "truncated": "offcut.models.filtered",
    "selected": "offcut.models.filtered",
    "Clamped": "offcut.models.recording",
    "TruncatedMixture": "offcut.mixtures.model",
    "NormalInverseWishart": "offcut.numerics.normal",
    "MatrixLangevin": "offcut.langevin.distribution",
    "MatrixLangevinModel": "offcut.langevin.model",
    "GPDensity": "offcut.gp.model",
    "GPIntensity": "offcut.gp.model",
    "PolyaGamma": "offcut.gp.updates",
    "EllipticalSlice": "offcut.gp.updates",
    "sample": "offcut.sampling",
    "augment": "offcut.augmentation.algorithm1",
    "check": "offcut.checks.model_check",
    "prior_acceptance": "offcut.checks.prior_rates",
    "summary": "offcut.result.summary",
    "mixing_rate_bound": "offcut.checks.mixing_bound",
    "kernel_for": "offcut.samplers.choice",
    "NUTS": "offcut.kernels.nuts",
    "Conjugate": "offcut.samplers.conjugate",
    "Direct": "offcut.samplers.direct",
    "HMC": "offcut.kernels.hmc",
    "RandomWalk": "offcut.kernels.random_walk",
    "Exchange": "offcut.samplers.walk",
    "PseudoMarginal": "offcut.samplers.walk",
    "cytometry": "offcut.cytometry",
    "datasets": "offcut.datasets",
    "estimators": "offcut.estimators",
    "plots": "offcut.plots",
    "regions": "offcut.regions",
    "errors": "offcut.errors",
}
#: What an old name is answered with.
_GONE = {
    "BirthDeath": "all rejections are drawn anew in every sweep, which mixes faster; the local "
    "changes are benchmarks/birth_death.py in the repository",
}
__all__ = [
    "HMC",
    "NUTS",
    "Clamped",
    "Conjugate",
    "Direct",
    "EllipticalSlice",
    "Exchange",
    "GPDensity",
    "GPIntensity",
    "MatrixLangevin",
    "MatrixLangevinModel",
    "NormalInverseWishart",
    "PolyaGamma",
    "PseudoMarginal",
    "RandomWalk",
    "RejectionModel",
    "TruncatedMixture",
    "augment",
    "check",
    "cytometry",
    "datasets",
    "errors",
    "estimators",
    "kernel_for",
    "mixing_rate_bound",
    "plots",
    "prior_acceptance",
    "regions",
    "sample",
    "selected",
    "summary",
    "truncated",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name in _GONE:
        raise AttributeError(f"offcut.{name} is gone: {_GONE[name]}")
    if home is None:
        raise AttributeError(f"module 'offcut' has no attribute {name!r}")
    refuse_fork()  # importing computes already
    module = import_module(home)
    value = getattr(module, name, module)  # plots, regions and others are modules themselves
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
