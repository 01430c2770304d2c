"""Parse single lines of a log: iterations and memory.

The formats, by framework:

- Megatron-LM and Megatron-DeepSpeed, `training_log` in `megatron/training.py` (now `megatron/training/training.py`):
  ` iteration 2/ 500 | key: value | ... |`, with the time in milliseconds or, in BigScience's fork, in seconds, and the
  rate as `TFLOPs` or `throughput per GPU (TFLOP/s/GPU)`. GPT-NeoX prints the same with `approx flops per GPU`.
- DeepSpeed's pipeline engine, `runtime/pipe/engine.py`: `steps: 2 loss: 5.5 iter time (s): 0.046 samples/sec: 87.5`.
- DeepSpeed's `ThroughputTimer`, `utils/timer.py`: `global_step=3, RunningAvgSamplesPerSec=..., CurrSamplesPerSec=...`,
  and before 0.5 `0/3, SamplesPerSec=...`: no times, so that they need a batch to become seconds.
- DeepSpeed's `wall_clock_breakdown`, `runtime/engine.py`: `time (ms) | fwd: ... | bwd: ... | step: ...`, one line for
  each iteration and none that gives its number.
- DeepSpeed's flops profiler, `profiling/flops_profiler/profiler.py`: `iter latency: 27.32 ms`.

A number counts only with the text that terminates it, so that a truncated log does not yield a wrong one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Source = Literal["megatron", "pipeline engine", "throughput timer", "wall-clock breakdown", "flops profiler"]

SOURCES: Final[tuple[Source, ...]] = (
    "megatron",
    "pipeline engine",
    "throughput timer",
    "wall-clock breakdown",
    "flops profiler",
)
"""Sources of iterations, the most reliable first; the profiler slows down what it measures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration as one line, or the lines of several ranks, report it."""

    number: int
    seconds: float | None
    """None where the line has only samples a second, and the batch is unknown."""
    seconds_digit: float = 0.0
    """Value of one unit of the last printed digit of the seconds."""
    tflops: float | None = None
    """TFLOPs per GPU, as logged."""
    tflops_digit: float = 0.0
    global_batch: int | None = None
    samples_per_second: float | None = None
    seq: int | None = None
    """Sequence length, where the line has it."""
    loss: float | None = None
    memory_share: float | None = None
    """Fraction of the GPU's memory in use."""
    skipped: int | None = None
    """Number of iterations without an optimizer step, where the line has it."""
    spread: float = 0.0
    """Relative excess of the slowest rank over the fastest."""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """An iteration in one line, with its source."""

    source: Source
    speaker: str
    iteration: Iteration
    counted: bool = False
    """Whether the line has no iteration number, so that such lines are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """The peak of one rank, in bytes."""

    allocated: float | None = None
    """Allocated by tensors."""
    reserved: float | None = None
    """Reserved by the framework's allocator."""
    in_use: float | None = None
    """In use on the GPU by all processes, as in nvidia-smi."""


_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?"
_MEGATRON: Final = re.compile(r"iteration\s+([0-9]{1,12})\s*/\s*[0-9]{1,12}\s*\|")
_PIPELINE: Final = re.compile(
    rf"steps: ([0-9]{{1,12}}) loss: (\S+) (?:(?!steps: )[^|])*?iter time \(s\): ({_NUMBER}) samples/sec: "
    r"([0-9]+\.[0-9]{3})?"
)
_THROUGHPUT: Final = re.compile(
    rf"(?:global_step=|\b[0-9]+/)([0-9]{{1,12}}), (?:RunningAvg)?SamplesPerSec=({_NUMBER}|-?inf),"
    rf"(?: CurrSamplesPerSec=({_NUMBER}),)?"
)
_BREAKDOWN: Final = re.compile(r"time \(ms\) \|(?: fwd| forward): ([0-9.]+) \|.*? (?:bwd|backward): ([0-9.]+) \|")
_BREAKDOWN_STEP: Final = re.compile(r"\| step: ([0-9]+\.[0-9]{2})")
_PROFILED_STEP: Final = re.compile(r"Profile Summary at step ([0-9]{1,12}):")
_LATENCY: Final = re.compile(rf"^iter latency:\s+({_NUMBER}) (m|u|n|)s\s*$")
_LATENCY_UNITS: Final = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_RATES: Final = ("tflops", "throughput per gpu (tflop/s/gpu)", "approx flops per gpu", "tpt per gpu")
_LOSSES: Final = ("lm loss", "lm_loss")
_RATE: Final = re.compile(rf"({_NUMBER})(?:/{_NUMBER})?\s*(?:tflops)?", re.IGNORECASE)
_LARGEST: Final = 1e12


