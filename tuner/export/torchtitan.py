"""torchtitan: a Python recipe that returns its configuration, which torchtitan prefers to flags, and a launch script.

Facts are of pytorch/torchtitan at b5bcd76 (August 2026): models/llama3/__init__.py, models/qwen3/__init__.py, models/
common/moe.py, models/common/decoder.py, components/quantization/float8.py and mx.py, config/configs.py, trainer.py and
distributed/activation_checkpoint.py. The recipe derives from a registered size of Llama 3 or mixture of Qwen3, sets
norm epsilon, rotary embedding and Llama's initial embeddings (torchtitan's own have a standard deviation of one), and
refuses to run if torchtitan's own numbers of that size have changed. Tied embeddings exclude a pipeline, and experts
multiply in bf16 whatever the precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from tuner.core.experts import Experts
from tuner.core.frameworks import RECORDS
from tuner.core.model import Model
from tuner.core.precision import bf16_layers, stores_fp8_weights
from tuner.core.recompute import GRANULARITIES
from tuner.core.text import listed
from tuner.export.formats import (
    OFFLOADS_OF_FSDP,
    WITHOUT_EXPERTS,
    ExportOptions,
    Format,
    Treatment,
    expressed,
    offloads_as_fsdp,
    trains_only,
)
from tuner.export.identity import PROPERTIES
from tuner.export.production import WARM_UP_SHARE, ProductionRun
from tuner.export.rendering import rendered
from tuner.launch.ds_config import LEARNING_RATE
from tuner.launch.trainers.torchtitan import FLAVORS, has_no_cuda_graphs, parallelism

VOCAB: Final = 128256

MIXTURES: Final[Mapping[str, Mapping[str, int]]] = {
    "30B-A3B": {"layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "count": 128, "top_k": 8, "ffn": 768},
    "235B-A22B": {"layers": 94, "hidden": 4096, "heads": 64, "kv_heads": 4, "count": 128, "top_k": 8, "ffn": 1536},
}
"""Mixtures of Qwen3 in torchtitan's registry."""

_CONVERTERS: Final[Mapping[str, tuple[str, Mapping[str, list[str]]]]] = {
    "rowwise": ("Float8LinearConverter", {"filter_fqns": ["lm_head"]}),
    "mxfp8": ("MXFP8LinearConverter", {"fqns": ["layers."]}),
}
"""The converter of each FP8 recipe, and the fields that keep it from the output layer, which it converts by default."""

_BACKENDS: Final = {"alltoall": "standard", "deepep": "deepep", "hybridep": "hybridep"}
"""torchtitan's `moe_comm_backend` for each dispatcher."""


def flavor_of(model: Model) -> str:
    """Return the registered size that equals the model, or an empty string."""
    if experts := model.experts:
        own = {name: getattr(model, name) for name in ("layers", "hidden", "heads", "kv_heads")}
        own |= {"count": experts.count, "top_k": experts.top_k, "ffn": experts.ffn}
        return next((name for name, flavor in MIXTURES.items() if flavor == own and not model.tied_embeddings), "")
    sizes = {name: getattr(model, name) for name in FLAVORS["8B"]}
    return next((name for name, flavor in FLAVORS.items() if flavor == sizes), "")


def _render(run: ProductionRun, options: ExportOptions, _: Format) -> Mapping[str, str]:
    return {
        "recipe.py": rendered("torchtitan.recipe.py", run, values=_values(run)),
        "launch.sh": rendered("torchtitan.launch.sh", run, site=options.site, trainer_environment={}),
    }


