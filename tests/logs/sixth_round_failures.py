"""Failures from public threads of all frameworks: the sixth of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

SIXTH_ROUND: Final = {
    "composer -7": (
        "Building trainer...\nERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.\nWaiting up to 30 seconds for all training processes to terminate. Press Ctrl-C to exit immediately.",
        "CRASHED",
        "a rank died of a bus error",
        "ERROR:composer.cli.launcher:Rank 2 crash",
    ),
    "composer -11": (
        "2024-08-30 11:06:12,930: rank0[208865][MainThread]: INFO: composer.core.state: Automatically setting data_parallel_shard to have parallelization degree 8.\nGlobal rank 0 (PID 208865) exited with code -11\nERROR:composer.cli.launcher:Global rank 0 (PID 208865) exited with code -11",
        "CRASHED",
        "a rank died of a segmentation fault",
        "Global rank 0 (PID 208865) exited with c",
    ),
    "composer 1": (
        "2023-04-24 16:03:12,379: rank0[1003409][MainThread]: DEBUG: composer.utils.dist: Initializing torch.dist: global_rank=0, local_rank=0, world_size=8, local_world_size=8, node_rank=0\nERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.\n/opt/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to be 6 leaked shared_memory objects to clean up at shutdown\n  warnings.warn('resource_tracker: There appear to be %d '\n/opt/lib/python3.10/multiprocessing/resource_tracker.py:237: UserWarning: resource_tracker: '/af0626_barrier': [Errno 2] No such file or directory: '/af0626_barrier'\n  warnings.warn('resource_tracker: %r: %s' % (name, e))",
        "CRASHED",
        "a rank failed",
        "ERROR:composer.cli.launcher:Rank 1 crash",
    ),
    "mpi init": (
        "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n***    and potentially your MPI job)",
        "CRASHED",
        "a rank aborted",
        "*** An error occurred in MPI_Init_thread",
    ),
    "nccl remote exited": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.3',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "collectives mismatch": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: CollectiveFingerPrint(SequenceNumber=152517, OpType=BROADCAST, TensorShape=[1]), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE).',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Detected mismatch between ",
    ),
    "amd fault in a bar": (
        " 33%|███████████████████Memory access fault by GPU node-3 (Agent handle: 0x5a5c587a51c0) on address 0x709843600000. Reason: Write access to a read-only page.:54:01, 26.24s/it]",
        "CRASHED",
        "a GPU kernel failed",
        "33%|███████████████████Memory access fau",
    ),
    "deepspeed -7": (
        "[2023-05-18 02:59:40,948] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266\n[2023-05-18 02:59:41,100] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=1'] exits with return code = -7",
        "CRASHED",
        "a rank died of a bus error",
        "[2023-05-18 02:59:41,100] [ERROR] [launc",
    ),
    "ofi completion": (
        "n1:41:99 [3] ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f11 completed with error. RC: 21. Error: unknown error. Completed length: 0, Request: { dev: 0, size: 0, state: CREATED, direction: SEND }\nn1:41:99 [3] NCCL INFO include/net.h:35 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:41:99 [3] ofi_process_cq:1033 NCCL WA",
    ),
    "bitsandbytes setup": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 22, in <module>\n    raise RuntimeError('''\nRuntimeError: \n        CUDA Setup failed despite GPU being available. Please run the following command to get more information:\n\n        python -m bitsandbytes",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError:",
    ),
    "unsloth link": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: CUDA is not linked properly.\nWe tried running `ldconfig /usr/lib64-nvidia` ourselves, but it didn\'t work.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: CUDA is not linked properly",
    ),
    "bnb attribute": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nAttributeError: 'NoneType' object has no attribute 'cdequantize_blockwise_fp32'",
        "CRASHED",
        "an exception ended a rank",
        "AttributeError: 'NoneType' object has no",
    ),
    "hydra pasted without indents": (
        'Traceback (most recent call last):\nFile "/opt/train.py", line 243, in\nmain()\nFile "/opt/train.py", line 129, in wrapper\n_run_hydra(\nFile "/opt/train.py", line 260, in return_value\nraise self._return_value\nRuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: The size of tensor a (4096",
    ),
    "torchrun alone": (
        "[2024-02-16 02:42:00,885] torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 1267868 closing signal SIGTERM\n[2024-02-16 02:42:03,298] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 1 (pid: 1267869) of binary: /opt/bin/python",
        "CRASHED",
        "a rank failed",
        "[2024-02-16 02:42:03,298] torch.distribu",
    ),
    "spawned process": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\n  File "/opt/train.py", line 20, in _wrap\n    fn(i, *args)\nValueError: num_samples should be a positive integer value, but got num_samples=0',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: num_samples should be a posi",
    ),
    "spawned process, signal": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGSEGV',
        "CRASHED",
        "a segmentation fault",
        "torch.multiprocessing.spawn.ProcessExite",
    ),
    "pydantic axolotl": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\npydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig\nmicro_batch_size\n  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='a', input_type=str]",
        "CRASHED",
        "the trainer refused its arguments",
        "pydantic_core._pydantic_core.ValidationE",
    ),
    "device assert, thread": (
        '../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [221,0,0], thread: [32,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [221,0,0], thread: [33,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: device-side assert triggered',
        "CRASHED",
        "a GPU kernel failed",
        "../aten/src/ATen/native/cuda/Indexing.cu",
    ),
    "slurm memory": (
        "slurmstepd: error: Job 4242 exceeded memory limit (515396 > 512000), being killed\nslurmstepd: error: Exceeded job memory limit\nslurmstepd: error: *** JOB 4242 ON gpu-1 CANCELLED AT 2025-03-01T10:00:00 ***",
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd: error: Job 4242 exceeded mem",
    ),
    "task killed": (
        "srun: error: gpu-3: task 3: Killed\nsrun: Terminating StepId=4242.0\nslurmstepd: error: *** STEP 4242.0 ON gpu-1 CANCELLED AT 2025-03-01T10:00:00 ***\nsrun: error: gpu-1: tasks 0-2: Terminated",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "srun: error: gpu-3: task 3: Killed",
    ),
    "submission": (
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "CRASHED",
        "Slurm refused the job",
        "sbatch: error: Batch job submission fail",
    ),
    "pbs memory, thread": (
        "=>> PBS: job killed: mem 536870912kb exceeded limit 268435456kb",
        "CRASHED",
        "the host ran out of memory",
        "=>> PBS: job killed: mem 536870912kb exc",
    ),
    "threads": (
        'OpenBLAS blas_thread_init: pthread_create failed for thread 12 of 64: Resource temporarily unavailable\nOpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 4096 max\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: can\'t start new thread',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: can't start new thread",
    ),
    "driver init": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: CUDA driver initialization",
    ),
    "container nvml": (
        "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
        "CRASHED",
        "the container was not started",
        "docker: Error response from daemon: fail",
    ),
    "aborted communicator": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: NCCL communicator was aborted on rank 3. Original reason for failure was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804550 milliseconds before timing out.',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: NCCL communicator was abor",
    ),
    "unique id": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
        "CRASHED",
        "a rank failed",
        "torch.distributed.DistBackendError: [2] ",
    ),
    "only gpus": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!',
        "CRASHED",
        "no usable GPU",
        "ValueError: ProcessGroupNCCL is only sup",
    ),
    "template": (
        'multiprocess.pool.RemoteTraceback: \n"""\nTraceback (most recent call last):\n  File "/opt/train.py", line 678, in _write_generator_to_queue\n    for i, result in enumerate(func(**kwargs)):\njinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...\n"""\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\njinja2.exceptions.TemplateError: Conversation roles must alternate user/assistant/user/assistant/...',
        "CRASHED",
        "an exception ended a rank",
        "jinja2.exceptions.TemplateError: Convers",
    ),
    "no data set": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\ndatasets.exceptions.DatasetNotFoundError: Dataset 'foo/bar' doesn't exist on the Hub or cannot be accessed.",
        "CRASHED",
        "a file is missing",
        "datasets.exceptions.DatasetNotFoundError",
    ),
    "apex": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: ModuleNotFoundError: No module named 'amp_C'",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError: No module named 'am",
    ),
    "state dict": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Error(s) in loading state_dict for GPTModel:\n[rank0]: \tsize mismatch for embedding.word_embeddings.weight: copying a param with shape torch.Size([50304, 1024]) from checkpoint, the shape in current model is torch.Size([50432, 1024]).',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error(s) in loading state_",
    ),
    "interrupt": (
        '  2%|▏         | 2/100 [00:09<07:20,  4.50s/it]^CTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nKeyboardInterrupt',
        "CANCELLED",
        "the job was cancelled",
        "KeyboardInterrupt",
    ),
}
