"""The worker's parts in this process, without ranks: FLOPs, output, losses and vocabulary."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.test_worker_arithmetic import maker, place, torch
from tests.worker.thread_ranks import Group, threads
from tests.workers import TINY, WORKLOAD, mixture, tiny, topology
from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.worker import ranks, report, train, vocabulary
from tuner.worker.linear import Recipe
from tuner.worker.mlp import Router

__all__ = ["threads"]  # fixture

WIDE: Model = tiny(layers=2, hidden=8, heads=4, kv_heads=2, ffn=16, seq=16, vocab=100, vocab_multiple=10)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_flops_of_an_iteration_follow_narayanan(gated: bool, recompute: str) -> None:
    """3 x (layers + scores + logits) and recomputation, for 64 tokens and a vocabulary padded to 120."""
    workload = replace(WORKLOAD, model=replace(WIDE, gated_mlp=gated), global_batch=4)
    layers = 2 * 64 * 2 * (2 * 8 * (8 + 4) + (3 if gated else 2) * 8 * 16)
    scores, logits = 4 * 64 * 2 * 16 * 8, 2 * 64 * 8 * 120
    again = {"none": 0, "selective": scores, "full": layers + scores}[recompute]
    assert report.hardware_flops(workload, 3, recompute) == 3 * (layers + scores + logits) + again


def iteration(**changes: Any) -> report.TimedIteration:
    """Return the third iteration, which took half a second."""
    usual: dict[str, Any] = {"number": 3, "seconds": 0.5, "loss": 2.5, "learning_rate": 1e-3, "skipped": 1}
    usual |= {"global_batch": 8, "consumed": 24}
    return report.TimedIteration(**usual | changes)


def fields(line: str) -> dict[str, str]:
    """Return the fields of an iteration's line."""
    return {name.strip(): value.strip() for name, _, value in (part.partition(": ") for part in line.split("|")[1:-1])}


def test_a_line_has_the_samples_tokens_and_rates_of_an_iteration() -> None:
    line = report.iteration_line(iteration(), 10, WORKLOAD, topology(dp=2))
    assert line.startswith(" iteration        3/      10 | consumed samples:           24 | ")
    assert line.endswith(" |")
    rate = report.hardware_flops(WORKLOAD, 1, "none") / (0.5 * 2)
    assert fields(line) == {
        "consumed samples": "24",
        "consumed tokens": "768",
        "elapsed time per iteration (ms)": "500.000",
        "learning rate": "1.000E-03",
        "global batch size": "8",
        "lm loss": "2.500000E+00",
        "number of skipped iterations": "1",
        "number of nan iterations": "0",
        "samples per second": "16.000",
        "TFLOPs": f"{rate / 1e12:.3E}",
    }
    assert (
        fields(report.iteration_line(iteration(loss=math.nan), 10, WORKLOAD, topology()))["number of nan iterations"]
        == "1"
    )


@pytest.mark.parametrize(("rate", "shown"), [(9.99e9, "9.990E-03"), (1e10, "0.01"), (2.5e12, "2.50")])
def test_low_rates_are_printed_with_an_exponent(rate: float, shown: str) -> None:
    seconds = report.hardware_flops(WORKLOAD, 1, "none") / rate
    assert fields(report.iteration_line(iteration(seconds=seconds), 9, WORKLOAD, topology()))["TFLOPs"] == shown


