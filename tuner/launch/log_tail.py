"""Follow a job's log: iterations finished, progress of the current one, time of the last output."""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tuner.core.atomic_write import open_regular
from tuner.launch.contract import STEPS, JobState, JobStatus
from tuner.logs.arguments import argument, opens_arguments
from tuner.logs.bars import is_whole_bar
from tuner.logs.deepspeed import overflow
from tuner.logs.frameworks import StepPattern
from tuner.logs.lines import MAX_LINE_CHARS, visible
from tuner.logs.named_figures import LiveFigures
from tuner.logs.readers import RecordReader
from tuner.logs.records import SOURCES, Iteration, LogRecord, Source
from tuner.logs.timing import COARSE_CLOCK

_MICROBATCH: Final = re.compile(
    r"microbatch\s+([0-9]{1,9})/\s*([0-9]{1,9}) of iteration\s+([0-9]{1,9}) \| elapsed \(s\): ([0-9.]{1,20})"
)

MAX_SKIPPED_LINES: Final = 50
"""Consecutive lines without an optimizer step after which a job is ended: its loss scale does not settle."""

MAX_CLOCK_DIGIT: Final = 10.0
"""Resolution of a clock in seconds; a coarser one, such as one of minutes, is not waited for."""

_NOT_FOLLOWED: Final = ("flops profiler", "training summary")
"""The flops profiler prints a running total after each microbatch, and the summary is printed once at the end."""

TRAINER_LOG: Final = "trainer.log"
"""The link in a job's folder to the log that --log names."""

OUTPUTS: Final = (STEPS, TRAINER_LOG, "stdout.log", "stderr.log")
"""A job's logs in its folder; the first that has iterations measures it."""

_CHUNK: Final = 1 << 18
"""Bytes to read at a time."""

MAX_CHUNKS: Final = 64
"""Chunks to read in one poll, so that a job with endless output does not stop the study."""

MAX_LOOK_SECONDS: Final = 0.25
"""Seconds after which a poll reads no further chunk, however slow its lines are to read."""

HEAD_BYTES: Final = 8 << 20
TAIL_BYTES: Final = 64 << 20
"""Bytes at the beginning and at the end of a log that are read once its job is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProgress:
    """A job's progress according to its log."""

    iterations: int = 0
    """Position of the last finished iteration in this job: 2 is the second line, whatever number the line has.

    As in `logs.of_job`, the first line counts always, a later one only if no optimizer step was skipped.
    """
    number: int = 0
    """Number that the last line gives its iteration."""
    interval: int | None = None
    """Iterations from one line to the next; None while unknown."""
    skipped: int = 0
    """Consecutive lines, up to the last, without an optimizer step."""
    finished: float | None = None
    """When its line was read."""
    share: float | None = None
    """Completed fraction of the current iteration."""
    moved: float | None = None
    """When the log last grew."""
    source: Source | None = None
    """The most reliable source so far; only its lines count."""
    lines: int = 0
    """Position of the source's last line."""
    announced: int | None = None
    """Iterations from one line to the next, according to the arguments that the job has printed."""
    overflows: int = 0
    """Optimizer steps that DeepSpeed has skipped since the source's last line."""
    clock_from: float | None = None
    """The clock at the source's first line, if only clocks tell how long its iterations take."""
    clock_error: float = 0.0
    """Error of the mean time since that line, as a share, due to the clock's resolution."""
    megatron: bool = False
    """Whether the job has printed Megatron's arguments, so that its lines can be expected."""

    def complete(self, last: int) -> bool:
        """Whether the job has shown all iterations to be measured, or skips every optimizer step.

        Where a clock of whole seconds is the only one, iterations go on until it is precise enough.
        """
        is_precise = self.clock_error <= COARSE_CLOCK
        return (self.iterations >= last and is_precise) or self.skipped >= MAX_SKIPPED_LINES

    def status(self, *, began: float, now: float, resumed: float = 0.0) -> JobStatus:
        """Return the status of the job while it runs; `resumed` is when it last ceased to be suspended."""
        return JobStatus(
            state=JobState.RUNNING,
            began=began,
            iterations=self.iterations,
            number=self.number,
            interval=self.interval,
            seconds_in=max(0.0, now - max(self.finished or began, resumed)),
            share=self.share,
            moved=max(self.moved or began, resumed),
        )


