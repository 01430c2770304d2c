"""The format megatron-deepspeed: the DeepSpeed organisation's repository, and BigScience's fork, which trained BLOOM.

What the flags mean was read from each repository at the commit of its recorded flag table:

- DeepSpeed's: GELU is the tanh approximation while bias and activation are fused, `--openai-gelu` is the same without
  a bias, and the exact GELU needs `--no-bias-gelu-fusion`. One switch removes all biases. Stages have equal numbers of
  layers, and DeepSpeed's pipeline does not interleave. ZeRO 2 and 3 need `--no-pipeline-parallel`.
- DeepSpeed's at that commit trains no rotary embedding: `RotaryEmbedding.forward` returns cosines and sines, which
  `apply_rotary_pos_emb` takes for angles (model/rotary_pos_embedding.py, model/language_model.py), and
  `update_rotary_pos_emb`, which a pipeline calls, fails (megatron/utils.py; its issue 456). Nor does it train grouped
  queries: attention cuts the projection of queries, keys and values into three equal parts (model/transformer.py).
  The last norm of its pipeline ignores `--apply-layernorm-1p` (model/gpt_model.py).
- DeepSpeed's pads the number of the tokenizer's tokens, not `--vocab-size`, to a multiple of
  `--make-vocab-size-divisible-by` times tp (tokenizer/tokenizer.py). With a multiple of all the model's rows, any
  tokenizer that fits into the vocabulary gives them.
- BigScience's: learned, rotary (base 10000, whole heads) and ALiBi positions, LayerNorm, biases and tied embeddings
  always. Gated activations need `--no-bias-gelu-fusion`; its geglu is the exact one. It always builds a pipeline, which
  DeepSpeed runs with ZeRO 0 and 1 only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tuner.core.recompute import GRANULARITIES
from tuner.export.deepspeed import deepspeed_config_files
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions, Fork, Format, Settings, Treatment, expressed, trains_only
from tuner.export.megatron_common import (
    BASE_TREATMENTS,
    flash_in_half_precision,
    half_precision,
    is_rotary,
    is_windowed,
    numeric,
    same_as_mlp,
    switch,
    training_flags,
    vocab_multiple,
)
from tuner.export.production import ProductionRun
from tuner.export.rendering import rendered
from tuner.launch.trainers.megatron_deepspeed import offload_flags, recompute_flags, zero_flags

_TABLES: Final[Mapping[Fork, str]] = {"deepspeed": "megatron-deepspeed", "bloom": "megatron-deepspeed-bloom"}


def _activation(run: ProductionRun) -> Settings:
    model = run.workload.model
    if model.gated_mlp:
        return [("--swiglu",)]
    flags: Mapping[str, Settings] = {
        "relu2": [("--squared-relu",)],
        "gelu": [("--no-bias-gelu-fusion",)],
        "gelu_tanh": [] if model.mlp_bias else [("--openai-gelu",)],
    }
    return flags[model.mlp_activation]


def _bloom_activation(run: ProductionRun) -> Settings:
    model = run.workload.model
    if model.gated_mlp:
        gate = {"silu": "swiglu", "gelu": "geglu", "relu": "reglu"}[model.mlp_activation]
        return [("--glu-activation", gate), ("--no-bias-gelu-fusion",)]
    return [("--no-bias-gelu-fusion",)] * (model.mlp_activation == "gelu")


def _attention(run: ProductionRun) -> Settings:
    flags: Mapping[str, Settings] = {
        "eager": [("--no-masked-softmax-fusion",)],
        "flash1": [("--use-flash-attn-v1",)],
        "flash2": [("--use-flash-attn-v2",)],
    }
    return flags.get(run.workload.attention, [])


def _positions(run: ProductionRun) -> Settings:
    return [("--no-position-embedding",)] * (run.workload.model.positions == "none")


def _bloom_positions(run: ProductionRun) -> Settings:
    name = run.workload.model.positions
    return [("--position-embedding-type", {"learned": "absolute"}.get(name, name))]


def _has_own_kv_heads(run: ProductionRun) -> bool:
    return run.workload.model.kv_heads == run.workload.model.heads


def _rows(run: ProductionRun) -> Settings:
    rows, tp = run.workload.model.padded_vocab(run.topology.tp), run.topology.tp
    return [("--make-vocab-size-divisible-by", str(rows // tp))]


def _zero(run: ProductionRun) -> Settings:
    return zero_flags(run.topology, "ds_config.json")


def _recompute(run: ProductionRun) -> Settings:
    return recompute_flags(run.topology)


_SHARED: Final[Mapping[str, Treatment]] = {
    **BASE_TREATMENTS,
    "norm_epsilon": numeric("--layernorm-epsilon", "norm_epsilon"),
    "qk_norm": trains_only("none", lambda r: not r.workload.model.qk_norm),
    "rotary_interleaved": trains_only(
        "non-interleaved pairs", lambda r: not (is_rotary(r) and r.workload.model.rotary_interleaved)
    ),
    "rotary_skip": trains_only("none", lambda r: not (is_rotary(r) and r.workload.model.rotary_skip)),
    "rotary_scaling": trains_only("none", lambda r: not (is_rotary(r) and r.workload.model.rotary_scaling)),
    "sliding_window": trains_only("windows of at least the sequence length", lambda r: not is_windowed(r)),
    "precision": expressed(
        "--fp16, --bf16", half_precision, only="fp32, fp16, bf16", accepts=lambda r: not r.workload.is_quantized
    ),
    "vpp": trains_only("none", lambda r: r.topology.vpp == 1),
    "cp": trains_only("none", lambda r: r.topology.cp == 1),
}

_NOT_ROTATED: Final = trains_only("without rotary positions", lambda _: True)
"""The treatment of properties of rotary positions, if those themselves are refused."""

_DEEPSPEED: Final[Mapping[str, Treatment]] = {
    **_SHARED,
    "kv_heads": trains_only(
        "one key/value head per query head",
        _has_own_kv_heads,
        "it cuts the projection of queries, keys and values into three equal parts",
    ),
    "activation": expressed(
        "--swiglu, --squared-relu, --openai-gelu, --no-bias-gelu-fusion",
        _activation,
        only="SwiGLU, squared ReLU, exact and tanh-approximated GELU",
        accepts=lambda r: (
            r.workload.model.mlp_activation
            in (("silu",) if r.workload.model.gated_mlp else ("relu2", "gelu", "gelu_tanh"))
        ),
    ),
    "norm": expressed("--normalization", lambda r: [("--normalization", r.workload.model.norm)]),
    "norm_offset": expressed(
        "--apply-layernorm-1p",
        lambda r: [("--apply-layernorm-1p",)] * r.workload.model.norm_offset,
        only="with LayerNorm, without pipeline parallelism",
        accepts=lambda r: (
            not r.workload.model.norm_offset or (r.workload.model.norm == "layernorm" and r.topology.pp == 1)
        ),
    ),
    "mlp_bias": switch("--disable-bias-linear", "mlp_bias", on=False),
    "attention_bias": same_as_mlp("attention_bias"),
    "qkv_bias": same_as_mlp("qkv_bias"),
    "positions": expressed(
        "--no-position-embedding",
        _positions,
        only="learned, none",
        accepts=lambda r: r.workload.model.positions in ("learned", "none"),
        because=lambda r: "it rotates by the cosine of the angle" if is_rotary(r) else "",
    ),
    "rotary_base": _NOT_ROTATED,
    "rotary_fraction": _NOT_ROTATED,
    "tied_embeddings": switch("--untie-embeddings-and-output-weights", "tied_embeddings", on=False),
    "vocab": expressed(
        "--vocab-size, --make-vocab-size-divisible-by", lambda r: [("--vocab-size", str(r.workload.model.vocab))]
    ),
    "vocab_multiple": vocab_multiple("--make-vocab-size-divisible-by", _rows),
    "attention": flash_in_half_precision(
        "--use-flash-attn-v1, --use-flash-attn-v2, --no-masked-softmax-fusion", _attention
    ),
    "zero": expressed(
        "--zero-stage, --no-pipeline-parallel",
        lambda r: _zero(r) + [("--no-pipeline-parallel",)] * (r.topology.pp == 1),
        only="2 and 3 without pipeline parallelism",
        accepts=lambda r: r.topology.zero <= 1 or r.topology.pp == 1,
    ),
    "sequence_parallel": trains_only(
        "none",
        lambda r: not r.topology.sequence_parallel,
        "under DeepSpeed it does not sum the gradients of the norms over the tensor parallel ranks",
    ),
    "recompute": expressed(
        "--checkpoint-activations, --deepspeed-activation-checkpointing, --recompute-granularity",
        _recompute,
        only=", ".join(GRANULARITIES),
        accepts=lambda r: r.topology.recompute in GRANULARITIES,
    ),
    "offload": expressed(
        "--cpu-optimizer, --remote-device, ds_config.json",
        lambda r: offload_flags(r.topology),
        only="with adam",
        accepts=lambda r: r.topology.offload == "none" or r.workload.optimizer == "adam",
    ),
    "partition": trains_only(
        "equal numbers of layers",
        lambda r: (
            r.topology.pp == 1 or (r.topology.partition == "layers" and r.workload.model.layers % r.topology.pp == 0)
        ),
    ),
}

_BLOOM: Final[Mapping[str, Treatment]] = {
    **_SHARED,
    "kv_heads": trains_only("one key/value head per query head", _has_own_kv_heads),
    "activation": expressed(
        "--glu-activation, --no-bias-gelu-fusion",
        _bloom_activation,
        only="exact and tanh-approximated GELU, SwiGLU, exact GeGLU, ReGLU",
        accepts=lambda r: r.workload.model.mlp_activation
        in (("silu", "gelu", "relu") if r.workload.model.gated_mlp else ("gelu", "gelu_tanh")),
    ),
    "norm": trains_only("LayerNorm", lambda r: r.workload.model.norm == "layernorm"),
    "norm_offset": trains_only("none", lambda r: not r.workload.model.norm_offset),
    "embedding_norm": switch("--embed-layernorm", "embedding_norm"),
    "mlp_bias": trains_only("biases", lambda r: r.workload.model.mlp_bias),
    "attention_bias": trains_only("biases", lambda r: r.workload.model.attention_bias),
    "qkv_bias": trains_only("biases", lambda r: r.workload.model.qkv_bias),
    "positions": expressed(
        "--position-embedding-type",
        _bloom_positions,
        only="learned, rotary, ALiBi",
        accepts=lambda r: r.workload.model.positions != "none",
    ),
    "rotary_base": trains_only("10000", lambda r: not is_rotary(r) or r.workload.model.rotary_base == 10_000),
    "rotary_fraction": trains_only("1", lambda r: not is_rotary(r) or r.workload.model.rotary_fraction == 1),
    "tied_embeddings": trains_only("tied", lambda r: r.workload.model.tied_embeddings),
    "vocab": expressed("your tokenizer, --pad-vocab-size-to"),
    "vocab_multiple": vocab_multiple(
        "--make-vocab-size-divisible-by, --pad-vocab-size-to",
        lambda r: [  # the tokenizer may have fewer tokens than the model has rows
            ("--make-vocab-size-divisible-by", str(r.workload.model.vocab_multiple or 1)),
            ("--pad-vocab-size-to", str(r.workload.model.padded_vocab(r.topology.tp))),
        ],
    ),
    "attention": expressed(
        "--no-masked-softmax-fusion",
        _attention,
        only="eager, fused",
        accepts=lambda r: r.workload.attention in ("eager", "fused"),
    ),
    "zero": expressed(
        "--zero-stage", _zero, only="0, 1", accepts=lambda r: r.topology.zero <= 1
    ),
    "sequence_parallel": trains_only("none", lambda r: not r.topology.sequence_parallel),
    "offload": trains_only("none", lambda r: r.topology.offload == "none"),
    "recompute": expressed(
        "--checkpoint-activations, --deepspeed-activation-checkpointing",
        _recompute,
        only="none and full",
        accepts=lambda r: r.topology.recompute in ("none", "full"),
    ),
    "partition": expressed(
        "--pp-partition-method",
        lambda r: [("--pp-partition-method", "type:transformer|embedding")] * (r.topology.partition == "embedding"),
        only="stages of equal size",
        accepts=lambda r: r.topology.split_units(r.workload.model.layers) % r.topology.pp == 0,
    ),
}  # fmt: skip

_TREATMENTS: Final[Mapping[Fork, Mapping[str, Treatment]]] = {"deepspeed": _DEEPSPEED, "bloom": _BLOOM}


def fork_for(run: ProductionRun, options: ExportOptions) -> Fork:
    """Return the chosen fork; by default BigScience's if only it supports the run, and otherwise DeepSpeed's."""
    if options.fork:
        return options.fork
    able = [fork for fork, treatments in _TREATMENTS.items() if all(one.accepts(run) for one in treatments.values())]
    return able[0] if able else "deepspeed"


def megatron_deepspeed_flags(run: ProductionRun, options: ExportOptions | None = None) -> Settings:
    """Return the flags of a fork's pretrain_gpt.py for a run."""
    return MEGATRON_DEEPSPEED.settings(run, options or ExportOptions()) + training_flags(run)


def _render(run: ProductionRun, options: ExportOptions, chosen: Format) -> Mapping[str, str]:
    flags = megatron_deepspeed_flags(run, options)
    files = deepspeed_config_files(run, with_optimizer=False, own=options.own_config)
    version = flag_table(chosen.table(run, options)).version
    return files | {
        name: rendered(f"megatron.{name}", run, flags=flags, version=version, site=options.site)
        for name in chosen.launch_files
    }


MEGATRON_DEEPSPEED: Final = Format(
    name="megatron-deepspeed",
    title="Megatron-DeepSpeed",
    summary="`pretrain_gpt.py` of Megatron-DeepSpeed, under Slurm",
    framework="megatron-deepspeed",
    launch_files=("launch.sbatch",),
    render=_render,
    treatments=lambda options: _TREATMENTS[options.fork or "deepspeed"],
    resolve=lambda run, options: replace(options, fork=fork_for(run, options)),
    table=lambda run, options: _TABLES[fork_for(run, options)],
    flags=megatron_deepspeed_flags,
    variants=(ExportOptions(fork="deepspeed"), ExportOptions(fork="bloom")),
)
