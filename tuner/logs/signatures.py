"""Signatures of failures: lines that prove why a job ended, what each means, and what to do about it.

The order decides where several match one line: a GPU out of memory first, then other devices, NCCL, and reports last.
"""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.device_signatures import DEVICE_SIGNATURES
from tuner.logs.signature import DEATH, DISK_FULL, ENDED, HOST_MEMORY, KILLED, NOT_A_NUMBER, REPORT, signature

_NOT_NUMBERS: Final = tuple(
    before + value for before in (": ", "= ", ":", "=", "'", '"', "-") for value in ("nan", "inf")
)
_FIRST_ERROR: Final = "read the first error of the rank that ended first"

SIGNATURES: Final = (
    *DEVICE_SIGNATURES,
    signature(
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime",
        Outcome.TIMED_OUT,
        "the job reached its time limit",
        "Slurm, LSF, PBS",
        "set a longer time in the site profile",
        words=(" DUE TO TIME LIMIT", "TERM_RUNLIMIT", "job killed: walltime"),
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO PREEMPTION|TERM_PREEMPT",
        Outcome.PREEMPTED,
        "another job took its place",
        "Slurm, LSF",
        "use another partition or QOS",
        words=(" DUE TO PREEMPTION", "TERM_PREEMPT"),
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO NODE FAIL|error: Node failure on|\bNODE_FAIL\b"
        r"|error: Task launch for \S+ failed on node",
        Outcome.CRASHED,
        "a node failed",
        "Slurm",
        "nothing: the node is excluded",
        words=(" DUE TO NODE FAIL", "NODE_FAIL", "error: Node failure on", "error: Task launch for "),
    ),
    signature(
        r"[Dd]etected [0-9]+ oom[-_]kill event|: Out Of Memory\s*$|TERM_MEMLIMIT|DefaultCPUAllocator: can't allocate"
        r"|Memory cgroup out of memory|Out of memory: Kill(?:ed)? process|\boom-kill:|\bOOMKilled\b"
        r"|Exceeded job memory limit|exceeded memory limit \([0-9]|job killed: mem |low on resource: memory"
        r"|DefaultCPUAllocator: not enough memory|DataLoader worker \(pid[^)]{0,80}\) is killed by signal: Killed",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Slurm, Linux",
        "ask for more host memory, or use fewer data loader workers",
        words=(
            ": Out Of Memory",
            "DataLoader worker (pid",
            "DefaultCPUAllocator: can't allocate",
            "DefaultCPUAllocator: not enough memory",
            "Exceeded job memory limit",
            "exceeded memory limit (",
            "job killed: mem ",
            "low on resource: memory",
            "Memory cgroup out of memory",
            "OOMKilled",
            "Out of memory: Kill",
            "TERM_MEMLIMIT",
            "kill event",
            "oom-kill:",
        ),
    ),
    signature(
        r"^worker: the loss of iteration [0-9]+ is |found (?:NaN|Inf|nan|inf) in local|Unexpected result (?:nan|inf)\b"
        r"|[Ll]oss is (?:nan|NaN|inf),? (?:stopping|exiting|abort)|loss contains a NaN"
        r"|loss returned in `training_step` is -?(?:nan|inf)|(?:WARNING: )?[Nn]on-finite loss,? (?:ending|stopping)"
        r"|gradients from `parameters` is non-finite",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "Megatron-LM, Composer, Lightning, tuner's worker",
        "use bf16 or a lower learning rate",
        words=(
            "Unexpected result ",
            "is non-finite",
            "found Inf in local",
            "found NaN in local",
            "found inf in local",
            "found nan in local",
            "loss contains a NaN",
            "loss returned in `training_step`",
            "on-finite loss",
            "oss is NaN",
            "oss is inf",
            "oss is nan",
            "worker: the loss of iteration",
        ),
    ),
    signature(
        r"\b(?:train_)?loss(?: |['\"]?[:=] ?['\"]?)-?(?:nan|inf)\b",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "HF Trainer, torchtitan, lit-llama",
        "use bf16 or a lower learning rate",
        weight=REPORT,
        passing=True,
        words=(*_NOT_NUMBERS, "loss nan", "loss inf"),
    ),
    signature(
        r"loss scale already at minimum|[Ll]oss scale (?:has )?reached (?:the )?minimum|Minimum loss scale reached",
        Outcome.CRASHED,
        "the loss scale is at its minimum",
        "DeepSpeed, fairseq",
        "the gradients are not finite: use bf16 or a lower learning rate",
        words=("oss scale ",),
    ),
    signature(
        r"^worker: rank [0-9]+ was killed by signal 9\b",
        Outcome.CRASHED,
        "a rank was killed (SIGKILL)",
        "tuner's worker",
        weight=DEATH,
        words=(" was killed by signal 9",),
    ),
    signature(
        r"^worker: rank [0-9]+ was killed by signal",
        Outcome.CRASHED,
        "a rank died of a signal",
        "tuner's worker",
        weight=DEATH,
        words=(" was killed by signal",),
    ),
    signature(
        r"^worker: rank [0-9]+ failed with exit code",
        Outcome.CRASHED,
        "a rank failed",
        "tuner's worker",
        weight=REPORT,
        words=(" failed with exit code",),
    ),
    signature(
        r"^worker: ", Outcome.CRASHED, "the worker refused the assignment", "tuner's worker", words=("worker: ",)
    ),
    signature(
        r"(?:^|[\]:]\s*)(?:[A-Za-z_]\w*\.)*(?:_Array)?MemoryError(?::|\s*$)|\bstd::bad_alloc\b|Cannot allocate memory",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Python, C++",
        "ask for more host memory, or use fewer data loader workers",
        words=("Cannot allocate memory", "MemoryError", "std::bad_alloc"),
    ),
    signature(
        r"No space left on device|Disk quota exceeded|Errno 122\b",
        Outcome.CRASHED,
        DISK_FULL,
        "Python",
        "free space, or let caches and checkpoints go elsewhere",
        passing=True,
        words=("Disk quota exceeded", "Errno 122", "No space left on device"),
    ),
    signature(
        r"\bGatedRepoError\b|trying to access a gated repo|\b40[13] Client Error|Invalid user token"
        r"|Access to model [^|]{0,200}? is restricted"
        r"|wandb: ERROR [^:]{0,200}?[Aa]pi[ _]key|\bapi_key not configured|\bPermissionError: "
        r"|AuthenticationError\b|AccessDenied\b",
        Outcome.CRASHED,
        "access was denied",
        "Hugging Face Hub, wandb, object stores",
        "give the job its token and permissions, or switch the service off",
        passing=True,
        words=(
            " Client Error",
            "Access to model ",
            "AccessDenied",
            "AuthenticationError",
            "GatedRepoError",
            "access a gated repo",
            "api_key not configured",
            "Invalid user token",
            "PermissionError: ",
            "wandb: ERROR ",
        ),
    ),
    signature(
        r"^(?:\S+: )?error: (?:unrecognized arguments|argument -|the following arguments are required)"
        r"|: error: (?:unrecognized arguments|argument -|the following arguments are required)"
        r"|Some specified arguments are not used by the HfArgumentParser|Could not override '|ConfigAttributeError"
        r"|\bUnrecognized (?:options|arguments): -|error: ambiguous option: -|ValueError: Unknown config key: "
        r"|(?:^Error: |^│ )(?:No such option:? -|(?:Missing option|Invalid value for) '-)|Unknown command line flag '",
        Outcome.CRASHED,
        "the trainer refused its arguments",
        "argparse, jsonargparse, Hydra, tyro, Click, Typer, Abseil, nanoGPT",
        "correct --command; its fields in braces are listed in docs/local.md",
        words=(
            "ConfigAttributeError",
            "Could not override '",
            "Invalid value for '-",
            "Missing option '-",
            "No such option",
            "Some specified arguments are not used by the HfArgumentParser",
            "Unknown command line flag '",
            "Unknown config key: ",
            "Unrecognized arguments: -",
            "Unrecognized options: -",
            "ambiguous option: -",
            "argument -",
            "the following arguments are required",
            "unrecognized arguments",
        ),
    ),
    signature(
        r"Error: We couldn't connect to 'https://|\bLocalEntryNotFoundError: "
        r"|(?:ConnectionError|SSLError|ProxyError|ConnectTimeout): [^|]{0,200}?Max retries exceeded with url"
        r"|\b(?:httpx|httpcore)\.Connect(?:Error|Timeout)\b",
        Outcome.CRASHED,
        "a download failed",
        "Hugging Face Hub, requests",
        "download models and data before the study: nodes may lack access to the internet",
        passing=True,
        words=(
            "LocalEntryNotFoundError: ",
            "ConnectError",
            "ConnectTimeout",
            "Max retries exceeded with url",
            "We couldn't connect to 'https://",
        ),
    ),
    signature(
        r"\bpyxis: (?:container start failed|couldn't start container|failed to import)"
        r"|^FATAL: {1,8}(?:Unable to handle|[Ww]hile |container creation failed|could not open image)"
        r"|docker: Error response from daemon",
        Outcome.CRASHED,
        "the container was not started",
        "pyxis, Apptainer, Docker",
        "correct the image in the site profile or in --command, and start it once by hand on a node",
        words=("FATAL: ", "docker: Error response", "pyxis: "),
    ),
    signature(
        r"can't open file '[^']{1,400}'|^(?!(?:/bin/)?sh: )[^|]{1,400}: command not found\s*$"
        r"|execve\(\): [^|]{1,400}: No such file"
        r"|cannot execute binary file|^(?!(?:/bin/)?sh: )\S{1,400}: [0-9]{1,6}: \S{1,400}: not found\s*$"
        r"|executable file not found in \$PATH|^EnvironmentNameNotFound: "
        r"|error: Unable to create step|can't find '__main__' module",
        Outcome.CRASHED,
        "a program or file is missing",
        "Python, bash, srun, conda, containers",
        "correct the path in --command; it runs in the directory in which tuner was started",
        words=(
            ": No such file",
            ": command not found",
            ": not found",
            "can't find '__main__' module",
            "EnvironmentNameNotFound: ",
            "can't open file '",
            "executable file not found in $PATH",
            "cannot execute binary file",
            "error: Unable to create step",
        ),
    ),
    # Libraries look for nvcc and others so, and go on without them.
    signature(
        r"^(?:/bin/)?sh: [^|]{1,400}: (?:command )?not found\s*$",
        Outcome.CRASHED,
        "a program or file is missing",
        "sh",
        weight=REPORT,
        passing=True,
        words=(": command not found", ": not found"),
    ),
    signature(
        r"(?:srun|sbatch|salloc): error: (?:Unable to allocate resources|Batch job submission failed)",
        Outcome.CRASHED,
        "Slurm refused the job",
        "Slurm",
        "correct the partition, account and options of the site profile; `sinfo` shows what the nodes have",
        words=("error: Batch job submission failed", "error: Unable to allocate resources"),
    ),
    signature(
        r"^Failed to initialize NVML: ",
        Outcome.CRASHED,
        "no usable GPU",
        "nvidia-smi",
        weight=REPORT,
        passing=True,
        words=("Failed to initialize NVML: ",),
    ),
    signature(
        r"CANCELLED AT \S+",
        Outcome.CANCELLED,
        "the job was cancelled",
        "Slurm",
        weight=REPORT,
        words=("CANCELLED AT ",),
    ),
    # When one task ends, srun kills the others: the first of its lines counts.
    signature(
        r"^srun: error: [^|]{0,200}?task[s ][-0-9, ]*: Killed",
        Outcome.CRASHED,
        KILLED,
        "srun",
        "ask for more host memory; `dmesg` on the node names the process",
        weight=REPORT,
        words=(": Killed",),
    ),
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
        r"exitcode\s*: -9\b|return code = (?:-9|247|137)\b|exit(?:ed)? on signal 9|: line [0-9]+: +[0-9]+ Killed\b"
        r"|task[s ][-0-9, ]*: Killed|(?:^|[\]:] ?)Killed\s*$|Signal 9 \(SIGKILL\)|with signal SIGKILL"
        r"|exit(?:ed with)? (?:exit )?code:? 137\b",
        Outcome.CRASHED,
        KILLED,
        "torchrun, DeepSpeed, bash, srun",
        "ask for more host memory; `dmesg` on the node names the process",
        weight=DEATH,
        words=("Killed", "SIGKILL", "code 137", "code: 137", "exitcode", "on signal 9", "return code = "),
    ),
    signature(
        r"exitcode\s*: -7\b|return code = -7\b",
        Outcome.CRASHED,
        "a rank died of a bus error",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=("exitcode", "return code = -7"),
    ),
    signature(
        r"exitcode\s*: -11\b|return code = -11\b",
        Outcome.CRASHED,
        "a rank died of a segmentation fault",
        "torchrun, DeepSpeed",
        weight=DEATH,
        words=("exitcode", "return code = -11"),
    ),
    signature(
        r"exitcode\s*: -6\b|return code = -6\b|terminate called (?:after throwing|without)|Signal 6 \(SIGABRT\)"
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
            "return code = -6",
            "terminate called ",
        ),
    ),
    signature(
        r"exiting program after receiving SIGTERM|got signal: 15\b|exitcode\s*: -15\b|return code = -15\b"
        r"|Signal 15 \(SIGTERM\)|Received Signals\.SIGTERM death signal",
        Outcome.CANCELLED,
        "somebody ended the job (SIGTERM)",
        "Megatron-LM, torchrun",
        weight=ENDED,
        words=(
            "Received Signals.SIGTERM death signal",
            "Signal 15 (SIGTERM)",
            "exitcode",
            "exiting program after receiving SIGTERM",
            "got signal: 15",
            "return code = -15",
        ),
    ),
    signature(
        r"exitcode\s*: [1-9][0-9]*\b|exits with return code = [1-9]|ChildFailedError|Exited with exit code [1-9]"
        r"|Command '\[?[^|]{0,400}returned non-zero exit status"
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
        ),
    ),
)

NOT_TOPOLOGICAL: Final = frozenset(
    {
        *("no usable GPU", "a port is in use", DISK_FULL, "access was denied", "the trainer refused its arguments"),
        *("a download failed", "the container was not started", "a node was not reached"),
        *(
            "a program or file is missing",
            "a dependency is missing",
            "a file is missing",
            "the ranks did not find each other",
        ),
    }
)
"""Meanings of failures that no other topology cures."""

REMEDIES: Final = {one.meaning: one.remedy for one in SIGNATURES if one.remedy} | {
    "a dependency is missing": "install it for the Python that --command runs",
    "a file is missing": "correct the path; jobs run in the directory in which tuner was started",
}
"""What to do about a failure, by its meaning."""

SEE_LOGS: Final = "read stderr.log and stdout.log in the job's folder"
"""What to do about any other failure."""
