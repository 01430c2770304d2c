"""The files of a production folder: configs, launch script, topology and a README with the expected performance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tuner.core.errors import InputError, UnknownName
from tuner.export.accelerate import ACCELERATE
from tuner.export.bridge import MEGATRON_BRIDGE
from tuner.export.deepspeed import DEEPSPEED_FORMATS
from tuner.export.formats import ExportOptions, Format
from tuner.export.megatron_core import MEGATRON_CORE
from tuner.export.megatron_deepspeed import MEGATRON_DEEPSPEED
from tuner.export.production import ProductionRun, run_document
from tuner.export.rendering import as_json, rendered
from tuner.export.torchtitan import TORCHTITAN

FORMATS: Final[Mapping[str, Format]] = {
    one.name: one
    for one in (*DEEPSPEED_FORMATS, MEGATRON_CORE, MEGATRON_BRIDGE, MEGATRON_DEEPSPEED, ACCELERATE, TORCHTITAN)
}
"""Every export format, by name."""


def format_of(name: str) -> Format:
    """Return a format by its name or alias."""
    for one in FORMATS.values():
        if name in (one.name, *one.aliases):
            return one
    raise UnknownName("format", name, [alias for one in FORMATS.values() for alias in (one.name, *one.aliases)])


def bundle(
    run: ProductionRun, format_name: str, options: ExportOptions | None = None, *, note: str = ""
) -> dict[str, str]:
    """Return the text of every file of a production folder by name; raise `InputError` for an unsupported run.

    The README contains the note.
    """
    chosen, options = format_of(format_name), options or ExportOptions()
    chosen.check(run, options)
    topology = run.topology
    if topology.gpus % topology.nodes:  # each script starts as many ranks on every node
        raise InputError(
            f"{topology.key} has {topology.gpus} ranks, which {topology.nodes} nodes cannot share; export another "
            "topology."
        )
    files = {**chosen.render(run, options, chosen), "topology.json": as_json(run_document(run))}
    files["README.md"] = rendered(
        "README.md", run, format=chosen, files=sorted(files), options=options, site=options.site, note=note
    )
    return files
