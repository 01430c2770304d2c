"""Failures in the words that programs have in their sources: containers, packages, storage, arguments."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CONFIGURATION_FAILURES: Final = {
    "configuration: logged exception": (
        "2025-05-01 10:00:00,000 - train - ERROR - Training failed with exception: ValueError: shards do not match the manifest",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: shards do not match the mani",
    ),
    "configuration: absl fatal": (
        "F0501 10:00:00.000000 140 app.py:42] FATAL Uncaught exception: KeyError: 'tokens' RuntimeError: data iterator ended",
        "CRASHED",
        "an exception ended a rank",
        "KeyError: 'tokens' RuntimeError: data it",
    ),
    "configuration: logged oom": (
        "2025-05-01 10:00:00,000 - train - ERROR - Training failed: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB",
        "OOM",
        "a GPU ran out of memory",
        "2025-05-01 10:00:00,000 - train - ERROR ",
    ),
    "configuration: driver library mismatch": (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54",
        "CRASHED",
        "no usable GPU",
        "Failed to initialize NVML: Driver/librar",
    ),
    "configuration: no devices nvidia-smi": (
        "No devices were found",
        "CRASHED",
        "no usable GPU",
        "No devices were found",
    ),
    "configuration: docker no gpu runtime": (
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "CRASHED",
        "the container was not started",
        "docker: Error response from daemon: coul",
    ),
    "configuration: nvidia container cli": (
        "nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown",
        "CRASHED",
        "the container was not started",
        "nvidia-container-cli: initialization err",
    ),
    "configuration: singularity image": (
        "FATAL:   could not open image /images/nemo.sif: failed to retrieve path for /images/nemo.sif: lstat /images/nemo.sif: no such file or directory",
        "CRASHED",
        "the container was not started",
        "FATAL: could not open image /images/nemo",
    ),
    "configuration: enroot import": (
        "slurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [ERROR] URL https://nvcr.io/v2/nvidia/nemo/manifests/25.99 returned error code: 404 Not Found",
        "CRASHED",
        "the container was not started",
        "slurmstepd: error: pyxis: failed to impo",
    ),
    "configuration: conda activate": (
        "EnvironmentNameNotFound: Could not find conda environment: megatron",
        "CRASHED",
        "a program or file is missing",
        "EnvironmentNameNotFound: Could not find ",
    ),
    "configuration: module load": (
        'Lmod has detected the following error: The following module(s) are unknown: "cuda/12.9"',
        "CRASHED",
        "a program or file is missing",
        "Lmod has detected the following error: T",
    ),
    "configuration: uv lock": (
        "error: Failed to fetch: `https://pypi.org/simple/torch/`\n  Caused by: Could not connect, are you offline?",
        "CRASHED",
        "a dependency is missing",
        "error: Failed to fetch: `https://pypi.or",
    ),
    "configuration: pip no match": (
        "ERROR: Could not find a version that satisfies the requirement flash-attn==9.9 (from versions: none)\nERROR: No matching distribution found for flash-attn==9.9",
        "CRASHED",
        "a dependency is missing",
        "ERROR: Could not find a version that sat",
    ),
    "configuration: s3 403": (
        "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden",
        "CRASHED",
        "access was denied",
        "botocore.exceptions.ClientError: An erro",
    ),
    "configuration: s3 missing": (
        "botocore.exceptions.ClientError: An error occurred (404) when calling the HeadObject operation: Not Found",
        "CRASHED",
        "an exception ended a rank",
        "botocore.exceptions.ClientError: An erro",
    ),
    "configuration: s3 credentials": (
        "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        "CRASHED",
        "access was denied",
        "botocore.exceptions.NoCredentialsError: ",
    ),
    "configuration: gcs permission": (
        "google.api_core.exceptions.Forbidden: 403 GET https://storage.googleapis.com/storage/v1/b/x: job@x.iam.gserviceaccount.com does not have storage.objects.get access",
        "CRASHED",
        "access was denied",
        "google.api_core.exceptions.Forbidden: 40",
    ),
    "configuration: wandb key": (
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "CRASHED",
        "access was denied",
        "wandb.errors.errors.UsageError: api_key ",
    ),
    "configuration: wandb 401": (
        "wandb: ERROR Error while calling W&B API: user is not logged in (<Response [401]>)\nwandb.errors.errors.CommError: user is not logged in",
        "CRASHED",
        "access was denied",
        "wandb: ERROR Error while calling W&B API",
    ),
    "configuration: hf gated": (
        "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/meta-llama/Llama-3.1-8B.\n401 Client Error. (Request ID: Root=1-6)",
        "CRASHED",
        "access was denied",
        "OSError: You are trying to access a gate",
    ),
    "configuration: hf repo missing": (
        "OSError: meta-lama/Llama-3.1-8B is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        "CRASHED",
        "a file is missing",
        "OSError: meta-lama/Llama-3.1-8B is not a",
    ),
    "configuration: hf offline": (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        "CRASHED",
        "a download failed",
        "OSError: We couldn't connect to 'https:/",
    ),
    "configuration: hf config missing": (
        "OSError: /models/llama does not appear to have a file named config.json. Checkout 'https://huggingface.co//models/llama/tree/main' for available files.",
        "CRASHED",
        "a file is missing",
        "OSError: /models/llama does not appear t",
    ),
    "configuration: safetensors missing shard": (
        'FileNotFoundError: No such file or directory: "/models/llama/model-00003-of-00004.safetensors"',
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: No such file or direc",
    ),
    "configuration: training arguments keyword": (
        "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "CRASHED",
        "an exception ended a rank",
        "TypeError: TrainingArguments.__init__() ",
    ),
    "configuration: argparse choice": (
        "pretrain_gpt.py: error: argument --position-embedding-type: invalid choice: 'ropes' (choose from 'learned_absolute', 'rope', 'none')",
        "CRASHED",
        "the trainer refused its arguments",
        "pretrain_gpt.py: error: argument --posit",
    ),
    "configuration: argparse int": (
        "pretrain_gpt.py: error: argument --micro-batch-size: invalid int value: '1.5'",
        "CRASHED",
        "the trainer refused its arguments",
        "pretrain_gpt.py: error: argument --micro",
    ),
    "configuration: argparse mutually": (
        "train.py: error: argument --bf16: not allowed with argument --fp16",
        "CRASHED",
        "the trainer refused its arguments",
        "train.py: error: argument --bf16: not al",
    ),
    "configuration: argparse one of": (
        "train.py: error: one of the arguments --train-iters --train-samples is required",
        "CRASHED",
        "the trainer refused its arguments",
        "train.py: error: one of the arguments --",
    ),
    "configuration: argparse expected one": (
        "train.py: error: argument --lr: expected one argument",
        "CRASHED",
        "the trainer refused its arguments",
        "train.py: error: argument --lr: expected",
    ),
    "configuration: accelerate config": (
        "ValueError: You need to use at least 2 processes to use `--multi_gpu`.",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: You need to use at least 2 p",
    ),
    "configuration: accelerate choice": (
        "accelerate <command> [<args>] launch: error: unrecognized arguments: --num_gpus 8",
        "CRASHED",
        "the trainer refused its arguments",
        "accelerate <command> [<args>] launch: er",
    ),
    "configuration: torchrun nproc": (
        "ValueError: Unsupported nproc_per_node value: gpus",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: Unsupported nproc_per_node v",
    ),
    "configuration: mcore heads": (
        "ValueError: num_attention_heads (12) must be a multiple of tensor_model_parallel_size (8).",
        "CRASHED",
        "an exception ended a rank",
        "ValueError: num_attention_heads (12) mus",
    ),
    "configuration: mcore layers": (
        "AssertionError: num_layers: 32 must be divisible by pipeline_model_parallel_size 6",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: num_layers: 32 must be d",
    ),
    "configuration: mcore batch": (
        "AssertionError: global batch size (100) is not divisible by micro batch size (1) times data parallel size (64)",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: global batch size (100) ",
    ),
    "configuration: hsdp mesh": (
        "RuntimeError: Mesh should not be bigger than default world size 8, but found 16!",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Mesh should not be bigger ",
    ),
    "configuration: titan degrees": (
        "AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: Invalid parallel dims: d",
    ),
    "configuration: fsdp checkpoint": (
        'RuntimeError: Error(s) in loading state_dict for FullyShardedDataParallel:\n\tMissing key(s) in state_dict: "lm_head.weight". ',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error(s) in loading state_",
    ),
    "configuration: zero checkpoint world": (
        "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 16 but the current world size is 8. Automatic adjustment of ZeRO's optimizer state partitioning with a new world size is not currently supported.",
        "CRASHED",
        "an exception ended a rank",
        "deepspeed.runtime.zero.utils.ZeRORuntime",
    ),
    "configuration: ds stage": (
        "AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: ZeRO-2 and ZeRO-3 are in",
    ),
    "configuration: torch load": (
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
        "CRASHED",
        "an exception ended a rank",
        "_pickle.UnpicklingError: Weights only lo",
    ),
    "configuration: dcp missing metadata": (
        "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([0, 1])\nTraceback (most recent call last): (RANK 0)\n  File \"/opt/torch/distributed/checkpoint/filesystem.py\", line 800, in read_metadata\nFileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step-1000/.metadata'",
        "CRASHED",
        "a file is missing",
        "FileNotFoundError: [Errno 2] No such fil",
    ),
}
