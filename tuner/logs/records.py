"""Records of an iteration or of memory in a log line, and Megatron's lines.

Megatron-LM and Megatron-DeepSpeed, `training_log` in `megatron/training.py` (now `megatron/training/training.py`),
print ` iteration 2/ 500 | key: value | ... |`, with the time in milliseconds or, in BigScience's fork, in seconds, and
the rate as `TFLOPs` or `throughput per GPU (TFLOP/s/GPU)`; GPT-NeoX the same with `approx flops per GPU`.

A number counts only with the text that terminates it, so that a truncated log does not yield a wrong one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, get_args

from tuner.core.domain import MemoryKind
from tuner.core.quantity import GIB
from tuner.logs.lines import shape_of, speaker

Source = Literal[
    "step pattern",
    "tuner.step",
    "megatron",
    "step time",
    "nemo",
    "nanotron",
    "torchtitan",
    "olmo-core",
    "composer",
    "nanogpt",
    "litgpt",
    "torchtune",
    "maxtext",
    "mmengine",
    "metric logger",
    "open clip",
    "fairseq",
    "pipeline engine",
    "throughput timer",
    "wall-clock breakdown",
    "progress bar",
    "elapsed time",
    "named figures",
    "flops profiler",
    "training summary",
]

SOURCES: Final[tuple[Source, ...]] = get_args(Source)
"""Sources of iterations, the most reliable first; the profiler slows down what it measures."""

LAST_ITERATION_ONLY: Final[frozenset[Source]] = frozenset({"throughput timer", "nanogpt", "litgpt"})
"""Sources that, if they print every n-th iteration, print the time of the last iteration instead of the mean."""


@dataclass(kw_only=True)
class Iteration:
    """One iteration as reported by one line, or by the lines of several ranks.

    It is not frozen, although it never changes once it is part of a run: creating a frozen one takes four times as
    long, and a log has one per line. Without slots, missing figures keep the defaults of the class.
    """

    number: int
    seconds: float | None
    """None if the line has only samples per second and the batch is unknown."""
    seconds_digit: float = 0.0
    """Value of one unit of the last printed digit of the seconds."""
    tflops: float | None = None
    """TFLOPs per GPU, as logged."""
    tflops_digit: float = 0.0
    global_batch: int | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None
    """Of all GPUs."""
    tokens_per_second_per_gpu: float | None = None
    rate_digit: float = 0.0
    """Value of one unit of the last printed digit of the tokens per second, relative to them."""
    clock: float | None = None
    """Seconds of a clock when the iteration ended: a timestamp, or the trainer's total time."""
    clock_digit: float = 0.0
    stamp: float | None = None
    """Seconds of the line's timestamp, with which the printed time must agree."""
    stamp_digit: float = 0.0
    derived: str = ""
    """Figures from which the seconds are derived; empty if the line has them."""
    seq: int | None = None
    """Sequence length, if the line has it."""
    loss: float | None = None
    memory_share: float | None = None
    """Fraction of the GPU's memory in use."""
    counts_batches: bool | None = False
    """Whether a step of its bar is a batch of the data loader and not an optimizer step; None: unknown."""
    skipped: int | None = None
    """Number of iterations without an optimizer step, if the line has it."""
    spread: float = 0.0
    """Relative excess of the slowest rank over the fastest."""
    line: int = 0


@dataclass(slots=True)
class LogRecord:
    """An iteration in one line, with its source; not frozen for the same reason as `Iteration`."""

    source: Source
    speaker: str
    iteration: Iteration
    counted: bool = False
    """Whether the line has no iteration number, so that such lines are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """The peak memory of one rank, in bytes."""

    allocated: float | None = None
    """Allocated by tensors."""
    reserved: float | None = None
    """Reserved by the framework's allocator."""
    in_use: float | None = None
    """In use on the GPU by all processes, as in nvidia-smi."""

    @property
    def figure(self) -> tuple[float | None, MemoryKind | None]:
        """Return the largest figure and its kind: one that counts more may be of an earlier moment."""
        kinds: tuple[tuple[float, MemoryKind], ...] = (
            (self.in_use or 0.0, "smi"),
            (self.reserved or 0.0, "reserved"),
            (self.allocated or 0.0, "allocated"),
        )
        memory, kind = max(kinds, key=lambda figure: figure[0])
        return (memory, kind) if memory else (None, None)


NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"
LOSS: Final = r"-?[0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?|-?nan|-?inf"
_NUMBER: Final = re.compile(NUMBER)
_MEGATRON: Final = re.compile(r"iteration\s+([0-9]{1,12})\s*/\s*[0-9]{1,12}\s*\|")
RECORD_WORDS: Final = ("iteration",)
MEMORY_WORDS: Final = ("max allocated", "Max_MA", "MaxMemAllocated=", "hip mem usage")
"""Each line that this module reads contains one of these words."""

_RATES: Final = ("tflops", "throughput per gpu (tflop/s/gpu)", "approx flops per gpu", "tpt per gpu")
_LOSSES: Final = ("lm loss", "lm_loss")
_RATE: Final = re.compile(rf"({NUMBER})(?:/{NUMBER})?\s*(?:tflops)?", re.IGNORECASE)
_LARGEST: Final = 1e12
_NOT_FINITE: Final = ("nan", "-nan", "inf", "-inf")


def lines_of_megatron(number: int, text: str) -> Iterator[LogRecord]:
    """Yield the iterations of a line; several if two ranks print to the same line."""
    if "iteration= " in text:
        text = _respelt(text)
    after = _MEGATRON.search(text)
    while start := after:
        after = _MEGATRON.search(text, start.end())
        fields = _fields(text[start.end() : after.start() if after else len(text)])
        seconds, digit = _seconds(fields)
        if not seconds:
            continue
        # set only figures of the line: the constructor would set all others as well
        iteration = object.__new__(Iteration)
        iteration.number = int(start[1])
        iteration.seconds = seconds
        iteration.seconds_digit = digit
        iteration.line = number
        if (loss := _megatron_loss(fields)) is not None:
            iteration.loss = loss
        for name in _RATES:
            if rate := fields.get(name):
                figure = _RATE.fullmatch(rate)
                if figure and (tflops := float(figure[1])) < _LARGEST:
                    iteration.tflops, iteration.tflops_digit = tflops, digit_of(figure[1])
                break
        if batch := fields.get("global batch size"):
            iteration.global_batch = _count(batch)
        if skipped := fields.get("number of skipped iterations"):
            iteration.skipped = _count(skipped)
        if seq := fields.get("curriculum seqlen") or fields.get("actual seqlen"):
            iteration.seq = _count(seq)
        if per_second := fields.get("samples per second") or fields.get("samples/sec"):
            iteration.samples_per_second = figure_of(per_second)
        if share := fields.get("mem usages"):
            iteration.memory_share = _share(share)
        prefix = text[: start.start()].rpartition("|")[2]
        yield LogRecord(source="megatron", speaker=speaker(prefix), iteration=iteration)


def _respelt(text: str) -> str:
    """Convert a line of Argonne's fork, `iteration= 2/ 9 | elapsed_time_per_iteration_ms=16 |`, to Megatron's."""
    text = text.replace("iteration= ", "iteration  ").replace("_iteration_ms=", " iteration (ms)=")
    return text.replace("_", " ").replace("=", ": ")


def _megatron_loss(fields: Mapping[str, str]) -> float | None:
    """Return the loss. Megatron prints only positive ones; NaN shows in the gradient norm and in a separate counter."""
    for name in _LOSSES:
        if loss := fields.get(name):
            return loss_of(loss)
    not_finite = "grad norm" in fields and fields["grad norm"].casefold() in _NOT_FINITE
    return math.nan if not_finite or _count(fields.get("number of nan iterations")) else None


_FIELDS: Final = frozenset(
    {
        *_RATES,
        *_LOSSES,
        *("elapsed time per iteration (ms)", "elapsed time per iteration (s)", "global batch size", "mem usages"),
        *("samples per second", "samples/sec", "curriculum seqlen", "actual seqlen", "grad norm"),
        *("number of skipped iterations", "number of nan iterations"),
    }
)
"""Keys of a line whose values are read."""


@lru_cache(1024)
def _places(shape: bytes) -> tuple[tuple[int, str, str], ...]:
    """Return the positions of known keys in a line without digits: part, name as printed, key.

    Empty if a key occurs twice.
    """
    found = []
    for index, part in enumerate(shape.decode(errors="surrogatepass").split("|")[:-1]):
        name, colon, _ = part.partition(": ")
        if colon and (key := name.strip().casefold()) in _FIELDS:
            found.append((index, name + colon, key))
    return tuple(found) if len({key for *_, key in found}) == len(found) else ()


