"""``offcut.GPDensity`` and ``offcut.GPIntensity``."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import xarray as xr

from offcut.errors import ModelError, SettingsError
from offcut.gp import evaluation, judgement
from offcut.gp.augmented import AugmentedSampler
from offcut.gp.base import FamilyBase
from offcut.gp.birth_death import BirthDeath, BirthDeathSampler
from offcut.gp.collapsed import CollapsedSampler
from offcut.gp.exact import ExactSampler
from offcut.gp.grid import Grid
from offcut.gp.hyperparameters import written
from offcut.gp.planning import FRESH, PROCESSES, Prepared, Wishes, prepare
from offcut.gp.sampler import GPData, GPSampler
from offcut.gp.settings import ask_about_ties
from offcut.gp.updates import EllipticalSlice, PolyaGamma
from offcut.identity import digest, skeleton, traced
from offcut.kernels.hmc import HMC
from offcut.kernels.nuts import NUTS
from offcut.mixtures.reading import as_events
from offcut.prior import Prior
from offcut.programs import kept_sampler
from offcut.regions.region import Region

MOST_PREPARED = 8

METHODS = ("augment", "collapsed")
#: The kernel of method="collapsed", where none is given.
COLLAPSED = HMC(num_steps=8, jitter=0.5)


class GPModel:
    """What densities and intensities share."""

    process = ""

    def __init__(self, wishes: Wishes, method: str) -> None:
        if method not in METHODS:
            raise ModelError(
                f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}"
            )
        local = isinstance(wishes.rejections, BirthDeath)
        if not local and wishes.rejections != FRESH:
            raise ModelError(
                f'rejections must be "fresh" or an offcut.BirthDeath, got {wishes.rejections!r}'
            )
        if local and (method != "augment" or wishes.basis is None):
            raise ModelError('offcut.BirthDeath needs method="augment" and a basis')
        self.wishes, self.method = wishes, method
        self._prepared: dict[Any, Prepared] = {}

    def prepare(
        self, data: Any, covariates: Any, kernel: Any
    ) -> tuple[GPSampler, GPData, dict[str, np.ndarray]]:
        """The sampler, its arrays, and the observed data by name (for ``offcut.sample``)."""
        if covariates is not None:
            raise ModelError(f"{type(self).__name__} takes no covariates")
        x, scalar = self.read(data)
        prepared = self._prepared_from(x, scalar)
        if any(name == "length_scale" for name, _ in prepared.plan.hyper.key):
            ask_about_ties(x)
        sampler = self._shared(prepared, kernel)
        return sampler, prepared.data, {"x": x[:, 0] if scalar else x}

    def read(self, data: Any) -> tuple[np.ndarray, bool]:
        """Observations (n, d), and whether they are single numbers."""
        return as_events(data, type(self).__name__)

    def _prepared_from(self, x: np.ndarray, scalar: bool) -> Prepared:
        """Everything for data (n, d); the last few are kept."""
        key = (self.identity(), x.tobytes(), x.shape, scalar)
        if key not in self._prepared:
            while len(self._prepared) >= MOST_PREPARED:
                self._prepared.pop(next(iter(self._prepared)))
            self._prepared[key] = prepare(self.wishes, x, PROCESSES[self.process], scalar)
        return self._prepared[key]

    def _shared(self, prepared: Prepared, kernel: Any) -> GPSampler:
        """The sampler; models that are the same share it, compiled code and all."""
        plan = prepared.plan
        family = self._family() if isinstance(plan.base, FamilyBase) else None
        base = (type(plan.base), family, plan.hyper.key)
        identity = digest(base, self.method, self.wishes.nugget, self.wishes.rejections)
        name = (plan[:3], plan[5:], kernel)
        return kept_sampler(identity, name, lambda: self._sampler(prepared, kernel))

    def _family(self) -> Any:
        """What a base given as a function computes, traced, with its prior."""
        w = self.wishes
        if isinstance(w.base, Region) or not callable(w.base) or w.prior is None:
            return None
        kinds: list[type] = []

        def everything(key: jax.Array, position: jax.Array) -> Any:
            prior = Prior(w.prior)
            theta = prior.sample(key)
            base = w.base(theta)
            kinds.append(type(base))
            x = base.sample(key)
            constrained = prior.constrain(position, {})
            return theta, x, base.log_prob(x), prior.log_density(position, {}), constrained

        with jax.enable_x64(True):
            size = Prior(w.prior).size
            return traced(everything, jax.random.key(0), np.zeros(size)), kinds

    def _sampler(self, prepared: Prepared, kernel: Any) -> GPSampler:
        """The sampler of the method, with the kernel."""
        if isinstance(prepared.plan.basis, Grid):
            return self._exact(prepared, kernel)
        if self.method == "collapsed":
            if not prepared.plan.summed:
                raise ModelError(
                    'method="collapsed" needs the normalising constant by quadrature, which is to '
                    'be had in one and two dimensions; use method="augment"'
                )
            if kernel is not None and not isinstance(kernel, HMC | NUTS):
                raise SettingsError(
                    f'method="collapsed" takes offcut.HMC() or offcut.NUTS(), got {kernel!r}'
                )
            return CollapsedSampler(prepared.plan, COLLAPSED if kernel is None else kernel)
        if kernel is not None and not isinstance(kernel, PolyaGamma | EllipticalSlice | HMC | NUTS):
            raise SettingsError(
                "f given the rejections moves by offcut.PolyaGamma() (default), "
                f"offcut.EllipticalSlice(), offcut.HMC() or offcut.NUTS(), got {kernel!r}"
            )
        update = PolyaGamma() if kernel is None else kernel
        if isinstance(self.wishes.rejections, BirthDeath):
            return BirthDeathSampler(prepared.plan, update, self.wishes.rejections)
        return AugmentedSampler(prepared.plan, update)

    def _exact(self, prepared: Prepared, kernel: Any) -> GPSampler:
        """The sampler of the exact process."""
        if self.method != "augment":
            raise ModelError('the exact process (basis=None) has method="augment" only')
        if kernel is not None and not isinstance(kernel, PolyaGamma | EllipticalSlice):
            raise SettingsError(
                "f of the exact process moves by offcut.PolyaGamma() (default) or "
                f"offcut.EllipticalSlice(), got {kernel!r}"
            )
        if isinstance(kernel, EllipticalSlice) and prepared.plan.hyper.size:
            raise SettingsError(
                "offcut.EllipticalSlice() with the exact process needs a fixed length_scale and "
                "variance; offcut.PolyaGamma() infers them"
            )
        update = PolyaGamma() if kernel is None else kernel
        return ExactSampler(prepared.plan, update, self.wishes.nugget)

    def prepared_for(self, posterior: xr.DataTree) -> Prepared:
        """Box, basis and priors of a posterior, made again from its data where needed."""
        x = np.asarray(posterior["observed_data"].dataset["x"].values, float)
        return self._prepared_from(x[:, None] if x.ndim == 1 else x, x.ndim == 1)

    def facts(self, observed: dict[str, np.ndarray], sampler: Any = None) -> dict[str, Any]:
        """What else the result should say."""
        x = observed["x"]
        prepared = self._prepared_from(x[:, None] if x.ndim == 1 else x, x.ndim == 1)
        slower = self.method == "augment" and prepared.plan.joint and prepared.plan.hyper.size
        note = " (method='collapsed' would be faster here, and exact too)" if slower else ""
        return {"method": self.method, "method_note": note, **judgement.facts(prepared, repr(self))}

    def identity(self) -> str:
        """What tells models apart, at this moment: all settings, and what a family computes."""
        settings = skeleton(type(self), self.method, self.wishes._replace(prior=None))
        return digest(settings, self._family())

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: what was prepared can be prepared again."""
        return {**self.__dict__, "_prepared": {}}

    def judge(self, posterior: xr.DataTree) -> None:
        """Check box, basis and quadrature against the draws, and say so in the attrs."""
        judgement.judge(posterior, self.prepared_for(posterior))

    def function(self, posterior: xr.DataTree, points: Any) -> np.ndarray:
        """f at points in each draw, (chain, draw, point)."""
        return evaluation.function(posterior, self.prepared_for(posterior), points)

    def rejections(
        self, posterior: xr.DataTree, draws: int = 100, *, seed: int = 0
    ) -> list[np.ndarray]:
        """Rejected proposals Y for some of the draws: their law given each draw, afresh."""
        return evaluation.rejections(posterior, self.prepared_for(posterior), draws, seed)

    def __repr__(self) -> str:
        w = self.wishes
        given = {
            "base": w.base,
            "kernel": w.covariance.name,
            "basis": w.basis,
            "length_scale": w.length_scale,
            "variance": w.variance,
            "support": w.support,
            "rate": w.rate,
            "rejections": w.rejections,
            "method": self.method,
        }
        default = {
            "base": "normal",
            "kernel": "squared_exponential",
            "basis": "auto",
            "rejections": FRESH,
            "method": "augment",
        }
        parts = [
            f"{name}={written(value)}"
            for name, value in given.items()
            if not (value is default.get(name) or _same(value, default.get(name)))
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


def _same(value: Any, default: Any) -> bool:
    return isinstance(value, str) and value == default
