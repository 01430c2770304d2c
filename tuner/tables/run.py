"""Build the run that the cells of a row describe: workload, cluster and topology."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, get_args

from tuner.core.catalog import gpu as catalog_gpu
from tuner.core.catalog import make_cluster, usual_domain
from tuner.core.domain import (
    HOST,
    Cluster,
    Gpu,
    Partition,
    Precision,
    PrecisionRecipe,
    Topology,
    Workload,
    layout_chunks,
    partition_for,
)
from tuner.core.errors import InputError
from tuner.core.frameworks import record_of
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD, OFFLOADED_SHARE, Offload
from tuner.core.precision import bf16_layers, check_precision, parse_bf16_layers
from tuner.core.recompute import GRANULARITIES, MODULES, selecting
from tuner.core.stack import Stack
from tuner.core.text import counted, either, listed, shown
from tuner.tables.cells import flag, number_in, whole
from tuner.tables.described_model import dispatcher_of, model_of, named_sizes
from tuner.tables.row import MeasuredRun
from tuner.tables.stacks import PRECISION_RECIPES, assumed, framework_of

USUAL: Final[Mapping[str, str]] = {
    "gpu": "A100-80GB-SXM",
    "seq": "2048",
    "vocab": "51200",
    **dict.fromkeys(("tp", "pp", "vpp", "cp", "mbs"), "1"),
    "sequence_parallel": "0",
    "zero": "1",
    "recompute": "full",
    "fused_norm": "1",
    "status": "OK",
    "mem_kind": "smi",
}
"""Defaults that do not depend on other cells."""

SETTINGS: Final = (
    *("recompute", "sequence_parallel", "zero", "fused_norm", "parallel_loss"),
    *("grad_precision", "state_precision", "loss_precision", "loss_chunks", "fused_loss"),
    *("unsharded_gradients", "precision_aware_optimizer", "fused_permutation", "capacity_factor", "padded_experts"),
    *("compiled", "early_stop"),
    *("overlap_grad", "overlap_param", "overlap_tp", "split_sends", "quantized_weights"),
    *("dispatcher", "cuda_graph", "cudnn"),
)
"""Columns of settings that cost time or memory and that tables often leave out."""

_ATTENTION: Final[Mapping[str, str]] = {
    "unfused": "fused",
    **dict.fromkeys(("flash", "flash3", "fa2", "fa3", "cudnn", "sdpa"), "flash2"),
}
"""Other names of attention kernels. `flash2` is whichever the framework runs on the GPU. Megatron-Core's
--attention-backend unfused is fused softmax between two products (NVIDIA/TransformerEngine,
pytorch/attention/dot_product_attention/backends.py: UnfusedDotProductAttention with FusedScaleMaskSoftmax)."""


def completed(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells with the defaults of missing ones that follow from the model, GPU and framework at most."""
    cells = {**named_sizes(cells), **cells}
    known = {**USUAL, "gated_mlp": _usual_mlp(cells), **assumed(cells), **cells}
    usual = 8
    with suppress(InputError):
        usual = catalog_gpu(known["gpu"]).gpus_per_node or usual
    return {"gpus_per_node": str(_usual_per_node(known, usual)), **known}


def _usual_per_node(cells: Mapping[str, str], usual: int) -> int:
    """Return the GPUs of a node by all GPUs and the nodes, if stated, else as usual for the GPU."""
    with suppress(InputError):
        gpus, nodes = whole(cells, "gpus", 0), whole(cells, "nodes", 0)
        if gpus:
            return gpus // nodes if nodes and gpus % nodes == 0 else min(usual, gpus)
    return usual


def _usual_mlp(cells: Mapping[str, str]) -> str:
    """Return whether the MLP is gated where no column says so: nearly all are of mixtures and of grouped queries."""
    grouped = {"heads", "kv_heads"} <= cells.keys() and cells["heads"] != cells["kv_heads"]
    return str(int(grouped or cells.get("experts", "0") != "0"))


