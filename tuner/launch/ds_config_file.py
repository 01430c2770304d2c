"""The user's own DeepSpeed config, on which jobs and exports are based.

A topology determines the batch, the precision, the ZeRO stage and the offload; everything else stays as the user wrote
it, `auto` included: optimizer, schedule, clipping, buckets, communication.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from tuner.core.atomic_write import open_regular
from tuner.core.errors import InputError, reason_of
from tuner.core.stack import FloatPrecision
from tuner.core.text import shown
from tuner.launch.ds_config import TRIAD, Config

_MAX_BYTES: Final = 1 << 20
"""Bytes of the largest file of a command that is read."""

_OFFLOADS: Final = ("offload_optimizer", "offload_param")
_FORMER_OFFLOADS: Final = ("cpu_offload", "cpu_offload_params", "cpu_offload_use_pin_memory")
"""Deprecated names of DeepSpeed's offload settings."""
_PRECISIONS: Final = ("bf16", "fp16")
_ZERO: Final = "zero_optimization"


def read_file_of_command(name: str, kind: str) -> str:
    """Return the text of a file that a command names, such as its `DeepSpeed config`."""
    try:
        with open_regular(Path(name)) as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode() if len(data) <= _MAX_BYTES else ""
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else reason_of(error)
        raise InputError(f"the {kind} {name!r} in --command cannot be read: {reason}; correct its path.") from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"the {kind} {name!r} in --command is larger than {_MAX_BYTES:,} bytes; correct its path.")
    return text


def read_config(name: str) -> Config:
    """Return the config in a file that a command names; raise for one from which no topology can be derived."""
    if "{" in name:
        raise InputError(
            f"the DeepSpeed config {name!r} in --command is not the name of one file; write the config to a "
            "file and pass its name, and tuner derives each job's config from it."
        )
    text = read_file_of_command(name, "DeepSpeed config")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"the DeepSpeed config {name!r} in --command is not JSON: {reason}.") from None
    if not isinstance(config, dict):
        raise InputError(f"the DeepSpeed config {name!r} in --command must be an object, not {shown(config)}.")
    if "bfloat16" in config:  # DeepSpeed's former name
        config["bf16"] = config.pop("bfloat16")
    _check(config, name)
    return config


def _check(config: Config, name: str) -> None:
    zero = config.get(_ZERO, {})
    parts = {_ZERO: zero}
    if isinstance(zero, dict):
        parts |= {part: config.get(part, {}) for part in (*_PRECISIONS, "tensor_parallel")}
        parts |= {f"{_ZERO}.{part}": zero.get(part) or {} for part in _OFFLOADS}
    for where, part in parts.items():
        if not isinstance(part, dict):
            raise InputError(
                f"the DeepSpeed config {name!r} in --command: field {where} must be an object, not {shown(part)}."
            )
        if part.get("device") == "nvme":
            raise InputError(
                f"the DeepSpeed config {name!r} in --command offloads to nvme in {where}, which tuner does not "
                "model; set its device to cpu or none, and add --set offload=optimizer if jobs should offload."
            )
    if isinstance(ranks := config.get("tensor_parallel", {}).get("autotp_size", 0), int) and ranks > 1:
        raise InputError(
            f"the DeepSpeed config {name!r} in --command has tensor_parallel.autotp_size {ranks}, but for "
            "this trainer tuner searches data parallelism only; remove it."
        )


def enabled_precision(config: Mapping[str, Any] | None) -> str | None:
    """Return the precision that a config enables; None if it leaves it to the trainer."""
    return next((name for name in _PRECISIONS if (config or {}).get(name, {}).get("enabled") is True), None)


def stack_of_config(config: Mapping[str, Any], *, pipelines: bool) -> dict[str, Any]:
    """Return the fields of `Stack` that a config determines.

    ZeRO 1 reduces beside the backward pass with `overlap_comm` only, whose default is on for ZeRO 3 alone, and not
    where there may be pipelines (DeepSpeed 0.19.8, runtime/zero/config.py; runtime/engine.py: get_data_types,
    _configure_zero_optimizer).
    """
    overlaps = not pipelines and config.get(_ZERO, {}).get("overlap_comm") is True
    found: dict[str, Any] = {"overlap_grad": 1.0} if overlaps else {}
    types = config.get("data_types")
    kept = types.get("grad_accum_dtype") if isinstance(types, dict) else None
    return {**found, "grad_precision": kept} if kept in get_args(FloatPrecision) else found


def based_on(own: Mapping[str, Any], config: Mapping[str, Any]) -> Config:
    """Return the user's config with the batch, the precision, the ZeRO stage and the offload of a job's config."""
    zero, given = config[_ZERO], own.get(_ZERO, {})
    kept = {name: value for name, value in given.items() if name not in (*_OFFLOADS, *_FORMER_OFFLOADS)}
    offloads = {
        name: {**zero[name], **(given.get(name) or {}), "device": zero[name]["device"]}
        for name in _OFFLOADS
        if name in zero
    }
    found = {**own, **{name: config[name] for name in TRIAD}, _ZERO: {**kept, "stage": zero["stage"], **offloads}}
    for name in _PRECISIONS:
        if name in config:
            found[name] = {**config[name], **own.get(name, {}), "enabled": True}
        elif name in own:
            found[name] = {**own[name], "enabled": False}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]
