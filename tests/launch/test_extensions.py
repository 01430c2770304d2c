"""Folders of compiled extensions: a stale lock of a killed compiler does not block a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.launch.test_local import job, until
from tuner.core.outcomes import Outcome
from tuner.launch import preflight
from tuner.launch.contract import JobState
from tuner.launch.extensions import FOLDER, LONG_COMPILE_SECONDS, own_folder, stale_locks
from tuner.launch.local.launcher import EXTENSIONS, LocalLauncher
from tuner.launch.program import CommandTemplate

COMPILER = """
import os, sys, time
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_EXCL)
print("locked", flush=True)
time.sleep(600)
"""
"""Locks an extension as torch does while it compiles."""

TRAINER = """
import os, time
lock = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "fused_adam", "lock")
while os.path.exists(lock):
    time.sleep(0.01)
for iteration in range(1, 4):
    print(f"iteration {iteration}/ 3 | elapsed time per iteration (ms): 100.0 | lm loss: 1.0 |", flush=True)
"""
"""Waits for the lock of an extension as torch does, then prints iterations."""


@contextmanager
def compiler(lock: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", COMPILER, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_of_a_dead_process_is_stale(tmp_path: Path) -> None:
    lock = tmp_path / "py311_cu124" / "fused_adam" / "lock"
    with compiler(lock) as process:
        assert stale_locks(tmp_path) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert stale_locks(tmp_path) == [lock]


def test_a_recent_lock_may_belong_to_another_machine(tmp_path: Path) -> None:
    lock = tmp_path / "fused_adam" / "lock"
    lock.parent.mkdir()
    lock.touch()
    assert stale_locks(tmp_path, older_than=60.0) == []
    assert stale_locks(tmp_path) == [lock]


def test_jobs_of_a_study_have_an_extension_folder_unless_the_user_sets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert own_folder(tmp_path) == {FOLDER: str(tmp_path)}
    lock = tmp_path / "fused_adam" / "lock"
    with compiler(lock):
        assert own_folder(tmp_path) == {FOLDER: str(tmp_path)}
        assert lock.exists()
    monkeypatch.setenv(FOLDER, "/elsewhere")
    assert own_folder(tmp_path) == {}
    assert lock.exists()


def test_a_job_does_not_wait_for_the_lock_of_a_killed_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    lock = tmp_path / EXTENSIONS / "fused_adam" / "lock"
    with compiler(lock):
        pass
    assert lock.exists()
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    launcher = LocalLauncher(
        CommandTemplate(words=(sys.executable, str(script)), cwd=tmp_path, configure=lambda _job: {}), ranks=8
    )
    try:
        handle = launcher.submit(job(tmp_path / "jobs"))
        until(lambda: launcher.poll([handle])[handle].state is JobState.ENDED)
        assert launcher.collect(handle).outcome is Outcome.MEASURED
    finally:
        launcher.close()


def test_doctor_names_a_stale_lock_and_its_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert preflight.extensions().verdict == "ok"
    lock = tmp_path / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir()
    lock.touch()
    assert preflight.extensions().verdict == "ok"
    long_ago = lock.stat().st_mtime - LONG_COMPILE_SECONDS
    os.utime(lock, (long_ago, long_ago))
    found = preflight.extensions()
    assert (found.verdict, found.remedy) == ("warning", f"rm {lock}")
