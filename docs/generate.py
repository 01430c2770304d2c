"""Writes the pages that are made from the product itself: `docs/cli.md` and `docs/rules.md`.

    python docs/generate.py

A test compares them with what this module would write, so that they cannot fall behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuner.cli import app
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


PAGES = {"cli.md": cli_page, "rules.md": rules_page}


_WIDTH: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100}


def _help(context: click.Context) -> list[str]:
    lines = [line.rstrip() for line in context.get_help().splitlines()]
    return ["```", *lines, "```", ""]


if __name__ == "__main__":
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), encoding="utf-8")
        print(f"wrote docs/{page}")
