"""`tuner list` and `tuner stop`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tuner
from tests.conftest import Run
from tests.found_studies import study_in
from tests.studies import ENVIRONMENT, kept, url_of
from tuner.core.errors import StudyError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import Job, JobState, JobStatus
from tuner.study import manage
from tuner.study.store.owner import this_worker
from tuner.study.store.trial import Proposal
from tuner.study.store.trial_store import TrialStore


def orphan(folder: Path, *, owner: dict[str, object]) -> None:
    """Add a trial without a result."""
    store = TrialStore.existing(url_of(folder, "bloom-48"), "bloom-48")
    first = store.trials()[0].proposal
    proposal = Proposal(
        key=first.key, params={}, topology=first.topology, repeat=9, nodes=first.nodes, worker=owner, tag="t"
    )
    assert store.claim(proposal, {}) is not None
    store.close()


def test_a_list_shows_each_study_with_its_leader_and_cost(tmp_path: Path, run: Run) -> None:
    """`tuner list` shows the same state, leader and node-hours as the study itself, in the table and as JSON."""
    runs = study_in(tmp_path / "runs")
    study = tuner.open_study("bloom-48", runs=runs)
    (row,) = json.loads(run("list", "--runs", str(runs), "--json").out)["studies"]
    assert study.best is not None
    assert (row["name"], row["state"], row["launcher"]) == ("bloom-48", "idle", "simulated")
    assert (row["trials"], row["best"], row["days"]) == (len(study.launched), study.best.key, study.best.days)
    assert row["node_hours"] == study.node_hours
    assert study.best.key in run("list", "--runs", str(runs)).out
    assert "No studies in" in run("list", "--runs", str(tmp_path / "empty")).out


@pytest.mark.parametrize("width", range(40, 140, 10))
def test_no_training_time_is_listed_without_its_launcher(
    width: int, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any terminal, the figures of a simulation are marked as such."""
    monkeypatch.setenv("COLUMNS", str(width))
    header, *lines = run("list", "--runs", str(study_in(tmp_path / "runs"))).out.splitlines()
    assert "Launcher" in header or not any(word in lines[1] for word in (" days", " node-hours"))


def test_a_replayed_simulation_is_listed_as_simulated(tmp_path: Path, run: Run) -> None:
    """A study that replays a table of the simulated cluster is labelled as one of the cluster itself is."""
    rows = ["gpu,nodes,tp,pp,dp,hidden,layers,sec_per_iter,source"]
    rows += [f"A100-80GB-SXM,1,{8 // dp},1,{dp},2048,24,{8 / dp:g},SIMULATED study x" for dp in (1, 2, 4)]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    runs = str(tmp_path / "runs")
    run("optimize", "--table", str(tmp_path / "table.csv"), "--budget", "2", "--study", "s", "--runs", runs)
    (row,) = json.loads(run("list", "--runs", runs, "--json").out)["studies"]
    assert (row["launcher"], row["simulated"]) == ("replay", True)
    assert "replay (SIMULATED)" in run("list", "--runs", runs).out


def test_a_file_is_no_folder_of_studies(tmp_path: Path, run: Run) -> None:
    (tmp_path / "runs").write_text("")
    code, _, error = run("list", "--runs", str(tmp_path / "runs"))
    assert (code, error) == (2, f"tuner: {tmp_path / 'runs'} is not a folder.\n")


def loop(path: Path) -> Path:
    """Make a symbolic link to itself, which nobody can read."""
    path.symlink_to(path)
    return path


@pytest.mark.parametrize("words", [["list"], ["report"], ["report", "s"], ["stop", "s"], ["recover", "s"]])
def test_a_folder_that_cannot_be_read_is_not_called_empty(words: list[str], tmp_path: Path, run: Run) -> None:
    runs = loop(tmp_path / "runs")
    folder = runs / "s/jobs" if "s" in words else runs
    said = run(*words, "--runs", str(runs))
    assert (said.code, said.out) == (2, "")
    assert said.err == f"tuner: {folder} cannot be read: Too many levels of symbolic links.\n"


def test_a_study_whose_folder_cannot_be_read_is_named(tmp_path: Path, run: Run) -> None:
    """The others are listed."""
    runs = study_in(tmp_path / "runs")
    (runs / "none").mkdir()
    (runs / "file").touch()
    database = loop(runs / "s") / "study.db"
    code, out, error = run("list", "--runs", str(runs))
    assert code == 0
    assert "bloom-48" in out
    assert error == (
        f"tuner: warning: {database} cannot be read: Too many levels of symbolic links; its study is left out.\n"
    )


