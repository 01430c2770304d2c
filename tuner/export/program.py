"""The program that an export runs: the bundled worker, or the user's from a command template."""

from __future__ import annotations

import shlex
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tuner.core.assignment import Assignment
from tuner.core.domain import Workload
from tuner.core.worker_refusals import refusals
from tuner.export.formats import BY_THE_PROGRAM, ExportOptions, Treatment, expressed, trains_only
from tuner.export.identity import PROPERTIES
from tuner.export.production import ProductionRun
from tuner.export.rendering import as_json
from tuner.launch.program import CommandTemplate, passes_config_to_hf, template_fields
from tuner.launch.trainers.command import starts_ranks

SMOKE_ITERATIONS: Final = 10
"""Iterations of the bundled worker, which trains on synthetic tokens: enough to measure it."""

FOLDER: Final = "\0folder\0"
"""Stands for the script's own folder until a script is rendered."""

_DEGREES: Final = ("tp", "pp", "cp", "vpp", "ep", "etp")
"""Fields of a command without which the program cannot know that a degree is not 1."""
_OVERRIDES: Final = {"heads": "heads", "hidden": "shape", "layers": "shape", "global_batch": "global_batch"}
"""Fields of the model and the batch, and the axis of the topology that may override each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgram:
    """The program of one rank, or a command that starts the ranks of a node."""

    words: tuple[str, ...]
    """The user's command; empty: the bundled worker."""
    environment: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    """Folder that the command runs in; empty: the script's own."""

    @property
    def worker(self) -> bool:
        """Whether this is the bundled worker."""
        return not self.words

    @property
    def starts_ranks(self) -> bool:
        """Whether the command is a launcher such as torchrun, which starts the ranks itself."""
        return starts_ranks(self.words)

    @property
    def reads_config(self) -> bool:
        """Whether the program reads ds_config.json."""
        return self.worker or any("ds_config.json" in word for word in self.words)

    @property
    def passes_config_to_hf(self) -> bool:
        """Whether ds_config.json is an argument of HF Trainer."""
        return passes_config_to_hf(self.words, f"{FOLDER}/ds_config.json")

    def quoted(self, folder: str = '"$folder"') -> str:
        """Return the command for a shell, with an expression for the script's folder."""
        return " ".join(quoted_word(word, folder) for word in self.words)

    def plain(self, folder: str) -> list[str]:
        """Return the command's words for a given folder."""
        return [word.replace(FOLDER, folder) for word in self.words]


def quoted_word(word: str, folder: str) -> str:
    """Return a word quoted for a shell, in which an expression stands for the script's folder."""
    parts = word.split(FOLDER)
    return folder.join(shlex.quote(part) if part else "" for part in parts) or "''"


def program_of_export(run: ProductionRun, options: ExportOptions) -> TrainingProgram:
    """Return the user's command with the values of the run, or the bundled worker if there is none."""
    if options.command is None:
        return TrainingProgram(words=())
    values = {**_values(run), "ds_config": f"{FOLDER}/ds_config.json", "folder": FOLDER}
    variables = [(f"TUNER_{name.upper()}", str(value)) for name, value in _values(run).items()]
    return TrainingProgram(
        words=tuple(word.format_map(values) for word in _parsed(options.command)),
        environment=tuple(variables),
        workdir=options.workdir,
    )


def _values(run: ProductionRun) -> dict[str, Any]:
    """Return the values of all fields except paths."""
    return template_fields(run.workload, run.topology, run.cluster) | {"iterations": run.iterations, "number": 0}


def program_treatments(options: ExportOptions) -> Mapping[str, Treatment]:
    """Return how the program treats each property of a run."""
    return _of_worker() if options.command is None else _of_command(options.command)


def _of_worker() -> Mapping[str, Treatment]:
    """Return the treatments of the bundled worker, which reads the assignment and refuses unsupported models."""
    found = {
        name: expressed("assignment.json", accepts=_trained(name), only=_ONLY.get(name, "")) for name in PROPERTIES
    }
    found["attention"] = expressed("assignment.json", only="eager, flash1 and flash2; fused becomes one of them")
    found["ramp"] = trains_only("none", lambda run: run.workload.ramp is None)
    return found


