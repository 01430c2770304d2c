"""Run Megatron-LM's own argument parser, its validation and its config classes on command lines, on a CPU.

    MEGATRON_LM=CHECKOUT python tests/export/megatron_parser.py < CASES.json

Reads `[{"world": N, "flags": [...]}, ...]`; prints one JSON list with, for each, the error or the values that
the model is then built from. GPU properties are stubbed; everything else is the checkout's own code.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def values(world: int, flags: list[str]) -> dict[str, Any]:
    """Return what Megatron builds its model from, or the error."""
    arguments = importlib.import_module("megatron.training.arguments")
    gpt_config_from_args = importlib.import_module("megatron.training.argument_utils").gpt_config_from_args
    os.environ |= {"WORLD_SIZE": str(world), "RANK": "0", "LOCAL_RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    sys.argv = ["pretrain_gpt.py", *flags, "--tokenizer-type", "NullTokenizer", "--mock-data"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            args = arguments.parse_args()
            arguments.validate_args(args)
            config = gpt_config_from_args(args)
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error} {said.getvalue()[-600:] if not str(error) else ''}"}
    transformer = config.transformer
    read = {name: _plain(value) for name, value in vars(transformer).items()}
    model = {name: _plain(value) for name, value in vars(config).items() if name != "transformer"}
    return {"arguments": {name: _plain(value) for name, value in vars(args).items()}, "config": read, "model": model}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return getattr(value, "__name__", None) or getattr(value, "name", None) or str(value)


def main() -> None:
    """Answer all cases on stdin."""
    from tests.record_flags import stub

    sys.path.insert(0, os.environ["MEGATRON_LM"])
    stub()
    import torch

    properties = MagicMock(major=9, minor=0, multi_processor_count=132)
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    answers = [values(case["world"], case["flags"]) for case in json.load(sys.stdin)]
    sys.__stdout__.write(json.dumps(answers))  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
