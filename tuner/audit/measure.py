"""`tuner measure`: a log becomes a measurement, and its TFLOPs are worked out anew.

The second iteration is measured, for the first pays for compilation, allocation and warm-up.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.keys import parse_key
from tuner.core.outcomes import Measurement
from tuner.core.text import listed
from tuner.costmodel.flops import hardware_flops, likely_reason, per_gpu
from tuner.logs import Iteration, Log, LogRun, Sighting, asked, chosen_run, described, second
from tuner.space.space import Space

_RANKS_DIFFER: Final = 0.01
_FIGURES_DIFFER: Final = 0.005
"""By which shares ranks' times, and a log's TFLOPs and those that its time gives, differ so much that it is said."""
_MOST_COMPARED: Final = 64
_FORMULA_FITS: Final = 0.0002
"""By which share a formula may miss beyond rounding and still be the one: the older one misses by up to 0.0001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a log's job trained, and where."""

    workload: Workload
    topology: Topology
    cluster: Cluster
    by_log: bool
    """Whether the topology is the one that the log prints, and nobody had to name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIteration:
    """One iteration of the log and what follows from it."""

    iteration: Iteration
    seconds: float
    global_batch: int | None
    flops: float | None
    """FLOP/s of a GPU, recompute included, by the corrected count; None where the topology is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopsDiscrepancy:
    """A log's TFLOPs that are not those that its own time gives."""

    iteration: int
    printed: float
    counted: float
    reason: str
    """What the log's figure is, where a known mistake or formula fits it; else nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMeasurement:
    """All that `tuner measure` found."""

    runs: int
    run: int
    """Which of the runs this is, from 1."""
    rows: tuple[LogIteration, ...]
    measurement: Measurement | None
    flops: float | None
    """FLOP/s of a GPU in the measured iterations, by the corrected count."""
    memory_kind: str
    failure: Sighting | None
    difference: FlopsDiscrepancy | None
    notes: tuple[str, ...]
    nothing: str
    """Why there is no measurement, as a sentence; empty where there is one."""


def subject_of(run: LogRun | None, space: Space, key: str | None, given: Iterable[str]) -> tuple[Subject | None, str]:
    """What the run trained, by the key or by the log's own arguments; else nothing and what is lacking.

    Of the workload, what the user has `given` stands before what the log says, and that before what is usual.
    """
    own = described(run.arguments if run else {}, space.cluster.gpus_per_node)
    names = frozenset(given)
    workload = space.workload if "model" in names or own.workload is None else own.workload
    asked = {
        name: getattr(space.workload, name) for name in ("global_batch", "precision", "attention") if name in names
    }
    model = replace(workload.model, seq=space.workload.model.seq) if "seq" in names else workload.model
    workload = replace(workload, model=model, **asked)
    if key is None:
        if own.topology is None:
            return None, own.lacks
        return Subject(workload=workload, topology=own.topology, cluster=space.cluster, by_log=True), ""
    topology = parse_key(key, **{**space.key_context, "workload": workload})
    if own.topology and not re.search(r"(?:^|-)dp", key, re.IGNORECASE):
        replica = topology.gpus // topology.dp
        dp = max(1, own.topology.gpus // replica)
        topology = parse_key(key, workload=workload, cluster=space.cluster, dp=dp)
    return Subject(workload=workload, topology=topology, cluster=space.cluster, by_log=False), ""


def measure(
    log: Log,
    *,
    subject: Subject | None = None,
    run: int | None = None,
    iterations: Sequence[tuple[int, int]] | None = None,
    global_batch: int | None = None,
) -> LogMeasurement:
    """Measure one run of a log. `global_batch` turns samples a second into seconds where the log has no batch."""
    if not log.runs:
        return _measured(log, 0, (), "the log has no iterations; give the log of the rank that prints them.")
    place = chosen_run(log, run)
    source = log.runs[place]
    rows = _rows(source, subject, global_batch)
    if source.iterations and not rows:
        return _measured(log, place, rows, "the log has samples per second and no batch; give --global-batch.")
    if not rows:
        return _measured(log, place, rows, "the log has no iterations: the job failed before the first one.")
    numbers = [row.iteration.number for row in rows]
    picked, problem = second(source, numbers) if iterations is None else asked(source, numbers, iterations)
    made = _measured(log, place, rows, problem)
    if problem:
        return made
    taken = [row for row in rows if row.iteration.number in picked]
    peak, kind = _peak(source, subject, taken)
    measurement = Measurement(
        seconds=statistics.median(row.seconds for row in taken),
        iterations=tuple(row.iteration.number for row in taken),
        tflops=_median(row.iteration.tflops for row in taken),
        peak_memory=peak,
    )
    differences = (_difference(row, subject) for row in taken) if subject else ()
    return replace(
        made,
        measurement=measurement,
        flops=_median(row.flops for row in taken),
        memory_kind=kind,
        difference=next(filter(None, differences), None),
        notes=(*made.notes, *_notes(source, rows, taken, subject)),
    )


def _measured(log: Log, place: int, rows: tuple[LogIteration, ...], nothing: str) -> LogMeasurement:
    """What is known of a run before anything is measured."""
    later = log.runs[place:]
    notes = []
    if len(log.runs) > 1:
        lines = listed(f"line {run.line}" if run.line else "no iteration" for run in log.runs)
        notes.append(
            f"the log has {len(log.runs)} runs, from {lines}; run {place + 1} is measured, --run picks another."
        )
    return LogMeasurement(
        runs=len(log.runs),
        run=place + 1 if log.runs else 0,
        rows=rows,
        measurement=None,
        flops=None,
        memory_kind="",
        # A later run without iterations is how this one ended.
        failure=next((run.failure for run in later if run.failure and (run is later[0] or not run.iterations)), None),
        difference=None,
        notes=tuple(notes),
        nothing=nothing,
    )


def _rows(run: LogRun, subject: Subject | None, given: int | None) -> tuple[LogIteration, ...]:
    """The iterations that have a time, in seconds or by their samples a second."""
    said = run.arguments.get("train_batch_size") or run.arguments.get("global_batch_size") or ""
    own = int(said) if re.fullmatch(r"[0-9]{1,8}", said) else None
    usual = given or own or (subject.topology.global_batch or subject.workload.global_batch if subject else None)
    counts: dict[tuple[int, int | None], float] = {}
    rows = []
    for iteration in run.iterations:
        batch, seconds = iteration.global_batch or usual, iteration.seconds
        if seconds is None and batch and iteration.samples_per_second:
            seconds = batch / iteration.samples_per_second
        if not seconds:
            continue
        flops = None
        if subject and batch:
            key = (batch, iteration.seq)
            if key not in counts:
                columns = _columns(subject, *key)
                counts[key] = float(per_gpu(hardware_flops(columns), 1.0, columns)[0])
            flops = counts[key] / seconds
        rows.append(LogIteration(iteration=iteration, seconds=seconds, global_batch=batch, flops=flops))
    return tuple(rows)


def _columns(subject: Subject, batch: int, seq: int | None) -> Columns:
    """What was trained, at the batch and the sequence of one iteration."""
    topology = replace(subject.topology, global_batch=None)
    workload = replace(subject.workload.as_in(topology), global_batch=batch)
    if seq:
        workload = replace(workload, model=replace(workload.model, seq=seq))
    return Columns.of([topology], workload, subject.cluster)


def _peak(run: LogRun, subject: Subject | None, taken: Sequence[LogIteration]) -> tuple[float | None, str]:
    """Peak bytes of the fullest GPU, and what they count: the kind that comes nearest to what the card must have."""
    if run.peak.in_use:
        return run.peak.in_use, "smi"
    if run.peak.reserved:
        return run.peak.reserved, "reserved"
    shares = [row.iteration.memory_share for row in taken if row.iteration.memory_share]
    if shares and subject and not subject.by_log:
        return max(shares) * subject.cluster.gpu.memory, "smi"
    return run.peak.allocated, "allocated" if run.peak.allocated else ""


def _difference(row: LogIteration, subject: Subject) -> FlopsDiscrepancy | None:
    """How a log's TFLOPs and those of its own time differ, if by more than their digits may."""
    iteration, printed = row.iteration, row.iteration.tflops
    if not printed or not row.flops or not row.global_batch:
        return None
    rounding = 0.5 * (iteration.tflops_digit / printed + iteration.seconds_digit / row.seconds)
    if abs(printed * 1e12 / row.flops - 1) <= max(rounding, _FIGURES_DIFFER):
        return None
    columns = _columns(subject, row.global_batch, iteration.seq)
    return FlopsDiscrepancy(
        iteration=iteration.number,
        printed=printed,
        counted=row.flops / 1e12,
        reason=likely_reason(columns, row.seconds, printed * 1e12, rounding + _FORMULA_FITS),
    )


