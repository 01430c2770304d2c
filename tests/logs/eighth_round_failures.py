"""Failures from public threads, the eighth to the seventeenth round."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

EIGHTH_ROUND: Final = {
    "thread: nan loss as an exception": (
        'Traceback (most recent call last):\n  File "/opt/olmo/train.py", line 690, in train_step\n    raise ValueError("nan loss encountered")\nValueError: nan loss encountered',
        "CRASHED",
        "the loss is not a number",
        "ValueError: nan loss encountered",
    ),
    "thread: exception of a data loader's worker": (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/opt/train.py", line 214, in main\n[rank2]:     for batch in loader:\n[rank2]: IndexError: Caught IndexError in DataLoader worker process 3.\n[rank2]: Original Traceback (most recent call last):\n[rank2]:   File "/opt/torch/utils/data/_utils/worker.py", line 351, in _worker_loop\n[rank2]:     data = fetcher.fetch(index)\n[rank2]: IndexError: list index out of range',
        "CRASHED",
        "an exception ended a rank",
        "IndexError: list index out of range",
    ),
    "thread: watchdog of an actor": (
        '(ActorModelRayActor pid=6146) [rank4]:[F1230 01:43:57.148 ProcessGroupNCCL.cpp:1306] [PG 0 (default_pg) Rank 4] ProcessGroupNCCL\'s watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\nTraceback (most recent call last):\n  File "/opt/cli/train_ppo_ray.py", line 171, in train\n    ray.get(refs)\nray.exceptions.RayTaskError(ActorDiedError): ray::ActorModelRayActor.fit() (pid=6146, ip=192.0.2.1, actor_id=9c72)\n  File "/opt/trainer/ray/ppo_actor.py", line 300, in fit\n    trainer.fit()\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.',
        "HUNG",
        "a collective operation timed out",
        "(ActorModelRayActor pid=6146) [rank4]:[F",
    ),
    "thread: actor alone": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: WorkerDict\n\tpid: 4242\nThe actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
        "CRASHED",
        "a rank failed",
        "ray.exceptions.ActorDiedError: The actor",
    ),
    "thread: actor's node is dead": (
        "The node with node id: 1cc1 and address: 192.0.2.4 and node name: 192.0.2.4 has been marked dead because the detector has missed too many heartbeats from it.\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "CRASHED",
        "a node failed",
        "The node with node id: 1cc1 and address:",
    ),
    "thread: cudnn frontend": (
        "[rank0]: RuntimeError: cuDNN Frontend error: No valid engine configs for Matmul_MUL_Reduction_SUB_EXP_Matmul_",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: cuDNN Frontend error: No v",
    ),
    "thread: illegal instruction in ucx": (
        "Starting training loop at iteration 0\n[n1:4242:0:4242] Caught signal 4 (Illegal instruction: illegal operand)\n==== backtrace (tid:   4242) ====\n 0  /opt/hpcx/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x15551d4a3774]\nsrun: error: n1: tasks 0-7: Exited with exit code 132",
        "CRASHED",
        "a rank died of an illegal instruction",
        "[n1:4242:0:4242] Caught signal 4 (Illega",
    ),
    "thread: illegal instruction by exit code": (
        "srun: error: n1: tasks 0-7: Exited with exit code 132",
        "CRASHED",
        "a rank died of an illegal instruction",
        "srun: error: n1: tasks 0-7: Exited with ",
    ),
    "thread: arithmetic error by exit code": (
        "E0512 17:04:53.622000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -8) local_rank: 6 (pid: 4248) of binary: /usr/bin/python3",
        "CRASHED",
        "a rank died of an arithmetic error",
        "E0512 17:04:53.622000 4242 torch/distrib",
    ),
    "thread: store's protocol": (
        'n2: Traceback (most recent call last):\nn2:   File "/opt/torch/distributed/rendezvous.py", line 177, in _create_c10d_store\nn2:     return TCPStore(\nn2: RuntimeError: Stop_waiting response is expected',
        "CRASHED",
        "the ranks did not find each other",
        "RuntimeError: Stop_waiting response is e",
    ),
    "thread: kernel's error by way of nccl": (
        "n1:4242:4300 [0] enqueue.cc:1087 NCCL WARN Cuda failure 'misaligned address'\nTraceback (most recent call last):\n  File \"/opt/torch/distributed/distributed_c10d.py\", line 2050, in all_reduce\n    work = group.allreduce([tensor], opts)\nRuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "CRASHED",
        "a GPU kernel failed",
        "n1:4242:4300 [0] enqueue.cc:1087 NCCL WA",
    ),
    "thread: kernel's error with its number by way of nccl": (
        "n1: n1:4242:4300 [2] include/alloc.h:219 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
        "CRASHED",
        "a GPU kernel failed",
        "n1: n1:4242:4300 [2] include/alloc.h:219",
    ),
    "thread: device lost, xpu": (
        "[rank0]: RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        "CRASHED",
        "a GPU failed",
        "RuntimeError: level_zero backend failed ",
    ),
    "thread: machine check of slurm": (
        "slurmstepd: error: *** STEP 4242.0 ON n1 UNCORRECTABLE MEMORY ERROR AT 2025-05-01T10:00:00 ***",
        "CRASHED",
        "a node failed",
        "slurmstepd: error: *** STEP 4242.0 ON n1",
    ),
    "thread: probability tensor": (
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: probability tensor contain",
    ),
    "thread: cublas wrapper of deepspeed": (
        "!!!! kernel execution error. (m: 768, n: 1, k: 256, error: 13) \n[2023-05-17 10:00:00,123] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'main.py'] exits with return code = 1",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "!!!! kernel execution error. (m: 768, n:",
    ),
    "thread: nan of a tensor": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/models/flow_module.py", line 130, in model_step\n[rank0]:     raise ValueError("NaN encountered in pred_rots_vf")\n[rank0]: ValueError: NaN encountered in pred_rots_vf',
        "CRASHED",
        "the loss is not a number",
        "ValueError: NaN encountered in pred_rots",
    ),
    "thread: sacct, time limit": (
        "4242              train      gpu  research         64    TIMEOUT      0:0 \n4242.0           python             research         64  CANCELLED     0:15 ",
        "TIMED_OUT",
        "the job reached its time limit",
        "4242 train gpu research 64 TIMEOUT 0:0",
    ),
    "thread: sacct, memory": (
        "4242.batch        batch             research         64 OUT_OF_ME+    0:125 ",
        "CRASHED",
        "the host ran out of memory",
        "4242.batch batch research 64 OUT_OF_ME+ ",
    ),
    "thread: uncaught, logged": (
        "[2025-01-28 12:30:41] CRITICAL [olmo.util:168, rank=1] Uncaught ZeroDivisionError: division by zero",
        "CRASHED",
        "an exception ended a rank",
        "ZeroDivisionError: division by zero",
    ),
    "thread: thread's exception, logged": (
        "[2024-08-18 12:29:21] INFO     [olmo.train:966, rank=0] [step=3/739328,epoch=0]\n    train/CrossEntropyLoss=10.70\n    throughput/device/tokens_per_second=20,592\n[2024-08-18 12:30:41] CRITICAL [olmo.util:158, rank=0] Uncaught OLMoThreadError: generator thread data thread 0 failed",
        "CRASHED",
        "an exception ended a rank",
        "OLMoThreadError: generator thread data t",
    ),
    "thread: launcher of colossalai": (
        "Error: failed to run torchrun --nproc_per_node=4 --nnodes=1 --rdzv_endpoint=127.0.0.1:29500 train.py --config config.py on 127.0.0.1",
        "CRASHED",
        "a rank failed",
        "Error: failed to run torchrun --nproc_pe",
    ),
    "thread: Ray's memory monitor": (
        'Compute log probs:  76%|███████▌  | 244/320 [08:56<02:05,  1.65s/it]\n(raylet) [2025-04-02 15:02:00,117 E 4242 4242] (raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 351e, IP: 192.0.2.1) over the last time period.\nTraceback (most recent call last):\n  File "/opt/trainer/main.py", line 196, in run\n    trainer.fit()',
        "CRASHED",
        "the host ran out of memory",
        "(raylet) [2025-04-02 15:02:00,117 E 4242",
    ),
    "thread: advice of Ray's memory monitor": (
        "2025-03-24 14:49:45,286\tERR cli.py:70 -- ---------------------------------------\n2025-03-24 14:49:45,286\tINFO cli.py:83 -- Status message: Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n(ActorModelRayActor pid=42) 8798\t1.17\tray::ReferenceModelRayActor\n(ActorModelRayActor pid=42) Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html. Consider provisioning more memory on this node.",
        "CRASHED",
        "the host ran out of memory",
        "(ActorModelRayActor pid=42) Refer to the",
    ),
    "message: Ray, a worker crashed": (
        "(raylet) node_manager.cc:3084: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed due to other reasons at node (ID: b287, IP: 192.0.2.1) over the last time period.\nRuntimeError: shape '[8, 128]' is invalid for input of size 512",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: shape '[8, 128]' is invali",
    ),
    "thread: GPUs without fabric, by way of NCCL": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/torch/distributed/distributed_c10d.py\", line 4687, in barrier\n[rank0]:     work = group.barrier(opts=opts)\n[rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1\n[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Cuda failure 802 'system not yet initialized'",
        "CRASHED",
        "no usable GPU",
        "Cuda failure 802 'system not yet initial",
    ),
    "thread: cuBLAS of bitsandbytes": (
        'cuBLAS API failed with status 15\nA: torch.Size([2048, 6144]), B: torch.Size([6400, 6144]), C: (2048, 6400); (lda, ldb, ldc): (c_int(65536), c_int(204800), c_int(65536)); (m, n, k): (c_int(2048), c_int(6400), c_int(6144))\nerror detectedTraceback (most recent call last):\n  File "/opt/finetune.py", line 366, in <module>\n    main(args)',
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "cuBLAS API failed with status 15",
    ),
    "message: cuBLASLt of bitsandbytes": (
        "Exception: cublasLt ran into an error!",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "Exception: cublasLt ran into an error!",
    ),
    "thread: a task failed, and Slurm ended the others": (
        "[2026-04-29T23:36:37.809] error: *** STEP 42.0 ON n0 CANCELLED AT 2026-04-29T23:36:37 DUE TO TASK FAILURE ***\nsrun: error: n0: tasks 0-57,59-63: Terminated\nsrun: Force Terminated StepId=42.0",
        "CRASHED",
        "a rank failed",
        "[2026-04-29T23:36:37.809] error: *** STE",
    ),
    "message: Slurm, a step failed": (
        "slurmstepd: error: *** STEP 42.0 ON n0 FAILED (non-zero exit code or other failure mode) ***",
        "CRASHED",
        "a rank failed",
        "slurmstepd: error: *** STEP 42.0 ON n0 F",
    ),
    "thread: PyTorch's handler of signals": (
        "frame #3: ibv_get_async_event + 0x34 (0x7ff7386b54c4 in /lib/x86_64-linux-gnu/libibverbs.so.1)\n\nSIGSEGV(11), PID: 4242, Thread 4252: \n frame #0: c10::FatalSignalHandler::stacktraceSignalHandler(bool) + 0x6b (0x7ff7123b7e0b in /opt/torch/lib/libc10.so)",
        "CRASHED",
        "a rank died of a segmentation fault",
        "SIGSEGV(11), PID: 4242, Thread 4252:",
    ),
    "message: PyTorch's handler, abort": (
        "SIGABRT(6), PID: 4242, Thread 4252: ",
        "CRASHED",
        "a rank aborted",
        "SIGABRT(6), PID: 4242, Thread 4252:",
    ),
    "thread: probabilities that are no numbers": (
        '  0%|        | 2/87543 [00:18<223:50:10,  9.20s/it]../aten/src/ATen/native/cuda/TensorCompare.cu:110: _assert_async_cuda_kernel: block: [0,0,0], thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\nTraceback (most recent call last):\n  File "/opt/example.py", line 27, in <module>\n    trainer.train()\nRuntimeError: CUDA error: device-side assert triggered',
        "CRASHED",
        "the loss is not a number",
        "0%| | 2/87543 [00:18<223:50:10, 9.20s/it",
    ),
    "thread: Lightning sees fewer GPUs": (
        "pytorch_lightning.utilities.exceptions.MisconfigurationException: \n                You requested GPUs: [0, 1]\n                But your machine only has: [0]\n            ",
        "CRASHED",
        "no usable GPU",
        "But your machine only has: [0]",
    ),
    "message: an exception whose message is on the next line": (
        "omegaconf.errors.MissingMandatoryError:\n    trainer.devices",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.MissingMandatoryError:",
    ),
}
