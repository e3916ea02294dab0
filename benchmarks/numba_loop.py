"""The yardstick: Algorithm 2 as a hand-written, single-threaded, per-point Numba loop.

A normal seen above zero, unknown mean and log scale, HMC with fixed step and number of steps. The
model is written into the loop: its likelihood is two running sums. Normals come from NumPy's
Generator (ziggurat), the fastest that Numba offers. Floating point is strict, as in XLA; with
``fastmath`` the sums vectorise.
"""

from __future__ import annotations

import math

import numba
import numpy as np


def make(fastmath: bool):
    @numba.njit(fastmath=fastmath, error_model="numpy")
    def log_density(loc, log_scale, x, n, y, m):
        scale = math.exp(log_scale)
        precision = 1 / (scale * scale)
        first, second = 0.0, 0.0
        for i in range(n):
            z = x[i] - loc
            first += z
            second += z * z
        for i in range(m):
            z = y[i] - loc
            first += z
            second += z * z
        total = n + m
        value = -0.5 * second * precision - total * log_scale
        value += -0.5 * loc * loc - 0.5 * scale * scale + log_scale
        return value, first * precision - loc, second * precision - total - scale * scale + 1

    @numba.njit(error_model="numpy")
    def run(rng, x, sweeps, step, leapfrogs):
        n = len(x)
        y = np.empty(64 * n + 1000)
        loc, log_scale = 0.0, 0.0
        rejected = 0
        sums = np.zeros(2)
        for _ in range(sweeps):
            scale = math.exp(log_scale)
            accepted, m = 0, 0
            while accepted < n:
                value = loc + scale * rng.normal()
                if value > 0:
                    accepted += 1
                else:
                    y[m] = value
                    m += 1
            p, q = rng.normal(), rng.normal()
            value, g, h = log_density(loc, log_scale, x, n, y, m)
            energy = value - 0.5 * (p * p + q * q)
            a, b = loc, log_scale
            for _ in range(leapfrogs):
                p += 0.5 * step * g
                q += 0.5 * step * h
                a += step * p
                b += step * q
                value, g, h = log_density(a, b, x, n, y, m)
                p += 0.5 * step * g
                q += 0.5 * step * h
            if math.log(rng.random()) < value - 0.5 * (p * p + q * q) - energy:
                loc, log_scale = a, b
            rejected += m
            sums[0] += loc
            sums[1] += log_scale
        return rejected / sweeps, sums / sweeps

    return run
