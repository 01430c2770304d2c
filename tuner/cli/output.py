"""Print JSON documents, CSV and tables that fit the terminal."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tuner.core.domain import Cluster, Workload
    from tuner.core.model import Model
    from tuner.costmodel.estimate import CostModel
    from tuner.space.space import Space
    from tuner.tables import Table


MIN_TEXT_WIDTH: Final = 16
"""Characters that a column of text keeps in the narrowest terminal."""


def print_json(name: str, document: dict[str, Any]) -> None:
    """Print one document of the schema `tuner/NAME/1` on stdout."""
    print(json.dumps({"schema": f"tuner/{name}/1", **document}, indent=2, allow_nan=False))


def print_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and rows as CSV on stdout."""
    import csv

    from tuner.core.text import csv_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(csv_cell, header))
    writer.writerows(map(csv_cell, row) for row in rows)


def line_width() -> int | None:
    """Return the characters of a line: those of the terminal, or elsewhere those in COLUMNS; None: any number."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    stated = os.environ.get("COLUMNS", "")
    return int(stated) if re.fullmatch("0*[1-9][0-9]{0,5}", stated) else None


def table_fits(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    """Return whether the terminal is wide enough for a table."""
    available, widths = line_width(), _widths([headers, *rows])
    return available is None or _total_width(widths, range(len(headers))) <= available


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, left: Iterable[str] = (), spare: Sequence[str] = ()
) -> None:
    """Print a table on stdout. Columns in `left` are text, the others numbers.

    In a terminal that is too narrow, or with a smaller COLUMNS, the columns in `spare` are dropped in order until the
    table fits; then the widest texts are wrapped.
    """
    lines = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = _widths(lines)
    available = line_width()
    kept = list(range(len(headers)))
    for header in spare:
        if available is None or _total_width(widths, kept) <= available:
            break
        kept.remove(headers.index(header))
    texts = [index for index in kept if headers[index] in left]
    # Words are never broken, so that a key or a path can be copied.
    minimum = {
        index: max([MIN_TEXT_WIDTH, *(len(word) for line in lines for word in line[index].split())]) for index in texts
    }
    while available is not None and _total_width(widths, kept) > available:
        wide = [index for index in texts if widths[index] > minimum[index]]
        if not wide:
            break
        widths[max(wide, key=lambda index: widths[index])] -= 1
    pads = [str.ljust if header in left else str.rjust for header in headers]
    for line in [lines[0], ["-" * width for width in widths], *lines[1:]]:
        cells = [_wrapped(line[index], widths[index]) if index in texts else [line[index]] for index in kept]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [pads[index](part, widths[index]) for index, part in zip(kept, parts, strict=True)]
            print("  ".join(padded).rstrip())
    if len(kept) < len(headers):
        dropped = [header for index, header in enumerate(headers) if index not in kept]
        print(f"(hidden at {available} columns: {', '.join(dropped)})")


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the characters of the widest cell of each column."""
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _total_width(widths: Sequence[int], kept: Sequence[int]) -> int:
    """Return the characters that a line of the table takes."""
    return sum(widths[index] + 2 for index in kept) - 2


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


_MAX_SKIPPED: Final = 10
"""Maximum number of reasons printed."""


def print_skipped(table: Table) -> None:
    """Print why rows of a table were skipped."""
    from tuner.core.text import counted, listed

    lines: dict[str, list[int]] = {}
    for row in table.rows:
        if row.skipped:
            lines.setdefault(row.skipped, []).append(row.line)
    reasons = list(lines)
    for reason in reasons[:_MAX_SKIPPED]:
        print(f"line{'s' * (len(lines[reason]) > 1)} {listed(lines[reason], limit=5)} skipped: {reason}")
    if rest := sum(len(lines[reason]) for reason in reasons[_MAX_SKIPPED:]):
        print(f"{counted(rest, 'more line')} skipped; list the reasons with --json")