def records(number: int, text: str, profiled: int | None = None) -> Iterator[LogRecord]:
    """Yield the iterations of a line, several where the output of two ranks shares it."""
    if "iteration" in text:
        yield from _megatron(number, text)
    if "iter time (s)" in text:
        for found in _PIPELINE.finditer(text):
            seconds = _figure(found[3])
            if seconds:
                iteration = Iteration(
                    number=int(found[1]),
                    seconds=seconds,
                    seconds_digit=_digit(found[3]),
                    loss=_loss(found[2]),
                    samples_per_second=_figure(found[4]),
                    line=number,
                )
                yield LogRecord(source="pipeline engine", speaker=speaker(text[: found.start()]), iteration=iteration)
    if "SamplesPerSec=" in text:
        for found in _THROUGHPUT.finditer(text):
            if rate := _figure(found[3] or found[2]):
                iteration = Iteration(number=int(found[1]), seconds=None, samples_per_second=rate, line=number)
                yield LogRecord(source="throughput timer", speaker="", iteration=iteration)
    if "time (ms) |" in text:
        yield from _breakdown(number, text)
    if profiled is not None and (latency := _LATENCY.match(text)):
        seconds = (_figure(latency[1]) or 0.0) * _LATENCY_UNITS[latency[2]]
        if seconds:
            iteration = Iteration(number=profiled, seconds=seconds, line=number)
            yield LogRecord(source="flops profiler", speaker="", iteration=iteration)


def profiled_step(text: str) -> int | None:
    """Return the iteration that the flops profiler reports next."""
    found = _PROFILED_STEP.search(text) if "Profile Summary" in text else None
    return int(found[1]) if found else None


def _megatron(number: int, text: str) -> Iterator[LogRecord]:
    starts = list(_MEGATRON.finditer(text))
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        fields = _fields(text[start.end() : end])
        seconds, digit = _seconds(fields)
        if not seconds:
            continue
        rate = next((fields[name] for name in _RATES if name in fields), "")
        figure = _RATE.fullmatch(rate)
        iteration = Iteration(
            number=int(start[1]),
            seconds=seconds,
            seconds_digit=digit,
            tflops=_figure(figure[1]) if figure else None,
            tflops_digit=_digit(figure[1]) if figure else 0.0,
            global_batch=_count(fields.get("global batch size")),
            samples_per_second=_figure(fields.get("samples per second") or fields.get("samples/sec")),
            seq=_count(fields.get("curriculum seqlen") or fields.get("actual seqlen")),
            loss=next((_loss(fields[name]) for name in _LOSSES if name in fields), None),
            memory_share=_share(fields.get("mem usages")),
            skipped=_count(fields.get("number of skipped iterations")),
            line=number,
        )
        prefix = text[: start.start()].rpartition("|")[2]
        yield LogRecord(source="megatron", speaker=speaker(prefix), iteration=iteration)


def _fields(text: str) -> dict[str, str]:
    """Return `key: value |` pairs, the first of each key; a value without its bar may be truncated and is skipped."""
    found: dict[str, str] = {}
    for part in text.split("|")[:-1]:
        name, colon, value = part.partition(": ")
        if colon:
            found.setdefault(name.strip().casefold(), value.strip())
    return found


def _seconds(fields: Mapping[str, str]) -> tuple[float | None, float]:
    for unit, parts in (("ms", 1000), ("s", 1)):
        # AMD's fork prints the value of the iteration and, after a slash, the mean.
        printed = fields.get(f"elapsed time per iteration ({unit})", "").partition("/")[0]
        if (figure := _figure(printed)) is not None:
            return figure / parts, _digit(printed) / parts
    return None, 0.0


