"""Failures from public threads of all frameworks: the third of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

THIRD_ROUND: Final = {
    "ucx segfault": (
        "[2025-09-25 19:31:25,858] [54741] [DEBUG] [megatron.core.dist_checkpointing.strategies.state_dict_saver] rank: 36, starting state dict save\n[dgx07:54741:0:55012] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x18)\n==== backtrace (tid:  55012) ====\n 0 0x0000000000042520 __sigaction()  ???:0",
        "CRASHED",
        "a segmentation fault",
        "[dgx07:54741:0:55012] Caught signal 11 (",
    ),
    "titan indented headless": (
        '    File "/opt/torchtitan/torchtitan/train.py", line 256, in __init__\n      model = self.train_spec.parallelize_fn(model, parallel_dims, job_config)\n    File "/opt/torchtitan/torchtitan/distributed/parallel_dims.py", line 273, in get_mesh\n      raise ValueError(\n      ...<2 lines>...\n      )\n  ValueError: Mesh \'tp\' is not available. Ensure the corresponding parallelism dimension is enabled (size > 1).',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Mesh 'tp' is not available. ",
    ),
    "titan cut bracket": (
        'rank0]: Traceback (most recent call last):\n[rank0]:   File "torchtitan/torchtitan/train.py", line 541, in <module>\n[rank0]:     trainer = Trainer(config)\n[rank0]:   File "lib/python3.10/site-packages/torch/distributed/device_mesh.py", line 730, in __getitem__\n[rank0]:     slice_mesh_dims = _mesh_resources._get_slice_mesh_dims(\n[rank0]: KeyError: "Invalid mesh_dim_names (\'dp_cp\',) specified. Valid mesh_dim_names are [\'tp\']."',
        "CRASHED",
        "an exception ended a rank",
        "KeyError: \"Invalid mesh_dim_names ('dp_c",
    ),
    "error file traceback": (
        'Root Cause (first observed failure):\n[0]:\n  time      : 2025-03-05_08:00:11\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4242)\n  error_file: /tmp/torchelastic_x/none/attempt_0/0/error.json\n  traceback : Traceback (most recent call last):\n    File "torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper\n      return f(*args, **kwargs)\n    File "torchtitan/torchtitan/train.py", line 329, in main\n      pred = model(input_ids)\n  RuntimeError: shape \'[1, 8192, -1, 128]\' is invalid for input of size 524288',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: shape '[1, 8192, -1, 128]'",
    ),
    "srun label headless": (
        "4: [rank4]:   File \"/opt/x/WeatherGenerator2/src/weathergen/train/trainer.py\", line 551, in train\n4: [rank4]:     preds, posteriors = self.model(\n4: [rank4]:                         ^^^^^^^^^^^\n4: [rank4]:   File \"/opt/x/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py\", line 1739, in _wrapped_call_impl\n4: [rank4]:     return self._call_impl(*args, **kwargs)\n4: [rank4]: AttributeError: 'NoneType' object has no attribute 'weight'",
        "CRASHED",
        "an exception ended a rank",
        "AttributeError: 'NoneType' object has no",
    ),
    "prolog then hydra": (
        "/etc/slurm/prolog.d/gpustats_helper.sh: line 5: /run/gpustat/0: Permission denied\n/etc/slurm/prolog.d/gpustats_helper.sh: line 8: /run/gpustat/GPU-7c8a8399: Permission denied\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nhydra.errors.ConfigCompositionException: You must specify 'lightning_module', e.g, lightning_module=<OPTION>\nAvailable options:\n\tlarge\n\tmedium",
        "CRASHED",
        "the trainer refused its arguments",
        "hydra.errors.ConfigCompositionException:",
    ),
    "lumi core dump": (
        "GPU core dump failed\nGPU core dump failed\nMemory access fault by GPU node-9 (Agent handle: 0x7d5f990) on address 0x14a1cfe01000. Reason: Unknown.\nMemory access fault by GPU node-6 (Agent handle: 0x7d5b060) on address 0x14c2c7e01000. Reason: Unknown.",
        "CRASHED",
        "a GPU kernel failed",
        "Memory access fault by GPU node-9 (Agent",
    ),
    "neox -7": (
        "[2023-05-18 02:58:46,147] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 1234\n[2023-05-18 02:58:46,147] [ERROR] [launch.py:324:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', '--local_rank=1', '--megatron_config', 'eyJ0'] exits with return code = -7",
        "CRASHED",
        "a rank died of a bus error",
        "[2023-05-18 02:58:46,147] [ERROR] [launc",
    ),
    "streaming bail out": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Waiting for local rank 0, bailing out: 60.000 < 60.053 sec.\nException ignored in: <function StreamingDataset.__del__ at 0x14c8a55131c0>\nTraceback (most recent call last):\n  File "/x/lib/python3.10/site-packages/streaming/base/dataset.py", line 851, in __del__\n    wait_for_local_leader(world)\nRuntimeError: Waiting for local rank 0, bailing out: 60.000 < 60.055 sec.\n\n----------End global rank 1 STDERR----------\nERROR:composer.cli.launcher:Global rank 0 (PID 1003409) exited with code -15',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Waiting for local rank 0, ",
    ),
    "shm exists": (
        "  File \"/opt/anaconda3/envs/llava/lib/python3.10/multiprocessing/shared_memory.py\", line 104, in __init__\n    self._fd = _posixshmem.shm_open(\nFileExistsError: [Errno 17] File exists: '/000000_barrier'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nPermissionError: [Errno 1] Operation not permitted: '/tmp/streaming/000000_barrier_filelock'",
        "CRASHED",
        "an exception ended a rank",
        "FileExistsError: [Errno 17] File exists:",
    ),
    "reused dir": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: ValueError: Reused local directory: ['/raid/x/my-copy-c4/train_small'] vs ['/raid/x/my-copy-c4/train_small']. Provide a different one. If using a unique local directory, try deleting the local directory and call `streaming.base.util.clean_stale_shared_memory()` only once in your script.",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Reused local directory: ['/r",
    ),
    "remote traceback": (
        'Map (num_proc=32):   0%|                                   | 0/19847 [00:00<?, ? examples/s]\nmultiprocess.pool.RemoteTraceback: \n"""\nTraceback (most recent call last):\n  File "/usr/local/lib/python3.10/dist-packages/multiprocess/pool.py", line 125, in worker\n    result = (True, func(*args, **kwds))\nKeyError: \'text\'\n"""\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nKeyError: \'text\'',
        "CRASHED",
        "an exception ended a rank",
        "KeyError: 'text'",
    ),
    "k8s stamps headless": (
        '2024-12-23T10:09:14.716377703Z   File "/workspace/axolotl/src/axolotl/core/trainer_builder.py", line 1837, in build\n2024-12-23T10:09:14.716696266Z     training_arguments_kwargs["chat_template"] = get_chat_template(\n2024-12-23T10:09:14.717415793Z                                                  ^^^^^^^^^^^^^^^^^^\n2024-12-23T10:09:14.717431894Z   File "/workspace/axolotl/src/axolotl/utils/chat_templates.py", line 58, in get_chat_template\n2024-12-23T10:09:14.717677496Z     raise ValueError(\n2024-12-23T10:09:14.717696906Z ValueError: `jinja_template` cannot be None when `chat_template` choice is jinja',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: `jinja_template` cannot be N",
    ),
    "llamafactory file": (
        '[rank5]: Traceback (most recent call last):\n[rank5]:   File "/opt/train.py", line 9, in <module>\n[rank5]:     main()\n[rank5]: ValueError: File data/mllm_dome.json not found.',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: File data/mllm_dome.json not",
    ),
    "nccl unlink": (
        "node01:4242:4300 [2] misc/shmutils.cc:87 NCCL WARN unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory\nnode01:4242:4300 [2] NCCL INFO transport/shm.cc:101 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "node01:4242:4300 [2] misc/shmutils.cc:87",
    ),
    "ibv reg mr": (
        "node01:4242:4300 [2] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\nnode01:4242:4300 [2] NCCL INFO transport/net_ib.cc:640 -> 2",
        "CRASHED",
        "InfiniBand failed",
        "node01:4242:4300 [2] misc/ibvwrap.cc:252",
    ),
    "meta tensor": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to a different device.',
        "CRASHED",
        "an exception ended a rank",
        "NotImplementedError: Cannot copy out of ",
    ),
    "fsdp state": (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/opt/train.py", line 9, in <module>\n[rank1]:     main()\n[rank1]: ValueError: expected to be in states [<TrainingState.FORWARD_BACKWARD: 2>] but current state is TrainingState.IDLE',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: expected to be in states [<T",
    ),
    "mp spawn": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nFileExistsError: [Errno 17] File exists: \'/000000_epoch_shape\'',
        "CRASHED",
        "an exception ended a rank",
        "FileExistsError: [Errno 17] File exists:",
    ),
    "oom private pools": (
        '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/opt/train.py", line 9, in <module>\n[rank3]:     main()\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. GPU 0 has a total capacity of 94.99 GiB of which 3.16 GiB is free. Process 12 has 91.82 GiB memory in use. Of the allocated memory 79.00 GiB is allocated by PyTorch, with 240.00 MiB allocated in private pools (e.g., CUDA Graphs), and 8.11 GiB is reserved by PyTorch but unallocated.',
        "OOM",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError: CUDA out of memo",
    ),
    "pinned": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: CUDA error: out of memory\n[rank0]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: CUDA error: out of memory",
    ),
    "te no kernel": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: /TransformerEngine/transformer_engine/common/fused_rope/fused_rope.cu:287 in function fused_rope_forward_launcher: CUDA Error: no kernel image is available for execution on the device',
        "CRASHED",
        "no usable GPU",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "te illegal": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: /TransformerEngine/transformer_engine/common/util/multi_stream.cpp:24 in function operator(): CUDA Error: an illegal memory access was encountered',
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "te fp8 dims": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by 16, but got tensor with dims=[300, 1024]',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: FP8 execution requires 2",
    ),
    "flash ampere": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: FlashAttention only supports Ampere GPUs or newer.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: FlashAttention only suppor",
    ),
    "rust panic": (
        'thread \'<unnamed>\' panicked at src/lib.rs:57:50:\ncalled `Result::unwrap()` on an `Err` value: Error("data did not match any variant of untagged enum ModelWrapper", line: 1251003, column: 3)\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\npyo3_runtime.PanicException: called `Result::unwrap()` on an `Err` value: Error("data did not match any variant of untagged enum ModelWrapper", line: 1251003, column: 3)',
        "CRASHED",
        "an exception ended a rank",
        "pyo3_runtime.PanicException: called `Res",
    ),
    "stream writer": (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/opt/train.py", line 9, in <module>\n[rank1]:     main()\n[rank1]: OSError: [Errno 28] No space left on device\n[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n[rank1]: \n[rank1]: Traceback (most recent call last):\n[rank1]:   File "/opt/save.py", line 3, in f\n[rank1]:     torch.save(x, path)\n[rank1]: RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4212864 vs 4212756',
        "CRASHED",
        "the disk is full",
        "OSError: [Errno 28] No space left on dev",
    ),
    "wandb timeout": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nwandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec. Please try increasing the timeout with the `init_timeout` setting: `wandb.init(settings=wandb.Settings(init_timeout=120))`.',
        "CRASHED",
        "an exception ended a rank",
        "wandb.errors.errors.CommError: Run initi",
    ),
    "wandb key": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nwandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])',
        "CRASHED",
        "access was denied",
        "wandb.errors.errors.UsageError: api_key ",
    ),
    "due to signal": (
        "slurmstepd: error: *** JOB 4242 ON node01 CANCELLED AT 2026-02-03T03:04:05 DUE to SIGNAL Terminated ***\nslurmstepd: error: *** STEP 4242.0 ON node01 CANCELLED AT 2026-02-03T03:04:05 DUE to SIGNAL Terminated ***",
        "CANCELLED",
        "the job was cancelled",
        "slurmstepd: error: *** JOB 4242 ON node0",
    ),
    "srun bus": (
        "srun: error: node12: task 5: Bus error\nsrun: Terminating StepId=77.0\nslurmstepd: error: *** STEP 77.0 ON node11 CANCELLED AT 2026-02-03T03:04:05 ***\nsrun: error: node11: tasks 0-4,6-7: Terminated",
        "CRASHED",
        "a bus error: often too little shared memory",
        "srun: error: node12: task 5: Bus error",
    ),
    "srun segv": (
        "srun: error: node12: tasks 0-3: Segmentation fault (core dumped)",
        "CRASHED",
        "a segmentation fault",
        "srun: error: node12: tasks 0-3: Segmenta",
    ),
    "srun oom, thread": (
        "srun: error: gpu-12: task 0: Out Of Memory",
        "CRASHED",
        "the host ran out of memory",
        "srun: error: gpu-12: task 0: Out Of Memo",
    ),
    "pals 9": (
        "[2024-04-21 02:47:17][INFO][training:1251] -  saving checkpoint\nx3005c0s13b0n0.hsn.cm.polaris.alcf.anl.gov: rank 3 died from signal 9\nx3005c0s13b0n0.hsn.cm.polaris.alcf.anl.gov: rank 0 died from signal 15",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "x3005c0s13b0n0.hsn.cm.polaris.alcf.anl.g",
    ),
    "pals 1": (
        "x3005c0s25b1n0.hsn.cm.polaris.alcf.anl.gov: rank 6 exited with code 1\nx3005c0s13b0n0.hsn.cm.polaris.alcf.anl.gov: rank 0 died from signal 15",
        "CRASHED",
        "a rank failed",
        "x3005c0s25b1n0.hsn.cm.polaris.alcf.anl.g",
    ),
    "ninja": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Ninja is required to load ",
    ),
    "which c++": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nsubprocess.CalledProcessError: Command '['which', 'c++']' returned non-zero exit status 1.",
        "CRASHED",
        "a rank failed",
        "subprocess.CalledProcessError: Command '",
    ),
    "nccl nvlink": (
        "node01:4242:4300 [2] enqueue.cc:1556 NCCL WARN Cuda failure 'uncorrectable NVLink error detected during the execution'",
        "CRASHED",
        "a GPU failed",
        "node01:4242:4300 [2] enqueue.cc:1556 NCC",
    ),
    "bus worker": (
        'ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: DataLoader worker (pid 4321) is killed by signal: Bus error. It is possible that dataloader\'s workers are out of shared memory. Please try to raise your shared memory limit.',
        "CRASHED",
        "a bus error: often too little shared memory",
        "ERROR: Unexpected bus error encountered ",
    ),
    "port, thread": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "tokenizer fork": (
        "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nTypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
        "CRASHED",
        "an exception ended a rank",
        "TypeError: Trainer.__init__() got an une",
    ),
}
