"""Acceptance rates at draws from the prior, counted; and the warning before a run."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offcut.augmentation.joint import Observed
from offcut.augmentation.layout import Layout
from offcut.augmentation.shared import no_worst, update_worst
from offcut.budget import warmup_budget
from offcut.keys import from_seed
from offcut.models.rejection import RejectionModel
from offcut.observations import point_like, point_size
from offcut.promises import refuse_broken

#: Proposals at one draw in one round, and numbers in all proposals of a round, at the most.
BLOCK, BLOCK_NUMBERS = 512, 2**22
#: A rate is known well enough (to a tenth) after so many acceptances.
ENOUGH = 100
#: Below this rejections outnumber observations a hundred to one.
FEW = 1e-2
#: What a look before every run may cost.
QUICK_DRAWS, QUICK_PROPOSALS = 100, 2048


class Counts(NamedTuple):
    """Of each draw of theta: proposals made and accepted."""

    theta: dict[str, np.ndarray]
    accepted: np.ndarray
    proposed: np.ndarray

    @property
    def rates(self) -> np.ndarray:
        """Accepted over proposed; 3 over proposed (a 95% limit) where none was accepted."""
        return np.where(self.accepted > 0, self.accepted, 3.0) / self.proposed


def warning_before(model: RejectionModel, arrays: Observed, layout: Layout) -> str | None:
    """A warning where most of the prior lets less than 1% pass; call it in float64.

    Quick enough for every run: a hundred draws of theta with at most two thousand proposals each.
    """
    n = layout.n
    trees = jax.tree.map(lambda a: a[:n], arrays.covariates)
    counts = count_accepted(model, from_seed(0), trees, QUICK_DRAWS, QUICK_PROPOSALS)
    share = float(np.mean(counts.rates < FEW))
    if share <= 0.5:
        return None
    middle = int(np.argsort(counts.rates)[len(counts.rates) // 2])
    rate, unseen = float(counts.rates[middle]), counts.accepted[middle] == 0
    needed = n * (1 / rate - 1)
    room = warmup_budget("auto", n) or 0
    about = "more than" if unseen else "about"
    much = f", more than the {room:,} that warm-up has room for" if needed > room else ""
    return (
        f"By the prior next to nothing passes the filter: at {share:.0%} of its draws less than 1 "
        f"proposal in 100, in the median {'less than ' if unseen else ''}{rate:.2g}. A sweep there "
        f"needs {about} {needed:,.0f} rejections for {n:,} observations{much}. If the data do not "
        "lead elsewhere, this run will be slow and mix badly: tighten the prior, or move it to "
        "where the data can come from; offcut.prior_acceptance(model) shows more."
    )


def count_accepted(
    model: RejectionModel, key: jax.Array, trees: tuple, draws: int, most: int
) -> Counts:
    """Propose at draws from the prior until ENOUGH are accepted or ``most`` were proposed.

    Every round fills the same number of slots, so that one program serves: draws that need more
    share the slots of those that are done.
    """
    like = point_like(model, trees)
    block = int(np.clip(BLOCK_NUMBERS // (draws * max(point_size(like), 1)), 32, BLOCK))
    draw = model.compiled("prior draws", jax.vmap(model.prior.sample))
    program = model.compiled(("prior counts", block), _counting(model, like, block))
    theta = draw(jax.random.split(jax.random.fold_in(key, 0), draws))
    accepted, proposed = np.zeros(draws, int), np.zeros(draws, int)
    pending, turn = np.arange(draws), 1
    while pending.size:
        slots = np.resize(pending, draws)
        at = jax.tree.map(lambda a, slots=slots: a[slots], theta)
        new, worst = program(jax.random.split(jax.random.fold_in(key, turn), draws), at, trees)
        place = int(np.argmax(np.nan_to_num(np.asarray(worst.log_accept), nan=np.inf)))
        here = jax.tree.map(lambda a, place=place: np.asarray(a[place]), (at, worst))
        refuse_broken(model, *here)
        np.add.at(accepted, slots, np.asarray(new))
        np.add.at(proposed, slots, block)
        pending, turn = np.flatnonzero((accepted < ENOUGH) & (proposed < most)), turn + 1
    return Counts(jax.tree.map(np.asarray, theta), accepted, proposed)


def _counting(model: RejectionModel, like: Any, block: int) -> Any:
    """``f(keys, thetas, covariates)``: acceptances among ``block`` proposals each, the worst."""

    def propose(key: jax.Array, theta: Any, trees: tuple) -> Any:
        if not trees:
            return model.propose_block(key, theta, block)
        key_row, key_point = jax.random.split(key)
        row = jax.random.randint(key_row, (block,), 0, len(jax.tree.leaves(trees)[0]))
        chosen = jax.tree.map(lambda a: a[row], trees)
        each = jax.vmap(lambda k, *covariate: model.propose_one(k, theta, *covariate))
        return each(jax.random.split(key_point, block), *chosen)

    def count(key: jax.Array, theta: Any, trees: tuple) -> tuple:
        new = propose(key, theta, trees)
        worst = update_worst(no_worst(like), new.log_accept, new.points)
        return jnp.sum(new.accepted, dtype=jnp.int32), worst

    return jax.vmap(count, (0, 0, None))
