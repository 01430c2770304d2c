"""Start-up time of the commands: medians over whole processes, compared with a bare Python in the same run.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

REPEATS = 15
COMMANDS = {
    "bare python": ["-c", "pass"],
    "tuner --help": ["-m", "tuner", "--help"],
    "tuner plan --nodes 48 --json": ["-m", "tuner", "plan", "--nodes", "48", "--json"],
    "tuner plan --nodes 48": ["-m", "tuner", "plan", "--nodes", "48"],
    "tuner explain tp8-pp5-mbs2-z1": ["-m", "tuner", "explain", "tp8-pp5-mbs2-z1"],
}


def main() -> None:
    """Print the figures."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        for name, arguments in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
            seconds[name].append(time.perf_counter() - started)
    bare = statistics.median(seconds["bare python"])
    for name, each in seconds.items():
        median = statistics.median(each)
        print(f"{name}: {median * 1000:.0f} ms (worst {max(each) * 1000:.0f}), {median / bare:.1f} x a bare Python")


if __name__ == "__main__":
    main()
