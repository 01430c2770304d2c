"""`tuner compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.arguments import batch_steps, margin_option, stack_option, takes_defaults
from tuner.cli.options import as_json, describes_a_space, takes_calibration

if TYPE_CHECKING:
    from tuner.costmodel.estimate import CostModel
    from tuner.sizing.compare import Option
    from tuner.space.space import Space

_GIB = 2.0**30


@click.command(
    short_help="Compare FSDP or ZeRO-3 with tensor parallelism.",
    epilog="Example: tuner compare --model enoki-40 --gpu H100-80GB-SXM --nodes 1 --gpus-per-node 4 --set tp=1,4",
)
@describes_a_space
@takes_calibration
@click.option("--table", metavar="FILE", help="Measured table whose rows are compared. [default: estimates]")
@takes_defaults
@click.option(
    "--step",
    metavar="N|x2",
    default="x2",
    help="Micro batches to estimate: multiples of N, or powers of two. [default: x2]",
)
@click.option(
    "--most", type=click.IntRange(1), default=256, metavar="N", help="Largest micro batch to estimate. [default: 256]"
)
@margin_option
@stack_option
@click.option("--plot", metavar="FILE", help="Plot memory and throughput against batch size, one panel per model.")
@click.option(
    "--export", "folder", metavar="DIR", help="Write the FSDP and ZeRO-3 configs of each model's best option."
)
@as_json
def compare(space: Space, model: CostModel, as_json: bool, **given: Any) -> None:
    """Compare FSDP or ZeRO-3 with tensor parallelism: largest batch, throughput, days, memory and the reasons.

    The options compared are the values of each axis that --set gives more than one; without --set, tp=1 against tp over
    the whole node.
    """
    from tuner.core.errors import NothingUsable
    from tuner.sizing.compare import by_model

    made = _options(space, model, given)
    if not any(option.best for option in made):
        raise NothingUsable("no option fits a batch of one sample; shard more or enable recompute.")
    groups = by_model(made)
    if given["plot"]:
        _plot(groups, given["plot"])
    written = _export(groups, given["folder"]) if given["folder"] else []
    source = "table" if given["table"] else "estimate"
    if as_json:
        _print_json(groups, model, source, written)
    else:
        _print_text(groups, model, source)
        for path in written:
            print(f"wrote {path}")


def _options(space: Space, model: CostModel, given: dict[str, Any]) -> list[Option]:
    from tuner.cli.arguments import read
    from tuner.core.errors import NothingUsable
    from tuner.sizing.compare import by_estimate, by_table
    from tuner.sizing.options import asked_rows, options, stacked
    from tuner.space.axes import parse_setting

    arguments = click.get_current_context().params
    settings = [parse_setting(text) for text in arguments["settings"]]
    axes = [axis for axis, values in settings if len(values) > 1] or ["tp"]
    if given["table"]:
        table = read(given["table"], given["defaults"])
        named = space.workload.model if arguments["model"] else None
        rows = asked_rows(table.rows, group=None, model=named, settings=arguments["settings"])
        made = by_table(rows, axes=axes, global_batch=arguments["global_batch"], margin=given["margin"])
        if not made:
            raise NothingUsable(f"{table.name} has no row that matches the model and settings.")
        return made
    if not settings:
        space = space.where(tp=tuple(dict.fromkeys((1, space.cluster.gpus_per_node))))
    chosen = options(space)
    made = []
    for topology in chosen:
        workload = stacked(space.workload, given["stack"], zero=topology.zero)
        made += by_estimate(
            [topology],
            workload,
            space.cluster,
            model,
            axes=axes,
            batches=batch_steps(given["step"], given["most"]),
            global_batch=arguments["global_batch"],
            margin=given["margin"],
        )
    return made


def _title(option: Option) -> str:
    size = option.model.parameters / 1e9
    name = "" if option.model.name == "unnamed" else f"{option.model.name}, "
    return f"{name}{option.model.heads} heads, {size:.2f}B"


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
        f"{peak / _GIB:.2f}" if peak else "",
        f"{line.per_sample / option.topology.dp / _GIB:.3f}" if line else "",
        f"{more} by the fit" if more else "",
    )


def _print_text(groups: list[list[Option]], model: CostModel, source: str) -> None:
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
    rows = [(_title(option), *_row(option)) for own in groups for option in own]
    print_table(("Model", *headers), rows, left=("Model", "Option", "Next"), spare=("Next", "GiB/sequence"))
    origin = "Measured by the table" if source == "table" else "Estimates, not measurements"
    print(f"\n{origin}. A + marks the largest batch tried: larger ones may fit.")
    if any(option.best and option.best.days for own in groups for option in own):
        tokens = groups[0][0].workload.tokens
        print(f"Days are for training on {f'{format_count(tokens)} tokens' if tokens else '20 tokens per parameter'}.")
    for own in groups:
        if len(own) > 1:
            _print_why(own, model)
    pressed = [(option, pressure) for own in groups for option in own for pressure in option.answer.pressures]
    for option, pressure in pressed:
        cause = "allocator pressure" if pressure.near_limit else "far from the memory limit, so not allocator pressure"
        share = f" at {100 * pressure.share:.0f}% of the memory" if pressure.share else ""
        print(
            f"{_title(option)}, {option.label}: batch {pressure.micro_batch * option.topology.dp} is "
            f"{100 * pressure.slower:.0f}% slower than the trend of smaller batches{share}: {cause}"
        )


def _print_why(own: list[Option], model: CostModel) -> None:
    """Print how the best option of a model compares with each other one: at matched batches, and by term."""
    from tuner.sizing.compare import apart, matched, reasons

    ranked = sorted(own, key=lambda option: -(option.fastest.tokens_per_second if option.fastest else 0.0))
    first = ranked[0]
    for other in ranked[1:]:
        pairs = matched(first, other)
        print(f"\n{_title(first)}: {first.label} against {other.label}")
        if not pairs:
            print("  no batch size in common")
            continue
        for word, ratios in (
            ("the time", [pair.slower for pair in pairs if pair.slower]),
            ("the memory", [pair.fuller for pair in pairs if pair.fuller]),
        ):
            if ratios:
                print(
                    f"  {other.label} takes {min(ratios):.2f} to {max(ratios):.2f} times {word} of {first.label} "
                    f"at matched batches of {', '.join(str(pair.step_batch) for pair in pairs)}"
                )
        batch = pairs[-1].step_batch
        ours, theirs = reasons(first, other, batch, model)
        _print_terms(f"time at batch {batch}, estimated", apart(ours.time.terms, theirs.time.terms), "ms", 1e-3)
        _print_terms(f"memory at batch {batch}, estimated", apart(ours.memory.terms, theirs.memory.terms), "GiB", _GIB)


def _print_terms(title: str, terms: list[tuple[str, float, float]], unit: str, scale: float) -> None:
    changes = [
        f"{name} {ours / scale:.4g} -> {theirs / scale:.4g} {unit}"
        for name, ours, theirs in terms[:5]
        if abs(theirs - ours) / scale > 1e-3
    ]
    print(f"  {title}: {', '.join(changes) or 'equal terms'}")


def _print_json(groups: list[list[Option]], model: CostModel, source: str, written: list[str]) -> None:
    from tuner.cli.max_batch_output import answer_document
    from tuner.cli.output import print_json
    from tuner.sizing.compare import matched, reasons

    documents = []
    for own in groups:
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
                    "peak_memory_gib": option.answer.peak / _GIB if option.answer.peak else None,
                    "answer": answer_document(option.answer),
                }
            )
        pairs = []
        for other in own[1:]:
            for pair in matched(own[0], other):
                ours, theirs = reasons(own[0], other, pair.step_batch, model)
                pairs.append(
                    {
                        "ways": [own[0].label, other.label],
                        "batch": pair.step_batch,
                        "slower": pair.slower,
                        "fuller": pair.fuller,
                        "terms_sec": [dict(ours.time.terms), dict(theirs.time.terms)],
                        "terms_gib": [
                            {name: size / _GIB for name, size in side.memory.terms.items()} for side in (ours, theirs)
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
    print_json("compare", {"source": source, "models": documents, "written": written})


def _plot(groups: list[list[Option]], path: str) -> None:
    from pathlib import Path

    from tuner.report.batch_plots import Panel, curve, draw

    panels = [
        Panel(
            title=_title(own[0]),
            usable=own[0].answer.usable / _GIB,
            curves=tuple(curve(option.answer, option.label, scale=option.topology.dp) for option in own),
        )
        for own in groups
    ]
    draw(panels, Path(path), axis="sequences a step, all ranks")


def _export(groups: list[list[Option]], folder: str) -> list[str]:
    """Write the option with the highest throughput of each model, at the batch that reaches it."""
    import json
    from dataclasses import replace
    from pathlib import Path

    from tuner.core.atomic_write import write_files
    from tuner.export.fsdp import fsdp_files
    from tuner.launch.ds_config import ds_config

    written = []
    global_batch = click.get_current_context().params["global_batch"]
    for own in groups:
        ranked = [option for option in own if option.fastest]
        if not ranked:
            continue
        best = max(ranked, key=lambda option: option.fastest.tokens_per_second)
        step = best.fastest.step_batch
        batch = global_batch if global_batch and global_batch % step == 0 else step
        workload = replace(best.workload, global_batch=batch)
        topology = replace(best.topology, micro_batch=best.fastest.micro_batch)
        files = fsdp_files(workload, topology, best.cluster)
        files["ds_config.json"] = json.dumps(ds_config(workload, topology), indent=2) + "\n"
        target = Path(folder) / f"{best.model.name}-h{best.model.heads}" if len(groups) > 1 else Path(folder)
        written += [str(path) for path in write_files(target, files)]
    return written
