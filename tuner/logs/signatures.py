"""Signatures of failures: lines that show why a job ended, their meaning, and the remedy.

The order decides where several match one line: a GPU out of memory first, then other devices, NCCL, and reports last.
"""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.death_signatures import DEATH_SIGNATURES
from tuner.logs.device_signatures import DEVICE_SIGNATURES
from tuner.logs.launch_signatures import LAUNCH_SIGNATURES
from tuner.logs.network_signatures import NETWORK_SIGNATURES
from tuner.logs.signature import DEATH, DISK_FULL, HOST_MEMORY, LOST, NODE_FAILED, NOT_A_NUMBER, REPORT, Signature

_NOT_NUMBERS: Final = tuple(
    before + value for before in (": ", "= ", ":", "=", "'", '"', "-") for value in ("nan", "inf")
)

SIGNATURES: Final = (
    *DEVICE_SIGNATURES,
    # NCCL quotes it in its own errors.
    Signature(
        r"unable to (?:write to|mmap|open shared memory object|allocate shared memory)"
        r" [^|]{0,40}?</?torch_(?![^|]{0,200}Too many open files)"
        r"|/shm\b[^|]{0,200}No space left|No space left[^|]{0,40}/shm\b|[Ff]ailed to extend /dev/shm\b"
        r"|[Ee]rror while (?:creating|attaching to) shared memory segment",
        Outcome.CRASHED,
        "too little shared memory",
        "PyTorch, NCCL",
        "enlarge the container's /dev/shm, or use fewer data loader workers",
        words=("/shm", "shared memory", "unable to ", "ailed to extend "),
    ),
    *NETWORK_SIGNATURES,
    Signature(
        r"CANCELLED (?:AT \S+ )?DUE TO TIME LIMIT|^DUE TO TIME LIMIT \*|TERM_RUNLIMIT|job killed: walltime"
        r"|[Ss]tate(?:=|: )TIMEOUT\b|\bTIMEOUT {1,12}[0-9]{1,3}:[0-9]{1,3}\s*$"
        r"|^timeout: sending signal \w+ to command|\bMaxRuntimeExceeded\b"
        r"|(?:WARNING\b[^|]{0,60})?Caught signal SIG\w+ on \S+: this job is timed-out",
        Outcome.TIMED_OUT,
        "the job reached its time limit",
        "Slurm, LSF, PBS, submitit, timeout, SageMaker",
        "set a longer time limit, for a study in the site profile",
        words=(
            *("DUE TO TIME LIMIT", "TERM_RUNLIMIT", "job killed: walltime", ": this job is timed-out"),
            *("MaxRuntimeExceeded", "tate: TIMEOUT", "tate=TIMEOUT", " TIMEOUT ", "timeout: sending signal "),
        ),
    ),
    Signature(
        r"CANCELLED AT \S+ DUE TO PREEMPTION|TERM_PREEMPT|[Ss]tate(?:=|: )PREEMPTED\b"
        r"|\bPreempted (?:by \S{1,100}(?: \S{1,100})? on node |to accommodate a workload )"
        r"|(?:WARNING\b[^|]{0,60})?Caught signal SIG\w+ on \S+: this job is preempted|\] The cluster is preempted\b"
        r"|\b[Tt]ermination is imminent\b|\b[Ss]pot(?: [Ii]nstance)? [Ii]nterruption [Nn]otice\b",
        Outcome.PREEMPTED,
        "the job was preempted",
        "Slurm, LSF, submitit, Kubernetes, SkyPilot, Google Cloud",
        "use another partition or QOS",
        words=(
            *(" DUE TO PREEMPTION", "TERM_PREEMPT", ": this job is preempted", "tate: PREEMPTED", "tate=PREEMPTED"),
            *("Preempted by ", "Preempted to accommodate", "The cluster is preempted"),
            *("ermination is imminent", "nterruption notice", "nterruption Notice"),
        ),
    ),
    Signature(
        r"CANCELLED AT \S+ DUE TO NODE FAIL|error: Node failure on|\bNODE_FAIL\b"
        r"|error: Task launch for \S+ failed on node(?![^|]{0,200}bind request)|\b(?:ORTE"
        r"|PRTE) has lost communication with a remote daemon"
        r"|[Aa]borting, io error with slurmstepd on node| UNCORRECTABLE MEMORY ERROR AT "
        r"|has been marked dead because the detector has missed too many heartbeats"
        r"|terminated in response to imminent node shutdown",
        Outcome.CRASHED,
        NODE_FAILED,
        "Slurm, MPI, Ray, Kubernetes",
        "run again without the node; a study under Slurm excludes it",
        words=(
            *(" DUE TO NODE FAIL", "NODE_FAIL", "error: Node failure on", "error: Task launch for "),
            "has lost communication",
            *("io error with slurmstepd", "UNCORRECTABLE MEMORY ERROR", "missed too many heartbeats"),
            "imminent node shutdown",
        ),
    ),
    # The node's own failure may be printed below.
    Signature(
        r"[Tt]he actor (?:is dead|died) because its node has died",
        Outcome.CRASHED,
        NODE_FAILED,
        "Ray",
        "run again without the node; a study under Slurm excludes it",
        weight=LOST,
        passing=True,
        words=("because its node has died",),
    ),
    Signature(
        r"\bTask /job:\S{1,100} heartbeat timeout\b|\btasks? (?:is|are) unhealthy \(stopped sending heartbeats\)",
        Outcome.CRASHED,
        "a rank failed",
        "JAX",
        weight=LOST,
        passing=True,
        words=(" heartbeat timeout", "stopped sending heartbeats"),
    ),
    Signature(
        r"\bthe actor's node was preempted\b",
        Outcome.PREEMPTED,
        "the job was preempted",
        "Ray",
        passing=True,
        words=("actor's node was preempted",),
    ),
    Signature(
        r"[Dd]etected [0-9]+ oom[-_]kill event|: Out Of Memory\s*$|TERM_MEMLIMIT|DefaultCPUAllocator: can't allocate"
        r"|Memory cgroup out of memory|Out of memory: Kill(?:ed)? process|\boom-kill:|\bOOMKilled\b"
        r"|[Ss]tate(?:=|: )OUT_OF_MEMORY\b|\bOUT_OF_ME\+|Exceeded (?:job|step) memory limit"
        r"|exceeded memory limit \([0-9]|memory allocation of [0-9]+ bytes failed\s*$"
        r"|job killed: mem |low on resource: memory"
        r"|ray\.exceptions\.OutOfMemoryError: |which exceeds the memory usage threshold of [0-9.]+\. Ray killed"
        r"|DefaultCPUAllocator: not enough memory|DataLoader worker \(pid[^)]{0,80}\) is killed by signal: Killed",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Slurm, Linux, Rust",
        "request more host memory, or use fewer data loader workers",
        words=(
            ": Out Of Memory",
            "DataLoader worker (pid",
            "DefaultCPUAllocator: can't allocate",
            "DefaultCPUAllocator: not enough memory",
            "Exceeded job memory limit",
            "Exceeded step memory limit",
            *("exceeded memory limit (", " bytes failed"),
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
            " OUT_OF_ME+",
            "tate: OUT_OF_MEMORY",
            "tate=OUT_OF_MEMORY",
        ),
    ),
    Signature(
        r"\b[1-9][0-9]* Workers \([^()]{1,40}\) killed due to memory pressure"
        r"|\bhow to address the out of memory issue: https://docs\.ray",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Ray",
        "request more host memory, or use fewer data loader workers",
        passing=True,
        words=(" killed due to memory pressure", "how to address the out of memory issue"),
    ),
    Signature(
        r"^worker: the loss of iteration [0-9]+ is |found (?:NaN|Inf|nan|inf) in local|Unexpected result (?:nan"
        r"|inf)\b"
        r"|[Ll]oss is (?:nan|NaN|inf),? (?:stopping|exiting|abort)|loss contains a NaN"
        r"|loss returned in `training_step` is -?(?:nan|inf)|(?:WARNING: )?[Nn]on-finite loss,? (?:ending|stopping)"
        r"|gradients from `parameters` is non-finite",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "Megatron-LM, Composer, Lightning, tuner's worker",
        "lower the learning rate; in fp16, use bf16",
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
    Signature(
        # HF Trainer logs a loss of 0 for such steps.
        r"\b(?:train_)?loss(?: |['\"]?[:=] ?['\"]?)-?(?:nan|inf)\b|'loss': '?0(?:\.0)?'?, 'grad_norm': '?nan\b",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "HF Trainer, torchtitan, lit-llama",
        "lower the learning rate; in fp16, use bf16",
        weight=REPORT,
        passing=True,
        words=(*_NOT_NUMBERS, "loss nan", "loss inf"),
    ),
    Signature(
        r"loss scale already at minimum|[Ll]oss scale (?:has )?reached (?:the )?minimum|Minimum loss scale reached",
        Outcome.CRASHED,
        "the loss scale is at its minimum",
        "DeepSpeed, fairseq",
        "the gradients are not finite: use bf16 or a lower learning rate",
        words=("oss scale ",),
    ),
    Signature(
        r"^worker: rank [0-9]+ was killed by signal 9\b",
        Outcome.CRASHED,
        "a rank was killed (SIGKILL)",
        "tuner's worker",
        weight=DEATH,
        words=(" was killed by signal 9",),
    ),
    Signature(
        r"^worker: rank [0-9]+ was killed by signal",
        Outcome.CRASHED,
        "a rank was killed by a signal",
        "tuner's worker",
        weight=DEATH,
        words=(" was killed by signal",),
    ),
    Signature(
        r"^worker: rank [0-9]+ failed with exit code",
        Outcome.CRASHED,
        "a rank failed",
        "tuner's worker",
        weight=REPORT,
        words=(" failed with exit code",),
    ),
    Signature(
        r"^worker: ", Outcome.CRASHED, "the worker refused the assignment", "tuner's worker", words=("worker: ",)
    ),
    Signature(
        r"(?:^|[\]:]\s*)(?:[A-Za-z_]\w*\.)*(?:_Array)?MemoryError(?::|\s*$)|\bstd::bad_alloc\b"
        r"|Cannot allocate memory",
        Outcome.CRASHED,
        HOST_MEMORY,
        "Python, C++",
        "request more host memory, or use fewer data loader workers",
        words=("Cannot allocate memory", "MemoryError", "std::bad_alloc"),
    ),
    Signature(
        r"(?<!create user namespace: )No space left on device|Disk quota exceeded|Errno 122\b"
        r"|low on resource: ephemeral-storage|ephemeral local storage usage exceeds|Insufficient disk space",
        Outcome.CRASHED,
        DISK_FULL,
        "Python",
        "free space, or move caches and checkpoints elsewhere",
        passing=True,
        words=(
            *("Disk quota exceeded", "Errno 122", "Insufficient disk space", "No space left on device"),
            *("low on resource: ephemeral-storage", "ephemeral local storage usage"),
        ),
    ),
    Signature(
        r"\bGatedRepoError\b|trying to access a gated repo|\b40[13] (?:Client Error|Forbidden)|Invalid user token"
        r"|Access to model [^|]{0,200}? is restricted"
        r"|wandb: ERROR [^:]{0,200}?[Aa]pi[ _]key|\bapi_key not configured|\bPermissionError: "
        r"|Errno 30\b|execve\(\): [^|]{1,400}: Permission denied"
        r"|AuthenticationError\b|AccessDenied\b|\bNoCredentialsError\b"
        r"|\bdo(?:es)? not have (?:[\w.]{1,60} )?(?:access|permissions?)\b|\((?:401|403)\) when calling the "
        r"|<Response \[40[13]\]>|\bexceptions\.(?:Forbidden|Unauthorized): 40[13]\b",
        Outcome.CRASHED,
        "access was denied",
        "Hugging Face Hub, wandb, object stores",
        "give the job its token and permissions, or disable the service",
        passing=True,
        words=(
            " Client Error",
            " Forbidden",
            "Access to model ",
            "AccessDenied",
            "NoCredentialsError",
            "AuthenticationError",
            "Errno 30",
            "execve(): ",
            "GatedRepoError",
            "access a gated repo",
            "api_key not configured",
            " not have ",
            " when calling the ",
            "<Response [40",
            "exceptions.Forbidden",
            "exceptions.Unauthorized",
            "Invalid user token",
            "PermissionError: ",
            "wandb: ERROR ",
        ),
    ),
    Signature(
        r"^(?:\S+: )?error: (?:unrecognized arguments|argument -|the following arguments are required)"
        r"|: error: (?:unrecognized arguments|argument -|(?:the following|one of the) arguments\b)"
        r"|[Ss]ome (?:specified arguments|keys) are not used by the HfArgumentParser|Could not override '"
        r"|\bExtra inputs are not permitted\b|ConfigAttributeError|\bMissing mandatory value: "
        r"|^(?:In '[^']{1,80}': )?Could not (?:find|load) '\S"
        r"|^Cannot find primary config '|ERROR: Could not consume arg: |Error parsing -|error: Parser key \""
        r"|\bUnrecognized (?:options|arguments): -|error: ambiguous option: -|ValueError: Unknown config key: "
        r"|(?:^Error: |^│ )(?:No such option:? -|(?:Missing (?:option|argument)|Invalid value for) '"
        r"|Got unexpected extra argument|The following arguments are required)|Unknown command line flag '",
        Outcome.CRASHED,
        "the trainer refused its arguments",
        "argparse, jsonargparse, Hydra, tyro, Click, Typer, Abseil, nanoGPT",
        "correct --command; its fields in braces are listed in docs/local.md",
        words=(
            "ConfigAttributeError",
            "Extra inputs are not permitted",
            "Cannot find primary config '",
            "Could not consume arg: ",
            "Could not find '",
            "Could not load '",
            "Could not override '",
            "Error parsing -",
            "Got unexpected extra argument",
            "Invalid value for '",
            "Missing argument '",
            "Missing mandatory value: ",
            "Missing option '",
            "error: Parser key ",
            "No such option",
            "are not used by the HfArgumentParser",
            "Unknown command line flag '",
            "Unknown config key: ",
            "Unrecognized arguments: -",
            "Unrecognized options: -",
            "ambiguous option: -",
            "argument -",
            "he following arguments are required",
            "one of the arguments ",
            "unrecognized arguments",
        ),
    ),
    Signature(
        r"Error: We couldn't connect to 'https://|\bLocalEntryNotFoundError: "
        r"|(?:ConnectionError|SSLError|ProxyError|ConnectTimeout): [^|]{0,200}?Max retries exceeded with url"
        r"|\b(?:httpx|httpcore)\.Connect(?:Error|Timeout)\b|Couldn't reach '[^']{1,200}' on the Hub"
        r"|\b(?:requests|urllib3)\.exceptions\.\w{0,40}(?:Time[Oo]ut|Connection)\w{0,20}: "
        r"|\bbotocore\.exceptions\.\w{0,40}(?:Connection|Timeout)Error: |\bexceptions\.ServiceUnavailable: "
        r"|\bOfflineModeIsEnabled: "
        r"|\b(?:429 Client|5[0-9][0-9] Server) Error: [^|]{0,80}? for url: ",
        Outcome.CRASHED,
        "a download failed",
        "Hugging Face Hub, requests",
        "download models and data before the study: nodes may have no internet access",
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
            "OfflineModeIsEnabled: ",
            "requests.exceptions.",
            "urllib3.exceptions.",
            "Max retries exceeded with url",
            "We couldn't connect to 'https://",
        ),
    ),
    Signature(
        r"wandb: ERROR (?:Run initialization has timed out|Error communicating with wandb process)\b"
        r"|\bwandb\.errors\.\w{0,20}CommError: ",
        Outcome.CRASHED,
        "the experiment tracker could not be reached",
        "wandb",
        "set WANDB_MODE=offline if the nodes have no access to it",
        passing=True,
        words=("wandb: ERROR ", "CommError: "),
    ),
    *LAUNCH_SIGNATURES,
    *DEATH_SIGNATURES,
)

NOT_TOPOLOGICAL: Final = frozenset(
    {
        *("no usable GPU", "a port is in use", DISK_FULL, "access was denied", "the trainer refused its arguments"),
        *("a download failed", "the container could not be started", "a node could not be reached"),
        "the experiment tracker could not be reached",
        "an extension could not be compiled",
        *(
            "a program or file is missing",
            "a dependency is missing",
            "a file is missing",
            "the ranks could not find each other",
        ),
    }
)
"""Meanings of failures that no other topology cures."""

REMEDIES: Final = {one.meaning: one.remedy for one in SIGNATURES if one.remedy} | {
    "a dependency is missing": "install it for the Python that --command runs",
    "it could not start": "correct what the message names; --command begins with a program that is executable here",
    "a file is missing": "correct the path; jobs run in the directory in which tuner was started",
}
"""The remedy for a failure, by its meaning."""

SEE_LOGS: Final = "read stderr.log and stdout.log in the job's folder"
"""The remedy for any other failure."""
