"""Estimate the seconds of one transformer layer for one microbatch on one GPU, by named terms.

Element-wise work is counted in bytes moved per token and column of hidden; see `constants`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import Workload
from tuner.core.model import Model
from tuner.core.recompute import FULL, SELECTIVE
from tuner.costmodel.constants import (
    ACCUMULATION_PASSES,
    BACKWARD_TRAFFIC_RATIO,
    BATCHED_PRODUCT_SPEED,
    DROPOUT_BYTES,
    EAGER_BYTES,
    ELEMENTWISE_BYTES,
    FLASH_SPEED,
    GELU_BYTES,
    HOST_COLLECTIVE_SECONDS,
    HOST_SECONDS,
    ROTARY_BYTES,
    SOFTMAX_BYTES,
    SWIGLU_BYTES,
    UNALIGNED_HEAD_SPEED,
    UNFUSED_NORM_BYTES,
    UPKEEP_SECONDS,
)
from tuner.costmodel.delta_constants import GATE_BYTES
from tuner.costmodel.delta_net import delta_net_of, delta_rule, moved_values
from tuner.costmodel.framework_terms import recomputed_norms, terms_of
from tuner.costmodel.kernels import (
    beside_layers,
    cast_bytes,
    flash_rates,
    head_speeds,
    host_pace,
    linear,
    product_rate,
    size_of,
    traffic_rate,
)
from tuner.costmodel.layer_exchanges import Passes, context_exchanges, tensor_exchanges
from tuner.costmodel.links import Links
from tuner.costmodel.matrices import Product, attention_products, attention_weights, gate_width, mlp_weights
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import (
    COMPILED_BYTES,
    DTENSOR_HOST_SECONDS,
    FUSED_ROTARY_BYTES,
    FUSED_SWIGLU_BYTES,
    NORM_BYTES,
    WINDOW_TILE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Seconds of one layer for one microbatch."""

    products: FloatArray
    attention: FloatArray
    elementwise: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    """Time of ring attention's exchange that attention does not hide, and of merging its parts."""
    launch: FloatArray
    """Time that the GPU waits for the host."""
    upkeep: FloatArray
    recompute: FloatArray

    @property
    def total(self) -> FloatArray:
        """The sum of the terms."""
        return sum(self.terms().values(), start=np.zeros_like(self.products))

    def terms(self) -> dict[str, FloatArray]:
        """Return the terms by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedPart:
    """The part of a layer with experts other than attention and shared experts."""

    forward: FloatArray
    backward: FloatArray
    weights: FloatArray
    """Elements of the matrices of the routed experts on one GPU."""
    activation: FloatArray
    """Seconds of the routed experts' activation, a part of `forward`."""
    exchange: FloatArray
    """Seconds of the exchange of tokens, another."""
    host: Passes
    """Seconds in which the host launches the forward and the backward pass."""
    waits: FloatArray
    """Seconds in which the GPU has nothing to do in the forward pass, however long that is."""
    collectives: int
    """Collectives over tensor parallel ranks in one pass that remain: attention's, and that of shared experts."""


def layer_seconds(columns: Columns, site: SiteFactors, links: Links) -> Layer:
    """Estimate one layer with an MLP: forward pass, backward pass and recomputation."""
    return layer_of(columns, site, links, columns.ffn)