def test_progress_is_printed_at_most_every_half_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The times are 10.0, 10.4 (too early, but nothing was printed yet), 10.8 (too early), 10.9 and 20 s."""
    clock = iter([10.0, 10.4, 10.8, 10.9, 20.0, 20.6])
    monkeypatch.setattr("tuner.worker.report.time.perf_counter", lambda: next(clock))
    progress = report.Progress(speaks=True, started=0.0)
    for first, number in [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]:
        progress.begins(first, number, 8)
    assert capsys.readouterr().out.splitlines() == [
        " microbatch     1/    8 of iteration 1 | elapsed (s): 0.400 |",
        " microbatch     3/    8 of iteration 1 | elapsed (s): 0.900 |",
        " microbatch     1/    8 of iteration 2 | elapsed (s): 0.600 |",
    ]


def test_only_one_rank_prints_progress(capsys: pytest.CaptureFixture[str]) -> None:
    report.Progress(speaks=False).begins(1, 3, 8)
    assert capsys.readouterr().out == ""


def test_the_result_has_all_ranks_and_iterations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [
        {"rank": 0, "allocated": 5, "reserved": 6, "trained_parameters": 7, "frozen_parameters": 8},
        {"rank": 1, "allocated": 9, "reserved": 10, "trained_parameters": 11, "frozen_parameters": 12},
    ]
    found = report.result([iteration()], figures, WORKLOAD, topology(dp=2))
    assert (found["schema"], found["key"]) == ("tuner/worker/1", topology(dp=2).key)
    assert (found["model"], found["ranks"], found["memory_kind"]) == ("tiny", 2, "resident")
    assert found["iterations"] == [{"number": 3, "global_batch": 8, "seconds": 0.5, "loss": 2.5, "skipped": 1}]
    assert found["peak_memory"][1] == {"rank": 1, "allocated": 9, "reserved": 10}
    assert found["parameters"][1] == {"rank": 1, "trained": 11, "frozen": 12}
    report.write(found, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == found
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(("code", "sentence"), [(-9, "was killed by signal 9"), (3, "failed with exit code 3")])
def test_a_failed_rank_is_described_by_its_exit_code(code: int, sentence: str) -> None:
    assert ranks._describe_exit(code) == sentence


class Engine:
    """An engine whose loss is the sum of its tokens."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def gradient_accumulation_steps(self) -> int:
        """Return 3."""
        return 3

    def __call__(self, tokens: Any, labels: Any) -> Any:
        self.calls.append("forward")
        return (tokens.sum() + labels.sum()).float()

    def backward(self, _loss: Any) -> None:
        """Record the call."""
        self.calls.append("backward")

    def step(self) -> None:
        """Record the call."""
        self.calls.append("step")


