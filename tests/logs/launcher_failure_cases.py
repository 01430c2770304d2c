"""Failures of launchers, containers, accelerators and data loaders, in the wording of the programs that print them."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

RANK: Final = "[rank3]:[E304 10:00:00.123456789 ProcessGroupNCCL.cpp:2084] "
TRACE: Final = '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n'
TORCHRUN: Final = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "============================================================\ntrain.py FAILED\n"
    "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
    "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n"
    "  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4242)\n  error_file: <N/A>\n"
)

LAUNCHER_FAILURES: Final = {
    "container out of memory": (
        "State: Terminated\n  Reason:       OOMKilled\n  Exit Code:    137",
        "CRASHED",
        "the host ran out of memory",
        "Reason:",
    ),
    "nccl, gpu memory": (
        TRACE
        + "[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1\n[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Cuda failure 2 'out of memory'",
        "OOM",
        "NCCL found no GPU memory for its buffers",
        "Cuda failure 2",
    ),
    "nccl, cuda": (
        TRACE
        + "[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1\n[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Cuda failure 217 'peer access is not supported between these two devices'",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, one gpu twice": (
        TRACE
        + "[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, invalid usage (run with NCCL_WARN=INFO for details), NCCL version 2.20.5\n[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n[rank1]: Last error:\n[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "illegal instruction": (
        TRACE + "[rank0]: torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "torch.AcceleratorError",
    ),
    "misaligned address": (
        TRACE + "[rank0]: RuntimeError: CUDA error: misaligned address",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError",
    ),
    "launch failure, current": (
        TRACE
        + "[rank0]: torch.AcceleratorError: CUDA error: unspecified launch failure\n[rank0]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "CRASHED",
        "a GPU kernel failed",
        "torch.AcceleratorError",
    ),
    "oom, accelerator error": (
        TRACE + "[rank0]: torch.AcceleratorError: CUDA error: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "torch.AcceleratorError",
    ),
    "hip, oom": (
        TRACE + "[rank0]: torch.AcceleratorError: HIP error: out of memory",
        "OOM",
        "a GPU ran out of memory",
        "torch.AcceleratorError",
    ),
    "hip, illegal access": (
        TRACE + "[rank0]: RuntimeError: HIP error: an illegal memory access was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError",
    ),
    "hip, memory fault": (
        "Memory access fault by GPU node-2 (Agent handle: 0x7f00) on address 0x7f1200000000. Reason: Unknown.",
        "CRASHED",
        "a GPU kernel failed",
        "Memory access fault",
    ),
    "gpu off the bus": (
        "[ 1234.5678] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "CRASHED",
        "a GPU failed",
        "[ 1234.5678] NVRM",
    ),
    "slurm, node failure of a step": (
        "slurmstepd: error: *** STEP 4242.0 ON node01 CANCELLED AT 2026-03-04T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "CRASHED",
        "a node failed",
        "slurmstepd",
    ),
    "srun oom": (
        "srun: error: node01: task 3: Out Of Memory\nsrun: Terminating StepId=4242.0",
        "CRASHED",
        "the host ran out of memory",
        "srun: error",
    ),
    "lsf memory": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.",
        "CRASHED",
        "the host ran out of memory",
        "TERM_MEMLIMIT",
    ),
    "numpy memory": (
        TRACE
        + "[rank0]: numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape (1, 2) and data type float32",
        "CRASHED",
        "the host ran out of memory",
        "numpy._core",
    ),
    "data loader killed": (
        TRACE + "[rank0]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ",
        "CRASHED",
        "the host ran out of memory",
        "RuntimeError: DataLoader worker",
    ),
    "data loader bus error": (
        'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory. Please try to raise your shared memory limit.',
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error",
    ),
    "no download": (
        TRACE
        + "[rank0]: OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        "CRASHED",
        "a download failed",
        "OSError",
    ),
    "no token": (
        TRACE
        + "[rank0]: huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-6)\n[rank0]: Repository Not Found for url: https://huggingface.co/x/y/resolve/main/config.json.",
        "CRASHED",
        "access was denied",
        "huggingface_hub",
    ),
    "struct": (
        "Error executing job with overrides: ['model.foo=1']\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: omegaconf.errors.ConfigAttributeError: Key 'foo' is not in struct\n[rank0]:     full_key: model.foo\n[rank0]:     object_type=dict",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf",
    ),
    "hydra": (
        "Could not override 'model.foo'.\nTo append to your config use +model.foo=1\nKey 'foo' is not in struct\n    full_key: model.foo\n    object_type=dict\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
        "CRASHED",
        "the trainer refused its arguments",
        "Could not override",
    ),
    "tyro": (
        "╭─ Unrecognized options ────────────────────────────────────────╮\n│ Unrecognized options: --training.batch_size                   │\n│ ───────────────────────────────────────────────────────────── │\n│ For full helptext, run train.py --help                        │\n╰───────────────────────────────────────────────────────────────╯\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 2 (pid: 4242)\n  error_file: <N/A>\n",
        "CRASHED",
        "the trainer refused its arguments",
        "│ Unrecognized options",
    ),
    "heads": (
        TRACE
        + "[rank0]: AssertionError: num_attention_heads (30) must be divisible by tensor_model_parallel_size (8).",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: num_attention_heads (30) must be",
    ),
    "import of a name": (
        TRACE
        + "[rank0]: ImportError: cannot import name 'LlamaFlashAttention2' from 'transformers.models.llama.modeling_llama' (/opt/x.py)",
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "shared library": (
        TRACE + "[rank0]: ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "undefined symbol": (
        TRACE
        + "[rank0]: ImportError: /opt/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "nan, gradient bucket": (
        TRACE
        + "[rank0]: RuntimeError: Rank 3, node node01, device 3, iteration 12: found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective. Message: ",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Rank 3",
    ),
    "nan, rerun": (
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 0 at iteration #3 invocation #1 (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "ERROR:megatron",
    ),
    "apptainer": (
        "FATAL:   Unable to handle docker://x uri: while building SIF from layers",
        "CRASHED",
        "the container was not started",
        "FATAL",
    ),
    "pyxis": (
        "slurmstepd: error: pyxis: container start failed with error code: 1\nslurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/x.sqsh",
        "CRASHED",
        "the container was not started",
        "slurmstepd",
    ),
    "no torchrun": ("bash: line 1: torchrun: command not found", "CRASHED", "a program or file is missing", "bash"),
    "segfault, torchrun": (
        "E0304 10:00:00.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 0 (pid: 4242) of binary: /usr/bin/python\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : -11 (pid: 4242)\n  error_file: <N/A>\n  traceback : Signal 11 (SIGSEGV) received by PID 4242\n",
        "CRASHED",
        "a segmentation fault",
        "traceback : Signal 11",
    ),
    "shared memory of a kernel": (
        TRACE
        + "[rank0]: triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        "CRASHED",
        "an exception ended a rank",
        "triton.runtime.errors.OutOfResources",
    ),
    "barrier": (
        TRACE + "[rank0]: RuntimeError: [Rank 0] Ranks 3 failed to pass monitoredBarrier in 300000 ms",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError",
    ),
    "watchdog, hang": (
        "[rank3]:[F304 10:00:00.1 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0(default_pg) Rank 3] [PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
        "HUNG",
        "a collective operation timed out",
        "[rank3]",
    ),
    "sigterm, torchrun": (
        "W0304 10:00:00.000000 4242 torch/distributed/elastic/agent/server/api.py:704] Received Signals.SIGTERM death signal, shutting down workers",
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "W0304",
    ),
    "driver": (
        TRACE
        + "[rank0]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda driver combination",
        "CRASHED",
        "no usable GPU",
        "RuntimeError: Unexpected error",
    ),
    "gpu busy": (
        TRACE + "[rank0]: RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "CRASHED",
        "no usable GPU",
        "RuntimeError",
    ),
    "deepspeed, batch": (
        TRACE
        + "[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 4 * 1",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Check batch",
    ),
    "slurm memory limit": (
        "slurmstepd: error: Job 4242 exceeded memory limit (1024 > 512), being killed\nslurmstepd: error: *** JOB 4242 ON node01 CANCELLED AT 2026-03-04T10:00:00 ***",
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd: error: Job 4242 exceeded",
    ),
    "pbs memory": (
        "=>> PBS: job killed: mem 512gb exceeded limit 500gb",
        "CRASHED",
        "the host ran out of memory",
        "=>> PBS",
    ),
    "evicted": (
        "The node was low on resource: memory. Container trainer was using 100Gi, which exceeds its request of 0.",
        "CRASHED",
        "the host ran out of memory",
        "The node was low",
    ),
    "slurm, task launch": (
        "srun: error: Task launch for StepId=4242.0 failed on node node02: Invalid job credential",
        "CRASHED",
        "a node failed",
        "srun: error: Task launch",
    ),
    "gradients, non-finite": (
        'WARNING: grad norm: inf, skipping step\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: The total norm",
    ),
    "gated, older": (
        TRACE
        + "[rank0]: OSError: You are trying to access a gated repo.\n[rank0]: Make sure to have access to it at https://huggingface.co/meta-llama/Llama-3.1-8B.\n[rank0]: 403 Client Error.",
        "CRASHED",
        "access was denied",
        "OSError: You are trying",
    ),
    "abort, mpi": (
        "*** Process received signal ***\n*** Signal: Aborted (6) ***\n*** Signal code:  (-6) ***",
        "CRASHED",
        "a rank aborted",
        "*** Signal: Aborted",
    ),
    "mpi, killed": (
        "mpirun noticed that process rank 3 with PID 4242 on node node01 exited on signal 9 (Killed).",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "mpirun noticed",
    ),
    "flight recorder": (
        "[rank0]:[E304 10:00:00.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 0] Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info.",
        "HUNG",
        "a collective operation timed out",
        "[rank0]:[E304",
    ),
    "parallel dims": (
        TRACE
        + "[rank0]: AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(2) * cp(1) * tp(2) * pp(1) != WORLD_SIZE(8)",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: Invalid parallel dims: dp_replicate(1)",
    ),
    "rich, oom": (
        "╭───────────────────── Traceback (most recent call last) ──────────────────────╮\n│ /opt/train.py:12 in <module>                                                 │\n│ ❱ 12     main()                                                              │\n╰──────────────────────────────────────────────────────────────────────────────╯\nOutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
        "OOM",
        "a GPU ran out of memory",
        "OutOfMemoryError",
    ),
}
