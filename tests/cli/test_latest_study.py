"""Without a name, commands on studies use the study that changed last."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest

from tests.conftest import Run
from tests.found_studies import study_in
from tuner.cli.arguments import study_command, takes_a_study


def test_a_report_without_a_name_uses_the_latest_study(run: Run, tmp_path: Path) -> None:
    for number, name in enumerate(("bloom-48", "replayed")):
        study_in(tmp_path, name)
        for file in (tmp_path / name).glob("study.db*"):
            os.utime(file, (1e9 + number, 1e9 + number))
    printed = run("export", "--runs", str(tmp_path), "--json")
    assert json.loads(printed.out)["files"][0].startswith(str(tmp_path / "replayed"))
    os.utime(tmp_path / "bloom-48" / "study.db", (2e9, 2e9))
    printed = run("export", "--runs", str(tmp_path))
    assert printed.out.startswith("SIMULATED: study bloom-48, ")


def test_without_studies_the_remedy_is_named(run: Run, tmp_path: Path) -> None:
    for command in ("report", "export", "dashboard"):
        printed = run(command, "--runs", str(tmp_path))
        assert printed.code == 2
        assert printed.err == (
            f"tuner: there is no study in {tmp_path}; start one with 'tuner optimize', or pass --runs DIR.\n"
        )
    assert "name the STUDY" in run("report", "--storage", "sqlite:///x.db").err


@pytest.mark.parametrize(("given", "opened"), [([], "new"), (["old"], "old"), (["absent"], "absent")])
def test_a_given_name_is_used_unchanged(
    given: list[str], opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("old", "new", "away")):
        (tmp_path / name).mkdir()
        file = tmp_path / name / ("study.db" if name != "away" else "report.html")
        file.touch()
        os.utime(file, (1e9 + number, 1e9 + number))
    calls: list[Any] = []

    def open_study(name: str, **rest: Any) -> str:
        calls.append((name, rest))
        return "study"

    monkeypatch.setattr("tuner.study.result.open_study", open_study)
    received: list[Any] = []
    command = click.command()(takes_a_study(lambda **given: received.append(given)))
    command.main([*given, "--runs", str(tmp_path)], standalone_mode=False)
    assert calls == [(opened, {"runs": tmp_path, "storage": None})]
    assert received == [{"study": "study"}]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "tuner report a"),
        ({"runs": "runs", "storage": ""}, "tuner report a"),
        ({"runs": "other runs"}, "tuner report a --runs 'other runs'"),
        ({"storage": "postgresql://me:word@h/d"}, "tuner report a --storage 'postgresql://me:***@h/d'"),
        ({"runs": "r", "storage": "sqlite:///s.db"}, "tuner report a --runs r --storage sqlite:///s.db"),
    ],
)
def test_a_command_on_a_study_names_its_folder(given: dict[str, str], line: str) -> None:
    with click.Context(click.Command("optimize")) as context:
        context.params = given
        assert study_command("report", "a") == line


def test_studies_are_listed_with_one_line_each(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = ("s", "idle", "local", "3", "tp8", "2 days", "5 node-hours", "today")
    monkeypatch.setattr("tuner.study.manage.list_studies", lambda **where: [where] if where["runs"] == "r" else [])
    monkeypatch.setattr("tuner.study.manage.cells_of", lambda _: cells)
    monkeypatch.setenv("COLUMNS", "200")
    header, rule, line = run("list", "--runs", "r").out.splitlines()
    assert header.split() == ["Study", "State", "Launcher", "Trials", "Best", "Training", "time", "Cost", "Changed"]
    assert set(rule.replace(" ", "")) == {"-"}
    assert line.split() == " ".join(cells).split()
    empty = run("list", "--runs", str(tmp_path)).out
    assert empty == f"No studies in {tmp_path}. Start one with 'tuner optimize'.\n"
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "study.db").write_text("")
    unread = run("list", "--runs", str(tmp_path)).out
    assert unread == f"No study in {tmp_path} can be read. 'tuner recover STUDY --runs {tmp_path}' rebuilds one.\n"


@pytest.mark.parametrize("command", [("evaluate",), ("calibrate", "-o", "site.toml")])
def test_a_name_that_is_neither_a_table_nor_a_study_is_refused_with_the_studies(
    command: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    said = run(*command, "blom-48", "--runs", str(study_in(tmp_path)))
    assert said.code == 2
    assert f"there is neither a file nor a study called 'blom-48'; studies in {tmp_path}: bloom-48." in said.err
