"""All rules, one table: laws, then policies, then advice.

Each condition is one expression over columns, so that it judges a million topologies or one and cannot disagree with
itself. The laws come in the order in which a user would want to hear of them.
"""

from __future__ import annotations

from typing import Final

from tuner.errors import counted
from tuner.rules import sentences
from tuner.rules.rule import Rule
from tuner.rules.shapes import fused_softmax_refuses, head_weight, ramp_breaks, stage_excess, wave_efficiency

_MEGATRON = "Megatron-LM, megatron/"
_MEGATRON_DS = "Megatron-DeepSpeed, megatron/"
_MATMUL_GUIDE = "NVIDIA, Matrix Multiplication Background User's Guide, "
_BLOOM = "BLOOM chronicles-prequel, "


def _aligned_hidden(multiple: int, why: str) -> Rule:
    return Rule(
        name=f"hidden-per-tp-by-{multiple}",
        level="advice",
        sentence=f"hidden / tp is a multiple of {multiple}, {why}",
        source=_MATMUL_GUIDE + "Tensor Core Requirements",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.hidden % (multiple * c.tp) != 0,
        numbers=lambda c: f"hidden / tp = {c.hidden} / {c.tp} = {c.hidden / c.tp:g} is not a multiple of {multiple}",
    )


def _aligned_heads(multiple: int, why: str) -> Rule:
    return Rule(
        name=f"head-size-by-{multiple}",
        level="advice",
        sentence=f"the head size is a multiple of {multiple}, {why}",
        source=_MATMUL_GUIDE + "Tensor Core Requirements",
        reads=("hidden", "heads"),
        vary=("heads",),
        broken=lambda c: c.head_size % multiple != 0,
        numbers=lambda c: f"head size {c.head_size:g} is not a multiple of {multiple}",
    )


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        name="fill-nodes",
        level="law",
        sentence="tp x pp x cp x dp is the number of GPUs of the nodes used",
        source=_MEGATRON + "training/arguments.py: world size by total_model_size",
        reads=("nodes", "tp", "pp", "cp", "dp"),
        vary=("pp", "dp", "tp", "nodes", "cp"),
        broken=lambda c: c.replica * c.dp != c.nodes * c.cluster.gpus_per_node,
        numbers=sentences.gpus,
    ),
    Rule(
        name="enough-nodes",
        level="law",
        sentence="no more nodes are used than there are",
        source="arithmetic",
        reads=("nodes",),
        vary=("nodes",),
        broken=lambda c: c.nodes > c.cluster.nodes,
        numbers=lambda c: f"it takes {counted(c.nodes, 'node')} and there are {c.cluster.nodes}",
    ),
    Rule(
        name="heads-by-tp",
        level="law",
        sentence="heads divide by tp",
        source=_MEGATRON + "core/transformer/transformer_config.py: num_attention_heads",
        reads=("heads", "tp"),
        vary=("heads", "tp"),
        broken=lambda c: c.heads % c.tp != 0,
        numbers=lambda c: f"{c.heads} heads do not divide by tp={c.tp}",
    ),
    Rule(
        name="hidden-by-tp",
        level="law",
        sentence="hidden divides by tp",
        source=_MEGATRON + "core/tensor_parallel/layers.py: divide(output_size, world_size)",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.hidden % c.tp != 0,
        numbers=lambda c: f"hidden {c.hidden} does not divide by tp={c.tp}",
    ),
    Rule(
        name="ffn-by-tp",
        level="law",
        sentence="the MLP's width divides by tp",
        source=_MEGATRON + "core/tensor_parallel/layers.py: divide(output_size, world_size)",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.ffn % c.tp != 0,
        numbers=lambda c: f"the MLP's width {c.ffn} does not divide by tp={c.tp}",
    ),
    Rule(
        name="vocab-by-tp",
        level="law",
        sentence="the padded vocabulary divides by tp",
        source=_MEGATRON + "training/tokenizer/tokenizer.py: _vocab_size_with_padding",
        reads=("tp",),
        vary=("tp",),
        broken=lambda c: c.padded_vocab % c.tp != 0,
        numbers=lambda c: f"the vocabulary of {c.padded_vocab}, which is not padded, does not divide by tp={c.tp}",
    ),
    Rule(
        name="kv-heads-with-tp",
        level="law",
        sentence="key/value heads and tp divide one another",
        source=_MEGATRON + "core/transformer/attention.py: num_query_groups per partition",
        reads=("heads", "tp"),
        vary=("tp", "heads"),
        broken=lambda c: (c.kv_heads % c.tp != 0) & (c.tp % c.kv_heads != 0),
        numbers=lambda c: f"{c.kv_heads} key/value heads and tp={c.tp} do not divide one another",
        binding=lambda workload: workload.model.kv_heads != workload.model.heads,
    ),
    Rule(
        name="heads-by-kv-heads",
        level="law",
        sentence="heads divide by key/value heads",
        source=_MEGATRON + "core/transformer/attention.py: heads per query group",
        reads=("heads",),
        vary=("heads",),
        broken=lambda c: c.heads % c.kv_heads != 0,
        numbers=lambda c: f"{c.heads} heads do not divide by {c.kv_heads} key/value heads",
        binding=lambda workload: workload.model.kv_heads != workload.model.heads,
    ),
    Rule(
        name="hidden-by-heads",
        level="law",
        sentence="hidden divides by heads, unless the model fixes the head size",
        source=_MEGATRON_DS + "arguments.py: kv_channels",
        reads=("hidden", "heads"),
        vary=("heads", "hidden"),
        broken=lambda c: c.hidden % c.heads != 0,
        numbers=lambda c: f"hidden {c.hidden} does not divide by {c.heads} heads",
        binding=lambda workload: not workload.model.head_size,
    ),
    Rule(
        name="layers-by-pp",
        level="law",
        sentence="layers divide by pp; or layers + 2 do, where embedding and head count as layers",
        source=_MEGATRON + "training/arguments.py: num_layers; type:transformer|embedding in Megatron-DeepSpeed",
        reads=("layers", "pp", "partition"),
        vary=("pp", "partition", "layers"),
        broken=lambda c: c.units % c.pp != 0,
        numbers=sentences.stages,
    ),
    Rule(
        name="layer-on-every-stage",
        level="law",
        sentence="every stage, or chunk of one, holds a layer beside the embedding or the head that counts as one",
        source=_BLOOM + "DeepSpeed breaks where a GPU has no transformer block",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("pp", "vpp"),
        broken=lambda c: (c.partition == 1) & (c.units < 2 * c.pp * c.vpp),
        numbers=lambda c: (
            f"{c.layers} layers, embedding and head over pp x vpp = {c.pp} x {c.vpp} leave the embedding alone"
        ),
    ),
    Rule(
        name="one-partition",
        level="law",
        sentence="embedding and head count as layers only where the layers alone do not divide by pp x vpp",
        source="ours: where both divide, pp is 1 or 2 and the two splits are the same, which counts once",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("partition",),
        broken=lambda c: (c.partition == 1) & (c.layers % (c.pp * c.vpp) == 0),
        numbers=lambda c: f"{c.layers} layers divide by pp x vpp = {c.pp} x {c.vpp} as they are, and that split counts",
    ),
    Rule(
        name="vpp-needs-pp",
        level="law",
        sentence="interleaving (vpp > 1) needs a pipeline",
        source=_MEGATRON + "training/arguments.py: interleaved schedule",
        reads=("vpp", "pp"),
        vary=("vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.pp == 1),
        numbers=lambda c: f"vpp={c.vpp} interleaves a pipeline and pp is 1",
    ),
    Rule(
        name="layers-by-vpp",
        level="law",
        sentence="a stage's layers divide by vpp",
        source=_MEGATRON + "training/arguments.py: num_layers_per_virtual_pipeline_stage",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.units % (c.pp * c.vpp) != 0),
        numbers=lambda c: f"{c.units} layers do not divide by pp x vpp = {c.pp} x {c.vpp} = {c.pp * c.vpp}",
    ),
    Rule(
        name="microbatches-by-pp",
        level="law",
        sentence="an interleaved schedule (vpp > 1) needs microbatches in multiples of pp",
        source=_MEGATRON + "core/pipeline_parallel/schedules.py: forward_backward_pipelining_with_interleaving",
        reads=("vpp", "pp", "global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.microbatches % c.pp != 0),
        numbers=lambda c: f"{c.microbatches} microbatches do not divide by pp={c.pp}, which vpp={c.vpp} needs",
    ),
    Rule(
        name="batch-by-dp",
        level="law",
        sentence="the global batch divides by micro_batch x dp",
        source=_MEGATRON_DS + "arguments.py: global_batch_size; DeepSpeed config: train_batch_size",
        reads=("global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "global_batch"),
        broken=lambda c: c.global_batch % (c.micro_batch * c.dp) != 0,
        numbers=lambda c: (
            f"global batch {c.global_batch} does not divide by micro_batch x dp = "
            f"{c.micro_batch} x {c.dp} = {c.micro_batch * c.dp}"
        ),
    ),
    Rule(
        name="zero-without-pipeline",
        level="law",
        sentence="ZeRO 2 and 3 exclude a pipeline",
        source="DeepSpeed 0.19.8, runtime/pipe/engine.py: ZeRO-2 and ZeRO-3 are incompatible with pipelines",
        reads=("zero", "pp"),
        vary=("zero", "pp"),
        broken=lambda c: (c.zero >= 2) & (c.pp > 1),
        numbers=lambda c: f"ZeRO {c.zero} does not work with a pipeline, and pp is {c.pp}",
    ),
    Rule(
        name="sp-needs-tp",
        level="law",
        sentence="sequence parallelism needs tensor parallelism",
        source=_MEGATRON + "core/model_parallel_config.py: sequence_parallel",
        reads=("sequence_parallel", "tp"),
        vary=("sequence_parallel", "tp"),
        broken=lambda c: (c.sequence_parallel == 1) & (c.tp == 1),
        numbers=lambda c: f"sequence parallelism shares work among tensor-parallel ranks and tp is {c.tp}",
    ),
    Rule(
        name="seq-by-tp",
        level="law",
        sentence="sequence parallelism needs a sequence (or its share by cp) that divides by tp",
        source=_MEGATRON + "core/tensor_parallel/mappings.py: _split_along_first_dim",
        reads=("sequence_parallel", "tp", "cp"),
        vary=("tp", "sequence_parallel"),
        broken=lambda c: (c.sequence_parallel == 1) & (c.workload.model.seq % (c.tp * c.cp) != 0),
        numbers=lambda c: (
            f"sequence length {c.workload.model.seq} does not divide by tp x cp = {c.tp} x {c.cp} = {c.tp * c.cp}"
        ),
    ),
    Rule(
        name="seq-by-cp",
        level="law",
        sentence="context parallelism needs a sequence that divides by 2 x cp",
        source=_MEGATRON + "core/utils.py: get_batch_on_this_cp_rank",
        reads=("cp",),
        vary=("cp",),
        broken=lambda c: (c.cp > 1) & (c.workload.model.seq % (2 * c.cp) != 0),
        numbers=lambda c: f"sequence length {c.workload.model.seq} does not divide by 2 x cp = {2 * c.cp}",
    ),
    Rule(
        name="cp-needs-flash",
        level="law",
        sentence="context parallelism needs a flash attention kernel",
        source=_MEGATRON + "core/transformer/dot_product_attention.py: context_parallel_size == 1",
        reads=("cp",),
        vary=("cp",),
        broken=lambda c: c.cp > 1,
        numbers=lambda c: f"cp={c.cp} needs flash attention and this workload runs {c.workload.attention}",
        binding=lambda workload: workload.attention not in ("flash1", "flash2"),
    ),
    Rule(
        name="tp-in-node",
        level="policy",
        sentence="tensor parallelism stays inside a node",
        source="Narayanan et al. 2021 (arXiv 2104.04473), takeaway 1",
        reads=("tp",),
        vary=("tp",),
        broken=lambda c: c.cluster.gpus_per_node % c.tp != 0,
        numbers=lambda c: f"tp={c.tp} does not fit evenly into nodes of {c.cluster.gpus_per_node} GPUs",
    ),
    Rule(
        name="dp-multiple-of-4",
        level="policy",
        sentence="dp is a multiple of 4: shorthand for a batch-size ramp-up, replaced by --ramp",
        source=_BLOOM + "Choosing the fastest 3D Topology: DP % 4 = 0",
        reads=("dp",),
        vary=("pp", "nodes", "tp"),
        broken=lambda c: c.dp % 4 != 0,
        numbers=lambda c: f"dp={c.dp} is not a multiple of 4",
        binding=lambda workload: workload.ramp is None,
    ),
    Rule(
        name="batch-multiple-of-32",
        level="policy",
        sentence="the global batch is a multiple of 32: shorthand for a batch-size ramp-up, replaced by --ramp",
        source=_BLOOM + "Choosing the fastest 3D Topology: GBS % 32 = 0",
        reads=("global_batch",),
        vary=("global_batch",),
        broken=lambda c: c.global_batch % 32 != 0,
        numbers=lambda c: f"global batch {c.global_batch} is not a multiple of 32",
        binding=lambda workload: workload.ramp is None,
    ),
    Rule(
        name="ramp-up",
        level="policy",
        sentence="with --ramp: every batch of the ramp-up divides by micro_batch x dp, and its steps end at the batch",
        source=_MEGATRON + "core/num_microbatches_calculator.py: RampupBatchsizeNumMicroBatchesCalculator",
        reads=("global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "pp", "nodes", "global_batch"),
        broken=ramp_breaks,
        numbers=sentences.ramp,
        binding=lambda workload: workload.ramp is not None,
    ),
    Rule(
        name="fused-softmax",
        level="policy",
        sentence="fused attention meets the conditions of Megatron's softmax kernel; else the slow path would run",
        source=_MEGATRON + "core/fusions/fused_softmax.py: is_kernel_available; scaled_masked_softmax.h",
        reads=("heads", "tp", "micro_batch"),
        vary=("heads", "micro_batch", "tp"),
        broken=fused_softmax_refuses,
        numbers=sentences.fused_softmax,
        binding=lambda workload: workload.attention == "fused",
    ),
    Rule(
        name="micro-batch-power-of-two",
        level="policy",
        sentence="the micro batch is a power of two",
        source=_BLOOM + "Choosing the fastest 3D Topology, on log2(MBS)",
        reads=("micro_batch",),
        vary=("micro_batch",),
        broken=lambda c: (c.micro_batch & (c.micro_batch - 1)) != 0,
        numbers=lambda c: f"micro_batch={c.micro_batch} is not a power of two",
    ),
    Rule(
        name="microbatches-fill-pipeline",
        level="policy",
        sentence="there are at least as many microbatches as stages",
        source="Narayanan et al. 2021 (arXiv 2104.04473), section 2.2: the bubble is (pp - 1) / microbatches",
        reads=("global_batch", "micro_batch", "dp", "pp"),
        vary=("micro_batch", "pp"),
        broken=lambda c: c.microbatches < c.pp,
        numbers=lambda c: f"{c.microbatches} microbatches cannot fill pp={c.pp} stages",
    ),
    _aligned_hidden(8, "which tensor cores need"),
    _aligned_hidden(64, "where tensor cores are most efficient"),
    _aligned_heads(8, "which tensor cores need"),
    _aligned_heads(64, "where tensor cores are most efficient"),
    Rule(
        name="tile-quantisation",
        level="advice",
        sentence="hidden and ffn / tp are multiples of a tile's 128",
        source=_MATMUL_GUIDE + "Tile Quantization",
        reads=("hidden", "tp"),
        vary=("hidden", "tp"),
        broken=lambda c: (c.hidden % 128 != 0) | (c.ffn % (128 * c.tp) != 0),
        numbers=lambda c: (
            f"hidden {c.hidden} and ffn / tp = {c.ffn} / {c.tp} = {c.ffn / c.tp:g} "
            f"make {c.hidden / 128:g} and {c.ffn / c.tp / 128:g} tiles of 128"
        ),
    ),
    Rule(
        name="wave-quantisation",
        level="advice",
        sentence="the tiles of the MLP's first product leave less than a tenth of this GPU's SMs idle",
        source=_MATMUL_GUIDE + "Wave Quantization; tiles of 256 x 128; SMs from the catalog",
        reads=("micro_batch", "cp", "hidden", "tp"),
        vary=("micro_batch",),
        broken=lambda c: wave_efficiency(c) < 0.9,
        numbers=lambda c: (
            f"at micro_batch={c.micro_batch} the MLP's first product keeps "
            f"{100 * wave_efficiency(c):.0f}% of {c.cluster.gpu.sms} SMs busy"
        ),
    ),
    Rule(
        name="uneven-stages",
        level="advice",
        sentence="no pipeline stage has a tenth more to do than the average, the output layer included",
        source=_MEGATRON_DS + "model/gpt_model.py: --pp-partition-method 'type:transformer|embedding'",
        reads=("layers", "hidden", "heads", "pp", "partition"),
        vary=("pp", "partition"),
        broken=lambda c: stage_excess(c) > 0.1,
        numbers=lambda c: (
            f"the output layer weighs {head_weight(c):.2f} layers, so that the last of pp={c.pp} "
            f"stages has {100 * stage_excess(c):.0f}% more to do than the average"
        ),
    ),
    Rule(
        name="interleaving-needs-megatron-lm",
        level="advice",
        sentence="an interleaved pipeline (vpp > 1) runs under Megatron-LM; DeepSpeed's engine does not interleave",
        source="DeepSpeed 0.19.8, runtime/pipe/schedule.py: TrainSchedule is 1F1B",
        reads=("vpp",),
        vary=("vpp",),
        broken=lambda c: c.vpp > 1,
        numbers=lambda c: f"vpp={c.vpp} needs Megatron-LM as the trainer",
    ),
)

BY_NAME: Final = {rule.name: rule for rule in RULES}
POLICIES: Final = tuple(rule.name for rule in RULES if rule.level == "policy")
