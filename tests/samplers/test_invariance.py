"""Every kernel leaves the joint distribution alone; every negative control is caught.

One call is one test at a false-alarm rate of 1e-5 (Bonferroni over its statistics).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import offcut
from offcut.augmentation.rejections import Layout
from offcut.checks.invariance import invariance_test
from offcut.numerics import keys
from offcut.samplers.algorithm2 import AugmentedSampler
from offcut.samplers.choice import ROUTES
from offcut.samplers.conjugate import ConjugateSampler
from statistical import models, negative_controls
from statistical.truth import FALSE_ALARM

pytestmark = pytest.mark.statistical

#: Method, kernel and settings of the method.
KERNELS = {
    "HMC": ("augment", offcut.HMC(0.2, 5), None),
    "NUTS": ("augment", offcut.NUTS(0.3), None),
    "RandomWalk": ("augment", offcut.RandomWalk(0.5), None),
    "Exchange": ("exchange", offcut.RandomWalk(0.8), None),
    "PseudoMarginal": ("pseudo_marginal", offcut.RandomWalk(0.8), offcut.PseudoMarginal(20)),
}


def run(model, how, *, control=None, n=5, covariates=(), **options):
    method, kernel, settings = how
    with jax.enable_x64(True):
        layout = Layout.of(n, 1, bool(covariates), len(model.exact_updates))
        if control is not None:
            sampler = control(model, layout, kernel, **({"settings": settings} if settings else {}))
        else:
            sampler = ROUTES[method].sampler(model, layout, kernel, covariates, settings)
        options.setdefault("replicates", 10_000)
        result = invariance_test(
            sampler, model, layout, n, keys.from_seed(11), covariates=covariates, **options
        )
    assert result.moved > 0.3, "the sampler hardly moved: the test would be void"
    assert result.replicates > 0.5 * options["replicates"]
    return result


half_normal = functools.cache(models.half_normal)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_leave_a_truncated_normal_invariant(name):
    assert run(half_normal(), KERNELS[name]).p_value > FALSE_ALARM


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_leave_it_invariant_under_a_budget_that_binds(name):
    assert run(half_normal(), KERNELS[name], budget=6).p_value > FALSE_ALARM


@pytest.mark.parametrize(
    "control",
    [
        negative_controls.NoAugmentation,
        negative_controls.OneSetShort,
        negative_controls.AcceptedKept,
        negative_controls.BlockEndKept,
        negative_controls.SilentCap,
    ],
)
def test_wrong_rejections_are_caught(control):
    assert run(half_normal(), KERNELS["HMC"], control=control).p_value < FALSE_ALARM


def test_cutting_to_the_budget_instead_of_redrawing_is_caught():
    result = run(
        half_normal(), KERNELS["HMC"], control=negative_controls.CapInsteadOfRedraw, budget=4
    )
    assert result.p_value < FALSE_ALARM


def test_refreshing_the_pseudo_marginal_estimate_is_caught():
    how = ("pseudo_marginal", offcut.RandomWalk(0.4), offcut.PseudoMarginal(acceptances=4))
    assert run(half_normal(), how).p_value > FALSE_ALARM
    assert (
        run(half_normal(), how, control=negative_controls.RefreshedEstimate).p_value < FALSE_ALARM
    )


def test_a_wrong_jacobian_is_caught():
    """A scale moved on the log scale without the Jacobian has the wrong prior."""
    model = models.half_normal()
    honest = model.prior.log_density

    def without_jacobian(position, exact):
        return honest(position, exact) - position[1]

    model.prior.log_density = without_jacobian
    assert run(model, KERNELS["HMC"]).p_value < FALSE_ALARM


@pytest.mark.parametrize("name", ["HMC", "Exchange", "PseudoMarginal"])
def test_observations_with_their_own_proposals(name):
    how = KERNELS[name]
    if name == "PseudoMarginal":
        how = (*how[:2], offcut.PseudoMarginal(acceptances=4))
    covariates = (jnp.linspace(-1.2, 1.2, 5),)
    assert run(narrow_regression(), how, covariates=covariates).p_value > FALSE_ALARM


@functools.cache
def narrow_regression():
    return offcut.truncated(
        prior={"a": dist.Normal(0.0, 0.5), "b": dist.Normal(0.0, 0.5)},
        base=lambda theta, c: dist.Normal(theta["a"] + theta["b"] * c, 1.0),
        inside=lambda y, c: y > 0,
    )


def test_sharing_rejections_between_observations_with_own_proposals_is_caught():
    class WrongOwners(AugmentedSampler):
        def run_sampler(self, key, theta, data, buffer, limit):
            result = super().run_sampler(key, theta, data, buffer, limit)
            owner = (result.rejected.owner + 1) % data.n
            return result._replace(rejected=result.rejected._replace(owner=owner))

    covariates = (jnp.linspace(-1.2, 1.2, 5),)
    result = run(narrow_regression(), KERNELS["HMC"], control=WrongOwners, covariates=covariates)
    assert result.p_value < FALSE_ALARM


@pytest.mark.parametrize("with_log_reject", [True, False])
def test_a_selection_that_depends_on_theta(with_log_reject):
    model = models.logistic_selection(with_log_reject)
    assert run(model, KERNELS["HMC"]).p_value > FALSE_ALARM


def test_a_window_that_depends_on_theta_is_a_wall_but_exact():
    """log a is -inf outside a window whose edge is a parameter; HMC meets walls."""
    model = offcut.selected(
        prior={"loc": dist.Normal(0.0, 0.5), "edge": dist.Normal(-0.5, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], 1.0),
        log_accept=lambda theta, y: jnp.where(y > theta["edge"], 0.0, -jnp.inf),
        log_reject=lambda theta, y: jnp.where(y > theta["edge"], -jnp.inf, 0.0),
    )
    assert run(model, ("augment", offcut.HMC(0.1, 3), None)).p_value > FALSE_ALARM


@pytest.mark.calibrate
def test_vectors_and_dicts_as_points():
    model = offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, 0.5).expand([2]).to_event(1)},
        propose=lambda key, theta: {
            "a": theta["loc"] + jax.random.normal(key, (2,)),
            "b": jax.random.normal(jax.random.fold_in(key, 1)) + theta["loc"][0],
        },
        log_proposal=lambda theta, y: (
            jnp.sum(dist.Normal(theta["loc"], 1.0).log_prob(y["a"]))
            + dist.Normal(theta["loc"][0], 1.0).log_prob(y["b"])
        ),
        log_accept=lambda theta, y: -0.5 * jnp.sum(y["a"] ** 2) - 0.1 * y["b"] ** 2,
    )
    assert run(model, KERNELS["HMC"]).p_value > FALSE_ALARM


# A block of theta with its own exact conditional.


@pytest.mark.parametrize("budget", [5, 300])
def test_a_collapsed_block_drawn_with_its_rejections(budget):
    assert run(models.collapsed(), KERNELS["HMC"], budget=budget, n=4).p_value > FALSE_ALARM


def test_a_collapsed_block_beside_a_budget_is_caught():
    result = run(
        models.collapsed(),
        KERNELS["HMC"],
        budget=5,
        n=4,
        control=negative_controls.CollapsedBesideBudget,
    )
    assert result.p_value < FALSE_ALARM


@pytest.mark.calibrate
def test_giving_up_keeps_the_old_pair(monkeypatch):
    monkeypatch.setattr("offcut.samplers.algorithm2.MOST_ATTEMPTS", 1)
    assert run(models.collapsed(), KERNELS["HMC"], budget=3, n=4).p_value > FALSE_ALARM
    result = run(
        models.collapsed(),
        KERNELS["HMC"],
        budget=3,
        n=4,
        control=negative_controls.NewBlockOldRejections,
    )
    assert result.p_value < FALSE_ALARM


def test_two_collapsed_blocks_each_with_its_own_pair():
    """loc and scale both from their conditionals; theta2 is empty, and Y is drawn twice."""

    def draw_scale(key, theta, x):
        grid = jnp.exp(jnp.linspace(-1.2, 1.2, 801))
        z = (x[:, None] - theta["loc"]) / grid[None, :]
        log_p = jnp.sum(-0.5 * z**2, axis=0)
        log_p -= x.shape[0] * (jnp.log(grid) + jax.scipy.special.log_ndtr(theta["loc"] / grid))
        log_p += dist.LogNormal(0.0, 0.3).log_prob(grid) + jnp.log(grid)
        cell = jax.random.categorical(key, log_p)
        shift = jax.random.uniform(jax.random.fold_in(key, 1), minval=-0.5, maxval=0.5)
        return {"scale": jnp.exp(jnp.log(grid[cell]) + shift * 2.4 / 800)}

    model = offcut.truncated(
        prior={"loc": dist.Uniform(-1.50125, 1.50125), "scale": dist.LogNormal(0.0, 0.3)},
        base=lambda theta: dist.Normal(theta["loc"], theta["scale"]),
        inside=lambda x: x > 0,
        exact_updates={"loc": models.draw_location, ("scale",): draw_scale},
    )
    assert run(model, KERNELS["HMC"], budget=5, n=4).p_value > FALSE_ALARM


# Each move by itself: what the others do cannot hide what it does. (The step of exchange and
# pseudo-marginal is one move; that of hidden values is in tests/augmentation.)


def only(name, sampler, *arguments):
    """A sampler with one of its moves."""

    class Only(sampler):
        def moves(self, key, state):
            return [own for own in super().moves(key, state) if own[1].__name__ == name]

    return lambda model, layout, kernel: Only(model, layout, kernel, *arguments)


@pytest.mark.parametrize("name", ["HMC", "NUTS", "RandomWalk"])
def test_theta_given_rejections_is_a_move(name):
    control = only("given", AugmentedSampler)
    assert run(half_normal(), KERNELS[name], control=control).p_value > FALSE_ALARM


def test_theta_given_the_data_alone_is_caught():
    control = only("given", negative_controls.forgets_rejections(AugmentedSampler))
    assert run(half_normal(), KERNELS["HMC"], control=control).p_value < FALSE_ALARM


CONJUGATE = ("augment", offcut.Conjugate(), None)


@functools.cache
def exponential():
    return offcut.truncated(
        prior={"rate": dist.Gamma(20.0, 20.0)},
        base=lambda theta: dist.Exponential(theta["rate"]),
        inside=lambda x: x > 0.5,
    )


def test_theta_from_sums_is_a_move():
    control = only("given", ConjugateSampler, ())
    assert run(exponential(), CONJUGATE, control=control).p_value > FALSE_ALARM


def test_theta_from_sums_over_the_data_alone_is_caught():
    control = only("given", negative_controls.forgets_rejections(ConjugateSampler), ())
    assert run(exponential(), CONJUGATE, control=control).p_value < FALSE_ALARM


def test_a_block_of_theta_with_its_rejections_is_a_move():
    control = only("augment", AugmentedSampler)
    result = run(models.collapsed(), KERNELS["HMC"], budget=5, n=4, control=control)
    assert result.p_value > FALSE_ALARM


def test_a_block_of_theta_beside_redrawn_rejections_is_caught():
    control = only("augment", negative_controls.CollapsedBesideBudget)
    result = run(models.collapsed(), KERNELS["HMC"], budget=5, n=4, control=control)
    assert result.p_value < FALSE_ALARM