def differences(run: LogRun, subject: Subject) -> list[FlopsDiscrepancy]:
    """The iterations whose logged TFLOPs are not those that their own times give; of a long run some, evenly spread."""
    rows = _rows(run, subject, None)
    step = -(-len(rows) // _MOST_COMPARED) or 1
    return [found for row in rows[::step] if (found := _difference(row, subject))]


def _median(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return statistics.median([value for value in known if value is not None]) if known and None not in known else None


def _notes(
    run: LogRun, rows: Sequence[LogIteration], taken: Sequence[LogIteration], subject: Subject | None
) -> list[str]:
    """What a reader of the figures should know."""
    notes = []
    apart = max(rows, key=lambda row: row.iteration.spread).iteration
    if apart.spread > _RANKS_DIFFER:
        notes.append(
            f"ranks differ by up to {100 * apart.spread:.1f}%, in iteration {apart.number}; the slowest counts."
        )
    if (run.interval or 1) > 1:
        notes.append(f"the log has one line for {run.interval} iterations: their mean.")
    elif len(run.iterations) == 1:
        notes.append("the log has a single iteration; should it be the first after a start, it is too slow.")
    if run.source in _SOURCE_NOTES:
        notes.append(_SOURCE_NOTES[run.source])
    if subject is None:
        return notes
    batches = {row.global_batch for row in taken} - {subject.topology.global_batch or subject.workload.global_batch}
    if batches:
        usual = subject.topology.global_batch or subject.workload.global_batch
        notes.append(f"the log's batch is {listed(sorted(filter(None, batches)))}, not {usual}; TFLOPs go by it.")
    gpu = subject.cluster.gpu
    peak = gpu.peak_flops.get(subject.workload.precision, 0.0)
    fastest = max((row.flops or 0.0 for row in taken), default=0.0)
    if not subject.by_log and 0 < peak < fastest:
        notes.append(f"{fastest / 1e12:.0f} TFLOPs are more than a {gpu.name} can: the log is of another job.")
    if run.arguments.get("recompute_method") == "block" and subject.topology.recompute == "full":
        notes.append("some layers alone are recomputed (block), and all of them are counted.")
    own = described(run.arguments, subject.cluster.gpus_per_node).topology
    if own and not subject.by_log:
        differ = [name for name in _DEGREES if getattr(own, name) != getattr(subject.topology, name)]
        if differ:
            pairs = (f"{name} {getattr(own, name)}, not {getattr(subject.topology, name)}" for name in differ)
            notes.append(f"the log's own arguments say {listed(pairs)}, as the key does.")
    return notes


_DEGREES: Final = ("tp", "pp", "cp", "dp", "vpp", "micro_batch", "zero", "sequence_parallel", "recompute")
_SOURCE_NOTES: Final = {
    "throughput timer": "seconds follow from DeepSpeed's samples a second and the batch.",
    "wall-clock breakdown": "seconds are the sum of DeepSpeed's timers: forward, backward and step.",
    "flops profiler": "the only time is that of an iteration that DeepSpeed's flops profiler slowed down.",
}
"""What is to be known of times that are not printed as such."""
