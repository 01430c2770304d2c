"""The process groups of a topology.

Ranks are ordered as in Megatron: tensor parallel ranks are adjacent, followed by data parallel replicas, then pipeline
stages. DeepSpeed's grid with the axes pipe, data, model uses the same order.
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
from deepspeed.utils import groups
from torch.distributed import distributed_c10d

from tuner.core.domain import Precision, Topology
from tuner.core.errors import InputError

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """One rank's coordinates in the topology, and its process groups."""

    tp: int
    tp_rank: int
    tp_group: Any
    stage: int
    stages: int
    dp: int
    dp_rank: int
    kv_copies: int
    """Number of tensor parallel ranks with the same key/value heads; more than one if tp exceeds their number."""
    kv_group: Any
    sequence_parallel: bool
    device: torch.device
    dtype: torch.dtype
    axes: PipeModelDataParallelTopology
    ep: int
    ep_rank: int
    ep_group: Any
    """The ranks that share one set of experts."""
    expert_group: str
    """DeepSpeed's name of the ranks that hold the same experts; empty where all do."""

    @property
    def first_of_kv_copies(self) -> bool:
        """Whether this rank is the first of those with the same key/value heads."""
        return self.tp_rank % self.kv_copies == 0


def connect(timeout: float) -> None:
    """Initialize the process group, with a timeout for every collective operation."""
    accelerator = get_accelerator()
    if accelerator.device_name() != "cpu":
        accelerator.set_device(local_rank())
    # Otherwise DeepSpeed compiles its shared-memory operation, which takes a minute and a half, or hangs on a stale
    # lock file. `gloo` does not need it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # Groups created later use torch's default timeout, which is half an hour unless it is changed here.
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed_c10d, name, timedelta(seconds=timeout))
    ds_comm.init_distributed(
        dist_backend=accelerator.communication_backend_name() if accelerator.device_name() != "cpu" else "gloo",
        auto_mpi_discovery=False,
        timeout=timedelta(seconds=timeout),
        verbose=False,
    )


def local_rank() -> int:
    """Return this rank's index on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def build_mesh(topology: Topology, kv_heads: int, precision: Precision) -> Mesh:
    """Return the mesh of this rank. Collective: every rank must call it."""
    world = dist.get_world_size()
    if world != topology.gpus:
        raise InputError(
            f"tp x pp x cp x dp = {topology.tp} x {topology.pp} x {topology.cp} x {topology.dp} = {topology.gpus} "
            f"is not the number of ranks, which is {world}."
        )
    axes = PipeModelDataParallelTopology(num_pp=topology.pp, num_mp=topology.tp, num_dp=topology.dp)
    coordinates = axes.get_coord(dist.get_rank())
    copies = max(1, topology.tp // kv_heads)
    tp_group = kv_group = None
    for ranks in axes.get_axis_comm_lists("model") if topology.tp > 1 else []:
        tp_group = _joined(ranks, tp_group)
        if copies > 1:
            for start in range(0, topology.tp, copies):
                kv_group = _joined(ranks[start : start + copies], kv_group)
    accelerator = get_accelerator()
    ep_rank, ep_group, expert_group = 0, None, ""
    if topology.ep > 1:
        groups._create_expert_and_data_parallel(topology.ep, pp_size=topology.pp)
        expert_group = f"ep_size_{topology.ep}"
        ep_rank = groups._get_expert_parallel_rank(expert_group)
        ep_group = groups._get_expert_parallel_group(expert_group)
    return Mesh(
        tp=topology.tp,
        tp_rank=coordinates.model,
        tp_group=tp_group,
        stage=coordinates.pipe,
        stages=topology.pp,
        dp=topology.dp,
        dp_rank=coordinates.data,
        kv_copies=copies,
        kv_group=kv_group,
        sequence_parallel=topology.sequence_parallel,
        device=torch.device(accelerator.current_device_name()),
        dtype=DTYPES[precision],
        axes=axes,
        ep=topology.ep,
        ep_rank=ep_rank,
        ep_group=ep_group,
        expert_group=expert_group,
    )


def grid(mesh: Mesh) -> PipelineParallelGrid:
    """Return DeepSpeed's groups for an engine without a pipeline; a PipelineModule creates its own."""
    return PipelineParallelGrid(topology=mesh.axes)


def _joined(ranks: list[int], mine: Any) -> Any:
    """Create a group of these ranks; return it if this rank is a member, else `mine`."""
    group = dist.new_group(ranks)
    return group if dist.get_rank() in ranks else mine
