"""Flags common to all Megatron code bases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tuner.export.formats import WITHOUT_EXPERTS, Settings, Treatment, expressed, trains_only
from tuner.export.production import WARM_UP_SHARE, ProductionRun
from tuner.launch.ds_config import LEARNING_RATE
from tuner.launch.trainers.megatron_lm import FIRST_LOSS_SCALE

LOSS_SCALE_WINDOW: Final = "500"
"""BLOOM's (BigScience, tr11-176B-ml)."""


def number(value: float) -> str:
    """Return a number in the fewest digits that represent it exactly."""
    return str(int(value)) if value == int(value) else repr(value)


def numeric(flag: str, field: str) -> Treatment:
    """Return the treatment of a number of the model that is the value of one flag."""
    return expressed(flag, lambda run: [(flag, number(getattr(run.workload.model, field)))])


def counted(flag: str, axis: str) -> Treatment:
    """Return the treatment of a number of the topology that is the value of one flag."""
    return expressed(flag, lambda run: [(flag, str(getattr(run.topology, axis)))])


def switch(flag: str, field: str, *, on: bool = True) -> Treatment:
    """Return the treatment of a switch for which one flag sets one of the two values."""
    return expressed(flag, lambda run: [(flag,)] * (getattr(run.workload.model, field) == on))


def is_rotary(run: ProductionRun) -> bool:
    """Return whether positions are rotary; for other models, the remaining rotary properties are irrelevant."""
    return run.workload.model.positions == "rotary"


def is_windowed(run: ProductionRun) -> bool:
    """Return whether attention has a window that is shorter than a training sequence."""
    return 0 < run.workload.model.sliding_window < run.workload.model.seq


def has_window(run: ProductionRun) -> bool:
    """Return whether megatron-core trains a run's window: with flash attention, and in any layers but of prediction."""
    model = run.workload.model
    placed = not (model.window_start and model.mtp_layers)  # these layers are numbered from one again
    return not is_windowed(run) or (placed and run.workload.attention in ("flash1", "flash2"))


def is_yarn(run: ProductionRun) -> bool:
    """Return whether positions are scaled by yarn outside latent attention, which reads other fields."""
    scaling = run.workload.model.rotary_scaling
    return is_rotary(run) and run.workload.model.latent is None and scaling is not None and scaling.kind == "yarn"


def has_yarn(run: ProductionRun) -> bool:
    """Return whether megatron-core's YarnRotaryEmbedding, which turns whole heads in halves, has a run's scaling."""
    model = run.workload.model
    scaling = model.rotary_scaling
    if scaling is None or not is_yarn(run) or not scaling.original_seq:
        return False
    usual = 0.1 * math.log(scaling.factor) + 1 if scaling.factor > 1 else 1.0
    same = not scaling.attention_factor or math.isclose(scaling.attention_factor, usual, rel_tol=1e-6)
    return same and model.rotary_fraction == 1 and not model.rotary_interleaved


def position_type(run: ProductionRun) -> str:
    """Return megatron-core's name of a run's positions."""
    names = {"learned": "learned_absolute", "rotary": "rope", "none": "none"}
    return "yarn" if is_yarn(run) else names[run.workload.model.positions]


def same_as_mlp(field: str) -> Treatment:
    """Return the treatment of a bias that one flag removes together with the MLP's."""
    return expressed(
        "--disable-bias-linear",
        only="the same as for the MLP",
        accepts=lambda run: getattr(run.workload.model, field) == run.workload.model.mlp_bias,
    )


def vocab_multiple(flags: str, settings: Callable[[ProductionRun], Settings] = lambda _: []) -> Treatment:
    """Return the treatment of vocabulary padding: without any, tensor parallel ranks need equal shares."""
    return expressed(
        flags,
        settings,
        limit="unpadded vocabularies must be multiples of tp",
        accepts=lambda run: run.workload.model.vocab_multiple > 0 or run.workload.model.vocab % run.topology.tp == 0,
    )


def flash_in_half_precision(flags: str, settings: Callable[[ProductionRun], Settings]) -> Treatment:
    """Return the treatment of the attention kernel for trainers that support all of them."""
    return expressed(
        flags,
        settings,
        limit="no flash attention in fp32",
        accepts=lambda run: run.workload.precision != "fp32" or run.workload.attention in ("eager", "fused"),
    )


def half_precision(run: ProductionRun) -> Settings:
    """Return the flags of fp16 and bf16; fp32 is the default."""
    if run.workload.precision == "fp16":
        return [("--fp16",), ("--initial-loss-scale", FIRST_LOSS_SCALE), ("--loss-scale-window", LOSS_SCALE_WINDOW)]
    return [("--bf16",)] * (run.workload.precision != "fp32")


def training_flags(run: ProductionRun) -> Settings:
    """Return default flags of learning rate, optimizer, logs and checkpoints."""
    flags: Settings = [
        ("--lr", f"{LEARNING_RATE:g}"),
        ("--min-lr", f"{LEARNING_RATE / 10:g}"),
        ("--lr-decay-style", "cosine"),
        ("--lr-warmup-samples", str(round(WARM_UP_SHARE * run.samples))),
        ("--clip-grad", "1.0"),
        ("--weight-decay", "0.1"),
        ("--log-interval", "1"),
        ("--save-interval", str(run.save_interval)),
    ]
    if run.workload.optimizer in ("adam", "adam-bf16", "muon"):  # Muon leaves embedding, head and norms to Adam
        flags += [("--adam-beta1", "0.9"), ("--adam-beta2", "0.95"), ("--adam-eps", "1e-8")]
    return flags


