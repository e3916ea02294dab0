"""One chain, stepped by hand through the very program that the driver runs: for measurements."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from offcut.base import FIRST_CAPACITY, MOST_REJECTED, Kernel, Model
from offcut.driver.chain import CompiledBlock
from offcut.methods import AUTO, MethodSettings
from offcut.numerics import keys
from offcut.samplers.choice import prepare


class Stretch(NamedTuple):
    """Some sweeps of a chain: CPU-seconds, and one variable's draws (sweep, ...)."""

    seconds: float
    draws: np.ndarray


class Chain:
    """A chain of a model on data, compiled once; scales and step sizes are part of its state.

    Parameters
    ----------
    model : any model of this library
    data : array
    variable : str
        Which variable to keep.
    kernel, method : optional
        As for ``offcut.sample``.
    block : int
        Sweeps for each call of the program.
    """

    def __init__(
        self,
        model: Model,
        data: np.ndarray,
        variable: str,
        kernel: Kernel | None = None,
        block: int = 1024,
        method: str | MethodSettings = AUTO,
    ) -> None:
        self.variable, self.block = variable, block
        with jax.enable_x64(True):
            prepared = prepare(model, data, None, kernel, method)
        self.sampler: Any = prepared.sampler  # ``start`` at a value is for those with a prior
        self.data = prepared.arrays
        self.program = CompiledBlock(self.sampler, block)
        self.start()
        self.run(2)

    def start(self, value: np.ndarray | None = None, step_size: float | None = None) -> None:
        """At the sampler's own start or at a value of the variable; a given step size stays."""
        sampler = self.sampler
        with jax.enable_x64(True):
            self.key, self.done = keys.from_seed(2), 0
            state = sampler.start(keys.from_seed(1), self.data, MOST_REJECTED)
            if sampler.capacity(state) is not None:
                state = sampler.resized(state, FIRST_CAPACITY)
            if value is not None:
                position = sampler.prior.unconstrain({self.variable: value})
                state = state._replace(position=position)
            if step_size is not None:
                step = jax.numpy.asarray(step_size)
                state = state._replace(tuning=state.tuning._replace(step_size=step))
        self.state = state

    def run(self, sweeps: int, schedule: np.ndarray | None = None) -> Stretch:
        """So many sweeps; in warm-up with its schedule."""
        parts, spent = [], 0.0
        with jax.enable_x64(True):
            for first in range(0, sweeps, self.block):
                count = min(sweeps - first, self.block)
                part = None if schedule is None else schedule[first : first + count]
                started = time.process_time()
                result = self.program.run(
                    self.key, self.state, self.done, count, None, part is not None, part, self.data
                )
                parts.append(np.asarray(result.draws[self.variable])[1 : count + 1])
                spent += time.process_time() - started
                if int(result.done) != count:
                    raise RuntimeError("the buffer for rejections was too small to measure")
                self.state, self.done = result.state, self.done + count
        return Stretch(spent, np.concatenate(parts))
