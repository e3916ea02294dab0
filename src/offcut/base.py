"""The contracts: what a model, a kernel and a sampler are to each other and to the driver.

    model, data  --prepare-->  sampler, arrays  --driver-->  draws  --result-->  posterior

A *model* says what generated the data, which routes there are to its posterior (``methods``), and
prepares a sampler for one of them. A *kernel* moves theta on that route. A *sampler* is what the
driver drives: a pure, compiled ``step`` and a few functions around it.
Algorithm 2 is one (``offcut.samplers.algorithm2``), the exchange sampler another; a model with a
better sweep of its own replaces the whole step. What the driver adds is common to all: keys,
chains, blocks, warm-up schedule, budget, checkpoints, the result. It knows nothing of models.

Whatever is optional is a method with a default; nobody asks whether an object has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from offcut.methods import OWN, Method, MethodSettings
from offcut.numerics.types import KeyArray

if TYPE_CHECKING:
    import xarray as xr

#: Memory that the rejected points of one chain may take.
MEMORY_LIMIT = 2**30
#: Room for rejections at first; more is compiled for when a sweep needs it.
FIRST_CAPACITY = 2**14
#: No run of the rejection sampler counts further than this (int32 with room for a block).
MOST_REJECTED = 2**31 - 2**13
#: Statuses a step may end with. The driver keeps the state from before a step that is not OK.
OK, FULL, BROKEN = 0, 1, 2

#: theta, unconstrained.
Position = Float[Array, " d"]
LogDensity = Callable[[Position], Float[Array, ""]]
#: A number known here, or only to the compiled program.
Count = int | Int[Array, ""]
Stats = dict[str, Shaped[Array, "..."]]
#: The state of a sampler and the arrays that it computes with: pytrees, each sampler's own.
State = TypeVar("State")
Data = TypeVar("Data")


class Doubt(NamedTuple):
    """A reason not to trust a run: what kind it is, for programs, and the words, for people.

    ``kind`` is one word or a few, the same for every doubt of the kind ("mixing", "pile-up").
    """

    kind: str
    text: str


class Stage(NamedTuple):
    """What the driver tells a step: traced data, so warm-up and sampling are one program.

    budget : largest allowed number of rejections (MOST_REJECTED where there is no budget).
    restricted : whether there is a budget at all.
    adapting : in warm-up; slow : gather moments for the metric; window_end : use them now;
    last : the last step of warm-up, after which nothing changes any more.
    """

    budget: Int[Array, ""]
    restricted: Bool[Array, ""]
    adapting: Bool[Array, ""]
    slow: Bool[Array, ""]
    window_end: Bool[Array, ""]
    last: Bool[Array, ""]


class Info(NamedTuple):
    """What a step tells the driver.

    stats : dict of scalars (or small vectors) for ``sample_stats``; must hold ``rejected``, and
        ``attempts`` where the step redraws Y until it fits the budget.
    status : OK; FULL, the buffer is too small (the driver grows it and runs the step again with
        the same key); or BROKEN, the model is not valid there (the driver calls ``explain``).
    evidence : whatever ``explain`` needs.
    """

    stats: Stats
    status: Int[Array, ""]
    evidence: PyTree


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


class Tuning(NamedTuple):
    """What a kernel has learnt in warm-up: its step size and the inverse of a mass matrix.

    The matrix is an estimate of the posterior covariance: its diagonal as a vector, or all of it.
    ``averaging`` and ``moments`` are what the estimates are made of (``offcut.kernels.tuning``).
    """

    step_size: Float[Array, ""]
    inverse_mass: Float[Array, " d"] | Float[Array, "d d"]
    averaging: PyTree
    moments: PyTree


class Kernel:
    """How theta moves on a density: subclass it as a frozen dataclass and write ``step``.

    It is hashed to find its compiled program, so its fields are numbers. ``GradientKernel`` and
    ``WalkKernel`` (``offcut.kernels.tuning``) have all but the step.

    Attributes
    ----------
    kind : str
        What it asks of a route, by its name in ``offcut.methods.KERNELS``: "gradient", a log
        density that can be differentiated, unless it says otherwise. A method names the kinds of
        kernels that it takes.
    fixed_length : bool
        Whether every move has the same length, which the posterior may want longer or shorter.
    target_acceptance : float or None
        What warm-up steers ``stats["acceptance_rate"]`` to, if the kernel adapts. None leaves it
        to the method (``on``).
    """

    kind: ClassVar[str] = "gradient"
    fixed_length: ClassVar[bool] = False
    target_acceptance: float | None

    def on(self, method: Method) -> Kernel:
        """The kernel on a route, with what the user has left to it."""
        return self

    @property
    def adapts(self) -> bool:
        """Whether warm-up tunes this kernel."""
        return False

    def first_tuning(self, points: Count, size: int) -> PyTree:
        """What warm-up starts from, for so many points and dimensions: a ``Tuning``, or None."""
        return None

    def step(
        self, key: KeyArray, position: Position, log_density: LogDensity, tuning: Tuning
    ) -> tuple[Position, Stats]:
        """A new position (unconstrained, a vector) and scalar statistics; pure and compiled.

        Among them ``log_density``, that of the position where the step began, and, if the kernel
        adapts, ``acceptance_rate``.
        """
        raise NotImplementedError

    def propose(self, key: KeyArray, position: Position, tuning: Tuning) -> Position:
        """A symmetric proposal, which the route judges in its own way: of the kind "walk"."""
        raise NotImplementedError


class Sampler(Generic[State, Data]):
    """What a model hands to the driver: subclass it and write ``start``, ``step`` and ``record``.

    States and ``data`` are pytrees of arrays; data are passed in, never baked in. The other methods
    are for samplers that hold rejections in a buffer; their defaults are those of a sampler without
    one.

    Attributes
    ----------
    method : str
        The route that it goes, one of its model's ``methods``.
    method_settings : MethodSettings or None
        Those of the route, where the user gave some.
    kernel_name : str
        For the result.
    kernel : Kernel or None
        The kernel that moves theta; None where the sweep is the sampler's own.
    adapts : bool
        Whether warm-up changes anything but the position.
    draws_rejections : bool
        Whether there is a Y, so that a budget means something.
    identity : str
        A digest of all that the sampler computes with; empty where nobody has said.
    redraws : bool
        Whether Y is redrawn until it fits the budget, so that ``attempts`` mean something.
    draws_exactly : bool
        Whether theta is drawn exactly given X and Y, so that what a sweep leaves of the last theta
        is what the rejections kept of it.
    """

    method: str = OWN[0].name
    method_settings: MethodSettings | None = None
    kernel_name: str = ""
    kernel: Kernel | None = None
    adapts: bool = False
    draws_rejections: bool = False
    redraws: bool = False
    draws_exactly: bool = False
    identity: str = ""

    def start(self, key: KeyArray, data: Data, budget: int) -> State:
        """A first state (host side); raises ``StartError`` where there is none."""
        raise NotImplementedError

    def step(self, key: KeyArray, state: State, stage: Stage, data: Data) -> tuple[State, Info]:
        """One sweep; pure and compiled."""
        raise NotImplementedError

    def record(self, state: State) -> Stats:
        """The posterior variables at a state; pure and compiled with the step."""
        raise NotImplementedError

    def variables(self) -> dict[str, Variable]:
        """What is special about posterior variables and statistics, by name."""
        return {}

    def capacity(self, state: State) -> int | None:
        """Rows of the buffer of rejections, or None where the state has none."""
        return None

    def resized(self, state: State, capacity: int) -> State:
        """The same state with room for ``capacity`` rejections."""
        return state

    def row_bytes(self, state: State) -> int:
        """Bytes that one more rejection takes."""
        return 0

    def limit(self, state: State) -> int:
        """The most rejections that a step can ever hold, however much memory there is."""
        return MOST_REJECTED

    def rejected(self, state: State) -> int:
        """|Y| held in the state (0 where none is held)."""
        return 0

    def explain(self, state: State, evidence: PyTree) -> Exception:
        """The error to raise after a BROKEN step."""
        return RuntimeError(f"a step of {self.kernel_name} broke: {evidence}")

    def inspect(self, state: State, data: Data) -> None:
        """Check requirements that the step does not (host side, once a block); raise if broken."""


class Request(NamedTuple):
    """What a model is asked to prepare for. Method and kernel go together: ``sample`` has looked.

    data, covariates : as the user gave them.
    method : one of the model's ``methods``.
    settings : of the method, where the user gave more than its name.
    kernel : of a kind that the method takes; None where the model is to choose.
    """

    data: Any  # users' own, which each model checks
    covariates: Any
    method: Method
    settings: MethodSettings | None = None
    kernel: Kernel | None = None


class Prepared(NamedTuple):
    """What a model makes of data for the driver.

    sampler : for data of this shape.
    arrays : a pytree, passed to the sampler's functions as ``data``.
    observed : the data by name, rows in front, for the result.
    """

    sampler: Sampler
    arrays: PyTree
    observed: dict[str, np.ndarray]

    @property
    def n(self) -> int:
        """Number of observations."""
        return next(iter(self.observed.values())).shape[0]


class Model:
    """What ``offcut.sample`` takes: subclass it and write ``prepare``; the rest has defaults.

    ``sample`` calls, in this order, ``prepare``, ``before``, then the driver, then ``facts`` and
    ``after``; ``identity`` and ``data_identity`` tell checkpoints and compiled programs apart.

    Attributes
    ----------
    methods : tuple of Method
        Routes to its posterior; the first is what ``method="auto"`` means.
    """

    methods: ClassVar[tuple[Method, ...]] = OWN

    def prepare(self, request: Request) -> Prepared:
        """The sampler, its arrays, and the observed data by name.

        Called by ``offcut.samplers.choice.prepare`` only, which refuses methods that the model has
        not and kernels that do not go with them.
        """
        raise NotImplementedError

    def rejection_model(self) -> Any:
        """The ``RejectionModel`` that this model is; None for one with a sampler of its own.

        A proposal and a filter, each for one point, are all there is to know about such a model.
        So it has no ``prepare``: ``sample`` chooses the route and the kernel, looks at the data
        and the prior before the run, and beyond the run after it.
        """
        return None

    def before(self, prepared: Prepared) -> list[Doubt]:
        """What speaks against a run before it begins: pile-ups, ties."""
        return []

    def facts(self, prepared: Prepared) -> dict[str, Any]:
        """What else the result's attrs should say: settings, methods that were chosen."""
        return {}

    def after(self, posterior: xr.DataTree, prepared: Prepared) -> None:
        """Measure what can be measured once there are draws, and note it in the result's attrs.

        ``attrs["approximation"]`` says in what way the draws are not those of the posterior.
        """

    def identity(self) -> object:
        """What tells this model from others: its attributes, where they tell all of it.

        None where the sampler's own identity does.
        """
        return self

    def data_identity(self, prepared: Prepared) -> object:
        """What was made of the data that ``prepared.observed`` does not tell, for checkpoints."""
        return None
