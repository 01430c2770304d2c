"""Estimate the seconds of a layer with experts: router, dispatch of tokens, grouped products, and their way back.

Tokens go to the ranks of their experts by one of four dispatchers (Megatron-LM, core/transformer/moe/
token_dispatcher.py and fused_a2a.py). With t tokens of a rank and k experts a token, an element's share of what a rank
exchanges once is

    allgather   every token to every rank of the group, and the sums of all outputs back
    alltoall    t k (1 - 1/ep): a copy for each expert
    deepep      a copy for each remote node that has some of its experts, and from there one for each rank
    hybridep    the same, between NVLink domains

A forward pass exchanges twice, to the experts and back, and so does a backward pass. With `moe_overlap` the forward
pass of a microbatch alternates with the backward pass of an earlier one, so that either's exchanges run beside the
other's computing (Megatron-LM at 01cf4fb, core/models/common/model_chunk_schedule_plan.py):

    exchanges   back, backward    to experts, forward and backward    back, forward
    computing   attention         experts, backward and forward       attention, backward
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.core.columns import BoolArray, Columns, FloatArray
from tuner.core.domain import DISPATCHERS, Workload
from tuner.costmodel.constants import BACKWARD_TRAFFIC_RATIO, SEND_SHARE
from tuner.costmodel.expert_constants import (
    ALL_TO_ALL_SHARE,
    CLAMP_BYTES,
    COUNTED_TOKENS_SECONDS,
    DEEPEP_SHARES,
    EXCHANGE_SECONDS,
    EXCHANGE_SMS,
    EXPERT_BIAS_BYTES,
    EXPERT_HOST_SECONDS,
    EXPERT_MODULE_SECONDS,
    EXPERT_PRODUCT_SECONDS,
    HYBRIDEP_SHARES,
    LAUNCH_SECONDS,
    RDMA_SHARE,
    ROUTER_BYTES,
    ROUTER_CAST_BYTES,
    SUMMED_BYTES,
    WEIGHTED_BYTES,
)
from tuner.costmodel.expert_shapes import (
    expert_ffn,
    expert_load,
    expert_tokens,
    experts_of,
    has_padded_experts,
    local_experts,
    moe_share,
    reached,
    routed_tokens,
    shared_ffn,
)
from tuner.costmodel.framework_terms import gradient_bytes, terms_of
from tuner.costmodel.kernels import (
    alignment,
    beside_layers,
    cast_bytes,
    generation,
    has_grace,
    host_pace,
    inner_speed,
    linear,
    product,
    product_rate,
    size_of,
    traffic_rate,
)
from tuner.costmodel.layer import Layer, RoutedPart, activation_bytes, layer_of
from tuner.costmodel.layer_exchanges import Passes
from tuner.costmodel.links import Links, gather, intra_node
from tuner.costmodel.matrices import routed_weights
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import BACKWARD_SHARE

_ALL_GATHER, _ALL_TO_ALL, _HYBRIDEP = (DISPATCHERS.index(name) for name in ("allgather", "alltoall", "hybridep"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayer(Layer):
    """Seconds of one layer with experts for one microbatch."""

    experts: FloatArray
    """Grouped products of the routed experts and their activation."""
    routing: FloatArray
    """Router, permutation and its inverse."""
    dispatch: FloatArray
    """Exposed exchange of tokens among the ranks that share the experts."""


def expert_layer_seconds(columns: Columns, site: SiteFactors, links: Links) -> ExpertLayer:
    """Estimate one layer with experts: forward pass, backward pass and recomputation."""
    experts, routing, dispatch = _experts(columns, site), _routing(columns, site), _dispatch(columns, site, links)
    if columns.moe_overlap.any():
        exposed = _beside_another(columns, site, links, experts, routing, dispatch)
        dispatch = _chosen(columns.moe_overlap == 1, exposed, dispatch)
    parts = (experts, routing, dispatch)
    beside = RoutedPart(
        forward=sum((ahead for ahead, _ in parts), start=np.zeros_like(dispatch[0])),
        backward=sum((back for _, back in parts), start=np.zeros_like(dispatch[0])),
        weights=routed_weights(columns),
        activation=_activation_bytes(columns.workload)[0] * _between(columns, site),
        exchange=dispatch[0],
        host=_host(columns),
        waits=_waits(columns, site, experts[0]),
        collectives=2 if experts_of(columns).shared_ffn else 1,
    )
    around = layer_of(columns, site, links, shared_ffn(columns), beside)
    named = {"experts": experts, "routing": routing, "dispatch": dispatch}
    return ExpertLayer(**around.terms(), **{name: ahead + back for name, (ahead, back) in named.items()})


def averaged(columns: Columns, mixture: ExpertLayer, dense: Layer) -> ExpertLayer:
    """Return the average layer of the stage that has most of the layers with experts."""
    share = moe_share(columns)
    terms = {name: share * seconds for name, seconds in mixture.terms().items()}
    terms |= {name: terms[name] + (1 - share) * seconds for name, seconds in dense.terms().items()}
    return ExpertLayer(**terms)


def _chosen(rows: BoolArray, passes: Passes, others: Passes) -> Passes:
    """Return the passes in these rows, and the others elsewhere."""
    return np.where(rows, passes[0], others[0]), np.where(rows, passes[1], others[1])


def _beside_another(
    columns: Columns, site: SiteFactors, links: Links, experts: Passes, routing: Passes, dispatch: Passes
) -> Passes:
    """Return the exposed time of exchanges that overlap with another microbatch's pass.

    The first pp of the microbatches fill the pipeline and have no backward pass beside them. What is hidden takes
    multiprocessors from the computing beside it.
    """
    around = layer_of(columns, site, links, shared_ffn(columns))
    attention = sum(around.terms().values(), start=-around.launch - around.recompute)
    exchanges = dispatch[0] + dispatch[1]
    once = exchanges / 4
    exposed = (
        np.maximum(0.0, once - (1 - BACKWARD_SHARE) * attention - routing[0])
        + np.maximum(0.0, 2 * once - experts[0] - experts[1])
        + np.maximum(0.0, once - BACKWARD_SHARE * attention - routing[1])
    )
    alone = np.minimum(1.0, columns.pp / columns.microbatches)
    exposed = exposed + (exchanges - exposed) * EXCHANGE_SMS / columns.cluster.gpu.sms
    left: FloatArray = (alone * exchanges + (1 - alone) * exposed) / 2
    return left, left


def _host(columns: Columns) -> Passes:
    """Return the host's launch time of the experts: the products of each expert one by one.

    A forward pass has two for each expert and a backward pass four; in fp8 and fp4 a kernel quantises the input of
    each pair of products and another one arranges its scales (Transformer Engine, pytorch/module/grouped_linear.py).
    Beside them the modules of Megatron-Core and Transformer Engine run in Python. Published runs on Grace record some
    as CUDA graphs even if their tables do not state it.
    """
    in_python = terms_of(columns.workload).transformer_engine and not has_grace(columns.cluster.gpu)
    modules = EXPERT_MODULE_SECONDS if in_python else (0.0, 0.0)
    ahead, back = _launches(columns)
    return EXPERT_HOST_SECONDS + modules[0] + ahead, EXPERT_HOST_SECONDS + modules[1] + back


def _launches(columns: Columns) -> Passes:
    """Return the host's launch time of the kernels of each expert."""
    launch = LAUNCH_SECONDS * local_experts(columns)
    more = 4 if columns.workload.is_quantized else 0
    return (2 + more) * launch, (4 + more) * launch


