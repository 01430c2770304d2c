"""The format megatron-core: flags of NVIDIA/Megatron-LM's pretrain_gpt.py at the commit of its recorded flag table.

What the flags mean was read from Megatron's code at that commit, where a name alone would mislead:

- GELU is the tanh approximation while bias and activation are fused, and the exact one otherwise. `--openai-gelu` is
  parsed and then ignored.
- `--rope-scaling-factor` is parsed and then ignored by pretrain_gpt.py: `--use-rope-scaling` always scales by 8, with
  low and high frequency factors 1 and 4 and an original length of 8192 (Llama 3.1's).
- `--disable-bias-linear` removes the biases of MLP and attention together; `--add-qkv-bias` brings those of queries,
  keys and values back.
- `--window-size` counts the tokens before a position, itself excluded.
- An integer `--window-attn-skip-freq` N means full attention in layers N, 2N ...; a list has 1 for a windowed layer.
- `--position-embedding-type yarn` rotates whole heads, whatever `--rotary-percent` says, and halves only.
- Experts know no fused GELU.
- Without `--padded-vocab-size`, the embedding has the rows of the tokenizer, whatever `--vocab-size` says. Qwen3's and
  DeepSeek-V3's tokenizers have fewer tokens than the models have rows.
- Megatron's dropouts, rotary base and norm epsilon have defaults other than most models', so they are always written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.core.domain import layout_chunks
from tuner.core.model import Model
from tuner.core.offload import OFFLOAD_OF_OPTIMIZER
from tuner.core.precision import bf16_layers, recipe_of, stores_fp8_weights
from tuner.export.flag_table import flag_table
from tuner.export.formats import (
    ExportOptions,
    Format,
    Settings,
    Treatment,
    expressed,
)
from tuner.export.megatron_common import (
    BASE_TREATMENTS,
    flash_in_half_precision,
    half_precision,
    has_window,
    has_yarn,
    is_rotary,
    is_windowed,
    number,
    numeric,
    position_type,
    same_as_mlp,
    switch,
    training_flags,
    vocab_multiple,
)
from tuner.export.megatron_experts import EXPERT_TREATMENTS
from tuner.export.production import ProductionRun
from tuner.export.rendering import rendered
from tuner.launch.trainers.megatron_lm import (
    context_parallelism,
    core_exchange,
    gradient_exchange,
    moments_in_bf16,
    offloading,
    recomputation,
    stage_split,
    virtual_stages,
)
from tuner.launch.trainers.megatron_positions import LLAMA3, YARN_FACTORS, is_latent_yarn, is_llama3
from tuner.launch.trainers.megatron_precision import DELAYED_SCALING, RECIPE_FORMATS


def _activation(run: ProductionRun) -> Settings:
    model = run.workload.model
    flags: Mapping[tuple[bool, str], Settings] = {
        (True, "silu"): [("--swiglu",)],
        (True, "quick_gelu"): [("--quick-geglu",), ("--no-bias-gelu-fusion",)],
        (False, "relu2"): [("--squared-relu",), ("--no-bias-gelu-fusion",)],
        (False, "gelu"): [("--no-bias-gelu-fusion",)],
    }
    return flags.get((model.gated_mlp, model.mlp_activation), [])


def _has_activation(run: ProductionRun) -> bool:
    model = run.workload.model
    if model.gated_mlp:
        return model.mlp_activation in ("silu", "quick_gelu")
    fused = model.mlp_activation == "gelu_tanh" and model.mlp_bias and model.experts is None
    return fused or model.mlp_activation in ("relu2", "gelu")


def _biases(run: ProductionRun) -> Settings:
    model = run.workload.model
    flags: Settings = [] if model.mlp_bias else [("--disable-bias-linear",)]
    return flags + [("--add-qkv-bias",)] * (model.qkv_bias and not model.mlp_bias)


def _positions(run: ProductionRun) -> Settings:
    model = run.workload.model
    flags: Settings = [("--position-embedding-type", position_type(run))]
    turned = is_rotary(run) and model.rotary_interleaved and not model.latent
    return flags + [("--rotary-interleaved",), ("--no-rope-fusion",)] * turned


def _skips(run: ProductionRun) -> bool:
    """Return whether only some layers lack a rotary embedding."""
    return is_rotary(run) and run.workload.model.rotary_skip > 0


def _scaling(run: ProductionRun) -> Settings:
    scaling = run.workload.model.rotary_scaling
    if scaling is None or not is_rotary(run) or run.workload.model.latent:
        return []
    if scaling.kind == "linear":
        return [("--rotary-seq-len-interpolation-factor", number(scaling.factor))]
    if scaling.kind == "llama3":
        return [("--use-rope-scaling",), ("--rope-scaling-factor", number(scaling.factor))]
    return [
        ("--rotary-scaling-factor", number(scaling.factor)),
        ("--yarn-original-max-position-embeddings", str(scaling.original_seq)),
        ("--yarn-beta-fast", number(scaling.beta_fast)),
        ("--yarn-beta-slow", number(scaling.beta_slow)),
        *zip(("--mscale", "--mscale-all-dim"), map(number, YARN_FACTORS), strict=True),
        *([] if scaling.truncate else [("--no-yarn-correction-range-round-to-int",)]),
    ]


def _has_scaling(run: ProductionRun) -> bool:
    scaling = run.workload.model.rotary_scaling
    if run.workload.model.latent:
        return is_latent_yarn(scaling)
    if scaling is None or not is_rotary(run):
        return True
    if scaling.kind == "linear":
        return scaling.factor == int(scaling.factor)
    if scaling.kind == "llama3":
        return is_llama3(scaling, factor=LLAMA3.factor)
    return has_yarn(run)


def _rotary_number(flag: str, field: str, *, whole: bool = False) -> Treatment:
    """Return the treatment of a number of the rotary embedding that one flag sets, as an integer if `whole`."""

    def value(run: ProductionRun) -> float:
        return float(getattr(run.workload.model, field))

    return expressed(
        flag,
        lambda run: [(flag, number(value(run)))] * is_rotary(run),
        only="whole numbers" if whole else "",
        accepts=lambda run: not (whole and is_rotary(run)) or value(run).is_integer(),
    )


def _window(run: ProductionRun) -> Settings:
    model = run.workload.model
    if not is_windowed(run):
        return []
    flags: Settings = [("--window-size", f"{model.sliding_window - 1},0")]
    if model.window_start:
        return [*flags, ("--window-attn-skip-freq", _windowed_layers(model))]
    return flags + [("--window-attn-skip-freq", str(model.window_skip))] * bool(model.window_skip)


def _windowed_layers(model: Model) -> str:
    """Return the layers with a window in Megatron's notation: `([0]*21+[1]*7)`."""
    start = min(model.window_start, model.layers)
    periods, rest = divmod(model.layers - start, model.window_skip) if model.window_skip else (0, model.layers - start)
    parts = [f"[0]*{start}", f"([1]*{model.window_skip - 1}+[0])*{periods}" * (periods > 0), f"[1]*{rest}" * (rest > 0)]
    return f"({'+'.join(filter(None, parts))})"


