"""Arguments and configurations that a trainer refused."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "flag": (
        "usage: train.py [-h] [--tp TP]\ntrain.py: error: unrecognized arguments: --tensor-parallel 2\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4242)\n  error_file: <N/A>\n",
        "CRASHED",
        "the trainer refused its arguments",
        "train.py: error",
    ),
    "batch": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 4 * 1 * 4',
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError",
    ),
    "struct": (
        "Error executing job with overrides: ['model.foo=1']\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: omegaconf.errors.ConfigAttributeError: Key 'foo' is not in struct\n[rank0]:     full_key: model.foo\n[rank0]:     object_type=dict",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf",
    ),
    "hydra": (
        "Could not override 'model.foo'.\nTo append to your config use +model.foo=1\nKey 'foo' is not in struct\n    full_key: model.foo\n    object_type=dict\n\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
        "CRASHED",
        "the trainer refused its arguments",
        "Could not override",
    ),
    "tyro": (
        "╭─ Unrecognized options ────────────────────────────────────────╮\n│ Unrecognized options: --training.batch_size                   │\n│ ───────────────────────────────────────────────────────────── │\n│ For full helptext, run train.py --help                        │\n╰───────────────────────────────────────────────────────────────╯\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 2 (pid: 4242)\n  error_file: <N/A>\n",
        "CRASHED",
        "the trainer refused its arguments",
        "│ Unrecognized options",
    ),
    "deepspeed, batch": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 4 * 1',
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Check batch",
    ),
    "typer": (
        "Usage: nemo llm pretrain [OPTIONS]\nTry 'nemo llm pretrain --help' for help.\n╭─ Error ──────────────────────────────────╮\n│ No such option: --trainer-devices        │\n╰──────────────────────────────────────────╯",
        "CRASHED",
        "the trainer refused its arguments",
        "│ No such option",
    ),
    "click": (
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --micro-batch (Possible options: --batch)",
        "CRASHED",
        "the trainer refused its arguments",
        "Error: No such option",
    ),
    "lightning cli": (
        "usage: main.py [-h] [-c CONFIG] {fit,validate,test,predict} ...\nerror: Unrecognized arguments: --trainer.tensor_parallel=2",
        "CRASHED",
        "the trainer refused its arguments",
        "error: Unrecognized",
    ),
    "absl": (
        "FATAL Flags parsing error:\n  Unknown command line flag 'tensor_parallel'. Did you mean: tensorboard ?\nPass --helpshort or --helpfull to see help on flags.",
        "CRASHED",
        "the trainer refused its arguments",
        "Unknown command line flag",
    ),
    "hydra, thread": (
        "Error executing job with overrides: ['trainer.devices=8']\nTraceback (most recent call last):\n  File \"/opt/NeMo/x.py\", line 44, in main\n    trainer = MegatronTrainerBuilder(cfg).create_trainer()\nomegaconf.errors.ConfigAttributeError: Key 'precision_plugin' is not in struct\n    full_key: trainer.precision_plugin",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.ConfigAttributeError: K",
    ),
    "mandatory value, bare": (
        "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: model.data.data_prefix\n    full_key: model.data.data_prefix\n    object_type=dict",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.MissingMandatoryValue: ",
    ),
    "hydra finds no group": (
        "In 'config.yaml': Could not find 'model/llama4'\n\nAvailable options in 'model':\n\tllama3\nConfig search path:\n\tprovider=hydra, path=pkg://hydra.conf\n\tprovider=main, path=file:///workspace/conf",
        "CRASHED",
        "the trainer refused its arguments",
        "In 'config.yaml': Could not find 'model/",
    ),
    "hydra finds no configuration": (
        "Cannot find primary config 'megatron_gpt_config2'. Check that it's in your config search path.\n\nConfig search path:\n\tprovider=hydra, path=pkg://hydra.conf",
        "CRASHED",
        "the trainer refused its arguments",
        "Cannot find primary config 'megatron_gpt",
    ),
    "interpolation key": (
        "omegaconf.errors.InterpolationKeyError: Interpolation key 'model.hidden' not found\n    full_key: x",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.InterpolationKeyError: ",
    ),
    "override grammar": (
        "hydra.errors.OverrideParseException: mismatched input '=' expecting <EOF>\nSee https://hydra.cc/docs/1.2/advanced/override_grammar/basic for details",
        "CRASHED",
        "the trainer refused its arguments",
        "hydra.errors.OverrideParseException: mis",
    ),
    "tyro, required": (
        "╭─ Required options ─────────────────────────────────────────╮\n│ The following arguments are required:                      │\n│ --data.path                                                │\n╰────────────────────────────────────────────────────────────╯",
        "CRASHED",
        "the trainer refused its arguments",
        "│ The following arguments are required: ",
    ),
    "tyro, value": (
        "╭─ Parsing error ────────────────────────────────────────────╮\n│ Error parsing --training.steps: invalid literal for int()  │\n│ with base 10: 'abc'                                        │\n╰────────────────────────────────────────────────────────────╯",
        "CRASHED",
        "the trainer refused its arguments",
        "│ Error parsing --training.steps: invali",
    ),
    "fire": (
        "ERROR: Could not consume arg: --foo=3\nUsage: train.py group|command",
        "CRASHED",
        "the trainer refused its arguments",
        "ERROR: Could not consume arg: --foo=3",
    ),
    "click, extra argument": (
        "Usage: main.py [OPTIONS] CONFIG\nTry 'main.py --help' for help.\n\nError: Got unexpected extra argument (foo)",
        "CRASHED",
        "the trainer refused its arguments",
        "Error: Got unexpected extra argument (fo",
    ),
    "unused keys": (
        "ValueError: Some keys are not used by the HfArgumentParser: ['lora_ranks', 'cutoff_lenn']",
        "CRASHED",
        "the trainer refused its arguments",
        "ValueError: Some keys are not used by th",
    ),
    "remaining arguments": (
        "ValueError: remaining_argv: ['--foo', '1']",
        "CRASHED",
        "the trainer refused its arguments",
        "ValueError: remaining_argv: ['--foo', '1",
    ),
    "parser key": (
        "usage: main.py [-h] [-c CONFIG] [--print_config[=flags]] {fit,validate,test,predict} ...\nerror: Parser key \"trainer.precision\": Expected a <class 'str'>",
        "CRASHED",
        "the trainer refused its arguments",
        'error: Parser key "trainer.precision": E',
    ),
    "unknown keys": (
        "ValueError: Got unknown keys in neox_args: 'foo'",
        "CRASHED",
        "the trainer refused its arguments",
        "ValueError: Got unknown keys in neox_arg",
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
    "prolog then hydra": (
        "/etc/slurm/prolog.d/gpustats_helper.sh: line 5: /run/gpustat/0: Permission denied\n/etc/slurm/prolog.d/gpustats_helper.sh: line 8: /run/gpustat/GPU-7c8a8399: Permission denied\nTraceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nhydra.errors.ConfigCompositionException: You must specify 'lightning_module', e.g, lightning_module=<OPTION>\nAvailable options:\n\tlarge\n\tmedium",
        "CRASHED",
        "the trainer refused its arguments",
        "hydra.errors.ConfigCompositionException:",
    ),
    "hf argument": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nValueError: Some specified arguments are not used by the HfArgumentParser: ['--overwrite_output_dir', 'True']",
        "CRASHED",
        "the trainer refused its arguments",
        "ValueError: Some specified arguments are",
    ),
    "pydantic axolotl": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\npydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig\nmicro_batch_size\n  Input should be a valid integer, unable to parse string as an integer [type=int_parsing, input_value='a', input_type=str]",
        "CRASHED",
        "the trainer refused its arguments",
        "pydantic_core._pydantic_core.ValidationE",
    ),
    "own validation": (
        "To avoid this warning pass in values for each of the problematic parameters or run `accelerate config`.\nValidation Error:\n--------------------------------------------------\nField: tokenizer\nError: Extra inputs are not permitted\n--------------------------------------------------",
        "CRASHED",
        "the trainer refused its arguments",
        "Error: Extra inputs are not permitted",
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
    "message: an exception whose message is on the next line": (
        "omegaconf.errors.MissingMandatoryError:\n    trainer.devices",
        "CRASHED",
        "the trainer refused its arguments",
        "omegaconf.errors.MissingMandatoryError:",
    ),
    "two configurations": (
        'Traceback (most recent call last):\n  File "train.py", line 27, in <module>\n    pretrain(args)\nAssertionError: Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and deepspeed.initialize() function call',
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Not sure how to proceed",
    ),
    "batch of nothing": (
        'Traceback (most recent call last):\n  File "config.py", line 900, in _batch_assertion\n    assert micro_batch > 0, (\nAssertionError: Micro batch size per gpu: 0 has to be greater than 0',
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: Micro batch size",
    ),
    "source: torchrun no script": (
        "torchrun: error: the following arguments are required: training_script, training_script_args",
        "CRASHED",
        "the trainer refused its arguments",
        "torchrun: error: the following arguments",
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
    "configuration: accelerate choice": (
        "accelerate <command> [<args>] launch: error: unrecognized arguments: --num_gpus 8",
        "CRASHED",
        "the trainer refused its arguments",
        "accelerate <command> [<args>] launch: er",
    ),
    "configuration: ds stage": (
        "AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism",
        "CRASHED",
        "DeepSpeed refused the configuration",
        "AssertionError: ZeRO-2 and ZeRO-3 are in",
    ),
}
