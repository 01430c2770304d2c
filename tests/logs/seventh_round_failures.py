"""Failures from public threads, read blind in four rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

SEVENTH_ROUND: Final = {
    "exit code and traceback on one line": (
        "=>> [Epoch 000] Global Step 002464 =>> Learning Rate :: 0.000020 - Loss :: 0.0830:   5%|▍         | 2465/50000 [2:51:14<50:45:10,  3.84s/it]\n[job-master-0] [2026-03-30 19:24:35,966] torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 73 the closing signal SIGTERM\n[job-master-0] [2026-03-30 19:24:42,731] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) for binary located at /opt/bin/python3.10 with local_rank: 0 (process ID: 71) [job-master-0] Traceback (most recent call last):",
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "[job-master-0] [2026-03-30 19:24:42,731]",
    ),
    "signal in other words": (
        'Magick: abort due to signal 11 (SIGSEGV) "Segmentation Fault"...\nAborted',
        "CRASHED",
        "a rank died of a segmentation fault",
        "Magick: abort due to signal 11 (SIGSEGV)",
    ),
    "container's exit code": (
        'time="2024-02-21T09:30:56Z" level=info msg="PyTorchJob=pytorch-simple, ReplicaType=Worker expected=1, running=1, succeeded=0, failed=0, Replicas=1"\n1.708507856644096e+09\tDEBUG\tevents\tError pod pytorch-simple-worker-0 container pytorch exitCode: 1 terminated message: \t{"type": "Warning", "reason": "Error"}\n1.7085078566441019e+09\tDEBUG\tevents\tPod: kubeflow.pytorch-simple-worker-0 exited with code 1\t{"type": "Normal", "reason": "ExitedWithCode"}',
        "CRASHED",
        "a rank failed",
        "1.708507856644096e+09 DEBUG events Error",
    ),
    "c10 error alone": (
        "terminate called after throwing an instance of 'c10::Error'",
        "CRASHED",
        "a C++ exception ended a rank",
        "terminate called after throwing an insta",
    ),
    "no engine": (
        ">RuntimeError: GET was unable to find an engine to execute this computation",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: GET was unable to find an ",
    ),
    "process with an exception": (
        "Traceback (most recent call last):\n  File \"/opt/torch/testing/_internal/common_distributed.py\", line 926, in _check_return_codes\n    raise RuntimeError(error)\nRuntimeError: Process 0 exited with error code 10 and exception:\nTraceback (most recent call last):\n  File \"/opt/torch/testing/_internal/common_distributed.py\", line 766, in run_test\n    getattr(self, test_name)()\ntorch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nAttributeError: 'NoneType' object has no attribute 'meta'",
        "CRASHED",
        "an exception ended a rank",
        "torch._dynamo.exc.BackendCompilerFailed:",
    ),
    "actor's checkpoint": (
        '(EmbodiedFSDPActor pid=9860) Traceback (most recent call last):\n(EmbodiedFSDPActor pid=9860)   File "/opt/RLinf/rlinf/hybrid_engines/fsdp/strategy/base.py", line 257, in load_checkpoint\n(EmbodiedFSDPActor pid=9860)     dcp.load({"fsdp_checkpoint": training_state}, checkpoint_id=dcp_load_path)\n(EmbodiedFSDPActor pid=9860)   File "/opt/torch/distributed/checkpoint/state_dict_loader.py", line 229, in _load_state_dict\n(EmbodiedFSDPActor pid=9860)     central_plan: LoadPlan = distW.reduce_scatter("plan", local_step, global_step)\n(EmbodiedFSDPActor pid=9860) torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\n(EmbodiedFSDPActor pid=9860) Traceback (most recent call last): (RANK 0)\n(EmbodiedFSDPActor pid=9860)   File "/opt/torch/distributed/checkpoint/utils.py", line 192, in reduce_scatter\n(EmbodiedFSDPActor pid=9860) RuntimeError: Missing key in checkpoint state_dict: fsdp_checkpoint.optimizers.state.x.step.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Missing key in checkpoint ",
    ),
    "rich cut": (
        '│   644 │   │   │   │   if _get_pool_pid(pool) != initial_pool_pid:                                │\n│   646 │   │   │   │   │   # One of the subprocesses has died. We should not wait forever.        │\n│ ❱ 647 │   │   │   │   │   raise RuntimeError(                                                    │\n│   648 │   │   │   │   │   │   "One of the subprocesses has abruptly died during map operation.   │\n│   649 │   │   │   │   │   │   "To debug the error, disable multiprocessing."                     │\n╰──────────────────────────────────────────────────────────────────────────────────────────────────╯\nRuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable \nmultiprocessing.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: One of the subprocesses ha",
    ),
    "notebook": (
        'RuntimeError                              Traceback (most recent call last)\nCell In[7], line 20\n      3 # model = model.to("cuda")\n      5 training_args = SFTConfig(\n      6     output_dir="out",\n   (...)     17     dataset_num_proc=4,\n     18 )\n---> 20 trainer = SFTTrainer(\n     21     model=model,\n\nFile ~/miniconda3/lib/python3.12/site-packages/unsloth/trainer.py:210, in _backwards_compatible_trainer.<locals>.new_init(self, *args, **kwargs)\n    209         kwargs["args"] = config\n--> 210 original_init(self, *args, **kwargs)\n\nRuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: One of the subprocesses ha",
    ),
    "notebook, chained": (
        '    714                 "One of the subprocesses has abruptly died during map operation."\n    716             )\n    717 finally:\n\nRuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.\n\nThe above exception was the direct cause of the following exception:\n\nRuntimeError                              Traceback (most recent call last)\nCell In[4], line 2\n      1 from unsloth.chat_templates import standardize_data_formats\n----> 2 dataset = standardize_data_formats(dataset)\n\nRuntimeError: Unsloth: Process crashed: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: One of the subprocesses ha",
    ),
    "pod's times": (
        "2026-03-17T20:34:48.39285139+08:00 stderr F [INFO:swift] rank: 8, local_rank: 0, world_size: 16, local_world_size: 8\n2026-03-17T20:34:50.502211423+08:00 stderr F Traceback (most recent call last):\n2026-03-17T20:34:50.502219452+08:00 stderr F   File \"/usr/local/lib/python3.11/site-packages/swift/cli/rlhf.py\", line 7, in <module>\n2026-03-17T20:34:50.502260453+08:00 stderr F     rlhf_main()\n2026-03-17T20:34:50.50234774+08:00 stderr F     return SwiftRLHF(args).main()\n2026-03-17T20:34:50.5023478+08:00 stderr F            ^^^^^^^^^^^^^^^\n2026-03-17T20:34:50.502355+08:00 stderr F FileNotFoundError: [Errno 2] No such file or directory: '/opt/out/args.json'",
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: [Errno 2] No such fil",
    ),
    "no nccl on windows": (
        'Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1\n[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:61215 (system error: 10049).\nTraceback (most recent call last):\n  File "train.py", line 123, in <module>\n    trainer.fit(model, ckpt_path=args.ckpt)\nRuntimeError: Distributed package doesn\'t have NCCL built in',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Distributed package doesn'",
    ),
    "own validation": (
        "To avoid this warning pass in values for each of the problematic parameters or run `accelerate config`.\nValidation Error:\n--------------------------------------------------\nField: tokenizer\nError: Extra inputs are not permitted\n--------------------------------------------------",
        "CRASHED",
        "the trainer refused its arguments",
        "Error: Extra inputs are not permitted",
    ),
    "apex required": (
        "RuntimeError: Apex required to use megatron.",
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Apex required to use megat",
    ),
    "horovod primary": (
        "---------------------------------------------------------------------------------------\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n---------------------------------------------------------------------------------------\n\n2018-07-30 06:41:52.525932: W tensorflow/core/framework/op_kernel.cc:1318] OP_REQUIRES failed at mpi_ops.cc:422 : Aborted: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution.",
        "CRASHED",
        "a rank failed",
        "Primary job terminated normally, but 1 p",
    ),
    "mpirun, process name": (
        "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n-------------------------------------------------------\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  Process name: [[29973,1],0]\n  Exit code:    1",
        "CRASHED",
        "a rank failed",
        "Primary job terminated normally, but 1 p",
    ),
    "horovod shut down": (
        'Traceback (most recent call last):\n  File "train_hvd.py", line 181, in <module>\n    main()\n  File "/usr/local/lib/python3.6/dist-packages/horovod/torch/mpi_ops.py", line 290, in _broadcast_async\n    tensor, output, root_rank, name.encode() if name is not None else _NULL)\nRuntimeError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks finished execution. If the shutdown was caused by an exception, you should see the exception in the log before the first shutdown message.',
        "CRASHED",
        "a rank failed",
        "RuntimeError: Horovod has been shut down",
    ),
    "bottom of memory": (
        '> Traceback (most recent call last):\n>   File "/opt/examples/gptj_train.py", line 265, in <module>\n>     tyro.cli(main)\n> jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 11.51G at the bottom of memory. That was not possible. There are 8.75G free, 0B reserved, and 8.75G reservable.',
        "OOM",
        "a GPU ran out of memory",
        "jaxlib.xla_extension.XlaRuntimeError: RE",
    ),
    "tensorflow's words": (
        "[1] 2019-06-13 01:17:08.886805: E external/org_tensorflow/tensorflow/compiler/xla/python/local_client.cc:672] Execution of replica 0 failed: Resource exhausted: Out of memory while trying to allocate 5520758552 bytes.",
        "OOM",
        "a GPU ran out of memory",
        "[1] 2019-06-13 01:17:08.886805: E extern",
    ),
    "accept failed": (
        "n1:1001461:1009571 [1] NCCL INFO comm 0x5575bbed4480 rank 0 nranks 1 cudaDev 1 busId 2d000 - Abort COMPLETE\nn1:1001461:1009778 [1] NCCL INFO misc/socket.cc:47 -> 3\nn1:1001461:1009778 [1] NCCL INFO misc/socket.cc:621 -> 3\n\nn1:1001461:1003249 [1] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Success\nn1:1001461:1009778 [1] NCCL INFO comm 0x5575a76127e0 rank 1 nranks 2 cudaDev 1 busId 2d000 - Abort COMPLETE",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:1001461:1003249 [1] proxy.cc:1458 NCC",
    ),
    "shared memory of nccl": (
        "n1:1:10 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\nn1:1:10 [0] NCCL INFO include/shm.h:41 -> 2\n\nn1:1:10 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-b3d54cebe4167a34-0-2-3 (size 9637888)",
        "CRASHED",
        "too little shared memory",
        "n1:1:10 [0] include/shm.h:28 NCCL WARN C",
    ),
    "tokenizing first": (
        'Unsloth: Tokenizing ["text"] (num_proc=2): 100%\n 2500/2500 [00:06<00:00, 455.78 examples/s]\n---------------------------------------------------------------------------\nValueError                                Traceback (most recent call last)\n[/opt/cell.py](https://localhost:8080/#) in <cell line: 0>()\n----> 2 trainer = SFTTrainer(\nValueError: Unsloth: Most labels in your dataset are -100. Training losses will be all 0.',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Unsloth: Most labels in your",
    ),
    "instantiation": (
        "hydra.errors.InstantiationException: Cannot instantiate config of type Res16UNet34C.\nTop level config must be an OmegaConf DictConfig/ListConfig object,\na plain dict/list, or a Structured Config class or instance.",
        "CRASHED",
        "the trainer refused its arguments",
        "hydra.errors.InstantiationException: Can",
    ),
    "unsupported value": (
        "Traceback (most recent call last):\n  File \"locallaunch.py\", line 148, in <module>\n    main(args)\nomegaconf.errors.UnsupportedValueType: Value 'Config' is not a supported primitive type\n    full_key: fairseq\n    object_type=dict",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.UnsupportedValueType: V",
    ),
    "assertion of native code": (
        "python: /opt/deepspeed/ops/csrc/aio/common/deepspeed_aio_common.cpp:125: int _do_io_complete(long long int): Assertion `n_completes >= min_completes' failed.\n[2023-12-31 02:55:09,375] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 302",
        "CRASHED",
        "a rank aborted",
        "python: /opt/deepspeed/ops/csrc/aio",
    ),
    "no right to execute": (
        "slurmstepd: error: execve(): train.py: Permission denied\nsrun: error: n1: task 0: Exited with exit code 13",
        "CRASHED",
        "access was denied",
        "slurmstepd: error: execve()",
    ),
    "message in JSON": (
        'ERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n  "message": {\n    "message": "ValueError: bad shape",\n    "extraInfo": {',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: bad shape",
    ),
    "panic": (
        "thread '<unnamed>' panicked at tokenizers-lib/src/models/bpe/trainer.rs:517:53:\ncalled `Option::unwrap()` on a `None` value",
        "CRASHED",
        "a rank aborted",
        "thread '<unnamed>' panicked",
    ),
    "failed check": (
        "2025-01-01 00:00:00.12: W external/x.cc:12] slow\nF0901 14:05:23.537029  2971  2971 node_manager.cc:2557]  Check failed: queues.Remove(id) ffff\n*** Check failure stack trace: ***",
        "CRASHED",
        "a rank aborted",
        "F0901 14:05:23",
    ),
    "program timed out": (
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    x()\nsubprocess.TimeoutExpired: Command 'nvidia-smi' timed out after 60 seconds",
        "CRASHED",
        "an exception ended a rank",
        "subprocess.TimeoutExpired",
    ),
    "no write access": (
        "ValueError: Could not push the cached model to aws-neuron/optimum-neuron-cache because you do not have write access to this repo.",
        "CRASHED",
        "access was denied",
        "ValueError: Could not push the cached mo",
    ),
}
