"""The pictures of Gaussian process densities and intensities show what they say."""

from __future__ import annotations

import jax
import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

import offcut
from offcut import plots
from offcut.errors import DataError, SettingsError
from offcut.plots.gp_models import MOST_POINTS
from offcut.samplers.choice import prepare

mpl.use("Agg")

X = np.random.default_rng(0).gamma(3.0, size=40)
OTHER = np.random.default_rng(1).gamma(5.0, size=40)  # as many: compiled once


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    mpl.pyplot.close("all")


@pytest.fixture(scope="module")
def model():
    return offcut.GPDensity(basis=12, length_scale=1.5, variance=1.0)


@pytest.fixture(scope="module")
def posterior(model):
    return offcut.sample(model, X, draws=50, warmup=50, chains=2, progress=False)


@pytest.fixture(scope="module")
def other(model, posterior):
    return offcut.sample(model, OTHER, draws=40, warmup=50, chains=2, progress=False)


def events(d, n=60):
    """An intensity model and a posterior of it by hand: f from a prior, a tenfold upper rate."""
    random = np.random.default_rng(d)
    x = random.beta(2, 3, n) * 10 if d == 1 else random.beta(2, 3, (n, d)) * [4.0, 3.0]
    window = (0.0, 10.0) if d == 1 else ([0.0, 0.0], [4.0, 3.0])
    made = offcut.GPIntensity(window, basis=6, length_scale=2.0, variance=1.0, rate=(2.0, 0.1))
    with jax.enable_x64(True):
        sampler, _, observed = prepare(made, x)
    shape = ("chain", "draw")
    weights = 0.5 * random.normal(size=(2, 30, sampler.plan.basis.number))
    tree = {
        "/": xr.Dataset(attrs={"draws_rejections": 1}),
        "posterior": xr.Dataset(
            {
                "weights": ((*shape, "function"), weights),
                "rate": (shape, random.gamma(50, 0.2, (2, 30))),
            }
        ),
        "sample_stats": xr.Dataset(
            {
                "log_normaliser": (shape, np.full((2, 30), np.log(0.5))),
                "rejected": (shape, random.poisson(n, (2, 30))),
            }
        ),
        "observed_data": xr.Dataset({"x": (("n", "axis")[:d], observed["x"])}),
    }
    return made, xr.DataTree.from_dict(tree)


def drawn(figure, tmp_path):
    """The figure, after it was really rendered."""
    file = tmp_path / "picture.png"
    figure.savefig(file)
    assert file.stat().st_size > 5_000
    return figure


def named(axes, name):
    """The artist of that name."""
    (artist,) = [artist for artist in axes.get_children() if artist.get_gid() == name]
    return artist


def edges_of(axes, name, at):
    """Where a band lies at a place of its grid."""
    vertices = named(axes, name).get_paths()[0].vertices
    return sorted(set(vertices[np.isclose(vertices[:, 0], at), 1]))


def rug(axes, row=0):
    return np.sort([segment[0, 0] for segment in named(axes, f"rug-{row}").get_segments()])