def _fields(text: str) -> dict[str, str]:
    """Return `key: value |` pairs, the first of each key; a value without its bar may be truncated and is skipped.

    Most lines of a log differ only in digits and have their keys in the same positions; no key contains a digit.
    """
    found: dict[str, str] = {}
    parts = text.split("|")
    for index, name, key in _places(shape_of(text)):
        if not parts[index].startswith(name):
            break
        found[key] = parts[index][len(name) :].strip()
    else:
        if found:
            return found
    found = {}
    for part in parts[:-1]:
        name, colon, value = part.partition(": ")
        if colon and (key := name.strip().casefold()) in _FIELDS and key not in found:
            found[key] = value.strip()
    return found


def _seconds(fields: Mapping[str, str]) -> tuple[float | None, float]:
    for name, parts in (("elapsed time per iteration (ms)", 1000), ("elapsed time per iteration (s)", 1)):
        # AMD's fork prints the value of the iteration and, after a slash, the mean.
        printed = fields.get(name, "").partition("/")[0]
        if (figure := figure_of(printed)) is not None:
            return figure / parts, digit_of(printed) / parts
    return None, 0.0


_MEGATRON_MEMORY: Final = re.compile(
    rf"memory \(MB\) \| allocated: {NUMBER} \| max allocated: ({NUMBER}) \| reserved: ({NUMBER}) \|"
    rf"(?: max reserved: ({NUMBER}))?"
)
_SEEN_MEMORY: Final = re.compile(rf"MA ({NUMBER}) GB\s+Max_MA ({NUMBER}) GB\s+CA ({NUMBER}) GB\s+Max_CA ({NUMBER}) GB")
_TIMED_MEMORY: Final = re.compile(rf"MaxMemAllocated=({NUMBER})GB")
_HIP_MEMORY: Final = re.compile(rf"hip mem usage/free/total/usage_ratio: ({NUMBER}) ?GB/")


def memory(text: str) -> PeakMemory | None:
    """Return the peak memory in a line of Megatron's `report_memory`, or of DeepSpeed's `see_memory_usage` or timer."""
    if "max allocated" in text and (found := _MEGATRON_MEMORY.search(text)):
        allocated, now, peak = (figure_of(part) for part in found.groups())
        # The last figure of the line may be truncated; the peak is at least what is reserved now.
        reserved = max(peak or 0.0, now or 0.0)
        return PeakMemory(allocated=_bytes(allocated, 2**20), reserved=_bytes(reserved, 2**20))
    if "Max_MA" in text and (found := _SEEN_MEMORY.search(text)):
        _, allocated, now, peak = (figure_of(part) for part in found.groups())
        # Max_CA is printed in whole GB; if it equals the rounded CA, CA is more precise.
        exact = now if now is not None and peak is not None and round(now) == peak else max(peak or 0.0, now or 0.0)
        return PeakMemory(allocated=_bytes(allocated, GIB), reserved=_bytes(exact, GIB))
    if "MaxMemAllocated=" in text and (found := _TIMED_MEMORY.search(text)):
        return PeakMemory(allocated=_bytes(figure_of(found[1]), GIB))
    if "hip mem usage" in text and (found := _HIP_MEMORY.search(text)):
        return PeakMemory(in_use=_bytes(figure_of(found[1]), GIB))
    return None


def _bytes(figure: float | None, unit: float) -> float | None:
    return figure * unit if figure else None


def figure_of(text: str | None) -> float | None:
    """Return a plausible number, or None."""
    if not text or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if 0 <= value < _LARGEST else None


def digit_of(text: str) -> float:
    """Return the value of one unit of the last digit of a printed number."""
    if text.isdecimal() or text.replace(".", "", 1).isdecimal():
        return _power(-len(text.partition(".")[2]))
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    return _power(int(exponent or 0) - len(mantissa.partition(".")[2]))


@lru_cache(256)
def _power(exponent: int) -> float:
    return float(10.0**exponent)


def _count(text: str | None) -> int | None:
    return (int(text) or None) if text and len(text) < 10 and text.isdecimal() and text.isascii() else None


def _share(text: str | None) -> float | None:
    share = figure_of(text)
    return share if share and share <= 1 else None


def loss_of(text: str) -> float | None:
    """Return a loss; NaN for any that is not finite."""
    if (figure := figure_of(text)) is not None:
        return figure
    return math.nan if text.casefold() in _NOT_FINITE else None
