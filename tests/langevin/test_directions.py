"""Caps and regions hold the share they promise, wherever they are on the sphere."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from offcut.errors import DataError, SettingsError
from offcut.langevin.evaluation import (
    Cap,
    angles,
    cap,
    caps,
    circle,
    joint_region,
    modal_frames,
    tangents,
)

AXES = [*np.eye(3), *-np.eye(3), np.ones(3) / np.sqrt(3)]


def rng():
    return np.random.default_rng(11)


def polar(matrices):
    U, _, V = np.linalg.svd(matrices, full_matrices=False)
    return U @ V


def frames_near(centre, spread, m, seed=5):
    """Frames around a centre."""
    noise = np.random.default_rng(seed).normal(size=(m, *centre.shape))
    return polar(centre + spread * noise)


def von_mises_fisher(kappa, m, seed=7):
    """Around the third axis in R³; 1 - cos(angle) has a closed form."""
    random = np.random.default_rng(seed)
    e = -np.log1p(random.uniform(size=m) * np.expm1(-2 * kappa)) / kappa
    turn = random.uniform(0, 2 * np.pi, m)
    across = np.sqrt(e * (2 - e))
    return np.stack([across * np.cos(turn), across * np.sin(turn), 1 - e], axis=1)


class TestCap:
    @pytest.mark.parametrize("probability", [0.5, 0.9, 0.99])
    @pytest.mark.parametrize("kappa", [1.5, 12.0, 1e6])
    def test_angle_of_von_mises_fisher(self, kappa, probability):
        m = 40_000
        found = cap(von_mises_fisher(kappa, m), probability)
        # The share within the angle found, by the formula, has a binomial's spread; the mean
        # direction costs next to nothing. Five standard deviations: 6e-7.
        e = 2 * np.sin(found.angle / 2) ** 2
        within = np.expm1(-kappa * e) / np.expm1(-2 * kappa)
        assert abs(within - probability) < 5 * np.sqrt(probability * (1 - probability) / m)
        assert angles(found.centre, np.eye(3)[2]) < 5 * np.sqrt(2 / (kappa * m)) + 0.02 / kappa

    @pytest.mark.parametrize(
        ("probability", "m", "count"),
        [(0.9, 10, 9), (0.91, 10, 10), (1e-9, 10, 1), (0.55, 100, 55), (1.0, 7, 7)],
    )
    def test_holds_as_many_as_asked_and_not_one_more(self, probability, m, count):
        vectors = von_mises_fisher(3.0, m)
        found = cap(vectors, probability)
        assert found.contains(vectors).sum() == count
        assert found.probability == probability
        smaller = Cap(found.centre, found.angle * (1 - 1e-9) - 1e-9, probability)
        assert smaller.contains(vectors).sum() == count - 1

    @pytest.mark.parametrize("d", [1, 2, 3, 20])
    def test_turns_with_the_vectors(self, d):
        vectors = polar(np.eye(d)[:, :1] + 0.5 * rng().normal(size=(500, d, 1)))[:, :, 0]
        turn = polar(rng().normal(size=(d, d)))
        before, after = cap(vectors, 0.8), cap(vectors @ turn.T, 0.8)
        np.testing.assert_allclose(after.centre, turn @ before.centre, atol=1e-13)
        assert after.angle == pytest.approx(before.angle, abs=1e-13)

    @pytest.mark.parametrize("d", [2, 3, 9, 40])
    def test_the_draw_on_the_boundary_is_inside(self, d):
        vectors = polar(np.eye(d)[:, :1] + 0.3 * rng().normal(size=(100, d, 1)))[:, :, 0]
        # Another memory layout sums in another order: the last digits differ.
        again = np.asfortranarray(vectors)
        held = [cap(vectors, k / 100).contains(again).sum() for k in range(1, 101)]
        assert held == list(range(1, 101))

    def test_tiny_angles_keep_their_digits(self):
        # An arc cosine would give 0 here.
        at = np.array([-2e-9, -1e-9, 0.0, 1e-9, 2e-9])
        found = cap(np.stack([np.cos(at), np.sin(at)], axis=1), 0.6)
        assert found.angle == pytest.approx(1e-9, rel=1e-6)
        assert angles(np.array([-np.cos(1e-9), np.sin(1e-9)]), np.array([1.0, 0.0])) < np.pi

    def test_wide_caps_pass_a_right_angle(self):
        vectors = np.array([[1.0, 0, 0]] * 3 + [[-1.0, 0, 0]])
        assert cap(vectors, 1.0).degrees == pytest.approx(180)
        assert cap(vectors, 0.75).degrees == 0

    def test_single_precision_is_good_enough(self):
        vectors = von_mises_fisher(5.0, 300)
        single = cap(vectors.astype(np.float32))
        assert single.angle == pytest.approx(cap(vectors).angle, abs=1e-5)

    def test_it_reads_in_degrees(self):
        said = str(Cap(np.array([0.0, 0.6, 0.8]), np.radians(12.34), 0.9, 1))
        assert said == "Cap(column 1: 0.9 within 12.3° of (0.000, 0.600, 0.800))"

    def test_opposites_have_no_mean_direction(self):
        vectors = von_mises_fisher(2.0, 50)
        with pytest.raises(DataError, match=r"100 draws of column 0 .*they cancel"):
            cap(np.concatenate([vectors, -vectors]))

    @pytest.mark.parametrize(
        ("vectors", "said"),
        [
            (np.zeros((0, 3)), r"\(0, 3\)"),
            (np.ones(3), r"\(draws, dimension\)"),
            ([[1.0, 0.0], [0.0, 2.0]], "1 of 2 do not; the first, at 1, has length 2"),
            ([[1.0, 0.0], [np.nan, 0.0]], "the first, at 1, has length nan"),
        ],
    )
    def test_bad_vectors_are_refused_in_words(self, vectors, said):
        with pytest.raises(DataError, match=said):
            cap(vectors)

    @pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, 90, np.nan])
    def test_bad_shares_are_refused(self, probability):
        with pytest.raises(SettingsError, match="probability must be above 0 and at most 1"):
            cap(np.eye(3), probability)


class TestFrames:
    centre = polar(np.array([[1.0, 0.2], [0.3, -1.0], [0.5, 0.4]]))

    def test_one_cap_for_each_column(self):
        frames = frames_near(self.centre, 0.2, 400)
        found = caps(frames, 0.75)
        assert [each.column for each in found] == [0, 1]
        for j, each in enumerate(found):
            assert each.contains(frames[:, :, j]).sum() == 300
            np.testing.assert_allclose(each.centre, self.centre[:, j], atol=0.05)

    def test_joint_region_holds_all_columns_at_once(self):
        frames = frames_near(self.centre, 0.2, 1000)
        alone = np.all([c.contains(frames[:, :, c.column]) for c in caps(frames)], axis=0)
        joint = joint_region(frames)
        assert alone.mean() < 0.88
        assert joint.contains(frames).sum() == 900
        together = np.all([c.contains(frames[:, :, c.column]) for c in joint.caps], axis=0)
        np.testing.assert_array_equal(together, joint.contains(frames))
        np.testing.assert_allclose(joint.centre.T @ joint.centre, np.eye(2), atol=1e-14)
        assert "all columns within" in str(joint)

    @pytest.mark.parametrize("p", [1, 2, 3])
    def test_joint_region_turns_with_the_frames(self, p):
        frames = frames_near(np.eye(3)[:, :p], 0.3, 300)
        turn = polar(rng().normal(size=(3, 3)))
        before, after = joint_region(frames, 0.8), joint_region(turn @ frames, 0.8)
        np.testing.assert_allclose(after.centre, turn @ before.centre, atol=1e-12)
        assert after.angle == pytest.approx(before.angle, abs=1e-12)

    def test_no_frame_is_nearest_to_a_flat_average(self):
        flipped = np.stack([np.eye(3)[:, :2], np.eye(3)[:, :2] * [1, -1]])
        with pytest.raises(DataError, match="singular values"):
            joint_region(flipped)
        with pytest.raises(DataError, match="draws of column 1"):
            caps(flipped)

    def test_bad_frames_are_refused_in_words(self):
        with pytest.raises(DataError, match=r"p <= d, got shape \(4, 2, 3\)"):
            caps(np.zeros((4, 2, 3)))
        with pytest.raises(DataError, match="8 of 8 do not"):
            joint_region(2 * np.stack([np.eye(2)] * 4))


class TestModalFrames:
    def tree(self, **variables):
        dims = {"G": ("row", "column"), "H": ("column", "column_other"), "kappa": ("column",)}
        return xr.DataTree.from_dict(
            {
                "posterior": xr.Dataset(
                    {name: (("chain", "draw", *dims[name]), v) for name, v in variables.items()}
                )
            }
        )

    def test_with_and_without_h(self):
        G = polar(rng().normal(size=(2, 5, 4, 3)))
        H = polar(rng().normal(size=(2, 5, 3, 3)))
        np.testing.assert_array_equal(modal_frames(self.tree(G=G)), G.reshape(10, 4, 3))
        both = modal_frames(self.tree(G=G, H=H))
        np.testing.assert_allclose(both[7], G[1, 2] @ H[1, 2].T, atol=1e-14)
        # Signs of singular vectors do not matter.
        signs = np.array([1, -1, -1])
        np.testing.assert_allclose(modal_frames(self.tree(G=G * signs, H=H * signs)), both)

    def test_another_model_is_refused_in_words(self):
        with pytest.raises(DataError, match=r"no G, only \['kappa'\].*matrix Langevin"):
            modal_frames(self.tree(kappa=np.ones((1, 2, 2))))


class TestCircle:
    @pytest.mark.parametrize("centre", AXES)
    @pytest.mark.parametrize("degrees", [0.0, 1e-7, 20.0, 90.0, 140.0, 180.0])
    def test_points_lie_at_the_angle(self, centre, degrees):
        points = circle(Cap(centre, np.radians(degrees), 0.9), 50)
        assert points.shape == (50, 3)
        np.testing.assert_allclose(angles(points, centre), np.radians(degrees), atol=1e-14)
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-14)
        np.testing.assert_allclose(points[0], points[-1], atol=1e-15)
        # Evenly spread: they average to the middle of the circle.
        middle = np.cos(np.radians(degrees)) * centre
        np.testing.assert_allclose(points[:-1].mean(0), middle, atol=1e-14)

    def test_tangents_are_right_handed(self):
        for centre in [*AXES, *polar(rng().normal(size=(20, 3, 1)))[:, :, 0]]:
            frame = np.stack([*tangents(centre), centre], axis=1)
            np.testing.assert_allclose(frame.T @ frame, np.eye(3), atol=1e-14)
            assert np.linalg.det(frame) == pytest.approx(1)

    def test_only_on_the_sphere_in_three_dimensions(self):
        with pytest.raises(DataError, match=r"three dimensions.*this one has 2"):
            circle(Cap(np.array([1.0, 0.0]), 0.1, 0.9))
        with pytest.raises(SettingsError, match="at least 4, got 2"):
            circle(Cap(np.eye(3)[0], 0.1, 0.9), 2)
