"""The signature of a failure, and the weight of the line that it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tuner.core.outcomes import Outcome

OUT_OF_MEMORY, DEVICE, CAUSE, SIGNAL, LOST, DEATH, BARE, PEER, REPORT, ENDED = range(10)
"""Weight of a line, the closest to the cause first: a GPU out of memory, which explains all else; a failed GPU, for
which other ranks wait; other causes; the signal that killed a rank, by its exit code; a lost connection or worker; the
end of a rank after any of these; an exception without a traceback, which may be a remark; NCCL's messages about a lost
peer, and aborts; reports that a rank failed; the end of the others."""

HOST_MEMORY: Final = "the host ran out of memory"
KILLED: Final = "a rank was killed (SIGKILL): most often the host ran out of memory"
NOT_A_NUMBER: Final = "the loss is not a number"
DISK_FULL: Final = "the disk is full"
NODE_FAILED: Final = "a node failed"
NCCL: Final = "NCCL or gloo failed"

OWN_SIGNALS: Final = {
    "SIGSEGV": "a segmentation fault",
    "SIGBUS": "a bus error: often too little shared memory",
    "SIGILL": "a rank crashed with an illegal instruction",
    "SIGFPE": "a rank crashed with an arithmetic error",
    "SIGABRT": "a rank aborted",
    "SIGXFSZ": "a file grew beyond the limit of its size (ulimit -f)",
}
"""What a process did that the kernel ended with one of these signals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Lines of one kind that explain a failure."""

    pattern: re.Pattern[str]
    words: tuple[str, ...]
    """Each line that the pattern matches contains one of these words, which are faster to search."""
    outcome: Outcome
    meaning: str
    prints: str
    """The program that prints such lines."""
    remedy: str
    weight: int = CAUSE
    passing: bool = False
    """Whether a job may survive it: iterations that follow disprove it."""


def signature(
    pattern: str,
    outcome: Outcome,
    meaning: str,
    prints: str,
    remedy: str = "",
    *,
    words: tuple[str, ...],
    weight: int = CAUSE,
    passing: bool = False,
) -> Signature:
    """Return a signature with a compiled pattern."""
    return Signature(
        pattern=re.compile(pattern),
        words=words,
        outcome=outcome,
        meaning=meaning,
        prints=prints,
        remedy=remedy,
        weight=weight,
        passing=passing,
    )
