"""The overlap, communication and memory of each framework: the terms of the cost model in which frameworks differ.

A run's `Stack`, read from a measurement table, overrides the record of its framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from tuner.core.columns import BoolArray, Columns
from tuner.core.domain import Framework, Workload
from tuner.core.frameworks import context_exchange
from tuner.core.model import Model
from tuner.core.stack import CudaGraph, FloatPrecision

_LM: Final = "NVIDIA/Megatron-LM at d98e8a64, megatron/"
_DEEPSPEED: Final = "DeepSpeed 0.19.8, runtime/"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTerms:
    """The training terms of one framework."""

    overlap_grad: float = 0.0
    """Share of the gradients' reduction that may overlap with the last microbatch's backward pass."""
    overlap_param: float = 0.0
    """Share of the parameters' gathering that may overlap with the first microbatch's forward pass."""
    overlap_sharding: float | None = None
    """Share of the gathers and reductions of ZeRO 2 and 3 that may overlap with the passes, which bound it; None: the
    fitted `OVERLAPPED_GATHER_SHARE`."""
    overlap_tp: float = 0.0
    """Share of tensor parallel traffic that overlaps with the products, which bound it."""
    cuda_graph: CudaGraph = "none"
    """The part launched as recorded graphs: nothing, everything with fixed shapes (all but experts), or everything."""
    overlap_sends: bool = False
    """Whether sends of an interleaved schedule overlap with its passes."""
    scattered: bool = False
    """Whether ZeRO 1 reduces each gradient to one rank only, instead of to all ranks."""
    fp32_gradients: bool = False
    """Whether bf16 training adds up and reduces its gradients in fp32."""
    quantized_weights: bool = False
    """Whether Transformer Engine's fp8 and fp4 weights are the parameters themselves, instead of copies of bf16 ones
    that are kept from one microbatch to the next."""
    split_sends: bool = False
    """Whether a tensor parallel rank sends only its part of the activations to the next stage."""
    fused_accumulation: bool = False
    """Whether the products of the weights' gradients add to those of earlier microbatches."""
    fused_elementwise: bool = False
    """Whether SwiGLU and rotary embeddings are one kernel each."""
    compiled: bool = False
    """Whether torch.compile fuses what is element-wise in each layer, norms and sums included, and repeats it in the
    backward pass instead of storing it."""
    transformer_engine: bool = False
    """Whether layers and attention are NVIDIA's Transformer Engine, whose attention is cuDNN's from Hopper on."""
    cudnn: str | None = None
    """Version of cuDNN; None: that of the published rates of its attention."""
    separate_buckets: bool = True
    """Whether gradients and updated weights travel through buckets of their own, instead of from where they lie."""
    small_buckets: bool = False
    """Whether gradients are reduced in buckets that grow with the number of ranks, instead of DeepSpeed's."""
    step_copies: bool = True
    """Whether the step flattens and copies gradients (ZeRO 1 and 2 of DeepSpeed)."""
    fully_sharded: bool = False
    """Whether layers are PyTorch's own and its fully_shard shards the weights that the optimizer updates."""
    separate_inputs: bool = False
    """Whether each product of attention and MLP gathers its input over tensor parallel ranks for itself."""
    batch_first: bool = False
    """Whether gathers and scatters of the sequence copy it, because it lies behind the dimension of the batch."""
    whole_embedding: bool = False
    """Whether each tensor parallel rank has the whole embedding."""
    saved_products: bool = False
    """Whether selective recomputation saves every second product's output, instead of all but attention's scores."""
    early_stop: bool = False
    """Whether the recomputation of a layer stops before its last product, whose output nothing behind it stores."""
    unsharded_gradients: bool = False
    """Whether whole gradients are added up until the last microbatch's are reduced."""
    torch_adam: bool = False
    """Whether an offloaded optimizer is PyTorch's fused AdamW, instead of DeepSpeed's."""
    overlap_offload: bool = False
    """Whether gradients and weights travel between GPU and main memory while the CPUs step, once per iteration."""
    precision_aware_optimizer: bool = True
    """Whether an offloaded optimizer leaves no fp32 weights on the GPU (--use-precision-aware-optimizer)."""
    fused_permutation: bool = True
    """Whether tokens are sorted by expert in one kernel (--moe-permute-fusion), instead of PyTorch's index_select and
    scatter_add."""
    padded_experts: bool = False
    """Whether experts with a capacity always get that many tokens (--moe-pad-expert-input-to-capacity)."""
    state_precision: FloatPrecision = "fp32"
    """Precision of the optimizer's weights and states."""
    loss_precision: FloatPrecision = "fp32"
    """Precision of the loss."""
    loss_chunks: int = 1
    """Parts of a microbatch's tokens whose logits exist one after another."""
    in_place_loss: bool = False
    """Whether a parallel loss computes the softmax and its gradient in the fp32 copy of the logits."""
    fused_loss: bool = False
    """Whether Transformer Engine's kernel computes the loss, and its gradient in place of the logits."""
    source: str = ""


