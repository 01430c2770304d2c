"""The outcome of a job, from its result file, its logs and its supervisor's report."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tuner.core.atomic_write import read_object
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.core.text import counted, listed
from tuner.launch.contract import Job, JobResult
from tuner.launch.log_tail import OUTPUTS, JobTail, lines_of, output_size, size_of, unread_part
from tuner.logs import (
    StepPattern,
    StepSize,
    averaging,
    contradiction,
    derived_error,
    discrepancies,
    of_job,
    over_all,
    precision,
    quantities,
    read_log,
    timed,
)
from tuner.logs.choice import NO_LINE, NO_OUTPUT, ONE_LINE, unmatched
from tuner.logs.explanation import lone_step
from tuner.logs.failures import Sighting
from tuner.logs.runs import LogRun, of_batches
from tuner.logs.signature import HOST_MEMORY, NOT_A_NUMBER, OWN_SIGNALS
from tuner.logs.timing import means

Cause = tuple[Outcome, str, str]
"""Outcome, meaning and evidence."""

MIN_FREE_DISK: Final = 1 << 16
"""Bytes; a disk with less free space is full."""

NO_RESULT: Final = "ended without a result"
"""The outcome of a job that succeeded without a measurement."""

NOT_MEASURABLE: Final = "no iteration could be measured"

CANCELLED: Final = "ended by `tuner stop`, by another tuner, or by a SIGTERM to its supervisor"

MAX_CLOCK_ERROR: Final = 5.0
"""Seconds by which the clocks that determine a job's time may differ."""

TIMEOUT_EXIT_CODE: Final = 124
"""The exit code of timeout(1)."""


_TOO_LONG: Final = (
    "its measured iterations took {took:.4g} s, but the whole job only {elapsed:.4g} s: a unit or the size of a step "
    "is misread; give the unit with --step-pattern, or the right --global-batch"
)

_OF_SHELLS: Final = 128
"""A shell's exit code for a process that a signal ended, less the number of the signal."""

MAX_DERIVED_ERROR: Final = 0.2
"""Error of a time, as a share, above which it is not a measurement."""

_STEP_OR_BATCH: Final = (
    "a step of its bar may be an optimizer step or one of its {count} microbatches; call step() of tuner.step after "
    "each optimizer step"
)

_TAKEN_FOR_STEPS: Final = (
    "each step of its bar is assumed to be an optimizer step of {count} microbatches; if it is one of them, call "
    "step() of tuner.step after each optimizer step"
)

_BEHIND: Final = (
    "its first process exited after {elapsed:,.1f} s, which ended the others: run the trainer in the foreground"
)

_ANOTHER_RUN: Final = (
    "its log states {different}: the job did not run its trial; from --command, remove whatever overrides the "
    "trial's flags, or add the flags to it"
)

_IMPRECISE: Final = (
    "its times can only be derived from {source}, resolution about {error:.0%}; log the time of an iteration or finer "
    "timestamps, let the job run for longer, or call tuner.step in the training loop"
)


def outcome_of(
    folder: Path,
    ended: Mapping[str, Any],
    measured: Sequence[int],
    *,
    on_host: bool,
    by_log: bool = False,
    batches: int = 1,
    size: StepSize | None = None,
    pattern: StepPattern | None = None,
    wanted: Mapping[str, int] = MappingProxyType({}),
) -> JobResult:
    """Return the result of a job whose processes have ended.

    Launchers may lose exit codes, so a job is measured by a complete result file or by the iterations in its log. With
    `by_log`, only the log measures it; `size` converts samples and tokens per second to seconds, and `pattern`
    recognises the iterations of an unknown trainer. A job of several `batches` measures `measured` iterations of each.
    `wanted` has the quantities of its topology and workload: a log that states others is of another run.
    """
    elapsed = seconds_of(ended)
    found: Measurement | Cause | None = _from_result(folder, measured, batches)
    unreadable = ""
    if found is None:
        longest = math.inf if _was_requeued(folder) or not elapsed else elapsed + MAX_CLOCK_ERROR
        found, unreadable = _from_log(folder, measured, size or StepSize(), pattern, longest, wanted)
        if batches > 1 and isinstance(found, Measurement):
            found = None  # only of the first batch
    if isinstance(found, Measurement):
        return JobResult(outcome=Outcome.MEASURED, measurement=found, elapsed=elapsed)
    if found is None and by_log and _complete(folder, measured, pattern):
        found = Outcome.UNREADABLE, NOT_MEASURABLE, unreadable
    found = found or _reported(ended) or _cause(folder, ended, on_host=on_host)
    if by_log and found[0] is Outcome.OOM and (why := _another_run(folder, wanted)):
        found = Outcome.UNREADABLE, NOT_MEASURABLE, why
    if by_log and found[1] == NO_RESULT:
        why = _BEHIND.format(elapsed=elapsed) if ended.get("left_running") else unreadable
        found = Outcome.UNREADABLE, NOT_MEASURABLE, why
    outcome, meaning, evidence = found
    return JobResult(
        outcome=outcome,
        failure=Failure(kind=outcome.value, evidence=evidence or meaning, meaning=meaning),
        elapsed=elapsed,
    )


