"""Seconds of communication: ring collectives and sends, within an NVLink domain and between nodes.

The domain is the node, or a rack of nodes as in NVL72: groups that lie within it use the intra-node links.

A ring all-reduce of n ranks moves 2 (n - 1) / n of its bytes through each rank's link, an all-gather or reduce-scatter
half of that (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH").
Where a ring spans nodes, only one of its steps in each node crosses the network; an all-reduce goes along a tree of
nodes instead where that is faster (NVIDIA/nccl, src/graph/tuning.cc).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import Cluster
from tuner.costmodel.constants import (
    NETWORK_LATENCY_RATIO,
    NODE_LATENCY_RATIO,
    NODE_LINK_SHARE,
    OMNI_PATH_RING_SHARE,
    RING_SHARE,
    SEND_SHARE,
)
from tuner.costmodel.kernels import family, generation
from tuner.costmodel.link_constants import COLLIDING_SHARE, LEAF_SPAN, MESHES, TREE_BANDWIDTH_SHARE, XGMI_SHARE
from tuner.costmodel.site_factors import SiteFactors


def all_reduce(size: Any, ranks: Any, bandwidth: Any, latency: Any) -> FloatArray:
    """Seconds of an all-reduce of `size` bytes on each of so many ranks."""
    return 2.0 * gather(size, ranks, bandwidth, latency)


def gather(size: Any, ranks: Any, bandwidth: Any, latency: Any) -> FloatArray:
    """Seconds of an all-gather to `size` bytes on each rank, or of a reduce-scatter from so many."""
    seconds: FloatArray = (ranks - 1) / ranks * size / bandwidth + (ranks - 1) * latency
    return seconds


def all_reduce_between(size: Any, ranks: Any, bandwidth: Any, latency: Any, parts: Any = 1) -> FloatArray:
    """Seconds of an all-reduce of `size` bytes, in so many parts, among ranks of one node each, by ring or by tree."""
    ring = all_reduce(size, ranks, bandwidth, parts * latency)
    levels = np.ceil(np.log2(np.maximum(1, ranks)))
    tree = 2 * size / (bandwidth * TREE_BANDWIDTH_SHARE) + 2 * levels * parts * latency
    seconds: FloatArray = np.where(ranks > 1, np.minimum(ring, tree), 0.0)
    return seconds


def intra_node(cluster: Cluster, members: Any) -> Any:
    """Bandwidth of a GPU to the others of so many in its node or NVLink domain.

    A switch gives all of it to any group; on a board without one, a group has the links between its members only.
    """
    bandwidth = cluster.intra_node.bandwidth * (XGMI_SHARE if cluster.gpu.is_amd else 1.0)
    peers = mesh(cluster) - 1
    return bandwidth * np.clip((members - 1) / peers, 1 / peers, 1.0) if peers > 0 else bandwidth


def mesh(cluster: Cluster) -> int:
    """Return the GPUs of the board if each pair has links of its own, else 0.

    AMD's boards have 8 GPUs, of which a node may list fewer; NVIDIA's with fewer than 8 have 4, and cards on PCIe none.
    """
    gpu = cluster.gpu
    board = 0 if gpu.name.endswith("-PCIe") else MESHES.get(family(gpu), 0)
    return board if cluster.domain == board or (gpu.is_amd and cluster.domain < board) else 0


class Links:
    """Bandwidth and latency that each kind of parallelism gets, row by row; each is computed on first use and kept."""

    def __init__(self, columns: Columns, site: SiteFactors) -> None:
        cluster = columns.cluster
        self._gpus, self._domain = cluster.gpus_per_node, cluster.domain
        self._inner_latency = cluster.intra_node.latency * NODE_LATENCY_RATIO
        self._node = cluster.inter_node.bandwidth
        self._node_latency = cluster.inter_node.latency * NETWORK_LATENCY_RATIO
        self._columns, self._site = columns, site

    def _inner(self, members: Any) -> Any:
        """Bandwidth of a rank to the others of so many in its node or NVLink domain."""
        return intra_node(self._columns.cluster, members) * NODE_LINK_SHARE * self._site.inner_link

    @cached_property
    def tensor(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of a tensor parallel rank; across domains each domain is full of one ring."""
        return self._ring(self._columns.tp, rings=1)

    @cached_property
    def context(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of a context parallel rank in a collective."""
        columns = self._columns
        return self._ring(columns.tp * columns.cp, rings=columns.tp)

    @cached_property
    def context_sends(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency from one context parallel rank to the next.

        A collective goes through all adapters of a node, a send through the one of its GPU (NVIDIA/nccl, src/graph/
        topo.cc: ncclTopoGetLocalNet).
        """
        columns = self._columns
        bandwidth, latency = self._inner(2), self.context[1]
        own = self._node * SEND_SHARE * self._site.network / self._gpus
        within = columns.tp * columns.cp <= self._domain
        return np.where(within, bandwidth, np.minimum(self.context[0], own)), latency

    @cached_property
    def heads(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of a context parallel rank that exchanges heads for tokens with all others at once."""
        columns = self._columns
        span = columns.tp * columns.cp
        return self._exchange(span, rings=np.minimum(span, self._domain), members=columns.cp)

    @cached_property
    def data(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of the ranks that share gradients; context parallel ranks hold the same weights.

        As many rings leave a domain as it holds tensor parallel ranks.
        """
        columns = self._columns
        return self._ring(columns.tp * columns.cp * columns.dp, rings=columns.tp)

    @cached_property
    def stage(self) -> FloatArray:
        """Seconds of an all-reduce of a few values over all ranks of a stage, by tree in a domain and between them."""
        columns = self._columns
        ranks = columns.tp * columns.cp * columns.dp
        inside = np.ceil(np.log2(np.minimum(ranks, self._domain)))
        between = np.ceil(np.log2(np.maximum(1, ranks / self._domain)))
        seconds: FloatArray = 2.0 * (inside * self._inner_latency + between * self._node_latency)
        return seconds

    @cached_property
    def experts(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of a rank in a collective of all that share a layer's experts."""
        columns = self._columns
        ranks = columns.etp * columns.ep
        return self._exchange(ranks, rings=1, members=ranks)

    @cached_property
    def expert_tensor(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of the ranks that share each expert."""
        return self._ring(self._columns.etp, rings=1)

    @cached_property
    def expert_data(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of the ranks with the same experts, which are spread over the whole stage, or over the
        shard group."""
        columns = self._columns
        return self._ring(columns.tp * columns.shards, rings=columns.etp * columns.ep)

    @cached_property
    def shard(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of the ranks that share one set of shards, which are neighbours in hybrid sharding."""
        columns = self._columns
        return self._ring(columns.tp * columns.shards, rings=columns.tp)

    @cached_property
    def replica(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency of the ranks that hold the same shard; each GPU of a node may be in another ring."""
        columns = self._columns
        return self._ring(columns.tp * columns.copies, rings=columns.tp * columns.shards)

    @cached_property
    def pipeline(self) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and latency from stage to stage; stages are the farthest apart, as Megatron numbers ranks.

        Where an NVLink domain holds more than one stage and not all, the slowest has one neighbour in its domain and
        one outside, and no other stage's sends beside its own on the node's network.
        """
        columns = self._columns
        ranks = columns.tp * columns.cp * columns.dp
        outer = self._node * SEND_SHARE / np.minimum(self._gpus, ranks)
        stage = np.minimum(self._domain, ranks)
        inner = self._inner(2)
        bandwidth, latency = self._of(stage * columns.pp <= self._domain, inner, outer)
        mixed = (stage * columns.pp > self._domain) & (stage * 2 <= self._domain)
        bandwidth = np.where(mixed, 2 / (1 / inner + 1 / outer), bandwidth)
        latency = np.where(mixed, (self._inner_latency + self._node_latency) / 2, latency)
        return bandwidth * self._site.pipeline_link, latency

    def _ring(self, span: Any, *, rings: Any, members: Any = None) -> tuple[FloatArray, FloatArray]:
        """Bandwidth and mean latency of a rank whose ring spans this many GPUs, next to others that leave the domain
        too.

        Rings that leave a domain of several nodes share the networks of all of them, up to the rate of NVLink, over
        which they reach those networks.
        """
        network = self._node * self._ring_share(span) * self._site.network
        inner = self._inner(span / rings if members is None else members)
        outer = network / np.minimum(self._gpus, rings)
        if self._domain > self._gpus:
            shared = network * (self._domain / self._gpus) / np.minimum(self._domain, rings)
            outer = np.maximum(outer, np.minimum(inner, shared))
        crossing = np.clip((span / self._domain - 1) / np.maximum(1, span / rings - 1), 0.0, 1.0)
        latency = self._inner_latency + crossing * (self._node_latency - self._inner_latency)
        return self._of(span <= self._domain, inner, outer)[0], latency

    def _ring_share(self, span: Any) -> Any:
        """Share of the network that a ring reaches; the more GPUs it spans, the likelier it meets another on a link.

        InfiniBand of Hopper's generation and later routes each packet around the others (NVIDIA/nccl-tests issue 283:
        350 of 400 GB/s on 1,984 H200).
        """
        cluster = self._columns.cluster
        if cluster.fabric == "omni-path":
            return OMNI_PATH_RING_SHARE
        if generation(cluster.gpu) and cluster.fabric != "roce":
            return RING_SHARE
        alone = np.exp(-np.maximum(span - self._domain, 0) / LEAF_SPAN)
        return RING_SHARE * (COLLIDING_SHARE + (1 - COLLIDING_SHARE) * alone)

    def _exchange(self, span: Any, *, rings: Any, members: Any) -> tuple[FloatArray, FloatArray]:
        """Bandwidth of a ring, and the latency of a step of which some message crosses the network."""
        bandwidth, _ = self._ring(span, rings=rings, members=members)
        return bandwidth, np.where(span <= self._domain, self._inner_latency, self._node_latency)

    def _of(self, within: BoolArray, inner: Any, outer: Any) -> tuple[FloatArray, FloatArray]:
        return np.where(within, inner, outer), np.where(within, self._inner_latency, self._node_latency)
