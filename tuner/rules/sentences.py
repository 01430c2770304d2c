"""The arithmetic of a broken rule in words, where it takes more than a line. Each is given columns of one row."""

from __future__ import annotations

from tuner.core.columns import Columns
from tuner.core.text import counted
from tuner.rules.shapes import LONGEST_FUSED, softmax_block


def fused_softmax(columns: Columns) -> str:
    """Which condition of the kernel fails."""
    seq, block = columns.workload.model.seq, softmax_block(columns.workload.model.seq)
    if columns.workload.precision not in ("fp16", "bf16"):
        return f"the kernel takes fp16 or bf16, not {columns.workload.precision}"
    if not 16 < seq <= LONGEST_FUSED or seq % 4:
        return f"the kernel takes sequences of 20 to {LONGEST_FUSED} tokens in multiples of 4, not {seq}"
    batches = columns.heads * columns.micro_batch / columns.tp
    return (
        f"(heads/tp) x micro_batch = ({columns.heads}/{columns.tp}) x {columns.micro_batch} = {batches:g} "
        f"is not a multiple of {block}"
    )


def gpus(columns: Columns) -> str:
    """The product that does not make the GPUs."""
    there = columns.nodes * columns.cluster.gpus_per_node
    cp = f" x cp({columns.cp})" if columns.cp > 1 else ""
    if there % columns.replica:
        return f"tp({columns.tp}) x pp({columns.pp}){cp} = {columns.replica} does not divide {there} GPUs"
    used = columns.replica * columns.dp
    product = f"tp({columns.tp}) x pp({columns.pp}){cp} x dp({columns.dp}) = {used}"
    return f"{product} is not the {counted(there, 'GPU')} of {counted(columns.nodes, 'node')}"


def stages(columns: Columns) -> str:
    """The division of the layers that leaves a rest."""
    if columns.partition:
        units = f"{columns.layers} layers, embedding and head make {columns.units}"
        return f"{units}, which pp={columns.pp} does not divide"
    return f"{columns.layers} layers do not divide into pp={columns.pp} stages"


def ramp(columns: Columns) -> str:
    """Which batch of the ramp-up does not come out."""
    ramp = columns.workload.ramp
    if ramp is None:
        return ""
    step = f"micro_batch x dp = {columns.micro_batch} x {columns.dp} = {columns.micro_batch * columns.dp}"
    if ramp.start % (columns.micro_batch * columns.dp) or ramp.increment % (columns.micro_batch * columns.dp):
        return f"the ramp-up from {ramp.start} by {ramp.increment} has batches that do not divide by {step}"
    return f"the ramp-up from {ramp.start} by {ramp.increment} never reaches global batch {columns.global_batch}"
