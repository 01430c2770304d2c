"""The stage `rates`: a description of the machine, and the speed of products, attention, memory and launches."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.gpu.jobs import idle_memory
from benchmarks.gpu.process import ROOT
from benchmarks.gpu.stage import Context, Entry, Item

if TYPE_CHECKING:
    import torch

WINDOW: Final = 0.01
"""Seconds that a timed batch of calls should take."""
BATCHES: Final = 4
HIDDEN: Final[Sequence[int]] = (1024, 2048, 4096, 8192)
TOKENS: Final[Sequence[int]] = (1024, 2048, 4096, 8192, 32768)
VOCABULARY: Final = 51200
PRECISIONS: Final = {"bf16": HIDDEN, "fp8": HIDDEN[1:], "fp16": HIDDEN[2:3], "fp8-rowwise": HIDDEN[2:3]}
"""The hidden sizes whose products are measured in each precision."""
KERNELS: Final = {"flash": (64, 128, 256), "cudnn": (64, 128), "eager": (128,), "efficient": (128,)}
"""The head sizes with which each attention kernel is measured."""
SEQUENCES: Final[Sequence[int]] = (1024, 2048, 4096, 8192, 16384, 32768)
MAX_EAGER: Final = 4096
"""Longest sequence of eager attention; longer ones run out of memory for their scores."""
WIDTH: Final = 4096
"""Width of all heads together."""
CALL_SECONDS: Final = BATCHES * WINDOW + 0.04
"""Estimated seconds to measure one figure, including warm-up and allocation."""
LAUNCHES: Final = 2000
SMI: Final = "name,driver_version,memory.total,memory.used,power.limit,clocks.max.sm,clocks.max.memory,compute_mode"


def rate_items(context: Context) -> list[Item]:
    """Return the items of the stage `rates`."""
    device = "cpu" if context.runner.on_host else "cuda"
    tokens, sequences = ((16,), (128,)) if context.tiny else (TOKENS, SEQUENCES)
    made = [Item("machine", 15.0, machine), Item("doctor", 15.0, partial(doctor, context.results.folder))]
    products = 3 * len(tokens) * 4 + len(tokens)
    made += [
        Item(
            f"products-{precision}-{width}",
            (products if precision == "bf16" else len(tokens) * 5) * CALL_SECONDS,
            partial(measured, products_of, device, precision, width, tokens),
        )
        for precision, widths in PRECISIONS.items()
        for width in ((64,) if context.tiny else widths)
    ]
    made += [
        Item(
            f"attention-{kernel}-d{head}",
            2 * len(sequences) * CALL_SECONDS + 0.5,
            partial(measured, attentions, device, kernel, head, sequences),
        )
        for kernel, heads in KERNELS.items()
        for head in heads[: 1 if context.tiny else None]
    ]
    size = 1 << (20 if context.tiny else 31)
    made.append(Item("bandwidth", 3.0, partial(measured, bandwidths, device, size)))
    return [*made, Item("launches", 3.0, partial(measured, launches, device))]


def measured(figures: Callable[..., Iterator[Entry]], *arguments: Any) -> Entry:
    """Return the entry of several figures; a figure that the machine cannot measure has the reason instead."""
    found = list(figures(*arguments))
    good = [each for each in found if "refused" not in each]
    entry: Entry = {"status": "OK" if good else "REFUSED", "figures": found}
    if not good:
        entry["meaning"] = found[0]["refused"]
    if rates := [each["tflops"] for each in good if "tflops" in each]:
        entry["tflops"] = max(rates)
    return entry


def figure(about: Entry, prepare: Callable[[], Callable[[], Any]], device: str, *, flops: float = 0.0) -> Entry:
    """Return the seconds of one call (median and shortest of several batches), or the reason why it failed.

    `prepare` allocates the operands and returns the call.
    """
    try:
        calls = prepare()
        seconds = timed(calls, device)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError) as error:
        _forget(device)
        return {**about, "refused": str(error).strip().splitlines()[0][:300] if str(error).strip() else repr(error)}
    found = {**about, "seconds": seconds[len(seconds) // 2], "shortest": seconds[0]}
    return found | ({"tflops": flops / seconds[len(seconds) // 2] / 1e12} if flops else {})


def timed(call: Callable[[], Any], device: str) -> list[float]:
    """Return the seconds of one call in each of several batches, in ascending order."""
    import torch

    def batch(count: int) -> float:
        if device == "cpu":
            began = time.perf_counter()
            for _ in range(count):
                call()
            return time.perf_counter() - began
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        for _ in range(count):
            call()
        last.record()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    batch(2)
    count = max(1, min(1000, math.ceil(WINDOW / max(batch(1), 1e-6))))
    return sorted(batch(count) / count for _ in range(BATCHES))


def _forget(device: str) -> None:
    """Free the cached memory of a failed call."""
    import torch

    if device == "cuda":
        torch.cuda.empty_cache()


def products_of(device: str, precision: str, hidden: int, tokens: Sequence[int]) -> Iterator[Entry]:
    """Yield the rate of a layer's matrix products: forward, and in bf16 also the two of the backward pass."""
    shapes = {"qkv": (hidden, 3 * hidden), "out": (hidden, hidden), "up": (hidden, 4 * hidden)}
    shapes |= {"down": (4 * hidden, hidden), "head": (hidden, VOCABULARY)}
    for rows in tokens:
        for name, (inputs, outputs) in shapes.items():
            passes = ("forward", "inputs", "weights") if precision == "bf16" and name != "head" else ("forward",)
            for which in passes:
                about = {"product": name, "pass": which, "m": rows, "k": inputs, "n": outputs, "precision": precision}
                prepare = partial(_product, device, precision, which, rows, inputs, outputs)
                yield figure(about, prepare, device, flops=2.0 * rows * inputs * outputs)