def _values(run: ProductionRun) -> dict[str, Any]:
    """Return the values of the recipe, each as a Python literal."""
    model, topology, workload = run.workload.model, run.topology, run.workload
    settings = parallelism(topology, topology.split_units(model.layers))
    if topology.pp > 1:
        settings["num_pp_microbatches"] = run.microbatches
    scaling = workload.precision_recipe or "rowwise"
    converter, converted = _CONVERTERS[scaling] if workload.precision == "fp8" else ("", {})
    registry: dict[str, Any] = {}
    mixture: dict[str, Any] = {}
    if experts := model.experts:
        settings["expert_parallel_degree"] = topology.ep
        registry["moe_comm_backend"] = _BACKENDS[topology.dispatcher]
        mixture = {
            "attention.qk_norm.eps": model.norm_epsilon,
            "moe.load_balance_coeff": experts.router_bias_rate if experts.router_bias else None,
        }
    return {
        "family": "qwen3" if experts else "llama3",
        "flavor": flavor_of(model),
        "registry": registry,
        "mixture": mixture,
        "sizes": {"dim": model.hidden, "vocab_size": model.vocab, "layers": model.layers},
        "epsilon": model.norm_epsilon,
        "initial": None if experts else model.init_std,
        "tied": model.tied_embeddings,
        "rope": _rope(model),
        "parallelism": settings,
        "training": _training(run),
        "checkpointing": {"full": "FullAC", "selective": "SelectiveAC", "none": ""}[topology.recompute],
        "converter": converter,
        "converted": converted,
        "learning_rate": LEARNING_RATE,
        "warmup_steps": round(WARM_UP_SHARE * run.iterations),
    }


def _rope(model: Model) -> dict[str, Any]:
    """Return the fields of the rotary embedding."""
    found = {"theta": model.rotary_base, "scaling": "none", "max_context_length": model.seq}
    if scaling := model.rotary_scaling:
        found |= {
            "scaling": "llama",
            "scaling_factor": scaling.factor,
            "low_freq_factor": scaling.low_frequency,
            "high_freq_factor": scaling.high_frequency,
            "original_max_position_embeddings": scaling.original_seq,
        }
    return found


def _training(run: ProductionRun) -> dict[str, Any]:
    """Return the fields of `TrainingConfig`."""
    topology, workload = run.topology, run.workload
    seq = workload.model.seq
    return {
        "num_tokens_per_microbatch_per_dp_rank": topology.micro_batch * seq,
        "num_tokens_per_train_step": workload.global_batch * seq,
        "max_context_length": seq,
        "steps": run.iterations,
        "dtype": "float32",
        "mixed_precision_param": "float32" if workload.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
        **({"disable_cuda_graphs": True} if has_no_cuda_graphs(topology) else {}),
        **({"enable_cpu_offload": True} if topology.offload == "optimizer+parameters" else {}),
    }


def _equals(name: str, value: Any) -> Callable[[ProductionRun], bool]:
    def equals(run: ProductionRun) -> bool:
        model = run.workload.model
        fixed = _QWEN3.get(name, value) if model.experts else value
        return bool((model.window if name == "sliding_window" else getattr(model, name)) == fixed)

    return equals


_LOSS: Final = "a load-balancing loss"


def _unlike_qwen3(run: ProductionRun) -> list[str]:
    """Return how a run's routing differs from that of torchtitan's Qwen3."""
    experts = run.workload.model.experts
    if experts is None:
        return []
    usual = Experts(count=experts.count, top_k=experts.top_k, ffn=experts.ffn, router_bias=experts.router_bias)
    balanced = f"{_LOSS} of {experts.aux_loss:g}"
    words = {
        **dict.fromkeys(("shared_ffn", "shared_gate"), "shared experts"),
        **dict.fromkeys(("dense_layers", "period"), "layers without experts"),
        "router": f"a {experts.router} router",
        "router_bias_rate": f"a step of {experts.router_bias_rate:g} of the balancing bias",
        "router_linear_bias": "a bias of the router",
        **dict.fromkeys(("router_groups", "router_top_groups", "router_group_scores"), "groups of experts"),
        "normalized": "weights that are not normalized",
        "scale": f"weights times {experts.scale:g}",
        "weights_before": "weights on the experts' inputs",
        "capacity_factor": f"a capacity factor of {experts.capacity_factor:g}",
        "expert_bias": "biases of the experts",
        **dict.fromkeys(("aux_loss", "aux_loss_per_sequence"), balanced),
        "z_loss": f"a z-loss of {experts.z_loss:g}",
    }
    names = [one.name for one in fields(experts) if getattr(experts, one.name) != getattr(usual, one.name)]
    return list(dict.fromkeys(words.get(name, name) for name in names))


