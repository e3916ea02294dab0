"""Bad input: an error that says what came, what was expected and what to do, before sampling."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import offcut
from offcut.driver import chains as run_module
from offcut.errors import DataError, ModelError, SettingsError, StartError

#: Calls are wrong on purpose; our own messages answer, not the check of types.
pytestmark = pytest.mark.usefixtures("unchecked")

X = np.linspace(0.1, 2.0, 20)
KERNEL = offcut.RandomWalk(0.3)


def truncated(
    prior: Any = None,
    base: Callable = lambda theta: dist.Normal(theta["loc"], 1.0),
    inside: Callable = lambda x: x > 0,
    **options: Any,
) -> offcut.RejectionModel:
    prior = {"loc": dist.Normal(0.0, 1.0)} if prior is None else prior
    return offcut.truncated(prior, base, inside, **options)


def rejection(**changed: Any) -> offcut.RejectionModel:
    parts = {
        "prior": {"loc": dist.Normal(0.0, 1.0)},
        "propose": lambda key, theta: theta["loc"] + jax.random.normal(key),
        "log_proposal": lambda theta, y: dist.Normal(theta["loc"], 1.0).log_prob(y),
        "log_accept": lambda theta, y: -0.5 * y**2,
    }
    return offcut.RejectionModel(**{**parts, **changed})


def regression(**changed: Any) -> offcut.RejectionModel:
    parts = {
        "base": lambda theta, c: dist.Normal(theta["loc"] * c, 1.0),
        "inside": lambda x, c: x > 0,
    }
    return truncated(**{**parts, **changed})


def sample(model: Any, data: Any = X, **settings: Any) -> Any:
    return offcut.sample(
        model, data, **{"draws": 20, "warmup": 10, "chains": 2, "kernel": KERNEL, **settings}
    )


#: Compiled once for all that is wrong with data and settings.
MODEL = truncated()


@pytest.fixture(autouse=True)
def no_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error of this file comes before the first step."""

    def never(*_: Any) -> None:
        raise AssertionError("sampling began")

    monkeypatch.setattr(run_module._Workers, "run", never)


def test_good_input_gets_to_sampling() -> None:
    with pytest.raises(AssertionError, match="sampling began"):
        sample(MODEL)


