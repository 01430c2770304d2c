"""A study survives SIGKILL, Ctrl-C and several processes at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.studies import (
    ENVIRONMENT,
    assert_lawful,
    finish,
    kept,
    optimize,
    over,
    start,
    states,
    together,
    url_of,
)
from tuner.core.outcomes import Measurement, Outcome
from tuner.launch.contract import JobResult
from tuner.space.build import space_for
from tuner.study import api
from tuner.study.settings import StudyEvent
from tuner.study.store.owner import gone, this_worker
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial import Proposal, Trial
from tuner.study.store.trial_store import TrialStore

BUDGET = 14
KILLS = 20


def winner(out: str) -> str:
    """Return the key of the best topology in the JSON output."""
    best: Mapping[str, Any] = json.loads(out)["best"]
    return str(best["key"])


@pytest.mark.slow
def test_twenty_kills_lose_and_duplicate_nothing_and_keep_the_winner(tmp_path: Path) -> None:
    """After SIGKILL at random moments and rerunning the command, ended trials are unchanged and none is duplicated.

    The budget is counted once, and the winner is that of an undisturbed run.
    """
    chance = random.Random(5)  # noqa: S311 - random moments, not secrets
    same = ("--budget", str(BUDGET), "--json", "--seed", "1")
    undisturbed = optimize("--study", "undisturbed", *same, folder=tmp_path)
    kills = studies = 0
    while kills < KILLS:
        name = f"killed-{studies}"
        studies += 1
        url = url_of(tmp_path, name)
        before: dict[int, Trial] = {}
        while kills < KILLS:
            process = start("--study", name, *same, folder=tmp_path)
            if chance.random() < 0.8:  # the others are killed while Python starts
                for _ in range(3):
                    assert process.stderr is not None
                    process.stderr.readline()
            time.sleep(chance.uniform(0.0, 0.3))
            ended = process.poll() is not None
            process.kill()
            process.communicate()
            if ended:
                break
            kills += 1
            after = over(url, name)
            assert {number: after.get(number) for number in before} == before
            before = after
        last = optimize("--study", name, *same, folder=tmp_path)
        assert last.code == 0, last.err
        trials = kept(url, name)
        assert {trial.number: trial for trial in trials if trial.number in before} == before
        assert_lawful(trials, budget=BUDGET)
        assert json.loads(last.out)["jobs_launched"] == sum(trial.launched for trial in trials)
        assert states(url, name)["RUNNING"] == states(url, name)["WAITING"] == 0
        assert winner(last.out) == winner(undisturbed.out)
        jobs = [path.name.split("-")[0] for path in (tmp_path / "runs" / name / "jobs").iterdir()]
        assert len(jobs) == len(set(jobs)), "one folder, one job"


def _begun(folder: Path, name: str) -> tuple[str, TrialStore]:
    """Run a study to its end, and return its URL and store."""
    assert optimize("--study", name, "--budget", "3", folder=folder).code == 0
    url = url_of(folder, name)
    return url, TrialStore.existing(url, name)


def _dead() -> dict[str, Any]:
    """Return the identity of an ended process of this machine."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return {**this_worker(), "pid": child.pid}


def _another(study: TrialStore) -> Proposal:
    """Return a proposal to repeat a measured topology, by a dead worker."""
    old = next(trial for trial in study.trials() if trial.measured).proposal
    return replace(
        old, params={}, repeat=7, tag="left-behind", worker=_dead(), why="claimed by a process that then died"
    )


