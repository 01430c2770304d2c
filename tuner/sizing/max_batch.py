"""The result of a search for the largest batch: the limit, the line, a safe batch, and each batch's throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from tuner.core.domain import Topology, Workload
from tuner.core.text import DAY
from tuner.sizing.fit import BatchResult, Fit, Pressure, Source, fitted, pressures
from tuner.sizing.strategies import BatchSearch
from tuner.space.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchThroughput:
    """The throughput of one batch."""

    micro_batch: int
    step_batch: int
    """Sequences of all ranks together, without accumulation."""
    acc_steps: int
    """Accumulation steps that reach the global batch; without one, those that fill the pipeline."""
    exact: bool
    """Whether these steps reach the global batch exactly."""
    tokens_per_second: float | None
    days: float | None
    """Days to process the training tokens. Accumulation costs nothing extra, except the bubble of a pipeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxBatchResult:
    """The largest batch, and all that was found about it."""

    source: Source
    strategy: str
    found: BatchSearch
    fit: Fit | None
    pressures: tuple[Pressure, ...]
    card: float
    """Memory of the GPU in bytes."""
    usable: float
    """Bytes of it that a process can use."""
    safe: int
    margin: float
    topology: Topology
    """The topology tried, at micro batch 1."""
    worth: tuple[BatchThroughput, ...]
    global_batch: int | None = None
    """The global batch that the user gave."""
    fixed: Axes = field(default_factory=dict)
    """The values of axes that the user did not give."""

    @property
    def fills_pipeline(self) -> bool:
        """Whether a step is assumed to have as many microbatches as fill the pipeline, for want of a global batch."""
        return self.global_batch is None and any(result.acc_steps for result in self.found.attempts)

    @property
    def peak(self) -> float | None:
        """Return the peak memory of the largest batch."""
        return next(
            (
                result.peak_memory
                for result in self.found.attempts
                if result.fits and result.micro_batch == self.found.largest
            ),
            None,
        )


def throughput_of(
    result: BatchResult, *, dp: int, seq: int, global_batch: int | None, tokens: float
) -> BatchThroughput:
    """Return the throughput of a batch by its iteration time."""
    step = result.micro_batch * dp
    steps = result.acc_steps or (ceil(global_batch / step) if global_batch else 1)
    useful = min(step, global_batch / steps) if global_batch and result.acc_steps else step
    rate = useful * seq / result.seconds if result.seconds else None
    return BatchThroughput(
        micro_batch=result.micro_batch,
        step_batch=step,
        acc_steps=steps,
        exact=not global_batch or global_batch == steps * step,
        tokens_per_second=rate,
        days=tokens / rate / DAY if rate else None,
    )


def answer(
    found: BatchSearch,
    *,
    source: Source,
    strategy: str,
    batches: Sequence[int],
    card: float,
    usable: float,
    margin: float,
    topology: Topology,
    workload: Workload,
    global_batch: int | None,
    fixed: Axes | None = None,
) -> MaxBatchResult:
    """Return the result of a search.

    A batch is safe where its memory by the line is at most `(1 - margin) * ceiling`, where the ceiling is the lesser
    of the usable memory and the line at the smallest batch that failed.
    """
    line = fitted(found.attempts)
    failed, ran = found.smallest_failed, [result for result in found.attempts if result.fits]
    ceiling = min(usable, line.at(failed)) if line and failed else usable
    safe = found.largest
    if line:
        room = (1 - margin) * ceiling
        safe = max((batch for batch in batches if batch <= found.largest and line.at(batch) <= room), default=0)
    unique = {result.micro_batch: result for result in sorted(ran, key=lambda result: result.micro_batch)}
    return MaxBatchResult(
        source=source,
        strategy=strategy,
        found=found,
        fit=line,
        pressures=() if source == "estimate" else tuple(pressures(unique.values(), usable)),
        card=card,
        usable=usable,
        safe=safe,
        margin=margin,
        topology=topology,
        worth=tuple(
            throughput_of(
                result,
                dp=topology.dp,
                seq=workload.model.seq,
                global_batch=global_batch,
                tokens=workload.training_tokens,
            )
            for result in unique.values()
        ),
        global_batch=global_batch,
        fixed=fixed or {},
    )
