"""Conversion of the domain types to JSON documents and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from tuner.core.domain import OPT_IN, Cluster, Fabric, Gpu, Link, Ramp, Topology, Workload
from tuner.core.model import PARTS, Model
from tuner.core.rotary_scaling import RotaryScaling
from tuner.core.shape import Shape
from tuner.core.stack import Stack
from tuner.core.text import listed


def workload_document(workload: Workload) -> dict[str, Any]:
    """Return a workload as a JSON document; a stack that is the framework's usual one is left out."""
    document = asdict(workload)
    return {name: value for name, value in document.items() if name != "stack" or value is not None}


def model_of(document: Mapping[str, Any]) -> Model:
    """Return the model that a document describes."""
    fields = dict(document)
    if scaling := fields.get("rotary_scaling"):
        factors = {name: tuple(scaling.get(name, ())) for name in ("short_factors", "long_factors")}
        fields["rotary_scaling"] = RotaryScaling(**{**scaling, **factors})
    for name, part in PARTS.items():
        if values := fields.get(name):
            fields[name] = part(**values)
    return Model(**fields)


def identity_document(model: Model) -> dict[str, Any]:
    """Return everything that determines what is trained; an implied activation is spelled out."""
    left_out = {"name", "frozen_params", "vocab_multiple", "read_as", "not_understood"}
    document = {**asdict(model), "activation": model.mlp_activation}
    return {name: value for name, value in document.items() if name not in left_out}


def model_notes(model: Model) -> list[str]:
    """Return notes on the model's description that matter for its figures."""
    notes = [f"The model's family is unknown; it is read as {model.read_as}."] if model.read_as else []
    if model.not_understood:
        properties = listed(model.not_understood)
        notes.append(
            f"tuner does not understand these properties of the model: {properties}. "
            "You can plan it, and export it for your own program."
        )
    return notes


def workload_of(document: Mapping[str, Any]) -> Workload:
    """Return the workload that a document describes."""
    ramp, stack = document.get("ramp"), document.get("stack")
    known: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stated(stack or {}).items()
    }
    nested = {"ramp": Ramp(**ramp) if ramp else None, "stack": Stack(**known) if stack else None}
    return Workload(**{**document, "model": model_of(document["model"]), **nested})


def stated(stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of software that are known; an unknown one may not exist any more."""
    return {name: value for name, value in stack.items() if value is not None}


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as a JSON document.

    A host memory or fabric that is not specified is left out, and so is an NVLink domain that is the node.
    """
    document = asdict(cluster)
    del document["gpu"]["nvlink_domain"], document["gpu"]["gpus_per_node"]
    optional = ("host_memory", "nvlink_domain", "fabric")
    return {name: value for name, value in document.items() if name not in optional or value}


def cluster_of(document: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a document describes."""
    gpu = Gpu(**document["gpu"])
    links = {name: Link(**document[name]) for name in ("intra_node", "inter_node")}
    return Cluster(**{"fabric": fabric_of(document["name"]), **document, "gpu": gpu, **links})


def fabric_of(name: str) -> Fabric | None:
    """Return the fabric of a known cluster, which documents of earlier versions leave out."""
    from tuner.core.catalog import catalog, cluster  # which the worker, a reader of workloads, does without

    return cluster(name).fabric if name in catalog().cluster else None


def topology_document(topology: Topology, workload: Workload | None = None) -> dict[str, Any]:
    """Return a topology as a JSON document: its fields that are not None, which `topology_of` reads.

    With a `workload`, return the document that commands print: every axis, with the values that the topology takes
    from the workload. Either leaves out the axes of `OPT_IN` that have their defaults.
    """
    if workload is None:
        fields = {name: value for name, value in asdict(topology).items() if value is not None}
        return {name: value for name, value in fields.items() if name not in OPT_IN or value != OPT_IN[name]}
    trained = workload.as_in(topology)
    return {
        **{axis: getattr(topology, axis) for axis in _PRINTED_AXES},
        **{axis: value for axis, default in OPT_IN.items() if (value := getattr(topology, axis)) != default},
        "heads": trained.model.heads,
        "layers": trained.model.layers,
        "hidden": trained.model.hidden,
        "global_batch": trained.global_batch,
    }


_PRINTED_AXES: Final = (
    *("nodes", "tp", "pp", "vpp", "cp", "dp", "sequence_parallel", "zero", "micro_batch", "recompute", "partition"),
)


def topology_of(document: Mapping[str, Any]) -> Topology:
    """Return the topology that a document describes."""
    shape = document.get("shape")
    return Topology(**{**document, "shape": Shape(**shape) if shape else None})
