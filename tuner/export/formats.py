"""The registry of export formats, and the check that a format trains the requested model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from tuner.core.errors import InputError
from tuner.core.text import either, listed
from tuner.export.flag_table import Difference, flag_table
from tuner.export.identity import PROPERTIES, uncovered
from tuner.launch.slurm.site_profile import SiteProfile

if TYPE_CHECKING:
    from tuner.core.domain import Framework
    from tuner.export.production import ProductionRun

Setting = tuple[str, ...]
"""One flag of a command line with its values, or one name of a config with its value."""
Settings = list[Setting]
Fork = Literal["deepspeed", "bloom"]
ZeroPlusPlus = Literal["hpz", "qwz", "qgz"]
"""Parts of ZeRO++: a second partition of the parameters in each node, weights gathered in 8 bits, gradients reduced in
4 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How a format treats one property."""

    by: str = ""
    """The flag or setting that expresses it, for documentation; empty: the format expresses nothing and trains
    `only`."""
    only: str = ""
    """The supported values, for documentation; empty: all; none: the format does not support the property."""
    limit: str = ""
    """A limit on the values, for documentation, where a list of the supported ones would be longer."""
    accepts: Callable[[ProductionRun], bool] = lambda _: True
    """Whether the format supports the value of a run."""
    settings: Callable[[ProductionRun], Settings] = lambda _: []
    """The flags that express a run's value."""
    because: str | Callable[[ProductionRun], str] = ""
    """Why other values, or that of the run, are not supported; for messages."""

    def reason(self, run: ProductionRun) -> str:
        """Return why a run's value is not supported, if the label does not explain it."""
        return self.because if isinstance(self.because, str) else self.because(run)


def expressed(
    by: str,
    settings: Callable[[ProductionRun], Settings] = lambda _: [],
    *,
    only: str = "",
    limit: str = "",
    accepts: Callable[[ProductionRun], bool] = lambda _: True,
    because: str | Callable[[ProductionRun], str] = "",
) -> Treatment:
    """Return the treatment of a property that a format has flags for, possibly only for some values."""
    return Treatment(by=by, only=only, limit=limit, accepts=accepts, settings=settings, because=because)


def trains_only(only: str, accepts: Callable[[ProductionRun], bool], because: str = "") -> Treatment:
    """Return the treatment of a property without a flag: the format trains `only` and refuses other values."""
    return Treatment(only=only, accepts=accepts, because=because)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export besides its format."""

    fork: Fork | None = None
    """Which Megatron-DeepSpeed: the DeepSpeed organisation's, or BigScience's fork, which trained BLOOM; None:
    DeepSpeed's unless only BigScience's can train the run."""
    command: str | None = None
    """The user's training command, as in `tuner optimize --command`; None: the bundled worker."""
    workdir: str = ""
    """Absolute path of the folder that `command` runs in; empty: the script's own."""
    site: SiteProfile = field(default_factory=SiteProfile)
    """Requirements of the site's Slurm or Kubernetes."""
    zero_plus_plus: tuple[ZeroPlusPlus, ...] = ()
    """Parts of ZeRO++ that `ds_config.json` switches on."""
    own_config: Mapping[str, Any] | None = None
    """The user's own DeepSpeed config, with which the study's jobs trained; None if the command names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """An export format."""

    name: str
    title: str
    """The framework or trainer that its files start."""
    summary: str
    """One line for help and documentation."""
    framework: Framework
    launch_files: tuple[str, ...]
    render: Callable[[ProductionRun, ExportOptions, Format], Mapping[str, str]]
    """Return the files by name, without topology.json, which every format has."""
    treatments: Callable[[ExportOptions], Mapping[str, Treatment]]
    """How the format treats each property of `PROPERTIES`."""
    subject: str = ""
    """What supports less than the framework does, for refusals; empty: the title."""
    aliases: tuple[str, ...] = ()
    resolve: Callable[[ProductionRun, ExportOptions], ExportOptions] = lambda _, options: options
    """Fill in unset options for a run."""
    table: Callable[[ProductionRun, ExportOptions], str] = lambda *_: ""
    """Return the name of the recorded flags of the trainer, empty if there is no table."""
    flags: Callable[[ProductionRun, ExportOptions], Settings] = lambda *_: []
    """Return the flags of the trainer."""
    variants: tuple[ExportOptions, ...] = (ExportOptions(),)
    """Options under which the format treats properties differently, for documentation."""
    remedy: str = ""
    """What to do about an unsupported property besides choosing another topology or format."""
    runs_command: bool = False
    """Whether it runs the user's command instead of the framework's own trainer."""
    zero_plus_plus: bool = False
    """Whether DeepSpeed's ZeRO++ can be switched on."""

    def refused(self, run: ProductionRun, options: ExportOptions) -> list[str]:
        """Return the names of the properties of a run that this format does not support."""
        treatments = self.treatments(self.resolve(run, options))
        return [name for name in PROPERTIES if not treatments.get(name, _FORGOTTEN).accepts(run)]

    def reason(self, name: str, run: ProductionRun, options: ExportOptions) -> str:
        """Return why the run's value of a property is not supported; empty if the label explains it."""
        return self.treatments(self.resolve(run, options)).get(name, _FORGOTTEN).reason(run)

    def refusals(self, run: ProductionRun, options: ExportOptions) -> list[str]:
        """Return a label for each property of a run that this format does not support."""
        reasons = {name: self.reason(name, run, options) for name in self.refused(run, options)}
        first = {reason: name for name, reason in reversed(reasons.items())}  # properties may share a reason
        found = [
            PROPERTIES[name].labelled(run) + (f" ({reason})" if reason and first[reason] == name else "")
            for name, reason in reasons.items()
        ]
        subjects: dict[str, Any] = {"model": run.workload.model, "workload": run.workload, "topology": run.topology}
        found += [
            f"the {subject}'s {name}"
            for subject, name, default in uncovered()
            if getattr(subjects[subject], name) != default
        ]
        return found

    def differences(self, run: ProductionRun, options: ExportOptions) -> list[Difference]:
        """Return the flags whose values are not the trainer's defaults; none if its flags are not recorded."""
        table = self.table(run, options)
        return flag_table(table).differences(self.flags(run, options)) if table else []

    def check(self, run: ProductionRun, options: ExportOptions) -> None:
        """Raise `InputError` if this format cannot train the model of a run exactly."""
        if options.zero_plus_plus:
            _check_zero_plus_plus(self, run, options.zero_plus_plus)
        model = run.workload.model
        if model.not_understood and "not_understood" in self.refused(run, options):
            raise InputError(
                f"tuner does not understand {listed(model.not_understood, last='or')} of {model.name}, so it can only "
                "be exported for your own program: choose --format torchrun, hostfile, slurm, kubernetes or jobset, "
                "with --command."
            )
        found = self.refusals(run, options)
        if found:
            program = (self.subject or self.title) if options.command is None else "your program"
            raise InputError(f"{program} does not support {listed(found, last='or')}; {self._remedies(run, options)}.")

    def _remedies(self, run: ProductionRun, options: ExportOptions) -> str:
        """Return what to do about unsupported properties; another topology has the same model."""
        is_model = all(PROPERTIES[name].subject == "model" for name in self.refused(run, options))
        other = "" if is_model else "export another topology"
        return either(filter(None, (self.remedy, other, "choose another --format")))

    def settings(self, run: ProductionRun, options: ExportOptions) -> Settings:
        """Return the flags that express a run, after `check`."""
        self.check(run, options)
        treatments = self.treatments(self.resolve(run, options))
        return [setting for name in PROPERTIES for setting in treatments[name].settings(run)]


