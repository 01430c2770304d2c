"""Read the dictionaries that HF Trainer and frameworks built on it print: for a step, and at the end.

- ms-swift, `callbacks.py`: `{'loss': 1.6, ..., 'train_speed(iter/s)': 0.25, 'global_step/max_steps': '1/90',
  'elapsed_time': '3s', ...}`, and LLaMA-Factory's `trainer_log.jsonl`: `{"current_steps": 5, "total_steps": 93, ...,
  "elapsed_time": "0:02:03", ...}`: the time since the beginning.
- HF Trainer, `trainer.py`: `{'train_runtime': 12.3, ..., 'train_steps_per_second': 1.01, ...}` at the end.
  With `include_num_input_tokens_seen` each step has a `train_runtime`, and no steps per second.
- Loops of one's own, behind a logger's timestamp: `2025-11-17 13:23:05,080 {'global_step': 20, 'loss': 9.5, ...}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tuner.logs.lines import label, stamp_of
from tuner.logs.records import LOSS, NUMBER, Iteration, LogRecord, digit_of, figure_of, loss_of

DICTIONARY_WORDS: Final = (
    "_runtime",
    "train_steps_per_second",
    "train_speed(",
    "elapsed_time",
    "step': ",
    'step": ',
    "iteration': ",
)
"""Each line that this module reads contains one of these words."""

_SUMMARY: Final = re.compile(rf"'train_runtime': '?({NUMBER})'?,.{{0,200}}?'train_steps_per_second': '?({NUMBER})'?,")

_SUMMARY_LINE: Final = re.compile(
    r"(?:^|[->\]:] )\W{0,12}train_(runtime|steps_per_second)['\"]? {0,40}[:=] {0,40}['\"]?(?:([0-9]{1,4}):([0-9]{2}):)?"
    rf"({NUMBER})['\"]?,?\s*$"
)
"""A summary with one figure per line: `  train_runtime            = 0:10:00.12`, or JSON."""
_RATE_DIGIT: Final = 1e-3
"""Value of the last digit of HF Trainer's rates, which are rounded without printing zeros."""
_ELAPSED_STEP: Final = re.compile(
    r"['\"](?:steps\[global_step/max_steps\]|global_step(?:/max_steps)?|iteration|current_steps)['\"]: "
    r"['\"]?([0-9]{1,9})(?:/[0-9]{1,9}['\"])?[,}]"
)
_ELAPSED: Final = re.compile(
    r"['\"]elapsed_time['\"]: ['\"](?:([0-9]{1,5})(?:d| days?,) )?(?:([0-9]{1,5})(?:h |:))?(?:([0-9]{1,2})(?:m |:))?"
    r"([0-9]{1,2})s?['\"]"
)
_SPEED: Final = re.compile(rf"['\"]train_speed\((iter/s|s/it)\)['\"]: ['\"]?({NUMBER})['\"]?[,}}]")
"""The mean since the beginning."""
_EVALUATION: Final = re.compile(r"['\"]eval_loss['\"]: (?!null|None)")
_EVAL_RUNTIME: Final = re.compile(rf"['\"]eval_(?:[a-z]{{1,40}}_)?runtime['\"]: ['\"]?({NUMBER})['\"]?[,}}]")
_STAMPED_STEP: Final = re.compile(
    r"\{(?:[^{}]{0,2000}[ ,])?(['\"])(?:global_step|step|iteration|iter)\1: ([0-9]{1,12})[,}]"
)
_ANY_LOSS: Final = re.compile(rf"['\"](?:[a-z]{{1,20}}[_/])?loss['\"]: ({LOSS})[,}}]")
_DICTIONARY_LOSS: Final = re.compile(rf"['\"](?:lm )?loss['\"]: ['\"]?({LOSS})\b")


