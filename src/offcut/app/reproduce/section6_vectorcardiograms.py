"""Section 6.3 of the paper: vectorcardiograms, or frames that stand in for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import optimize

import offcut
from offcut.app.html import Section
from offcut.app.reproduce.finished import FinishedRun, RunStore
from offcut.app.reproduce.versus_paper import Claim, Plan, Verdict, counted, graded, tabulate
from offcut.errors import DataError
from offcut.langevin.normaliser import log_normaliser, log_normaliser_of

TITLE = "Orientations of the heart (section 6.3)"
#: What the paper reports.
PAPER_FRAMES = 98
PAPER_ESTIMATE = (11.9, 5.9)
#: Exponential priors with this mean.
PRIOR_MEAN = 10.0
SHARE = 0.9
NAMES = ("QRS direction", "perpendicular")
SYSTEMS = {"frank": "Frank leads", "mcfee": "McFee leads", "simulated": "simulated frames"}
#: Methods, and whether they are exact.
METHODS = {"augment": True, "collapsed": True, "exchange": True, "asymptotic": False}
WARNING = (
    "SIMULATED: no --data was given, so 98 simulated frames stand in for the vectorcardiograms, "
    "for which no licence is known. Nothing in this section is about hearts."
)


class Frames(NamedTuple):
    """One set of frames (n, 3, 2): its name, whether it is real, and its runs by method."""

    name: str
    x: np.ndarray
    runs: dict[str, FinishedRun]

    @property
    def simulated(self) -> bool:
        return self.name == "simulated"


def simulated() -> np.ndarray:
    """98 frames from a matrix Langevin distribution, as closely together as the children's."""
    with jax.enable_x64(True):
        G = np.array([[0.53, -0.36], [0.67, 0.74], [0.52, -0.57]])
        U, _, Vt = np.linalg.svd(G, full_matrices=False)
        there = offcut.MatrixLangevin.from_svd(U @ Vt, np.array([7.0, 12.0]))
        return np.asarray(there.sample(jax.random.key(98), (PAPER_FRAMES,)))


def frames_from(data: Path | None) -> dict[str, np.ndarray]:
    """Both lead systems from ``vcg.csv`` in a folder (or from a file), or simulated frames."""
    if data is None:
        return {"simulated": simulated()}
    path = data / "vcg.csv" if data.is_dir() else data
    if not path.is_file():
        raise DataError(
            f"--data {data}: there is no file {path}. Give the folder that holds vcg.csv, or the "
            "file itself; without --data simulated frames stand in"
        )
    children = offcut.datasets.vectorcardiogram(path)
    return {"frank": children.frank, "mcfee": children.mcfee}


def model_of_the_paper() -> offcut.MatrixLangevinModel:
    """Exponential priors on the concentrations, a uniform one on G, H = I."""
    return offcut.MatrixLangevinModel(dist.Exponential(1 / PRIOR_MEAN))


def run(store: RunStore, plan: Plan, data: Path | None = None) -> list[Frames]:
    """Every method on every set of frames."""
    return [
        Frames(
            name,
            x,
            {
                method: store.sample(
                    f"frames-{name}-{method}",
                    model_of_the_paper(),
                    x,
                    plan.exchange if method == "exchange" else plan.frames,
                    label=f"{SYSTEMS[name]}, {method}",
                    method=method,
                )
                for method in plan.methods
            },
        )
        for name, x in frames_from(data).items()
    ]


