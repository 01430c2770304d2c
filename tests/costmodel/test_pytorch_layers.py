"""What PyTorch's checkpoint repeats of a layer, and what torch.compile fuses and keeps: counted, and seen in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tests.costmodel.test_fully_sharded import (
    DENSE,
    FFN,
    HIDDEN,
    KEYS,
    LAYERS,
    SUMS,
    TOKENS,
    WIDTH,
    memory,
    scored,
    seconds,
)
from tests.mixtures import QWEN3_30B
from tuner.core.catalog import gpu
from tuner.core.domain import Framework
from tuner.core.stack import Stack
from tuner.costmodel.kernels import linear, traffic_rate
from tuner.costmodel.links import Links, all_reduce
from tuner.costmodel.microbatch import MicrobatchTimes
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stack_constants import DTENSOR_HOST_SECONDS
from tuner.space.build import space_for

COMPILED = Stack(compiled=True)
FRAMEWORKS: tuple[Framework, ...] = ("deepspeed", "fsdp2", "torchtitan")


def last_product(tp: int = 1) -> float:
    """Return the seconds of the products of a forward pass that end the layers' MLPs."""
    space = space_for(model=DENSE, gpu="H100-80GB-SXM", nodes=1, precision="bf16", framework="fsdp2")
    ahead, _ = linear(space.cluster.gpu, space.workload, SiteFactors(), TOKENS, HIDDEN, FFN / tp)
    return LAYERS * float(ahead)


def copy(tokens: float) -> float:
    """Return the seconds in which each layer copies its input."""
    return LAYERS * 2 * 2 * tokens * HIDDEN / traffic_rate(gpu("H100-80GB-SXM"), SiteFactors())


def repeated(model: Any = DENSE, **named: Any) -> tuple[float, float]:
    """Return the seconds that a run repeats if it recomputes whole layers, and if it stops early."""
    whole, stopped = (
        seconds("recompute", name, model=model, recompute="full", zero=1, stack=Stack(grad_precision="bf16"), **named)
        for name in (None, "deepspeed")
    )
    return whole, stopped


def test_a_recomputed_layer_stops_before_its_last_product() -> None:
    whole, stopped = repeated()
    assert whole - stopped == pytest.approx(last_product())


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_a_gather_or_scatter_behind_the_batch_copies_the_sequence(micro_batch: int) -> None:
    """A scatter in front of it, a gather behind it, unless the batch is one sequence, whose parts are in order."""
    named: dict[str, Any] = {"tp": 2, "batch": 8, "zero": 1, "micro_batch": micro_batch, "sequence_parallel": True}
    exchanged, copied = (seconds("tensor_parallel", name, **named) for name in ("deepspeed", "torchtitan"))
    copies = 4 if micro_batch == 1 else 8
    assert copied - exchanged == pytest.approx(copies * copy(2 * TOKENS))
    again, more = (
        seconds("recompute", "torchtitan", recompute="selective", **(named | {"sequence_parallel": how}))
        - seconds("elementwise", "torchtitan", **(named | {"sequence_parallel": how})) / 2.6
        for how in (False, True)
    )
    assert more - again == pytest.approx((copies - 4) / 2 * copy(2 * TOKENS) - exchanged / 4)
    assert seconds("tensor_parallel", "torchtitan", stack=Stack(overlap_tp=0.5), **named) < exchanged


