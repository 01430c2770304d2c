"""The command line and the Python API build the same study from the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

import click
import pytest

import tuner
from tests.conftest import ROOT
from tuner.cli import app
from tuner.cli.commands.audit import audit as audit_command
from tuner.cli.commands.compare import compare as compare_command
from tuner.cli.commands.flops import flops as flops_command
from tuner.cli.commands.max_batch import max_batch as max_batch_command
from tuner.cli.commands.measure import measure as measure_command
from tuner.cli.commands.memory import memory as memory_command
from tuner.cli.commands.optimize import optimize as command
from tuner.core.errors import InputError
from tuner.launch import machine_defaults
from tuner.space.build import SpaceArguments
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
        ("--table", TABLE, "--group", "bloom-02-25-h14336-L72", "--sampler", "tpe", "--default", "nvlink_domain=8"),
        {"table": TABLE, "group": "bloom-02-25-h14336-L72", "sampler": "tpe", "defaults": ["nvlink_domain=8"]},
    ),
    (("--sampler", "gp", "--memory-filter"), {"sampler": "gp", "memory_filter": True}),
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
    """Carries the settings that the command line built."""

    def __init__(self, settings: StudySettings) -> None:
        super().__init__()
        self.settings = settings


def by_command(monkeypatch: pytest.MonkeyPatch, *words: str) -> StudySettings:
    """Run `tuner optimize` until it has built its settings."""

    def stop(settings: StudySettings) -> None:
        raise Built(settings)

    monkeypatch.setattr("tuner.study.setup.open_loop", stop)
    with pytest.raises(Built) as built:
        app.main(["optimize", *words], standalone_mode=False)
    return built.value.settings


@pytest.mark.parametrize(("words", "arguments"), CASES)
def test_equal_arguments_build_equal_studies(
    words: tuple[str, ...], arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal arguments on the command line and in Python give equal settings, including the launcher's defaults."""
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("a slots=2\nb slots=2\n")
    assert by_command(monkeypatch, *words, *COMMON) == api.study_settings(**arguments, **SAME)


def test_every_option_is_a_typed_argument_with_the_same_default() -> None:
    """Every option of `tuner optimize`, except --json, is a typed keyword of `tuner.optimize` with the same default."""
    assert_same_options(command, tuner.optimize, beside={"on_event"})
    assert inspect.signature(tuner.optimize).return_annotation == "StudyResult"


def test_an_unknown_argument_is_refused_with_its_name(tmp_path: Path) -> None:
    """A misspelt argument is refused as by any other function, before a study is created."""
    with pytest.raises(TypeError, match="budgett"):
        tuner.optimize(budgett=1, runs=tmp_path / "runs")  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"settings is a list of strings, such as \['tp=1'\]"):
        tuner.optimize(settings="tp=1", runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


COMMANDS: tuple[tuple[click.Command, Callable[..., object], set[str], set[str]], ...] = (
    (max_batch_command, tuner.max_batch, {"claim", "plot"}, {"on_attempt"}),
    (compare_command, tuner.compare, {"plot", "folder"}, set()),
    (measure_command, tuner.measure, {"as_csv", "explain"}, set()),
    (audit_command, tuner.audit_file, {"strict"}, set()),
    (flops_command, tuner.flops, set(), set()),
    (memory_command, tuner.memory, {"target_path"}, set()),
    (app.commands["export"], tuner.write_export, {"name", "runs", "storage", "output"}, {"study", "folder"}),
    (app.commands["calibrate"], tuner.calibrate, {"file", "defaults", "runs", "storage", "output"}, {"table"}),
)


@pytest.mark.parametrize(("own", "function", "output", "beside"), COMMANDS)
def test_options_of_a_command_are_typed_arguments_of_its_function(
    own: click.Command, function: Callable[..., object], output: set[str], beside: set[str]
) -> None:
    """Every option of a command, except those in `output`, is a typed keyword of its function with the same default."""
    assert_same_options(own, function, output=output, beside=beside)


def test_the_keywords_of_a_space_are_those_of_space_for() -> None:
    parameters = inspect.signature(tuner.space_for).parameters
    assert SpaceArguments.__annotations__.keys() == parameters.keys()
    for name, annotation in SpaceArguments.__annotations__.items():
        assert annotation.__forward_arg__ == parameters[name].annotation


def test_a_space_and_its_description_are_mutually_exclusive() -> None:
    """A function takes a space or its description, not both; a space records the arguments that it was built from."""
    space = tuner.space_for(model="enoki-40", cluster="enoki-h100", global_batch=512)
    assert space.arguments == {"model": "enoki-40", "cluster": "enoki-h100", "global_batch": 512}
    described = tuner.max_batch(model="enoki-40", cluster="enoki-h100", global_batch=512)
    assert tuner.max_batch(space) == described
    with pytest.raises(InputError, match="not both a space and nodes"):
        tuner.max_batch(space, nodes=2)
    assert machine_defaults.space_on("local", {"gpus_per_node": 2}).arguments == {"gpus_per_node": 2}


def test_axes_that_the_worker_lacks_are_fixed_unless_set() -> None:
    space = machine_defaults.space_on("local", {"gpus_per_node": 2, "settings": ("vpp = 1", "tp=1,2")})
    assert (space.axes["vpp"], space.axes["cp"], space.axes["tp"]) == ((1,), (1,), (1, 2))


def test_numbers_are_checked_as_on_the_command_line() -> None:
    for arguments, message in (
        ({"margin": 0.95}, "--margin must be between 0 and 0.9"),
        ({"most": 0}, "--most must be at least 1"),
        ({"limit": -1.0}, "--limit must be positive"),
        ({"step": 0}, "--step '0' is neither x2 nor a number"),
    ):
        with pytest.raises(InputError, match=message):
            tuner.max_batch(model="enoki-40", cluster="enoki-h100", **arguments)


FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "plan": tuner.plan,
    "max-batch": tuner.max_batch,
    "compare": tuner.compare,
    "memory": tuner.memory,
    "flops": tuner.flops,
    "evaluate": tuner.evaluate,
    "calibrate": tuner.calibrate,
    "explain": tuner.explain,
    "audit": tuner.audit_file,
    "measure": tuner.measure,
    "report": tuner.write_report,
    "export": tuner.write_export,
    "list": tuner.list_studies,
    "stop": tuner.stop_study,
    "recover": tuner.recover_study,
}


