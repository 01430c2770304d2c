"""Replays of analytic models that share no code with tuner's model, with the noise and faults of real clusters.

Each table is the truth of one cluster. A twist changes this truth, or the noise and faults of the runs; the cost model
that guides the search has no access to the table or the twist.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.judging import AFTER, NEAR, Judged, days_of, jobs_text, judged_study, median, percent
from tuner.core.columns import FloatArray
from tuner.core.outcomes import Outcome
from tuner.costmodel.estimate import CostModel
from tuner.launch.contract import Job
from tuner.launch.virtual.cluster import VirtualLauncher
from tuner.launch.virtual.hash_rng import normal
from tuner.launch.virtual.job import VirtualJob, marks
from tuner.launch.virtual.replay import ReplayedRun, ReplayLauncher, run_word
from tuner.launch.virtual.run_noise import Faults, RunNoise
from tuner.search.candidates import CandidatePool
from tuner.study.replay_setup import replayed
from tuner.tables import read_table

TP_SLOWDOWN: Final = 1.5
SEND_SLOWDOWN: Final = 3.0
STRAGGLER_SLOWDOWN: Final = 1.3
MEMORY_CHANGE: Final = 1.2

MISJUDGED: Final[Mapping[str, float]] = {
    "tp": 0.08,
    "pp": 0.05,
    "tp pp": 0.03,
    "micro_batch": 0.05,
    "recompute": 0.04,
    "vpp": 0.03,
    "zero": 0.02,
    "sequence_parallel": 0.02,
    "key": 0.01,
}
"""Standard deviations of the logarithms of errors, by the settings whose topologies share them."""

Runs = Sequence[ReplayedRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twist:
    """How a cluster differs from its table."""

    change: Callable[[CandidatePool, Runs], Runs] = lambda _pool, runs: runs
    noise: RunNoise = field(default_factory=lambda: RunNoise(deviation=0.01))
    faults: Faults = field(default_factory=Faults)
    straggler: bool = False
    """Whether the first run of the best topology is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One study."""

    table: str
    twist: str
    sampler: str
    seed: int
    jobs: int
    silent: bool = False


def _slower_tp(pool: CandidatePool, runs: Runs) -> Runs:
    """Slow down all topologies with the same tp as the cost model's first choice."""
    part = pool.parts[0]
    expected = CostModel().score(part)
    favourite = int(part.tp[np.argmin(np.where(expected.fits, expected.seconds, np.inf))])
    return [_timed(run, TP_SLOWDOWN if run.topology.tp == favourite else 1.0) for run in runs]


def _slower_sends(_pool: CandidatePool, runs: Runs) -> Runs:
    """Make the pipeline sends three times as slow, with their time computed from the stage's share of the network."""
    return [_timed(run, 1.0, (SEND_SLOWDOWN - 1) * _send_seconds(run)) for run in runs]


def _send_seconds(run: ReplayedRun) -> float:
    topology, workload = run.topology, run.workload
    if topology.pp == 1:
        return 0.0
    micro_batches = workload.global_batch / (topology.dp * topology.micro_batch)
    activation = 2.0 * topology.micro_batch * workload.model.seq * workload.model.hidden / topology.cp
    activation /= topology.tp if topology.sequence_parallel else 1
    share = run.cluster.inter_node.bandwidth / run.cluster.gpus_per_node
    return 2 * micro_batches * topology.vpp * activation / share


def _more_memory(_pool: CandidatePool, runs: Runs) -> Runs:
    return [_scaled_memory(run, MEMORY_CHANGE) for run in runs]


def _less_memory(_pool: CandidatePool, runs: Runs) -> Runs:
    """Reduce the measured memory; rows that ran out of memory have no figure and do not change."""
    return [_scaled_memory(run, 1 / MEMORY_CHANGE) for run in runs]


def _timed(run: ReplayedRun, factor: float, more: float = 0.0) -> ReplayedRun:
    return run if run.seconds is None else replace(run, seconds=run.seconds * factor + more)