def test_the_loss_of_an_iteration_is_the_mean_of_its_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is (1 + 2 + 3) / 3 on one replica, and the same over two replicas with equal losses, divided by 3 x 2."""
    engine, added = Engine(), []

    def add_up(total: Any, group: Any) -> None:
        added.append(group)
        total *= 2

    monkeypatch.setattr("tuner.worker.train.dist.all_reduce", add_up)
    batches = [(torch.tensor([value]), torch.tensor([0])) for value in (1, 2, 3)]
    assert train._plain_step(engine, iter(batches), "replicas", place()) == pytest.approx(2.0)
    assert engine.calls == ["forward", "backward", "step"] * 3
    assert added == []
    assert train._plain_step(engine, iter(batches), "replicas", place(dp=2)) == pytest.approx(2.0)
    assert added == ["replicas"]


def test_adam_on_a_cpu_is_torchs(tmp_path: Path) -> None:
    for optimizer, params in [("AdamW", {"torch_adam": True}), ("Adam", {"torch_adam": True}), ("SGD", {})]:
        config: dict[str, Any] = {"optimizer": {"type": optimizer, "params": {}}, "wall_clock_breakdown": True}
        train.adapt(config)
        assert config["optimizer"]["params"] == params
        assert config["wall_clock_breakdown"] is False
    for text, sentence in [("[]", "is not a JSON object"), ("{", "cannot be read")]:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match=sentence):
            train.load_config(tmp_path / "config.json")


@pytest.mark.parametrize("tp", [1, 2])
def test_padding_of_the_vocabulary_does_not_affect_the_loss(tp: int) -> None:
    """Equal logits of 100 tokens have a loss of log 100, whatever the logits of the 28 padding rows."""
    workload = replace(WORKLOAD, model=replace(TINY, vocab=100))
    loss = vocabulary.Loss(workload, place(tp=1))
    padded = workload.model.padded_vocab(1)
    assert (loss.start, loss.vocab) == (0, 100)
    logits = torch.zeros(2, 3, padded)
    logits[..., 100:] = 50.0
    labels = torch.tensor([[0, 99], [1, 2], [3, 4]])
    assert float(loss(logits, labels)) == pytest.approx(math.log(100))
    logits[1, 0, 99] = 1.0  # position 1 of sample 0, whose label is 99
    expected = (5 * math.log(100) + 0) / 6
    right = math.log(99 + math.e) - 1
    assert float(loss(logits, labels)) == pytest.approx(expected + right / 6)
    second = vocabulary.Loss(workload, place(tp=tp, tp_rank=tp - 1))
    assert second.start == workload.model.padded_vocab(tp) * (tp - 1) // tp


def test_a_rank_looks_up_its_own_rows_of_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two ranks has the upper half of the padded vocabulary; other tokens give zeros."""
    recipe = Recipe(workload=WORKLOAD, recompute_attention=False, microbatches=1)
    padded = TINY.padded_vocab(2)
    monkeypatch.setattr(vocabulary, "reduced", lambda found, _group: found)
    words = vocabulary.Words(recipe, maker("words", tp=2, tp_rank=1))
    assert words.rows == range(padded // 2, padded)
    start = words.rows.start
    vectors = words(torch.tensor([[start - 1, start, padded - 1]]))
    assert vectors.shape == (3, 1, 64)
    assert float(vectors[0].detach().abs().max()) == 0
    assert torch.equal(vectors[1, 0], words.weight[0])
    assert torch.equal(vectors[2, 0], words.weight[-1])


def test_learned_positions_are_added_from_the_first_on() -> None:
    recipe = Recipe(workload=WORKLOAD, recompute_attention=False, microbatches=1)
    positions: Any = vocabulary.Positions(recipe, maker("positions"))
    vectors = torch.zeros(5, 2, 64)
    assert torch.equal(positions(vectors)[:, 0], positions.weight[:5])
    assert torch.equal(positions(vectors)[:, 1], positions.weight[:5])
    assert positions.norm is None


@pytest.mark.parametrize(
    ("offload", "found"),
    [("none", []), ("optimizer", ["True", "none"]), ("optimizer+parameters", ["True", "cpu"])],
)
def test_a_job_prints_its_offload(offload: Any, found: list[str]) -> None:
    lines = [line.split() for line in report.argument_lines(WORKLOAD, topology(offload=offload))]
    assert [line[-1] for line in lines if line[0] in ("cpu_optimizer", "remote_device")] == found


def printed(workload: Workload, chosen: Topology) -> dict[str, str]:
    """Return the arguments that a job prints."""
    lines = [line.split(maxsplit=2) for line in report.argument_lines(workload, chosen)]
    return {name: value for name, dots, value in lines if set(dots) == {"."}}


def test_a_job_prints_every_property_of_topology_and_model() -> None:
    """One model has only distinct sizes, and the other the opposite of every switch."""
    chosen = topology(tp=2, pp=3, dp=5, micro_batch=7, zero=1)
    sizes = {"layers": 6, "hidden": 48, "heads": 8, "kv_heads": 4, "ffn": 80, "seq": 16, "vocab": 100}
    model = tiny(**sizes, head_size=9, vocab_multiple=55)
    dense = Workload(model=model, global_batch=35, precision="bf16", attention="eager")
    expected = {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 3,
        "data_parallel_size": 5,
        "world_size": 30,
        "sequence_parallel": False,
        "zero_stage": 1,
        "micro_batch_size": 7,
        "global_batch_size": 35,
        "recompute_granularity": None,
        "pp_partition_method": None,
        "num_layers": 6,
        "hidden_size": 48,
        "ffn_hidden_size": 80,
        "num_attention_heads": 8,
        "group_query_attention": True,
        "num_query_groups": 4,
        "kv_channels": 9,
        "seq_length": 16,
        "padded_vocab_size": 110,
        "swiglu": False,
        "untie_embeddings_and_output_weights": False,
        "fp16": False,
        "bf16": True,
        "use_flash_attn": False,
    }
    assert printed(dense, chosen) == {name: str(value) for name, value in expected.items()}
    other = replace(chosen, recompute="full", partition="embedding", sequence_parallel=True)
    switched = replace(model, kv_heads=8, gated_mlp=True, tied_embeddings=False)
    changes = {
        "sequence_parallel": True,
        "recompute_granularity": "full",
        "group_query_attention": False,
        "pp_partition_method": "type:transformer|embedding",
        "num_query_groups": 8,
        "swiglu": True,
        "untie_embeddings_and_output_weights": True,
        "fp16": True,
        "bf16": False,
        "use_flash_attn": True,
    }
    found = printed(replace(dense, model=switched, precision="fp16", attention="flash2"), other)
    assert found == {name: str(value) for name, value in (expected | changes).items()}


@pytest.mark.parametrize("shared", [0, 32])
def test_a_job_prints_the_experts_of_its_model(shared: int) -> None:
    model = mixture(count=8, top_k=2, ffn=24, shared_ffn=shared, shared_gate=shared > 0, dense_layers=1)
    found = printed(replace(WORKLOAD, model=model, routing="balanced"), topology(dp=4, ep=4))
    dense = printed(WORKLOAD, topology(dp=4))
    experts = {
        "num_experts": "8",
        "moe_router_topk": "2",
        "moe_ffn_hidden_size": "24",
        "moe_layer_freq": "[0, 1, 1, 1]",
        "moe_shared_expert_intermediate_size": str(shared or None),
        "moe_shared_expert_gate": str(shared > 0),
        "expert_model_parallel_size": "4",
        "moe_router_force_load_balancing": "True",
    }
    assert {name: value for name, value in found.items() if name not in dense} == experts
    natural = printed(replace(WORKLOAD, model=model, routing="natural"), topology(dp=4, ep=4))
    assert natural["moe_router_force_load_balancing"] == "False"


def test_a_smaller_batch_averages_gradients_over_fewer_microbatches() -> None:
    """DeepSpeed restarts its count of microbatches, and routers scale their losses by 1 / microbatches."""
    recipe = Recipe(workload=replace(WORKLOAD, model=mixture()), recompute_attention=False, microbatches=4)
    router = Router(recipe, maker("router"))
    assert router.factor == 1 / 4
    sizes: list[int] = []
    engine = SimpleNamespace(
        set_train_batch_size=sizes.append,
        micro_steps=4,
        module=torch.nn.Sequential(torch.nn.Linear(1, 1), router),
        gradient_accumulation_steps=lambda: 3,
    )
    train.set_batch(engine, 12)
    assert (sizes, engine.micro_steps, router.factor) == ([12], 0, 1 / 3)


def test_each_rank_computes_the_loss_with_its_part_of_the_vocabulary(threads: Callable[..., list[Any]]) -> None:
    """Two ranks with 6 tokens each have the losses over all 12 tokens, and the gradients of their own logits."""
    labels = torch.arange(12)[:, None]  # every token is the label at one position
    group = Group([0, 1])
    drawn = torch.randn(12, 1, 12, generator=torch.Generator().manual_seed(1))
    weights = torch.arange(1.0, 13.0)

    def work(rank: int) -> tuple[Any, Any]:
        logits = drawn[..., 6 * rank : 6 * rank + 6].clone().requires_grad_()
        apply: Any = vocabulary._ParallelLoss.apply
        losses = apply(logits, labels, 6 * rank, group)
        (losses[:, 0] * weights).sum().backward()
        return losses.detach()[:, 0], logits.grad

    (first, low), (second, high) = threads(work, 2, [group])
    whole = drawn.clone().requires_grad_()
    expected = torch.nn.functional.cross_entropy(whole[:, 0], labels[:, 0], reduction="none")
    (expected * weights).sum().backward()
    torch.testing.assert_close(first, expected.detach())
    torch.testing.assert_close(second, first)
    torch.testing.assert_close(torch.cat((low, high), dim=-1), whole.grad)
