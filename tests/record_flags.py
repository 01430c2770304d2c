"""Record the flags of a Megatron checkout's argument parser as a table.

    python tests/record_flags.py megatron-core CHECKOUT REPOSITORY COMMIT > tuner/data/flags/megatron-core.csv

`megatron-core` reads megatron/training/arguments.py, other names read megatron/arguments.py. The real parser is used:
its module is imported with torch, and missing packages (triton, deepspeed, apex ...) are replaced by mocks.
"""

from __future__ import annotations

import argparse
import csv
import enum
import importlib
import importlib.abc
import importlib.machinery
import json
import pathlib
import sys
import types
import typing
from typing import Any
from unittest.mock import MagicMock

COLUMNS = ("flag", "dest", "action", "nargs", "type", "default", "choices")


class Mocks(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a mock in place of each named package and its modules."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002
        if any(name == one or name.startswith(f"{one}.") for one in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        module: Any = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__, module.__version__ = spec, [], spec.name, "3.3.0"
        return module

    def exec_module(self, module: Any) -> None:
        """Do nothing, as a mock has no code."""


def stub() -> None:
    """Prepare for importing a checkout's modules on a machine without a GPU."""
    import torch
    import torch.utils.flop_counter  # imports triton, which is mocked afterwards

    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    torch.compile = lambda function=None, **_: function or (lambda inner: inner)  # type: ignore[assignment]
    torch.jit.script = lambda function=None, *_, **__: function or (lambda inner: inner)  # type: ignore[assignment]
    sys.meta_path.insert(0, Mocks("triton", "deepspeed", "apex", "amp_C", "flash_attn"))


def parser_of(name: str, checkout: str) -> argparse.ArgumentParser:
    """Return the argument parser of a checkout, with pretrain_gpt.py's own flags."""
    sys.path.insert(0, checkout)
    stub()
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if name == "megatron-core":
        module = importlib.import_module("megatron.training.arguments")
        module.add_megatron_arguments(parser)
        return parser
    for package in ("megatron", "megatron.model"):  # skip their __init__, which needs CUDA
        module = types.ModuleType(package)
        module.__path__ = [f"{checkout}/{package.replace('.', '/')}"]
        module.logging = MagicMock()  # type: ignore[attr-defined]
        sys.modules[package] = module
    sys.meta_path.insert(0, Mocks("tools", "megatron.global_vars", "megatron.core", "megatron.model.utils"))
    if (pathlib.Path(checkout) / "megatron" / "model" / "glu_activations.py").is_file():
        activations = importlib.import_module("megatron.model.glu_activations")
        sys.modules["megatron"].model = sys.modules["megatron.model"]  # type: ignore[attr-defined]
        sys.modules["megatron.model"].glu_activations = activations  # type: ignore[attr-defined]
    module = importlib.import_module("megatron.arguments")
    for function in [getattr(module, one) for one in dir(module) if one.startswith("_add_") and one.endswith("_args")]:
        function(parser)
    for flag, kind in (("--deepspeed", None), ("--deepspeed_config", str)):  # flags of deepspeed.add_config_arguments
        if kind is None:
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=kind)
    return parser


def rows(parser: argparse.ArgumentParser) -> list[dict[str, str]]:
    """Return one row per flag."""
    return [
        {
            "flag": " ".join(action.option_strings),
            "dest": action.dest,
            "action": type(action).__name__.strip("_"),
            "nargs": "" if action.nargs is None else str(action.nargs),
            "type": getattr(action.type, "__name__", "") if action.type else "",
            "default": json.dumps(_plain(action.default)),
            "choices": json.dumps([_plain(choice) for choice in action.choices]) if action.choices else "",
        }
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


if __name__ == "__main__":
    table, folder, repository, commit = sys.argv[1:]
    found = rows(parser_of(table, folder))
    path = "megatron/training/arguments.py" if table == "megatron-core" else "megatron/arguments.py"
    sys.stdout.write(f"# {repository} at {commit}, {path}: facts recorded by tests/record_flags.py\n")
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
