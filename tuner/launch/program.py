"""The program of a job: the bundled worker, or the user's trainer from a command template."""

from __future__ import annotations

import os
import re
import shlex
import signal
import string
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from tuner.core.assignment import Assignment
from tuner.core.atomic_write import write_object
from tuner.core.domain import EXPERT_AXES, Cluster, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.text import listed, shown
from tuner.launch.contract import STEPS, Job
from tuner.launch.ds_config import ds_config, with_trainer_values
from tuner.launch.shell_syntax import check_log_name, check_shell_syntax
from tuner.launch.trainers.command import TrainerCommand

if TYPE_CHECKING:
    from tuner.logs.frameworks import StepPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """The process that a job starts."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    result: Path | None
    """The file that appears once the job is done; None if its log shows that."""
    grace: float = 0.0
    """Seconds after SIGTERM in which the process may end ranks on other machines."""
    each_rank: tuple[str, ...] | None = None
    """The command of one rank, which reads its rank from the variables of torchrun, for launchers that start the ranks
    themselves; None if only `arguments` can start them."""
    log: Path | None = None
    """The file of `--log`, which launchers link into the job's folder before they start it."""


class Program(Protocol):
    """The program that a launcher's jobs run."""

    @property
    def measured_by_log(self) -> bool:
        """Whether a job is measured by its log, and ended after the last iteration."""

    @property
    def step_pattern(self) -> StepPattern | None:
        """The pattern of log lines with iterations; None for trainers that tuner knows."""

    @property
    def on_host(self) -> bool:
        """Whether ranks run on the CPU, so that jobs use the host's memory."""

    @property
    def several_batches(self) -> bool:
        """Whether one job can measure several global batches."""

    def prepare(self, job: Job) -> ProcessSpec:
        """Write the job's files into its folder and return the process to start."""

    def dumps_on_signal(self, pid: int) -> bool:
        """Whether a process writes its stacks to stderr on SIGUSR1, which kills any other."""


Configure = Callable[[Job], Mapping[str, Any]]
"""Returns the `ds_config.json` of a job."""


