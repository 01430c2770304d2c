"""Changes that make some topologies of a space fit in memory, if none does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tuner.core.frameworks import able
from tuner.core.offload import OFFLOAD
from tuner.core.quantity import GIB
from tuner.costmodel.estimate import CostModel
from tuner.space.rules import RuleSet
from tuner.space.rules.quantities import host_bytes
from tuner.space.space import Space


def nothing_fits(remedy: str, least: str = "") -> str:
    """Return that no topology is likely to fit, `least` about the one that needs the least memory, and the remedy.

    The text starts in lower case and ends without a full stop.
    """
    words = f"no topology is likely to fit{': ' * bool(least)}{least}"
    return ". ".join(filter(None, (words, remedy.rstrip("."))))


def memory_remedy(space: Space, model: CostModel) -> str:
    """Return a sentence about the first change with which some topologies fit; empty if there is none.

    Policies are disabled first, then other frameworks are tried, and last offloading, which is slower.
    """
    for change, other in _changes(space):
        legal, fitting, least = 0, 0, math.inf
        for block in other.blocks():
            columns = other.columns(block)
            fits = model.score(columns).fits
            legal, fitting = legal + len(fits), fitting + int(np.count_nonzero(fits))
            least = min(least, float(np.min(host_bytes(columns), where=fits, initial=math.inf)))
        if fitting:
            nodes = f"; the smallest needs {least / GIB:,.0f} GiB of a node's main memory" if least else ""
            return f"With {change}, {fitting:,} of {legal:,} legal topologies would fit{nodes}."
    return ""


def _changes(space: Space) -> Iterator[tuple[str, Space]]:
    """Yield changes of a space, smallest first, each with the resulting space."""
    workload = space.workload
    for rule in space.rules.in_force(workload):
        if rule.level == "policy":
            yield f"--allow {rule.name}", replace(space, rules=RuleSet(allowed=space.rules.allowed | {rule.name}))
    frameworks = able(workload) if workload.framework else []
    for framework in frameworks:
        yield f"--framework {framework}", replace(space, workload=replace(workload, framework=framework))
    for taken in dict.fromkeys((workload.framework, *frameworks)):
        option = f"--framework {taken} " if taken != workload.framework else ""
        for offload in OFFLOAD:
            if offload != "none" and offload not in space.axes["offload"]:
                offloaded = replace(space.where(offload=(offload,)), workload=replace(workload, framework=taken))
                yield f"{option}--set offload={offload}", offloaded
