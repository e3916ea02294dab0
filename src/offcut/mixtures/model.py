"""``offcut.TruncatedMixture``: clustering what the instrument cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from offcut.errors import DataError, ModelError
from offcut.mixtures.base import NormalInverseWishart
from offcut.mixtures.concentration import Concentration
from offcut.mixtures.hierarchy import Hierarchy
from offcut.mixtures.layout import MixtureData, MixtureLayout
from offcut.mixtures.sampler import MixtureSampler
from offcut.mixtures.sticks import Sticks
from offcut.mixtures.window import Window
from offcut.observations import as_arrays, count_rows

#: Events at which the log density is followed, for R-hat.
PROBES = 12
PRIORS = ("latent", "window")


class TruncatedMixture:
    """A Dirichlet process mixture of normals, seen through a window.

    Parameters
    ----------
    region : Region or callable, optional
        What can be recorded: any of ``offcut.regions``, a function ``(y) -> bool``, or
        ``ByGroup`` for windows that differ by group. None for everything.
    components : int
        Truncation K of the stick-breaking, an upper limit of the number of clusters.
    alpha : float or NumPyro distribution
        Concentration of the Dirichlet process, or a prior on it, e.g. ``dist.Gamma(2, 2)``.
    base : NormalInverseWishart, optional
        Where means and covariances come from; by default scaled to the data.
    log_accept : callable, optional
        ``log_accept(y)`` or ``log_accept(y, group)``: log probability that a point is recorded.
        With a region, of those inside.
    prior : "latent" or "window"
        On which weights the Dirichlet process is: those before the filter, or the shares among
        what passes. "window" has no ghosts (components beyond the window that cost rejections
        and explain nothing) and mixes better; "latent" is the paper's, and the one to take where
        what was lost is the question and components beyond the window are believable.
    hierarchical : bool
        Groups (``covariates=`` of ``offcut.sample``) share components but have weights of their
        own, around common ones: a hierarchical Dirichlet process.
    group_alpha : float or NumPyro distribution
        How close the groups' weights are to the common ones (large: close); with ``hierarchical``.
    split_merge : int
        Split and merge proposals in a sweep; 0 for none.

    Examples
    --------
    >>> import numpy as np, offcut
    >>> x = np.abs(np.random.default_rng(0).normal(0.3, 1.0, (60, 2)))
    >>> model = offcut.TruncatedMixture(offcut.regions.Orthant([1, 1]), components=5)
    >>> model
    TruncatedMixture(Orthant([1, 1], 0), components=5, alpha=1, prior='latent')
    >>> posterior = offcut.sample(model, x, draws=20, warmup=20, chains=2)
    >>> dict(posterior["posterior"]["means"].sizes)
    {'chain': 2, 'draw': 20, 'component': 5, 'channel': 2}
    """

    def __init__(
        self,
        region: Any = None,
        components: int = 50,
        alpha: Any = 1.0,
        base: NormalInverseWishart | None = None,
        *,
        log_accept: Callable | None = None,
        prior: str = "latent",
        hierarchical: bool = False,
        group_alpha: Any = 1.0,
        split_merge: int = 2,
    ) -> None:
        whole = isinstance(components, int | np.integer) and not isinstance(components, bool)
        if not whole or not 1 <= int(components) <= 1000:
            raise ModelError(
                f"components must be a whole number from 1 to 1000, got {components!r}"
            )
        if prior not in PRIORS:
            raise ModelError(f'prior must be "latent" or "window", got {prior!r}')
        if base is not None and not isinstance(base, NormalInverseWishart):
            raise ModelError(
                "base must be an offcut.NormalInverseWishart, or None for one scaled to the data, "
                f"got {type(base).__name__}"
            )
        self.components, self.prior = int(components), prior
        self.window = Window(region, log_accept)
        self.alpha = Concentration(alpha)
        self.group_alpha = Concentration(group_alpha, "group_alpha")
        self.base = NormalInverseWishart() if base is None else base
        self.hierarchical = bool(hierarchical)
        self.split_merge = int(split_merge)
        self.programs: dict[Any, Any] = {}
        self._samplers: dict[Any, MixtureSampler] = {}

    def prepare(
        self, data: Any, covariates: Any, kernel: Any
    ) -> tuple[MixtureSampler, MixtureData, dict[str, np.ndarray]]:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if kernel is not None:
            raise ModelError(
                f"TruncatedMixture has a sweep of its own and takes no kernel, got {kernel!r}"
            )
        x, scalar = as_events(data)
        group, names = as_groups(covariates, len(x))
        self._check_groups(group)
        n, d = x.shape
        self._check_inside(x[:, 0] if scalar else x, group)
        base = self.base.for_data(x)
        layout = MixtureLayout.of(n, d, len(names), self.components)
        key = (layout, scalar)
        if key not in self._samplers:
            self._samplers[key] = MixtureSampler(
                layout, self.window, self._weights(layout), self.prior, self.split_merge, scalar
            )
        shift, scale = x.mean(0), np.sqrt(np.diagonal(base.scale) / max(base.degrees - d - 1, 1.0))
        rows = layout.chunks * layout.chunk
        padded = np.zeros((d, rows))
        padded[:, :n] = ((x - shift) / scale).T
        groups = np.zeros(rows, np.int32)
        groups[:n] = group
        arrays = MixtureData(
            jnp.asarray(padded),
            jnp.asarray(groups),
            jnp.asarray(np.bincount(group, minlength=len(names)), jnp.int32),
            jnp.asarray(shift),
            jnp.asarray(scale),
            base.on_scale(shift, scale),
            jnp.asarray(probes(n), jnp.int32),
        )
        observed = {"x": x[:, 0] if scalar else x}
        if covariates is not None:
            observed["group"] = group
        return self._samplers[key], arrays, observed

    def _weights(self, layout: MixtureLayout) -> Sticks | Hierarchy:
        if self.hierarchical:
            return Hierarchy(self.alpha, self.group_alpha, self.components, layout.groups)
        return Sticks(self.alpha, self.components)

    def _check_groups(self, group: np.ndarray) -> None:
        alone = group.max() == 0
        if alone and self.hierarchical:
            raise DataError(
                "hierarchical=True needs at least two groups: give covariates= with the group of "
                "each observation"
            )
        if alone and self.window.by_group:
            raise DataError(
                "the window differs by group: give covariates= with the group of each observation"
            )
        if not alone and not self.hierarchical and not self.window.by_group:
            raise ModelError(
                f"covariates name {group.max() + 1} groups, but nothing in the model differs by "
                "group; for weights of their own set hierarchical=True, for windows of their own "
                "use offcut.regions.ByGroup, or leave covariates out"
            )

    def _check_inside(self, x: np.ndarray, group: np.ndarray) -> None:
        """Every event must be possible."""
        probability = np.asarray(self.window.probability(jnp.asarray(x), jnp.asarray(group)))
        outside = np.flatnonzero(~(probability > 0))
        if outside.size:
            shown = ", ".join(map(str, outside[:5])) + (", ..." if outside.size > 5 else "")
            raise DataError(
                f"{outside.size:,} of {len(x):,} rows lie outside the window {self.window!r} "
                f"(rows {shown}; the first is {x[outside[0]]}): events that cannot be recorded. "
                "Is the window on the scale of the data? Otherwise remove these rows"
            )
        over = np.flatnonzero(probability > 1 + 1e-8)
        if over.size:
            raise ModelError(
                f"log_accept exceeds 0 at row {over[0]} ({x[over[0]]}): an acceptance probability "
                "cannot exceed 1"
            )

    def __repr__(self) -> str:
        parts = [repr(self.window)] if repr(self.window) else []
        parts += [f"components={self.components}", f"alpha={self.alpha!r}"]
        if repr(self.base) != repr(NormalInverseWishart()):
            parts.append(f"base={self.base!r}")
        parts.append(f"prior={self.prior!r}")
        if self.hierarchical:
            parts += ["hierarchical=True", f"group_alpha={self.group_alpha!r}"]
        return f"TruncatedMixture({', '.join(parts)})"


def as_events(data: Any) -> tuple[np.ndarray, bool]:
    """(n, d) floats, and whether the data are single numbers."""
    values = as_arrays(getattr(data, "values", data) if hasattr(data, "columns") else data, "data")
    if isinstance(values, dict | tuple):
        raise DataError("a mixture takes one array (events, channels), got a dict or tuple")
    count_rows(values, "data")
    if values.ndim > 2:
        raise DataError(f"data must be (events, channels), got shape {values.shape}")
    scalar = values.ndim == 1
    return np.asarray(values, float).reshape(len(values), -1), scalar


def as_groups(covariates: Any, n: int) -> tuple[np.ndarray, list[str]]:
    """Group number of each event, and the groups' names; whole numbers from 0 are kept."""
    if covariates is None:
        return np.zeros(n, np.int32), ["all"]
    group = np.asarray(covariates)
    if group.shape != (n,):
        raise DataError(
            f"covariates must name the group of each of the {n} events, got shape {group.shape}"
        )
    if group.dtype.kind in "iu" and group.min() >= 0:
        return group.astype(np.int32), [str(g) for g in range(int(group.max()) + 1)]
    if group.dtype.kind == "f":
        raise DataError("covariates must be group numbers or names, got real numbers")
    names, codes = np.unique(group.astype(str), return_inverse=True)
    return codes.astype(np.int32), list(names)


def probes(n: int) -> np.ndarray:
    """Events at which the log density is followed: a fixed random choice."""
    return np.sort(np.random.default_rng(n).choice(n, min(n, PROBES), replace=False))