def _why_unlike_qwen3(differences: list[str]) -> str:
    """Return why torchtitan's Qwen3 is another model, and how to train without a loss that it lacks."""
    only_loss = len(differences) == 1 and differences[0].startswith(_LOSS)
    remedy = "; to train without this loss, set aux_loss = 0 in a TOML file of the model" if only_loss else ""
    return (
        f"the model has {listed(differences)}, and torchtitan's Qwen3 has a softmax router with normalized weights and "
        f"no shared experts, load-balancing loss or limit on an expert's tokens{remedy}"
    )


def _shares_experts(run: ProductionRun) -> bool:
    """Return whether ep divides the ranks of a shard group (config/configs.py: expert_parallel_degree)."""
    topology = run.topology
    return topology.tp * topology.cp * (topology.dp // topology.hsdp) % topology.ep == 0


def _registered(run: ProductionRun) -> bool:
    return bool(flavor_of(run.workload.model))


def _scalable(run: ProductionRun) -> bool:
    """Return whether the rotary embedding is unscaled, or scaled like Llama 3, which Qwen3's does not support."""
    scaling, experts = run.workload.model.rotary_scaling, run.workload.model.experts
    return scaling is None or (experts is None and scaling.kind == "llama3" and scaling.original_seq > 0)


def _has_precision(run: ProductionRun) -> bool:
    """Return whether all matrix products, including those of experts, and weights have the precision of the run."""
    precision, recipe = run.workload.precision, run.workload.precision_recipe
    fp8 = precision == "fp8" and recipe in (None, "rowwise", "mxfp8")
    fp8 = fp8 and not (stores_fp8_weights(run.workload) or any(bf16_layers(run.workload)))
    return precision == "bf16" or ((precision == "fp32" or fp8) and run.workload.model.experts is None)


_LLAMA: Final[Mapping[str, Any]] = {
    "norm": "rmsnorm",
    "norm_offset": False,
    "norm_weight": True,
    "norm_bias": True,
    "final_norm": True,
    "embedding_norm": False,
    "qkv_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "head_bias": False,
    "parallel_attention": False,
    "positions": "rotary",
    "rotary_fraction": 1.0,
    "rotary_interleaved": False,
    "rotary_local_base": 0.0,
    "rotary_skip": 0,
    "sliding_window": 0,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "embedding_dropout": 0.0,
    "attention_softcap": 0.0,
    "logit_softcap": 0.0,
    "attention_scale": 0.0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "logit_scale": 1.0,
    "init_std": 0.02,
    "vocab": VOCAB,
    "frozen_params": 0,
    "not_understood": (),
}
"""The properties of torchtitan's Llama 3, apart from its sizes."""

_LABELS: Final[Mapping[str, str]] = {
    "norm": "RMSNorm",
    "norm_weight": "norms with weights",
    "norm_bias": "the default",
    "final_norm": "a final norm",
    "parallel_attention": "attention, then MLP",
    "rotary_interleaved": "non-interleaved pairs",
    "rotary_local_base": "one base for all layers",
    "attention_scale": "the default, 1 / sqrt(head size)",
    **dict.fromkeys(("rotary_fraction", "embedding_scale", "residual_scale", "logit_scale"), "1"),
    **dict.fromkeys(("attention_dropout", "hidden_dropout", "embedding_dropout"), "0"),
}
"""Names of these values in the documentation; those that are false or empty are called none."""

_QWEN3: Final[Mapping[str, Any]] = {"vocab": 151936}
"""Differences of torchtitan's Qwen3 from its Llama 3."""

_SIZES: Final = ("layers", "hidden", "heads", "kv_heads", "ffn", "tied_embeddings")


_EXPORTED: Final = f"Llama 3 {', '.join(FLAVORS)} and Qwen3 {', '.join(MIXTURES)}"
"""The registered sizes that tuner exports; torchtitan registers more."""

_ROUTER: Final = "experts of Qwen3: softmax, normalized weights, no shared experts, no load-balancing loss, dropless"

_TREATMENTS: Final[Mapping[str, Treatment]] = {
    **{name: expressed("recipe.py") for name in PROPERTIES},
    **{
        name: trains_only(
            _LABELS.get(name, str(value) if value else "none")
            + (f", with experts {_QWEN3[name]}" if name in _QWEN3 else ""),
            _equals(name, value),
        )
        for name, value in _LLAMA.items()
    },
    **WITHOUT_EXPERTS,
    **dict.fromkeys(
        _SIZES,
        expressed("model_registry", only=_EXPORTED, accepts=_registered, because=f"tuner exports only {_EXPORTED}"),
    ),
    "activation": trains_only(
        "SwiGLU", lambda run: run.workload.model.gated_mlp and run.workload.model.mlp_activation == "silu"
    ),
    "norm_placement": trains_only(
        "before",
        lambda run: run.workload.model.norm_placement == "before" and run.workload.model.norms_per_layer == 2,
    ),
    "head_size": trains_only(
        "hidden / heads, with experts 128",
        lambda run: (
            run.workload.model.head_size == 128
            if run.workload.model.experts
            else run.workload.model.query_width == run.workload.model.hidden
        ),
    ),
    "experts": expressed(
        "model_registry, load_balance_coeff",
        only=_ROUTER,
        accepts=lambda run: not _unlike_qwen3(run),
        because=lambda run: _why_unlike_qwen3(_unlike_qwen3(run)),
    ),
    "ep": expressed(
        "expert_parallel_degree", only="degrees that divide tp x cp x the shard group", accepts=_shares_experts
    ),
    "dispatcher": expressed(
        "moe_comm_backend", only=", ".join(_BACKENDS), accepts=lambda run: run.topology.dispatcher in _BACKENDS
    ),
    "qk_norm": trains_only(
        "none, with experts one over each head",
        lambda run: (
            run.workload.model.qk_norm == (run.workload.model.experts is not None)
            and (not run.workload.model.qk_norm or run.workload.model.qk_norm_span == "head")
        ),
    ),
    "embedding_size": trains_only(
        "hidden size", lambda run: run.workload.model.embedding_size == run.workload.model.hidden
    ),
    "vocab_multiple": expressed("no padding, which adds only rows that are never used"),
    "rotary_scaling": expressed("RoPE.Config", only="none and llama3, with experts none", accepts=_scalable),
    "precision": expressed(
        "mixed_precision_param, Float8LinearConverter",
        only="bf16, without experts fp32 and fp8 with rowwise or mxfp8 scaling",
        accepts=_has_precision,
    ),
    "optimizer": trains_only("adam", lambda run: run.workload.optimizer == "adam"),
    "ramp": trains_only("none", lambda run: run.workload.ramp is None),
    "attention": expressed("torchtitan's attention backend"),
    "zero": expressed("fsdp_reshard_after_forward", only="2 and 3", accepts=lambda run: run.topology.zero in (2, 3)),
    "moe_overlap": trains_only("off", lambda run: not run.topology.moe_overlap),
    "recompute": expressed(
        "activation_checkpoint",
        only=", ".join(GRANULARITIES),
        accepts=lambda run: run.topology.recompute in GRANULARITIES,
    ),
    "hsdp": expressed("data_parallel_replicate_degree"),
    "offload": expressed("enable_cpu_offload", only=OFFLOADS_OF_FSDP, accepts=offloads_as_fsdp),
    "pp": expressed(
        "pipeline_parallel_degree",
        only="degrees that divide the layers, 1 with tied embeddings",
        accepts=lambda run: (
            run.topology.split_units(run.workload.model.layers) % (run.topology.pp * run.topology.vpp) == 0
            and (run.topology.pp == 1 or RECORDS["torchtitan"].pipelines(run.workload.model))
        ),
        because=lambda run: "with tied embeddings" if run.workload.model.tied_embeddings else "",
    ),
}


TORCHTITAN: Final = Format(
    name="torchtitan",
    title="torchtitan",
    subject="tuner's recipe for torchtitan",
    summary="a recipe for pytorch/torchtitan",
    framework="torchtitan",
    launch_files=("launch.sh", "recipe.py"),
    render=_render,
    treatments=lambda _: _TREATMENTS,
)
