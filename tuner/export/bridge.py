"""The format megatron-bridge: a recipe for NVIDIA's Megatron Bridge (NeMo), whose config classes it fills.

Names are those of megatron-bridge 0.3.1 and megatron-core 0.16.1. `GPTModelProvider` passes the factor of Llama 3's
rotary scaling on; low and high frequency factors and the original length are fixed in megatron-core. Activations are
functions, so that GeGLU and ReLU can be expressed; fused SwiGLU ignores clamp and offset. Bridge does not pad the
vocabulary of a model that states one (training/setup.py), so that the padded one is written. Its FP8 recipes leave the
outer layers in bf16 or use other number formats than Megatron-LM's, so that their fields are set. megatron-core reads
yarn from attributes that GPTModelProvider has no fields for. What neither has is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tuner.core.domain import Topology
from tuner.core.model import Model
from tuner.core.precision import recipe_of
from tuner.export.bridge_optimizer import offload_fields, optimizer_fields
from tuner.export.bridge_precision import PRECISIONS, mixed_precision, precision_fields
from tuner.export.flag_table import flag_table
from tuner.export.formats import ExportOptions, Format, Settings, Treatment, expressed, trains_only
from tuner.export.megatron_common import (
    BASE_TREATMENTS,
    has_yarn,
    is_rotary,
    is_windowed,
    position_type,
)
from tuner.export.megatron_core import MEGATRON_CORE, attention_backend
from tuner.export.megatron_experts import LIKE_LATENT, unlike_delta_net, unlike_latent
from tuner.export.production import ProductionRun
from tuner.export.rendering import rendered
from tuner.launch.trainers.megatron_lm import core_exchange, overlaps_gradients, stage_layout
from tuner.launch.trainers.megatron_positions import YARN_FACTORS, is_latent_yarn, is_llama3

_FUNCTIONS: Final = {
    "silu": "F.silu",
    "gelu": "F.gelu",
    "gelu_tanh": "fast_gelu",
    "quick_gelu": "quick_gelu",
    "relu": "F.relu",
    "relu2": "squared_relu",
}


def _field(name: str, value: Callable[[Model], object]) -> Treatment:
    """Return the treatment of a property that one field of the model's config expresses."""
    return expressed(f"`model.{name}`", lambda run: [(name, repr(value(run.workload.model)))])


def _degree(name: str, axis: str) -> Treatment:
    return expressed(f"`model.{name}`", lambda run: [(name, repr(getattr(run.topology, axis)))])


def _activation(run: ProductionRun) -> Settings:
    model = run.workload.model
    swiglu = model.gated_mlp and model.mlp_activation == "silu" and not (model.glu_clamp or model.glu_offset)
    return [
        ("activation_func", _FUNCTIONS[model.mlp_activation]),
        ("gated_linear_unit", repr(model.gated_mlp)),
        ("bias_activation_fusion", repr(swiglu)),
    ]


def _scaling(run: ProductionRun) -> Settings:
    scaling = run.workload.model.rotary_scaling
    if scaling is None or not is_rotary(run):
        return []
    if run.workload.model.latent:
        return [
            ("original_max_position_embeddings", repr(scaling.original_seq)),
            ("beta_fast", repr(scaling.beta_fast)),
            ("beta_slow", repr(scaling.beta_slow)),
        ]
    if scaling.kind == "linear":
        return [("seq_len_interpolation_factor", repr(scaling.factor))]
    if scaling.kind == "yarn":
        values = {
            "rotary_scaling_factor": scaling.factor,
            "original_max_position_embeddings": scaling.original_seq,
            **{name: getattr(scaling, name) for name in ("beta_fast", "beta_slow")},
            **dict(zip(("mscale", "mscale_all_dim"), YARN_FACTORS, strict=True)),
            "correction_range_round_to_int": scaling.truncate,
        }
        return [(f"{_YARN}{name}", repr(value)) for name, value in values.items()]
    return [("rope_scaling", "True"), ("rope_scaling_factor", repr(scaling.factor))]


def _has_scaling(run: ProductionRun) -> bool:
    scaling = run.workload.model.rotary_scaling
    if run.workload.model.latent:
        return is_latent_yarn(scaling, any_constants=True)
    if scaling is None or not is_rotary(run):
        return True
    return scaling.kind == "linear" or is_llama3(scaling) or has_yarn(run)


def _window(run: ProductionRun) -> Settings:
    model = run.workload.model
    if not is_windowed(run):
        return []
    layers: int | list[int] = model.window_skip
    if model.window_start:
        layers = [int(model.is_windowed_layer(layer)) for layer in range(model.layers)]
    skipped = [("window_attn_skip_freq", repr(layers))] * bool(layers)
    return [("window_size", repr((model.sliding_window - 1, 0))), *skipped]