def layer_of(columns: Columns, site: SiteFactors, links: Links, ffn: Any, beside: RoutedPart | None = None) -> Layer:
    """Estimate one layer with an MLP or shared experts of this width; other parts count in `recompute` and `launch`
    only."""
    gpu, workload = columns.cluster.gpu, columns.workload
    tokens = columns.tokens
    forward, backward = _products(columns, tokens, site, ffn)
    scores, scores_back = _attention(columns, tokens, site)
    moved = _elementwise(columns, tokens, ffn) * size_of(workload) / 2 / traffic_rate(gpu, site)
    cast, cast_back = _casts(columns, tokens, site, ffn) if workload.is_quantized else (0.0, 0.0)
    framework = terms_of(workload)
    passes = 0.0 if framework.fused_accumulation else ACCUMULATION_PASSES
    gradients = _gradient_bytes(columns) if beside is None else _weights_beside(columns, ffn, beside)
    upkeep = UPKEEP_SECONDS * site.upkeep + passes * gradients / traffic_rate(gpu, site) * (columns.microbatches > 1)
    number = 2 if beside is None else beside.collectives
    collectives, collectives_back, each_sum = tensor_exchanges(columns, tokens, site, links, number, forward)
    exposed = exposed_back = np.zeros_like(scores)
    if (columns.cp > 1).any():
        exposed, exposed_back = context_exchanges(columns, tokens, site, links, (scores, scores_back))
    ahead = forward + scores + exposed + moved + cast + collectives
    back = (
        backward + scores_back + exposed_back + BACKWARD_TRAFFIC_RATIO * moved + cast_back + collectives_back + upkeep
    )
    if beside is not None:
        ahead, back = ahead + beside.forward, back + beside.backward
    waits, waits_back = _waits(columns, site, (ahead, back), beside)
    again: Any = 0.0
    repeated = ahead + waits
    if beside is None and framework.early_stop and np.any(ffn) and (columns.granularity == FULL).any():
        shorter = ahead - _never_again(columns, tokens, site, ffn, each_sum)
        repeated = shorter + _waits(columns, site, (shorter, back), beside)[0]
    if (columns.granularity == SELECTIVE).any():
        if framework.saved_products:
            gathers = collectives - np.where(columns.sequence_parallel == 1, number * each_sum, 0.0)
            rule = scores if columns.workload.model.delta_net else 0.0
            again = _unsaved(columns, tokens, site, ffn, moved + gathers + rule, beside)
        else:
            attention = np.zeros_like(scores) if columns.workload.model.delta_net else scores + exposed
            again = _again(columns, tokens, site, ffn, attention, beside)
    return Layer(
        products=forward + backward,
        attention=scores + scores_back,
        elementwise=(1 + BACKWARD_TRAFFIC_RATIO) * moved + cast + cast_back,
        tensor_parallel=collectives + collectives_back,
        context_parallel=exposed + exposed_back,
        launch=waits + waits_back,
        upkeep=upkeep + np.zeros_like(forward),
        recompute=np.where(
            columns.granularity == FULL,
            repeated,
            np.where(columns.granularity == SELECTIVE, again, 0.0),
        ),
    )


def _waits(columns: Columns, site: SiteFactors, passes: Passes, beside: RoutedPart | None) -> Passes:
    """Estimate the time in each pass in which the GPU waits for the host, which launches its kernels."""
    terms, pace = terms_of(columns.workload), host_pace(columns.cluster.gpu, site)
    graph = terms.cuda_graph
    collectives = HOST_COLLECTIVE_SECONDS * 2 * (columns.tp > 1) * (graph == "none")
    layer = HOST_SECONDS if graph == "none" else (0.0, 0.0)
    dispatched = terms.batch_first and not terms.compiled and graph == "none"
    sharded = DTENSOR_HOST_SECONDS if dispatched else (0.0, 0.0)
    routed: Any = (0.0, 0.0)
    least: Any = 0.0
    if beside is not None and graph != "full":
        routed, least = beside.host, beside.waits
    ahead, back = (
        (own + each * (columns.tp > 1) + (collectives + other)) * pace - seconds
        for own, each, other, seconds in zip(layer, sharded, routed, passes, strict=True)
    )
    return np.maximum(least, ahead), np.maximum(0, back)


def _never_again(columns: Columns, tokens: Any, site: SiteFactors, ffn: Any, each_sum: FloatArray) -> FloatArray:
    """Estimate the last product of an MLP and the sum over its ranks, whose result only a norm or dropout would store
    (torch 2.13, utils/checkpoint.py: set_checkpoint_early_stop)."""
    workload = columns.workload
    model = workload.model
    if model.norm_placement != "before" or model.norms_per_layer > 2 or model.hidden_dropout:
        return np.zeros_like(each_sum)
    seconds, _ = linear(columns.cluster.gpu, workload, site, tokens, columns.hidden, ffn / columns.tp)
    return seconds + each_sum


def _again(
    columns: Columns, tokens: Any, site: SiteFactors, ffn: Any, attention: FloatArray, beside: RoutedPart | None
) -> FloatArray:
    """Estimate the work that selective recompute repeats (Megatron-LM, core/transformer/transformer_config.py:
    recompute_modules)."""
    workload, gpu = columns.workload, columns.cluster.gpu
    again: FloatArray = columns.recomputes("core_attn") * attention
    if not columns.selects_modules:
        return again
    norms = recomputed_norms(workload.model, beside is not None)
    moved = norms * 2 * size_of(workload) * tokens * columns.hidden / columns.sequence_shards  # a read and a write
    again = again + columns.recomputes("layernorm") * moved / traffic_rate(gpu, site)
    repeated: list[tuple[BoolArray, list[Product]]] = []
    if workload.model.latent:
        *queries, _, keys, _ = attention_products(columns, tokens)
        repeated.append((columns.recomputes("mla_up_proj"), [*queries[1:], keys]))
    if np.any(ffn):
        modules = ("moe", "shared_experts") if beside else ("mlp",)
        repeated.append((columns.recomputes(*modules), _mlp_products(columns, tokens, ffn)))
    for selected, products in repeated:
        for m, n, k in products if selected.any() else ():
            again = again + selected * linear(gpu, workload, site, m, n, k)[0]
    if beside is not None:
        act = columns.recomputes("moe_act") * beside.activation
        again = again + np.where(columns.recomputes("moe"), beside.forward, act)
    return again


