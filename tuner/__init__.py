"""Find the topology that finishes training soonest.

Names are imported when they are first used, so that `import tuner` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.domain import Cluster, Gpu, Link, Model, Shape, Topology, Workload
    from tuner.explaining import explain
    from tuner.keys import parse_key
    from tuner.planning import plan
    from tuner.request import space_for
    from tuner.rules import RuleSet
    from tuner.space import Space

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "Gpu",
    "Link",
    "Model",
    "RuleSet",
    "Shape",
    "Space",
    "Topology",
    "Workload",
    "explain",
    "parse_key",
    "plan",
    "space_for",
]

_HOME = {
    **dict.fromkeys(("Cluster", "Gpu", "Link", "Model", "Shape", "Topology", "Workload"), "domain"),
    "RuleSet": "rules",
    "Space": "space",
    "explain": "explaining",
    "parse_key": "keys",
    "plan": "planning",
    "space_for": "request",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tuner.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