def seconds_of(ended: Mapping[str, Any]) -> float:
    """Return the seconds for which a job ran, by the report of its end; 0 if that is not known."""
    return max(0.0, float(ended.get("ended", 0.0)) - float(ended["began"])) if ended.get("began") else 0.0


def size_note(job: Job) -> dict[str, Any]:
    """Return a note on the size of a job's iteration, and on the run that its log should state."""
    batch = job.workload.as_in(job.topology).global_batch
    note: dict[str, Any] = {"global_batch": batch, "seq": job.workload.model.seq, "gpus": job.topology.gpus}
    note["microbatches"] = job.topology.microbatches(batch)
    note["run"] = quantities(job.workload, job.topology)
    return {**note, "batches": len(job.batches)} if job.batches else note


def noted_batches(note: Mapping[str, Any]) -> int:
    """Return how many batches a job measures, by its note."""
    batches = note.get("batches", 1)
    return batches if isinstance(batches, int) and batches > 1 else 1


def noted_size(note: Mapping[str, Any]) -> StepSize:
    """Return the size of a job's iteration from its note."""
    sizes = {name: note.get(name) for name in ("global_batch", "seq", "gpus", "microbatches")}
    return StepSize(**{name: size if isinstance(size, int) else None for name, size in sizes.items()})


def noted_run(note: Mapping[str, Any]) -> dict[str, int]:
    """Return the quantities that a job's log should state, by its note; none for jobs of earlier versions."""
    run = note.get("run")
    return {name: value for name, value in run.items() if isinstance(value, int)} if isinstance(run, Mapping) else {}


def _another_run(folder: Path, wanted: Mapping[str, int]) -> str:
    """Return how the arguments in a job's logs differ from its trial; empty if they do not."""
    runs = [run for name in OUTPUTS for run in reversed(read_log(lines_of(folder / name)).runs)]
    different = next((found for run in runs if (found := discrepancies(run, wanted))), [])
    return _ANOTHER_RUN.format(different=listed(different)) if different else ""


def _was_requeued(folder: Path) -> bool:
    """Whether Slurm restarted the job, whose logs may have iterations of an earlier attempt."""
    return any(folder.glob("stdout.log.before-*"))


def _complete(folder: Path, measured: Sequence[int], pattern: StepPattern | None) -> bool:
    """Whether the job was ended because its log seemed to have all measured iterations."""
    tail = JobTail(folder, pattern)
    tail.read(0.0, whole=True)
    return tail.progress.complete(max(measured))


def _reported(ended: Mapping[str, Any]) -> Cause | None:
    """Return facts that only the supervisor knows."""
    if ended.get("why") == "cancelled":
        return Outcome.CANCELLED, "cancelled", CANCELLED
    if ended.get("why") == "abandoned":
        return Outcome.CANCELLED, "abandoned", "tuner exited, so its job was ended"
    if ended.get("why") == "not started":
        return Outcome.CRASHED, "it could not start", str(ended.get("said", ""))
    return None


