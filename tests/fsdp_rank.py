"""One rank started by torchrun: wrap two layers with the settings of an `fsdp.json`, and train one step.

A program for a test, not a test itself. Dotted names in the file are looked up as attributes of their modules.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import wrap


class TransformerBlock(nn.Linear):
    """The layer class named in the file."""


def main(path: str) -> None:
    said = json.loads(Path(path).read_text())
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", tuple(said["device_mesh"]["mesh_shape"]), mesh_dim_names=("dp",))
    ((policy, layers),) = said["auto_wrap_policy"].items()
    classes = {globals()[name] for name in layers["transformer_layer_cls"]}
    model = fsdp.FullyShardedDataParallel(
        nn.Sequential(TransformerBlock(8, 8), TransformerBlock(8, 8)),
        device_mesh=mesh,
        sharding_strategy=_attribute(said["sharding_strategy"]),
        auto_wrap_policy=partial(getattr(wrap, policy), transformer_layer_cls=classes),
        mixed_precision=fsdp.MixedPrecision(
            **{name: getattr(torch, word.removeprefix("torch.")) for name, word in said["mixed_precision"].items()}
        ),
        backward_prefetch=_attribute(said["backward_prefetch"]),
        cpu_offload=said["cpu_offload"],
        device_id=torch.device("cpu"),
        **{name: said[name] for name in ("forward_prefetch", "limit_all_gathers", "use_orig_params")},
    )
    model(torch.ones(said["micro_batch"], 8)).sum().backward()
    kept = sum(parameter.numel() for parameter in model.parameters())
    if dist.get_rank() == 0:
        wrapped = len(fsdp.FullyShardedDataParallel.fsdp_modules(model))
        sys.stdout.write(json.dumps({"wrapped": wrapped, "kept": kept}) + "\n")
        sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads may abort a rank whose peers have exited, and the exit code does not matter


def _attribute(word: str) -> Any:
    kind, _, name = word.partition(".")
    return getattr(getattr(fsdp, kind), name)


if __name__ == "__main__":
    main(sys.argv[1])
