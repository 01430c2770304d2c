"""How a job ended, from what it left: its result, its log, and its keeper's word."""

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
"""How a job ended, what that means, and the evidence."""

FULL: Final = 1 << 16
"""Bytes; a disk with fewer left is full."""

TIMED_OUT: Final = 124
"""The exit code of timeout(1)."""

LONGEST: Final = 64 << 20
"""Bytes of a log's end that are read for its failure."""


def outcome_of(folder: Path, ended: Mapping[str, Any], measured: Sequence[int], *, on_host: bool) -> JobResult:
    """The result of a job whose processes are gone.

    An exit code proves nothing, since launchers lose them: success is a whole result, or the iterations in the log.
    """
    held = max(0.0, float(ended.get("ended", 0.0)) - float(ended.get("began", 0.0))) if ended.get("began") else 0.0
    found = _from_result(folder, measured) or _from_log(folder, measured)
    if isinstance(found, Measurement):
        return JobResult(outcome=Outcome.MEASURED, measurement=found, elapsed=held)
    outcome, meaning, evidence = found or _told(ended) or _why(folder, ended, on_host=on_host)
    return JobResult(
        outcome=outcome,
        failure=Failure(kind=outcome.value, evidence=evidence or meaning, meaning=meaning),
        elapsed=held,
    )


def _told(ended: Mapping[str, Any]) -> Cause | None:
    """What the keeper alone knows."""
    if ended.get("why") == "cancelled":
        return Outcome.CANCELLED, "cancelled", "ended by the tuner"
    if ended.get("why") == "abandoned":
        return Outcome.CANCELLED, "abandoned", "the tuner that watched it was gone, so it was ended"
    if ended.get("why") == "not started":
        return Outcome.CRASHED, "it could not be started", str(ended.get("said", ""))
    return None


def _from_result(folder: Path, measured: Sequence[int]) -> Measurement | None:
    told = read_object(folder / "result.json")
    try:
        seconds = {int(each["number"]): float(each["seconds"]) for each in told["iterations"]}
        losses = [float(each["loss"]) for each in told["iterations"]]
        chosen = [seconds[number] for number in measured]
        peaks = [float(each["reserved"]) for each in told.get("peak_memory", [])]
    except (KeyError, TypeError, ValueError):
        return None
    if not all(math.isfinite(loss) for loss in losses) or not all(0 < each < math.inf for each in chosen):
        return None
    return Measurement(
        seconds=median(chosen),
        iterations=tuple(measured),
        peak_memory=max(peaks, default=None),
        fullest=False,  # what the framework held, not all that the process did
    )


def _from_log(folder: Path, measured: Sequence[int]) -> Measurement | Cause | None:
    """The iterations asked for; that a loss is no number where one of them has none."""
    log = read_log(_lines(folder / "stdout.log"))
    for run in reversed(log.runs):
        lost = [each.number for each in run.iterations if each.number in measured and math.isnan(each.loss or 0.0)]
        if lost and run.failure:
            return _outcome(run.failure), run.failure.meaning, run.failure.failure.evidence
        seconds = {each.number: each.seconds for each in run.iterations}
        chosen = [value for number in measured if (value := seconds.get(number))]
        if len(chosen) == len(measured):
            rates = [each.tflops for each in run.iterations if each.number in measured and each.tflops]
            return Measurement(
                seconds=median(chosen),
                iterations=tuple(measured),
                tflops=median(rates) if rates else None,
                peak_memory=run.peak.in_use or run.peak.reserved,
                fullest=False,
            )
    return None


def _why(folder: Path, ended: Mapping[str, Any], *, on_host: bool) -> Cause:
    """The cause: what the logs say first, then how the process ended."""
    seen = [sighting for name in ("stderr.log", "stdout.log") if (sighting := _sighting(folder / name))]
    first = min(seen, key=lambda each: each.weight, default=None)
    code = ended.get("exit")
    if first is not None and first.is_cause:
        outcome = _host_memory(on_host) if first.meaning == HOST_MEMORY else _outcome(first)
        return outcome, first.meaning, first.failure.evidence
    if ended.get("oom_kills"):
        return _host_memory(on_host), HOST_MEMORY, "the kernel killed a process of the job for want of memory"
    left = ended.get("disk_left")
    if isinstance(left, int) and left < FULL:
        return Outcome.CRASHED, "the disk is full", f"{left} bytes were left on the disk of the job's folder"
    if first is not None:
        return _outcome(first), first.meaning, first.failure.evidence
    last = _last_line(folder / "stderr.log") or _last_line(folder / "stdout.log")
    if ended.get("why") == "killed":
        return Outcome.CRASHED, "killed from outside", "its keeper was killed"
    if isinstance(code, int) and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Outcome.CRASHED, "killed from outside", f"ended by {name}"
    if code == TIMED_OUT:
        return Outcome.TIMED_OUT, "its time was up", f"exit code {code}, which is what timeout leaves"
    how = f"exit code {code}" if code else "ended without a result"
    return Outcome.CRASHED, how, last or how


def _host_memory(on_host: bool) -> Outcome:
    """The host's memory is a topology's own affair only where ranks compute on the host."""
    return Outcome.OOM if on_host else Outcome.CRASHED


def _outcome(seen: Sighting) -> Outcome:
    kind = seen.failure.kind
    try:
        return Outcome(kind)
    except ValueError:
        return Outcome.CRASHED


def _sighting(path: Path) -> Sighting | None:
    log = read_log(_lines(path))
    return next((run.failure for run in reversed(log.runs) if run.failure), None)


def _lines(path: Path) -> list[str]:
    """The lines of a log's end."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - LONGEST))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _last_line(path: Path) -> str:
    lines = [line.strip() for line in _lines(path) if line.strip()]
    return lines[-1][:400] if lines else ""
