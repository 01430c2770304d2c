"""The count of operations, compared with the BLOOM report's figures and the published formula."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT, Run
from tests.strategies import clusters, models, topologies
from tuner.core.catalog import cluster, model
from tuner.core.columns import Columns
from tuner.core.domain import Cluster, Topology, Workload
from tuner.core.model import Model
from tuner.costmodel.flops import forward_terms, hardware_flops, model_flops, older_estimate, per_gpu, training_seconds

ROWS = list(csv.DictReader((ROOT / "corpus/bloom-a100.csv").read_text(encoding="utf-8").splitlines()))
CORRECTED = [row for row in ROWS if row["tflops"] and row["group"] >= "bloom-02-21"]
OLDER = [row for row in ROWS if row["tflops"] and row["group"] < "bloom-02-21"]

MISPRINTS = {
    "line 319": "its DP makes 640 GPUs of 40 nodes",
    "line 329": "one node at a global batch of 512, not 2048 as printed",
    "line 330": "one node at a global batch of 512, not 2048 as printed",
    "line 331": "one node at a global batch of 512, not 2048 as printed",
    "line 341": "still by the older formula",
}
"""Rows of the corrected tables with inconsistent figures, by their line in the report, and the reason."""


def _columns(row: dict[str, str], **other: int) -> Columns:
    shape = Model(
        layers=int(row["layers"]), hidden=int(row["hidden"]), heads=int(row["heads"] or 64), vocab=250880, seq=2048
    )
    workload = Workload(model=shape, global_batch=other.pop("gbs", int(row["gbs"])))
    topology = Topology(
        nodes=int(row["nodes"]),
        tp=int(row["tp"]),
        pp=int(row["pp"]),
        dp=other.pop("dp", int(row["dp"] or 1)),
        micro_batch=int(row["mbs"]),
        zero=int(row["zero"]),
    )
    return Columns.of([topology], workload, cluster("bloom-48"))


def _agrees(flops: object, row: dict[str, str], columns: Columns) -> bool:
    """Whether the printed TFLOPs follow from the printed seconds, within the rounding of both."""
    assert isinstance(flops, np.ndarray)
    seconds, printed = float(row["sec_per_iter"]), float(row["tflops"])
    least, most = (float(per_gpu(flops, seconds + half, columns)[0]) / 1e12 for half in (0.005, -0.005))
    return least - 0.005 <= printed <= most + 0.005


@pytest.mark.parametrize("row", CORRECTED, ids=lambda row: f"{row['group']}-{row['note']}")
def test_every_corrected_figure_of_the_bloom_report_comes_out_to_its_last_digit(row: dict[str, str]) -> None:
    columns = _columns(row)
    assert _agrees(hardware_flops(columns), row, columns) == (row["note"] not in MISPRINTS)


@pytest.mark.parametrize("row", OLDER, ids=lambda row: f"{row['group']}-{row['note']}")
def test_the_figures_before_the_correction_come_out_by_the_older_estimate(row: dict[str, str]) -> None:
    """The older estimate gives the older figures to the last digit, except one log line that is 0.007 off."""
    columns = _columns(row)
    if row["note"] == "line 61":
        figure = per_gpu(older_estimate(columns), float(row["sec_per_iter"]), columns)
        assert float(figure[0]) / 1e12 == pytest.approx(float(row["tflops"]), abs=0.008)
    else:
        assert _agrees(older_estimate(columns), row, columns)


def test_the_misprints_agree_once_they_are_repaired() -> None:
    """The misprinted rows are consistent after their repair: DP 4 on 320 GPUs, a batch of 512, the older formula."""
    by_line = {row["note"]: row for row in ROWS}
    repaired = [
        _agrees(hardware_flops(c), by_line[line], c)
        for line, other in (
            ("line 319", {"dp": 4}),
            ("line 329", {"gbs": 512}),
            ("line 330", {"gbs": 512}),
            ("line 331", {"gbs": 512}),
        )
        for c in [_columns(by_line[line], **other)]
    ]
    older = _columns(by_line["line 341"])
    assert all(repaired)
    assert _agrees(older_estimate(older), by_line["line 341"], older)


@given(
    st.sampled_from([1, 8, 72]),
    st.sampled_from([1024, 14336]),
    st.sampled_from([512, 2048]),
    st.sampled_from([1024, 250880]),
    st.sampled_from([1, 2048]),
)
def test_a_plain_gpt_takes_the_published_formula(layers: int, hidden: int, seq: int, vocab: int, batch: int) -> None:
    """A plain GPT takes 96 B s L h^2 (1 + s/6h + V/16Lh), with 3/4 of the layers' part without recompute."""
    plain = Model(layers=layers, hidden=hidden, heads=8, vocab=vocab, seq=seq)
    topology = Topology(nodes=1, tp=8, pp=1, dp=1, micro_batch=1)
    columns = Columns.of([topology], Workload(model=plain, global_batch=batch), cluster("bloom-48"))
    base = 96 * batch * seq * layers * hidden**2
    with_logits = base * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))
    assert float(hardware_flops(columns)[0]) == pytest.approx(with_logits)
    without = base * (0.75 * (1 + seq / (6 * hidden)) + vocab / (16 * layers * hidden))
    assert float(model_flops(columns)[0]) == pytest.approx(without)


