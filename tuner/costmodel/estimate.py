"""Time and memory of topologies together, with how sure they are: what ranks a space and what a user is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.outcomes import Estimate, MemoryEstimate, TimeEstimate
from tuner.costmodel.calibration import Calibration
from tuner.costmodel.flops import training_seconds
from tuner.costmodel.memory import limit, memory_terms, worst_need
from tuner.costmodel.normal import below
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import time_terms

CHUNK: Final = 8192
"""Rows that are worked on at once, so that the arrays between stay in the processor's cache."""

INTERVAL: Final = 1.2816
"""Standard deviations on either side that hold 80% of a normal distribution."""

PLAIN_DEVIATION: Final = 0.20
"""Standard deviation of the memory's logarithm for plain PyTorch layers, which people write in many ways: published
fully sharded runs keep from 34 to 48 bytes a token and column."""

GATHERED_DEVIATION: Final = 0.08
"""The same where the loss gathers its logits, which also is done in many ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What the rows of columns are ranked and marked by."""

    seconds: FloatArray
    """Of one iteration."""
    memory: FloatArray
    """Bytes that the worst stage needs."""
    out_of_memory: FloatArray
    """Probability that they are more than the card has."""
    training: FloatArray
    """Seconds until the workload's tokens are trained on."""

    @property
    def fits(self) -> BoolArray:
        """Whether running is likelier than running out of memory."""
        return self.out_of_memory < 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The physics with a site's calibration: the one answer to what a topology will take."""

    calibration: Calibration = field(default_factory=Calibration)

    def score(self, columns: Columns, era: Sequence[str] | str | None = None) -> Scores:
        """Every row, a chunk at a time."""
        rows = len(columns.tp)
        if rows <= CHUNK:
            return self._score(columns, era)
        parts = []
        for places in _chunks(rows):
            own = era if era is None or isinstance(era, str) else tuple(era[int(place)] for place in places)
            parts.append(self._score(columns.rows(places), own))
        return Scores(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in Scores.__dataclass_fields__}
        )

    def interval(self, columns: Columns, era: Sequence[str] | str | None = None) -> tuple[FloatArray, FloatArray]:
        """Seconds between which 80% of measurements are expected."""
        middle, deviation = self.calibration.predict(columns, era), self.calibration.deviation(columns, era)
        return middle * np.exp(-INTERVAL * deviation), middle * np.exp(INTERVAL * deviation)

    def memory_deviation(self, columns: Columns) -> FloatArray:
        """Standard deviation of the logarithm of what a row needs."""
        known = self.calibration.memory_deviation
        loss = known if columns.workload.parallel_loss else max(known, GATHERED_DEVIATION)
        if columns.workload.plain_layers and not self.calibration.weighed:
            return np.full(len(columns.tp), max(known, PLAIN_DEVIATION))
        return np.full(len(columns.tp), loss)

    def estimates(self, columns: Columns) -> list[Estimate]:
        """Each row by its terms, which add up: what the residual adds is spread over all terms of time."""
        site = self.calibration.site
        terms = time_terms(columns, site)
        factor = self.calibration.predict(columns) / sum(terms.values(), start=np.zeros(len(columns.tp)))
        memory = memory_terms(Stages(columns, worst_need(columns, site).stage), site)
        return [
            Estimate(
                time=TimeEstimate(terms={name: float(value[row] * factor[row]) for name, value in terms.items()}),
                memory=MemoryEstimate(terms={name: float(value[row]) for name, value in memory.items()}),
            )
            for row in range(len(columns.tp))
        ]

    def _score(self, columns: Columns, era: Sequence[str] | str | None) -> Scores:
        found = self.calibration.predict(columns, era)
        need = worst_need(columns, self.calibration.site).total
        beyond = np.log(need / limit(columns)) / self.memory_deviation(columns)
        return Scores(
            seconds=found,
            memory=need,
            out_of_memory=below(beyond),
            training=training_seconds(found, columns),
        )


def _chunks(rows: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    for start in range(0, rows, CHUNK):
        yield np.arange(start, min(rows, start + CHUNK))
