"""Logs of working trainers as users pasted them into public threads: whatever launcher, logger and progress bar stood
between the trainer and the file. Written by hand in that format, with figures of their own, by what prints them."""

from __future__ import annotations

from typing import Final

from tests.logs.working import (
    deepspeed,
    dictionaries,
    hugging_face_bars,
    megatron,
    megatron_forks,
    nemo_composer,
    other_bars,
    single_lines,
    torchtitan,
)

GoodLog = tuple[str, str, int, float, float]
"""A log, its reader, the number of the job's second iteration, its seconds, and how far off they may be."""

GOOD_LOGS: Final[dict[str, GoodLog]] = {
    **deepspeed.CASES,
    **dictionaries.CASES,
    **hugging_face_bars.CASES,
    **megatron.CASES,
    **megatron_forks.CASES,
    **nemo_composer.CASES,
    **other_bars.CASES,
    **single_lines.CASES,
    **torchtitan.CASES,
}