def _configured(job: Job) -> Mapping[str, Any]:
    """Return the configuration in which DeepSpeed runs the job's topology."""
    return ds_config(job.workload, job.topology)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """`tuner.worker`, one process for each rank."""

    accelerator: str
    """DeepSpeed's name for it: cuda or cpu."""
    configure: Configure = _configured
    timeout: float = 600.0
    """Seconds that a collective may take before the job fails."""
    seed: int = 0
    measured_by_log: ClassVar[bool] = False
    """The worker writes a result file and exits."""
    step_pattern: ClassVar[None] = None
    several_batches: ClassVar[bool] = True
    """The worker can accumulate gradients over more microbatches in later iterations."""

    @property
    def on_host(self) -> bool:
        """Whether ranks compute on the CPU."""
        return self.accelerator == "cpu"

    def prepare(self, job: Job) -> ProcessSpec:
        """Write the assignment and DeepSpeed's config; return a parent process that starts the ranks."""
        write_object(job.folder / "ds_config.json", self.configure(job))
        assignment = Assignment(
            workload=job.workload,
            topology=job.topology,
            gpus_per_node=job.cluster.gpus_per_node,
            ds_config="ds_config.json",
            result="result.json",
            iterations=max(job.iterations),
            batches=job.batches,
            seed=self.seed,
            timeout=self.timeout,
        )
        assignment.write(job.folder / "assignment.json")
        own = ("--job", str((job.folder / "assignment.json").resolve()))
        threads = "1" if self.on_host else os.environ.get("OMP_NUM_THREADS", "1")  # as exported launch scripts set it
        environment = {"DS_ACCELERATOR": self.accelerator, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": threads}
        package_root = Path(__file__).resolve().parent.parent.parent
        return ProcessSpec(
            arguments=(sys.executable, "-m", "tuner.worker.ranks", *own),
            environment={**environment, "PYTHONPATH": _python_path(package_root)},
            cwd=job.folder.resolve(),
            result=(job.folder / "result.json").resolve(),
            each_rank=(sys.executable, "-m", "tuner.worker", *own),
        )

    def dumps_on_signal(self, pid: int) -> bool:
        """Whether the process is a rank of the worker that has installed its handler."""
        try:
            caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            is_worker = b"tuner.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return is_worker and caught is not None and bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def _python_path(package_root: Path) -> str:
    """Return the path on which jobs find this tuner, followed by the user's PYTHONPATH."""
    return os.pathsep.join(filter(None, (str(package_root), os.environ.get("PYTHONPATH"))))


def passes_config_to_hf(words: Sequence[str], config: str) -> bool:
    """Return whether a config is an argument of HF Trainer or accelerate; DeepSpeed's `--deepspeed` takes no file."""
    flags = ("--deepspeed", "--deepspeed_config_file", "--deepspeed-config-file")
    return any(f"{flag}={config}" in words or (flag, config) in pairwise(words) for flag in flags)


FIELDS: Final = (
    *("tp", "pp", "dp", "cp", "vpp", "micro_batch", "zero", "nodes", "gpus", "gpus_per_node", "global_batch"),
    *("microbatches", "heads", "layers", "hidden", "seq", "sequence_parallel", "recompute", "partition"),
    *("offload", "hsdp", *EXPERT_AXES, "key", "ds_config", "folder", "iterations", "number"),
)
"""Names that a template may use in braces."""


_LIVE_OUTPUT: Final = {"PYTHONUNBUFFERED": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
"""Has Python print at once, and rich print a progress bar, such as Lightning's, before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTemplate:
    """The user's command, measured by its log; it is split like a shell does, and runs without one."""

    words: tuple[str, ...]
    cwd: Path
    configure: Configure = _configured
    on_host: bool = False
    step_pattern: StepPattern | None = None
    trainer: TrainerCommand | None = None
    """The command in its framework's words, to which each job appends its topology."""
    log: str | None = None
    """Template of the file that the trainer writes its log to, which is read besides stdout and stderr."""
    measured_by_log: ClassVar[bool] = True
    """A trainer runs until it is ended."""
    several_batches: ClassVar[bool] = False
    """A trainer keeps its batch."""

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        cwd: Path,
        configure: Configure = _configured,
        on_host: bool = False,
        step_pattern: str | None = None,
        log: str | None = None,
        trainer: str | None = None,
    ) -> CommandTemplate:
        """Parse a command such as `torchrun train.py --tp {tp}`; raise for an unknown field."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise InputError(f"--command {shown(text)} is not a valid shell command: {error}.") from None
        if not words:
            raise InputError("--command is empty; pass for example --command 'torchrun train.py --tp {tp}'.")
        check_shell_syntax(text)
        for word in words:
            _check_fields(word)
        if log is not None:
            check_log_name(log)
            _check_fields(log, "--log")
        if step_pattern is not None:
            from tuner.logs.frameworks import StepPattern  # its package compiles many patterns
        pattern = None if step_pattern is None else StepPattern.parse(step_pattern)
        made = cls(configure=configure, words=words, cwd=cwd, on_host=on_host, step_pattern=pattern, log=log)
        if trainer is None:
            return made
        fitted = TrainerCommand.parse(trainer, text)
        for word in (*fitted.head, *fitted.words):
            _check_fields(word)
        return replace(made, trainer=fitted)

    def prepare(self, job: Job) -> ProcessSpec:
        """Return the command with the job's values."""
        config = job.folder / "ds_config.json"
        adapted = self.trainer.ds_config if self.trainer is not None else None
        if adapted is None and passes_config_to_hf(self.words, "{ds_config}"):
            adapted = with_trainer_values
        if adapted is not None or any("{ds_config}" in word for word in self.words):
            document = self.configure(job)
            write_object(config, adapted(document) if adapted is not None else document)
        values = {**fields_of(job), "ds_config": str(config.resolve())}
        words, each_rank, needed = self.words, None, dict[str, str]()
        if self.trainer is not None:
            variables = self.trainer.kind.environment(self.trainer.fixed, job.topology)
            needed = {name: os.environ.get(name, value) for name, value in variables.items()}
            rank = self.trainer.job(job.workload.as_in(job.topology), job.topology, config.resolve())
            words = self.trainer.started(rank, job.topology)
            each_rank = None if self.trainer.starts_ranks else rank
        return ProcessSpec(
            arguments=tuple(word.format_map(values) for word in words),
            each_rank=each_rank and tuple(word.format_map(values) for word in each_rank),
            environment={**_LIVE_OUTPUT, **needed, "TUNER_STEPS": str((job.folder / STEPS).resolve())},
            cwd=self.cwd,
            result=None,
            log=None if self.log is None else self.cwd / self.log.format_map(values),
        )

    def dumps_on_signal(self, pid: int) -> bool:  # noqa: ARG002 - the same for each process
        """Return False, because the signal may kill an unknown program."""
        return False


_CONFIG_AXES: Final = frozenset({"micro_batch", "global_batch", "zero", "offload"})
"""Axes that `ds_config.json` passes."""


def axes_not_passed(command: str, varied: Iterable[str]) -> list[str]:
    """Return the axes that a template does not pass to jobs, neither in a field of their own nor in another one."""
    fields = _fields_in(command)
    if fields & {"key", "folder"}:  # the key has every axis, and the folder has job.json
        return []
    passed = fields | (_CONFIG_AXES if "ds_config" in fields else set())
    passed |= {"micro_batch"} if "microbatches" in fields else set()
    return [axis for axis in varied if axis not in passed]


def passes_batch(command: str) -> bool:
    """Whether a template passes the global batch to each job."""
    return not axes_not_passed(command, ["global_batch"]) or "microbatches" in _fields_in(command)


def _fields_in(command: str) -> set[str]:
    """Return the fields of a template."""
    return {name for word in shlex.split(command) for _, name, _, _ in string.Formatter().parse(word) if name}


def fields_of(job: Job) -> dict[str, Any]:
    """Return the values of all fields but `ds_config`."""
    return template_fields(job.workload, job.topology, job.cluster) | {
        "folder": str(job.folder.resolve()),
        "iterations": max(job.iterations),
        "number": job.number,
    }


def template_fields(workload: Workload, topology: Topology, cluster: Cluster) -> dict[str, Any]:
    """Return the values of the fields that describe a topology."""
    workload = workload.as_in(topology)
    return {
        "tp": topology.tp,
        "pp": topology.pp,
        "dp": topology.dp,
        "cp": topology.cp,
        "vpp": topology.vpp,
        "micro_batch": topology.micro_batch,
        "zero": topology.zero,
        "nodes": topology.nodes,
        "gpus": topology.gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "global_batch": workload.global_batch,
        "microbatches": topology.microbatches(workload.global_batch),
        "heads": workload.model.heads,
        "layers": workload.model.layers,
        "hidden": workload.model.hidden,
        "seq": workload.model.seq,
        "sequence_parallel": int(topology.sequence_parallel),
        "recompute": topology.recompute,
        "partition": topology.partition,
        "offload": topology.offload,
        "hsdp": topology.hsdp,
        **{axis: getattr(topology, axis) for axis in EXPERT_AXES},
        "moe_overlap": int(topology.moe_overlap),
        "key": topology.key,
    }


def _check_fields(word: str, option: str = "--command") -> None:
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise InputError(
            f"{option}: unbalanced brace in {shown(word)} ({error}); write {{{{ or }}}} for a literal brace."
        ) from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in FIELDS:
            raise InputError(f"{option}: unknown field {{{name}}}; the fields are {listed(FIELDS, limit=40)}.")
        if spec or conversion:
            raise InputError(f"{option}: fields take no format or conversion; write {{{name}}} in {shown(word)}.")


def program_of(
    command: str | None,
    *,
    accelerator: str,
    seed: int = 0,
    step_pattern: str | None = None,
    log: str | None = None,
    trainer: str | None = None,
) -> Program:
    """Return the user's command, run in the current directory, or the bundled worker if there is none."""
    if command is None:
        return WorkerProgram(accelerator=accelerator, seed=seed)
    return CommandTemplate.parse(
        command, cwd=Path.cwd(), on_host=accelerator == "cpu", step_pattern=step_pattern, log=log, trainer=trainer
    )
