"""Signatures of the ends of processes: the signal that killed a rank, and what launchers report of it."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import DEATH, ENDED, KILLED, REPORT, signature

_CODE: Final = (
    r"(?:exitcode\s*: |return code = "
    r"|(?:crashed|[Ee]xited|failed|terminated) with (?:(?:exit|return) )?(?:code|status):? )"
)
"""What torchrun, DeepSpeed, Lightning and Composer print before the code that a rank ended with."""
_CODE_WORDS: Final = (
    *("exitcode", "return code = "),
    *(f" with {kind}{name}" for kind in ("", "exit ", "return ") for name in ("code", "status")),
)
_FIRST_ERROR: Final = "read the first error of the rank that ended first"

DEATH_SIGNATURES: Final = (
    signature(
        r"\bBus error\b|\bUnexpected bus error encountered in worker|Signal 7 \(SIGBUS\)"
        r"|(?:with signal |<Signals\.)SIGBUS",
        Outcome.CRASHED,
        "a bus error: often too little shared memory",
        "Linux",
        "enlarge the container's /dev/shm",
        words=("Bus error", "SIGBUS", "Unexpected bus error"),
    ),
    signature(
        r"\bSegmentation fault\b|\bSIGSEGV\b[^S]{0,200}received|exit(?:ed)? on signal 11|Signal 11 \(SIGSEGV\)"
        r"|(?:with signal |<Signals\.)SIGSEGV",
        Outcome.CRASHED,
        "a segmentation fault",
        "Linux",
        "rebuild extensions for this torch; `tuner doctor`",
        words=("SIGSEGV", "Segmentation fault", "on signal 11"),
    ),
    signature(
        r"\bIllegal instruction\b[^|]{0,40}\(core dumped\)|^Illegal instruction\s*$|on signal 4\b|with signal SIGILL"
        r"|Signal 4 \(SIGILL\)|Fatal Python error: Illegal instruction",
        Outcome.CRASHED,
        "a rank died of an illegal instruction",
        "Linux",
        "a package was built for another processor: install one that is built for this machine",
        words=("Illegal instruction", "on signal 4", "SIGILL"),
    ),
    signature(
        r"\bFloating point exception\b[^|]{0,40}\(core dumped\)|^Floating point exception\s*$|on signal 8\b"
        r"|with signal SIGFPE|Signal 8 \(SIGFPE\)|Fatal Python error: Floating point exception",
        Outcome.CRASHED,
        "a rank died of an arithmetic error",
        "Linux",
        "often a division by zero in an extension; read the first error of the rank that ended first",
        words=("Floating point exception", "on signal 8", "SIGFPE"),
    ),
    signature(
        r"(?:^|[\]:] )(?:free\(\): |malloc\(\): |realloc\(\): |munmap_chunk\(\): |double free or corruption"
        r"|corrupted (?:double-linked list|size vs))|\*\*\* stack smashing detected",
        Outcome.CRASHED,
        "a rank corrupted its memory",
        "glibc",
        "rebuild extensions for this torch; `tuner doctor`",
        weight=DEATH,
        words=(
            "corrupted double-linked list",
            "corrupted size vs",
            "double free or corruption",
            "free(): ",
            "malloc(): ",
            "munmap_chunk(): ",
            "realloc(): ",
            "stack smashing detected",
        ),
    ),
    # Both end a rank that printed no Python traceback.
    signature(
        r"^\s*what\(\):  ?\S|\]:\s+what\(\):  ?\S",
        Outcome.CRASHED,
        "a C++ exception ended a rank",
        "C++",
        _FIRST_ERROR,
        weight=DEATH,
        words=("what(): ",),
    ),
    signature(
        rf"{_CODE}(?:-9|247|137)\b|exit(?:ed)? on signal 9|died from signal 9\b|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed|(?:^|[\]:] ?)Killed\s*$|Signal 9 \(SIGKILL\)|(?:with signal |<Signals\.)SIGKILL"
        r"|exit(?:ed with)? (?:exit )?code:? 137\b",
        Outcome.CRASHED,
        KILLED,
        "torchrun, DeepSpeed, bash, srun",
        "ask for more host memory; `dmesg` on the node names the process",
        weight=DEATH,
        words=(
            *_CODE_WORDS,
            "Killed",
            "SIGKILL",
            "code 137",
            "code: 137",
            "died from signal 9",
            "on signal 9",
        ),
    ),
    signature(
        rf"{_CODE}(?:-7|135)\b|died from signal 7\b",
        Outcome.CRASHED,
        "a rank died of a bus error",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=(*_CODE_WORDS, "died from signal "),
    ),
    signature(
        rf"{_CODE}(?:-11|139)\b|died from signal 11\b",
        Outcome.CRASHED,
        "a rank died of a segmentation fault",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=(*_CODE_WORDS, "died from signal "),
    ),
    signature(
        rf"{_CODE}(?:-6|134)\b|terminate called without|pure virtual method called|died from signal 6\b"
        r"|Signal 6 \(SIGABRT\)"
        r"|\bAborted {0,40}\(core dumped\)|Fatal Python error: |\*\*\* Signal: Aborted \(6\)"
        r"|exit(?:ed)? on signal 6\b"
        r"|(?:with signal |<Signals\.)SIGABRT|MPI_ABORT was invoked on rank|\bcalled MPI_Abort\("
        r"|MPICH ERROR \[Rank|\bAbort\([0-9]+\) (?:on node|\(rank) |Fatal error in (?:internal_|P?MPI_)\w+: "
        r"|\*\*\* An error occurred in MPI_|Caught signal 6 \(Aborted",
        Outcome.CRASHED,
        "a rank aborted",
        "torchrun, DeepSpeed, MPI, C++",
        _FIRST_ERROR,
        weight=DEATH,
        words=(
            *_CODE_WORDS,
            "Aborted",
            "An error occurred in MPI_",
            "Abort(",
            "Fatal Python error: ",
            "Fatal error in ",
            "MPICH ERROR ",
            "MPI_ABORT was invoked",
            "SIGABRT",
            "called MPI_Abort(",
            "died from signal 6",
            "on signal 6",
            "pure virtual method called",
            "terminate called ",
        ),
    ),
    signature(
        r"exiting program after receiving SIGTERM|got signal: (?:1|2|15)\b"
        rf"|Received (?:1|2|15) death signal|{_CODE}(?:-15|143|-2|130)\b"
        r"|Signal 15 \(SIGTERM\)|Received Signals\.SIGTERM death signal|died with <Signals\.SIG(?:TERM|INT|HUP)"
        r"|died from signal (?:1|2|15)\b",
        Outcome.CANCELLED,
        "somebody ended the job (SIGTERM)",
        "Megatron-LM, torchrun",
        weight=ENDED,
        words=(
            *_CODE_WORDS,
            " death signal",
            "died from signal ",
            "died with <Signals.",
            "Signal 15 (SIGTERM)",
            "exiting program after receiving SIGTERM",
            "got signal: ",
        ),
    ),
    signature(
        r"exitcode\s*: [1-9][0-9]*\b|exits with return code = [1-9]|ChildFailedError|Exited with exit code [1-9]"
        r"|Command '\[?[^|]{0,400}returned non-zero exit status|terminate called after throwing"
        r"|\b(?:[Pp]rocess|[Rr]ank:?|PID) [^ |]{1,40} (?:crashed|failed|exited|terminated) with (?:return |exit )?"
        r"code [1-9]"
        r"|A worker died or was killed while executing a task"
        r"|\b[Rr]ank [0-9]+ \(PID [0-9]+\) exited with code [1-9]"
        r"|(?:mpirun|prterun|mpiexec|orterun) (?:detected that one or more processes exited|has exited due to process)",
        Outcome.CRASHED,
        "a rank failed",
        "torchrun, DeepSpeed, srun, mpirun, accelerate",
        _FIRST_ERROR,
        weight=REPORT,
        words=(
            *_CODE_WORDS,
            "A worker died or was killed",
            "ChildFailedError",
            "has exited due to process",
            "one or more processes exited",
            "returned non-zero exit status",
            "terminate called after throwing",
        ),
    ),
)
