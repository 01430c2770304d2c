"""One kind of trainer: the flags that tuner replaces and appends, and the axes that its commands fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tuner.core.domain import Optimizer, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.frameworks import FrameworkChoice
from tuner.core.megatron_stack import TRUE
from tuner.core.model import Model
from tuner.core.text import listed, shown

Flags = Mapping[str, str]
"""The flags of a command with their values, by their names in the trainer's spelling."""

LengthUnit = Literal["steps", "sequences", "tokens"]
"""What a flag of the training length counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLauncher:
    """The launcher at the start of a trainer's command; its flags precede the script."""

    starts: Sequence[tuple[str, ...]]
    """The allowed beginnings of the command."""
    switches: frozenset[str]
    """Flags without a value; all others have one."""
    replaced: Sequence[str]
    """Flags that are removed, with their values."""
    flags: Callable[[Flags, Workload, Topology, Path], Sequence[object]]
    """Returns the launcher's flags of one job; the path is that of its `ds_config.json`."""

    def split(self, words: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
        """Return the words that start the launcher, its flags with their values, and the script with its arguments."""
        start = next((start for start in self.starts if tuple(words[: len(start)]) == start), None)
        if start is None:
            raise InputError(f"--command must begin with {shown(' '.join(self.starts[0]))}, as --trainer starts it.")
        rest, found = list(words[len(start) :]), list[tuple[str, ...]]()
        while rest and rest[0].startswith("-"):
            is_alone = "=" in rest[0] or underscored(rest[0]) in self.switches
            size = 1 if is_alone else 2
            found.append(tuple(rest[:size]))
            del rest[:size]
        return start, found, rest


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerKind:
    """One kind of trainer."""

    name: str
    framework: Callable[[Flags], FrameworkChoice]
    """Returns the framework whose laws hold."""
    launcher: RankLauncher | None = None
    replaced: Sequence[str]
    """Flags that are removed from the user's command, with their values; one that ends with a dot or a colon stands for
    all that begin so."""
    job_flags: Callable[[Flags, Workload, Topology, Path], Sequence[object]]
    """Returns the flags of one job, for a short measuring run; the path is that of its `ds_config.json`."""
    precision: Callable[[Flags], str | None]
    """Returns the precision that the command fixes; None: it fixes none."""
    usual_precision: Callable[[Flags], str | None] = lambda _flags: None
    """Returns the precision in which the trainer runs a command that fixes none; None: it is not known."""
    scaling: Callable[[Flags], Mapping[str, str | bool | None]] = lambda _flags: {}
    """Returns how the command scales and stores fp8 and fp4 tensors, as arguments of `space_for`."""
    optimizer: Callable[[Flags], Optimizer | None] = lambda _flags: None
    """Returns the optimizer that the command fixes; None: it is not read from the command."""
    stack: Callable[[Flags, Workload], Mapping[str, Any]] = lambda _flags, _workload: {}
    """Returns the fields of `Stack` in which the command differs from what its framework usually does."""
    pinned: Callable[[Flags], Mapping[str, str]] = lambda _flags: {}
    """Returns the axes that the trainer lacks, with their only value."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Axes that are searched on request only and that tuner does not set, with their only value."""
    cautious: Callable[[Flags, Mapping[str, str]], Mapping[str, str]] = lambda _flags, _wanted: {}
    """Returns default axes in place of the full search; the second argument has the axes of `--set`."""
    sequence: Sequence[str] = ()
    """The flags of the sequence length."""
    global_batch: Sequence[str] = ()
    """The flags of the global batch in sequences."""
    batch_on: Callable[[Flags, int], int | None] = lambda _flags, _gpus: None
    """Returns the sequences per optimizer step of the command on a number of GPUs, unless it has a flag of the global
    batch; None: they are not known."""
    batch_flags: Sequence[str] = ()
    """The flags that determine them."""
    processes: str = ""
    """The flag of the number of ranks for which they count, in place of all GPUs of the study; empty: none."""
    length: Mapping[str, LengthUnit] = field(default_factory=dict)
    """The flags of the length of the training; the shortest one counts."""
    check: Callable[[Flags, Model], None] = lambda _flags, _model: None
    """Raises if the arguments describe another model."""
    model: Callable[[Flags], Model | None] = lambda _flags: None
    """Returns the model that the arguments describe; None: they describe none. It raises for one that it does not
    understand."""
    trained: Callable[[Flags, Model], Model] = lambda _flags, model: model
    """Returns the model with settings of training that the arguments add to it, and their flags that no field of it
    expresses."""
    expand: Callable[[Flags], Flags] = lambda flags: flags
    """Returns the flags with those of the configuration files that they name."""
    config_flags: Sequence[str] = ()
    """The flags that name a configuration file in TOML."""
    is_hyphen_underscore: bool = False
    """Whether `--a-b` is the same flag as `--a_b`."""
    has_overrides: bool = False
    """Whether `section.name=value` without dashes is a flag, as Hydra has it."""
    max_nodes: int | None = None
    environment: Callable[[Flags, Topology], Mapping[str, str]] = lambda _flags, _topology: {}
    """Returns variables that each job needs, unless the user sets them."""
    ds_config: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Returns DeepSpeed's config in the trainer's form; None if it has none."""
    ds_config_flags: Sequence[str] = ("--deepspeed", "--deepspeed_config", "--deepspeed-config")
    """The flags that may name the user's own DeepSpeed config; the first that does counts."""


def underscored(word: str) -> str:
    """Return the name of a flag with underscores instead of hyphens."""
    name = word.partition("=")[0]
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name


def number(flags: Flags, flag: str) -> int:
    """Return the integer value of a flag; 0 if it is missing."""
    text = flags.get(flag, "0")
    if not text.isdecimal():
        raise InputError(f"{flag} {shown(text)} in --command is not a whole number.")
    return int(text)


def real(flags: Flags, flag: str) -> float:
    """Return the value of a flag that is among these."""
    try:
        return float(flags[flag])
    except ValueError:
        raise InputError(f"{flag} {shown(flags[flag])} in --command is not a number.") from None


def has_fields(flags: Flags, names: Iterable[str]) -> bool:
    """Whether one of these flags has a field such as `{micro_batch}`, whose value only a job knows."""
    return any("{" in flags.get(name, "") for name in names)


def is_on(flags: Flags, flag: str) -> bool:
    """Whether a switch is on."""
    return flags.get(flag, "false").lower() in TRUE


def check_sizes(flags: Flags, sizes: Mapping[str, float]) -> None:
    """Raise if a flag of the command has another value than the model."""
    for flag, value in sizes.items():
        read = number if isinstance(value, int) else real
        if flag in flags and read(flags, flag) != value:
            raise InputError(
                f"{flag} {flags[flag]} in --command contradicts the model, whose value is {value}; "
                "correct --model or the command."
            )


def refuse_unset(trainer: str, unset: Mapping[str, bool]) -> None:
    """Raise for properties of a topology that the flags of a trainer do not set."""
    if lacks := [name for name, is_used in unset.items() if is_used]:
        raise InputError(f"--trainer {trainer} does not set {listed(lacks)}; write the flags in --command instead.")
