"""Failures in the words that programs have in their sources: accelerators, networks, memory, ends."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

MESSAGE_FAILURES: Final = {
    "message: accelerator error": (
        "[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "torch.AcceleratorError: CUDA error: an i",
    ),
    "message: accelerator oom": (
        "[rank0]: torch.AcceleratorError: CUDA error: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "torch.AcceleratorError: CUDA error: out ",
    ),
    "message: deferred": (
        'torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "../aten/src/ATen/cuda/CUDAContext.cpp":49, please report a bug to PyTorch. device=, num_gpus=',
        "CRASHED",
        "no usable GPU",
        "torch.cuda.DeferredCudaCallError: CUDA c",
    ),
    "message: cuda mismatch": (
        "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.2 does not match the version torch was compiled with 11.8, unable to compile cuda/cpp extensions without a matching cuda version.",
        "CRASHED",
        "an exception ended a rank",
        "deepspeed.ops.op_builder.builder.CUDAMis",
    ),
    "message: cuda home": (
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "CRASHED",
        "an exception ended a rank",
        "OSError: CUDA_HOME environment variable ",
    ),
    "message: building extension": (
        "ninja: build stopped: subcommand failed.\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nsubprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nRuntimeError: Error building extension 'cpu_adam'",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error building extension '",
    ),
    "message: tf oom": (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor with shape[16384,16384] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:AddV2]",
        "OOM",
        "a GPU ran out of memory",
        "tensorflow.python.framework.errors_impl.",
    ),
    "message: yarn 137": (
        "Container killed on request. Exit code is 137",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "Container killed on request. Exit code i",
    ),
    "message: broken pool": (
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.",
        "CRASHED",
        "an exception ended a rank",
        "concurrent.futures.process.BrokenProcess",
    ),
    "message: broken pool with cause": (
        'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nconcurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the future was running or pending.\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.',
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd: error: Detected 1 oom_kill e",
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
        "a rank died of an arithmetic error",
        "ERROR: Unexpected floating-point excepti",
    ),
    "message: worker terminated": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Terminated. ",
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "RuntimeError: DataLoader worker (pid 424",
    ),
    "message: worker illegal": (
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Illegal instruction. ",
        "CRASHED",
        "a rank died of an illegal instruction",
        "RuntimeError: DataLoader worker (pid 424",
    ),
    "message: nccl socket last error": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nsocketStartConnect: Connect to 10.0.0.1<40735> failed : Software caused connection abort",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "message: monitored other": (
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 2. Please check rank 2 logs for faulty rank.\n Original exception: \n[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "HUNG",
        "a collective operation timed out",
        "[../third_party/gloo/gloo/transport/tcp/",
    ),
    "message: roce": (
        "n1:42:99 [3] misc/ibvwrap.cc:222 NCCL WARN Call to ibv_modify_qp failed with error No data available errno 61",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [3] misc/ibvwrap.cc:222 NCCL WA",
    ),
    "message: ib reg mr": (
        "n1:42:99 [0] misc/ibvwrap.cc:172 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory errno 12",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [0] misc/ibvwrap.cc:172 NCCL WA",
    ),
    "message: ib async": (
        "n1:42:99 [0] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [0] transport/net_ib.cc:96 NCCL",
    ),
    "message: nvls": (
        "n1:42:99 [0] transport/nvls.cc:339 NCCL WARN Cuda failure 1 'invalid argument'\ntorch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 1 'invalid argument'",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:42:99 [0] transport/nvls.cc:339 NCCL ",
    ),
    "message: nccl lib mismatch": (
        "n1:42:99 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 512 bytes instead of 256",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:42:99 [0] bootstrap.cc:77 NCCL WARN M",
    ),
    "message: torchft": (
        'TimeoutError: status: Cancelled, message: "Timeout expired", details: [], metadata: MetadataMap { headers: {} }',
        "HUNG",
        "something was waited for in vain",
        "TimeoutError: status: Cancelled, message",
    ),
    "message: flight recorder timeout": (
        "[rank7]:[E901 21:19:08.277 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID 0 Rank 7] Observed flight recorder dump signal from another rank via TCPStore.\n[rank7]:[E901 21:19:08.278 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0 Rank 7] Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: 12, last completed NCCL work: 11.",
        "HUNG",
        "a collective operation timed out",
        "[rank7]:[E901 21:19:08.278 ProcessGroupN",
    ),
    "message: monitored barrier": (
        "RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 1800000 ms",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [Rank 0]: Ranks 3, 5 faile",
    ),
    "message: nccl barrier timeout store": (
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "HUNG",
        "something was waited for in vain",
        "torch.distributed.DistStoreError: wait t",
    ),
    "message: xid 94 dmesg": (
        "[Thu May  1 10:00:00 2025] NVRM: Xid (PCI:0000:5d:00): 94, pid=1234, name=python, Contained: SM (0x1). RST: No, D-RST: No",
        "CRASHED",
        "a GPU failed",
        "[Thu May 1 10:00:00 2025] NVRM: Xid (PCI",
    ),
    "message: nvlink xid 74": (
        "kernel: NVRM: Xid (PCI:0000:18:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 7",
        "CRASHED",
        "a GPU failed",
        "kernel: NVRM: Xid (PCI:0000:18:00): 74, ",
    ),
    "message: dcgm health": (
        "nvidia-smi: GPU 00000000:3B:00.0: Detected Critical Xid Error; GPU reset required",
        "CRASHED",
        "a GPU failed",
        "nvidia-smi: GPU 00000000:3B:00.0: Detect",
    ),
    "message: hip illegal": (
        "RuntimeError: HIP error: an illegal memory access was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: HIP error: an illegal memo",
    ),
    "message: hsa": (
        ":0:rocdevice.cpp            :2881: 1234 us: [pid:4242 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
        "CRASHED",
        "a GPU kernel failed",
        ":0:rocdevice.cpp :2881: 1234 us: [pid:42",
    ),
    "message: miopen": (
        "RuntimeError: miopenStatusUnknownError",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: miopenStatusUnknownError",
    ),
    "message: hipblas": (
        "RuntimeError: CUDA error: HIPBLAS_STATUS_INTERNAL_ERROR when calling `hipblasLtMatmul`",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: CUDA error: HIPBLAS_STATUS",
    ),
    "message: pthread": (
        "terminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\nAborted (core dumped)",
        "CRASHED",
        "a C++ exception ended a rank",
        "what(): Resource temporarily unavailable",
    ),
    "message: jemalloc": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        "CRASHED",
        "the host ran out of memory",
        "terminate called after throwing an insta",
    ),
    "message: mmap": (
        "OSError: [Errno 12] Cannot allocate memory",
        "CRASHED",
        "the host ran out of memory",
        "OSError: [Errno 12] Cannot allocate memo",
    ),
    "message: quota": (
        "OSError: [Errno 122] Disk quota exceeded: '/scratch/.triton/cache'",
        "CRASHED",
        "the disk is full",
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    "message: read only": (
        "OSError: [Errno 30] Read-only file system: '/scratch/.cache'",
        "CRASHED",
        "access was denied",
        "OSError: [Errno 30] Read-only file syste",
    ),
    "message: recursion": (
        "RecursionError: maximum recursion depth exceeded while calling a Python object",
        "CRASHED",
        "an exception ended a rank",
        "RecursionError: maximum recursion depth ",
    ),
    "message: port": (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "message: hostname": (
        "torch.distributed.DistNetworkError: The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "CRASHED",
        "the ranks did not find each other",
        "torch.distributed.DistNetworkError: The ",
    ),
    "message: sigterm torchrun": (
        "W0501 10:00:00.000000 4242 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, shutting down workers\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15",
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "W0501 10:00:00.000000 4242 torch/distrib",
    ),
    "message: scancel": (
        "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2025-05-01T10:00:00 ***",
        "CANCELLED",
        "the job was cancelled",
        "slurmstepd: error: *** JOB 4242 ON n1 CA",
    ),
    "message: k8s evicted memory": (
        "Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 3Mi.",
        "CRASHED",
        "the host ran out of memory",
        "Warning Evicted 2m kubelet The node was ",
    ),
}
