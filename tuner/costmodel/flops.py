"""Floating-point operations of one iteration, over the whole cluster.

One general count: any MLP width, gated or not, grouped queries, a head size of its own, and each kind of recompute. A
multiply-add counts as two. The attention's scores count whole and not by their causal half, as Megatron-LM counts
them, and those of a sliding window as twice what it contains; the embedding look-up and element-wise work do not count.

In a mixture of experts a token is counted through its router, its experts and the shared ones; with multi-token
prediction, through the layers that predict further tokens and their output layers too.

For the plain GPT with full recompute it is 96 B s L h^2 (1 + s/6h + V/16Lh), the estimate of Narayanan et al. 2021
(arXiv 2104.04473, section 5.1), which Megatron-DeepSpeed prints as TFLOPs since February 2022.

`printed_counts` has the formulas by which training programs print TFLOPs: a log's rate can only be read by the formula
that produced it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import Topology, Workload
from tuner.core.recompute import FULL

_FORWARD_AND_BACKWARD: Final = 3
"""The backward pass multiplies each matrix twice: once for the gradient of its input, once for its own."""


def forward_terms(columns: Columns, *, padded: bool = True) -> dict[str, FloatArray]:
    """FLOPs of the forward pass of one global batch, by product; without the vocabulary's padding unless `padded`."""
    model = columns.workload.model
    tokens = (columns.global_batch * model.seq).astype(np.float64)
    terms = {
        "layers": 2 * tokens * columns.layers * columns.layer_matrices,
        "scores": 4 * tokens * columns.attention_layers * (model.scored_tokens * columns.heads * columns.head_size),
        "logits": 2 * tokens * columns.hidden * (columns.padded_vocab if padded else model.vocab),
    }
    if model.experts or model.mtp_layers or model.delta_net:
        terms["layers"] = 2 * tokens * _token_matrices(columns, router=True, mlp=1.0)
    if model.latent or model.mtp_layers:
        sizes = model.latent.key_size + model.latent.value_size if model.latent else 2 * columns.head_size
        depth = columns.attention_layers + model.mtp_layers
        terms["scores"] = 2 * tokens * depth * (model.scored_tokens * columns.heads * sizes)
        terms["logits"] = terms["logits"] * (1 + model.mtp_layers)
    return terms


def _token_matrices(columns: Columns, *, router: bool, mlp: float) -> FloatArray:
    """Elements of the matrices of all layers that one token meets, with those of MLPs and experts times `mlp`."""
    model, hidden = columns.workload.model, columns.hidden.astype(np.float64)
    narrow: FloatArray = (3 if model.gated_mlp else 2) * mlp * hidden
    dense: FloatArray = narrow * columns.ffn
    moe, number, last = dense, 0 * columns.layers, False
    if model.experts:
        experts = model.experts
        width: FloatArray = experts.token_ffn / model.hidden * hidden
        moe = narrow * width + router * hidden * (experts.count + experts.shared_gate)
        number, last = experts.moe_layers_before(columns.layers), model.is_moe_layer(model.layers - 1)
    predictor = columns.attention_matrices + (moe if last else dense) + 2 * hidden**2
    layers = columns.layers * columns.mixing_matrices + (columns.layers - number) * dense + number * moe
    if model.delta_net:
        layers = layers + (columns.layers - columns.attention_layers) * model.delta_net.products
    total: FloatArray = layers + model.mtp_layers * predictor
    return total


def megatron_core_count(columns: Columns, *, gated: bool | None = None) -> FloatArray:
    """FLOPs that Megatron-Core and Megatron-Bridge divide by the time and print as TFLOP/s/GPU.

    The model's own operations with the causal half of the scores, those outside a window included, without the router
    and without recompute; the gate's matrix counts only under SwiGLU, or as `gated` says
    (`num_floating_point_operations` in Megatron-LM's megatron/training/training.py and in Megatron-Bridge 0.3.1's
    flop_utils.py, less its terms of one vector a layer). Releases of Megatron-Bridge after 26.04 count the gate of
    gpt-oss, whose activation is no SwiGLU.
    """
    model = columns.workload.model
    counts = model.mlp_activation == "silu" if gated is None else gated
    matrices = _token_matrices(columns, router=False, mlp=2 / 3 if model.gated_mlp and not counts else 1.0)
    tokens = (columns.global_batch * model.seq).astype(np.float64)
    terms = forward_terms(columns)
    scores = terms["scores"] * (model.seq / model.scored_tokens) / 2
    total: FloatArray = _FORWARD_AND_BACKWARD * (2 * tokens * matrices + scores + terms["logits"])
    return total


