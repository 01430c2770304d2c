"""Conversion of the domain types to JSON documents and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.core.domain import Cluster, Gpu, Link, Model, Ramp, Shape, Topology, Workload


def workload_document(workload: Workload) -> dict[str, Any]:
    """Return a workload as a JSON document."""
    return asdict(workload)


def workload_of(document: Mapping[str, Any]) -> Workload:
    """Return the workload that a document describes."""
    ramp = document.get("ramp")
    return Workload(**{**document, "model": Model(**document["model"]), "ramp": Ramp(**ramp) if ramp else None})


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as a JSON document."""
    return asdict(cluster)


def cluster_of(document: Mapping[str, Any]) -> Cluster:
    """Return the cluster that a document describes."""
    gpu = Gpu(**document["gpu"])
    links = {name: Link(**document[name]) for name in ("intra_node", "inter_node")}
    return Cluster(**{**document, "gpu": gpu, **links})


def topology_document(topology: Topology) -> dict[str, Any]:
    """Return a topology as a JSON document, without the fields that are None."""
    return {name: value for name, value in asdict(topology).items() if value is not None}


def topology_of(document: Mapping[str, Any]) -> Topology:
    """Return the topology that a document describes."""
    shape = document.get("shape")
    return Topology(**{**document, "shape": Shape(**shape) if shape else None})
