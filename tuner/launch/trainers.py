"""The user's own command in a framework's words: `--trainer megatron-lm` and `--trainer hf`.

The command needs no field in braces: flags that set the topology are removed from it, and those of each job appended.
What its arguments fix of the model, the sequence and the batch describes the workload.

Flags were read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`, and in transformers 5.23.0,
`training_args.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Final, Literal, get_args

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError, UnknownName
from tuner.core.frameworks import ANY
from tuner.core.model import Model
from tuner.core.text import listed, shown

TrainerName = Literal["megatron-lm", "hf"]
TRAINERS: Final[tuple[TrainerName, ...]] = get_args(TrainerName)

_STARTERS: Final = ("torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec", "srun")
_STARTER_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner")

_MEGATRON_REPLACED: Final = (
    *("--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size"),
    *("--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--sequence-parallel"),
    *("--micro-batch-size", "--global-batch-size", "--use-distributed-optimizer", "--overlap-grad-reduce"),
    *("--overlap-param-gather", "--recompute-granularity", "--recompute-method", "--recompute-num-layers"),
    *("--recompute-modules", "--recompute-activations", "--log-interval", "--eval-iters", "--eval-interval"),
    *("--save", "--save-interval", "--load", "--rampup-batch-size", "--log-throughput"),
    *("--expert-model-parallel-size", "--expert-tensor-parallel-size", "--moe-token-dispatcher-type"),
    *("--moe-flex-dispatcher-backend", "--moe-enable-deepep", "--account-for-embedding-in-pipeline-split"),
    *("--account-for-loss-in-pipeline-split", "--decoder-first-pipeline-num-layers"),
    *("--decoder-last-pipeline-num-layers", "--pipeline-model-parallel-layout"),
)
_MEGATRON_CHANGES_MODEL: Final = (
    *("--num-experts", "--multi-latent-attention", "--mtp-num-layers", "--spec", "--window-size", "--moe-layer-freq"),
    *("--hybrid-layer-pattern", "--hybrid-override-pattern", "--heterogeneous-layers-config-path", "--mamba-num-heads"),
)
"""Flags of models that the arguments alone do not describe."""
_MEGATRON_POSITIONS: Final = {"rope": "rotary", "learned_absolute": "learned", "none": "none"}
_VOCABULARY_MULTIPLE: Final = 128
"""Default of `--make-vocab-size-divisible-by`."""

_HF_REPLACED: Final = (
    *("--per_device_train_batch_size", "--gradient_accumulation_steps", "--deepspeed", "--gradient_checkpointing"),
    *("--save_strategy", "--eval_strategy", "--disable_tqdm", "--auto_find_batch_size"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCommand:
    """The user's command without the flags that each job sets."""

    name: TrainerName
    words: tuple[str, ...]
    fixed: Mapping[str, str]
    """The flags of the command as the user gave it, with their values joined by spaces."""

    @classmethod
    def parse(cls, name: str, command: str) -> TrainerCommand:
        """Parse a command, with the contents of each arguments file `@FILE` in its place."""
        if name not in TRAINERS:
            raise UnknownName("trainer", name, TRAINERS)
        try:
            words = [word for given in shlex.split(command) for word in _expanded(given)]
        except ValueError as error:
            raise InputError(f"--command {shown(command)} is not a valid shell command: {error}.") from None
        replaced = _MEGATRON_REPLACED if name == "megatron-lm" else _HF_REPLACED
        known: TrainerName = "megatron-lm" if name == "megatron-lm" else "hf"
        return cls(name=known, words=tuple(_without(words, replaced)), fixed=_flags(words))

    @property
    def framework(self) -> str:
        """The framework whose laws hold."""
        return "megatron-core" if self.name == "megatron-lm" else "deepspeed"

    @property
    def settings(self) -> tuple[str, ...]:
        """Axes that the trainer has not."""
        return () if self.name == "megatron-lm" else ("tp=1", "pp=1", "cp=1", "ep=1")

    @property
    def starts_ranks(self) -> bool:
        """Whether the command is a launcher such as torchrun, which starts the ranks itself."""
        return starts_ranks(self.words)

    def started(self, topology: Topology) -> tuple[str, ...]:
        """Return the command with torchrun before it, on one node, unless it starts its ranks itself."""
        if self.starts_ranks:
            return self.words
        start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(topology.gpus))
        if PurePath(self.words[0]).name.startswith("python"):
            return (self.words[0], *start, *self.words[1:])
        return ("torchrun", *start[2:], "--no-python", *self.words)

    def job_flags(self, workload: Workload, topology: Topology, ds_config: Path) -> tuple[str, ...]:
        """Return the flags of one job."""
        if self.name == "megatron-lm":
            return megatron_flags(workload, topology)
        accumulation = workload.global_batch // (topology.micro_batch * topology.dp)
        return (
            *("--per_device_train_batch_size", str(topology.micro_batch)),
            *("--gradient_accumulation_steps", str(accumulation), "--deepspeed", str(ds_config)),
            *("--gradient_checkpointing", str(topology.recompute == "full")),
            *("--save_strategy", "no", "--eval_strategy", "no"),
        )

    def completed(self, description: Mapping[str, Any]) -> dict[str, Any]:
        """Return what describes the space, completed by what the arguments fix; raise where they contradict it."""
        found = dict(description)
        if self.name == "megatron-lm":
            self._complete_from_megatron(found)
        found["precision"] = self._precision(found.get("precision"))
        if found.get("framework") not in (None, ANY, self.framework):
            raise InputError(
                f"--trainer {self.name} runs {self.framework}, not {found['framework']}; leave --framework out."
            )
        found["framework"] = found.get("framework") or self.framework
        settings = tuple("".join(setting.split()) for setting in found.get("settings") or ())
        pinned = {setting.partition("=")[0]: setting for setting in self.settings}
        for setting in settings:
            axis = setting.partition("=")[0]
            if axis in pinned and setting != pinned[axis]:
                raise InputError(f"--trainer {self.name} has no {axis}, and --set {setting} asks for it; remove it.")
        fixed = (setting for setting in self.settings if setting not in settings)
        found["settings"] = (*(found.get("settings") or ()), *fixed)
        return found

    def _precision(self, given: str | None) -> str:
        """Return the precision of the command; raise for another one."""
        on = [kind for kind in ("bf16", "fp16") if self.fixed.get(f"--{kind}", "False") in ("", "True", "true")]
        fp8 = self.name == "megatron-lm" and (self.fixed.get("--fp8-format") or self.fixed.get("--fp8"))
        found = "fp8" if fp8 else on[0] if on else "fp32"
        if given not in (None, found):
            raise InputError(
                f"--precision {given} contradicts --command, whose flags mean {found}; correct one of them."
            )
        return found

    def _complete_from_megatron(self, found: dict[str, Any]) -> None:
        for option, flag in (("global_batch", "--global-batch-size"), ("seq", "--seq-length")):
            if flag in self.fixed:
                value = _number(self.fixed, flag)
                if found.get(option) not in (None, value):
                    raise InputError(
                        f"--{option.replace('_', '-')} {found[option]} contradicts {flag} {value} of --command; "
                        "remove one of them."
                    )
                found[option] = value
        if found.get("model") is None:
            found["model"] = megatron_model(self.fixed)

    def check(self, model: Model) -> None:
        """Raise where the model is not that of the arguments."""
        if self.name != "megatron-lm":
            return
        flags = {
            "--num-layers": model.layers,
            "--hidden-size": model.hidden,
            "--num-attention-heads": model.heads,
            "--ffn-hidden-size": model.ffn,
            "--num-query-groups": model.kv_heads,
        }
        if experts := model.experts:
            flags |= {"--num-experts": experts.count, "--moe-router-topk": experts.top_k}
            flags |= {"--moe-ffn-hidden-size": experts.ffn, "--moe-shared-expert-intermediate-size": experts.shared_ffn}
        parts = {"--num-experts": bool(model.experts), "--multi-latent-attention": bool(model.latent)}
        for flag, needed in {**parts, "--mtp-num-layers": model.mtp_layers > 0}.items():
            if "--num-layers" in self.fixed and needed != (flag in self.fixed):
                raise InputError(
                    f"--command {'lacks' if needed else 'has'} {flag}, unlike the model {shown(model.name)}; "
                    "correct --model or the command."
                )
        for flag, value in flags.items():
            if flag in self.fixed and _number(self.fixed, flag) != value:
                raise InputError(
                    f"{flag} {self.fixed[flag]} of --command contradicts the model, whose value is {value}; "
                    "correct --model or the command."
                )