FRAMEWORK_TERMS: Final[Mapping[Framework | None, FrameworkTerms]] = {
    None: FrameworkTerms(source="not specified: nothing overlaps, 16-bit gradients"),
    "megatron-deepspeed": FrameworkTerms(
        source=_DEEPSPEED + "pipe/engine.py: _exec_reduce_grads after the last microbatch, pipe_partitioned off; "
        "engine.py: get_data_types, grad_accum_dtype is the model's",
    ),
    "deepspeed": FrameworkTerms(
        early_stop=True,
        source=_DEEPSPEED + "engine.py: get_data_types, grad_accum_dtype is the model's",
    ),
    "megatron-core": FrameworkTerms(
        overlap_grad=1.0,
        overlap_param=1.0,
        overlap_sharding=1.0,
        overlap_sends=True,
        transformer_engine=True,
        fused_accumulation=True,
        fused_elementwise=True,
        scattered=True,
        fp32_gradients=True,
        separate_buckets=False,
        small_buckets=True,
        step_copies=False,
        in_place_loss=True,
        torch_adam=True,
        overlap_offload=True,
        source=_LM + "training/arguments.py: --overlap-grad-reduce and --overlap-param-gather, which the export sets, "
        "also of Megatron-FSDP (core/distributed/fsdp/src/megatron_fsdp/fully_shard.py), "
        "overlap_p2p_comm of interleaved stages, gradient_accumulation_fusion, bias_swiglu_fusion, apply_rope_fusion, "
        "bf16 sets accumulate_allreduce_grads_in_fp32; NVIDIA/TransformerEngine, pytorch/attention/"
        "dot_product_attention/utils.py: cuDNN before FlashAttention-2 from Hopper on; core/distributed/"
        "param_and_grad_buffer.py: reduce-scatter and all-gather within the buffers of gradients and parameters; core/"
        "core/tensor_parallel/cross_entropy.py: exp_logits; core/optimizer/cpu_offloading/hybrid_optimizer.py",
    ),
    "fsdp2": FrameworkTerms(
        early_stop=True,
        fully_sharded=True,
        whole_embedding=True,
        separate_inputs=True,
        batch_first=True,
        unsharded_gradients=True,
        torch_adam=True,
        separate_buckets=False,
        step_copies=False,
        source="PyTorch, torch/distributed/fsdp: MixedPrecisionPolicy, reduce_dtype is param_dtype unless stated; "
        "accelerate, utils/fsdp_utils.py upcasts parameters to fp32; accelerator.py: no_sync calls "
        "set_requires_gradient_sync(False); transformers 5.23, models/llama: base_model_tp_plan has no embed_tokens; "
        "distributed/tensor_parallel.py: ColwiseParallel.transform_inputs_pre_forward",
    ),
    "torchtitan": FrameworkTerms(
        early_stop=True,
        fully_sharded=True,
        saved_products=True,
        batch_first=True,
        torch_adam=True,
        fp32_gradients=True,
        separate_buckets=False,
        step_copies=False,
        loss_chunks=8,
        source="pytorch/torchtitan at b5bcd76, torchtitan/config/configs.py: mixed_precision_reduce is float32; "
        "distributed/activation_checkpoint.py: SelectiveAC; "
        "components/loss.py: ChunkedLossWrapper, which every registered model has",
    ),
}


def is_estimated_alike(framework: Framework | None, other: str) -> bool:
    """Whether two frameworks have the same terms; the empty name stands for one that is not known."""
    own, found = FRAMEWORK_TERMS[framework], FRAMEWORK_TERMS.get(other or None)  # type: ignore[arg-type] # any name
    return framework == other or (found is not None and own == replace(found, source=own.source))


