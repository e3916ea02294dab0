"""The parts of the truncated mixture against direct computation."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import offcut
from offcut.mixtures.allocation import choose
from offcut.mixtures.exchange_moves import log_natural_prior
from offcut.mixtures.rejections import _share
from offcut.mixtures.weights import (
    Concentration,
    Hierarchy,
    Sticks,
    WeightState,
    break_sticks,
    log_dirichlet_multinomial,
    log_stick_labels,
    swap_labels,
)
from offcut.mixtures.weights import seat_customers as seat
from offcut.mixtures.window_mass import any_mass, box_mass
from offcut.numerics import keys
from offcut.numerics.normal import (
    Base,
    Components,
    NormalInverseWishart,
    coefficients,
    draw_all,
    features,
    log_marginal,
    moments,
    size,
)

RNG = np.random.default_rng(3)


pytestmark = pytest.mark.usefixtures("float64")


def random_components(K, d, rng=RNG):
    A = rng.normal(size=(K, d, d))
    covariance = A @ A.transpose(0, 2, 1) + 0.2 * np.eye(d)
    return Components(
        jnp.asarray(rng.normal(size=(K, d))), jnp.linalg.cholesky(jnp.asarray(covariance))
    )


def base_of(d):
    return Base(jnp.zeros(d), jnp.array(0.7), jnp.array(d + 2.5), jnp.eye(d) * 1.3)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_log_density_is_an_inner_product_of_features(d):
    components = random_components(1, d)
    mean, root = np.asarray(components.means[0]), np.asarray(components.roots[0])
    x = RNG.normal(size=(7, d))
    ours = coefficients(components.means[0], components.roots[0]) @ features(jnp.asarray(x.T))
    np.testing.assert_allclose(ours, stats.multivariate_normal(mean, root @ root.T).logpdf(x))
    count, total, outer = moments(features(jnp.asarray(x.T)).sum(1), d)
    assert size(d) == features(jnp.asarray(x.T)).shape[0]
    np.testing.assert_allclose(count, 7)
    np.testing.assert_allclose(total, x.sum(0))
    np.testing.assert_allclose(outer, x.T @ x, atol=1e-12)


def test_marginal_density_is_a_product_of_student_predictives():
    d, base = 2, base_of(2)
    x = RNG.normal(size=(4, d))
    total, log_p = np.zeros(size(d)), 0.0
    kappa, nu, mean, scale = 0.7, d + 2.5, np.zeros(d), 1.3 * np.eye(d)
    for row in x:
        shape = scale * (kappa + 1) / (kappa * (nu - d + 1))
        log_p += stats.multivariate_t(mean, shape, df=nu - d + 1).logpdf(row)
        away = row - mean
        scale = scale + kappa / (kappa + 1) * np.outer(away, away)
        mean, kappa, nu = (kappa * mean + row) / (kappa + 1), kappa + 1, nu + 1
        total += np.asarray(features(jnp.asarray(row[:, None])))[:, 0]
    np.testing.assert_allclose(log_marginal(base, jnp.asarray(total)), log_p, rtol=1e-12)


def test_components_are_drawn_from_their_posterior():
    """Means of mu, Sigma⁻¹ and log|Sigma| against the closed form, 5 standard errors."""
    d, base = 2, base_of(2)
    x = RNG.normal(size=(5, d))
    total = features(jnp.asarray(x.T)).sum(1)
    drawn = jax.jit(draw_all)(keys.from_seed(1), base, jnp.tile(total, (40_000, 1)))
    roots = np.asarray(drawn.roots)
    assert (np.triu(roots, 1) == 0).all()
    kappa, nu = 5.7, d + 7.5
    mean = x.sum(0) / kappa
    centre = x.mean(0)
    Psi = 1.3 * np.eye(d) + (x - centre).T @ (x - centre)
    Psi += 0.7 * 5 / kappa * np.outer(centre, centre)
    precision = np.linalg.inv(roots @ roots.transpose(0, 2, 1))
    for values, truth in (
        (np.asarray(drawn.means), mean),
        (precision, nu * np.linalg.inv(Psi)),
        (
            2 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(1),
            np.linalg.slogdet(Psi)[1] - d * np.log(2) - special.psi((nu - np.arange(d)) / 2).sum(),
        ),
    ):
        error = values.std(0) / np.sqrt(len(values))
        assert np.all(np.abs(values.mean(0) - truth) < 5 * error)


def test_natural_parameters_have_the_density_of_the_base():
    """In one dimension, against the density of (mu, sigma²) and a numerical Jacobian."""
    base = base_of(1)

    def log_direct(mu, variance):
        log_p = stats.invgamma(3.5 / 2, scale=1.3 / 2).logpdf(variance)
        log_p += stats.norm(0, np.sqrt(variance / 0.7)).logpdf(mu)
        # (eta, Lambda) = (mu / v, 1 / v): |d(eta, Lambda) / d(mu, v)| = v^-3
        return log_p + 3 * np.log(variance)

    points = [(0.3, 0.5), (-1.0, 2.0), (2.0, 0.1)]
    ours = [
        float(log_natural_prior(jnp.array([m]), jnp.array([[np.sqrt(v)]]), base)) for m, v in points
    ]
    direct = [log_direct(m, v) for m, v in points]
    np.testing.assert_allclose(np.diff(ours), np.diff(direct), rtol=1e-10)


def test_label_probabilities_sum_to_one():
    K, n = 3, 4
    alpha = jnp.array(0.6)
    labels = list(itertools.product(range(K), repeat=n))
    counts = jnp.asarray([np.bincount(z, minlength=K) for z in labels], float)
    np.testing.assert_allclose(
        jnp.exp(jax.vmap(lambda c: log_stick_labels(c, alpha))(counts)).sum(), 1.0
    )
    weights = jnp.array([0.2, 1.1, 0.4])
    total = jnp.exp(jax.vmap(lambda c: log_dirichlet_multinomial(c, weights))(counts)).sum()
    np.testing.assert_allclose(total, 1.0)


def test_weights_and_their_scale_have_the_density_of_log_measure():
    """Sticks: against v ~ Beta(1, alpha) and a flat log u, through a numerical Jacobian."""
    K, alpha = 4, 1.7
    state = WeightState(jnp.zeros((1, K)), jnp.array(alpha))
    sticks = Sticks(Concentration(alpha), K)

    def rates(parts):  # (logit v_1, ..., logit v_{K-1}, log u) -> log lambda
        v = jnp.append(jax.nn.sigmoid(parts[:-1]), 1.0)
        left = jnp.append(jnp.array([1.0]), jnp.cumprod(1 - v[:-1]))
        return jnp.log(v * left) + parts[-1]

    def difference(parts):
        v = jax.nn.sigmoid(parts[:-1])
        log_p = jnp.sum(jnp.log(v) + alpha * jnp.log1p(-v))  # density of logit v
        log_jacobian = jnp.linalg.slogdet(jax.jacobian(rates)(parts))[1]
        log_rates = rates(parts)
        # density of lambda = density of log lambda / prod lambda
        direct = log_p - log_jacobian - jnp.sum(log_rates)
        return direct - sticks.log_measure(state, log_rates[None])

    values = [difference(jnp.asarray(RNG.normal(size=K))) for _ in range(4)]
    np.testing.assert_allclose(values, values[0], atol=1e-9)


def test_weights_of_groups_have_the_density_of_log_measure():
    beta, group_alpha = np.array([0.5, 0.3, 0.2]), 2.5
    state = WeightState(
        jnp.zeros((2, 3)), jnp.array(1.0), jnp.log(jnp.asarray(beta)), jnp.array(group_alpha)
    )
    hierarchy = Hierarchy(Concentration(1.0), Concentration(group_alpha), 3, 2)

    def difference(log_rates):
        direct = 0.0
        for row in np.asarray(log_rates):
            u = np.exp(row).sum()
            direct += stats.dirichlet(group_alpha * beta).logpdf(np.exp(row) / u) - 3 * np.log(u)
        return direct - hierarchy.log_measure(state, log_rates)

    values = [float(difference(jnp.asarray(RNG.normal(size=(2, 3))))) for _ in range(4)]
    np.testing.assert_allclose(values, values[0], atol=1e-9)


def test_sticks_have_the_right_means_and_sum_to_one():
    counts, alpha = jnp.array([3.0, 0.0, 5.0]), jnp.array(0.8)
    many = jax.vmap(lambda key: break_sticks(key, counts, alpha)[0])(
        jax.random.split(keys.from_seed(0), 40_000)
    )
    weights = np.exp(np.asarray(many))
    np.testing.assert_allclose(weights.sum(1), 1.0)
    first = 4 / (4 + 5.8)
    second = (1 - first) * 1 / (1 + 5.8)
    truth = np.array([first, second, 1 - first - second])
    error = weights.std(0) / np.sqrt(len(weights))
    assert np.all(np.abs(weights.mean(0) - truth) < 5 * error)


def test_swaps_leave_the_order_its_distribution():
    """Many swaps from a fixed order: each order as often as its probability says."""
    counts, alpha = np.array([1.0, 4.0, 0.0]), jnp.array(0.7)
    orders = list(itertools.permutations(range(3)))
    log_p = [log_stick_labels(jnp.asarray(counts[list(o)]), alpha) for o in orders]
    p = np.exp(np.array(log_p) - special.logsumexp(log_p))

    def many(key):
        def again(i, order):
            step = swap_labels(jax.random.fold_in(key, i), jnp.asarray(counts)[order], alpha)
            return order[step]

        return jax.lax.fori_loop(0, 6, again, jnp.arange(3))

    ends = np.asarray(jax.vmap(many)(jax.random.split(keys.from_seed(2), 20_000)))
    seen = np.array([(ends == o).all(1).sum() for o in orders])
    assert stats.chisquare(seen, p * seen.sum()).pvalue > 1e-5


def test_tables_have_the_mean_of_the_chinese_restaurant():
    counts, weights = jnp.array([[5.0, 0.0], [1100.0, 3.0]]), jnp.array([0.4, 2.0])
    tables = np.asarray(
        jax.vmap(lambda key: seat(key, counts, weights))(jax.random.split(keys.from_seed(4), 3000))
    )
    for g, k in itertools.product(range(2), range(2)):
        w = float(weights[k])
        truth = sum(w / (w + i) for i in range(int(counts[g, k])))
        error = tables[:, g, k].std() / np.sqrt(len(tables)) + 1e-12
        assert abs(tables[:, g, k].mean() - truth) < 5 * error


def test_one_uniform_chooses_a_label():
    terms = jnp.log(jnp.array([[0.2, 0.5], [0.0, 0.25], [0.8, 0.25]]))
    uniform = (np.arange(1000) + 0.5) / 1000
    for column, p in enumerate(([0.2, 0.0, 0.8], [0.5, 0.25, 0.25])):
        chosen = choose(jnp.tile(terms[:, column : column + 1], (1, 1000)), jnp.asarray(uniform))
        np.testing.assert_allclose(np.bincount(chosen, minlength=3) / 1000, p)


@pytest.mark.parametrize("need", [[5], [3, 0, 4], [0, 0, 1], [1000, 1, 300]])
def test_a_block_is_shared_by_need(need):
    first, cell = _share(jnp.asarray(need, jnp.int32), 64)
    cell, first = np.asarray(cell), np.asarray(first)
    assert set(cell) <= set(np.flatnonzero(need))
    assert (np.diff(cell) >= 0).all()
    for j in set(cell):
        assert first[j] == np.argmax(cell == j)
    share = np.bincount(cell, minlength=len(need)) / 64
    np.testing.assert_allclose(share, np.array(need) / sum(need), atol=1 / 32)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_mass_in_a_box(d):
    components = random_components(5, d, np.random.default_rng(d))
    lower, upper = np.full(d, -0.5), np.full(d, 1.0)
    ours = np.stack(
        [
            box_mass(keys.from_seed(s), components, 256, jnp.asarray(lower), jnp.asarray(upper))
            for s in range(8)
        ]
    )
    for k in range(5):
        root = np.asarray(components.roots[k])
        mean, covariance = np.asarray(components.means[k]), root @ root.T
        law = stats.multivariate_normal(mean, covariance, maxpts=400_000, abseps=1e-7)
        truth = law.cdf(upper) - law.cdf(lower) if d == 1 else law.cdf(upper, lower_limit=lower)
        assert abs(ours[:, k].mean() / truth - 1) < 0.01
        assert ours[:, k].std() / truth < 0.02


def test_mass_far_in_the_tail_keeps_its_digits():
    component = Components(jnp.array([[-9.0, 0.0]]), jnp.eye(2)[None])
    ours = box_mass(keys.from_seed(0), component, 64, jnp.zeros(2), jnp.full(2, np.inf))
    np.testing.assert_allclose(ours[0], 0.5 * stats.norm.sf(9), rtol=1e-3)


def test_mass_in_any_window():
    component = Components(jnp.array([[0.3, 0.0]]), jnp.eye(2)[None])
    ours = any_mass(
        keys.from_seed(0), component, 4096, lambda y: (jnp.sum(y**2, axis=1) < 1.0) * 1.0
    )
    truth = stats.ncx2(2, 0.09).cdf(1.0)
    assert abs(ours[0] - truth) < 0.01


def test_base_scaled_to_data():
    x = RNG.normal([1.0, -2.0], [1.0, 5.0], size=(500, 2))
    base = NormalInverseWishart().for_data(x)
    np.testing.assert_allclose(base.mean, x.mean(0))
    expected = np.asarray(base.scale) / (base.degrees - 3)
    np.testing.assert_allclose(expected, np.cov(x, rowvar=False) / 3, rtol=1e-4)
    assert "data" in repr(NormalInverseWishart())
    constant = NormalInverseWishart().for_data(np.ones((4, 2)))
    assert np.linalg.eigvalsh(constant.scale).min() > 0
    single = NormalInverseWishart().for_data(np.array([[3.0]]))
    assert single.scale[0, 0] > 0


def test_a_prior_on_alpha_is_slice_sampled():
    """Gamma prior, sticks given: the conditional is a gamma distribution."""
    import numpyro.distributions as dist

    alpha = Concentration(dist.Gamma(2.0, 3.0))
    log_rest, K = -4.0, 6

    def chain(key):
        def step(i, value):
            return alpha.update(
                jax.random.fold_in(key, i),
                value,
                lambda a: (K - 1) * jnp.log(a) + (a - 1) * log_rest,
            )

        return jax.lax.fori_loop(0, 12, step, jnp.array(1.0))

    values = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(keys.from_seed(6), 4000)))
    law = stats.gamma(2 + K - 1, scale=1 / (3.0 + 4.0))
    assert stats.kstest(values, law.cdf).pvalue > 1e-5


def test_rates_integrate_to_the_power_of_the_constant():
    """∫ u^(n-1) exp(-uZ) du = Gamma(n) Z^-n, and u given |Y| is Gamma(n + |Y|, 1)."""
    n, Z = 5, 0.3
    value, _ = integrate.quad(lambda u: u ** (n - 1) * np.exp(-u * Z), 0, np.inf)
    np.testing.assert_allclose(value, special.gamma(n) * Z**-n)
    u = np.random.default_rng(1).gamma(n, 1 / Z, 200_000)
    rejected = np.random.default_rng(2).poisson(u * (1 - Z))
    law = stats.nbinom(n, Z)
    assert abs(rejected.mean() - law.mean()) < 5 * law.std() / np.sqrt(len(u))
    given = u[rejected == 10]
    assert stats.kstest(given, stats.gamma(n + 10).cdf).pvalue > 1e-5


def test_checkpoints_tell_mixtures_apart_that_print_alike():
    bases = [
        offcut.NormalInverseWishart(scale=scale * np.eye(2)) for scale in (1e-9, 1.000000001e-9)
    ]
    models = [offcut.TruncatedMixture(base=base) for base in bases]
    models.append(offcut.TruncatedMixture(base=bases[0], reshape=False))
    assert len({repr(model) for model in models}) == 1
    assert len({model.identity() for model in models}) == 3
