"""The files of a production folder: configs, launch script, topology and a README with the expected performance."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tuner.core.errors import UnknownName
from tuner.core.resources import folder
from tuner.core.text import seconds, token_count, unit_for
from tuner.export.megatron import DEEPSPEED_VERSION, LM_VERSION, Flag, megatron_deepspeed, megatron_lm
from tuner.export.production import ProductionRun, config_notes, production_config, topology_document

FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": ("launch.sh",),
    "hostfile": ("launch.sh", "hostfile"),
    "slurm": ("launch.sbatch",),
    "megatron-deepspeed": ("launch.sbatch",),
    "megatron-lm": ("launch.sbatch",),
    "kubernetes": ("launch.yaml",),
}
"""Launch formats, each with its launch files."""

_MEGATRON: Final = {
    "megatron-deepspeed": (megatron_deepspeed, DEEPSPEED_VERSION),
    "megatron-lm": (megatron_lm, LM_VERSION),
}


def bundle(run: ProductionRun, format_name: str) -> dict[str, str]:
    """Return the text of every file of a production folder, by name."""
    if format_name not in FORMATS:
        raise UnknownName("format", format_name, FORMATS)
    flags: list[Flag] = []
    version = ""
    if format_name in _MEGATRON:
        make, version = _MEGATRON[format_name]
        flags = make(run)
    config = production_config(run, with_optimizer=not flags)
    files = {
        "ds_config.json": _json(config),
        "ds_config.md": config_notes(run, config),
        "topology.json": _json(topology_document(run)),
        "accelerate.yaml": _rendered("launch/accelerate.yaml.j2", run, flags, version, format_name),
    }
    template = "megatron" if flags else format_name
    for name in FORMATS[format_name]:
        files[name] = _rendered(f"launch/{template}.{name}.j2", run, flags, version, format_name)
    files["README.md"] = _rendered("launch/README.md.j2", run, flags, version, format_name)
    return files


def _rendered(template: str, run: ProductionRun, flags: list[Flag], version: str, format_name: str) -> str:
    templates = Environment(  # noqa: S701 - shell, YAML and Markdown: each template quotes what it prints
        loader=FileSystemLoader(folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"sh": _shell, "yaml": json.dumps, "label": _label}
    templates.filters |= {"seconds": seconds, "unit": _unit, "in_unit": _in_unit, "tokens": token_count}
    document = topology_document(run)
    return templates.get_template(template).render(
        run=run, document=document, flags=flags, version=version, format_name=format_name
    )


def _unit(days: float) -> str:
    return unit_for(days)[0]


def _in_unit(days: float) -> str:
    return f"{days * unit_for(days)[1]:.1f}"


def _shell(value: object) -> str:
    return shlex.quote(str(value))


def _label(text: str) -> str:
    """Return a valid name of a Kubernetes object (RFC 1123)."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "run"


def _json(document: Any) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
