"""Advice: conditions whose violation makes a topology slow. Advice never rejects."""

from __future__ import annotations

from typing import Final

from tuner.space.rules.quantities import head_weight, stage_excess, wave_efficiency
from tuner.space.rules.rule import MEGATRON_DS, Rule

_MATMUL_GUIDE: Final = "NVIDIA, Matrix Multiplication Background User's Guide, "


def _aligned_hidden(multiple: int, reason: str) -> Rule:
    return Rule(
        name=f"hidden-per-tp-by-{multiple}",
        level="advice",
        sentence=f"hidden / tp is a multiple of {multiple}, {reason}",
        source=_MATMUL_GUIDE + "Tensor Core Requirements",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.hidden % (multiple * c.tp) != 0,
        numbers=lambda c: f"hidden / tp = {c.hidden} / {c.tp} = {c.hidden / c.tp:g} is not a multiple of {multiple}",
    )


def _aligned_heads(multiple: int, reason: str) -> Rule:
    return Rule(
        name=f"head-size-by-{multiple}",
        level="advice",
        sentence=f"the head size is a multiple of {multiple}, {reason}",
        source=_MATMUL_GUIDE + "Tensor Core Requirements",
        reads=("hidden", "heads"),
        vary=("heads",),
        broken=lambda c: c.head_size % multiple != 0,
        numbers=lambda c: f"head size {c.head_size:g} is not a multiple of {multiple}",
    )


ADVICE: Final[tuple[Rule, ...]] = (
    _aligned_hidden(8, "which tensor cores need"),
    _aligned_hidden(64, "where tensor cores are most efficient"),
    _aligned_heads(8, "which tensor cores need"),
    _aligned_heads(64, "where tensor cores are most efficient"),
    Rule(
        name="tile-quantization",
        level="advice",
        sentence="hidden and ffn / tp are multiples of the tile size 128",
        source=_MATMUL_GUIDE + "Tile Quantization",
        reads=("hidden", "tp"),
        vary=("hidden", "tp"),
        broken=lambda c: (c.hidden % 128 != 0) | (c.ffn % (128 * c.tp) != 0),
        numbers=lambda c: (
            f"hidden {c.hidden} and ffn / tp = {c.ffn} / {c.tp} = {c.ffn / c.tp:g} "
            f"make {c.hidden / 128:g} and {c.ffn / c.tp / 128:g} tiles of 128"
        ),
    ),
    Rule(
        name="wave-quantization",
        level="advice",
        sentence="the tiles of the MLP's first GEMM leave less than 10% of this GPU's SMs idle",
        source=_MATMUL_GUIDE + "Wave Quantization; tiles of 256 x 128; SMs from the catalog",
        reads=("micro_batch", "cp", "hidden", "tp"),
        vary=("micro_batch",),
        broken=lambda c: wave_efficiency(c) < 0.9,
        numbers=lambda c: (
            f"at micro_batch={c.micro_batch} the MLP's first GEMM keeps "
            f"{100 * wave_efficiency(c):.0f}% of {c.cluster.gpu.sms} SMs busy"
        ),
    ),
    Rule(
        name="uneven-stages",
        level="advice",
        sentence="no pipeline stage, including the output layer, has over 10% more work than the average",
        source=MEGATRON_DS + "model/gpt_model.py: --pp-partition-method 'type:transformer|embedding'",
        reads=("layers", "hidden", "heads", "pp", "partition", "vpp"),
        vary=("pp", "partition"),
        broken=lambda c: stage_excess(c) > 0.1,
        numbers=lambda c: (
            f"the output layer is as much work as {head_weight(c):.2f} layers, so the last of pp={c.pp} "
            f"stages has {100 * stage_excess(c):.0f}% more work than the average"
        ),
    ),
    Rule(
        name="interleaving-needs-megatron-lm",
        level="advice",
        sentence="an interleaved pipeline (vpp > 1) runs under Megatron-LM; DeepSpeed's engine does not interleave",
        source="DeepSpeed 0.19.8, runtime/pipe/schedule.py: TrainSchedule is 1F1B",
        reads=("vpp",),
        vary=("vpp",),
        broken=lambda c: c.vpp > 1,
        numbers=lambda c: f"vpp={c.vpp} needs Megatron-LM as the trainer",
        binding=lambda workload: workload.framework is None,
    ),
)