def show(section: Section, found: list[Frames], plan: Plan) -> list[Claim]:
    """Figure 2, its numbers, and the posterior by every method beside quadrature."""
    section.text(
        "Each of 98 children has a pair of orthonormal vectors, the orientation of a loop that the "
        "heart's electrical field traces. The model is a matrix Langevin distribution: G is where "
        f"frames point, κ how closely they agree; exponential priors with mean {PRIOR_MEAN:g} on "
        "κ, a uniform one on G, H = I, as in the paper. Its Hamiltonian sampler had 5 steps of "
        "size 0.3; here steps are tuned in warm-up, and their number is in the summaries below. "
        "Data: Downs, Liebman & Mackay (1972), not "
        "bundled; `--data` reads them from a path."
    )
    if found[0].simulated:
        section.notice(WARNING, "simulated")
    estimates = {one.name: most_likely(one.x) for one in found}
    for one in found:
        _show_set(section, one, estimates[one.name])
    rows = [row for one in found for row in _estimates(one, estimates[one.name])]
    tabulate(section, rows)
    for one in found:
        _methods(section, one)
    return rows


def _show_set(section: Section, one: Frames, estimate: np.ndarray) -> None:
    model, posterior = model_of_the_paper(), one.runs["augment"].posterior
    modes = model.regions(posterior, SHARE)
    ahead = model.regions(posterior, SHARE, predictive=True)
    predictive = model.predict(posterior, 5000)
    mark = " (SIMULATED)" if one.simulated else ""
    circles = (
        f"Solid circles hold {SHARE:.0%} of the posterior of each modal direction, dashed ones "
        f"{SHARE:.0%} of new observations."
    )
    section.globe(
        one.x,
        modes,
        ahead,
        names=NAMES,
        name=f"frames-{one.name}-globe",
        caption=f"**Figure 2, left, {SYSTEMS[one.name]}{mark}.** The two vectors of each frame. "
        f"{circles} Lines end at the posterior's modal directions. The solid circle is about where "
        "frames point, the dashed one about where the next one will.",
    )
    section.figure(
        offcut.plots.frames(posterior, predictive, projection="equal-area", names=NAMES),
        f"frames-{one.name}-maps",
        f"The same on equal-area maps centred at the modal directions, {SYSTEMS[one.name]}{mark}. "
        "Nothing is hidden on a far side here.",
        alt="Equal-area maps of both columns with credible and predictive circles",
    )
    section.figure(
        offcut.plots.concentrations(
            posterior, {"maximum likelihood": estimate.tolist()}, names=NAMES
        ),
        f"frames-{one.name}-kappa",
        f"**Figure 2, right, {SYSTEMS[one.name]}{mark}.** Posterior of the concentrations, with "
        "the maximum-likelihood estimates (H = I, as in the posterior).",
        alt="Posterior of both concentrations with maximum-likelihood estimates",
    )


def most_likely(x: np.ndarray) -> np.ndarray:
    """Of kappa, with H = I: the most of (sum of singular values of S kappa) - n log Z(kappa)."""
    n, d, p = x.shape
    S = x.sum(0)
    with jax.enable_x64(True):
        log_z = jax.jit(lambda kappa: log_normaliser(kappa, d))

        def loss(u: np.ndarray) -> float:
            kappa = np.exp(u)
            fit = np.linalg.svd(S * kappa, compute_uv=False).sum()
            return n * float(log_z(jnp.asarray(kappa))) - float(fit)

        start = np.full(p, np.log(PRIOR_MEAN))
        accuracy = {"xatol": 1e-6, "fatol": 1e-9}
        found = optimize.minimize(loss, start, method="Nelder-Mead", options=accuracy)
    return np.exp(found.x)


def _estimates(one: Frames, estimate: np.ndarray) -> list[Claim]:
    """Frames and maximum-likelihood estimates, in the paper's model and with H free."""
    system, mark = SYSTEMS[one.name], " (SIMULATED)" if one.simulated else ""
    rows = [
        counted(f"Frames, {system}", PAPER_FRAMES, len(one.x), "Another file than the paper's.")
    ]
    free = np.asarray(offcut.MatrixLangevin.mle(one.x).kappa)
    for what, kappa in (("H = I", estimate), ("H free", free)):
        kappa = np.sort(kappa)[::-1]
        away = kappa - np.array(PAPER_ESTIMATE)
        same, close = bool(np.all(np.abs(away) < 0.05)), bool(np.all(np.abs(away) < 0.5))
        why = (
            "Both maximise the exact likelihood (Z by quadrature); the paper does not say which "
            "lead system, which H, or how it maximised."
            if not same
            else ""
        )
        rows.append(
            Claim(
                f"Maximum likelihood of κ, {what}, {system}{mark}",
                ", ".join(f"{value:g}" for value in PAPER_ESTIMATE),
                ", ".join(f"{value:.2f}" for value in kappa),
                ", ".join(f"{value:+.2f}" for value in away),
                graded(same, close),
                "Simulated frames: there is nothing to agree with." if one.simulated else why,
            )
        )
    return [row._replace(verdict=Verdict.SIMULATED) for row in rows] if one.simulated else rows


