"""`tuner measure`: turn a log into a measurement, and recompute its TFLOPs from the time.

The second iteration is measured, because the first includes compilation, allocation and warm-up; or the first one
after it whose time agrees with the next.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuner.audit.delivery import Delivery, delivered, mismatch, read_expected
from tuner.audit.log_checks import Contradiction
from tuner.audit.subject import Subject, subject_of
from tuner.core.columns import Columns
from tuner.core.outcomes import Measurement
from tuner.core.quantity import GIB
from tuner.core.text import listed
from tuner.costmodel.flops import hardware_flops, likely_reason, per_gpu
from tuner.logs import (
    Iteration,
    Log,
    LogRun,
    Sighting,
    StepPattern,
    StepSize,
    asked,
    chosen_run,
    described,
    discrepancies,
    first_steady,
    framework_of,
    parse_iterations,
    precision,
    quantities,
    read_log,
    second,
    timed,
)
from tuner.logs.choice import NO_MATCH, SKIPPED, spelt, unmatched
from tuner.logs.comparison import DEGREES
from tuner.logs.files import log_lines
from tuner.logs.timing import contradiction, means
from tuner.space.build import SpaceArguments, default_framework, given_arguments, of_a_job, space_for, space_or
from tuner.space.space import Space

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NO_ITERATIONS: Final = (
    "the log has no iterations; pass the log of the rank that prints them, or run with --explain to see which "
    "lines look like iterations, and match them with --step-pattern."
)
_MIN_RANK_SPREAD: Final = 0.01
"""Relative difference between the times of ranks from which a note is given."""
_MIN_TFLOPS_DIFFERENCE: Final = 0.005
"""Relative difference between logged and recomputed TFLOPs from which it is reported."""
_MAX_COMPARED: Final = 64
"""Iterations of a long run whose TFLOPs are compared."""
_FORMULA_TOLERANCE: Final = 0.0002
"""Relative error beyond rounding at which a formula still explains a figure: the older one errs by up to 0.0001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIteration:
    """One iteration of the log, with its recomputed FLOP/s."""

    iteration: Iteration
    seconds: float
    global_batch: int | None
    flops: float | None
    """FLOP/s per GPU, recompute included, by the corrected formula; None if the topology is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMeasurement:
    """The result of `tuner measure`."""

    runs: int
    run: int
    """The number of this run, from 1."""
    rows: tuple[LogIteration, ...]
    measurement: Measurement | None
    flops: float | None
    """FLOP/s per GPU in the measured iterations, by the corrected formula."""
    memory_kind: str
    failure: Sighting | None
    difference: Contradiction | None
    notes: tuple[str, ...]
    nothing: str
    """Why there is no measurement; empty if there is one."""
    subject: Subject | None = None
    lacks: str = ""
    """What is missing to determine the topology; empty if it is known."""
    delivery: Delivery | None = None
    """The measurement compared with the performance that an export expects."""


def measure(
    log: str | Path,
    key: str | None = None,
    *,
    iterations: int | str | Iterable[int] | None = None,
    run: int | None = None,
    expect: str | Path | None = None,
    step_pattern: str | None = None,
    space: Space | None = None,
    **description: Unpack[SpaceArguments],
) -> LogMeasurement:
    """Read a training log: the time, TFLOPs and memory of its second iteration, and why the job failed.

    Every argument is the option of `tuner measure` with the same name: `key` names the topology if the log does not
    print it, `iterations` are those to report the median of, `run` is one of several runs from 1, `expect` is the
    `topology.json` of an export, `step_pattern` recognises the lines of a trainer that tuner does not know. A `space`,
    or the arguments of `space_for`, describe what the log does not print.

    >>> import tuner
    >>> result = tuner.measure("docs/example.log", "tp8-pp12-dp4-mbs1-z1")
    >>> result.measurement.iterations, round(result.measurement.seconds, 2)
    ((2,), 143.31)
    """
    expected = read_expected(Path(expect)) if expect is not None else None
    if isinstance(iterations, str):
        spans: Sequence[tuple[int, int]] | None = parse_iterations(iterations)
    elif iterations is not None:
        numbers = [iterations] if isinstance(iterations, int) else iterations
        spans = [(number, number) for number in numbers]
    else:
        spans = None
    named = space is not None or bool(description.get("framework"))
    if space is None:
        full = expected.described(description) if expected else description
        space = replace(space_for(**of_a_job(full)), arguments=given_arguments(description))
    else:
        full = description
        space = space_or(space, description)
    pattern = None if step_pattern is None else StepPattern.parse(step_pattern)
    found = read_log(log_lines(str(log)), pattern)
    index = chosen_run(found, run)
    logged = found.runs[index] if found.runs else None
    subject, lacks = subject_of(logged, space, key)
    if subject is None and expected:
        subject, lacks = subject_of(logged, space, expected.key)
    made = measure_run(
        found,
        subject=subject,
        run=run,
        iterations=spans,
        global_batch=space.arguments.get("global_batch"),
        no_iterations=_NO_ITERATIONS if step_pattern is None else f"{NO_MATCH}.",
    )
    if made.rows and logged and (ignored := unmatched(logged, pattern)):
        made = replace(made, notes=(f"{ignored}.", *made.notes))
    delivery = None
    if expected and logged and made.measurement:
        memory = made.measurement.peak_memory
        batch = next(
            (row.global_batch for row in made.rows if row.iteration.number in made.measurement.iterations), None
        )
        difference = mismatch(expected, logged, subject, batch)
        delivery = delivered(
            expected, made.measurement.seconds, memory / GIB if memory else None, difference=difference
        )
    if subject:
        framework = framework_of(logged) if logged else None
        subject = subject.run_by(space.workload.framework if named else framework or default_framework(full))
    return replace(made, subject=subject, lacks=lacks, delivery=delivery)


def measure_run(
    log: Log,
    *,
    subject: Subject | None = None,
    run: int | None = None,
    iterations: Sequence[tuple[int, int]] | None = None,
    global_batch: int | None = None,
    no_iterations: str = _NO_ITERATIONS,
) -> LogMeasurement:
    """Measure one run of a log. `global_batch` converts samples per second to seconds if the log has no batch;
    `no_iterations` is the message for a log without runs."""
    if not log.runs:
        return _measured(log, 0, (), no_iterations)
    index = chosen_run(log, run)
    source = log.runs[index]
    rows = _rows(source, subject, global_batch)
    if len(source.bar) > 1 and not rows:
        source = replace(source, iterations=source.bar, source="progress bar", bar=())
        rows = _rows(source, subject, global_batch)
    if source.iterations and not rows:
        return _measured(log, index, rows, _untimed(source))
    if not rows:
        return _measured(log, index, rows, "the log has no iterations: the job failed before the first one.")
    numbers = [row.iteration.number for row in rows]
    picked, problem = second(source, numbers) if iterations is None else asked(source, numbers, iterations)
    problem = problem or contradiction([row.iteration for row in rows])
    made = _measured(log, index, rows, problem)
    if problem:
        return made
    if iterations is None:
        steady, note = first_steady(picked[0], [row.iteration for row in rows])
        picked, made = (steady,), replace(made, notes=(*made.notes, *filter(None, (note,))))
    wanted = set(picked)
    taken = [row for row in rows if row.iteration.number in wanted]
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


def _measured(log: Log, index: int, rows: tuple[LogIteration, ...], nothing: str) -> LogMeasurement:
    """Return the result for a run without a measurement."""
    later = log.runs[index:]
    notes = []
    if len(log.runs) > 1:
        lines = listed(f"line {run.line}" if run.line else "no iteration" for run in log.runs)
        notes.append(
            f"the log has {len(log.runs)} runs, from {lines}; run {index + 1} is measured; select another with --run."
        )
    return LogMeasurement(
        runs=len(log.runs),
        run=index + 1 if log.runs else 0,
        rows=rows,
        measurement=None,
        flops=None,
        memory_kind="",
        # A later run without iterations shows how this one ended.
        failure=next((run.failure for run in later if run.failure and (run is later[0] or not run.iterations)), None),
        difference=None,
        notes=tuple(notes),
        nothing=nothing,
    )


def _untimed(run: LogRun) -> str:
    """Return what is missing to turn the iterations of a run into times."""
    if any(iteration.samples_per_second for iteration in run.iterations):
        return "the log has samples per second but no batch; pass --global-batch."
    if any(iteration.tokens_per_second or iteration.tokens_per_second_per_gpu for iteration in run.iterations):
        return "the log has tokens per second but no step size; pass KEY, --global-batch and --seq."
    return "the log has iterations but no times; pass a --step-pattern for the lines that have them."


def _rows(run: LogRun, subject: Subject | None, given: int | None) -> tuple[LogIteration, ...]:
    """Return the iterations that have a time, in seconds or from samples per second."""
    usual = given or run.batch_argument
    if subject is not None:
        usual = usual or subject.topology.global_batch or subject.workload.global_batch
    seq, gpus = (subject.workload.model.seq, subject.topology.gpus) if subject else (None, None)
    counts: dict[tuple[int, int | None], float] = {}
    rows = []
    for iteration in timed(run, StepSize(global_batch=usual, seq=seq, gpus=gpus)):
        batch, seconds = iteration.global_batch or usual, iteration.seconds or 0.0
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
    """Return the columns of the run at the batch and sequence of one iteration."""
    topology = replace(subject.topology, global_batch=None)
    workload = replace(subject.workload.as_in(topology), global_batch=batch)
    if seq:
        workload = replace(workload, model=replace(workload.model, seq=seq))
    return Columns.of([topology], workload, subject.cluster)


def _peak(run: LogRun, subject: Subject | None, taken: Sequence[LogIteration]) -> tuple[float | None, str]:
    """Return the peak bytes of the fullest GPU and their kind; of a GPU, a share counts more than what is allocated."""
    memory, kind = run.peak.figure
    shares = [row.iteration.memory_share for row in taken if row.iteration.memory_share]
    if kind in (None, "allocated") and shares and subject and not subject.by_log:
        return max(shares) * subject.cluster.gpu.memory, "smi"
    return memory, kind or ""


def _difference(row: LogIteration, subject: Subject) -> Contradiction | None:
    """Return how logged and recomputed TFLOPs differ, if by more than rounding."""
    iteration, printed = row.iteration, row.iteration.tflops
    if not printed or not row.flops or not row.global_batch:
        return None
    rounding = 0.5 * (iteration.tflops_digit / printed + iteration.seconds_digit / row.seconds)
    if abs(printed * 1e12 / row.flops - 1) <= max(rounding, _MIN_TFLOPS_DIFFERENCE):
        return None
    columns = _columns(subject, row.global_batch, iteration.seq)
    return Contradiction(
        iteration=iteration.number,
        printed=printed,
        counted=row.flops / 1e12,
        reason=likely_reason(columns, row.seconds, printed * 1e12, rounding + _FORMULA_TOLERANCE),
    )


def differences(run: LogRun, subject: Subject) -> list[Contradiction]:
    """Return the contradictions of a run; of a long run, from an evenly spread sample of its iterations."""
    rows = _rows(run, subject, None)
    step = -(-len(rows) // _MAX_COMPARED) or 1
    return [found for row in rows[::step] if (found := _difference(row, subject))]


def _median(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return statistics.median([value for value in known if value is not None]) if known and None not in known else None


def _notes(
    run: LogRun, rows: Sequence[LogIteration], taken: Sequence[LogIteration], subject: Subject | None
) -> list[str]:
    """Return notes on the figures."""
    notes = []
    apart = max(rows, key=lambda row: row.iteration.spread).iteration
    if apart.spread > _MIN_RANK_SPREAD:
        notes.append(
            f"ranks differ by up to {100 * apart.spread:.1f}%, in iteration {apart.number}; the slowest is used."
        )
    if means(run):
        notes.append(f"the log prints the mean of {run.interval} iterations per line.")
    if len(run.iterations) == 1 and run.source != "throughput timer":
        notes.append("the log has a single iteration; if it is the first after start-up, it includes warm-up.")
    if skipped := [row.iteration.number for row in rows if row.iteration.skipped]:
        notes.append(f"{spelt(skipped, run.interval or 1)} {SKIPPED}; such an iteration is too short to be measured.")
    if derived := precision([row.iteration for row in taken]):
        notes.append(f"{derived}.")
    elif run.source in _SOURCE_NOTES:
        notes.append(_SOURCE_NOTES[run.source])
    if subject is None:
        return notes
    usual = subject.topology.global_batch or subject.workload.global_batch
    if batches := {row.global_batch for row in taken} - {usual}:
        notes.append(f"the log's batch is {listed(sorted(filter(None, batches)))}, not {usual}; TFLOPs use the log's.")
    gpu = subject.cluster.gpu
    peak = gpu.peak_flops.get(subject.workload.precision, 0.0)
    fastest = max((row.flops or 0.0 for row in taken), default=0.0)
    if not subject.by_log and 0 < peak < fastest:
        notes.append(f"{fastest / 1e12:,.0f} TFLOPs exceed the peak of a {gpu.name}: the log is from a different job.")
    if run.arguments.get("recompute_method") == "block" and subject.topology.recompute == "full":
        notes.append("only some layers are recomputed (block), but TFLOPs count all of them.")
    own = described(run.arguments, subject.cluster.gpus_per_node).topology
    if own and not subject.by_log:
        wanted = quantities(subject.workload, subject.topology)
        differ = discrepancies(run, {name: wanted[name] for name in DEGREES if name in wanted})
        differ += [
            f"{name.replace('_', ' ')} {getattr(own, name)}, not {getattr(subject.topology, name)}"
            for name in _SETTINGS
            if getattr(own, name) != getattr(subject.topology, name)
        ]
        if differ:
            notes.append(f"the arguments in the log differ from the key: {listed(differ)}.")
    return notes


_SETTINGS: Final = ("zero", "sequence_parallel", "recompute")
_SOURCE_NOTES: Final = {
    "throughput timer": "seconds are the batch divided by DeepSpeed's samples per second.",
    "wall-clock breakdown": "seconds are the sum of DeepSpeed's timers: forward, backward and step.",
    "flops profiler": "the only time is of an iteration slowed down by DeepSpeed's FLOPs profiler.",
}
"""Notes on times that are derived from other figures."""
