"""The cells that describe a run: what `run_of` reads, it reads back as the same run."""

from __future__ import annotations

from dataclasses import fields

from tuner.core.catalog import known_model
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.model import Model
from tuner.core.recompute import GRANULARITIES
from tuner.core.stack import Stack


def run_cells(workload: Workload, cluster: Cluster, topology: Topology) -> dict[str, str]:
    """Return the cells of a topology's run, whose heads, shape and batch are those of `topology` where it has any."""
    workload = workload.as_in(topology)
    return {
        **_cluster_cells(cluster, topology),
        **model_cells(workload.model),
        **_topology_cells(topology, workload),
        **_software_cells(workload),
    }


def model_cells(model: Model) -> dict[str, str]:
    """Return the cells that describe a model."""
    cells: dict[str, int | str] = {
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "gated_mlp": int(model.gated_mlp),
        "seq": model.seq,
        "vocab": model.vocab,
    }
    experts, others = model.experts, _not_described(model)
    known = known_model(model.name) is not None and not others
    if known or (experts and not others):
        cells["model"] = model.name
    if others:
        cells["other_layers"] = " and ".join(others)
    if model.latent or model.head_size:
        cells["head_dim"] = model.latent.key_size if model.latent else model.head_size
    if model.mtp_layers or (experts and known):
        cells["mtp"] = model.mtp_layers
    if experts:
        cells |= {
            "experts": experts.count,
            "top_k": experts.top_k,
            "moe_ffn": experts.ffn,
            "shared_ffn": experts.shared_ffn,
            "dense_layers": model.dense_mlp_layers,
        }
        if experts.capacity_factor:
            cells["capacity_factor"] = f"{experts.capacity_factor:g}"
    return {column: str(value) for column, value in cells.items()}


def _not_described(model: Model) -> list[str]:
    """Return the layers that no column describes, unless the catalog's model of this name and these widths has them."""
    layers = {"latent attention": "latent", "Gated DeltaNet": "delta_net", "gated attention": "attention_gate"}
    known = known_model(model.name)
    if known is None or not _same_widths(model, known):
        return [words for words, field in layers.items() if getattr(model, field)]
    return [words for words, field in layers.items() if getattr(known, field) != getattr(model, field)]


def _same_widths(model: Model, known: Model) -> bool:
    """Return whether a table's row of the model is read as the known one."""
    own, theirs = ((one.hidden, one.heads, one.kv_heads, one.experts or one.ffn) for one in (model, known))
    return own == theirs


def _cluster_cells(cluster: Cluster, topology: Topology) -> dict[str, str]:
    return {
        "gpu": cluster.gpu.name,
        "gpus_per_node": str(cluster.gpus_per_node),
        **({"nvlink_domain": str(cluster.nvlink_domain)} if cluster.nvlink_domain else {}),
        **({"fabric": cluster.fabric} if cluster.fabric else {}),
        "nodes": str(topology.nodes),
        "node_gbit_s": f"{cluster.inter_node.bandwidth * 8 / 1e9:.9g}",
    }


def _topology_cells(topology: Topology, workload: Workload) -> dict[str, str]:
    of_experts = ("ep", "etp", "dispatcher") if workload.model.experts else ()
    return {
        **{name: str(getattr(topology, name)) for name in ("tp", "pp", "vpp", "cp", "dp", "zero", *of_experts)},
        "sequence_parallel": str(int(topology.sequence_parallel)),
        "mbs": str(topology.micro_batch),
        "gbs": str(workload.global_batch),
        **_recompute_cells(topology.recompute),
        "partition": topology.partition,
        **({"moe_overlap": "1"} if topology.moe_overlap else {}),
        **({"offload": topology.offload} if topology.offload != "none" else {}),
        **({"hsdp_replicas": str(topology.hsdp)} if topology.hsdp > 1 else {}),
    }


def _recompute_cells(recompute: str) -> dict[str, str]:
    if recompute in GRANULARITIES:
        return {"recompute": recompute}
    return {"recompute": "selective", "recompute_modules": recompute.replace("+", " ")}


def _software_cells(workload: Workload) -> dict[str, str]:
    unusual = {
        "framework": workload.framework,
        "precision_recipe": workload.precision_recipe,
        "optimizer": workload.optimizer if workload.optimizer != "adam" else None,
        "routing": workload.routing if workload.routing != "balanced" else None,
        **_stack_cells(workload.stack or Stack()),
    }
    return {
        "attention": workload.attention,
        "fused_norm": str(int(workload.fused_norms)),
        "precision": workload.precision,
        "parallel_loss": str(int(workload.parallel_loss)),
        **{column: value for column, value in unusual.items() if value},
    }


def _stack_cells(stack: Stack) -> dict[str, str]:
    cells = {}
    for each in fields(stack):
        value = getattr(stack, each.name)
        if isinstance(value, bool):
            value = int(value)
        elif isinstance(value, tuple):
            value = " ".join(map(str, value))
        if value is not None:
            cells[each.name] = str(value)
    return cells