def _product(device: str, precision: str, which: str, rows: int, inputs: int, outputs: int) -> Callable[[], Any]:
    """Return the call of a layer's product, with operands laid out as in training: weights are (outputs, inputs)."""
    import torch

    words = torch.float16 if precision == "fp16" else torch.bfloat16
    left = torch.randn(rows, inputs, device=device, dtype=words)
    weight = torch.randn(outputs, inputs, device=device, dtype=words)
    if precision.startswith("fp8"):
        return _scaled(left, weight, by_row=precision == "fp8-rowwise")
    gradient = torch.randn(rows, outputs, device=device, dtype=words)
    if which == "inputs":
        return partial(torch.matmul, gradient, weight)
    if which == "weights":
        return partial(torch.matmul, gradient.t(), left)
    return partial(torch.matmul, left, weight.t())


def _scaled(left: torch.Tensor, weight: torch.Tensor, *, by_row: bool) -> Callable[[], Any]:
    """Return the call of torch's e4m3 product: second operand column-major, fp32 scales per tensor or per row."""
    import torch

    first, second = left.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn).t()
    one = partial(torch.ones, device=left.device, dtype=torch.float32)
    scales = (one(len(left), 1), one(1, len(weight))) if by_row else (one(()), one(()))
    return partial(
        torch._scaled_mm,
        first,
        second,
        scale_a=scales[0],
        scale_b=scales[1],
        out_dtype=torch.bfloat16,
        use_fast_accum=left.device.type == "cuda",
    )