def _unsaved(
    columns: Columns,
    tokens: Any,
    site: SiteFactors,
    ffn: Any,
    between: FloatArray,
    beside: RoutedPart | None,
) -> FloatArray:
    """Estimate what torchtitan's selective checkpointing computes again: every second product, of keys, attention's
    output and a gated MLP's second input, the given seconds between them, and routed experts.

    Outputs of reduce-scatters and of exchanges are saved; gathers, all-reduces and the delta rule are repeated
    (SelectiveAC in torchtitan/distributed/activation_checkpoint.py of pytorch/torchtitan at b5bcd76).
    """
    workload, gpu = columns.workload, columns.cluster.gpu
    gated = workload.model.gated_mlp
    *projections, output = attention_products(columns, tokens)
    repeated = [output]
    if not workload.model.delta_net:
        keys = (tokens, columns.kv_width / columns.tp, columns.hidden)
        repeated.append(projections[-1] if workload.model.latent else keys)
    if np.any(ffn):
        repeated.append(
            (tokens, ffn / columns.tp, columns.hidden) if gated else (tokens, columns.hidden, ffn / columns.tp)
        )
    again = between
    if beside is not None:
        again = again + beside.forward - beside.exchange
    for m, n, k in repeated:
        again = again + linear(gpu, workload, site, m, n, k)[0]
    return again


def _weights_beside(columns: Columns, ffn: Any, beside: RoutedPart) -> FloatArray:
    weights = attention_weights(columns) + mlp_weights(columns, ffn) / columns.tp + beside.weights
    return weights * size_of(columns.workload)


def _products(columns: Columns, tokens: Any, site: SiteFactors, ffn: Any) -> tuple[FloatArray, FloatArray]:
    """Estimate the forward and backward products of the matrices, sharded by tensor parallelism."""
    workload, gpu = columns.workload, columns.cluster.gpu
    mlp = _mlp_products(columns, tokens, ffn) if np.any(ffn) else []
    forward, backward = np.zeros(np.shape(tokens)), np.zeros(np.shape(tokens))
    for m, n, k in (*attention_products(columns, tokens), *mlp):
        ahead, back = linear(gpu, workload, site, m, n, k)
        forward, backward = forward + ahead, backward + back
    return forward, backward


def _mlp_products(columns: Columns, tokens: Any, ffn: Any) -> list[Product]:
    inputs = 2 if columns.workload.model.gated_mlp else 1
    return [(tokens, inputs * ffn / columns.tp, columns.hidden), (tokens, columns.hidden, ffn / columns.tp)]


def _attention(columns: Columns, tokens: Any, site: SiteFactors) -> tuple[FloatArray, FloatArray]:
    """Estimate scores, softmax and their product with the values, or the gated delta rule, forward and backward."""
    workload, gpu = columns.workload, columns.cluster.gpu
    if delta := delta_net_of(columns):
        return delta_rule(columns, delta, tokens, site)
    seq, kernel = workload.model.seq, workload.attention
    latent = workload.model.latent
    size = (latent.key_size + latent.value_size) / 2 if latent else columns.head_size
    operations = 4.0 * tokens * seq * columns.heads * size / columns.tp
    if kernel in FLASH_SPEED:
        forward = backward = np.zeros_like(operations)
        for share, keys in computed_keys(workload.model):
            rate, rate_back = flash_rates(gpu, workload, site, 2 * keys)
            computed = share * operations * keys / seq
            forward, backward = forward + computed / rate, backward + 2.5 * computed / rate_back
        speed, speed_back = head_speeds(gpu, workload, columns.head_size)
        return forward / speed, backward / speed_back
    rate = product_rate(gpu, beside_layers(gpu, workload), site) * site.attention / site.products
    slow = np.where(columns.head_size % 8 == 0, 1.0, UNALIGNED_HEAD_SPEED)
    products = operations / (rate * BATCHED_PRODUCT_SPEED * slow)
    dropped = DROPOUT_BYTES if workload.model.gated_mlp else 0.0  # the LLaMA family trains without dropout
    more, more_back = EAGER_BYTES if kernel == "eager" else (0.0, 0.0)
    seconds_per_byte = tokens * seq * columns.heads / columns.tp * size_of(workload) / 2 / traffic_rate(gpu, site)
    forward_bytes, backward_bytes = SOFTMAX_BYTES[0] - dropped + more, SOFTMAX_BYTES[1] - dropped + more_back
    return products + seconds_per_byte * forward_bytes, 2 * products + seconds_per_byte * backward_bytes


