"""Duration of whole `tuner report` processes for a study of a thousand jobs, nine in ten of them measured.

    python benchmarks/report.py

The study's figures come from the simulated cluster and are written directly into its storage. A real search would spend
minutes on choosing jobs and would prune most of them, which would leave the report fewer points.
"""

from __future__ import annotations

import math
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from optuna.trial import TrialState, create_trial

from tuner.core.documents import topology_document
from tuner.core.domain import Topology
from tuner.core.outcomes import Failure, Measurement, Outcome
from tuner.core.text import DAY
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.memory import limit, worst_need
from tuner.costmodel.site_factors import SiteFactors
from tuner.launch.contract import JobResult
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.search.parameter_space import ParameterSpace
from tuner.space.build import space_for
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.store.stored import STATES
from tuner.study.store.trial import Proposal, proposal_document, result_document

REPEATS = 3
JOBS = 1000
SETTINGS = ("tp=2,4,8", "micro_batch=1,2,4,8", "heads=16,32,64,112")


def long_study(runs: Path, jobs: int = JOBS, name: str = "thousand") -> None:
    """Create a study with so many jobs in a folder of studies."""
    space = space_for(settings=SETTINGS, framework="any")
    settings = StudySettings(space=space, limits=Limits(budget=jobs), study=name, runs=runs)
    with open_loop(settings) as loop:
        _fill(loop, jobs)


def _fill(loop: StudyLoop, jobs: int) -> None:
    pool, study = loop.pool, loop.store
    chance = np.random.default_rng(0)
    columns = pool.parts[0]
    fits = np.flatnonzero(worst_need(columns, SiteFactors()).total < limit(columns))
    chosen = chance.permutation(fits)[:jobs]
    rows = columns.rows(chosen)
    seconds, needs, (low, high) = (
        GroundTruth(0).seconds(rows),
        worst_need(rows, SiteFactors()).total,
        CostModel().score(rows).interval,
    )
    axes = ParameterSpace(pool)
    clock = 0.0
    for number, candidate in enumerate(chosen.tolist()):
        topology: Topology = pool.topology(candidate)
        took = float(seconds[number] * math.exp(chance.normal(0.0, 0.01)))
        measured = number % 10 != 9
        outcome = Outcome.MEASURED if measured else Outcome.OOM if number % 20 == 9 else Outcome.PRUNED
        clock += 3 * took
        proposal = Proposal(
            key=topology.key,
            params=axes.values(candidate),
            topology=topology_document(topology),
            candidate=candidate,
            nodes=topology.nodes,
            why="drawn for a benchmark",
            estimate_sec=math.sqrt(low[number] * high[number]),
            estimate_low=float(low[number]),
            estimate_high=float(high[number]),
        )
        measurement = Measurement(seconds=took, tflops=100e12, peak_memory=float(needs[number]), simulated=True)
        failure = Failure(kind="", evidence="", meaning="as the benchmark has it")
        result = JobResult(
            outcome=outcome,
            objective=took * math.exp(float(pool.work[candidate])) / DAY if measured else None,
            measurement=measurement if measured else None,
            failure=None if measured else failure,
            node_hours=3 * took * topology.nodes / 3600,
            clock=clock,
            simulated=True,
        )
        told = {"ending": result_document(result), "outcome": outcome.value, "proposal": proposal_document(proposal)}
        state = STATES.get(outcome, TrialState.FAIL)
        trial = create_trial(
            state=state,
            value=result.objective if state is TrialState.COMPLETE else None,
            params=dict(proposal.params),
            distributions=dict(axes.distributions),
            user_attrs={**told, "key": proposal.key, "why": proposal.why},
        )
        study.storage.create_new_trial(study.storage.get_study_id_from_name(study.name), trial)


def main() -> None:
    """Print the figures."""
    with TemporaryDirectory() as folder:
        runs = Path(folder)
        long_study(runs)
        seconds, busy = [], []
        for _ in range(REPEATS):
            started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "tuner", "report", "thousand", "--runs", folder]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            seconds.append(time.perf_counter() - started)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            busy.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"tuner report of {JOBS:,} jobs: {statistics.median(seconds):.2f} s (worst {max(seconds):.2f})")
        print(f"of a processor: {statistics.median(busy):.2f} s, which is what it takes on a machine of its own")
        for path in sorted((runs / "thousand" / "report").glob("*.*")):
            print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
