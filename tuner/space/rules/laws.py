"""Laws: constraints of DeepSpeed, Megatron, kernels and arithmetic, in the order in which violations are reported."""

from __future__ import annotations

from typing import Final

import numpy as np

from tuner.core.domain import COUNTED, LAYOUT, Workload, layout_chunks
from tuner.core.frameworks import context_exchange, record_of
from tuner.core.offload import OFFLOAD
from tuner.core.text import counted
from tuner.space.rules import quantities as sentences
from tuner.space.rules.framework_laws import elsewhere
from tuner.space.rules.quantities import (
    NEEDED_ZERO,
    attention_mask,
    expert_width,
    fp8_sizes,
    fp8_unit,
    host_bytes,
    longest_flash_head,
    uneven_fp8_sizes,
)
from tuner.space.rules.rule import BLOOM, MEGATRON, MEGATRON_DS, Rule

_FLASH: Final = "FlashAttention, README: "

_FP8: Final = (
    "NVIDIA/TransformerEngine, pytorch/utils.py: assert_dim_for_fp8_exec; pytorch/tensor/mxfp8_tensor.py and "
    "nvfp4_tensor.py"
)


def _is_transformer_engines_fp8(workload: Workload) -> bool:
    return workload.is_quantized and workload.framework == "megatron-core"


