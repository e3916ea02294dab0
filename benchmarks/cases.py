"""What a user runs: a model, its data at two sizes, and NumPyro's way to the same posterior.

One registry for all tables about whole calls (``answer``, ``programs``). Data are made by NumPy
alone: whatever JAX computes before the first call would be compiled before it is timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

#: Chains, warm-up sweeps and draws of a default call, for NumPyro as well.
CHAINS, WARMUP, DRAWS = 4, 1000, 1000


class Targets(NamedTuple):
    """At most: CPU-seconds of a first call beyond those of a second, and times NumPyro's."""

    cold: float
    warm: float
    numpyro: float | None = None


@dataclass(frozen=True)
class Case:
    """A model with data.

    Attributes
    ----------
    name, words : str
        On the command line and in tables.
    n, other : int
        Numbers of observations, both in one bucket of ``offcut.numerics.arrays.bucket``.
    data : callable
        From a number of observations to what ``offcut.sample`` takes, by its names.
    model : callable
        Makes the model anew, as a user's script would.
    targets : Targets
    settings : dict
        Of ``offcut.sample``, other than its defaults.
    constructor : str
        Which of Offcut's names the model is made by.
    numpyro : callable, optional
        A model of NumPyro with the same posterior, with the data (in their order) as arguments.
    """

    name: str
    words: str
    n: int
    other: int
    data: Callable[[int], dict[str, np.ndarray]]
    model: Callable[[], Any]
    targets: Targets
    settings: dict[str, Any] = field(default_factory=dict)
    constructor: str = "truncated"
    numpyro: Callable[..., None] | None = None

    def sample(self, data: dict[str, np.ndarray], **settings: Any) -> Any:
        """Make the model and draw from its posterior, as a script does."""
        import offcut

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some are too short, on purpose
            given = {**self.settings, **settings, "progress": False}
            return offcut.sample(self.model(), **data, **given)


def in_numpyro(
    model: Callable[..., None], chains: int = CHAINS, warmup: int = WARMUP, draws: int = DRAWS
) -> Callable[..., list[dict[str, np.ndarray]]]:
    """``run(seed, *data)``: the draws of all chains by NumPyro's NUTS, one after the other.

    A chain is one compiled function of its key and the data. NumPyro's ``MCMC`` by itself compiles
    in every chain of every run, since what it hands to ``jax.jit`` is new each time (seen with
    0.22, ``progress_bar=False``): its second run would be as slow as its first, and its compilation
    four times as long as it has to be.
    """
    import jax
    from numpyro import infer

    @jax.jit
    def chain(key: Any, *data: Any) -> dict:
        kernel = infer.NUTS(model)
        mcmc = infer.MCMC(kernel, num_warmup=warmup, num_samples=draws, progress_bar=False)
        mcmc.run(key, *data)
        return mcmc.get_samples()

    def run(seed: int, *data: np.ndarray) -> list[dict[str, np.ndarray]]:
        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(seed), chains)
            return [jax.tree.map(np.asarray, chain(key, *data)) for key in keys]

    return run


def heights_data(n: int) -> dict[str, np.ndarray]:
    """README's."""
    men = np.random.default_rng(0).normal(168, 6.8, size=770)
    return {"data": men[men > 165][:n]}


def heights_prior() -> dict[str, Any]:
    import numpyro.distributions as dist

    return {"mean": dist.Normal(170, 10), "sd": dist.LogNormal(np.log(6.8), 0.05)}


def heights() -> Any:
    import numpyro.distributions as dist

    import offcut

    return offcut.truncated(
        prior=heights_prior(),
        base=lambda theta: dist.Normal(theta["mean"], theta["sd"]),
        inside=lambda height: height > 165,
    )


