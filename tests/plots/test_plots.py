"""The pictures show what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy import stats

import offcut
from offcut import plots
from offcut.errors import DataError, SettingsError
from offcut.plots.rejection_models import BEFORE

mpl.use("Agg")

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(3).exponential(1.0, size=40)
BUDGET = 500


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    return offcut.truncated(
        prior={"loc": dist.Normal(0, 1), "scale": dist.LogNormal(0, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )


@pytest.fixture(scope="module")
def posterior(model):
    kernel = offcut.HMC(0.1, 5)
    return offcut.sample(
        model, X, draws=120, warmup=50, chains=2, kernel=kernel, budget=BUDGET, progress=False
    )


def handmade(rejected, budget, **variables):
    """A result with the given counts and draws, both (chain, draw, ...)."""
    dims = ("chain", "draw", "k", "l")
    draws = {name: (dims[: np.ndim(v)], v) for name, v in variables.items()}
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs={"budget": budget}),
            "posterior": xr.Dataset(draws),
            "sample_stats": xr.Dataset({"rejected": (("chain", "draw"), rejected)}),
        }
    )


def drawn(figure, tmp_path):
    """The figure, after it was really rendered."""
    file = tmp_path / "picture.png"
    figure.savefig(file)
    assert file.stat().st_size > 5_000
    return figure


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


class TestDensity:
    def test_line_band_and_histogram(self, posterior, model, tmp_path):
        figure = drawn(plots.density(posterior, model, draws=10_000, xlabel="flux"), tmp_path)
        (axes,) = figure.axes
        assert axes.get_xlabel() == "flux"
        grid, mean = lines(axes)[BEFORE].get_data()
        theta = posterior["posterior"].dataset.stack(s=("chain", "draw"))
        curves = stats.norm.pdf(grid[:, None], theta["loc"].values, theta["scale"].values)
        np.testing.assert_allclose(mean, curves.mean(1), rtol=1e-10)
        (band,) = axes.collections
        vertices = band.get_paths()[0].vertices
        low, high = np.quantile(curves, [0.05, 0.95], axis=1)
        middle = len(grid) // 2
        at_middle = vertices[np.isclose(vertices[:, 0], grid[middle]), 1]
        np.testing.assert_allclose(sorted(at_middle), [low[middle], high[middle]])
        # The area of the histogram is the share that passes the filter.
        values, edges, _ = axes.patches[0].get_data()
        passing = float(posterior["sample_stats"]["proposal_acceptance_rate"].mean())
        assert np.sum(values * np.diff(edges)) == pytest.approx(passing)
        assert edges[0] == X.min()

    def test_the_window_is_seen_and_shown(self, posterior, model):
        figure = plots.density(posterior, model, grid=np.linspace(-2, 3, 101))
        (image,) = figure.axes[0].get_images()
        np.testing.assert_array_equal(image.get_array()[0], np.linspace(-2, 3, 101) <= 0)
        assert "never recorded" in lines(figure.axes[0])

    def test_by_default_it_looks_beyond_the_window(self, posterior, model):
        low, high = plots.density(posterior, model).axes[0].get_xlim()
        assert low < -0.5
        assert high >= X.max()

    def test_truth_and_naive(self, posterior, model):
        truth, naive = {"loc": 0.0, "scale": 1.0}, {"loc": X.mean(), "scale": X.std()}
        axes = plots.density(posterior, model, truth=truth, naive=naive).axes[0]
        for label, theta in (("truth", truth), ("filter ignored", naive)):
            grid, curve = lines(axes)[label].get_data()
            np.testing.assert_allclose(curve, stats.norm.pdf(grid, *theta.values()), rtol=1e-10)
        assert axes.get_ylim()[1] > stats.norm.pdf(0) * 0.99

    def test_a_selection_is_shaded_by_what_it_loses(self, posterior):
        selected = offcut.selected(
            prior={"loc": dist.Normal(0, 1), "scale": dist.LogNormal(0, 0.3)},
            base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
            log_accept=lambda theta, y: -(y**2) / 2,
        )
        axes = plots.density(posterior, selected, grid=np.linspace(-2, 2, 5)).axes[0]
        shade = axes.get_images()[0].get_array()[0]
        np.testing.assert_allclose(shade, 1 - np.exp(-(np.linspace(-2, 2, 5) ** 2) / 2), atol=1e-12)
        assert "not always recorded" in lines(axes)

    def test_covariates_and_vectors_are_refused_in_words(self, posterior, model):
        for extra in ({"x": (("o", "d"), np.zeros((3, 2)))}, {"x": ("o", X), "year": ("o", X)}):
            tree = posterior.copy()
            tree["observed_data"] = xr.DataTree(xr.Dataset(extra))
            with pytest.raises(DataError, match=r"single real numbers.*plots\.posterior"):
                plots.density(tree, model)


class TestPosterior:
    def test_panels_intervals_and_references(self, posterior, tmp_path):
        figure = drawn(plots.posterior(posterior, {"loc": 0.1}, naive={"scale": 2.5}), tmp_path)
        assert [axes.get_xlabel() for axes in figure.axes] == ["loc", "scale"]
        for axes, name, reference in zip(figure.axes, ("loc", "scale"), (0.1, 2.5), strict=True):
            draws = posterior["posterior"][name].values
            bar = next(line for line in axes.get_lines() if line.get_linewidth() == 3)
            np.testing.assert_allclose(bar.get_xdata(), np.quantile(draws, [0.05, 0.95]))
            assert list(axes.get_lines()[-1].get_xdata()) == [reference] * 2
            assert axes.get_xlim()[0] < reference < axes.get_xlim()[1]
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels[-2:] == ["truth", "filter ignored"]

    def test_vectors_have_a_panel_for_each_entry(self):
        draws = np.random.default_rng(0).normal(size=(2, 50, 2))
        tree = handmade(np.zeros((2, 50), int), "none", mu=draws)
        figure = plots.posterior(tree, truth={"mu": [1.0, 2.0]})
        assert [axes.get_xlabel() for axes in figure.axes] == ["mu[0]", "mu[1]"]
        assert [axes.get_lines()[-1].get_xdata()[0] for axes in figure.axes] == [1.0, 2.0]

    def test_a_constant_parameter_is_drawn(self, tmp_path):
        tree = handmade(np.zeros((1, 9), int), "none", a=np.full((1, 9), 3.0))
        drawn(plots.posterior(tree), tmp_path)

    def test_too_many_and_unknown_names(self):
        draws = np.random.default_rng(0).normal(size=(2, 50, 5, 5))
        tree = handmade(np.zeros((2, 50), int), "none", w=draws, a=draws[..., 0, 0])
        with pytest.raises(SettingsError, match=r"26 parameters.*names="):
            plots.posterior(tree)
        assert len(plots.posterior(tree, names=["a"]).axes) == 1
        with pytest.raises(SettingsError, match=r"\['b'\].*\['w', 'a'\]"):
            plots.posterior(tree, names=["b"])


class TestRejections:
    def test_budget_and_shares(self, posterior, tmp_path):
        figure = drawn(plots.rejections(posterior), tmp_path)
        left, right = figure.axes
        at = {label: line.get_xdata()[0] for label, line in lines(left).items()}
        assert at == {"half the budget": BUDGET // 2, f"budget {BUDGET}": BUDGET}
        assert left.patches[0].get_data().values.sum() == pytest.approx(1.0)
        np.testing.assert_array_equal(
            right.get_lines()[0].get_ydata(), posterior["sample_stats"]["rejected"][0]
        )

    def test_draws_beyond_half_the_budget_are_counted(self):
        rejected = np.array([[10, 20, 60, 90], [50, 51, 20, 20]])
        figure = plots.rejections(handmade(rejected, 100))
        assert figure.axes[0].get_title(loc="left") == "37.5% beyond half the budget"

    def test_without_a_budget_and_with_zeros(self, tmp_path):
        figure = drawn(plots.rejections(handmade(np.arange(40).reshape(2, 20), "none")), tmp_path)
        assert not figure.axes[0].get_lines()
        assert figure.axes[0].patches[0].get_data().values.sum() == pytest.approx(1.0)
        drawn(plots.rejections(handmade(np.zeros((2, 20), int), 0)), tmp_path)


def test_without_matplotlib_it_says_what_to_install(posterior, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'offcut\[plots\]'"):
        plots.rejections(posterior)


def test_a_style_does_not_undo_what_the_backend_sets(tmp_path):
    """As Jupyter's does when it is loaded: else notebooks show the first picture only."""
    (tmp_path / "loud_backend.py").write_text(
        "import matplotlib\nfrom matplotlib.backends.backend_agg import *\n"
        "matplotlib.interactive(True)\n"
    )
    code = (
        "from offcut.plots.style import STYLE, pyplot\n"
        "plt = pyplot()\n"
        "with plt.rc_context(STYLE):\n    plt.subplots()\n"
        "assert plt.isinteractive()\n"
    )
    path = {"PYTHONPATH": str(tmp_path), "MPLBACKEND": "module://loud_backend"}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | path)
