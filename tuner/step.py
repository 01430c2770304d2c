"""Report the iterations of a trainer that prints none: `from tuner.step import step`, and `step(loss=loss)` after each.

It uses only the standard library, so that the file can also be copied beside the trainer. It writes to the file that
the environment variable `TUNER_STEPS` names, which tuner sets for each job of `--command`; elsewhere it does nothing.
Only the first rank writes. `float(loss)` waits for the GPU, so that the time is that of the whole iteration.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import SupportsFloat

VARIABLE = "TUNER_STEPS"
_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers give a process its rank."""


class _Clock:
    """The number of iterations so far, and when the last one ended."""

    number = 0
    ended = time.perf_counter()


def step(loss: SupportsFloat | None = None) -> None:
    """Report that an iteration, with its optimizer step, has ended; its time is the time since the last report."""
    path = os.environ.get(VARIABLE)
    rank = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    if not path or rank != "0":
        return
    figure = "" if loss is None else f" loss {float(loss):.6g} |"
    now = time.perf_counter()
    seconds, _Clock.ended = now - _Clock.ended, now
    _Clock.number += 1
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"tuner step {_Clock.number} | seconds {seconds:.6f} |{figure}\n")
