"""Production files as text: templates, rendered with quoting for shell and Markdown, and JSON and YAML documents."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from typing import Any

from tuner.core.quantity import format_count
from tuner.core.resources import folder
from tuner.core.text import counted, markdown_text, seconds, token_count, unit_for
from tuner.export.production import ProductionRun, run_document
from tuner.launch.slurm.site_profile import SiteProfile


def rendered(template: str, run: ProductionRun, **values: Any) -> str:
    """Return a template in `templates/launch/` rendered for a run, with further values by name."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(  # noqa: S701 - shell scripts quote what they print, Markdown is escaped by `finalize`
        loader=FileSystemLoader(folder("templates")),
        finalize=_markdown if template.endswith(".md") else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"sh": _shell, "literal": repr}
    templates.filters |= {"seconds": seconds, "unit": _unit, "in_unit": _in_unit, "tokens": token_count}
    templates.filters |= {"counted": counted, "parameters": partial(format_count, digits=4)}
    values = {"site": SiteProfile(), "program": None, "fsdp": False, **values}
    document = run_document(run)
    return templates.get_template(f"launch/{template}.j2").render(run=run, document=document, **values)


def as_json(document: Any) -> str:
    """Return a document as the text of a JSON file."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def as_yaml(document: Any) -> str:
    """Return a document of objects, lists, strings, integers and booleans as YAML, with strings quoted as in JSON."""
    return "".join(f"{line}\n" for line in _yaml_lines(document))


def _yaml_lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        lines = []
        for name, part in value.items():
            key = name if re.fullmatch(r"[A-Za-z_][\w./-]*", name) else json.dumps(name)
            inner = _yaml_lines(part)
            nested = isinstance(part, dict | list) and part
            lines += [f"{key}:", *(f"  {line}" for line in inner)] if nested else [f"{key}: {inner[0]}"]
        return lines
    if isinstance(value, list) and value:
        items = [_yaml_lines(part) for part in value]
        return [f"{'  ' if place else '- '}{line}" for item in items for place, line in enumerate(item)]
    return [json.dumps(value)]


def _unit(days: float) -> str:
    return unit_for(days)[0]


def _in_unit(days: float) -> str:
    return f"{days * unit_for(days)[1]:.1f}"


def _markdown(value: object) -> object:
    return markdown_text(value) if isinstance(value, str) else value


def _shell(value: object) -> str:
    return shlex.quote(str(value))
