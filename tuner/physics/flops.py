"""How many floating-point operations one iteration takes, over the whole cluster.

One general count: any MLP width, gated or not, grouped queries, a head size of its own, and each kind of recompute. A
multiply-add counts as two. The attention's scores count whole and not by their causal half, as Megatron-LM counts
them; the embedding look-up and element-wise work do not count.

For the plain GPT with full recompute it is 96 B s L h^2 (1 + s/6h + V/16Lh), the estimate of Narayanan et al. 2021
(arXiv 2104.04473, section 5.1), which Megatron-DeepSpeed prints as TFLOPs since February 2022.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tuner.core.columns import Columns, FloatArray
from tuner.core.domain import RECOMPUTE

_FORWARD_AND_BACKWARD: Final = 3
"""The backward pass multiplies each matrix twice: once for the gradient of its input, once for its own."""


def forward_terms(columns: Columns) -> dict[str, FloatArray]:
    """The forward pass of one global batch, by what is multiplied."""
    tokens = (columns.global_batch * columns.workload.model.seq).astype(np.float64)
    scores = columns.workload.model.seq * columns.heads * columns.head_size
    return {
        "layers": 2 * tokens * columns.layers * columns.layer_matrices,
        "scores": 4 * tokens * columns.layers * scores,
        "logits": 2 * tokens * columns.hidden * columns.padded_vocab,
    }


def model_flops(columns: Columns) -> FloatArray:
    """What the training itself takes in one iteration: forward and backward, nothing twice. The base of MFU."""
    return _FORWARD_AND_BACKWARD * _total(forward_terms(columns))


def hardware_flops(columns: Columns) -> FloatArray:
    """What the GPUs compute in one iteration, recomputed activations included. The base of HFU.

    Full recompute runs each layer's forward pass once more, selective recompute the attention's scores
    (Korthikanti et al. 2022, arXiv 2205.05198); the output layer is never recomputed.
    """
    forward = forward_terms(columns)
    full = (columns.recompute == RECOMPUTE.index("full")) * (forward["layers"] + forward["scores"])
    selective = (columns.recompute == RECOMPUTE.index("selective")) * forward["scores"]
    total: FloatArray = _FORWARD_AND_BACKWARD * _total(forward) + full + selective
    return total


def older_estimate(columns: Columns) -> FloatArray:
    """What Megatron-DeepSpeed printed before February 2022: eight operations for each token and weight of the layers.

    Two for each of the four passes that full recompute makes, whatever is recomputed. Neither scores nor logits count,
    and the weights are summed over the tensor parallel ranks, each of which holds all norms and the biases after
    row-parallel products: 12 h^2 + (7 + 6 tp) h a layer of a plain GPT. Worked out from the BLOOM report's tables up to
    02-20, which are in this unit: 38 of 39 figures come out to their last digit.
    """
    tokens = (columns.global_batch * columns.workload.model.seq).astype(np.float64)
    on_each_rank = 6 * columns.hidden * columns.tp
    weights = columns.layer_matrices + 3 * columns.hidden + columns.ffn + on_each_rank
    return 8 * tokens * columns.layers * weights


def per_gpu(flops: FloatArray, seconds: float | FloatArray, columns: Columns) -> FloatArray:
    """FLOP/s of each GPU in use, from one iteration's operations and its seconds."""
    return flops / (seconds * columns.replica * columns.dp)


def training_seconds(seconds: float | FloatArray, columns: Columns) -> FloatArray:
    """Seconds until the workload's tokens are trained on, from the seconds of one iteration."""
    iterations = columns.workload.training_tokens / (columns.global_batch * columns.workload.model.seq)
    return seconds * iterations


def _total(terms: dict[str, FloatArray]) -> FloatArray:
    return terms["layers"] + terms["scores"] + terms["logits"]