def _waits(columns: Columns, site: SiteFactors, products: FloatArray) -> FloatArray:
    """Return the time in which the GPU has nothing to do in a forward pass, while the host launches the experts.

    The host waits for the number of tokens of each expert, so that nothing is queued behind the exchange; the launches
    expert by expert then run beside the products, which wait for them where an expert has few tokens. Where experts
    are padded to their capacity the host need not ask (NVIDIA/Megatron-LM core_v0.12.0, megatron/core/transformer/moe/
    token_dispatcher.py: preprocess). Another microbatch's pass does not fill the wait: its kernels are launched by the
    same host, and those launched before have ended when the tokens are counted.
    """
    if has_padded_experts(columns):
        return np.zeros_like(products)
    pace = host_pace(columns.cluster.gpu, site)
    waits: FloatArray = COUNTED_TOKENS_SECONDS * pace + np.maximum(0.0, _launches(columns)[0] * pace - products)
    return waits


def _experts(columns: Columns, site: SiteFactors) -> Passes:
    """Estimate the products of the routed experts at the tokens that each of them gets, and their activation.

    Where products of the weights' gradients add to those of earlier microbatches, they read and write the sums: of few
    tokens that takes longer than multiplying.
    """
    workload, gpu = columns.workload, columns.cluster.gpu
    tokens, width = expert_tokens(columns), expert_ffn(columns) / columns.etp
    groups = np.minimum(local_experts(columns), np.maximum(1.0, tokens))
    rows = np.maximum(1.0, tokens / groups)
    moved = traffic_rate(gpu, site) / size_of(workload)
    forward = backward = np.zeros(np.shape(tokens))
    summed = 2 * gradient_bytes(workload) / size_of(workload) if terms_of(workload).fused_accumulation else 1.0

    def seconds(rate: Any, m: Any, n: Any, k: Any, stored: float = 1.0) -> FloatArray:
        faster = rate * inner_speed(gpu, workload, k)
        return product(gpu, faster, moved, m, n, k, groups=groups, stored=stored)

    for n, k in (((2 if workload.model.gated_mlp else 1) * width, columns.hidden), (columns.hidden, width)):
        rate = product_rate(gpu, workload, site) * np.minimum(alignment(n), alignment(k))
        forward = forward + seconds(rate, rows, n, k)
        backward = backward + seconds(rate, rows, k, n) + seconds(rate, k, n, rows, summed)
    if terms_of(workload).transformer_engine:
        alone = EXPERT_PRODUCT_SECONDS * groups
        forward, backward = forward + 2 * alone, backward + 4 * alone
    between, activation = _between(columns, site), _activation_bytes(workload)
    forward, backward = forward + activation[0] * between, backward + activation[1] * between
    if experts_of(columns).expert_bias:
        ahead, back = (each * tokens * columns.hidden / traffic_rate(gpu, site) for each in EXPERT_BIAS_BYTES)
        forward, backward = forward + ahead, backward + back
    if workload.is_quantized:
        element = cast_bytes(gpu, workload) * tokens / traffic_rate(gpu, site)
        inputs = 2 if workload.model.gated_mlp else 1
        return forward + element * (columns.hidden + width), backward + element * (columns.hidden + inputs * width)
    return forward, backward


