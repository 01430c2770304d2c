"""The messages of violated rules, word for word, with their numbers, units and alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.space.test_rules import BREAKS, EXPERTS
from tuner.core.columns import Columns
from tuner.core.keys import parse_key
from tuner.space.build import space_for
from tuner.space.rules import BY_NAME

MESSAGES = {
    "fill-nodes": "tp(8) x pp(5) = 40 does not divide 384 GPUs",
    "enough-nodes": "it needs 60 nodes, but the cluster has 48",
    "heads-by-tp": "108 heads are not divisible by tp=8",
    "hidden-by-tp": "hidden 14340 is not divisible by tp=8",
    "ffn-by-tp": "the MLP's width 100 is not divisible by tp=8",
    "vocab-by-tp": "the vocabulary of 510, which is not padded, is not divisible by tp=4",
    "kv-heads-with-tp": "neither 6 key/value heads nor tp=4 divides the other",
    "heads-by-kv-heads": "20 heads are not divisible by 8 key/value heads",
    "hidden-by-heads": "hidden 14336 is not divisible by 48 heads",
    "layers-by-pp": "72 layers cannot be divided into pp=16 stages",
    "layer-on-every-stage": "72 layers, embedding and head over pp x vpp = 74 x 1 leave a stage with the "
    "embedding alone",
    "one-partition": "72 layers are divisible by pp x vpp = 12 x 1 as they are, and that partition takes precedence",
    "vpp-needs-pp": "vpp=2 interleaves a pipeline, but pp is 1",
    "layers-by-vpp": "72 layers are not divisible by pp x vpp = 12 x 4 = 48",
    "microbatches-by-pp": "512 microbatches are not divisible by pp=12, which vpp=2 needs",
    "batch-by-dp": "global batch 2048 is not divisible by micro_batch x dp = 1 x 12 = 12",
    "zero-without-pipeline": "ZeRO 2 does not work with a pipeline, but pp is 12",
    "sp-needs-tp": "sequence parallelism splits work among tensor-parallel ranks, but tp is 1",
    "seq-by-tp": "sequence length 2052 is not divisible by tp x cp = 8 x 1 = 8",
    "seq-by-cp": "sequence length 2052 is not divisible by 2 x cp = 8",
    "cp-needs-flash": "cp=2 needs flash attention, but this workload uses fused",
    "cp-by-heads": "4 heads and 2 key/value heads over tp=1 are not divisible by cp=4, which the all-to-all exchange "
    "of this model requires",
    "cp-without-mask": "cp=2 would train this model without its sliding window of 16 tokens",
    "fp8-sizes": "72 (MLP) of a rank's columns at tp=2 are not divisible by 16, which fp8 needs",
    "fp8-expert-sizes": "24 (experts) of a rank's columns at etp=2 are not divisible by 16, which fp8 needs",
    "fp8-weights-need-zero": "the distributed optimizer updates weights stored in fp8, but ZeRO is 0",
    "fp8-weights-without-offload": "with tensorwise scaling, weights stored in fp8 exclude offload optimizer",
    "bf16-moments-need-zero": "ZeRO 0 with offload none cannot keep moments in bf16",
    "muon-without-offload": "Muon cannot be combined with offload optimizer",
    "bf16-layers-in-stage": "2 layers stay in bf16 at one end, but a stage of pp=4 has 1",
    "flash-precision": "precision fp32 is more than the kernel's 16 bits",
    "flash-head-size": "head size 448 is more than the kernel's 256",
    "framework-pp": "fsdp2 has no pipeline, but pp is 12",
    "framework-cp": "megatron-deepspeed has no context parallelism, but cp is 2; megatron-core could run it "
    "(--framework)",
    "framework-vpp": "megatron-deepspeed does not interleave a pipeline, but vpp is 2; megatron-core could run it "
    "(--framework)",
    "framework-partition": "deepspeed cannot give the last of pp x vpp = 5 x 1 chunks fewer layers; "
    "megatron-core could run it (--framework)",
    "framework-sequence-parallel": "megatron-deepspeed has no sequence parallelism over tp=8 ranks; "
    "megatron-core could run it (--framework)",
    "framework-zero": "megatron-core supports ZeRO 0 and 1, not 2; megatron-deepspeed could run it (--framework)",
    "framework-recompute": "fsdp2 recomputes none or full of its 72 layers, not selective; megatron-deepspeed "
    "or deepspeed could run it (--framework)",
    "offload-needs-zero": "offload optimizer needs ZeRO 1 or more, not 0",
    "hsdp-by-dp": "dp=4 cannot be divided into hsdp=4 replica groups of two ranks or more",
    "hsdp-needs-sharding": "hsdp=2 replicates the shards of ZeRO 2 or 3, but ZeRO is 1",
    "framework-hsdp": "deepspeed has no hybrid sharding, but hsdp is 2; fsdp2 could run it (--framework)",
    "host-memory": "offloaded states take 56 GiB of a node's main memory, which has 48",
    "framework-offload": "fsdp2 supports offload none or optimizer+parameters, not optimizer; megatron-deepspeed or "
    "deepspeed could run it (--framework)",
    "framework-fork": "no fork of megatron-deepspeed (deepspeed and bloom) has embedding partition over pp=74, "
    "ZeRO 1 and selective recompute for this model with fused attention; megatron-core could run it (--framework)",
    "experts-for-ep": "bloom-14336x72 has no experts, which ep=2 needs",
    "overlap-of-experts": "moe_overlap=on excludes pp > 1 with vpp=1 and full recompute",
    "framework-moe-overlap": "deepspeed cannot overlap the exchange of tokens, here among ep=4 ranks; megatron-core "
    "could run it (--framework)",
    "delta-net-heads": "16 key heads of Gated DeltaNet are not divisible by tp x cp = 3 x 2 = 6",
    "framework-delta-net": "fsdp2 computes all heads of Gated DeltaNet on each of tp=2 ranks; torchtitan could "
    "run it (--framework)",
    "experts-by-ep": "16 experts are not divisible by ep=3",
    "ep-in-stage": "tp(1) x dp(4) = 4 ranks are not divisible by etp x ep = 1 x 8 = 8",
    "expert-ffn-by-etp": "an expert's width of 256 is not divisible by etp=5",
    "shared-ffn-by-tp": "the shared experts' width of 512 is not divisible by tp=3",
    "experts-need-sp": "experts need sequence parallelism over tp=2 ranks",
    "one-dispatcher": "deepep has nothing to exchange with ep=1 and etp=1",
    "dispatcher-for-gpu": "deepep does not run where an NVLink domain of 72 GPUs spans nodes of 4",
    "deepep-ranks": "DeepEP dispatches among 2, 4, 8, 16, 32, 64, 128, 144 or 160 ranks, not etp(1) x ep(5) = 5",
    "deepep-in-node": "DeepEP exchanges nothing between nodes of A100-80GB-SXM, and its etp(1) x ep(16) = 16 ranks do "
    "not fit evenly into nodes of 8 GPUs",
    "hybridep-by-domain": "HybridEP's etp(6) x ep(16) = 96 ranks neither fit evenly into an NVLink domain of 72 GPUs "
    "nor are a multiple of it",
    "recompute-modules": "recompute selects moe_act, but none of the model's 72 layers has it",
    "recompute-moe-act": "eager attention excludes recompute of layernorm+moe_act",
    "expert-biases": "the biases of experts would be added etp=2 times",
    "recompute-delayed-fp8": "fp8 with delayed scaling excludes recompute of layernorm+moe_act",
    "framework-ep": "fsdp2 has no expert parallelism, but ep is 8; torchtitan could run it (--framework)",
    "framework-etp": "deepspeed has no expert tensor parallelism, but etp is 2; megatron-core could run it "
    "(--framework)",
    "framework-zero-with-ep": "deepspeed supports ZeRO 0, 1 and 2 with ep=4, not 3; torchtitan could run it "
    "(--framework)",
    "experts-on-stages": "the first of pp=48 stages has 0 layers, and only layer 1 has experts; ep=4 with "
    "ZeRO 1 needs experts on every stage",
    "framework-dispatcher": "torchtitan dispatches tokens by alltoall, deepep or hybridep, not allgather",
    "tp-in-nvlink-domain": "tp=16 does not fit evenly into nodes of 8 GPUs",
    "dp-multiple-of-4": "dp=2 is not a multiple of 4",
    "batch-multiple-of-32": "global batch 2000 is not a multiple of 32",
    "ramp-up": "the ramp-up from 32 by 32 has batches that are not divisible by micro_batch x dp = 16 x 4 = 64",
    "fused-softmax": "(heads/tp) x micro_batch = (108/8) x 4 = 54 is not a multiple of 4",
    "micro-batch-power-of-two": "micro_batch=6 is not a power of two",
    "microbatches-fill-pipeline": "8 microbatches cannot fill pp=12 stages",
    "head-size": "16 heads of hidden 14336 have size 896, not 64 to 256",
    "hidden-per-tp-by-8": "hidden / tp = 14344 / 8 = 1793 is not a multiple of 8",
    "hidden-per-tp-by-64": "hidden / tp = 14400 / 8 = 1800 is not a multiple of 64",
    "head-size-by-8": "head size 14 is not a multiple of 8",
    "head-size-by-64": "head size 224 is not a multiple of 64",
    "tile-quantization": "hidden 14400 and ffn / tp = 57600 / 8 = 7200 make 112.5 and 56.25 tiles of 128",
    "wave-quantization": "at micro_batch=1 the MLP's first GEMM keeps 83% of 108 SMs busy",
    "uneven-stages": "the output layer is as much work as 1.42 layers, so the last of pp=12 stages has 21% more work "
    "than the average",
    "interleaving-needs-megatron-lm": "vpp=2 needs Megatron-LM as the trainer",
}
"""Messages for the topologies of `BREAKS`."""

OTHERS: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "layer-on-every-stage",
        "tp1-pp70-mbs1-z1-lay",
        {"framework": "any"},
        "72 layers, embedding and head over pp x vpp = 70 x 1 leave a chunk with the head alone",
    ),
    (
        "layer-on-every-stage",
        "tp1-pp48-mbs1-z1-lay",
        {"framework": "any"},
        "72 layers, embedding and head over pp x vpp = 48 x 1 leave a chunk with the head alone",
    ),
    ("layers-by-pp", "tp8-pp16-mbs1-z1-emb", {}, "72 layers, embedding and head make 74, which pp=16 does not divide"),
    (
        "tp-in-nvlink-domain",
        "tp80-pp1-mbs1-z1",
        {"cluster": "gb300-nvl72", "nodes": 40},
        "tp=80 does not fit into an NVLink domain of 72 GPUs",
    ),
    (
        "tp-in-nvlink-domain",
        "tp6-pp1-mbs1-z1",
        {"cluster": "gb300-nvl72", "nodes": 3},
        "tp=6 does not fit evenly into nodes of 4 GPUs",
    ),
    (
        "dispatcher-for-gpu",
        "tp1-pp1-mbs1-z1-ep8-deepep",
        {**EXPERTS, "gpu": "L40S-48GB"},
        "deepep does not run on L40S-48GB, which has no NVLink",
    ),
    (
        "deepep-in-node",
        "tp1-pp1-mbs1-z1-ep8-deepep",
        {**EXPERTS, "gpus_per_node": 4, "nodes": 2},
        "DeepEP takes 8 consecutive ranks for a node, and its etp(1) x ep(8) = 8 ranks do not fit evenly into nodes of "
        "4 GPUs",
    ),
    (
        "fused-softmax",
        "tp8-pp12-mbs1-z1",
        {"precision": "fp32", "attention": "fused"},
        "the kernel supports fp16 or bf16, not fp32",
    ),
    (
        "fused-softmax",
        "tp8-pp12-mbs1-z1",
        {"seq": 8192, "attention": "fused"},
        "the kernel supports sequences of 20 to 4096 tokens in multiples of 4, not 8192",
    ),
    (
        "fused-softmax",
        "tp8-pp12-mbs1-z1",
        {"seq": 4094, "attention": "fused"},
        "the kernel supports sequences of 20 to 4096 tokens in multiples of 4, not 4094",
    ),
    ("ramp-up", "tp8-pp12-mbs1-z1", {"ramp": "48,32"}, "the ramp-up from 48 by 32 never reaches global batch 2048"),
    ("ramp-up", "tp8-pp12-mbs1-z1", {"ramp": "4096,32"}, "the ramp-up from 4096 by 32 never reaches global batch 2048"),
    (
        "framework-offload",
        "tp8-pp12-mbs1-z1-emb-offopt",
        {},
        "megatron-deepspeed supports offload none, optimizer or optimizer+parameters, not optimizer, with "
        "embedding partition, ZeRO 1 and this model; megatron-core could run it (--framework)",
    ),
    ("batch-by-dp", "tp8-pp12-mbs3-z1", {}, "global batch 2048 is not divisible by micro_batch x dp = 3 x 4 = 12"),
    (
        "framework-dispatcher",
        "tp1-pp1-mbs1-z1-hybridep",
        {**EXPERTS, "framework": "deepspeed"},
        "deepspeed dispatches tokens by alltoall, not hybridep; megatron-core could run it (--framework)",
    ),
    (
        "framework-dispatcher",
        "tp1-pp1-mbs1-z2-ep2-deepep",
        {**EXPERTS, "framework": "fsdp2"},
        "fsdp2 dispatches no tokens to experts, but the dispatcher is deepep; torchtitan could run it (--framework)",
    ),
]
"""Topologies that break a rule in another way."""


@pytest.mark.parametrize(
    ("name", "key", "described", "message"),
    [*((name, *BREAKS[name], message) for name, message in MESSAGES.items()), *OTHERS],
)
def test_a_violation_has_this_message(name: str, key: str, described: Any, message: str) -> None:
    space = space_for(**described)
    columns = Columns.of(
        [parse_key(key, workload=space.workload, cluster=space.cluster)], space.workload, space.cluster
    )
    violation = BY_NAME[name].violation(columns)
    assert violation is not None
    assert violation.message == message


def test_every_rule_has_its_message_in_this_file() -> None:
    assert MESSAGES.keys() == BY_NAME.keys()
