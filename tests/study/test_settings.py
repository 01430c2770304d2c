"""The command line and the Python API build the same study from the same arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.conftest import ROOT
from tuner.cli.commands.optimize import optimize as command
from tuner.study import api
from tuner.study.settings import StudySettings

TABLE = str(ROOT / "tests" / "data" / "tables" / "bloom-a100.csv")
COMMON = ("--budget", "7", "--seed", "3", "--deadline", "2h", "--iterations", "2-4", "--jobs", "2", "--patience", "5")
SAME: dict[str, Any] = {"budget": 7, "seed": 3, "deadline": "2h", "iterations": (2, 3, 4), "jobs": 2, "patience": 5}

CASES: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((), {}),
    (
        ("--model", "gpt-1.3b", "--nodes", "4", "--set", "tp=1,2", "--tokens", "20B", "--drift", "1.05@20"),
        {"model": "gpt-1.3b", "nodes": 4, "settings": ["tp=1,2"], "tokens": 20e9, "drift": "1.05@20"},
    ),
    (
        ("--table", TABLE, "--group", "bloom-02-25-h14336-L72", "--sampler", "tpe", "--default", "gpus_per_node=8"),
        {"table": TABLE, "group": "bloom-02-25-h14336-L72", "sampler": "tpe", "defaults": ["gpus_per_node=8"]},
    ),
    (
        ("--launcher", "local", "--gpus-per-node", "4", "--command", "sh job", "--retry-hang-sync"),
        {"launcher": "local", "gpus_per_node": 4, "command": "sh job", "retry_hang_sync": True},
    ),
    (("--launcher", "local", "--gpus-per-node", "2"), {"launcher": "local", "gpus_per_node": 2}),
    (
        ("--launcher", "hostfile", "--hostfile", "hosts", "--over", "openmpi"),
        {"launcher": "hostfile", "hostfile": "hosts", "over": "openmpi"},
    ),
    (
        ("--launcher", "slurm", "--nodes", "3", "--slurm-site", "site.toml", "--node-hours", "9"),
        {"launcher": "slurm", "nodes": 3, "site_profile": "site.toml", "node_hours": 9.0},
    ),
)


class Built(Exception):
    """Carries the settings that the command line has built."""

    def __init__(self, settings: StudySettings) -> None:
        super().__init__()
        self.settings = settings


def by_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> StudySettings:
    """Run `tuner optimize` until it has built its settings."""

    def stop(settings: StudySettings, _on_event: object) -> None:
        raise Built(settings)

    monkeypatch.setattr("tuner.study.setup.open_loop", stop)
    with pytest.raises(Built) as built:
        command.main(list(words), standalone_mode=False)
    return built.value.settings


@pytest.mark.parametrize(("words", "arguments"), CASES)
def test_equal_arguments_build_equal_studies(
    words: tuple[str, ...], arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Space, limits and every other setting, for each launcher, defaults of its machines included."""
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("a slots=2\nb slots=2\n")
    assert by_command(monkeypatch, *words, *COMMON) == api.study_settings(**arguments, **SAME)


def test_every_option_is_a_typed_argument_with_the_same_default() -> None:
    """`--set` is `settings`, `--from` is `start_from`; `--json` is about printing."""
    parameters = inspect.signature(tuner.optimize).parameters
    options = {option.name: option for option in command.params if option.name != "as_json"}
    assert set(options) == set(parameters) - {"space", "on_event", "observe", "slurm_site"}
    for name, option in options.items():
        given, default = option.default, parameters[name].default
        given = None if "Sentinel" in type(given).__name__ else given
        if name == "iterations":
            assert (given, default) == ("2", 2)
        else:
            assert (given or None) == (default or None), name
    assert parameters.keys() - {"on_event", "observe", "slurm_site"} == (
        inspect.signature(api.study_settings).parameters.keys()
    )
    assert all(parameter.annotation is not parameter.empty for parameter in parameters.values())


def test_the_former_keywords_still_work_and_warn(tmp_path: Path) -> None:
    """`observe` is `on_event` for one release."""
    events: list[object] = []
    space = tuner.space_for(model="gpt-1.3b", nodes=4, settings=["tp=1", "recompute=none"])
    with pytest.warns(DeprecationWarning, match="observe= is deprecated; use on_event="):
        tuner.optimize(space, budget=1, runs=tmp_path, observe=events.append)
    assert events
