"""A trainer in plain Python with selectable behaviour: `trainer.py hang --iterations 2`.

A program for launchers, not a test. It imports only the standard library, so that it starts quickly.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable

STEP = 0.05
"""Seconds of an iteration."""


def line(number: int, loss: str = "1.1E+01") -> None:
    """Print an iteration as Megatron does."""
    time.sleep(STEP)
    said = f"elapsed time per iteration (ms): {STEP * 1e3:.1f} | lm loss: {loss}"
    sys.stdout.write(f" iteration {number:8d}/  1000 | consumed samples: {64 * number} | {said} |\n")
    sys.stdout.flush()


def good(last: int) -> None:
    """Train, then keep running as if there were more to do."""
    for number in range(1, last + 1):
        line(number)
    forever()


def endless(_last: int) -> None:
    """Train without an end."""
    for number in range(1, 10_000):
        line(number)


def flood(_last: int) -> None:
    """Train one iteration, print 60 MB of other lines per second for three seconds, then train another."""
    line(1)
    second = "node01:4242:4300 [2] NCCL INFO Channel 02/0 : 2[2] -> 3[3] via P2P/CUMEM\n" * (60_000_000 // 76)
    for _ in range(3):
        began = time.monotonic()
        sys.stdout.write(second)
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    line(2)
    forever()


def forever() -> None:
    """Sleep forever."""
    while True:
        time.sleep(60)


def oom(_last: int) -> None:
    """Fail with a GPU's out-of-memory error."""
    line(1)
    raise type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})("CUDA out of memory. Tried to allocate.")


def crash(_last: int) -> None:
    """Fail with an exception."""
    line(1)
    raise ValueError("the shards do not add up")


def hang(_last: int) -> None:
    """Train one iteration, then hang."""
    line(1)
    forever()


def slow(last: int) -> None:
    """Train one iteration, and some seconds later the others."""
    line(1)
    time.sleep(3)
    for number in range(2, last + 1):
        line(number)
    forever()


def slow_oom(last: int) -> None:
    """Fail with a GPU's out-of-memory error some seconds after the first iteration."""
    line(1)
    time.sleep(3)
    oom(last)


def hang_unless_in_sync(last: int) -> None:
    """Hang, unless CUDA_LAUNCH_BLOCKING is 1."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        good(last)
    hang(last)


def deaf(_last: int) -> None:
    """Ignore SIGTERM, SIGINT and SIGHUP, and hang."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang(0)


def killed(_last: int) -> None:
    """Be killed by SIGKILL."""
    line(1)
    os.kill(os.getpid(), signal.SIGKILL)


def option(name: str, default: str) -> str:
    """Return the value of an option such as `--every`."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def logged(_last: int) -> None:
    """Log according to `--style megatron|pipeline|throughput --start N --every N --skips N --lines N --known`.

    The lines report 0.5, 0.25, 0.125 s ...; `--skips` lines after the first have skipped their optimizer step. With
    `--lines` the trainer succeeds after so many lines; with `--known` it first prints its logging interval.
    """
    style, start, every = option("--style", "megatron"), int(option("--start", "1")), int(option("--every", "1"))
    skips, lines, known = int(option("--skips", "0")), int(option("--lines", "0")), "--known" in sys.argv
    numbers = [number for number in range(start, start + 100 * every) if number % every == 0]
    if known:
        sys.stdout.write(f"---------- arguments ----------\n  log_interval ........ {every}\n")
    for printed, number in enumerate(numbers[: lines or None], start=1):
        time.sleep(STEP)
        seconds, skipped = 0.5**printed, int(1 < printed <= 1 + skips)
        if skipped and style != "megatron":
            sys.stdout.write("[INFO] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536\n")
        if style == "pipeline":
            sys.stdout.write(f"steps: {number} loss: 5.5 iter time (s): {seconds} samples/sec: {16 / seconds:.3f}\n")
        elif style == "throughput":
            rate = 16 / seconds
            sys.stdout.write(f"global_step={number}, RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec={rate}, Mem=1GB\n")
        else:
            text = f"elapsed time per iteration (ms): {seconds * 1e3} | number of skipped iterations: {skipped:3d}"
            sys.stdout.write(f" iteration {number:8d}/ 10000 | {text} |\n")
        sys.stdout.flush()
    if not lines:
        forever()


def memory(_last: int) -> None:
    """Allocate more memory than the process's limit."""
    line(1)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
    sys.stdout.write(str(len(bytearray(1 << 34))))


def disk(_last: int) -> None:
    """Write to a full disk."""
    line(1)
    with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123 - nothing is imported for it
        file.write(b"x" * 4096)


def fill(_last: int) -> None:
    """Fill the disk of the log."""
    line(1)
    while True:
        sys.stdout.write("x" * 1023 + "\n")


def missing(_last: int) -> None:
    """Import a missing dependency."""
    import apex_of_tomorrow  # type: ignore[import-not-found] # noqa: F401 - that is the point


def refused(_last: int) -> None:
    """Fail as if DeepSpeed rejected the configuration."""
    raise AssertionError("ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism")


def communication(_last: int) -> None:
    """Fail with an NCCL error."""
    error = type("DistBackendError", (RuntimeError,), {"__module__": "torch.distributed"})
    raise error("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.27.3")


def nan(last: int) -> None:
    """Print a loss of NaN."""
    line(1)
    line(2, "NAN")
    good(last)


def late(_last: int) -> None:
    """Exceed a time limit."""
    line(1)
    os.execvp("timeout", ["timeout", "0.2", "sleep", "60"])  # noqa: S606, S607 - no shell


def empty(_last: int) -> None:
    """Succeed without any output."""


def harmless(last: int) -> None:
    """Print lines that only look like errors."""
    sys.stderr.write("0 errors; error_feedback=True; [INFO] no error so far\n")
    try:
        raise ModuleNotFoundError("No module named 'apex'")
    except ModuleNotFoundError:
        import traceback

        traceback.print_exc()
    good(last)


def daemon(last: int) -> None:
    """Leave an orphaned process in another session."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf(0)
        os._exit(0)
    os.wait()
    good(last)


def bare(last: int) -> None:
    """Leave an orphaned process in another session with an empty environment."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "300"], {})  # noqa: S606 - no shell
        os._exit(0)
    os.wait()
    good(last)


def main(words: list[str]) -> None:
    """Run the behaviour named by `$TRAINER`, by `BEHAVIOUR`, or by `--by KEY KEY=BEHAVIOUR,...`."""
    name = os.environ.get("TRAINER", words[0])
    if name == "--by":
        name = dict(each.split("=") for each in words[2].split(","))[words[1]]
    last = int(words[words.index("--iterations") + 1]) if "--iterations" in words else 2
    behaviour: Callable[[int], None] = globals()[name]
    behaviour(last)


if __name__ == "__main__":
    main(sys.argv[1:])
