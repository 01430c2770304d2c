"""Failures of launchers, schedulers and clouds, written after public threads that were read blind."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

ELEVENTH_ROUND: Final = {
    "LSF's owner": (
        "wandb: Syncing run painn-3\n"
        "------------------------------------------------------------\n"
        "Job <painn_3> was submitted from host <login2> by user <u1> in cluster <dcc> at Fri Nov 24 13:56:40 2023\n"
        "TERM_OWNER: job killed by owner.\n"
        "Exited with exit code 143.",
        "CANCELLED",
        "the job was cancelled",
        "TERM_OWNER: job killed by owner.",
    ),
    "a cloud's notice": (
        "Dec 17 16:03:58Z linux-v100-gpu-4-1 start-worker 2024/12/17 16:03:58 GCP Metadata Service says termination is imminent\n"
        "Dec 17 16:04:09Z linux-v100-gpu-4-1 systemd-logind Power key pressed.",
        "PREEMPTED",
        "another job took its place",
        "Dec 17 16:03:58Z linux-v100-gpu-4-1 start-worker",
    ),
    "a monitored barrier": (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 88, in <module>\n'
        "    dist.monitored_barrier()\n"
        "RuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [Rank 0]: Ranks 3 failed to pass",
    ),
    "weights of other sizes without their exception": (
        "[rank1]: \tsize mismatch for transformer.wte.weight: copying a param with shape torch.Size([50304, 1024]) from checkpoint, the shape in current model is torch.Size([50257, 1024]).\n"
        "[rank1]: \tsize mismatch for lm_head.weight: copying a param with shape torch.Size([50304, 1024]) from checkpoint, the shape in current model is torch.Size([50257, 1024]).",
        "CRASHED",
        "an exception ended a rank",
        "[rank1]: size mismatch for transformer.wte.weight",
    ),
    "Ray's actor with a worker that died": (
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n"
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2.",
        "CRASHED",
        "a rank failed",
        "ray.exceptions.RayActorError",
    ),
}
"""Of each failure its lines, its outcome, its meaning and how its evidence begins."""
