"""Signatures of failures: lines that prove why a job ended, what each means, and what to do about it.

The order decides where several match one line: a GPU out of memory first, then other devices, NCCL, and reports last.
"""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.device_signatures import DEVICE_SIGNATURES
from tuner.logs.signature import DEATH, DISK_FULL, ENDED, HOST_MEMORY, KILLED, NOT_A_NUMBER, REPORT, signature

_FIRST_ERROR: Final = "read the first error of the rank that ended first"

SIGNATURES: Final = (
    *DEVICE_SIGNATURES,
    signature(
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime",
        Outcome.TIMED_OUT,
        "the job reached its time limit",
        "Slurm, LSF, PBS",
        "set a longer time in the site profile",
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO PREEMPTION|TERM_PREEMPT",
        Outcome.PREEMPTED,
        "another job took its place",
        "Slurm, LSF",
        "use another partition or QOS",
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO NODE FAIL|error: Node failure on|\bNODE_FAIL\b",
        Outcome.CRASHED,
        "a node failed",
        "Slurm",
        "nothing: the node is excluded",
    ),
    signature(
        r"[Dd]etected [0-9]+ oom[-_]kill event|: Out Of Memory\s*$|TERM_MEMLIMIT|DefaultCPUAllocator: can't allocate"
        r"|Memory cgroup out of memory|Out of memory: Kill(?:ed)? process|\boom-kill:|\bOOMKilled\b"
        r"|Exceeded job memory limit"
        r"|DefaultCPUAllocator: not enough memory",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Slurm, Linux",
        "ask for more host memory, or use fewer data loader workers",
    ),
    signature(
        r"^worker: the loss of iteration [0-9]+ is |found (?:NaN|Inf|nan|inf) in local|Unexpected result (?:nan|inf)\b"
        r"|[Ll]oss is (?:nan|NaN|inf),? (?:stopping|exiting|abort)",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "Megatron-LM, tuner's worker",
        "use bf16 or a lower learning rate",
    ),
    signature(
        r"\b(?:train_)?loss['\"]?[:=] ?['\"]?-?(?:nan|inf)\b",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "HF Trainer, torchtitan",
        "use bf16 or a lower learning rate",
        weight=REPORT,
        passing=True,
    ),
    signature(
        r"loss scale already at minimum|[Ll]oss scale (?:has )?reached (?:the )?minimum|Minimum loss scale reached",
        Outcome.CRASHED,
        "the loss scale is at its minimum",
        "DeepSpeed, fairseq",
        "the gradients are not finite: use bf16 or a lower learning rate",
    ),
    signature(
        r"^worker: rank [0-9]+ was killed by signal 9\b",
        Outcome.CRASHED,
        "a rank was killed (SIGKILL)",
        "tuner's worker",
        weight=DEATH,
    ),
    signature(
        r"^worker: rank [0-9]+ was killed by signal",
        Outcome.CRASHED,
        "a rank died of a signal",
        "tuner's worker",
        weight=DEATH,
    ),
    signature(
        r"^worker: rank [0-9]+ failed with exit code", Outcome.CRASHED, "a rank failed", "tuner's worker", weight=REPORT
    ),
    signature(r"^worker: ", Outcome.CRASHED, "the worker refused the assignment", "tuner's worker"),
    signature(
        r"(?:^|[\]:]\s*)(?:[A-Za-z_]\w*\.)*(?:_Array)?MemoryError(?::|\s*$)|\bstd::bad_alloc\b|Cannot allocate memory",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Python, C++",
        "ask for more host memory, or use fewer data loader workers",
    ),
    signature(
        r"No space left on device|Disk quota exceeded|Errno 122\b",
        Outcome.CRASHED,
        DISK_FULL,
        "Python",
        "free space, or let caches and checkpoints go elsewhere",
        passing=True,
    ),
    signature(
        r"\bGatedRepoError\b|\b40[13] Client Error|Access to model [^|]{0,200}? is restricted|Invalid user token"
        r"|wandb: ERROR (?:api_key|.*[Aa]pi key)|\bPermissionError: |AuthenticationError\b|AccessDenied\b",
        Outcome.CRASHED,
        "access was denied",
        "Hugging Face Hub, wandb, object stores",
        "give the job its token and permissions, or switch the service off",
        passing=True,
    ),
    signature(
        r"^(?:\S+: )?error: (?:unrecognized arguments|argument -|the following arguments are required)"
        r"|: error: (?:unrecognized arguments|argument -|the following arguments are required)"
        r"|Some specified arguments are not used by the HfArgumentParser|Could not override '|ConfigAttributeError",
        Outcome.CRASHED,
        "the trainer refused its arguments",
        "argparse, Hydra",
        "correct --command; its fields in braces are listed in docs/local.md",
    ),
    signature(
        r"can't open file '[^']{1,400}'|: command not found\s*$|execve\(\): [^|]{1,400}: No such file"
        r"|cannot execute binary file"
        r"|error: Unable to create step|can't find '__main__' module",
        Outcome.CRASHED,
        "a program or file is missing",
        "Python, bash, srun",
        "correct the path in --command; it runs in the directory in which tuner was started",
    ),
    signature(r"CANCELLED AT \S+", Outcome.CANCELLED, "the job was cancelled", "Slurm", weight=REPORT),
    signature(
        r"\bBus error\b|Signal 7 \(SIGBUS\)",
        Outcome.CRASHED,
        "a bus error: often too little shared memory",
        "Linux",
        "enlarge the container's /dev/shm",
    ),
    signature(
        r"\bSegmentation fault\b|\bSIGSEGV\b.*received|exit(?:ed)? on signal 11|Signal 11 \(SIGSEGV\)",
        Outcome.CRASHED,
        "a segmentation fault",
        "Linux",
        "rebuild extensions for this torch; `tuner doctor`",
    ),
    # Both end a rank that printed no Python traceback.
    signature(
        r"^\s*what\(\):  ?\S|\]:\s+what\(\):  ?\S",
        Outcome.CRASHED,
        "a C++ exception ended a rank",
        "C++",
        _FIRST_ERROR,
        weight=DEATH,
    ),
    signature(
        r"exitcode\s*: -9\b|return code = (?:-9|247|137)\b|exit(?:ed)? on signal 9|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed|(?:^|[\]:] ?)Killed\s*$|Signal 9 \(SIGKILL\)"
        r"|exit(?:ed with)? (?:exit )?code:? 137\b",
        Outcome.CRASHED,
        KILLED,
        "torchrun, DeepSpeed, bash, srun",
        "ask for more host memory; `dmesg` on the node names the process",
        weight=DEATH,
    ),
    signature(
        r"exitcode\s*: -7\b|return code = -7\b",
        Outcome.CRASHED,
        "a rank died of a bus error",
        "torchrun, DeepSpeed",
        weight=DEATH,
    ),
    signature(
        r"exitcode\s*: -11\b|return code = -11\b",
        Outcome.CRASHED,
        "a rank died of a segmentation fault",
        "torchrun, DeepSpeed",
        weight=DEATH,
    ),
    signature(
        r"exitcode\s*: -6\b|return code = -6\b|terminate called (?:after throwing|without)|Signal 6 \(SIGABRT\)"
        r"|Aborted \(core dumped\)|Fatal Python error: Aborted",
        Outcome.CRASHED,
        "a rank aborted",
        "torchrun, DeepSpeed, C++",
        _FIRST_ERROR,
        weight=DEATH,
    ),
    signature(
        r"exiting program after receiving SIGTERM|got signal: 15\b|exitcode\s*: -15\b|return code = -15\b"
        r"|Signal 15 \(SIGTERM\)",
        Outcome.CANCELLED,
        "somebody ended the job (SIGTERM)",
        "Megatron-LM, torchrun",
        weight=ENDED,
    ),
    signature(
        r"exitcode\s*: [1-9][0-9]*\b|exits with return code = [1-9]|ChildFailedError|Exited with exit code [1-9]"
        r"|Command '\[?[^|]{0,400}returned non-zero exit status",
        Outcome.CRASHED,
        "a rank failed",
        "torchrun, DeepSpeed, srun, accelerate",
        _FIRST_ERROR,
        weight=REPORT,
    ),
)

