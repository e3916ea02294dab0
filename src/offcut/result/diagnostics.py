"""Numbers about a run: the table of parameters, effective sample sizes, R-hat."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Real

from offcut.numerics.ess import effective_size

Table = dict[str, dict[str, float]]
MOST_PARAMETERS = 1000
#: In fewer draws a chain may stand still by chance.
FEWEST_DRAWS = 10


def r_hat(series: Real[np.ndarray, "chain draw"]) -> float:
    """Rank-normalised split R-hat of (chain, draw); 1 where it is constant, inf where stuck.

    A single chain is cut into two first, so that its quarters are compared.
    """
    from arviz_stats.base import array_stats

    if np.all(series == series.flat[0]):
        return 1.0
    if series.shape[0] == 1:
        half = series.shape[1] // 2
        series = series[:, : 2 * half].reshape(2, half)
    if series.shape[1] < 4:
        return float("nan")
    if np.all(series == series[:, :1]):
        return float("inf")  # every chain stands still, and not at the same place
    # A part that stands still, or a series of two values once folded, has no variance to divide by.
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(array_stats.rhat(series.astype(float), chain_axis=0, draw_axis=1))


def parameter_table(posterior: xr.DataTree) -> Table:
    """A row for each parameter; arrays have one for each entry.

    What never moved in some chain is worth one draw, R-hat inf; what is fixed has neither (NaN).
    """
    table: Table = {}
    stuck = standing_still(posterior)
    for name, variable in _judged(posterior):
        values = variable.values.astype(float)
        missing = np.asarray(variable.attrs.get("missing_information", np.nan), float)
        missing = np.broadcast_to(missing.reshape(-1), (max(values[0, 0].size, 1),))
        for place, index in enumerate(np.ndindex(values.shape[2:])):
            series = values[(slice(None), slice(None), *index)]
            own = label(name, index)
            ess, agreement = effective_size(series), r_hat(series)
            if own in stuck:
                ess, agreement = 1.0, float("inf")
            elif _is_fixed(variable, place, series):
                ess = agreement = float("nan")  # there is nothing to estimate
            table[own] = {
                "mean": float(series.mean()),
                "sd": float(series.std(ddof=1)) if series.size > 1 else 0.0,
                "5%": float(np.quantile(series, 0.05)),
                "95%": float(np.quantile(series, 0.95)),
                "mcse": float(series.std() / np.sqrt(ess)),
                "ess": ess,
                "r_hat": agreement,
                "missing": float(missing[place]),
            }
            if len(table) >= MOST_PARAMETERS:
                return table
    return table


def standing_still(posterior: xr.DataTree) -> dict[str, tuple[int, ...]]:
    """Parameters that have one and the same value in all draws of a chain, and these chains.

    Fixed ones and those computed from others are left out. Where a model does not say which are
    fixed, they are those with the same value in all chains; of a single chain nothing is said
    unless it stands still in all of them.
    """
    found: dict[str, tuple[int, ...]] = {}
    unsure: dict[str, tuple[int, ...]] = {}
    moving = False
    for name, variable in posterior["posterior"].to_dataset().data_vars.items():
        attrs, values = variable.attrs, variable.values
        if values.shape[1] < FEWEST_DRAWS or values.dtype.kind != "f":
            continue
        if attrs.get("exchangeable") or attrs.get("derived"):
            continue
        still = np.all(values == values[:, :1], axis=1)
        moving |= not still.all()
        known = np.asarray(attrs["constant"], bool).ravel() if "constant" in attrs else None
        for place, index in enumerate(np.ndindex(values.shape[2:])):
            chains = tuple(np.flatnonzero(still[(slice(None), *index)]).tolist())
            if not chains or (known is not None and known[place]):
                continue
            first = values[(slice(None), 0, *index)]
            same = known is None and np.all(first == first[0]) and len(chains) == len(first)
            (unsure if same else found)[label(str(name), index)] = chains
    return found if moving or found else unsure


def _is_fixed(variable: xr.DataArray, place: int, series: Real[np.ndarray, "chain draw"]) -> bool:
    attrs = variable.attrs
    fixed = attrs.get("derived") or np.ravel(attrs.get("constant", False))[place:][:1].any()
    return bool(fixed) and bool(np.all(series == series.flat[0]))


def label(name: str, index: tuple[int, ...]) -> str:
    """The name of one entry of an array: ``name[0, 1]``."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _judged(posterior: xr.DataTree) -> Iterator[tuple[str, xr.DataArray]]:
    """Variables whose entries keep their meaning, and statistics that chains must agree on."""
    for name, variable in posterior["posterior"].to_dataset().data_vars.items():
        if not variable.attrs.get("exchangeable"):
            yield str(name), variable
    for name, variable in posterior["sample_stats"].to_dataset().data_vars.items():
        if variable.attrs.get("diagnosed"):
            yield str(name), variable


def rejection_numbers(posterior: xr.DataTree) -> dict[str, float]:
    """|Y| of a sweep: its distribution, effective sample size and R-hat; the acceptance rate."""
    rejected = posterior["sample_stats"].to_dataset()["rejected"].values
    n = posterior.attrs["n_observations"]
    low, middle, high = np.quantile(rejected, [0.05, 0.5, 0.95])
    quarter = max(rejected.shape[1] // 4, 1)
    return {
        "5%": float(low),
        "median": float(middle),
        "95%": float(high),
        "most": float(rejected.max()),
        "acceptance": float(n / (n + rejected.mean())) if n else np.nan,
        "ess": effective_size(rejected.astype(float)),
        "r_hat": r_hat(rejected),
        "growth": float(
            (1 + np.median(rejected[:, -quarter:])) / (1 + np.median(rejected[:, :quarter]))
        ),
    }


@dataclass(frozen=True)
class Run:
    """A result, and what is known of it, computed when it is first asked for."""

    posterior: xr.DataTree

    @property
    def attrs(self) -> dict[Hashable, Any]:
        return self.posterior.attrs

    @cached_property
    def stats(self) -> xr.Dataset:
        return self.posterior["sample_stats"].to_dataset()

    @cached_property
    def table(self) -> Table:
        return parameter_table(self.posterior)

    @cached_property
    def rejections(self) -> dict[str, float]:
        return rejection_numbers(self.posterior)

    @cached_property
    def stuck(self) -> dict[str, tuple[int, ...]]:
        return standing_still(self.posterior)

    @property
    def shape(self) -> tuple[int, int]:
        """Chains, and draws of each."""
        return self.stats.sizes["chain"], self.stats.sizes["draw"]
