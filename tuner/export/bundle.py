"""The folder that goes to production: config, decision, launch script, and a page that says what to expect."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuner.core.errors import UnknownName
from tuner.core.resources import folder
from tuner.core.text import seconds, unit_for
from tuner.export.megatron import DEEPSPEED_VERSION, LM_VERSION, Flag, megatron_deepspeed, megatron_lm
from tuner.export.production import Production, explained, production_config, topology_document

FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": ("launch.sh",),
    "hostfile": ("launch.sh", "hostfile"),
    "slurm": ("launch.sbatch",),
    "megatron-deepspeed": ("launch.sbatch",),
    "megatron-lm": ("launch.sbatch",),
    "kubernetes": ("launch.yaml",),
}
"""How a run can be launched, and the files that each takes."""

_MEGATRON: Final = {
    "megatron-deepspeed": (megatron_deepspeed, DEEPSPEED_VERSION),
    "megatron-lm": (megatron_lm, LM_VERSION),
}


def bundle(run: Production, launched_by: str) -> dict[str, str]:
    """Every file by its name."""
    if launched_by not in FORMATS:
        raise UnknownName("format", launched_by, FORMATS)
    flags: list[Flag] = []
    version = ""
    if launched_by in _MEGATRON:
        make, version = _MEGATRON[launched_by]
        flags = make(run)
    config = production_config(run, written=not flags)
    files = {
        "ds_config.json": _json(config),
        "ds_config.md": explained(run, config),
        "topology.json": _json(topology_document(run)),
        "accelerate.yaml": _rendered("launch/accelerate.yaml.j2", run, flags, version),
    }
    for name in FORMATS[launched_by]:
        files[name] = _rendered(f"launch/{launched_by}.{name}.j2", run, flags, version)
    files["README.md"] = _rendered("launch/README.md.j2", run, flags, version, launched_by=launched_by)
    return files


def _rendered(template: str, run: Production, flags: list[Flag], version: str, **more: Any) -> str:
    templates = Environment(  # noqa: S701 - shell, YAML and Markdown: each template quotes what it prints
        loader=FileSystemLoader(folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"sh": _shell, "yaml": json.dumps, "label": _label, "cell": _cell}
    templates.filters |= {"seconds": seconds, "unit": _unit, "in_unit": _in_unit}
    found = templates.get_template(template)
    return found.render(run=run, document=topology_document(run), flags=flags, version=version, **more)


def _unit(days: float) -> str:
    return unit_for(days)[0]


def _in_unit(days: float) -> str:
    return f"{days * unit_for(days)[1]:.1f}"


def _shell(value: object) -> str:
    return shlex.quote(str(value))


def _label(text: str) -> str:
    """A name as Kubernetes takes one: RFC 1123."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "run"


def _cell(text: object) -> str:
    return str(text).replace("|", "/")


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
