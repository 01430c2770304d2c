"""Classify why a job failed, with the log line that proves it.

A word such as "error" proves nothing: it occurs in warnings and names of options. Only the patterns below count, and
the last line of a Python traceback. Of several, the cause is reported and not its consequences: when one rank dies, the
launcher ends the others, their connections break, and each prints a traceback of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tuner.core.outcomes import Failure, Outcome

_OUT_OF_MEMORY, _CAUSE, _DEATH, _REPORT, _ENDED = range(5)
"""Weight of a sighting, the nearest to the cause first: a GPU out of memory, which explains all else; other causes; the
signal that killed a rank; the report that a rank failed; the end of the other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A log line that explains a failure."""

    failure: Failure
    meaning: str
    """The failure in plain English."""
    line: int
    weight: int = _CAUSE
    passing: bool = False
    """Whether a job may survive it: the exception may have been caught."""

    @property
    def is_cause(self) -> bool:
        """Whether the line explains the failure, and does not only report it."""
        return self.weight <= _CAUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    pattern: re.Pattern[str]
    kind: Outcome
    meaning: str
    weight: int = _CAUSE


def _sign(pattern: str, kind: Outcome, meaning: str, weight: int = _CAUSE) -> _Sign:
    return _Sign(pattern=re.compile(pattern), kind=kind, meaning=meaning, weight=weight)


HOST_MEMORY: Final = "the host ran out of memory"
_SIGNS: Final = (
    # PyTorch, c10/cuda/CUDACachingAllocator.cpp; the HIP build says HIP for CUDA.
    _sign(
        r"\b(?:CUDA|HIP|XPU|NPU) out of memory\b|\btorch\.(?:\w+\.)?OutOfMemoryError\b"
        r"|\b(?:CUDA|HIP)[\w ]*(?:error|failure)\b.*out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED",
        Outcome.OOM,
        "a GPU ran out of memory",
        _OUT_OF_MEMORY,
    ),
    # NCCL, src/include/alloc.h: its buffers are allocated beside PyTorch's.
    _sign(
        r"NCCL WARN .*(?:[Ff]ailed to (?:CUDA )?(?:[cm]alloc|allocate)|out of memory|cuda ?[Mm]alloc)",
        Outcome.OOM,
        "NCCL found no GPU memory for its buffers",
        _OUT_OF_MEMORY,
    ),
    # PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and ProcessGroupGloo.
    _sign(
        r"[Ww]atchdog caught collective operation timeout|Timed out waiting [0-9]+ ?ms for \w+ operation",
        Outcome.HUNG,
        "a collective operation timed out",
    ),
    _sign(
        r"Some NCCL operations have failed or timed out|watchdog thread terminated|DistStoreError: Timed out",
        Outcome.HUNG,
        "a collective operation timed out",
        _DEATH,
    ),
    # Slurm, src/slurmd/slurmstepd and src/srun; LSF and PBS say it in their own words.
    _sign(
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime",
        Outcome.TIMED_OUT,
        "the job reached its time limit",
    ),
    _sign(r"CANCELLED AT \S+ DUE TO PREEMPTION|TERM_PREEMPT", Outcome.PREEMPTED, "another job took its place"),
    _sign(r"CANCELLED AT \S+ DUE TO NODE FAIL|error: Node failure on|\bNODE_FAIL\b", Outcome.CRASHED, "a node failed"),
    _sign(
        r"[Dd]etected [0-9]+ oom[-_]kill event|: Out Of Memory\s*$|TERM_MEMLIMIT|DefaultCPUAllocator: can't allocate",
        Outcome.CRASHED,
        HOST_MEMORY,
    ),
    # tuner/worker: what it says before it ends, and its parent of the rank that did.
    _sign(r"^worker: the loss of iteration [0-9]+ is ", Outcome.CRASHED, "the loss is not a number"),
    _sign(r"^worker: rank [0-9]+ was killed by signal 9\b", Outcome.CRASHED, "a rank was killed (SIGKILL)", _DEATH),
    _sign(r"^worker: rank [0-9]+ was killed by signal", Outcome.CRASHED, "a rank died of a signal", _DEATH),
    _sign(r"^worker: rank [0-9]+ failed with exit code", Outcome.CRASHED, "a rank failed", _REPORT),
    _sign(r"^worker: ", Outcome.CRASHED, "the worker refused the assignment"),
    # Python and numpy, and C++'s new: an allocation of the host's memory that was refused.
    _sign(
        r"(?:^|[\]:]\s*)(?:[A-Za-z_]\w*\.)*(?:_Array)?MemoryError(?::|\s*$)|\bstd::bad_alloc\b",
        Outcome.CRASHED,
        HOST_MEMORY,
    ),
    _sign(r"CANCELLED AT \S+", Outcome.CANCELLED, "the job was cancelled", _REPORT),
    _sign(r"\bBus error\b", Outcome.CRASHED, "a bus error: often too little shared memory"),
    _sign(
        r"\bSegmentation fault\b|\bSIGSEGV\b.*received|exit(?:ed)? on signal 11",
        Outcome.CRASHED,
        "a segmentation fault",
    ),
    # torchrun, torch/distributed/elastic; deepspeed, launcher/launch.py; bash and srun of a child that is gone.
    _sign(
        r"exitcode\s*: -9\b|return code = (?:-9|247|137)\b|exit(?:ed)? on signal 9|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed",
        Outcome.CRASHED,
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        _DEATH,
    ),
    _sign(r"exitcode\s*: -7\b|return code = -7\b", Outcome.CRASHED, "a rank died of a bus error", _DEATH),
    _sign(r"exitcode\s*: -11\b|return code = -11\b", Outcome.CRASHED, "a rank died of a segmentation fault", _DEATH),
    _sign(r"exitcode\s*: -6\b|return code = -6\b", Outcome.CRASHED, "a rank aborted", _DEATH),
    _sign(
        r"exiting program after receiving SIGTERM|got signal: 15\b|exitcode\s*: -15\b|return code = -15\b",
        Outcome.CANCELLED,
        "somebody ended the job (SIGTERM)",
        _ENDED,
    ),
    _sign(
        r"exitcode\s*: [1-9][0-9]*\b|exits with return code = [1-9]|ChildFailedError",
        Outcome.CRASHED,
        "a rank failed",
        _REPORT,
    ),
)
_TRIGGERS: Final = (
    *("out of memory", "OutOfMemory", "Out Of Memory", "oom-kill", "oom_kill", "ALLOC_FAILED", "CPUAllocator"),
    *("NCCL", "atchdog", "imed out", "CANCELLED", "TERM_", "walltime", "Node failure", "NODE_FAIL", "Bus error"),
    *("egmentation", "SIGSEGV", "SIGTERM", "on signal", "got signal", "xitcode", "return code", "Killed"),
    *("ChildFailed", "worker: ", "MemoryError", "bad_alloc"),
)
"""Every line that a sign matches contains one of these words, which are faster to search than patterns."""

_WARNS: Final = re.compile(r"\bwarn(?:ing)?\b|UserWarning", re.IGNORECASE)

_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(?::\s|:?\s*$)")
_NAMED: Final = re.compile(r"(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Expired|Abort|Warning)$")
_ASSERTION: Final = re.compile(r"(?:^|[:\]]\s*)AssertionError(?::|\s*$)")
_FOLLOWED: Final = re.compile(
    r"ChildFailedError|SignalException|KeyboardInterrupt|CalledProcessError|SystemExit|remote process (?:has )?exited"
    r"|Connection (?:closed by|reset by) (?:remote )?peer|Broken pipe|Socket closed|failed to recv, got 0 bytes"
)
_MEANINGS: Final = (
    (re.compile(r"^(?:ModuleNotFound|Import)Error\b"), "a dependency is missing"),
    (re.compile(r"No space left on device|Disk quota exceeded|failed writing file"), "the disk is full"),
    (re.compile(r"^(?:[\w.]*\.)?_?(?:Array)?MemoryError\b|Cannot allocate memory"), HOST_MEMORY),
    (
        re.compile(r"DeepSpeedConfigError|\bValidationError\b|Check batch related parameters|^AssertionError: .*ZeRO"),
        "DeepSpeed refused the configuration",
    ),
    (re.compile(r"NCCL|\bnccl|DistBackendError|[Gg]loo\b"), "NCCL or gloo failed"),
)
"""Meanings of exceptions, by pattern of the last line of a traceback."""
_MAX_TRACEBACK_LINES: Final = 500
_MAX_EVIDENCE_CHARS: Final = 500
_DIGITS: Final = re.compile(r"[0-9]")


@dataclass(slots=True)
class _Traceback:
    """A traceback that is being read; its lines share a prefix that names the rank."""

    prefix: str
    line: int
    read: int = 0


class Failures:
    """Finds failures in consecutive lines."""

    def __init__(self) -> None:
        self._open: list[_Traceback] = []
        self._ignored = False

    def see(self, number: int, text: str) -> Sighting | None:
        """Return the failure that a line shows, if any."""
        part_of_one, raised = self._in_traceback(number, text) if self._open or _TRACEBACK in text else (False, None)
        self._ignored = text.startswith("Exception ignored in")
        if part_of_one:  # quoted source code proves nothing
            return raised
        if any(word in text for word in _TRIGGERS) and (signed := _signed(number, text)):
            return signed
        if "AssertionError" in text and _ASSERTION.search(text):
            return _raised(number, text.strip())
        return None

    def end(self) -> list[Sighting]:
        """Return the tracebacks that the end of the log has cut off."""
        return [_raised(one.line, _TRACEBACK) for one in self._open]

    def _in_traceback(self, number: int, text: str) -> tuple[bool, Sighting | None]:
        """Return whether the line is part of a traceback, and its failure where it is the last line."""
        prefix, found, _ = text.partition(_TRACEBACK)
        if found:
            if not self._ignored:
                self._open.append(_Traceback(prefix=_folded(prefix), line=number))
            return True, None
        self._open = [one for one in self._open if one.read < _MAX_TRACEBACK_LINES]
        part_of_one = False
        for one in self._open:
            one.read += 1
            rest = text[len(one.prefix) :]
            if not rest or _folded(text[: len(one.prefix)]) != one.prefix:
                continue
            if rest[0].isspace():
                part_of_one = True
            elif _is_raised(rest):
                self._open.remove(one)
                return True, _raised(number, rest.strip())
        return part_of_one, None


def _is_raised(text: str) -> bool:
    """Whether a line names an exception, by its suffix or its module."""
    found = _RAISED.match(text)
    return found is not None and bool(_NAMED.search(found[2]) or (found[1] and found[2][0].isupper()))


def cause(sightings: Iterable[Sighting]) -> Sighting | None:
    """Return the failure of a job: of the sightings nearest to the cause the first."""
    return min(sightings, key=lambda sighting: (sighting.weight, sighting.line), default=None)


def not_a_number(number: int, text: str) -> Sighting:
    """Return the failure of a NaN loss."""
    return _sighting(number, text, Outcome.CRASHED, "the loss is not a number", _REPORT)


def _signed(number: int, text: str) -> Sighting | None:
    if _WARNS.search(text) and "NCCL WARN" not in text:
        return None
    for sign in _SIGNS:
        if sign.pattern.search(text):
            return _sighting(number, text, sign.kind, sign.meaning, sign.weight)
    return None


def _raised(number: int, evidence: str) -> Sighting:
    """Return the failure of a traceback's last line, or of an assertion."""
    if signed := _signed(number, evidence):
        return signed
    if _FOLLOWED.search(evidence):
        return _sighting(number, evidence, Outcome.CRASHED, "a rank failed", _REPORT)
    if "timed out" in evidence.casefold():
        return _sighting(number, evidence, Outcome.HUNG, "something was waited for in vain")
    meaning = next((meaning for pattern, meaning in _MEANINGS if pattern.search(evidence)), "an exception ended a rank")
    return _sighting(number, evidence, Outcome.CRASHED, meaning, passing=True)


def _sighting(
    number: int, text: str, kind: Outcome, meaning: str, weight: int = _CAUSE, *, passing: bool = False
) -> Sighting:
    evidence = " ".join(text.split())[:_MAX_EVIDENCE_CHARS]
    failure = Failure(kind=kind.value, evidence=evidence)
    return Sighting(failure=failure, meaning=meaning, line=number, weight=weight, passing=passing)


def _folded(prefix: str) -> str:
    """Return a prefix with its digits, such as times, replaced."""
    return _DIGITS.sub("0", prefix)
