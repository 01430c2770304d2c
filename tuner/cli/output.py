"""How commands print: JSON documents, tables that fit their terminal, and nothing else."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tuner.core.domain import Topology
    from tuner.space.space import Space


NARROWEST: Final = 16
"""Characters that a column of text keeps however narrow the terminal is."""


def print_json(name: str, document: dict[str, Any]) -> None:
    """One document of the schema `tuner/NAME/1` on stdout."""
    print(json.dumps({"schema": f"tuner/{name}/1", **document}, indent=2, allow_nan=False))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], *, left: Iterable[str] = (), spare: Sequence[str] = ()
) -> None:
    """A table on stdout. Columns in `left` are text, the others numbers.

    Where a terminal is too narrow, the columns in `spare` are left out, the first of them first, until it fits; then
    the widest texts are broken into lines.
    """
    lines = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown = list(range(len(headers)))
    for header in spare:
        if room is None or _total(widths, shown) <= room:
            break
        shown.remove(headers.index(header))
    words = [place for place in shown if headers[place] in left]
    # a word stays whole, so that a key or a path can be copied
    least = {place: max(NARROWEST, *(len(word) for line in lines for word in line[place].split())) for place in words}
    while room is not None and _total(widths, shown) > room:
        wide = [place for place in words if widths[place] > least[place]]
        if not wide:
            break
        widths[max(wide, key=lambda place: widths[place])] -= 1
    pads = [str.ljust if header in left else str.rjust for header in headers]
    for line in [lines[0], ["-" * width for width in widths], *lines[1:]]:
        cells = [_broken(line[place], widths[place]) if place in words else [line[place]] for place in shown]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [pads[place](part, widths[place]) for place, part in zip(shown, parts, strict=True)]
            print("  ".join(padded).rstrip())
    if len(shown) < len(headers):
        missing = [header for place, header in enumerate(headers) if place not in shown]
        print(f"(left out in {room} columns: {', '.join(missing)})")


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    """Columns of the terminal that a table takes."""
    return sum(widths[place] + 2 for place in shown) - 2


def _broken(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def space_lines(space: Space) -> list[str]:
    """What is planned, in two lines for people: where an axis has one value it is the model's or the batch's."""
    from tuner.core.text import counted

    workload, cluster = space.workload, space.cluster
    own, shapes, heads, batches = (workload.model, *(space.axes[axis] for axis in ("shape", "heads", "global_batch")))
    model = own.with_shape(shapes[0]) if len(shapes) == 1 else own
    model = model.with_heads(heads[0]) if len(heads) == 1 else model
    batch = batches[0] if len(batches) == 1 else workload.global_batch
    searched = ", ".join(counted(len(values), word) for values, word in _plural(space) if len(values) > 1)
    return [
        f"{'' if own.name == 'unnamed' else f'{own.name}: '}{_parameters(model.parameters)} parameters, {model.layers} "
        f"layers, hidden {model.hidden}, {model.heads} heads, sequence {model.seq}, global batch {batch}, "
        f"{workload.precision}, {workload.attention} attention{f'; searched: {searched}' if searched else ''}",
        f"{counted(cluster.nodes, 'node')} of {cluster.gpus_per_node} {cluster.gpu.name}",
    ]


def changes_the_model(space: Space) -> bool:
    """Whether some row trains another model than the one described."""
    model = space.workload.model
    return space.axes["heads"] != (model.heads,) or space.axes["shape"] != (model.shape,)


def _plural(space: Space) -> list[tuple[Sequence[object], str]]:
    words = {"shape": "shape", "heads": "head count", "global_batch": "global batch size"}
    return [(space.axes[axis], word) for axis, word in words.items()]


def _parameters(number: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number / 1e3:.3g}K"


def space_document(space: Space) -> dict[str, Any]:
    """What is planned, for JSON."""
    workload, cluster = space.workload, space.cluster
    model = workload.model
    return {
        "model": {
            "name": model.name,
            "parameters": model.parameters,
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.heads,
            "seq": model.seq,
            "vocab": model.vocab,
        },
        "workload": {
            "global_batch": workload.global_batch,
            "precision": workload.precision,
            "attention": workload.attention,
        },
        "cluster": {
            "name": cluster.name,
            "nodes": cluster.nodes,
            "gpus_per_node": cluster.gpus_per_node,
            "gpu": cluster.gpu.name,
        },
    }


def topology_document(topology: Topology, space: Space) -> dict[str, Any]:
    """A topology with every value spelt out, also those that it leaves to the workload."""
    workload = space.workload.as_in(topology)
    return {
        "nodes": topology.nodes,
        "tp": topology.tp,
        "pp": topology.pp,
        "vpp": topology.vpp,
        "cp": topology.cp,
        "dp": topology.dp,
        "sequence_parallel": topology.sequence_parallel,
        "zero": topology.zero,
        "micro_batch": topology.micro_batch,
        "recompute": topology.recompute,
        "partition": topology.partition,
        "heads": workload.model.heads,
        "layers": workload.model.layers,
        "hidden": workload.model.hidden,
        "global_batch": workload.global_batch,
    }
