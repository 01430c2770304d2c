"""`tuner explain`: is a topology legal, why not, and what comes closest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from tuner.columns import Columns, IntArray
from tuner.domain import PARTITION, RECOMPUTE, Topology
from tuner.errors import either
from tuner.nearest import nearest
from tuner.rules import BY_NAME, RULES, Level, Rule
from tuner.space import Space

Word = Literal["holds", "broken", "off", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one rule says of one topology."""

    rule: str
    level: Level
    word: Word
    """`off`: switched off, or nothing to do with this workload. `open`: cannot be judged before another holds."""
    sentence: str
    message: str = ""
    """The numbers, where it is broken."""
    remedy: str = ""
    """The values with which it would hold, all else as asked."""
    nearest: Topology | None = None
    """The closest topology that breaks no rule at all, sought along this rule's own axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A topology under all rules."""

    topology: Topology
    verdicts: tuple[Verdict, ...]
    nearest: tuple[Topology, ...]
    """The closest legal topologies where it is not legal itself."""

    @property
    def legal(self) -> bool:
        """Whether no law and no policy in force is broken."""
        return not self.violations

    @property
    def violations(self) -> list[Verdict]:
        """The laws and policies that it breaks."""
        return [verdict for verdict in self.verdicts if verdict.word == "broken" and verdict.level != "advice"]


def explain(space: Space, topology: Topology, *, most: int = 3) -> Explanation:
    """Judge a topology by every rule; the space says what is legal beside it."""
    columns = Columns.of([topology], space.workload, space.cluster)
    judged = Explanation(topology=topology, verdicts=tuple(_verdicts(space, columns)), nearest=())
    if judged.legal:
        return judged
    led = tuple(_led_out(space, topology, verdict) for verdict in judged.verdicts)
    return replace(judged, verdicts=led, nearest=tuple(nearest(space, topology, most=most)))


def changes(before: Topology, after: Topology, space: Space) -> dict[str, tuple[object, object]]:
    """The axes in which two topologies differ, each with both values."""
    columns = Columns.of([before, after], space.workload, space.cluster)
    pairs = {name: (int(array[0]), int(array[1])) for name, array in columns.arrays.items() if array[0] != array[1]}
    named: dict[str, tuple[object, object]] = dict(pairs)
    for name, names in (("recompute", RECOMPUTE), ("partition", PARTITION), ("sequence_parallel", ("off", "on"))):
        if name in pairs:
            named[name] = (names[pairs[name][0]], names[pairs[name][1]])
    return named


def _verdicts(space: Space, columns: Columns) -> Iterator[Verdict]:
    rejecting = {rule.name for rule in space.rules.in_force(space.workload)}
    gpus = columns.nodes * space.cluster.gpus_per_node
    indivisible = bool(gpus % columns.replica)
    for rule in RULES:
        verdict = Verdict(rule=rule.name, level=rule.level, word="holds", sentence=rule.sentence)
        if rule.name not in rejecting and (rule.level != "advice" or not rule.binding(space.workload)):
            yield replace(verdict, word="off")
        elif indivisible and "dp" in rule.reads and rule.name != "fill-nodes":
            yield replace(verdict, word="open")
        elif violation := rule.violation(columns):
            remedy = _remedy(space, columns, rule)
            yield replace(verdict, word="broken", message=violation.message, remedy=remedy)
        else:
            yield verdict


def _led_out(space: Space, topology: Topology, verdict: Verdict) -> Verdict:
    """A violation with the nearest legal topology that its own axes lead to."""
    if verdict.word != "broken" or verdict.level == "advice":
        return verdict
    found = nearest(space, topology, most=1, along=BY_NAME[verdict.rule].vary)
    return replace(verdict, nearest=found[0] if found else None)


_CONTEXT: Final = ("tp", "pp", "cp", "vpp", "zero", "heads", "micro_batch")
_ON_OFF: Final = {"sequence_parallel": ("off", "on"), "partition": PARTITION}
_SHOWN: Final = 12


def _remedy(space: Space, columns: Columns, rule: Rule) -> str:
    """The values of one axis or two for which the rule would hold, as a clause of a sentence."""
    clauses = []
    for axis in rule.vary:
        asked = int(columns.arrays[axis][0])
        candidates = np.array([value for value in _candidates(space, columns, axis) if value != asked], dtype=np.int64)
        held = candidates[~rule.broken_rows(_varied(columns, axis, candidates))]
        if len(held):
            names = [_name(axis, value) for value in _closest(held, asked)]
            clauses.append(f"{_with(columns, rule, axis)}{axis} may be {either(names)}")
    return "; ".join(clauses[:2])


def _candidates(space: Space, columns: Columns, axis: str) -> Iterable[int]:
    """The values of an axis that are worth trying."""
    at = {name: int(array[0]) for name, array in columns.arrays.items()}
    if axis == "heads":
        return (heads for heads in range(1, 1025) if at["hidden"] % heads == 0)
    ranges = {
        "nodes": range(1, space.cluster.nodes + 1),
        "tp": range(1, min(space.cluster.gpus, 1024) + 1),
        "pp": range(1, min(space.cluster.gpus, 1024) + 1),
        "cp": range(1, 65),
        "vpp": range(1, 65),
        "micro_batch": range(1, 129),
        "zero": range(4),
        "sequence_parallel": range(2),
        "partition": range(2),
        "hidden": range(max(1, at["hidden"] - 512), at["hidden"] + 513),
        "layers": range(max(1, at["layers"] - 8), at["layers"] + 9),
        "global_batch": range(max(1, at["global_batch"] * 3 // 4), at["global_batch"] * 5 // 4 + 1),
    }
    return ranges[axis]


def _varied(columns: Columns, axis: str, values: IntArray) -> Columns:
    """One row for each value of the axis, all else as asked; `dp` follows where the GPUs' split changes."""
    arrays: dict[str, IntArray] = {name: np.full(len(values), array[0]) for name, array in columns.arrays.items()}
    arrays[axis] = values
    varied = Columns(columns.workload, columns.cluster, arrays)
    if axis in ("nodes", "tp", "pp", "cp"):
        arrays["dp"] = np.maximum(1, varied.nodes * columns.cluster.gpus_per_node // varied.replica)
    return varied


def _closest(values: IntArray, asked: int) -> list[int]:
    """The values around the one asked for, ascending."""
    around = values[np.argsort(np.abs(values - asked), kind="stable")[:_SHOWN]]
    return sorted(int(value) for value in around)


def _with(columns: Columns, rule: Rule, axis: str) -> str:
    """`with tp=8, `: what the rule also reads and the remedy leaves as it is."""
    kept = [name for name in _CONTEXT if name in rule.reads and name != axis]
    shown = [name for name in kept if int(columns.arrays[name][0]) > 1 or name in ("tp", "pp", "micro_batch")]
    words = [f"{name}={int(columns.arrays[name][0])}" for name in shown]
    return f"with {' and '.join(words)}, " if words else ""


def _name(axis: str, value: int) -> str:
    return _ON_OFF[axis][value] if axis in _ON_OFF else str(value)
