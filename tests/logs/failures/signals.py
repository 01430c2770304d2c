"""Signals that killed a rank."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "segfault": (
        "  exitcode  : -11 (pid: 4242)\n  traceback : Signal 11 (SIGSEGV) received by PID 4242",
        "CRASHED",
        "a segmentation fault",
        "traceback",
    ),
    "srun segfault": (
        "srun: error: node01: task 3: Segmentation fault (core dumped)",
        "CRASHED",
        "a segmentation fault",
        "srun",
    ),
    "segfault, torchrun": (
        "E0304 10:00:00.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 4242) of binary: /usr/bin/python\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : -11 (pid: 4242)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 4242\n",
        "CRASHED",
        "a segmentation fault",
        "traceback : Signal 11",
    ),
    "illegal instruction of the processor": (
        "./train.sh: line 3: 20121 Illegal instruction     (core dumped) python tools/train.py",
        "CRASHED",
        "a rank crashed with an illegal instruction",
        "./train.sh",
    ),
    "floating point exception": (
        "./train.sh: line 3:  1098 Floating point exception(core dumped) python train.py --batchsize=1",
        "CRASHED",
        "a rank crashed with an arithmetic error",
        "./train.sh",
    ),
    "invalid pointer": (
        "free(): invalid pointer\nAborted (core dumped)",
        "CRASHED",
        "a rank has corrupted memory",
        "free(): invalid pointer",
    ),
    "double free": (
        "*** Error in `python': double free or corruption (out): 0x0000000001db6160 ***\nAborted (core dumped)",
        "CRASHED",
        "a rank has corrupted memory",
        "*** Error in `python'",
    ),
    "segfault in ucx": (
        "[node0262:1016852:0:1020747] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n==== backtrace (tid:1020747) ====\n 0  /opt/hpcx/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4)",
        "CRASHED",
        "a segmentation fault",
        "[node0262:",
    ),
    "lightning seg": (
        "[rank: 1] Child process with PID 123456 terminated with code -11. Forcefully terminating all other processes to avoid zombies 🧟",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "[rank: 1] Child process with PID 123456 ",
    ),
    "composer -11, thread": (
        "ERROR:composer.cli.launcher:Global rank 0 (PID 208865) exited with code -11",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "ERROR:composer.cli.launcher:Global rank ",
    ),
    "docker 139": (
        "srun: error: node1: task 0: Exited with exit code 139",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "srun: error: node1: task 0: Exited with ",
    ),
    "accelerate sigsegv": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nsubprocess.CalledProcessError: Command '['/opt/python', 'train.py']' died with <Signals.SIGSEGV: 11>.",
        "CRASHED",
        "a segmentation fault",
        "subprocess.CalledProcessError: Command '",
    ),
    "status of a unit": (
        "systemd[1]: train.service: Main process exited, code=dumped, status=11/SEGV\nsystemd[1]: train.service: Failed with result 'core-dump'.",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "systemd[1]: train.service: Main process ",
    ),
    "ucx segfault": (
        "[2025-09-25 19:31:25,858] [54741] [DEBUG] [megatron.core.dist_checkpointing.strategies.state_dict_saver] rank: 36, starting state dict save\n[dgx07:54741:0:55012] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n==== backtrace (tid:  55012) ====\n 0 0x0000000000042520 __sigaction()  ???:0",
        "CRASHED",
        "a segmentation fault",
        "[dgx07:54741:0:55012] Caught signal 11 (",
    ),
    "srun segv": (
        "srun: error: node12: tasks 0-3: Segmentation fault (core dumped)",
        "CRASHED",
        "a segmentation fault",
        "srun: error: node12: tasks 0-3: Segmenta",
    ),
    "composer -11": (
        "2024-08-30 11:06:12,930: rank0[208865][MainThread]: INFO: composer.core.state: Automatically setting data_parallel_shard to have parallelization degree 8.\nGlobal rank 0 (PID 208865) exited with code -11\nERROR:composer.cli.launcher:Global rank 0 (PID 208865) exited with code -11",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "Global rank 0 (PID 208865) exited with c",
    ),
    "spawned process, signal": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV',
        "CRASHED",
        "a segmentation fault",
        "torch.multiprocessing.spawn.ProcessExite",
    ),
    "signal in other words": (
        'Magick: abort due to signal 11 (SIGSEGV) "Segmentation Fault"...\nAborted',
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "Magick: abort due to signal 11 (SIGSEGV)",
    ),
    "thread: illegal instruction in ucx": (
        "Starting training loop at iteration 0\n[n1:4242:0:4242] Caught signal 4 (Illegal instruction: illegal operand)\n==== backtrace (tid:   4242) ====\n 0  /opt/hpcx/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x15551d4a3774]\nsrun: error: n1: tasks 0-7: Exited with exit code 132",
        "CRASHED",
        "a rank crashed with an illegal instruction",
        "[n1:4242:0:4242] Caught signal 4 (Illega",
    ),
    "thread: illegal instruction by exit code": (
        "srun: error: n1: tasks 0-7: Exited with exit code 132",
        "CRASHED",
        "a rank crashed with an illegal instruction",
        "srun: error: n1: tasks 0-7: Exited with ",
    ),
    "thread: arithmetic error by exit code": (
        "E0512 17:04:53.622000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -8) local_rank: 6 (pid: 4248) of binary: /usr/bin/python3",
        "CRASHED",
        "a rank crashed with an arithmetic error",
        "E0512 17:04:53.622000 4242 torch/distrib",
    ),
    "thread: PyTorch's handler of signals": (
        "frame #3: ibv_get_async_event + 0x34 (0x7ff7386b54c4 in /lib/x86_64-linux-gnu/libibverbs.so.1)\n\nSIGSEGV(11), PID: 4242, Thread 4252: \n frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x6b (0x7ff7123b7e0b in /opt/torch/lib/libc10.so)",
        "CRASHED",
        "a rank crashed with a segmentation fault",
        "SIGSEGV(11), PID: 4242, Thread 4252:",
    ),
    "fastbin": (
        "malloc_consolidate(): unaligned fastbin chunk detected\nE0802 03:11:42.700912 2201 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 2211) of binary: python",
        "CRASHED",
        "a rank has corrupted memory",
        "malloc_consolidate(): unaligned fastbin",
    ),
    "message: worker segv": (
        "ERROR: Unexpected segmentation fault encountered in worker.",
        "CRASHED",
        "a segmentation fault",
        "ERROR: Unexpected segmentation fault enc",
    ),
    "message: worker fpe": (
        "ERROR: Unexpected floating-point exception encountered in worker.",
        "CRASHED",
        "a rank crashed with an arithmetic error",
        "ERROR: Unexpected floating-point excepti",
    ),
    "message: worker illegal": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Illegal instruction. ",
        "CRASHED",
        "a rank crashed with an illegal instruction",
        "RuntimeError: DataLoader worker (pid 424",
    ),
    "source: srun segv": (
        "srun: error: n1: task 3: Segmentation fault (core dumped)",
        "CRASHED",
        "a segmentation fault",
        "srun: error: n1: task 3: Segmentation fa",
    ),
    "submitit's level in brackets": (
        "[2026-03-04 11:50:15,215][submitit][INFO] - Job has timed out. Ran 0 minutes out of requested 2 minutes.\n[2026-03-04 11:50:15,216][submitit][WARNING] - Caught signal SIGUSR1 on node-05: this job is timed-out.\n[2026-03-04 11:50:15,256][submitit][INFO] - Job not requeued because: timed-out too many times.",
        "TIMED_OUT",
        "the job reached its time limit",
        "[2026-03-04 11:50:15,216][submitit][WARNING] - Caught signal",
    ),
    "lsf, its owner": (
        'Traceback (most recent call last):\n  File "/opt/python/subprocess.py", line 1899, in _try_wait\n    (pid, sts) = os.waitpid(self.pid, wait_flags)\nKeyboardInterrupt: \n\nTERM_OWNER: job killed by owner.\nExited with signal termination: 14.',
        "CANCELLED",
        "the job was cancelled",
        "KeyboardInterrupt:",
    ),
    "llvm cannot select": (
        "[stderr] LLVM ERROR: Cannot select: intrinsic %llvm.amdgcn.fdot2.bf16.bf16\n[stderr] ... full Python stack of every thread ...",
        "CRASHED",
        "a rank aborted",
        "[stderr] LLVM ERROR: Cannot select",
    ),
    "no step after a job was cancelled": (
        "slurmstepd: error: *** JOB 123 ON nid004208 CANCELLED AT 2023-11-13T23:43:16 ***\nsrun: error: Unable to create step for job 123: Job/step already completing or completed",
        "CANCELLED",
        "the job was cancelled",
        "slurmstepd: error: *** JOB 123",
    ),
    "a time limit in two lines": (
        "slurmstepd: error: *** JOB 123 ON gra533 CANCELLED AT 2017-07-02T16:35:48\nDUE TO TIME LIMIT ***",
        "TIMED_OUT",
        "the job reached its time limit",
        "DUE TO TIME LIMIT ***",
    ),
    "a time limit without a date": (
        "slurmstepd: error: *** JOB 9999 ON hpc CANCELLED DUE TO TIME LIMIT ***",
        "TIMED_OUT",
        "the job reached its time limit",
        "slurmstepd: error: *** JOB 9999 ON hpc CANCELLED DUE TO TIME",
    ),
}