TRIGGERS: Final = (
    *(
        "out of memory",
        "OutOfMemory",
        "Out of memory",
        "Out Of Memory",
        "oom-kill",
        "oom_kill",
        "oom kill",
        "OOMKilled",
    ),
    *("_STATUS_", "CPUAllocator", "RESOURCE_EXHAUSTED", "MemoryAllocation", "memory limit", "cuDNN error", "CUDA"),
    *("NVIDIA driver", "HIP error", "cudaError", "NCCL", "nccl", "ibv_", "NET/IB", "atchdog", "imed out", "unhandled "),
    *("DistNetwork", "Rendezvous", "uncorrectable", "Xid", "fallen off", "GPU is lost", "device handle", "Assertion `"),
    *("by GPU", "EADDRINUSE", "ddress already", "client socket", "TCPStore", "CANCELLED", "TERM_", "walltime"),
    *(
        "Node failure",
        "NODE_FAIL",
        "NaN in ",
        "nan in ",
        "Inf in ",
        "inf in ",
        "Unexpected result",
        "oss is ",
        "worker: ",
    ),
    *(
        f"loss{end}{value}"
        for end in (": ", "': ", '": ', "=", "': '", '": "')
        for value in ("nan", "inf", "-inf", "-nan")
    ),
    *("cale already at", "cale reached", "cale has reached", "Minimum loss scale", "MemoryError", "bad_alloc"),
    *("Cannot allocate", "No space left", "quota exceeded", "Errno 122", "GatedRepo", "Client Error", "is restricted"),
    *("user token", "wandb: ERROR", "PermissionError", "AuthenticationError", "AccessDenied", "error: unrecognized"),
    *("error: argument", "arguments are required", "error: Unable", "HfArgument", "not override", "ConfigAttribute"),
    *("open file", "not found", "execve", "cannot execute", "__main__", "Bus error", "egmentation", "SIG", "on signal"),
    *("got signal", "what():", "xitcode", "return code", "Killed", "exit code", "exited with code", "terminate called"),
    *("Aborted", "ChildFailed", "non-zero exit", "exit: 137"),
)
"""Every line that a signature matches contains one of these words, which are faster to search than the patterns."""

NOT_TOPOLOGICAL: Final = frozenset(
    {
        *("no usable GPU", "a port is in use", DISK_FULL, "access was denied", "the trainer refused its arguments"),
        *(
            "a program or file is missing",
            "a dependency is missing",
            "a file is missing",
            "the ranks did not find each other",
        ),
    }
)
"""Meanings of failures that no other topology cures."""

REMEDIES: Final = {one.meaning: one.remedy for one in SIGNATURES if one.remedy}