_GROUPED: Final[Collection[ZeroPlusPlus]] = ("hpz", "qgz")
"""Parts of ZeRO++ that exchange among consecutive ranks, whatever parameters these have (DeepSpeed 0.19.8,
utils/groups.py)."""


def _check_zero_plus_plus(format: Format, run: ProductionRun, parts: Collection[ZeroPlusPlus]) -> None:  # noqa: A002
    """Raise `InputError` unless format and topology support ZeRO++ (DeepSpeed 0.19.8, runtime/zero/config.py)."""
    topology = run.topology
    if not format.zero_plus_plus:
        raise InputError(f"--zero-plus-plus needs DeepSpeed, which --format {format.name} does not use: leave it out.")
    if topology.zero != 3 or topology.nodes == 1:
        raise InputError(
            f"--zero-plus-plus needs ZeRO 3 on several nodes; {topology.key} has ZeRO {topology.zero} on "
            f"{topology.nodes}: leave it out, or export another topology."
        )
    grouped = [part for part in parts if part in _GROUPED]
    if grouped and (topology.tp > 1 or topology.ep > 1):
        raise InputError(
            f"--zero-plus-plus {listed(grouped)} would mix the shards of different parameters, because DeepSpeed "
            f"groups consecutive ranks and {topology.key} has tensor or expert parallelism: leave it out, or export "
            "another topology."
        )


_FORGOTTEN: Final = trains_only("none", lambda _: False, "the format does not say how it treats it")

WITHOUT_EXPERT_PARALLELISM: Final[Mapping[str, Treatment]] = {
    "ep": trains_only("1", lambda run: run.topology.ep == 1),
    "etp": trains_only("1", lambda run: run.topology.etp == 1),
    "dispatcher": trains_only("alltoall", lambda run: run.topology.dispatcher == "alltoall"),
    "moe_overlap": trains_only("off", lambda run: not run.topology.moe_overlap),
}
"""The treatments of a format that has no expert parallelism."""

ONLY_ATTENTION: Final[Mapping[str, Treatment]] = {
    "delta_net": trains_only("none", lambda run: run.workload.model.delta_net is None),
    "attention_gate": trains_only("none", lambda run: not run.workload.model.attention_gate),
}
"""The treatments of a format without Gated DeltaNet and the gate that comes with it."""

WITHOUT_EXPERTS: Final[Mapping[str, Treatment]] = {
    "experts": trains_only("none", lambda run: run.workload.model.experts is None),
    "latent": trains_only("none", lambda run: run.workload.model.latent is None),
    **ONLY_ATTENTION,
    "mtp_layers": trains_only("0", lambda run: run.workload.model.mtp_layers == 0),
    "attention_sinks": trains_only("none", lambda run: not run.workload.model.attention_sinks),
    "glu_clamp": trains_only("none", lambda run: not (run.workload.model.glu_clamp or run.workload.model.glu_offset)),
    **WITHOUT_EXPERT_PARALLELISM,
}
"""The treatments of a format without experts and their related properties."""

OFFLOADS_OF_FSDP: Final = "none, or optimizer and parameters together, with ZeRO 3"


def offloads_as_fsdp(run: ProductionRun) -> bool:
    """Return whether a run uses PyTorch's CPUOffloadPolicy, which moves parameters, gradients and states."""
    return run.topology.offload == "none" or (run.topology.offload == "optimizer+parameters" and run.topology.zero == 3)


BY_THE_PROGRAM: Final[Mapping[str, Treatment]] = dict.fromkeys(PROPERTIES, expressed("your program"))
"""The treatments of properties that the user's own training program decides."""
