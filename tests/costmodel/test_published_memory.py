"""Published memory figures: the stage that they refer to, and Megatron-Core's bytes counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import ROOT
from tuner.core.catalog import gpu, make_cluster
from tuner.core.columns import Columns
from tuner.core.domain import Framework, MemoryStage, Topology, Workload
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.costmodel.activations import score_bytes
from tuner.costmodel.evaluation import evaluate
from tuner.costmodel.expert_memory import expert_activations
from tuner.costmodel.kernels import workspaces
from tuner.costmodel.memory import memory_terms, shown_bytes
from tuner.costmodel.site_factors import SiteFactors
from tuner.costmodel.stages import Stages
from tuner.tables import Row, read_table, table_of

SITE = SiteFactors()
HIDDEN, VOCAB, SEQ, MICRO_BATCH = 512, 51200, 1024, 4
TOKENS = SEQ * MICRO_BATCH
HEADER = "gpu,layers,hidden,heads,seq,mbs,gbs,tp,pp,dp,vocab,mem_gib"
VALUES = "A100-80GB-SXM,12,512,8,1024,4,8,1,4,2,51200,2"


def columns(framework: Framework | None, card: str = "A100-80GB-SXM", **fields: object) -> Columns:
    """Return a small GPT in a pipeline of four stages with three layers each."""
    model = Model(layers=12, hidden=HIDDEN, heads=8, vocab=VOCAB, vocab_multiple=0, seq=SEQ, positions="none")
    workload = Workload(model=model, global_batch=32, precision="bf16", attention="flash2", framework=framework)
    cluster = make_cluster(name="one node", nodes=1, gpus_per_node=8, gpu=gpu(card))
    topology = Topology(nodes=1, tp=1, pp=4, dp=2, micro_batch=MICRO_BATCH, zero=0, recompute="none")
    return Columns.of([replace(topology, **fields)], workload, cluster)  # type: ignore[arg-type] # any field


def row(**more: str) -> Row:
    """Return a table row with these additional cells."""
    text = f"{','.join([HEADER, *more])}\n{','.join([VALUES, *more.values()])}\n"
    return table_of(text, "one.csv").rows[0]


@pytest.mark.parametrize(
    ("cells", "stage"),
    [
        ({}, "first"),
        ({"framework": "megatron-core", "mem_kind": "allocated"}, "last"),
        ({"framework": "megatron-core", "mem_kind": "smi"}, "first"),
        ({"framework": "megatron-core"}, "first"),
        ({"framework": "megatron-core", "mem_kind": "allocated", "mem_stage": "first"}, "first"),
        ({"framework": "megatron-bridge", "mem_kind": "allocated"}, "first"),
        ({"mem_stage": "LAST"}, "last"),
    ],
)
def test_the_stage_that_was_looked_at(cells: dict[str, str], stage: MemoryStage) -> None:
    """A memory figure is of the first stage, except Megatron-Core's allocated bytes, logged on the last rank."""
    assert row(**cells).memory_stage == stage


def test_a_stage_that_is_none_of_the_two_is_refused() -> None:
    assert row(mem_stage="middle").skipped == "mem_stage must be first or last, not 'middle'."


def test_a_row_is_compared_with_its_own_stage() -> None:
    table = table_of(f"{HEADER},mem_stage\n{VALUES},first\n{VALUES},last\n", "two.csv")
    first, last = (guess.memory for guess in evaluate(table).guesses.values())
    run = table.rows[0].run
    assert run is not None
    known = Columns.of([run.topology], run.workload, run.cluster)
    assert first == pytest.approx(float(shown_bytes(known, SITE, "smi", "first")[0]))
    assert last == pytest.approx(float(shown_bytes(known, SITE, "smi", "last")[0]))
    assert first != pytest.approx(last)


@pytest.mark.parametrize(
    ("framework", "size"), [("megatron-core", 2 + 4), ("megatron-deepspeed", 2 + 4 + 4), (None, 2 + 4 + 4)]
)
def test_logits_of_a_parallel_loss(framework: Framework | None, size: int) -> None:
    """A parallel loss has 16-bit logits and an fp32 copy; only Megatron-Core computes the softmax in place."""
    found = columns(framework)
    assert float(memory_terms(Stages.last(found), SITE)["logits"][0]) == size * TOKENS * VOCAB
    assert float(memory_terms(Stages.first(found), SITE)["logits"][0]) == 0.0


