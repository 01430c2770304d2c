"""A launcher that replays the results of a measured table; topologies without a row cannot be launched."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from tuner.core.domain import Cluster, MemoryKind, Topology, Workload
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.core.text import counted
from tuner.launch.contract import Job
from tuner.launch.virtual.cluster import VirtualLauncher
from tuner.launch.virtual.job import VirtualJob, marks
from tuner.launch.virtual.run_noise import NO_FAULTS, Faults, RunNoise

UNTIMED: Final = 60.0
"""Assumed seconds per iteration of a failed run, for which tables list no time."""

_ANSWERS: Final = (Outcome.MEASURED, Outcome.OOM, Outcome.HUNG, Outcome.CRASHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """One measured row: workload, cluster, topology and outcome."""

    workload: Workload
    cluster: Cluster
    topology: Topology
    outcome: Outcome
    seconds: float | None = None
    """Seconds of one iteration; required for MEASURED."""
    memory: float | None = None
    """Peak bytes, as listed in the table."""
    memory_kind: MemoryKind = "smi"
    note: str = ""

    def __post_init__(self) -> None:
        if self.outcome not in _ANSWERS:
            raise InputError(
                f"{self.topology.key} has outcome {self.outcome.value}; a table has OK, OOM, FAIL or HANG."
            )
        if self.outcome is Outcome.MEASURED and self.seconds is None:
            raise InputError(
                f"{self.topology.key} is measured but has no seconds; a row with status OK needs sec_per_iter."
            )
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise InputError(f"{self.topology.key} took {self.seconds} seconds; a time is more than 0.")


class ReplayLauncher(VirtualLauncher):
    """Launches jobs whose results come from a table; several rows of one topology are replayed in rotation.

    `noise` and `faults` make two runs of one row differ, as determined by `seed`; by default they do not. `simulated`
    marks a table of the simulated cluster.
    """

    name = "replay"

    def __init__(
        self,
        answers: Iterable[ReplayedRun],
        *,
        nodes: int | None = None,
        seed: int = 0,
        noise: RunNoise | None = None,
        faults: Faults = NO_FAULTS,
        simulated: bool = False,
    ) -> None:
        self.simulated = simulated
        self._seed, self._noise, self._faults = seed, noise or RunNoise(), faults
        self._answers: dict[str, list[ReplayedRun]] = {}
        max_nodes = 0
        for answer in answers:
            self._answers.setdefault(run_word(answer.workload, answer.cluster, answer.topology), []).append(answer)
            max_nodes = max(max_nodes, answer.topology.nodes)
        if not self._answers:
            raise InputError("the table has no usable row; give one with measured rows.")
        super().__init__(max_nodes if nodes is None else nodes, cluster="replay")

    def _run_key(self, job: Job) -> str:
        return run_word(job.workload, job.cluster, job.topology)

    def _decide(self, job: Job, run: str, earlier: int, before: int) -> VirtualJob:
        rows = self._answers.get(run)
        if rows is None:
            known = counted(len(self._answers), "topology").replace("topologys", "topologies")
            raise LaunchError(
                f"the table has no row of {job.topology.key} on {counted(job.topology.nodes, 'node')}; "
                f"it has rows of {known}, and only these can be proposed."
            )
        row = rows[earlier % len(rows)]
        outcome = row.outcome
        if outcome is Outcome.MEASURED:
            outcome = self._faults.of_run(self._seed, run, earlier) or outcome
        seconds = (row.seconds or UNTIMED) * self._noise.factor(self._seed, run, earlier, "noise")
        steps = (seconds,) * max(job.iterations)
        stop_times = {
            Outcome.MEASURED: marks(0.0, steps)[-1],
            Outcome.HUNG: 0.0,
            Outcome.OOM: steps[0] / 2,
            Outcome.CRASHED: steps[0] / 2,
        }
        return VirtualJob(
            cluster=self._cluster,
            tag=job.tag,
            folder=str(job.folder),
            run=run,
            nodes=job.topology.nodes,
            submitted=self.now(),
            order=before,
            start_up=0.0,
            steps=steps,
            measured=tuple(sorted(set(job.iterations))),
            outcome=outcome,
            stops=stop_times[outcome],
            simulated=self.simulated,
            memory=row.memory,
            memory_kind=row.memory_kind,
            evidence="" if outcome is Outcome.MEASURED else _evidence(row, outcome),
        )


def run_word(workload: Workload, cluster: Cluster, topology: Topology) -> str:
    """Return a hash of the run: the model as the topology trains it, the GPU and the GPUs per node.

    Heads, shape and batch that a topology of the study overrides may already be part of a row's model. The length of
    the training, the batch ramp-up and the model's name do not affect an iteration and are omitted.
    """
    trained = workload.as_in(topology)
    trained = replace(trained, tokens=0.0, ramp=None, model=replace(trained.model, name="any"))
    spread = replace(topology, heads=None, shape=None, global_batch=None)
    text = repr((trained, cluster.gpu.name, cluster.gpus_per_node, spread))
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _evidence(row: ReplayedRun, outcome: Outcome) -> str:
    if outcome is not row.outcome:
        return "a random fault, which the table does not list"
    status = {Outcome.OOM: "OOM", Outcome.HUNG: "HANG", Outcome.CRASHED: "FAIL"}[row.outcome]
    return f"status {status} in the table" + (f' (note: "{row.note}")' if row.note else "")
