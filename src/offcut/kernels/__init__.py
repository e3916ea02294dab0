"""Kernels for theta: how the parameters move, given the rejected proposals or without them."""

from offcut.kernels.conjugate import Conjugate
from offcut.kernels.direct import Direct
from offcut.kernels.exchange import Exchange
from offcut.kernels.hmc import HMC
from offcut.kernels.nuts import NUTS
from offcut.kernels.pseudo_marginal import PseudoMarginal
from offcut.kernels.random_walk import RandomWalk

__all__ = ["HMC", "NUTS", "Conjugate", "Direct", "Exchange", "PseudoMarginal", "RandomWalk"]
