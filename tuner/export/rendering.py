"""Production files as text: templates, rendered with quoting for shell and Markdown, and JSON and YAML documents."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tuner.core.precision import recipe_of
from tuner.core.quantity import format_count
from tuner.core.text import counted, markdown_text, seconds, token_count, unit_for
from tuner.export.production import ProductionRun, run_document
from tuner.launch.shell_templates import shell_templates
from tuner.launch.slurm.script import gres, sbatch_options, segment, srun_options
from tuner.launch.slurm.site_profile import SiteProfile
from tuner.launch.trainers.megatron_lm import connections

if TYPE_CHECKING:
    from jinja2 import Environment

    from tuner.export.program import TrainingProgram


def rendered(template: str, run: ProductionRun, **values: Any) -> str:
    """Return a template in `templates/launch/` rendered for a run, with further values by name."""
    values = {"site": SiteProfile(), "program": None, **values}
    values = {"trainer_environment": trainer_environment(run, values["program"]), **values}
    values |= _slurm(run, values["site"], values["program"])
    document = run_document(run)
    templates = _templates(markdown=template.endswith(".md"))
    return templates.get_template(f"launch/{template}.j2").render(run=run, document=document, **values)


@cache
def _templates(*, markdown: bool) -> Environment:
    """Return the templates with the filters of exports."""
    templates = shell_templates(finalize=_markdown if markdown else None)
    templates.filters["literal"] = repr
    templates.filters |= {"seconds": seconds, "unit": _unit, "in_unit": _in_unit, "tokens": token_count}
    templates.filters |= {"counted": counted, "parameters": partial(format_count, digits=4)}
    return templates


def trainer_environment(run: ProductionRun, program: TrainingProgram | None) -> dict[str, str]:
    """Return the variables that Megatron needs.

    Without CUDA_DEVICE_MAX_CONNECTIONS it refuses tp and cp before Blackwell. FSDP would wait for its gathers with it,
    and a measured job of a command had it only if its trainer was Megatron's. Without NVTE_ROCM_ENABLE_MXFP8, ROCm's
    Transformer Engine refuses mxfp8 (ROCm/TransformerEngine at 030b7921, transformer_engine/pytorch/quantization.py:
    check_mxfp8_support).
    """
    if program is not None and (program.worker or not (run.workload.framework or "").startswith("megatron")):
        return {}
    mxfp8 = run.cluster.gpu.is_amd and recipe_of(run.workload) == "mxfp8"
    return {**connections(run.topology), **({"NVTE_ROCM_ENABLE_MXFP8": "1"} if mxfp8 else {})}


def _slurm(run: ProductionRun, site: SiteProfile, program: TrainingProgram | None) -> dict[str, Any]:
    """Return sbatch's options and srun's: a task per node starts its ranks, unless the program itself calls srun."""
    ranks = run.ranks_per_node
    once = program is not None and not program.worker and site.tasks == "once"
    together = segment(site, run.topology, run.cluster)
    named = {
        "job-name": shlex.quote(run.name),
        "nodes": run.topology.nodes,
        "ntasks-per-node": ranks if once else 1,
        "cpus-per-task": site.cpus_per_task * (1 if once else ranks),
        "gres": gres(site, ranks, accelerators=not run.cluster.gpu.is_host),
        "segment": together,
        "output": "%x-%j.out",
    }
    return {"sbatch": sbatch_options(site, named), "srun": srun_options(site, ranks), "segment": together}


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
