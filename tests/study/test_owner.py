"""The identity of the process that watches a job."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.study.store import owner
from tuner.study.store.owner import _born, described, gone, grace, running, this_worker
from tuner.study.store.storage import sqlite_url
from tuner.study.store.trial import Proposal
from tuner.study.store.trial_store import TrialStore

TOPOLOGY = {"nodes": 1, "tp": 1, "pp": 1, "dp": 1, "micro_batch": 1}
HERE = {"boot": "second", "pid_namespace": owner._INITIAL_NAMESPACE, "machine": "m"}
ELSEWHERE = f"a process of an earlier boot of {socket.gethostname()}, or of another machine or container of that name,"


def test_a_process_is_identified_by_its_start_and_not_only_by_its_pid() -> None:
    """A worker is identified by host, pid and start time, and later activity does not change its identity."""
    before = this_worker()
    grown = bytearray(1 << 26)
    assert this_worker() == before
    assert gone(before) is False
    assert gone(before | {"born": before["born"] + 1}) is True
    assert gone(before | {"host": "elsewhere"}) is None
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert _born(child.pid) >= before["born"]
        assert gone(before | {"pid": child.pid}) is True
    finally:
        child.kill()
        child.wait()
    assert gone(before | {"pid": child.pid, "born": 0}) is True
    assert len(grown) == 1 << 26


@pytest.mark.parametrize(
    ("here", "worker", "seconds"),
    [
        ({}, {"boot": "first"}, 30),
        ({}, {}, 120),
        ({}, {"boot": "first", "machine": "another"}, 120),
        ({"machine": ""}, {"boot": "first", "machine": ""}, 120),
        ({"pid_namespace": "pid:[1]"}, {"boot": "first", "pid_namespace": "pid:[1]"}, 120),
        ({"pid_namespace": "pid:[1]"}, {"boot": "first"}, 120),
        ({}, {"boot": "first", "host": "elsewhere"}, 120),
    ],
)
def test_a_process_of_an_earlier_boot_is_waited_for_less(
    here: dict[str, str], worker: dict[str, Any], seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers may share the names of host and machine, so they are not known to be the same."""
    monkeypatch.setattr(owner, "_machine", lambda: HERE | here)
    assert grace(this_worker() | HERE | worker) == seconds


def test_an_owner_stored_without_its_machine_is_identified_by_host_boot_and_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, "_machine", lambda: HERE)
    stored = {name: value for name, value in this_worker().items() if name != "machine"}
    assert (gone(stored), gone(stored | {"boot": "first"}), grace(stored | {"boot": "first"})) == (False, None, 120)


def test_a_process_id_of_another_boot_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "_machine", lambda: HERE)
    mine = this_worker()
    assert described(mine) == f"process {mine['pid']} on {mine['host']}"
    assert described(mine | {"host": "elsewhere"}) == f"process {mine['pid']} on elsewhere"
    earlier = mine | {"boot": "first", "machine": "another"}
    assert described(earlier) == ELSEWHERE
    assert described(mine | {"boot": "first"}) == f"a process of an earlier boot of {mine['host']}"
    assert "is being run by process" in str(running("s", mine))
    assert str(running("s", earlier)) == (
        f"{ELSEWHERE} may still run study 's': stop it there with Ctrl-C, or wait; a process counts as gone after 120 "
        "s without a heartbeat."
    )


@pytest.mark.parametrize(("boot", "silent"), [("an earlier one", True), (None, False)])
def test_after_a_reboot_a_shorter_silence_suffices(
    boot: str | None, silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a minute without a heartbeat; another machine's process is waited for two minutes."""
    monkeypatch.setattr(owner, "_machine", lambda: HERE)
    study = TrialStore.open(sqlite_url(tmp_path / "study.db"), "far", {})
    worker = {**this_worker(), **({"host": "elsewhere"} if boot is None else {"boot": boot})}
    trial = study.claim(Proposal(key="k", params={}, topology=TOPOLOGY, tag="t", worker=worker), {})
    assert trial is not None
    assert study.silent(grace(worker)) == set()
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("update trial_heartbeats set heartbeat = datetime('now', '-40 seconds')")
    database.close()
    assert study.silent(grace(worker)) == ({trial.number} if silent else set())
    assert study.silent() == set()
    study.close()
