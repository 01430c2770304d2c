"""Scores of topologies: time and memory of every row of some columns, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray, IntArray, chunks
from tuner.core.domain import MemoryKind, MemoryStage
from tuner.core.outcomes import Estimate, TermSum
from tuner.costmodel.backing import unmeasured
from tuner.costmodel.calibration import Calibration, slopes_of
from tuner.costmodel.constants import GATHERED_DEVIATION
from tuner.costmodel.expert_constants import EXPERT_MEMORY_DEVIATION
from tuner.costmodel.flops import hardware_flops, model_flops, per_gpu, training_seconds
from tuner.costmodel.memory import limit, memory_terms, shown_bytes, worst_need
from tuner.costmodel.memory_calibration import usual_deviation
from tuner.costmodel.microbatch import MicrobatchTimes
from tuner.costmodel.normal import below
from tuner.costmodel.residual_features import Features, Likeness
from tuner.costmodel.stack_constants import UNMEASURED_DEVIATION
from tuner.costmodel.stages import Stages
from tuner.costmodel.time import seconds, time_terms

INTERVAL: Final = 1.2816
"""Standard deviations on either side of the mean that enclose 80% of a normal distribution."""


class _Ranking(NamedTuple):
    """The value by which rows are ranked."""

    seconds: FloatArray
    memory: FloatArray
    stage: IntArray
    out_of_memory: FloatArray


class Scores:
    """Time and memory of every row of `columns`. Each quantity is computed on first use and kept."""

    def __init__(
        self,
        columns: Columns,
        calibration: Calibration,
        period: Sequence[str] | str | None = None,
        times: MicrobatchTimes | None = None,
    ) -> None:
        self.columns = columns
        self._calibration = calibration
        self._times = times
        self._era = calibration.period if period is None else period

    @property
    def seconds(self) -> FloatArray:
        """Seconds per iteration: the median prediction, calibration included."""
        return self._ranking.seconds

    @property
    def memory(self) -> FloatArray:
        """Bytes needed on the fullest pipeline stage."""
        return self._ranking.memory

    @property
    def stage(self) -> IntArray:
        """The fullest pipeline stage, from 0."""
        return self._ranking.stage

    @property
    def out_of_memory(self) -> FloatArray:
        """Probability of needing more memory than the GPU has."""
        return self._ranking.out_of_memory

    @property
    def fits(self) -> BoolArray:
        """Whether fitting is more likely than running out of memory."""
        return self.out_of_memory < 0.5

    @cached_property
    def training(self) -> FloatArray:
        """Seconds until the training is finished at equal compute."""
        return training_seconds(self.seconds, self.columns)

    @cached_property
    def flops(self) -> FloatArray:
        """FLOP/s per GPU in use, recompute included."""
        return per_gpu(hardware_flops(self.columns), self.seconds, self.columns)

    @cached_property
    def mfu(self) -> FloatArray:
        """Model FLOPs utilization: the model's own FLOP/s per GPU in use over the GPU's peak, recompute excluded."""
        peak = self.columns.cluster.gpu.peak_flops[self.columns.workload.precision]
        return per_gpu(model_flops(self.columns), self.seconds, self.columns) / peak

    @cached_property
    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the interval that contains 80% of measurements, in seconds per iteration.

        It is wider where no measured table of the GPU or the framework is behind the estimate, and a calibration on
        another GPU or framework does not make it narrower. With experts it reaches out for the other kind of routing
        too: no router is as even as benchmarks force it.
        """
        below, above = self._reach
        if self._elsewhere:
            usual = Scores(self.columns, Calibration(), self._era)._reach
            below, above = np.maximum(below, usual[0]), np.maximum(above, usual[1])
        return self.seconds * np.exp(-below), self.seconds * np.exp(above)

    @property
    def _elsewhere(self) -> bool:
        return self._calibration.elsewhere(self.columns.workload, self.columns.cluster)

    @property
    def _reach(self) -> tuple[FloatArray, FloatArray]:
        """Logarithms by which the interval reaches below and above the estimate."""
        slopes = slopes_of(self.columns, self._calibration.site, base=self._modelled)
        features = Features.of(self.columns, self._era)
        deviation = self._calibration.deviation(features, slopes, self._likeness)
        if self._likeness is None and unmeasured(self.columns.workload, self.columns.cluster):
            deviation = np.hypot(deviation, UNMEASURED_DEVIATION)
        below = above = INTERVAL * deviation
        if self.columns.workload.model.experts:
            other = self._other_routing
            below, above = np.hypot(below, np.maximum(0, -other)), np.hypot(above, np.maximum(0, other))
        return below, above

    @property
    def _other_routing(self) -> FloatArray:
        """Logarithm of the seconds with natural routing over those with routing by force, or the reverse."""
        workload = self.columns.workload
        other = replace(workload, routing="balanced" if workload.routing == "natural" else "natural")
        columns = Columns(other, self.columns.cluster, self.columns.arrays)
        ratio: FloatArray = np.log(seconds(columns, self._calibration.site) / self._modelled)
        return ratio

    @cached_property
    def time_terms(self) -> dict[str, FloatArray]:
        """Seconds per iteration by term; the calibration's residual is spread over all of them."""
        factor = self.seconds / self._modelled
        return {name: seconds * factor for name, seconds in self._modelled_terms.items()}

    @cached_property
    def memory_terms(self) -> dict[str, FloatArray]:
        """Bytes on the fullest pipeline stage by term."""
        return memory_terms(Stages(self.columns, self.stage), self._calibration.site)

    def shown(self, kind: MemoryKind, stage: MemoryStage = "first") -> FloatArray:
        """Return the bytes that a tool of this kind would display for each row on a GPU of this stage."""
        return shown_bytes(self.columns, self._calibration.site, kind, stage)

    def estimate(self, row: int) -> Estimate:
        """Return one row's time and memory by term."""
        return Estimate(
            time=TermSum(terms={name: float(value[row]) for name, value in self.time_terms.items()}),
            memory=TermSum(terms={name: float(value[row]) for name, value in self.memory_terms.items()}),
        )

    @cached_property
    def _ranking(self) -> _Ranking:
        pieces = chunks(len(self.columns.tp))
        if len(pieces) > 1:
            times = MicrobatchTimes.of(self.columns, self._calibration.site)
            parts = [self._part(rows, times)._ranking for rows in pieces]
            return _Ranking(*map(np.concatenate, zip(*parts, strict=True)))
        need = worst_need(self.columns, self._calibration.site)
        beyond = np.log(need.total / limit(self.columns)) / memory_deviation(self.columns, self._calibration)
        seconds = self._modelled
        if self._likeness is not None:
            seconds = seconds * self._calibration.correction(self._likeness)
        return _Ranking(seconds=seconds, memory=need.total, stage=need.stage, out_of_memory=below(beyond))

    def _part(self, rows: slice, times: MicrobatchTimes) -> Scores:
        period = self._era if isinstance(self._era, str) else self._era[rows]
        return Scores(self.columns.rows(rows), self._calibration, period, times.rows(rows))

    @cached_property
    def _modelled_terms(self) -> dict[str, FloatArray]:
        return time_terms(self.columns, self._calibration.site, self._times)

    @cached_property
    def _modelled(self) -> FloatArray:
        """Seconds per iteration without the calibration's residual."""
        return sum(self._modelled_terms.values(), start=np.zeros(len(self.columns.tp)))

    @cached_property
    def _likeness(self) -> Likeness | None:
        """The similarity of each row to the measured rows; None without any."""
        known = self._calibration.known
        return None if known is None else Likeness.of(Features.of(self.columns, self._era), known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """The analytic model under a calibration."""

    calibration: Calibration = field(default_factory=Calibration)

    def score(self, columns: Columns, period: Sequence[str] | str | None = None) -> Scores:
        """Return the scores of every row; `period` names the speed period of each row or of all."""
        return Scores(columns, self.calibration, period)


def memory_deviation(columns: Columns, calibration: Calibration) -> float:
    """Return the standard deviation of the logarithm of the memory that a row needs."""
    own = own_memory_deviation(columns, calibration)
    if columns.workload.model.experts and not _weighed(columns, calibration):
        return max(own, EXPERT_MEMORY_DEVIATION)
    return own


def _weighed(columns: Columns, calibration: Calibration) -> bool:
    """Return whether the calibration has seen the memory of runs on this GPU and in this framework."""
    return calibration.weighed > 0 and not calibration.elsewhere(columns.workload, columns.cluster)


def own_memory_deviation(columns: Columns, calibration: Calibration) -> float:
    """Return the same without the error shared by all rows with experts, which a study's first jobs reveal."""
    known = calibration.memory_deviation
    if not _weighed(columns, calibration):
        return max(known, usual_deviation(columns.workload))
    return known if columns.workload.parallel_loss else max(known, GATHERED_DEVIATION)
