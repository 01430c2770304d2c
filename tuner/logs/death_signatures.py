"""Signatures of process exits: the signal that killed a rank, and launchers' reports of it."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import BARE, DEATH, ENDED, KILLED, OWN_SIGNALS, PEER, REPORT, SIGNAL, Signature

_CODE: Final = (
    r"(?:(?:[Ee]xit ?[Cc]ode|EXIT CODE|exit status|return code)(?: is|\s*[:=])? ?|\bExit Code: {1,8}"
    r"|(?:crashed|[Ee]xited|failed|terminated) with (?:exit |return )?(?:code|status):? )"
)
"""The text that torchrun, DeepSpeed, Lightning, Composer, MPI and Kubernetes print before a rank's exit code."""
_CODE_WORDS: Final = (
    *("xit code", "xitcode", "xitCode", "xit Code", "EXIT CODE", "exit status", "return code"),
    *(" with code", " with status"),
)
_SIGNAL: Final = r"(?:\b(?:on|from|by|to|ON|FROM|BY) (?:signal|SIGNAL):? |\(signal |\*\*\* Signal: |\bSignal )"
"""The text before the number of a signal."""
_SIGNAL_WORDS: Final = ("ignal ", "ignal: ", "SIGNAL: ")
_SIGNAL_NAMES: Final = ("with signal SIG", "<Signals.SIG", "status=", "), PID: ")
_END_WORDS: Final = (*_CODE_WORDS, *_SIGNAL_WORDS, *_SIGNAL_NAMES)
_FIRST_ERROR: Final = "read the first error of the rank that ended first"


def _ended_by(number: int, name: str) -> str:
    """Return a pattern for the end of a process by a signal: its number, its name, or the resulting exit code."""
    return (
        rf"{_SIGNAL}{number}\b|(?:with signal |<Signals\.){name}\b"
        rf"|{_CODE}(?:-{number}|{128 + number}|{256 - number})\b|\bstatus={number}/|\b{name}\({number}\), PID: "
    )


