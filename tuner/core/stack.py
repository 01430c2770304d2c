"""The software stack of a run, where it differs from its framework's usual settings."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from tuner.core.errors import InputError
from tuner.core.text import shown
from tuner.core.validation import check_fields

FloatPrecision = Literal["fp32", "bf16", "fp16"]
CudaGraph = Literal["none", "partial", "full"]
ContextExchange = Literal["p2p", "all_gather", "a2a"]
"""How context parallel ranks exchange keys and values, in the words of Megatron-LM's --cp-comm-type."""
OVERLAPPED_TP: Final = 0.94
"""Share of tensor parallel traffic that Transformer Engine's userbuffers overlap with the products: of a layer's eight
collectives it exposes a quarter of two, the forward reduce-scatters (counted)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Deviations of a run's software stack from its framework's usual settings; None: as usual."""

    overlap_grad: float | None = None
    """Share of the gradients' reduction that may overlap with the last backward pass."""
    overlap_param: float | None = None
    """Share of the parameters' gathering that may overlap with the first forward pass."""
    overlap_tp: float | None = None
    """Share of tensor parallel traffic that overlaps with the products."""
    grad_precision: FloatPrecision | None = None
    """Precision in which gradients are accumulated and reduced."""
    state_precision: FloatPrecision | None = None
    """Precision of the weights and the optimizer's states under PyTorch's FSDP."""
    loss_precision: FloatPrecision | None = None
    """Precision of the loss."""
    fused_loss: bool | None = None
    """Whether one kernel computes the loss: Transformer Engine's, which leaves the gradient in place of the logits, or
    under PyTorch's FSDP one that keeps both in their precision."""
    loss_chunks: int | None = None
    """Parts of a microbatch's tokens whose logits exist one after another."""
    compiled: bool | None = None
    """Whether torch.compile fuses what is element-wise in each layer."""
    early_stop: bool | None = None
    """Whether PyTorch's checkpoint stops computing a layer again as soon as the backward pass has what it needs."""
    unsharded_gradients: bool | None = None
    """Whether whole gradients are added up until the last microbatch's are reduced, under PyTorch's FSDP."""
    precision_aware_optimizer: bool | None = None
    """Whether an offloaded optimizer of Megatron-Core leaves no fp32 weights on the GPU."""
    quantized_weights: bool | None = None
    """Whether the weights of fp8 and fp4 layers are stored in that precision, instead of copied from bf16."""
    bf16_layers: tuple[int, int] | None = None
    """First and last layers that stay in 16 bits while all others are in fp8 or fp4."""
    fused_permutation: bool | None = None
    """Whether Megatron-Core sorts tokens by expert in Transformer Engine's kernels."""
    padded_experts: bool | None = None
    """Whether the tokens of each expert of Megatron-Core are padded to its capacity."""
    split_sends: bool | None = None
    """Whether a tensor parallel rank sends only its part of the activations to the next stage."""
    cuda_graph: CudaGraph | None = None
    """The part launched as recorded CUDA graphs: nothing, all but experts, or all."""
    cp_comm: ContextExchange | None = None
    """How context parallel ranks exchange keys and values."""
    cudnn: str | None = None
    """Version of cuDNN, such as 9.18."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.loss_chunks is not None and self.loss_chunks < 1:
            raise InputError(f"loss_chunks must be 1 or more, not {self.loss_chunks}.")
        if self.cudnn is not None and not re.fullmatch(r"\d+(\.\d+)+", self.cudnn):
            raise InputError(f"cudnn must be a version, such as 9.18, not {shown(self.cudnn)}.")
        if self.bf16_layers is not None and not _are_two_counts(self.bf16_layers):
            raise InputError(
                f"bf16_layers must be two numbers of layers, such as (1, 4), not {shown(str(self.bf16_layers))}."
            )

    def __repr__(self) -> str:
        """Return the fields that are not None: runs are identified by them."""
        return representation(self, {each.name for each in fields(self)})


def representation(value: Any, optional: Set[str]) -> str:
    """Return the fields of a dataclass, without those among the optional ones that are None."""
    values = {each.name: getattr(value, each.name) for each in fields(value)}
    named = [f"{name}={own!r}" for name, own in values.items() if name not in optional or own is not None]
    return f"{type(value).__name__}({', '.join(named)})"


def _are_two_counts(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(type(each) is int and each >= 0 for each in value)
