"""The settings of one study, as the command line and the Python API build them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from tuner.core.errors import InputError, UnknownName
from tuner.core.fidelity import FidelityMode
from tuner.core.text import counted, either, shown
from tuner.costmodel.calibration import Calibration
from tuner.launch.program import passes_batch
from tuner.launch.virtual.simulated import SpeedChange
from tuner.search.samplers import SAMPLERS
from tuner.space.space import Space
from tuner.study.limits import Limits
from tuner.study.store.trial import Trial
from tuner.tables import Table

LAUNCHERS: Final = ("simulated", "replay", "local", "hostfile", "slurm")

STUDY_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Valid names of a study, which are also names of its folder."""

MAX_SEED: Final = 2**32 - 1
"""The largest seed that every sampler accepts."""

_ONLY_WITH: Final = {
    "drift": ("simulated", "--drift"),
    "noise": ("replay", "--noise"),
    "group": ("replay", "--group"),
    "hostfile": ("hostfile", "--hostfile"),
    "over": ("hostfile", "--over"),
    "site_profile": ("slurm", "--site-profile"),
    "within_allocation": ("slurm", "--within-allocation"),
}
"""Settings of a single launcher."""


def ignore(_event: StudyEvent) -> None:
    """Do nothing."""


EventKind = Literal["started", "waits", "ended", "era", "adopted", "lost", "stopping", "note"]
"""What happened; `era` is drift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvent:
    """Something that happened during a search, for `on_event`."""

    kind: EventKind
    text: str
    trial: Trial | None = None


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """Settings of a study: the space, the launcher, the limits and the storage."""

    space: Space
    limits: Limits
    launcher: str = "simulated"
    table: Table | None = None
    """The measured table that `replay` plays back."""
    group: str | None = None
    """The group of the table's rows to search."""
    study: str | None = None
    """The study's name; None derives one from the launcher, the model and the cluster."""
    runs: Path = Path("runs")
    storage: str | None = field(default=None, repr=False)
    """URL of the database; None keeps a SQLite file in the study's folder."""
    sampler: str = "guided"
    memory_filter: bool = False
    """Whether the sampler proposes no topology that is likely to run out of memory."""
    seed: int = 0
    jobs: int = 1
    """Jobs that run at the same time."""
    iterations: tuple[int, ...] = (2,)
    """Iterations that are measured."""
    retry_hang_sync: bool = False
    """Whether a job that hung is retried once with CUDA_LAUNCH_BLOCKING=1."""
    keep_going: bool = False
    """Whether the search continues after several jobs failed in the same way, for a reason independent of the
    topology."""
    drift: SpeedChange | None = None
    """A change of speed of the simulated cluster."""
    noise: float = 0.0
    """Standard deviation of the logarithm of a replayed run's seconds."""
    command: str | None = None
    """Template of the user's own trainer."""
    step_pattern: str | None = None
    """Pattern of the lines with iterations in the output of the user's trainer."""
    trainer: str | None = None
    """The framework in whose words each job appends its topology to the command."""
    tokens_from: str | None = None
    """The flag of the command that states the length of the training; None: it does not come from the command."""
    log: str | None = None
    """Template of the log file that the user's trainer writes."""
    hostfile: Path | None = None
    over: str = "pdsh"
    """How DeepSpeed's launcher reaches the machines of the hostfile."""
    site_profile: Path | None = None
    """TOML file with the site's requirements for Slurm jobs."""
    within_allocation: bool = False
    """Whether jobs run as steps of the Slurm allocation that this process runs in."""
    calibration: Calibration | None = None
    track: str | None = None
    """An experiment tracker that receives every finished trial: mlflow or wandb."""
    fidelity: FidelityMode | None = None
    """Whether every trial runs at full size, or at a reduced one where that pays; None: as the study was begun. A new
    one is begun with auto where a job at full size is dear and the launcher can run smaller ones."""
    trial_nodes: int | None = None
    """The most nodes that a trial may have: the answer is then extrapolated."""
    on_event: Callable[[StudyEvent], None] = field(default=ignore, repr=False, compare=False)
    """Called with everything that happens during the search."""

    @property
    def name(self) -> str:
        """The study's name: the given one, or one that the same settings always produce."""
        if self.study is not None:
            return self.study
        if self.launcher == "replay":
            words = [self.launcher, Path(self.table.name).stem if self.table else "", self.group or ""]
        else:
            cluster = self.space.cluster
            words = [self.launcher, self.space.workload.model.name, f"{cluster.nodes}x{cluster.gpus_per_node}"]
        words = [re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-.") for word in (*words, f"seed{self.seed}")]
        return "-".join(word for word in words if word)[:100]

    @property
    def folder(self) -> Path:
        """The study's folder."""
        return self.runs / self.name

    def check(self) -> None:
        """Raise an `InputError` for settings that cannot work together."""
        if self.sampler not in SAMPLERS:
            raise UnknownName("sampler", self.sampler, SAMPLERS)
        if self.memory_filter and self.sampler == "guided":
            others = either([name for name in SAMPLERS if name != "guided"])
            raise InputError(
                "--memory-filter is unnecessary with --sampler guided, which weighs the probability of running out of "
                f"memory itself: drop it, or use --sampler {others}."
            )
        if self.launcher not in LAUNCHERS:
            raise UnknownName("launcher", self.launcher, LAUNCHERS)
        self._check_fidelity()
        if self.jobs < 1:
            raise InputError(f"--jobs must be at least 1 (got {self.jobs}).")
        if not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"--seed must be between 0 and {MAX_SEED:,} (got {shown(self.seed)}).")
        if self.study is not None and not STUDY_NAME.fullmatch(self.study):
            raise InputError(
                f"--study {shown(self.study)} is not a valid name: use at most 100 letters, digits, dots, dashes and "
                "underscores, and do not start with a dot or a dash."
            )
        if self.launcher == "replay" and self.table is None:
            raise InputError("--launcher replay needs a table of measurements: give one with --table FILE.")
        if self.launcher != "replay" and self.table is not None:
            raise InputError(f"--table requires --launcher replay, not {self.launcher}.")
        for setting, (launcher, option) in _ONLY_WITH.items():
            if getattr(self, setting) != getattr(StudySettings, setting) and self.launcher != launcher:
                raise InputError(f"{option} requires --launcher {launcher}, not {self.launcher}.")
        if self.launcher == "hostfile" and (self.hostfile is None or self.command is not None):
            raise InputError(
                "--launcher hostfile runs the bundled worker on the hosts of a hostfile: give --hostfile FILE and no "
                "--command."
            )
        for option, given in (("--step-pattern", self.step_pattern), ("--log", self.log), ("--trainer", self.trainer)):
            if given is not None and self.command is None:
                raise InputError(f"{option} applies to your own trainer: add --command.")
        if self.command is not None and self.launcher not in ("local", "slurm"):
            raise InputError("--command runs real jobs: add --launcher local or --launcher slurm.")

    @property
    def fixed_size(self) -> str | None:
        """Why no trial can run at a reduced size, as a sentence that ends with the remedy; None if one can."""
        if self.launcher == "replay":
            return "needs jobs to run, but a replay reads rows of a table: drop it."
        if self.sampler != "guided":
            return f"needs the surrogate of --sampler guided, not {self.sampler}: drop one of the two."
        if self.command is not None and self.trainer is None and not passes_batch(self.command):
            return "runs smaller batches, but --command does not pass the batch: add {global_batch} or drop it."
        return None

    def _check_fidelity(self) -> None:
        """Raise an `InputError` for trials at a reduced size that cannot be."""
        if self.fidelity is not None and self.fidelity not in get_args(FidelityMode):
            raise UnknownName("fidelity", self.fidelity, get_args(FidelityMode))
        if self.trial_nodes is not None and self.fidelity == "full":
            raise InputError("--trial-nodes limits trials at a reduced size: drop --fidelity full.")
        option = "--fidelity auto" if self.fidelity == "auto" else None
        if self.trial_nodes is not None:
            option = "--trial-nodes"
        if option and self.fixed_size is not None:
            raise InputError(f"{option} {self.fixed_size}")
        if self.trial_nodes is not None and not 1 <= self.trial_nodes <= self.space.cluster.nodes:
            raise InputError(
                f"--trial-nodes must be between 1 and the cluster's {counted(self.space.cluster.nodes, 'node')} (got "
                f"{shown(self.trial_nodes)})."
            )


def drift_of(text: str) -> SpeedChange:
    """Return the change of speed that `1.05@20` names: 5% slower from the 21st job on."""
    if not (match := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)@([0-9]{1,6})", text.strip())):
        raise InputError(f"--drift {shown(text)} is not FACTOR@JOBS such as 1.05@20.")
    return SpeedChange(factor=float(match[1]), after_jobs=int(match[2]))
