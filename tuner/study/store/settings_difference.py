"""Compare the settings of a stored study with those it is resumed with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tuner.core.documents import fabric_of, stated
from tuner.core.quantity import format_count
from tuner.core.text import axis_value, counted, listed
from tuner.space.rules import current_name

TRAINER_FILES: Final = "trainer_files"
"""Settings with the digest of each configuration file that the command of a trainer names."""

TOKENS_FROM: Final = "tokens_from"
"""The flag of the command that states the training tokens."""

COMMAND_STACK: Final = "command_stack"
"""Set where the software of the workload includes what the command of a trainer states."""

STACK_OPTIONS: Final = ("quantized_weights", "bf16_layers")
"""Fields of the software that options state."""

FORMERLY_ADAM: Final = "muon"
"""The optimizer that studies without `COMMAND_STACK` recorded as Adam."""

_OF_OPTIMIZERS: Final = ("--optimizer ", "--muon-", "--sgd-")
"""Beginnings of flags of optimizers, which such studies recorded as not understood, or not at all."""

OTHER_CONTENT: Final = "other content of"
"""Begins the difference of such files."""

_MOST_VALUES: Final = 8
"""Values of an axis that a remedy repeats at most."""


def difference_of(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return the first difference between two settings, in words; empty if they agree."""
    begun, asked = _comparable(begun), _recorded(_comparable(asked), begun)
    names = {*begun, *asked} - {"schema", TOKENS_FROM, COMMAND_STACK}
    for name in (*_FIRST, *sorted(names.difference(_FIRST))):
        if begun.get(name) != asked.get(name):
            if name == TRAINER_FILES:
                return _changed_files(begun.get(name, {}), asked.get(name, {}))
            if name == "rows":
                return "other rows of the table"
            return _first_difference(name, begun.get(name), asked.get(name))
    return ""


