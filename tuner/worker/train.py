"""Train one assignment: set up DeepSpeed's engine and time its iterations."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.moe.utils import is_moe_param, split_params_into_different_moe_groups_for_optimizer

from tuner.core.assignment import Assignment
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError, NothingUsable
from tuner.core.worker_refusals import refuse
from tuner.worker.data import Batch, microbatches
from tuner.worker.mesh import Mesh, build_mesh, connect, grid
from tuner.worker.mlp import Router
from tuner.worker.model import build
from tuner.worker.report import (
    Progress,
    TimedIteration,
    argument_lines,
    iteration_line,
    rank_figures,
    result,
    say,
    write,
)

Step = Callable[[], float]
"""Runs one iteration and returns the mean loss of the global batch, which is the same on every rank."""


def train(assignment: Assignment) -> None:
    """Run the job and write the result from rank 0."""
    topology, workload = assignment.topology, assignment.workload.as_in(assignment.topology)
    config = load_config(Path(assignment.ds_config))
    refuse(workload, topology, config)
    adapt(config)
    connect(assignment.timeout)
    mesh = build_mesh(topology, workload.model.kv_heads, workload.precision)
    is_rank_0 = dist.get_rank() == 0
    if is_rank_0:
        say("\n".join(argument_lines(workload, topology)))
    progress = Progress(speaks=is_rank_0)
    sizes = [batch for batch in assignment.batches or (workload.global_batch,) for _ in range(assignment.iterations)]
    batches = microbatches(workload, topology, mesh.dp_rank, assignment.seed, sizes, progress.begins)
    engine, step = start(workload, topology, mesh, assignment.seed, config, batches)
    done: list[TimedIteration] = []
    consumed = 0
    for number, batch in enumerate(sizes, start=1):
        if batch != engine.train_batch_size():
            set_batch(engine, batch)
        seconds, loss = timed(step)
        consumed += batch
        iteration = TimedIteration(
            number=number,
            global_batch=batch,
            consumed=consumed,
            seconds=seconds,
            loss=loss,
            learning_rate=float(engine.get_lr()[0]),
            skipped=int(engine.skipped_steps),
        )
        done.append(iteration)
        if is_rank_0:
            say(iteration_line(iteration, len(sizes), workload, topology))
        if not math.isfinite(loss):
            raise NothingUsable(f"the loss of iteration {number} is {loss}: the job ends.")
    figures = rank_figures(engine.module)
    if is_rank_0:
        write(result(done, figures, workload, topology), Path(assignment.result))


def load_config(path: Path) -> dict[str, Any]:
    """Return DeepSpeed's config as a dictionary."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"the DeepSpeed config {path} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise InputError(f"the DeepSpeed config {path} is not a JSON object.")
    return config


def adapt(config: dict[str, Any]) -> None:
    """Set the config's machine-dependent options: no DeepSpeed timers, and torch's Adam if DeepSpeed's cannot run.

    Offloaded states need DeepSpeed's Adam for the CPU or else torch's, which computes the same.
    """
    config["wall_clock_breakdown"] = False
    optimizer = config.get("optimizer", {})
    offloads = "offload_optimizer" in config.get("zero_optimization", {})
    if optimizer.get("type") in ("Adam", "AdamW") and not (_has_cpu_adam() if offloads else _has_fused_adam()):
        # Otherwise DeepSpeed compiles its own, which takes a minute and a half or fails.
        optimizer.setdefault("params", {})["torch_adam"] = True
        if get_accelerator().device_name() != "cpu":
            optimizer["params"]["fused"] = True


def _has_fused_adam() -> bool:
    """Return whether DeepSpeed's fused Adam is installed or can be compiled."""
    if get_accelerator().device_name() == "cpu":
        return False
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder import FusedAdamBuilder
    from torch.utils.cpp_extension import CUDA_HOME

    built: bool = installed_ops.get("fused_adam", False)
    return built or bool(CUDA_HOME and FusedAdamBuilder().is_compatible(verbose=False))


def _has_cpu_adam() -> bool:
    """Return whether DeepSpeed's Adam for the CPU is installed, or can be compiled if that is worth minutes."""
    from deepspeed.git_version_info import installed_ops
    from deepspeed.ops.op_builder import CPUAdamBuilder

    if installed_ops.get("cpu_adam", False):
        return True
    on_gpu = get_accelerator().device_name() != "cpu"
    return on_gpu and all(map(shutil.which, ("ninja", "c++"))) and bool(CPUAdamBuilder().is_compatible(verbose=False))


