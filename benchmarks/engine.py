"""Our engine on the same problem, through the very program that the driver runs."""

from __future__ import annotations

import time

import jax
import numpy as np
import numpyro.distributions as dist

import offcut
from offcut.base import MOST_REJECTED
from offcut.driver.chain import CompiledBlock
from offcut.numerics import keys
from offcut.samplers.choice import prepare

LEAPFROGS = 5


def step_size(n: int) -> float:
    """So small that both samplers stay where acceptance is one half: the same work for both."""
    return 1e-3 / np.sqrt(2 * n)


def half_normal_data(n: int) -> np.ndarray:
    z = np.random.default_rng(0).normal(size=3 * n + 100)
    return z[z > 0][:n]


def model() -> offcut.RejectionModel:
    return offcut.truncated(
        prior={"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )


class Engine:
    """A chain of the engine that can be timed block by block."""

    def __init__(self, x: np.ndarray, kernel=None, block: int = 256) -> None:
        self.block = block
        with jax.enable_x64(True):
            kernel = kernel or offcut.HMC(step_size(len(x)), LEAPFROGS)
            sampler, self.data, _ = prepare(model(), x, None, kernel)
            state = sampler.start(keys.from_seed(1), self.data, MOST_REJECTED)
            state = sampler.resized(state, 4 * len(x) + 4096)
            self.state = state._replace(position=state.position * 0)  # loc 0, scale 1
            self.sampler = sampler
            self.program = CompiledBlock(sampler, block)
            self.schedule = np.zeros((block, 3), bool)
            self.done = 0
        self.run(2)

    def run(self, sweeps: int) -> tuple[float, dict]:
        """Seconds for a sweep, and the statistics of the last block."""
        with jax.enable_x64(True):
            key = keys.from_seed(2)
            spent, left, stats = 0.0, sweeps, {}
            while left:
                count = min(left, self.block)
                started = time.perf_counter()
                result = self.program(
                    key,
                    self.state,
                    np.int32(self.done),
                    np.int32(count),
                    np.int32(MOST_REJECTED),
                    np.bool_(False),
                    np.bool_(False),
                    self.schedule,
                    self.data,
                )
                jax.block_until_ready(result)
                spent += time.perf_counter() - started
                if int(result.done) != count:
                    raise RuntimeError("the buffer was too small for this benchmark")
                self.state, self.done, left = result.state, self.done + count, left - count
                stats = {k: np.asarray(v)[:count] for k, v in result.stats.items()}
        return spent / sweeps, stats
