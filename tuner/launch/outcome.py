"""The outcome of a job, from its result file, its logs and its supervisor's report."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tuner.core.atomic_write import read_object
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.logs import read_log
from tuner.logs.failures import HOST_MEMORY, Sighting

Cause = tuple[Outcome, str, str]
"""Outcome, meaning and evidence."""

MIN_FREE_DISK: Final = 1 << 16
"""Bytes; a disk with less free space is full."""

TIMEOUT_EXIT_CODE: Final = 124
"""The exit code of timeout(1)."""

MAX_LOG_BYTES: Final = 64 << 20
"""Bytes to read from a log's end."""


def outcome_of(folder: Path, ended: Mapping[str, Any], measured: Sequence[int], *, on_host: bool) -> JobResult:
    """Return the result of a job whose processes are gone.

    Exit codes get lost in launchers, so that a job is measured by a complete result file, or the iterations in its log.
    """
    elapsed = max(0.0, float(ended.get("ended", 0.0)) - float(ended["began"])) if ended.get("began") else 0.0
    found = _from_result(folder, measured) or _from_log(folder, measured)
    if isinstance(found, Measurement):
        return JobResult(outcome=Outcome.MEASURED, measurement=found, elapsed=elapsed)
    outcome, meaning, evidence = found or _reported(ended) or _cause(folder, ended, on_host=on_host)
    return JobResult(
        outcome=outcome,
        failure=Failure(kind=outcome.value, evidence=evidence or meaning, meaning=meaning),
        elapsed=elapsed,
    )


def _reported(ended: Mapping[str, Any]) -> Cause | None:
    """Return what only the supervisor knows."""
    if ended.get("why") == "cancelled":
        return Outcome.CANCELLED, "cancelled", "cancelled by tuner"
    if ended.get("why") == "abandoned":
        return Outcome.CANCELLED, "abandoned", "the tuner exited, so its job was ended"
    if ended.get("why") == "not started":
        return Outcome.CRASHED, "it could not start", str(ended.get("said", ""))
    return None


def _from_result(folder: Path, measured: Sequence[int]) -> Measurement | None:
    """Return the measurement of a complete result file with finite losses and times."""
    document = read_object(folder / "result.json")
    try:
        seconds = {int(entry["number"]): float(entry["seconds"]) for entry in document["iterations"]}
        losses = [float(entry["loss"]) for entry in document["iterations"]]
        chosen = [seconds[number] for number in measured]
        peaks = [float(entry["reserved"]) for entry in document.get("peak_memory", [])]
    except (KeyError, TypeError, ValueError):
        return None
    if not all(math.isfinite(loss) for loss in losses) or not all(0 < value < math.inf for value in chosen):
        return None
    return Measurement(
        seconds=median(chosen),
        iterations=tuple(measured),
        peak_memory=max(peaks, default=None),
        fullest=False,  # the framework's allocations, not the whole process
    )


def _from_log(folder: Path, measured: Sequence[int]) -> Measurement | Cause | None:
    """Return the measurement of the requested iterations, or a failure where the loss of one is NaN."""
    log = read_log(_lines(folder / "stdout.log"))
    for run in reversed(log.runs):
        diverged = any(math.isnan(entry.loss or 0.0) for entry in run.iterations if entry.number in measured)
        if diverged and run.failure:
            return _outcome(run.failure), run.failure.meaning, run.failure.failure.evidence
        seconds = {entry.number: entry.seconds for entry in run.iterations}
        chosen = [value for number in measured if (value := seconds.get(number))]
        if len(chosen) == len(measured):
            rates = [entry.tflops for entry in run.iterations if entry.number in measured and entry.tflops]
            return Measurement(
                seconds=median(chosen),
                iterations=tuple(measured),
                tflops=median(rates) if rates else None,
                peak_memory=run.peak.in_use or run.peak.reserved,
                fullest=False,
            )
    return None


def _cause(folder: Path, ended: Mapping[str, Any], *, on_host: bool) -> Cause:
    """Return the cause of a failure: by the logs first, then by how the process ended."""
    sightings = [sighting for name in ("stderr.log", "stdout.log") if (sighting := _sighting(folder / name))]
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
    if ended.get("why") == "killed":
        return Outcome.CRASHED, "killed from outside", "its supervisor was killed"
    if isinstance(code, int) and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Outcome.CRASHED, "killed from outside", f"ended by {name}"
    if code == TIMEOUT_EXIT_CODE:
        return Outcome.TIMED_OUT, "its time limit expired", f"exit code {code}, as from timeout(1)"
    how = f"exit code {code}" if code else "ended without a result"
    return Outcome.CRASHED, how, last or how


def _host_memory(on_host: bool) -> Outcome:
    """Return the outcome of a host out of memory, for which a topology is to blame only where ranks compute there."""
    return Outcome.OOM if on_host else Outcome.CRASHED


def _outcome(sighting: Sighting) -> Outcome:
    try:
        return Outcome(sighting.failure.kind)
    except ValueError:
        return Outcome.CRASHED


def _sighting(path: Path) -> Sighting | None:
    log = read_log(_lines(path))
    return next((run.failure for run in reversed(log.runs) if run.failure), None)


def _lines(path: Path) -> list[str]:
    """Return the lines at a log's end."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - MAX_LOG_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in _lines(path) if line.strip()]
    return lines[-1][:400] if lines else ""
