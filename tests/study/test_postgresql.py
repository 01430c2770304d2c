"""Studies in a database server that several processes share, and that is restarted while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.postgres import programs_of_server, restartable, server
from tests.studies import (
    ENVIRONMENT,
    assert_lawful,
    finish,
    kept,
    over,
    start,
    states,
    together,
)
from tuner.core.outcomes import Outcome
from tuner.study.limits import Limits

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with initdb and postgres."""
    pytest.importorskip("psycopg")
    found = programs_of_server()
    if found is None:
        pytest.skip("no initdb here; install Debian's postgresql")
    return found


def test_processes_share_a_study_on_postgresql(tmp_path: Path, programs: Path) -> None:
    """Two and four processes can share a study on PostgreSQL under the same laws as on SQLite."""
    with server(programs) as url:
        for many in (2, 4):
            name = f"shared-by-{many}"
            together(many, url, tmp_path, name, "--storage", url)


OPEN = """
import sys, time
from tuner.study.store.storage import open_storage

time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
open_storage(sys.argv[1]).close()
"""


def test_processes_that_open_an_empty_database_together_all_succeed(programs: Path) -> None:
    """Four processes that open an empty database at the same time all succeed, although only one creates the tables."""
    for _ in range(3):
        with server(programs) as url:
            words = [sys.executable, "-c", OPEN, url, str(time.time() + 4)]
            opened = [subprocess.Popen(words, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE) for _ in range(4)]
            said = [each.communicate()[1] for each in opened]
            assert [each.returncode for each in opened] == [0] * 4, said


VICTIM = """
import os, signal, sys
from pathlib import Path
from tuner.space.build import space_for
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.limits import Limits

runs, url, budget = sys.argv[1:]

def observe(event):
    if event.kind == "started":
        os.kill(os.getpid(), signal.SIGSTOP)

space = space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,2,4", "recompute=none"))
settings = StudySettings(
    space=space, limits=Limits(budget=int(budget)), study="shared", runs=Path(runs), storage=url, sampler="grid",
    on_event=observe,
)
with open_loop(settings) as loop:
    loop.run()
"""
"""A worker that stops itself while its first job runs, and is then killed."""


def test_workers_on_postgresql_share_a_budget_and_adopt_the_job_of_a_killed_one(tmp_path: Path, programs: Path) -> None:
    """Workers keep the common budget, run no proposal twice, and adopt the job of a killed worker exactly once."""
    budget = 40
    with server(programs) as url:
        words = [sys.executable, "-c", VICTIM, str(tmp_path / "runs"), url, str(budget)]
        victim = subprocess.Popen(words, env=ENVIRONMENT, cwd=tmp_path, stderr=subprocess.DEVNULL)
        given = ("--study", "shared", "--budget", str(budget), "--sampler", "grid", "--storage", url)
        try:
            os.waitid(os.P_PID, victim.pid, os.WSTOPPED | os.WNOWAIT)
            others = [start(*given, folder=tmp_path) for _ in range(3)]
            deadline = time.monotonic() + 60
            while len(over(url, "shared")) < 5:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        finally:
            victim.kill()
            victim.wait()
        said = [finish(each) for each in others]
        assert [each.code for each in said] == [0, 0, 0], said
        trials = kept(url, "shared")
        assert states(url, "shared")["RUNNING"] == 0
    assert_lawful(trials, budget=budget)
    assert sum(trial.launched for trial in trials) >= budget - Limits(budget=budget).final
    left = [trial for trial in trials if trial.launched and trial.proposal.worker["pid"] == victim.pid]
    assert len(left) == 1
    assert left[0].result is not None
    assert left[0].result.outcome in (Outcome.MEASURED, Outcome.OOM), "as its own job ended, and not as cancelled"
    assert sum(each.err.count("adopted") for each in said) == 1
    jobs = [path.name.split("-")[0] for path in (tmp_path / "runs" / "shared" / "jobs").iterdir()]
    assert len(jobs) == len(set(jobs)), "one folder, one job"


def test_workers_survive_short_outages_of_their_server(tmp_path: Path, programs: Path) -> None:
    """Workers survive two restarts of the server, one of them after a crash, and nothing is lost or stored twice."""
    with restartable(programs) as made:
        given = ("--study", "shared", "--budget", "80", "--sampler", "grid", "--storage", made.url)
        workers = [start(*given, folder=tmp_path) for _ in range(2)]
        for jobs, how in ((4, signal.SIGINT), (12, signal.SIGQUIT)):
            deadline = time.monotonic() + 60
            while len(over(made.url, "shared")) < jobs or len(_launchers(made.url)) < len(workers):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            made.stop(how)
            time.sleep(2)
            made.start()
        said = [finish(worker) for worker in workers]
        assert [each.code for each in said] == [0, 0], said
        trials = kept(made.url, "shared")
    assert_lawful(trials, budget=80)
    assert sum(trial.launched for trial in trials) >= 80 - Limits(budget=80).final
    assert any("is unreachable; waiting up to 10 minutes" in each.err for each in said)


def _launchers(url: str) -> set[int]:
    """Return the pids of the workers that have launched a job."""
    return {trial.proposal.worker["pid"] for trial in kept(url, "shared") if trial.handle}


def test_ctrl_c_ends_a_worker_that_waits_for_its_server(tmp_path: Path, programs: Path) -> None:
    """A worker that waits for its server ends on Ctrl-C without a traceback; the same command continues later."""
    with restartable(programs) as made:
        given = ("--study", "waits", "--budget", "40", "--sampler", "grid", "--storage", made.url)
        worker = start(*given, folder=tmp_path)
        while len(over(made.url, "waits")) < 3:
            assert worker.poll() is None
        made.stop(signal.SIGINT)
        assert worker.stderr is not None
        lines = [""]
        while "is unreachable" not in lines[-1]:
            lines.append(worker.stderr.readline())
            assert lines[-1], lines[-5:]
        worker.send_signal(signal.SIGINT)
        said = finish(worker, seconds=20)
        assert said.code in (1, 130)
        assert "Traceback" not in said.err
        made.start()
        assert finish(start(*given, folder=tmp_path)).code == 0
        assert_lawful(kept(made.url, "waits"), budget=40)