def words(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


class TestDensityBands:
    def test_one(self, model, posterior, tmp_path):
        figure = drawn(plots.density_bands(posterior, model, 0.8, xlabel="flux"), tmp_path)
        (axes,) = figure.axes
        assert words(axes) == ["median and 80% band"]
        assert axes.get_xlabel() == "flux"
        grid, median = named(axes, "line-0").get_data()
        expected = model.bands(posterior, grid, 0.8)
        np.testing.assert_allclose(median, expected.median)
        middle = len(grid) // 2
        found = edges_of(axes, "band-0", grid[middle])
        np.testing.assert_allclose(found, [expected.lower[middle], expected.upper[middle]])
        np.testing.assert_allclose(rug(axes), np.sort(X))
        # All of the band above zero is in the picture, and no tick is below.
        assert axes.get_ylim()[1] > expected.upper.max()
        assert min(axes.get_yticks()) == 0
        # Nearly all of the density is there, too.
        assert np.trapezoid(model.density(posterior, grid), grid) > 0.97

    def test_several(self, model, posterior, other, tmp_path):
        both = {"patients": posterior, "others": other}
        figure = plots.density_bands(both, model, truth=lambda x: np.exp(-x), grid=[0, 2, 4])
        (axes,) = drawn(figure, tmp_path).axes
        said = [f"{name}: median and 90% band" for name in both]
        assert words(axes) == [*said, "truth"]
        for row, one in enumerate(both.values()):
            expected = model.bands(one, [0, 2, 4]).median
            np.testing.assert_allclose(named(axes, f"line-{row}").get_ydata(), expected)
        np.testing.assert_allclose(named(axes, "truth").get_ydata(), np.exp([0, -2, -4]))
        np.testing.assert_allclose(rug(axes, 1), np.sort(OTHER))
        rows = [named(axes, f"rug-{row}").get_segments()[0][:, 1] for row in range(2)]
        assert max(rows[1]) < min(rows[0]) < max(rows[0]) < 0

    def test_by_default_all_data_of_all_groups_are_seen(self, model, posterior, other):
        (axes,) = plots.density_bands({"a": posterior, "b": other}, model).axes
        low, high = axes.get_xlim()
        assert low < min(X.min(), OTHER.min())
        assert high > max(X.max(), OTHER.max())

    def test_axes_of_the_users(self, model, posterior):
        figure, axes = mpl.pyplot.subplots()
        assert plots.density_bands(posterior, model, ax=axes) is figure
        assert plots.function_band(posterior, model, ax=mpl.pyplot.subplots()[1]) is not figure

    def test_a_support_ends_the_grid(self, posterior):
        bounded = offcut.GPDensity(basis=12, length_scale=1.5, variance=1.0, support=(0.0, 20.0))
        (axes,) = plots.density_bands(posterior, bounded).axes
        assert axes.get_xlim()[0] == pytest.approx(0.0, abs=1e-6)


class TestFunctionBand:
    def test_density(self, model, posterior, tmp_path):
        (axes,) = drawn(plots.function_band(posterior, model, 0.8), tmp_path).axes
        grid, median = named(axes, "line-0").get_data()
        f = model.function(posterior, grid)
        np.testing.assert_allclose(median, np.median(f, axis=(0, 1)))
        expected = np.quantile(f, [0.1, 0.9], axis=(0, 1))[:, 200]
        np.testing.assert_allclose(edges_of(axes, "band-0", grid[200]), expected)
        np.testing.assert_array_equal(named(axes, "prior").get_ydata(), 0)
        np.testing.assert_allclose(rug(axes), np.sort(X))
        assert words(axes) == ["median and 80% band", "prior mean"]

    def test_intensity(self):
        made, tree = events(1)
        (axes,) = plots.function_band(tree, made).axes
        np.testing.assert_allclose(axes.get_xlim(), (0, 10), atol=1e-5)


class TestRejectedProposals:
    def test_density(self, model, posterior, tmp_path):
        left, right = drawn(plots.rejected_proposals(posterior, model), tmp_path).axes
        sets = model.rejections(posterior, 100)
        values, edges, _ = named(left, "rejected").get_data()
        assert np.sum(values * np.diff(edges)) == pytest.approx(1, abs=0.003)
        mean = np.sum(values * np.diff(edges) * (edges[1:] + edges[:-1]) / 2)
        assert mean == pytest.approx(np.concatenate(sets).mean(), abs=0.05)
        assert f"{sum(map(len, sets)):,} in 100 draws" in left.get_title(loc="left")
        grid, density = named(left, "accepted").get_data()
        np.testing.assert_allclose(density, model.density(posterior, grid))
        rejected = posterior["sample_stats"]["rejected"].values
        title = right.get_title(loc="left")
        assert title == f"how many: median {np.median(rejected):,.0f}, most {rejected.max():,}"
        assert right.get_xlabel().endswith("in a sweep")
        assert sum(right.patches[0].get_data().values) == pytest.approx(1)

    def test_where_the_sampler_drew_none(self, model, posterior):
        collapsed = posterior.copy()
        collapsed.attrs["draws_rejections"] = 0
        _, right = plots.rejected_proposals(collapsed, model, draws=20, seed=3).axes
        most = max(map(len, model.rejections(posterior, 20, seed=3)))
        assert right.get_title(loc="left").endswith(f"most {most:,}")
        assert right.get_xlabel().endswith("in a draw")

    @pytest.mark.parametrize("d", [1, 2])
    def test_thinned_points(self, d, tmp_path):
        made, tree = events(d)
        left, right = drawn(plots.rejected_proposals(tree, made, draws=30), tmp_path).axes
        assert named(left, "rejected") is not None
        assert not [a for a in left.get_children() if a.get_gid() == "accepted"]
        assert "most" in right.get_title(loc="left")
        if d == 2:
            points = named(left, "observed").get_offsets()
            np.testing.assert_allclose(points, tree["observed_data"]["x"].values)

    def test_none_at_all(self):
        made, tree = events(1)
        tree["sample_stats"]["log_normaliser"] = 0.0 * tree["sample_stats"]["log_normaliser"]
        tree["sample_stats"]["rejected"] = 0 * tree["sample_stats"]["rejected"]
        left, right = plots.rejected_proposals(tree, made).axes
        assert left.get_title(loc="left") == "where: 0 in 60 draws"
        assert right.get_title(loc="left") == "how many: median 0, most 0"

    def test_axes_of_the_users(self, model, posterior):
        figure, axes = mpl.pyplot.subplots(2)
        assert plots.rejected_proposals(posterior, model, ax=axes) is figure
        with pytest.raises(SettingsError, match="two panels"):
            plots.rejected_proposals(posterior, model, ax=axes[0])


class TestDifference:
    def test_curves(self, model, posterior, other, tmp_path):
        names = ("patients", "others")
        figure = plots.difference(posterior, model, other, 0.8, names=names, xlabel="flux")
        top, bottom = drawn(figure, tmp_path).axes
        grid, mean = named(top, "line-0").get_data()
        expected = model.compare(posterior, other, grid, probability=0.8)
        np.testing.assert_allclose(mean, expected.mean)
        at = len(grid) // 3
        found = edges_of(top, "band-0", grid[at])
        np.testing.assert_allclose(found, [expected.lower[at], expected.upper[at]])
        np.testing.assert_allclose(rug(top, 0), np.sort(X))
        np.testing.assert_allclose(rug(top, 1), np.sort(OTHER))
        probability = named(bottom, "probability").get_ydata()
        np.testing.assert_allclose(probability, expected.probability_greater)
        assert words(top) == ["patients less others: mean and 80% band", *names]
        assert "patients is denser than others" in bottom.get_title(loc="left")
        assert bottom.get_ylim() == (-0.02, 1.02)
        assert bottom.get_xlabel() == "flux"

    def test_another_model(self, model, posterior, other):
        same = offcut.GPDensity(basis=12, length_scale=1.5, variance=1.0)
        one, two = (
            named(plots.difference(posterior, model, other, **more).axes[0], "line-0").get_data()
            for more in ({}, {"other_model": same})
        )
        np.testing.assert_allclose(one, two)


class TestIntensity:
    def test_on_a_line(self, tmp_path):
        made, tree = events(1)
        figure = plots.intensity(tree, made, 0.8, truth=lambda t: 3 + 0 * t, names=["hours"])
        (axes,) = drawn(figure, tmp_path).axes
        grid, median = named(axes, "line-0").get_data()
        np.testing.assert_allclose(grid[[0, -1]], (0, 10), atol=1e-5)
        expected = made.bands(tree, grid, 0.8)
        np.testing.assert_allclose(median, expected.median)
        assert axes.get_xlabel() == "hours"
        assert words(axes) == ["median and 80% band", "truth"]
        np.testing.assert_allclose(rug(axes), np.sort(tree["observed_data"]["x"].values))

    def test_on_a_map(self, tmp_path):
        made, tree = events(2)
        axes, bar = drawn(plots.intensity(tree, made, names=["east", "north"]), tmp_path).axes
        image = named(axes, "intensity")
        np.testing.assert_allclose(image.get_extent(), (0, 4, 0, 3), atol=1e-5)
        shown = image.get_array()
        side = len(shown)
        place = [4 * 10.5 / side, 3 * 50.5 / side]  # eleventh column, row 51 from below
        assert shown[50, 10] == pytest.approx(made.intensity(tree, [place])[0], rel=1e-5)
        assert image.get_clim()[0] == 0
        points = named(axes, "observed").get_offsets()
        np.testing.assert_allclose(points, tree["observed_data"]["x"].values)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("east", "north")
        assert bar.get_ylabel() == "posterior mean intensity"
        assert axes.get_aspect() == 1.0

    def test_many_events_are_thinned(self):
        made, tree = events(2, MOST_POINTS + 500)
        points = named(plots.intensity(tree, made).axes[0], "observed").get_offsets()
        assert len(points) == MOST_POINTS


class TestRefusals:
    def test_dimensions(self, posterior):
        plane = xr.DataTree.from_dict(
            {"observed_data": xr.Dataset({"x": (("n", "axis"), np.zeros((5, 2)))})}
        )
        model = offcut.GPDensity()
        with pytest.raises(DataError, match=r"density_bands is for one dimension.*have 2"):
            plots.density_bands(plane, model)
        with pytest.raises(DataError, match=r"function_band is for one dimension"):
            plots.function_band(plane, model)
        with pytest.raises(DataError, match=r"difference is for one dimension"):
            plots.difference(posterior, model, plane)

    def test_models(self, model, posterior):
        with pytest.raises(SettingsError, match=r"and a GPIntensity, got GPDensity"):
            plots.intensity(posterior, model)

    @pytest.mark.parametrize(
        "name",
        ["density_bands", "function_band", "rejected_proposals", "intensity", "density", "mixture"],
    )
    def test_the_model_comes_second(self, name, model, posterior):
        with pytest.raises(SettingsError, match=rf"{name}\(posterior, model, .*got GPDensity and"):
            getattr(plots, name)(model, posterior)
        with pytest.raises(SettingsError, match=r"difference\(posterior, model, "):
            plots.difference(model, posterior, posterior)

    def test_settings(self, model, posterior, other):
        with pytest.raises(SettingsError, match="empty dict"):
            plots.density_bands({}, model)
        with pytest.raises(SettingsError, match="probability"):
            plots.density_bands(posterior, model, 80)
        with pytest.raises(SettingsError, match="one for each of the 2 groups"):
            plots.difference(posterior, model, other, names=["a"])
        with pytest.raises(SettingsError, match="one for each of the 1 coordinates"):
            plots.rejected_proposals(posterior, model, names=["a", "b"])