def _scaled_memory(run: ReplayedRun, factor: float) -> ReplayedRun:
    if run.memory is None or run.seconds is None:
        return run
    memory = run.memory * factor
    if memory > run.cluster.gpu.memory:
        return replace(run, outcome=Outcome.OOM, seconds=None, memory=None)
    return replace(run, memory=memory)


def _misjudged(draw: int) -> Callable[[CandidatePool, Runs], Runs]:
    """Return a change that multiplies times at random by setting, as if the cost model misjudged each setting.

    Each topology needs as much memory as the cost model expects, and runs out of memory if that is likely.
    """

    def change(pool: CandidatePool, runs: Runs) -> Runs:
        found = [CostModel().score(part) for part in pool.parts]
        risk, needs = (np.concatenate([getattr(each, name) for each in found]) for name in ("out_of_memory", "memory"))
        words = [run_word(*pool.setting(row), pool.topology(row)) for row in range(len(pool))]
        full, need = set(itertools.compress(words, risk > 0.5)), dict(zip(words, needs.tolist(), strict=True))

        def changed(run: ReplayedRun) -> ReplayedRun:
            word = run_word(run.workload, run.cluster, run.topology)
            if word in full:
                return replace(run, outcome=Outcome.OOM, seconds=None, memory=None)
            if run.seconds is None:
                return run
            factor = math.exp(sum(_error(draw, run, names) for names in MISJUDGED))
            return replace(_timed(run, factor), memory=need[word])

        return [changed(run) for run in runs]

    return change


def _error(draw: int, run: ReplayedRun, names: str) -> float:
    """Return the logarithm of the error that topologies with the same values of some settings share."""
    return MISJUDGED[names] * normal(draw, *(f"{name} {getattr(run.topology, name)}" for name in names.split()))


TWISTS: Final[Mapping[str, Twist]] = {
    "none": Twist(),
    "tp": Twist(change=_slower_tp),
    "sends": Twist(change=_slower_sends),
    "heavy": Twist(noise=RunNoise(deviation=0.1, heavy_tailed=True)),
    "faults": Twist(faults=Faults(hangs=0.075, crashes=0.075)),
    "straggler": Twist(straggler=True),
    "memory+20": Twist(change=_more_memory),
    "memory-20": Twist(change=_less_memory),
}


def twist_of(name: str) -> Twist:
    """Return the twist of a name; `misjudgedN` is a cluster whose times are changed by the random draw N."""
    draw = name.removeprefix("misjudged")
    return TWISTS[name] if draw == name else Twist(change=_misjudged(int(draw)))


class TwistedReplay(ReplayLauncher):
    """A replay with the noise and faults of a twist, copied from an existing replay because reading a table is slow."""

    def __init__(self, table: ReplayLauncher, twist: Twist, slow: str, *, seed: int, jobs: int) -> None:
        vars(self).update(vars(table))
        VirtualLauncher.__init__(self, table.nodes * jobs, cluster="replay")  # jobs at a time share no nodes
        self._seed, self._noise, self._faults = seed, twist.noise, twist.faults
        self._slow = slow if twist.straggler else ""

    def _decide(self, job: Job, run: str, earlier: int, before: int) -> VirtualJob:
        course = super()._decide(job, run, earlier, before)
        if earlier or run != self._slow or course.outcome is not Outcome.MEASURED:
            return course
        steps = tuple(step * STRAGGLER_SLOWDOWN for step in course.steps)
        return replace(course, steps=steps, stops=marks(course.start_up, steps)[-1])


def study(case: Case) -> Judged:
    """Run one study and judge it."""
    pool, table, truth, best = _twisted(case.table, case.twist)
    launcher = TwistedReplay(table, twist_of(case.twist), best, seed=case.seed, jobs=case.jobs)
    return judged_study(pool, truth, launcher, sampler=case.sampler, seed=case.seed, jobs=case.jobs, silent=case.silent)


@cache
def _read(table: str) -> tuple[CandidatePool, Runs]:
    return replayed(read_table(Path(table)))