def starts_ranks(words: Sequence[str]) -> bool:
    """Whether a command is a launcher such as torchrun, which starts the ranks itself."""
    names = [PurePath(word).name for word in words[:1]]
    return any(name in _STARTERS for name in names) or any(word in _STARTER_MODULES for word in words[:4])


def megatron_flags(workload: Workload, topology: Topology) -> tuple[str, ...]:
    """Return Megatron-LM's flags of a topology, for a short measuring run."""
    unknown = {
        "offload": topology.offload != "none",
        "hsdp": topology.hsdp > 1,
        "ZeRO 2 and 3": topology.zero > 1,
    }
    if lacks := [name for name, is_used in unknown.items() if is_used]:
        raise InputError(f"--trainer megatron-lm does not set {listed(lacks)}; write the flags in --command instead.")
    words = [
        *("--tensor-model-parallel-size", topology.tp, "--pipeline-model-parallel-size", topology.pp),
        *("--context-parallel-size", topology.cp, "--micro-batch-size", topology.micro_batch),
        *("--global-batch-size", workload.global_batch),
        *(["--sequence-parallel"] * topology.sequence_parallel),
        *(flag for setting in virtual_stages(topology, split_units(workload.model, topology)) for flag in setting),
        *(flag for setting in stage_split(topology) for flag in setting),
        *(flag for setting in distributed_optimizer(topology) for flag in setting),
        *(flag for setting in recomputation(topology) for flag in setting),
        *(flag for setting in expert_parallelism(workload.model, topology) for flag in setting),
        *("--log-interval", 1, "--eval-iters", 0),
    ]
    return tuple(str(word) for word in words)