def heights_in_numpyro(recorded: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    theta = {name: numpyro.sample(name, prior) for name, prior in heights_prior().items()}
    passed = dist.TruncatedNormal(theta["mean"], theta["sd"], low=165.0)
    numpyro.sample("height", passed, obs=recorded)


def regression_data(n: int) -> dict[str, np.ndarray]:
    """A line in five covariates, seen where the response is positive."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1200, 5))
    y = x @ [0.5, -0.3, 0.2, 0.0, 0.4] + 0.3 + rng.normal(size=1200)
    return {"data": y[y > 0][:n], "covariates": x[y > 0][:n]}


def regression_prior() -> dict[str, Any]:
    import numpyro.distributions as dist

    slopes = dist.Normal(np.zeros(5), 1.0).to_event(1)
    return {"intercept": dist.Normal(0, 1), "slopes": slopes, "sd": dist.HalfNormal(1)}


def regression() -> Any:
    import numpyro.distributions as dist

    import offcut

    return offcut.truncated(
        prior=regression_prior(),
        base=lambda theta, x: dist.Normal(theta["intercept"] + x @ theta["slopes"], theta["sd"]),
        inside=lambda y, x: y > 0,
    )


def regression_in_numpyro(recorded: Any, x: Any) -> None:
    import numpyro
    import numpyro.distributions as dist

    theta = {name: numpyro.sample(name, prior) for name, prior in regression_prior().items()}
    line = theta["intercept"] + x @ theta["slopes"]
    numpyro.sample("y", dist.TruncatedNormal(line, theta["sd"], low=0.0), obs=recorded)


def disc_data(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    points = rng.multivariate_normal([0.5, 0.3], [[1.0, 0.4], [0.4, 1.0]], size=4000)
    return {"data": points[(points**2).sum(axis=1) < 2.25][:n]}


def disc() -> Any:
    """Each standard deviation and the correlation has its prior, so nothing is conjugate."""
    import jax.numpy as jnp
    import numpyro.distributions as dist

    import offcut

    def base(theta: dict) -> Any:
        sd, rho = theta["sd"], theta["correlation"]
        correlation = jnp.array([[1.0, rho], [rho, 1.0]])
        covariance = correlation * sd[:, None] * sd[None, :]
        return dist.MultivariateNormal(theta["mean"], covariance_matrix=covariance)

    return offcut.truncated(
        prior={
            "mean": dist.Normal(np.zeros(2), 1.0).to_event(1),
            "sd": dist.HalfNormal(np.ones(2)).to_event(1),
            "correlation": dist.Uniform(-1, 1),
        },
        base=base,
        inside=lambda point: point @ point < 2.25,
    )


def frames_data(n: int) -> dict[str, np.ndarray]:
    """Pairs of orthonormal vectors in space, scattered about one pair."""
    noise = np.random.default_rng(3).normal(scale=0.35, size=(n, 3, 2))
    left, _, right = np.linalg.svd(np.eye(3, 2) + noise, full_matrices=False)
    return {"data": left @ right}


def frames() -> Any:
    import numpyro.distributions as dist

    import offcut

    return offcut.MatrixLangevinModel(dist.Gamma(1.0, 0.1))


def density() -> Any:
    import offcut

    return offcut.GPDensity()


def intensity() -> Any:
    import offcut

    return offcut.GPIntensity((0, 1))


def mixture_data(n: int) -> dict[str, np.ndarray]:
    """Events of the GvHD control sample, in random order."""
    import offcut

    events = offcut.datasets.gvhd("control").values
    return {"data": np.random.default_rng(5).permutation(events)[:n]}


def mixture(weights: str) -> Any:
    import offcut

    return offcut.TruncatedMixture(offcut.regions.Box(0, 1), 50, weights=weights)


#: Fewer sweeps where those of the second call would drown what is measured.
FEWER, FEW = {"warmup": 200, "draws": 200}, {"warmup": 50, "draws": 50}
MODEL, MIXTURE = Targets(7, 2), Targets(14, 3.5)

CASES = {
    case.name: case
    for case in (
        Case(
            "heights", "README's heights", 509, 460, heights_data, heights,
            Targets(4, 1, 1.2), numpyro=heights_in_numpyro,
        ),
        Case(
            "regression", "regression, 5 covariates", 450, 480, regression_data, regression,
            MODEL, numpyro=regression_in_numpyro,
        ),
        Case("disc", "normal in a disc", 800, 880, disc_data, disc, MODEL),
        Case(
            "fastest", 'frames, "fastest"', 98, 110, frames_data, frames,
            MODEL, {"method": "fastest"}, "MatrixLangevinModel",
        ),
        Case(
            "frames", "frames", 98, 110, frames_data, frames,
            MODEL, constructor="MatrixLangevinModel",
        ),
        Case(
            "density", "GPDensity", 190, 170,
            lambda n: {"data": np.random.default_rng(4).normal(size=n)}, density, MODEL,
            FEWER, "GPDensity",
        ),
        Case(
            "intensity", "GPIntensity", 190, 170,
            lambda n: {"data": np.random.default_rng(4).uniform(size=n)}, intensity, MODEL,
            FEWER, "GPIntensity",
        ),
        Case(
            "latent", "mixture, latent", 2000, 1900, mixture_data,
            lambda: mixture("latent"), MIXTURE, FEW, "TruncatedMixture",
        ),
        Case(
            "window", "mixture, window", 2000, 1900, mixture_data,
            lambda: mixture("window"), MIXTURE, FEW, "TruncatedMixture",
        ),
    )
}  # fmt: skip
