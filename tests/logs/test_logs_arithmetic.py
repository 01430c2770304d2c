"""Figures of logs compared with values calculated by hand: chosen iterations, parsed lines, described arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.core.domain import Topology, Workload
from tuner.core.errors import InputError
from tuner.core.experts import Experts
from tuner.core.model import Model
from tuner.logs import files
from tuner.logs.arguments import argument
from tuner.logs.choice import asked, chosen_run, parse_iterations, second, spelt
from tuner.logs.lines import speaker, visible
from tuner.logs.log import Log
from tuner.logs.records import Iteration, LogRecord, PeakMemory, lines_of_megatron, memory
from tuner.logs.runs import LogRun
from tuner.logs.workload import described

approx: Any = pytest.approx
GIB = 2**30


def run(numbers: tuple[int, ...] = (), **arguments: str) -> LogRun:
    """Return a run with these iterations and arguments."""
    iterations = tuple(Iteration(number=number, seconds=1.0) for number in numbers)
    return LogRun(iterations=iterations, source=None, line=1, arguments=arguments, peak=PeakMemory(), failure=None)


@pytest.mark.parametrize(
    ("text", "spans"),
    [("2-5", ((2, 5),)), ("2,3,7", ((2, 2), (3, 3), (7, 7))), (" 4 - 4 , 9", ((4, 4), (9, 9)))],
)
def test_ranges_and_lists_of_iterations_are_parsed(text: str, spans: tuple[tuple[int, int], ...]) -> None:
    assert parse_iterations(text) == spans


def test_a_reversed_range_is_refused_with_the_correction() -> None:
    with pytest.raises(InputError, match="the range 5-4 runs backwards; write 4-5"):
        parse_iterations("5-4")


@pytest.mark.parametrize(
    ("spans", "chosen", "missing"),
    [
        (((2, 4),), (2, 3, 4), ""),
        (((4, 4),), (4,), ""),
        (((2, 2), (5, 5)), (2, 5), ""),
        (((1, 4),), (), "1"),
        (((2, 6),), (), "6"),
        (((6, 6),), (), "6"),
        (((8, 9),), (), "8"),
        (((1, 1), (7, 7)), (), "1 or 7"),
    ],
)
def test_all_iterations_of_a_span_must_be_logged(
    spans: tuple[tuple[int, int], ...], chosen: tuple[int, ...], missing: str
) -> None:
    """The log has iterations 2 to 5."""
    found, reason = asked(run(), (2, 3, 4, 5), spans)
    assert found == chosen
    assert reason == (f"the log has iterations 2 to 5, not {missing}." if missing else "")


@pytest.mark.parametrize(
    ("span", "chosen", "missing"),
    [
        ((10, 40), (10, 20, 30, 40), ""),
        ((1, 49), (10, 20, 30, 40), ""),
        ((11, 20), (20,), ""),
        ((0, 40), (), "0"),
        ((10, 50), (), "50"),
        ((21, 29), (), "21"),
        ((25, 25), (), "25"),
    ],
)
def test_with_an_interval_of_ten_only_every_tenth_iteration_is_required(
    span: tuple[int, int], chosen: tuple[int, ...], missing: str
) -> None:
    found, reason = asked(run(log_interval="10"), (10, 20, 30, 40), [span])
    assert found == chosen
    assert reason == (f"the log has iterations 10 to 40 in steps of 10, not {missing}." if missing else "")


def test_a_gap_is_named_by_its_first_iteration() -> None:
    assert asked(run(), (1, 2, 5, 6), [(1, 6)]) == ((), "the log has iterations 1 to 2 and 5 to 6, not 3.")
    assert asked(run(), (1, 2, 4), [(1, 4)])[1].endswith("not 3.")


@pytest.mark.parametrize(
    ("numbers", "interval", "words"),
    [
        ((3,), 1, "iteration 3"),
        ((1, 2, 3, 9), 1, "iterations 1 to 3 and 9"),
        ((10, 20, 30), 10, "iterations 10 to 30 in steps of 10"),
        ((10, 30), 10, "iterations 10 and 30"),
    ],
)
def test_iterations_are_printed_as_ranges(numbers: tuple[int, ...], interval: int, words: str) -> None:
    assert spelt(numbers, interval) == words


def test_a_missing_second_iteration_is_explained() -> None:
    assert second(run(), (1,))[1].startswith("only iteration 1 was found")
    assert second(run(log_interval="10"), (10,))[1].startswith("only iterations 1 to 10 in one line were found")


@pytest.mark.parametrize(("number", "chosen"), [(None, 1), (1, 0), (3, 2)])
def test_the_last_run_with_iterations_is_chosen_by_default(number: int | None, chosen: int) -> None:
    log = Log(runs=(run((1,)), run((1, 2)), run()))
    assert chosen_run(log, number) == chosen


@pytest.mark.parametrize("number", [0, 4])
def test_an_unknown_run_is_refused(number: int) -> None:
    with pytest.raises(InputError, match=f"--run {number} does not exist: the log has 3 runs"):
        chosen_run(Log(runs=(run(), run(), run())), number)
    assert chosen_run(Log(runs=(run(), run(), run())), None) == 2


def only(text: str) -> LogRecord:
    """Return the only record of a line."""
    (found,) = lines_of_megatron(7, text)
    return found


MEGATRON = (
    "[default7]: iteration 12/ 500 | consumed samples: 5 | elapsed time per iteration (ms): 1250.5 | "
    "global batch size: 64 | lm loss: 1.5E+00 | samples per second: 51.2 | TFLOPs: 105.25 | "
    "curriculum seqlen: 2048 | mem usages: 0.75 | number of skipped iterations: 3 | "
)


def test_megatron_lines_are_read_field_by_field() -> None:
    """The time is 1250.5 ms with a last digit of 0.1 ms."""
    found = only(MEGATRON)
    assert (found.source, found.speaker, found.counted) == ("megatron", "[default7]:", False)
    assert found.iteration == Iteration(
        number=12,
        seconds=approx(1.2505),
        seconds_digit=approx(1e-4),
        tflops=105.25,
        tflops_digit=approx(0.01),
        global_batch=64,
        samples_per_second=51.2,
        seq=2048,
        loss=1.5,
        memory_share=0.75,
        skipped=3,
        line=7,
    )


def test_two_ranks_may_share_a_line() -> None:
    text = MEGATRON + MEGATRON.replace("12/", "13/").replace("default7", "default5")
    first, other = lines_of_megatron(7, text)
    assert (first.iteration.number, other.iteration.number) == (12, 13)
    assert (first.speaker, other.speaker) == ("[default7]:", "[default5]:")


@pytest.mark.parametrize(
    ("field", "seconds", "digit"),
    [
        ("elapsed time per iteration (s): 2.25", 2.25, 0.01),
        ("elapsed time per iteration (ms): 2250", 2.25, 1e-3),
        ("elapsed time per iteration (ms): 2250.0/2400.0", 2.25, 1e-4),
        ("elapsed time per iteration (s): 1.5E+01", 15.0, 1.0),
    ],
)
def test_times_are_in_seconds_with_the_value_of_the_last_digit(field: str, seconds: float, digit: float) -> None:
    found = only(f" iteration 2/ 5 | {field} | ").iteration
    assert (found.seconds, found.seconds_digit) == (approx(seconds), approx(digit))


@pytest.mark.parametrize(("loss", "value"), [("nan", math.nan), ("-inf", math.nan), ("2.5", 2.5)])
def test_a_loss_that_is_not_finite_is_nan(loss: str, value: float) -> None:
    line = f" iteration 2/ 5 | elapsed time per iteration (ms): 5.0 | lm loss: {loss} | "
    assert only(line).iteration.loss == approx(value, nan_ok=True)


@pytest.mark.parametrize(("share", "found"), [("1.0", 1.0), ("1.01", None), ("0.0", None)])
def test_a_share_of_memory_is_at_most_one(share: str, found: float | None) -> None:
    line = f" iteration 2/ 5 | elapsed time per iteration (ms): 5.0 | mem usages: {share} | "
    assert only(line).iteration.memory_share == found


@pytest.mark.parametrize(
    ("line", "allocated", "reserved", "in_use"),
    [
        (
            "memory (MB) | allocated: 1.0 | max allocated: 2048.0 | reserved: 3072.0 | max reserved: 4096.0",
            *(2.0, 4.0, None),
        ),
        ("memory (MB) | allocated: 1.0 | max allocated: 2048.0 | reserved: 3072.0 | max res", 2.0, 3.0, None),
        ("MA 1.5 GB         Max_MA 2.5 GB         CA 3.62 GB         Max_CA 4 GB", 2.5, 3.62, None),
        ("MA 1.5 GB         Max_MA 2.5 GB         CA 3.62 GB         Max_CA 6 GB", 2.5, 6.0, None),
        ("CurrSamplesPerSec=1, MemAllocated=1.0GB, MaxMemAllocated=5.25GB", 5.25, None, None),
        ("hip mem usage/free/total/usage_ratio: 12.5GB/51.5GB/64GB/20%", None, None, 12.5),
    ],
)
def test_peaks_are_in_bytes(line: str, allocated: float | None, reserved: float | None, in_use: float | None) -> None:
    """Megatron prints MiB as MB; DeepSpeed prints GiB, and Max_CA in whole GiB."""
    expected = [None if value is None else approx(value * GIB) for value in (allocated, reserved, in_use)]
    found = memory(line)
    assert found is not None
    assert [found.allocated, found.reserved, found.in_use] == expected


def test_lines_are_numbered_from_one_without_control_characters() -> None:
    assert list(visible(["a\n", "\n", "\x1b[31mb\x1b[0m\rc\n", "d\0\n"])) == [(1, "a"), (3, "b"), (3, "c"), (4, "d")]
    assert speaker("[2024-01-02 03:04:05,678] node01: ") == "node01:"


PRINTED = {
    "num_layers": "24",
    "hidden_size": "1024",
    "num_attention_heads": "16",
    "seq_length": "2048",
    "padded_vocab_size": "50304",
    "micro_batch_size": "2",
    "global_batch_size": "64",
    "world_size": "48",
    "tensor_model_parallel_size": "2",
    "pipeline_model_parallel_size": "3",
}


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ({}, {"tp": 2, "pp": 3, "cp": 1, "dp": 8, "nodes": 6, "vpp": 1, "micro_batch": 2, "zero": 0}),
        ({"context_parallel_size": "2"}, {"cp": 2, "dp": 4, "nodes": 6}),
        ({"data_parallel_size": "3"}, {"dp": 3, "nodes": 3}),
        ({"world_size": "4"}, {"dp": 1, "nodes": 1}),
        ({"virtual_pipeline_model_parallel_size": "2"}, {"vpp": 2}),
        ({"use_distributed_optimizer": "True"}, {"zero": 1}),
        ({"use_distributed_optimizer": "True", "data_parallel_sharding_strategy": "optim_grads"}, {"zero": 2}),
        ({"use_distributed_optimizer": "True", "data_parallel_sharding_strategy": "no_shard"}, {"zero": 1}),
        ({"use_distributed_optimizer": "True", "zero_stage": "3"}, {"zero": 3}),
        ({"zero_stage": "2"}, {"zero": 2}),
        ({"zero_stage": "2", "zero_optimization_stage": "3"}, {"zero": 2}),
        ({"recompute_granularity": "selective"}, {"recompute": "selective"}),
        (
            {"recompute_granularity": "selective", "recompute_modules": "['moe_act', 'mlp']"},
            {"recompute": "mlp+moe_act"},
        ),
        ({"recompute_granularity": "selective", "recompute_modules": "['mhc', 'moe']"}, {"recompute": "moe"}),
        ({"recompute_granularity": "None", "recompute_modules": "['moe']"}, {"recompute": "none"}),
        ({"recompute_granularity": "full"}, {"recompute": "full"}),
        ({"checkpoint_activations": "True"}, {"recompute": "full"}),
        ({"recompute_activations": "True"}, {"recompute": "selective"}),
        ({"recompute_granularity": "None"}, {"recompute": "none"}),
        ({"overlap_moe_expert_parallel_comm": "True"}, {"moe_overlap": True}),
        ({"overlap_moe_expert_parallel_comm": "False"}, {"moe_overlap": False}),
        ({"sequence_parallel": "True"}, {"sequence_parallel": True}),
        ({"sequence_parallel": "False"}, {"sequence_parallel": False}),
        ({"pp_partition_method": "type:transformer|embedding"}, {"partition": "embedding"}),
        ({"pp_partition_method": "None"}, {"partition": "layers"}),
    ],
)
def test_arguments_determine_the_axes_of_a_topology(printed: Mapping[str, str], expected: Mapping[str, object]) -> None:
    """dp = world / (tp x pp x cp), on as many nodes of 8 GPUs as needed."""
    found = described({**PRINTED, **printed}, 8)
    assert found.lacks == ""
    assert {name: getattr(found.topology, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("printed", "part", "expected"),
    [
        ({}, "kv_heads", 16),
        ({"group_query_attention": "True", "num_query_groups": "4"}, "kv_heads", 4),
        ({"group_query_attention": "False", "num_query_groups": "4"}, "kv_heads", 16),
        ({"num_key_value_heads": "8"}, "kv_heads", 8),
        ({"kv_channels": "64"}, "query_width", 1024),
        ({"kv_channels": "128"}, "query_width", 2048),
        ({"swiglu": "True"}, "gated_mlp", True),
        ({"glu_activation": "geglu"}, "gated_mlp", True),
        ({"glu_activation": "None"}, "gated_mlp", False),
        ({}, "tied_embeddings", True),
        ({"untie_embeddings_and_output_weights": "True"}, "tied_embeddings", False),
        ({"ffn_hidden_size": "3000"}, "ffn", 3000),
    ],
)
def test_arguments_determine_the_sizes_of_a_model(printed: Mapping[str, str], part: str, expected: object) -> None:
    found = described({**PRINTED, **printed}, 8)
    assert found.workload is not None
    assert getattr(found.workload.model, part) == expected


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ({}, (64, "fp32", "eager")),
        ({"global_batch_size": "None", "data_parallel_size": "8"}, (16, "fp32", "eager")),
        ({"global_batch_size": "None"}, (2, "fp32", "eager")),
        ({"bf16": "True", "fp16": "True"}, (64, "bf16", "eager")),
        ({"fp16": "True", "masked_softmax_fusion": "True"}, (64, "fp16", "fused")),
        ({"fp8": "hybrid", "bf16": "True"}, (64, "fp8", "eager")),
        ({"fp8": "None", "fp4": "e2m1", "bf16": "True"}, (64, "fp4", "eager")),
        ({"use_flash_attn": "True", "masked_softmax_fusion": "True"}, (64, "fp32", "flash2")),
        ({"use_flash_attn_v1": "True", "use_flash_attn": "True"}, (64, "fp32", "flash1")),
    ],
)
def test_arguments_determine_batch_precision_and_kernel(printed: Mapping[str, str], expected: object) -> None:
    found = described({**PRINTED, **printed}, 8).workload
    assert found is not None
    assert (found.global_batch, found.precision, found.attention) == expected


@pytest.mark.parametrize(("experts", "lacks"), [("1", False), ("2", True)])
def test_a_mixture_of_experts_needs_its_top_k(experts: str, lacks: bool) -> None:
    found = described({**PRINTED, "num_experts": experts}, 8)
    assert ("mixture of experts" in found.lacks) == lacks
    assert (found.workload is None) == lacks
    assert found.workload is None or found.workload.model.experts is None


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ({}, Experts(count=8, top_k=2, ffn=16)),
        ({"moe_layer_freq": "1"}, Experts(count=8, top_k=2, ffn=16)),
        ({"moe_layer_freq": "[0, 1, 1]"}, Experts(count=8, top_k=2, ffn=16, dense_layers=1)),
        ({"moe_layer_freq": "[0, 0, 1]"}, Experts(count=8, top_k=2, ffn=16, period=3)),
        (
            {"moe_shared_expert_intermediate_size": "24", "moe_shared_expert_gate": "True"},
            Experts(count=8, top_k=2, ffn=16, shared_ffn=24, shared_gate=True),
        ),
    ],
)
def test_arguments_determine_the_experts(printed: Mapping[str, str], expected: Experts) -> None:
    mixture = {"num_experts": "8", "moe_router_topk": "2", "moe_ffn_hidden_size": "16", "num_layers": "3"}
    found = described({**PRINTED, **mixture, **printed}, 8)
    assert found.workload is not None
    assert found.workload.model.experts == expected
    assert found.workload.routing == "natural"


def test_the_head_of_a_log_is_read_until_it_is_long_enough() -> None:
    pieces = iter([b"12", b"34", b"56", b"78"])
    assert list(files._first(pieces, 4)) == [b"12", b"34"]
    assert next(pieces) == b"56"


@pytest.mark.parametrize(("controls", "text"), [(2, True), (3, False)])
def test_text_has_at_most_two_control_characters_in_a_hundred(controls: int, text: bool, tmp_path: Path) -> None:
    """NUL bytes count neither as characters nor as control characters."""
    path = tmp_path / "log"
    path.write_bytes(b"\x01" * controls + b"a" * (99 - controls) + b"\n" + b"\0" * 500)
    if text:
        assert len("".join(files.log_lines(str(path)))) == 600
        return
    with pytest.raises(InputError, match="is not text"):
        list(files.log_lines(str(path)))


def test_an_overlong_line_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LONGEST_LINE", 4)
    (tmp_path / "log").write_text("abcdef\ngh\n")
    assert list(files.log_lines(str(tmp_path / "log"))) == ["abcd", "ef\n", "gh\n"]


def test_the_log_of_the_shipped_worker_describes_its_mixture() -> None:
    """The FLOPs per token from the log's arguments equal those of the job's model."""
    report = pytest.importorskip("tuner.worker.report", exc_type=ImportError)
    own = Model(layers=4, hidden=32, heads=4, ffn=64, vocab=128, seq=16, gated_mlp=True)
    experts = Experts(count=8, top_k=2, ffn=24, shared_ffn=16, shared_gate=True, dense_layers=1)
    for mixed in (experts, replace(experts, dense_layers=0, period=2), replace(experts, top_k=1, shared_ffn=0)):
        job = Workload(model=replace(own, experts=mixed), global_batch=8)
        chosen = Topology(nodes=1, tp=1, pp=1, dp=4, micro_batch=1, ep=2, recompute="none")
        printed = dict(found for line in report.argument_lines(job, chosen) if (found := argument(line)))
        read = described(printed, 4)
        assert read.workload, read.lacks
        assert read.workload.model.experts
        assert read.topology
        assert (read.topology.ep, read.workload.routing) == (2, "balanced")
        assert report.hardware_flops(read.workload, 1, "none") == report.hardware_flops(job, 1, "none")


@pytest.mark.parametrize(
    ("peak", "figure"),
    [
        (PeakMemory(), (None, None)),
        (PeakMemory(allocated=3.0), (3.0, "allocated")),
        (PeakMemory(allocated=3.0, reserved=4.0), (4.0, "reserved")),
        (PeakMemory(allocated=3.0, reserved=4.0, in_use=5.0), (5.0, "smi")),
        (PeakMemory(allocated=61.0, reserved=2.0), (61.0, "allocated")),
    ],
)
def test_the_largest_figure_is_the_peak(peak: PeakMemory, figure: tuple[float | None, str | None]) -> None:
    """DeepSpeed prints what is reserved once, at initialization, and later what is allocated."""
    assert peak.figure == figure
