"""The model that arguments of Megatron and its forks describe, and whether it is the one that a study searches for.

Flags were read in NVIDIA/Megatron-LM at d98e8a64, `megatron/training/arguments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from tuner.core.domain import Workload
from tuner.core.errors import InputError
from tuner.core.megatron_stack import ADAM, stack_of_core
from tuner.core.model import Model, Norm, Positions
from tuner.core.text import listed, shown
from tuner.launch.trainers.kind import Flags, check_sizes, number, real
from tuner.launch.trainers.megatron_precision import other_numerics

OTHER_LAYERS: Final = (
    *("--apply-residual-connection-post-layernorm", "--enable-mhc-connections", "--mrope-section", "--qk-l2-norm"),
    *("--moe-latent-size", "--mtp-use-repeated-layer", "--spec", "--is-hybrid-model", "--mamba-num-heads"),
    *("--hybrid-layer-pattern", "--hybrid-override-pattern", "--heterogeneous-layers-config-path"),
    "--heterogeneous-layers-config-encoded-json",
)
"""Flags of layers that no field of the model expresses."""
OF_DEEPSPEEDS_FORK: Final = (
    *("--kd", "--mos", "--load-teacher", "--random-ltd", "--data-efficiency-curriculum-learning"),
    *("--train-data-exact-num-epochs", "--num-layers-teacher", "--hidden-size-teacher", "--num-experts-teacher"),
    "--num-attention-heads-teacher",
)
"""Such flags that only Megatron-DeepSpeed has: distillation, dropped tokens, curricula of data and whole epochs."""
OTHER_TRAINING: Final = (
    *("--apply-wd-to-qk-layernorm", "--calculate-per-token-loss", "--embedding-init-method-std", "--qk-clip"),
    *("--eod-mask-loss", "--init-method-xavier-uniform", "--logits-load-kd-loss-alpha", "--moe-input-jitter-eps"),
    *("--reset-attention-mask", "--reset-position-ids", "--use-mup", "--dataloader-inter-document-masking"),
    *("--sft", "--fim-data", "--freeze-all-layers", "--finetune", "--pretrained-checkpoint", "--moe-use-upcycling"),
    *("--decoupled-lr", "--no-weight-decay-cond-type", "--step-batch-size-schedule", "--phase-transition-iterations"),
    *("--fp32-residual-connection", "--grad-reduce-in-bf16", "--main-params-dtype", "--exp-avg-dtype"),
    *("--exp-avg-sq-dtype", "--main-grads-dtype", "--mtp-detach-heads", "--moe-router-force-load-balancing"),
    *("--moe-router-force-biased", "--moe-router-quantile-balancing-ema", "--moe-expert-rank-capacity-factor"),
    *("--moe-token-drop-policy", "--moe-pad-expert-input-to-capacity", "--sgd-momentum", "--muon-momentum"),
    *("--muon-scalar-optimizer", "--muon-tp-mode", "--muon-scale-mode", "--muon-no-split-qkv", "--muon-nesterov"),
    *("--muon-num-ns-steps", "--muon-coefficient-type", "--muon-extra-scale-factor", "--muon-fp32-matmul-prec"),
    *("--iterations-to-skip", "--mtp-hsm", "--mtp-hybrid-override-pattern", "--decrease-batch-size-if-needed"),
    *("--data-parallel-random-init", "--load-main-params-from-ckpt", "--use-kitchen-attention", "--perform-rl-step"),
    *OF_DEEPSPEEDS_FORK,
)
"""Flags that train the same layers in a way that no field of the model expresses: it is not exported."""
_NOT_READ: Final[Mapping[str, str]] = {
    "--activation-func-clamp-value": "glu_clamp",
    "--glu-linear-offset": "glu_offset",
    "--no-rope-freq": "rotary_skip",
    "--rotary-seq-len-interpolation-factor": "rotary_scaling",
    "--softmax-type": "attention_sinks",
    "--use-rope-scaling": "rotary_scaling",
    "--window-attn-skip-freq": "window_skip",
}
"""Flags of fields that the arguments alone do not always determine; then the model is not exported."""

_NUMBERS: Final[Mapping[str, tuple[str, float]]] = {
    "--norm-epsilon": ("norm_epsilon", 1e-5),
    "--layernorm-epsilon": ("norm_epsilon", 1e-5),
    "--rotary-base": ("rotary_base", 10_000.0),
    "--rotary-position-embeddings-theta": ("rotary_base", 10_000.0),
    "--rotary-percent": ("rotary_fraction", 1.0),
    "--attention-dropout": ("attention_dropout", 0.1),
    "--hidden-dropout": ("hidden_dropout", 0.1),
    "--init-method-std": ("init_std", 0.02),
}
"""Fields of the model that a flag sets, with Megatron's defaults; forks have other names for some of the flags."""