def test_a_trial_whose_process_died_before_closing_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, study = _begun(tmp_path, "shared")
    trial = study.claim(_another(study), {})
    assert trial is not None
    result = JobResult(outcome=Outcome.MEASURED, measurement=Measurement(seconds=7.0), objective=3.5)

    def dies(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(study.storage, "set_trial_state_values", dies)
        with pytest.raises(SystemExit):
            study.end(trial, result)
    study.close()
    later = TrialStore.existing(url, "shared")
    assert list(later.owners()) == [trial.number]
    later.close_finished()
    assert later.owners() == {}
    assert later.trials()[trial.number].result == result
    later.close()


def test_one_of_several_processes_takes_over_the_trial_of_a_dead_one(tmp_path: Path) -> None:
    """If several processes try to take over a trial from the same former owner, exactly one succeeds."""
    url, study = _begun(tmp_path, "shared")
    trial = study.claim(_another(study), {})
    assert trial is not None
    others = [TrialStore.existing(url, "shared") for _ in range(3)]
    owners = [{**this_worker(), "pid": pid} for pid in (1, 2, 3)]
    for _ in range(2):  # first without, then with a stored owner
        formers = [study.owners()[trial.number]] * 3
        with ThreadPoolExecutor() as pool:
            taken = list(pool.map(TrialStore.take_over, others, [trial] * 3, formers, owners))
        assert sorted(taken) == [False, False, True]
        assert study.owners()[trial.number] == owners[taken.index(True)]
        study.storage.set_trial_user_attr(study._trial_id(trial), "worker", _dead())
    for each in (study, *others):
        each.close()


def test_a_trial_that_was_never_submitted_is_withdrawn_and_does_not_count(tmp_path: Path) -> None:
    """A trial whose process died before submitting the job uses no part of the budget."""
    url, study = _begun(tmp_path, "left")
    trial = study.claim(_another(study), {})
    study.close()
    assert trial is not None
    said = optimize("--study", "left", "--budget", "5", "--json", folder=tmp_path)
    assert said.code == 0
    trials = kept(url, "left")
    assert_lawful(trials, budget=5)
    assert [each.result.outcome for each in trials if each.result and not each.launched] == [Outcome.REJECTED]
    assert sum(each.launched for each in trials) == 5


@pytest.mark.slow
def test_a_worker_on_another_machine_is_gone_without_heartbeats(tmp_path: Path) -> None:
    """A worker on another machine counts as gone once its heartbeat is too old, and its trial is withdrawn."""
    url, study = _begun(tmp_path, "far")
    trial = study.claim(replace(_another(study), worker={"host": "elsewhere", "pid": 1, "born": 1}), {})
    assert trial is not None
    assert study.silent() == set()
    with sqlite3.connect(tmp_path / "runs" / "far" / "study.db") as database:
        database.execute("update trial_heartbeats set heartbeat = datetime('now', '-1 day')")
    database.close()
    assert study.silent() == {trial.number}
    study.close()
    said = optimize("--study", "far", "--budget", "5", "--json", folder=tmp_path)
    assert said.code == 0
    trials = kept(url, "far")
    assert_lawful(trials, budget=5)
    assert [each.result.outcome for each in trials if each.result and not each.launched] == [Outcome.REJECTED]


DIES = """
import os, signal, sys
from pathlib import Path
from tuner.space.build import space_for
from tuner.study.settings import StudySettings
from tuner.study.setup import open_loop
from tuner.study.limits import Limits

def observe(event):
    if event.kind == "started" and event.trial.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)

space = space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,2,4", "recompute=none"))
settings = StudySettings(
    space=space, limits=Limits(budget=9), study="adopted", runs=Path(sys.argv[1]), on_event=observe
)
with open_loop(settings) as loop:
    loop.run()
"""


@pytest.mark.parametrize("noted", [True, False])
def test_a_job_of_a_dead_tuner_is_adopted_and_measured(tmp_path: Path, *, noted: bool) -> None:
    """A job whose tuner died keeps running and is adopted, not repeated, whether or not its handle was stored."""
    process = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path / "runs")], env=ENVIRONMENT, cwd=tmp_path, check=False
    )
    assert process.returncode == -signal.SIGKILL
    url = url_of(tmp_path, "adopted")
    left = next(trial for trial in kept(url, "adopted") if trial.result is None)
    assert left.handle
    if not noted:  # as if it had died between submitting the job and storing the handle
        with sqlite3.connect(tmp_path / "runs" / "adopted" / "study.db") as database:
            database.execute("delete from trial_user_attributes where key = 'handle' and trial_id = 3")
        database.close()
        assert next(trial for trial in kept(url, "adopted") if trial.result is None).handle is None
    said = optimize("--study", "adopted", "--budget", "9", folder=tmp_path)
    assert said.code == 0, said.err
    assert "adopted" in said.err
    trials = kept(url, "adopted")
    assert_lawful(trials, budget=9)
    adopted = next(trial for trial in trials if trial.number == left.number)
    assert adopted.result is not None
    assert adopted.result.outcome in (Outcome.MEASURED, Outcome.OOM), "as its own job ended, and not as cancelled"
    assert [trial.proposal.tag for trial in trials].count(left.proposal.tag) == 1


