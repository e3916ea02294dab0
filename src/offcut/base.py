"""The seam between models and the driver.

The driver knows nothing of rejection models. It drives a *sampler*: an object with a pure,
compiled ``step`` and a few functions around it. Algorithm 2 is one
(``offcut.samplers.algorithm2``), the exchange sampler another; a model with a better sweep of its
own replaces the whole step. What the driver adds is common to all: keys, chains, blocks, warm-up
schedule, budget, checkpoints, the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

#: Memory that the rejected points of one chain may take.
MEMORY_LIMIT = 2**30
#: No run of the rejection sampler counts further than this (int32 with room for a block).
MOST_REJECTED = 2**31 - 2**13
#: Statuses a step may end with. The driver keeps the state from before a step that is not OK.
OK, FULL, BROKEN = 0, 1, 2


class Stage(NamedTuple):
    """What the driver tells a step: traced data, so warm-up and sampling are one program.

    budget : largest allowed number of rejections (MOST_REJECTED where there is no budget).
    restricted : whether there is a budget at all.
    adapting : in warm-up; slow : gather moments for the metric; window_end : use them now;
    last : the last step of warm-up, after which nothing changes any more.
    """

    budget: jax.Array
    restricted: jax.Array
    adapting: jax.Array
    slow: jax.Array
    window_end: jax.Array
    last: jax.Array


class Info(NamedTuple):
    """What a step tells the driver.

    stats : dict of scalars (or small vectors) for ``sample_stats``; must hold ``rejected``, and
        ``attempts`` where the step redraws Y until it fits the budget.
    status : OK; FULL, the buffer is too small (the driver grows it and runs the step again with
        the same key); or BROKEN, the model broke a promise (the driver calls ``explain``).
    evidence : whatever ``explain`` needs.
    """

    stats: dict[str, jax.Array]
    status: jax.Array
    evidence: Any


class Variable(NamedTuple):
    """A variable of the result: names of its own dimensions, and how far it can be judged.

    exchangeable : its entries change places during a run (components of a mixture), so that R-hat
    and ESS of one entry say nothing. diagnosed : a statistic that must agree between chains.
    by_kernel : it is moved by the kernel whose score is recorded, so that the score can tell how
    much of the information about it is missing. derived : it is computed from others, or fixed,
    so that it may well stand still. constant : which entries (flat) are the same whatever theta
    is, where that is known; None where it is not.
    """

    dimensions: tuple[str, ...] | None  # None: numbered
    exchangeable: bool = False
    diagnosed: bool = False
    by_kernel: bool = True
    derived: bool = False
    constant: tuple[bool, ...] | None = None


class Sampler:
    """What a model hands to the driver: subclass it and write ``start``, ``step`` and ``record``.

    ``data`` is a pytree of arrays, passed in, never baked in. The other methods are for samplers
    that hold rejections in a buffer; their defaults are those of a sampler without one.

    Attributes
    ----------
    kernel_name : str
        For the result.
    adapts : bool
        Whether warm-up changes anything but the position.
    draws_rejections : bool
        Whether there is a Y, so that a budget means something.
    identity : str
        A digest of all that the sampler computes with; empty where nobody has said.
    redraws : bool
        Whether Y is redrawn until it fits the budget, so that ``attempts`` mean something.
    """

    kernel_name: str = ""
    adapts: bool = False
    draws_rejections: bool = False
    redraws: bool = False
    identity: str = ""

    def start(self, key: jax.Array, data: Any, budget: int) -> Any:
        """A first state (host side); raises ``StartError`` where there is none."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: Any, stage: Stage, data: Any) -> tuple[Any, Info]:
        """One sweep; pure and compiled."""
        raise NotImplementedError

    def record(self, state: Any) -> dict[str, jax.Array]:
        """The posterior variables at a state; pure and compiled with the step."""
        raise NotImplementedError

    def variables(self) -> dict[str, Variable]:
        """What is special about posterior variables and statistics, by name."""
        return {}

    def capacity(self, state: Any) -> int | None:
        """Rows of the buffer of rejections, or None where the state has none."""
        return None

    def resized(self, state: Any, capacity: int) -> Any:
        """The same state with room for ``capacity`` rejections."""
        return state

    def row_bytes(self, state: Any) -> int:
        """Bytes that one more rejection takes."""
        return 0

    def rejected(self, state: Any) -> int:
        """|Y| held in the state (0 where none is held)."""
        return 0

    def explain(self, state: Any, evidence: Any) -> Exception:
        """The error to raise after a BROKEN step."""
        return RuntimeError(f"a step of {self.kernel_name} broke: {evidence}")

    def inspect(self, state: Any, data: Any) -> None:
        """Check promises that the step does not (host side, once a block); raise if broken."""
