"""Print which files of ours ``offcut.sample(offcut.truncated(...), x)`` calls functions of.

In the order of their first calls, one a line, in a process of its own: a model that was sampled
before is not traced again. What runs while modules are imported does not count.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np
import numpyro.distributions as dist

import offcut
import offcut.sampling

SOURCES = str(Path(offcut.__file__).parent) + "/"
files: dict[str, None] = {}


def note(frame: FrameType, event: str, argument: object) -> None:
    code = frame.f_code
    is_function = code.co_flags & inspect.CO_OPTIMIZED  # no body of a class or module
    if event == "call" and is_function and code.co_filename.startswith(SOURCES):
        files.setdefault(code.co_filename.removeprefix(SOURCES))


if __name__ == "__main__":
    x = np.abs(np.random.default_rng(0).normal(size=100))
    threading.setprofile(note)
    sys.setprofile(note)
    model = offcut.truncated(
        prior={"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )
    offcut.sample(model, x, draws=50, warmup=50, chains=2, progress=False)
    sys.setprofile(None)
    print("\n".join(files))