def model_flops(columns: Columns) -> FloatArray:
    """FLOPs of the model in one iteration, forward and backward, without recompute. The base of MFU."""
    return _FORWARD_AND_BACKWARD * _total(forward_terms(columns))


def causal_flops(columns: Columns) -> FloatArray:
    """FLOPs of the model as `model_flops`, with the causal half of the scores: no kernel computes less."""
    return model_flops(columns) - _FORWARD_AND_BACKWARD / 2 * forward_terms(columns)["scores"]


def hardware_flops(columns: Columns) -> FloatArray:
    """FLOPs of the GPUs in one iteration, including recomputed activations. The base of HFU.

    Full recompute runs each layer's forward pass once more, selective recompute the attention's scores
    (Korthikanti et al. 2022, arXiv 2205.05198) or the modules that it selects; the output layer is never recomputed.
    """
    forward = forward_terms(columns)
    full = (columns.recompute == FULL) * (forward["layers"] + forward["scores"])
    selective = columns.recomputes("core_attn") * forward["scores"]
    if columns.selects_modules:
        selective = selective + 2.0 * columns.global_batch * columns.workload.model.seq * _selected_matrices(columns)
    total: FloatArray = _FORWARD_AND_BACKWARD * _total(forward) + full + selective
    return total


def _selected_matrices(columns: Columns) -> FloatArray:
    """Elements of the matrices of all layers that one token meets again with selective recompute."""
    model, hidden = columns.workload.model, columns.hidden
    each = (3 if model.gated_mlp else 2) * hidden
    experts, number = model.experts, 0 * columns.layers
    found = np.zeros(len(columns.tp))
    if experts:
        number = experts.moe_layers_before(columns.layers)
        routed = columns.recomputes("moe") * experts.top_k * experts.ffn
        shared = columns.recomputes("moe", "shared_experts") * experts.shared_ffn
        found = found + number * each * (routed + shared) * hidden / model.hidden
    if latent := model.latent:
        values = latent.kv_rank * (latent.nope_size + latent.value_size)
        up = columns.heads * ((latent.query_rank or 0) * latent.key_size + values)
        found = found + columns.recomputes("mla_up_proj") * columns.layers * up
    return found + columns.recomputes("mlp") * (columns.layers - number) * each * columns.ffn


def older_estimate(columns: Columns) -> FloatArray:
    """FLOPs that Megatron-DeepSpeed counted before February 2022: eight operations for each token and weight of the
    layers.

    Two for each of the four passes that full recompute makes, whatever is recomputed. Neither scores nor logits count,
    and the weights are summed over the tensor parallel ranks, each of which holds all norms and the biases after
    row-parallel products: 12 h^2 + (7 + 6 tp) h a layer of a plain GPT. Worked out from the BLOOM report's tables up to
    02-20, which are in this unit: 38 of 39 figures come out to their last digit.
    """
    tokens = (columns.global_batch * columns.workload.model.seq).astype(np.float64)
    on_each_rank = 6 * columns.hidden * columns.tp
    weights = columns.layer_matrices + 3 * columns.hidden + columns.ffn + on_each_rank
    return 8 * tokens * columns.layers * weights


def per_gpu(flops: FloatArray, seconds: float | FloatArray, columns: Columns) -> FloatArray:
    """FLOP/s of each GPU in use, from one iteration's operations and its seconds."""
    return flops / (seconds * columns.replica * columns.dp)


def training_seconds(seconds: float | FloatArray, columns: Columns) -> FloatArray:
    """Seconds until the training is finished at equal compute, from the seconds of one iteration."""
    return seconds * equal_iterations(columns)


def equal_iterations(columns: Columns, training: Workload | None = None) -> FloatArray:
    """Iterations in which each row executes as many FLOPs as a training: by default, that of the workload's own model.

    Heads and shape change the model that is trained, and a bigger one is not worse for taking longer. The padding of
    the vocabulary, which depends on tp, is no work of the model.
    """
    training, model = training or columns.workload, columns.workload.model
    iterations: FloatArray = training.training_tokens / (columns.global_batch * model.seq)
    sizes = ("heads", "hidden", "layers")
    if training.model == model and all((columns.arrays[size] == getattr(model, size)).all() for size in sizes):
        return iterations
    own = Topology(nodes=1, tp=1, pp=1, dp=1, micro_batch=1)
    (goal,) = _own_flops(Columns.of([own], training, columns.cluster))
    equal: FloatArray = iterations * goal / _own_flops(columns)
    return equal