def _activation_bytes(workload: Workload) -> tuple[float, float]:
    """Return the traffic between an expert's products, bytes per token and column of its width, forward and backward:
    the activation, the gradient of the router's weights, and a clamp that is not fused with it."""
    model, forward = workload.model, activation_bytes(workload) * size_of(workload) / 2
    backward = BACKWARD_TRAFFIC_RATIO * forward
    if not (model.gated_mlp and terms_of(workload).transformer_engine):
        return forward, backward
    clamp = CLAMP_BYTES if model.glu_clamp and model.mlp_activation == "quick_gelu" else (0.0, 0.0)
    return forward + clamp[0], backward + WEIGHTED_BYTES + clamp[1]


def _between(columns: Columns, site: SiteFactors) -> FloatArray:
    """Return the seconds of moving a byte of each value between an expert's products."""
    values = expert_tokens(columns) * (expert_ffn(columns) / columns.etp)
    seconds: FloatArray = values / traffic_rate(columns.cluster.gpu, site)
    return seconds


def _routing(columns: Columns, site: SiteFactors) -> Passes:
    """Estimate the router's product and scores, and the copies of tokens into the order of experts and back.

    A permutation reads each token and writes it once for each of its experts. Behind an all-to-all the tokens of all
    ranks are sorted by expert once more, where a rank has several; a fused dispatcher delivers one copy of each token,
    which is read there and written for each of the rank's experts. Behind an all-gather each rank also writes a row for
    every token of the group, and casts it to the router's fp32; the ranks' sum of these is scattered. Without a fused
    kernel, index_select reads a token for each of its copies, and scatter_add reads what it adds to (NVIDIA/Megatron-LM
    at d98e8a64, megatron/core/transformer/moe/moe_utils.py: permute, unpermute).
    """
    experts, workload, gpu = experts_of(columns), columns.workload, columns.cluster.gpu
    tokens, size, rate = routed_tokens(columns), size_of(workload), traffic_rate(gpu, site)
    forward, backward = linear(gpu, beside_layers(gpu, workload), site, tokens, experts.count, columns.hidden)
    if terms_of(workload).transformer_engine:
        backward = backward + ROUTER_CAST_BYTES * tokens * columns.hidden / rate
    scores = ROUTER_BYTES * tokens * experts.count / rate
    arriving = expert_tokens(columns)
    sorted_again = (columns.ep > 1) & (local_experts(columns) > 1)
    sent = tokens * (1 + experts.top_k) + np.where(sorted_again, 2 * arriving, 0.0)
    delivered = tokens * reached(columns, columns.ep)
    cast = np.where(columns.ep > 1, 1 + SUMMED_BYTES / size, 0.0)
    summed = tokens * columns.ep * (1 + cast)
    delivered = np.where(columns.dispatcher == _ALL_GATHER, (delivered + summed) / 2, delivered)
    copied = np.where(columns.dispatcher == _ALL_TO_ALL, sent, delivered + arriving)
    copies = 2 * copied * columns.hidden * size / rate
    if not terms_of(workload).fused_permutation:
        more = np.where(columns.dispatcher == _ALL_TO_ALL, tokens * (3 * experts.top_k - 1), 3 * arriving - delivered)
        copies = copies + more * columns.hidden * size / rate
    return forward + scores + copies, backward + BACKWARD_TRAFFIC_RATIO * scores + copies


