"""Commands on studies take the one that changed last when no name is given."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.conftest import Run
from tests.found_studies import study_in


def test_a_report_without_a_name_is_of_the_study_that_changed_last(run: Run, tmp_path: Path) -> None:
    for number, name in enumerate(("bloom-48", "replayed")):
        study_in(tmp_path, name)
        for file in (tmp_path / name).glob("study.db*"):
            os.utime(file, (1e9 + number, 1e9 + number))
    printed = run("export", "--runs", str(tmp_path), "--json")
    assert json.loads(printed.out)["files"][0].startswith(str(tmp_path / "replayed"))
    os.utime(tmp_path / "bloom-48" / "study.db", (2e9, 2e9))
    printed = run("export", "--runs", str(tmp_path))
    assert printed.out.startswith("SIMULATED: study bloom-48, ")


def test_without_any_study_the_remedy_is_named(run: Run, tmp_path: Path) -> None:
    for command in ("report", "export", "dashboard"):
        printed = run(command, "--runs", str(tmp_path))
        assert printed.code == 2
        assert printed.err == (
            f"tuner: there is no study in {tmp_path}; start one with 'tuner optimize', or pass --runs DIR.\n"
        )
    assert "name the STUDY" in run("report", "--storage", "sqlite:///x.db").err
