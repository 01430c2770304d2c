"""The simulated cluster is reproducible for a seed and differs from the cost model."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.stages import CLUSTER, TOPOLOGIES, WORKLOAD, job_in
from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Topology
from tuner.core.errors import InputError, LaunchError
from tuner.core.model import Positions
from tuner.core.outcomes import Outcome
from tuner.costmodel.estimate import CostModel
from tuner.launch import Job, JobResult, JobState
from tuner.launch.virtual.ground_truth import CLIFF, USABLE, GroundTruth
from tuner.launch.virtual.run_noise import NO_FAULTS, Faults
from tuner.launch.virtual.simulated import NOISE, SimulatedLauncher, SpeedChange
from tuner.logs.failures import Failures
from tuner.space.space import Space

GOOD = TOPOLOGIES["good"]


def job(folder: Path, number: int, topology: Topology = GOOD) -> Job:
    return job_in(folder / str(number), number=number, tag=f"t{number}", topology=topology)


def run(cluster: SimulatedLauncher, what: Job) -> JobResult:
    """Run a job and return its result; a job that hangs is cancelled."""
    handle = cluster.submit(what)
    for _ in range(20):
        if cluster.poll([handle])[handle].state is JobState.ENDED:
            return cluster.collect(handle)
        cluster.wait(1e5)
    cluster.cancel(handle)
    return cluster.collect(handle)


def seconds(found: JobResult) -> float:
    assert found.measurement is not None
    return found.measurement.seconds


WORLD = """
import json, sys, pathlib
from tests.stages import CLUSTER, TOPOLOGIES, WORKLOAD
from tests.launch.test_simulated import GOOD, job, run
from tuner.core.columns import Columns
from tuner.launch.virtual.simulated import SimulatedLauncher
cluster, columns = SimulatedLauncher(4, seed=11), Columns.of(TOPOLOGIES.values(), WORKLOAD, CLUSTER)
found = run(cluster, job(pathlib.Path(sys.argv[1]), 0))
print(json.dumps([list(cluster.truth.seconds(columns)), list(cluster.truth.memory(columns)), repr(found)]))
"""


def test_a_seed_determines_the_cluster_in_every_process(tmp_path: Path) -> None:
    """A seed gives the same cluster in every process, independent of Python's hash seed."""
    worlds = [
        subprocess.run(
            [sys.executable, "-c", WORLD, str(tmp_path / salt)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for salt in ("1", "2")
    ]
    assert worlds[0] == worlds[1]
    columns = Columns.of(TOPOLOGIES.values(), WORKLOAD, CLUSTER)
    assert json.loads(worlds[0])[0] == list(GroundTruth(11).seconds(columns))


def test_another_seed_is_another_cluster() -> None:
    columns = Columns.of(TOPOLOGIES.values(), WORKLOAD, CLUSTER)
    one, other = GroundTruth(1), GroundTruth(2)
    assert not np.any(one.seconds(columns) == other.seconds(columns))
    assert one.limit(columns) != other.limit(columns)


def test_the_truth_of_a_topology_does_not_depend_on_the_query(default_space: Space) -> None:
    points = np.concatenate(list(default_space.blocks()))[:9000]
    truth, places = GroundTruth(5), [0, 4000, 8500]
    every = truth.seconds(default_space.columns(points))
    few = Columns.of(default_space.topologies(points[places]), default_space.workload, default_space.cluster)
    assert truth.seconds(few) == pytest.approx(every[places], rel=1e-12)
    assert list(truth.fits(few)) == list(truth.fits(default_space.columns(points))[places])


def test_runs_of_one_topology_differ_by_the_noise(tmp_path: Path) -> None:
    cluster = SimulatedLauncher(4, seed=2, faults=NO_FAULTS)
    logs = np.log([seconds(run(cluster, job(tmp_path, number))) for number in range(200)])
    truth = cluster.truth.seconds(Columns.of([GOOD], WORKLOAD, CLUSTER))[0]
    assert np.std(logs) == pytest.approx(NOISE.deviation, rel=0.2)
    assert np.mean(logs) == pytest.approx(math.log(truth), abs=0.003)


def test_the_longest_sequence_that_a_model_allows_does_not_change_its_noise(tmp_path: Path) -> None:
    """Learned positions have weights, and change it."""
    cases: list[tuple[Positions, bool]] = [("rotary", True), ("learned", False)]
    for positions, alike in cases:
        times = set()
        for most in (2048, 4096):
            model = replace(WORKLOAD.model, positions=positions, max_positions=most)
            asked = replace(job(tmp_path / positions / str(most), 0), workload=replace(WORKLOAD, model=model))
            times.add(run(SimulatedLauncher(CLUSTER.nodes, faults=NO_FAULTS), asked).seconds)
        assert (len(times) == 1) == alike


def test_hangs_and_crashes_are_rare_and_the_next_run_succeeds(tmp_path: Path) -> None:
    numbers = count()
    cluster = SimulatedLauncher(4, seed=4)
    outcomes = [run(cluster, job(tmp_path, next(numbers))).outcome for _ in range(900)]
    seen = Counter(outcomes)
    assert 2 <= seen[Outcome.CRASHED] <= 15
    assert 2 <= seen[Outcome.CANCELLED] <= 15  # the hung ones
    for this, following in pairwise(outcomes):
        assert this is Outcome.MEASURED or following is Outcome.MEASURED


@pytest.mark.parametrize("drift", [SpeedChange(factor=1.05, after_jobs=3), SpeedChange(factor=1.05, at_seconds=200.0)])
def test_a_drift_scales_all_later_jobs_by_its_factor(drift: SpeedChange, tmp_path: Path) -> None:
    still = SimulatedLauncher(4, seed=6, faults=NO_FAULTS)
    moving = SimulatedLauncher(4, seed=6, faults=NO_FAULTS, drift=drift)
    ratios, clocks = [], []
    for number in range(8):
        clocks.append(moving.now())
        with_drift = seconds(run(moving, job(tmp_path / "b", number)))
        ratios.append(with_drift / seconds(run(still, job(tmp_path / "a", number))))
    drifted = [
        number >= 3 if drift.after_jobs else clock >= (drift.at_seconds or 0.0) for number, clock in enumerate(clocks)
    ]
    assert ratios == pytest.approx([1.05 if after else 1.0 for after in drifted])
    assert {True, False} == set(drifted)


def test_an_invalid_drift_is_refused() -> None:
    with pytest.raises(InputError, match="give exactly one of them"):
        SpeedChange(factor=1.1)
    with pytest.raises(InputError, match="is impossible"):
        SpeedChange(factor=0.0, after_jobs=1)


def test_a_resumed_study_has_the_same_cluster(tmp_path: Path) -> None:
    """A resumed study gets the same results: noise depends on a topology's runs so far, drift on the jobs so far."""
    drift = SpeedChange(factor=1.1, after_jobs=4)
    whole = SimulatedLauncher(4, seed=8, drift=drift)
    expected = [run(whole, job(tmp_path / "whole", number)) for number in range(6)]
    found = [run(SimulatedLauncher(4, seed=8, drift=drift), job(tmp_path / "cut", number)) for number in range(6)]
    assert found == expected


def test_a_job_is_adopted_at_every_moment_of_its_life(tmp_path: Path) -> None:
    what = replace(job(tmp_path, 0), iterations=(3,))
    first = SimulatedLauncher(4, seed=1, faults=NO_FAULTS, clock=1000.0)
    handle = first.submit(what)
    assert json.loads((what.folder / "simulated.json").read_text())["simulated"] is True
    for _ in range(200):
        second = SimulatedLauncher(4, seed=1, clock=first.now())
        assert second.adopt(what, None) == handle
        assert second.now() == first.now()
        assert second.poll([handle]) == first.poll([handle])
        first.wait(5.0)
    assert second.collect(handle) == first.collect(handle)


def test_a_job_that_has_started_is_not_restarted(tmp_path: Path) -> None:
    cluster = SimulatedLauncher(1, seed=1, faults=NO_FAULTS)
    run_first, then = job(tmp_path, 0), job(tmp_path, 1)
    first, handle = cluster.submit(run_first), cluster.submit(then)
    cluster.resume_at(2000.0)
    assert cluster.poll([first, handle])[handle].state is JobState.ENDED
    again = SimulatedLauncher(1, seed=1)
    assert again.adopt(then, None) == handle
    again.resume_at(cluster.now())
    assert again.poll([handle]) == cluster.poll([handle])


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_moment_changes_no_result_after_resuming(seed: int, tmp_path: Path) -> None:
    whole, cut = _walk(tmp_path, seed, killed=False), _walk(tmp_path, seed, killed=True)
    assert cut == whole


def _walk(folder: Path, seed: int, *, killed: bool) -> list[object]:
    """Submit, await and cancel jobs at random; return the observations after each step."""
    faults = Faults(hangs=0.1, crashes=0.1)
    steps, kills = Random(seed), Random(seed)  # noqa: S311 - a random walk, not a secret
    shutil.rmtree(folder, ignore_errors=True)
    cluster, jobs, seen = SimulatedLauncher(3, seed=1, faults=faults), list[tuple[Job, str]](), list[object]()
    for _ in range(60):
        move = steps.random()
        if move < 0.3:
            what = job(folder, len(jobs), steps.choice(list(TOPOLOGIES.values())))
            jobs.append((what, cluster.submit(what)))
        elif move < 0.9 or not jobs:
            cluster.wait(steps.choice([1.0, 10.0, 40.0]))
        else:
            cluster.cancel(steps.choice(jobs)[1])
        if killed and kills.random() < 0.3:
            cluster = SimulatedLauncher(3, seed=1, faults=faults, clock=cluster.now())
            for what, handle in kills.sample(jobs, len(jobs)):
                assert cluster.adopt(what, kills.choice([handle, None])) == handle
        found = cluster.poll([handle for _, handle in jobs])
        ended = [cluster.collect(handle) for handle, status in found.items() if status.state is JobState.ENDED]
        seen.append((cluster.now(), found, ended))
    return seen


def test_a_waiting_job_that_is_adopted_first_does_not_overtake(tmp_path: Path) -> None:
    cluster = SimulatedLauncher(1, seed=1, faults=NO_FAULTS)
    jobs = [job(tmp_path, number) for number in range(3)]
    handles = [cluster.submit(each) for each in jobs]
    again = SimulatedLauncher(1, seed=1)
    assert [again.adopt(each, None) for each in reversed(jobs)] == handles[::-1]
    assert again.poll(handles) == cluster.poll(handles)
    for each in (again, cluster):
        each.resume_at(150.0)
    assert again.poll(handles) == cluster.poll(handles)


def test_a_full_disk_is_reported_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cluster, what = SimulatedLauncher(4, seed=1), job(tmp_path, 0)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(LaunchError, match="No space left on device; choose a writable folder"):
            cluster.submit(what)
    assert not list(tmp_path.iterdir())
    handle = cluster.submit(what)
    assert SimulatedLauncher(4, seed=1).adopt(what, None) == handle


def test_jobs_of_another_cluster_are_not_adopted(tmp_path: Path) -> None:
    what = job(tmp_path, 0)
    handle = SimulatedLauncher(4, seed=1).submit(what)
    other = SimulatedLauncher(4, seed=2)
    assert other.adopt(what, handle) is None
    assert other.poll([handle])[handle].state is JobState.LOST


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": "tuner/virtual-job/1", "life": {}}', "é"])
def test_a_job_is_adopted_by_its_handle_if_its_file_is_damaged(damage: str, tmp_path: Path) -> None:
    what = job(tmp_path, 0)
    handle = SimulatedLauncher(4, seed=1).submit(what)
    (what.folder / "simulated.json").write_text(damage, encoding="utf-8")
    assert SimulatedLauncher(4, seed=1).adopt(what, None) is None
    assert SimulatedLauncher(4, seed=1).adopt(what, handle) == handle


def test_a_job_larger_than_the_cluster_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="needs 2 nodes; the simulated cluster has 1"):
        SimulatedLauncher(1).submit(job(tmp_path, 0, replace(GOOD, nodes=2, dp=8)))
    with pytest.raises(LaunchError, match="cannot be measured"):
        SimulatedLauncher(1).submit(replace(job(tmp_path, 0), iterations=()))


def test_a_custom_truth_is_used(tmp_path: Path) -> None:
    class Twins(GroundTruth):
        def seconds(self, columns: Columns) -> FloatArray:
            return np.full(len(columns.tp), 7.0)

    cluster = SimulatedLauncher(4, truth=Twins(0), faults=NO_FAULTS)
    for number, topology in enumerate((GOOD, TOPOLOGIES["crash"])):
        assert seconds(run(cluster, job(tmp_path, number, topology))) == pytest.approx(7.0, rel=0.05)


@pytest.mark.parametrize("outcome", [Outcome.OOM, Outcome.CRASHED])
def test_the_evidence_is_that_of_a_log(outcome: Outcome, tmp_path: Path) -> None:
    cluster = SimulatedLauncher(4, faults=Faults(planted={GOOD.key: outcome}))
    for number in range(12):
        failure = run(cluster, job(tmp_path, number)).failure
        assert failure is not None
        assert failure.evidence.startswith("SIMULATED ")
        sighting = Failures().see(1, failure.evidence)
        assert sighting is not None
        assert sighting.failure.kind == outcome.value


def test_the_first_iteration_is_the_slowest_and_progress_is_reported(tmp_path: Path) -> None:
    cluster = SimulatedLauncher(4, seed=9, faults=NO_FAULTS)
    handle = cluster.submit(replace(job(tmp_path, 0), iterations=(2, 3)))
    ends, shares = [cluster.now()], []
    while (status := cluster.poll([handle])[handle]).state is not JobState.ENDED:
        shares.append(status.share)
        cluster.wait(1e5)
        ends.append(cluster.now())
    start_up, first, second, third = np.diff(ends)
    assert 60 <= start_up <= 180
    assert 1.25 <= first / second <= 3.05
    assert third == pytest.approx(second, rel=0.03)
    assert shares[0] is None
    assert shares[1:] == [0.0, 0.0, 0.0]


def test_cliffs_are_rare_and_of_the_stated_size() -> None:
    truth = GroundTruth(3)
    slower = np.array([truth._cliff(14336, heads, tp) for heads in range(8, 129, 8) for tp in (1, 2, 4, 8)]) - 1
    cliffs = slower[slower > CLIFF[0]]
    assert 0.15 < len(cliffs) / len(slower) < 0.45
    assert cliffs.max() < CLIFF[1]
    assert np.median(np.abs(slower)) < 0.02


def test_the_truth_differs_from_the_model_and_correlates_with_it(default_space: Space) -> None:
    """Over 300 legal topologies on ten clusters, the model's median error is 5 to 15% and its tau 0.6 to 0.95.

    `benchmarks/simulated.py` prints the figures.
    """
    points = np.concatenate(list(default_space.blocks()))
    columns = default_space.columns(np.random.default_rng(0).choice(points, 300, replace=False))
    expected = CostModel().score(columns)
    errors, orders = [], []
    for seed in range(10):
        truth = GroundTruth(seed)
        found = truth.seconds(columns)
        errors.append(np.median(np.abs(expected.seconds / found - 1)))
        orders.append(order(expected.seconds, found))
        assert USABLE[0] < truth.limit(columns) / columns.cluster.gpu.memory < USABLE[1]
    assert 0.05 < np.median(errors) < 0.15
    assert max(errors) < 0.3
    assert 0.6 < np.median(orders) < 0.95


def order(one: FloatArray, other: FloatArray) -> float:
    """Return Kendall's tau."""
    left, right = np.triu_indices(len(one), 1)
    return float(np.mean(np.sign(one[left] - one[right]) * np.sign(other[left] - other[right])))


def test_a_job_measures_several_batches_by_the_truth(tmp_path: Path) -> None:
    """The batches of a job share noise and start-up; the last one is the measurement."""
    cluster = SimulatedLauncher(4, seed=3, faults=NO_FAULTS)
    step = GOOD.micro_batch * GOOD.dp
    batches = (4 * step, 8 * step)
    topologies = [replace(GOOD, global_batch=batch) for batch in batches]
    found = run(cluster, replace(job(tmp_path, 0, topologies[-1]), batches=batches))
    assert found.measurement is not None
    measured = found.measurement.batch_seconds
    true = cluster.truth.seconds(Columns.of(topologies, WORKLOAD, CLUSTER))
    assert len(measured) == 2
    assert found.seconds == measured[-1]
    off = np.log(np.array(measured) / true)
    assert abs(off[0] - off[1]) < 0.02
    assert float(np.abs(off).max()) < 0.05
    assert found.elapsed > 2 * sum(measured)


def test_the_handle_of_a_job_with_one_batch_is_that_of_earlier_versions(tmp_path: Path) -> None:
    """A handle has the number of batches only if there are several, so that earlier studies can adopt their jobs."""
    cluster = SimulatedLauncher(4, seed=3)
    assert "batches" not in json.loads(cluster.submit(job(tmp_path, 0)))
    step = GOOD.micro_batch * GOOD.dp
    small = replace(job(tmp_path, 1, replace(GOOD, global_batch=2 * step)), batches=(step, 2 * step))
    handle = cluster.submit(small)
    assert json.loads(handle)["batches"] == 2
    other = SimulatedLauncher(4, seed=3)
    assert other.adopt(small, handle) == handle
