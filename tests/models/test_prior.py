"""Priors: dependent sites, deterministic sites, factors, and threads."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import offcut
from offcut.driver.budget import halving_limit
from offcut.errors import ModelError
from offcut.models.prior import Prior

FAST = {"kernel": offcut.HMC(0.1, 3), "draws": 40, "warmup": 0, "chains": 2, "progress": False}
X = np.array([0.2, 0.5, 0.9, 1.4, 2.2])


def with_deterministic():
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    log_scale = numpyro.sample("log_scale", dist.Normal(0.0, 0.2))
    numpyro.deterministic("scale", jnp.exp(log_scale))
    numpyro.deterministic("is_positive", loc > 0)
    numpyro.deterministic("whole", jnp.round(loc).astype(int))


@pytest.fixture(scope="module")
def model():
    return offcut.truncated(
        prior=with_deterministic,
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
    )


def test_deterministic_sites_of_any_kind_are_part_of_theta_and_of_the_posterior(model):
    posterior = offcut.sample(model, X, **FAST)["posterior"]
    assert np.array_equal(posterior["is_positive"], posterior["loc"] > 0)
    assert np.array_equal(posterior["whole"], np.round(posterior["loc"]))
    assert np.allclose(posterior["scale"], np.exp(posterior["log_scale"]), rtol=1e-14)


def test_augment_completes_theta_with_its_deterministic_sites(model):
    accepted, _ = offcut.augment(0, model, {"loc": 0.1, "log_scale": 0.0}, n=5)
    assert accepted.shape == (5,)
    with pytest.raises(ModelError, match=r"theta lacks \['log_scale'\]"):
        offcut.augment(0, model, {"loc": 0.1}, n=5)
    with pytest.raises(ModelError, match=r"theta\['loc'\] has shape \(2,\), the prior has \(\)"):
        offcut.augment(0, model, {"loc": [0.1, 0.2], "log_scale": 0.0}, n=5)


def test_the_density_has_the_jacobian():
    with jax.enable_x64(True):
        prior = Prior({"scale": dist.LogNormal(0.3, 0.5)})
        u = np.linspace(-3, 3, 7)
        ours = [float(prior.log_density(jnp.array([v]), {})) for v in u]
        assert np.allclose(ours, dist.Normal(0.3, 0.5).log_prob(u), rtol=1e-10)


def test_a_factor_counts_in_the_posterior_and_check_does_not_judge_it():
    """Normal(0, 1) with a factor is Normal(0, 0.5): the same posterior, bit for bit almost."""

    def factored():
        loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
        numpyro.factor("more", -1.5 * loc**2)

    def make(prior):
        return offcut.truncated(
            prior, lambda theta: dist.Normal(theta["loc"], 1.0), lambda x: x > 0
        )

    one, other = make(factored), make({"loc": dist.Normal(0.0, 0.5)})
    with jax.enable_x64(True):
        a, b = jnp.array([0.3]), jnp.array([-0.7])
        change = [m.prior.log_density(a, {}) - m.prior.log_density(b, {}) for m in (one, other)]
    assert float(change[0]) == pytest.approx(float(change[1]), rel=1e-12)
    last = offcut.check(one).items[-1]
    assert last.passed is None
    assert "factors or observed sites" in last.detail


def test_an_improper_prior_is_refused_plainly():
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    with pytest.raises(ModelError, match="use a wide proper one"):
        offcut.truncated({"loc": flat}, lambda t: dist.Normal(t["loc"], 1.0), lambda x: x > 0)


def test_an_exact_update_of_the_wrong_shape_is_named():
    wrong = offcut.truncated(
        {"loc": dist.Normal(0, 1), "scale": dist.HalfNormal(1)},
        lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        lambda x: x > 0,
        exact_updates={"loc": lambda key, theta, x: {"loc": jnp.zeros(1)}},
    )
    with pytest.raises(ModelError, match=r"exact update of loc returned loc with shape \(1,\)"):
        offcut.sample(wrong, X, **FAST)


@pytest.mark.calibrate
def test_several_models_may_be_sampled_from_several_threads():
    """NumPyro's handlers are global to the process; results must be those of single runs."""

    def work(index):
        def prior():
            for site in range(3):
                numpyro.sample(f"p{index}_{site}", dist.Normal(0.0, 1.0))

        own = offcut.truncated(
            prior,
            lambda theta: dist.Normal(theta[f"p{index}_0"], 1.0),
            lambda x: x > 0,
        )
        return offcut.sample(own, X, **FAST)["posterior"][f"p{index}_0"].values

    alone = [work(i) for i in range(3)]
    together: dict = {}
    errors = []

    def guarded(index):
        try:
            together[index] = work(index)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(np.array_equal(together[i], alone[i]) for i in range(3))


@pytest.mark.parametrize("seed", range(4))
def test_a_start_is_found_where_the_window_depends_on_theta(seed):
    x = np.random.default_rng(1).normal(size=100)
    x = x[x < 0.7]
    model = offcut.selected(
        {"loc": dist.Normal(0, 1), "cut": dist.HalfNormal(1)},
        lambda theta: dist.Normal(theta["loc"], 1),
        lambda theta, y: jnp.where(y < theta["cut"], 0.0, -jnp.inf),
        log_reject=lambda theta, y: jnp.where(y < theta["cut"], -jnp.inf, 0.0),
    )
    posterior = offcut.sample(model, x, seed=seed, **FAST)
    assert float(posterior["posterior"]["cut"].min()) >= x.max()


def test_a_start_is_found_on_the_scale_of_incomes_and_years():
    rng = np.random.default_rng(0)
    income = rng.normal(50_000, 15_000, 1000)
    model = offcut.truncated(
        {"loc": dist.Normal(0, 1e6), "scale": dist.HalfNormal(1e6)},
        lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        lambda value: value > 45_000,
    )
    posterior = offcut.sample(model, income[income > 45_000], **FAST)["posterior"]
    assert 20_000 < float(posterior["loc"].mean()) < 90_000


def test_a_budget_of_zero_is_certified_by_nothing():
    assert halving_limit(np.zeros((4, 100), int), 0) == 1.0
