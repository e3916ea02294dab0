"""``offcut.TruncatedMixture``: clustering what the instrument cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import xarray as xr
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from offcut.base import Model, Prepared, Request
from offcut.errors import DataError, ModelError, SettingsError
from offcut.methods import MIXTURE
from offcut.mixtures.data import MixtureData, MixtureLayout, padded, probes
from offcut.mixtures.evaluation import DENSITY_DRAWS, log_density, predict
from offcut.mixtures.groups import as_names, as_numbers, find_groups, fitted_names, look_up
from offcut.mixtures.in_window import WindowSampler
from offcut.mixtures.latent import LatentSampler
from offcut.mixtures.populations import (
    Difference,
    Labels,
    Population,
    compare,
    find_labels,
    tabulate,
)
from offcut.mixtures.sampler import MixtureSampler
from offcut.mixtures.weights import Concentration, Hierarchy, Sticks
from offcut.mixtures.window import Window
from offcut.models.data import HoldsValues, as_events
from offcut.numerics.arrays import as_argument
from offcut.numerics.normal import NormalInverseWishart
from offcut.numerics.rendering import call
from offcut.numerics.text import renamed
from offcut.programs.cache import kept_sampler
from offcut.programs.identity import digest, skeleton, traced
from offcut.regions import Region

WEIGHTS = ("latent", "window")
#: Features of an event have an indicator for each group.
MOST_GROUPS = 1000
#: What a run may leave open without a warning: of the integral of a draw's density, and of
#: the weights.
MASS_ERROR, UNRESOLVED_WEIGHT = 0.05, 0.01


class TruncatedMixture(Model):
    """A Dirichlet process mixture of normals, seen through a window.

    Parameters
    ----------
    region : Region or callable, optional
        What can be recorded: any of ``offcut.regions``, a function ``(y) -> bool``, or
        ``ByGroup`` for windows that differ by group, looked up by the groups' names. None for
        everything.
    components : int
        Truncation K of the stick-breaking, an upper limit of the number of clusters.
    alpha : float or NumPyro distribution
        Concentration of the Dirichlet process, or a prior on it, e.g. ``dist.Gamma(2, 2)``.
    base : NormalInverseWishart, optional
        Where means and covariances come from; by default scaled to the data.
    log_accept : callable, optional
        ``log_accept(y)`` or ``log_accept(y, group)``: log probability that a point is recorded.
        With a region, of those inside. Groups must then be whole numbers.
    weights : "latent" or "window"
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
    reshape : bool
        Exchange moves of components with their rejections, in every sweep: about as much work as
        drawing the rejections, and the remedy where much of a component is cut off.

    Examples
    --------
    >>> import numpy as np, offcut
    >>> x = np.abs(np.random.default_rng(0).normal(0.3, 1.0, (60, 2)))
    >>> model = offcut.TruncatedMixture(offcut.regions.Orthant([1, 1]), components=5)
    >>> model
    TruncatedMixture(Orthant([1, 1], 0), components=5, alpha=1, weights='latent')
    >>> posterior = offcut.sample(model, x, draws=20, warmup=20, chains=2)
    >>> dict(posterior["posterior"]["means"].sizes)
    {'chain': 2, 'draw': 20, 'component': 5, 'channel': 2}
    """

    methods = MIXTURE

    @renamed(prior="weights")
    def __init__(
        self,
        region: Region | Callable | None = None,
        components: int = 50,
        alpha: float | dist.Distribution = 1.0,
        base: NormalInverseWishart | None = None,
        *,
        log_accept: Callable | None = None,
        weights: str = "latent",
        hierarchical: bool = False,
        group_alpha: float | dist.Distribution = 1.0,
        split_merge: int = 2,
        reshape: bool = True,
    ) -> None:
        whole = isinstance(components, int | np.integer) and not isinstance(components, bool)
        if not whole or not 1 <= int(components) <= 1000:
            raise ModelError(
                f"components must be a whole number from 1 to 1000, got {components!r}"
            )
        if weights not in WEIGHTS:
            raise ModelError(f'weights must be "latent" or "window", got {weights!r}')
        if base is not None and not isinstance(base, NormalInverseWishart):
            raise ModelError(
                "base must be an offcut.NormalInverseWishart, or None for one scaled to the data, "
                f"got {type(base).__name__}"
            )
        self.components, self.weights = int(components), weights
        self.window = Window(region, log_accept)
        self.alpha = Concentration(alpha)
        self.group_alpha = Concentration(group_alpha, "group_alpha")
        self.base = NormalInverseWishart() if base is None else base
        self.hierarchical = bool(hierarchical)
        self.split_merge, self.reshape = int(split_merge), bool(reshape)

    def prepare(self, request: Request) -> Prepared:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        covariates = request.covariates
        x, scalar = as_events(request.data)
        group, names = find_groups(covariates, len(x))
        self._check_groups(names, covariates is not None)
        n, d = x.shape
        looked_up = names if self.window.by_group else ()
        layout = MixtureLayout.of(n, d, len(names), self.components, looked_up)
        sampler = self._sampler(layout, scalar)
        self._check_inside(sampler, x[:, 0] if scalar else x, group)
        base = self.base.for_data(x)
        shift, scale = (
            x.mean(0),
            np.sqrt(np.diagonal(np.asarray(base.scale)) / max(base.degrees - d - 1, 1.0)),
        )
        arrays = MixtureData(
            as_argument(padded((x - shift) / scale, layout.rows).T),
            as_argument(padded(group, layout.rows)),
            as_argument(np.bincount(group, minlength=len(names)).astype(np.int32)),
            as_argument(shift),
            as_argument(scale),
            base.on_scale(shift, scale),
            as_argument(probes(n).astype(np.int32)),
        )
        observed = {"x": x[:, 0] if scalar else x}
        if covariates is not None:
            observed["group"] = as_names(covariates, n)
        return Prepared(sampler, arrays, observed)

    def _sampler(self, layout: MixtureLayout, scalar: bool) -> MixtureSampler:
        """The sampler for data of this shape; models that are the same share it, compiled code
        and all.
        """
        kind = WindowSampler if self.weights == "window" else LatentSampler
        point = jax.ShapeDtypeStruct((1,) if scalar else (1, layout.d), np.float64)
        group = jax.ShapeDtypeStruct((1,), np.int32)
        placed = self.window.for_groups(layout.group_names)
        with jax.enable_x64(True):
            window = traced(placed.probability, point, group)
        # The window's classes too: the mass of a box is known otherwise than that of a function.
        weights = (self.alpha, self.hierarchical, self.group_alpha if self.hierarchical else None)
        moves = (self.split_merge, self.reshape)
        identity = digest(kind, skeleton(placed), window, weights, moves)
        return kept_sampler(
            identity,
            (layout, scalar),
            lambda: kind(layout, self.window, self._weights(layout), *moves, scalar),
        )

    def density(
        self,
        posterior: xr.DataTree,
        points: ArrayLike | HoldsValues,
        draws: bool = False,
        truncated: bool = True,
        *,
        group: str | int | None = None,
        most: int | None = DENSITY_DRAWS,
    ) -> Float[np.ndarray, "... m"]:
        """Posterior-mean density at points, or the density of each draw.

        Parameters
        ----------
        posterior : xarray.DataTree
            What ``offcut.sample`` returned.
        points : array (point, channel)
            On the scale of the data.
        draws : bool
            One density for each draw, (chain, draw, point), in place of their mean (point,).
        truncated : bool
            Of what passes the filter (0 outside the window), or of what was there before it.
        group : str or int, optional
            With groups, which one, by the name it had in ``covariates``.
        most : int or None
            Use at most so many draws, evenly spaced; None for all.
        """
        found = log_density(posterior, self.window, points, None, draws, truncated, group, most)
        return np.exp(found)

    def marginal(
        self,
        posterior: xr.DataTree,
        points: ArrayLike | HoldsValues,
        channels: tuple[int, ...],
        draws: bool = False,
        truncated: bool = True,
        *,
        group: str | int | None = None,
        most: int | None = 100,
    ) -> Float[np.ndarray, "... m"]:
        """Density of some channels, the others integrated out; ``points`` is (point, channels).

        Within the window the others are integrated by a lattice of 16 points in each draw, shifted
        at random, and the 24 heaviest components are used.
        """
        found = log_density(posterior, self.window, points, channels, draws, truncated, group, most)
        return np.exp(found)

    def labels(
        self,
        posterior: xr.DataTree,
        X: ArrayLike | HoldsValues | None = None,
        *,
        groups: ArrayLike | None = None,
        loss: str = "vi",
        most: int = 200,
        seed: int = 0,
    ) -> Labels:
        """One partition for all draws, with each event's certainty.

        It minimises the posterior expectation of the variation of information (``loss="vi"``) or
        of Binder's loss (``"binder"``) over partitions drawn in at most ``most`` draws.

        Parameters
        ----------
        posterior : xarray.DataTree
            What ``offcut.sample`` returned.
        X : array (event, channel), optional
            Events to label; by default those that were fitted.
        groups : array (event,)
            Where the fit had groups, the names of those that the events of X belong to.
        """
        observed = posterior["observed_data"].dataset
        if X is None:
            if groups is not None:
                raise SettingsError("groups= are those of X, which is not given")
            X = observed["x"].values
            groups = observed["group"].values if "group" in observed else None
        x, _ = as_events(X)
        group = look_up(groups, fitted_names(posterior), len(x))
        return find_labels(posterior, x, group, loss, most, seed)

    def populations(
        self, labels: Labels, channels: Sequence[str] | None = None
    ) -> list[Population]:
        """A table of the populations: share in the window, mean, covariance, share lost.

        ``channels`` names the coordinates, for gates: ``events.channels``.
        """
        return tabulate(labels, channels)

    def compare(
        self, labels: Labels, first: str | int | None = None, second: str | int | None = None
    ) -> list[Difference]:
        """Which populations differ between two groups, with uncertainty; the most certain first.

        Groups go by their names in ``covariates``; they may be left out where there are two.
        """
        return compare(labels, first, second)

    def predict(
        self,
        posterior: xr.DataTree,
        size: int,
        *,
        truncated: bool = True,
        group: str | int | None = None,
        seed: int = 0,
    ) -> Float[np.ndarray, "size ..."]:
        """Posterior predictive events, (size, channel): each from a draw chosen at random."""
        return predict(posterior, self.window, size, truncated=truncated, group=group, seed=seed)

    def facts(self, prepared: Prepared) -> dict[str, Any]:
        """What else the result should say: the base that was used, and the model."""
        x, _ = as_events(prepared.observed["x"])
        return {"base": repr(self.base.for_data(x)), "mixture": repr(self)}

    def after(self, posterior: xr.DataTree, prepared: Prepared) -> None:
        """How far densities may fail to integrate to one; names of groups for arrays by group."""
        _name_approximation(posterior)
        names, node = fitted_names(posterior), posterior["posterior"]
        if "group" in node.dims:
            numbers = as_numbers(names)
            node.dataset = node.to_dataset().assign_coords(
                group=np.array(names) if numbers is None else numbers.astype(int)
            )

    def _weights(self, layout: MixtureLayout) -> Sticks | Hierarchy:
        if self.hierarchical:
            return Hierarchy(self.alpha, self.group_alpha, self.components, layout.groups)
        return Sticks(self.alpha, self.components)

    def _check_groups(self, names: tuple[str, ...], given: bool) -> None:
        alone = len(names) == 1
        if alone and self.hierarchical:
            raise DataError(
                "hierarchical=True needs at least two groups: give covariates= with the group of "
                "each observation"
            )
        if not given and self.window.by_group:
            raise DataError(
                "the window differs by group: give covariates= with the group of each observation"
            )
        if not alone and not self.hierarchical and not self.window.by_group:
            raise ModelError(
                f"covariates name {len(names):,} groups, but nothing in the model differs by "
                "group; for weights of their own set hierarchical=True, for windows of their own "
                "use offcut.regions.ByGroup, or leave covariates out"
            )
        if len(names) > MOST_GROUPS:
            raise DataError(
                f"covariates name {len(names):,} groups, more than the {MOST_GROUPS:,} that a "
                "mixture can hold apart: is this column an identifier?"
            )

    def _check_inside(
        self, sampler: MixtureSampler, x: Float[np.ndarray, "n ..."], group: Int[np.ndarray, " n"]
    ) -> None:
        """Every event must be possible."""
        probability = sampler.probability_of(x, group)
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

    def identity(self) -> str:
        """What tells models apart, every digit of it; what the window computes, samplers know."""
        weights = (self.weights, self.alpha, self.hierarchical, self.group_alpha)
        moves = (self.components, self.split_merge, self.reshape)
        return digest(type(self), self.base, weights, moves, skeleton(self.window))

    def __repr__(self) -> str:
        region, log_accept = self.window.region, self.window.log_accept
        ours = repr(self.base) == repr(NormalInverseWishart())
        return call(
            "TruncatedMixture",
            *([] if region is None else [region]),
            components=self.components,
            alpha=self.alpha,
            base=None if ours else self.base,
            log_accept=log_accept,
            weights=self.weights,
            hierarchical=True if self.hierarchical else None,
            group_alpha=self.group_alpha if self.hierarchical else None,
        )


def _name_approximation(posterior: xr.DataTree) -> None:
    """Errors of masses in the window, in the result's attrs; doubts where they are not small."""
    stats, attrs = posterior["sample_stats"].dataset, posterior.attrs
    error = float(np.sqrt(np.mean(stats["window_mass_error"].values ** 2)))
    left_out = float(stats["unresolved_weight"].values.mean())
    attrs["window_mass_error"], attrs["unresolved_weight"] = error, left_out
    found = []
    if error > MASS_ERROR:
        found.append(
            f"masses of components in the window are estimated: a draw's density in the window "
            f"integrates to one up to {error:.1%} (root mean square); a box, or fewer components "
            "beyond the window (a tighter base), would be more precise"
        )
    if left_out > UNRESOLVED_WEIGHT:
        found.append(
            f"components with {left_out:.1%} of the weight have so little mass in the window that "
            "it could not be estimated: they are left out of densities there; a tighter base "
            "would not make them"
        )
    if found:
        attrs["approximation"] = "; ".join(found)
