"""The worker refuses unsupported jobs, and every law of the rules is enforced where a job runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers import WORKLOAD, Ranks, mixture, tiny, topology
from tuner.core import catalog
from tuner.core.columns import Columns
from tuner.core.domain import Workload
from tuner.space.rules.ruleset import LAWS

pytestmark = pytest.mark.slow

MIXTURE = replace(WORKLOAD, model=mixture(), framework="deepspeed")
FLASH = replace(WORKLOAD, precision="bf16", attention="flash2")
ENFORCED: dict[str, tuple[Workload, dict[str, Any], str]] = {
    "fill-nodes": (WORKLOAD, {"dp": 2, "ranks": 3}, "is not the number of ranks"),
    "heads-by-tp": (WORKLOAD, {"tp": 8}, "heads (4) is not divisible by tp=8"),
    "hidden-by-tp": (
        replace(WORKLOAD, model=tiny(hidden=60, heads=12)),
        {"tp": 8},
        "heads (12) is not divisible by tp=8",
    ),
    "ffn-by-tp": (replace(WORKLOAD, model=tiny(ffn=129)), {"tp": 2}, "ffn (129) is not divisible by tp=2"),
    "vocab-by-tp": (
        replace(WORKLOAD, model=tiny(vocab=127, vocab_multiple=0)),
        {"tp": 2},
        "the padded vocabulary (127) is not divisible by tp=2",
    ),
    "kv-heads-with-tp": (
        replace(WORKLOAD, model=tiny(hidden=48, heads=12, kv_heads=4)),
        {"tp": 6},
        "neither 4 key/value heads nor tp=6 divides the other",
    ),
    "heads-by-kv-heads": (
        replace(WORKLOAD, model=tiny(kv_heads=3)),
        {},
        "4 heads are not divisible by 3 key/value heads",
    ),
    "hidden-by-heads": (WORKLOAD, {"heads": 6}, "hidden 64 is not divisible by 6 heads"),
    "layers-by-pp": (WORKLOAD, {"pp": 3}, "4 layers, counted by layers, are not divisible by pp=3"),
    "layer-on-every-stage": (
        WORKLOAD,
        {"pp": 6, "partition": "embedding"},
        "4 layers, embedding and head over pp=6 stages leave a stage with the embedding alone",
    ),
    "vpp-needs-pp": (WORKLOAD, {"vpp": 2}, "does not interleave"),
    "layers-by-vpp": (WORKLOAD, {"vpp": 3, "pp": 2}, "does not interleave"),
    "microbatches-by-pp": (WORKLOAD, {"vpp": 2, "pp": 4}, "does not interleave"),
    "batch-by-dp": (WORKLOAD, {"dp": 3}, "global batch 8 is not divisible by micro_batch x dp = 4 x 3"),
    "offload-needs-zero": (WORKLOAD, {"offload": "optimizer"}, "offload optimizer needs ZeRO 1 or more, not 0"),
    "hsdp-by-dp": (WORKLOAD, {"dp": 2, "zero": 2, "hsdp": 2}, "no replica groups"),
    "hsdp-needs-sharding": (WORKLOAD, {"dp": 4, "hsdp": 2}, "no replica groups"),
    "experts-for-ep": (WORKLOAD, {"dp": 2, "ep": 2}, "'tiny' has no experts to spread over ep=2 ranks"),
    "experts-by-ep": (
        replace(MIXTURE, model=mixture(count=6)),
        {"dp": 4, "ep": 4},
        "6 experts are not divisible by ep=4",
    ),
    "ep-in-stage": (MIXTURE, {"dp": 2, "ep": 4}, "2 ranks are not divisible by ep=4"),
    "shared-ffn-by-tp": (
        replace(MIXTURE, model=mixture(shared_ffn=33)),
        {"tp": 2, "sequence_parallel": True},
        "the shared experts' width (33) is not divisible by tp=2",
    ),
    "experts-need-sp": (MIXTURE, {"tp": 2}, "experts need sequence parallelism over tp=2 ranks"),
    "experts-on-stages": (MIXTURE, {"pp": 4, "dp": 2, "ep": 2, "zero": 1}, "hangs unless every stage has experts"),
    "expert-ffn-by-etp": (MIXTURE, {"dp": 3, "etp": 3}, "has no expert tensor parallelism"),
    "one-dispatcher": (MIXTURE, {"dispatcher": "deepep"}, "no dispatcher deepep"),
    "framework-etp": (MIXTURE, {"dp": 2, "etp": 2}, "has no expert tensor parallelism"),
    "framework-moe-overlap": (MIXTURE, {"dp": 2, "ep": 2, "moe_overlap": True}, "does not overlap the exchange"),
    "framework-dispatcher": (MIXTURE, {"dp": 2, "ep": 2, "dispatcher": "deepep"}, "no dispatcher deepep"),
    "framework-partition": (
        replace(WORKLOAD, framework="deepspeed"),
        {"pp": 3, "partition": "layout"},
        "does not support partition layout",
    ),
    "framework-zero-with-ep": (MIXTURE, {"dp": 2, "ep": 2, "zero": 3}, "does not support ZeRO 3"),
    "sp-needs-tp": (WORKLOAD, {"sequence_parallel": True}, "but tp is 1"),
    "seq-by-tp": (
        replace(WORKLOAD, model=tiny(seq=33)),
        {"tp": 2, "sequence_parallel": True},
        "sequence length 33 is not divisible by tp=2",
    ),
    "seq-by-cp": (WORKLOAD, {"cp": 3}, "no context parallelism"),
    "cp-needs-flash": (WORKLOAD, {"cp": 2}, "no context parallelism"),
    "flash-precision": (replace(WORKLOAD, attention="flash2"), {}, "computes in 16 bits, but the precision is fp32"),
    "flash-head-size": (
        replace(FLASH, model=tiny(hidden=2048)),
        {},
        "head size 512 is more than the 256 of flash2",
    ),
}
"""A job that breaks each law, and the worker's message."""

