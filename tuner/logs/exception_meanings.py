"""Meanings of the last line of a traceback, by the exception and its message."""

from __future__ import annotations

import re
from typing import Final

from tuner.logs.signature import DISK_FULL, HOST_MEMORY, NCCL, NOT_A_NUMBER

FOLLOWED: Final = re.compile(
    r"^Exception:?\s*$|ProcessRaisedException|ChildFailedError|CheckpointException ranks:|and exception:\s*$"
    r"|SignalException|CalledProcessError|SystemExit|UncompletedJobError|FailedJobError"
    r"|remote process (?:has )?exited|\bexited with non-zero status [1-9]"
    r"|Connection (?:closed by|reset by) (?:remote )?peer|Broken pipe|Socket closed|failed to recv, got 0 bytes"
    r"|^ray\.exceptions\.(?:Actor(?:Died|Unavailable)|RayActor|WorkerCrashed|OwnerDied|NodeDied"
    r"|LocalRayletDied)Error\b"
)
"""Exceptions of a process that only reports how another one ended."""
LOST_PEER: Final = re.compile(
    r"exited unexpectedly|abruptly died|terminated abruptly|unexpectedly terminated|Connection was likely closed"
    r"|: Caught \w{1,80} in (?:DataLoader worker process|replica|pin memory thread)\b"
)
"""Exceptions of a process whose worker or peer ended; another line may show the reason."""
WAITED: Final = re.compile(
    r"^(?!.*(?:HTTPS?Connection|https?://|Errno 110|TimeoutExpired|Request timed out"
    r"|\b(?:urllib3|requests|httpx|aiohttp|botocore|wandb)\.))"
    r".*(?:timed out|\b(?:socket|wait) timeout\b|\btimeout expired\b)",
    re.IGNORECASE,
)
"""Timeouts of waiting for other ranks, not for a server or a file system."""
MEANINGS: Final = (
    (
        re.compile(
            r"^(?:ModuleNotFound|Import)Error\b|^RuntimeError: Failed to import |undefined symbol: "
            r"|cannot open shared object file|\b(?:PackageNotFoundError|DistributionNotFound|VersionConflict)\b"
            r"|may indicate binary incompatibility|package doesn't have NCCL built in|\b[Pp]lease install\b"
            r"|\bpip3? install\b|\b(?:is|are|'\w{1,40}') not installed\b"
            r"|\b(?:required to use|requires \S+ to be installed)"
        ),
        "a dependency is missing",
    ),
    (
        re.compile(
            r"^FileNotFoundError\b|No such file or directory|\b(?:Dataset|Data[Ff]iles)NotFoundError\b"
            r"|does not appear to have a file named|is not a valid model identifier|^[\w.]*HFValidationError: Repo id"
            r"|^OSError: (?:Can't load|Incorrect path_or_model_id)"
            r"|^ValueError: Couldn't instantiate the backend tokenizer"
        ),
        "a file is missing",
    ),
    (re.compile(r"failed writing file"), DISK_FULL),
    (
        re.compile(
            r"\b(?:[Nn]a[Nn]|NAN)s?(?: or [Ii]nf)?(?: values?)? (?:encountered|detected|found)\b"
            r"|\b(?:[Ll]oss|[Gg]rad(?:ient)?s?|[Nn]orm|[Ll]ogits|[Aa]ctivations)\b[^|]{0,60}?"
            r"\b(?:[Nn]a[Nn]s?|NAN|nans?|inf|Inf|INF|infinite|infinity|(?:non-?|not )finite)\b"
            r"|\b(?:[Nn]a[Nn]s?|NAN|nans?|[Ii]nfinite|(?:[Nn]on-?|[Nn]ot )finite)\b[^|]{0,60}?"
            r"\b(?:[Ll]oss(?:es)?|[Gg]rad(?:ient)?s?|[Gg]rad_norm|[Ll]ogits|[Aa]ctivations)\b"
            r"|' returned nan values in its |probability tensor contains either "
            r"|^FloatingPointError: invalid value \(nan\)"
        ),
        NOT_A_NUMBER,
    ),
    (re.compile(r"^(?:[\w.]*\.)?_?(?:Array)?MemoryError\b|Cannot allocate memory"), HOST_MEMORY),
    (
        re.compile(
            r"DeepSpeedConfigError|\bValidationError: .{0,40} for DeepSpeed|Check batch related parameters"
            r"|we were given deepspeed configs in|^AssertionError: .*ZeRO"
            r"|(?:[Bb]atch size|accumulation steps)[^|]{0,40} has to be greater than 0"
        ),
        "DeepSpeed refused the configuration",
    ),
    (
        re.compile(
            r"\bValidationError: [0-9]+ validation errors? for |^(?:omegaconf|hydra)\.\w*(?:errors|exceptions)\."
            r"|not used by the HfArgumentParser|^ValueError: (?:remaining_argv: |Got unknown keys)"
        ),
        "the trainer refused its arguments",
    ),
    (re.compile(r"NCCL(?!_)|\bnccl(?!_)|DistBackendError|[Gg]loo\b|\boneCCL: |\bHCCL error in: "), NCCL),
)
"""Meanings of exceptions, by pattern of the last line of a traceback."""
