"""Failures from public threads of all frameworks: the fourth of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

FOURTH_ROUND: Final = {
    "axolotl wrappers": (
        "Traceback (most recent call last):\n  File \"/opt/axolotl/src/axolotl/cli/train.py\", line 120, in <module>\n    fire.Fire(do_cli)\n  File \"/opt/axolotl/src/axolotl/monkeypatch/peft/utils.py\", line 78, in fixed_prepare\n    assert len(compute_lse_indices) == 1\nAssertionError: DORA is not supported with cut cross entropy\nsubprocess.CalledProcessError: Command '['/opt/bin/python', '-m', 'axolotl.cli.train', '/opt/main.yml', '--debug-num-examples', '0']' returned non-zero exit status 1.\n[2025-06-30 12:49:32,482] [ERROR] [axolotl.cli.main.train:184] [PID:22098] [RANK:0] Failed to train/fine-tune config '/opt/main.yml': Command '['accelerate', 'launch', '-m', 'axolotl.cli.train', '/opt/main.yml', '--debug-num-examples', '0']' returned non-zero exit status 1.\nTraceback (most recent call last):\n  File \"/opt/bin/axolotl\", line 8, in <module>\n    sys.exit(main())\nsubprocess.CalledProcessError: Command '['accelerate', 'launch', '-m', 'axolotl.cli.train', '/opt/main.yml']' returned non-zero exit status 1.",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: DORA is not supported wi",
    ),
    "grpo generations": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nValueError: The global train batch size (1 x 1) must be evenly divisible by the number of generations per prompt (6). Given the current train batch size, the valid values for the number of generations are: [].',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: The global train batch size ",
    ),
    "nvml gpu lost": (
        "slurmstepd: error: NVML: Failed to get usage(15): GPU is lost\nsrun: error: gpu12: task 3: Exited with exit code 1\nsrun: Terminating StepId=4411.0",
        "CRASHED",
        "a GPU failed",
        "slurmstepd: error: NVML: Failed to get u",
    ),
    "sigbus at every rank": (
        "[E] 2024-01-16 18:04:01 torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -7) local_rank: 0 (pid: 16609) of binary: /opt/bin/python\n============================================================\nsrc/train_bash.py FAILED\n------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-01-16_18:04:01\n  host      : node-1\n  rank      : 0 (local_rank: 0)\n  exitcode  : -7 (pid: 16609)\n  error_file: <N/A>\n  traceback : Signal 7 (SIGBUS) received by PID 16609\n============================================================\nsrun: error: node-1: task 0: Exited with exit code 1",
        "CRASHED",
        "a bus error: often too little shared memory",
        "traceback : Signal 7 (SIGBUS) received b",
    ),
    "mpi stderr shm": (
        '[1,0]<stdout>:Train Epoch: 1 [59520/60000 (99%)]\tLoss: 0.319679\n[1,0]<stderr>:ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n[1,0]<stderr>:Traceback (most recent call last):\n[1,0]<stderr>:  File "/opt/train.py", line 779, in _try_get_data\n[1,0]<stderr>:    data = self._data_queue.get(timeout=timeout)\n[1,0]<stderr>:RuntimeError: DataLoader worker (pid(s) 372) exited unexpectedly',
        "CRASHED",
        "a bus error: often too little shared memory",
        "[1,0]<stderr>:ERROR: Unexpected bus erro",
    ),
    "dcp missing key": (
        '[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\n[rank0]: Traceback (most recent call last): (RANK 0)\n[rank0]:   File "/opt/train.py", line 164, in reduce_scatter\n[rank0]:     local_data = map_fun()\n[rank0]:   File "/opt/train.py", line 365, in create_default_local_load_plan\n[rank0]:     raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")\n[rank0]: RuntimeError: Missing key in checkpoint state_dict: layer.weight.\n[rank0]: Traceback (most recent call last): (RANK 1)\n[rank0]:   File "/opt/train.py", line 164, in reduce_scatter\n[rank0]:     local_data = map_fun()\n[rank0]: RuntimeError: Missing key in checkpoint state_dict: layer.weight.',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Missing key in checkpoint ",
    ),
    "te cudnn frontend": (
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/opt/train.py\", line 9, in <module>\n[rank1]:     main()\n[rank1]: RuntimeError: /TransformerEngine/transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:373 in function operator(): cuDNN Error: Tensor 'sdpa_bwd::dP' strides not multiple of 4. For more information, enable cuDNN error logging by setting CUDNN_LOGERR_DBG=1 and CUDNN_LOGDEST_DBG=stderr in the environment.",
        "CRASHED",
        "cuBLAS or cuDNN failed",
        "RuntimeError: /TransformerEngine/transfo",
    ),
    "watchdog in a pane": (
        "[rank2]:[E816 00:34:01.133910474 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=137429, OpType=_ALLGATHER_BA[451/1919]\nn=71552, NumelOut=572416, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n[rank2]:[E816 00:34:01.140650897 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 1 Rank 2]  failure detected by watchdog at work sequence id: 137429 PG status: last enqueue\nd work: 137429, last completed work: 137428",
        "HUNG",
        "a collective operation timed out",
        "[rank2]:[E816 00:34:01.133910474 Process",
    ),
    "watchdog after a numbered bar": (
        "[1761]   1%|▏         | 22/1752 [01:02<1:21:36,  2.83s/it]\n[1762]   1%|▏         | 23/1752 [01:05<1:23:14,  2.89s/it]\n[1763]   1%|▏         | 24/1752 [01:08<1:22:56,  2.88s/it][rank5]:[E602 11:17:52.185053341 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1085, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.",
        "HUNG",
        "a collective operation timed out",
        "[1763] 1%|▏ | 24/1752 [01:08<1:22:56, 2.",
    ),
    "vllm server not reached": (
        "[E516 10:05:30.089184418 socket.cpp:1023] [c10d] The client socket has timed out after 300000ms while trying to connect to (0.0.0.0, 51216).\n[W516 10:05:30.089703847 TCPStore.cpp:330] [c10d] TCP client failed to connect/validate to host 0.0.0.0:51216 - retrying (try=0, timeout=300000ms, delay=34306ms): The client socket has timed out after 300000ms while trying to connect to (0.0.0.0, 51216).\nException raised from throwTimeoutError at /pytorch/torch/csrc/distributed/c10d/socket.cpp:1025 (most recent call first):",
        "CRASHED",
        "the ranks did not find each other",
        "[E516 10:05:30.089184418 socket.cpp:1023",
    ),
    "bridge microbatches": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ValueError: Input batch of 3 samples cannot be split evenly into 2 microbatches',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Input batch of 3 samples can",
    ),
    "two ranks in a line": (
        '  File "/opt/train.py", line 2169, in step\n    self.unscale_and_clip_grads(sub_group_id, scaled_global_grad_norm)  File "/opt/train.py", line 2169, in step\n    self.fp32_partitioned_groups_flat[sub_group_id].grad.mul_(1. / combined_scale)\nRuntimeErrorRuntimeError: : Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cpu!\n\n[2024-04-20 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4242',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeErrorRuntimeError: : Expected all",
    ),
    "unspecified launch after epochs": (
        ' 65%|██████▌   | 98/150 [18:47:34<9:58:18, 690.35s/epoch, loss=-1.01]\nTraceback (most recent call last):\n  File "/opt/train.py", line 202, in step\n    if loss.isfinite().all():\nRuntimeError: CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
        "CRASHED",
        "a GPU kernel failed",
        "RuntimeError: CUDA error: unspecified la",
    ),
    "streaming index, message on the next line": (
        "[1,mpirank:7,algo-1]<stderr>:Traceback (most recent call last):\n[1,mpirank:7,algo-1]<stderr>:  File \"/opt/train.py\", line 40, in <module>\n[1,mpirank:7,algo-1]<stderr>:    train_dataset = CustomStreamingDataset(\n[1,mpirank:7,algo-1]<stderr>:FileNotFoundError: [Errno 2] No such file or directory:\n[1,mpirank:7,algo-1]<stderr>:'opt/ml/mds-cache/index.json.tmp.tmp'",
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: [Errno 2] No such fil",
    ),
    "no C compiler for triton": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.',
        "CRASHED",
        "an exception ended a rank",
        "torch._inductor.exc.InductorError: Runti",
    ),
    "triton shared memory": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 180224, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.',
        "CRASHED",
        "an exception ended a rank",
        "triton.runtime.errors.OutOfResources: ou",
    ),
    "xpu memory": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.OutOfMemoryError: XPU out of memory. Tried to allocate 3.91 GiB. GPU 0 has a total capacity of 63.98 GiB. Of the allocated memory 58.91 GiB is allocated by PyTorch, and 2.84 GiB is reserved by PyTorch but unallocated.',
        "OOM",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError: XPU out of memor",
    ),
    "npu memory": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: NPU out of memory. Tried to allocate 1.50 GiB (NPU 0; 60.96 GiB total capacity; 57.94 GiB already allocated; 57.94 GiB current active; 1.10 GiB free; 58.71 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.',
        "OOM",
        "a GPU ran out of memory",
        "RuntimeError: NPU out of memory. Tried t",
    ),
    "cpu allocator": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can\'t allocate memory: you tried to allocate 268435456000 bytes. Error code 12 (Cannot allocate memory)',
        "CRASHED",
        "the host ran out of memory",
        "RuntimeError: [enforce fail at alloc_cpu",
    ),
    "accelerator error oom": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: out of memory\n[rank0]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.',
        "OOM",
        "a GPU ran out of memory",
        "torch.AcceleratorError: CUDA error: out ",
    ),
    "accelerator error illegal": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n[rank0]: Search for `cudaErrorIllegalAddress\' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.',
        "CRASHED",
        "a GPU kernel failed",
        "torch.AcceleratorError: CUDA error: an i",
    ),
    "safetensors cut": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nsafetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered',
        "CRASHED",
        "an exception ended a rank",
        "safetensors_rust.SafetensorError: Error ",
    ),
    "lfs pointer": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\n_pickle.UnpicklingError: invalid load key, 'v'.",
        "CRASHED",
        "an exception ended a rank",
        "_pickle.UnpicklingError: invalid load ke",
    ),
    "parquet": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.',
        "CRASHED",
        "an exception ended a rank",
        "pyarrow.lib.ArrowInvalid: Parquet magic ",
    ),
    "hub not reached": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub and we cannot find the requested files in the local cache. Please check your connection and try again or make sure your Internet connection is on.',
        "CRASHED",
        "a download failed",
        "huggingface_hub.errors.LocalEntryNotFoun",
    ),
    "wandb without a key": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])',
        "CRASHED",
        "access was denied",
        "wandb.errors.errors.UsageError: api_key ",
    ),
    "lsf memory, thread": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137.\n\nResource usage summary:\n\n    CPU time :                                   812.00 sec.\n    Max Memory :                                 512000 MB",
        "CRASHED",
        "the host ran out of memory",
        "TERM_MEMLIMIT: job killed after reaching",
    ),
    "sagemaker wraps oom": (
        '2025-02-11 10:12:44,113 sagemaker-training-toolkit ERROR    Reporting training FAILURE\n2025-02-11 10:12:44,113 sagemaker-training-toolkit ERROR    ExecuteUserScriptError:\nExitCode 1\nErrorMessage "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 3 has a total capacity of 39.39 GiB of which 91.94 MiB is free. Process 42 has 39.29 GiB memory in use.\n raise ChildFailedError("\nCommand "torchrun --nnodes 1 --nproc_per_node 8 train.py" ',
        "OOM",
        "a GPU ran out of memory",
        'ErrorMessage "torch.OutOfMemoryError: CU',
    ),
    "ray node memory": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.4, ID: 4242) where the task (actor ID: 8abc, name=MegatronTrainRayActor.__init__, pid=991, memory used=118.40GB) was running was 474.90GB / 480.00GB (0.989375), which exceeds the memory usage threshold of 0.95.',
        "CRASHED",
        "the host ran out of memory",
        "ray.exceptions.OutOfMemoryError: Task wa",
    ),
    "lightning no backend": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nlightning.fabric.utilities.exceptions.MisconfigurationException: No supported gpu backend found!',
        "CRASHED",
        "no usable GPU",
        "lightning.fabric.utilities.exceptions.Mi",
    ),
    "sighup": (
        'W0601 08:12:14.123000 4242 torch/distributed/elastic/agent/server/api.py:723] Received 1 death signal, shutting down workers\nW0601 08:12:14.124000 4242 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 4300 closing signal SIGHUP\nTraceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1',
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "W0601 08:12:14.123000 4242 torch/distrib",
    ),
    "ninja failed": (
        "FAILED: multi_tensor_adam.cuda.o\n/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -c /opt/deepspeed/ops/csrc/adam/multi_tensor_adam.cu -o multi_tensor_adam.cuda.o\nnvcc fatal   : Unsupported gpu architecture 'compute_100'\nninja: build stopped: subcommand failed.\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 2107, in _run_ninja_build\n    subprocess.run(\nsubprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\nThe above exception was the direct cause of the following exception:\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nRuntimeError: Error building extension 'fused_adam'",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error building extension '",
    ),
    "nvrx heartbeat": (
        "[2025-06-04 10:20:33,005] [ERROR] [RankMonitorServer@node7] Did not get subsequent heartbeat. Waited 182.73 seconds.\n[2025-06-04 10:20:33,105] [WARNING] [ft_launcher] Rank terminated by RankMonitorServer: rank=12",
        "HUNG",
        "something was waited for in vain",
        "[2025-06-04 10:20:33,005] [ERROR] [RankM",
    ),
    "nvlink uncorrectable": (
        "[rank6]:[E412 12:11:02.1 ProcessGroupNCCL.cpp:1895] [PG ID 2 PG GUID 5 Rank 6] Process group watchdog thread terminated with exception: CUDA error: uncorrectable NVLink error detected during the execution\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "CRASHED",
        "a GPU failed",
        "[rank6]:[E412 12:11:02.1 ProcessGroupNCC",
    ),
    "bad_alloc": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nrun.sh: line 20: 77110 Aborted                 (core dumped) python pretrain_gpt.py",
        "CRASHED",
        "the host ran out of memory",
        "terminate called after throwing an insta",
    ),
    "megatron index files": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix /data/c4_text_document',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: One or both of the .idx ",
    ),
    "flash attention not installed": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed. Please refer to the documentation of https://huggingface.co/docs/transformers/perf_infer_gpu_one#flashattention-2 to install Flash Attention 2.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: FlashAttention2 has been to",
    ),
    "peft targets": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nValueError: Target modules {'q_proj', 'v_proj'} not found in the base model. Please check the target modules and try again.",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Target modules {'q_proj', 'v",
    ),
    "transformers too old": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 1071, in from_pretrained\n    config_class = CONFIG_MAPPING[config_dict["model_type"]]\nKeyError: \'qwen3_moe\'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nValueError: The checkpoint you are trying to load has model type `qwen3_moe` but Transformers does not recognize this architecture. This could be because of an issue with the checkpoint, or because your version of Transformers is out of date.',
        "CRASHED",
        "an exception ended a rank",
        "ValueError: The checkpoint you are tryin",
    ),
    "hf argument": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nValueError: Some specified arguments are not used by the HfArgumentParser: ['--overwrite_output_dir', 'True']",
        "CRASHED",
        "the trainer refused its arguments",
        "ValueError: Some specified arguments are",
    ),
    "nanotron unknown key": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: dacite.exceptions.UnexpectedDataError: can not match "general.consumed_samples" to any data class field',
        "CRASHED",
        "an exception ended a rank",
        "dacite.exceptions.UnexpectedDataError: c",
    ),
    "olmo-core configuration": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: olmo_core.exceptions.OLMoConfigurationError: rank batch size (12,288) must be divisible by sequence length (8,192)',
        "CRASHED",
        "an exception ended a rank",
        "olmo_core.exceptions.OLMoConfigurationEr",
    ),
}