def keeps_default_length(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Return whether a study began with a training of the default length, and is resumed with a command that states
    another."""
    return TOKENS_FROM in asked and not begun.get("workload", {}).get("tokens")


def keeps_usual_stack(begun: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Return whether a study began when no command stated its software, and is resumed with one that may."""
    return COMMAND_STACK in asked and COMMAND_STACK not in begun and isinstance(begun.get("workload"), Mapping)


def as_options(difference: str) -> str:
    """Return a difference with the option of the command line in place of the path of its setting, if it has one."""
    path, _, values = difference.partition(" ")
    section, _, name = path.rpartition(".")
    if section == "axes":
        return f"--set {name}={values}"
    if path == "cluster.name":  # of a cluster, or of the GPU for --gpu alone
        return f"the cluster {values}"
    own = _OPTIONS.get(path) or (section in ("", "workload") and name in _NAMED_ALIKE and name)
    return f"--{own.replace('_', '-')} {values}" if own else difference


def remedy_of(difference: str, name: str, settings: Mapping[str, Any]) -> str:
    """Return how to go on with a study that was started with these settings and is asked for with others."""
    if "trainer" in settings and difference.startswith("workload."):
        return (
            f"; --trainer {settings['trainer']} reads the workload from --command and the files that it names, and a "
            "newer tuner may read more of them: restore them to continue the study, or start another with --study NAME "
            f"--from {name}, which uses its measurements"
        )
    if difference.startswith("workload.model.") and as_options(difference) == difference:  # which no option states
        return (
            "; repeat the original arguments to continue it. If they are the same, this version of tuner reads the "
            f"model differently: start another study with --study NAME --from {name}, which uses its measurements"
        )
    if difference.startswith(OTHER_CONTENT):
        return (
            f": restore it to continue the study, or start another with --study NAME --from {name}, which uses its "
            "measurements"
        )
    place, axis = difference.partition(" ")[0].rpartition(".")[::2]
    if place == "axes" and len(values := settings["axes"].get(axis, ())) in range(1, _MOST_VALUES + 1):
        given = ",".join(map(axis_value, values))
        return f": continue it with --set {axis}={given}, or choose another name with --study"
    return ": repeat the original arguments to continue it, or choose another name with --study"


_NAMED_ALIKE: Final = frozenset(
    {"launcher", "trainer", "command", "noise", "seed", "iterations", "drift", "global_batch", "precision", "attention"}
    | {"tokens", "group", "framework", "precision_recipe", "routing", "optimizer", "ramp"}
)
"""Settings with the name of their option."""
_MODEL: Final = "workload.model"
_OPTIONS: Final[Mapping[str, str]] = {
    "workload.model.name": "model",
    "workload.model.seq": "seq",
    "rules.allowed": "allow",
    "cluster.nodes": "nodes",
    "cluster.gpus_per_node": "gpus_per_node",
    "cluster.nvlink_domain": "nvlink_domain",
    "cluster.gpu.name": "gpu",
}
"""Options by the path of their setting, where the names differ."""


def _comparable(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings with present names of rules, the drift as its option, and without the policies at that time
    and what is unknown of the software.

    A study continues under its own policies.
    """
    settings = _known(settings)
    if isinstance(drift := settings.get("drift"), str):
        settings = {**settings, "drift": _drift(drift)}
    rules = {name: value for name, value in settings.get("rules", {}).items() if name != "policies"}
    if "allowed" in rules:
        rules["allowed"] = sorted(map(current_name, rules["allowed"]))
    return {**settings, "rules": rules} if rules else settings


def _drift(stored: str) -> str:
    """Return a change of speed as `--drift` takes it; studies store it as Python shows it."""
    found = re.fullmatch(r"SpeedChange\(factor=([^,]+), after_jobs=([^,]+), at_seconds=([^,]+)\)", stored)
    if found is None:
        return stored
    factor, jobs, seconds = (text.removesuffix(".0") for text in found.groups())
    return f"{factor}@{jobs}" if seconds == "None" else f"{factor} from {seconds} s on"


def _known(value: Any) -> Any:
    """Return a document without the settings of software that are None."""
    if isinstance(value, Mapping):
        stacks = {
            name: stated(stack) for name, stack in value.items() if name == "stack" and isinstance(stack, Mapping)
        }
        return {**{name: _known(each) for name, each in value.items()}, **stacks}
    return [_known(each) for each in value] if isinstance(value, list) else value


def _recorded(asked: Mapping[str, Any], begun: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings without those fields of workloads and models that the study began too early to record.

    The same holds for the rates of its GPU, for the fabric of a known cluster, for the files of its trainer and for a
    training length that its command states.
    """
    known: dict[str, Any] = dict(asked)
    if isinstance(workload := asked.get("workload"), Mapping):
        known["workload"] = dict(workload)
    if TRAINER_FILES not in begun:
        known.pop(TRAINER_FILES, None)
    if keeps_default_length(begun, asked):
        known["workload"]["tokens"] = 0.0
    if keeps_usual_stack(begun, asked):
        stack = known["workload"].pop("stack", None) or {}
        own = {name: value for name, value in stack.items() if name in STACK_OPTIONS and value is not None}
        known["workload"] |= {"stack": own} if own else {}
        if known["workload"]["optimizer"] == FORMERLY_ADAM:
            known["workload"]["optimizer"] = "adam"
        before, after = (list(one["workload"]["model"].get("not_understood", ())) for one in (begun, asked))
        plain = [[flag for flag in flags if not flag.startswith(_OF_OPTIMIZERS)] for flags in (before, after)]
        if plain[0] == plain[1]:
            known["workload"]["model"] = {**known["workload"]["model"], "not_understood": before}
    for name in ("cluster", "gpu"):
        if isinstance(was := begun.get(name), Mapping) and isinstance(now := asked.get(name), Mapping):
            known[name] = _recorded(now, was)
    if "max_positions" in begun and asked.get("positions") != "learned":
        known["max_positions"] = begun["max_positions"]  # which limits no training; presets formerly stated none
    if "fabric" in known and "fabric" not in begun and known["fabric"] == fabric_of(str(begun.get("name"))):
        del known["fabric"]
    if isinstance(was := begun.get("peak_flops"), Mapping) and isinstance(now := asked.get("peak_flops"), Mapping):
        known["peak_flops"] = {precision: rate for precision, rate in now.items() if precision in was}
    for name in ("workload", "model"):
        if isinstance(was := begun.get(name), Mapping) and isinstance(now := known.get(name), Mapping):
            kept = {*was, "stack"}  # left out where it is usual, not because it was not recorded
            known[name] = {field: value for field, value in _recorded(now, was).items() if field in kept}
    if isinstance(was := begun.get("parts"), Sequence) and isinstance(now := asked.get("parts"), Sequence):
        known["parts"] = [_recorded(part, old) for part, old in zip(now, was, strict=False)] + list(now[len(was) :])
    return known


_FIRST: Final = ("launcher", "trainer", "command", "cluster", "rules", "workload")
"""Settings from which others follow, in the order in which they are named."""


def _changed_files(begun: Mapping[str, str], asked: Mapping[str, str]) -> str:
    names = sorted(name for name in {*begun, *asked} if begun.get(name) != asked.get(name))
    return f"{OTHER_CONTENT} {listed(names)}"


_TELLING: Final = {"cluster": ("gpu", "name"), "workload": ("model", "framework"), _MODEL: ("name", "seq")}
"""Keys that are reported first within a section; elsewhere the name."""


def _first_difference(name: str, begun: Any, asked: Any) -> str:
    parts = isinstance(begun or asked, Mapping) and all(isinstance(side, Mapping | None) for side in (begun, asked))
    if parts and name != _RAMP:
        begun, asked = begun or {}, asked or {}
        differ = [key for key in sorted({*begun, *asked}) if begun.get(key) != asked.get(key)]
        telling = [key for key in _TELLING.get(name, ("name",)) if key in differ]
        inner = telling[0] if telling else differ[0]
        return _first_difference(f"{name}.{inner}", begun.get(inner), asked.get(inner))
    if name == "parts" and isinstance(begun, Sequence) and isinstance(asked, Sequence):
        if len(begun) != len(asked):
            return f"a table of {counted(len(begun), 'workload')}, not {len(asked)}"
        before, after = next((one, other) for one, other in zip(begun, asked, strict=True) if one != other)
        section = next(key for key in sorted({*before, *after}, reverse=True) if before.get(key) != after.get(key))
        return f"the table's {_first_difference(section, before.get(section), after.get(section))}"
    return f"{name} {_words(begun, name)}, not {_words(asked, name)}"


_RAMP: Final = "workload.ramp"
_TOKENS: Final = "workload.tokens"
_UNSET: Final = {"noise": "0", "simulated": "false", _TOKENS: "at the default of 20 per parameter"}
"""What a setting that is 0 or missing stands for."""


def _words(value: Any, name: str) -> str:
    if name in _UNSET and not value:
        return _UNSET[name]
    if name == _TOKENS:
        return format_count(value, digits=15)
    if name == _RAMP and value:
        return f"{value['start']},{value['increment']}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(axis_value, value[:8])) + (",..." if len(value) > 8 else "") or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else shlex.quote(value) if name == "command" else str(value)
