"""Failures of launchers, networks and hosts, written after public threads that were read blind."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

NINTH_ROUND: Final = {
    "failed operations are no hang": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        "[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the entire process down.\n"
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  NCCL error: remote process exited or there was a network error, NCCL version 2.14.3\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\nNET/IB : Got completion from peer 10.0.0.7<40000> with error 12, opcode 0, len 0, vendor err 129",
        "CRASHED",
        "NCCL or gloo failed",
        "what(): NCCL error: remote process exited",
    ),
    "failed operations alone": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        "HUNG",
        "a collective operation timed out",
        "[E ProcessGroupNCCL.cpp:455] Some NCCL",
    ),
    "clients of the store": (
        "[rank0]: torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.",
        "CRASHED",
        "the ranks did not find each other",
        "torch.distributed.DistStoreError: Timed",
    ),
    "notify register": (
        "npuSynchronizeDevice:/build/core/npu/NPUStream.cpp:370 NPU error, error code is 107020.\n"
        "EI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [3].base information: [streamID:[1], taskID[39], taskType[Notify Wait], tag[AllReduce_1]].",
        "HUNG",
        "a collective operation timed out",
        "EI0002: The wait execution of the Notify",
    ),
    "torchrun was ended": (
        "W0408 06:11:40.220000 2087 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\n"
        "W0408 06:11:40.221000 2087 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 2093 closing signal SIGTERM\n"
        'Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        '  File "/opt/venv/lib/python3.12/site-packages/torch/distributed/run.py", line 909, in run\n    elastic_launch(',
        "CANCELLED",
        "somebody ended the job (SIGTERM)",
        "W0408 06:11:40.220000",
    ),
    "srun without pyxis": (
        "srun: unrecognized option '--container-image'\nTry \"srun --help\" for more information",
        "CRASHED",
        "Slurm refused the job",
        "srun: unrecognized option",
    ),
    "enroot's hook": (
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis: printing enroot log file:\n"
        "slurmstepd: error: pyxis:   nvidia-container-cli: container error: file lookup failed: /proc/4242/root/etc/debian_version: permission denied\n"
        "slurmstepd: error: pyxis:   [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1\n"
        "slurmstepd: error: pyxis: couldn't start container\n"
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1\n"
        "srun: error: node01: task 0: Exited with exit code 1",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: nvidia-container-cli:",
    ),
    "actor's node died": (
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n\tactor_id: 42\n"
        "The actor is dead because its node has died. Node Id: 4242\nThe above exception was the direct cause of the following exception:",
        "CRASHED",
        "a node failed",
        "The actor is dead because its node",
    ),
    "actor's node was preempted": (
        "(TrainController pid=42) The actor died because its node has died. Node Id: 4242\n"
        "(TrainController pid=42) \tthe actor's node was preempted: node drain",
        "PREEMPTED",
        "another job took its place",
        "(TrainController pid=42) the actor's node",
    ),
    "segment by way of XLA": (
        "E0604 15:08:31.101202    2210 pjrt_stream_executor_client.cc:2839] Execution of replica 0 failed: INTERNAL: NCCL operation ncclGroupEnd() failed: unhandled system error (run with NCCL_DEBUG=INFO for details). Last NCCL warning(error) log entry (may be unrelated)  'Error while creating shared memory segment /dev/shm/nccl-abc (size 31850880), error: No space left on device (28)'.",
        "CRASHED",
        "too little shared memory",
        "E0604 15:08:31.101202",
    ),
    "message below its exception": (
        'Traceback (most recent call last):\n  File "train.py", line 63, in _check_driver\n    of the CUDA driver.""".format(version))\n'
        "AssertionError: \nThe NVIDIA driver on your system is too old (found version 10010).\n"
        "Please update your GPU driver by downloading and installing a new\nversion from the URL: http://www.nvidia.com/Download/index.aspx",
        "CRASHED",
        "no usable GPU",
        "The NVIDIA driver on your system is too",
    ),
    "allocation of a tokenizer": (
        "memory allocation of 2097152 bytes failed\n[2023-04-16 21:54:13,235] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 62215",
        "CRASHED",
        "the host ran out of memory",
        "memory allocation of 2097152 bytes",
    ),
    "killed in another language": (
        "Writing metrics: /home/user/logdir/metrics.jsonl\n已杀死",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "已杀死",
    ),
}
