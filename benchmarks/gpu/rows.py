"""The stages `rows` and `moe`, of the shipped worker, and `megatron`: each job becomes a row of the table.

Most rows run in one shared process (`benchmarks.gpu.worker`), because starting a job takes longer than its iterations.
Ten rows are run three times; for some of them the third run is a separate job under the product's launcher, so that
the table shows the effect of sharing the process. Each row with offload has its own process, because page-locked memory
is not released before the process ends. Ranks that share one GPU are not run: NCCL refuses two ranks on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from benchmarks.gpu.plan import ITERATIONS, JOB_SECONDS, PlannedRow, gpt, repeated, tiny
from benchmarks.gpu.stage import Context, Entry, Item, missing, run_items

COMPILE_SECONDS: Final = 75.0
"""Extra seconds of the very first row, in which DeepSpeed compiles its fused Adam."""
ALONE: Final = 3
"""Number of repeated rows whose third run is a separate job."""
OFFLOAD_SECONDS: Final = 18.0
"""Extra seconds of a row with offload: the start of a process, and page-locking."""
ADAM: Final = "fused-adam"
"""Name of the first item, which tests whether DeepSpeed's Adam compiles; if not, all rows use torch's."""


def row_items(context: Context) -> list[Item]:
    """Return the items of the stage `rows`."""
    planned = context.planner.rows()
    again = repeated(planned)
    if context.tiny:
        planned = tiny(planned)
        again = planned[:1]
    kept = [each for each in planned if each.topology.offload == "none"]
    offloaded = [each for each in planned if each.topology.offload != "none"]
    shared = context.runner.shared
    made = [_item(each, shared) for each in kept]
    made += [_item(each, shared, "-second") for each in again]
    made += [_item(each, shared, "-third") for each in again[ALONE:]]
    made += [_alone(each, context) for each in again[:ALONE]]
    return made + [_item(each, shared, seconds=OFFLOAD_SECONDS) for each in offloaded]


def moe_items(context: Context) -> list[Item]:
    """Return the items of the stage `moe`."""
    planned = context.planner.moe_rows()
    planned = tiny(planned)[:2] if context.tiny else planned
    return [_item(each, context.runner.shared) for each in planned]


def megatron_items(context: Context) -> list[Item]:
    """Return the items of the stage `megatron`."""
    planned = context.planner.megatron_rows()[: 1 if context.tiny else None]
    return [_item(each, context.runner.megatron) for each in planned]


def run_rows(stage: str, items: Sequence[Item], context: Context) -> int:
    """Run a stage's rows in the given order, with the Adam that works; return how many are left."""
    if missing(stage, items, context.results):
        left = run_items("prepare", [adam_item(context)], context)
        if left:
            return left + len(missing(stage, items, context.results))
        choose_adam(context)
    return run_items(stage, items, context)


def adam_item(context: Context) -> Item:
    """Return the item that trains a small model with DeepSpeed's Adam, which is compiled if necessary."""
    small = context.planner.row(gpt(1024, 2), 1)
    return _item(tiny([small])[0] if context.tiny else small, context.runner.shared, name=ADAM, seconds=COMPILE_SECONDS)


def choose_adam(context: Context) -> None:
    """Use torch's fused Adam if DeepSpeed's failed."""
    found = context.results.find("prepare", ADAM)
    context.runner.torch_adam = found is not None and found["status"] != "OK"


def _item(
    planned: PlannedRow,
    run: Callable[[PlannedRow], Entry],
    suffix: str = "",
    *,
    name: str | None = None,
    seconds: float = 0.0,
) -> Item:
    return Item(name or planned.name + suffix, planned.seconds + seconds, partial(run, planned))


def _alone(planned: PlannedRow, context: Context) -> Item:
    name = f"{planned.name}-alone"
    seconds = JOB_SECONDS + ITERATIONS * planned.estimate[0]
    return Item(name, seconds, partial(context.runner.alone, planned, name))