_FLAGS_OF: Final[Mapping[str, str]] = {
    "positions": "--position-embedding-type",
    "norm": "--normalization",
    "gated_mlp": "--swiglu",
    "activation": "--swiglu, --quick-geglu, --squared-relu and --no-bias-gelu-fusion",
    "tied_embeddings": "--untie-embeddings-and-output-weights",
    "qkv_bias": "--add-qkv-bias and --disable-bias-linear",
    "attention_bias": "--disable-bias-linear",
    "mlp_bias": "--disable-bias-linear",
    "norm_offset": "--apply-layernorm-1p",
    "qk_norm": "--qk-layernorm",
    "rotary_interleaved": "--rotary-interleaved",
    **{field: flag for flag, (field, _) in reversed(list(_NUMBERS.items()))},
}
"""What sets each field by which the model of the arguments is compared with another one."""

_ROTARY: Final = ("rotary_base", "rotary_fraction", "rotary_interleaved")

PARTS: Final[Mapping[str, Callable[[Model], bool | None]]] = {
    "--use-rope-scaling": lambda model: model.rotary_scaling is not None and model.rotary_scaling.kind == "llama3",
    "--rotary-seq-len-interpolation-factor": lambda model: (
        model.rotary_scaling is not None and model.rotary_scaling.kind == "linear"
    ),
    "--no-rope-freq": lambda model: model.rotary_skip > 0,
    "--window-size": lambda model: None if model.sliding_window and not model.window else model.window > 0,
    "--glu-linear-offset": lambda model: model.glu_offset > 0,
    "--activation-func-clamp-value": lambda model: model.glu_clamp > 0,
}
"""Flags that a command has exactly if its model has the part that they set; None: it may have them, as for a window of
a whole sequence."""

SET_BY_JOBS: Final = ("overlap_grad_reduce", "overlap_param_gather")
"""Settings that each job has by its topology, whatever the command says; with Muon, which excludes them in releases
before April 2026, only those of the command."""

_VOCABULARY_MULTIPLE: Final = 128
"""Default of `--make-vocab-size-divisible-by`."""


def describes_model(flags: Flags) -> bool:
    """Return whether the arguments, rather than a file or script that they name, describe the model."""
    return {"--num-layers", "--hidden-size", "--num-attention-heads"} <= flags.keys()


def check_understood(flags: Flags, trainer: str, not_understood: Iterable[str]) -> None:
    """Raise if the arguments have a flag that changes the model and that the trainer's model is not read from."""
    if unknown := [flag for flag in not_understood if flag in flags]:
        raise InputError(f"--trainer {trainer} does not understand {listed(unknown)}; describe the model with --model.")