def run_of(cells: Mapping[str, str]) -> MeasuredRun:
    """Return the run that the cells describe; raise `InputError` if they describe none."""
    cells = completed(cells)
    if cells["gpu"] == HOST:
        raise InputError("it ran on CPUs, which the cost model does not describe; measure on GPUs.")
    card = catalog_gpu(cells["gpu"])
    tp, pp, cp = (whole(cells, name) for name in ("tp", "pp", "cp"))
    per_node, replica = whole(cells, "gpus_per_node"), tp * pp * cp
    nodes = whole(cells, "nodes") if "nodes" in cells else 0
    gpus = whole(cells, "gpus") if "gpus" in cells else nodes * per_node
    dp = whole(cells, "dp") if "dp" in cells else max(1, gpus // replica)
    nodes = nodes or -(-max(gpus, replica * dp) // per_node)
    used = f"tp({tp}) x pp({pp}) x {f'cp({cp}) x ' if cp > 1 else ''}dp({dp}) = {replica * dp} GPUs"
    if "gpus" in cells and replica * dp != gpus:
        raise InputError(f"{used}, but gpus is {gpus}.")
    if replica * dp > nodes * per_node:
        has = "has" if nodes == 1 else "have"
        raise InputError(f"{used}, but {counted(nodes, 'node')} of {per_node} {has} {nodes * per_node}.")
    workload = _workload(cells, card, tp=tp, ranks=dp)
    if workload.global_batch % (dp * whole(cells, "mbs")) and workload.global_batch < dp * whole(cells, "mbs"):
        raise InputError(
            f"gbs({workload.global_batch}) is less than dp({dp}) x mbs({cells['mbs']}): too few microbatches."
        )
    topology = Topology(
        nodes=nodes,
        tp=tp,
        pp=pp,
        vpp=whole(cells, "vpp"),
        cp=cp,
        dp=dp,
        micro_batch=whole(cells, "mbs"),
        zero=whole(cells, "zero"),
        sequence_parallel=flag(cells, "sequence_parallel"),
        recompute=_recompute(cells),
        offload=_offload(cells),
        hsdp=whole(cells, "hsdp_replicas", 1),
        ep=whole(cells, "ep", 1),
        etp=whole(cells, "etp", 1),
        dispatcher=dispatcher_of(cells),
        moe_overlap="moe_overlap" in cells and flag(cells, "moe_overlap"),
        partition=cells.get("partition", "").lower() or _partition(workload, pp * whole(cells, "vpp")),  # type: ignore[arg-type] # as above
    )
    if {"dp", "nodes", "gpus"} & cells.keys():
        _check_experts(workload.model, topology)
    return MeasuredRun(workload=workload, cluster=_cluster(cells, card, nodes, per_node), topology=topology)


def _check_experts(model: Model, topology: Topology) -> None:
    """Raise `InputError` if no program spreads the experts over the ranks as stated."""
    if model.experts is None:
        return
    if model.experts.count % topology.ep:
        raise InputError(f"{model.experts.count} experts are not divisible by ep({topology.ep}).")
    ranks = topology.tp * topology.cp * topology.dp
    if ranks % (topology.etp * topology.ep):
        raise InputError(
            f"tp x cp x dp = {ranks} ranks are not divisible by etp({topology.etp}) x ep({topology.ep}); check dp and "
            "nodes."
        )


def left_to_one(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the tp or pp that follows from dp and the other degrees if one of them is missing; raise if both are."""
    lacking = [name for name in ("tp", "pp") if name not in cells]
    has_size = "gpus" in cells or {"nodes", "gpus_per_node"} <= cells.keys()
    if not lacking or "dp" not in cells or not has_size:
        return {}
    gpus = whole(cells, "gpus") if "gpus" in cells else whole(cells, "nodes") * whole(cells, "gpus_per_node")
    known = whole(cells, "dp") * whole(cells, "cp", 1) * math.prod(whole(cells, name, 1) for name in ("tp", "pp"))
    left = gpus // known
    if left <= 1:
        return {}
    if len(lacking) == 2 or gpus % known:
        columns = listed(lacking, last="or")
        raise InputError(
            f"dp({cells['dp']}) leaves {left} of {gpus} GPUs to each replica, and the row has no {columns}."
        )
    return {lacking[0]: str(left)}


def _partition(workload: Workload, chunks: int) -> Partition:
    """Return the partition that the framework takes, which refuses a remainder if it lays out stages one by one."""
    record = record_of(workload)
    lays_out = record is not None and "layout" in record.partition.value
    _, last = layout_chunks(workload.model.layers, chunks)
    return partition_for(workload.model.layers, chunks, "layout" if lays_out and last > 0 else "layers")


def _workload(cells: Mapping[str, str], card: Gpu, *, tp: int, ranks: int) -> Workload:
    framework, gated = framework_of(cells), flag(cells, "gated_mlp")
    attention = cells.get("attention", card.attention).lower()
    plain = whole(cells, "zero") == 3 and framework is None
    workload = Workload(
        model=model_of(cells, tp=tp),
        global_batch=whole(cells, "gbs", whole(cells, "mbs") * whole(cells, "microbatches", 1) * ranks),
        precision=cells.get("precision", "bf16" if "bf16" in card.peak_flops else "fp16").lower(),  # type: ignore[arg-type]
        attention=_ATTENTION.get(attention, attention),  # type: ignore[arg-type]
        fused_norms=flag(cells, "fused_norm"),
        plain_layers=plain,
        parallel_loss=flag(cells, "parallel_loss") if "parallel_loss" in cells else not (gated or plain),
        framework=framework,
        optimizer=cells.get("optimizer", "adam").lower(),  # type: ignore[arg-type] # Workload refuses any other word
        precision_recipe=_recipe(cells),
        routing=cells.get("routing", "balanced").lower(),  # type: ignore[arg-type] # Workload refuses any other word
        stack=_stack(cells),
    )
    check_precision(workload.precision, card, workload.precision_recipe)
    if (kept := sum(bf16_layers(workload))) > workload.model.layers:
        raise InputError(f"bf16_layers names {kept} layers, but the model has {workload.model.layers}.")
    return workload


def _recipe(cells: Mapping[str, str]) -> PrecisionRecipe | None:
    """Return how fp8 and fp4 tensors are scaled; None if the cell names no more than the precision."""
    named = cells.get("precision_recipe", "").lower()
    if named and named not in PRECISION_RECIPES and named not in get_args(Precision):
        raise InputError(f"precision_recipe must be {either(PRECISION_RECIPES)}, not {shown(named)}.")
    return PRECISION_RECIPES.get(named)


def _recompute(cells: Mapping[str, str]) -> str:
    """Return what is recomputed; `recompute_modules` are those of selective recompute."""
    named = cells["recompute"].lower()
    if named not in GRANULARITIES:
        if set(named.split("+")) <= set(MODULES):
            return selecting(named.split("+"))
        raise InputError(f"recompute must be {either(GRANULARITIES)}, not {shown(named)}.")
    selected = selecting(re.findall(r"\w+", cells.get("recompute_modules", "core_attn").lower()))
    return selected if named == "selective" else named


def _offload(cells: Mapping[str, str]) -> Offload:
    """Return what is offloaded; a number is the share of the optimizer.

    But 1 is also a switch, in published tables of activation offload, which is not modeled, unless the note names the
    optimizer.
    """
    named = cells.get("offload", "none").lower()
    if named == "1" and "optimizer" not in cells.get("note", "").lower():
        return "none"
    if re.fullmatch(r"\d*\.?\d+", named):
        named = next((known for known, share in OFFLOADED_SHARE.items() if share == float(named)), named)
    for known in OFFLOAD:
        if known == named:
            return known
    raise InputError(f"offload must be {either(OFFLOAD)}, or a multiple of 0.25 up to 1, not {shown(named)}.")


_FLAGS: Final = (
    *("fused_loss", "unsharded_gradients", "precision_aware_optimizer", "fused_permutation", "padded_experts"),
    *("compiled", "early_stop", "quantized_weights", "split_sends"),
)
"""Columns of the software that are on or off."""


def _stack(cells: Mapping[str, str]) -> Stack | None:
    """Return the software settings in the cells other than the framework; None without any."""
    shares: Any = {
        name: _share(cells, name) for name in ("overlap_grad", "overlap_param", "overlap_tp") if name in cells
    }
    precisions: Any = {
        name: cells[name].lower() for name in ("grad_precision", "state_precision", "loss_precision") if name in cells
    }
    flags: Any = {name: flag(cells, name) for name in _FLAGS if name in cells}
    stack = Stack(
        **shares,
        **precisions,
        **flags,
        loss_chunks=whole(cells, "loss_chunks") if "loss_chunks" in cells else None,
        bf16_layers=parse_bf16_layers(cells["bf16_layers"]) if "bf16_layers" in cells else None,
        cuda_graph=_graph(cells["cuda_graph"]) if "cuda_graph" in cells else None,  # type: ignore[arg-type] # Stack checks it
        cp_comm=cells["cp_comm"].lower() if "cp_comm" in cells else None,  # type: ignore[arg-type]
        cudnn=cells.get("cudnn"),
    )
    return None if stack == Stack() else stack


def _graph(cell: str) -> str:
    return {"0": "none", "1": "partial"}.get(cell.lower(), cell.lower())


def _share(cells: Mapping[str, str], column: str) -> float:
    try:
        share = float(cells[column])
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{column} must be a share from 0 to 1, not {shown(cells[column])}.")
    return share


def _cluster(cells: Mapping[str, str], card: Gpu, nodes: int, per_node: int) -> Cluster:
    network = number_in(cells, "node_gbit_s") * 1e9 / 8 if "node_gbit_s" in cells else 0.0
    domain = whole(cells, "nvlink_domain") if "nvlink_domain" in cells else usual_domain(card, per_node)
    return make_cluster(
        name=card.name,
        nodes=nodes,
        gpus_per_node=per_node,
        gpu=card,
        inter=network,
        nvlink_domain=domain,
        fabric=cells["fabric"].lower() if "fabric" in cells else None,  # type: ignore[arg-type] # Cluster checks it
    )
