"""Iterations, runs, memory and arguments are read from logs of every format, however mangled."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import ROOT
from tests.strategies import log_texts, rank_logs
from tuner.logs import Log, LogRun, described, read_log

LOGS = ROOT / "tests/data/logs"


def read(name: str) -> Log:
    """Read a log of the test data."""
    text = (LOGS / f"{name}.log").read_bytes().decode("utf-8", errors="replace")
    return read_log(text.splitlines(keepends=True))


def only_run(name: str) -> LogRun:
    (run,) = read(name).runs
    return run


def figures(log: Log) -> list[list[tuple[object, ...]]]:
    """Return the contents of a log without line numbers."""
    return [
        [(i.number, i.seconds, i.tflops, i.global_batch, i.loss, pytest.approx(i.spread)) for i in run.iterations]
        for run in log.runs
    ]


FORMATS = {
    "megatron-deepspeed": ("megatron", 4, 2, 131.72, 122.39),
    "megatron-deepspeed-older": ("megatron", 3, 2, 143.31, 108.31),
    "megatron-lm": ("megatron", 5, 2, 8.2125, 462.1),
    "megatron-lm-older": ("megatron", 4, 20, 0.6123, None),
    "megatron-lm-mem-usages": ("megatron", 3, 2, 0.6123, 400.0),
    "megatron-lm-rocm": ("megatron", 3, 2, 13.3728, 567.6),
    "gpt-neox": ("megatron", 3, 2, 1.51, 150.3),
    "deepspeed-pipeline": ("pipeline engine", 6, 2, 0.073, None),
    "deepspeed-timer": ("throughput timer", 10, 4, None, None),
    "deepspeed-timer-older": ("throughput timer", 3, 20, None, None),
    "deepspeed-breakdown": ("wall-clock breakdown", 3, 2, 0.321, None),
    "glued": ("megatron", 3, 2, 105.0, 142.0),
    "interleaved": ("megatron", 3, 2, 107.16, 142.0),
    "colours": ("megatron", 3, 2, 120.0, 102.0),
    "truncated": ("megatron", 3, 2, 120.0, 102.0),
}
"""Source and number of iterations of each file; number, seconds and TFLOPs of one of them."""


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_read_as_iterations(name: str) -> None:
    source, count, number, seconds, tflops = FORMATS[name]
    run = only_run(name)
    assert (run.source, len(run.iterations)) == (source, count)
    (iteration,) = [each for each in run.iterations if each.number == number]
    assert iteration.seconds == (seconds if seconds is None else pytest.approx(seconds, rel=1e-12))
    assert iteration.tflops == tflops
    assert run.failure is None


def test_step_times_follow_from_samples_per_second_and_the_configured_batch() -> None:
    run = only_run("deepspeed-timer")
    assert run.iterations[1].samples_per_second == 269.8251758812524
    assert run.arguments["train_batch_size"] == "8"


def test_the_flops_profiler_is_used_only_as_a_last_resort() -> None:
    """The profiler prints a running total after each microbatch, so only the last line covers the whole step."""
    real = (LOGS / "deepspeed-timer.log").read_text().splitlines()
    others = ("SamplesPerSec", "time (ms) |")
    (run,) = read_log(line for line in real if not any(word in line for word in others)).runs
    assert run.source == "flops profiler"
    latencies = [float(line.split()[2]) for line in real if line.startswith("iter latency:")]
    assert [iteration.seconds for iteration in run.iterations] == [pytest.approx(latencies[-1] / 1e3)]


MEMORY = {
    "megatron-deepspeed": (61447.25 / 1024, 65543 / 1024, None),
    "megatron-lm": (51234.75 / 1024, 55298 / 1024, None),
    "deepspeed-timer-older": (14.2, None, None),
    "deepspeed-breakdown": (3.5, 4.12, None),
    "megatron-lm-rocm": (None, None, 153.5),
    "ramp": (None, None, None),
}


@pytest.mark.parametrize("name", MEMORY)
def test_peak_memory_is_that_of_the_fullest_rank(name: str) -> None:
    peak = only_run(name).peak
    found = [value and value / 2**30 for value in (peak.allocated, peak.reserved, peak.in_use)]
    assert found == [value and pytest.approx(value) for value in MEMORY[name]]


def test_a_ramp_up_keeps_the_batch_of_each_iteration() -> None:
    assert [iteration.global_batch for iteration in only_run("ramp").iterations] == [16, 16, 32, 32, 64]


def test_an_iteration_reported_by_all_ranks_counts_once_with_the_slowest_time() -> None:
    apart = [round(iteration.spread, 4) for iteration in only_run("interleaved").iterations]
    assert apart == [0.0006, 0.0206, 0.0006]
    assert [iteration.seconds for iteration in only_run("interleaved").iterations] == [170.1, 107.16, 105.26]


@given(rank_logs(), st.randoms(use_true_random=False))
def test_any_interleaving_of_ranks_is_read_the_same(ranks: list[list[str]], dice: random.Random) -> None:
    one_after_the_other = read_log(line for lines in ranks for line in lines)
    left = [list(lines) for lines in ranks]
    mixed = []
    while any(left):
        mixed.append(dice.choice([lines for lines in left if lines]).pop(0))
    assert figures(read_log(mixed)) == figures(one_after_the_other)
    assert len(one_after_the_other.runs) == 1


@given(st.sampled_from(sorted(set(FORMATS) - {"glued", "interleaved", "deepspeed-timer"})), st.floats(0, 1))
def test_a_truncated_log_gives_a_prefix_of_the_iterations(name: str, share: float) -> None:
    text = (LOGS / f"{name}.log").read_bytes()
    cut = text[: int(len(text) * share)].decode("utf-8", errors="replace").splitlines(keepends=True)
    whole = [(i.number, i.seconds, i.samples_per_second) for i in only_run(name).iterations]
    found = [(i.number, i.seconds, i.samples_per_second) for run in read_log(cut).runs for i in run.iterations]
    # The end of the last line may be missing, and with it the last figures.
    assert [pair[:2] for pair in found] == [pair[:2] for pair in whole[: len(found)]]
    assert found[:-1] == whole[: max(0, len(found) - 1)]


@given(log_texts())
def test_arbitrary_text_is_read_without_an_exception(text: str) -> None:
    for run in read_log(text.splitlines(keepends=True)).runs:
        numbers = [iteration.number for iteration in run.iterations]
        assert numbers == sorted(set(numbers))
        assert all(i.seconds is None or 0 < i.seconds < 1e12 for i in run.iterations)
        assert run.interval is None or run.interval >= 0
        described(run.arguments, 8)


@given(st.lists(st.tuples(st.text("abc_", max_size=3), st.sampled_from(["\r", "\x1b[1;32m", "\0", "\n", " "]))))
def test_invisible_control_characters_change_nothing(noise: list[tuple[str, str]]) -> None:
    line = (LOGS / "truncated.log").read_text().splitlines()[1]
    before = "".join(word + mark for word, mark in noise)
    (iteration,) = read_log([f"{before}\n", f"\x1b[33m{line[:40]}\x1b[0m{line[40:]}\0\r\n"]).runs[0].iterations
    assert (iteration.number, iteration.seconds, iteration.tflops) == (2, 120.0, 102.0)


def test_a_restarted_log_has_two_runs_with_their_own_arguments() -> None:
    first, second = read("restart").runs
    assert [i.number for i in first.iterations] == [1, 2, 3, 4]
    assert [i.number for i in second.iterations] == [3, 4, 5]
    assert (first.arguments["world_size"], second.arguments["world_size"]) == ("384", "768")
    assert first.failure
    assert first.failure.failure.kind == "PREEMPTED"
    assert second.failure is None


@pytest.mark.parametrize("prefix", ["", "[default7]:", "0: ", "node01: ", "[2024-05-01 12:00:00] "])
def test_falling_iteration_numbers_start_another_run(prefix: str) -> None:
    """A filtered log has no arguments that mark a restart; numbers of two ranks in step do not fall."""
    lines = [line.strip() for line in (LOGS / "truncated.log").read_text().splitlines()[:3]]
    slower = [line.replace("(s): 1", "(s): 3") for line in lines]
    two = read_log([*(prefix + line for line in lines), *(prefix + line for line in slower[:2])])
    assert [[i.number for i in run.iterations] for run in two.runs] == [[1, 2, 3], [1, 2]]


@pytest.mark.parametrize("prefix", ["", "[default7]:"])
def test_ranks_with_equal_labels_and_equal_losses_are_one_run(prefix: str) -> None:
    """The last rank of every node is labelled `[default7]`."""
    lines = [prefix + line for line in (LOGS / "truncated.log").read_text().splitlines()[:3]]
    slower = [line.replace("0.00 |", "1.00 |") for line in lines]
    for mixed in ([*lines, *slower], [line for pair in zip(lines, slower, strict=True) for line in pair]):
        (run,) = read_log(mixed).runs
        assert [i.number for i in run.iterations] == [1, 2, 3]


def test_a_line_covers_as_many_iterations_as_the_logging_interval() -> None:
    run = only_run("megatron-lm-older")
    assert run.interval == 10
    assert replace(run, iterations=run.iterations[:1]).interval is None
    assert replace(run, iterations=run.iterations[:1], arguments={"log_interval": "5"}).interval == 5
    assert only_run("megatron-deepspeed").interval == 1


def test_arguments_describe_the_model_and_the_topology() -> None:
    run = only_run("megatron-lm")
    found = described(run.arguments, 8)
    assert found.topology
    assert found.workload
    assert (found.topology.key, found.topology.nodes) == ("tp2-pp1-dp8-mbs1-z1-sp-rsel", 2)
    model = found.workload.model
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.ffn) == (32, 4096, 32, 8, 14336)
    assert (model.vocab, model.vocab_multiple, model.seq, model.gated_mlp) == (128256, 0, 8192, True)
    assert (found.workload.precision, found.workload.attention, found.workload.global_batch) == ("bf16", "flash2", 128)
    bloom = described(only_run("megatron-deepspeed").arguments, 8).topology
    assert bloom
    assert (bloom.key, bloom.nodes) == ("tp8-pp12-dp4-mbs1-z1-emb", 48)


LACKING = {
    "the log does not print the arguments of its model": {"num_layers": "None"},
    "the log is of a mixture of experts and does not print how many": {"num_experts": "8"},
    "the log is of a model with gdn, whose operations are not counted": {"experimental_attention_variant": "gdn"},
    "the log is of a model with gated_delta_net, whose operations": {"linear_attention_type": "gated_delta_net"},
    "the log is of a model with gated attention, whose operations": {"attention_output_gate": "True"},
    "the log is of a mixture of experts with latent attention": {
        "num_experts": "8",
        "moe_router_topk": "2",
        "multi_latent_attention": "True",
    },
    "the log is of a mixture of experts with layers of multi-token": {
        "num_experts": "8",
        "moe_router_topk": "2",
        "mtp_num_layers": "1",
    },
    "the log is of a mixture of experts in layers of no known pattern": {
        "num_experts": "8",
        "moe_router_topk": "2",
        "moe_layer_freq": "[1, 0, 0, 1, 1]",
    },
    "the arguments in the log do not name a vocabulary": {"padded_vocab_size": "None"},
    "the arguments in the log do not name a sequence length or a micro-batch size": {
        "seq_length": "x",
        "micro_batch_size": "None",
    },
    "the arguments in the log cannot be used: model field layers must be": {"num_layers": "99999999"},
}


@pytest.mark.parametrize("sentence", LACKING)
def test_missing_arguments_are_named(sentence: str) -> None:
    found = described({**only_run("megatron-lm").arguments, **LACKING[sentence]}, 8)
    assert found.topology is None
    assert found.lacks.startswith(sentence)


@pytest.mark.parametrize(
    ("printed", "part"),
    [
        ({"recompute_granularity": "full"}, "tp2-pp1-dp8-mbs1-z1-sp"),
        ({"recompute_granularity": "None"}, "tp2-pp1-dp8-mbs1-z1-sp-rnone"),
        ({"recompute_modules": "['mlp', 'core_attn']"}, "tp2-pp1-dp8-mbs1-z1-sp-rcore_attn+mlp"),
        ({"recompute_granularity": "None", "checkpoint_activations": "True"}, "tp2-pp1-dp8-mbs1-z1-sp"),
        ({"use_distributed_optimizer": "False", "zero_stage": "3"}, "tp2-pp1-dp8-mbs1-z3-sp-rsel"),
        ({"data_parallel_sharding_strategy": "optim_grads_params"}, "tp2-pp1-dp8-mbs1-z3-sp-rsel"),
        ({"virtual_pipeline_model_parallel_size": "2", "sequence_parallel": "False"}, "tp2-pp1-dp8-mbs1-z1-vpp2-rsel"),
        ({"data_parallel_size": "None", "context_parallel_size": "2"}, "tp2-pp1-dp4-mbs1-z1-cp2-sp-rsel"),
    ],
)
def test_arguments_of_megatron_become_axes_of_a_topology(printed: dict[str, str], part: str) -> None:
    topology = described({**only_run("megatron-lm").arguments, **printed}, 8).topology
    assert topology
    assert topology.key == part


def test_the_readme_of_the_logs_lists_the_real_ones() -> None:
    text = (LOGS / "README.md").read_text()
    assert all((Path(LOGS) / name).exists() for name in text.split("`") if name.endswith(".log"))


@pytest.mark.parametrize(("text", "digit"), [("(ms): 200.5", 1e-4), ("(s): 0.20", 1e-2)])
def test_the_precision_of_a_time_is_in_seconds(text: str, digit: float) -> None:
    (iteration,) = read_log([f" iteration 2/ 9 | elapsed time per iteration {text} |"]).runs[0].iterations
    assert iteration.seconds_digit == pytest.approx(digit)


def test_batches_per_step_belong_to_their_own_run() -> None:
    """A step has two batches in the first run and one in the second."""
    bar = "Epoch 0:  50%|##        | {}/500 [00:{:02d}<00:30, 10.0it/s, v_num=0, loss={}.1]"
    lines = []
    for loss, steps in ((2, 250), (3, 500)):
        lines += [bar.format(n, n // 10, loss) for n in range(1, 501)]
        lines.append(f"Epoch 0, global step {steps}: 'val_loss' reached 2.1")
    runs = read_log(lines).runs
    assert [round(run.iterations[1].seconds or 0.0, 3) for run in runs] == [0.2, 0.1]
