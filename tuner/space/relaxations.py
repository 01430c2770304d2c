"""What would open a space that holds nothing: the nearest single changes, with the topologies that each makes legal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tuner.core.domain import Shape
from tuner.core.validation import largest
from tuner.space.axes import default_axes
from tuner.space.rules import RuleSet
from tuner.space.space import Space

_TRIES: Final = 128
"""Values tried on either side before a number is given up."""
_NEAR_NODES: Final = 0.2
_NEAR_BATCHES: Final = 0.1
"""Beyond the nearest value, the one that opens the most topologies within this fraction is listed too."""
_COUNTED: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """One change, and how many topologies it makes legal."""

    change: str
    legal: int


def openings(space: Space) -> list[Relaxation]:
    """The single changes that open an empty space, what costs least first: a pin, a node count, the batch, the
    attention kernel, a policy, the depth of the model."""
    found = [*_without_pins(space), *_other_nodes(space), *_other_batches(space), *_other_kernels(space)]
    return [*found, *_without_policies(space), *_other_depths(space)]


def _without_pins(space: Space) -> Iterator[Relaxation]:
    """Give one axis the values back that it has when it is not held."""
    for axis, free in space.unpinned.items():
        if axis in ("nodes", "global_batch", "shape") or set(free) <= set(space.axes[axis]):
            continue
        if legal := space.where(**{axis: free}).count():
            yield Relaxation(change=f"{axis} not held to {_words(space.axes[axis])}", legal=legal)
    if space.dp and (legal := replace(space, dp=()).count()):
        yield Relaxation(change=f"dp not held to {_words(space.dp)}", legal=legal)


def _other_nodes(space: Space) -> Iterator[Relaxation]:
    held = space.axes["nodes"]
    others = [nodes for nodes in range(1, space.cluster.nodes + 1) if nodes not in held]
    others.sort(key=lambda nodes: min(abs(nodes - own) for own in held))
    spaces = ((nodes, space.where(nodes=(nodes,))) for nodes in others[:_TRIES])
    yield from _nearest_and_roomiest(spaces, "{} nodes", max(held), _NEAR_NODES)


def _other_batches(space: Space) -> Iterator[Relaxation]:
    own = space.axes["global_batch"][0]
    ramp = space.workload.ramp
    step, start = (ramp.increment, ramp.start) if ramp else (32, 0)
    if not ramp and "batch-multiple-of-32" in space.rules.allowed:
        step = 1
    below = start + (own - start) // step * step
    values = (value for n in range(_TRIES) for value in (below - n * step, below + (n + 1) * step))
    sound = (value for value in values if 1 <= value <= largest("global_batch") and value != own)
    by_distance = sorted(sound, key=lambda value: abs(value - own))
    spaces = ((value, space.where(global_batch=(value,))) for value in by_distance)
    yield from _nearest_and_roomiest(spaces, "global batch {}", own, _NEAR_BATCHES)


def _other_kernels(space: Space) -> Iterator[Relaxation]:
    """The fastest other attention kernel of the GPU that opens."""
    for kernel in reversed([each for each in space.cluster.gpu.kernels if each != space.workload.attention]):
        if legal := replace(space, workload=replace(space.workload, attention=kernel)).count():
            yield Relaxation(change=f"--attention {kernel}", legal=legal)
            return


def _without_policies(space: Space) -> Iterator[Relaxation]:
    for rule in space.rules.in_force(space.workload):
        if rule.level == "policy":
            freed = replace(space, rules=RuleSet(allowed=space.rules.allowed | {rule.name}))
            if legal := freed.count():
                yield Relaxation(change=f"--allow {rule.name}", legal=legal)


def _other_depths(space: Space) -> Iterator[Relaxation]:
    own = space.axes["shape"][0]
    depths = [depth for n in range(1, _TRIES) for depth in (own.layers - n, own.layers + n)]
    depths = [depth for depth in depths if 1 <= depth <= largest("layers")]
    for layers in depths[:_COUNTED]:
        shape = Shape(hidden=own.hidden, layers=layers)
        workload = replace(space.workload, model=space.workload.model.with_shape(shape))
        pp = default_axes(workload, space.cluster)["pp"] if len(space.axes["pp"]) > 1 else space.axes["pp"]
        if legal := space.where(shape=(shape,), pp=pp).count():
            yield Relaxation(change=f"{layers} layers (another model)", legal=legal)
            return


def _nearest_and_roomiest(
    spaces: Iterable[tuple[int, Space]], change: str, own: int, near: float
) -> Iterator[Relaxation]:
    """The first of the values that opens, and the one close by that opens most where that is another."""
    opened: list[tuple[int, int]] = []
    for value, space in spaces:
        if (opened and abs(value - own) > near * own) or len(opened) == _COUNTED:
            break
        if legal := space.count():
            opened.append((value, legal))
    best = max(opened, key=lambda pair: pair[1], default=None)
    for value, legal in dict.fromkeys([opened[0], best] if opened and best else []):
        yield Relaxation(change=change.format(value), legal=legal)


def _words(values: tuple[Any, ...]) -> str:
    return ",".join(str(value) for value in values[:6]) + (",..." if len(values) > 6 else "")