def test_a_study_whose_creator_was_killed_is_completed(tmp_path: Path) -> None:
    """A study whose creator died between storing its name and its settings is completed by the next process."""
    (tmp_path / "runs" / "bare").mkdir(parents=True)
    storage = optuna.storages.RDBStorage(url_of(tmp_path, "bare"))
    storage.create_new_study([optuna.study.StudyDirection.MINIMIZE], "bare")
    storage.remove_session()
    storage.engine.dispose()
    assert optimize("--study", "bare", "--budget", "2", folder=tmp_path).code == 0


def test_the_study_of_another_program_is_not_changed(tmp_path: Path) -> None:
    """A study of the same name with trials of another program is refused and not changed."""
    url = sqlite_url(tmp_path / "theirs.db")
    storage = optuna.storages.RDBStorage(url)
    theirs = optuna.create_study(storage=storage, study_name="theirs")
    theirs.add_trial(optuna.trial.create_trial(value=1.0))
    storage.remove_session()
    storage.engine.dispose()
    said = optimize("--study", "theirs", "--storage", url, "--budget", "2", folder=tmp_path)
    assert said.code == 1
    assert "was not created by tuner" in said.err
    assert states(url, "theirs").total() == 1


def test_a_zombie_process_is_gone() -> None:
    """A zombie process counts as gone; in a container without an init, zombies are never reaped."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    worker = {**this_worker(), "pid": child.pid, "born": _born(child.pid)}
    try:
        assert gone(worker) is False
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is now a zombie
        assert gone(worker) is True
    finally:
        child.kill()
        child.wait()


def _born(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_a_later_process_with_the_same_pid_is_not_the_watcher() -> None:
    """A process with the same pid but another start time is not the watcher; other hosts and namespaces are unknown."""
    assert gone({**this_worker(), "born": 1}) is True
    assert gone(this_worker()) is False
    assert gone({**this_worker(), "host": "another machine"}) is None
    assert gone({**this_worker(), "boot": "another"}) is None
    assert gone({**this_worker(), "pid_namespace": "pid:[1]"}) is None


def test_an_owner_stored_without_boot_and_namespace_is_identified_by_its_host() -> None:
    early = {name: value for name, value in this_worker().items() if name in ("host", "pid", "born")}
    assert gone(early) is False
    assert gone({**early, "born": 1}) is True


def test_liveness_is_unknown_across_pid_namespaces() -> None:
    """A pid of another PID namespace, as in another container with the same host name, says nothing about liveness."""
    words = "import json; from tuner.study.store.owner import *; print(json.dumps(this_worker()), flush=True); input()"
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no PID namespaces can be made here")
    inside = subprocess.Popen(
        [*apart, sys.executable, "-c", words], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert inside.stdout is not None
    worker = json.loads(inside.stdout.readline())
    assert worker["pid"] == 1
    assert worker["host"] == this_worker()["host"]
    assert gone(worker) is None
    inside.communicate("\n", timeout=30)
    assert gone(worker) is None, "its heartbeat tells"


@pytest.mark.slow
def test_ctrl_c_lists_running_jobs_and_the_same_command_continues(tmp_path: Path) -> None:
    """Ctrl-C exits with code 130 and lists the jobs that still run; the same command continues the study."""
    chance = random.Random(2)  # noqa: S311 - random moments, not secrets
    counted = 0
    for _ in range(4):
        process = start("--study", "stopped", "--budget", "40", "--patience", "40", "--seed", "4", folder=tmp_path)
        assert process.stderr is not None
        for _ in range(5):
            process.stderr.readline()
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGINT)
        said = finish(process)
        assert said.code == 130, said.err
        assert said.err.splitlines()[-1] == "tuner: interrupted."
        assert "Traceback" not in said.err
        assert "Interrupted" in said.out
        assert "Rerun the same command to continue." in said.out
        running = [trial for trial in kept(url_of(tmp_path, "stopped"), "stopped") if trial.result is None]
        counted += len(running)
        for trial in running:
            assert f"still running: trial {trial.number}, {trial.proposal.key}" in said.out
    before = over(url_of(tmp_path, "stopped"), "stopped")
    last = optimize("--study", "stopped", "--budget", "40", "--seed", "4", folder=tmp_path)
    assert last.code == 0
    after = kept(url_of(tmp_path, "stopped"), "stopped")
    assert {trial.number: trial for trial in after if trial.number in before} == before
    assert_lawful(after, budget=40)


def test_ctrl_c_ends_a_search_even_if_its_exception_is_swallowed(tmp_path: Path) -> None:
    """Ctrl-C ends a search even if a finalizer or a library swallows the KeyboardInterrupt."""
    started = 0

    def lose(event: StudyEvent) -> None:
        nonlocal started
        started += event.kind == "started"
        if started == 3:
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    space = space_for(model="gpt-1.3b", nodes=4, settings=("nodes=4", "tp=1,2,4", "recompute=none"))
    with pytest.raises(KeyboardInterrupt):
        api.optimize(space, budget=9, study="lost", runs=tmp_path, sampler="grid", on_event=lose)
    assert started == 3


@pytest.mark.parametrize("many", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_that_share_a_study_share_proposals_and_budget(many: int, tmp_path: Path) -> None:
    """Processes that start a new study at the same time all exit with code 0 and share one budget."""
    for attempt in "abc":  # on a busy machine, one process may finish before the others start
        (tmp_path / attempt).mkdir()
        if together(many, url_of(tmp_path / attempt, "shared"), tmp_path / attempt, "shared") > 1:
            return
    raise AssertionError("in none of three studies more than one process took part")


@pytest.mark.slow
def test_four_jobs_run_in_parallel(tmp_path: Path) -> None:
    """With --jobs 4, four one-node jobs run at the same time on four nodes, and never more."""
    one_node = ("--model", "gpt-1.3b", "--nodes", "4", "--set", "nodes=1", "--set", "tp=1,2,4")
    twelve = ("--budget", "12", "--sampler", "grid")
    spans = {}
    for jobs in ("1", "4"):
        (tmp_path / jobs).mkdir()
        said = finish(start("--jobs", jobs, *twelve, folder=tmp_path / jobs, space=one_node))
        assert said.code == 0, said.err
        runs = [json.loads(path.read_text()) for path in sorted((tmp_path / jobs).glob("runs/*/jobs/*/simulated.json"))]
        assert 10 <= len(runs) <= 12, "the last two are for repeats that are worth it"
        began = sorted(run["began"] for run in runs)
        spans[jobs] = began[-1] - began[0]
        lengths = [(run["began"], run["cancelled"] or run["began"] + run["life"]["stops"]) for run in runs]
        at_once = max(sum(first <= moment < last for first, last in lengths) for moment, _ in lengths)
        assert at_once <= 4
        assert at_once == int(jobs)
    assert spans["4"] < spans["1"] / 2
