"""Speed of log reading: MB per CPU second for the formats of several frameworks, and seconds for pathological lines.

python benchmarks/log_reading.py

Each rate is compared with that of a loop, timed in the same run, that splits the same text and searches each line for
one word. This ratio is the same on a busy machine and on an idle one.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tuner.launch.log_tail import LogTail
from tuner.logs import read_log

MEGABYTE = 1_000_000
SIZE = 4 * MEGABYTE
REPEATS = 3

MAX_LINE_SECONDS = 0.1
"""CPU seconds for one pathological line of a megabyte."""

PATHOLOGICAL = (
    "step:1/1 train_time:1ms  ",
    "step: 1 / 1 loss: 1 iter time (s): 1 samples/sec: ",
    "time (ms) | fwd: 1 | ",
    "iter 1 step 1 | loss train: 1, | iter time: ",
    *("NCCL WARN ", "time (ms) |", "iteration 1/ 2 |", "Assertion `", "loss: nan ", "| ", "steps: 1 loss: 1 ", "12:"),
    *("Traceback (most recent call last):", "CUDA error: ", "\x1b[", "\x1b]0;", "a.", "Command '", "can't open file '"),
    *("iteration: 1 / 2 | ", "step:  1  loss:  1.0  ", "iter 1: loss 1, ", " 50%|", " 50%|#| 1/2 [00:01<00:01, ", "\r"),
    *(
        "srun: error: task 1",
        "Illegal instruction ",
        "Aborted ",
        "sh: a: not found ",
        "a: 1: b: not found ",
        "x Aborted",
    ),
    *("train_inner | ups=1, num_updates ", "Epoch: [0]  [ 1/2]  eta: ", "Epoch: [0]  [ 1/2]  eta: loss: 1 time: 1 "),
    *("{'train_runtime': 1,", "lr .. ", "wandb: ERROR ", "TCPStore ", "failed to connect to ", "NET/IB : ", "worker: "),
)
"""Texts that, when repeated, form a line on which a careless pattern takes quadratic time."""


def megatron(dice: random.Random) -> Iterator[str]:
    """Yield Megatron-LM's iterations among the lines that its ranks print."""
    number = 0
    while True:
        number += 1
        yield (
            f" [2026-03-04 10:00:{number % 60:02d}.123456] iteration {number:8d}/  500000 | consumed samples: "
            f"{number * 1024:12d} | elapsed time per iteration (ms): {dice.uniform(4000, 4100):.1f} | throughput "
            f"per GPU (TFLOP/s/GPU): {dice.uniform(150, 160):.1f} | learning rate: 1.500000E-04 | "
            f"global batch size:  1024 | lm loss: {dice.uniform(2, 3):.6E} | loss scale: 1.0 | grad norm: 1.234 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )


def nccl(dice: random.Random) -> Iterator[str]:
    """Yield the output of NCCL_DEBUG=INFO."""
    while True:
        rank, channel = dice.randrange(64), dice.randrange(24)
        yield (
            f"node{rank // 8:02d}:{dice.randrange(99999)}:{dice.randrange(99999)} [{rank % 8}] NCCL INFO Channel "
            f"{channel:02d}/0 : {rank}[{rank % 8}] -> {(rank + 1) % 64}[{(rank + 1) % 8}] [send] via NET/IBext/0/GDRDMA"
        )


def bars(dice: random.Random) -> Iterator[str]:
    """Yield HF Trainer's progress bar and logged dicts."""
    number = 0
    while True:
        number += 1
        done, clock = number % 1000, f"{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        rate = dice.uniform(0.9, 1.1)
        yield f" {done // 10:2d}%|{'#' * (done // 100)}| {done}/1000 [{clock}<1:00:00,  {rate:.2f}s/it]"
        if number % 10 == 0:
            yield f"{{'loss': {dice.uniform(1, 3):.4f}, 'grad_norm': 1.25, 'epoch': {number / 1000:.2f}}}"


def other(dice: random.Random) -> Iterator[str]:
    """Yield lines that mean nothing to the readers."""
    while True:
        shard = dice.randrange(1_000_000)
        yield (
            f"2026-03-04 10:00:00,{shard % 1000:03d} - INFO - data.loader - opened /data/shard_{shard:06d}.bin "
            f"({dice.randrange(10**9)} tokens) in {dice.uniform(0, 2):.3f} s, cache hit: {bool(shard % 2)}"
        )


FORMATS: dict[str, tuple[Callable[[random.Random], Iterator[str]], float]] = {
    "Megatron-LM": (megatron, 100),
    "NCCL_DEBUG=INFO": (nccl, 20),
    "HF Trainer": (bars, 120),
    "other lines": (other, 20),
}
"""For each format, the generator of its lines and the largest allowed cost relative to the plain loop.

The cost is higher if each line is an iteration.
"""


def text_of(name: str, size: int = SIZE) -> str:
    """Return a log of one format."""
    lines, length = [], 0
    for line in FORMATS[name][0](random.Random(0)):  # noqa: S311 - synthetic data
        lines.append(line)
        length += len(line) + 1
        if length >= size:
            return "\n".join(lines) + "\n"
    raise AssertionError(name)  # the formats are endless


def cpu_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the shortest CPU time of several runs."""
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def plain(text: str) -> int:
    """Return how many lines contain a word; the baseline for reading."""
    return sum("iteration" in line for line in text.splitlines())


def read_whole(text: str) -> None:
    """Read the log of a finished job."""
    read_log(text.splitlines())


def followed(path: Path) -> None:
    """Read a log as for a running job."""
    LogTail(path).read(0.0, whole=True)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stdout.log"
        for name, (_, most) in FORMATS.items():
            text = text_of(name)
            path.write_text(text)
            base = cpu_seconds(partial(plain, text))
            whole = cpu_seconds(partial(read_whole, text))
            tail = cpu_seconds(partial(followed, path))
            size = len(text) / MEGABYTE
            print(
                f"{name}: read at {size / whole:.0f} MB/s, {whole / base:.0f} times a plain loop (at most {most:.0f}); "
                f"followed at {size / tail:.0f} MB/s, {tail / base:.0f} times"
            )
        worst = max(
            (cpu_seconds(partial(read_log, [unit * (MEGABYTE // len(unit))]), 1), unit) for unit in PATHOLOGICAL
        )
    print(f"slowest line of 1 MB: {worst[1]!r}, {worst[0]:.3f} s (at most {MAX_LINE_SECONDS:g} s)")


if __name__ == "__main__":
    main()
