"""The paper's second application: orientations of the heart's electrical field.

For each lead system 98 frames of two columns in space, exponential priors with mean 10 on the
concentrations, a uniform prior on G, H = I, as in the paper: maximum-likelihood estimates,
posterior means by four methods beside the exact ones (quadrature with G integrated out), credible
and predictive circles, and the pictures.

    python docs/studies/vectorcardiogram.py --data vcg.csv     # results/ gets the pictures
    python docs/studies/vectorcardiogram.py                    # a simulated set stands in

The data (Downs, Liebman & Mackay 1972) do not come with Offcut: no licence for them is known.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import offcut
from offcut.budget import effective_size
from offcut.langevin.normaliser import log_normaliser, log_normaliser_of

METHODS = {"augment": 4000, "collapsed": 4000, "exchange": 20_000, "asymptotic": 4000}


def simulated() -> np.ndarray:
    """98 frames that look like the children's."""
    with jax.enable_x64(True):
        G = np.array([[0.53, -0.36], [0.67, 0.74], [0.52, -0.57]])
        U, _, Vt = np.linalg.svd(G, full_matrices=False)
        there = offcut.MatrixLangevin.from_svd(U @ Vt, np.array([7.0, 12.0]))
        return np.asarray(there.sample(jax.random.key(98), (98,)))


def by_quadrature(x: np.ndarray, nodes: int = 200) -> np.ndarray:
    """Posterior mean of kappa, G integrated out: Gauss-Legendre in log kappa."""
    n, d, _ = x.shape
    with jax.enable_x64(True):
        S = jnp.asarray(x.sum(0))
        node, weight = np.polynomial.legendre.leggauss(nodes)
        u = np.log(10.0) + 1.5 * node
        u1, u2 = np.meshgrid(u, u, indexing="ij")
        kappa = np.exp(np.stack([u1.ravel(), u2.ravel()], axis=1))
        log_z = jax.jit(
            jax.vmap(lambda k: log_normaliser_of(S * k[None, :]) - n * log_normaliser(k, d))
        )
        log_p = np.asarray(log_z(jnp.asarray(kappa))) - 0.1 * kappa.sum(1) + np.log(kappa).sum(1)
    p = np.exp(log_p - log_p.max()) * np.outer(weight, weight).ravel()
    return p @ kappa / p.sum()


def study(name: str, x: np.ndarray, folder: Path) -> None:
    """One lead system."""
    print(f"\n{name}: {len(x)} frames")
    found = offcut.MatrixLangevin.mle(x)
    print(f"maximum likelihood, singular values: {found.kappa.round(2)} ({found.method})")
    exact = by_quadrature(x)
    print(f"posterior mean of kappa by quadrature: {exact.round(3)}")
    for method, draws in METHODS.items():
        model = offcut.MatrixLangevinModel(dist.Exponential(0.1), method=method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            offcut.sample(model, x, draws=1, warmup=1, chains=1, progress=False)  # compile
            started = time.process_time()
            posterior = offcut.sample(model, x, draws=draws, progress=False)
        seconds = time.process_time() - started
        kappa = posterior["posterior"]["kappa"].values
        sizes = np.array([effective_size(kappa[:, :, r]) for r in range(2)])
        error = kappa.std((0, 1)) / np.sqrt(sizes)
        z = (kappa.mean((0, 1)) - exact) / error
        print(
            f"  {method:11s} {kappa.mean((0, 1)).round(3)} ± {error.round(3)}, z {z.round(1)}, "
            f"ESS {sizes.round()}, {seconds:.1f} CPU-s with warm-up"
        )
        if method == "augment":
            draw_pictures(name, model, posterior, found.kappa, folder)


def draw_pictures(name, model, posterior, marks, folder) -> None:
    """The paper's figure, and the regions in words."""
    rejected = posterior["sample_stats"]["rejected"]
    print(f"  |Y| {float(rejected.mean()):.1f} on average, at most {int(rejected.max())}")
    predictive = model.predict(posterior, 20_000)
    for kind, caps in (
        ("credible", model.regions(posterior)),
        ("predictive", model.regions(posterior, predictive=True)),
    ):
        print(f"  90% {kind}: " + ", ".join(map(str, caps)))
    names = ("first column", "second column")
    pictures = {
        "sphere": offcut.plots.frames(posterior, predictive, names=names),
        "maps": offcut.plots.frames(posterior, predictive, projection="equal-area", names=names),
        "kappa": offcut.plots.concentrations(posterior, names=names),
    }
    for kind, figure in pictures.items():
        figure.savefig(folder / f"frames_{name}_{kind}.png", dpi=150, bbox_inches="tight")


def main() -> None:
    """Both lead systems, or what stands in for them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the CSV file of the vectorcardiograms")
    parser.add_argument("-o", "--output", type=Path, default=Path("results"))
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    if asked.data is None:
        print("No --data: SIMULATED frames stand in for the vectorcardiograms.")
        study("simulated", simulated(), asked.output)
        return
    children = offcut.datasets.vectorcardiogram(asked.data)
    for name in ("frank", "mcfee"):
        study(name, getattr(children, name), asked.output)


if __name__ == "__main__":
    main()
