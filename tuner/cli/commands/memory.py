"""`tuner memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import as_json

if TYPE_CHECKING:
    from tuner.sizing.memory_budget import ClaimCheck, MemoryBudget, MemoryRequest


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
    type=click.Choice(["adam", "adam8bit", "adafactor", "sgd"]),
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
    default=0.80,
    show_default=True,
    help="Share of the GPU's memory to use.",
)
@click.option(
    "--seq",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="Tokens per sample. [default: the model's sequence length]",
)
@click.option(
    "--sample", metavar="SIZE", help="Activation memory per sample: 0.4GB. [default: computed from the frozen models]"
)
@click.option(
    "--overhead",
    type=click.FloatRange(0.0, 0.9),
    default=0.08,
    show_default=True,
    help="Share of memory for the CUDA context and fragmentation.",
)
@click.option(
    "--multiple",
    type=click.IntRange(1, 4096),
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
    metavar="DIR|FILE",
    help="Write a YAML config fragment with the batch size per number of GPUs.",
)
@as_json
def memory(as_json: bool, **given: Any) -> None:
    """Budget the memory of a GPU for frozen models and trained parameters, and find the batch size that fits.

    Frozen models take memory for weights, trained parameters also for gradients and optimizer state; the rest is left
    for activations. The activation memory of a sample is computed from the layers of the frozen models, through which
    gradients flow, unless --sample gives it.
    """
    from tuner.core import catalog
    from tuner.sizing.memory_budget import MemoryRequest, bytes_of, judged, parameters_of, part, side_by_side

    plan = MemoryRequest(
        frozen=tuple(part(text) for text in given["frozen"]),
        trainable=parameters_of(given["trainable"]),
        optimizer=given["optimizer"],
        precision=given["precision"],
        checkpointing=given["checkpointing"],
        sample=bytes_of(given["sample"]) if given["sample"] else 0.0,
        seq=given["seq"],
        overhead=given["overhead"],
        zero=given["zero"],
        multiple=given["multiple"],
    )
    gpus = [catalog.gpu(name.strip()) for name in given["gpu"].split(",")]
    made = side_by_side(plan, gpus, most=given["gpus"], target=given["target"], decimal=given["decimal"])
    first = next(budget for budget in made if budget.ranks == 1)
    verdicts = judged(_claims(given["claims"]), plan, first)
    written = _export(given["target_path"], made) if given["target_path"] else []
    if as_json:
        _print_json(plan, made, verdicts, written)
    else:
        _print_text(plan, made, verdicts, written, unit=_unit(decimal=given["decimal"]))


def _claims(texts: tuple[str, ...]) -> dict[str, float]:
    from tuner.core.errors import InputError
    from tuner.core.text import either, shown
    from tuner.sizing.memory_budget import CLAIMS

    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not sign or name not in CLAIMS or not 0 <= number < 1e6:
            raise InputError(
                f"--claim {shown(text)} is not NAME=GB; NAME is {either(CLAIMS)}, and 'used' takes a share such as 80%."
            )
        found[name] = number
    return found


def _unit(*, decimal: bool) -> tuple[float, str]:
    return (1e9, "GB") if decimal else (2.0**30, "GiB")


def _export(path: str, made: list[MemoryBudget]) -> list[str]:
    from pathlib import Path

    from tuner.core.atomic_write import write_files
    from tuner.core.errors import InputError
    from tuner.sizing.memory_budget import batch_fragment

    fragments = {
        gpu: batch_fragment(
            gpu,
            next(budget.target for budget in made if budget.gpu == gpu),
            [(budget.ranks, budget.recommended) for budget in made if budget.gpu == gpu],
        )
        for gpu in dict.fromkeys(budget.gpu for budget in made)
    }
    chosen = Path(path)
    if chosen.suffix in (".yaml", ".yml"):
        if len(fragments) > 1:
            raise InputError(f"--export {path} is one file, but --gpu names {len(fragments)} GPUs; give a folder.")
        return [str(file) for file in write_files(chosen.parent, {chosen.name: next(iter(fragments.values()))})]
    return [str(file) for file in write_files(chosen, {f"{gpu}.yaml": text for gpu, text in fragments.items()})]


def _print_json(plan: MemoryRequest, made: list[MemoryBudget], verdicts: list[ClaimCheck], written: list[str]) -> None:
    from tuner.cli.output import print_json

    gib = 2.0**30
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
                    "card_gib": budget.card / gib,
                    "target": budget.target,
                    "components_gib": {name: size / gib for name, size in budget.components.items()},
                    "left_gib": budget.left / gib,
                    "sample_gib": budget.sample / gib,
                    "largest_batch": budget.largest(),
                    "recommended_batch": budget.recommended,
                    "margin": budget.margin,
                    "effective_batch": budget.recommended * budget.ranks,
                    "used": budget.used(budget.recommended),
                }
                for budget in made
            ],
            "claims": [
                {"claim": check.claim, "closes": check.closes, "sentence": check.sentence} for check in verdicts
            ],
            "written": written,
        },
    )


def _print_text(
    plan: MemoryRequest,
    made: list[MemoryBudget],
    verdicts: list[ClaimCheck],
    written: list[str],
    *,
    unit: tuple[float, str],
) -> None:
    from tuner.cli.output import print_table
    from tuner.sizing.memory_budget import COMPONENTS

    scale, word = unit
    first = [budget for budget in made if budget.ranks == 1]
    what = {
        "frozen": " + ".join(part.name for part in plan.frozen) or "none",
        "trainable": f"{plan.trainable / 1e6:,.4g}M parameters, {plan.precision}",
        "gradients": plan.precision,
        "optimizer": plan.optimizer,
        "overhead": f"{100 * plan.overhead:.0f}% of GPU memory",
    }
    rows: list[tuple[object, ...]] = [
        (name, *(f"{budget.components[name] / scale:.1f}" for budget in first), what[name]) for name in COMPONENTS
    ]
    rows += [
        ("left", *(f"{budget.left / scale:.1f}" for budget in first), "for activations"),
        ("card", *(f"{budget.card / scale:.1f}" for budget in first), word),
    ]
    print_table((word, *(budget.gpu for budget in first), "What"), rows, left=(word, "What"))
    print()
    if not first[0].sample:
        print("The activation memory of a sample is unknown: no frozen model has a known shape. Pass --sample SIZE.")
    else:
        _print_batches(made, scale, word)
    for verdict in verdicts:
        print(f"{'.' if verdict.closes else 'x'} {verdict.claim:<9}  {verdict.sentence}")
    for path in written:
        print(f"wrote {path}")


def _print_batches(made: list[MemoryBudget], scale: float, word: str) -> None:
    from tuner.cli.output import print_table

    target = made[0].target
    print_table(
        ("GPUs", "GPU", "Largest", "Recommended", "Margin", "Total batch", "Used", f"{word} per sample"),
        [
            (
                budget.ranks,
                budget.gpu,
                budget.largest(),
                budget.recommended,
                f"{100 * budget.margin:.0f}%",
                budget.recommended * budget.ranks,
                f"{100 * budget.used(budget.recommended):.0f}%",
                f"{budget.sample / scale:.3f}",
            )
            for budget in made
        ],
        left=("GPU",),
    )
    print(f"\nBatch sizes per GPU that use at most {100 * target:.0f}% of its memory. Estimates, not measurements.")
