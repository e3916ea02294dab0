"""The result in words, on disk, and in the hands of ArviZ."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import arviz_stats
import kill_me
import numpy as np
import pytest
import xarray as xr

import offcut
from offcut.errors import TrustWarning
from offcut.result.summary import r_hat, warn_of_trouble


def changed(tree: Any, **attrs: Any) -> xr.DataTree:
    copy = tree.copy(deep=True)
    copy.attrs.update(attrs)
    return copy


def with_stat(tree: Any, name: str, values: Any, group: str = "sample_stats") -> xr.DataTree:
    copy = tree.copy(deep=True)
    variable = (("chain", "draw"), np.broadcast_to(values, (3, 150)))
    copy[group].dataset = copy[group].to_dataset().assign({name: variable})
    return copy


def with_loc(tree: Any, values: Any) -> xr.DataTree:
    return with_stat(tree, "loc", values, "posterior")


@pytest.fixture
def calm(short_run: Any) -> xr.DataTree:
    """A tree that gives no reason for doubt: independent draws, far from the budget."""
    rng = np.random.default_rng(0)
    tree = changed(short_run, tv_halving_limit=0.004, tv_estimate=0.0)
    tree = with_loc(tree, rng.normal(size=(3, 150)))
    return with_stat(with_stat(tree, "rejected", rng.poisson(200, (3, 150))), "diverging", False)


def test_the_certificate_in_words(calm: xr.DataTree) -> None:
    said = str(offcut.summary(calm))
    assert "Certificate: sweeps were limited to 3,000 rejections." in said
    assert "Halving that limit would change the posterior by at most 0.40%" in said
    assert "an estimate, not a bound" in said
    assert "Rejected proposals |Y| a sweep: median" in said
    assert "beside 50 observations" in said
    assert "Before you trust this" not in said
    assert offcut.summary(calm).trouble == []


def test_the_table_has_the_numbers_of_the_draws(calm: xr.DataTree) -> None:
    row = offcut.summary(calm).table["loc"]
    draws = calm["posterior"]["loc"].values
    assert row["mean"] == draws.mean()
    assert row["sd"] == draws.std(ddof=1)
    assert row["5%"] == np.quantile(draws, 0.05)
    assert row["r_hat"] == pytest.approx(float(arviz_stats.rhat(calm)["loc"]))
    # Not more than there are draws, even where the chains are antithetic.
    assert row["ess"] == min(450.0, float(arviz_stats.ess(calm, method="mean")["loc"]))
    slow = with_loc(calm, np.cumsum(draws, axis=1))
    ess = float(arviz_stats.ess(slow, method="mean")["loc"])
    assert ess < 100
    assert offcut.summary(slow).table["loc"]["ess"] == pytest.approx(ess)


def test_chains_that_disagree(calm: xr.DataTree) -> None:
    apart = with_loc(calm, np.add(calm["posterior"]["loc"].values, [[0.0], [3.0], [6.0]]))
    said = offcut.summary(apart)
    assert "Before you trust this:" in said.text
    assert len(said.trouble) == 1
    assert said.trouble[0].startswith("The chains disagree: R-hat above 1.05 for loc (")
    with pytest.warns(TrustWarning, match="The chains disagree: R-hat above 1.05 for loc"):
        warn_of_trouble(apart)


def test_chains_that_stand_still_disagree(calm: xr.DataTree) -> None:
    stuck = with_loc(calm, [[0.0], [1.0], [2.0]])
    assert offcut.summary(stuck).table["loc"]["r_hat"] == np.inf
    assert "R-hat above 1.05 for loc (inf)" in str(offcut.summary(stuck))
    assert r_hat(np.ones((3, 100))) == 1.0


def test_the_number_of_rejections_may_disagree_alone(calm: xr.DataTree) -> None:
    counts = np.add(calm["sample_stats"]["rejected"].values, [[0], [90], [0]])
    drifting = with_stat(calm, "rejected", counts)
    assert "R-hat above 1.05 for |Y| (" in str(offcut.summary(drifting))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: changed(t, interrupted=1, draws=400), "interrupted: 150 of 400 draws of each"),
        (lambda t: with_stat(t, "gave_up", True), "100.0% of the sweeps gave up"),
        (lambda t: with_stat(t, "diverging", True), "450 sweeps diverged"),
        (
            lambda t: changed(with_stat(t, "rejected", 1501), tv_halving_limit=0.3),
            "The budget may matter: halving it to 1,500 could change the posterior by up to 30%",
        ),
        (
            lambda t: changed(t, tv_halving_limit=0.3),
            "Too few independent draws to certify the budget",
        ),
    ],
)
def test_every_reason_for_doubt(calm: xr.DataTree, spoil: Any, said: str) -> None:
    spoilt = spoil(calm)
    assert said in "\n".join(offcut.summary(spoilt).trouble)
    with pytest.warns(TrustWarning, match="the|The"):
        warn_of_trouble(spoilt)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({"budget": "none"}, "Certificate: no budget was set, so nothing was restricted."),
        (
            {"tv_estimate": np.nan, "tv_note": "no attempts to average"},
            "No estimate against no limit at all: no attempts to average.",
        ),
        ({"tv_note": "void: 3.0% of the sweeps gave up"}, "void: 3.0% of the sweeps gave up."),
    ],
)
def test_certificates_of_other_kinds(calm: xr.DataTree, attrs: dict, said: str) -> None:
    assert said in str(offcut.summary(changed(calm, **attrs)))


def test_a_short_run_warns_of_what_it_is(truncated_normal: Any, observations: np.ndarray) -> None:
    with pytest.warns(TrustWarning, match="Too few independent draws to certify the budget"):
        offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "draws": 10})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "budget": None})
    assert not any("certify the budget" in str(w.message) for w in caught)


def test_saved_and_read_back(short_run: Any, tmp_path: Path) -> None:
    path = tmp_path / "posterior.nc"
    short_run.to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as file:
        back = file.load()
    assert dict(back.attrs) == dict(short_run.attrs)
    for group in ("posterior", "sample_stats", "observed_data"):
        xr.testing.assert_identical(back[group].to_dataset(), short_run[group].to_dataset())
    assert str(offcut.summary(back)) == str(offcut.summary(short_run))


def test_saved_without_a_budget(
    truncated_normal: Any, observations: np.ndarray, tmp_path: Path
) -> None:
    tree = offcut.sample(truncated_normal, observations, **{**kill_me.SHORT, "budget": None})
    tree.to_netcdf(tmp_path / "posterior.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "posterior.nc", engine="h5netcdf") as file:
        assert "no budget was set" in str(offcut.summary(file.load()))


def test_the_result_says_what_made_it(short_run: Any, observations: np.ndarray) -> None:
    attrs = short_run.attrs
    for name in ("draws", "warmup", "chains", "seed", "budget"):
        assert attrs[name] == kill_me.SHORT[name]
    assert attrs["kernel"] == repr(kill_me.SHORT["kernel"])
    assert attrs["n_observations"] == 50
    assert attrs["version_offcut"] == offcut.__version__
    assert np.array_equal(short_run["observed_data"]["x"], observations)
    stats = short_run["sample_stats"]
    assert np.array_equal(stats["proposal_acceptance_rate"], 50 / (50 + stats["rejected"].values))


def test_arviz_takes_it(short_run: Any) -> None:
    table = arviz_stats.summary(short_run)
    assert list(table.index) == ["loc"]
    assert float(arviz_stats.ess(short_run)["loc"]) > 1
