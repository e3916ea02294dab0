"""Offcut: exact Bayesian inference for data that went through a filter.

Rejection sampling throws its offcuts away; with them in hand an intractable likelihood becomes a
simple one (Rao, Lin & Dunson, Biometrika 2016). Start with ``offcut.truncated`` and
``offcut.sample``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offcut.forks import refuse_fork

__version__ = "0.1.0"

# Name -> module; imported on first use, so that ``import offcut`` stays light.
_HOMES = {
    "RejectionModel": "offcut.models.rejection",
    "truncated": "offcut.models.truncation",
    "selected": "offcut.models.selection",
    "Clamped": "offcut.models.recording",
    "TruncatedMixture": "offcut.mixtures.model",
    "NormalInverseWishart": "offcut.mixtures.base",
    "MatrixLangevin": "offcut.langevin.distribution",
    "MatrixLangevinModel": "offcut.langevin.model",
    "GPDensity": "offcut.gp.density",
    "GPIntensity": "offcut.gp.intensity",
    "PolyaGamma": "offcut.gp.updates",
    "EllipticalSlice": "offcut.gp.updates",
    "BirthDeath": "offcut.gp.birth_death",
    "sample": "offcut.sampling",
    "augment": "offcut.augment",
    "check": "offcut.check",
    "prior_acceptance": "offcut.prior_acceptance",
    "summary": "offcut.result.summary",
    "mixing_rate_bound": "offcut.mixing",
    "kernel_for": "offcut.choice",
    "NUTS": "offcut.kernels.nuts",
    "Conjugate": "offcut.kernels.conjugate",
    "Direct": "offcut.kernels.direct",
    "HMC": "offcut.kernels.hmc",
    "RandomWalk": "offcut.kernels.random_walk",
    "Exchange": "offcut.kernels.exchange",
    "PseudoMarginal": "offcut.kernels.pseudo_marginal",
    "cytometry": "offcut.cytometry",
    "datasets": "offcut.datasets",
    "estimators": "offcut.estimators",
    "plots": "offcut.plots",
    "regions": "offcut.regions",
    "errors": "offcut.errors",
}

__all__ = [
    "HMC",
    "NUTS",
    "BirthDeath",
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

if TYPE_CHECKING:
    import offcut.estimators as estimators
    from offcut import cytometry, datasets, errors, plots, regions
    from offcut.augment import augment
    from offcut.check import check
    from offcut.choice import kernel_for
    from offcut.gp.birth_death import BirthDeath
    from offcut.gp.density import GPDensity
    from offcut.gp.intensity import GPIntensity
    from offcut.gp.updates import EllipticalSlice, PolyaGamma
    from offcut.kernels.conjugate import Conjugate
    from offcut.kernels.direct import Direct
    from offcut.kernels.exchange import Exchange
    from offcut.kernels.hmc import HMC
    from offcut.kernels.nuts import NUTS
    from offcut.kernels.pseudo_marginal import PseudoMarginal
    from offcut.kernels.random_walk import RandomWalk
    from offcut.langevin.distribution import MatrixLangevin
    from offcut.langevin.model import MatrixLangevinModel
    from offcut.mixing import mixing_rate_bound
    from offcut.mixtures.base import NormalInverseWishart
    from offcut.mixtures.model import TruncatedMixture
    from offcut.models.recording import Clamped
    from offcut.models.rejection import RejectionModel
    from offcut.models.selection import selected
    from offcut.models.truncation import truncated
    from offcut.prior_acceptance import prior_acceptance
    from offcut.result.summary import summary
    from offcut.sampling import sample


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'offcut' has no attribute {name!r}")
    refuse_fork()  # importing computes already
    module = import_module(home)
    value = getattr(module, name, module)  # plots, regions and others are modules themselves
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(__all__) | set(globals()))
