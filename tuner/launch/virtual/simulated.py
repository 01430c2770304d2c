"""The simulated cluster, whose jobs take no time and which does not represent a real machine.

Its results are marked SIMULATED. It serves to try out the search, not to predict performance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from statistics import median
from typing import Final

from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.core.errors import InputError
from tuner.core.model import IDENTITY, Model
from tuner.core.outcomes import Outcome
from tuner.core.quantity import GIB
from tuner.costmodel.flops import hardware_flops, per_gpu
from tuner.costmodel.memory import limit
from tuner.launch.contract import Job
from tuner.launch.virtual.cluster import VirtualLauncher
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.hash_rng import between, uniform
from tuner.launch.virtual.job import VirtualJob, marks
from tuner.launch.virtual.run_noise import Faults, RunNoise

NOISE: Final = RunNoise(deviation=0.01)
"""Noise of a run around the truth."""

JITTER: Final = RunNoise(deviation=0.003)
"""Noise of one iteration around its run."""

START_UP: Final = (60.0, 180.0)
"""Seconds before the first iteration, on one node and on `MANY_NODES` or more."""

MANY_NODES: Final = 64
WARM_UP: Final = (1.3, 3.0)
"""The first iteration relative to the others."""

_FULL: Final = (0.02, 0.5)
"""Share of its first iteration after which a job is out of memory: a pipeline fills early."""

_PIECE: Final = (0.2, 4.0)
"""GiB that it then asked for."""

_CRASHES: Final = (
    "slurmstepd: error: Node failure on node{node}",
    "node{node}: Fatal Python error: Segmentation fault",
    "node{node}: Process for rank {rank} exits with return code = -9",
    "srun: error: node{node}: task {rank}: Bus error",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChange:
    """A drift: jobs submitted from then on take `factor` times as long."""

    factor: float
    after_jobs: int | None = None
    at_seconds: float | None = None
    """By the cluster's clock."""

    def __post_init__(self) -> None:
        if not 0 < self.factor < float("inf"):
            raise InputError(
                f"a drift by a factor of {self.factor} is impossible; give a positive number such as 1.05."
            )
        if (self.after_jobs is None) == (self.at_seconds is None):
            raise InputError("a drift begins either after_jobs or at_seconds; give exactly one of them.")

    def begun(self, jobs: int, seconds: float) -> bool:
        """Whether the drift affects a job submitted at this time, after so many others."""
        if self.after_jobs is not None:
            return jobs >= self.after_jobs
        return self.at_seconds is not None and seconds >= self.at_seconds


RunWords = tuple[int, str, int]
"""The seed of a run's noise and faults: seed, topology and the number of its earlier runs."""

_WITHOUT_COST: Final = ("framework", "precision_recipe", "routing", "stack")
"""Fields of a workload that do not affect the noise of a run."""

_LATER: Final = ("experts", "latent", "delta_net", "attention_gate", "mtp_layers")
"""Fields of a model that enter the seed only if set, so that dense models keep their noise."""


