"""The subject of a log: the workload, topology and cluster of its job."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tuner.core.domain import Cluster, Framework, Topology, Workload
from tuner.core.keys import parse_key
from tuner.logs import LogRun, described
from tuner.space.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The workload, topology and cluster of a log's job."""

    workload: Workload
    topology: Topology
    cluster: Cluster
    by_log: bool
    """Whether the topology is taken from the log, not from the user."""

    def run_by(self, framework: Framework | None) -> Subject:
        """Return the subject as a run of a framework, or of one unknown."""
        workload = replace(self.workload, framework=framework, parallel_loss=framework != "fsdp2")
        return replace(self, workload=workload)


def subject_of(run: LogRun | None, space: Space, key: str | None = None) -> tuple[Subject | None, str]:
    """Return the workload and topology of the run from the key or the log's arguments, or None and what is missing.

    For the workload, the user's arguments of the space take precedence over the log, and the log over defaults.
    """
    own = described(run.arguments if run else {}, space.cluster.gpus_per_node)
    names = space.arguments.keys()
    workload = space.workload if "model" in names or own.workload is None else own.workload
    chosen = {
        name: getattr(space.workload if name in names else own.workload or workload, name)
        for name in ("global_batch", "precision", "attention")
    }
    model = replace(workload.model, seq=space.workload.model.seq) if "seq" in names else workload.model
    workload = replace(workload, model=model, **chosen)
    if key is None:
        if own.topology is None:
            return None, own.lacks
        return Subject(workload=workload, topology=own.topology, cluster=space.cluster, by_log=True), ""
    topology = parse_key(key, **{**space.key_context, "workload": workload})
    if own.topology and not re.search(r"(?:^|-)dp", key, re.IGNORECASE):
        replica = topology.gpus // topology.dp
        dp = max(1, own.topology.gpus // replica)
        topology = parse_key(key, workload=workload, cluster=space.cluster, dp=dp)
    return Subject(workload=workload, topology=topology, cluster=space.cluster, by_log=False), ""