def dense_model(flags: Flags, *, kv_heads: str, fields: Mapping[str, Any], optimizers: Collection[str] = ADAM) -> Model:
    """Return the model of the flags that all descendants of Megatron have; raise for missing ones.

    `fields` are those that `described` returns; `optimizers` are read into the workload.
    """
    needed = ("--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--vocab-size")
    if missing := [flag for flag in needed if flag not in flags]:
        raise InputError(f"--command lacks {listed(missing)}; add them, or describe the model with --model.")
    hidden, heads = number(flags, "--hidden-size"), number(flags, "--num-attention-heads")
    channels, padded = number(flags, "--kv-channels"), number(flags, "--padded-vocab-size")
    vocab = number(flags, "--vocab-size")
    return Model(
        name="megatron-arguments",
        layers=number(flags, "--num-layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=number(flags, kv_heads),
        head_size=channels if channels * heads != hidden else 0,
        ffn=mlp_width(flags),
        vocab=padded if padded and _padded(padded) != _padded(vocab) else vocab,
        vocab_multiple=number(flags, "--make-vocab-size-divisible-by") or _VOCABULARY_MULTIPLE,
        seq=number(flags, "--seq-length"),
        max_positions=number(flags, "--max-position-embeddings"),
        not_understood=(
            *(flag for flag in OTHER_LAYERS if flag in flags),
            *(flag for flag, field in _NOT_READ.items() if flag in flags and field not in fields),
            *_other_training(flags, optimizers),
        ),
        **fields,
    )


def with_unexpressed(
    flags: Flags, model: Model, more: Iterable[str] = (), *, optimizers: Collection[str] = ADAM
) -> Model:
    """Return the model with the settings of training that no field of it expresses, so that it is not exported."""
    found = [one for one in (*_other_training(flags, optimizers), *more) if one not in model.not_understood]
    return replace(model, not_understood=(*model.not_understood, *found)) if found else model


def _other_training(flags: Flags, optimizers: Collection[str]) -> list[str]:
    named = flags.get("--optimizer", "adam")
    found = [flag for flag in OTHER_TRAINING if flag in flags] + other_numerics(flags)
    return [*found, *([f"--optimizer {named}"] * (named not in optimizers))]


def mlp_width(flags: Flags) -> int:
    """Return the width of the MLP, by default 4 hidden, or for SwiGLU the multiple of 64 below two thirds of that."""
    hidden = number(flags, "--hidden-size")
    return number(flags, "--ffn-hidden-size") or (hidden * 8 // 3 // 64 * 64 if "--swiglu" in flags else 4 * hidden)


def described(flags: Flags, *, positions: Positions, norm: Norm) -> dict[str, Any]:
    """Return the fields that determine what is trained besides its sizes, with Megatron's defaults for missing flags.

    Megatron approximates GELU by tanh where bias and activation are fused.
    """
    numbers = dict(_NUMBERS.values()) | {
        field: real(flags, flag) for flag, (field, _) in _NUMBERS.items() if flag in flags
    }
    biased = "--disable-bias-linear" not in flags
    exact = "--no-bias-gelu-fusion" in flags or not biased
    named = {"--swiglu": "silu", "--quick-geglu": "quick_gelu", "--squared-relu": "relu2"}
    return {
        "positions": positions,
        "norm": norm,
        "gated_mlp": "--swiglu" in flags or "--quick-geglu" in flags,
        "activation": next((name for flag, name in named.items() if flag in flags), "gelu" if exact else "gelu_tanh"),
        "tied_embeddings": "--untie-embeddings-and-output-weights" not in flags,
        "qkv_bias": biased or "--add-qkv-bias" in flags,
        "attention_bias": biased,
        "mlp_bias": biased,
        **numbers,
        "embedding_dropout": numbers["hidden_dropout"],
        "norm_offset": "--apply-layernorm-1p" in flags,
        "qk_norm": "--qk-layernorm" in flags,
        "rotary_interleaved": "--rotary-interleaved" in flags,
    }


def check_described(flags: Flags, model: Model, fields: Mapping[str, Any]) -> None:
    """Raise if the arguments describe a model, and another one than `model`; `fields` are those of `described`."""
    _check_vocabulary(flags, model)
    if not describes_model(flags):
        return
    skipped = {"embedding_dropout"}
    # latent attention has norms that the flag sets too, and pairs of its own
    skipped |= {"qk_norm", "rotary_interleaved"} if model.latent else set()
    skipped |= set() if model.positions == "rotary" else set(_ROTARY)
    for field, value in fields.items():
        own = model.mlp_activation if field == "activation" else getattr(model, field)
        if field not in skipped and value != own:
            raise InputError(
                f"the arguments in --command describe a model with {_words(field, value)}, but --model has "
                f"{_words(field, own)}; correct --model or {_FLAGS_OF[field]}."
            )
    parts = {flag: has(model) for flag, has in PARTS.items()}
    check_parts(flags, model, {flag: needed for flag, needed in parts.items() if needed is not None})


def _words(field: str, value: object) -> str:
    name = field.replace("_", " ")
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def check_parts(flags: Flags, model: Model, parts: Mapping[str, bool]) -> None:
    """Raise if the command has a flag of a part that the model lacks, or the reverse."""
    for flag, needed in parts.items():
        if "--num-layers" in flags and needed != (flag in flags):
            raise InputError(
                f"--command {'lacks' if needed else 'has'} {flag}, unlike the model {shown(model.name)}; "
                "correct --model or the command."
            )


def _check_vocabulary(flags: Flags, model: Model) -> None:
    """Raise if the arguments have another vocabulary, padding and one more token (NullTokenizer's) left out."""
    size = number(flags, "--padded-vocab-size") or number(flags, "--vocab-size")
    tp = number(flags, "--tensor-model-parallel-size") or 1
    if size and not has_vocabulary(model, size) and size != model.padded_vocab(tp):
        flag = "--padded-vocab-size" if "--padded-vocab-size" in flags else "--vocab-size"
        check_sizes(flags, {flag: model.vocab})


def has_vocabulary(model: Model, size: int) -> bool:
    """Return whether a vocabulary is the model's, padding and one more token (NullTokenizer's) left out."""
    return _padded(model.vocab) in {_padded(size), _padded(size + 1)}


def _padded(size: int) -> int:
    return -(-size // _VOCABULARY_MULTIPLE)


def dense_values(model: Model) -> dict[str, float]:
    """Return the values of the flags of a model's numbers that all descendants of Megatron have."""
    numbers = {flag: float(getattr(model, field)) for flag, (field, _) in _NUMBERS.items()}
    unused = () if model.positions == "rotary" else [flag for flag in numbers if "rotary" in flag]
    return {
        **{flag: value for flag, value in numbers.items() if flag not in unused},
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--num-attention-heads": model.heads,
        **({"--ffn-hidden-size": model.ffn} if model.dense_mlp_layers else {}),
    }


def core_stack(flags: Flags, workload: Workload) -> dict[str, Any]:
    """Return the fields of `Stack` that the flags of a command determine, by the last part of their names."""
    fields = {flag.lstrip("-+~").rpartition(".")[2].replace("-", "_"): value for flag, value in flags.items()}
    if workload.optimizer != "muon":
        fields = {name: value for name, value in fields.items() if name not in SET_BY_JOBS}
    settings = {name: value.strip("\"'") for name, value in fields.items()}
    return stack_of_core(settings, has_experts=workload.model.experts is not None)