def test_megatron_cores_unfused_attention_keeps_its_scores() -> None:
    """Megatron-Core's unfused attention counts as fused, because its softmax is fused and keeps as many bytes."""
    run = row(attention="unfused", framework="megatron-core").run
    assert run is not None
    assert run.workload.attention == "fused"


@pytest.mark.parametrize(
    ("framework", "card", "bytes_each"),
    [
        ("megatron-core", "H100-80GB-SXM", 4),
        ("megatron-core", "A100-80GB-SXM", 4 + 2 * HIDDEN // 8),
        ("megatron-deepspeed", "A100-80GB-SXM", 4),
        (None, "H100-80GB-SXM", 4),
    ],
)
def test_flash_attention_keeps_its_output_twice_under_transformer_engine(
    framework: Framework | None, card: str, bytes_each: int
) -> None:
    """Before Hopper, Transformer Engine's flash attention keeps its output twice, in addition to the fp32 row sums."""
    found = columns(framework, card)
    assert float(score_bytes(found)[0]) == TOKENS * 8 * bytes_each


@pytest.mark.parametrize(
    ("card", "dense", "experts"),
    [
        ("A100-80GB-SXM", (2 * 4096 + 8 * 16) * 2**10 + 4 * 2**20, (2 * 4096 + 8 * 16) * 2**10 + 5 * 4 * 2**20),
        ("H100-80GB-SXM", 2 * 32 * 2**20, 6 * 32 * 2**20),
        ("GB200-192GB", 2 * 32 * 2**20, 6 * 32 * 2**20),
    ],
)
def test_workspaces_of_products(card: str, dense: int, experts: int) -> None:
    """PyTorch and Transformer Engine have one workspace each, and grouped products one for each of four streams."""
    plain = columns("megatron-core", card).workload
    routed = replace(plain, model=replace(plain.model, experts=Experts(count=8, top_k=2, ffn=64)))
    assert [workspaces(gpu(card), workload) for workload in (plain, routed)] == [dense, experts]
    assert float(memory_terms(Stages.first(columns("megatron-core", card)), SITE)["workspaces"][0]) == dense
    assert "workspaces" not in memory_terms(Stages.first(columns("megatron-deepspeed", card)), SITE)


def test_the_last_stage_keeps_the_input_and_output_of_the_last_norm() -> None:
    """The last stage keeps the final norm's input and output in addition to one microbatch of its layers.

    The first stage has four microbatches in flight.
    """
    found = columns("megatron-core", "H100-80GB-SXM")
    first, last = (float(memory_terms(stage(found), SITE)["activations"][0]) for stage in (Stages.first, Stages.last))
    assert last - first / 4 == pytest.approx(2 * 2 * TOKENS * HIDDEN)


@pytest.mark.parametrize(("gated", "widths"), [(True, 2 + 1), (False, 1 + 1 + 1)])
def test_what_experts_keep(gated: bool, widths: int) -> None:
    """Experts keep gate, up and the weighted product, or the activation's input, output and weighted output."""
    plain = columns("megatron-core")
    model = replace(plain.workload.model, gated_mlp=gated, experts=Experts(count=8, top_k=2, ffn=64))
    found = Columns(replace(plain.workload, model=model), plain.cluster, plain.arrays)
    routed = 2 * 2 * TOKENS * (HIDDEN + widths * 64)
    assert float(expert_activations(found)[0]) == routed + 4 * TOKENS * 8


def test_the_largest_batches_that_fit_do_fit_and_nearly_fill_the_gpu() -> None:
    """llm-foundry halves the micro-batch until a run fits."""
    guesses = evaluate(read_table(ROOT / "corpus/mpt-fsdp-a100.csv")).guesses.values()
    assert [guess.row.group for guess in guesses if guess.out_of_memory > 0.5] == []
    filled = [guess.need / guess.row.run.cluster.gpu.memory for guess in guesses if guess.row.run]
    assert 0.85 < max(filled) < 1