def test_pytorch_dispatches_sharded_tensors_in_python_unless_compiled() -> None:
    """The host then takes longer for a layer, which nothing waits for where the GPU takes longer still."""

    def waits(framework: str | None, tp: int, *, compiled: bool = False, small: bool = True) -> float:
        model = replace(DENSE, seq=128) if small else replace(DENSE, hidden=8192, ffn=28672)
        stack = Stack(compiled=True) if compiled else None
        return seconds("launch", framework, model=model, tp=tp, batch=8 // tp, zero=1, stack=stack)

    plain, sharded = waits("deepspeed", 2), waits("torchtitan", 2)
    assert sharded - plain == pytest.approx(LAYERS * sum(DTENSOR_HOST_SECONDS), rel=0.05)
    assert waits("torchtitan", 2, compiled=True) == pytest.approx(plain, rel=0.05)
    assert waits("torchtitan", 1) == pytest.approx(waits("deepspeed", 1), rel=0.05)
    assert waits("torchtitan", 2, small=False) == waits("deepspeed", 2, small=False) == 0


@pytest.mark.parametrize(("sequences", "copies"), [(1, (0, 1)), (2, (1, 1))])
def test_torch_copies_a_sequence_behind_the_batch(sequences: int, copies: tuple[int, int]) -> None:
    class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func is torch.ops.aten.cat.default
            return func(*args, **(kwargs or {}))

    def count(before: Any, after: Any) -> int:
        tensor = DTensor.from_local(torch.randn(sequences, 8, 4), mesh, [before])
        with Copies() as copied:  # type: ignore[no-untyped-call]
            tensor.redistribute(mesh, [after])
        return int(copied.count)

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        assert (count(Shard(1), Replicate()), count(Partial(), Shard(1))) == copies
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("sequence_parallel", "share"), [(False, 0.5), (True, 0.25)])
def test_the_sum_over_ranks_behind_the_last_product_is_not_repeated(sequence_parallel: bool, share: float) -> None:
    named: dict[str, Any] = {"tp": 2, "batch": 4, "sequence_parallel": sequence_parallel, "host": 0.0}
    whole, stopped = repeated(**named)
    exchanged = seconds("tensor_parallel", "deepspeed", zero=1, **named) / 2
    assert whole - stopped == pytest.approx(last_product(tp=2) + share * exchanged)


@pytest.mark.parametrize("bandwidth", [1e9, 1e10, 1e11, 1e12])
def test_a_recomputed_pass_lasts_as_long_as_the_host_launches_it(bandwidth: float) -> None:
    """A faster link never makes recomputation slower, and stopping early saves no time that the GPU waits for the
    host."""
    named: dict[str, Any] = {"tp": 4, "batch": 2, "zero": 2, "recompute": "full", "host": 3.0}
    slow, fast = (
        sum(float(each[0]) for each in scored("fsdp2", bandwidth=rate, **named).time_terms.values())
        for rate in (bandwidth, 2 * bandwidth)
    )
    assert fast <= slow * (1 + 1e-12)


def test_only_shards_of_an_embedding_are_summed_over_ranks() -> None:
    """With transformers' plan each tensor parallel rank has the whole embedding, whose lookup exchanges nothing."""
    sharded, whole = (scored(name, tp=4, batch=2, zero=2).columns for name in ("torchtitan", "fsdp2"))
    exchanged = all_reduce(2 * TOKENS * HIDDEN, 4, *Links(sharded, SiteFactors()).tensor)
    lookups = [MicrobatchTimes.of(columns, SiteFactors()).embedding for columns in (sharded, whole)]
    assert float((lookups[0] - lookups[1])[0]) == pytest.approx(float(exchanged[0]))


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_each_product_of_transformers_exchanges_its_own_input(sequence_parallel: bool) -> None:
    """Of queries, keys, values, gate and up: five gathers and sums of gradients instead of two each.

    torch.compile merges the gathers, whose input is the same, but not the sums.
    """
    named: dict[str, Any] = {"tp": 2, "batch": 4, "zero": 1, "sequence_parallel": sequence_parallel, "host": 0.0}
    once, each, merged = (
        seconds("tensor_parallel", name, stack=stack, **named)
        for name, stack in (("deepspeed", None), ("fsdp2", None), ("fsdp2", COMPILED))
    )
    copied = (2 + 5) * copy(TOKENS) if sequence_parallel else 0.0  # before each scatter
    each, merged = each - copied, merged - copied
    assert each == pytest.approx((2 + 5) / (2 + 2) * once)
    assert merged == pytest.approx(((2 + 2) + (2 + 5) if sequence_parallel else 2 * (2 + 5)) / (2 * (2 + 2)) * once)
    plain = replace(DENSE, gated_mlp=False)
    once, each = (seconds("tensor_parallel", name, model=plain, **named) for name in ("deepspeed", "fsdp2"))
    copied = (2 + 4) * copy(TOKENS) if sequence_parallel else 0.0
    assert each - copied == pytest.approx((2 + 4) / (2 + 2) * once)
    whole, stopped = (
        seconds("recompute", "fsdp2", recompute="full", stack=Stack(early_stop=early), **named)
        for early in (False, True)
    )
    ahead = (2 + 5) / (2 + 2) if sequence_parallel else 1.0
    share = 1 / 7 if sequence_parallel else 1 / 2
    exchanged = share * seconds("tensor_parallel", "deepspeed", **named) / 2 * ahead
    assert whole - stopped == pytest.approx(last_product(tp=2) + exchanged + sequence_parallel * copy(TOKENS))


