"""The templates of shell scripts."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tuner.core.resources import folder

if TYPE_CHECKING:
    from jinja2 import Environment


def shell_templates(finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Return the templates with the filter `sh`, by which they quote each value for the shell."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(  # noqa: S701 - no HTML
        loader=FileSystemLoader(folder("templates")),
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["sh"] = lambda value: shlex.quote(str(value))
    return templates
