"""Print the result of `tuner max-batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuner.core.quantity import GIB
from tuner.core.text import DAY

if TYPE_CHECKING:
    from tuner.sizing.max_batch import MaxBatchResult
    from tuner.space.axes import Axes

CLAIM_TOLERANCE: Final = 0.01
"""Relative error up to which a claimed slope is confirmed."""

PIPELINE_ASSUMED: Final = (
    "without --global-batch, a step of a pipeline is assumed to have as many microbatches as fill it (Acc steps)"
)

_SOURCES: Final = {
    "estimate": "estimates, not measurements",
    "table": "from the table",
    "jobs": "measured by jobs",
}


def print_answer_json(made: MaxBatchResult) -> None:
    """Print the document `tuner/max-batch/1`."""
    from tuner.cli.output import print_json

    fixed = {axis: list(values) for axis, values in made.fixed.items()}
    print_json("max-batch", answer_document(made) | {"fixed": fixed})


def answer_document(made: MaxBatchResult) -> dict[str, Any]:
    """Return the result for JSON."""
    from dataclasses import asdict

    found, line = made.found, made.fit
    return {
        "topology": made.topology.key,
        "max_batch": found.largest,
        "safe_batch": made.safe,
        "margin": made.margin,
        "runs": len(found.attempts),
        "strategy": made.strategy,
        "source": made.source,
        "estimated": made.source == "estimate",
        "open_end": found.open_end,
        "stopped": found.stopped.evidence if found.stopped else None,
        "attempts": [
            {
                "micro_batch": attempt.micro_batch,
                "outcome": attempt.outcome,
                "peak_memory_gib": attempt.peak_memory / GIB if attempt.peak_memory and attempt.fits else None,
                "sec_per_iter": attempt.seconds if attempt.fits else None,
                "evidence": attempt.evidence,
            }
            for attempt in found.attempts
        ],
        "fit": {
            "gib_per_sample": line.per_sample / GIB,
            "gib_at_zero": line.at_zero / GIB,
            "stderr": line.stderr / GIB if line.stderr is not None else None,
        }
        if line
        else None,
        "card_gib": made.card / GIB,
        "usable_gib": made.usable / GIB,
        "headroom_gib": (made.card - made.peak) / GIB if made.peak else None,
        "allocator_pressure": [asdict(one) | {"near_limit": one.near_limit} for one in made.pressures],
        "worth": [asdict(value) for value in made.worth],
    }


def fixed_words(fixed: Axes) -> str:
    """Return the axes that the user did not set, with their values."""
    from tuner.core.text import either, listed

    words = [f"{axis}={either(str(value).lower() for value in values)}" for axis, values in fixed.items()]
    return f"{listed(words)}; change them with --set"


def print_answer(made: MaxBatchResult, *, claim: float | None = None) -> None:
    """Print the result as text."""
    from tuner.cli.output import print_table
    from tuner.core.text import counted, four_digits

    found = made.found
    worth = {value.micro_batch: value for value in made.worth}
    rows = []
    for number, attempt in enumerate(found.attempts, start=1):
        value = worth.get(attempt.micro_batch)
        fits = attempt.fits
        rows.append(
            (
                number,
                attempt.micro_batch,
                attempt.outcome,
                f"{attempt.peak_memory / GIB:,.2f}" if fits and attempt.peak_memory else "",
                four_digits(attempt.seconds) if fits and attempt.seconds else "",
                value.acc_steps if value and fits else "",
                f"{value.tokens_per_second:,.0f}" if value and fits and value.tokens_per_second else "",
                f"{value.days:,.1f}" if value and fits and value.days else "",
            )
        )
    print(f"topology {made.topology.key} on {counted(made.topology.nodes, 'node')}, at other micro-batch sizes too\n")
    headers = ("Run", "Batch", "Outcome", "GiB", "Sec/it", "Acc steps", "Tokens/s", "Days")
    print_table(headers, rows, left=("Outcome",))
    beyond = "; larger batches were not tried" if found.open_end else ""
    print(
        f"\nlargest micro-batch size {found.largest} in {counted(len(found.attempts), 'run')} ({made.strategy}), "
        f"{_SOURCES[made.source]}{beyond}"
    )
    if tokens := _tokens_assumed(made):
        print(f"days are for training on {tokens} tokens")
    if made.fixed:
        print(f"fixed: {fixed_words(made.fixed)}")
    if made.fills_pipeline:
        print(PIPELINE_ASSUMED)
    if made.peak:
        left = made.card - made.peak
        print(
            f"headroom {left / GIB:,.2f} GiB of {made.card / GIB:,.1f} ({100 * left / made.card:.1f}%); "
            f"a process can use {made.usable / GIB:,.1f}"
        )
    if made.fit:
        _print_fit(made, claim)
    print(f"safe batch with a memory margin of {100 * made.margin:.0f}%: {made.safe}")
    for pressure in made.pressures:
        share = f" at {100 * pressure.share:.0f}% of the usable memory" if pressure.share else ""
        cause = "possibly" if pressure.near_limit else "far from the memory limit, so not"
        slower = f"{100 * pressure.slower:.0f}% slower than the trend of smaller batches"
        print(f"batch {pressure.micro_batch} is {slower}{share}: {cause} allocator pressure")


def _tokens_assumed(made: MaxBatchResult) -> str:
    """Return the training tokens that the days assume, as text; empty if no batch is timed."""
    from tuner.core.quantity import format_count

    counts = [
        value.days * DAY * value.tokens_per_second for value in made.worth if value.days and value.tokens_per_second
    ]
    return format_count(counts[0]) if counts else ""


def _print_fit(made: MaxBatchResult, claim: float | None) -> None:
    from tuner.sizing.fit import ratio_at

    line = made.fit
    assert line is not None  # noqa: S101 - the caller has checked
    error = f" +- {line.stderr / GIB:,.5f}" if line.stderr is not None else ""
    print(
        f"memory: {line.per_sample / GIB:,.4f}{error} GiB per sample plus {line.at_zero / GIB:,.2f} GiB at batch 0 "
        f"({line.points} points)"
    )
    if claim is None:
        return
    digits = len(f"{claim:.6g}".partition(".")[2])
    error_of_claim = claim * GIB / line.per_sample - 1
    if abs(error_of_claim) <= CLAIM_TOLERANCE:
        print(f"claimed {claim:g} GiB per sample matches the fitted slope")
        return
    mistaken = ratio_at(claim * GIB, made.found.attempts, 10.0**-digits * GIB)
    why = (
        f"; it is the total memory of batch {mistaken.micro_batch} divided by its samples, fixed memory included"
        if mistaken
        else ""
    )
    side = "above" if error_of_claim > 0 else "below"
    print(f"claimed {claim:g} GiB per sample is {abs(error_of_claim):.1%} {side} the fitted slope{why}")
