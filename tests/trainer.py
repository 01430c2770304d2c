"""A trainer in plain Python that behaves as it is told: `trainer.py hang --iterations 2`.

Not a test: launchers run it. It imports nothing but the standard library, so that it is there at once.
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
    """An iteration as Megatron prints it."""
    time.sleep(STEP)
    said = f"elapsed time per iteration (ms): {STEP * 1e3:.1f} | global batch size: 64 | lm loss: {loss}"
    sys.stdout.write(f" iteration {number:8d}/  1000 | consumed samples: {64 * number} | {said} |\n")
    sys.stdout.flush()


def good(last: int) -> None:
    """Trains, and goes on as if it had more to do."""
    for number in range(1, last + 1):
        line(number)
    forever()


def endless(_last: int) -> None:
    """Trains on and on."""
    for number in range(1, 10_000):
        line(number)


def flood(_last: int) -> None:
    """Does an iteration, and then prints 60 MB a second of other lines for three seconds."""
    line(1)
    second = "node01:4242:4300 [2] NCCL INFO Channel 02/0 : 2[2] -> 3[3] via P2P/CUMEM\n" * (60_000_000 // 76)
    for _ in range(3):
        began = time.monotonic()
        sys.stdout.write(second)
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    line(2)
    forever()


def forever() -> None:
    """Stands still."""
    while True:
        time.sleep(60)


def oom(_last: int) -> None:
    """A GPU is too small."""
    line(1)
    raise type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})("CUDA out of memory. Tried to allocate.")


def crash(_last: int) -> None:
    """A rank raises."""
    line(1)
    raise ValueError("the shards do not add up")


def hang(_last: int) -> None:
    """Does one iteration and no other."""
    line(1)
    forever()


def hang_unless_in_sync(last: int) -> None:
    """Hangs, but for where kernels wait for each other."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        good(last)
    hang(last)


def deaf(_last: int) -> None:
    """Ignores what asks it to end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hang(0)


def killed(_last: int) -> None:
    """Is killed by somebody."""
    line(1)
    os.kill(os.getpid(), signal.SIGKILL)


def option(name: str, default: str) -> str:
    """The value of a word such as `--every`."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def logged(_last: int) -> None:
    """Logs as `--style megatron|pipeline|throughput --start N --every N --skips N --lines N --known` says.

    The lines say 0.5, 0.25, 0.125 s ...; so many after the first have skipped their optimizer step. With `--lines` it
    ends well after so many; with `--known` its arguments, printed first, tell the interval.
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
    """Asks for more memory than it may have."""
    line(1)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
    sys.stdout.write(str(len(bytearray(1 << 34))))


def disk(_last: int) -> None:
    """Writes to a disk that is full."""
    line(1)
    with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123 - nothing is imported for it
        file.write(b"x" * 4096)


def fill(_last: int) -> None:
    """Fills the disk of its own log."""
    line(1)
    while True:
        sys.stdout.write("x" * 1023 + "\n")


def missing(_last: int) -> None:
    """Lacks a dependency."""
    import apex_of_tomorrow  # type: ignore[import-not-found] # noqa: F401 - that is the point


def refused(_last: int) -> None:
    """DeepSpeed does not like what it is told."""
    raise AssertionError("ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism")


def communication(_last: int) -> None:
    """NCCL fails."""
    error = type("DistBackendError", (RuntimeError,), {"__module__": "torch.distributed"})
    raise error("NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.27.3")


def nan(last: int) -> None:
    """Loses its loss."""
    line(1)
    line(2, "NAN")
    good(last)


def late(_last: int) -> None:
    """Runs under a time limit that is too short."""
    line(1)
    os.execvp("timeout", ["timeout", "0.2", "sleep", "60"])  # noqa: S606, S607 - no shell


def empty(_last: int) -> None:
    """Ends well and says nothing."""


def harmless(last: int) -> None:
    """Talks of errors that are none."""
    sys.stderr.write("0 errors; error_feedback=True; [INFO] no error so far\n")
    try:
        raise ModuleNotFoundError("No module named 'apex'")
    except ModuleNotFoundError:
        import traceback

        traceback.print_exc()
    good(last)


def daemon(last: int) -> None:
    """Leaves a process in a session of its own behind, whose parent is gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            deaf(0)
        os._exit(0)
    os.wait()
    good(last)


def bare(last: int) -> None:
    """The same, and its environment is empty."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "300"], {})  # noqa: S606 - no shell
        os._exit(0)
    os.wait()
    good(last)


def main(words: list[str]) -> None:
    """Behave as `$TRAINER` says, else `BEHAVIOUR`, or `--by KEY KEY=BEHAVIOUR,...`, and `--iterations N`."""
    name = os.environ.get("TRAINER", words[0])
    if name == "--by":
        name = dict(each.split("=") for each in words[2].split(","))[words[1]]
    last = int(words[words.index("--iterations") + 1]) if "--iterations" in words else 2
    behaviour: Callable[[int], None] = globals()[name]
    behaviour(last)


if __name__ == "__main__":
    main(sys.argv[1:])
