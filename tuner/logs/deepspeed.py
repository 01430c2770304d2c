"""Read DeepSpeed's lines of an iteration.

- The pipeline engine, `runtime/pipe/engine.py`: `steps: 2 loss: 5.5 iter time (s): 0.046 samples/sec: 87.5`; trainers
  on it print `step:     2 /   900 loss: ...`.
- `ThroughputTimer`, `utils/timer.py`: `global_step=3, RunningAvgSamplesPerSec=..., CurrSamplesPerSec=...`, and in
  older releases `0/3, SamplesPerSec=...`: no times, so that they need a batch, or timestamps, to become seconds.
- `wall_clock_breakdown`, `runtime/engine.py`: `time (ms) | fwd: ... | bwd: ... | step: ...`, one line for each
  iteration and none that gives its number.
- The flops profiler, `profiling/flops_profiler/profiler.py`: `iter latency: 27.32 ms`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tuner.logs.lines import label, stamp_of
from tuner.logs.records import NUMBER, Iteration, LogRecord, digit_of, figure_of, loss_of

DEEPSPEED_WORDS: Final = (
    *("iter time (s)", "SamplesPerSec=", "time (ms) |", "iter latency", "Profile Summary", "Skipping step"),
    "Grad overflow on iteration",
    ", skipped=",
)
"""Each line that this module reads contains one of these words."""

_PIPELINE: Final = re.compile(
    rf"steps?: {{1,12}}([0-9]{{1,12}})(?: / {{1,12}}[0-9]{{1,12}})? loss: (\S+) (?:(?!steps?: )[^|])*?"
    rf"iter time \(s\): ({NUMBER}) samples/sec: "
    r"([0-9]+\.[0-9]{3})?"
)
_THROUGHPUT: Final = re.compile(
    rf"(?:global_step=|\b[0-9]+/)([0-9]{{1,12}}), (?:RunningAvg)?SamplesPerSec=({NUMBER}|-?inf)(?:,|\s*$)"
    rf"(?: CurrSamplesPerSec=({NUMBER}),)?"
)
_RATES_OF_STEP: Final = re.compile(r"\bstep=([0-9]{1,12}), skipped=[0-9]{1,12}, lr=")
_OVERFLOWED: Final = re.compile(r"\bGrad overflow on iteration:? ([0-9]{1,12})\b")
_BREAKDOWN: Final = re.compile(r"time \(ms\) \|(?: fwd| forward): ([0-9.]+) \|.{0,400}? (?:bwd|backward): ([0-9.]+) \|")
_WHOLE_BATCH: Final = re.compile(r"time \(ms\) \| train_batch: ([0-9]*[1-9][0-9]*\.[0-9]+) \|")
"""Rate of the pipeline engine, which current releases print as 0.00."""
_BREAKDOWN_STEP: Final = re.compile(r"\| step: ([0-9]+\.[0-9]{2})")
_PROFILED_STEP: Final = re.compile(r"Profile Summary at step ([0-9]{1,12}):")
_LATENCY: Final = re.compile(rf"^iter latency:\s+({NUMBER}) (m|u|n|)s\s*$")
_LATENCY_UNITS: Final = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class DeepSpeed:
    """Reads DeepSpeed's lines one by one, and remembers the iteration to which later lines belong."""

    def __init__(self) -> None:
        self._profiled: int | None = None
        """The report of the FLOPs profiler."""
        self._stepped: tuple[int, float | None, float] | None = None
        """The last optimizer step whose learning rates are logged, with its timestamp and the value of its digit."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iterations of a line; several if two ranks print to the same line."""
        if "Profile Summary" in text and (found := _PROFILED_STEP.search(text)):
            self._profiled = int(found[1])
        if ", skipped=" in text and (found := _RATES_OF_STEP.search(text)):
            self._stepped = (int(found[1]), *stamp_of(text))
        if "iter time (s)" in text:
            yield from _pipeline(line, text)
        if "SamplesPerSec=" in text:
            yield from self._throughput(line, text)
        if "time (ms) |" in text:
            yield from _breakdown(line, text)
        if self._profiled is not None and (latency := _LATENCY.match(text)):
            seconds = (figure_of(latency[1]) or 0.0) * _LATENCY_UNITS[latency[2]]
            if seconds:
                iteration = Iteration(number=self._profiled, seconds=seconds, line=line)
                yield LogRecord(source="flops profiler", speaker="", iteration=iteration)

    def _throughput(self, line: int, text: str) -> Iterator[LogRecord]:
        for found in _THROUGHPUT.finditer(text):
            if rate := figure_of(found[3] or found[2]):
                iteration = Iteration(number=int(found[1]), seconds=None, samples_per_second=rate, line=line)
                if found[0].startswith("global_step="):
                    iteration.clock, iteration.clock_digit = stamp_of(text)
                elif self._stepped:  # the older timer counts microbatches
                    iteration.number, iteration.clock, iteration.clock_digit = self._stepped
                yield LogRecord(source="throughput timer", speaker="", iteration=iteration)


def overflow(text: str) -> bool:
    """Whether DeepSpeed skips the optimizer step of the current iteration.

    The line is `[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, ...`
    (`runtime/fp16/loss_scaler.py`), or `fp16 dynamic loss scale overflow! Skipping step. ...` (`fused_optimizer.py`).
    """
    return "Skipping step" in text and "overflow!" in text.casefold()


def overflowed(text: str) -> int | None:
    """Return the number of the optimizer step that DeepSpeed has skipped.

    `Grad overflow on iteration: 3` refers to the fourth (`fused_optimizer.py`).
    """
    found = _OVERFLOWED.search(text) if "Grad overflow on" in text else None
    return int(found[1]) + 1 if found else None


def _pipeline(line: int, text: str) -> Iterator[LogRecord]:
    for found in _PIPELINE.finditer(text):
        if seconds := figure_of(found[3]):
            iteration = Iteration(
                number=int(found[1]),
                seconds=seconds,
                seconds_digit=digit_of(found[3]),
                loss=loss_of(found[2]),
                samples_per_second=figure_of(found[4]),
                line=line,
            )
            yield LogRecord(source="pipeline engine", speaker=label(text, found.start()), iteration=iteration)


def _breakdown(line: int, text: str) -> Iterator[LogRecord]:
    passes, step = _BREAKDOWN.search(text), _BREAKDOWN_STEP.search(text)
    if whole := _WHOLE_BATCH.search(text):
        start, parts, digit = whole.start(), [whole[1]], digit_of(whole[1]) / 1e3
    elif passes and step:
        start, parts, digit = passes.start(), [passes[1], passes[2], step[1]], 0.0
    else:
        return
    if milliseconds := sum(figure_of(part) or 0.0 for part in parts):
        iteration = Iteration(number=0, seconds=milliseconds / 1e3, seconds_digit=digit, line=line)
        yield LogRecord(source="wall-clock breakdown", speaker=label(text, start), iteration=iteration, counted=True)