def _dispatch(columns: Columns, site: SiteFactors, links: Links) -> Passes:
    """Estimate two exchanges in each pass, in which the busiest rank waits for its tokens.

    An all-gather has the tokens of every rank, wherever their experts are.
    """
    experts, cluster = experts_of(columns), columns.cluster
    own = routed_tokens(columns) * columns.hidden * size_of(columns.workload)
    size = own * expert_load(columns)
    ranks = columns.ep
    together = np.clip(cluster.domain // np.maximum(1, columns.etp), 1, ranks)
    domains = ranks / together
    link = intra_node(cluster, together) * site.inner_link
    outer = cluster.inter_node.bandwidth / cluster.gpus_per_node * site.network
    copies = size * experts.top_k
    plain = np.maximum(
        copies * (together - 1) / ranks / (link * ALL_TO_ALL_SHARE),
        copies * (ranks - together) / ranks / (outer * SEND_SHARE),
    )
    distant = reached(columns, domains)
    if experts.router_top_groups:
        distant = np.minimum(distant, experts.router_top_groups)
    hybrid = columns.dispatcher == _HYBRIDEP
    share = _fused_share(columns, hybrid, together)
    fused = EXCHANGE_SECONDS * hybrid + np.maximum(
        size * reached(columns, ranks) * (together - 1) / together / (link * share),
        size * distant * (domains - 1) / domains / (outer * RDMA_SHARE),
    )
    bandwidth, latency = links.experts
    whole = gather(own * ranks * columns.etp, ranks * columns.etp, bandwidth, latency)
    shared = gather(copies * columns.etp, columns.etp, *links.expert_tensor)
    ring_latency = latency * np.log2(np.maximum(1, ranks))
    once = np.where(
        columns.dispatcher == _ALL_GATHER,
        whole,
        np.where(columns.dispatcher == _ALL_TO_ALL, plain, fused) + ring_latency + shared,
    )
    times = np.where(columns.dispatcher == _ALL_GATHER, 1 + SUMMED_BYTES / size_of(columns.workload), 2)
    both: FloatArray = np.where(ranks * columns.etp > 1, times * once, 0.0)
    return both, both


def _fused_share(columns: Columns, hybrid: BoolArray, together: Any) -> FloatArray:
    """Return the share of its link in an NVLink domain that HybridEP reaches among so many ranks of it, or DeepEP."""
    ranks, shares = np.array(HYBRIDEP_SHARES).T
    deep = DEEPEP_SHARES.get(generation(columns.cluster.gpu), ALL_TO_ALL_SHARE)
    return np.where(hybrid, np.interp(np.log2(together), np.log2(ranks), shares), deep)
