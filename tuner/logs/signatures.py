"""Signatures of failures: lines that prove why a job ended, what each means, and what to do about it.

The order decides where several match one line: a GPU out of memory first, then other devices, NCCL, and reports last.
"""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.death_signatures import DEATH_SIGNATURES
from tuner.logs.device_signatures import DEVICE_SIGNATURES
from tuner.logs.signature import DEATH, DISK_FULL, HOST_MEMORY, KILLED, NOT_A_NUMBER, REPORT, signature

_NOT_NUMBERS: Final = tuple(
    before + value for before in (": ", "= ", ":", "=", "'", '"', "-") for value in ("nan", "inf")
)

SIGNATURES: Final = (
    *DEVICE_SIGNATURES,
    signature(
        r"CANCELLED AT \S+ DUE TO TIME LIMIT|TERM_RUNLIMIT|job killed: walltime"
        r"|(?:WARNING [^|]{0,60})?Caught signal SIG\w+ on \S+: this job is timed-out",
        Outcome.TIMED_OUT,
        "the job reached its time limit",
        "Slurm, LSF, PBS, submitit",
        "set a longer time in the site profile",
        words=(" DUE TO TIME LIMIT", "TERM_RUNLIMIT", "job killed: walltime", ": this job is timed-out"),
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO PREEMPTION|TERM_PREEMPT"
        r"|(?:WARNING [^|]{0,60})?Caught signal SIG\w+ on \S+: this job is preempted",
        Outcome.PREEMPTED,
        "another job took its place",
        "Slurm, LSF, submitit",
        "use another partition or QOS",
        words=(" DUE TO PREEMPTION", "TERM_PREEMPT", ": this job is preempted"),
    ),
    signature(
        r"CANCELLED AT \S+ DUE TO NODE FAIL|error: Node failure on|\bNODE_FAIL\b"
        r"|error: Task launch for \S+ failed on node|\b(?:ORTE|PRTE) has lost communication with a remote daemon",
        Outcome.CRASHED,
        "a node failed",
        "Slurm, MPI",
        "nothing: the node is excluded",
        words=(
            *(" DUE TO NODE FAIL", "NODE_FAIL", "error: Node failure on", "error: Task launch for "),
            "has lost communication",
        ),
    ),
    signature(
        r"[Dd]etected [0-9]+ oom[-_]kill event|: Out Of Memory\s*$|TERM_MEMLIMIT|DefaultCPUAllocator: can't allocate"
        r"|Memory cgroup out of memory|Out of memory: Kill(?:ed)? process|\boom-kill:|\bOOMKilled\b"
        r"|Exceeded (?:job|step) memory limit|exceeded memory limit \([0-9]|job killed: mem |low on resource: memory"
        r"|ray\.exceptions\.OutOfMemoryError: |which exceeds the memory usage threshold of [0-9.]+\. Ray killed"
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
            "Exceeded step memory limit",
            "exceeded memory limit (",
            "job killed: mem ",
            "low on resource: memory",
            "Memory cgroup out of memory",
            "Ray killed",
            "ray.exceptions.OutOfMemoryError",
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
        r"No space left on device|Disk quota exceeded|Errno 122\b|low on resource: ephemeral-storage",
        Outcome.CRASHED,
        DISK_FULL,
        "Python",
        "free space, or let caches and checkpoints go elsewhere",
        passing=True,
        words=("Disk quota exceeded", "Errno 122", "No space left on device", "low on resource: ephemeral-storage"),
    ),
    signature(
        r"\bGatedRepoError\b|trying to access a gated repo|\b40[13] (?:Client Error|Forbidden)|Invalid user token"
        r"|Access to model [^|]{0,200}? is restricted"
        r"|wandb: ERROR [^:]{0,200}?[Aa]pi[ _]key|\bapi_key not configured|\bPermissionError: "
        r"|AuthenticationError\b|AccessDenied\b|\bNoCredentialsError\b"
        r"|you do not have permission to access the requested resource",
        Outcome.CRASHED,
        "access was denied",
        "Hugging Face Hub, wandb, object stores",
        "give the job its token and permissions, or switch the service off",
        passing=True,
        words=(
            " Client Error",
            " Forbidden",
            "Access to model ",
            "AccessDenied",
            "NoCredentialsError",
            "AuthenticationError",
            "GatedRepoError",
            "access a gated repo",
            "api_key not configured",
            "do not have permission to access",
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
        r"|\b(?:httpx|httpcore)\.Connect(?:Error|Timeout)\b|Couldn't reach '[^']{1,200}' on the Hub"
        r"|\b(?:requests|urllib3)\.exceptions\.\w{0,40}(?:Time[Oo]ut|Connection)\w{0,20}: "
        r"|\bbotocore\.exceptions\.\w{0,40}(?:Connection|Timeout)Error: |\bexceptions\.ServiceUnavailable: "
        r"|\b(?:429 Client|5[0-9][0-9] Server) Error: [^|]{0,80}? for url: ",
        Outcome.CRASHED,
        "a download failed",
        "Hugging Face Hub, requests",
        "download models and data before the study: nodes may lack access to the internet",
        passing=True,
        words=(
            "LocalEntryNotFoundError: ",
            "429 Client Error: ",
            " Server Error: ",
            "ConnectError",
            "ConnectTimeout",
            "Couldn't reach '",
            "botocore.exceptions.",
            "exceptions.ServiceUnavailable: ",
            "requests.exceptions.",
            "urllib3.exceptions.",
            "Max retries exceeded with url",
            "We couldn't connect to 'https://",
        ),
    ),
    signature(
        r"\bpyxis: (?:container start failed|couldn't (?:start container|mkdir)|failed to import|\w+ \w+ failed)"
        r"|required plugin spank_\w+\.so: \w+\(\) failed"
        r"|^FATAL: {1,8}(?:Unable to handle|[Ww]hile |container creation failed|could not open image)"
        r"|docker: Error response from daemon",
        Outcome.CRASHED,
        "the container was not started",
        "pyxis, Apptainer, Docker",
        "correct the image in the site profile or in --command, and start it once by hand on a node",
        words=("FATAL: ", "docker: Error response", "pyxis: ", "required plugin spank_"),
    ),
    signature(
        r"can't open file '[^']{1,400}'|^(?!(?:/bin/)?sh: )[^|]{1,400}: command not found\s*$"
        r"|execve\(\): [^|]{1,400}: No such file"
        r"|cannot execute binary file|^(?!(?:/bin/)?sh: )\S{1,400}: [0-9]{1,6}: \S{1,400}: not found\s*$"
        r"|executable file not found in \$PATH|^EnvironmentNameNotFound: "
        r"|can't find '__main__' module",
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
        ),
    ),
    signature(
        r"^\S{1,200}: (?:No module named \S|Error while finding module specification for )"
        r"|^\S{1,200}: error while loading shared libraries: ",
        Outcome.CRASHED,
        "a dependency is missing",
        "Python, Linux",
        words=("Error while finding module specification", "No module named ", "error while loading shared libraries"),
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
        r"(?:srun|sbatch|salloc): (?:fatal: |error: (?:Unable to allocate resources|Batch job submission failed"
        r"|Application launch failed|Unable to create step|Job allocation|[Tt]ask \S{1,40} launch failed))",
        Outcome.CRASHED,
        "Slurm refused the job",
        "Slurm",
        "correct the partition, account and options of the site profile; `sinfo` shows what the nodes have",
        words=(
            *("error: Application launch failed", "error: Batch job submission failed", "error: Job allocation"),
            *(
                "error: Unable to allocate resources",
                "error: Unable to create step",
                "salloc: fatal: ",
                "sbatch: fatal: ",
                "srun: fatal: ",
            ),
            " launch failed: ",
        ),
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
    # A shell goes on after them.
    signature(
        r"^\S{1,200}: line [0-9]+: [^:|]{1,200}: (?:Permission denied|No such file or directory|bad interpreter)"
        r"|^(?:ba)?sh: [^:|]{1,200}: (?:Permission denied|No such file or directory)"
        r"|^Lmod has detected the following error: |\bUnable to locate a modulefile for ",
        Outcome.CRASHED,
        "a program or file is missing",
        "bash",
        weight=REPORT,
        passing=True,
        words=(": Permission denied", ": No such file", ": bad interpreter", "Lmod has", "locate a modulefile"),
    ),
    signature(
        r"^\S{1,200}: line [0-9]+: (?:[^:|]{1,200}: unbound variable|syntax error)",
        Outcome.CRASHED,
        "the job's script failed",
        "bash",
        "run the script once by hand, with `bash -x`",
        weight=REPORT,
        passing=True,
        words=(": syntax error", ": unbound variable"),
    ),
    signature(
        r"CANCELLED AT \S+|STEPD TERMINATED ON |[Jj]ob allocation [0-9]+ has been revoked"
        r"|Force Terminated (?:job|Step)",
        Outcome.CANCELLED,
        "the job was cancelled",
        "Slurm",
        weight=REPORT,
        words=("CANCELLED AT ", "Force Terminated ", "STEPD TERMINATED ON ", "ob allocation "),
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
    *DEATH_SIGNATURES,
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
