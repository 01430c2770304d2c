"""The capabilities of each training framework, from its record.

The rules named `framework-...`, the checks of precision and attention kernel, `tuner catalog frameworks` and
docs/frameworks.md are all read from these records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Literal, get_args

from tuner.core.capabilities import FrameworkRecord
from tuner.core.domain import Attention, Framework, Workload, scales
from tuner.core.errors import InputError
from tuner.core.framework_records import FRAMEWORK_RECORDS
from tuner.core.stack import ContextExchange
from tuner.core.text import either, listed

ANY: Final = "any"
"""Value of `--framework` that applies no framework's laws."""

FRAMEWORKS: Final[tuple[Framework, ...]] = get_args(Framework)
FrameworkChoice = Framework | Literal["any"]

RECORDS: Final[Mapping[Framework, FrameworkRecord]] = {record.name: record for record in FRAMEWORK_RECORDS}


def capability_rows() -> list[list[str]]:
    """Return the table of capabilities, with one column per framework."""
    rows = [
        [name.replace("_", " "), *(_words(getattr(record, name).value) for record in RECORDS.values())]
        for name, _ in FRAMEWORK_RECORDS[0].capabilities()
    ]
    return [
        *rows,
        ["formats", *(", ".join(record.formats) for record in RECORDS.values())],
        ["log", *(record.log for record in RECORDS.values())],
    ]


def _words(value: bool | tuple[object, ...]) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(str(each) for each in value) or "none"


def record_of(workload: Workload) -> FrameworkRecord | None:
    """Return the record of the workload's framework; None if it names none."""
    return RECORDS[workload.framework] if workload.framework else None


def capable(workload: Workload, has: Callable[[FrameworkRecord], bool]) -> list[Framework]:
    """Return the other frameworks that have something and can train the model in the workload's precision."""
    others = (record for name, record in RECORDS.items() if name != workload.framework)
    return [
        record.name
        for record in others
        if has(record) and workload.precision in record.precision.value and record.has_fork_for(workload.model)
    ]


def able(workload: Workload) -> list[Framework]:
    """Return the frameworks other than the workload's that have its precision, recipe and attention kernel."""
    return capable(workload, lambda record: not record.missing_of_workload(workload))


def context_exchange(workload: Workload) -> ContextExchange:
    """Return how context parallel ranks exchange keys and values: as stated, or as the framework does.

    Transformer Engine's ring has neither sliding windows nor sinks; windows also run on gathered keys, sinks on whole
    sequences of a share of the heads only (NVIDIA/TransformerEngine at d0067d0d, pytorch/attention/
    dot_product_attention/context_parallel.py: attn_forward_func_with_cp). PyTorch's default is a gather (tensor/
    experimental/_context_parallel/_attention.py: _AllGatherRotater), and so are accelerate's cp_comm_strategy and
    torchtitan's context_parallel_rotate_method.
    """
    if workload.stack and workload.stack.cp_comm:
        return workload.stack.cp_comm
    if workload.framework == "megatron-core":
        return "a2a" if workload.model.attention_sinks else "all_gather" if workload.model.windowed_share else "p2p"
    return "all_gather" if workload.framework in ("fsdp2", "torchtitan") else "p2p"


def check_supported(workload: Workload, kernels: Collection[Attention]) -> None:
    """Raise `InputError` if the workload's framework lacks its precision, recipe, optimizer or attention kernel.

    The message names attention kernels that the GPU runs, which are `kernels`, if the framework has any of them.
    """
    if (recipe := workload.precision_recipe) and workload.precision != (scaled := scales(recipe)):
        raise InputError(
            f"--precision-recipe {recipe} scales {scaled} tensors, but the precision is {workload.precision}; "
            f"add --precision {scaled}."
        )
    if workload.optimizer == "muon" and workload.precision == "fp16":
        raise InputError("Muon does not train in fp16 (Megatron-Core); use --precision bf16.")
    record = record_of(workload)
    if record is None or not (missing := record.missing_of_workload(workload)):
        return
    others = able(workload)
    remedies = [f"--framework {either(others)}"] if others else []
    if "attention" in missing:
        own = record.kernels(workload.model)
        run = [kernel for kernel in own if kernel in kernels]
        remedies.append(f"--attention {either(run)}" if run else f"a --gpu that runs {either(own)} attention")
    if "optimizer" in missing:
        remedies.append(f"--optimizer {either(record.optimizer.value)}")
    if {"precision", "precision_recipe"} & missing.keys():
        recipes = [one for one in record.precision_recipe.value if scales(one) == workload.precision]
        precisions = record.precision.value
        keeps = workload.precision in precisions
        remedies.append(f"--precision-recipe {either(recipes)}" if keeps else f"--precision {either(precisions)}")
    raise InputError(f"{record.name} has no {listed(missing.values(), last='or')}; use {' or '.join(remedies)}.")
