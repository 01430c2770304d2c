"""Whether a job's row in the queue is news, after which the queue is read again soon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.launch.test_slurm_arithmetic import Answering
from tests.launch.test_tracker_arithmetic import Clock, job, launcher
from tuner.launch.slurm.parsing import QueuedJob
from tuner.launch.slurm.script import job_name
from tuner.launch.slurm.tracker import SCRIPT


def seen(state: str, nodes: str = "") -> QueuedJob:
    """Return a row of job 7."""
    return QueuedJob(id="7", state=state, nodes=nodes, reason="None", name=job_name("t"))


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [
        (None, seen("PENDING"), True),
        (seen("PENDING"), seen("PENDING"), False),
        (seen("PENDING"), seen("RUNNING", "n1"), True),
        (seen("RUNNING", "n1"), seen("RUNNING", "n1"), False),
        (seen("RUNNING", "n1"), None, True),
        (seen("COMPLETED", "n1"), seen("COMPLETED", "n1"), True),
    ],
)
def test_a_row_is_news_if_it_changed_or_its_job_may_be_over(
    before: QueuedJob | None, now: QueuedJob | None, news: bool, tmp_path: Path
) -> None:
    made: Any = launcher(Clock(), Answering(sbatch="7\n", sacct=""))
    tracked = made._tracker.find(made.submit(job(tmp_path / "job")))
    assert (tracked.job.folder / SCRIPT).is_file()
    if before is not None:
        made._observe_row(tracked, before, 1001.0)
    assert made._observe_row(tracked, now, 1002.0) is news