_ONLY: Final[Mapping[str, str]] = {
    "not_understood": "none",
    "activation": "GELU, ReLU, their variants, SiLU",
    "norm_placement": "before, after or around attention and MLP",
    "norm_weight": "trained weights",
    "qk_norm": "RMSNorm over each head, or over the width at tp 1",
    "rotary_scaling": "linear and llama3",
    "attention_dropout": "0",
    "hidden_dropout": "0",
    "embedding_dropout": "0",
    "parallel_attention": "norms before it",
    "embedding_size": "hidden size",
    "head_bias": "none with tied embeddings",
    "sliding_window": "eager attention",
    "attention_softcap": "eager attention",
    "precision": "fp32, bf16 and fp16",
    "optimizer": "adam, sgd and adafactor",
    "vpp": "1",
    "cp": "1",
    "hsdp": "1",
    **dict.fromkeys(("latent", "attention_sinks", "glu_clamp"), "none"),
    "experts": "softmax router, dropless, no biases",
    "ep": "with ZeRO 0 to 2",
    "etp": "1",
    "mtp_layers": "0",
    "dispatcher": "alltoall",
    "moe_overlap": "off",
}
"""The values that the worker trains, for documentation; `tuner.core.worker_refusals` decides."""


def _trained(name: str) -> Callable[[ProductionRun], bool]:
    covered = PROPERTIES[name].fields

    def accepts(run: ProductionRun) -> bool:
        return all(field not in covered for field, _ in refusals(worker_workload(run), run.topology))

    return accepts


def _of_command(command: str) -> Mapping[str, Treatment]:
    """Return the treatments of the user's program, which gets the topology through the template."""
    names = _fields(command)
    found = {**BY_THE_PROGRAM, **override_treatments(command)}
    for name in _DEGREES:
        if not names & {name, "key"}:
            found[name] = trains_only("1", _has(name, 1), f"--command has no {{{name}}}")
    return found


def override_treatments(command: str) -> Mapping[str, Treatment]:
    """Return the treatments of the model and the batch that a study may choose and a command does not pass."""
    names = _fields(command)
    found = {}
    for name, axis in _OVERRIDES.items():
        if not names & {name, "key"}:
            because = f"an axis of the study, and --command has no {{{name}}}"
            found[name] = trains_only("the model's own", _has(axis, None), because)
    return found


def _fields(command: str) -> set[str]:
    """Return the names of the fields of a command."""
    return {name for word in _parsed(command) for _, name, _, _ in string.Formatter().parse(word) if name}


def _parsed(command: str) -> tuple[str, ...]:
    """Return the words of a command; raise `InputError` for an unknown field."""
    return CommandTemplate.parse(command, configure=lambda _: {}, cwd=Path()).words


def _has(name: str, value: Any) -> Callable[[ProductionRun], bool]:
    return lambda run: getattr(run.topology, name) == value


def worker_workload(run: ProductionRun) -> Workload:
    """Return the workload as the worker trains it: with a torch kernel instead of a fused one, and natural routing."""
    workload = replace(run.workload, plain_layers=False)
    workload = replace(workload, routing="natural") if workload.model.experts else workload
    if workload.attention != "fused":
        return workload
    flash = replace(workload, attention="flash2")
    eager = replace(workload, attention="eager")
    kernel = ("attention", "positions", "sliding_window", "attention_softcap")
    return eager if any(field in kernel for field, _ in refusals(flash, run.topology)) else flash


def assignment_text(run: ProductionRun, result: str = "result.json") -> str:
    """Return `assignment.json`, from which the worker builds the model and the topology."""
    assignment = Assignment(
        workload=worker_workload(run),
        topology=run.topology,
        gpus_per_node=run.cluster.gpus_per_node,
        ds_config="ds_config.json",
        result=result,
        iterations=SMOKE_ITERATIONS,
    )
    return as_json(assignment.document)
