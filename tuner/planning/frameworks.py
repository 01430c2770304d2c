"""`tuner plan --framework all`: the best topology of each framework for one model and cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.core.domain import Cluster, Framework, Workload
from tuner.core.errors import EmptySpace, InputError
from tuner.core.frameworks import ANY, FRAMEWORKS
from tuner.core.quantity import GIB
from tuner.core.text import ResultTable, Tabular, four_digits
from tuner.costmodel.estimate import CostModel
from tuner.costmodel.site_file import warn_of_mismatch
from tuner.planning.cost import TopologyCost
from tuner.planning.plan import ranked
from tuner.space.build import SpaceArguments, space_for

if TYPE_CHECKING:
    from typing_extensions import Unpack

SAME_KERNELS: Final = (
    "Frameworks differ in what they can run, and in overlap, precision and sharding; differences between their kernels "
    "are modeled only where they are documented or measured."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPlan:
    """The plan of one framework for a model on a cluster."""

    framework: Framework
    workload: Workload | None = None
    """The workload, whose default precision and attention kernel are the framework's; None if it cannot be trained."""
    legal: int = 0
    fitting: int = 0
    """Legal topologies that are more likely to fit than to run out of memory."""
    best: TopologyCost | None = None
    reason: str = ""
    """Why the framework cannot train the model there; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkComparison(Tabular):
    """The plans of all frameworks."""

    cluster: Cluster
    rows: tuple[FrameworkPlan, ...]

    def _shown(self) -> ResultTable:
        return ResultTable(
            title="Best topology of each framework",
            headers=HEADERS,
            words=WORDS,
            rows=[cells(row) for row in self.rows],
            notes=(SAME_KERNELS, *(f"{row.framework}: {row.reason}" for row in self.rows if row.reason)),
        )


HEADERS: Final = ("Framework", "Legal", "Fit", "Best topology", "Sec/it", "Days", "GiB", "Precision", "Attention")
WORDS: Final = frozenset({"Framework", "Best topology", "Precision", "Attention"})


def cells(row: FrameworkPlan) -> tuple[str, ...]:
    """Return a row as the texts of `HEADERS`."""
    if row.best is None or row.workload is None:
        return (row.framework, "0", "0", "none", "", "", "", "", "")
    best = row.best
    figures = (four_digits(best.seconds), f"{best.days:,.1f}", f"{best.memory / GIB:,.1f}")
    key = best.topology.key if best.fits else f"{best.topology.key} (unlikely to fit)"
    counts = (f"{row.legal:,}", f"{row.fitting:,}")
    return (row.framework, *counts, key, *figures, row.workload.precision, row.workload.attention)


def plan_frameworks(
    *, cost_model: CostModel | None = None, **description: Unpack[SpaceArguments]
) -> FrameworkComparison:
    """Plan the same training in every framework; the arguments are those of `space_for`.

    >>> import tuner
    >>> found = tuner.plan_frameworks(model="llama-3-8b", gpu="H100-80GB-SXM", nodes=1, global_batch=64)
    >>> [row.framework for row in found.rows if row.best]
    ['megatron-core', 'megatron-deepspeed', 'deepspeed', 'fsdp2', 'torchtitan']
    """
    described: SpaceArguments = {**description}
    described["framework"] = ANY
    cluster = space_for(**described).cluster  # refuses what no framework could train
    rows = tuple(_planned(name, described, cost_model) for name in FRAMEWORKS)
    made = FrameworkComparison(cluster=cluster, rows=rows)
    if cost_model:
        warn_of_mismatch(cost_model.calibration, [(row.workload, cluster) for row in made.rows if row.workload])
    return made


def _planned(framework: Framework, description: SpaceArguments, cost_model: CostModel | None) -> FrameworkPlan:
    described: SpaceArguments = {**description}
    described["framework"] = framework
    try:
        space = space_for(**described)
        made = ranked(space, top=1, model=cost_model)
    except (EmptySpace, InputError) as error:
        return FrameworkPlan(framework=framework, reason=str(error))
    return FrameworkPlan(
        framework=framework,
        workload=space.workload,
        legal=made.tally.legal,
        fitting=made.fitting,
        best=made.top[0],
    )
