"""What a local job runs: the shipped worker, or the user's own trainer from a template."""

from __future__ import annotations

import re
import shlex
import signal
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tuner.core.assignment import Assignment
from tuner.core.atomic_write import write_object
from tuner.core.errors import InputError
from tuner.core.text import listed, shown
from tuner.launch.contract import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process to start."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    result: Path | None
    """The file whose being there says that the job is done; None: its log says so."""
    each_rank: tuple[str, ...] | None = None
    """One rank, told its place as torchrun tells it, for launchers that start ranks by themselves; None: there is no
    such program, and `arguments` are all."""


class Program(Protocol):
    """What a launcher knows of the program that its jobs run."""

    @property
    def measured_by_log(self) -> bool:
        """Whether a job has to be ended once its log shows the last iteration."""

    @property
    def on_host(self) -> bool:
        """Whether it computes on the host's processors, so that the host's memory is what runs out."""

    def prepare(self, job: Job) -> ProcessSpec:
        """Write the job's files into its folder and say what to start."""

    def dumps_on_signal(self, pid: int) -> bool:
        """Whether that process writes its stacks to stderr on SIGUSR1; any other would die of it."""


class Configure(Protocol):
    """Makes the `ds_config.json` of a job."""

    def __call__(self, job: Job) -> Mapping[str, Any]:
        """Everything that DeepSpeed is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """`tuner.worker`, one process for each rank."""

    configure: Configure
    accelerator: str
    """As DeepSpeed calls it: cuda, cpu."""
    timeout: float = 600.0
    """Seconds that a collective may take before the job gives up by itself."""
    seed: int = 0

    @property
    def measured_by_log(self) -> bool:
        """No: it ends by itself, with a result."""
        return False

    @property
    def on_host(self) -> bool:
        """Whether ranks compute on the host."""
        return self.accelerator == "cpu"

    def prepare(self, job: Job) -> ProcessSpec:
        """The assignment and DeepSpeed's config, and one parent that starts the ranks."""
        write_object(job.folder / "ds_config.json", self.configure(job))
        assignment = Assignment(
            workload=job.workload,
            topology=job.topology,
            gpus_per_node=job.cluster.gpus_per_node,
            ds_config="ds_config.json",
            result="result.json",
            iterations=max(job.iterations),
            seed=self.seed,
            timeout=self.timeout,
        )
        assignment.write(job.folder / "assignment.json")
        environment = {"DS_ACCELERATOR": self.accelerator, "PYTHONUNBUFFERED": "1"}
        if self.on_host:
            environment["OMP_NUM_THREADS"] = "1"
        program = Path(__file__).resolve().parent.parent.parent
        return ProcessSpec(
            arguments=(
                *(sys.executable, "-m", "tuner.worker.ranks"),
                *("--job", str((job.folder / "assignment.json").resolve())),
            ),
            environment={**environment, "PYTHONPATH": str(program)},
            cwd=job.folder.resolve(),
            result=(job.folder / "result.json").resolve(),
            each_rank=(
                *(sys.executable, "-m", "tuner.worker"),
                *("--job", str((job.folder / "assignment.json").resolve())),
            ),
        )

    def dumps_on_signal(self, pid: int) -> bool:
        """The ranks do, from when they have said so to the system: they are what runs `tuner.worker`."""
        try:
            caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            ours = b"tuner.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return ours and caught is not None and bool(int(caught[1], 16) >> (signal.SIGUSR1 - 1) & 1)


FIELDS: Final = (
    *("tp", "pp", "dp", "cp", "vpp", "micro_batch", "zero", "nodes", "gpus", "gpus_per_node", "global_batch"),
    *("microbatches", "heads", "layers", "hidden", "seq", "sequence_parallel", "recompute", "partition", "key"),
    *("ds_config", "folder", "iterations", "number"),
)
"""What a template may name in braces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTemplate:
    """The user's own command, measured by its log. Split as a shell would, and never given to one."""

    configure: Configure
    words: tuple[str, ...]
    cwd: Path
    on_host: bool = False

    @property
    def measured_by_log(self) -> bool:
        """Yes: a trainer goes on until it is ended."""
        return True

    @classmethod
    def parse(cls, text: str, *, configure: Configure, cwd: Path, on_host: bool = False) -> CommandTemplate:
        """`torchrun train.py --tp {tp}`; a name that is none of the fields is refused."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise InputError(f"--command {shown(text)} cannot be split into words: {error}.") from None
        if not words:
            raise InputError("--command is empty; write for example --command 'torchrun train.py --tp {tp}'.")
        for word in words:
            _check(word)
        return cls(configure=configure, words=words, cwd=cwd, on_host=on_host)

    def prepare(self, job: Job) -> ProcessSpec:
        """The command with the job's values."""
        config = job.folder / "ds_config.json"
        if any("{ds_config}" in word for word in self.words):
            write_object(config, self.configure(job))
        values = {**fields_of(job), "ds_config": str(config.resolve())}
        return ProcessSpec(
            arguments=tuple(word.format_map(values) for word in self.words),
            environment={"PYTHONUNBUFFERED": "1"},
            cwd=self.cwd,
            result=None,
        )

    def dumps_on_signal(self, pid: int) -> bool:  # noqa: ARG002 - nobody knows the user's program
        """A program that we do not know may die of a signal."""
        return False


def fields_of(job: Job) -> dict[str, Any]:
    """The values of all fields but the paths of files that a launcher writes."""
    topology, asked = job.topology, job.workload.as_in(job.topology)
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
        "gpus_per_node": job.cluster.gpus_per_node,
        "global_batch": asked.global_batch,
        "microbatches": asked.global_batch // (topology.micro_batch * topology.dp),
        "heads": asked.model.heads,
        "layers": asked.model.layers,
        "hidden": asked.model.hidden,
        "seq": asked.model.seq,
        "sequence_parallel": int(topology.sequence_parallel),
        "recompute": topology.recompute,
        "partition": topology.partition,
        "key": topology.key,
        "folder": str(job.folder.resolve()),
        "iterations": max(job.iterations),
        "number": job.number,
    }


def _check(word: str) -> None:
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise InputError(
            f"--command: {shown(word)} has a brace too many or too few ({error}); double it to keep it."
        ) from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if name not in FIELDS or spec or conversion:
            raise InputError(f"--command: {{{name}}} is none of the fields: {listed(FIELDS, limit=40)}.")


def program_of(command: str | None, *, configure: Configure, accelerator: str, seed: int = 0) -> Program:
    """The user's command, run where the tuner was started, or the shipped worker where there is none."""
    if command is None:
        return WorkerProgram(configure=configure, accelerator=accelerator, seed=seed)
    return CommandTemplate.parse(command, configure=configure, cwd=Path.cwd(), on_host=accelerator == "cpu")
