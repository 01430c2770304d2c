"""What is in a node's main memory instead of on its GPUs: nothing, the optimizer, a share of it, or parameters too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

Offload = Literal["none", "optimizer", "optimizer+parameters", "optimizer-25", "optimizer-50", "optimizer-75"]

OFFLOAD: Final[tuple[Offload, ...]] = get_args(Offload)
OFFLOAD_WHOLE: Final[tuple[Offload, ...]] = ("none", "optimizer", "optimizer+parameters")
"""The values that offload nothing or all of something."""
OFFLOAD_OF_OPTIMIZER: Final[tuple[Offload, ...]] = ("optimizer", "optimizer-25", "optimizer-50", "optimizer-75")
"""The values that offload nothing but the optimizer."""
OFFLOADED_SHARE: Final[Mapping[Offload, float]] = {
    "none": 0.0,
    "optimizer": 1.0,
    "optimizer+parameters": 1.0,
    "optimizer-25": 0.25,
    "optimizer-50": 0.5,
    "optimizer-75": 0.75,
}
"""The share of the optimizer's states and step that leaves the GPU."""
OFFLOAD_KEYS: Final[Mapping[Offload, str]] = {
    "optimizer": "offopt",
    "optimizer+parameters": "offall",
    "optimizer-25": "offopt25",
    "optimizer-50": "offopt50",
    "optimizer-75": "offopt75",
}
"""Parts of a topology's key."""
OFFLOAD_ZERO: Final[Mapping[Offload, int]] = {
    "none": 0,
    **dict.fromkeys(OFFLOAD_OF_OPTIMIZER, 1),
    "optimizer+parameters": 3,
}
"""The lowest ZeRO stage that offloads so much."""


def offload_words(offload: Offload) -> str:
    """Return what is offloaded, in words."""
    if offload == "none":
        return "no offload"
    of, _, percent = offload.partition("-")
    return f"offload of {f'{percent}% of ' * bool(percent)}the {of.replace('+', ' and the ')}"
