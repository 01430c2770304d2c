"""`tuner compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.arguments import margin_option, stack_option, takes_defaults
from tuner.cli.options import FilePath, FolderPath, as_json, calibration_option, takes_description_of_layers
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.costmodel.estimate import CostModel
    from tuner.sizing.compare import Comparison, Option


@click.command(
    short_help="Compare topologies, such as FSDP with tensor parallelism.",
    epilog="Example: tuner compare --model enoki-40 --gpu H100-80GB-SXM --nodes 1 --gpus-per-node 4 --set tp=1,4",
)
@click.argument("keys", nargs=-1, shell_complete=completion.keys)
@takes_description_of_layers
@calibration_option
@click.option(
    "--table", type=FilePath(), metavar="FILE", help="Measured table whose rows are compared. [default: estimates]"
)
@takes_defaults
@click.option(
    "--step",
    metavar="N|x2",
    default="x2",
    help="Micro-batch sizes to estimate: multiples of N, or powers of two. [default: x2]",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=256,
    metavar="N",
    help="Largest micro-batch size to estimate. [default: 256]",
)
@margin_option
@stack_option
@click.option(
    "--plot",
    type=FilePath(),
    metavar="FILE",
    help="Plot memory and throughput against batch size, one panel per model.",
)
@click.option(
    "--export",
    "folder",
    type=FolderPath(),
    metavar="DIR",
    help="Write the FSDP and ZeRO-3 configs of each model's best option.",
)
@as_json
def compare(as_json: bool, plot: str | None, folder: str | None, **given: Any) -> None:
    """Compare topologies, such as FSDP with tensor parallelism: largest batch, throughput, days, memory and reasons.

    Compares the topologies of the KEYS (tp2-pp1-z1-rnone; their micro-batch size is ignored), or every value of each
    axis that --set lists with more than one value. By default, compares tp=1 with the largest tp that fits in a node.
    Unless a key or --set names recompute, each option has the one with which it is fastest. To compare two topologies
    at their own micro-batch sizes, use 'tuner explain KEY --against KEY'.
    """
    from tuner.sizing.api import compare

    made = compare(**given)
    if plot:
        from tuner.report.batch_plots import plot_batches

        plot_batches(made, plot)
    written = []
    if folder:
        from tuner.export.fsdp import write_comparison

        written = [str(path) for path in write_comparison(made, folder)]
    if as_json:
        _print_json(made, written)
    else:
        _print_text(made)
        for file in written:
            print(f"wrote {file}")
        if written:
            _print_unwrapped(made)


def _print_unwrapped(made: Comparison) -> None:
    """Print what to do about the models whose layer class the FSDP files lack."""
    from tuner.export.fsdp import unwrapped_note

    for note in filter(None, (unwrapped_note(own[0].model) for own in made.models)):
        print(note)


def _row(option: Option) -> tuple[object, ...]:
    best, line = option.best, option.answer.fit
    if best is None:
        return (option.label, option.topology.dp, "none", *[""] * 8)
    peak, more = option.answer.peak, option.next_would_fit
    seen = next(attempt for attempt in option.answer.found.attempts if attempt.micro_batch == best.micro_batch)
    return (
        option.label,
        option.topology.dp,
        f"{best.step_batch}{'+' if option.answer.found.open_end else ''}",
        best.micro_batch,
        best.acc_steps,
        f"{1e3 * seen.seconds:.0f}" if seen.seconds else "",
        f"{best.tokens_per_second / 1e3:.1f}" if best.tokens_per_second else "",
        f"{best.days:,.1f}" if best.days else "",
        f"{peak / GIB:,.2f}" if peak else "",
        f"{line.per_sample / option.topology.dp / GIB:,.3f}" if line else "",
        f"{more} by the fit" if more else "",
    )


def _print_text(made: Comparison) -> None:
    from tuner.cli.max_batch_output import PIPELINE_ASSUMED, fixed_words
    from tuner.cli.output import print_table
    from tuner.core.quantity import format_count

    headers = (
        "Option",
        "DP",
        "Max batch",
        "Local",
        "Acc steps",
        "ms",
        "K tokens/s",
        "Days",
        "GiB",
        "GiB/sequence",
        "Next",
    )
    rows = [(option.title, *_row(option)) for own in made.models for option in own]
    print_table(("Model", *headers), rows, left=("Model", "Option", "Next"), spare=("Next", "GiB/sequence"))
    origin = "Measured by the table" if made.source == "table" else "Estimates, not measurements"
    print(f"\n{origin}. A + marks the largest batch tried, or allowed by the global batch.")
    if any(option.best and option.best.days for own in made.models for option in own):
        tokens = made.models[0][0].workload.tokens
        print(f"Days are for training on {f'{format_count(tokens)} tokens' if tokens else '20 tokens per parameter'}.")
    if made.fixed:
        print(f"Fixed: {fixed_words(made.fixed)}.")
    if made.chose_recompute:
        print("Each option has the recompute with which it is fastest, unless --set recompute names one.")
    if any(option.answer.fills_pipeline for own in made.models for option in own):
        print(f"{PIPELINE_ASSUMED[0].upper()}{PIPELINE_ASSUMED[1:]}.")
    for own in made.models:
        _print_why(own, made.cost_model, made.global_batch)
    pressed = [(option, pressure) for own in made.models for option in own for pressure in option.answer.pressures]
    for option, pressure in pressed:
        cause = "possibly" if pressure.near_limit else "far from the memory limit, so not"
        share = f" at {100 * pressure.share:.0f}% of the memory" if pressure.share else ""
        print(
            f"{option.title}, {option.label}: batch {pressure.micro_batch * option.topology.dp} is "
            f"{100 * pressure.slower:.0f}% slower than the trend of smaller batches{share}: {cause} allocator pressure"
        )


def _print_why(own: Sequence[Option], model: CostModel, global_batch: int | None) -> None:
    """Print how the best option of a model compares with each other one: at matched batches, and by term."""
    from tuner.sizing.compare import apart, matched, reasons

    ranked = sorted(own, key=lambda option: -(option.fastest.tokens_per_second if option.fastest else 0.0))
    first = ranked[0]
    for other in ranked[1:]:
        pairs = matched(first, other)
        print(f"\n{first.title}: {first.label} against {other.label}")
        if not pairs:
            print(f"  no batch size in common: {_reached(first)}; {_reached(other)}")
            _print_accumulated(first, other, model, global_batch)
            continue
        for word, ratios in (
            ("the time", [pair.slower for pair in pairs if pair.slower]),
            ("the memory", [pair.fuller for pair in pairs if pair.fuller]),
        ):
            if ratios:
                low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
                batches = "a matched batch" if len(pairs) == 1 else "matched batches"
                print(
                    f"  {other.label} takes {low if low == high else f'{low} to {high}'} times {word} of {first.label} "
                    f"at {batches} of {', '.join(str(pair.step_batch) for pair in pairs)}"
                )
        batch = pairs[-1].step_batch
        former, latter = reasons(first, other, batch, model, global_batch=global_batch)
        _print_terms(f"time at batch {batch}, estimated", apart(former.time.terms, latter.time.terms), "ms", 1e-3)
        _print_terms(f"memory at batch {batch}, estimated", apart(former.memory.terms, latter.memory.terms), "GiB", GIB)


def _reached(option: Option) -> str:
    """Return the batches that an option ran, and the one at which it runs out of memory."""
    found, dp = option.answer.found, option.topology.dp
    ran = sorted({attempt.micro_batch * dp for attempt in found.attempts if attempt.fits})
    words = [f"fits {' to '.join(map(str, dict.fromkeys((ran[0], ran[-1]))))}"] if ran else []
    words += [f"runs out of memory at {found.smallest_failed * dp}"] if found.smallest_failed else []
    return f"{option.label} {' and '.join(words) or 'ran none'}"


def _print_accumulated(first: Option, other: Option, model: CostModel, global_batch: int | None) -> None:
    """Print how two options compare that accumulate their fastest batches to the same global batch."""
    from tuner.sizing.compare import apart, estimate_at

    one, two = first.fastest, other.fastest
    if not one or not two:
        return
    print(
        f"  with gradient accumulation to the same global batch, {other.label} takes "
        f"{one.tokens_per_second / two.tokens_per_second:.2f} times the time of {first.label}"
    )
    former, latter = (
        estimate_at(option, batch.step_batch, model, global_batch=global_batch)
        for option, batch in ((first, one), (other, two))
    )
    times = (
        {name: seconds / batch.step_batch for name, seconds in estimate.time.terms.items()}
        for estimate, batch in ((former, one), (latter, two))
    )
    _print_terms("time per sequence, estimated", apart(*times), "ms", 1e-3)
    batches = f"batches {one.step_batch} and {two.step_batch}"
    _print_terms(f"memory at {batches}, estimated", apart(former.memory.terms, latter.memory.terms), "GiB", GIB)


def _print_terms(title: str, terms: list[tuple[str, float, float]], unit: str, scale: float) -> None:
    changes = [
        f"{name} {former / scale:.4g} -> {latter / scale:.4g} {unit}"
        for name, former, latter in terms[:5]
        if abs(latter - former) / scale > 1e-3
    ]
    print(f"  {title}: {', '.join(changes) or 'equal terms'}")


def _print_json(made: Comparison, written: list[str]) -> None:
    from tuner.cli.max_batch_output import answer_document
    from tuner.cli.output import print_json
    from tuner.sizing.compare import matched, reasons

    documents = []
    for own in made.models:
        ways = []
        for option in own:
            best = option.best
            ways.append(
                {
                    "way": option.label,
                    "key": option.topology.key,
                    "dp": option.topology.dp,
                    "max_global_batch": best.step_batch if best else 0,
                    "max_tried": option.answer.found.open_end,
                    "next_by_the_line": option.next_would_fit,
                    "local_batch": best.micro_batch if best else 0,
                    "acc_steps": best.acc_steps if best else None,
                    "tokens_per_second": best.tokens_per_second if best else None,
                    "days": best.days if best else None,
                    "fastest_batch": option.fastest.step_batch if option.fastest else None,
                    "peak_memory_gib": option.answer.peak / GIB if option.answer.peak else None,
                    "answer": answer_document(option.answer),
                }
            )
        pairs = []
        for other in own[1:]:
            for pair in matched(own[0], other):
                former, latter = reasons(
                    own[0], other, pair.step_batch, made.cost_model, global_batch=made.global_batch
                )
                pairs.append(
                    {
                        "ways": [own[0].label, other.label],
                        "batch": pair.step_batch,
                        "slower": pair.slower,
                        "fuller": pair.fuller,
                        "terms_sec": [dict(former.time.terms), dict(latter.time.terms)],
                        "terms_gib": [
                            {name: size / GIB for name, size in side.memory.terms.items()} for side in (former, latter)
                        ],
                    }
                )
        described = own[0].model
        documents.append(
            {
                "model": {"name": described.name, "heads": described.heads, "parameters": described.parameters},
                "ways": ways,
                "matched": pairs,
            }
        )
    fixed = {axis: list(values) for axis, values in made.fixed.items()}
    print_json("compare", {"source": made.source, "fixed": fixed, "models": documents, "written": written})
