"""The file of `--log`: it is a file, and nothing else of that name is touched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launch.test_local import job
from tuner.core.errors import InputError, LaunchError
from tuner.launch.local.launcher import LocalLauncher
from tuner.launch.program import CommandTemplate


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
