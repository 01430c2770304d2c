"""Failures of the cluster's side, written after public threads that were read blind."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

TENTH_ROUND: Final = {
    "heartbeat of a JAX task": (
        "I0304 10:00:39.451247 140641718562816 trainer.py:501] Training: step 198\n"
        "2026-03-04 10:03:15.140058: E external/org_tensorflow/tensorflow/core/distributed_runtime/coordination/coordination_service.cc:954] /job:jax_worker/replica:0/task:37 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed unexpectedly. [type.googleapis.com/tensorflow.CoordinationServiceError='']",
        "CRASHED",
        "a rank failed",
        "2026-03-04 10:03:15.140058: E external",
    ),
    "JAX tasks without heartbeats": (
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:3",
        "CRASHED",
        "a rank failed",
        "jaxlib.xla_extension.XlaRuntimeError",
    ),
    "spot cluster": (
        "(bert pid=42) I 03-04 00:52:46 controller.py:100] The cluster is preempted.\n"
        "(bert pid=42) I 03-04 00:52:46 spot_state.py:99] === Recovering... ===\n"
        "(bert pid=42) E 03-04 00:53:16 backend_utils.py:998] Command failed with code 255: python3 -u -c 'from sky.skylet import job_lib, log_lib;job_lib.cancel_jobs(None)'",
        "PREEMPTED",
        "another job took its place",
        "(bert pid=42) I 03-04 00:52:46 controller.py:100]",
    ),
    "Ctrl-C under torchrun": (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 1383 closing signal SIGTERM\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1313 got signal: 2",
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "torch.distributed.elastic.multiprocessing.api.SignalException",
    ),
}
"""Of each failure its lines, its outcome, its meaning and how its evidence begins."""