GENERAL_LAWS: Final[tuple[Rule, ...]] = (
    Rule(
        name="fill-nodes",
        level="law",
        sentence="tp x pp x cp x dp is the number of GPUs of the nodes used",
        source=MEGATRON + "training/arguments.py: world size by total_model_size",
        reads=("nodes", "tp", "pp", "cp", "dp"),
        vary=("pp", "dp", "tp", "nodes", "cp"),
        broken=lambda c: c.replica * c.dp != c.nodes * c.cluster.gpus_per_node,
        numbers=sentences.gpus,
    ),
    Rule(
        name="enough-nodes",
        level="law",
        sentence="the topology uses at most the nodes of the cluster",
        source="arithmetic",
        reads=("nodes",),
        vary=("dp", "pp", "tp", "nodes"),
        broken=lambda c: c.nodes > c.cluster.nodes,
        numbers=lambda c: f"it needs {counted(c.nodes, 'node')}, but the cluster has {c.cluster.nodes}",
    ),
    Rule(
        name="heads-by-tp",
        level="law",
        sentence="heads are divisible by tp",
        source=MEGATRON + "core/transformer/transformer_config.py: num_attention_heads",
        reads=("heads", "tp"),
        vary=("heads", "tp"),
        broken=lambda c: c.heads % c.tp != 0,
        numbers=lambda c: f"{c.heads} heads are not divisible by tp={c.tp}",
    ),
    Rule(
        name="hidden-by-tp",
        level="law",
        sentence="hidden is divisible by tp",
        source=MEGATRON + "core/tensor_parallel/layers.py: divide(output_size, world_size)",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.hidden % c.tp != 0,
        numbers=lambda c: f"hidden {c.hidden} is not divisible by tp={c.tp}",
    ),
    Rule(
        name="ffn-by-tp",
        level="law",
        sentence="the MLP's width is divisible by tp",
        source=MEGATRON + "core/tensor_parallel/layers.py: divide(output_size, world_size)",
        reads=("hidden", "tp"),
        vary=("tp", "hidden"),
        broken=lambda c: c.ffn % c.tp != 0,
        numbers=lambda c: f"the MLP's width {c.ffn} is not divisible by tp={c.tp}",
        binding=lambda workload: workload.model.dense_mlp_layers > 0,
    ),
    Rule(
        name="vocab-by-tp",
        level="law",
        sentence="the padded vocabulary is divisible by tp",
        source=MEGATRON + "training/tokenizer/tokenizer.py: _vocab_size_with_padding",
        reads=("tp",),
        vary=("tp",),
        broken=lambda c: c.padded_vocab % c.tp != 0,
        numbers=lambda c: f"the vocabulary of {c.padded_vocab}, which is not padded, is not divisible by tp={c.tp}",
    ),
    Rule(
        name="kv-heads-with-tp",
        level="law",
        sentence="key/value heads are divisible by tp, or tp by key/value heads",
        source=MEGATRON + "core/transformer/attention.py: num_query_groups per partition",
        reads=("heads", "tp"),
        vary=("tp", "heads"),
        broken=lambda c: (c.kv_heads % c.tp != 0) & (c.tp % c.kv_heads != 0),
        numbers=lambda c: f"neither {c.kv_heads} key/value heads nor tp={c.tp} divides the other",
        binding=lambda workload: workload.model.kv_heads != workload.model.heads,
    ),
    Rule(
        name="heads-by-kv-heads",
        level="law",
        sentence="heads are divisible by key/value heads",
        source=MEGATRON + "core/transformer/attention.py: heads per query group",
        reads=("heads",),
        vary=("heads",),
        broken=lambda c: c.heads % c.kv_heads != 0,
        numbers=lambda c: f"{c.heads} heads are not divisible by {c.kv_heads} key/value heads",
        binding=lambda workload: workload.model.kv_heads != workload.model.heads,
    ),
    Rule(
        name="hidden-by-heads",
        level="law",
        sentence="hidden is divisible by heads, unless the model fixes the head size",
        source=MEGATRON_DS + "arguments.py: kv_channels",
        reads=("hidden", "heads"),
        vary=("heads", "hidden"),
        broken=lambda c: c.hidden % c.heads != 0,
        numbers=lambda c: f"hidden {c.hidden} is not divisible by {c.heads} heads",
        binding=lambda workload: not (workload.model.head_size or workload.model.latent),
    ),
    Rule(
        name="layers-by-pp",
        level="law",
        sentence="layers are divisible by pp; or layers + 2, if embedding and head count as layers; or a layout sets "
        "the layers of each stage",
        source=MEGATRON + "training/arguments.py: num_layers; type:transformer|embedding in Megatron-DeepSpeed",
        reads=("layers", "pp", "partition"),
        vary=("pp", "partition", "layers"),
        broken=lambda c: (c.partition != LAYOUT) & (c.units % c.pp != 0),
        numbers=sentences.stages,
    ),
    Rule(
        name="layer-on-every-stage",
        level="law",
        sentence="every stage or chunk has a layer besides an embedding or head that counts as a layer",
        source=BLOOM + "DeepSpeed breaks where a GPU has no transformer block",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("pp", "vpp"),
        broken=lambda c: (
            ((c.partition == COUNTED) & (c.units < 2 * c.pp * c.vpp))
            | ((c.partition == LAYOUT) & (layout_chunks(c.layers, c.pp * c.vpp)[1] < 1))
        ),
        numbers=lambda c: (
            f"{c.layers} layers, embedding and head over pp x vpp = {c.pp} x {c.vpp} leave a "
            + ("stage with the embedding alone" if c.partition == COUNTED else "chunk with the head alone")
        ),
    ),
    Rule(
        name="one-partition",
        level="law",
        sentence="embedding and head count as layers only if the layers alone are not divisible by pp x vpp, and a "
        "layout is used only if neither is divisible",
        source="tuner: if both are divisible, pp is 1 or 2 and the two splits are the same, which counts once",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("partition",),
        broken=lambda c: (
            ((c.partition > 0) & (c.layers % (c.pp * c.vpp) == 0))
            | ((c.partition == LAYOUT) & ((c.layers + 2) % (c.pp * c.vpp) == 0))
        ),
        numbers=lambda c: (
            f"{c.layers} layers are divisible by pp x vpp = {c.pp} x {c.vpp} "
            + ("as they are" if c.layers % (c.pp * c.vpp) == 0 else "with embedding and head")
            + ", and that partition takes precedence"
        ),
    ),
    Rule(
        name="vpp-needs-pp",
        level="law",
        sentence="interleaving (vpp > 1) needs a pipeline",
        source=MEGATRON + "training/arguments.py: interleaved schedule",
        reads=("vpp", "pp"),
        vary=("vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.pp == 1),
        numbers=lambda c: f"vpp={c.vpp} interleaves a pipeline, but pp is 1",
    ),
    Rule(
        name="layers-by-vpp",
        level="law",
        sentence="a stage's layers are divisible by vpp",
        source=MEGATRON + "training/arguments.py: num_layers_per_virtual_pipeline_stage",
        reads=("layers", "pp", "partition", "vpp"),
        vary=("vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.partition != LAYOUT) & (c.units % (c.pp * c.vpp) != 0),
        numbers=lambda c: f"{c.units} layers are not divisible by pp x vpp = {c.pp} x {c.vpp} = {c.pp * c.vpp}",
    ),
    Rule(
        name="microbatches-by-pp",
        level="law",
        sentence="an interleaved schedule (vpp > 1) needs microbatches in multiples of pp",
        source=MEGATRON + "core/pipeline_parallel/schedules.py: forward_backward_pipelining_with_interleaving",
        reads=("vpp", "pp", "global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "vpp", "pp"),
        broken=lambda c: (c.vpp > 1) & (c.microbatches % c.pp != 0),
        numbers=lambda c: f"{c.microbatches} microbatches are not divisible by pp={c.pp}, which vpp={c.vpp} needs",
    ),
    Rule(
        name="batch-by-dp",
        level="law",
        sentence="the global batch is divisible by micro_batch x dp",
        source=MEGATRON_DS + "arguments.py: global_batch_size; DeepSpeed config: train_batch_size",
        reads=("global_batch", "micro_batch", "dp"),
        vary=("micro_batch", "global_batch"),
        broken=lambda c: c.global_batch % (c.micro_batch * c.dp) != 0,
        numbers=lambda c: (
            f"global batch {c.global_batch} is not divisible by micro_batch x dp = "
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
        numbers=lambda c: f"ZeRO {c.zero} does not work with a pipeline, but pp is {c.pp}{elsewhere(c)}",
        binding=lambda workload: (record := record_of(workload)) is None or record.separates_sharding_and_pp,
    ),
    Rule(
        name="offload-needs-zero",
        level="law",
        sentence="offload of the optimizer needs ZeRO 1, 2 or 3, and offload of the parameters ZeRO 3",
        source="DeepSpeed 0.19.8, runtime/zero/offload_config.py; Megatron-LM and FSDP: states that are sharded",
        reads=("offload", "zero"),
        vary=("zero", "offload"),
        broken=lambda c: c.zero < NEEDED_ZERO[c.offload],
        numbers=lambda c: (
            f"offload {OFFLOAD[int(c.offload)]} needs ZeRO {NEEDED_ZERO[c.offload]} or more, not {c.zero}"
        ),
    ),
    Rule(
        name="hsdp-by-dp",
        level="law",
        sentence="dp can be divided into hsdp replica groups of two ranks or more",
        source="accelerate at 0422db7e, parallelism_config.py; torchtitan at b5bcd76, distributed/parallel_dims.py",
        reads=("hsdp", "dp"),
        vary=("hsdp", "dp"),
        broken=lambda c: (c.hsdp > 1) & ((c.dp % c.hsdp != 0) | (c.dp < 2 * c.hsdp)),
        numbers=lambda c: f"dp={c.dp} cannot be divided into hsdp={c.hsdp} replica groups of two ranks or more",
    ),
    Rule(
        name="hsdp-needs-sharding",
        level="law",
        sentence="hybrid sharding (hsdp > 1) needs ZeRO 2 or 3",
        source="PyTorch, torch/distributed/fsdp: fully_shard on a mesh of two dimensions",
        reads=("hsdp", "zero"),
        vary=("hsdp", "zero"),
        broken=lambda c: (c.hsdp > 1) & (c.zero < 2),
        numbers=lambda c: f"hsdp={c.hsdp} replicates the shards of ZeRO 2 or 3, but ZeRO is {c.zero}",
    ),
    Rule(
        name="host-memory",
        level="law",
        sentence="the offloaded states of a node's ranks fit in its main memory, if the cluster specifies it",
        source="counted: weights, gradients and Adam's moments in fp32",
        reads=("offload", "zero", "tp", "pp", "cp", "dp", "layers", "hidden", "heads", "hsdp", "ep", "etp"),
        vary=("offload", "nodes"),
        broken=lambda c: (c.cluster.host_memory > 0) & (host_bytes(c) > c.cluster.host_memory),
        numbers=lambda c: (
            f"offloaded states take {host_bytes(c) / 2**30:,.0f} GiB of a node's main memory, which has "
            f"{c.cluster.host_memory / 2**30:,.0f}"
        ),
    ),
    Rule(
        name="sp-needs-tp",
        level="law",
        sentence="sequence parallelism needs tensor parallelism",
        source=MEGATRON + "core/model_parallel_config.py: sequence_parallel",
        reads=("sequence_parallel", "tp"),
        vary=("sequence_parallel", "tp"),
        broken=lambda c: (c.sequence_parallel == 1) & (c.tp == 1),
        numbers=lambda c: f"sequence parallelism splits work among tensor-parallel ranks, but tp is {c.tp}",
    ),
    Rule(
        name="seq-by-tp",
        level="law",
        sentence="sequence parallelism needs a sequence length (per cp rank) that is divisible by tp",
        source=MEGATRON + "core/tensor_parallel/mappings.py: _split_along_first_dim",
        reads=("sequence_parallel", "tp", "cp"),
        vary=("tp", "sequence_parallel"),
        broken=lambda c: (c.sequence_parallel == 1) & (c.workload.model.seq % (c.tp * c.cp) != 0),
        numbers=lambda c: (
            f"sequence length {c.workload.model.seq} is not divisible by tp x cp = {c.tp} x {c.cp} = {c.tp * c.cp}"
        ),
    ),
    Rule(
        name="seq-by-cp",
        level="law",
        sentence="context parallelism needs a sequence length that is divisible by 2 x cp",
        source=MEGATRON + "core/utils.py: get_batch_on_this_cp_rank",
        reads=("cp",),
        vary=("cp",),
        broken=lambda c: (c.cp > 1) & (c.workload.model.seq % (2 * c.cp) != 0),
        numbers=lambda c: f"sequence length {c.workload.model.seq} is not divisible by 2 x cp = {2 * c.cp}",
    ),
    Rule(
        name="cp-needs-flash",
        level="law",
        sentence="context parallelism needs a flash attention kernel",
        source=MEGATRON + "core/transformer/dot_product_attention.py: context_parallel_size == 1",
        reads=("cp",),
        vary=("cp",),
        broken=lambda c: c.cp > 1,
        numbers=lambda c: f"cp={c.cp} needs flash attention, but this workload uses {c.workload.attention}",
        hint="or a flash kernel with --attention flash2",
        binding=lambda workload: workload.attention not in ("flash1", "flash2"),
    ),
    Rule(
        name="cp-by-heads",
        level="law",
        sentence="with attention sinks, context parallel ranks exchange heads for tokens: a rank's heads and "
        "key/value heads are divisible by cp",
        source="NVIDIA/TransformerEngine, pytorch/attention/dot_product_attention/context_parallel.py: "
        "AttnFuncWithCPAndQKVOA2A",
        reads=("cp", "tp", "heads"),
        vary=("cp", "tp"),
        broken=lambda c: (c.heads // c.tp % c.cp != 0) | (np.maximum(1, c.kv_heads // c.tp) % c.cp != 0),
        numbers=lambda c: (
            f"{c.heads} heads and {c.kv_heads} key/value heads over tp={c.tp} are not divisible by cp={c.cp}, which "
            "the all-to-all exchange of this model requires"
        ),
        binding=lambda workload: context_exchange(workload) == "a2a",
    ),
    Rule(
        name="cp-without-mask",
        level="law",
        sentence="accelerate's context parallelism drops attention masks: no sliding window, no ALiBi",
        source="huggingface/accelerate at 16cb6eb8, src/accelerate/big_modeling.py: _attach_context_parallel_hooks",
        reads=("cp",),
        vary=("cp",),
        broken=lambda c: c.cp > 1,
        numbers=lambda c: f"cp={c.cp} would train this model without its {attention_mask(c.workload)}",
        hint="or --framework megatron-core",
        binding=lambda workload: workload.framework == "fsdp2" and bool(attention_mask(workload)),
    ),
    Rule(
        name="fp8-sizes",
        level="law",
        sentence="in fp8 and fp4, sizes of each rank's matrices are divisible by 16 (mxfp8: 32; Transformer Engine)",
        source=_FP8,
        reads=("tp", "hidden", "heads"),
        vary=("tp",),
        broken=lambda c: np.any([size % fp8_unit(c.workload) != 0 for size in fp8_sizes(c).values()], axis=0),
        numbers=lambda c: uneven_fp8_sizes(c, fp8_sizes(c), f"tp={c.tp}"),
        hint="or --precision bf16",
        binding=_is_transformer_engines_fp8,
    ),
    Rule(
        name="fp8-expert-sizes",
        level="law",
        sentence="in fp8 and fp4, the width of each rank's experts is divisible by 16 (mxfp8: 32; Transformer Engine)",
        source=_FP8,
        reads=("etp", "hidden"),
        vary=("etp",),
        broken=lambda c: expert_width(c) / c.etp % fp8_unit(c.workload) != 0,
        numbers=lambda c: uneven_fp8_sizes(c, {"experts": expert_width(c) / c.etp}, f"etp={c.etp}"),
        hint="or --precision bf16",
        binding=lambda workload: workload.model.experts is not None and _is_transformer_engines_fp8(workload),
    ),
    Rule(
        name="flash-precision",
        level="law",
        sentence="flash attention needs fp16 or bf16 (models in fp8 and fp4 use bf16 for it)",
        source=_FLASH + "datatype fp16 and bf16",
        reads=("tp",),
        vary=("tp",),
        broken=lambda c: c.workload.precision == "fp32",
        numbers=lambda c: f"precision {c.workload.precision} is more than the kernel's 16 bits",
        hint="run it with --attention eager",
        binding=lambda workload: workload.attention in ("flash1", "flash2"),
    ),
    Rule(
        name="flash-head-size",
        level="law",
        sentence="flash attention supports head sizes up to 256 (version 1: up to 128)",
        source=_FLASH + "head dimensions up to 256; version 1: up to 128",
        reads=("hidden", "heads"),
        vary=("heads",),
        broken=lambda c: c.head_size > longest_flash_head(c),
        numbers=lambda c: f"head size {c.head_size:g} is more than the kernel's {longest_flash_head(c)}",
        hint="or another kernel with --attention",
        binding=lambda workload: workload.attention in ("flash1", "flash2"),
    ),
)