class LogTail:
    """Reads new lines of a log."""

    def __init__(self, path: Path, pattern: StepPattern | None = None) -> None:
        self.path = path
        self.progress = LogProgress()
        self._records = RecordReader(pattern)
        self._figures = None if pattern else LiveFigures()
        self._offset = 0
        self._unfinished_line = b""
        self._cut = False
        """Whether the unfinished line is longer than what is read of a line."""

    def read(self, now: float, *, whole: bool = False) -> None:
        """Read a bounded part of the rest of the log, or all of it if `whole`.

        Of a log far longer than what has been read, `whole` reads only the beginning and the end. A missing log changes
        nothing.
        """
        began = time.monotonic()
        try:
            with open_regular(self.path) as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._restart()
                tail = size_of(self.path) - TAIL_BYTES if whole else 0
                file.seek(self._offset)
                for _ in range((HEAD_BYTES + TAIL_BYTES) // _CHUNK + 2 if whole else MAX_CHUNKS):
                    if HEAD_BYTES <= self._offset < tail:
                        self._offset, self._unfinished_line, self._cut = file.seek(tail), b"", True
                    if not (chunk := file.read(_CHUNK)):
                        return
                    self._offset += len(chunk)
                    self.progress = replace(self.progress, moved=now)
                    self._read_chunk(chunk, now)
                    if not whole and time.monotonic() - began > MAX_LOOK_SECONDS:
                        return
        except OSError:
            return

    def _restart(self) -> None:
        """Read the log from its beginning: a program that was restarted has emptied it."""
        self._offset, self._unfinished_line, self._cut = 0, b"", False
        self._records.restart()
        self.progress = _restarted(self.progress)

    def _read_chunk(self, chunk: bytes, now: float) -> None:
        # A progress bar ends each print with a carriage return, or starts the next one with it.
        *lines, rest = (self._unfinished_line + chunk.replace(b"\r", b"\n")).split(b"\n")
        for line in lines:
            if line and not self._cut:
                self._read_line(line[:MAX_LINE_CHARS], now)
            self._cut = False
        self._unfinished_line = rest if len(rest) <= MAX_LINE_CHARS else b""
        if self._cut or len(rest) > MAX_LINE_CHARS:
            if not self._cut:
                self._read_line(rest[:MAX_LINE_CHARS], now)
            self._unfinished_line, self._cut = b"", True
        elif is_whole_bar(text := rest.decode(errors="replace")):
            self.progress = after_line(self.progress, text, now, self._records, self._figures)

    def _read_line(self, line: bytes, now: float) -> None:
        for _, text in visible([line.decode(errors="replace")]):
            self.progress = after_line(self.progress, text, now, self._records, self._figures)


class JobTail:
    """Reads new lines of all logs of a job: trainers print their iterations to stdout, to stderr or to a file."""

    def __init__(self, folder: Path, pattern: StepPattern | None = None) -> None:
        self._tails = [LogTail(folder / name, pattern) for name in OUTPUTS]

    def read(self, now: float, *, whole: bool = False) -> None:
        """Read new content; all of it if `whole`, as when the job has ended."""
        for tail in self._tails:
            tail.read(now, whole=whole)

    @property
    def progress(self) -> LogProgress:
        """Return the progress of the first log that has iterations."""
        found = [tail.progress for tail in self._tails]
        moved = max((each.moved for each in found if each.moved is not None), default=None)
        return replace(next((each for each in found if each.iterations), found[0]), moved=moved)


def after_line(
    progress: LogProgress, line: str, now: float, reader: RecordReader | None = None, figures: LiveFigures | None = None
) -> LogProgress:
    """Return the progress after a line of the log.

    `reader` has read the preceding lines, and so have `figures`, which read trainers that `reader` does not know.
    """
    reader = reader or RecordReader()
    if "microbatch" in line and (found := _MICROBATCH.search(line)):
        microbatch, count, iteration = int(found[1]), int(found[2]), int(found[3])
        if iteration == progress.number + 1 and count:
            return replace(progress, share=min(1.0, microbatch / count))
        return progress
    if opens_arguments(line):  # the program starts, possibly again
        reader.restart()
        return replace(_restarted(progress), megatron=True, announced=None)
    if (named := argument(line)) and named[0] in ("log_interval", "steps_per_print") and named[1].isdecimal():
        if named[0] == "log_interval" or not progress.megatron:
            announced = int(named[1]) or None
            return replace(progress, announced=announced, interval=progress.interval or announced)
        return progress
    if overflow(line):
        return replace(progress, overflows=progress.overflows + 1)
    for record in reader.read(1, line):
        progress = _after_record(progress, record, now)
    if figures is not None and progress.source in (None, "named figures"):
        for record in figures.read(1, line):
            progress = _after_record(progress, record, now)
    return progress


def _restarted(progress: LogProgress) -> LogProgress:
    return replace(progress, source=None, lines=0, number=0, interval=None)


def _after_record(progress: LogProgress, record: LogRecord, now: float) -> LogProgress:
    source, before = record.source, progress.source
    if source in _NOT_FOLLOWED or (source == "throughput timer" and progress.megatron):
        return progress
    if before is not None and SOURCES.index(source) > SOURCES.index(before):
        return progress
    first = source != before
    number = progress.number + 1 if record.counted and not first else record.iteration.number or int(record.counted)
    if not first and number <= progress.number:
        return progress  # another rank
    clock_from, clock_error = _clocked(record.iteration, None if first else progress.clock_from)
    skips = bool(record.iteration.skipped if source == "megatron" else progress.overflows)
    lines = 1 if first else progress.lines + (not skips)
    interval = progress.announced or (1 if number == 1 else None) if first else number - progress.number
    return replace(
        progress,
        source=source,
        lines=lines,
        iterations=lines if before == "named figures" and first else max(progress.iterations, lines),
        clock_from=clock_from,
        clock_error=clock_error,
        number=number,
        interval=interval,
        skipped=progress.skipped + 1 if skips else 0,
        overflows=0,
        finished=now,
        share=None,
    )


def _clocked(found: Iteration, since: float | None) -> tuple[float | None, float]:
    """Return `clock_from` and `clock_error` after an iteration; `since` is the former before it."""
    timed = found.seconds or found.samples_per_second or found.tokens_per_second or found.tokens_per_second_per_gpu
    if timed or found.clock is None or found.clock_digit > MAX_CLOCK_DIGIT:
        return None, 0.0
    if since is None:
        return found.clock, 0.0
    span = found.clock - since
    return since, found.clock_digit / span if span > 0 else math.inf


def lines_of(path: Path) -> list[str]:
    """Return the lines of a log; of a far longer one, the complete lines at its beginning and at its end."""
    try:
        with open_regular(path) as file:
            if (tail := size_of(path) - TAIL_BYTES) <= HEAD_BYTES:
                return file.read().decode(errors="replace").splitlines()
            head = re.split(rb"[\r\n][^\r\n]*\Z", file.read(HEAD_BYTES))[0]
            file.seek(tail)
            return [
                line
                for part in (head, re.sub(rb"\A[^\r\n]*", b"", file.read(), count=1))
                for line in part.decode(errors="replace").splitlines()
            ]
    except OSError:
        return []


def unread_part(folder: Path) -> str:
    """Return a sentence on the longest of a job's logs if only a part of it is read; else an empty one."""
    longest = max(OUTPUTS, key=lambda name: size_of(folder / name))
    if size_of(folder / longest) <= HEAD_BYTES + TAIL_BYTES:
        return ""
    return f"only the first {HEAD_BYTES >> 20} MiB and the last {TAIL_BYTES >> 20} MiB of {longest} are read"


def output_size(folder: Path) -> int:
    """Return the total bytes of a job's logs, which change whenever one of them grows."""
    return sum(size_of(folder / name) for name in OUTPUTS)


def size_of(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
