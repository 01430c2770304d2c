"""What each framework hides, sends and keeps: the terms of the cost model in which frameworks differ.

A run's `Stack`, read from a measurement table, overrides the record of its framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from tuner.core.domain import Framework, Workload

_LM: Final = "NVIDIA/Megatron-LM at d98e8a64, megatron/"
_DEEPSPEED: Final = "DeepSpeed 0.19.8, runtime/"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTerms:
    """How one framework trains."""

    overlap_grad: float = 0.0
    """Share of the gradients' reduction that may run beside the last microbatch's backward pass."""
    overlap_param: float = 0.0
    """Share of the parameters' gathering that may run beside the first microbatch's forward pass."""
    overlap_tp: float = 0.0
    """Share of tensor parallel traffic that runs beside the products, which bound it."""
    overlap_sends: bool = False
    """Whether an interleaved schedule sends beside its passes."""
    scattered: bool = False
    """Whether ZeRO 1 reduces each gradient to one rank only, instead of to all ranks."""
    fp32_gradients: bool = False
    """Whether bf16 training adds up and reduces its gradients in fp32."""
    split_sends: bool = False
    """Whether a tensor parallel rank sends only its part of the activations to the next stage."""
    source: str = ""


FRAMEWORK_TERMS: Final[Mapping[Framework | None, FrameworkTerms]] = {
    None: FrameworkTerms(source="not specified: nothing overlaps, 16-bit gradients"),
    "megatron-deepspeed": FrameworkTerms(
        source=_DEEPSPEED + "pipe/engine.py: _exec_reduce_grads after the last microbatch, pipe_partitioned off; "
        "engine.py: get_data_types, grad_accum_dtype is the model's",
    ),
    "deepspeed": FrameworkTerms(source=_DEEPSPEED + "engine.py: get_data_types, grad_accum_dtype is the model's"),
    "megatron-core": FrameworkTerms(
        fp32_gradients=True,
        source=_LM + "training/arguments.py: bf16 sets accumulate_allreduce_grads_in_fp32",
    ),
    "fsdp2": FrameworkTerms(source="PyTorch, torch/distributed/fsdp: MixedPrecisionPolicy with reduce_dtype bf16"),
    "torchtitan": FrameworkTerms(source="PyTorch, torch/distributed/fsdp: MixedPrecisionPolicy"),
}


def terms_of(workload: Workload) -> FrameworkTerms:
    """Return the terms of the workload's framework, with what its stack states instead."""
    usual = FRAMEWORK_TERMS[workload.framework]
    if workload.stack is None:
        return usual
    stated = {name: getattr(workload.stack, name) for name in _STATED}
    precision = workload.stack.grad_precision
    known = {
        **{each.name: getattr(usual, each.name) for each in fields(usual)},
        **{name: value for name, value in stated.items() if value is not None},
        **({"fp32_gradients": precision == "fp32"} if precision else {}),
    }
    return FrameworkTerms(**known)


_STATED: Final = ("overlap_grad", "overlap_param", "overlap_tp", "split_sends")


def gradient_bytes(workload: Workload) -> float:
    """Return the bytes in which a gradient is added up and reduced."""
    if workload.precision == "fp32":
        return 4.0
    return 4.0 if terms_of(workload).fp32_gradients and workload.precision != "fp16" else 2.0