@given(topologies(), models(), clusters())
def test_recompute_adds_and_the_split_over_gpus_does_not(topology: Topology, drawn: Model, machines: Cluster) -> None:
    workload = Workload(model=drawn, global_batch=32)

    def counted(**other: object) -> tuple[float, float]:
        columns = Columns.of([replace(topology, **other)], workload, machines)  # type: ignore[arg-type]
        return float(model_flops(columns)[0]), float(hardware_flops(columns)[0])

    none, selective, full = (counted(recompute=recompute) for recompute in ("none", "selective", "full"))
    assert none[0] == none[1] == selective[0] == full[0]
    assert none[1] <= selective[1] < full[1]
    trained = replace(drawn, layers=topology.shape.layers) if topology.shape else drawn
    assert (none[1] < selective[1]) == (trained.delta_layers < trained.layers)
    terms = forward_terms(Columns.of([topology], workload, machines))
    assert full[1] == pytest.approx(full[0] + float(terms["layers"][0] + terms["scores"][0]))
    if not drawn.vocab_multiple:
        assert counted(pp=1, dp=1, tp=1, cp=1, nodes=1, micro_batch=1) == counted(pp=2, dp=3, tp=4, nodes=5)


def test_a_lopsided_model_counts_by_its_own_mlp() -> None:
    """A model with an unusual MLP width is counted with that width, as in the 104B report's 58B model."""
    topology = Topology(nodes=32, tp=4, pp=32, dp=1, micro_batch=1)

    def counted(name: str) -> float:
        workload = Workload(model=model(name), global_batch=2048)
        return float(hardware_flops(Columns.of([topology], workload, cluster("tr8-v100")))[0])

    layers = 8 * 2048 * 2048 * 32
    narrower = layers * 2 * 16384 * (65536 - 20480)
    assert counted("tr8-104b") - counted("tr8-58b") == pytest.approx(narrower)


def test_grouped_queries_and_gates_count_by_their_matrices() -> None:
    """For LLaMA 3 8B, each of the 6.98e9 weights of the layers' matrices counts once per token."""
    llama = model("llama-3-8b")
    topology = Topology(nodes=1, tp=1, pp=1, dp=8, micro_batch=1, recompute="none")
    columns = Columns.of([topology], Workload(model=llama, global_batch=1), cluster("bloom-48"))
    norms = 2 * llama.hidden
    assert float(columns.layer_matrices[0]) == llama.layer_parameters - norms
    terms = forward_terms(columns)
    assert float(terms["layers"][0]) == pytest.approx(2 * llama.seq * llama.layers * (llama.layer_parameters - norms))
    assert float(terms["logits"][0]) == pytest.approx(2 * llama.seq * llama.hidden * llama.vocab)
    assert float(terms["scores"][0]) == pytest.approx(4 * llama.seq**2 * llama.hidden * llama.layers)