def _only(text: str, field: str, value: object) -> Treatment:
    return trains_only(text, lambda run: getattr(run.workload.model, field) == value)


def _head_size(run: ProductionRun) -> Settings:
    model = run.workload.model
    size = model.latent.nope_size if model.latent else model.head_width
    return [("--kv-channels", str(size))]


def _one_rotary_embedding(run: ProductionRun) -> bool:
    """Return whether all layers rotate alike; a base of their own exempts those with a window from the scaling."""
    model = run.workload.model
    unscaled = model.rotary_scaling is None and model.rotary_local_base == model.rotary_base
    return not model.rotary_local_base or unscaled


def _positions(run: ProductionRun) -> Settings:
    model, scaling = run.workload.model, run.workload.model.rotary_scaling
    # Earlier releases of Megatron-Core scale latent attention from this length, later ones from 4096 positions.
    scaled = model.latent is not None and scaling is not None and scaling.kind == "yarn"
    most = scaling.original_seq if scaling and scaled else model.max_positions
    return [("--max-position-embeddings", str(max(most, model.seq)))]


def usual_scale(run: ProductionRun) -> bool:
    """Return whether attention scores are divided by the root of the head size."""
    model = run.workload.model
    usual = model.head_width**-0.5
    return not model.attention_scale or abs(model.attention_scale / usual - 1) < 1e-6


def _optimizer(run: ProductionRun) -> Settings:
    return [("--optimizer", run.workload.optimizer)]


BASE_TREATMENTS: Final[Mapping[str, Treatment]] = {
    "layers": numeric("--num-layers", "layers"),
    "hidden": numeric("--hidden-size", "hidden"),
    "heads": numeric("--num-attention-heads", "heads"),
    "head_size": expressed("--kv-channels", _head_size),
    "ffn": numeric("--ffn-hidden-size", "ffn"),
    "seq": numeric("--seq-length", "seq"),
    "max_positions": expressed("--max-position-embeddings", _positions),
    "attention_dropout": numeric("--attention-dropout", "attention_dropout"),
    "hidden_dropout": numeric("--hidden-dropout", "hidden_dropout"),
    "embedding_dropout": expressed(
        "--hidden-dropout",
        only="the same as the hidden dropout",
        accepts=lambda r: r.workload.model.embedding_dropout == r.workload.model.hidden_dropout,
    ),
    "init_std": numeric("--init-method-std", "init_std"),
    "norm_weight": _only("norms with weights", "norm_weight", True),
    "norm_bias": trains_only(
        "LayerNorm with biases", lambda r: r.workload.model.norm_bias or r.workload.model.norm == "rmsnorm"
    ),
    "norm_placement": trains_only(
        "two norms, before attention and MLP",
        lambda r: r.workload.model.norm_placement == "before" and r.workload.model.norms_per_layer == 2,
    ),
    "final_norm": _only("a final norm", "final_norm", True),
    "embedding_norm": _only("none", "embedding_norm", False),
    "head_bias": _only("none", "head_bias", False),
    "parallel_attention": _only("attention, then MLP", "parallel_attention", False),
    "rotary_local_base": trains_only(
        "one base for all layers",
        lambda r: not is_rotary(r) or _one_rotary_embedding(r),
    ),
    "attention_softcap": _only("none", "attention_softcap", 0.0),
    "logit_softcap": _only("none", "logit_softcap", 0.0),
    "attention_scale": trains_only("1 / sqrt(head size)", usual_scale),
    "embedding_scale": _only("1", "embedding_scale", 1.0),
    "residual_scale": _only("1", "residual_scale", 1.0),
    "logit_scale": _only("1", "logit_scale", 1.0),
    "embedding_size": trains_only(
        "the hidden size", lambda r: r.workload.model.embedding_size == r.workload.model.hidden
    ),
    **WITHOUT_EXPERTS,
    "frozen_params": _only("none", "frozen_params", 0),
    "not_understood": trains_only("none", lambda r: not r.workload.model.not_understood),
    "global_batch": expressed("--global-batch-size", lambda r: [("--global-batch-size", str(r.workload.global_batch))]),
    "tokens": expressed("--train-samples", lambda r: [("--train-samples", str(r.samples))]),
    "ramp": expressed("--rampup-batch-size"),
    "optimizer": expressed(
        "--optimizer", _optimizer, only="adam, sgd", accepts=lambda r: r.workload.optimizer in ("adam", "sgd")
    ),
    "tp": counted("--tensor-model-parallel-size", "tp"),
    "pp": counted("--pipeline-model-parallel-size", "pp"),
    "dp": expressed("the number of ranks"),
    "hsdp": trains_only("1", lambda r: r.topology.hsdp == 1),
    "micro_batch": counted("--micro-batch-size", "micro_batch"),
}
"""The treatments of sizes and degrees, and of properties that no Megatron code base supports."""
