"""Probes return the result of a micro batch: by the cost model, a measured table, or jobs that a launcher runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, MemoryKind, Topology, Workload
from tuner.core.errors import InputError, LaunchError, NothingUsable
from tuner.core.outcomes import Outcome
from tuner.core.text import either
from tuner.costmodel.constants import COMMUNICATOR_BYTES, CONTEXT_BYTES, FRAGMENT_SHARE, USABLE_SHARE
from tuner.costmodel.estimate import CostModel, Scores
from tuner.launch.contract import Job, JobState, Launcher
from tuner.launch.memory_probe import memory_of
from tuner.sizing.fit import BatchOutcome, BatchResult
from tuner.sizing.options import distinguishing
from tuner.sizing.strategies import BatchGrid
from tuner.tables import MeasuredRun, Row, Table

MAX_MICRO_BATCH: Final = 4096
"""The largest micro batch to try by default."""

_OUTCOME_OF_STATUS: Final[dict[str, BatchOutcome]] = {"OK": "MEASURED", "OOM": "OOM", "FAIL": "CRASHED", "HANG": "HUNG"}


def doubled(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, 8 ... up to `most`."""
    return tuple(1 << power for power in range(most.bit_length()))


def one_batch(topology: Topology, micro_batch: int, *, acc_steps: int = 1) -> Topology:
    """Return the topology with this micro batch and so many accumulation steps."""
    return replace(topology, micro_batch=micro_batch, global_batch=acc_steps * micro_batch * topology.dp)


def filling_steps(topology: Topology) -> int:
    """Return the fewest microbatches with which the first stage has as many in flight as its schedule allows."""
    return topology.pp * (2 if topology.vpp > 1 else 1)


