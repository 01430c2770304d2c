"""How jobs that tuner stops end, as `job.json` records it before they are cancelled.

A process that is killed between cancelling a job and storing its result leaves a job that looks lost. The record tells
the next process why it was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from tuner.core.atomic_write import read_object, write_object
from tuner.core.outcomes import Failure
from tuner.launch.contract import JobResult
from tuner.study.store.trial import Trial, result_document, result_of

SYNCHRONOUS: Final = {"CUDA_LAUNCH_BLOCKING": "1"}
"""Environment of a retried job that hung. BLOOM's jobs on 40 nodes hung without it; it cost up to 6% (BigScience,
tr11-176B-ml)."""

SYNC_RETRY: Final = "retried with " + " ".join(f"{name}={value}" for name, value in SYNCHRONOUS.items())

_STOP: Final = "stop"
_ENDING: Final = "ending"


class RecordedEnd(NamedTuple):
    """What a job's `job.json` says about its end."""

    ending: JobResult | None = None
    """Its result, which may not have been stored."""
    stop: JobResult | None = None
    """Its result if it was stopped, which may not have happened."""


def record_stop(folder: Path, result: JobResult) -> None:
    """Add the result of a job that is about to be stopped to its `job.json`."""
    path = folder / "job.json"
    if document := read_object(path):
        with suppress(OSError):
            write_object(path, document | {_STOP: result_document(result)})


def recorded_end(folder: Path, trial: Trial) -> RecordedEnd:
    """Return the end of a trial's job that its `job.json` records."""
    document = read_object(folder / "job.json")
    if document.get("tag") != trial.proposal.tag:
        return RecordedEnd()
    return RecordedEnd(ending=_result(document.get(_ENDING)), stop=_result(document.get(_STOP)))


def _result(document: Mapping[str, Any] | None) -> JobResult | None:
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        return result_of(document) if document else None
    return None


def completed(trial: Trial, result: JobResult, *, clock: float) -> JobResult:
    """Return the result of a trial's job as it is stored, with the first attempt of one that hung and was retried."""
    if (hung := trial.hung) is not None:
        first = f"hung ({hung.reason}) and was {SYNC_RETRY}"
        failure = Failure(
            kind="",
            evidence=result.evidence or hung.evidence,
            meaning=f"{result.reason}; {first}" if result.reason else first,
        )
        result = replace(result, failure=failure, elapsed=result.elapsed + hung.elapsed)
    return replace(result, node_hours=result.elapsed * trial.proposal.nodes / 3600, clock=clock)
