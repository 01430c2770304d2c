"""Failures from public threads that were collected in the last rounds, and lines that only mention an error."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

LAST: Final = {
    "hw exception after bar": (
        " 41%|████      | 366/903 [5:15:39<6:53:09, 46.16s/it]HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\nHW Exception by GPU node-9 (Agent handle: 0x64ff272d8ab0) reason :GPU Hang\nAborted (core dumped)",
        "CRASHED",
        "a GPU failed",
        "41%|████ | 366/903 [5:15:39<6:53:09, 46.",
    ),
    "ray worker trace": (
        "(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2) [2025-10-11 11:16:52] [decorator.py (306)] [ERROR] [actor_train-1 1 / 8][PID 18175] Traceback (most recent call last):\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2)   File \"/a/decorator.py\", line 295, in inner\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2)     result = func(*args, **kwargs)\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2) RuntimeError: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')",
        "CRASHED",
        "the loss is not a number",
        "(ActorWorker(actor_train-1) pid=18175, i",
    ),
    "ray task error": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nray.exceptions.RayTaskError(RuntimeError): ray::MegatronTrainRayActor.train() (pid=2407496, ip=172.17.0.2, actor_id=f1b740f0)\n           ^^^^^^^^^^\n  File "/root/slime/actor.py", line 311, in train\n    return self.train_actor(rollout_id, rollout_data)\n  File "/root/Megatron-LM/megatron/core/x.py", line 644, in f\n    config.finalize_model_grads_func(\nRuntimeError: Unexpected result nan (message=\'found NaN in local grad norm\')',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Unexpected result nan (mes",
    ),
    "interleaved assert": (
        'Traceback (most recent call last):\n    assert not total_norm.isnan(), (\n  File "/a/pretrain_megatron_baichuan.py", line 101, in <module>\nAssertionError: Rank 3: found NaN in local grad norm in backwards pass. Device: 3, node: n1\n    pretrain(train_valid_test_datasets_provider,',
        "CRASHED",
        "the loss is not a number",
        "AssertionError: Rank 3: found NaN in loc",
    ),
    "spawn wrapper": (
        '  File "/opt/conda/lib/python3.6/site-packages/torch/multiprocessing/spawn.py", line 119, in join\n    raise Exception(msg)\nException:\n\n-- Process 3 terminated with the following error:\nTraceback (most recent call last):\n  File "/opt/spawn.py", line 20, in _wrap\n    fn(i, *args)\nRuntimeError: expected scalar type Half but found Float',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: expected scalar type Half ",
    ),
    "rm init": (
        "[   38.773115] NVRM: RmInitAdapter failed! (0x26:0xffff:1127)\n[   38.773764] NVRM: rm_init_adapter failed for device bearing minor number 0",
        "CRASHED",
        "a GPU failed",
        "[ 38.773115] NVRM: RmInitAdapter failed!",
    ),
    "k8s evict disk": (
        "The node was low on resource: ephemeral-storage. Container trainer was using 92Gi, which exceeds its request of 0.",
        "CRASHED",
        "the disk is full",
        "The node was low on resource: ephemeral-",
    ),
    "k8s state": (
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
        "CRASHED",
        "the host ran out of memory",
        "Reason: OOMKilled",
    ),
    "jax illegal": (
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA error: : CUDA_ERROR_ILLEGAL_INSTRUCTION: an illegal instruction was encountered",
        "CRASHED",
        "a GPU kernel failed",
        "jaxlib.xla_extension.XlaRuntimeError: IN",
    ),
    "no module spec": (
        "/usr/bin/python3: Error while finding module specification for 'axolotl.cli.train' (ModuleNotFoundError: No module named 'axolotl')",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: Error while finding mo",
    ),
    "no module plain": (
        "/usr/bin/python3: No module named deepspeed",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: No module named deepsp",
    ),
    "cpuadam": (
        "Exception ignored in: <function DeepSpeedCPUAdam.__del__ at 0x7f0>\nTraceback (most recent call last):\n  File \"/opt/cpu_adam.py\", line 102, in __del__\n    self.ds_opt_adam.destroy_adam(self.opt_id)\nAttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'\n[2023-04-14 13:11:27,885] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3'] exits with return code = 1",
        "CRASHED",
        "a rank failed",
        "[2023-04-14 13:11:27,885] [ERROR] [launc",
    ),
    "titan mesh": (
        "[rank0]:[rank0]: AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)",
        "CRASHED",
        "an exception ended a rank",
        "[rank0]:[rank0]: AssertionError: Invalid",
    ),
    "titan float8": (
        '[rank3]:Traceback (most recent call last):\n[rank3]:  File "/opt/train.py", line 9, in <module>\n[rank3]:    main()\n[rank3]:ValueError: Float8 is only supported on SM89 or later.',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Float8 is only supported on ",
    ),
    "hydra": (
        "Error executing job with overrides: ['trainer.devices=8']\nTraceback (most recent call last):\n  File \"/opt/NeMo/x.py\", line 44, in main\n    trainer = MegatronTrainerBuilder(cfg).create_trainer()\nomegaconf.errors.ConfigAttributeError: Key 'precision_plugin' is not in struct\n    full_key: trainer.precision_plugin",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.ConfigAttributeError: K",
    ),
    "ipython style": (
        "ExceptionTraceback (most recent call last)\n<ipython-input-3-8d3997ec0919> in <module>\n      3 mnist_model = MNISTModel()\n----> 5 trainer.fit(mnist_model, train_loader)\nException: \nprocess 0 terminated with exit code 1",
        "CRASHED",
        "a rank failed",
        "process 0 terminated with exit code 1",
    ),
    "lightning exit": (
        "Epoch 1:  51%|█████     | 100/197 [00:21<00:20,  4.70it/s, loss=1.32]\nChild process with PID 4711 terminated with code 1. Forcefully terminating all other processes to avoid zombies 🧟\nKilled",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "Killed",
    ),
    "lightning seg": (
        "[rank: 1] Child process with PID 123456 terminated with code -11. Forcefully terminating all other processes to avoid zombies 🧟",
        "CRASHED",
        "a rank died of a segmentation fault",
        "[rank: 1] Child process with PID 123456 ",
    ),
    "lightning 9": (
        "[rank: 3] Child process with PID 123456 terminated with code -9. Forcefully terminating all other processes to avoid zombies 🧟",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "[rank: 3] Child process with PID 123456 ",
    ),
    "oom cufft": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: cuFFT error: CUFFT_ALLOC_FAILED',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: cuFFT error: CUFFT_ALLOC_F",
    ),
    "oom te": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: /opt/TransformerEngine/common/util/cuda_driver.cpp:40 in function call: CUDA Error: out of memory',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: /opt/TransformerEngine/com",
    ),
    "cuda te": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: /TransformerEngine/transformer_engine/common/gemm/cublaslt_gemm.cu:434 in function cublas_gemm: cuBLAS Error: the resource allocation failed',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "cublaslt te": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: /TransformerEngine/cublaslt_gemm.cu:382 in function cublas_gemm: cuBLAS Error: an unsupported value or parameter was passed to the function',
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: /TransformerEngine/cublasl",
    ),
    "nvshmem": (
        "/opt/nvshmem/src/host/init/init.cu:1023: non-zero status: 7 nvshmem setup connections failed",
        "CRASHED",
        "a connection between ranks failed",
        "/opt/nvshmem/src/host/init/init.cu:1023:",
    ),
    "jsonl log": (
        '{"asctime": "2026-01-05 10:00:00", "levelname": "ERROR", "message": "RuntimeError: CUDA error: an illegal memory access was encountered"}',
        "CRASHED",
        "a GPU kernel failed",
        '{"asctime": "2026-01-05 10:00:00", "leve',
    ),
    "timeout at nccl work": (
        "[rank14]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 14] Timeout at NCCL work: 15734, last enqueued NCCL work: 15735, last completed NCCL work: 15733.\n[rank14]:[E ProcessGroupNCCL.cpp:583] [Rank 14] To avoid data inconsistency, we are taking the entire process down.",
        "HUNG",
        "a collective operation timed out",
        "[rank14]:[E ProcessGroupNCCL.cpp:1537] [",
    ),
    "mpi stderr trace": (
        '[1,3]<stderr>:Traceback (most recent call last):\n[1,3]<stderr>:  File "train.py", line 4, in <module>\n[1,3]<stderr>:    main()\n[1,3]<stderr>:ValueError: bad shard index',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: bad shard index",
    ),
    "store get": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//cuda//0',
        "CRASHED",
        "an exception ended a rank",
        "torch.distributed.DistStoreError: wait t",
    ),
    "deepep": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: DeepEP error: timeout (dispatch CPU)',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: DeepEP error: timeout (dis",
    ),
    "apex driver": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: CUDA driver error: unknown error',
        "CRASHED",
        "a GPU failed",
        "RuntimeError: CUDA driver error: unknown",
    ),
}

LAST_HARMLESS: Final = (
    "ImportError: cannot import name 'fused_rope' from 'apex': falling back to the unfused kernel",
    "WARNING:root: ModuleNotFoundError: No module named 'flash_attn_3'",
    "node01: ConnectionError: retrying in 5 s",
    "wandb: ERROR Internal wandb error: file data was not synced",
    "INFO: ValueError: bad line 17 in shard 3, skipped",
    "Process 3 exited with code 0",
    "process 12 terminated with exit code 0",
    "frame #2: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f0 in libc10.so)",
)
