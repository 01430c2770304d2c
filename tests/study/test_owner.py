"""The identity of the process that watches a job."""

from __future__ import annotations

import subprocess
import sys

from tuner.study.store.owner import _born, gone, this_worker


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