def _own_flops(columns: Columns) -> FloatArray:
    """FLOPs of the model for one token, forward and backward, without the vocabulary's padding."""
    tokens = columns.global_batch * columns.workload.model.seq
    return _FORWARD_AND_BACKWARD * _total(forward_terms(columns, padded=False)) / tokens


def _total(terms: dict[str, FloatArray]) -> FloatArray:
    return terms["layers"] + terms["scores"] + terms["logits"]


_SEQUENCES: Final = tuple(2**power for power in range(8, 18))
_RATIOS: Final = tuple(2.0**power for power in range(-8, 9) if power)


def printed_counts(columns: Columns) -> dict[str, FloatArray]:
    """Operations of an iteration by each formula that is known to be printed, and its name in words."""
    forward = forward_terms(columns)
    passes = 3 + (columns.recompute == FULL)
    model, windowed = columns.workload.model, columns.workload.model.windowed_share
    repeated = (columns.recompute == FULL) | columns.recomputes("core_attn")
    outside = (3 + repeated) * forward["scores"] * (model.seq / model.scored_tokens - 1)
    return {
        "the corrected count": hardware_flops(columns),
        "Megatron-DeepSpeed's formula from before February 2022, which always counts full recompute, but no attention "
        "scores and no logits": older_estimate(columns),
        "the model's own operations, without recompute": model_flops(columns),
        "the model's own operations, with the causal half of the scores": causal_flops(columns),
        **({"the count with the scores outside of windows": hardware_flops(columns) + outside} if windowed else {}),
        "the formula of a plain GPT, whatever the MLP and the key/value heads": passes * _plain(columns, 24),
        "the formula of a plain GPT with a third more for the gate, logits and all": passes * _plain(columns, 32),
        "the formula of a plain GPT, with recompute that did not happen": 4 * _plain(columns, 24),
        "the formula of a plain GPT, without its recompute": 3 * _plain(columns, 24),
    }


def _plain(columns: Columns, factor: int) -> FloatArray:
    """One pass of Megatron-DeepSpeed's printed estimate: 24 B s L h^2 (1 + s/6h + V/16Lh), 32 with a gated MLP.

    `training_log` in `megatron/training.py` of BigScience's Megatron-DeepSpeed: 24 becomes 32 for the whole bracket,
    and the MLP is taken to be 4 h wide (its pull request 283).
    """
    seq, hidden = columns.workload.model.seq, columns.hidden.astype(np.float64)
    tokens = (columns.global_batch * seq).astype(np.float64)
    bracket = 1 + seq / (6 * hidden) + columns.padded_vocab / (16 * columns.layers * hidden)
    layers: FloatArray = factor * tokens * columns.layers * hidden**2
    return layers * bracket


def likely_reason(columns: Columns, seconds: float, printed: float, tolerance: float) -> str:
    """Explain a log's rate that is not the corrected one: another formula, sequence, batch or number of GPUs.

    `columns` has one row, `printed` is FLOP/s of a GPU and `tolerance` the share by which rounding may move it. Empty
    where nothing known fits.
    """

    def fits(flops: FloatArray) -> bool:
        return bool(abs(float(per_gpu(flops, seconds, columns)[0]) / printed - 1) <= tolerance)

    for name, flops in list(printed_counts(columns).items())[1:]:
        if fits(flops):
            return f"the log uses {name}"
    corrected, workload = hardware_flops(columns), columns.workload
    for seq in _SEQUENCES:
        model = replace(workload.model, seq=seq)
        other = Columns(replace(workload, model=model), columns.cluster, columns.arrays)
        for name, count in (("", hardware_flops), (" by the formula from before February 2022", older_estimate)):
            if seq != workload.model.seq and fits(count(other)):
                return f"the log assumes a sequence of {seq}, not {workload.model.seq}{name}"
    for ratio in _RATIOS:
        if fits(corrected * ratio):
            batch, gpus = float(columns.global_batch[0]), float((columns.replica * columns.dp)[0])
            return (
                f"the log assumes a batch of {batch * ratio:g}, not {batch:g}, or {gpus / ratio:g} GPUs, not {gpus:g}"
            )
    return ""
