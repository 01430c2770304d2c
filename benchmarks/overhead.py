"""Cost of the search itself: a whole process, ask and tell at the 1,000th trial, and a proposal in a wide space.

python benchmarks/overhead.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tuner.core.documents import topology_document
from tuner.core.outcomes import Measurement, Outcome
from tuner.core.text import DAY
from tuner.costmodel.calibration import Calibration
from tuner.launch.contract import JobResult
from tuner.launch.virtual.ground_truth import GroundTruth
from tuner.launch.virtual.simulated import SimulatedLauncher
from tuner.search.candidates import CandidatePool
from tuner.search.observations import Observation
from tuner.search.parameter_space import ParameterSpace
from tuner.search.samplers import proposer
from tuner.search.selection import selected
from tuner.search.surrogate import Surrogate
from tuner.space.build import space_for
from tuner.space.space import Tally
from tuner.study.limits import Limits
from tuner.study.loop import StudyLoop
from tuner.study.settings import StudySettings
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial import Proposal
from tuner.study.store.trial_store import TrialStore

MANY: Final = 1_000
"""Number of trials of the study in which ask and tell are timed."""

WIDE: Final = ("micro_batch=1-32", "heads=8,16,32,64,112,128", "cp=1,2,4,8")
"""Settings of a space with 1,012,536 legal candidates, with `WIDE_BATCH` and without the policies of `LOOSE`."""

WIDE_BATCH: Final = 2304
LOOSE: Final = ("micro-batch-power-of-two", "dp-multiple-of-4")


def main() -> None:
    """Print the table."""
    print("## Speed\n\n| | figure | target | |\n|---|---|---|---|")
    whole = statistics.median(_process() for _ in range(3))
    _line("`tuner optimize --nodes 48 --budget 40`, whole process", f"{whole:.1f} s", "at most 6 s", whole <= 6)
    _overhead()
    _million()


def _process() -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tuner", "optimize", "--nodes", "48", "--budget", "40", "--runs", folder]
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started


def _overhead() -> None:
    """Time one more trial of a study with a thousand trials, stored on disk as in production."""
    pool = CandidatePool.of_space(space_for(framework="any"))
    real, columns = GroundTruth(0), pool.parts[0]
    truth = np.where(real.fits(columns), real.seconds(columns) * np.exp(pool.work) / DAY, np.nan)
    order = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(truth)))
    with tempfile.TemporaryDirectory() as folder:
        kept = TrialStore.open(sqlite_url(Path(folder) / "study.db"), "benchmark", {})
        loop = StudyLoop(
            StudySettings(space=space_for(framework="any"), limits=Limits(budget=10 * MANY), runs=Path(folder)),
            pool=pool,
            launcher=SimulatedLauncher(48, seed=0),
            store=kept,
        )
        known, seconds = loop.state, {name: list[float]() for name in ("keep", "learn", "propose")}
        for place, candidate in enumerate(order[: MANY + 9].tolist()):
            late = place >= MANY
            started = time.perf_counter()
            trial = kept.claim(_proposal(pool, known.space, candidate), known.space.distributions)
            assert trial is not None  # noqa: S101 - there is no other process
            kept.started(trial, "handle")
            days = float(truth[candidate])
            iteration = days * DAY / float(np.exp(pool.work[candidate]))
            measurement = Measurement(seconds=iteration)
            kept.end(trial, JobResult(outcome=Outcome.MEASURED, objective=days, measurement=measurement))
            told = time.perf_counter()
            if place + 1 >= MANY:
                loop.read(now=True)
            if late:
                seconds["keep"].append(told - started)
                seconds["learn"].append(time.perf_counter() - told)
                started = time.perf_counter()
                loop.scheduler.next(0.0)
                seconds["propose"].append(time.perf_counter() - started)
        kept.close()
    typical = {name: 1000 * statistics.median(each) for name, each in seconds.items()}
    both = typical["keep"]
    _line(f"ask and tell at the {MANY:,}th trial, SQLite", f"{both:.0f} ms", "at most 50 ms", both <= 50)
    _line("learning from it", f"{typical['learn']:.0f} ms", "", None)
    _line(f"the next proposal, {len(pool):,} candidates", f"{typical['propose']:.0f} ms", "", None)


def _proposal(pool: CandidatePool, space: ParameterSpace, candidate: int) -> Proposal:
    topology = pool.topology(candidate)
    return Proposal(
        key=topology.key,
        params=space.values(candidate),
        topology=topology_document(topology),
        candidate=candidate,
        nodes=topology.nodes,
        tag=str(candidate),
    )


def _million() -> None:
    space = space_for(framework="any", settings=WIDE, attention="flash2", global_batch=WIDE_BATCH, allow=LOOSE)
    began, tally = time.process_time(), Tally()
    found = selected(space, space.blocks(tally))
    pool = replace(CandidatePool.of_points(space, [found.points]), values=found.values)
    belief = Surrogate(pool, Calibration())
    print(f"| set-up of {tally.legal:,} legal topologies | {time.process_time() - began:.1f} s | | |")
    guided = proposer("guided", belief, ParameterSpace(pool), seed=0)
    truth = GroundTruth(0)
    open_to, best, took = np.ones(len(pool), dtype=np.bool_), None, []
    for _ in range(20):
        started = time.perf_counter()
        idea = guided.next(open_to, best)
        took.append(time.perf_counter() - started)
        assert idea is not None  # noqa: S101 - more than a million are open
        open_to[idea.candidate] = False
        columns, row = pool.at(idea.candidate)
        one = columns.rows(np.array([row]))
        if not truth.fits(one)[0]:
            belief.learn([Observation(candidate=idea.candidate, fits=False)])
            continue
        seconds = float(truth.seconds(one)[0])
        belief.learn([Observation(candidate=idea.candidate, seconds=seconds, fits=True)])
        finish = float(np.log(seconds) + pool.work[idea.candidate])
        best = finish if best is None else min(best, finish)
    answer = statistics.median(took)
    label = f"guided's answer over {len(pool):,} of {tally.legal:,} candidates, median of {len(took)}"
    _line(label, f"{answer:.2f} s", "at most 0.2 s", answer <= 0.2)


def _line(label: str, figure: str, target: str, met: bool | None) -> None:
    print(f"| {label} | {figure} | {target} | {'' if met is None else 'met' if met else 'MISSED'} |")


if __name__ == "__main__":
    main()
