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
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
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
        "slurmstepd: error: pyxis:   nvidia-container-cli: container error: file lookup failed: /proc/4242/cwd/etc/debian_version: permission denied\n"
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
    "kernel that waits in vain": (
        "DeepEP dispatch NVL receiver timeout, channel: 2, RDMA: 0, nvl: 1, src NVL: 6, head: 288, tail: 288\n"
        "terminate called after throwing an instance of 'EPException'\n"
        "  what():  Failed: CUDA error /src/DeepEP/csrc/deep_ep.cpp:83 'unspecified launch failure'",
        "HUNG",
        "a collective operation timed out",
        "DeepEP dispatch NVL receiver timeout",
    ),
    "assertion of a kernel": (
        "Assertion failed: /opt/DeepEP/csrc/kernels/internode.cu:1250, condition: hidden_int4 % 32 == 0",
        "CRASHED",
        "a GPU kernel failed",
        "Assertion failed: /opt/DeepEP/csrc",
    ),
    "coordinator's barrier": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:\n"
        "/job:jax_worker/replica:0/task:1",
        "CRASHED",
        "the ranks did not find each other",
        "jaxlib.xla_extension.XlaRuntimeError",
    ),
    "stream of an NPU": (
        "RuntimeError: npuSynchronizeDevice:core/npu/NPUStream.cpp:390 NPU function error: aclrtSynchronizeDevice, error code is 507046\n"
        "EE1002: 2024-10-03-09:10:22.418.004 Stream synchronize timeout. rtDeviceSynchronize execute failed, reason=[stream sync timeout]",
        "HUNG",
        "a collective operation timed out",
        "EE1002: 2024-10-03",
    ),
    "library of collectives": (
        'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    dist.init_process_group("ccl")\n'
        "RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: oneCCL: exec.cpp:134",
    ),
    "fastbin": (
        "malloc_consolidate(): unaligned fastbin chunk detected\n"
        "E0802 03:11:42.700912 2201 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 1 (pid: 2211) of binary: python",
        "CRASHED",
        "a rank corrupted its memory",
        "malloc_consolidate(): unaligned fastbin",
    ),
    "nvml of a GPU that failed": (
        'Traceback (most recent call last):\n  File "pynvml.py", line 1042, in _nvmlCheckReturn\n    raise NVMLError(ret)\npynvml.NVMLError_Unknown: Unknown Error',
        "CRASHED",
        "a GPU failed",
        "pynvml.NVMLError_Unknown",
    ),
    "enroot's command": (
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "slurmstepd: error: pyxis:     enroot-switchroot: failed to execute: /bin/bash: No such file or directory\n"
        "slurmstepd: error: pyxis: couldn't start container",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: enroot-switchroot",
    ),
    "namespaces of users": (
        "slurmstepd: error: pyxis:     enroot-nsenter: failed to create user namespace: No space left on device",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: enroot-nsenter",
    ),
    "address of a node": (
        "srun: error: fwd_tree_thread: can't find address for host ip-10-0-44-87, check slurm.conf\n"
        "srun: error: Task launch for 14.0 failed on node ip-10-0-44-87: Can't find an address, check slurm.conf\n"
        "srun: error: Application launch failed: Can't find an address, check slurm.conf",
        "CRASHED",
        "a node was not reached",
        "srun: error: fwd_tree_thread",
    ),
    "two configurations": (
        'Traceback (most recent call last):\n  File "train.py", line 27, in <module>\n    pretrain(args)\n'
        "AssertionError: Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and deepspeed.initialize() function call",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Not sure how to proceed",
    ),
    "data of megatron": (
        "Dataset does not exist: /data/owt/part-03\nPath should be a basename and both .idx and .bin can be appended to get full filenames.\n"
        'Traceback (most recent call last):\n  File "gpt_dataset.py", line 42, in build\n    print(indexed.sizes)\n'
        "AttributeError: 'NoneType' object has no attribute 'sizes'",
        "CRASHED",
        "a file is missing",
        "Dataset does not exist: /data/owt",
    ),
    "backend of lightning": (
        "    raise MisconfigurationException('No supported gpu backend found!')\n"
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        "CRASHED",
        "no usable GPU",
        "raise MisconfigurationException('No",
    ),
    "batch of nothing": (
        'Traceback (most recent call last):\n  File "config.py", line 900, in _batch_assertion\n    assert micro_batch > 0, (\n'
        "AssertionError: Micro batch size per gpu: 0 has to be greater than 0",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Micro batch size",
    ),
    "nan or inf": (
        'Traceback (most recent call last):\n  File "train.py", line 90, in step\n    raise ValueError\nValueError: NaN or Inf encountered. Training failed!',
        "CRASHED",
        "the loss is not a number",
        "ValueError: NaN or Inf encountered",
    ),
    "step of a script": (
        'Traceback (most recent call last):\n  File "e2e.py", line 210, in <module>\n    main(args)\n'
        "RuntimeError: Step 1 exited with non-zero status 1",
        "CRASHED",
        "a rank failed",
        "RuntimeError: Step 1 exited",
    ),
    "cache of vllm": (
        'Traceback (most recent call last):\n  File "worker.py", line 12, in check\n    raise ValueError(\n'
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "OOM",
        "a GPU ran out of memory",
        "ValueError: No available memory",
    ),
    "caffe's check": (
        "RuntimeError: [enforce fail at context_gpu.cu:415] error == cudaSuccess. 2 vs 0. Error at: context_gpu.cu:415: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: [enforce fail at context_gpu",
    ),
    "storage of a pod": (
        "  Warning  Evicted              2m14s  kubelet                                Pod ephemeral local storage usage exceeds the total limit of containers 5Gi.\n"
        "  Normal   Killing              2m14s  kubelet                                Stopping container model",
        "CRASHED",
        "the disk is full",
        "Warning Evicted 2m14s kubelet",
    ),
    "registration of tasks": (
        "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task triggered the barrier too early or too slowly.",
        "CRASHED",
        "the ranks did not find each other",
        "Original error: DEADLINE_EXCEEDED",
    ),
    "nccl before it named itself": (
        "n1:60114:63820 [0] init.cu:218 WARN Cuda failure 'out of memory'\n"
        "RuntimeError: NCCL error in: /pytorch/torch/lib/THD/base/data_channels/DataChannelNccl.cpp:324, internal error",
        "OOM",
        "NCCL found no GPU memory for its buffers",
        "n1:60114:63820 [0] init.cu:218",
    ),
    "hook of enroot": (
        "slurmstepd: error: pyxis:     /usr/bin/enroot: line 44: HOME: unbound variable\n"
        "slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see https://github.com/NVIDIA/libnvidia-container\n"
        "slurmstepd: error: pyxis:     [ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1\n"
        "slurmstepd: error: pyxis: couldn't start container",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: [ERROR] Command",
    ),
    "plugin of sbatch": (
        "sbatch: error: *** Error partition 'h200_shared' is not open to this account",
        "CRASHED",
        "Slurm refused the job",
        "sbatch: error: *** Error partition",
    ),
    "memory of spconv": (
        "RuntimeError: TensorStorage /io/include/tensorview/tensor.h 168\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1 to get correct traceback.",
        "OOM",
        "a GPU ran out of memory",
        "cuda failed with error 2 out of memory",
    ),
    "failed operations that abort": (
        "[Rank 11] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        "[Rank 11] To avoid data inconsistency, we are taking the entire process down.\n"
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -6) local_rank: 3 (pid: 80413) of binary: python",
        "HUNG",
        "a collective operation timed out",
        "[Rank 11] Some NCCL operations have",
    ),
    "failed operations and an abort": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        "terminate called after throwing an instance of 'std::runtime_error'\n"
        "  what():  NCCL communicator was aborted on rank 3.",
        "HUNG",
        "a collective operation timed out",
        "[E ProcessGroupNCCL.cpp:455] Some NCCL",
    ),
}