# Data.


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.r_[X, np.nan], r"1 NaN and 0 infinite values among 21 \(the first at index \(20,\)\)"),
        (np.r_[np.inf, X, -np.inf], r"0 NaN and 2 infinite .* first at index \(0,\)\); remove"),
        ([1.0, None, 2.0], r"1 NaN .* first at index \(1,\)"),
        (np.ma.array(X, mask=X > 1.05), "10 masked values; remove these rows"),
        (["low", "high"], r"must be real numbers, got <U4 \(first value 'low'\); convert"),
        (np.array(["1", "2"], object), r"must be real numbers, got object \(first value '1'\)"),
        (X + 1j, "must be real numbers, got complex128"),
        (np.array(["2020-01-01"], "M8[D]"), "must be real numbers, got datetime64"),
        ([], "data is empty: at least one observation is needed"),
        (np.zeros((0, 3)), "data is empty"),
        ({}, "data is empty"),
        ({"x": []}, "data is empty"),
        (None, "data is None; give an array with a row for each observation"),
        ([[1.0, 2.0], [3.0]], "cannot be read as an array .*give one row of the same length"),
        (3.0, "must have a row for each observation, got the number 3.0; give a list or an array"),
        ((1.0, 2.0), "must have a row for each observation, got the number 1.0"),
        ((X, X[:7]), r"parts of data have different numbers of rows: \[7, 20\]"),
        ({"x": X}, r"structure \{'x': \*\}, proposals \* .*in the form that propose returns"),
        (
            np.ones((20, 2)),
            r"one observation has shape \(2,\), one proposal \(\) \(data have shape",
        ),
    ],
)
def test_data(data: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        sample(MODEL, data)


@pytest.mark.parametrize(
    ("outside", "said"),
    [
        ([-1.0], r"1 of 20 observations lie where .* index 19 \(value -1.\)\. The model says that"),
        (
            [-1.0, -2.0, -3.0, -4.0],
            r"4 of 20 .* index 16 \(value -1.\), 17 \(value -2.\), 18 \(value -3.\) and 1 more\."
            ".*widen the window, or remove",
        ),
    ],
)
def test_data_outside_the_window(outside: list[float], said: str) -> None:
    data = np.r_[X[: -len(outside)], outside]
    with pytest.raises(DataError, match=said):
        sample(MODEL, data)


def test_data_where_the_acceptance_is_zero() -> None:
    model = rejection(log_accept=lambda theta, y: jnp.where(y > 1.95, -jnp.inf, -0.1))
    with pytest.raises(DataError, match=r"1 of 20 .*\(log_accept = -inf\): index 19 \(value 2.\)"):
        sample(model)


def test_fractions_where_counts_are_proposed() -> None:
    model = truncated({"rate": dist.Gamma(2.0, 1.0)}, lambda theta: dist.Poisson(theta["rate"]))
    with pytest.raises(DataError, match="proposals are integers, but the data have fractional"):
        sample(model)


@pytest.mark.parametrize(
    ("covariates", "said"),
    [
        (X[:19], "covariates have 19 rows for 20 observations: every observation needs its own"),
        (np.r_[X[:19], np.nan], "covariates has 1 NaN"),
        (["a"] * 20, "covariates must be real numbers"),
        ({"dose": X, "group": ["a"] * 20}, r"covariates\['group'\] must be real numbers"),
        (2.0, "covariates must have a row for each observation"),
        ([], "covariates is empty"),
    ],
)
def test_covariates(covariates: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        sample(regression(), covariates=covariates)


# Models.


def takes_an_argument(n: int) -> None:
    numpyro.sample("loc", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize(
    ("prior", "said"),
    [
        ({"loc": "3"}, r"prior\['loc'\] must be a NumPyro distribution .*, got str"),
        ({"loc": 3.0}, r"no parameters to infer: all are fixed \(loc\)"),
        ({1: dist.Normal(0.0, 1.0)}, "prior names must be strings, got 1"),
        ({}, "the prior has no parameters to infer"),
        ("normal", "must be a dict of NumPyro distributions or a NumPyro model .*, got str"),
        ({"loc": dist.Poisson(3.0)}, r"prior site 'loc' is discrete \(Poisson\)"),
        (takes_an_argument, "could not be run: .*'n'. A NumPyro model given as prior takes no arg"),
    ],
)
def test_priors(prior: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        truncated(prior)


def sometimes(x: Any) -> Any:
    return True if x > 0 else x < 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: truncated({"mu": dist.Normal(0.0, 1.0)}),
            r"propose \(or base\) asks for 'loc', but theta has \['mu'\]",
        ),
        (
            lambda: rejection(log_accept=lambda theta, y: -theta["width"] * y**2),
            r"log_accept \(or inside\) asks for 'width', but theta has \['loc'\]",
        ),
        (
            lambda: truncated(base=lambda theta: theta["loc"]),
            "base must return a NumPyro distribution",
        ),
        (
            lambda: truncated(inside=lambda x: 0 < x < 3),
            r"log_accept \(or inside\) cannot be compiled: .*0 < x < 1.*use & | ~ with parentheses",
        ),
        (lambda: truncated(inside=sometimes), "cannot be compiled"),
        (lambda: truncated(inside=lambda x: np.isfinite(x)), "jax.numpy in place of numpy"),
        (
            lambda: truncated(inside=lambda x: x[0] > 0),
            "inside. fails for one point: IndexError: Too many indices",
        ),
        (
            lambda: regression(),
            r"propose \(or base\) fails .* argument: 'c'; without covariates= no function",
        ),
        (
            lambda: truncated(
                {"chain": dist.Normal(0.0, 1.0)}, lambda t: dist.Normal(t["chain"], 1.0)
            ),
            "no parameter may be called 'chain'",
        ),
        (
            lambda: truncated({"a/b": dist.Normal(0.0, 1.0)}, lambda t: dist.Normal(t["a/b"], 1.0)),
            "no parameter may be called 'a/b'",
        ),
        (
            lambda: truncated(exact_updates={"loc": lambda key, theta, data: 1.0}),
            r"the exact update of loc must return a dict with \['loc'\], got",
        ),
        (
            lambda: truncated(exact_updates={"loc": lambda key, theta, data: {"mu": 1.0}}),
            r"the exact update of loc must return a dict with \['loc'\], got \['mu'\]",
        ),
    ],
)
def test_models(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        sample(make())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (truncated, r"propose \(or base\) fails .*; with covariates every function of the model"),
        (
            lambda: regression(inside=lambda x: x > 0),
            r"log_accept \(or inside\) fails .*; with covariates every function of the model takes",
        ),
    ],
)
def test_functions_without_the_covariate(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        sample(make(), covariates=X)


PLANE = np.ones((20, 2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: truncated(base=lambda theta: dist.Normal(theta["loc"] * jnp.ones(2), 1.0)),
            r"batch_shape \(2,\)\) where one is needed; .*add .to_event\(1\)",
        ),
        (
            lambda: rejection(propose=lambda key, theta: jax.random.normal(key, (2,))),
            r"log_proposal must return one number for one point, got shape \(2,\); sum over",
        ),
        (
            lambda: truncated(
                base=lambda theta: dist.Normal(theta["loc"] * jnp.ones(2), 1.0).to_event(1)
            ),
            r"log_accept \(or inside\) must return one number .* use jax.numpy.all in a window",
        ),
    ],
)
def test_shapes(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        sample(make(), PLANE)


@pytest.mark.parametrize(
    ("log_accept", "said"),
    [
        (
            lambda theta, y: 0.1 - 0.5 * y**2,  # at an observation
            r"log_accept returned 0.095 at theta=\{'loc': [-.\d]+\}, y=0.1; an acceptance "
            "probability cannot exceed 1: is the bound",
        ),
        (
            lambda theta, y: jnp.where(y < 0, 0.3, -0.5 * y**2),  # at proposals only
            r"log_accept returned 0.3 at theta=\{'loc': [-.\d]+\}, y=-[.\d]+; an acceptance",
        ),
        (
            lambda theta, y: jnp.where(y > 1, jnp.nan, -0.1),
            r"log_accept returned NaN at theta=\{'loc': .*\}, y=1.1; it must be a number, or -inf",
        ),
        (
            lambda theta, y: jnp.where(y < 0, jnp.nan, -0.1),
            r"log_accept returned NaN at theta=\{'loc': .*\}, y=-",
        ),
    ],
)
def test_log_accept_breaks_its_promise(log_accept: Callable, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        sample(rejection(log_accept=log_accept))


# Starts.


def test_a_prior_without_support_for_the_data() -> None:
    model = truncated(
        {"width": dist.Uniform(0.0, 0.05)}, lambda theta: dist.Uniform(0.0, theta["width"])
    )
    with pytest.raises(StartError, match=r"20 of 20 observations have zero.*prior has no support"):
        sample(model)


def test_a_prior_without_any_density() -> None:
    def prior() -> None:
        numpyro.sample("loc", dist.Normal(0.0, 1.0))
        numpyro.factor("impossible", -jnp.inf)

    with pytest.raises(StartError, match="the prior density is zero or NaN at all 1024 starting"):
        sample(truncated(prior))


FAR = truncated(inside=lambda x: (x > 1000) & (x < 1001))


def test_a_proposal_density_of_nan() -> None:
    model = rejection(log_proposal=lambda theta, y: jnp.nan * y)
    with pytest.raises(StartError, match=r"or log_proposal is NaN there: evaluate model.log_prop"):
        sample(model)


@pytest.mark.parametrize(
    ("model", "data", "settings"),
    [
        pytest.param(FAR, 1000 + X / 2.5, {}, id="far"),
        pytest.param(FAR, 1000 + X / 2.5, {"budget": None}, id="far, no budget"),
        pytest.param(
            regression(inside=lambda x, c: (x > 1000) & (x < 1001)),
            1000 + X / 2.5,
            {"covariates": np.ones(20)},
            id="far, covariates",
        ),
        pytest.param(truncated(inside=lambda x: x == 0.5), np.full(20, 0.5), {}, id="empty window"),
        pytest.param(rejection(log_accept=lambda theta, y: -50.0 + 0 * y), X, {}, id="rare"),
    ],
)
def test_nothing_is_ever_accepted(model: Any, data: np.ndarray, settings: dict) -> None:
    started = time.process_time()
    with pytest.raises(
        StartError,
        match=r"at the start theta=\{'loc': .*\} only 0 of 20 needed acceptances came from more "
        r"than 2,000,000 proposals.*is the window .* on the scale of the data",
    ):
        sample(model, data, **settings)
    assert time.process_time() - started < 10.0  # CPU: other work on the machine does not count


LOW = truncated({"loc": dist.Normal(-2.0, 0.01)})


@pytest.mark.parametrize("budget", [0, 5])
def test_a_budget_too_small_for_the_start(budget: int) -> None:
    with pytest.raises(
        StartError,
        match=rf"a budget of {budget} rejections .* is too small: at the start theta=\{{'loc': -"
        r"[12].* a sweep needs about \d{3,4}\. Raise the budget",
    ):
        sample(LOW, budget=budget)


# Settings.


@pytest.mark.parametrize("kernel", ["NUTS", 3, object()])
def test_unknown_kernels(kernel: Any) -> None:
    with pytest.raises(SettingsError, match=r"kernel must be one of offcut.NUTS\(\), .*, got"):
        sample(MODEL, kernel=kernel)


@pytest.mark.parametrize("kernel", [offcut.NUTS, offcut.RandomWalk])
def test_kernel_classes(kernel: Any) -> None:
    with pytest.raises(SettingsError, match=r"an instance, with parentheses\), got .*"):
        sample(MODEL, kernel=kernel)


@pytest.mark.parametrize("budget", [-1, 10.0, True, "none", 2**40, float("nan")])
def test_budgets(budget: Any) -> None:
    with pytest.raises(
        SettingsError, match=r'budget must be "auto", None \(no limit\) or a whole number from 0'
    ):
        sample(MODEL, budget=budget)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("draws", 0),
        ("draws", 10.0),
        ("draws", True),
        ("draws", "100"),
        ("warmup", -1),
        ("chains", 0),
        ("chains", -2),
        ("seed", 1.5),
        ("seed", "a"),
        ("seed", None),
        ("seed", 2**70),
    ],
)
def test_whole_numbers(setting: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"{setting} must be a whole number.*, got {value!r}"):
        sample(MODEL, **{setting: value})


@pytest.mark.parametrize("value", [0, 0.0, -0.1, float("nan"), float("inf"), True, "0.1"])
@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (offcut.NUTS, "step_size"),
        (offcut.HMC, "step_size"),
        (offcut.HMC, "num_steps"),
        (offcut.RandomWalk, "scale"),
        (offcut.PseudoMarginal, "acceptances"),
    ],
)
def test_tuning_constants(kernel: Any, name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"{name} must be a positive .*number, got {value!r}"):
        kernel(**{name: value})


@pytest.mark.parametrize("model", ["truncated", dist.Normal(0.0, 1.0), lambda x: x])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(ModelError, match=r"model must come from offcut.truncated, .*, got"):
        sample(model)
