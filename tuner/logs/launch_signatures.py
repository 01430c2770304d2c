"""Signatures of jobs that did not start: Slurm, containers, shells, programs that are missing; and of Slurm's ends."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import DEATH, KILLED, REPORT, Signature

LAUNCH_SIGNATURES: Final = (
    Signature(
        r"\bpyxis: {1,8}(?:enroot-[\w-]{1,40}: failed |\[ERROR\] )"
        r"|\bpyxis: (?:couldn't mkdir|failed to import|(?!container start)\w+ \w+ failed)"
        r"|^FATAL: {1,8}(?:Unable to handle|[Ww]hile |container creation failed|could not open image)"
        r"|docker: Error response from daemon|\bErrImagePull\b|\bImagePullBackOff\b|Failed to pull image "
        r"|\b(?:OCI runtime|crun: |nvidia-container-cli: )"
        r"(?![^|]{0,400}executable file not found)[^|]{0,200}?(?:error|failed|cannot|not found)",
        Outcome.CRASHED,
        "the container could not be started",
        "pyxis, Apptainer, Docker, Kubernetes",
        "correct the image in the site profile or in --command, and start it once by hand on a node",
        words=(
            *("FATAL: ", "docker: Error response", "pyxis: ", "ErrImagePull", "ImagePullBackOff"),
            *("Failed to pull image ", "OCI runtime", "crun: ", "nvidia-container-cli: "),
        ),
    ),
    # enroot's own output may be printed below.
    Signature(
        r"\bpyxis: (?:container start failed|couldn't start container)|required plugin spank_\w+\.so: \w+\(\) failed",
        Outcome.CRASHED,
        "the container could not be started",
        "pyxis",
        weight=DEATH,
        words=("pyxis: ", "required plugin spank_"),
    ),
    Signature(
        r"can't open file '[^']{1,400}'|^(?!(?:/bin/)?sh: )[^|]{1,400}: command not found\s*$"
        r"|execve\(\): [^|]{1,400}: No such file"
        r"|cannot execute binary file|^(?!(?:/bin/)?sh: )\S{1,400}: [0-9]{1,6}: \S{1,400}: not found\s*$"
        r"|executable file not found in \$PATH|^EnvironmentNameNotFound: |\bexec format error\b"
        r"|^(?:/usr/bin/)?env: \S{1,200}: No such file or directory"
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
            "exec format error",
        ),
    ),
    Signature(
        r"^\S{1,200}: (?:No module named \S|Error while finding module specification for )"
        r"|^\S{1,200}: error while loading shared libraries: |\bMKL FATAL ERROR: Cannot load "
        r"|: version [`']\w{1,20}_[0-9.]{1,12}' not found \(required by ",
        Outcome.CRASHED,
        "a dependency is missing",
        "Python, Linux",
        words=(
            *("Error while finding module specification", "No module named ", "error while loading shared libraries"),
            *("MKL FATAL ERROR: ", "' not found (required by "),
        ),
    ),
    # The script may continue with what is installed.
    Signature(
        r"^ERROR: (?:No matching distribution found for |Could not find a version that satisfies )"
        r"|No solution found when resolving dependencies|^error: Failed to (?:fetch|download)\b",
        Outcome.CRASHED,
        "a dependency is missing",
        "pip, uv",
        weight=REPORT,
        passing=True,
        words=(
            *("No matching distribution found", "Could not find a version", "No solution found when resolving"),
            *("error: Failed to fetch", "error: Failed to download"),
        ),
    ),
    # Libraries probe for nvcc and others in this way, and continue without them.
    Signature(
        r"^(?:/bin/)?sh: [^|]{1,400}: (?:command )?not found\s*$",
        Outcome.CRASHED,
        "a program or file is missing",
        "sh",
        weight=REPORT,
        passing=True,
        words=(": command not found", ": not found"),
    ),
    Signature(
        r"\b(?:sbatch|salloc): error: |\b(?:srun|sbatch|salloc): (?:fatal: |(?:unrecognized|invalid) option\b"
        r"|error: (?:Unable to (?:allocate|create|confirm)(?![^|]{0,100}already complet)"
        r"|Batch job submission failed|Application launch failed|Job allocation|[Tt]ask \S{1,40} launch failed"
        r"|[Ii]nvalid |CPU binding outside |Task launch for [^|]{1,200}bind request|MPI: |[Cc]annot find "
        r"|Couldn't find |Memory specification|QOS\w+Limit|AssocGrp\w+))",
        Outcome.CRASHED,
        "Slurm refused the job",
        "Slurm",
        "correct the partition, account and options of the site profile; `sinfo` shows what the nodes have",
        passing=True,
        words=(
            *(
                "srun: fatal: ",
                "sbatch: fatal: ",
                "salloc: fatal: ",
                "srun: error: ",
                "sbatch: error: ",
                "salloc: error: ",
            ),
            *("srun: unrecognized option", "sbatch: unrecognized option", "salloc: unrecognized option"),
            *("srun: invalid option", "sbatch: invalid option", "salloc: invalid option"),
        ),
    ),
    Signature(
        r"^There are not enough slots available in the system|\bmpirun was unable to (?:launch|find|start) ",
        Outcome.CRASHED,
        "mpirun refused the job",
        "mpirun",
        "give it a slot for each rank (-H, --hostfile), and the path of a program",
        words=("There are not enough slots", "mpirun was unable to "),
    ),
    Signature(
        r"^Failed to initialize NVML: |^No devices were found\s*$|\bInsufficient (?:nvidia|amd)\.com/gpu",
        Outcome.CRASHED,
        "no usable GPU",
        "nvidia-smi, Kubernetes",
        weight=REPORT,
        passing=True,
        words=("Failed to initialize NVML: ", "No devices were found", ".com/gpu"),
    ),
    # Megatron-DeepSpeed continues with None.
    Signature(
        r"^Dataset does not exist: ",
        Outcome.CRASHED,
        "a file is missing",
        "Megatron-LM",
        words=("Dataset does not exist: ",),
    ),
    # A shell continues after these; whatever needs an environment that was not activated fails by itself.
    Signature(
        r"^\S{1,200}: line [0-9]+: (?!activate: )[^:|]{1,200}: "
        r"(?:Permission denied|No such file or directory|bad interpreter)"
        r"|^(?:ba)?sh: [^:|]{1,200}: (?:Permission denied|No such file or directory)"
        r"|^Lmod has detected the following error: |\bUnable to locate a modulefile for ",
        Outcome.CRASHED,
        "a program or file is missing",
        "bash",
        weight=REPORT,
        passing=True,
        words=(": Permission denied", ": No such file", ": bad interpreter", "Lmod has", "locate a modulefile"),
    ),
    Signature(
        r"^cc1(?:plus)?: fatal error: |^nvcc fatal {1,4}: |^ninja: build stopped: ",
        Outcome.CRASHED,
        "an extension could not be compiled",
        "gcc, nvcc, ninja",
        "install the compiler and the CUDA toolkit that torch was built with, or extensions that are built already",
        weight=REPORT,
        passing=True,
        words=("cc1: fatal error", "cc1plus: fatal error", "nvcc fatal ", "ninja: build stopped"),
    ),
    Signature(
        r"^\S{1,200}: line [0-9]+: (?:[^:|]{1,200}: unbound variable|syntax error)",
        Outcome.CRASHED,
        "the job's script failed",
        "bash",
        "run the script once by hand, with `bash -x`",
        weight=REPORT,
        passing=True,
        words=(": syntax error", ": unbound variable"),
    ),
    Signature(
        r"CANCELLED AT (?!\S+ DUE TO TASK FAILURE)|STEPD TERMINATED ON |[Ss]tate(?:=|: )CANCELLED\b"
        r"|^Detected KeyboardInterrupt, "
        r"|[Jj]ob allocation [0-9]+ has been revoked"
        r"|Force Terminated (?:job|Step)|\bTERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN)\b",
        Outcome.CANCELLED,
        "the job was cancelled",
        "Slurm, LSF, Lightning",
        weight=REPORT,
        words=(
            *("CANCELLED AT ", "Force Terminated ", "STEPD TERMINATED ON ", "ob allocation "),
            *("Detected KeyboardInterrupt, ", "tate: CANCELLED", "tate=CANCELLED", "TERM_"),
        ),
    ),
    # When one task ends, srun kills the others: the first of its lines counts.
    Signature(
        r"^srun: error: [^|]{0,200}?task[s ][-0-9, ]*: Killed",
        Outcome.CRASHED,
        KILLED,
        "srun",
        "request more host memory; `dmesg` on the node names the process",
        weight=REPORT,
        words=(": Killed",),
    ),
)
