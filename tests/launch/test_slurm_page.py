"""docs/slurm.md quotes the outcomes and evidence that jobs get from Slurm, and tuner names what to do without Slurm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.test_slurm_arithmetic import Answering, ended, job_of
from tests.launch.test_tracker_arithmetic import Clock, launcher
from tuner.core.errors import LaunchError
from tuner.launch.slurm.commands import CommandOutput
from tuner.launch.slurm.job import _cause
from tuner.launch.slurm.script import UNWRITABLE
from tuner.launch.slurm.states import ALLOCATION_ENDED, SCRIPT_KILLED, Ended, EndReport, SlurmState

PAGE = (ROOT / "docs" / "slurm.md").read_text()
FOLDER = Path("/scratch/run")
NEVER_RAN = SlurmState(phase=Ended(report=EndReport(state="FAILED", reason="", at=9.0, began=None)))


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (ended("CANCELLED"), None),
        (ended("TIMEOUT"), None),
        (ended("NODE_FAIL", nodes="n1"), None),
        (replace(NEVER_RAN, nodes="n1"), UNWRITABLE),
    ],
)
def test_the_page_quotes_the_evidence_of_an_end(state: SlurmState, code: int | None) -> None:
    found = _cause(job_of(FOLDER, id="12"), state, code, on_host=False)
    assert found is not None
    outcome, kind, evidence = found
    assert f'{outcome.value}, "{kind}: {evidence}"' in PAGE


def test_the_page_quotes_the_kinds_of_other_ends() -> None:
    for state in (NEVER_RAN, ended(SCRIPT_KILLED), ended(ALLOCATION_ENDED)):
        found = _cause(job_of(FOLDER, id="12"), state, 1, on_host=False)
        assert found is not None
        assert f'{found[0].value}, "{found[1]}"' in PAGE


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            "sinfo: error: fetch_config failed\nsinfo: fatal: Could not establish a configuration source",
            "Slurm is not configured on this machine (sinfo: fatal: Could not establish a configuration source); run "
            "tuner on a login node, or set SLURM_CONF.",
        ),
        (
            "sinfo: error: something else",
            "Slurm does not answer (sinfo: error: something else); try again later, or check `scontrol ping`.",
        ),
    ],
)
def test_a_machine_without_a_configuration_of_slurm_is_not_a_controller_that_is_down(
    message: str, sentence: str
) -> None:
    with pytest.raises(LaunchError) as raised:
        launcher(Clock(), Answering(sinfo=CommandOutput(1, "", message))).check()
    assert str(raised.value) == sentence
