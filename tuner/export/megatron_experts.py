"""Flags of Megatron-LM for experts, latent attention, Gated DeltaNet and multi-token prediction.

Read from megatron-core at the commit of the recorded flag table, where a name alone would mislead:

- Under softmax, the weights of the chosen experts are a softmax over their scores (normalised) unless
  `--moe-router-pre-softmax` takes it over all experts. Under sigmoid they are divided by their sum if there are two or
  more, and the balancing bias exists there alone.
- A group of experts ranks by the sum of its best `topk // group-topk` scores, which are logits under a softmax over the
  chosen experts.
- An integer `--moe-layer-freq` N means experts in layers 0, N, 2N ..., so that a list is written for any pattern.
- Biases of experts and router come with those of all linear layers. Grouped products then refuse to start with fused
  dropout, and shared experts have none.
- SwiGLU is clamped in mixtures alone, and only without an offset.
- Latent attention turns neighbours, normalises its latent vectors only with `--qk-layernorm`, and reads yarn from
  `--rope-type`, `--rotary-scaling-factor` and the two scales; the original length is 4096 and the betas are 32 and 1.
- Without `--q-lora-rank`, `--qk-layernorm` also puts a norm of its own before the projection of the queries, whose
  input the layer has normalised already (mla_qk_norm_config.py, since megatron-core 0.19).
- Gated DeltaNet is `gated_delta_net` in all releases since 0.16, though the recorded commit prefers `gdn`. Its
  layers need flash-linear-attention and Transformer Engine, and have no biases; a layer of multi-token prediction is
  like the last layer.
- `--expert-tensor-parallel-size` defaults to the tensor parallel degree, so that it is always written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from tuner.core.domain import DISPATCHERS
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.core.text import counted, listed
from tuner.export.formats import Settings, Treatment, expressed, trains_only
from tuner.export.megatron_common import number, usual_scale
from tuner.export.production import ProductionRun
from tuner.launch.trainers.megatron_lm import dispatch, overlap
from tuner.launch.trainers.megatron_positions import latent_scales

LIKE_LATENT: Final = "RMSNorm with one epsilon everywhere, interleaved rotary pairs, no biases"
"""Latent attention that all releases of Megatron support."""


def layer_pattern(model: Model) -> str:
    """Return the layers with experts in Megatron's notation: `([0]*3+[1]*58)`."""
    experts = model.experts
    if experts is None or experts.period == 1:
        return f"([0]*{model.dense_mlp_layers}+[1]*{model.moe_layers})"
    periods, rest = divmod(model.layers - experts.dense_layers, experts.period)
    parts = [f"[0]*{experts.dense_layers}", f"([0]*{experts.period - 1}+[1])*{periods}", f"[0]*{rest}"]
    return f"({'+'.join(part for part in parts if not part.startswith('[0]*0'))})"


def _experts(run: ProductionRun) -> Settings:
    model = run.workload.model
    experts = model.experts
    if experts is None:
        return []
    flags: Settings = [
        ("--num-experts", str(experts.count)),
        ("--moe-router-topk", str(experts.top_k)),
        ("--moe-ffn-hidden-size", str(experts.ffn)),
        ("--moe-router-score-function", experts.router),
        ("--moe-router-load-balancing-type", balancing(experts)),
        ("--moe-router-dtype", "fp32"),
    ]
    if model.dense_mlp_layers:
        flags.append(("--moe-layer-freq", layer_pattern(model)))
    if experts.aux_loss:
        flags.append(("--moe-aux-loss-coeff", number(experts.aux_loss)))
    if experts.z_loss:
        flags.append(("--moe-z-loss-coeff", number(experts.z_loss)))
    if experts.shared_ffn:
        flags.append(("--moe-shared-expert-intermediate-size", str(experts.shared_ffn)))
        flags += [("--moe-shared-expert-gate",)] * experts.shared_gate
    if experts.router_groups:
        flags.append(("--moe-router-num-groups", str(experts.router_groups)))
        flags.append(("--moe-router-group-topk", str(experts.router_top_groups)))
    if experts.router_bias:
        flags.append(("--moe-router-bias-update-rate", number(experts.router_bias_rate)))
    if experts.scale != 1:
        flags.append(("--moe-router-topk-scaling-factor", number(experts.scale)))
    flags += [("--moe-router-pre-softmax",)] * pre_softmax(experts)
    flags += [("--moe-router-enable-expert-bias",)] * experts.router_bias
    flags += [("--moe-apply-probs-on-input",)] * experts.weights_before
    if experts.capacity_factor:
        flags.append(("--moe-expert-capacity-factor", number(experts.capacity_factor)))
    if run.workload.attention != "eager":  # Transformer Engine's grouped GEMMs and fused permutation
        flags += [("--moe-grouped-gemm",), ("--moe-permute-fusion",)]
        flags += [("--no-bias-dropout-fusion",)] * model.mlp_bias
    return flags