def _methods(section: Section, one: Frames) -> None:
    """Posterior means of kappa by method, beside quadrature."""
    rough = one.runs["augment"].posterior["posterior"].dataset["kappa"].values.mean((0, 1))
    exact = by_quadrature(one.x, rough)
    rows, off = [], {}
    for method, finished in one.runs.items():
        is_exact = METHODS[method]
        table = offcut.summary(finished.posterior).table
        kappa = [table[f"kappa[{r}]"] for r in range(2)]
        worst = max(
            abs(row["mean"] - value) / row["mcse"] for row, value in zip(kappa, exact, strict=True)
        )
        off[method] = worst
        rows.append(
            [
                method if is_exact else f"{method} (approximate)",
                *(f"{row['mean']:.3f} ± {row['mcse']:.3f}" for row in kappa),
                f"{worst:.1f}",
                min(row["ess"] for row in kappa),
                f"{finished.cpu:.1f}",
            ]
        )
    rows.append(["quadrature", *(f"{value:.3f}" for value in exact), "", "", ""])
    section.table(
        ["Method", *(f"κ, {name}" for name in NAMES), "Off by, in errors", "Smallest ESS", "CPU-s"],
        rows,
        f"Posterior means of κ with Monte Carlo errors, {SYSTEMS[one.name]}"
        f"{' (SIMULATED)' if one.simulated else ''}. The exact methods are at most "
        f"{max(v for m, v in off.items() if METHODS[m]):.1f} of their errors from quadrature, the "
        f"approximate one {off['asymptotic']:.1f}.",
    )


@cache
def _log_likelihood(d: int) -> Callable[..., jax.Array]:
    """log Z(S kappa) - n log Z(kappa) for many kappa, compiled once."""

    def one(kappa: jax.Array, S: jax.Array, n: int) -> jax.Array:
        return log_normaliser_of(S * kappa[None, :]) - n * log_normaliser(kappa, d)

    return jax.jit(jax.vmap(one, in_axes=(0, None, None)))


def by_quadrature(
    x: np.ndarray, centre: Sequence[float] | np.ndarray, nodes: int = 200
) -> np.ndarray:
    """Posterior mean of kappa, G integrated out: Gauss-Legendre in log kappa around a centre.

    Not known (NaN) where the posterior reaches the border of the grid.
    """
    n, d, _ = x.shape
    with jax.enable_x64(True):
        S = jnp.asarray(x.sum(0))
        node, weight = np.polynomial.legendre.leggauss(nodes)
        u1, u2 = np.meshgrid(*(np.log(c) + 1.5 * node for c in centre), indexing="ij")
        kappa = np.exp(np.stack([u1.ravel(), u2.ravel()], axis=1))
        log_p = np.array(_log_likelihood(d)(jnp.asarray(kappa), S, n))
    log_p += np.log(kappa).sum(1) - kappa.sum(1) / PRIOR_MEAN
    p = np.exp(log_p - log_p.max())
    border = p.reshape(nodes, nodes)
    if max(border[0].max(), border[-1].max(), border[:, 0].max(), border[:, -1].max()) > 1e-6:
        return np.full(2, np.nan)
    p *= np.outer(weight, weight).ravel()
    return p @ kappa / p.sum()
