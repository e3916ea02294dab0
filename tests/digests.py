"""Digests of many small runs: the same before and after a change that should change no draw.

python tests/digests.py              print them (some minutes) and compare with digests.txt
python tests/digests.py NAME ...     only those runs
python tests/digests.py --base REV   compare with what commit REV prints on this machine
python tests/digests.py --write      replace digests.txt: the changelog says why

One line for each run: the first 16 digits of SHA-256 over every variable of ``posterior`` and
``sample_stats``, by name, dtype, shape and bytes. Digests are those of one kind of processor and of
the versions in constraints.txt (another processor multiplies matrices in another order: what goes
through linear algebra then differs in its last bits, and everything after it), so the file, whose
head names the processor, is no test. ``--base`` runs that commit's own copy of this script, with
the packages installed here, in a worktree that is removed afterwards; that comparison holds on any
machine.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import kill_me
import offcut
from offcut.app.html.runs import processor

COMMITTED = Path(__file__).with_name("digests.txt")
RUN = {"draws": 60, "warmup": 60, "chains": 2, "seed": 7, "progress": False}


def normal(**options: Any) -> Any:
    return offcut.truncated(
        {"loc": dist.Normal(0.0, 0.5), "scale": dist.LogNormal(0.0, 0.3)},
        lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        offcut.regions.Box(0.8, np.inf),
        **options,
    )


def conjugate() -> Any:
    return offcut.truncated(
        {"rate": dist.Gamma(2.0, 1.0)},
        lambda theta: dist.Exponential(theta["rate"]),
        lambda x: x > 0.5,
    )


def selected() -> Any:
    return offcut.selected(
        {"loc": dist.Normal(0.0, 1.0)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda theta, x: -jnp.log1p(jnp.exp(-2.0 * x)),
    )


def with_exact_update() -> Any:
    def rate(key: Any, theta: Any, x: Any) -> dict[str, Any]:
        shape, rate = 2.0 + x.shape[0], 1.0 + jnp.sum(jnp.abs(x - theta["loc"]))
        return {"rate": dist.Gamma(shape, rate).sample(key)}

    return offcut.truncated(
        {"loc": dist.Normal(0.0, 1.0), "rate": dist.Gamma(2.0, 1.0)},
        lambda theta: dist.Laplace(theta["loc"], 1.0 / theta["rate"]),
        lambda x: x > 0.5,
        exact_updates={"rate": rate},
    )


def rounded() -> Any:
    return offcut.truncated(
        {"loc": dist.Normal(0.0, 0.5)},
        lambda theta, c: dist.Normal(theta["loc"], 1.0),
        lambda x, c: x > 1.0,
        censored=lambda x, c: (x >= c["low"]) & (x < c["high"]),
    )


def noisy() -> Any:
    return offcut.truncated(
        {"loc": dist.Normal(0.0, 0.5)},
        lambda theta: dist.Normal(theta["loc"], 1.0),
        lambda x: x > 1.0,
        noise=lambda theta, true: dist.Normal(true, 0.3),
    )


def runs() -> dict[str, Callable[[], Any]]:
    """Every run, by name."""
    x = kill_me.observations()
    cells = {"low": np.floor(2 * x) / 2, "high": np.floor(2 * x) / 2 + 0.5}
    walk = offcut.RandomWalk()
    frames = np.linalg.qr(np.random.default_rng(2).normal(size=(6, 4, 3)) + 3 * np.eye(4, 3))[0]
    pairs, line = frames[..., :2], kill_me._LINE
    cloud, orthant = kill_me._CLOUD, offcut.regions.Orthant([1, 1])
    groups = np.array(["pre", "post"])[np.arange(len(cloud)) % 2]
    kappa = dist.Gamma(1.0, 0.1)

    def run(model: Any, data: Any, **settings: Any) -> Callable[[], Any]:
        return lambda: offcut.sample(model(), data, **{**RUN, **settings})

    def frame_model() -> Any:
        return offcut.MatrixLangevinModel(kappa)

    def mixture(weights: str, **more: Any) -> Callable[[], Any]:
        def build() -> Any:
            return offcut.TruncatedMixture(orthant, 3, dist.Gamma(2, 2), weights=weights, **more)

        return build

    fixed = {"length_scale": 1.0, "variance": 1.0}
    space = np.random.default_rng(1).normal(size=(20, 3))

    def uniform(theta: Any) -> Any:
        return dist.Uniform(0.0, np.abs(line).max() + theta["excess"])

    return {
        "NUTS": run(normal, x, kernel=offcut.NUTS()),
        "HMC": run(normal, x, kernel=offcut.HMC(num_steps=4)),
        "random walk, selected": run(selected, x, kernel=walk),
        "conjugate": run(conjugate, x),
        "direct": run(normal, x, method="direct"),
        "exchange, two parameters": run(normal, x, method="exchange"),
        "pseudo-marginal": run(selected, x[:9], method=offcut.PseudoMarginal(acceptances=20)),
        "a budget that binds": run(normal, x, kernel=offcut.HMC(num_steps=4), budget=260),
        "an exact update": run(with_exact_update, x, kernel=walk),
        "intervals": run(rounded, x, covariates=cells, kernel=walk),
        "noise": run(noisy, x, kernel=walk),
        "two observations, thinned": run(normal, x[:2], kernel=walk, thin=3),
        **{name: (lambda name=name: kill_me.run_kind(name)) for name in kill_me.kinds()},
        "frames, p = 3": run(frame_model, frames),
        "frames, budget": run(frame_model, pairs, budget=12),
        "frames, collapsed": run(frame_model, pairs, method="collapsed"),
        "frames, exchange": run(frame_model, pairs, method="exchange"),
        "frames, asymptotic": run(frame_model, pairs, method="asymptotic"),
        "density, elliptical slice": run(
            lambda: offcut.GPDensity(basis=8, **fixed), line, kernel=offcut.EllipticalSlice()
        ),
        "density, collapsed": run(lambda: offcut.GPDensity(basis=8), line, method="collapsed"),
        "density, two dimensions": run(lambda: offcut.GPDensity(basis=4), cloud, budget=400),
        "mixture of groups": run(mixture("latent", hierarchical=True), cloud, covariates=groups),
        "mixture, budget": run(mixture("latent"), cloud, budget=40),
        "density, HMC": run(
            lambda: offcut.GPDensity(basis=8), line, kernel=offcut.HMC(num_steps=4)
        ),
        "density, a family whose support moves": run(
            lambda: offcut.GPDensity(uniform, prior={"excess": dist.LogNormal()}, basis=8, **fixed),
            np.abs(line),
        ),
        "density, three dimensions": run(lambda: offcut.GPDensity(basis=4), space),
        "intensity, no joint moves": run(
            lambda: offcut.GPIntensity((0, 1), basis=8, joint_moves=False), line
        ),
    }


def digest(tree: Any) -> str:
    whole = hashlib.sha256()
    for name, values in sorted(kill_me.arrays_of(tree).items()):
        whole.update(f"{name} {values.dtype} {values.shape}".encode())
        whole.update(np.ascontiguousarray(values).tobytes())
    return whole.hexdigest()[:16]


def parsed(text: str) -> dict[str, str]:
    """Digests by name, of lines as ``main`` prints them."""
    lines = [line.split("   ")[0].split("  ", 1) for line in text.splitlines()]
    return {line[1]: line[0] for line in lines if len(line) == 2 and not line[0].startswith("#")}


def printed_by(revision: str, names: list[str]) -> dict[str, str]:
    """The digests of another commit, on this machine."""
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory, "tree")
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), revision],
            cwd=root, check=True, capture_output=True,
        )  # fmt: skip
        try:
            run = subprocess.run(
                [sys.executable, "tests/digests.py", *names],
                cwd=tree,
                env=os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'tests'}"},
                stdout=subprocess.PIPE,
                text=True,
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=root)
    return parsed(run.stdout)


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    wanted = [name for name in arguments if name != "--write"]
    known = parsed(COMMITTED.read_text()) if COMMITTED.exists() else {}
    if "--base" in wanted:
        place = wanted.index("--base")
        revision, wanted = wanted[place + 1], wanted[:place] + wanted[place + 2 :]
        known = printed_by(revision, wanted)
    every = runs()
    found, differ = {}, 0
    warnings.simplefilter("ignore")
    for name in wanted or every:
        found[name] = digest(every[name]())
        was = found[name] if write else known.get(name)
        note = "" if was == found[name] else "   (new)" if was is None else f"   was {was}"
        differ += was not in (None, found[name])
        print(f"{found[name]}  {name}{note}", flush=True)
    if write:
        lines = [f"# {processor()}", *(f"{v}  {k}" for k, v in (known | found).items())]
        COMMITTED.write_text("\n".join([*lines, ""]))
    elif not differ:
        print(f"all {len(found)} as before")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