def _breakdown(number: int, text: str) -> Iterator[LogRecord]:
    passes, step = _BREAKDOWN.search(text), _BREAKDOWN_STEP.search(text)
    if passes and step:
        parts = [_figure(part) for part in (passes[1], passes[2], step[1])]
        milliseconds = sum(part for part in parts if part)
        if milliseconds:
            iteration = Iteration(number=0, seconds=milliseconds / 1e3, line=number)
            before = text[: passes.start()]
            yield LogRecord(source="wall-clock breakdown", speaker=speaker(before), iteration=iteration, counted=True)


_MEGATRON_MEMORY: Final = re.compile(
    rf"memory \(MB\) \| allocated: {_NUMBER} \| max allocated: ({_NUMBER}) \| reserved: ({_NUMBER}) \|"
    rf"(?: max reserved: ({_NUMBER}))?"
)
_SEEN_MEMORY: Final = re.compile(
    rf"MA ({_NUMBER}) GB\s+Max_MA ({_NUMBER}) GB\s+CA ({_NUMBER}) GB\s+Max_CA ({_NUMBER}) GB"
)
_TIMED_MEMORY: Final = re.compile(rf"MaxMemAllocated=({_NUMBER})GB")
_HIP_MEMORY: Final = re.compile(rf"hip mem usage/free/total/usage_ratio: ({_NUMBER}) ?GB/")


def memory(text: str) -> PeakMemory | None:
    """Return the peak memory in a line of Megatron's `report_memory`, or DeepSpeed's `see_memory_usage` or timer."""
    if "max allocated" in text and (found := _MEGATRON_MEMORY.search(text)):
        allocated, now, peak = (_figure(part) for part in found.groups())
        # The last figure of the line may be cut off; the peak cannot be below what is reserved now.
        reserved = max(peak or 0.0, now or 0.0)
        return PeakMemory(allocated=_bytes(allocated, 2**20), reserved=_bytes(reserved, 2**20))
    if "Max_MA" in text and (found := _SEEN_MEMORY.search(text)):
        _, allocated, now, peak = (_figure(part) for part in found.groups())
        # Max_CA is printed in whole GB: where that is CA's own, CA has the digits.
        exact = now if now is not None and peak is not None and round(now) == peak else max(peak or 0.0, now or 0.0)
        return PeakMemory(allocated=_bytes(allocated, 2**30), reserved=_bytes(exact, 2**30))
    if "MaxMemAllocated=" in text and (found := _TIMED_MEMORY.search(text)):
        return PeakMemory(allocated=_bytes(_figure(found[1]), 2**30))
    if "hip mem usage" in text and (found := _HIP_MEMORY.search(text)):
        return PeakMemory(in_use=_bytes(_figure(found[1]), 2**30))
    return None


def _bytes(figure: float | None, unit: int) -> float | None:
    return figure * unit if figure else None


def _figure(text: str | None) -> float | None:
    """Return a plausible number, or None."""
    if not text or not re.fullmatch(_NUMBER, text):
        return None
    value = float(text)
    return value if 0 <= value < _LARGEST else None


def _digit(text: str) -> float:
    """Return the value of one unit of the last digit of a printed number."""
    mantissa, _, exponent = text.casefold().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def _count(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) and int(text) else None


def _share(text: str | None) -> float | None:
    share = _figure(text)
    return share if share and share <= 1 else None


def _loss(text: str) -> float | None:
    """Return a loss; NaN for any that is not finite."""
    if text.casefold() in ("nan", "-nan", "inf", "-inf"):
        return math.nan
    return _figure(text)


_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Terminal control sequences (ECMA-48, 5.4): colours, cursor moves, window titles."""

_TIMESTAMPS: Final = re.compile(r"\[?(?:\d{4}-\d\d-\d\d[ T_])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?")


def visible(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each non-empty line with its line number in the file; no colours, no NUL bytes, progress bars split."""
    for number, line in enumerate(lines, start=1):
        text = line
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        if "\0" in text:
            text = text.replace("\0", "")
        if "\r" in text:
            text = text.replace("\r", "\n")
        for part in text.split("\n"):
            if part and not part.isspace():
                yield number, part


def speaker(prefix: str) -> str:
    """Return the rank or node that prints a line, by a prefix such as `[default7]:` or `node01: `, without times."""
    return _TIMESTAMPS.sub("", prefix).strip()