def start(
    workload: Workload, topology: Topology, mesh: Mesh, seed: int, config: dict[str, Any], batches: Iterator[Batch]
) -> tuple[Any, Step]:
    """Return DeepSpeed's engine and a function that trains one iteration."""
    piped = topology.pp > 1
    groups = None if piped else grid(mesh)
    group = None if groups is None else groups.get_data_parallel_group()
    module = build(workload, topology, mesh, seed=seed, ds_config=config, groups=groups)
    trained: Any = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if mesh.ep > 1:
        # Not cut at a size, as DeepSpeed would: pipeline stages wait for one another once for each group.
        dense = {"params": trained, "name": "dense"}
        trained = split_params_into_different_moe_groups_for_optimizer(dense, max_group_size=None)
    engine, *_ = deepspeed.initialize(
        model=module, model_parameters=trained, config=config, mpu=groups, dist_init_required=False
    )
    check_precision(engine.module, mesh)
    if mesh.ep > 1:
        engine.clip_fp32_gradients = partial(clip_gradients, engine, mesh)
    if piped:
        return engine, lambda: float(engine.train_batch(data_iter=batches))
    return engine, lambda: _plain_step(engine, batches, group, mesh)


def set_batch(engine: Any, global_batch: int) -> None:
    """Have an engine accumulate the gradients of as many microbatches as the global batch has.

    DeepSpeed steps whenever the microbatches so far are a multiple of those of a batch: they are counted anew.
    """
    engine.set_train_batch_size(global_batch)
    engine.micro_steps = 0
    for module in engine.module.modules():
        if isinstance(module, Router):
            module.factor = 1 / engine.gradient_accumulation_steps()


def clip_gradients(engine: Any, mesh: Mesh) -> None:
    """Clip the gradients of fp32 without ZeRO by their norm over all ranks.

    DeepSpeed's own function averages the norms of the ranks, which are those of different experts; its ZeRO and bf16
    optimizers add them up.
    """
    parameters = [parameter for parameter in engine.module.parameters() if parameter.grad is not None]
    squares = torch.zeros(2, device=mesh.device)
    for parameter in parameters:
        if parameter.tensor_model_parallel:
            squares[int(is_moe_param(parameter))] += parameter.grad.float().norm() ** 2
    dist.all_reduce(squares[1], group=mesh.ep_group)
    dist.all_reduce(squares[0], group=engine.mpu.get_model_parallel_group())
    if mesh.stages > 1:
        dist.all_reduce(squares[1], group=engine.mpu.get_pipe_parallel_group())
    factor = (engine.gradient_clipping() / (squares.sum().sqrt() + 1e-6)).clamp(max=1.0)
    for parameter in parameters:
        parameter.grad.mul_(factor)


def check_precision(module: Any, mesh: Mesh) -> None:
    """Raise `NothingUsable` if DeepSpeed initialized a parameter in another precision than the job's.

    ZeRO 3 keeps each rank's shard of a parameter in `ds_tensor`.
    """
    for name, parameter in module.named_parameters():
        for part in (parameter, getattr(parameter, "ds_tensor", parameter)):
            if part.dtype != mesh.dtype:
                raise NothingUsable(
                    f"DeepSpeed initialized the parameter {name} in {part.dtype} instead of {mesh.dtype}: the job "
                    "would train in a precision other than the requested one."
                )


def _plain_step(engine: Any, batches: Iterator[Batch], group: Any, mesh: Mesh) -> float:
    """Train one iteration without a pipeline; return the loss averaged over microbatches and replicas."""
    count = engine.gradient_accumulation_steps()
    total = torch.zeros((), device=mesh.device, dtype=torch.float32)
    for _ in range(count):
        tokens, labels = (part.to(mesh.device) for part in next(batches))
        loss = engine(tokens, labels)
        engine.backward(loss)
        engine.step()
        total += loss.detach()
    if mesh.dp > 1:
        dist.all_reduce(total, group=group)
    return float(total) / (count * mesh.dp)


def timed(step: Step) -> tuple[float, float]:
    """Return the seconds and loss of one iteration, timed between barriers of all ranks."""
    accelerator = get_accelerator()
    dist.barrier()
    accelerator.synchronize()
    started = time.perf_counter()
    loss = step()
    accelerator.synchronize()
    dist.barrier()
    return time.perf_counter() - started, loss
