"""Routes to the posterior, by the names that ``method=`` of ``offcut.sample`` has for them.

A *method* says what stands for the intractable normaliser: rejections held while theta moves
("augment"), a simulation that judges a step ("exchange", "pseudo_marginal"), or a number, where it
can be computed ("direct", "collapsed"). The *kernel* says how theta moves on that route. First the
method, then the kernel: neither changes the other, and what does not go together is refused.

What a model offers is a tuple of methods (``Model.methods``). ``offcut.sample``,
``offcut.kernel_for``, the command line and their messages all read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar, NamedTuple

from offcut.errors import SettingsError
from offcut.numerics.text import moved

#: The first of a model's methods.
AUTO = "auto"
#: Kinds of kernels, by what they ask of a route, and the kernels that are of each.
#: gradient: a log density that can be differentiated. walk: the same, or only a ratio that judges
#: a proposal of the kernel's. conjugate: sums over data and rejections, from which theta is drawn.
#: function: accepted and rejected points, which tell a Gaussian process where it is high.
KERNELS = {
    "gradient": ("NUTS", "HMC"),
    "walk": ("RandomWalk",),
    "conjugate": ("Conjugate",),
    "function": ("PolyaGamma", "EllipticalSlice"),
}


#: What warm-up steers random walks on a density to.
TARGET = 0.3


class Method(NamedTuple):
    """A route to the posterior of a model.

    name : what ``method=`` calls it.
    words : what it does, in a line.
    kernels : kinds of kernels that move theta on it (``KERNELS``); none where the sweep is the
        model's own.
    target_acceptance : what warm-up steers random walks to on it, where the user does not say.
    exact : whether the draws are those of the posterior.
    """

    name: str
    words: str
    kernels: tuple[str, ...] = ()
    target_acceptance: float = TARGET
    exact: bool = True

    @property
    def takes(self) -> str:
        """The kernels that go with it, as they are written."""
        names = [f"offcut.{name}()" for kind in self.kernels for name in KERNELS[kind]]
        return listed(names)


class MethodSettings:
    """A method with settings, given as ``method=`` in place of its name: a frozen dataclass."""

    method: ClassVar[str]


def _for_the_walk(name: str) -> Callable[[object], str]:
    return lambda value: (
        "it is the kernel's. Give offcut.sample(model, data, method=offcut.PseudoMarginal(), "
        f"kernel=offcut.RandomWalk({name}={value!r}))"
    )


@moved(scale=_for_the_walk("scale"), target_acceptance=_for_the_walk("target_acceptance"))
@dataclass(frozen=True)
class PseudoMarginal(MethodSettings):
    """``method="pseudo_marginal"`` with settings of its own.

    Parameters
    ----------
    acceptances : int, optional
        r, acceptances that the estimate waits for (for each observation where they have their
        own proposals). The default aims at unit variance of the log estimate, n^2 (1 - Z/M) in
        all at the starting point, 2**20 at the most.

    Examples
    --------
    ``offcut.sample(model, x, method=offcut.PseudoMarginal(acceptances=20))``
    """

    acceptances: int | None = None
    method: ClassVar[str] = "pseudo_marginal"

    def __post_init__(self) -> None:
        given = self.acceptances
        if given is None:
            return
        if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
            raise SettingsError(f"acceptances must be a positive whole number, got {given!r}")

    @classmethod
    def of(cls, settings: MethodSettings | None) -> PseudoMarginal:
        """What the user gave, or the defaults."""
        return settings if isinstance(settings, cls) else cls()


def listed(names: Iterable[str]) -> str:
    """Names as a sentence has them.

    >>> listed(["NUTS", "HMC", "RandomWalk"])
    'NUTS, HMC or RandomWalk'
    """
    *first, final = names
    return f"{', '.join(first)} or {final}" if first else final


_WALK = ("walk",)
_MOVES = ("gradient", "walk")
_EXCHANGE = Method(
    "exchange",
    "simulates data at a proposed theta and swaps the two, holding no rejections",
    _WALK,
    target_acceptance=0.25,
)
_PSEUDO_MARGINAL = Method(
    "pseudo_marginal",
    "estimates the likelihood at a proposed theta without bias, holding no rejections",
    _WALK,
    target_acceptance=0.2,
)
#: Of a model that says nothing else.
OWN = (Method("own", "the sweep of the model's own"),)
#: Of models made of a proposal and a filter.
REJECTION = (
    Method(
        "augment",
        "draws the rejected proposals in every sweep and holds them while theta moves",
        (*_MOVES, "conjugate"),
    ),
    Method(
        "direct",
        "uses the window's mass, where it has a closed form, and needs no rejections",
        _MOVES,
    ),
    _EXCHANGE,
    _PSEUDO_MARGINAL,
)
#: Of ``TruncatedMixture``.
MIXTURE = (Method("augment", "draws the rejected proposals of every component in each sweep"),)
#: Of ``MatrixLangevinModel``.
FRAMES = (
    Method(
        "augment",
        "keeps the rejections of Hoff's sampler, for up to about four similar concentrations",
        _MOVES,
    ),
    Method(
        "collapsed",
        "has the exact normaliser, G integrated out, for one or two columns and 3 by 3",
        _MOVES,
    ),
    _EXCHANGE,
    _PSEUDO_MARGINAL,
    Method("asymptotic", "is approximate, with Khatri & Mardia's normaliser", _MOVES, exact=False),
    Method("fastest", "is collapsed where the normaliser is known, else augment", _MOVES),
)
#: Of ``GPDensity`` and ``GPIntensity``.
CURVES = (
    Method("augment", "keeps the rejected proposals", ("function", "gradient")),
    Method(
        "collapsed",
        "has no rejections but the normaliser by quadrature, in one and two dimensions",
        ("gradient",),
    ),
)