def terms_of(workload: Workload) -> FrameworkTerms:
    """Return the terms of the workload's framework, with the overrides of its stack."""
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


_STATED: Final = (
    *("overlap_grad", "overlap_param", "overlap_tp", "quantized_weights", "split_sends"),
    *("cuda_graph", "cudnn"),
    *("state_precision", "loss_precision", "loss_chunks", "fused_loss", "unsharded_gradients"),
    *("precision_aware_optimizer", "fused_permutation", "padded_experts", "compiled", "early_stop"),
)


def recomputed_norms(model: Model, moe_share: Any) -> Any:
    """Return how many norms of a layer `layernorm` recomputes: those in front of experts and of latent attention.

    Transformer Engine fuses all others with the product behind them (NVIDIA/Megatron-LM at d98e8a64, megatron/core/
    models/gpt/gpt_layer_specs.py: input_layernorm, pre_mlp_layernorm).
    """
    return (model.latent is not None) + moe_share


def described(workload: Workload) -> list[str]:
    """Return a description of what the estimate assumes about the workload's software."""
    terms, exchange = terms_of(workload), context_exchange(workload)
    shares = {
        "gradient reduction": terms.overlap_grad,
        "parameter gathering": terms.overlap_param,
        "tensor parallel traffic": terms.overlap_tp,
    }
    words = [f"{100 * share:.0f}% of {name} may overlap" for name, share in shares.items() if share]
    words += [f"{8 * gradient_bytes(workload):.0f}-bit gradients"]
    cudnn = f"cuDNN {terms.cudnn}" if terms.cudnn else "cuDNN"
    flags = {
        "interleaved sends overlap": terms.overlap_sends,
        "context parallel ranks gather all keys and values": exchange == "all_gather",
        "context parallel ranks exchange heads for tokens": exchange == "a2a",
        "sends are split over tensor parallel ranks": terms.split_sends,
        "gradients accumulate within their GEMMs": terms.fused_accumulation,
        "whole gradients until the last microbatch's are reduced": terms.unsharded_gradients,
        "selective recompute repeats every second GEMM": terms.saved_products,
        "fused SwiGLU and rotary embeddings": terms.fused_elementwise,
        "norms, sums and activations fused by torch.compile or Liger": terms.compiled,
        "gathers and scatters of the sequence copy it": terms.batch_first,
        "full recompute of a dense layer stops before its last GEMM": terms.early_stop,
        f"{cudnn} attention from Hopper on": terms.transformer_engine,
        "fused loss": terms.fused_loss,
        "PyTorch's kernels sort tokens by expert": not terms.fused_permutation,
        "tokens of experts padded to their capacity": terms.padded_experts,
    }
    if workload.is_quantized and terms.transformer_engine:
        stored = terms.quantized_weights
        words.append(f"weights in {workload.precision}" if stored else f"{workload.precision} copies of 16-bit weights")
    words += [name for name, on in flags.items() if on]
    words += [f"loss in {terms.loss_chunks} chunks"] * (terms.loss_chunks > 1)
    return words


def gradient_bytes(workload: Workload) -> float:
    """Return the bytes in which a gradient is added up and reduced."""
    if workload.precision == "fp32":
        return 4.0
    return 4.0 if terms_of(workload).fp32_gradients and workload.precision != "fp16" else 2.0


def state_bytes(workload: Workload) -> float:
    """Return the bytes in which a fully sharded model's weights are updated."""
    return 4.0 if workload.precision == "fp32" or terms_of(workload).state_precision == "fp32" else 2.0


def waiting_gradients(columns: Columns) -> BoolArray:
    """Return where a fully sharded model's gradients stay whole until the last microbatch's are reduced.

    In a pipeline of PyTorch's they always do (torch 2.13, distributed/pipelining/stage.py:
    backward_maybe_with_nosync), where gathered weights stay from the first backward pass on as well.
    """
    framework = terms_of(columns.workload)
    later = framework.fully_sharded & (framework.unsharded_gradients | (columns.pp > 1))
    waiting: BoolArray = later & (columns.microbatches > 1) & (columns.tp * columns.shards > 1)
    return waiting