def _vocabulary(run: ProductionRun) -> Settings:
    model = run.workload.model
    rows = model.padded_vocab(run.topology.tp)
    return [("--vocab-size", str(model.vocab)), ("--padded-vocab-size", str(rows))]


def _precision(run: ProductionRun) -> Settings:
    recipe = recipe_of(run.workload)
    if recipe is None:
        return half_precision(run)
    name = f"--{run.workload.precision}"
    flags = [*half_precision(run), (f"{name}-format", RECIPE_FORMATS[recipe]), (f"{name}-recipe", recipe)]
    if recipe == "delayed":
        flags += [(f"--{name.replace('_', '-')}", str(value)) for name, value in DELAYED_SCALING.items()]
    if stores_fp8_weights(run.workload):
        flags += [("--fp8-param-gather",)] + [("--reuse-grad-buf-for-mxfp8-param-ag",)] * (recipe == "mxfp8")
    if any(kept := bf16_layers(run.workload)):
        ends = zip(("start", "end"), kept, strict=True)
        counts = [(f"--num-layers-at-{end}-in-bf16", str(layers)) for end, layers in ends]
        flags += [("--first-last-layers-bf16",), *counts]
    return flags


def _attention(run: ProductionRun) -> Settings:
    if run.workload.attention == "eager":
        return [
            ("--transformer-impl", "local"),
            ("--no-masked-softmax-fusion",),
            ("--no-gradient-accumulation-fusion",),
        ]
    backend = attention_backend(run)
    chosen: Settings = [("--attention-backend", backend)] if backend != "auto" else []
    return [("--transformer-impl", "transformer_engine"), *chosen]


