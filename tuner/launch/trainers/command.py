"""The user's own command, to which each job appends its topology: `--trainer NAME`.

The command needs no field in braces: flags that set the topology are removed from it, and those of each job appended.
What its arguments fix of the model, the sequence and the batch describes the workload.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path, PurePath
from typing import Any, Final

from tuner.core import catalog
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError, TunerWarning, UnknownName
from tuner.core.frameworks import ANY
from tuner.core.model import Model
from tuner.core.stack import Stack
from tuner.core.text import shown
from tuner.launch.ds_config_file import based_on, enabled_precision, read_config, read_file_of_command, stack_of_config
from tuner.launch.trainers.accelerate import ACCELERATE
from tuner.launch.trainers.hugging_face import HF
from tuner.launch.trainers.kind import TrainerKind, has_fields, number, underscored
from tuner.launch.trainers.megatron_deepspeed import MEGATRON_DEEPSPEED
from tuner.launch.trainers.megatron_lm import MEGATRON_LM
from tuner.launch.trainers.nemo import NEMO
from tuner.launch.trainers.torchtitan import TORCHTITAN

KINDS: Final[Mapping[str, TrainerKind]] = {
    kind.name: kind for kind in (MEGATRON_LM, MEGATRON_DEEPSPEED, NEMO, TORCHTITAN, HF, ACCELERATE)
}

_STARTERS: Final = ("torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec", "srun")
_STARTER_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner")
_RAMP: Final = "--rampup-batch-size"
_COUNT: Final = re.compile(r"[0-9][0-9_]{0,17}")

_OVERRIDE: Final = re.compile(r"[+~]{0,2}([A-Za-z_][\w.]*)=")


@dataclass(frozen=True, kw_only=True)
class TrainerCommand:
    """The user's command without the flags that each job sets."""

    kind: TrainerKind
    head: tuple[str, ...] = ()
    """The launcher, if the trainer has its own."""
    words: tuple[str, ...]
    fixed: Mapping[str, str]
    """The flags of the command as the user gave it, with their values joined by spaces."""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The words of each arguments file."""

    @classmethod
    def parse(cls, name: str, command: str) -> TrainerCommand:
        """Parse a command, with the contents of each arguments file `@FILE` in its place."""
        if name not in KINDS:
            raise UnknownName("trainer", name, tuple(KINDS))
        kind = KINDS[name]
        try:
            given = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--command {shown(command)} is not a valid shell command: {error}.") from None
        arguments = {word[1:]: _read_arguments(word[1:]) for word in given if word.startswith("@")}
        words = [word for one in given for word in (arguments[one[1:]] if one.startswith("@") else [one])]
        head, launched = list[str](), dict[str, str]()
        if kind.launcher is not None:
            start, flags, words = kind.launcher.split(words)
            kept = [flag for flag in flags if underscored(flag[0]) not in kind.launcher.replaced]
            head = [*start, *(word for flag in kept for word in flag)]
            launched = {name: value for flag in flags for name, value in _flags(flag, kind).items()}
        fixed = kind.expand({**_flags(words, kind), **launched})
        kept_words = tuple(_without(words, kind))
        return cls(kind=kind, head=tuple(head), words=kept_words, fixed=fixed, arguments=arguments)

    @property
    def starts_ranks(self) -> bool:
        """Whether the command is a launcher such as torchrun, which starts the ranks itself."""
        return starts_ranks(self.head or self.words)

    def started(self, rank: tuple[str, ...], topology: Topology) -> tuple[str, ...]:
        """Return the command of a rank with torchrun before it, on one node, unless it starts its ranks itself."""
        if self.starts_ranks:
            return rank
        start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(topology.gpus))
        if PurePath(rank[0]).name.startswith("python"):
            return (rank[0], *start, *rank[1:])
        return ("torchrun", *start[2:], "--no-python", *rank)

    def job(self, workload: Workload, topology: Topology, ds_config: Path) -> tuple[str, ...]:
        """Return the command of one job."""
        launcher = self.kind.launcher
        launched = () if launcher is None else launcher.flags(self.fixed, workload, topology, ds_config)
        return (*self.head, *map(str, launched), *self.words, *self.job_flags(workload, topology, ds_config))

    def job_flags(self, workload: Workload, topology: Topology, ds_config: Path) -> tuple[str, ...]:
        """Return the flags of one job."""
        return tuple(str(word) for word in self.kind.job_flags(self.fixed, workload, topology, ds_config))

    @cached_property
    def own_config(self) -> Mapping[str, Any] | None:
        """The user's own DeepSpeed config; None if the command names none."""
        return None if self._own_config_file is None else read_config(self._own_config_file)

    @property
    def _own_config_file(self) -> str | None:
        named = next((self.fixed[flag] for flag in self.kind.ds_config_flags if self.fixed.get(flag)), "{ds_config}")
        if not Path(named).exists():  # accelerate launch --deepspeed_config_file FILE SCRIPT
            named = named.split()[0]
        uses_deepspeed = self.kind.framework(self.fixed) in ("deepspeed", "megatron-deepspeed")
        return named if uses_deepspeed and named != "{ds_config}" else None

    @property
    def digests(self) -> dict[str, str]:
        """A digest of the content of each configuration file that the command names, by its name there."""
        found: dict[str, Any] = dict(self.arguments)
        if self._own_config_file is not None:
            found[self._own_config_file] = self.own_config
        files = [self.fixed[flag] for flag in self.kind.config_flags if flag in self.fixed]
        found |= {file: catalog.read_toml(Path(file)) for file in files}
        return {file: _digest(content) for file, content in found.items()}

    @property
    def ds_config(self) -> Callable[[Mapping[str, Any]], Mapping[str, Any]] | None:
        """Adapts the DeepSpeed config of a job to the trainer and to the user's own; None if jobs need none."""
        own = self.own_config
        return self.kind.ds_config if own is None else partial(based_on, own)

    def completed(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Return what describes the space, completed by what the arguments fix; raise if they contradict it."""
        found = dict(description)
        kind = self.kind
        options = {"global_batch": kind.global_batch, "seq": kind.sequence}
        for option, flag in ((option, flag) for option, flags in options.items() for flag in flags):
            if flag in self.fixed:
                value = number(self.fixed, flag)
                if found.get(option) not in (None, value):
                    raise InputError(
                        f"--{option.replace('_', '-')} {found[option]} contradicts {flag} {value} in --command; "
                        "remove one of them."
                    )
                found[option] = value
        if ramp := self.fixed.get(_RAMP):
            start_and_step = ",".join(ramp.split()[:2])
            if found.get("ramp") not in (None, start_and_step):
                raise InputError(f"--ramp {found['ramp']} contradicts {_RAMP} {ramp} in --command; remove one of them.")
            found["ramp"] = start_and_step
        if found.get("model") is None:
            found["model"] = kind.model(self.fixed)
        if found["model"] is None:
            raise InputError(
                f"--command does not describe the model for --trainer {kind.name}; add for example --model config.json."
            )
        found["precision"] = self._precision(found.get("precision"))
        found |= self._scaling(found)
        framework = kind.framework(self.fixed)
        if found.get("framework") not in (None, ANY, framework):
            raise InputError(
                f"--trainer {kind.name} runs {framework}, not {found['framework']}; leave --framework out."
            )
        found["framework"] = found.get("framework") or framework
        found["settings"] = self._settings(tuple(found.get("settings") or ()))
        if kind.max_nodes is not None and (found.get("nodes") or 1) > kind.max_nodes:
            raise InputError(
                f"--trainer {kind.name} starts ranks on {kind.max_nodes} node only, but --nodes is {found['nodes']}; "
                "write the launcher's flags for several nodes in --command, with fields and without --trainer."
            )
        return found

    def ranks_on(self, gpus: int) -> int:
        """Return the number of ranks that the command states, or else that of the GPUs."""
        stated = self.fixed.get(self.kind.processes, "")
        return int(stated) if _COUNT.fullmatch(stated) and int(stated) else gpus

    def batch_on(self, gpus: int) -> int | None:
        """Return the global batch of the command on a number of GPUs; None if it does not determine it."""
        if any(flag in self.fixed for flag in self.kind.global_batch) or has_fields(self.fixed, self.kind.batch_flags):
            return None
        stated = (self.own_config or {}).get("train_batch_size")
        return stated if isinstance(stated, int) and stated > 0 else self.kind.batch_on(self.fixed, self.ranks_on(gpus))

    def length(self, workload: Workload) -> tuple[float, str] | None:
        """Return the tokens of the whole training and the flag that states them; None if no flag does."""
        model = workload.model
        sizes = {"steps": model.seq * workload.global_batch, "sequences": model.seq, "tokens": 1}
        stated = {flag: self.fixed.get(flag, "") for flag in self.kind.length}
        lengths = [
            (float(int(value) * sizes[self.kind.length[flag]]), f"{flag}{' ' if flag.startswith('-') else '='}{value}")
            for flag, value in stated.items()
            if _COUNT.fullmatch(value) and int(value)  # neither a field nor -1, which stands for no limit
        ]
        return min(lengths, default=None)

    def _settings(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the settings with those of the axes that the trainer lacks; raise if one asks for another value."""
        wanted = {axis: values for axis, _, values in ("".join(one.split()).partition("=") for one in given)}
        for axis, value in {**self.kind.pinned(self.fixed), **self.kind.lacks}.items():
            if wanted.get(axis, value) != value:
                raise InputError(f"--trainer {self.kind.name} does not support --set {axis}={wanted[axis]}; remove it.")
        if named := [axis for axis in ("heads", "shape") if axis in wanted]:
            raise InputError(
                f"--trainer {self.kind.name} cannot change the model, as --set {named[0]} does; remove it."
            )
        added = {**self.kind.pinned(self.fixed), **self.kind.cautious(self.fixed, wanted)}
        return (*given, *(f"{axis}={value}" for axis, value in added.items() if axis not in wanted))

    def _precision(self, given: str | None) -> str | None:
        """Return the precision of the command; raise for another one."""
        found, enabled = self.kind.precision(self.fixed), enabled_precision(self.own_config)
        if enabled is not None and found not in (None, enabled):
            raise InputError(
                f"the DeepSpeed config in --command enables {enabled}, but its flags mean {found}; correct one of them."
            )
        found = found or enabled
        usual = self.kind.usual_precision(self.fixed)
        if found is None and given is not None and usual not in (None, given):
            warnings.warn(
                TunerWarning(
                    f"jobs train in --precision {given}, which --command does not set: without it, {self.kind.name} "
                    f"trains in {usual}."
                ),
                stacklevel=2,
            )
        if given is not None and found not in (None, given):
            raise InputError(
                f"--precision {given} contradicts --command, whose flags mean {found}; correct one of them."
            )
        return found or given or usual

    def _scaling(self, given: Mapping[str, Any]) -> Mapping[str, str | bool | None]:
        """Return how the command scales and stores fp8 and fp4 tensors, and its optimizer; raise for others."""
        fixed = {**self.kind.scaling(self.fixed)}
        if optimizer := self.kind.optimizer(self.fixed):
            fixed["optimizer"] = optimizer
        for name, value in fixed.items():
            if given.get(name) not in (None, False, value):
                words = f"{given[name]} " if given[name] is not True else ""
                raise InputError(f"--{name.replace('_', '-')} {words}contradicts the flags in --command; leave it out.")
        return fixed

    def check(self, model: Model) -> None:
        """Raise if the model is not that of the arguments."""
        self.kind.check(self.fixed, model)

    def trained(self, workload: Workload) -> Workload:
        """Return the workload with settings of training and of the software that the arguments add to it.

        Its model also names the settings that no field expresses.
        """
        pipelines = self.kind.framework(self.fixed) == "megatron-deepspeed"
        own = stack_of_config(self.own_config or {}, pipelines=pipelines)
        found = {**self.kind.stack(self.fixed, workload), **own}
        stack = replace(workload.stack or Stack(), **found) if found else workload.stack
        return replace(workload, model=self.kind.trained(self.fixed, workload.model), stack=stack)


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether a command is a launcher such as torchrun, which starts the ranks itself."""
    names = [PurePath(word).name for word in words[:1]]
    return any(name in _STARTERS for name in names) or any(word in _STARTER_MODULES for word in words[:4])


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _read_arguments(file: str) -> list[str]:
    """Return the words of an arguments file."""
    text = read_file_of_command(file, "arguments file")
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(f"the arguments file {file!r} in --command is not valid: {error}.") from None


def _flag(word: str, kind: TrainerKind) -> tuple[str, bool]:
    """Return the name of the flag that a word is, empty if it is none, and whether its value may follow."""
    if word.startswith("--"):
        name = word.partition("=")[0]
        return (underscored(word) if kind.is_hyphen_underscore else name), True
    if kind.has_overrides and (override := _OVERRIDE.match(word)):
        return override[1], False
    if _is_among(spelt := word.replace("-", "_"), [flag for flag in kind.replaced if flag.endswith(":")]):
        return spelt, False
    return (short, True) if (short := word.partition("=")[0]) in kind.replaced else ("", True)


def _is_among(name: str, flags: Sequence[str]) -> bool:
    return any(name.startswith(flag) if flag[-1] in ".:" else name == flag for flag in flags)


def _flags(words: Sequence[str], kind: TrainerKind) -> dict[str, str]:
    """Return the flags of a command with their values."""
    found: dict[str, str] = {}
    last = ""
    for word in words:
        name, takes_values = _flag(word, kind)
        if name:
            found[name] = word.partition("=")[2]
            last = name if takes_values else ""
        elif last:
            found[last] = f"{found[last]} {word}".strip()
    return found


def _without(words: Sequence[str], kind: TrainerKind) -> list[str]:
    """Return a command without the flags that each job sets, and their values."""
    kept: list[str] = []
    is_dropping = False
    for word in words:
        name, takes_values = _flag(word, kind)
        is_replaced = bool(name) and _is_among(name, kind.replaced)
        if name:
            is_dropping = is_replaced and takes_values
        if not (is_replaced or is_dropping):
            kept.append(word)
    return kept