ELSEWHERE = {
    "zero-without-pipeline": "DeepSpeed asserts it, and a test of its own meets that",
    "enough-nodes": "arithmetic about a cluster that a job does not see",
    "host-memory": "likewise",
    "one-partition": "two names for one split: the worker runs either",
    "framework-cp": "the worker refuses it: test_refusal_boundaries.py",
    "cp-by-heads": "of Transformer Engine, and the worker has no context parallelism",
    "cp-without-mask": "of accelerate",
    "fp8-sizes": "of Transformer Engine, and the worker has no fp8",
    "fp8-expert-sizes": "likewise",
    "fp8-weights-need-zero": "of Megatron-LM, and the worker has no fp8",
    "fp8-weights-without-offload": "likewise",
    "bf16-moments-need-zero": "of Megatron-LM, and the worker refuses the optimizer: test_refusal_boundaries.py",
    **dict.fromkeys(
        ("delta-net-heads", "framework-delta-net"), "the worker refuses Gated DeltaNet: test_refusal_boundaries.py"
    ),
    "muon-without-offload": "of Megatron-LM, and the worker refuses the optimizer: test_refusal_boundaries.py",
    "bf16-layers-in-stage": "of Megatron-LM, and the worker has no fp8",
    "framework-vpp": "likewise",
    "framework-hsdp": "likewise",
    "framework-ep": "the worker has it: test_experts.py",
    "dispatcher-for-gpu": "the worker has neither DeepEP nor HybridEP on any GPU",
    "overlap-of-experts": "of Megatron-Core, and the worker has no overlap",
    **dict.fromkeys(("deepep-ranks", "deepep-in-node", "hybridep-by-domain"), "likewise"),
    "framework-offload": "the worker has all kinds: test_losses.py",
    "framework-pp": "the worker has it",
    "framework-sequence-parallel": "the worker has it",
    "framework-zero": "DeepSpeed has all stages",
    "framework-recompute": "the worker has all granularities",
    "recompute-modules": "of Megatron-Core, and the worker refuses modules: test_refusal_boundaries.py",
    **dict.fromkeys(("recompute-delayed-fp8", "recompute-moe-act"), "likewise"),
    "expert-biases": "of Megatron-Core, and the worker has no expert tensor parallelism",
    "framework-fork": "about repositories of Megatron-DeepSpeed",
}


