"""Who talks to whom: the process groups of a topology.

Ranks lie as in Megatron: tensor parallel neighbours are next to each other, then come the data parallel replicas, then
the stages of the pipeline. DeepSpeed's grid of the axes pipe, data, model numbers them the same way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import deepspeed.comm as ds_comm
import deepspeed.ops
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology
from torch.distributed import distributed_c10d

from tuner.core.domain import Precision, Topology
from tuner.core.errors import InputError

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """One rank's place in the topology, and the groups that it belongs to."""

    tp: int
    tp_rank: int
    tp_group: Any
    stage: int
    stages: int
    dp: int
    dp_rank: int
    kv_copies: int
    """Tensor parallel ranks that hold the same key/value heads; more than one where tp exceeds the heads."""
    kv_group: Any
    sequence_parallel: bool
    device: torch.device
    dtype: torch.dtype
    axes: PipeModelDataParallelTopology

    @property
    def first_of_kv_copies(self) -> bool:
        """Whether this rank speaks for its copies of the key/value heads."""
        return self.tp_rank % self.kv_copies == 0


def connect(timeout: float) -> None:
    """Join the job's other ranks, with a finite time for every collective operation."""
    accelerator = get_accelerator()
    if accelerator.device_name() != "cpu":
        accelerator.set_device(local_rank())
    # DeepSpeed would compile its shared-memory operation on the spot: a minute and a half, or for ever behind a stale
    # lock file. `gloo` does without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # Groups that are made later, ours and DeepSpeed's, wait as long as torch does by default: half an hour.
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed_c10d, name, timedelta(seconds=timeout))
    ds_comm.init_distributed(
        dist_backend=accelerator.communication_backend_name() if accelerator.device_name() != "cpu" else "gloo",
        auto_mpi_discovery=False,
        timeout=timedelta(seconds=timeout),
        verbose=False,
    )


def local_rank() -> int:
    """This rank's number on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def build_mesh(topology: Topology, kv_heads: int, precision: Precision) -> Mesh:
    """The mesh of this rank; every rank has to call it."""
    world = dist.get_world_size()
    if world != topology.gpus:
        raise InputError(
            f"tp x pp x cp x dp = {topology.tp} x {topology.pp} x {topology.cp} x {topology.dp} = {topology.gpus} "
            f"is not the number of ranks, which is {world}."
        )
    axes = PipeModelDataParallelTopology(num_pp=topology.pp, num_mp=topology.tp, num_dp=topology.dp)
    at = axes.get_coord(dist.get_rank())
    copies = max(1, topology.tp // kv_heads)
    tp_group = kv_group = None
    for ranks in axes.get_axis_comm_lists("model") if topology.tp > 1 else []:
        tp_group = _joined(ranks, tp_group)
        if copies > 1:
            for start in range(0, topology.tp, copies):
                kv_group = _joined(ranks[start : start + copies], kv_group)
    accelerator = get_accelerator()
    return Mesh(
        tp=topology.tp,
        tp_rank=at.model,
        tp_group=tp_group,
        stage=at.pipe,
        stages=topology.pp,
        dp=topology.dp,
        dp_rank=at.data,
        kv_copies=copies,
        kv_group=kv_group,
        sequence_parallel=topology.sequence_parallel,
        device=torch.device(accelerator.current_device_name()),
        dtype=DTYPES[precision],
        axes=axes,
    )


def grid(mesh: Mesh) -> PipelineParallelGrid:
    """DeepSpeed's own groups for these axes, for an engine without a pipeline; a PipelineModule makes them itself."""
    return PipelineParallelGrid(topology=mesh.axes)


def _joined(ranks: list[int], mine: Any) -> Any:
    """A group of these ranks, if this one is among them; else the one that it has."""
    group = dist.new_group(ranks)
    return group if dist.get_rank() in ranks else mine
