"""The file of `--log`: it is a file, and nothing else of that name is touched."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.test_local import job, launched
from tests.stages import template
from tuner.core.errors import InputError, LaunchError
from tuner.core.outcomes import Outcome
from tuner.launch.contract import JobState
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import CommandTemplate, ProcessSpec
from tuner.launch.slurm.script import batch_script
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainer_log import link_log


def writing_to(log: str, cwd: Path) -> LocalLauncher:
    """Return a launcher whose trainer writes its log to a file."""
    return LocalLauncher(CommandTemplate.parse("true", cwd=cwd, log=log), ranks=8)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "logs/", "logs/.", "{key}/.."])
def test_the_name_of_a_log_is_that_of_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--log must name a file \(got "):
        CommandTemplate.parse("train {tp}", cwd=tmp_path, log=name)


def test_a_folder_in_the_place_of_a_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(LaunchError, match=rf"^--log {re.escape(str(tmp_path))}/logs must name a file\.$"):
        writing_to("logs", tmp_path).submit(job(tmp_path / "jobs"))
    assert {path.name for path in tmp_path.iterdir()} == {"logs", "jobs"}


def test_the_error_for_an_unusable_log_names_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=rf"^--log {re.escape(str(tmp_path))}/file/log cannot be used: "):
        writing_to("file/log", tmp_path).submit(job(tmp_path / "jobs"))


def test_a_file_that_no_job_wrote_is_left_alone(tmp_path: Path) -> None:
    """The name may be that of the trainer's script, or of a file of the system."""
    (tmp_path / "train.py").write_text("the user's")
    with pytest.raises(LaunchError, match=r"/train\.py exists, and no job of a study in .* wrote it; move it away"):
        writing_to("train.py", tmp_path).submit(job(tmp_path / "runs" / "study"))
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "runs"}
    assert (tmp_path / "train.py").read_text() == "the user's"


def test_no_log_replaces_an_earlier_one(tmp_path: Path) -> None:
    """Those of earlier jobs, of another study too, stay under the first free name, and their links follow them."""
    log, folders = tmp_path / "log", [tmp_path / "runs" / name for name in ("a/jobs/0", "a/jobs/1", "b/jobs/0")]
    (tmp_path / "log.before-0001").write_text("the user's")
    for folder in folders:
        folder.mkdir(parents=True)
        link_log(folder, log)
        log.write_text(str(folder))
    assert [(folder / "trainer.log").read_text() for folder in folders] == [str(folder) for folder in folders]
    assert (tmp_path / "log.before-0001").read_text() == "the user's"


def test_a_requeued_slurm_job_replaces_no_earlier_log(tmp_path: Path) -> None:
    log, earlier = tmp_path / "log", tmp_path / "log.before-1"
    log.write_text("first run\n")
    earlier.write_text("the user's\n")
    (tmp_path / "trainer.log").symlink_to(log)
    start = ProcessSpec(arguments=("true",), environment={}, cwd=tmp_path, result=None)
    one = replace(job(tmp_path), folder=tmp_path)
    script = tmp_path / "job.sh"
    script.write_text(batch_script(one, start, SiteProfile(tasks="once"), accelerators=False))
    script.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
    subprocess.run([script], env={**environment, "SLURM_JOB_NODELIST": "n1"}, check=True)
    assert (earlier.read_text(), (tmp_path / "log.before-2").read_text()) == ("the user's\n", "first run\n")


def test_a_waiting_job_leaves_the_log_of_a_running_one_alone(tmp_path: Path) -> None:
    """Processes of a study may share one log: it is renamed when the next job starts, and each job keeps its own."""
    log, first, second = tmp_path / "log", job(tmp_path / "jobs", 0), job(tmp_path / "jobs", 1)
    program = replace(template("hang"), log=str(log))
    with launched(program, first) as (one, running):
        log.write_text("first")
        with launched(program, second) as (other, waiting):
            assert other.poll([waiting])[waiting].state is JobState.WAITING
            assert (first.folder / "trainer.log").read_text() == "first"
            one.cancel(running)
            assert other.poll([waiting])[waiting].state is JobState.RUNNING
            log.write_text("second")
            assert [(one.folder / "trainer.log").read_text() for one in (first, second)] == ["first", "second"]


def test_a_waiting_job_whose_log_is_unusable_ends_without_a_start(tmp_path: Path) -> None:
    log, first, second = tmp_path / "log", job(tmp_path / "jobs", 0), job(tmp_path / "jobs", 1)
    with launched(replace(template("hang"), log=str(log)), first) as (launcher, running):
        waiting = launcher.submit(second)
        log.mkdir()
        launcher.cancel(running)
        assert launcher.poll([waiting])[waiting].state is JobState.ENDED
        result = launcher.collect(waiting)
        assert (result.outcome, result.reason, result.evidence) == (
            *(Outcome.CRASHED, "it could not start"),
            f"--log {log} must name a file.",
        )
