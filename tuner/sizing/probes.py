"""Who answers for a micro batch: the model, a measured table, or jobs that a launcher runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tuner.core.atomic_write import read_object
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, MemoryKind, Topology, Workload
from tuner.core.errors import InputError, NothingUsable
from tuner.core.outcomes import Outcome
from tuner.core.text import either
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import COMMUNICATOR, CONTEXT, FRAGMENTS, USABLE
from tuner.launch.contract import Job, JobState, Launcher
from tuner.launch.memory_probe import memory_of
from tuner.sizing.fit import BatchResult, Word
from tuner.sizing.strategies import BatchGrid
from tuner.tables import Row, Table

MOST: Final = 4096
"""The largest micro batch that is tried unless somebody asks for more."""

_WORDS: Final[dict[str, Word]] = {"OK": "MEASURED", "OOM": "OOM", "FAIL": "CRASHED", "HANG": "HUNG"}


def doubled(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8 ... up to `most`."""
    return tuple(1 << power for power in range(most.bit_length()))


def one_batch(topology: Topology, micro_batch: int) -> Topology:
    """The topology with this micro batch and no accumulation."""
    return replace(topology, micro_batch=micro_batch, global_batch=micro_batch * topology.dp)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateProbe:
    """The model's answer."""

    workload: Workload
    cluster: Cluster
    topology: Topology
    model: CostModel

    def __call__(self, micro_batch: int) -> BatchResult:
        """What it expects of one micro batch."""
        columns = Columns.of([one_batch(self.topology, micro_batch)], self.workload, self.cluster)
        scores = self.model.score(columns)
        word: Word = "ESTIMATED" if bool(scores.fits[0]) else "OOM"
        memory, seconds = float(scores.memory[0]), float(scores.seconds[0])
        return BatchResult(micro_batch=micro_batch, outcome=word, peak_memory=memory, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProbe:
    """Rows of a measured table that differ in their micro batch alone."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Any:
        """The run of one of them."""
        return self.rows[0].run

    @property
    def kind(self) -> MemoryKind:
        """What kind of figure its memory is."""
        return self.rows[0].memory_kind

    @property
    def batches(self) -> tuple[int, ...]:
        """The micro batches that it answers for."""
        return tuple(sorted({row.run.topology.micro_batch for row in self.rows if row.run}))

    def __call__(self, micro_batch: int) -> BatchResult:
        """What the table says of one micro batch."""
        row = next(row for row in self.rows if row.run and row.run.topology.micro_batch == micro_batch)
        return BatchResult(
            micro_batch=micro_batch,
            outcome=_WORDS[row.status],
            peak_memory=row.memory if row.status == "OK" else None,
            seconds=row.seconds if row.status == "OK" else None,
            evidence="" if row.status == "OK" else f"the table says {row.status}",
        )


def series(rows: Iterable[Row]) -> dict[tuple[Any, ...], TableProbe]:
    """Rows that differ in their batch alone, together."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.run is not None and row.skipped is None:
            found.setdefault(_alike(row), []).append(row)
    return {key: TableProbe(rows=tuple(own)) for key, own in found.items()}


def only_series(table: Table, rows: Sequence[Row]) -> TableProbe:
    """The one series that these rows are; `InputError` says how they can be told apart."""
    known = series(rows)
    if not known:
        raise NothingUsable(f"{table.name} has no row that is asked for and says what was run.")
    if len(known) > 1:
        first = [own.first for own in known.values()]
        told = [
            f"{each.workload.model.heads} heads with tp={each.topology.tp}, dp={each.topology.dp}" for each in first
        ]
        raise InputError(
            f"{table.name} has {len(known)} series of batches; choose one with --group, --model or --set tp=N: "
            f"{either(dict.fromkeys(told), limit=6)}."
        )
    return next(iter(known.values()))


def _alike(row: Row) -> tuple[Any, ...]:
    assert row.run is not None  # noqa: S101 - `series` has asked
    workload, topology = row.run.workload, row.run.topology
    alone = replace(topology, micro_batch=1, global_batch=None)
    return (replace(workload, global_batch=1), alone, row.run.cluster.gpu.name)


def held_back(kind: MemoryKind) -> dict[str, float]:
    """What a run needs beside the figures of this kind, for a lattice: the context, and what fragments lose."""
    if kind == "smi":
        return {}
    beside = {"beside": CONTEXT + COMMUNICATOR}
    return beside if kind == "reserved" else {**beside, "lost": FRAGMENTS}


@dataclass(slots=True, kw_only=True)
class JobProbe:
    """Jobs, one after the other, each gone with all its children before the next one starts."""

    launcher: Launcher
    workload: Workload
    cluster: Cluster
    topology: Topology
    folder: Path
    iterations: tuple[int, ...]
    timeout: float
    on_host: bool
    seen: Callable[[BatchResult], None]
    _count: int = field(default=0)

    def __call__(self, micro_batch: int) -> BatchResult:
        """Run one micro batch."""
        self._count += 1
        own = self.folder / f"{self._count:04d}-mbs{micro_batch}"
        job = Job(
            number=self._count,
            tag=f"maxbatch-{self.folder.resolve().name}-{time.time_ns()}",
            folder=own,
            workload=self.workload,
            cluster=self.cluster,
            topology=one_batch(self.topology, micro_batch),
            iterations=self.iterations,
        )
        found = self._run(job, micro_batch)
        self.seen(found)
        return found

    def _run(self, job: Job, micro_batch: int) -> BatchResult:
        handle = self.launcher.submit(job)
        looked, state = self.launcher.now(), JobState.WAITING
        ran, peak = 0.0, 0.0
        try:
            while True:
                peak = max(peak, memory_of(job.tag, on_host=self.on_host))
                before, was = looked, state
                state, looked = self.launcher.poll([handle])[handle].state, self.launcher.now()
                if state in (JobState.ENDED, JobState.LOST):
                    break
                if was is state is JobState.RUNNING:  # where nobody says that it runs it takes no time of its own
                    ran += looked - before
                elif state is JobState.WAITING:  # and what was put back into a queue runs anew
                    ran = 0.0
                if ran > self.timeout:
                    self.launcher.cancel(handle)
                    evidence = f"it ran for {self.timeout:.0f} s without its last iteration"
                    return BatchResult(micro_batch=micro_batch, outcome="TIMED_OUT", evidence=evidence)
                self.launcher.wait(0.05)
        finally:
            self.launcher.cancel(handle)
        result = self.launcher.collect(handle)
        if result.measurement is not None:
            shown = result.measurement.peak_memory or peak or None
            seconds = result.measurement.seconds
            return BatchResult(micro_batch=micro_batch, outcome="MEASURED", peak_memory=shown, seconds=seconds)
        meaning = result.failure.meaning if result.failure else ""
        evidence = f"{meaning}: {result.failure.evidence}" if result.failure else ""
        ended = read_object(job.folder / "ended.json") or {}
        silent = result.failure is None or meaning == "ended without a result"
        if result.outcome is Outcome.CRASHED and silent and ended.get("why") == "exited" and ended.get("exit") == 0:
            # A program that ended well has run, though its log says no times.
            return BatchResult(micro_batch=micro_batch, outcome="MEASURED", peak_memory=peak or None)
        word: Word = result.outcome.value if result.outcome.value in _OUTCOMES else "CRASHED"  # type: ignore[assignment]
        return BatchResult(micro_batch=micro_batch, outcome=word, evidence=evidence)


_OUTCOMES: Final = ("OOM", "HUNG", "CRASHED", "TIMED_OUT", "CANCELLED")


def usable_bytes(cluster: Cluster) -> float:
    """What a process can have of a card."""
    return cluster.gpu.memory * USABLE


def lattice_for(
    batches: Sequence[int], *, start: int | None, strategy: str, increment: int = 16, room: float, **held: float
) -> BatchGrid:
    """The lattice with its usual start: E1's 64 for `ramp`, else the smallest batch."""
    first = start or (64 if strategy == "ramp" else batches[0])
    return BatchGrid(batches=batches, start=first, increment=increment, room=room, **held)
