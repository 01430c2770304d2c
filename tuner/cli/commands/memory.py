"""`tuner memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import OPTIMIZER, FileOrFolderPath, as_json
from tuner.core.quantity import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.sizing.memory_budget import MemoryBudget, MemoryPlan


@click.command(
    short_help="Budget a GPU's memory and the batch size that fits.",
    epilog="Example: tuner memory --frozen llama-3-8b --frozen 7b --trainable 100M --gpu H100-80GB-SXM --seq 512",
)
@click.option(
    "--frozen",
    multiple=True,
    metavar="MODEL|SIZE",
    help="Frozen model, by preset or parameter count: llama-3-8b, 7b. Repeatable.",
)
@click.option("--trainable", default="0", metavar="SIZE", help="Number of trained parameters: 100M. [default: 0]")
@click.option(
    "--optimizer",
    type=OPTIMIZER,
    default="adam",
    show_default=True,
    help="Optimizer of the trained parameters.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    default="bf16",
    show_default=True,
    help="Precision of weights, gradients and activations.",
)
@click.option("--checkpointing/--no-checkpointing", default=True, help="Activation checkpointing. [default: on]")
@click.option(
    "--gpu", default="H100-80GB-SXM", metavar="NAME[,NAME...]", help="GPUs to compare. [default: H100-80GB-SXM]"
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 1024),
    default=4,
    metavar="N",
    help="Data-parallel degrees to list: 1 to N. [default: 4]",
)
@click.option("--zero", type=click.IntRange(0, 3), default=0, metavar="STAGE", help="ZeRO stage. [default: 0]")
@click.option(
    "--target",
    type=click.FloatRange(0.01, 1.0),
    metavar="FRACTION",
    default=0.80,
    show_default=True,
    help="Share of the GPU's memory to use.",
)
@click.option(
    "--seq",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="Tokens per sample. [default: from the model]",
)
@click.option(
    "--sample", metavar="SIZE", help="Activation memory per sample: 0.4GB. [default: computed from the frozen models]"
)
@click.option(
    "--overhead",
    type=click.FloatRange(0.0, 0.9),
    metavar="FRACTION",
    default=0.08,
    show_default=True,
    help="Share of memory for the CUDA context and fragmentation.",
)
@click.option(
    "--multiple",
    type=click.IntRange(1, 4096),
    metavar="N",
    default=8,
    show_default=True,
    help="Round the recommended batch down to a multiple of this.",
)
@click.option("--decimal", is_flag=True, help="Count 80 GiB of GPU memory as 80 GB, as most published budgets do.")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=GB",
    help="Check a published figure against the budget: frozen=32. Repeatable.",
)
@click.option(
    "--export",
    "target_path",
    type=FileOrFolderPath(),
    metavar="DIR|FILE",
    help="Write a YAML config fragment with the batch size per number of GPUs.",
)
@as_json
def memory(as_json: bool, **given: Any) -> None:
    """Budget the memory of a GPU for frozen models and trained parameters, and find the batch size that fits.

    Frozen models take memory for weights, trained parameters also for gradients and optimizer state; the rest is left
    for activations. The activation memory of a sample is computed from the layers of the frozen models, through which
    gradients flow, unless --sample gives it. For the memory of a topology, use 'tuner explain KEY'.
    """
    from tuner.core.errors import NothingUsable
    from tuner.sizing.memory_budget import memory as budgeted

    target_path = given.pop("target_path")
    made, unit = budgeted(**given), _unit(decimal=given["decimal"])
    fits = any(budget.largest() if budget.sample else _missing(budget) <= 0 for budget in made.budgets)
    written = _export(target_path, made) if target_path and fits else []
    if as_json:
        _print_json(made, written)
    elif fits:
        _print_text(made, written, unit=unit)
    else:
        _print_claims(made)
    if not fits:
        raise NothingUsable(_shortage(made, *unit))


def _unit(*, decimal: bool) -> tuple[float, str]:
    return (1e9, "GB") if decimal else (GIB, "GiB")


def _missing(budget: MemoryBudget) -> float:
    """Return the bytes by which one sample exceeds the target; negative if it fits."""
    return budget.fixed + budget.sample - budget.card * budget.target


def _shortage(made: MemoryPlan, scale: float, word: str) -> str:
    """Return by how much the budget that comes closest to one sample exceeds its target."""
    least = min(made.budgets, key=_missing)
    need, room = (least.fixed + least.sample) / scale, least.card * least.target / scale
    frozen = f", of which the frozen models take {least.components['frozen'] / scale:,.1f}" * bool(made.request.frozen)
    gpus = f"each of {least.ranks} {least.gpu}" if least.ranks > 1 else least.gpu
    what = "a batch of 1 needs" if least.sample else "the models need"
    return (
        f"no batch fits: {what} {need:,.1f} {word} on {gpus}{frozen}; that is {_missing(least) / scale:,.1f} {word} "
        f"more than the {room:,.1f} {word} that --target {least.target:g} allows."
    )


def _export(path: str, made: MemoryPlan) -> list[str]:
    from pathlib import Path

    from tuner.core.atomic_write import write_files
    from tuner.core.errors import InputError

    fragments, chosen = made.fragments(), Path(path)
    if not fragments:
        raise InputError(
            "--export writes batch sizes, but the activation memory of a sample is unknown: pass --sample."
        )
    if chosen.suffix in (".yaml", ".yml"):
        if len(fragments) > 1:
            raise InputError(f"--export {path} is one file, but --gpu names {len(fragments)} GPUs; give a folder.")
        folder, files = chosen.parent, {chosen.name: next(iter(fragments.values()))}
    else:
        folder, files = chosen, {f"{gpu}.yaml": text for gpu, text in fragments.items()}
    return [str(file) for file in write_files(folder, files, option="--export")]


def _print_json(made: MemoryPlan, written: list[str]) -> None:
    from tuner.cli.output import print_json

    plan = made.request
    print_json(
        "memory",
        {
            "frozen": [{"name": part.name, "parameters": part.parameters} for part in plan.frozen],
            "trainable": plan.trainable,
            "optimizer": plan.optimizer,
            "precision": plan.precision,
            "checkpointing": plan.checkpointing,
            "budgets": [
                {
                    "gpu": budget.gpu,
                    "gpus": budget.ranks,
                    "card_gib": budget.card / GIB,
                    "target": budget.target,
                    "components_gib": {name: size / GIB for name, size in budget.components.items()},
                    "left_gib": budget.left / GIB,
                    "sample_gib": budget.sample / GIB,
                    "largest_batch": budget.largest(),
                    "recommended_batch": budget.recommended,
                    "margin": budget.margin,
                    "effective_batch": budget.recommended * budget.ranks,
                    "used": budget.used(budget.recommended),
                }
                for budget in made.budgets
            ],
            "claims": [
                {"claim": check.claim, "closes": check.closes, "sentence": check.sentence} for check in made.claims
            ],
            "written": written,
        },
    )


def _print_text(made: MemoryPlan, written: list[str], *, unit: tuple[float, str]) -> None:
    from tuner.cli.output import print_table
    from tuner.core.quantity import format_count
    from tuner.sizing.memory_budget import COMPONENTS

    plan, (scale, word) = made.request, unit
    first = [budget for budget in made.budgets if budget.ranks == 1]
    what = {
        "frozen": " + ".join(part.name for part in plan.frozen) or "none",
        "trainable": f"{format_count(plan.trainable, digits=4)} parameters, {plan.precision}",
        "gradients": plan.precision,
        "optimizer": plan.optimizer,
        "overhead": f"{100 * plan.overhead:.0f}% of GPU memory",
    }
    alone = " on one GPU alone" if plan.zero and len(made.budgets) > len(first) else ""
    rows: list[tuple[object, ...]] = [
        (name, *(f"{budget.components[name] / scale:,.1f}" for budget in first), what[name]) for name in COMPONENTS
    ]
    rows += [
        ("left", *(f"{budget.left / scale:,.1f}" for budget in first), f"for activations{alone}"),
        ("card", *(f"{budget.card / scale:,.1f}" for budget in first), word),
    ]
    print_table((word, *(budget.gpu for budget in first), "What"), rows, left=(word, "What"))
    print()
    if not first[0].sample:
        print("The activation memory of a sample is unknown: no frozen model has a known shape. Pass --sample SIZE.")
    else:
        _print_batches(made.budgets, scale, word)
    _print_claims(made)
    for path in written:
        print(f"wrote {path}")


def _print_claims(made: MemoryPlan) -> None:
    for verdict in made.claims:
        print(f"{'.' if verdict.closes else 'x'} {verdict.claim:<9}  {verdict.sentence}")


def _print_batches(made: Sequence[MemoryBudget], scale: float, word: str) -> None:
    from tuner.cli.output import print_table

    target = made[0].target
    print_table(
        ("GPUs", "GPU", "Largest", "Recommended", "Margin", "Total batch", "Used", f"{word} per sample"),
        [
            (
                budget.ranks,
                budget.gpu,
                *(_batches(budget) if budget.recommended else ("none", *[""] * 4)),
                f"{budget.sample / scale:,.3f}",
            )
            for budget in made
        ],
        left=("GPU",),
    )
    print(f"\nBatch sizes per GPU that use at most {100 * target:.0f}% of its memory. Estimates, not measurements.")


def _batches(budget: MemoryBudget) -> tuple[object, ...]:
    return (
        budget.largest(),
        budget.recommended,
        f"{100 * budget.margin:.0f}%",
        budget.recommended * budget.ranks,
        f"{100 * budget.used(budget.recommended):.0f}%",
    )
