"""The reduced sizes at which a topology can be tried."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.fidelity import Fidelity, without_ramp
from tuner.space.rules.ruleset import RuleSet

MAX_DP_CUT: Final = 4
"""Largest factor by which a trial cuts the data parallel degree, where nodes allow the choice. Cut by four from 64, the
exchange of gradients grew by more than the model expects, and extrapolations missed by 12.8%; halved, by 1.2 to 2.9%
(the corpus' tables with several GPU counts)."""

MIN_MICRO_BATCHES: Final = 4
"""Microbatches of the smallest batch, where the pipeline has fewer stages: fixed costs would outweigh them."""

SINGLE_BATCH: Final = 4
"""Microbatches of a job that measures one batch, as a multiple of the smallest: one small batch alone misleads."""


def fidelities(
    topology: Topology,
    workload: Workload,
    cluster: Cluster,
    *,
    several_batches: bool,
    most_nodes: int | None = None,
) -> list[Fidelity]:
    """Return the reduced sizes of a topology that are legal, the smallest first; none if it cannot be reduced.

    With `most_nodes`, the data parallel degree is reduced until the job fits.
    """
    full = topology.microbatches(workload.as_in(topology).global_batch)
    least = max(topology.pp, MIN_MICRO_BATCHES)
    counts = (least, 2 * least) if several_batches else (SINGLE_BATCH * least,)
    counts = counts if counts[-1] < full else (full,)
    cuts = [cut for cut in range(topology.dp, 0, -1) if topology.dp % cut == 0]
    found = []
    for cut in cuts if most_nodes else [cut for cut in cuts if cut in (MAX_DP_CUT, MAX_DP_CUT // 2, 1)]:
        nodes = -(-topology.gpus // cut // cluster.gpus_per_node)
        if (cut > 1 or counts != (full,)) and (most_nodes is None or nodes <= most_nodes):
            found.append(Fidelity(nodes=nodes, dp=topology.dp // cut, micro_batches=counts))
    return _legal(found, topology, workload, cluster)


def _legal(found: Sequence[Fidelity], topology: Topology, workload: Workload, cluster: Cluster) -> list[Fidelity]:
    """Return the sizes that break no law that the full one keeps; they may leave GPUs of a single node idle."""
    if not found:
        return []
    plain, small = without_ramp(workload), [fidelity.topologies(topology) for fidelity in found]
    columns = Columns.of([topology, *chain.from_iterable(small)], plain, cluster)
    illegal = np.zeros(len(columns.tp) - 1, dtype=np.bool_)
    for rule in RuleSet.only_laws().in_force(plain):
        broken = rule.broken_rows(columns)
        if not broken[0]:
            illegal |= broken[1:] & ~((rule.name == "fill-nodes") & (columns.nodes[1:] == 1))
    ends = np.cumsum([len(topologies) for topologies in small])
    parts = np.split(illegal, ends[:-1])
    return [fidelity for fidelity, part in zip(found, parts, strict=True) if not part.any()]