@pytest.mark.parametrize("command", FUNCTIONS)
def test_an_option_and_its_keyword_have_the_same_default(command: str) -> None:
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    for option in app.commands[command].params:
        parameter = parameters.get(option.name or "")
        if parameter is None or parameter.default is parameter.empty or option.name == "iterations":
            continue
        given = None if "Sentinel" in type(option.default).__name__ else option.default
        assert (given or None) == (parameter.default or None), option.name


def assert_same_options(
    own: click.Command,
    function: Callable[..., object],
    *,
    output: Set[str] = frozenset(),
    beside: Set[str] = frozenset(),
) -> None:
    """Check that options and typed keywords agree, except options in `output` and keywords in `beside`."""
    parameters = dict(inspect.signature(function).parameters)
    if parameters.pop("description", None):
        parameters |= inspect.signature(tuner.space_for).parameters
    options = {option.name: option for option in own.params if option.name not in {"as_json", *output}}
    assert set(options) == set(parameters) - {"space", *beside}
    for name, option in options.items():
        assert name is not None
        given, default = option.default, parameters[name].default
        given = None if "Sentinel" in type(given).__name__ else given
        if name == "iterations" and default == 2:
            assert given == "2"
        elif isinstance(option, click.Option):
            assert (given or None) == (default or None), name
    assert all(parameter.annotation is not parameter.empty for parameter in parameters.values())


def test_a_model_that_the_worker_lacks_is_refused_before_a_job() -> None:
    given: SpaceArguments = {"gpus_per_node": 2, "model": "deepseek-v3"}
    with pytest.raises(InputError, match=r"the worker has no latent attention; give your own trainer with --command"):
        machine_defaults.space_on("local", given)
    assert machine_defaults.space_on("local", given, command="python x.py").workload.model.latent


def test_experts_that_the_worker_lacks_are_refused_before_a_job(tmp_path: Path) -> None:
    given: SpaceArguments = {"gpus_per_node": 2, "model": "qwen3-30b-a3b"}
    space = machine_defaults.space_on("local", given)
    assert set(space.axes["ep"]) == {1, 2}
    capacity = tmp_path / "capacity.toml"
    sizes = "layers = 2\nhidden = 64\nheads = 4\nvocab = 128\nseq = 32\n"
    capacity.write_text(sizes + "experts = { count = 4, top_k = 2, ffn = 64, capacity_factor = 1.5 }\n")
    with pytest.raises(InputError, match=r"no capacity_factor, which the model sets to 1\.5; give your own trainer"):
        machine_defaults.space_on("local", {**given, "model": str(capacity)})
