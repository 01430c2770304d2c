"""Lines that programs print when they fail, in their own wording, and lines that only sound like it."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.launcher_failure_cases import LAUNCHER_FAILURES, RANK, TORCHRUN, TRACE
from tests.logs.thread_failure_cases import THREAD_FAILURES, THREAD_HARMLESS

FAILURES: Final = {
    "oom, current": (
        TRACE
        + "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"
        " of 79.10 GiB of which 1.20 GiB is free. If reserved but unallocated memory is large try setting"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        "OOM",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError",
    ),
    "oom, old": (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; 37.01 GiB already"
        " allocated; 19.19 MiB free; 37.60 GiB reserved in total by PyTorch)",
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError",
    ),
    "oom, driver": ("RuntimeError: CUDA error: out of memory", "OOM", "a GPU ran out of memory", "RuntimeError"),
    "oom, hip": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 2 has a total capacity of 191.98 GiB",
        "OOM",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError",
    ),
    "oom, cublas": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError",
    ),
    "oom, triton": (
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError",
    ),
    "oom, nccl": (
        "node01:4242:4301 [2] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        "OOM",
        "NCCL found no GPU memory for its buffers",
        "node01",
    ),
    "ecc through the watchdog": (
        RANK
        + "[PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA error:"
        " uncorrectable ECC error encountered\nterminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: CUDA"
        " error: uncorrectable ECC error encountered",
        "CRASHED",
        "a GPU failed",
        "[rank3]:",
    ),
    "ecc after the time-outs of others": (
        "[rank1]:[E304 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
        + RANK
        + "[Rank 3] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered",
        "CRASHED",
        "a GPU failed",
        "[rank3]:",
    ),
    "xid": (
        "kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        "CRASHED",
        "a GPU failed",
        "kernel",
    ),
    "nvlink": (
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "CRASHED",
        "a GPU failed",
        "RuntimeError",
    ),
    "illegal access": (
        TRACE + "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
        "[rank0]: CUDA kernel errors might be asynchronously reported at some other API call.",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError",
    ),
    "device assert": (
        "../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0], thread: [0,0,0] Assertion"
        " `srcIndex < srcSelectDimSize` failed.\n"
        + TRACE
        + "[rank0]: RuntimeError: CUDA error: device-side assert triggered",
        "CRASHED",
        "a GPU kernel failed",
        "../aten",
    ),
    "launch failure": (
        "RuntimeError: CUDA error: unspecified launch failure",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError",
    ),
    "device ordinal": (
        TRACE + "[rank0]: torch.AcceleratorError: CUDA error: invalid device ordinal",
        "CRASHED",
        "no usable GPU",
        "torch.AcceleratorError",
    ),
    "no gpu": (TRACE + "[rank0]: RuntimeError: No CUDA GPUs are available", "CRASHED", "no usable GPU", "RuntimeError"),
    "cublas": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError",
    ),
    "cudnn": (
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError",
    ),
    "nccl, system": (
        TRACE + "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
        "ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
        "[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, remote": (
        "RuntimeError: NCCL communicator was aborted on rank 5. Original reason for failure was: NCCL error: remote process"
        " exited or there was a network error, ncclRemoteError: A call failed possibly due to a network error",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError",
    ),
    "ib completion": (
        "node01:3468:3905 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with"
        " status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "CRASHED",
        "InfiniBand failed",
        "node01",
    ),
    "ib queue pair": (
        "node01:99:120 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error No route to host",
        "CRASHED",
        "InfiniBand failed",
        "node01",
    ),
    "nccl, socket": (
        "node01:99:120 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41235> failed : Software"
        " caused connection abort",
        "CRASHED",
        "a connection between ranks failed",
        "node01",
    ),
    "watchdog": (
        RANK + "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1,"
        " NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 3] Process group watchdog"
        " thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout",
        "HUNG",
        "a collective operation timed out",
        "[rank3]:",
    ),
    "port": (
        TRACE
        + "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network"
        " address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError",
    ),
    "rendezvous": (
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "CRASHED",
        "the ranks did not find each other",
        "torch.distributed.elastic",
    ),
    "client socket": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to"
        " (node01, 29500).",
        "CRASHED",
        "the ranks did not find each other",
        "torch.distributed",
    ),
    "killed, bare": (
        "Killed",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "Killed",
    ),
    "killed, bash": (
        "run.sh: line 12:  4242 Killed                  python train.py",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "run.sh",
    ),
    "killed, torchrun": (
        "  exitcode  : -9 (pid: 4242)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 4242",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "exitcode",
    ),
    "oom killer": (
        "[12345.67] Memory cgroup out of memory: Killed process 4242 (python) total-vm:99999kB, anon-rss:88888kB",
        "CRASHED",
        "the host ran out of memory",
        "[12345.67]",
    ),
    "slurm oom": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step tasks have been OOM Killed.",
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd",
    ),
    "c++": (
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  the archive is truncated",
        "CRASHED",
        "a C++ exception ended a rank",
        "what():",
    ),
    "c++ memory": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        "CRASHED",
        "the host ran out of memory",
        "terminate called",
    ),
    "module": (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    import flash_attn\n'
        "ModuleNotFoundError: No module named 'flash_attn'\n" + TORCHRUN,
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    "script": (
        "/usr/bin/python3: can't open file '/home/user/trian.py': [Errno 2] No such file or directory\n" + TORCHRUN,
        "CRASHED",
        "a program or file is missing",
        "/usr/bin/python3",
    ),
    "file": (
        TRACE
        + "[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/text_document.idx'\n"
        + TORCHRUN,
        "CRASHED",
        "a file is missing",
        "FileNotFoundError",
    ),
    "flag": (
        "usage: train.py [-h] [--tp TP]\ntrain.py: error: unrecognized arguments: --tensor-parallel 2\n" + TORCHRUN,
        "CRASHED",
        "the trainer refused its arguments",
        "train.py: error",
    ),
    "assertion": (
        TRACE
        + "[rank0]: AssertionError: world size (8) is not divisible by tensor_model_parallel_size (3)\n"
        + TORCHRUN,
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: world size (8) is not divisible",
    ),
    "batch": (
        TRACE
        + "[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu"
        " * gradient_acc_step * world_size 32 != 4 * 1 * 4",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError",
    ),
    "disk": (TRACE + "[rank0]: OSError: [Errno 28] No space left on device", "CRASHED", "the disk is full", "OSError"),
    "quota": ("OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache'", "CRASHED", "the disk is full", "OSError"),
    "gated": (
        TRACE + "[rank0]: huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-6)",
        "CRASHED",
        "access was denied",
        "huggingface_hub",
    ),
    "loss scale": (
        TRACE
        + "[rank0]: Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "CRASHED",
        "the loss scale is at its minimum",
        "Exception",
    ),
    "nan, megatron": (
        TRACE + "[rank0]: RuntimeError: Unexpected result nan (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError",
    ),
    "nan, gradients": (
        "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication collective.",
        "CRASHED",
        "the loss is not a number",
        "AssertionError",
    ),
    "nan, iterations": (
        "".join(
            f" iteration {n}/ 500 | elapsed time per iteration (ms): 812.3 | loss scale: 1.0 | grad norm: nan | number of"
            " skipped iterations:   0 | number of nan iterations:   1 |\n"
            for n in (1, 2, 3)
        ),
        "CRASHED",
        "the loss is not a number",
        "iteration 1/",
    ),
    "nan, hugging face": (
        "{'loss': nan, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.1}",
        "CRASHED",
        "the loss is not a number",
        "{'loss': nan",
    ),
    "bus": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        "Bus error (core dumped)",
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error",
    ),
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
    "time limit": (
        "slurmstepd: error: *** STEP 4242.0 ON node01 CANCELLED AT 2026-03-04T10:00:00 DUE TO TIME LIMIT ***",
        "TIMED_OUT",
        "the job reached its time limit",
        "slurmstepd",
    ),
    "rich": (
        "╭───────────────────── Traceback (most recent call last) ─────────────────────╮\n"
        "│ /data/train.py:12 in <module>                                               │\n"
        "│ ❱ 12 │   main()                                                             │\n"
        "╰─────────────────────────────────────────────────────────────────────────────╯\n"
        "ValueError: the sequence length must be a multiple of 128",
        "CRASHED",
        "an exception ended a rank",
        "ValueError",
    ),
    "accelerate": (
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    import peft\n'
        "ModuleNotFoundError: No module named 'peft'\n"
        'Traceback (most recent call last):\n  File "/usr/bin/accelerate", line 8, in <module>\n    sys.exit(main())\n'
        "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' returned non-zero exit status 1.",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    **LAUNCHER_FAILURES,
    **THREAD_FAILURES,
}
"""Of each failure its lines, its outcome, its meaning and how its evidence begins."""

HARMLESS: Final = (
    "[rank0]:[W304 10:00:00.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
    "WARNING: HTTP 503, retrying in 5 s: Connection reset by peer",
    "node01:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "libnuma: Warning: cpu argument 3 is out of range",
    "  error_file: <N/A>",
    "W0304 torch/_inductor/utils.py:1250] [0/0] Not enough SMs to use max_autotune_gemm mode",
    "INFO: if you see CUDA out of memory, reduce --micro-batch-size",
    "To avoid RuntimeError: CUDA out of memory. Tried to allocate errors, enable activation checkpointing",
    "[auto batch] caught torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB; retrying with 4",
    "W0304 10:00:00 CUDA out of memory was recovered from by the allocator",
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "node01:99:99 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
    "[INFO] watchdog timeout of collectives: 600 s",
    "Setting NCCL_ASYNC_ERROR_HANDLING=1: watchdog aborts on timeout",
    "loading checkpoint: 0 missing keys, 0 unexpected keys, no such file is needed",
    "/usr/lib/python3/site-packages/torch/cuda/__init__.py:51: UserWarning: CUDA initialization: No CUDA GPUs are available",
    "(Master): Killed 0 stale workers",
    "CUDA_VISIBLE_DEVICES=0,1,2,3 CUDA error checking: off",
    "{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.1}",
    "loss scale: 65536.0, loss is finite",
    "Xid monitoring enabled",
    "FutureWarning: FileNotFoundError will be raised in the future",
    "exit code 0",
    *THREAD_HARMLESS,
)
"""Lines that only mention a failure."""
