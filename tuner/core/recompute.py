"""What the backward pass computes again: nothing, each layer, or modules of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tuner.core.errors import InputError
from tuner.core.text import either, listed, shown

GRANULARITIES: Final = ("none", "selective", "full")
"""`selective` recomputes attention between its projections, or what the framework selects."""

SELECTIVE, FULL = (GRANULARITIES.index(name) for name in ("selective", "full"))
"""Indices into `GRANULARITIES`, and into `RECOMPUTE`, which begins with them."""

MODULES: Final = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Megatron-Core's names of what selective recompute may select (--recompute-modules), in alphabetical order."""

RECOMPUTE: Final = (
    *GRANULARITIES,
    *("+".join(name for bit, name in enumerate(MODULES) if bits >> bit & 1) for bits in range(2, 1 << len(MODULES))),
)
"""Values of the axis: the granularities, and all sets of modules but the one that `selective` stands for."""

MODULE_BITS: Final = (0, 1, 0, *range(2, 1 << len(MODULES)))
"""For each value, the modules that it selects: one bit for each of `MODULES`."""

RECOMPUTE_KEYS: Final = {"none": "rnone", "selective": "rsel", "full": "rfull"}
"""Parts of a topology's key; those of modules are `r` and the value."""


def modules_of(recompute: str) -> tuple[str, ...]:
    """Return the modules that a value selects."""
    bits = MODULE_BITS[RECOMPUTE.index(recompute)]
    return tuple(name for bit, name in enumerate(MODULES) if bits >> bit & 1)


def selecting(modules: Iterable[str]) -> str:
    """Return the value that selects these modules; raise `InputError` if one is unknown."""
    named = set(modules)
    for module in named.difference(MODULES):
        raise InputError(f"recompute modules are {listed(MODULES, limit=len(MODULES))}, not {shown(module)}.")
    found = "+".join(sorted(named))
    return {"": "none", "core_attn": "selective"}.get(found, found)


def check_recompute(value: object) -> None:
    """Raise `InputError` unless it is a value of the axis."""
    if value not in RECOMPUTE:
        raise InputError(
            f"topology field recompute must be {either(GRANULARITIES)}, or modules in alphabetical order, such as "
            f"layernorm+moe_act, not {shown(value)}."
        )


def is_among(recompute: str, values: Collection[str]) -> bool:
    """Return whether a value is one of these granularities, or selects none but these modules."""
    return set(values) >= set(recompute.split("+"))