def attention_backend(run: ProductionRun) -> str:
    """Return the attention backend.

    Only cuDNN's flash attention ("fused") supports sinks and two head sizes. Otherwise Transformer Engine chooses, as
    the estimate assumes: cuDNN from Hopper on, FlashAttention before ("flash" would switch cuDNN off).
    """
    if run.workload.attention == "fused":
        return "unfused"
    return "fused" if run.workload.model.attention_sinks or run.workload.model.latent else "auto"


def _splits(run: ProductionRun) -> bool:
    """Return whether the stages have equal size, or a layout leaves a layer for the last stage."""
    chunks = run.topology.pp * run.topology.vpp
    if run.topology.partition == "layout":
        return chunks > 1 and layout_chunks(run.workload.model.layers, chunks)[1] > 0
    return run.topology.split_units(run.workload.model.layers) % chunks == 0


def _has_context_parallelism(run: ProductionRun) -> bool:
    """Return whether ranks can exchange keys and values, for which all-to-all (sinks) divides a rank's heads."""
    model, topology = run.workload.model, run.topology
    if topology.cp == 1 or run.workload.attention not in ("flash1", "flash2"):
        return topology.cp == 1
    shares = [heads // topology.tp for heads in (model.heads, max(model.kv_heads, topology.tp))]
    return core_exchange(run.workload) != "a2a" or all(share % topology.cp == 0 for share in shares)


_TREATMENTS: Final[Mapping[str, Treatment]] = {
    **BASE_TREATMENTS,
    **EXPERT_TREATMENTS,
    "kv_heads": expressed(
        "--group-query-attention, --num-query-groups",
        lambda r: (
            [("--group-query-attention",), ("--num-query-groups", str(r.workload.model.kv_heads))]
            if r.workload.model.kv_heads != r.workload.model.heads
            else []
        ),
    ),
    "activation": expressed(
        "--swiglu, --quick-geglu, --squared-relu, --no-bias-gelu-fusion",
        _activation,
        only="SwiGLU, quick GeGLU, squared ReLU, exact GELU, and tanh-approximated GELU with an MLP bias, no experts",
        accepts=_has_activation,
    ),
    "norm": expressed(
        "--normalization",
        lambda r: [("--normalization", {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}[r.workload.model.norm])],
    ),
    "norm_epsilon": numeric("--norm-epsilon", "norm_epsilon"),
    "norm_offset": expressed(
        "--apply-layernorm-1p",
        lambda r: [("--apply-layernorm-1p",)] * r.workload.model.norm_offset,
        only="with Transformer Engine (any attention but eager)",
        accepts=lambda r: not r.workload.model.norm_offset or r.workload.attention != "eager",
    ),
    "qk_norm": expressed(
        "--qk-layernorm",
        lambda r: [("--qk-layernorm",)] * r.workload.model.qk_norm,
        only="one norm for all heads",
        accepts=lambda r: not r.workload.model.qk_norm or r.workload.model.qk_norm_span == "head",
    ),
    "mlp_bias": expressed("--disable-bias-linear", _biases),
    "attention_bias": same_as_mlp("attention_bias"),
    "qkv_bias": expressed(
        "--add-qkv-bias",
        only="biases wherever the MLP has them",
        accepts=lambda r: r.workload.model.qkv_bias or not r.workload.model.mlp_bias,
    ),
    "positions": expressed(
        "--position-embedding-type",
        _positions,
        only="learned, rotary, none",
        accepts=lambda r: r.workload.model.positions != "alibi",
    ),
    "rotary_base": _rotary_number("--rotary-base", "rotary_base", whole=True),
    "rotary_fraction": _rotary_number("--rotary-percent", "rotary_fraction"),
    "rotary_interleaved": expressed("--rotary-interleaved, --no-rope-fusion"),
    "rotary_skip": expressed(
        "--no-rope-freq",
        lambda r: [("--no-rope-freq", str(r.workload.model.rotary_skip))] * _skips(r),
        only="a divisor of the layers",
        accepts=lambda r: not _skips(r) or r.workload.model.layers % r.workload.model.rotary_skip == 0,
    ),
    "rotary_scaling": expressed(
        "--use-rope-scaling, --rotary-seq-len-interpolation-factor, --position-embedding-type yarn",
        _scaling,
        only="llama3 by 8 with factors 1 and 4 from 8192 tokens, linear by integers, non-interleaved yarn over whole "
        "heads, with latent attention from 4096 tokens with betas 32 and 1",
        accepts=_has_scaling,
    ),
    "sliding_window": expressed(
        "--window-size, --window-attn-skip-freq",
        _window,
        only="with flash attention, and from a later layer on without multi-token prediction",
        accepts=has_window,
    ),
    "tied_embeddings": switch("--untie-embeddings-and-output-weights", "tied_embeddings", on=False),
    "vocab": expressed("--padded-vocab-size", _vocabulary),
    "vocab_multiple": vocab_multiple("--padded-vocab-size"),
    "precision": expressed(
        "--fp16, --bf16, --fp8-format, --fp8-recipe, --fp8-amax-*, --fp4-format, --fp4-recipe",
        _precision,
        only="fp32, fp16, bf16, and with Transformer Engine fp8 except rowwise scaling, and fp4",
        accepts=lambda r: (
            not r.workload.is_quantized or (recipe_of(r.workload) in RECIPE_FORMATS and r.workload.attention != "eager")
        ),
    ),
    "attention": flash_in_half_precision("--transformer-impl, --attention-backend", _attention),
    "vpp": expressed("--num-layers-per-virtual-pipeline-stage", lambda r: virtual_stages(r.workload.model, r.topology)),
    "cp": expressed(
        "--context-parallel-size, --cp-comm-type",
        lambda r: context_parallelism(r.workload, r.topology),
        only="with flash attention; with attention sinks, divisors of a rank's heads and key/value heads",
        accepts=_has_context_parallelism,
    ),
    "zero": expressed(
        "--use-distributed-optimizer, --overlap-grad-reduce, --overlap-param-gather",
        lambda r: gradient_exchange(r.topology),
        only="0, 1",
        accepts=lambda r: r.topology.zero <= 1,
    ),
    "optimizer": expressed(
        "--optimizer, --use-precision-aware-optimizer, --exp-avg-dtype, --exp-avg-sq-dtype",
        lambda r: [("--optimizer", r.workload.optimizer.partition("-")[0]), *moments_in_bf16(r.workload)],
        only="adam, sgd, muon, or adam-bf16 with ZeRO 1 and without offload, whose moments are in fp32",
        accepts=lambda r: (
            r.workload.optimizer in ("adam", "sgd", "muon")
            or (r.workload.optimizer == "adam-bf16" and r.topology.zero == 1 and r.topology.offload == "none")
        ),
    ),
    "offload": expressed(
        "--optimizer-cpu-offload, --optimizer-offload-fraction, --overlap-cpu-optimizer-d2h-h2d, "
        "--use-precision-aware-optimizer",
        lambda r: offloading(r.topology),
        only="none, or the optimizer or a part of it with ZeRO 1",
        accepts=lambda r: (
            r.topology.offload == "none" or (r.topology.offload in OFFLOAD_OF_OPTIMIZER and r.topology.zero == 1)
        ),
    ),
    "recompute": expressed(
        "--recompute-granularity, --recompute-method, --recompute-modules", lambda r: recomputation(r.topology)
    ),
    "partition": expressed(
        "--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split, "
        "--pipeline-model-parallel-layout",
        lambda r: stage_split(r.workload.model, r.topology),
        only="stages of equal size, or fewer layers on the last",
        accepts=_splits,
    ),
}


def megatron_core_flags(run: ProductionRun, options: ExportOptions | None = None) -> Settings:
    """Return the flags of pretrain_gpt.py for a run."""
    flags = MEGATRON_CORE.settings(run, options or ExportOptions())
    return [*flags, ("--cross-entropy-loss-fusion",), *training_flags(run), ("--log-throughput",)]


def _render(run: ProductionRun, options: ExportOptions, chosen: Format) -> Mapping[str, str]:
    flags, version = megatron_core_flags(run), flag_table("megatron-core").version
    return {
        name: rendered(f"megatron.{name}", run, flags=flags, version=version, site=options.site)
        for name in chosen.launch_files
    }


MEGATRON_CORE: Final = Format(
    name="megatron-core",
    aliases=("megatron-lm",),
    title="Megatron-LM",
    summary="`pretrain_gpt.py` of NVIDIA/Megatron-LM, under Slurm",
    framework="megatron-core",
    launch_files=("launch.sbatch",),
    render=_render,
    treatments=lambda _: _TREATMENTS,
    table=lambda *_: "megatron-core",
    flags=megatron_core_flags,
)