def balancing(experts: Experts) -> str:
    """Return Megatron's name of the load balancing."""
    if not experts.aux_loss:
        return "none"
    return "seq_aux_loss" if experts.aux_loss_per_sequence else "aux_loss"


def pre_softmax(experts: Experts) -> bool:
    """Return whether the softmax is over all experts."""
    return experts.router == "softmax" and not experts.normalized


def _unroutable(run: ProductionRun) -> str:
    """Return the properties of a run's experts that Megatron does not support."""
    model = run.workload.model
    experts = model.experts
    if experts is None:
        return ""
    sigmoid, several = experts.router == "sigmoid", experts.top_k > 1
    scores = experts.router_group_scores
    refused = {
        "normalized sigmoid weight of one expert": sigmoid and experts.normalized and not several,
        "sigmoid weights that are not normalized": sigmoid and not experts.normalized and several,
        "softmax over one expert": not sigmoid and experts.normalized and not several,
        f"groups ranked by {counted(scores, 'score')}": experts.router_groups
        and scores != experts.top_k // experts.router_top_groups,
        "groups under a softmax over the chosen experts": experts.router_groups
        and scores > 1
        and not (sigmoid or pre_softmax(experts)),
        "experts scaled by 0": experts.scale <= 0,
        "biases of shared experts": experts.shared_ffn and model.mlp_bias,
        "biases in part": not experts.expert_bias == experts.router_linear_bias == model.mlp_bias,
        "a gate without shared experts": experts.shared_gate and not experts.shared_ffn,
        "a balancing bias under softmax": experts.router_bias and not sigmoid,
        "weights on the input of several experts": experts.weights_before and several,
        "a capacity factor without alltoall": experts.capacity_factor and run.topology.dispatcher != "alltoall",
        "biases with etp above 1": model.mlp_bias and run.topology.etp > 1,
    }
    return listed(name for name, found in refused.items() if found)


def _latent(run: ProductionRun) -> Settings:
    model = run.workload.model
    latent, scaling = model.latent, model.rotary_scaling
    if latent is None:
        return []
    flags: Settings = [
        ("--multi-latent-attention",),
        ("--kv-lora-rank", str(latent.kv_rank)),
        ("--qk-head-dim", str(latent.nope_size)),
        ("--qk-pos-emb-head-dim", str(latent.rope_size)),
        ("--v-head-dim", str(latent.value_size)),
        ("--qk-layernorm",),
        ("--rope-type", "yarn" if scaling else "rope"),
        ("--no-rope-fusion",),
    ]
    if latent.query_rank:
        flags.append(("--q-lora-rank", str(latent.query_rank)))
    if scaling:
        mscale, mscale_all = latent_scales(model)
        flags += [
            ("--rotary-scaling-factor", number(scaling.factor)),
            ("--mscale", number(mscale)),
            ("--mscale-all-dim", number(mscale_all)),
        ]
    return flags