@pytest.mark.parametrize(
    "change",
    [
        {"norms_per_layer": 4},
        {"hidden_dropout": 0.1},
        {"norm_placement": "after"},
        {"norm_placement": "after_residual"},
    ],
)
def test_what_a_norm_or_dropout_stores_is_computed_again(change: dict[str, Any]) -> None:
    whole, stopped = repeated(replace(DENSE, **change))
    assert whole == pytest.approx(stopped)


def test_the_outputs_of_experts_are_stored_to_be_weighted() -> None:
    whole, stopped = repeated(QWEN3_30B)
    assert whole == pytest.approx(stopped)


@pytest.mark.parametrize("reentrant", [False, True])
def test_torch_repeats_one_product_of_two_without_reentrance(reentrant: bool) -> None:
    """The second product of an MLP with a residual is not among those of a backward pass."""
    inner, outer = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += "mm" in str(func)
            return func(*args, **(kwargs or {}))

    def layer(inputs: Any) -> Any:
        return inputs + outer(torch.nn.functional.silu(inner(inputs)))

    result: Any = checkpoint(layer, torch.randn(2, 4, requires_grad=True), use_reentrant=reentrant)
    with Products() as products:  # type: ignore[no-untyped-call]
        result.sum().backward()
    assert products.count == 4 + (2 if reentrant else 1)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_compiled_layer_moves_what_its_fused_kernels_read_and_write(framework: Framework) -> None:
    """Sums fuse with the norms behind them, SwiGLU and rotary embeddings are one kernel each."""
    eager, compiled = (
        seconds("elementwise", framework, model=replace(DENSE, qk_norm=True), zero=1, stack=stack)
        for stack in (None, COMPILED)
    )
    rotated = WIDTH + KEYS
    saved = (21.1 - 18) * HIDDEN + (12.4 - 6) * FFN + (14.5 - 4 + 4) * rotated
    rate = traffic_rate(gpu("H100-80GB-SXM"), SiteFactors())
    assert eager - compiled == pytest.approx(2.6 * saved * TOKENS * LAYERS / rate)


def test_a_compiled_layer_keeps_gate_up_and_their_product() -> None:
    eager, compiled = (memory(stack=stack)["activations"] for stack in (None, COMPILED))
    assert eager - compiled == pytest.approx(LAYERS * 2 * TOKENS * FFN)
    assert compiled == pytest.approx(LAYERS * (2 * TOKENS * (4 * HIDDEN + 2 * WIDTH + 2 * KEYS + 3 * FFN) + SUMS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_keeps_three_values_of_a_gated_mlps_width() -> None:
    """Counted in the partition of the graph from which the kernels of a compiled layer are generated."""
    width, hidden, tokens = 48, 8, 4
    gate, up = (torch.nn.Linear(hidden, width, bias=False) for _ in range(2))
    down = torch.nn.Linear(width, hidden, bias=False)

    def layer(inputs: Any) -> Any:
        return inputs + down(torch.nn.functional.silu(gate(inputs)) * up(inputs))

    def kept(function: Callable[[Any], Any]) -> int:
        sizes = dict[int, int]()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.setdefault(tensor.data_ptr(), tensor.numel()) and tensor, lambda tensor: tensor
        ):
            function(torch.randn(tokens, hidden, requires_grad=True))
        return sum(size == tokens * width for size in sizes.values())

    assert kept(layer) == 4
    assert kept(torch.compile(layer, backend="aot_eager_decomp_partition")) == 3
