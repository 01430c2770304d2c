"""Closed forms of the cost of a training iteration, for one topology in plain Python.

They are written from the papers and the schedules, independently of the product's code.
"""

from __future__ import annotations

import math


def one_f_one_b(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the passes of one stage in the order of the 1F1B schedule (PipeDream-Flush)."""
    ahead = min(stages - 1 - stage, microbatches)
    passes = [("forward", number) for number in range(ahead)]
    for number in range(microbatches - ahead):
        passes += [("forward", ahead + number), ("backward", number)]
    return passes + [("backward", number) for number in range(microbatches - ahead, microbatches)]


def interleaved(stage: int, stages: int, chunks: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the passes of one stage in Megatron's interleaved schedule, each through one chunk of its layers.

    Its warm-up has 2 (stages - 1 - stage) + (chunks - 1) stages forward passes (Megatron-LM, schedules.py).
    """
    total = chunks * microbatches
    ahead = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total)
    passes = [("forward", number) for number in range(ahead)]
    for number in range(total - ahead):
        passes += [("forward", ahead + number), ("backward", number)]
    return passes + [("backward", number) for number in range(total - ahead, total)]


def most_in_flight(passes: list[tuple[str, int]]) -> int:
    """Return the largest number of forward passes whose backward pass is still to come."""
    most = now = 0
    for direction, _ in passes:
        now += 1 if direction == "forward" else -1
        most = max(most, now)
    return most


def finish_time(stages: int, microbatches: int, forward: int, backward: int) -> int:
    """Return when the last pass of a 1F1B pipeline of equal stages ends, if each pass starts as early as possible."""
    order = [one_f_one_b(stage, stages, microbatches) for stage in range(stages)]
    done: dict[tuple[int, str, int], int] = {}
    free, step = [0] * stages, [0] * stages
    while any(step[stage] < len(order[stage]) for stage in range(stages)):
        for stage in range(stages):
            while step[stage] < len(order[stage]):
                direction, number = order[stage][step[stage]]
                if direction == "forward":
                    needs = (stage - 1, "forward", number) if stage else None
                else:
                    needs = (stage + 1, "backward", number) if stage < stages - 1 else (stage, "forward", number)
                if needs is not None and needs not in done:
                    break
                start = max(free[stage], done[needs] if needs else 0)
                free[stage] = done[stage, direction, number] = start + (forward if direction == "forward" else backward)
                step[stage] += 1
    return max(free)


def dealt(layers: int, stages: int) -> list[int]:
    """Return the layers of each stage when they are dealt out one at a time, stage after stage."""
    hands = [0] * stages
    for layer in range(layers):
        hands[layer % stages] += 1
    return hands


def bubble_share(stages: int, chunks: int, microbatches: int) -> float:
    """Return idle over busy time: (p - 1) / (v m), Narayanan et al. 2021 (arXiv 2104.04473), section 2.2."""
    return (stages - 1) / (chunks * microbatches)


def zero_bytes(parameters: float, stage: int, ranks: int) -> dict[str, float]:
    """Return bytes per rank of mixed-precision Adam: 2, 2 and 12 a parameter (Rajbhandari et al. 2020, figure 1)."""
    return {
        "weights": 2 * parameters / (ranks if stage >= 3 else 1),
        "gradients": 2 * parameters / (ranks if stage >= 2 else 1),
        "optimizer": 12 * parameters / (ranks if stage >= 1 else 1),
    }


def plain_bytes(parameters: float, stage: int, ranks: int, microbatches: int) -> dict[str, float]:
    """Return bytes per rank of Adam in fp32 under autocast: 4 for weights, 4 for gradients that add up, and 8."""
    return {
        "weights": 4 * parameters / (ranks if stage >= 3 else 1),
        "gradients": 0.0 if microbatches == 1 else 4 * parameters / (ranks if stage >= 2 else 1),
        "optimizer": 8 * parameters / (ranks if stage >= 1 else 1),
        "buckets": 0.0,
        "step": 0.0,
    }


def gpt_parameters(layers: int, hidden: int, vocab: int, positions: int) -> int:
    """Return the parameters of a GPT without its last norm: L (12 h^2 + 13 h) + V h + s h."""
    return layers * (12 * hidden**2 + 13 * hidden) + vocab * hidden + positions * hidden


def ring_sent(ranks: int, size: float, *, gather_only: bool) -> float:
    """Return the bytes that each rank sends in a ring all-gather or all-reduce, counted step by step."""
    chunk, sent = size / ranks, 0.0
    for _ in range(ranks - 1):
        sent += chunk  # the all-gather, or the second half of the all-reduce
        sent += 0.0 if gather_only else chunk
    return sent


def ring_share(gpus: int, domain: int = 1) -> float:
    """Return the share of the network that a ring of so many GPUs reaches; it falls to half for large rings."""
    return 0.9 * (0.5 + 0.5 * math.exp(-(gpus - domain) / 256))


def data_parallel_sent(ranks: int, weight_bytes: float, zero: int) -> float:
    """Return the bytes that each rank sends after the last backward pass: an all-reduce of the gradients, and with
    ZeRO 1 an all-gather of the updated weights."""
    reduced = ring_sent(ranks, weight_bytes, gather_only=False)
    return reduced + (ring_sent(ranks, weight_bytes, gather_only=True) if zero else 0.0)


def stage_sends(chunks: int, microbatches: int) -> int:
    """Return the number of messages that a middle stage sends: activations forward and gradients back, per chunk."""
    return sum(len(("activations", "gradients")) for _ in range(microbatches) for _ in range(chunks))


def forward_flops(
    *, tokens: int, seq: int, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, gated: bool
) -> int:
    """Return the multiply-adds of a forward pass, times two, matrix by matrix."""
    width = hidden // heads
    matrices = [
        (hidden, heads * width),
        (hidden, kv_heads * width),
        (hidden, kv_heads * width),
        (heads * width, hidden),
    ]
    matrices += [(hidden, ffn)] * (2 if gated else 1) + [(ffn, hidden)]
    total = sum(2 * tokens * rows * columns for rows, columns in matrices) * layers
    total += layers * heads * 2 * (2 * tokens * seq * width)  # queries by keys, and scores by values
    return total + 2 * tokens * hidden * vocab