def space_lines(space: Space, *, tokens_from: str | None = None, compares_frameworks: bool = False) -> list[str]:
    """Return the model, the cluster and the length of training in three lines, and what is not understood.

    `tokens_from` is the flag of a command that states the length; precision and attention kernel are left out where
    frameworks are compared, which have their own. An axis with one value shows that value; the number
    of values of the others follows as "searched".
    """
    from tuner.core.documents import model_notes
    from tuner.core.quantity import format_count
    from tuner.core.text import counted

    workload, cluster = space.workload, space.cluster
    own, shapes, heads, batches = (workload.model, *(space.axes[axis] for axis in ("shape", "heads", "global_batch")))
    model = own.with_shape(shapes[0]) if len(shapes) == 1 else own
    model = model.with_heads(heads[0]) if len(heads) == 1 else model
    batch = batches[0] if len(batches) == 1 else workload.global_batch
    searched = ", ".join(counted(len(values), word) for values, word in _model_axes(space) if len(values) > 1)
    kernels = "" if compares_frameworks else f", {workload.precision}, {workload.attention} attention"
    framework = "all frameworks" if compares_frameworks else framework_words(workload)
    return [
        f"{'' if own.name == 'unnamed' else f'{own.name}: '}{format_count(model.parameters, digits=4)} parameters"
        f"{_experts(model)}, {counted(model.layers, 'layer')}, hidden {model.hidden}, "
        f"{counted(model.heads, 'head')}, sequence {model.seq}{_seq_origin(model)}, "
        f"global batch {batch}{kernels}"
        f"{f', {workload.optimizer}' if workload.optimizer != 'adam' else ''}"
        f"{f'; searched: {searched}' if searched else ''}",
        f"{counted(cluster.nodes, 'node')} of {cluster.node_gpus}{_domain(cluster)}, {_bandwidths(space)}{framework}",
        f"training on {format_count(workload.training_tokens)} tokens{tokens_origin(workload, tokens_from)}",
        *_too_few_tokens(workload.training_tokens, of_an_iteration=min(batches) * own.seq),
        *(f"note: {note}" for note in model_notes(own)),
    ]


def _too_few_tokens(tokens: float, *, of_an_iteration: int) -> list[str]:
    """Return a note if the training is shorter than one iteration, usually because --tokens lacks a unit."""
    if tokens >= of_an_iteration:
        return []
    shorter = f"The training is shorter than one iteration of {of_an_iteration:,} tokens."
    return [f"note: {shorter} --tokens takes a unit, as in 366B or 15T."]


def _experts(model: Model) -> str:
    from tuner.core.quantity import format_count

    if model.experts is None:
        return ""
    active = format_count(model.active_parameters, digits=4)
    return f" ({active} active, {model.experts.top_k} of {model.experts.count} experts)"


def _domain(cluster: Cluster) -> str:
    from tuner.costmodel.links import mesh

    if cluster.nvlink_domain:
        return f" in NVLink domains of {cluster.nvlink_domain}"
    return " without a switch" if cluster.gpus_per_node > 1 and mesh(cluster) else ""


def _bandwidths(space: Space) -> str:
    """Return the bandwidths of the cluster, and which of them are defaults; empty for a CPU, whose are nominal."""
    cluster, gpu = space.cluster, space.cluster.gpu
    if gpu.is_host:
        return ""
    intra, network = cluster.intra_node.bandwidth, cluster.inter_node.bandwidth
    figures = [(f"intra-node {_figure(intra / 1e9)} GB/s per GPU", intra == gpu.intra_node_bandwidth)]
    if cluster.nodes > 1:
        usual = gpu.inter_node_bandwidth * cluster.gpus_per_node
        figures.append((f"network {_figure(network * 8 / 1e9)} Gbit/s per node", network == usual))
    if "cluster" not in space.arguments:
        owner = "the GPU" if cluster.name == gpu.name else cluster.name
        return f"{', '.join(words for words, _ in figures)} (defaults of {owner}; set with --cluster), "
    if all(is_default for _, is_default in figures):
        return f"{', '.join(words for words, _ in figures)} (defaults of the GPU), "
    return "".join(f"{words}{' (default of the GPU)' * is_default}, " for words, is_default in figures)


def _figure(value: float) -> str:
    return f"{round(value, 1):,.10g}"


