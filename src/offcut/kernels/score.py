"""The score at the start of a move, which gradient kernels have computed anyway.

At stationarity the pair (position before the move, fresh Y) is a draw from their joint posterior,
and there the score tells how much of the information is missing (``result/missing.py``).
"""

from __future__ import annotations

import jax

from offcut.kernels.settings import Stats

#: Beyond this dimension the score is not kept: two vectors a draw, and d^2 moments from few draws.
MOST_DIMENSIONS = 100


def score_at(position: jax.Array, gradient: jax.Array) -> Stats:
    """The statistics ``position`` and ``gradient``; none where there are too many dimensions.

    They are helpers: the result keeps what was made of them, and drops them.
    """
    if position.shape[0] > MOST_DIMENSIONS:
        return {}
    return {"position": position, "gradient": gradient}
