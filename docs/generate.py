"""Generates `docs/cli.md`, `frameworks.md`, `rules.md` and `formats.md` from the code.

    python docs/generate.py

A test compares the pages with the output of this module, so they stay up to date.
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
    "law": "Constraints of DeepSpeed, Megatron or arithmetic; they cannot be disabled.",
    "policy": "Choices of this site; `--allow NAME` disables one.",
    "advice": "Guidelines that usually improve speed. They never reject a topology; the fastest may ignore them.",
}


def cli_page() -> str:
    """Every command's `--help`, as a terminal of 100 columns shows it."""
    parts = ["# Command line", "", "Generated from `--help` by `python docs/generate.py`.", ""]
    with app.make_context("tuner", [], resilient_parsing=True, **_WIDTH) as group:
        parts += _help(group)
        for name, command in sorted(app.commands.items()):
            with command.make_context(name, [], parent=group, resilient_parsing=True, **_WIDTH) as context:
                parts += [f"## tuner {name}", "", *_help(context)]
    return "\n".join(parts)


def rules_page() -> str:
    """The table of rules by level."""
    parts = [
        *("# Rules", "", "Generated from the rules by `python docs/generate.py`; `tuner rules` prints the same."),
        *(
            "",
            "A topology is legal if it breaks no law and no policy. `tuner explain KEY` checks one against all rules.",
        ),
    ]
    for level, meaning in LEVELS.items():
        parts += [
            "",
            f"## {level.capitalize()}",
            "",
            meaning,
            "",
            "| rule | condition | source |",
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
        *("# Properties and formats", "", "Generated from the formats' declarations by `python docs/generate.py`.", ""),
        "Every property of a model, workload and topology, and how each format of [`tuner export`](export.md)",
        "expresses it. If a format cannot express a value, the export fails with an error that names the property.",
        "In a cell, *only* lists the supported values; *program* means that your own program decides.",
        "",
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
    if treatment.only == "none":
        return "not supported"
    by = {"": "", "your program": "program"}.get(treatment.by, treatment.by)
    flags = ", ".join(f"`{part}`" if part.startswith("--") else part for part in by.split(", ") if part)
    return "; ".join(filter(None, (flags, treatment.only and f"only {treatment.only}", treatment.limit)))


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
        "The framework is part of the workload: topologies that it cannot run are not searched, and the laws named",
        "`framework-...` list the frameworks that can run them. Each preset records the framework it was trained with",
        "(BLOOM: megatron-deepspeed); the bundled worker uses deepspeed; otherwise, the default is megatron-core.",
        "`--framework any` disables framework laws. They are also disabled for `tuner evaluate`, `--table` and studies",
        "created before tuner recorded the framework. `--framework all` compares the best topology of each framework.",
        "Generated from the records by `python docs/generate.py`; `tuner catalog frameworks` prints the same.",
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
