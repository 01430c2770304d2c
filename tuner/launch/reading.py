"""How a job ended, from what it left: its result, its log, and its keeper's word."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tuner.launch.contract import Result
from tuner.launch.jsonfile import read_object
from tuner.logs import read_log
from tuner.logs.failures import Sighting
from tuner.results import Failure, Measurement, Outcome

LONGEST: Final = 64 << 20
"""Bytes of a log's end that are read for its failure."""


def outcome_of(folder: Path, ended: Mapping[str, Any], measured: Sequence[int], *, on_host: bool) -> Result:
    """The result of a job whose processes are gone.

    An exit code proves nothing, since launchers lose them: success is a whole result, or the iterations in the log.
    """
    held = max(0.0, float(ended.get("ended", 0.0)) - float(ended.get("began", 0.0))) if ended.get("began") else 0.0
    found = _from_result(folder, measured) or _from_log(folder, measured)
    if found is not None:
        return Result(outcome=Outcome.MEASURED, measurement=found, held=held)
    if ended.get("why") == "cancelled":
        failure = Failure(kind="cancelled", evidence="ended by the tuner")
        return Result(outcome=Outcome.CANCELLED, failure=failure, held=held)
    if ended.get("why") == "abandoned":
        failure = Failure(kind="abandoned", evidence="the tuner that watched it was gone, so it was ended")
        return Result(outcome=Outcome.CANCELLED, failure=failure, held=held)
    outcome, failure = _why(folder, ended, on_host=on_host)
    return Result(outcome=outcome, failure=failure, held=held)


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


def _from_log(folder: Path, measured: Sequence[int]) -> Measurement | None:
    log = read_log(_lines(folder / "stdout.log"))
    for run in reversed(log.runs):
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


def _why(folder: Path, ended: Mapping[str, Any], *, on_host: bool) -> tuple[Outcome, Failure]:
    """The cause: what the logs say first, then how the process ended."""
    if ended.get("why") == "not started":
        return Outcome.CRASHED, Failure(kind="not started", evidence=str(ended.get("said", "")))
    seen = [sighting for name in ("stderr.log", "stdout.log") if (sighting := _sighting(folder / name))]
    seen.sort(key=lambda each: each.weight)
    code = ended.get("exit")
    if ended.get("oom_kills"):
        return _host_memory(on_host), Failure(
            kind="the host ran out of memory", evidence="the kernel killed a process of the job for want of memory"
        )
    if seen:
        outcome = _outcome(seen[0])
        if "host ran out of memory" in seen[0].meaning:
            outcome = _host_memory(on_host)
        return outcome, Failure(kind=seen[0].meaning, evidence=seen[0].failure.evidence)
    if ended.get("why") == "killed":
        return Outcome.CRASHED, Failure(kind="killed from outside", evidence="its keeper was killed")
    if isinstance(code, int) and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Outcome.CRASHED, Failure(kind="killed from outside", evidence=f"ended by {name}")
    last = _last_line(folder / "stderr.log") or _last_line(folder / "stdout.log")
    how = f"exit code {code}" if code else "ended without a result"
    return Outcome.CRASHED, Failure(kind=how, evidence=last or how)


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
