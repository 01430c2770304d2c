"""JSON documents of the domain types, and the types read back from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.core.domain import Cluster, Gpu, Link, Model, Ramp, Shape, Topology, Workload


def workload_document(workload: Workload) -> dict[str, Any]:
    """A workload as JSON holds it."""
    return asdict(workload)


def workload_of(document: Mapping[str, Any]) -> Workload:
    """The workload of a document."""
    ramp = document.get("ramp")
    return Workload(**{**document, "model": Model(**document["model"]), "ramp": Ramp(**ramp) if ramp else None})


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """A cluster as JSON holds it."""
    return asdict(cluster)


def cluster_of(document: Mapping[str, Any]) -> Cluster:
    """The cluster of a document."""
    gpu = Gpu(**document["gpu"])
    links = {name: Link(**document[name]) for name in ("intra_node", "inter_node")}
    return Cluster(**{**document, "gpu": gpu, **links})


def topology_document(topology: Topology) -> dict[str, Any]:
    """A topology as JSON holds it; what is left to the workload is left out."""
    return {name: value for name, value in asdict(topology).items() if value is not None}


def topology_of(document: Mapping[str, Any]) -> Topology:
    """The topology of a document."""
    shape = document.get("shape")
    return Topology(**{**document, "shape": Shape(**shape) if shape else None})
