"""Failures in the words that programs have in their sources: accelerators, extensions, workers."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

MESSAGE_FAILURES: Final = {
    "accelerator error": (
        "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "torch.AcceleratorError: CUDA error: an i",
    ),
    "accelerator oom": (
        "[rank0]: torch.AcceleratorError: CUDA error: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "torch.AcceleratorError: CUDA error: out ",
    ),
    "deferred": (
        'torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "../aten/src/ATen/cuda/CUDAContext.cpp":49, please report a bug to PyTorch. device=, num_gpus=',
        "CRASHED",
        "no usable GPU",
        "torch.cuda.DeferredCudaCallError: CUDA c",
    ),
    "cuda mismatch": (
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match the version torch was compiled with 11.8, unable to compile cuda/cpp extensions without a matching cuda version.",
        "CRASHED",
        "an exception ended a rank",
        "deepspeed.ops.op_builder.builder.CUDAMis",
    ),
    "cuda home": (
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "CRASHED",
        "an exception ended a rank",
        "OSError: CUDA_HOME environment variable ",
    ),
    "building extension": (
        "ninja: build stopped: subcommand failed.\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nsubprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nRuntimeError: Error building extension 'cpu_adam'",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error building extension '",
    ),
    "tf oom": (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor with shape[16384,16384] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:AddV2]",
        "OOM",
        "a GPU ran out of memory",
        "tensorflow.python.framework.errors_impl.",
    ),
    "yarn 137": (
        "Container killed on request. Exit code is 137",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "Container killed on request. Exit code i",
    ),
    "broken pool": (
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
        "CRASHED",
        "an exception ended a rank",
        "concurrent.futures.process.BrokenProcess",
    ),
    "broken pool with cause": (
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nconcurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.',
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd: error: Detected 1 oom_kill e",
    ),
    "worker segv": (
        "ERROR: Unexpected segmentation fault encountered in worker.",
        "CRASHED",
        "a segmentation fault",
        "ERROR: Unexpected segmentation fault enc",
    ),
    "worker fpe": (
        "ERROR: Unexpected floating-point exception encountered in worker.",
        "CRASHED",
        "a rank died of an arithmetic error",
        "ERROR: Unexpected floating-point excepti",
    ),
    "worker terminated": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Terminated. ",
        "CANCELLED",
        "somebody ended the job (SIGTERM)",
        "RuntimeError: DataLoader worker (pid 424",
    ),
    "worker illegal": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Illegal instruction. ",
        "CRASHED",
        "a rank died of an illegal instruction",
        "RuntimeError: DataLoader worker (pid 424",
    ),
    "nccl socket last error": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nsocketStartConnect: Connect to 10.0.0.1<40735> failed : Software caused connection abort",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "monitored other": (
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 2. Please check rank 2 logs for faulty rank.\n Original exception: \n[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "HUNG",
        "a collective operation timed out",
        "[../third_party/gloo/gloo/transport/tcp/",
    ),
}
