"""Scoring long columns in chunks gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.core import columns as core_columns
from tuner.costmodel.calibration import MeasuredRows, calibrate
from tuner.costmodel.estimate import CostModel
from tuner.space.space import Space


@pytest.mark.parametrize("of_each_row", [True, False])
def test_chunks_score_as_the_whole_does(
    default_space: Space, monkeypatch: pytest.MonkeyPatch, *, of_each_row: bool
) -> None:
    """Chunks give the same scores as the whole, with a period given for each row or for all rows."""
    columns = default_space.columns(next(iter(default_space.blocks()))[:12])
    seconds = CostModel().score(columns).seconds * np.linspace(0.9, 1.2, 12)
    periods = ("first",) * 6 + ("second",) * 6
    model = CostModel(calibration=calibrate([MeasuredRows(columns=columns, seconds=seconds, period=periods)]))
    period = periods if of_each_row else "second"
    whole = model.score(columns, period)
    expected = whole.seconds.copy(), whole.memory.copy(), whole.out_of_memory.copy()
    monkeypatch.setattr(core_columns, "CHUNK", 5)
    parts = model.score(columns, period)
    for part, figure in zip((parts.seconds, parts.memory, parts.out_of_memory), expected, strict=True):
        np.testing.assert_allclose(part, figure, rtol=1e-12)