def unlike_latent(run: ProductionRun) -> str:
    """Return the properties of a run's latent attention that no release of Megatron supports."""
    model = run.workload.model
    if model.latent is None:
        return ""
    refused = {
        "positions other than rotary": model.positions != "rotary",
        "non-interleaved rotary pairs": model.positions == "rotary" and not model.rotary_interleaved,
        f"rotary fraction {model.rotary_fraction:g}": model.rotary_fraction != 1,
        "layers without a rotary embedding": model.rotary_skip,
        "norms other than RMSNorm": model.norm != "rmsnorm",
        "norms without biases": not model.norm_bias,
        f"norm epsilon {model.latent.norm_epsilon:g} for latent vectors and {model.norm_epsilon:g} elsewhere": (
            model.latent.norm_epsilon != model.norm_epsilon
        ),
        "a norm of queries and keys": model.qk_norm,
        "biases of queries, keys and values": model.qkv_bias,
        "attention sinks": model.attention_sinks,
        "context parallelism under eager attention": run.topology.cp > 1 and run.workload.attention == "eager",
    }
    return listed(name for name, found in refused.items() if found)


def _unlike_latent_of_core(run: ProductionRun) -> str:
    """Return the same for the recorded commit, which normalizes queries twice if they have no latent vector."""
    latent = run.workload.model.latent
    twice = "queries without a latent vector, which Megatron normalizes twice"
    return "; ".join(filter(None, (unlike_latent(run), twice if latent and latent.direct_queries else "")))


def _delta_net(run: ProductionRun) -> Settings:
    delta = run.workload.model.delta_net
    if delta is None:
        return []
    layers = str(delta.period) if delta.period else f"([1]*{run.workload.model.layers})"
    return [
        ("--experimental-attention-variant", "gated_delta_net"),
        ("--linear-attention-freq", layers),
        ("--linear-conv-kernel-dim", str(delta.kernel)),
        ("--linear-key-head-dim", str(delta.key_size)),
        ("--linear-value-head-dim", str(delta.value_size)),
        ("--linear-num-key-heads", str(delta.key_heads)),
        ("--linear-num-value-heads", str(delta.value_heads)),
    ]


def unlike_delta_net(run: ProductionRun) -> str:
    """Return the properties of a run with Gated DeltaNet that Megatron does not support (NVIDIA/Megatron-LM at
    d98e8a64, megatron/core/ssm/gated_delta_net/common.py)."""
    model = run.workload.model
    if model.delta_net is None:
        return ""
    refused = {
        "eager attention": run.workload.attention == "eager",
        "norms other than RMSNorm": model.norm != "rmsnorm",
        f"{model.mlp_activation} activation": model.mlp_activation != "silu",
        "latent attention": model.latent,
        "biases": model.qkv_bias or model.attention_bias or model.mlp_bias,
        "multi-token prediction behind a layer without attention": (
            model.mtp_layers and not model.delta_net.has_attention(model.layers - 1)
        ),
    }
    return listed(name for name, found in refused.items() if found)


def _axis(flag: str, axis: str) -> Treatment:
    return expressed(
        flag,
        lambda run: [(flag, str(getattr(run.topology, axis)))] * (run.workload.model.experts is not None),
        only="1 without experts",
        accepts=lambda run: run.workload.model.experts is not None or getattr(run.topology, axis) == 1,
    )


def _predicted(run: ProductionRun) -> Settings:
    model = run.workload.model
    if not model.mtp_layers:
        return []
    return [("--mtp-num-layers", str(model.mtp_layers)), ("--mtp-loss-scaling-factor", number(model.mtp_loss))]


def _clamp(run: ProductionRun) -> Settings:
    model = run.workload.model
    flags: Settings = [("--activation-func-clamp-value", number(model.glu_clamp))] if model.glu_clamp else []
    return flags + [("--glu-linear-offset", number(model.glu_offset))] * (model.glu_offset > 0)


