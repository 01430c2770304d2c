"""`tuner explain`: whether a topology is legal, why not, and the nearest legal one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tuner.core.columns import Columns
from tuner.core.domain import OPT_IN, Topology
from tuner.core.shape import Shape
from tuner.core.text import ResultTable, Tabular, listed
from tuner.space.axes import about_unused, searched
from tuner.space.nearest import nearest
from tuner.space.remedies import Remedy, remedies, spelt
from tuner.space.rules import BY_NAME, RULES, Level
from tuner.space.space import Space

Word = Literal["holds", "broken", "open", "allowed", "moot"]

_SHOWN: tuple[Word, ...] = ("broken", "open", "allowed", "holds", "moot")
"""Order of the verdicts, most important first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """The verdict of one rule on one topology."""

    rule: str
    level: Level
    word: Word
    """`open`: cannot be checked until another holds. `allowed`: disabled. `moot`: not applicable to this workload."""
    sentence: str
    message: str = ""
    """If it is broken, or would be if it were not disabled: the numbers. If it is open: what must hold first."""
    remedies: tuple[Remedy, ...] = ()
    """Values of single axes with which it would hold."""
    hint: str = ""
    """A remedy other than an axis."""
    nearest: Topology | None = None
    """The closest legal topology, preferably by a change of the rule's own axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation(Tabular):
    """The verdicts of all rules on a topology."""

    topology: Topology
    verdicts: tuple[RuleVerdict, ...]
    nearest: tuple[Topology, ...]
    """The closest legal topologies of the space, if it is not one itself."""
    outside: Mapping[str, tuple[int | str, ...]]
    """The axes on which the space lacks this topology's value, each with the values that the space has."""

    @property
    def legal(self) -> bool:
        """Whether no law and no policy in force is broken."""
        return not self.violations

    @property
    def violations(self) -> list[RuleVerdict]:
        """The laws and policies that it breaks."""
        return [verdict for verdict in self.verdicts if verdict.word == "broken" and verdict.level != "advice"]

    def _shown(self) -> ResultTable:
        near = listed([topology.key for topology in self.nearest])
        return ResultTable(
            title=f"{self.topology.key} is {'legal' if self.legal else 'not legal'}",
            headers=("Rule", "Level", "Verdict", "What must hold"),
            words=frozenset({"Rule", "Level", "Verdict", "What must hold"}),
            rows=[
                (verdict.rule, verdict.level, verdict.word, verdict.message or verdict.sentence)
                for verdict in sorted(self.verdicts, key=lambda verdict: _SHOWN.index(verdict.word))
                if verdict.word != "moot"
            ],
            notes=(f"Nearest legal: {near}.",) if near else (),
        )


def explain(space: Space, topology: Topology, *, most: int = 3) -> Explanation:
    """Check a topology against every rule; the space provides the legal alternatives.

    >>> import tuner
    >>> space = tuner.space_for(nodes=48)
    >>> topology = tuner.parse_key("tp8-pp5-mbs2-z1", workload=space.workload, cluster=space.cluster)
    >>> explanation = tuner.explain(space, topology)
    >>> explanation.legal, [verdict.rule for verdict in explanation.violations][:2]
    (False, ['fill-nodes', 'layers-by-pp'])
    """
    columns = Columns.of([topology], space.workload, space.cluster)
    unused = [axis for axis in OPT_IN.keys() - searched(space.axes) if getattr(topology, axis) == OPT_IN[axis]]
    verdicts, outside = tuple(_verdicts(space, columns, frozenset(unused))), _outside(space, columns)
    judged = Explanation(topology=topology, verdicts=verdicts, nearest=(), outside=outside)
    if judged.legal and not outside:
        return judged
    completed = tuple(_with_nearest(space, topology, verdict) for verdict in verdicts)
    return replace(judged, verdicts=completed, nearest=tuple(nearest(space, topology, most=most)))


def _outside(space: Space, columns: Columns) -> dict[str, tuple[int | str, ...]]:
    found: dict[str, tuple[int | str, ...]] = {}
    for axis, values in space.numbers.items():
        if axis not in ("hidden", "layers") and columns.arrays[axis][0] not in values:
            found[axis] = tuple(spelt(axis, int(value)) for value in values)
    shape = Shape(hidden=int(columns.hidden[0]), layers=int(columns.layers[0]))
    if shape not in space.axes["shape"]:
        found["shape"] = tuple(map(str, space.axes["shape"]))
    if space.dp and int(columns.dp[0]) not in space.dp:
        found["dp"] = space.dp
    return found


def changes(before: Topology, after: Topology, space: Space) -> dict[str, tuple[int | str, int | str]]:
    """Return the axes on which two topologies differ, each with both values."""
    columns = Columns.of([before, after], space.workload, space.cluster)
    moved = {name: array for name, array in columns.arrays.items() if array[0] != array[1]}
    return {name: (spelt(name, int(array[0])), spelt(name, int(array[1]))) for name, array in moved.items()}


def _verdicts(space: Space, columns: Columns, unused: frozenset[str]) -> Iterator[RuleVerdict]:
    """Yield the verdict of each rule; rules of unused axes, which the topology cannot break, are left out."""
    gpus = columns.nodes * space.cluster.gpus_per_node
    indivisible = bool(gpus % columns.replica)
    uneven = BY_NAME["batch-by-dp"].broken_rows(columns).item()
    for rule in (rule for rule in RULES if not about_unused(rule.reads, unused)):
        verdict = RuleVerdict(rule=rule.name, level=rule.level, word="holds", sentence=rule.sentence)
        if not rule.binding(space.workload):
            yield replace(verdict, word="moot")
        elif indivisible and "dp" in rule.reads and rule.name != "fill-nodes":
            yield replace(verdict, word="open", message="dp follows from fill-nodes, which must hold first")
        elif uneven and rule.name in ("microbatches-by-pp", "microbatches-fill-pipeline"):
            yield replace(
                verdict, word="open", message="the microbatches follow from batch-by-dp, which must hold first"
            )
        elif rule.name in space.rules.allowed:
            broken = rule.violation(columns)
            yield replace(verdict, word="allowed", message=broken.message if broken else "")
        elif violation := rule.violation(columns):
            ways = remedies(space, columns, rule)
            yield replace(verdict, word="broken", message=violation.message, remedies=ways, hint=rule.hint)
        else:
            yield verdict


def _with_nearest(space: Space, topology: Topology, verdict: RuleVerdict) -> RuleVerdict:
    """Return the verdict; of a broken law or policy, with the nearest legal topology along the rule's axes."""
    if verdict.word != "broken" or verdict.level == "advice":
        return verdict
    found = nearest(space, topology, most=1, along=BY_NAME[verdict.rule].vary)
    return replace(verdict, nearest=found[0] if found else None)
