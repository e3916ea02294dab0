"""Estimators for scikit-learn: ``offcut[sklearn]`` brings what they need."""

from __future__ import annotations

from offcut.estimators.gp_density import GaussianProcessDensity
from offcut.estimators.mixture import TruncatedGaussianMixture

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "offcut.estimators needs scikit-learn: pip install 'offcut[sklearn]'"
    ) from error


__all__ = ["GaussianProcessDensity", "TruncatedGaussianMixture"]


def __dir__() -> list[str]:
    return sorted(__all__)
