"""An empty value, as of an unset shell variable, is refused and never replaced by a default."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.conftest import ROOT, Run
from tuner.cli import app

LOG = str(ROOT / "docs/example.log")
TABLE = str(ROOT / "corpus/enoki-h100.csv")
SIMULATED = ("optimize", "--nodes", "48", "--budget", "1", "--set", "tp=4", "--set", "pp=12", "--study", "s")
NO_FOLDER = "an empty path names no folder; give a folder or leave out the option."
NO_FILE_OR_FOLDER = "an empty path names no file or folder; give a file or folder or leave out the option."
NO_FILE = "an empty path names no file; give a file or leave out the option."


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "s", "-o"), NO_FOLDER),
        (("export", "s", "-o"), NO_FOLDER),
        (("calibrate", "t.csv", "-o"), "an empty path names no file; give a file. Run "),
        (("audit", "t.csv", "--fix", "-o"), NO_FILE),
        (("doctor", "--measure", "-o"), NO_FILE),
        (("memory", "--frozen", "llama-3-8b", "--export"), NO_FILE_OR_FOLDER),
        (("compare", "--model", "llama-3-8b", "--export"), NO_FOLDER),
        (("compare", "--model", "llama-3-8b", "--plot"), NO_FILE),
        (("max-batch", "--model", "llama-3-8b", "--plot"), NO_FILE),
        (("list", "--runs"), NO_FOLDER),
        ((*SIMULATED, "--runs"), NO_FOLDER),
        ((*SIMULATED, "--launcher"), "there is no launcher called '"),
        ((*SIMULATED, "--track"), "there is no tracker called '"),
        (("max-batch", "--model", "llama-3-8b", "--launcher"), "there is no launcher called '"),
        (("calibrate", TABLE, "-o", "site.toml", "--storage"), "' is not a URL such as sqlite:///study.db"),
        (("evaluate", TABLE, "--storage"), "' is not a URL such as sqlite:///study.db"),
        (("doctor", "--storage"), "' is not a URL such as sqlite:///study.db"),
        (("measure", LOG, "--step-pattern"), "--step-pattern has no group for the time"),
        (("measure", LOG, "--explain", "--step-pattern"), "--step-pattern has no group for the time"),
        (("measure", LOG, "--expect"), NO_FILE),
        (("max-batch", "--model", "llama-3-8b", "--iterations"), "' is neither a number nor a range such as 2-5."),
        ((*SIMULATED, "--launcher", "local", "--command", "true {tp}", "--log"), NO_FILE),
        (("report", "s", "--storage"), "' is not a URL such as sqlite:///study.db"),
        (("explain", "tp4-pp12-dp8-mbs2-z1", "--against"), "invalid topology key '"),
        (("memory", "--frozen", "llama-3-8b", "--sample"), "' is not a size such as 0.4GB"),
        (("measure",), "an empty path names no file; give a file. Run "),
        (("audit",), "an empty path names no file; give a file. Run "),
        (("evaluate",), "an empty path names no file; give a file. Run "),
    ],
)
def test_an_empty_value_is_refused(
    arguments: tuple[str, ...],
    message: str,
    empty: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = run(*arguments, empty)
    assert said.code == 2
    assert message in said.err
    assert not said.out
    assert not list(tmp_path.iterdir())


USUAL = {
    "optimize": SIMULATED,
    "plan": ("plan", "--set", "tp=4", "--set", "pp=12"),
    "explain": ("explain", "tp8-pp12-dp4-mbs2-z1"),
    "flops": ("flops", "tp8-pp12-dp4-mbs2-z1"),
    "memory": ("memory", "--frozen", "llama-3-8b"),
    "max-batch": ("max-batch", "--model", "llama-3-8b"),
    "compare": ("compare", "--model", "llama-3-8b"),
    "measure": ("measure", LOG),
    "evaluate": ("evaluate", TABLE),
    "calibrate": ("calibrate", TABLE, "-o", "site.toml"),
    "audit": ("audit", TABLE),
    "stop": ("stop", "s"),
    "recover": ("recover", "s"),
}
"""The arguments with which a command succeeds, or needs only a study."""


def _options() -> list[tuple[str, str]]:
    """Return each command and its options that take a value."""
    commands = app.commands.items()
    return [
        (name, parameter.opts[-1])
        for name, command in commands
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count
    ]


@pytest.mark.parametrize(("command", "option"), _options())
def test_every_option_refuses_an_empty_value(
    command: str, option: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new option of type str that takes an empty value for none fails here."""
    monkeypatch.chdir(tmp_path)
    said = run(*USUAL.get(command, (command,)), option, "")
    assert said.code == 2
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_an_empty_key_is_not_a_topology_that_was_not_measured(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*SIMULATED).code == 0
    for empty in ("", " "):
        said = run("export", "s", empty)
        assert (said.code, said.out) == (2, "")
        assert f"invalid topology key '{empty}'; expected a key like tp8-pp12-dp4-mbs2-z1-rsel" in said.err
