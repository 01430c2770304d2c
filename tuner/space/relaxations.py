"""Find changes that make an empty space nonempty, and count the topologies that each makes legal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tuner.core.frameworks import able
from tuner.core.shape import Shape
from tuner.core.text import axis_value
from tuner.core.validation import largest
from tuner.space.axes import default_axes, fewest_layers
from tuner.space.rules import RuleSet
from tuner.space.space import Space

_TRIES: Final = 128
"""Number of values tried on each side."""
_NEAR_NODES: Final = 0.2
_NEAR_BATCHES: Final = 0.1
"""Relative distance within which the value with the most legal topologies is listed in addition to the nearest one."""
_COUNTED: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """One change, and the number of topologies that it makes legal."""

    change: str
    legal: int


def openings(space: Space) -> list[Relaxation]:
    """Return the single changes that open an empty space, cheapest first: a pinned axis, the number of nodes, the
    batch, the attention kernel, the framework, a policy, the depth of the model. If there are none, return the fewest
    policies that open it together."""
    relaxations = [*_without_pins(space), *_other_nodes(space), *_other_batches(space), *_other_kernels(space)]
    relaxations += [*_other_frameworks(space), *_without_policies(space), *_other_depths(space)]
    return relaxations or list(_without_several_policies(space))


def _without_pins(space: Space) -> Iterator[Relaxation]:
    """Yield the openings by resetting one pinned axis to its default values."""
    for axis, free in space.unpinned.items():
        if axis in ("nodes", "global_batch", "shape") or set(free) <= set(space.axes[axis]):
            continue
        if legal := space.where(**{axis: free}).count():
            yield Relaxation(change=f"values of {axis} other than {_words(space.axes[axis])}", legal=legal)
    if space.dp and (legal := replace(space, dp=()).count()):
        yield Relaxation(change=f"values of dp other than {_words(space.dp)}", legal=legal)


def _other_nodes(space: Space) -> Iterator[Relaxation]:
    pinned = space.axes["nodes"]
    others = [nodes for nodes in range(1, space.cluster.nodes + 1) if nodes not in pinned]
    others.sort(key=lambda nodes: min(abs(nodes - own) for own in pinned))
    spaces = ((nodes, space.where(nodes=(nodes,))) for nodes in others[:_TRIES])
    yield from _nearest_and_roomiest(spaces, "{} nodes", max(pinned), _NEAR_NODES)


def _other_batches(space: Space) -> Iterator[Relaxation]:
    current = space.axes["global_batch"][0]
    ramp = space.workload.ramp
    usual = 32 if "batch-multiple-of-32" in _policies(space) else 1
    step, start = (ramp.increment, ramp.start) if ramp else (usual, 0)
    below = start + (current - start) // step * step
    values = (value for n in range(_TRIES) for value in (below - n * step, below + (n + 1) * step))
    sound = (value for value in values if 1 <= value <= largest("global_batch") and value != current)
    by_distance = sorted(sound, key=lambda value: abs(value - current))
    spaces = ((value, space.where(global_batch=(value,))) for value in by_distance)
    yield from _nearest_and_roomiest(spaces, "global batch {}", current, _NEAR_BATCHES)


def _other_kernels(space: Space) -> Iterator[Relaxation]:
    """Yield the fastest other attention kernel of the GPU that opens the space."""
    for kernel in reversed([name for name in space.cluster.gpu.kernels if name != space.workload.attention]):
        if legal := replace(space, workload=replace(space.workload, attention=kernel)).count():
            yield Relaxation(change=f"--attention {kernel}", legal=legal)
            return


def _other_frameworks(space: Space) -> Iterator[Relaxation]:
    for framework in able(space.workload) if space.workload.framework else ():
        if legal := replace(space, workload=replace(space.workload, framework=framework)).count():
            yield Relaxation(change=f"--framework {framework}", legal=legal)


def _without_policies(space: Space) -> Iterator[Relaxation]:
    for policy in _policies(space):
        if legal := _allowing(space, [policy]).count():
            yield Relaxation(change=f"--allow {policy}", legal=legal)


def _without_several_policies(space: Space) -> Iterator[Relaxation]:
    """Yield the opening by all policies together but those that can be kept."""
    removed = _policies(space)
    for policy in _policies(space):
        fewer = [other for other in removed if other != policy]
        if _allowing(space, fewer).count():
            removed = fewer
    if legal := _allowing(space, removed).count():
        yield Relaxation(change=" ".join(f"--allow {policy}" for policy in removed), legal=legal)


def _policies(space: Space) -> list[str]:
    return [rule.name for rule in space.rules.in_force(space.workload) if rule.level == "policy"]


def _allowing(space: Space, policies: Iterable[str]) -> Space:
    return replace(space, rules=RuleSet(allowed=space.rules.allowed.union(policies)))


def _other_depths(space: Space) -> Iterator[Relaxation]:
    current = space.axes["shape"][0]
    depths = [depth for n in range(1, _TRIES) for depth in (current.layers - n, current.layers + n)]
    depths = [depth for depth in depths if fewest_layers(space.workload.model) <= depth <= largest("layers")]
    for layers in depths[:_COUNTED]:
        shape = Shape(hidden=current.hidden, layers=layers)
        workload = replace(space.workload, model=space.workload.model.with_shape(shape))
        pp = default_axes(workload, space.cluster)["pp"] if len(space.axes["pp"]) > 1 else space.axes["pp"]
        if legal := space.where(shape=(shape,), pp=pp).count():
            yield Relaxation(change=f"{layers} layers (another model)", legal=legal)
            return


def _nearest_and_roomiest(
    spaces: Iterable[tuple[int, Space]], change: str, current: int, near: float
) -> Iterator[Relaxation]:
    """Yield the first value that opens the space, and the value within `near` that makes the most topologies legal."""
    opened: list[tuple[int, int]] = []
    for value, space in spaces:
        if (opened and abs(value - current) > near * current) or len(opened) == _COUNTED:
            break
        if legal := space.count():
            opened.append((value, legal))
    best = max(opened, key=lambda pair: pair[1], default=None)
    for value, legal in dict.fromkeys([opened[0], best] if opened and best else []):
        yield Relaxation(change=change.format(value), legal=legal)


def _words(values: tuple[Any, ...]) -> str:
    return ",".join(map(axis_value, values[:6])) + (",..." if len(values) > 6 else "")