ENOKI_DAYS = [(28, 108, 2.1), (32, 84, 3.9), (36, 67, 6.7), (40, 46, 13.2), (44, 36, 22.0), (48, 30, 33.9)]
"""The Enoki report's table: heads, tp=1 tok/s in thousands, Chinchilla days."""


@pytest.mark.parametrize(("heads", "kilo_tokens", "days"), ENOKI_DAYS)
def test_the_enoki_reports_chinchilla_days_come_out_of_its_own_tokens_a_second(
    heads: int, kilo_tokens: int, days: float
) -> None:
    """The report's days follow from its tokens per second, within the rounding of both."""
    workload = Workload(model=model(f"enoki-{heads}"), global_batch=512)
    topology = Topology(nodes=1, tp=1, pp=1, dp=4, micro_batch=4)
    columns = Columns.of([topology], workload, cluster("enoki-h100"))
    slowest, fastest = (
        float(training_seconds(512 * 2048 / (1000 * (kilo_tokens + half)), columns)[0]) / 86400 for half in (-0.5, 0.5)
    )
    assert fastest - 0.05 <= days <= slowest + 0.05
    assert slowest / fastest < 1.04


def test_the_flops_command_reads_a_row_of_the_bloom_report(run: Run) -> None:
    """For line 278 of the report, 143.31 s, `tuner flops` prints 112.49 TFLOPs."""
    said = run("flops", "tp8-pp12-dp4-mbs1-z1", "--seconds", "143.31")
    assert said.code == 0
    assert "112.49 TFLOPs per GPU with recompute: HFU 36.1% of 312 TFLOPs" in said.out
    older = 8 * 2048 * 2048 * 72 * (12 * 14336**2 + 55 * 14336) / (143.31 * 384) / 1e12
    assert f"{older:.2f} TFLOPs by the formula of Megatron-DeepSpeed before February 2022" in said.out
    document = json.loads(run("flops", "tp8-pp12-dp4-mbs1-z1", "--seconds", "143.31", "--price", "2", "--json").out)
    assert document["schema"] == "tuner/flops/1"
    assert round(document["tflops"], 2) == 112.49
    assert document["days"] == pytest.approx(143.31 * 20 * 181_209_477_120 / (2048 * 2048) / 86400)
    assert document["gpu_hours"] == pytest.approx(document["days"] * 24 * 384)
    assert document["cost"] == pytest.approx(2 * document["gpu_hours"])


@pytest.mark.parametrize(
    ("framework", "printed"), [("megatron-core", False), ("megatron-deepspeed", True), ("any", True)]
)
def test_the_older_formula_is_given_for_the_framework_that_printed_it(run: Run, framework: str, printed: bool) -> None:
    key = ("flops", "tp8-pp12-dp4-mbs1-z1", "--seconds", "143.31", "--framework", framework)
    assert ("before February 2022" in run(*key).out) is printed
    assert (json.loads(run(*key, "--json").out)["tflops_by_older_formula"] is not None) is printed


def test_the_flops_command_trains_the_model_that_the_key_names(run: Run) -> None:
    """The default tokens are twenty per parameter of the model in the key, not of the default model."""
    document = json.loads(run("flops", "tp8-pp6-dp8-mbs4-z1-13824x78", "--json").out)
    assert document["tokens"] == 20 * model("bloom-13824x78").parameters


def test_the_flops_command_counts_without_a_time_too(run: Run) -> None:
    document = json.loads(run("flops", "tp8-pp12-dp4-mbs1-z1", "--json").out)
    assert document["tflops"] is None
    assert document["hardware_flops"] > document["model_flops"] > 0
    assert run("flops", "tp8-pp12-dp4-mbs1-z1", "--seconds", "0").code == 2
    assert run("flops", "tp8-pp12-dp4-mbs1-z1", "--seconds", "nan").code == 2
