"""Failures from public threads of all frameworks: the first of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

FIRST_ROUND: Final = {
    "watchdog exception only": (
        "[rank7]:[E419 10:42:28.861967180 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 9 Rank 7] Exception (either an error or timeout) detected by watchdog at work: 4486, last enqueued NCCL work: 4489, last completed NCCL work: 4485.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:1834] [PG ID 2 PG GUID 9 Rank 7] Timeout at NCCL work: 4486, last enqueued NCCL work: 4489, last completed NCCL work: 4485.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:630] [Rank 7] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:636] [Rank 7] To avoid data inconsistency, we are taking the entire process down.",
        "HUNG",
        "a collective operation timed out",
        "[rank7]:[E419 10:42:29.105 ProcessGroupN",
    ),
    "watchdog stuck": (
        "W0922 18:51:16.217000 1197897 torch/distributed/run.py:774] *****************************************\n[rank1]:[E922 19:07:21.891247234 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone behaviors.If you suspect the watchdog is not actually stuck and a longer timeout would help, you can either increase the timeout (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) to a larger value or disable the heartbeat monitor (TORCH_NCCL_ENABLE_MONITORING=0).",
        "HUNG",
        "a collective operation timed out",
        "[rank1]:[E922 19:07:21.891247234 Process",
    ),
    "watchdog pid prefix": (
        "[80746] [rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n[80746] [rank0]:[E321 02:07:08.465150152 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.",
        "HUNG",
        "a collective operation timed out",
        "[80746] [rank0]:[E321 02:07:08.408271257",
    ),
    "litgpt aborted": (
        "{'metric': 'val_loss: 3.12'}\n/data/tir/pretrain_then_finetune.sh: line 184: 2324239 Aborted                 (core dumped) litgpt pretrain $model_name --resume \"${checkpoint_dir}/step${step}/lit_model.pth\" --data FineWebDataset",
        "CRASHED",
        "a rank aborted",
        "/data/tir/pretrain_then_finetune.sh: lin",
    ),
    "olmo overwrite": (
        'Traceback (most recent call last):\n  File "/opt/OLMo/olmo/train.py", line 483, in _save_checkpoint\n    checkpointer.save_checkpoint(\n  File "/opt/lib/python3.10/site-packages/olmo_core/distributed/checkpoint/__init__.py", line 211, in save_model_and_optim_state\n    dir = _prepare_env_for_save(\nFileExistsError: /opt/ckpt/step0/model_and_optim\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "/opt/OLMo/scripts/train.py", line 389, in <module>\n    main(cfg)\nolmo.exceptions.OLMoConfigurationError: Checkpoint for step 0 already exists, use --save_overwrite to overwrite it',
        "CRASHED",
        "an exception ended a rank",
        "FileExistsError: /opt/ckpt/step",
    ),
    "olmo-core cuda": (
        "[2026-02-23 10:01:12] INFO     [olmo_core.train.callbacks.console_logger:62, rank=0] [step=10001/47684,epoch=1]\n    train/CE loss=2.021\nterminate called after throwing an instance of 'c10::AcceleratorError'\n  what():  CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\nException raised from c10_cuda_check_implementation at /pytorch/c10/cuda/CUDAException.cpp:42 (most recent call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f in libc10.so)",
        "CRASHED",
        "a GPU kernel failed",
        "what(): CUDA error: an illegal memory ac",
    ),
    "zarr invalid key": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/megatron-lm/megatron/core/dist_checkpointing/strategies/tensorstore.py", line 123, in open_ts_array\n[rank0]:     arr = ts.open(ts.Spec(spec), open=True).result()\n[rank0]: ValueError: Error opening "zarr" driver: Error reading local file "../exp/model_weights/model.embedding.word_embeddings.weight/.zarray": Invalid key: "../exp/x/.zarray" [source locations=\'tensorstore/kvstore/file/file_key_value_store.cc:659\\ntensorstore/kvstore/kvstore.cc:268\']\n\n[rank0]: The above exception was the direct cause of the following exception:\n\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "/workspace/run.py", line 9, in <module>\n[rank0]: megatron.core.dist_checkpointing.core.CheckpointingException: Array ../exp/model_weights/x could not be loaded.',
        "CRASHED",
        "an exception ended a rank",
        'ValueError: Error opening "zarr" driver:',
    ),
    "axolotl -9": (
        'WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 202100 closing signal SIGTERM\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 202101 closing signal SIGTERM\nERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 7 (pid: 202107) of binary: /opt/conda/envs/axo/bin/python\nTraceback (most recent call last):\n  File "/opt/conda/envs/axo/bin/accelerate", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====================================================\naxolotl.cli.train FAILED\n-----------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-02-08_11:21:18\n  rank      : 7 (local_rank: 7)\n  exitcode  : -9 (pid: 202107)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 202107',
        "CRASHED",
        "a rank was killed (SIGKILL): most often the host ran out of memory",
        "ERROR:torch.distributed.elastic.multipro",
    ),
    "axolotl ctrl-c": (
        '[2024-04-23 21:39:51,276] [INFO] [axolotl.train.log:61] [PID:1486799] [RANK:0] Starting trainer...\n^C[2024-04-23 22:04:33,011] torch.distributed.elastic.agent.server.api: [WARNING] Received Signals.SIGINT death signal, shutting down workers\n[2024-04-23 22:04:33,012] torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 1486799 closing signal SIGINT\nTraceback (most recent call last):\n  File "/opt/bin/accelerate", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 1486740 got signal: 2',
        "CANCELLED",
        "somebody ended the job (SIGTERM, SIGINT, SIGHUP)",
        "torch.distributed.elastic.multiprocessin",
    ),
    "mixed dtensor": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/src/weathergen/run_train.py", line 40, in <module>\n[rank0]:     train()\n[rank0]: RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: aten.mm.default: got mixed",
    ),
    "nccl strongstream": (
        "archimedes-lzlpt:6859:6969 [0] NCCL INFO Loaded coll plugin SHARP (v6)\n\narchimedes-lzlpt:6862:7101 [3] misc/strongstream.cc:343 NCCL WARN Cuda failure 'an illegal memory access was encountered'\narchimedes-lzlpt:6862:7101 [3] NCCL INFO enqueue.cc:1103 -> 1",
        "CRASHED",
        "a GPU kernel failed",
        "archimedes-lzlpt:6862:7101 [3] misc/stro",
    ),
    "llvm pthread": (
        'LLVM ERROR: pthread_join failed: Invalid argument\n[rank4]: Traceback (most recent call last):\n[rank4]:   File "/usr/local/lib/python3.11/dist-packages/torch/utils/data/dataloader.py", line 1131, in _try_get_data\n[rank4]:     data = self._data_queue.get(timeout=timeout)\n[rank4]:            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n[rank4]:   File "/usr/local/lib/python3.11/dist-packages/torch/utils/data/_utils/signal_handling.py", line 67, in handler\n[rank4]:     _error_if_any_worker_fails()\n[rank4]: RuntimeError: DataLoader worker (pid 69916) is killed by signal: Aborted. ',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: DataLoader worker (pid 699",
    ),
    "dataloader killed": (
        'Training progress:   0% 0/10000 [00:00<?, ?it/s]data loading done [20/08 20:48:14]\nTraceback (most recent call last):\n  File "/usr/local/lib/python3.10/dist-packages/torch/utils/data/dataloader.py", line 1133, in _try_get_data\n    data = self._data_queue.get(timeout=timeout)\nRuntimeError: DataLoader worker (pid 12851) is killed by signal: Killed. \n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/content/train.py", line 9, in <module>\n    main()\nRuntimeError: DataLoader worker (pid(s) 12851) exited unexpectedly',
        "CRASHED",
        "the host ran out of memory",
        "RuntimeError: DataLoader worker (pid 128",
    ),
    "dataloader exited": (
        'Empty                                     Traceback (most recent call last)\nqueue.Empty\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/opt/pretrain.py", line 9, in <module>\n    main()\nRuntimeError: DataLoader worker (pid(s) 700895) exited unexpectedly',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: DataLoader worker (pid(s) ",
    ),
    "safetensor": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/LLaMA-Factory/src/llamafactory/launcher.py", line 9, in <module>\n[rank0]:     launch()\n[rank0]: safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer',
        "CRASHED",
        "an exception ended a rank",
        "safetensors_rust.SafetensorError: Error ",
    ),
    "pytorchstreamreader": (
        'Traceback (most recent call last):\n  File "train.py", line 195, in <module>\n    ckpt = torch.load(path)\nRuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: PytorchStreamReader failed",
    ),
    "nemo headless": (
        '1:   File "/opt/venv/lib/python3.12/site-packages/lightning/pytorch/trainer/trainer.py", line 974, in _run\n1:     self.strategy.setup_environment()\n1:   File "/opt/megatron-lm/megatron/core/parallel_state.py", line 780, in initialize_model_parallel\n1:     raise RuntimeError(\n1: RuntimeError: decoder world_size (4) is not divisible by expert_tensor_model_pipeline_parallel size (8)',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: decoder world_size (4) is ",
    ),
    "megatron unindented": (
        'File "/opt/megatron-lm/megatron/training/initialize.py", line 341, in _initialize_distributed\n    mpu.initialize_model_parallel(\nFile "/opt/megatron-lm/megatron/core/parallel_state.py", line 1248, in initialize_model_parallel\n    expert_data_parallel_size % num_distributed_optimizer_instances == 0\nAssertionError: Expert data parallel size should be divisible by partial DistOpt shard factor',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: Expert data parallel siz",
    ),
    "lightning time limit": (
        "Epoch 10:  93%|█████████▎| 18625/20000 [5:43:21<25:20,  0.90it/s, v_num=0txx, train_loss=3.400]\nslurmstepd: error: *** STEP 55595933.0 ON maestro-3017 CANCELLED AT 2025-01-10T15:27:25 DUE TO TIME LIMIT ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n[rank: 0] Received SIGTERM: 15\nBypassing SIGTERM: 15\nEpoch 10:  93%|█████████▎| 18626/20000 [5:43:21<25:19,  0.90it/s, v_num=0txx, train_loss=3.970]",
        "TIMED_OUT",
        "the job reached its time limit",
        "slurmstepd: error: *** STEP 55595933.0 O",
    ),
    "submitit preempted": (
        "submitit WARNING (2022-07-12 04:18:45,706) - Bypassing signal SIGTERM\nsubmitit INFO (2022-07-12 04:18:45,881) - Job has not timed out. Ran 1 minutes out of requested 20 minutes.\nsubmitit WARNING (2022-07-12 04:18:45,881) - Caught signal SIGHUP on learnfair0293: this job is preempted.\nsubmitit INFO (2022-07-12 04:18:45,912) - Requeued job 60601445 (3 remaining timeouts)\nsubmitit INFO (2022-07-12 04:18:45,913) - Exiting gracefully after preemption/timeout.",
        "PREEMPTED",
        "another job took its place",
        "submitit WARNING (2022-07-12 04:18:45,88",
    ),
    "stale handle": (
        "Traceback (most recent call last):\n  File \"main.py\", line 473, in main_loop\n    state = torch.load(output_folder / model_file_name)\nRuntimeError: read(): fd 33 failed with Stale file handle\nterminate called after throwing an instance of 'c10::Error'\n  what():  owning_ptr == NullType::singleton() || owning_ptr->refcount_.load() > 0 INTERNAL ASSERT FAILED at ../c10/util/intrusive_ptr.h:348, please report a bug to PyTorch.",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: read(): fd 33 failed with ",
    ),
    "glued io error": (
        'Epoch 0:  16%|█▌        | 7395/45743 [13:13:43<68:36:00,  6.44s/it, train_loss: 0.084, avg_loss: 0.080][rank3]: Traceback (most recent call last):                                         \n[rank3]:   File "/workspace/naifu/trainer.py", line 58, in <module>\n[rank3]:     main()\n[rank3]:   File "/usr/lib/python3.10/os.py", line 225, in makedirs\n[rank3]:     mkdir(name, mode)\n[rank3]: OSError: [Errno 5] Input/output error: \'/app/naifu555\'\n[rank: 3] Child process with PID 170 terminated with code 1. Forcefully terminating all other processes to avoid zombies',
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 5] Input/output error: '",
    ),
    "openblas": (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable\nOpenBLAS blas_thread_init: RLIMIT_NPROC 4096 current, 513046 max\nterminate called after throwing an instance of 'std::system_error'\n  what():  Resource temporarily unavailable\nAborted",
        "CRASHED",
        "a C++ exception ended a rank",
        "what(): Resource temporarily unavailable",
    ),
    "new thread": (
        'Traceback (most recent call last):\n  File "train.py", line 200, in <module>\n    main()\n  File "/opt/lib/python3.7/threading.py", line 852, in start\n    _start_new_thread(self._bootstrap, ())\nRuntimeError: can\'t start new thread',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: can't start new thread",
    ),
    "blocking io": (
        'Traceback (most recent call last):\n  File "train.py", line 200, in <module>\n    main()\nBlockingIOError: [Errno 11] Resource temporarily unavailable',
        "CRASHED",
        "an exception ended a rank",
        "BlockingIOError: [Errno 11] Resource tem",
    ),
    "shm object": (
        'Traceback (most recent call last):\n  File "/opt/lib/python3.9/multiprocessing/queues.py", line 245, in _feed\n    obj = _ForkingPickler.dumps(obj)\nRuntimeError: unable to open shared memory object </torch_4094450_3914785142> in read-write mode: Too many open files (24)',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: unable to open shared memo",
    ),
    "ancdata": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 45, in <module>\n    fd = df.detach()\nRuntimeError: received 0 items of ancdata',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: received 0 items of ancdat",
    ),
    "llamafactory version": (
        'Traceback (most recent call last):\n  File "/opt/bin/llamafactory-cli", line 8, in <module>\n    sys.exit(main())\nImportError: transformers>=4.41.2,<=4.45.0 is required for a normal functioning of this module, but found transformers==4.45.2.\nTo fix: run `pip install transformers>=4.41.2,<=4.45.0` or set `DISABLE_VERSION_CHECK=1` to skip this check.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: transformers>=4.41.2,<=4.45",
    ),
    "bridge modelopt": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/Megatron-Bridge/00_quickstart_pretrain.py\", line 3, in <module>\n[rank0]:     from megatron.bridge.training.pretrain import pretrain\n[rank0]: AttributeError: module 'modelopt.torch.distill.plugins.megatron' has no attribute 'DistillationConfig'. Did you mean: 'load_distillation_config'?",
        "CRASHED",
        "an exception ended a rank",
        "AttributeError: module 'modelopt.torch.d",
    ),
    "nanotron stages": (
        'Traceback (most recent call last):\n  File "/opt/nanotron/run_train.py", line 156, in <module>\n    trainer = DistributedTrainer(config_file)\n  File "<string>", line 14, in __init__\n  File "/opt/nanotron/src/nanotron/config/config.py", line 336, in __post_init__\n    assert all(\nAssertionError: You must have a training stage starting at 1 in the config\'s data_stages',
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: You must have a training",
    ),
    "vllm nccl": (
        "INFO 05-02 23:36:34 [utils.py:1055] Found nccl from library libnccl.so.2\nINFO 05-02 23:36:34 [pynccl.py:69] vLLM is using nccl==2.21.5\nNCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "CRASHED",
        "NCCL or gloo failed",
        "NCCL error: unhandled system error (run ",
    ),
    "ray mlx5": (
        "Train epoch [1/1]:  99%|█████████▉| 127/128 [23:32<00:06,  6.63s/it, pg=-0.0683, rm=-0.5, ret=-0.5, glen=7.28e+3]\n(LLMRayActor pid=90621, ip=172.19.24.110) update weight: model.embed_tokens.weight, dtype: torch.bfloat16, shape: torch.Size([152064, 5120])\n(LLMRayActor pid=90738, ip=172.19.24.110) mlx5: host_unknown: got completion with error:\n(LLMRayActor pid=90738, ip=172.19.24.110) 00000000 00000000 00000000 00000000",
        "CRASHED",
        "InfiniBand failed",
        "(LLMRayActor pid=90738, ip=172.19.24.110",
    ),
    "rendezvous json": (
        'INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous\'ing worker group\nERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n  "message": {\n    "message": "RendezvousClosedError: ",\n    "extraInfo": {\n      "py_callstack": "Traceback (most recent call last):\\n  File \\"/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py\\", line 345, in wrapper\\n    return f(*args, **kwargs)\\n",\n      "timestamp": "1658205613"\n    }\n  }\n}',
        "CRASHED",
        "the ranks did not find each other",
        '"message": "RendezvousClosedError: ",',
    ),
    "host not found": (
        'Traceback (most recent call last):\n  File "/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 156, in _create_tcp_store\n    host, port, is_master=is_server, timeout=timedelta(seconds=read_timeout)\nValueError: host not found: Name or service not known',
        "CRASHED",
        "the ranks did not find each other",
        "ValueError: host not found: Name or serv",
    ),
    "fused_adam": (
        "cc1plus: fatal error: cuda_runtime.h: No such file or directory\ncompilation terminated.\nninja: build stopped: subcommand failed.\nLoading extension module fused_adam...\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/lib/python3.10/site-packages/torch/utils/cpp_extension.py\", line 2104, in _run_ninja_build\n[rank0]:     subprocess.run(\n[rank0]: subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\n[rank0]: The above exception was the direct cause of the following exception:\n\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Error building extension 'fused_adam'",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error building extension '",
    ),
    "rocm glued": (
        " 33%|███████████████████Memory access fault by GPU node-3 (Agent handle: 0x5a5c587a51c0) on address 0x709843600000. Reason: Write access to a read-only page.:54:01, 26.24s/it]",
        "CRASHED",
        "a GPU kernel failed",
        "33%|███████████████████Memory access fau",
    ),
    "rocm hw exception": (
        "HW Exception by GPU node-1 (Agent handle: 0x6111d0a9c5c0) reason :GPU Hang\nW1118 23:12:01.104000 1 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 812 closing signal SIGTERM\nE1118 23:12:05.210000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 1 (pid: 813) of binary: /usr/bin/python3",
        "CRASHED",
        "a GPU failed",
        "HW Exception by GPU node-1 (Agent handle",
    ),
    "error opening launcher sh": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 12, in <module>\n    tokenizer = AutoTokenizer.from_pretrained(path)\nOSError: /models/Qwen3 does not appear to have a file named config.json. Checkout 'https://huggingface.co//models/Qwen3/tree/main' for available files.",
        "CRASHED",
        "a file is missing",
        "OSError: /models/Qwen3 does not appear t",
    ),
}