def _rows(run: ProductionRun) -> str:
    """Return the padded vocabulary, as the division that rounds it up."""
    vocab, multiple = run.workload.model.vocab, run.workload.model.vocab_multiple * run.topology.tp
    return f"-(-{vocab} // {multiple}) * {multiple}" if multiple else repr(vocab)


def _attention(run: ProductionRun) -> Settings:
    return [
        ("transformer_impl", "'transformer_engine'"),
        ("attention_backend", f"AttnBackend.{attention_backend(run)}"),
    ]


_YARN: Final = "yarn_"
"""Prefix of the fields that megatron-core reads of yarn's config and GPTModelProvider of Bridge 0.3.1 does not have, so
that the recipe sets them after construction, as Bridge does itself."""

_RENAMED: Final = {"num_experts": "num_moe_experts"}


def _from_flags(name: str) -> Treatment:
    """Return the treatment of a property whose fields are named like megatron-core's flags."""
    core = _CORE[name]

    def settings(run: ProductionRun) -> Settings:
        flags, table, model = core.settings(run), flag_table("megatron-core"), run.workload.model
        parsed = table.parsed(flags)
        values = {table.flags[flag[0]].dest: getattr(parsed, table.flags[flag[0]].dest) for flag in flags}
        values.pop("qk_layernorm", None)  # the property qk_norm sets it
        if "moe_layer_freq" in values:
            values["moe_layer_freq"] = [int(model.is_moe_layer(layer)) for layer in range(model.layers)]
        if model.delta_net and "linear_attention_freq" in values:
            values["linear_attention_freq"] = model.delta_net.period or [1] * model.layers
        for key in ("moe_router_load_balancing_type", "moe_aux_loss_coeff"):
            if key in values:
                values[key] = values[key][0]
        if name == "latent" and model.latent:  # MLATransformerConfig has other defaults than pretrain_gpt.py
            values = {"q_lora_rank": None, "rotary_scaling_factor": 1.0, "mscale_all_dim": 0.0, **values}
        return [(_RENAMED.get(field, field), repr(value)) for field, value in values.items()]

    fields = ", ".join(f"`{word.replace('--', 'model.').replace('-', '_')}`" for word in core.by.split(", "))
    return replace(core, by=fields, settings=settings)


_CORE: Final = MEGATRON_CORE.treatments(ExportOptions())
_SAME: Final = (
    "qkv_bias",
    "attention_bias",
    "vpp",
    "partition",
    "sliding_window",
    "rotary_skip",
    "rotary_base",
    "zero",
)
"""Properties whose values are accepted as in megatron-core's format."""

