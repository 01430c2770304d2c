"""Failures from public threads of all frameworks: the second of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

SECOND_ROUND: Final = {
    "aoti oom": (
        '[W831 10:32:25.255074645 CUDACachingAllocator.cpp:508] expandable_segments: memory mapping failed with OOM on device 0 while trying to map 20971520 bytes (free: 15663104, total: 33671348224).\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: aoti_torch_empty_strided(3, int_array_74, int_array_75, cached_torch_dtype_bfloat16, cached_torch_device_type_cuda, 0, &buf80_handle) API call failed at /tmp/torchinductor_root/3s/c3s5.main.cpp, line 3311',
        "OOM",
        "a GPU ran out of memory",
        "[W831 10:32:25.255074645 CUDACachingAllo",
    ),
    "no triton configs": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch._inductor.exc.InductorError: NoTritonConfigsError: No valid triton configs. OutOfMemoryError: out of resource: triton_per_fused_native_layer_norm Required: 247808 Hardware limit:232448 Reducing block sizes or `num_stages` may help.',
        "CRASHED",
        "an exception ended a rank",
        "torch._inductor.exc.InductorError: NoTri",
    ),
    "driver invalid argument": (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/opt/train.py", line 9, in <module>\n[rank1]:     main()\n[rank1]: RuntimeError: CUDA driver error: invalid argument',
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: CUDA driver error: invalid",
    ),
    "thc": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: cuda runtime error (11) : invalid argument at /pytorch/aten/src/THC/THCGeneral.cpp:383',
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: cuda runtime error (11) : ",
    ),
    "429": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nhuggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/datasets/HuggingFaceFW/fineweb/paths-info/main (Request ID: Root=1-67f6)',
        "CRASHED",
        "a download failed",
        "huggingface_hub.errors.HfHubHTTPError: 4",
    ),
    "502": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nrequests.exceptions.HTTPError: 502 Server Error: Bad Gateway for url: https://huggingface.co/datasets/x/resolve/main/data/train-00012.parquet',
        "CRASHED",
        "a download failed",
        "requests.exceptions.HTTPError: 502 Serve",
    ),
    "aiohttp": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\naiohttp.client_exceptions.ClientPayloadError: Response payload is not completed: <TransferEncodingError: 400, message='Not enough data to satisfy transfer length header.'>",
        "CRASHED",
        "an exception ended a rank",
        "aiohttp.client_exceptions.ClientPayloadE",
    ),
    "server disconnected": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nConnectionError: Server Disconnected',
        "CRASHED",
        "an exception ended a rank",
        "ConnectionError: Server Disconnected",
    ),
    "te no backend": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ValueError: No dot product attention backend is available for the provided inputs. Please run with NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 to find out the reasons for disabling all backends.',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: No dot product attention bac",
    ),
    "te cudnn": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: /TransformerEngine/transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:373 in function operator(): cuDNN Error: [cudnn_frontend] Error: No execution plans support the graph.. For more information, enable cuDNN error logging by setting CUDNN_LOGERR_DBG=1 and CUDNN_LOGDEST_DBG=stderr in the environment.',
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "glibc": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32\' not found (required by /usr/local/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so)',
        "CRASHED",
        "a dependency is missing",
        "ImportError: /lib/x86_64-linux-gnu/libc.",
    ),
    "failed to import": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Failed to import transformers.models.clip.modeling_clip because of the following error (look up to see its traceback):\n/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32\' not found',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Failed to import transform",
    ),
    "ofi av": (
        "[1,23]<stdout>:\n[1,23]<stdout>:ip-172-32-45-165:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument\n[1,23]<stdout>:ip-172-32-45-165:72593:73427 [7] NCCL INFO include/net.h:24 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "[1,23]<stdout>:ip-172-32-45-165:72593:73",
    ),
    "socketstartconnect": (
        '(WorkerDict pid=312563, ip=172.19.230.131) Traceback (most recent call last):\n(WorkerDict pid=312563, ip=172.19.230.131)   File "/opt/train.py", line 9, in <module>\n(WorkerDict pid=312563, ip=172.19.230.131)     main()\n(WorkerDict pid=312563, ip=172.19.230.131) torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n(WorkerDict pid=312563, ip=172.19.230.131) ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n(WorkerDict pid=312563, ip=172.19.230.131) Last error:\n(WorkerDict pid=312563, ip=172.19.230.131) socketStartConnect: Connect to 169.254.0.1<40815> failed : Software caused connection abort',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "ofi rc 21": (
        "algo-1:112:241 [0] nccl_net_ofi_request_test:780 NCCL WARN NET/OFI Request completed with error. RC: 21. Error: unknown error. Completed length: 0, Request: { buffer_index: 255, dev: 0, size: 0, state: CREATED, direction: SEND }",
        "CRASHED",
        "NCCL or gloo failed",
        "algo-1:112:241 [0] nccl_net_ofi_request_",
    ),
    "unexpected pos": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: [enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: [enforce fail at inline_co",
    ),
    "missing mandatory": (
        "Error executing job with overrides: ['++model=hf/llama/llama-2-7b']\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nomegaconf.errors.MissingMandatoryValue: Missing mandatory value: model\n    full_key: model\n    object_type=dict",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.MissingMandatoryValue: ",
    ),
    "missing config": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nhydra.errors.MissingConfigException: In 'config': Could not find 'wandb/default'\n\nAvailable options in 'wandb':",
        "CRASHED",
        "the trainer refused its arguments",
        "hydra.errors.MissingConfigException: In ",
    ),
    "throughput assertion": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nAssertionError: Expected throughput to be at least 560000.0, instead found 289619.6825559826\nsrun: error: sn30-r1-h1: task 0: Exited with exit code 1\nsrun: Terminating job step 30399.0\nslurmstepd: error: *** STEP 30399.0 ON sn30-r1-h1 CANCELLED AT 2024-04-03T09:40:00 ***\nsrun: error: sn30-r1-h1: tasks 1,3-5: Terminated\nsrun: error: sn30-r1-h1: tasks 2,6-7: Killed\nsrun: Force Terminated job step 30399.0',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: Expected throughput to b",
    ),
    "gres": (
        "srun: error: Step requested GRES but job doesn't have GRES\nsrun: error: Unable to create step for job 20192207: Invalid generic resource (gres) specification",
        "CRASHED",
        "Slurm refused the job",
        "srun: error: Unable to create step for j",
    ),
    "processors": (
        "srun: error: Unable to create step for job 4242: More processors requested than permitted",
        "CRASHED",
        "Slurm refused the job",
        "srun: error: Unable to create step for j",
    ),
    "finished reduction": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss. You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by\n[rank0]: making sure all `forward` function outputs participate in calculating loss.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Expected to have finished ",
    ),
    "forked cuda": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Cannot re-initialize CUDA ",
    ),
    "device_map": (
        "    Traceback (most recent call last):\n      File \"/opt/oumi/lib/python3.11/site-packages/accelerate/accelerator.py\", line 1769, in prepare_model\n        raise ValueError(\n    ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode. Please rerun your script specifying `--num_processes=1` or by launching with `python {{myscript.py}}`.\n    [rank0]:[W108 21:00:14.242582016 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.\n    W0108 21:00:16.060000 243805 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] Sending process 243874 closing signal SIGTERM",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: You can't train a model that",
    ),
    "hip device function": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: HIP error: invalid device function\nHIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3\nCompile with `TORCH_USE_HIP_DSA` to enable device-side assertions.',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: HIP error: invalid device ",
    ),
    "wrong apex": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nImportError: cannot import name 'UnencryptedCookieSessionFactoryConfig' from 'pyramid.session' (unknown location)\nE0202 14:00:27.983000 3957034 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 3957105) of binary: /opt/bin/python3.10",
        "CRASHED",
        "a dependency is missing",
        "ImportError: cannot import name 'Unencry",
    ),
    "fatal aborted": (
        "        [rank0]:Fatal Python error: Aborted\n        [rank0]:\n        [rank0]:Current thread 0x00007f0360ff9640 (most recent call first):\n        [rank0]:  Garbage-collecting\n        [rank0]:  <no Python frame>\n        W0401 00:26:06.901000 3016633 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 3016738 closing signal SIGTERM\n        E0401 00:26:08.212000 3016633 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 3016739) of binary: /opt/bin/python3.11",
        "CRASHED",
        "a rank aborted",
        "[rank0]:Fatal Python error: Aborted",
    ),
    "xid 119": (
        "[  +6.010643] NVRM: Xid (PCI:0000:83:00): 119, pid=2710030, name=python3, Timeout waiting for RPC from GSP! Expected function 10 (FREE) (0xa55a0050 0x0).",
        "CRASHED",
        "a GPU failed",
        "[ +6.010643] NVRM: Xid (PCI:0000:83:00):",
    ),
    "stream capturing": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing\n[rank0]: Search for `cudaErrorStreamCaptureUnsupported\' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.',
        "CRASHED",
        "an exception ended a rank",
        "torch.AcceleratorError: CUDA error: oper",
    ),
    "ptx": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: the provided PTX was compiled with an unsupported toolchain.',
        "CRASHED",
        "no usable GPU",
        "torch.AcceleratorError: CUDA error: the ",
    ),
    "rtx p2p": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nNotImplementedError: Using RTX 3090 or 4000 series doesn\'t support faster communication broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1" or use `accelerate launch` which will do this automatically.',
        "CRASHED",
        "an exception ended a rank",
        "NotImplementedError: Using RTX 3090 or 4",
    ),
    "cuda mismatch": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\ndeepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.1 does not match the version torch was compiled with 11.7, unable to compile cuda/cpp extensions without a matching cuda version.\nException ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f6ac6dd4ca0>\nTraceback (most recent call last):\n  File \"/opt/lib/python3.10/site-packages/deepspeed/ops/adam/cpu_adam.py\", line 102, in __del__\n    self.ds_opt_adam.destroy_adam(self.opt_id)\nAttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        "CRASHED",
        "an exception ended a rank",
        "deepspeed.ops.op_builder.builder.CUDAMis",
    ),
    "deepspeed -9": (
        "Parameter Offload - Persistent parameters statistics: param_count = 257, numel = 676864\n[2026-05-18 03:37:03,778] [INFO] [launch.py:335:sigkill_handler] Killing subprocess 64724\n[2026-05-18 03:37:13,778] [ERROR] [launch.py:341:sigkill_handler] ['/opt/bin/python', '-u', 'train.py', '--local_rank=6', '--deepspeed', 'zero3.json'] exits with return code = -9",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "[2026-05-18 03:37:13,778] [ERROR] [launc",
    ),
    "deepspeed -2": (
        "[2026-05-18 03:37:03,778] [INFO] [launch.py:335:sigkill_handler] Killing subprocess 64724\n[2026-05-18 03:37:03,778] [ERROR] [launch.py:341:sigkill_handler] ['/opt/bin/python', '-u', 'train.py', '--local_rank=6'] exits with return code = -2",
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "[2026-05-18 03:37:03,778] [ERROR] [launc",
    ),
    "ezpz watchdog": (
        "[2026-05-23 21:06:37][I][components/metrics:526:log] step: 36  loss: 11.86712  grad_norm: 1.7081  memory: 44.18GiB(69.05%)  tps: 3,960  tflops: 44.31  mfu: 14.86%\n[2026-05-23 21:06:41][I][components/metrics:526:log] step: 37  loss: 11.80276  grad_norm: 1.7319  memory: 44.18GiB(69.05%)  tps: 3,919  tflops: 43.85  mfu: 14.70%\n[2026-05-23 21:36:41][E][ezpz/launch:124:_run_with_watchdog] Watchdog: no output for 1800.0s (timeout=1800s). Sending SIGTERM to PID 191892.",
        "HUNG",
        "something was waited for in vain",
        "[2026-05-23 21:36:41][E][ezpz/launch:124",
    ),
    "nccl error 1": (
        "[rank0]: RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n[rank1]: RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: NCCL Error 1: unhandled cu",
    ),
    "exceeded step memory": (
        "slurmstepd: error: Exceeded step memory limit at some point.\nsrun: error: node12: task 0: Killed",
        "CRASHED",
        "the host ran out of memory",
        "slurmstepd: error: Exceeded step memory ",
    ),
    "nan distribution": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: ValueError: Expected parameter scale (Tensor of shape (2048, 29)) of distribution Normal(loc: torch.Size([2048, 29]), scale: torch.Size([2048, 29])) to satisfy the constraint GreaterThan(lower_bound=0.0), but found invalid values:\n[rank0]: tensor([[nan, nan, nan]], device='cuda:2')",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Expected parameter scale (Te",
    ),
    "watchdog broken": (
        "[rank1]:[E1114 09:50:59.789610635 ProcessGroupNCCL.cpp:683] \n[Rank 1] Watchdog caught collective operation timeout: \nWorkNCCL(SeqNum=1, OpType=ALLGATHER, NumelIn=1, NumelOut=2, Timeout(ms)=600000) \nran for 600067 milliseconds before timing out.",
        "HUNG",
        "a collective operation timed out",
        "[Rank 1] Watchdog caught collective oper",
    ),
    "dump signal": (
        "[rank6]:[E703 21:51:54.112142364 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 56116, last completed NCCL work: 56116.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks.",
        "HUNG",
        "a collective operation timed out",
        "[rank6]:[E703 21:51:54.112142364 Process",
    ),
    "safetensors missing": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: FileNotFoundError: No such file or directory: "/models/qwen/model-00003-of-00004.safetensors"',
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: No such file or direc",
    ),
    "oserror hf": (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.\nCheck your internet connection or see how to run the library in offline mode at 'https://huggingface.co/docs/transformers/installation#offline-mode'.",
        "CRASHED",
        "a download failed",
        "OSError: We couldn't connect to 'https:/",
    ),
}
