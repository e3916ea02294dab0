"""When it is worth looking beyond a run, and where the answer is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from offcut.driver.run import Drawn
from offcut.lookout.beyond import look_beyond, not_looked

#: With less missing information than this a chain forgets within ten sweeps where it was, and the
#: data, not the rejections, hold the parameters: there is nothing to get stuck in. (Runs that were
#: stuck had 0.97 and more.)
WORTH_A_LOOK = 0.8
#: A shorter run is a trial; a look would take longer than the run.
ENOUGH_DRAWS = 1000


def note_beyond(posterior: xr.DataTree, model: Any, data: Any, drawn: Drawn) -> None:
    """Look where a run has not been, if it is worth it, and write what was found into attrs.

    They are ``beyond_share``, ``beyond_shift``, ``beyond_place`` and ``beyond_note``.
    """
    attrs = posterior.attrs
    missing = attrs["missing_information"]
    if not attrs["draws_rejections"]:
        found = not_looked("this sampler draws no rejections")
    elif drawn.stats["rejected"].size < ENOUGH_DRAWS:
        found = not_looked(f"fewer than {ENOUGH_DRAWS:,} draws")
    elif np.isfinite(missing) and missing < WORTH_A_LOOK:
        found = not_looked("no need: little information is missing")
    else:
        try:
            found = look_beyond(model, data, drawn, attrs["n_observations"], attrs["seed"])
        except Exception as error:  # a finished run is not lost to a look at its neighbourhood
            found = not_looked(f"failed: {type(error).__name__}: {error}")
    attrs.update({f"beyond_{name}": value for name, value in found._asdict().items()})
