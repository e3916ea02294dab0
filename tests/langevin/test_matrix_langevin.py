"""``offcut.MatrixLangevin``: densities, moments, estimates, edge cases and errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

from offcut import MatrixLangevin
from offcut.errors import DataError, ModelError, TrustWarning
from offcut.langevin import normaliser
from offcut.langevin.draws import expected_acceptance
from offcut.langevin.normaliser import approximate_log_normaliser
from offcut.numerics import keys

pytestmark = pytest.mark.usefixtures("float64")


def frame(d, p, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0]


@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 2), (3, 2)])
def test_draws_are_frames_of_the_asked_shape(d, p):
    F = 3.0 * frame(d, p)
    for shape in ((), (4,), (2, 3)):
        x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(0), shape))
        assert x.shape == (*shape, d, p)
        gram = np.swapaxes(x, -1, -2) @ x
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(p), gram.shape), atol=1e-13)


def test_batches_draw_each_from_its_own():
    F = np.stack([50.0 * np.eye(3)[:, :2], -50.0 * np.eye(3)[:, :2]])
    batch = MatrixLangevin(F)
    x = np.asarray(batch.sample(keys.from_seed(0), (200,)))
    assert x.shape == (200, 2, 3, 2)
    assert (np.einsum("nbij,bij->nb", x, F) > 0).all()
    assert batch.log_prob(x).shape == (200, 2)
    assert batch.mean.shape == (2, 3, 2)


def test_same_key_same_draws_and_more_draws_begin_alike():
    there = MatrixLangevin(5.0 * np.eye(3)[:, :2])
    first = np.asarray(there.sample(jax.random.key(3), (7,)))
    np.testing.assert_array_equal(first, there.sample(jax.random.key(3), (7,)))
    np.testing.assert_array_equal(first, there.sample(jax.random.key(3), (8,))[:7])


def test_draws_inside_a_compiled_function():
    draw = jax.jit(lambda key, F: MatrixLangevin(F).sample(key, (3,)))
    x = np.asarray(draw(jax.random.key(0), 5.0 * jnp.eye(4)[:, :2]))
    np.testing.assert_allclose(
        np.swapaxes(x, 1, 2) @ x, np.broadcast_to(np.eye(2), (3, 2, 2)), atol=1e-12
    )


def test_single_precision_stays_what_the_user_has():
    with jax.enable_x64(False):
        x = MatrixLangevin(np.eye(3)[:, :2] * 4).sample(jax.random.key(0), (5,))
        assert x.dtype == jnp.float32
        assert np.isfinite(MatrixLangevin(np.eye(3)[:, :2] * 4).log_prob(x)).all()


@pytest.mark.parametrize(("d", "kappa"), [(4, (1e4, 5e3)), (3, (2e4,))])
def test_large_concentrations_in_single_precision(d, kappa):
    F = np.zeros((d, len(kappa)))
    np.fill_diagonal(F, kappa)
    exact = float(MatrixLangevin(F).log_normaliser)
    with jax.enable_x64(False):
        known = float(MatrixLangevin(F).log_normaliser)
        traced = float(jax.jit(lambda F: MatrixLangevin(F).log_normaliser)(F.astype("f4")))
        x = jax.jit(lambda key, F: MatrixLangevin(F).sample(key, (3,)))(
            jax.random.key(0), jnp.asarray(F, jnp.float32)
        )
    assert known == pytest.approx(exact, rel=1e-6)
    assert traced == pytest.approx(exact, rel=1e-4)
    assert np.isfinite(x).all()


def test_a_parameter_that_is_nan_gives_nan_and_ends():
    draw = jax.jit(lambda key, F: MatrixLangevin(F).sample(key, (3,)))
    assert np.isnan(draw(jax.random.key(0), jnp.full((4, 2), jnp.nan))).all()


@pytest.mark.parametrize(
    ("d", "p", "kappa", "wanted"), [(10, 10, 0.1, 0.99), (10, 10, 1.0, 0.42), (20, 8, 2.0, 0.83)]
)
def test_weak_concentrations_are_not_taken_for_hopeless(d, p, kappa, wanted):
    """Shares accepted in simulations; the formula for large kappa has 2e-7 for the first."""
    found = float(expected_acceptance(jnp.full(p, kappa), d))
    assert found == pytest.approx(wanted, rel=0.2)


@pytest.mark.parametrize(("d", "p"), [(3, 2), (3, 3)])
def test_log_prob_is_a_density(d, p):
    """Its exponential averages to 1 over uniform frames."""
    there = MatrixLangevin(1.5 * frame(d, p) * np.arange(1, p + 1))
    uniform = MatrixLangevin(np.zeros((d, p))).sample(keys.from_seed(1), (100_000,))
    ratio = np.exp(np.asarray(there.log_prob(uniform)))
    assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / np.sqrt(len(ratio))


@pytest.mark.parametrize(("d", "p"), [(3, 2), (3, 3)])
def test_draws_have_the_exact_mean(d, p):
    there = MatrixLangevin.from_svd(frame(d, p), np.arange(1.0, p + 1) * 3, frame(p, p, 1))
    x = np.asarray(there.sample(keys.from_seed(2), (100_000,)))
    z = (x.mean(0) - np.asarray(there.mean)) / (x.std(0) / np.sqrt(len(x)))
    assert np.abs(z).max() < 5.0


def test_a_mean_direction_along_an_axis_is_no_special_case():
    for F in (np.eye(3)[:, :1] * 8, -np.eye(3)[:, :1] * 8, np.eye(4)[:, [3]] * 1e6):
        x = np.asarray(MatrixLangevin(F).sample(keys.from_seed(0), (1000,)))
        assert np.isfinite(x).all()
        assert np.isfinite(np.asarray(MatrixLangevin(F).log_prob(x))).all()
        assert (x[:, :, 0] @ F[:, 0] / np.linalg.norm(F) > -0.5).all()


def test_no_concentration_is_the_uniform_distribution():
    uniform = MatrixLangevin(np.zeros((3, 2)))
    x = np.asarray(uniform.sample(keys.from_seed(1), (50_000,)))
    assert (np.abs(x.mean(0)) < 4.5 / np.sqrt(3 * 50_000)).all()
    np.testing.assert_allclose((x**2).mean(0), 1 / 3, atol=0.01)
    np.testing.assert_allclose(uniform.log_prob(x), 0.0, atol=1e-13)
    half = MatrixLangevin(np.array([[4.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))  # one column uniform
    assert np.isfinite(half.sample(keys.from_seed(1), (100,))).all()
    assert np.isfinite(half.mean).all()


def test_orthogonal_matrices_include_reflections():
    x = np.asarray(MatrixLangevin(0.5 * np.eye(2)).sample(keys.from_seed(1), (10_000,)))
    reflections = np.mean(np.linalg.det(x) < 0)
    # etr(F'X) is 2 · 0.5 cos for rotations and 0 for reflections: odds 1 : I_0(1)
    expected = 1 / (1 + np.i0(1.0))
    assert abs(reflections - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 10_000)


def test_in_a_numpyro_model():
    x = MatrixLangevin(np.eye(3)[:, :2] * 5).sample(keys.from_seed(0), (10,))

    def model():
        F = numpyro.sample("F", dist.Normal(0, 5).expand((3, 2)).to_event(2))
        numpyro.sample("x", MatrixLangevin(F), obs=x)

    F = np.eye(3)[:, :2] * 4.0
    value, _ = log_density(model, (), {}, {"F": F})
    wanted = dist.Normal(0, 5).log_prob(F).sum() + MatrixLangevin(F).log_prob(x).sum()
    assert float(value) == pytest.approx(float(wanted))
    slope = jax.grad(lambda F: MatrixLangevin(F).log_prob(x).sum())(jnp.asarray(F))
    np.testing.assert_allclose(slope, x.sum(0) - 10 * MatrixLangevin(F).mean, atol=1e-10)
    equal = jax.grad(lambda F: MatrixLangevin(F).log_prob(x).sum())(jnp.eye(3)[:, :2] * 4.0)
    assert np.isfinite(equal).all()  # equal singular values


def test_more_columns_have_no_known_density():
    F = frame(5, 3)
    x = MatrixLangevin(F).sample(keys.from_seed(0))
    with pytest.raises(ModelError, match="normalised=False"):
        MatrixLangevin(F).log_prob(x)
    with pytest.raises(ModelError, match="known for one or two columns"):
        _ = MatrixLangevin(F).mean
    inner = MatrixLangevin(F, normalised=False).log_prob(x)
    assert float(inner) == pytest.approx(float(np.sum(F * np.asarray(x))))


@pytest.mark.parametrize(
    ("F", "words"),
    [
        (np.ones(3), "matrix"),
        (np.ones((2, 3)), "1 <= p <= d"),
        (np.full((3, 2), np.nan), "not finite"),
    ],
)
def test_bad_parameters_are_refused(F, words):
    with pytest.raises(ModelError, match=words):
        MatrixLangevin(F)
    with pytest.raises(ModelError, match="entry for each column"):
        MatrixLangevin.from_svd(np.eye(3)[:, :2], np.ones(3))
    with pytest.raises(ModelError, match="H must be 2 by 2"):
        MatrixLangevin.from_svd(np.eye(3)[:, :2], np.ones(2), np.eye(3))
    with pytest.raises(ModelError, match="not orthonormal"):
        MatrixLangevin.from_svd(np.ones((3, 2)), np.ones(2))
    with pytest.raises(ModelError, match="negative"):
        MatrixLangevin.from_svd(np.eye(3)[:, :2], -np.ones(2))
    with pytest.raises(ModelError, match="tuple"):
        MatrixLangevin(np.eye(3)).sample(keys.from_seed(0), 3)


def test_a_matrix_that_is_no_frame_is_outside_the_support():
    there = MatrixLangevin(np.eye(3)[:, :2])
    assert bool(there.support(jnp.eye(3)[:, :2]))
    assert not bool(there.support(jnp.ones((3, 2))))


@pytest.mark.parametrize(("d", "kappa"), [(4, (7.0,)), (3, (12.0, 6.0)), (3, (9.0, 4.0, 2.0))])
def test_maximum_likelihood_solves_its_equation(d, kappa):
    p = len(kappa)
    G, H = frame(d, p), frame(p, p, 3)
    x = MatrixLangevin.from_svd(G, np.array(kappa), H).sample(keys.from_seed(4), (400,))
    found = MatrixLangevin.mle(x)
    assert found.method == "exact"
    # The fitted mean is the data's.
    np.testing.assert_allclose(MatrixLangevin(found.F).mean, np.mean(x, axis=0), atol=1e-9)
    assert (np.diff(found.kappa) <= 0).all()
    np.testing.assert_allclose(found.kappa, kappa, rtol=0.4)


@pytest.mark.parametrize("tau", [1e-6, 0.3, 0.9999999])
def test_maximum_likelihood_at_both_ends(tau):
    """Two directions with mean (tau, 0, 0): kappa solves coth k - 1/k = tau."""
    across = np.sqrt(1 - tau**2)
    x = np.array([[tau, across, 0.0], [tau, -across, 0.0]])
    (kappa,) = MatrixLangevin.mle(x).kappa
    slope = float(jax.grad(normaliser.log_normaliser)(jnp.array([kappa]), 3)[0])
    assert slope == pytest.approx(tau, rel=1e-9)


@pytest.mark.calibrate
def test_maximum_likelihood_beyond_the_exact_normaliser_says_so():
    F = np.diag([60.0, 40.0, 30.0, 20.0])
    F = np.vstack([F, np.zeros((2, 4))])
    x = MatrixLangevin(F).sample(keys.from_seed(4), (3000,))
    found = MatrixLangevin.mle(x)
    assert found.method == "asymptotic"
    assert "asymptotic" in repr(found)
    np.testing.assert_allclose(found.kappa, [60, 40, 30, 20], rtol=0.1)
    weak = MatrixLangevin(np.diag([9.0, 7.0, 5.0, 0.5])).sample(keys.from_seed(4), (500,))
    with pytest.warns(TrustWarning, match="asymptotics"):
        MatrixLangevin.mle(weak)


def test_the_asymptotic_normaliser_tends_to_the_exact_one():
    for d, kappa in ((3, (900.0, 700.0)), (5, (900.0, 700.0)), (3, (900.0, 700.0, 500.0))):
        exact = normaliser.log_normaliser(jnp.array(kappa), d)
        near = approximate_log_normaliser(jnp.array(kappa), d)
        assert abs(float(near - exact)) < 3e-3
    small = float(approximate_log_normaliser(jnp.array([1.0, 1.0]), 5))
    assert abs(small - float(normaliser.log_normaliser(jnp.array([1.0, 1.0]), 5))) > 0.3


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.ones((4, 3, 2)), "not orthonormal"),
        (np.eye(3)[None, :, :2], "two different frames"),
        (np.repeat(np.eye(3)[None, :, :2], 5, axis=0), "do not differ"),
        (np.ones((4, 2, 3)), "rows and columns exchanged"),
        (np.full((4, 3, 2), np.nan), "not finite"),
        (np.zeros((0, 3, 2)), "shape"),
        ([["a", "b"]], "array of numbers"),
    ],
)
def test_data_that_are_no_frames_are_refused(x, words):
    with pytest.raises(DataError, match=words):
        MatrixLangevin.mle(x)


def test_rounded_frames_are_set_right():
    x = np.asarray(MatrixLangevin(np.eye(3)[:, :2] * 5).sample(keys.from_seed(0), (50,)))
    exact, rounded = MatrixLangevin.mle(x), MatrixLangevin.mle(x.round(3))
    np.testing.assert_allclose(rounded.kappa, exact.kappa, rtol=1e-2)


def test_three_by_three_without_the_third_is_a_frame_of_two():
    for kappa in ((3.0, 1.0), (200.0, 30.0)):
        whole = normaliser.log_normaliser(jnp.array([*kappa, 0.0]), 3)
        part = normaliser.log_normaliser(jnp.array(kappa), 3)
        assert float(whole) == pytest.approx(float(part), rel=1e-12)
