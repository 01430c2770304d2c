"""NVIDIA's published layouts of mixtures of experts, compared with the layout that `tuner plan` would choose.

    python -m benchmarks.recipes

Each row of `corpus/modern/mcore-moe-recipes.csv` is a recipe that NVIDIA published for a model on a number of GPUs. The
plan covers the whole legal space on the same GPUs with the recipe's batch, precision and overlap. A recipe is close if
its estimated time to train is within 5% of that of the plan's first row. No measurement is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.recorded_accuracy import cleaned
from tuner.core.columns import Columns
from tuner.core.domain import Topology
from tuner.costmodel.estimate import CostModel
from tuner.planning.cost import TopologyCost, cost_of, difference
from tuner.planning.plan import plan
from tuner.space.axes import default_axes
from tuner.space.rules import BY_NAME, RuleSet
from tuner.space.space import Space
from tuner.tables import Row, read_table

TABLE: Final = Path(__file__).parent.parent / "corpus/modern/mcore-moe-recipes.csv"
CLOSE: Final = 1.05
"""Largest ratio of a recipe's time to train to the first choice's at which the recipe counts as close."""

_TERMS: Final = 3
"""Number of terms printed for each difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeComparison:
    """A published layout and the first row of the plan on the same GPUs."""

    group: str
    measured: float
    """Seconds per iteration."""
    recipe: TopologyCost
    first: TopologyCost
    laws: tuple[str, ...]
    """Laws that the recipe breaks."""
    policies: tuple[str, ...]
    """Policies that the recipe breaks."""

    @property
    def ratio(self) -> float:
        """Estimated time to train with the recipe over that with the first choice."""
        return self.recipe.training / self.first.training

    @property
    def close(self) -> bool:
        """Whether the recipe is at most 5% slower than the first choice."""
        return self.ratio <= CLOSE


def comparisons(table: Path = TABLE) -> Iterator[RecipeComparison]:
    """Compare each recipe of a table with the plan's first choice."""
    for row in cleaned(read_table(table)).rows:
        yield compared(row)


def compared(row: Row) -> RecipeComparison:
    """Compare the recipe of a row with the plan's first choice on the same GPUs."""
    assert row.run is not None and row.seconds is not None  # noqa: S101, PT018 - for the type checker
    workload = replace(row.run.workload, framework="megatron-core")
    cluster, topology = row.run.cluster, _as_launched(row.run.topology)
    axes = {**default_axes(workload, cluster), "moe_overlap": (topology.moe_overlap,)}
    space = Space(workload=workload, cluster=cluster, rules=RuleSet(), axes=axes)
    broken = [violation.rule for violation in RuleSet().violations(Columns.of([topology], workload, cluster))]
    return RecipeComparison(
        group=row.group,
        measured=row.seconds,
        recipe=cost_of(workload, cluster, topology, CostModel()),
        first=plan(space, top=1).top[0],
        laws=tuple(name for name in broken if BY_NAME[name].level == "law"),
        policies=tuple(name for name in broken if BY_NAME[name].level == "policy"),
    )


def _as_launched(topology: Topology) -> Topology:
    """Return the topology without sequence parallelism if tp is 1, because Megatron-LM then disables it."""
    return replace(topology, sequence_parallel=topology.sequence_parallel and topology.tp > 1)


def _line(found: RecipeComparison) -> str:
    recipe, first = found.recipe, found.first
    deciding = [f"{name} {-seconds:+.2f}" for name, seconds in difference(recipe, first)[:_TERMS]]
    notes = [
        *(f"breaks {name}" for name in (*found.laws, *found.policies)),
        *([] if recipe.fits else [f"P(OOM) {recipe.out_of_memory:.0%}"]),
    ]
    cells = (
        found.group.removeprefix("mcore-recipe-"),
        *(recipe.topology.key, f"{found.measured:.2f}", f"{recipe.seconds:.2f}"),
        *(f"{first.topology.key} ({first.topology.nodes} nodes)", f"{first.seconds:.2f}"),
        *(f"{found.ratio:.3f}", ", ".join(deciding), ", ".join(notes)),
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print one line for each recipe, and how many are close."""
    print("| recipe | layout | measured | estimate | first choice | estimate | ratio | recipe's more seconds | notes |")
    print("|---|---|---:|---:|---|---:|---:|---|---|")
    found = list(comparisons())
    for comparison in found:
        print(_line(comparison))
    print(f"\n{sum(comparison.close for comparison in found)} of {len(found)} recipes within {CLOSE - 1:.0%}.")


if __name__ == "__main__":
    main()