def pipeline_steps(topology: Topology, micro_batch: int, global_batch: int | None) -> int | None:
    """Return the accumulation steps by which a pipeline is measured; None without a pipeline.

    They reach the global batch or, without one, fill the pipeline. An interleaved schedule takes microbatches in
    multiples of pp: as many as the global batch has, but at least pp.
    """
    if topology.pp == 1:
        return None
    if global_batch is None:
        return filling_steps(topology)
    steps = ceil(global_batch / (micro_batch * topology.dp))
    return max(1, steps // topology.pp) * topology.pp if topology.vpp > 1 else steps


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateProbe:
    """Probes the cost model."""

    workload: Workload
    cluster: Cluster
    topology: Topology
    model: CostModel
    global_batch: int | None = None
    """Sequences that a step accumulates; its memory then includes gradients that are kept between micro batches."""

    def __call__(self, micro_batch: int) -> BatchResult:
        """Return the estimate of one micro batch: with a pipeline, of a whole step; otherwise without accumulation."""
        whole = pipeline_steps(self.topology, micro_batch, self.global_batch)
        accumulates = micro_batch * self.topology.dp < (self.global_batch or 0)
        timed = self._scores(micro_batch, whole or 1)
        filled = self._scores(micro_batch, 2) if accumulates and not whole else timed
        return BatchResult(
            micro_batch=micro_batch,
            outcome="ESTIMATED" if bool(filled.fits[0]) else "OOM",
            peak_memory=float(filled.memory[0]),
            seconds=float(timed.seconds[0]) / (whole or 1),
            acc_steps=whole,
        )

    def _scores(self, micro_batch: int, acc_steps: int) -> Scores:
        topology = one_batch(self.topology, micro_batch, acc_steps=acc_steps)
        return self.model.score(Columns.of([topology], self.workload, self.cluster))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProbe:
    """Probes a series: rows of a measured table that differ only in their micro batch."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> MeasuredRun:
        """Return the run of the first row."""
        run = self.rows[0].run
        assert run is not None  # noqa: S101 - `series` checks it
        return run

    @property
    def kind(self) -> MemoryKind:
        """Return how its memory was measured."""
        return self.rows[0].memory_kind

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the micro batches of its rows."""
        return tuple(sorted({row.run.topology.micro_batch for row in self.rows if row.run}))

    def __call__(self, micro_batch: int) -> BatchResult:
        """Return the table's result of one micro batch."""
        row = next(row for row in self.rows if row.run and row.run.topology.micro_batch == micro_batch)
        return BatchResult(
            micro_batch=micro_batch,
            outcome=_OUTCOME_OF_STATUS[row.status],
            peak_memory=row.memory if row.status == "OK" else None,
            seconds=row.seconds / _passes(row) if row.seconds and row.status == "OK" else None,
            evidence="" if row.status == "OK" else f"status {row.status} in line {row.line} of the table",
        )


def _passes(row: Row) -> float:
    """Return the accumulation steps of an iteration, which may be fewer than one in the last."""
    run = row.run
    assert run is not None  # noqa: S101 - `series` checks it
    return run.workload.global_batch / run.topology.step_batch


def series(rows: Iterable[Row]) -> dict[tuple[Any, ...], TableProbe]:
    """Group rows that differ only in their batch."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.usable:
            found.setdefault(_series_key(row), []).append(row)
    return {key: TableProbe(rows=tuple(members)) for key, members in found.items()}


def only_series(table: Table, rows: Sequence[Row], group: str | None = None) -> TableProbe:
    """Return the one series of these rows of a group; raise with the distinguishing options if there are several."""
    known = series(rows)
    if not known and (reason := table.why_none_of(rows, group)):
        raise NothingUsable(f"no row of {table.name} can be used: {reason}")
    if not known:
        raise NothingUsable(f"{table.name} has no row that matches the model, group and settings.")
    if len(known) > 1:
        first = [one.first for one in known.values()]
        axes = distinguishing([run.topology for run in first], ("tp", "dp"))
        labels = [
            f"{run.workload.model.heads} heads with "
            + ", ".join(f"{axis}={getattr(run.topology, axis)}" for axis in axes)
            for run in first
        ]
        raise InputError(
            f"{table.name} has {len(known)} series of batches; choose one with --group, --model or --set tp=N: "
            f"{either(dict.fromkeys(labels), limit=6)}."
        )
    return next(iter(known.values()))


def _series_key(row: Row) -> tuple[Any, ...]:
    assert row.run is not None  # noqa: S101 - `series` checks it
    workload, topology = row.run.workload, row.run.topology
    alone = replace(topology, micro_batch=1, global_batch=None)
    return (replace(workload, global_batch=1), alone, row.run.cluster.gpu.name)


def held_back(kind: MemoryKind) -> dict[str, float]:
    """Return the memory that figures of this kind omit, as arguments of a grid: the context, and fragmentation."""
    if kind == "smi":
        return {}
    beside = {"beside": CONTEXT_BYTES + COMMUNICATOR_BYTES}
    return beside if kind == "reserved" else {**beside, "lost": FRAGMENT_SHARE}


@dataclass(slots=True, kw_only=True)
class JobProbe:
    """Probes with jobs, one after the other; all processes of one are gone before the next one starts."""

    launcher: Launcher
    workload: Workload
    cluster: Cluster
    topology: Topology
    folder: Path
    iterations: tuple[int, ...]
    timeout: float
    on_host: bool
    on_attempt: Callable[[BatchResult], None]
    global_batch: int | None = None
    """Sequences of a step of a pipeline; without a pipeline, a job does not accumulate."""
    _count: int = field(default=0)

    def __call__(self, micro_batch: int) -> BatchResult:
        """Run one micro batch: with a pipeline, in a whole step; otherwise without accumulation."""
        steps = pipeline_steps(self.topology, micro_batch, self.global_batch)
        folder = self._new_folder(micro_batch)
        job = Job(
            number=self._count,
            tag=f"maxbatch-{self.folder.resolve().name}-{time.time_ns()}",
            folder=folder,
            workload=self.workload,
            cluster=self.cluster,
            topology=one_batch(self.topology, micro_batch, acc_steps=steps or 1),
            iterations=self.iterations,
        )
        result = self._run(job, micro_batch)
        seconds = result.seconds / (steps or 1) if result.seconds else result.seconds
        result = replace(result, seconds=seconds, acc_steps=steps)
        self.on_attempt(result)
        return result

    def _new_folder(self, micro_batch: int) -> Path:
        """Create the job's folder, which no job of another or an earlier search has."""
        while True:
            self._count += 1
            folder = self.folder / f"{self._count:04d}-mbs{micro_batch}"
            try:
                folder.mkdir(mode=0o700, parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                reason = error.strerror or error
                raise LaunchError(f"{folder} cannot be created: {reason}; choose a folder with --runs.") from None
            return folder

    def _run(self, job: Job, micro_batch: int) -> BatchResult:
        handle = self.launcher.submit(job)
        polled, state = self.launcher.now(), JobState.WAITING
        running, peak = 0.0, 0.0
        try:
            while True:
                peak = max(peak, memory_of(job.tag, on_host=self.on_host))
                last_polled, last_state = polled, state
                state, polled = self.launcher.poll([handle])[handle].state, self.launcher.now()
                if state in (JobState.ENDED, JobState.LOST):
                    break
                if last_state is state is JobState.RUNNING:  # an UNKNOWN state does not count
                    running += polled - last_polled
                elif state is JobState.WAITING:  # a requeued job starts again
                    running = 0.0
                if running > self.timeout:
                    self.launcher.cancel(handle)
                    evidence = f"not finished after {self.timeout:.0f} s"
                    return BatchResult(micro_batch=micro_batch, outcome="TIMED_OUT", evidence=evidence)
                self.launcher.wait(0.05)
        finally:
            self.launcher.cancel(handle)
        result = self.launcher.collect(handle)
        if result.measurement is not None:
            memory = result.measurement.peak_memory or peak or None
            seconds = result.measurement.seconds
            return BatchResult(micro_batch=micro_batch, outcome="MEASURED", peak_memory=memory, seconds=seconds)
        meaning = result.failure.meaning if result.failure else ""
        evidence = f"{meaning}: {result.failure.evidence}" if result.failure else ""
        ended = read_object(job.folder / "ended.json") or {}
        unexplained = result.failure is None or meaning == "ended without a result"
        exited_well = ended.get("why") == "exited" and ended.get("exit") == 0
        if result.outcome is Outcome.UNREADABLE or (result.outcome is Outcome.CRASHED and unexplained and exited_well):
            # A program that exited normally has run, though its log has no times.
            return BatchResult(micro_batch=micro_batch, outcome="MEASURED", peak_memory=peak or None)
        outcome: BatchOutcome = result.outcome.value if result.outcome.value in _OUTCOMES else "CRASHED"
        return BatchResult(micro_batch=micro_batch, outcome=outcome, evidence=evidence)


_OUTCOMES: Final = ("OOM", "HUNG", "CRASHED", "TIMED_OUT", "CANCELLED")


def usable_bytes(cluster: Cluster) -> float:
    """Return the bytes of a GPU that a process can use."""
    return cluster.gpu.memory * USABLE_SHARE


def grid_for(
    batches: Sequence[int], *, start: int | None, strategy: str, increment: int = 16, room: float, **left_out: float
) -> BatchGrid:
    """Return the grid with its default start: 64 for `ramp`, as in the E1 report, or else the smallest batch."""
    first = start or (64 if strategy == "ramp" else batches[0])
    return BatchGrid(batches=batches, start=first, increment=increment, room=room, **left_out)
