"""Compare the degrees, batch and sizes that a log states with those of the run that it should describe.

Only quantities that programs state unambiguously are compared: Megatron sets ZeRO, sequence parallelism and recompute
itself where a degree is 1, and DeepSpeed's batch is that of a step only where DeepSpeed times the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tuner.core.domain import Topology, Workload
from tuner.logs.records import Iteration, Source
from tuner.logs.runs import LogRun

DEGREES: Final = ("tp", "pp", "cp", "dp", "vpp", "ep", "etp", "micro_batch")

_ARGUMENTS: Final[Mapping[str, str]] = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "dp": "data_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "micro_batch": "micro_batch_size",
    "global_batch": "global_batch_size",
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "seq": "seq_length",
}
"""What Megatron and its forks print for each quantity; of unset virtual stages, None."""
_OF_DEEPSPEED: Final[Mapping[str, str]] = {
    "micro_batch": "train_micro_batch_size_per_gpu",
    "global_batch": "train_batch_size",
}
"""What DeepSpeed's configuration prints, for programs without Megatron's arguments."""
_STEPS_OF_DEEPSPEED: Final[tuple[Source, ...]] = ("pipeline engine", "throughput timer", "wall-clock breakdown")


def quantities(workload: Workload, topology: Topology) -> dict[str, int]:
    """Return the quantities of a run that a log may state.

    A model of which only a part is understood, such as a hybrid one, may count its layers otherwise than a program.
    """
    own = workload.as_in(topology)
    is_whole = not own.model.not_understood and own.model.read_as is None
    degrees = {name: getattr(topology, name) for name in DEGREES if own.model.experts or name not in ("ep", "etp")}
    sizes = {name: getattr(own.model, name) for name in (*(("layers", "hidden", "heads") if is_whole else ()), "seq")}
    return {**degrees, "global_batch": own.global_batch, **sizes}


def discrepancies(run: LogRun, wanted: Mapping[str, int], measured: Iterable[Iteration] = ()) -> list[str]:
    """Return the quantities that a log states differently: `tp 1, not 2`; `measured` are lines with their own batch."""
    found = stated(run)
    usual = wanted.get("global_batch")
    if other := [entry.global_batch for entry in measured if entry.global_batch not in (None, 0, usual)]:
        found["global_batch"] = other[0] or 0
    return [
        f"{name.replace('_', ' ')} {found[name]}, not {value}"
        for name, value in wanted.items()
        if found.get(name, value) != value
    ]


def stated(run: LogRun) -> dict[str, int]:
    """Return the quantities that the printed arguments state."""
    names = _ARGUMENTS
    if _ARGUMENTS["tp"] not in run.arguments:
        names = _OF_DEEPSPEED if run.source in _STEPS_OF_DEEPSPEED else {}
    printed = {name: run.arguments.get(argument, "") for name, argument in names.items()}
    if printed.get("vpp") == "None":
        printed["vpp"] = "1"
    return {name: int(value) for name, value in printed.items() if re.fullmatch(r"[0-9]{1,12}", value)}
