"""Policies: choices of this site, each of which can be disabled by name."""

from __future__ import annotations

import re
from typing import Final

from tuner.core.domain import Workload
from tuner.space.rules import quantities as sentences
from tuner.space.rules.quantities import (
    NARROWEST_HEAD,
    WIDEST_HEAD,
    fused_softmax_refuses,
    leaves_nvlink_domain,
    ramp_breaks,
)
from tuner.space.rules.rule import BLOOM, MEGATRON, Rule


def _is_bloom_without_ramp(workload: Workload) -> bool:
    """Whether it is BLOOM without a ramp-up of its batch, which its training had."""
    return workload.ramp is None and re.match(r"bloom(-|$)", workload.model.name, re.IGNORECASE) is not None


POLICIES: Final[tuple[Rule, ...]] = (
    Rule(
        name="tp-in-nvlink-domain",
        level="policy",
        sentence="tensor parallelism stays inside an NVLink domain, a node or a rack such as NVL72, in whole nodes",
        source="Narayanan et al. 2021 (arXiv 2104.04473), takeaway 1",
        reads=("tp",),
        vary=("tp",),
        broken=leaves_nvlink_domain,
        numbers=sentences.nvlink_domain,
    ),
    Rule(
        name="dp-multiple-of-4",
        level="policy",
        sentence="BLOOM's dp is a multiple of 4: approximates its batch-size ramp-up; replaced by --ramp",
        source=BLOOM + "Choosing the fastest 3D Topology: DP % 4 = 0",
        reads=("dp",),
        vary=("pp", "dp", "nodes", "tp"),
        broken=lambda c: c.dp % 4 != 0,
        numbers=lambda c: f"dp={c.dp} is not a multiple of 4",
        binding=_is_bloom_without_ramp,
    ),
    Rule(
        name="batch-multiple-of-32",
        level="policy",
        sentence="BLOOM's global batch is a multiple of 32: approximates its batch-size ramp-up; replaced by --ramp",
        source=BLOOM + "Choosing the fastest 3D Topology: GBS % 32 = 0",
        reads=("global_batch",),
        vary=("global_batch",),
        broken=lambda c: c.global_batch % 32 != 0,
        numbers=lambda c: f"global batch {c.global_batch} is not a multiple of 32",
        binding=_is_bloom_without_ramp,
    ),
    Rule(
        name="ramp-up",
        level="policy",
        sentence="with --ramp: every batch of the ramp-up is divisible by micro_batch x dp, and the last is the batch",
        source=MEGATRON + "core/num_microbatches_calculator.py: RampupBatchsizeNumMicroBatchesCalculator",
        reads=("global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "pp", "nodes", "global_batch"),
        broken=ramp_breaks,
        numbers=sentences.ramp,
        binding=lambda workload: workload.ramp is not None,
    ),
    Rule(
        name="fused-softmax",
        level="policy",
        sentence="fused attention meets the conditions of Megatron's softmax kernel; otherwise the slow path runs",
        source=MEGATRON + "core/fusions/fused_softmax.py: is_kernel_available; scaled_masked_softmax.h",
        reads=("heads", "tp", "micro_batch"),
        vary=("heads", "micro_batch", "tp"),
        broken=fused_softmax_refuses,
        numbers=sentences.fused_softmax,
        hint="or another kernel with --attention",
        binding=lambda workload: workload.attention == "fused",
    ),
    Rule(
        name="micro-batch-power-of-two",
        level="policy",
        sentence="the micro-batch size is a power of two",
        source=BLOOM + "Choosing the fastest 3D Topology, on log2(MBS)",
        reads=("micro_batch",),
        vary=("micro_batch",),
        broken=lambda c: (c.micro_batch & (c.micro_batch - 1)) != 0,
        numbers=lambda c: f"micro_batch={c.micro_batch} is not a power of two",
    ),
    Rule(
        name="microbatches-fill-pipeline",
        level="policy",
        sentence="there are at least as many microbatches as stages",
        source="Narayanan et al. 2021 (arXiv 2104.04473), section 2.2: the bubble is (pp - 1) / microbatches",
        reads=("global_batch", "micro_batch", "dp", "pp"),
        vary=("micro_batch", "pp"),
        broken=lambda c: c.microbatches < c.pp,
        numbers=lambda c: f"{c.microbatches} microbatches cannot fill pp={c.pp} stages",
    ),
    Rule(
        name="head-size",
        level="policy",
        sentence=f"if heads are not the model's own, the head size is {NARROWEST_HEAD} to {WIDEST_HEAD}",
        source="FlashAttention, hopper/generate_kernels.py: head dimensions 64 to 256; its README: up to 256",
        reads=("hidden", "heads"),
        vary=("heads",),
        broken=lambda c: (
            (c.heads != c.workload.model.heads) & ((c.head_size < NARROWEST_HEAD) | (c.head_size > WIDEST_HEAD))
        ),
        numbers=lambda c: (
            f"{c.heads} heads of hidden {c.hidden} have size {c.head_size:g}, not {NARROWEST_HEAD} to {WIDEST_HEAD}"
        ),
        binding=lambda workload: not (workload.model.head_size or workload.model.latent),
    ),
)
