"""What a truncated mixture recovers beyond the window: the study of docs/studies, as a test.

Fifty data sets: 90% intervals of the share lost, and of the density beyond the edge, hold the truth
in 80% to 98% of the cases (a right interval misses that range with probability 0.025); the density
near the edge is closer to the truth than without truncation.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.statistical, pytest.mark.calibrate]

STUDY = Path(__file__).parents[2] / "docs" / "studies" / "mixture_recovery.py"


@pytest.mark.parametrize("weights", ["latent", "window"])
def test_what_the_window_cut_off_is_recovered(weights):
    spec = importlib.util.spec_from_file_location("mixture_recovery", STUDY)
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    outcomes = study.main(50, weights)
    assert 0.80 <= np.mean([o.lost_held for o in outcomes]) <= 0.98
    assert 0.80 <= np.mean([o.beyond_held for o in outcomes]) <= 0.98
    errors = np.array([o.edge_error for o in outcomes])
    assert errors[:, 0].mean() < errors[:, 1].mean()
    assert errors[:, 0].mean() < errors[:, 2].mean()
