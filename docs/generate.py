"""Writes the pages that are made from the product: `docs/cli.md`, `frameworks.md`, `rules.md` and `formats.md`.

    python docs/generate.py

A test compares them with what this module would write, so that they cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuner.cli import app
from tuner.core.frameworks import RECORDS, capability_rows
from tuner.export.bundle import FORMATS
from tuner.export.formats import Treatment
from tuner.export.identity import PROPERTIES
from tuner.space.rules import RULES, Level

HERE = Path(__file__).resolve().parent

LEVELS: dict[Level, str] = {
    "law": "DeepSpeed, Megatron or arithmetic refuses anything else. No law can be switched off.",
    "policy": "This site's choice; `--allow NAME` switches it off.",
    "advice": "Slow where it is not followed; never rejects.",
}


def cli_page() -> str:
    """Every command's `--help`, as a terminal of 100 columns shows it."""
    parts = ["# Command line", "", "Made from `--help` by `python docs/generate.py`.", ""]
    with app.make_context("tuner", [], resilient_parsing=True, **_WIDTH) as group:
        parts += _help(group)
        for name, command in sorted(app.commands.items()):
            with command.make_context(name, [], parent=group, resilient_parsing=True, **_WIDTH) as context:
                parts += [f"## tuner {name}", "", *_help(context)]
    return "\n".join(parts)


def rules_page() -> str:
    """The table of rules by level."""
    parts = [
        *("# Rules", "", "Made from the rules' table by `python docs/generate.py`; `tuner rules` prints the same."),
        *(
            "",
            "A topology is legal when it breaks no law and no policy. `tuner explain KEY` judges one by all of them.",
        ),
    ]
    for level, meaning in LEVELS.items():
        parts += [
            "",
            f"## {level.capitalize()}",
            "",
            meaning,
            "",
            "| rule | what must hold | source |",
            "|---|---|---|",
        ]
        parts += [
            f"| `{rule.name}` | {rule.sentence} | {rule.source} |".replace("|embedding", "\\|embedding")
            for rule in RULES
            if rule.level == level
        ]
    return "\n".join([*parts, ""])


def formats_page() -> str:
    """How each export format treats each property of a run."""
    parts = [
        *("# Properties and formats", "", "Made from the formats' declarations by `python docs/generate.py`.", ""),
        "Every property of a model, workload and topology, and how each format of [`tuner export`](export.md)",
        "expresses it. A value that a format does not express is refused with the property named, never dropped.",
        *(
            "In a cell, *only* lists the values that are not refused; *program* means that your own program decides.",
            "",
        ),
    ]
    formats = [(one, options) for one in FORMATS.values() for options in one.variants]
    for subject in ("model", "workload", "topology"):
        names = [f"{one.name} --fork {options.fork}" if options.fork else one.name for one, options in formats]
        parts += [
            f"## {subject.capitalize()}",
            "",
            f"| property | {' | '.join(names)} |",
            "|---" * (len(names) + 1) + "|",
        ]
        for name, described in PROPERTIES.items():
            if described.subject == subject:
                cells = [_treated(one.treatments(options)[name]) for one, options in formats]
                parts.append(f"| {described.title} | {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def _treated(treatment: Treatment) -> str:
    by = {"": "", "your program": "program"}.get(treatment.by, treatment.by)
    flags = ", ".join(f"`{part}`" if part.startswith("--") else part for part in by.split(", ") if part)
    only = f"only {treatment.only}" if treatment.only and treatment.only != "none" else "refused"
    return flags + (f"; {only}" if flags and treatment.only else "" if flags else only)


def frameworks_page() -> str:
    """What each framework can run, with sources."""
    table = [["", *RECORDS], ["---"] * (len(RECORDS) + 1), *capability_rows()]
    parts = [
        *(
            "# Frameworks",
            "",
            "```",
            "tuner plan --model llama-3-8b --gpu H100-80GB-SXM --nodes 8 --framework torchtitan",
        ),
        *("tuner plan --model llama-3-8b --gpu H100-80GB-SXM --nodes 8 --framework all", "```", ""),
        "The framework is part of the workload: a topology that it cannot run is not searched, and the laws named",
        "`framework-...` say which other framework could run it. A preset names the framework that trained it (BLOOM:",
        "megatron-deepspeed); jobs of tuner's own worker are DeepSpeed; everything else is megatron-core unless",
        "`--framework` says otherwise. `--framework any` applies no framework's laws, as do studies that began before",
        "frameworks were recorded, `evaluate` and `--table`. `--framework all` compares the best topology of each.",
        "Made from the records by `python docs/generate.py`; `tuner catalog frameworks` prints the same.",
        "",
        *(f"| {' | '.join(row)} |" for row in table),
    ]
    for record in RECORDS.values():
        parts += [
            "",
            f"## {record.name}",
            "",
            f"{record.upstream}.",
            "",
            "| property | source | note |",
            "|---|---|---|",
        ]
        parts += [
            f"| {name.replace('_', ' ')} | {capability.source} | {capability.note} |".replace(
                "|embedding", "\\|embedding"
            )
            for name, capability in record.capabilities()
        ]
        parts += [f"| fork {fork.name} | {fork.source} | |" for fork in record.forks]
    return "\n".join([*parts, ""])


PAGES = {"cli.md": cli_page, "formats.md": formats_page, "frameworks.md": frameworks_page, "rules.md": rules_page}


_WIDTH: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100}


def _help(context: click.Context) -> list[str]:
    lines = [line.rstrip() for line in context.get_help().splitlines()]
    return ["```", *lines, "```", ""]


if __name__ == "__main__":
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), encoding="utf-8")
        print(f"wrote docs/{page}")
