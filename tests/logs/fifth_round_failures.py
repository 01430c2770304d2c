"""Failures from public threads of all frameworks: the fifth of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

FIFTH_ROUND: Final = {
    "olmo data thread": (
        "[2024-08-18 12:29:21] INFO     [olmo.train:966, rank=0] [step=3/739328,epoch=0]\n    train/CrossEntropyLoss=10.70\n[2024-08-18 12:37:50] CRITICAL [olmo.util:165, rank=5] Uncaught OLMoThreadError: generator thread data thread 0 failed\n╭───────────────── Traceback (most recent call last) ──────────────────╮\n│ /opt/OLMo/olmo/data/iterable_dataset.py:190 in __iter__              │\n╰──────────────────────────────────────────────────────────────────────╯\nOLMoThreadError: generator thread data thread 0 failed",
        "CRASHED",
        "an exception ended a rank",
        "OLMoThreadError: generator thread data t",
    ),
    "double rank prefix": (
        '[rank1]:[rank1]: Traceback (most recent call last):\n[rank1]:[rank1]:   File "/opt/train.py", line 368, in stage_backward\n[rank1]:[rank1]:     torch.autograd.backward(\n[rank1]:[rank1]:     ^^^^^^^^^^^^^^^^^^^^^^^\n[rank1]:[rank1]: torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\n[rank1]:[rank1]: Number of tensors saved during forward: 38\n[rank1]:[rank1]: Number of tensors saved during recomputation: 37.\n[rank1]:[rank1]:\n[rank1]:[rank1]: The above exception was the direct cause of the following exception:\n[rank1]:[rank1]:\n[rank1]:[rank1]: Traceback (most recent call last):\n[rank1]:[rank1]:   File "/opt/train.py", line 500, in <module>\n[rank1]:[rank1]:     main()\n[rank1]:[rank1]: RuntimeError: [rank1:stage1] For schedule Interleaved1F1B caught exception',
        "CRASHED",
        "an exception ended a rank",
        "torch.utils.checkpoint.CheckpointError: ",
    ),
    "deepep dispatch": (
        'Global rank: 6, num_recv_tokens: -1, num_rdma_recv_tokens: -1\nmoe_recv_expert_counter[0]: -1\n[rank428]: Traceback (most recent call last):\n[rank428]:   File "/opt/train.py", line 581, in internode_dispatch\n[rank428]:     recv_src_meta, send_rdma_head, send_nvl_head, event = self.runtime.internode_dispatch(\n[rank428]: RuntimeError: DeepEP error: timeout (dispatch CPU)',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: DeepEP error: timeout (dis",
    ),
    "deepep barrier": (
        "DeepEP timeout check failed: rank = 6, thread = 0, value = 0)\nDeepEP timeout check failed: rank = 6, thread = 1, value = 0)\nDeepEP timeout check failed: rank = 2, thread = 5, value = 1024)",
        "HUNG",
        "a collective operation timed out",
        "DeepEP timeout check failed: rank = 6, t",
    ),
    "lightning time limit with late bars": (
        "Epoch 10:  93%|█████████▎| 18626/20000 [5:43:21<25:19,  0.90it/s, v_num=0txx, train_loss=3.400]\nslurmstepd: error: *** STEP 55595933.0 ON node-3017 CANCELLED AT 2025-01-10T15:27:25 DUE TO TIME LIMIT ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n[rank: 0] Received SIGTERM: 15\nBypassing SIGTERM: 15\nEpoch 10:  93%|█████████▎| 18627/20000 [5:43:23<25:18,  0.90it/s, v_num=0txx, train_loss=3.970]\nEpoch 10:  93%|█████████▎| 18628/20000 [5:43:24<25:17,  0.90it/s, v_num=0txx, train_loss=3.970]\nEpoch 10:  93%|█████████▎| 18629/20000 [5:43:25<25:16,  0.90it/s, v_num=0txx, train_loss=3.970]",
        "TIMED_OUT",
        "the job reached its time limit",
        "slurmstepd: error: *** STEP 55595933.0 O",
    ),
    "scontrol in a container": (
        "[rank: 0] Received SIGUSR1, handling auto-requeue\n/bin/sh: 1: scontrol: not found",
        "CRASHED",
        "a program or file is missing",
        "/bin/sh: 1: scontrol: not found",
    ),
    "run config missing": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/checkpoints/iter_0002900/run_config.yaml'",
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: [Errno 2] No such fil",
    ),
    "megatron samples": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nAssertionError: last epoch number of samples exceeded max value.',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: last epoch number of sam",
    ),
    "accelerate config too new": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nTypeError: __init__() got an unexpected keyword argument 'gpu_ids'",
        "CRASHED",
        "an exception ended a rank",
        "TypeError: __init__() got an unexpected ",
    ),
    "nvme denied": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nPermissionError: [Errno 13] Permission denied: '/mnt/nvme0'",
        "CRASHED",
        "access was denied",
        "PermissionError: [Errno 13] Permission d",
    ),
    "cpu adam so": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: /opt/.cache/torch_extensions/py38_cu117/cpu_adam/cpu_adam.so: cannot open shared object file: No such file or directory',
        "CRASHED",
        "a dependency is missing",
        "ImportError: /opt/.cache/torch_extension",
    ),
    "cudnn finalize": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 720, in _conv_forward \n[rank0]:     return F.conv3d( \n[rank0]: RuntimeError: ptrDesc->finalize()',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: ptrDesc->finalize()",
    ),
    "setup failed": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: setup failed!',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: setup failed!",
    ),
    "mpirun node lost": (
        "--------------------------------------------------------------------------\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[23812,0],0] on node gpu-1\n  Remote daemon: [[23812,0],3] on node gpu-4\n\nThis is usually due to either a failure of the TCP network\nconnection to the node, or possibly an internal failure of\nthe daemon itself. We cannot recover from this failure, and\ntherefore will terminate the job.\n--------------------------------------------------------------------------",
        "CRASHED",
        "a node failed",
        "ORTE has lost communication with a remot",
    ),
    "pmix abort": (
        "--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 4 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n--------------------------------------------------------------------------\n[gpu-1:04211] 7 more processes have sent help message help-mpi-api.txt / mpi-abort",
        "CRASHED",
        "a rank aborted",
        "MPI_ABORT was invoked on rank 4 in commu",
    ),
    "slurm launch failed": (
        "srun: error: task 3 launch failed: Slurmd could not set up environment for batch job\nsrun: error: Application launch failed: Slurmd could not set up environment for batch job",
        "CRASHED",
        "Slurm refused the job",
        "srun: error: task 3 launch failed: Slurm",
    ),
    "munge": (
        "srun: error: Unable to allocate resources: Protocol authentication error",
        "CRASHED",
        "Slurm refused the job",
        "srun: error: Unable to allocate resource",
    ),
    "pyxis import": (
        "pyxis: importing docker image: nvcr.io/nvidia/nemo:25.04\nslurmstepd: error: pyxis: child 12345 failed with error code: 1\nslurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [ERROR] Could not process JSON input\nslurmstepd: error: pyxis: couldn't start container",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: child 12345 fa",
    ),
    "singularity": (
        "FATAL:   container creation failed: mount /lustre/data->/data error: while mounting /lustre/data: mount source /lustre/data doesn't exist",
        "CRASHED",
        "the container was not started",
        "FATAL: container creation failed: mount ",
    ),
    "conda activate": (
        "/var/spool/slurmd/job4242/slurm_script: line 14: conda: command not found\n/var/spool/slurmd/job4242/slurm_script: line 20: torchrun: command not found",
        "CRASHED",
        "a program or file is missing",
        "/var/spool/slurmd/job4242/slurm_script: ",
    ),
    "no module torch": (
        "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' (ModuleNotFoundError: No module named 'torch')",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: Error while finding mo",
    ),
    "stale nfs": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: OSError: [Errno 116] Stale file handle: '/lustre/ckpt/iter_0001000/__0_0.distcp'",
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 116] Stale file handle: ",
    ),
    "input/output error": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: OSError: [Errno 5] Input/output error: '/lustre/data/c4_text_document.bin'",
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 5] Input/output error: '",
    ),
    "too many files": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: OSError: [Errno 24] Too many open files: '/lustre/data/c4_17.idx'",
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 24] Too many open files:",
    ),
    "quota, thread": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: OSError: [Errno 122] Disk quota exceeded: '/lustre/ckpt/iter_0001000/common.pt'",
        "CRASHED",
        "the disk is full",
        "OSError: [Errno 122] Disk quota exceeded",
    ),
    "zip archive": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: PytorchStreamReader failed",
    ),
    "stream writer again": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: [enforce fail at inline_container.cc:778] . PytorchStreamWriter failed writing file data/12: file write failed',
        "CRASHED",
        "the disk is full",
        "RuntimeError: [enforce fail at inline_co",
    ),
    "nan check": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective. Device: 3, node: gpu-1',
        "CRASHED",
        "the loss is not a number",
        "AssertionError: found NaN in local grad ",
    ),
    "megatron rerun": (
        "[rank5]: RuntimeError: Rank 5, node gpu-2, device 5, iteration 1201: Unexpected result nan (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "[rank5]: RuntimeError: Rank 5, node gpu-",
    ),
    "grad inf": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nFloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the learning rate, using gradient clipping or increasing the batch size.',
        "CRASHED",
        "the loss scale is at its minimum",
        "FloatingPointError: Minimum loss scale r",
    ),
    "deepspeed scale": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nException: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.',
        "CRASHED",
        "the loss scale is at its minimum",
        "Exception: Current loss scale already at",
    ),
    "ecc": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n[rank0]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
        "CRASHED",
        "a GPU failed",
        "RuntimeError: CUDA error: uncorrectable ",
    ),
    "xid in the job's epilog": (
        "[Tue Mar  4 03:11:10 2025] NVRM: Xid (PCI:0000:9b:00): 94, pid=4242, name=python, Contained: SM (0x1). RST: No, D-RST: No\nsrun: error: gpu-7: task 5: Aborted (core dumped)",
        "CRASHED",
        "a GPU failed",
        "[Tue Mar 4 03:11:10 2025] NVRM: Xid (PCI",
    ),
    "busy gpus": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable',
        "CRASHED",
        "no usable GPU",
        "torch.AcceleratorError: CUDA error: CUDA",
    ),
    "driver too old": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: The NVIDIA driver on your ",
    ),
    "no kernel image": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: CUDA error: no kernel image is available for execution on the device',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: CUDA error: no kernel imag",
    ),
    "triton oom cuda": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Triton Error [CUDA]: out of memory',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: Triton Error [CUDA]: out o",
    ),
    "cublas alloc": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_",
    ),
    "te oom": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: /TransformerEngine/transformer_engine/common/util/cuda_runtime.cpp:64 in function foo: CUDA Error: out of memory',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "gated, thread": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nOSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/meta-llama/Llama-3.1-8B.\n401 Client Error. (Request ID: Root=1-42)',
        "CRASHED",
        "access was denied",
        "OSError: You are trying to access a gate",
    ),
    "address": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "heartbeat monitor": (
        "[rank3]:[E1104 18:02:33.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog\n[rank3]:[F1104 18:02:33.2 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 3] [PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
        "HUNG",
        "a collective operation timed out",
        "[rank3]:[E1104 18:02:33.1 ProcessGroupNC",
    ),
}
