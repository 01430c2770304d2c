"""Shared memory that was too small, and bus errors, which it causes."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "bus": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\nBus error (core dumped)",
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error",
    ),
    "data loader bus error": (
        'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory. Please try to raise your shared memory limit.',
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error",
    ),
    "data loader, shared memory": (
        'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: DataLoader worker (pid 3867) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory. Please try to raise your shared memory limit.',
        "CRASHED",
        "a bus error: often too little shared memory",
        "",
    ),
    "bus error, torch 2.0": (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 5620 closing signal SIGTERM\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -7) local_rank: 1 (pid: 5621) of binary: /usr/bin/python3.10",
        "CRASHED",
        "a rank crashed with a bus error",
        "ERROR:torch",
    ),
    "composer -7, thread": (
        "Building trainer...\nERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.",
        "CRASHED",
        "a rank crashed with a bus error",
        "ERROR:composer.cli.launcher:Rank 2 crash",
    ),
    "shm nccl": (
        "host:12:34 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-Vi3PXY to 9637892 bytes, error: No space left on device (28)",
        "CRASHED",
        "too little shared memory",
        "host:12:34 [0] misc/shmutils.cc:72 NCCL ",
    ),
    "shared memory, write": (
        "RuntimeError: unable to write to file </torch_4242_1234_0>: No space left on device (28)",
        "CRASHED",
        "too little shared memory",
        "RuntimeError: unable to write to file </",
    ),
    "shared memory, map": (
        "RuntimeError: unable to mmap 1048576 bytes from file </torch_4242_1234_0>: Cannot allocate memory (12)",
        "CRASHED",
        "too little shared memory",
        "RuntimeError: unable to mmap 1048576 byt",
    ),
    "neox -7": (
        "[2023-05-18 02:58:46,147] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 1234\n[2023-05-18 02:58:46,147] [ERROR] [launch.py:324:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=1', '--megatron_config', 'eyJ0'] exits with return code = -7",
        "CRASHED",
        "a rank crashed with a bus error",
        "[2023-05-18 02:58:46,147] [ERROR] [launc",
    ),
    "srun bus": (
        "srun: error: node12: task 5: Bus error\nsrun: Terminating StepId=77.0\nslurmstepd: error: *** STEP 77.0 ON node11 CANCELLED AT 2026-02-03T03:04:05 ***\nsrun: error: node11: tasks 0-4,6-7: Terminated",
        "CRASHED",
        "a bus error: often too little shared memory",
        "srun: error: node12: task 5: Bus error",
    ),
    "bus worker": (
        'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: DataLoader worker (pid 4321) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory. Please try to raise your shared memory limit.',
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error encountered ",
    ),
    "sigbus at every rank": (
        "[E] 2024-01-16 18:04:01 torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -7) local_rank: 0 (pid: 16609) of binary: /opt/bin/python\n============================================================\nsrc/train_bash.py FAILED\n------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-01-16_18:04:01\n  host      : node-1\n  rank      : 0 (local_rank: 0)\n  exitcode  : -7 (pid: 16609)\n  error_file: <N/A>\n  traceback : Signal 7 (SIGBUS) received by PID 16609\n============================================================\nsrun: error: node-1: task 0: Exited with exit code 1",
        "CRASHED",
        "a bus error: often too little shared memory",
        "traceback : Signal 7 (SIGBUS) received b",
    ),
    "mpi stderr shm": (
        '[1,0]<stdout>:Train Epoch: 1 [59520/60000 (99%)]\tLoss: 0.319679\n[1,0]<stderr>:ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[1,0]<stderr>:Traceback (most recent call last):\n[1,0]<stderr>:  File "/opt/train.py", line 779, in _try_get_data\n[1,0]<stderr>:    data = self._data_queue.get(timeout=timeout)\n[1,0]<stderr>:RuntimeError: DataLoader worker (pid(s) 372) exited unexpectedly',
        "CRASHED",
        "a bus error: often too little shared memory",
        "[1,0]<stderr>:ERROR: Unexpected bus erro",
    ),
    "composer -7": (
        "Building trainer...\nERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\nWaiting up to 30 seconds for all training processes to terminate. Press Ctrl-C to exit immediately.",
        "CRASHED",
        "a rank crashed with a bus error",
        "ERROR:composer.cli.launcher:Rank 2 crash",
    ),
    "deepspeed -7": (
        "[2023-05-18 02:59:40,948] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266\n[2023-05-18 02:59:41,100] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=1'] exits with return code = -7",
        "CRASHED",
        "a rank crashed with a bus error",
        "[2023-05-18 02:59:41,100] [ERROR] [launc",
    ),
    "shared memory of nccl": (
        "n1:1:10 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\nn1:1:10 [0] NCCL INFO include/shm.h:41 -> 2\n\nn1:1:10 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-b3d54cebe4167a34-0-2-3 (size 9637888)",
        "CRASHED",
        "too little shared memory",
        "n1:1:10 [0] include/shm.h:28 NCCL WARN C",
    ),
    "segment by way of XLA": (
        "E0604 15:08:31.101202    2210 pjrt_stream_executor_client.cc:2839] Execution of replica 0 failed: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry (may be unrelated)  'Error while creating shared memory segment /dev/shm/nccl-abc (size 31850880), error: No space left on device (28)'.",
        "CRASHED",
        "too little shared memory",
        "E0604 15:08:31.101202",
    ),
}