def framework_words(workload: Workload) -> str:
    """Return the workload's framework and, with fp8 or fp4, its recipe, as words."""
    from tuner.core.frameworks import record_of
    from tuner.core.precision import bf16_layer_words, recipe_of, stores_fp8_weights
    from tuner.core.text import listed

    record = record_of(workload)
    name = f"framework {record.name}" if record else "any framework"
    recipe = recipe_of(workload) if record else workload.precision_recipe
    if not recipe:
        return name
    stored = ["weights in fp8"] if stores_fp8_weights(workload) else []
    kept = [words] if (words := bf16_layer_words(workload)) else []
    return f"{name} with {listed([f'the {recipe} recipe', *stored, *kept])}"


def tokens_origin(workload: Workload, flag: str | None = None) -> str:
    """Return where the number of training tokens comes from: a flag of the command or a default; empty for --tokens."""
    if workload.tokens:
        return f" ({flag} in --command)" if flag else ""
    return " (20 per parameter; set with --tokens)"


def _seq_origin(model: Model) -> str:
    """Return that the model allows longer sequences than the default, or only shorter ones than asked for."""
    from tuner.core.huggingface import LONGEST_DEFAULT_SEQ

    if model.seq > model.longest_seq:
        return f" (longer than the {model.longest_seq} that the model allows)"
    if model.seq != LONGEST_DEFAULT_SEQ or model.longest_seq <= model.seq:
        return ""
    return f" (the model allows {model.longest_seq}; set with --seq)"


def changes_the_model(space: Space) -> bool:
    """Return whether some topology of the space trains a model other than the one described."""
    model = space.workload.model
    return space.axes["heads"] != (model.heads,) or space.axes["shape"] != (model.shape,)


def _model_axes(space: Space) -> list[tuple[Sequence[object], str]]:
    words = {"shape": "shape", "heads": "head count", "global_batch": "global batch size"}
    return [(space.axes[axis], word) for axis, word in words.items()]


def calibration_document(space: Space, model: CostModel) -> dict[str, Any] | None:
    """Return what the cost model is calibrated on for JSON; None without a calibration."""
    from tuner.costmodel.backing import calibrated_on, mismatch

    known = model.calibration
    if not calibrated_on(known, space.workload, space.cluster):
        return None
    return {
        "timed_rows": 0 if known.known is None else len(known.known),
        "memory_rows": known.weighed,
        "simulated": known.simulated,
        "measured_on": [{"gpu": gpu, "framework": name or None} for gpu, name in sorted(known.measured_on)],
        "mismatch": mismatch(known, [(space.workload, space.cluster)]) or None,
    }


def space_document(space: Space) -> dict[str, Any]:
    """Return the model, workload and cluster for JSON."""
    from tuner.core.documents import identity_document, model_notes
    from tuner.core.precision import bf16_layers, stores_fp8_weights

    workload, cluster = space.workload, space.cluster
    model = workload.model
    return {
        "model": {
            "name": model.name,
            "parameters": model.parameters,
            **({"active_parameters": model.active_parameters} if model.experts else {}),
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "seq": model.seq,
            "vocab": model.vocab,
            "identity": identity_document(model),
        },
        "notes": model_notes(model),
        "workload": {
            "global_batch": workload.global_batch,
            "precision": workload.precision,
            "attention": workload.attention,
            "framework": workload.framework,
            "precision_recipe": workload.precision_recipe,
            "fp8_weights": stores_fp8_weights(workload),
            "bf16_layers": list(bf16_layers(workload)),
            "optimizer": workload.optimizer,
            "tokens": workload.training_tokens,
        },
        "cluster": {
            "name": cluster.name,
            "nodes": cluster.nodes,
            "gpus_per_node": cluster.gpus_per_node,
            **({"nvlink_domain": cluster.nvlink_domain} if cluster.nvlink_domain else {}),
            "gpu": cluster.gpu.name,
            "intra_node_gb_s": cluster.intra_node.bandwidth / 1e9,
            "node_gbit_s": cluster.inter_node.bandwidth * 8 / 1e9,
        },
    }