def _has_clamp(run: ProductionRun) -> bool:
    model = run.workload.model
    if not (model.glu_clamp or model.glu_offset):
        return True
    silu = model.mlp_activation == "silu"
    return model.gated_mlp and not (silu and (model.glu_offset or model.experts is None))


def _has_scale(run: ProductionRun) -> bool:
    """Return whether attention scores are scaled as usual, or for latent attention, as yarn's scales can express."""
    model = run.workload.model
    if model.latent is None:
        return usual_scale(run)
    scaled = model.rotary_scaling is not None and model.rotary_scaling.factor > 1
    usual = model.latent.key_size**-0.5
    return scaled or math.isclose(model.attention_scale or usual, usual, rel_tol=1e-6)


def _dispatcher(run: ProductionRun) -> Settings:
    return [] if run.workload.model.experts is None else [*dispatch(run.topology)]


EXPERT_TREATMENTS: Final[Mapping[str, Treatment]] = {
    "experts": expressed(
        "--num-experts, --moe-router-topk, --moe-ffn-hidden-size, --moe-layer-freq, --moe-shared-expert-*, "
        "--moe-router-*, --moe-aux-loss-coeff, --moe-grouped-gemm",
        _experts,
        only="sigmoid weights normalized, a balancing bias with sigmoid, groups ranked by topk / group-topk scores, "
        "biases of experts and router where the MLP has them",
        accepts=lambda run: not _unroutable(run),
        because=_unroutable,
    ),
    "latent": expressed(
        "--multi-latent-attention, --q-lora-rank, --kv-lora-rank, --qk-head-dim, --qk-pos-emb-head-dim, --v-head-dim, "
        "--rope-type",
        _latent,
        only=f"a latent vector of queries, {LIKE_LATENT}",
        accepts=lambda run: not _unlike_latent_of_core(run),
        because=_unlike_latent_of_core,
    ),
    "delta_net": expressed(
        "--experimental-attention-variant, --linear-attention-freq, --linear-conv-kernel-dim, --linear-key-head-dim, "
        "--linear-value-head-dim, --linear-num-key-heads, --linear-num-value-heads",
        _delta_net,
        only="RMSNorm, SiLU, no biases, Transformer Engine",
        accepts=lambda run: not unlike_delta_net(run),
        because=unlike_delta_net,
    ),
    "attention_gate": expressed(
        "--attention-output-gate",
        lambda run: [("--attention-output-gate",)] * run.workload.model.attention_gate,
    ),
    "mtp_layers": expressed(
        "--mtp-num-layers, --mtp-loss-scaling-factor",
        _predicted,
    ),
    "attention_sinks": expressed(
        "--softmax-type learnable",
        lambda run: [("--softmax-type", "learnable")] * run.workload.model.attention_sinks,
    ),
    "glu_clamp": expressed(
        "--activation-func-clamp-value, --glu-linear-offset",
        _clamp,
        only="with quick GeGLU, and a clamp of SwiGLU with experts",
        accepts=_has_clamp,
    ),
    "ep": _axis("--expert-model-parallel-size", "ep"),
    "etp": _axis("--expert-tensor-parallel-size", "etp"),
    "dispatcher": expressed(
        "--moe-token-dispatcher-type, --moe-flex-dispatcher-backend",
        _dispatcher,
        only="alltoall without experts",
        accepts=lambda run: run.workload.model.experts is not None or run.topology.dispatcher == DISPATCHERS[1],
    ),
    "moe_overlap": expressed("--overlap-moe-expert-parallel-comm", lambda run: overlap(run.topology)),
    "sequence_parallel": expressed(
        "--sequence-parallel",
        lambda run: [("--sequence-parallel",)] * run.topology.sequence_parallel,
        limit="required with experts and tensor parallelism",
        accepts=lambda run: (
            run.workload.model.experts is None or run.topology.tp == 1 or run.topology.sequence_parallel
        ),
    ),
    "attention_scale": trains_only("1 / sqrt(head size), with latent attention times yarn's scale", _has_scale),
}
