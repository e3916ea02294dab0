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
    from offcut.methods import PseudoMarginal
    from offcut.mixtures.model import TruncatedMixture
    from offcut.models.filtered import selected, truncated
    from offcut.models.recording import Clamped
    from offcut.models.rejection import RejectionModel
    from offcut.numerics.normal import NormalInverseWishart
    from offcut.result.overview import summary
    from offcut.samplers.choice import kernel_for
    from offcut.samplers.conjugate import Conjugate
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
    "summary": "offcut.result.overview",
    "mixing_rate_bound": "offcut.checks.mixing_bound",
    "kernel_for": "offcut.samplers.choice",
    "NUTS": "offcut.kernels.nuts",
    "Conjugate": "offcut.samplers.conjugate",
    "HMC": "offcut.kernels.hmc",
    "RandomWalk": "offcut.kernels.random_walk",
    "PseudoMarginal": "offcut.methods",
    "cytometry": "offcut.cytometry",
    "datasets": "offcut.datasets",
    "estimators": "offcut.estimators",
    "plots": "offcut.plots",
    "regions": "offcut.regions",
    "errors": "offcut.errors",
}
#: What old names are answered with: kernels that are methods now, and what is no longer here.
_GONE = {
    "BirthDeath": "is gone: all rejections are drawn anew in every sweep, which mixes faster; the "
    "local changes are benchmarks/birth_death.py in the repository",
    "Direct": 'is a method now: offcut.sample(model, data, method="direct", '
    "kernel=offcut.NUTS(...)); the kernel may be left out",
    "Exchange": 'is a method now: offcut.sample(model, data, method="exchange", '
    "kernel=offcut.RandomWalk(scale=...)); the kernel may be left out",
}
__all__ = [
    "HMC",
    "NUTS",
    "Clamped",
    "Conjugate",
    "EllipticalSlice",
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
        raise AttributeError(f"offcut.{name} {_GONE[name]}")
    if home is None:
        raise AttributeError(f"module 'offcut' has no attribute {name!r}")
    refuse_fork()  # importing computes already
    module = import_module(home)
    value = getattr(module, name, module)  # plots, regions and others are modules themselves
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
