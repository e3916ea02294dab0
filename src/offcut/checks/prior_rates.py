"""``offcut.prior_acceptance``: how much passes the filter, by the prior, before any data.

A prior that looks harmless may say that next to nothing passes. Sweeps then take long and mix
slowly, and the posterior has a tail that no run will see the end of. That can be known before:
acceptance rates at draws from the prior are counted, here at length and before a long run in short
(``looks.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from offcut.augmentation.acceptance import (
    Worst,
    is_broken,
    merge_worst,
    no_worst,
    refuse_broken,
    update_worst,
)
from offcut.errors import ModelError, SettingsError
from offcut.models.data import (
    as_arrays,
    as_covariates,
    count_rows,
    point_like,
    point_size,
)
from offcut.models.prior import Theta
from offcut.models.rejection import Proposed, RejectionModel
from offcut.numerics.arrays import exclusive_count
from offcut.numerics.keys import from_seed, rolled
from offcut.numerics.rendering import shown
from offcut.numerics.types import KeyArray
from offcut.programs.precision import in_float64

Count = Int[Array, ""]
#: Proposals at one draw in one round, and numbers in all proposals of a round, at the most.
BLOCK, BLOCK_NUMBERS = 512, 2**22
#: A rate is known well enough (to a tenth) after so many acceptances.
ENOUGH = 100
#: Below this rejections outnumber observations a hundred to one.
FEW = 1e-2


class Counts(NamedTuple):
    """Of each draw of theta: proposals made and accepted."""

    theta: dict[str, np.ndarray]
    accepted: Int[np.ndarray, " draws"]
    proposed: Int[np.ndarray, " draws"]

    @property
    def rates(self) -> np.ndarray:
        """Accepted over proposed; 3 over proposed (a 95% limit) where none was accepted."""
        return np.where(self.accepted > 0, self.accepted, 3.0) / self.proposed


class _Counting(NamedTuple):
    """What the program has counted so far, and the worst log a, with the draw it was met at."""

    number: Count
    accepted: Int[Array, " draws"]
    proposed: Int[Array, " draws"]
    worst: Worst
    place: Count


def count_accepted(
    model: RejectionModel, key: KeyArray, trees: tuple, n: int, draws: int, most: int
) -> Counts:
    """Propose at draws from the prior until ENOUGH are accepted or ``most`` were proposed.

    Of covariates the first ``n`` rows count. One program does it all; every round of it fills the
    same number of slots: draws that need more share the slots of those that are done.
    """
    like = point_like(model, trees)
    block = int(np.clip(BLOCK_NUMBERS // (draws * max(point_size(like), 1)), 32, BLOCK))
    program = model.compiled(("prior look", draws, block), _counting(model, like, draws, block))
    theta, counted = program(key, trees, np.int32(n), np.int32(most))
    theta, place = jax.tree.map(np.asarray, theta), int(counted.place)
    refuse_broken(model, {name: v[place] for name, v in theta.items()}, counted.worst)
    return Counts(theta, *(np.asarray(c, int) for c in (counted.accepted, counted.proposed)))


def _counting(
    model: RejectionModel, like: PyTree, draws: int, block: int
) -> Callable[..., tuple[Theta, _Counting]]:
    """``f(key, covariates, n, most)``: draws of theta, and what was counted at each."""

    def propose(key: KeyArray, theta: Theta, trees: tuple, n: Count) -> Proposed:
        if not trees:
            return model.propose_block(key, theta, block)
        key_row, key_point = jax.random.split(key)
        row = jax.random.randint(key_row, (block,), 0, n)
        chosen = jax.tree.map(lambda a: a[row], trees)
        each = jax.vmap(lambda k, *covariate: model.propose_one(k, theta, *covariate))
        return each(jax.random.split(key_point, block), *chosen)

    def run(key: KeyArray, trees: tuple, n: Count, most: Count) -> tuple[Theta, _Counting]:
        key = rolled(key)
        theta = jax.vmap(model.prior.sample)(jax.random.split(jax.random.fold_in(key, 0), draws))

        def count(key: KeyArray, at: Theta) -> tuple[Count, Worst]:
            new = propose(key, at, trees, n)
            worst = update_worst(no_worst(like), new.log_accept, new.points)
            return jnp.sum(new.accepted, dtype=jnp.int32), worst

        def pending(so_far: _Counting) -> Bool[Array, " draws"]:
            return (so_far.accepted < ENOUGH) & (so_far.proposed < most)

        def one_round(so_far: _Counting) -> _Counting:
            waiting = pending(so_far)
            # Those that wait stand first; not by a sort, which takes a second to compile.
            index = jnp.arange(draws)
            rank = jnp.where(waiting, exclusive_count(waiting), draws)
            slots = jnp.zeros((draws + 1,), index.dtype).at[rank].set(index)
            slots = slots[index % jnp.sum(waiting)]
            own_keys = jax.random.split(jax.random.fold_in(key, so_far.number), draws)
            at = jax.tree.map(lambda a: a[slots], theta)
            new, worst = jax.lax.map(lambda given: count(*given), (own_keys, at))
            place = jnp.argmax(jnp.where(jnp.isnan(worst.log_accept), jnp.inf, worst.log_accept))
            here = jax.tree.map(lambda a: a[place], worst)
            now = merge_worst(so_far.worst, here)
            is_new = ~is_broken(so_far.worst.log_accept) & is_broken(now.log_accept)
            return _Counting(
                so_far.number + 1,
                so_far.accepted.at[slots].add(new),
                so_far.proposed.at[slots].add(block),
                now,
                jnp.where(is_new, slots[place], so_far.place).astype(jnp.int32),
            )

        def goes_on(so_far: _Counting) -> Bool[Array, ""]:
            return jnp.any(pending(so_far)) & ~is_broken(so_far.worst.log_accept)

        nothing = jnp.zeros((draws,), jnp.int32)
        start = _Counting(jnp.int32(1), nothing, nothing, no_worst(like), jnp.int32(0))
        return theta, jax.lax.while_loop(goes_on, one_round, start)

    return run


VERY_FEW = 1e-4
LEVELS = {"5%": 0.05, "25%": 0.25, "50%": 0.5, "75%": 0.75, "95%": 0.95}


class PriorAcceptance:
    """What ``offcut.prior_acceptance`` returns; printing it prints everything.

    Attributes
    ----------
    rates : array
        Acceptance rate at each draw of theta, averaged over covariates where there are some. Where
        no proposal was accepted it is an upper limit, three in the number of proposals.
    is_limit : array of bool
        Whether a rate is such a limit.
    theta : dict of arrays
        The draws.
    quantiles : dict
        Quantiles of ``rates`` over the prior.
    rejections : dict
        Expected rejections a sweep at the same quantiles, for ``n`` observations.
    below : dict
        Share of the prior with rates below 0.01 and below 0.0001.
    advice : list of str
        What to think of it; empty where all is well.
    """

    def __init__(self, counts: Counts, n: int, averaged: bool) -> None:
        order = np.argsort(counts.accepted / counts.proposed, kind="stable")
        self.theta = {name: values[order] for name, values in counts.theta.items()}
        self.rates, self.is_limit = counts.rates[order], (counts.accepted == 0)[order]
        self.n, self._averaged = n, averaged
        places = {k: int(level * (len(order) - 1)) for k, level in LEVELS.items()}
        self._limited = {k: bool(self.is_limit[i]) for k, i in places.items()}
        self.quantiles = {k: float(self.rates[i]) for k, i in places.items()}
        self.rejections = {k: n * (1 / rate - 1) for k, rate in self.quantiles.items()}
        self.below = {level: float(np.mean(self.rates < level)) for level in (FEW, VERY_FEW)}
        self.advice = self._advise()

    def _advise(self) -> list[str]:
        if self.below[FEW] < 0.05:
            return []
        lowest = {name: values[0] for name, values in self.theta.items()}
        advice = [
            f"{self.below[FEW]:.0%} of the prior says that less than 1 in 100 passes, for example "
            f"at {shown(lowest, 3)}. Where data do not exclude this, sweeps are slow, mix slowly, "
            "and the posterior has a tail that a run may never see."
        ]
        advice.append(
            "If you know better, say so in the prior: narrower scales, a location nearer to the "
            "window. If not, watch the effective sample size and R-hat of |Y| in the summary."
        )
        return advice

    def __str__(self) -> str:
        over = ", averaged over the covariates' rows" if self._averaged else ""
        least = "at least " if self._averaged else ""
        what = "each observation" if self.n == 1 else f"{self.n:,} observations"
        lines = [
            f"Acceptance rate at {len(self.rates):,} draws from the prior{over}, and rejections a "
            f"sweep for {what}:",
            f"  {'prior quantile':>14}  {'accepted':>10}  {'rejections':>20}",
        ]
        for name, rate in self.quantiles.items():
            limited = self._limited[name]
            accepted = f"{'< ' if limited else ''}{rate:.2g}"
            rejections = f"{'> ' if limited else least}{_count(self.rejections[name])}"
            lines.append(f"  {name:>14}  {accepted:>10}  {rejections:>20}")
        lines.append(
            f"Less than 1% passes in {self.below[FEW]:.0%} of the prior, less than 0.01% in "
            f"{self.below[VERY_FEW]:.0%}."
        )
        return "\n".join([*lines, *[f"- {line}" for line in self.advice]])

    __repr__ = __str__


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 1e7 else f"{number:.1e}"


@in_float64
def prior_acceptance(
    model: RejectionModel,
    *,
    covariates: PyTree = None,
    n: int | None = None,
    draws: int = 200,
    proposals: int = 100_000,
    seed: int = 0,
) -> PriorAcceptance:
    """How much passes the filter, by the prior alone: look before a long run.

    Parameters
    ----------
    model : RejectionModel
        From ``truncated``, ``selected`` or ``RejectionModel``.
    covariates : pytree with a row for each observation, optional
        For models that need them; rates are then averages over the rows, and rejections at least
        those given (rows that pass rarely need more).
    n : int, optional
        Observations to count rejections for; by default the rows of the covariates, else one.
    draws : int
        Draws of theta from the prior.
    proposals : int
        Proposals at each of them, at the most; fewer where acceptances are frequent.
    seed : int
        Seed.

    Returns
    -------
    PriorAcceptance
        ``print`` it; ``.quantiles``, ``.below`` and ``.rejections`` hold the numbers.

    Examples
    --------
    >>> import numpyro.distributions as dist, offcut
    >>> model = offcut.truncated(
    ...     prior={"loc": dist.Normal(0, 10)},
    ...     base=lambda theta: dist.Normal(theta["loc"], 1),
    ...     inside=lambda x: x > 0,
    ... )
    >>> found = offcut.prior_acceptance(model, draws=100, proposals=10_000)
    >>> 0.3 < found.below[0.01] < 0.6
    True
    """
    if not isinstance(model, RejectionModel):
        raise ModelError(f"prior_acceptance is about rejection models, got {type(model).__name__}")
    given = {"draws": draws, "proposals": proposals, "n": 1 if n is None else n}
    for name, value in given.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not 1 <= value < 2**31:
            raise SettingsError(f"{name} must be a whole number of at least 1, got {value!r}")
    trees: tuple = ()
    if covariates is not None:
        trees = as_covariates(
            covariates, count_rows(as_arrays(covariates, "covariates"), "covariates")
        )
        n = count_rows(trees, "covariates") if n is None else n
    point_like(model, trees)  # says what is wrong where the model does not run
    model.identify(trees)
    rows = count_rows(trees, "covariates") if trees else 0
    counts = count_accepted(model, from_seed(seed), trees, rows, int(draws), int(proposals))
    return PriorAcceptance(counts, 1 if n is None else int(n), bool(trees))