def test_every_law_is_enforced_by_the_worker_or_deepspeed() -> None:
    assert {rule.name for rule in LAWS} == set(ENFORCED) | set(ELSEWHERE)


@pytest.mark.parametrize("law", ENFORCED)
def test_a_job_that_breaks_a_law_is_refused_in_one_sentence(law: str, ranks: Ranks) -> None:
    """Its exit code is 2, before the ranks connect, and the rules predict it."""
    workload, axes, said = ENFORCED[law]
    chosen = topology(**{name: value for name, value in axes.items() if name != "ranks"})
    cluster = catalog.make_cluster(name="any", gpu=catalog.gpu("A100-80GB-SXM"), nodes=1, gpus_per_node=chosen.gpus)
    if law == "fill-nodes":
        cluster = replace(cluster, gpus_per_node=axes["ranks"])
    (rule,) = (rule for rule in LAWS if rule.name == law)
    assert rule.violation(Columns.of([chosen], workload, cluster))
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4}
    job = ranks.run(workload, chosen, alone=axes.get("ranks", chosen.gpus), config=config)
    assert job.codes == [2]
    assert job.err.startswith("worker: ")
    assert job.err.count("\n") == 1
    assert said in job.err
    assert not (job.folder / "result.json").exists()


def test_deepspeed_refuses_zero_2_and_3_in_a_pipeline(ranks: Ranks) -> None:
    """A job that breaks the law `zero-without-pipeline` fails with DeepSpeed's own assertion."""
    for zero in (2, 3):
        job = ranks.run(WORKLOAD, topology(pp=2, zero=zero))
        assert job.failed, job.codes
        assert "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism" in job.err


UNBUILT: dict[str, tuple[Workload, dict[str, Any], str]] = {
    "fused attention": (replace(WORKLOAD, attention="fused"), {}, "no fused attention, which is Megatron's kernel"),
    "fp8": (replace(WORKLOAD, precision="fp8"), {}, "fp32, bf16 or fp16, not in fp8"),
    "plain layers": (replace(WORKLOAD, plain_layers=True), {}, "not plain layers under autocast"),
    "sandwich norms": (replace(WORKLOAD, model=tiny(norms_per_layer=4)), {}, "but the model has 4"),
    "projected embeddings": (replace(WORKLOAD, model=tiny(embedding_size=32)), {}, "does not project embeddings"),
    "a tied head's bias": (replace(WORKLOAD, model=tiny(head_bias=True)), {}, "tied output layer has no bias"),
    "few positions": (replace(WORKLOAD, model=tiny(max_positions=16)), {}, "16 learned positions are fewer"),
    "alibi and flash": (replace(FLASH, model=tiny(positions="alibi")), {}, "no linear biases (alibi)"),
    "odd rotation": (replace(WORKLOAD, model=tiny(hidden=60, positions="rotary")), {}, "even head size, not 15"),
    "another batch": (WORKLOAD, {"global_batch": 16}, "ds_config has train_batch_size 8"),
    "another stage of ZeRO": (WORKLOAD, {"zero": 1}, "ds_config has ZeRO stage 0"),
}


@pytest.mark.parametrize("case", UNBUILT)
def test_unsupported_models_are_refused_in_one_sentence(case: str, ranks: Ranks) -> None:
    workload, axes, said = UNBUILT[case]
    chosen = topology(**axes)
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
    job = ranks.run(workload, chosen, alone=chosen.gpus, config=config)
    assert job.codes == [2]
    assert job.err.startswith("worker: ")
    assert job.err.count("\n") == 1
    assert said in job.err


def test_an_unreadable_assignment_is_refused_by_name(ranks: Ranks, tmp_path: Path) -> None:
    for text, said in BROKEN.items():
        (tmp_path / "job.json").write_text(text)
        (tmp_path / "stderr.log").unlink(missing_ok=True)
        assert ranks.start(tmp_path, 1) == [2]
        assert said in (tmp_path / "stderr.log").read_text()


BROKEN = {
    "{": "cannot be read",
    "[]": "its schema must be 'tuner/assignment/1'",
    '{"schema": "tuner/assignment/1"}': "an assignment's workload must be an object",
    '{"schema": "tuner/assignment/1", "workload": {"modle": 1}}': "workload has no field modle",
}
