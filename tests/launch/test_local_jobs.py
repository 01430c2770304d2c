"""The shipped worker under the local launcher: real DeepSpeed jobs that fail, hang and are interrupted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.launch.test_local import ended, printed, processes, until
from tests.stages import job_in
from tests.workers import WORKLOAD, needs_deepspeed, tiny
from tuner.core import catalog
from tuner.core.domain import Topology
from tuner.core.outcomes import Outcome
from tuner.launch import Job
from tuner.launch.ds_config import ds_config
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import ProcessSpec, WorkerProgram
from tuner.launch.supervisor import members
from tuner.logs import read_log

pytestmark = pytest.mark.slow

TWO = Topology(nodes=1, tp=1, pp=1, dp=2, micro_batch=4, zero=0, recompute="none")
ONE = replace(TWO, dp=1)
LONG = 300
"""Time limit of a job in seconds, at least twenty times its duration on an idle machine."""


def assigned(folder: Path, topology: Topology, **rest: Any) -> Job:
    tag = f"worker-{os.getpid()}-{time.monotonic_ns()}"
    usual: dict[str, Any] = {"workload": WORKLOAD, "cluster": catalog.cluster("bloom-48")}
    return job_in(folder / "0000", tag=tag, topology=topology, **usual | rest)


def worker(timeout: float = 600.0, **changes: Any) -> WorkerProgram:
    """Return the worker's program with these changes to DeepSpeed's config."""
    needs_deepspeed()

    def configure(job: Job) -> Mapping[str, Any]:
        made = ds_config(job.workload, job.topology)
        for path, value in changes.items():
            *above, last = path.split("__")
            place = made
            for each in above:
                place = place[each]
            place[last] = value
        return made

    return WorkerProgram(configure=configure, accelerator="cpu", timeout=timeout)


def ranks(one: Job) -> dict[int, int]:
    """Return the pid of each rank."""
    found = {}
    for pid in members(one.tag):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name.startswith("rank "):
            found[int(name[5:])] = pid
    return found


def test_a_hang_records_stacks_and_a_killed_rank_ends_the_job(tmp_path: Path) -> None:
    """If a rank is stopped, the stacks of all ranks are written; if it is then killed, the job ends as CRASHED."""
    launcher, one = LocalLauncher(worker(), ranks=2), assigned(tmp_path, TWO, iterations=(900_000,))
    handle = launcher.submit(one)
    until(lambda: printed(one), LONG)
    stopped = ranks(one)[1]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(1)
    assert "stacks.txt" in launcher.explain(handle)
    stacks = (one.folder / "stacks.txt").read_text()
    assert f"process {stopped}, rank 1, stopped by a signal" in stacks
    assert "rank 0" in stacks
    assert "train.py" in stacks
    os.kill(stopped, signal.SIGKILL)
    result = ended(launcher, handle)
    launcher.close()
    assert result.outcome is Outcome.CRASHED
    assert result.failure is not None
    assert result.failure.meaning == "a rank was killed (SIGKILL)"
    assert result.failure.evidence == "worker: rank 1 was killed by signal 9"
    assert processes(one) == set()


def test_one_job_measures_several_batches(tmp_path: Path) -> None:
    """A job measures both of its batches, and the larger one is the job's result."""
    workload = replace(WORKLOAD, global_batch=64)
    topology = replace(TWO, micro_batch=2, global_batch=64)
    one = assigned(tmp_path, topology, workload=workload, iterations=(2, 3), batches=(16, 64))
    launcher = LocalLauncher(worker(), ranks=2)
    assert launcher.several_batches
    result = ended(launcher, launcher.submit(one), LONG)
    launcher.close()
    assert result.outcome is Outcome.MEASURED
    assert result.measurement is not None
    (run,) = read_log((one.folder / "stdout.log").read_text().splitlines()).runs
    assert [each.global_batch for each in run.iterations] == [16] * 3 + [64] * 3
    printed = [each.seconds or 0.0 for each in run.iterations]
    small, large = median(printed[1:3]), median(printed[4:6])
    assert result.measurement.batch_seconds == pytest.approx((small, large), abs=1e-4)
    assert result.measurement.seconds == result.measurement.batch_seconds[1]


def test_a_collective_that_times_out_is_a_hang(tmp_path: Path) -> None:
    launcher, one = LocalLauncher(worker(timeout=4.0), ranks=2), assigned(tmp_path, TWO, iterations=(900_000,))
    handle = launcher.submit(one)
    until(lambda: printed(one), LONG)
    os.kill(ranks(one)[1], signal.SIGSTOP)
    result = ended(launcher, handle, 60)
    launcher.close()
    assert result.outcome is Outcome.HUNG
    assert result.failure is not None
    assert "Timed out waiting" in result.failure.evidence
    assert processes(one) == set()


@dataclass(frozen=True)
class Limited:
    """The worker with a limit on its memory."""

    inner: WorkerProgram
    measured_by_log = False
    several_batches = True
    step_pattern = None
    on_host = True

    def prepare(self, one: Job) -> ProcessSpec:
        start = self.inner.prepare(one)
        return replace(start, arguments=("prlimit", "--as=6000000000", *start.arguments))

    def dumps_on_signal(self, pid: int) -> bool:
        return self.inner.dumps_on_signal(pid)


FAILURES: dict[str, tuple[Outcome, str, str]] = {
    "refused": (Outcome.CRASHED, "DeepSpeed refused the configuration", "ValidationError"),
    "nan": (Outcome.CRASHED, "the loss is not a number", "nan"),
    "memory": (Outcome.OOM, "the host ran out of memory", "DefaultCPUAllocator: can't allocate memory"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_worker_is_reported_with_its_line(name: str, tmp_path: Path) -> None:
    one = assigned(tmp_path, ONE)
    program: WorkerProgram | Limited = worker()
    if name == "refused":
        program = worker(zero_optimization__no_such_key=1)
    elif name == "nan":
        program = worker(optimizer__params__lr=1e30)
    else:
        program, big = Limited(worker()), tiny(vocab=2_000_000, hidden=1024)
        one = replace(one, workload=replace(WORKLOAD, model=big))
    launcher = LocalLauncher(program, ranks=2)
    result = ended(launcher, launcher.submit(one), LONG)
    launcher.close()
    assert result.failure is not None
    outcome, meaning, evidence = FAILURES[name]
    assert (result.outcome, result.failure.meaning) == (outcome, meaning), result
    assert evidence in result.failure.evidence, result
    assert processes(one) == set()