def _from_result(folder: Path, measured: Sequence[int], batches: int) -> Measurement | None:
    """Return the measurement of a complete result file with finite losses and times, of so many batches."""
    document = read_object(folder / "result.json")
    try:
        seconds = {int(entry["number"]): float(entry["seconds"]) for entry in document["iterations"]}
        losses = [float(entry["loss"]) for entry in document["iterations"]]
        each = len(document["iterations"]) // batches
        chosen = [[seconds[batch * each + number] for number in measured] for batch in range(batches)]
        peaks = [float(entry["reserved"]) for entry in document.get("peak_memory", [])]
        whole = document.get("memory_kind") == "resident"
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None
    if not all(math.isfinite(value) for value in (*losses, *peaks, *chain(*chosen))) or min(chain(*chosen)) <= 0:
        return None
    medians = tuple(map(median, chosen))
    return Measurement(
        seconds=medians[-1],
        batch_seconds=medians if batches > 1 else (),
        iterations=tuple(measured),
        peak_memory=max(peaks, default=None),
        memory_kind="smi" if whole else "reserved",
    )


class _NoTime(NamedTuple):
    """Why a run of a log has no measurement."""

    has_lines: bool
    """Whether it has timed iterations."""
    words: str


def _from_log(
    folder: Path,
    measured: Sequence[int],
    size: StepSize,
    pattern: StepPattern | None,
    longest: float = math.inf,
    wanted: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Measurement | Cause | None, str]:
    """Return the measurement of the requested iterations, a failure if a loss is NaN, or the reason for neither.

    Iterations that took more than `longest` seconds together are misread. A line of several iterations counts once for
    each of them, unless it has the time of the last one only.
    """
    reasons: list[_NoTime] = []
    outputs = [lines_of(folder / name) for name in OUTPUTS]
    runs = [run for lines in outputs for run in reversed(read_log(lines, pattern).runs)]
    for run in runs:
        found = _from_run(run, measured, size, longest, wanted)
        if isinstance(found, Measurement):
            if run.source == "progress bar" and (lost := _not_a_number(outputs)):
                return lost, ""
            return replace(found, note="; ".join(filter(None, (found.note, unmatched(run, pattern))))), ""
        if not isinstance(found, _NoTime):
            return found, ""
        reasons.append(found)
    return None, "; ".join(filter(None, (_why_not(folder, measured, reasons, pattern), unread_part(folder))))


def _from_run(
    run: LogRun, measured: Sequence[int], size: StepSize, longest: float, wanted: Mapping[str, int]
) -> Measurement | Cause | _NoTime:
    """Return the measurement of one run, a failure if a loss is NaN, or why there is neither."""
    argument = run.arguments.get("train_batch_size", "")
    batch = int(argument) if re.fullmatch(r"[0-9]{1,8}", argument) else size.global_batch
    entries = timed(run, replace(size, global_batch=batch))
    numbers, reason = of_job(run, measured, entries)
    if not numbers:
        return _NoTime(bool(entries), reason)
    if misread := contradiction(entries):
        return _NoTime(True, misread.rstrip("."))
    if different := discrepancies(run, wanted, [entry for entry in entries if entry.number in numbers]):
        return _NoTime(True, _ANOTHER_RUN.format(different=listed(different)))
    chosen = over_all(run, [entry for entry in entries if entry.number in numbers])
    if (error := derived_error(chosen)) > MAX_DERIVED_ERROR:
        return _NoTime(True, _IMPRECISE.format(source=chosen[0].derived, error=error))
    each = (run.interval or 1) if means(run) else 1
    if (took := each * sum(entry.seconds or 0.0 for entry in chosen)) > longest:
        return _NoTime(True, _TOO_LONG.format(took=took, elapsed=longest - MAX_CLOCK_ERROR))
    if any(math.isnan(entry.loss or 0.0) for entry in chosen) and run.failure:
        return _outcome(run.failure), run.failure.meaning, run.failure.failure.evidence
    rates, (memory, kind) = [entry.tflops for entry in chosen if entry.tflops], run.peak.figure
    taken = ""
    if (microbatches := size.microbatches or 1) > 1:
        if any(entry.counts_batches is None for entry in chosen):
            return _NoTime(True, _STEP_OR_BATCH.format(count=microbatches))
        if run.source == "progress bar" and not any(entry.counts_batches for entry in chosen):
            taken = _TAKEN_FOR_STEPS.format(count=microbatches)
        chosen = [of_batches(entry, microbatches) if entry.counts_batches else entry for entry in chosen]
    return Measurement(
        seconds=median(entry.seconds for entry in chosen if entry.seconds),
        iterations=numbers,
        tflops=median(rates) if rates else None,
        peak_memory=memory,
        memory_kind=kind,
        note="; ".join(filter(None, (averaging(run, numbers, entries), precision(chosen), taken))),
    )


