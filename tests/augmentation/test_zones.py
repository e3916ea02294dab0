"""Which values are censored, what zones are refused, and where hidden values start."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr

import offcut
from offcut.augmentation.hidden import find_clamped
from offcut.augmentation.impute import first_imputed, first_moves, refuse_impossible_zones
from offcut.checks.looks import pile_ups
from offcut.errors import DataError, ModelError, StartError
from offcut.result.diagnostics import Run
from offcut.result.overview import _undrawn
from offcut.samplers.choice import observe


def normal(**options):
    options.setdefault("inside", lambda y, *c: y > -5)
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta, *c: dist.Normal(theta["loc"], 1.0),
        **options,
    )


def plane(**options):
    options.setdefault("inside", lambda y, *c: y[0] > -5)
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta, *c: dist.Normal(theta["loc"], 1.0).expand([2]).to_event(1),
        **options,
    )


def observed(model, data, covariates=None):
    with jax.enable_x64(True):
        return observe(model, data, covariates)[0]


def hidden_rows(model, data, covariates=None):
    """Rows hidden as a whole, by number of their zone."""
    whole = observed(model, data, covariates).hidden
    if whole is None:
        return [], []
    zone = np.asarray(whole.whole.zone)
    rows = np.asarray(whole.whole.rows)
    return rows[zone == 0].tolist(), rows[zone == 1].tolist()


# Precision: the limit as the recorder wrote it.


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("limit", [0.1, 0.7, 1 / 3, 1e-3, 1234.6])
def test_clamped_values_are_recognised_in_the_precision_of_the_data(dtype, limit):
    inner = np.array([0.3, 0.5, 0.2]) * limit
    came = np.concatenate([inner, [limit, limit, -limit]]).astype(dtype)
    found = find_clamped(offcut.Clamped(-limit, limit), (), came.astype(float), came)
    assert np.flatnonzero(found.at_lower).tolist() == [5]
    assert np.flatnonzero(found.at_upper).tolist() == [3, 4]
    # The present value is inside the zone of the model, whose limit is not rounded.
    assert (found.exactly(came.astype(float))[3:] == [limit, limit, -limit]).all()
    own = offcut.Clamped(upper=lambda c: c)
    for limits in (np.full(6, limit), np.full(6, limit).astype(dtype).astype(float)):
        with jax.enable_x64(True):
            found = find_clamped(own, (jnp.asarray(limits),), came.astype(float), came)
        assert np.flatnonzero(found.at_upper).tolist() == [3, 4]


def test_single_precision_from_the_start_to_the_model():
    x = np.array([0.3, 0.1, 0.7, 0.7], np.float32)
    assert hidden_rows(normal(censored=offcut.Clamped(0.1, 0.7)), x) == ([1], [2, 3])
    points = np.asarray(observed(normal(censored=offcut.Clamped(0.1, 0.7)), x).points)
    assert points[:4].tolist() == [float(x[0]), 0.1, 0.7, 0.7]
    own = normal(censored=offcut.Clamped(upper=lambda c: c))
    assert hidden_rows(own, x, np.full(4, 0.7)) == ([], [2, 3])


def test_limits_of_single_precision_beside_data_of_double():
    x = np.array([0.3, 0.5, 0.7, 0.7])
    for limit in (np.float32(0.7), jnp.asarray([0.7], jnp.float32)[0]):
        assert hidden_rows(normal(censored=offcut.Clamped(upper=limit)), x) == ([], [2, 3])
    own = normal(censored=offcut.Clamped(upper=lambda c: c["limit"]))
    limits = pd.DataFrame({"limit": np.full(4, 0.7, np.float32), "other": np.arange(4.0)})
    assert hidden_rows(own, x, limits) == ([], [2, 3])


def test_clamped_coordinates_of_single_precision():
    x = np.array([[0.1, 0.2], [0.7, -0.3], [0.4, 0.7], [0.7, 0.7]])
    free = [[False, False], [True, False], [False, True], [True, True]]
    mixed = pd.DataFrame({"a": x[:, 0].astype(np.float32), "b": x[:, 1]})
    single = pd.DataFrame(x.astype(np.float32))
    for data in (x, x.astype(np.float32), x.astype(np.float16), mixed, single):
        parts = observed(plane(censored=offcut.Clamped(upper=0.7)), data).hidden.parts
        assert parts.rows[: parts.count].tolist() == [1, 2, 3]
        assert parts.free[: parts.count].tolist() == free[1:]


def test_dicts_of_single_precision():
    model = offcut.RejectionModel(
        prior={"loc": dist.Normal(0.0, 1.0)},
        propose=lambda key, theta: {"a": theta["loc"] + jax.random.normal(key, (1,))},
        log_proposal=lambda theta, y: dist.Normal(theta["loc"], 1.0).log_prob(y["a"][0]),
        log_accept=lambda theta, y: 0.0 * y["a"][0],
        censored=offcut.Clamped(upper=0.7),
    )
    data = {"a": np.array([[0.3], [0.7]], np.float32)}
    parts = observed(model, data).hidden.parts
    assert parts.rows[: parts.count].tolist() == [1]


def test_neighbours_of_a_limit_in_double_precision_are_not_at_it():
    near = np.nextafter(0.7, 0)
    assert hidden_rows(normal(censored=offcut.Clamped(upper=0.7)), [0.1, 0.3, near]) == ([], [])
    dates = np.array([2459000.25, 2459000.5, 2459010.0, 2459030.75])  # quarters of a day
    wide = normal(inside=lambda y: y > 0, censored=offcut.Clamped(lower=2459000.3 - 1e-9))
    with pytest.raises(DataError, match="beyond the limits"):
        observed(wide, dates)


def test_counts_are_compared_as_they_are():
    counts = offcut.truncated(
        prior={"rate": dist.Gamma(2.0, 1.0)},
        base=lambda theta: dist.Poisson(theta["rate"]),
        inside=lambda y: y >= 0,
        censored=offcut.Clamped(upper=4),
    )
    assert hidden_rows(counts, np.array([0, 3, 4, 4])) == ([], [2, 3])
    assert hidden_rows(counts, np.array([0, 3, 4, 4], np.float32)) == ([], [2, 3])
    with pytest.raises(DataError, match="beyond the limits"):
        observed(counts, np.array([0, 3, 5]))


# Beyond a clamp, and limits that are none.


def test_values_beyond_a_clamp_in_one_dimension_are_refused():
    x = np.array([0.3, 0.7, 0.9, -2.0])
    with pytest.raises(DataError, match=r"1 values lie beyond .* index \(2,\): 0\.9 outside"):
        observed(normal(censored=offcut.Clamped(upper=0.7)), x)
    with pytest.raises(DataError, match=r"y < -1\.0"):
        observed(normal(censored=offcut.Clamped(lower=-1.0)), x)
    own = normal(censored=offcut.Clamped(upper=lambda c: c))
    with pytest.raises(DataError, match="beyond the limits"):
        observed(own, x, np.array([0.5, 0.8, 0.8, 0.8]))
    # Zones are the user's: whatever lies inside is censored.
    assert hidden_rows(normal(censored=lambda y: y >= 0.7), x) == ([1, 2], [])


@pytest.mark.parametrize("upper", [lambda c: jnp.log(c), lambda c: -c])
def test_limits_of_single_rows_that_make_no_sense(upper):
    crossed = normal(censored=offcut.Clamped(lower=-1e9, upper=upper))
    with pytest.raises(ModelError, match="lower < upper for every value"):
        observed(crossed, np.array([0.1, 0.2]), np.array([1.0, -1.0]) * 1e10)


# Room for what is hidden.

RUN = {"draws": 20, "warmup": 20, "chains": 1, "kernel": offcut.HMC(0.2, 3), "progress": False}


def refuse(model, data, covariates=None):
    """What every sampler does before its first step; sampling would only add time."""
    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, observe(model, data, covariates)[0])
        theta, first = {"loc": jnp.asarray(0.3)}, first_imputed(arrays)
        moved = jax.jit(lambda: first_moves(model, jax.random.key(0), theta, arrays, first))()
        refuse_impossible_zones(model, theta, arrays, moved)


def test_vectors_clamped_where_the_window_ends():
    x = np.array([[0.3, 0.4], [2.5, 1.0], [0.5, 2.5], [0.2, -0.3]])
    wrong = plane(inside=lambda y: (y <= 2.5).all(), censored=offcut.Clamped(upper=2.5))
    with pytest.raises(StartError, match=r"2 observations .*\(coordinate 0, 1\).*index 1"):
        refuse(wrong, x)


def test_an_impossible_zone_beside_a_possible_one():
    x = np.array([-1.0, -1.0, 0.3, 1.5, 1.5, 1.5])
    wrong = normal(inside=lambda y: (y > -3) & (y <= 1.5), censored=offcut.Clamped(-1.0, 1.5))
    with pytest.raises(StartError, match=r"3 observations .* the zone above 1\.5.*index 3"):
        refuse(wrong, x)


def test_an_impossible_zone_of_one_row():
    x = np.array([0.2, 0.5, 0.9])
    wrong = normal(inside=lambda y, c: y <= 0.9, censored=lambda y, c: (y >= c) & (y <= c + 0.1))
    with pytest.raises(StartError, match=r"1 in zone 0 of censored=, the first at index 2"):
        refuse(wrong, x, x)
    outside = normal(inside=lambda y, c: y < 0.9, censored=lambda y, c: (y >= c) & (y <= c + 0.1))
    with pytest.raises(StartError, match=r"index 2 \(value 0\.9\)"):
        observed(outside, x, x)


# First values, and what is no value of the base.


def positive(**options):
    options.setdefault("inside", lambda y, *c: y > 0)
    return offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta, *c: dist.LogNormal(theta["loc"], 0.5),
        **options,
    )


def test_non_detects_written_as_zero_start_inside_their_zone():
    x = np.array([0.0, 0.0, 0.7, 1.2, 0.0, 2.1])
    data = observed(positive(censored=lambda y: y < 0.5), x)
    first = np.asarray(data.points)[[0, 1, 4]]
    assert ((first > 0) & (first < 0.5)).all()
    with pytest.raises(DataError, match=r"y < 0\.5"):
        observed(positive(censored=offcut.Clamped(lower=0.5)), x)


@pytest.mark.calibrate
def test_non_detects_written_as_zero_are_sampled():
    x = np.array([0.0, 0.0, 0.7, 1.2, 0.0, 2.1])
    posterior = offcut.sample(positive(censored=lambda y: y < 0.5), x, **RUN)
    assert (posterior["observed_data"]["x"].values == x).all()
    assert posterior["sample_stats"]["undrawn"].max() == 0


def test_a_recorded_value_outside_the_window_of_a_clamped_vector():
    """x1 saturates at 1 and is seen where x1 + x2 > 3: the limit itself is never in the window."""
    x = np.array([[1.0, 0.5], [0.9, 2.4], [1.0, 2.5]])
    model = plane(inside=lambda y: y[0] + y[1] > 3, censored=offcut.Clamped(upper=[1, np.inf]))
    points = np.asarray(observed(model, x).points)[:3]
    assert points[0, 0] + points[0, 1] > 3
    assert points[0, 1] == 0.5
    assert (points[1:] == x[1:]).all()


def test_values_that_the_base_cannot_produce_are_named():
    x = np.array([0.0, 0.0, 0.7, 1.2, 0.0, 2.1])
    with pytest.raises(DataError, match=r"3 of 6 .*LogNormal.*all of them are 0: .*censored="):
        observed(positive(), x)
    vectors = offcut.truncated(
        prior={"rate": dist.Gamma(2.0, 1.0)},
        base=lambda theta: dist.Gamma(2.0, theta["rate"]).expand([2]).to_event(1),
        inside=lambda y: y[0] > -5,
    )
    with pytest.raises(DataError, match=r"1 of 2 .*\(Gamma\).*index 1"):
        observed(vectors, np.array([[0.2, 0.3], [0.2, -0.3]]))
    # A support that depends on parameters or covariates is no matter of the data alone.
    for base in (lambda theta, c: dist.Uniform(0, c), lambda theta, c: dist.Uniform(0, theta["b"])):
        model = offcut.truncated({"b": dist.LogNormal(0.0, 1.0)}, base, lambda y, c: y < 9)
        observed(model, np.array([0.5, 7.0]), np.array([1.0, 8.0]))
    mixed = offcut.truncated(
        prior={"loc": dist.Normal(0.0, 1.0)},
        base=lambda theta: dist.MixtureGeneral(
            dist.Categorical(jnp.array([0.5, 0.5])),
            [dist.LogNormal(theta["loc"], 1.0), dist.Normal(theta["loc"], 1.0)],
            support=dist.constraints.positive,
        ),
        inside=lambda y: y < 9,
    )
    with jax.numpy_rank_promotion("allow"):  # NumPyro's mixture relies on it
        observed(mixed, np.array([0.5, -0.7]))


# Questions.


def questions(model, data, covariates):
    with jax.enable_x64(True):
        arrays, _, _ = observe(model, data, covariates)
        return [doubt.text for doubt in pile_ups(model, arrays, int(arrays.n))]


def test_exit_times_as_a_covariate_are_not_asked_about():
    rng = np.random.default_rng(0)
    exit_time = rng.lognormal(0.0, 0.5, 30)
    table = {"exit": exit_time, "event": (np.arange(30) % 3 > 0).astype(float)}
    survival = positive(censored=lambda y, c: (c["event"] == 0) & (y >= c["exit"]))
    assert questions(survival, exit_time, table) == []
    none_censored = {**table, "event": np.ones(30)}
    assert questions(survival, exit_time, none_censored) == []
    (question,) = questions(positive(), exit_time, table)
    assert "equal to one of their covariates" in question
    # A limit that the model does not know is still asked about.
    limit = np.where(np.arange(30) % 2, exit_time, exit_time + 1)
    other = {"event": np.zeros(30), "limit": limit}
    above = positive(censored=lambda y, c: (y > 1e6) & (c["event"] == 0))
    (question,) = questions(above, exit_time, other)
    assert "equal to one of their covariates" in question


def test_rows_that_are_never_drawn_make_a_run_doubtful():
    """Two chains of ten draws: a row may wait at first, not in the end."""
    early = np.zeros((2, 10), int)
    early[0, :3] = 4
    late = early.copy()
    late[1, 8] = 2
    for undrawn, said in ((early, ""), (late, "2 of the observations")):
        stats = xr.Dataset({"undrawn": (("chain", "draw"), undrawn)})
        found = _undrawn(Run(xr.DataTree.from_dict({"sample_stats": stats})))
        assert found.startswith(said)
        assert bool(found) == bool(said)
    assert _undrawn(Run(xr.DataTree.from_dict({"sample_stats": xr.Dataset()}))) == ""