def computed_keys(model: Model) -> list[tuple[float, float]]:
    """Return shares of the layers, and the keys that their flash attention computes for a token, in the mean.

    With a window it computes the tiles that the window touches, `WINDOW_TILE` keys more than the window has.
    """
    whole, windowed = model.seq / 2, model.windowed_share
    if not windowed:
        return [(1.0, whole)]
    inside = model.window * (1 - model.window / (2 * model.seq))
    return [(1 - windowed, whole), (windowed, min(whole, inside + WINDOW_TILE))]


def _elementwise(columns: Columns, tokens: Any, ffn: Any) -> FloatArray:
    """Return the bytes of 16-bit values that a forward pass moves between the products."""
    model, compiled = columns.workload.model, terms_of(columns.workload).compiled
    eager = ELEMENTWISE_BYTES + (0.0 if columns.workload.fused_norms else UNFUSED_NORM_BYTES)
    whole = COMPILED_BYTES if compiled else eager
    whole += NORM_BYTES * (model.norms_per_layer - 2)
    width, keys = columns.query_width, columns.kv_width
    if delta := delta_net_of(columns):
        inner = activation_bytes(columns.workload) * ffn + 2 * moved_values(delta)
        around: FloatArray = tokens * (columns.hidden * whole / columns.sequence_shards + inner / columns.tp)
        return around
    cut = activation_bytes(columns.workload) * ffn + 4 * width + GATE_BYTES * gate_width(columns)
    rotated = FUSED_ROTARY_BYTES if fuses_activations(columns.workload) else ROTARY_BYTES
    if model.latent:  # queries and keys are put together from their parts: a read and a write
        cut = cut + rotated * model.latent.rope_size * (columns.heads + 1) + 8 * width
    elif model.positions == "rotary":
        cut = cut + rotated * (width + keys)
    if model.qk_norm and not (compiled and model.positions == "rotary"):  # compiled with the rotation
        cut = cut + NORM_BYTES * (width + keys)
    moved: FloatArray = tokens * (columns.hidden * whole / columns.sequence_shards + cut / columns.tp)
    return moved


def fuses_activations(workload: Workload) -> bool:
    """Whether SwiGLU and rotary embeddings are one kernel each."""
    terms = terms_of(workload)
    return terms.fused_elementwise or terms.compiled


def activation_bytes(workload: Workload) -> float:
    """Return the traffic of an MLP's activation, bytes per token and column of a forward pass."""
    gated = FUSED_SWIGLU_BYTES if fuses_activations(workload) else SWIGLU_BYTES
    return gated if workload.model.gated_mlp else GELU_BYTES


def _casts(columns: Columns, tokens: Any, site: SiteFactors, ffn: Any) -> tuple[FloatArray, FloatArray]:
    """Estimate the casts to fp8 or fp4 of the four products' inputs and, backward, of their outputs' gradients.

    Weights are cast once an iteration, for the first microbatch (NVIDIA, Transformer Engine, is_first_microbatch).
    """
    gpu, workload = columns.cluster.gpu, columns.workload
    value, normed = cast_bytes(gpu, workload), cast_bytes(gpu, workload, normed=True)
    width: Any = columns.query_width
    projected: Any = width + gate_width(columns) + 2 * columns.kv_width
    if delta := delta_net_of(columns):
        projected, width = delta.projected, delta.value_width
    inner = ffn * (2 if workload.model.gated_mlp else 1)
    inputs = normed * 2 * columns.hidden + value * (width + ffn) / columns.tp
    outputs = value * (2 * columns.hidden + (projected + inner) / columns.tp)
    second = tokens / traffic_rate(gpu, site)
    return second * inputs, second * outputs


def _gradient_bytes(columns: Columns) -> FloatArray:
    grads: FloatArray = columns.layer_matrices / columns.tp * size_of(columns.workload)
    return grads