def _not_a_number(outputs: Iterable[Sequence[str]]) -> Cause | None:
    """Return the failure if the last loss that HF Trainer printed, apart from its bar, is not a number."""
    for lines in outputs:
        last = next((line for line in reversed(lines) if line.startswith("{'loss': ")), "")
        for run in read_log([last]).runs:
            if run.failure and run.failure.meaning == NOT_A_NUMBER:
                return _outcome(run.failure), NOT_A_NUMBER, run.failure.failure.evidence
    return None


def _why_not(folder: Path, measured: Sequence[int], reasons: Sequence[_NoTime], pattern: StepPattern | None) -> str:
    """Return why no run of the log has a measurement: the first reason, if possible of a run with iterations."""
    with_lines = [reason for reason in reasons if reason.has_lines]
    nothing = NO_LINE if output_size(folder) else NO_OUTPUT
    why = next((reason.words for reason in (*with_lines, *reasons)), nothing)
    if why == NO_LINE and not pattern:
        steps = (lone_step(lines_of(folder / name)) for name in OUTPUTS)
        if (number := next((step for step in steps if step is not None), None)) is not None:
            why = ONE_LINE.format(number=number, count=counted(max(measured), "iteration"))
    if why == NO_LINE:
        fullest = max(reversed(OUTPUTS), key=lambda name: size_of(folder / name))
        why = why.replace("measure stdout.log", f"measure {folder / fullest}")
    return why


def _cause(folder: Path, ended: Mapping[str, Any], *, on_host: bool) -> Cause:
    """Return the cause of a failure: by the logs first, then by how the process ended."""
    sightings = [sighting for name in reversed(OUTPUTS) if (sighting := _sighting(folder / name))]
    first = min(sightings, key=lambda sighting: sighting.weight, default=None)
    code = ended.get("exit")
    if first is not None and first.is_cause:
        outcome = _host_memory(on_host) if first.meaning == HOST_MEMORY else _outcome(first)
        return outcome, first.meaning, first.failure.evidence
    if ended.get("oom_kills"):
        return _host_memory(on_host), HOST_MEMORY, "the kernel killed a process of the job for lack of memory"
    left = ended.get("disk_left")
    if isinstance(left, int) and left < MIN_FREE_DISK:
        return Outcome.CRASHED, "the disk is full", f"{left} bytes are free on the disk of the job's folder"
    if first is not None:
        return _outcome(first), first.meaning, first.failure.evidence
    last = _last_line(folder / "stderr.log") or _last_line(folder / "stdout.log")
    if not folder.is_dir():
        return Outcome.CRASHED, "killed from outside", "its folder is gone, and with it the job's output"
    if ended.get("why") == "killed":
        return Outcome.CRASHED, "killed from outside", "its supervisor was killed"
    if isinstance(code, int) and (code < 0 or code - _OF_SHELLS in set(signal.Signals)):
        number = -code if code < 0 else code - _OF_SHELLS
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        how = f"ended by {name}" if code < 0 else f"exit code {code}, a shell's for {name}"
        return Outcome.CRASHED, OWN_SIGNALS.get(name, "killed from outside"), how
    if code == TIMEOUT_EXIT_CODE:
        return Outcome.TIMED_OUT, "its time limit expired", f"exit code {code}, as from timeout(1)"
    how = f"exit code {code}" if code else NO_RESULT
    return Outcome.CRASHED, how, "; ".join(filter(None, (last or how, unread_part(folder))))


def _host_memory(on_host: bool) -> Outcome:
    """Return the outcome of a host out of memory, which counts against a topology only if ranks compute on the host."""
    return Outcome.OOM if on_host else Outcome.CRASHED


def _outcome(sighting: Sighting) -> Outcome:
    try:
        return Outcome(sighting.failure.kind)
    except ValueError:
        return Outcome.CRASHED


def _sighting(path: Path) -> Sighting | None:
    log = read_log(lines_of(path))
    return next((run.failure for run in reversed(log.runs) if run.failure), None)


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in lines_of(path) if line.strip()]
    return lines[-1][:400] if lines else ""