DEATH_SIGNATURES: Final = (
    Signature(
        r"\bBus error\b|\bUnexpected bus error encountered in worker|Signal 7 \(SIGBUS\)"
        r"|(?:with signal |<Signals\.)SIGBUS",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGBUS"],
        "Linux",
        "enlarge the container's /dev/shm",
        words=("Bus error", "SIGBUS", "Unexpected bus error"),
    ),
    Signature(
        r"\bSegmentation fault\b|Unexpected segmentation fault encountered|\bSIGSEGV\b[^S]{0,200}received"
        r"|exit(?:ed)? on signal 11|Signal 11 \(SIGSEGV\)"
        r"|(?:with signal |<Signals\.)SIGSEGV",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGSEGV"],
        "Linux",
        "rebuild extensions for this torch; `tuner doctor`",
        words=("SIGSEGV", "Segmentation fault", "Unexpected segmentation fault", "on signal 11"),
    ),
    Signature(
        r"\bIllegal instruction\b[^|]{0,40}\(core dumped\)|by signal: Illegal instruction"
        r"|^Illegal instruction\s*$|on signal 4\b|with signal SIGILL"
        r"|(?:S|Caught s)ignal 4 \((?:SIGILL|Illegal instruction)|Fatal Python error: Illegal instruction",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGILL"],
        "Linux",
        "a package was built for another processor: install one built for this machine",
        words=("Illegal instruction", "on signal 4", "SIGILL"),
    ),
    Signature(
        r"\bFloating point exception\b[^|]{0,40}\(core dumped\)|Unexpected floating-point exception encountered"
        r"|by signal: Floating point exception|^Floating point exception\s*$|on signal 8\b"
        r"|with signal SIGFPE|(?:S|Caught s)ignal 8 \((?:SIGFPE|Floating point exception)"
        r"|Fatal Python error: Floating point exception",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGFPE"],
        "Linux",
        "often a division by zero in an extension; read the first error of the rank that ended first",
        words=("Floating point exception", "Unexpected floating-point exception", "on signal 8", "SIGFPE"),
    ),
    Signature(
        r"(?:^|[\]:] )(?:free\(\): |malloc(?:_consolidate)?\(\): |realloc\(\): |munmap_chunk\(\): "
        r"|double free or corruption|corrupted (?:double-linked list|size vs))|\*\*\* stack smashing detected",
        Outcome.CRASHED,
        "a rank has corrupted memory",
        "glibc",
        "rebuild extensions for this torch; `tuner doctor`",
        weight=DEATH,
        words=(
            "corrupted double-linked list",
            "corrupted size vs",
            "double free or corruption",
            "free(): ",
            *("malloc(): ", "malloc_consolidate(): "),
            "munmap_chunk(): ",
            "realloc(): ",
            "stack smashing detected",
        ),
    ),
    Signature(
        r"\bAssertion [`'][^`']{1,300}[`'] failed|F[0-9]{4,8} [0-9][^|]{0,120}\] {1,4}Check failed: "
        r"|^thread '[^']{0,80}' panicked at |(?:^|[:\]] ?)LLVM ERROR: ",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGABRT"],
        "C++, Rust",
        weight=DEATH,
        words=("Assertion `", "Assertion '", "Check failed: ", "' panicked at ", "LLVM ERROR: "),
    ),
    # Both end a rank that printed no Python traceback.
    Signature(
        r"^\s*what\(\):  ?\S|\]:\s+what\(\):  ?\S",
        Outcome.CRASHED,
        "a C++ exception ended a rank",
        "C++",
        _FIRST_ERROR,
        weight=DEATH,
        words=("what(): ",),
    ),
    Signature(
        rf"{_ended_by(9, 'SIGKILL')}|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed|(?:^|[\]:] ?)(?:Killed|已杀死|已砍掉|Getötet)\s*$",
        Outcome.CRASHED,
        KILLED,
        "torchrun, DeepSpeed, bash, srun",
        "request more host memory; `dmesg` on the node names the process",
        weight=SIGNAL,
        words=(*_END_WORDS, *("Killed", "已杀死", "已砍掉", "Getötet")),
    ),
    Signature(
        _ended_by(7, "SIGBUS"),
        Outcome.CRASHED,
        "a rank crashed with a bus error",
        "torchrun, DeepSpeed",
        weight=SIGNAL,
        words=_END_WORDS,
    ),
    Signature(
        _ended_by(11, "SIGSEGV"),
        Outcome.CRASHED,
        "a rank crashed with a segmentation fault",
        "torchrun, DeepSpeed",
        weight=SIGNAL,
        words=_END_WORDS,
    ),
    Signature(
        _ended_by(4, "SIGILL"),
        Outcome.CRASHED,
        OWN_SIGNALS["SIGILL"],
        "torchrun, srun",
        weight=SIGNAL,
        words=_END_WORDS,
    ),
    Signature(
        _ended_by(8, "SIGFPE"),
        Outcome.CRASHED,
        OWN_SIGNALS["SIGFPE"],
        "torchrun, srun",
        weight=SIGNAL,
        words=_END_WORDS,
    ),
    Signature(
        rf"{_ended_by(6, 'SIGABRT')}|terminate called without|pure virtual method called"
        r"|\bAborted {0,40}\(core dumped\)|Fatal Python error: |\*\*\* Signal: Aborted \(6\)"
        r"|MPI_ABORT was invoked on rank|\bcalled MPI_Abort\("
        r"|MPICH ERROR \[Rank|\bAbort\([0-9]+\) (?:on node|\(rank) |Fatal error in (?:internal_|P?MPI_)\w+: "
        r"|\*\*\* An error occurred in MPI_|Caught signal 6 \(Aborted",
        Outcome.CRASHED,
        OWN_SIGNALS["SIGABRT"],
        "torchrun, DeepSpeed, MPI, C++",
        _FIRST_ERROR,
        weight=PEER,
        words=(
            *_END_WORDS,
            "Aborted",
            "An error occurred in MPI_",
            "Abort(",
            "Fatal Python error: ",
            "Fatal error in ",
            "MPICH ERROR ",
            "MPI_ABORT was invoked",
            "called MPI_Abort(",
            "pure virtual method called",
            "terminate called ",
        ),
    ),
    Signature(
        r"exiting program after receiving SIGTERM|got signal: (?:1|2|15)\b|\] Received SIGTERM: 15\b"
        r"|Main process received SIG(?:TERM|INT), exiting|by signal: (?:Terminated|Hangup|Interrupt)\b"
        r"|^srun: error: [^|]{0,200}?task[s ][-0-9, ]*: Terminated"
        r"|Received (?:1|2|15) death signal|Received Signals\.SIGTERM death signal"
        rf"|{_ended_by(15, 'SIGTERM')}|{_SIGNAL}[12]\b|died with <Signals\.SIG(?:INT|HUP)|{_CODE}(?:-2|130)\b",
        Outcome.CANCELLED,
        "the job was ended from outside (SIGTERM, SIGINT, SIGHUP)",
        "Megatron-LM, torchrun",
        weight=ENDED,
        words=(
            *_END_WORDS,
            " death signal",
            ": Terminated",
            "Main process received SIG",
            "Received SIGTERM: ",
            "exiting program after receiving SIGTERM",
        ),
    ),
    Signature(
        r"exitcode\s*: [1-9][0-9]*\b|exits with return code = [1-9]|ChildFailedError|Exited with exit code [1-9]"
        r"|Command '\[?[^|]{0,400}returned non-zero exit status"
        r"|\b(?:[Pp]rocess|[Rr]ank:?|PID) [^ |]{1,40} (?:crashed|failed|exited|terminated) with (?:return |exit )?"
        r"code [1-9]"
        r"|^Error: failed to run torchrun |A worker died or was killed while executing a task"
        r"|Horovod has been shut down"
        r"|Primary job  terminated normally, but [0-9]+ process"
        r"|\b[Rr]ank [0-9]+ \(PID [0-9]+\) exited with code [1-9]"
        r"|\[ERROR\] \[launch\.py:[0-9]+:sigkill_handler\]|The actor is dead because its worker process has died"
        r"|(?:mpirun|prterun|mpiexec|orterun) (?:detected that one or more processes exited"
        r"|has exited due to process)"
        r"| DUE TO TASK FAILURE \*\*\*| FAILED \(non-zero exit code or other failure mode\)",
        Outcome.CRASHED,
        "a rank failed",
        "torchrun, DeepSpeed, srun, mpirun, accelerate",
        _FIRST_ERROR,
        weight=REPORT,
        words=(
            *_CODE_WORDS,
            "A worker died or was killed",
            " DUE TO TASK FAILURE ",
            "Error: failed to run ",
            "FAILED (non-zero exit code",
            "Horovod has been shut down",
            "Primary job  terminated",
            "ChildFailedError",
            "has exited due to process",
            "one or more processes exited",
            "returned non-zero exit status",
            ":sigkill_handler]",
            "The actor is dead because",
        ),
    ),
    # The list below an exception, whose own line may be missing.
    Signature(
        r"\bsize mismatch for \S{1,200}: copying a param with shape ",
        Outcome.CRASHED,
        "an exception ended a rank",
        "PyTorch",
        weight=BARE,
        passing=True,
        words=("size mismatch for ",),
    ),
    Signature(
        r"terminate called after throwing",
        Outcome.CRASHED,
        "a C++ exception ended a rank",
        "C++",
        _FIRST_ERROR,
        weight=REPORT,
        words=("terminate called ",),
    ),
    # The program may not be the trainer.
    Signature(
        rf"{_CODE}[1-9][0-9]{{0,2}}\b",
        Outcome.CRASHED,
        "a rank failed",
        "Kubernetes, MPI",
        weight=REPORT,
        passing=True,
        words=_CODE_WORDS,
    ),
)
