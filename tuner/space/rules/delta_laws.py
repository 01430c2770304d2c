"""Laws of Gated DeltaNet: how its heads are spread over ranks."""

from __future__ import annotations

from typing import Final

from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.space.rules.rule import MEGATRON, Rule


def _key_heads(columns: Columns) -> int:
    delta = columns.workload.model.delta_net
    return delta.key_heads if delta else 0


def _has_delta_net(workload: Workload) -> bool:
    return workload.model.delta_net is not None


DELTA_LAWS: Final[tuple[Rule, ...]] = (
    Rule(
        name="delta-net-heads",
        level="law",
        sentence="key heads of Gated DeltaNet are divisible by tp x cp",
        source=MEGATRON + "core/transformer/transformer_config.py: linear_num_key_heads",
        reads=("tp", "cp"),
        vary=("tp", "cp"),
        broken=lambda c: _key_heads(c) % (c.tp * c.cp) != 0,
        numbers=lambda c: (
            f"{_key_heads(c)} key heads of Gated DeltaNet are not divisible by tp x cp = {c.tp} x {c.cp} = "
            f"{c.tp * c.cp}"
        ),
        binding=_has_delta_net,
    ),
)