def attentions(device: str, kernel: str, head: int, sequences: Sequence[int]) -> Iterator[Entry]:
    """Yield the rate of causal attention, forward and backward; only the FLOPs below the diagonal count."""
    for seq in sequences:
        batch = max(1, 16384 // seq)
        if kernel == "eager" and seq > MAX_EAGER:
            continue
        shape = (1 if device == "cpu" else batch, WIDTH // head, seq, head)
        forward = 4.0 * shape[0] * shape[1] * seq * seq * head / 2
        for which, flops in (("forward", forward), ("backward", 2.5 * forward)):  # five products instead of two
            about = {"kernel": kernel, "pass": which, "batch": shape[0], "heads": shape[1], "seq": seq, "head": head}
            yield figure(about, partial(_attention, device, kernel, shape, which), device, flops=flops)


def _attention(device: str, kernel: str, shape: tuple[int, ...], which: str) -> Callable[[], Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query, key, value = (torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    if kernel == "eager":
        from tuner.worker.block import eager_attention

        forward: Callable[[], Any] = partial(eager_attention, query, key, value, None)
    else:
        backends = {
            "flash": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
        }

        def forward() -> Any:
            with sdpa_kernel(backends[kernel]):
                return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    if which == "forward":
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return partial(torch.autograd.grad, out, (query, key, value), gradient, retain_graph=True)


def bandwidths(device: str, size: int) -> Iterator[Entry]:
    """Yield the bandwidth of copies, element-wise operations, a reduction, and copies to and from the host."""
    import torch

    source = torch.zeros(size, device=device, dtype=torch.uint8)
    target, words = torch.empty_like(source), source.view(torch.bfloat16)
    calls = {
        "copy": (partial(target.copy_, source), 2 * size),
        "scale": (partial(torch.mul, words, 2.0, out=target.view(torch.bfloat16)), 2 * size),
        "add": (partial(torch.add, words, words, out=target.view(torch.bfloat16)), 2 * size),
        "sum": (partial(torch.sum, words, dtype=torch.float32), size),
        "fill": (partial(target.fill_, 1), size),
    }
    if device == "cuda":
        host = torch.zeros(1 << 28, dtype=torch.uint8, pin_memory=True)
        part = source[: len(host)]
        calls["to host"] = partial(host.copy_, part, non_blocking=True), len(host)
        calls["from host"] = partial(part.copy_, host, non_blocking=True), len(host)
    for name, (call, moved) in calls.items():
        found = figure({"operation": name, "bytes": moved}, lambda call=call: call, device)  # type: ignore[misc]
        yield found | ({"gb_s": moved / found["seconds"] / 1e9} if "seconds" in found else {})


def launches(device: str) -> Iterator[Entry]:
    """Yield the host time to launch a kernel, for operations whose kernels take almost no time."""
    import torch

    word = torch.zeros(8, device=device)
    matrix = torch.zeros(16, 16, device=device, dtype=torch.bfloat16)
    calls: dict[str, Callable[[], Any]] = {
        "add_": partial(word.add_, 1.0),
        "matmul": partial(torch.matmul, matrix, matrix),
        "layer_norm": partial(torch.nn.functional.layer_norm, matrix, (16,)),
        "softmax": partial(torch.softmax, matrix, -1),
    }
    for name, call in calls.items():
        call()
        _wait(device)
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        launched = time.perf_counter() - began
        _wait(device)
        done = time.perf_counter() - began
        yield {"operation": name, "launch_us": launched / LAUNCHES * 1e6, "done_us": done / LAUNCHES * 1e6}


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def machine() -> Entry:
    """Return the machine's versions and hardware figures, and the GPU memory in use before any job."""
    import torch

    found: Entry = {"status": "OK", "python": platform.python_version(), "torch": str(torch.__version__)}
    found |= {"cuda": torch.version.cuda, "cores": os.cpu_count(), "idle_gib": idle_memory()}
    found["host_gib"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"gpu": properties.name, "memory": properties.total_memory, "sms": properties.multi_processor_count}
        found["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found["nccl"] = list(torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
        arguments = ["nvidia-smi", "--id=0", f"--query-gpu={SMI}", "--format=csv"]
        found["smi"] = subprocess.run(arguments, capture_output=True, text=True, timeout=30, check=False).stdout
    return found


def doctor(folder: Path) -> Entry:
    """Return the output of `tuner doctor --measure` and the calibration file that it writes."""
    site = folder / "site.toml"
    arguments = [sys.executable, "-m", "tuner", "doctor", "--measure", "-o", str(site), "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    entry: Entry = {"status": "FAIL" if done.returncode else "OK", "exit": done.returncode}
    if site.is_file():
        entry["site"] = site.read_text()
    try:
        return entry | {"doctor": json.loads(done.stdout)}
    except ValueError:
        return entry | {"status": "FAIL", "meaning": done.stderr.strip()[-400:]}