class Dictionaries:
    """Reads the dictionaries one by one, and remembers the time that evaluations took."""

    def __init__(self) -> None:
        self._clock = self._evaluated = 0.0
        """Seconds of the clock at the last line, and of all evaluations so far."""
        self._runtime: tuple[float, float] | None = None
        """Seconds of a summary's first line, and the value of their last digit."""

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iteration of a line, or the mean of all of them."""
        if "elapsed_time" in text or "train_speed(" in text:
            yield from self._trained(line, text)
        elif "step" in text or "iteration" in text:
            yield from _stamped(line, text)
        if "train_steps_per_second" in text and (found := _SUMMARY.search(text)):
            yield from _summary(line, figure_of(found[1]), digit_of(found[1]), found[2])
        elif "train_runtime" in text or "train_steps" in text:
            yield from self._summary_line(line, text)

    def _summary_line(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the mean of all iterations at the second line of a summary."""
        found = _SUMMARY_LINE.search(text)
        if found and found[1] == "runtime":
            figure = figure_of(found[4]) or 0.0
            self._runtime = (3600 * int(found[2] or 0) + 60 * int(found[3] or 0) + figure, digit_of(found[4]))
        elif found and self._runtime:
            runtime, digit = self._runtime
            self._runtime = None
            yield from _summary(line, runtime, digit, found[4])

    def _trained(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iteration of a line, whose time excludes evaluations; nothing for a line of an evaluation."""
        iteration = _since_beginning(line, text)
        if iteration is None or iteration.clock is None:
            return
        before, self._clock = self._clock, iteration.clock
        if _EVALUATION.search(text):
            self._evaluated += max(0.0, self._clock - before)
        else:
            iteration.clock -= self._evaluated
            yield LogRecord(source="elapsed time", speaker="", iteration=iteration)


def _summary(line: int, runtime: float | None, digit: float, steps_per_second: str) -> Iterator[LogRecord]:
    """Yield the mean of all iterations."""
    if runtime and (rate := figure_of(steps_per_second)):
        number = max(1, round(runtime * rate))
        if runtime * _RATE_DIGIT > 1:  # several numbers of steps have this rate
            digit = max(digit, runtime * _RATE_DIGIT / rate)
        summary = Iteration(
            number=number,
            seconds=runtime / number,
            seconds_digit=digit / number,
            derived="the run time of the summary, warm-up included",
            line=line,
        )
        yield LogRecord(source="training summary", speaker="", iteration=summary)


def _stamped(line: int, text: str) -> Iterator[LogRecord]:
    """Yield the iteration of a dictionary with a loss, at the timestamp of its line."""
    found, loss = _STAMPED_STEP.search(text), _ANY_LOSS.search(text)
    if found and loss and "eval" not in text:
        clock, digit = stamp_of(text)
        if clock is not None:
            value = loss_of(loss[1].replace(",", ""))
            iteration = Iteration(
                number=int(found[2]), seconds=None, clock=clock, clock_digit=digit, loss=value, line=line
            )
            yield LogRecord(source="elapsed time", speaker=label(text, text.find("{")), iteration=iteration)


def evaluation_seconds(text: str) -> float:
    """Return the seconds of an evaluation in a line such as `{'eval_loss': 0.45, 'eval_runtime': 139.5, ...}`."""
    found = _EVAL_RUNTIME.search(text) if "eval_" in text else None
    return (figure_of(found[1]) or 0.0) if found else 0.0


def is_summary(text: str) -> bool:
    """Whether a line is HF Trainer's summary, after which no training step follows.

    With `include_num_input_tokens_seen` the lines of steps have a run time as well, but no samples per second.
    """
    return "train_runtime" in text and ("train_samples_per_second" in text or "train_steps_per_second" in text)


def _since_beginning(line: int, text: str) -> Iteration | None:
    """Return the iteration of a dictionary with a cumulative time, in whole seconds, as a mean, or both."""
    step, elapsed, speed = _ELAPSED_STEP.search(text), _ELAPSED.search(text), _SPEED.search(text)
    figure = figure_of(speed[2]) if speed else None
    if not step or not (elapsed or text.rstrip().endswith("}")):  # the time may be in the rest of a broken line
        return None
    number, clock, digit = int(step[1]), None, 1.0
    if elapsed:
        days, hours, minutes, seconds = (int(part or 0) for part in elapsed.groups())
        clock = 60.0 * (60 * (24 * days + hours) + minutes) + seconds
    if speed and figure and speed[1] == "iter/s":  # over all steps, including those before a resumption
        clock, digit = number / figure, number * digit_of(speed[2]) / figure**2
    elif speed and figure and clock is not None and abs(number * figure - clock) <= digit:
        clock, digit = number * figure, number * digit_of(speed[2])  # else excluding the steps before a resumption
    if clock is None:
        return None
    loss = _DICTIONARY_LOSS.search(text)
    return Iteration(
        number=number,
        seconds=None,
        clock=clock,
        clock_digit=digit,
        loss=loss_of(loss[1].replace(",", "")) if loss else None,
        line=line,
    )
