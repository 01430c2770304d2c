"""How the answer of `tuner max-batch` is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.sizing.max_batch import MaxBatchResult

_GIB = 2.0**30
_SOURCES = {
    "estimate": "estimates, not measurements",
    "table": "as the table has it",
    "jobs": "measured by jobs on this machine",
}


def print_answer_json(made: MaxBatchResult) -> None:
    """The document `tuner/max-batch/1`."""
    from tuner.cli.output import print_json

    print_json("max-batch", answer_document(made))


def answer_document(made: MaxBatchResult) -> dict[str, Any]:
    """The answer for JSON."""
    found, line = made.found, made.fit
    return {
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
                "micro_batch": each.micro_batch,
                "outcome": each.outcome,
                "peak_memory_gib": each.peak_memory / _GIB if each.peak_memory and each.fits else None,
                "sec_per_iter": each.seconds if each.fits else None,
                "evidence": each.evidence,
            }
            for each in found.attempts
        ],
        "fit": {
            "gib_per_sample": line.per_sample / _GIB,
            "gib_at_zero": line.at_zero / _GIB,
            "stderr": line.stderr / _GIB if line.stderr is not None else None,
        }
        if line
        else None,
        "card_gib": made.card / _GIB,
        "usable_gib": made.usable / _GIB,
        "headroom_gib": (made.card - made.peak) / _GIB if made.peak else None,
        "allocator_pressure": [
            {"micro_batch": each.micro_batch, "slower": each.slower, "share": each.share, "near_limit": each.near_limit}
            for each in made.pressures
        ],
        "worth": [
            {
                "micro_batch": each.micro_batch,
                "step_batch": each.step_batch,
                "acc_steps": each.acc_steps,
                "exact": each.exact,
                "tokens_per_second": each.tokens_per_second,
                "days": each.days,
            }
            for each in made.worth
        ],
    }


def print_answer(made: MaxBatchResult, *, claim: float | None = None) -> None:
    """The answer for people."""
    from tuner.cli.output import print_table
    from tuner.core.text import counted

    found = made.found
    worth = {each.micro_batch: each for each in made.worth}
    rows = []
    for number, each in enumerate(found.attempts, start=1):
        value = worth.get(each.micro_batch)
        shown = each.fits
        rows.append(
            (
                number,
                each.micro_batch,
                each.outcome,
                f"{each.peak_memory / _GIB:.2f}" if shown and each.peak_memory else "",
                f"{each.seconds:.4g}" if shown and each.seconds else "",
                value.acc_steps if value and shown else "",
                f"{value.tokens_per_second:,.0f}" if value and shown and value.tokens_per_second else "",
                f"{value.days:.3g}" if value and shown and value.days else "",
            )
        )
    headers = ("Run", "Batch", "Outcome", "GiB", "Sec/it", "Acc steps", "Tokens/s", "Days")
    print_table(headers, rows, left=("Outcome",))
    beyond = "; nothing larger was to be tried" if found.open_end else ""
    print(
        f"\nlargest micro batch {found.largest} in {counted(len(found.attempts), 'run')} ({made.strategy}), "
        f"{_SOURCES[made.source]}{beyond}"
    )
    if made.peak:
        left = made.card - made.peak
        print(
            f"headroom {left / _GIB:.2f} GiB of {made.card / _GIB:.1f} ({100 * left / made.card:.1f}%); "
            f"a process can have {made.usable / _GIB:.1f}"
        )
    if made.fit:
        _print_fit(made, claim)
    print(f"safe with a margin of {100 * made.margin:.0f}%: {made.safe}")
    for own in made.pressures:
        share = f" at {100 * own.share:.0f}% of the usable memory" if own.share else ""
        cause = "allocator pressure" if own.near_limit else "not near the limit, so not the allocator"
        print(f"batch {own.micro_batch} is {100 * own.slower:.0f}% slower than the line before it{share}: {cause}")


def _print_fit(made: MaxBatchResult, claim: float | None) -> None:
    from tuner.sizing.fit import ratio_at

    line = made.fit
    assert line is not None  # noqa: S101 - who calls has asked
    error = f" +- {line.stderr / _GIB:.5f}" if line.stderr is not None else ""
    print(
        f"memory: {line.per_sample / _GIB:.4f}{error} GiB a sample and {line.at_zero / _GIB:.2f} GiB "
        f"whatever the batch ({line.points} points)"
    )
    if claim is None:
        return
    digits = len(f"{claim:.6g}".partition(".")[2])
    off = claim * _GIB / line.per_sample - 1
    if abs(off) <= 0.01:
        print(f"{claim:g} GiB a sample, as claimed, is the slope")
        return
    mistaken = ratio_at(claim * _GIB, made.found.attempts, 10.0**-digits * _GIB)
    why = (
        f"; it is batch {mistaken.micro_batch}'s whole memory over its samples, what does not grow with them included"
        if mistaken
        else ""
    )
    print(f"{claim:g} GiB a sample, as claimed, is {100 * off:+.1f}% off the slope{why}")