@cache
def _twisted(table: str, twist: str) -> tuple[CandidatePool, ReplayLauncher, FloatArray, str]:
    """Return the candidates, the cluster, the days of each candidate, and the key of the best candidate's runs."""
    pool, runs = _read(table)
    changed = twist_of(twist).change(pool, runs)
    truth = days_of(pool, changed)
    best = int(np.nanargmin(truth))
    return pool, ReplayLauncher(changed), truth, run_word(*pool.setting(best), pool.topology(best))


def add_truth_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `--truths` takes."""
    parser.add_argument(
        "--truths", type=Path, help="tables of other analytic models, played as clusters with surprises"
    )
    parser.add_argument(
        "--twists", default=",".join(TWISTS), help="surprises to play; also misjudged0, misjudged1, ..."
    )
    parser.add_argument("--jobs", default="1,4,8", help="jobs at a time")
    parser.add_argument("--only-table", default="", help="words that the names of the tables contain, by commas")
    parser.add_argument("--record", type=Path, help="file that receives each study as one line of JSON")


def print_truths(given: argparse.Namespace, samplers: Sequence[str]) -> None:
    """Run all studies and print their tables."""
    words = given.only_table.split(",")
    tables = [str(path) for path in sorted(given.truths.glob("*.csv")) if any(word in path.name for word in words)]
    cases = [
        Case(table=table, twist=twist, sampler=sampler, seed=seed, jobs=int(jobs), silent=given.silent)
        for table in tables
        for twist in given.twists.split(",")
        for seed in range(given.first_seed, given.first_seed + given.seeds)
        for sampler in samplers
        for jobs in given.jobs.split(",")
    ]
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as workers:
        found = list(zip(cases, workers.map(study, cases, chunksize=2), strict=True))
    if given.record:
        lines = (json.dumps({**asdict(case), "at_a_time": case.jobs, **asdict(judged)}) for case, judged in found)
        given.record.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for sampler in samplers:
        for jobs in map(int, given.jobs.split(",")):
            own = [(case, judged) for case, judged in found if (case.sampler, case.jobs) == (sampler, jobs)]
            _print_table(f"{sampler}, {jobs} at a time, {given.seeds} seeds", own)


def _print_table(title: str, found: Sequence[tuple[Case, Judged]]) -> None:
    heads = ["truth, twist", *(f"to {near:.0%}" for near in NEAR), "worst"]
    heads += [*(f"after {after}" for after in AFTER), "winner", "worst", "jobs", "OOM", "node-hours"]
    heads += ["ranked in interval", "winners in interval", "s"]
    print(f"\n## {title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    names = dict.fromkeys((Path(case.table).stem.removeprefix("table-"), case.twist) for case, _ in found)
    for table, twist in names:
        own = [judged for case, judged in found if case.twist == twist and table in case.table]
        print(f"| {table}, {twist} | {_cells(own)} |")
    for label, twisted in (("all, no twist", False), ("all, twists", True)):
        own = [judged for case, judged in found if (case.twist != "none") == twisted]
        if own:
            print(f"| {label} | {_cells(own)} |")


def _cells(own: Sequence[Judged]) -> str:
    near = min(NEAR)
    cells = [jobs_text(median(judged.until[distance] for judged in own)) for distance in NEAR]
    cells += [jobs_text(max(judged.until[near] for judged in own))]
    cells += [percent(median(judged.regret[after] for judged in own)) for after in AFTER]
    cells += [percent(median(judged.end for judged in own)), percent(max(judged.end for judged in own))]
    jobs = sum(judged.jobs for judged in own)
    cells += [f"{median(judged.jobs for judged in own):g}", f"{sum(judged.out_of_memory for judged in own) / jobs:.1%}"]
    cells += [f"{median(judged.node_hours for judged in own):.1f}"]
    cells += [_share(sum(judged.covered for judged in own), sum(judged.ranked for judged in own))]
    winners = [judged.winner_covered for judged in own if judged.winner_covered is not None]
    cells += [_share(sum(winners), len(winners)), f"{median(judged.seconds for judged in own):.1f}"]
    return " | ".join(cells)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%} of {whole}" if whole else ""
