"""Failures from public threads that were collected once the earlier ones were read right."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.launcher_failure_cases import TRACE

_STDERR: Final = (
    'stderr: Traceback (most recent call last):\nstderr:   File "train.py", line 9, in <module>\nstderr:     main()\n'
)

LATER: Final = {
    "mpi cannot start": (
        "*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n*** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,\n***    and potentially your MPI job)",
        "CRASHED",
        "a rank aborted",
        "*** ",
    ),
    "segfault in ucx": (
        "[node0262:1016852:0:1020747] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)\n==== backtrace (tid:1020747) ====\n 0  /opt/hpcx/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4)",
        "CRASHED",
        "a segmentation fault",
        "[node0262:",
    ),
    "transformer engine, cudnn": (
        TRACE
        + "[rank0]: RuntimeError: /opt/TransformerEngine/transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:358 in function fused_attn_arbitrary_seqlen_fwd_impl: cuDNN Error: execute(handle, plan->get_raw_desc(), variant_pack_descriptor.get_ptr()) failed with code: CUDNN_STATUS_EXECUTION_FAILED",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError",
    ),
    "transformer engine, no plan": (
        TRACE
        + "[rank0]: RuntimeError: /opt/TransformerEngine/transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:373 in function operator(): cuDNN Error: [cudnn_frontend] Error: No execution plans support the graph.",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError",
    ),
    "transformer engine, no attention": (
        TRACE
        + "[rank0]: ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 to find out the reasons.",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: No dot product",
    ),
    "killed, torch 2.1": (
        "[2023-10-13 17:40:02,544] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 62498) of binary: /usr/bin/python",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "[2023-10-13",
    ),
    "bus error, torch 2.0": (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 5620 closing signal SIGTERM\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -7) local_rank: 1 (pid: 5621) of binary: /usr/bin/python3.10",
        "CRASHED",
        "a rank died of a bus error",
        "ERROR:torch",
    ),
    "aborted, deepspeed on several nodes": (
        "192.0.2.120: [2023-10-13 11:31:28,593] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 249\n192.0.2.120: [2023-10-13 11:33:59,102] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=7'] exits with return code = -6",
        "CRASHED",
        "a rank aborted",
        "192.0.2.120: [2023-10-13 11:33:59",
    ),
    "accelerate test": (
        _STDERR + "stderr: RuntimeError: CUDA error: invalid device ordinal",
        "CRASHED",
        "no usable GPU",
        "RuntimeError",
    ),
    "thrust": (
        TRACE
        + "[rank0]: RuntimeError: merge_sort: failed to synchronize: cudaErrorIllegalAddress: an illegal memory access was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: merge_sort",
    ),
    "two devices": (
        TRACE
        + "[rank0]: RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:1! (when checking argument for argument mat2)",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Expected all",
    ),
    "checkpoint of another model": (
        TRACE
        + "[rank0]: RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n[rank0]: \tsize mismatch for model.layers.1.mlp.up_proj.weight: copying a param with shape torch.Size([2816, 1024]) from checkpoint, the shape in current model is torch.Size([11008, 4096]).",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error(s)",
    ),
    "ssh refuses the key": (
        "node02: user@node02: Permission denied (publickey,password).\npdsh@node01: node02: ssh exited with exit code 255",
        "CRASHED",
        "a node was not reached",
        "node02: user@node02",
    ),
    "ssh knows no such host": (
        "ssh: Could not resolve hostname node0: Name or service not known\npdsh@node01: node0: ssh exited with exit code 255",
        "CRASHED",
        "a node was not reached",
        "ssh: Could not resolve",
    ),
    "deepspeed cannot reach a host": (
        'Traceback (most recent call last):\n  File "/opt/deepspeed/launcher/runner.py", line 437, in main\n    subprocess.check_call(ssh_check_cmd)\n'
        "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no 192.0.2.100 hostname' returned non-zero exit status 255.\n\nDuring handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/opt/bin/deepspeed", line 6, in <module>\n    main()\nRuntimeError: Using hostfile at /etc/hostfile but host=192.0.2.100 was not reachable via ssh. If you are running with a single node please remove /etc/hostfile or setup passwordless ssh.',
        "CRASHED",
        "a node was not reached",
        "RuntimeError: Using hostfile",
    ),
    "client socket refused": (
        TRACE
        + "[rank0]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (node01, 29500). The client socket has failed to connect to node01:29500 (errno: 111 - Connection refused).",
        "CRASHED",
        "the ranks did not find each other",
        "torch.distributed.DistNetworkError",
    ),
    "store lost its first rank": (
        TRACE
        + "[rank0]: torch.distributed.DistBackendError: [7] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
        "CRASHED",
        "a rank failed",
        "torch.distributed.DistBackendError",
    ),
    "lightning has too few gpus": (
        TRACE
        + "[rank0]: lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n[rank0]:  But your machine only has: [0]",
        "CRASHED",
        "no usable GPU",
        "lightning.fabric",
    ),
    "lightning has no gpu": (
        TRACE
        + "[rank0]: lightning_fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!",
        "CRASHED",
        "no usable GPU",
        "lightning_fabric",
    ),
    "nvml": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "CRASHED",
        "no usable GPU",
        "Failed to initialize NVML",
    ),
    "cuda, unknown error": (
        TRACE
        + "[rank0]: RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
        "CRASHED",
        "no usable GPU",
        "RuntimeError: CUDA unknown",
    ),
    "bf16 refused": (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nValueError: Your setup doesn\'t support bf16/gpu. You need Ampere+ GPU with cuda>=11.0',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Your setup",
    ),
    "hub unreachable, requests": (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/gpt2 (Caused by NewConnectionError(...))\"), '(Request ID: 1)')",
        "CRASHED",
        "a download failed",
        "requests.exceptions",
    ),
    "hub unreachable, httpx": (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\nhttpx.ConnectError: [Errno -2] Name or service not known',
        "CRASHED",
        "a download failed",
        "httpx.ConnectError",
    ),
    "slurm, no such nodes": (
        "srun: error: Unable to allocate resources: Requested node configuration is not available",
        "CRASHED",
        "Slurm refused the job",
        "srun: error: Unable to allocate",
    ),
    "gloo, interface": (
        TRACE
        + "[rank0]: RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth0",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: [enforce",
    ),
    "python itself": (
        "Fatal Python error: none_dealloc: deallocating None\nPython runtime state: initialized",
        "CRASHED",
        "a rank aborted",
        "Fatal Python error",
    ),
    "somebody ends torchrun": (
        'WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down workers\nTraceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 15',
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "WARNING:torch.distributed.elastic.agent",
    ),
    "conda": (
        "EnvironmentNameNotFound: Could not find conda environment: train\nYou can list all discoverable environments with `conda info --envs`.",
        "CRASHED",
        "a program or file is missing",
        "EnvironmentNameNotFound",
    ),
    "module, through srun --label": (
        "0: Traceback (most recent call last):\n0:   File \"train.py\", line 3, in <module>\n0:     import megatron\n0: ModuleNotFoundError: No module named 'megatron'\nsrun: error: node01: task 0: Exited with exit code 1",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    "oom, through mpirun": (
        '[1,3]<stderr>:Traceback (most recent call last):\n[1,3]<stderr>:  File "train.py", line 3, in <module>\n[1,3]<stderr>:    main()\n[1,3]<stderr>:RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 3; 39.59 GiB total capacity; 37.01 GiB already allocated)',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError",
    ),
    "traceback with a logger's prefix": (
        '[2025-01-01 10:00:00] ERROR: Traceback (most recent call last):\n[2025-01-01 10:00:01] ERROR:   File "train.py", line 3, in <module>\n[2025-01-01 10:00:01] ERROR:     main()\n[2025-01-01 10:00:01] ERROR: ValueError: hidden_size must be divisible by num_heads',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: hidden_size",
    ),
    "kubernetes, program": (
        'Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "torchrun": executable file not found in $PATH: unknown',
        "CRASHED",
        "a program or file is missing",
        "Error: failed to create containerd",
    ),
}
"""Collected once the earlier ones were read right: of them and `LATER_HARMLESS`, 24 of 40 were at first sight."""

LATER_HARMLESS: Final = (
    "[I1107 01:20:27.770733060 TCPStoreLibUvBackend.cpp:119] [c10d - debug] Read callback failed. code:-4095 name:EOF desc:end of file",
    "/opt/torch/nn/modules/module.py:1: UserWarning: Failed to initialize NumPy: No module named 'numpy'",
    "[NeMo W 2023-04-19 21:40:25 experimental:27] Module is experimental, not ready for production and is not fully supported. Use at your own risk.",
    "DEBUG:DotProductAttention:Disabling FusedAttention as no backend supports the provided input",
    "Error: log_level 'fatal' is not known; using 'info'",
    "gpu_mem: 61.2 GiB (out of memory 79.1 GiB)",
)
"""Lines of those logs that show no failure."""
