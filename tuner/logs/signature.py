"""The signature of a failure, and the weight of the line that it finds."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from functools import cache
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


@dataclass(frozen=True, slots=True)
class Signature:
    """Lines of one kind that explain a failure."""

    pattern: str
    outcome: Outcome
    meaning: str
    prints: str
    """The program that prints such lines."""
    remedy: str = ""
    _: KW_ONLY
    words: tuple[str, ...]
    """Each line that the pattern matches contains one of these words, which are faster to search."""
    weight: int = CAUSE
    passing: bool = False
    """Whether a job may survive it: iterations that follow disprove it."""

    def search(self, text: str) -> re.Match[str] | None:
        """Return the match of the pattern in a line, if any."""
        return _compiled(self.pattern).search(text) if any(word in text for word in self.words) else None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use, because most logs need few of them."""
    return re.compile(pattern)