_FIELDS: Final[Mapping[str, Treatment]] = {
    "layers": _field("num_layers", lambda m: m.layers),
    "hidden": _field("hidden_size", lambda m: m.hidden),
    "heads": _field("num_attention_heads", lambda m: m.heads),
    "kv_heads": _field("num_query_groups", lambda m: m.kv_heads),
    "head_size": _field("kv_channels", lambda m: m.latent.nope_size if m.latent else m.head_width),
    "ffn": _field("ffn_hidden_size", lambda m: m.ffn),
    "seq": _field("seq_length", lambda m: m.seq),
    "max_positions": trains_only(
        "with learned positions, the sequence length",
        lambda r: r.workload.model.positions != "learned" or r.workload.model.max_positions == r.workload.model.seq,
    ),
    "activation": expressed(
        "`model.activation_func`, `model.gated_linear_unit`",
        _activation,
        limit="all except xIELU",
        accepts=lambda r: r.workload.model.mlp_activation in _FUNCTIONS,
    ),
    "norm": _field("normalization", lambda m: {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[m.norm]),
    "norm_epsilon": _field("layernorm_epsilon", lambda m: m.norm_epsilon),
    "norm_offset": _field("layernorm_zero_centered_gamma", lambda m: m.norm_offset),
    "qk_norm": expressed(
        "`model.qk_layernorm`",
        lambda r: [("qk_layernorm", repr(r.workload.model.qk_norm or r.workload.model.latent is not None))],
        only="one norm for all heads",
        accepts=_CORE["qk_norm"].accepts,
    ),
    "mlp_bias": _field("add_bias_linear", lambda m: m.mlp_bias),
    "qkv_bias": _field("add_qkv_bias", lambda m: m.qkv_bias),
    "attention_bias": expressed("`model.add_bias_linear`"),
    "positions": expressed(
        "`model.position_embedding_type`",
        lambda r: [("position_embedding_type", repr(position_type(r)))],
        only="learned, rotary",
        accepts=lambda r: r.workload.model.positions in ("learned", "rotary"),
    ),
    "rotary_base": _field("rotary_base", lambda m: int(m.rotary_base)),
    "rotary_fraction": _field("rotary_percent", lambda m: m.rotary_fraction),
    "rotary_interleaved": _field("rotary_interleaved", lambda m: m.rotary_interleaved and not m.latent),
    "rotary_skip": _field("no_rope_freq", lambda m: m.rotary_skip or None),
    "rotary_scaling": expressed(
        "`model.rope_scaling`, `model.rope_scaling_factor`, `model.seq_len_interpolation_factor`, `model.yarn_*`, "
        "`model.beta_*`",
        _scaling,
        only="llama3 with factors 1 and 4 from 8192 tokens, linear, non-interleaved yarn over whole heads, "
        "with latent attention yarn",
        accepts=_has_scaling,
    ),
    "sliding_window": expressed("`model.window_size`, `model.window_attn_skip_freq`", _window),
    "attention_dropout": _field("attention_dropout", lambda m: m.attention_dropout),
    "hidden_dropout": _field("hidden_dropout", lambda m: m.hidden_dropout),
    "embedding_dropout": replace(_CORE["embedding_dropout"], by="`model.hidden_dropout`"),
    "attention_scale": expressed(
        "`model.softmax_scale`",
        lambda r: (
            [("softmax_scale", repr(r.workload.model.attention_scale))]
            if r.workload.model.attention_scale and not r.workload.model.latent
            else []
        ),
        only="with latent attention 1 / sqrt(head size) times yarn's scale",
        accepts=lambda r: r.workload.model.latent is None or _CORE["attention_scale"].accepts(r),
    ),
    "init_std": _field("init_method_std", lambda m: m.init_std),
    "tied_embeddings": _field("share_embeddings_and_output_weights", lambda m: m.tied_embeddings),
    "vocab": expressed("`model.vocab_size`", lambda r: [("vocab_size", _rows(r))]),
    "vocab_multiple": expressed(
        "`model.vocab_size`, `model.should_pad_vocab`",
        lambda _: [("should_pad_vocab", "False")],
        limit="unpadded vocabularies must be multiples of tp",
        accepts=_CORE["vocab_multiple"].accepts,
    ),
    "not_understood": _CORE["not_understood"],
    "global_batch": expressed("`train.global_batch_size`"),
    "micro_batch": expressed("`train.micro_batch_size`"),
    "tokens": expressed("`train.train_iters`"),
    "ramp": trains_only("none", lambda r: r.workload.ramp is None),
    "optimizer": expressed(
        "`optimizer.optimizer`, `optimizer.use_precision_aware_optimizer`, `optimizer.exp_avg_dtype`, "
        "`optimizer.exp_avg_sq_dtype`",
        only="adam, or adam-bf16 with ZeRO 1 and without offload",
        accepts=lambda r: r.workload.optimizer not in ("sgd", "muon") and _CORE["optimizer"].accepts(r),
    ),
    "precision": expressed(
        "`mixed_precision`",
        only="bf16, fp16, fp4, and fp8 except rowwise scaling",
        accepts=lambda r: (
            r.workload.precision != "fp32" and (not r.workload.is_quantized or recipe_of(r.workload) in PRECISIONS)
        ),
    ),
    "attention": expressed(
        "`model.attention_backend`",
        _attention,
        only="fused, flash1, flash2",
        accepts=lambda r: r.workload.attention != "eager",
    ),
    "tp": _degree("tensor_model_parallel_size", "tp"),
    "pp": _degree("pipeline_model_parallel_size", "pp"),
    "vpp": expressed(
        "`model.virtual_pipeline_model_parallel_size`",
        lambda r: [("virtual_pipeline_model_parallel_size", repr(r.topology.vpp if r.topology.vpp > 1 else None))],
    ),
    "cp": expressed(
        "`model.context_parallel_size`, `model.cp_comm_type`",
        lambda r: [
            ("context_parallel_size", repr(r.topology.cp)),
            ("cp_comm_type", repr(core_exchange(r.workload))),
        ],
        only=_CORE["cp"].only,
        accepts=_CORE["cp"].accepts,
    ),
    "dp": expressed("the number of ranks"),
    "sequence_parallel": expressed(
        "`model.sequence_parallel`",
        lambda r: [("sequence_parallel", repr(r.topology.sequence_parallel))],
        limit=_CORE["sequence_parallel"].limit,
        accepts=_CORE["sequence_parallel"].accepts,
    ),
    "zero": expressed("`ddp.use_distributed_optimizer`", only="0, 1"),
    "offload": expressed(
        "`optimizer.optimizer_cpu_offload`, `optimizer.optimizer_offload_fraction`, "
        "`optimizer.overlap_cpu_optimizer_d2h_h2d`, `optimizer.use_precision_aware_optimizer`",
        only=_CORE["offload"].only,
        accepts=_CORE["offload"].accepts,
    ),
    "recompute": _from_flags("recompute"),
    "moe_overlap": expressed("`comm_overlap.overlap_moe_expert_parallel_comm`"),
    "partition": expressed(
        "`model.account_for_embedding_in_pipeline_split`, `model.account_for_loss_in_pipeline_split`, "
        "`model.pipeline_model_parallel_layout`",
        lambda r: _split(r.workload.model, r.topology),
    ),
}


def _split(model: Model, topology: Topology) -> Settings:
    if topology.partition == "layout":
        return [("pipeline_model_parallel_layout", repr(stage_layout(model, topology)))]
    if topology.partition == "layers" or topology.pp == 1:
        return []
    return [("account_for_embedding_in_pipeline_split", "True"), ("account_for_loss_in_pipeline_split", "True")]


def _accepted_as_in_core(name: str) -> Treatment:
    return replace(_CORE[name], by=_FIELDS[name].by, settings=_FIELDS[name].settings)


_EXPERTS: Final = ("experts", "mtp_layers", "attention_sinks", "glu_clamp", "ep", "etp", "dispatcher", "attention_gate")


def _unlike_delta_net(run: ProductionRun) -> str:
    """Return the properties of a run with Gated DeltaNet that the named release does not support."""
    split = "context parallelism" if run.workload.model.delta_net and run.topology.cp > 1 else ""
    return "; ".join(filter(None, (unlike_delta_net(run), split)))


_OF_RECIPE: Final[Mapping[str, Treatment]] = {
    **BASE_TREATMENTS,
    **_FIELDS,
    **{name: _from_flags(name) for name in _EXPERTS},
    **{name: _accepted_as_in_core(name) for name in _SAME},
    "delta_net": replace(
        _from_flags("delta_net"),
        only=f"{_CORE['delta_net'].only}, cp 1",
        accepts=lambda run: not _unlike_delta_net(run),
        because=_unlike_delta_net,
    ),
    "latent": replace(
        _from_flags("latent"),
        only=LIKE_LATENT,
        accepts=lambda run: not unlike_latent(run),
        because=unlike_latent,
    ),
}

_OF_OTHER_PROVIDERS: Final = (
    *("norm_placement", "qk_norm", "rotary_local_base", "attention_softcap", "logit_softcap", "embedding_scale"),
)
"""Properties that Bridge's own providers of OLMoE and Gemma have."""

_TREATMENTS: Final[Mapping[str, Treatment]] = {
    **_OF_RECIPE,
    **{
        name: replace(
            _OF_RECIPE[name], because="the recipe fills GPTModelProvider or MLAModelProvider, which do not have it"
        )
        for name in _OF_OTHER_PROVIDERS
    },
}


_SWITCHED_ON: Final = (
    *("bias_dropout_fusion", "cross_entropy_loss_fusion", "masked_softmax_fusion", "persist_layer_norm"),
    "deallocate_pipeline_outputs",
)
"""Fields that pretrain_gpt.py switches on and MLAModelProvider does not; they change memory, but not results."""


def _render(run: ProductionRun, options: ExportOptions, chosen: Format) -> Mapping[str, str]:
    settings, precision = chosen.settings(run, options), mixed_precision(run)
    given, latent = {name for name, _ in settings}, run.workload.model.latent
    settings += [(name, "True") for name in _SWITCHED_ON if name not in given]
    return {
        "recipe.py": rendered(
            "megatron-bridge.recipe.py",
            run,
            settings=[one for one in settings if not one[0].startswith(_YARN)],
            yarn=[one for one in settings if one[0].startswith(_YARN)],
            precision=precision,
            precision_fields=precision_fields(run),
            offload=offload_fields(run),
            optimizer=optimizer_fields(run),
            overlaps_gradients=overlaps_gradients(run.topology),
            direct_queries=latent is not None and latent.direct_queries,
        ),
        "launch.sbatch": rendered("megatron-bridge.launch.sbatch", run, site=options.site),
    }


MEGATRON_BRIDGE: Final = Format(
    name="megatron-bridge",
    aliases=("nemo",),
    title="Megatron Bridge",
    subject="tuner's recipe for Megatron Bridge",
    summary="a recipe for Megatron Bridge (NeMo), under Slurm",
    framework="megatron-core",
    launch_files=("launch.sbatch",),
    render=_render,
    treatments=lambda _: _TREATMENTS,
)
