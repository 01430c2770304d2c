"""Failures from public threads that were read wrong, or might have been, when they were first seen."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

UNSEEN: Final = {
    "tf oom": (
        "2022-05-19 10:00:00.1: I tensorflow/stream_executor/cuda/cuda_driver.cc:831] failed to allocate 17.79G (19104890880 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "2022-05-19 10:00:00.1: I tensorflow/stre",
    ),
    "dataloader exited": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: DataLoader worker (pid(s) 411948) exited unexpectedly',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: DataLoader worker (pid(s) ",
    ),
    "ray oom": (
        "(raylet) Memory on the node (IP: 10.0.0.1, ID: ba65c80c) where the task (task ID: d221d262, name=head, rank=0,, pid=4503, memory used=900.10GB) was running was 950.00GB / 1000.00GB (0.95), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: aa) because it was the most recently scheduled task; to see more information about memory usage on this node, use `ray logs raylet.out`",
        "CRASHED",
        "the host ran out of memory",
        "(raylet) Memory on the node (IP: 10.0.0.",
    ),
    "ray oom exc": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: ba65c80c) where the task was running was 950.00GB / 1000.00GB (0.95), which exceeds the memory usage threshold of 0.95.',
        "CRASHED",
        "the host ran out of memory",
        "ray.exceptions.OutOfMemoryError: Task wa",
    ),
    "modify qp deep_ep": (
        "Failed to modify QP to RTR: Connection timed out\nerrno: 110\nFailed to modify QP to RTR: Connection timed out",
        "CRASHED",
        "InfiniBand failed",
        "Failed to modify QP to RTR: Connection t",
    ),
    "c10d connect old": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: connect() timed out. Original timeout was 60000 ms.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.',
        "CRASHED",
        "the ranks did not find each other",
        "RuntimeError: connect() timed out. Origi",
    ),
    "socket bind": (
        "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:12211 (errno: 98 - Address already in use).\n[W socket.cpp:436] [c10d] The server socket has failed to bind to 0.0.0.0:12211 (errno: 98 - Address already in use).\n[E socket.cpp:472] [c10d] The server socket has failed to listen on any local network address.",
        "CRASHED",
        "a port is in use",
        "[W socket.cpp:436] [c10d] The server soc",
    ),
    "cosmos": (
        "[cosmos] 2026-05-14 05:28:06,261 - cosmos - ERROR - Process 1 failed with return code 1",
        "CRASHED",
        "a rank failed",
        "[cosmos] 2026-05-14 05:28:06,261 - cosmo",
    ),
    "pure virtual": (
        "pure virtual method called\nterminate called without an active exception\nE1019 08:21:39.599000 3036 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) local_rank: 0 (pid: 3042) of binary: /usr/bin/python",
        "CRASHED",
        "a rank aborted",
        "pure virtual method called",
    ),
    "module prefix path": (
        "Megatron-LM/examples/run_simple_mcore_train_loop.py\", line 18, in <module>\n    from megatron.training.tokenizer.tokenizer import _NullTokenizer\nModuleNotFoundError: No module named 'megatron.training'",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError: No module named 'me",
    ),
    "slurm conf": (
        "srun: error: s_p_parse_file: unable to status file /etc/slurm-llnl/slurm.conf: No such file or directory, retrying in 1sec up to 60sec\nsrun: error: ClusterName needs to be specified\nsrun: fatal: Unable to process configuration file",
        "CRASHED",
        "Slurm refused the job",
        "srun: fatal: Unable to process configura",
    ),
    "spawn": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL',
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "torch.multiprocessing.spawn.ProcessExite",
    ),
    "nvlink what": (
        "terminate called after throwing an instance of 'std::system_error'\n  what():  Transport endpoint is not connected\nterminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: uncorrectable NVLink error detected during the execution\nException raised from create_event_internal at /pytorch/c10/cuda/CUDACachingAllocator.cpp:733 (most recent call first):",
        "CRASHED",
        "a GPU failed",
        "what(): CUDA error: uncorrectable NVLink",
    ),
    "shm_open": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: unable to open shared memory object </torch_29919_1396182366> in read-write mode: Too many open files (24)',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: unable to open shared memo",
    ),
    "gloo 30 min": (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/opt/train.py", line 9, in <module>\n[rank2]:     main()\n[rank2]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [/pytorch/third_party/gloo",
    ),
    "job requeue": (
        "submitit WARNING (2022-08-12 02:06:11,453) - Caught signal SIGUSR2 on node1: this job is preempted.\nslurmstepd: error: *** JOB 608 ON node1 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***\nslurmstepd: error: *** STEP 608.0 ON node1 CANCELLED AT 2022-08-12T02:06:12 DUE TO JOB REQUEUE ***\nsrun: error: node1: tasks 2-3: Exited with exit code 1",
        "CANCELLED",
        "the job was cancelled",
        "slurmstepd: error: *** JOB 608 ON node1 ",
    ),
    "task launch StepId": (
        "srun: error: Task launch for StepId=125452.4 failed on node node07: Unable to layout tasks on given cpus\nsrun: error: Application launch failed: Unable to layout tasks on given cpus\nsrun: Job step aborted",
        "CRASHED",
        "a node failed",
        "srun: error: Task launch for StepId=1254",
    ),
    "stepd terminated": (
        "slurmstepd: error: *** STEP 63532.0 STEPD TERMINATED ON cn106 AT 2020-12-14T09:44:56 DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "CANCELLED",
        "the job was cancelled",
        "slurmstepd: error: *** STEP 63532.0 STEP",
    ),
    "salloc node failure": (
        "salloc: error: Node failure on worker-1\nsalloc: Job allocation 123 has been revoked.",
        "CRASHED",
        "a node failed",
        "salloc: error: Node failure on worker-1",
    ),
    "headless megatron": (
        'Megatron-LM/megatron/training/arguments.py", line 561, in validate_args\n[rank14]:     assert num_layers % args.transformer_pipeline_model_parallel_size == 0, \\\n[rank14]:            ^^^^^^^^^^^^\n[rank14]: AssertionError: Number of layers should be divisible by the pipeline-model-parallel size',
        "CRASHED",
        "an exception ended a rank",
        "[rank14]: AssertionError: Number of laye",
    ),
    "value headless": (
        "ValueError: num_query_groups (2) must be a multiple of tensor_model_parallel_size (8).",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: num_query_groups (2) must be",
    ),
    "gated chain": (
        'Traceback (most recent call last):\n  File "/a/http.py", line 406, in hf_raise_for_status\n    response.raise_for_status()\nrequests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/meta-llama/Llama-2-7b-hf/resolve/main/config.json\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/a/hub.py", line 403, in cached_file\n    resolved_file = hf_hub_download(\nhuggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66f4b037)\n\nCannot access gated repo for url https://huggingface.co/meta-llama/x.\nAccess to model meta-llama/x is restricted. You must have access to it and be authenticated to access it. Please log in.',
        "CRASHED",
        "access was denied",
        "requests.exceptions.HTTPError: 401 Clien",
    ),
    "wandb perm": (
        "wandb: ERROR Error while calling W&B API: entity learn2learn not found during upsertBucket (<Response [404]>)\nwandb: ERROR It appears that you do not have permission to access the requested resource. Please reach out to the project owner to grant you access. (Error 404: Not Found)",
        "CRASHED",
        "access was denied",
        "wandb: ERROR It appears that you do not ",
    ),
    "wandb comm": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nwandb.errors.errors.CommError: It appears that you do not have permission to access the requested resource. Please reach out to the project owner to grant you access. If you have the correct permissions, verify that there are no issues with your networking setup.(Error 404: Not Found)',
        "CRASHED",
        "access was denied",
        "wandb.errors.errors.CommError: It appear",
    ),
    "hip no kernel": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: HIP error: no kernel image is available for execution on the device\nHIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: HIP error: no kernel image",
    ),
    "hip invalid device function": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously reported',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: HIP error: invalid device ",
    ),
    "hipErrorNoBinary": (
        '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"\nAborted (core dumped)',
        "CRASHED",
        "no usable GPU",
        '"hipErrorNoBinaryForGpu: Unable to find ',
    ),
    "loguru": (
        "ERROR    | 2024-08-22 02:25:32 | autotrain.trainers.common:wrapper:121 - HIP error: no kernel image is available for execution on the device",
        "CRASHED",
        "no usable GPU",
        "ERROR | 2024-08-22 02:25:32 | autotrain.",
    ),
    "sighup": (
        'WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal, shutting down workers\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 2920926 closing signal SIGHUP\nTraceback (most recent call last):\n  File "/opt/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 2920830 got signal: 1',
        "CANCELLED",
        "somebody ended the job (SIGTERM)",
        "torch.distributed.elastic.multiprocessin",
    ),
    "death 15": (
        'W0409 07:28:49.530000 1359 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\nW0409 07:28:49.531000 1359 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 1365 closing signal SIGTERM\nTraceback (most recent call last):\n  File "/opt/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 1359 got signal: 15',
        "CANCELLED",
        "somebody ended the job (SIGTERM)",
        "W0409 07:28:49.530000 1359 torch/distrib",
    ),
    "signal exception module": (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  invalid device pointer: 0x5400000\nException raised from free at ../c10/hip/HIPCachingAllocator.cpp:2994 (most recent call first):",
        "CRASHED",
        "a C++ exception ended a rank",
        "what(): invalid device pointer: 0x540000",
    ),
    "tp not initialised": (
        '  File "/home/Megatron-LM/megatron/mpu/initialize.py", line 222, in get_pipeline_model_parallel_group\n    assert _PIPELINE_MODEL_PARALLEL_GROUP is not None, \\\nAssertionError: pipeline_model parallel group is not initialized',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: pipeline_model parallel ",
    ),
    "fingerprint": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1277, OpType=ALLREDUCE), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1275).',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Detected mismatch between ",
    ),
}
