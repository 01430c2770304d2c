"""Failures as programs print them and users pasted them into public threads, written by hand in that wording, by what
they mean; and lines that only sound like one."""

from __future__ import annotations

from typing import Final

from tests.logs.failures import (
    access,
    arguments,
    deaths,
    dependencies,
    exceptions,
    files,
    gpu_kernels,
    gpu_memory,
    gpus,
    hangs,
    host_memory,
    losses,
    networks,
    rendezvous,
    runtime_errors,
    schedulers,
    shared_memory,
    signals,
    value_errors,
)
from tests.logs.failures.harmless import HARMLESS as HARMLESS

FailureCase = tuple[str, str, str, str]
"""The lines of a log, the outcome, its meaning, and how the evidence begins."""

FAILURES: Final[dict[str, FailureCase]] = {
    **access.CASES,
    **arguments.CASES,
    **deaths.CASES,
    **dependencies.CASES,
    **exceptions.CASES,
    **files.CASES,
    **gpu_kernels.CASES,
    **gpu_memory.CASES,
    **gpus.CASES,
    **hangs.CASES,
    **host_memory.CASES,
    **losses.CASES,
    **networks.CASES,
    **rendezvous.CASES,
    **runtime_errors.CASES,
    **schedulers.CASES,
    **shared_memory.CASES,
    **signals.CASES,
    **value_errors.CASES,
}