class SimulatedLauncher(VirtualLauncher):
    """A simulated cluster of `nodes` nodes, determined by `seed`."""

    name = "simulated"
    simulated = True
    several_batches = True

    def __init__(
        self,
        nodes: int,
        *,
        seed: int = 0,
        drift: SpeedChange | None = None,
        truth: GroundTruth | None = None,
        faults: Faults | None = None,
        start_up: tuple[float, float] = START_UP,
        clock: float = 0.0,
    ) -> None:
        super().__init__(nodes, cluster=f"simulated {seed}", clock=clock)
        self.seed = seed
        self.truth = truth or GroundTruth(seed)
        self._drift = drift
        self._faults = faults or Faults()
        self._start_up = start_up

    def _run_key(self, job: Job) -> str:
        text = repr((_Sizes(job.workload), job.cluster.gpu, job.cluster.gpus_per_node, job.topology))
        return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()

    def _decide(self, job: Job, run: str, earlier: int, before: int) -> VirtualJob:
        batches = [replace(job.topology, global_batch=batch) for batch in job.batches] or [job.topology]
        columns = Columns.of(batches, job.workload, job.cluster)
        chance = (self.seed, run, earlier)
        iteration_seconds = self.truth.seconds(columns)
        if self._drift and self._drift.begun(before, self.now()):
            iteration_seconds = iteration_seconds * self._drift.factor
        steps = self._steps([float(seconds) for seconds in iteration_seconds], max(job.iterations), chance)
        measured = tuple(sorted(set(job.iterations)))
        columns = columns.rows(slice(-1, None))
        seconds = median(steps[number - 1 - max(measured)] for number in measured)
        fewest, most = self._start_up
        start_up = fewest + (most - fewest) * min(1.0, (job.topology.nodes - 1) / (MANY_NODES - 1))
        outcome = self._outcome(job, columns, chance)
        return VirtualJob(
            cluster=self._cluster,
            tag=job.tag,
            folder=str(job.folder),
            run=run,
            nodes=job.topology.nodes,
            submitted=self.now(),
            order=before,
            start_up=start_up,
            steps=steps,
            measured=measured,
            outcome=outcome,
            stops=_stop(outcome, start_up, steps, chance),
            simulated=True,
            memory=float(self.truth.memory(columns)[0]),
            tflops=float(per_gpu(hardware_flops(columns), seconds, columns)[0]) / 1e12,
            evidence=self._evidence(outcome, job, columns, chance),
            batches=len(batches),
        )

    def _steps(self, seconds: Sequence[float], many: int, chance: RunWords) -> tuple[float, ...]:
        noise = NOISE.factor(*chance, "noise")
        means = [mean * noise for mean in seconds for _ in range(many)]
        steps = [mean * JITTER.factor(*chance, "jitter", number) for number, mean in enumerate(means, start=1)]
        steps[0] *= between(*WARM_UP, *chance, "warm-up")
        return tuple(steps)

    def _outcome(self, job: Job, columns: Columns, chance: RunWords) -> Outcome:
        if planted := self._faults.planted.get(job.topology.key):
            return planted
        if not self.truth.fits(columns)[0]:
            return Outcome.OOM
        return self._faults.of_run(*chance) or Outcome.MEASURED

    def _evidence(self, outcome: Outcome, job: Job, columns: Columns, chance: RunWords) -> str:
        """Return the log line that such a job would print, labelled SIMULATED."""
        if outcome in (Outcome.MEASURED, Outcome.HUNG):
            return ""
        if outcome is Outcome.OOM:
            piece = between(*_PIECE, *chance, "piece")
            line = (
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {piece:.2f} GiB. GPU 0 has a total "
                f"capacity of {limit(columns) / GIB:.2f} GiB of which {piece * 512:.2f} MiB is free."
            )
        else:
            picked = _CRASHES[int(uniform(*chance, "line") * len(_CRASHES))]
            node = int(uniform(*chance, "node") * job.topology.nodes)
            line = picked.format(rank=node * job.cluster.gpus_per_node, node=node)
        return f"SIMULATED {line}"


class _Sizes:
    """A workload whose repr omits fields that do not affect time, so that equal jobs get equal noise."""

    def __init__(self, value: Workload | Model) -> None:
        self.value = value

    def __repr__(self) -> str:
        names = [known.name for known in fields(self.value) if known.name not in (*IDENTITY, *_WITHOUT_COST)]
        known = {name: getattr(self.value, name) for name in names}
        known = {name: value for name, value in known.items() if value or name not in _LATER}
        if isinstance(self.value, Model) and self.value.positions != "learned":
            known["max_positions"] = self.value.seq  # what the model allows costs nothing
        parts = [f"{name}={_Sizes(value) if isinstance(value, Model) else value!r}" for name, value in known.items()]
        return f"{type(self.value).__name__}({', '.join(parts)})"


def _stop(outcome: Outcome, start_up: float, steps: tuple[float, ...], chance: RunWords) -> float:
    """Return when progress stops: at the end of the last iteration, at peak memory in the first one, or at random."""
    if outcome is Outcome.MEASURED:
        return marks(start_up, steps)[-1]
    if outcome is Outcome.OOM:
        return start_up + between(*_FULL, *chance, "full") * steps[0]
    return between(0.05, 0.98, *chance, "stop") * (start_up + sum(steps))
