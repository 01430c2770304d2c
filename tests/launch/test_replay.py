"""The replay launcher returns the measurements of a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.stages import CLUSTER, TOPOLOGIES, WORKLOAD, Behaviour, answer, job_in
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch import Job, JobResult, JobState
from tuner.launch.virtual.replay import ReplayedRun, ReplayLauncher
from tuner.launch.virtual.run_noise import Faults, RunNoise

GOOD = TOPOLOGIES["good"]


def job(folder: Path, number: int, topology: Topology = GOOD, workload: Workload = WORKLOAD) -> Job:
    return job_in(folder / str(number), number=number, tag=f"t{number}", topology=topology, workload=workload)


def run(cluster: ReplayLauncher, what: Job) -> JobResult:
    handle = cluster.submit(what)
    for _ in range(10):
        cluster.wait(1000.0)
    return cluster.collect(handle)


def test_a_row_is_replayed_with_its_figures_and_is_not_simulated(tmp_path: Path) -> None:
    found = run(ReplayLauncher([answer("good", 12.5)]), job(tmp_path, 0))
    assert found.measurement == Measurement(
        seconds=12.5, iterations=(2,), peak_memory=30e9, memory_kind="smi", simulated=False
    )
    assert found.elapsed == 25.0


@pytest.mark.parametrize(("behaviour", "said"), [("oom", "OOM"), ("crash", "FAIL")])
def test_a_failed_row_fails_and_quotes_the_table(behaviour: Behaviour, said: str, tmp_path: Path) -> None:
    row = answer(behaviour)
    found = run(ReplayLauncher([row]), job(tmp_path, 0, row.topology))
    assert found.outcome is row.outcome
    assert found.failure is not None
    assert found.failure.evidence == f'status {said} in the table (note: "as tabled")'


def test_a_hung_row_hangs_from_the_start(tmp_path: Path) -> None:
    cluster = ReplayLauncher([answer("hang")])
    handle = cluster.submit(job(tmp_path, 0, TOPOLOGIES["hang"]))
    cluster.wait(1e6)
    status = cluster.poll([handle])[handle]
    assert (status.state, status.iterations, status.moved) == (JobState.RUNNING, 0, status.began)
    assert cluster.now() == 1e6


def test_repeated_rows_are_replayed_in_turn(tmp_path: Path) -> None:
    """Repeated rows are returned in turn across processes, so that a resumed study gets the next row."""
    rows = [answer("good", 10.0), answer("oom"), answer("good", 11.0), answer("good", 12.0)]
    seen = []
    for number in range(7):
        measurement = run(ReplayLauncher(rows), job(tmp_path, number)).measurement
        assert measurement is not None
        seen.append(measurement.seconds)
    assert seen == [10.0, 11.0, 12.0, 10.0, 11.0, 12.0, 10.0]


def test_one_topology_may_fail_once_and_run_once(tmp_path: Path) -> None:
    rows = [replace(answer("crash"), topology=GOOD), answer("good", 9.0)]
    cluster = ReplayLauncher(rows)
    outcomes = [run(cluster, job(tmp_path, number)).outcome for number in range(3)]
    assert outcomes == [Outcome.CRASHED, Outcome.MEASURED, Outcome.CRASHED]


def test_a_topology_missing_from_the_table_cannot_be_launched(tmp_path: Path) -> None:
    cluster = ReplayLauncher([answer("good", 10.0), answer("oom")])
    with pytest.raises(LaunchError, match="no row of tp2-pp1-dp4-mbs2-z1 on 1 node; it has rows of 2 topologies"):
        cluster.submit(job(tmp_path, 0, replace(GOOD, micro_batch=2)))
    with pytest.raises(LaunchError, match="no row of"):
        cluster.submit(job(tmp_path, 0, workload=replace(WORKLOAD, fused_norms=False)))
    assert not list(tmp_path.iterdir())


def test_a_row_is_found_by_the_job_and_not_by_its_notation(tmp_path: Path) -> None:
    """A row with a model of 32 heads and a batch of 32 is found by a topology that has them as axes."""
    model = replace(WORKLOAD.model.with_heads(32), name="of a table")
    cluster = ReplayLauncher(
        [answer("good", 10.0, workload=replace(WORKLOAD, model=model, global_batch=32, tokens=1e9))]
    )
    asked = replace(GOOD, heads=32, global_batch=32)
    assert run(cluster, job(tmp_path, 0, asked)).outcome is Outcome.MEASURED


def test_an_empty_table_and_an_invalid_row_are_refused() -> None:
    with pytest.raises(InputError, match="has no usable row"):
        ReplayLauncher([])
    with pytest.raises(InputError, match="measured but has no seconds"):
        answer("good")
    with pytest.raises(InputError, match=r"took -1\.0 seconds"):
        answer("good", -1.0)
    with pytest.raises(InputError, match="a table has OK, OOM, FAIL or HANG"):
        ReplayedRun(workload=WORKLOAD, cluster=CLUSTER, topology=GOOD, outcome=Outcome.PRUNED)


def test_the_cluster_has_the_nodes_of_the_largest_row_by_default() -> None:
    rows = [answer("good", 10.0), replace(answer("good", 5.0), topology=replace(GOOD, nodes=2, dp=8))]
    assert ReplayLauncher(rows).nodes == 2
    assert ReplayLauncher(rows, nodes=9).nodes == 9


def test_the_noise_of_a_replay_follows_from_its_seed(tmp_path: Path) -> None:
    """The noise is the same for equal seeds and differs between seeds; its deviation is the one requested."""
    rows = [answer("good", 10.0)]
    seen: dict[int, list[float]] = {}
    for index, seed in enumerate((1, 2, 1)):
        cluster = ReplayLauncher(rows, seed=seed, noise=RunNoise(deviation=0.02))
        folder = tmp_path / str(index)
        results = [run(cluster, job(folder, number)).measurement for number in range(40)]
        seconds = [found.seconds for found in results if found is not None]
        assert index != 2 or seconds == seen[1]
        seen[seed] = seconds
    assert seen[1] != seen[2]
    assert np.std(np.log([*seen[1], *seen[2]])) == pytest.approx(0.02, rel=0.3)


def test_heavy_tailed_noise_has_outliers_and_the_same_deviation() -> None:
    plain, heavy = (
        np.log([RunNoise(deviation=0.1, heavy_tailed=tail).factor(number) for number in range(4000)])
        for tail in (False, True)
    )
    assert np.abs(plain).max() < 0.5 < np.abs(heavy).max()
    assert np.std(plain) == pytest.approx(np.std(heavy), rel=0.3)


def test_a_fault_of_a_replay_does_not_affect_the_next_run(tmp_path: Path) -> None:
    cluster = ReplayLauncher([answer("good", 10.0)], faults=Faults(hangs=0.0, crashes=1.0))
    crashed, following = (run(cluster, job(tmp_path, number)) for number in range(2))
    assert crashed.failure is not None
    assert (crashed.outcome, following.outcome) == (Outcome.CRASHED, Outcome.MEASURED)
    assert crashed.failure.evidence == "a random fault, which the table does not list"
