"""Signatures of the ends of processes: the signal that killed a rank, and what launchers report of it."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import DEATH, ENDED, KILLED, REPORT, signature

_CODE: Final = r"(?:exitcode\s*: |return code = |terminated with code )"
"""What torchrun, DeepSpeed and Lightning print before the code that a rank ended with."""
_FIRST_ERROR: Final = "read the first error of the rank that ended first"

DEATH_SIGNATURES: Final = (
    signature(
        r"\bBus error\b|Signal 7 \(SIGBUS\)|with signal SIGBUS",
        Outcome.CRASHED,
        "a bus error: often too little shared memory",
        "Linux",
        "enlarge the container's /dev/shm",
        words=("Bus error", "SIGBUS"),
    ),
    signature(
        r"\bSegmentation fault\b|\bSIGSEGV\b[^S]{0,200}received|exit(?:ed)? on signal 11|Signal 11 \(SIGSEGV\)"
        r"|with signal SIGSEGV",
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
        rf"{_CODE}(?:-9|247|137)\b|exit(?:ed)? on signal 9|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed|(?:^|[\]:] ?)Killed\s*$|Signal 9 \(SIGKILL\)|with signal SIGKILL"
        r"|exit(?:ed with)? (?:exit )?code:? 137\b",
        Outcome.CRASHED,
        KILLED,
        "torchrun, DeepSpeed, bash, srun",
        "ask for more host memory; `dmesg` on the node names the process",
        weight=DEATH,
        words=(
            "Killed",
            "SIGKILL",
            "code 137",
            "code: 137",
            "exitcode",
            "on signal 9",
            "return code = ",
            "terminated with code ",
        ),
    ),
    signature(
        rf"{_CODE}-7\b",
        Outcome.CRASHED,
        "a rank died of a bus error",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=("exitcode", "return code = -7", "terminated with code -7"),
    ),
    signature(
        rf"{_CODE}-11\b",
        Outcome.CRASHED,
        "a rank died of a segmentation fault",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=("exitcode", "return code = -11", "terminated with code -11"),
    ),
    signature(
        rf"{_CODE}-6\b|terminate called without|pure virtual method called|Signal 6 \(SIGABRT\)"
        r"|\bAborted {0,40}\(core dumped\)|Fatal Python error: |\*\*\* Signal: Aborted \(6\)"
        r"|exit(?:ed)? on signal 6\b|with signal SIGABRT|MPI_ABORT was invoked on rank|\bcalled MPI_Abort\("
        r"|\*\*\* An error occurred in MPI_|Caught signal 6 \(Aborted",
        Outcome.CRASHED,
        "a rank aborted",
        "torchrun, DeepSpeed, MPI, C++",
        _FIRST_ERROR,
        weight=DEATH,
        words=(
            "Aborted",
            "An error occurred in MPI_",
            "Fatal Python error: ",
            "MPI_ABORT was invoked",
            "SIGABRT",
            "called MPI_Abort(",
            "exitcode",
            "on signal 6",
            "pure virtual method called",
            "return code = -6",
            "terminate called ",
            "terminated with code -6",
        ),
    ),
    signature(
        r"exiting program after receiving SIGTERM|got signal: (?:1|2|15)\b"
        rf"|Received (?:1|2|15) death signal|{_CODE}-15\b"
        r"|Signal 15 \(SIGTERM\)|Received Signals\.SIGTERM death signal",
        Outcome.CANCELLED,
        "somebody ended the job (SIGTERM)",
        "Megatron-LM, torchrun",
        weight=ENDED,
        words=(
            "Received Signals.SIGTERM death signal",
            " death signal",
            "Signal 15 (SIGTERM)",
            "exitcode",
            "exiting program after receiving SIGTERM",
            "got signal: ",
            "return code = -15",
            "terminated with code -15",
        ),
    ),
    signature(
        r"exitcode\s*: [1-9][0-9]*\b|terminated with code [1-9]|exits with return code = [1-9]"
        r"|ChildFailedError|Exited with exit code [1-9]"
        r"|Command '\[?[^|]{0,400}returned non-zero exit status|terminate called after throwing"
        r"|\b[Pp]rocess \S{1,40} (?:failed|exited|terminated) with (?:return|exit) code [1-9]"
        r"|(?:mpirun|prterun|mpiexec|orterun) (?:detected that one or more processes exited|has exited due to process)",
        Outcome.CRASHED,
        "a rank failed",
        "torchrun, DeepSpeed, srun, mpirun, accelerate",
        _FIRST_ERROR,
        weight=REPORT,
        words=(
            "ChildFailedError",
            "Exited with exit code ",
            "exitcode",
            "exits with return code = ",
            "has exited due to process",
            "one or more processes exited",
            "returned non-zero exit status",
            "terminate called after throwing",
            "terminated with code ",
            " with exit code ",
            " with return code ",
        ),
    ),
)
