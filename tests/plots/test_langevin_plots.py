"""The pictures of frames show every observation, and circles where they belong."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from offcut.errors import DataError, SettingsError
from offcut.langevin.evaluation import angles, caps, modal_frames
from offcut.plots.frame_maps import PREDICTIVE, _free_height, equal_area
from offcut.plots.langevin_models import MOST_POINTS, concentrations, frames
from offcut.plots.style import BLUE, GREEN, ORANGE

mpl.use("Agg")

N = 40


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    mpl.pyplot.close("all")


def polar(matrices):
    U, _, V = np.linalg.svd(matrices, full_matrices=False)
    return U @ V


def drawn(figure, tmp_path):
    """The figure, after it was really rendered."""
    file = tmp_path / "picture.png"
    figure.savefig(file)
    assert file.stat().st_size > 5_000
    return figure


def case(p=2, n=N, d=3, with_h=False, kappa=(12.0, 6.0, 2.0), seed=2):
    """A posterior by hand, and predictive frames."""
    random = np.random.default_rng(seed)
    centre = polar(random.normal(size=(d, p)))

    def around(spread, *shape):
        return polar(centre + spread * random.normal(size=(*shape, d, p)))

    G, H = around(0.05, 2, 60), np.broadcast_to(np.eye(p), (2, 60, p, p))
    if with_h:
        H = polar(random.normal(size=(2, 60, p, p)))
        G = G @ H
    variables = {
        "kappa": (
            ("chain", "draw", "column"),
            random.gamma(40, np.array(kappa[:p]) / 40, (2, 60, p)),
        ),
        "G": (("chain", "draw", "row", "column"), G),
    }
    if with_h:
        variables["H"] = (("chain", "draw", "column", "column_other"), H)
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(variables),
            "observed_data": xr.Dataset({"x": (("n", "row", "column"), around(0.4, n))}),
        }
    )
    return tree, around(0.4, 200)


def named(axes, name):
    """Artists by what they are."""
    return [artist for artist in axes.get_children() if artist.get_gid() == name]


def points_on_sphere(axes, j):
    """All of them, near and far: (n, 3)."""
    return np.concatenate([np.stack(a._offsets3d, axis=1) for a in named(axes, f"observed-{j}")])


def line_on_sphere(axes, name):
    lines = np.concatenate([np.stack(a.get_data_3d(), axis=1) for a in named(axes, name)])
    return lines[~np.isnan(lines[:, 0])]


def same_set(one, other):
    order = [np.lexsort(np.round(rows, 9).T) for rows in (one, other)]
    np.testing.assert_allclose(np.asarray(one)[order[0]], np.asarray(other)[order[1]], atol=1e-12)


class TestSphere:
    @pytest.mark.parametrize(("p", "with_h"), [(1, False), (2, True), (3, False)])
    def test_points_and_circles(self, p, with_h, tmp_path):
        tree, predictive = case(p, with_h=with_h)
        figure = frames(tree, predictive, 0.8)
        if p == 2:
            drawn(figure, tmp_path)
        (axes,) = figure.axes
        x = tree["observed_data"]["x"].values
        expected = {
            "credible": caps(modal_frames(tree), 0.8),
            "predictive": caps(predictive, 0.8),
        }
        for j in range(p):
            same_set(points_on_sphere(axes, j), x[:, :, j])
            for kind, found in expected.items():
                line = line_on_sphere(axes, f"{kind}-{j}")
                np.testing.assert_allclose(angles(line, found[j].centre), found[j].angle, rtol=1e-9)
                dashed = {artist.is_dashed() for artist in named(axes, f"{kind}-{j}")}
                assert dashed == {kind == "predictive"}
        words = " ".join(text.get_text() for text in axes.texts)
        assert all(name in words for name in ("first column", "second column", "third column")[:p])
        assert f"new ±{expected['predictive'][0].degrees:.0f}°" in words

    def test_what_is_behind_lies_below_the_veil(self):
        tree, _ = case()
        (axes,) = frames(tree, view=(0, 0)).axes
        (veil,) = [c for c in axes.collections if type(c).__name__ == "Poly3DCollection"]
        for artist in [*named(axes, "observed-0"), *named(axes, "observed-1")]:
            ahead = artist._offsets3d[0] >= 0  # seen along the first axis
            assert ahead.all() if artist.zorder > veil.zorder else not ahead.any()

    def test_by_default_all_modal_directions_are_on_the_near_side(self):
        for p, seed in ((1, 0), (2, 1), (3, 3)):
            tree, _ = case(p, seed=seed)
            (axes,) = frames(tree).axes
            e, a = np.radians([axes.elev, axes.azim])
            towards = [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)]
            assert all(each.centre @ towards > 0 for each in caps(modal_frames(tree)))

    def test_without_predictive_frames_nothing_is_dashed(self):
        (axes,) = frames(case()[0]).axes
        assert named(axes, "credible-0")
        assert not named(axes, "predictive-0")
        assert "dashed" not in axes.get_title(loc="center")
        (axes,) = frames(*case()).axes
        assert "dashed: 90% of new observations" in axes.get_title(loc="center")

    def test_axes_of_the_users(self):
        tree, _ = case()
        figure, axes = mpl.pyplot.subplots(subplot_kw={"projection": "3d"})
        assert frames(tree, ax=axes, names=["QRS", "normal"]) is figure
        assert any(text.get_text().startswith("QRS") for text in axes.texts)
        with pytest.raises(SettingsError, match="3-D axes"):
            frames(tree, ax=mpl.pyplot.subplots()[1])

    def test_labels_keep_their_distance(self):
        assert _free_height(0.1, []) == pytest.approx(0.1, abs=0.02)
        assert abs(_free_height(0.1, [(0.0, 0.4)])) >= 0.4


class TestMaps:
    @pytest.mark.parametrize("p", [1, 2, 3])
    def test_points_and_circles(self, p, tmp_path):
        tree, predictive = case(p)
        figure = frames(tree, predictive, projection="equal-area")
        if p == 2:
            drawn(figure, tmp_path)
        assert len(figure.axes) == p
        x = tree["observed_data"]["x"].values
        modes, ahead = caps(modal_frames(tree)), caps(predictive)
        for j, axes in enumerate(figure.axes):
            (points,) = named(axes, f"observed-{j}")
            away = np.linalg.norm(points.get_offsets(), axis=1)
            expected = 2 * np.sin(angles(x[:, :, j], modes[j].centre) / 2)
            np.testing.assert_allclose(away, expected, atol=1e-12)
            assert (away < axes.get_xlim()[1]).all()
            (line,) = named(axes, f"credible-{j}")
            radius = np.linalg.norm(line.get_xydata(), axis=1)
            np.testing.assert_allclose(radius, 2 * np.sin(modes[j].angle / 2), atol=1e-12)
            (line,) = named(axes, f"predictive-{j}")
            assert line.is_dashed()
            assert line.get_linewidth() == PREDICTIVE["linewidth"]
            # Around a centre of its own, near that of the map.
            radius = np.linalg.norm(line.get_xydata(), axis=1)
            between = angles(ahead[j].centre, modes[j].centre)
            low, high = 2 * np.sin((ahead[j].angle + np.array([-1, 1]) * between) / 2)
            assert radius.min() == pytest.approx(low, abs=1e-4)
            assert radius.max() == pytest.approx(high, abs=1e-4)

    def test_neighbours_are_where_the_map_says(self):
        tree, _ = case(2)
        modes = [each.centre for each in caps(modal_frames(tree))]
        up = []
        for j, axes in enumerate(frames(tree, projection="equal-area").axes):
            (word,) = [t for t in axes.texts if t.get_text().startswith("towards")]
            assert word.get_text() == f"towards {('second', 'first')[j]} column"
            side = np.sign(word.xy[0])
            along = modes[1 - j] - (modes[1 - j] @ modes[j]) * modes[j]
            right = side * along / np.linalg.norm(along)
            x = tree["observed_data"]["x"].values[:, :, j]
            (points,) = named(axes, f"observed-{j}")
            np.testing.assert_allclose(points.get_offsets(), equal_area(x, modes[j], right))
            up.append(np.cross(modes[j], right))
        np.testing.assert_allclose(*up, atol=0.05)
        assert up[0][2] >= 0

    def test_tight_frames_fill_the_map(self):
        tree, _ = case(1)
        centre = caps(modal_frames(tree))[0].centre[:, None]
        x = polar(centre + 1e-4 * np.random.default_rng(0).normal(size=(N, 3, 1)))
        tree["observed_data"] = xr.DataTree(xr.Dataset({"x": (("n", "row", "column"), x)}))
        tree["posterior"] = xr.DataTree(xr.Dataset({"G": (("chain", "draw", "r", "c"), x[None])}))
        (axes,) = frames(tree, projection="equal-area").axes
        away = np.linalg.norm(named(axes, "observed-0")[0].get_offsets(), axis=1).max()
        assert 0.3 * axes.get_xlim()[1] < away < axes.get_xlim()[1]

    def test_axes_of_the_users(self):
        tree, _ = case()
        figure, axes = mpl.pyplot.subplots(2, 1)
        assert frames(tree, projection="equal-area", ax=axes) is figure
        with pytest.raises(SettingsError, match="need 2 flat axes"):
            frames(tree, projection="equal-area", ax=axes[0])

    def test_equal_areas_stay_equal(self):
        # A fifth of the sphere at a time, by Archimedes: rings of equal height.
        height = np.linspace(1, -1, 6)
        sphere = np.stack([np.sqrt(1 - height**2), 0 * height, height], axis=1)
        flat = equal_area(sphere, np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]))
        np.testing.assert_allclose(np.diff((flat**2).sum(1)), 4 / 5)
        np.testing.assert_allclose(flat[[0, -1]], [[0, 0], [2, 0]])


class TestRefusals:
    @pytest.mark.parametrize("d", [2, 4])
    def test_other_dimensions(self, d):
        with pytest.raises(DataError, match=rf"three dimensions.*\(40, {d}, 2\).*caps"):
            frames(case(d=d)[0])

    def test_settings(self):
        tree, predictive = case()
        with pytest.raises(SettingsError, match="'mercator'"):
            frames(tree, projection="mercator")
        with pytest.raises(SettingsError, match="one for each of the 2 columns"):
            frames(tree, names=["one"])
        with pytest.raises(DataError, match=r"\(3, 1\), the observed ones \(3, 2\)"):
            frames(tree, predictive[:, :, :1])
        with pytest.raises(SettingsError, match="probability"):
            frames(tree, probability=90)
        with pytest.raises(SettingsError, match="'a guess' has shape"):
            concentrations(tree, {"a guess": (1.0,)})

    def test_many_observations_are_thinned(self):
        (axes,) = frames(case(n=MOST_POINTS + 500)[0]).axes
        assert len(points_on_sphere(axes, 0)) == MOST_POINTS


class TestConcentrations:
    @pytest.mark.parametrize("p", [1, 2, 3])
    def test_rows(self, p, tmp_path):
        tree, _ = case(p)
        kappa = tree["posterior"]["kappa"].values
        figure = concentrations(tree, {"truth": [12.0, 6.0, 2.0][:p]})
        if p == 2:
            drawn(figure, tmp_path)
        assert len(figure.axes) == (2 if p == 2 else 1)
        rows = figure.axes[0]
        for j in range(p):
            (bar,) = named(rows, f"interval-{j}")
            np.testing.assert_allclose(bar.get_xdata(), np.quantile(kappa[..., j], [0.05, 0.95]))
            (line,) = named(rows, f"density-{j}")
            assert line.get_color() == (BLUE, ORANGE, GREEN)[j]
            grid, heights = line.get_data()
            peak = grid[np.argmax(heights)]
            assert abs(peak - np.median(kappa[..., j])) < kappa[..., j].std()
        marked = [line.get_xdata()[0] for line in rows.get_lines() if line.get_label() == "truth"]
        assert marked == [12.0, 6.0, 2.0][:p]
        # The first column is on top.
        heights = [named(rows, f"interval-{j}")[0].get_ydata()[0] for j in range(p)]
        assert heights == sorted(heights, reverse=True)

    def test_both_together(self):
        tree, _ = case(2)
        both = concentrations(tree).axes[1]
        (draws,) = named(both, "draws")
        np.testing.assert_array_equal(
            draws.get_offsets(), tree["posterior"]["kappa"].values.reshape(-1, 2)
        )
        (contours,) = [c for c in both.collections if type(c).__name__ == "QuadContourSet"]
        outer, inner = contours.get_paths()
        share = outer.contains_points(draws.get_offsets()).mean()
        assert 0.85 <= share <= 0.95
        assert 0.44 <= inner.contains_points(draws.get_offsets()).mean() <= 0.56

    def test_far_apart_on_a_logarithmic_axis(self):
        _, axes = mpl.pyplot.subplots(1, 2)
        for kappa, rows, scale in zip(
            ((12.0, 6.0), (900.0, 5.0)), axes, ("linear", "log"), strict=True
        ):
            concentrations(case(kappa=kappa)[0], ax=rows)
            assert rows.get_xscale() == scale

    def test_nothing_below_zero(self):
        tree, _ = case(1)
        draws = np.random.default_rng(0).exponential(1.0, (2, 100, 1))
        tree["posterior"] = xr.DataTree(xr.Dataset({"kappa": (("chain", "draw", "k"), draws)}))
        (line,) = named(concentrations(tree).axes[0], "density-0")
        grid, heights = line.get_data()
        assert grid[0] == 0
        assert heights[0] == pytest.approx(heights.max(), rel=0.05)  # folded back, not halved

    def test_constant_draws_and_axes_of_the_users(self):
        tree, _ = case(2)
        tree["posterior"] = xr.DataTree(
            xr.Dataset({"kappa": (("chain", "draw", "k"), np.full((1, 9, 2), 3.0))})
        )
        assert len(concentrations(tree).axes) == 2
        figure, axes = mpl.pyplot.subplots()
        assert concentrations(case(2)[0], ax=axes) is figure
        assert len(figure.axes) == 1