def recomputation(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of activation recomputation."""
    if topology.recompute == "selective":
        return [("--recompute-granularity", "selective"), ("--recompute-modules", "core_attn")]
    if topology.recompute == "full":
        return [("--recompute-granularity", "full"), ("--recompute-method", "uniform"), ("--recompute-num-layers", "1")]
    return []


def virtual_stages(topology: Topology, units: int) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flag of interleaved stages; `units` are the layers, or what is spread over the stages."""
    if topology.vpp == 1:
        return []
    return [("--num-layers-per-virtual-pipeline-stage", str(units // (topology.pp * topology.vpp)))]


def split_units(model: Model, topology: Topology) -> int:
    """Return what is spread over the stages: layers, and embedding and output layer where they count as one each."""
    return model.layers + 2 * (topology.partition == "embedding")


def stage_split(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of stages among whose layers embedding and output layer count."""
    if topology.partition == "layers":
        return []
    return [("--account-for-embedding-in-pipeline-split",), ("--account-for-loss-in-pipeline-split",)]


def distributed_optimizer(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of ZeRO 1."""
    overlapped: list[tuple[str, ...]] = [
        ("--use-distributed-optimizer",),
        ("--overlap-grad-reduce",),
        ("--overlap-param-gather",),
    ]
    return overlapped if topology.zero == 1 else []


def expert_parallelism(model: Model, topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of expert parallelism; none for a dense model."""
    if model.experts is None:
        return []
    # expert tensor parallelism defaults to the tensor parallel degree
    return [
        ("--expert-model-parallel-size", str(topology.ep)),
        ("--expert-tensor-parallel-size", str(topology.etp)),
        *dispatch(topology),
    ]


def dispatch(topology: Topology) -> list[tuple[str, ...]]:
    """Return Megatron-LM's flags of the dispatcher of tokens."""
    if topology.dispatcher in ("allgather", "alltoall"):
        return [("--moe-token-dispatcher-type", topology.dispatcher)]
    return [("--moe-token-dispatcher-type", "flex"), ("--moe-flex-dispatcher-backend", topology.dispatcher)]


def megatron_model(flags: Mapping[str, str]) -> Model:
    """Return the model that Megatron-LM's arguments describe; raise for what they leave open."""
    if unknown := [flag for flag in _MEGATRON_CHANGES_MODEL if flag in flags]:
        raise InputError(f"--trainer megatron-lm does not understand {listed(unknown)}; describe the model by --model.")
    needed = ("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--vocab-size")
    if missing := [flag for flag in needed if flag not in flags]:
        raise InputError(f"--command lacks {listed(missing)}; add what is missing, or describe the model by --model.")
    hidden, heads = _number(flags, "--hidden-size"), _number(flags, "--num-attention-heads")
    channels = _number(flags, "--kv-channels")
    gated = "--swiglu" in flags
    positions = flags.get("--position-embedding-type", "learned_absolute")
    if positions not in _MEGATRON_POSITIONS:
        raise InputError(f"--position-embedding-type {positions} is not understood; describe the model by --model.")
    biased = "--disable-bias-linear" not in flags
    return Model(
        name="megatron-arguments",
        layers=_number(flags, "--num-layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_number(flags, "--num-query-groups") if "--group-query-attention" in flags else 0,
        head_size=channels if channels * heads != hidden else 0,
        # arguments.py: 4 hidden, or for SwiGLU the multiple of 64 below two thirds of that
        ffn=_number(flags, "--ffn-hidden-size") or (hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden),
        gated_mlp=gated,
        vocab=_number(flags, "--vocab-size"),
        vocab_multiple=_number(flags, "--make-vocab-size-divisible-by") or _VOCABULARY_MULTIPLE,
        seq=_number(flags, "--seq-length"),
        tied_embeddings="--untie-embeddings-and-output-weights" not in flags,
        positions=_MEGATRON_POSITIONS[positions],  # type: ignore[arg-type]
        norm="rmsnorm" if flags.get("--normalization") == "RMSNorm" else "layernorm",
        qkv_bias=biased or "--add-qkv-bias" in flags,
        attention_bias=biased,
        mlp_bias=biased,
    )


def _number(flags: Mapping[str, str], flag: str) -> int:
    """Return a flag's whole number; 0 where it is not given."""
    text = flags.get(flag, "0")
    if not text.isdecimal():
        raise InputError(f"{flag} {shown(text)} of --command is not a whole number.")
    return int(text)


def _expanded(word: str) -> list[str]:
    """Return the words of an arguments file, or the word itself."""
    if not word.startswith("@"):
        return [word]
    try:
        return shlex.split(Path(word[1:]).read_text(), comments=True)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"the arguments file {shown(word[1:])} of --command cannot be read: "
            f"{getattr(error, 'strerror', None) or 'it is not UTF-8'}; correct its path."
        ) from None


def _flags(words: Sequence[str]) -> dict[str, str]:
    """Return the flags of a command with their values."""
    found: dict[str, str] = {}
    last = ""
    for word in words:
        if word.startswith("--"):
            last, _, value = word.partition("=")
            found[last] = value
        elif last:
            found[last] = f"{found[last]} {word}".strip()
    return found


def _without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return a command without some flags and their values."""
    kept: list[str] = []
    dropping = False
    for word in words:
        if word.startswith("--"):
            dropping = word.partition("=")[0] in flags
        if not dropping:
            kept.append(word)
    return kept