def test_a_folder_without_permission_is_not_called_empty(tmp_path: Path) -> None:
    """Root has it anywhere, unless it runs without that capability."""
    powers = "-dac_override,-dac_read_search"
    limited = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"] if os.geteuid() == 0 else []
    if limited and (shutil.which("setpriv") is None or subprocess.run([*limited, "true"], check=False).returncode):
        pytest.skip("no capability can be dropped here")
    runs = study_in(tmp_path / "runs")
    unreadable = "unable to open database file; make {0} readable and run the same command again.\n"
    list_ = [*limited, sys.executable, "-m", "tuner", "list", "--runs", str(runs)]
    for folder, code, error in (
        (runs, 2, f"tuner: {runs} cannot be read: Permission denied.\n"),
        (
            runs / "bloom-48",
            0,
            f"tuner: warning: {runs}/bloom-48/study.db cannot be read: Permission denied; its study is left out.\n",
        ),
        (runs / "bloom-48/study.db", 0, unreadable.format(runs / "bloom-48/study.db")),
    ):
        folder.chmod(0)
        try:
            said = subprocess.run(list_, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        finally:
            folder.chmod(0o755)
        assert said.returncode == code
        assert said.stderr.endswith(error)


def test_a_folder_in_place_of_a_database_is_reported_as_one(tmp_path: Path, run: Run) -> None:
    (tmp_path / "x/study.db").mkdir(parents=True)
    for command in (["list"], ["stop", "x"], ["report", "x"]):
        assert (
            f"{tmp_path}/x/study.db is a folder, not a database: move it" in run(*command, "--runs", str(tmp_path)).err
        )


def test_stop_closes_the_trials_of_a_dead_process(tmp_path: Path, run: Run) -> None:
    """`tuner stop` cancels the trials of a dead process; the study is orphaned before and idle after."""
    runs = study_in(tmp_path / "runs")
    orphan(tmp_path, owner={**this_worker(), "born": 1})
    assert [study.state for study in tuner.list_studies(runs=runs)] == ["orphaned"]
    assert "0 jobs cancelled. 1 trial closed without a running job." in run("stop", "bloom-48", "--runs", str(runs)).out
    last = kept(url_of(tmp_path, "bloom-48"), "bloom-48")[-1]
    assert last.result is not None
    assert last.result.outcome is Outcome.REJECTED, "its job was never submitted"
    assert [study.state for study in tuner.list_studies(runs=runs)] == ["idle"]
    assert tuner.stop_study("bloom-48", runs=runs) == []


def test_a_job_that_stop_cancels_has_cost_what_it_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """The hour that a job had run when `tuner stop` cancelled it counts as node-hours of the study."""
    runs = study_in(tmp_path / "runs")
    before = tuner.open_study("bloom-48", runs=runs).node_hours
    orphan(tmp_path, owner={**this_worker(), "born": 1})
    adopted: list[Job] = []

    def adopt(job: Job, _handle: str | None) -> str:
        adopted.append(job)
        return "handle"

    running = JobStatus(state=JobState.RUNNING, began=400.0)
    launcher = SimpleNamespace(
        adopt=adopt,
        poll=lambda handles: dict.fromkeys(handles, running),
        cancel=lambda _handle: None,
        now=lambda: 4000.0,
        close=lambda: None,
    )
    monkeypatch.setattr(manage, "_launcher", lambda *_: launcher)
    said = run("stop", "bloom-48", "--runs", str(runs)).out
    stopped = tuner.open_study("bloom-48", runs=runs).trials[-1]
    assert said == f"cancelled trial {stopped.number}, {stopped.proposal.key}\nStudy bloom-48: 1 job cancelled.\n"
    assert [job.folder for job in adopted] == [stopped.job_folder(runs / "bloom-48")]
    study = tuner.open_study("bloom-48", runs=runs)
    assert study.node_hours - before == pytest.approx(stopped.proposal.nodes)


def test_a_study_of_a_running_process_is_not_stopped_from_outside(tmp_path: Path) -> None:
    """`tuner stop` refuses to stop a study that another process runs, and names the process."""
    runs = study_in(tmp_path / "runs")
    orphan(tmp_path, owner=this_worker())
    assert [study.state for study in tuner.list_studies(runs=runs)] == ["running"]
    with pytest.raises(StudyError, match="is being run by process"):
        tuner.stop_study("bloom-48", runs=runs)


def test_a_process_that_cannot_be_seen_is_not_named_as_running(tmp_path: Path) -> None:
    """After a reboot, and on another machine, `tuner stop` waits for a lack of heartbeats."""
    runs = study_in(tmp_path / "runs")
    orphan(tmp_path, owner={**this_worker(), "boot": "earlier", "machine": "another"})
    with pytest.raises(StudyError, match=r"^a process of an earlier boot of .* may still run study 'bloom-48':"):
        tuner.stop_study("bloom-48", runs=runs)


def test_another_folder_of_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A command with another folder of runs than the study's is refused, because it would not find the jobs' files."""
    first, second = tmp_path / "first", tmp_path / "second"
    shared = ("--storage", f"sqlite:///{tmp_path}/study.db")
    jobs = ("--launcher", "local", "--command", "false", "--nodes", "1", "--gpus-per-node", "1")
    space = ("--model", "gpt-1.3b", "--gpu", "A100-80GB-SXM", "--set", "recompute=full")
    search = ("optimize", *jobs, *space, "--study", "s", *shared)
    for folder in (first, second):
        folder.mkdir()
    monkeypatch.chdir(first)
    run(*search, "--budget", "1")
    assert list(first.glob("runs/s/jobs/*/job.json"))
    monkeypatch.chdir(second)
    for arguments in ((*search, "--budget", "2"), ("stop", "s", *shared)):
        said = run(*arguments)
        assert said.code == 1
        assert f"are in {first}/runs/s, not in {second}/runs/s: pass --runs {first}/runs." in said.err
    assert not list(second.glob("runs/s/jobs/*"))
    run(*search, "--budget", "2", "--runs", str(first / "runs"))
    assert len(list(first.glob("runs/s/jobs/*/job.json"))) == 2


def test_a_study_on_another_machine_is_running_until_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = study_in(tmp_path / "runs")
    orphan(tmp_path, owner={**this_worker(), "host": "elsewhere"})
    assert [study.state for study in tuner.list_studies(runs=runs)] == ["running"]
    last = kept(url_of(tmp_path, "bloom-48"), "bloom-48")[-1].number
    monkeypatch.setattr(TrialStore, "silent", lambda *_: {last})
    assert [study.state for study in tuner.list_studies(runs=runs)] == ["orphaned"]
